"""What every estimator is: rows in and out, devices, files, answers row by row."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from inspect import unwrap
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self, TypeVar, dataclass_transform
from zlib import crc32

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.validation import check_is_fitted

from dualpca import arrays, data, errors
from dualpca.arrays import Array, backend, memory
from dualpca.data import ChunkedTable, Host, InMemoryTable, Table, Units
from dualpca.estimators import _checks, saving
from dualpca.estimators._streaming import Streaming
from dualpca.estimators._types import Rows, Weights
from dualpca.files.checkpoints import Checkpoint, CheckpointWatch
from dualpca.files.fields import is_record, sizes_of
from dualpca.kernels import Kernel, split_params
from dualpca.models.driver import History, if_singular
from dualpca.models.spiked import SpikedModel
from dualpca.operators import ProjectedRows, Projection

if TYPE_CHECKING:
    from _typeshed import DataclassInstance as Model


T = TypeVar("T")


@dataclass_transform(field_specifiers=(field,))
def parametrized(cls: type[T]) -> type[T]:
    """Give an estimator the constructor that keeps its parameters, the annotated names of a class.

    That is all it has of a dataclass: parameters are attributes of objects, not of the class.
    """
    dataclass(eq=False, repr=False, match_args=False)(cls)
    parameters = set(cls.__dataclass_fields__) & set(vars(cls))  # type: ignore[attr-defined]
    for name in (*parameters, "__dataclass_fields__", "__dataclass_params__"):
        delattr(cls, name)
    return cls


AUTO = "auto"
"""Value of `standardize` that leaves it to the columns."""


PICKLED_BY = "_dualpca_version"
"""Name in a pickle of the version that wrote it."""

PREPARED = ("_span_", "_methods_")
"""What a model prepares when it is first needed, and again after it was read from a pickle."""


class Estimator(BaseEstimator):
    """An estimator around a model: a frozen dataclass that knows nothing of scikit-learn.

    Subclasses annotate `_model`, fit it with `_training` and `_keep`, and answer with methods
    under `on_rows`, which translate and call the model.
    """

    _model: Any
    device: str | list[str] | None = None
    verbose: bool = False
    _accepts_sparse = False
    _accepts_nan = False
    _depends_on_units = False  # columns in large units decide the model
    _finds_units = False  # standardize='auto' is accepted
    _units: Units | None = None  # of the columns, if the model is one of standardised rows
    _units_in_model = False  # the fit standardises columns itself
    _finite = False  # NaN and infinity are refused
    _can_be_saved = True
    _shares_products = False  # with several devices, or the workers of a cluster
    _streaming: Streaming[Any, Any] | None = None  # how to learn from chunks
    _where: Any = None  # torch's device, if the fit moves host arrays there

    def __sklearn_is_fitted__(self) -> bool:
        """Return True after a fit, or once a chunk was seen."""
        return "_model" in vars(self) or "_stream" in vars(self)

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
            raise ValueError(errors.expected(named[0], what, kernels[named[0]], remedy))
        others = {k: v for k, v in params.items() if k.partition("__")[0] not in found}
        return super().set_params(**others | found)

    @property
    def _fitted(self) -> Any:
        """The model, on the host; that of a stream is solved for when it is first read.

        A NotFittedError, which is an AttributeError, before a fit.
        """
        if "_model" in vars(self):
            return self._model
        if self._streaming is None or not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with "
                "appropriate arguments before using this estimator."
            )
        self._streaming.solve(self)
        return self._model

    @property
    def _working(self) -> Any:
        """The model where it works: on its device, if it was fitted on one."""
        return vars(self).get("_placed") or self._fitted

    @property
    def _n_features_out(self) -> int:
        found = self._fitted.n_components
        if isinstance(found, list | tuple):  # `dir` asks for everything
            raise AttributeError(f"{type(self).__name__} has several numbers of components")
        return int(found)

    @property
    def _model_units(self) -> Units | None:
        """The units of what the model describes; None where that is not the inputs."""
        return self._units

    def _keep(self, model: Model) -> Self:
        """Take over a fitted model; of one on a GPU keep a copy there."""
        self._forget()
        if self._where is None:
            self._model = model
        else:
            self._placed, self._model = model, arrays.to_host(model)
        history = getattr(model, "history", None)
        if history is not None:
            self._warn_unless_converged(history)
        return self

    def _forget(self) -> None:
        """Drop what an earlier fit left behind."""
        for name in ("_model", "_placed", "_stream", "n_samples_seen_", *PREPARED):
            self.__dict__.pop(name, None)

    def _warn_unless_converged(self, history: History) -> None:
        if history.interrupted:
            errors.warn(
                f"the fit was interrupted after {history.n_iter} steps: the model is the best "
                "one found until then. Fit again to reach the maximum.",
                errors.InterruptWarning,
            )
        elif history.converged or history.endless:
            return
        elif self.max_iter is not None and history.n_iter < self.max_iter:
            errors.warn(
                f"the fit stopped after {history.n_iter} steps, where none raised the likelihood "
                f"any more, before it came within tol={self.tol:g} of the maximum: that is less "
                "than rounding errors allow. Raise tol.",
                ConvergenceWarning,
            )
        else:
            errors.warn(
                f"the fit stopped after max_iter={self.max_iter} steps before it came within "
                f"tol={self.tol:g} of the maximum. Raise max_iter or tol.",
                ConvergenceWarning,
            )

    # --- rows in ---------------------------------------------------------------------------

    @contextmanager
    def _training(self, X: Rows, sample_weight: Weights = None) -> Iterator[Table]:
        """Give the checked table to fit, on the device that was asked for; show progress."""
        with arrays.showing(self.verbose), _checks.explained(self):
            chunks = data.chunked_table(X)
            self._choose_device(X, chunks)
            if chunks is None:
                rows = self._checked(X, reset=True, min_rows=2)
                weights = _checks.check_weights(sample_weight, backend.vector_like(rows))
                table: Table = self._placed_table(rows, weights)
            else:
                if chunks.d < 1:
                    shape = f"(shape=({chunks.n}, {chunks.d}))"
                    raise ValueError(f"Found array with 0 feature(s) {shape}.")
                _checks.check_columns(self, chunks.d, chunks.names, reset=True)
                table = _checks.with_weights(chunks, sample_weight)
            with _checks.named_constants(self, table):
                units = self._units_of(table)
                yield table if units is None else units.table(table)
        self._set_units(units)

    def _learn(
        self,
        fit: Callable[[Table, Any], Model],
        X: Rows,
        sample_weight: Weights = None,
    ) -> Self:
        """Fit the model that the parameters ask for, and keep it."""
        request = self._request()
        with self._training(X, sample_weight) as table:
            model = fit(table, self._watched(request, table))
        with _checks.named_constants(self, table):
            return self._keep(model)

    def _watched(self, request: T, table: Table) -> T:
        """Return the request; its checkpoint knows a table by the units it came in."""
        watch: CheckpointWatch | None = getattr(request, "watch", None)
        of_inputs = getattr(self, "kernel", None) is None
        if watch is None or table.units is None or not of_inputs:
            return request
        return replace(request, watch=watch._replace(units=table.units))  # type: ignore[type-var]

    @property
    def _seed(self) -> int | np.random.Generator:
        """A seed, the same in every call, or a generator."""
        seed = 0 if self.random_state is None else self.random_state
        return int(seed) if isinstance(seed, Integral) else _checks.generator(seed)

    def _standardizes(self) -> bool:
        """Return True if the parameter `standardize`, where there is one, asks for it."""
        asked = getattr(self, "standardize", False)
        if self._finds_units and isinstance(asked, str):
            if asked != AUTO:
                raise ValueError(errors.expected("standardize", "True or False, or 'auto'", asked))
            return False
        _checks.check_flag("standardize", asked)
        return bool(asked)

    def _units_of(self, table: Table) -> Units | None:
        """Return the units to fit in, None for those of X; warn where these hide columns."""
        asked = self._standardizes()
        if self._units_in_model:
            return None
        if asked:
            return Units.of(table)
        if self._finds_units and self.standardize == AUTO:
            return Units.of(table) if data.have_unlike_units(table) else None
        found = self._most_unequal(table) if self._depends_on_units else None
        if found is not None:
            (one, other), ratio = _checks.column_labels(self, found[:2]), found[2]
            errors.warn(
                f"the variance of column {one} is {ratio:.2g} times that of column {other}: "
                "columns in large units decide the model, and those in small ones hardly count. "
                "Give standardize=True to weigh all columns alike.",
                errors.ScaleWarning,
            )
        return None

    def _most_unequal(self, table: Table) -> tuple[int, int, float] | None:
        """Return the columns of largest and smallest variance, and the ratio, if it is large."""
        return data.most_unequal(table)

    def _set_units(self, units: Units | None) -> None:
        """Keep the units of a fit."""
        self.__dict__.pop("_units", None)
        if units is not None:
            self._units = units if self._where is None else arrays.to_host(units)

    def _checked(self, X: Rows, *, reset: bool, min_rows: int = 1) -> Array:
        """Return X as the estimator accepts it; `reset` where it is fitted."""
        sparse = self._accepts_sparse
        rows = _checks.check_rows(self, X, reset=reset, min_rows=min_rows, accept_sparse=sparse)
        if self._finite:
            data.refuse_nonfinite(rows)
        return rows

    def _placed_table(self, rows: Array, weights: Array | None) -> InMemoryTable:
        """Return checked rows as a table, on the device of the fit."""
        if self._where is not None:
            rows = arrays.sent(rows, self._where)
            weights = None if weights is None else backend.asarray(backend.to_numpy(weights), rows)
        return InMemoryTable(rows, weights)

    def _choose_device(self, X: Rows, chunks: ChunkedTable | None = None) -> None:
        """Decide where to fit: where the rows are, or on the GPU that `device` asks for."""
        self.__dict__.pop("_where", None)
        self._check_device()
        if self.device is None or (chunks is not None and self._leaves_to_workers(chunks)):
            return
        if chunks is not None or backend.is_sparse(X) or backend.is_sparse_tensor(X):
            what = type(X).__name__
            if self.device not in ("auto", "cpu"):
                raise errors.BackendError(
                    f"device={self.device!r} accepts dense rows in memory, got {what}. Give those, "
                    "or device=None (or 'auto') for this table."
                )
            found = arrays.Choice(None, f"{what} is worked on where it is")
        elif not isinstance(self.device, str):
            found = arrays.Choice(arrays.each_device(self.device)[0], f"first of {self.device}")
        else:
            pairs = getattr(self, "kernel", None) is not None
            steps = not pairs and hasattr(self, "max_iter")
            found = arrays.chosen(self.device, arrays.Job(*arrays.rows_of(X), pairs, steps))
        where = "the CPU" if found.device is None else str(found.device)
        arrays.note(f"{type(self).__name__} on {where}: {found.reason}")
        if found.device is not None:
            self._where = found.device

    def _check_device(self) -> None:
        """Refuse what names no device, and several where the fit cannot share them."""
        arrays.check_device(self.device)
        if isinstance(self.device, list | tuple) and not self._shares_products:
            what = "one device: KernelPCA and DualPPCA alone share their work"
            raise ValueError(errors.expected("device", what, self.device))

    def _leaves_to_workers(self, chunks: ChunkedTable) -> bool:
        """Return True if the workers that hold a table choose their devices themselves."""
        return False

    def _asked(self, X: Rows, method: str) -> Array:
        """Return rows that the fitted model is asked about, where it works and in its units."""
        rows = self._given(X, method)
        return rows if self._units is None else self._units.inward(rows)

    def _given(self, X: Rows, method: str) -> Array:
        """Return rows that the fitted model is asked about, checked, where the model works."""
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)  # raises
        return self._beside_model(self._checked(X, reset=False), method)

    def _outward(self, how: Callable[..., Array], result: Array, *given: Array) -> Array:
        """Return what the model says of rows in the units of X; `how` is a method of `Units`."""
        return result if self._units is None else how(self._units, result, *given)

    def _asked_latents(self, Z: Rows, method: str, width: int) -> Array:
        """Return rows in the space of the components, checked, where the model works."""
        check_is_fitted(self)
        # a model of no components has no columns
        latents = _checks.check_matrix(Z, "X", min_columns=0, attached=True)
        if latents.shape[1] != width:
            what = f"a matrix of {width} columns (n_components)"
            raise ValueError(errors.expected("X", what, tuple(latents.shape)))
        return self._beside_model(latents, method)

    def _beside_model(self, rows: Array, method: str) -> Array:
        if "_placed" in vars(self):
            return arrays.sent(rows, self._where)
        like = next(arrays.arrays_of(self._fitted))
        if backend.is_foreign(rows) and not backend.is_foreign(like):
            if backend.is_sparse_tensor(rows):
                return backend.sparse_on_host(rows)
            return backend.to_numpy(rows)  # `_home` brings the answer back
        backend.require_same_home(rows, like, f"{type(self).__name__}.{method}")
        return rows

    def _home(self, result: Any, X: Rows | None) -> Any:
        """Return a result where its rows came from."""
        if "_placed" in vars(self):
            return result if backend.is_foreign(X) else arrays.to_host(result)
        if not backend.is_foreign(X) or backend.is_foreign(next(arrays.arrays_of(self._fitted))):
            return result
        return arrays.moved(result, lambda a: a if backend.is_foreign(a) else backend.beside(a, X))

    def __copy__(self) -> Any:
        """Return a shallow copy that shares the model, on a GPU too."""
        other = type(self).__new__(type(self))
        other.__dict__.update(vars(self))
        return other

    def __getstate__(self) -> Any:
        """Leave copies on a GPU behind: other processes may have none."""
        left = ("_placed", "_where", *PREPARED)
        kept = {k: v for k, v in super().__getstate__().items() if k not in left}
        kept |= {k: arrays.to_host(v) for k, v in kept.items() if k == "_stream"}
        return kept | {PICKLED_BY: saving.own_version()}

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        if tags.transformer_tags is not None:
            tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.sparse = self._accepts_sparse
        tags.input_tags.allow_nan = self._accepts_nan
        return tags

    def __setstate__(self, state: Any) -> None:
        """Warn if another version of the library wrote the pickle, as scikit-learn does."""
        written, now = state.get(PICKLED_BY, "(an older version)"), saving.own_version()
        if written != now:
            errors.warn(
                f"this pickle of {type(self).__name__} was written by dualpca {written} and is "
                f"read by {now}: it may break, or give other results. Fit again, or read it with "
                "the version that wrote it; files of save() can be read by later versions.",
                errors.PickleVersionWarning,
            )
        super().__setstate__({k: v for k, v in state.items() if k != PICKLED_BY})

    # --- files -----------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Refuse parameters that no rows could be fitted with."""
        self._check_device()
        if isinstance(vars(self).get("random_state"), Integral):
            _checks.generator(self.random_state)
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
    outward: tuple[Callable[..., Array], ...] = (),
    projected: bool = False,
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
    outward : tuple of callables
        Methods of `Units` that bring the parts of the result to the units of X. After
        `Units.filled`, entries of X that were observed are kept to the last bit.
    projected : bool
        Answer rows that are read by columns from their projections on the axes of a spiked model.
    """

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        name = method.__name__.lstrip("_")  # for messages

        @wraps(method)
        def answer(self: Estimator, X: Rows, *args: Any, **named: Any) -> Any:
            chunks = data.chunked_table(X, fitting=False) if chunked else None
            if chunks is not None:
                return chunkwise(self, chunks, args, named)
            given, units = self._given(X, name), self._units
            rows = given if units is None else units.inward(given)
            with (
                np.errstate(over="ignore", invalid="ignore"),
                if_singular(SINGULAR_MODEL),
                memory.explained(memory.IN_AN_ANSWER),
            ):
                result = method(self, rows, *args, **named)
            found, like = [], backend.vector_like(rows)
            for k, part in enumerate(result if isinstance(result, tuple) else (result,)):
                if part is not None:
                    if units is not None and outward:
                        kept = (given,) if outward[k] is Units.filled else ()
                        part = self._outward(outward[k], part, *kept)
                    _checks.check_finite_result(part, given, missing=self._accepts_nan)
                    part = self._home(backend.cast_like(part, like) if cast else part, X)
                    found.append(_checks.as_frame(part, X) if framed else part)
            return tuple(found) if len(found) > 1 else found[0]

        def chunkwise(
            self: Estimator, chunks: ChunkedTable, args: tuple[Any, ...], named: dict[str, Any]
        ) -> Any:
            """Return the results for a chunked table, computed when they are read."""
            check_is_fitted(self)
            _checks.check_columns(self, chunks.d, chunks.names, reset=False)
            given = named | dict(zip(options, args, strict=False))
            others = [value for key, value in given.items() if key not in options]
            if args[len(options) :] or any(v is not None and v is not False for v in others):
                what = "without further arguments for chunked data"
                raise ValueError(errors.expected(method.__name__, what, given or args))
            _checks.refuse_frames(self, method.__name__)
            columns = None if width is None else int(getattr(self, width))
            kind = np.dtype(dtype) if width is None else chunks.dtype
            model, wide = self._fitted, chunks.by_columns
            if projected and wide is not None and type(model) is SpikedModel and not self._units:
                of = OnProjected(self, method.__name__, chunks.d, kind)
                off = method.__name__ != "transform"  # coordinates are all it needs
                frame = (model.mean, model.scale)
                return wide.projected(frame, model.components, of, columns, kind, off=off)
            return chunks.map(OnRows(self, method.__name__, columns, kind, given), columns, kind)

        return answer

    return decorate


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


class OnProjected:
    """A method of a fitted estimator as a function of the projections of rows, (n, q + 1)."""

    def __init__(self, estimator: Estimator, method: str, d: int, dtype: np.dtype[Any]) -> None:
        self.estimator, self.__name__, self.d, self.dtype = copy(estimator), method, d, dtype

    def __call__(self, found: Host) -> Host:
        """Return the method's results."""
        if len(found) and not np.isfinite(found).all():
            row = int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
            raise errors.NonFiniteError(
                f"Input X contains NaN or infinity, first in row {row}, and is read by columns, of "
                "which complete rows are made. Give those, or the rows in memory."
            )
        rows = ProjectedRows(Projection(found[:, :-1], found[:, -1]), (len(found), self.d))
        method = unwrap(getattr(type(self.estimator), self.__name__))
        return np.asarray(method(self.estimator, rows), dtype=self.dtype)


def average_density(estimator: Estimator, X: Rows, sample_weight: Weights) -> float:
    """Return the average of `score_samples` over rows in memory or in chunks."""
    chunks = data.chunked_table(X, fitting=False)
    if chunks is None:
        return _checks.weighted_mean(estimator.score_samples(X), sample_weight)
    check_is_fitted(estimator)
    if chunks.by_columns is not None:
        found = estimator.score_samples(X)  # a Dask array, or batches
        values = np.asarray(found) if hasattr(found, "shape") else np.concatenate(list(found))
        return _checks.weighted_mean(values, sample_weight)
    _checks.check_columns(estimator, chunks.d, chunks.names, reset=False)
    density = OnRows(estimator, "score_samples")

    def sums(rows: Host, weights: Host | None = None) -> Host:
        w = np.ones(len(rows)) if weights is None else weights
        return np.array([w @ density(rows), w.sum()])

    total, count = _checks.with_weights(chunks, sample_weight).reduce(sums, np.add)
    return float(total / count)


MEMORY_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


NOT_COMPARED = ("checkpoint", "verbose", "n_jobs", "max_iter", "components_out")
"""Parameters that do not change where a fit goes, or only how far."""


def request_of(estimator: Estimator, kind: Callable[..., T], **given: Any) -> T:
    """Return the request of a fit; fields that are not given are parameters of the same name."""
    known = vars(estimator) | given
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: known[name] for name in names if name in known})


def iterative_request(estimator: Estimator, kind: Callable[..., T], **given: Any) -> T:
    """Return the request of an iterative fit, once its limits and checkpoint are checked."""
    _checks.check_numbers(estimator, counts=("max_iter",), numbers=("tol",))
    if "rng" not in given:
        given["rng"] = _checks.fixed_generator(getattr(estimator, "random_state", None))
    return request_of(estimator, kind, watch=watch_of(estimator), **given)


def watch_of(estimator: Estimator) -> CheckpointWatch | None:
    """Return the checkpoint that the parameters ask for, with the fit it belongs to.

    One with several starts is refused, and one that a choice of sizes would write to; mixtures and
    chains choose first, without it.
    """
    asked = vars(estimator).get("checkpoint")
    checkpoint = None if asked is None else Checkpoint.of(asked)
    if checkpoint is None:
        return None
    if getattr(estimator, "n_init", 1) > 1:
        remedy = "A checkpoint is of one start: give n_init=1."
        raise ValueError(errors.expected("n_init", "1 with a checkpoint", estimator.n_init, remedy))
    q = getattr(estimator, "n_components", None)
    if not hasattr(estimator, "n_mixtures") and isinstance(q, str) and q in ("bic", "cv"):
        raise ValueError(errors.expected("n_components", "a number with a checkpoint", q))
    params = estimator.get_params().items()
    compared = {k: _comparable(v) for k, v in params if k not in NOT_COMPARED}
    return CheckpointWatch(checkpoint, {"model": type(estimator).__name__, **compared})


def _comparable(value: Any) -> str:
    """Return a parameter as text that is the same in another process.

    Addresses in memory are left out; a generator has given the start already.
    """
    if isinstance(value, tuple | list):
        return str([_comparable(part) for part in value])
    if isinstance(value, np.ndarray) and value.ndim:
        kind = f"{value.dtype} {value.shape}".encode()
        return f"array {value.shape} ({crc32(np.ascontiguousarray(value).tobytes() + kind):08x})"
    if isinstance(value, np.generic | np.ndarray):
        return repr(value.item())
    return MEMORY_ADDRESS.sub("", repr(value))
