"""Twin kernel PCA: a kernel over the points, explained by a kernel over latent coordinates.

K ~ W_n(ρ, Σ/ρ) with Σ = a k(Z, Z) + σ²I, maximised over Z, a and σ² (Zhang et al. 2004, section
5.2). This is the objective of the Gaussian process latent variable model (Lawrence 2004): its ρ
outputs are the feature dimensions and K = YYᵀ, so that the kernel is all that is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from scipy import optimize

from dualpca.arrays import Array, backend, cached_property
from dualpca.data import InMemoryTable
from dualpca.errors import expected
from dualpca.gaussian import LOG_2PI
from dualpca.kernels import Kernel
from dualpca.models.driver import History, Record, descend
from dualpca.models.kernel import KernelChoice
from dualpca.models.probabilistic_kernel import FeatureScatter, Seed, check_start
from dualpca.operators import Spectrum
from dualpca.solvers import solve

FAINT_START = 1e-2
"""Standard deviation of coordinates that have no direction to start from."""

LEAST_TWIN_NOISE, MOST_GAIN = 1e-6, 1e4
"""Bounds of σ² and a, as shares of the average variance: a flexible Σ could lose all noise."""

MEMORY = 50
"""Steps that L-BFGS remembers. With few it wanders along valleys, and rounding decides where to."""

Vector = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Twin:
    """Σ = a k(Z, Z) + σ²I over latent coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> Twin(np.zeros((2, 1)), RBF(), 1.0, 0.5).covariance()
    array([[1.5, 1. ], [1. , 1.5]])
    """

    Z: Annotated[Array, "n q"]
    kernel: Kernel
    gain: Annotated[float, ">= 0"]
    noise: Annotated[float, ">= 0"]

    def covariance(self) -> Array:
        """Return Σ, (n, n)."""
        eye = backend.identity(int(self.Z.shape[0]), self.Z)
        return self.gain * self.kernel(self.Z, self.Z) + self.noise * eye

    def loglikelihood(self, S: Array) -> float:
        """Return −½{ln|Σ| + tr(Σ⁻¹S)}, per feature dimension and without its constant."""
        return self.derivatives(S)[0]

    def derivatives(self, S: Array) -> tuple[float, Array, float, float]:
        """Return the log-likelihood and its derivatives by Z (n, q), ln a and ln σ²; O(n³).

        ∂/∂Σ = −½(Σ⁻¹ − Σ⁻¹SΣ⁻¹), and by the coordinates through the kernel's gradient.

        Parameters
        ----------
        S : array of shape (n, n)
            Scatter of a feature dimension: YYᵀ/ρ, or K itself where K ~ W_n(ρ, Σ/ρ).
        """
        xp, Sigma = backend.namespace(S), self.covariance()
        P = xp.linalg.inv(Sigma)
        P = (P + P.T) / 2
        PS = P @ S
        logdet = float(xp.linalg.slogdet(Sigma).logabsdet)
        value = -0.5 * (logdet + float(xp.linalg.trace(PS)))
        G = -0.5 * (P - PS @ P)
        trace = float(xp.linalg.trace(G))
        by_Z = self.kernel.pull(self.Z, self.Z, 2 * self.gain * G)
        by_gain = float(xp.sum(G * Sigma)) - self.noise * trace
        return value, by_Z, by_gain, self.noise * trace


def redundant_directions(twin: Twin) -> int:
    """Return how many shifts, rotations and changes of scale of Z do not change a k(Z, Z).

    The derivatives of the kernel matrix by all of them, and by ln a, are vectors; what they lack
    in rank is redundant. O(n²q) for each of the q(q + 1)/2 + 2, by central differences.
    """
    Z = backend.to_numpy(twin.Z)
    n, q = Z.shape
    moves = [np.outer(np.ones(n), e) for e in np.eye(q)]
    turns = [np.eye(q)[[i]].T @ np.eye(q)[[j]] for i in range(q) for j in range(i)]
    moves += [Z @ (turn - turn.T) for turn in turns] + [Z]

    def gram(at: Vector) -> Vector:
        A = backend.asarray(at, twin.Z)
        return backend.to_numpy(twin.kernel(A, A)).reshape(-1)

    columns, size = [gram(Z)], np.finfo(np.float64).eps ** (1 / 3)
    for move in moves:
        step = size * max(np.abs(Z).max(), 1.0) / max(np.abs(move).max(), 1e-300)
        columns.append((gram(Z + step * move) - gram(Z - step * move)) / (2 * step))
    norms = np.array([np.linalg.norm(column) for column in columns])
    real = norms > REDUNDANT * norms[0]
    unit = np.stack([c / s for c, s, kept in zip(columns, norms, real, strict=True) if kept])
    rank = int((np.linalg.svd(unit, compute_uv=False) > REDUNDANT).sum())
    return len(columns) - rank


REDUNDANT = 1e-6
"""Change of a kernel matrix, as a share of its size, that counts as none."""


def start_coordinates(spectrum: Spectrum, rng: np.random.Generator) -> Array:
    """Return the leading eigenvectors, the first with variance 1; noise in place of empty ones.

    A column of zeros would stay one: by symmetry its gradient is 0.
    """
    xp, n = backend.namespace(spectrum.values), int(spectrum.vectors.shape[0])
    share = spectrum.values / spectrum.values[0]
    noise = FAINT_START * backend.normal(rng, tuple(spectrum.vectors.shape), spectrum.vectors)
    return xp.where(share > FAINT_START**2, spectrum.vectors * xp.sqrt(n * share), noise)


def maximize_twin(
    S: Array, kernel: Kernel, Z: Array, tol: float = 1e-5, max_iter: int = 1000
) -> tuple[Twin, Record]:
    """Maximise the likelihood over coordinates, gain and noise by L-BFGS.

    Parameters
    ----------
    S : array of shape (n, n)
    kernel : Kernel
        Of the latent coordinates, with its parameters fixed: Z adapts to its scale.
    Z : array of shape (n, q)
        Start; signal and noise begin with half of the average variance each.
    tol : float
        Largest component of the gradient of the log-likelihood, by Z, ln a and ln σ², at which to
        stop, in units of n.
    max_iter : int

    Notes
    -----
    O(n³) per step. The likelihood has many maxima: this is the one that the start leads to. It
    never falls. σ² stays above 1e-6 of the average variance: a flexible Σ could lose all noise.
    """
    record, n = Record(), int(S.shape[0])

    def twin(theta: Vector) -> Twin:
        Zt = backend.asarray(theta[:-2].reshape(Z.shape), S)
        return Twin(Zt, kernel, math.exp(theta[-2]), math.exp(theta[-1]))

    def cost(theta: Vector) -> tuple[float, Vector]:
        """Return −1/n times the log-likelihood of θ = (Z, ln a, ln σ²), and its gradient."""
        value, by_Z, by_gain, by_noise = twin(theta).derivatives(S)
        slope = np.concatenate([backend.to_numpy(by_Z).reshape(-1), [by_gain, by_noise]])
        return -value / n, -slope / n

    average = float(backend.namespace(S).linalg.trace(S)) / n
    first = backend.to_numpy(Z).reshape(-1)
    theta = np.concatenate([first, [math.log(average / 2)] * 2])
    limits = (math.log(LEAST_TWIN_NOISE * average), math.log(MOST_GAIN * average))
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * first.size + [limits] * 2
    record.add(-n * cost(theta)[0])
    evaluations, stop = 2 * max_iter, (tol, max_iter)
    x = descend(
        cost,
        theta,
        bounds,
        record,
        lambda value: -n * value,
        *stop,
        maxfun=evaluations,
        ftol=0.0,
        maxcor=MEMORY,
    )
    low, high = np.array(bounds, dtype=np.float64).T  # None is NaN, which bounds nothing
    inside = np.fmin(np.fmax(x - cost(x)[1], low), high)
    record.converged = bool(np.max(np.abs(x - inside)) <= tol)
    return twin(x), record


@dataclass(frozen=True)
class TwinPlacement:
    """Where a new point goes: the z that makes its features most likely given the training points'.

    Given z its feature dimensions are N(αᵀg, v), with α = Σ⁻¹σ(z), σ(z) = a k(Z, z) and
    v = a k(z, z) + σ² − σ(z)ᵀα, so z minimises ½ ln v + ½ r/v with r = s − 2αᵀk + αᵀSα: kernel
    values k of the new point and its squared norm s are all that is needed.

    S is the scatter that the model was fitted to.
    """

    model: Annotated[Twin, "n q"]
    S: Annotated[Array, "n n"]

    @cached_property
    def P(self) -> Array:
        """Σ⁻¹, (n, n)."""
        return backend.namespace(self.S).linalg.inv(self.model.covariance())

    def cost(self, z: Array, k: Array, s: float) -> tuple[float, Array]:
        """Return ½ ln v + ½ r/v and its gradient, (q,), for one point; O(n²)."""
        Z, kernel, a = self.model.Z, self.model.kernel, self.model.gain
        z = z[None, :]
        sigma = a * kernel(z, Z)[0, :]
        alpha = self.P @ sigma
        fitted = self.S @ alpha
        v = a * float(kernel.diag(z)[0]) + self.model.noise - float(sigma @ alpha)
        v = max(v, self.model.noise)
        r = max(s - 2 * float(alpha @ k) + float(alpha @ fitted), 0.0)
        by_v = a * kernel.diag_gradient(z)[0, :] - 2 * a * kernel.pull(z, Z, alpha[None, :])[0, :]
        by_r = 2 * a * kernel.pull(z, Z, (self.P @ (fitted - k))[None, :])[0, :]
        slope = 0.5 * (1 - r / v) * (by_v / v) + 0.5 * (by_r / v)
        return 0.5 * (math.log(v) + r / v), slope

    def place(self, k: Array, s: float) -> Array:
        """Return the coordinate of a point, (q,), by L-BFGS from that of its nearest neighbour."""
        xp = backend.namespace(k)
        nearest = int(xp.argmin(xp.linalg.diagonal(self.S) - 2 * k))

        def both(z: Vector) -> tuple[float, Vector]:
            value, slope = self.cost(backend.asarray(z, k), k, s)
            return value, backend.to_numpy(slope)

        start = backend.to_numpy(self.model.Z[nearest, :])
        found = optimize.minimize(both, start, jac=True, method="L-BFGS-B")
        return backend.asarray(found.x, k)


# --- The model -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TwinModel:
    """A fitted twin over training items, and where new ones go."""

    coordinates: Annotated[Array, "n q"]
    placement: Annotated[TwinPlacement, "n q"]  # with the fitted twin, in float64
    kernel: Kernel  # of the items
    points: Annotated[Array, "points n p"]  # the training items, or their kernel values
    means: Annotated[Array, "n"]  # of the kernel values of every item
    grand_mean: float
    rho: float | None = None
    history: History | None = None

    @property
    def twin(self) -> Twin:
        """Coordinates, latent kernel, gain and noise."""
        return self.placement.model

    @property
    def n_rows(self) -> int:
        """Number of training items."""
        return int(self.coordinates.shape[0])

    @property
    def n_components(self) -> int:
        """Number of coordinates, q."""
        return int(self.coordinates.shape[1])

    def n_parameters(self) -> int:
        """Return the number of free parameters of Σ: coordinates, gain and noise.

        Less those that leave it as it is: shifts and rotations of the coordinates, and a factor of
        them that the gain undoes, as far as the latent kernel allows.
        """
        n, q = map(int, self.coordinates.shape)
        return n * q + 2 - redundant_directions(self.twin)

    def placed(self, values: Array) -> Array:
        """Return the coordinates of items, (m, q), from what the kernel is evaluated on.

        Kernel values and squared norms are centred with the training means.
        """
        rows, rho = backend.points(values), 1.0 if self.rho is None else float(self.rho)
        k = backend.working(self.kernel(rows, backend.points(self.points)))
        xp = backend.namespace(k)
        means = xp.mean(k, axis=1)
        squares = backend.working(self.kernel.diag(rows)) - 2 * means + self.grand_mean
        k = k - self.means[None, :] - means[:, None] + self.grand_mean
        place = self.placement.place
        found = [place(k[i, :] / rho, float(squares[i]) / rho) for i in range(k.shape[0])]
        return xp.stack(found, axis=0)


@dataclass(frozen=True)
class TwinRequest:
    """What `fit_twin` needs to know, checked."""

    n_components: int
    kernel: KernelChoice
    latent_kernel: Kernel
    feature_dim: float | None = None  # ρ, where it is known
    init: str | Array = "spectral"  # 'spectral', 'random' or coordinates
    tol: float = 1e-5
    max_iter: int = 2000
    n_init: int = 1
    seed: Seed = 0

    def starts(self, operator: FeatureScatter) -> Iterator[Array]:
        """Yield the coordinates to start from, (n, q): the one asked for, then random ones."""
        n, q = operator.shape[0], self.n_components
        if q > n - 1:
            raise ValueError(expected("n_components", f"at most {n - 1} for {n} points", q))
        if not isinstance(self.init, str):
            yield check_start(self.init, operator, q)
            return
        rng = np.random.default_rng(self.seed)
        if self.init == "random":
            yield backend.normal(rng, (n, q), operator.like)
        else:
            yield start_coordinates(solve(operator, q, random_state=0), rng)
        for _ in range(self.n_init - 1):
            yield backend.normal(rng, (n, q), operator.like)


def fit_twin(table: InMemoryTable, request: TwinRequest) -> TwinModel:
    """Fit twin kernel PCA by maximum likelihood; of several starts the most likely end is kept.

    An end that is a maximum comes before one where the steps ran out: rounding decides where the
    latter is.
    """
    source = FeatureScatter.of(table.rows, request.kernel)
    operator = source.fitted_part(request.seed)
    rho = request.feature_dim
    S = operator.dense() / (1.0 if rho is None else float(rho))
    runs = []
    for Z in request.starts(operator):
        kernel = request.latent_kernel.resolve(Z)
        runs.append(maximize_twin(S, kernel, Z, request.tol, request.max_iter))
        if runs[-1][1].interrupted:
            break
    found, record = max(runs, key=lambda run: (run[1].converged, run[1].loglikelihoods[-1]))
    constant = 0.0 if rho is None else -0.5 * operator.n * LOG_2PI
    record.loglikelihoods = [value + constant for value in record.loglikelihoods]
    return TwinModel(
        backend.cast_like(found.Z, backend.vector_like(source.points)),
        TwinPlacement(found, S),
        source.gram.kernel,
        source.points,
        source.means,
        source.grand_mean,
        rho,
        History.of(record),
    )
