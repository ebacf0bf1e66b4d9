"""Log-densities of complete rows under many spiked Gaussians, in one pass over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.gaussian import LOG_2PI

TRUSTED = 1e5
"""Largest ‖x − c‖²/σ² for which a difference of squared norms keeps ten digits of the exponent."""


class Stack(NamedTuple):
    """All components side by side, around a common centre c."""

    centre: Array  # (d,)
    means: Array  # (K, d), μ_k − c
    B: Array  # (d, Q), W_k L_k^{-T} with L_kL_kᵀ = M_k, one beside the other
    offset: Array  # (Q,), (μ_k − c)ᵀB_k
    member: Array  # (Q, K), 1 where a column of B belongs to k
    constant: Array  # (K,), d ln 2π + ln|C_k|
    noises: Array  # (K,)


def log_densities(means: Array, loadings: Sequence[Array], noises: Array, X: Array) -> Array:
    """Return ln N(x_i; μ_k, W_kW_kᵀ + σ_k²I), (n, K).

    With M = WᵀW + σ²I and B = W chol(M)^{-T} the exponent is (‖r‖² − ‖rᵀB‖²)/σ², r = x − μ: one
    product of the rows with all B_k. Where that difference would lose digits, ‖r − Wz‖²/σ² + ‖z‖²
    at the posterior mean z takes its place, which loses none.

    Cost O(nd Σq_k); one block of rows in memory beyond the result.

    Examples
    --------
    >>> import numpy as np
    >>> log_densities(np.zeros((1, 2)), [np.ones((2, 1))], np.ones(1), np.zeros((1, 2))).round(4)
    array([[-2.3872]])
    """
    xp, stack = _array.namespace(means), _stacked(means, loadings, noises)

    def part(cut: list[slice]) -> list[Array]:
        return [_block(stack, loadings, _array.row_block(X, rows) - stack.centre) for rows in cut]

    width = max(int(X.shape[1]), int(stack.B.shape[1]))
    cut = _array.slices(int(X.shape[0]), _array.block_rows(4 * width, X))  # four arrays at a time
    return xp.concat([block for run in _array.spread(part, cut, X) for block in run], axis=0)


def _stacked(means: Array, loadings: Sequence[Array], noises: Array) -> Stack:
    xp = _array.namespace(means)
    d, centre = int(means.shape[1]), xp.mean(means, axis=0)
    shifted, sides, constant = means - centre, [], []
    for k, W in enumerate(loadings):
        q, sigma2 = int(W.shape[1]), float(noises[k])
        L = xp.linalg.cholesky(W.T @ W + sigma2 * _array.asarray(np.eye(q), W))
        sides.append(xp.linalg.solve(L, W.T).T)
        logdet = 2 * float(xp.sum(xp.log(xp.linalg.diagonal(L)))) + (d - q) * np.log(sigma2)
        constant.append(d * LOG_2PI + logdet)
    owner = np.repeat(np.arange(len(sides)), [int(B.shape[1]) for B in sides])
    offset = xp.concat([shifted[k, :] @ B for k, B in enumerate(sides)])
    member = np.equal.outer(owner, np.arange(len(sides))).astype(float)
    B = xp.concat(sides, axis=1)
    beside = _array.asarray(member, means), _array.asarray(np.array(constant), means)
    return Stack(centre, shifted, B, offset, *beside, noises)


@np.errstate(over="ignore", invalid="ignore")  # in the thread that works; whoever asks checks
def _block(stack: Stack, loadings: Sequence[Array], C: Array) -> Array:
    """Return the log-densities of a block of rows around the centre."""
    xp = _array.namespace(C)
    far = xp.sum(C * C, axis=1)
    lengths = xp.sum(stack.means * stack.means, axis=1)
    P = C @ stack.B - stack.offset
    distance = far[:, None] - 2 * (C @ stack.means.T) + lengths
    exponent = (distance - (P * P) @ stack.member) / stack.noises
    reach = _array.to_numpy((xp.max(far) + lengths) / stack.noises)
    careful = [
        _exponent(C - stack.means[k, :], W, float(stack.noises[k]))
        if reach[k] > TRUSTED
        else exponent[:, k]
        for k, W in enumerate(loadings)
    ]
    if np.any(reach > TRUSTED):
        exponent = xp.stack(careful, axis=1)
    return -0.5 * (stack.constant + exponent)


def _exponent(R: Array, W: Array, sigma2: float) -> Array:
    """Return xᵀC⁻¹x of centred rows without cancellation, (b,)."""
    xp = _array.namespace(R)
    M = W.T @ W + sigma2 * _array.asarray(np.eye(W.shape[1]), W)
    z = xp.linalg.solve(M, (R @ W).T).T
    off = R - z @ W.T
    return xp.sum(off * off, axis=1) / sigma2 + xp.sum(z * z, axis=1)
