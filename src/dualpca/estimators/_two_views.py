"""What a fitted model of two views can do: latent, other view, missing entries, densities."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.data import observed_part
from dualpca.estimators._base import (
    Saved,
    as_frame,
    check_finite_result,
    check_number,
    check_weights,
    generator,
)
from dualpca.estimators._view_validation import new_views
from dualpca.models import canonical as views
from dualpca.models.canonical import Canonical


class TwoViews(Saved):
    """Methods of a model in which X and y share a latent.

    Subclasses provide `_model`, in float64, and `_vector`, whether y was fitted as a vector.
    """

    x_weights_: Array  # (d_x, q)
    y_weights_: Array  # (d_y, q)
    _model: Canonical
    _vector: bool

    def posterior(self, X: Any = None, y: Any = None) -> tuple[Array, Array]:
        """Return mean (n, q) and covariance (n, q, q) of the shared latent.

        Parameters
        ----------
        X : array of shape (n, d_x), optional
        y : array of shape (n, d_y), optional
            One view or both; NaN where nothing was observed.

        Returns
        -------
        mean : array of shape (n, q)
            √ρ u given X alone, √ρ(u + v)/(1 + ρ) given both.
        covariance : array of shape (n, q, q)
            The same for all complete rows (then a view of one matrix).
        """
        X, Y = new_views(self, X, y, "posterior")
        like = Y if X is None else X
        with np.errstate(over="ignore", invalid="ignore"):
            mean, covariance = views.latent(self._model, X, Y)
        check_finite_result(mean, observed_part(like))
        return backend.cast_like(mean, like), backend.cast_like(covariance, like)

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Return Y expected given X, a vector if Y was one.

        Parameters
        ----------
        X : array of shape (n, d_x)
        return_std, return_cov : bool
            As in `predict_view`.

        Returns
        -------
        array of shape (n, d_y) or (n,), or a pair
        """
        result = self._predict(X, None, return_std, return_cov, "predict")
        if not self._vector:
            return result
        if return_std:
            return result[0][:, 0], result[1][:, 0]
        return (result[0][:, 0], result[1]) if return_cov else result[:, 0]

    def predict_view(
        self, X: Any = None, y: Any = None, *, return_std: bool = False, return_cov: bool = False
    ) -> Any:
        """Return the view that is not given, expected given the one that is.

        Parameters
        ----------
        X : array of shape (n, d_x), optional
        y : array of shape (n, d_y), optional
            Exactly one of them; NaN where nothing was observed.
        return_std : bool
            Also return the standard deviation of every entry, as of a new measurement.
        return_cov : bool
            Also return the covariance of every row's entries, (n, d, d), instead.

        Returns
        -------
        array of shape (n, d), or a pair
        """
        return self._predict(X, y, return_std, return_cov, "predict_view")

    def _predict(self, X: Any, y: Any, return_std: bool, return_cov: bool, method: str) -> Any:
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be True: ask for one of them.")
        X, Y = new_views(self, X, y, method, exactly_one=True)
        like = Y if X is None else X
        kind = "variance" if return_std else "covariance" if return_cov else None
        with np.errstate(over="ignore", invalid="ignore"):
            mean, spread = views.prediction(self._model, X, Y, kind)
        mean = backend.cast_like(check_finite_result(mean, observed_part(like)), like)
        if spread is None:
            return mean
        spread = backend.namespace(spread).sqrt(spread) if return_std else spread
        return mean, backend.cast_like(spread, like)

    def impute(self, X: Any, y: Any, return_std: bool = False) -> Any:
        """Fill every NaN of both views with its expectation given what the row observed.

        Parameters
        ----------
        X, y : arrays or frames of shape (n, d_x) and (n, d_y)
            Never modified.
        return_std : bool
            Also return the standard deviations, 0 where an entry was observed.

        Returns
        -------
        X, Y : arrays or frames
            Observed entries are kept to the last bit.
        X_std, Y_std : arrays or frames
            If `return_std`.
        """
        rows, other = new_views(self, X, y, "impute")
        if rows is None or other is None:
            raise ValueError(
                "CCA.impute needs both views, got one. Give NaN for what was not observed, or "
                "use predict_view."
            )
        dx, tables = int(rows.shape[1]), []
        for table in views.fill(self._model, rows, other)[: 2 if return_std else 1]:
            tables.append(as_frame(backend.cast_like(table[:, :dx], rows), X))
            tables.append(as_frame(backend.cast_like(table[:, dx:], other), y))
        return tuple(tables)

    def score_samples(self, X: Any = None, y: Any = None) -> Array:
        """Return the log-density of what each row observed of the views given.

        Parameters
        ----------
        X : array of shape (n, d_x), optional
        y : array of shape (n, d_y), optional

        Returns
        -------
        array of shape (n,)
            ln p(x, y), or ln p(x), or ln p(y); 0 for a row with nothing observed.
        """
        X, Y = new_views(self, X, y, "score_samples")
        with np.errstate(over="ignore", invalid="ignore"):
            density = views.log_density(self._model, X, Y)
        return check_finite_result(density, observed_part(Y if X is None else X))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the average log-density of the rows (scikit-learn's `CCA` returns R²).

        Parameters
        ----------
        X : array of shape (n, d_x)
        y : array of shape (n, d_y), optional
        sample_weight : array of shape (n,), optional

        Returns
        -------
        float
        """
        density = self.score_samples(X, y)
        w = check_weights(sample_weight, density[:, None])
        xp = backend.namespace(density)
        return float(xp.mean(density) if w is None else w @ density / xp.sum(w))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Array, Array]:
        """Draw new rows of both views, (n_samples, d_x) and (n_samples, d_y).

        Parameters
        ----------
        n_samples : int
        random_state : None, int, Generator or RandomState

        Returns
        -------
        X, Y : arrays
        """
        check_is_fitted(self)
        check_number("n_samples", n_samples, 1, integer=True)
        X, Y = views.draw(self._model, n_samples, generator(random_state))
        return backend.cast_like(X, self.x_weights_), backend.cast_like(Y, self.y_weights_)

    def get_covariance(self) -> Array:
        """Return the joint covariance of both views, (d_x + d_y, d_x + d_y)."""
        check_is_fitted(self)
        return backend.cast_like(self._model.covariance(), self.x_weights_)
