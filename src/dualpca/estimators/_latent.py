"""What every model x = Wz + μ + ε with isotropic noise can do, rows with NaN included."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualpca.arrays import Array, backend, quadratic
from dualpca.data import has_missing, observed_part, refuse_nonfinite
from dualpca.errors import NonFiniteError
from dualpca.estimators._base import (
    by_parts,
    check_finite_result,
    latent_rows,
    publish_record,
    variances_like,
)
from dualpca.estimators._incomplete import IncompleteRows
from dualpca.estimators._linear import LinearGaussian, publish_axes
from dualpca.estimators._ppca_fits import Fitted
from dualpca.gaussian import FactorMonitor, Factors, Monitor, Reference


class LatentGaussian(IncompleteRows, LinearGaussian):
    """Base of probabilistic and Bayesian PCA: the posterior of latents, and what follows from it.

    Subclasses fit; they hand a `Fitted` to `_set`.
    """

    def _absorb(self, state: Any, X: Array, weights: Array | None) -> tuple[Any, int]:
        if has_missing(X):
            raise NonFiniteError(
                f"{type(self).__name__}.partial_fit takes complete rows only, got NaN: moments "
                "cannot hold holes. Give all rows to fit, which takes them as they are."
            )
        return super()._absorb(state, X, weights)

    def _set(self, found: Fitted, like: Array) -> None:
        """Set the fitted attributes, in the dtype of `like`."""
        publish_axes(self, found.mean, found.spectrum, like)
        self.explained_variance_ = variances_like(found.gaussian.values, like)
        self.noise_variance_ = found.gaussian.noise
        self.n_samples_ = found.n_rows
        self._reference = Reference(found.n, found.n)
        publish_record(self, found.record, quiet=found.endless)

    @property
    def _factors(self) -> Factors:
        gaussian, frame = self._gaussian, self._frame
        psi = backend.asarray(np.full(gaussian.dim, gaussian.noise), frame.mean)
        return Factors(self._axes * gaussian.spread, frame.mean, psi)

    def _monitor(self, X: Array | None = None) -> Monitor:
        if X is None or not has_missing(X):
            return super()._monitor()
        return FactorMonitor(self._factors, self._reference, float(self.noise_variance_))

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that NaN is welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def loadings_(self) -> Array:
        """W = V (L − σ²I)^{1/2}, (d, q)."""
        return backend.cast_like(self._axes * self._gaussian.spread, self.components_)

    @by_parts("n_components_")
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
        return backend.cast_like(self._posterior(X)[0], X)

    def _posterior(self, X: Array) -> tuple[Array, Array | None]:
        """Return E[z | x] and, where rows have covariances of their own, those."""
        with np.errstate(over="ignore", invalid="ignore"):
            Y = self._frame.coordinates(self._axes, X)
        if not backend.all_finite(Y) and has_missing(X):
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
        xp = backend.namespace(X)
        mean, own = self._posterior(X)
        if own is not None:
            return backend.cast_like(mean, X), backend.cast_like(own, X)
        variance = self._gaussian.posterior_variance
        one = variance[:, None] * backend.asarray(np.eye(variance.shape[0]), variance)
        shape = (X.shape[0], *one.shape)
        one = backend.cast_like(one, X)
        return backend.cast_like(mean, X), xp.broadcast_to(one, shape)

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
        Y = backend.working(Z) * self._gaussian.spread
        return backend.cast_like(check_finite_result(self._frame.lift(self._axes, Y), Z), Z)

    @by_parts("n_features_in_")
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
        xp = backend.namespace(X)
        mean, own = self._posterior(X)
        W = self._factors.W
        signal = backend.cast_like(mean @ W.T + self._factors.mu, X)
        if not return_std:
            return signal
        if own is not None:
            return signal, backend.cast_like(xp.sqrt(quadratic(own, W)), X)
        std = backend.cast_like(xp.sqrt((W * W) @ self._gaussian.posterior_variance), X)
        return signal, xp.broadcast_to(std, tuple(X.shape))

    @by_parts(None)
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
        if not backend.all_finite(density) and has_missing(rows):
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
