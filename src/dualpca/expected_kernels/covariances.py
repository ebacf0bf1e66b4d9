"""Cov[k(x, y_i), k(x, y_j)] of one uncertain row with many known ones."""

from __future__ import annotations

from math import factorial

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.expected_kernels import gaussian, polynomial
from dualpca.expected_kernels.points import Uncertain
from dualpca.expected_kernels.terms import REMEDY, Poly, Term, Vector, split
from dualpca.expected_kernels.values import require_columns
from dualpca.kernels import Kernel


def covariance(kernel: Kernel, x: Uncertain, Y: Array) -> Array:
    """Return Cov[k(x_i, y_j), k(x_i, y_l)], (n, m, m): n m² numbers; zero for known rows.

    Known for RBF, Linear, Polynomial (degree 1, 2, 3), Constant, their sums and multiples, and
    for products of RBFs. O(n (d³ + m d² + m² d)).

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import Linear
    >>> x = Uncertain(np.zeros((1, 2)), np.array([[[1.0, 0.0], [0.0, 4.0]]]))
    >>> covariance(Linear(), x, np.array([[1.0, 0.0], [1.0, 1.0]]))
    array([[[1., 1.], [1., 5.]]])
    """
    require_columns(x, Y)
    return projected_covariance(kernel, x, Y, _array.identity(int(Y.shape[0]), Y))


def projected_covariance(kernel: Kernel, x: Uncertain, Y: Array, A: Array) -> Array:
    """Return Aᵀ Cov[k(x_i, ·)] A, (n, q, q): the uncertainty of coordinates kᵀA, row by row.

    Parameters
    ----------
    kernel : Kernel
    x : Uncertain
    Y : array of shape (m, d)
    A : array of shape (m, q)
        Coefficients over the rows of Y. Centring with the training means adds a constant, and
        so does not change the covariance.
    """
    require_columns(x, Y)
    found, w = split(kernel, int(Y.shape[1])), x.working
    for term in found:
        if len(term.polys) + term.is_gaussian > 1:
            raise ValueError(
                expected("kernel", "without products other than of RBFs", kernel, REMEDY)
            )
    xp, V, A = _array.namespace(Y), _array.working(Y), _array.working(A)
    zero = (A.T @ A)[None, :, :] * 0
    rows = [zero[:0, :, :]]
    for i, known in enumerate(x.certain):
        one = w.block(slice(i, i + 1))
        rows.append(zero if known else (A.T @ _row(found, one, V) @ A)[None, :, :])
    return _array.cast_like(xp.concat(rows, axis=0), x.mean)


def _row(found: list[Term], x: Uncertain, Y: Array) -> Array:
    """Return Cov[k(x, y_j), k(x, y_l)], (m, m), summed over pairs of terms."""
    xp = _array.namespace(Y)
    total = xp.zeros_like(Y @ Y.T)
    for s in range(len(found)):
        for t in range(s + 1):
            C = found[s].factor * found[t].factor * _cross(found[s], found[t], x, Y)
            total = total + (C if s == t else C + C.T)
    return (total + total.T) / 2


def _cross(s: Term, t: Term, x: Uncertain, Y: Array) -> Array:
    """Return Cov[s(x, y_j), t(x, y_l)], (m, m)."""
    if s.is_gaussian and t.is_gaussian:
        return two_gaussians(x, Y, s.rates, t.rates)
    if s.is_gaussian and t.polys:
        return gaussian_and_polynomial(x, Y, s.rates, t.polys[0])
    if t.is_gaussian and s.polys:
        return gaussian_and_polynomial(x, Y, t.rates, s.polys[0]).T
    if s.polys and t.polys:
        return two_polynomials(x, Y, s.polys[0], t.polys[0])
    return _array.namespace(Y).zeros_like(Y @ Y.T)  # a constant


def two_gaussians(x: Uncertain, Y: Array, rates: Vector, others: Vector) -> Array:
    """Return the covariance of exp(−‖x − y_j‖²_R) and exp(−‖x − y_l‖²_T), (m, m).

    Their product is exp(−‖y_j − y_l‖²_{RT/(R+T)}) exp(−‖x − ȳ‖²_{R+T}) at the mean ȳ of y_j and
    y_l, weighted by R and T; its expectation is that of one Gaussian with rates R + T.
    """
    xp = _array.namespace(Y)
    both = rates + others
    share = rates / (both + (both == 0))
    D = Y - x.mean
    B, half_log_det = gaussian.whiten(x.covariance, both)
    U = (D * _array.asarray(share, Y)) @ B[0, :, :].T
    V = (D * _array.asarray(1 - share, Y)) @ B[0, :, :].T
    G = D * xp.sqrt(_array.asarray(share * others, Y))
    u, v, g = (xp.sum(M * M, axis=1) for M in (U, V, G))
    gap = g[:, None] + g[None, :] - 2 * G @ G.T
    power = u[:, None] + v[None, :] + 2 * U @ V.T + gap + half_log_det[0]
    left, right = (gaussian.against(x, Y, r)[0, :] for r in (rates, others))
    return xp.exp(-power) - left[:, None] * right[None, :]


def gaussian_and_polynomial(x: Uncertain, Y: Array, rates: Vector, poly: Poly) -> Array:
    """Return the covariance of exp(−‖x − y_j‖²_R) and (Σ_c w_c x_c y_lc + c)ᵖ, (m, m).

    The first, times the density of x, is a Gaussian again: x given an observation of y_j with
    precision 2R, which has mean m + 2SBᵀB(y_j − m) and covariance S − 2SBᵀBS.
    """
    m, S = x.mean[0, :], x.covariance[0, :, :]
    B = gaussian.whiten(x.covariance, rates).B[0, :, :]
    T = 2 * (S @ B.T) @ B
    tilted = Uncertain(x.mean, (S - T @ S)[None, :, :])
    centre, variance = polynomial.projections(tilted, Y, poly)
    mean = centre + (Y - m) @ T.T @ (Y * _array.asarray(poly.weights, Y)).T
    change = polynomial.moment(mean, variance, poly.degree) - polynomial.against(x, Y, poly)
    return gaussian.against(x, Y, rates)[0, :][:, None] * change


def two_polynomials(x: Uncertain, Y: Array, poly: Poly, other: Poly) -> Array:
    """Return Cov[tᵖ, uʳ] = Σ_k Cov[t, u]ᵏ/k! E[(tᵖ)⁽ᵏ⁾] E[(uʳ)⁽ᵏ⁾], (m, m), t and u Gaussian."""
    S = x.covariance[0, :, :]
    C = (Y * _array.asarray(poly.weights, Y)) @ S @ (Y * _array.asarray(other.weights, Y)).T
    total = _array.namespace(Y).zeros_like(C)
    for k in range(1, min(poly.degree, other.degree) + 1):
        left, right = (derivative(x, Y, p, k) for p in (poly, other))
        total = total + C**k / factorial(k) * left[:, None] * right[None, :]
    return total


def derivative(x: Uncertain, Y: Array, poly: Poly, k: int) -> Array:
    """Return the expected kth derivative p!/(p − k)! E t^(p−k), (m,)."""
    p = poly.degree
    mean, variance = polynomial.projections(x, Y, poly)
    moment = polynomial.moment(mean, variance, p - k)[0, :]
    return factorial(p) / factorial(p - k) * moment
