"""Bayesian principal component analysis, which finds its own number of components."""

from __future__ import annotations

from dataclasses import KW_ONLY, field

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data import Moments, Units
from dualpca.estimators._attributes import attribute
from dualpca.estimators._checks import check_choice, check_draws
from dualpca.estimators._linear import LatentEstimator
from dualpca.estimators._shell import parametrized
from dualpca.estimators._streaming import MomentStream, by_moments, partial_fit
from dualpca.estimators._types import Resumable, Rows, Seed, Weights
from dualpca.estimators.ppca import spiked_request
from dualpca.models.bayesian import (
    BayesianModel,
    BayesianRequest,
    RelevanceFit,
    bayesian_of_operator,
    fit_bayesian,
)
from dualpca.models.completing import RefitRequest
from dualpca.operators import Scatter


def bayesian_of_moments(
    moments: Moments, count: int, like: Array, request: BayesianRequest
) -> BayesianModel:
    """Return the model of a stream."""
    return bayesian_of_operator(Scatter(moments), count, like, request)


@parametrized
class BayesianPCA(LatentEstimator):
    """Bayesian PCA, which finds the number of components from the data.

    The model is x = Wz + μ + ε, where every column of W has a prior N(0, α⁻¹I) of its own.

    Columns that the data do not ask for are switched off (α → ∞), so the number of components
    need not be given. NaN is accepted anywhere.

    Parameters
    ----------
    n_components : int, default=None
        Number of directions to start from; never more are kept. None is the smaller of d − 1 and
        half the number of rows: more would leave too little to tell noise by.
    method : {'ard', 'variational'}, default='ard'
        'ard': α is re-estimated between EM steps; for complete rows the fixed point is found from
        the spectrum, by Newton's method. 'variational': a posterior of the form
        q(Z) q(W) q(α) q(τ) q(μ), with a lower bound on the evidence.
    noise_variance : float, default=None
        σ². None to estimate it.
    solver : {'auto', 'qr', 'dense', 'gram', 'krylov'}, default='auto'
        For the spectrum of complete rows.
    tol : float, default=1e-06
        'ard' with NaN: estimated relative distance to the maximum at which to stop.
        'variational': that of the bound, in nats per row.
    max_iter : int, default=1000
        Largest number of steps.
    random_state : None, int, Generator or RandomState, default=None
        Start of the iterations with NaN and of block Krylov. None is a fixed seed.
    standardize : bool, default=False
        Divide every column by its standard deviation (over observed entries, divisor n; a
        constant one by 1) before the fit, so that no unit counts more than another. Rows,
        loadings, densities and covariances are given in the units of X all the same.
    verbose : bool, default=False
        Say on standard error where and how the fit works, and how far it has come.
    checkpoint : path or Checkpoint, default=None
        A file that an interrupted fit resumes from, as in `PPCA`; where it iterates, that is with
        NaN or 'variational'.
    device : None, 'auto', 'cpu' or 'cuda', default=None
        Where to fit: None is where the rows are, 'auto' a GPU if there are enough rows. Host
        arrays are copied there and results back, so that the fitted model is on the host.

    Attributes
    ----------
    mean_ : array of shape (d,)
    scale_ : array of shape (d,) or None
        What every column was divided by; None without `standardize`.
    components_ : array of shape (q, d)
        Principal axes of the directions kept, orthonormal, longest first. With `standardize` those
        of standardised columns; variances, noise and relevance are then theirs too.
    n_effective_ : int
        Number of directions with finite α. Where it is 0, one axis of length 0 is kept, with a
        warning: the model is then a sphere, and latents are 0.
    relevance_ : array of shape (q started,)
        1/α, the prior variance of a loading, for each direction the fit started from; 0 for those
        switched off.
    loadings_, loadings_std_ : arrays of shape (d, q)
        W, and its posterior standard deviations (see `sample_loadings`), in the units of X.
    explained_variance_ : array of shape (q,)
        wᵀw + σ², the variances of the model; shrunk, so below those of the data.
    explained_variance_ratio_ : array of shape (q,)
    noise_variance_ : float
        σ²; 1/E[τ] if variational.
    loglikelihood_ : float
        Of all training rows, at the fitted W, μ and σ².
    bound_, bounds_ : float, list of float
        'variational': the lower bound on ln p(X), at every step. 'ard': the penalised
        log-likelihood Σ ln p(x) − ½Σ α wᵀw + (d/2) Σ ln α, since the last direction was switched
        off. Neither ever decreases.
    n_parameters_ : int
        Free parameters of a `PPCA` with the components kept.
    n_components_, n_iter_, n_samples_ : int
    converged_ : bool

    Notes
    -----
    Bishop (1999), "Bayesian PCA" and "Variational principal components". Priors of α, τ and μ are
    vague and in the units of the data. Complete rows: the solver's cost for q eigenpairs, then
    O(q) per Newton step ('ard') or O(ndq) per step ('variational'); with NaN O(ndq²) per step and
    O(q³) per pattern of missing values. Nothing d×d is formed, except by
    `get_covariance` and `get_precision`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import BayesianPCA
    >>> X = np.random.default_rng(0).normal(size=(300, 10)) * np.repeat([1.0, 0.5], [3, 7])
    >>> model = BayesianPCA().fit(X)
    >>> model.n_effective_, model.relevance_.round(2)
    (3, array([0.08, 0.08, 0.06, 0.  , 0.  , 0.  , 0.  , 0.  , 0.  ]))
    """

    _zero_noise = False
    _model: BayesianModel = field(init=False)
    _stream: MomentStream = field(init=False)
    _streaming = by_moments(bayesian_of_moments)

    loadings_std_ = attribute("loadings_std", Units.loadings)
    relevance_ = attribute("relevance")
    n_effective_ = attribute("n_effective")
    bound_ = attribute("bound", Units.loglikelihood)
    bounds_ = attribute("bounds", Units.loglikelihood)

    n_components: int | None = None
    _: KW_ONLY
    method: str = "ard"
    noise_variance: float | None = None
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 1000
    random_state: Seed = None
    standardize: bool = False
    verbose: bool = False
    checkpoint: Resumable = None
    device: str | None = None

    def _request(self) -> BayesianRequest:
        """Check the parameters and return them for the fit."""
        check_choice("method", self.method, ("ard", "variational"))
        return spiked_request(self, BayesianRequest)

    def _refit_request(self) -> RefitRequest:
        return RefitRequest(RelevanceFit, fixed_noise=self.noise_variance is not None)

    def fit(self, X: Rows, y: object = None, sample_weight: Weights = None) -> BayesianPCA:
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
        >>> from dualpca import BayesianPCA
        >>> X = load_iris().data
        >>> BayesianPCA(2).fit(X).components_.shape
        (2, 4)
        """
        return self._learn(fit_bayesian, X, sample_weight)

    partial_fit = partial_fit

    def sample_loadings(self, n_draws: int = 100, random_state: Seed = None) -> Array:
        """Draw loadings from their posterior, so that they carry error bars.

        Parameters
        ----------
        n_draws : int, default=100
        random_state : None, int, Generator or RandomState, default=None

        Returns
        -------
        array of shape (n_draws, d, q)

        Notes
        -----
        A Gaussian approximation at the fit (curvature of the likelihood along principal axes,
        Anderson 1963): rows move off the span, columns turn into each other and change their
        lengths; σ², μ and α count as known, and columns of nearly equal length turn freely. With
        NaN the information is that of the posterior means of the latents.

        Both methods use it. The factorised q(W) of 'variational' holds the latents apart and is
        too sure: its 90 % intervals cover 48 to 79 %, the less the stronger the signal.

        In simulations 90 % intervals cover 89 to 91 % with 200 rows or more; with 100 rows 90 %
        after 'variational', and 87 % after 'ard', which shrinks loadings more. It is for n ≫ q.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import BayesianPCA
        >>> X = np.random.default_rng(0).normal(size=(300, 4)) * [4.0, 2.0, 1.0, 1.0]
        >>> BayesianPCA().fit(X).sample_loadings(50, random_state=0).shape
        (50, 4, 2)
        """
        model = self._fitted
        draws = model.sample_loadings(*check_draws(n_draws, random_state, "n_draws"))
        return self._outward(Units.loadings, draws)

    def summary(self) -> str:
        """Return a table of the directions the fit started from, as text.

        Returns
        -------
        text : str

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import BayesianPCA
        >>> X = np.random.default_rng(0).normal(size=(300, 4)) * [4.0, 2.0, 1.0, 1.0]
        >>> print(BayesianPCA().fit(X).summary())
        direction    variance   relevance  state
                1       15.11       3.532  kept
                2        3.47      0.6222  kept
                3           -           0  off
        noise 0.9806; 2 of 3 directions are relevant
        """
        relevance = np.sort(backend.to_numpy(self.relevance_))[::-1]
        variances = [f"{v:.4g}" for v in backend.to_numpy(self.explained_variance_)]
        lines = [f"{'direction':>9} {'variance':>11} {'relevance':>11}  state"]
        for k, value in enumerate(relevance):
            shown, state = (variances[k], "kept") if value > 0 else ("-", "off")
            lines.append(f"{k + 1:>9} {shown:>11} {value:>11.4g}  {state}")
        count = f"{self.n_effective_} of {relevance.size} directions are relevant"
        return "\n".join([*lines, f"noise {self.noise_variance_:.4g}; {count}"])
