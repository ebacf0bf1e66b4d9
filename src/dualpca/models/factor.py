"""Factor analysis: x = Wz + μ + ε with a noise of its own in every feature.

`FactorModel` is the fitted model, `fit_factor` makes one of a table.

Complete rows: given the noise ψ the best loadings are the leading eigenvectors of
Ψ^{-1/2}SΨ^{-1/2}, so the likelihood is a function of d numbers: quasi-Newton on that (Jöreskog
1967) takes tens of steps where EM takes thousands, and bounds keep Heywood cases off. Where (d, d)
is too large, EM on the operator does it (Rubin & Thayer 1982). Rows with missing values are fitted
by `incomplete`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.data import Columns, Table
from dualpca.errors import DegenerateError, HeywoodWarning, expected, warn
from dualpca.gaussian import (
    HEYWOOD,
    LOG_2PI,
    FactorMonitor,
    Factors,
    Monitor,
    Reference,
    all_latents,
    check_request,
    is_count,
    rotate,
)
from dualpca.models.driver import History, Keeper, Record, Tape, Watch, descend, maximize
from dualpca.models.incomplete import fit_incomplete
from dualpca.models.spiked import LinearOperator, variances_like
from dualpca.operators import deterministic_signs, linear
from dualpca.solvers import solve

# --- The model -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class FactorModel:
    """N(μ, WWᵀ + diag ψ) over the features.

    Arrays have the dtype of the rows that were fitted; everything is computed in float64. Nothing
    d×d is formed but by `covariance` and `precision`.
    """

    mean: Annotated[Array, "d"]
    components: Annotated[Array, "q d"]  # Wᵀ
    noise: Annotated[Array, "d"]  # ψ
    n_rows: int
    heywood: tuple[int, ...] = ()  # features whose noise is held at its bound
    reference: Reference | None = None  # what control limits need to know of the training rows
    history: History | None = None

    @property
    def factors(self) -> Factors:
        """The density in float64."""
        parts = (self.components.T, self.mean, self.noise)
        return Factors(*(backend.working(part) for part in parts))

    def posterior(self, rows: Array) -> tuple[Array, Array]:
        """Return mean (n, q) and covariance (n, q, q) of the factors given each row."""
        found = all_latents(self.factors, rows)
        return found.mean, found.covariance

    def lifted(self, latents: Array) -> Array:
        """Return the mean of the rows given factors, Wz + μ, (n, d)."""
        factors = self.factors
        return latents @ factors.W.T + factors.mu

    def log_density(self, rows: Array, *, missing: bool = True) -> Array:
        """Return ln p of what every row observed, (n,)."""
        return all_latents(self.factors, rows).log_density

    def monitor(self, rows: Array | None = None) -> Monitor:
        """Return what judges rows by T² and SPE."""
        return FactorMonitor(self.factors, self.reference or Reference(self.n_rows, self.n_rows))

    def covariance(self) -> Array:
        """Return WWᵀ + diag ψ, (d, d)."""
        W, psi = self.factors.W, self.factors.psi
        eye = backend.asarray(np.eye(W.shape[0]), W)
        return backend.cast_like(W @ W.T + psi * eye, self.components)

    def precision(self) -> Array:
        """Return the inverse covariance, (d, d), by Woodbury in q."""
        W, psi = self.factors.W, self.factors.psi
        B = W / psi[:, None]
        M = W.T @ B + backend.asarray(np.eye(W.shape[1]), W)
        eye = backend.asarray(np.eye(W.shape[0]), W)
        inverse = eye / psi - B @ backend.namespace(W).linalg.solve(M, B.T)
        return backend.cast_like(inverse, self.components)

    def sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Draw rows x = Wz + μ + ε, (n_samples, d)."""
        factors = self.factors
        W, mu, psi = factors.W, factors.mu, factors.psi
        z = backend.normal(rng, (n_samples, W.shape[1]), W)
        noise = backend.normal(rng, (n_samples, W.shape[0]), W)
        rows = z @ W.T + mu + backend.namespace(W).sqrt(psi) * noise
        return backend.cast_like(rows, self.components)


@dataclass(frozen=True)
class FactorRequest:
    """What `fit_factor` needs to know, checked."""

    n_components: int | None = None  # None for the number of features
    noise_start: Any = None  # (d,), ψ to start from
    tol: float = 1e-4
    max_iter: int = 1000
    rotation: str | None = None
    rng: Any = 0  # seed or generator, for the start of EM where values are missing
    watch: Watch | None = None


def fit_factor(table: Table, request: FactorRequest) -> FactorModel:
    """Fit factor analysis by maximum likelihood, with missing values or without."""
    q, psi = _count(request.n_components, table.d), _noise_to_start(request, table)
    limits: dict[str, Any] = {
        "tol": request.tol,
        "max_iter": request.max_iter,
        "watch": request.watch,
    }
    found = linear(table, missing=True)
    if isinstance(found, Columns):
        rng, count, n = np.random.default_rng(request.rng), found.used, found.effective_rows
        options: dict[str, Any] = {"diagonal": True, "floor": HEYWOOD, "psi": psi, "columns": found}
        factors, record = fit_incomplete(table, q, rng, **options, **limits)
    else:
        operator, count = found
        n, (factors, record) = operator.n, fit_factors(operator, q, HEYWOOD, psi, **limits)
    factors, like = canonical(factors, request.rotation), table.like
    return FactorModel(
        backend.cast_like(factors.mu, like),
        backend.cast_like(factors.W.T, like),
        variances_like(factors.psi, like),
        count,
        heywood_cases(factors),
        Reference(n, n),
        History.of(record),
    )


def _count(wanted: Any, d: int) -> int:
    """Return the number of factors."""
    if wanted is None:
        return d
    if not is_count(wanted):
        raise ValueError(expected("n_components", "an int or None", wanted))
    check_request(wanted, d, d, "em")
    return int(wanted)


def _noise_to_start(request: FactorRequest, table: Table) -> Array | None:
    """Return the noise to start from, beside the rows."""
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
    return Factors(deterministic_signs(W), factors.mu, factors.psi)


def heywood_cases(factors: Factors) -> tuple[int, ...]:
    """Return the features whose noise is held at its bound, and warn of them."""
    variance = backend.namespace(factors.W).sum(factors.W**2, axis=1) + factors.psi
    held = backend.to_numpy(factors.psi <= 2 * HEYWOOD * variance)
    found = [int(j) for j in np.flatnonzero(held)]
    if found:
        warn(
            f"Heywood case: the factors explain features {found[:10]} wholly, their noise is held "
            "at 1/10,000 of their variance. Use fewer factors, or more rows.",
            HeywoodWarning,
        )
    return tuple(found)


# --- Complete rows -------------------------------------------------------------------------------

DENSE_LIMIT = 2000
"""Largest number of features for which the (d, d) correlation matrix is formed."""


def factor_step(
    operator: LinearOperator, W: Array, psi: Array, n: float, *, expand: bool = True
) -> tuple[Array, Array, float]:
    """Take one EM step of factor analysis on nS, O(q) products with it; S is never formed.

    With β = (I + WᵀΨ⁻¹W)⁻¹WᵀΨ⁻¹: W' = Sβᵀ E⁻¹ where E = I − βW + βSβᵀ, and
    ψ' = diag(S − W'βS).

    Parameters
    ----------
    operator : Primal, Scatter or PartScatter
        nS.
    W : array of shape (d, q)
    psi : array of shape (d,)
    n : float
    expand : bool
        Fold the covariance of the latents back into W (parameter expansion).

    Returns
    -------
    W : array of shape (d, q)
    psi : array of shape (d,)
    loglikelihood : float
        Of the parameters given.
    """
    xp = backend.namespace(W)
    diagonal, d = operator.diag() / n, int(W.shape[0])
    B = W / psi[:, None]
    M = W.T @ B + backend.asarray(np.eye(W.shape[1]), W)
    inverse = xp.linalg.inv(M)
    SB = (operator @ B) / n
    cross = SB @ inverse
    inner = inverse @ (B.T @ SB)
    second = inverse + inner @ inverse
    second = (second + second.T) / 2
    logdet = float(xp.sum(xp.log(psi))) + float(xp.linalg.slogdet(M).logabsdet)
    fitted = float(xp.sum(diagonal / psi)) - float(xp.linalg.trace(inner))
    value = -0.5 * n * (d * LOG_2PI + logdet + fitted)
    W_new = xp.linalg.solve(second, cross.T).T
    psi_new = diagonal - xp.sum(W_new * cross, axis=1)
    return (W_new @ xp.linalg.cholesky(second) if expand else W_new), psi_new, value


class _Limits(NamedTuple):
    tol: float
    max_iter: int


def fit_factors(
    operator: LinearOperator,
    q: int,
    floor: float,
    psi: Array | None = None,
    tol: float = 1e-4,
    max_iter: int = 1000,
    *,
    em: bool = False,
    watch: Watch | None = None,
) -> tuple[Factors, Record]:
    """Fit factor analysis to complete rows.

    Parameters
    ----------
    operator : Primal, Scatter or PartScatter
    q : int
    floor : float
        Smallest noise, as a share of a feature's variance: keeps Heywood cases off.
    psi : array of shape (d,), optional
        Noise to start from.
    tol : float
        Quasi-Newton stops when no component of the gradient of the log-likelihood per row, by ln ψ,
        exceeds it; EM as in `dualpca.models.driver.maximize`.
    max_iter : int
    em : bool
        EM also where quasi-Newton could do it.
    watch : Watch, optional
        For a checkpoint.
    """
    profile = operator.dim <= DENSE_LIMIT and not em
    route, n, keeper = (_fit_profile if profile else _fit_em), operator.n, None
    if watch is not None:
        keeper = watch.over(n, operator.frame.mean, operator.diag() / n)
    found = route(operator, q, floor, psi, _Limits(tol, max_iter), keeper)
    if keeper is not None and not found[1].interrupted:
        keeper.done()
    return found


def _variances(operator: LinearOperator) -> Array:
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

    def __init__(self, operator: LinearOperator, q: int) -> None:
        self.q, self.variance = q, _variances(operator)
        unit = backend.namespace(operator.like).sqrt(self.variance)
        self.R = operator.dense() / operator.n / unit[:, None] / unit[None, :]
        self.unit = unit

    def loadings(self, share: Array) -> tuple[Array, Array]:
        """Return the best W for noise ψ/variance, and the leading eigenvalues θ, largest first."""
        xp, root = backend.namespace(share), backend.namespace(share).sqrt(share)
        if self.q == 0:
            return backend.asarray(np.zeros((share.shape[0], 0)), share), share[:0]
        theta, U = algebra.top_eigh(self.R / root[:, None] / root[None, :], self.q)
        theta, U = xp.flip(theta, axis=0), xp.flip(U, axis=1)
        excess = xp.where(theta > 1, theta - 1, xp.zeros_like(theta))
        return root[:, None] * U * xp.sqrt(excess), theta

    def __call__(self, logs: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        """Return value and gradient, (C_jj − R_jj)/ψ_j, on the host."""
        share = backend.asarray(np.exp(logs), self.R)
        xp, (W, theta) = backend.namespace(share), self.loadings(share)
        diagonal = xp.linalg.diagonal(self.R)
        kept = theta[theta > 1]
        total = float(xp.sum(diagonal / share)) - float(xp.sum(kept)) + int(kept.shape[0])
        value = float(np.sum(logs)) + float(xp.sum(xp.log(kept))) + total
        slope = (xp.sum(W * W, axis=1) + share - diagonal) / share
        return value, backend.to_numpy(slope)


def _fit_profile(
    operator: LinearOperator,
    q: int,
    floor: float,
    psi: Array | None,
    limits: _Limits,
    keeper: Keeper | None,
) -> tuple[Factors, Record]:
    """Fit by quasi-Newton on the profile likelihood."""
    profile, record, n, d = Profile(operator, q), Record(), operator.n, operator.dim
    xp = backend.namespace(profile.unit)
    constant = d * LOG_2PI + 2 * float(xp.sum(xp.log(profile.unit)))

    def note(value: float) -> None:
        record.add(-0.5 * n * (constant + value))

    share = np.full(d, 0.5) if psi is None else backend.to_numpy(psi / profile.variance)
    bounds: list[Any] = [(math.log(floor), 0.0)] * d
    start = np.log(np.clip(share, floor, 1.0))
    cost = profile if keeper is None else Tape(profile, keeper)
    found = descend(cost, start, bounds, note, *limits)
    record.n_iter, record.converged = found.n_iter, found.converged
    record.interrupted = found.interrupted
    if not record.loglikelihoods:  # the start was the maximum
        note(found.value)
    best = backend.asarray(np.exp(found.x), profile.R)
    W = profile.loadings(best)[0] * profile.unit[:, None]
    return Factors(W, operator.frame.mean, best * profile.variance), record


class _Map:
    """The EM map on vectors θ = (W, ln ψ/variance), W in units of standard deviations."""

    def __init__(self, operator: LinearOperator, q: int, floor: float) -> None:
        self.operator, self.q, self.floor, self.d = operator, q, floor, operator.dim
        self.variance = _variances(operator)
        self.unit = backend.namespace(self.variance).sqrt(self.variance)

    def pack(self, W: Array, psi: Array) -> Array:
        """Return θ."""
        xp, share = backend.namespace(W), psi / self.variance
        share = xp.where(share > self.floor, share, 0 * share + self.floor)
        return xp.concat([xp.reshape(W / self.unit[:, None], (-1,)), xp.log(share)])

    def unpack(self, theta: Array) -> tuple[Array, Array]:
        """Return W (d, q) and ψ (d,), within bounds wherever an extrapolation has landed."""
        xp, size, low = backend.namespace(theta), self.d * self.q, math.log(self.floor)
        logs = theta[size:]
        logs = xp.where(logs < low, 0 * logs + low, xp.where(logs > 5.0, 0 * logs + 5.0, logs))
        W = xp.reshape(theta[:size], (self.d, self.q)) * self.unit[:, None]
        return W, xp.exp(logs) * self.variance

    def step(self, theta: Array) -> tuple[Array, float]:
        """Take one EM step; return it with the log-likelihood of θ."""
        W, psi, value = factor_step(self.operator, *self.unpack(theta), self.operator.n)
        return self.pack(W, psi), value


def _fit_em(
    operator: LinearOperator,
    q: int,
    floor: float,
    psi: Array | None,
    limits: _Limits,
    keeper: Keeper | None,
) -> tuple[Factors, Record]:
    """Fit by accelerated EM on the operator."""
    fit = _Map(operator, q, floor)
    fresh = keeper is None or keeper.state is None
    theta = fit.pack(*_begin(operator, q, fit.variance, psi)) if fresh else fit.variance
    theta, record = maximize(
        fit.step, theta, tol=limits.tol, max_iter=limits.max_iter, keeper=keeper
    )
    W, psi = fit.unpack(theta)
    record.add(factor_step(operator, W, psi, operator.n)[2])
    return Factors(W, operator.frame.mean, psi), record


def _begin(
    operator: LinearOperator, q: int, variance: Array, psi: Array | None
) -> tuple[Array, Array]:
    """Start from the principal axes."""
    xp = backend.namespace(variance)
    if q == 0:
        return backend.asarray(np.zeros((operator.dim, 0)), variance), variance
    spectrum = solve(operator, q, tol=1e-3)
    W = spectrum.vectors * xp.sqrt(spectrum.values / operator.n) * 0.7
    left = variance - xp.sum(W * W, axis=1)
    left = xp.where(left > 0.1 * variance, left, 0.1 * variance)
    return W, left if psi is None else psi
