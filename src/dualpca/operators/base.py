"""What a solver sees: symmetric operators that need not be stored."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dualpca.arrays import EPS, Array


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
    single = False
    """Whether products carry the rounding errors of float32, except `times_in_double`."""
    coarse = False
    """Whether `sharper` has products that are rounded less."""
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
    negative: tuple[float, float] | None = None
    """Σ|λ| over the negative eigenvalues and over all, where a solver came across it."""
    estimated = False
    """Whether `negative` is an estimate, to be replaced by `negative_mass` where it matters."""
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

    def sharper(self) -> Operator:
        """Return the same operator with products that are rounded less, if it is coarse."""
        return self

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

    @abstractmethod
    def unmirror(self, vectors: Array) -> Array:
        """Turn eigenvectors of the mirror into orthonormal eigenvectors of this operator."""

    def alike(self, share: float) -> bool:
        """Return False if the diagonal shows that some eigenvalues are below a share of others."""
        return True

    @abstractmethod
    def triangle(self) -> Array:
        """Return R with RᵀR = FᵀF, from orthogonal transformations of F alone."""
