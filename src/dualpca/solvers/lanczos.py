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
from dualpca.operators import (
    ALL_EIGENVALUES_ORDER,
    Operator,
    Spectrum,
    is_certainly_definite,
    negative_mass_of,
)

Host = np.ndarray[Any, Any]

VECTORS_PER_PAIR, SPARE_VECTORS = 2.5, 20
"""Of the basis, for every eigenpair and beyond: one cycle is enough for most kernels."""

FEWEST_POINTS, POINTS_PER_PAIR, MOST_POINTS = 256, 16, 4096
"""Of a scatter matrix: smallest order, order per pair, and largest order."""

LOOK_STEPS, MOST_LOOK_STEPS = 14, 42
"""Of the second iteration: usually, and where the first unwanted value is close to the wanted."""

RESIDUAL = 1e-11
"""Residual of an eigenpair relative to its value: eigenvalues then have an error of its square."""

CANCELLED = 1e-2
"""Share of a vector's length, left after projection, below which it is projected again."""

BEYOND = 1e-9
"""Relative excess of a Ritz value over the last eigenvalue from which an eigenpair was missed."""


STEP_COST, ENTRY_COST, FETCH_COST, CACHED_ORDER = 1.0e6, 3.0, 10.0, 1600
"""Multiply-adds of a large product that last as long as a step without its product, as an entry of
the matrix in one, and as fetching an entry that the cache does not hold, beyond this order."""

CERTAIN_ORDER = 256
"""Order up to which a Cholesky factor takes little time beside the eigenpairs."""


def basis_size(rank: int) -> int:
    """Return the number of vectors among which so many eigenpairs are looked for."""
    return int(VECTORS_PER_PAIR * rank) + SPARE_VECTORS


def pairs_cost(order: int, rank: int) -> float:
    """Return the cost of a few eigenpairs of a matrix that is stored."""
    entries = float(order) ** 2
    fetched = max(0.0, entries - float(CACHED_ORDER) ** 2)
    step = STEP_COST + ENTRY_COST * entries + FETCH_COST * fetched
    return (basis_size(rank) + LOOK_STEPS) * step


def lanczos_cost(operator: Operator, rank: int) -> float:
    """Return the cost in multiply-adds of a large matrix product; infinite if unsuitable."""
    m = operator.shape[0]
    if 2 * basis_size(rank) > m or rank < 1 or not operator.formable:
        return float("inf")
    return operator.dense_cost + pairs_cost(m, rank)


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

    def corner(self, most: int) -> Host:
        """Return evenly spaced rows and columns of the matrix, so many at most."""
        step = -(-self.shape[0] // most)
        return self.centred(slice(None, None, step))

    def centred(self, some: slice = slice(None)) -> Host:
        """Return the matrix that the products are with, or some rows and columns of it."""
        A: Host = self.transposed[some, some]
        if not self.centring:
            return A
        means = np.add.reduce(self.transposed, axis=1) / self.shape[0]
        found: Host = A - (means[some] - np.add.reduce(means) / means.size)
        found -= means[some, None]
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
    O(m²) a step, 2.5q + 34 steps usually, and the matrix, (m, m).
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
        trace = operator.trace
        if operator.definite:
            operator.negative = (0.0, float(values.sum()))
        else:
            indefinite = rest.low < -m * operator.eps * values[-1]
            _judge(operator, A, rest, indefinite, float(values.sum()))
    return Spectrum.of(values, vectors, trace, operator.dim, error)


def _judge(operator: Operator, A: Products, rest: Rest, indefinite: bool, leading: float) -> None:
    """Say how much of an operator is negative, whose leading eigenvalues sum to `leading`.

    If that can be counted later, what the look estimated is enough until someone asks. A Cholesky
    factor of the matrix, or of a part where that is large, sees more than the look.
    """
    m = operator.shape[0]
    few = m <= ALL_EIGENVALUES_ORDER
    if indefinite and operator.lasting:
        positive = max(operator.trace + rest.negative, leading)
        operator.negative = (rest.negative, positive + rest.negative)
        operator.estimated = True
    elif few and (indefinite or not is_certainly_definite(A.corner(CERTAIN_ORDER))):
        operator.negative = negative_mass_of(A.centred(), operator.eps)
    elif not indefinite:
        operator.negative = (0.0, operator.trace)
        operator.estimated = operator.lasting and CERTAIN_ORDER < m and few


def suits(order: int, rank: int) -> bool:
    """Return True if Lanczos finds so few eigenpairs of a scatter matrix faster than LAPACK."""
    return FEWEST_POINTS <= order <= MOST_POINTS and rank * POINTS_PER_PAIR <= order


def leading_pairs(
    A: Products,
    rank: int,
    residual: float,
    rng: np.random.Generator,
    restarts: int | None = None,
) -> tuple[Host, Host, Rest] | None:
    """Return eigenvalues, ascending, and eigenvectors, with a look at what is left.

    None where some may be missing, or where so many restarts are not enough; residuals are
    rounding errors where `residual` is 0.
    """
    start, other = rng.standard_normal((2, A.shape[0]))
    options: dict[str, Any] = {"which": "LA", "tol": residual, "v0": A.matvec(start)}
    try:
        values, vectors = eigsh(A, rank, ncv=basis_size(rank), maxiter=restarts, **options)
    except ArpackError:
        return None
    rest = _look(A, values, vectors, other)
    if rest.high > (1 + BEYOND) * values[0] or not values[0] > 0:
        return None
    return values, vectors, rest


class Rest(NamedTuple):
    """What is orthogonal to the eigenpairs that were found: its extreme Ritz values, and more."""

    low: float
    high: float
    negative: float = 0.0
    """Estimate of Σ|λ| over negative eigenvalues, from the Gauss rule of the start vector."""


def _look(A: Products, values: Host, vectors: Host, start: Host) -> Rest:
    """Run Lanczos, fully reorthogonalised, on what is orthogonal to the eigenvectors.

    It stops where the largest value is known well enough to be below the last eigenvalue.
    """
    q, m = vectors.shape[1], vectors.shape[0]
    most, due = min(MOST_LOOK_STEPS + 1, m - q), LOOK_STEPS + 1
    basis, T = np.empty((q + most, m)), np.zeros((most, most))
    basis[:q] = vectors.T
    rest, steps = start - np.add.reduce(start) / m if A.centring else start, 0
    high = float(values[-1])
    floor, last, below = 100 * EPS * high, (1 + BEYOND) * float(values[0]), -m * EPS * high
    while steps < most:
        known, before = basis[: q + steps], float(np.sqrt(rest @ rest))
        rest = rest - (known @ rest) @ known
        length = float(np.sqrt(rest @ rest))
        if length < CANCELLED * before:
            rest -= (known @ rest) @ known
            length = float(np.sqrt(rest @ rest))
        if length <= floor and steps:  # there is nothing else
            break
        if steps:
            T[steps, steps - 1] = T[steps - 1, steps] = length
        if steps == due:
            theta, weights = np.linalg.eigh(T[:steps, :steps])
            if theta[-1] > last or theta[-1] + length * abs(weights[-1, -1]) < values[0]:
                break
            due += LOOK_STEPS
        unit = np.divide(rest, length or 1.0, out=basis[q + steps])
        rest = A.matvec(unit)
        T[steps, steps] = unit @ rest
        steps += 1
    theta, weights = np.linalg.eigh(T[:steps, :steps])
    negative = (m - q) * float(weights[0] ** 2 @ np.where(theta < below, -theta, 0.0))
    return Rest(float(theta[0]), float(theta[-1]), negative)
