"""Probabilistic kernel PCA: feature dimensions as observations; principal coordinates.

Column j of the (n, ρ) matrix of features is one observation of an n-vector, g = Bw + u1 + ε with
w ~ N(0, n/ρ I) and ε ~ N(0, n/ρ diag ψ) (Zhang et al. 2004; theory 9). Their scatter is the centred
kernel, so ρ cancels: what is fitted is C = BBᵀ + diag ψ to Kc/n, and row i of B is the coordinate
of point i.

Read `Correction` (distances as kernels), `TrainingItems` and `FeatureScatter` (what is fitted),
`Placement` (where new points go), `ProbabilisticKernelModel` and `fit_probabilistic_kernel`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.linalg import helmert

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import (
    DegenerateError,
    HeywoodWarning,
    NonFiniteError,
    SpectrumWarning,
    expected,
    warn,
)
from dualpca.gaussian import (
    LOG_2PI,
    SpikedGaussian,
    is_count,
    is_share,
    leading,
    log_wishart,
    spiked_gaussian,
)
from dualpca.kernels import Kernel, Precomputed
from dualpca.models.driver import History, Record
from dualpca.models.factor import fit_factors
from dualpca.models.spiked import NO_NOISE, breakdowns_told, em_of_operator, ppca_step
from dualpca.operators import (
    Dual,
    Frame,
    Given,
    Gram,
    Primal,
    Spectrum,
    Subspace,
    deterministic_signs,
    negative_mass,
    stored_bytes,
    warn_of_cancellation,
)
from dualpca.solvers import solve

# --- From distances to kernels: principal coordinates, and what to do if they are not Euclidean --

DISTANCE_ASYMMETRY = 1e-8
"""Largest |D − Dᵀ|, and diagonal, that counts as rounding, relative to the largest entry."""

SAME_ITEM = 1e-12
"""Share of the largest distance of an item below which another is the same item."""

CORRECTIONS = ("lingoes", "cailliez")


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
        if kind not in CORRECTIONS:
            raise ValueError(expected("correction", f"None or one of {list(CORRECTIONS)}", kind))
        host = backend.to_numpy(backend.working(D))
        found = lingoes_constant(host) if kind == "lingoes" else cailliez_constant(host)
        return cls(kind, found)

    def kernel(self, D: Array) -> Array:
        """Return −½d'² with d' the corrected distances, (m, n): a kernel, once it is centred.

        Parameters
        ----------
        D : array of shape (m, n)
            Distances of m items from the n training items. An item at distance 0 is that training
            item, which keeps it; of k such training items it is each with probability 1/k.
            Zero is what is below 1e-12 of the largest.
        """
        D = backend.working(D)
        if self.constant == 0:
            return -0.5 * D * D
        xp = backend.namespace(D)
        same = xp.astype(D <= SAME_ITEM * xp.max(D, axis=1)[:, None], xp.float64)
        ties = xp.sum(same, axis=1)[:, None]
        share = same / xp.where(ties > 0, ties, xp.ones_like(ties))
        return -0.5 * self._squares(D) * (1 - share)

    def training_kernel(self, D: Array) -> Array:
        """Return −½d'² between the training items, (n, n): all but the diagonal is corrected."""
        D = backend.working(D)
        if self.constant == 0:
            return -0.5 * D * D
        return -0.5 * self._squares(D) * (1 - backend.identity(int(D.shape[0]), D))

    def _squares(self, D: Array) -> Array:
        """Return d'² of different items."""
        return D * D + 2 * self.constant if self.kind == "lingoes" else (D + self.constant) ** 2


def lingoes_constant(D: np.ndarray[Any, Any]) -> float:
    """Return c = −λ_min(−½ H D² H), at least 0: with √(d² + 2c) every eigenvalue rises by c.

    Lingoes (1971), Some boundary conditions for a monotone analysis of symmetric matrices.
    """
    return _beyond_rounding(-np.linalg.eigvalsh(_centred(-0.5 * D * D))[0], D * D)


def cailliez_constant(D: np.ndarray[Any, Any]) -> float:
    """Return the smallest c ≥ 0 for which d + c is Euclidean.

    The largest real eigenvalue of [[0, 2A], [−I, −4B]] with A = −½ H D² H and B = −½ H D H
    (Cailliez 1983, The analytical solution of the additive constant problem). O((2n)³).
    """
    A, B = _centred(-0.5 * D * D), _centred(-0.5 * D)
    if _beyond_rounding(-np.linalg.eigvalsh(A)[0], D * D) == 0:
        return 0.0
    zero, one = np.zeros_like(A), np.eye(len(A))
    values = np.linalg.eigvals(np.block([[zero, 2 * A], [-one, -4 * B]]))
    real = values.real[np.abs(values.imag) <= 1e-8 * np.abs(values).max()]
    return max(float(real.max()), 0.0)


def _centred(A: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    means = A.mean(axis=0)
    return np.asarray(A - means[None, :] - means[:, None] + means.mean())


def _beyond_rounding(excess: float, squares: np.ndarray[Any, Any]) -> float:
    """Return a negative eigenvalue's size, 0 where it is a rounding error."""
    n = len(squares)
    rounding = 10 * n * float(np.finfo(np.float64).eps) * float(squares.max(initial=0.0))
    return float(excess) if excess > rounding else 0.0


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

NO_VARIANCE = 1e-13
"""Share of the kernel's size below which its centred trace is rounding error."""

NEGATIVE_SHARE = 1e-10
"""Share of negative eigenvalues, in magnitude, that is more than rounding error."""


@dataclass(frozen=True)
class TrainingItems:
    """Training items as they were given, and what their kernel is evaluated on."""

    points: Array  # (n, d), (n,): points, other items; (n, n): kernel values, distances
    values: Array  # the points, or −½d² of distances (n, n)
    kernel: Kernel
    correction: Correction | None = None  # what was done to distances, where they compare items
    pairwise: bool = False  # the points are kernel values or distances, not inputs

    @property
    def like(self) -> Array:
        """An array of the library, device and floating dtype of the items."""
        return backend.vector_like(self.points)


class FeatureScatter(Dual):
    """The centred kernel as the scatter of feature dimensions, whose means u are taken out."""

    @classmethod
    def of(cls, items: TrainingItems, memory_limit: float = math.inf) -> FeatureScatter:
        """Return the centred kernel of items, stored where the memory limit (bytes) allows it."""
        if isinstance(items.kernel, Precomputed):
            return cls(Given(items.values, items.kernel))
        stored = stored_bytes(int(items.values.shape[0])) <= memory_limit
        return cls(Gram(items.values, items.kernel, stored=stored))

    @property
    def frame(self) -> Frame:
        """The origin: 0."""
        return Frame(backend.asarray(np.zeros(self.shape[0]), self.like))

    @property
    def size(self) -> float:
        """Sum of the sizes of the kernel's values on the diagonal, before and after centring."""
        total = float(backend.namespace(self.like).sum(abs(self.gram.diag())))
        return total + self.n * abs(self.grand_mean)

    def definite_part(self, like: Array, seed: Any) -> tuple[FeatureScatter, float]:
        """Return the kernel without its negative eigenvalues, and what share of all they were.

        O(n³) and an n×n array, for kernels that are not known to be positive semi-definite. What
        the rounding of values in the dtype of `like` may have caused counts as none.
        """
        if self.gram.kernel.definite:
            return self, 0.0
        eps = float(backend.namespace(like).finfo(like.dtype).eps)
        rounding = eps * math.sqrt(self.shape[0]) * self.size / self.trace
        negative, total = negative_mass(self, np.random.default_rng(seed))
        if negative <= max(NEGATIVE_SHARE, rounding) * total:
            return self, 0.0
        values, vectors = algebra.top_eigh(self.dense(), self.shape[0])
        kept = backend.namespace(values).where(values < 0, 0 * values, values)
        definite = FeatureScatter(Given((vectors * kept) @ vectors.T, Precomputed()))
        return definite, negative / total


def fitted_scatter(
    items: TrainingItems, seed: Any, memory_limit: float = math.inf
) -> tuple[FeatureScatter, FeatureScatter]:
    """Return the centred kernel, and the part of it that models are fitted to.

    Items that are all alike are refused; where they hardly differ, and where negative eigenvalues
    are left out, there is a warning.
    """
    source = FeatureScatter.of(items, memory_limit)
    if source.trace <= NO_VARIANCE * source.size:
        raise DegenerateError(
            f"X has no variance in feature space: the trace of its centred kernel is "
            f"{source.trace:.3g}. All points are alike to the kernel, or it is negative. Give "
            "points that differ, or another kernel. If X lies far from the origin, subtract its "
            "mean first."
        )
    warn_of_cancellation(source.gram.points, source.size, source.trace)
    operator, share = source.definite_part(items.like, seed)
    if share > 0:
        what, remedy = "kernel is indefinite", "Use a positive semi-definite kernel if they matter."
        if items.correction is not None:
            what = "distances are not Euclidean"
            remedy = "correction='lingoes' or 'cailliez' adds the least constant that leaves none."
        text = f"the {what}: negative eigenvalues are {share:.2%} of all in magnitude. They are "
        warn(f"{text}left out. {remedy}", SpectrumWarning)
    return source, operator


# --- Where a new point goes ----------------------------------------------------------------------

ROUNDED_NOISE = 1e-9
"""Of the numbers that a noise is the difference of: one less negative than this is 0."""


class Placed(NamedTuple):
    """Where points are, and what is left of them."""

    coordinates: Array  # (m, q)
    noise: Array  # (m,)


@dataclass(frozen=True)
class Placement:
    """How a point gets its coordinate: b(x) = Pᵀkc(x).

    The M step of EM is a regression of every row of features on the latents w (Zhang et al. 2004,
    Eq. 16). A new
    point is one more row: b(x) = ⟨WWᵀ⟩⁻¹⟨W⟩(f(x) − f̄), with ⟨W⟩ and ⟨WWᵀ⟩ = nG as the training
    points left them. Under a flat prior for b this regression has the posterior
    N(b(x), ψ(x)/ρ · G⁻¹), where nψ(x) = ‖f(x) − f̄‖² − n b(x)ᵀG b(x), the noise that is the point's
    own, is what the M step would give it (Eq. 17). At the maximum G = I, and the noises of the
    training points have the mean σ².

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
    def of_spectrum(cls, spectrum: Spectrum, gaussian: SpikedGaussian, n: float) -> Placement:
        """Return b(x) = (Λ − σ²)^{1/2}(nΛ)⁻¹Uᵀkc(x): the maximum in closed form (theory 9.1)."""
        weights = spectrum.vectors * (gaussian.spread / (n * gaussian.values))
        return cls(weights, backend.identity(gaussian.rank, weights))

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
    variances: Annotated[Array, "q"]
    ratios: Annotated[Array, "q"]  # shares of tr Kc/n
    psi: Annotated[Array, "n"]  # in float64
    placement: Placement
    subspace: Subspace  # the weights of `placement` as an expansion over the points
    kernel: Kernel
    points: Annotated[Array, "points n p"]  # the training points, kernel values or distances
    correction: Correction  # of distances
    heywood: tuple[int, ...] | None = None  # points held at the least noise, if each has its own
    history: History | None = None

    @property
    def n_rows(self) -> int:
        """Number of training points."""
        return int(self.coordinates.shape[0])

    @property
    def n_components(self) -> int:
        """Q."""
        return int(self.coordinates.shape[1])

    @property
    def noise(self) -> Any:
        """σ², or ψ of every point where each has its own."""
        if self.heywood is None:
            return float(self.psi[0])
        return backend.cast_like(self.psi, self.coordinates)

    @property
    def eigenvalues(self) -> Array | None:
        """The variances where they are eigenvalues of Kc/n: where all points share one noise."""
        return self.variances if self.heywood is None else None

    def placed(self, values: Array, diagonal: Array | None = None) -> Placed:
        """Return b(x) and the noise ψ(x) that is a point's own, never negative.

        Beyond rounding it can come out negative where distances are not Euclidean, and would claim
        to know a place exactly: the average over the training points stands for it then.
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
        return Placed(b, xp.where(noise < 0, instead, noise))

    def posterior(
        self, values: Array, rho: float, diagonal: Array | None = None
    ) -> tuple[Array, Array]:
        """Return b(x), (m, q), and its covariance ψ(x)/ρ · G⁻¹, (m, q, q)."""
        b, noise = self.placed(values, diagonal)
        inverse = backend.namespace(b).linalg.inv(self.placement.moment)
        return b, noise[:, None, None] / rho * inverse[None, :, :]

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

    n_components: int | float | None
    noise: float | None = None  # σ², None for maximum likelihood
    diagonal: bool = False  # a noise for every point
    em: bool = False  # by EM, where there is another way
    rho: float | None = None  # feature dimensions, where their number is known
    init: Any = "auto"  # 'auto', 'pca', 'random' or coordinates, for EM
    accelerate: bool = True
    tol: float = 1e-6
    max_iter: int = 1000
    solver: str = "auto"
    seed: Any = 0  # or a generator
    memory_limit: float = math.inf  # bytes, for a stored kernel

    def check_count(self, n: int) -> None:
        """Refuse a number of components that n points cannot have."""
        wanted, given = self.n_components, self.noise is not None
        if wanted is None and given and not self.diagonal:
            return
        most = n - 1 if given else n - 2  # centring takes one direction, noise needs another
        if is_share(wanted) or (is_count(wanted) and 1 <= wanted <= most):  # type: ignore[operator]
            return
        what = f"an integer from 1 to {most} for {n} points, a share of the variance, "
        what += "or None where noise_variance is given"
        raise ValueError(expected("n_components", what, wanted))


class _Found(NamedTuple):
    """Coordinates and noise, how to place new points, and how they were found."""

    B: Array  # (n, q)
    psi: Array  # (n,)
    variances: Array  # (q,)
    placement: Placement
    record: Record


def fit_probabilistic_kernel(
    items: TrainingItems, request: ProbabilisticKernelRequest
) -> ProbabilisticKernelModel:
    """Fit probabilistic kernel PCA by maximum likelihood."""
    request.check_count(int(items.points.shape[0]))
    source, operator = fitted_scatter(items, request.seed, request.memory_limit)
    if request.diagonal:
        found = _with_own_noises(operator, request)
    elif request.em:
        found = _by_em(operator, items, request)
    else:
        found = _in_closed_form(operator, request)
    like, n, order = items.like, source.n, source.shape[0]
    record = found.record
    record.loglikelihoods = [per_dimension(v, n, order, request.rho) for v in record.loglikelihoods]
    return ProbabilisticKernelModel(
        backend.cast_like(found.B, like),
        backend.cast_like(found.variances, like),
        backend.cast_like(found.variances / (operator.trace / operator.n), like),
        found.psi,
        found.placement,
        found.placement.subspace(source),
        source.gram.kernel,
        items.points,
        items.correction or Correction(),
        _heywood_cases(found) if request.diagonal else None,
        History.of(record),
    )


def _in_closed_form(operator: FeatureScatter, request: ProbabilisticKernelRequest) -> _Found:
    """Fit from the leading eigenpairs of Kc: σ² = (tr Kc/n − Σℓ)/(n − q), B = U(Λ − σ²)^{1/2}."""
    spectrum, gaussian = _eigenpairs(operator, request)
    B = spectrum.vectors * gaussian.spread
    placement = Placement.of_spectrum(spectrum, gaussian, operator.n)
    record = Record([gaussian.loglikelihood(operator.n, operator.trace)], 1, True)
    return _Found(B, _same_noise(gaussian.noise, B), gaussian.values, placement, record)


def _eigenpairs(
    operator: FeatureScatter, request: ProbabilisticKernelRequest
) -> tuple[Spectrum, SpikedGaussian]:
    """Return the eigenpairs asked for, and the Gaussian that they give."""
    wanted, most = request.n_components, operator.shape[0] - 1
    spectrum = leading(wanted, operator, most, solver=request.solver, seed=request.seed)
    q = None if wanted is None else spectrum.rank
    gaussian = spiked_gaussian(spectrum, operator.n, noise=request.noise, q=q)
    gaussian.require_density()
    return spectrum.head(gaussian.rank), gaussian


def _count(operator: FeatureScatter, request: ProbabilisticKernelRequest) -> int:
    """Return q: given, or read from the spectrum."""
    wanted = request.n_components
    return int(wanted) if is_count(wanted) else _eigenpairs(operator, request)[1].rank  # type: ignore[arg-type]


def _by_em(
    operator: FeatureScatter, items: TrainingItems, request: ProbabilisticKernelRequest
) -> _Found:
    """Fit by EM (theory 9.2; Zhang et al. 2004, Eqs. 18 and 19), accelerated by default."""
    n, q, noise = operator.n, _count(operator, request), request.noise
    limits: dict[str, Any] = {"tol": request.tol, "max_iter": request.max_iter}
    limits["accelerate"] = request.accelerate
    start, rng = _start(operator, items, request, q), np.random.default_rng(request.seed)
    with breakdowns_told(q):
        B, sigma2, record = em_of_operator(operator, q, n, rng, noise, start=start, **limits)
        record.add(ppca_step(operator, B, sigma2, n)[2])
    if noise is None and sigma2 <= 10 * NO_NOISE * operator.trace / n / operator.dim:
        sigma2 = 0.0
    turned, squares = principal(B)
    gaussian = SpikedGaussian(squares + sigma2, sigma2, operator.dim)
    gaussian.require_density()
    psi = _same_noise(sigma2, B)
    placement = Placement.of_factors(operator, turned, psi)
    return _Found(turned, psi, gaussian.values, placement, record)


def _start(
    operator: FeatureScatter, items: TrainingItems, request: ProbabilisticKernelRequest, q: int
) -> tuple[Array, float] | None:
    """Return where EM starts: given coordinates, PCA scores of the inputs, or None for random."""
    unit, X = operator.trace / operator.n / operator.dim, items.points
    if not isinstance(request.init, str):
        return check_start(request.init, operator, q), unit
    enough = X.ndim == 2 and not items.pairwise and q <= min(X.shape[0] - 1, X.shape[1])
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


def check_start(init: Any, operator: FeatureScatter, q: int) -> Array:
    """Return given coordinates, (n, q), to start from."""
    B = np.asarray(backend.to_numpy(init))
    if B.shape != (operator.shape[0], q) or B.dtype.kind not in "fiu" or not np.isfinite(B).all():
        what = f"'auto', 'pca', 'random' or finite numbers of shape ({operator.shape[0]}, {q})"
        raise ValueError(expected("init", what, B.shape if B.ndim else init))
    return backend.asarray(B, operator.like)


def _with_own_noises(operator: FeatureScatter, request: ProbabilisticKernelRequest) -> _Found:
    """Fit kernel factor analysis: every point has its own noise."""
    limits: dict[str, Any] = {"tol": request.tol, "max_iter": request.max_iter, "em": request.em}
    q = _count(operator, request)
    factors, record = fit_factors(operator, q, LEAST_POINT_NOISE, **limits)  # type: ignore[arg-type]
    B, _ = principal(factors.W, factors.psi)
    placement = Placement.of_factors(operator, B, factors.psi)
    variances = backend.namespace(B).sum(B * B, axis=0)
    return _Found(B, factors.psi, variances, placement, record)


def _heywood_cases(found: _Found) -> tuple[int, ...]:
    """Return the points whose noise is at its bound; warn if there are any."""
    variance = backend.namespace(found.B).sum(found.B * found.B, axis=1) + found.psi
    held = np.flatnonzero(backend.to_numpy(found.psi <= 2 * LEAST_POINT_NOISE * variance)).tolist()
    if held:
        warn(
            f"Heywood case: the coordinates explain {len(held)} points wholly, such as "
            f"{held[:10]}; their noise is held at 1/10,000 of their variance. Use fewer "
            "components, or noise='isotropic'.",
            HeywoodWarning,
        )
    return tuple(held)


def _same_noise(sigma2: float, like: Array) -> Array:
    """Return the same noise for every point, (n,)."""
    return backend.asarray(np.full(int(like.shape[0]), sigma2), like)


def principal(B: Array, psi: Array | None = None) -> tuple[Array, Array]:
    """Rotate coordinates to principal axes; return them and their squared lengths, largest first.

    BᵀΨ⁻¹B becomes diagonal (Ψ = I by default) and signs are deterministic.
    """
    xp = backend.namespace(B)
    root = 1.0 if psi is None else xp.sqrt(psi)[:, None]
    U, s, _ = algebra.svd(B / root)
    turned = deterministic_signs((U * s) * root)
    return turned, s * s


def per_dimension(value: float, n: float, order: int, rho: float | None) -> float:
    """Return the log-likelihood per feature dimension, −½{ln|C| + tr(C⁻¹Kc)/n} (theory 9).

    With a feature dimension ρ the constant −(n/2) ln(2πn/ρ) is added: then ρ times the result is
    the log-density of all features.

    Parameters
    ----------
    value : float
        −n/2 {n ln 2π + ln|C| + tr(C⁻¹Kc)/n}, as EM and `SpikedGaussian` count it.
    n : float
    order : int
        Number of points.
    rho : float, optional

    Examples
    --------
    >>> round(per_dimension(-4 * 1.8378770664093453, 4, 2, None), 12)  # C = 0·Kc = I₂: only ln 2π
    0.0
    """
    constant = 0.0 if rho is None else -0.5 * order * (LOG_2PI + math.log(n / rho))
    return value / n + 0.5 * order * LOG_2PI + constant
