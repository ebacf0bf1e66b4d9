"""What a fitted kernel PCA says of points: coordinates, how sure they are, novelty."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.estimators._base import by_parts, check_finite_result
from dualpca.estimators._kernel_fits import gram_of
from dualpca.estimators._kernel_inputs import new_points
from dualpca.estimators._placing import OnDevice
from dualpca.estimators._uncertain import (
    as_uncertain,
    coordinate_covariance,
    expected_coordinates,
    input_model,
    is_incomplete,
    with_holes,
)
from dualpca.operators import Dual


class KernelProjection(OnDevice, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Methods of a model with a fitted `_subspace`, `_residual` and `_novelty`."""

    eigenvalues_: Array
    eigen_solver: Any
    center: bool
    kernel_: Any
    X_fit_: Array
    _subspace: Any
    _residual: Any
    _novelty: Any

    @by_parts("n_components_")
    def transform(self, X: Any) -> Array:
        """Project points on the components, in blocks.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training points (m, n)

        Returns
        -------
        array of shape (m, q)
            y = kc(x)ᵀA, centred with the training means.
        """
        rows = new_points(self, X, "transform", allow_nan=True)
        if not is_incomplete(rows):
            Y = check_finite_result(self._subspace.coordinates(rows), rows)
            return backend.cast_like(Y, backend.vector_like(rows))
        holes = with_holes(rows)
        x = as_uncertain(self._inputs(), backend.take(rows, holes))
        whole = self._subspace.coordinates(_filled(rows))
        Y = backend.replaced(whole, holes, expected_coordinates(self._subspace, x))
        return backend.cast_like(Y, rows)

    def transform_std(self, X: Any) -> Array:
        """Return the standard deviation of the coordinates of rows with NaN, (m, q).

        What is missing is uncertain, and so are the coordinates: Aᵀ Cov[k(x, ·)] A in closed
        form. 0 for complete rows.

        Parameters
        ----------
        X : array of shape (m, d)
        """
        rows = new_points(self, X, "transform_std", allow_nan=True)
        xp, q = backend.namespace(self.eigenvalues_), int(self.eigenvalues_.shape[0])
        std = backend.asarray(np.zeros((rows.shape[0], q)), self.eigenvalues_)
        if is_incomplete(rows):
            holes = with_holes(rows)
            x = as_uncertain(self._inputs(), backend.take(rows, holes))
            variances = xp.linalg.diagonal(coordinate_covariance(self._subspace, x))
            positive = xp.where(variances > 0, variances, xp.zeros_like(variances))
            std = backend.replaced(std, holes, xp.sqrt(positive))
        return backend.cast_like(std, backend.vector_like(rows))

    def _inputs(self) -> Any:
        """Return a PPCA of the training rows, fitted when rows with NaN are first met."""
        if "input_model_" not in vars(self):
            self.input_model_ = input_model(self.X_fit_)
        return self.input_model_

    @by_parts(None)
    def novelty(self, X: Any) -> Array:
        """Return the squared distance of features off the components (Hoffmann 2007), (m,).

        s(x) − Σy² with s(x) = ‖φ(x) − φ̄‖²: large for points unlike the training points.

        Parameters
        ----------
        X : array of shape (m, d)
        """
        rows = new_points(self, X, "novelty")
        return check_finite_result(self._subspace.project(rows).residual, rows)

    def novelty_threshold(self, level: float = 0.95) -> float:
        """Return the quantile of the training points' novelty.

        Parameters
        ----------
        level : float
            Share of the training points at or below the threshold.
        """
        check_is_fitted(self)
        if not 0 < level < 1:
            raise ValueError(expected("level", "between 0 and 1", level))
        if self._novelty is not None:
            return float(self._novelty.quantile(level))
        residual = self._subspace.project(self.X_fit_).residual
        return float(np.quantile(backend.to_numpy(residual), level))

    @by_parts(None, np.bool_, takes=("level",))
    def is_novel(self, X: Any, level: float = 0.95) -> Array:
        """Tell which points are further off the components than `level` of the training points.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training points (m, n)
        level : float
            Share of the training points that are not novel.
        """
        return self.novelty(X) > self.novelty_threshold(level)

    def squared_eigenvalue_ratio(self) -> Array:
        """Return λ_p² / Σλ², (q,), with Σλ² = ‖Kc‖²_F (S2): not a share of the variance.

        It is larger than `explained_variance_ratio_`, and flatters. One pass over the kernel of
        the training points; for exact fits.
        """
        check_is_fitted(self)
        if self._residual is None or self._novelty is None:
            what = "an exact solver: landmarks do not know the whole kernel"
            raise ValueError(expected("eigen_solver", what, self.eigen_solver))
        gram = gram_of(self, self.X_fit_, self.kernel_)
        total = Dual(gram, None, self._novelty.weights, center=self.center).squared_norm()
        values = backend.working(self.eigenvalues_)
        return backend.cast_like(values * values / total, self.eigenvalues_)


def _filled(X: Array) -> Array:
    """Return rows with 0 for NaN; their coordinates are replaced afterwards."""
    xp = backend.namespace(X)
    return xp.where(xp.isnan(X), xp.zeros_like(X), X)
