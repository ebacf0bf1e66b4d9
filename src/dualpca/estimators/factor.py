"""Factor analysis, a drop-in for scikit-learn's that accepts NaN."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from typing import Any

from dualpca.arrays import Array
from dualpca.data import Units
from dualpca.estimators._attributes import attribute
from dualpca.estimators._checks import check_choice, generator
from dualpca.estimators._linear import LatentEstimator, LinearEstimator
from dualpca.estimators._shell import iterative_request, on_rows, parametrized
from dualpca.estimators._types import Column, Resumable, Rows, Seed, Weights
from dualpca.gaussian import SHARES
from dualpca.models.completing import RefitRequest
from dualpca.models.factor import FactorModel, FactorRequest, fit_factor


@parametrized
class FactorAnalysis(LinearEstimator):
    """Factor analysis, with missing values or without.

    The model is x = Wz + μ + ε with z ~ N(0, I_q) and ε ~ N(0, diag ψ).

    Every feature has its own noise, so the model does not depend on the features' units. NaN is
    accepted in `fit` and afterwards.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of factors. None is Horn's parallel analysis: as many as the correlation matrix has
        eigenvalues above those of permuted columns (the 95th percentile, rank by rank), and at
        least one; `n_components_` is what was chosen. (scikit-learn takes as many factors as
        features, which explain everything and nothing.)
    tol : float, default=0.0001
        Estimated relative distance to the maximum at which EM stops.
    copy : bool, default=True
        Accepted for compatibility. X is never modified.
    max_iter : int, default=1000
        Largest number of EM steps.
    noise_variance_init : array of shape (d,), default=None
        Noise to start from, in the units of `noise_variance_`.
    svd_method : str, default='randomized'
        Accepted for compatibility with scikit-learn and not used.
    iterated_power : int, default=3
        Accepted for compatibility with scikit-learn and not used.
    rotation : {None, 'varimax', 'quartimax'}, default=None
        Rotate the loadings to be read more easily; densities do not change.
    random_state : None, int, Generator or RandomState, default=0
        Start of EM with NaN.
    standardize : bool, default=False
        Divide every column by its standard deviation (over observed entries, divisor n; a
        constant one by 1) before the fit: loadings and noise are then those of the correlation
        matrix. The density is the same, and rows are given in the units of X.
    verbose : bool, default=False
        Say on standard error where and how the fit works, and how far it has come.
    checkpoint : path or Checkpoint, default=None
        A file that an interrupted fit resumes from, as in `PPCA`.
    device : None, 'auto', 'cpu' or 'cuda', default=None
        Where to fit: None is where the rows are, 'auto' a GPU if there are enough rows. Host
        arrays are copied there and results back, so that the fitted model is on the host.

    Attributes
    ----------
    components_ : array of shape (q, d)
        Loadings Wᵀ; without rotation WᵀΨ⁻¹W is diagonal, largest first. With `standardize`
        those of standardised columns: correlations of columns with factors.
    loadings_ : array of shape (d, q)
        W, in the units of X.
    noise_variance_ : array of shape (d,)
        ψ; of standardised columns with `standardize`, where it is 1 less the communality.
    mean_ : array of shape (d,)
    scale_ : array of shape (d,) or None
        What every column was divided by; None without `standardize`.
    heywood_ : list of int
        Features whose noise was held at 1/10,000 of their variance: the factors explain them
        wholly (a Heywood case), which usually means too many factors or too few rows.
    loglike_, loglikelihoods_ : list of float
        Log-likelihood at every step kept.
    loglikelihood_ : float
    n_parameters_ : int
        Free parameters: dq − q(q − 1)/2 loadings, d noises and d means.
    n_components_, n_iter_ : int
    converged_ : bool

    Notes
    -----
    Complete rows and d ≤ 2,000: the correlation matrix is formed once, then Newton's method
    (quasi-Newton for d > 64) on ψ with W at its best (Jöreskog 1967), O(d³) per step. Otherwise EM
    (Rubin & Thayer 1982) with parameter expansion and extrapolation, O(ndq) per step, O(ndq²) with
    NaN, and nothing d×d is formed.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from dualpca import FactorAnalysis
    >>> model = FactorAnalysis(n_components=3, rotation="varimax").fit(load_wine().data)
    >>> model.components_.shape, model.converged_, round(model.loglikelihood_, 1)
    ((3, 13), True, -3414.1)
    >>> FactorAnalysis().fit(load_wine().data).n_components_
    3
    """

    _model: FactorModel = field(init=False)
    _accepts_nan = True

    n_components_ = attribute("n_components")
    heywood_ = attribute("heywood")
    loglike_ = attribute("history.loglikelihoods", Units.loglikelihood)
    loglikelihood_ = attribute("history.loglikelihood", Units.loglikelihood)
    loglikelihoods_ = attribute("history.loglikelihoods", Units.loglikelihood)
    loadings_ = attribute("loadings", Units.loadings)
    n_iter_ = attribute("history.n_iter")
    converged_ = attribute("history.converged")

    n_components: int | None = None
    _: KW_ONLY
    tol: float = 1e-4
    copy: bool = True
    max_iter: int = 1000
    noise_variance_init: Column | None = None
    svd_method: str = "randomized"
    iterated_power: int = 3
    rotation: str | None = None
    random_state: Seed = 0
    standardize: bool = False
    verbose: bool = False
    checkpoint: Resumable = None
    device: str | None = None

    def fit(self, X: Rows, y: object = None, sample_weight: Weights = None) -> Any:
        """Fit the model by maximum likelihood.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN where nothing was observed. Never modified.
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from dualpca import FactorAnalysis
        >>> X = load_wine().data
        >>> FactorAnalysis(2, standardize=True).fit(X).noise_variance_.shape
        (13,)
        """
        return self._learn(fit_factor, X, sample_weight)

    def _request(self) -> FactorRequest:
        """Check the parameters and return them for the fit."""
        check_choice("svd_method", self.svd_method, ("randomized", "lapack"))
        if self.rotation is not None:
            check_choice("rotation", self.rotation, tuple(SHARES))
        given = {"noise_start": self.noise_variance_init, "rng": generator(self.random_state)}
        return iterative_request(self, FactorRequest, **given)

    def _refit_request(self) -> RefitRequest:
        return RefitRequest(diagonal=True)

    impute = LatentEstimator.impute
    sample_imputations = LatentEstimator.sample_imputations
    with_imputations = LatentEstimator.with_imputations
    calibration = LatentEstimator.calibration
    conditional = LatentEstimator.conditional
    _errors = LatentEstimator._errors

    @on_rows("n_components_")
    def transform(self, X: Array) -> Array:
        """Return the posterior mean of the factors given what each row observed.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        X_new : array of shape (n, q)

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from dualpca import FactorAnalysis
        >>> X = load_wine().data
        >>> model = FactorAnalysis(2, standardize=True).fit(X)
        >>> model.transform(X).shape
        (178, 2)
        """
        scores: Array = self._working.scores(X)
        return scores

    @on_rows(chunked=False)
    def posterior(self, X: Array, *, parameters: str = "auto") -> tuple[Array, Array]:
        """Return mean and covariance of the factors given each row.

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

        Notes
        -----
        Theory 20. Parameters are drawn from their posterior at the first call (48 draws, by the
        covariance of the fit), O(dq²) each; a row then costs what it does under 48 models.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from dualpca import FactorAnalysis
        >>> X = load_wine().data
        >>> model = FactorAnalysis(2, standardize=True).fit(X)
        >>> mean, covariance = model.posterior(X)
        >>> mean.shape, covariance.shape
        ((178, 2), (178, 2, 2))
        """
        model: FactorModel = self._working
        return model.latents(X, self._errors(parameters))

    def inverse_transform(self, X: Rows) -> Array:
        """Return the mean of the rows given their factors.

        Parameters
        ----------
        X : array of shape (n, q)
            Factors.

        Returns
        -------
        X_mean : array of shape (n, d)

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from dualpca import FactorAnalysis
        >>> X = load_wine().data
        >>> model = FactorAnalysis(2, standardize=True).fit(X)
        >>> model.inverse_transform([[0.0, 0.0]]).shape
        (1, 13)
        """
        return self._lifted(X, None)

    @on_rows("n_features_in_", outward=(Units.outward,))
    def reconstruct(self, X: Array) -> Array:
        """Return the posterior mean of the noise-free signal.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        X_rec : array of shape (n, d)

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from dualpca import FactorAnalysis
        >>> X = load_wine().data
        >>> model = FactorAnalysis(2, standardize=True).fit(X)
        >>> model.reconstruct(X).shape
        (178, 13)
        """
        return self._working.lifted(self._working.scores(X))
