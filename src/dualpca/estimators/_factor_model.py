"""What a fitted factor analysis says of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.data import observed_part
from dualpca.estimators._base import (
    average,
    by_parts,
    check_finite_result,
    check_number,
    generator,
    latent_rows,
    new_rows,
    parts_of,
)
from dualpca.estimators._diagnostics import Diagnostics
from dualpca.estimators._incomplete import IncompleteRows
from dualpca.gaussian import FactorMonitor, Factors, Monitor, Reference


class FactorModel(Diagnostics, IncompleteRows):
    """Posteriors, densities and samples of x = Wz + μ + ε with a noise for every feature."""

    components_: Array  # (q, d)
    mean_: Array  # (d,)
    noise_variance_: Array  # (d,)
    _reference: Reference

    @property
    def _factors(self) -> Factors:
        parts = (self.components_.T, self.mean_, self.noise_variance_)
        return Factors(*(backend.working(part) for part in parts))

    def _monitor(self, X: Array | None = None) -> Monitor:
        return FactorMonitor(self._factors, self._reference)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    @by_parts("_n_features_out")
    def transform(self, X: Any) -> Array:
        """Return the posterior mean of the factors given what each row observed, (n, q).

        Parameters
        ----------
        X : array of shape (n, d)
        """
        return self.posterior(X)[0]

    def posterior(self, X: Any) -> tuple[Array, Array]:
        """Return mean (n, q) and covariance (n, q, q) of the factors given each row.

        Parameters
        ----------
        X : array of shape (n, d)
        """
        rows = new_rows(self, X, "transform")
        found = self._latents(rows)
        check_finite_result(found.mean, observed_part(rows))
        mean, covariance = found.mean, found.covariance
        return backend.cast_like(mean, rows), backend.cast_like(covariance, rows)

    def inverse_transform(self, X: Any) -> Array:
        """Return the mean of the rows given factors, Wz + μ, (n, d).

        Parameters
        ----------
        X : array of shape (n, q)
            Factors.
        """
        Z = latent_rows(self, X, "inverse_transform")
        rows = backend.working(Z) @ self._factors.W.T + self._factors.mu
        return backend.cast_like(check_finite_result(rows, Z), Z)

    @by_parts("n_features_in_")
    def reconstruct(self, X: Any) -> Array:
        """Return the posterior mean of the noise-free signal, (n, d).

        Parameters
        ----------
        X : array of shape (n, d)
        """
        return self.inverse_transform(self.posterior(X)[0])

    @by_parts(None)
    def score_samples(self, X: Any) -> Array:
        """Return the log-density of what each row observed, (n,).

        Parameters
        ----------
        X : array of shape (n, d)
        """
        rows = new_rows(self, X, "score_samples")
        return check_finite_result(self._latents(rows).log_density, observed_part(rows))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the average log-density of the rows.

        Parameters
        ----------
        X : array of shape (n, d)
        y : ignored
        """
        parts = parts_of(X, fitting=False)
        if parts is not None:
            return average(self, parts)
        density = self.score_samples(X)
        return float(backend.namespace(density).mean(density))

    def get_covariance(self) -> Array:
        """Return WWᵀ + diag ψ, (d, d)."""
        check_is_fitted(self)
        W, psi = self._factors.W, self._factors.psi
        eye = backend.asarray(np.eye(W.shape[0]), W)
        return backend.cast_like(W @ W.T + psi * eye, self.components_)

    def get_precision(self) -> Array:
        """Return the inverse covariance, (d, d), by Woodbury in q."""
        check_is_fitted(self)
        W, psi = self._factors.W, self._factors.psi
        B = W / psi[:, None]
        M = W.T @ B + backend.asarray(np.eye(W.shape[1]), W)
        eye = backend.asarray(np.eye(W.shape[0]), W)
        inverse = eye / psi - B @ backend.namespace(W).linalg.solve(M, B.T)
        return backend.cast_like(inverse, self.components_)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw new rows, (n_samples, d)."""
        check_is_fitted(self)
        check_number("n_samples", n_samples, 1, integer=True)
        rng, (W, mu, psi) = generator(random_state), self._parts()
        z = backend.normal(rng, (n_samples, W.shape[1]), W)
        noise = backend.normal(rng, (n_samples, W.shape[0]), W)
        rows = z @ W.T + mu + backend.namespace(W).sqrt(psi) * noise
        return backend.cast_like(rows, self.components_)

    def _parts(self) -> tuple[Array, Array, Array]:
        factors = self._factors
        return factors.W, factors.mu, factors.psi
