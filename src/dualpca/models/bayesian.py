"""Bayesian PCA: variational, or by automatic relevance determination; missing values or none.

`BayesianModel` is the fitted model, `fit_bayesian` makes one of a table: by relevance, from the
spectrum of complete rows or by EM where values are missing, or by raising a variational bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.special import digamma, gammaln

from dualpca.arrays import Array, algebra, backend
from dualpca.data import Columns, Table
from dualpca.errors import DegenerateError, SelectionWarning, expected, warn
from dualpca.gaussian import (
    LEAST_NOISE,
    LOG_2PI,
    ROUNDING,
    Factors,
    LoadingPosterior,
    Reference,
    SpikedGaussian,
    Sums,
    check_request,
    fit_relevance,
    has_vanished,
    incomplete_laplace,
    information,
    is_count,
    laplace,
    loglikelihood,
    maximum_likelihood,
    penalty,
    refuse_no_noise,
)
from dualpca.models import driver
from dualpca.models.driver import History, Keeper, Record, State, Watch, iterate, maximize
from dualpca.models.incomplete import Fit, filled_axes, m_step
from dualpca.models.spiked import LinearOperator, SpikedModel, check_solver, spiked_model
from dualpca.models.streaming import shifted
from dualpca.operators import Spectrum, deterministic_signs, linear
from dualpca.solvers import solve

# --- The model -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BayesianModel(SpikedModel):
    """A spiked Gaussian, what became of the directions it started from, and how sure W is."""

    relevance: Annotated[Array, "p"]  # 1/α of the directions started from; 0 for those off
    loading_posterior: LoadingPosterior
    bounds: tuple[float, ...]  # at every step: penalised log-likelihood, or variational bound

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
class BayesianRequest:
    """What `fit_bayesian` needs to know, checked."""

    n_components: int | None = None  # to start from
    method: str = "ard"  # or 'variational'
    noise: float | None = None  # σ², None to estimate it
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 1000
    rng: Any = 0  # seed or generator, for the start of EM and of block Krylov
    watch: Watch | None = None

    @property
    def start(self) -> np.random.Generator:
        """The generator that starts the iterations."""
        return np.random.default_rng(self.rng)

    @property
    def limits(self) -> dict[str, Any]:
        """The noise, if it is given, and when to stop."""
        return {"noise": self.noise, "tol": self.tol, "max_iter": self.max_iter}


def fit_bayesian(table: Table, request: BayesianRequest) -> BayesianModel:
    """Fit Bayesian PCA (Bishop 1999), with missing values or without."""
    check_solver(table, request.solver)
    found = linear(table, missing=True)
    if not isinstance(found, Columns):
        return bayesian_of_operator(found.operator, found.n_rows, table.like, request)
    q = start_count(request, found.weight, found.used, table.d)
    by = _variational_with_missing if request.method == "variational" else _relevance_with_missing
    return _model(by(table, found, q, request), found.used, found.effective_rows, table.like)


def bayesian_of_operator(
    operator: LinearOperator, count: int, like: Array, request: BayesianRequest
) -> BayesianModel:
    """Fit Bayesian PCA to an operator over the features, which stands for `count` rows."""
    q = start_count(request, operator.n, count, operator.dim)
    spectrum = solve(operator, q, request.solver, 0.0, request.start)
    spectrum = _leaving_noise(spectrum, request)
    by = _variational if request.method == "variational" else _relevance
    return _model(by(operator, spectrum, request), count, operator.n, like)


def start_count(request: BayesianRequest, n: float, count: int, d: int) -> int:
    """Return how many directions to start from: given, or all that leave the noise visible.

    With as many directions as rows nothing is left to tell noise by, and EM keeps them all; half
    as many as rows (n, the sum of their weights; `count` of them are distinct) are enough.
    """
    wanted = request.n_components
    if d == 1:
        raise ValueError(
            "BayesianPCA tells signal from noise by comparing directions, so it needs two features "
            "or more, got n_features=1. Use the variance of the feature."
        )
    if wanted is None:
        return max(min(d - 1, int(n / 2), count - 1), 1)
    if not is_count(wanted):
        raise ValueError(expected("n_components", "an int or None", wanted))
    check_request(wanted, count, d, request.solver)
    if not 1 <= wanted < d:
        what = f"between 1 and n_features - 1 = {d - 1}, so that noise has a direction"
        raise ValueError(expected("n_components", what, wanted))
    return int(wanted)


class Directions(NamedTuple):
    """Where a fit ended: principal axes and their lengths, and how it came there."""

    mean: Array  # (d,)
    spectrum: Spectrum  # of the model: its values are variances, its trace the total variance
    noise: float
    record: Record  # of the penalised log-likelihood, or of the bound
    relevance: Array  # (q started,)

    @classmethod
    def of(
        cls,
        mean: Array,
        axes: Array,
        u: Any,
        noise: float,
        total: float,
        record: Record,
        relevance: Array,
    ) -> Directions:
        """Return those of orthonormal axes (d, q) with squared lengths u (q,), longest first."""
        values = backend.asarray(u, axes) + noise
        spectrum = Spectrum(values, deterministic_signs(axes), total, int(axes.shape[0]))
        return cls(mean, spectrum, noise, record, relevance)

    @property
    def gaussian(self) -> SpikedGaussian:
        """The density along and off the axes."""
        return SpikedGaussian(self.spectrum.values, self.noise, self.spectrum.dim)

    @property
    def factors(self) -> Factors:
        """The density as x = Wz + μ + ε, W on its principal axes."""
        V = self.spectrum.vectors
        psi = backend.namespace(V).full_like(V[:, 0], self.noise)
        return Factors(V * self.gaussian.spread, self.mean, psi)


Fitted = tuple[Directions, LoadingPosterior, float]
"""Directions, how sure W is, and the log-likelihood."""


def _model(found: Fitted, count: int, n: float, like: Array) -> BayesianModel:
    """Return the model, in the dtype of `like`, of `count` rows that stand for n."""
    at, posterior, value = found
    record, relevance = at.record, backend.cast_like(at.relevance, like)
    history = History((value,), record.n_iter, record.converged, record.interrupted)
    args = (at.mean, at.spectrum, at.gaussian, like, count, Reference(n, n))
    model = BayesianModel(
        **vars(spiked_model(*args, history=history)),
        relevance=relevance,
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


# --- Complete rows -------------------------------------------------------------------------------


def _leaving_noise(spectrum: Spectrum, request: BayesianRequest) -> Spectrum:
    """Return the directions above rounding, one fewer if they would explain everything."""
    if spectrum.trace <= 0:
        raise DegenerateError("every feature is constant: there is nothing to model.")
    values = backend.to_numpy(spectrum.values)
    positive = int((values > ROUNDING * spectrum.trace).sum())
    left = spectrum.trace - float(values[:positive].sum()) > ROUNDING * spectrum.trace
    if request.n_components is None and not left and request.noise is None:
        positive -= 1
    if positive < 1:
        raise DegenerateError(
            "the rows lie on a line: one direction explains them without noise. "
            "Give noise_variance > 0, or use PCA."
        )
    return spectrum.head(positive)


def _relevance(operator: LinearOperator, spectrum: Spectrum, request: BayesianRequest) -> Fitted:
    """Find the directions that are relevant from the spectrum alone."""
    n, lengths = operator.n, fit_relevance(spectrum, operator.n, request.noise)
    value = loglikelihood(spectrum, n, lengths)
    record = Record([value + penalty(lengths.u, operator.dim)], max(lengths.n_iter, 1), True)
    kept = max(int(lengths.kept.sum()), 1)  # the leading ones: ℓ decides
    axes, total = spectrum.vectors[:, :kept], operator.trace / n
    relevance = backend.asarray(lengths.u / operator.dim, axes)
    along = (axes, lengths.u[:kept], lengths.sigma2, total)
    at = Directions.of(operator.frame.mean, *along, record, relevance)
    return at, laplace(at.factors, at.gaussian, n), value


def _variational(operator: LinearOperator, spectrum: Spectrum, request: BayesianRequest) -> Fitted:
    """Raise the bound from the fit of maximum likelihood."""
    n, keeper = operator.n, None
    start = maximum_likelihood(spectrum, n, spectrum.rank)
    sigma2 = start.noise if request.noise is None else request.noise
    if sigma2 <= 0:
        refuse_no_noise(spectrum.rank)
    W = spectrum.vectors * SpikedGaussian(start.values, 0.99 * sigma2, start.dim).spread
    rows = CompleteRows(operator)
    if request.watch is not None:
        keeper = request.watch.over(n, operator.frame.mean, operator.diag() / n)
    best = fit_variational(rows, W, sigma2, **request.limits, keeper=keeper)
    at, posterior = _principal(best, spectrum.vectors[:, :1], operator.trace / n)
    return at, posterior, rows.loglikelihood(at.factors)


# --- Missing values ------------------------------------------------------------------------------


def _relevance_with_missing(
    table: Table, columns: Columns, q: int, request: BayesianRequest
) -> Fitted:
    """Find the directions that are relevant by EM with re-estimated priors."""
    rng = request.start
    fit = RelevanceFit(table, q, request.noise, columns=columns)
    best = fit_incomplete_relevance(fit, rng, request.tol, request.max_iter, request.watch)
    W, mu, sigma2 = best.factors.W, best.factors.mu, float(best.factors.psi[0])
    xp, kept = backend.namespace(mu), int(W.shape[1])
    if kept:
        axes, s, _ = algebra.svd(W)
        u = s**2
    else:
        axes, u = filled_axes(fit.data, 1, mu, rng)[0], backend.asarray(np.zeros(1), mu)
    total = float(xp.sum(u)) + fit.d * sigma2
    relevance = xp.concat([u[:kept] / fit.d, backend.asarray(np.zeros(q - kept), mu)])
    at = Directions.of(mu, axes, u, sigma2, total, best.record, relevance)
    posterior = incomplete_laplace(at.factors, at.gaussian, information(at.factors, table))
    return at, posterior, best.loglikelihood


def _variational_with_missing(
    table: Table, columns: Columns, q: int, request: BayesianRequest
) -> Fitted:
    """Raise the bound from the span of the rows filled with means."""
    rng, keeper = request.start, None
    fit = RelevanceFit(table, q, request.noise, columns=columns)
    first, xp = fit.unpack(fit.begin(rng)), backend.namespace(fit.origin)
    if request.watch is not None:
        keeper = request.watch.over(fit.data.n, fit.origin, fit.variance)
    rows, sigma2 = IncompleteRows(fit), float(first.psi[0])
    best = fit_variational(rows, first.W, sigma2, **request.limits, keeper=keeper)
    axis = filled_axes(fit.data, 1, fit.origin, rng)[0]
    kept = xp.astype(best.kept, xp.float64)
    total = float(xp.sum(kept * best.beliefs.W**2)) + fit.d * best.noise
    at, posterior = _principal(best, axis, total)
    return at, posterior, float(fit.sums(at.factors).loglikelihood)


def _principal(best: Variational, axis: Array, total: float) -> tuple[Directions, LoadingPosterior]:
    """Rotate the columns kept to principal axes; `axis` stands in where none is."""
    xp, mu, noise = backend.namespace(axis), best.beliefs.mu, best.noise
    kept = np.flatnonzero(backend.to_numpy(best.kept))
    relevance = xp.where(best.kept, best.relevance, 0 * best.relevance)
    if kept.size == 0:
        none = 0 * axis[:1, :1]
        at = Directions.of(mu, axis, np.zeros(1), noise, total, best.record, relevance)
        return at, LoadingPosterior(0 * axis, none[None, :, :], none, none[0, :], False)
    U, s, Vt = algebra.svd(backend.take(best.beliefs.W, kept, axis=1))
    at = Directions.of(mu, U, s**2, noise, total, best.record, relevance)
    S = backend.take(backend.take(best.beliefs.S, kept, axis=1), kept, axis=2)
    same = xp.where(xp.sum(U * at.spectrum.vectors, axis=0) < 0, -xp.ones_like(s), 1 + 0 * s)
    turn, none = Vt.T * same, 0 * Vt
    return at, LoadingPosterior(at.factors.W, turn.T @ S @ turn, none, none[0, :], False)


# --- Automatic relevance determination where values are missing ----------------------------------

OFF = 1e-3
"""A direction is off once its squared length is below this share of σ²d/n: EM cannot return."""


class Relevant(NamedTuple):
    """What is left of the directions that a fit started from."""

    factors: Factors  # W with orthogonal columns, longest first
    record: Record  # of the penalised log-likelihood, since the last direction was switched off
    loglikelihood: float


class SwitchOff(Exception):
    """Carries the model on when some of its directions have become irrelevant."""

    def __init__(self, factors: Factors) -> None:
        super().__init__()
        self.factors = factors


class RelevanceFit(Fit):
    """EM with the prior w_i ~ N(0, α_i⁻¹I) and α_i = d/w_iᵀw_i, on the same θ as without it.

    Turning the columns of W so that they are orthogonal leaves the likelihood alone and, by
    Hadamard's inequality, makes Π w_iᵀw_i as small as it gets: every step ends with that.
    """

    steps = 0

    def lengths(self, factors: Factors) -> Array:
        """Return u_i = w_iᵀw_i, (q,)."""
        return backend.namespace(factors.W).sum(factors.W * factors.W, axis=0)

    def step(self, theta: Array) -> tuple[Array, float]:
        """Take one EM step; return it with the penalised log-likelihood of θ."""
        factors = self.unpack(theta)
        sums, u = self.expectations(factors), self.lengths(factors)
        self.steps += 1
        value = float(sums.loglikelihood) + penalty(backend.to_numpy(u), self.d)
        W, mu, left = m_step(sums, factors, factors.psi[0] * self.d / u)
        new = Factors(_orthogonal(W, factors.W), mu, self._noise(left, sums.n))
        self.refuse_irrelevant(new, float(sums.all_n))
        return self.pack(new), value

    def refuse_irrelevant(self, factors: Factors, n: float) -> None:
        """Raise with the directions that are left, if some have vanished beside the noise."""
        u = self.lengths(factors)
        kept = np.flatnonzero(backend.to_numpy(u > OFF * float(factors.psi[0]) * self.d / n))
        if kept.size < u.shape[0]:
            left = backend.take(factors.W, kept, axis=1)
            raise SwitchOff(Factors(left, factors.mu, factors.psi))

    def begin(self, rng: np.random.Generator, psi: Array | None = None) -> Array:
        """Return θ to start from: maximum likelihood of the rows filled with means, or noise ψ."""
        xp, q = backend.namespace(self.origin), self.q
        V, ell = filled_axes(self.data, q, self.origin, rng)
        share = float(self.data.n) / float(xp.max(self.seen))
        left = float(xp.sum(self.variance * self.seen) / xp.max(self.seen)) - float(
            xp.sum(ell) * share
        )
        sigma2 = left / (self.d - q) if self.noise is None else self.noise
        sigma2 = sigma2 if psi is None else float(xp.mean(psi))
        sigma2 = max(sigma2, 10 * LEAST_NOISE * self.unit)
        excess = ell * share - sigma2
        u = xp.where(excess > 0.01 * sigma2, excess, 0 * excess + 0.01 * sigma2)
        psi = xp.full_like(self.variance, sigma2)
        return self.pack(Factors(V * xp.sqrt(u), self.origin, psi))


def _orthogonal(W: Array, like: Array) -> Array:
    """Turn W so that its columns are orthogonal, longest first, with the signs of `like`."""
    xp = backend.namespace(W)
    U, s, _ = algebra.svd(W)
    W = U * s
    agree = xp.sum(W * like, axis=0)
    return W * xp.where(agree < 0, -xp.ones_like(agree), xp.ones_like(agree))


def fit_incomplete_relevance(
    fit: RelevanceFit,
    rng: np.random.Generator,
    tol: float = 1e-6,
    max_iter: int = 1000,
    watch: Watch | None = None,
) -> Relevant:
    """Fit PPCA with re-estimated priors to rows with missing values.

    EM is not extrapolated here: the objective grows without bound where a direction vanishes, so
    a leap could switch one off that EM would keep. Where nothing is missing the result is that of
    `dualpca.gaussian.rules.fit_relevance`. W has no columns left if nothing is relevant.

    Cost of a step: as in `dualpca.models.incomplete.fit_incomplete`.
    """
    keeper = None if watch is None else watch.over(fit.data.n, fit.origin, fit.variance)
    found = _climb_relevance(fit, fit.begin(rng), keeper, tol, max_iter)
    if keeper is not None and not (found and found[1].interrupted):
        keeper.done()
    if found is None:
        return _isotropic(fit)
    factors, record = found
    if fit.noise is None and has_vanished(float(factors.psi[0]), fit.unit):
        refuse_no_noise(fit.q)
    value = float(fit.data.sums(factors).loglikelihood)
    record.add(value + penalty(backend.to_numpy(fit.lengths(factors)), fit.d))
    return Relevant(factors, record, value)


def _climb_relevance(
    fit: RelevanceFit, theta: Array, keeper: Keeper | None, tol: float, max_iter: int
) -> tuple[Factors, Record] | None:
    """Step until nothing is switched off any more; None if nothing is left."""
    done = 0
    if keeper is not None:
        keeper.also = lambda: {"q": fit.q, "steps": fit.steps, "done": done}
        if keeper.state is not None:
            fit.q, fit.steps, done = (int(keeper.state[1][k]) for k in ("q", "steps", "done"))
    while fit.q:
        most = max(max_iter - done, 1)
        try:
            theta, record = maximize(
                fit.step, theta, tol=tol, max_iter=most, accelerate=False, keeper=keeper
            )
        except SwitchOff as event:
            fit.q, done = int(event.factors.W.shape[1]), fit.steps
            theta = fit.pack(event.factors)
            if keeper is not None:
                keeper.state = None  # that was of more directions
        else:
            record.n_iter = fit.steps
            return fit.unpack(theta), record
    return None


def _isotropic(fit: RelevanceFit) -> Relevant:
    """Return the model without directions: each feature's mean, one noise."""
    xp = backend.namespace(fit.origin)
    sigma2 = float(xp.sum(fit.seen * fit.variance) / xp.sum(fit.seen))
    sigma2 = sigma2 if fit.noise is None else fit.noise
    none = backend.asarray(np.zeros((fit.d, 0)), fit.origin)
    found = Factors(none, fit.origin, xp.full_like(fit.variance, sigma2))
    quadratic = float(xp.sum(fit.seen * fit.variance)) / sigma2
    count = float(xp.sum(fit.seen))
    value = -0.5 * (count * float(np.log(2 * np.pi * sigma2)) + quadratic)
    return Relevant(found, Record([value], fit.steps, True), value)


# --- Variational Bayesian PCA: q(Z) q(W) q(α) q(τ) q(μ), missing values or none ------------
#
# x_nj = w_jᵀz_n + μ_j + ε with z_n ~ N(0, I), w_j ~ N(0, diag(α)⁻¹), ε ~ N(0, τ⁻¹),
# μ_j ~ N(m_j, β⁻¹), α_k ~ Gamma(a₀, b₀), τ ~ Gamma(c₀, d₀) (Bishop 1999, "Variational principal
# components"). Every update is the exact maximum of the bound by one factor; a step ends with a
# change of latent basis (Luttinen & Ilin 2010), which is taken only where the bound does not fall.


@dataclass(frozen=True)
class Beliefs:
    """The posterior, but for q(Z), which follows from it."""

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

    def __init__(self, operator: LinearOperator) -> None:
        self.operator, self.like = operator, operator.like
        n, d = operator.n, operator.dim
        self.origin = operator.frame.mean
        self.seen = n * backend.namespace(self.origin).ones_like(self.origin)
        self.unit, self.covariances = operator.trace / n / d, 1

    def sums(self, at: Beliefs, tau: float) -> Sums:
        """Update q(Z); return what the other updates need, and the bound's share of the rows."""
        xp, n, d = backend.namespace(self.like), self.operator.n, self.operator.dim
        eye = backend.asarray(np.eye(at.W.shape[1]), self.like)
        P = eye + tau * at.second()
        C = xp.linalg.inv(P)
        root = math.sqrt(tau)  # loadings in units of the noise: WᵀAW is of fourth order
        A = tau * (self.operator @ (root * at.W))
        inner = root * (at.W.T @ A) @ C
        zz = n * C + C @ inner
        zz = (zz + zz.T) / 2
        trace = self.operator.trace
        value = n * d * (LOG_2PI - math.log(tau)) + n * float(xp.linalg.slogdet(P).logabsdet)
        value = -0.5 * (value + tau * trace - float(xp.linalg.trace(inner)))
        zero, total = 0 * self.origin, backend.asarray(np.array([trace]), self.like)
        no_z, count = 0 * zz[0, :], backend.asarray(n, self.like)
        bound = backend.asarray(value, self.like)
        parts = (zz[None, :, :], 0 * at.W, self.seen, A @ C / root, zero, total, zz, no_z, count)
        return Sums(*parts, bound)

    def loglikelihood(self, factors: Factors) -> float:
        """Return Σ ln p(x) of a density with isotropic noise, by Woodbury in q. O(ndq).

        Loadings count in units of σ, so that nothing overflows that need not.
        """
        xp, n, d = backend.namespace(self.like), self.operator.n, self.operator.dim
        sigma2 = float(factors.psi[0])
        B = factors.W / math.sqrt(sigma2)
        G = B.T @ B + backend.asarray(np.eye(B.shape[1]), B)
        inner = B.T @ ((self.operator @ B) / sigma2)
        fitted = self.operator.trace / sigma2 - float(xp.linalg.trace(xp.linalg.solve(G, inner)))
        logdet = d * math.log(sigma2) + float(xp.linalg.slogdet(G).logabsdet)
        return -0.5 * (n * d * LOG_2PI + n * logdet + fitted)


class IncompleteRows:
    """Rows with missing values: every feature and every row has a covariance of its own."""

    def __init__(self, fit: Fit) -> None:
        self.data, self.like = fit.data, fit.origin
        self.origin, self.seen, self.unit = fit.origin, fit.seen, fit.unit
        self.covariances = fit.d

    def sums(self, at: Beliefs, tau: float) -> Sums:
        """Update q(Z); return what the other updates need, and the bound's share of the rows."""
        psi = backend.namespace(at.mu).full_like(at.mu, 1 / tau)
        return self.data.sums(Factors(at.W, at.mu, psi), at.S)


VAGUE = 1e-3
"""a₀, c₀, and d₀, 1/β in units of the average variance: hardly an opinion."""

LEAST_PRIOR = 1e-9
"""b₀ in units of the average variance: well below the σ²d/n that a switched-off column has."""

INNER, LONGEST = 3, 4.0**8
"""Times that q(W) and q(α) are updated in turn, and the longest leap of ln α tried after that."""


class Updates:
    """The coordinate updates and the bound, over either kind of rows."""

    def __init__(self, rows: CompleteRows | IncompleteRows, noise: float | None = None) -> None:
        xp = backend.namespace(rows.like)
        self.rows, self.noise, self.d = rows, noise, int(rows.origin.shape[0])
        self.count = float(xp.sum(rows.seen))
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
        eye = backend.asarray(np.eye(at.W.shape[1]), at.W)
        S = xp.linalg.inv(self.a / at.rate * eye + tau * sums.zz)
        S = (S + xp.permute_dims(S, (0, 2, 1))) / 2
        return replace(at, W=(S @ (tau * sums.xz)[:, :, None])[:, :, 0], S=S)

    def update_alpha(self, at: Beliefs) -> Beliefs:
        """Rate b₀ + ½ Σ_j E[w_jk²]."""
        xp = backend.namespace(at.W)
        return replace(at, rate=self.b0 + 0.5 * xp.linalg.diagonal(at.second()))

    def update_both(self, at: Beliefs, sums: Sums, tau: float) -> Beliefs:
        """Update q(W) and q(α) in turn; then leap along ln α while the bound rises.

        A column on its way out gains the same in 1/E[w²] at every update, far too little.
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
        precision = self.beta + tau * sums.n
        xp = backend.namespace(at.W)
        pull = self.beta * (self.rows.origin - around)
        pull = pull + tau * (sums.x - xp.sum(at.W * sums.z, axis=1))
        return replace(at, mu=around + pull / precision, v=1 / precision)

    def misfit(self, at: Beliefs, sums: Sums, around: Array) -> float:
        """Return Σ E[(x − wᵀz − μ)²] over the observed entries."""
        xp, step = backend.namespace(at.W), at.mu - around
        mean = sums.n * (step * step + at.v) - 2 * step * sums.x
        cross = sums.xz - step[:, None] * sums.z
        if at.S.shape[0] == 1:
            second = xp.sum(at.second() * sums.zz[0, :, :])
        else:
            second = xp.sum((at.W[:, :, None] * at.W[:, None, :] + at.S) * sums.zz)
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


class Variational(NamedTuple):
    """A variational posterior and how it was found; the record is of the bound."""

    beliefs: Beliefs
    relevance: Array  # (q,), 1/E[α]
    kept: Array  # (q,), True where the mean of a column exceeds its uncertainty
    noise: float  # 1/E[τ]
    record: Record


def fit_variational(
    rows: CompleteRows | IncompleteRows,
    W: Array,
    sigma2: float,
    *,
    noise: float | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    keeper: Keeper | None = None,
) -> Variational:
    """Raise the bound from loadings W (d, q) and noise σ² until nothing is left to gain.

    Priors are vague, in the units of the data and centred on its mean, so that the fit moves with
    the data. `tol` is the estimated distance of the bound from its limit at which to stop, in
    nats per row. A column counts as kept where |w̄_k|² exceeds Σ_j var w_jk.

    Cost of a step: O(ndq) for complete rows; O(|X|q²/2) and O(q³) per pattern of missing values.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.operators import Primal
    >>> X = np.random.default_rng(0).normal(size=(200, 5)) * [3.0, 2.0, 1.0, 1.0, 1.0]
    >>> found = fit_variational(CompleteRows(Primal(X, None)), np.eye(5)[:, :4], 1.0)
    >>> int(found.kept.sum()), bool(np.all(np.diff(found.record.loglikelihoods) > -1e-9))
    (2, True)
    """
    updates, q = Updates(rows, noise), int(W.shape[1])
    xp = backend.namespace(W)
    eye = backend.asarray(np.eye(q), W)
    S = xp.stack([sigma2 / float(xp.max(rows.seen)) * eye] * rows.covariances)
    v, rate = sigma2 / rows.seen, 0 * W[0, :] + rows.unit
    start = updates.update_alpha(Beliefs(W, S, rows.origin, v, rate, updates.c * sigma2))
    enough = tol * updates.count / updates.d

    def step(pair: tuple[Beliefs, Beliefs]) -> tuple[tuple[Beliefs, Beliefs], float]:
        after, value = updates.step(pair[1])  # the bound is that of the beliefs given
        return (pair[1], after), value

    (found, _), record = iterate(
        step,
        lambda: ((start, start), Record()),
        max_iter=max_iter,
        stop=lambda record: _is_close(record.loglikelihoods, enough),
        label="variational step",
        keeper=keeper,
        pack=_packed,
        unpack=lambda state: _unpacked(state, W),
    )
    own = found.shared * xp.sum(xp.linalg.diagonal(found.S), axis=0)
    kept = xp.sum(found.W * found.W, axis=0) > own
    return Variational(found, found.rate / updates.a, kept, 1 / updates.tau(found), record)


def _is_close(bounds: list[float], enough: float) -> bool:
    """Return True if the bound has twice been estimated to lie within `enough` of its limit.

    The gains of a linear sequence shrink by a factor; what is left is the last gain over one minus
    that. (Parameters are no measure: columns that are off may turn among themselves for ever.)
    """
    if len(bounds) < 3:
        return False
    values = [-math.inf, *bounds[-4:]]

    def is_close(k: int) -> bool:
        gain, last = values[k] - values[k - 1], values[k - 1] - values[k - 2]
        shrink = min(gain / last, driver.SLOWEST) if 0 < last < math.inf else 0.0
        return gain / (1 - shrink) <= enough + driver.ROUNDING * abs(values[k])

    return is_close(-2) and is_close(-1)


ARRAYS = ("W", "S", "mu", "v", "rate")
"""The arrays of `Beliefs`, in a checkpoint."""


def _packed(pair: tuple[Beliefs, Beliefs]) -> State:
    """Return beliefs and those after them as arrays and numbers."""
    arrays: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    for k, at in enumerate(pair):
        arrays |= {f"{name}{k}": backend.to_numpy(getattr(at, name)) for name in ARRAYS}
        numbers[f"tau_rate{k}"] = float(at.tau_rate)
    return arrays, numbers


def _unpacked(state: State, like: Array) -> tuple[Beliefs, Beliefs]:
    """Return the beliefs of a state."""
    arrays, numbers = state

    def beliefs(k: int) -> Beliefs:
        parts = {name: backend.asarray(arrays[f"{name}{k}"], like) for name in ARRAYS}
        return Beliefs(**parts, tau_rate=float(numbers[f"tau_rate{k}"]))

    return beliefs(0), beliefs(1)
