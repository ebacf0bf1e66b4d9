"""Batches of a process as rows of a table, for models of tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Annotated, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array
from dualpca.data import Host
from dualpca.data.frames import is_arrow, is_frame, names_of, refuse_dates
from dualpca.data.unfolding import (
    Floats,
    Grid,
    check_increasing,
    folded,
    grouped,
    mean_trajectory,
    resampled,
    so_far,
    unfolded,
)
from dualpca.errors import expected
from dualpca.estimators import _checks, saving
from dualpca.estimators._shell import parametrized
from dualpca.estimators._types import Column, Rows
from dualpca.gaussian import Outliers

BY = ("batch", "variable")

Batches: TypeAlias = Rows | Sequence[Rows]
"""One table per batch, or a long table of them."""


class Judge(Protocol):
    """A fitted model that judges rows with missing values: any linear model of ours."""

    def outliers(self, X: Rows, level: float = 0.95) -> Outliers:
        """Return T² and SPE of rows, with their limits."""


class _Given(NamedTuple):
    """Batches as they came: their tables, what they are called, and the frame they are like."""

    tables: list[Floats]
    labels: list[Any]
    names: list[str] | None
    frame: object  # None: arrays


@dataclass(frozen=True)
class Unfolding:
    """Where trajectories are read, and what they are on average.

    Parameters
    ----------
    length : int or None
        Number of rows of every batch, where it is the same.
    start, end : float
        Of the grid.
    indicator : int or None
        Column that batches are aligned to.
    mean : array of shape (n_points, w)
    """

    length: Annotated[int, ">= 1"] | None
    start: float
    end: float
    indicator: Annotated[int, ">= 0"] | None
    mean: Annotated[Array, "p w", "or nan"]


@parametrized
class BatchUnfolder(TransformerMixin, BaseEstimator):
    """Unfold the batches of a process to rows, aligned, finished or still running.

    Every batch is a table of readings over time, of its own length. Its trajectories are read at
    `n_points` places and written side by side, one row per batch (Nomikos & MacGregor 1994), so
    that a model of tables learns how ordinary batches go. The part of a batch that is yet to come
    is NaN, and models that accept missing values judge it by what is there.

    Parameters
    ----------
    by : {'batch', 'variable'}, default='batch'
        'batch': one row per batch with n_points·d columns. 'variable': n_points rows per batch with
        d columns, less the mean trajectory (Wold et al. 1998).
    align_to : str or int, default=None
        Name or number of an indicator variable, which increases from row to row of every batch
        (volume fed, conversion): batches are compared where it is equal. It is not among the
        columns that come out. None aligns by time: by row number where all batches of `fit` have
        the same number of rows, or else by the share of the batch's rows.
    n_points : int, default=100
        Number of points at which trajectories are read.
    batch : str, default=None
        Column of a long table that says which batch a row belongs to.
    span : (start, end), default=None
        Values of the indicator from which and to which batches are read. None is what all batches
        of `fit` have in common.

    Attributes
    ----------
    grid_ : array of shape (n_points,)
        Where trajectories are read: values of the indicator, row numbers, or shares of a batch.
    length_ : int or None
        Number of rows of every batch, where it is the same for all and batches are aligned by time.
    mean_trajectory_ : array of shape (n_points, d)
    n_features_in_ : int
        Columns of a batch, without the one that names it.
    feature_names_in_ : array of shape (d,)
        Only if batches had names of columns.

    See Also
    --------
    PPCA : The usual model of unfolded batches.
    RobustPPCA : Where some batches may be wrong.

    Notes
    -----
    Linear interpolation; a point between two rows of which one is NaN is NaN. Columns are in the
    order of the points, so that what comes later is to the right. O(t·d) per batch; nothing but the
    rows is formed, batches are never modified.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PPCA, BatchUnfolder
    >>> rng = np.random.default_rng(0)
    >>> def batch(t):
    ...     share = np.linspace(0, 1, t)[:, None]
    ...     return share * rng.normal(size=(1, 2)) + 0.1 * rng.normal(size=(t, 2))
    >>> batches = [batch(t) for t in rng.integers(40, 60, size=80)]
    >>> unfolder = BatchUnfolder(n_points=10).fit(batches)
    >>> rows = unfolder.transform(batches)
    >>> rows.shape, unfolder.get_feature_names_out()[:3]
    ((80, 20), array(['x0@0', 'x1@0', 'x0@1'], dtype=object))
    >>> model = PPCA().fit(rows)
    >>> running = unfolder.transform([batch(50)[:25]], lengths=[50])  # half of it
    >>> int(np.isnan(running).sum()), bool(model.outliers(running, level=0.999).flagged[0])
    (10, False)
    """

    _model: Unfolding = field(init=False)
    _can_be_saved = True

    by: str = "batch"
    _: KW_ONLY
    align_to: str | int | None = None
    n_points: int = 100
    batch: str | None = None
    span: Sequence[float] | None = None

    def fit(self, X: Batches, y: object = None, *, groups: Column | None = None) -> BatchUnfolder:
        """Find where trajectories are read, and their mean.

        Parameters
        ----------
        X : list of tables (t, d), array of shape (n, t, d), or a long table of shape (rows, d)
            Finished batches. A long table has the rows of all of them, in the order of time within
            each, and `batch=` or `groups` says whose they are; without either it is one batch.
        y : ignored, default=None
        groups : array of shape (rows,), default=None
            Which batch each row of a long table belongs to.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import BatchUnfolder
        >>> feed = np.linspace(0, 8, 30)[:, None]
        >>> table = np.hstack([feed, feed**2])
        >>> BatchUnfolder(align_to=0, n_points=5).fit([table, table[:25]]).grid_.round(2)
        array([0.  , 1.66, 3.31, 4.97, 6.62])
        """
        self._check_parameters()
        given = self._read(X, groups, reset=True)
        cut = self._indicator_of(given)
        length, grid = self._grid_of(given, cut)
        self._model = Unfolding(length, grid.start, grid.end, cut, np.empty((0, 0)))
        mean = mean_trajectory(self._trajectories(given, None))
        self._model = replace(self._model, mean=mean)
        return self

    # --- what was fitted -------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        """Return True after a fit."""
        return "_model" in vars(self)

    @property
    def _grid(self) -> Grid:
        return Grid(self._model.start, self._model.end, self.n_points)

    @property
    def _indicator(self) -> int | None:
        return self._model.indicator

    @property
    def grid_(self) -> Host:
        """Where trajectories are read, (n_points,)."""
        found: Host = self._grid.points
        return found

    @property
    def length_(self) -> int | None:
        """Number of rows of every batch, where it is the same for all."""
        return self._model.length

    @property
    def mean_trajectory_(self) -> Host:
        """The mean of the trajectories, (n_points, d)."""
        found: Host = self._model.mean
        return found

    @property
    def _n_features_out(self) -> int:
        return self._width * (self.n_points if self.by == "batch" else 1)

    def save(self, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None) -> None:
        """Write what was fitted to one file, whole or not at all; `dualpca.load` reads it.

        Parameters
        ----------
        path : path
            '.dpca' is the usual ending.
        metadata : dict, default=None
            Anything that JSON can hold; see `dualpca.save`.

        Returns
        -------
        None

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from dualpca import BatchUnfolder, load
        >>> unfolder = BatchUnfolder(n_points=2).fit(np.zeros((3, 5, 1)))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     unfolder.save(f"{folder}/batches.dpca")
        ...     print(load(f"{folder}/batches.dpca").length_)
        5
        """
        saving.save(self, path, metadata=metadata)

    def _check_parameters(self) -> None:
        """Refuse parameters that no batches could be unfolded with."""
        _checks.check_choice("by", self.by, BY)
        _checks.check_number("n_points", self.n_points, 2, integer=True)
        if self.span is not None and self.align_to is None:
            remedy = "It is in units of an indicator variable, align_to."
            raise ValueError(
                expected("span", "None where batches are aligned by time", self.span, remedy)
            )

    def _goes_together(self) -> bool:
        """Return True if what was read from a file fits the parameters and columns."""
        model, d = self._model, int(self.n_features_in_)
        width = d - (model.indicator is not None)
        if (model.indicator is None) != (self.align_to is None) or (model.indicator or 0) >= d:
            return False
        ordered = np.isfinite([model.start, model.end]).all() and model.start <= model.end
        return bool(ordered) and model.mean.shape == (self.n_points, width) and width > 0

    def _most_components(self) -> None:
        return None

    def transform(
        self, X: Batches, *, groups: Column | None = None, lengths: Column | int | None = None
    ) -> Array:
        """Return the rows of batches, NaN where a batch has not come to.

        Parameters
        ----------
        X : list of tables (t, d), array of shape (n, t, d), or a long table of shape (rows, d)
        groups : array of shape (rows,), default=None
            As in `fit`.
        lengths : int or sequence of int, default=None
            Number of rows that each batch has when it is finished, for batches that still run. None
            is that of the batches of `fit`, where all had the same, or else the rows given, a
            finished batch. An indicator says by itself how far a batch has come.

        Returns
        -------
        array or frame of shape (n, n_points·d), or (n·n_points, d) with by='variable'
            A frame of pandas or polars where batches are; that of a long pandas frame has the names
            of the batches as its index.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import BatchUnfolder
        >>> batches = np.arange(12.0).reshape(2, 3, 2)
        >>> unfolder = BatchUnfolder(n_points=3).fit(batches)
        >>> unfolder.transform([batches[0][:2]])
        array([[ 0.,  1.,  2.,  3., nan, nan]])
        """
        check_is_fitted(self)
        given = self._read(X, groups, reset=False)
        trajectories = self._trajectories(given, lengths)
        if self.by == "batch":
            rows, labels = unfolded(trajectories), given.labels
        else:
            rows = (trajectories - self.mean_trajectory_).reshape(-1, self._width)
            labels = [name for name in given.labels for _ in range(self.n_points)]
        return _like(rows, given.frame, list(self.get_feature_names_out()), labels)

    def inverse_transform(self, X: Rows) -> Host:
        """Return the trajectories of rows, as batches with the columns that `fit` saw.

        Parameters
        ----------
        X : array or frame of shape (n, n_points·d), or (n·n_points, d) with by='variable'
            Unfolded batches, or what a model makes of them (`PPCA.reconstruct`, `PPCA.impute`).

        Returns
        -------
        array of shape (n, n_points, d)
            The indicator is where it was, with the values of `grid_`.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import BatchUnfolder
        >>> batches = np.arange(12.0).reshape(2, 3, 2)
        >>> unfolder = BatchUnfolder(n_points=3).fit(batches)
        >>> bool((unfolder.inverse_transform(unfolder.transform(batches)) == batches).all())
        True
        """
        check_is_fitted(self)
        rows = np.asarray(_checks.check_matrix(X, "X"), dtype=np.float64)
        if rows.shape[1] != self._n_features_out:
            what = f"{self._n_features_out} columns, as `transform` returns"
            raise ValueError(expected("X", what, f"{rows.shape[1]} columns"))
        if len(rows) % (1 if self.by == "batch" else self.n_points):
            what = f"{self.n_points} rows per batch, as `transform` returns"
            raise ValueError(expected("X", what, f"{len(rows)} rows"))
        found = folded(rows.reshape(-1, self.n_points * self._width), self._width)
        if self.by == "variable":
            found = found + self.mean_trajectory_
        if self._indicator is None:
            return found
        places = np.broadcast_to(self.grid_[:, None], (len(found), self.n_points, 1))
        cut = self._indicator
        return np.concatenate([found[:, :, :cut], places, found[:, :, cut:]], axis=2)

    def so_far(self, X: Rows, *, length: int | None = None) -> Array:
        """Return what was known of one batch at each point that it has reached.

        Parameters
        ----------
        X : table of shape (t, d)
            One batch, finished or running.
        length : int, default=None
            As `lengths` in `transform`.

        Returns
        -------
        array or frame of shape (k, n_points·d)
            Row p has the trajectories up to point p and NaN for the rest, whatever `by`.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import BatchUnfolder
        >>> batches = np.arange(6.0).reshape(2, 3, 1)
        >>> BatchUnfolder(n_points=3).fit(batches).so_far(batches[1][:2])
        array([[ 3., nan, nan],
               [ 3.,  4., nan]])
        """
        check_is_fitted(self)
        given = self._read([X], None, reset=False)
        trajectory = self._trajectories(given, length)[0]
        rows = so_far(trajectory)
        return _like(rows, given.frame, self._point_names(), list(range(len(rows))))

    def outliers_so_far(
        self, model: Judge, X: Rows, level: float = 0.95, *, length: int | None = None
    ) -> Outliers:
        """Return T² and SPE of one batch at each point that it has reached, with their limits.

        At each point the batch is judged by what was known then, with limits for just that: the
        rest is missing.

        Parameters
        ----------
        model : PPCA, RobustPPCA, FactorAnalysis or BayesianPCA
            Fitted to the rows of `transform`, with by='batch'.
        X : table of shape (t, d)
            One batch, finished or running.
        level : float, default=0.95
            Share of ordinary batches that is not flagged at a point. Points follow from each other:
            of ordinary batches more are flagged at one of them at least.
        length : int, default=None
            As `lengths` in `transform`.

        Returns
        -------
        Outliers
            Arrays of shape (k,), one entry per point.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import PPCA, BatchUnfolder
        >>> rng = np.random.default_rng(0)
        >>> batches = rng.normal(size=(60, 1, 3)) + 0.3 * rng.normal(size=(60, 20, 3))
        >>> unfolder = BatchUnfolder(n_points=20).fit(batches)
        >>> model = PPCA().fit(unfolder.transform(batches))
        >>> running = 0.3 * rng.normal(size=(15, 3))
        >>> running[10:, 1] += 4  # a fault at row 10
        >>> np.flatnonzero(unfolder.outliers_so_far(model, running, level=0.999).flagged)
        array([10, 11, 12, 13, 14])
        """
        if self.by != "batch":
            remedy = "A model of single rows judges those of `transform`."
            raise ValueError(expected("by", "'batch' for a batch as a whole", self.by, remedy))
        return model.outliers(self.so_far(X, length=length), level)

    def get_feature_names_out(self, input_features: object = None) -> Host:
        """Return the names of the columns of `transform`: variable@point, points from 0.

        Parameters
        ----------
        input_features : ignored, default=None

        Returns
        -------
        names : array of str

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import BatchUnfolder
        >>> list(BatchUnfolder(n_points=2).fit(np.zeros((3, 5, 1))).get_feature_names_out())
        ['x0@0', 'x0@1']
        """
        check_is_fitted(self)
        names = self._point_names() if self.by == "batch" else self._variables()
        return np.asarray(names, dtype=object)

    # --- what came in ----------------------------------------------------------------------------

    def _read(self, X: Array, groups: Column | None, *, reset: bool) -> _Given:
        """Return checked batches, in their order."""
        shape: tuple[Any, ...] = getattr(X, "shape", ())
        several = list(X) if len(shape) == 3 else X
        if isinstance(several, list | tuple) and several and _checks.is_table(several[0]):
            if groups is not None:
                remedy = "They are for the rows of one long table."
                raise ValueError(expected("groups", "None for a list of batches", groups, remedy))
            parts, labels = list(several), list(range(len(several)))
        else:
            parts, labels = self._cut(several, groups)
        names = [names_of(part) for part in parts]
        tables = [_numbers(part, label) for part, label in zip(parts, labels, strict=True)]
        for label, table, own in zip(labels, tables, names, strict=True):
            if table.shape[1] != tables[0].shape[1] or own != names[0]:
                what = f"the columns of batch {labels[0]!r}, {_columns(tables[0], names[0])}"
                raise ValueError(expected(f"batch {label!r}", what, _columns(table, own)))
        _checks.check_columns(self, int(tables[0].shape[1]), names[0], reset=reset)
        frame = parts[0] if is_frame(parts[0]) else None
        return _Given(tables, labels, names[0], frame)

    def _cut(self, X: Array, groups: Column | None) -> tuple[list[Any], list[Any]]:
        """Return the batches of a long table, and their names."""
        if self.batch is not None:
            X, groups = self._without_names(X, groups)
        if groups is None:
            return [X], [0]
        ids, table = np.asarray(groups), X if hasattr(X, "shape") else np.asarray(X)
        n = int(table.shape[0])
        if ids.shape != (n,):
            raise ValueError(expected("groups", f"one name for each of {n} rows", ids.shape))
        cut = grouped(ids)
        take = getattr(table, "iloc", table)
        return [take[rows] for rows in cut.values()], list(cut)

    def _without_names(self, X: Array, groups: Column | None) -> tuple[Array, Column]:
        """Return a long frame without the column that names batches, and that column."""
        if groups is not None:
            raise ValueError(expected("groups", "None where batch= names a column", groups))
        columns = list(getattr(X, "columns", []))
        if not is_frame(X) or is_arrow(X) or self.batch not in columns:
            what = f"a pandas or polars frame with the column {self.batch!r}, or a list of batches"
            raise ValueError(expected("X", what, columns[:20] or type(X)))
        return X[[c for c in columns if c != self.batch]], X[self.batch].to_numpy()

    def _indicator_of(self, given: _Given) -> int | None:
        """Return the number of the indicator variable."""
        wanted, d = self.align_to, int(self.n_features_in_)
        if wanted is None:
            return None
        if isinstance(wanted, str):
            if given.names is None or wanted not in given.names:
                got = f"{wanted!r} and columns {given.names or 'without names'}"
                raise ValueError(expected("align_to", "a column of the batches", got))
            found = given.names.index(wanted)
        else:
            _checks.check_number("align_to", wanted, -d, integer=True)
            if wanted >= d:
                raise ValueError(expected("align_to", f"a column number below {d}", wanted))
            found = int(wanted) % d
        if d < 2:
            raise ValueError(expected("batches", "a column besides the indicator", f"{d} column"))
        return found

    def _grid_of(self, given: _Given, cut: int | None) -> tuple[int | None, Grid]:
        """Return the number of rows of every batch, if it is the same, and where they are read."""
        if cut is None:
            sizes = {len(table) for table in given.tables}
            if len(sizes) == 1:
                (length,) = sizes
                return length, Grid(0.0, float(length - 1), self.n_points)
            return None, Grid(0.0, 1.0, self.n_points)
        if self.span is not None:
            start, end = _span(self.span)
            return None, Grid(start, end, self.n_points)
        places = [self._place(table, k, given, cut) for k, table in enumerate(given.tables)]
        first, last = np.array([p[0] for p in places]), np.array([p[-1] for p in places])
        if not first.max() < last.min():
            got = (
                f"{last.min():g} at the end of batch {given.labels[int(last.argmin())]!r} and "
                f"{first.max():g} at the start of batch {given.labels[int(first.argmax())]!r}"
            )
            remedy = "Leave these batches out, or give span=(start, end)."
            raise ValueError(
                expected("the indicator", "a range that all batches have", got, remedy)
            )
        return None, Grid(float(first.max()), float(last.min()), self.n_points)

    def _place(self, table: Floats, k: int, given: _Given, cut: int) -> Floats:
        """Return the indicator of a batch, which increases."""
        place = table[:, cut]
        name = given.names[cut] if given.names else f"column {cut}"
        check_increasing(place, f"the indicator {name!r}", f"batch {given.labels[k]!r}")
        return place

    def _trajectories(self, given: _Given, lengths: Column | int | None) -> Floats:
        """Return the batches on the grid, (n, n_points, d), without the indicator."""
        whole = self._lengths(given, lengths)
        found = []
        for k, table in enumerate(given.tables):
            if self._indicator is not None:
                place = self._place(table, k, given, self._indicator)
                table = np.delete(table, self._indicator, axis=1)
            else:  # in rows of the batches of `fit`, or in shares of a batch
                scale = 1 if self.length_ is None else max(self.length_ - 1, 1)
                place = np.asarray(
                    np.arange(len(table)) * (scale / max(whole[k] - 1, 1)), dtype=np.float64
                )
            found.append(resampled(table, place, self._grid))
        return np.stack(found)

    def _lengths(self, given: _Given, lengths: Column | int | None) -> list[int]:
        """Return the number of rows that each batch has in the end."""
        sizes = [len(table) for table in given.tables]
        if self._indicator is not None:
            if lengths is not None:
                raise ValueError(expected("lengths", "None where an indicator aligns", lengths))
            return sizes
        if lengths is None:
            wanted = sizes if self.length_ is None else [self.length_] * len(sizes)
        else:
            try:
                wanted = np.broadcast_to(np.asarray(lengths), (len(sizes),)).tolist()
            except ValueError:
                what = f"a number for each of {len(sizes)} batches"
                raise ValueError(expected("lengths", what, lengths)) from None
        for label, size, whole in zip(given.labels, sizes, wanted, strict=True):
            if not whole >= size:
                remedy = "Give its number of rows when finished as `lengths`."
                raise ValueError(
                    expected(f"batch {label!r}", f"at most {whole} rows", size, remedy)
                )
        return wanted

    # --- what comes out --------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        return int(self.n_features_in_) - (self._indicator is not None)

    def _variables(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        every = [f"x{j}" for j in range(int(self.n_features_in_))] if names is None else names
        return [str(name) for j, name in enumerate(every) if j != self._indicator]

    def _point_names(self) -> list[str]:
        variables = self._variables()
        return [f"{name}@{p}" for p in range(self.n_points) for name in variables]


def _numbers(part: Rows, label: object) -> Floats:
    """Return a batch as a table of numbers, (t, d)."""
    refuse_dates(part)
    table = np.asarray(_checks.check_matrix(part, "X"), dtype=np.float64)
    if np.isinf(table).any():
        raise ValueError(
            expected(f"batch {label!r}", "finite numbers, or NaN where none is", "infinity")
        )
    return table


def _columns(table: Floats, names: list[str] | None) -> object:
    return names or f"{table.shape[1]} columns without names"


def _span(span: Sequence[float]) -> tuple[float, float]:
    """Return start and end of the grid, checked."""
    pair = np.asarray(span, dtype=np.float64)
    if pair.shape != (2,) or not pair[0] < pair[1]:
        raise ValueError(expected("span", "(start, end) with start < end", span))
    return float(pair[0]), float(pair[1])


def _like(rows: Floats, frame: Array, names: list[str], labels: list[Any]) -> Array:
    """Return rows as a frame of the library that the batches came in."""
    kind = type(frame)
    library = kind.__module__.split(".")[0]
    if library == "pandas":
        return kind(rows, index=labels, columns=names)
    if library == "polars":
        return kind(rows, schema=names, orient="row")
    return rows
