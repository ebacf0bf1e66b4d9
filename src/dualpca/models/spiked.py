"""PCA and probabilistic PCA: the spiked Gaussian over the features, and the ways to fit it.

`SpikedModel` is the fitted model. `fit_pca` and `fit_ppca` make one of a table: in closed form from
the spectrum of its scatter, by EM on the same operator, or, where values are missing, by the EM
of `incomplete`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from dualpca.arrays import Array, algebra, backend, quadratic
from dualpca.data import Columns, InMemoryTable, Table, has_missing
from dualpca.errors import DegenerateError, ScaleError, expected
from dualpca.gaussian import (
    CROSS_VALIDATED,
    LEAST_NOISE,
    LOG_2PI,
    FactorMonitor,
    Factors,
    Monitor,
    Reference,
    Selection,
    SpikedGaussian,
    SpikedMonitor,
    all_latents,
    at_least_one,
    check_request,
    has_vanished,
    is_count,
    leading,
    residual_dof,
    spiked_gaussian,
)
from dualpca.gaussian import NO_NOISE as NO_NOISE
from dualpca.models.driver import History, Record, Watch, maximize
from dualpca.models.incomplete import fit_incomplete
from dualpca.models.selection import choose_bic, cross_validated
from dualpca.models.streaming import Stream
from dualpca.operators import (
    Frame,
    PartScatter,
    Primal,
    Scatter,
    Spectrum,
    complete,
    linear,
)
from dualpca.operators.base import Operator

LinearOperator = Primal | Scatter | PartScatter

NEGLIGIBLE_VARIANCE = 1e-10
"""Share of the largest variance below which another may be rounding error."""

ROUGH = 1e-3
"""Relative error that a variance may have in the dtype of the rows."""

ROUNDINGS = 64
"""Of the axes' dtype: a residual is seen where it is more than this many beside the row."""


# --- The model -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SpikedModel:
    """N(μ, Σ (ℓ − σ²) v vᵀ + σ²I) over the features, on its principal axes.

    Arrays have the dtype of the rows that were fitted; everything is computed in float64. Nothing
    d×d is formed but by `covariance` and `precision`.
    """

    mean: Annotated[Array, "d"]
    components: Annotated[Array, "q d"]  # v, orthonormal, largest variance first
    variances: Annotated[Array, "q"]  # ℓ
    ratios: Annotated[Array, "q"]  # shares of the variance
    noise: float  # σ²
    n_rows: int
    reference: Reference | None = None  # what control limits need to know of the training rows
    scale: Annotated[Array, "d"] | None = None  # of standardised features
    column_variances: Annotated[Array, "d"] | None = None
    history: History | None = None
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
        gaussian, mean = self.gaussian, backend.working(self.mean)
        psi = backend.asarray(np.full(gaussian.dim, gaussian.noise), mean)
        return Factors(self.axes * gaussian.spread, mean, psi)

    @property
    def loadings(self) -> Array:
        """W = V (L − σ²I)^{1/2}, (d, q)."""
        return backend.cast_like(self.axes * self.gaussian.spread, self.components)

    @property
    def n_components(self) -> int:
        """Q."""
        return int(self.components.shape[0])

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
        eps = float(np.finfo(np.float64).eps)
        floor = eps * float(xp.max(values)) * max(self.components.shape)
        return xp.sqrt(xp.where(values > floor, values, xp.zeros_like(values)))

    def coordinates(self, rows: Array) -> Array:
        """Return the projections on the axes, (n, q)."""
        return self.frame.coordinates(self.axes, rows)

    def whitened(self, rows: Array) -> Array:
        """Return coordinates over their standard deviations; 0 along what does not vary."""
        xp, deviations = backend.namespace(self.components), self.deviations
        positive = xp.where(deviations > 0, deviations, xp.ones_like(deviations))
        inverse = xp.where(deviations > 0, 1 / positive, xp.zeros_like(deviations))
        return self.coordinates(rows) * inverse

    def lifted(self, coordinates: Array) -> Array:
        """Return the rows on the span of the axes with these coordinates, (n, d)."""
        return self.frame.lift(self.axes, coordinates)

    def posterior(self, rows: Array) -> tuple[Array, Array | None]:
        """Return E[z | x], (n, q), and covariances (n, q, q) where rows have their own.

        Rows without missing values share σ²/ℓ, and None is returned for theirs.
        """
        Y = self.coordinates(rows)
        if not backend.all_finite(Y) and has_missing(rows):
            found = all_latents(self.factors, rows)
            return found.mean, found.covariance
        return self.gaussian.posterior_mean(Y), None

    def signal(self, rows: Array, spread: bool = False) -> tuple[Array, Array | None]:
        """Return the posterior mean of the noise-free signal, (n, d), and its deviation."""
        xp, factors = backend.namespace(rows), self.factors
        mean, own = self.posterior(rows)
        W = factors.W
        found = mean @ W.T + factors.mu
        if not spread:
            return found, None
        if own is not None:
            return found, xp.sqrt(quadratic(own, W))
        std = xp.sqrt((W * W) @ self.gaussian.posterior_variance)
        return found, xp.broadcast_to(std, tuple(found.shape))

    def log_density(self, rows: Array, *, missing: bool = True) -> Array:
        """Return ln p of every row, of what it observed where values are missing; O(dq) per row."""
        density = self.gaussian.log_density(*self.frame.project(self.axes, rows))
        if missing and not backend.all_finite(density) and has_missing(rows):
            return all_latents(self.factors, rows).log_density
        scale = self.frame.scale
        if scale is None:
            return density
        xp = backend.namespace(density)
        return density - xp.sum(xp.log(scale))

    def monitor(self, rows: Array | None = None) -> Monitor:
        """Return what judges rows by T² and SPE; complete ones by default."""
        reference = self.reference or Reference(self.n_rows, self.n_rows)
        if rows is not None and has_missing(rows):
            return FactorMonitor(self.factors, reference, float(self.noise))
        eps = float(backend.namespace(self.components).finfo(self.components.dtype).eps)
        return SpikedMonitor(self.gaussian, self.frame, self.axes, reference, ROUNDINGS * eps)

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
        V, scale = self.axes, self.frame.scale
        A = (V * spikes) @ V.T + floor * backend.asarray(np.eye(V.shape[0]), V)
        if scale is not None:
            unit = scale**power
            A = A * unit[:, None] * unit[None, :]
        return backend.cast_like(A, self.components)

    def sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Draw rows x = μ + V√(ℓ − σ²) z + σε, (n_samples, d)."""
        V, gaussian = self.axes, self.gaussian
        z = backend.normal(rng, (n_samples, gaussian.rank), V)
        noise = backend.normal(rng, (n_samples, gaussian.dim), V)
        centred = (z * gaussian.spread) @ V.T + gaussian.noise**0.5 * noise
        return backend.cast_like(self.frame.restore(centred), self.components)


def spiked_model(
    mean: Array,
    spectrum: Spectrum,
    gaussian: SpikedGaussian,
    like: Array,
    n_rows: int,
    reference: Reference,
    *,
    negligible: float = 0.0,
    scale: Array | None = None,
    **others: Any,
) -> SpikedModel:
    """Return the model of a spectrum and its Gaussian, in the dtype of `like`."""
    xp = backend.namespace(spectrum.values)
    ratio = spectrum.values / spectrum.trace if spectrum.trace > 0 else 0 * spectrum.values
    return SpikedModel(
        backend.cast_like(mean, like),
        backend.cast_like(xp.asarray(spectrum.vectors.T, copy=True), like),
        variances_like(gaussian.values, like, negligible),
        backend.cast_like(ratio, like),
        gaussian.noise,
        n_rows,
        reference,
        None if scale is None else backend.cast_like(scale, like),
        **others,
    )


def variances_like(values: Array, like: Array, negligible: float = 0.0) -> Array:
    """Return variances in the dtype of `like`, unless it would round them to nothing.

    Rows at 1e-23 are numbers of float32, and their squares are not. Those up to `negligible` of
    the largest may vanish: they are rounding errors of the others.
    """
    found, xp = backend.cast_like(values, like), backend.namespace(values)
    if found.dtype == values.dtype or values.shape[0] == 0:
        return found
    limits = xp.finfo(found.dtype)
    rough = float(limits.smallest_normal) * float(limits.eps) / ROUGH
    if bool(xp.any((values > negligible * xp.max(values)) & (values < rough))):
        raise ScaleError(
            f"a variance is below the range of {found.dtype}, the dtype of X. Multiply X by a "
            "constant, or pass it as float64."
        )
    return found


# --- PCA -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PCARequest:
    """What `fit_pca` needs to know, checked."""

    n_components: int | float | str | None
    solver: str = "auto"  # 'auto', or the name of an entry of `solvers.SOLVERS`
    tol: float = 0.0
    seed: Any = 0
    standardize: bool = False
    told_solver: str = "auto"  # the name that the user gave, for messages


CHUNKED_SOLVERS = ("auto", "dense", "krylov", "covariance_eigh", "arpack", "randomized")


def check_solver(table: Table, name: str) -> None:
    """Refuse a solver that needs all rows at once for a table in chunks."""
    if not isinstance(table, InMemoryTable) and name not in CHUNKED_SOLVERS:
        remedy = "The others need all rows in memory."
        raise ValueError(expected("the solver", f"one of {list(CHUNKED_SOLVERS)}", name, remedy))


def fit_pca(table: Table, request: PCARequest) -> SpikedModel:
    """Fit PCA to complete rows: the leading eigenpairs of their scatter."""
    check_solver(table, request.told_solver)
    operator, count = complete(table, standardize=request.standardize)
    check_request(request.n_components, count, table.d, request.told_solver)
    if request.n_components in CROSS_VALIDATED:
        name, most = str(request.n_components), min(count, table.d)
        chosen = cross_validated(name, table, most, missing=False).chosen
        request = replace(request, n_components=at_least_one(name, chosen))
    return pca_of_operator(operator, count, table.like, request)


def pca_of_operator(
    operator: LinearOperator, count: int, like: Array, request: PCARequest, **others: Any
) -> SpikedModel:
    """Fit PCA to an operator over the features, which stands for `count` rows."""
    wanted = request.n_components
    check_request(wanted, count, operator.dim, request.told_solver)
    refuse_cross_validation(wanted)
    options: dict[str, Any] = {"solver": request.solver, "tol": request.tol}
    options["seed"] = request.seed
    spectrum = leading(wanted, operator, count, **options)
    divisor = operator.n - 1
    if not divisor > 0:
        raise ValueError(
            f"sample_weight must sum to more than 1, got {operator.n:.6g}: it is the effective "
            "number of rows. Multiply the weights by the number of rows they stand for."
        )
    gaussian = spiked_gaussian(spectrum, divisor)
    reference = Reference(operator.n, divisor, residual_dof(operator, spectrum, operator.n))
    others |= {"negligible": NEGLIGIBLE_VARIANCE, "scale": operator.frame.scale}
    return spiked_model(operator.frame.mean, spectrum, gaussian, like, count, reference, **others)


def refuse_cross_validation(request: Any) -> None:
    """Refuse cross-validation where there are no rows to hold out."""
    if isinstance(request, str) and request in CROSS_VALIDATED:
        raise ValueError(
            f"n_components={request!r} needs dense rows, and partial_fit keeps none. "
            "Use a rule that reads the spectrum: 'evidence', 'bic', 'parallel'."
        )


# --- Probabilistic PCA ---------------------------------------------------------------------------


@dataclass(frozen=True)
class PPCARequest:
    """What `fit_ppca` needs to know, checked."""

    n_components: int | float | str | None
    noise: float | None = None  # σ², None for maximum likelihood
    method: str = "closed"  # or 'em'
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 1000
    rng: Any = 0  # seed or generator, for the start of EM and of block Krylov
    n_init: int = 1
    watch: Watch | None = None

    @property
    def start(self) -> np.random.Generator:
        """The generator that starts EM."""
        return np.random.default_rng(self.rng)


def fit_ppca(table: Table, request: PPCARequest) -> SpikedModel:
    """Fit probabilistic PCA by maximum likelihood (Tipping & Bishop 1999), NaN or not."""
    check_solver(table, request.solver)
    found = linear(table, missing=True)
    if isinstance(found, Columns):
        return fit_incomplete_ppca(table, found, request)
    selection = None
    if request.n_components in CROSS_VALIDATED:
        most = min(found.n_rows, table.d)
        q, selection = _cross_validated_count(table, request, most, missing=False)
        request = replace(request, n_components=q)
    model = ppca_of_operator(found.operator, found.n_rows, table.like, request)
    return model if selection is None else replace(model, selection=selection)


def ppca_of_operator(
    operator: LinearOperator, count: int, like: Array, request: PPCARequest
) -> SpikedModel:
    """Fit probabilistic PCA to an operator over the features, which stands for `count` rows."""
    if request.method == "em":
        spectrum, gaussian, record = _by_em(operator, count, request)
    else:
        spectrum, gaussian = _in_closed_form(operator, count, request)
        gaussian.require_density()
        value = gaussian.loglikelihood(operator.n, spectrum.trace)
        spectrum, record = spectrum.head(gaussian.rank), Record([value], 1, True)
    reference, history = Reference(operator.n, operator.n), History.of(record)
    mean = operator.frame.mean
    return spiked_model(mean, spectrum, gaussian, like, count, reference, history=history)


def _in_closed_form(
    operator: LinearOperator, count: int, request: PPCARequest
) -> tuple[Spectrum, SpikedGaussian]:
    """Return the leading eigenpairs, all that can matter, and the Gaussian that they give."""
    wanted, noise, n = request.n_components, request.noise, operator.n
    if wanted is None and noise is None:
        wanted = "evidence"
    check_request(wanted, count, operator.dim, request.solver)
    refuse_cross_validation(wanted)
    bounded = wanted
    if wanted is None and noise is not None:  # at most tr/(nσ²) variances can exceed σ²
        bounded = int(min(count, operator.dim, max(operator.trace / (n * float(noise)), 1.0)))
    spectrum = leading(bounded, operator, count, solver=request.solver, seed=request.rng)
    q = None if wanted is None else spectrum.rank
    return spectrum, spiked_gaussian(spectrum, n, noise=noise, q=q)


def _by_em(
    operator: LinearOperator, count: int, request: PPCARequest
) -> tuple[Spectrum, SpikedGaussian, Record]:
    """Fit by EM on the operator, then rotate to principal axes."""
    check_request(request.n_components, count, operator.dim, request.solver)
    n, noise = operator.n, request.noise
    if is_count(request.n_components):
        q = at_least_one_factor(request.n_components)
    else:
        q = _in_closed_form(operator, count, request)[1].rank
    options: dict[str, Any] = {"tol": request.tol, "max_iter": request.max_iter}
    options["watch"] = request.watch
    W, sigma2, record = em_of_operator(operator, q, n, request.start, noise, **options)
    record.add(ppca_step(operator, W, sigma2, n)[2])
    unit = operator.trace / n / operator.dim
    vanished = noise is None and has_vanished(sigma2, unit, NO_NOISE)
    return *principal_axes(W, sigma2, operator.trace / n, vanished), record


def principal_axes(
    W: Array, sigma2: float, total: float, vanished: bool = False
) -> tuple[Spectrum, SpikedGaussian]:
    """Rotate loadings to principal axes; a noise that vanished is 0, and no density is left."""
    d = int(W.shape[0])
    U, s, _ = algebra.svd(W)
    gaussian = SpikedGaussian(s**2 + sigma2, 0.0 if vanished else sigma2, d)
    gaussian.require_density()
    return Spectrum.of(gaussian.values, U, total, d), gaussian


def at_least_one_factor(q: Any) -> int:
    """Return q, which EM cannot do without."""
    if q < 1:
        what = "at least 1 with method='em' or missing values"
        raise ValueError(expected("n_components", what, q))
    return int(q)


# --- Missing values, and streams -----------------------------------------------------------------


def fit_incomplete_ppca(table: Table, columns: Columns, request: PPCARequest) -> SpikedModel:
    """Fit rows with missing values by the exact likelihood of what was observed."""
    q, selection = _count_with_missing(table, columns.rows, request)
    options: dict[str, Any] = {"tol": request.tol, "max_iter": request.max_iter}
    options |= {"noise": request.noise, "n_init": request.n_init, "watch": request.watch}
    factors, record = fit_incomplete(table, q, request.start, columns=columns, **options)
    history, n = History.of(record), columns.effective_rows
    model = model_of_factors(factors, columns.used, n, request.noise, table.like, history)
    return model if selection is None else replace(model, selection=selection)


def model_of_factors(
    factors: Factors, count: int, n: float, noise: float | None, like: Array, history: History
) -> SpikedModel:
    """Return factors of equal noise as a model on their principal axes.

    `count` is the number of rows, `n` the effective one: less than that by what is missing.
    """
    d, sigma2 = int(factors.W.shape[0]), float(factors.psi[0])
    total = float(backend.namespace(factors.W).sum(factors.W * factors.W)) + d * sigma2
    if noise is None and has_vanished(sigma2, total / d):
        raise DegenerateError(
            f"the noise of {factors.W.shape[1]} components fell below {10 * LEAST_NOISE:g} of the "
            "average variance: where values are missing, that cannot be told from no noise at all. "
            "Use fewer components, or give noise_variance."
        )
    spectrum, gaussian = principal_axes(factors.W, sigma2, total)
    reference = Reference(n, n)
    return spiked_model(factors.mu, spectrum, gaussian, like, count, reference, history=history)


def _count_with_missing(
    table: Table, rows: int, request: PPCARequest
) -> tuple[int, Selection | None]:
    """Return q: given, by BIC, or the one that best predicts what was hidden."""
    wanted, most = request.n_components, min(rows, table.d) - 1
    if wanted in CROSS_VALIDATED:
        return _cross_validated_count(table, request, most, missing=True)
    if is_count(wanted):
        check_request(wanted, rows, table.d, request.solver)
        return at_least_one_factor(wanted), None
    if wanted == "bic":
        return at_least_one("bic", choose_bic(table, most)), None
    what = f"an int, 'bic' or one of {list(CROSS_VALIDATED)} where values are missing"
    remedy = "Other rules read the spectrum of complete rows."
    raise ValueError(expected("n_components", what, wanted, remedy))


def _cross_validated_count(
    table: Table, request: PPCARequest, most: int, *, missing: bool
) -> tuple[int, Selection]:
    name = str(request.n_components)
    selection = cross_validated(name, table, most, missing=missing)
    return at_least_one(name, selection.chosen), selection


def open_stream(state: Any, request: PPCARequest) -> Stream:
    """Return the stream that accepts incomplete chunks, with the moments of complete ones in it."""
    if not is_count(request.n_components):
        what = "an int where partial_fit meets missing values: rows are not kept for a rule"
        raise ValueError(expected("n_components", what, request.n_components))
    q = at_least_one_factor(request.n_components)
    if not isinstance(state, Stream):
        return Stream(q, request.noise, request.tol, request.max_iter, state)
    if q != state.q:
        what = f"{state.q}, as when the stream began"
        raise ValueError(expected("n_components", what, q, "Give all chunks to a new model."))
    return state


def ppca_of_stream(state: Any, count: int, like: Array, request: PPCARequest) -> SpikedModel:
    """Fit what a stream remembers; rows that still wait are counted in, the stream is as before."""
    if isinstance(state, Stream) and state.running is None and state.rows is None:
        state = state.moments
    if not isinstance(state, Stream):
        return ppca_of_operator(Scatter(state), count, like, request)
    check_request(request.n_components, count, int(like.shape[1]), request.solver)
    factors, record = state.settle(request.start).model()
    history = History.of(record, endless=True)
    return model_of_factors(factors, count, float(count), request.noise, like, history)


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
        Of the parameters given, not of the ones returned.
    """
    unit = operator.trace / n / operator.dim  # WᵀSW is of fourth order, and would overflow
    W, sigma2, value = _unit_step(operator, W / math.sqrt(unit), sigma2 / unit, n, unit, expand)
    return math.sqrt(unit) * W, unit * sigma2, value


def _unit_step(
    operator: Operator, W: Array, sigma2: float, n: float, unit: float, expand: bool
) -> tuple[Array, float, float]:
    """Take the step in units of the average variance, in which tr S = r."""
    xp, q, r = backend.namespace(W), W.shape[1], operator.dim
    SW = (operator @ W) / n / unit
    eye = backend.asarray(np.eye(q), W)
    M, B = W.T @ W + sigma2 * eye, W.T @ SW
    MB = xp.linalg.solve(M, B)
    value = _loglikelihood(M, float(xp.linalg.trace(MB)), sigma2, n, r, unit)
    # W' = SW G⁻¹ with G = σ²I + M⁻¹B; transposed, since solve wants the matrix on the left.
    W_new = xp.linalg.solve((sigma2 * eye + MB).T, SW.T).T
    sigma2_new = (r - float(xp.sum(SW * xp.linalg.solve(M, W_new.T).T))) / r
    if expand:
        gamma = sigma2 * xp.linalg.inv(M) + xp.linalg.solve(M, MB.T).T
        W_new = W_new @ xp.linalg.cholesky((gamma + gamma.T) / 2)
    return W_new, sigma2_new, value


def _loglikelihood(M: Array, fitted: float, sigma2: float, n: float, r: int, unit: float) -> float:
    """Return the log-likelihood of n points by Woodbury: ln|C| and tr(C⁻¹S) from q×q matrices."""
    xp = backend.namespace(M)
    logdet = float(xp.linalg.slogdet(M).logabsdet) + (r - M.shape[0]) * math.log(sigma2)
    constant = r * (LOG_2PI + math.log(unit))
    return float(-0.5 * n * (constant + logdet + (r - fitted) / sigma2))


@contextmanager
def breakdowns_told(q: int) -> Iterator[None]:
    """Say what a factorisation that fails in EM means."""
    try:
        yield
    except Exception as error:
        if not backend.is_linalg_error(error):
            raise
        raise DegenerateError(
            f"EM broke down: {q} components are more than the data have directions, and the noise "
            "vanished. Use fewer components, or give noise_variance > 0."
        ) from error


class _Map:
    """The EM map on vectors θ = (W, ln σ²), W in units of the average standard deviation.

    In these units steps in both compare. A given `noise` stays fixed.
    """

    def __init__(
        self, operator: Operator, q: int, n: float, noise: float | None, expand: bool
    ) -> None:
        self.operator, self.q, self.n, self.noise, self.expand = operator, q, n, noise, expand
        self.m, self.unit = operator.shape[0], operator.trace / n / operator.dim
        if not self.unit > 0:
            raise DegenerateError(
                "the points have no variance, all of them are the same: there is nothing to model. "
                "Give points that differ."
            )

    def pack(self, W: Array, sigma2: float) -> Array:
        """Return θ of loadings and noise in these units; the noise never vanishes."""
        xp = backend.namespace(W)
        tail = backend.asarray(np.array([math.log(max(sigma2, NO_NOISE))]), self.operator.like)
        return xp.concat([xp.reshape(W, (-1,)), tail])

    def unpack(self, theta: Array) -> tuple[Array, float]:
        """Return W and σ² in the units of the data."""
        W = backend.namespace(theta).reshape(theta[:-1], (self.m, self.q))
        sigma2 = max(math.exp(min(float(theta[-1]), 50.0)), NO_NOISE)
        return math.sqrt(self.unit) * W, sigma2 * self.unit

    def begin(self, start: tuple[Array, float] | None, rng: np.random.Generator) -> Array:
        """Return θ to start from: random loadings and all variance as noise by default."""
        if start is None:
            W, sigma2 = backend.normal(rng, (self.m, self.q), self.operator.like), self.unit
        else:
            W, sigma2 = start[0] / math.sqrt(self.unit), start[1]
        return self.pack(W, (sigma2 if self.noise is None else self.noise) / self.unit)

    def step(self, theta: Array) -> tuple[Array, float]:
        """Take one EM step; return it with the log-likelihood of θ."""
        W, sigma2 = self.unpack(theta)
        with breakdowns_told(self.q):
            W, moved, value = ppca_step(self.operator, W, sigma2, self.n, expand=self.expand)
        moved = moved if self.noise is None else sigma2
        return self.pack(W / math.sqrt(self.unit), moved / self.unit), value


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
    watch: Watch | None = None,
) -> tuple[Array, float, Record]:
    """Fit PPCA by accelerated EM: loadings W (m, q) up to rotation, noise σ², and the record.

    A given `noise` stays fixed. `start` is (W, σ²), random by default; without `accelerate` the
    steps are those of plain EM, neither expanded nor extrapolated.
    """
    fit, keeper = _Map(operator, q, n, noise, accelerate), None
    if watch is not None:
        keeper = watch.over(n, operator.frame.mean, operator.diag() / n)  # type: ignore[attr-defined]
    limits: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "accelerate": accelerate}
    theta, record = maximize(fit.step, fit.begin(start, rng), keeper=keeper, **limits)
    if keeper is not None and not record.interrupted:
        keeper.done()
    return *fit.unpack(theta), record
