"""Kernel PCA: the principal directions of feature space, and how they are fitted.

`KernelModel` is the fitted model. `fit_kernel` fits one to a table: from the centred kernel over
all points, or from the moments of a finite feature map, which add over chunks and streams
(`KernelStream`). Rows with missing values enter through expected inner products, under a
probabilistic PCA of the inputs. The other kernel models share what is here: `KernelChoice`,
`Source`, `check_components`, `check_variance`, `em_of_kernel` and `in_dtype_of`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from dualpca.arrays import EPS, Array, backend, note
from dualpca.data import InMemoryTable, Table, has_missing, observed_part, refuse_nonfinite
from dualpca.errors import DegenerateError, ScaleError, expected
from dualpca.gaussian import (
    NO_NOISE,
    VARIANCE_ROUNDING,
    conditional,
    has_vanished,
    is_count,
    is_share,
    share_count,
)
from dualpca.kernels import Kernel, Precomputed, Uncertain, expected_gram, make_kernel
from dualpca.models.driver import Record
from dualpca.models.spiked import (
    PPCARequest,
    SpikedModel,
    breakdowns_told,
    em_of_operator,
    fit_ppca,
    ppca_step,
)
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
    Projection,
    Spectrum,
    Subspace,
    UncertainSubspace,
    map_rows,
    positive_trace,
    used_rows,
    warn_of_cancellation,
)
from dualpca.solvers import (
    KERNEL_SOLVERS,
    ONE_THREAD_ORDER,
    FeatureSolver,
    KernelOptions,
    affordable_operator,
    dual_operator,
    gram_of,
    mapped_operator,
    solve_kernel,
    solve_without_negatives,
)

NEGLIGIBLE_EIGENVALUE = 1e-12
"""Eigenvalues below this share of the largest are zero."""

NOVELTY_ROWS = 2000
"""Training rows, evenly spaced, whose novelty represents all with an approximate solver."""

SAMPLE_ROWS = 10_000
"""Rows drawn from a chunked table, at least, to choose landmarks and kernel widths from."""

ROWS_PER_LANDMARK = 4
"""Rows of a stream or a sample, per landmark, before landmarks are chosen among them."""

SINGLE_EPS = float(np.finfo(np.float32).eps)

Directions = Subspace | MappedSubspace | UncertainSubspace


# --- The kernel and the number of components that were asked for ---------------------------------


@dataclass(frozen=True)
class KernelChoice:
    """A kernel as parameters name it: words such as 'median' become numbers once rows are known."""

    kernel: Any  # a name, a `Kernel`, a Gaussian-process kernel of scikit-learn, or a function
    gamma: float | str | None = None
    degree: float = 3
    coef0: float = 1
    params: Any = None  # other parameters of a named kernel, or arguments of a function

    def check(self) -> None:
        """Refuse a kernel that no rows could have."""
        self._made(1)

    def _made(self, d: int | None) -> Kernel:
        """Return the kernel for rows of d columns, or for items (None); words are still words."""
        if not isinstance(self.params, Mapping | None):
            raise ValueError(expected("kernel_params", "a dictionary or None", self.params))
        params = dict(self.params or {})
        if isinstance(self.kernel, str):
            gamma = self.gamma
            if gamma is None and d is not None and "length_scale" not in params:
                gamma = 1.0 / d
            params = {"gamma": gamma, "degree": self.degree, "coef0": self.coef0, **params}
        return make_kernel(self.kernel, **params)

    def resolved(self, X: Array) -> Kernel:
        """Return the kernel with numbers found from X in place of words."""
        found = self._made(int(X.shape[1]) if X.ndim == 2 else None)
        if isinstance(found, Precomputed) or X.ndim == 1:
            return found
        if backend.is_sparse(X) and not found.sparse:
            what = "one that accepts sparse rows (linear, polynomial, sigmoid, rbf, matern)"
            raise ValueError(expected("kernel", what, found, "Or give X.toarray()."))
        return found.resolve(X)


def is_precomputed(kernel: Any) -> bool:
    """Return True if X is to be a kernel matrix."""
    return isinstance(kernel, Precomputed) or (isinstance(kernel, str) and kernel == "precomputed")


def check_components(wanted: Any, rules: Sequence[str] = ()) -> None:
    """Refuse what is neither a number of components, a share of the variance, nor a rule."""
    named, counted = isinstance(wanted, str) and wanted in rules, is_count(wanted) and wanted >= 1
    if wanted is None or named or counted or is_share(wanted):
        return
    what = "None, an integer of at least 1 or a share of the variance between 0 and 1"
    what += f", or one of {list(rules)}" if rules else ""
    raise ValueError(expected("n_components", what, wanted))


# --- Rows with missing values: expectations under a model of the inputs --------------------------


def is_incomplete(X: Array) -> bool:
    """Return True if X holds dense rows with missing values."""
    return X.ndim == 2 and not backend.is_sparse(X) and has_missing(X)


def fit_inputs(X: Array, weights: Array | None = None) -> SpikedModel:
    """Fit a PPCA of the inputs, with the number of components cross-validated on hidden entries.

    One component where too little was observed to hide some of it.
    """
    d = int(X.shape[1])
    if d < 2:
        what = "complete, or of at least two columns, so that one can predict the other"
        raise ValueError(expected("X with NaN", what, tuple(X.shape), "Drop the rows with NaN."))
    table = InMemoryTable(X, weights)
    if not has_missing(X):
        return fit_ppca(table, PPCARequest("evidence"))
    if d > 2:
        with suppress(DegenerateError):
            return fit_ppca(table, PPCARequest("cv"))
    return fit_ppca(table, PPCARequest(1))


def as_uncertain(inputs: SpikedModel, X: Array) -> Uncertain:
    """Return rows as Gaussians, certain where they are observed."""
    return Uncertain(*conditional(inputs.factors, X, np.arange(int(X.shape[1])))).working


def uncertain_part(inputs: SpikedModel | None, rows: Array) -> tuple[Any, Uncertain]:
    """Return the indices of the rows with missing values, on the host, and these as Gaussians."""
    if inputs is None:
        raise ValueError(expected("inputs", "a model of the inputs for rows with NaN", None))
    xp = backend.namespace(rows)
    which = np.flatnonzero(backend.to_numpy(xp.any(xp.isnan(rows), axis=1)))
    return which, as_uncertain(inputs, backend.take(rows, which))


def projection_on(subspace: Directions, rows: Array, own: Array | None) -> Projection:
    """Return coordinates and squared distances off the span; `own` is k(x, x) where it is given."""
    if own is None:
        return subspace.project(rows)
    if not isinstance(subspace, Subspace):
        what = "None: only models over the training points themselves need it"
        raise ValueError(expected("diagonal", what, "numbers"))
    return subspace.project(rows, own)


def coordinates_on(subspace: Directions, inputs: SpikedModel | None, rows: Array) -> Array:
    """Return y_p = v_pᵀ(φ(x) − φ̄), (m, q); its expectation for rows with missing values."""
    if not is_incomplete(rows):
        return subspace.coordinates(rows)
    which, x = uncertain_part(inputs, rows)
    whole = subspace.coordinates(observed_part(rows))  # replaced where something is missing
    return backend.replaced(whole, which, subspace.expected_coordinates(x))


# --- From a table to an operator -----------------------------------------------------------------


class Source(NamedTuple):
    """The operator of a table under a kernel, and what it was made from."""

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
        if not is_precomputed(choice.kernel) and is_incomplete(X):
            how.require_exact("for rows with NaN")
            inputs = fit_inputs(X, w)
            rows = as_uncertain(inputs, X)
            kernel = choice.resolved(rows.mean)
            gram = Given(expected_gram(kernel, rows), Precomputed())
            return cls(Dual(gram, None, w, center=how.center), kernel, rows, inputs)
        return cls.of_complete(table, choice.resolved(X), how)

    @classmethod
    def of_complete(cls, table: InMemoryTable, kernel: Kernel, how: KernelOptions) -> Source:
        """Return the same where no value is missing and the kernel's parameters are numbers."""
        if isinstance(kernel, Precomputed):
            how.require_exact("with a kernel matrix")
        if how.features is not None:
            return cls(mapped_operator(table, table.rows, kernel, how.features, how), kernel)
        return cls(dual_operator(table.rows, kernel, table.weights, how), kernel)

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

    trace: Annotated[float, "or nan, or inf"]
    residual: Annotated[float, "or nan, or inf"]


class Novelty(NamedTuple):
    """How far training points, all or some, are off the components."""

    residual: Annotated[Array, "m"]
    weights: Annotated[Array, "m", ">= 0"]


@dataclass(frozen=True)
class KernelModel:
    """Orthonormal directions of feature space through the mean of the training points."""

    eigenvalues: Annotated[Array, "q"]  # λ of the centred kernel, largest first
    variances: Annotated[Array, "q"]  # λ/n
    # shares of the variance; None until they are counted
    ratios: Annotated[Array, "q", "or nan"] | None
    kernel: Kernel
    subspace: Annotated[Directions, "d? q"]
    points: Annotated[Array, "points p d", "or nan"]  # what `subspace` expands over
    n_rows: Annotated[int, ">= 0"]
    error: Approximation
    solver: str
    eigenvectors: Annotated[Array, "p q"] | None = None  # from exact solvers
    residual: Annotated[Array, "p"] | None = None  # of the training points, from exact solvers
    novelty: Novelty | None = None
    inputs: SpikedModel | None = None  # of rows with missing values

    def __post_init__(self) -> None:
        """Refuse a model without shares of the variance that could not be counted later."""
        if self.ratios is None and self._countable() is None:
            raise ValueError("shares of the variance are not there, and cannot be counted")

    def _countable(self) -> tuple[Subspace, Novelty] | None:
        """Return what shares of the variance are counted with; None where they cannot be."""
        subspace, novelty = self.subspace, self.novelty
        if not isinstance(subspace, Subspace) or novelty is None:
            return None
        return (subspace, novelty) if novelty.weights.shape[0] == self.points.shape[0] else None

    @property
    def n_components(self) -> int:
        """Number of components, q."""
        return int(self.eigenvalues.shape[0])

    def coordinates(self, rows: Array) -> Array:
        """Return projections on the directions, (m, q); expected ones where values are missing."""
        return coordinates_on(self.subspace, self.inputs, rows)

    def training_coordinates(self) -> Array | None:
        """Return √λ e, (n, q), what projections of the training points are if all weigh the same.

        None where they are not known: with approximate solvers and missing values.
        """
        if self.eigenvectors is None or self.inputs is not None:
            return None
        xp = backend.namespace(self.eigenvalues)
        return self.eigenvectors * xp.sqrt(self.eigenvalues)

    def coordinate_std(self, rows: Array) -> Array:
        """Return the standard deviation of the coordinates, (m, q): 0 for complete rows."""
        std = backend.asarray(np.zeros((rows.shape[0], self.n_components)), self.eigenvalues)
        if not is_incomplete(rows):
            return std
        xp = backend.namespace(std)
        which, x = uncertain_part(self.inputs, rows)
        variances = xp.linalg.diagonal(self.subspace.coordinate_covariance(x))
        positive = xp.where(variances > 0, variances, 0 * variances)
        return backend.replaced(std, which, xp.sqrt(positive))

    def sample_coordinates(self, m: int, rng: np.random.Generator) -> Array:
        """Draw coordinates from N(0, Λ/n), (m, q)."""
        values = backend.working(self.variances)
        draws = backend.normal(rng, (m, self.n_components), values)
        return draws * backend.namespace(values).sqrt(values)

    def off_span(self, rows: Array, own: Array | None = None) -> Array:
        """Return the squared distance of features off the directions (Hoffmann 2007), (m,)."""
        return projection_on(self.subspace, rows, own).residual

    def novelty_threshold(self, level: float) -> float:
        """Return the quantile of the training points' squared distance, by weight."""
        if self.novelty is None:
            return float(np.quantile(backend.to_numpy(self.off_span(self.points)), level))
        residual, weights = (backend.to_numpy(part) for part in self.novelty)
        return float(np.quantile(residual, level, weights=weights, method="inverted_cdf"))

    def counted(self, how: KernelOptions) -> KernelModel:
        """Return the model with shares of the variance, where negative eigenvalues are none of it.

        The kernel of the training points is evaluated again: O(n³) up to 1,500 points; beyond,
        an estimate from 80 products with it.
        """
        found = self._countable()
        if self.ratios is not None or found is None:
            return self
        subspace, novelty = found
        centred = bool(backend.to_numpy(subspace.base).any())
        gram = gram_of(self.points, self.kernel, how)
        operator = Dual(gram, None, novelty.weights, center=centred)
        trace = positive_trace(operator, np.random.default_rng(0))
        return replace(self, ratios=shares(self.points, self.eigenvalues, trace))

    def squared_ratios(self, how: KernelOptions) -> Array:
        """Return λ_p² / ‖Kc‖²_F, (q,), in one pass over the kernel of the training points."""
        if self.residual is None or self.novelty is None:
            what = "an exact solver: landmarks do not know the whole kernel"
            raise ValueError(expected("eigen_solver", what, how.solver))
        gram = gram_of(self.points, self.kernel, how)
        total = Dual(gram, None, self.novelty.weights, center=how.center).squared_norm()
        values = backend.working(self.eigenvalues)
        return backend.cast_like(values * values / total, self.eigenvalues)


# --- What all fits on operators share ------------------------------------------------------------


def in_dtype_of(points: Array, spectrum: Spectrum, variances: Array) -> tuple[Array, Array, Array]:
    """Return eigenvalues, variances and shares of the trace, (q,) each, in the points' dtype."""
    values, like = spectrum.values, backend.vector_like(points)
    return (
        backend.cast_like(1 * values, like),
        backend.cast_like(variances, like),
        shares(points, values, spectrum.trace),
    )


def shares(points: Array, values: Array, trace: float) -> Array:
    """Return shares of the trace, (q,), in the points' dtype."""
    values = backend.working(values)
    found = values / trace if trace > 0 else 0 * values
    return backend.cast_like(found, backend.vector_like(points))


def check_variance(operator: Dual | MappedScatter) -> None:
    """Refuse points without variance in feature space, or with more than numbers can hold."""
    with np.errstate(over="ignore", invalid="ignore"):
        trace = float(operator.trace)
        if isinstance(operator, MappedScatter):
            offset = operator.n * float(operator.moments.mean @ operator.moments.mean)
        else:  # n‖φ̄‖², beside which a trace may be nothing but rounding error
            offset = operator.n * operator.grand_mean if operator.centered else 0.0
        size = abs(trace) + abs(offset)
    if not math.isfinite(size):
        raise ScaleError("the kernel overflows: X is too large. Divide it by a constant first.")
    if not trace > VARIANCE_ROUNDING * size:
        raise DegenerateError(
            f"the points have no variance in feature space: the trace of their centred kernel is "
            f"{trace:.3g}. The kernel is constant, or negative. Give points that differ, or a "
            "kernel (or gamma) that tells them apart. If X lies far from the origin, subtract its "
            "mean first."
        )
    if isinstance(operator, Dual):
        warn_of_cancellation(operator.gram.points, size, trace)


def em_of_kernel(
    operator: Dual | MappedScatter,
    q: int,
    rng: np.random.Generator,
    noise: float | None,
    **options: Any,
) -> tuple[Array, float, Record]:
    """Fit loadings W, (m, q), and the noise σ² by EM; a noise that vanished is 0."""
    n = operator.n
    with breakdowns_told(q):
        W, sigma2, record = em_of_operator(operator, q, n, rng, noise, **options)
        record.add(ppca_step(operator, W, sigma2, n)[2])
    vanished = noise is None and has_vanished(sigma2, operator.trace / n / operator.dim, NO_NOISE)
    return W, 0.0 if vanished else sigma2, record


# --- Fitting kernel PCA --------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelRequest:
    """What `fit_kernel` needs to know, checked."""

    n_components: int | float | None
    kernel: KernelChoice
    how: KernelOptions
    remove_zero_eig: bool = False
    copy: bool = True

    def rank(self, most: int, nonzero: int | None = None) -> int:
        """Return how many eigenpairs to ask for, of `most`, no more than `nonzero` not 0."""
        if is_count(self.n_components):
            return min(int(self.n_components), most)  # type: ignore[arg-type]
        return most if nonzero is None or self.how.entry is not None else min(most, nonzero)

    def kept(self, spectrum: Spectrum, rounding: float) -> Spectrum:
        """Return the eigenpairs asked for, with zeros in place of what is negligible.

        `rounding` is ε·Σwk(x, x): centring subtracts numbers of that size, and leaves their errors.
        """
        values = backend.to_numpy(spectrum.values)
        zero = values <= max(NEGLIGIBLE_EIGENVALUE * values.max(initial=0.0), 2 * rounding)
        cleaned = spectrum.values
        if zero.any():
            cleaned = backend.asarray(np.where(zero, 0.0, values), spectrum.values)
        spectrum = replace(spectrum, values=cleaned, concentration=None)
        if is_share(self.n_components):
            return spectrum.head(share_count(float(self.n_components), spectrum))  # type: ignore[arg-type]
        if self.remove_zero_eig or self.n_components is None:
            return spectrum.head(int((~zero).sum()))
        return spectrum


def fit_kernel(table: Table, request: KernelRequest) -> KernelModel:
    """Fit kernel PCA: from the kernel over all points, or from the moments of a feature map."""
    if not isinstance(table, InMemoryTable):
        return _fit_chunks(table, request)
    choice, how = request.kernel, request.how
    if request.copy and not is_precomputed(choice.kernel):
        table = InMemoryTable(backend.copied(table.rows), table.weights)
    about = (table.rows, table.weights, request)
    if not is_precomputed(choice.kernel) and is_incomplete(table.rows):
        source = Source.of(table, choice, how)
    else:
        kernel = choice.resolved(table.rows)
        found = affordable_operator(table, kernel, how) if how.entry is None else None
        if found is not None:
            return _fit_mapped(*found, *about, whole=True)
        source = Source.of_complete(table, kernel, how)
    if isinstance(source.operator, MappedScatter):
        return _fit_mapped(source.operator, how.solver, *about, whole=True)
    return _fit_exact(source, *about)


def _fit_exact(
    source: Source, X: Array, weights: Array | None, request: KernelRequest
) -> KernelModel:
    """Fit from eigenpairs of the centred kernel over all points."""
    if int(X.shape[0]) <= ONE_THREAD_ORDER:
        with backend.threads_outside(X):
            return _fit_points(source, X, weights, request)
    return _fit_points(source, X, weights, request)


def _fit_points(
    source: Source, X: Array, weights: Array | None, request: KernelRequest
) -> KernelModel:
    """Fit from eigenpairs, on the threads that BLAS has."""
    how = request.how
    operator: Any = source.operator
    spectrum, name = _solved(source, request)
    if how.dtype is None and operator.single and spectrum.rank > 0:
        rounding = SINGLE_EPS * float(backend.to_numpy(operator.gram.diag()).max())
        if spectrum.error > how.tol or rounding > how.tol * float(spectrum.values[-1]):
            operator = dual_operator(X, source.kernel, weights, how, double=True)
            source = source._replace(operator=operator)
            spectrum, name = _solved(source, request)
    if source.rows is None:
        warn_of_cancellation(X, operator.total, operator.trace)
    subspace: Any = source.expansion(spectrum)
    residual = operator.off_span(spectrum)
    values, variances, ratios = in_dtype_of(X, spectrum, spectrum.values / operator.n)
    return KernelModel(
        values,
        variances,
        None if operator.estimated else ratios,
        source.kernel,
        subspace,
        subspace.points,
        used_rows(X, weights),
        Approximation(0.0, spectrum.error),
        name,
        backend.cast_like(spectrum.vectors, backend.vector_like(X)),
        residual,
        Novelty(residual, operator.weights),
        source.inputs,
    )


def _solved(source: Source, request: KernelRequest) -> tuple[Spectrum, str]:
    """Return the eigenpairs asked for, and the solver that found them."""
    operator: Any = source.operator
    rank = request.rank(operator.shape[0], operator.factor_width)
    spectrum, name = solve_without_negatives(operator, source.kernel, rank, request.how)
    return request.kept(operator.oriented(spectrum), operator.eps * operator.total), name


def _fit_chunks(table: Any, request: KernelRequest) -> KernelModel:
    """Fit a chunked table from the moments of a feature map chosen from a sample of its rows."""
    how = request.how
    if how.features is None or is_precomputed(request.kernel.kernel):
        *names, last = (repr(entry.name) for entry in _feature_solvers())
        what = f"{', '.join(names)} or {last} with a kernel of rows, for chunked data"
        raise ValueError(expected("eigen_solver", what, how.solver))
    sizes = f"{how.n_landmarks} landmarks or features"
    note(f"{table.route} on the CPU: moments of a map by {how.solver!r}, {sizes}, two passes")
    sample = table.sample(max(SAMPLE_ROWS, ROWS_PER_LANDMARK * how.n_landmarks), seed=0)
    refuse_nonfinite(sample)
    kernel = request.kernel.resolved(sample)
    operator = mapped_operator(table, sample, kernel, how.features, how)
    return _fit_mapped(operator, how.solver, sample, None, request)


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
    how, total = request.how, operator.mapped.total
    if how.features is not None:
        how.features.warn_if_far(operator.left_out, how)
    spectrum, _ = solve_kernel(operator, request.rank(operator.shape[0]), how)
    spectrum = request.kept(replace(spectrum, trace=operator.kernel_trace), EPS * total)
    warn_of_cancellation(rows, total, spectrum.trace)
    exists = backend.namespace(spectrum.values).astype(spectrum.values > 0, spectrum.vectors.dtype)
    directed = replace(spectrum, vectors=spectrum.vectors * exists)
    subspace = operator.expansion(directed) or operator.subspace(directed)
    some = rows if whole else rows[:0, :]
    return KernelModel(
        *in_dtype_of(rows, spectrum, spectrum.values / operator.n),
        operator.map.kernel,
        subspace,
        some if operator.points is None else operator.points,
        used_rows(rows, weights) if whole else round(operator.n),
        Approximation(operator.left_out, operator.gap(spectrum)),
        name,
        novelty=_some_novelty(subspace, rows, weights),
    )


def _some_novelty(subspace: Directions, X: Array, weights: Array | None) -> Novelty | None:
    """Return the novelty of some training points: landmarks are not a sample of them."""
    index = np.arange(0, int(X.shape[0]), -(-int(X.shape[0]) // NOVELTY_ROWS))
    residual = subspace.project(backend.take(X, index)).residual
    w = backend.ones(residual.shape, residual) if weights is None else backend.take(weights, index)
    return Novelty(residual, w) if bool(backend.to_numpy(w).any()) else None


# --- Streams: landmarks from the first rows, exact moments of all rows on them -------------------


@dataclass(frozen=True)
class KernelStream:
    """The state of a stream: rows until there are enough of them, then moments only."""

    _together: ClassVar = ("waiting weights", "map mapped first")  # in files
    _one_of: ClassVar = ("waiting", "map")

    kernel: Kernel
    waiting: Annotated[Array, "m d"] | None = None
    weights: Annotated[Array, "m", ">= 0"] | None = None
    map: Annotated[FeatureMap, Landmarks | Fourier | Explicit, "d? r?"] | None = None
    mapped: Annotated[Mapped, "r"] | None = None
    # rows and weights to judge novelty by
    first: tuple[Annotated[Array, "f d"], Annotated[Array, "f"] | None] | None = None

    def add(self, X: Array, weights: Array | None, how: KernelOptions) -> KernelStream:
        """Return the stream with one more chunk."""
        xp = backend.namespace(X)
        w = backend.asarray(np.ones(X.shape[0]), X) if weights is None else weights
        if self.map is not None and self.mapped is not None:
            chunk = map_rows(self.map, X, w, center=how.center)
            return replace(self, mapped=self.mapped.merge(chunk))
        if self.waiting is not None and self.weights is not None:
            X, w = xp.concat([self.waiting, X], axis=0), xp.concat([self.weights, w], axis=0)
        grown = replace(self, waiting=X, weights=w)
        return grown.settled(how) if X.shape[0] >= ROWS_PER_LANDMARK * how.n_landmarks else grown

    def settled(self, how: KernelOptions) -> KernelStream:
        """Return the stream with a feature map chosen from the waiting rows."""
        X, entry = self.waiting, how.features
        if entry is None or not entry.on_streams:
            entry = next(one for one in _feature_solvers() if one.on_streams)
        feature_map = entry.feature_map(X, self.kernel, None, replace(how, tol=0.0))
        mapped = map_rows(feature_map, X, self.weights, center=how.center)
        first = (X, self.weights)  # landmarks have no novelty, and are not a sample of the rows
        return KernelStream(self.kernel, map=feature_map, mapped=mapped, first=first)

    def model(self, request: KernelRequest) -> KernelModel:
        """Return the model of all rows so far."""
        ready = self if self.map is not None else self.settled(request.how)
        if ready.map is None or ready.mapped is None or ready.first is None:
            raise ValueError(expected("a stream", "of at least one chunk", self))
        operator = MappedScatter(ready.map, ready.mapped)
        return _fit_mapped(operator, "stream", *ready.first, request)


def _feature_solvers() -> list[type[FeatureSolver]]:
    return [entry for entry in KERNEL_SOLVERS.values() if issubclass(entry, FeatureSolver)]
