"""From inputs to latents, along a path, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dualpca import generation
from dualpca.arrays import Array, backend
from dualpca.data import refuse_nonfinite
from dualpca.errors import expected
from dualpca.estimators._base import check_choice, check_number, check_rows


class LatentPaths:
    """Decoding, interpolation and traversal with the latents of a fitted `estimator_`.

    Subclasses provide what is declared here.
    """

    estimator_: Any
    decoder: Any
    density_: generation.Density
    latents_: Array  # (n, q)
    X_fit_: Array  # (n, d)
    n_features_in_: int
    _mean: Array  # (q,), of the latents
    _factor: Array  # (q, q), of their covariance

    def decode(self, Z: Any) -> Array:
        """Return the inputs that latents stand for, (m, d), by `decoder` or `inverse_transform`.

        Parameters
        ----------
        Z : array of shape (m, q)
        """
        check_is_fitted(self)
        if self.decoder is None:
            return as_matrix(self.estimator_.inverse_transform(Z))
        return self.estimator_.preimages(Z, self.decoder).points

    def interpolate(
        self, a: Any, b: Any, n: int = 10, path: str = "straight", weight: float = 1.0
    ) -> Array:
        """Return points on the way from one point to another, both ends included.

        Parameters
        ----------
        a, b : array of shape (d,) or (1, d)
        n : int
        path : {'straight', 'density'}
            Through latents in a straight line, or where the density is high.
        weight : float
            'density': how much density counts beside length.

        Returns
        -------
        array of shape (n, d)
            The ends are what the model makes of a and b: their reconstructions.
        """
        check_choice("path", path, ("straight", "density"))
        check_number("n", n, 2, integer=True)
        check_number("weight", weight, 0)
        start, end = self._latent("a", a), self._latent("b", b)
        if path == "straight":
            Z = generation.straight(start, end, int(n))
        else:
            Z = generation.along_density(
                self.density_, start, end, int(n), weight=weight, factor=self._factor
            )
        return self.decode(backend.cast_like(Z, self.latents_))

    def traverse(self, component: int, n: int = 9, reach: float = 2.0, at: Any = None) -> Array:
        """Return points along one component, from −reach to +reach standard deviations.

        Parameters
        ----------
        component : int
        n : int
        reach : float
        at : array of shape (d,) or (1, d), optional
            The point in the middle; the mean of the latents unless given.

        Returns
        -------
        array of shape (n, d)
        """
        check_is_fitted(self)
        q = int(self.latents_.shape[1])
        check_number("component", component, 0, integer=True)
        if component >= q:
            raise ValueError(expected("component", f"below {q}, the number of latents", component))
        check_number("n", n, 2, integer=True)
        check_number("reach", reach, 0)
        centre = self._mean if at is None else self._latent("at", at)
        xp, unit = backend.namespace(self._mean), backend.identity(q, self._mean)[int(component), :]
        spread = xp.linalg.vector_norm(self._factor, axis=1)  # the latents' standard deviations
        Z = generation.traversal(centre, spread * unit, int(n), float(reach))
        return self.decode(backend.cast_like(Z, self.latents_))

    def _latent(self, name: str, x: Any) -> Array:
        """Return the latents of one point, (q,)."""
        check_is_fitted(self)
        x = x if backend.is_foreign(x) else np.asarray(x)
        if x.ndim == 1:
            x = x[None, :]
        if x.ndim != 2 or x.shape[0] != 1:
            what = f"one point of shape ({self.n_features_in_},)"
            raise ValueError(expected(name, what, tuple(x.shape)))
        rows = self._rows(x, "transform")
        return backend.working(as_matrix(self.estimator_.transform(rows)))[0, :]

    def _rows(self, X: Any, method: str) -> Array:
        check_is_fitted(self)
        rows = check_rows(self, X, reset=False, finite=True)
        backend.require_same_home(rows, self.X_fit_, f"{type(self).__name__}.{method}")
        return require_finite(rows)


def require_finite(rows: Array) -> Array:
    """Return rows; say where they are not finite."""
    if not backend.all_finite(rows):
        refuse_nonfinite(rows)
    return rows


def as_matrix(X: Any) -> Array:
    """Return a table as an array: scikit-learn may be set to give frames."""
    return X if backend.is_foreign(X) else np.asarray(X)
