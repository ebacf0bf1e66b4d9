"""The primal: FᵀF over the features, from rows or as a sum over blocks; its mirror image FFᵀ."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend, note
from dualpca.data import (
    Columns,
    Host,
    InMemoryTable,
    Moments,
    Table,
    column_moments,
    has_missing,
    join,
    namespace_sum,
    refuse_nonfinite,
    total_moments,
)
from dualpca.errors import NonFiniteError, ScaleError
from dualpca.operators.rows import SAFE_OFFSET, Frame, Projection, Rows
from dualpca.operators.spectrum import Spectrum

# --- A scatter matrix that is already there, as an operator --------------------------------------


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
        xp = backend.namespace(moments.mean)
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
        return float(backend.namespace(self.like).sum(self.diag()))

    @property
    def pass_cost(self) -> float:
        """One product with the stored matrix."""
        return float(self.dim**2)

    dense_cost = 0.0

    def diag(self) -> Array:
        """Return the diagonal, (d,)."""
        squares = backend.namespace(self.like).linalg.diagonal(self.moments.scatter)
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


def unit_scale(variances: Array) -> Array:
    """Return standard deviations, with 1 in place of 0 for features that do not vary."""
    xp = backend.namespace(variances)
    scale = xp.sqrt(xp.where(variances < 0, xp.zeros_like(variances), variances))
    return xp.where(scale > 0, scale, xp.ones_like(scale))


def scaled_copy(scatter: Array, scale: Array | None) -> Array:
    """Return a fresh copy of a scatter matrix, in units of the features' scales."""
    if scale is not None:
        return scatter / scale[:, None] / scale[None, :]
    return backend.namespace(scatter).asarray(scatter, copy=True)


# --- The primal: FᵀF over the features, and its mirror image FFᵀ over the points -----------------

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
            return backend.namespace(self.X).linalg.diagonal(self.moments.scatter)
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
        scaled = self.standardized and not backend.is_sparse(self.X)
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
        xp, runs = backend.namespace(self.X), list(backend.slices(self.dim, RUN))[::step]
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
        return algebra.orthonormal(self.rows.adjoint(vectors))

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
        return algebra.orthonormal(self.mirror.rows.times(vectors))


def stored(X: Array) -> float:
    """Return the number of stored entries of X."""
    return float(X.nnz if backend.is_sparse(X) else X.shape[0] * X.shape[1])


# --- The scatter of a table in parts: moments that add, or a product that does -------------------

WIDEST = 4000
"""Number of features up to which the (d, d) moments are gathered: 128 MB a part at work."""


class Survey(NamedTuple):
    """What one pass over complete rows finds: moments, or columns alone where d is large.

    Where a part holds NaN, `holes` says so and moments are left.
    """

    columns: Columns | None
    moments: Moments | None  # None too where all rows weigh nothing
    holes: bool
    used: int  # rows that weigh something

    def merge(self, other: Survey) -> Survey:
        """Join two disjoint sets of rows."""
        holes = self.holes or other.holes
        columns = moments = None
        if self.columns is not None and other.columns is not None:
            columns = self.columns.merge(other.columns)
        if not holes:
            moments = join(Moments.merge, self.moments, other.moments)
        return Survey(columns, moments, holes, self.used + other.used)


def weighed(rows: Host, weights: Host | None = None) -> Moments | None:
    """Return the moments of rows, None where they weigh nothing."""
    if weights is None or weights.any():
        with backend.threads_outside(rows):
            return Moments.of(rows, weights)
    refuse_nonfinite(rows)
    return None


def survey(parts: Table, *, wide: bool, nan: bool) -> Survey:
    """Read all rows once: their moments, unless d is large, and whether values are missing.

    Parameters
    ----------
    parts : Table
    wide : bool
        Leave the (d, d) scatter out.
    nan : bool
        Let NaN pass; it is refused otherwise.
    """

    def of(rows: Host, weights: Host | None = None) -> Survey:
        used = len(rows) if weights is None else int((weights > 0).sum())
        if not nan and not wide:
            return Survey(None, weighed(rows, weights), False, used)
        if not nan:
            refuse_nonfinite(rows)
        holes = nan and has_missing(rows)
        columns = Columns.of(rows, weights) if nan or wide else None
        return Survey(columns, None if wide or holes else weighed(rows, weights), holes, used)

    return parts.reduce(of, Survey.merge)


class PartScatter:
    """FᵀF over the features of a table in parts, (d, d): a product is a pass, nothing is formed.

    Parameters
    ----------
    parts : Table
        Complete rows.
    columns : Columns
        From a survey.
    standardize : bool
        Divide every feature by its standard deviation.

    Examples
    --------
    >>> from dualpca.data.table import SlicedTable
    >>> parts = SlicedTable(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 3.0]]), part_rows=2)
    >>> A = PartScatter(parts, survey(parts, wide=True, nan=False).columns)
    >>> A @ np.eye(2)
    array([[2., 0.],
           [0., 6.]])
    """

    def __init__(self, parts: Table, columns: Columns, *, standardize: bool = False) -> None:
        self.parts, self.dim, self.n = parts, parts.d, columns.weight
        self.squares = columns.variance * self.n
        scale = unit_scale(columns.variance) if standardize else None
        self.frame = Frame(columns.mean, scale)
        self.like = columns.mean
        if not np.isfinite(self.trace):
            raise ScaleError(
                "X is too large: its variance overflows float64. Divide X by a constant first."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """(d, d)."""
        return (self.dim, self.dim)

    @property
    def trace(self) -> float:
        """Sum of the diagonal."""
        return float(np.sum(self.diag()))

    @property
    def pass_cost(self) -> float:
        """Two products with the rows."""
        return 2.0 * self.n * self.dim

    @property
    def dense_cost(self) -> float:
        """One symmetric product; more than anything else where its result is too large."""
        return 0.5 * self.n * self.dim**2 if self.dim <= WIDEST else 1e60

    def diag(self) -> Array:
        """Return the diagonal, (d,)."""
        scale = self.frame.scale
        return self.squares if scale is None else self.squares / (scale * scale)

    def __matmul__(self, V: Array) -> Array:
        """Return FᵀF V: one pass, d×b numbers from every part."""
        mean, scale = self.frame
        V = V if scale is None else V / scale[:, None]

        def of(rows: Host, weights: Host | None = None) -> Array:
            total = np.zeros(V.shape)
            for cut in backend.slices(len(rows), backend.block_rows(rows.shape[1])):
                C = backend.row_block(rows, cut) - mean
                Y = C @ V
                total += C.T @ (Y if weights is None else weights[cut, None] * Y)
            return total

        total = self.parts.reduce(of, np.add)
        return total if scale is None else total / scale[:, None]

    @cached_property
    def moments(self) -> Moments:
        """Size, mean and scatter, by one more pass."""
        return self.parts.reduce(weighed, Moments.merge)

    def dense(self) -> Array:
        """Return the (d, d) scatter matrix, fresh."""
        return Scatter(self.moments, standardize=self.frame.scale is not None).dense()


class Gathered(Scatter):
    """A scatter matrix that knows which table it was gathered from."""

    def __init__(self, parts: Table, moments: Moments, *, standardize: bool = False) -> None:
        super().__init__(moments, standardize=standardize)
        self.parts = parts


def scatter_of(
    parts: Table, found: Survey, *, standardize: bool = False
) -> tuple[Gathered | PartScatter, int]:
    """Return the operator of complete rows, and how many rows there are."""
    if found.holes:
        raise NonFiniteError("Input X contains NaN where only complete rows can be used.")
    if found.moments is not None:
        return Gathered(parts, found.moments, standardize=standardize), found.used
    if found.columns is None:
        raise ValueError("a survey of complete rows holds moments or columns.")
    return PartScatter(parts, found.columns, standardize=standardize), found.used


def used_rows(X: Array, weights: Array | None) -> int:
    """Return the number of rows that count: those of positive weight."""
    return int(X.shape[0] if weights is None else (backend.to_numpy(weights) > 0).sum())


class LinearTable(NamedTuple):
    """Complete rows as linear models see them: an operator over the features."""

    operator: Primal | Scatter | PartScatter
    n_rows: int  # that weigh something


def linear(
    table: Table, *, standardize: bool = False, missing: bool = False
) -> LinearTable | Columns:
    """Return the scatter of a table's rows as an operator, or, where values are missing, columns.

    Parameters
    ----------
    table : Table
        In memory nothing is read yet but, where `missing`, whether there is NaN. Chunks are read
        once: their moments add up to (d, d) numbers, or, where d is large, every product is a pass.
    standardize : bool
        Divide every feature by its standard deviation.
    missing : bool
        Accept missing values: what is known of every feature is returned then. Otherwise they are
        refused.
    """
    if isinstance(table, InMemoryTable):
        X, weights = table.rows, table.weights
        if missing and has_missing(X):
            return Columns.of(X, weights)
        return LinearTable(Primal(X, weights, standardize=standardize), used_rows(X, weights))
    wide = table.d > WIDEST
    gathered = f"moments, ({table.d}, {table.d}) added up"
    how = "block Krylov, one pass per product" if wide else gathered
    how += "; EM, one pass per step, if values are missing" if missing else ""
    note(f"{table.route} on the CPU: {how}")
    found = survey(table, wide=wide, nan=missing)
    if found.holes and found.columns is not None:
        return found.columns
    operator, count = scatter_of(table, found, standardize=standardize)
    if count < 2:
        raise ValueError(
            f"Found array with {count} sample(s) while a minimum of 2 is required for a fit."
        )
    return LinearTable(operator, count)


def complete(
    table: Table, *, standardize: bool = False
) -> tuple[Primal | Scatter | PartScatter, int]:
    """Return the scatter of complete rows as an operator, and how many rows there are."""
    found = linear(table, standardize=standardize)
    if isinstance(found, Columns):
        raise NonFiniteError("Input X contains NaN where only complete rows can be used.")
    return found
