"""The Gram matrix of a wide table that is read by columns, and the axes that it leads to.

All rows of a few columns are read at once. Their products FFᵀ, (n, n), add up over the columns in
one pass, each column centred by its own mean. A second pass makes the axes v = Fᵀe/√λ of the
eigenvectors e, column by column; neither the rows nor anything d×d is ever held.
"""

from __future__ import annotations

import os
from functools import partial
from operator import iadd
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import EPS, Array, algebra, backend, note
from dualpca.data import (
    SMALLEST_TRACE,
    ChunkedTable,
    Host,
    Table,
    WideRows,
    refuse_nonfinite,
    used_rows,
    wide_rows,
)
from dualpca.errors import NonFiniteError, ScaleError
from dualpca.operators.base import Operator, Spectrum
from dualpca.operators.primal import unit_scale
from dualpca.operators.rows import Frame

LOST = 10
"""Rounding errors, times n, of the largest eigenvalue: what is smaller leads to no axis."""


class ColumnSums(NamedTuple):
    """What some columns add: products of the rows, and what is known of each column."""

    gram: Host  # (n, n), FFᵀ
    trace: float
    mean: tuple[Host, ...]  # of every block of columns, (b,)
    scale: tuple[Host, ...]  # likewise, where they are standardised

    def plus(self, other: ColumnSums) -> ColumnSums:
        """Return the sums of the columns of both, in this order."""
        mean, scale = self.mean + other.mean, self.scale + other.scale
        with np.errstate(over="ignore", invalid="ignore"):  # told of by what is made of the sums
            gram = self.gram + other.gram
        return ColumnSums(gram, self.trace + other.trace, mean, scale)


class ColumnGram(Operator):
    """FFᵀ over the rows, (n, n), of a table that is read by columns.

    Its eigenvectors are those of points. `axes` leads them back to the features.

    Parameters
    ----------
    table : ChunkedTable
        With columns for rows; complete.
    sums : ColumnSums
        From `column_sums`.
    standardize : bool
        Divide every feature by its standard deviation, as in `sums`.

    Examples
    --------
    >>> from dualpca.data.table import SlicedTable
    >>> table = SlicedTable(np.array([[1.0, 3.0, 2.0], [0.0, 0.0, 3.0]]), part_rows=1)
    >>> A = ColumnGram(table, column_sums(table))
    >>> A.trace, A.shape
    (8.0, (3, 3))
    """

    dense_cost = 0.0

    def __init__(self, table: ChunkedTable, sums: ColumnSums, *, standardize: bool = False) -> None:
        super().__init__(table.d, np.zeros(1), sum(map(len, sums.mean)))
        self.table, self.gram, self.total, self.standardized = table, sums[0], sums[1], standardize
        scale = np.concatenate(sums.scale) if standardize else None
        self.frame, self.given_eps = (
            Frame(np.concatenate(sums.mean), scale),
            backend.eps_of(table.like),
        )
        weights = table.row_weights
        self.n = float(table.d if weights is None else weights.sum())
        self.pass_cost = float(table.d) ** 2
        if not np.isfinite(self.total):
            raise ScaleError(
                "X is too large: its variance overflows float64. Divide X by a constant first."
            )
        if 0 < self.total < SMALLEST_TRACE:
            raise ScaleError(
                "X varies too little: its variance underflows float64. Multiply X by a constant "
                "first."
            )

    @property
    def trace(self) -> float:
        """‖F‖²."""
        return self.total

    def __matmul__(self, V: Array) -> Array:
        """Return the product with the stored matrix."""
        return self.gram @ V

    def dense(self) -> Array:
        """Return the (n, n) Gram matrix, fresh."""
        return self.gram.copy()

    def diag(self) -> Array:
        """Return the diagonal of FᵀF, (d,): one more pass."""
        return np.concatenate(list(self.table.each(self._columns.squares)))

    @property
    def _columns(self) -> ColumnBlocks:
        return ColumnBlocks(self.table.row_weights, self.standardized, self.table.dtype)

    def axes(self, spectrum: Spectrum, out: str | os.PathLike[str] | None = None) -> Host:
        """Return the features' orthonormal axes, (q, d), in the dtype of the table; one pass.

        Parameters
        ----------
        spectrum : Spectrum
            Of this operator.
        out : path, optional
            A .npy file to write them to, which is then mapped; they are made in memory otherwise.
        """
        q, d = spectrum.rank, self.dim
        U: Host = spectrum.vectors
        values = np.einsum("ij,ij->j", U, self.gram @ U)
        least = LOST * self.shape[0] * EPS * values.max(initial=0.0)
        lost = np.flatnonzero(values <= least)
        U = U / np.sqrt(np.where(values > least, values, 1.0))
        with wide_rows(out, (q, d), self.table.dtype) as rows:
            first, T, peaks = 0, np.zeros((q, q)), np.zeros(q)
            for Z in self.table.each(partial(self._columns.products, U.T.copy())):
                Z[lost] = _others(lost, first, Z.shape[1], d)
                rows.put(first, Z)
                T, peaks = T + backend.working(Z) @ backend.working(Z).T, _farther(peaks, Z)
                first += Z.shape[1]
            self._straightened(rows, T, peaks)
        return rows.array

    def _straightened(self, rows: WideRows, T: Host, peaks: Host) -> None:
        """Make axes with products T orthonormal, and the largest entry of each positive."""
        turn = np.linalg.inv(np.linalg.cholesky(T)) if len(T) else T
        if np.abs(turn - np.eye(len(T))).max(initial=0.0) <= 4 * np.finfo(rows.dtype).eps:
            turn = np.eye(len(T))
        turn = turn * np.where(peaks < 0, -1.0, 1.0)[:, None]
        while not np.array_equal(turn, np.eye(len(T))):
            found = [np.zeros(len(T))]

            def turned(Z: Host, turn: Host = turn, found: list[Host] = found) -> Host:
                V: Host = (turn @ backend.working(Z)).astype(rows.dtype)
                found[0] = _farther(found[0], V)
                return V

            rows.change(turned)
            turn = np.diag(np.where(found[0] < 0, -1.0, 1.0))


class ColumnTable(NamedTuple):
    """Complete rows as linear models see them, where they are read by columns."""

    operator: ColumnGram
    n_rows: int  # of positive weight


def by_columns(
    table: Table, *, standardize: bool = False, missing: bool = False
) -> ColumnTable | None:
    """Return the Gram matrix of a table that is read by columns; None if it is not.

    Parameters
    ----------
    table : Table
    standardize : bool
        Divide every feature by its standard deviation.
    missing : bool
        Return None where values are missing. Otherwise they are refused.
    """
    if table.by_columns is None:
        return None
    columns, n = table.by_columns, table.by_columns.d
    note(f"{columns.route} on the CPU: Gram matrix, ({n}, {n}) added up, and a pass for the axes")
    sums = column_sums(columns, standardize=standardize, missing=missing)
    if sums is None:
        return None
    count = used_rows(sums.gram, columns.row_weights)
    if count < 2:
        raise ValueError(
            f"Found array with {count} sample(s) while a minimum of 2 is required for a fit."
        )
    return ColumnTable(ColumnGram(columns, sums, standardize=standardize), count)


def column_sums(
    table: ChunkedTable, *, standardize: bool = False, missing: bool = False
) -> ColumnSums | None:
    """Return the products of all rows, in one pass over the columns.

    Parameters
    ----------
    table : ChunkedTable
        With columns for rows.
    standardize : bool
        Divide every feature by its standard deviation.
    missing : bool
        Return None where there is NaN, which is refused otherwise.
    """
    columns = ColumnBlocks(table.row_weights, standardize, table.dtype)
    try:
        return table.reduce(columns.sums, ColumnSums.plus)
    except NonFiniteError as error:
        name, what, column, row = error.place or ("X", "NaN", 0, 0)
        if missing and what == "NaN":
            return None
        raise NonFiniteError.at(name, what, row, column) from None


class CentredBlock(NamedTuple):
    """Some columns of F, dense, fresh and centred, and what centred them."""

    C: Host  # (n, b)
    mean: Host  # (b,)
    scale: Host | None  # (b,)


class ColumnBlocks(NamedTuple):
    """How a block of columns becomes one of F = D^{1/2} (X − 1μᵀ) S⁻¹."""

    weights: Host | None  # (n,), the diagonal of D
    standardize: bool
    dtype: np.dtype[Any]  # of what is known of every column

    def block(self, rows: Host, columns: slice) -> CentredBlock:
        """Return some columns, which are rows here; constant ones are exactly zero."""
        C = np.array(rows[columns].T, dtype=np.float64, order="C")
        w = np.ones(len(C)) if self.weights is None else self.weights
        mean, scale = C[0].copy(), None
        C -= mean
        step = w @ C / w.sum()
        C -= step
        if self.standardize:
            scale = unit_scale(w @ (C * C) / w.sum())
            C /= scale
        if self.weights is not None:
            C *= np.sqrt(w)[:, None]
        return CentredBlock(C, mean + step, scale)

    def cut(self, rows: Host) -> list[slice]:
        """Return the blocks of a chunk of columns, (b, n)."""
        return list(backend.slices(len(rows), backend.block_rows(rows.shape[1])))

    @np.errstate(over="ignore", invalid="ignore")
    def sums(self, rows: Host) -> ColumnSums:
        """Return what a chunk of columns adds; refuse NaN and infinity."""
        mean, scale = (np.empty(len(rows), dtype=self.dtype) for _ in range(2))

        def part(columns: slice) -> Host:
            C, mean[columns], found = self.block(rows, columns)
            if found is not None:
                scale[columns] = found
            product: Host = algebra.gram(C.T)
            return product

        with backend.threads_outside(rows):
            gram = backend.summed(part, iadd, rows)
        trace = float(np.trace(gram))
        if not np.isfinite(trace):
            refuse_nonfinite(rows)
        return ColumnSums(gram, trace, (mean,), (scale,) if self.standardize else ())

    def squares(self, rows: Host) -> Host:
        """Return the sums of squares of every column of F, (b,)."""
        cut = self.cut(rows)
        found: Host = np.concatenate(
            [np.square(self.block(rows, part).C).sum(axis=0) for part in cut]
        )
        return found

    def products(self, Ut: Host, rows: Host) -> Host:
        """Return UᵀF of a chunk of columns, (q, b), in the dtype of the table."""
        found = np.empty((len(Ut), len(rows)), dtype=self.dtype)

        def work(cut: list[slice]) -> None:
            for columns in cut:
                found[:, columns] = Ut @ self.block(rows, columns).C

        with backend.threads_outside(rows):
            backend.spread(work, self.cut(rows), rows)
        return found


def _others(lost: Host, first: int, count: int, d: int) -> Host:
    """Return directions that no row tells: cosines, each of a frequency of its own, (k, b)."""
    place = np.arange(first, first + count) + 0.5
    cosines: Host = np.cos(np.pi / d * (lost[:, None] + 1) * place) * np.sqrt(2 / d)
    return cosines


def _farther(peaks: Host, Z: Host) -> Host:
    """Return the entry of largest magnitude of every row so far, the first one on ties."""
    if not Z.size:
        return peaks
    found = Z[np.arange(len(Z)), np.abs(Z).argmax(axis=1)].astype(np.float64)
    farther: Host = np.where(np.abs(found) > np.abs(peaks), found, peaks)
    return farther
