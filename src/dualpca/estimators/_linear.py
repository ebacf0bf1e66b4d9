"""What every linear model can do once it has axes, variances and noise; and exact streaming."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend, showing
from dualpca.data import ChunkedTable
from dualpca.errors import expected
from dualpca.estimators._base import (
    Saved,
    average,
    by_parts,
    check_finite_result,
    check_number,
    check_rows,
    check_solver,
    check_weights,
    fit_linear,
    generator,
    new_rows,
    open_parts,
    parts_of,
    used_rows,
)
from dualpca.estimators._diagnostics import Diagnostics
from dualpca.estimators._linear_stream import LinearStream
from dualpca.estimators._placing import OnDevice
from dualpca.gaussian import Monitor, Reference, SpikedGaussian, SpikedMonitor
from dualpca.operators import Frame, Primal, Projection, Scatter, Spectrum

ROUNDINGS = 64
"""Of the axes' dtype: a residual is seen where it is more than this many beside the row."""


class LinearGaussian(
    LinearStream,
    OnDevice,
    Saved,
    Diagnostics,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    BaseEstimator,
):
    """Base of the models N(μ, Σ (ℓ − σ²) v vᵀ + σ² I) over the features.

    Subclasses fit `mean_`, `components_`, `explained_variance_` and `noise_variance_`; what
    follows is read from those, so a model is what its attributes say.
    """

    mean_: Array  # (d,)
    components_: Array  # (q, d)
    explained_variance_: Array  # (q,)
    noise_variance_: float
    n_components: Any
    n_features_in_: int
    _reference: Reference
    verbose: bool = False

    _fitted_names: tuple[str, ...] = ()

    # --- fitting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : array of shape (n, d), or a table in parts
            Two rows or more. Never modified. In parts: `Batches`, Dask, Zarr, a path.
        y : ignored
        sample_weight : array of shape (n,), optional
            Non-negative. A weight of 2 counts as the row twice, 0 as no row; their sum is the
            effective number of rows.

        Returns
        -------
        self
        """
        self._check_parameters()
        parts = parts_of(X)
        if parts is not None:
            return self._fit_parts(parts, sample_weight)
        X = check_rows(self, X, reset=True, min_rows=2, accept_sparse=self._accepts_sparse)
        w = check_weights(sample_weight, X)
        self._forget()
        with showing(self.verbose):
            self._fit_rows(X, w)
        return self

    def _fit_parts(self, parts: ChunkedTable, sample_weight: Any) -> Any:
        """Fit a table in parts."""
        check_solver(self._solver_in_parts)
        parts = open_parts(self, parts, sample_weight)
        self._forget()
        with showing(self.verbose):
            fit_linear(self, parts, nan=self._holes_in_parts)
        return self

    _holes_in_parts = False

    @property
    def _solver_in_parts(self) -> str:
        return "auto"

    def _fit_rows(self, X: Array, weights: Array | None) -> None:
        """Fit checked rows."""
        operator = Primal(X, weights, standardize=self._standardize)
        self._publish(operator, used_rows(X, weights), X)

    @property
    def _standardize(self) -> bool:
        return False

    _accepts_sparse = False

    def _check_parameters(self) -> None:
        """Check the constructor's parameters, all at once, before any work."""

    def _publish(self, operator: Primal | Scatter, count: int, like: Array) -> None:
        """Solve the operator of `count` rows and set the fitted attributes, in `like`'s dtype."""
        raise TypeError(expected("a linear model", "a class that defines _publish", type(self)))

    # --- the fitted model ------------------------------------------------------------------

    @property
    def _axes(self) -> Array:
        """V, (d, q), in float64."""
        return backend.working(self.components_).T

    @property
    def _frame(self) -> Frame:
        scale = getattr(self, "scale_", None)
        scale = None if scale is None else backend.working(scale)
        return Frame(backend.working(self.mean_), scale)

    @property
    def _gaussian(self) -> SpikedGaussian:
        values = backend.working(self.explained_variance_)
        return SpikedGaussian(values, float(self.noise_variance_), int(self.components_.shape[1]))

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _monitor(self, X: Array | None = None) -> Monitor:
        floor = ROUNDINGS * float(backend.namespace(self._axes).finfo(self.components_.dtype).eps)
        return SpikedMonitor(self._gaussian, self._frame, self._axes, self._reference, floor)

    def _new_rows(self, X: Any, method: str) -> Array:
        return new_rows(self, X, method, accept_sparse=self._accepts_sparse)

    def _coordinates(self, X: Array) -> Array:
        """Return the projections on the axes, float64."""
        with np.errstate(over="ignore", invalid="ignore"):
            return check_finite_result(self._frame.coordinates(self._axes, X), X)

    def _project(self, X: Array) -> Projection:
        with np.errstate(over="ignore", invalid="ignore"):
            projection = self._frame.project(self._axes, X)
        check_finite_result(projection.residual, X)
        return projection

    # --- densities -------------------------------------------------------------------------

    @by_parts(None)
    def score_samples(self, X: Any) -> Array:
        """Return the log-density of every row, in the units of X; O(dq) a row, nothing d×d.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        array of shape (n,)
            ln N(x; μ, C), MATH 2.
        """
        X = self._new_rows(X, "score_samples")
        density = self._gaussian.log_density(*self._project(X))
        scale = self._frame.scale
        if scale is not None:
            xp = backend.namespace(scale)
            density = density - xp.sum(xp.log(scale))
        return check_finite_result(density, X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the average log-density of the rows.

        Parameters
        ----------
        X : array of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional

        Returns
        -------
        float
        """
        parts = parts_of(X, fitting=False)
        if parts is not None:
            return average(self, parts, sample_weight)
        density = self.score_samples(X)
        w = check_weights(sample_weight, density[:, None])
        xp = backend.namespace(density)
        return float(xp.mean(density) if w is None else w @ density / xp.sum(w))

    def get_covariance(self) -> Array:
        """Return C = Σ (ℓ − σ²) v vᵀ + σ² I, (d, d), in the units of X."""
        check_is_fitted(self)
        gaussian = self._gaussian
        return self._dense(gaussian.values - gaussian.noise, gaussian.noise, power=1)

    def get_precision(self) -> Array:
        """Return C⁻¹ = Σ (1/ℓ − 1/σ²) v vᵀ + I/σ², (d, d)."""
        check_is_fitted(self)
        gaussian = self._gaussian
        gaussian.require_density()
        floor = 1 / gaussian.noise if gaussian.rank < gaussian.dim else 0.0
        return self._dense(1 / gaussian.values - floor, floor, power=-1)

    def _dense(self, spikes: Array, floor: float, power: int) -> Array:
        """Return Σ spike·v vᵀ + floor·I, with the features' units to the given power."""
        V, scale = self._axes, self._frame.scale
        A = (V * spikes) @ V.T + floor * backend.asarray(np.eye(V.shape[0]), V)
        if scale is not None:
            unit = scale**power
            A = A * unit[:, None] * unit[None, :]
        return backend.cast_like(A, self.components_)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw new rows from the fitted Gaussian, x = μ + V√(ℓ − σ²) z + σε.

        Parameters
        ----------
        n_samples : int
        random_state : None, int, Generator or RandomState
            The same seed gives the same rows on every array library.

        Returns
        -------
        array of shape (n_samples, d)
        """
        check_is_fitted(self)
        check_number("n_samples", n_samples, 1, integer=True)
        rng, V, gaussian = generator(random_state), self._axes, self._gaussian
        z = backend.normal(rng, (n_samples, gaussian.rank), V)
        noise = backend.normal(rng, (n_samples, gaussian.dim), V)
        centred = (z * gaussian.spread) @ V.T + gaussian.noise**0.5 * noise
        return backend.cast_like(self._frame.restore(centred), self.components_)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what the model takes and gives."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.array_api_support = True
        tags.input_tags.sparse = self._accepts_sparse
        return tags


def publish_axes(model: LinearGaussian, mean: Array, spectrum: Spectrum, like: Array) -> None:
    """Set the attributes that all linear models share, in the dtype of `like`."""
    xp = backend.namespace(spectrum.values)
    ratio = spectrum.values / spectrum.trace if spectrum.trace > 0 else 0 * spectrum.values
    model.mean_ = backend.cast_like(mean, like)
    model.components_ = backend.cast_like(xp.asarray(spectrum.vectors.T, copy=True), like)
    model.explained_variance_ratio_ = backend.cast_like(ratio, like)
    model.n_components_ = spectrum.rank
