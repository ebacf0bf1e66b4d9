"""Factor analysis: x = Wz + μ + ε with a noise of its own in every feature.

`FactorModel` is the fitted model, `fit_factor` fits one to a table.

Complete rows: given the noise ψ the best loadings are the leading eigenvectors of
Ψ^{-1/2}SΨ^{-1/2}, so the likelihood is a function of d numbers: Newton's method on that (Jöreskog
1967), quasi-Newton for more than 64 features or too many factors, takes tens of steps where EM
takes thousands, and bounds prevent Heywood cases. Where (d, d) is too large, EM on the operator
does it (Rubin & Thayer 1982). Rows with missing values are fitted by `incomplete`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend, cached_property
from dualpca.data import Columns, Host, Table, has_missing, observed_weights
from dualpca.errors import DegenerateError, HeywoodWarning, expected, warn
from dualpca.gaussian import (
    LOG_2PI,
    PARALLEL,
    FactorJudge,
    Factors,
    Judge,
    ParameterDraws,
    ParameterErrors,
    Reference,
    Unseen,
    completed,
    free_factors,
    noisy_reference,
    observed,
    rotate,
    rules,
)
from dualpca.models import driver, spiked
from dualpca.models.incomplete import Fit, fit_incomplete, some_of
from dualpca.operators import LinearTable, Primal, linear
from dualpca.solvers import solve

# --- The model -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class FactorModel:
    """N(μ, WWᵀ + diag ψ) over the features.

    Arrays have the dtype of the training rows; everything is computed in float64. Only
    `covariance` and `precision` form a d×d matrix.
    """

    mean: Annotated[Array, "d"]
    components: Annotated[Array, "q d"]  # Wᵀ
    noise: Annotated[Array, "d", ">= 0"]  # ψ
    n_rows: Annotated[int, ">= 0"]
    heywood: tuple[
        Annotated[int, ">= 0, < d"], ...
    ] = ()  # features whose noise is held at its bound
    reference: Reference | None = None  # of the training rows, for control limits
    history: driver.History | None = None

    def n_parameters(self) -> int:
        """Return the number of free parameters, mean included: dq − q(q − 1)/2 + 2d."""
        q, d = map(int, self.components.shape)
        return free_factors(q, d) + d

    @property
    def loadings(self) -> Array:
        """W, (d, q)."""
        return self.components.T

    @property
    def n_components(self) -> int:
        """The number of factors, q."""
        return int(self.components.shape[0])

    @property
    def factors(self) -> Factors:
        """The density in float64."""
        return Factors(*map(backend.working, (self.components.T, self.mean, self.noise)))

    @cached_property
    def regression(self) -> Regression | None:
        """What answers about complete rows need; None where a feature has no noise."""
        return Regression.of(self.factors)

    def scores(self, rows: Array) -> Array:
        """Return the posterior mean of the factors given each row, (n, q)."""
        found = None if self.regression is None else self.regression.scores(rows)
        return self.posterior(rows)[0] if found is None else found

    @cached_property
    def errors(self) -> ParameterDraws | None:
        """What other parameters the rows leave possible; None where that is not known."""
        noiseless = not bool(backend.namespace(self.noise).all(self.noise > 0))
        if self.reference is None or noiseless or not self.n_components:
            return None
        return ParameterDraws.of(self.factors, self.reference)

    def posterior(self, rows: Array) -> tuple[Array, Array]:
        """Return mean (n, q) and covariance (n, q, q) of the factors given each row."""
        found = observed.all_latents(self.factors, rows)
        return found.mean, found.covariance

    def latents(
        self, rows: Array, errors: ParameterDraws | ParameterErrors | None = None
    ) -> tuple[Array, Array]:
        """Return the same, with the errors of the parameters if they are given."""
        mean, covariance = self.posterior(rows)
        return mean, covariance if errors is None else errors.latent_covariance(rows)

    def tails(self, rows: Array, covariance: Array) -> float:
        """Return what tails add to covariances given the rows: none to those of a Gaussian."""
        return 0.0

    def lifted(self, latents: Array) -> Array:
        """Return the mean of the rows given factors, Wz + μ, (n, d)."""
        factors = self.factors
        return latents @ factors.W.T + factors.mu

    def log_density(self, rows: Array, *, missing: bool) -> Array:
        """Return ln p of what every row observed, (n,)."""
        found = None if self.regression is None else self.regression.log_density(rows)
        return observed.all_latents(self.factors, rows).log_density if found is None else found

    def judge_for(self, rows: Array | None = None) -> Judge:
        """Return what judges rows by T² and SPE."""
        return FactorJudge(self.factors, self.reference or Reference(self.n_rows, self.n_rows))

    def covariance(self) -> Array:
        """Return WWᵀ + diag ψ, (d, d)."""
        W, psi = self.factors.W, self.factors.psi
        return backend.cast_like(W @ W.T + psi * backend.identity(W.shape[0], W), self.components)

    def precision(self) -> Array:
        """Return the inverse covariance, (d, d), by Woodbury in q.

        Features of almost no noise would cost it digits: with some the covariance is inverted.
        """
        W, psi = self.factors.W, self.factors.psi
        if self.heywood:
            covariance = W @ W.T + psi * backend.identity(W.shape[0], W)
            return backend.cast_like(backend.namespace(W).linalg.inv(covariance), self.components)
        B = W / psi[:, None]
        M = W.T @ B + backend.identity(W.shape[1], W)
        inverse = -B @ backend.namespace(W).linalg.solve(M, B.T)
        return backend.cast_like(inverse + backend.identity(W.shape[0], W) / psi, self.components)

    def sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Draw rows x = Wz + μ + ε, (n_samples, d)."""
        W, psi = self.factors.W, self.factors.psi
        z, noise = (backend.normal(rng, (n_samples, k), W) for k in (W.shape[1], W.shape[0]))
        rows = self.lifted(z) + backend.namespace(W).sqrt(psi) * noise
        return backend.cast_like(rows, self.components)


class Regression(NamedTuple):
    """Factors of complete rows: all share one posterior covariance, so that means are a product.

    E[z | x] = (I + WᵀΨ⁻¹W)⁻¹WᵀΨ⁻¹(x − μ). Methods return None for rows with missing values.
    """

    factors: Factors
    B: Array  # (d, q), of E[z | x] = Bᵀ(x − μ)
    volume: float  # ln |2πC|

    @classmethod
    def of(cls, factors: Factors) -> Regression | None:
        """Return the regression of a density; None if some feature has no noise."""
        W, psi = factors.W, factors.psi
        xp = backend.namespace(W)
        if not bool(xp.min(psi) > 0):
            return None
        B = W / psi[:, None]
        P = W.T @ B + backend.identity(W.shape[1], W)
        L = xp.linalg.cholesky(P)
        volume = 2 * xp.sum(xp.log(xp.linalg.diagonal(L))) + xp.sum(LOG_2PI + xp.log(psi))
        return cls(factors, backend.contiguous(xp.linalg.solve(P, B.T).T), float(volume))

    def scores(self, rows: Array) -> Array | None:
        """Return E[z | x], (n, q)."""
        Z = (backend.working(rows) - self.factors.mu) @ self.B
        return None if _has_nan(Z, rows) else Z

    def log_density(self, rows: Array) -> Array | None:
        """Return ln p(x), (n,), block by block."""
        W, mu, psi = self.factors.W, self.factors.mu, self.factors.psi
        xp, weights = backend.namespace(W), 1 / psi

        def block(cut: slice) -> Array:
            R = backend.row_block(rows, cut) - mu
            Z = R @ self.B
            # (x − Wz)ᵀΨ⁻¹(x − Wz) + zᵀz at the posterior mean is xᵀC⁻¹x without its cancellation
            R = R - Z @ W.T
            return (R * R) @ weights + xp.sum(Z * Z, axis=1)

        distance = xp.concat([block(cut) for cut in backend.row_slices(rows)])
        return None if _has_nan(distance, rows) else -0.5 * (self.volume + distance)


def _has_nan(found: Array, rows: Array) -> bool:
    """Return True if a result has NaN, as it does where a row has one."""
    xp = backend.namespace(found)
    return bool(xp.any(xp.isnan(found))) and has_missing(rows)


@dataclass(frozen=True)
class FactorRequest(driver.IterativeRequest):
    """Checked parameters of `fit_factor`."""

    n_components: int | None = None  # None for Horn's parallel analysis
    noise_start: Array | None = None  # (d,), ψ to start from
    rotation: str | None = None


def fit_factor(table: Table, request: FactorRequest) -> FactorModel:
    """Fit factor analysis by maximum likelihood, with missing values or without."""
    psi, found = _noise_to_start(request, table), linear(table, missing=True)
    q = _count(request.n_components, table, found)
    if isinstance(found, Columns):
        count = found.used
        fit = Fit(table, q, diagonal=True, columns=found)
        factors, record = fit_incomplete(fit, request.start, psi, **request.limits)
        factors = canonical(factors, request.rotation)
        reference = _incomplete_reference(factors, table, found.effective_rows)
    else:
        operator, count, _ = found
        factors, record = fit_factors(operator, q, rules.HEYWOOD, psi, **request.limits)
        factors = canonical(factors, request.rotation)
        rows = spiked.rows_in_order(operator)
        reference = noisy_reference(factors, operator, operator.n, rows)
    like = table.like
    return FactorModel(
        backend.cast_like(factors.mu, like),
        backend.cast_like(factors.W.T, like),
        spiked.variances_like(factors.psi, like),
        count,
        heywood_cases(factors),
        reference,
        driver.History.of(record),
    )


def _incomplete_reference(factors: Factors, table: Table, n: float) -> Reference:
    """Return what control limits need to know of a table with missing values."""
    some = some_of(table, spiked.MEASURED_ROWS)
    X = backend.working(some.rows)
    weights = observed_weights(X, some.weights)
    rows = completed(factors, X, weights)
    ordered = rows if some is table and weights is None else None
    gaps = Unseen.of(factors, X, weights)
    return noisy_reference(factors, Primal(rows, weights), n, ordered, gaps)


def _count(wanted: int | None, table: Table, found: LinearTable | Columns) -> int:
    """Return the number of factors: given, or by parallel analysis of the correlations."""
    if wanted is not None and not rules.is_count(wanted):
        raise ValueError(expected("n_components", "an int or None", wanted))
    if wanted is not None:
        rules.check_request(wanted, table.d, table.d, "em")
        return int(wanted)
    return rules.at_least_one(PARALLEL, spiked.parallel_count(table, found))


def _noise_to_start(request: FactorRequest, table: Table) -> Array | None:
    """Return the noise to start from, on the device of the rows."""
    if request.noise_start is None:
        return None
    psi = np.asarray(backend.to_numpy(request.noise_start), dtype=np.float64)
    if psi.shape != (table.d,) or not np.all(psi > 0):
        what = f"{table.d} positive numbers, one per feature"
        raise ValueError(expected("noise_variance_init", what, psi))
    return backend.asarray(psi, table.like)


def canonical(factors: Factors, rotation: str | None = None) -> Factors:
    """Rotate so that WᵀΨ⁻¹W is diagonal, or as asked; signs are deterministic."""
    W, root = factors.W, backend.namespace(factors.psi).sqrt(factors.psi)[:, None]
    if W.shape[1]:
        U, s, _ = algebra.svd(W / root)
        W = (U * s) * root
        W = W if rotation is None else rotate(W, rotation)
    return Factors(algebra.deterministic_signs(W), factors.mu, factors.psi)


def heywood_cases(factors: Factors) -> tuple[int, ...]:
    """Return the features whose noise is held at its bound, and warn of them."""
    variance = backend.namespace(factors.W).sum(factors.W**2, axis=1) + factors.psi
    held = backend.to_numpy(factors.psi <= 2 * rules.HEYWOOD * variance)
    found = [int(j) for j in np.flatnonzero(held)]
    if found:
        warn(
            f"Heywood case: the factors explain features {found[:10]} wholly, their noise is held "
            "at 1/10,000 of their variance. Use fewer factors, or more rows.",
            HeywoodWarning,
        )
    return tuple(found)


# --- Complete rows -------------------------------------------------------------------------------

SMALL = 64
"""Features up to which all eigenvectors are found by NumPy, rather than some of them by SciPy."""

DENSE_LIMIT = 2000
"""Largest number of features for which the (d, d) correlation matrix is formed."""


def factor_step(
    operator: spiked.LinearOperator, W: Array, psi: Array, n: float
) -> tuple[Array, Array, float]:
    """Take one EM step of factor analysis on nS, O(q) products with it; S is never formed.

    With β = (I + WᵀΨ⁻¹W)⁻¹WᵀΨ⁻¹: W' = Sβᵀ E⁻¹ where E = I − βW + βSβᵀ, and
    ψ' = diag(S − W'βS). E, the second moment of the latents, is folded back into W', which becomes
    W'E^{1/2} (parameter expansion).

    Parameters
    ----------
    operator : Primal, Scatter or PartScatter
        nS.
    W : array of shape (d, q)
    psi : array of shape (d,)
    n : float

    Returns
    -------
    W : array of shape (d, q)
    psi : array of shape (d,)
    loglikelihood : float
        Of the parameters given.
    """
    xp = backend.namespace(W)
    diagonal, B = operator.diag() / n, W / psi[:, None]
    M = W.T @ B + backend.identity(W.shape[1], W)
    inverse = xp.linalg.inv(M)
    SB = (operator @ B) / n
    cross = SB @ inverse
    inner = inverse @ (B.T @ SB)
    second = inverse + inner @ inverse
    second = (second + second.T) / 2
    logdet = float(xp.sum(xp.log(psi))) + float(xp.linalg.slogdet(M).logabsdet)
    fitted = float(xp.sum(diagonal / psi)) - float(xp.linalg.trace(inner))
    value = -0.5 * n * (W.shape[0] * LOG_2PI + logdet + fitted)
    W_new = xp.linalg.solve(second, cross.T).T
    psi_new = diagonal - xp.sum(W_new * cross, axis=1)
    return W_new @ xp.linalg.cholesky(second), psi_new, value


def fit_factors(
    operator: spiked.LinearOperator,
    q: int,
    floor: float,
    psi: Array | None = None,
    tol: float = 1e-4,
    max_iter: int = 1000,
    *,
    em: bool = False,
    watch: driver.Watch | None = None,
) -> tuple[Factors, driver.Record]:
    """Fit factor analysis to complete rows.

    Parameters
    ----------
    operator : Primal, Scatter or PartScatter
    q : int
    floor : float
        Smallest noise, as a share of a feature's variance: prevents Heywood cases.
    psi : array of shape (d,), optional
        Noise to start from.
    tol : float
        Newton's method stops when no component of the gradient of the log-likelihood per row, by ln
        ψ, exceeds it; EM as in `dualpca.models.driver.maximize`.
    max_iter : int
    em : bool
        EM also where quasi-Newton could do it.
    watch : Watch, optional
        For a checkpoint.
    """
    route = _fit_profile if operator.dim <= DENSE_LIMIT and not em else _fit_em
    keeper = spiked.keeper_of(watch, operator)
    found = route(operator, q, floor, psi, tol=tol, max_iter=max_iter, keeper=keeper)
    if not found[1].interrupted:
        keeper.done()
    return found


def _variances(operator: spiked.LinearOperator) -> Array:
    """Return the features' variances; the average for a constant one, which has no unit."""
    xp, variance = backend.namespace(operator.like), operator.diag() / operator.n
    unit = float(xp.mean(variance))
    if not unit > 0:
        raise DegenerateError("every feature is constant: there is nothing to model.")
    return xp.where(variance > 0, variance, xp.full_like(variance, unit))


class Profile:
    """−2/n times the log-likelihood as a function of ln(ψ/variance), loadings at their best.

    Works on the correlation matrix R, so that units do not matter.
    """

    def __init__(self, operator: spiked.LinearOperator, q: int) -> None:
        self.q, self.variance = q, _variances(operator)
        self.unit = backend.namespace(operator.like).sqrt(self.variance)
        self.R = operator.dense() / operator.n / self.unit[:, None] / self.unit[None, :]
        if q > 0 and operator.dim <= SMALL:  # sums that cost less than the way to a device
            self.R = backend.to_numpy(self.R)
        self.diagonal = backend.namespace(self.R).linalg.diagonal(self.R)

    def loadings(self, share: Array) -> tuple[Array, Array]:
        """Return the best W for noise ψ/variance, and the leading eigenvalues θ, largest first."""
        xp = backend.namespace(share)
        root = xp.sqrt(share)
        theta, U = algebra.top_eigh(self.R / root[:, None] / root[None, :], self.q)
        theta, U = xp.flip(theta, axis=0), xp.flip(U, axis=1)
        return root[:, None] * U * xp.sqrt(xp.maximum(theta - 1, 0.0)), theta

    def __call__(self, logs: Host) -> tuple[float, Host]:
        """Return value and gradient, (C_jj − R_jj)/ψ_j, on the host."""
        if self.few:
            return self.at(logs)[:2]
        share = backend.asarray(np.exp(logs), self.R)
        xp, (W, theta), diagonal = backend.namespace(share), self.loadings(share), self.diagonal
        kept = theta[theta > 1]
        total = float(xp.sum(diagonal / share)) - float(xp.sum(kept)) + int(kept.shape[0])
        value = float(np.sum(logs)) + float(xp.sum(xp.log(kept))) + total
        slope = (xp.sum(W * W, axis=1) + share - diagonal) / share
        return value, backend.to_numpy(slope)

    @property
    def few(self) -> bool:
        """True if features are so few that calls cost more than sums; R is on the host."""
        return self.q > 0 and self.R.shape[0] <= SMALL

    @property
    def is_identified(self) -> bool:
        """True if covariances are at least as many as parameters: maxima are points."""
        d = int(self.R.shape[0])
        return (d - self.q) ** 2 >= d + self.q

    def start(self) -> Host:
        """Return ln(ψ/variance) of what no other feature explains (Jöreskog 1967), (d,).

        One half where the others explain everything, as they do with more features than rows.
        """
        d = self.R.shape[0]
        share = 1 / np.diagonal(np.linalg.inv(self.R + 1e-8 * np.eye(d)))
        if np.all(share < LEAST_START):
            return np.full(d, math.log(0.5))
        return np.asarray(np.log(np.clip((1 - self.q / (2 * d)) * share, LEAST_START, 1.0)))

    def at(self, logs: Host) -> tuple[float, Host, Host]:
        """Return value, gradient and leading eigenvectors, (d, q), for few features."""
        root, q = np.exp(-0.5 * logs), self.q
        values, vectors = np.linalg.eigh(self.R * (root[:, None] * root))
        theta, U = np.maximum(values[-q:], 1.0), vectors[:, -q:]
        ratio = self.diagonal * (root * root)
        excess = theta - 1.0
        value = np.add.reduce(logs) + np.add.reduce(np.log(theta)) + np.add.reduce(ratio)
        slope = np.dot(U * U, excess) + 1.0 - ratio
        return float(value - np.add.reduce(excess)), slope, U


class _Point(NamedTuple):
    """Where Newton's method is."""

    logs: Host  # (d,), ln(ψ/variance)
    value: float
    slope: Host  # (d,)
    U: Host  # (d, q)

    def free(self, least: float) -> Any:
        """Return the features whose noise no bound holds against the slope, (d,)."""
        low, high = (self.logs <= least) & (self.slope > 0), (self.logs >= 0) & (self.slope < 0)
        return ~(low | high)


LEAST_START = 5e-3
"""Least share of a feature's variance that is noise where Newton's method begins."""

TIE = 1e-7
"""Log-likelihood per row by which one of two maxima must be higher."""

SHORTEST_STEP, ENOUGH, ROUNDING = 1e-3, 1e-4, 1e-11
"""Of Newton's method: the least share of a step, and of the gain that its slope promises.

Last, the promise that is rounding error, relative to the cost.
"""


def _newton(
    profile: Profile,
    start: Host,
    least: float,
    loglikelihood: Callable[[float], float],
    tol: float,
    max_iter: int,
    keeper: driver.Keeper,
) -> tuple[Host, driver.Record]:
    """Minimise the profile for few features by Newton's method within bounds.

    The matrix of second derivatives at the maximum is about (I − UUᵀ) squared entry by entry
    (Jöreskog 1967), at no cost. Where no share of its step gains, quasi-Newton goes on.

    Three factors of wine, 178×13, take 1.4 ms, and 1.9 ms by quasi-Newton; four of 1,000×20 0.9 ms
    and 1.7 ms.
    """
    now, stuck, promise = _Point(start, *profile.at(start)), False, math.inf

    def ended(at: _Point) -> bool:
        return stuck or not np.abs(at.slope[at.free(least)]).max(initial=0.0) > tol

    def begin() -> tuple[_Point, driver.Record]:
        return now, driver.Record([loglikelihood(now.value)], converged=ended(now))

    def step(at: _Point) -> tuple[_Point, float]:
        nonlocal stuck, now, promise
        which = np.flatnonzero(at.free(least))
        P = -np.dot(at.U[which], at.U[which].T)
        P.flat[:: len(which) + 1] += 1.0
        np.multiply(P, P, out=P)
        P.flat[:: len(which) + 1] += 1e-8
        move, share = np.zeros_like(at.logs), 1.0
        move[which] = -np.linalg.solve(P, at.slope[which])
        promise = -float(at.slope @ move) / (1 + abs(at.value))
        while True:
            logs = np.minimum(np.maximum(at.logs + share * move, least), 0.0)
            now = _Point(logs, *profile.at(logs))
            if now.value <= at.value + ENOUGH * float(at.slope @ (logs - at.logs)):
                return now, loglikelihood(now.value)
            share /= 4
            if share < SHORTEST_STEP:
                stuck, now = True, at
                return at, loglikelihood(at.value)

    at, record = driver.iterate(
        step,
        begin,
        max_iter=max_iter,
        stop=lambda record: ended(now),
        label="Newton step",
        keeper=keeper,
        pack=lambda at: ({"theta": at.logs}, {}),
        unpack=lambda state: _Point(state[0]["theta"], *profile.at(state[0]["theta"])),
    )
    if stuck and promise > ROUNDING:
        bounds: list[Any] = [(least, 0.0)] * len(start)
        left = max_iter - record.n_iter
        return driver.descend(profile, at.logs, bounds, record, loglikelihood, tol, left), record
    return at.logs, record


def _fit_profile(
    operator: spiked.LinearOperator, q: int, floor: float, psi: Array | None, **limits: Any
) -> tuple[Factors, driver.Record]:
    """Fit by Newton's method, or quasi-Newton, on the profile likelihood.

    It can have several maxima, some of them Heywood cases: where Newton's method ends in one,
    quasi-Newton from elsewhere has a try, and the better one is kept.
    """
    profile, record, n, d = Profile(operator, q), driver.Record(), operator.n, operator.dim
    xp = backend.namespace(profile.unit)
    constant = d * LOG_2PI + 2 * float(xp.sum(xp.log(profile.unit)))
    share = np.full(d, 0.5) if psi is None else backend.to_numpy(psi / profile.variance)

    def loglikelihood(value: float) -> float:
        return -0.5 * n * (constant + value)

    least = math.log(floor)
    bounds: list[Any] = [(least, 0.0)] * d
    start = np.log(np.clip(share, floor, 1.0))
    if profile.few and profile.is_identified:
        begin = profile.start() if psi is None else start
        found, record = _newton(profile, begin, least, loglikelihood, **limits)
        if record.converged and np.any(found <= least):
            again = driver.Record()
            limits["keeper"] = None
            other = driver.descend(profile, start, bounds, again, loglikelihood, **limits)
            if again.loglikelihoods[-1] > record.loglikelihoods[-1] + TIE * n:
                found, record = other, again
    else:
        found = driver.descend(profile, start, bounds, record, loglikelihood, **limits)
    best = backend.asarray(np.exp(found), profile.R)
    W = backend.asarray(profile.loadings(best)[0], profile.unit) * profile.unit[:, None]
    best = backend.asarray(best, profile.unit)
    return Factors(W, operator.frame.mean, best * profile.variance), record


def _fit_em(
    operator: spiked.LinearOperator, q: int, floor: float, psi: Array | None, **limits: Any
) -> tuple[Factors, driver.Record]:
    """Fit by accelerated EM on the operator, from the principal axes."""
    variance, n = _variances(operator), operator.n
    xp = backend.namespace(variance)
    unit, least = xp.sqrt(variance)[:, None], xp.full_like(variance, floor)
    packing, theta = driver.Packing(operator.dim, unit, variance, least, ceiling=5.0), variance

    def step(theta: Array) -> tuple[Array, float]:
        W, psi, _ = packing.unpack(theta, q)
        W, psi, value = factor_step(operator, W, psi, n)
        return packing.pack(W, psi), value

    if limits["keeper"].state is None:
        spectrum = solve(operator, max(q, 1), tol=1e-3).head(q)
        W = spectrum.vectors * xp.sqrt(spectrum.values / n) * 0.7
        left = xp.maximum(variance - xp.sum(W * W, axis=1), 0.1 * variance)
        theta = packing.pack(W, left if psi is None else psi)
    theta, record = driver.maximize(step, theta, **limits)
    W, psi, _ = packing.unpack(theta, q)
    record.add(factor_step(operator, W, psi, n)[2])
    return Factors(W, operator.frame.mean, psi), record


# --- Whether one noise for all features does -----------------------------------------------------

FEWEST_COMPARED, COMPARED_ROWS, COMPARED_STEPS = 30, 1000, 4
"""Rows that are asked whether every feature has noise of its own, and the steps of EM they take."""

PLAIN_TIMES = 3.0
"""Largest by smallest noise from which a common one misleads: intervals of 95 % cover 80 % of the
noisiest column, and are twice too wide for the quietest."""


class OwnNoise(NamedTuple):
    """What noise of its own in every feature says beside one noise for all."""

    gain: float  # log-likelihood per row, at least
    largest: int  # the feature of most noise
    smallest: int  # of least
    times: float  # their standard deviations, one by the other, at least


def own_noise(table: Table, model: spiked.SpikedModel) -> OwnNoise | None:
    """Return what factor analysis would gain on a spiked model of the same rank, if it is much.

    A few steps of EM from that model, on at most 1,000 rows: what they gain is at least gained by a
    whole fit. None where the Bayesian information criterion prefers one noise, or another spike;
    where noise differs by little; and where so many factors cannot be told from noise.
    """
    if table.by_columns is not None:  # few rows say little of so many noises
        return None
    d, q, few = table.d, model.n_components, some_of(table, COMPARED_ROWS)
    if (d - q) ** 2 < d + q or backend.is_sparse(few.like):
        return None
    fit = Fit(few, q, diagonal=True)
    n, variance = fit.data.n, backend.to_numpy(fit.data.columns.variance)
    if n < FEWEST_COMPARED or not model.noise > 2 * rules.HEYWOOD * float(variance.mean()):
        return None  # few rows, or noise that is held
    theta, values = fit.pack(model.factors), []
    for _ in range(COMPARED_STEPS + 1):
        reached, (theta, value, *_) = theta, fit.step(theta)
        values.append(value)
    psi = backend.to_numpy(fit.unpack(reached).psi)
    noise = np.sqrt(np.maximum(psi, rules.HEYWOOD * variance))
    varies = variance > rules.VARIANCE_ROUNDING * variance.mean()
    largest, smallest = int(np.argmax(noise)), int(np.argmin(np.where(varies, noise, np.inf)))
    gained, times = values[-1] - values[0], float(noise[largest] / noise[smallest])
    worth = gained - 0.5 * (d - 1) * math.log(n)
    if not (worth > 0 and times >= PLAIN_TIMES):
        return None
    if _gained_by_another(few, model, values[0]) - 0.5 * (d - q) * math.log(n) > worth:
        return None
    return OwnNoise(gained / n, largest, smallest, times)


def _gained_by_another(table: Table, model: spiked.SpikedModel, before: float) -> float:
    """Return by how much the log-likelihood rises with one more spike."""
    request = spiked.PPCARequest(model.n_components + 1, tol=1e-3, max_iter=20)
    try:
        more = spiked.fit_ppca(table, request)
    except DegenerateError:  # it explains the rows
        return math.inf
    return math.inf if more.history is None else more.history.loglikelihood - before
