"""What a solver sees: symmetric operators that need not be stored."""

from __future__ import annotations

from typing import Protocol

from dualpca.arrays import Array


class Operator(Protocol):
    """A symmetric positive semi-definite operator that need not be stored.

    Its `trace` is known without eigenvalues and `dim` is the dimension r of the space in which
    the isotropic noise lives (theory 1). Costs are in multiply-adds and let solvers be compared.
    """

    dim: int

    @property
    def shape(self) -> tuple[int, int]:
        """Order of the operator, twice."""

    @property
    def trace(self) -> float:
        """Sum of all eigenvalues."""

    @property
    def like(self) -> Array:
        """Any array of the operator's library and device, to make others like it."""

    @property
    def pass_cost(self) -> float:
        """Multiply-adds of `operator @ v` for one vector v."""

    @property
    def dense_cost(self) -> float:
        """Multiply-adds of `dense()`."""

    def __matmul__(self, V: Array) -> Array:
        """Product with a block of vectors, (m, b)."""

    def dense(self) -> Array:
        """Return the operator as a fresh (m, m) array that the caller may overwrite."""


class Factored(Operator, Protocol):
    """An operator FᵀF whose mirror image FFᵀ has the same non-zero eigenvalues."""

    @property
    def mirror(self) -> Factored:
        """The operator FFᵀ."""

    def unmirror(self, vectors: Array) -> Array:
        """Turn eigenvectors of the mirror into orthonormal eigenvectors of this operator."""

    def triangle(self) -> Array:
        """Return R with RᵀR = FᵀF, from orthogonal transformations of F alone."""
