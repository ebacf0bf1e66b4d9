"""What a finished search says: its objective on other rows, and which parameters mattered."""

from __future__ import annotations

import os
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils.validation import assert_all_finite, check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.estimators._base import check_rows, save
from dualpca.estimators._search_setup import final_of, folds_of
from dualpca.estimators._search_trials import OBJECTIVES, Task, corrupted, rebuilt
from dualpca.search import Candidate, Record, importances, q2

FOLDS = 5
"""Of other rows, where `cv` lists rows of the training part."""


class SearchResults:
    """Scores, importances and the file of the best model."""

    objective: str
    cv: Any
    trials_: list[Record]
    best_estimator_: Any
    best_params_: dict[str, Any]
    final_estimator_: Any
    noise_: float
    _mean: Array
    _seed: int
    _spread: Any

    def _rows(self, X: Any) -> Array:
        check_is_fitted(self)
        return self._host(X, reset=False)

    def _host(self, X: Any, *, reset: bool) -> Array:
        """Return finite rows as a NumPy array."""
        if backend.is_foreign(X):
            remedy = "Give the rows as NumPy's; best_estimator_ can be fitted to other arrays."
            raise ValueError(expected("X", "a NumPy array", type(X), remedy))
        return check_rows(self, X, reset=reset, min_rows=2 if reset else 1, finite=True)

    def _labels(self, y: Any, n: int) -> Any:
        """Return y, checked where it is needed."""
        if self.objective != "score":
            return None
        if y is None:
            name = type(self).__name__
            raise ValueError(
                f"{name}(objective='score') requires y to be passed, but the target y is None."
            )
        labels = np.asarray(y)
        labels = labels if labels.ndim == 2 and labels.shape[1] > 1 else column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y")
        if len(labels) != n:
            raise ValueError(expected("y", f"of length {n}, one a row", len(labels)))
        return labels

    def score(self, X: Any, y: Any = None) -> float:
        """Return the objective on other rows.

        Parameters
        ----------
        X : array of shape (m, d)
        y : array of shape (m,), optional
            Needed by 'score'.

        Returns
        -------
        float
            'reconstruction': the share of the variance about the training mean that comes back,
            from rows with `noise_`. 'score': of the final estimator on the latents. 'stability' and
            'likelihood': what the best kernel reaches on these rows, fitted anew.
        """
        rows = self._rows(X)
        if self.objective == "reconstruction":
            noisy = corrupted(rows, self.noise_ * self._spread, self._seed)
            return q2(rows, rebuilt(self.best_estimator_, noisy), self._mean)
        if self.objective == "score":
            labels = self._labels(y, len(rows))
            _, scorer = final_of(self, labels)
            latents = self.best_estimator_.transform(rows)
            return float(scorer(self.final_estimator_, latents, labels))
        return self._anew(rows)

    def _anew(self, rows: Array) -> float:
        """Return the objective of the best kernel, fitted to parts of other rows."""
        known = isinstance(self.cv, Integral) or hasattr(self.cv, "split")
        folds = folds_of(self, rows, None, self._seed, self.cv if known else FOLDS)
        task = Task(self.best_estimator_, rows, None, folds, self.objective, seed=self._seed)
        of = partial(OBJECTIVES[self.objective], task, Candidate(**self.best_params_))
        return float(np.mean([of(fold) for fold in range(len(folds))]))

    def save(self, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None) -> None:
        """Write `best_estimator_` to a file: `dualpca.load` gives the model that was found.

        The search itself is not in it; its trials are kept by `storage`.
        """
        check_is_fitted(self)
        save(self.best_estimator_, path, metadata=metadata)

    def importances(self) -> dict[str, float]:
        """Return the share of the scores' variance that each parameter explains alone.

        See `dualpca.search.importances`.
        """
        check_is_fitted(self)
        return importances(self.trials_)
