"""Exact streaming: moments that add, attributes that are computed when they are next read."""

from __future__ import annotations

import sys
from typing import Any

from dualpca.arrays import Array
from dualpca.data import Moments
from dualpca.errors import StreamWarning, warn
from dualpca.estimators._base import check_rows, check_weights, used_rows
from dualpca.estimators._components import check_request
from dualpca.operators import Scatter


class LinearStream:
    """`partial_fit`, for linear models."""

    n_components: Any
    n_samples_seen_: int | float
    _fitted_names: tuple[str, ...] = ()

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Add rows to the model: after any complete chunks it is the one `fit` would give.

        The moments of the rows, (d, d), are kept; fitted attributes are computed when they are
        next read, so a stream costs one eigendecomposition, not one a chunk. A model that comes
        from `fit` keeps no moments: it starts anew, with a warning.

        Parameters
        ----------
        X : array of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional

        Returns
        -------
        self
        """
        self._check_parameters()
        stream = vars(self).get("_stream")
        if stream is None and "components_" in vars(self):
            warn(
                "this model comes from fit, which keeps no moments: partial_fit starts anew and "
                "forgets the rows that fit saw. Give all rows to partial_fit to keep them.",
                StreamWarning,
            )
        X = check_rows(self, X, reset=stream is None, accept_sparse=self._accepts_sparse)
        check_request(self.n_components, sys.maxsize, int(X.shape[1]), "auto")
        w = check_weights(sample_weight, X)
        state, count = self._absorb(None if stream is None else stream[0], X, w)
        self._forget()
        count += 0 if stream is None else stream[1]
        self._stream = (state, count, X[:0, :])
        self.n_samples_seen_ = state.n if w is not None else round(state.n)
        return self

    def _absorb(self, state: Any, X: Array, weights: Array | None) -> tuple[Any, int]:
        """Return the moments of a stream after one more chunk, and the rows it counts."""
        chunk = Moments.of(X, weights)
        return chunk if state is None else state.merge(chunk), used_rows(X, weights)

    def _publish_stream(self, state: Any, count: int, like: Array) -> None:
        """Set the fitted attributes of a stream."""
        self._publish(Scatter(state, standardize=self._standardize), count, like)

    def __getattr__(self, name: str) -> Any:
        """Compute the fitted attributes of a stream when one of them is first read."""
        state = object.__getattribute__(self, "__dict__")
        if name in type(self)._fitted_names and "_stream" in state and "mean_" not in state:
            stream, count, like = state["_stream"]
            if count < 2:
                raise ValueError(f"partial_fit has seen {count} row; at least 2 are required.")
            self._publish_stream(stream, count, like)
            return getattr(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _forget(self) -> None:
        """Drop what an earlier fit left behind."""
        for name in (*type(self)._fitted_names, "_stream", "n_samples_seen_"):
            self.__dict__.pop(name, None)
