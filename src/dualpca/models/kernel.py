"""Kernel PCA: the principal directions of feature space, and how they are fitted.

`KernelModel` is the fitted model. `fit_kernel` fits one to a table: from the centred kernel over
all points, or from the moments of a finite feature map, which add over chunks and streams
(`KernelStream`). Rows with missing values enter through expected inner products, under a
probabilistic PCA of the inputs. The other kernel models share what is here: `KernelChoice`,
`kernel_operator`, `check_variance`, `em_of_kernel` and `in_dtype_of`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from dualpca.arrays import EPS, Array, Job, algebra, backend, chosen, each_device, note
from dualpca.data import (
    ChunkedTable,
    InMemoryTable,
    Table,
    gathered,
    has_missing,
    observed_part,
    refuse_nonfinite,
    used_rows,
)
from dualpca.errors import DegenerateError, ScaleError, ScaleWarning, SolverWarning, expected, warn
from dualpca.gaussian import (
    NO_NOISE,
    VARIANCE_ROUNDING,
    conditional,
    has_vanished,
    share_count,
)
from dualpca.kernels import (
    Kernel,
    Precomputed,
    Uncertain,
    has_width,
    make_kernel,
    with_width,
)
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
    SINGLE_EPS,
    Devices,
    Dual,
    ExpectedGram,
    Explicit,
    FeatureMap,
    Fourier,
    Landmarks,
    Mapped,
    MappedScatter,
    MappedSubspace,
    Projection,
    Spectrum,
    Subspace,
    UncertainSubspace,
    map_rows,
    negatives_of,
    warn_of_cancellation,
    warn_of_negatives,
)
from dualpca.solvers import (
    KERNEL_SOLVERS,
    ONE_THREAD_ORDER,
    SINGLE_EIGENVALUE_TOL,
    FeatureSolver,
    KernelOptions,
    affordable_operator,
    dual_operator,
    gram_of,
    mapped_operator,
    solve_kernel,
)

SINGLE_FAR = 1e-3
"""Relative error of eigenvalues from which kernel values in float32 are warned of."""

NEGLIGIBLE_EIGENVALUE = 1e-12
"""Eigenvalues below this share of the largest are zero."""

NOVELTY_ROWS = 2000
"""Training rows, evenly spaced, whose novelty represents all; all eigenpairs up to that order."""

SAMPLE_ROWS = 10_000
"""Rows drawn from a chunked table, at least, to choose landmarks and kernel widths from."""

ROWS_PER_LANDMARK = 4
"""Rows of a stream or a sample, per landmark, before landmarks are chosen among them."""

Directions = Subspace | MappedSubspace | UncertainSubspace

Host = np.ndarray[Any, Any]


# --- The kernel and the number of components that were asked for ---------------------------------


@dataclass(frozen=True)
class KernelChoice:
    """A kernel as parameters name it: words such as 'median' become numbers once rows are known."""

    kernel: object  # a name, a `Kernel`, a Gaussian-process kernel of scikit-learn, or a function
    gamma: float | str | None = None
    degree: float = 3
    coef0: float = 1
    params: Mapping[str, object] | None = None  # others of a named kernel, or of a function
    finds_width: bool = False  # where none is given; otherwise gamma is 1/d then,
    judges_width: bool = False  # and whether that suits the rows is looked at

    def check(self) -> None:
        """Refuse a kernel that no rows could have."""
        self._made(1)

    @property
    def width_is_open(self) -> bool:
        """Whether the kernel is named, and no width is given."""
        if not isinstance(self.kernel, str) or self.gamma is not None:
            return False
        return not {"gamma", "length_scale"} & set(self.params or ())

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

    def resolved(self, X: Array, weights: Array | None = None) -> Kernel:
        """Return the kernel with numbers found from X in place of words, and for its width."""
        found = self._made(int(X.shape[1]) if X.ndim == 2 else None)
        if isinstance(found, Precomputed) or X.ndim == 1:
            return found
        if backend.is_sparse(X) and not found.sparse:
            what = "one that accepts sparse rows (linear, polynomial, sigmoid, rbf, matern)"
            raise ValueError(expected("kernel", what, found, "Or give X.toarray()."))
        refuse_far_rows(found, X)
        if not (self.width_is_open and has_width(found)):
            return found.resolve(X)
        if not self.finds_width:
            if self.judges_width:
                warn_of_width(found, X)
            return found
        found = with_width(found, X, weights)
        note(f"width found from the rows: {found}")
        return found


SAFE_ENTRY = 1e70
"""Largest entry up to which squares and cubes of inner products are within the range of float64."""


def refuse_far_rows(kernel: Kernel, X: Array) -> None:
    """Refuse rows whose inner products or distances overflow: those with the largest entries tell.

    A width found from such distances would be 0, and their kernel NaN, which no solver accepts.
    """
    xp = backend.namespace(X)
    if backend.is_sparse(X) or backend.is_sparse_tensor(X) or 0 in X.shape:
        return
    if float(xp.max(X)) < SAFE_ENTRY and float(xp.min(X)) > -SAFE_ENTRY:
        return
    ends = (int(end(xp.reshape(X, (-1,)))) // int(X.shape[1]) for end in (xp.argmax, xp.argmin))
    rows = backend.working(xp.stack([X[end, :] for end in ends], axis=0))
    try:
        with np.errstate(over="raise", invalid="raise"):
            K = kernel.resolve(rows)(rows, rows)
        total = float(xp.sum(xp.abs(K / 4)))
    except (FloatingPointError, ValueError):  # a width of 0, of distances that are infinite
        total = math.inf
    if not math.isfinite(total):
        raise ScaleError("the kernel overflows: X is too large. Divide it by a constant first.")


JUDGED_ROWS = 400
"""Rows, evenly spaced, among which the values of a kernel are looked at."""

ALONE, ALIKE = 0.5, 0.01
"""Sum of a row's kernel values with all others, on average, below which rows are alone; average
distance of the values from 1 below which all rows are alike."""


def warn_of_width(kernel: Kernel, X: Array) -> None:
    """Warn if the kernel over rows is nearly the identity, or nearly constant."""
    n = int(X.shape[0])
    rows = backend.points(X[:: max(1, -(-n // JUDGED_ROWS)), :])
    K = _on_host(kernel(rows, rows))
    m = len(K)
    if m < 3:
        return
    mean = float(K.sum() - K.trace()) / (m * (m - 1))
    if mean * (n - 1) < ALONE:
        what, so = "nearly the identity", "all rows are equally far apart"
    elif 1 - mean < ALIKE and K.min() < 1:
        what, so = "nearly constant", "the components are those of the linear kernel"
    else:
        return
    better = with_width(kernel, X)
    named = "gamma" if getattr(kernel, "gamma", None) is not None else "length_scale"
    remedy = "gamma='median'" if named == "gamma" else "kernel_params={'length_scale': 'median'}"
    units = " and standardise columns of unlike units" if _per_column(better) else ""
    warn(
        f"the kernel matrix is {what} with {named}={getattr(kernel, named):.3g}: {so}. Pass "
        f"{remedy}{units}, or a width that suits the distances between rows.",
        ScaleWarning,
    )


def _per_column(kernel: Kernel) -> bool:
    return isinstance(getattr(kernel, "length_scale", None), tuple)


def is_precomputed(kernel: object) -> bool:
    """Return True if X is to be a kernel matrix."""
    return isinstance(kernel, Precomputed) or (isinstance(kernel, str) and kernel == "precomputed")


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

Options = TypeVar("Options", bound=KernelOptions)


def with_crew(table: Table, choice: KernelChoice, how: Options) -> tuple[Table, Options]:
    """Return the rows of a fit to all points, with those that share its products.

    Those are several devices, or the workers that hold a Dask array: its rows are gathered here,
    and on every one of them. Other tables, and fits to feature maps, are returned as they are.
    """
    device, d = how.device, table.d
    if not isinstance(table, ChunkedTable):
        several = isinstance(device, list | tuple)
        return table, replace(how, crew=Devices(each_device(device))) if several else how
    if how.features is not None or is_precomputed(choice.kernel):
        return table, how
    found = gathered(table, device)
    if found is None:
        return table, how
    n = int(found.rows.shape[0])
    if n < 2:
        raise ValueError(f"Found array with {n} sample(s) while a minimum of 2 is required.")
    refuse_nonfinite(found.rows)
    crew = found.workers
    if crew is None and device is not None:  # no cluster: this process works on the device
        gpu = chosen(device, Job(n, d, pairs=True)).device
        crew = None if gpu is None else Devices([gpu])
    where = "this process" if found.workers is None else f"{crew.places} workers"
    note(f"{table.route}: all rows gathered, products by {where}")
    return InMemoryTable(found.rows, found.weights, table.names), replace(how, crew=crew)


def kernel_operator(
    table: InMemoryTable, choice: KernelChoice, how: KernelOptions
) -> tuple[Dual | MappedScatter, SpikedModel | None]:
    """Return the kernel over all points, or the scatter of a feature map.

    Where values are missing, inner products are expectations under a PPCA of the inputs, which is
    returned beside it.
    """
    X, w = table.rows, table.weights
    if not is_precomputed(choice.kernel) and is_incomplete(X):
        how.require_exact("for rows with NaN")
        inputs = fit_inputs(X, w)
        rows = as_uncertain(inputs, X)
        gram = ExpectedGram(rows, choice.resolved(rows.mean, w))
        return Dual(gram, None, w, center=how.center), inputs
    kernel = choice.resolved(X, w)
    if isinstance(kernel, Precomputed):
        how.require_exact("with a kernel matrix")
    if how.features is not None:
        return mapped_operator(table, X, kernel, how.features, how), None
    return dual_operator(X, kernel, w, how), None


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

    def quantile(self, level: float) -> float:
        """Return what a share `level` of further points is expected to be at or below.

        The k-th smallest of n numbers has k/(n + 1) of further ones below it; between two of them
        it is interpolated, and beyond the largest it is the largest.
        """
        residual, w = (np.asarray(backend.to_numpy(part), np.float64) for part in self)
        order = np.argsort(residual, kind="stable")
        order = order[w[order] > 0]
        last = np.cumsum(w[order])
        first = last - w[order] + np.minimum(w[order], 1)  # a weight of 2 is the row twice
        places, values = np.stack([first, last], axis=1).ravel(), np.repeat(residual[order], 2)
        whole = float(last[-1])
        return float(np.interp(level * whole * (1 + 1 / max(whole, order.size)), places, values))


# --- How far a training point would be off the components if the model had not seen it -----------

SAME_POINT = 1e-12
"""Share of its squared norm within which the feature of a point is that of a landmark."""

ROUNDED_NOVELTY = 100.0
"""Machine epsilons of the points' squared norm below which nothing is novel; more by the square
root of how far apart the eigenvalues are, which is what coordinates lose."""

BISECTIONS = 44
"""Steps of bisection for an eigenvalue, between two of the scatter of all points."""

LARGEST_BLOCK = 2**20
"""Numbers that bisection holds at once."""

FAINT = 1e-15
"""Share of a point's squared norm that every direction has at least: no two poles then are one."""


def left_out_residuals(
    values: Host, squares: Host, q: int, removed: Host, factor: Host, negligible: float = 0.0
) -> Host:
    """Return squared distances off q components that were fitted without the point, (m,).

    S is the scatter of all points, with eigenvalues λ and a point's coordinates z along its
    eigenvectors. Without a weight δ of the point it is S − δb zzᵀ, and the point lies bz from the
    new mean, b = W/(W − δ) (1 where features are not centred). Eigenvalues μ of the new scatter
    solve δb Σ_k z_k²/(λ_k − μ) = 1 (Golub 1973), and (bvᵀz)² = 1/(δ² Σ_k z_k²/(λ_k − μ)²) for
    its eigenvector v: their sum beyond the q-th, and for one of them that vanishes, is the answer.

    Eigenvalues beyond the q-th are lumped in bands of 1, 1, 2, 2, 4, 4, … neighbours, of which one
    direction each is all that z sees: errors are below a hundredth. O(m q log r).

    Parameters
    ----------
    values : array of shape (r,) or (m, r)
        λ, largest first.
    squares : array of shape (m, r)
        z².
    q : int
    removed : array of shape (m,)
        δ.
    factor : array of shape (m,)
        b.
    negligible : float
        Eigenvalues up to this are none.

    Examples
    --------
    >>> X = np.array([[3.0, 0.1], [-3.0, 0.2], [2.0, -0.2], [-2.0, -0.1]])
    >>> values, vectors = np.linalg.eigh(X.T @ X)
    >>> squares = (X @ vectors[:, ::-1]) ** 2
    >>> left_out_residuals(values[::-1], squares, 1, np.ones(4), np.full(4, 4 / 3)).round(3)
    array([0.152, 0.124, 0.073, 0.054])
    """
    if q == 0:
        return np.asarray(factor**2 * squares.sum(axis=1))
    values = np.broadcast_to(values, squares.shape)
    near, far = (values[:, :q][:, ::-1], squares[:, :q][:, ::-1]), (values[:, q:], squares[:, q:])
    if far[0].shape[1]:
        near, far = _lumped(*near, power=-1), _lumped(*far, power=1)
    poles, mass = (np.concatenate([a[:, ::-1], b], axis=1) for a, b in zip(near, far, strict=True))
    q = int(near[0].shape[1])
    # by λ², so that z²/λ² of a faint direction stays faint too
    mass = np.maximum(mass, FAINT * mass.sum(axis=1, keepdims=True) * (poles / poles[:, :1]) ** 2)
    found, rows = [], max(1, LARGEST_BLOCK // (poles.shape[1] * (poles.shape[1] - q + 1)))
    for part in backend.slices(len(mass), rows):
        about = (poles[part], mass[part], removed[part], factor[part])
        found.append(_beyond(q, *about, negligible))
    return np.concatenate(found) if found else np.zeros(0)  # no row counts


def _beyond(
    q: int, poles: Host, mass: Host, removed: Host, factor: Host, negligible: float
) -> Host:
    """Return (bvᵀz)², summed over the eigenvectors v of the new scatter beyond the q-th, (m,)."""
    high, low = poles[:, q - 1 :], np.pad(poles[:, q:], ((0, 0), (0, 1)))
    at, z2, weight = poles[:, None, :], mass[:, None, :], (removed * factor)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(BISECTIONS):
            mu = (low + high) / 2
            below = weight * (z2 / (at - mu[:, :, None])).sum(axis=2) < 1
            low, high = np.where(below, mu, low), np.where(below, high, mu)
        mu = (low + high) / 2
        along = 1 / (z2 / (at - mu[:, :, None]) ** 2).sum(axis=2) / removed[:, None] ** 2
    along[:, 0] = np.where(mu[:, 0] <= negligible, along[:, 0], 0)  # the q-th, if none is left
    return np.asarray(np.nan_to_num(along).sum(axis=1))


def _on_host(values: Array) -> Host:
    return np.asarray(backend.to_numpy(values), dtype=np.float64)


def _lumped(values: Host, squares: Host, power: int) -> tuple[Host, Host]:
    """Return bands of eigenvalues, as a mean by z² of λ or 1/λ, and z² in each, (m, bands) both."""
    r = int(values.shape[1])
    starts = np.cumsum([0, *(2 ** (k // 2) for k in range(2 * r.bit_length()))])
    starts = starts[starts < r]
    mass = np.add.reduceat(squares, starts, axis=1)
    plain = np.add.reduceat(values, starts, axis=1) / np.diff([*starts, r])
    seen = np.add.reduceat(values**power * squares, starts, axis=1) / np.where(mass > 0, mass, 1)
    return np.where(mass > 0, np.where(mass > 0, seen, 1) ** power, plain), mass


def own_variances(K: Host, Y: Host, off: Host, w: Host, total: float, offset: float) -> Host:
    """Return the variance of all points along what is off the components of each, (m,).

    From the kernel among the m points, as a sample of all: a point's own share is known, that of
    the others is scaled up.

    Parameters
    ----------
    K : array of shape (m, m)
    Y : array of shape (m, q)
        Coordinates.
    off : array of shape (m,)
        Squared distances off the components.
    w : array of shape (m,)
    total : float
        Weight of all points.
    offset : float
        ‖φ̄‖².
    """
    means = (K.diagonal() + offset - (Y * Y).sum(axis=1) - off) / 2  # ⟨φ(x), φ̄⟩
    R = K - means[:, None] - means[None, :] + offset - Y @ Y.T
    R /= np.sqrt(np.where(off > 0, off, 1))[:, None]
    others = (R * R) @ w - w * R.diagonal() ** 2
    scale = (total - w) / np.where(w.sum() > w, w.sum() - w, 1)
    return np.asarray(w * off + scale * others)


def with_own_direction(values: Host, Y: Host, off: Host, own: Host) -> tuple[Host, Host]:
    """Return eigenvalues and squared coordinates, (m, q + 1), with one direction off all of them.

    It is a point's own, of squared length `off` and with the variance `own` of all points.
    """
    poles = np.concatenate([np.broadcast_to(values, Y.shape), own[:, None]], axis=1)
    return poles, np.concatenate([Y * Y, off[:, None]], axis=1)


def left_out_of(
    values: Host, squares: Host, q: int, outside: Host, weights: Host, total: float, *, center: bool
) -> Novelty:
    """Return the novelty of training points to models of all others.

    `values` and `squares` are those of `left_out_residuals`; `outside` is added, what these do not
    know of a squared distance: the part off a feature map, or that of negative eigenvalues. A
    weight of 2 is the row twice, of which one is left out.
    """
    used = (weights > 0) & (weights < total)
    unit = float(values.max(initial=0.0)) or 1.0  # squares must not overflow
    values, squares = values / unit, squares[used] / unit
    known: Host = values > NEGLIGIBLE_EIGENVALUE
    if values.ndim == 2:
        values, known = values[used], np.asarray(known.any(axis=0))
    removed = np.minimum(weights[used], 1)
    factor = total / (total - removed) if center else np.ones_like(removed)
    about = (min(q, int(known.sum())), removed, factor, NEGLIGIBLE_EIGENVALUE)
    found = unit * left_out_residuals(values[..., known], squares[:, known], *about)
    found += outside[used]
    if center:  # the mean of all points is known better than that of all but one
        found *= 1 - (removed / total) ** 2
    residual = np.zeros(weights.size)
    residual[used] = np.maximum(found, 0)
    return Novelty(residual, np.where(used, weights, 0.0))


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
    novelty: Novelty | None = None  # of the training points
    inputs: SpikedModel | None = None  # of rows with missing values
    left_out: Novelty | None = None  # of some, each to a model without it

    def __post_init__(self) -> None:
        """Refuse a model without shares of the variance that could not be counted later."""
        known = 0 if self.novelty is None else self.novelty.weights.shape[0]
        countable = isinstance(self.subspace, Subspace) and known == self.points.shape[0]
        if self.ratios is None and not countable:
            raise ValueError("shares of the variance are not there, and cannot be counted")

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
        """Return what a share `level` of new points is expected to be at or below.

        From the training points, each judged by a model without it, and no less than rounding.
        """
        judged = self.left_out or self.novelty
        if judged is None or not backend.to_numpy(judged.weights).any():
            residual = self.off_span(self.points)
            judged = Novelty(residual, backend.ones(residual.shape, residual))
        values = _on_host(self.eigenvalues)
        least, size = values[values > 0].min(initial=np.inf), values.sum() / max(self.n_rows, 1)
        rounding = ROUNDED_NOVELTY * EPS * float(size + abs(self._offset))
        return max(judged.quantile(level), rounding * math.sqrt(values.max(initial=0.0) / least))

    @property
    def _offset(self) -> float:
        """‖φ̄‖², or that of a feature map."""
        span = self.subspace
        return float(span.mean @ span.mean if isinstance(span, MappedSubspace) else span.offset)

    def _operator(self, how: KernelOptions) -> Dual:
        """Return the centred kernel over the training points, expected where values are missing."""
        span, weights = self.subspace, None if self.novelty is None else self.novelty.weights
        if isinstance(span, MappedSubspace):
            raise TypeError("the kernel of a feature map is not known over all points")
        gram = (
            ExpectedGram(span.rows, self.kernel)
            if isinstance(span, UncertainSubspace)
            else gram_of(self.points, self.kernel, how)
        )
        return Dual(gram, None, weights, center=bool(backend.to_numpy(span.base).any()))

    def judged(self, how: KernelOptions) -> KernelModel:
        """Return the model with the novelty of training points that were left out.

        Up to 2,000 points by all eigenpairs of their kernel, which is evaluated again: O(n³).
        Beyond, of 2,000 points, evenly spaced, from the kernel among them.
        """
        E, residual, novelty, span = self.eigenvectors, self.residual, self.novelty, self.subspace
        if self.left_out is not None or E is None or residual is None or novelty is None:
            return self
        if isinstance(span, MappedSubspace):
            return self
        operator = self._operator(how)
        step = -(-int(E.shape[0]) // NOVELTY_ROWS)
        w, off = (_on_host(part)[::step] for part in (novelty.weights, residual))
        values, total = _on_host(self.eigenvalues), float(_on_host(novelty.weights).sum())
        q = int((values > 0).sum())
        if step == 1:
            pairs = algebra.top_eigh(operator.dense(), w.size)
            values, E = (_on_host(part)[..., ::-1] for part in pairs)
            values = np.clip(values, 0, None)
            squares = values * E**2 / np.where(w > 0, w, 1)[:, None]
        else:
            Y = _on_host(E)[::step, :q] * np.sqrt(values[:q])
            Y /= np.sqrt(np.where(w > 0, w, 1))[:, None]
            own = own_variances(_on_host(operator.gram.corner(step)), Y, off, w, total, span.offset)
            values, squares = with_own_direction(values[:q], Y, off, own)
        if isinstance(span, UncertainSubspace):  # what is missing makes a row's feature shorter
            whole = backend.to_numpy(span.rows.certain)[::step]
            w = np.where(whole, w, 0) if whole.any() else w
        outside = off - squares[:, q:].sum(axis=1)
        found = left_out_of(values, squares, q, outside, w, total, center=operator.centered)
        like = backend.vector_like(residual)
        return replace(self, left_out=Novelty(*(backend.asarray(part, like) for part in found)))

    def counted(self, how: KernelOptions) -> KernelModel:
        """Return the model with shares of the variance, where negative eigenvalues are none of it.

        The kernel of the training points is evaluated again: O(n³) up to 1,500 points; beyond,
        an estimate from 80 products with it.
        """
        if self.ratios is not None:
            return self
        operator = self._operator(how)
        trace = negatives_of(operator, np.random.default_rng(0)).positive or operator.trace
        return replace(self, ratios=shares(self.points, self.eigenvalues, trace))

    def squared_ratios(self, how: KernelOptions) -> Array:
        """Return λ_p² / ‖Kc‖²_F, (q,), in one pass over the kernel of the training points."""
        if self.residual is None or self.novelty is None:
            what = "an exact solver: landmarks do not know the whole kernel"
            raise ValueError(expected("eigen_solver", what, how.eigen_solver))
        values = backend.working(self.eigenvalues)
        total = self._operator(how).squared_norm()
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
    tol: float,
    max_iter: int,
    *,
    start: tuple[Array, float] | None = None,
    accelerate: bool = True,
) -> tuple[Array, float, Record]:
    """Fit loadings W, (m, q), and the noise σ² by EM; a noise that vanished is 0."""
    n, limits = operator.n, (tol, max_iter)
    with breakdowns_told(q):
        W, sigma2, record = em_of_operator(
            operator, q, n, rng, noise, *limits, start=start, accelerate=accelerate
        )
        record.add(ppca_step(operator, W, sigma2, n)[2])
    vanished = noise is None and has_vanished(sigma2, operator.trace / n / operator.dim, NO_NOISE)
    return W, 0.0 if vanished else sigma2, record


# --- Fitting kernel PCA --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class KernelRequest(KernelOptions):
    """What `fit_kernel` needs to know, checked."""

    n_components: int | float | None  # None for all that are not 0
    kernel: KernelChoice
    remove_zero_eig: bool = False
    copy_X: bool = True

    def rank(self, most: int, nonzero: int | None = None) -> int:
        """Return how many eigenpairs to ask for, of `most`, no more than `nonzero` not 0."""
        if isinstance(self.n_components, int):
            return min(self.n_components, most)
        return most if nonzero is None or self.entry is not None else min(most, nonzero)

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
        if self.remove_zero_eig or self.n_components is None:
            return spectrum.head(int((~zero).sum()))
        if isinstance(self.n_components, int):
            return spectrum
        return spectrum.head(share_count(self.n_components, spectrum))


def fit_kernel(table: Table, request: KernelRequest) -> KernelModel:
    """Fit kernel PCA: from the kernel over all points, or from the moments of a feature map."""
    ours = not isinstance(table, InMemoryTable)  # rows that were gathered
    table, request = with_crew(table, request.kernel, request)
    if not isinstance(table, InMemoryTable):
        return _fit_chunks(table, request)
    if request.copy_X and not ours and not is_precomputed(request.kernel.kernel):
        table = InMemoryTable(backend.copied(table.rows), table.weights)
    about = (table.rows, table.weights, request)
    operator, inputs = kernel_operator(table, request.kernel, request)
    if isinstance(operator, MappedScatter):
        return _fit_mapped(operator, request.eigen_solver, *about, whole=True)
    if request.entry is None and inputs is None:
        found = affordable_operator(table, operator.gram.kernel, request)
        if found is not None:
            return _fit_mapped(*found, *about, whole=True)
    few = int(table.rows.shape[0]) <= ONE_THREAD_ORDER
    with backend.threads_outside(table.rows) if few else nullcontext():
        return _fit_points(operator, inputs, *about)


def _fit_points(
    operator: Dual,
    inputs: SpikedModel | None,
    X: Array,
    weights: Array | None,
    request: KernelRequest,
) -> KernelModel:
    """Fit from eigenpairs of the centred kernel over all points."""
    spectrum, name = _solved(operator, request)
    if request.dtype is None and operator.single and spectrum.rank > 0:
        rounding = SINGLE_EPS * float(backend.to_numpy(operator.gram.diag()).max())
        tol = max(request.tol, SINGLE_EIGENVALUE_TOL)
        if spectrum.error > tol or rounding > tol * float(spectrum.values[-1]):
            operator = dual_operator(X, operator.gram.kernel, weights, request, double=True)
            spectrum, name = _solved(operator, request)
    elif operator.single and spectrum.error > max(request.tol, SINGLE_FAR):
        warn(
            "kernel values in float32 leave a relative error near "
            f"{spectrum.error:.1e} in the eigenvalues. Do not pass dtype='float32' here.",
            SolverWarning,
        )
    if inputs is None:
        warn_of_cancellation(X, operator.total, spectrum.trace)
    subspace = operator.expansion(spectrum)
    residual = operator.off_span(spectrum)
    values, variances, ratios = in_dtype_of(X, spectrum, spectrum.values / operator.n)
    return KernelModel(
        values,
        variances,
        None if spectrum.negatives is not None and spectrum.negatives.estimated else ratios,
        subspace.kernel,
        subspace,
        subspace.points,
        used_rows(X, weights),
        Approximation(0.0, spectrum.error),
        name,
        backend.cast_like(spectrum.vectors, backend.vector_like(X)),
        residual,
        Novelty(residual, operator.weights),
        inputs,
    )


def _solved(operator: Dual, request: KernelRequest) -> tuple[Spectrum, str]:
    """Return the eigenpairs asked for, and the solver that found them.

    The trace is of positive eigenvalues; there is a warning if others matter.
    """
    rank = request.rank(operator.shape[0], operator.factor_width)
    spectrum, name = solve_kernel(operator, rank, request)
    if not operator.definite:
        found = spectrum.negatives or negatives_of(operator, request.rng)
        warn_of_negatives(found)
        trace = spectrum.trace if found.positive is None else found.positive
        spectrum = replace(spectrum, trace=trace, negatives=found)
    return request.kept(operator.oriented(spectrum), operator.eps * operator.total), name


def _fit_chunks(table: Table, request: KernelRequest) -> KernelModel:
    """Fit a chunked table from the moments of a feature map chosen from a sample of its rows."""
    m, name = request.n_landmarks, request.eigen_solver
    if request.features is None or is_precomputed(request.kernel.kernel):
        *names, last = (repr(entry.name) for entry in _feature_solvers())
        what = f"{', '.join(names)} or {last} with a kernel of rows, for chunked data"
        raise ValueError(expected("eigen_solver", what, name))
    sizes = f"{m} landmarks or features"
    note(f"{table.route} on the CPU: moments of a map by {name!r}, {sizes}, two passes")
    sample = table.sample(max(SAMPLE_ROWS, ROWS_PER_LANDMARK * m), seed=0)
    refuse_nonfinite(sample)
    kernel = request.kernel.resolved(sample)
    operator = mapped_operator(table, sample, kernel, request.features, request)
    return _fit_mapped(operator, name, sample, None, request)


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
    total = operator.mapped.total
    if request.features is not None:
        request.features.warn_if_far(operator.left_out, request)
    spectrum, _ = solve_kernel(operator, request.rank(operator.shape[0]), request)
    spectrum = request.kept(replace(spectrum, trace=operator.kernel_trace), EPS * total)
    warn_of_cancellation(rows, total, spectrum.trace)
    exists = backend.namespace(spectrum.values).astype(spectrum.values > 0, spectrum.vectors.dtype)
    directed = replace(spectrum, vectors=spectrum.vectors * exists)
    some = rows if whole else rows[:0, :]
    return KernelModel(
        *in_dtype_of(rows, spectrum, spectrum.values / operator.n),
        operator.map.kernel,
        operator.expansion(directed) or operator.subspace(directed),
        some if operator.points is None else operator.points,
        used_rows(rows, weights) if whole else round(operator.n),
        Approximation(operator.left_out, operator.gap(spectrum)),
        name,
        left_out=_left_out_of_map(operator, directed, rows, weights, center=request.center),
    )


def _left_out_of_map(
    operator: MappedScatter,
    spectrum: Spectrum,
    X: Array,
    weights: Array | None,
    *,
    center: bool,
) -> Novelty | None:
    """Return the novelty of some training points, each to moments, and landmarks, without it.

    What is off the components of each counts as one direction.
    """
    index = np.arange(0, int(X.shape[0]), -(-int(X.shape[0]) // NOVELTY_ROWS))
    w = np.ones(index.size) if weights is None else _on_host(weights)[index]
    if not w.any():
        return None
    rows, f = backend.points(backend.take(X, index)), operator.map
    F, outside = off_own_landmark(f, rows, w) if isinstance(f, Landmarks) else (f(rows), 0 * w)
    Z, V = F - operator.moments.mean, spectrum.vectors
    Y = Z @ V
    rest = Z - Y @ V.T
    off = _on_host(algebra.squared_norms(rest))
    U = rest / backend.asarray(np.sqrt(np.where(off > 0, off, 1)), Z)[:, None]
    own = _on_host(backend.namespace(Z).sum((operator @ U.T).T * U, axis=1))
    along = with_own_direction(_on_host(spectrum.values), _on_host(Y), off, own)
    found = left_out_of(*along, spectrum.rank, outside, w, operator.n, center=center)
    return Novelty(*(backend.asarray(part, backend.vector_like(Z)) for part in found))


def off_own_landmark(f: Landmarks, X: Array, weights: Host) -> tuple[Array, Host]:
    """Return mapped points, (m, r), and squared distances off the map, (m,), on the host.

    A point that is a landmark is on the span because it is one: it loses the part that no other
    landmark explains, f(z_j)'s along row j of the whitening N, of squared length 1/‖N_j‖². Not
    where the same point is there again.
    """
    K, own = backend.working(f.raw(X)), backend.working(f.kernel.diag(X))
    F, xp = K @ f.whitening, backend.namespace(K)
    gap = own[:, None] - 2 * K + backend.working(f.kernel.diag(f.points))[None, :]
    nearest = backend.to_numpy(xp.argmin(gap, axis=1))
    same = _on_host(xp.min(gap, axis=1)) <= SAME_POINT * np.abs(_on_host(own))
    same &= np.bincount(nearest, weights * same)[nearest] <= np.minimum(weights, 1)
    N = backend.take(f.whitening, nearest)
    share = np.where(same, 1 / _on_host(algebra.safe_divisor(algebra.squared_norms(N))), 0)
    off = np.clip(_on_host(own - algebra.squared_norms(F)), 0, None)
    return F - backend.asarray(share, K)[:, None] * N, off + share


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
    first: tuple[Annotated[Array, "f d"], Annotated[Array, "f", ">= 0"] | None] | None = None

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
        ready = self if self.map is not None else self.settled(request)
        if ready.map is None or ready.mapped is None or ready.first is None:
            raise ValueError(expected("a stream", "of at least one chunk", self))
        operator = MappedScatter(ready.map, ready.mapped)
        return _fit_mapped(operator, "stream", *ready.first, request)


def _feature_solvers() -> list[type[FeatureSolver]]:
    return [entry for entry in KERNEL_SOLVERS.values() if issubclass(entry, FeatureSolver)]
