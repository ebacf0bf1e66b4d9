"""Probabilistic canonical correlation analysis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, MultiOutputMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from dualpca import data
from dualpca.arrays import Array, backend, sent
from dualpca.data import InMemoryTable, Table, Units
from dualpca.errors import expected
from dualpca.estimators import _checks
from dualpca.estimators._attributes import attribute
from dualpca.estimators._shell import Estimator, iterative_request, on_rows, parametrized
from dualpca.estimators._types import Column, Rows, Seed, Weights
from dualpca.models.canonical import (
    Canonical,
    CanonicalDraws,
    CanonicalModel,
    CanonicalRequest,
    fit_canonical,
)

if TYPE_CHECKING:
    from dualpca.gaussian.calibration import Calibration


@parametrized
class CCA(MultiOutputMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Probabilistic canonical correlation analysis of two tables with the same rows.

    The model is x = W_x z + μ_x + ε_x and y = W_y z + μ_y + ε_y.

    Two views X and Y of the same rows share a latent z ~ N(0, I_q); the noise of each view has
    any covariance. NaN is accepted in either view, in `fit` and afterwards, also for a view that
    is wholly missing in a row: rows count with what they observed (missing at random).

    Parameters
    ----------
    n_components : int or None, default=None
        q, at most the number of features (rank) of the smaller view. None is 2, or 1 where the
        smaller view has one direction only, such as a single column.
    regularization : float, default=0.0
        Share of its own variance that is added to every feature's variance (of 1, where a feature
        is constant). 0 is maximum likelihood; more is needed for a density where rows are few.
    tol : float, default=1e-06
        With NaN: estimated relative distance to the maximum at which EM stops.
    max_iter : int, default=1000
        With NaN: largest number of EM steps.
    standardize : bool, default=False
        Give `x_weights_` and `y_weights_` for columns divided by their standard deviation (over
        observed entries, divisor n; a constant one by 1), so that they can be compared from column
        to column, as scikit-learn's CCA(scale=True) does. Nothing else depends on units: with or
        without, correlations and variates are the same, and all else is in the units of the data.
    verbose : bool, default=False
        Print to standard error where and how the fit runs.
    device : None, 'auto', 'cpu' or 'cuda', default=None
        Where to fit. None: where the rows are; 'auto': on a GPU if it is worth it. Host arrays are
        moved there and results are returned to the host, and so is the fitted model.

    Attributes
    ----------
    correlations_ : array of shape (q,)
        ρ, largest first.
    x_weights_, y_weights_ : arrays of shape (d_x, q) and (d_y, q)
        Canonical directions U, in the units of the data (of standardised columns with
        `standardize`): UᵀΣU = I, with divisor n.
    x_scale_, y_scale_ : arrays of shape (d_x,) and (d_y,), or None
        Standard deviations of the columns; None without `standardize`.
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
    n_parameters_ : int
        Free parameters: means and covariances of both views, q(d_x + d_y − q) between them.
    n_components_, n_iter_, n_samples_, n_features_in_ : int
    converged_ : bool

    Notes
    -----
    Bach & Jordan (2005). Complete rows: closed form from orthogonal transformations,
    O(n(d_x + d_y)²). With NaN: EM whose M step is that closed form, O((d_x + d_y)³) per pattern.
    Memory O((n + d_x + d_y)(d_x + d_y)); nothing n×n is formed.

    Unlike scikit-learn's `CCA`: `transform` gives variates of variance 1, so weights differ by a
    factor per column (correlations do not); `predict` is the conditional mean of the model; `score`
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

    _model: CanonicalModel = field(init=False)
    _accepts_nan = True
    _units_in_model = True  # which does not depend on those of X

    correlations_ = attribute("correlations")
    x_mean_ = attribute("x_mean")
    y_mean_ = attribute("y_mean")
    x_weights_ = attribute("x_weights")
    y_weights_ = attribute("y_weights")
    x_loadings_ = attribute("x_loadings")
    y_loadings_ = attribute("y_loadings")
    x_noise_covariance_ = attribute("x_noise_covariance")
    y_noise_covariance_ = attribute("y_noise_covariance")
    loglikelihood_ = attribute("loglikelihood")
    loglikelihoods_ = attribute("history.loglikelihoods")
    n_iter_ = attribute("history.n_iter")
    converged_ = attribute("history.converged")
    n_components_ = attribute("n_components")
    n_parameters_ = attribute("n_parameters")
    n_samples_ = attribute("n_rows")
    x_scale_ = attribute("x_scale", optional=True)
    y_scale_ = attribute("y_scale", optional=True)
    p_values_ = attribute("p_values", optional=True)
    _vector = attribute("vector")

    n_components: int | None = None
    _: KW_ONLY
    regularization: float = 0.0
    tol: float = 1e-6
    max_iter: int = 1000
    standardize: bool = False
    verbose: bool = False
    device: str | None = None

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _request(self) -> CanonicalRequest:
        """Check the parameters and return them for the fit."""
        _checks.check_number("regularization", self.regularization, 0)
        return iterative_request(self, CanonicalRequest, ridge=float(self.regularization))

    def fit(self, X: Rows, y: Column | None = None, sample_weight: Weights = None) -> CCA:
        """Fit the model by maximum likelihood.

        Parameters
        ----------
        X : array or frame of shape (n, d_x), or a chunked table
        y : array or frame of shape (n, d_y) or (n,), or a chunked table, default=None
            The second view. NaN (null) in either where nothing was observed. Never modified.
        sample_weight : array of shape (n,), default=None

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_linnerud
        >>> from dualpca import CCA
        >>> X, Y = load_linnerud(return_X_y=True)
        >>> CCA(1).fit(X, Y).correlations_.round(2)
        array([0.8])
        """
        request = self._request()
        with self._training(X, sample_weight) as table:
            rows = table.rows if isinstance(table, InMemoryTable) else None
            chunks = None if rows is not None or y is None else data.chunked_table(y)
            Y, vector = check_second(y, rows, self._where) if chunks is None else (None, False)
            if rows is None:
                _checks.refuse_weights(sample_weight)
            else:
                data.refuse_infinite(rows, "X")
                data.refuse_infinite(Y, "y")
            second = chunks or self._placed_table(Y, None)
            model = fit_canonical(table, second, request)
            scales = self._scales(table, second) if self._standardizes() else {}
        return self._keep(replace(model, vector=vector, **scales))

    def _scales(self, table: Table, second: Table) -> dict[str, Array]:
        """Return the standard deviations of the columns of both views."""
        if isinstance(table, InMemoryTable) and isinstance(second, InMemoryTable):
            second = InMemoryTable(second.rows, table.weights)
        views = {"x_scale": table, "y_scale": second}
        return {name: backend.cast_like(Units.of(t).scale, t.like) for name, t in views.items()}

    def fit_transform(self, X: Rows, y: Column | None = None, sample_weight: Weights = None) -> Any:
        """Fit, then return the canonical variates of both views.

        Parameters
        ----------
        X : array of shape (n, d_x)
        y : array of shape (n, d_y), default=None
            The second view.
        sample_weight : array of shape (n,), default=None

        Returns
        -------
        pair of arrays of shape (n, q)

        Examples
        --------
        >>> from sklearn.datasets import load_linnerud
        >>> from dualpca import CCA
        >>> X, Y = load_linnerud(return_X_y=True)
        >>> first, second = CCA(1).fit_transform(X, Y)
        >>> first.shape, second.shape
        ((20, 1), (20, 1))
        """
        return self.fit(X, y, sample_weight).transform(X, y)

    def _asked_second(self, y: Column | None, rows: Array | None, method: str) -> Array:
        """Return the second view that the model is asked about, checked, where it works."""
        return asked_second(self, y, rows, method, int(self._fitted.canonical.y.mu.shape[0]))

    def _views(
        self, X: Rows | None, y: Column | None, method: str
    ) -> tuple[Array | None, Array | None]:
        """Return the views that the fitted model is asked about, checked, where it works."""
        check_is_fitted(self)
        if X is None and y is None:
            raise ValueError(f"CCA.{method} needs at least one view, got neither X nor y.")
        rows = None if X is None else self._asked(X, method)
        if rows is not None:
            data.refuse_infinite(rows, "X")
        return rows, None if y is None else self._asked_second(y, rows, method)

    def _answer(
        self,
        X: Rows | None,
        y: Column | None,
        method: str,
        ask: Callable[..., Iterable[Array | None]],
        cast: bool,
    ) -> list[Array]:
        """Return what `ask` finds of the views, in the dtype and the place of the first given."""
        rows, other = self._views(X, y, method)
        like, origin = (other, y) if rows is None else (rows, X)
        with np.errstate(over="ignore", invalid="ignore"):
            found = [part for part in ask(rows, other) if part is not None]
        _checks.check_finite_result(found[0], like, missing=True)
        found = [backend.cast_like(part, like) for part in found] if cast else found
        return [self._home(part, origin) for part in found]

    @on_rows("n_components_", cast=False)
    def transform(self, X: Array, y: Column | None = None) -> Any:
        """Return the canonical variates of X, and those of y where it is given.

        They are u = U_xᵀ(x − μ_x), and v likewise for y.

        Parameters
        ----------
        X : array of shape (n, d_x)
        y : array of shape (n, d_y), default=None

        Returns
        -------
        array of shape (n, q), or a pair of them
            Of variance 1 on the training rows. Where a view has NaN, the expectation given what
            the row observed of that view.

        Examples
        --------
        >>> from sklearn.datasets import load_linnerud
        >>> from dualpca import CCA
        >>> X, Y = load_linnerud(return_X_y=True)
        >>> model = CCA(1).fit(X, Y)
        >>> first, second = model.transform(X, Y)
        >>> first.shape, second.shape
        ((20, 1), (20, 1))
        """
        data.refuse_infinite(X, "X")
        Y = None if y is None else self._asked_second(y, X, "transform")
        model = self._working.canonical
        views = [(model.x, X)] if Y is None else [(model.x, X), (model.y, Y)]
        found = []
        for view, rows in views:
            variates = _checks.check_finite_result(view.variates(rows), rows, missing=True)
            found.append(backend.cast_like(variates, rows))
        return found[0] if Y is None else tuple(found)

    def posterior(
        self, X: Rows | None = None, y: Column | None = None, *, parameters: str = "auto"
    ) -> tuple[Array, Array]:
        """Return mean and covariance of the shared latents.

        Parameters
        ----------
        X : array of shape (n, d_x), default=None
        y : array of shape (n, d_y), default=None
            One view or both; NaN where nothing was observed.
        parameters : {'auto', 'estimated', 'fixed'}, default='auto'
            'estimated': covariances count that axes and correlations are estimates, by fits to 48
            samples that the model draws. 'fixed': they take them as known. 'auto': as estimates
            below 20 rows per column of both views. Fits with a penalty have only 'fixed'.

        Returns
        -------
        mean : array of shape (n, q)
            √ρ u given X alone, √ρ(u + v)/(1 + ρ) given both.
        covariance : array of shape (n, q, q)
            With fixed parameters the same for all complete rows (then a view of one matrix).

        Examples
        --------
        >>> from sklearn.datasets import load_linnerud
        >>> from dualpca import CCA
        >>> X, Y = load_linnerud(return_X_y=True)
        >>> model = CCA(1).fit(X, Y)
        >>> mean, covariance = model.posterior(X, Y)
        >>> mean.shape, covariance.shape
        ((20, 1), (20, 1, 1))
        """
        latent = self._counting(parameters).latent
        mean, covariance = self._answer(X, y, "posterior", latent, cast=True)
        return mean, covariance

    def _counting(self, parameters: str) -> Canonical | CanonicalDraws:
        """Return the model, or with fits to samples of it where its errors are to be counted."""
        _checks.check_choice("parameters", parameters, _checks.ESTIMATED)
        model: CanonicalModel = self._working
        if parameters == "fixed" or self.regularization != 0:
            return model.canonical
        return model.draws(parameters == "estimated") or model.canonical

    def predict(
        self,
        X: Rows,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        parameters: str = "auto",
    ) -> Any:
        """Return Y expected given X, a vector if Y was one.

        Parameters
        ----------
        X : array of shape (n, d_x)
        return_std, return_cov : bool, default=False
            As in `predict_view`.
        parameters : {'auto', 'estimated', 'fixed'}, default='auto'
            As in `predict_view`.

        Returns
        -------
        array of shape (n, d_y) or (n,), or a pair

        Examples
        --------
        >>> from sklearn.datasets import load_linnerud
        >>> from dualpca import CCA
        >>> X, Y = load_linnerud(return_X_y=True)
        >>> model = CCA(1).fit(X, Y)
        >>> model.predict(X).shape, Y.shape
        ((20, 3), (20, 3))
        """
        result = self._predict(X, None, return_std, return_cov, "predict", parameters)
        if not self._vector:
            return result
        if return_std:
            return result[0][:, 0], result[1][:, 0]
        return (result[0][:, 0], result[1]) if return_cov else result[:, 0]

    def predict_view(
        self,
        X: Rows | None = None,
        y: Column | None = None,
        *,
        return_std: bool = False,
        return_cov: bool = False,
        parameters: str = "auto",
    ) -> Any:
        """Return the view that is not given, expected given the one that is.

        Parameters
        ----------
        X : array of shape (n, d_x), default=None
        y : array of shape (n, d_y), default=None
            Exactly one of them; NaN where nothing was observed.
        return_std : bool, default=False
            Also return the standard deviation of every entry, as of a new measurement.
        return_cov : bool, default=False
            Also return the covariance of every row's entries, (n, d, d), instead.
        parameters : {'auto', 'estimated', 'fixed'}, default='auto'
            'estimated': they count that the regression is an estimate (theory 17.4). 'fixed': they
            take it as known. 'auto': as an estimate, unless there are so many rows that it does not
            show.

        Returns
        -------
        array of shape (n, d), or a pair

        Examples
        --------
        >>> from sklearn.datasets import load_linnerud
        >>> from dualpca import CCA
        >>> X, Y = load_linnerud(return_X_y=True)
        >>> model = CCA(1).fit(X, Y)
        >>> model.predict_view(y=Y).shape, X.shape
        ((20, 3), (20, 3))
        """
        return self._predict(X, y, return_std, return_cov, "predict_view", parameters)

    def _predict(
        self,
        X: Rows | None,
        y: Column | None,
        return_std: bool,
        return_cov: bool,
        method: str,
        parameters: str,
    ) -> Any:
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be True: ask for one of them.")
        if X is not None and y is not None:
            check_is_fitted(self)
            raise ValueError(
                f"CCA.{method} predicts the view that is not given, got both. Give X or y; impute "
                "fills missing entries of two given views."
            )
        _checks.check_choice("parameters", parameters, _checks.ESTIMATED)
        fitted: CanonicalModel = self._fitted
        n = fitted.worth_counting(parameters == "estimated") if parameters != "fixed" else None
        kind = "variance" if return_std else "covariance" if return_cov else None

        def ask(rows: Array | None, other: Array | None) -> tuple[Array, Array | None]:
            mean, spread = self._working.canonical.predicted(rows, other, kind, n)
            return mean, backend.namespace(mean).sqrt(spread) if return_std else spread

        found = self._answer(X, y, method, ask, cast=True)
        return tuple(found) if kind else found[0]

    def impute(
        self,
        X: Rows,
        y: Column | None,
        return_std: bool = False,
        *,
        parameters: str = "auto",
    ) -> Any:
        """Fill every NaN of both views with its expectation given what the row observed.

        Parameters
        ----------
        X, y : arrays or frames of shape (n, d_x) and (n, d_y)
            Never modified.
        return_std : bool, default=False
            Also return the standard deviations, 0 where an entry was observed.
        parameters : {'auto', 'estimated', 'fixed'}, default='auto'
            Whether they count that the parameters are estimates, as in `posterior`.

        Returns
        -------
        X, Y : arrays or frames
            Observed entries are kept to the last bit.
        X_std, Y_std : arrays or frames
            If `return_std`.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_linnerud
        >>> from dualpca import CCA
        >>> X, Y = load_linnerud(return_X_y=True)
        >>> model = CCA(1).fit(X, Y)
        >>> X[0, 1] = np.nan
        >>> filled_x, filled_y = model.impute(X, Y)
        >>> bool(np.isnan(filled_x).any()), filled_y.shape
        (False, (20, 3))
        """
        rows, other = self._views(X, y, "impute")
        if rows is None or other is None:
            raise ValueError(
                "CCA.impute needs both views, got one. Give NaN for what was not observed, or "
                "use predict_view."
            )
        dx, tables = int(rows.shape[1]), []
        model = self._counting(parameters if return_std else "fixed")
        for table in model.filled(rows, other)[: 2 if return_std else 1]:
            first, second = (table[:, :dx], rows), (table[:, dx:], other)
            for (part, like), origin in ((first, X), (second, y)):
                tables.append(
                    _checks.as_frame(self._home(backend.cast_like(part, like), origin), origin)
                )
        return tuple(tables)

    def calibration(
        self,
        X: Rows,
        y: Column,
        *,
        levels: float | Sequence[float] | None = None,
        folds: int = 10,
        random_state: Seed = 0,
    ) -> Calibration:
        """Hide entries of both views, fill them by refits, and count how many intervals contain.

        Parameters
        ----------
        X, y : arrays or frames of shape (n, d_x) and (n, d_y)
            The training tables, with missing values or without.
        levels : float or sequence of float, default=None
            Nominal levels of the intervals. None is 0.1, 0.2, ..., 0.9 and 0.95.
        folds : int, default=10
            The observed entries of every row are dealt to so many folds, and each fold is hidden
            once from a fit with as many components.
        random_state : None, int, Generator or RandomState, default=0
            Which entries are hidden together.

        Returns
        -------
        Calibration
            As from `PPCA.calibration`, the columns of X and then those of y.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import CCA
        >>> rng = np.random.default_rng(0)
        >>> z = rng.normal(size=(200, 1))
        >>> X, Y = z + rng.normal(size=(200, 3)), z + rng.normal(size=(200, 2))
        >>> CCA(1).fit(X, Y).calibration(X, Y).at(0.9).coverage.round(2)
        array([0.9])
        """
        from dualpca.estimators.calibrating import calibrated_views, floats_of  # seldom asked for
        from dualpca.gaussian.calibration import LEVELS

        rows = self._given(X, "calibration")
        other = self._asked_second(y, rows, "calibration")
        views = floats_of(rows), floats_of(other)
        names = [f"x{j}" for j in range(views[0].shape[1])]
        names = [str(name) for name in getattr(self, "feature_names_in_", names)]
        names += [str(name) for name in getattr(y, "columns", ())] or [
            f"y{j}" for j in range(views[1].shape[1])
        ]
        asked = LEVELS if levels is None else levels
        return calibrated_views(self, views, names, asked, folds, random_state)

    def score_samples(self, X: Rows | None = None, y: Column | None = None) -> Array:
        """Return the log-density of what each row observed of the views given.

        Parameters
        ----------
        X : array of shape (n, d_x), default=None
        y : array of shape (n, d_y), default=None

        Returns
        -------
        array of shape (n,)
            ln p(x, y), or ln p(x), or ln p(y); 0 for a row with nothing observed.

        Examples
        --------
        >>> from sklearn.datasets import load_linnerud
        >>> from dualpca import CCA
        >>> X, Y = load_linnerud(return_X_y=True)
        >>> model = CCA(1).fit(X, Y)
        >>> model.score_samples(X, Y).shape
        (20,)
        """

        def ask(*views: Array | None) -> tuple[Array]:
            return (self._working.canonical.log_density(*views),)

        return self._answer(X, y, "score_samples", ask, cast=False)[0]

    def score(self, X: Rows, y: Column | None = None, sample_weight: Weights = None) -> float:
        """Return the average log-density of the rows (scikit-learn's `CCA` returns R²).

        Parameters
        ----------
        X : array of shape (n, d_x)
        y : array of shape (n, d_y), default=None
        sample_weight : array of shape (n,), default=None

        Returns
        -------
        float

        Examples
        --------
        >>> from sklearn.datasets import load_linnerud
        >>> from dualpca import CCA
        >>> X, Y = load_linnerud(return_X_y=True)
        >>> model = CCA(1).fit(X, Y)
        >>> round(model.score(X, Y), 1)
        -22.5
        """
        return _checks.weighted_mean(self.score_samples(X, y), sample_weight)

    def sample(self, n_samples: int = 1, random_state: Seed = None) -> tuple[Array, Array]:
        """Draw new rows of both tables.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : None, int, Generator or RandomState, default=None

        Returns
        -------
        X, Y : arrays

        Examples
        --------
        >>> from sklearn.datasets import load_linnerud
        >>> from dualpca import CCA
        >>> X, Y = load_linnerud(return_X_y=True)
        >>> model = CCA(1).fit(X, Y)
        >>> X_new, Y_new = model.sample(5, random_state=0)
        >>> X_new.shape, Y_new.shape
        ((5, 3), (5, 3))
        """
        model: CanonicalModel = self._fitted
        return model.sample(*_checks.check_draws(n_samples, random_state))

    def get_covariance(self) -> Array:
        """Return the joint covariance matrix of both views.

        Returns
        -------
        covariance : array of shape (d_x + d_y, d_x + d_y)

        Examples
        --------
        >>> from sklearn.datasets import load_linnerud
        >>> from dualpca import CCA
        >>> X, Y = load_linnerud(return_X_y=True)
        >>> model = CCA(1).fit(X, Y)
        >>> model.get_covariance().shape
        (6, 6)
        """
        model: CanonicalModel = self._fitted
        return model.covariance()


# --- Two views of the same rows: either may hold NaN, the second may be a vector -----------------


def asked_second(
    estimator: Estimator, y: Column | None, rows: Array | None, method: str, width: int
) -> Array:
    """Return the second view that a fitted model is asked about, checked, where it works."""
    Y = check_second(y, rows, estimator._where if "_placed" in vars(estimator) else None)[0]
    Y = estimator._beside_model(Y, method) if rows is None else Y
    if Y.shape[1] != width:
        name = type(estimator).__name__
        raise ValueError(f"y has {Y.shape[1]} columns, but {name} was fitted with {width} in y.")
    data.refuse_infinite(Y, "y")
    return Y


def check_second(
    Y: Any, X: Array | None, device: Any = None, name: str = "CCA"
) -> tuple[Array, bool]:
    """Return the second view as a matrix beside the first, and whether it came as a vector.

    `device` is torch's, if the first view was moved there; `name` is the estimator's.
    """
    if Y is None:
        raise ValueError(
            f"{name} requires y to be passed, but the target y is None: give the second view as y."
        )
    data.require_in_memory(Y, "y")
    if not backend.is_foreign(Y):
        with _checks.text_named(Y, "y"):
            Y = check_array(
                Y, dtype=_checks.FLOATS, ensure_2d=False, ensure_all_finite=False, input_name="y"
            )
    vector = Y.ndim == 1
    Y = _checks.check_matrix(backend.namespace(Y).reshape(Y, (-1, 1)) if vector else Y, "y")
    if Y.shape[1] == 0:
        raise ValueError(expected("y", "a table of at least one column", tuple(Y.shape)))
    if X is None:
        return Y, vector
    if X.shape[0] != Y.shape[0]:
        raise ValueError(
            "Found input variables with inconsistent numbers of samples: "
            f"{[int(X.shape[0]), int(Y.shape[0])]}. X and y are two views of the same rows; "
            "mark a view that was not observed by NaN."
        )
    if device is not None:
        return sent(Y, device), vector
    same = backend.describe(X) == backend.describe(Y)
    return Y if same else backend.asarray(backend.to_numpy(Y), X), vector
