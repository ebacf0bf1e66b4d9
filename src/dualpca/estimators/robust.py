"""Robust probabilistic PCA: Student's t in place of the Gaussian."""

from __future__ import annotations

from dataclasses import KW_ONLY, field, replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data import InMemoryTable, Table, Units, compared, farthest_apart
from dualpca.errors import expected
from dualpca.estimators._attributes import attribute
from dualpca.estimators._checks import check_flag
from dualpca.estimators._linear import LatentEstimator
from dualpca.estimators._shell import iterative_request, on_rows, parametrized
from dualpca.estimators._types import Rows, Seed, Weights
from dualpca.models.completing import RefitRequest
from dualpca.models.robust import RobustFit, RobustModel, RobustRequest, fit_robust, robust_units


@parametrized
class RobustPPCA(LatentEstimator):
    """Probabilistic PCA that outliers do not decide: x is a multivariate t, not a Gaussian.

    x = μ + (Wz + ε)/√u with z ~ N(0, I_q), ε ~ N(0, σ²I_d) and u ~ Gamma(ν/2, ν/2) for every row,
    so x is a multivariate t with ν degrees of freedom and scale matrix C = WWᵀ + σ²I. A row far
    from the others gets a small weight, and one that even the tails cannot explain gets none. NaN
    is accepted anywhere, in `fit` and afterwards.

    Parameters
    ----------
    n_components : int, float, str or None, default=None
        As in `PPCA`: by default parallel analysis. Rules see the rows that are not set aside, drawn
        in by the roots of their weights, so that tails do not count as components.
    degrees_of_freedom : float, default=None
        ν. None for maximum likelihood between 2.1 and 1,000, and the Gaussian (infinity) where that
        is as likely. Infinity is PPCA of the rows that are not set aside.
    trim : bool, default=True
        Set rows aside that are too far even for the tails: they get weight 0. Of a table of
        ordinary rows none is set aside with probability 0.99. Without it the likelihood is that of
        all rows, and many outliers at one place can turn an axis.
    tol : float, default=1e-06
        Estimated relative distance to the maximum at which EM stops.
    max_iter : int, default=1000
        Largest number of EM steps.
    random_state : None, int, Generator or RandomState, default=None
        Directions along which the start looks for outliers. None is a fixed seed.
    standardize : bool, default=False
        Divide every column by its standard deviation before the fit, that of the entries within
        3.5 robust deviations (1.4826 MAD) of the median: no outlier decides a unit. Rows, loadings,
        densities and covariances are given in the units of X all the same.
    verbose : bool, default=False
        Show the progress of EM on standard error.

    Attributes
    ----------
    mean_ : array of shape (d,)
        μ, the centre.
    scale_ : array of shape (d,) or None
        What every column was divided by; None without `standardize`.
    components_ : array of shape (q, d)
        Principal axes of C, orthonormal, largest variance first.
    loadings_ : array of shape (d, q)
        W = V (L − σ²I)^{1/2}, times `scale_`: in the units of X.
    explained_variance_ : array of shape (q,)
        ℓ, the variances of the scale matrix C along the axes; the covariance is ν/(ν − 2) times C.
    explained_variance_ratio_ : array of shape (q,)
    noise_variance_ : float
        σ², of C.
    degrees_of_freedom_ : float
        ν; infinite if the rows show no tails.
    row_weights_ : array of shape (n,)
        E[u | x] = (ν + k)/(ν + δ) of the training rows, with k observed entries at distance δ:
        about 1 for ordinary rows, less the further out a row lies; 0 for rows set aside.
    loglikelihood_ : float
        Of the rows that are not set aside.
    loglikelihoods_ : list of float
        At every step kept by EM.
    n_components_, n_iter_, n_samples_ : int
    n_parameters_ : int
        Free parameters: those of `PPCA`, and ν unless it was given.
    converged_ : bool
    selection_ : Selection
        After cross-validation, as in `PPCA`.

    Notes
    -----
    Lange, Little & Taylor (1989); Archambeau, Delannay & Verleysen (2006). EM starts from the 60 %
    of the rows that lie deepest (Stahel-Donoho outlyingness over 250 directions, as in ROBPCA,
    then concentration steps), found among at most 2,000 rows. A step costs what PPCA of weighted
    rows costs, or O(ndq²) with NaN; nothing d×d is formed but by `get_covariance` and
    `get_precision`. The maximum is a local one: that of the bulk of the rows. It holds where a
    fifth of the rows are outliers, and fails where a third is.

    Control limits are those of the t: T²/q ~ F(q, ν), SPE/((d − q)σ²) ~ F(d − q, ν), with limits of
    both together at `level`. Rows must be in memory for `fit`; the other methods accept chunks.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PPCA, RobustPPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1)) @ [[1.0, 1.0, 1.0, 1.0]] + 0.3 * rng.normal(size=(200, 4))
    >>> X[:20] = [9.0, -9.0, 9.0, -9.0]  # a tenth of the rows is wrong
    >>> PPCA(1).fit(X).components_.round(1)
    array([[-0.5,  0.5, -0.5,  0.5]])
    >>> model = RobustPPCA(1).fit(X)
    >>> model.components_.round(1), int((model.row_weights_ == 0).sum())
    (array([[0.5, 0.5, 0.5, 0.5]]), 20)
    """

    _model: RobustModel = field(init=False)

    selection_ = attribute("selection")
    degrees_of_freedom_ = attribute("dof")
    row_weights_ = attribute("row_weights")

    @property
    def n_parameters_(self) -> int:
        """The number of free parameters: those of PPCA, and ν unless it was given."""
        return int(self._fitted.n_parameters()) + (self.degrees_of_freedom is None)

    n_components: int | float | str | None = None
    _: KW_ONLY
    degrees_of_freedom: float | None = None
    trim: bool = True
    tol: float = 1e-6
    max_iter: int = 1000
    random_state: Seed = None
    standardize: bool = False
    verbose: bool = False

    def fit(self, X: Rows, y: object = None, sample_weight: Weights = None) -> Any:
        """Fit the model by maximum likelihood to the rows that are not set aside.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN where nothing was observed. In memory. Never modified.
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None
            Non-negative. A weight of 2 counts as the row twice, 0 as no row.

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import RobustPPCA
        >>> X = load_iris().data
        >>> RobustPPCA(2).fit(X).components_.shape
        (2, 4)
        """
        request = self._request()
        with self._training(X, sample_weight) as table:
            model = fit_robust(table, request)
        if self._units is not None and isinstance(table, InMemoryTable):
            self._units = self._units_of_kept(self._units, table, model)
        return self._keep(model)

    def _request(self) -> RobustRequest:
        """Check the parameters and return them for the fit."""
        check_flag("trim", self.trim)
        nu: Any = self.degrees_of_freedom
        number = isinstance(nu, Real) and not isinstance(nu, bool)
        if nu is not None and not (number and float(nu) > 0):
            raise ValueError(expected("degrees_of_freedom", "None or a number above 0", nu))
        dof = None if nu is None else float(nu)
        return iterative_request(self, RobustRequest, dof=dof, trim=bool(self.trim))

    # --- units ---------------------------------------------------------------------------------

    def _units_of(self, table: Table) -> Units | None:
        if self._standardizes() and isinstance(table, InMemoryTable):
            return robust_units(table)
        return None if self._standardizes() else super()._units_of(table)

    def _most_unequal(self, table: Table) -> tuple[int, int, float] | None:
        """Return the columns of largest and smallest spread without outliers, if they differ."""
        if not isinstance(table, InMemoryTable):
            return None
        few = InMemoryTable(*compared(table.rows, table.weights))
        rows, variance = backend.to_numpy(few.rows), backend.to_numpy(robust_units(few).scale) ** 2
        varies = np.nanmin(rows, axis=0, initial=np.inf) < np.nanmax(rows, axis=0, initial=-np.inf)
        return farthest_apart(variance, varies)

    def _units_of_kept(self, units: Units, table: InMemoryTable, model: RobustModel) -> Units:
        """Return the units; what the likelihood changes by is that of the rows that count."""
        xp = backend.namespace(table.rows)
        counted = backend.asarray(backend.to_numpy(model.row_weights) > 0, units.scale)
        w = counted if table.weights is None else counted * table.weights
        seen = xp.astype(~xp.isnan(table.rows), xp.float64)
        return replace(units, log_volume=float((w @ seen) @ xp.log(units.scale)))

    # --- what differs from the Gaussian --------------------------------------------------------

    def _refit_request(self) -> RefitRequest:
        return RefitRequest(kind=partial(RobustFit, dof=self._fitted.dof))

    def _bootstrap_weights(self, rows: Array, weights: Array | None) -> Array | None:
        """Return the weights of the rows, 0 for those that are too far for the tails."""
        beyond = self._working.is_beyond(rows)
        if not self.trim or not beyond.any():
            return weights
        kept = backend.asarray((~beyond).astype(np.float64), backend.vector_like(rows))
        return kept if weights is None else kept * weights

    @on_rows(chunked=False)
    def posterior(self, X: Array, *, parameters: str = "auto") -> tuple[Array, Array]:
        """Return mean and covariance of the latents given each row.

        Parameters
        ----------
        X : array of shape (n, d)
        parameters : {'auto', 'estimated', 'fixed'}, default='auto'
            'estimated': covariances count that the parameters are estimates. 'fixed': they take
            them as known. 'auto': as estimates, unless there are so many rows that it does not
            show.

        Returns
        -------
        mean : array of shape (n, q)
        covariance : array of shape (n, q, q)
            σ²M⁻¹ (ν + δ)/(ν + k − 2), larger the further out a row lies, and what the errors of
            the parameters add.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import RobustPPCA
        >>> X = load_iris().data
        >>> mean, covariance = RobustPPCA(2).fit(X).posterior(X)
        >>> mean.shape, covariance.shape
        ((150, 2), (150, 2, 2))
        """
        model: RobustModel = self._working
        return model.latents(X, self._errors(parameters))

    @on_rows()
    def weigh(self, X: Array) -> Array:
        """Return the weight of each row, about 1 for ordinary rows and small for outliers.

        It is E[ω | x] of the t distribution (theory 4.5).

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        array of shape (n,)
            (ν + k)/(ν + δ); 1 for all rows if ν is infinite. `row_weights_` is that of the training
            rows, with 0 for those set aside.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import RobustPPCA
        >>> X = load_iris().data
        >>> model = RobustPPCA(2).fit(X)
        >>> good, bad = model.weigh([X[0], [9.0, 9.0, 9.0, 9.0]])
        >>> bool(good > bad)
        True
        """
        model: RobustModel = self._working
        return model.weigh(X)

    def posterior_predictive(self, X: Rows, *, parameters: str = "auto") -> tuple[Array, Array]:
        """Return mean and covariance of a new measurement of what each row measured.

        Parameters
        ----------
        X : array of shape (n, d)
        parameters : {'auto', 'estimated', 'fixed'}, default='auto'
            'estimated': covariances count that the parameters are estimates. 'fixed': they take
            them as known. 'auto': as estimates, unless there are so many rows that it does not
            show.

        Returns
        -------
        mean : array of shape (n, d)
            The signal, as in `reconstruct`.
        covariance : array of shape (n, d, d)
            That of `PPCA` times (ν + δ)/(ν + d − 2), row by row.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import RobustPPCA
        >>> X = load_iris().data
        >>> mean, covariance = RobustPPCA(2).fit(X).posterior_predictive(X[:3])
        >>> mean.shape, covariance.shape
        ((3, 4), (3, 4, 4))
        """
        mean, covariance = super().posterior_predictive(X, parameters=parameters)
        stretch = self._fitted.stretch(self._asked(X, "posterior_predictive"))
        stretch = self._home(stretch, X)
        return mean, backend.cast_like(stretch[:, None, None] * covariance, covariance)
