"""EM steps that are turned to their end reach the maximum of plain EM, in fewer steps."""

import numpy as np
import pytest

import dualpca as dp
from dualpca.data import InMemoryTable
from dualpca.gaussian import observed
from dualpca.models import driver
from dualpca.models.incomplete import Fit

D = 8
SPECTRA = {
    "steep": 10 * 0.5 ** np.arange(D),
    "flat": 1 + 0.3 * np.exp(-np.arange(D) / 4),
    "ties": np.array([4.0] * 4 + [1.0] * 4),
    "white": np.ones(D),
}


def rows(name="flat", n=600, missing=0.2, seed=0):
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((D, D)))[0]
    X = rng.standard_normal((n, D)) * np.sqrt(SPECTRA[name]) @ axes.T + np.arange(D)
    X[rng.random((n, D)) < missing] = np.nan
    return X


def fit_of(X, q, weights=None, noise=None):
    return Fit(InMemoryTable(X, weights), q, noise, by_blocks=True)


def climbed(fit, tol=1e-8):
    return driver.maximize(fit.step, fit.begin(np.random.default_rng(0)), tol=tol)


def plain(fit, theta, steps):
    """The oracle: EM steps alone."""
    options = {"tol": 0.0, "max_iter": steps, "accelerate": False}
    return driver.maximize(lambda at: fit.step(at)[:2], theta, **options)[1]


def at_maximum(fit, theta, steps=500):
    values = plain(fit, theta, steps).loglikelihoods
    return values[-1] - values[0] <= 1e-9 * abs(values[0])


@pytest.mark.parametrize("missing", [0.05, 0.5])
@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("q", [1, 3, D - 1])
def test_ends_at_a_maximum_and_never_falls(name, missing, q):
    fit = fit_of(rows(name, missing=missing), q)
    assert fit.turns
    theta, record = climbed(fit)
    assert record.converged
    values = np.array(record.loglikelihoods)
    assert np.all(np.diff(values) >= -driver.NEGLIGIBLE_FALL * abs(values[-1]))
    assert at_maximum(fit, theta)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["steep", "flat"])
def test_has_the_likelihood_of_plain_em_after_many_steps(name):
    fit = fit_of(rows(name, n=2000), 3)
    _, record = climbed(fit)
    long = plain(fit, fit.begin(np.random.default_rng(0)), 5000)
    best = long.loglikelihoods[-1]
    assert record.loglikelihoods[-1] == pytest.approx(best, rel=1e-9)
    reached = sum(v < best - 1e-9 * abs(best) for v in long.loglikelihoods)
    assert record.n_iter < 10 + reached / 3


@pytest.mark.parametrize("name", SPECTRA)
def test_nothing_missing_is_the_closed_form(name):
    X, q = rows(name, missing=0.0), 3
    theta, _ = climbed(fit_of(X, q), 1e-10)
    factors = fit_of(X, q).unpack(theta)
    lam, V = np.linalg.eigh(np.cov(X.T, bias=True))
    sigma2 = lam[: D - q].mean()
    C = (V[:, D - q :] * (lam[D - q :] - sigma2)) @ V[:, D - q :].T + sigma2 * np.eye(D)
    found = factors.W @ factors.W.T + np.diag(factors.psi)
    assert np.allclose(found, C, atol=1e-7 * lam[-1])


def test_rows_without_any_value_count_nothing():
    X = rows()
    more = np.insert(X, [0, 300], np.nan, axis=0)
    values = [climbed(fit_of(A, 3))[1].loglikelihoods[-1] for A in (X, more)]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_weights_are_counts():
    X, w = rows(n=300), np.random.default_rng(1).integers(0, 4, 300)
    repeated, weighted = fit_of(np.repeat(X, w, axis=0), 3), fit_of(X, 3, w.astype(float))
    assert weighted.turns
    values = [climbed(fit)[1].loglikelihoods[-1] for fit in (repeated, weighted)]
    assert values[0] == pytest.approx(values[1], rel=1e-10)


def test_a_fixed_noise_stays():
    fit = fit_of(rows(), 3, noise=0.7)
    theta, record = climbed(fit)
    assert record.converged and at_maximum(fit, theta)
    assert np.all(fit.unpack(theta).psi == 0.7)


def test_float32_rows_have_the_maximum_of_the_same_numbers():
    X = rows().astype(np.float32)
    values = [climbed(fit_of(A, 3))[1].loglikelihoods[-1] for A in (X, X.astype(np.float64))]
    assert values[0] == pytest.approx(values[1], rel=1e-9)


def test_tensors_have_the_same_maximum():
    torch = pytest.importorskip("torch")
    X = rows()
    record, other = (climbed(fit_of(A, 3))[1] for A in (X, torch.as_tensor(X)))
    assert other.loglikelihoods[-1] == pytest.approx(record.loglikelihoods[-1], rel=1e-10)
    assert abs(other.n_iter - record.n_iter) <= 3


def test_where_em_rests_a_turned_step_rests():
    fit = fit_of(rows(n=2000), 3)
    theta, _ = climbed(fit, 1e-10)
    image, _, bold = fit.step(theta)
    assert np.linalg.norm(bold - theta) < 1e-6 * np.linalg.norm(theta)
    assert np.linalg.norm(image - theta) < 1e-6 * np.linalg.norm(theta)


def test_a_turned_step_is_longer_than_that_of_em():
    fit = fit_of(rows(n=2000), 3)
    theta, _ = climbed(fit, 1e-10)
    rng = np.random.default_rng(0)
    near = theta + 1e-4 * rng.standard_normal(theta.shape)

    def covariance(at):
        factors = fit.unpack(at)
        return factors.W @ factors.W.T + np.diag(factors.psi)

    image, _, bold = fit.step(near)
    left = [np.linalg.norm(covariance(at) - covariance(theta)) for at in (image, bold)]
    assert left[1] < left[0] / 2


def test_an_axis_without_direction_is_not_turned():
    W = np.zeros((D, 2))
    assert observed.turned_step((W, 1.0), (W, 1.0), np.eye(D)) is None


def test_pairs_and_products_are_sums_over_rows():
    X, w = rows(n=50), np.random.default_rng(1).uniform(0.5, 2, 50)
    fit = fit_of(X, 2, w)
    factors = fit.unpack(fit.begin(np.random.default_rng(0)))
    found = fit.expectations(factors, residuals=True)
    seen, products = ~np.isnan(X), np.zeros((D, D))
    for x, o, weight in zip(X, seen, w, strict=True):
        C = factors.W @ factors.W.T + np.diag(factors.psi)
        z = factors.W[o].T @ np.linalg.solve(C[np.ix_(o, o)], (x - factors.mu)[o])
        e = np.where(o, x - factors.mu - factors.W @ z, 0.0)
        products += weight * np.outer(e, e)
    assert np.allclose(found.products, products)
    assert np.allclose(fit.data.pair_counts, (seen * w[:, None]).T @ seen)
    assert fit.expectations(factors).products.size == 0


@pytest.mark.parametrize("turn", range(1, 12))
def test_a_fit_that_was_interrupted_resumes_to_the_same_bits(turn):
    class Memory(driver.Keeper):
        def offer(self, state, *, now=False):
            if now:
                self.state = state()

    fit = fit_of(rows(), 3)
    whole, record = climbed(fit)
    calls, keeper = [], Memory()

    def stopped(theta):
        calls.append(1)
        if len(calls) == turn + 1:
            raise KeyboardInterrupt
        return fit.step(theta)

    start = fit.begin(np.random.default_rng(0))
    _, broken = driver.maximize(stopped, start, tol=1e-8, keeper=keeper)
    assert broken.interrupted and keeper.state is not None
    resumed, again = driver.maximize(fit.step, fit.origin, tol=1e-8, keeper=keeper)
    assert np.array_equal(resumed, whole) and again == record


@pytest.mark.parametrize("noise", [0.0, 1e-12])
def test_noise_near_its_floor_does_not_stop_it(noise):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 2)) @ rng.standard_normal((2, D))
    X += noise**0.5 * rng.standard_normal(X.shape)
    X[rng.random(X.shape) < 0.1] = np.nan
    fit = fit_of(X, 2)
    theta, record = climbed(fit, 1e-6)
    values = np.array(record.loglikelihoods)
    assert np.all(np.diff(values) >= -driver.NEGLIGIBLE_FALL * np.abs(values[1:]))
    factors, seen = fit.unpack(theta), ~np.isnan(X)
    sizes = seen.sum(axis=1)
    assert factors.psi[0] <= 2 * max(noise, 1e-9 * fit.unit)
    known = sizes >= 3
    W, R = factors.W, np.where(seen, X - factors.mu, 0.0)
    off = [
        r[o] - W[o] @ np.linalg.lstsq(W[o], r[o], rcond=None)[0]
        for r, o in zip(R[known], seen[known], strict=True)
    ]
    assert max(np.abs(e).max() for e in off) < 1e-4


def test_chunks_have_the_steps_of_the_rows_in_memory():
    X = rows()
    parts = dp.PPCA(3, tol=1e-8).fit(dp.Batches(np.array_split(X, 4)))
    theta, _ = climbed(fit_of(X, 3))
    factors = fit_of(X, 3).unpack(theta)
    assert np.allclose(
        parts.get_covariance(), factors.W @ factors.W.T + np.diag(factors.psi), atol=1e-7
    )
