"""What can be wrong with a kernel matrix: digits lost by centring, negative eigenvalues."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf

from dualpca.arrays import EPS, Array, backend
from dualpca.errors import SolverWarning, SpectrumWarning, warn
from dualpca.operators.base import Operator
from dualpca.operators.dual import Dual

# --- What centring takes away: the digits of a kernel whose values hardly differ -----------------

SMALLEST_SHARE = 5e-11
"""Of the size of a kernel, that centring may leave: five digits for exact solvers. Landmarks lose
directions below 1e-12."""


def warn_of_cancellation(X: Array, total: float, trace: float) -> None:
    """Warn where centring leaves little but rounding errors, although rows differ.

    Kernel values carry errors of ε·Σk(x, x), and tr Kc is all that is left of them: xᵀy of rows
    far from the origin, or an RBF far wider than the data, loses digits for good.
    Rows that are all the same have nothing to lose.

    Parameters
    ----------
    X : array of shape (n, d), or (n,) for items, which are not checked
    total : float
        Σk(x, x).
    trace : float
        tr Kc, what is left of it.

    Examples
    --------
    >>> import numpy as np, warnings
    >>> X = np.array([[1e8], [1e8 + 1]])
    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     warn_of_cancellation(X, total=2e16, trace=0.5)
    >>> len(found)
    1
    """
    if trace >= SMALLEST_SHARE * total or X.ndim != 2 or not _rows_differ(X):
        return
    share = trace / total
    left = max(int(-math.log10(EPS / share)), 0) if share > EPS else 0
    warn(
        f"centring leaves {max(share, 0.0):.1g} of the size of the kernel, and {left} of its 16 "
        "digits: coordinates and variances are no more accurate than that. Subtract the mean of X "
        "first, or use a kernel that tells these rows apart (a larger gamma).",
        SolverWarning,
    )


def _rows_differ(X: Array) -> bool:
    if backend.is_sparse(X):
        return bool(abs(X - X[[0] * X.shape[0]]).sum() > 0)
    return bool(backend.namespace(X).any(X != X[:1, :]))


# --- How indefinite an operator is: the sum of its negative eigenvalues --------------------------

ALL_EIGENVALUES_ORDER = 1500
"""Order up to which all eigenvalues are computed."""

QUADRATURE_PROBES, QUADRATURE_STEPS = 8, 10
"""Of the quadrature: random vectors, and products with them."""

ROUNDING_SHARE = 1e-10
"""Share of Σ|λ| below which negative eigenvalues are rounding errors."""


def negative_mass(A: Operator, rng: np.random.Generator) -> tuple[float, float]:
    """Return Σ|λ| over the negative eigenvalues and over all.

    Exact up to order 1,500; beyond, an estimate by stochastic Lanczos quadrature (Ubaru, Chen &
    Saad 2017) from 8 probes and 10 products with them.
    """
    m = A.shape[0]
    if m <= ALL_EIGENVALUES_ORDER:
        return negative_mass_of(backend.to_numpy(A.dense()), A.eps)
    return mass_of(*quadrature(A, rng), m * A.eps)


def mass_of(values: Any, weights: Any, share: float) -> tuple[float, float]:
    """Return Σ|λ| over the negative eigenvalues and over all, but for a share of the largest."""
    rounding = share * np.abs(values).max(initial=0.0)
    negative = np.where(values < -rounding, -values, 0.0)
    return float(weights @ negative), float(weights @ np.abs(values))


def negative_mass_of(K: Any, eps: float = EPS) -> tuple[float, float]:
    """Return the same of a matrix, (m, m): from a Cholesky factor, or from all eigenvalues."""
    m = K.shape[0]
    if is_certainly_definite(K):
        return 0.0, float(K.trace())
    return mass_of(np.linalg.eigvalsh(K), np.ones(m), m * eps)


def is_certainly_definite(K: Any) -> bool:
    """Return True if a Cholesky factor proves that negative eigenvalues are rounding errors.

    A small part of the cost of eigenvalues. The shift keeps their sum below `ROUNDING_SHARE`.
    """
    m, trace = K.shape[0], float(K.trace())
    if not trace > 0:
        return False
    shifted = K.T.copy(order="F")
    shifted.flat[:: m + 1] += 0.5 * ROUNDING_SHARE * trace / m
    return bool(dpotrf(shifted, lower=1, overwrite_a=1, clean=0)[1] == 0)


def quadrature(A: Operator, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return nodes and weights with Σ weight·f(node) near tr f(A), from random probes."""
    m = A.shape[0]
    Q = [rng.choice([-1.0, 1.0], size=(m, QUADRATURE_PROBES)) / np.sqrt(m)]
    alphas, betas = (
        np.zeros((QUADRATURE_STEPS, QUADRATURE_PROBES)),
        np.zeros((QUADRATURE_STEPS, QUADRATURE_PROBES)),
    )
    for k in range(QUADRATURE_STEPS):
        R = backend.to_numpy(A @ backend.asarray(Q[k], A.like)).copy()
        alphas[k] = np.sum(Q[k] * R, axis=0)
        for _ in range(2):
            for other in Q:
                R -= other * np.sum(other * R, axis=0)
        betas[k] = np.linalg.norm(R, axis=0)
        Q.append(R / np.where(betas[k] > 0, betas[k], 1.0))
    rules = []  # the Gauss rule of every probe's tridiagonal matrix
    for alpha, beta in zip(alphas.T, betas[:-1].T, strict=True):
        values, vectors = np.linalg.eigh(np.diag(alpha) + np.diag(beta, 1) + np.diag(beta, -1))
        rules.append((values, m / QUADRATURE_PROBES * vectors[0] ** 2))
    nodes, weights = zip(*rules, strict=True)
    return np.concatenate(nodes), np.concatenate(weights)


def positive_trace(A: Dual, rng: np.random.Generator) -> float:
    """Return the sum of the positive eigenvalues, counted as `negative_mass` does; no warning."""
    negative, total = negative_mass(A, rng)
    return total - negative if negative > ROUNDING_SHARE * total else A.trace


def leave_out_negatives(A: Dual, rng: np.random.Generator) -> None:
    """Warn where an operator has negative eigenvalues, and leave them out of its trace.

    How much they are is looked for, unless a solver came across it.

    No variance is negative: shares of the trace are those of its positive part.
    """
    if A.negative is None:
        A.negative = negative_mass(A, rng)
    negative, total = A.negative
    if not negative > ROUNDING_SHARE * total:
        return
    A.trace, about = total - negative, "about " if A.estimated else ""
    warn(
        f"the kernel is indefinite: its negative eigenvalues sum to {about}{-negative:.3g}, "
        f"{negative / total:.2%} of all in magnitude. They are left out: components are those of "
        "the positive ones. Use a positive semi-definite kernel if they matter.",
        SpectrumWarning,
    )
