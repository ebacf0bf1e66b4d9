"""Ways to fit probabilistic kernel PCA: in closed form, by EM, and with diagonal noise."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import DegenerateError, SpectrumWarning, expected, warn
from dualpca.estimators._base import generator
from dualpca.estimators._components import is_count, is_share, share_count
from dualpca.gaussian import SpikedGaussian, given_noise, maximum_likelihood
from dualpca.kernels import Kernel, Precomputed
from dualpca.models.driver import Record
from dualpca.models.factor import fit_factors
from dualpca.models.probabilistic_kernel import FeatureScatter, Placement, principal
from dualpca.models.spiked import NO_NOISE, breakdowns_told, em_of_operator, ppca_step
from dualpca.operators import (
    Given,
    Gram,
    Primal,
    Spectrum,
    negative_mass,
    stored_bytes,
    warn_of_cancellation,
)
from dualpca.solvers import solve

HEYWOOD = 1e-4
"""Smallest noise of a point, as a share of its variance, where every point has its own."""

NO_VARIANCE = 1e-13
"""Share of the kernel's size below which its centred trace is rounding error."""

NEGATIVE = 1e-10
"""Share of negative eigenvalues, in magnitude, that is more than rounding error."""


class FeatureFit(NamedTuple):
    """A fitted model: coordinates, noise, how to place new points, and how it was found."""

    B: Array  # (n, q)
    psi: Array  # (n,)
    variances: Array  # (q,)
    placement: Placement
    record: Record


def source_of(model: Any, points: Array, kernel: Kernel) -> FeatureScatter:
    """Return the centred kernel over the points, stored where the memory limit allows it."""
    if isinstance(kernel, Precomputed):
        return FeatureScatter(Given(points, kernel))
    stored = stored_bytes(int(points.shape[0])) <= model.memory_limit
    return FeatureScatter(Gram(points, kernel, stored=stored))


def definite_part(model: Any, source: FeatureScatter, like: Array) -> tuple[FeatureScatter, float]:
    """Return the kernel without its negative eigenvalues, and what share of all they were.

    O(n³) and an n×n array, for kernels that are not known to be positive semi-definite. What the
    rounding of values in the dtype of `like` may have caused counts as none.
    """
    if source.gram.kernel.definite:
        return source, 0.0
    negative, total = negative_mass(source, np.random.default_rng(model._seed))
    if negative <= max(NEGATIVE, _rounding(source, like)) * total:
        return source, 0.0
    values, vectors = algebra.top_eigh(source.dense(), source.shape[0])
    xp = backend.namespace(values)
    kept = xp.where(values < 0, xp.zeros_like(values), values)
    definite = FeatureScatter(Given((vectors * kept) @ vectors.T, Precomputed()))
    return definite, negative / total


def _rounding(source: FeatureScatter, like: Array) -> float:
    """Return the share that rounding errors of the kernel's values may have, as a random matrix."""
    eps = float(backend.namespace(like).finfo(like.dtype).eps)
    return eps * math.sqrt(source.shape[0]) * _size(source) / source.trace


def _size(source: FeatureScatter) -> float:
    """Return n times the size of the kernel's values."""
    total = float(backend.namespace(source.like).sum(abs(source.gram.diag())))
    return total + source.n * abs(source.grand_mean)


def warn_of_negative(model: Any, share: float) -> None:
    """Say that negative eigenvalues were left out, and what else could be done."""
    what = "the kernel is indefinite" if model.metric is None else "the distances are not Euclidean"
    remedy = "Use a positive semi-definite kernel if they matter."
    if model.metric is not None:
        remedy = "correction='lingoes' or 'cailliez' adds the least constant that leaves none."
    if share > 0:
        warn(
            f"{what}: negative eigenvalues are {share:.2%} of all in magnitude. They are left out. "
            + remedy,
            SpectrumWarning,
        )


def check_variance(source: FeatureScatter) -> None:
    """Refuse points that all have the same features; warn where they hardly differ."""
    size = _size(source)
    if source.trace <= NO_VARIANCE * size:
        raise DegenerateError(
            f"X has no variance in feature space: the trace of its centred kernel is "
            f"{source.trace:.3g}. All points are alike to the kernel, or it is negative. Give "
            "points that differ, or another kernel. If X lies far from the origin, subtract its "
            "mean first."
        )
    warn_of_cancellation(source.gram.points, size, source.trace)


def check_count(model: Any, n: int) -> None:
    """Refuse a number of components that n points cannot have."""
    request, given = model.n_components, model.noise_variance is not None
    if request is None and given and model.noise == "isotropic":
        return
    most = n - 1 if given else n - 2  # centring takes one direction, noise needs another
    if is_share(request) or (is_count(request) and 1 <= request <= most):
        return
    what = f"an integer from 1 to {most} for {n} points, a share of the variance, "
    what += "or None where noise_variance is given"
    raise ValueError(expected("n_components", what, request))


def fit_closed(model: Any, operator: FeatureScatter, points: Array) -> FeatureFit:
    """Fit from the leading eigenpairs of Kc: σ² = (tr Kc/n − Σℓ)/(n − q), B = U(Λ − σ²)^{1/2}."""
    spectrum, gaussian = closed_form(model, operator)
    n = operator.n
    value = gaussian.loglikelihood(n, operator.trace)
    B = spectrum.vectors * gaussian.spread
    placement = Placement.of_spectrum(spectrum, gaussian, n)
    record = Record([value], 1, True)
    return FeatureFit(B, _all(gaussian.noise, B), gaussian.values, placement, record)


def closed_form(model: Any, operator: FeatureScatter) -> tuple[Spectrum, SpikedGaussian]:
    """Return the eigenpairs asked for and the Gaussian of maximum likelihood, or of given noise."""
    order, request = operator.shape[0], model.n_components
    rank = int(request) if is_count(request) else order - 1
    spectrum = solve(operator, rank, model.eigen_solver, random_state=model._seed)
    if is_share(request):
        spectrum = spectrum.head(share_count(float(request), spectrum))
    if model.noise_variance is None:
        gaussian = maximum_likelihood(spectrum, operator.n, spectrum.rank)
    else:
        asked = None if request is None else spectrum.rank
        gaussian = given_noise(spectrum, operator.n, float(model.noise_variance), asked)
    gaussian.require_density()
    return spectrum.head(gaussian.rank), gaussian


def fit_em(model: Any, operator: FeatureScatter, points: Array) -> FeatureFit:
    """Fit by EM (MATH 9.2; S3, Eqs. 18, 19), accelerated unless the model says otherwise."""
    n, q = operator.n, count_of(model, operator)
    noise, rng = model.noise_variance, generator(model._seed)
    limits = {"tol": model.tol, "max_iter": model.max_iter, "accelerate": model.accelerate}
    start = start_of(model, operator, points, q)
    with breakdowns_told(q):
        B, sigma2, record = em_of_operator(operator, q, n, rng, noise, start=start, **limits)
        record.add(ppca_step(operator, B, sigma2, n)[2])
    if noise is None and sigma2 <= 10 * NO_NOISE * operator.trace / n / operator.dim:
        sigma2 = 0.0
    turned, squares = principal(B)
    gaussian = SpikedGaussian(squares + sigma2, sigma2, operator.dim)
    gaussian.require_density()
    psi = _all(sigma2, B)
    placement = Placement.of_factors(operator, turned, psi)
    return FeatureFit(turned, psi, gaussian.values, placement, record)


def fit_diagonal(model: Any, operator: FeatureScatter, points: Array) -> FeatureFit:
    """Fit kernel factor analysis: every point has its own noise."""
    q, em = count_of(model, operator), model.method == "em"
    limits = (None, model.tol, model.max_iter)
    factors, record = fit_factors(operator, q, HEYWOOD, *limits, em=em)  # type: ignore[arg-type]
    B, _ = principal(factors.W, factors.psi)
    placement = Placement.of_factors(operator, B, factors.psi)
    variances = backend.namespace(B).sum(B * B, axis=0)
    return FeatureFit(B, factors.psi, variances, placement, record)


def count_of(model: Any, operator: FeatureScatter) -> int:
    """Return q: given, or read from the spectrum."""
    if is_count(model.n_components):
        return int(model.n_components)
    return closed_form(model, operator)[1].rank


def start_of(
    model: Any, operator: FeatureScatter, points: Array, q: int
) -> tuple[Array, float] | None:
    """Return where EM starts: a given B, PCA scores of the inputs (S3, section 6), or None."""
    unit = operator.trace / operator.n / operator.dim
    if not isinstance(model.init, str):
        return check_start(model.init, operator, q), unit
    enough = points.ndim == 2 and not model._pairwise
    enough = enough and q <= min(points.shape[0] - 1, points.shape[1])
    if model.init == "random" or (model.init == "auto" and not enough):
        return None
    if not enough:
        what = f"'auto' or 'random' where X has no {q} principal components of its own"
        raise ValueError(expected("init", what, model.init))
    primal = Primal(points)
    spectrum = solve(primal, q)
    gaussian = maximum_likelihood(spectrum, primal.n, q)
    scores = primal.frame.coordinates(spectrum.vectors, points)
    return scores, gaussian.noise if gaussian.noise > 0 else unit


def check_start(init: Any, operator: FeatureScatter, q: int) -> Array:
    """Return given coordinates, (n, q), to start from."""
    B = np.asarray(backend.to_numpy(init))
    if B.shape != (operator.shape[0], q) or B.dtype.kind not in "fiu" or not np.isfinite(B).all():
        what = f"'auto', 'pca', 'random' or finite numbers of shape ({operator.shape[0]}, {q})"
        raise ValueError(expected("init", what, B.shape if B.ndim else init))
    return backend.asarray(B, operator.like)


def _all(sigma2: float, like: Array) -> Array:
    """Return the same noise for every point, (n,)."""
    return backend.asarray(np.full(int(like.shape[0]), sigma2), like)
