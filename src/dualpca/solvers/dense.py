"""Direct solvers: QR of the rows, or an eigendecomposition of one of the two Gram matrices."""

from __future__ import annotations

from contextlib import nullcontext
from typing import ClassVar

import numpy as np
from scipy.linalg.lapack import dormqr, dstemr, dsterf, dsytrd, dsytrd_lwork

from dualpca.arrays import Array, algebra, backend
from dualpca.operators import (
    ALL_EIGENVALUES_ORDER,
    Factored,
    Operator,
    Spectrum,
    is_certainly_definite,
    mass_of,
)
from dualpca.solvers.base import Solver
from dualpca.solvers.lanczos import Products, leading_pairs, pairs_cost, suits

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
    if not backend.is_foreign(A) and abs(np.log10(trace)) < PLAIN_EXPONENT:
        flat = A.ravel()
        return float(flat @ flat) / trace**2
    total = 0.0
    for rows in backend.row_slices(A):
        flat = backend.namespace(A).reshape(A[rows, :] / trace, (-1,))
        total += float(flat @ flat)
    return total


PLAIN_EXPONENT = 100
"""Power of ten up to which squares stay within the range of float64."""

RESTARTS = 12
"""Of Lanczos: after so many a direct solver is faster."""


def top_pairs(A: Array, rank: int) -> tuple[Array, Array]:
    """Return the `rank` largest eigenvalues of a stored matrix, ascending, and eigenvectors.

    By Lanczos to machine precision where that is faster, as it is where eigenvalues fall; A is
    overwritten otherwise.
    """
    if suits(int(A.shape[0]), rank) and not backend.is_foreign(A) and A.flags.c_contiguous:
        with backend.threads_outside(A):
            found = leading_pairs(Products(A), rank, 0.0, np.random.default_rng(0), RESTARTS)
        if found is not None:
            return found[:2]
    return algebra.top_eigh(A, rank)


def tridiagonal_pairs(A: Array, rank: int) -> tuple[Array, Array, Array] | None:
    """Return the `rank` largest eigenvalues, ascending, eigenvectors, and all eigenvalues.

    From one tridiagonal matrix, for NumPy; None where LAPACK lost some of many equal ones.
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
    on_kernels: ClassVar[bool] = True

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
                values, vectors = top_pairs(A, rank)
            else:
                values, vectors, operator.negative = _pairs_and_negatives(A, rank, operator.eps)
        return Spectrum.of(values, vectors, trace, operator.dim, concentration=share)


def _looks(operator: Operator, rank: int) -> bool:
    """Return True if negative eigenvalues are to be looked for beside the leading pairs."""
    m = operator.shape[0]
    within = rank == m or m <= ALL_EIGENVALUES_ORDER
    return within and not operator.definite and operator.negative is None


def _pairs_and_negatives(
    A: Array, rank: int, eps: float
) -> tuple[Array, Array, tuple[float, float]]:
    """Return the leading pairs, and Σ|λ| over the negative eigenvalues and over all."""
    m, host = int(A.shape[0]), not backend.is_foreign(A)
    if rank == m:
        values, vectors = top_pairs(A, rank)
        return values, vectors, mass_of(backend.to_numpy(values), np.ones(m), m * eps)
    K = backend.to_numpy(A)
    if is_certainly_definite(K):
        total = float(K.trace())  # before A is overwritten
        return *top_pairs(A, rank), (0.0, total)
    found = tridiagonal_pairs(A, rank) if host and rank else None
    if found is None:
        every = np.linalg.eigvalsh(K)
        found = *top_pairs(A, rank), every
    values, vectors, every = found
    return values, vectors, mass_of(every, np.ones(m), m * eps)


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
