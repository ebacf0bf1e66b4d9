"""PCA and probabilistic PCA: the spiked Gaussian over the features, and the ways to fit it.

`SpikedModel` is the fitted model. `fit_pca` and `fit_ppca` fit one to a table: in closed form from
the spectrum of its scatter, by EM on the same operator, or, where values are missing, by the EM
of `incomplete`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np

from dualpca.arrays import EPS, Array, algebra, backend, cached_property, moved, quadratic
from dualpca.data import (
    SINGLE_LEAST,
    Columns,
    InMemoryTable,
    Moments,
    Table,
    Units,
    has_missing,
    wide_rows,
)
from dualpca.errors import DegenerateError, ScaleError, SelectionWarning, expected, warn
from dualpca.gaussian import (
    CROSS_VALIDATED,
    LOG_2PI,
    PARALLEL,
    RULES,
    FactorJudge,
    Factors,
    Judge,
    ParameterErrors,
    Reference,
    Selection,
    SpikedGaussian,
    SpikedJudge,
    free_parameters,
    incomplete_reference,
    observed,
    reference_of,
    rules,
)
from dualpca.models import driver
from dualpca.models.incomplete import Fit, fit_incomplete, some_of
from dualpca.models.selection import (
    choose_bic,
    cross_validated,
    parallel_analysis,
    rule_of_completed,
)
from dualpca.models.streaming import Stream
from dualpca.operators import (
    ColumnGram,
    ColumnTable,
    Frame,
    LinearTable,
    Operator,
    PartScatter,
    Primal,
    ProjectedRows,
    Scatter,
    Spectrum,
    by_columns,
    complete,
    device_scatter,
    linear,
)
from dualpca.solvers import SOLVERS

LinearOperator = Primal | Scatter | PartScatter | ColumnGram

Found = LinearTable | ColumnTable | Columns
"""What a fit begins with: an operator, or what is known of columns where values are missing."""

NEGLIGIBLE_VARIANCE = 1e-10
"""Share of the largest variance below which another may be rounding error."""

SCATTER_STEPS = 8
"""How many times the work of a scatter counts that is one step: factorisations are limited by
themselves."""

NEAR_ZERO = 1e4
"""Largest ‖μ‖² beside the largest variance for which projections are corrected afterwards: that
costs two digits at most."""

MANY_STEPS = 4
"""Steps between which threads meet so often that little work had better be done by one."""

LARGEST_CAST_ERROR = 1e-3
"""Largest relative error that a variance may have in the dtype of the rows."""

RESIDUAL_ROUNDINGS = 64
"""A residual below this many machine epsilons of the row, in the axes' dtype, counts as zero."""


# --- The model -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SpikedModel:
    """N(μ, Σ (ℓ − σ²) v vᵀ + σ²I) over the features, on its principal axes.

    Arrays have the dtype of the training rows; everything is computed in float64. Only
    `covariance` and `precision` form a d×d matrix.
    """

    mean: Annotated[Array, "d"]
    components: Annotated[Array, "q d"]  # v, orthonormal, largest variance first
    variances: Annotated[Array, "q", ">= 0"]  # ℓ
    ratios: Annotated[Array, "q", "or nan"]  # shares of the variance
    noise: Annotated[float, ">= 0"]  # σ²
    n_rows: Annotated[int, ">= 0"]
    reference: Reference | None = None  # of the training rows, for control limits
    scale: Annotated[Array, "d", "> 0"] | None = None  # of standardised features
    column_variances: Annotated[Array, "d", ">= 0"] | None = None
    history: driver.History | None = None
    selection: Selection | None = None

    @property
    def axes(self) -> Array:
        """V, (d, q), in float64."""
        return backend.working(self.components).T

    @property
    def frame(self) -> Frame:
        """Origin and unit of every feature."""
        scale = None if self.scale is None else backend.working(self.scale)
        return Frame(backend.working(self.mean), scale)

    @property
    def gaussian(self) -> SpikedGaussian:
        """The density along and off the axes."""
        values = backend.working(self.variances)
        return SpikedGaussian(values, float(self.noise), int(self.components.shape[1]))

    @property
    def factors(self) -> Factors:
        """The same density as x = Wz + μ + ε, for rows with missing values."""
        mean = backend.working(self.mean)
        psi = backend.namespace(mean).full_like(mean, float(self.noise))
        return Factors(self.axes * self.gaussian.spread, mean, psi)

    @property
    def loadings(self) -> Array:
        """W = V (L − σ²I)^{1/2}, (d, q)."""
        return backend.cast_like(self.axes * self.gaussian.spread, self.components)

    @property
    def n_components(self) -> int:
        """The number of axes, q."""
        return int(self.components.shape[0])

    def n_parameters(self, *, fixed_noise: bool = False) -> int:
        """Return the number of free parameters, mean included: dq − q(q − 1)/2 + 1 + d."""
        q, d = map(int, self.components.shape)
        return free_parameters(q, d) + d - (1 if fixed_noise and q < d else 0)

    @property
    def singular_values(self) -> Array:
        """Of the centred rows, (q,): the roots of the eigenvalues of their scatter."""
        xp = backend.namespace(self.variances)
        n = self.n_rows if self.reference is None else self.reference.divisor
        return backend.cast_like(xp.sqrt(backend.working(self.variances) * n), self.variances)

    @property
    def deviations(self) -> Array:
        """Standard deviations along the axes, (q,); 0 where there is only rounding error."""
        xp, values = backend.namespace(self.components), backend.working(self.variances)
        if values.shape[0] == 0:
            return values
        share = float(np.finfo(np.float64).eps) * max(self.components.shape)
        floor = share * float(xp.max(values))
        return xp.sqrt(xp.where(values > floor, values, xp.zeros_like(values)))

    def coordinates(self, rows: Array, times: Array | None = None) -> Array:
        """Return the projections on the axes, (n, q), each times a number if they are given."""
        if isinstance(rows, ProjectedRows):
            Y = rows.projection.coordinates
            return Y if times is None else Y * times
        frame, variances = self.frame, self.variances
        most = NEAR_ZERO * float(variances[0]) if variances.shape[0] else 0.0
        near = float(frame.mean @ frame.mean) <= most
        few = rows.shape[0] < self.components.shape[1]  # rather these than the axes
        with self._threads_for(rows, 1):
            V = self.axes if times is None or few else self.axes * times
            Y = frame.coordinates(V, rows, near=near)
            return Y if times is None or not few else Y * times

    def _threads_for(self, rows: Array, steps: int) -> AbstractContextManager[None]:
        """Return a context for products of the rows with the axes, and other steps between them."""
        axes = float(self.components.shape[0]) * self.components.shape[1]
        worth = MANY_STEPS / steps  # threads meet once a step
        return backend.one_thread(axes * rows.shape[0] * worth, rows, axes)

    def whitened(self, rows: Array) -> Array:
        """Return coordinates over their standard deviations; 0 along axes that do not vary."""
        xp, deviations = backend.namespace(self.components), self.deviations
        endless = xp.full_like(deviations, math.inf)
        return self.coordinates(rows) / xp.where(deviations > 0, deviations, endless)

    def lifted(self, coordinates: Array) -> Array:
        """Return the rows on the span of the axes with these coordinates, (n, d)."""
        return self.frame.lift(self.axes, coordinates)

    def posterior(self, rows: Array) -> tuple[Array, Array | None]:
        """Return E[z | x], (n, q), and covariances (n, q, q) if some row has missing values.

        Complete rows share σ²/ℓ, and None is returned for theirs.
        """
        Y = self.coordinates(rows, self.gaussian.shrinkage)
        if not backend.all_finite(Y) and has_missing(rows):
            found = observed.all_latents(self.factors, rows)
            return found.mean, found.covariance
        return Y, None

    @cached_property
    def errors(self) -> ParameterErrors | None:
        """What the fitted parameters may be off by; None where there is no noise or no signal."""
        if self.reference is None or not self.noise > 0 or not self.n_components:
            return None
        values = self.gaussian.values
        return ParameterErrors.of(self._normal_factors, self.reference, variances=values)

    @property
    def _normal_factors(self) -> Factors:
        """The factors of the Gaussian."""
        return self.factors

    def latents(self, rows: Array, errors: ParameterErrors | None = None) -> tuple[Array, Array]:
        """Return E[z | x], (n, q), and covariances (n, q, q), with those of the parameters."""
        mean, own = self.posterior(rows)
        if errors is None:
            return mean, self._covariances(own, rows)
        if own is None and errors.complete is not None:
            R = backend.working(rows) - backend.working(self.mean)
            return mean, errors.complete.latent_covariance(mean, R)
        return mean, errors.latent_covariance(rows)

    def _covariances(self, own: Array | None, rows: Array) -> Array:
        """Return the covariances of latents; a view of one matrix if all rows are complete."""
        if own is not None:
            return own
        variance = self.gaussian.posterior_variance
        one = variance[:, None] * backend.asarray(np.eye(variance.shape[0]), variance)
        shape = (rows.shape[0], *one.shape)
        return backend.namespace(rows).broadcast_to(backend.cast_like(one, rows), shape)

    def signal(
        self, rows: Array, spread: bool = False, errors: ParameterErrors | None = None
    ) -> tuple[Array, Array | None]:
        """Return the posterior mean of the noise-free signal, (n, d), and its deviation."""
        factors = self.factors
        (mean, own), W = self.posterior(rows), factors.W
        found = mean @ W.T + factors.mu
        if not spread:
            return found, None
        variance = self._signal_variance(rows, mean, own, errors)
        return found, backend.namespace(rows).sqrt(variance)

    def _signal_variance(
        self, rows: Array, mean: Array, own: Array | None, errors: ParameterErrors | None
    ) -> Array:
        W = self.axes * self.gaussian.spread
        if errors is not None and own is None and errors.complete is not None:
            R = backend.working(rows) - backend.working(self.mean)
            return errors.complete.signal_variance(mean, R)
        if errors is not None:
            return errors.signal_variance(rows)
        if own is not None:
            return quadratic(own, W)
        one = (W * W) @ self.gaussian.posterior_variance
        return backend.namespace(one).broadcast_to(one, (int(rows.shape[0]), int(W.shape[0])))

    def tails(self, rows: Array, covariance: Array) -> float | Array:
        """Return what tails add to covariances given the rows: none to those of a Gaussian."""
        return 0.0

    def predictive_covariance(self, errors: ParameterErrors | None = None) -> Array:
        """Return the covariance of a new measurement of a complete row, (d, d)."""
        if errors is None:
            return self.dense(self.gaussian.signal_variance, self.noise, power=1)
        return self._in_units(errors.predictive(), power=1)

    def log_density(self, rows: Array, *, missing: bool) -> Array:
        """Return ln p of what every row observed; O(dq) per row."""
        if isinstance(rows, ProjectedRows):
            density, scale = self.gaussian.log_density(*rows.projection), self.frame.scale
            return density if scale is None else density - float(np.log(scale).sum())
        frame, gaussian, V = self.frame, self.gaussian, self.axes
        X, off = backend.rowwise(rows), gaussian.rank < gaussian.dim
        if not off:  # nothing is left to measure, and coordinates can be had in their units
            gaussian.require_density()
            V = V / backend.namespace(V).sqrt(gaussian.values)

        def of(part: slice) -> Array:
            C = backend.row_block(X, part)
            return gaussian.log_density(*frame.projected(V, C, off=off), units=not off)

        with self._threads_for(rows, MANY_STEPS):
            density = backend.stacked(of, backend.row_slices(X), X)
        if missing and not backend.all_finite(density) and has_missing(rows):
            return observed.all_latents(self.factors, rows).log_density
        xp, scale = backend.namespace(density), frame.scale
        return density if scale is None else density - xp.sum(xp.log(scale))

    def judge_for(self, rows: Array | None = None) -> Judge:
        """Return the judge of T² and SPE for these rows; for complete ones by default."""
        reference = self.reference or Reference(self.n_rows, self.n_rows)
        if rows is not None and not isinstance(rows, ProjectedRows) and has_missing(rows):
            if self.noise == 0:
                raise DegenerateError(
                    "the model has no noise, beside which rows with missing values could be "
                    "judged. Give complete rows, or fit with noise_variance > 0."
                )
            return FactorJudge(self.factors, reference, float(self.noise))
        eps = float(backend.namespace(self.components).finfo(self.components.dtype).eps)
        rounding = RESIDUAL_ROUNDINGS * eps
        return SpikedJudge(self.gaussian, self.frame, self.axes, reference, rounding)

    def covariance(self) -> Array:
        """Return C = Σ (ℓ − σ²) v vᵀ + σ²I, (d, d)."""
        gaussian = self.gaussian
        return self.dense(gaussian.values - gaussian.noise, gaussian.noise, power=1)

    def precision(self) -> Array:
        """Return C⁻¹ = Σ (1/ℓ − 1/σ²) v vᵀ + I/σ², (d, d)."""
        gaussian = self.gaussian
        gaussian.require_density()
        floor = 1 / gaussian.noise if gaussian.rank < gaussian.dim else 0.0
        return self.dense(1 / gaussian.values - floor, floor, power=-1)

    def dense(self, spikes: Array, floor: float, power: int) -> Array:
        """Return Σ spike·v vᵀ + floor·I, (d, d), with the features' units to the given power."""
        V = self.axes
        return self._in_units((V * spikes) @ V.T + floor * backend.identity(V.shape[0], V), power)

    def _in_units(self, A: Array, power: int) -> Array:
        if self.frame.scale is not None:
            unit = self.frame.scale**power
            A = A * unit[:, None] * unit[None, :]
        return backend.cast_like(A, self.components)

    def sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Draw rows x = μ + V√(ℓ − σ²) z + σε, (n_samples, d)."""
        V, gaussian = self.axes, self.gaussian
        z, noise = (backend.normal(rng, (n_samples, k), V) for k in (gaussian.rank, gaussian.dim))
        centred = (z * gaussian.spread) @ V.T + gaussian.noise**0.5 * noise
        return backend.cast_like(self.frame.restore(centred), self.components)


class PrincipalAxes(NamedTuple):
    """A density on its principal axes, where a fit ended."""

    mean: Array
    spectrum: Spectrum  # its trace is the variance that shares are taken of
    gaussian: SpikedGaussian

    @classmethod
    def of(
        cls, factors: Factors, total: float | None = None, dim: int | None = None
    ) -> PrincipalAxes:
        """Rotate factors of equal noise; `total` is the variance, by default that of the model.

        `dim` is the number of features, where the loadings are those of points.
        """
        d, sigma2 = dim or int(factors.W.shape[0]), float(factors.psi[0])
        U, s, _ = algebra.svd(factors.W)
        gaussian = SpikedGaussian(s**2 + sigma2, sigma2, d)
        if total is None:
            total = float(backend.namespace(s).sum(s**2)) + d * sigma2
        return cls(factors.mu, Spectrum(gaussian.values, U, total, d).ordered(), gaussian)

    @property
    def factors(self) -> Factors:
        """The density as x = Wz + μ + ε; with a little noise, where there is none."""
        values, noise = self.gaussian.values, self.gaussian.noise
        if not noise > 0:
            noise = rules.LEAST_NOISE * float(backend.namespace(values).mean(values))
        W = self.spectrum.vectors * self.gaussian.spread
        return Factors(W, self.mean, backend.namespace(W).full_like(self.mean, noise))

    def model(
        self,
        like: Array,
        n_rows: int,
        reference: Reference,
        kind: Callable[..., Fitted],
        *,
        negligible: float = 0.0,
        components: Array | None = None,
        **others: object,
    ) -> Fitted:
        """Return the model, in the dtype of `like`; `others` are further fields of its kind.

        `components` are its axes, where the eigenvectors are those of points.
        """
        spectrum, xp = self.spectrum, backend.namespace(self.spectrum.values)
        if components is None:
            components = backend.cast_like(xp.asarray(spectrum.vectors.T, copy=True), like)
        ratio = spectrum.values / spectrum.trace if spectrum.trace > 0 else 0 * spectrum.values
        return kind(
            mean=backend.cast_like(self.mean, like),
            components=components,
            variances=variances_like(self.gaussian.values, like, negligible),
            ratios=backend.cast_like(ratio, like),
            noise=self.gaussian.noise,
            n_rows=n_rows,
            reference=reference,
            **others,
        )


Fitted = TypeVar("Fitted", bound=SpikedModel)


def variances_like(values: Array, like: Array, negligible: float = 0.0) -> Array:
    """Return variances in the dtype of `like`, unless it would round them to nothing.

    Rows at 1e-23 are numbers of float32, and their squares are not. Those up to `negligible` of
    the largest may vanish: they are rounding errors of the others.
    """
    found, xp = backend.cast_like(values, like), backend.namespace(values)
    if found.dtype == values.dtype or values.shape[0] == 0:
        return found
    limits = xp.finfo(found.dtype)
    rough = float(limits.smallest_normal) * float(limits.eps) / LARGEST_CAST_ERROR
    if bool(xp.any((values > negligible * xp.max(values)) & (values < rough))):
        raise ScaleError(
            f"a variance is below the range of {found.dtype}, the dtype of X. Multiply X by a "
            "constant, or pass it as float64."
        )
    return found


# --- PCA -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PCARequest:
    """Checked parameters of `fit_pca`."""

    n_components: int | float | str | None
    solver: str = "auto"  # 'auto', or the name of an entry of `solvers.SOLVERS`
    tol: float = 0.0
    seed: int | np.random.Generator = 0
    standardize: bool = False
    solver_given: str = "auto"  # as the user called it, for messages
    components_out: str | os.PathLike[str] | None = None  # a .npy file


GRAM = "gram"
"""The solver whose matrix a table that is read by columns adds up."""


def check_solver(table: Table, name: str) -> None:
    """Refuse a solver that needs all rows at once for a chunked table."""
    if not isinstance(table, InMemoryTable) and (table.by_columns is None or name != GRAM):
        check_chunks_solver(name)


def check_chunks_solver(name: str) -> None:
    """Refuse a solver that needs all rows at once where only their moments are known."""
    kinds = [kind for kind in SOLVERS.values() if kind.on_chunks]
    names = ["auto", *(kind.name for kind in kinds), *(n for kind in kinds for n in kind.svd_names)]
    if name not in names:
        remedy = "The others need all rows in memory."
        raise ValueError(expected("the solver", f"one of {names}", name, remedy))


def fit_pca(table: Table, request: PCARequest) -> SpikedModel:
    """Fit PCA to complete rows: the leading eigenpairs of their scatter."""
    check_solver(table, request.solver_given)
    like, host = table.like, _as_scipy(table)
    if host is not None:
        return moved(fit_pca(host, request), lambda a: backend.beside(a, like))
    with few_threads(table):
        if request.solver in ("auto", "dense"):
            model = _fit_on_device(table, request)
            if model is not None:
                return model
        scaled = request.standardize
        wide = None if table.by_columns is None else by_columns(table, standardize=scaled)
        found = wide or complete(table, standardize=scaled)
        operator, count = found.operator, found.n_rows
        rules.check_request(request.n_components, count, table.d, request.solver_given)
        judged, scaled = table, request.standardize and request.n_components in CROSS_VALIDATED
        if scaled and not backend.is_sparse(getattr(table, "rows", None)):  # as it is fitted
            judged = Units.of(table).table(table)
        request, _ = _with_chosen_count(judged, request, count, found)
        return pca_of_operator(operator, count, table.like, request)


def _as_scipy(table: Table) -> InMemoryTable | None:
    """Return a sparse tensor on the CPU as SciPy's matrix, which shares its memory; else None."""
    if not isinstance(table, InMemoryTable) or not backend.is_sparse_tensor(table.rows):
        return None
    if backend.on_cuda(table.rows):
        return None
    weights = None if table.weights is None else backend.to_numpy(table.weights)
    return InMemoryTable(backend.sparse_on_host(table.rows), weights)


def _fit_on_device(table: Table, request: PCARequest) -> SpikedModel | None:
    """Fit PCA to rows of another library from their scatter; None if that is not as good.

    They are squared in float32 first, on a GPU, and in float64 if that has lost digits.
    """
    wanted, like = request.n_components, table.like
    if wanted == PARALLEL or wanted in CROSS_VALIDATED:
        return None
    for single in (True, False) if rules.is_count(wanted) else (False,):
        found = device_scatter(table, standardize=request.standardize, single=single)
        if found is None:
            return None
        rounded = found.least == SINGLE_LEAST
        rules.check_request(wanted, found.n_rows, table.d, request.solver_given)
        host = np.empty(0, dtype=np.float32 if found.operator.given_eps > EPS else np.float64)
        dense = replace(request, solver="dense")
        model = pca_of_operator(found.operator, found.n_rows, host, dense)
        if _is_right(model, found.least) or (request.solver == "dense" and not rounded):
            return moved(model, lambda a: backend.beside(a, like))
        if not rounded:
            return None
    return None


def _is_right(model: SpikedModel, least: float) -> bool:
    """Return True if no variance, nor the sum of the noise, is below a share of the largest."""
    values, (q, d) = model.variances, model.components.shape
    if not q or least == 0:
        return True
    rest = (d - q) * model.noise
    few = values[-1] > least * values[0]
    return bool(few and (q == d or rest > least * (rest + values.sum())))


def few_threads(table: Table) -> AbstractContextManager[None]:
    """Return a context for a fit of the rows: small ones are done before threads have met."""
    if table.n is None or backend.is_sparse(table.like):
        return nullcontext()
    entries = float(table.n) * table.d
    work = 0.5 * entries * min(table.n, table.d)
    return backend.one_thread(SCATTER_STEPS * work, table.like, entries)


def pca_of_operator(
    operator: LinearOperator, count: int, like: Array, request: PCARequest, **others: object
) -> SpikedModel:
    """Fit PCA to an operator over the features that sums over `count` rows."""
    wanted, solver, tol, seed = request.n_components, request.solver, request.tol, request.seed
    _check_count(wanted, count, operator.dim, request.solver_given)
    solver = solver_on(operator, solver)
    spectrum = rules.leading(wanted, operator, count, solver=solver, tol=tol, seed=seed)
    divisor = operator.n - 1
    if not divisor > 0:
        raise ValueError(
            f"sample_weight must sum to more than 1, got {operator.n:.6g}: it is the effective "
            "number of rows. Multiply the weights by the number of rows they stand for."
        )
    gaussian = rules.spiked_gaussian(spectrum, divisor)
    # the order of rows is not looked at: it would take as long as the fit of a small table
    reference = reference_of(operator, spectrum, operator.n, divisor, incomplete=False)
    mean, scale = operator.frame
    if scale is not None:
        scale = backend.cast_like(scale, like)
    others |= {
        "scale": scale,
        "components": axes_of(operator, spectrum, like, request.components_out),
    }
    return PrincipalAxes(mean, spectrum, gaussian).model(
        like, count, reference, SpikedModel, negligible=NEGLIGIBLE_VARIANCE, **others
    )


def solver_on(operator: LinearOperator, solver: str) -> str:
    """Return the solver to use: of a table that is read by columns, the Gram matrix is there."""
    return "dense" if isinstance(operator, ColumnGram) and solver == GRAM else solver


def axes_of(
    operator: LinearOperator | None,
    spectrum: Spectrum,
    like: Array,
    out: str | os.PathLike[str] | None,
) -> Array | None:
    """Return axes over the features, (q, d), where they are not in the spectrum, or are written.

    The eigenvectors of a table that is read by columns are those of points.
    """
    if isinstance(operator, ColumnGram):
        return operator.axes(spectrum, out)
    if out is None:
        return None
    if backend.is_foreign(spectrum.vectors):
        raise ValueError(expected("components_out", "None for arrays of this library", out))
    axes = backend.cast_like(spectrum.vectors.T, like)
    with wide_rows(out, axes.shape, axes.dtype) as rows:
        rows.put(0, axes)
    return rows.array


def _check_count(wanted: float | str | None, count: int, d: int, solver: str) -> None:
    """Refuse a request that `count` rows of d features, which are not at hand, cannot satisfy."""
    rules.check_request(wanted, count, d, solver)
    if wanted in CROSS_VALIDATED:
        raise ValueError(
            f"n_components={wanted!r} needs dense rows, and partial_fit keeps none. "
            "Use 'evidence', 'bic', 'parallel' or 'white-noise'."
        )


Request = TypeVar("Request", "PCARequest", "PPCARequest")


def _with_chosen_count(
    table: Table, request: Request, count: int, found: Found
) -> tuple[Request, Selection | None]:
    """Return the request with a number of components, if it asks for a rule that needs rows."""
    if request.n_components == PARALLEL:
        q = rules.at_least_one(PARALLEL, parallel_count(table, found))
        return replace(request, n_components=q), None
    if request.n_components not in CROSS_VALIDATED:
        return request, None
    name, missing = str(request.n_components), isinstance(found, Columns)
    selection = cross_validated(name, table, min(count, table.d) - missing, missing=missing)
    return replace(request, n_components=rules.at_least_one(name, selection.chosen)), selection


# --- Probabilistic PCA ---------------------------------------------------------------------------


@dataclass(frozen=True)
class PPCARequest(driver.IterativeRequest):
    """Checked parameters of `fit_ppca`. `rng` also starts block Krylov."""

    n_components: int | float | str | None
    noise: float | None = None  # σ², None for maximum likelihood
    method: str = "closed"  # or 'em'
    init: str | tuple[Array, float] = "auto"  # 'auto', 'random', or loadings and noise, for EM
    accelerate: bool = True
    solver: str = "auto"
    n_init: int = 1
    rule: str = PARALLEL  # where neither a number nor the noise is given
    components_out: str | os.PathLike[str] | None = None  # a .npy file


def fit_ppca(table: Table, request: PPCARequest) -> SpikedModel:
    """Fit probabilistic PCA by maximum likelihood (Tipping & Bishop 1999), NaN or not."""
    check_solver(table, request.solver)
    with few_threads(table):
        wide = None if table.by_columns is None else by_columns(table, missing=True)
        found = wide or linear(table, missing=True)
        by_default = request.n_components is None and request.noise is None
        choose = _default_count if by_default else _with_chosen_count
        count = found.rows if isinstance(found, Columns) else found.n_rows
        request, selection = choose(table, request, count, found)

        def fit(request: PPCARequest) -> SpikedModel:
            if isinstance(found, Columns):
                return _fit_incomplete_ppca(table, found, request)
            return ppca_of_operator(found.operator, found.n_rows, table.like, request)

        if not by_default:
            return replace(fit(request), selection=selection)
        unit = average_variance(found)
        if table.d == 1 and unit > 0:  # no direction is left for noise, and imputing needs some
            request = replace(request, noise=rules.HEYWOOD * unit)
        return replace(noise_held(fit, request, unit), selection=selection)


ENOUGH_ROWS = 2000
"""Rows from which cross-validation chooses where nobody asked and values are missing."""


def _default_count(
    table: Table, request: PPCARequest, count: int, found: Found
) -> tuple[PPCARequest, Selection | None]:
    """Return the request with what nobody asked for: its rule, or 1 where there is no choice.

    Cross-validation with missing values fits every candidate by EM, five times: to a sample of
    rows.
    """
    missing = isinstance(found, Columns)
    if min(count - 1, table.d) < 2:
        return replace(request, n_components=1), None
    if request.rule not in CROSS_VALIDATED:
        named = replace(request, n_components=request.rule)
        return _with_chosen_count(table, named, count, found)
    few = some_of(table, ENOUGH_ROWS) if missing else table
    try:
        most = min(count, table.d) - missing
        selection = cross_validated(request.rule, few, most, missing=missing)
    except DegenerateError:  # too few values to hide some of them
        return replace(request, n_components=1), None
    compared = bool(np.any(np.asarray(selection.candidates) > 0))  # or none leaves any noise
    q = rules.at_least_one(request.rule, selection.chosen) if compared else 1
    return replace(request, n_components=q), selection if compared else None


def noise_held(fit: Callable[[Any], Fitted], request: Any, unit: float) -> Fitted:
    """Fit a model whose number of components is its own choice; hold the noise if none is left.

    Rows on a line, or fewer than three, leave no noise, and a model without noise has no density.
    It is then held at 1/10,000 of the average variance, `unit`, as that of a Heywood case is.
    """
    try:
        return fit(request)
    except DegenerateError:
        if not unit > 0:
            raise
    model = fit(replace(request, noise=rules.HEYWOOD * unit))
    warn(
        "the components explain the rows without noise: noise_variance is held at 1/10,000 of the "
        "average variance. Densities and standard deviations are those of this choice.",
        SelectionWarning,
        degenerate=True,
    )
    return model


def parallel_count(table: Table, found: Found) -> int:
    """Return the number of components by parallel analysis of a table of which this is known."""
    operator = None if isinstance(found, Columns) else found.operator
    moments = operator.moments if isinstance(operator, Scatter) else None
    return parallel_analysis(table, missing=operator is None, moments=moments)


def average_variance(found: Found) -> float:
    """Return the average variance of the features."""
    if isinstance(found, Columns):
        return float(np.mean(backend.to_numpy(found.variance)))
    return found.operator.trace / found.operator.n / found.operator.dim


def ppca_of_operator(
    operator: LinearOperator, count: int, like: Array, request: PPCARequest
) -> SpikedModel:
    """Fit probabilistic PCA to an operator over the features that sums over `count` rows."""
    wanted, noise, n = request.n_components, request.noise, operator.n
    mean = operator.frame.mean
    if wanted is None and noise is None:
        wanted = PARALLEL  # a stream, whose moments are enough
    _check_count(wanted, count, operator.dim, request.solver)
    by_em = request.method == "em"
    if by_em and rules.is_count(wanted):
        q = at_least_one_factor(wanted)
    else:
        spectrum, gaussian = _closed_form(operator, count, wanted, request)
        q = gaussian.rank
    if by_em:
        if isinstance(operator, ColumnGram) and not isinstance(request.init, str):
            what = "'auto' or 'random' for a table that is read by columns"
            raise ValueError(expected("init", what, request.init))
        begin = given_start(request.init, (operator.shape[0], q), operator.like)
        options: dict[str, Any] = {"start": begin, "accelerate": request.accelerate}
        options |= request.limits
        W, sigma2, record = em_of_operator(operator, q, n, request.start, noise, **options)
        record.add(ppca_step(operator, W, sigma2, n)[2])
        total = operator.trace / n
        if noise is None and rules.has_vanished(sigma2, total / operator.dim, rules.NO_NOISE):
            sigma2 = 0.0
        psi = backend.namespace(mean).full_like(mean, sigma2)
        at = PrincipalAxes.of(Factors(W, mean, psi), total, operator.dim)
        if noise == 0:  # what EM raised is no likelihood
            record.loglikelihoods = [at.gaussian.limit_loglikelihood(n, operator.trace)]
    else:
        record = driver.Record([gaussian.limit_loglikelihood(n, spectrum.trace)], 1, True)
        at = PrincipalAxes(mean, spectrum.head(q), gaussian)
    if noise != 0:
        at.gaussian.require_density()
    reference = reference_of(operator, at.spectrum, n, n, rows=rows_in_order(operator))
    components = axes_of(operator, at.spectrum, like, request.components_out)
    history = driver.History.of(record)
    return at.model(like, count, reference, SpikedModel, components=components, history=history)


def rows_in_order(operator: LinearOperator) -> Array | None:
    """Return the rows of an operator where they are at hand, and each counts once."""
    if isinstance(operator, Primal) and operator.weights is None:
        return operator.X
    return None


def _closed_form(
    operator: LinearOperator, count: int, wanted: float | str | None, request: PPCARequest
) -> tuple[Spectrum, SpikedGaussian]:
    """Return the leading eigenpairs, all that can matter, and the Gaussian that they give."""
    bounded, noise, n = wanted, request.noise, operator.n
    if wanted is None and noise is not None:  # at most tr/(nσ²) variances can exceed σ²
        most = operator.trace / (n * float(noise)) if noise > 0 else math.inf
        bounded = int(min(count, operator.dim, max(most, 1.0)))
    solver = solver_on(operator, request.solver)
    spectrum = rules.leading(bounded, operator, count, solver=solver, seed=request.rng)
    q = None if wanted is None else spectrum.rank
    return spectrum, rules.spiked_gaussian(spectrum, n, noise=noise, q=q)


def at_least_one_factor(q: float | str | None) -> int:
    """Return q, a count, which EM cannot do without."""
    count = int(q or 0)
    if count < 1:
        what = "at least 1 with method='em' or missing values"
        raise ValueError(expected("n_components", what, q))
    return count


# --- Missing values, and streams -----------------------------------------------------------------


def _fit_incomplete_ppca(table: Table, columns: Columns, request: PPCARequest) -> SpikedModel:
    """Fit rows with missing values by the exact likelihood of the observed entries."""
    wanted, noise = request.n_components, request.noise
    if rules.is_count(wanted):
        rules.check_request(wanted, columns.rows, table.d, request.solver)
        q = at_least_one_factor(wanted)
    elif wanted == "bic":
        q = rules.at_least_one("bic", choose_bic(table, min(columns.rows, table.d) - 1))
    elif wanted == "mle" or wanted in RULES:
        rules.check_request(wanted, columns.rows, table.d, request.solver)
        name = "evidence" if wanted == "mle" else str(wanted)
        q = min(rules.at_least_one(name, rule_of_completed(name, table)), table.d - 1)
    else:
        named = ["mle", *sorted(RULES), PARALLEL, *CROSS_VALIDATED]
        what = f"an int or one of {named} where values are missing"
        raise ValueError(expected("n_components", what, wanted))
    fit = Fit(table, q, noise, columns=columns, accelerate=request.accelerate)
    rng, limits = request.start, {"n_init": request.n_init, **request.limits}
    begin = given_start(request.init, (table.d, q), fit.origin)
    start = fit.begin_anywhere(rng) if request.init == "random" else None
    if begin is not None:
        start = fit.pack(Factors(begin[0], fit.origin, 0 * fit.origin + begin[1]))
    factors, record = fit_incomplete(fit, rng, start=start, **limits)
    if noise == 0:  # what EM raised is no likelihood
        most = rules.NO_NOISE * float(backend.to_numpy(fit.seen).sum())
        exact = abs(record.loglikelihoods[-1]) <= most
        record.loglikelihoods = [math.inf if exact else -math.inf]
    at, n = incomplete_axes(factors, noise), columns.effective_rows
    reference = Reference(n, n)
    if at.gaussian.noise > 0:
        reference = measured_reference(factors, at.spectrum, table, n)
    history, like = driver.History.of(record), table.like
    components = axes_of(None, at.spectrum, like, request.components_out)
    return at.model(
        like, columns.used, reference, SpikedModel, components=components, history=history
    )


MEASURED_ROWS = 2000
"""Rows with missing values by which control limits are measured, at random where there are more."""


def measured_reference(factors: Factors, spectrum: Spectrum, table: Table, n: float) -> Reference:
    """Return what control limits need to know of a table with missing values, n effective rows."""
    some = some_of(table, MEASURED_ROWS)
    return incomplete_reference(
        factors, spectrum, some.rows, some.weights, n, ordered=some is table
    )


def incomplete_axes(
    factors: Factors, noise: float | None = None, remedy: str = ", or give noise_variance"
) -> PrincipalAxes:
    """Return the axes of a fit with missing values; refuse a noise that vanished by itself."""
    at = PrincipalAxes.of(factors)
    if noise is None and rules.has_vanished(at.gaussian.noise, at.spectrum.trace / at.gaussian.dim):
        raise DegenerateError(
            f"the noise of {factors.W.shape[1]} components fell below "
            f"{10 * rules.LEAST_NOISE:g} of the average variance: where values are missing, that "
            f"is indistinguishable from no noise. Use fewer components{remedy}."
        )
    return at


def open_stream(state: Moments | Stream | None, request: PPCARequest) -> Stream:
    """Return a stream that accepts incomplete chunks and holds the moments of complete ones."""
    if request.noise == 0:
        what = "positive or None where partial_fit meets missing values"
        remedy = "`fit` accepts 0 with missing values."
        raise ValueError(expected("noise_variance", what, request.noise, remedy))
    if not rules.is_count(request.n_components):
        what = "an int where partial_fit meets missing values: rows are not kept for a rule"
        raise ValueError(expected("n_components", what, request.n_components))
    q = at_least_one_factor(request.n_components)
    if not isinstance(state, Stream):
        return Stream(q, request.noise, request.tol, request.max_iter, state)
    if q != state.q:
        what = f"{state.q}, as when the stream began"
        raise ValueError(expected("n_components", what, q, "Give all chunks to a new model."))
    return replace(state, tol=request.tol, max_iter=request.max_iter)


def ppca_of_stream(
    state: Moments | Stream, count: int, like: Array, request: PPCARequest
) -> SpikedModel:
    """Fit the statistics of a stream and the rows that still wait; the stream does not change."""
    if isinstance(state, Stream) and state.running is None and state.rows is None:
        state = state.moments or state  # all chunks were complete
    if isinstance(state, Moments):
        return ppca_of_operator(Scatter(state), count, like, request)
    rules.check_request(request.n_components, count, int(like.shape[1]), request.solver)
    bounded = replace(state, tol=request.tol, max_iter=request.max_iter)
    factors, record = bounded.settle(request.start).model()
    at, history = incomplete_axes(factors, request.noise), driver.History.of(record, endless=True)
    return at.model(like, count, Reference(count, count), SpikedModel, history=history)


# --- EM on an operator, whose matrix is never formed ---------------------------------------------


def ppca_step(
    operator: Operator, W: Array, sigma2: float, n: float, *, expand: bool = False
) -> tuple[Array, float, float]:
    """Take one EM step of PPCA on an operator nS, O(q) products with it; S is never formed.

    W' = S W (σ²I + M⁻¹WᵀSW)⁻¹ and σ²' = tr(S − S W M⁻¹W'ᵀ)/r with M = WᵀW + σ²I
    (theory 3.1; Tipping & Bishop 1999, Eqs. 29 and 30).

    Parameters
    ----------
    operator : Operator
        nS: the scatter of the centred points, or the centred kernel.
    W : array of shape (m, q)
    sigma2 : float
    n : float
        Effective number of points.
    expand : bool
        Let the latents have covariance Γ in the M step and fold it back, W ← W Γ^{1/2}
        (parameter expansion): the same fixed points, reached in fewer steps.

    Returns
    -------
    W : array of shape (m, q)
    sigma2 : float
    loglikelihood : float
        Of the parameters given, not of the ones returned. With σ² = 0 there is none, and −½ of
        the squares that are left takes its place; the step is that of EM for PCA (Roweis 1998).
    """
    # in units of the average variance, where tr S = r: WᵀSW is of fourth order, and would overflow
    xp, q, r = backend.namespace(W), W.shape[1], operator.dim
    unit = operator.trace / n / r
    root, eye = math.sqrt(unit), backend.identity(q, W)
    W, sigma2 = W / root, sigma2 / unit
    SW = (operator @ W) / n / unit
    M, B = W.T @ W + sigma2 * eye, W.T @ SW
    MB = xp.linalg.solve(M, B)
    # ln|C| and tr(C⁻¹S) by Woodbury, from q×q matrices
    left = r - float(xp.linalg.trace(MB))
    if sigma2 > 0:
        logdet = float(xp.linalg.slogdet(M).logabsdet) + (r - q) * math.log(sigma2)
        value = -0.5 * n * (r * (LOG_2PI + math.log(unit)) + logdet + left / sigma2)
    else:  # the leading term of the likelihood as σ² → 0
        value = -0.5 * n * max(left, 0.0)
    # W' = SW G⁻¹ with G = σ²I + M⁻¹B; transposed, since solve wants the matrix on the left.
    W_new = xp.linalg.solve((sigma2 * eye + MB).T, SW.T).T
    sigma2_new = (r - float(xp.sum(SW * xp.linalg.solve(M, W_new.T).T))) / r
    if expand:
        gamma = sigma2 * xp.linalg.inv(M) + xp.linalg.solve(M, MB.T).T
        W_new = W_new @ xp.linalg.cholesky((gamma + gamma.T) / 2)
    return root * W_new, unit * sigma2_new, value


def given_start(
    init: str | tuple[Array, float], shape: tuple[int, int], like: Array
) -> tuple[Array, float] | None:
    """Return loadings of this shape and the noise to start from; None where none are given."""
    if isinstance(init, str):
        return None
    W, sigma2 = np.asarray(backend.to_numpy(init[0])), float(init[1])
    if W.shape != shape or W.dtype.kind not in "fiu" or not np.isfinite(W).all():
        what = f"finite loadings of shape {shape}, a row for every feature, and a noise variance"
        raise ValueError(expected("init", what, W.shape if W.ndim else init[0]))
    return backend.working(backend.asarray(W, like)), sigma2


def breakdowns_told(q: int) -> AbstractContextManager[None]:
    """Say what a factorisation that fails in EM means."""
    return driver.if_singular(
        f"EM broke down: {q} components are more than the data have directions, and the noise "
        "vanished. Use fewer components, or give noise_variance > 0."
    )


def keeper_of(watch: driver.Watch | None, operator: LinearOperator) -> driver.Keeper:
    """Return what keeps the state of a fit to an operator over the features."""
    if watch is None:
        return driver.Keeper()
    return watch.over(operator.n, operator.frame.mean, operator.diag() / operator.n)


def em_of_operator(
    operator: Operator,
    q: int,
    n: float,
    rng: np.random.Generator,
    noise: float | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    *,
    start: tuple[Array, float] | None = None,
    accelerate: bool = True,
    watch: driver.Watch | None = None,
) -> tuple[Array, float, driver.Record]:
    """Fit PPCA by accelerated EM: loadings W (m, q) up to rotation, noise σ², and the record.

    A given `noise` stays fixed. `start` is (W, σ²); by default random loadings, and all variance
    as noise. Without `accelerate` the steps are those of plain EM, neither expanded nor
    extrapolated. Only an operator over the features can have a `watch`.
    """
    unit, like = operator.trace / n / operator.dim, operator.like
    if not unit > 0:
        raise DegenerateError(
            "the points have no variance, all of them are the same: there is nothing to model. "
            "Give points that differ."
        )
    square, least = (backend.asarray(np.array([value]), like) for value in (unit, rules.NO_NOISE))
    packing = driver.Packing(operator.shape[0], math.sqrt(unit), square, least)

    def pack(W: Array, sigma2: float) -> Array:
        fixed = sigma2 if noise is None else noise
        return packing.pack(W, backend.asarray(np.array([fixed]), like))

    def step(theta: Array) -> tuple[Array, float]:
        W, psi, _ = packing.unpack(theta, q)
        given = float(psi[0]) if noise is None else float(noise)
        with breakdowns_told(q):
            W, sigma2, value = ppca_step(operator, W, given, n, expand=accelerate)
        return pack(W, sigma2), value

    if start is None:
        start = math.sqrt(unit) * backend.normal(rng, (packing.d, q), like), unit
    keeper = keeper_of(watch, operator)  # type: ignore[arg-type]
    limits: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "accelerate": accelerate}
    theta, record = driver.maximize(step, pack(*start), keeper=keeper, **limits)
    if not record.interrupted:
        keeper.done()
    W, psi, _ = packing.unpack(theta, q)
    return W, float(psi[0]) if noise is None else float(noise), record
