"""Certified values and references with 50 digits: see `tools.digits`."""

import hashlib
import re

import numpy as np
import pytest

from tools.digits import __main__ as writing
from tools.digits import problems
from tools.digits.measuring import EPS, difference, measured, row

UNITS = 10.0
"""Of condition number times 2⁻⁵²: what a comparison may be off."""

TAILS = 1e4
"""The same for one-sided truncated normals, which come from a table good to 1e-12."""


@pytest.fixture(scope="module")
def rows():
    return measured()


def allowed(row):
    one_sided = row.family.startswith("Truncated") and "inf" in row.point
    return TAILS if one_sided else UNITS


def test_no_digit_is_lost_that_could_be_kept(rows):
    assert [one for one in rows if not one.error <= allowed(one)] == []
    assert sum(allowed(one) == UNITS for one in rows) > 0.9 * len(rows)


def test_every_family_and_every_hard_point_is_there(rows):
    families = {one.family for one in rows}
    models = "PCA PPCA CCA KernelPCA DualPPCA ProbabilisticKernelPCA MixturePPCA HiddenMarkovPCA"
    gaps = "PPCA FactorAnalysis BayesianPCA RobustPPCA"
    assert set(models.split()) | {f"{name}, rows with gaps" for name in gaps.split()} <= families
    assert set(problems.POINTS) <= {one.point for one in rows}
    assert {f"SmLs{k:02}" for k in range(1, 10)} | {"SiRstv", "AtmWtAg"} <= {o.point for o in rows}
    names = "Lew Lottery Mavro Michelso NumAcc1 NumAcc2 NumAcc3 NumAcc4 PiDigits"
    assert set(names.split()) <= {one.point for one in rows}


NUMBER = re.compile(r"(?:< )?\d[\d.]*(?:e\d+)? \((\d[\d.e]*)\)")


def cells(text):
    return [
        (line.split("|")[1].strip(), k, cell)
        for line in text.splitlines()
        if "|" in line
        for k, cell in enumerate(line.split("|")[2:-1])
    ]


def test_the_page_is_the_one_that_the_command_writes(rows):
    # errors are those of one machine's BLAS: another may be a few times better or worse
    there, fresh = writing.PAGE.read_text(encoding="utf-8"), writing.page(rows)
    assert NUMBER.sub("#", there) == NUMBER.sub("#", fresh), "run python -m tools.digits"
    for (_, _, one), (_, _, other) in zip(cells(there), cells(fresh), strict=True):
        if "(" in one:
            printed, known = (float(c.partition(" (")[0].replace("< ", "")) for c in (other, one))
            assert printed <= max(UNITS, 10 * known), (one, other)
            conditions = [float(NUMBER.search(c.strip())[1]) for c in (one, other)]
            assert conditions[0] == pytest.approx(conditions[1], rel=0.5)


def test_units_are_those_of_the_last_digit():
    assert difference([1.0, 2.0], ["1", "2.5"]) == 0.5
    assert row("", "", "", 1 + EPS, ["1"], 1, 1.0).error == pytest.approx(1)
    assert row("", "", "", [1.0, 0.0], ["1", "3e-16"], 1, [1.0, 1e-3]).error > 1e3
    # an error that float64 could not tell from none
    assert 0 < difference(0.1, ["0.1"]) < EPS
    with pytest.raises(AssertionError):
        difference([1.0], ["1", "2"])


@pytest.mark.parametrize(
    ("error", "text"), [(0.01, "< 0.1"), (0.11, "0.2"), (1.0, "1"), (1.1, "2"), (234.0, "300")]
)
def test_errors_are_rounded_up(error, text):
    assert writing.shown(error) == text


def test_tables_are_made_of_exact_numbers():
    for point in problems.POINTS:
        X = problems.table(point)
        assert X.dtype == np.float64 and np.isfinite(X).all()
    assert problems.digits_of_pi(12) == [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
    H = problems.hadamard(16)
    np.testing.assert_array_equal(H.T @ H, 16 * np.eye(16))
    assert problems.small_steps(1).shape == (21, 9) and problems.small_steps(9)[0, 0] == 1e12 + 0.4
    assert problems.numacc(4)[:3] == [10000000.2, 10000000.1, 10000000.3]
    X = problems.asked("plain")
    assert np.isnan(X[5]).all() and not np.isnan(X[0]).all()


def test_the_references_are_those_of_these_tables():
    text = b"".join(
        np.ascontiguousarray(problems.table(point)).tobytes() for point in problems.POINTS
    )
    assert hashlib.sha256(text).hexdigest()[:16] == "7b961e7b46c929ef"
