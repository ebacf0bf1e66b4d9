"""What can be wrong with a kernel matrix: digits lost by centring, negative eigenvalues."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.errors import SolverWarning, SpectrumWarning, warn
from dualpca.operators.base import Operator

# --- What centring takes away: the digits of a kernel whose values hardly differ -----------------

EPS = float(np.finfo(np.float64).eps)

SMALLEST_SHARE = 5e-11
"""Of the size of a kernel, that centring may leave: five digits for exact solvers. Landmarks lose
directions below 1e-12."""


def warn_of_cancellation(X: Array, total: float, trace: float) -> None:
    """Warn where centring leaves little but rounding errors, although rows differ.

    Kernel values carry errors of ε·Σk(x, x), and tr Kc is all that is left of them: xᵀy of rows
    far from the origin, or an RBF far wider than the data, loses digits that nothing brings back.
    Rows that are all the same have nothing to lose.

    Parameters
    ----------
    X : array of shape (n, d), or (n,) for items, of which nothing is said
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
        "first, or take a kernel that tells these rows apart (a larger gamma).",
        SolverWarning,
    )


def _rows_differ(X: Array) -> bool:
    if backend.is_sparse(X):
        return bool(abs(X - X[[0] * X.shape[0]]).sum() > 0)
    return bool(backend.namespace(X).any(X != X[:1, :]))


# --- How indefinite an operator is: the sum of its negative eigenvalues --------------------------

DENSE = 1500
"""Order up to which all eigenvalues are computed."""

PROBES, STEPS = 8, 10

NOTHING = 1e-10
"""Share of Σ|λ| below which negative eigenvalues are rounding errors."""


def negative_mass(A: Operator, rng: np.random.Generator) -> tuple[float, float]:
    """Return Σ|λ| over the negative eigenvalues and over all.

    Exact up to order 1,500; beyond, an estimate by stochastic Lanczos quadrature (Ubaru, Chen &
    Saad 2017) from 8 probes and 10 products with them.
    """
    m = A.shape[0]
    if m <= DENSE:
        values = np.linalg.eigvalsh(backend.to_numpy(A.dense()))
        weights = np.ones(m)
    else:
        values, weights = quadrature(A, rng)
    rounding = m * getattr(A, "eps", EPS) * np.abs(values).max(initial=0.0)
    negative = np.where(values < -rounding, -values, 0.0)
    return float(weights @ negative), float(weights @ np.abs(values))


def quadrature(A: Operator, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return nodes and weights with Σ weight·f(node) near tr f(A), from random probes."""
    m = A.shape[0]
    Q = [rng.choice([-1.0, 1.0], size=(m, PROBES)) / np.sqrt(m)]
    alphas, betas = np.zeros((STEPS, PROBES)), np.zeros((STEPS, PROBES))
    for k in range(STEPS):
        R = backend.to_numpy(A @ backend.asarray(Q[k], A.like)).copy()
        alphas[k] = np.sum(Q[k] * R, axis=0)
        for _ in range(2):
            for other in Q:
                R -= other * np.sum(other * R, axis=0)
        betas[k] = np.linalg.norm(R, axis=0)
        Q.append(R / np.where(betas[k] > 0, betas[k], 1.0))
    return _gauss(alphas, betas, m)


def _gauss(alphas: Any, betas: Any, m: int) -> tuple[Any, Any]:
    """Return the Gauss rule of every probe's tridiagonal matrix, all together."""
    nodes, weights = [], []
    for p in range(alphas.shape[1]):
        off = betas[:-1, p]
        T = np.diag(alphas[:, p]) + np.diag(off, 1) + np.diag(off, -1)
        values, vectors = np.linalg.eigh(T)
        nodes.append(values)
        weights.append(m / alphas.shape[1] * vectors[0] ** 2)
    return np.concatenate(nodes), np.concatenate(weights)


def leave_out_negatives(A: Any, rng: np.random.Generator) -> None:
    """Warn where an operator has negative eigenvalues, and take them out of its trace.

    No variance is negative: shares of the trace are those of its positive part.
    """
    negative, total = negative_mass(A, rng)
    if not negative > NOTHING * total:
        return
    A.trace = total - negative
    warn(
        f"the kernel is indefinite: its negative eigenvalues sum to {-negative:.3g}, "
        f"{negative / total:.2%} of all in magnitude. They are left out: components are those of "
        "the positive ones. Use a positive semi-definite kernel if they matter.",
        SpectrumWarning,
    )
