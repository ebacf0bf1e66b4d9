"""The density over latents that a `Generator` is asked for, by name or as an object."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.errors import DegenerateError, expected
from dualpca.generation import Density, Gaussian, Mixture, fit_gaussian, fit_kernel_density

DENSITIES = ("kde", "gaussian", "mixture", "subspaces")
NEEDS = ("value_and_gradient", "log_density", "gradient", "sample", "factor")

DIRECTIONS = 10
"""Most directions of a component of 'subspaces'; the rest of the latents is its noise."""


def is_named(density: Any) -> bool:
    """Tell whether a density is asked for by name."""
    return isinstance(density, str) and density in DENSITIES


def check_density(density: Any) -> None:
    """Refuse what is neither a name nor a density."""
    able = not isinstance(density, type) and all(hasattr(density, name) for name in NEEDS)
    if not (is_named(density) or able):
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
    if density in ("mixture", "subspaces"):
        if n_mixtures > Z.shape[0]:
            what = f"at most {int(Z.shape[0])}, the rows"
            raise ValueError(expected("n_mixtures", what, n_mixtures))
        flat = density == "mixture" or Z.shape[1] == 1  # a line has no subspaces
        return (fit_mixture if flat else fit_subspaces)(Z, n_mixtures, rng)
    density.log_density(Z[:1, :])  # one of another width says so here
    return density  # type: ignore[no-any-return]


def class_codes(y: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes of y, and for every row the index of its own."""
    if y is None:
        raise ValueError(expected("y", f"{n} classes, as by_class is True", y))
    given = backend.to_numpy(y) if backend.is_foreign(y) else np.asarray(y)
    if given.shape != (n,):
        raise ValueError(expected("y", f"of shape ({n},), a class a row", given.shape))
    if given.dtype.kind == "f" and not np.all(np.isfinite(given)):
        raise ValueError(expected("y", "a class for every row", "NaN or infinity among them"))
    classes, codes = np.unique(given, return_inverse=True)
    return classes, codes


def fit_by_class(
    density: Any,
    Z: Array,
    codes: np.ndarray,
    classes: np.ndarray,
    width: float | None,
    n_mixtures: int,
    rng: np.random.Generator,
) -> Mixture:
    """Return a mixture of one density a class, each with the class's share of the rows."""
    counts, parts = np.bincount(codes), []
    for code, name in enumerate(classes):
        if counts[code] < 2:
            what = "two rows or more of every class"
            raise ValueError(expected("y", what, f"{counts[code]} of class {name}"))
        rows = backend.take(Z, np.flatnonzero(codes == code))
        try:
            parts.append(fit_density(density, rows, width, n_mixtures, rng))
        except DegenerateError as error:
            remedy = "density='subspaces' needs fewer rows."
            raise DegenerateError(f"in class {name} {error} {remedy}") from error
    return Mixture(backend.asarray(counts / len(codes), Z), tuple(parts))


def fit_mixture(Z: Array, n_mixtures: int, rng: np.random.Generator) -> Mixture:
    """Return scikit-learn's Gaussian mixture with full covariances as a density."""
    from sklearn.mixture import GaussianMixture  # here, because it brings half of scikit-learn

    rows = backend.to_numpy(Z)
    unit = rows.std(axis=0) + np.finfo(float).tiny  # its floor on variances is absolute
    fitted = GaussianMixture(n_mixtures, random_state=int(rng.integers(2**31))).fit(rows / unit)
    factors = unit[:, None] * np.linalg.cholesky(fitted.covariances_)
    return _of_gaussians(fitted.weights_, fitted.means_ * unit, factors, Z)


def fit_subspaces(Z: Array, n_mixtures: int, rng: np.random.Generator) -> Mixture:
    """Return a mixture of PPCA as a density: few numbers a component, so few rows will do."""
    from dualpca.estimators.mixture import MixturePPCA  # here, for users of other densities

    rows = backend.to_numpy(Z)
    directions = min(DIRECTIONS, rows.shape[1] - 1)
    fitted = MixturePPCA(n_mixtures, directions, random_state=int(rng.integers(2**31))).fit(rows)
    return _of_gaussians(fitted.weights_, fitted.means_, np.linalg.cholesky(fitted.covariances_), Z)


def _of_gaussians(weights: Any, means: Any, factors: Any, like: Array) -> Mixture:
    """Return the mixture of the components that have any weight, as arrays like Z."""
    used = np.flatnonzero(weights > 0)
    parts = tuple(
        Gaussian(backend.asarray(means[k], like), backend.asarray(factors[k], like)) for k in used
    )
    return Mixture(backend.asarray(weights[used], like), parts)
