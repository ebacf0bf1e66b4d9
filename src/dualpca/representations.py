"""Primal and dual: two operators with the same non-zero eigenvalues (MATH 1, 2 and 7)."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import DualPCAError
from dualpca.kernels import Kernel, Linear
from dualpca.moments import Moments, column_moments
from dualpca.rows import SAFE_OFFSET, Frame, Projection, Rows
from dualpca.spectrum import Spectrum


class Primal:
    """FᵀF over the features, (d, d), for centred (weighted, scaled) rows F.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
    weights : array of shape (n,), optional
        Non-negative; their sum is the effective number of points.
    center : bool
        Subtract the (weighted) mean; otherwise the frame's mean is zero.
    standardize : bool
        Divide every feature by its standard deviation (divisor n). A constant one is left alone.

    Notes
    -----
    The centred matrix is never formed: products cost O(nd) a vector and use X as it is, or one
    block of rows at a time where X is not float64 or its mean is far from zero.

    Examples
    --------
    >>> import numpy as np
    >>> A = Primal(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 3.0]]))
    >>> A @ np.eye(2)
    array([[2., 0.],
           [0., 6.]])
    >>> A.trace
    8.0
    """

    def __init__(
        self,
        X: Array,
        weights: Array | None = None,
        *,
        center: bool = True,
        standardize: bool = False,
    ) -> None:
        self.X, self.weights = X, weights
        self.centered, self.standardized = center, standardize
        self.dim = int(X.shape[1])

    @cached_property
    def moments(self) -> Moments:
        """Size, mean and scatter, in one pass; in the units of X."""
        return Moments.of(self.X, self.weights, center=self.centered)

    @cached_property
    def _columns(self) -> tuple[float, Array, Array]:
        """Σw, mean and Σw(x − mean)² of every feature: from the scatter if it is there."""
        if "moments" not in self.__dict__:
            return column_moments(self.X, self.weights, center=self.centered)
        xp = _array.namespace(self.X)
        return self.moments.n, self.moments.mean, xp.linalg.diagonal(self.moments.scatter)

    @cached_property
    def frame(self) -> Frame:
        """Origin and unit of every feature."""
        n, mean, squares = self._columns
        return Frame(mean, unit_scale(squares / n) if self.standardized else None)

    @cached_property
    def rows(self) -> Rows:
        """F, as an operator."""
        xp = _array.namespace(self.X)
        n, mean, squares = self._columns
        far = n * float(mean @ mean) > SAFE_OFFSET * float(xp.sum(squares))
        return Rows(self.X, self.weights, self.frame, explicit=far or self.standardized)

    @property
    def n(self) -> float:
        """Effective number of points, the sum of the weights."""
        return self._columns[0]

    @property
    def shape(self) -> tuple[int, int]:
        """(d, d)."""
        return (self.dim, self.dim)

    @property
    def like(self) -> Array:
        """The mean."""
        return self.frame.mean

    @property
    def trace(self) -> float:
        """‖F‖²."""
        return float(_array.namespace(self.X).sum(self.diag()))

    @property
    def pass_cost(self) -> float:
        """Two products with the rows."""
        return 2.0 * stored(self.X)

    @property
    def dense_cost(self) -> float:
        """One symmetric product."""
        return 0.5 * stored(self.X) * self.dim

    def diag(self) -> Array:
        """Return the diagonal, (d,)."""
        squares, scale = self._columns[2], self.frame.scale
        return squares if scale is None else squares / (scale * scale)

    def __matmul__(self, V: Array) -> Array:
        """Return FᵀF V."""
        return self.rows.normal(V)

    def dense(self) -> Array:
        """Return the (d, d) scatter matrix, fresh."""
        return scaled_copy(self.moments.scatter, self.frame.scale)

    def triangle(self) -> Array:
        """Return R with RᵀR = FᵀF, without squaring the condition number."""
        return self.rows.triangle()

    @property
    def mirror(self) -> Mirror:
        """FFᵀ, over the points."""
        return Mirror(self)

    def unmirror(self, vectors: Array) -> Array:
        """Return the features' eigenvectors v ∝ Fᵀe, orthonormal even where λ = 0."""
        return _array.orthonormal(self.rows.adjoint(vectors))

    def project(self, spectrum: Spectrum, X: Array) -> Projection:
        """Return coordinates on the eigenvectors and the squared distance off their span."""
        return self.frame.project(spectrum.vectors, X)

    def lift(self, spectrum: Spectrum, Y: Array) -> Array:
        """Return the rows of coordinates Y, in the units of X."""
        return self.frame.lift(spectrum.vectors, Y)


class Mirror:
    """FFᵀ over the points, (n, n): the companion of a `Primal`, for n < d."""

    def __init__(self, primal: Primal) -> None:
        self.mirror = primal
        self.dim = primal.dim

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        n = int(self.mirror.X.shape[0])
        return (n, n)

    @property
    def trace(self) -> float:
        """‖F‖²."""
        return self.mirror.trace

    @property
    def like(self) -> Array:
        """The mean."""
        return self.mirror.like

    @property
    def pass_cost(self) -> float:
        """Two products with the rows."""
        return self.mirror.pass_cost

    @property
    def dense_cost(self) -> float:
        """One symmetric product."""
        return 0.5 * stored(self.mirror.X) * self.shape[0]

    def diag(self) -> Array:
        """Return the squared norms of the rows, (n,)."""
        return self.mirror.rows.squared_norms()

    def __matmul__(self, U: Array) -> Array:
        """Return FFᵀ U."""
        rows = self.mirror.rows
        return rows.times(rows.adjoint(U))

    def dense(self) -> Array:
        """Return the (n, n) Gram matrix, fresh."""
        return self.mirror.rows.row_gram()

    def triangle(self) -> Array:
        """Return R with RᵀR = FFᵀ, without squaring the condition number."""
        return self.mirror.rows.triangle(transpose=True)

    def unmirror(self, vectors: Array) -> Array:
        """Return the points' eigenvectors e ∝ Fv."""
        return _array.orthonormal(self.mirror.rows.times(vectors))


class Scatter:
    """A scatter matrix that is already there: what streaming leaves behind.

    Parameters
    ----------
    moments : Moments
    standardize : bool
        As in `Primal`.
    """

    def __init__(self, moments: Moments, *, standardize: bool = False) -> None:
        self.moments, self.dim = moments, int(moments.mean.shape[0])
        xp = _array.namespace(moments.mean)
        variances = xp.linalg.diagonal(moments.scatter) / moments.n
        self.frame = Frame(moments.mean, unit_scale(variances) if standardize else None)
        self.n = moments.n
        self.like = moments.mean

    @property
    def shape(self) -> tuple[int, int]:
        """(d, d)."""
        return (self.dim, self.dim)

    @property
    def trace(self) -> float:
        """Sum of the diagonal."""
        return float(_array.namespace(self.like).sum(self.diag()))

    @property
    def pass_cost(self) -> float:
        """One product with the stored matrix."""
        return float(self.dim**2)

    dense_cost = 0.0

    def diag(self) -> Array:
        """Return the diagonal, (d,)."""
        squares = _array.namespace(self.like).linalg.diagonal(self.moments.scatter)
        scale = self.frame.scale
        return squares if scale is None else squares / (scale * scale)

    def __matmul__(self, V: Array) -> Array:
        """Return the product with the stored matrix."""
        scale = self.frame.scale
        if scale is None:
            return self.moments.scatter @ V
        return (self.moments.scatter @ (V / scale[:, None])) / scale[:, None]

    def dense(self) -> Array:
        """Return a copy."""
        return scaled_copy(self.moments.scatter, self.frame.scale)


class Dual:
    """The centred (weighted) kernel over the points, (n, n), evaluated in blocks (MATH 7).

    Parameters
    ----------
    X : array of shape (n, d)
    kernel : Kernel
    weights : array of shape (n,), optional
    center : bool
        Centre in feature space, with the training means.
    dim : int, optional
        r, the dimension of the isotropic noise; n unless given (MATH 1).

    Notes
    -----
    A = D^{1/2} H K Hᵀ D^{1/2} with H = I − 1wᵀ/Σw. Its products recompute K block by block, so
    memory stays O(n) beside `dense()`.
    """

    def __init__(
        self,
        X: Array,
        kernel: Kernel,
        weights: Array | None = None,
        *,
        center: bool = True,
        dim: int | None = None,
    ) -> None:
        self.X, self.kernel, self.centered = _array.working(X), kernel, center
        m = int(X.shape[0])
        self.dim = m if dim is None else dim
        self.like = _array.asarray(np.ones(m), X)
        self.weights = self.like if weights is None else weights
        self.n = float(_array.namespace(X).sum(self.weights))

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        m = int(self.X.shape[0])
        return (m, m)

    def _kernel_times(self, X: Array, V: Array) -> Array:
        """Return k(X, training points) V, a block of rows of the kernel at a time."""
        xp = _array.namespace(X)
        cut = _array.slices(X.shape[0], _array.block_rows(self.shape[0]))
        return xp.concat([self.kernel(X[rows, :], self.X) @ V for rows in cut], axis=0)

    @cached_property
    def _means(self) -> Array:
        """Weighted mean of every row of K, (n,)."""
        return self._kernel_times(self.X, self.weights[:, None])[:, 0] / self.n

    @cached_property
    def _grand_mean(self) -> float:
        return float(self.weights @ self._means) / self.n

    @cached_property
    def _root(self) -> Array:
        return _array.namespace(self.X).sqrt(self.weights)

    def squared_norms(self, X: Array) -> Array:
        """Return ‖φ(x) − φ̄‖² of every row, (n,)."""
        diagonal = self.kernel.diag(X)
        if not self.centered:
            return diagonal
        means = self._kernel_times(X, self.weights[:, None])[:, 0] / self.n
        return diagonal - 2 * means + self._grand_mean

    def diag(self) -> Array:
        """Return the diagonal, (n,)."""
        return self.weights * self.squared_norms(self.X)

    @cached_property
    def trace(self) -> float:
        """Sum of all eigenvalues."""
        return float(_array.namespace(self.X).sum(self.diag()))

    @property
    def pass_cost(self) -> float:
        """One evaluation of the kernel."""
        return float(self.shape[0] ** 2 * (1 + self.X.shape[1] / 8))

    @property
    def dense_cost(self) -> float:
        """One evaluation of the kernel."""
        return float(self.shape[0] ** 2 * self.X.shape[1])

    def _center(self, V: Array) -> Array:
        """Return Hᵀ D^{1/2} V: what the training expansion of centred vectors is."""
        V = self._root[:, None] * V
        if not self.centered:
            return V
        total = _array.namespace(V).sum(V, axis=0)
        return V - self.weights[:, None] * (total / self.n)[None, :]

    def __matmul__(self, V: Array) -> Array:
        """Return A V."""
        Y = self._kernel_times(self.X, self._center(V))
        if self.centered:
            Y = Y - (self.weights @ Y / self.n)[None, :]
        return self._root[:, None] * Y

    def dense(self) -> Array:
        """Return A, (n, n); the kernel is evaluated once and centred in place."""
        m = self.shape[0]
        A = _array.asarray(np.empty((m, m)), self.X)
        for rows in _array.slices(m, _array.block_rows(m)):
            A[rows, :] = self.kernel(self.X[rows, :], self.X)
        if self.centered:
            A -= self._means[None, :]
            A -= self._means[:, None]
            A += self._grand_mean
        A *= self._root[None, :]
        A *= self._root[:, None]
        return A

    def project(self, spectrum: Spectrum, X: Array) -> Projection:
        """Return y = kc(x)ᵀ D^{1/2} E Λ^{-1/2} and ‖φ(x) − φ̄‖² − Σy² (never negative)."""
        xp = _array.namespace(X)
        X = _array.working(X)
        E, root = spectrum.vectors, xp.sqrt(spectrum.values)
        coefficients = self._center(E) / xp.where(root > 0, root, xp.full_like(root, np.inf))
        Y = self._kernel_times(X, coefficients)
        if self.centered:
            Y = Y - (self._means @ coefficients)[None, :]
        residual = self.squared_norms(X) - xp.sum(Y * Y, axis=1)
        return Projection(Y, xp.where(residual < 0, xp.zeros_like(residual), residual))

    def lift(self, spectrum: Spectrum, Y: Array) -> Array:
        """Return the rows of coordinates Y: exact for the linear kernel, whose map is known."""
        if not isinstance(self.kernel, Linear):
            raise DualPCAError(
                f"the feature map of {self.kernel!r} has no exact inverse; expected the Linear "
                "kernel. Use a pre-image method."
            )
        root = _array.namespace(Y).sqrt(spectrum.values)
        axes = (self._center(spectrum.vectors).T @ self.X) / root[:, None]
        mean = self.weights @ self.X / self.n if self.centered else 0.0
        return Y @ axes + mean


def unit_scale(variances: Array) -> Array:
    """Return standard deviations, with 1 in place of 0 for features that do not vary."""
    xp = _array.namespace(variances)
    scale = xp.sqrt(xp.where(variances < 0, xp.zeros_like(variances), variances))
    return xp.where(scale > 0, scale, xp.ones_like(scale))


def scaled_copy(scatter: Array, scale: Array | None) -> Array:
    """Return a fresh copy of a scatter matrix, in units of the features' scales."""
    if scale is not None:
        return scatter / scale[:, None] / scale[None, :]
    return _array.namespace(scatter).asarray(scatter, copy=True)


def stored(X: Array) -> float:
    """Return the number of stored entries of X."""
    return float(X.nnz if _array.is_sparse(X) else X.shape[0] * X.shape[1])
