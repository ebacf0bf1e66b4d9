"""What a fitted dual model says of points: latents, densities, novelty."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.estimators._base import check_finite_result, check_matrix, check_weights
from dualpca.estimators._dual_holes import coordinates, more_uncertain
from dualpca.estimators._dual_sampling import KernelSamples
from dualpca.estimators._kernel_inputs import new_points
from dualpca.operators import MappedSubspace, Subspace, UncertainSubspace


class DualModel(KernelSamples):
    """Posterior and density of a Gaussian in feature space.

    Subclasses provide `_gaussian`, `_space`, `_projector` (coordinates and distances of new
    points) and `_subspace` (the directions as expansions over points).
    """

    _projector: Subspace | MappedSubspace | UncertainSubspace
    _subspace: Subspace | MappedSubspace | UncertainSubspace
    eigen_solver: str

    def transform(self, X: Any) -> Array:
        """Return the posterior mean of the latents, h = nΛ⁻¹Aᵀkc (S0, Eq. 20).

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training points (m, n)
            Kernel values as they are: they are centred here, with the training means.

        Returns
        -------
        array of shape (m, q)
            √(ℓ − σ²)/ℓ · y with y the projections of `KernelPCA`.
        """
        rows = new_points(self, X, "transform", allow_nan=True)
        mean = self._gaussian.posterior_mean(coordinates(self, rows))
        return backend.cast_like(mean, backend.vector_like(rows))

    def posterior(self, X: Any) -> tuple[Array, Array]:
        """Return mean and covariance of the latents given each point.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values (m, n)

        Returns
        -------
        mean : array of shape (m, q)
        covariance : array of shape (m, q, q)
            σ²nΛ⁻¹ = diag(σ²/ℓ), the same for every complete point (then a view of one matrix).
            Rows with NaN are less certain by the covariance of their coordinates.
        """
        mean, covariance = self._with_covariance(self.transform(X))
        rows = new_points(self, X, "posterior", allow_nan=True)
        return mean, more_uncertain(self, rows, covariance)

    def posterior_kernel(self, K: Any, centered: bool = False) -> tuple[Array, Array]:
        """Return mean and covariance of the latents given kernel values against `X_fit_`.

        Parameters
        ----------
        K : array of shape (m, n)
            k(x, x_i); or kc, centred with the training means, as `sample_kernel` gives them.
        centered : bool
            Whether K is centred already.

        Returns
        -------
        mean : array of shape (m, q)
        covariance : array of shape (m, q, q)
        """
        check_is_fitted(self)
        if not isinstance(self._subspace, Subspace):
            raise ValueError(expected("eigen_solver", "one with points", self.eigen_solver))
        K = check_matrix(K, "K")
        backend.require_same_home(K, self.eigenvalues_, type(self).__name__)
        C, tilt = self._subspace.coefficients, self._subspace.tilt
        if K.shape[1] != C.shape[0]:
            what = f"of shape (m, {C.shape[0]}), a column for every row of X_fit_"
            raise ValueError(expected("K", what, tuple(K.shape)))
        Y = check_finite_result(backend.working(K) @ C - (0 * tilt if centered else tilt), K)
        return self._with_covariance(backend.cast_like(self._gaussian.posterior_mean(Y), K))

    def _with_covariance(self, mean: Array) -> tuple[Array, Array]:
        variance = self._gaussian.posterior_variance
        one = variance[:, None] * backend.asarray(np.eye(variance.shape[0]), variance)
        shape = (mean.shape[0], *one.shape)
        return mean, backend.namespace(mean).broadcast_to(backend.cast_like(one, mean), shape)

    def score_samples(self, X: Any) -> Array:
        """Return the log-density of every point's features, from projections and residual norm.

        Parameters
        ----------
        X : array of shape (m, d)

        Returns
        -------
        array of shape (m,)
            ln N(φ; φ̄, WWᵀ + σ²I_r), MATH 2.
        """
        rows = new_points(self, X, "score_samples")
        return check_finite_result(self._gaussian.log_density(*self._projector.project(rows)), rows)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the average log-density of the points' features.

        Parameters
        ----------
        X : array of shape (m, d)
        y : ignored
        sample_weight : array of shape (m,), optional
        """
        density = self.score_samples(X)
        w = check_weights(sample_weight, density[:, None])
        xp = backend.namespace(density)
        return float(xp.mean(density) if w is None else w @ density / xp.sum(w))

    def novelty(self, X: Any) -> Array:
        """Return the squared distance of features off the components, s(x) − Σy², (m,).

        Parameters
        ----------
        X : array of shape (m, d)
        """
        rows = new_points(self, X, "novelty")
        return check_finite_result(self._projector.project(rows).residual, rows)
