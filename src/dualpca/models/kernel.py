"""Kernel PCA: the principal directions of feature space, and the ways to find them.

`KernelModel` is the fitted model. `fit_kernel` makes one of a table: from the centred kernel over
all points, or from the moments of a finite feature map, which add over chunks and streams
(`KernelStream`). Rows with missing values enter through expected inner products, under a
probabilistic PCA of the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, backend, note
from dualpca.data import InMemoryTable, Table, has_missing, observed_part, refuse_nonfinite
from dualpca.errors import expected
from dualpca.gaussian import conditional, is_count, is_share, share_count
from dualpca.kernels import (
    Kernel,
    Precomputed,
    Uncertain,
    expected_gram,
    make_kernel,
)
from dualpca.models.spiked import PPCARequest, SpikedModel, fit_ppca
from dualpca.operators import (
    Dual,
    Explicit,
    FeatureMap,
    Fourier,
    Given,
    Landmarks,
    Mapped,
    MappedScatter,
    MappedSubspace,
    Spectrum,
    Subspace,
    UncertainSubspace,
    map_rows,
    used_rows,
    warn_of_cancellation,
)
from dualpca.solvers import (
    KERNEL_SOLVERS,
    FeatureSolver,
    KernelOptions,
    affordable_operator,
    dual_operator,
    gram_of,
    mapped_operator,
    solve_kernel,
    without_negatives,
)

NEGLIGIBLE_EIGENVALUE = 1e-12
"""Eigenvalues below this share of the largest are zero."""

NOVELTY_ROWS = 2000
"""Training rows, evenly spaced, whose novelty stands for all with an approximate solver."""

SAMPLE_ROWS = 10_000
"""Rows drawn from a chunked table, at least, to choose landmarks and find widths in."""

PATIENCE = 4
"""Rows awaited before landmarks are chosen among them, in budgets."""

EPS = float(np.finfo(np.float64).eps)

Directions = Subspace | MappedSubspace | UncertainSubspace


# --- The kernel that was asked for ---------------------------------------------------------------


@dataclass(frozen=True)
class KernelChoice:
    """A kernel as it was asked for: words such as 'median' become numbers once rows are known."""

    kernel: Any  # a name, a `Kernel`, a Gaussian-process kernel of scikit-learn, or a function
    gamma: float | str | None = None
    degree: float = 3
    coef0: float = 1
    params: Any = None  # other parameters of a named kernel, or arguments of a function

    @property
    def is_precomputed(self) -> bool:
        """Whether X is to be a kernel matrix."""
        return is_precomputed(self.kernel)

    def resolved(self, X: Array) -> Kernel:
        """Return the kernel with numbers found from X in place of words."""
        if not isinstance(self.params, Mapping | None):
            raise ValueError(expected("kernel_params", "a dictionary or None", self.params))
        params = dict(self.params or {})
        if isinstance(self.kernel, str):
            gamma = self.gamma
            if gamma is None and X.ndim == 2 and "length_scale" not in params:
                gamma = 1.0 / int(X.shape[1])
            params = {"gamma": gamma, "degree": self.degree, "coef0": self.coef0, **params}
        found = make_kernel(self.kernel, **params)
        if backend.is_sparse(X) and not found.sparse and not isinstance(found, Precomputed):
            what = "one that takes sparse rows (linear, polynomial, sigmoid, rbf, matern)"
            raise ValueError(expected("kernel", what, found, "Or give X.toarray()."))
        return found if X.ndim == 1 or isinstance(found, Precomputed) else found.resolve(X)


def is_precomputed(kernel: Any) -> bool:
    """Return True if X is to be a kernel matrix."""
    return isinstance(kernel, Precomputed) or (isinstance(kernel, str) and kernel == "precomputed")


# --- Rows with missing values: a model of the inputs says what they may have been ----------------


def is_incomplete(X: Array) -> bool:
    """Return True if X holds dense rows with missing values."""
    return X.ndim == 2 and not backend.is_sparse(X) and has_missing(X)


def fit_inputs(X: Array, weights: Array | None = None) -> SpikedModel:
    """Fit a PPCA of the inputs; how many components, by predicting entries that it hid."""
    d = int(X.shape[1])
    if d < 2:
        what = "complete, or of two columns at least, so that one can tell of the other"
        raise ValueError(expected("X with NaN", what, tuple(X.shape), "Drop the rows with NaN."))
    several: int | str = "cv" if d > 2 else 1
    q = several if has_missing(X) else "evidence"
    return fit_ppca(InMemoryTable(X, weights), PPCARequest(q))


def as_uncertain(inputs: SpikedModel, X: Array) -> Uncertain:
    """Return rows as Gaussians: certain in what they observed."""
    return Uncertain(*conditional(inputs.factors, X, np.arange(int(X.shape[1])))).working


def uncertain_part(inputs: SpikedModel | None, rows: Array) -> tuple[Any, Uncertain]:
    """Return the numbers of the rows with missing values, on the host, and those as Gaussians."""
    if inputs is None:
        raise ValueError(expected("inputs", "a model of the inputs for rows with NaN", None))
    xp = backend.namespace(rows)
    which = np.flatnonzero(backend.to_numpy(xp.any(xp.isnan(rows), axis=1)))
    return which, as_uncertain(inputs, backend.take(rows, which))


def coordinates_on(subspace: Directions, inputs: SpikedModel | None, rows: Array) -> Array:
    """Return y_p = v_pᵀ(φ(x) − φ̄), (m, q); its expectation for rows with missing values."""
    if not is_incomplete(rows):
        return subspace.coordinates(rows)
    which, x = uncertain_part(inputs, rows)
    whole = subspace.coordinates(observed_part(rows))  # replaced where something is missing
    return backend.replaced(whole, which, subspace.expected_coordinates(x))


# --- From a table to an operator -----------------------------------------------------------------


class Source(NamedTuple):
    """The operator of a table under a kernel, and what it was made of."""

    operator: Dual | MappedScatter
    kernel: Kernel
    rows: Uncertain | None = None
    inputs: SpikedModel | None = None  # of rows with missing values

    @classmethod
    def of(cls, table: InMemoryTable, choice: KernelChoice, how: KernelOptions) -> Source:
        """Return the kernel over all points, or the scatter of a feature map.

        Where values are missing, inner products are expectations under a PPCA of the inputs.
        """
        X, w = table.rows, table.weights
        if is_incomplete(X):
            how.require_exact("for rows with NaN")
            inputs = fit_inputs(X, w)
            rows = as_uncertain(inputs, X)
            kernel = choice.resolved(rows.mean)
            gram = Given(expected_gram(kernel, rows), Precomputed())
            return cls(Dual(gram, None, w, center=how.center), kernel, rows, inputs)
        kernel = choice.resolved(X)
        if isinstance(kernel, Precomputed):
            how.require_exact("with a kernel matrix")
        if how.features is not None:
            return cls(mapped_operator(table, X, kernel, how.features, how), kernel)
        return cls(dual_operator(X, kernel, w, how), kernel)

    def expansion(self, spectrum: Spectrum) -> Subspace | UncertainSubspace | None:
        """Return eigenvectors as expansions over points; None for random features."""
        if isinstance(self.operator, MappedScatter):
            return self.operator.expansion(spectrum)
        s = self.operator.subspace(spectrum)
        if self.rows is None:
            return s
        return UncertainSubspace(self.rows, self.kernel, s.coefficients, s.base, s.tilt, s.offset)


# --- The model -----------------------------------------------------------------------------------


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

    residual: Annotated[Array, "m"]
    weights: Annotated[Array, "m"]

    def quantile(self, level: float) -> float:
        """Return the smallest value with a share of `level` of the weight at or below it."""
        residual, weights = backend.to_numpy(self.residual), backend.to_numpy(self.weights)
        found = np.quantile(residual, level, weights=weights, method="inverted_cdf")
        return float(found)


@dataclass(frozen=True)
class KernelModel:
    """Orthonormal directions of feature space through the mean of the training points."""

    eigenvalues: Annotated[Array, "q"]  # λ of the centred kernel, largest first
    variances: Annotated[Array, "q"]  # λ/n
    ratios: Annotated[Array, "q"]  # shares of the variance
    kernel: Kernel
    subspace: Directions
    points: Annotated[Array, "points n d"]  # what `subspace` expands over
    n_rows: int
    error: Approximation
    solver: str
    eigenvectors: Annotated[Array, "n q"] | None = None  # from exact solvers
    residual: Annotated[Array, "n"] | None = None  # of the training points, from exact solvers
    novelty: Novelty | None = None
    inputs: SpikedModel | None = None  # of rows with missing values

    @property
    def n_components(self) -> int:
        """Q."""
        return int(self.eigenvalues.shape[0])

    @property
    def gamma(self) -> Any:
        """The rate of the kernel, if it has one."""
        return getattr(self.kernel, "gamma", None)

    def coordinates(self, rows: Array) -> Array:
        """Return projections on the directions, (m, q); expected ones where values are missing."""
        return coordinates_on(self.subspace, self.inputs, rows)

    def coordinate_std(self, rows: Array) -> Array:
        """Return the standard deviation of the coordinates, (m, q): 0 for complete rows."""
        xp, shape = backend.namespace(self.eigenvalues), (rows.shape[0], self.n_components)
        std = backend.asarray(np.zeros(shape), self.eigenvalues)
        if not is_incomplete(rows):
            return std
        which, x = uncertain_part(self.inputs, rows)
        variances = xp.linalg.diagonal(self.subspace.coordinate_covariance(x))
        positive = xp.where(variances > 0, variances, xp.zeros_like(variances))
        return backend.replaced(std, which, xp.sqrt(positive))

    def off_span(self, rows: Array) -> Array:
        """Return the squared distance of features off the directions (Hoffmann 2007), (m,)."""
        return self.subspace.project(rows).residual

    def novelty_threshold(self, level: float) -> float:
        """Return the quantile of the training points' squared distance."""
        if self.novelty is not None:
            return self.novelty.quantile(level)
        return float(np.quantile(backend.to_numpy(self.off_span(self.points)), level))

    def squared_ratios(self, how: KernelOptions) -> Array:
        """Return λ_p² / ‖Kc‖²_F, (q,), in one pass over the kernel of the training points."""
        if self.residual is None or self.novelty is None:
            what = "an exact solver: landmarks do not know the whole kernel"
            raise ValueError(expected("eigen_solver", what, how.solver))
        gram = gram_of(self.points, self.kernel, how)
        total = Dual(gram, None, self.novelty.weights, center=how.center).squared_norm()
        values = backend.working(self.eigenvalues)
        return backend.cast_like(values * values / total, self.eigenvalues)


# --- Fitting -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelRequest:
    """What `fit_kernel` needs to know, checked."""

    n_components: int | float | None
    kernel: KernelChoice
    how: KernelOptions
    remove_zero_eig: bool = False
    copy: bool = True

    def rank(self, most: int) -> int:
        """Return how many eigenpairs to ask for."""
        return min(int(self.n_components), most) if is_count(self.n_components) else most  # type: ignore[arg-type]

    def kept(self, spectrum: Spectrum, rounding: float) -> Spectrum:
        """Return the eigenpairs asked for: zeros are zeros, dropped where nobody counts them.

        `rounding` is ε·Σwk(x, x): what centring takes from it leaves errors of that size behind.
        """
        values = backend.to_numpy(spectrum.values)
        largest = max(float(values[0]) if values.size else 0.0, 0.0)
        zero = values <= max(NEGLIGIBLE_EIGENVALUE * largest, 2 * rounding)
        xp = backend.namespace(spectrum.values)
        flags = xp.asarray(~zero, device=backend.device_of(spectrum.values))
        cleaned = xp.where(flags, spectrum.values, xp.zeros_like(spectrum.values))
        spectrum = replace(spectrum, values=cleaned, concentration=None)
        if is_share(self.n_components):
            return spectrum.head(share_count(float(self.n_components), spectrum))  # type: ignore[arg-type]
        if self.remove_zero_eig or self.n_components is None:
            return spectrum.head(int((~zero).sum()))
        return spectrum


def check_components(request: Any) -> None:
    """Refuse what is no number of components."""
    if request is None or is_share(request) or (is_count(request) and request >= 1):
        return
    what = "None, an integer of at least 1, or a share of the variance between 0 and 1"
    raise ValueError(expected("n_components", what, request))


def fit_kernel(table: Table, request: KernelRequest) -> KernelModel:
    """Fit kernel PCA: from the kernel over all points, or from the moments of a feature map."""
    if not isinstance(table, InMemoryTable):
        return _fit_chunks(table, request)
    how = request.how
    if request.copy and not request.kernel.is_precomputed:
        table = InMemoryTable(backend.copied(table.rows), table.weights)
    if how.entry is None and not is_incomplete(table.rows):
        found = affordable_operator(table, request.kernel.resolved(table.rows), how)
        if found is not None:
            return _fit_mapped(*found, table.rows, table.weights, request, whole=True)
    source = Source.of(table, request.kernel, how)
    if isinstance(source.operator, MappedScatter):
        _warn_if_far(source.operator, how)
        whole = (source.operator, how.solver, table.rows, table.weights, request)
        return _fit_mapped(*whole, whole=True)
    return _fit_exact(source, table, request)


def _fit_exact(source: Source, table: InMemoryTable, request: KernelRequest) -> KernelModel:
    """Fit from eigenpairs of the centred kernel over all points."""
    X, how, kernel = table.rows, request.how, source.kernel
    operator: Any = source.operator
    spectrum, name = _solved(operator, kernel, request)
    if how.dtype is None and _too_coarse(operator, spectrum, how.tol):
        operator = dual_operator(X, kernel, table.weights, how, double=True)
        source = source._replace(operator=operator)
        spectrum, name = _solved(operator, kernel, request)
    if source.rows is None:
        warn_of_cancellation(X, operator.total, operator.trace)
    subspace: Any = source.expansion(spectrum)
    residual = operator.off_span(spectrum)
    return _model(
        spectrum,
        operator.n,
        X,
        kernel=kernel,
        subspace=subspace,
        points=subspace.points,
        n_rows=used_rows(X, table.weights),
        error=Approximation(0.0, spectrum.error),
        solver=name,
        eigenvectors=backend.cast_like(spectrum.vectors, backend.vector_like(X)),
        residual=residual,
        novelty=Novelty(residual, operator.weights),
        inputs=source.inputs,
    )


def _solved(operator: Dual, kernel: Kernel, request: KernelRequest) -> tuple[Spectrum, str]:
    """Return the eigenpairs asked for, and the solver that found them."""
    with without_negatives(operator, kernel, request.how):
        spectrum, name = solve_kernel(operator, request.rank(operator.shape[0]), request.how)
    return request.kept(operator.oriented(spectrum), operator.eps * operator.total), name


def _too_coarse(operator: Dual, spectrum: Spectrum, tol: float) -> bool:
    """Return True if float32 kernel values leave a larger error of the eigenvalues than `tol`."""
    if not operator.single or spectrum.rank == 0 or spectrum.error > tol:
        return operator.single and spectrum.rank > 0
    largest = float(backend.to_numpy(operator.gram.diag()).max())
    return bool(np.finfo(np.float32).eps * largest > tol * float(spectrum.values[-1]))


def _model(spectrum: Spectrum, n: float, like: Array, **others: Any) -> KernelModel:
    """Return the model of eigenpairs, in the dtype of `like`."""
    xp, like = backend.namespace(spectrum.values), backend.vector_like(like)
    ratio = spectrum.values / spectrum.trace if spectrum.trace > 0 else 0 * spectrum.values
    return KernelModel(
        backend.cast_like(xp.asarray(spectrum.values, copy=True), like),
        backend.cast_like(spectrum.values / n, like),
        backend.cast_like(ratio, like),
        **others,
    )


def _fit_chunks(table: Any, request: KernelRequest) -> KernelModel:
    """Fit a chunked table from the moments of a map that a sample of its rows gives."""
    how = request.how
    if how.features is None or request.kernel.is_precomputed:
        names = [repr(entry.name) for entry in _feature_solvers()]
        choices = f"{', '.join(names[:-1])} or {names[-1]}"
        what = f"{choices} with a kernel of rows, for chunked data"
        raise ValueError(expected("eigen_solver", what, how.solver))
    sizes = f"{how.n_landmarks} landmarks or features"
    note(f"{table.route} on the CPU: moments of a map by {how.solver!r}, {sizes}, two passes")
    sample = table.sample(max(SAMPLE_ROWS, PATIENCE * how.n_landmarks), seed=0)
    refuse_nonfinite(sample)
    kernel = request.kernel.resolved(sample)
    operator = mapped_operator(table, sample, kernel, how.features, how)
    _warn_if_far(operator, how)
    return _fit_mapped(operator, how.solver, sample, None, request)


def _warn_if_far(operator: MappedScatter, how: KernelOptions) -> None:
    if how.features is not None:
        how.features.warn_if_far(operator.left_out, how)


def _fit_mapped(
    operator: MappedScatter,
    name: str,
    rows: Array,
    weights: Array | None,
    request: KernelRequest,
    *,
    whole: bool = False,
) -> KernelModel:
    """Fit PCA of mapped rows, with the variance of the kernel; `rows` are some, or the `whole`."""
    spectrum, _ = solve_kernel(operator, request.rank(operator.shape[0]), request.how)
    total = operator.mapped.total
    spectrum = request.kept(replace(spectrum, trace=operator.kernel_trace), EPS * total)
    warn_of_cancellation(rows, total, spectrum.trace)
    xp = backend.namespace(spectrum.values)
    exists = xp.where(spectrum.values > 0, 1 + 0 * spectrum.values, 0 * spectrum.values)
    directed = replace(spectrum, vectors=spectrum.vectors * exists)
    subspace = operator.expansion(directed) or operator.subspace(directed)
    return _model(
        spectrum,
        operator.n,
        rows,
        kernel=operator.map.kernel,
        subspace=subspace,
        points=operator.points if operator.points is not None else rows if whole else rows[:0, :],
        n_rows=used_rows(rows, weights) if whole else round(operator.n),
        error=Approximation(operator.left_out, operator.gap(spectrum)),
        solver=name,
        novelty=_some_novelty(subspace, rows, weights),
    )


def _some_novelty(subspace: Directions, X: Array, weights: Array | None) -> Novelty | None:
    """Return the novelty of some training points: landmarks are no sample of them."""
    index = np.arange(0, int(X.shape[0]), -(-int(X.shape[0]) // NOVELTY_ROWS))
    residual = subspace.project(backend.take(X, index)).residual
    w = backend.ones(residual.shape, residual) if weights is None else backend.take(weights, index)
    return Novelty(residual, w) if bool(backend.to_numpy(w).any()) else None


# --- Streams: landmarks from the beginning, exact moments of all rows on them --------------------


class KernelStream(NamedTuple):
    """What is kept of a stream: rows until there are enough of them, then moments alone."""

    kernel: Kernel
    waiting: Annotated[Array, "m d"] | None = None
    weights: Annotated[Array, "m"] | None = None
    map: Annotated[FeatureMap, Landmarks | Fourier | Explicit] | None = None
    mapped: Mapped | None = None
    first: tuple[Annotated[Array, "f d"], Annotated[Array, "f"] | None] | None = (
        None  # rows and weights, to judge novelty by
    )

    def add(self, X: Array, weights: Array | None, how: KernelOptions) -> KernelStream:
        """Return the stream with one more chunk."""
        xp = backend.namespace(X)
        w = backend.asarray(np.ones(X.shape[0]), X) if weights is None else weights
        if self.map is not None and self.mapped is not None:
            chunk = map_rows(self.map, X, w, center=how.center)
            return self._replace(mapped=self.mapped.merge(chunk))
        if self.waiting is not None and self.weights is not None:
            X, w = xp.concat([self.waiting, X], axis=0), xp.concat([self.weights, w], axis=0)
        grown = self._replace(waiting=X, weights=w)
        return grown.settled(how) if X.shape[0] >= PATIENCE * how.n_landmarks else grown

    def settled(self, how: KernelOptions) -> KernelStream:
        """Return the stream with a map chosen from the rows that wait."""
        X, entry = self.waiting, how.features
        if entry is None or not entry.on_streams:
            entry = next(one for one in _feature_solvers() if one.on_streams)
        feature_map = entry.feature_map(X, self.kernel, None, replace(how, tol=0.0))
        mapped = map_rows(feature_map, X, self.weights, center=how.center)
        first = (X, self.weights)  # landmarks lie on the span, and are no sample of the rows
        return KernelStream(self.kernel, map=feature_map, mapped=mapped, first=first)

    def model(self, request: KernelRequest) -> KernelModel:
        """Return the model of all rows so far."""
        how = request.how
        ready = self if self.map is not None else self.settled(how)
        if ready.map is None or ready.mapped is None or ready.first is None:
            raise ValueError(expected("a stream", "of at least one chunk", self))
        operator = MappedScatter(ready.map, ready.mapped)
        _warn_if_far(operator, how)
        return _fit_mapped(operator, "stream", *ready.first, request)


def _feature_solvers() -> list[type[FeatureSolver]]:
    return [entry for entry in KERNEL_SOLVERS.values() if issubclass(entry, FeatureSolver)]
