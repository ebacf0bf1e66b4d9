"""Expectations of (Σ_c w_c x_c y_c + c)^p for Gaussian x and p = 1, 2, 3."""

from __future__ import annotations

from math import comb

from dualpca import _array
from dualpca._typing import Array
from dualpca.expected_kernels.points import Uncertain
from dualpca.expected_kernels.terms import Poly


def moment(mean: Array, variance: Array, p: int) -> Array:
    """Return E tᵖ for t ~ N(mean, variance): 1, μ, μ² + v, μ³ + 3μv."""
    if p == 0:
        return _array.namespace(mean).ones_like(mean)
    if p == 1:
        return mean
    return mean**2 + variance if p == 2 else mean**3 + 3 * mean * variance


def against(x: Uncertain, Y: Array, poly: Poly) -> Array:
    """Return E tᵖ, (n, m): given y, t is Gaussian with variance γ² yᵀSy. O(n m d²)."""
    mean, variance = projections(x, Y, poly)
    return moment(mean, variance, poly.degree)


def projections(x: Uncertain, Y: Array, poly: Poly) -> tuple[Array, Array]:
    """Return mean and variance of t = Σ_c w_c x_c y_c + c, (n, m) each."""
    xp = _array.namespace(Y)
    V = Y * _array.asarray(poly.weights, Y)
    variance = xp.sum((V[None, :, :] @ x.covariance) * V[None, :, :], axis=2)
    return x.mean @ V.T + poly.constant, variance


def between(x: Uncertain, other: Uncertain, poly: Poly) -> Array:
    """Return E (s + c)ᵖ, s = xᵀDx' of independent x and x', (n, m). O(n m d²).

    With a = Dm', A = DS'D: E s = mᵀa, E s² = (mᵀa)² + mᵀAm + aᵀSa + tr SA and
    E s³ = (mᵀa)³ + 3 mᵀa (mᵀAm + aᵀSa + tr SA) + 6 mᵀASa.
    """
    xp = _array.namespace(x.mean)
    w = _array.asarray(poly.weights, x.mean)
    a, A = other.mean * w, w[:, None] * other.covariance * w[None, :]
    n, m, d = len(x), len(other), int(x.mean.shape[1])
    Am = xp.permute_dims(A @ x.mean.T, (2, 0, 1))
    Sa = xp.permute_dims(x.covariance @ a.T, (0, 2, 1))
    spread = xp.sum(Am * x.mean[:, None, :] + Sa * a[None, :, :], axis=2)
    spread += xp.reshape(x.covariance, (n, d * d)) @ xp.reshape(A, (m, d * d)).T
    first = x.mean @ a.T
    third = first**3 + 3 * first * spread + 6 * xp.sum(Am * Sa, axis=2)
    return shifted((first, first**2 + spread, third), poly)


def diagonal(x: Uncertain, poly: Poly) -> Array:
    """Return E (s + c)ᵖ, s = xᵀDx, (n,), from its cumulants. O(n d³) for p = 3.

    κ₁ = tr S + mᵀm, κ₂ = 2 tr S² + 4 mᵀSm, κ₃ = 8 tr S³ + 24 mᵀS²m, for D = I.
    """
    xp = _array.namespace(x.mean)
    root = xp.sqrt(_array.asarray(poly.weights, x.mean))
    m, S = x.mean * root, root[:, None] * x.covariance * root[None, :]
    Sm = xp.sum(S * m[:, None, :], axis=2)
    k1 = xp.sum(xp.linalg.diagonal(S), axis=1) + xp.sum(m * m, axis=1)
    k2 = 2 * xp.sum(S * S, axis=(1, 2)) + 4 * xp.sum(m * Sm, axis=1)
    k3 = 8 * xp.sum((S @ S) * S, axis=(1, 2)) + 24 * xp.sum(Sm * Sm, axis=1)
    return shifted((k1, k2 + k1**2, k3 + 3 * k2 * k1 + k1**3), poly)


def shifted(moments: tuple[Array, Array, Array], poly: Poly) -> Array:
    """Return E (s + c)ᵖ from the first three moments of s."""
    p, c = poly.degree, poly.constant
    total = moments[p - 1] + c**p
    for k in range(1, p):
        total = total + comb(p, k) * c ** (p - k) * moments[k - 1]
    return total
