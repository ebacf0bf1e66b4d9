"""Models without noise: the limit of vanishing noise, exactly, with what is left of a model."""

import numpy as np
import pytest

import dualpca
from dualpca import PCA, PPCA, BayesianPCA, DualPPCA, KernelPCA, ProbabilisticKernelPCA
from dualpca.errors import DegenerateError
from tests import oracles
from tests.tolerances import assert_close

LIMIT = 1e-10
TIGHT = {"tol": 1e-12, "max_iter": 5000}


def rows(n=60, d=6, seed=0):
    rng = np.random.default_rng(seed)
    signal = rng.standard_normal((n, 3)) @ np.diag([3.0, 2.0, 1.2]) @ rng.standard_normal((3, d))
    return signal + 0.3 * rng.standard_normal((n, d)) + 2


def with_nan(X, share=0.15, seed=1):
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return X


def near(found, expected):
    """Assert equality to 1e-10 of the largest entry."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape and np.all(np.isfinite(found))
    assert np.max(np.abs(found - expected)) <= LIMIT * np.max(np.abs(expected), initial=1e-300)


# --- PPCA -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(60, 6), (8, 30)], ids=str)
@pytest.mark.parametrize("standardize", [False, True])
def test_no_noise_is_the_limit_of_little_noise(shape, standardize):
    X = rows(*shape)
    model = PPCA(3, noise_variance=0, standardize=standardize).fit(X)
    assert model.noise_variance_ == 0 and model.loglikelihood_ == -np.inf and model.converged_
    last = np.inf
    for tiny in (1e-6, 1e-9, 1e-12):
        other = PPCA(3, noise_variance=tiny, standardize=standardize).fit(X)
        gap = np.max(np.abs(model.transform(X) - other.transform(X)))
        assert gap < last
        last = gap
    near(other.transform(X), model.transform(X))
    near(other.reconstruct(X), model.reconstruct(X))
    near(other.loadings_, model.loadings_)
    near(other.get_covariance(), model.get_covariance())
    assert (
        np.max(model.posterior(X)[1]) == 0
        and np.max(other.posterior(X, parameters="fixed")[1]) < LIMIT
    )
    near(other.inverse_transform(model.transform(X)), model.inverse_transform(model.transform(X)))
    assert_close(model.hotelling_t2(X), other.hotelling_t2(X), "vector")
    assert_close(model.spe(X), other.spe(X), "vector")


def test_it_is_pca_with_a_density_on_the_plane():
    X = rows()
    model, pca = PPCA(3, noise_variance=0).fit(X), PCA(3).fit(X)
    near(model.reconstruct(X), pca.reconstruct(X))
    ell, V = oracles.eigh_descending(oracles.covariance(X))
    near(model.get_covariance(), (V[:, :3] * ell[:3]) @ V[:, :3].T)
    Z = model.transform(X)
    near(Z.T @ Z / len(X), np.eye(3))
    drawn = model.sample(2000, random_state=0)
    near(model.reconstruct(drawn), drawn)  # nothing is off the plane
    assert np.abs(np.cov(drawn.T) - model.get_covariance()).max() < 0.2 * ell[0]


@pytest.mark.parametrize("shape", [(60, 6), (8, 30)], ids=str)
def test_em_for_pca_is_the_closed_form(shape):
    X = rows(*shape)
    closed = PPCA(3, noise_variance=0).fit(X)
    em = PPCA(3, noise_variance=0, method="em", **TIGHT).fit(X)
    assert em.converged_ and em.loglikelihood_ == -np.inf and em.noise_variance_ == 0
    assert_close(em.get_covariance(), closed.get_covariance(), "em")
    assert_close(em.reconstruct(X), closed.reconstruct(X), "em")


def test_a_step_is_that_of_roweis():
    from dualpca.models.spiked import ppca_step
    from dualpca.operators.primal import Primal

    X = rows()
    Xc = X - X.mean(axis=0)
    W = np.random.default_rng(2).standard_normal((6, 2))
    Omega = np.linalg.inv(W.T @ W) @ W.T @ Xc.T
    expected = Xc.T @ Omega.T @ np.linalg.inv(Omega @ Omega.T)
    operator = Primal(X)
    found, _, value = ppca_step(operator, W, 0.0, operator.n)
    near(found, expected)
    left = np.sum((Xc - Omega.T @ W.T) ** 2) / (np.sum(Xc**2) / (60 * 6))
    assert value == pytest.approx(-0.5 * left, rel=1e-10)
    last = value
    for _ in range(20):  # the squares that are left never rise
        found, _, value = ppca_step(operator, found, 0.0, operator.n, expand=True)
        assert value >= last - 1e-9 * abs(last)
        last = value


def test_the_number_of_components_is_the_rank():
    X = rows(5, 9)
    model = PPCA(noise_variance=0).fit(X)
    assert model.n_components_ == 4
    near(model.reconstruct(X), X)
    assert model.loglikelihood_ == np.inf  # nothing is left
    with pytest.raises(ValueError, match="only 4 directions"):
        PPCA(5, noise_variance=0).fit(X)
    with pytest.raises(DegenerateError, match="Use fewer components"):
        PPCA(5, noise_variance=0, method="em").fit(X)


def test_all_components_have_a_density():
    X = rows()
    model = PPCA(6, noise_variance=0).fit(X)
    expected = oracles.log_density(X, X.mean(axis=0), oracles.covariance(X))
    assert_close(model.score_samples(X), expected, "density")
    assert model.loglikelihood_ == pytest.approx(expected.sum())
    holes = with_nan(X)
    dense = oracles.covariance(X)
    for x, found in zip(holes, model.score_samples(holes), strict=True):
        o = ~np.isnan(x)
        one = oracles.log_density(x[None, o], X.mean(axis=0)[o], dense[np.ix_(o, o)])[0]
        assert found == pytest.approx(one, rel=1e-8)


def test_what_does_not_exist_says_so():
    X = rows()
    model = PPCA(3, noise_variance=0).fit(X)
    for call in (model.score_samples, model.score, lambda X: model.get_precision()):
        with pytest.raises(DegenerateError, match="no density"):
            call(X)
    with pytest.raises(DegenerateError, match="no noise"):
        model.hotelling_t2(with_nan(X))
    flat = np.where(np.arange(6) < 5, X, 7.0)  # six components, one of variance 0
    with pytest.raises(DegenerateError, match="no density"):
        PCA(6).fit(flat).score_samples(flat)
    with pytest.raises(ValueError, match="positive number, 0 or None"):
        PPCA(2, noise_variance=-1.0).fit(X)
    for other in (BayesianPCA(2, noise_variance=0), ProbabilisticKernelPCA(2, noise_variance=0)):
        with pytest.raises(ValueError, match="positive number or None"):
            other.fit(X)
    with pytest.raises(ValueError, match="positive or None where partial_fit"):
        PPCA(2, noise_variance=0).partial_fit(with_nan(X))


def test_streams_and_files(tmp_path):
    X = rows()
    model, stream = PPCA(2, noise_variance=0).fit(X), PPCA(2, noise_variance=0)
    for part in np.split(X, 3):
        stream.partial_fit(part)
    assert_close(stream.get_covariance(), model.get_covariance(), "covariance")
    model.save(tmp_path / "a.dpca")
    again = dualpca.load(tmp_path / "a.dpca")
    assert np.array_equal(again.transform(X), model.transform(X))
    assert again.loglikelihood_ == -np.inf and again.noise_variance_ == 0
    dual = model.to_dual(X)
    assert dual.noise_variance_ == 0 and dual.noise_variance == 0
    assert_close(np.abs(dual.transform(X)), np.abs(model.transform(X)), "vector")


# --- missing values ---------------------------------------------------------------------


def test_rows_with_nan_have_the_limit_of_the_posterior():
    X = rows()
    model, other = (PPCA(3, noise_variance=s).fit(X) for s in (0, 1e-13))
    holes = with_nan(X, 0.4)
    holes[0, 1:], holes[1] = np.nan, np.nan  # fewer entries than latents, and none
    W, mu = model.loadings_, model.mean_
    mean, covariance = model.posterior(holes)
    for x, m, C in zip(holes, mean, covariance, strict=True):
        o = ~np.isnan(x)
        inverse = np.linalg.pinv(W[o])
        np.testing.assert_allclose(m, inverse @ (x[o] - mu[o]), atol=1e-8)
        np.testing.assert_allclose(C, np.eye(3) - inverse @ W[o], atol=1e-8)
    # rows that determine z badly amplify both roundings: their condition limits what is compared
    o = ~np.isnan(holes)
    good = [i for i, seen in enumerate(o) if seen.sum() >= 3 and np.linalg.cond(W[seen]) < 30]
    assert len(good) > 20
    near(other.posterior(holes)[0][good], mean[good])
    near(other.impute(holes)[good], model.impute(holes)[good])
    deviation = model.impute(holes, return_std=True, parameters="fixed")[1]
    assert np.all(deviation[good] <= 1e-7) and np.all(deviation[1] > 0)
    drawn = model.sample_imputations(holes, 3, random_state=0, parameters="fixed")
    assert np.array_equal(drawn[0][o], holes[o])


def test_fits_of_rows_with_nan_are_the_limit():
    X = with_nan(rows(200))
    model = PPCA(3, noise_variance=0, **TIGHT).fit(X)
    assert model.converged_ and model.loglikelihood_ == -np.inf and model.noise_variance_ == 0
    limit, halved = model.get_covariance(), {}
    for tiny in (4e-6, 2e-6, 1e-6):
        other = PPCA(3, noise_variance=tiny, tol=1e-11).fit(X)
        halved[tiny] = other.get_covariance() - tiny * np.eye(6)
        assert np.max(np.abs(halved[tiny] - limit)) < 0.1 * tiny * np.max(np.abs(limit))
    near(2 * halved[1e-6] - halved[2e-6], limit)  # what is left is of the order of the noise
    Z, C = model.posterior(X)
    second = (Z.T @ Z + C.sum(axis=0)) / len(X)
    assert_close(second, np.eye(3), "em")  # latents have their prior's covariance


@pytest.mark.parametrize("standardize", [False, True])
def test_what_is_missing_is_drawn_with_parameters_of_its_own(standardize):
    X = with_nan(rows())
    weights = np.arange(60) % 3
    model = PPCA(2, noise_variance=0, standardize=standardize).fit(X, sample_weight=weights)
    assert model.converged_
    tables = model.sample_imputations(X, 4, random_state=0)  # refits have no noise either
    seen = ~np.isnan(X)
    assert np.all(np.isfinite(tables)) and np.array_equal(tables[2][seen], X[seen])
    assert np.all(tables.std(axis=0)[~seen] > 0)
    filled, deviation = model.impute(X, return_std=True, parameters="bootstrap")
    assert np.all(deviation[~seen] > 0) and np.all(deviation[seen] == 0)
    assert np.all(np.isfinite(filled)) and np.all(np.isfinite(model.reconstruct(X)))
    mean, covariance = model.conditional(X[:3])
    assert np.all(np.isfinite(mean)) and np.all(np.isfinite(covariance))


def test_nan_fits_leave_the_least_squares():
    """No other plane explains the observed entries better: a check by coordinate descent."""
    X = with_nan(rows(80), 0.1)
    model = PPCA(2, noise_variance=0, **TIGHT).fit(X)
    seen = ~np.isnan(X)

    def left(W, mu):
        total = 0.0
        for x, o in zip(X, seen, strict=True):
            total += np.linalg.lstsq(W[o], (x - mu)[o], rcond=None)[1].sum() if o.sum() > 2 else 0
        return total

    W, mu = model.loadings_, model.mean_
    best, rng = left(W, mu), np.random.default_rng(3)
    for _ in range(20):
        step = 1e-4 * rng.standard_normal(W.shape), 1e-4 * rng.standard_normal(6)
        assert left(W + step[0], mu + step[1]) >= best - 1e-9 * best
    complete = PPCA(2, noise_variance=0).fit(rows(80))
    gap = model.get_covariance() - complete.get_covariance()
    assert np.max(np.abs(gap)) < 0.3 * np.max(np.abs(complete.get_covariance()))


def test_em_without_noise_raises_minus_half_of_the_squares_that_are_left():
    from dualpca.data import InMemoryTable
    from dualpca.models.incomplete import Fit

    X, values = with_nan(rows(), 0.2), []
    for quick in (True, False):
        fit = Fit(InMemoryTable(X), 2, 0.0)
        theta = fit.begin(np.random.default_rng(0))
        fit.quick = fit.quick if quick else None
        values.append(fit.step(theta)[1])
    factors, left = fit.unpack(theta), 0.0
    for x in X - factors.mu:
        seen = ~np.isnan(x)
        W = factors.W[seen]
        left += np.sum((x[seen] - W @ np.linalg.lstsq(W, x[seen])[0]) ** 2)
    near(values, [-0.5 * left / fit.unit] * 2)


def test_complete_rows_by_the_em_of_missing_values():
    from dualpca.data import InMemoryTable
    from dualpca.models.incomplete import Fit, fit_incomplete

    X = rows()
    fit = Fit(InMemoryTable(X), 3, 0.0)
    factors, record = fit_incomplete(fit, np.random.default_rng(0), **TIGHT)
    closed = PPCA(3, noise_variance=0).fit(X)
    assert_close(factors.W @ factors.W.T, closed.get_covariance(), "em")
    values = np.array(record.loglikelihoods)
    assert np.all(np.diff(values) >= -1e-9 * np.abs(values[:-1]))


# --- in feature space -------------------------------------------------------------------


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_dual_ppca_without_noise_is_kernel_pca(center, kernel):
    X, new = rows(30, 4), rows(7, 4, seed=5)
    options = {"kernel": kernel, "gamma": 0.05 if kernel == "rbf" else None, "center": center}
    model = DualPPCA(3, noise_variance=0, **options).fit(X)
    assert model.noise_variance_ == 0 and model.loglikelihood_ == -np.inf
    tiny = 1e-13 * float(model.explained_variance_[-1])
    other = DualPPCA(3, noise_variance=tiny, **options).fit(X)
    near(other.transform(new), model.transform(new))
    near(other.reconstruct_kernel(new), model.reconstruct_kernel(new))
    near(other.coefficients_, model.coefficients_)
    pca = KernelPCA(3, **options).fit(X)
    whitened = pca.transform(new) / np.sqrt(pca.explained_variance_)
    near(np.abs(model.transform(new)), np.abs(whitened))
    assert np.max(model.posterior(new)[1]) == 0
    xi = np.random.default_rng(0).standard_normal((5, 30))
    # the noise is of the order of its root
    gap = other.sample_kernel(noise=xi) - model.sample_kernel(noise=xi)
    assert np.max(np.abs(gap)) < 1e-5 * np.max(np.abs(model.sample_kernel(noise=xi)))
    kc = model.sample_kernel(4, random_state=0)
    h = model.posterior_kernel(kc, centered=True)[0]
    near(model.reconstruct_kernel(latents=h), kc)  # draws never leave the components
    with pytest.raises(DegenerateError, match="no density"):
        model.score_samples(new)
    em = DualPPCA(3, noise_variance=0, method="em", tol=1e-12, **options).fit(X)
    assert_close(em.reconstruct_kernel(new), model.reconstruct_kernel(new), "em")
    assert em.loglikelihood_ == -np.inf


def test_as_many_components_as_the_kernel_has():
    X = rows(12, 3)
    model = DualPPCA(noise_variance=0, gamma=0.5).fit(X)
    assert model.n_components_ == 11 and model.loglikelihood_ == np.inf
    Kc = oracles.centred_kernel(model.kernel_(X, X))
    assert_close(model.reconstruct_kernel(X), Kc, "vector")
    with pytest.raises(ValueError, match="positive number or None"):
        DualPPCA("ard", noise_variance=0).fit(X)


def test_kernel_pca_draws_what_the_limit_draws():
    t = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    X = np.column_stack([np.cos(t), np.sin(t)])
    pca = KernelPCA(4, kernel="rbf", gamma=1.0, preimage="smoother").fit(X)
    dual = DualPPCA(4, noise_variance=0, gamma=1.0, preimage="smoother").fit(X)
    points, distance = pca.sample(500, random_state=0, return_distance=True)
    assert points.shape == (500, 2) and distance.shape == (500,)
    assert np.abs(points.mean(axis=0)).max() < 0.1
    expected = dual.sample(500, random_state=0)
    assert np.abs(np.cov(points.T) - np.cov(expected.T)).max() < 0.1
    linear = KernelPCA(2, kernel="linear").fit(rows())
    drawn = linear.sample(20_000, random_state=0)
    C = PPCA(2, noise_variance=0).fit(rows()).get_covariance()
    assert np.abs(np.cov(drawn.T) - C).max() < 0.04 * np.abs(C).max()
    with pytest.raises(ValueError, match="n_samples"):
        linear.sample(0)
