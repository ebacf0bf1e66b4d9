"""Wishart log-densities of kernel matrices (Zhang et al. 2004, section 2.2 and Eq. 22).

ρ independent feature dimensions g_j ~ N(0, Σ) give K = Σ_j g_j g_jᵀ ~ W_n(ρ, Σ). With ρ ≥ n the
matrix is positive definite and has a density on all of them; with ρ < n its rank is ρ, and the
density is one on the matrices of that rank (Uhlig 1994).
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dualpca.arrays import Array, backend
from dualpca.errors import DegenerateError, expected

ZERO_EIGENVALUE = 1e-12
"""Share of the largest eigenvalue below which one is zero."""


def wishart_roots(rng: np.random.Generator, count: int, q: int, rho: float) -> NDArray[np.float64]:
    """Draw lower triangles A with AAᵀ ~ W_q(ρ, I), (count, q, q), by Bartlett's decomposition.

    Examples
    --------
    >>> A = wishart_roots(np.random.default_rng(0), 20_000, 2, 5.5)
    >>> bool(np.allclose(np.mean(A @ A.swapaxes(1, 2), axis=0), 5.5 * np.eye(2), atol=0.1))
    True
    """
    A = np.tril(rng.standard_normal((count, q, q)), -1)
    each = np.arange(q)
    A[:, each, each] = np.sqrt(rng.chisquare(rho - each, size=(count, q)))
    return A


def log_wishart(K: Array, scale: Array, rho: float) -> float:
    """Return ln p(K) for K ~ W_n(ρ, Σ), the singular density where ρ < n.

    −½{ρ ln|Σ| + tr(Σ⁻¹K) − (ρ − n − 1) ln|K| + ρn ln 2} − ln Γ_n(ρ/2) for ρ > n − 1 (Zhang et al.
    2004, Eq. 22);
    for an integer ρ < n, on the n×n matrices of rank ρ, ln|K| is over the ρ eigenvalues that are
    not zero, Γ_ρ(ρ/2) stands for Γ_n(ρ/2), and −ρ(n − ρ)/2 · ln π is added.

    Parameters
    ----------
    K : array of shape (n, n)
        Positive definite; of rank ρ where ρ < n.
    scale : array of shape (n, n)
        Σ, positive definite. For the model K ~ W_n(ρ, Σ/ρ) of Zhang et al. (2004), whose mean is
        Σ, pass Σ/ρ.
    rho : float
        ρ, the degrees of freedom: more than n − 1, or an integer from 1.

    Notes
    -----
    O(n³). The singular density is with respect to the measure
    (dK) = 2^{−ρ} Π_i l_i^{n−ρ} Π_{i<j} (l_i − l_j) (H₁ᵀdH₁) ∧ dl_1 ∧ … ∧ dl_ρ with K = H₁LH₁ᵀ, so
    densities of different ranks do not compare.

    References
    ----------
    Uhlig (1994), On singular Wishart and singular multivariate beta distributions, Theorem 6;
    Díaz-García, Gutiérrez-Jáimez & Mardia (1997); Srivastava (2003).

    Examples
    --------
    >>> import numpy as np
    >>> round(log_wishart(np.eye(2), np.eye(2), 3), 4)  # −1 − ln(4π)
    -3.531
    >>> round(log_wishart(np.diag([1.0, 0.0]), np.eye(2), 1), 4)  # −½ − ln(2π)
    -2.3379
    """
    n = int(K.shape[0])
    if K.ndim != 2 or K.shape[1] != n:
        raise ValueError(expected("K", "a square matrix", tuple(K.shape)))
    if tuple(scale.shape) != (n, n):
        raise ValueError(expected("scale", f"of the shape of K, ({n}, {n})", tuple(scale.shape)))
    given: Any = rho
    if isinstance(given, bool) or not isinstance(given, Real) or not math.isfinite(given):
        raise ValueError(expected("rho", "a finite number", rho))
    if rho <= n - 1 and (rho < 1 or rho % 1 != 0):
        raise ValueError(expected("rho", f"an integer from 1, or more than {n - 1}", rho))
    rank = n if rho > n - 1 else int(rho)
    xp = backend.namespace(K)
    sign, logdet = xp.linalg.slogdet(scale)
    if float(sign) <= 0:
        raise ValueError(expected("scale", "positive definite", f"a determinant of sign {sign}"))
    fit = float(xp.linalg.trace(xp.linalg.solve(scale, K)))
    constant = rho * n * math.log(2) + rank * (n - rank) * math.log(math.pi)
    spread = (rho - n - 1) * _log_pseudo_determinant(K, rank)
    whole = rho * float(logdet) + fit - spread + constant
    return -0.5 * whole - float(special.multigammaln(rho / 2, rank))


def _log_pseudo_determinant(K: Array, rank: int) -> float:
    """Return Σ ln of the `rank` largest eigenvalues; the others have to be zero."""
    xp, n = backend.namespace(K), int(K.shape[0])
    values = xp.linalg.eigvalsh((K + K.T) / 2)
    largest = float(values[-1])
    held = int(xp.sum(xp.astype(values > ZERO_EIGENVALUE * largest, xp.int64)))
    if held != rank or float(values[0]) < -100 * n * ZERO_EIGENVALUE * abs(largest):
        raise DegenerateError(
            f"K must be positive semi-definite of rank {rank} to have this Wishart density, got "
            f"{held} eigenvalues above zero, the smallest {float(values[0]):.3g}. Use rho={held} "
            "if the rank is right; add a little to the diagonal if rounding made it so."
        )
    return float(xp.sum(xp.log(values[n - rank :])))
