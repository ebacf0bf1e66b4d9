"""The scatter of a table in parts: moments that add, or a product that does (MATH 1)."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import NonFiniteError, ScaleError
from dualpca.holes import has_missing
from dualpca.missing_parts import Columns
from dualpca.moments import Moments, refuse_nonfinite
from dualpca.parts import Host, Parts, join
from dualpca.representations import Scatter
from dualpca.representations.scatter import unit_scale
from dualpca.rows import Frame

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
        with _array.threads_outside(rows):
            return Moments.of(rows, weights)
    refuse_nonfinite(rows)
    return None


def survey(parts: Parts, *, wide: bool, nan: bool) -> Survey:
    """Read all rows once: their moments, unless d is large, and whether values are missing.

    Parameters
    ----------
    parts : Parts
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
    parts : Parts
        Complete rows.
    columns : Columns
        From a survey.
    standardize : bool
        Divide every feature by its standard deviation.

    Examples
    --------
    >>> from dualpca.blocks import Blocks
    >>> parts = Blocks(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 3.0]]), part_rows=2)
    >>> A = PartScatter(parts, survey(parts, wide=True, nan=False).columns)
    >>> A @ np.eye(2)
    array([[2., 0.],
           [0., 6.]])
    """

    def __init__(self, parts: Parts, columns: Columns, *, standardize: bool = False) -> None:
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
            for cut in _array.slices(len(rows), _array.block_rows(rows.shape[1])):
                C = _array.row_block(rows, cut) - mean
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

    def __init__(self, parts: Parts, moments: Moments, *, standardize: bool = False) -> None:
        super().__init__(moments, standardize=standardize)
        self.parts = parts


def scatter_of(
    parts: Parts, found: Survey, *, standardize: bool = False
) -> tuple[Gathered | PartScatter, int]:
    """Return the operator of complete rows, and how many rows there are."""
    if found.holes:
        raise NonFiniteError("Input X contains NaN where only complete rows can be used.")
    if found.moments is not None:
        return Gathered(parts, found.moments, standardize=standardize), found.used
    if found.columns is None:
        raise ValueError("a survey of complete rows holds moments or columns.")
    return PartScatter(parts, found.columns, standardize=standardize), found.used
