"""The leading eigenpairs of an operator: all that a closed-form model needs (theory 1.1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from dualpca.arrays import EPS, Array, backend
from dualpca.errors import SpectrumWarning, warn


@dataclass(frozen=True)
class Spectrum:
    """Leading eigenpairs λ₁ ≥ … ≥ λ_q of an operator, with its trace.

    Parameters
    ----------
    values : array of shape (q,)
        Eigenvalues λ, largest first, none negative.
    vectors : array of shape (m, q)
        Orthonormal eigenvectors; m = d in the primal, m = n in the dual.
    trace : float
        Sum of all eigenvalues, the discarded ones included.
    dim : int
        r, the dimension of the space in which the isotropic noise lives.
    error : float
        Estimate of the largest relative error of `values`; 0 for direct solvers.
    concentration : float, optional
        Σλ² / (Σλ)² over all eigenvalues, where the solver knows it: exactly from direct ones, by
        extrapolation from block Krylov on large operators.

    Examples
    --------
    >>> import numpy as np
    >>> s = Spectrum.of(np.array([1.0, 4.0]), np.array([[0.0, -1.0], [1.0, 0.0]]), 5.0, 2)
    >>> s.values
    array([4., 1.])
    >>> s.vectors[0, 0]
    np.float64(1.0)
    """

    values: Annotated[Array, "q"]
    vectors: Annotated[Array, "m q"]
    trace: float
    dim: Annotated[int, ">= 0"]
    error: Annotated[float, "or nan, or inf"] = 0.0
    concentration: float | None = None

    @classmethod
    def of(
        cls,
        values: Array,
        vectors: Array,
        trace: float,
        dim: int,
        error: float = 0.0,
        concentration: float | None = None,
    ) -> Spectrum:
        """Order, clip and sign raw eigenpairs.

        The entry of largest magnitude of every eigenvector is positive (the first one, on ties).
        """
        xp = backend.namespace(values)
        order = backend.descending(values)
        values, vectors = backend.take(values, order), backend.take(vectors, order, axis=1)
        low, high = (float(values[k]) if values.shape[0] else 0.0 for k in (-1, 0))
        if low < -100 * vectors.shape[0] * EPS * max(high, -low):
            warn(
                f"the operator is indefinite: its smallest eigenvalue is {low:.3g} (largest "
                f"{high:.3g}). Negative eigenvalues are set to zero; use a positive "
                "semi-definite kernel if they matter.",
                SpectrumWarning,
            )
        if backend.is_foreign(values):
            values = xp.where(values < 0, xp.zeros_like(values), values)
        else:
            values = np.maximum(values, 0.0)
        return cls(values, deterministic_signs(vectors), trace, dim, error, concentration)

    @property
    def rank(self) -> int:
        """q, the number of eigenpairs held."""
        return int(self.values.shape[0])

    def head(self, q: int) -> Spectrum:
        """Return the q leading eigenpairs."""
        if q == self.rank:
            return self
        return replace(self, values=self.values[:q], vectors=self.vectors[:, :q])


def deterministic_signs(vectors: Array) -> Array:
    """Flip each column so that its entry of largest magnitude is positive."""
    return vectors * signs(vectors) if 0 not in vectors.shape else vectors


def signs(vectors: Array) -> Array:
    """Return the sign of the entry of largest magnitude of each column, (1, q); 1 for 0."""
    xp = backend.namespace(vectors)
    largest = xp.argmax(xp.abs(vectors), axis=0)
    if not backend.is_foreign(vectors):
        peaks = vectors[largest, np.arange(vectors.shape[1])][None, :]
        return np.where(peaks < 0, -1.0, 1.0)
    peaks = xp.take_along_axis(vectors, largest[None, :], axis=0)
    one = xp.ones_like(peaks)
    return xp.where(peaks < 0, -one, one)
