"""The one place where tables in parts enter and leave the estimators."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import backend, memory, note
from dualpca.data import Batches, Blocks, Columns, Host, Parts, is_dask, mapped
from dualpca.errors import expected
from dualpca.estimators._memory_only import is_path, is_stored, refuse_missing_path
from dualpca.estimators._validation import check_weights
from dualpca.operators import WIDEST, Survey, scatter_of, survey

SHARE_OF_MEMORY = 0.25
"""Memory maps larger than this share of the free memory are read in parts."""

IN_PARTS = ("auto", "dense", "krylov", "covariance_eigh", "arpack", "randomized")


def parts_of(X: Any, *, fitting: bool = True) -> Parts | None:
    """Return X as a table in parts, or None for what is fitted in memory as ever.

    In parts: `Batches`, Dask arrays and frames, paths of files, things on disk that can be sliced
    (Zarr, HDF5), and, for `fit`, memory maps that are large beside the free memory.
    """
    if isinstance(X, Parts):
        return X
    if is_dask(X):
        from dualpca.data.dask_table import DaskParts

        return DaskParts.of(X)
    if isinstance(X, np.memmap):
        large = fitting and X.nbytes > SHARE_OF_MEMORY * memory.free()
        return Blocks(X) if large else None
    if is_path(X):
        refuse_missing_path(X)
        return Blocks(mapped(X)) if Path(X).suffix == ".npy" else Batches(X)
    if is_stored(X):
        return Blocks(X)
    return None


def open_parts(model: Any, parts: Parts, sample_weight: Any = None) -> Parts:
    """Take the width and the names of the features; return the table with its weights."""
    if parts.d < 1:
        raise ValueError(f"Found array with 0 feature(s) (shape=({parts.n}, {parts.d})).")
    model.n_features_in_ = parts.d
    vars(model).pop("feature_names_in_", None)
    if parts.names is not None:
        model.feature_names_in_ = np.asarray(parts.names, dtype=object)
    return weighing(parts, sample_weight)


def weighing(parts: Parts, sample_weight: Any) -> Parts:
    """Return a table with weights, one a row, all in memory; as it is where there are none."""
    if sample_weight is None:
        return parts
    w = np.asarray(sample_weight)
    if w.ndim != 1:
        raise ValueError(expected("sample_weight", "one number a row for data in parts", w.shape))
    return parts.weighing(backend.to_numpy(check_weights(w, w[:, None])))


def refuse_weights(sample_weight: Any) -> None:
    """Refuse weights where a fit in parts cannot take them."""
    if sample_weight is not None:
        what = "None for data in parts, but of PCA, PPCA, BayesianPCA and FactorAnalysis"
        raise ValueError(expected("sample_weight", what, "weights", "partial_fit takes them."))


def check_parts(model: Any, parts: Parts) -> None:
    """Refuse a table whose features are not those of the fit."""
    name, fitted = type(model).__name__, getattr(model, "feature_names_in_", None)
    if parts.d != model.n_features_in_:
        raise ValueError(
            f"X has {parts.d} features, but {name} is expecting {model.n_features_in_} features "
            "as input."
        )
    if fitted is not None and parts.names is not None and list(fitted) != parts.names:
        raise ValueError(
            "The feature names should match those that were passed during fit: expected "
            f"{list(fitted)[:10]}, got {parts.names[:10]}. Order the columns as in fit."
        )


def check_solver(name: str) -> None:
    """Refuse solvers that need all rows at once."""
    if name not in IN_PARTS:
        remedy = "The others need all rows in memory."
        raise ValueError(expected("the solver", f"one of {list(IN_PARTS)}", name, remedy))


def surveyed(parts: Parts, *, nan: bool) -> Survey:
    """Read all rows once; say by which route."""
    wide = parts.d > WIDEST
    how = "block Krylov, a pass a product" if wide else f"moments, ({parts.d}, {parts.d}) added up"
    tell_route(parts, f"{how}; EM, a pass a step, if values are missing" if nan else how)
    return survey(parts, wide=wide, nan=nan)


def tell_route(parts: Parts, how: str) -> None:
    """Say in one line how a table in parts is read and what is made of it."""
    note(f"{parts.route} on the CPU: {how}")


def columns_of(parts: Parts, how: str) -> tuple[Columns, bool]:
    """Read what is known of every feature in one pass, and whether values are missing."""
    tell_route(parts, how)
    columns = parts.reduce(Columns.of, Columns.merge)
    return columns, bool((columns.n < columns.rows).any())


def fit_linear(model: Any, parts: Parts, *, nan: bool) -> None:
    """Fit a linear model to a table in parts."""
    found = surveyed(parts, nan=nan)
    if found.holes:
        model._fit_holes(parts, found.columns)
        return
    operator, count = scatter_of(parts, found, standardize=model._standardize)
    check_rows_count(model, count)
    model._publish(operator, count, parts.like)


def check_rows_count(model: Any, count: int) -> None:
    """Refuse fewer than two rows, in scikit-learn's words."""
    if count < 2:
        raise ValueError(
            f"Found array with {count} sample(s) while a minimum of 2 is required by "
            f"{type(model).__name__}."
        )


def by_parts(
    width: str | None, dtype: Any = np.float64, takes: tuple[str, ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a method that makes rows of rows take tables in parts as well.

    A Dask array (or frame) gives a Dask array, not computed yet; anything else in parts gives
    `Batches`, computed when they are read.

    Parameters
    ----------
    width : str or None
        Attribute that holds the number of columns of the result; None for one number a row.
    dtype : NumPy dtype
        Of one number a row; columns have that of the table.
    takes : tuple of str
        Further arguments that change no shape.
    """

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def either(self: Any, X: Any, *args: Any, **options: Any) -> Any:
            parts = parts_of(X, fitting=False)
            if parts is None:
                return method(self, X, *args, **options)
            check_is_fitted(self)
            check_parts(self, parts)
            options |= dict(zip(takes, args, strict=False))
            others = {name: value for name, value in options.items() if name not in takes}
            if args[len(takes) :] or any(v is not None and v is not False for v in others.values()):
                what = "without further arguments for data in parts"
                raise ValueError(expected(method.__name__, what, options or args))
            refuse_frames(self, method.__name__)
            columns = None if width is None else int(getattr(self, width))
            kind = np.dtype(dtype) if width is None else parts.dtype
            return parts.map(OnRows(method, self, columns, kind, options), columns, kind)

        return either

    return decorate


def refuse_frames(model: Any, method: str) -> None:
    """Refuse to make a frame of a table in parts: scikit-learn would gather all of it."""
    made = _get_output_config("transform", model)["dense"] if method == "transform" else "default"
    if made != "default":
        what = "'default' for data in parts, which may be larger than memory"
        raise ValueError(expected("set_output(transform=...)", what, made))


class OnRows:
    """A method of a fitted model as a function of rows that can be sent to other processes."""

    def __init__(
        self,
        method: Callable[..., Any],
        model: Any,
        width: int | None,
        dtype: Any,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.model, self.width, self.dtype, self.options = copy(model), width, dtype, options or {}
        self.__name__ = method.__name__  # what Dask calls the results
        vars(self.model).pop("feature_names_in_", None)  # rows of a part have no names to check

    def __call__(self, rows: Host) -> Host:
        """Return what the method makes of the rows."""
        if len(rows) == 0:
            shape = (0,) if self.width is None else (0, self.width)
            return np.empty(shape, dtype=self.dtype)
        return np.asarray(getattr(self.model, self.__name__)(rows, **self.options))


def average(model: Any, parts: Parts, sample_weight: Any = None) -> float:
    """Return the average log-density of the rows of a table in parts."""
    check_is_fitted(model)
    check_parts(model, parts)
    density = OnRows(type(model).score_samples, model, None, np.float64)

    def of(rows: Host, weights: Host | None = None) -> Host:
        w = np.ones(len(rows)) if weights is None else weights
        return np.array([w @ density(rows), w.sum()])

    total, count = weighing(parts, sample_weight).reduce(of, np.add)
    return float(total / count)
