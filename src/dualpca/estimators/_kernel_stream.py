"""Kernel PCA of a stream: landmarks from its beginning, exact moments of all its rows on them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.estimators._kernel_fits import KernelFit, from_mapped, with_novelty
from dualpca.features import FeatureMap, Fourier, Landmarks, Mapped, map_rows
from dualpca.kernels import Kernel
from dualpca.landmarks import pivoted_cholesky

PATIENCE = 4
"""Rows awaited before landmarks are chosen among them, in budgets."""


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
        xp = _array.namespace(X)
        w = _array.asarray(np.ones(X.shape[0]), X) if weights is None else weights
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
            feature_map = Landmarks.of(_array.take(X, chosen), self.kernel)
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
