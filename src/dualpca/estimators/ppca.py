"""Probabilistic principal component analysis: closed form or EM, missing values or none."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dualpca.arrays import backend
from dualpca.data import InMemoryTable, has_missing, observed_weights
from dualpca.errors import expected
from dualpca.estimators._base import (
    LatentMethods,
    StreamingEstimator,
    attribute,
    check_checkpoint,
    check_choice,
    check_matrix,
    check_number,
    generator,
    watch_of,
)
from dualpca.gaussian import check_noise
from dualpca.models.dual import to_dual
from dualpca.models.incomplete import RefitRequest
from dualpca.models.spiked import PPCARequest, SpikedModel, fit_ppca, open_stream, ppca_of_stream
from dualpca.models.streaming import Stream
from dualpca.operators import used_rows
from dualpca.solvers import SOLVERS

if TYPE_CHECKING:
    from dualpca.estimators.bayesian import BayesianPCA


def iteration_limits(estimator: Any) -> dict[str, Any]:
    """Check when an iterative fit is to stop, and its checkpoint; return them for its request."""
    check_number("tol", estimator.tol, 0)
    check_number("max_iter", estimator.max_iter, 1, integer=True)
    check_checkpoint(estimator)
    watch = watch_of(estimator)
    return {"tol": estimator.tol, "max_iter": estimator.max_iter, "watch": watch}


def spiked_parameters(estimator: PPCA | BayesianPCA) -> dict[str, Any]:
    """Check the parameters that PPCA and BayesianPCA share; return them for their requests."""
    check_choice("solver", estimator.solver, ("auto", *SOLVERS))
    noise, state = estimator.noise_variance, estimator.random_state
    if noise is not None:
        check_noise(noise, zero=estimator._zero_noise)
    limits = iteration_limits(estimator)
    rng = 0 if state is None else generator(state)
    return {"noise": noise, "solver": estimator.solver, "rng": rng, **limits}


class PPCA(LatentMethods, StreamingEstimator):
    """Probabilistic principal component analysis, with missing values or without.

    The model is x = Wz + μ + ε with z ~ N(0, I_q) and ε ~ N(0, σ²I_d).

    NaN is accepted anywhere, in `fit` and afterwards: the likelihood is exactly that of the
    observed entries (missing at random); nothing is filled in.

    Parameters
    ----------
    n_components : int, float, str or None, default=None
        A count; a share of the variance between 0 and 1; the name of a rule: 'evidence' (Minka),
        'bic', 'parallel' (Horn's parallel analysis), 'white-noise', 'gavish-donoho'; 'cv-rows',
        the likelihood of held-out rows; 'cv-entries', the prediction of hidden entries; 'cv',
        which is the latter where values are missing and the former where none is. None is 'cv',
        or, where `noise_variance` is given, the number of variances above it; `partial_fit`, which
        keeps no rows, takes 'evidence'. With NaN, a count, 'bic', 'parallel' or one of the three.
    noise_variance : float, default=None
        σ², of standardised columns with `standardize`. None for maximum likelihood. 0 is the limit
        σ² → 0, exactly: PCA as a model, by the closed form or by EM for PCA (Roweis 1998). Rows
        have no density then (`score` says so, `loglikelihood_` is −∞); everything else works.
    method : {'closed', 'em'}, default='closed'
        Closed form from the spectrum, or EM, accelerated and monotone: the same model. Rows with
        NaN are always fitted by EM.
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

    _model: SpikedModel
    _zero_noise = True  # the limit is a model too

    selection_ = attribute("selection")

    def __init__(
        self,
        n_components: int | float | str | None = None,
        *,
        noise_variance: float | None = None,
        method: str = "closed",
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: Any = None,
        n_init: int = 1,
        standardize: bool = False,
        verbose: bool = False,
        checkpoint: Any = None,
        device: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.noise_variance = noise_variance
        self.method = method
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_init = n_init
        self.standardize = standardize
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.device = device

    def _request(self) -> PPCARequest:
        """Check the parameters and return them for the fit."""
        check_choice("method", self.method, ("closed", "em"))
        check_number("n_init", self.n_init, 1, integer=True)
        shared = spiked_parameters(self)
        return PPCARequest(self.n_components, method=self.method, n_init=self.n_init, **shared)

    def _refit_request(self) -> RefitRequest:
        return RefitRequest(fixed_noise=self.noise_variance is not None)

    _fit = staticmethod(fit_ppca)
    _fit_stream = staticmethod(ppca_of_stream)

    def _absorb(self, state: Any, table: InMemoryTable, request: PPCARequest) -> tuple[Any, int]:
        X, weights = table.rows, table.weights
        if not isinstance(state, Stream) and not has_missing(X):
            return super()._absorb(state, table, request)
        stream = open_stream(state, request).add(X, weights, request.start)
        return stream, used_rows(X, observed_weights(X, weights))

    def to_dual(self, X: Any = None) -> Any:
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
        points = None if X is None else backend.working(check_matrix(X, "X"))
        # by its public name: `estimators.dual` imports this module for the way back
        DualPPCA: Any = sys.modules["dualpca"].DualPPCA
        noise = 0 if self.noise_variance == 0 else g.noise or None
        dual = DualPPCA(g.rank, kernel="linear", noise_variance=noise, noise_dim=g.dim)
        dual._model, dual.n_features_in_ = to_dual(self._fitted, points), g.dim
        return dual
