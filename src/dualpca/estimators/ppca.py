"""Probabilistic principal component analysis: closed form or EM."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.estimators._convergence import publish_record
from dualpca.estimators._incomplete import IncompleteRows, named_columns
from dualpca.estimators._linear import LinearGaussian, publish_axes
from dualpca.estimators._ppca_fits import (
    Fitted,
    fit_closed,
    fit_em,
    fit_incomplete_rows,
    fit_stream,
    open_stream,
    start_of,
)
from dualpca.estimators._validation import (
    all_finite,
    check_choice,
    check_finite_result,
    check_number,
    latent_rows,
    used_rows,
)
from dualpca.missing import (
    Factors,
    has_missing,
    observed_part,
    observed_weights,
    quadratic,
)
from dualpca.moments import refuse_nonfinite
from dualpca.representations import Primal, Scatter
from dualpca.rules import check_noise
from dualpca.solvers import SOLVERS
from dualpca.streaming import Stream


class PPCA(IncompleteRows, LinearGaussian):
    """Probabilistic PCA: x = Wz + μ + ε with z ~ N(0, I_q) and ε ~ N(0, σ²I_d).

    NaN is welcome anywhere, in `fit` and afterwards: rows count with what they observed (missing
    at random), by the exact likelihood of that, never by filling in.

    Parameters
    ----------
    n_components : int, float, str or None
        A count; a share of the variance between 0 and 1; the name of a rule: 'evidence' (Minka),
        'bic', 'parallel', 'gavish-donoho'; 'cv-rows', the likelihood of held-out rows;
        'cv-entries', the prediction of hidden entries; 'cv', which is the latter where values are
        missing and the former where none is. None is the number of variances above
        `noise_variance` where that is given, otherwise 'evidence'. With NaN, a count, 'bic' or
        one of the three.
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
    n_init : int
        `fit` with NaN: number of starts of EM, of which the most likely end is kept. Small tables
        with several latents can have more than one maximum.
    verbose : bool
        Show on standard error how far EM and cross-validation have come.

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
    selection_ : Selection
        After cross-validation: `candidates`, their `q2` and `loglikelihood` with standard errors
        (`q2_error`, `loglikelihood_error`), and the one `chosen`.

    Notes
    -----
    `partial_fit` is exact while chunks are complete. The first incomplete rows are fitted as `fit`
    would, with all complete ones; from then on every incomplete chunk is seen once, by online EM
    (Cappé & Moulines 2009), which tends to the fit of all rows if they come in random order; late
    ones count more, so a sorted stream ends far from it: shuffle it first. `converged_` is then
    False, and `loglikelihood_` an estimate from what is remembered. Memory is O(dq²), with fewer
    than max(100, 10(q + 1)) rows that wait, and O(d²) for complete chunks. A feature that no chunk
    has observed yet is an error when the model is read, not before.

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
        "selection_",
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
        n_init: int = 1,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.noise_variance = noise_variance
        self.method = method
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_init = n_init
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_choice("method", self.method, ("closed", "em"))
        check_choice("solver", self.solver, ("auto", *SOLVERS))
        check_number("tol", self.tol, 0)
        check_number("max_iter", self.max_iter, 1, integer=True)
        check_number("n_init", self.n_init, 1, integer=True)
        if self.noise_variance is not None:
            check_noise(self.noise_variance)

    def _fit_rows(self, X: Array, weights: Array | None) -> None:
        if has_missing(X):
            with named_columns(self):
                self._set(fit_incomplete_rows(self, X, weights), X)
        else:
            super()._fit_rows(X, weights)

    def _absorb(self, state: Any, X: Array, weights: Array | None) -> tuple[Any, int]:
        if not isinstance(state, Stream) and not has_missing(X):
            return super()._absorb(state, X, weights)
        stream = open_stream(self, state).add(X, weights, start_of(self))
        return stream, used_rows(X, observed_weights(X, weights))

    def _publish_stream(self, state: Any, count: int, like: Array) -> None:
        if isinstance(state, Stream):
            with named_columns(self):
                self._set(fit_stream(self, state, count), like)
        else:
            super()._publish_stream(state, count, like)

    def _publish(self, operator: Primal | Scatter, count: int, like: Array) -> None:
        fit = fit_em if self.method == "em" else fit_closed
        self._set(fit(self, operator, count), like)

    def _set(self, found: Fitted, like: Array) -> None:
        """Set the fitted attributes, in the dtype of `like`."""
        publish_axes(self, found.mean, found.spectrum, like)
        self.explained_variance_ = _array.cast_like(found.gaussian.values, like)
        self.noise_variance_ = found.gaussian.noise
        self.n_samples_ = found.n_rows
        publish_record(self, found.record, quiet=found.endless)

    @property
    def _factors(self) -> Factors:
        gaussian, frame = self._gaussian, self._frame
        psi = _array.asarray(np.full(gaussian.dim, gaussian.noise), frame.mean)
        return Factors(self._axes * gaussian.spread, frame.mean, psi)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that NaN is welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

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
        return _array.cast_like(self._posterior(X)[0], X)

    def _posterior(self, X: Array) -> tuple[Array, Array | None]:
        """Return E[z | x] and, where rows have covariances of their own, those."""
        with np.errstate(over="ignore", invalid="ignore"):
            Y = self._frame.coordinates(self._axes, X)
        if not all_finite(Y) and has_missing(X):
            found = self._latents(X)
            return check_finite_result(found.mean, observed_part(X)), found.covariance
        return self._gaussian.posterior_mean(check_finite_result(Y, X)), None

    def posterior(self, X: Any) -> tuple[Array, Array]:
        """Return mean and covariance of the latents given each row.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        mean : array of shape (n, q)
        covariance : array of shape (n, q, q)
            σ²M⁻¹ = diag(σ²/ℓ), the same for every row if all are complete (then a view of one
            matrix). Rows with NaN have covariances of their own; the prior's, if empty.
        """
        X = self._new_rows(X, "posterior")
        xp = _array.namespace(X)
        mean, own = self._posterior(X)
        if own is not None:
            return _array.cast_like(mean, X), _array.cast_like(own, X)
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
        Z = latent_rows(self, X, "inverse_transform")
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
        mean, own = self._posterior(X)
        W = self._factors.W
        signal = _array.cast_like(mean @ W.T + self._factors.mu, X)
        if not return_std:
            return signal
        if own is not None:
            return signal, _array.cast_like(xp.sqrt(quadratic(own, W)), X)
        std = _array.cast_like(xp.sqrt((W * W) @ self._gaussian.posterior_variance), X)
        return signal, xp.broadcast_to(std, tuple(X.shape))

    def score_samples(self, X: Any) -> Array:
        """Return the log-density of every row; of what it observed, where there is NaN.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        array of shape (n,)
            ln N(x_o; μ_o, W_oW_oᵀ + σ²I), by Woodbury in q; 0 for a row with nothing observed.
        """
        rows = self._new_rows(X, "score_samples")
        with np.errstate(over="ignore", invalid="ignore"):
            density = self._gaussian.log_density(*self._frame.project(self._axes, rows))
        if not all_finite(density) and has_missing(rows):
            density, rows = self._latents(rows).log_density, observed_part(rows)
        return check_finite_result(density, rows)

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
            W σ²M⁻¹ Wᵀ + σ²I, the same for every complete row. Rows with NaN have covariances of
            their own and are refused: `conditional` gives those.
        """
        refuse_nonfinite(self._new_rows(X, "posterior_predictive"))
        mean = self.reconstruct(X)
        gaussian = self._gaussian
        return mean, self._dense(gaussian.signal_variance, gaussian.noise, power=1)
