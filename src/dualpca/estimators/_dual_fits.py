"""Ways to fit the dual model: over the points or a finite feature map, closed form or EM."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.data import Moments
from dualpca.errors import DegenerateError, ScaleError, SpectrumWarning, expected
from dualpca.estimators._base import generator
from dualpca.estimators._components import at_least_one, is_count, is_share, share_count
from dualpca.estimators._dual_relevance import fit_relevant
from dualpca.estimators._kernel_fits import gram_of
from dualpca.estimators._kernel_inputs import kernel_of
from dualpca.estimators._kernel_results import Approximation
from dualpca.estimators._mapped_fits import map_of
from dualpca.estimators._uncertain import (
    as_uncertain,
    input_model,
    uncertain_dual,
    uncertain_subspace,
)
from dualpca.gaussian import ROUNDING, SpikedGaussian, given_noise, maximum_likelihood, selection
from dualpca.kernels import Kernel
from dualpca.models.driver import Record
from dualpca.models.dual import AnchorSpace, MapSpace, PointSpace
from dualpca.models.spiked import NO_NOISE, em_of_operator, ppca_step
from dualpca.operators import (
    Dual,
    FeatureMap,
    Landmarks,
    MappedSubspace,
    Scatter,
    Spectrum,
    Subspace,
    UncertainSubspace,
    landmark_subspace,
    leave_out_negatives,
    map_rows,
    warn_of_cancellation,
)
from dualpca.solvers import Krylov, choose, solve

NEGLIGIBLE = 1e-12
"""Eigenvalues below this share of the largest are zero."""

EM_TOL = 1e-6
"""The `tol` of EM where 0, machine precision, was asked for: it would never stop."""


class DualFit(NamedTuple):
    """A fitted dual model and how it was found."""

    spectrum: Spectrum
    gaussian: SpikedGaussian
    record: Record
    relevance: Array | None
    n: float
    projector: Subspace | MappedSubspace | UncertainSubspace
    expansion: (
        Subspace | UncertainSubspace | None
    )  # the directions over points, where there are any
    space: AnchorSpace
    points: Array
    error: Approximation
    solver: str


class Parameters(NamedTuple):
    """The model on its operator, whatever that is."""

    spectrum: Spectrum
    gaussian: SpikedGaussian
    record: Record
    relevance: Array | None = None  # (q started,), 1/α, with 'ard'


class Features(Scatter):
    """The scatter of mapped points; its noise may live in more dimensions than the map has."""

    def __init__(self, moments: Moments, dim: int | None) -> None:
        super().__init__(moments)
        self.order = self.dim
        self.dim = self.order if dim is None else dim

    @property
    def shape(self) -> tuple[int, int]:
        """(m, m)."""
        return (self.order, self.order)


def fit_points(model: Any, X: Array, kernel: Kernel, weights: Array | None) -> DualFit:
    """Fit from the centred kernel over all points."""
    operator = Dual(gram_of(precision(model), X, kernel), None, weights, center=model.center)
    return fit_dual(model, operator, kernel, X, weights)


def precision(model: Any) -> Any:
    """Return what `gram_of` reads: EM's `tol` says nothing of the precision of kernel values."""
    by_em = model.method == "em" and model.dtype is None
    dtype = "float64" if by_em else model.dtype
    return SimpleNamespace(dtype=dtype, tol=model.tol, memory_limit=model.memory_limit)


def fit_incomplete(model: Any, X: Array, weights: Array | None) -> tuple[DualFit, Kernel]:
    """Fit rows with NaN: inner products are expectations under a PPCA of the inputs."""
    model.input_model_ = input_model(X, weights)
    rows = as_uncertain(model.input_model_, X)
    kernel = kernel_of(model, rows.mean)
    operator = uncertain_dual(rows, kernel, weights, model.center)
    found = fit_dual(model, operator, operator.gram.kernel, operator.gram.points, weights)
    subspace = uncertain_subspace(operator, found.spectrum, rows, kernel)
    return found._replace(projector=subspace, expansion=subspace, points=X), kernel


def fit_dual(
    model: Any, operator: Dual, kernel: Kernel, X: Array, weights: Array | None
) -> DualFit:
    """Fit from a kernel operator over the points X."""
    operator.dim = model.noise_dim or noise_dimension(operator.shape[0], weights)
    with warnings.catch_warnings():
        if not kernel.definite:
            leave_out_negatives(operator, generator(model._seed))
            warnings.simplefilter("ignore", SpectrumWarning)  # said, with how much there is
        found, name = fit_operator(model, operator)
    span = operator.subspace(found.spectrum)
    means = operator.means if model.center else 0 * operator.weights
    about = (found.spectrum, means, span.tilt, float(model.memory_limit))
    space = PointSpace(X, kernel, operator.weights, bool(model.center), *about)
    error = Approximation(0.0, found.spectrum.error)
    return DualFit(*found, operator.n, span, span, space, X, error, name)


def noise_dimension(count: int, weights: Array | None) -> int:
    """Return r = n (S0): the number of points, repetitions counted; whole weights are such."""
    if weights is None:
        return count
    return max(count, round(float(backend.namespace(weights).sum(weights))))


def fit_mapped(model: Any, X: Array, kernel: Kernel, weights: Array | None) -> DualFit:
    """Fit PPCA in the space of a finite feature map; r is its dimension unless given."""
    feature_map = map_of(model, X, kernel, weights)
    mapped = map_rows(feature_map, X, weights, center=model.center)
    found, _ = fit_operator(model, Features(mapped.moments, model.noise_dim))
    error = Approximation(mapped.left_out, 0.0)
    points = feature_map.points if isinstance(feature_map, Landmarks) else X
    n, mean = mapped.moments.n, mapped.moments.mean
    return on_features(found, n, feature_map, mean, points, error, model._solver_name)


def on_features(
    found: Parameters,
    n: float,
    feature_map: FeatureMap,
    mean: Array,
    points: Array,
    error: Approximation,
    solver: str,
) -> DualFit:
    """Return a model on explicit features as a dual one, with kernel values at `points`."""
    axes = found.spectrum.vectors
    expansion = None
    if isinstance(feature_map, Landmarks):
        expansion = landmark_subspace(feature_map, axes, mean)
    space = MapSpace(feature_map(backend.points(points)) - mean, axes, mean)
    projector = MappedSubspace(feature_map, axes, mean)
    return DualFit(*found, n, projector, expansion, space, points, error, solver)


def fit_operator(model: Any, operator: Any) -> tuple[Parameters, str]:
    """Fit the model on its operator, by its spectrum or by EM; return it with the solver's name."""
    check_variance(operator)
    by_em = model.method == "em"
    if by_em and is_count(model.n_components):
        return fit_em(model, operator, int(model.n_components)), "em"
    spectrum, name = leading(model, operator)
    if model.n_components == "ard":
        return Parameters(*fit_relevant(spectrum, operator.n, model.noise_variance)), name
    gaussian = rule(model, spectrum, operator.n)
    if by_em:
        return fit_em(model, operator, gaussian.rank), "em"
    record = Record([loglikelihood(gaussian, operator)], 1, True)
    return Parameters(spectrum.head(gaussian.rank), gaussian, record), name


def check_variance(operator: Any) -> None:
    """Refuse points without variance in feature space, or with more than numbers can hold."""
    with np.errstate(over="ignore", invalid="ignore"):
        trace = float(operator.trace)
        size = trace + offset(operator)
    if not math.isfinite(size):
        raise ScaleError("the kernel overflows: X is too large. Divide it by a constant first.")
    if not trace > ROUNDING * size:
        raise DegenerateError(
            "the points have no variance in feature space: their kernel is constant. "
            "Give points that differ, or a kernel (or gamma) that tells them apart. If X lies far "
            "from the origin, subtract its mean first."
        )
    if isinstance(operator, Dual):
        warn_of_cancellation(operator.gram.points, size, trace)


def offset(operator: Any) -> float:
    """Return n‖φ̄‖², beside which a trace may be nothing but rounding error."""
    if isinstance(operator, Dual):
        return operator.n * operator.grand_mean if operator.centered else 0.0
    mean = operator.moments.mean
    return float(operator.n * (mean @ mean))


def leading(model: Any, operator: Any) -> tuple[Spectrum, str]:
    """Return the eigenpairs that were asked for, or that a given σ² could keep."""
    request, n, order = model.n_components, operator.n, operator.shape[0]
    rank = order
    if is_count(request):
        rank = min(int(request), order)
    elif request is None and model.noise_variance is not None:
        # at most tr/(nσ²) variances can exceed σ²
        rank = int(min(order, max(operator.trace / (n * float(model.noise_variance)), 1.0)))
    name = model._solver_name if isinstance(operator, Dual) else "dense"
    if name == "auto" or (name == "krylov" and np.isinf(Krylov.cost(operator, rank))):
        name = choose(operator, rank)  # a block that fills the space gains nothing on 'dense'
    spectrum = solve(operator, rank, name, float(model.tol), model._seed)
    return count(model, spectrum, n), name


def count(model: Any, spectrum: Spectrum, n: float) -> Spectrum:
    """Return as many eigenpairs as asked for, or as a rule finds, none of them zero."""
    values, request = backend.to_numpy(spectrum.values), model.n_components
    positive = int((values > NEGLIGIBLE * float(values[0])).sum())
    if is_count(request) and request > positive:
        what = f"at most {positive}, the number of directions with variance in feature space"
        raise ValueError(expected("n_components", what, request))
    if is_count(request):
        return spectrum.head(int(request))
    if is_share(request):
        return spectrum.head(min(share_count(float(request), spectrum), positive))
    if request == "ard" or (request is None and model.noise_variance is not None):
        return spectrum.head(positive)
    name = "evidence" if request is None else request
    arguments = (spectrum.values, spectrum.trace, spectrum.dim, n)
    return spectrum.head(at_least_one(name, selection.choose(name, *arguments)))


def rule(model: Any, spectrum: Spectrum, n: float) -> SpikedGaussian:
    """Return the Gaussian: σ² from q, or q from σ²."""
    if model.noise_variance is None:
        return maximum_likelihood(spectrum, n, spectrum.rank)
    asked = None if model.n_components is None else spectrum.rank
    return given_noise(spectrum, n, float(model.noise_variance), asked)


def loglikelihood(gaussian: SpikedGaussian, operator: Any) -> float:
    """Return that of all points; infinite where no noise is left, the limit σ² → 0."""
    if gaussian.noise == 0 and gaussian.rank < gaussian.dim:
        return math.inf
    return gaussian.loglikelihood(operator.n, operator.trace)


def fit_em(model: Any, operator: Any, q: int) -> Parameters:
    """Fit by EM on the operator, then rotate to its principal axes."""
    n, r, total = operator.n, operator.dim, operator.trace / operator.n
    rng, noise = generator(model._seed), model.noise_variance
    limits = (float(model.tol) or EM_TOL, model.max_iter or 1000)
    W, sigma2, record = em_of_operator(operator, q, n, rng, noise, *limits)
    record.add(ppca_step(operator, W, sigma2, n)[2])
    vanished = noise is None and sigma2 <= 10 * NO_NOISE * total / r
    U, s, _ = algebra.svd(W)
    gaussian = SpikedGaussian(s**2 + sigma2, 0.0 if vanished else sigma2, r)
    spectrum = Spectrum.of(n * gaussian.values, U, operator.trace, r)
    return Parameters(spectrum, gaussian, record)
