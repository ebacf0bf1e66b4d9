"""Supplementary columns and rows of a fitted model: shown, not modelled."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from dualpca import gaussian
from dualpca.arrays import backend
from dualpca.data import Host, require_in_memory
from dualpca.data.frames import check_columns, is_arrow, is_date, is_frame
from dualpca.data.kinds import Cells, column_cells, opened_table
from dualpca.errors import expected
from dualpca.estimators._checks import check_weights
from dualpca.gaussian import Coded, Representation, Supplementary

BLOCK = 4_000_000
"""Numbers that a block of rows may need: covariances of its latents, or its entries."""


class Placing(Protocol):
    """A fitted model that places rows."""

    n_features_in_: int

    def transform(self, X: Any) -> Any:
        """Return the scores of rows, (n, q)."""


def supplementary(
    model: Placing,
    X: Any,
    columns: Any = None,
    *,
    rows: Any = None,
    categories: Sequence[Any] | None = None,
    names: Sequence[str] | None = None,
    sample_weight: Any = None,
) -> Supplementary:
    """Relate columns and rows that a model was not fitted to with its components.

    Numbers get their correlation with every component, categories the barycentre of every level,
    its v-test and their correlation ratio, rows their place and its quality: FactoMineR's
    `quanti.sup`, `quali.sup` and `ind.sup`. Nothing here changes the model.

    Parameters
    ----------
    model : PCA, PPCA, FactorAnalysis, BayesianPCA, CopulaPPCA, or another model with `transform`
    X : array or frame of shape (n, d)
        Rows of the model, usually the training rows. NaN where the model accepts it.
    columns : frame, array of shape (n, p) or (n,), mapping, or list of str, default=None
        What is known beside of the same rows; or names of columns of the frame X, which may have
        more columns than the model uses. Numbers are numbers; text, booleans and categories are
        categories. NaN, None and null are unknown: every column is judged by the rows that know it.
    rows : array or frame of shape (m, d), default=None
        Supplementary rows.
    categories : sequence, default=None
        Columns of numbers that are codes of categories, by name (by position in an array).
    names : sequence of str, default=None
        Names of the columns of an array; x0, x1, … by default.
    sample_weight : array of shape (n,), default=None
        As in `fit`: a row of weight 2 counts as two rows. v-tests are NaN for weights that sum to
        1 or less, which say nothing of how many rows there are.

    Returns
    -------
    Supplementary
        `numbers`, `levels`, `categories` and `rows`, each with arrays of one column per component,
        and `table()`, which pandas and polars make a frame of.

        - `numbers`: `correlation` with the scores, `cos2`, `latent_correlation`.
        - `levels`: `coordinates` (barycentres of the scores), `v_test`, `cos2`, `distance`,
          `latent_coordinates`. A v-test beyond ±1.96 is a level whose rows lie further from the
          middle than 95 % of random groups of its size.
        - `categories`: `eta2`, the share of a score's variance that lies between the levels.
        - `rows`: `coordinates`, `cos2`, `distance`; None unless rows are given.

    Notes
    -----
    On complete rows the numbers are those of FactoMineR, of `PCA` and of `PPCA` alike: correlations
    and v-tests do not change with the unit of a score. Where X misses values, scores are posterior
    means, which are shrunk towards 0, the more so the less a row observed: correlations with them
    are too small, and barycentres too close to the middle, while v-tests stay valid. What begins
    with `latent_` is corrected for that: it describes the latents z themselves, by the reliability
    I − Cov(z | x) of every row, and is to be compared with loadings per standard deviation of their
    column. It assumes that a supplementary column has to do with a row through z alone, so it is
    too large for columns that are part of the model; it can exceed 1 by chance; and it is None for
    models without a posterior.

    cos² and distances count missing values as the model fills them, and are in the units of the
    fit: of standardised columns after `standardize=True`. They are None for models without
    orthonormal `components_`, such as `FactorAnalysis`. Undefined numbers (of a constant column)
    are NaN. Rows are answered in blocks; O(nq(p + q)) beside `transform` and `posterior`.

    References
    ----------
    Lê, Josse & Husson (2008), FactoMineR: an R package for multivariate analysis; Lebart, Morineau
    & Piron (2000), Statistique exploratoire multidimensionnelle.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import dualpca
    >>> iris = load_iris()
    >>> model = dualpca.PCA(2, standardize=True).fit(iris.data[:, :3])
    >>> beside = {"petal width": iris.data[:, 3], "species": iris.target_names[iris.target]}
    >>> found = dualpca.supplementary(model, iris.data[:, :3], beside)
    >>> found.numbers.correlation.round(2)
    array([[0.92, 0.1 ]])
    >>> found.levels.names
    ('species=setosa', 'species=versicolor', 'species=virginica')
    >>> found.levels.v_test.round(1)
    array([[-11.2,   2.1],
           [  3.1,  -4.7],
           [  8.1,   2.7]])
    """
    require_in_memory(X)
    X, columns = _apart(model, X, columns)
    n = _height(X)
    numbers, coded = _columns(columns, n, names, categories, getattr(X, "index", None))
    weights = _weights(sample_weight, n)
    Z, reliability, shown = _passed(model, X, numbers, coded, weights)
    by_number = None if reliability is None else reliability.numbers
    by_level = None if reliability is None else reliability.levels
    levels, ratios = gaussian.category_columns(coded, Z, weights, by_level, shown)
    found = gaussian.number_columns(numbers.names, numbers.values, Z, weights, by_number)
    return Supplementary(found, levels, ratios, None if rows is None else _placed(model, rows))


# --- one pass over the rows --------------------------------------------------------------------


def _passed(
    model: Placing, X: Any, numbers: Numbers, coded: Coded, weights: Host
) -> tuple[Host, gaussian.Reliabilities | None, Representation | None]:
    """Return scores (n, q), average reliabilities, and how well axes show the levels."""
    n, axes, scores = _height(X), _axes(model), []
    # the weights with which rows count in the average of every number and every level
    squares = weights[:, None] * gaussian.deviations(numbers.values, weights)[0] ** 2
    G = coded.indicator(weights)
    posterior = _posterior(model)
    spreads: list[Host] = []
    offsets: Host | None = None
    for part in _blocks(model, n):
        block = _sliced(X, part)
        if posterior is None:
            Z = _host(model.transform(block))
        else:
            Z, covariance = (_host(found) for found in posterior(block))
            R = (np.eye(Z.shape[1]) - covariance).reshape(len(Z), -1)
            spreads.append(np.concatenate([squares[part].T @ R, G[:, part] @ R]))
        scores.append(Z)
        if axes is not None and len(coded.owners):
            added = G[:, part] @ _offsets(model, axes, block)
            offsets = added if offsets is None else offsets + added
    Z = np.concatenate(scores)
    q, size = Z.shape[1], G @ np.ones(n)
    shown = None
    if axes is not None and offsets is not None:
        shown = gaussian.representation(offsets / np.where(size > 0, size, np.nan)[:, None], axes.V)
    if posterior is None:
        return Z, None, shown
    total = np.concatenate([squares.sum(axis=0), size])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (sum(spreads) / total[:, None]).reshape(-1, q, q)
    p = squares.shape[1]
    return Z, gaussian.Reliabilities(mean[:p], mean[p:]), shown


def _placed(model: Placing, rows: Any) -> gaussian.SupplementaryRows:
    """Return where rows lie, and how well the axes show it."""
    require_in_memory(rows, "rows")
    rows = _apart(model, rows, None)[0]
    axes, n = _axes(model), _height(rows)
    places, found = [], []
    for part in _blocks(model, n):
        block = _sliced(rows, part)
        places.append(_host(model.transform(block)))
        if axes is not None:
            found.append(gaussian.representation(_offsets(model, axes, block), axes.V))
    if axes is None:
        return gaussian.SupplementaryRows(np.concatenate(places), None, None)
    cos2, distance = (np.concatenate(part) for part in zip(*found, strict=True))
    return gaussian.SupplementaryRows(np.concatenate(places), cos2, distance)


def _posterior(model: Placing) -> Any:
    """Return the method that gives the posterior of the latents; None if there is no single one."""
    method = getattr(model, "posterior", None)
    if method is None:
        return None
    needed = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty]
    return method if len(needed) == 1 else None  # mixtures have one per component


class Axes(NamedTuple):
    """Orthonormal axes, around a mean."""

    V: Host  # (q, d)
    mean: Host  # (d,), in the units of X
    scale: Host | float  # (d,), what columns were divided by


def _axes(model: Placing) -> Axes | None:
    """Return the axes of a model; None for models without orthonormal ones."""
    V, mean = getattr(model, "components_", None), getattr(model, "mean_", None)
    if V is None or mean is None or V.ndim != 2 or V.shape[1] != model.n_features_in_:
        return None
    V, scale = _host(V), getattr(model, "scale_", None)
    if not np.allclose(V @ V.T, np.eye(len(V)), atol=1e-5):
        return None
    return Axes(V, _host(mean), 1.0 if scale is None else _host(scale))


def _offsets(model: Placing, axes: Axes, block: Any) -> Host:
    """Return rows less the mean in the units of the fit, (m, d); missing values are filled."""
    block = block.toarray() if backend.is_sparse(block) else block
    filled = getattr(model, "impute", None)
    rows = _host(block if filled is None else filled(block))
    offsets: Host = (rows - axes.mean) / axes.scale
    return offsets


def _host(values: Any) -> Host:
    """Return an array or a frame as float64 on the host."""
    values = values.to_numpy() if is_frame(values) and not is_arrow(values) else values
    return np.asarray(backend.to_numpy(values), dtype=np.float64)


def _blocks(model: Placing, n: int) -> Iterator[slice]:
    """Yield slices of rows so that memory stays bounded."""
    found = getattr(model, "n_components_", 1)
    q = 1 if np.ndim(found) else int(found)
    yield from backend.slices(n, max(1, BLOCK // (int(model.n_features_in_) + q * q + 1)))


def _height(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _sliced(X: Any, part: slice) -> Any:
    return X.iloc[part] if hasattr(X, "iloc") else X[part]


def _weights(sample_weight: Any, n: int) -> Host:
    found = check_weights(sample_weight, np.zeros((n, 1)))
    return np.ones(n) if found is None else np.asarray(found, dtype=np.float64)


# --- what people have as numbers and codes -----------------------------------------------------


class Numbers(NamedTuple):
    """Columns of numbers."""

    names: tuple[str, ...]
    values: Host  # (n, p), NaN where unknown


def _apart(model: Placing, X: Any, columns: Any) -> tuple[Any, Any]:
    """Return the columns of X that the model uses, and the supplementary ones."""
    asked = [columns] if isinstance(columns, str) else columns if _are_names(columns) else None
    if is_arrow(X):
        raise ValueError(expected("X", "an array, or a frame of pandas or polars", type(X)))
    if not is_frame(X):
        X = X if hasattr(X, "shape") else np.asarray(X)
        if asked is not None:
            what = "a frame if columns are given by name"
            raise ValueError(expected("X", what, type(X).__name__, "Give the columns themselves."))
        return X, columns
    there = list(X.columns)
    if asked is not None:
        check_columns(list(asked), there)
        columns = X[list(asked)]
    used = getattr(model, "feature_names_in_", None)
    if used is not None and set(used) < set(there):
        X = X[list(used)]
    return X, columns


def _are_names(columns: Any) -> bool:
    plain = isinstance(columns, list | tuple)
    return plain and len(columns) > 0 and all(isinstance(name, str) for name in columns)


def _columns(
    columns: Any,
    n: int,
    names: Sequence[str] | None,
    categories: Sequence[Any] | None,
    index: Any,
) -> tuple[Numbers, Coded]:
    """Return the numbers and the categories among columns of any kind."""
    _refuse_other_index(getattr(columns, "index", None), index)
    found = _named(columns, names)
    chosen = [] if categories is None else list(categories)
    absent = [one for one in chosen if one not in found and one not in range(len(found))]
    if absent:
        raise ValueError(expected("categories", f"among {list(found)[:20]}", absent))
    cells = {name: _read(name, column, n) for name, column in found.items()}
    asked = {one if one in cells else list(cells)[one] for one in chosen}
    coded = {name: one.coded() for name, one in cells.items() if one.is_coded or name in asked}
    numbers = {name: one.numbers for name, one in cells.items() if name not in coded}
    return _numbers(numbers, n), _coded(coded, n)


def _refuse_other_index(own: Any, index: Any) -> None:
    if hasattr(index, "equals") and hasattr(own, "equals") and not index.equals(own):
        remedy = "Align them first, for instance with columns.loc[X.index]."
        raise ValueError(expected("columns", "rows of the same index as X", "another", remedy))


def _numbers(columns: Mapping[str, Any], n: int) -> Numbers:
    table = np.column_stack([np.zeros((n, 0)), *columns.values()])
    rows, places = np.nonzero(np.isinf(table))
    if len(rows):
        name, value = list(columns)[places[0]], table[rows[0], places[0]]
        raise ValueError(expected(f"column {name!r}", "finite", f"{value:g} in row {rows[0]}"))
    return Numbers(tuple(columns), table)


def _coded(columns: Mapping[str, tuple[Host, tuple[Any, ...]]], n: int) -> Coded:
    codes = np.column_stack(
        [np.zeros((n, 0), dtype=np.intp), *(one[0] for one in columns.values())]
    )
    return Coded(tuple(columns), codes, tuple(levels for _, levels in columns.values()))


def _read(name: str, column: Any, n: int) -> Cells:
    """Return a column of n rows as cells."""
    if len(column) != n:
        raise ValueError(expected(f"column {name!r}", f"of as many rows as X, {n}", len(column)))
    if is_date(getattr(column, "dtype", None)):
        remedy = "Give numbers (days since a date, say) or text."
        raise ValueError(expected(f"column {name!r}", "numbers or categories", "dates", remedy))
    try:
        return column_cells(column)
    except TypeError as error:
        raise TypeError(f"column {name!r}: {error}") from None


def _named(columns: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return every column by its name."""
    if columns is None:
        return {}
    if is_arrow(columns):
        columns = {name: columns.column(name).to_pylist() for name in columns.schema.names}
    elif is_frame(columns):
        columns = {name: columns[name] for name in columns.columns}
    if isinstance(columns, Mapping):
        if names is not None:
            raise ValueError(expected("names", "None where columns have names", names))
        return {str(name): column for name, column in columns.items()}
    if getattr(columns, "name", None) and names is None:
        return {str(columns.name): columns}
    return _numbered(columns, names)


def _numbered(columns: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the columns of an array by the names given, or by x0, x1 and so on."""
    table = columns if hasattr(columns, "ndim") else opened_table(columns)
    if table.ndim not in (1, 2):
        what = "a frame, a mapping, or an array of shape (n, p) or (n,)"
        raise ValueError(expected("columns", what, table.shape))
    parts = [table] if table.ndim == 1 else [table[:, j] for j in range(table.shape[1])]
    if names is None:
        names = [f"x{j}" for j in range(len(parts))]
    if isinstance(names, str) or len(names) != len(parts) or len(set(names)) < len(parts):
        what = f"{len(parts)} different names, one per column"
        raise ValueError(expected("names", what, names))
    return dict(zip(map(str, names), parts, strict=True))
