"""Choosing q: the rules are their formulas, find what was planted, and never ask for too much."""

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.preprocessing import scale

from dualpca import PCA, PPCA
from dualpca.data import EntryFolds, InMemoryTable, row_folds
from dualpca.data.table import SlicedTable
from dualpca.errors import SelectionWarning
from dualpca.gaussian import selection
from dualpca.gaussian.observed import Factors
from dualpca.gaussian.selection import Score
from dualpca.models import selection as choosing
from dualpca.models.copula.choosing import _is_enough
from dualpca.models.incomplete import some_of
from dualpca.models.selection import cross_validated, hidden_score, parallel_analysis, row_score
from dualpca.operators.columns import ColumnGram, column_sums
from dualpca.operators.primal import Primal
from dualpca.solvers import solve
from tests import oracles
from tests.conftest import rest_slow
from tests.oracles import missing as dense
from tests.spectra import BENIGN, EXTREME, cases, harmonic, make_case, steep

RULES = ("evidence", "bic", "white-noise", "gavish-donoho", "cv")
EVERY = (*RULES, "parallel")


def planted(n, d, q, seed, signal=6.0):
    """Return data with q clear directions in unit noise, and a mean."""
    rng = np.random.default_rng(seed)
    V = np.linalg.qr(rng.standard_normal((d, q)))[0]
    strength = signal * np.sqrt(max(1.0, d / n)) * np.linspace(2.0, 1.0, q)
    return rng.standard_normal((n, q)) * strength @ V.T + rng.standard_normal((n, d)) + 5.0


def choose(rule, X):
    """Return the rule's choice from the spectrum alone."""
    spectrum = solve(Primal(X), min(len(X) - 1, X.shape[1]))
    return selection.apply_rule(rule, spectrum.values, spectrum.trace, spectrum.dim, len(X))


def eigenvalues(X):
    return np.maximum(oracles.eigh_descending(oracles.covariance(X))[0], 0.0)


# --- the formulas ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_evidence_is_minkas_formula(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 8)) @ np.diag(rng.uniform(0.3, 3.0, 8))
    expected = oracles.best_by_evidence(eigenvalues(X), 60, range(1, 8))
    assert choose("evidence", X) == expected
    assert PPCA(n_components="evidence").fit(X).n_components_ == expected


@pytest.mark.parametrize("seed", range(8))
def test_evidence_is_scikit_learns_choice_on_clear_data(seed):
    from sklearn.decomposition._pca import _infer_dimension

    X = planted(150, 10, 1 + seed % 4, seed)
    expected = _infer_dimension(eigenvalues(X), 150)
    assert choose("evidence", X) == expected
    assert PCA(n_components="mle", svd_solver="full").fit(X).n_components_ == expected


@pytest.mark.parametrize("seed", range(8))
def test_bic_is_its_formula(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 8)) @ np.diag(rng.uniform(0.3, 3.0, 8))
    expected = oracles.best_by_bic(eigenvalues(X), 60, range(1, 8))
    assert choose("bic", X) == expected
    assert PPCA(n_components="bic").fit(X).n_components_ == expected


@given(fraction=st.floats(0.05, 0.999), seed=st.integers(0, 50))
def test_fraction_is_the_fewest_components_that_reach_it(fraction, seed):
    X = make_case("tall", harmonic, seed=seed).X
    share = np.cumsum(eigenvalues(X)) / eigenvalues(X).sum()
    if np.min(np.abs(share - fraction)) < 1e-9:
        return  # a tie decided by rounding
    expected = int(np.searchsorted(share, fraction) + 1)
    assert PCA(n_components=fraction).fit(X).n_components_ == expected
    assert PPCA(n_components=fraction).fit(X).n_components_ == expected


# --- what was planted -----------------------------------------------------------------

SIZES = [(300, 12), (60, 50), (60, 80), (50, 200)]
# BIC counts on n growing: with n = 50, d = 200 its own formula takes every direction there is
FINDS = [(rule, size) for rule in RULES for size in SIZES if (rule, size) != ("bic", (50, 200))]


@pytest.mark.grid(2)
@pytest.mark.parametrize("rule, size", FINDS)
@pytest.mark.parametrize("q", [1, 4])
def test_rule_finds_the_planted_directions(rule, size, q):
    for seed in range(3):
        X = planted(*size, q, seed)
        model = PPCA(n_components=rule, random_state=0).fit(X)
        assert model.n_components_ == q, f"seed {seed}"
        assert np.shape(model.components_) == (q, size[1])


@pytest.mark.parametrize("rule", RULES)
def test_default_and_named_rules_fit_the_model_of_that_size(rule):
    X = planted(200, 8, 3, 0)
    by_rule, by_number = (PPCA(n_components=k, random_state=0).fit(X) for k in (rule, 3))
    assert by_rule.n_components_ == 3
    np.testing.assert_allclose(by_rule.get_covariance(), by_number.get_covariance(), rtol=1e-10)
    assert by_rule.loglikelihood_ == pytest.approx(by_number.loglikelihood_, rel=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_none_is_parallel_analysis(share):
    X = holed(200, 8, 3, share=share)
    model, named = PPCA().fit(X), PPCA(n_components="parallel").fit(X)
    assert model.n_components_ == named.n_components_ == 3
    np.testing.assert_array_equal(model.components_, named.components_)


@pytest.mark.parametrize("rule", EVERY)
def test_rules_do_not_depend_on_units_or_origin(rule):
    X = planted(200, 8, 3, 1)
    chosen = {
        PPCA(n_components=rule, random_state=0).fit(Y).n_components_
        for Y in (X, 1e6 * X, X + 1e4, 1e-6 * X)
    }
    assert chosen == {3}


@pytest.mark.parametrize("rule", RULES)
def test_integer_weights_choose_as_repeated_rows_do(rule):
    X = planted(150, 8, 3, 2)
    counts = np.random.default_rng(0).integers(1, 3, len(X))
    model = PPCA(n_components=rule, random_state=0).fit(X, sample_weight=counts)
    assert model.n_components_ == 3


@pytest.mark.parametrize("rule", EVERY)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::dualpca.errors.SelectionWarning")  # that nothing was found
def test_noise_alone_has_few_directions(rule, seed):
    X = np.random.default_rng(seed).standard_normal((300, 10))
    assert PPCA(n_components=rule, random_state=0).fit(X).n_components_ <= 1


# --- Horn's parallel analysis ---------------------------------------------------------


def by_permutation(X, draws=500, seed=0):
    """Return Horn's count of the correlation matrix, and how close a call it was."""
    X = scale(X)
    rng = np.random.default_rng(seed)
    permuted = []
    for _ in range(draws):
        Y = np.stack([rng.permutation(column) for column in X.T], axis=1)
        permuted.append(eigenvalues(Y))
    ratio = eigenvalues(X) / np.quantile(permuted, 0.95, axis=0)
    found = int(np.argmin(np.append(ratio > 1, False)))
    return found, float(np.abs(ratio[: found + 1] - 1).min())


TABLES = {"wine": (load_wine, 3), "breast cancer": (load_breast_cancer, 5)}


@pytest.mark.filterwarnings("ignore::dualpca.errors.SkewWarning")  # of breast cancer
@pytest.mark.parametrize("name", TABLES)
def test_parallel_is_horns_on_known_tables(name):
    load, expected = TABLES[name]
    raw = load().data
    X = scale(raw)
    assert by_permutation(X, 100)[0] == expected
    assert PPCA(n_components="parallel").fit(X).n_components_ == expected
    assert PCA(n_components="parallel").fit(X).n_components_ == expected
    assert PCA(n_components="parallel", standardize=True).fit(raw).n_components_ == expected
    assert PPCA(n_components="white-noise").fit(X).n_components_ == X.shape[1] - 1


@pytest.mark.filterwarnings("ignore::dualpca.errors.SkewWarning")  # of breast cancer
@pytest.mark.parametrize("name", TABLES)
def test_parallel_without_rows_to_permute_simulates_columns(name):
    load, expected = TABLES[name]
    X = scale(load().data)
    ways = [
        PPCA("parallel").fit(X, sample_weight=np.ones(len(X))),
        PPCA("parallel").fit(SlicedTable(X, part_rows=100)),
        PCA("parallel").fit(sparse.csr_array(X)),
        PPCA("parallel").partial_fit(X[:90]).partial_fit(X[90:]),
    ]
    assert [model.n_components_ for model in ways] == [expected] * 4


@pytest.mark.parametrize(
    "n, d, q", [(200, 2, 1), (200, 3, 0), (12, 40, 1), (13, 12, 1), (3, 30, 0)]
)
def test_simulated_columns_in_tables_of_any_shape(n, d, q):
    X = np.random.default_rng(0).standard_normal((n, d))
    X += 3 * X[:, :1] * (q > 0)
    assert selection.simulated_horn(Primal(X, standardize=True)) == q


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize(("n", "d", "by_columns"), [(60, 5, False), (8, 30, False), (9, 40, True)])
def test_simulated_eigenvalues_are_those_of_tables_drawn_row_by_row(
    n, d, by_columns, standardize, monkeypatch
):
    """Bartlett's triangles in place of rows: the means of eigenvalues of centred normal rows."""
    X = np.random.default_rng(0).normal(size=(n, d)) * np.linspace(1.0, 2.0, d)
    monkeypatch.setattr(selection, "INDEPENDENT_DRAWS", 2000)
    monkeypatch.setattr(selection, "horn", lambda lam, draws, *about: (lam, draws, *about))
    operator = Primal(X, standardize=standardize)
    if by_columns:
        table = SlicedTable(np.ascontiguousarray(X.T))
        operator = ColumnGram(
            table, column_sums(table, standardize=standardize), standardize=standardize
        )
    lam, independent, trace, most = selection.simulated_horn(operator)
    squares = np.sum((X - X.mean(axis=0)) ** 2, axis=0)
    squares = np.full(d, float(n)) if standardize else squares
    k = min(n - 1, d)
    assert most == k - 1 and trace == pytest.approx(squares.sum())
    np.testing.assert_allclose(lam(2), solve(Primal(X, standardize=standardize), 2).values)

    def drawn(rng):
        Z = rng.normal(size=(n, d))
        Z -= Z.mean(axis=0)
        if by_columns:  # all columns alike, with the sum of squares of all
            Z *= np.sqrt(squares.sum() / np.sum(Z**2))
        else:
            Z *= np.sqrt(squares / np.sum(Z**2, axis=0))
        return np.linalg.svd(Z, compute_uv=False)[:k] ** 2

    found = np.array(list(independent(k)))
    rng = np.random.default_rng(1)
    wanted = np.array([drawn(rng) for _ in range(2000)])
    error = np.sqrt((found.var(axis=0) + wanted.var(axis=0)) / 2000)
    assert np.all(np.abs(found.mean(axis=0) - wanted.mean(axis=0)) < 4 * error)


@pytest.mark.filterwarnings("ignore::dualpca.errors.SkewWarning")  # of breast cancer
@pytest.mark.parametrize("name", TABLES)
def test_parallel_accepts_missing_values(name):
    load, expected = TABLES[name]
    X = scale(load().data)
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    X[7] = np.nan  # a row that observes nothing
    assert parallel_analysis(InMemoryTable(X), missing=True) == expected
    chunks = SlicedTable(X, part_rows=100)
    assert parallel_analysis(chunks, missing=True) == expected
    twice = InMemoryTable(X, np.full(len(X), 2.0))
    assert parallel_analysis(twice, missing=True) in (expected, expected + 1)  # more rows
    assert PPCA("parallel").fit(X).n_components_ == expected


@pytest.mark.parametrize("seed", rest_slow(range(10), range(4)))
def test_parallel_is_its_definition(seed):
    rng = np.random.default_rng(seed)
    W = 2 * rng.standard_normal((2, 7))
    X = rng.standard_normal((80, 2)) @ W + rng.standard_normal((80, 7))
    found = parallel_analysis(InMemoryTable(X), missing=False)
    expected, margin = by_permutation(X)
    assert found == expected or margin < 0.02  # a quantile of 100 draws is uncertain
    assert parallel_analysis(InMemoryTable(X), missing=True) == found  # nothing is missing


def test_parallel_compares_ranks_and_stops_at_the_first_that_fails():
    lam, noise = np.array([5.0, 1.0, 3.0, 0.1]), np.tile([2.0, 1.5, 1.0, 0.5], (9, 1))
    assert selection.horn(lambda k: lam[:k], lambda k: noise[:, :k], 10.0, 3) == 1
    rising = np.array([5.0, 2.0, 1.2, 0.1])
    assert selection.horn(lambda k: rising[:k], lambda k: noise[:, :k], 10.0, 3) == 3
    assert selection.horn(lambda k: rising[:k], lambda k: noise[:, :k], 10.0, 2) == 2
    assert selection.horn(lambda k: rising[:k], lambda k: noise[:, :k], 8.2, 3) == 2  # no noise


def test_parallel_asks_for_more_eigenvalues_where_the_first_pass():
    rng = np.random.default_rng(0)
    W = np.kron(np.eye(12), np.ones((1, 4)))  # twelve groups of four columns
    X = rng.standard_normal((400, 12)) @ W + 0.5 * rng.standard_normal((400, 48))
    assert parallel_analysis(InMemoryTable(X), missing=False) == 12
    assert PPCA("parallel").fit(X, sample_weight=np.ones(400)).n_components_ == 12


@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True])
def test_parallel_seldom_finds_components_in_noise(missing):
    found = []
    for seed in range(200):
        X = np.random.default_rng(seed).standard_normal((60, 8)) * np.arange(1, 9)
        if missing:
            X[np.random.default_rng(seed + 999).random(X.shape) < 0.2] = np.nan
        found.append(parallel_analysis(InMemoryTable(X), missing=missing))
    assert np.mean(np.array(found) > 0) == pytest.approx(0.05, abs=0.05)


# --- bounds ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::dualpca.errors.ScaleWarning")
@pytest.mark.parametrize("rule", rest_slow(EVERY, ["bic", "evidence", "gavish-donoho"]))
@pytest.mark.filterwarnings("ignore::dualpca.errors.SelectionWarning")  # flat spectra are drawn too
@given(case=cases(kinds=BENIGN + EXTREME))
def test_rule_leaves_a_direction_for_the_noise(rule, case):
    if case.ell[1] < 1e-6 * case.ell[0]:
        return  # one direction and rounding error: whether there is a second is a matter of taste
    rank = int(np.linalg.matrix_rank(case.X - case.X.mean(axis=0)))
    model = PPCA(n_components=rule, random_state=0).fit(case.X)
    assert isinstance(model.n_components_, int | np.integer)
    assert 0 <= model.n_components_ <= rank - 1
    assert np.isfinite(model.loglikelihood_)
    assert float(model.noise_variance_) > 0


@pytest.mark.parametrize("rule", ["evidence", "bic"])
@given(case=cases(kinds=BENIGN))
@example(case=make_case("very wide", steep, 1, 1.0, 1.0, False, 82))  # rounding of the trace
def test_choose_stays_below_the_rank(rule, case):
    rank = np.count_nonzero(case.ell > 1e-9 * case.ell[0])
    if rank >= 2:
        assert 0 <= choose(rule, case.X) <= rank - 1


def test_unknown_rule_names_the_known_ones():
    with pytest.raises(ValueError, match="evidence"):
        choose("nonsense", planted(50, 5, 2, 0))


# --- cross-validation: the curve behind the choice ------------------------------------


def holed(n, d, q, seed=0, share=0.2):
    """Return planted data with entries missing at random, no row empty."""
    X = planted(n, d, q, seed)
    gone = np.random.default_rng(seed + 100).random(X.shape) < share
    gone[:, 0] = False
    return np.where(gone, np.nan, X)


def one_by_one(X, mu, C):
    """Return the error of each observed entry, predicted from the others its row observes."""
    off = np.zeros_like(X)
    for i, j in zip(*np.nonzero(~np.isnan(X)), strict=True):
        x = X[i].copy()
        x[j] = np.nan
        off[i, j] = X[i, j] - dense.conditional(x, mu, C)[0][j]
    return off


@pytest.mark.parametrize("weighted", [False, True])
def test_row_score_is_its_definition(weighted):
    X, rng = holed(30, 5, 2), np.random.default_rng(0)
    factors = Factors(rng.standard_normal((5, 2)), np.full(5, 5.0), rng.uniform(0.5, 2, 5))
    w = rng.uniform(0, 2, 30) if weighted else None
    C, centre = factors.W @ factors.W.T + np.diag(factors.psi), rng.standard_normal(5)
    got, v = Score(*row_score(factors, X, centre, w)), np.ones(30) if w is None else w
    off = one_by_one(X, factors.mu, C)
    assert got.loglikelihood == pytest.approx(dense.loglikelihood(X, factors.mu, C, w), rel=1e-10)
    assert got.press == pytest.approx(v @ (off**2).sum(axis=1), rel=1e-10)
    assert got.squares == pytest.approx(v @ np.nansum((X - centre) ** 2, axis=1), rel=1e-10)
    assert got.size == pytest.approx(v.sum())


@pytest.mark.parametrize("weighted", [False, True])
def test_hidden_score_is_its_definition(weighted):
    X, rng = holed(30, 5, 2), np.random.default_rng(0)
    factors = Factors(rng.standard_normal((5, 2)), np.full(5, 5.0), rng.uniform(0.5, 2, 5))
    w = rng.uniform(0.1, 2, 30) if weighted else np.ones(30)
    hidden = ~np.isnan(X) & (rng.random(X.shape) < 0.2)
    table = np.where(hidden, np.nan, X)
    C = factors.W @ factors.W.T + np.diag(factors.psi)
    mean, cov = dense.conditionals(table, factors.mu, C)
    off, variance = X - mean, np.einsum("ijj->ij", cov)
    shown = ~np.isnan(table)
    centre = (np.where(shown, table, 0) * w[:, None]).sum(axis=0) / (shown * w[:, None]).sum(axis=0)
    expected = np.zeros(4)
    for i, j in zip(*np.nonzero(hidden), strict=True):
        density = norm.logpdf(off[i, j], scale=np.sqrt(variance[i, j]))
        expected += w[i] * np.array([density, off[i, j] ** 2, (X[i, j] - centre[j]) ** 2, 1])
    got = hidden_score(factors, X, hidden, centre, w if weighted else None)
    np.testing.assert_allclose(got, expected, rtol=1e-8)


@pytest.mark.parametrize("size", [(40, 6), (20, 30)])
def test_complete_curve_is_that_of_dense_models(size):
    X = planted(*size, 2, 0)
    curve = cross_validated("cv", InMemoryTable(X), 5, missing=False)
    order = np.random.default_rng(0).permutation(len(X))
    for q in (0, 1, 2, 4):
        q2, value = [], []
        for held in np.array_split(order, 5):
            model = PPCA(q).fit(np.delete(X, held, axis=0))
            off = one_by_one(X[held], model.mean_, model.get_covariance())
            q2.append(1 - np.sum(off**2) / np.sum((X[held] - model.mean_) ** 2))
            value.append(model.score(X[held]))
        at = list(curve.candidates).index(q)
        assert curve.q2[at] == pytest.approx(np.mean(q2), rel=1e-8, abs=1e-10)
        assert curve.loglikelihood[at] == pytest.approx(np.mean(value), rel=1e-8)
        error = np.std(value, ddof=1) / np.sqrt(5)
        assert curve.loglikelihood_error[at] == pytest.approx(error, rel=1e-6)
        assert curve.q2_error[at] == pytest.approx(np.std(q2, ddof=1) / np.sqrt(5), rel=1e-6)


def behind(loss, spread, folds):
    """Return scores whose mean is `loss` below 0, off by `spread` to both sides in turn."""
    return [Score(-loss - spread * (-1) ** k, 1.0, 2.0, 1.0) for k in range(folds)]


@pytest.mark.parametrize("folds", [2, 4, 10])
def test_as_good_is_within_one_standard_error(folds):
    # of values ±1 the standard deviation is √(k/(k−1)), and the error of their mean 1/√(k−1)
    best, error = behind(0.0, 0.0, folds), 1 / np.sqrt(folds - 1)
    for share, first in ((1 - 1e-9, 0), (1 + 1e-9, 1)):
        scores = [behind(share * error, 1.0, folds), best, behind(0.0, 2.0, folds)]
        assert selection.simplest(scores) == first
        # and the copula's choice ends where two gain less than that on those before
        gained = [behind(-share * error, 1.0, folds)] * 2
        assert _is_enough([best, *gained]) is (first == 0)
        assert not _is_enough(gained)


def test_standard_errors_of_a_curve_are_those_of_means_over_folds():
    value, press = np.array([1.0, 4.0, 2.0]), np.array([2.0, 1.0, 6.0])
    size, squares = np.array([2.0, 4.0, 1.0]), np.array([4.0, 5.0, 8.0])
    scores = [Score(*one) for one in np.stack([value, press, squares, size], axis=1)]
    curve = selection.summary([scores], 3, 3, "row")
    for found, each in (
        (curve.loglikelihood_error, value / size),
        (curve.q2_error, 1 - press / squares),
    ):
        assert found[0] == pytest.approx(each.std(ddof=1) / np.sqrt(3), rel=1e-12)
    assert list(curve.candidates) == [3] and curve.chosen == 3


@pytest.mark.grid
@pytest.mark.parametrize("rule", ["cv", "cv-rows", "cv-entries"])
@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("q", [1, 3])
def test_cross_validation_finds_the_planted_directions_and_shows_its_curve(rule, holes, q):
    X = holed(200, 8, q) if holes else planted(200, 8, q, 0)
    model = PPCA(rule).fit(X)
    curve = model.selection_
    assert model.n_components_ == curve.chosen == q
    rows = rule == "cv-rows" or (rule == "cv" and not holes)
    assert curve.unit == ("row" if rows else "entry")
    assert len({len(part) for part in (curve.candidates, curve.q2, curve.q2_error)}) == 1
    at = list(curve.candidates).index(q)
    assert np.all(curve.q2 <= 1) and curve.q2[at] > 0.5
    assert abs(curve.q2[at] - curve.q2.max()) < 0.02
    assert np.all(curve.loglikelihood_error > 0) and np.all(np.diff(curve.candidates) == 1)


def test_curve_is_forgotten_with_the_fit_it_belongs_to():
    X = planted(100, 6, 2, 0)
    model = PPCA("cv").fit(X)
    assert hasattr(model, "selection_")
    assert not hasattr(model.set_params(n_components=2).fit(X), "selection_")


def test_feature_that_only_held_rows_observe_is_no_obstacle():
    X = holed(100, 6, 1)
    X[1:, 5] = np.nan
    assert PPCA("cv-rows").fit(X).n_components_ == 1


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("q", [1, 3])
def test_bic_finds_the_planted_directions_with_holes(q, seed):
    assert PPCA("bic").fit(holed(200, 8, q, seed)).n_components_ == q


def test_bic_with_one_hole_is_bic():
    for seed in range(4):
        X = np.random.default_rng(seed).standard_normal((80, 5)) * [3.0, 2.0, 1.5, 1.2, 1.0]
        expected = PPCA("bic").fit(X).n_components_
        X[0, 0] = np.nan
        assert PPCA("bic").fit(X).n_components_ == expected


def test_bic_keeps_one_direction_of_noise_with_holes():
    X = np.random.default_rng(0).standard_normal((300, 6))
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    with pytest.warns(SelectionWarning, match="bic"):
        assert PPCA("bic").fit(X).n_components_ == 1


@pytest.mark.parametrize("rule", ["cv-rows", "cv-entries", "bic"])
def test_weights_choose_as_repeated_rows_do_with_holes(rule):
    X = holed(120, 6, 2)
    counts = np.random.default_rng(0).integers(1, 3, len(X))
    assert PPCA(rule).fit(X, sample_weight=counts).n_components_ == 2


@pytest.mark.slow
def test_curve_is_the_same_in_every_library(backend):
    for X in (planted(60, 5, 1, 0), holed(60, 5, 1)):
        for rule in ("cv-rows", "cv-entries"):
            here = PPCA(rule).fit(X).selection_
            there = PPCA(rule).fit(backend.asarray(X)).selection_
            # folds are fitted to a tolerance of 1e-3, from starts that agree up to signs
            np.testing.assert_allclose(there.q2, here.q2, atol=1e-3)
            np.testing.assert_allclose(there.loglikelihood, here.loglikelihood, atol=1e-2)


@pytest.mark.parametrize("holes", [False, True])
def test_curve_can_be_drawn(holes):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no figure is drawn")
    from dualpca.app.plots.selection import selection_curve

    model = PPCA("cv").fit(holed(100, 6, 2) if holes else planted(100, 6, 2, 0))
    top, below = selection_curve(model).axes
    curve = model.selection_
    np.testing.assert_array_equal(top.lines[0].get_xydata().T, [curve.candidates, curve.q2])
    drawn = below.lines[0].get_xydata().T
    np.testing.assert_array_equal(drawn, [curve.candidates, curve.loglikelihood])
    assert ("hidden entry" if holes else "held-out row") in below.get_ylabel()
    assert any(text.get_text() == "2 chosen" for text in top.texts)


def test_drawing_a_model_that_compared_nothing_is_a_clear_error():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no figure is drawn")
    from dualpca.app.plots.selection import selection_curve

    with pytest.raises(ValueError, match="n_components='cv'"):
        selection_curve(PPCA(2).fit(planted(50, 5, 2, 0)))


TINY = {
    "few rows": lambda X: X[:8],
    "three rows": lambda X: X[:3],
    "one feature": lambda X: X[:, 1:2],
    "two features": lambda X: X[:, :2],
    "constant": lambda X: np.where(np.isnan(X), np.nan, 7.0),
    "empty": lambda X: np.full((8, 3), np.nan),
}


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("rule", ["cv", "cv-rows", "cv-entries", "bic"])
@pytest.mark.filterwarnings("ignore::dualpca.errors.SelectionWarning")  # that nothing was found
def test_choice_from_next_to_nothing_is_an_error_or_a_model(rule, name):
    X = np.random.default_rng(0).standard_normal((30, 3))
    X[0, 0] = X[1, 1] = np.nan
    words = "column|constant|noise|choice|density|component"
    try:
        model = PPCA(rule).fit(TINY[name](X))
    except ValueError as error:
        assert re.search(words, str(error)), error
    else:
        assert np.isfinite(model.loglikelihood_) and model.n_components_ >= 1


@pytest.mark.parametrize("n", [0.03, 1.0, 1.5, 2.0])
def test_hardly_any_rows_are_no_division_by_zero(n):
    assert 0 <= selection.apply_rule("gavish-donoho", np.array([3.0, 2.0, 1.0]), 6.5, 5, n) <= 3


def test_one_row_or_column_says_nothing_of_noise():
    rng = np.random.default_rng(0)
    assert not selection._stands_out(1.0, 1, 5, rng) and not selection._stands_out(1.0, 5, 1, rng)
    assert selection.horn(None, None, 1.0, 0) == 0  # nothing is asked for that could not be taken


@pytest.mark.parametrize("n, dim", [(12, 10), (9, 30)])
def test_noise_is_that_of_white_tables(n, dim):
    lam = np.linalg.svd(np.random.default_rng(1).normal(size=(4000, n, dim)), compute_uv=False) ** 2
    limit = np.quantile(lam[:, 0] / lam.sum(axis=1), selection.NOISE_QUANTILE)
    for share, above in ((0.95 * limit, False), (1.05 * limit, True)):
        assert selection._stands_out(share, n, dim, np.random.default_rng(0)) == above


def test_a_choice_looks_at_all_rows_or_at_a_sample_of_them():
    X, w = np.arange(60.0).reshape(30, 2), np.arange(30.0)
    table = InMemoryTable(X, w)
    assert some_of(table, 30) is table
    few = some_of(table, 12)
    assert few.rows.shape == (12, 2) and np.all(np.diff(few.weights) > 0)
    assert np.array_equal(few.rows[:, 0], 2 * few.weights)  # each with its own weight, in order


def test_scores_of_held_rows_and_hidden_entries_count_weights():
    X = planted(40, 4, 1, 0)
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    factors = Factors(np.ones((4, 1)), np.zeros(4), np.ones(4))
    found = []
    for weights in (None, np.full(40, 2.0)):
        table = InMemoryTable(X, weights)
        folds = (
            choosing._row_fold(table, row_folds(table, 0), 0),
            choosing._entry_fold(table, EntryFolds(table, 0), 0),
        )
        found.append([score(factors) for _, _, score in folds])
    np.testing.assert_allclose(found[1], 2 * np.array(found[0]))
