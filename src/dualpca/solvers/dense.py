"""Solvers of a matrix that is stored: QR of the rows, LAPACK, or Lanczos with a look beyond.

A single start vector sees one eigenvector of every eigenvalue, however many equal ones there are:
on points in a ring or on a grid ARPACK misses pairs. A second, short iteration from another vector,
orthogonal to all that was found, tells; its Ritz values also show whether some are negative.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg.blas import dsymv
from scipy.linalg.lapack import dormqr, dstemr, dsterf, dsytrd, dsytrd_lwork
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from dualpca.arrays import EPS, Array, algebra, backend
from dualpca.data import Host
from dualpca.operators import (
    ALL_EIGENVALUES_ORDER,
    Factored,
    Negatives,
    Operator,
    Spectrum,
    is_certainly_definite,
)
from dualpca.solvers.base import Solver

# --- Lanczos, one vector at a time: ARPACK, and a look at what it may have missed ----------------

VECTORS_PER_PAIR, SPARE_VECTORS = 2.5, 20
"""Of the basis, for every eigenpair and beyond: one cycle is enough for most kernels."""

FEWEST_POINTS, POINTS_PER_PAIR, MOST_POINTS = 256, 16, 4096
"""Of a scatter matrix: smallest order, order per pair, and largest order."""

LOOK_STEPS, MOST_LOOK_STEPS = 14, 42
"""Of the second iteration: usually, and where the first unwanted value is close to the wanted."""

CANCELLED = 1e-2
"""Share of a vector's length, left after projection, below which it is projected again."""

BEYOND, ROUNDED_BEYOND = 1e-9, 16
"""Relative excess of a Ritz value over the last eigenvalue from which an eigenpair was missed; or
so many rounding errors of the products."""

STEP_COST, ENTRY_COST, FETCH_COST, CACHED_ORDER = 1.0e6, 3.0, 10.0, 1600
"""Multiply-adds of a large product that last as long as a step without its product, as an entry of
the matrix in one, and as fetching an entry that the cache does not hold, beyond this order."""


def basis_size(rank: int) -> int:
    """Return the number of vectors among which so many eigenpairs are looked for."""
    return int(VECTORS_PER_PAIR * rank) + SPARE_VECTORS


def pairs_cost(order: int, rank: int) -> float:
    """Return the cost of a few eigenpairs of a matrix that is stored."""
    entries = float(order) ** 2
    fetched = max(0.0, entries - float(CACHED_ORDER) ** 2)
    step = STEP_COST + ENTRY_COST * entries + FETCH_COST * fetched
    return (basis_size(rank) + LOOK_STEPS) * step


def suits(order: int, rank: int) -> bool:
    """Return True if Lanczos finds so few eigenpairs of a scatter matrix faster than LAPACK."""
    return FEWEST_POINTS <= order <= MOST_POINTS and rank * POINTS_PER_PAIR <= order


class Products(LinearOperator):
    """A symmetric operator, known through products with one vector, on the host.

    Without the checks of the base class, which last longer than a product.
    """

    eps, centring = EPS, False

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__(np.dtype(np.float64), shape)  # type: ignore[call-arg]

    def _matvec(self, v: Host) -> Host:
        return self.matvec(v)


class MatrixProducts(Products):
    """Products with a matrix in C order, of which one triangle is read."""

    def __init__(self, A: Host, centring: bool = False) -> None:
        super().__init__(A.shape)
        self.transposed, self.centring = A.T, centring

    def matvec(self, v: Host) -> Host:  # type: ignore[override]
        """Return Av."""
        if self.centring:
            v = v - np.add.reduce(v) / v.size
        found: Host = dsymv(1.0, self.transposed, v)
        if self.centring:
            found -= np.add.reduce(found) / found.size
        return found

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


def leading_pairs(
    A: Products,
    rank: int,
    residual: float,
    rng: np.random.Generator,
    restarts: int | None = None,
) -> tuple[Host, Host, Remainder] | None:
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
    beyond = max(BEYOND, ROUNDED_BEYOND * A.eps)
    if rest.high > (1 + beyond) * values[0] or not values[0] > 0:
        return None
    return values, vectors, rest


class Remainder(NamedTuple):
    """What is orthogonal to the eigenpairs that were found: its extreme Ritz values, and more."""

    low: float
    high: float
    negative: float = 0.0
    """Estimate of Σ|λ| over negative eigenvalues, from the Gauss rule of the start vector."""


def _look(A: Products, values: Host, vectors: Host, start: Host) -> Remainder:
    """Run Lanczos, fully reorthogonalised, on what is orthogonal to the eigenvectors.

    It stops where the largest value is known well enough to be below the last eigenvalue.
    """
    q, m = vectors.shape[1], vectors.shape[0]
    most, due = min(MOST_LOOK_STEPS + 1, m - q), LOOK_STEPS + 1
    basis, T = np.empty((q + most, m)), np.zeros((most, most))
    basis[:q] = vectors.T
    rest, steps = start - np.add.reduce(start) / m if A.centring else start, 0
    high = float(values[-1])
    beyond = max(BEYOND, ROUNDED_BEYOND * A.eps)
    floor, last, below = 100 * EPS * high, (1 + beyond) * float(values[0]), -m * EPS * high
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
    return Remainder(float(theta[0]), float(theta[-1]), negative)


# --- Direct solvers ------------------------------------------------------------------------------

EIGH_SUBSET, EIGH_FULL, FACTORISE = 5.0, 12.0, 6.0
"""Multiply-adds of a large product that last as long as one step of these, per m³."""

MEASURED_ORDER = 1024
"""Largest order of the matrices on which the constants below were measured."""

SUBSET, FULL = (0.7, 450.0), (3.3, 900.0)
"""The same for direct solvers on few pairs and on all, per m³ and per m²."""

ALL_VALUES = 350.0
"""The same for all eigenvalues of a tridiagonal matrix, per m²."""


def eigen_cost(m: int, rank: int, *, all_values: bool = False) -> float:
    """Return the cost of `rank` eigenpairs of a stored matrix, and perhaps all eigenvalues."""
    few = 3 * rank <= m
    if m > MEASURED_ORDER:
        return (EIGH_SUBSET if few else EIGH_FULL) * float(m) ** 3
    if suits(m, rank) and not all_values:
        return pairs_cost(m, rank)
    cubes, squares = SUBSET if few else FULL
    return (cubes * m + squares + (ALL_VALUES if all_values else 0.0)) * float(m) ** 2


BLAS_ALONE_ORDER, ONE_THREAD_ORDER = 64, 600
"""Largest matrix for which BLAS takes one thread by itself, and largest that is formed and
decomposed on one: several would gain little, and wait for each other where cores are busy."""


def concentration(A: Array, trace: float) -> float | None:
    """Return ‖A‖²_F / trace² = Σλ² / (Σλ)²; O(m²), a block of rows at a time."""
    if not trace > 0:
        return None
    total = 0.0
    for rows in backend.row_slices(A):
        flat = backend.namespace(A).reshape(A[rows, :] / trace, (-1,))
        total += float(flat @ flat)
    return total


RESTARTS = 12
"""Of Lanczos: after so many a direct solver is faster."""


def top_pairs(A: Array, rank: int) -> tuple[Array, Array]:
    """Return the `rank` largest eigenvalues of a stored matrix, ascending, and eigenvectors.

    By Lanczos to machine precision where that is faster, as it is where eigenvalues fall (KernelPCA
    of 500 points takes 6 ms, 13 without); A is overwritten otherwise.
    """
    if suits(int(A.shape[0]), rank) and not backend.is_foreign(A) and A.flags.c_contiguous:
        with backend.threads_outside(A):
            found = leading_pairs(MatrixProducts(A), rank, 0.0, np.random.default_rng(0), RESTARTS)
        if found is not None:
            return found[:2]
    return algebra.top_eigh(A, rank)


def tridiagonal_pairs(A: Array, rank: int) -> tuple[Array, Array, Array] | None:
    """Return the `rank` largest eigenvalues, ascending, eigenvectors, and all eigenvalues.

    From one tridiagonal matrix, for NumPy; None where LAPACK lost some of many equal ones. Two
    decompositions in its place take KernelPCA with a sigmoid kernel of 150 points from 1.6 to
    2.2 ms.
    """
    m = int(A.shape[0])
    work = int(dsytrd_lwork(m, lower=1)[0])
    reflectors, diagonal, beside, tau, _ = dsytrd(A.copy().T, lower=1, lwork=work, overwrite_a=1)
    every, failed = dsterf(diagonal, beside)
    padded = np.append(beside, 0.0)
    count, values, Z, info = dstemr(diagonal, padded, 2, 0.0, 0.0, m - rank + 1, m)[:4]
    if failed or info or count < rank:
        return None
    Z = np.asfortranarray(Z[:, :rank])
    Z[1:], _, info = dormqr("L", "N", reflectors[1:, :-1], tau, Z[1:], ORMQR_WORK * rank)
    return values[:rank], Z, every


ORMQR_WORK = 64
"""Floats of workspace a column, as LAPACK's blocks want it."""


class QR(Solver):
    """QR of the rows in blocks, then a singular value decomposition of the triangle.

    Never squares the condition number: singular values are right to ε·σ₁. O(nd·min(n, d)).
    """

    name: ClassVar[str] = "qr"
    svd_names: ClassVar[tuple[str, ...]] = ("full",)

    @staticmethod
    def cost(operator: Operator, rank: int) -> float:
        """Return the cost of QR on the smaller side."""
        if not isinstance(operator, Factored):
            r = operator.factor_width
            if r is None or rank > r:
                return float("inf")
            return FACTORISE * float(operator.shape[0]) * r**2 + 2 * EIGH_FULL * float(r) ** 3
        m = float(min(operator.shape[0], operator.mirror.shape[0]))
        return FACTORISE * operator.pass_cost * m + 2 * EIGH_FULL * m**3

    def solve(self, operator: Operator, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the leading eigenpairs."""
        if not isinstance(operator, Factored):
            return self._of_factor(operator, rank)
        side, trace = min(operator, operator.mirror, key=lambda A: A.shape[0]), operator.trace
        _, s, Vt = algebra.svd(side.triangle())
        vectors = Vt[:rank, :].T if side is operator else operator.unmirror(Vt[:rank, :].T)
        share = concentration((s * s)[:, None], trace)
        return Spectrum.of(s[:rank] ** 2, vectors, trace, operator.dim, concentration=share)

    @staticmethod
    def _of_factor(operator: Operator, rank: int) -> Spectrum:
        """Return the leading eigenpairs of FFᵀ from a thin F; nothing (m, m) is formed."""
        with backend.threads_outside(operator.like):
            Q, R = np.linalg.qr(operator.factor())
            U, s, _ = np.linalg.svd(R)
            vectors = Q @ U[:, :rank]
        trace = operator.trace
        share = concentration((s * s)[:, None], trace)
        return Spectrum.of(s[:rank] ** 2, vectors, trace, operator.dim, concentration=share)


class Dense(Solver):
    """Eigendecomposition of the operator as a matrix: the scatter matrix of tall data.

    Eigenvalues are right to ε·λ₁. O(nd²) to form, in one pass over the rows, then O(d³).
    """

    name: ClassVar[str] = "dense"
    svd_names: ClassVar[tuple[str, ...]] = ("covariance_eigh",)
    on_kernels: ClassVar[bool] = True
    on_chunks: ClassVar[bool] = True

    @staticmethod
    def cost(operator: Operator, rank: int) -> float:
        """Return the cost of forming and decomposing the matrix."""
        m = operator.shape[0]
        look = _looks(operator, rank) and rank < m
        return operator.dense_cost + eigen_cost(m, rank, all_values=look)

    def solve(self, operator: Operator, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the leading eigenpairs."""
        m = operator.shape[0]
        large = m > BLAS_ALONE_ORDER or operator.dense_cost > backend.BLAS_ALONE
        alone = large and m <= ONE_THREAD_ORDER
        with backend.threads_outside(operator.like) if alone else nullcontext():
            A, trace = operator.dense_for(rank), operator.trace
            share = concentration(A, trace)  # before A is overwritten
            if not _looks(operator, rank):
                (values, vectors), negatives = top_pairs(A, rank), None
            else:
                values, vectors, negatives = _pairs_and_negatives(A, rank, operator.eps)
        return Spectrum.of(values, vectors, trace, operator.dim, 0.0, share, negatives)


def _looks(operator: Operator, rank: int) -> bool:
    """Return True if negative eigenvalues are to be looked for beside the leading pairs."""
    m = operator.shape[0]
    within = rank == m or m <= ALL_EIGENVALUES_ORDER
    return within and not operator.definite


def _pairs_and_negatives(A: Array, rank: int, eps: float) -> tuple[Array, Array, Negatives]:
    """Return the leading pairs, and how much is negative."""
    m = int(A.shape[0])
    if rank == m:
        values, vectors = top_pairs(A, rank)
        return values, vectors, Negatives.of(backend.to_numpy(values), 1.0, m * eps)
    K = backend.to_numpy(A)
    if is_certainly_definite(K):
        total = float(K.trace())  # before A is overwritten
        return *top_pairs(A, rank), Negatives(0.0, total)
    found = None if backend.is_foreign(A) or not rank else tridiagonal_pairs(A, rank)
    if found is None:
        every = np.linalg.eigvalsh(K)
        found = *top_pairs(A, rank), every
    values, vectors, every = found
    return values, vectors, Negatives.of(every, 1.0, m * eps)


class MirrorGram(Solver):
    """Eigendecomposition of the mirror image FFᵀ: the (n, n) Gram matrix of wide data."""

    name: ClassVar[str] = "gram"

    @staticmethod
    def cost(operator: Operator, rank: int) -> float:
        """Return the cost of the mirror image and of leading its eigenvectors back."""
        if not isinstance(operator, Factored):
            return float("inf")
        return Dense.cost(operator.mirror, rank) + operator.pass_cost * rank

    def solve(self, operator: Factored, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the leading eigenpairs, no more than the mirror image has."""
        found = Dense().solve(operator.mirror, min(rank, operator.mirror.shape[0]), rng)
        values, vectors, share = found.values, operator.unmirror(found.vectors), found.concentration
        return Spectrum.of(values, vectors, operator.trace, operator.dim, concentration=share)
