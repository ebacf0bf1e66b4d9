"""The primal: FᵀF over the features, from rows or as a sum over blocks; its mirror image FFᵀ."""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

import numpy as np

from dualpca.arrays import EPS, Array, algebra, backend, cached_property, note
from dualpca.data import (
    HEAD,
    SINGLE_LEAST,
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
    single_will_do,
    total_moments,
    used_rows,
)
from dualpca.errors import NonFiniteError, ScaleError
from dualpca.operators.base import Factored, Operator
from dualpca.operators.rows import SAFE_OFFSET, Frame, Rows

# --- A scatter matrix over the features ----------------------------------------------------------


class FeatureOperator(Operator):
    """A scatter matrix over the features, (d, d), in the units of a frame.

    Some subclasses set these attributes, others compute them when they are first read.
    """

    n: float
    """Effective number of points, the sum of the weights."""
    frame: Frame
    """Origin and unit of every feature."""
    moments: Moments
    """Size, mean and scatter, in the units of X."""
    squares: Array
    """Σw(x − mean)² of every feature, (d,)."""

    @property
    def trace(self) -> float:
        """Sum of the diagonal."""
        return float(namespace_sum(self.diag()))

    def diag(self) -> Array:
        """Return the diagonal, (d,)."""
        scale = self.frame.scale
        return self.squares if scale is None else self.squares / (scale * scale)

    def dense(self) -> Array:
        """Return the (d, d) scatter matrix, fresh."""
        scatter, scale = self.moments.scatter, self.frame.scale
        if scale is not None:
            return scatter / scale[:, None] / scale[None, :]
        return backend.copied(scatter)


class Scatter(FeatureOperator):
    """A scatter matrix that is already there: what streaming leaves behind.

    Parameters
    ----------
    moments : Moments
    standardize : bool
        As in `Primal`.
    """

    dense_cost = 0.0

    def __init__(self, moments: Moments, *, standardize: bool = False) -> None:
        super().__init__(int(moments.mean.shape[0]), moments.mean)
        self.moments, self.n, self.pass_cost = moments, moments.n, float(self.dim**2)
        self.squares = backend.namespace(self.like).linalg.diagonal(moments.scatter)
        scale = unit_scale(self.squares / self.n) if standardize else None
        self.frame = Frame(moments.mean, scale)

    def __matmul__(self, V: Array) -> Array:
        """Return the product with the stored matrix."""
        scale = self.frame.scale
        if scale is None:
            return self.moments.scatter @ V
        return (self.moments.scatter @ (V / scale[:, None])) / scale[:, None]


class DeviceScatter(Scatter):
    """The scatter of rows of another library, on their device; all that is small is on the host.

    A GPU needs longer to be told of a small operation than the host for the operation itself.

    Parameters
    ----------
    moments : Moments
        Of the rows, beside them.
    standardize : bool
        As in `Primal`.
    given_eps : float
        Relative rounding error of the rows.
    """

    def __init__(self, moments: Moments, *, standardize: bool, given_eps: float) -> None:
        self._beside = moments.scatter
        host = Moments(moments.n, backend.to_numpy(moments.mean), moments.scatter)
        squares = backend.namespace(moments.scatter).linalg.diagonal(moments.scatter)
        FeatureOperator.__init__(self, int(host.mean.shape[0]), host.mean)
        self.n, self.pass_cost, self.given_eps = host.n, float(self.dim**2), given_eps
        self.squares = backend.to_numpy(squares)
        scale = unit_scale(self.squares / self.n) if standardize else None
        self.frame = Frame(host.mean, scale)

    @cached_property
    def moments(self) -> Moments:  # type: ignore[override]
        """Size, mean and scatter, on the host."""
        return Moments(self.n, self.frame.mean, backend.to_numpy(self._beside))

    def dense_for(self, rank: int) -> Array:
        """Return the scatter, fresh: on the host where it is small, otherwise beside the rows."""
        if self.dim <= HOST_ORDER:
            return self.dense()
        if self.frame.scale is None:
            return backend.copied(self._beside)
        scale = backend.asarray(self.frame.scale, self._beside)
        return self._beside / scale[:, None] / scale[None, :]

    def __matmul__(self, V: Array) -> Array:
        """Return the product with the stored matrix, which is where the rows are."""
        scale = 1.0 if self.frame.scale is None else self.frame.scale[:, None]
        product = self._beside @ backend.asarray(V / scale, self._beside)
        return backend.to_numpy(product) / scale


HOST_ORDER = 128
"""Order up to which eigenpairs are found on the host: of 50, in 0.5 ms, on an H200 in 0.7."""


class Rescaled(FeatureOperator):
    """The scatter of another operator, in units of one's own for every feature.

    Parameters
    ----------
    operator : FeatureOperator
        In the units of X.
    scale : array of shape (d,)
    """

    def __init__(self, operator: FeatureOperator, scale: Array) -> None:
        super().__init__(operator.dim, scale)
        self.operator, self.n, self.pass_cost = operator, operator.n, operator.pass_cost
        self.squares, self.frame = operator.diag(), Frame(operator.frame.mean, scale)

    def __matmul__(self, V: Array) -> Array:
        """Return the product."""
        scale = self.like[:, None]
        return (self.operator @ (V / scale)) / scale

    def dense(self) -> Array:
        """Return the (d, d) scatter matrix, fresh."""
        return self.operator.dense() / self.like[:, None] / self.like[None, :]


def unit_scale(variances: Array) -> Array:
    """Return standard deviations, with 1 in place of 0 for features that do not vary."""
    xp = backend.namespace(variances)
    scale = xp.sqrt(xp.where(variances < 0, xp.zeros_like(variances), variances))
    return xp.where(scale > 0, scale, xp.ones_like(scale))


# --- The primal: FᵀF over the features, and its mirror image FFᵀ over the points -----------------

SPARSE_ENTRY, SPARSE_PAIR = 1.5, 50.0
"""How many times longer than those of a dense product multiply-adds with an entry of sparse rows
take: with a thin block, and with other entries of its row, for the scatter."""
SPARSE_BLOCK_BYTES = 64
"""Of one row of a block that sparse rows are multiplied with: one line of the cache. Narrower ones
take as long, and wider ones need more vectors in all."""
WORTH_THREADS = 4e6
"""Multiply-adds of a product with one vector from which its blocks are shared out to threads."""
NEAR_MEAN = 1e2
"""Largest n‖μ‖² / trace for which products with float32 rows may run in float32: centring then
loses one digit at most."""
SKETCH_RUN = 64
"""Neighbouring features that a sketch uses together, since they are together in memory."""


class Primal(FeatureOperator, Factored):
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
    moments : Moments, optional
        Those of the rows, where they are known.

    Notes
    -----
    The centred matrix is never formed: products cost O(nd) per vector and use X as it is, or one
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
        moments: Moments | None = None,
    ) -> None:
        super().__init__(int(X.shape[1]), backend.asarray(np.zeros(1), X))
        self.X, self.weights, self.given_eps = X, weights, backend.eps_of(X)
        if moments is not None:
            self.moments = moments
        self.centered, self.standardized = center, standardize
        self.pass_cost = 2.0 * stored_entries(X)
        self.dense_cost = 0.5 * stored_entries(X) * self.dim
        if backend.is_sparse(X):
            self.pass_cost *= SPARSE_ENTRY
            self.dense_cost = SPARSE_PAIR * sparse_pairs(X)
            self.widest_block = SPARSE_BLOCK_BYTES // X.dtype.itemsize

    @cached_property
    def moments(self) -> Moments:  # type: ignore[override]
        """Size, mean and scatter, in one pass; in the units of X."""
        return Moments.of(self.X, self.weights, center=self.centered)

    def dense_for(self, rank: int) -> Array:
        """Return the scatter, from products in float32 where that does not matter."""
        if "moments" not in self.__dict__ and not self.standardized:
            single = single_will_do(self.X, rank)
            self.moments = Moments.of(self.X, self.weights, center=self.centered, single=single)
        return self.dense()

    @cached_property
    def squares(self) -> Array:
        """Σw(x − mean)² of every feature: from the scatter if it is there."""
        if "moments" in self.__dict__:
            return backend.namespace(self.X).linalg.diagonal(self.moments.scatter)
        return column_moments(self.X, self.weights, center=self.centered)[2]

    @cached_property
    def _totals(self) -> tuple[float, Array, float]:
        """Σw, mean and Σw‖x − mean‖²: from the scatter if it is there."""
        if "moments" in self.__dict__:
            return self.moments.n, self.moments.mean, float(namespace_sum(self.squares))
        return total_moments(self.X, self.weights, center=self.centered)

    @cached_property
    def frame(self) -> Frame:  # type: ignore[override]
        """Origin and unit of every feature."""
        n, mean, _ = self._totals
        return Frame(mean, unit_scale(self.squares / n) if self.standardized else None)

    @property
    def _offset(self) -> float:
        """n‖μ‖² / trace."""
        n, mean, trace = self._totals
        square = n * float(mean @ mean)
        return square / trace if trace > 0 else float("inf") if square > 0 else 0.0

    @cached_property
    def single(self) -> bool:  # type: ignore[override]
        """Whether products run in float32, and sums over blocks of rows in float64."""
        return self.rows.sparse and self.given_eps > EPS and self._offset <= NEAR_MEAN

    @cached_property
    def rows(self) -> Rows:
        """F, as an operator."""
        far = self._offset > SAFE_OFFSET
        scaled = self.standardized and not backend.is_sparse(self.X)
        return Rows(self.X, self.weights, self.frame, explicit=far or scaled)

    @cached_property
    def n(self) -> float:  # type: ignore[override]
        """Effective number of points, the sum of the weights."""
        return float(self.X.shape[0] if self.weights is None else namespace_sum(self.weights))

    @property
    def threads_outside(self) -> bool:  # type: ignore[override]
        """Whether products share blocks of rows out to threads."""
        return self.rows.sparse or (self.rows.in_blocks and self.pass_cost > WORTH_THREADS)

    @property
    def trace(self) -> float:
        """‖F‖²."""
        return super().trace if self.standardized else self._totals[2]

    def __matmul__(self, V: Array) -> Array:
        """Return FᵀF V."""
        return self.rows.normal(backend.in_single(V) if self.single else V)

    def times_in_double(self, V: Array) -> Array:
        """Return FᵀF V, in float64 throughout."""
        return self.rows.normal(V)

    def half(self, V: Array) -> Array:
        """Return F V."""
        return self.rows.times(V)

    def sketch(self, step: int) -> Primal | None:
        """Return the operator of every `step`-th row alone, in this frame; None if sparse."""
        if backend.is_sparse(self.X) or backend.is_sparse_tensor(self.X):
            return None
        weights = None if self.weights is None else self.weights[::step]
        return self._part(self.X[::step, :], weights, self.frame)

    def _part(self, X: Array, weights: Array | None, frame: Frame) -> Primal:
        part = Primal(X, weights, center=self.centered)
        part.rows = Rows(X, weights, frame, explicit=self.rows.explicit)
        return part

    def alike(self, share: float) -> bool:
        """Return False if the diagonal shows that some eigenvalues are below a share of others.

        The smallest eigenvalue is at most the smallest entry, the largest one at least the largest.
        The scatter is computed for it, which every solver of so few rows needs.
        """
        if backend.is_foreign(self.X) or self.moments.n <= 0:
            return True
        diagonal = self.diag()
        return float(diagonal.min()) > share * float(diagonal.max())

    def triangle(self) -> Array:
        """Return R with RᵀR = FᵀF, without squaring the condition number."""
        return self.rows.triangle()

    @property
    def mirror(self) -> Mirror:
        """FFᵀ, over the points."""
        return Mirror(self)

    def unmirror(self, vectors: Array) -> Array:
        """Return the features' eigenvectors v ∝ Fᵀe, orthonormal even where λ = 0."""
        return algebra.orthonormal(self.mirror.half(vectors))


class Mirror(Factored):
    """FFᵀ over the points, (n, n): the companion of a `Primal`, for n < d."""

    def __init__(self, primal: Primal) -> None:
        super().__init__(int(primal.X.shape[0]), primal.like, primal.dim)
        self.given_eps = primal.given_eps
        self.primal, self.pass_cost = primal, primal.pass_cost
        self.dense_cost = 0.5 * float(self.shape[0]) ** 2 * self.dim  # of dense columns
        self.widest_block = primal.widest_block

    @property
    def mirror(self) -> Primal:
        """FᵀF, over the features."""
        return self.primal

    @property
    def trace(self) -> float:
        """‖F‖²."""
        return self.primal.trace

    @property
    def single(self) -> bool:  # type: ignore[override]
        """As the primal's."""
        return self.primal.single

    @property
    def threads_outside(self) -> bool:  # type: ignore[override]
        """As the primal's, unless columns are centred one block after another."""
        return self.primal.threads_outside and not self.primal.rows.explicit

    def __matmul__(self, U: Array) -> Array:
        """Return FFᵀ U."""
        return self.primal.rows.mirrored(backend.in_single(U) if self.single else U)

    def times_in_double(self, U: Array) -> Array:
        """Return FFᵀ U, in float64 throughout."""
        return self.primal.rows.mirrored(U)

    def half(self, V: Array) -> Array:
        """Return Fᵀ V."""
        return self.primal.rows.adjoint(V)

    def sketch(self, step: int) -> Mirror | None:
        """Return the mirror image of a `step`-th of the features, in runs of neighbours."""
        primal, xp = self.primal, backend.namespace(self.primal.X)
        if backend.is_sparse(primal.X) or backend.is_sparse_tensor(primal.X):
            return None
        runs = list(backend.slices(primal.dim, SKETCH_RUN))[::step]
        X = xp.concat([primal.X[:, run] for run in runs], axis=1)
        mean, scale = (
            None if part is None else xp.concat([part[run] for run in runs])
            for part in primal.frame
        )
        return Mirror(primal._part(X, primal.weights, Frame(mean, scale)))

    def dense(self) -> Array:
        """Return the (n, n) Gram matrix, fresh."""
        return self.primal.rows.row_gram()

    def triangle(self) -> Array:
        """Return R with RᵀR = FFᵀ, without squaring the condition number."""
        return self.primal.rows.triangle(transpose=True)

    def unmirror(self, vectors: Array) -> Array:
        """Return the points' eigenvectors e ∝ Fv."""
        return algebra.orthonormal(self.primal.half(vectors))


def stored_entries(X: Array) -> float:
    """Return the number of stored entries of X."""
    return float(X.nnz if backend.is_sparse(X) else X.shape[0] * X.shape[1])


def sparse_pairs(X: Array) -> float:
    """Return how many products of two entries of a row the scatter of sparse rows is the sum of."""
    if X.format != "csr":
        return float(X.nnz) ** 2 / max(int(X.shape[0]), 1)  # of even rows
    counts = np.diff(X.indptr).astype(np.float64)
    return float(counts @ counts)


# --- The scatter of a chunked table: moments that add, or a product that does --------------------

WIDEST = 4000
"""Number of features up to which the (d, d) moments are gathered: 128 MB per chunk at work."""


class Survey(NamedTuple):
    """What one pass over a table finds: moments of complete rows, columns where asked for."""

    columns: Columns | None  # where d is large, or values may be missing
    moments: Moments | None  # unless d is large, values are missing, or all rows weigh nothing
    missing: bool
    used: int  # rows of positive weight

    def merge(self, other: Survey) -> Survey:
        """Join two disjoint sets of rows."""
        missing = self.missing or other.missing
        columns = join(Columns.merge, self.columns, other.columns)
        moments = None if missing else join(Moments.merge, self.moments, other.moments)
        return Survey(columns, moments, missing, self.used + other.used)


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
        Accept NaN, which is refused otherwise.
    """

    def part(rows: Host, weights: Host | None = None) -> Survey:
        used, moments = used_rows(rows, weights), None
        if wide and not nan:
            refuse_nonfinite(rows)
        missing = nan and has_missing(rows if wide else rows[:HEAD])
        if not wide and not missing:
            try:
                moments = weighed(rows, weights)
            except NonFiniteError:  # the sums have found what a pass of its own would look for
                missing = nan and has_missing(rows)
                if not missing:
                    raise
        if moments is not None:
            columns = Columns.of_moments(moments, len(rows), used) if nan else None
            return Survey(columns, moments, False, used)
        return Survey(Columns.of(rows, weights) if nan or wide else None, None, missing, used)

    return parts.reduce(part, Survey.merge)


class PartScatter(FeatureOperator):
    """FᵀF over the features of a chunked table, (d, d): a product is a pass, nothing is formed.

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
        super().__init__(parts.d, columns.mean)
        self.given_eps = backend.eps_of(parts.like)
        self.parts, self.n, self.squares = parts, columns.weight, columns.variance * columns.weight
        self.frame = Frame(columns.mean, unit_scale(columns.variance) if standardize else None)
        self.pass_cost, self.dense_cost = 2.0 * self.n * self.dim, 0.5 * self.n * self.dim**2
        if self.dim > WIDEST:
            self.dense_cost = 1e60  # more than anything else: its result is too large
        if not np.isfinite(self.trace):
            raise ScaleError(
                "X is too large: its variance overflows float64. Divide X by a constant first."
            )

    def __matmul__(self, V: Array) -> Array:
        """Return FᵀF V: one pass, d×b numbers from every chunk."""
        frame = self.frame  # the table itself is not sent to other machines

        def product(rows: Host, weights: Host | None = None) -> Array:
            return Rows(rows, weights, frame, explicit=True).normal(V)

        return self.parts.reduce(product, np.add)

    @cached_property
    def moments(self) -> Moments:  # type: ignore[override]
        """Size, mean and scatter, by one more pass."""
        return self.parts.reduce(weighed, Moments.merge)


class LinearTable(NamedTuple):
    """Complete rows as linear models see them: an operator over the features."""

    operator: Primal | Scatter | PartScatter
    n_rows: int  # of positive weight
    least: float = 0.0
    """Share of the largest variance below which others have lost digits."""


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
        Accept missing values, and return what is known of every feature if there are any.
        Otherwise they are refused.
    """
    if not isinstance(table, InMemoryTable):
        return _linear_chunks(table, standardize=standardize, missing=missing)
    X, weights = table.rows, table.weights
    moments = table.moments if missing else None
    if missing and moments is None and has_missing(X):
        return Columns.of(X, weights)
    operator = Primal(X, weights, standardize=standardize, moments=moments)
    return LinearTable(operator, used_rows(X, weights))


def _linear_chunks(table: Table, *, standardize: bool, missing: bool) -> LinearTable | Columns:
    """Return the same of a chunked table, in one pass over its rows."""
    wide = table.d > WIDEST
    gathered = f"moments, ({table.d}, {table.d}) added up"
    how = "block Krylov, one pass per product" if wide else gathered
    how += "; EM, one pass per step, if values are missing" if missing else ""
    note(f"{table.route} on the CPU: {how}")
    columns, moments, found_missing, count = survey(table, wide=wide, nan=missing)
    if found_missing and columns is not None:
        return columns
    if count < 2:
        raise ValueError(
            f"Found array with {count} sample(s) while a minimum of 2 is required for a fit."
        )
    if moments is not None:
        return LinearTable(Scatter(moments, standardize=standardize), count)
    if columns is None:
        raise TypeError("a survey of complete rows has moments or columns.")
    return LinearTable(PartScatter(table, columns, standardize=standardize), count)


SMALL_TABLE, SMALL_SQUARED = 2e6, 1e-5
"""n·d² of a table so small that rows can be decomposed without squares, and the share of the
largest variance from which others keep ten digits with them."""
WIDEST_STORED = 2**13
"""Number of features up to which the (d, d) scatter of rows beside it is gathered."""


def _can_be_gathered(table: Table) -> TypeGuard[InMemoryTable]:
    """Return True for dense rows of torch or CuPy with few enough columns."""
    if not isinstance(table, InMemoryTable) or not backend.is_foreign(table.rows):
        return False
    n, d = table.rows.shape
    most = WIDEST_STORED if backend.on_cuda(table.rows) else HOST_ORDER
    return bool(0 < d <= min(n, most))


def device_scatter(
    table: Table, *, standardize: bool = False, single: bool = False, missing: bool = False
) -> LinearTable | None:
    """Return the scatter of rows of torch or CuPy, gathered in one pass where they are.

    Parameters
    ----------
    table : Table
    standardize : bool
        Divide every feature by its standard deviation.
    single : bool
        float32 rows may be multiplied as float32, if that is faster: see `LinearTable.least`.
    missing : bool
        Return None where values are missing, which are refused otherwise.

    Returns
    -------
    LinearTable or None
        None for rows of NumPy or SciPy, chunked ones, and where d is large or above n: large is
        above 128 unless rows are on a GPU.
    """
    if not _can_be_gathered(table):
        return None
    X, weights = table.rows, table.weights
    n, d = X.shape
    single = single and not standardize and backend.on_cuda(X) and backend.eps_of(X) > EPS
    try:
        moments = Moments.of(X, weights, single=single)
    except NonFiniteError:
        if missing and has_missing(X):
            return None
        raise
    operator = DeviceScatter(moments, standardize=standardize, given_eps=backend.eps_of(X))
    small = SMALL_SQUARED if float(n) * d * d < SMALL_TABLE else 0.0
    return LinearTable(operator, used_rows(X, weights), SINGLE_LEAST if single else small)


def complete(table: Table, *, standardize: bool = False) -> LinearTable:
    """Return the scatter of complete rows as an operator, and how many rows there are."""
    found = linear(table, standardize=standardize)
    if isinstance(found, Columns):
        raise NonFiniteError("Input X contains NaN where only complete rows can be used.")
    return found
