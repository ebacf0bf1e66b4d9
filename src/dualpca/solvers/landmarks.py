"""Approximate solvers for kernels: landmarks, pivoted Cholesky and random Fourier features."""

from __future__ import annotations

from typing import ClassVar

from dualpca.arrays import Array, backend
from dualpca.errors import SolverWarning, expected, warn
from dualpca.kernels import Kernel, Precomputed
from dualpca.operators import (
    FeatureMap,
    Fourier,
    Landmarks,
    leverage,
    pivoted_cholesky,
    stored_bytes,
    uniform,
)
from dualpca.solvers.base import FeatureSolver, KernelOptions, Weights

LANDMARKS = ("leverage", "kmeans", "uniform")
"""How 'nystrom' chooses landmarks."""

LOOSE = 1e-2
"""The smallest `tol` at which 'auto' may leave a part of the trace out."""


class Nystrom(FeatureSolver):
    """Landmarks, chosen by the method `landmarks`."""

    name: ClassVar[str] = "nystrom"

    @staticmethod
    def feature_map(X: Array, kernel: Kernel, w: Weights, how: KernelOptions) -> FeatureMap:
        """Return the map of the landmarks."""
        rng, m, n = how.rng, how.n_landmarks, int(X.shape[0])
        if X.ndim == 1 and how.landmarks == "kmeans":
            what = "'leverage' or 'uniform': X holds items, which have no mean"
            raise ValueError(expected("landmarks", what, how.landmarks))
        if m >= n:
            return Landmarks.of(X, kernel)
        if how.landmarks == "kmeans" and how.cluster is not None:
            return Landmarks.of(how.cluster(X, m, int(rng.integers(2**31 - 1))), kernel)
        even = how.landmarks == "uniform"
        index = uniform(n, m, rng) if even else leverage(X, kernel, m, rng)
        return Landmarks.of(backend.take(X, index), kernel)


class Cholesky(FeatureSolver):
    """Landmarks by pivoted Cholesky, until `tol` of the trace is left out."""

    name: ClassVar[str] = "cholesky"
    on_streams: ClassVar[bool] = True

    @staticmethod
    def feature_map(X: Array, kernel: Kernel, w: Weights, how: KernelOptions) -> FeatureMap:
        """Return the map of the pivots."""
        found = pivoted_cholesky(X, kernel, how.n_landmarks, how.tol, how.rng, w)
        return Landmarks.of(backend.take(X, found.chosen), kernel)

    @staticmethod
    def suits(X: Array, kernel: Kernel, how: KernelOptions) -> bool:
        """Return True where `tol` is loose and the kernel too large to store."""
        fits = stored_bytes(int(X.shape[0]), single=True) <= how.memory_limit
        return not (how.tol < LOOSE or fits or X.ndim == 1 or isinstance(kernel, Precomputed))

    @staticmethod
    def warn_if_far(left_out: float, how: KernelOptions) -> None:
        """Warn where there were not landmarks enough for `tol`."""
        if left_out > max(how.tol, 1e-10):
            warn(
                f"{how.n_landmarks} landmarks leave {left_out:.2%} of the variance out; "
                f"tol={how.tol:g} was asked for. Raise n_landmarks, or use eigen_solver='krylov'.",
                SolverWarning,
            )


class RandomFeatures(FeatureSolver):
    """Random Fourier features."""

    name: ClassVar[str] = "fourier"
    on_streams: ClassVar[bool] = True

    @staticmethod
    def feature_map(X: Array, kernel: Kernel, w: Weights, how: KernelOptions) -> FeatureMap:
        """Return the map of random frequencies."""
        if X.ndim == 1:
            what = "one that needs no coordinates ('nystrom', 'cholesky'): X holds items"
            raise ValueError(expected("eigen_solver", what, how.eigen_solver))
        return Fourier.of(kernel, X, how.n_landmarks, how.rng)
