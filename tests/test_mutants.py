"""The tool that puts faults into the package: what it draws, and what it says of the ends."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from tools.mutants import drawing, nearest, running
from tools.mutants.__main__ import counts, equivalent, write

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "dualpca"

CODE = """
def total(x, weights, n: int) -> float:
    found = sum(w * v for w, v in zip(weights, x))
    if n > 1:
        found /= n - 1
    return found
"""


@pytest.fixture
def package(tmp_path):
    for room in drawing.ROOMS:
        (tmp_path / room).mkdir()
    (tmp_path / "models" / "mean.py").write_text(CODE)
    return tmp_path


def test_the_same_seed_draws_the_same_faults(package):
    def keys(seed):
        return [f.key for f in drawing.drawn(package, seed, lambda name: True, set())]

    assert keys(3) == keys(3)
    assert len({tuple(keys(seed)) for seed in range(8)}) > 1
    assert len(keys(3)) == 4  # at most one in each statement


@pytest.mark.parametrize(
    "line",
    [
        "rng = np.random.default_rng(0)",
        "self.pass_cost = 2.0 * n * d",
        "few = max(1, ROWS_PER_PARAMETER * n)",
    ],
)
def test_seeds_and_what_only_speed_depends_on_are_not_drawn(line, package):
    place = package / "models" / "mean.py"
    place.write_text(f"def f(self, np, n, d, rng):\n    {line}\n")
    assert drawing.statements(package, "models/mean.py") == []


def test_what_is_listed_as_equivalent_is_not_drawn(package):
    found = {
        fault.key
        for seed in range(30)
        for fault in drawing.drawn(package, seed, lambda name: True, set())
    }
    one = "models/mean.py - found /= n - 1 + found /= (n + 1)".replace("- ", "-", 1)
    one = one.replace("+ found", "+found", 1)
    assert one in found
    left = {
        fault.key
        for seed in range(30)
        for fault in drawing.drawn(package, seed, lambda name: True, {one})
    }
    assert one not in left


@pytest.mark.slow
def test_every_fault_listed_as_equivalent_can_still_be_drawn():
    keys = equivalent()
    found = set()
    for path in {key.partition(" ")[0] for key in keys}:
        text = [" ".join(line.split()) for line in (PACKAGE / path).read_text().splitlines()]
        first = tuple(key.partition(" -")[2] for key in keys if key.startswith(f"{path} "))
        for change in (one for group in drawing.statements(PACKAGE, path) for one in group):
            line = text[change.node.lineno - 1]
            fault = change.made() if any(key.startswith(line) for key in first) else None
            found |= {fault.key} if fault is not None else set()
    stale = sorted(keys - found)
    assert not stale, "the code has changed: delete these from tools/mutants/equivalent.txt"


@pytest.mark.parametrize(
    ("statuses", "end"),
    [
        ([0], "survived"),
        ([0, 0], "survived"),
        ([0, running.SKIPPED], "survived"),
        ([running.SKIPPED, running.NOTHING], "not tested"),
        ([running.NOTHING, running.NOTHING], "survived"),
        ([0, running.NOTHING], "survived"),
        ([], "survived"),
        ([0, 1], "killed"),
        ([-11], "killed"),
        ([0, None], "timeout"),
        ([running.INVALID], "invalid"),
    ],
)
def test_how_a_fault_ends(statuses, end):
    assert running._end(statuses) == end


def test_what_was_not_tested_is_counted_apart_and_known_at_any_time(tmp_path):
    ends = ["killed", "timeout", "survived", "not tested", "invalid"]
    kept = [{"end": end} for end in ends]
    write(kept[:2], Namespace(seed=7, out=tmp_path))
    write(kept, Namespace(seed=7, out=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mutants-7.json"]
    told = json.loads((tmp_path / "mutants-7.json").read_text())
    assert (told["seed"], told["valid"], told["killed"]) == (7, 3, 2)
    assert counts(kept)[1:] == (3, 2)


def test_tests_of_the_application_come_last():
    coverage = nearest.Coverage(Path("nowhere"))
    names = ["tests/app/test_a.py::a", "tests/models/test_b.py::b", "tests/test_c.py::c"]
    coverage.times = dict(zip(names, [0.1, 3.0, 0.2], strict=True))
    coverage.bits["models/x.py"] = [(name, b"\xff") for name in names]
    fault = drawing.Fault("models/x.py", "constant", 3, (3,), (1, 5), "", "")
    assert coverage.ranked(fault) == [names[2], names[1], names[0]]
    assert coverage.rounds(fault, 1.0, 10.0) == ([names[2], names[0]], [names[1]], [])
    coverage.slow = {names[1]}
    assert coverage.rounds(fault, 1.0, 10.0) == ([names[2], names[0]], [], [names[1]])
