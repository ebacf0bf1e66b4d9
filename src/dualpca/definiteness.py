"""How indefinite an operator is: the sum of its negative eigenvalues."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualpca import _array
from dualpca._typing import Operator
from dualpca._warnings import warn
from dualpca.errors import SpectrumWarning

DENSE = 1500
"""Order up to which all eigenvalues are computed."""

PROBES, STEPS = 8, 10

NOTHING = 1e-10
"""Share of Σ|λ| below which negative eigenvalues are rounding errors."""

EPS = float(np.finfo(np.float64).eps)


def negative_mass(A: Operator, rng: np.random.Generator) -> tuple[float, float]:
    """Return Σ|λ| over the negative eigenvalues and over all.

    Exact up to order 1,500; beyond, an estimate by stochastic Lanczos quadrature (Ubaru, Chen &
    Saad 2017) from 8 probes and 10 products with them.
    """
    m = A.shape[0]
    if m <= DENSE:
        values = np.linalg.eigvalsh(_array.to_numpy(A.dense()))
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
        R = _array.to_numpy(A @ _array.asarray(Q[k], A.like)).copy()
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
