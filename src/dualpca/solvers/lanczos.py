"""Lanczos, one vector at a time: ARPACK on a matrix that the cache holds, and a look at the rest.

A single start vector sees one eigenvector of every eigenvalue, however many equal ones there are:
on points in a ring or on a grid ARPACK misses pairs. A second, short iteration from another vector,
orthogonal to all that was found, tells; its Ritz values also show whether some are negative.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dsymv
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from dualpca.arrays import EPS, backend
from dualpca.operators import ALL_EIGENVALUES_ORDER, Operator, Spectrum, negative_mass_of

Host = np.ndarray[Any, Any]

SPARE_VECTORS = 20
"""Of the basis, beyond two for every eigenpair: one cycle is enough for most kernels."""

FEWEST_POINTS, POINTS_PER_PAIR, MOST_POINTS = 256, 16, 4096
"""Of a scatter matrix: smallest order, order per pair, and largest order."""

LOOK_STEPS, MOST_LOOK_STEPS = 14, 42
"""Of the second iteration: usually, and where the first unwanted value is close to the wanted."""

RESIDUAL = 1e-11
"""Residual of an eigenpair relative to its value: eigenvalues then have an error of its square."""

BEYOND = 1e-9
"""Relative excess of a Ritz value over the last eigenvalue from which an eigenpair was missed."""


def lanczos_cost(operator: Operator, rank: int) -> float:
    """Return the cost in multiply-adds of a large matrix product; infinite if unsuitable."""
    m, steps = operator.shape[0], 2 * rank + SPARE_VECTORS
    if 2 * steps > m or rank < 1:
        return float("inf")
    return operator.dense_cost + (steps + LOOK_STEPS) * operator.steps_cost


class Products(LinearOperator):
    """A symmetric matrix in C order, of which one triangle is read."""

    def __init__(self, A: Host, centring: bool = False) -> None:
        super().__init__(A.dtype, A.shape)  # type: ignore[call-arg]
        self.transposed, self.centring = A.T, centring

    def matvec(self, v: Host) -> Host:  # type: ignore[override]
        """Return Av; without the checks of the base class, which last longer than a product."""
        if self.centring:
            v = v - np.add.reduce(v) / v.size
        found: Host = dsymv(1.0, self.transposed, v)
        if self.centring:
            found -= np.add.reduce(found) / found.size
        return found

    _matvec = matvec

    def centred(self) -> Host:
        """Return the matrix that the products are with, fresh where it is centred."""
        A: Host = self.transposed
        if not self.centring:
            return A
        means = A.mean(axis=0)
        found: Host = A - means - means[:, None] + means.mean()
        return found


def lanczos(operator: Operator, rank: int, tol: float, rng: np.random.Generator) -> Spectrum | None:
    """Return the leading eigenpairs of a matrix that can be formed; None if some may be missing.

    Parameters
    ----------
    operator : Operator
        On the host. `operator.negative` says how much is negative, where that is known.
    rank : int
    tol : float
        Relative eigenvalue error that may remain; residuals are 1e-11 of the value at most if 0.
    rng : Generator
        Draws the start vectors.

    Notes
    -----
    O(m²) a step, 2q + 34 steps usually, and the matrix, (m, m).
    """
    with backend.threads_outside(operator.like):
        A = Products(*operator.matrix())
        m, residual = operator.shape[0], max(RESIDUAL, 0.5 * tol)
        found = leading_pairs(A, rank, residual, rng)
        if found is None:
            return None
        values, vectors, rest = found
        gap = np.maximum(values - rest.high, residual * values)
        error = float(np.max(residual * np.minimum(1.0, residual * values / gap)))
        if operator.definite:
            operator.negative = (0.0, float(values.sum()))
        elif m <= ALL_EIGENVALUES_ORDER:  # the matrix is here; few steps may not see a small one
            operator.negative = negative_mass_of(A.centred(), operator.eps)
        elif rest.low >= -m * operator.eps * values[-1]:
            operator.negative = (0.0, float(values.sum()))
        trace = operator.trace
    return Spectrum.of(values, vectors, trace, operator.dim, error)


def suits(order: int, rank: int) -> bool:
    """Return True if Lanczos finds so few eigenpairs of a scatter matrix faster than LAPACK."""
    return FEWEST_POINTS <= order <= MOST_POINTS and rank * POINTS_PER_PAIR <= order


def leading_pairs(
    A: Products, rank: int, residual: float, rng: np.random.Generator, restarts: int | None = None
) -> tuple[Host, Host, Extremes] | None:
    """Return eigenvalues, ascending, and eigenvectors, with a look at what is left.

    None where some may be missing, or where so many restarts are not enough; residuals are
    rounding errors where `residual` is 0.
    """
    start, other = rng.standard_normal((2, A.shape[0]))
    options: dict[str, Any] = {"which": "LA", "tol": residual, "v0": A.matvec(start)}
    try:
        values, vectors = eigsh(A, rank, ncv=2 * rank + SPARE_VECTORS, maxiter=restarts, **options)
    except ArpackError:
        return None
    rest = _look(A, values, vectors, A.matvec(other))
    if rest.high > (1 + BEYOND) * values[0] or not values[0] > 0:
        return None
    return values, vectors, rest


class Extremes(NamedTuple):
    """The extreme Ritz values of what is orthogonal to the eigenpairs that were found."""

    low: float
    high: float


def _look(A: Products, values: Host, vectors: Host, start: Host) -> Extremes:
    """Run Lanczos, fully reorthogonalised, on what is orthogonal to the eigenvectors.

    It stops where the largest value is known well enough to be below the last eigenvalue.
    """
    q, m = vectors.shape[1], vectors.shape[0]
    most, due = min(MOST_LOOK_STEPS, m - q), LOOK_STEPS
    basis, T = np.empty((q + most, m)), np.zeros((most, most))
    basis[:q] = vectors.T
    rest, steps = start, 0
    floor, last = 100 * EPS * float(values[-1]), (1 + BEYOND) * float(values[0])
    while steps < most:
        known = basis[: q + steps]
        rest = rest - (known @ rest) @ known
        rest -= (known @ rest) @ known
        length = float(np.sqrt(rest @ rest))
        if length <= floor:  # there is nothing else
            break
        if steps:
            T[steps, steps - 1] = T[steps - 1, steps] = length
        if steps == due:
            theta, weights = np.linalg.eigh(T[:steps, :steps])
            if theta[-1] > last or theta[-1] + length * abs(weights[-1, -1]) < values[0]:
                return Extremes(float(theta[0]), float(theta[-1]))
            due += LOOK_STEPS
        unit = np.divide(rest, length, out=basis[q + steps])
        rest = A.matvec(unit)
        T[steps, steps] = unit @ rest
        steps += 1
    theta = np.linalg.eigvalsh(T[:steps, :steps]) if steps else np.zeros(1)
    return Extremes(float(theta[0]), float(theta[-1]))
