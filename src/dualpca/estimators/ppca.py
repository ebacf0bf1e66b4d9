"""Probabilistic principal component analysis: closed form or EM, missing values or none."""

from __future__ import annotations

import math
import sys
from dataclasses import KW_ONLY, field
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from dualpca import data
from dualpca.arrays import Array, backend
from dualpca.data import InMemoryTable, Moments, Table, Units
from dualpca.errors import NoiseWarning, SkewWarning, expected, warn
from dualpca.estimators._attributes import attribute
from dualpca.estimators._checks import (
    check_array_path,
    check_choice,
    check_flag,
    check_matrix,
    check_number,
    column_labels,
)
from dualpca.estimators._linear import LatentEstimator
from dualpca.estimators._shell import T, iterative_request, parametrized
from dualpca.estimators._streaming import MomentStream, add_moments, by_moments, partial_fit
from dualpca.estimators._types import Path, Resumable, Rows, Seed, Weights
from dualpca.gaussian import check_noise
from dualpca.models.completing import RefitRequest
from dualpca.models.dual import to_dual
from dualpca.models.factor import own_noise
from dualpca.models.spiked import PPCARequest, SpikedModel, fit_ppca, open_stream, ppca_of_stream
from dualpca.models.streaming import Stream
from dualpca.solvers import SOLVERS

if TYPE_CHECKING:
    from dualpca.estimators.bayesian import BayesianPCA


def spiked_request(estimator: PPCA | BayesianPCA, kind: type[T]) -> T:
    """Check the parameters that PPCA and BayesianPCA share; return the request of a fit."""
    check_choice("solver", estimator.solver, ("auto", *SOLVERS))
    if estimator.noise_variance is not None:
        check_noise(estimator.noise_variance, zero=estimator._zero_noise)
    return iterative_request(estimator, kind, noise=estimator.noise_variance)


def check_init(init: object, noise: float | None) -> None:
    """Refuse what is neither the name of a start nor loadings and a noise variance."""
    if isinstance(init, str):
        check_choice("init", init, ("auto", "random"))
        return
    least = 0.0 if noise is None else -math.inf  # what is given here is not looked at
    if isinstance(init, tuple) and len(init) == 2 and isinstance(init[1], Real):
        if least < float(init[1]) < math.inf:
            return
    what = "'auto', 'random', or a tuple: loadings of shape (d, q) and a noise variance"
    raise ValueError(expected("init", what, init))


NAMED = 5
"""Columns that a warning names."""


def absorbed(
    state: Moments | Stream | None, table: InMemoryTable, request: PPCARequest
) -> tuple[Moments | Stream, int]:
    """Return the state of a stream after one more chunk, and the rows it counts."""
    X, weights = table.rows, table.weights
    if not isinstance(state, Stream) and not data.has_missing(X):
        return add_moments(state, table, request)
    stream = open_stream(state, request).add(X, weights, request.start)
    return stream, data.used_rows(X, data.observed_weights(X, weights))


@parametrized
class PPCA(LatentEstimator):
    """Probabilistic principal component analysis, with missing values or without.

    The model is x = Wz + μ + ε with z ~ N(0, I_q) and ε ~ N(0, σ²I_d).

    NaN is accepted anywhere, in `fit` and afterwards: the likelihood is exactly that of the
    observed entries (missing at random); nothing is filled in.

    Parameters
    ----------
    n_components : int, float, str or None, default=None
        How many components to keep:

        - int: that many.
        - float between 0 and 1: as many as have this share of the variance.
        - 'parallel': Horn's parallel analysis, eigenvalues of the correlation matrix beside those
          of permuted columns.
        - 'evidence' (Minka), 'bic', 'white-noise', 'gavish-donoho': by the spectrum.
        - 'cv-rows', 'cv-entries': the likelihood of held-out rows, or the prediction of hidden
          entries; 'cv' is the latter where values are missing, and the former where none is.
        - None: 'parallel', and at least 1; or, where `noise_variance` is given, the number of
          variances above it. A `NoiseWarning` tells where columns plainly have noise of different
          sizes, for which `FactorAnalysis` is made.

        With NaN, an int or a name; for `partial_fit` with NaN an int.
    noise_variance : float, default=None
        σ², of standardised columns with `standardize`. None for maximum likelihood. 0 is the limit
        σ² → 0, exactly: PCA as a model, by the closed form or by EM for PCA (Roweis 1998). Rows
        have no density then (`score` says so, `loglikelihood_` is −∞); everything else works.
    method : {'closed', 'em'}, default='closed'
        Closed form from the spectrum, or EM, accelerated and monotone: the same model. Rows with
        NaN are always fitted by EM.
    init : {'auto', 'random'} or (array of shape (d, q), float), default='auto'
        Start of EM in `fit`: random; or loadings W and a noise σ² (of standardised columns with
        `standardize`; `noise_variance` takes its place), the mean being that of the rows. 'auto' is
        random, but the span of the rows filled with means where values are missing.
    accelerate : bool, default=True
        False for the textbook EM, step by step: many more steps. `max_iter` steps are then just
        those of Tipping & Bishop (1999, Eqs. 29 and 30), and `loglikelihoods_` those of the start
        and after every step.
    solver : {'auto', 'qr', 'dense', 'gram', 'krylov'}, default='auto'
        For the closed form, and for rules that read the spectrum.
    tol : float, default=1e-06
        'em': estimated relative distance to the maximum at which to stop.
    max_iter : int, default=1000
        'em': largest number of steps.
    random_state : None, int, Generator or RandomState, default=None
        Start of EM and of block Krylov. None is a fixed seed.
    n_init : int, default=1
        `fit` with NaN: number of starts of EM, of which the most likely end is kept. Small tables
        with several latents can have more than one maximum.
    standardize : bool, default=False
        Divide every column by its standard deviation (over observed entries, divisor n; a
        constant one by 1) before the fit, so that no unit counts more than another. Rows,
        loadings, densities and covariances are given in the units of X all the same.
    verbose : bool, default=False
        Show the progress of EM and cross-validation on standard error.
    checkpoint : path or Checkpoint, default=None
        File that EM writes every 30 seconds (or as a `dualpca.Checkpoint` says) and resumes from
        when the same fit of the same data is started again; removed at the end.
    device : None, 'auto', 'cpu' or 'cuda', default=None
        Where to fit: None is where the rows are, 'auto' a GPU if there are enough rows. Host
        arrays are copied there and results back, so that the fitted model is on the host.
    components_out : path, default=None
        A .npy file that `fit` writes `components_` to, replacing it once the new one is complete;
        `components_` is then a read-only memory map of it. For axes larger than memory.

    Attributes
    ----------
    mean_ : array of shape (d,)
    scale_ : array of shape (d,) or None
        What every column was divided by; None without `standardize`.
    components_ : array of shape (q, d)
        Principal axes v, orthonormal, largest variance first. With `standardize` those of
        standardised columns, as in R's prcomp(scale. = TRUE).
    loadings_ : array of shape (d, q)
        W = V (L − σ²I)^{1/2}, times `scale_`: in the units of X.
    explained_variance_ : array of shape (q,)
        ℓ, with divisor n; of standardised columns with `standardize`.
    explained_variance_ratio_ : array of shape (q,)
    noise_variance_ : float
        σ²; of standardised columns with `standardize`.
    loglikelihood_ : float
        Of all training rows together.
    loglikelihoods_ : list of float
        At every step kept by EM; one number for the closed form.
    n_parameters_ : int
        Free parameters: dq − q(q − 1)/2 + 1, and d for the mean; a given `noise_variance` is none.
    n_components_, n_iter_, n_samples_ : int
    converged_ : bool
    selection_ : Selection
        After cross-validation: `candidates`, their `q2` and `loglikelihood` with standard errors
        (`q2_error`, `loglikelihood_error`), and the one `chosen`.

    Notes
    -----
    `partial_fit` is exact while chunks are complete. The first incomplete rows are fitted as `fit`
    would, with all complete ones; from then on every incomplete chunk is seen once, by online EM
    (Cappé & Moulines 2009), which tends to the fit of all rows if they come in random order; late
    ones count more, so a sorted stream ends far from it: shuffle it first. `converged_` is then
    False, and `loglikelihood_` an estimate from the statistics kept. Memory is O(dq²), with fewer
    than max(100, 10(q + 1)) rows that wait, and O(d²) for complete chunks. A feature that no chunk
    has observed yet is an error when the model is read, not before.

    Tipping & Bishop (1999). Costs are those of the solver, or O(ndq) per step of EM; densities,
    posteriors and samples cost O(dq) per row. Nothing d×d is formed, except by
    `get_covariance`, `get_precision` and `posterior_predictive`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> X = load_iris().data
    >>> model = PPCA(n_components=2).fit(X)
    >>> round(model.noise_variance_, 4), round(model.loglikelihood_, 2)
    (0.0507, -404.96)
    >>> mean, covariance = model.posterior(X[:1])
    >>> mean.shape, covariance.shape
    ((1, 2), (1, 2, 2))
    """

    _model: SpikedModel = field(init=False)
    _stream: MomentStream = field(init=False)
    _streaming = by_moments(ppca_of_stream, absorbed)
    _zero_noise = True  # the limit is a model too

    selection_ = attribute("selection")

    n_components: int | float | str | None = None
    _: KW_ONLY
    noise_variance: float | None = None
    method: str = "closed"
    init: str | tuple[Array, float] = "auto"
    accelerate: bool = True
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 1000
    random_state: Seed = None
    n_init: int = 1
    standardize: bool = False
    verbose: bool = False
    checkpoint: Resumable = None
    device: str | None = None
    components_out: Path = None

    def _request(self) -> PPCARequest:
        """Check the parameters and return them for the fit."""
        check_choice("method", self.method, ("closed", "em"))
        check_init(self.init, self.noise_variance)
        check_flag("accelerate", self.accelerate)
        check_number("n_init", self.n_init, 1, integer=True)
        check_array_path("components_out", self.components_out)
        return spiked_request(self, PPCARequest)

    def _units_of(self, table: Table) -> Units | None:
        units = super()._units_of(table)
        self._warn_of_tails(table, standardized=units is not None)
        return units

    def _warn_of_tails(self, table: Table, *, standardized: bool) -> None:
        """Warn of columns that count in the model and of which a few values decide."""
        share = 0.0 if standardized else data.LEAST_VARIANCE
        found = data.skewed_columns(table, data.LONG_TAILED, least_variance=share)
        if not found.columns.size:
            return
        names = column_labels(self, found.columns)
        named = ", ".join(names[:NAMED]) + (
            f" and {len(names) - NAMED} more" * (len(names) > NAMED)
        )
        warn(
            f"column{'s' * (len(names) > 1)} {named}: strongly skewed (skewness up to "
            f"{np.abs(found.skewness).max():.1f}), so a few large values decide what the model "
            "says. Take logarithms of columns of positive numbers, or use CopulaPPCA, which does "
            "not depend on the shape of columns.",
            SkewWarning,
        )

    def _refit_request(self) -> RefitRequest:
        return RefitRequest(fixed_noise=self.noise_variance is not None)

    def fit(self, X: Rows, y: object = None, sample_weight: Weights = None) -> PPCA:
        """Fit the model.

        Parameters
        ----------
        X : array of shape (n, d), or a chunked table
            Two rows or more. Never modified. Chunked: `Batches`, Dask, Zarr, a path.
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None
            Non-negative. A weight of 2 counts as the row twice, 0 as no row; their sum is the
            effective number of rows.

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> PPCA(2).fit(X).components_.shape
        (2, 4)
        """
        request = self._request()
        with self._training(X, sample_weight) as table:
            model = fit_ppca(table, self._watched(request, table))
            if request.n_components is None and request.noise is None:
                self._warn_of_noise(table, model)
        return self._keep(model)

    partial_fit = partial_fit

    def _warn_of_noise(self, table: Table, model: SpikedModel) -> None:
        """Warn where columns have noise of their own, which factor analysis describes."""
        found = own_noise(table, model)
        if found is None:
            return
        scaled = self._standardizes()
        if not scaled and self._most_unequal(table) is not None:  # which was told
            return
        large, small = column_labels(self, (found.largest, found.smallest))
        share = ", as a share of their standard deviations" if scaled else ""
        warn(
            f"noise differs between columns{share}: that of column {large} is at least "
            f"{found.times:.{0 if found.times >= 10 else 1}f} times that of column {small}, and "
            "PPCA takes all to be equal. FactorAnalysis gives each its own, which raises the "
            f"log-likelihood per row by at least {found.gain:.2g}. Use FactorAnalysis, or give "
            f"n_components={model.n_components} to keep this model.",
            NoiseWarning,
        )

    def to_dual(self, X: Rows | None = None) -> Any:
        """Return the same model in kernels: `DualPPCA`, linear kernel, noise of dimension d.

        Parameters
        ----------
        X : array of shape (m, d), default=None
            Rows against which its kernel values are taken (`X_fit_`), such as the training rows;
            by default the mean and one point along every axis.

        Returns
        -------
        DualPPCA
            Fitted, with the same likelihood, posterior and distribution of samples. Not after
            `standardize=True`: its kernel would be one of other rows.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> type(PPCA(2).fit(X).to_dual(X)).__name__
        'DualPPCA'
        """
        if self._units is not None:
            remedy = "Standardise the rows yourself, fit PPCA to them, and ask that."
            raise ValueError(expected("standardize", "False for to_dual", True, remedy))
        g = self._fitted.gaussian
        points = None
        if X is not None:
            points = backend.working(self._beside_model(check_matrix(X, "X"), "to_dual"))
        # by its public name: `estimators.dual` imports this module for the way back
        DualPPCA: Any = sys.modules["dualpca"].DualPPCA
        noise = 0 if self.noise_variance == 0 else g.noise or None
        dual = DualPPCA(g.rank, kernel="linear", noise_variance=noise, noise_dim=g.dim)
        dual._model, dual.n_features_in_ = to_dual(self._fitted, points), g.dim
        return dual
