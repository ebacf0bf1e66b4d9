"""Dual probabilistic PCA: a Gaussian over feature space, known through kernel values.

`DualModel` is the fitted model, `fit_dual` makes one of a table, `to_primal` and `to_dual` lead to
the same model over explicit features (`SpikedModel`) and back.

A point φ of feature space shows itself through kc_i = ⟨φ(x_i) − φ̄, φ − φ̄⟩ for anchors x_i, the
training points. A space knows the anchors' coordinates on the model's directions and draws noise
ε ~ N(0, I) as its kernel values; `draw` and `draw_given` make samples of the model of these
(theory 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.data import InMemoryTable, Table
from dualpca.errors import DegenerateError, DualPCAError, ScaleError, expected
from dualpca.gaussian import (
    ROUNDING,
    SpikedGaussian,
    at_least_one,
    fit_relevance,
    is_count,
    is_share,
    loglikelihood,
    selection,
    share_count,
    spiked_gaussian,
)
from dualpca.kernels import Kernel, Linear, Precomputed
from dualpca.models.driver import History, Record
from dualpca.models.kernel import (
    NEGLIGIBLE_EIGENVALUE,
    Approximation,
    Directions,
    KernelChoice,
    Source,
    coordinates_on,
    is_incomplete,
    uncertain_part,
)
from dualpca.models.spiked import NO_NOISE, SpikedModel, em_of_operator, ppca_step
from dualpca.operators import (
    Dual,
    Explicit,
    FeatureMap,
    Given,
    Gram,
    MappedScatter,
    MappedSubspace,
    Spectrum,
    Subspace,
    UncertainSubspace,
    make_gram,
    stored_bytes,
    warn_of_cancellation,
)
from dualpca.solvers import (
    KernelOptions,
    root_times,
    solve_kernel,
    without_negatives,
)

DENSE_ORDER, DENSE_MOST = 512, 4096
"""Up to these orders the whole spectrum is cheap: always, and for as many draws as points."""

SINGLE_TOL = 1e-3
"""The smallest error of the noise at which kernel values in float32 do."""

EM_TOL = 1e-6
"""The `tol` of EM where 0, machine precision, was asked for: it would never stop."""


# --- Feature space as the training points see it -------------------------------------------------


@dataclass(frozen=True, eq=False)
class PointSpace:
    """The span of the training points' features, exactly.

    ε on that span has kc ~ N(0, Kc): kc = Kc^{1/2} ξ, by Lanczos on the operator. With weights w
    the eigenpairs are those of D^{1/2} Kc D^{1/2}, D = diag w, and all w are positive.
    """

    points: Annotated[Array, "points n d"]  # (n, d), or the kernel matrix
    kernel: Kernel
    weights: Annotated[Array, "n"]
    centered: bool
    spectrum: Spectrum
    means: Annotated[Array, "n"]
    tilt: Annotated[Array, "q"]
    memory_limit: float

    def __getstate__(self) -> dict[str, Any]:
        """Leave the anchors to be computed again: they repeat the spectrum."""
        return {k: v for k, v in self.__dict__.items() if k != "anchors"}

    @cached_property
    def anchors(self) -> Array:
        """D^{-1/2} E Λ^{1/2}, (n, q)."""
        root = backend.namespace(self.weights).sqrt(self.spectrum.values)
        return self.spectrum.vectors * root / self._root[:, None]

    @property
    def _root(self) -> Array:
        return backend.namespace(self.weights).sqrt(self.weights)

    def operator(self, *, single: bool) -> Dual:
        """Return Kc as an operator, stored where the memory limit allows it."""
        if isinstance(self.kernel, Precomputed):
            gram: Gram = Given(self.points, self.kernel)
        else:
            n = int(self.points.shape[0])
            stored = stored_bytes(n, single=single) <= self.memory_limit
            gram = make_gram(self.points, self.kernel, single=single, stored=stored)
        return Dual(gram, weights=self.weights, center=self.centered)

    def noise(self, rng: np.random.Generator, m: int, tol: float, *, inside: bool) -> Array:
        """Draw kernel values of ε ~ N(0, I) on the span, (m, n)."""
        n, E = int(self.weights.shape[0]), self.spectrum.vectors
        xi = backend.normal(rng, (m, n), E).T
        along = E.T @ xi
        off = self._off(self._root_times(xi - E @ along, tol))
        if inside:
            root = backend.namespace(E).sqrt(self.spectrum.values)
            off = off + E @ (root[:, None] * along)
        return (off / self._root[:, None]).T

    def _off(self, V: Array) -> Array:
        """Return (I − EEᵀ) V."""
        E = self.spectrum.vectors
        return V - E @ (E.T @ V)

    def _root_times(self, V: Array, tol: float) -> Array:
        """Return Kc^{1/2} V: from all eigenpairs where that is cheap, else by Lanczos."""
        n, m = int(V.shape[0]), int(V.shape[1])
        if n <= DENSE_ORDER or (n <= DENSE_MOST and n <= m):
            values, vectors = algebra.top_eigh(self.operator(single=False).dense(), n)
            xp = backend.namespace(values)
            root = xp.sqrt(xp.where(values < 0, xp.zeros_like(values), values))
            return vectors @ (root[:, None] * (vectors.T @ V))
        return root_times(self.operator(single=tol >= SINGLE_TOL), V, tol=tol).product


@dataclass(frozen=True, eq=False)
class MapSpace:
    """The space of a finite feature map f, in which everything is explicit."""

    features: Annotated[Array, "n r"]  # (n, r), f(x_i) − mean of the anchors
    axes: Annotated[Array, "r q"]
    mean: Annotated[Array, "r"]

    @cached_property
    def anchors(self) -> Array:
        """(f(x_i) − mean)ᵀV, (n, q)."""
        return self.features @ self.axes

    @cached_property
    def means(self) -> Array:
        """f(x_i)ᵀ mean, (n,)."""
        return self.features @ self.mean + self.mean @ self.mean

    @cached_property
    def tilt(self) -> Array:
        """Vᵀ mean, (q,)."""
        return self.axes.T @ self.mean

    def noise(self, rng: np.random.Generator, m: int, tol: float, *, inside: bool) -> Array:
        """Draw kernel values of ε ~ N(0, I_r), (m, n); exact."""
        xi = backend.normal(rng, (m, int(self.axes.shape[0])), self.axes)
        if not inside:
            xi = xi - (xi @ self.axes) @ self.axes.T
        return xi @ self.features.T


Space = PointSpace | MapSpace


def signal(space: Space, Y: Array, *, centered: bool = True) -> Array:
    """Return kernel values of φ̄ + Σ y_p v_p, (m, n).

    Centred, kc_i = ⟨φ(x_i) − φ̄, Σ y_p v_p⟩ (k̂c = Kc A h of De Plaen & Suykens 2023, Eq. 17);
    otherwise k_i = ⟨φ(x_i), φ̄ + Σ y_p v_p⟩, the values that a kernel smoother takes.
    """
    kc = Y @ space.anchors.T
    return kc if centered else kc + space.means + (Y @ space.tilt)[:, None]


def draw(
    space: Space, gaussian: SpikedGaussian, m: int, rng: np.random.Generator, tol: float
) -> Array:
    """Draw m times from kc ~ N(0, Kc A Aᵀ Kc + σ²Kc), (m, n); theory 8.2.

    kc = Σ_{p≤q} λ_p n^{-1/2} e_p a_p + σ (I − EEᵀ) Kc^{1/2} ξ with a, ξ standard normal: the
    spectrum beyond q is never computed.
    """
    xp = backend.namespace(gaussian.values)
    a = backend.normal(rng, (m, gaussian.rank), gaussian.values)
    found = signal(space, a * xp.sqrt(gaussian.values))
    if gaussian.noise > 0:
        found = found + gaussian.noise**0.5 * space.noise(rng, m, tol, inside=False)
    return found


def draw_given(
    space: Space, gaussian: SpikedGaussian, Z: Array, rng: np.random.Generator, tol: float
) -> Array:
    """Draw from kc | h ~ N(Kc A h, σ²Kc) for every row h of Z, (m, n)."""
    found = signal(space, Z * gaussian.spread)
    if gaussian.noise > 0:
        found = found + gaussian.noise**0.5 * space.noise(rng, int(Z.shape[0]), tol, inside=True)
    return found


# --- The model -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class DualModel:
    """φ = Wh + φ̄ + ε with h ~ N(0, I_q) and ε ~ N(0, σ²I_r), W = Φcᵀ A."""

    eigenvalues: Annotated[Array, "q"]  # λ of the centred kernel, largest first
    variances: Annotated[Array, "q"]  # ℓ
    ratios: Annotated[Array, "q"]  # λ/tr Kc
    gaussian: SpikedGaussian
    n: float  # effective number of points
    kernel: Kernel
    points: Annotated[Array, "points n d"]  # of positive weight, kernel matrix, or landmarks
    projector: Directions  # coordinates and distances of new points
    expansion: Subspace | UncertainSubspace | None  # the directions over points, if there are any
    space: Space
    error: Approximation
    solver: str
    history: History
    relevance: Annotated[Array, "p"] | None = None  # 1/α, with 'ard'
    inputs: SpikedModel | None = None  # of rows with missing values

    @property
    def n_components(self) -> int:
        """Q."""
        return self.gaussian.rank

    @property
    def n_rows(self) -> int:
        """Number of points, by weight."""
        return round(self.n)

    @property
    def subspace(self) -> Directions:
        """The directions as expansions over points; as axes of the map with random features."""
        return self.expansion or self.projector

    @property
    def coefficients(self) -> Array | None:
        """A, (n, q): W = Σ_i A_i φ(x_i)."""
        if self.expansion is None:
            return None
        A = self.expansion.coefficients * self.gaussian.spread
        return backend.cast_like(A, self.eigenvalues)

    def posterior_mean(self, rows: Array) -> Array:
        """Return E[h | x], (m, q); with expected coordinates where values are missing."""
        return self.gaussian.posterior_mean(coordinates_on(self.projector, self.inputs, rows))

    def posterior_covariance(self, rows: Array) -> Array:
        """Return Cov[h | x], (m, q, q): one matrix for all complete rows, as a view of it."""
        shared = self.shared_covariance(backend.vector_like(rows))
        if not is_incomplete(rows):
            return shared
        D = self.gaussian.spread / self.gaussian.values
        which, x = uncertain_part(self.inputs, rows)
        more = self.projector.coordinate_covariance(x) * D * D[:, None]
        both = backend.working(backend.take(shared, which)) + more
        return backend.replaced(shared, which, backend.cast_like(both, shared))

    def shared_covariance(self, like: Array) -> Array:
        """Return diag(σ²/ℓ) for every row of `like`, (m, q, q), as a view of one matrix."""
        variance = self.gaussian.posterior_variance
        one = variance[:, None] * backend.asarray(np.eye(variance.shape[0]), variance)
        one = backend.cast_like(one, like)
        return backend.namespace(one).broadcast_to(one, (int(like.shape[0]), *one.shape))

    def log_density(self, rows: Array) -> Array:
        """Return ln N(φ; φ̄, WWᵀ + σ²I_r) of every point, (m,)."""
        return self.gaussian.log_density(*self.projector.project(rows))

    def off_span(self, rows: Array) -> Array:
        """Return the squared distance of features off the directions, (m,)."""
        return self.projector.project(rows).residual

    def sample_coordinates(self, m: int, rng: np.random.Generator, *, noise: bool) -> Array:
        """Draw coordinates on the directions, (m, q), of variance ℓ with noise, ℓ − σ² without."""
        values = self.gaussian.values
        a = backend.normal(rng, (m, self.gaussian.rank), values)
        return a * (backend.namespace(a).sqrt(values) if noise else self.gaussian.spread)


# --- Fitting -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DualRequest:
    """What `fit_dual` needs to know, checked."""

    n_components: int | float | str | None
    kernel: KernelChoice
    how: KernelOptions
    noise: float | None = None  # σ², None for maximum likelihood
    noise_dim: int | None = None  # r
    method: str = "closed"  # or 'em'
    max_iter: int = 1000


class Parameters(NamedTuple):
    """The model on its operator, whatever that is."""

    spectrum: Spectrum
    gaussian: SpikedGaussian
    record: Record
    solver: str
    relevance: Array | None = None


def check_components(request: Any) -> None:
    """Refuse what is neither a number of components nor the name of a rule."""
    names = ["ard", *sorted(selection.RULES)]
    named = isinstance(request, str) and request in names
    if not (request is None or named or is_share(request) or (is_count(request) and request >= 1)):
        what = f"None, an integer of at least 1, a share between 0 and 1, or one of {names}"
        raise ValueError(expected("n_components", what, request))


def fit_dual(table: Table, request: DualRequest) -> DualModel:
    """Fit the dual model over the points or a finite feature map, in closed form or by EM."""
    if not isinstance(table, InMemoryTable):
        raise ValueError(
            f"X must be rows in memory here, got {type(table).__name__}. Load them, or use "
            "KernelPCA with landmarks or random features, which reads chunked data."
        )
    table, how = _with_weight(table, request.kernel.is_precomputed), request.how
    source = Source.of(table, request.kernel, how)
    operator = source.operator
    if isinstance(operator, MappedScatter):
        return _fit_mapped(operator, table.rows, request)
    operator.dim = request.noise_dim or noise_dimension(operator.shape[0], table.weights)
    gram, weights = operator.gram, operator.weights
    with without_negatives(operator, gram.kernel, how):
        found = _fit_operator(operator, request)
    span: Any = source.expansion(found.spectrum)
    means = operator.means if how.center else 0 * weights
    about = (how.center, found.spectrum, means, span.tilt, how.memory_limit)
    space = PointSpace(gram.points, gram.kernel, weights, *about)
    model = _model(found, operator.n, table.rows, source.kernel, span, span, space)
    return replace(model, inputs=source.inputs)


def _with_weight(table: InMemoryTable, precomputed: bool) -> InMemoryTable:
    """Return a copy of the points that count, with their weights."""
    points, weights = table.rows, table.weights
    if weights is None:
        return InMemoryTable(backend.copied(points))
    used = np.flatnonzero(backend.to_numpy(weights) > 0)
    if used.size == int(weights.shape[0]):
        return InMemoryTable(backend.copied(points), weights)
    if precomputed:
        what = "positive with a kernel matrix, whose columns are the training points"
        raise ValueError(expected("sample_weight", what, 0.0, "Leave out rows and columns."))
    if used.size < 2:
        raise ValueError(expected("sample_weight", "positive for two rows or more", used.size))
    return InMemoryTable(backend.take(points, used), backend.take(weights, used))


def noise_dimension(count: int, weights: Array | None) -> int:
    """Return r = n: the number of points, repetitions counted; whole weights are such.

    De Plaen & Suykens 2023.
    """
    if weights is None:
        return count
    return max(count, round(float(backend.namespace(weights).sum(weights))))


def _fit_mapped(operator: MappedScatter, rows: Array, request: DualRequest) -> DualModel:
    """Fit in the space of a finite feature map; r is its dimension by default."""
    operator.dim = request.noise_dim or operator.dim
    found = _fit_operator(operator, request)._replace(solver=request.how.solver)
    points = rows if operator.points is None else operator.points
    projector, expansion = operator.subspace(found.spectrum), operator.expansion(found.spectrum)
    mean, error = projector.mean, Approximation(operator.left_out, 0.0)
    space = MapSpace(operator.map(backend.points(points)) - mean, projector.axes, mean)
    kernel = operator.map.kernel
    return _model(found, operator.n, points, kernel, projector, expansion, space, error)


def _model(
    found: Parameters,
    n: float,
    points: Array,
    kernel: Kernel,
    projector: Directions,
    expansion: Subspace | UncertainSubspace | None,
    space: Space,
    error: Approximation | None = None,
) -> DualModel:
    """Return the model of what was found on an operator, in the dtype of the points."""
    spectrum, gaussian, like = found.spectrum, found.gaussian, backend.vector_like(points)
    relevance = found.relevance
    return DualModel(
        backend.cast_like(1 * spectrum.values, like),
        backend.cast_like(gaussian.values, like),
        backend.cast_like(spectrum.values / spectrum.trace, like),
        gaussian,
        n,
        kernel,
        points,
        projector,
        expansion,
        space,
        Approximation(0.0, spectrum.error) if error is None else error,
        found.solver,
        History.of(found.record),
        None if relevance is None else backend.cast_like(relevance, like),
    )


def _fit_operator(operator: Dual | MappedScatter, request: DualRequest) -> Parameters:
    """Fit the model on its operator, by its spectrum or by EM."""
    check_variance(operator)
    wanted, noise, n = request.n_components, request.noise, operator.n
    by_em = request.method == "em"
    if by_em and is_count(wanted):
        return _fit_em(operator, int(wanted), request)  # type: ignore[arg-type]
    spectrum, name = _leading(operator, request)
    if wanted == "ard":
        return _fit_relevance(spectrum, n, noise, name)
    q = None if wanted is None and noise is not None else spectrum.rank
    gaussian = spiked_gaussian(spectrum, n, noise=noise, q=q)
    if by_em:
        return _fit_em(operator, gaussian.rank, request)
    vanished = gaussian.noise == 0 and gaussian.rank < gaussian.dim  # the limit σ² → 0
    value = math.inf if vanished else gaussian.loglikelihood(n, operator.trace)
    return Parameters(spectrum.head(gaussian.rank), gaussian, Record([value], 1, True), name)


def check_variance(operator: Dual | MappedScatter) -> None:
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


def offset(operator: Dual | MappedScatter) -> float:
    """Return n‖φ̄‖², beside which a trace may be nothing but rounding error."""
    if isinstance(operator, Dual):
        return operator.n * operator.grand_mean if operator.centered else 0.0
    mean = operator.moments.mean
    return float(operator.n * (mean @ mean))


def _leading(operator: Dual | MappedScatter, request: DualRequest) -> tuple[Spectrum, str]:
    """Return the eigenpairs asked for, or that a rule finds, none of them zero."""
    wanted, noise, rank = request.n_components, request.noise, operator.shape[0]
    given = wanted is None and noise is not None
    if is_count(wanted):
        rank = min(int(wanted), rank)  # type: ignore[arg-type]
    elif wanted is None and noise is not None:  # at most tr/(nσ²) variances can exceed σ²
        rank = int(min(rank, max(operator.trace / (operator.n * float(noise)), 1.0)))
    spectrum, name = solve_kernel(operator, rank, request.how)
    values = backend.to_numpy(spectrum.values)
    positive = int((values > NEGLIGIBLE_EIGENVALUE * float(values[0])).sum())
    if is_count(wanted):
        q = int(wanted)  # type: ignore[arg-type]
        if q > positive:
            what = f"at most {positive}, the number of directions with variance in feature space"
            raise ValueError(expected("n_components", what, wanted))
    elif is_share(wanted):
        q = min(share_count(float(wanted), spectrum), positive)  # type: ignore[arg-type]
    elif wanted == "ard" or given:
        q = positive
    else:
        rule = "evidence" if wanted is None else str(wanted)
        about = (spectrum.values, spectrum.trace, spectrum.dim, operator.n)
        q = at_least_one(rule, selection.choose(rule, *about))
    return spectrum.head(q), name


def _fit_em(operator: Dual | MappedScatter, q: int, request: DualRequest) -> Parameters:
    """Fit by EM on the operator, then rotate to its principal axes."""
    n, r, noise, how = operator.n, operator.dim, request.noise, request.how
    limits = (how.tol or EM_TOL, request.max_iter)
    W, sigma2, record = em_of_operator(operator, q, n, how.rng, noise, *limits)
    record.add(ppca_step(operator, W, sigma2, n)[2])
    vanished = noise is None and sigma2 <= 10 * NO_NOISE * operator.trace / n / r
    U, s, _ = algebra.svd(W)
    gaussian = SpikedGaussian(s**2 + sigma2, 0.0 if vanished else sigma2, r)
    spectrum = Spectrum.of(n * gaussian.values, U, operator.trace, r)
    return Parameters(spectrum, gaussian, record, "em")


def _fit_relevance(spectrum: Spectrum, n: float, noise: float | None, name: str) -> Parameters:
    """Fit kernel Bayesian PCA: the directions that are relevant beside the noise (theory 5).

    Variances are u + σ², a little below ℓ: the prior on W shrinks them. Without a given noise one
    direction of variance is left for it: what lies beyond is rounding error.
    """
    most = max(min(spectrum.rank, spectrum.dim) - 1, 1)
    start = spectrum.head(most if noise is None else spectrum.rank)
    found = fit_relevance(start, n, noise)
    if not found.kept.any():
        raise DegenerateError(
            "no direction is relevant beside the noise: the kernel shows no structure. Give "
            "n_components as a number, or a smaller noise_variance."
        )
    q = int(found.kept.sum())  # they are the leading ones: relevance falls with the variance
    gaussian = found.gaussian(spectrum.dim, spectrum.values)
    record = Record([loglikelihood(start, n, found)], max(found.n_iter, 1), True)
    relevance = backend.asarray(found.u / spectrum.dim, spectrum.values)
    return Parameters(spectrum.head(q), gaussian, record, name, relevance)


# --- The same model in features and in kernels ---------------------------------------------------


def to_primal(model: DualModel) -> tuple[FeatureMap, SpikedModel]:
    """Return explicit features, and the model over them; those are the rows if k is linear."""
    subspace = model.projector
    if isinstance(subspace, UncertainSubspace):
        what = "a model of complete rows: expected features are no features of any row"
        raise DualPCAError(expected("to_primal", what, "rows with NaN"))
    if isinstance(subspace, MappedSubspace):
        feature_map, V, mean = subspace.map, subspace.axes, subspace.mean
    else:
        feature_map = Explicit(subspace.kernel)
        F = backend.working(feature_map(subspace.points))
        V, mean = F.T @ subspace.coefficients, F.T @ subspace.base
    xp, like, gaussian = backend.namespace(V), model.eigenvalues, model.gaussian
    own = SpikedGaussian(gaussian.values, gaussian.noise, int(V.shape[0]))
    trace = float(model.eigenvalues[0] / model.ratios[0])
    vanished = gaussian.noise == 0 and own.rank < own.dim
    value = math.inf if vanished else own.loglikelihood(model.n, trace)
    return feature_map, SpikedModel(
        backend.cast_like(mean, like),
        backend.cast_like(xp.asarray(V.T, copy=True), like),
        model.variances,
        model.ratios,
        gaussian.noise,
        model.n_rows,
        history=History((value,), model.history.n_iter, model.history.converged),
    )


def to_dual(model: SpikedModel, points: Array | None = None) -> DualModel:
    """Return a model over the features with the linear kernel and r = d.

    Kernel values are those against `points`; by default the mean and one point along every axis.
    """
    V, mean, gaussian = model.axes, model.frame.mean, model.gaussian
    xp, n, kernel = backend.namespace(V), float(model.n_rows), Linear()
    if points is None:
        steps = (V * xp.sqrt(gaussian.values)).T
        points = mean + xp.concat([0 * mean[None, :], steps], axis=0)
    trace = n * float(gaussian.values[0] / backend.working(model.ratios)[0])
    spectrum = Spectrum(n * gaussian.values, V, trace, gaussian.dim)
    history = model.history
    value = math.nan if history is None else history.loglikelihood
    record = Record([value], 1 if history is None else history.n_iter, True)
    found = Parameters(spectrum, gaussian, record, "primal")
    projector, space = MappedSubspace(Explicit(kernel), V, mean), MapSpace(points - mean, V, mean)
    own = xp.concat([V.T, mean[None, :]], axis=0)  # axes and mean, as points of the expansion
    eye, q = backend.identity(int(own.shape[0]), V), int(V.shape[1])
    expansion = Subspace(own, kernel, eye[:, :q], eye[:, q], V.T @ mean, float(mean @ mean))
    return _model(found, n, points, kernel, projector, expansion, space)
