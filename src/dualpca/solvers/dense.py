"""Direct solvers: QR of the rows, or an eigendecomposition of one of the two Gram matrices."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.operators import Factored, Operator, Spectrum
from dualpca.solvers.base import Solver, is_factored

EIGH_SUBSET, EIGH_FULL, FACTORISE = 5.0, 12.0, 6.0
"""Multiply-adds of a large product that take the time of one step of these, per m³."""


def eigh_cost(m: int, rank: int) -> float:
    """Return the cost of the leading eigenpairs of a dense matrix of order m."""
    return (EIGH_FULL if 3 * rank > m else EIGH_SUBSET) * float(m) ** 3


def concentration(A: Array, trace: float) -> float | None:
    """Return ‖A‖²_F / trace² = Σλ² / (Σλ)²; O(m²), a block of rows at a time."""
    if not trace > 0:
        return None
    total = 0.0
    for rows in backend.slices(int(A.shape[0]), backend.block_rows(int(A.shape[1]), A)):
        flat = backend.namespace(A).reshape(A[rows, :] / trace, (-1,))
        total += float(flat @ flat)
    return total


class QR(Solver):
    """QR of the rows in blocks, then a singular value decomposition of the triangle.

    Never squares the condition number: singular values are right to ε·σ₁. O(nd·min(n, d)).
    """

    name: ClassVar[str] = "qr"

    @staticmethod
    def cost(operator: Any, rank: int) -> float:
        """Return the cost of QR on the smaller side."""
        if not is_factored(operator):
            return float("inf")
        m = float(min(operator.shape[0], operator.mirror.shape[0]))
        return FACTORISE * float(operator.pass_cost) * m + 2 * EIGH_FULL * m**3

    def solve(self, operator: Factored, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the leading eigenpairs."""
        mirrored = operator.mirror.shape[0] < operator.shape[0]
        side = operator.mirror if mirrored else operator
        _, s, Vt = algebra.svd(side.triangle())
        vectors = Vt[:rank, :].T
        if mirrored:
            vectors = operator.unmirror(vectors)
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
    def cost(operator: Any, rank: int) -> float:
        """Return the cost of forming and decomposing the matrix."""
        return float(operator.dense_cost) + eigh_cost(operator.shape[0], rank)

    def solve(self, operator: Operator, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the leading eigenpairs."""
        A = operator.dense()
        trace = operator.trace
        share = concentration(A, trace)  # before A is overwritten
        values, vectors = algebra.top_eigh(A, rank)
        return Spectrum.of(values, vectors, trace, operator.dim, concentration=share)


class Gram(Solver):
    """Eigendecomposition of the mirror image FFᵀ: the (n, n) Gram matrix of wide data."""

    name: ClassVar[str] = "gram"

    @staticmethod
    def cost(operator: Any, rank: int) -> float:
        """Return the cost of the mirror image and of leading its eigenvectors back."""
        if not is_factored(operator):
            return float("inf")
        return Dense.cost(operator.mirror, rank) + float(operator.pass_cost) * rank

    def solve(self, operator: Factored, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the leading eigenpairs, no more than the mirror image has."""
        held = min(rank, operator.mirror.shape[0])
        mirrored = Dense().solve(operator.mirror, held, rng)
        return Spectrum.of(
            mirrored.values,
            operator.unmirror(mirrored.vectors),
            operator.trace,
            operator.dim,
            concentration=mirrored.concentration,
        )
