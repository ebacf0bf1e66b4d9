"""Densities over latents: a Gaussian, a kernel density estimate, a mixture (MATH 12)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.errors import DegenerateError, expected

LOG_2PI = math.log(2 * math.pi)

FLAT = 1e-10
"""Share of the largest variance below which a direction counts as having none."""


class Density(Protocol):
    """A density π over R^q with all that Langevin needs of it."""

    @property
    def factor(self) -> Array:
        """F with FFᵀ about the covariance over which π varies, (q, q): the metric of a chain."""

    def log_density(self, Z: Array) -> Array:
        """Return ln π at every row, (m,)."""

    def gradient(self, Z: Array) -> Array:
        """Return ∇ ln π at every row, (m, q)."""

    def value_and_gradient(self, Z: Array) -> tuple[Array, Array]:
        """Return both for about the price of one."""

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n independent points, (n, q)."""


class _Both:
    """One evaluation gives value and gradient; either is a part of it."""

    def value_and_gradient(self, Z: Array) -> tuple[Array, Array]:
        """Return ln π (m,) and ∇ ln π (m, q)."""
        raise TypeError(expected("density", "a subclass that evaluates itself", type(self)))

    def log_density(self, Z: Array) -> Array:
        """Return ln π at every row, (m,)."""
        return self.value_and_gradient(Z)[0]

    def gradient(self, Z: Array) -> Array:
        """Return ∇ ln π at every row, (m, q)."""
        return self.value_and_gradient(Z)[1]


@dataclass(frozen=True)
class Gaussian(_Both):
    """π = N(μ, FFᵀ); ∇ ln π = −(FFᵀ)⁻¹(z − μ).

    Parameters
    ----------
    mean : array of shape (q,)
    factor : array of shape (q, q)
        F, lower triangular with a positive diagonal.

    Examples
    --------
    >>> import numpy as np
    >>> g = Gaussian(np.zeros(1), np.array([[2.0]]))
    >>> g.log_density(np.array([[2.0]])).round(6), g.gradient(np.array([[2.0]]))
    (array([-2.112086]), array([[-0.5]]))
    """

    mean: Array  # (q,)
    factor: Array  # (q, q)

    def __post_init__(self) -> None:
        """Refuse a mean and a factor that do not fit."""
        check_factor(self.factor, int(self.mean.shape[0]))

    def value_and_gradient(self, Z: Array) -> tuple[Array, Array]:
        """Return ln π (m,) and ∇ ln π (m, q)."""
        check_latents(Z, self.factor)
        U = solve_lower(self.factor, (Z - self.mean).T).T
        value = -0.5 * _algebra.squared_norms(U) - log_constant(self.factor)
        return value, -solve_upper(self.factor, U.T).T

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n independent points, (n, q)."""
        xi = _array.normal(rng, (n, int(self.mean.shape[0])), self.mean)
        return self.mean + xi @ self.factor.T


@dataclass(frozen=True)
class KernelDensity(_Both):
    """π(z) = 1/n Σ_i N(z; z_i, FFᵀ), a bump of one shape on every centre (MATH 12.1).

    With u = F⁻¹z and weights r_i ∝ exp(−½‖u − u_i‖²), ∇ ln π = F⁻ᵀ(Σ_i r_i u_i − u): it points to
    the weighted mean of the centres. O(nq) a row, in blocks.

    Parameters
    ----------
    centres : array of shape (n, q)
    factor : array of shape (q, q)
        F, lower triangular: the bandwidth times a factor of the covariance.

    Examples
    --------
    >>> import numpy as np
    >>> kde = KernelDensity(np.array([[-1.0], [1.0]]), np.eye(1))
    >>> Z = np.array([[0.0], [0.5]])
    >>> kde.log_density(Z).round(4), kde.gradient(Z).round(4)
    (array([-1.4189, -1.4238]), array([[ 0.    ], [-0.0379]]))
    """

    centres: Array  # (n, q)
    factor: Array  # (q, q)

    def __post_init__(self) -> None:
        """Refuse centres and a factor that do not fit."""
        check_factor(self.factor, int(self.centres.shape[1]))

    def value_and_gradient(self, Z: Array) -> tuple[Array, Array]:
        """Return ln π (m,) and ∇ ln π (m, q)."""
        check_latents(Z, self.factor)
        n, xp = int(self.centres.shape[0]), _array.namespace(Z)
        middle, C = self._white
        U = solve_lower(self.factor, (Z - middle).T).T
        values, pulls = [], []
        for rows in _array.slices(int(Z.shape[0]), _array.block_rows(n, Z)):
            total, weights = log_sum_exp(-0.5 * squared_distances(U[rows, :], C))
            values.append(total)
            pulls.append(weights @ C - U[rows, :])
        constant = log_constant(self.factor) + math.log(n)
        pull = xp.concat(pulls, axis=0) if pulls else U
        value = xp.concat(values, axis=0) - constant if values else U[:, 0]
        return value, solve_upper(self.factor, pull.T).T

    @cached_property
    def _white(self) -> tuple[Array, Array]:
        """Their mean, near which distances keep their digits, and F⁻¹ of the centres from it."""
        middle = _array.namespace(self.centres).mean(self.centres, axis=0)
        return middle, solve_lower(self.factor, (self.centres - middle).T).T

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n independent points, (n, q): a centre, then its bump."""
        size, q = map(int, self.centres.shape)
        chosen = _array.take(self.centres, rng.integers(size, size=n))
        return chosen + _array.normal(rng, (n, q), self.centres) @ self.factor.T


@dataclass(frozen=True)
class Mixture(_Both):
    """π = Σ_k w_k π_k; ∇ ln π is the mean of the parts', by responsibility.

    Parameters
    ----------
    weights : array of shape (k,)
        Positive, sum 1.
    parts : tuple of k densities
        Gaussians, or kernel density estimates or mixtures in their turn.

    Examples
    --------
    >>> import numpy as np
    >>> at = lambda x: Gaussian(np.array([x]), np.eye(1))
    >>> Mixture(np.array([0.5, 0.5]), (at(-1.0), at(1.0))).gradient(np.array([[0.5]])).round(4)
    array([[-0.0379]])
    """

    weights: Array  # (k,)
    parts: tuple[Density, ...]

    def __post_init__(self) -> None:
        """Refuse weights that are no shares of the parts."""
        given = _array.to_numpy(self.weights)
        what = f"{len(self.parts)} positive numbers of sum 1, one a part"
        if given.shape != (len(self.parts),) or not np.all(given > 0):
            raise ValueError(expected("weights", what, given))
        if abs(float(given.sum()) - 1) > 1e-6:
            raise ValueError(expected("weights", what, float(given.sum())))

    @property
    def factor(self) -> Array:
        """F with FFᵀ = Σ_k w_k F_kF_kᵀ, the covariance within a part, (q, q)."""
        within = sum(
            float(share) * part.factor @ part.factor.T
            for share, part in zip(_array.to_numpy(self.weights), self.parts, strict=True)
        )
        return _array.namespace(self.weights).linalg.cholesky(within)

    def value_and_gradient(self, Z: Array) -> tuple[Array, Array]:
        """Return ln π (m,) and ∇ ln π (m, q)."""
        xp = _array.namespace(Z)
        found = [part.value_and_gradient(Z) for part in self.parts]
        values = xp.stack([value for value, _ in found], axis=1) + xp.log(self.weights)
        total, shares = log_sum_exp(values)
        return total, sum(shares[:, k : k + 1] * found[k][1] for k in range(len(found)))

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n independent points, (n, q), in an order that tells nothing."""
        shares = _array.to_numpy(self.weights)
        counts = rng.multinomial(n, shares / shares.sum())
        drawn = [
            part.sample(int(count), rng) for part, count in zip(self.parts, counts, strict=True)
        ]
        together = _array.namespace(self.weights).concat(drawn, axis=0)
        return _array.take(together, rng.permutation(n))


def fit_gaussian(Z: Array) -> Gaussian:
    """Return the Gaussian with the mean and covariance (divisor n) of the rows.

    Parameters
    ----------
    Z : array of shape (n, q)

    Examples
    --------
    >>> import numpy as np
    >>> fit_gaussian(np.array([[0.0], [2.0]]))
    Gaussian(mean=array([1.]), factor=array([[1.]]))
    """
    Z = _array.working(Z)
    mean = _array.namespace(Z).mean(Z, axis=0)
    return Gaussian(mean, covariance_factor(Z - mean))


def covariance_factor(Zc: Array) -> Array:
    """Return the Cholesky factor of ZcᵀZc/n; raise where a direction has no variance."""
    xp, n = _array.namespace(Zc), int(Zc.shape[0])
    S = Zc.T @ Zc / n
    values = _array.to_numpy(xp.linalg.eigvalsh(S))
    if not np.all(np.isfinite(values)) or not values[0] > FLAT * values[-1]:
        raise DegenerateError(
            f"the latents have no density: {n} rows vary in "
            f"{int(np.sum(values > FLAT * max(values[-1], 0)))} of {values.size} directions. "
            "Use fewer components, or more rows."
        )
    return xp.linalg.cholesky(S)


def check_factor(factor: Array, q: int) -> None:
    """Refuse what is not a (q, q) lower triangle with a positive diagonal."""
    given = _array.to_numpy(factor)
    if given.shape != (q, q):
        raise ValueError(expected("factor", f"of shape ({q}, {q})", given.shape))
    if not np.all(np.isfinite(given)) or np.any(np.triu(given, 1)) or np.any(np.diag(given) <= 0):
        what = "lower triangular with a positive diagonal"
        raise ValueError(expected("factor", what, given, "Give a Cholesky factor."))


def check_latents(Z: Array, factor: Array) -> None:
    """Refuse rows of another width than the density's."""
    if Z.ndim != 2 or Z.shape[1] != factor.shape[1]:
        raise ValueError(
            expected("Z", f"a matrix of {int(factor.shape[1])} columns", tuple(Z.shape))
        )


def log_constant(factor: Array) -> float:
    """Return q/2 ln 2π + ln|F|."""
    xp = _array.namespace(factor)
    return 0.5 * int(factor.shape[0]) * LOG_2PI + float(xp.sum(xp.log(xp.linalg.diagonal(factor))))


def log_sum_exp(E: Array) -> tuple[Array, Array]:
    """Return ln Σ_j exp(e_ij), (m,), and the shares exp(e_ij) / Σ_j exp(e_ij), (m, n)."""
    xp = _array.namespace(E)
    top = xp.max(E, axis=1, keepdims=True)
    P = _algebra.exp(E - top)
    total = xp.sum(P, axis=1, keepdims=True)
    return (top + xp.log(total))[:, 0], P / total


def squared_distances(A: Array, B: Array) -> Array:
    """Return ‖a_i − b_j‖², (m, n), never below 0."""
    D = 2 * A @ B.T - _algebra.squared_norms(A)[:, None] - _algebra.squared_norms(B)[None, :]
    return -_algebra.at_most_zero(D)


def solve_lower(F: Array, B: Array) -> Array:
    """Return F⁻¹B; q is small, so a plain solver will do in every library."""
    return _array.namespace(F).linalg.solve(F, B)


def solve_upper(F: Array, B: Array) -> Array:
    """Return F⁻ᵀB."""
    return _array.namespace(F).linalg.solve(F.T, B)
