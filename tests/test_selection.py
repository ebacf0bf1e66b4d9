"""Choosing q: the rules are their formulas, find what was planted, and never ask for too much."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dualpca import PCA, PPCA, selection
from dualpca.representations import Primal
from dualpca.solvers import solve
from tests import oracles
from tests.spectra import BENIGN, EXTREME, cases, harmonic, make_case, steep

RULES = ("evidence", "bic", "parallel", "gavish-donoho", "cv")


def planted(n, d, q, seed, signal=6.0):
    """Return data with q clear directions in unit noise, and a mean."""
    rng = np.random.default_rng(seed)
    V = np.linalg.qr(rng.standard_normal((d, q)))[0]
    strength = signal * np.sqrt(max(1.0, d / n)) * np.linspace(2.0, 1.0, q)
    return rng.standard_normal((n, q)) * strength @ V.T + rng.standard_normal((n, d)) + 5.0


def choose(rule, X):
    """Return the rule's choice from the spectrum alone."""
    spectrum = solve(Primal(X), min(len(X) - 1, X.shape[1]))
    return selection.choose(rule, spectrum.values, spectrum.trace, spectrum.dim, len(X))


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


def test_none_is_evidence():
    X = planted(200, 8, 3, 0)
    assert PPCA().fit(X).n_components_ == PPCA(n_components="evidence").fit(X).n_components_ == 3


@pytest.mark.parametrize("rule", RULES)
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


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::dualpca.errors.SelectionWarning")  # that nothing was found
def test_noise_alone_has_few_directions(rule, seed):
    X = np.random.default_rng(seed).standard_normal((300, 10))
    assert PPCA(n_components=rule, random_state=0).fit(X).n_components_ <= 1


# --- bounds ---------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
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
