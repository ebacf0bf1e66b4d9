"""Ways to fit kernel PCA: exactly over the points, or through a finite feature map."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.definiteness import leave_out_negatives
from dualpca.errors import ScaleError, SolverWarning, SpectrumWarning, expected
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
from dualpca.kernels.objects import Function, Precomputed
from dualpca.landmarks import leverage, pivoted_cholesky, uniform
from dualpca.memory import shown
from dualpca.moments import refuse_nonfinite
from dualpca.parts import Parts
from dualpca.progress import note
from dualpca.representations import Dual, Fused, Given, Gram, Scatter, make_gram, stored_bytes
from dualpca.solvers import SOLVERS, Krylov, Solver, choose, solve, tell
from dualpca.spectrum import Spectrum
from dualpca.subspace import Subspace
from dualpca.uncertain import UncertainSubspace

EPS = float(np.finfo(np.float64).eps)

NEGLIGIBLE = 1e-12
"""Eigenvalues below this share of the largest are zero."""

LOOSE = 1e-2
"""The smallest `tol` at which 'auto' may leave a part of the trace out."""

NOVELTY_ROWS = 2000
"""Training rows, evenly spaced, whose novelty stands for all with an approximate solver."""

SINGLE_TOL = 1e-6
"""The smallest `tol` at which float32 kernel values are taken without being asked for."""


SAMPLE_ROWS = 10_000
"""Rows drawn from a table in parts, at least, to choose landmarks and find widths in."""


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
        residual, weights = _array.to_numpy(self.residual), _array.to_numpy(self.weights)
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


def fit_exact(model: Any, X: Array, kernel: Kernel, weights: Array | None) -> KernelFit:
    """Fit from eigenpairs of the centred kernel over all points."""
    operator = Dual(gram_of(model, X, kernel), None, weights, center=model.center)
    refuse_overflow(operator.total)
    spectrum, name = solved(model, operator, kernel)
    if model.dtype is None and too_coarse(operator, spectrum, float(model.tol)):
        gram = gram_of(model, X, kernel, double=True)
        operator = Dual(gram, None, weights, center=model.center)
        spectrum, name = solved(model, operator, kernel)
    error = Approximation(0.0, spectrum.error)
    residual = operator.off_span(spectrum)
    subspace, novelty = operator.subspace(spectrum), Novelty(residual, operator.weights)
    return KernelFit(subspace, spectrum, operator.n, error, name, residual, novelty)


def refuse_overflow(total: float) -> None:
    """Refuse a kernel whose trace float64 cannot hold: no value is larger than on the diagonal."""
    if not np.isfinite(total):
        raise ScaleError("kernel values overflow: X is too large. Divide it by a constant first.")


def too_coarse(operator: Dual, spectrum: Spectrum, tol: float) -> bool:
    """Tell whether float32 kernel values leave a larger error of the eigenvalues than `tol`."""
    if not operator.single or spectrum.rank == 0 or spectrum.error > tol:
        return operator.single and spectrum.rank > 0
    largest = float(_array.to_numpy(operator.gram.diag()).max())
    return bool(np.finfo(np.float32).eps * largest > tol * float(spectrum.values[-1]))


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
    novelty = Novelty(residual, operator.weights)
    return KernelFit(subspace, spectrum, operator.n, error, name, residual, novelty), kernel


def solved(model: Any, operator: Dual, kernel: Kernel) -> tuple[Spectrum, str]:
    """Return the eigenpairs asked for, and the solver that found them."""
    rank = _rank(model, operator.shape[0])
    name = model._solver_name
    if name == "auto" or (name == "krylov" and np.isinf(Krylov.cost(operator, rank))):
        name = choose(operator, rank)  # a block that fills the space gains nothing on 'dense'
    rng = np.random.default_rng(model._seed)
    if not kernel.definite:
        leave_out_negatives(operator, rng)
    with warnings.catch_warnings():
        if not (kernel.definite and isinstance(kernel, Precomputed | Function)):
            # said already, with how much there is; or no more than rounding error
            warnings.simplefilter("ignore", SpectrumWarning)
        tell(name, operator, rank)
        spectrum = _solver(model, name).solve(operator, rank, rng)
    return keep(model, operator.oriented(spectrum), operator.eps * operator.total), name


def _solver(model: Any, name: str) -> Solver:
    """Return the solver with the parameters of the model."""
    if name == "krylov" and model.max_iter is not None:
        return Krylov(tol=float(model.tol), max_passes=int(model.max_iter))
    return SOLVERS[name](tol=float(model.tol))


def gram_of(model: Any, X: Array, kernel: Kernel, *, double: bool = False) -> Gram:
    """Return the kernel over the points, stored where the memory limit allows it.

    Only kernels of the distance are taken in float32 unasked: centring takes away what an offset
    adds to others, such as xᵀy, and with it the digits.
    """
    if isinstance(kernel, Precomputed):
        return Given(X, kernel)
    n = int(X.shape[0])
    loose = model.dtype is None and model.tol >= SINGLE_TOL and kernel.invariant
    single = not double and (model.dtype == "float32" or loose)
    size = stored_bytes(n, single=single)
    gram = make_gram(X, kernel, single=single, stored=size <= model.memory_limit)
    how = f"stored, {shown(size)}" if size <= model.memory_limit else "computed in every pass"
    how = "fused with its products" if isinstance(gram, Fused) else how
    note(f"kernel of {n}x{n}: {how}, {'single' if single else 'double'} precision")
    return gram


def _rank(model: Any, most: int) -> int:
    """Return how many eigenpairs to ask for."""
    request = model.n_components
    return min(int(request), most) if is_count(request) else most


def keep(model: Any, spectrum: Spectrum, rounding: float) -> Spectrum:
    """Return the eigenpairs asked for: zeros are zeros, and dropped where nobody counts them.

    `rounding` is ε·Σwk(x, x): what centring takes from it leaves errors of that size behind.
    """
    values = _array.to_numpy(spectrum.values)
    largest = max(float(values[0]) if values.size else 0.0, 0.0)
    zero = values <= max(NEGLIGIBLE * largest, 2 * rounding)
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
    with np.errstate(over="ignore", invalid="ignore"):
        refuse_overflow(float(_array.to_numpy(kernel.diag(_array.points(X))).sum()))
    feature_map = map_of(model, X, kernel, weights)
    mapped = map_rows(feature_map, X, weights, center=model.center)
    return with_novelty(from_mapped(model, feature_map, mapped), X, weights)


def fit_mapped_parts(model: Any, parts: Parts, sample: Array, kernel: Kernel) -> KernelFit:
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
    residual = found.subspace.project(_array.take(X, index)).residual
    w = _array.ones(residual.shape, residual) if weights is None else _array.take(weights, index)
    if not bool(_array.to_numpy(w).any()):
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
        return Landmarks.of(_array.take(X, found.index), kernel)
    if m >= n:
        return Landmarks.of(X, kernel)
    if model.landmarks == "kmeans":
        return Landmarks.of(_centres(X, m, rng), kernel)
    if model.landmarks == "uniform":
        return Landmarks.of(_array.take(X, uniform(n, m, rng)), kernel)
    return Landmarks.of(_array.take(X, leverage(X, kernel, m, rng)), kernel)


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
    rows = X if _array.is_sparse(X) else _array.to_numpy(X)
    means = MiniBatchKMeans(m, random_state=seed, n_init=1, batch_size=max(1024, m)).fit(rows)
    centres = means.cluster_centers_
    return type(X)(centres) if _array.is_sparse(X) else _array.asarray(centres, X)


def from_mapped(model: Any, feature_map: FeatureMap, mapped: Mapped) -> KernelFit:
    """Return the model of mapped rows: PCA of the features, with the variance of the kernel."""
    moments = mapped.moments
    operator = Scatter(moments)
    spectrum = solve(operator, _rank(model, operator.shape[0]), "dense")
    total = mapped.total - moments.n * float(moments.mean @ moments.mean)
    total = max(total, float(operator.trace))
    held = Spectrum(spectrum.values, spectrum.vectors, total, spectrum.dim)
    spectrum = keep(model, held, EPS * mapped.total)
    xp = _array.namespace(spectrum.values)
    exists = xp.where(spectrum.values > 0, 1 + 0 * spectrum.values, 0 * spectrum.values)
    subspace = _subspace(feature_map, spectrum.vectors * exists, moments.mean)
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
    fits = stored_bytes(n, single=True) <= model.memory_limit
    small = fits or isinstance(kernel, Precomputed)
    if model.tol < LOOSE or small or X.ndim == 1:
        return fit_exact(model, X, kernel, weights)
    rng = np.random.default_rng(model._seed)
    found = pivoted_cholesky(X, kernel, model.n_landmarks, float(model.tol), rng, weights)
    feature_map = Landmarks.of(_array.take(X, found.index), kernel)
    mapped = map_rows(feature_map, X, weights, center=model.center)
    if mapped.left_out > model.tol:
        return fit_exact(model, X, kernel, weights)
    fit = from_mapped(model, feature_map, mapped)._replace(solver="cholesky")
    return with_novelty(fit, X, weights)


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
