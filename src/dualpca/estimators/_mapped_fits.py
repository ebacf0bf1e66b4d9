"""Kernel PCA through a finite feature map: landmarks or random features, whose moments add."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data import ChunkedTable, refuse_nonfinite
from dualpca.errors import SolverWarning, expected, warn
from dualpca.estimators._kernel_results import (
    Approximation,
    KernelFit,
    Novelty,
    keep,
    rank_of,
    refuse_overflow,
)
from dualpca.kernels import Kernel
from dualpca.operators import (
    FeatureMap,
    Fourier,
    Landmarks,
    Mapped,
    MappedSubspace,
    Scatter,
    Spectrum,
    Subspace,
    landmark_subspace,
    leverage,
    map_rows,
    pivoted_cholesky,
    uniform,
    warn_of_cancellation,
)
from dualpca.solvers import solve

EPS = float(np.finfo(np.float64).eps)


NOVELTY_ROWS = 2000
"""Training rows, evenly spaced, whose novelty stands for all with an approximate solver."""


SAMPLE_ROWS = 10_000
"""Rows drawn from a table in parts, at least, to choose landmarks and find widths in."""


def fit_mapped(model: Any, X: Array, kernel: Kernel, weights: Array | None) -> KernelFit:
    """Fit from the moments of a finite feature map."""
    with np.errstate(over="ignore", invalid="ignore"):
        refuse_overflow(float(backend.to_numpy(kernel.diag(backend.points(X))).sum()))
    feature_map = map_of(model, X, kernel, weights)
    mapped = map_rows(feature_map, X, weights, center=model.center)
    found = from_mapped(model, feature_map, mapped)
    warn_of_cancellation(X, mapped.total, found.spectrum.trace)
    return with_novelty(found, X, weights)


def fit_mapped_parts(model: Any, parts: ChunkedTable, sample: Array, kernel: Kernel) -> KernelFit:
    """Fit a table in parts from the moments of a feature map that a sample of its rows gives."""
    feature_map, center = map_of(model, sample, kernel, None), model.center

    def of(rows: Array) -> Mapped:
        refuse_nonfinite(rows)
        return map_rows(feature_map, rows, None, center=center)

    with np.errstate(over="ignore", invalid="ignore"):
        mapped = parts.reduce(of, Mapped.merge)
        refuse_overflow(mapped.total)
    return with_novelty(from_mapped(model, feature_map, mapped), sample, None)


def with_novelty(found: KernelFit, X: Array, weights: Array | None) -> KernelFit:
    """Return the fit with the novelty of some training points: landmarks are no sample of them."""
    index = np.arange(0, int(X.shape[0]), -(-int(X.shape[0]) // NOVELTY_ROWS))
    residual = found.subspace.project(backend.take(X, index)).residual
    w = backend.ones(residual.shape, residual) if weights is None else backend.take(weights, index)
    if not bool(backend.to_numpy(w).any()):
        return found
    return found._replace(novelty=Novelty(residual, w))


def map_of(model: Any, X: Array, kernel: Kernel, weights: Array | None) -> FeatureMap:
    """Return the feature map of the solver asked for."""
    rng, m, n = np.random.default_rng(model._seed), model.n_landmarks, int(X.shape[0])
    _refuse_items(model, X)
    if model._solver_name == "fourier":
        return Fourier.of(kernel, X, m, rng)
    if model._solver_name == "cholesky":
        found = pivoted_cholesky(X, kernel, m, float(model.tol), rng, weights)
        return Landmarks.of(backend.take(X, found.index), kernel)
    if m >= n:
        return Landmarks.of(X, kernel)
    if model.landmarks == "kmeans":
        return Landmarks.of(_centres(X, m, rng), kernel)
    if model.landmarks == "uniform":
        return Landmarks.of(backend.take(X, uniform(n, m, rng)), kernel)
    return Landmarks.of(backend.take(X, leverage(X, kernel, m, rng)), kernel)


def _refuse_items(model: Any, X: Array) -> None:
    """Refuse items without coordinates where coordinates are averaged."""
    if X.ndim > 1:
        return
    if model._solver_name == "fourier":
        what = "one that needs no coordinates ('nystrom', 'cholesky'): X holds items"
        raise ValueError(expected("eigen_solver", what, model.eigen_solver))
    if model._solver_name == "nystrom" and model.landmarks == "kmeans":
        what = "'leverage' or 'uniform': X holds items, which have no mean"
        raise ValueError(expected("landmarks", what, model.landmarks))


def _centres(X: Array, m: int, rng: np.random.Generator) -> Array:
    """Return the centres of m clusters."""
    from sklearn.cluster import MiniBatchKMeans

    seed = int(rng.integers(2**31 - 1))
    rows = X if backend.is_sparse(X) else backend.to_numpy(X)
    means = MiniBatchKMeans(m, random_state=seed, n_init=1, batch_size=max(1024, m)).fit(rows)
    centres = means.cluster_centers_
    return type(X)(centres) if backend.is_sparse(X) else backend.asarray(centres, X)


def from_mapped(model: Any, feature_map: FeatureMap, mapped: Mapped) -> KernelFit:
    """Return the model of mapped rows: PCA of the features, with the variance of the kernel."""
    moments = mapped.moments
    operator = Scatter(moments)
    spectrum = solve(operator, rank_of(model, operator.shape[0]), "dense")
    total = mapped.total - moments.n * float(moments.mean @ moments.mean)
    total = max(total, float(operator.trace))
    held = Spectrum(spectrum.values, spectrum.vectors, total, spectrum.dim)
    spectrum = keep(model, held, EPS * mapped.total)
    xp = backend.namespace(spectrum.values)
    exists = xp.where(spectrum.values > 0, 1 + 0 * spectrum.values, 0 * spectrum.values)
    subspace = _subspace(feature_map, spectrum.vectors * exists, moments.mean)
    error = Approximation(mapped.left_out, _gap(feature_map, moments.n, spectrum))
    _warn_if_far(model, mapped.left_out)
    return KernelFit(subspace, spectrum, moments.n, error, model._solver_name)


def _subspace(feature_map: FeatureMap, axes: Array, mean: Array) -> Subspace | MappedSubspace:
    if isinstance(feature_map, Landmarks):
        return landmark_subspace(feature_map, axes, mean)
    return MappedSubspace(feature_map, axes, mean)


def _gap(feature_map: FeatureMap, n: float, spectrum: Spectrum) -> float:
    """Return the relative error of the smallest eigenvalue kept that random features may cause."""
    if not isinstance(feature_map, Fourier) or spectrum.rank == 0:
        return 0.0
    smallest = float(spectrum.values[-1])
    return feature_map.gap * n / smallest if smallest > 0 else float("inf")


def _warn_if_far(model: Any, left_out: float) -> None:
    if model._solver_name == "cholesky" and left_out > max(float(model.tol), 1e-10):
        warn(
            f"{model.n_landmarks} landmarks leave {left_out:.2%} of the variance out; "
            f"tol={model.tol:g} was asked for. Raise n_landmarks, or use eigen_solver='krylov'.",
            SolverWarning,
        )
