"""K Gaussians with a few stretched directions each, which mixtures and chains emit (theory 6.1).

First the M step for one component (`Unsettled`), then all of them (`Emissions`), then what EM keeps
of the rows (`EmissionSums`, `WeightedRows`) and knows of them before it starts (`Surveyed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend, cached_property
from dualpca.data import (
    Columns,
    Host,
    InMemoryTable,
    Moments,
    Table,
    column_starts,
    has_missing,
    in_memory,
    observed_weights,
)
from dualpca.errors import ScaleError
from dualpca.gaussian import (
    Factors,
    Incomplete,
    Latents,
    SpikedDensities,
    Sums,
    free_parameters,
    latents,
    left_over,
    m_step,
    moment_sums,
)
from dualpca.models.clusters import kmeans
from dualpca.models.driver import Keeper, Watch, if_singular
from dualpca.models.expanded import WELL_SPREAD, Expanded
from dualpca.models.incomplete import check_unit, refuse_empty_columns, start
from dualpca.operators import Primal, Scatter
from dualpca.solvers import choose, solve

# --- The M step: weighted maximum likelihood of spiked Gaussians, noise to be settled ------------

NEGLIGIBLE_SHARE = 1e-20
"""Responsibility, relative to the largest, below which a row is left out of a component."""

NO_WEIGHT = 1e-200
"""Weight of a chunk's rows in a component below which they are left out of it."""

EMPTY = 1e-12
"""Share of all weight below which a component has no rows and stays as it is."""

SINGULAR = (
    "the covariance of a component is singular: its loadings are too large for its noise. Fit "
    "again with a larger noise_floor, or fewer components."
)


class Prior(NamedTuple):
    """n rows counted in for every component, spread evenly around its mean.

    ln p(C) = −(n/2)(ln|C| + v tr C⁻¹) up to a constant, an inverse Wishart density with a round
    scale. Eigenvectors stay, and a variance ℓ becomes (n_k ℓ + n v)/(n_k + n).
    """

    n: Annotated[float, ">= 0"]
    variance: Annotated[float, ">= 0"]  # v

    def sums(self, factors: Factors) -> Sums:
        """Return the sums of the E step over those rows."""
        mu = factors.mu
        scatter = self.n * self.variance * backend.asarray(np.eye(mu.shape[0]), mu)
        return moment_sums(Moments(self.n, mu, scatter), factors)


class Unsettled(NamedTuple):
    """A component whose noise is not settled yet: W is `axes` · √(values − σ²), or W itself."""

    mu: Array  # (d,)
    axes: Array  # (d, q), principal axes; loadings where `values` is None
    values: Array | None  # (q,), variances along them
    left: float  # sum of squares off the axes, weighted
    dims: float  # weight times the number of directions that it is spread over
    n: float

    def under(self, prior: Prior | None) -> Unsettled:
        """Return the component with the rows of a prior counted in."""
        if prior is None or self.values is None:
            return self
        n, seen = self.n + prior.n, prior.n * prior.variance
        short = self.dims / self.n
        values = (self.n * self.values + seen) / n
        return Unsettled(self.mu, self.axes, values, self.left + short * seen, short * n, n)

    def factors(self, sigma2: float) -> Factors:
        """Return the component with noise σ²; directions of no more variance have no loading."""
        xp, W = backend.namespace(self.mu), self.axes
        if self.values is not None:
            excess = self.values - sigma2
            W = W * xp.sqrt(xp.where(excess > 0, excess, xp.zeros_like(excess)))
        return Factors(W, self.mu, xp.full_like(self.mu, sigma2))


def pooled_noise(parts: Sequence[Unsettled]) -> float:
    """Return the σ² that all parts share at the maximum.

    Every direction of variance ℓ ≤ σ² belongs to the noise, so the smallest are pooled one by one
    until the rest lies above.

    Examples
    --------
    >>> import numpy as np
    >>> part = Unsettled(np.zeros(3), np.eye(3)[:, :1], np.array([5.0]), 8.0, 8.0, 4.0)
    >>> pooled_noise([part])
    1.0
    """
    left, dims = sum(p.left for p in parts), sum(p.dims for p in parts)
    if not dims > 0:
        return 0.0
    with_values = ((p.n, backend.to_numpy(p.values)) for p in parts if p.values is not None)
    for ell, n in sorted((float(ell), n) for n, values in with_values for ell in values):
        if ell * dims > left:
            break
        left, dims = left + n * ell, dims + n
    return left / dims


def weighted_part(X: Array, w: Host, q: int) -> Unsettled:
    """Return the maximum of Σ w ln p(x): the spectrum of weighted rows.

    Rows that hardly belong to the component are left out, so separate components cost O(nd²)
    together.
    """
    member = np.flatnonzero(w > NEGLIGIBLE_SHARE * np.max(w))
    # n scales out of means and variances; weights of size 1 keep sums off underflow
    own = backend.asarray(w[member] / np.max(w), X)
    rows = X if member.size == w.size else backend.take(X, member)
    try:
        return closed_part(Primal(rows, own), q, float(np.sum(w)))
    except ScaleError:  # beside one row all others together are rounding
        mu, d, n = backend.working(X[int(np.argmax(w)), :]), int(X.shape[1]), float(np.sum(w))
        return Unsettled(mu, *_without_variance(mu, q), 0.0, n * (d - q), n)


def closed_part(operator: Primal | Scatter, q: int, n: float) -> Unsettled:
    """Return the component of weight n that the leading q eigenpairs make."""
    d = operator.dim
    rank = min(q, d, int(operator.X.shape[0]) if isinstance(operator, Primal) else d)
    solver = choose(operator, rank)
    if solver == "dense" and isinstance(operator, Primal):
        _ = operator.moments  # all that follows can be read off them: one pass instead of two
    spectrum = solve(operator, rank, solver)
    xp, short = backend.namespace(spectrum.values), q - spectrum.rank
    values, V = spectrum.values / operator.n, spectrum.vectors
    if short:  # fewer rows than directions: the others have no variance, unless a prior has some
        others, nothing = _without_variance(operator.frame.mean, short)
        V = algebra.orthonormal(xp.concat([V, others], axis=1))
        values = xp.concat([values, nothing])
    left = left_over(spectrum.trace, float(xp.sum(spectrum.values))) / operator.n
    return Unsettled(operator.frame.mean, V, values, n * left, n * (d - q), n)


def _without_variance(mu: Array, q: int) -> tuple[Array, Array]:
    """Return q orthonormal axes (d, q), whichever, and their variances, 0."""
    drawn = backend.normal(np.random.default_rng(0), (int(mu.shape[0]), q), mu)
    return algebra.orthonormal(drawn), backend.asarray(np.zeros(q), mu)


def summed_part(sums: Sums, n: float, old: Factors, prior: Prior | None) -> Unsettled:
    """Take one parameter-expanded EM step on sums of rows with NaN (theory 4).

    The rows of a prior lie around the old mean, so it holds the mean back but never lowers the
    objective, in which they lie around the new one.
    """
    xp = backend.namespace(old.mu)
    sums = sums if prior is None else sums.plus(prior.sums(old))
    W, mu, left = m_step(_anchored(sums, old), old)
    return Unsettled(mu, W, None, float(xp.sum(left)), float(xp.sum(sums.n)), n)


def _anchored(sums: Sums, old: Factors) -> Sums:
    """Return the sums with the old regression for features that no row of the component observes.

    Their equations would be 0 = 0; one row at w_j with posterior N(0, I) makes them w'_j = w_j.
    """
    xp = backend.namespace(sums.n)
    blind = sums.n <= EMPTY * sums.all_n
    if not bool(xp.any(blind)):
        return sums
    eye = backend.asarray(np.eye(sums.z.shape[1]), sums.z)
    column, cube = blind[:, None], blind[:, None, None]
    return sums._replace(
        zz=xp.where(cube, eye, sums.zz),
        z=xp.where(column, xp.zeros_like(sums.z), sums.z),
        n=xp.where(blind, xp.ones_like(sums.n), sums.n),
        xz=xp.where(column, old.W, sums.xz),
        x=xp.where(blind, xp.zeros_like(sums.x), sums.x),
        xx=xp.where(blind, xp.sum(old.W * old.W, axis=1), sums.xx),
    )


def first_part(
    X: Array, w: Host, q: int, everywhere: tuple[Array, Array], rng: np.random.Generator
) -> Unsettled:
    """Return a component to start EM from on rows with NaN: the span of a cluster, filled.

    `everywhere` is mean and variance of all rows: a feature observed once or never in the cluster
    has them.
    """
    xp, member = backend.namespace(X), np.flatnonzero(w > 0)
    rows, own = backend.take(X, member), backend.asarray(w[member], X)
    seen, mu, variance = column_starts(rows, own)
    mu = xp.where(seen > 0, mu, everywhere[0])
    variance = xp.where(variance > 0, variance, everywhere[1])
    W = start(Incomplete(rows, own, q), q, mu, variance, rng)
    unit, n = float(xp.mean(variance)), float(np.sum(w))
    noise = max(unit - float(xp.sum(W * W)) / int(X.shape[1]), 0.05 * unit)
    return Unsettled(mu, W, None, noise * n, n, n)


# --- All components: densities, and weighted maximum likelihood ----------------------------------

Observations = Array | Incomplete | Expanded
"""Rows as they are; with products of features; or cut into blocks by their patterns of NaN.

The last two are found once for all steps of EM.
"""


def ranks_of(K: int, q: int | Sequence[int]) -> list[int]:
    """Return the number of directions of each of K components."""
    return [int(one) for one in np.broadcast_to(q, K)]


@dataclass(frozen=True)
class Emissions:
    """N(μ_k, W_kW_kᵀ + σ_k²I) for k = 1 … K, each with q_k directions of its own.

    Parameters
    ----------
    means : array of shape (K, d)
        μ_k.
    loadings : tuple of arrays of shape (d, q_k)
        W_k.
    noises : array of shape (K,)
        σ_k².
    floor : float
        Smallest noise that `update` may return: without it a component can collapse on a point.
    tied : bool
        One σ² for all components.
    prior : Prior, optional
        Counted in by `update`, which then maximises the posterior density.

    Notes
    -----
    Tipping & Bishop (1999b). Densities of complete rows cost O(ndq) per component, and nothing d×d
    is formed for them.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(size=(50, 3)) - 5, rng.normal(size=(50, 3)) + 5])
    >>> model = Emissions.start(X, 2, 1, rng)
    >>> sorted(model.means[:, 0].round(0).tolist()), model.log_density(X).shape
    ([-5.0, 5.0], (100, 2))
    """

    means: Annotated[Array, "K d"]
    loadings: Annotated[tuple[Annotated[Array, "d *"], ...], "K"]  # K of them
    noises: Annotated[Array, "K", "> 0"]
    floor: Annotated[float, ">= 0"] = 0.0
    tied: bool = False
    prior: Prior | None = None

    @classmethod
    def start(
        cls,
        X: Array | Expanded,
        K: int,
        q: int | Sequence[int],
        rng: np.random.Generator,
        floor: float = 0.0,
        tied: bool = False,
        *,
        labels: Array | None = None,
        sample_weight: Array | None = None,
    ) -> Emissions:
        """Return the components of clusters: given labels, or k-means from a k-means++ start.

        Parameters
        ----------
        X : array of shape (n, d), or Expanded
        K : int
        q : int or sequence of K ints
        rng : Generator
        floor, tied
            As above.
        labels : array of int of shape (n,), optional
            On the host, from 0 to K − 1.
        sample_weight : array of shape (n,), optional
        """
        rows = X.rows if isinstance(X, Expanded) else X
        if labels is None:
            labels = kmeans(rows, K, rng, sample_weight)
        weights = np.equal.outer(labels, np.arange(K)).astype(float)
        if sample_weight is not None:
            weights *= backend.to_numpy(sample_weight)[:, None]
        ranks = ranks_of(K, q)
        nowhere = cls.nowhere(rows, ranks, floor, tied)  # where no row belongs to k
        if isinstance(X, Expanded):
            return nowhere._with_moments(X, weights)
        if not has_missing(rows):
            return nowhere._with_rows(rows, weights)
        everywhere = column_starts(rows, backend.asarray(np.sum(weights, axis=1), rows))[1:]
        return nowhere._with(
            np.sum(weights, axis=0),
            lambda k: first_part(rows, weights[:, k], ranks[k], everywhere, rng),
        )

    @classmethod
    def nowhere(cls, like: Array, ranks: Sequence[int], floor: float, tied: bool) -> Emissions:
        """Return components that are at 0 and have no spread, for `update` to replace."""
        K, d = len(ranks), int(like.shape[1])
        loadings = tuple(backend.asarray(np.zeros((d, q)), like) for q in ranks)
        zeros = (np.zeros((K, d)), np.full(K, max(floor, 1e-300)))
        means, noises = (backend.asarray(a, like) for a in zeros)
        return cls(means, loadings, noises, floor, bool(tied))

    @classmethod
    def restored(
        cls, arrays: Mapping[str, Host], like: Array, floor: float, tied: bool, prior: Prior | None
    ) -> Emissions:
        """Return the components of a checkpoint, as `arrays` gave them."""
        K = len(arrays["means"])
        names = ("means", "noises", *(f"W{k}" for k in range(K)))
        means, noises, *W = (backend.asarray(arrays[name], like) for name in names)
        return cls(means, tuple(W), noises, floor, bool(tied), prior)

    def arrays(self) -> dict[str, Host]:
        """Return means, noises and loadings by name, for a checkpoint."""
        named = {"means": self.means, "noises": self.noises}
        named |= {f"W{k}": W for k, W in enumerate(self.loadings)}
        return {name: backend.to_numpy(values) for name, values in named.items()}

    @property
    def K(self) -> int:
        """Number of components."""
        return int(self.means.shape[0])

    @property
    def dim(self) -> int:
        """d, the number of features."""
        return int(self.means.shape[1])

    @property
    def ranks(self) -> tuple[int, ...]:
        """q_k."""
        return tuple(int(W.shape[1]) for W in self.loadings)

    @property
    def covariances(self) -> Array:
        """W_kW_kᵀ + σ_k²I, (K, d, d)."""
        eye, pairs = backend.asarray(np.eye(self.dim), self.means), enumerate(self.loadings)
        dense = [W @ W.T + self.noises[k] * eye for k, W in pairs]
        return backend.namespace(self.means).stack(dense)

    def factors(self, k: int) -> Factors:
        """Return component k as (W, μ, ψ)."""
        psi = backend.namespace(self.means).broadcast_to(self.noises[k], (self.dim,))
        return Factors(self.loadings[k], self.means[k, :], psi)

    @cached_property
    def densities(self) -> SpikedDensities:
        """What the densities of complete rows need, found when it is first asked for."""
        with if_singular(SINGULAR):
            return SpikedDensities(self.means, self.loadings, self.noises)

    def log_density(self, X: Observations) -> Array:
        """Return ln p(x_i | k) of what each row observed, (n, K); −∞ for no row under every k."""
        xp = backend.namespace(self.means)
        with np.errstate(over="ignore", invalid="ignore"):
            if isinstance(X, Expanded):
                found = X.log_density(self.means, self.loadings, self.noises)
                if found is not None:
                    return found  # finite: no row is far from any component
                found = self.densities(X.rows)
            elif isinstance(X, Incomplete) or has_missing(X):
                table, every = self.table(X), range(self.K)
                columns = [[one.log_density for one in self._latents(table, k)] for k in every]
                found = xp.stack([xp.concat(parts) for parts in columns], axis=1)
            else:
                found = self.densities(X)
        refuse_nowhere(found)
        return found

    def table(self, X: Observations) -> Incomplete:
        """Return rows with NaN cut into blocks, their patterns found once for all calls."""
        if isinstance(X, Incomplete):
            return X
        return Incomplete(X.rows if isinstance(X, Expanded) else X, None, max(self.ranks))

    def _latents(self, X: Incomplete, k: int) -> Iterator[Latents]:
        factors = self.factors(k)
        with if_singular(SINGULAR):
            for block in X.blocks(factors.mu):
                yield latents(factors, block)

    def posterior(self, X: Observations, k: int) -> Latents:
        """Return the posterior of z under component k: means, covariances and log-densities."""
        xp, found = backend.namespace(self.means), self._latents(self.table(X), k)
        return Latents(*(xp.concat(list(part), axis=0) for part in zip(*found, strict=True)))

    def posterior_means(self, X: Observations, k: int) -> Array:
        """Return the means of `posterior`; covariances are those of one block at a time."""
        means = [one.mean for one in self._latents(self.table(X), k)]
        return backend.namespace(self.means).concat(means, axis=0)

    def update(self, X: Observations, resp: Array) -> Emissions:
        """Return the components that maximise Σ ρ_nk ln p(x_n | k) (theory 2 with weights).

        With NaN it is one parameter-expanded EM step per component, which never lowers that sum.

        Parameters
        ----------
        X : array of shape (n, d), Incomplete or Expanded
        resp : array of shape (n, K)
            ρ, times the weights of rows; not negative. A component that no row belongs to stays as
            it is.

        Returns
        -------
        Emissions
            With no σ_k² below `floor`; directions whose variance is below it have no loading.
        """
        if isinstance(X, Expanded):
            return self._with_moments(X, resp)
        if isinstance(X, Incomplete) or has_missing(X):
            return EmissionSums.of(self, self.table(X), resp).maximise(self)
        return self._with_rows(X, backend.to_numpy(resp))

    def sums(self, X: Observations, resp: Array, *, in_memory: bool) -> RowSums:
        """Return what the M step needs of rows with shares, times weights, (n, K)."""
        if in_memory:
            return WeightedRows(X, backend.asarray(resp, self.means))
        return EmissionSums.of(self, X, resp)

    def of_moments(self, moments: Sequence[Moments]) -> Emissions:
        """Return the components that maximise the likelihood of moments, one for each k."""
        mass = np.array([m.n for m in moments])
        return EmissionSums(mass, tuple(moments)).maximise(self)

    def _with_rows(self, X: Array, weights: Host) -> Emissions:
        """Return the components of complete rows with weights (n, K)."""
        total, ranks = np.sum(weights, axis=0), self.ranks
        return self._with(total, lambda k: weighted_part(X, weights[:, k], ranks[k]))

    def _with(self, mass: Host, part: Callable[[int], Unsettled]) -> Emissions:
        """Return the components that `part(k)` finds; old ones where k has no mass.

        Their noise is left/dims, or one for all, never below the floor.
        """
        some = np.flatnonzero(mass > EMPTY * np.sum(mass)).tolist()
        found = {k: part(k).under(self.prior) for k in some}
        common = pooled_noise(list(found.values())) if self.tied and found else None
        new = [self.factors(k) for k in range(self.K)]
        for k, one in found.items():
            own = one.left / one.dims if one.dims > 0 else 0.0
            new[k] = one.factors(max(own if common is None else common, self.floor))
        xp = backend.namespace(self.means)
        noises = xp.stack([f.psi[0] for f in new])
        return replace(
            self,
            means=xp.stack([f.mu for f in new]),
            loadings=tuple(f.W for f in new),
            noises=noises if common is None else noises * 0 + max(common, self.floor),
        )

    def _with_moments(self, X: Expanded, resp: Host) -> Emissions:
        """Return the components of rows with products, all at once, as `_with` does one by one.

        Those whose smallest variance would lose digits are found from the rows themselves.
        """
        found, floor, prior, ranks = X.moments(resp), self.floor, self.prior, self.ranks
        off, last, none, full = _directions(ranks, self.dim)
        most, n, values = max(ranks), found.mass, np.maximum(found.values, 0.0)
        own = np.add.reduce(values * off, axis=1)
        exact = np.minimum(values[last] + none, own + full) > WELL_SPREAD * found.reach
        if self.tied or not (exact.all() and n.min() > EMPTY * np.add.reduce(n)):
            return self._with(n, lambda k: self._part(X, resp, found, k, bool(exact[k])))
        if prior is not None:
            seen = prior.n * prior.variance
            values = ((n * values.T + seen) / (n + prior.n)).T
            own = np.where(full > 0, 0.0, (n * own + seen) / (n + prior.n))
        noises = np.maximum(own, floor)
        excess = np.maximum(values[:, :most] - noises[:, None], 0.0)
        W = found.vectors[:, :, :most] * np.sqrt(excess)[:, None, :]
        loadings = tuple(one[:, :q] for one, q in zip(W, ranks, strict=True))
        return Emissions(found.means, loadings, noises, floor, self.tied, prior)

    def _part(self, X: Expanded, resp: Host, found: Any, k: int, exact: bool) -> Unsettled:
        """Return component k of rows with products: from its moments, or from the rows."""
        q, n, d = self.ranks[k], float(found.mass[k]), self.dim
        if not exact:
            return weighted_part(X.rows, resp[:, k], q)
        values = np.maximum(found.values[k], 0.0)
        left = n * float(np.add.reduce(values[q:]))
        return Unsettled(found.means[k], found.vectors[k][:, :q], values[:q], left, n * (d - q), n)

    def log_prior(self) -> float:
        """Return the log-density of the components under the prior, up to a constant."""
        if self.prior is None:
            return 0.0
        return sum(float(self.prior.sums(self.factors(k)).loglikelihood) for k in range(self.K))

    def take(self, index: Sequence[int]) -> Emissions:
        """Return some of the components."""
        means, noises = (backend.take(a, np.asarray(index)) for a in (self.means, self.noises))
        W = tuple(self.loadings[k] for k in index)
        return replace(self, means=means, loadings=W, noises=noises)

    def sample(self, which: Host, rng: np.random.Generator) -> Array:
        """Draw a row of each of these components, (n, d)."""
        drawn = []
        for k, n in enumerate(np.bincount(which, minlength=self.K).tolist()):
            W = self.loadings[k]
            z, noise = (backend.normal(rng, (n, m), W) for m in (self.ranks[k], self.dim))
            drawn.append(z @ W.T + self.means[k, :] + float(self.noises[k]) ** 0.5 * noise)
        place = np.argsort(np.argsort(which, kind="stable"), kind="stable")
        return backend.take(backend.namespace(self.means).concat(drawn, axis=0), place)

    def feature_moments(self) -> tuple[Host, Host]:
        """Return mean and variance of every feature under every component, (K, d), on the host."""
        own = [np.sum(backend.to_numpy(W) ** 2, axis=1) for W in self.loadings]
        return backend.to_numpy(self.means), np.stack(own) + backend.to_numpy(self.noises)[:, None]

    def signed(self) -> Emissions:
        """Return the components with signs of loadings that do not depend on the solver."""
        return replace(self, loadings=tuple(algebra.deterministic_signs(W) for W in self.loadings))

    def at_floor(self) -> list[int]:
        """Return the components whose smallest variance is held at the floor.

        That is their noise, unless q_k = d leaves no direction for it.
        """
        smallest = backend.to_numpy(self.noises).copy()
        for k, W in enumerate(self.loadings):
            if self.ranks[k] == self.dim:
                smallest[k] += float(algebra.svd(W)[1][-1]) ** 2
        return [int(k) for k in np.flatnonzero(smallest <= self.floor * (1 + 1e-9))]

    def n_parameters(self) -> list[int]:
        """Return the number of free parameters of every component, its mean included.

        A tied noise is counted with the first.
        """
        count = [free_parameters(q, self.dim) + self.dim for q in self.ranks]
        return [c - 1 if self.tied and k else c for k, c in enumerate(count)]


# --- Labels: components in an order of their own, wherever the rows came from ---------------------

APART = 0.1
"""Standard deviations of a feature by which means differ in it."""

UNSEEN_SHARE = 1e-9
"""Share of all rows that a component without any is counted with."""


def label_order(means: Host, variances: Host, weights: Host, ranks: Sequence[int]) -> Host:
    """Return the order in which components or states are numbered, (K,).

    They are sorted by their means, smallest first, in the first feature in which some differ, by
    more than a tenth of its standard deviation; those alike in it by the next such feature; those
    alike in all by weight, largest first. Where numbers of directions differ, each stays among
    those of its own.

    Parameters
    ----------
    means, variances : arrays of shape (K, d)
        Of the input features, within each.
    weights : array of shape (K,)
        Not negative.
    ranks : sequence of K ints

    Notes
    -----
    O(Kd), once per fit. EM reaches components in an order that depends on its start; means are far
    apart where labels mean something, so that a sample or other chunks do not change this one.

    Examples
    --------
    >>> import numpy as np
    >>> means = np.array([[0.0, 7.0], [0.1, 5.0], [-9.0, 0.0]])
    >>> label_order(means, np.ones((3, 2)), np.array([0.4, 0.3, 0.3]), [1, 1, 1])
    array([2, 1, 0])
    """
    w = weights / max(float(np.sum(weights)), UNSEEN_SHARE) + UNSEEN_SHARE
    w = w / np.sum(w)
    gap = means - w @ means
    unit = APART * np.sqrt(w @ (variances + gap * gap))

    def sort(members: Host) -> list[int]:
        if len(members) < 2:
            return [int(k) for k in members]
        steps = np.diff(np.sort(means[members], axis=0), axis=0) > unit
        tells = np.flatnonzero(steps.any(axis=0))
        if not tells.size:
            return [int(k) for k in members[np.argsort(-w[members], kind="stable")]]
        j = tells[0]
        order = members[np.argsort(means[members, j], kind="stable")]
        return [
            k for group in np.split(order, np.flatnonzero(steps[:, j]) + 1) for k in sort(group)
        ]

    found = np.empty(len(means), dtype=np.int64)
    for q in set(ranks):
        places = np.flatnonzero(np.asarray(ranks) == q)
        found[places] = sort(places)
    return found


@lru_cache(maxsize=64)
def _directions(ranks: tuple[int, ...], d: int) -> tuple[Host, Any, Host, Host]:
    """Return 1/(d − q) where a direction is noise, (K, d), and where the last is that is not.

    Then what to add to the variance of that one, and to the noise: infinity where there is none.
    """
    q, place = np.array(ranks), np.arange(d)
    off = (place >= q[:, None]) / np.maximum(d - q, 1)[:, None]
    none, full = np.where(q > 0, 0.0, np.inf), np.where(q < d, 0.0, np.inf)
    return off, (np.arange(len(q)), np.maximum(q - 1, 0)), none, full


def refuse_nowhere(logs: Array) -> None:
    """Raise if a row's density is 0 in float64 under every component: it has no posterior."""
    xp = backend.namespace(logs)
    held = xp.isfinite(xp.max(logs, axis=1))
    if not bool(xp.all(held)):
        row = int(np.flatnonzero(~backend.to_numpy(held))[0])
        raise ScaleError(
            f"row {row} lies so far from every component that its density is beyond float64. "
            "Divide X by a constant before the fit, or leave the row out."
        )


# --- What EM of mixtures and hidden chains keeps of rows, and knows of them before ---------------

START_ROWS = 20_000
"""Rows of a chunked table on which EM starts."""


class EmissionSums(NamedTuple):
    """Weighted moments of every component, or sums of its E step where values are missing.

    None for a component that no row so far belongs to.
    """

    mass: Array  # (K,)
    each: tuple[Moments | Sums | None, ...]  # K of them

    @classmethod
    def of(cls, emissions: Emissions, rows: Observations, resp: Array) -> EmissionSums:
        """Gather one chunk; `resp` (b, K) are the rows' shares in the components, times weights."""
        mass = backend.namespace(resp).sum(resp, axis=0)

        def component(k: int) -> Moments | Sums | None:
            if not isinstance(rows, Incomplete):
                return _moments(rows, resp[:, k])
            if not mass[k] > NO_WEIGHT:
                return None
            return rows.with_weights(resp[:, k]).sums(emissions.factors(k))

        return cls(mass, tuple(component(k) for k in range(emissions.K)))

    def plus(self, other: RowSums) -> EmissionSums:
        """Join two disjoint sets of rows."""
        if isinstance(other, WeightedRows):
            raise TypeError("expected chunks, got rows in memory")

        def added(a: Moments | Sums | None, b: Moments | Sums | None) -> Moments | Sums | None:
            if a is None or b is None:
                return b if a is None else a
            return a.merge(b) if isinstance(a, Moments) else a.plus(b)  # type: ignore[arg-type]

        return EmissionSums(self.mass + other.mass, tuple(map(added, self.each, other.each)))

    def maximise(self, emissions: Emissions) -> Emissions:
        """Return the components of largest expected log-likelihood, as `Emissions.update`."""
        mass = np.where([one is None for one in self.each], 0.0, backend.to_numpy(self.mass))

        def part(k: int) -> Unsettled:
            found, n = self.each[k], float(mass[k])
            if isinstance(found, Sums):
                return summed_part(found, n, emissions.factors(k), emissions.prior)
            return closed_part(Scatter(found), emissions.ranks[k], n)  # type: ignore[arg-type]

        return emissions._with(mass, part)


class WeightedRows(NamedTuple):
    """Rows in memory with their shares: what the M step sees in place of sums over chunks.

    Nothing is added up before it is asked for: the components of complete rows are found from
    the rows themselves, without anything d×d where there are many features.
    """

    rows: Observations
    resp: Array  # (n, K), times weights

    @property
    def mass(self) -> Array:
        """Weight of every component, (K,)."""
        return backend.namespace(self.resp).sum(self.resp, axis=0)

    def plus(self, other: RowSums) -> WeightedRows:
        """Refuse to join chunks: rows in memory are one."""
        raise TypeError("expected chunks, got rows in memory")

    def maximise(self, emissions: Emissions) -> Emissions:
        """Return the components of largest expected log-likelihood."""
        return emissions.update(self.rows, self.resp)


RowSums = EmissionSums | WeightedRows
"""What the M step sees of rows: of chunks, or of rows in memory."""


def _moments(rows: Any, w: Array) -> Moments | None:
    """Return weighted moments; weights of size 1 keep sums off underflow on the way."""
    top = float(np.max(w, initial=0.0))
    if not top > NO_WEIGHT:
        return None
    member = np.flatnonzero(w > NEGLIGIBLE_SHARE * top)
    found = Moments.of(rows if member.size == len(rows) else rows[member], w[member] / top)
    return Moments(top * found.n, found.mean, top * found.scatter)


def input_moments(rows: Array, shares: Array) -> tuple[Array, Array]:
    """Return mean and variance of every feature over rows with shares in groups (n, K), (K, d)."""
    xp = backend.namespace(rows)
    found = [column_starts(rows, backend.asarray(p, rows)) for p in shares.T]
    return xp.stack([one[1] for one in found]), xp.stack([one[2] for one in found])


def require_two(count: int) -> None:
    """Refuse fewer than two rows."""
    if count < 2:
        raise ValueError(
            f"Found array with {count} sample(s) while a minimum of 2 is required for a fit."
        )


class Surveyed(NamedTuple):
    """A table and what is known of it before EM."""

    table: Table
    columns: Columns  # number, mean and variance of what each feature observed
    missing: bool

    @classmethod
    def of(cls, table: Table) -> Surveyed:
        """Read a table once; infinity is refused."""
        columns = table.reduce(Columns.of, Columns.merge)
        if not isinstance(table, InMemoryTable):
            return cls(table, columns, bool((columns.n < columns.rows).any()))
        w = observed_weights(table.rows, table.weights)
        return cls(InMemoryTable(table.rows, w, table.names), columns, has_missing(table.rows))

    @property
    def in_memory(self) -> bool:
        """True if all rows are there at once."""
        return isinstance(self.table, InMemoryTable)

    @property
    def whole(self) -> InMemoryTable:
        """The table, where all rows are there at once."""
        return in_memory(self.table, "Load them.")

    def ready_for_steps(self, q: int) -> Callable[[Array], Observations]:
        """Return what makes rows ready for the steps of EM; products only if they are found once.

        It may be sent to other processes.
        """
        missing, kept = self.missing, self.in_memory

        def ready(rows: Array) -> Observations:
            if missing:
                return Incomplete(rows, None, q)
            return Expanded(rows) if kept and Expanded.suits(rows) else rows

        return ready

    def sample(self, count: int, rng: np.random.Generator) -> Surveyed:
        """Return rows in memory, drawn without replacement, in their order.

        They are `count` rows that weigh something, all if there are no more; of a chunked table
        `START_ROWS`.
        """
        if not isinstance(self.table, InMemoryTable):
            return Surveyed.of(InMemoryTable(self.table.sample(START_ROWS, seed=0)))
        w = self.table.weights
        heavy = np.arange(self.table.n) if w is None else np.flatnonzero(backend.to_numpy(w) > 0)
        if heavy.size <= count:
            return self
        return Surveyed.of(self.table.taking(np.sort(rng.choice(heavy, count, replace=False))))

    @property
    def unit(self) -> float:
        """Average variance of the features."""
        return float(backend.namespace(self.columns.mean).mean(self.columns.variance))

    def keeper(self, watch: Watch | None, **told: str) -> Keeper | None:
        """Return what keeps a fit to this table; `told` is what else identifies the data."""
        c = self.columns
        return None if watch is None else watch.over(c.rows, c.mean, c.variance, **told)

    def checked(self) -> Surveyed:
        """Refuse features that no row observes, and rows that do not vary."""
        refuse_empty_columns(self.columns.n)
        check_unit(self.unit, self.table, self.columns.mean)
        return self
