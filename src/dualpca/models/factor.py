"""Factor analysis of complete rows.

Given the noise ψ the best loadings are the leading eigenvectors of Ψ^{-1/2}SΨ^{-1/2}, so the
likelihood is a function of d numbers: quasi-Newton on that (Jöreskog 1967) takes tens of steps
where EM takes thousands, and bounds keep Heywood cases off. Where (d, d) is too large, EM on the
operator does it (Rubin & Thayer 1982).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import DegenerateError
from dualpca.gaussian import LOG_2PI, Factors
from dualpca.models.driver import Keeper, Record, Tape, Watch, descend, maximize
from dualpca.operators import Primal, Scatter
from dualpca.solvers import solve

DENSE_LIMIT = 2000
"""Largest number of features for which the (d, d) correlation matrix is formed."""


def factor_step(
    operator: Primal | Scatter, W: Array, psi: Array, n: float, *, expand: bool = True
) -> tuple[Array, Array, float]:
    """Take one EM step of factor analysis on nS, O(q) products with it; S is never formed.

    With β = (I + WᵀΨ⁻¹W)⁻¹WᵀΨ⁻¹: W' = Sβᵀ E⁻¹ where E = I − βW + βSβᵀ, and
    ψ' = diag(S − W'βS).

    Parameters
    ----------
    operator : Primal or Scatter
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
    operator: Primal | Scatter,
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
    operator : Primal or Scatter
    q : int
    floor : float
        Smallest noise, as a share of a feature's variance: keeps Heywood cases off.
    psi : array of shape (d,), optional
        Noise to start from.
    tol : float
        Quasi-Newton stops when no component of the gradient of the log-likelihood a row, by ln ψ,
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


def _variances(operator: Primal | Scatter) -> Array:
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

    def __init__(self, operator: Primal | Scatter, q: int) -> None:
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
    operator: Primal | Scatter,
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

    def __init__(self, operator: Primal | Scatter, q: int, floor: float) -> None:
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
    operator: Primal | Scatter,
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
    operator: Primal | Scatter, q: int, variance: Array, psi: Array | None
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
