"""Exact solvers: QR of the rows, LAPACK, and Krylov spaces, by one vector or by blocks.

A single start vector sees one eigenvector of every eigenvalue, however many equal ones there are:
on points in a ring or on a grid ARPACK misses pairs. A second, short iteration from another vector,
orthogonal to all that was found, tells; its Ritz values also show whether some are negative.

Read `leading_pairs` (Lanczos with that look), `QR`, `Dense` and `MirrorGram` (a matrix is stored),
`lanczos` (one vector at a time, on a kernel that can be formed), `Krylov` (blocks, on anything) and
`root_times` (square roots).
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import optimize
from scipy.linalg.blas import dsymv
from scipy.linalg.lapack import dormqr, dstemr, dsterf, dsytrd, dsytrd_lwork
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from dualpca.arrays import EPS, Array, algebra, backend, note
from dualpca.data import Host
from dualpca.errors import SolverWarning, warn
from dualpca.operators import (
    ALL_EIGENVALUES_ORDER,
    Factored,
    Negatives,
    Operator,
    Spectrum,
    is_certainly_definite,
    negatives_of_matrix,
)
from dualpca.solvers.base import (
    OF_DOUBLE,
    Accuracy,
    KernelOptions,
    Solver,
    attainable,
    threads_for,
)

# --- Lanczos, one vector at a time: ARPACK, and a look at what it may have missed ----------------

VECTORS_PER_PAIR, SPARE_VECTORS = 2.5, 20
"""Of the basis, for every eigenpair and beyond: one cycle is enough for most kernels."""

FEWEST_POINTS, POINTS_PER_PAIR, MOST_POINTS = 256, 16, 4096
"""Of a scatter matrix: smallest order, order per pair, and largest order."""

LOOK_STEPS, MOST_LOOK_STEPS = 14, 42
"""Of the second iteration: usually, and where the first unwanted value is close to the wanted."""

CANCELLED = 1e-2
"""Share of a vector's length, left after projection, below which it is projected again."""

BEYOND = 1e-9
"""Relative excess of a Ritz value over the last eigenvalue from which an eigenpair was missed."""

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

    centring = False

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
    if rest.high > (1 + BEYOND) * values[0] or not values[0] > 0:
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


def eigen_cost(m: int, rank: int, *, all_values: bool = False, gpu: bool = False) -> float:
    """Return the cost of `rank` eigenpairs of a stored matrix, and perhaps all eigenvalues."""
    if gpu:
        first, second, third = GPU_EIGH
        every = ((third * m + second) * m + first) * m
        few = GPU_BLOCKS + GPU_BASIS * float(m) ** 2
        return min(every, few) if gpu_suits(m, rank) and not all_values else every
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


def top_pairs(A: Array, rank: int, wanted: Accuracy = OF_DOUBLE) -> tuple[Array, Array]:
    """Return the `rank` largest eigenvalues of a stored matrix, ascending, and eigenvectors.

    By Lanczos to machine precision where that is faster, as it is where eigenvalues fall (KernelPCA
    of 500 points takes 6 ms, 13 without), or by blocks on a GPU; A is overwritten otherwise.
    """
    if backend.on_cuda(A) and gpu_suits(int(A.shape[0]), rank):
        pairs = block_pairs(A, rank, wanted)
        if pairs is not None:
            return pairs
    if suits(int(A.shape[0]), rank) and not backend.is_foreign(A) and A.flags.c_contiguous:
        with backend.threads_outside(A):
            found = leading_pairs(MatrixProducts(A), rank, 0.0, np.random.default_rng(0), RESTARTS)
        if found is not None:
            return found[:2]
    return algebra.top_eigh(A, rank)


GPU_EIGH, GPU_BLOCKS, GPU_PASS = (2.5e8, 4e4, 15.0), 4e11, 4e10
"""Multiply-adds of a large product on a GPU that last as long as all eigenpairs of a matrix, per m,
m² and m³; as a few of them by blocks; and as the small factorisations of a Krylov pass."""
GPU_LEAST, GPU_MOST, GPU_BASIS, GPU_CYCLES = 1536, 20_000, 288, 3
"""Order from which blocks are faster than all eigenpairs of a stored matrix, and largest order;
vectors of a basis, and bases before giving up."""


def gpu_suits(order: int, rank: int) -> bool:
    """Return True if blocks find so few eigenpairs of a stored matrix faster on a GPU."""
    return GPU_LEAST <= order <= GPU_MOST and 0 < rank and 12 * block_size(rank, order) <= order


def block_pairs(A: Array, rank: int, wanted: Accuracy) -> tuple[Array, Array] | None:
    """Return the `rank` largest eigenvalues of a stored matrix, ascending, and eigenvectors.

    Block Krylov that looks at its Ritz values once a basis: every look takes a GPU as long as ten
    products. None where three bases would not be enough, as of noise alone.
    """
    m = int(A.shape[0])
    b = block_size(rank, m, width_free=rank <= 16)
    depth = max(4, GPU_BASIS // b)
    V = algebra.orthonormal(backend.normal(np.random.default_rng(0), (m, b), A))
    xp, before = backend.namespace(A), math.inf
    for left in reversed(range(GPU_CYCLES)):
        blocks, images = [V], [A @ V]
        for _ in range(depth - 1):
            Q, rest = xp.concat(blocks, axis=1), images[-1]
            for _ in range(2):
                rest = rest - Q @ (Q.T @ rest)
            blocks.append(algebra.orthonormal(rest))
            images.append(A @ blocks[-1])
        Q, AQ = xp.concat(blocks, axis=1), xp.concat(images, axis=1)
        values, weights = descending_eigh(Q.T @ AQ)
        vectors = Q @ weights
        theta = backend.to_numpy(values)
        left_over = xp.linalg.vector_norm(AQ @ weights - vectors * values, axis=0)
        rho = backend.to_numpy(left_over)
        gap = np.maximum(theta[:rank] - unexplored(theta, rho, rank), rho[:rank])
        angle = float(np.max(rho[:rank] / gap))
        if not np.isfinite(angle):
            return None
        floor = 50 * EPS * max(theta[0], 0.0)
        if angle <= wanted.angle or bool(np.all(rho[:rank] <= floor)):
            return xp.flip(values[:rank], axis=0), xp.flip(vectors[:, :rank], axis=1)
        # as much again for every basis that is left, and a little more
        if angle * (angle / min(before, 1.0)) ** left > 10 * wanted.angle:
            return None
        before, V = angle, algebra.orthonormal(vectors[:, :b])
    return None


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
        if isinstance(operator, Factored):
            side = min(operator, operator.mirror, key=lambda A: A.shape[0])
            _, s, Vt = algebra.svd(side.triangle())
            vectors = Vt[:rank, :].T if side is operator else operator.unmirror(Vt[:rank, :].T)
        else:  # FFᵀ of a thin F: nothing (m, m) is formed
            with backend.threads_outside(operator.like):
                Q, R = np.linalg.qr(operator.factor())
                U, s, _ = np.linalg.svd(R)
                vectors = Q @ U[:, :rank]
        trace = operator.trace
        share = concentration((s * s)[:, None], trace)
        return Spectrum(s[:rank] ** 2, vectors, trace, operator.dim, concentration=share).ordered()


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
        gpu = backend.on_cuda(operator.like)
        return operator.dense_cost + eigen_cost(m, rank, all_values=look, gpu=gpu)

    def solve(self, operator: Operator, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the leading eigenpairs."""
        m = operator.shape[0]
        large = m > BLAS_ALONE_ORDER or operator.dense_cost > backend.BLAS_ALONE
        alone = large and m <= ONE_THREAD_ORDER
        with backend.threads_outside(operator.like) if alone else nullcontext():
            A, trace = operator.dense_for(rank), operator.trace
            share = concentration(A, trace)  # before A is overwritten
            if not _looks(operator, rank):
                (values, vectors), negatives = top_pairs(A, rank, attainable(operator)), None
                values, vectors = (backend.alongside(a, operator.like) for a in (values, vectors))
            else:
                values, vectors, negatives = _pairs_and_negatives(A, rank, operator.eps)
        return Spectrum(values, vectors, trace, operator.dim, 0.0, share, negatives).ordered()


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
        return unmirrored(found, operator)


def unmirrored(found: Spectrum, operator: Factored) -> Spectrum:
    """Return eigenpairs of FᵀF from those of its mirror image."""
    vectors = algebra.deterministic_signs(operator.unmirror(found.vectors))
    return replace(found, vectors=vectors)


# --- One vector at a time: a kernel that can be formed -------------------------------------------

ORTHOGONALISE = 8.0
"""How many times longer than a large product orthogonalisation takes."""

CERTAIN_ORDER = 256
"""Order up to which a Cholesky factor takes little time beside the eigenpairs."""


def lanczos_cost(operator: Operator, rank: int) -> float:
    """Return the cost in multiply-adds of a large matrix product; infinite if unsuitable."""
    m = operator.shape[0]
    if 2 * basis_size(rank) > m or rank < 1:
        return float("inf")
    return operator.dense_cost + pairs_cost(m, rank) if operator.formable else float("inf")


def lanczos(operator: Operator, rank: int, tol: float, rng: np.random.Generator) -> Spectrum | None:
    """Return leading eigenpairs, one vector at a time; None if some may be missing.

    Parameters
    ----------
    operator : Operator
        On the host: a matrix that can be formed.
    rank : int
    tol : float
        Relative eigenvalue error that may remain; residuals are those of `attainable` if 0.
    rng : Generator
        Draws the start vectors.

    Notes
    -----
    O(m²) a step, 2.5q + 34 steps usually, and the matrix, (m, m): ten components of 1,500 points
    take 54 ms, with blocks 120.
    """
    with backend.threads_outside(operator.like):
        residual = max(attainable(operator).residual, 0.5 * tol)
        A = MatrixProducts(*operator.matrix())
        found = leading_pairs(A, rank, residual, rng)
        if found is None:
            return None
        values, vectors, rest = found
        gap = np.maximum(values - rest.high, residual * values)
        error = float(np.max(residual * np.minimum(1.0, residual * values / gap)))
        negatives = None if operator.definite else _negatives(operator, A, rest, values)
        trace = operator.trace
    return Spectrum(values, vectors, trace, operator.dim, error, negatives=negatives).ordered()


def _negatives(
    operator: Operator, A: MatrixProducts, rest: Remainder, values: Host
) -> Negatives | None:
    """Return how much of an operator is negative, whose leading eigenvalues are known.

    If that can be counted later, what the look estimated is enough until someone asks: counting
    takes a fit to 1,000 points from 18 to 107 ms. A Cholesky factor of the matrix, or of a part
    where that is large, sees more than the look.
    """
    m = operator.shape[0]
    few, indefinite = m <= ALL_EIGENVALUES_ORDER, rest.low < -m * operator.eps * values[-1]
    if indefinite and operator.lasting:
        positive = max(operator.trace + rest.negative, float(values.sum()))
        return Negatives(rest.negative, positive + rest.negative, estimated=True)
    if few and (indefinite or not is_certainly_definite(A.corner(CERTAIN_ORDER))):
        return negatives_of_matrix(A.centred(), operator.eps)
    if indefinite:
        return None
    return Negatives(0.0, operator.trace, operator.lasting and CERTAIN_ORDER < m and few)


# --- The Krylov space that eigenpairs and square roots of an operator are looked for in ----------


def norms(A: Host, axis: int) -> Host:
    """Return lengths along an axis; no square leaves the range of float64 on the way."""
    scale = float(np.abs(A).max(initial=0.0))
    found: Host = scale * np.linalg.norm(A / (scale or 1.0), axis=axis)
    return found


def descending_eigh(T: Array) -> tuple[Array, Array]:
    """Return the eigenpairs of a nearly symmetric matrix, largest first."""
    xp = backend.namespace(T)
    values, vectors = xp.linalg.eigh((T + T.T) / 2)
    return xp.flip(values, axis=0), xp.flip(vectors, axis=1)


class Basis:
    """An orthonormal basis Q of a Krylov space, kept as rows Qᵀ, and T = QᵀAQ."""

    def __init__(self, start: Array, capacity: int, *, exact_first: bool = False) -> None:
        m, self.size = start.shape
        self.fresh = self.size  # vectors whose product with A is not known yet
        self.exact_first = exact_first  # the first product alone is not rounded to few bits
        self.beside: Array | None = None  # how the fresh vectors follow from those before them
        self.capacity = max(capacity, self.size)
        self.Qt = backend.empty((self.capacity, m), start)
        self.T = backend.asarray(np.zeros((self.capacity, self.capacity)), start)
        self.Qt[: self.size, :] = start.T

    def combine(self, weights: Array) -> Array:
        """Return Q times `weights`, (m, k)."""
        return (weights.T @ self.Qt[: self.size, :]).T

    def expand(self, A: Operator) -> Array:
        """Multiply the fresh vectors by A; keep QᵀAQ, return R of the part outside of Q.

        The orthonormal factor of that part, the next block, is orthogonalised again once it has
        unit length: directions of little more than rounding size would spoil the basis.
        """
        old = self.size - self.fresh
        Qt = self.Qt[: self.size, :]
        V = Qt[old:, :].T
        Zt = (A.times_in_double(V) if self.exact_first and not old else A @ V).T
        Ht = Zt @ Qt.T
        if self.exact_first and self.beside is not None:  # known better than from this product
            Ht[:, :old] = 0.0
            Ht[:, old - self.beside.shape[1] : old] = self.beside
        self.T[old : self.size, : self.size] = Ht
        self.T[: self.size, old : self.size] = Ht.T
        U, s, Vt = algebra.svd((Zt - Ht @ Qt).T)
        self.next = algebra.orthonormal(U - (U.T @ Qt.T @ Qt).T)
        return s[:, None] * Vt

    def ritz(self) -> tuple[Array, Array]:
        """Return the eigenpairs of T, largest first."""
        return descending_eigh(self.T[: self.size, : self.size])

    def scale(self) -> Array:
        """Return the largest diagonal entry of T, (1,): the largest Ritz value is no smaller."""
        xp = backend.namespace(self.T)
        return xp.max(xp.linalg.diagonal(self.T), keepdims=True)

    def advance(self, rest: Array, values: Array, weights: Array | None, keep: int) -> bool:
        """Append the next block, restarting from `keep` Ritz vectors if there is no room."""
        lengths = norms(backend.to_numpy(rest), axis=1)
        kept = int(np.sum(lengths > 50 * EPS * max(float(values[0]), 0.0)))
        kept = min(kept, self.Qt.shape[1] - self.size)
        if kept == 0:
            return False
        if weights is not None and self.size + kept > self.capacity:
            self.Qt[:keep, :] = self.combine(weights[:, :keep]).T
            self.T *= 0.0
            for p in range(keep):
                self.T[p, p] = values[p]
            self.size = keep
        self.Qt[self.size : self.size + kept, :] = self.next[:, :kept].T
        self.size, self.fresh, self.beside = self.size + kept, kept, rest[:kept, :]
        return True


# --- Matrix-free block Krylov iteration with a stop on the error that is left --------------------

BASIS_BLOCKS, FEWEST_BLOCKS, BASIS_BYTES = 16, 6, 2**30
"""Blocks in a basis: so many, unless they would take more bytes than this, but never fewer."""
SETTLED = 0.1
"""Residual of an unwanted Ritz value, as a share of its distance from the wanted, that will do."""
SKETCH_STEP, SKETCH_PASSES, WORTH_A_SKETCH, RANDOM_SHARE = 16, 3, 1e8, 1e-2
"""Of a start by a sketch: every so many rows, products, multiply-adds of a pass from which it
pays, and the share of a random block that stays in."""
WORTH_A_GUESS = 32
"""Points a column of the block from which an operator's own guess pays."""
SAFETY = 0.5
"""Share of `tol` that estimates must reach: they may be too small by a third."""
STEEPEST = 60.0
"""Largest power by which eigenvalues that were not computed are taken to fall."""
EXPENSIVE = 5e7
"""Multiply-adds of a product with one vector."""
TYPICAL_PASSES, SKINNY = 12, 2.0
"""For the cost: passes of a usual run, and how much slower a product with a thin block is than a
large one."""
VECTORS_KEPT, UNCHECKED = 12, 5
"""Where blocks are narrower than the pairs wanted: vectors in a basis for every pair, at least, and
up to how many for every pair nobody looks whether they are enough."""
SINGLE_NOISE = 5e-9
"""Length of a residual beside the largest eigenvalue that may be rounding error of products with
float32 rows."""
COPY_WIDTH = 1e-5
"""Relative difference up to which Ritz values count as one eigenvalue, of which a block holds no
more copies than it has vectors."""
PASS_COST, NEGATIVES_COST = 1e7, 240.0
"""Multiply-adds that last as long as the calls of a pass, whatever the size; products with one
vector that last as long as the search for negative eigenvalues."""


THINNED, FEWEST_LED, LED_TOL = 8, 64, 1e-5
"""Of a start from a part of the points: one in so many, of which there are so many a column of the
block at least, and the relative error of eigenvalues among them, which their choice exceeds."""
ROUNDED_BLOCKS = 6
"""Blocks of a basis of which all but the first come from rounded products."""


def rounded_block(rank: int, order: int) -> int:
    """Return the width of a block for products that take as long for 32 columns as for fewer.

    One column is left for the means, which come with the first product.
    """
    return min(order, -(-(2 * rank + 5) // 32) * 32 - 1)


def block_size(
    rank: int, order: int, *, width_free: bool = False, widest: int | None = None
) -> int:
    """Return the width of a block: a fifth more than wanted, to separate the last ones.

    A multiple of 8, which suits vector registers; twice the number wanted where products with
    wide blocks cost little more than with thin ones; `widest` where that is less than half of it.
    """
    width = 2 * rank + 4 if width_free else rank + max(4, rank // 5)
    width = -(-width // 8) * 8
    return min(order, width if widest is None or width <= 2 * widest else widest)


def basis_vectors(rank: int, b: int, m: int) -> int:
    """Return how many vectors a basis of blocks of b holds, for `rank` eigenvectors of length m."""
    wanted = max(BASIS_BLOCKS * b, VECTORS_KEPT * rank if b < rank else 0)
    return min(m, max(FEWEST_BLOCKS * max(b, rank), min(wanted, BASIS_BYTES // (8 * m))))


def vectors_combined(A: Operator, rank: int, b: int) -> int:
    """Return how many vectors a basis is left with: a block of them where they are sharpened."""
    return max(rank, b) if A.single and A.width_free else rank


class Corrected(NamedTuple):
    """Ritz values, a block of their vectors, their relative error, and if that is too large."""

    values: Array
    vectors: Array
    error: float
    passes: int
    unsettled: bool


@dataclass(frozen=True)
class Krylov(Solver):
    """Block Lanczos with full reorthogonalisation and thick restarts.

    A pass multiplies the operator with one block; nothing larger than the basis, 16 blocks, is
    kept. It works on the smaller of FᵀF and FFᵀ where both exist.

    The relative error of a Ritz value θ with residual ρ is at most min(ρ, ρ²/gap)/θ, the gap
    reaching from θ to what the operator still holds outside of the basis (Mathias 1998). The
    iteration stops when that is below `tol` for every wanted value; where `tol` is 0, when it is
    rounding error of the rows and ρ/gap, the angle of the vector, is below 5e-10, or below 1e-5 for
    float32 rows (`attainable`).

    Parameters
    ----------
    tol : float
        Relative eigenvalue error; 0 for the precision of the rows.
    max_passes : int
        Products with a block before giving up with a `SolverWarning`.
    thin : bool
        Go one vector at a time (`solvers.lanczos`) where that is cheaper, with blocks if it fails.
    """

    name: ClassVar[str] = "krylov"
    aliases: ClassVar[tuple[str, ...]] = ("arpack", "randomized")
    svd_names: ClassVar[tuple[str, ...]] = aliases
    draws: ClassVar[bool] = True
    on_kernels: ClassVar[bool] = True
    on_chunks: ClassVar[bool] = True
    max_passes: int = 300
    thin: bool = False

    @classmethod
    def of(cls, how: KernelOptions) -> Krylov:
        """Return the solver for kernels: one vector at a time unless it was asked for by name."""
        passes = cls.max_passes if how.max_passes is None else how.max_passes
        return cls(how.tol, passes, thin=how.entry is None)

    @classmethod
    def gains(cls, operator: Operator, rank: int) -> bool:
        """Return True unless a block would fill the space."""
        return not math.isinf(cls.cost(operator, rank))

    @staticmethod
    def cost(operator: Operator, rank: int) -> float:
        """Return the cost of a usual run; infinite where the blocks would fill the space."""
        thin = lanczos_cost(smaller_side(operator), rank)
        return min(Krylov.block_cost(operator, rank), thin)

    @staticmethod
    def block_cost(operator: Operator, rank: int) -> float:
        """Return the cost with blocks."""
        m = smaller_side(operator).shape[0]
        full, b = (block_size(rank, m, widest=w) for w in (None, operator.widest_block))
        if 4 * full > m:
            return float("inf")
        passes = TYPICAL_PASSES * math.sqrt(full / b)
        work = SKINNY * operator.pass_cost + ORTHOGONALISE * m * passes * b
        calls = GPU_PASS if backend.on_cuda(operator.like) else PASS_COST
        found = passes * (b * float(work) + calls + EIGH_FULL * (0.5 * passes * b) ** 3)
        return found + (0.0 if operator.definite else NEGATIVES_COST * float(operator.pass_cost))

    def solve(self, operator: Operator, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the `rank` leading eigenpairs."""
        side, found = smaller_side(operator), None
        if self.thin and lanczos_cost(side, rank) < self.block_cost(operator, rank):
            found = lanczos(side, rank, self.tol, rng)
        if found is None:
            with threads_for(side):
                found = self._by_blocks(side, min(rank, side.shape[0]), rng)
        if not isinstance(operator, Factored) or side is operator:
            return found
        return unmirrored(found, operator)

    def _by_blocks(self, A: Operator, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the leading eigenpairs."""
        if A.coarse:
            ritz, found, error = self._from_rounded(A, rank, rng)
            values, vectors = ritz[:rank], found[:, :rank]
        else:
            b = block_size(rank, A.shape[0], width_free=A.width_free, widest=A.widest_block)
            ritz, found, error, beyond = self._iterate(A, rank, rng, b)
            if b < rank and hides_copies(backend.to_numpy(ritz)[:rank], rank, b):
                b = block_size(rank, A.shape[0])
                ritz, found, error, beyond = self._iterate(A, rank, rng, b)
            values, vectors = ritz[:rank], found[:, :rank]
            if A.single:
                values, vectors, error = rayleigh_ritz(A, found, rank, beyond)
        share = None  # left to random probes, unless a product more would be felt
        if A.pass_cost > EXPENSIVE:
            share = extrapolated_concentration(ritz, A.trace, A.shape[0], rank)
        return Spectrum(values, vectors, A.trace, A.dim, error, share).ordered()

    def _from_rounded(
        self, A: Operator, rank: int, rng: np.random.Generator
    ) -> tuple[Array, Array, float]:
        """Return Ritz values, a block of their vectors, and the relative error of those wanted.

        Every second, fourth, … point tells nearly all (`start_led`): one product in full precision
        with what it leads to, and the corrections, which are small, from rounded ones. They are
        small if the start was good; otherwise the next basis starts from what they lead to.
        """
        V, smallest = self._start_led(A, rounded_block(rank, A.shape[0]), rank, rng)
        passes, rough = 0, A.rounding <= SAFETY * self.tol * smallest
        while True:
            found = self._corrected(A, V, rank, passes, rough=rough)
            passes, last = found.passes, found.passes >= self.max_passes
            if found.unsettled and last:
                self._warn_of_error(found.error)
            if last or not found.unsettled:
                return found.values, found.vectors, found.error
            V, rough = algebra.orthonormal(found.vectors), False

    def _corrected(
        self, A: Operator, V: Array, rank: int, passes: int, *, rough: bool
    ) -> Corrected:
        """Return what one basis that starts with V, (m, b), leads to, after so many passes.

        All of its products may be rough where rounding errors are below what is asked for.
        """
        b, exact = V.shape[1], 0 if rough else V.shape[1]
        basis = Basis(V, min(A.shape[0], ROUNDED_BLOCKS * b), exact_first=not rough)
        while True:
            rest = basis.expand(A)
            passes += 1
            values, weights = basis.ritz()
            part = rest @ weights[-rest.shape[1] :, :]
            errors, beyond, done = self._errors(A, values, part, rank)
            error, blurred = self._blur(A, values, weights[exact:, :], errors, beyond)
            note(f"pass {passes}: relative error of eigenvalues {error:.1e}")
            ended = basis.size + rest.shape[1] > basis.capacity or passes >= self.max_passes
            if done or ended or not basis.advance(rest, values, weights, 0):
                break
        unsettled = blurred or (ended and not done)
        return Corrected(values, basis.combine(weights[:, :b]), error, passes, unsettled)

    def _blur(
        self, A: Operator, values: Array, corrections: Array, errors: Host, beyond: float
    ) -> tuple[float, bool]:
        """Return the relative error with what rounded products add, and if they spoil a vector."""
        rank = errors.shape[0]
        theta = backend.to_numpy(values)[:rank]
        lengths = norms(backend.to_numpy(corrections[:, :rank]), axis=0)
        gap = np.maximum(theta - beyond, A.rounding)
        turned = A.rounding * lengths / gap
        added = np.maximum(A.rounding * lengths**2, turned**2 * gap) / np.maximum(theta, gap)
        spoilt = (turned > attainable(A).angle) & (added > self.tol)
        error = float(np.max(np.maximum(errors, added), initial=0.0))
        return error, bool(np.any(spoilt))

    def _start_led(
        self, A: Operator, b: int, rank: int, rng: np.random.Generator
    ) -> tuple[Array, float]:
        """Return an orthonormal block near the leading eigenvectors, from a part of the points.

        And about how large the smallest eigenvalue wanted is, 0 where that is not known. The same
        question about an eighth of the points takes 1/64 of the time, and the product that leads
        from these to all of them an eighth of one: it saves two or three.
        """
        small = A.thinned(THINNED) if A.shape[0] >= THINNED * FEWEST_LED * b else None
        if small is None:
            return start_block(A, b, rng), 0.0
        coarse = replace(self, tol=max(self.tol, LED_TOL))
        values, found, _ = coarse._from_rounded(small, rank, rng)
        return algebra.orthonormal(A.led(THINNED, found)), THINNED * float(values[rank - 1])

    def _iterate(
        self, A: Operator, rank: int, rng: np.random.Generator, b: int
    ) -> tuple[Array, Array, float, float]:
        """Return Ritz values, vectors, their relative error, and what may be left outside."""
        m = A.shape[0]
        start = start_block(A, b, rng)
        basis = Basis(start, basis_vectors(rank, b, m))
        unchecked = UNCHECKED * rank if b < rank else 0
        for left in reversed(range(self.max_passes)):
            rest = basis.expand(A)
            if left and basis.size < unchecked and basis.advance(rest, basis.scale(), None, 0):
                continue
            values, weights = basis.ritz()
            part = rest @ weights[-rest.shape[1] :, :]
            errors, beyond, done = self._errors(A, values, part, rank)
            done = done and basis.size >= min(rank, m)
            if done or not left or not basis.advance(rest, values, weights, rank + b):
                break
        if not (done or left):
            self._warn_of_error(float(np.max(errors)))
        vectors = basis.combine(weights[:, : vectors_combined(A, rank, b)])
        return values, vectors, float(np.max(errors, initial=0.0)), beyond

    def _warn_of_error(self, error: float) -> None:
        warn(
            f"block Krylov stopped after {self.max_passes} passes with a relative eigenvalue error "
            f"near {error:.1e}; {self.tol:.1e} was asked for. Raise tol, ask for fewer components, "
            "or use solver='dense'.",
            SolverWarning,
        )

    def _errors(
        self, A: Operator, values: Array, rest: Array, rank: int
    ) -> tuple[Host, float, bool]:
        """Return relative errors, the largest value left outside, and whether all is well."""
        best = attainable(A)
        theta = backend.to_numpy(values)
        rho = norms(backend.to_numpy(rest), axis=0)
        floor = max(50 * EPS * max(theta[0], 0.0), A.noise)
        if A.single and not A.noise:  # float32 rows: what their own rounding errors leave
            floor = np.maximum(best.residual * theta[:rank], SINGLE_NOISE * theta[0])
        beyond = unexplored(theta, rho, rank)
        gap = np.maximum(theta[:rank] - beyond, rho[:rank])
        with np.errstate(divide="ignore", invalid="ignore"):
            angle = rho[:rank] / gap
            errors = rho[:rank] * angle / theta[:rank]
            settled = (rho[:rank] <= floor) | ((errors <= best.value) & (angle <= best.angle))
            errors = np.where(settled, 0.0, errors)
        return errors, beyond, bool(np.all(errors <= SAFETY * self.tol))


def hides_copies(theta: Host, rank: int, width: int) -> bool:
    """Return True if a basis grown by `width` vectors may lack eigenvectors.

    Of an eigenvalue that is repeated more often than that it holds `width` copies; where it could
    not grow to `rank` vectors, all that there are.

    Examples
    --------
    >>> hides_copies(np.array([3.0, 2.0, 2.0, 2.0, 1.0]), 5, 3)
    True
    >>> hides_copies(np.array([3.0, 2.5, 2.0, 1.5, 1.0]), 5, 3)
    False
    """
    apart = theta[: 1 - width] - theta[width - 1 :]
    return theta.size < rank or bool(np.any(apart <= COPY_WIDTH * theta[: 1 - width]))


def unexplored(theta: Host, rho: Host, rank: int) -> float:
    """Return the largest value that the operator may still hold outside of the basis.

    An unwanted Ritz value is settled when its residual is small beside its distance from the
    wanted ones; up to the first that is not, the basis holds the eigenvectors.
    """
    if theta.size <= rank:
        return 0.0
    unsettled = np.flatnonzero(rho[rank:] > SETTLED * (theta[rank - 1] - theta[rank:]))
    return float(theta[rank + unsettled[0]]) if unsettled.size else 0.0


def start_block(A: Operator, b: int, rng: np.random.Generator) -> Array:
    """Return an orthonormal block, (m, b): random, then led towards the answer by a sketch.

    Three products with a sixteenth of the data cost a fifth of a pass and save two (20,000×1,000
    rows of rank 20: 244 ms, 286 without). A little of the random block stays in, for directions
    that the sketch does not see.
    """
    random = algebra.orthonormal(backend.normal(rng, (A.shape[0], b), A.like))
    led = A.guess(random) if A.shape[0] >= WORTH_A_GUESS * b else None
    if led is not None:
        return algebra.orthonormal(algebra.orthonormal(led) + RANDOM_SHARE * random)
    small = A.sketch(SKETCH_STEP) if A.pass_cost * b >= WORTH_A_SKETCH else None
    if small is None:
        return random
    block = random
    for _ in range(SKETCH_PASSES):
        block = algebra.orthonormal(small @ block)
    return algebra.orthonormal(block + RANDOM_SHARE * random)


def extrapolated_concentration(ritz: Array, trace: float, order: int, rank: int) -> float | None:
    """Return an estimate of Σλ²/(Σλ)² over all eigenvalues.

    Those wanted and a few more are known; the others are taken to fall as a power of their
    number, from the last known one, with the power that gives their known sum. A product with
    random probes in its place takes PCA of 20,000×2,000 rows from 0.45 to 0.54 s.
    """
    if not trace > 0:
        return None
    known = rank + max(1, (block_size(rank, order) - rank) // 2)
    p = np.clip(backend.to_numpy(ritz)[:known] / trace, 0.0, None)
    number = np.arange(p.size + 1, order + 1) / p.size
    rest = max(1.0 - float(p.sum()), 0.0)
    if number.size == 0 or p[-1] * number.size <= rest:
        return float(p @ p) + (rest * rest / number.size if number.size else 0.0)
    steep = p[-1] * np.sum(number**-STEEPEST) > rest
    power = (
        STEEPEST
        if steep
        else optimize.brentq(lambda a: p[-1] * np.sum(number**-a) - rest, 0, STEEPEST)
    )
    return float(p @ p) + float(p[-1] ** 2 * np.sum(number ** (-2 * power)))


def rayleigh_ritz(
    A: Operator, vectors: Array, rank: int, beyond: float
) -> tuple[Array, Array, float]:
    """Return `rank` eigenpairs from one accurate product, and the largest relative error left.

    Errors of the vectors enter the values squared, over the gap to what is `beyond` all that
    was explored, so rounding errors of float32 in the basis leave no trace there. More vectors
    than wanted, where their products cost nothing, take up what rounding mixed into the last.
    """
    Q = algebra.orthonormal(vectors)
    Z = A.times_in_double(Q)
    values, weights = descending_eigh(Q.T @ Z)
    values, weights = values[:rank], weights[:, :rank]
    vectors = Q @ weights
    theta = np.maximum(backend.to_numpy(values), np.finfo(np.float64).tiny)
    R = (Z @ weights - vectors * values) / float(theta[0])  # so that squares stay within range
    rest = float(theta[0]) * np.sqrt(backend.to_numpy(backend.namespace(R).sum(R * R, axis=0)))
    gap = np.maximum(theta - beyond, rest)
    return values, vectors, float(np.max(rest / theta * np.minimum(rest / gap, 1.0), initial=0.0))


def smaller_side(operator: Operator) -> Operator:
    """Return FFᵀ in place of FᵀF where it is smaller."""
    sides = [operator, operator.mirror] if isinstance(operator, Factored) else [operator]
    return min(sides, key=lambda side: side.shape[0])


# --- Square roots: A^{1/2} times vectors, with no spectrum and no matrix --------------------------

COLUMNS_AT_ONCE = 16
"""Vectors that share a Krylov space."""

DEPENDENT = 100 * EPS
"""Share of the largest singular value of a block below which others are rounding errors."""


class Root(NamedTuple):
    """A^{1/2}V, and what it took."""

    product: Array  # (m, b)
    passes: int
    error: float  # estimate, relative to ‖A^{1/2}V‖


def root_times(operator: Operator, V: Array, *, tol: float = 1e-8, max_passes: int = 100) -> Root:
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
        Products with a block before giving up with a `SolverWarning`.

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
    cuts = backend.slices(int(V.shape[1]), COLUMNS_AT_ONCE)
    with threads_for(operator):
        parts = [_block_root(operator, V[:, cut], tol, max_passes) for cut in cuts]
    if not parts:
        return Root(V, 0, 0.0)
    error = max(part.error for part in parts)
    if error > tol:
        warn(
            f"Lanczos stopped after {max_passes} passes with a relative error near {error:.1e} in "
            f"the square root; {tol:.1e} was asked for. Raise tol.",
            SolverWarning,
        )
    product = xp.concat([part.product for part in parts], axis=1)
    return Root(product, sum(part.passes for part in parts), error)


def _block_root(operator: Operator, V: Array, tol: float, max_passes: int) -> Root:
    """Return A^{1/2}V of one block; exact where its Krylov space is invariant under A."""
    xp = backend.namespace(V)
    U, s, Vt = algebra.svd(V)
    b = int((backend.to_numpy(s) > DEPENDENT * float(s[0])).sum()) if s.shape[0] else 0
    if b == 0:
        return Root(0 * V, 0, 0.0)
    R = s[:b, None] * Vt[:b, :]  # V = U R, with the b columns of U that V spans
    basis = Basis(U[:, :b], min(V.shape[0], (max_passes + 1) * b))
    before, found = math.inf, 0 * R
    for k in range(1, max_passes + 1):
        rest = basis.expand(operator)
        values, weights = basis.ritz()
        # T^{1/2} times the coordinates of V in the basis; rounding below 0 counts as 0
        root = xp.sqrt(xp.where(values < 0, xp.zeros_like(values), values))
        last, found = found, (weights * root) @ (weights[:b, :].T @ R)
        # of two nested bases, the smaller one has zeros where the larger one has more vectors
        held = int(last.shape[0])
        change = math.hypot(_norm(found[:held, :] - last), _norm(found[held:, :]))
        rate = min(change / before, 1 - 1 / k) if before > 0 else 0.0
        size = _norm(found)
        error = change / (1 - rate) / size if size > 0 else 0.0
        before = change
        if error <= tol or k == max_passes:
            break
        if not basis.advance(rest, values, weights, basis.size):
            error = 0.0
            break
    return Root(basis.combine(found), k, error)


def _norm(A: Array) -> float:
    return float(backend.namespace(A).linalg.vector_norm(A))
