"""Ordered levels are told by their order, unless hidden entries say otherwise."""

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import special

from dualpca import CopulaPPCA
from dualpca.arrays.progress import showing
from dualpca.errors import DegenerateError
from dualpca.gaussian import Score
from dualpca.models.copula import (
    CopulaFactors,
    CopulaRequest,
    LatentRows,
    choose_latents,
    choosing,
    fit_copula,
)
from dualpca.models.copula.choosing import is_out_of_order
from dualpca.models.copula.columns import fit_margin
from tests.models.copula.cases import law, nothing, rows_of

SEASONS = ["spring", "summer", "autumn"]


def year(bent, n=150):
    """Return a table of seasons and what depends on them: hump-shaped, or rising."""
    rng = np.random.default_rng(0)
    season = rng.integers(3, size=n)
    heat = np.array([0.0, 2.0, 0.0] if bent else [-1.0, 0.0, 1.0])[season]
    X = pd.DataFrame({"season": pd.Categorical.from_codes(season, SEASONS, ordered=True)})
    for name in ("warm", "dry"):
        X[name] = heat + 0.7 * rng.normal(size=n)
    return X


def test_levels_in_the_order_of_other_columns_are_ordinal():
    assert CopulaPPCA().fit(year(bent=False)).column_kinds_["season"] == "ordinal"


def test_levels_in_another_order_are_nominal(capsys):
    X = year(bent=True)
    bent = CopulaPPCA(verbose=True).fit(X)
    assert bent.column_kinds_["season"] == "nominal"
    assert "nominal by cross-validation: 'season'\n" in capsys.readouterr().err
    X["season"] = X["season"].where(X["season"] != "summer")  # hidden
    filled = bent.impute(X)
    assert filled["season"].dtype == X["season"].dtype  # it is an ordered category still
    hot = (filled["season"] == "summer")[X["season"].isna()]
    assert hot.mean() > 0.7  # by order alone a summer would never be found


def test_order_is_kept_where_it_is_asked_for():
    X = year(bent=True)
    for kind in ("ordinal", SEASONS):
        model = CopulaPPCA(column_kinds={"season": kind}).fit(X)
        assert model.column_kinds_["season"] == "ordinal"
    assert CopulaPPCA(1).fit(X).column_kinds_["season"] == "ordinal"  # nothing is chosen


def graded(n=400, sizes=()):
    """Return a law, rows and cuts of a column: the levels of the second half are out of order.

    Beside them nominal columns of `sizes`, which have nothing to do with it.
    """
    rng = np.random.default_rng(0)
    z = 0.8 * rng.normal(size=(n, 1)) + 0.6 * rng.normal(size=(n, 3))
    codes = np.searchsorted([-0.5, 0.5], z[:, 0])
    codes[n // 2 :] = np.array([0, 2, 1])[codes[n // 2 :]]
    margin = fit_margin(1.0 * codes, kind="ordinal", n_levels=3)
    low, high = z.copy(), z.copy()
    low[:, 0], high[:, 0] = margin.cuts[codes], margin.cuts[codes + 1]
    D = sum(sizes)
    W, psi = np.r_[np.full((3, 1), 0.8), np.zeros((D, 1))], np.r_[np.full(3, 0.36), np.ones(D)]
    shares = np.array([1 / K for K in sizes for _ in range(K)])
    factors = CopulaFactors(W, psi, np.zeros(D), shares, sizes)
    levels = rng.integers(sizes, size=(n, len(sizes)))
    rows = LatentRows(low, high, levels, sizes)
    told = [Score(100.0, 0.0, 0.0, 1.0)] * 5
    return factors, rows, 0, margin.cuts, told, CopulaRequest()


def test_only_rows_with_weight_are_suspicious(monkeypatch):
    monkeypatch.setattr(choosing, "hidden_scores", lambda *_: pytest.fail("it is a suspect"))
    first = 1.0 * (np.arange(400) < 200)
    assert not is_out_of_order(*graded(), first)
    for weights in (None, 1 - first):
        with pytest.raises(pytest.fail.Exception, match="suspect"):
            is_out_of_order(*graded(), weights)


@pytest.mark.parametrize(("gain", "expected"), [(0.99, False), (1.01, True)])
def test_a_suspect_has_to_gain_more_than_a_standard_error(gain, expected, monkeypatch):
    """Gains of g + 2, …, g − 2 have the mean g and the standard error √(10/4/5)."""
    given, asked = graded(), []
    error = np.sqrt(0.5)

    def scores(rows, frequencies, request, weights, folds):
        asked.append((frequencies, rows.low.shape[1], folds[0][0].shape[1], folds[0][1].shape[1]))
        spread = np.arange(2.0, -3.0, -1) + gain * error
        return (Score(100.0 + one, 0.0, 0.0, 1.0) for one in spread)

    monkeypatch.setattr(choosing, "hidden_scores", scores)
    assert is_out_of_order(*given) is expected
    (((own,), *levels),) = asked
    np.testing.assert_allclose(own, np.diff(special.ndtr(given[3])))
    assert levels == [2, 2, 1]


@pytest.mark.parametrize(("second", "fits"), [(1.0, 2), (1.01, 5)])
def test_a_suspect_that_gains_nothing_in_two_folds_is_let_go(second, fits, monkeypatch):
    asked = []

    def scores(*_):
        for gain in (-1.0, second, 9.0, 9.0, 9.0):
            asked.append(gain)
            yield Score(100.0 + gain, 0.0, 0.0, 1.0)

    monkeypatch.setattr(choosing, "hidden_scores", scores)
    assert is_out_of_order(*graded()) is (fits == 5)
    assert len(asked) == fits


def test_both_ways_are_asked_with_the_same_weights_and_hidden_entries(monkeypatch):
    w, asked = np.random.default_rng(1).uniform(0.5, 2, 400), []

    def scores(rows, frequencies, request, weights, folds):
        asked.append((rows, [len(one) for one in frequencies], folds))
        np.testing.assert_array_equal(weights, w)
        return [Score(0.0, 0.0, 0.0, 1.0)] * 5

    monkeypatch.setattr(choosing, "hidden_scores", scores)
    given = graded(sizes=(2, 4))
    assert not is_out_of_order(*given, w)  # nothing is gained
    ((free, sizes, without),) = asked
    _, rows, column, cuts, *_ = given
    assert sizes == [2, 4, 3] and free.sizes == (2, 4, 3)
    np.testing.assert_array_equal(cuts[free.levels[:, 2] + 1], rows.high[:, column])
    np.testing.assert_array_equal(cuts[free.levels[:, 2]], rows.low[:, column])
    folds = choosing.hidden_folds(rows, w).folds  # those of the choice of q
    for (scalars, levels), (more, fewer) in zip(folds, without, strict=True):
        np.testing.assert_array_equal(more, scalars[:, 1:])
        np.testing.assert_array_equal(fewer, np.column_stack([levels, scalars[:, 0]]))


def test_missing_levels_stay_missing_without_their_order():
    _, rows, column, cuts, *_ = graded()
    hidden = np.arange(400)[:, None] % 3 == np.array([[0, 3, 3]])
    free = choosing._as_levels(rows.hiding(hidden, np.zeros((400, 0), dtype=bool)), column, cuts)
    np.testing.assert_array_equal(free.levels[:, 0] < 0, hidden[:, 0])


def test_hidden_entries_are_worth_nothing_where_nothing_is_shared():
    factors = law(0, 3, (3,))
    _, full, _ = rows_of(factors, 50, missing=0.0)
    hidden = np.random.default_rng(0).random((50, 3)) < 0.3, np.arange(50)[:, None] % 3 == 0
    w = np.random.default_rng(1).uniform(0, 2, 50)
    score = choosing._hidden_score(factors, full, full.hiding(*hidden), hidden, w)
    assert score.loglikelihood == pytest.approx(0, abs=1e-9)
    assert score.press == pytest.approx(score.squares) and score.squares > 0
    assert score.size == pytest.approx(w @ hidden[0].sum(axis=1) + w @ hidden[1][:, 0])


def test_wrong_shapes_and_numbers_are_refused():
    with pytest.raises(ValueError, match="the shapes of LatentRows"):
        LatentRows(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((2, 1), dtype=int))
    with pytest.raises(ValueError, match="n_components"):
        fit_copula(nothing(3, 2), (), CopulaRequest(n_components=2))
    with pytest.raises(ValueError, match="2 scalar coordinates"):
        law(1, 2, ()).posterior(nothing(3, 3))
    with pytest.raises(DegenerateError, match="Give n_components"):
        choose_latents(nothing(30, 3), (), CopulaRequest())


@pytest.mark.parametrize("q", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_hidden_entries_choose_the_number_of_latents(q):
    truth = law(q, 8, (3,), seed=4)
    rows, _, _ = rows_of(truth, 400, missing=0.1, known=range(4))
    curve, scores, laws = choose_latents(rows, (truth.frequencies,), CopulaRequest(), most=3)
    assert curve.chosen == q
    assert curve.loglikelihood[q - 1] > 0
    assert curve.q2[q - 1] > 0.1
    mean = sum(one.loglikelihood for one in scores) / sum(one.size for one in scores)
    assert mean == pytest.approx(curve.loglikelihood[q - 1], rel=0.01)
    assert [one.q for one in laws] == [q] * 5


def test_a_choice_goes_on_past_a_dip():
    def tried(*values):
        return [[Score(v + e, 1.0, 1.0, 1.0) for e in (0.0, 0.1)] for v in values]

    assert not choosing._is_enough(tried(0.0, -1.0))
    assert not choosing._is_enough(tried(0.0, -1.0, 2.0))
    assert choosing._is_enough(tried(0.0, -1.0, -0.5))
    assert choosing._is_enough(tried(0.0, 1.0, 0.5, 1.0))


def test_candidates_end_with_the_most_there_can_be(monkeypatch):
    """A fold begins with what was found for it with fewer latents."""
    rows, _, _ = rows_of(law(1, 8, ()), 60, missing=0.0)
    asked = []

    def scores(rows, frequencies, request, weights, folds, begin):
        asked.append((request.n_components, dict(begin)))
        for k in range(5):
            begin[k] = request.n_components
            yield Score(float(request.n_components), 1.0, 2.0, 1.0)

    monkeypatch.setattr(choosing, "hidden_scores", scores)
    curve, _, laws = choose_latents(rows, (), CopulaRequest(), first=2)
    assert laws == [7] * 5
    assert curve.candidates.tolist() == [q for q, _ in asked] == [2, 3, 4, 7]
    assert curve.chosen == 7
    assert [begin.get(0) for _, begin in asked] == [None, 2, 3, 4]


def test_what_fills_is_the_best_and_not_the_smallest_as_good(monkeypatch):
    rows, _, _ = rows_of(law(1, 8, ()), 60, missing=0.0)
    values = {1: 0.0, 2: 9.0, 3: 9.5, 4: 9.4, 6: 9.0, 7: 0.0}

    def scores(rows, frequencies, request, weights, folds, begin):
        for k in range(5):
            begin[k] = request.n_components
            yield Score(
                values[request.n_components] + 3 * (k == request.n_components), 1.0, 2.0, 1.0
            )

    monkeypatch.setattr(choosing, "hidden_scores", scores)
    asked = rows, (), CopulaRequest()
    assert choose_latents(*asked).selection.chosen == 2
    choice = choose_latents(*asked, filling=True)
    assert choice.selection.chosen == 3 and choice.laws == [3] * 5


def test_a_choice_tells_how_many_fits_there_are():
    rows, _, _ = rows_of(law(1, 4, ()), 40, missing=0.0)
    out = io.StringIO()
    with showing(True, out):
        choose_latents(rows, (), CopulaRequest(), most=1)
    assert "fit 1 of 5" in out.getvalue() and "fit 5 of 5" in out.getvalue()


def test_rows_of_no_weight_do_not_choose():
    rows, _, _ = rows_of(law(1, 4, ()), 40, missing=0.0)
    rng = np.random.default_rng(0)
    other = 3 * rng.normal(size=rows.low.shape)
    both = replace(
        rows,
        low=np.vstack([rows.low, other]),
        high=np.vstack([rows.high, other]),
        levels=np.vstack([rows.levels, rows.levels]),
    )
    found, alone = (
        choose_latents(one, (), CopulaRequest(), weights, most=1)[0]
        for one, weights in ((both, np.repeat([1.0, 0.0], 40)), (rows, None))
    )
    np.testing.assert_allclose(found.loglikelihood, alone.loglikelihood, atol=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("most", [50, 60, 1000])
def test_a_choice_looks_at_rows_with_their_weights_and_hides_every_known_entry_once(
    most, weighted, monkeypatch
):
    monkeypatch.setattr(choosing, "SELECTION_ROWS", most)
    rows, _, _ = rows_of(law(2, 4, (3, 2)), 60)
    weights = np.arange(1.0, 61.0) if weighted else None
    held = choosing.hidden_folds(rows, weights)
    assert len(held.kept) == min(most, 60) and np.all(np.diff(held.kept) > 0)
    for name in ("low", "high", "levels"):
        np.testing.assert_array_equal(getattr(held.rows, name), getattr(rows, name)[held.kept])
    assert (held.weights is None) == (weights is None)
    if weighted:
        np.testing.assert_array_equal(held.weights, weights[held.kept])
    for known, hidden in zip(held.rows.known(), zip(*held.folds, strict=True), strict=True):
        np.testing.assert_array_equal(np.sum(hidden, axis=0), known)
