"""Bayesian PCA: variational, or by automatic relevance determination; missing values or none.

`BayesianModel` is the fitted model, `fit_bayesian` fits one to a table: by relevance, from the
spectrum of complete rows or by EM where values are missing, or by raising a variational bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.special import digamma, gammaln

from dualpca.arrays import Array, algebra, backend, outer
from dualpca.data import Columns, Table
from dualpca.errors import DegenerateError, SelectionWarning, expected, warn
from dualpca.gaussian import (
    LOG_2PI,
    Factors,
    Reference,
    SpikedGaussian,
    Sums,
    loadings,
    observed,
    reference_of,
    rules,
)
from dualpca.models import driver, spiked
from dualpca.models.incomplete import Fit, few_steps, filled_axes
from dualpca.models.streaming import shifted
from dualpca.operators import Spectrum, linear
from dualpca.solvers import solve

# --- The model -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BayesianModel(spiked.SpikedModel):
    """A spiked Gaussian, the relevance of the directions it started from, and how sure W is."""

    relevance: Annotated[
        Array, "p", ">= 0, or inf"
    ]  # 1/α of the directions started from; 0 for those off
    loading_posterior: Annotated[loadings.LoadingPosterior, "d q"]
    bounds: tuple[
        Annotated[float, "or nan, or inf"], ...
    ]  # at every step: penalised log-likelihood, or variational bound

    @property
    def bound(self) -> float | None:
        """The last one."""
        return self.bounds[-1] if self.bounds else None

    @property
    def n_effective(self) -> int:
        """Number of directions that are not switched off."""
        return int((backend.to_numpy(self.relevance) > 0).sum())

    @property
    def loadings_std(self) -> Array:
        """Posterior standard deviations of W, (d, q)."""
        return backend.cast_like(self.loading_posterior.std(), self.components)

    def sample_loadings(self, n_draws: int, rng: np.random.Generator) -> Array:
        """Draw loadings from their posterior, (n_draws, d, q)."""
        return backend.cast_like(self.loading_posterior.draw(rng, n_draws), self.components)


@dataclass(frozen=True)
class BayesianRequest(driver.IterativeRequest):
    """Checked parameters of `fit_bayesian`. `rng` also starts block Krylov."""

    n_components: int | None = None  # to start from
    method: str = "ard"  # or 'variational'
    noise: float | None = None  # σ², None to estimate it
    solver: str = "auto"


def fit_bayesian(table: Table, request: BayesianRequest) -> BayesianModel:
    """Fit Bayesian PCA (Bishop 1999), with missing values or without."""
    spiked.check_solver(table, request.solver)
    found = linear(table, missing=True)
    if not isinstance(found, Columns):
        return bayesian_of_operator(found.operator, found.n_rows, table.like, request)

    def fit(request: BayesianRequest) -> BayesianModel:
        return _fit_incomplete_bayesian(table, found, request)

    return _with_some_noise(fit, request, spiked.average_variance(found), table.d)


def _fit_incomplete_bayesian(
    table: Table, columns: Columns, request: BayesianRequest
) -> BayesianModel:
    """Fit rows with missing values."""
    q = start_count(request, columns.weight, columns.used, table.d)
    fit, rng = RelevanceFit(table, q, request.noise, columns=columns), request.start
    if request.method == "variational":  # from the span of the rows filled with means
        first = fit.unpack(fit.begin(rng))
        axis, noise = filled_axes(fit.data, 1, fit.origin, rng)[0], float(first.psi[0])
        keeper = fit.keeper(request.watch)
        at, value = fit_variational(IncompleteRows(fit), first.W, noise, axis, request, keeper)
    else:
        at, value = _relevance_with_missing(fit, rng, request)
    axes, factors = at.axes, at.axes.factors
    sure = loadings.incomplete_laplace(factors, axes.gaussian, loadings.information(factors, table))
    reference = spiked.measured_reference(factors, axes.spectrum, table, columns.effective_rows)
    return _model(at, sure, value, columns.used, reference, table.like)


def _with_some_noise(
    fit: Callable[[BayesianRequest], BayesianModel], request: BayesianRequest, unit: float, d: int
) -> BayesianModel:
    """Fit; where neither noise nor a number of directions was given, any rows leave some noise.

    One feature has no second direction to compare with: all its variance, `unit`, is noise.
    """
    if request.n_components is not None or request.noise is not None:
        return fit(request)
    if d == 1 and unit > 0:
        return fit(replace(request, noise=unit))
    return spiked.noise_held(fit, request, unit)


def bayesian_of_operator(
    operator: spiked.LinearOperator, count: int, like: Array, request: BayesianRequest
) -> BayesianModel:
    """Fit Bayesian PCA to an operator over the features that sums over `count` rows."""

    def fit(request: BayesianRequest) -> BayesianModel:
        return _fit_complete_bayesian(operator, count, like, request)

    unit = operator.trace / operator.n / operator.dim
    return _with_some_noise(fit, request, unit, operator.dim)


def _fit_complete_bayesian(
    operator: spiked.LinearOperator, count: int, like: Array, request: BayesianRequest
) -> BayesianModel:
    """Fit complete rows."""
    n, q = operator.n, start_count(request, operator.n, count, operator.dim)
    spectrum = solve(operator, q, request.solver, 0.0, request.start)
    spectrum = _leaving_noise(spectrum, request)
    if request.method == "variational":  # from the fit of maximum likelihood
        start = rules.maximum_likelihood(spectrum, n, spectrum.rank)
        sigma2 = start.noise if request.noise is None else request.noise
        if sigma2 <= 0:
            rules.refuse_no_noise(spectrum.rank)
        W = spectrum.vectors * SpikedGaussian(start.values, 0.99 * sigma2, start.dim).spread
        axis, keeper = spectrum.vectors[:, :1], spiked.keeper_of(request.watch, operator)
        at, value = fit_variational(CompleteRows(operator), W, sigma2, axis, request, keeper)
    else:
        at, value = _relevance(operator, spectrum, request)
    axes = at.axes
    sure = loadings.laplace(axes.factors, axes.gaussian, n)
    reference = reference_of(operator, axes.spectrum, n, n, rows=spiked.rows_in_order(operator))
    return _model(at, sure, value, count, reference, like, operator.trace / n)


def start_count(request: BayesianRequest, n: float, count: int, d: int) -> int:
    """Return how many directions to start from: given, or all that leave the noise visible.

    With as many directions as rows nothing is left to tell noise by, and EM keeps them all; half
    as many as rows (n, the sum of their weights; `count` of them are distinct) are enough.
    """
    wanted = request.n_components
    if d == 1 and (wanted is not None or request.noise is None):
        raise ValueError(
            "BayesianPCA tells signal from noise by comparing directions, so it needs two features "
            "or more, got n_features=1. Use the variance of the feature."
        )
    if wanted is None:
        return max(min(d - 1, int(n / 2), count - 1), 1)
    if not rules.is_count(wanted):
        raise ValueError(expected("n_components", "an int or None", wanted))
    rules.check_request(wanted, count, d, request.solver)
    if not 1 <= wanted < d:
        what = f"between 1 and n_features - 1 = {d - 1}, so that noise has a direction"
        raise ValueError(expected("n_components", what, wanted))
    return int(wanted)


class Directions(NamedTuple):
    """Where a fit ended: principal axes, and the record of the fit."""

    axes: spiked.PrincipalAxes
    record: driver.Record  # of the penalised log-likelihood, or of the bound
    relevance: Array  # (q started,)

    @classmethod
    def of(
        cls, mean: Array, V: Array, u: Array, noise: float, record: driver.Record, relevance: Array
    ) -> Directions:
        """Return axes V (d, q), orthonormal, of squared lengths u, longest first."""
        d = int(mean.shape[0])
        gaussian = SpikedGaussian(u + noise, noise, d)
        total = float(backend.namespace(u).sum(u)) + d * noise
        spectrum = Spectrum(gaussian.values, algebra.deterministic_signs(V), total, d)
        return cls(spiked.PrincipalAxes(mean, spectrum, gaussian), record, relevance)


def _model(
    at: Directions,
    posterior: loadings.LoadingPosterior,
    value: float,
    count: int,
    reference: Reference,
    like: Array,
    total: float | None = None,
) -> BayesianModel:
    """Return the model, in the dtype of `like`, of `count` rows.

    `posterior` says how sure W is, `value` is the log-likelihood, and `total` the variance of the
    rows, by default that of the model.
    """
    record, axes = at.record, at.axes
    if total is not None:
        axes = axes._replace(spectrum=replace(axes.spectrum, trace=total))
    model = axes.model(
        like,
        count,
        reference,
        BayesianModel,
        history=driver.History((value,), record.n_iter, record.converged, record.interrupted),
        relevance=backend.cast_like(at.relevance, like),
        loading_posterior=posterior,
        bounds=tuple(record.loglikelihoods),
    )
    if model.n_effective == 0:
        warn(
            "no direction is relevant beside the noise; one axis of length 0 is kept, and "
            "latents are 0.",
            SelectionWarning,
        )
    return model


# --- Automatic relevance determination, complete rows --------------------------------------------


def _leaving_noise(spectrum: Spectrum, request: BayesianRequest) -> Spectrum:
    """Return the directions above rounding, one fewer if they would explain everything."""
    if spectrum.trace <= 0:
        raise DegenerateError("every feature is constant: there is nothing to model.")
    values = backend.to_numpy(spectrum.values)
    rounding = rules.VARIANCE_ROUNDING * spectrum.trace
    positive = int((values > rounding).sum())
    left = spectrum.trace - float(values[:positive].sum()) > rounding
    if request.n_components is None and not left and request.noise is None:
        positive -= 1
    if positive < 1:
        raise DegenerateError(
            "the rows are on a line: one direction explains them without noise. "
            "Give noise_variance > 0, or use PCA."
        )
    return spectrum.head(positive)


def _relevance(
    operator: spiked.LinearOperator, spectrum: Spectrum, request: BayesianRequest
) -> tuple[Directions, float]:
    """Find the directions that are relevant from the spectrum alone."""
    n, lengths = operator.n, rules.fit_relevance(spectrum, operator.n, request.noise)
    value = rules.loglikelihood(spectrum, n, lengths)
    raised = value + rules.penalty(lengths.u, operator.dim)
    record = driver.Record([raised], max(lengths.n_iter, 1), True)
    kept = max(int(lengths.kept.sum()), 1)  # the leading ones: ℓ decides
    u = backend.asarray(lengths.u, operator.like)
    along = spectrum.vectors[:, :kept], u[:kept], lengths.sigma2
    return Directions.of(operator.frame.mean, *along, record, u / operator.dim), value


# --- Automatic relevance determination where values are missing ----------------------------------

OFF = 1e-3
"""A direction is off once its squared length is below this share of σ²d/n: EM cannot return."""


class SwitchOff(Exception):
    """Carries the `Factors` of the directions that are left when some have become irrelevant."""


class RelevanceFit(Fit):
    """EM with the prior w_i ~ N(0, α_i⁻¹I) and α_i = d/w_iᵀw_i, on the same θ as without it.

    Turning the columns of W so that they are orthogonal leaves the likelihood alone and, by
    Hadamard's inequality, makes Π w_iᵀw_i as small as it gets: every step ends with that.
    """

    steps = 0

    def step(self, theta: Array) -> tuple[Array, float]:
        """Take one EM step; return it with the penalised log-likelihood of θ."""
        factors = self.unpack(theta)
        sums, u = self.expectations(factors).sums, _squared_lengths(factors.W)
        self.steps += 1
        value = float(sums.loglikelihood) + rules.penalty(backend.to_numpy(u), self.d)
        W, mu, left = observed.m_step(sums, factors, factors.psi[0] * self.d / u)
        W, psi = _orthogonal(W, factors.W), self._noise(left, sums.n)
        least = OFF * float(psi[0]) * self.d / float(sums.all_n)
        kept = np.flatnonzero(backend.to_numpy(_squared_lengths(W) > least))
        if kept.size < self.q:
            raise SwitchOff(Factors(backend.take(W, kept, axis=1), mu, psi))
        return self.pack(Factors(W, mu, psi)), value

    def climb(self, factors: Factors, steps: int) -> Factors:
        """Return where a few steps lead from a density close to the maximum, with its prior."""
        fit, left = copy(self), _relevant(factors)
        fit.q = int(left.W.shape[1])
        while fit.q:
            try:
                return fit.unpack(few_steps(fit.step, fit.pack(left), steps, accelerate=False))
            except SwitchOff as event:
                (left,) = event.args
                fit.q = int(left.W.shape[1])
        return fit.without_directions()

    def without_directions(self) -> Factors:
        """Return each feature's mean and one noise, with an axis of length 0."""
        xp, none = backend.namespace(self.origin), 0 * self.origin[:, None]
        psi = xp.full_like(self.origin, self.unit if self.noise is None else self.noise)
        sums = self.data.sums(Factors(none, self.origin, psi))
        offset = sums.x / sums.n
        return Factors(none, self.origin + offset, self._noise(sums.xx - offset * sums.x, sums.n))

    def begin(self, rng: np.random.Generator, psi: Array | None = None) -> Array:
        """Return θ to start from: maximum likelihood of the rows filled with means, or noise ψ."""
        xp, q = backend.namespace(self.origin), self.q
        V, ell = filled_axes(self.data, q, self.origin, rng)
        most = float(xp.max(self.seen))
        ell = ell * float(self.data.n) / most
        left = float(xp.sum(self.variance * self.seen)) / most - float(xp.sum(ell))
        sigma2 = left / (self.d - q) if self.noise is None else self.noise
        sigma2 = max(sigma2, 10 * rules.LEAST_NOISE * self.unit)
        u = xp.maximum(ell - sigma2, 0.01 * sigma2)
        psi = xp.full_like(self.variance, sigma2) if psi is None else psi
        return self.pack(Factors(V * xp.sqrt(u), self.origin, psi))


def _relevant(factors: Factors) -> Factors:
    """Return the density without columns of W that are 0."""
    kept = np.flatnonzero(backend.to_numpy(_squared_lengths(factors.W) > 0))
    return Factors(backend.take(factors.W, kept, axis=1), factors.mu, factors.psi)


def _squared_lengths(W: Array) -> Array:
    """Return u_i = w_iᵀw_i, (q,)."""
    return backend.namespace(W).sum(W * W, axis=0)


def _orthogonal(W: Array, like: Array) -> Array:
    """Turn W so that its columns are orthogonal, longest first, with the signs of `like`."""
    U, s, _ = algebra.svd(W)
    return U * s * _signs(U * like)


def _signs(products: Array) -> Array:
    """Return −1 where a column has a negative sum and 1 elsewhere, (q,)."""
    xp = backend.namespace(products)
    agree = xp.sum(products, axis=0)
    return xp.where(agree < 0, -xp.ones_like(agree), xp.ones_like(agree))


def fit_incomplete_relevance(
    fit: RelevanceFit,
    rng: np.random.Generator,
    tol: float = 1e-6,
    max_iter: int = 1000,
    watch: driver.Watch | None = None,
) -> tuple[Factors, driver.Record, float]:
    """Fit PPCA with re-estimated priors to rows with missing values.

    EM is not extrapolated here: the objective grows without bound where a direction vanishes, so
    a leap could switch one off that EM would keep. Where nothing is missing the result is that of
    `dualpca.gaussian.rules.fit_relevance`.

    Cost of a step: as in `dualpca.models.incomplete.fit_incomplete`.

    Returns
    -------
    factors : Factors
        W has orthogonal columns, longest first; one that is 0 if nothing is relevant.
    record : Record
        Of the penalised log-likelihood, since the last direction was switched off.
    loglikelihood : float
    """
    keeper, theta, done, record = fit.keeper(watch), fit.begin(rng), 0, None
    keeper.also = lambda: {"q": fit.q, "steps": fit.steps, "done": done}
    if keeper.state is not None:
        fit.q, fit.steps, done = (int(keeper.state[1][k]) for k in ("q", "steps", "done"))
    while fit.q and record is None:
        limits: dict[str, Any] = {"tol": tol, "max_iter": max(max_iter - done, 1)}
        limits |= {"accelerate": False, "keeper": keeper}
        try:
            theta, record = driver.maximize(fit.step, theta, **limits)
        except SwitchOff as event:
            (left,) = event.args
            fit.q, done, theta = int(left.W.shape[1]), fit.steps, fit.pack(left)
            keeper.state = None  # that was of more directions
    if record is None or not record.interrupted:
        keeper.done()
    record = record or driver.Record(converged=True)
    record.n_iter, factors = fit.steps, fit.unpack(theta) if fit.q else fit.without_directions()
    if fit.q and fit.noise is None and rules.has_vanished(float(factors.psi[0]), fit.unit):
        rules.refuse_no_noise(fit.q)
    value = float(fit.data.sums(factors).loglikelihood)
    record.add(value + rules.penalty(backend.to_numpy(_squared_lengths(factors.W)), fit.d))
    return factors, record, value


def _relevance_with_missing(
    fit: RelevanceFit, rng: np.random.Generator, request: BayesianRequest
) -> tuple[Directions, float]:
    """Find the directions that are relevant by EM with re-estimated priors."""
    started = fit.q
    factors, record, value = fit_incomplete_relevance(fit, rng, **request.limits)
    mu, (axes, s, _) = factors.mu, algebra.svd(factors.W)
    if not fit.q:
        axes = filled_axes(fit.data, 1, mu, rng)[0]
    none = backend.asarray(np.zeros(started - fit.q), mu)
    relevance = backend.namespace(mu).concat([s[: fit.q] ** 2 / fit.d, none])
    return Directions.of(mu, axes, s**2, float(factors.psi[0]), record, relevance), value


# --- Variational Bayesian PCA: q(Z) q(W) q(α) q(τ) q(μ), missing values or none ------------
#
# x_nj = w_jᵀz_n + μ_j + ε with z_n ~ N(0, I), w_j ~ N(0, diag(α)⁻¹), ε ~ N(0, τ⁻¹),
# μ_j ~ N(m_j, β⁻¹), α_k ~ Gamma(a₀, b₀), τ ~ Gamma(c₀, d₀) (Bishop 1999, "Variational principal
# components"). Every update is the exact maximum of the bound by one factor; a step ends with a
# change of latent basis (Luttinen & Ilin 2010), which is taken only where the bound does not fall.


@dataclass(frozen=True)
class Beliefs:
    """The posterior without q(Z), which follows from it."""

    W: Array  # (d, q), mean of the loadings
    S: Array  # (d, q, q), covariance of each row of W; (1, q, q) where all rows share it
    mu: Array  # (d,)
    v: Array  # (d,), variance of the mean
    rate: Array  # (q,), of q(α); its shape is a₀ + d/2
    tau_rate: float  # of q(τ); its shape is c₀ + (number of entries)/2

    @property
    def shared(self) -> int:
        """Number of rows of W behind each covariance."""
        return int(self.W.shape[0]) // int(self.S.shape[0])

    def second(self) -> Array:
        """Return Σ_j E[w_j w_jᵀ], (q, q)."""
        return self.W.T @ self.W + self.shared * backend.namespace(self.S).sum(self.S, axis=0)


class CompleteRows:
    """Rows without missing values: one product with the scatter per step, O(ndq); nothing d×d."""

    def __init__(self, operator: spiked.LinearOperator) -> None:
        self.operator, self.origin = operator, operator.frame.mean
        self.seen = backend.namespace(self.origin).full_like(self.origin, operator.n)
        self.unit, self.covariances = operator.trace / operator.n / operator.dim, 1

    def sums(self, at: Beliefs, tau: float) -> Sums:
        """Update q(Z); return what the other updates need, and the bound's share of the rows."""
        like, n, trace = self.origin, self.operator.n, self.operator.trace
        xp = backend.namespace(like)
        P = backend.identity(at.W.shape[1], like) + tau * at.second()
        C = xp.linalg.inv(P)
        root = math.sqrt(tau)  # loadings in units of the noise: WᵀAW is of fourth order
        A = tau * (self.operator @ (root * at.W))
        inner = root * (at.W.T @ A) @ C
        zz = n * C + C @ inner
        zz = (zz + zz.T) / 2
        value = n * self.operator.dim * (LOG_2PI - math.log(tau))
        value += n * float(xp.linalg.slogdet(P).logabsdet)
        value = -0.5 * (value + tau * trace - float(xp.linalg.trace(inner)))
        total, count, bound = (backend.asarray(x, like) for x in (np.array([trace]), n, value))
        xz, none = A @ C / root, 0 * like
        own = (zz[None, :, :], 0 * at.W, self.seen, xz, none, total)
        return Sums(*own, zz, 0 * zz[0, :], count, bound)

    def loglikelihood(self, factors: Factors) -> float:
        """Return Σ ln p(x) of a density with isotropic noise; O(ndq)."""
        return spiked.ppca_step(self.operator, factors.W, float(factors.psi[0]), self.operator.n)[2]


class IncompleteRows:
    """Rows with missing values: every feature and every row has a covariance of its own."""

    def __init__(self, fit: Fit) -> None:
        self.data, self.origin, self.seen, self.unit = fit.data, fit.origin, fit.seen, fit.unit
        self.covariances = fit.d

    def sums(self, at: Beliefs, tau: float) -> Sums:
        """Update q(Z); return what the other updates need, and the bound's share of the rows."""
        psi = backend.namespace(at.mu).full_like(at.mu, 1 / tau)
        return self.data.sums(Factors(at.W, at.mu, psi), at.S)

    def loglikelihood(self, factors: Factors) -> float:
        """Return Σ ln p of what the rows observed."""
        return float(self.data.sums(factors).loglikelihood)


VAGUE = 1e-3
"""a₀, c₀, and d₀, 1/β in units of the average variance: vague priors."""

LEAST_PRIOR = 1e-9
"""b₀ in units of the average variance: well below the σ²d/n that a switched-off column has."""

INNER, LONGEST = 3, 4.0**8
"""Times that q(W) and q(α) are updated in turn, and the longest leap of ln α tried after that."""


class Updates:
    """The coordinate updates and the bound, over either kind of rows."""

    def __init__(self, rows: CompleteRows | IncompleteRows, noise: float | None = None) -> None:
        self.rows, self.noise, self.d = rows, noise, int(rows.origin.shape[0])
        self.count = float(backend.namespace(rows.seen).sum(rows.seen))
        self.a, self.c = VAGUE + self.d / 2, VAGUE + self.count / 2
        self.b0, self.d0 = LEAST_PRIOR * rows.unit, VAGUE * rows.unit
        self.beta = VAGUE / rows.unit

    def tau(self, at: Beliefs) -> float:
        """Return E[τ], or the precision that was given."""
        return self.c / at.tau_rate if self.noise is None else 1 / self.noise

    def step(self, at: Beliefs) -> tuple[Beliefs, float]:
        """Update every factor once; return the result with the bound at `at` (best q(Z))."""
        tau = self.tau(at)
        sums = self.rows.sums(at, tau)
        value = self.bound(at, sums)
        new = self.update_mean(self.update_both(at, sums, tau), sums, tau, at.mu)
        new, sums = self.shift(new, sums, tau, at.mu)
        new = replace(new, tau_rate=self.d0 + 0.5 * self.misfit(new, sums, at.mu))
        return self.rotate(new, sums), value

    def update_loadings(self, at: Beliefs, sums: Sums, tau: float) -> Beliefs:
        """S_j = (diag E[α] + E[τ] Σ E[zzᵀ])⁻¹, w̄_j = S_j E[τ] Σ (x − μ̄) z̄."""
        xp = backend.namespace(at.W)
        eye = backend.identity(at.W.shape[1], at.W)
        S = xp.linalg.inv(self.a / at.rate * eye + tau * sums.zz)
        S = (S + xp.permute_dims(S, (0, 2, 1))) / 2
        return replace(at, W=(S @ (tau * sums.xz)[:, :, None])[:, :, 0], S=S)

    def update_alpha(self, at: Beliefs) -> Beliefs:
        """Rate b₀ + ½ Σ_j E[w_jk²]."""
        xp = backend.namespace(at.W)
        return replace(at, rate=self.b0 + 0.5 * xp.linalg.diagonal(at.second()))

    def update_both(self, at: Beliefs, sums: Sums, tau: float) -> Beliefs:
        """Update q(W) and q(α) in turn; then leap along ln α while the bound rises.

        A column about to be switched off gains the same in 1/E[w²] at every update, far too little.
        """
        xp, old = backend.namespace(at.W), at.rate

        def once(at: Beliefs) -> Beliefs:
            return self.update_alpha(self.update_loadings(at, sums, tau))

        def value(at: Beliefs) -> float:
            return self.loading_term(at) - 0.5 * tau * self.misfit(at, sums, at.mu)

        for _ in range(INNER):
            old, at = at.rate, once(at)
        best, length, slope = value(at), 4.0, xp.log(at.rate / old)
        while length <= LONGEST:
            moved = once(replace(at, rate=at.rate * xp.exp(length * slope)))
            gained = value(moved)
            if not gained > best:
                break
            at, best, length = moved, gained, 4 * length
        return at

    def update_mean(self, at: Beliefs, sums: Sums, tau: float, around: Array) -> Beliefs:
        """Precision β + E[τ] n_j; `sums` were taken around another mean."""
        xp, precision = backend.namespace(at.W), self.beta + tau * sums.n
        pull = self.beta * (self.rows.origin - around)
        pull = pull + tau * (sums.x - xp.sum(at.W * sums.z, axis=1))
        return replace(at, mu=around + pull / precision, v=1 / precision)

    def misfit(self, at: Beliefs, sums: Sums, around: Array) -> float:
        """Return Σ E[(x − wᵀz − μ)²] over the observed entries."""
        xp, step = backend.namespace(at.W), at.mu - around
        mean = sums.n * (step * step + at.v) - 2 * step * sums.x
        cross = sums.xz - step[:, None] * sums.z
        own = at.second()[None, :, :] if at.S.shape[0] == 1 else outer(at.W) + at.S
        second = xp.sum(own * sums.zz)
        return float(xp.sum(sums.xx) + xp.sum(mean) - 2 * xp.sum(at.W * cross) + second)

    def shift(self, at: Beliefs, sums: Sums, tau: float, around: Array) -> tuple[Beliefs, Sums]:
        """Move the latents' own mean ν into μ, where the bound does not fall."""
        if at.S.shape[0] == 1:  # complete rows: ν = 0
            return at, sums
        nu = sums.all_z / sums.all_n
        moved, back = replace(at, mu=at.mu + at.W @ nu), shifted(sums, nu)
        gain = 0.5 * tau * (self.misfit(at, sums, around) - self.misfit(moved, back, around))
        gain += self.mean_term(moved) - self.mean_term(at)
        gain += 0.5 * float(sums.all_n * (nu @ nu))
        return (moved, back) if gain >= 0 else (at, sums)

    def rotate(self, at: Beliefs, sums: Sums) -> Beliefs:
        """Whiten the latents and make Σ E[wwᵀ] diagonal, where the bound does not fall."""
        xp, n = backend.namespace(at.W), float(sums.all_n)
        try:
            L = xp.linalg.cholesky(sums.all_zz / n)
        except Exception as error:
            if not backend.is_linalg_error(error):
                raise
            return at
        _, Q = xp.linalg.eigh(L.T @ at.second() @ L)
        R = L @ xp.flip(Q, axis=1)
        moved = self.update_alpha(replace(at, W=at.W @ R, S=R.T @ at.S @ R))
        gain = self.loading_term(moved) - self.loading_term(at)
        gain += 0.5 * (float(xp.linalg.trace(sums.all_zz)) - n * R.shape[0])
        gain -= n * float(xp.sum(xp.log(xp.linalg.diagonal(L))))
        return moved if gain >= 0 else at

    # --- the bound -------------------------------------------------------------------------

    def bound(self, at: Beliefs, sums: Sums) -> float:
        """Return the lower bound on ln p(X), every term of it; `sums` hold the best q(Z)."""
        tau = self.tau(at)
        unsure = float(backend.namespace(at.v).sum(sums.n * at.v))
        value = float(sums.loglikelihood) - 0.5 * tau * unsure
        value += self.mean_term(at) + self.loading_term(at)
        if self.noise is None:
            logs = float(digamma(self.c)) - math.log(self.c)
            value += 0.5 * self.count * logs
            value -= _gamma_divergence(self.c, math.log(at.tau_rate), VAGUE, self.d0)
        return value

    def mean_term(self, at: Beliefs) -> float:
        """Return −KL(q(μ) ‖ p(μ))."""
        xp, off = backend.namespace(at.mu), at.mu - self.rows.origin
        terms = self.beta * (at.v + off * off) - 1 - xp.log(self.beta * at.v)
        return -0.5 * float(xp.sum(terms))

    def loading_term(self, at: Beliefs) -> float:
        """Return −E[KL(q(W) ‖ p(W | α))] − KL(q(α) ‖ p(α))."""
        xp, q = backend.namespace(at.W), int(at.W.shape[1])
        weighted = float(xp.sum(self.a / at.rate * xp.linalg.diagonal(at.second())))
        logdet = at.shared * float(xp.sum(xp.linalg.slogdet(at.S).logabsdet))
        log_rate = [math.log(float(b)) for b in backend.to_numpy(at.rate)]
        log_alpha = q * float(digamma(self.a)) - sum(log_rate)
        value = -0.5 * (weighted - self.d * q - logdet - self.d * log_alpha)
        return value - sum(_gamma_divergence(self.a, b, VAGUE, self.b0) for b in log_rate)


def _gamma_divergence(a: float, log_b: float, a0: float, b0: float) -> float:
    """Return KL(Gamma(a, b) ‖ Gamma(a₀, b₀)), shapes and rates."""
    logs = a0 * (log_b - math.log(b0)) + a * (b0 * math.exp(-log_b) - 1)
    return float((a - a0) * digamma(a) - gammaln(a) + gammaln(a0)) + logs


def fit_variational(
    rows: CompleteRows | IncompleteRows,
    W: Array,
    sigma2: float,
    axis: Array,
    request: BayesianRequest,
    keeper: driver.Keeper | None = None,
) -> tuple[Directions, float]:
    """Raise the bound from loadings W (d, q) and noise σ² until nothing is left to gain.

    Priors are vague, in the units of the data and centred on its mean, so that the fit moves with
    the data. `request.tol` is the estimated distance of the bound from its limit at which to stop,
    in nats per row. A column counts as kept where |w̄_k|² exceeds Σ_j var w_jk; `axis` (d, 1) is
    used if none is. Returns the directions and the log-likelihood. Error bars are not taken from
    q(W), which holds the latents apart and is too sure, but from the curvature of the likelihood
    (`laplace`), which integrates them out.

    Cost of a step: O(ndq) for complete rows; O(|X|q²/2) and O(q³) per pattern of missing values.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.operators import Primal
    >>> X = np.random.default_rng(0).normal(size=(200, 5)) * [3.0, 2.0, 1.0, 1.0, 1.0]
    >>> rows, eye = CompleteRows(Primal(X, None)), np.eye(5)
    >>> found, _ = fit_variational(rows, eye[:, :4], 1.0, eye[:, :1], BayesianRequest())
    >>> found.axes.spectrum.rank, bool(np.all(np.diff(found.record.loglikelihoods) > -1e-9))
    (2, True)
    """
    updates, xp = Updates(rows, request.noise), backend.namespace(W)
    own = sigma2 / float(xp.max(rows.seen)) * backend.identity(W.shape[1], W)
    v, rate = sigma2 / rows.seen, 0 * W[0, :] + rows.unit
    S = xp.stack([own] * rows.covariances)
    start = updates.update_alpha(Beliefs(W, S, rows.origin, v, rate, updates.c * sigma2))
    enough = request.tol * updates.count / updates.d

    def step(pair: tuple[Beliefs, Beliefs]) -> tuple[tuple[Beliefs, Beliefs], float]:
        after, value = updates.step(pair[1])  # the bound is that of the beliefs given
        return (pair[1], after), value

    (found, _), record = driver.iterate(
        step,
        lambda: ((start, start), driver.Record()),
        max_iter=request.max_iter,
        stop=lambda record: _is_close(record.loglikelihoods, enough),
        label="variational step",
        keeper=keeper,
        pack=_packed,
        unpack=lambda state: _unpacked(state, W),
    )
    unsure = found.shared * xp.sum(xp.linalg.diagonal(found.S), axis=0)
    is_kept = _squared_lengths(found.W) > unsure
    relevance, noise = xp.where(is_kept, found.rate / updates.a, 0 * rate), 1 / updates.tau(found)
    kept = np.flatnonzero(backend.to_numpy(is_kept))
    if kept.size:
        axis, s, _ = algebra.svd(backend.take(found.W, kept, axis=1))
    else:
        s = 0 * axis[0, :]
    at = Directions.of(found.mu, axis, s**2, noise, record, relevance)
    return at, rows.loglikelihood(at.axes.factors)


def _is_close(bounds: list[float], enough: float) -> bool:
    """Return True if the bound has twice been estimated to be within `enough` of its limit.

    The gains of a linear sequence shrink by a factor; what is left is the last gain over one minus
    that. (Parameters are no measure: columns that are off may turn among themselves for ever.)
    """
    if len(bounds) < 3:
        return False
    values = [-math.inf, *bounds[-4:]]

    def is_close(k: int) -> bool:
        gain, last = values[k] - values[k - 1], values[k - 1] - values[k - 2]
        shrink = min(gain / last, driver.SLOWEST_RATE) if 0 < last < math.inf else 0.0
        return gain / (1 - shrink) <= enough + driver.NEGLIGIBLE_FALL * abs(values[k])

    return is_close(-2) and is_close(-1)


ARRAYS = ("W", "S", "mu", "v", "rate")
"""The arrays of `Beliefs`, in a checkpoint."""


def _packed(pair: tuple[Beliefs, Beliefs]) -> driver.State:
    """Return beliefs and those after them as arrays and numbers."""
    every = list(enumerate(pair))
    arrays = {f"{a}{k}": backend.to_numpy(getattr(at, a)) for k, at in every for a in ARRAYS}
    return arrays, {f"tau_rate{k}": float(at.tau_rate) for k, at in every}


def _unpacked(state: driver.State, like: Array) -> tuple[Beliefs, Beliefs]:
    """Return the beliefs of a state."""
    arrays, numbers = state

    def beliefs(k: int) -> Beliefs:
        parts = {name: backend.asarray(arrays[f"{name}{k}"], like) for name in ARRAYS}
        return Beliefs(**parts, tau_rate=float(numbers[f"tau_rate{k}"]))

    return beliefs(0), beliefs(1)
