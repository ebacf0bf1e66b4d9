"""Probabilistic principal component analysis: closed form or EM."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dualpca import _array
from dualpca._typing import Array
from dualpca.em import NO_NOISE, fit_ppca, ppca_step
from dualpca.estimators._components import check_request, is_count, leading
from dualpca.estimators._linear import LinearGaussian, publish_axes
from dualpca.estimators._validation import (
    check_choice,
    check_finite_result,
    check_number,
    generator,
)
from dualpca.gaussian import SpikedGaussian
from dualpca.representations import Primal, Scatter
from dualpca.rules import check_noise, given_noise, maximum_likelihood
from dualpca.solvers import SOLVERS
from dualpca.spectrum import Spectrum


class PPCA(LinearGaussian):
    """Probabilistic PCA: x = Wz + μ + ε with z ~ N(0, I_q) and ε ~ N(0, σ²I_d).

    Parameters
    ----------
    n_components : int, float, str or None
        A count; a share of the variance between 0 and 1; the name of a rule: 'evidence' (Minka),
        'bic', 'parallel', 'gavish-donoho' or 'cv'. None is the number of variances above
        `noise_variance` where that is given, otherwise 'evidence'.
    noise_variance : float, optional
        σ². None for maximum likelihood.
    method : {'closed', 'em'}
        Closed form from the spectrum, or EM, accelerated and monotone: the same model.
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

    loglikelihood_: float
    loglikelihoods_: list[float]
    n_iter_: int
    converged_: bool

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

    def _publish(self, operator: Primal | Scatter, count: int, like: Array) -> None:
        if self.method == "em":
            spectrum, gaussian = self._fit_em(operator, count)
        else:
            spectrum, gaussian = self._fit_closed(operator, count)
        publish_axes(self, operator, spectrum, like)
        self.explained_variance_ = _array.cast_like(gaussian.values, like)
        self.noise_variance_ = gaussian.noise
        self.n_samples_ = count

    def _fit_closed(
        self, operator: Primal | Scatter, count: int
    ) -> tuple[Spectrum, SpikedGaussian]:
        spectrum = self._spectrum(operator, count)
        gaussian = self._rule(spectrum, operator.n)
        gaussian.require_density()
        self.loglikelihood_ = gaussian.loglikelihood(operator.n, spectrum.trace)
        self.loglikelihoods_ = [self.loglikelihood_]
        self.n_iter_, self.converged_ = 1, True
        return spectrum.head(gaussian.rank), gaussian

    def _rule(self, spectrum: Spectrum, n: float) -> SpikedGaussian:
        if self.noise_variance is None:
            return maximum_likelihood(spectrum, n, spectrum.rank)
        asked = None if self.n_components is None else spectrum.rank
        return given_noise(spectrum, n, float(self.noise_variance), asked)

    def _spectrum(self, operator: Primal | Scatter, count: int) -> Spectrum:
        """Return the leading eigenpairs: all that can matter where σ² decides how many do."""
        request: Any = self.n_components
        if request is None and self.noise_variance is None:
            request = "evidence"
        check_request(request, count, operator.dim, self.solver)
        if request is None:  # at most tr/(nσ²) variances can exceed σ²
            bound = operator.trace / (operator.n * float(self.noise_variance or 1.0))
            request = int(min(count, operator.dim, max(bound, 1.0)))
        seed = 0 if self.random_state is None else generator(self.random_state)
        return leading(request, operator, count, solver=self.solver, tol=0.0, seed=seed)

    def _fit_em(self, operator: Primal | Scatter, count: int) -> tuple[Spectrum, SpikedGaussian]:
        check_request(self.n_components, count, operator.dim, self.solver)
        n, d = operator.n, operator.dim
        if is_count(self.n_components):
            q = max(int(self.n_components), 1)
        else:
            q = self._rule(self._spectrum(operator, count), n).rank
        rng = generator(0 if self.random_state is None else self.random_state)
        limits = (self.tol, self.max_iter)
        W, sigma2, record = fit_ppca(operator, q, n, rng, self.noise_variance, *limits)
        self.loglikelihood_ = ppca_step(operator, W, sigma2, n)[2]
        self.loglikelihoods_ = [*record.loglikelihoods, self.loglikelihood_]
        self.n_iter_, self.converged_ = record.n_iter, record.converged
        self._warn_unless_converged()
        U, s, _ = _array.svd(W)
        vanished = self.noise_variance is None and sigma2 <= 10 * NO_NOISE * operator.trace / n / d
        gaussian = SpikedGaussian(s**2 + sigma2, 0.0 if vanished else sigma2, d)
        gaussian.require_density()
        return Spectrum.of(n * gaussian.values, U, operator.trace, d), gaussian

    def _warn_unless_converged(self) -> None:
        if not self.converged_:
            warnings.warn(
                f"EM stopped after max_iter={self.max_iter} steps before the estimated distance "
                f"to the maximum fell below tol={self.tol:g}. Raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=5,
            )

    @property
    def loadings_(self) -> Array:
        """W = V (L − σ²I)^{1/2}, (d, q)."""
        return _array.cast_like(self._axes * self._gaussian.spread, self.components_)

    def transform(self, X: Any) -> Array:
        """Return the posterior mean of the latents, E[z | x], (n, q).

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        array of shape (n, q)
            √(ℓ − σ²)/ℓ · vᵀ(x − μ), which tends to the whitened PCA projection as σ² → 0.
        """
        X = self._new_rows(X, "transform")
        return _array.cast_like(self._gaussian.posterior_mean(self._coordinates(X)), X)

    def posterior(self, X: Any) -> tuple[Array, Array]:
        """Return mean and covariance of the latents given each row.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        mean : array of shape (n, q)
        covariance : array of shape (n, q, q)
            σ²M⁻¹ = diag(σ²/ℓ), the same for every complete row (a view of one matrix).
        """
        X = self._new_rows(X, "posterior")
        xp = _array.namespace(X)
        mean = self._gaussian.posterior_mean(self._coordinates(X))
        variance = self._gaussian.posterior_variance
        one = variance[:, None] * _array.asarray(np.eye(variance.shape[0]), variance)
        shape = (X.shape[0], *one.shape)
        one = _array.cast_like(one, X)
        return _array.cast_like(mean, X), xp.broadcast_to(one, shape)

    def inverse_transform(self, X: Any) -> Array:
        """Return the mean of the rows given latents, Wz + μ.

        Parameters
        ----------
        X : array of shape (n, q)
            Latents z.

        Returns
        -------
        array of shape (n, d)
        """
        Z = self._latent_rows(X, "inverse_transform")
        Y = _array.working(Z) * self._gaussian.spread
        return _array.cast_like(check_finite_result(self._frame.lift(self._axes, Y), Z), Z)

    def reconstruct(self, X: Any, return_std: bool = False) -> Any:
        """Return the posterior mean of the noise-free signal, Σ (1 − σ²/ℓ) y v + μ.

        Parameters
        ----------
        X : array of shape (n, d)
        return_std : bool
            Also return the posterior standard deviation of the signal.

        Returns
        -------
        array of shape (n, d), or a pair of them
        """
        X = self._new_rows(X, "reconstruct")
        xp = _array.namespace(X)
        signal = self._frame.lift(self._axes, self._gaussian.shrink(self._coordinates(X)))
        signal = _array.cast_like(signal, X)
        if not return_std:
            return signal
        V = self._axes
        std = _array.cast_like(xp.sqrt((V * V) @ self._gaussian.signal_variance), X)
        return signal, xp.broadcast_to(std, tuple(X.shape))

    def posterior_predictive(self, X: Any) -> tuple[Array, Array]:
        """Return mean and covariance of a new measurement of what each row measured.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        mean : array of shape (n, d)
            The signal, as in `reconstruct`.
        covariance : array of shape (d, d)
            W σ²M⁻¹ Wᵀ + σ²I, the same for every complete row.
        """
        mean = self.reconstruct(X)
        gaussian = self._gaussian
        return mean, self._dense(gaussian.signal_variance, gaussian.noise, power=1)
