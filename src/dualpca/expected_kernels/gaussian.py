"""Expectations of exp(−Σ_c rates_c (x_c − y_c)²) for Gaussian x."""

from __future__ import annotations

from typing import NamedTuple

from dualpca import _array
from dualpca._typing import Array
from dualpca.expected_kernels.points import Uncertain
from dualpca.expected_kernels.terms import Vector


class Whitened(NamedTuple):
    """B = L⁻¹ R^{1/2} with LLᵀ = I + 2R^{1/2}SR^{1/2}, and ½ ln of the determinant."""

    B: Array  # (n, d, d)
    half_log_det: Array  # (n,)


def whiten(covariance: Array, rates: Vector) -> Whitened:
    """Factor I + 2R^{1/2}SR^{1/2}, which has no eigenvalue below 1. O(n d³)."""
    xp = _array.namespace(covariance)
    root = xp.sqrt(_array.asarray(rates, covariance))
    eye = _array.identity(int(covariance.shape[1]), covariance)
    L = xp.linalg.cholesky(eye + 2 * root[:, None] * covariance * root[None, :])
    R = xp.broadcast_to((root[:, None] * eye)[None, :, :], L.shape)
    logs = xp.log(xp.linalg.diagonal(L))
    return Whitened(xp.linalg.solve(L, R), xp.sum(logs, axis=1))


def against(x: Uncertain, Y: Array, rates: Vector) -> Array:
    """Return E exp(−(x − y)ᵀR(x − y)) = |P|^{−1/2} exp(−‖B(m − y)‖²), (n, m), P = LLᵀ.

    O(n d³ + n m d²), and n m d numbers: to be called with a block of rows.
    """
    xp = _array.namespace(x.mean)
    B, half_log_det = whiten(x.covariance, rates)
    D = Y[None, :, :] - x.mean[:, None, :]
    W = D @ xp.matrix_transpose(B)
    return xp.exp(-xp.sum(W * W, axis=2) - half_log_det[:, None])


def between(x: Uncertain, other: Uncertain, rates: Vector) -> Array:
    """Return the same for independent x and x': x − x' ~ N(m − m', S + S'). O(n m d³)."""
    xp = _array.namespace(x.mean)
    rows = []
    for i in range(len(x)):
        gap = Uncertain(other.mean - x.mean[i, :], other.covariance + x.covariance[i, :, :])
        rows.append(against(gap, xp.zeros_like(x.mean[:1, :]), rates)[:, 0])
    return xp.stack(rows, axis=0)
