"""Four ways to fit Bayesian PCA: relevance or variational, complete or with NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.data import ChunkedTable, Columns, effective_rows, observed_weights
from dualpca.errors import DegenerateError, expected
from dualpca.estimators._base import generator, used_rows, watch_of
from dualpca.estimators._components import check_request, is_count
from dualpca.estimators._ppca_fits import Fitted
from dualpca.gaussian import (
    ROUNDING,
    Factors,
    LoadingPosterior,
    SpikedGaussian,
    fit_relevance,
    incomplete_laplace,
    information,
    laplace,
    loglikelihood,
    maximum_likelihood,
    penalty,
    refuse_no_noise,
)
from dualpca.models.bayesian import (
    Complete,
    Holes,
    RelevanceFit,
    Variational,
    fit_incomplete_relevance,
    fit_variational,
)
from dualpca.models.driver import Keeper, Record
from dualpca.models.incomplete import filled_axes, observed
from dualpca.operators import Primal, Scatter, Spectrum, deterministic_signs
from dualpca.solvers import solve


class BayesianFit(NamedTuple):
    """A fitted model, what became of the directions it started from, and how sure W is."""

    fitted: Fitted  # its record is of the penalised log-likelihood, or of the bound
    relevance: Array  # (q started,), 1/α; 0 for a direction that is off
    posterior: LoadingPosterior
    loglikelihood: float

    def of_rows(self, n: float) -> BayesianFit:
        """Return the fit with its effective number of rows."""
        return self._replace(fitted=self.fitted._replace(n=n))

    @property
    def factors(self) -> Factors:
        """The density, W on its principal axes."""
        return _density(self.fitted)


def _density(fitted: Fitted) -> Factors:
    V, gaussian = fitted.spectrum.vectors, fitted.gaussian
    psi = backend.namespace(V).full_like(V[:, 0], gaussian.noise)
    return Factors(V * gaussian.spread, fitted.mean, psi)


def start_count(model: Any, n: float, count: int, d: int) -> int:
    """Return how many directions to start from: given, or all that leave the noise visible.

    With as many directions as rows nothing is left to tell noise by, and EM keeps them all; half
    as many as rows (n, the sum of their weights; `count` of them are distinct) are enough.
    """
    if d == 1:
        raise ValueError(
            "BayesianPCA tells signal from noise by comparing directions, so it needs two features "
            "or more, got n_features=1. Use the variance of the feature."
        )
    if model.n_components is None:
        return max(min(d - 1, int(n / 2), count - 1), 1)
    if not is_count(model.n_components):
        raise ValueError(expected("n_components", "an int or None", model.n_components))
    check_request(model.n_components, count, d, model.solver)
    if not 1 <= model.n_components < d:
        what = f"between 1 and n_features - 1 = {d - 1}, so that noise has a direction"
        raise ValueError(expected("n_components", what, model.n_components))
    return int(model.n_components)


def _keeper(model: Any, n: float, mean: Array, variance: Array) -> Keeper | None:
    watch = watch_of(model)
    return None if watch is None else watch.over(n, mean, variance)


def _limits(model: Any) -> dict[str, Any]:
    return {"noise": model.noise_variance, "tol": model.tol, "max_iter": model.max_iter}


def _seed(model: Any) -> Any:
    return generator(0 if model.random_state is None else model.random_state)


def fit_complete(model: Any, operator: Primal | Scatter, count: int) -> BayesianFit:
    """Fit rows without NaN from their spectrum."""
    q = start_count(model, operator.n, count, operator.dim)
    spectrum = solve(operator, q, model.solver, 0.0, _seed(model))
    spectrum = _with_noise(model, spectrum)
    if model.method == "variational":
        return _variational_complete(model, operator, spectrum, count).of_rows(operator.n)
    found = fit_relevance(spectrum, operator.n, model.noise_variance)
    value = loglikelihood(spectrum, operator.n, found)
    record = Record([value + penalty(found.u, operator.dim)], max(found.n_iter, 1), True)
    kept = max(int(found.kept.sum()), 1)  # the leading ones: ℓ decides
    axes, total = spectrum.vectors[:, :kept], operator.trace / operator.n
    fitted = _published(
        operator.frame.mean, axes, found.u[:kept], found.sigma2, total, record, count
    )
    posterior = laplace(_density(fitted), fitted.gaussian, operator.n)
    relevance = backend.asarray(found.u / operator.dim, axes)
    return BayesianFit(fitted, relevance, posterior, value).of_rows(operator.n)


def _published(
    mean: Array, axes: Array, u: Any, sigma2: float, total: float, record: Record, count: int
) -> Fitted:
    """Return the model of orthonormal axes (d, q) with squared lengths u (q,), longest first."""
    d = int(axes.shape[0])
    gaussian = SpikedGaussian(backend.asarray(u, axes) + sigma2, sigma2, d)
    spectrum = Spectrum(gaussian.values, deterministic_signs(axes), total, d)
    return Fitted(mean, spectrum, gaussian, record, count, float(count))


def _with_noise(model: Any, spectrum: Spectrum) -> Spectrum:
    """Return the directions above rounding, one fewer if they would explain everything."""
    if spectrum.trace <= 0:
        raise DegenerateError("every feature is constant: there is nothing to model.")
    values = backend.to_numpy(spectrum.values)
    positive = int((values > ROUNDING * spectrum.trace).sum())
    left = spectrum.trace - float(values[:positive].sum()) > ROUNDING * spectrum.trace
    if model.n_components is None and not left and model.noise_variance is None:
        positive -= 1
    if positive < 1:
        raise DegenerateError(
            "the rows lie on a line: one direction explains them without noise. "
            "Give noise_variance > 0, or use PCA."
        )
    return spectrum.head(positive)


def _variational_complete(
    model: Any, operator: Primal | Scatter, spectrum: Spectrum, count: int
) -> BayesianFit:
    n, total = operator.n, operator.trace / operator.n
    start = maximum_likelihood(spectrum, n, spectrum.rank)
    sigma2 = start.noise if model.noise_variance is None else model.noise_variance
    if sigma2 <= 0:
        refuse_no_noise(spectrum.rank)
    W = spectrum.vectors * SpikedGaussian(start.values, 0.99 * sigma2, start.dim).spread
    rows = Complete(operator)
    keeper = _keeper(model, n, operator.frame.mean, operator.diag() / n)
    found = fit_variational(rows, W, sigma2, **_limits(model), keeper=keeper)
    fit = _from_variational(found, spectrum.vectors[:, :1], total, count)
    return fit._replace(loglikelihood=rows.loglikelihood(fit.factors))


def _from_variational(found: Variational, axis: Array, total: float, count: int) -> BayesianFit:
    """Rotate the columns kept to principal axes; `axis` stands in where none is."""
    xp, at = backend.namespace(axis), found.beliefs
    kept = xp.asarray(np.flatnonzero(backend.to_numpy(found.kept)), device=backend.device_of(axis))
    relevance = xp.where(found.kept, found.relevance, 0 * found.relevance)
    record = found.record
    if kept.shape[0] == 0:
        fitted = _published(at.mu, axis, np.zeros(1), found.noise, total, record, count)
        none = 0 * axis[:1, :1]
        rows = xp.zeros_like(none)[None, :, :]
        posterior = LoadingPosterior(0 * axis, rows, none, none[0, :], False)
        return BayesianFit(fitted, relevance, posterior, math.nan)
    U, s, Vt = algebra.svd(xp.take(at.W, kept, axis=1))
    fitted = _published(at.mu, U, s**2, found.noise, total, record, count)
    S = xp.take(xp.take(at.S, kept, axis=1), kept, axis=2)
    same = xp.where(xp.sum(U * fitted.spectrum.vectors, axis=0) < 0, -xp.ones_like(s), 1 + 0 * s)
    turn = Vt.T * same
    rows, none = turn.T @ S @ turn, 0 * Vt
    posterior = LoadingPosterior(_density(fitted).W, rows, none, none[0, :], False)
    return BayesianFit(fitted, relevance, posterior, math.nan)


def fit_holes(model: Any, X: Array, weights: Array | None) -> BayesianFit:
    """Fit rows with NaN by what they observed."""
    w, d = observed_weights(X, weights), int(X.shape[1])
    count = used_rows(X, w)
    n = float(X.shape[0]) if w is None else float(backend.namespace(X).sum(w))
    q = start_count(model, n, count, d)
    return _holes_route(model)(model, X, w, q, count).of_rows(effective_rows(X, w))


def fit_holes_parts(model: Any, parts: ChunkedTable, columns: Columns) -> BayesianFit:
    """Fit a table in parts with NaN: every step is a pass over the parts."""
    q = start_count(model, columns.weight, columns.used, parts.d)
    found = _holes_route(model)(model, parts, None, q, columns.used)
    return found.of_rows(float(columns.n.mean()))


def _holes_route(model: Any) -> Callable[..., BayesianFit]:
    return fit_holes_variational if model.method == "variational" else fit_holes_relevance


def fit_holes_relevance(
    model: Any, X: Array | ChunkedTable, w: Array | None, q: int, count: int
) -> BayesianFit:
    """Fit by EM with re-estimated priors."""
    rng, watch = _seed(model), watch_of(model)
    found = fit_incomplete_relevance(X, w, q, rng, **_limits(model), watch=watch)
    W, mu, sigma2 = found.factors.W, found.factors.mu, float(found.factors.psi[0])
    xp, d, kept = backend.namespace(mu), int(mu.shape[0]), int(W.shape[1])
    if kept:
        axes, s, _ = algebra.svd(W)
        u = s**2
    else:
        axes, u = filled_axes(observed(X, w, 1), 1, mu, rng)[0], backend.asarray(np.zeros(1), mu)
    total = float(xp.sum(u)) + d * sigma2
    fitted = _published(mu, axes, u, sigma2, total, found.record, count)
    density = _density(fitted)
    posterior = incomplete_laplace(density, fitted.gaussian, information(density, X, w))
    off = backend.asarray(np.zeros(q - kept), mu)
    relevance = xp.concat([u[:kept] / d, off])
    return BayesianFit(fitted, relevance, posterior, found.loglikelihood)


def fit_holes_variational(
    model: Any, X: Array | ChunkedTable, w: Array | None, q: int, count: int
) -> BayesianFit:
    """Fit by the variational bound."""
    rng = _seed(model)
    start = RelevanceFit(X, w, q, model.noise_variance, diagonal=False)
    first = start.unpack(start.begin(rng))
    rows = Holes(X, w, q, start.origin, start.seen, start.unit)
    keeper = _keeper(model, start.data.n, start.origin, start.variance)
    found = fit_variational(rows, first.W, float(first.psi[0]), **_limits(model), keeper=keeper)
    xp, d = backend.namespace(start.origin), start.d
    axis = filled_axes(start.data, 1, start.origin, rng)[0]
    kept = xp.astype(found.kept, xp.float64)
    total = float(xp.sum(kept * found.beliefs.W**2)) + d * found.noise
    fit = _from_variational(found, axis, total, count)
    return fit._replace(loglikelihood=float(start.data.sums(fit.factors).loglikelihood))
