"""What a fitted mixture can do with rows: tell, score, fill, draw."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend, quadratic
from dualpca.data import observed_part, refuse_infinite, refuse_nonfinite
from dualpca.estimators._base import (
    as_frame,
    average,
    by_parts,
    check_finite_result,
    check_number,
    check_rows,
    check_weights,
    generator,
    parts_of,
    require_in_memory,
)
from dualpca.estimators._placing import OnDevice, placed
from dualpca.models.emissions import Emissions
from dualpca.models.kernel_space import KernelSpace
from dualpca.models.mixture import Mixture
from dualpca.preimages import Auto, Span


class MixtureRows(OnDevice, ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Methods of a mixture that follow from its fitted attributes."""

    weights_: Array  # (K,)
    means_: Array  # (K, d)
    noise_variance_: Array  # (K,)
    loadings_: list[Array]
    n_mixtures_: int
    n_components_: list[int]
    kernel: Any
    tied_noise: bool
    _space: KernelSpace

    # --- the fitted model ------------------------------------------------------------------

    @property
    def _mixture(self) -> Mixture:
        parts = (self.means_, self.noise_variance_, self.weights_)
        means, noises, weights = (backend.working(part) for part in parts)
        loadings = tuple(backend.working(W) for W in self.loadings_)
        emissions = Emissions(means, loadings, noises, tied=bool(self.tied_noise))
        return Mixture(weights, emissions)

    def _rows(self, X: Any, method: str) -> Array:
        """Check rows that the model is asked about; in kernel space, where there is one."""
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        backend.require_same_home(X, self.weights_, f"{type(self).__name__}.{method}")
        if self.kernel is None:
            refuse_infinite(X)
            return X
        refuse_nonfinite(X)
        return check_finite_result(self._space(X), X)

    @property
    def _n_features_out(self) -> int:
        return sum(self.n_components_)

    @property
    def covariances_(self) -> Array:
        """W_kW_kᵀ + σ_k²I, (K, d, d)."""
        check_is_fitted(self)
        model = self._mixture.emissions
        eye = backend.asarray(np.eye(model.dim), model.means)
        dense = [W @ W.T + model.noises[k] * eye for k, W in enumerate(model.loadings)]
        return backend.cast_like(backend.namespace(model.means).stack(dense), self.means_)

    @by_parts(None, np.int64)
    def predict(self, X: Any) -> Array:
        """Return the most probable component of every row, (n,).

        Parameters
        ----------
        X : array of shape (n, d)
        """
        joint = self._mixture_of(X, "predict")
        return backend.namespace(joint).argmax(joint, axis=1)

    def _mixture_of(self, X: Any, method: str) -> Array:
        """Return ln π_k + ln p(x | k) of rows to be checked."""
        rows = self._rows(X, method)
        with np.errstate(over="ignore", invalid="ignore"):
            joint = self._mixture.joint(rows)
        return check_finite_result(joint, observed_part(rows))

    @by_parts("n_mixtures_")
    def predict_proba(self, X: Any) -> Array:
        """Return the responsibilities p(k | x), of what each row observed, (n, K).

        Parameters
        ----------
        X : array of shape (n, d)
        """
        rows = self._rows(X, "predict_proba")
        resp = self._mixture.responsibilities(rows)
        return backend.cast_like(check_finite_result(resp, observed_part(rows)), rows)

    @by_parts(None)
    def score_samples(self, X: Any) -> Array:
        """Return the log-density of what each row observed, (n,); 0 for an empty row.

        Parameters
        ----------
        X : array of shape (n, d)
        """
        rows = self._rows(X, "score_samples")
        density = self._mixture.log_density(rows)
        return check_finite_result(density, observed_part(rows))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the average log-density of the rows.

        Parameters
        ----------
        X : array of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional
        """
        parts = parts_of(X, fitting=False)
        if parts is not None:
            return average(self, parts, sample_weight)
        density = self.score_samples(X)
        w = check_weights(sample_weight, density[:, None])
        xp = backend.namespace(density)
        return float(xp.mean(density) if w is None else w @ density / xp.sum(w))

    def bic(self, X: Any) -> float:
        """Return −2 ln L + p ln n of the rows; lower is better.

        Parameters
        ----------
        X : array of shape (n, d)
        """
        require_in_memory(X)
        density = self.score_samples(X)
        return self._criterion(density, math.log(int(density.shape[0])))

    def aic(self, X: Any) -> float:
        """Return −2 ln L + 2p of the rows; lower is better.

        Parameters
        ----------
        X : array of shape (n, d)
        """
        require_in_memory(X)
        return self._criterion(self.score_samples(X), 2.0)

    def _criterion(self, density: Array, price: float) -> float:
        total = float(backend.namespace(density).sum(density))
        return -2 * total + price * self._mixture.n_parameters()

    # --- latents and rows ------------------------------------------------------------------

    @by_parts("_n_features_out")
    def transform(self, X: Any) -> Array:
        """Return the latents under every component, weighted by its responsibility, (n, Σq_k).

        Column block k is p(k | x) E[z | x, k]. Axes of different components have nothing to do
        with each other, so the blocks stand side by side and are not added.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        array of shape (n, Σq_k)
        """
        rows = self._rows(X, "transform")
        xp, mixture = backend.namespace(rows), self._mixture
        resp = mixture.responsibilities(rows)
        found = mixture.latents(rows)
        blocks = [one.mean * resp[:, k : k + 1] for k, one in enumerate(found)]
        return backend.cast_like(xp.concat(blocks, axis=1), self._like(rows))

    def posterior(self, X: Any, component: int) -> tuple[Array, Array]:
        """Return mean (n, q_k) and covariance (n, q_k, q_k) of the latents under one component.

        Parameters
        ----------
        X : array of shape (n, d)
        component : int
            k, from 0.
        """
        rows = self._rows(X, "posterior")
        check_number("component", component, 0, integer=True)
        if component >= self.n_mixtures_:
            raise ValueError(f"component must be below {self.n_mixtures_}, got {component}.")
        found = self._mixture.emissions.posterior(rows, int(component))
        like = self._like(rows)
        return backend.cast_like(found.mean, like), backend.cast_like(found.covariance, like)

    def _like(self, rows: Array) -> Array:
        """Return an array of the dtype that results have."""
        return rows if self.kernel is None else self.weights_

    def _signal(self, rows: Array) -> tuple[list[Array], Array, Any]:
        """Return μ_k + W_k E[z | x, k] of every component, responsibilities, and the posteriors."""
        mixture = self._mixture
        model, found = mixture.emissions, mixture.latents(rows)
        means = [
            one.mean @ W.T + model.means[k, :]
            for k, (one, W) in enumerate(zip(found, model.loadings, strict=True))
        ]
        return means, mixture.responsibilities(rows), found

    @by_parts("n_features_in_")
    def reconstruct(self, X: Any) -> Array:
        """Return the posterior mean of the noise-free signal, Σ_k p(k | x)(μ_k + W_k E[z | x, k]).

        With a kernel it is the pre-image of that point of feature space.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        array of shape (n, d)
        """
        rows = self._rows(X, "reconstruct")
        means, resp, _ = self._signal(rows)
        signal = sum(resp[:, k : k + 1] * mean for k, mean in enumerate(means))
        return backend.cast_like(self._inputs(signal), self.weights_)

    def _inputs(self, points: Array) -> Array:
        """Return points as rows of the input space: pre-images, where there is a kernel."""
        if self.kernel is None:
            return points
        subspace = self._space.subspace
        span = Span(subspace.points, subspace.kernel, subspace.coefficients, subspace.base)
        return Auto().find(span, points).points

    @available_if(lambda self: self.kernel is None)  # type: ignore[untyped-decorator]
    @placed
    @by_parts("n_features_in_")
    def impute(self, X: Any, return_std: bool = False) -> Any:
        """Fill every NaN with its expectation given what the row observed.

        Parameters
        ----------
        X : array or frame of shape (n, d)
            NaN (null) where nothing was observed. Never modified.
        return_std : bool
            Also return the standard deviation of every entry, 0 where it was observed: that of a
            measurement, spread within components and between them.

        Returns
        -------
        array or frame of shape (n, d), or a pair of them
        """
        rows = self._rows(X, "impute")
        xp, model = backend.namespace(rows), self._mixture.emissions
        means, resp, found = self._signal(rows)
        missing = xp.isnan(rows)
        mean = sum(resp[:, k : k + 1] * m for k, m in enumerate(means))
        filled = xp.where(missing, mean, backend.working(rows))
        result = as_frame(backend.cast_like(filled, rows), X)
        if not return_std:
            return result
        variance = 0 * mean
        for k, one in enumerate(found):
            within = quadratic(one.covariance, model.loadings[k]) + model.noises[k]
            variance = variance + resp[:, k : k + 1] * (within + (means[k] - mean) ** 2)
        std = xp.where(missing, xp.sqrt(variance), xp.zeros_like(variance))
        return result, as_frame(backend.cast_like(std, rows), X)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Array, Array]:
        """Draw rows and the components they come from, as scikit-learn's GaussianMixture does.

        Parameters
        ----------
        n_samples : int
        random_state : None, int, Generator or RandomState

        Returns
        -------
        X : array of shape (n_samples, d)
            With a kernel: pre-images of draws in feature space.
        y : array of shape (n_samples,)
        """
        check_is_fitted(self)
        check_number("n_samples", n_samples, 1, integer=True)
        points, labels = self._mixture.sample(int(n_samples), generator(random_state))
        xp, device = backend.namespace(points), backend.device_of(points)
        rows = backend.cast_like(self._inputs(points), self.weights_)
        return rows, xp.asarray(labels, device=device)
