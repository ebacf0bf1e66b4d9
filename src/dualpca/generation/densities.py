"""Densities over latents: Gaussian, kernel density estimate, mixture; bandwidth and temperature."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np

from dualpca.arrays import Array, algebra, backend, cached_property, log_sum_exp
from dualpca.errors import DegenerateError, expected
from dualpca.gaussian import LOG_2PI

# --- Densities over latents: a Gaussian, a kernel density estimate, a mixture --------------------

NO_VARIANCE = 1e-10
"""Share of the largest variance below which a direction counts as having none."""


@runtime_checkable
class Density(Protocol):
    """Interface of a density over latents: values, gradients and samples.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.generation import Gaussian
    >>> density = Gaussian(np.zeros(2), np.eye(2))
    >>> density.log_density(np.zeros((1, 2))).round(2)
    array([-1.84])
    """

    @property
    def factor(self) -> Array:
        """F with FFᵀ about the covariance over which π varies, (q, q): the metric of a chain."""

    def log_density(self, Z: Array) -> Array:
        """Return the log-density at every row.

        Parameters
        ----------
        Z : array of shape (m, q)

        Returns
        -------
        values : array of shape (m,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.generation import Gaussian
        >>> density = Gaussian(np.zeros(2), np.eye(2))
        >>> density.log_density(np.zeros((1, 2))).round(2)
        array([-1.84])
        """

    def gradient(self, Z: Array) -> Array:
        """Return the gradient of the log-density at every row.

        Parameters
        ----------
        Z : array of shape (m, q)

        Returns
        -------
        gradient : array of shape (m, q)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.generation import Gaussian
        >>> density = Gaussian(np.zeros(2), np.eye(2))
        >>> density.gradient(np.ones((1, 2)))
        array([[-1., -1.]])
        """

    def value_and_gradient(self, Z: Array) -> tuple[Array, Array]:
        """Return the log-density and its gradient at every row.

        Parameters
        ----------
        Z : array of shape (m, q)

        Returns
        -------
        values : array of shape (m,)
        gradient : array of shape (m, q)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.generation import Gaussian
        >>> density = Gaussian(np.zeros(2), np.eye(2))
        >>> values, gradient = density.value_and_gradient(np.zeros((1, 2)))
        >>> values.round(2), gradient
        (array([-1.84]), array([[-0., -0.]]))
        """

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw independent points.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator

        Returns
        -------
        Z : array of shape (n, q)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.generation import Gaussian
        >>> density = Gaussian(np.zeros(2), np.eye(2))
        >>> density.sample(3, np.random.default_rng(0)).shape
        (3, 2)
        """


class _Both:
    """One evaluation gives value and gradient; either is a part of it."""

    def value_and_gradient(self, Z: Array) -> tuple[Array, Array]:
        """Return ln π (m,) and ∇ ln π (m, q)."""
        raise TypeError(expected("density", "a subclass that evaluates itself", type(self)))

    def log_density(self, Z: Array) -> Array:
        """Return the log-density at every row.

        Parameters
        ----------
        Z : array of shape (m, q)

        Returns
        -------
        values : array of shape (m,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.generation import Gaussian
        >>> density = Gaussian(np.zeros(2), np.eye(2))
        >>> density.log_density(np.zeros((1, 2))).round(2)
        array([-1.84])
        """
        return self.value_and_gradient(Z)[0]

    def gradient(self, Z: Array) -> Array:
        """Return the gradient of the log-density at every row.

        Parameters
        ----------
        Z : array of shape (m, q)

        Returns
        -------
        gradient : array of shape (m, q)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.generation import Gaussian
        >>> density = Gaussian(np.zeros(2), np.eye(2))
        >>> density.gradient(np.ones((1, 2)))
        array([[-1., -1.]])
        """
        return self.value_and_gradient(Z)[1]


@dataclass(frozen=True)
class Gaussian(_Both):
    """A Gaussian density.

    π = N(μ, FFᵀ), and ∇ ln π = −(FFᵀ)⁻¹(z − μ).

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

    mean: Annotated[Array, "q"]
    factor: Annotated[Array, "q q"]

    def __post_init__(self) -> None:
        """Refuse a mean and a factor that do not fit."""
        check_factor(self.factor, int(self.mean.shape[0]))

    def value_and_gradient(self, Z: Array) -> tuple[Array, Array]:
        """Return the log-density and its gradient at every row.

        Parameters
        ----------
        Z : array of shape (m, q)

        Returns
        -------
        values : array of shape (m,)
        gradient : array of shape (m, q)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.generation import Gaussian
        >>> density = Gaussian(np.zeros(2), np.eye(2))
        >>> values, gradient = density.value_and_gradient(np.zeros((1, 2)))
        >>> values.round(2), gradient
        (array([-1.84]), array([[-0., -0.]]))
        """
        check_latents(Z, self.factor)
        U = solved_rows(self.factor, Z - self.mean)
        value = -0.5 * algebra.squared_norms(U) - log_constant(self.factor)
        return value, -solved_rows(self.factor.T, U)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw independent points.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator

        Returns
        -------
        Z : array of shape (n, q)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.generation import Gaussian
        >>> density = Gaussian(np.zeros(2), np.eye(2))
        >>> density.sample(3, np.random.default_rng(0)).shape
        (3, 2)
        """
        xi = backend.normal(rng, (n, int(self.mean.shape[0])), self.mean)
        return self.mean + xi @ self.factor.T


@dataclass(frozen=True)
class KernelDensity(_Both):
    """A kernel density estimate: a Gaussian of one shape on every centre.

    π(z) = 1/n Σ_i N(z; z_i, FFᵀ) (theory 12.1).

    With u = F⁻¹z and weights r_i ∝ exp(−½‖u − u_i‖²), ∇ ln π = F⁻ᵀ(Σ_i r_i u_i − u): it points to
    the weighted mean of the centres. O(nq) per row, in blocks.

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

    centres: Annotated[Array, "n q"]
    factor: Annotated[Array, "q q"]

    def __post_init__(self) -> None:
        """Refuse centres and a factor that do not fit."""
        check_factor(self.factor, int(self.centres.shape[1]))

    def value_and_gradient(self, Z: Array) -> tuple[Array, Array]:
        """Return the log-density and its gradient at every row.

        Parameters
        ----------
        Z : array of shape (m, q)

        Returns
        -------
        values : array of shape (m,)
        gradient : array of shape (m, q)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.generation import KernelDensity
        >>> density = KernelDensity(np.zeros((1, 2)), np.eye(2))
        >>> values, gradient = density.value_and_gradient(np.zeros((1, 2)))
        >>> values.round(2), gradient
        (array([-1.84]), array([[0., 0.]]))
        """
        check_latents(Z, self.factor)
        n, xp = int(self.centres.shape[0]), backend.namespace(Z)
        middle, C = self._white
        U = solved_rows(self.factor, Z - middle)
        values, pulls = [U[:0, 0]], [U[:0, :]]
        for rows in backend.slices(int(Z.shape[0]), backend.block_rows(n, Z)):
            total, weights = log_sum_exp(-0.5 * squared_distances(U[rows, :], C))
            values.append(total)
            pulls.append(weights @ C - U[rows, :])
        value = xp.concat(values, axis=0) - (log_constant(self.factor) + math.log(n))
        return value, solved_rows(self.factor.T, xp.concat(pulls, axis=0))

    @cached_property
    def _white(self) -> tuple[Array, Array]:
        """Their mean, near which distances keep their digits, and F⁻¹ of the centres from it."""
        middle = backend.namespace(self.centres).mean(self.centres, axis=0)
        return middle, solved_rows(self.factor, self.centres - middle)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw independent points.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator

        Returns
        -------
        Z : array of shape (n, q)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.generation import KernelDensity
        >>> density = KernelDensity(np.zeros((1, 2)), np.eye(2))
        >>> density.sample(3, np.random.default_rng(0)).shape
        (3, 2)
        """
        size, q = map(int, self.centres.shape)
        chosen = backend.take(self.centres, rng.integers(size, size=n))
        return chosen + backend.normal(rng, (n, q), self.centres) @ self.factor.T


@dataclass(frozen=True)
class MixtureDensity(_Both):
    """A weighted mixture of densities.

    π = Σ_k w_k π_k; ∇ ln π is the mean of the parts' gradients, weighted by responsibility.

    Parameters
    ----------
    weights : array of shape (k,)
        Positive, sum 1.
    parts : tuple of k densities
        Gaussians, kernel density estimates, or mixtures of these.

    Examples
    --------
    >>> import numpy as np
    >>> at = lambda x: Gaussian(np.array([x]), np.eye(1))
    >>> MixtureDensity(np.array([0.5, 0.5]), (at(-1.0), at(1.0))).gradient(np.array([[0.5]])).round(
    ...     4
    ... )
    array([[-0.0379]])
    """

    weights: Annotated[Array, "k"]
    parts: tuple[Gaussian | KernelDensity | MixtureDensity, ...]

    def __post_init__(self) -> None:
        """Refuse weights that are no shares of the parts."""
        given = backend.to_numpy(self.weights)
        positive = given.shape == (len(self.parts),) and np.all(given > 0)
        if not positive or abs(float(given.sum()) - 1) > 1e-6:
            what = f"{len(self.parts)} positive numbers of sum 1, one per part"
            raise ValueError(expected("weights", what, given))

    @property
    def factor(self) -> Array:
        """F with FFᵀ = Σ_k w_k F_kF_kᵀ, the covariance within a part, (q, q)."""
        within = sum(
            float(share) * part.factor @ part.factor.T
            for share, part in zip(backend.to_numpy(self.weights), self.parts, strict=True)
        )
        return backend.namespace(self.weights).linalg.cholesky(within)

    def value_and_gradient(self, Z: Array) -> tuple[Array, Array]:
        """Return the log-density and its gradient at every row.

        Parameters
        ----------
        Z : array of shape (m, q)

        Returns
        -------
        values : array of shape (m,)
        gradient : array of shape (m, q)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.generation import Gaussian
        >>> density = Gaussian(np.zeros(2), np.eye(2))
        >>> values, gradient = density.value_and_gradient(np.zeros((1, 2)))
        >>> values.round(2), gradient
        (array([-1.84]), array([[-0., -0.]]))
        """
        xp = backend.namespace(Z)
        found = [part.value_and_gradient(Z) for part in self.parts]
        values = xp.stack([value for value, _ in found], axis=1) + xp.log(self.weights)
        total, shares = log_sum_exp(values)
        return total, sum(shares[:, k : k + 1] * gradient for k, (_, gradient) in enumerate(found))

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw independent points.

        Parameters
        ----------
        n : int
        rng : numpy.random.Generator

        Returns
        -------
        Z : array of shape (n, q)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.generation import Gaussian
        >>> density = Gaussian(np.zeros(2), np.eye(2))
        >>> density.sample(3, np.random.default_rng(0)).shape
        (3, 2)
        """
        shares = backend.to_numpy(self.weights)
        counts = rng.multinomial(n, shares / shares.sum()).tolist()
        drawn = [part.sample(k, rng) for part, k in zip(self.parts, counts, strict=True)]
        together = backend.namespace(self.weights).concat(drawn, axis=0)
        return backend.take(together, rng.permutation(n))


def fit_gaussian(Z: Array) -> Gaussian:
    """Return the Gaussian with the mean and covariance (divisor n) of the rows.

    Parameters
    ----------
    Z : array of shape (n, q)

    Returns
    -------
    density : Gaussian

    Examples
    --------
    >>> import numpy as np
    >>> fit_gaussian(np.array([[0.0], [2.0]]))
    Gaussian(mean=array([1.]), factor=array([[1.]]))
    """
    Z = backend.working(Z)
    mean = backend.namespace(Z).mean(Z, axis=0)
    return Gaussian(mean, covariance_factor(Z - mean))


def covariance_factor(Zc: Array) -> Array:
    """Return the Cholesky factor of ZcᵀZc/n; raise where a direction has no variance."""
    xp, n = backend.namespace(Zc), int(Zc.shape[0])
    S = Zc.T @ Zc / n
    values = backend.to_numpy(xp.linalg.eigvalsh(S))
    if not np.all(np.isfinite(values)) or not values[0] > NO_VARIANCE * values[-1]:
        varying = int(np.sum(values > NO_VARIANCE * max(values[-1], 0)))
        raise DegenerateError(
            f"the latents have no density: {n} rows vary in {varying} of {values.size} directions. "
            "Use fewer components, or more rows."
        )
    return xp.linalg.cholesky(S)


def check_factor(factor: Array, q: int) -> None:
    """Refuse what is not a (q, q) lower triangle with a positive diagonal."""
    given = backend.to_numpy(factor)
    if given.shape != (q, q):
        raise ValueError(expected("factor", f"of shape ({q}, {q})", given.shape))
    if not np.all(np.isfinite(given)) or np.any(np.triu(given, 1)) or np.any(np.diag(given) <= 0):
        what = "lower triangular with a positive diagonal"
        raise ValueError(expected("factor", what, given, "Give a Cholesky factor."))


def check_latents(Z: Array, factor: Array) -> None:
    """Refuse rows of another width than the density's."""
    q = int(factor.shape[1])
    if Z.ndim != 2 or Z.shape[1] != q:
        raise ValueError(expected("Z", f"a matrix of {q} columns", tuple(Z.shape)))


def log_constant(factor: Array) -> float:
    """Return q/2 ln 2π + ln|F|."""
    xp = backend.namespace(factor)
    return 0.5 * int(factor.shape[0]) * LOG_2PI + float(xp.sum(xp.log(xp.linalg.diagonal(factor))))


def squared_distances(A: Array, B: Array) -> Array:
    """Return ‖a_i − b_j‖², (m, n), never below 0."""
    D = 2 * A @ B.T - algebra.squared_norms(A)[:, None] - algebra.squared_norms(B)[None, :]
    return -algebra.at_most_zero(D)


def solved_rows(F: Array, Z: Array) -> Array:
    """Return F⁻¹z of every row, (m, q); q is small, so a plain solver will do in every library."""
    return backend.namespace(F).linalg.solve(F, Z.T).T


# --- The bandwidth of a kernel density estimate by leave-one-out likelihood ----------------------

LEFT_OUT = 2000
"""Rows that are left out in turn, evenly spaced; all others remain centres."""

GRIDS = (17, 7, 7, 7)
"""Bandwidths tried in each round, every one around the best of the round before."""

NARROWEST, WIDEST = 1e-3, 8.0
"""Bandwidths of the first round: shares of Silverman's rule of thumb and of the deviation."""


def fit_kernel_density(
    Z: Array, width: float | None = None, shrink: bool = True, *, isotropic: bool = False
) -> KernelDensity:
    """Return the kernel density estimate over rows, with bumps of covariance h² · cov(Z).

    Bumps alone make the variance 1 + h² times too large, 1.2 times in 15 dimensions. Shrunk, all
    is divided by √(1 + h²) about the mean, so that mean and covariance are those of the rows: the
    empirical distribution for h → 0, the Gaussian for h → ∞. That needs bumps of the rows' shape:
    isotropic ones, of covariance h² · tr cov(Z)/q · I, make narrow directions too wide.

    Parameters
    ----------
    Z : array of shape (n, q)
    width : float, default=None
        h; by default from the leave-one-out likelihood (`bandwidth`).
    shrink : bool, default=True
    isotropic : bool, default=False
        The same width in all directions; not with `shrink`.

    Returns
    -------
    density : KernelDensity

    Notes
    -----
    Duin, "On the choice of smoothing parameters for Parzen estimators" (1976); Silverman & Young,
    "The bootstrap: to smooth or not to smooth?" (1987).

    Examples
    --------
    >>> import numpy as np
    >>> kde = fit_kernel_density(np.array([[-1.0], [1.0]]), width=1.0)
    >>> kde.centres.round(4), kde.factor.round(4)
    (array([[-0.7071], [ 0.7071]]), array([[0.7071]]))
    """
    Z = backend.working(Z)
    if Z.shape[0] < 2:
        raise ValueError(expected("Z", "two rows or more", tuple(Z.shape)))
    mean = backend.namespace(Z).mean(Z, axis=0)
    F = covariance_factor(Z - mean)
    if isotropic:
        if shrink:
            what = "False with isotropic bumps, whose shape is not that of the rows"
            raise ValueError(expected("shrink", what, shrink))
        unit = math.sqrt(float(backend.namespace(Z).mean(F * F)) * int(F.shape[0]))
        F = unit * backend.identity(int(F.shape[0]), F)
    if width is None:
        width = bandwidth(solved_rows(F, Z - mean), shrink)
    elif not 0 < width < math.inf:
        raise ValueError(expected("bandwidth", "a positive number", width))
    c = 1 / math.sqrt(1 + width * width) if shrink else 1.0
    return KernelDensity(mean + c * (Z - mean), c * float(width) * F)


def bandwidth(U: Array, shrink: bool = True) -> float:
    """Return h of the largest leave-one-out likelihood with bumps N(0, h²I), to about 2 %.

    A grid from next to nothing to next to a Gaussian, then three finer ones around the best: four
    passes over the distances, which are formed in blocks. O(min(n, 2000) · n · q) a pass.

    Parameters
    ----------
    U : array of shape (n, q)
        White rows: mean 0 and covariance I.
    shrink : bool
        As in `fit_kernel_density`.

    Examples
    --------
    >>> import numpy as np
    >>> U = np.random.default_rng(0).normal(size=(1000, 1))
    >>> 0.1 < bandwidth(U, shrink=False) < 0.4 < bandwidth(U)
    True
    """
    n, q = map(int, U.shape)
    thumb = (4 / (n * (q + 2))) ** (1 / (q + 4))
    low, high = math.log(NARROWEST * thumb), math.log(WIDEST)
    for turn, count in enumerate(GRIDS):
        tried = np.exp(np.linspace(low, high, count))
        best = int(np.argmax(leave_one_out(U, tried, shrink)))
        if turn == 0 and best == 0:
            raise DegenerateError(
                "rows repeat each other, and the likelihood of leaving one out grows without end "
                "as the bandwidth shrinks. Give a bandwidth, or leave out repeated rows."
            )
        low, high = np.log(tried[max(best - 1, 0)]), np.log(tried[min(best + 1, count - 1)])
    return float(tried[best])


def leave_one_out(U: Array, widths: np.ndarray, shrink: bool = True) -> np.ndarray:
    """Return the mean of ln π₋ᵢ(u_i) for every bandwidth, π₋ᵢ being the estimate without u_i.

    ln π₋ᵢ(u_i) = ln Σ_{j≠i} exp(−‖u_i − c u_j‖²/2b²) − ln(n − 1) − q ln b − q/2 ln 2π, with
    b = ch and c = 1/√(1 + h²) if shrunk, 1 if not; mean and covariance stay those of all rows.
    Of many rows 2000, evenly spaced, are left out in turn. All bandwidths share the products.

    Parameters
    ----------
    U : array of shape (n, q)
        White rows.
    widths : array of shape (k,)
    shrink : bool

    Examples
    --------
    >>> import numpy as np
    >>> leave_one_out(np.array([[0.0], [1.0]]), np.array([1.0, 2.0]), shrink=False).round(4)
    array([-1.4189, -1.7371])
    """
    xp, (n, q) = backend.namespace(U), map(int, U.shape)
    held, norms = np.arange(0, n, -(-n // LEFT_OUT)), algebra.squared_norms(U)
    c = 1 / np.sqrt(1 + widths**2) if shrink else np.ones(len(widths))
    totals = np.zeros(len(widths))
    for rows in backend.slices(len(held), backend.block_rows(n, U)):
        P = backend.take(U, held[rows]) @ U.T
        same = xp.asarray(held[rows, None] == np.arange(n), device=backend.device_of(U))
        P = xp.where(same, xp.full_like(P, -math.inf), P)  # a row is infinitely far from itself
        own = backend.take(norms, held[rows])[:, None]
        for k, (a, b) in enumerate(zip(c.tolist(), (c * widths).tolist(), strict=True)):
            E = (2 * a * P - own - a * a * norms) / (2 * b * b)
            totals[k] += float(xp.sum(log_sum_exp(E)[0]))
    constant = math.log(n - 1) + 0.5 * q * LOG_2PI
    return np.asarray(totals / len(held) - constant - q * np.log(c * widths))


# --- Narrower and wider densities, by a temperature ----------------------------------------------


def tempered(density: Any, temperature: float) -> Any:
    """Return the density with the covariance of every Gaussian in it times T; centres stay.

    A Gaussian becomes π^{1/T}, normalised, and so do parts of a mixture that lie apart. T < 1 draws
    points nearer to the centres: less varied, and less often where the density knows little.

    Parameters
    ----------
    density : Gaussian, KernelDensity or MixtureDensity
    temperature : float
        T > 0.

    Examples
    --------
    >>> import numpy as np
    >>> tempered(Gaussian(np.zeros(1), np.array([[2.0]])), 0.25).factor
    array([[1.]])
    """
    if not 0 < temperature < math.inf:
        raise ValueError(expected("temperature", "a positive number", temperature))
    if isinstance(density, MixtureDensity):
        return replace(density, parts=tuple(tempered(part, temperature) for part in density.parts))
    if isinstance(density, Gaussian | KernelDensity):
        return replace(density, factor=math.sqrt(temperature) * density.factor)
    raise ValueError(expected("density", "Gaussian, KernelDensity or MixtureDensity", density))
