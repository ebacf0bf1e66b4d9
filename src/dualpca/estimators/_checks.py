"""Input checks: rows of any kind, weights, counts. Nothing is changed, filled or cast silently."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from dualpca.arrays import Array, backend, is_torch_generator, memory, seed_of
from dualpca.data import (
    ChunkedTable,
    Host,
    Table,
    constant_columns,
    observed_part,
    refuse_nonfinite,
    refuse_text,
    require_in_memory,
    target_of,
)
from dualpca.errors import EmptyColumnError, caused_by, expected
from dualpca.estimators._types import Columns, Rows, Seed, Weights
from dualpca.files.checkpoints import resuming

if TYPE_CHECKING:
    from dualpca.estimators._shell import Estimator


FLOATS = [np.float64, np.float32]


SPARSE = ("csr", "csc")

ESTIMATED = ("auto", "estimated", "fixed")
"""What intervals take the parameters for: `parameters=`."""


def check_rows(
    estimator: Estimator,
    X: Rows,
    *,
    reset: bool,
    min_rows: int = 1,
    accept_sparse: bool = False,
) -> Array:
    """Return X as a two-dimensional float array of its own library, without a copy if it is one.

    Finiteness is not tested: it shows in results for free (`check_finite_result`).
    """
    if backend.is_plain(X) and _fits(estimator, X, reset, min_rows):
        return X
    require_in_memory(X)
    if not backend.is_foreign(X):
        with text_named(X):
            return validate_data(
                estimator,
                X,
                reset=reset,
                dtype=FLOATS,
                accept_sparse=SPARSE if accept_sparse else False,
                ensure_all_finite=False,
                ensure_min_samples=min_rows,
                copy=False,
            )
    if backend.is_sparse_tensor(X):
        if not estimator._accepts_sparse:
            what = f"dense rows: {type(estimator).__name__} accepts no sparse tensors"
            raise TypeError(expected("X", what, type(X), "Give X.to_dense()."))
        X = backend.by_rows(X)
    rows = check_matrix(X, "X", attached=not reset)
    n, d = rows.shape
    if n < min_rows or d < 1:
        raise ValueError(
            f"Found array with shape={tuple(rows.shape)}, while a minimum of {min_rows} sample(s) "
            f"and 1 feature(s) is required by {type(estimator).__name__}."
        )
    check_columns(estimator, int(d), None, reset=reset)
    return rows


def _fits(estimator: Estimator, X: Array, reset: bool, min_rows: int) -> bool:
    """Return True if scikit-learn would return a plain matrix as it is; remember its features.

    Its `validate_data` takes longer than a small fit. What it would refuse, or warn of, is left
    to it.
    """
    (n, d), known = X.shape, estimator.__dict__
    if n < max(min_rows, 1) or d < 1:
        return False
    if not reset:
        return known.get("n_features_in_") == d and "feature_names_in_" not in known
    estimator.n_features_in_ = d
    known.pop("feature_names_in_", None)
    return True


def check_columns(estimator: Estimator, d: int, names: list[str] | None, *, reset: bool) -> None:
    """Remember number and names of the features if `reset`; otherwise compare them with the fit."""
    if reset:
        estimator.n_features_in_ = d
        estimator.__dict__.pop("feature_names_in_", None)
        if names is not None:
            estimator.feature_names_in_ = np.asarray(names, dtype=object)
        return
    if d != estimator.n_features_in_:
        raise ValueError(
            f"X has {d} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input."
        )
    fitted = getattr(estimator, "feature_names_in_", None)
    if fitted is not None and names is not None and list(fitted) != names:
        raise ValueError(
            "The feature names should match those that were passed during fit: expected "
            f"{list(fitted)[:10]}, got {names[:10]}. Order the columns as in fit."
        )


def check_matrix(X: Rows, name: str, *, min_columns: int = 1, attached: bool = False) -> Array:
    """Return X as a two-dimensional real floating array.

    `attached` where results are to be differentiable in X, a tensor that requires it.
    """
    require_in_memory(X, name)
    if not backend.is_foreign(X):
        with text_named(X, name):
            return check_array(
                X,
                dtype=FLOATS,
                ensure_all_finite=False,
                ensure_min_features=min_columns,
                input_name=name,
            )
    found: Array = X
    xp = backend.namespace(found)
    if found.ndim != 2:
        raise ValueError(expected(name, "a 2-dimensional array", tuple(found.shape)))
    if xp.isdtype(found.dtype, "complex floating"):
        raise ValueError(f"Complex data not supported: {name} has dtype {found.dtype}.")
    found = found if attached else backend.detached(found)
    return found if found.dtype in (xp.float32, xp.float64) else xp.astype(found, xp.float64)


def is_table(x: object) -> bool:
    """Return True if an entry of a list is a table, a sequence of rows rather than a row."""
    if hasattr(x, "shape"):
        return len(x.shape) == 2
    return isinstance(x, list | tuple) and len(x) > 0 and isinstance(x[0], list | tuple)


@contextmanager
def text_named(X: Rows, name: str = "X") -> Iterator[None]:
    """Name the columns of text in a table that scikit-learn could not read as numbers."""
    try:
        yield
    except (ValueError, TypeError) as error:
        try:
            refuse_text(X, name)
        except ValueError as better:
            raise better from None
        raise error


def check_finite_result(result: Array, X: Array, *, missing: bool = False) -> Array:
    """Return the result; if it is not finite, name the entry of X to blame.

    `missing` where NaN in X is a missing value, and only infinity is to blame.
    """
    if not backend.all_finite(result):
        refuse_nonfinite(observed_part(X) if missing else X)
        raise ValueError("the result overflows: X is too large. Divide it by a constant first.")
    return result


def check_weights(weights: Any, X: Array) -> Array | None:
    """Return the weights as a float64 vector beside X, or None."""
    if weights is None:
        return None
    w, n = np.asarray(backend.to_numpy(weights)), X.shape[0]
    if w.dtype.kind not in "biuf":
        raise ValueError(expected("sample_weight", "real numbers", w.dtype))
    w = np.full(n, float(w)) if w.ndim == 0 else w.astype(np.float64)
    if w.shape != (n,):
        raise ValueError(expected("sample_weight", f"of shape ({n},), one per row", w.shape))
    bad = w[~np.isfinite(w) | (w < 0)]
    if bad.size:
        raise ValueError(expected("sample_weight", "finite and not negative", float(bad[0])))
    if not np.any(w > 0):
        raise ValueError("sample_weight must be positive for some row, got zeros only.")
    return backend.asarray(w, X)


def weighted_mean(values: Array, sample_weight: Weights) -> float:
    """Return the mean of a vector, weighted if weights are given."""
    w, xp = check_weights(sample_weight, values[:, None]), backend.namespace(values)
    return float(xp.mean(values) if w is None else w @ values / xp.sum(w))


def with_weights(chunks: ChunkedTable, sample_weight: Weights) -> ChunkedTable:
    """Return a table with weights, which are all in memory; as it is where there are none."""
    if sample_weight is None:
        return chunks
    w = np.asarray(sample_weight)
    if w.ndim != 1:
        raise ValueError(expected("sample_weight", "one number per row for chunked data", w.shape))
    return chunks.with_weights(backend.to_numpy(check_weights(w, w[:, None])))


def refuse_weights(sample_weight: Weights) -> None:
    """Refuse weights where the fit of a chunked table cannot use them."""
    if sample_weight is not None:
        what = (
            "None for chunked data, except in PCA, PPCA, BayesianPCA, FactorAnalysis and exact "
            "kernel models"
        )
        raise ValueError(expected("sample_weight", what, "weights", "partial_fit accepts them."))


def refuse_frames(estimator: Estimator, method: str) -> None:
    """Refuse to make a frame of a chunked table: scikit-learn would gather all of it.

    Where one is asked for is private in scikit-learn: `set_output` has no public counterpart.
    """
    config = _get_output_config("transform", estimator)["dense"]
    if method == "transform" and config != "default":
        what = "'default' for chunked data, which may be larger than memory"
        raise ValueError(expected("set_output(transform=...)", what, config))


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a name that is not on the list."""
    if value not in choices:
        raise ValueError(expected(name, f"one of {list(choices)}", value))


def check_number(name: str, value: Any, low: float, *, integer: bool = False) -> None:
    """Refuse what is not a real (or whole) number of at least `low`."""
    if (type(value) is int or (type(value) is float and not integer)) and value >= low:
        return
    kind = Integral if integer else Real
    if isinstance(value, bool) or not isinstance(value, kind) or not float(value) >= low:
        what = "an integer" if integer else "a number"
        raise ValueError(expected(name, f"{what} of at least {low:g}", value))


def check_numbers(
    estimator: Estimator,
    counts: Iterable[str] = (),
    numbers: Iterable[str] = (),
    flags: Iterable[str] = (),
) -> None:
    """Refuse what is no count from 1, no number from 0 short of infinity, or not True or False."""
    params = vars(estimator)
    for name in counts:
        check_number(name, params[name], 1, integer=True)
    for name in numbers:
        check_number(name, params[name], 0)
        if math.isinf(params[name]):
            raise ValueError(expected(name, "a finite number of at least 0", params[name]))
    for name in flags:
        check_flag(name, params[name])


def check_share(name: str, value: Any) -> None:
    """Refuse what is not a number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(expected(name, "a number between 0 and 1, both excluded", value))


def check_array_path(name: str, value: object) -> None:
    """Refuse what is neither None nor the path of a .npy file in a folder that is there."""
    if value is None:
        return
    if not isinstance(value, str | os.PathLike) or not os.fspath(value).endswith(".npy"):
        raise ValueError(expected(name, "None or a path that ends in .npy", value))
    target_of(value)


def check_flag(name: str, value: Any) -> None:
    """Refuse what is not True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(expected(name, "True or False", value))


def generator(random_state: Seed) -> np.random.Generator:
    """Return a NumPy Generator from None, a seed, a RandomState or a Generator.

    A generator of torch gives the seed, so its state advances; draws are NumPy's on every device.
    """
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31 - 1)
    elif is_torch_generator(random_state):
        random_state = seed_of(random_state)
    if not isinstance(random_state, np.random.Generator | int | Integral | None):
        what = "None, an int, a Generator (NumPy's or torch's) or a RandomState"
        raise ValueError(expected("random_state", what, random_state))
    if not isinstance(random_state, int | Integral):
        return np.random.default_rng(random_state)
    if int(random_state) < 0:
        raise ValueError(expected("random_state", "not negative", random_state))
    return np.random.default_rng(int(random_state))


def check_draws(
    n: int, random_state: Seed, name: str = "n_samples"
) -> tuple[int, np.random.Generator]:
    """Return a number of draws, once it is checked, and where random numbers come from."""
    check_number(name, n, 1, integer=True)
    return int(n), generator(random_state)


def fixed_generator(random_state: Seed) -> int | np.random.Generator:
    """Return where the random numbers of a fit come from: a fixed seed by default."""
    return 0 if random_state is None else generator(random_state)


def as_frame(table: Array, like: Any, names: Any = None) -> Any:
    """Return the table as a frame where `like` is a pandas or polars frame."""
    library = type(like).__module__.split(".")[0]
    if library not in ("pandas", "polars"):
        return table
    columns = list(like.columns if names is None else names)
    if library == "pandas":
        return type(like)(table, index=like.index, columns=columns)
    return type(like)(table, schema=columns, orient="row")


def as_frames(tables: Array, like: Rows) -> Any:
    """Return tables (m, n, d) as a list of m frames where `like` is a frame."""
    found = [as_frame(tables[k, ...], like) for k in range(int(tables.shape[0]))]
    return tables if not found or type(found[0]) is type(tables) else found


def check_bootstrap(estimator: Estimator, least: int, known: Host, word: str) -> None:
    """Refuse to bootstrap fewer rows than `least` with known entries, or a column without any."""
    count = int(known.any(axis=1).sum())
    if count < least:
        raise ValueError(
            f"a bootstrap needs at least {least} rows with {word} values, got {count}. Give the "
            "training table, or parameters='fixed', which takes the fitted parameters as known."
        )
    empty = [int(j) for j in np.flatnonzero(~known.any(axis=0))]
    if empty:
        raise EmptyColumnError(empty, getattr(estimator, "feature_names_in_", None))


def column_labels(estimator: Estimator, columns: Iterable[int]) -> list[str]:
    """Return columns as messages name them: by their names in the frame, or by their numbers."""
    names = getattr(estimator, "feature_names_in_", None)
    return [str(j) if names is None else repr(str(names[j])) for j in columns]


def named_constants(estimator: Estimator, table: Table) -> AbstractContextManager[None]:
    """Name the columns that do not vary in errors and warnings of degenerate fits."""
    kernel = getattr(estimator, "kernel", None)
    of_pairs = isinstance(kernel, str) and kernel == "precomputed"

    def words(message: str) -> str:
        found = [] if of_pairs else constant_columns(table)
        if not found:
            return ""
        if len(found) == table.d:
            told = "every feature" in message
            return "" if told else "Every column has one value in all rows: nothing varies."
        labels = column_labels(estimator, found[:10])
        more = f" and {len(found) - 10} more" if found[10:] else ""
        names = ", ".join(labels) + more
        if len(found) == 1:
            return f"Column {names} has the same value in all rows: leave it out."
        return f"Columns {names} have the same value in all rows: leave them out."

    return caused_by(words)


def column_number(estimator: Estimator, column: object, name: str) -> int:
    """Return the number of a column that a parameter names, by its name in the frame or number."""
    check_is_fitted(estimator)
    names = list(getattr(estimator, "feature_names_in_", ()))
    d = int(estimator.n_features_in_)
    j = names.index(column) if column in names else column
    if isinstance(j, bool) or not isinstance(j, Integral) or not 0 <= int(j) < d:
        there = names[:10] if names else f"0 to {d - 1}"
        raise ValueError(expected(name, f"of columns of X, {there}", column))
    return int(j)


def column_numbers(estimator: Estimator, columns: Columns, name: str) -> list[int]:
    """Return the numbers of several columns; none for None."""
    if isinstance(columns, str):
        raise ValueError(expected(name, f"a list of columns, such as [{columns!r}]", columns))
    return [column_number(estimator, column, name) for column in columns or ()]


@contextmanager
def explained(estimator: Estimator) -> Iterator[None]:
    """Say errors of a fit in the words of its user.

    Features that no row observes have the names of the frame, a checkpoint has its path, and memory
    that runs out a size.
    """
    asked = getattr(estimator, "checkpoint", None)
    try:
        with memory.explained(memory.IN_A_FIT):
            if asked is None:
                yield
            else:
                with resuming(asked):
                    yield
    except EmptyColumnError as error:
        names = getattr(estimator, "feature_names_in_", None)
        if names is None:
            raise
        raise EmptyColumnError(error.columns, names) from None
