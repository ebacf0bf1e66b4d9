"""What the training rows say of residuals: sums per pattern, false alarms, dependent rows."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

from dualpca import PPCA, BayesianPCA, FactorAnalysis, RobustPPCA
from dualpca.errors import DependenceWarning
from dualpca.gaussian import Factors, Unseen, reference
from dualpca.gaussian.control_limits import residual_sums
from dualpca.gaussian.reference import residual_covariance

MODELS = {
    "PPCA": PPCA,
    "RobustPPCA": RobustPPCA,
    "BayesianPCA": BayesianPCA,
    "FactorAnalysis": FactorAnalysis,
}


# --- sums of residual variances -----------------------------------------------------------------


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("rows", [3, 12])
def test_sums_of_every_pattern_are_those_of_dense_matrices(own, rows):
    rng = np.random.default_rng(rows)
    d, q = 7, 2
    F, B = rng.standard_normal((rows, d)), rng.standard_normal((d, q))
    psi = rng.uniform(0.1, 2, d) if own else None
    masks = (rng.random((5, d)) < 0.7).astype(float)
    masks[0], masks[1] = 1, [1, 0, 0, 0, 0, 0, 0]  # all, and fewer than loadings
    gram = B.T @ (masks[:, :, None] * B)
    M = np.linalg.pinv(gram, rcond=1e-9, hermitian=True)
    sums, inside = residual_sums(F, psi, B, M, masks)
    for k, mask in enumerate(masks):
        o = np.flatnonzero(mask)
        C = (F.T @ F + (0 if psi is None else np.diag(psi)))[np.ix_(o, o)]
        A = np.eye(o.size) - B[o] @ np.linalg.pinv(B[o])
        lam = np.linalg.eigvalsh(A @ C @ A)
        expected = [np.sum(lam**power) for power in (1, 2, 3)]
        np.testing.assert_allclose(sums[:, k], expected, rtol=1e-9, atol=1e-9)
        fit = np.linalg.pinv(B[o])
        np.testing.assert_allclose(inside[k], fit @ C @ fit.T, rtol=1e-7, atol=1e-9)


def table(rng, n, d=80, q=3):
    """Return rows with residuals that are alike in neighbouring columns."""
    W = rng.standard_normal((d, q)) * 2
    noise = rng.standard_normal((n, d + 4))
    smooth = sum(noise[:, k : k + d] for k in range(5)) * np.linspace(0.3, 1.0, d)
    return rng.standard_normal((n, q)) @ W.T + smooth


def test_a_sketch_of_residuals_says_what_all_of_them_say(monkeypatch):
    X = table(np.random.default_rng(0), 300)
    rough = PPCA(3).fit(X)
    monkeypatch.setattr(reference, "EXACT_SIDE", 100)
    exact = PPCA(3).fit(X)
    for level in (0.95, 0.999):
        assert rough.spe_limit(level) == pytest.approx(exact.spe_limit(level), rel=0.03)
    part = np.where(np.arange(80) < 32, X[:50], np.nan)
    a, b = rough.outliers(part), exact.outliers(part)
    np.testing.assert_allclose(a.spe_limit, b.spe_limit, rtol=0.1)
    np.testing.assert_allclose(a.t2_limit, b.t2_limit, rtol=0.02)


def test_all_rows_of_a_wide_table_say_what_its_columns_say(monkeypatch):
    X = table(np.random.default_rng(1), 50, d=60)
    columns = PPCA(3).fit(X)
    monkeypatch.setattr(reference, "EXACT_SIDE", 55)
    rows = PPCA(3).fit(X)
    assert rows.spe_limit() == pytest.approx(columns.spe_limit(), rel=1e-9)
    part = np.where(np.arange(60) < 20, X[:9], np.nan)
    for one, other in zip(rows.outliers(part), columns.outliers(part), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7)


def test_limits_do_not_depend_on_rows_beside_or_on_the_order_of_columns():
    rng = np.random.default_rng(2)
    X = table(rng, 100, d=9)
    new = np.where(rng.random((20, 9)) < 0.3, np.nan, X[:20])
    found, order = PPCA(3).fit(X).outliers(new), rng.permutation(9)
    single = PPCA(3).fit(X).outliers(new[4:5])
    turned = PPCA(3).fit(X[:, order]).outliers(new[:, order])
    for whole, one, other in zip(found, single, turned, strict=True):
        np.testing.assert_allclose(whole[4:5], one, rtol=1e-9)
        np.testing.assert_allclose(whole, other, rtol=1e-6)


# --- false alarms -------------------------------------------------------------------------------

LEVELS = np.array([0.95, 0.99, 0.999])


def sensors(rng, noise, d=12, q=3):
    """Return a function that draws rows of sensors with equal or unequal noise."""
    W = rng.standard_normal((d, q)) * np.linspace(3, 2, q) / np.sqrt(2)
    psi = np.full(d, 0.5) if noise == "equal" else rng.uniform(0.1, 1.5, d)

    def rows(n, missing=0.0):
        X = 2 + rng.standard_normal((n, q)) @ W.T + rng.standard_normal((n, d)) * np.sqrt(psi)
        X[rng.random(X.shape) < missing] = np.nan
        return X

    return rows


def alarms(kind, noise, missing, n, fits, new):
    """Return the share of ordinary new rows beyond T², SPE and either, by level, over nominal."""
    found = []
    for seed in range(fits):
        rows = sensors(np.random.default_rng(seed), noise)
        model, later = kind(3).fit(rows(n, missing)), rows(new, missing)
        for level in LEVELS:
            one = model.outliers(later, float(level))
            alone = [np.mean(p < 1 - level) for p in (one.t2_pvalue, one.spe_pvalue)]
            found.append([*alone, one.flagged.mean()])
    shares = np.reshape(found, (fits, LEVELS.size, 3)) / (1 - LEVELS)[:, None]
    return shares.mean(axis=0), shares.std(axis=0) / np.sqrt(fits)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["equal", "unequal"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")
def test_ordinary_new_rows_are_flagged_as_often_as_the_level_says(name, noise, missing):
    """Within a tenth of nominal, as far as so few fits can tell."""
    share, error = alarms(MODELS[name], noise, missing, 500, 5, 2000)
    assert np.all(np.abs(share[:2, 2] - 1) < 0.1 + 3 * error[:2, 2])
    assert np.all(np.abs(share - 1) < 0.15 + 3.5 * error)


@pytest.mark.parametrize("noise", ["equal", "unequal"])
def test_few_rows_and_unequal_noise_flag_as_often_as_the_level_says(noise):
    """At 99 % unequal noise flagged 1.9 times as many, and Hotelling's axes count as known."""
    share, error = alarms(PPCA, noise, 0.0, 100, 40, 1000)
    assert np.all(np.abs(share[:2] - 1) < 0.1 + 3 * error[:2])


@pytest.mark.parametrize("kind", [PPCA, RobustPPCA, BayesianPCA])
def test_unfolded_batches_are_not_flagged_for_their_length(kind):
    """40 batches of 160 columns, whole and known to 40 % of their length; 14 to 64 % before."""
    shares = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        W = rng.standard_normal((160, 2)).cumsum(axis=0) / 6

        def batches(n, rng=rng, W=W):
            noise = rng.standard_normal((n, 200))
            smooth = np.stack([noise[:, k : k + 160] for k in range(40)]).sum(axis=0) / 8
            return rng.standard_normal((n, 2)) @ W.T + smooth + 0.2 * rng.standard_normal((n, 160))

        model, new = kind(2).fit(batches(40)), batches(500)
        part = np.where(np.arange(160) < 64, new, np.nan)
        shares.append([model.outliers(rows, 0.99).flagged.mean() for rows in (new, part)])
    assert np.all(np.mean(shares, axis=0) < 0.04)


def test_bayesian_shortening_of_axes_raises_no_alarms():
    """T² in units of variances that a prior made smaller flagged twice as many."""
    rows = sensors(np.random.default_rng(3), "equal")
    X, new = rows(100), rows(20_000)
    plain, short = (kind(3).fit(X).outliers(new).t2_pvalue for kind in (PPCA, BayesianPCA))
    np.testing.assert_allclose(short, plain, rtol=0.1, atol=0.01)


# --- dependent rows -----------------------------------------------------------------------------


def autoregressive(rng, n, phi, d=8, q=2):
    """Return rows of sensors, each of which resembles the one before, and a draw of new ones."""
    W = rng.standard_normal((d, q)) * 2
    out = np.empty((n, q + d))
    out[0] = rng.standard_normal(q + d)
    for k in range(1, n):
        out[k] = phi * out[k - 1] + np.sqrt(1 - phi**2) * rng.standard_normal(q + d)
    free = rng.standard_normal((2000, q + d))
    return tuple(part[:, :q] @ W.T + part[:, q:] for part in (out, free))


@pytest.mark.filterwarnings("ignore::dualpca.errors.DependenceWarning")
@pytest.mark.parametrize("phi, n, most", [(0.5, 100, 1.5), (0.9, 500, 1.5), (0.98, 500, 6.0)])
def test_rows_that_resemble_each_other_count_as_fewer(phi, n, most):
    """Of 1 % as many as 1.6, 2.5 and 21 % were flagged."""
    shares = []
    for seed in range(15):
        X, new = autoregressive(np.random.default_rng(seed), n, phi)
        shares.append(100 * PPCA(2).fit(X).outliers(new, 0.99).flagged.mean())
    assert np.mean(shares) < most


def test_a_warning_names_the_number_of_independent_rows():
    X, new = autoregressive(np.random.default_rng(0), 500, 0.9)
    model = PPCA(2).fit(X)  # no warning: a fit is right without it
    found = model._model.reference
    assert found.alike == pytest.approx((0.9, 0.9), abs=0.08)
    assert found.independent == pytest.approx(500 * 0.05, abs=20)
    for ask in (lambda: model.outliers(new), model.t2_limit, model.spe_limit):
        with pytest.warns(DependenceWarning, match=r"autocorrelation 0\.\d+.*500 rows say as much"):
            ask()
    mixed = PPCA(2).fit(np.random.default_rng(1).permutation(X))
    assert mixed._model.reference.alike == (0.0, 0.0) and mixed.t2_limit() < model_limit(model)


def model_limit(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DependenceWarning)
        return model.t2_limit()


def test_chance_does_not_make_rows_dependent():
    found = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        rows = sensors(rng, "unequal", d=int(rng.integers(3, 20)), q=2)
        found.append(max(PPCA(2).fit(rows(int(rng.integers(20, 400))))._model.reference.alike))
    assert np.count_nonzero(found) <= 1


@pytest.mark.filterwarnings("ignore::dualpca.errors.SkewWarning")
@pytest.mark.parametrize("load", [load_iris, load_breast_cancer, load_diabetes])
def test_rows_in_the_order_of_a_group_or_a_column_are_not_dependent(load):
    data = load()
    X = (data.data - data.data.mean(0)) / data.data.std(0)
    for order in (np.argsort(data.target, kind="stable"), np.argsort(X[:, 0])):
        assert PPCA(2).fit(X[order])._model.reference.alike == (0.0, 0.0)


def test_rows_that_are_there_twice_are_weights():
    X = table(np.random.default_rng(5), 120, d=6)
    assert PPCA(2).fit(np.repeat(X, 2, axis=0))._model.reference.alike == (0.0, 0.0)


# --- what missing values leave unknown ----------------------------------------------------------


def gappy(n=400, d=5, q=2, seed=0, share=0.3):
    """Return loadings, rows with missing values, and their residuals' covariance over the noise."""
    rng = np.random.default_rng(seed)
    W, left_out = 2 * rng.normal(size=(d, q)), rng.normal(size=(d, 1))
    omega = np.eye(d) + left_out @ left_out.T
    X = rng.normal(size=(n, q)) @ W.T + rng.multivariate_normal(np.zeros(d), omega, n)
    X[rng.random(X.shape) < share] = np.nan
    return Factors(W, np.zeros(d), np.ones(d)), X, omega


def test_residual_covariance_solves_the_dense_equations():
    factors, X, _ = gappy()
    w = np.random.default_rng(1).uniform(0.5, 1, len(X))
    w /= w.sum()
    found, (d, _) = residual_covariance(factors, X, w), factors.W.shape
    left = right = np.zeros((d, d))
    for row, weight in zip(X, w, strict=True):
        seen = ~np.isnan(row)
        Wo = factors.W * seen[:, None]
        A = np.diag(seen.astype(float)) - Wo @ np.linalg.pinv(Wo)
        e = A @ np.where(seen, row, 0.0)
        left, right = left + weight * A @ found @ A, right + weight * np.outer(e, e)
    np.testing.assert_allclose(left, right, rtol=0, atol=2e-3 * np.trace(right))


def test_a_direction_that_was_left_out_keeps_its_size_whatever_is_missing():
    sizes = {}
    for share in (0.0, 0.3):
        factors, X, omega = gappy(20_000, 8, 2, share=share)
        found = residual_covariance(factors, X, np.full(len(X), 1 / len(X)))
        A = np.eye(8) - factors.W @ np.linalg.pinv(factors.W)
        sizes[share] = np.linalg.eigvalsh(A @ found @ A)[-1]
    true = np.linalg.eigvalsh(A @ omega @ A)[-1]
    assert sizes[0.0] == pytest.approx(true, rel=0.03)
    assert sizes[0.3] == pytest.approx(true, rel=0.06)


def test_nothing_is_unknown_of_rows_that_are_complete_or_empty():
    factors, X, _ = gappy(share=0.0)
    assert Unseen.of(factors, X) is None
    X[::2] = np.nan
    np.testing.assert_allclose(Unseen.of(factors, X).shares, 1.0, rtol=1e-12)


def test_what_is_missing_counts_more_for_axes_and_pairs_than_for_entries():
    factors, X, _ = gappy(d=12, q=3, share=0.2)
    along, off, axes, pairs = Unseen.of(factors, X).shares
    assert 1 < along < 1.25 and pairs < axes < 1 and pairs < off < 1
    entries = np.mean(~np.isnan(X))
    seen = np.maximum((~np.isnan(X)).sum(axis=1) - 3, 0) / 9
    assert off * entries == pytest.approx(seen.mean(), rel=1e-12)
    assert pairs * entries == pytest.approx(np.mean(seen**2), rel=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")
@pytest.mark.parametrize("model", [PPCA, FactorAnalysis])
def test_few_rows_with_missing_values_have_limits_that_hold(model):
    """q by default, weak directions among the four; before, 1.2 to 1.3 % were flagged."""
    rates = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        W = np.linalg.qr(rng.normal(size=(16, 4)))[0] * np.sqrt([20, 8, 4, 2])
        tables = [rng.normal(size=(n, 4)) @ W.T + rng.normal(size=(n, 16)) for n in (100, 2000)]
        for table in tables:
            table[rng.random(table.shape) < 0.1] = np.nan
        rates.append(model().fit(tables[0]).outliers(tables[1], 0.99).flagged.mean())
    error = np.std(rates) / len(rates) ** 0.5
    assert np.mean(rates) == pytest.approx(0.01, abs=0.001 + 2 * error)
