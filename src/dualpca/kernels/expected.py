"""Kernels of rows with missing values: their expectations in closed form.

A row x ~ N(m, S), where S is zero in the rows and columns of observed entries, has E k(x, y) and
Cov[k(x, y_i), k(x, y_j)] in closed form for kernels whose class declares `_terms`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb, factorial, perm, prod
from typing import Annotated

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.data import Host
from dualpca.errors import expected
from dualpca.kernels.base import KNOWN_EXPECTATIONS, Kernel, Poly, Term, expectation_terms

# --- Rows that are Gaussian: what is known of them, and what is not ------------------------------


@dataclass(frozen=True)
class Uncertain:
    """Independent rows x_i ~ N(m_i, S_i).

    Parameters
    ----------
    mean : array of shape (n, d)
    covariance : array of shape (n, d, d)
        Symmetric positive semi-definite; zero in the rows and columns of observed entries. For
        many rows, make these in blocks: this is the largest array here.

    Examples
    --------
    >>> import numpy as np
    >>> x = Uncertain(np.zeros((2, 3)), np.stack([np.zeros((3, 3)), np.eye(3)]))
    >>> x.certain
    array([ True, False])
    """

    mean: Annotated[Array, "n d"]
    covariance: Annotated[Array, "n d d"]

    def __post_init__(self) -> None:
        """Check the shapes."""
        algebra.require_shape("mean", self.mean, "n", "d")
        n, d = self.mean.shape
        algebra.require_shape("covariance", self.covariance, n, d, d)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.mean.shape[0])

    @property
    def working(self) -> Uncertain:
        """These rows in float64."""
        return Uncertain(backend.working(self.mean), backend.working(self.covariance))

    @property
    def certain(self) -> Host:
        """Whether a row is complete, (n,), on the host."""
        hidden = backend.namespace(self.mean).any(self.covariance != 0, axis=(1, 2))
        return ~backend.to_numpy(hidden)

    def block(self, rows: slice) -> Uncertain:
        """Return consecutive rows."""
        return Uncertain(self.mean[rows, :], self.covariance[rows, :, :])

    def take(self, rows: Host) -> Uncertain:
        """Return the rows of these numbers."""
        return Uncertain(backend.take(self.mean, rows), backend.take(self.covariance, rows))


# --- Terms whose factors are independent ---------------------------------------------------------


def terms_of(kernel: Kernel, *rows: Uncertain) -> list[Term]:
    """Return the terms of a kernel; raise if the factors of one are not independent."""
    found = expectation_terms(kernel, int(rows[0].mean.shape[1]))
    for term in found:
        seen = [p.weights > 0 for p in term.polys] + [term.rates > 0] * term.is_gaussian
        pairs = [(a, b) for i, a in enumerate(seen) for b in seen[:i]]
        if any((a & b).any() or _correlated(x, a, b) for a, b in pairs for x in rows if len(x)):
            raise ValueError(
                "the expectation of this product of kernels is unknown: its factors share "
                "columns, or columns whose missing entries are correlated. " + KNOWN_EXPECTATIONS
            )
    return found


def _correlated(x: Uncertain, a: Host, b: Host) -> bool:
    """Return True if the unknown parts of two sets of columns are correlated in some row."""
    both = backend.asarray(np.outer(a, b), x.mean)
    return bool(backend.namespace(x.mean).any(x.covariance * both[None, :, :] != 0))


# --- Expectations of exp(−Σ_c rates_c (x_c − y_c)²) for Gaussian x -------------------------------


def whiten(covariance: Array, rates: Host) -> tuple[Array, Array]:
    """Return B = L⁻¹ R^{1/2}, (n, d, d), and ½ ln |LLᵀ|, (n,), where LLᵀ = I + 2R^{1/2}SR^{1/2}.

    That matrix has no eigenvalue below 1. O(n d³).
    """
    xp = backend.namespace(covariance)
    root = xp.sqrt(backend.asarray(rates, covariance))
    eye = backend.identity(int(covariance.shape[1]), covariance)
    L = xp.linalg.cholesky(eye + 2 * root[:, None] * covariance * root[None, :])
    R = xp.broadcast_to((root[:, None] * eye)[None, :, :], L.shape)
    return xp.linalg.solve(L, R), xp.sum(xp.log(xp.linalg.diagonal(L)), axis=1)


def gaussian_against(x: Uncertain, Y: Array, rates: Host) -> Array:
    """Return E exp(−(x − y)ᵀR(x − y)) = |P|^{−1/2} exp(−‖B(m − y)‖²), (n, m), P = LLᵀ.

    O(n d³ + n m d²), and n m d numbers: to be called with a block of rows.
    """
    xp = backend.namespace(x.mean)
    B, half_log_det = whiten(x.covariance, rates)
    W = (Y[None, :, :] - x.mean[:, None, :]) @ xp.matrix_transpose(B)
    return xp.exp(-xp.sum(W * W, axis=2) - half_log_det[:, None])


def gaussian_between(x: Uncertain, other: Uncertain, rates: Host) -> Array:
    """Return the same for independent x and x': x − x' ~ N(m − m', S + S'). O(n m d³)."""
    xp = backend.namespace(x.mean)
    rows = []
    for i in range(len(x)):
        gap = Uncertain(other.mean - x.mean[i, :], other.covariance + x.covariance[i, :, :])
        rows.append(gaussian_against(gap, xp.zeros_like(x.mean[:1, :]), rates)[:, 0])
    return xp.stack(rows, axis=0)


# --- Expectations of (Σ_c w_c x_c y_c + c)^p for Gaussian x and p = 1, 2, 3 ----------------------


def moment(mean: Array, variance: Array, p: int) -> Array:
    """Return E tᵖ for t ~ N(mean, variance): 1, μ, μ² + v, μ³ + 3μv."""
    if p < 2:
        return mean**p
    return mean**2 + variance if p == 2 else mean**3 + 3 * mean * variance


def projections(x: Uncertain, Y: Array, poly: Poly) -> tuple[Array, Array]:
    """Return mean and variance of t = Σ_c w_c x_c y_c + c, Gaussian given y, (n, m). O(n m d²)."""
    xp = backend.namespace(Y)
    V = Y * backend.asarray(poly.weights, Y)
    variance = xp.sum((V[None, :, :] @ x.covariance) * V[None, :, :], axis=2)
    return x.mean @ V.T + poly.constant, variance


def polynomial_against(x: Uncertain, Y: Array, poly: Poly) -> Array:
    """Return E tᵖ, (n, m)."""
    return moment(*projections(x, Y, poly), poly.degree)


def polynomial_between(x: Uncertain, other: Uncertain, poly: Poly) -> Array:
    """Return E (s + c)ᵖ, s = xᵀDx' of independent x and x', (n, m). O(n m d²).

    With a = Dm', A = DS'D: E s = mᵀa, E s² = (mᵀa)² + mᵀAm + aᵀSa + tr SA and
    E s³ = (mᵀa)³ + 3 mᵀa (mᵀAm + aᵀSa + tr SA) + 6 mᵀASa.
    """
    xp = backend.namespace(x.mean)
    w = backend.asarray(poly.weights, x.mean)
    a, A = other.mean * w, w[:, None] * other.covariance * w[None, :]
    n, m, d = len(x), len(other), int(x.mean.shape[1])
    Am = xp.permute_dims(A @ x.mean.T, (2, 0, 1))
    Sa = xp.permute_dims(x.covariance @ a.T, (0, 2, 1))
    spread = xp.sum(Am * x.mean[:, None, :] + Sa * a[None, :, :], axis=2)
    spread += xp.reshape(x.covariance, (n, d * d)) @ xp.reshape(A, (m, d * d)).T
    first = x.mean @ a.T
    third = first**3 + 3 * first * spread + 6 * xp.sum(Am * Sa, axis=2)
    return shifted((first, first**2 + spread, third), poly)


def polynomial_diagonal(x: Uncertain, poly: Poly) -> Array:
    """Return E (s + c)ᵖ, s = xᵀDx, (n,), from its cumulants. O(n d³) for p = 3.

    κ₁ = tr S + mᵀm, κ₂ = 2 tr S² + 4 mᵀSm, κ₃ = 8 tr S³ + 24 mᵀS²m, for D = I.
    """
    xp = backend.namespace(x.mean)
    root = xp.sqrt(backend.asarray(poly.weights, x.mean))
    m, S = x.mean * root, root[:, None] * x.covariance * root[None, :]
    Sm = xp.sum(S * m[:, None, :], axis=2)
    k1 = xp.sum(xp.linalg.diagonal(S), axis=1) + xp.sum(m * m, axis=1)
    k2 = 2 * xp.sum(S * S, axis=(1, 2)) + 4 * xp.sum(m * Sm, axis=1)
    k3 = 8 * xp.sum((S @ S) * S, axis=(1, 2)) + 24 * xp.sum(Sm * Sm, axis=1)
    return shifted((k1, k2 + k1**2, k3 + 3 * k2 * k1 + k1**3), poly)


def shifted(moments: tuple[Array, Array, Array], poly: Poly) -> Array:
    """Return E (s + c)ᵖ from the first three moments of s."""
    p, c = poly.degree, poly.constant
    lower = (comb(p, k) * c ** (p - k) * moments[k - 1] for k in range(1, p))
    return sum(lower, start=moments[p - 1] + c**p)


# --- E k(x, y), E k(x, x') and E k(x, x) of uncertain rows ---------------------------------------


def expected_kernel(kernel: Kernel, x: Uncertain, Y: Array) -> Array:
    """Return E k(x_i, y_j), (n, m), for uncertain rows x and known rows Y.

    Parameters
    ----------
    kernel : Kernel
        Without words such as 'median': call `resolve` first.
    x : Uncertain
        n rows.
    Y : array of shape (m, d)

    Notes
    -----
    O(n d³ + n m d²) for the RBF, O(n m d²) for polynomials; memory in blocks of rows. The RBF is
    Girard, Rasmussen, Quiñonero-Candela & Murray-Smith (2003).

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> x = Uncertain(np.zeros((1, 1)), np.full((1, 1, 1), 4.0))
    >>> expected_kernel(RBF(gamma=1.0), x, np.array([[0.0]]))  # 1/√(1 + 2·4)
    array([[0.3333]])
    """
    algebra.require_shape("Y", Y, "m", x.mean.shape[1])
    w = x.working
    return backend.cast_like(_summed(terms_of(kernel, w), w, backend.working(Y)), x.mean)


def expected_between(kernel: Kernel, x: Uncertain, other: Uncertain) -> Array:
    """Return E k(x_i, x'_j), (n, m), for rows that are independent of each other.

    Notes
    -----
    O(n m d³) for the RBF over pairs that are both uncertain; pairs of which one is known cost
    what `expected_kernel` costs.
    """
    algebra.require_shape("the other rows", other.mean, "m", x.mean.shape[1])
    a, sure, unsure = _known_first(x.working)
    b, sure_right, unsure_right = _known_first(other.working)
    found = terms_of(kernel, unsure, unsure_right)
    xp = backend.namespace(x.mean)
    both = len(sure) and len(sure_right)
    known = kernel(sure.mean, sure_right.mean) if both else sure.mean @ sure_right.mean.T
    top = [known, _summed(found, unsure_right, sure.mean).T]
    bottom = [_summed(found, unsure, sure_right.mean), _summed(found, unsure, unsure_right)]
    K = xp.concat([xp.concat(top, axis=1), xp.concat(bottom, axis=1)], axis=0)
    K = backend.take(backend.take(K, np.argsort(a)), np.argsort(b), axis=1)
    return backend.cast_like(K, x.mean)


def expected_diag(kernel: Kernel, x: Uncertain) -> Array:
    """Return E k(x_i, x_i), (n,)."""
    xp, w = backend.namespace(x.mean), x.working
    total = xp.zeros_like(w.mean[:, 0])
    for term in terms_of(kernel, w):
        factors = (polynomial_diagonal(w, poly) for poly in term.polys)
        total = total + prod(factors, start=term.factor)
    return backend.cast_like(total, x.mean)


def expected_gram(kernel: Kernel, x: Uncertain) -> Array:
    """Return E k(x_i, x_j), (n, n), with E k(x_i, x_i) on the diagonal.

    It is positive semi-definite where the kernel is: the Gram matrix of E φ(x_i), and beyond it
    the variance of each φ(x_i) on the diagonal.
    """
    xp = backend.namespace(x.mean)
    K = expected_between(kernel, x, x)
    eye = backend.identity(len(x), K)
    return xp.where(eye > 0, expected_diag(kernel, x)[:, None] * eye, (K + K.T) / 2)


def _summed(found: list[Term], x: Uncertain, other: Array | Uncertain) -> Array:
    """Return the expectations of all terms, (n, m), against known rows or over uncertain pairs.

    Rows x are taken in blocks of a few megabytes.
    """
    pair = isinstance(other, Uncertain)
    gaussian: Callable[..., Array] = gaussian_between if pair else gaussian_against
    polynomial: Callable[..., Array] = polynomial_between if pair else polynomial_against
    Y = other.mean if isinstance(other, Uncertain) else other
    xp, (m, d) = backend.namespace(Y), Y.shape
    blocks = [x.mean[:0, :] @ Y.T]
    step = max(1, backend.BLOCK_BYTES // (8 * max(int(m * d + d * d), 1)))
    for rows in backend.slices(len(x) if m else 0, step):
        part = x.block(rows)
        total = xp.zeros_like(part.mean @ Y.T)
        for term in found:
            value = gaussian(part, other, term.rates) if term.is_gaussian else 1.0
            factors = (polynomial(part, other, poly) for poly in term.polys)
            total = total + term.factor * prod(factors, start=value)
        blocks.append(total)
    return xp.concat(blocks, axis=0) if m else x.mean @ Y.T


def _known_first(x: Uncertain) -> tuple[Host, Uncertain, Uncertain]:
    """Return an order of the rows with the known ones first, the known rows and the others."""
    order, known = np.argsort(~x.certain, kind="stable"), int(x.certain.sum())
    return order, x.take(order[:known]), x.take(order[known:])


# --- Cov[k(x, y_i), k(x, y_j)] of one uncertain row with many known ones -------------------------


def projected_covariance(kernel: Kernel, x: Uncertain, Y: Array, A: Array) -> Array:
    """Return Aᵀ Cov[k(x_i, ·)] A, (n, q, q): the uncertainty of coordinates kᵀA, row by row.

    Parameters
    ----------
    kernel : Kernel
        RBF, Linear, Polynomial (degree 1, 2, 3), Constant, their sums and multiples, or a product
        of RBFs.
    x : Uncertain
    Y : array of shape (m, d)
    A : array of shape (m, q)
        Coefficients over the rows of Y. Centring with the training means adds a constant, and
        so does not change the covariance.

    Notes
    -----
    Zero for known rows. O(n (d³ + m d² + m² d)), and m² numbers at once.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import Linear
    >>> x = Uncertain(np.zeros((1, 2)), np.array([[[1.0, 0.0], [0.0, 4.0]]]))
    >>> projected_covariance(Linear(), x, np.array([[1.0, 0.0], [1.0, 1.0]]), np.eye(2))
    array([[[1., 1.], [1., 5.]]])
    """
    algebra.require_shape("Y", Y, "m", x.mean.shape[1])
    found, w = expectation_terms(kernel, int(Y.shape[1])), x.working
    if any(len(term.polys) + term.is_gaussian > 1 for term in found):
        what = "without products other than of RBFs"
        raise ValueError(expected("kernel", what, kernel, KNOWN_EXPECTATIONS))
    xp, V, A = backend.namespace(Y), backend.working(Y), backend.working(A)
    zero = (A.T @ A)[None, :, :] * 0
    rows = [zero[:0, :, :]]
    for i, known in enumerate(x.certain):
        one = w.block(slice(i, i + 1))
        rows.append(zero if known else (A.T @ _covariance(found, one, V) @ A)[None, :, :])
    return backend.cast_like(xp.concat(rows, axis=0), x.mean)


def _covariance(found: list[Term], x: Uncertain, Y: Array) -> Array:
    """Return Cov[k(x, y_j), k(x, y_l)] of one row x, (m, m), summed over pairs of terms."""
    total = backend.namespace(Y).zeros_like(Y @ Y.T)
    found = sorted(found, key=lambda term: term.is_gaussian)
    for i, s in enumerate(found):
        for t in found[: i + 1]:  # t is Gaussian only if s is
            if t.is_gaussian:
                C = two_gaussians(x, Y, s.rates, t.rates)
            elif s.is_gaussian and t.polys:
                C = gaussian_and_polynomial(x, Y, s.rates, t.polys[0])
            elif s.polys and t.polys:
                C = two_polynomials(x, Y, s.polys[0], t.polys[0])
            else:
                continue  # a constant
            total = total + (1 if s is t else 2) * s.factor * t.factor * C
    return (total + total.T) / 2


def two_gaussians(x: Uncertain, Y: Array, rates: Host, others: Host) -> Array:
    """Return the covariance of exp(−‖x − y_j‖²_R) and exp(−‖x − y_l‖²_T), (m, m).

    Their product is exp(−‖y_j − y_l‖²_{RT/(R+T)}) exp(−‖x − ȳ‖²_{R+T}) at the mean ȳ of y_j and
    y_l, weighted by R and T; its expectation is that of one Gaussian with rates R + T.
    """
    xp = backend.namespace(Y)
    both = rates + others
    share = rates / (both + (both == 0))
    D = Y - x.mean
    B, half_log_det = whiten(x.covariance, both)
    U = (D * backend.asarray(share, Y)) @ B[0, :, :].T
    V = (D * backend.asarray(1 - share, Y)) @ B[0, :, :].T
    G = D * xp.sqrt(backend.asarray(share * others, Y))
    u, v, g = (xp.sum(M * M, axis=1) for M in (U, V, G))
    gap = g[:, None] + g[None, :] - 2 * G @ G.T
    power = u[:, None] + v[None, :] + 2 * U @ V.T + gap + half_log_det[0]
    left, right = (gaussian_against(x, Y, r)[0, :] for r in (rates, others))
    return xp.exp(-power) - left[:, None] * right[None, :]


def gaussian_and_polynomial(x: Uncertain, Y: Array, rates: Host, poly: Poly) -> Array:
    """Return the covariance of exp(−‖x − y_j‖²_R) and (Σ_c w_c x_c y_lc + c)ᵖ, (m, m).

    The first, times the density of x, is a Gaussian again: x given an observation of y_j with
    precision 2R, which has mean m + 2SBᵀB(y_j − m) and covariance S − 2SBᵀBS.
    """
    m, S = x.mean[0, :], x.covariance[0, :, :]
    B = whiten(x.covariance, rates)[0][0, :, :]
    T = 2 * (S @ B.T) @ B
    tilted = Uncertain(x.mean, (S - T @ S)[None, :, :])
    centre, variance = projections(tilted, Y, poly)
    mean = centre + (Y - m) @ T.T @ (Y * backend.asarray(poly.weights, Y)).T
    change = moment(mean, variance, poly.degree) - polynomial_against(x, Y, poly)
    return gaussian_against(x, Y, rates)[0, :][:, None] * change


def two_polynomials(x: Uncertain, Y: Array, poly: Poly, other: Poly) -> Array:
    """Return Cov[tᵖ, uʳ] = Σ_k Cov[t, u]ᵏ/k! E[(tᵖ)⁽ᵏ⁾] E[(uʳ)⁽ᵏ⁾], (m, m), t and u Gaussian."""
    S = x.covariance[0, :, :]
    C = (Y * backend.asarray(poly.weights, Y)) @ S @ (Y * backend.asarray(other.weights, Y)).T
    total = backend.namespace(Y).zeros_like(C)
    for k in range(1, min(poly.degree, other.degree) + 1):
        left, right = (
            perm(p.degree, k) * moment(*projections(x, Y, p), p.degree - k)[0, :]
            for p in (poly, other)
        )
        total = total + C**k / factorial(k) * left[:, None] * right[None, :]
    return total
