"""What fits of kernel PCA have in common: how many eigenpairs, which of them count, how sure."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.errors import ScaleError, expected
from dualpca.estimators._components import is_count, is_share, share_count
from dualpca.operators import MappedSubspace, Spectrum, Subspace, UncertainSubspace

NEGLIGIBLE = 1e-12
"""Eigenvalues below this share of the largest are zero."""


class Approximation(NamedTuple):
    """How far an answer may be from the exact one.

    Attributes
    ----------
    trace : float
        Share of the variance Σk(x, x) that the solver left out; 0 for exact solvers.
    residual : float
        Estimate of the largest relative error of the eigenvalues of what it kept.
    """

    trace: float
    residual: float


class Novelty(NamedTuple):
    """How far training points, all or some, are off the components."""

    residual: Array  # (m,)
    weights: Array  # (m,)

    def quantile(self, level: float) -> float:
        """Return the smallest value with a share of `level` of the weight at or below it."""
        residual, weights = backend.to_numpy(self.residual), backend.to_numpy(self.weights)
        found = np.quantile(residual, level, weights=weights, method="inverted_cdf")
        return float(found)


class KernelFit(NamedTuple):
    """A fitted kernel PCA."""

    subspace: Subspace | MappedSubspace | UncertainSubspace
    spectrum: Spectrum
    n: float
    error: Approximation
    solver: str
    training_residual: Array | None = None  # (n,)
    novelty: Novelty | None = None


def refuse_overflow(total: float) -> None:
    """Refuse a kernel whose trace float64 cannot hold: no value is larger than on the diagonal."""
    if not np.isfinite(total):
        raise ScaleError("kernel values overflow: X is too large. Divide it by a constant first.")


def rank_of(model: Any, most: int) -> int:
    """Return how many eigenpairs to ask for."""
    request = model.n_components
    return min(int(request), most) if is_count(request) else most


def keep(model: Any, spectrum: Spectrum, rounding: float) -> Spectrum:
    """Return the eigenpairs asked for: zeros are zeros, and dropped where nobody counts them.

    `rounding` is ε·Σwk(x, x): what centring takes from it leaves errors of that size behind.
    """
    values = backend.to_numpy(spectrum.values)
    largest = max(float(values[0]) if values.size else 0.0, 0.0)
    zero = values <= max(NEGLIGIBLE * largest, 2 * rounding)
    xp = backend.namespace(spectrum.values)
    flags = xp.asarray(~zero, device=backend.device_of(spectrum.values))
    cleaned = xp.where(flags, spectrum.values, xp.zeros_like(spectrum.values))
    trace, dim, error = spectrum.trace, spectrum.dim, spectrum.error
    spectrum = Spectrum(cleaned, spectrum.vectors, trace, dim, error)
    if is_share(model.n_components):
        return spectrum.head(share_count(float(model.n_components), spectrum))
    if model.remove_zero_eig or model.n_components is None:
        return spectrum.head(int((~zero).sum()))
    return spectrum


def check_request(request: Any) -> None:
    """Refuse what is no number of components."""
    if request is None or is_share(request) or (is_count(request) and request >= 1):
        return
    what = "None, an integer of at least 1, or a share of the variance between 0 and 1"
    raise ValueError(expected("n_components", what, request))
