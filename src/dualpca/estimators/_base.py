"""What all estimators share: rows in and out, devices, files, fitted attributes."""

from __future__ import annotations

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import fields, replace
from functools import cache, reduce, wraps
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints
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
    is_torch_generator,
    note,
    rows_of,
    seed_of,
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
    Units,
    chunked_table,
    has_missing,
    most_unequal,
    observed_part,
    refuse_infinite,
    refuse_nonfinite,
    require_in_memory,
)
from dualpca.errors import (
    BackendError,
    EmptyColumnError,
    InterruptWarning,
    PickleVersionWarning,
    ScaleWarning,
    StreamWarning,
    expected,
    warn,
)
from dualpca.estimators import saving
from dualpca.files.checkpoints import Checkpoint, CheckpointWatch, resuming
from dualpca.files.fields import hints_of, is_record, sizes_of
from dualpca.gaussian import (
    Factors,
    Monitor,
    Outliers,
    Statistics,
    check_request,
    conditional,
    drawn_imputations,
    imputed,
    is_count,
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
    split_params,
)
from dualpca.models.driver import History, if_singular
from dualpca.models.incomplete import (
    RefitRequest,
    imputed_unsurely,
    least_rows,
    needs_refits,
    refits,
    sampled_imputations,
)
from dualpca.models.kernel import KernelChoice, fit_inputs, is_incomplete, is_precomputed
from dualpca.models.spiked import SpikedModel
from dualpca.models.streaming import Stream
from dualpca.operators import used_rows
from dualpca.solvers import KERNEL_SOLVERS, LANDMARKS, KernelOptions

if TYPE_CHECKING:
    from _typeshed import DataclassInstance as Model

    from dualpca.models.factor import FactorModel

    # only kernel models need them, and they take time to import
    from dualpca.preimages import Method, PreImage, Span

T = TypeVar("T")

# --- Input: rows of any kind, weights, counts. Nothing is changed, filled or cast silently -------

FLOATS = [np.float64, np.float32]
SPARSE = ("csr", "csc")


def check_rows(
    estimator: Estimator,
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
    if backend.is_plain(X) and not finite and _fits(estimator, X, reset, min_rows):
        return X
    require_in_memory(X)
    if not backend.is_foreign(X):
        return validate_data(
            estimator,
            X,
            reset=reset,
            dtype=FLOATS,
            accept_sparse=SPARSE if accept_sparse else False,
            ensure_all_finite=finite,
            ensure_min_samples=min_rows,
            copy=False,
        )
    X = check_matrix(X, "X", attached=not reset)
    if X.shape[0] < min_rows or X.shape[1] < 1:
        raise ValueError(
            f"Found array with shape={tuple(X.shape)}, while a minimum of {min_rows} sample(s) "
            f"and 1 feature(s) is required by {type(estimator).__name__}."
        )
    check_columns(estimator, int(X.shape[1]), None, reset=reset)
    return X


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


def check_matrix(X: Any, name: str, *, min_columns: int = 1, attached: bool = False) -> Array:
    """Return X as a two-dimensional real floating array.

    `attached` where results are to be differentiable in X, a tensor that requires it.
    """
    require_in_memory(X, name)
    if not backend.is_foreign(X):
        return check_array(
            X,
            dtype=FLOATS,
            ensure_all_finite=False,
            ensure_min_features=min_columns,
            input_name=name,
        )
    xp = backend.namespace(X)
    if X.ndim != 2:
        raise ValueError(expected(name, "a 2-dimensional array", tuple(X.shape)))
    if xp.isdtype(X.dtype, "complex floating"):
        raise ValueError(f"Complex data not supported: {name} has dtype {X.dtype}.")
    X = X if attached else backend.detached(X)
    return X if X.dtype in (xp.float32, xp.float64) else xp.astype(X, xp.float64)


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


def check_share(name: str, value: Any) -> None:
    """Refuse what is not a number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(expected(name, "a number between 0 and 1, both excluded", value))


def check_flag(name: str, value: Any) -> None:
    """Refuse what is not True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(expected(name, "True or False", value))


def generator(random_state: Any) -> np.random.Generator:
    """Return a NumPy Generator from None, a seed, a RandomState or a Generator.

    A generator of torch gives the seed, so its state advances; draws are NumPy's on every device.
    """
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31 - 1)
    elif is_torch_generator(random_state):
        random_state = seed_of(random_state)
    if not isinstance(random_state, np.random.Generator | Integral | None):
        what = "None, an int, a Generator (NumPy's or torch's) or a RandomState"
        raise ValueError(expected("random_state", what, random_state))
    seed = int(random_state) if isinstance(random_state, Integral) else random_state
    if isinstance(seed, int) and seed < 0:
        raise ValueError(expected("random_state", "not negative", seed))
    return np.random.default_rng(seed)


def as_frame(table: Array, like: Any, names: Any = None) -> Any:
    """Return the table as a frame where `like` is a pandas or polars frame."""
    library = type(like).__module__.split(".")[0]
    if library not in ("pandas", "polars"):
        return table
    columns = list(like.columns if names is None else names)
    if library == "pandas":
        return type(like)(table, index=like.index, columns=columns)
    return type(like)(table, schema=columns, orient="row")


@contextmanager
def named_columns(estimator: Estimator) -> Iterator[None]:
    """Refer to features that no row observes by their names in the frame; name a checkpoint."""
    asked = getattr(estimator, "checkpoint", None)
    try:
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


# --- Chunked tables ------------------------------------------------------------------------------


def with_weights(chunks: ChunkedTable, sample_weight: Any) -> ChunkedTable:
    """Return a table with weights, which are all in memory; as it is where there are none."""
    if sample_weight is None:
        return chunks
    w = np.asarray(sample_weight)
    if w.ndim != 1:
        raise ValueError(expected("sample_weight", "one number per row for chunked data", w.shape))
    return chunks.weighing(backend.to_numpy(check_weights(w, w[:, None])))


def refuse_weights(sample_weight: Any) -> None:
    """Refuse weights where the fit of a chunked table cannot use them."""
    if sample_weight is not None:
        what = "None for chunked data, except in PCA, PPCA, BayesianPCA and FactorAnalysis"
        raise ValueError(expected("sample_weight", what, "weights", "partial_fit accepts them."))


def refuse_frames(estimator: Estimator, method: str) -> None:
    """Refuse to make a frame of a chunked table: scikit-learn would gather all of it."""
    config = _get_output_config("transform", estimator)["dense"]
    if method == "transform" and config != "default":
        what = "'default' for chunked data, which may be larger than memory"
        raise ValueError(expected("set_output(transform=...)", what, config))


class OnRows:
    """A method of a fitted estimator as a function of rows that other processes can call."""

    def __init__(
        self,
        estimator: Estimator,
        method: str,
        width: int | None = None,
        dtype: Any = np.float64,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.estimator, self.width, self.dtype = copy(estimator), width, dtype
        self.__name__, self.options = method, options or {}  # the name is Dask's for the results
        self.estimator.__dict__.pop("feature_names_in_", None)  # chunks have no names to check

    def __call__(self, rows: Host) -> Host:
        """Return the method's results for the rows."""
        if len(rows) == 0:
            shape = (0,) if self.width is None else (0, self.width)
            return np.empty(shape, dtype=self.dtype)
        return np.asarray(getattr(self.estimator, self.__name__)(rows, **self.options))


def average_density(estimator: Estimator, X: Any, sample_weight: Any) -> float:
    """Return the average of `score_samples` over rows in memory or in chunks."""
    chunks = chunked_table(X, fitting=False)
    if chunks is None:
        return weighted_mean(estimator.score_samples(X), sample_weight)
    check_is_fitted(estimator)
    check_columns(estimator, chunks.d, chunks.names, reset=False)
    density = OnRows(estimator, "score_samples")

    def of(rows: Host, weights: Host | None = None) -> Host:
        w = np.ones(len(rows)) if weights is None else weights
        return np.array([w @ density(rows), w.sum()])

    total, count = with_weights(chunks, sample_weight).reduce(of, np.add)
    return float(total / count)


def weighted_mean(values: Array, sample_weight: Any) -> float:
    """Return the mean of a vector, weighted if weights are given."""
    w, xp = check_weights(sample_weight, values[:, None]), backend.namespace(values)
    return float(xp.mean(values) if w is None else w @ values / xp.sum(w))


# --- Which fit a checkpoint belongs to -----------------------------------------------------------

MEMORY_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")

NOT_COMPARED = ("checkpoint", "verbose", "n_jobs", "max_iter")
"""Parameters that do not change where a fit goes, or only how far."""


def watch_of(estimator: Estimator) -> CheckpointWatch | None:
    """Return the checkpoint that the parameters ask for, with the fit it belongs to."""
    checkpoint = Checkpoint.of(estimator.checkpoint)
    if checkpoint is None:
        return None
    params = estimator.get_params().items()
    compared = {k: _comparable(v) for k, v in params if k not in NOT_COMPARED}
    return CheckpointWatch(checkpoint, {"model": type(estimator).__name__, **compared})


def watched(request: T, table: Table) -> T:
    """Return the request; its checkpoint knows the table by the units it came in."""
    watch: CheckpointWatch | None = getattr(request, "watch", None)
    if watch is None or table.units is None:
        return request
    return replace(request, watch=watch._replace(units=table.units))  # type: ignore[type-var]


def _comparable(value: Any) -> str:
    """Return a parameter as text that is the same in another process.

    Addresses in memory are left out; a generator has given the start already.
    """
    if isinstance(value, np.ndarray) and value.ndim:
        kind = f"{value.dtype} {value.shape}".encode()
        return f"array {value.shape} ({crc32(np.ascontiguousarray(value).tobytes() + kind):08x})"
    if isinstance(value, np.generic | np.ndarray):
        return repr(value.item())
    return MEMORY_ADDRESS.sub("", repr(value))


def check_checkpoint(estimator: Estimator) -> None:
    """Refuse a checkpoint with several starts, or with sizes that are still to be found."""
    if Checkpoint.of(estimator.checkpoint) is None:
        return
    if getattr(estimator, "n_init", 1) > 1:
        remedy = "A checkpoint is of one start: give n_init=1."
        raise ValueError(expected("n_init", "1 with a checkpoint", estimator.n_init, remedy))
    sizes = [getattr(estimator, name, None) for name in ("n_mixtures", "n_components")]
    if any(isinstance(size, str) and size in ("bic", "cv") for size in sizes):
        raise ValueError(expected("sizes", "numbers with a checkpoint", sizes))


# --- Fitted attributes ---------------------------------------------------------------------------


class attribute:
    """A fitted attribute: read from the model, absent before the fit or where it has none.

    Parameters
    ----------
    path : str
        Fields of the model, joined by points.
    outward : callable, optional
        Method of `Units` that brings the value to the units of X after `standardize=True`.
    inputs : bool
        The value is one of the inputs, also where the model is one of a kernel's space.
    """

    def __init__(
        self, path: str, outward: Callable[[Units, Any], Any] | None = None, *, inputs: bool = False
    ) -> None:
        self.path, self.outward, self.inputs = path.split("."), outward, inputs

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, estimator: Estimator | None, owner: type | None = None) -> Any:
        """Return the value; if there is none, raise Python's usual AttributeError."""
        if estimator is None:
            return self
        value = estimator._fitted
        for name in self.path:
            value = None if value is None else getattr(value, name)
        if value is None:
            name = type(estimator).__name__
            raise AttributeError(f"{name!r} object has no attribute {self.name!r}")
        if self.outward is not None and estimator._units is not None:
            units = estimator._units if self.inputs else estimator._model_units
            value = value if units is None else self._translated(units, value)
        return list(value) if type(value) is tuple else value

    def _translated(self, units: Units, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(self._translated(units, part) for part in value)
        return self.outward(units, value)  # type: ignore[misc]

    def __set__(self, estimator: Estimator, value: Any) -> None:
        """Replace a field of the model, so that every method follows; refuse what it derives."""
        if self.outward is not None and estimator._units is not None:
            what = f"{self.name} of {type(estimator).__name__}"
            raise AttributeError(f"{what} follows from standardised columns and cannot be set.")
        try:
            for i, name in reversed(list(enumerate(self.path))):
                value = replace(reduce(getattr, self.path[:i], estimator._fitted), **{name: value})
        except TypeError:
            what = f"{self.name} of {type(estimator).__name__}"
            raise AttributeError(f"{what} follows from the model and cannot be set.") from None
        estimator._model = value
        estimator.__dict__.pop("_placed", None)


class optional(attribute):
    """A fitted attribute that is None where the model has none."""

    def __get__(self, estimator: Estimator | None, owner: type | None = None) -> Any:
        """Return the value, or None."""
        if estimator is None:
            return self
        return reduce(getattr, self.path, estimator._fitted)


class parameter_count(attribute):
    """`n_parameters_`: the number of free parameters of the model; a noise that was given is none.

    Parameters
    ----------
    path : str
        Method of the model that counts them.
    """

    def __init__(self, path: str = "n_parameters") -> None:
        super().__init__(path)

    def __get__(self, estimator: Estimator | None, owner: type | None = None) -> Any:
        """Return the count."""
        if estimator is None:
            return self
        count = reduce(getattr, self.path, estimator._fitted)
        given = getattr(estimator, "noise_variance", None) is not None
        return int(count(fixed_noise=True) if given else count())


class unit_of_columns(attribute):
    """`scale_`, (d,): what every column was divided by; None without `standardize`."""

    def __init__(self) -> None:
        super().__init__("scale")

    def __get__(self, estimator: Estimator | None, owner: type | None = None) -> Any:
        """Return the scales in the dtype of the model."""
        if estimator is None:
            return self
        model, units = estimator._fitted, estimator._units
        return None if units is None else backend.cast_like(units.scale, next(arrays_of(model)))

    def __set__(self, estimator: Estimator, value: Any) -> None:
        """Refuse: all else would change with it."""
        raise AttributeError(f"{self.name} of {type(estimator).__name__} cannot be set: fit again.")


def history_of(state: dict[str, Any]) -> History | None:
    """Return how a fit went, from attributes as format 1 names them."""
    if "loglikelihoods_" not in state:
        return None
    values = tuple(float(v) for v in state["loglikelihoods_"])
    return History(values, state.get("n_iter_", 1), state.get("converged_", True))


PICKLED_BY = "_dualpca_version"
"""Name in a pickle of the version that wrote it."""

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
    _depends_on_units = False  # columns in large units decide the model
    _units: Units | None = None  # of the columns, if the model is one of standardised rows
    _can_be_saved = True
    _where: Any = None  # torch's device, if the fit moves host arrays there

    def __sklearn_is_fitted__(self) -> bool:
        """Return True after a fit."""
        return "_model" in vars(self)

    def set_params(self, **params: Any) -> Any:
        """Set parameters, as in scikit-learn; `kernel__gamma` is gamma of a kernel object.

        Kernels never change: the estimator gets another one.

        Parameters
        ----------
        **params : object
            Named as by `get_params`.

        Returns
        -------
        self
        """
        deeper = split_params(params)[1]
        kernels = {name: params.get(name, getattr(self, name, None)) for name in deeper}
        found = {
            name: kernel.with_params(**deeper[name])
            for name, kernel in kernels.items()
            if isinstance(kernel, Kernel)
        }
        named = [name for name, kernel in kernels.items() if isinstance(kernel, str)]
        if named:
            what = f"a kernel object, to set {sorted(deeper[named[0]])} of it"
            remedy = f"Give make_kernel({kernels[named[0]]!r}), of dualpca.kernels, instead."
            raise ValueError(expected(named[0], what, kernels[named[0]], remedy))
        others = {k: v for k, v in params.items() if k.partition("__")[0] not in found}
        return super().set_params(**others | found)

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

    @property
    def _model_units(self) -> Units | None:
        """The units of what the model describes; None where that is not the inputs."""
        return self._units

    def _keep(self, model: Model) -> Any:
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

    def _forget(self) -> None:
        """Drop what an earlier fit left behind."""
        for name in ("_model", "_placed", "_stream", "n_samples_seen_"):
            self.__dict__.pop(name, None)

    def _warn_unless_converged(self, history: History) -> None:
        if history.interrupted:
            warn(
                f"the fit was interrupted after {history.n_iter} steps: the model is the best "
                "one found until then. Fit again to reach the maximum.",
                InterruptWarning,
            )
        elif history.converged or history.endless:
            return
        elif self.max_iter is not None and history.n_iter < self.max_iter:
            warn(
                f"the fit stopped after {history.n_iter} steps, where none raised the likelihood "
                f"any more, before it came within tol={self.tol:g} of the maximum: that is less "
                "than rounding errors allow. Raise tol.",
                ConvergenceWarning,
            )
        else:
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
            if chunks is None:
                rows = self._checked(X, reset=True, min_rows=min_rows)
                weights = check_weights(sample_weight, backend.vector_like(rows))
                table: Table = self._placed_table(rows, weights)
            else:
                if chunks.d < 1:
                    shape = f"(shape=({chunks.n}, {chunks.d}))"
                    raise ValueError(f"Found array with 0 feature(s) {shape}.")
                check_columns(self, chunks.d, chunks.names, reset=True)
                table = with_weights(chunks, sample_weight)
            units = self._units_of(table)
            yield table if units is None else units.table(table)
        self._set_units(units)

    def _standardizes(self) -> bool:
        """Return True if the parameter `standardize`, where there is one, asks for it."""
        asked = getattr(self, "standardize", False)
        check_flag("standardize", asked)
        return bool(asked)

    def _units_of(self, table: Table) -> Units | None:
        """Return the units to fit in, None for those of X; warn where these hide columns."""
        if self._standardizes():
            return Units.of(table)
        found = self._most_unequal(table) if self._depends_on_units else None
        if found is not None:
            names, (large, small, ratio) = getattr(self, "feature_names_in_", None), found
            one, other = (j if names is None else repr(str(names[j])) for j in (large, small))
            warn(
                f"the variance of column {one} is {ratio:.2g} times that of column {other}: "
                "columns in large units decide the model, and those in small ones hardly count. "
                "Give standardize=True to weigh all columns alike.",
                ScaleWarning,
            )
        return None

    def _most_unequal(self, table: Table) -> tuple[int, int, float] | None:
        """Return the columns of largest and smallest variance, and the ratio, if it is large."""
        return most_unequal(table)

    def _set_units(self, units: Units | None) -> None:
        """Keep the units of a fit."""
        self.__dict__.pop("_units", None)
        if units is not None:
            self._units = units if self._where is None else to_host(units)

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

    def _choose_device(self, X: Any, chunks: ChunkedTable | None = None) -> None:
        """Decide where to fit: where the rows are, or on the GPU that `device` asks for."""
        self.__dict__.pop("_where", None)
        check_device(self.device)
        if self.device is None:
            return
        if chunks is not None or backend.is_sparse(X):
            what = type(X).__name__
            if self.device.startswith("cuda"):
                raise BackendError(
                    f"device={self.device!r} accepts dense rows in memory, got {what}. Give those, "
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
        """Return rows that the fitted model is asked about, where it works and in its units."""
        rows = self._given(X, method)
        return rows if self._units is None else self._units.inward(rows)

    def _given(self, X: Any, method: str) -> Array:
        """Return rows that the fitted model is asked about, checked, where the model works."""
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)  # says so
        return self._beside_model(self._checked(X, reset=False), method)

    def _outward(self, how: str, result: Array, *given: Array) -> Array:
        """Return what the model says of rows in the units of X; `how` is a method of `Units`."""
        units = self._units
        if units is None:
            return result
        translated: Array = getattr(units, how)(result, *given)
        return translated

    def _asked_latents(self, Z: Any, method: str, width: int) -> Array:
        """Return rows in the space of the components, checked, where the model works."""
        check_is_fitted(self)
        # a model of no components has no columns
        Z = check_matrix(Z, "X", min_columns=0, attached=True)
        if Z.shape[1] != width:
            what = f"a matrix of {width} columns (n_components)"
            raise ValueError(expected("X", what, tuple(Z.shape)))
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
        other.__dict__.update(vars(self))
        return other

    def __getstate__(self) -> Any:
        """Leave copies on a GPU behind: other processes may have none."""
        kept = {k: v for k, v in super().__getstate__().items() if k not in ("_placed", "_where")}
        kept |= {k: to_host(v) for k, v in kept.items() if k == "_stream"}
        return kept | {PICKLED_BY: saving.own_version()}

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        tags.input_tags.sparse = self._accepts_sparse
        tags.input_tags.allow_nan = self._accepts_nan
        return tags

    def __setstate__(self, state: Any) -> None:
        """Warn if another version of the library wrote the pickle, as scikit-learn does."""
        written, now = state.get(PICKLED_BY, "(an older version)"), saving.own_version()
        if written != now:
            warn(
                f"this pickle of {type(self).__name__} was written by dualpca {written} and is "
                f"read by {now}: it may break, or give other results. Fit again, or read it with "
                "the version that wrote it; files of save() can be read by later versions.",
                PickleVersionWarning,
            )
        super().__setstate__({k: v for k, v in state.items() if k != PICKLED_BY})

    # --- files -----------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Refuse parameters that no rows could be fitted with."""
        check_device(self.device)
        if isinstance(vars(self).get("random_state"), Integral):
            generator(self.random_state)
        request = getattr(self, "_request", None)
        if request is not None:
            request()

    def _most_components(self) -> int | None:
        """Return the largest number of components that the features allow; None for no limit."""
        return None

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        metadata: dict[str, Any] | None = None,
        functions: bool = False,
    ) -> None:
        """Write the fitted model to one file, whole or not at all; `dualpca.load` reads it.

        The file is a safetensors file with parameters, versions and a checksum in its header;
        arrays of any library are copied to the host. An existing file of that name is replaced once
        the new one is complete.

        Parameters
        ----------
        path : path
            '.dpca' is the usual ending.
        metadata : dict, default=None
            Anything that JSON can hold, kept beside the model: how a table became rows, notes.
            See `dualpca.save`.
        functions : bool, default=False
            Keep the import paths of functions such as a kernel's; see `dualpca.save`.

        Returns
        -------
        None

        Examples
        --------
        >>> import tempfile
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA, load
        >>> X = load_iris().data
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     PPCA(2).fit(X).save(f"{folder}/iris.dpca")
        ...     print(load(f"{folder}/iris.dpca").n_components_)
        2
        """
        saving.save(self, path, metadata=metadata, functions=functions)

    def _goes_together(self) -> bool:
        """Return True if model and inputs, as read from a file, fit each other."""
        n = self.n_features_in_
        sizes = [sizes_of(part) for part in self._parts_with_features()]
        sizes += [] if self._units is None else [sizes_of(self._units)]
        return n >= 1 and all(found.get("d", found.get("p", n)) == n for found in sizes)

    def _parts_with_features(self) -> list[Any]:
        """Return the dataclasses whose annotations call the number of features d, or p."""
        model, stream = vars(self).get("_model"), vars(self).get("_stream", ())
        parts = [model, *(stream if type(stream) is tuple else (stream,))]
        return [part for part in parts if is_record(type(part))]

    @classmethod
    def _types_of_format_1(cls) -> dict[str, type]:
        """Return types of files of format 1 that the model no longer mentions, by name there."""
        return {}

    def _unpack(self, state: dict[str, Any]) -> None:
        """Set the attributes that a file of format 1 holds."""
        own = {k: v for k, v in state.items() if k in saving.INPUTS or k == "_stream"}
        self.__dict__.update(own)
        if set(state) - set(own) - {"_like"}:
            self._model = self._model_of(state)

    def _model_of(self, state: dict[str, Any]) -> Any:
        """Return the model of attributes as format 1 names them."""
        return self._published(state)

    def _published(self, state: dict[str, Any], **others: Any) -> Any:
        """Return the model whose fields are read from the attributes that publish them.

        `others` are fields that no attribute holds.
        """
        model: Any = get_type_hints(type(self))["_model"]
        found: dict[str, Any] = {}
        if "history" in hints_of(model):
            found["history"] = history_of(state)
        for name, value in state.items():
            path = getattr(getattr(type(self), name, None), "path", None)
            if path is not None and len(path) == 1 and path[0] in hints_of(model):
                value = value._fitted if isinstance(value, Estimator) else value
                found[path[0]] = tuple(value) if type(value) is list else value
        return model(**found | others)


SINGULAR_MODEL = (
    "a covariance of the model is singular in floating point: its variances are too far apart. "
    "Fit again with standardize=True or fewer components."
)


def on_rows(
    width: str | None = None,
    *,
    cast: bool = True,
    framed: bool = False,
    dtype: Any = np.float64,
    options: tuple[str, ...] = (),
    chunked: bool = True,
    outward: tuple[str, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a method that answers row by row accept whatever holds rows.

    The method is given checked rows where the model works. Its result, or each part of a tuple that
    is not None, is cast to the dtype of the rows and returned where they came from. Chunked tables
    are answered chunk by chunk: a Dask collection gives a Dask array that is not computed yet,
    anything else gives `Batches`.

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
    outward : tuple of str
        Methods of `Units` that bring the parts of the result to the units of X. After 'filled',
        entries of X that were observed are kept to the last bit.
    """

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        name = method.__name__.lstrip("_")  # for messages

        @wraps(method)
        def answer(self: Estimator, X: Any, *args: Any, **named: Any) -> Any:
            chunks = chunked_table(X, fitting=False) if chunked else None
            if chunks is not None:
                return chunkwise(self, chunks, args, named)
            given, units = self._given(X, name), self._units
            rows = given if units is None else units.inward(given)
            with np.errstate(over="ignore", invalid="ignore"), if_singular(SINGULAR_MODEL):
                result = method(self, rows, *args, **named)
            found, like = [], backend.vector_like(rows)
            for k, part in enumerate(result if isinstance(result, tuple) else (result,)):
                if part is not None:
                    if units is not None and outward:
                        kept = (given,) if outward[k] == "filled" else ()
                        part = self._outward(outward[k], part, *kept)
                    check_finite_result(part, given, missing=self._accepts_nan)
                    part = self._home(backend.cast_like(part, like) if cast else part, X)
                    found.append(as_frame(part, X) if framed else part)
            return tuple(found) if len(found) > 1 else found[0]

        def chunkwise(
            self: Estimator, chunks: ChunkedTable, args: tuple[Any, ...], named: dict[str, Any]
        ) -> Any:
            """Return the results for a chunked table, computed when they are read."""
            check_is_fitted(self)
            check_columns(self, chunks.d, chunks.names, reset=False)
            given = named | dict(zip(options, args, strict=False))
            others = [value for key, value in given.items() if key not in options]
            if args[len(options) :] or any(v is not None and v is not False for v in others):
                what = "without further arguments for chunked data"
                raise ValueError(expected(method.__name__, what, given or args))
            refuse_frames(self, method.__name__)
            columns = None if width is None else int(getattr(self, width))
            kind = np.dtype(dtype) if width is None else chunks.dtype
            return chunks.map(OnRows(self, method.__name__, columns, kind, given), columns, kind)

        return answer

    return decorate


class Transformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Base of the estimators whose `transform` keeps the dtype of the rows."""

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class Streaming(Estimator, ABC):
    """Base of the estimators that also learn from chunks, kept as a `_stream`.

    The model of a stream is solved for when it is first read.
    """

    n_samples_seen_: int | float

    @abstractmethod
    def _request(self) -> Any:
        """Check the parameters and return them for the fit."""

    @abstractmethod
    def _grown(self, stream: Any, table: InMemoryTable, request: Any) -> tuple[Any, int | float]:
        """Return a stream (None at first) with one more chunk, and the rows in it."""

    @abstractmethod
    def _solved(self, stream: Any, request: Any) -> Any:
        """Return the model of a stream."""

    def _chunk(self, X: Any, *, reset: bool) -> Array:
        """Return the rows of a chunk, checked."""
        return self._checked(X, reset=reset)

    def _add_chunk(self, X: Any, sample_weight: Any) -> Any:
        """Add rows to the stream."""
        request, stream = self._request(), vars(self).get("_stream")
        units = self._units_of_stream(stream)
        if stream is None and "_model" in vars(self):
            warn(
                "this model comes from fit, which keeps no moments: partial_fit starts over and "
                "forgets the rows that fit saw. Give all rows to partial_fit to keep them.",
                StreamWarning,
            )
        with showing(self.verbose), named_columns(self):
            if stream is None:
                self._choose_device(X)
            rows = self._chunk(X, reset=stream is None)
            if units is not None:
                units = units.seeing(rows, check_weights(sample_weight, rows))
                rows = units.inward(rows)
            table = self._placed_table(rows, check_weights(sample_weight, rows))
            stream, seen = self._grown(stream, table, request)
        self._forget()
        self._set_units(units)
        self._stream, self.n_samples_seen_ = stream, seen
        return self

    def _units_of_stream(self, stream: Any) -> Units | None:
        """Return the units of all chunks: those of an earlier fit, if columns are standardised."""
        if not self._standardizes():
            if stream is not None and self._units is not None:
                raise ValueError(expected("standardize", "True, as for the chunks before", False))
            return None
        if self._units is None:
            raise ValueError(
                "partial_fit with standardize=True needs the mean and the scale of every column "
                "before the first chunk: call fit on some rows first, whose units are then kept, "
                "or scale the rows yourself and give standardize=False."
            )
        return self._units.reopened() if stream is None else self._units

    def __sklearn_is_fitted__(self) -> bool:
        """Return True after a fit, or once a chunk was seen."""
        return "_model" in vars(self) or "_stream" in vars(self)

    @property
    def _fitted(self) -> Any:
        """The model, on the host; that of a stream is solved for when it is first read."""
        if "_model" not in vars(self) and self.__sklearn_is_fitted__():
            with showing(self.verbose), named_columns(self):
                self._keep(self._solved(self._stream, self._request()))
        return super()._fitted


# --- Linear Gaussian models ----------------------------------------------------------------------

STATISTICS = ("t2", "spe")


class LinearEstimator(Transformer):
    """Base of the linear Gaussian models: densities, samples, T² and SPE with control limits.

    The model has `log_density`, `covariance`, `precision`, `sample` and `monitor`.
    """

    _reference = attribute("reference")  # as format 1 names it

    components_ = attribute("components")
    mean_ = attribute("mean", Units.outward)
    scale_: Any = unit_of_columns()
    noise_variance_ = attribute("noise")
    n_samples_ = attribute("n_rows")
    n_parameters_ = parameter_count()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        wanted = getattr(self, "n_components", None)
        if is_count(wanted):
            check_number("n_components", wanted, 0, integer=True)
        else:
            check_request(wanted, 1, 1, "auto")

    def _most_components(self) -> int | None:
        return int(self.n_features_in_)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

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
        rows = self._outward("outward", rows)
        return self._home(backend.cast_like(check_finite_result(rows, Z), Z), X)

    def _judged(self, rows: Array) -> tuple[Monitor, Statistics]:
        monitor = self._monitor(rows)
        found = monitor.statistics(rows)
        for statistic in (found.t2, found.spe):
            check_finite_result(statistic, rows, missing=self._accepts_nan)
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

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> PPCA(2).fit(X).score_samples(X[:3]).round(1)
        array([-1.8, -2.2, -1.7])
        """
        density = self._working.log_density(X, missing=self._accepts_nan)
        return density if self._units is None else density - self._units.log_densities(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the average log-density of the rows.

        Parameters
        ----------
        X : array of shape (n, d)
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None

        Returns
        -------
        float

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> round(PPCA(2).fit(X).score(X), 2)
        -2.7
        """
        return average_density(self, X, sample_weight)

    def jacobian(self, X: Any) -> Array:
        """Return the derivatives of `transform` with respect to the entries of each row.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN where the model accepts it.

        Returns
        -------
        array of shape (n, q, d)
            The same matrix for all rows that observe the same features; 0 for missing entries.

        Notes
        -----
        `transform` is affine in what was observed: the columns are its differences along the axes,
        exact but for rounding. O(d) rows through `transform` for each pattern of missing values.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import PCA
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> model = PCA(2).fit(X)
        >>> bool(np.allclose(model.jacobian(X[:1])[0], model.components_))
        True
        """
        rows = self._given(X, "jacobian")
        if backend.is_sparse(rows):
            what = "dense rows: the derivatives are the same for all"
            raise TypeError(expected("X", what, type(X), "Give X[:1].toarray()."))
        xp, d = backend.namespace(rows), int(rows.shape[1])
        missing = xp.isnan(rows)
        seen, which = np.unique(~backend.to_numpy(missing), axis=0, return_inverse=True)
        around = backend.working(backend.constants(backend.to_numpy(self.mean_), rows))
        steps = xp.maximum(xp.abs(around), xp.ones_like(around))
        corners = around + xp.concat(
            [0 * steps[None, :], backend.identity(d, around) * steps], axis=0
        )
        nothing = xp.full_like(corners, xp.nan)
        found = []
        for pattern in seen:
            observed = xp.asarray(pattern, device=backend.device_of(rows))
            Y = self.transform(corners if pattern.all() else xp.where(observed, corners, nothing))
            found.append((Y[1:, :] - Y[0, :]).T / steps)
        J = backend.take(xp.stack(found, axis=0), which.reshape(-1))
        J = xp.where(missing[:, None, :], xp.zeros_like(J), J)
        return backend.cast_like(check_finite_result(J, rows, missing=self._accepts_nan), rows)

    def get_covariance(self) -> Array:
        """Return the covariance matrix of the fitted Gaussian, in the units of X.

        Returns
        -------
        covariance : array of shape (d, d)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> PPCA(2).fit(X).get_covariance().shape
        (4, 4)
        """
        return self._outward("covariance", self._fitted.covariance())

    def get_precision(self) -> Array:
        """Return the precision matrix of the fitted Gaussian, the inverse of its covariance.

        Returns
        -------
        precision : array of shape (d, d)
            Inverse of the covariance.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> model = PPCA(2).fit(X)
        >>> np.allclose(model.get_precision() @ model.get_covariance(), np.eye(4))
        True
        """
        return self._outward("precision", self._fitted.precision())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw new rows from the fitted Gaussian.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : None, int, Generator or RandomState, default=None
            The same seed gives the same rows on every array library.

        Returns
        -------
        array of shape (n_samples, d)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> PPCA(2).fit(X).sample(3, random_state=0).shape
        (3, 4)
        """
        model = self._fitted
        check_number("n_samples", n_samples, 1, integer=True)
        return self._outward("outward", model.sample(n_samples, generator(random_state)))

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

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> PPCA(2).fit(X).hotelling_t2(X[:3]).round(1)
        array([2.1, 1.9, 2.1])
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
            ‖x − μ‖² − Σ y², in the units of X squared (of standardised columns after
            `standardize=True`); for factor analysis Σ e²/ψ, without unit. For rows with NaN, that
            of the observed entries given their best fit: 0 where no more are observed than
            components.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> PPCA(2).fit(X).spe(X[:3]).round(2)
        array([0.  , 0.05, 0.  ])
        """
        return self._judged(X)[1].spe

    def t2_limit(self, level: float = 0.95) -> float:
        """Return the T² that a share `level` of complete new rows stays below.

        The limit of T² alone; `outliers` judges by two limits, and takes each at √level.
        q (n² − 1)/(n (n − q)) F_{q, n−q}, for variances with divisor n − 1: it depends on the fit
        alone, never on the rows judged.

        Parameters
        ----------
        level : float, default=0.95

        Returns
        -------
        float

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> round(float(PPCA(2).fit(X).t2_limit(0.99)), 1)
        9.7
        """
        return self._limit(0, level)

    def spe_limit(self, level: float = 0.95) -> float:
        """Return the SPE that a share `level` of complete new rows stays below.

        The limit of SPE alone; `outliers` judges by two limits, and takes each at √level.

        Parameters
        ----------
        level : float, default=0.95

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
        to : {'spe', 't2'}, default='spe'
        signed : bool, default=False
            Give each the sign of its deviation: negative where the feature is less than expected.

        Returns
        -------
        array of shape (n, d)
            Not negative unless signed; a row's magnitudes sum to its statistic (so, after
            `standardize=True`, features count in units of their spread); 0 where nothing was
            observed.

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
        """Return which rows are unusual: T² or SPE above the limit for what the row observed.

        Parameters
        ----------
        X : array of shape (n, d)
        level : float, default=0.95
            Of both limits together: of ordinary new rows a share 1 − level is flagged, by one or
            the other. Each limit alone is at √level, because T² and SPE are independent.

        Returns
        -------
        Outliers
            `flagged` (n,) and beside it T², SPE, their limits and p-values, row by row;
            `expected` is the number of rows that would be flagged if all were ordinary.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> found = PPCA(2).fit(X).outliers(X)
        >>> int(found.flagged.sum()), round(found.expected, 1)
        (9, 7.5)
        """
        check_share("level", level)
        rows = self._asked(X, "outliers")
        with np.errstate(over="ignore", invalid="ignore"):
            monitor, found = self._judged(rows)
        outliers: Outliers = self._home(judge(monitor.reference, found, float(level)), X)
        return outliers.at(float(level))


class StreamingEstimator(Streaming, LinearEstimator):
    """Base of the linear models that also learn from chunks, by moments that add.

    Subclasses define `_request`, `_fit`, `_fit_stream` and, if moments are not all, `_absorb`.
    """

    _stream: tuple[Moments | Stream, int, Annotated[Array, "0 d"]]  # state, rows counted, no rows

    @abstractmethod
    def _fit(self, table: Table, request: Any) -> Any:
        """Return the model of a table."""

    @abstractmethod
    def _fit_stream(self, state: Any, count: int, like: Array, request: Any) -> Any:
        """Return the model of a stream."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : array of shape (n, d), or a chunked table
            Two rows or more. Never modified. Chunked: `Batches`, Dask, Zarr, a path.
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None
            Non-negative. A weight of 2 counts as the row twice, 0 as no row; their sum is the
            effective number of rows.

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> PPCA(2).fit(X).components_.shape
        (2, 4)
        """
        request = self._request()
        with self._training(X, sample_weight) as table:
            model = self._fit(table, watched(request, table))
        self._forget()
        return self._keep(model)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Add rows to the model: after any complete chunks it is the one `fit` would give.

        The moments of the rows, (d, d), are kept; the model is solved for when it is next read, so
        a stream costs one eigendecomposition, not one per chunk. A model that comes from `fit`
        keeps no moments: it starts over, with a warning.

        Parameters
        ----------
        X : array of shape (n, d)
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> model = PPCA(2)
        >>> for chunk in np.array_split(X, 3):
        ...     model = model.partial_fit(chunk)
        >>> model.n_samples_
        150
        """
        return self._add_chunk(X, sample_weight)

    def _grown(self, stream: Any, table: InMemoryTable, request: Any) -> tuple[Any, int | float]:
        check_request(self.n_components, sys.maxsize, table.d, "auto")
        old, counted = (None, 0) if stream is None else stream[:2]
        state, count = self._absorb(old, table, request)
        seen = state.n if table.weights is not None else round(state.n)
        return (state, counted + count, table.like), seen

    def _solved(self, stream: Any, request: Any) -> Any:
        state, count, like = stream
        if count < 2:
            raise NotFittedError(f"partial_fit has seen {count} row; at least 2 are required.")
        return self._fit_stream(state, count, like, request)

    def _absorb(self, state: Any, table: InMemoryTable, request: Any) -> tuple[Any, int]:
        """Return the state of a stream after one more chunk, and the rows it counts."""
        chunk = Moments.of(table.rows, table.weights)
        merged = chunk if state is None else state.merge(chunk)
        return merged, used_rows(table.rows, table.weights)


class IncompleteMethods(LinearEstimator):
    """What models x = Wz + μ + ε can do for rows with missing values. Their model has `factors`."""

    _accepts_nan = True

    def _refit_request(self) -> RefitRequest:
        """Return how the model is refitted to a bootstrap of rows."""
        return RefitRequest()

    def _bootstrap_weights(self, rows: Array, weights: Array | None) -> Array | None:
        """Return the weights of rows that bootstraps are drawn from."""
        return weights

    @on_rows("n_features_in_", framed=True, outward=("filled", "spread"))
    def impute(self, X: Any, return_std: bool = False, *, parameters: str = "auto") -> Any:
        """Fill every NaN with its expectation given what the row observed.

        Parameters
        ----------
        X : array or frame of shape (n, d)
            NaN (null) where nothing was observed. Never modified.
        return_std : bool, default=False
            Also return the standard deviation of every entry: 0 where it was observed, and where
            it was not the uncertainty of a measurement, √(wᵀCw + σ²), with that of the parameters.
        parameters : {'auto', 'bootstrap', 'fixed'}, default='auto'
            What the standard deviations count as known. 'fixed': the fitted parameters. 'bootstrap'
            adds the variance of the expectation over 20 refits to bootstraps of X, which must be
            the training table or one like it. 'auto' does so where it matters: X has as many rows
            as were fitted, and fewer than 50 observed entries per free parameter.

        Returns
        -------
        array or frame of shape (n, d), or a pair of them
            Observed entries are kept to the last bit. A pandas or polars frame comes back as one.

        Notes
        -----
        E[x_m | x_o] = μ_m + W_m z̄ (theory 4). A row with nothing observed gets the mean and the
        standard deviation of the model. With refits the noise is also divided by 1 − p/N, for p
        parameters and N observed entries; 20 refits cost up to 400 EM steps. They are the same in
        every call.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> X[0, 2] = np.nan
        >>> filled, std = PPCA(2).fit(X).impute(X, return_std=True)
        >>> round(float(filled[0, 2]), 1), round(float(std[0, 2]), 1)
        (1.6, 0.5)
        """
        check_choice("parameters", parameters, ("auto", "bootstrap", "fixed"))
        model = self._working
        if not return_std or not self._refits(model, X, parameters):
            return imputed(model.factors, X, return_std)
        request, rng = self._refit_request(), np.random.default_rng(0)
        return imputed_unsurely(model.factors, X, rng, request, self._bootstrap_weights(X, None))

    def _refits(self, model: SpikedModel | FactorModel, rows: Array, parameters: str) -> bool:
        """Return True if parameters are to be refitted to bootstraps of the rows."""
        if parameters == "bootstrap":
            self._refuse_bootstrap(model.factors.W.shape[1], rows)
        if parameters != "auto":
            return parameters == "bootstrap"
        enough = int(rows.shape[0]) >= int(model.n_rows)
        return enough and needs_refits(model.factors, rows, self._refit_request().diagonal)

    def _refuse_bootstrap(self, q: int, rows: Array) -> None:
        """Refuse to bootstrap too few rows, or a column without values."""
        refuse_infinite(rows)
        seen, least = ~np.isnan(backend.to_numpy(rows)), least_rows(q)
        count = int(seen.any(axis=1).sum())
        if count < least:
            raise ValueError(
                f"a bootstrap needs at least {least} rows with observed values, got {count}. Give "
                "the training table, or parameters='fixed', which takes the fitted parameters as "
                "known."
            )
        empty = [int(j) for j in np.flatnonzero(~seen.any(axis=0))]
        if empty:
            raise EmptyColumnError(empty, getattr(self, "feature_names_in_", None))

    def sample_imputations(
        self,
        X: Any,
        n_draws: int = 5,
        random_state: Any = None,
        *,
        parameters: str = "bootstrap",
        sample_weight: Any = None,
    ) -> Array:
        """Draw completed tables: each NaN replaced by a draw from its distribution.

        Entries of one row are drawn together, so their correlations are right: fit any analysis
        to every table and pool the results with `dualpca.pool` (Rubin 1987).

        Parameters
        ----------
        X : array of shape (n, d)
            The training table, or one like it.
        n_draws : int, default=5
        random_state : None, int, Generator or RandomState, default=None
            The same seed gives the same tables on every array library.
        parameters : {'bootstrap', 'fixed'}, default='bootstrap'
            'bootstrap': every draw has parameters of its own, refitted to a bootstrap of X by up to
            20 EM steps from the fitted ones, so that intervals pooled from the tables cover as they
            promise. 'fixed': all draws at the fitted parameters; faster, and for any number of
            rows, but too alike: pooled 95 % intervals of a column with 60 % missing among 40 rows
            cover 88 %.
        sample_weight : array of shape (n,), default=None
            As in `fit`: a row of weight 2 is drawn into bootstraps as two rows would be.

        Returns
        -------
        array of shape (n_draws, n, d)

        Notes
        -----
        Theory 4; Honaker & King (2010). `BayesianPCA` refits with its prior, by the EM of 'ard'
        after 'variational' too.

        Examples
        --------
        >>> import numpy as np
        >>> import dualpca
        >>> X = np.random.default_rng(0).normal(size=(40, 1)) + np.zeros(3)
        >>> X = X + 0.5 * np.random.default_rng(1).normal(size=X.shape)
        >>> X[:20, 0] = np.nan
        >>> tables = dualpca.PPCA(1).fit(X).sample_imputations(X, 20, random_state=0)
        >>> means, n = tables[:, :, 0].mean(axis=1), 40
        >>> found = dualpca.pool(means, tables[:, :, 0].var(axis=1, ddof=1) / n, dof=n - 1)
        >>> 0 < found.missing_information < 1
        True
        """
        check_number("n_draws", n_draws, 1, integer=True)
        rng, rows = generator(random_state), self._asked(X, "sample_imputations")
        found = self._drawn_parameters(rows, n_draws, rng, parameters, sample_weight)
        if found is None:
            tables = drawn_imputations(self._working.factors, rows, n_draws, rng)
        else:
            tables = sampled_imputations(found, rows, rng)
        tables = self._outward("filled", tables, self._given(X, "sample_imputations"))
        return self._home(backend.cast_like(tables, rows), X)

    def _drawn_parameters(
        self, rows: Array, n_draws: int, rng: np.random.Generator, parameters: str, weights: Any
    ) -> Iterator[Factors] | None:
        """Return a density for every draw, refitted as it is read; None for the fitted one."""
        check_choice("parameters", parameters, ("bootstrap", "fixed"))
        model, weights = self._working, check_weights(weights, backend.vector_like(rows))
        if not self._refits(model, rows, parameters) or not has_missing(rows):
            return None
        weights = self._bootstrap_weights(rows, weights)
        return refits(model.factors, rows, weights, n_draws, rng, self._refit_request())

    @on_rows(chunked=False)
    def conditional(self, X: Any, features: Any = None) -> tuple[Array, Array]:
        """Return mean and covariance of features given what each row observed.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN marks what is not given.
        features : sequence of int, default=None
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
        d = int(X.shape[1])
        index = np.arange(d) if features is None else np.asarray(features)
        if index.ndim != 1 or index.dtype.kind not in "iu" or index.size == 0:
            raise ValueError(expected("features", "a sequence of feature numbers", features))
        if index.min() < 0 or index.max() >= d:
            raise ValueError(expected("features", f"numbers from 0 to {d - 1}", features))
        mean, covariance = conditional(self._working.factors, X, index)
        if self._units is None:
            return mean, covariance
        units = self._units.of_columns(index)
        return units.outward(mean), units.covariance(covariance)


class LatentMethods(IncompleteMethods):
    """What PPCA, Bayesian and robust PCA say of the latents. Their model is a `SpikedModel`."""

    _depends_on_units = True

    explained_variance_ = attribute("variances")
    explained_variance_ratio_ = attribute("ratios")
    loadings_ = attribute("loadings", Units.loadings)
    n_components_ = attribute("n_components")
    loglikelihood_ = attribute("history.loglikelihood", Units.loglikelihood)
    loglikelihoods_ = attribute("history.loglikelihoods", Units.loglikelihood)
    n_iter_ = attribute("history.n_iter")
    converged_ = attribute("history.converged")

    @on_rows("n_components_")
    def transform(self, X: Any) -> Array:
        """Return the posterior mean of the latents.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        array of shape (n, q)
            √(ℓ − σ²)/ℓ · vᵀ(x − μ), which tends to the whitened PCA projection as σ² → 0.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> PPCA(2).fit(X).transform(X).shape
        (150, 2)
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

        Notes
        -----
        The fitted parameters count as known. That is for n ≫ d: of 10 columns, 90 % intervals
        cover 88 % with 200 rows, and 81 % with 40.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> mean, covariance = PPCA(2).fit(X).posterior(X)
        >>> mean.shape, covariance.shape
        ((150, 2), (150, 2, 2))
        """
        model: SpikedModel = self._working
        mean, own = model.posterior(X)
        if own is not None:
            return mean, own
        variance = model.gaussian.posterior_variance
        one = variance[:, None] * backend.asarray(np.eye(variance.shape[0]), variance)
        shape = (X.shape[0], *one.shape)
        return mean, backend.namespace(X).broadcast_to(backend.cast_like(one, X), shape)

    def inverse_transform(self, X: Any) -> Array:
        """Return the mean of the rows given latents, Wz + μ.

        Parameters
        ----------
        X : array of shape (n, q)
            Latents z.

        Returns
        -------
        array of shape (n, d)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> PPCA(2).fit(X).inverse_transform([[0.0, 0.0]]).round(2)
        array([[5.84, 3.06, 3.76, 1.2 ]])
        """
        return self._lifted(X, self._working.gaussian.spread)

    @on_rows("n_features_in_", outward=("outward", "spread"))
    def reconstruct(self, X: Any, return_std: bool = False) -> Any:
        """Return the posterior mean of the noise-free signal.

        It is μ + Σ_p (1 − σ²/ℓ_p) y_p v_p.

        Parameters
        ----------
        X : array of shape (n, d)
        return_std : bool, default=False
            Also return the posterior standard deviation of the signal.

        Returns
        -------
        array of shape (n, d), or a pair of them

        Notes
        -----
        The standard deviation takes the fitted parameters as known, whose error is not small
        beside it: of 10 columns, 90 % intervals cover 87 % with 300 rows, and 74 % with 40.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> PPCA(2).fit(X).reconstruct(X[:1]).round(2)
        array([[5.05, 3.47, 1.44, 0.23]])
        """
        return self._working.signal(X, return_std)

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

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> mean, covariance = PPCA(2).fit(X).posterior_predictive(X[:3])
        >>> mean.shape, covariance.shape
        ((3, 4), (4, 4))
        """
        refuse_nonfinite(self._asked(X, "posterior_predictive"))
        mean, model = self.reconstruct(X), self._fitted
        covariance = model.dense(model.gaussian.signal_variance, model.noise, power=1)
        return mean, self._outward("covariance", covariance)


# --- Kernel models -------------------------------------------------------------------------------

ASYMMETRY = 1e-8
"""Largest |K − Kᵀ| that counts as rounding, relative to the largest entry."""

SYMMETRY_TILE = 128
"""Points on either side of a tile of a kernel matrix that is compared with its mirror image."""

LEAST_LEARNED = 500
"""Points that a learned pre-image map may always use: 2 MB."""


def check_points(
    estimator: Estimator, X: Any, *, reset: bool, min_rows: int = 2, allow_nan: bool = False
) -> Array:
    """Return the points as a kernel can see them; never modified, checked to be finite.

    NaN is let through where `allow_nan` says so and the kernel has an expectation.
    """
    items = _are_items(estimator.kernel, X)
    if not reset and items == ("n_features_in_" in vars(estimator)):
        what = "a list of items, as in fit" if not items else "rows of numbers, as in fit"
        raise ValueError(expected("X", what, type(X)))
    min_rows = min_rows if reset else 1
    if items:
        if reset:
            estimator.__dict__.pop("n_features_in_", None)
            estimator.__dict__.pop("feature_names_in_", None)
        if len(X) < min_rows:
            raise ValueError(expected("X", f"at least {min_rows} items", X))
        found = np.empty(len(X), dtype=object)
        for i, item in enumerate(X):
            found[i] = item
        return found
    if is_precomputed(estimator.kernel) and backend.is_sparse(X):
        raise ValueError(expected("X", "a dense kernel matrix", type(X), "Give X.toarray()."))
    X = check_rows(estimator, X, reset=reset, min_rows=min_rows, accept_sparse=True)
    X = X.tocsr() if backend.is_sparse(X) else X
    if not (allow_nan and accepts_nan(estimator.kernel) and is_incomplete(X)):
        refuse_nonfinite(X)
    return X


def _are_items(kernel: Any, X: Any) -> bool:
    """Return True if X holds strings, graphs or the like, for a function of two of them."""
    named = isinstance(kernel, Kernel) or is_gaussian_process_kernel(kernel)
    if not (isinstance(kernel, Function) if named else callable(kernel)):
        return False
    if backend.is_foreign(X) or backend.is_sparse(X):
        return False
    if hasattr(X, "shape"):  # an array, a table or a column of one
        return len(X.shape) == 1 and np.asarray(X).dtype.kind in "OUST"
    if not hasattr(X, "__getitem__") or isinstance(X, str | bytes | Mapping) or len(X) == 0:
        return False
    return not isinstance(X[0], list | tuple | np.ndarray | Real)


def check_diagonal(diagonal: Any, rows: Array) -> Array | None:
    """Return k(x, x) of every new item, (m,), where it is given."""
    if diagonal is None:
        return None
    values = np.asarray(backend.to_numpy(diagonal), dtype=np.float64)
    if values.shape != (rows.shape[0],) or not np.isfinite(values).all():
        what = f"{rows.shape[0]} finite numbers, k(x, x) of every row"
        raise ValueError(expected("diagonal", what, values))
    return backend.asarray(values, backend.vector_like(rows))


def check_kernel_matrix(K: Array, *, center: bool) -> Array:
    """Return a square kernel matrix that is symmetric, at least once it is centred.

    Constants of its rows are taken away until it is symmetric as it stands. Those of columns
    stay, for rows of new items have them too; centring removes both.
    """
    n, xp = int(K.shape[0]), backend.namespace(K)
    if K.shape[1] != n:
        what = "a square kernel matrix, (n, n), with kernel='precomputed'"
        raise ValueError(expected("X", what, tuple(K.shape)))
    worst = largest_asymmetry(K)
    if worst <= ASYMMETRY * float(xp.max(xp.abs(xp.linalg.diagonal(K)))):
        return K
    size = max(float(xp.max(xp.abs(K[rows, :]))) for rows in backend.row_slices(K))
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


def largest_asymmetry(K: Array) -> float:
    """Return the largest |K − Kᵀ|, from tiles above the diagonal, which the cache holds."""
    xp, n, worst = backend.namespace(K), int(K.shape[0]), 0.0
    tile = SYMMETRY_TILE if not backend.is_foreign(K) else backend.block_rows(n, K)
    for rows in backend.slices(n, tile):
        for columns in backend.slices(rows.stop, tile):
            gap = K[columns, rows] - K[rows, columns].T
            worst = max(worst, float(xp.max(gap)), -float(xp.min(gap)))
    return worst


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

    def __get__(self, estimator: Estimator | None, owner: type | None = None) -> Any:
        """Return the estimator; if there is no model, raise Python's usual AttributeError."""
        model = super().__get__(estimator, owner)
        if estimator is None:
            return model
        found = self.shell(model.n_components)
        found._model, found.n_features_in_ = model, int(model.mean.shape[0])
        return found


def _names_of_fields(request: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(request))


_field_names: Callable[[Any], tuple[str, ...]] = cache(_names_of_fields)
"""The names of the fields of a dataclass."""


class KernelEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Base of the kernel models: rows, sparse rows, items of any kind, or a kernel matrix.

    Their model has `points`, what new points are compared with, and `n_components`.
    """

    _allow_nan = False  # where the kernel has expectations

    kernel_ = attribute("kernel")
    X_fit_ = attribute("points")
    n_samples_ = attribute("n_rows")

    @property
    def _n_features_out(self) -> int:
        return int(self._fitted.n_components)

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        kernel = self.kernel
        if isinstance(kernel, str):
            kernel = ALIASES.get(kernel) or KERNELS.get(kernel)
        tags.input_tags.sparse = bool(getattr(kernel, "sparse", False))
        tags.input_tags.allow_nan = self._allow_nan and accepts_nan(self.kernel)
        tags.input_tags.pairwise = is_precomputed(self.kernel)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._kernel_choice.check()

    @property
    def _kernel_choice(self) -> KernelChoice:
        """The kernel that the parameters ask for."""
        return KernelChoice(self.kernel, self.gamma, self.degree, self.coef0, self.kernel_params)

    @property
    def _seed(self) -> Any:
        """A seed, the same in every call, or a generator."""
        seed = self.random_state
        return 0 if seed is None else int(seed) if isinstance(seed, Integral) else generator(seed)

    def _asked_for(self, request: type[T], **given: Any) -> T:
        """Return a request; fields that are not given are the parameters of the same name."""
        given = {"kernel": self._kernel_choice, "seed": self._seed, **given}
        names = _field_names(request)
        return request(**{n: given[n] if n in given else getattr(self, n) for n in names})

    def _checked(self, X: Any, *, reset: bool, min_rows: int = 1) -> Array:
        """Return points: items, dense or sparse rows (as in the fit), or a kernel matrix."""
        allow_nan = self._allow_nan
        points = check_points(self, X, reset=reset, min_rows=min_rows, allow_nan=allow_nan)
        if reset:
            matrix, center = is_precomputed(self.kernel), getattr(self, "center", False)
            return check_kernel_matrix(points, center=center) if matrix else points
        fitted = self._fitted.points
        if backend.is_sparse(fitted) == backend.is_sparse(points) or points.ndim == 1:
            return points
        return type(fitted)(points) if backend.is_sparse(fitted) else points.toarray()

    def _fit_items(self, fit: Callable[[InMemoryTable, Any], Any], X: Any) -> Any:
        """Fit a model of three items or more to all of them at once."""
        request = self._request()
        with showing(self.verbose):
            self._choose_device(X, None)
            table = self._placed_table(self._checked(X, reset=True, min_rows=3), None)
            return self._keep(fit(table, request))


class PreImageEstimator(KernelEstimator):
    """Base of the kernel models whose `subspace` expands over points: the way back to inputs.

    Also what else they share: solvers, and rows with missing values. Subclasses define
    `input_model_`.
    """

    _allow_nan = True

    eigenvalues_ = attribute("eigenvalues")
    explained_variance_ = attribute("variances")
    explained_variance_ratio_ = attribute("ratios")
    n_components_ = attribute("n_components")
    approximation_error_ = attribute("error")
    solver_ = attribute("solver")
    _subspace = attribute("subspace")  # as format 1 names it

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        solver = KERNEL_SOLVERS.get(self.eigen_solver)
        tags.input_tags.allow_nan &= solver is None or not solver.approximate
        return tags

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
        given = {"solver": self.eigen_solver, "max_passes": None, "cluster": cluster_centres}
        return self._asked_for(KernelOptions, **(given | others))

    def _know_inputs(self, rows: Array) -> None:
        """Fit a model of the inputs when rows with missing values first come in."""
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

    def _keep(self, model: Model) -> Any:
        self._judge_inputs(getattr(model, "inputs", None))
        return super()._keep(model)

    def _refuse_missing(self, rows: Array) -> None:
        """Refuse missing values in methods that have no expectations of them."""
        if is_incomplete(rows):
            refuse_nonfinite(rows)

    @on_rows(cast=False)
    def novelty(self, X: Any, diagonal: Any = None) -> Array:
        """Return the squared distance of features off the components (Hoffmann 2007).

        s(x) − Σy² with s(x) = ‖φ(x) − φ̄‖²: large for points unlike the training points.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training points (m, n)
        diagonal : array of shape (m,), default=None
            k(x, x) of every row, where X holds kernel values, which do not tell it.

        Returns
        -------
        distance : array of shape (m,)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.novelty([X[0], [9.0, 9.0, 9.0, 9.0]]).round(2)
        array([0.05, 1.28])
        """
        self._refuse_missing(X)
        return self._working.off_span(X, check_diagonal(diagonal, X))

    def jacobian(self, X: Any) -> Array:
        """Return the derivatives of `transform` with respect to the entries of each row.

        Parameters
        ----------
        X : array of shape (m, d)
            Complete rows.

        Returns
        -------
        array of shape (m, q, d)
            Of a kernel known only through its values, by central differences. O(mnqd).

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import KernelPCA
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> KernelPCA(2, kernel="rbf", gamma=0.1).fit(X).jacobian(X[:5]).shape
        (5, 2, 3)
        """
        rows = self._asked(X, "jacobian")
        self._refuse_missing(rows)
        self._span()  # says why there is none
        found = self._working.subspace.jacobian(rows) * self._posterior_scale()
        return self._home(backend.cast_like(check_finite_result(found, rows), rows), X)

    def _posterior_scale(self) -> Any:
        """Return what coordinates are multiplied by to be what `transform` returns, (q, 1)."""
        return 1.0

    # --- pre-images ------------------------------------------------------------------------

    def _span(self) -> Span:
        """Return the directions as pre-image methods need them; cached from the first use."""
        found: Span | None = vars(self).get("_span_")
        if found is not None:
            return found
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

        self._span_ = Span(points, subspace.kernel, subspace.coefficients, subspace.base)
        return self._span_

    def _method(self, name: Any = None) -> Method:
        """Return a pre-image method, prepared; cached from the first use."""
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
        method : str or Method, default=None
            'smoother', 'plain-smoother', 'fixed-point', 'gradient', 'distance', 'learned' or
            'auto' (the best for each row); the parameter `preimage` by default.
        start : array of shape (m, d), default=None
            Where iterations start, beside their own guesses.

        Returns
        -------
        PreImage
            `points` (m, d), `distance` (m,), the distance in feature space that is left, and
            `iterations` (m,).

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> found = model.preimages(model.transform(X[:3]))
        >>> found.points.shape, found.distance.shape
        ((3, 4), (3,))
        """
        Z, Y = self._latent_coordinates(X, "preimages")
        start = None if start is None else self._asked(start, "preimages")
        found = self._method(method).find(self._span(), Y, start)
        points = backend.cast_like(found.points, Z)
        result: PreImage = self._home(found._replace(points=points), X)
        return result

    def preimage_of_kernel(
        self, K: Any, method: Any = None, start: Any = None, *, centered: bool = False
    ) -> PreImage:
        """Return inputs whose features are close to the points with given kernel values.

        Parameters
        ----------
        K : array of shape (m, n)
            ⟨φ(x_i), P⟩ for the rows x_i of `X_fit_`, of any points P of feature space.
        method : str or Method, default=None
            As in `preimages`, and `dualpca.preimages.PlainSmoother` ('plain-smoother'), the mean
            of the training points weighted by K itself (De Plaen & Suykens 2023, Eq. 19).
        start : array of shape (m, d), default=None
            Where iterations start, beside their own guesses.
        centered : bool, default=False
            K holds ⟨φ(x_i) − φ̄, P − φ̄⟩, as `DualPPCA.sample_kernel` and `reconstruct_kernel` give
            them.

        Returns
        -------
        PreImage
            As `preimages`. P, which need not lie on the components, is the point on the span of
            the training points that has these values; the closest one, if none has. To find it
            costs O(n³) once. Beyond 5000 points only 'plain-smoother', 'smoother' and 'learned'
            (which sees the projection of P) are there, and `distance` is NaN.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> values = model.kernel_(X[:3], X)
        >>> model.preimage_of_kernel(values).points.shape
        (3, 4)
        """
        check_is_fitted(self)
        check_flag("centered", centered)
        span, values = self._span(), check_matrix(K, "K")
        if values.shape[1] != span.size:
            what = f"of shape (m, {span.size}), a column for every row of X_fit_"
            raise ValueError(expected("K", what, tuple(values.shape)))
        values = self._beside_model(values, "preimage_of_kernel")
        start = None if start is None else self._asked(start, "preimage_of_kernel")
        found = self._method(method).find_values(span, values, start, centered=centered)
        points = backend.cast_like(found.points, values)
        result: PreImage = self._home(found._replace(points=points), K)
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

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.inverse_transform(model.transform(X[:3])).shape
        (3, 4)
        """
        return self.preimages(X, self._inverse_method()).points

    def reconstruct(self, X: Any) -> Array:
        """Project rows on the components and return the pre-images of the projections.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training points (m, n)

        Returns
        -------
        X_rec : array of shape (m, d)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.reconstruct(X[:3]).shape
        (3, 4)
        """
        return self.inverse_transform(self.transform(X))

    def denoise(self, X: Any, method: Any = None) -> Array:
        """Project rows on the components and come back, starting from the rows themselves.

        Parameters
        ----------
        X : array of shape (m, d)
        method : str or Method, default=None

        Returns
        -------
        array of shape (m, d)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.denoise(X[:3]).shape
        (3, 4)
        """
        self._refuse_missing(self._asked(X, "denoise"))
        return self.preimages(self.transform(X), method, start=X).points

    def preimage_weights(self, X: Any) -> Array:
        """Return weights over the training points whose sum is the point of feature space meant.

        For kernels of items without coordinates (kernel matrices, strings), where it takes the
        place of a pre-image.

        Parameters
        ----------
        X : array of shape (m, q)
            Latents, as `transform` returns them.

        Returns
        -------
        weights : array of shape (m, n)
            Row i holds the weights of the training points.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> weights = model.preimage_weights(model.transform(X[:3]))
        >>> weights.shape, weights.sum(axis=1).round(6)
        ((3, 150), array([1., 1., 1.]))
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
