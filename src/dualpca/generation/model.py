"""The fitted model of a generator: a density over the latents of training rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.errors import DegenerateError, expected
from dualpca.generation.chains import LangevinChains, langevin
from dualpca.generation.densities import (
    Density,
    Gaussian,
    KernelDensity,
    MixtureDensity,
    covariance_factor,
    tempered,
)
from dualpca.generation.paths import along_density, straight, traversal

DensityFit = Callable[[Array], Any]
"""Latents of some rows ↦ their `Density`."""


@dataclass(frozen=True)
class GeneratorModel:
    """A density π over latents, of all rows or class by class, and the rows it was fitted to."""

    points: Annotated[Array, "n d"]  # the training rows
    latents: Annotated[Array, "n q"]
    # another Density serves, and cannot be saved
    density: Gaussian | KernelDensity | MixtureDensity
    mean: Annotated[Array, "q"]  # of the latents
    factor: Annotated[Array, "q q"]  # of their covariance
    classes: Annotated[np.ndarray, "labels c"] | None = None
    # for every row the index of its class
    codes: Annotated[np.ndarray, "whole n", ">= 0, < c"] | None = None

    def part(self, code: int | None) -> tuple[Density, np.ndarray]:
        """Return the density of a class and its rows; that of all rows without a class."""
        if code is None or not isinstance(self.density, MixtureDensity):
            return self.density, np.arange(int(self.latents.shape[0]))
        return self.density.parts[code], np.flatnonzero(self.codes == code)

    def chains(
        self, code: int | None, m: int, rng: np.random.Generator, step: float, **options: Any
    ) -> LangevinChains:
        """Run m Langevin chains from training latents that are drawn at random."""
        density, rows = self.part(code)
        chosen = rows[rng.integers(len(rows), size=m)]
        start = backend.working(backend.take(self.latents, chosen))
        return langevin(density, start, step, rng=rng, factor=density.factor, **options)

    def path(self, start: Array, end: Array, n: int, weight: float | None = None) -> Array:
        """Return n latents from start to end, (n, q): straight, or along high density."""
        if weight is None:
            Z = straight(start, end, n)
        else:
            Z = along_density(self.density, start, end, n, weight=weight, factor=self.factor)
        return backend.cast_like(Z, self.latents)

    def traversal(self, component: int, n: int, reach: float, centre: Array | None = None) -> Array:
        """Return n latents along one component, (n, q), through the mean by default."""
        unit = backend.identity(int(self.mean.shape[0]), self.mean)[component, :]
        deviations = backend.namespace(self.mean).linalg.vector_norm(self.factor, axis=1)
        Z = traversal(self.mean if centre is None else centre, deviations * unit, n, reach)
        return backend.cast_like(Z, self.latents)


def fit_generator(
    points: Array,
    latents: Array,
    fit: DensityFit,
    classes: tuple[np.ndarray, np.ndarray] | None = None,
    temperature: float = 1.0,
) -> GeneratorModel:
    """Fit a density to the latents of rows; one for each class where classes and codes are given.

    Parameters
    ----------
    points : array of shape (n, d)
    latents : array of shape (n, q)
    fit : callable
    classes : (array of shape (k,), array of shape (n,)), default=None
        The classes, and for every row the index of its class.
    temperature : float, default=1.0
        As in `tempered`.
    """
    Z = backend.working(latents)
    density = fit(Z) if classes is None else fit_by_class(Z, *classes, fit)
    density = density if temperature == 1 else tempered(density, temperature)
    mean = backend.namespace(Z).mean(Z, axis=0)
    factor = covariance_factor(Z - mean)
    return GeneratorModel(points, latents, density, mean, factor, *(classes or (None, None)))


def fit_by_class(
    Z: Array, classes: np.ndarray, codes: np.ndarray, fit: DensityFit
) -> MixtureDensity:
    """Return a mixture of one density per class, each with the class's share of the rows."""
    counts, parts = np.bincount(codes), []
    for code, name in enumerate(classes):
        if counts[code] < 2:
            what = "two rows or more of every class"
            raise ValueError(expected("y", what, f"{counts[code]} of class {name}"))
        try:
            parts.append(fit(backend.take(Z, np.flatnonzero(codes == code))))
        except DegenerateError as error:
            remedy = "density='subspaces' needs fewer rows."
            raise DegenerateError(f"in class {name} {error} {remedy}") from error
    return MixtureDensity(backend.asarray(counts / len(codes), Z), tuple(parts))
