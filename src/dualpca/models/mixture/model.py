"""A mixture of PPCA as a density (`Mixture`) and as a fitted model (`MixtureModel`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend, cached_property, log_sum_exp, moved, quadratic
from dualpca.gaussian import Latents, ParameterErrors, Reference
from dualpca.models.driver import History
from dualpca.models.emissions import Emissions, Observations, label_order
from dualpca.models.kernel_space import KernelSpace
from dualpca.models.mixture.choosing import MixtureSelection
from dualpca.models.spiked import variances_like

LEAST_WEIGHT = 1e-30
"""Smallest weight of a component: its logarithm must exist."""


class Shares(NamedTuple):
    """Weights of the components, as an E step needs them."""

    weights: Array  # (K,), sum 1
    log_weights: Array  # (K,), added to ln p(x | k)
    constant: float = 0.0  # added to Σ_n ln Σ_k exp(…): 0 for a likelihood


def proportions(mass: Array) -> Shares:
    """Return the weights of maximum likelihood, n_k/n."""
    xp = backend.namespace(mass)
    weights = mass / xp.sum(mass)
    least = 0 * weights + LEAST_WEIGHT
    return Shares(weights, xp.log(xp.where(weights > least, weights, least)))


# --- The density, and the fitted model -----------------------------------------------------------


@dataclass(frozen=True)
class Mixture:
    """Weights π_k and components: a density over rows, or over points of a kernel's space.

    Examples
    --------
    >>> import numpy as np
    >>> one = Emissions(np.zeros((1, 2)), (np.ones((2, 1)),), np.ones(1))
    >>> Mixture(np.ones(1), one).log_density(np.zeros((1, 2))).round(4)
    array([-2.3872])
    """

    weights: Annotated[Array, "K", ">= 0, sum 1"]
    emissions: Annotated[Emissions, "K d"]

    def joint(self, X: Observations) -> Array:
        """Return ln π_k + ln p(x_i | k), (n, K)."""
        return self.emissions.log_density(X) + proportions(self.weights).log_weights

    def log_density(self, X: Observations) -> Array:
        """Return ln p(x_i), (n,)."""
        return log_sum_exp(self.joint(X))[0]

    def responsibilities(self, X: Observations) -> Array:
        """Return p(k | x_i), (n, K)."""
        return log_sum_exp(self.joint(X))[1]

    def numbered(self, features: tuple[Array, Array] | None = None) -> Mixture:
        """Return the mixture with numbers and signs that do not depend on how it was found.

        `features`, in a kernel's space: mean and variance of the inputs under every component.
        """
        e, weights = self.emissions, self.weights
        found = e.feature_moments() if features is None else features
        means, variances, pi = map(backend.to_numpy, (*found, weights))
        order = label_order(means, variances, pi, e.ranks)
        return Mixture(backend.take(weights, order), e.take(order.tolist()).signed())

    def n_parameters(self) -> int:
        """Return the number of free parameters."""
        return sum(self.emissions.n_parameters()) + self.emissions.K - 1

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw n rows, in random order, and the components they come from."""
        pi = np.asarray(backend.to_numpy(self.weights), dtype=np.float64)
        labels = rng.choice(self.emissions.K, size=n, p=pi / np.sum(pi))
        return self.emissions.sample(labels, rng), labels


@dataclass(frozen=True)
class MixtureModel:
    """A fitted mixture of PPCA, over the features or over the coordinates ψ(x) in a kernel's space.

    Arrays have the dtype of the rows that were fitted; everything is computed in float64. Methods
    accept rows of the input space, with NaN where there is no kernel.
    """

    mixture: Annotated[Mixture, "K m=d"]
    components: tuple[Annotated[Array, "* m"], ...]  # principal axes, largest variance first
    variances: tuple[Annotated[Array, "*", ">= 0"], ...]  # along them
    loglikelihood: Annotated[float, "or nan, or inf"]  # of the training rows
    lower_bound: Annotated[float, "or nan, or inf"]  # per row, of what EM maximised
    history: History
    selection: MixtureSelection | None = None
    space: Annotated[KernelSpace, "m d"] | None = None
    n_rows: Annotated[float, ">= 0"] = 0.0  # effective; 0 where nothing says so

    def __post_init__(self) -> None:
        """Refuse axes and variances that are not those of the components."""
        shapes = [tuple(W.shape) for W in self.mixture.emissions.loadings]
        axes = [(int(V.shape[1]), int(V.shape[0])) for V in self.components]
        ranks = [int(values.shape[0]) for values in self.variances]
        m = self.mixture.emissions.dim if self.space is None else self.space.m
        if shapes != axes or [q for _, q in shapes] != ranks or any(d != m for d, _ in shapes):
            raise ValueError("axes, variances and loadings of a mixture differ in size")

    @cached_property
    def working(self) -> Mixture:
        """The mixture in float64."""
        return moved(self.mixture, backend.working)

    @property
    def covariances(self) -> Array:
        """W_kW_kᵀ + σ_k²I, (K, m, m)."""
        return backend.cast_like(self.working.emissions.covariances, self.mixture.weights)

    def points(self, rows: Array) -> Array:
        """Return what the mixture is a density of: the rows, or ψ(x) in the space of the kernel."""
        return rows if self.space is None else self.space(rows)

    def joint(self, rows: Array) -> Array:
        """Return ln π_k + ln p(x | k), (n, K)."""
        return self.working.joint(self.points(rows))

    def responsibilities(self, rows: Array) -> Array:
        """Return p(k | x), (n, K)."""
        return self.working.responsibilities(self.points(rows))

    @cached_property
    def errors(self) -> tuple[ParameterErrors, ...] | None:
        """What the parameters of every component may be off by, fitted to its share of the rows.

        None where the number of rows is not known.
        """
        if not self.n_rows > 0:
            return None
        e, mass = self.working.emissions, self.n_rows * backend.to_numpy(self.mixture.weights)
        rows = [Reference(n, n) for n in np.maximum(mass, 1.0).tolist()]
        return tuple(ParameterErrors.of(e.factors(k), rows[k]) for k in range(e.K))

    @property
    def matter(self) -> bool:
        """True if errors of parameters add something that shows to answers about any component."""
        return self.errors is not None and any(one.matter for one in self.errors)

    def probabilities(self, rows: Array) -> Array:
        """Return p(k | x), (n, K), averaged over what the parameters may be (theory 6)."""
        if self.errors is None or self.working.emissions.K == 1:
            return self.responsibilities(rows)
        points, e = self.points(rows), self.working.emissions
        table, xp = e.table(points), backend.namespace(points)
        sizes = xp.sum(xp.astype(~xp.isnan(points), xp.float64), axis=1)
        found = [e.posterior(table, k) for k in range(e.K)]
        columns = [
            log_density_variance(one, sizes, errors.rows)
            for one, errors in zip(found, self.errors, strict=True)
        ]
        return shares_unsure(self.working.joint(points), xp.stack(columns, axis=1))

    def log_density(self, rows: Array) -> Array:
        """Return ln p of what each row observed, (n,)."""
        return self.working.log_density(self.points(rows))

    def posterior(self, rows: Array, k: int, *, estimated: bool = False) -> tuple[Array, Array]:
        """Return mean and covariance of the latents under component k, (n, q) and (n, q, q)."""
        points = self.points(rows)
        found = self.working.emissions.posterior(points, k)
        if not estimated or self.errors is None or not found.mean.shape[1]:
            return found.mean, found.covariance
        return found.mean, self.errors[k].latent_covariance(points)

    def _latents(self, rows: Array) -> tuple[Array, list[Latents]]:
        """Return p(k | x), (n, K), and the posterior of z under every component."""
        points, mixture = self.points(rows), self.working
        table = mixture.emissions.table(points)
        found = [mixture.emissions.posterior(table, k) for k in range(mixture.emissions.K)]
        return mixture.responsibilities(points), found

    def coordinates(self, rows: Array) -> Array:
        """Return p(k | x) E[z | x, k] of all components side by side, (n, Σq_k)."""
        resp, found = self._latents(rows)
        weighted = [one.mean * resp[:, k : k + 1] for k, one in enumerate(found)]
        return backend.namespace(resp).concat(weighted, axis=1)

    def signal(
        self, rows: Array, spread: bool = False, *, estimated: bool = False
    ) -> tuple[Array, Array | None]:
        """Return Σ_k p(k | x)(μ_k + W_k E[z | x, k]), (n, m), and the deviation of a measurement.

        That counts the spread within components and between them, and what errors of parameters
        add to both if they are to be counted as `estimated`.
        """
        (resp, found), e = self._latents(rows), self.working.emissions
        means = [one.mean @ e.loadings[k].T + e.means[k, :] for k, one in enumerate(found)]
        mean = sum(resp[:, k : k + 1] * each for k, each in enumerate(means))
        if not spread:
            return mean, None
        unsure = self.errors if estimated else None
        resp = resp if unsure is None else self.probabilities(rows)
        variance, points = 0 * mean, self.points(rows)
        for k, one in enumerate(found):
            if unsure is None or not e.ranks[k]:
                within = quadratic(one.covariance, e.loadings[k]) + e.noises[k]
            else:
                noise = unsure[k].factors.psi * unsure[k].inflation
                within = unsure[k].signal_variance(points) + noise
            variance = variance + resp[:, k : k + 1] * (within + (means[k] - mean) ** 2)
        return mean, backend.namespace(rows).sqrt(variance)


UNTOLD = 1e-9
"""What a row tells of an axis, of 1, below which it tells nothing."""


def log_density_variance(found: Latents, sizes: Array, rows: float) -> Array:
    """Return the variance of ln p(x) and ln π under a component that was fitted to n rows, (b,).

    To first order, with A the squared distance along the axes, B that off them and m = |o| − q:

        n var = 1 + q/2 + A²/2 + (1 + A) B + (B − m)²/2m,

    the errors of the weight and the mean, of variances along axes and off them, and of turns.

    Parameters
    ----------
    found : Latents
    sizes : array of shape (b,)
        |o|, the number of entries that each row observed.
    rows : float
        n.

    Examples
    --------
    >>> one = Latents(np.ones((1, 1)), 0.5 * np.ones((1, 1, 1)), *np.array([[0.0], [5.0], [0.0]]))
    >>> float(log_density_variance(one, np.array([4.0]), 100.0)[0])  # A = 2, B = 3, m = 3
    0.125
    """
    xp, q = backend.namespace(found.mean), int(found.mean.shape[1])
    told = backend.identity(q, found.mean) * (1 + UNTOLD) - found.covariance
    z = found.mean
    along = xp.sum(z * xp.linalg.solve(told, z[:, :, None])[:, :, 0], axis=1)
    off, m = found.distance - along, sizes - q
    off, m = xp.where(off > 0, off, 0 * off), xp.where(m > 1, m, xp.ones_like(m))
    return (1 + q / 2 + along * along / 2 + (1 + along) * off + (off - m) ** 2 / (2 * m)) / rows


def shares_unsure(joint: Array, variance: Array) -> Array:
    """Return p(k | x) where ln π_k p(x | k) has a variance, (n, K).

    A logit of mean l and variance v has an average probability of about that of l/√(1 + πv/8)
    (MacKay 1992; theory 6.2): logits beside the most probable component shrink, and it stays most
    probable.

    Examples
    --------
    >>> shares_unsure(np.log([[0.9, 0.1]]), np.array([[1.0, 1.0]])).round(2)
    array([[0.84, 0.16]])
    """
    xp = backend.namespace(joint)
    top = xp.argmax(joint, axis=1)[:, None]
    logit = joint - xp.take_along_axis(joint, top, axis=1)
    both = variance + xp.take_along_axis(variance, top, axis=1)
    return log_sum_exp(logit / xp.sqrt(1 + math.pi / 8 * both))[1]


def model_of(
    mixture: Mixture, like: Array, loglikelihood: float, lower_bound: float, **others: Any
) -> MixtureModel:
    """Return a mixture as a model, in the dtype of `like`, with the axes of its components."""
    e, cast = mixture.emissions, partial(backend.cast_like, X=like)
    axes = [algebra.svd(W) for W in e.loadings]
    components = tuple(cast(U.T) for U, _, _ in axes)
    variances = tuple(cast(s * s + e.noises[k]) for k, (_, s, _) in enumerate(axes))
    settled = {"noises": variances_like(e.noises, like), "floor": 0.0, "prior": None}
    kept = moved(mixture, cast)
    kept = replace(kept, emissions=replace(kept.emissions, **settled))
    return MixtureModel(kept, components, variances, loglikelihood, lower_bound, **others)
