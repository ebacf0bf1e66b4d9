"""Probabilistic canonical correlation analysis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    MultiOutputMixin,
    TransformerMixin,
)

from dualpca.arrays import Array, backend
from dualpca.data import ChunkedTable, beside, condensed, observed_part
from dualpca.errors import CanonicalWarning, expected, warn
from dualpca.estimators._base import (
    by_parts,
    check_finite_result,
    check_number,
    check_rows_count,
    check_weights,
    open_parts,
    parts_of,
    publish_record,
    refuse_weights,
    surveyed,
    used_rows,
)
from dualpca.estimators._components import is_count
from dualpca.estimators._placing import OnDevice
from dualpca.estimators._two_views import TwoViews
from dualpca.estimators._view_validation import new_views, second_part, training_views
from dualpca.models import canonical as views
from dualpca.models.canonical import (
    Canonical,
    Closed,
    bartlett,
    fit_canonical,
    fit_canonical_incomplete,
    has_joint_density,
)
from dualpca.models.driver import Record
from dualpca.operators import WIDEST


class CCA(
    OnDevice,
    TwoViews,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    MultiOutputMixin,
    BaseEstimator,
):
    """Canonical correlation as a model: x = W_x z + μ_x + ε_x, y = W_y z + μ_y + ε_y.

    Two views X and Y of the same rows share a latent z ~ N(0, I_q); the noise of each view has
    any covariance. NaN is welcome in either view, in `fit` and afterwards, whole views included:
    rows count with what they observed (missing at random).

    Parameters
    ----------
    n_components : int
        q, at most the number of features (rank) of the smaller view.
    regularization : float
        Share of its own variance that is added to every feature's variance (of 1, where a feature
        is constant). 0 is maximum likelihood; more is needed for a density where rows are few.
    tol : float
        With NaN: estimated relative distance to the maximum at which EM stops.
    max_iter : int
        With NaN: largest number of EM steps.
    verbose : bool
        Say on standard error where and how the fit works.
    device : None, 'auto', 'cpu' or 'cuda'
        Where to work: where the rows are; on a card if they are worth it; there. Host arrays go
        there and results come home, so the fitted model is one of the host.

    Attributes
    ----------
    correlations_ : array of shape (q,)
        ρ, largest first.
    x_weights_, y_weights_ : arrays of shape (d_x, q) and (d_y, q)
        Canonical directions U, in the units of the data: UᵀΣU = I, with divisor n.
    x_loadings_, y_loadings_ : arrays of shape (d_x, q) and (d_y, q)
        W = ΣUP^{1/2}, P = diag ρ.
    x_mean_, y_mean_ : arrays of shape (d_x,) and (d_y,)
    x_noise_covariance_, y_noise_covariance_ : arrays of shape (d_x, d_x) and (d_y, d_y)
        Ψ = Σ − WWᵀ.
    p_values_ : array of shape (q,) or None
        Bartlett's test that a correlation and all smaller ones are 0. None with NaN, with
        regularization, or with too few rows for it.
    loglikelihood_ : float
        Of all training rows together; infinity where a correlation is 1 or a view is singular.
    loglikelihoods_ : list of float
        At every step kept by EM (less the penalty, with regularization); one number for complete
        rows.
    n_components_, n_iter_, n_samples_, n_features_in_ : int
    converged_ : bool

    Notes
    -----
    Bach & Jordan (2005). Complete rows: closed form from orthogonal transformations,
    O(n(d_x + d_y)²). With NaN: EM whose M step is that closed form, O((d_x + d_y)³) a pattern.
    Memory O((n + d_x + d_y)(d_x + d_y)); nothing n×n is formed.

    Unlike scikit-learn's `CCA`: `transform` gives variates of variance 1, so weights differ by a
    factor a column (correlations do not); `predict` is the conditional mean of the model; `score`
    is the average log-density, not R²; nothing is iterated on complete rows.

    Examples
    --------
    >>> from sklearn.datasets import load_linnerud
    >>> from dualpca import CCA
    >>> X, Y = load_linnerud(return_X_y=True)
    >>> model = CCA(n_components=2).fit(X, Y)
    >>> model.correlations_.round(4), model.p_values_.round(3)
    (array([0.7956, 0.2006]), array([0.062, 0.949]))
    >>> mean, std = model.predict(X[:1], return_std=True)
    >>> mean.shape, std.shape
    ((1, 3), (1, 3))
    """

    correlations_: Array  # (q,)

    _second_rows = ("y",)

    def __init__(
        self,
        n_components: int = 2,
        *,
        regularization: float = 0.0,
        tol: float = 1e-6,
        max_iter: int = 1000,
        verbose: bool = False,
        device: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.regularization = regularization
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose
        self.device = device

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> CCA:
        """Fit the model by maximum likelihood.

        Parameters
        ----------
        X : array or frame of shape (n, d_x), or a table in parts
        y : array or frame of shape (n, d_y) or (n,), or a table in parts
            The second view. NaN (null) in either where nothing was observed. Never modified.
        sample_weight : array of shape (n,), optional

        Returns
        -------
        self
        """
        self._check_parameters()
        parts = parts_of(X)
        if parts is not None:
            return self._fit_parts(parts, y, sample_weight)
        X, Y, self._vector = training_views(self, X, y)
        q = self._count(int(X.shape[1]), int(Y.shape[1]))
        w = check_weights(sample_weight, X)
        self.n_samples_ = used_rows(X, w)
        fit = self._fit_incomplete if views.incomplete(X, Y) else self._fit_closed
        record = fit(X, Y, q, w)
        self._publish(X, Y)
        publish_record(self, record)
        if self.regularization > 0:
            self.loglikelihood_ = self._loglikelihood(X, Y, w)
        return self

    def _fit_parts(self, parts: ChunkedTable, y: Any, sample_weight: Any) -> CCA:
        """Fit complete rows of two tables, the first in parts, from their moments."""
        refuse_weights(sample_weight)
        second, self._vector = second_part(y)
        open_parts(self, parts)
        both = beside(parts, second)
        q = self._count(parts.d, both.d - parts.d)
        X, Y, w = self._gathered(both, parts.d)
        self.n_samples_ = round(float(w.sum()))
        check_rows_count(self, self.n_samples_)
        record = self._fit_closed(X, Y, q, w)
        self._publish(both.like[:, : parts.d], both.like[:, parts.d :])
        publish_record(self, record)
        return self

    def _gathered(self, both: ChunkedTable, dx: int) -> tuple[Array, Array, Array]:
        """Return few rows of both views, and their weights, with the moments of the table."""
        if both.d > WIDEST:
            what = f"at most {WIDEST} features in both views for data in parts"
            raise ValueError(expected("X and y", what, both.d))
        found = surveyed(both, nan=True)
        if found.moments is None:
            remedy = "Fill it with PPCA or Imputer first, or give rows in memory."
            raise ValueError(expected("X and y", "complete for data in parts", "NaN", remedy))
        rows, w = condensed(found.moments)
        return rows[:, :dx], rows[:, dx:], w

    def _check_parameters(self) -> None:
        check_number("regularization", self.regularization, 0)
        check_number("tol", self.tol, 0)
        check_number("max_iter", self.max_iter, 1, integer=True)

    def _count(self, dx: int, dy: int) -> int:
        most = min(dx, dy)
        if not is_count(self.n_components) or not 1 <= self.n_components <= most:
            what = f"an integer from 1 to {most}, the number of features of the smaller view"
            raise ValueError(expected("n_components", what, self.n_components))
        return int(self.n_components)

    def _fit_closed(self, X: Array, Y: Array, q: int, w: Array | None) -> Record:
        found = fit_canonical(X, Y, q, w, float(self.regularization))
        self._model, self.p_values_ = found.model, self._p_values(found)
        if self.regularization == 0:
            _warn_of_few_rows(found.model, self.n_samples_)
        return Record([self._loglikelihood(X, Y, w)], n_iter=1, converged=True)

    def _fit_incomplete(self, X: Array, Y: Array, q: int, w: Array | None) -> Record:
        xp = backend.namespace(X)
        both = xp.concat([backend.working(X), backend.working(Y)], axis=1)
        ridge, limits = float(self.regularization), (self.tol, self.max_iter)
        self._model, record = fit_canonical_incomplete(both, int(X.shape[1]), q, w, ridge, *limits)
        self.p_values_ = None
        return record

    def _p_values(self, found: Closed) -> Any:
        ranks = int(found.model.x.F.shape[1]), int(found.model.y.F.shape[1])
        if self.regularization > 0 or found.n <= (sum(ranks) + 3) / 2:
            return None
        p = bartlett(found.correlations, found.n, ranks)[: found.model.rho.shape[0]]
        return backend.asarray(p, found.correlations)

    def _loglikelihood(self, X: Array, Y: Array, w: Array | None) -> float:
        if not has_joint_density(self._model):
            return math.inf
        density = views.log_density(self._model, X, Y)
        return float(backend.namespace(density).sum(density if w is None else w * density))

    def _publish(self, X: Array, Y: Array) -> None:
        """Set the fitted attributes, each view's in its own dtype."""
        model = self._model
        self.correlations_ = backend.cast_like(model.rho, X)
        self.n_components_ = int(model.rho.shape[0])
        for name, view, like in (("x", model.x, X), ("y", model.y, Y)):
            parts = {
                "mean": view.mu,
                "weights": view.directions,
                "loadings": model.loadings(view),
                "noise_covariance": model.noise(view),
            }
            for part, value in parts.items():
                setattr(self, f"{name}_{part}_", backend.cast_like(value, like))

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    @by_parts("n_components_")
    def transform(self, X: Any, y: Any = None) -> Any:
        """Return the canonical variates u = U_xᵀ(x − μ_x), and v of y where it is given.

        Parameters
        ----------
        X : array of shape (n, d_x)
        y : array of shape (n, d_y), optional

        Returns
        -------
        array of shape (n, q), or a pair of them
            Of variance 1 on the training rows. Where a view has NaN, the expectation given what
            the row observed of that view.
        """
        rows, other = new_views(self, X, y, "transform")
        u = self._variates("x", rows)
        return u if other is None else (u, self._variates("y", other))

    def _variates(self, name: str, rows: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            u = views.variates(getattr(self._model, name), rows)
        return backend.cast_like(check_finite_result(u, observed_part(rows)), rows)

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit, then return the canonical variates of both views.

        Parameters
        ----------
        X : array of shape (n, d_x)
        y : array of shape (n, d_y)
            The second view.
        sample_weight : array of shape (n,), optional

        Returns
        -------
        pair of arrays of shape (n, q)
        """
        return self.fit(X, y, sample_weight).transform(X, y)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what the model takes and gives."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.array_api_support = True
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags


def _warn_of_few_rows(model: Canonical, n: int) -> None:
    """Warn where correlations are 1 by counting, or a view has no density."""
    (dx, rx), (dy, ry) = model.x.F.shape, model.y.F.shape
    if rx + ry >= n:
        reason = f"X and Y vary in {rx} and {ry} directions and there are {n} rows, so some "
        reason += "canonical correlations are 1 whatever the data"
    elif rx < dx or ry < dy:
        reason = f"X varies in {rx} of {dx} directions and Y in {ry} of {dy}: some features are "
        reason += "constant or follow from others, and the model has no density"
    else:
        return
    warn(
        f"{reason}. Give regularization > 0, use more rows, or drop features.",
        CanonicalWarning,
    )
