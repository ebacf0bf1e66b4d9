"""Ways to fit kernel PCA: exactly over the points, or through a finite feature map."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.definiteness import warn_of_negative_mass
from dualpca.errors import SolverWarning, SpectrumWarning, expected
from dualpca.estimators._components import is_count, is_share, share_count
from dualpca.estimators._kernel_inputs import kernel_of
from dualpca.estimators._uncertain import (
    as_uncertain,
    input_model,
    uncertain_dual,
    uncertain_subspace,
)
from dualpca.features import (
    FeatureMap,
    Fourier,
    Landmarks,
    Mapped,
    MappedSubspace,
    landmark_subspace,
    map_rows,
)
from dualpca.kernels import Kernel
from dualpca.kernels.objects import Precomputed
from dualpca.landmarks import leverage, pivoted_cholesky, uniform
from dualpca.representations import Dual, Given, Gram, Scatter
from dualpca.solvers import SOLVERS, Krylov, Solver, choose, solve
from dualpca.spectrum import Spectrum
from dualpca.subspace import Subspace
from dualpca.uncertain import UncertainSubspace

NEGLIGIBLE = 1e-12
"""Eigenvalues below this share of the largest are zero."""

LOOSE = 1e-2
"""The smallest `tol` at which 'auto' may leave a part of the trace out."""

SINGLE_TOL = 1e-6
"""The smallest `tol` at which float32 kernel values are taken without being asked for."""


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


class KernelFit(NamedTuple):
    """A fitted kernel PCA."""

    subspace: Subspace | MappedSubspace | UncertainSubspace
    spectrum: Spectrum
    n: float
    error: Approximation
    solver: str
    training_residual: Array | None = None  # (n,)


def fit_exact(model: Any, X: Array, kernel: Kernel, weights: Array | None) -> KernelFit:
    """Fit from eigenpairs of the centred kernel over all points."""
    operator = Dual(gram_of(model, X, kernel), None, weights, center=model.center)
    spectrum, name = solved(model, operator, kernel)
    error = Approximation(0.0, spectrum.error)
    residual = operator.off_span(spectrum)
    return KernelFit(operator.subspace(spectrum), spectrum, operator.n, error, name, residual)


def fit_incomplete(model: Any, X: Array, weights: Array | None) -> tuple[KernelFit, Kernel]:
    """Fit rows with NaN: inner products are expectations under a PPCA of the inputs."""
    if model._solver_name in ("nystrom", "cholesky", "fourier"):
        what = "an exact solver ('auto', 'dense', 'krylov') for rows with NaN"
        raise ValueError(expected("eigen_solver", what, model.eigen_solver))
    model.input_model_ = input_model(X, weights)
    rows = as_uncertain(model.input_model_, X)
    kernel = kernel_of(model, rows.mean)
    operator = uncertain_dual(rows, kernel, weights, model.center)
    spectrum, name = solved(model, operator, kernel)
    subspace = uncertain_subspace(operator, spectrum, rows, kernel)
    error = Approximation(0.0, spectrum.error)
    residual = operator.off_span(spectrum)
    return KernelFit(subspace, spectrum, operator.n, error, name, residual), kernel


def solved(model: Any, operator: Dual, kernel: Kernel) -> tuple[Spectrum, str]:
    """Return the eigenpairs asked for, and the solver that found them."""
    rank = _rank(model, operator.shape[0])
    name = model._solver_name
    if name == "auto" or (name == "krylov" and np.isinf(Krylov.cost(operator, rank))):
        name = choose(operator, rank)  # a block that fills the space gains nothing on 'dense'
    rng = np.random.default_rng(model._seed)
    if not kernel.definite:
        warn_of_negative_mass(operator, rng)
    with warnings.catch_warnings():
        if not kernel.definite:  # said already, with how much there is
            warnings.simplefilter("ignore", SpectrumWarning)
        return keep(model, _solver(model, name).solve(operator, rank, rng)), name


def _solver(model: Any, name: str) -> Solver:
    """Return the solver with the parameters of the model."""
    if name == "krylov" and model.max_iter is not None:
        return Krylov(tol=float(model.tol), max_passes=int(model.max_iter))
    return SOLVERS[name](tol=float(model.tol))


def gram_of(model: Any, X: Array, kernel: Kernel) -> Gram:
    """Return the kernel over the points, stored where the memory limit allows it."""
    if isinstance(kernel, Precomputed):
        return Given(X, kernel)
    n = int(X.shape[0])
    single = model.dtype == "float32" or (model.dtype is None and model.tol >= SINGLE_TOL)
    stored = n * n * (4 if single else 8) <= model.memory_limit
    return Gram(X, kernel, single=single, stored=stored)


def _rank(model: Any, most: int) -> int:
    """Return how many eigenpairs to ask for."""
    request = model.n_components
    return min(int(request), most) if is_count(request) else most


def keep(model: Any, spectrum: Spectrum) -> Spectrum:
    """Return the eigenpairs asked for: zeros are zeros, and dropped where nobody counts them."""
    values = _array.to_numpy(spectrum.values)
    zero = values <= NEGLIGIBLE * max(float(values[0]) if values.size else 0.0, 0.0)
    xp = _array.namespace(spectrum.values)
    flags = xp.asarray(~zero, device=_array.device_of(spectrum.values))
    cleaned = xp.where(flags, spectrum.values, xp.zeros_like(spectrum.values))
    trace, dim, error = spectrum.trace, spectrum.dim, spectrum.error
    spectrum = Spectrum(cleaned, spectrum.vectors, trace, dim, error)
    if is_share(model.n_components):
        return spectrum.head(share_count(float(model.n_components), spectrum))
    if model.remove_zero_eig or model.n_components is None:
        return spectrum.head(int((~zero).sum()))
    return spectrum


def fit_mapped(model: Any, X: Array, kernel: Kernel, weights: Array | None) -> KernelFit:
    """Fit from the moments of a finite feature map."""
    feature_map = map_of(model, X, kernel)
    mapped = map_rows(feature_map, X, weights, center=model.center)
    return from_mapped(model, feature_map, mapped)


def map_of(model: Any, X: Array, kernel: Kernel) -> FeatureMap:
    """Return the feature map of the solver asked for."""
    rng, m, n = np.random.default_rng(model._seed), model.n_landmarks, int(X.shape[0])
    if model._solver_name == "fourier":
        return Fourier.of(kernel, X, m, rng)
    if model._solver_name == "cholesky":
        found = pivoted_cholesky(X, kernel, m, float(model.tol), rng)
        return Landmarks.of(_array.take(X, found.index), kernel)
    if model.landmarks == "kmeans":
        return Landmarks.of(_centres(X, min(m, n), rng), kernel)
    if model.landmarks == "uniform":
        return Landmarks.of(_array.take(X, uniform(n, m, rng)), kernel)
    return Landmarks.of(_array.take(X, leverage(X, kernel, m, rng)), kernel)


def _centres(X: Array, m: int, rng: np.random.Generator) -> Array:
    """Return the centres of m clusters."""
    from sklearn.cluster import MiniBatchKMeans

    seed = int(rng.integers(2**31 - 1))
    rows = _array.to_numpy(X)
    means = MiniBatchKMeans(m, random_state=seed, n_init=1, batch_size=max(1024, m)).fit(rows)
    return _array.asarray(means.cluster_centers_, X)


def from_mapped(model: Any, feature_map: FeatureMap, mapped: Mapped) -> KernelFit:
    """Return the model of mapped rows: PCA of the features, with the variance of the kernel."""
    moments = mapped.moments
    operator = Scatter(moments)
    spectrum = solve(operator, _rank(model, operator.shape[0]), "dense")
    total = mapped.total - moments.n * float(moments.mean @ moments.mean)
    total = max(total, float(operator.trace))
    held = Spectrum(spectrum.values, spectrum.vectors, total, spectrum.dim)
    spectrum = keep(model, held)
    subspace = _subspace(feature_map, spectrum.vectors, moments.mean)
    error = Approximation(mapped.left_out, _gap(feature_map, moments.n, spectrum))
    _warn_if_far(model, mapped.left_out)
    return KernelFit(subspace, spectrum, moments.n, error, model._solver_name)


def _subspace(feature_map: FeatureMap, axes: Array, mean: Array) -> Subspace | MappedSubspace:
    if isinstance(feature_map, Landmarks):
        return landmark_subspace(feature_map, axes, mean)
    return MappedSubspace(feature_map, axes, mean)


def fit_auto(model: Any, X: Array, kernel: Kernel, weights: Array | None) -> KernelFit:
    """Fit exactly, unless `tol` is loose and the kernel too large to store.

    Then landmarks by pivoted Cholesky are tried first: they are kept if what they leave out of
    the trace is within `tol`, which bounds the error of every eigenvalue.
    """
    n = int(X.shape[0])
    small = n * n * 4 <= model.memory_limit or isinstance(kernel, Precomputed)
    if model.tol < LOOSE or small or X.ndim == 1:
        return fit_exact(model, X, kernel, weights)
    rng = np.random.default_rng(model._seed)
    found = pivoted_cholesky(X, kernel, model.n_landmarks, float(model.tol), rng)
    feature_map = Landmarks.of(_array.take(X, found.index), kernel)
    mapped = map_rows(feature_map, X, weights, center=model.center)
    if mapped.left_out > model.tol:
        return fit_exact(model, X, kernel, weights)
    return from_mapped(model, feature_map, mapped)._replace(solver="cholesky")


def _gap(feature_map: FeatureMap, n: float, spectrum: Spectrum) -> float:
    """Return the relative error of the smallest eigenvalue kept that random features may cause."""
    if not isinstance(feature_map, Fourier) or spectrum.rank == 0:
        return 0.0
    smallest = float(spectrum.values[-1])
    return feature_map.gap * n / smallest if smallest > 0 else float("inf")


def _warn_if_far(model: Any, left_out: float) -> None:
    if model._solver_name == "cholesky" and left_out > max(float(model.tol), 1e-10):
        warnings.warn(
            f"{model.n_landmarks} landmarks leave {left_out:.2%} of the variance out; "
            f"tol={model.tol:g} was asked for. Raise n_landmarks, or use eigen_solver='krylov'.",
            SolverWarning,
            stacklevel=5,
        )


def check_request(request: Any) -> None:
    """Refuse what is no number of components."""
    if request is None or is_share(request) or (is_count(request) and request >= 1):
        return
    what = "None, an integer of at least 1, or a share of the variance between 0 and 1"
    raise ValueError(expected("n_components", what, request))
