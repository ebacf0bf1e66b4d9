"""Kernel PCA of a stream: landmarks from its beginning, exact moments of all its rows on them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.metaestimators import available_if

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.estimators._base import check_weights, used_rows
from dualpca.estimators._kernel_inputs import check_points, is_precomputed, kernel_of
from dualpca.estimators._kernel_results import KernelFit
from dualpca.estimators._mapped_fits import from_mapped, with_novelty
from dualpca.estimators._placing import placed
from dualpca.kernels import Kernel
from dualpca.operators import FeatureMap, Fourier, Landmarks, Mapped, map_rows, pivoted_cholesky

PATIENCE = 4
"""Rows awaited before landmarks are chosen among them, in budgets."""

FITTED = (
    "kernel_",
    "gamma_",
    "eigenvalues_",
    "eigenvectors_",
    "explained_variance_",
    "explained_variance_ratio_",
    "n_components_",
    "n_samples_",
    "approximation_error_",
    "solver_",
    "X_fit_",
    "X_transformed_fit_",
    "dual_coef_",
    "_subspace",
    "_residual",
    "_novelty",
    "input_model_",
)


class Stream(NamedTuple):
    """What is kept of a stream: rows until there are enough of them, then moments alone."""

    kernel: Kernel
    waiting: Array | None = None  # (m, d)
    weights: Array | None = None  # (m,)
    map: FeatureMap | None = None
    mapped: Mapped | None = None
    first: tuple[Array, Array | None] | None = None  # rows and weights, to judge novelty by

    def add(self, model: Any, X: Array, weights: Array | None) -> Stream:
        """Return the stream with a chunk more."""
        xp = backend.namespace(X)
        w = backend.asarray(np.ones(X.shape[0]), X) if weights is None else weights
        if self.map is not None and self.mapped is not None:
            chunk = map_rows(self.map, X, w, center=model.center)
            return self._replace(mapped=self.mapped.merge(chunk))
        if self.waiting is not None and self.weights is not None:
            X, w = xp.concat([self.waiting, X], axis=0), xp.concat([self.weights, w], axis=0)
        grown = self._replace(waiting=X, weights=w)
        return grown.settled(model) if X.shape[0] >= PATIENCE * model.n_landmarks else grown

    def settled(self, model: Any) -> Stream:
        """Return the stream with landmarks chosen among the rows that wait."""
        X = self.waiting
        feature_map: FeatureMap
        rng = np.random.default_rng(model._seed)
        if model._solver_name == "fourier":
            feature_map = Fourier.of(self.kernel, X, model.n_landmarks, rng)
        else:
            chosen = pivoted_cholesky(X, self.kernel, model.n_landmarks, 0.0, rng).index
            feature_map = Landmarks.of(backend.take(X, chosen), self.kernel)
        mapped = map_rows(feature_map, X, self.weights, center=model.center)
        first = (X, self.weights)  # landmarks lie on the span, and are no sample of the rows
        return Stream(self.kernel, map=feature_map, mapped=mapped, first=first)

    def fit(self, model: Any) -> KernelFit:
        """Return the model of all rows so far."""
        ready = self if self.map is not None else self.settled(model)
        if ready.map is None or ready.mapped is None or ready.first is None:
            raise ValueError(expected("a stream", "of at least one chunk", self))
        found = from_mapped(model, ready.map, ready.mapped)._replace(solver="stream")
        return with_novelty(found, *ready.first)


class KernelStream:
    """`partial_fit`, for kernel PCA."""

    kernel: Any
    n_samples_seen_: int

    @available_if(lambda self: not is_precomputed(self.kernel))  # type: ignore[untyped-decorator]
    @placed
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Add rows to the model, in memory of a fixed size.

        The first 4·n_landmarks rows are kept; landmarks are chosen among them by pivoted
        Cholesky, and from then on every chunk is projected on their features, whose moments are
        added up exactly. `approximation_error_.trace` says how much of the variance of the
        whole stream lies outside of the landmarks' span. Parameters such as 'median' are found
        from the first chunk. Fitted attributes are computed when they are next read.

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
        stream = self.__dict__.get("_stream")
        points = check_points(self, X, reset=stream is None, min_rows=1)
        if is_precomputed(self.kernel) or points.ndim == 1 or backend.is_sparse(points):
            what = "dense rows: a stream keeps some of them as landmarks"
            raise ValueError(expected("X", what, type(X).__name__))
        w = check_weights(sample_weight, points)
        self._forget()
        if stream is None:
            stream = Stream(kernel_of(self, points))
            self.n_samples_seen_ = 0
        self._stream = stream.add(self, points, w)
        self._like = points[:0, :]
        self.n_samples_seen_ += used_rows(points, w)
        return self

    def __getattr__(self, name: str) -> Any:
        """Compute the fitted attributes of a stream when one of them is first read."""
        state = object.__getattribute__(self, "__dict__")
        if name in FITTED and "_stream" in state and "kernel_" not in state:
            if state["n_samples_seen_"] < 2:
                raise ValueError("partial_fit has seen 1 row; at least 2 are required.")
            self._publish(state["_stream"].fit(self), state["_stream"].kernel, state["_like"])
            return getattr(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _forget(self) -> None:
        """Drop what an earlier fit left behind."""
        self._forget_preimages()
        for name in (*FITTED, "_stream"):
            self.__dict__.pop(name, None)
