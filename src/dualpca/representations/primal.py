"""The primal: FᵀF over the features, and its mirror image FFᵀ over the points."""

from __future__ import annotations

from functools import cached_property

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.moments import Moments, column_moments, namespace_sum, total_moments
from dualpca.representations.scatter import scaled_copy, unit_scale
from dualpca.rows import SAFE_OFFSET, Frame, Projection, Rows
from dualpca.spectrum import Spectrum

RUN = 64
"""Neighbouring features that a sketch takes together, since they lie together in memory."""


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
    def _columns(self) -> Array:
        """Σw(x − mean)² of every feature: from the scatter if it is there."""
        if "moments" in self.__dict__:
            return _array.namespace(self.X).linalg.diagonal(self.moments.scatter)
        return column_moments(self.X, self.weights, center=self.centered)[2]

    @cached_property
    def _totals(self) -> tuple[float, Array, float]:
        """Σw, mean and Σw‖x − mean‖²: from the scatter if it is there."""
        if "moments" in self.__dict__:
            return self.moments.n, self.moments.mean, float(namespace_sum(self._columns))
        return total_moments(self.X, self.weights, center=self.centered)

    @cached_property
    def frame(self) -> Frame:
        """Origin and unit of every feature."""
        n, mean, _ = self._totals
        return Frame(mean, unit_scale(self._columns / n) if self.standardized else None)

    @cached_property
    def rows(self) -> Rows:
        """F, as an operator."""
        n, mean, trace = self._totals
        far = n * float(mean @ mean) > SAFE_OFFSET * trace
        scaled = self.standardized and not _array.is_sparse(self.X)
        return Rows(self.X, self.weights, self.frame, explicit=far or scaled)

    @property
    def n(self) -> float:
        """Effective number of points, the sum of the weights."""
        return self._totals[0]

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
        return float(namespace_sum(self.diag())) if self.standardized else self._totals[2]

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
        squares, scale = self._columns, self.frame.scale
        return squares if scale is None else squares / (scale * scale)

    def __matmul__(self, V: Array) -> Array:
        """Return FᵀF V."""
        return self.rows.normal(V)

    def sketch(self, step: int) -> Primal:
        """Return the operator of every `step`-th row alone, in this frame: a start for solvers."""
        weights = None if self.weights is None else self.weights[::step]
        return self._part(self.X[::step, :], weights, self.frame)

    def sketch_features(self, step: int) -> Primal:
        """Return the operator of a `step`-th of the features alone, in runs of neighbours."""
        xp, runs = _array.namespace(self.X), list(_array.slices(self.dim, RUN))[::step]
        mean, scale = self.frame
        X = xp.concat([self.X[:, run] for run in runs], axis=1)
        mean = xp.concat([mean[run] for run in runs])
        scale = None if scale is None else xp.concat([scale[run] for run in runs])
        return self._part(X, self.weights, Frame(mean, scale))

    def _part(self, X: Array, weights: Array | None, frame: Frame) -> Primal:
        part = Primal(X, weights, center=self.centered)
        part.rows = Rows(X, weights, frame, explicit=self.rows.explicit)
        return part

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
        return _algebra.orthonormal(self.rows.adjoint(vectors))

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
        return self.mirror.rows.mirrored(U)

    def sketch(self, step: int) -> Mirror:
        """Return the mirror image of a `step`-th of the features alone: a start for solvers."""
        return Mirror(self.mirror.sketch_features(step))

    def dense(self) -> Array:
        """Return the (n, n) Gram matrix, fresh."""
        return self.mirror.rows.row_gram()

    def triangle(self) -> Array:
        """Return R with RᵀR = FFᵀ, without squaring the condition number."""
        return self.mirror.rows.triangle(transpose=True)

    def unmirror(self, vectors: Array) -> Array:
        """Return the points' eigenvectors e ∝ Fv."""
        return _algebra.orthonormal(self.mirror.rows.times(vectors))


def stored(X: Array) -> float:
    """Return the number of stored entries of X."""
    return float(X.nnz if _array.is_sparse(X) else X.shape[0] * X.shape[1])
