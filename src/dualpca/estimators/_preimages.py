"""From latent coordinates back to inputs: what kernel models with points share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.estimators._base import Saved, check_matrix, check_width
from dualpca.estimators._kernel_inputs import is_precomputed, new_points
from dualpca.operators import Subspace, UncertainSubspace
from dualpca.preimages import PREIMAGES, Learned, Method, PreImage, Span

LEAST = 500
"""Points that a learned map may always use: 2 MB."""


def method_of(asked: Any) -> Method:
    """Return the pre-image method that is meant by a name or an object."""
    method = PREIMAGES[asked]() if isinstance(asked, str) and asked in PREIMAGES else asked
    if not isinstance(method, Method):
        what = f"one of {sorted(PREIMAGES)} or a pre-image method"
        raise ValueError(expected("preimage", what, asked))
    return method


class PreImages(Saved):
    """Methods of a model whose directions are expansions over points.

    Subclasses provide `_subspace`, and the parameters `preimage`, `alpha`, `memory_limit`.
    """

    eigenvalues_: Array
    kernel: Any
    kernel_: Any
    preimage: Any
    memory_limit: float

    def _span(self) -> Span:
        """Return the directions as pre-image methods take them; kept from the first use."""
        found = vars(self).get("_span_")
        if found is None:
            found = self._span_ = self._make_span()
        return found

    def _make_span(self) -> Span:
        subspace = self._subspace  # type: ignore[attr-defined]
        if not isinstance(subspace, Subspace | UncertainSubspace):
            raise NotFittedError(
                "random Fourier features have no points to come back from: pre-images need "
                "eigen_solver='nystrom', 'cholesky' or an exact one."
            )
        points = subspace.points
        if is_precomputed(self.kernel) or points.ndim == 1 or backend.is_sparse(points):
            raise NotFittedError(
                "pre-images need training points with real coordinates: a kernel matrix, sparse "
                "rows or other items have none. `preimage_weights` gives weights over them."
            )
        return Span(points, subspace.kernel, subspace.coefficients, subspace.base)

    def _method(self, name: Any = None) -> Method:
        """Return a pre-image method, prepared; kept from the first use."""
        method = method_of(self.preimage if name is None else name)
        if isinstance(method, Learned):
            method = replace(method, limit=max(LEAST, int((self.memory_limit / 8) ** 0.5)))
        kept: dict[Method, Method] = self.__dict__.setdefault("_methods_", {})
        if method not in kept:
            kept[method] = method.prepare(self._span())
        return kept[method]

    def _latents(self, X: Any, method: str) -> Array:
        """Check latent coordinates, of the library and device of the fit."""
        check_is_fitted(self)
        Z = check_matrix(X, "X")
        check_width(Z, int(self.eigenvalues_.shape[0]), "X")
        backend.require_same_home(Z, self.eigenvalues_, f"{type(self).__name__}.{method}")
        return Z

    def _forget_preimages(self) -> None:
        self.__dict__.pop("_span_", None)
        self.__dict__.pop("_methods_", None)

    def preimages(self, X: Any, method: Any = None, start: Any = None) -> PreImage:
        """Return inputs whose features are close to the points of latent coordinates X.

        Parameters
        ----------
        X : array of shape (m, q)
        method : str or Method, optional
            'smoother', 'fixed-point', 'gradient', 'distance', 'learned' or 'auto' (the best of
            all for each row); the parameter `preimage` unless given.
        start : array of shape (m, d), optional
            Where iterations start, beside their own guesses.

        Returns
        -------
        PreImage
            `points` (m, d), `distance` (m,), the distance in feature space that is left, and
            `iterations` (m,).
        """
        Z = self._latents(X, "preimages")
        start = None if start is None else new_points(self, start, "preimages")
        found = self._method(method).find(self._span(), backend.working(Z), start)
        return PreImage(backend.cast_like(found.points, Z), *found[1:])

    def inverse_transform(self, X: Any) -> Array:
        """Return inputs whose features are close to the points of latent coordinates X.

        Parameters
        ----------
        X : array of shape (m, q)

        Returns
        -------
        array of shape (m, d)
            With the linear kernel the exact inverse, mean included. `preimages` also says how
            close they are.
        """
        return self.preimages(X, self._inverse_method()).points

    def _inverse_method(self) -> Any:
        return None

    def reconstruct(self, X: Any) -> Array:
        """Return pre-images of the projections of X, (m, d).

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training points (m, n)
        """
        return self.inverse_transform(self.transform(X))  # type: ignore[attr-defined]

    def denoise(self, X: Any, method: Any = None) -> Array:
        """Project rows on the components and come back, starting from the rows themselves.

        Parameters
        ----------
        X : array of shape (m, d)
        method : str or Method, optional

        Returns
        -------
        array of shape (m, d)
        """
        rows = new_points(self, X, "denoise")
        return self.preimages(self.transform(X), method, start=rows).points  # type: ignore[attr-defined]

    def preimage_weights(self, X: Any) -> Array:
        """Return weights over the training points, (m, n): Σ_i weight_i φ(x_i) is what X means.

        For kernels of items without coordinates (kernel matrices, strings), where it takes the
        place of a pre-image.

        Parameters
        ----------
        X : array of shape (m, q)
            Latent coordinates.
        """
        Z = backend.working(self._latents(X, "preimage_weights"))
        subspace = self._subspace  # type: ignore[attr-defined]
        if not isinstance(subspace, Subspace | UncertainSubspace):
            raise NotFittedError("random Fourier features are no expansion over points.")
        return Z @ subspace.coefficients.T + subspace.base
