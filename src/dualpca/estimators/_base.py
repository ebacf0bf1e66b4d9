"""What all estimators share: rows in and out, devices, files, fitted attributes."""

from __future__ import annotations

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import wraps
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any
from zlib import crc32

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from dualpca.arrays import (
    Array,
    Choice,
    Job,
    arrays_of,
    backend,
    check_device,
    chosen,
    note,
    rows_of,
    sent,
    showing,
    to_host,
)
from dualpca.data import (
    ChunkedTable,
    Host,
    InMemoryTable,
    Moments,
    Table,
    chunked_table,
    observed_part,
    refuse_nonfinite,
    require_in_memory,
)
from dualpca.errors import (
    BackendError,
    EmptyColumnError,
    InterruptWarning,
    ModelFileError,
    StreamWarning,
    expected,
    warn,
)
from dualpca.estimators.saving import save as _save
from dualpca.files.checkpoints import Checkpoint, CheckpointWatch
from dualpca.files.fields import is_record, sizes_of
from dualpca.gaussian import (
    Monitor,
    Outliers,
    Statistics,
    check_request,
    conditional,
    drawn_imputations,
    imputed,
    judge,
    laws,
)
from dualpca.kernels import (
    ALIASES,
    KERNELS,
    Function,
    Kernel,
    accepts_nan,
    is_gaussian_process_kernel,
)
from dualpca.models.driver import History
from dualpca.models.kernel import (
    KernelChoice,
    fit_inputs,
    is_incomplete,
    is_precomputed,
)
from dualpca.models.spiked import SpikedModel
from dualpca.models.spiked import variances_like as variances_like
from dualpca.models.streaming import Stream
from dualpca.operators import used_rows as used_rows
from dualpca.solvers import KERNEL_SOLVERS, LANDMARKS, KernelOptions

if TYPE_CHECKING:  # only kernel models need them, and they take time to import
    from dualpca.preimages import Method, PreImage, Span

# --- Tables that are not in memory, where rows in memory are needed: refused with what to do -----


# --- What comes in: rows of any kind, weights, counts. Nothing is changed, filled or cast silently

SPARSE = ("csr", "csc")


def check_rows(
    estimator: Any,
    X: Any,
    *,
    reset: bool,
    min_rows: int = 1,
    accept_sparse: bool = False,
    finite: bool = False,
) -> Array:
    """Return X as a two-dimensional float array of its own library, without a copy if it is one.

    Finiteness is tested only if asked for: it shows in results for free (`check_finite_result`).
    """
    require_in_memory(X)
    if backend.is_foreign(X):
        return _check_foreign(estimator, X, reset=reset, min_rows=min_rows)
    return validate_data(
        estimator,
        X,
        reset=reset,
        dtype=[np.float64, np.float32],
        accept_sparse=SPARSE if accept_sparse else False,
        ensure_all_finite=finite,
        ensure_min_samples=min_rows,
        copy=False,
    )


def _check_foreign(estimator: Any, X: Array, *, reset: bool, min_rows: int) -> Array:
    """Check an array of torch, CuPy, … with scikit-learn's words, on its own device."""
    X = check_matrix(X, "X")
    name = type(estimator).__name__
    if X.shape[0] < min_rows or X.shape[1] < 1:
        raise ValueError(
            f"Found array with shape={tuple(X.shape)}, while a minimum of {min_rows} sample(s) "
            f"and 1 feature(s) is required by {name}."
        )
    if reset:
        estimator.n_features_in_ = int(X.shape[1])
        vars(estimator).pop("feature_names_in_", None)
    elif X.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} features, but {name} is expecting "
            f"{estimator.n_features_in_} features as input."
        )
    return X


def check_matrix(X: Any, name: str, *, min_columns: int = 1) -> Array:
    """Return X as a two-dimensional real floating array."""
    require_in_memory(X, name)
    if not backend.is_foreign(X):
        return check_array(
            X,
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_features=min_columns,
            input_name=name,
        )
    xp = backend.namespace(X)
    if X.ndim != 2:
        raise ValueError(expected(name, "a 2-dimensional array", tuple(X.shape)))
    if xp.isdtype(X.dtype, "complex floating"):
        raise ValueError(f"Complex data not supported: {name} has dtype {X.dtype}.")
    X = backend.detached(X)
    return X if X.dtype in (xp.float32, xp.float64) else xp.astype(X, xp.float64)


def check_width(X: Array, width: int, name: str) -> None:
    """Refuse a matrix with the wrong number of columns."""
    if X.shape[1] != width:
        raise ValueError(
            expected(name, f"a matrix of {width} columns (n_components)", tuple(X.shape))
        )


def check_finite_result(result: Array, X: Array) -> Array:
    """Return the result; if it is not finite, say which entry of X is to blame."""
    if not backend.all_finite(result):
        refuse_nonfinite(X)
        raise ValueError("the result overflows: X is too large. Divide it by a constant first.")
    return result


def check_weights(weights: Any, X: Array) -> Array | None:
    """Return the weights as a float64 vector beside X, or None."""
    if weights is None:
        return None
    w = np.asarray(backend.to_numpy(weights))
    if w.dtype.kind not in "biuf":
        raise ValueError(expected("sample_weight", "real numbers", w.dtype))
    w, n = w.astype(np.float64), X.shape[0]
    if w.ndim == 0:
        w = np.full(n, float(w))
    if w.shape != (n,):
        raise ValueError(expected("sample_weight", f"of shape ({n},), one a row", w.shape))
    if not np.all(np.isfinite(w)) or np.any(w < 0):
        bad = w[~np.isfinite(w) | (w < 0)][0]
        raise ValueError(expected("sample_weight", "finite and not negative", float(bad)))
    if not np.any(w > 0):
        raise ValueError("sample_weight must be positive for some row, got zeros only.")
    return backend.asarray(w, X)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a name that is not on the list."""
    if value not in choices:
        raise ValueError(expected(name, f"one of {list(choices)}", value))


def check_number(name: str, value: Any, low: float, *, integer: bool = False) -> None:
    """Refuse what is not a real (or whole) number of at least `low`."""
    kind = Integral if integer else Real
    if isinstance(value, bool) or not isinstance(value, kind) or not float(value) >= low:
        what = "an integer" if integer else "a number"
        raise ValueError(expected(name, f"{what} of at least {low:g}", value))


def check_share(name: str, value: Any) -> None:
    """Refuse what is not a number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(expected(name, "a number between 0 and 1, both excluded", value))


def check_flag(name: str, value: Any) -> None:
    """Refuse what is not True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(expected(name, "True or False", value))


def generator(random_state: Any) -> np.random.Generator:
    """Return a NumPy Generator from None, a seed, a RandomState or a Generator."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    if random_state is None or isinstance(random_state, Integral):
        return np.random.default_rng(None if random_state is None else int(random_state))
    raise ValueError(
        expected("random_state", "None, an int, a Generator or a RandomState", random_state)
    )


# --- The one place where tables in parts enter and leave the estimators --------------------------


def open_parts(model: Any, parts: ChunkedTable, sample_weight: Any = None) -> ChunkedTable:
    """Take the width and the names of the features; return the table with its weights."""
    if parts.d < 1:
        raise ValueError(f"Found array with 0 feature(s) (shape=({parts.n}, {parts.d})).")
    model.n_features_in_ = parts.d
    vars(model).pop("feature_names_in_", None)
    if parts.names is not None:
        model.feature_names_in_ = np.asarray(parts.names, dtype=object)
    return weighing(parts, sample_weight)


def weighing(parts: ChunkedTable, sample_weight: Any) -> ChunkedTable:
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


def check_parts(model: Any, parts: ChunkedTable) -> None:
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


def average(model: Any, parts: ChunkedTable, sample_weight: Any = None) -> float:
    """Return the average log-density of the rows of a table in parts."""
    check_is_fitted(model)
    check_parts(model, parts)
    density = OnRows(type(model).score_samples, model, None, np.float64)

    def of(rows: Host, weights: Host | None = None) -> Host:
        w = np.ones(len(rows)) if weights is None else weights
        return np.array([w @ density(rows), w.sum()])

    total, count = weighing(parts, sample_weight).reduce(of, np.add)
    return float(total / count)


# --- How an iterative fit went, as scikit-learn's users expect to read it ------------------------


# --- What a checkpoint of an estimator's fit is of -----------------------------------------------

ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")

FREE = ("checkpoint", "verbose", "n_jobs", "max_iter")
"""Parameters that do not change where a fit goes, or only how far."""


def watch_of(model: Any) -> CheckpointWatch | None:
    """Return the checkpoint that the parameters ask for, with what it is of."""
    checkpoint = Checkpoint.of(model.checkpoint)
    if checkpoint is None:
        return None
    params = {k: _told(v) for k, v in model.get_params().items() if k not in FREE}
    return CheckpointWatch(checkpoint, {"model": type(model).__name__, **params})


def _told(value: Any) -> str:
    """Return a parameter in words that are the same in another process.

    Where an object lies in memory says nothing, and a generator has given the start already.
    """
    if isinstance(value, np.ndarray) and value.ndim:
        words = f"{value.dtype} {value.shape}".encode()
        return f"array {value.shape} ({crc32(np.ascontiguousarray(value).tobytes() + words):08x})"
    if isinstance(value, np.generic | np.ndarray):
        return repr(value.item())
    return ADDRESS.sub("", repr(value))


def check_checkpoint(model: Any) -> None:
    """Refuse a checkpoint of several starts, or of sizes that are still to be found."""
    if Checkpoint.of(model.checkpoint) is None:
        return
    if getattr(model, "n_init", 1) > 1:
        remedy = "A checkpoint is of one start: give n_init=1."
        raise ValueError(expected("n_init", "1 with a checkpoint", model.n_init, remedy))
    sizes = [getattr(model, name, None) for name in ("n_mixtures", "n_components")]
    if any(size in ("bic", "cv") for size in sizes if isinstance(size, str)):
        raise ValueError(expected("sizes", "numbers with a checkpoint", sizes))


# --- `save`, for every model ---------------------------------------------------------------------


# --- Frames and the names of columns ------------------------------------------------------------


@contextmanager
def named_columns(model: Any) -> Iterator[None]:
    """Call features that no row observes by the names that the frame gave them."""
    try:
        yield
    except EmptyColumnError as error:
        names = getattr(model, "feature_names_in_", None)
        if names is None:
            raise
        raise EmptyColumnError(error.columns, names) from None


def check_features(features: Any, d: int) -> Any:
    """Return feature numbers as an integer vector."""
    index = np.arange(d) if features is None else np.asarray(features)
    if index.ndim != 1 or index.dtype.kind not in "iu" or index.size == 0:
        raise ValueError(expected("features", "a sequence of feature numbers", features))
    if index.min() < 0 or index.max() >= d:
        raise ValueError(expected("features", f"numbers from 0 to {d - 1}", features))
    return index


def as_frame(table: Array, like: Any, names: Any = None) -> Any:
    """Return the table as a frame where `like` is a pandas or polars frame."""
    library = type(like).__module__.split(".")[0]
    if library not in ("pandas", "polars"):
        return table
    columns = list(like.columns if names is None else names)
    if library == "pandas":
        return type(like)(table, index=like.index, columns=columns)
    return type(like)(table, schema=columns, orient="row")


# --- Fitted attributes ---------------------------------------------------------------------------


class attribute:
    """A fitted attribute: read from the model, absent before the fit or where it has none.

    Parameters
    ----------
    path : str
        Fields of the model, joined by points.
    """

    def __init__(self, path: str) -> None:
        self.path = path.split(".")

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        """Return the value, or say in Python's own words that there is none."""
        if estimator is None:
            return self
        value = estimator._fitted
        for name in self.path:
            value = None if value is None else getattr(value, name)
        if value is None:
            name = type(estimator).__name__
            raise AttributeError(f"{name!r} object has no attribute {self.name!r}")
        return list(value) if type(value) is tuple else value

    def __set__(self, estimator: Any, value: Any) -> None:
        """Change a field of the model, so that every method follows; say where that cannot be."""
        try:
            estimator._model = _replaced(estimator._fitted, self.path, value)
        except TypeError:
            name = type(estimator).__name__
            raise AttributeError(
                f"{self.name} of {name} follows from the fitted model and cannot be set."
            ) from None
        estimator.__dict__.pop("_placed", None)


def _replaced(model: Any, path: list[str], value: Any) -> Any:
    """Return a model with another value of the field at the end of a path."""
    name, *rest = path
    part = _replaced(getattr(model, name), rest, value) if rest else value
    return replace(model, **{name: part})


def history_of(state: dict[str, Any]) -> History | None:
    """Return how a fit went, of attributes as format 1 names them."""
    if "loglikelihoods_" not in state:
        return None
    values = tuple(float(v) for v in state["loglikelihoods_"])
    return History(values, state.get("n_iter_", 1), state.get("converged_", True))


# --- What every estimator is ---------------------------------------------------------------------


class Estimator(BaseEstimator):
    """An estimator around a model: a frozen dataclass that knows nothing of scikit-learn.

    Subclasses annotate `_model`, fit it with `_training` and `_keep`, and answer with methods
    under `on_rows`, which translate and call the model.
    """

    _model: Any
    device: str | None = None
    verbose: bool = False
    _accepts_sparse = False
    _accepts_nan = False

    def __sklearn_is_fitted__(self) -> bool:
        """Return True after a fit."""
        return "_model" in vars(self)

    @property
    def _fitted(self) -> Any:
        """The model, on the host; a NotFittedError, which is an AttributeError, before a fit."""
        try:
            return vars(self)["_model"]
        except KeyError:
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with "
                "appropriate arguments before using this estimator."
            ) from None

    @property
    def _working(self) -> Any:
        """The model where it works: on its device, if it was fitted on one."""
        return vars(self).get("_placed") or self._fitted

    def _keep(self, model: Any) -> Any:
        """Take over a fitted model; of one on a GPU keep a copy there."""
        self.__dict__.pop("_placed", None)
        if self._where is None:
            self._model = model
        else:
            self._placed, self._model = model, to_host(model)
        history = getattr(model, "history", None)
        if history is not None:
            self._warn_unless_converged(history)
        return self

    _where: Any = None  # torch's device, if the fit takes host arrays there

    def _warn_unless_converged(self, history: History) -> None:
        if history.interrupted:
            warn(
                f"the fit was interrupted after {history.n_iter} steps: the model is the best "
                "there was until then. Fit again to go on to the maximum.",
                InterruptWarning,
            )
        elif not history.converged and not history.endless:
            warn(
                f"the fit stopped after max_iter={self.max_iter} steps before it came within "
                f"tol={self.tol:g} of the maximum. Raise max_iter or tol.",
                ConvergenceWarning,
            )

    # --- rows in ---------------------------------------------------------------------------

    @contextmanager
    def _training(self, X: Any, sample_weight: Any = None, *, min_rows: int = 2) -> Iterator[Table]:
        """Give the checked table to fit, on the device that was asked for; show progress."""
        with showing(self.verbose), named_columns(self):
            chunks = chunked_table(X)
            self._choose_device(X, chunks)
            if chunks is not None:
                yield open_parts(self, chunks, sample_weight)
                return
            rows = self._checked(X, reset=True, min_rows=min_rows)
            weights = check_weights(sample_weight, backend.vector_like(rows))
            yield self._placed_table(rows, weights)

    def _checked(self, X: Any, *, reset: bool, min_rows: int = 1) -> Array:
        """Return X as the estimator accepts it; `reset` where it is fitted."""
        return check_rows(
            self, X, reset=reset, min_rows=min_rows, accept_sparse=self._accepts_sparse
        )

    def _placed_table(self, rows: Array, weights: Array | None) -> InMemoryTable:
        """Return checked rows as a table, on the device of the fit."""
        if self._where is not None:
            rows = sent(rows, self._where)
            weights = None if weights is None else backend.asarray(backend.to_numpy(weights), rows)
        return InMemoryTable(rows, weights)

    def _choose_device(self, X: Any, chunks: Any) -> None:
        """Decide where to fit: where the rows are, or on the GPU that `device` asks for."""
        self.__dict__.pop("_where", None)
        check_device(self.device)
        if self.device is None:
            return
        if chunks is not None or backend.is_sparse(X):
            what = type(X).__name__
            if self.device.startswith("cuda"):
                raise BackendError(
                    f"device={self.device!r} takes dense rows in memory, got {what}. Give those, "
                    "or device=None (or 'auto') for this table."
                )
            found = Choice(None, f"{what} is worked on where it is")
        else:
            pairs = getattr(self, "kernel", None) is not None
            steps = not pairs and hasattr(self, "max_iter")
            found = chosen(self.device, Job(*rows_of(X), pairs, steps))
        where = "the CPU" if found.device is None else str(found.device)
        note(f"{type(self).__name__} on {where}: {found.reason}")
        if found.device is not None:
            self._where = found.device

    def _asked(self, X: Any, method: str) -> Array:
        """Return rows that the fitted model is asked about, checked, where the model works."""
        check_is_fitted(self)
        return self._beside_model(self._checked(X, reset=False), method)

    def _asked_latents(self, Z: Any, method: str, width: int) -> Array:
        """Return rows in the space of the components, checked, where the model works."""
        check_is_fitted(self)
        Z = check_matrix(Z, "X", min_columns=0)  # a model of no components has none
        check_width(Z, width, "X")
        return self._beside_model(Z, method)

    def _beside_model(self, rows: Array, method: str) -> Array:
        if "_placed" in vars(self):
            return sent(rows, self._where)
        like = next(arrays_of(self._fitted))
        backend.require_same_home(rows, like, f"{type(self).__name__}.{method}")
        return rows

    def _home(self, result: Any, X: Any) -> Any:
        """Return a result where its rows came from."""
        if "_placed" not in vars(self) or backend.is_foreign(X):
            return result
        return to_host(result)

    def __copy__(self) -> Any:
        """Return a shallow copy that shares the model, on a GPU too."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __getstate__(self) -> Any:
        """Leave the copy on a GPU behind: other processes may have none."""
        state: Any = super().__getstate__()
        return {k: v for k, v in state.items() if k not in ("_placed", "_where")}

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        tags.input_tags.sparse = self._accepts_sparse
        tags.input_tags.allow_nan = self._accepts_nan
        return tags

    # --- files -----------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None) -> None:
        """Write the fitted model to one file, whole or not at all; `dualpca.load` reads it.

        The file is a safetensors file with parameters, versions and a checksum in its header;
        arrays of any library are copied to the host. An existing file of that name is replaced once
        the new one is complete.

        Parameters
        ----------
        path : path
            '.dpca' is the usual ending.
        metadata : dict, optional
            Anything that JSON can hold, kept beside the model: how a table became rows, notes.
            See `dualpca.save`.
        """
        _save(self, path, metadata=metadata)

    def _require_fitted(self) -> None:
        """Refuse a model that was not fitted."""
        check_is_fitted(self)

    _can_be_saved = True

    def _goes_together(self) -> bool:
        """Return True if model and inputs, as read from a file, fit each other."""
        n = self.n_features_in_
        sizes = [sizes_of(part) for part in self._parts_with_features()]
        return n >= 1 and all(found.get("d", found.get("p", n)) == n for found in sizes)

    def _parts_with_features(self) -> list[Any]:
        """Return the dataclasses whose annotations call the number of features d, or p."""
        model, stream = self.__dict__.get("_model"), self.__dict__.get("_stream", ())
        parts = [model, *(stream if type(stream) is tuple else (stream,))]
        return [part for part in parts if is_record(type(part))]

    @classmethod
    def _types_of_format_1(cls) -> dict[str, type]:
        """Return types of files of format 1 that the model no longer mentions, by name there."""
        return {}

    def _unpack(self, state: dict[str, Any]) -> None:
        """Set the attributes that a file of format 1 holds."""
        own = ("n_features_in_", "feature_names_in_", "_sklearn_output_config", "_stream")
        for name in (*own, "n_samples_seen_"):
            if name in state:
                self.__dict__[name] = state[name]
        if any(name not in (*own, "n_samples_seen_") for name in state):
            self._model = self._model_of(state)

    def _model_of(self, state: dict[str, Any]) -> Any:
        """Return the model of attributes as format 1 names them; a new estimator has none."""
        raise ModelFileError(
            f"files of format 1 hold no {type(self).__name__}: save the model again."
        )


def on_rows(
    width: str | None = None,
    *,
    cast: bool = True,
    framed: bool = False,
    dtype: Any = np.float64,
    options: tuple[str, ...] = (),
    chunked: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a method that answers row by row accept whatever holds rows.

    The method is given checked rows where the model works. Its result is cast to the dtype of the
    rows and returned where they came from. Chunked tables are answered chunk by chunk: a Dask
    collection gives a Dask array that is not computed yet, anything else gives `Batches`.

    Parameters
    ----------
    width : str or None
        Attribute that holds the number of columns of the result; None for one number per row.
    cast : bool
        Give results in the dtype of the rows; log-densities stay in float64.
    framed : bool
        Return a frame for a frame.
    dtype : NumPy dtype
        Of one number per row, for Dask.
    options : tuple of str
        Further arguments that are allowed with chunked tables: they change no shape.
    chunked : bool
        Accept chunked tables; False for methods that return more than one row per row.
    """

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        name = method.__name__.lstrip("_")  # for messages

        @wraps(method)
        def answer(self: Any, X: Any, *args: Any, **named: Any) -> Any:
            chunks = chunked_table(X, fitting=False) if chunked else None
            if chunks is not None:
                return chunkwise(self, method, chunks, width, dtype, options, args, named)
            rows = self._asked(X, name)
            with np.errstate(over="ignore", invalid="ignore"):
                result = method(self, rows, *args, **named)
            several = isinstance(result, tuple)
            found = [
                _finished(part, rows, cast, self._accepts_nan)
                for part in (result if several else (result,))
            ]
            found = [self._home(part, X) for part in found]
            found = [as_frame(part, X) for part in found] if framed else found
            return tuple(found) if several else found[0]

        return answer

    return decorate


def _finished(result: Array, rows: Array, cast: bool, nan: bool) -> Array:
    """Return a result that is finite, in the dtype of the rows."""
    if not backend.all_finite(result):
        check_finite_result(result, observed_part(rows) if nan else rows)
    if not cast:
        return result
    return backend.cast_like(result, backend.vector_like(rows))


def chunkwise(
    model: Any,
    method: Callable[..., Any],
    chunks: ChunkedTable,
    width: str | None,
    dtype: Any,
    takes: tuple[str, ...],
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> Any:
    """Return what a method says of a chunked table, when it is asked for."""
    check_is_fitted(model)
    check_parts(model, chunks)
    options |= dict(zip(takes, args, strict=False))
    others = {name: value for name, value in options.items() if name not in takes}
    if args[len(takes) :] or any(v is not None and v is not False for v in others.values()):
        what = "without further arguments for data in parts"
        raise ValueError(expected(method.__name__, what, options or args))
    refuse_frames(model, method.__name__)
    columns = None if width is None else int(getattr(model, width))
    kind = np.dtype(dtype) if width is None else chunks.dtype
    return chunks.map(OnRows(method, model, columns, kind, options), columns, kind)


# --- Linear Gaussian models ----------------------------------------------------------------------

STATISTICS = ("t2", "spe")


class LinearEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Base of the linear Gaussian models: densities, samples, T² and SPE with control limits.

    The model has `log_density`, `covariance`, `precision`, `sample` and `monitor`.
    """

    _reference = attribute("reference")  # as format 1 names it

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _monitor(self, rows: Array | None = None) -> Monitor:
        """Return what judges rows by T² and SPE."""
        monitor: Monitor = self._working.monitor(rows if self._accepts_nan else None)
        return monitor

    def _lifted(self, X: Any, scales: Array | None) -> Array:
        """Return the rows of latents X, times scales, on the span of the axes."""
        Z = self._asked_latents(X, "inverse_transform", self._n_features_out)
        Y = backend.working(Z)
        with np.errstate(over="ignore", invalid="ignore"):
            rows = self._working.lifted(Y if scales is None else Y * scales)
        return self._home(_finished(rows, Z, cast=True, nan=False), X)

    def _judged(self, rows: Array) -> tuple[Monitor, Statistics]:
        monitor = self._monitor(rows)
        found = monitor.statistics(rows)
        for statistic in (found.t2, found.spe):
            if not backend.all_finite(statistic):
                check_finite_result(statistic, observed_part(rows) if self._accepts_nan else rows)
        return monitor, found

    @on_rows(cast=False)
    def score_samples(self, X: Any) -> Array:
        """Return the log-density of every row, of what it observed where there is NaN.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN where the model accepts it.

        Returns
        -------
        array of shape (n,)
            ln N(x; μ, C) in the units of X, at O(dq) per row, with nothing d×d (theory 2). Of rows
            with NaN ln N(x_o; μ_o, C_oo), by Woodbury in q; 0 for a row with nothing observed.
        """
        return self._working.log_density(X, missing=self._accepts_nan)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the average log-density of the rows.

        Parameters
        ----------
        X : array of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional

        Returns
        -------
        float
        """
        chunks = chunked_table(X, fitting=False)
        if chunks is not None:
            return average(self, chunks, sample_weight)
        density = self.score_samples(X)
        w = check_weights(sample_weight, density[:, None])
        xp = backend.namespace(density)
        return float(xp.mean(density) if w is None else w @ density / xp.sum(w))

    def get_covariance(self) -> Array:
        """Return the covariance C of the fitted Gaussian, (d, d), in the units of X."""
        return self._fitted.covariance()

    def get_precision(self) -> Array:
        """Return the precision C⁻¹ of the fitted Gaussian, (d, d)."""
        return self._fitted.precision()

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw new rows from the fitted Gaussian.

        Parameters
        ----------
        n_samples : int
        random_state : None, int, Generator or RandomState
            The same seed gives the same rows on every array library.

        Returns
        -------
        array of shape (n_samples, d)
        """
        model = self._fitted
        check_number("n_samples", n_samples, 1, integer=True)
        return model.sample(n_samples, generator(random_state))

    @on_rows(cast=False)
    def hotelling_t2(self, X: Any) -> Array:
        """Return Hotelling's T² of every row: how far from the mean it lies along the components.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN where the model accepts it.

        Returns
        -------
        array of shape (n,)
            Σ y²/ℓ over the components. For rows with NaN z̄ᵀ Var(z̄)⁻¹ z̄, with the posterior mean z̄
            of the latents and its variance over rows that observe the same features; 0 for a row
            with nothing observed.
        """
        return self._judged(X)[1].t2

    @on_rows(cast=False)
    def spe(self, X: Any) -> Array:
        """Return the squared prediction error (Q) of every row: its squared distance off the span.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        array of shape (n,)
            ‖x − μ‖² − Σ y², in the units of X squared (of standardised features where those were
            fitted); for factor analysis Σ e²/ψ, without unit. For rows with NaN, that of the
            observed entries given their best fit: 0 where no more are observed than components.
        """
        return self._judged(X)[1].spe

    def t2_limit(self, level: float = 0.95) -> float:
        """Return the T² that a share `level` of complete new rows stays below.

        q (n² − 1)/(n (n − q)) F_{q, n−q}, for variances with divisor n − 1: it depends on the fit
        alone, never on the rows judged.

        Parameters
        ----------
        level : float

        Returns
        -------
        float
        """
        return self._limit(0, level)

    def spe_limit(self, level: float = 0.95) -> float:
        """Return the SPE that a share `level` of complete new rows stays below.

        Parameters
        ----------
        level : float

        Returns
        -------
        float
            From Box's g·χ²_h. `PCA` uses h = (Σℓ)²/Σℓ² of the discarded variances, equal or not;
            the other models trust their noise, h = d − q. 0 where nothing is discarded; infinite
            where the training rows leave no residual to judge by (q ≥ n − 1).

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from dualpca import PCA
        >>> model = PCA(3, standardize=True).fit(load_wine().data)
        >>> round(model.t2_limit(), 2), round(model.spe_limit(), 2)
        (8.11, 9.01)
        """
        return self._limit(1, level)

    def _limit(self, which: int, level: float) -> float:
        check_is_fitted(self)
        check_share("level", level)
        monitor = self._monitor()
        return float(laws(monitor.reference, monitor.degrees())[which].limit(level)[0])

    @on_rows("n_features_in_")
    def contributions(self, X: Any, to: str = "spe", signed: bool = False) -> Array:
        """Return what each feature contributes to a row's SPE or T².

        Parameters
        ----------
        X : array of shape (n, d)
        to : {'spe', 't2'}
        signed : bool
            Give each the sign of its deviation: negative where the feature is less than expected.

        Returns
        -------
        array of shape (n, d)
            Not negative unless signed; a row's magnitudes sum to its statistic; 0 where nothing
            was observed.

        Notes
        -----
        SPE: the squared residual of the feature. T²: its complete decomposition, the squares of
        D^{1/2}(x − μ) with T² = (x − μ)ᵀD(x − μ), D = V L⁻¹ Vᵀ (Alcala & Qin 2009).

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import PPCA
        >>> X = np.random.default_rng(0).normal(size=(200, 1)) * [1.0, 1.0, 1.0]
        >>> model = PPCA(1).fit(X + 0.1 * np.random.default_rng(1).normal(size=X.shape))
        >>> odd = [[0.0, 0.0, 3.0]]
        >>> model.contributions(odd).argmax(), bool(model.outliers(odd).flagged[0])
        (np.int64(2), True)
        """
        check_choice("to", to, STATISTICS)
        roots = self._monitor(X).roots(X)[STATISTICS.index(to)]
        return roots * (backend.namespace(roots).abs(roots) if signed else roots)

    def outliers(self, X: Any, level: float = 0.95) -> Outliers:
        """Say which rows are unusual: T² or SPE above the limit for what the row observed.

        Parameters
        ----------
        X : array of shape (n, d)
        level : float
            Of each limit: of ordinary rows about 1 − level² are flagged by one or the other.

        Returns
        -------
        Outliers
            `flagged` (n,) and beside it T², SPE, their limits and p-values, row by row.
        """
        check_share("level", level)
        rows = self._asked(X, "outliers")
        with np.errstate(over="ignore", invalid="ignore"):
            monitor, found = self._judged(rows)
        outliers: Outliers = self._home(judge(monitor.reference, found, float(level)), X)
        return outliers


class StreamingEstimator(LinearEstimator, ABC):
    """Base of the linear models that also learn from chunks, by moments that add.

    Subclasses define `_request`, `_fit`, and what a stream is: `_absorb` and `_fit_stream`.
    """

    _stream: tuple[Moments | Stream, int, Annotated[Array, "0 d"]]  # state, rows counted, no rows
    n_samples_seen_: int | float

    @abstractmethod
    def _request(self) -> Any:
        """Check the parameters and return them for the fit."""

    @abstractmethod
    def _fit(self, table: Table, request: Any) -> Any:
        """Return the model of a table."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : array of shape (n, d), or a chunked table
            Two rows or more. Never modified. Chunked: `Batches`, Dask, Zarr, a path.
        y : ignored
        sample_weight : array of shape (n,), optional
            Non-negative. A weight of 2 counts as the row twice, 0 as no row; their sum is the
            effective number of rows.

        Returns
        -------
        self
        """
        request = self._request()
        with self._training(X, sample_weight) as table:
            model = self._fit(table, request)
        self._forget()
        return self._keep(model)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Add rows to the model: after any complete chunks it is the one `fit` would give.

        The moments of the rows, (d, d), are kept; the model is solved for when it is next read, so
        a stream costs one eigendecomposition, not one per chunk. A model that comes from `fit`
        keeps no moments: it starts anew, with a warning.

        Parameters
        ----------
        X : array of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional

        Returns
        -------
        self
        """
        request = self._request()
        stream = self.__dict__.get("_stream")
        if stream is None and "_model" in self.__dict__:
            warn(
                "this model comes from fit, which keeps no moments: partial_fit starts anew and "
                "forgets the rows that fit saw. Give all rows to partial_fit to keep them.",
                StreamWarning,
            )
        if stream is None:
            self._choose_device(X, None)
        rows = check_rows(self, X, reset=stream is None, accept_sparse=self._accepts_sparse)
        check_request(self.n_components, sys.maxsize, int(rows.shape[1]), "auto")
        table = self._placed_table(rows, check_weights(sample_weight, rows))
        state, count = self._absorb(None if stream is None else stream[0], table, request)
        self._forget()
        count += 0 if stream is None else stream[1]
        self._stream = (state, count, table.like)
        self.n_samples_seen_ = state.n if table.weights is not None else round(state.n)
        return self

    def _absorb(self, state: Any, table: InMemoryTable, request: Any) -> tuple[Any, int]:
        """Return the state of a stream after one more chunk, and the rows it counts."""
        chunk = Moments.of(table.rows, table.weights)
        merged = chunk if state is None else state.merge(chunk)
        return merged, used_rows(table.rows, table.weights)

    @abstractmethod
    def _fit_stream(self, state: Any, count: int, like: Array, request: Any) -> Any:
        """Return the model of a stream."""

    def __sklearn_is_fitted__(self) -> bool:
        """Return True after a fit, or once a chunk was seen."""
        return "_model" in self.__dict__ or "_stream" in self.__dict__

    @property
    def _fitted(self) -> Any:
        """The model, on the host; that of a stream is solved for when it is first read."""
        if "_model" not in self.__dict__ and "_stream" in self.__dict__:
            state, count, like = self._stream
            if count < 2:
                raise NotFittedError(f"partial_fit has seen {count} row; at least 2 are required.")
            with named_columns(self):
                self._keep(self._fit_stream(state, count, like, self._request()))
        return super()._fitted

    def _model_of(self, state: dict[str, Any]) -> SpikedModel:
        """Return the model of attributes as format 1 names them."""
        return SpikedModel(
            state["mean_"],
            state["components_"],
            state["explained_variance_"],
            state["explained_variance_ratio_"],
            state["noise_variance_"],
            state["n_samples_"],
            state.get("_reference"),
            state.get("scale_"),
            state.get("var_"),
            history_of(state),
            state.get("selection_"),
        )

    def _forget(self) -> None:
        """Drop what an earlier fit left behind."""
        for name in ("_model", "_placed", "_stream", "n_samples_seen_"):
            self.__dict__.pop(name, None)

    def __getstate__(self) -> Any:
        """Leave the copy on a GPU behind: other processes may have none."""
        return {k: to_host(v) if k == "_stream" else v for k, v in super().__getstate__().items()}


class IncompleteMethods:
    """What models x = Wz + μ + ε can do for rows with missing values. Their model has `factors`."""

    _accepts_nan = True
    _fitted: Any
    _working: Any
    _asked: Callable[..., Array]
    _home: Callable[..., Any]
    _lifted: Callable[..., Array]

    @on_rows("n_features_in_", framed=True)
    def impute(self, X: Any, return_std: bool = False) -> Any:
        """Fill every NaN with its expectation given what the row observed.

        Parameters
        ----------
        X : array or frame of shape (n, d)
            NaN (null) where nothing was observed. Never modified.
        return_std : bool
            Also return the standard deviation of every entry: 0 where it was observed, and
            √(wᵀCw + σ²), the uncertainty of a measurement, where it was not.

        Returns
        -------
        array or frame of shape (n, d), or a pair of them
            Observed entries are kept to the last bit. A pandas or polars frame comes back as one.

        Notes
        -----
        E[x_m | x_o] = μ_m + W_m z̄ (theory 4). A row with nothing observed gets the mean and the
        standard deviation of the model.
        """
        filled, spread = imputed(self._working.factors, X, return_std)
        return (filled, spread) if return_std else filled

    def sample_imputations(self, X: Any, n_draws: int = 5, random_state: Any = None) -> Array:
        """Draw completed tables: each NaN replaced by a draw from its distribution.

        Entries of one row are drawn together, so their correlations are right: fit any analysis
        to every table and pool the results (Rubin 1987).

        Parameters
        ----------
        X : array of shape (n, d)
        n_draws : int
        random_state : None, int, Generator or RandomState

        Returns
        -------
        array of shape (n_draws, n, d)
        """
        check_number("n_draws", n_draws, 1, integer=True)
        rng = generator(random_state)
        rows = self._asked(X, "sample_imputations")
        tables = drawn_imputations(self._working.factors, rows, n_draws, rng)
        return self._home(backend.cast_like(tables, rows), X)

    @on_rows(chunked=False)
    def conditional(self, X: Any, features: Any = None) -> tuple[Array, Array]:
        """Return mean and covariance of features given what each row observed.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN marks what is not given.
        features : sequence of int, optional
            Which features; all by default.

        Returns
        -------
        mean : array of shape (n, k)
        covariance : array of shape (n, k, k)
            W C Wᵀ + σ²I over the features not observed; zero for those that are.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import PPCA
        >>> X = np.random.default_rng(0).normal(size=(500, 1)) @ [[1.0, 2.0, 3.0]]
        >>> X += 0.1 * np.random.default_rng(1).normal(size=X.shape)
        >>> mean, covariance = PPCA(1).fit(X).conditional([[1.0, np.nan, np.nan]], features=[2])
        >>> mean.round(1), covariance.shape
        (array([[3.]]), (1, 1, 1))
        """
        return conditional(self._working.factors, X, check_features(features, int(X.shape[1])))


class LatentMethods(IncompleteMethods, StreamingEstimator):
    """What PPCA and Bayesian PCA say of the latents. Their model is a `SpikedModel`."""

    @on_rows("n_components_")
    def transform(self, X: Any) -> Array:
        """Return the posterior mean of the latents, E[z | x], (n, q).

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        array of shape (n, q)
            √(ℓ − σ²)/ℓ · vᵀ(x − μ), which tends to the whitened PCA projection as σ² → 0.
        """
        return self._working.posterior(X)[0]

    @on_rows(chunked=False)
    def posterior(self, X: Any) -> tuple[Array, Array]:
        """Return mean and covariance of the latents given each row.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        mean : array of shape (n, q)
        covariance : array of shape (n, q, q)
            σ²M⁻¹ = diag(σ²/ℓ), the same for every row if all are complete (then a view of one
            matrix). Rows with NaN have covariances of their own; the prior's, if empty.
        """
        return posterior_of(self._working, X)

    def inverse_transform(self, X: Any) -> Array:
        """Return the mean of the rows given latents, Wz + μ.

        Parameters
        ----------
        X : array of shape (n, q)
            Latents z.

        Returns
        -------
        array of shape (n, d)
        """
        return self._lifted(X, self._working.gaussian.spread)

    @on_rows("n_features_in_")
    def reconstruct(self, X: Any, return_std: bool = False) -> Any:
        """Return the posterior mean of the noise-free signal, Σ (1 − σ²/ℓ) y v + μ.

        Parameters
        ----------
        X : array of shape (n, d)
        return_std : bool
            Also return the posterior standard deviation of the signal.

        Returns
        -------
        array of shape (n, d), or a pair of them
        """
        signal, spread = self._working.signal(X, return_std)
        return (signal, spread) if return_std else signal

    def posterior_predictive(self, X: Any) -> tuple[Array, Array]:
        """Return mean and covariance of a new measurement of what each row measured.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        mean : array of shape (n, d)
            The signal, as in `reconstruct`.
        covariance : array of shape (d, d)
            W σ²M⁻¹ Wᵀ + σ²I, the same for every complete row. Rows with NaN have covariances of
            their own and are refused: `conditional` gives those.
        """
        refuse_nonfinite(self._asked(X, "posterior_predictive"))
        mean, model = self.reconstruct(X), self._fitted
        return mean, model.dense(model.gaussian.signal_variance, model.noise, power=1)


def posterior_of(model: Any, X: Array) -> tuple[Array, Array]:
    """Return mean and covariance of the latents; complete rows share one covariance, as a view."""
    xp = backend.namespace(X)
    mean, own = model.posterior(X)
    if own is not None:
        return mean, own
    variance = model.gaussian.posterior_variance
    one = variance[:, None] * backend.asarray(np.eye(variance.shape[0]), variance)
    return mean, xp.broadcast_to(backend.cast_like(one, X), (X.shape[0], *one.shape))


# --- Kernel models -------------------------------------------------------------------------------

ASYMMETRY = 1e-8
"""Largest |K − Kᵀ| that counts as rounding, relative to the largest entry."""

LEAST_LEARNED = 500
"""Points that a learned pre-image map may always use: 2 MB."""


def check_points(
    estimator: Any, X: Any, *, reset: bool, min_rows: int = 2, allow_nan: bool = False
) -> Array:
    """Return the points as a kernel can see them; never modified, checked to be finite.

    NaN is let through where `allow_nan` says so and the kernel has an expectation.
    """
    if not reset:
        _require_same_kind(estimator, X)
    if _are_items(estimator.kernel, X):
        if reset:
            vars(estimator).pop("n_features_in_", None)
            vars(estimator).pop("feature_names_in_", None)
        return _items(X, min_rows if reset else 1)
    if is_precomputed(estimator.kernel) and backend.is_sparse(X):
        raise ValueError(expected("X", "a dense kernel matrix", type(X), "Give X.toarray()."))
    X = check_rows(estimator, X, reset=reset, min_rows=min_rows if reset else 1, accept_sparse=True)
    X = X.tocsr() if backend.is_sparse(X) else X
    if not (allow_nan and accepts_nan(estimator.kernel) and is_incomplete(X)):
        refuse_nonfinite(X)
    return X


def _are_items(kernel: Any, X: Any) -> bool:
    """Return True if X holds strings, graphs or the like, for a function of two of them."""
    if not _is_function(kernel) or backend.is_foreign(X) or backend.is_sparse(X):
        return False
    if hasattr(X, "shape"):  # an array, a table or a column of one
        return len(X.shape) == 1 and np.asarray(X).dtype.kind in "OUST"
    if not hasattr(X, "__getitem__") or isinstance(X, str | bytes | Mapping) or len(X) == 0:
        return False
    return not isinstance(X[0], list | tuple | np.ndarray | Real)


def _is_function(kernel: Any) -> bool:
    """Return True if a kernel is a function of two items."""
    if isinstance(kernel, Kernel) or is_gaussian_process_kernel(kernel):
        return isinstance(kernel, Function)
    return callable(kernel)


def _require_same_kind(estimator: Any, X: Any) -> None:
    """Refuse items after a fit on rows, and rows after a fit on items."""
    if _are_items(estimator.kernel, X) and "n_features_in_" in vars(estimator):
        raise ValueError(expected("X", "rows of numbers, as in fit", type(X)))
    if not _are_items(estimator.kernel, X) and "n_features_in_" not in vars(estimator):
        raise ValueError(expected("X", "a list of items, as in fit", type(X)))


def _items(X: Any, least: int) -> Array:
    """Return items as a one-dimensional array of objects."""
    if len(X) < least:
        raise ValueError(expected("X", f"at least {least} items", X))
    found = np.empty(len(X), dtype=object)
    for i, item in enumerate(X):
        found[i] = item
    return found


def check_kernel_matrix(K: Array, *, center: bool) -> Array:
    """Return a square kernel matrix that is symmetric, at least once it is centred.

    Constants of its rows are taken away until it is symmetric as it stands. Those of columns
    stay, for rows of new items have them too; centring removes both.
    """
    n, xp = int(K.shape[0]), backend.namespace(K)
    if K.shape[1] != n:
        what = "a square kernel matrix, (n, n), with kernel='precomputed'"
        raise ValueError(expected("X", what, tuple(K.shape)))
    size, worst = _asymmetry(K)
    if worst <= ASYMMETRY * size:
        return K
    gap = K - K.T
    means = xp.mean(gap, axis=0)
    left = float(xp.max(xp.abs(gap - means[None, :] + means[:, None])))
    if not center or left > ASYMMETRY * size:
        i, j = np.unravel_index(int(xp.argmax(xp.abs(gap))), (n, n))
        raise ValueError(
            f"X must be a symmetric kernel matrix, got X[{i}, {j}] = {float(K[i, j]):g} and "
            f"X[{j}, {i}] = {float(K[j, i]):g}. "
            "If they should be equal, give (X + X.T) / 2."
        )
    return K + means[:, None]


def _asymmetry(K: Array) -> tuple[float, float]:
    """Return the largest |K_ij| and the largest |K_ij − K_ji|, a block of rows at a time."""
    xp, size, worst = backend.namespace(K), 0.0, 0.0
    for rows in backend.slices(int(K.shape[0]), backend.block_rows(int(K.shape[0]), K)):
        block = K[rows, :]
        size = max(size, float(xp.max(xp.abs(block))))
        worst = max(worst, float(xp.max(xp.abs(block - K[:, rows].T))))
    return size, worst


def cluster_centres(X: Array, m: int, seed: int) -> Array:
    """Return the centres of m clusters of rows, as landmarks."""
    from sklearn.cluster import MiniBatchKMeans

    rows = X if backend.is_sparse(X) else backend.to_numpy(X)
    means = MiniBatchKMeans(m, random_state=seed, n_init=1, batch_size=max(1024, m)).fit(rows)
    centres = means.cluster_centers_
    return type(X)(centres) if backend.is_sparse(X) else backend.asarray(centres, X)


class nested(attribute):
    """A fitted attribute that is a model of its own, shown as an estimator around it.

    Parameters
    ----------
    path : str
        Field of the model.
    shell : type
        Class of the estimator.
    """

    def __init__(self, path: str, shell: Callable[..., Any]) -> None:
        super().__init__(path)
        self.shell = shell

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        """Return the estimator, or say in Python's own words that there is none."""
        model = super().__get__(estimator, owner)
        if estimator is None:
            return model
        found = self.shell(model.n_components)
        found._model, found.n_features_in_ = model, int(model.mean.shape[0])
        return found


class KernelEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Base of the kernel models: rows, sparse rows, items of any kind, or a kernel matrix.

    Their model has `points`, what new points are compared with.
    """

    kernel: Any
    gamma: float | str | None
    degree: float
    coef0: float
    kernel_params: Any
    center: bool

    @property
    def _n_features_out(self) -> int:
        return int(self.eigenvalues_.shape[0])

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        kernel = self.kernel
        if isinstance(kernel, str):
            kernel = ALIASES.get(kernel) or KERNELS.get(kernel)
        tags.input_tags.sparse = bool(getattr(kernel, "sparse", False))
        tags.input_tags.allow_nan = accepts_nan(self.kernel)
        tags.input_tags.pairwise = is_precomputed(self.kernel)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _kernel_choice(self) -> KernelChoice:
        """The kernel that the parameters ask for."""
        return KernelChoice(self.kernel, self.gamma, self.degree, self.coef0, self.kernel_params)

    def _checked(self, X: Any, *, reset: bool, min_rows: int = 1) -> Array:
        """Return points: items, dense or sparse rows (as in the fit), or a kernel matrix."""
        points = check_points(self, X, reset=reset, min_rows=min_rows, allow_nan=True)
        if reset:
            matrix = is_precomputed(self.kernel)
            return check_kernel_matrix(points, center=self.center) if matrix else points
        fitted = self._fitted.points
        if backend.is_sparse(fitted) == backend.is_sparse(points) or points.ndim == 1:
            return points
        return type(fitted)(points) if backend.is_sparse(fitted) else points.toarray()


class PreImageEstimator(KernelEstimator):
    """Base of the kernel models whose `subspace` expands over points: the way back to inputs.

    Also what they share beyond that: solvers, and rows with missing values.
    """

    eigen_solver: str
    tol: float
    memory_limit: float
    n_landmarks: int
    landmarks: str
    random_state: Any
    dtype: str | None
    preimage: Any
    _placed: Any
    transform: Callable[..., Array]
    input_model_: Any  # `nested`, in every subclass

    eigenvalues_ = attribute("eigenvalues")
    explained_variance_ = attribute("variances")
    explained_variance_ratio_ = attribute("ratios")
    kernel_ = attribute("kernel")
    X_fit_ = attribute("points")
    n_components_ = attribute("n_components")
    n_samples_ = attribute("n_rows")
    approximation_error_ = attribute("error")
    solver_ = attribute("solver")

    def _options(self, **others: Any) -> KernelOptions:
        """Check the parameters of solvers and return them."""
        method_of(self.preimage)
        check_choice("eigen_solver", self.eigen_solver, ("auto", *KERNEL_SOLVERS))
        check_choice("landmarks", self.landmarks, LANDMARKS)
        check_number("tol", self.tol, 0)
        check_number("memory_limit", self.memory_limit, 0)
        check_number("n_landmarks", self.n_landmarks, 1, integer=True)
        check_flag("center", self.center)
        if self.dtype not in (None, "float64", "float32"):
            raise ValueError(expected("dtype", "None, 'float64' or 'float32'", self.dtype))
        seed = self.random_state
        seed = 0 if seed is None else int(seed) if isinstance(seed, Integral) else generator(seed)
        named: dict[str, Any] = {
            "solver": self.eigen_solver,
            "tol": float(self.tol),
            "seed": seed,
            "center": bool(self.center),
            "dtype": self.dtype,
            "memory_limit": float(self.memory_limit),
            "n_landmarks": int(self.n_landmarks),
            "landmarks": self.landmarks,
            "cluster": cluster_centres,
        }
        return KernelOptions(**(named | others))

    def _know_inputs(self, rows: Array) -> None:
        """Fit a model of the inputs when rows with missing values are first met."""
        if not is_incomplete(rows) or self._fitted.inputs is not None:
            return
        inputs = fit_inputs(self._working.points)
        self._judge_inputs(inputs)
        if "_placed" in vars(self):
            self._placed = replace(self._placed, inputs=inputs)
        self._model = replace(self._fitted, inputs=to_host(inputs))

    def _judge_inputs(self, inputs: SpikedModel | None) -> None:
        """Warn where the EM of the inputs stopped early, as their own estimator would."""
        if inputs is not None and inputs.history is not None:
            type(self).input_model_.shell()._warn_unless_converged(inputs.history)

    def _keep(self, model: Any) -> Any:
        self._judge_inputs(model.inputs)
        return super()._keep(model)

    def _refuse_missing(self, rows: Array) -> None:
        """Refuse missing values where there are no expectations of them."""
        if is_incomplete(rows):
            refuse_nonfinite(rows)

    @on_rows(cast=False)
    def novelty(self, X: Any) -> Array:
        """Return the squared distance of features off the components (Hoffmann 2007), (m,).

        s(x) − Σy² with s(x) = ‖φ(x) − φ̄‖²: large for points unlike the training points.

        Parameters
        ----------
        X : array of shape (m, d)
        """
        self._refuse_missing(X)
        return self._working.off_span(X)

    # --- pre-images ------------------------------------------------------------------------

    def _span(self) -> Span:
        """Return the directions as pre-image methods take them; kept from the first use."""
        found = vars(self).get("_span_")
        if found is None:
            found = self._span_ = self._made_span()
        return found

    def _made_span(self) -> Span:
        subspace = self._working.subspace
        points = getattr(subspace, "points", None)
        if points is None:
            raise NotFittedError(
                "random Fourier features have no points to come back from: pre-images need "
                "eigen_solver='nystrom', 'cholesky' or an exact one."
            )
        if is_precomputed(self.kernel) or points.ndim == 1 or backend.is_sparse(points):
            raise NotFittedError(
                "pre-images need training points with real coordinates: a kernel matrix, sparse "
                "rows or other items have none. `preimage_weights` gives weights over them."
            )
        from dualpca.preimages import Span

        return Span(points, subspace.kernel, subspace.coefficients, subspace.base)

    def _method(self, name: Any = None) -> Method:
        """Return a pre-image method, prepared; kept from the first use."""
        from dualpca.preimages import Learned

        method = method_of(self.preimage if name is None else name)
        if isinstance(method, Learned):
            method = replace(method, limit=max(LEAST_LEARNED, int((self.memory_limit / 8) ** 0.5)))
        kept: dict[Method, Method] = self.__dict__.setdefault("_methods_", {})
        if method not in kept:
            kept[method] = method.prepare(self._span())
        return kept[method]

    def _forget(self) -> None:
        """Drop what an earlier fit left behind."""
        for name in ("_model", "_placed", "_stream", "n_samples_seen_", "_span_", "_methods_"):
            self.__dict__.pop(name, None)

    def __getstate__(self) -> Any:
        """Leave out what is prepared again when it is needed, and may lie on a GPU."""
        state: Any = super().__getstate__()
        return {k: v for k, v in state.items() if k not in ("_span_", "_methods_")}

    def _inverse_method(self) -> Any:
        """Return the method of `inverse_transform`; None for the parameter `preimage`."""
        return None

    def _latent_scale(self) -> Any:
        """Return the coordinates on the unit directions that latents of 1 stand for."""
        return 1.0

    def _latent_coordinates(self, X: Any, method: str) -> tuple[Array, Array]:
        """Return latents as checked, and the coordinates they stand for in float64."""
        Z = self._asked_latents(X, method, self._n_features_out)
        return Z, check_finite_result(backend.working(Z), Z) * self._latent_scale()

    def preimages(self, X: Any, method: Any = None, start: Any = None) -> PreImage:
        """Return inputs whose features are close to the points of latent coordinates X.

        Parameters
        ----------
        X : array of shape (m, q)
            Latents, as `transform` returns them.
        method : str or Method, optional
            'smoother', 'fixed-point', 'gradient', 'distance', 'learned' or 'auto' (the best of
            all for each row); the parameter `preimage` by default.
        start : array of shape (m, d), optional
            Where iterations start, beside their own guesses.

        Returns
        -------
        PreImage
            `points` (m, d), `distance` (m,), the distance in feature space that is left, and
            `iterations` (m,).
        """
        Z, Y = self._latent_coordinates(X, "preimages")
        start = None if start is None else self._asked(start, "preimages")
        found = self._method(method).find(self._span(), Y, start)
        points = backend.cast_like(found.points, Z)
        result: PreImage = self._home(found._replace(points=points), X)
        return result

    def inverse_transform(self, X: Any) -> Array:
        """Return inputs whose features are close to the points of latent coordinates X.

        Parameters
        ----------
        X : array of shape (m, q)

        Returns
        -------
        array of shape (m, d)
            With the linear kernel the exact inverse, mean included. `preimages` also says how
            close they are.
        """
        return self.preimages(X, self._inverse_method()).points

    def reconstruct(self, X: Any) -> Array:
        """Return pre-images of the projections of X, (m, d).

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training points (m, n)
        """
        return self.inverse_transform(self.transform(X))

    def denoise(self, X: Any, method: Any = None) -> Array:
        """Project rows on the components and come back, starting from the rows themselves.

        Parameters
        ----------
        X : array of shape (m, d)
        method : str or Method, optional

        Returns
        -------
        array of shape (m, d)
        """
        self._refuse_missing(self._asked(X, "denoise"))
        return self.preimages(self.transform(X), method, start=X).points

    def preimage_weights(self, X: Any) -> Array:
        """Return weights over the training points, (m, n): Σ_i weight_i φ(x_i) is what X means.

        For kernels of items without coordinates (kernel matrices, strings), where it takes the
        place of a pre-image.

        Parameters
        ----------
        X : array of shape (m, q)
            Latents, as `transform` returns them.
        """
        subspace = self._working.subspace
        Y = self._latent_coordinates(X, "preimage_weights")[1]
        if not hasattr(subspace, "points"):
            raise NotFittedError("random Fourier features are no expansion over points.")
        return self._home(Y @ subspace.coefficients.T + subspace.base, X)


def method_of(asked: Any) -> Method:
    """Return the pre-image method that is meant by a name or an object."""
    from dualpca.preimages import PREIMAGES, Method

    method = PREIMAGES[asked]() if isinstance(asked, str) and asked in PREIMAGES else asked
    if not isinstance(method, Method):
        what = f"one of {sorted(PREIMAGES)} or a pre-image method"
        raise ValueError(expected("preimage", what, asked))
    return method
