"""Direct solvers: QR of the rows, or an eigendecomposition of one of the two Gram matrices."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.operators import Factored, Operator, Spectrum
from dualpca.solvers.base import Solver

EIGH_SUBSET, EIGH_FULL, FACTORISE = 5.0, 12.0, 6.0
"""Multiply-adds of a large product that last as long as one step of these, per m³."""


def concentration(A: Array, trace: float) -> float | None:
    """Return ‖A‖²_F / trace² = Σλ² / (Σλ)²; O(m²), a block of rows at a time."""
    if not trace > 0:
        return None
    total = 0.0
    for rows in backend.row_slices(A):
        flat = backend.namespace(A).reshape(A[rows, :] / trace, (-1,))
        total += float(flat @ flat)
    return total


class QR(Solver):
    """QR of the rows in blocks, then a singular value decomposition of the triangle.

    Never squares the condition number: singular values are right to ε·σ₁. O(nd·min(n, d)).
    """

    name: ClassVar[str] = "qr"

    @staticmethod
    def cost(operator: Operator, rank: int) -> float:
        """Return the cost of QR on the smaller side."""
        if not isinstance(operator, Factored):
            return float("inf")
        m = float(min(operator.shape[0], operator.mirror.shape[0]))
        return FACTORISE * operator.pass_cost * m + 2 * EIGH_FULL * m**3

    def solve(self, operator: Factored, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the leading eigenpairs."""
        side, trace = min(operator, operator.mirror, key=lambda A: A.shape[0]), operator.trace
        _, s, Vt = algebra.svd(side.triangle())
        vectors = Vt[:rank, :].T if side is operator else operator.unmirror(Vt[:rank, :].T)
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
        return operator.dense_cost + (EIGH_FULL if 3 * rank > m else EIGH_SUBSET) * float(m) ** 3

    def solve(self, operator: Operator, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the leading eigenpairs."""
        A, trace = operator.dense(), operator.trace
        share = concentration(A, trace)  # before A is overwritten
        values, vectors = algebra.top_eigh(A, rank)
        return Spectrum.of(values, vectors, trace, operator.dim, concentration=share)


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
