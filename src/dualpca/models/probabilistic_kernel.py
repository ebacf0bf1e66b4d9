"""Probabilistic kernel PCA: feature dimensions as observations; principal coordinates.

Column j of the (n, ρ) matrix of features is one observation of an n-vector, g = Bw + u1 + ε with
w ~ N(0, n/ρ I) and ε ~ N(0, n/ρ diag ψ) (Zhang et al. 2004; theory 9). Their scatter is the centred
kernel, so ρ cancels: C = BBᵀ + diag ψ is fitted to Kc/n, and row i of B is the coordinate of
point i. A mixture over feature dimensions is `MixturePPCA` of explicit features (theory 6.3).

Read `Correction` (distances as kernels), `FeatureScatter` (the centred kernel that is fitted),
`Placement` (where new points go), `ProbabilisticKernelModel` and `fit_probabilistic_kernel`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from scipy.linalg import helmert
from scipy.spatial.distance import cdist

from dualpca.arrays import EPS, Array, algebra, backend, outer
from dualpca.data import Host, InMemoryTable
from dualpca.errors import (
    DualPCAError,
    HeywoodWarning,
    NonFiniteError,
    SpectrumWarning,
    expected,
    warn,
)
from dualpca.gaussian import (
    LOG_2PI,
    VARIANCE_ROUNDING,
    SpikedGaussian,
    angles,
    at_least_one,
    fit_relevance,
    free_factors,
    free_parameters,
    is_count,
    is_share,
    leading,
    log_wishart,
    selection,
    spiked_gaussian,
)
from dualpca.kernels import Kernel, Precomputed, feature_map
from dualpca.models.driver import History, Record
from dualpca.models.factor import fit_factors
from dualpca.models.kernel import KernelChoice, check_variance, em_of_kernel, is_precomputed
from dualpca.operators import (
    Dual,
    Frame,
    Given,
    Gram,
    Primal,
    Spectrum,
    Subspace,
    negatives_of,
)
from dualpca.solvers import KernelOptions, gram_of, solve

Metric = str | Callable[[Host, Host], float]
"""How distances are measured: a name or function of scipy's cdist."""

Seed = int | np.random.Generator

# --- From distances to kernels: principal coordinates, and what to do if they are not Euclidean --

DISTANCE_ASYMMETRY = 1e-8
"""Largest |D − Dᵀ|, and diagonal, that counts as rounding, relative to the largest entry."""

SAME_ITEM = 1e-12
"""Share of an item's largest distance below which another item is the same."""


@dataclass(frozen=True)
class Correction:
    """A constant that makes distances Euclidean.

    Parameters
    ----------
    kind : {None, 'lingoes', 'cailliez'}
        d' = √(d² + 2c) or d' = d + c for different items; None leaves them as they are.
    constant : float
        c ≥ 0; 0 where the distances are Euclidean already.

    Examples
    --------
    >>> import numpy as np
    >>> D = np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 1.0], [3.0, 1.0, 0.0]])  # 3 > 1 + 1
    >>> Correction.of(D, "cailliez").constant
    1.0
    """

    kind: str | None = None
    constant: float = 0.0

    @classmethod
    def of(cls, D: Array, kind: str | None) -> Correction:
        """Return the smallest constant of this kind that makes D Euclidean; O(n³)."""
        if kind is None:
            return cls()
        if kind not in CONSTANTS:
            raise ValueError(expected("correction", f"None or one of {list(CONSTANTS)}", kind))
        return cls(kind, CONSTANTS[kind](backend.to_numpy(backend.working(D))))

    def kernel(self, D: Array, *, training: bool = False) -> Array:
        """Return −½d'² with d' the corrected distances, (m, n): a kernel, once it is centred.

        Parameters
        ----------
        D : array of shape (m, n)
            Distances of m items from the n training items. An item at distance 0 is that training
            item, and keeps the distance; of k such training items it is each with probability 1/k.
            Distances below 1e-12 of the largest are 0.
        training : bool
            The m items are the training items, in order: all but the diagonal is corrected.
        """
        D = backend.working(D)
        if self.constant == 0:
            return -0.5 * D * D
        xp, c = backend.namespace(D), self.constant
        if training:
            share = backend.identity(int(D.shape[0]), D)
        else:
            same = xp.astype(D <= SAME_ITEM * xp.max(D, axis=1)[:, None], xp.float64)
            ties = xp.sum(same, axis=1)[:, None]
            share = same / xp.where(ties > 0, ties, xp.ones_like(ties))
        squares = D * D + 2 * c if self.kind == "lingoes" else (D + c) ** 2
        return -0.5 * squares * (1 - share)


def lingoes_constant(D: Host) -> float:
    """Return c = −λ_min(−½ H D² H), at least 0: with √(d² + 2c) every eigenvalue rises by c.

    Lingoes (1971), Some boundary conditions for a monotone analysis of symmetric matrices.
    """
    excess = float(-np.linalg.eigvalsh(_centred(-0.5 * D * D))[0])
    rounding = 10 * len(D) * EPS * float((D * D).max(initial=0.0))
    return excess if excess > rounding else 0.0


def cailliez_constant(D: Host) -> float:
    """Return the smallest c ≥ 0 for which d + c is Euclidean.

    The largest real eigenvalue of [[0, 2A], [−I, −4B]] with A = −½ H D² H and B = −½ H D H
    (Cailliez 1983, The analytical solution of the additive constant problem). O((2n)³).
    """
    if lingoes_constant(D) == 0:
        return 0.0
    A, B = _centred(-0.5 * D * D), _centred(-0.5 * D)
    zero, one = np.zeros_like(A), np.eye(len(A))
    values = np.linalg.eigvals(np.block([[zero, 2 * A], [-one, -4 * B]]))
    real = values.real[np.abs(values.imag) <= 1e-8 * np.abs(values).max()]
    return max(float(real.max()), 0.0)


def _centred(A: Host) -> Host:
    means = A.mean(axis=0)
    return np.asarray(A - means[None, :] - means[:, None] + means.mean())


CONSTANTS = {"lingoes": lingoes_constant, "cailliez": cailliez_constant}


def distances(X: Array, Y: Array, metric: Metric) -> Array:
    """Return distances of rows from rows, (m, n), found on the host; X if it holds them."""
    if is_precomputed(metric):
        return X
    try:
        D = cdist(backend.to_numpy(X), backend.to_numpy(Y), metric)  # type: ignore[arg-type]
    except ValueError as error:
        if "nknown" not in str(error):
            raise
        what = "None, 'precomputed', or a name that scipy's cdist accepts"
        raise ValueError(expected("metric", what, metric)) from error
    if X is Y:
        np.fill_diagonal(D, 0.0)
    return backend.asarray(D, X)


def check_distances(D: Array) -> Array:
    """Return a matrix of distances between the training items: square, symmetric, from 0."""
    xp, n = backend.namespace(D), int(D.shape[0])
    if D.shape[1] != n:
        what = "a square matrix of distances, (n, n), with metric='precomputed'"
        raise ValueError(expected("X", what, tuple(D.shape)))
    check_new_distances(D)
    slack = DISTANCE_ASYMMETRY * float(xp.max(D))
    i, j = _largest(xp.abs(D - D.T))
    if abs(float(D[i, j]) - float(D[j, i])) > slack:
        raise ValueError(
            f"X must be a symmetric matrix of distances, got X[{i}, {j}] = {float(D[i, j]):g} and "
            f"X[{j}, {i}] = {float(D[j, i]):g}. If they should be equal, give (X + X.T) / 2."
        )
    i = int(xp.argmax(xp.linalg.diagonal(D)))
    if float(D[i, i]) > slack:
        raise ValueError(
            f"X must have zeros on its diagonal, got X[{i}, {i}] = {float(D[i, i]):g}. "
            "Similarities are no distances: give them with kernel='precomputed'."
        )
    return D


def check_new_distances(D: Array) -> None:
    """Refuse distances that are negative or not finite."""
    xp = backend.namespace(D)
    if not bool(xp.all(xp.isfinite(D))):
        raise NonFiniteError("X must hold finite distances, got NaN or infinity. Drop those items.")
    if D.shape[0] and float(xp.min(D)) < 0:
        i, j = _largest(-D)
        raise ValueError(
            "Negative values in data passed to a model of distances: "
            + expected("X", "from 0", float(D[i, j]), "For kernels, kernel='precomputed'.")
        )


def _largest(A: Array) -> tuple[int, int]:
    """Return row and column of the largest entry."""
    return divmod(int(backend.namespace(A).argmax(A)), int(A.shape[1]))


# --- What is fitted: items, compared by a kernel or by distances ---------------------------------

NEGATIVE_SHARE = 1e-10
"""Share of negative eigenvalues, in magnitude, that is more than rounding error."""

INDEFINITE = "kernel is indefinite", "Use a positive semi-definite kernel if they matter."
NOT_EUCLIDEAN = (
    "distances are not Euclidean",
    "correction='lingoes' or 'cailliez' adds the least constant that leaves none.",
)


class FeatureScatter(Dual):
    """The centred kernel as the scatter of feature dimensions, whose means u are taken out.

    Parameters
    ----------
    gram : Gram
    points : array
        Training items as given: points (n, d), other items (n,), kernel values or distances (n, n).
    correction : Correction or None
        Of distances, where these compare the items.
    pairwise : bool
        The points are kernel values or distances, not inputs.
    """

    def __init__(
        self, gram: Gram, points: Array, correction: Correction | None, pairwise: bool
    ) -> None:
        super().__init__(gram)
        self.points, self.correction, self.pairwise = points, correction, pairwise

    @classmethod
    def of(
        cls,
        rows: Array,
        choice: KernelChoice,
        metric: Metric | None = None,
        correction: str | None = None,
        memory_limit: float = math.inf,
    ) -> FeatureScatter:
        """Return the centred kernel of a copy of the rows, or that of their distances.

        Distances become the kernel −½d² with k(x, x) = 0; centring does the rest. The kernel is
        stored where the memory limit (bytes) allows it.
        """
        pairwise = is_precomputed(choice.kernel) or is_precomputed(metric)
        points = values = rows if pairwise else backend.copied(rows)
        if metric is None:
            kernel, found = choice.resolved(points), None
        else:
            D = check_distances(distances(points, points, metric))
            kernel, found = Precomputed(diagonal=0.0), Correction.of(D, correction)
            values = found.kernel(D, training=True)
        how = KernelOptions(dtype="float64", memory_limit=memory_limit)
        return cls(gram_of(values, kernel, how), points, found, pairwise)

    @property
    def frame(self) -> Frame:
        """The origin: 0."""
        return Frame(backend.asarray(np.zeros(self.shape[0]), self.like))

    def definite_part(self, seed: Seed) -> tuple[FeatureScatter, float]:
        """Return the kernel without its negative eigenvalues, and what share of all they were.

        O(n³) and an n×n array, for kernels that are not known to be positive semi-definite. What
        the rounding of values in the dtype of the points may have caused counts as none.
        """
        if self.gram.kernel.definite:
            return self, 0.0
        xp, like = backend.namespace(self.like), backend.vector_like(self.points)
        size = float(xp.sum(abs(self.gram.diag()))) + self.n * abs(self.grand_mean)
        rounding = float(xp.finfo(like.dtype).eps) * math.sqrt(self.shape[0]) * size / self.trace
        negative, total, _ = negatives_of(self, np.random.default_rng(seed))
        if negative <= max(NEGATIVE_SHARE, rounding) * total:
            return self, 0.0
        values, vectors = algebra.top_eigh(self.dense(), self.shape[0])
        kept = xp.where(values < 0, 0 * values, values)
        gram = Given((vectors * kept) @ vectors.T, Precomputed())
        found = FeatureScatter(gram, self.points, self.correction, self.pairwise)
        return found, negative / total

    def fitted_part(self, seed: Seed) -> FeatureScatter:
        """Return the part that models are fitted to.

        Items that are all alike are refused. There is a warning where they hardly differ, and where
        negative eigenvalues are left out.
        """
        check_variance(self)
        operator, share = self.definite_part(seed)
        if share > 0:
            what, remedy = INDEFINITE if self.correction is None else NOT_EUCLIDEAN
            text = f"the {what}: negative eigenvalues are {share:.2%} of all in magnitude. "
            warn(f"{text}They are left out. {remedy}", SpectrumWarning)
        return operator


# --- Where a new point goes ----------------------------------------------------------------------

ROUNDED_NOISE = 1e-9
"""Share of the numbers that a noise is the difference of, below which a negative one is 0."""


@dataclass(frozen=True)
class Placement:
    """How a point gets its coordinate: b(x) = Pᵀkc(x).

    The M step of EM is a regression of every row of features on the latents w (Zhang et al. 2004,
    Eq. 16). A new point is one more row: b(x) = ⟨WWᵀ⟩⁻¹⟨W⟩(f(x) − f̄), with ⟨W⟩ and ⟨WWᵀ⟩ = nG of
    the training points. nψ(x) = ‖f(x) − f̄‖² − n b(x)ᵀG b(x), the noise that is the point's own, is
    what the M step would give it (Eq. 17). At the maximum G = I, and the noises of the training
    points have the mean σ².

    Parameters
    ----------
    weights : array of shape (n, q)
        P = βᵀG⁻¹/n with β = (I + BᵀΨ⁻¹B)⁻¹BᵀΨ⁻¹.
    moment : array of shape (q, q)
        G = ⟨WWᵀ⟩/n = (I + BᵀΨ⁻¹B)⁻¹ + βKcβᵀ/n.
    """

    weights: Annotated[Array, "n q"]
    moment: Annotated[Array, "q q"]

    @classmethod
    def of_factors(cls, operator: Dual, B: Array, psi: Array) -> Placement:
        """Return the regression that one EM step from (B, ψ) makes; one product with the kernel."""
        xp, n = backend.namespace(B), operator.n
        scaled = B / psi[:, None]
        inverse = xp.linalg.inv(B.T @ scaled + backend.identity(int(B.shape[1]), B))
        beta = scaled @ inverse  # (n, q), βᵀ
        moment = inverse + beta.T @ (operator @ beta) / n
        moment = (moment + moment.T) / 2
        return cls(xp.linalg.solve(moment, beta.T).T / n, moment)

    def subspace(self, source: Dual) -> Subspace:
        """Return P as an expansion over the points, centred with the training means."""
        one = backend.asarray(np.ones(self.weights.shape[1]), self.weights)
        span = source.subspace(Spectrum(one, self.weights, source.trace, source.dim))
        if isinstance(span.kernel, Precomputed):  # its n×n points say no more than their number
            span = replace(span, points=backend.empty((source.shape[0], 0), one))
        return span


# --- The model -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProbabilisticKernelModel:
    """C = BBᵀ + diag ψ over the training points; a feature dimension is N(u1, n/ρ C).

    Methods accept what the kernel is evaluated on: points, or rows of kernel values.
    """

    coordinates: Annotated[Array, "n q"]  # B
    variances: Annotated[Array, "q", ">= 0"]
    ratios: Annotated[Array, "q", "or nan"]  # shares of tr Kc/n
    psi: Annotated[Array, "n", ">= 0"]  # in float64
    placement: Annotated[Placement, "n q"]
    subspace: Annotated[Subspace, "q"]  # the weights of `placement` as an expansion over the points
    kernel: Kernel
    points: Annotated[Array, "points n p"]  # the training points, kernel values or distances
    correction: Correction  # of distances
    heywood: tuple[int, ...] | None = None  # points held at the least noise, if each has its own
    history: History | None = None
    em_coordinates: Annotated[Array, "n q"] | None = None  # B where EM ended, before it was turned

    @property
    def n_rows(self) -> int:
        """Number of training points."""
        return int(self.coordinates.shape[0])

    @property
    def n_components(self) -> int:
        """Number of coordinates, q."""
        return int(self.coordinates.shape[1])

    def n_parameters(self, *, fixed_noise: bool = False) -> int:
        """Return the number of free parameters of C: nq − q(q − 1)/2, and the noise.

        The means u, one per feature dimension, are not counted: ρ need not be known.
        """
        n, q = self.n_rows, self.n_components
        if self.heywood is not None:
            return free_factors(q, n)
        return free_parameters(q, n) - (1 if fixed_noise else 0)

    def latents(self) -> tuple[Array, Array]:
        """Return β, (q, n), with E[W | F] = β(F − 1uᵀ), and ρ/n times the covariance of a column.

        β = (I + BᵀΨ⁻¹B)⁻¹BᵀΨ⁻¹, and (I + BᵀΨ⁻¹B)⁻¹ = σ²D⁻¹ where all ψ are σ² (theory 9.3;
        Zhang et al. 2004, Eq. 13).
        """
        B = backend.working(self.coordinates)
        scaled = B / self.psi[:, None]
        xp, eye = backend.namespace(B), backend.identity(self.n_components, B)
        inverse = xp.linalg.inv(B.T @ scaled + eye)
        return inverse @ scaled.T, (inverse + inverse.T) / 2

    @property
    def noise(self) -> float | Array:
        """σ², or ψ of every point where each has its own."""
        if self.heywood is None:
            return float(self.psi[0])
        return backend.cast_like(self.psi, self.coordinates)

    @property
    def eigenvalues(self) -> Array | None:
        """The variances where they are eigenvalues of Kc/n: where all points share one noise."""
        return self.variances if self.heywood is None else None

    def placed(self, values: Array, diagonal: Array | None = None) -> tuple[Array, Array]:
        """Return b(x), (m, q), and the noise ψ(x) that is a point's own, (m,), never negative.

        Where distances are not Euclidean it can be negative beyond rounding, as if the place were
        known exactly: the average over the training points replaces it then.
        `diagonal` is k(x, x), (m,), for kernels that cannot tell.
        """
        over, n, xp = self.subspace, self.n_rows, backend.namespace(self.psi)
        both = over.kernel_times(values, xp.concat([over.coefficients, over.base[:, None]], axis=1))
        b = both[:, :-1] - over.tilt
        if diagonal is None:
            diagonal = backend.working(over.kernel.diag(backend.points(values)))
        known = xp.sum((b @ self.placement.moment) * b, axis=1)
        noise = (diagonal - 2 * both[:, -1] + over.offset) / n - known
        size = (xp.abs(diagonal) + xp.abs(over.offset + 0 * diagonal)) / n + known
        instead = xp.where(noise < -ROUNDED_NOISE * size, xp.mean(self.psi) + 0 * noise, 0 * noise)
        return b, xp.where(noise < 0, instead, noise)

    def posterior(
        self, values: Array, rho: float, diagonal: Array | None = None, *, fixed: bool = False
    ) -> tuple[Array, Array]:
        """Return b(x), (m, q), and its covariance, (m, q, q).

        With R = ⟨W⟩⟨W⟩ᵀ/n, the share of the latents that the training points reveal (u/ℓ on its
        diagonal, at the maximum):

        - noise, ψ(x)/(ρ − q) · R⁻¹: a regression on latents that are known in part;
        - shrinkage, ccᵀ with c = (R⁻¹G − I) b(x): what b(x) of a point outside the fit lacks;
        - the map's own error unless it counts as `fixed`: axes i and k turn by an angle of
          variance ℓ_iℓ_k/(ρ(ℓ_i − ℓ_k)²), lengths change by a factor of variance ℓ²/(2ρu²)
          (Anderson 1963, for ρ observations of n variables).
        """
        b, noise = self.placed(values, diagonal)
        xp, q = backend.namespace(b), self.n_components
        eye, B = backend.identity(q, b), backend.working(self.coordinates)
        moment = self.placement.moment
        known = xp.linalg.inv(moment - self.latents()[1] + EPS * eye)
        lacking = b @ (known @ moment - eye).T
        own = noise / max(rho - q, 1.0)
        covariance = own[:, None, None] * ((known + known.T) / 2)[None, :, :] + outer(lacking)
        if fixed:
            return b, covariance
        u = xp.sum(B * B / self.psi[:, None], axis=0)  # lengths in units of the noise
        u = xp.where(u > EPS, u, 0 * u + EPS)
        turn = angles(u + 1, rho) ** 2
        turned = ((b * b / u) @ turn) * u
        grown = b * b * ((u + 1) / u) ** 2 / (2 * rho)
        along = (turned + grown)[:, :, None] * eye[None, :, :]
        return b, covariance + along - outer(b) * turn[None, :, :]

    def covariance(self) -> Array:
        """Return C, (n, n)."""
        B = backend.working(self.coordinates)
        C = B @ B.T + self.psi * backend.identity(self.n_rows, B)
        return backend.cast_like(C, self.coordinates)

    def log_wishart(self, K: Array, rho: float) -> float:
        """Return the log-density of a kernel over the training points, off the direction 1."""
        n = self.n_rows
        Q = backend.asarray(helmert(n), self.psi)
        C = Q @ backend.working(self.covariance()) @ Q.T
        return log_wishart(Q @ backend.working(K) @ Q.T, n / rho * C, rho)

    def sample_kernel(self, rho: int, rng: np.random.Generator) -> Array:
        """Draw HFFᵀH with F = BW + E, ρ feature dimensions of covariance n/ρ C, (n, n)."""
        B = backend.working(self.coordinates)
        xp = backend.namespace(B)
        W = backend.normal(rng, (self.n_components, rho), B)
        E = backend.normal(rng, (self.n_rows, rho), B)
        F = (B @ W + xp.sqrt(self.psi)[:, None] * E) * (self.n_rows / rho) ** 0.5
        F = F - xp.mean(F, axis=0)
        return backend.cast_like(F @ F.T, self.coordinates)


# --- Fitting -------------------------------------------------------------------------------------

LEAST_POINT_NOISE = 1e-4
"""Smallest noise of a point, as a share of its variance, where every point has its own."""


@dataclass(frozen=True)
class ProbabilisticKernelRequest:
    """What `fit_probabilistic_kernel` needs to know, checked."""

    n_components: int | float | str | None
    kernel: KernelChoice
    metric: Metric | None = None  # distances in place of a kernel
    correction: str | None = None  # of distances
    noise: str = "isotropic"  # or 'diagonal', one for every point
    noise_variance: float | None = None  # σ², None for maximum likelihood
    method: str = "ml"  # or 'em'
    feature_dim: float | None = None  # ρ, where it is known
    init: str | Array = "auto"  # 'auto', 'pca', 'random' or coordinates, for EM
    accelerate: bool = True
    tol: float = 1e-6
    max_iter: int = 1000
    eigen_solver: str = "auto"
    seed: Seed = 0
    memory_limit: float = math.inf  # bytes, for a stored kernel


def fit_probabilistic_kernel(
    table: InMemoryTable, request: ProbabilisticKernelRequest
) -> ProbabilisticKernelModel:
    """Fit probabilistic kernel PCA by maximum likelihood.

    In closed form (theory 9.1), by EM (theory 9.2; Zhang et al. 2004, Eqs. 18 and 19), or with a
    noise for every point, which is kernel factor analysis.
    """
    _check_count(request, int(table.rows.shape[0]))
    about = (request.kernel, request.metric, request.correction, request.memory_limit)
    source = FeatureScatter.of(table.rows, *about)
    operator = source.fitted_part(request.seed)
    n, order, rho = operator.n, operator.shape[0], request.feature_dim
    like = backend.vector_like(source.points)
    limits = (request.tol, request.max_iter)
    placement = heywood = raw = None
    if request.noise == "diagonal":
        q, em = _count(operator, request), request.method == "em"
        factors, record = fit_factors(operator, q, LEAST_POINT_NOISE, None, *limits, em=em)  # type: ignore[arg-type]
        B, psi = principal(factors.W, factors.psi)[0], factors.psi
        variances, heywood = backend.namespace(B).sum(B * B, axis=0), _heywood_cases(B, psi)
    elif request.method == "em":
        q, rng = _count(operator, request), np.random.default_rng(request.seed)
        about_em = (operator, q, rng, request.noise_variance, *limits)
        start = _start(operator, request, q)
        W, sigma2, record = em_of_kernel(*about_em, start=start, accelerate=request.accelerate)
        B, squares = principal(W)
        raw, psi, variances = backend.cast_like(W, like), sigma2 + 0 * B[:, 0], squares + sigma2
        SpikedGaussian(variances, sigma2, operator.dim).require_density()
    else:  # σ² = (tr Kc/n − Σℓ)/(n − q), B = U(Λ − σ²)^{1/2}
        spectrum, gaussian = _eigenpairs(operator, request)
        B, variances = spectrum.vectors * gaussian.spread, gaussian.values
        psi = gaussian.noise + 0 * B[:, 0]
        record = Record([gaussian.loglikelihood(n, operator.trace)], 1, True)
        weights = spectrum.vectors * (gaussian.spread / (n * variances))
        placement = Placement(weights, backend.identity(gaussian.rank, weights))
    placement = placement or Placement.of_factors(operator, B, psi)
    # per feature dimension −½{ln|C| + tr(C⁻¹Kc)/n}; −(n/2) ln(2πn/ρ) where ρ is known (theory 9)
    constant = 0.5 * order * (LOG_2PI if rho is None else -math.log(n / rho))
    record.loglikelihoods = [value / n + constant for value in record.loglikelihoods]
    return ProbabilisticKernelModel(
        backend.cast_like(B, like),
        backend.cast_like(variances, like),
        backend.cast_like(variances / (operator.trace / n), like),
        psi,
        placement,
        placement.subspace(source),
        source.gram.kernel,
        source.points,
        source.correction or Correction(),
        heywood,
        History.of(record),
        raw,
    )


ARD = "ard"
"""The rule that leaves the dimension to priors on the columns of B."""


def _check_count(request: ProbabilisticKernelRequest, n: int) -> None:
    """Refuse a number of components that n points cannot have."""
    wanted, given = request.n_components, request.noise_variance is not None
    if (wanted is None and given) or wanted == ARD or wanted in selection.RULES:
        return
    most = n - 1 if given else n - 2  # centring takes one direction, noise needs another
    if is_share(wanted) or (is_count(wanted) and 1 <= wanted <= most):  # type: ignore[operator]
        return
    what = f"an integer from 1 to {most} for {n} points, a share of the variance, one of "
    what += f"{[ARD, *sorted(selection.RULES)]}, or None where noise_variance is given"
    raise ValueError(expected("n_components", what, wanted))


def _eigenpairs(
    operator: FeatureScatter, request: ProbabilisticKernelRequest
) -> tuple[Spectrum, SpikedGaussian]:
    """Return the eigenpairs asked for, and the Gaussian that they give."""
    wanted, most = request.n_components, operator.shape[0] - 1
    if isinstance(wanted, str):
        spectrum = solve(operator, most, request.eigen_solver, 0.0, request.seed)
        spectrum = spectrum.head(inferred(wanted, spectrum, observations(operator, request)))
    else:
        spectrum = leading(wanted, operator, most, solver=request.eigen_solver, seed=request.seed)
    q = None if wanted is None else spectrum.rank
    gaussian = spiked_gaussian(spectrum, operator.n, noise=request.noise_variance, q=q)
    gaussian.require_density()
    return spectrum.head(gaussian.rank), gaussian


def observations(operator: FeatureScatter, request: ProbabilisticKernelRequest) -> float:
    """Return ρ, the number of observations of the model, for rules that ask how many there are.

    As given; or that of a kernel with a finite feature map; or n, the dimension of the space that
    n points span.
    """
    kernel, points = operator.gram.kernel, operator.points
    if request.feature_dim is not None:
        return float(request.feature_dim)
    if operator.pairwise or operator.correction is not None:
        return float(operator.shape[0])
    try:
        return float(feature_map(kernel, points[:1]).shape[1])
    except DualPCAError:  # it has no finite map
        return float(operator.shape[0])


def inferred(name: str, spectrum: Spectrum, rho: float) -> int:
    """Return the dimension that a rule finds in the spectrum of a centred kernel; one at least.

    The ρ dimensions of feature space are the observations, of n variables, and Kc is their scatter:
    eigenvalues λ/ρ are variances. Centring has taken the direction 1, in which there is nothing,
    so the noise has n − 1 dimensions. 'ard' counts the columns of B that keep a finite precision
    (theory 5.1 with those roles).

    Examples
    --------
    >>> import numpy as np
    >>> s = Spectrum(np.array([9e3, 7e3, 1.1e3, 1e3, 9e2]), np.eye(6)[:, :5], 19e3, 6)
    >>> [inferred(name, s, 1000) for name in ("ard", "bic", "evidence")]
    [2, 2, 2]
    """
    values = backend.to_numpy(spectrum.values)
    positive = int(np.sum(values > VARIANCE_ROUNDING * spectrum.trace))
    spectrum = replace(spectrum, dim=spectrum.dim - 1)
    most = max(positive - 1, 1)  # the weakest direction of any variance is left for the noise
    if name == ARD:
        found = int(fit_relevance(spectrum.head(most), rho).kept.sum())
    else:
        found = selection.apply_rule(name, spectrum.values, spectrum.trace, spectrum.dim, rho)
    return min(at_least_one(name, found), most)


def _count(operator: FeatureScatter, request: ProbabilisticKernelRequest) -> int:
    """Return q: given, or read from the spectrum."""
    wanted = request.n_components
    return int(wanted) if is_count(wanted) else _eigenpairs(operator, request)[1].rank  # type: ignore[arg-type]


def _start(
    operator: FeatureScatter, request: ProbabilisticKernelRequest, q: int
) -> tuple[Array, float] | None:
    """Return where EM starts: given coordinates, PCA scores of the inputs, or None for random."""
    unit, X = operator.trace / operator.n / operator.dim, operator.points
    if not isinstance(request.init, str):
        return check_start(request.init, operator, q), unit
    enough = X.ndim == 2 and not operator.pairwise and q <= min(X.shape[0] - 1, X.shape[1])
    if request.init == "random" or (request.init == "auto" and not enough):
        return None
    if not enough:
        what = f"'auto' or 'random' where X has no {q} principal components of its own"
        raise ValueError(expected("init", what, request.init))
    primal = Primal(X)
    spectrum = solve(primal, q)
    gaussian = spiked_gaussian(spectrum, primal.n)
    scores = primal.frame.coordinates(spectrum.vectors, X)
    return scores, gaussian.noise if gaussian.noise > 0 else unit


def check_start(init: Array, operator: FeatureScatter, q: int) -> Array:
    """Return given coordinates, (n, q), to start from."""
    B = np.asarray(backend.to_numpy(init))
    if B.shape != (operator.shape[0], q) or B.dtype.kind not in "fiu" or not np.isfinite(B).all():
        what = f"'auto', 'pca', 'random' or finite numbers of shape ({operator.shape[0]}, {q})"
        raise ValueError(expected("init", what, B.shape if B.ndim else init))
    return backend.asarray(B, operator.like)


def _heywood_cases(B: Array, psi: Array) -> tuple[int, ...]:
    """Return the points whose noise is at its bound; warn if there are any."""
    variance = backend.namespace(B).sum(B * B, axis=1) + psi
    held = np.flatnonzero(backend.to_numpy(psi <= 2 * LEAST_POINT_NOISE * variance)).tolist()
    if held:
        warn(
            f"Heywood case: the coordinates explain {len(held)} points wholly, such as "
            f"{held[:10]}; their noise is held at 1/10,000 of their variance. Use fewer "
            "components, or noise='isotropic'.",
            HeywoodWarning,
        )
    return tuple(held)


def principal(B: Array, psi: Array | None = None) -> tuple[Array, Array]:
    """Rotate coordinates to principal axes; return them and their squared lengths, largest first.

    BᵀΨ⁻¹B becomes diagonal (Ψ = I by default) and signs are deterministic.
    """
    xp = backend.namespace(B)
    root = 1.0 if psi is None else xp.sqrt(psi)[:, None]
    U, s, _ = algebra.svd(B / root)
    return algebra.deterministic_signs((U * s) * root), s * s
