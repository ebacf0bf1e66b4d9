"""Probabilistic principal component analysis: closed form or EM."""

from __future__ import annotations

from typing import Any

from dualpca._typing import Array
from dualpca.estimators._latent import LatentGaussian
from dualpca.estimators._ppca_fits import fit_closed, fit_em, fit_incomplete_rows
from dualpca.estimators._validation import check_choice, check_number
from dualpca.missing import has_missing
from dualpca.representations import Primal, Scatter
from dualpca.rules import check_noise
from dualpca.solvers import SOLVERS


class PPCA(LatentGaussian):
    """Probabilistic PCA: x = Wz + μ + ε with z ~ N(0, I_q) and ε ~ N(0, σ²I_d).

    NaN is welcome anywhere, in `fit` and afterwards: rows count with what they observed (missing
    at random), by the exact likelihood of that, never by filling in.

    Parameters
    ----------
    n_components : int, float, str or None
        A count; a share of the variance between 0 and 1; the name of a rule: 'evidence' (Minka),
        'bic', 'parallel', 'gavish-donoho' or 'cv'. None is the number of variances above
        `noise_variance` where that is given, otherwise 'evidence'. With NaN, a count or 'cv', which
        then predicts entries that it hid.
    noise_variance : float, optional
        σ². None for maximum likelihood.
    method : {'closed', 'em'}
        Closed form from the spectrum, or EM, accelerated and monotone: the same model. Rows with
        NaN are always fitted by EM.
    solver : {'auto', 'qr', 'dense', 'gram', 'krylov'}
        For the closed form, and for rules that read the spectrum.
    tol : float
        'em': estimated relative distance to the maximum at which to stop.
    max_iter : int
        'em': largest number of steps.
    random_state : None, int, Generator or RandomState
        Start of EM and of block Krylov. None is a fixed seed.

    Attributes
    ----------
    mean_ : array of shape (d,)
    components_ : array of shape (q, d)
        Principal axes v, orthonormal, largest variance first.
    loadings_ : array of shape (d, q)
        W = V (L − σ²I)^{1/2}.
    explained_variance_ : array of shape (q,)
        ℓ, with divisor n.
    explained_variance_ratio_ : array of shape (q,)
    noise_variance_ : float
        σ².
    loglikelihood_ : float
        Of all training rows together.
    loglikelihoods_ : list of float
        At every step kept by EM; one number for the closed form.
    n_components_, n_iter_, n_samples_ : int
    converged_ : bool

    Notes
    -----
    Tipping & Bishop (1999). Costs are those of the solver, or O(ndq) a step of EM; densities,
    posteriors and samples cost O(dq) a row. Nothing d×d is formed but by `get_covariance`,
    `get_precision` and `posterior_predictive`.

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

    _fitted_names = (
        "components_",
        "explained_variance_",
        "explained_variance_ratio_",
        "mean_",
        "noise_variance_",
        "n_components_",
        "n_samples_",
        "loglikelihood_",
        "loglikelihoods_",
        "n_iter_",
        "converged_",
        "_reference",
    )

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
    ) -> None:
        self.n_components = n_components
        self.noise_variance = noise_variance
        self.method = method
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_choice("method", self.method, ("closed", "em"))
        check_choice("solver", self.solver, ("auto", *SOLVERS))
        check_number("tol", self.tol, 0)
        check_number("max_iter", self.max_iter, 1, integer=True)
        if self.noise_variance is not None:
            check_noise(self.noise_variance)

    def _fit_rows(self, X: Array, weights: Array | None) -> None:
        if has_missing(X):
            self._set(fit_incomplete_rows(self, X, weights), X)
        else:
            super()._fit_rows(X, weights)

    def _publish(self, operator: Primal | Scatter, count: int, like: Array) -> None:
        fit = fit_em if self.method == "em" else fit_closed
        self._set(fit(self, operator, count), like)
