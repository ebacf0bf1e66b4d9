"""The density over latents that a `Generator` is asked for, by name or as an object."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.generation import Density, Gaussian, Mixture, fit_gaussian, fit_kernel_density

DENSITIES = ("kde", "gaussian", "mixture")
NEEDS = ("value_and_gradient", "log_density", "gradient", "sample", "factor")


def check_density(density: Any) -> None:
    """Refuse what is neither a name nor a density."""
    named = isinstance(density, str) and density in DENSITIES
    able = not isinstance(density, type) and all(hasattr(density, name) for name in NEEDS)
    if not (named or able):
        what = f"one of {list(DENSITIES)} or a density (of dualpca.generation)"
        raise ValueError(expected("density", what, density))


def fit_density(
    density: Any, Z: Array, width: float | None, n_mixtures: int, rng: np.random.Generator
) -> Density:
    """Return the density that was asked for, over the rows of Z."""
    if density == "gaussian":
        return fit_gaussian(Z)
    if density == "kde":
        return fit_kernel_density(Z, width)
    if density == "mixture":
        return fit_mixture(Z, n_mixtures, rng)
    density.log_density(Z[:1, :])  # one of another width says so here
    return density  # type: ignore[no-any-return]


def fit_mixture(Z: Array, n_mixtures: int, rng: np.random.Generator) -> Mixture:
    """Return scikit-learn's Gaussian mixture with full covariances as a density."""
    from sklearn.mixture import GaussianMixture  # here, because it brings half of scikit-learn

    rows = _array.to_numpy(Z)
    if n_mixtures > len(rows):
        raise ValueError(expected("n_mixtures", f"at most {len(rows)}, the rows", n_mixtures))
    unit = rows.std(axis=0) + np.finfo(float).tiny  # its floor on variances is absolute
    fitted = GaussianMixture(n_mixtures, random_state=int(rng.integers(2**31))).fit(rows / unit)
    used = fitted.weights_ > 0
    parts = tuple(
        Gaussian(_array.asarray(mean * unit, Z), _array.asarray(unit[:, None] * root, Z))
        for mean, root in zip(
            fitted.means_[used], np.linalg.cholesky(fitted.covariances_[used]), strict=True
        )
    )
    return Mixture(_array.asarray(fitted.weights_[used], Z), parts)
