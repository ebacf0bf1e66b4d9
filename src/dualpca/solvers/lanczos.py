"""The square root of an operator times vectors, by block Lanczos: no spectrum, no matrix."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import SolverWarning, warn
from dualpca.operators import Operator
from dualpca.solvers.base import threads_for
from dualpca.solvers.krylov import Basis

WIDTH = 16
"""Vectors that share a Krylov space."""

PASSES = 100
"""Products with a block before giving up with a `SolverWarning`."""

ROUNDING = 100 * float(np.finfo(np.float64).eps)
"""Singular values of a block below this share of the largest are rounding errors."""


class Root(NamedTuple):
    """A^{1/2}V, and what it took."""

    product: Array  # (m, b)
    passes: int
    error: float  # estimate, relative to ‖A^{1/2}V‖


def root_times(
    operator: Operator, V: Array, *, tol: float = 1e-8, max_passes: int = PASSES
) -> Root:
    """Return A^{1/2} V for a positive semi-definite operator A known through its products.

    A^{1/2}V ≈ Q T^{1/2} QᵀV with Q an orthonormal basis of span{V, AV, …, A^kV} and T = QᵀAQ
    (block Lanczos, fully reorthogonalised; Chow & Saad 2014). A pass costs one product with a
    block; memory is the basis, one (m, b) block a pass.

    Parameters
    ----------
    operator : Operator
        A, (m, m).
    V : array of shape (m, b)
    tol : float
        Estimated error, relative to ‖A^{1/2}V‖, at which to stop.
    max_passes : int

    Returns
    -------
    Root

    Notes
    -----
    The error left is estimated from the last two changes as that of a geometric sequence, whose
    rate is held below 1 − 1/k: where A has no gap above 0 the error falls as 1/k only.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.operators import Dual
    >>> X = np.array([[0.0], [3.0], [6.0]])
    >>> root_times(Dual(X, center=False), np.eye(3)).product.round(4)[1]
    array([0.    , 1.3416, 2.6833])
    """
    xp = backend.namespace(V)
    cuts = backend.slices(int(V.shape[1]), WIDTH)
    with threads_for(operator):
        parts = [_block(operator, V[:, cut], tol, max_passes) for cut in cuts]
    if not parts:
        return Root(V, 0, 0.0)
    error = max(part.error for part in parts)
    _warn_if_far(error, tol, max_passes)
    product = xp.concat([part.product for part in parts], axis=1)
    return Root(product, sum(part.passes for part in parts), error)


def _block(operator: Operator, V: Array, tol: float, max_passes: int) -> Root:
    """Return A^{1/2}V of one block; exact where its Krylov space is invariant under A."""
    start, R = _independent(V)
    m, b = start.shape
    if b == 0:
        return Root(0 * V, 0, 0.0)
    basis = Basis(start, min(m, (max_passes + 1) * b))
    before = math.inf
    found = 0 * R
    for k in range(1, max_passes + 1):
        rest = basis.expand(operator)
        values, weights = basis.ritz()
        last, found = found, _root_of(values, weights, R)
        change, size = _change(last, found), _norm(found)
        error = _error_left(before, change, k) / size if size > 0 else 0.0
        before = change
        if error <= tol or k == max_passes:
            break
        if not basis.advance(rest, values, weights, basis.size):
            error = 0.0
            break
    return Root(basis.combine(found), k, error)


def _independent(V: Array) -> tuple[Array, Array]:
    """Return V = U R with orthonormal U, (m, b) and (b, c); b is the rank of V."""
    U, s, Vt = algebra.svd(V)
    held = int((backend.to_numpy(s) > ROUNDING * float(s[0])).sum()) if s.shape[0] else 0
    return U[:, :held], s[:held, None] * Vt[:held, :]


def _root_of(values: Array, weights: Array, R: Array) -> Array:
    """Return T^{1/2} times the first block's coordinates, (k, c); rounding below 0 counts as 0."""
    xp = backend.namespace(R)
    root = xp.sqrt(xp.where(values < 0, xp.zeros_like(values), values))
    return (weights * root) @ (weights[: R.shape[0], :].T @ R)


def _change(last: Array, found: Array) -> float:
    """Return ‖Q'f' − Qf‖ of two nested bases: zeros stand where the smaller one has nothing."""
    k = int(last.shape[0])
    return math.hypot(_norm(found[:k, :] - last), _norm(found[k:, :]))


def _error_left(before: float, change: float, k: int) -> float:
    """Estimate the distance to the limit from the last two changes."""
    rate = min(change / before, 1 - 1 / k) if before > 0 else 0.0
    return change / (1 - rate)


def _norm(A: Array) -> float:
    return float(backend.namespace(A).linalg.vector_norm(A))


def _warn_if_far(error: float, tol: float, max_passes: int) -> None:
    if error > tol:
        warn(
            f"Lanczos stopped after {max_passes} passes with a relative error near {error:.1e} in "
            f"the square root; {tol:.1e} was asked for. Raise tol.",
            SolverWarning,
        )
