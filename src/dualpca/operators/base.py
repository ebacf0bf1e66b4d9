"""What a solver sees, symmetric operators that need not be stored, and what it gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np

from dualpca.arrays import EPS, Array, algebra, backend
from dualpca.data import Host

# --- Operators -----------------------------------------------------------------------------------


class Operator(ABC):
    """A symmetric positive semi-definite operator that need not be stored.

    Its `trace` is known without eigenvalues. Costs are in multiply-adds, so that solvers can be
    compared.

    Parameters
    ----------
    order : int
        m, the number of rows and columns.
    like : array
        Any array of the operator's library and device, to make others like it.
    dim : int, optional
        r, the dimension of the space in which the isotropic noise lives (theory 1); default: m.
    """

    pass_cost: float
    """Multiply-adds of `operator @ v` for one vector v."""
    dense_cost: float
    """Multiply-adds of `dense()`."""
    eps = EPS
    """Relative rounding error of its entries."""
    given_eps = EPS
    """Relative rounding error of the rows it was made of: no eigenpair is known better."""
    widest_block: int | None = None
    """Vectors in a block from which a product costs as much per vector; None: wide ones gain."""
    single = False
    """Whether products carry the rounding errors of float32, except `times_in_double`."""
    noise = 0.0
    """Length of a product with a unit vector that may be rounding error of float32 values."""
    coarse = False
    """Whether products are rounded to a few bits, except `times_in_double`."""
    rounding = 0.0
    """Length of a product with a unit vector that may be rounding error, where it is coarse."""
    width_free = False
    """Whether a product with a wide block costs little more than one with a thin one."""
    factor_width: int | None = None
    """r where `factor` is a thin (m, r) matrix; None where there is no such factor."""
    formable = False
    """Whether `matrix` may be stored, on the host, for products with one vector at a time."""
    definite = True
    """Whether it has no negative eigenvalues, whatever the rows."""
    lasting = False
    """Whether the same operator can be made again: what is not needed now can be found later."""
    threads_outside = False
    """Whether products distribute work to threads of their own: BLAS should use one."""

    def __init__(self, order: int, like: Array, dim: int | None = None) -> None:
        self.shape, self.like, self.dim = (order, order), like, order if dim is None else dim

    @property
    @abstractmethod
    def trace(self) -> float:
        """Sum of all eigenvalues."""

    @abstractmethod
    def __matmul__(self, V: Array) -> Array:
        """Product with a block of vectors, (m, b)."""

    @abstractmethod
    def dense(self) -> Array:
        """Return the operator as a fresh (m, m) array that the caller may overwrite."""

    def dense_for(self, rank: int) -> Array:
        """Return `dense()`, good enough for the `rank` leading eigenpairs and the trace."""
        return self.dense()

    def matrix(self) -> tuple[Array, bool]:
        """Return a matrix, not to be modified, and whether the operator is what centring leaves."""
        return self.dense(), False

    def factor(self) -> Array:
        """Return F, (m, r), with FFᵀ the operator, where `factor_width` is r."""
        raise TypeError(f"{type(self).__name__} has no thin factor")

    def times_in_double(self, V: Array) -> Array:
        """Return the product in float64 throughout."""
        return self @ V

    def thinned(self, step: int) -> Operator | None:
        """Return the operator over every `step`-th point alone, or None."""
        return None

    def led(self, step: int, vectors: Array) -> Array:
        """Return vectors over all points, (m, b), from those over every `step`-th of them."""
        raise TypeError(f"{type(self).__name__} has no part that leads to all of it")

    def guess(self, block: Array) -> Array | None:
        """Return a block nearer to the leading eigenvectors than a random one, (m, b), or None."""
        return None

    def sketch(self, step: int) -> Operator | None:
        """Return an operator near this one with products `step` times cheaper, or None."""
        return None


class Factored(Operator):
    """An operator FᵀF whose mirror image FFᵀ has the same non-zero eigenvalues."""

    @property
    @abstractmethod
    def mirror(self) -> Factored:
        """The operator FFᵀ."""

    def half(self, V: Array) -> Array:
        """Return F V, of which FᵀF V is made."""
        raise TypeError(f"{type(self).__name__} has no products with half of it")

    @abstractmethod
    def unmirror(self, vectors: Array) -> Array:
        """Turn eigenvectors of the mirror into orthonormal eigenvectors of this operator."""

    def alike(self, share: float) -> bool:
        """Return False if the diagonal shows that some eigenvalues are below a share of others."""
        return True

    @abstractmethod
    def triangle(self) -> Array:
        """Return R with RᵀR = FᵀF, from orthogonal transformations of F alone."""


# --- The leading eigenpairs: all that a closed-form model needs (theory 1.1 and 2) ---------------

ROUNDING_SHARE = 1e-10
"""Share of Σ|λ| below which negative eigenvalues are rounding errors."""


class Negatives(NamedTuple):
    """The negative eigenvalues of an operator, beside all of them."""

    negative: float  # Σ|λ| over the negative ones
    total: float  # Σ|λ| over all
    estimated: bool = False  # to be counted where it matters

    @classmethod
    def of(cls, values: Host, weights: Host | float, share: float) -> Negatives:
        """Count eigenvalues, each so many times, but for a share of the largest."""
        below = -share * np.abs(values).max(initial=0.0)
        negative = np.where(values < below, -values, 0.0)
        return cls(float(np.sum(weights * negative)), float(np.sum(weights * np.abs(values))))

    @property
    def positive(self) -> float | None:
        """Sum of the positive eigenvalues, where it is not the trace but for rounding errors."""
        matter = self.negative > ROUNDING_SHARE * self.total
        return self.total - self.negative if matter else None


@dataclass(frozen=True)
class Spectrum:
    """Leading eigenpairs λ₁ ≥ … ≥ λ_q of an operator, with its trace (theory 1.1 and 2).

    Parameters
    ----------
    values : array of shape (q,)
        Eigenvalues λ, largest first, none negative.
    vectors : array of shape (m, q)
        Orthonormal eigenvectors; m = d in the primal, m = n in the dual.
    trace : float
        Sum of all eigenvalues, the discarded ones included.
    dim : int
        r, the dimension of the space in which the isotropic noise lives.
    error : float
        Estimate of the largest relative error of `values`; 0 for direct solvers.
    concentration : float, optional
        Σλ² / (Σλ)² over all eigenvalues, where the solver knows it: exactly from direct ones, by
        extrapolation from block Krylov on large operators.
    negatives : Negatives, optional
        How much of the operator is negative, where the solver came across it.

    Examples
    --------
    >>> import numpy as np
    >>> s = Spectrum(np.array([1.0, 4.0]), np.array([[0.0, -1.0], [1.0, 0.0]]), 5.0, 2).ordered()
    >>> s.values
    array([4., 1.])
    >>> s.vectors[0, 0]
    np.float64(1.0)
    """

    values: Annotated[Array, "q"]
    vectors: Annotated[Array, "m q"]
    trace: float
    dim: Annotated[int, ">= 0"]
    error: Annotated[float, "or nan, or inf"] = 0.0
    concentration: float | None = None
    negatives: Negatives | None = None

    def ordered(self) -> Spectrum:
        """Return raw eigenpairs ordered, clipped and signed.

        The entry of largest magnitude of every eigenvector is positive (the first one, on ties).
        """
        order, xp = backend.descending(self.values), backend.namespace(self.values)
        values = backend.take(self.values, order)
        if backend.is_foreign(values):
            values = xp.where(values < 0, xp.zeros_like(values), values)
        else:
            values = np.maximum(values, 0.0)
        vectors = algebra.deterministic_signs(backend.take(self.vectors, order, axis=1))
        return replace(self, values=values, vectors=vectors)

    @property
    def rank(self) -> int:
        """q, the number of eigenpairs held."""
        return int(self.values.shape[0])

    def head(self, q: int) -> Spectrum:
        """Return the q leading eigenpairs."""
        if q == self.rank:
            return self
        return replace(self, values=self.values[:q], vectors=self.vectors[:, :q])
