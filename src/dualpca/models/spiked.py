"""PPCA by EM on an operator, whose matrix is never formed (MATH 3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.errors import DegenerateError
from dualpca.gaussian import LOG_2PI
from dualpca.models.driver import Record, Watch, maximize
from dualpca.operators import Operator

NO_NOISE = 1e-15
"""Smallest noise, as a share of the average variance: below it there is only rounding error."""


def ppca_step(
    operator: Operator, W: Array, sigma2: float, n: float, *, expand: bool = False
) -> tuple[Array, float, float]:
    """Take one EM step of PPCA on an operator nS, O(q) products with it; S is never formed.

    W' = S W (σ²I + M⁻¹WᵀSW)⁻¹ and σ²' = tr(S − S W M⁻¹W'ᵀ)/r with M = WᵀW + σ²I
    (MATH 3.1; Tipping & Bishop 1999, Eqs. 29 and 30).

    Parameters
    ----------
    operator : Operator
        nS: the scatter of the centred points, or the centred kernel.
    W : array of shape (m, q)
    sigma2 : float
    n : float
        Effective number of points.
    expand : bool
        Let the latents have covariance Γ in the M step and fold it back, W ← W Γ^{1/2}
        (parameter expansion): the same fixed points, reached in fewer steps.

    Returns
    -------
    W : array of shape (m, q)
    sigma2 : float
    loglikelihood : float
        Of the parameters given, not of the ones returned.
    """
    unit = operator.trace / n / operator.dim  # WᵀSW is of fourth order, and would overflow
    W, sigma2, value = _unit_step(operator, W / math.sqrt(unit), sigma2 / unit, n, unit, expand)
    return math.sqrt(unit) * W, unit * sigma2, value


def _unit_step(
    operator: Operator, W: Array, sigma2: float, n: float, unit: float, expand: bool
) -> tuple[Array, float, float]:
    """Take the step in units of the average variance, in which tr S = r."""
    xp, q, r = backend.namespace(W), W.shape[1], operator.dim
    SW = (operator @ W) / n / unit
    eye = backend.asarray(np.eye(q), W)
    M, B = W.T @ W + sigma2 * eye, W.T @ SW
    MB = xp.linalg.solve(M, B)
    value = _loglikelihood(M, float(xp.linalg.trace(MB)), sigma2, n, r, unit)
    # W' = SW G⁻¹ with G = σ²I + M⁻¹B; transposed, since solve wants the matrix on the left.
    W_new = xp.linalg.solve((sigma2 * eye + MB).T, SW.T).T
    sigma2_new = (r - float(xp.sum(SW * xp.linalg.solve(M, W_new.T).T))) / r
    if expand:
        gamma = sigma2 * xp.linalg.inv(M) + xp.linalg.solve(M, MB.T).T
        W_new = W_new @ xp.linalg.cholesky((gamma + gamma.T) / 2)
    return W_new, sigma2_new, value


def _loglikelihood(M: Array, fitted: float, sigma2: float, n: float, r: int, unit: float) -> float:
    """Return the log-likelihood of n points by Woodbury: ln|C| and tr(C⁻¹S) from q×q matrices."""
    xp = backend.namespace(M)
    logdet = float(xp.linalg.slogdet(M).logabsdet) + (r - M.shape[0]) * math.log(sigma2)
    constant = r * (LOG_2PI + math.log(unit))
    return float(-0.5 * n * (constant + logdet + (r - fitted) / sigma2))


@contextmanager
def breakdowns_told(q: int) -> Iterator[None]:
    """Say what a factorisation that fails in EM means."""
    try:
        yield
    except Exception as error:
        if not backend.is_linalg_error(error):
            raise
        raise DegenerateError(
            f"EM broke down: {q} components are more than the data have directions, and the noise "
            "vanished. Use fewer components, or give noise_variance > 0."
        ) from error


class _Map:
    """The EM map on vectors θ = (W, ln σ²), W in units of the average standard deviation.

    In these units steps in both compare. A given `noise` stays fixed.
    """

    def __init__(
        self, operator: Operator, q: int, n: float, noise: float | None, expand: bool
    ) -> None:
        self.operator, self.q, self.n, self.noise, self.expand = operator, q, n, noise, expand
        self.m, self.unit = operator.shape[0], operator.trace / n / operator.dim
        if not self.unit > 0:
            raise DegenerateError(
                "the points have no variance, all of them are the same: there is nothing to model. "
                "Give points that differ."
            )

    def pack(self, W: Array, sigma2: float) -> Array:
        """Return θ of loadings and noise in these units; the noise never vanishes."""
        xp = backend.namespace(W)
        tail = backend.asarray(np.array([math.log(max(sigma2, NO_NOISE))]), self.operator.like)
        return xp.concat([xp.reshape(W, (-1,)), tail])

    def unpack(self, theta: Array) -> tuple[Array, float]:
        """Return W and σ² in the units of the data."""
        W = backend.namespace(theta).reshape(theta[:-1], (self.m, self.q))
        sigma2 = max(math.exp(min(float(theta[-1]), 50.0)), NO_NOISE)
        return math.sqrt(self.unit) * W, sigma2 * self.unit

    def begin(self, start: tuple[Array, float] | None, rng: np.random.Generator) -> Array:
        """Return θ to start from: random loadings and all variance as noise, unless given."""
        if start is None:
            W, sigma2 = backend.normal(rng, (self.m, self.q), self.operator.like), self.unit
        else:
            W, sigma2 = start[0] / math.sqrt(self.unit), start[1]
        return self.pack(W, (sigma2 if self.noise is None else self.noise) / self.unit)

    def step(self, theta: Array) -> tuple[Array, float]:
        """Take one EM step; return it with the log-likelihood of θ."""
        W, sigma2 = self.unpack(theta)
        with breakdowns_told(self.q):
            W, moved, value = ppca_step(self.operator, W, sigma2, self.n, expand=self.expand)
        moved = moved if self.noise is None else sigma2
        return self.pack(W / math.sqrt(self.unit), moved / self.unit), value


def fit_ppca(
    operator: Operator,
    q: int,
    n: float,
    rng: np.random.Generator,
    noise: float | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    *,
    start: tuple[Array, float] | None = None,
    accelerate: bool = True,
    watch: Watch | None = None,
) -> tuple[Array, float, Record]:
    """Fit PPCA by accelerated EM: loadings W (m, q) up to rotation, noise σ², and the record.

    A given `noise` stays fixed. `start` is (W, σ²), random unless given; without `accelerate` the
    steps are those of plain EM, neither expanded nor extrapolated.
    """
    fit, keeper = _Map(operator, q, n, noise, accelerate), None
    if watch is not None:
        keeper = watch.over(n, operator.frame.mean, operator.diag() / n)  # type: ignore[attr-defined]
    limits: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "accelerate": accelerate}
    theta, record = maximize(fit.step, fit.begin(start, rng), keeper=keeper, **limits)
    if keeper is not None and not record.interrupted:
        keeper.done()
    return *fit.unpack(theta), record
