"""Learning from chunks: what the classes with `partial_fit` hold as `_streaming`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeAlias, TypeVar

from sklearn.exceptions import NotFittedError

from dualpca.arrays import Array, showing
from dualpca.data import InMemoryTable, Moments, Units, used_rows
from dualpca.errors import StreamWarning, expected, warn
from dualpca.estimators._checks import check_weights, explained
from dualpca.estimators._types import Rows, Weights
from dualpca.gaussian import check_request
from dualpca.models.spiked import check_chunks_solver
from dualpca.models.streaming import Stream

if TYPE_CHECKING:
    from dualpca.estimators._shell import Estimator

State = TypeVar("State")
Request = TypeVar("Request")


def check_chunk(estimator: Estimator, X: Rows, reset: bool) -> Array:
    """Return the rows of a chunk as the estimator accepts rows."""
    return estimator._checked(X, reset=reset)


@dataclass(frozen=True)
class Streaming(Generic[State, Request]):
    """How an estimator learns from chunks.

    The estimator keeps the state of the stream as `_stream`, and the rows it has seen as
    `n_samples_seen_`. The model is solved for when it is first read.

    Parameters
    ----------
    grow : callable
        State (None at first), rows seen until then, chunk and request to the state after the chunk
        and the rows seen.
    model : callable
        State and request to the model.
    check : callable
        Estimator, chunk as it came, and whether it is the first, to its rows.
    """

    grow: Callable[[State | None, float, InMemoryTable, Request], tuple[State, float]]
    model: Callable[[State, Request], Any]
    check: Callable[[Estimator, Rows, bool], Array] = check_chunk

    def add(self, estimator: Estimator, X: Rows, sample_weight: Weights) -> None:
        """Add rows to the stream of an estimator."""
        request, stream = estimator._request(), vars(estimator).get("_stream")
        units, seen = _units_of(estimator, stream), vars(estimator).get("n_samples_seen_", 0)
        if stream is None and "_model" in vars(estimator):
            warn(
                "this model comes from fit, which keeps no moments: partial_fit starts over and "
                "forgets the rows that fit saw. Give all rows to partial_fit to keep them.",
                StreamWarning,
            )
        with showing(estimator.verbose), explained(estimator):
            if stream is None:
                estimator._choose_device(X)
            rows = self.check(estimator, X, stream is None)
            if units is not None:
                units = units.seeing(rows, check_weights(sample_weight, rows))
                rows = units.inward(rows)
            table = estimator._placed_table(rows, check_weights(sample_weight, rows))
            stream, seen = self.grow(stream, seen, table, request)
        estimator._forget()
        estimator._set_units(units)
        estimator._stream, estimator.n_samples_seen_ = stream, seen

    def solve(self, estimator: Estimator) -> None:
        """Give an estimator the model of its stream, beside the stream."""
        kept = {name: vars(estimator)[name] for name in ("_stream", "n_samples_seen_")}
        with showing(estimator.verbose), explained(estimator):
            model = self.model(kept["_stream"], estimator._request())
            try:
                estimator._keep(model)  # which may warn
            finally:
                estimator.__dict__.update(kept)


def _units_of(estimator: Estimator, stream: object) -> Units | None:
    """Return the units of all chunks: those of an earlier fit, if columns are standardised."""
    if estimator._units_in_model:
        return None
    units = estimator._units
    if not estimator._standardizes():
        if stream is not None and units is not None:
            raise ValueError(expected("standardize", "True, as for the chunks before", False))
        return None
    if units is None:
        raise ValueError(
            "partial_fit with standardize=True needs the mean and the scale of every column "
            "before the first chunk: call fit on some rows first, whose units are then kept, "
            "or scale the rows yourself and give standardize=False."
        )
    return units.reopened() if stream is None else units


# --- Linear models: moments that add -------------------------------------------------------------

MomentStream: TypeAlias = tuple[Moments | Stream, int, Annotated[Array, "0 d"]]
"""State, rows counted, and no rows, of the library and dtype of the chunks."""


def add_moments(state: Moments | None, table: InMemoryTable, request: Any) -> tuple[Moments, int]:
    """Return the moments of a stream after one more chunk, and the rows it counts."""
    chunk = Moments.of(table.rows, table.weights)
    merged = chunk if state is None else state.merge(chunk)
    return merged, used_rows(table.rows, table.weights)


def by_moments(
    fit: Callable[..., Any], absorb: Callable[..., tuple[Any, int]] = add_moments
) -> Streaming[MomentStream, Any]:
    """Return how linear models learn from chunks.

    Parameters
    ----------
    fit : callable
        State, rows counted, no rows of the chunks' kind, and request to the model.
    absorb : callable
        State (None at first), chunk and request to the next state, and the rows it counts.
    """

    def grow(
        stream: MomentStream | None, seen: float, table: InMemoryTable, request: Any
    ) -> tuple[MomentStream, float]:
        check_request(request.n_components, sys.maxsize, table.d, "auto")
        check_chunks_solver(getattr(request, "solver_given", request.solver))
        old, counted = (None, 0) if stream is None else stream[:2]
        state, count = absorb(old, table, request)
        seen = state.n if table.weights is not None else round(state.n)
        return (state, counted + count, table.like), seen

    def model(stream: MomentStream, request: Any) -> Any:
        state, count, like = stream
        if count < 2:
            raise NotFittedError(f"partial_fit has seen {count} row; at least 2 are required.")
        return fit(state, count, like, request)

    return Streaming(grow, model)


def partial_fit(
    self: Estimator, X: Rows, y: object = None, sample_weight: Weights = None
) -> Estimator:
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
    if self._streaming is not None:
        self._streaming.add(self, X, sample_weight)
    return self
