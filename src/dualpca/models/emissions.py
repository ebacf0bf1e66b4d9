"""K Gaussians with a few stretched directions each, which mixtures and chains emit (theory 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.data import HEAD, Host, Moments, column_starts, has_missing
from dualpca.errors import ScaleError
from dualpca.gaussian import (
    Factors,
    Incomplete,
    Latents,
    Sums,
    free_parameters,
    latents,
    left_over,
    log_densities,
)
from dualpca.models.clusters import kmeans
from dualpca.models.incomplete import m_step, start
from dualpca.models.streaming import moment_sums
from dualpca.operators import Primal, Scatter
from dualpca.solvers import choose, solve

# --- Weighted maximum likelihood of several spiked Gaussians at once (theory 6.1): the M step
# ------

NEGLIGIBLE_SHARE = 1e-20
"""Responsibility, relative to the largest, below which a row is left out of a component."""

EMPTY = 1e-12
"""Share of all weight below which a component has no rows and stays as it is."""

FEW, TALL = 32, 10
"""Features up to which second moments are tried first, for at least so many rows per feature."""

WELL_SPREAD = 1e-6
"""Smallest variance, as a share of Σw‖x‖²/n, that second moments hold to nine digits."""


class Prior(NamedTuple):
    """What every component has seen before any row: n rows spread evenly around its mean.

    ln p(C) = −(n/2)(ln|C| + v tr C⁻¹) up to a constant, an inverse Wishart density with a round
    scale. Eigenvectors stay, and a variance ℓ becomes (n_k ℓ + n v)/(n_k + n).
    """

    n: float
    variance: float  # v

    def moments(self, mu: Array) -> Moments:
        """Return the moments of those rows."""
        eye = backend.asarray(np.eye(mu.shape[0]), mu)
        return Moments(self.n, mu, self.n * self.variance * eye)

    def log_density(self, factors: Factors) -> float:
        """Return ln p(C) up to a constant."""
        return float(moment_sums(self.moments(factors.mu), factors).loglikelihood)


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
    kept = sorted(
        (float(ell), p.n)
        for p in parts
        if p.values is not None
        for ell in backend.to_numpy(p.values)
    )
    for ell, n in kept:
        if dims > 0 and ell * dims > left:
            break
        if dims > 0:
            left, dims = left + n * ell, dims + n
    return left / dims if dims > 0 else 0.0


def closed_parts(X: Array, resp: Array, ranks: Sequence[int]) -> list[Unsettled | None]:
    """Return the maximum of Σ_n ρ_nk ln p(x_n | k) for every k: the spectrum of weighted rows.

    Rows that hardly belong to k are left out, so separate components cost O(nd²) together.
    """
    weights = backend.to_numpy(resp)
    total, found = float(np.sum(weights)), list[Unsettled | None]()
    for k, q in enumerate(ranks):
        w, n = weights[:, k], float(np.sum(weights[:, k]))
        if not n > EMPTY * total:
            found.append(None)
            continue
        member = np.flatnonzero(w > NEGLIGIBLE_SHARE * np.max(w))
        # n scales out of means and variances; weights of size 1 keep sums off underflow
        own = backend.asarray(w[member] / np.max(w), X)
        whole = member.size == w.size
        found.append(closed_part(Primal(X if whole else backend.take(X, member), own), q, n))
    return found


def closed_part(operator: Primal | Scatter, q: int, n: float) -> Unsettled:
    """Return the component of weight n that the leading q eigenpairs make.

    Few features and many rows: from their second moments, which is faster than QR, unless the
    smallest variance would lose digits to the largest.
    """
    if isinstance(operator, Primal) and 0 < q and operator.dim <= FEW:
        if TALL * operator.dim <= operator.X.shape[0]:
            part = _leading_part(operator, q, n, "dense")
            if _keeps_digits(part, operator):
                return part
            operator = Primal(operator.X, operator.weights)  # forget the moments
    return _leading_part(operator, q, n)


def _keeps_digits(part: Unsettled, operator: Primal) -> bool:
    """Return True if every variance is large beside what was added and taken away to find it."""
    xp, values = backend.namespace(part.mu), backend.to_numpy(part.values)
    smallest = [float(values[-1])] if values.size else []
    smallest += [part.left / part.dims] if part.dims > 0 else []
    head = slice(0, min(HEAD, int(operator.X.shape[0])))
    gap = part.mu - xp.mean(backend.row_block(operator.X, head), axis=0)
    return min(smallest) > WELL_SPREAD * (operator.trace / operator.n + float(gap @ gap))


def _leading_part(operator: Primal | Scatter, q: int, n: float, solver: str = "auto") -> Unsettled:
    """Return the component by one solver."""
    d = operator.dim
    count = int(operator.X.shape[0]) if isinstance(operator, Primal) else d
    solver = choose(operator, min(q, count, d)) if solver == "auto" else solver
    if solver == "dense" and isinstance(operator, Primal):
        _ = operator.moments  # all that follows can be read off them: one pass instead of two
    spectrum = solve(operator, min(q, count, d), solver)
    xp, short = backend.namespace(spectrum.values), q - spectrum.rank
    values, V = spectrum.values / operator.n, spectrum.vectors
    if short:  # fewer rows than directions: the others have no variance
        values = xp.concat([values, backend.asarray(np.zeros(short), values)])
        V = xp.concat([V, backend.asarray(np.zeros((d, short)), V)], axis=1)
    left = left_over(spectrum.trace, float(xp.sum(spectrum.values))) / operator.n
    return Unsettled(operator.frame.mean, V, values, n * left, n * (d - q), n)


def moment_parts(moments: Sequence[Moments], ranks: Sequence[int]) -> list[Unsettled | None]:
    """Return the components of weighted moments that are already there."""
    total = sum(m.n for m in moments)
    return [
        closed_part(Scatter(m), q, m.n) if m.n > EMPTY * total else None
        for m, q in zip(moments, ranks, strict=True)
    ]


def summed_parts(
    every: Sequence[Sums | None], mass: Host, factors: Sequence[Factors], prior: Prior | None
) -> list[Unsettled | None]:
    """Take one parameter-expanded EM step per component on sums of rows with NaN (theory 4).

    `mass` (K,) is the weight of each. The rows of a prior lie around the old mean, so it holds the
    mean back but never lowers the objective, in which they lie around the new one.
    """
    found: list[Unsettled | None] = []
    for k, (old, sums) in enumerate(zip(factors, every, strict=True)):
        if sums is None or not mass[k] > EMPTY * np.sum(mass):
            found.append(None)
            continue
        xp = backend.namespace(old.mu)
        if prior is not None:
            sums = sums.plus(moment_sums(prior.moments(old.mu), old))
        W, mu, left = m_step(_anchored(sums, old), old)
        dims = float(xp.sum(sums.n))
        found.append(Unsettled(mu, W, None, float(xp.sum(left)), dims, float(mass[k])))
    return found


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


def first_parts(
    X: Array, resp: Array, ranks: Sequence[int], rng: np.random.Generator
) -> list[Unsettled | None]:
    """Return components to start EM from on rows with NaN: the span of each cluster, filled."""
    xp = backend.namespace(X)
    weights = backend.to_numpy(resp)
    _, mean, variance = column_starts(X, backend.asarray(np.sum(weights, axis=1), X))
    found: list[Unsettled | None] = []
    for k, q in enumerate(ranks):
        member = np.flatnonzero(weights[:, k] > 0)
        if not member.size:
            found.append(None)
            continue
        rows, w = backend.take(X, member), backend.asarray(weights[member, k], X)
        seen, mu, own = column_starts(rows, w)
        # a feature observed once or never in the cluster is as in all rows
        mu, own = xp.where(seen > 0, mu, mean), xp.where(own > 0, own, variance)
        W = start(Incomplete(rows, w, q), q, mu, own, rng)
        left = float(xp.mean(own)) - float(xp.sum(W * W)) / int(X.shape[1])
        noise, n = max(left, 0.05 * float(xp.mean(own))), float(np.sum(weights[member, k]))
        found.append(Unsettled(mu, W, None, noise * n, n, n))
    return found


# --- K Gaussians with a few stretched directions each: what mixtures and hidden chains emit ------
#
# Densities and weighted maximum likelihood; who weighs the rows (a mixture, a chain) is not known
# here. Rows with NaN count with what they observed.

Observations = Array | Incomplete
"""Rows as they are, or cut into blocks once so that patterns of NaN are not found again."""


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
    loadings: tuple[Annotated[Array, "d *"], ...]  # K of them
    noises: Annotated[Array, "K"]
    floor: float = 0.0
    tied: bool = False
    prior: Prior | None = None

    @classmethod
    def start(
        cls,
        X: Observations,
        K: int,
        q: int | Sequence[int],
        rng: np.random.Generator,
        *,
        floor: float = 0.0,
        tied: bool = False,
        labels: Array | None = None,
        sample_weight: Array | None = None,
    ) -> Emissions:
        """Return the components of clusters: given labels, or k-means from a k-means++ start.

        Parameters
        ----------
        X : array of shape (n, d) or Incomplete
        K : int
        q : int or sequence of K ints
        rng : Generator
        floor, tied
            As above.
        labels : array of int of shape (n,), optional
            On the host, from 0 to K − 1.
        sample_weight : array of shape (n,), optional
        """
        rows = X.X if isinstance(X, Incomplete) else X
        if labels is None:
            labels = kmeans(rows, K, rng, sample_weight)
        members = backend.asarray(np.equal.outer(labels, np.arange(K)).astype(float), rows)
        resp = members if sample_weight is None else members * sample_weight[:, None]
        counts = [q] * K if isinstance(q, int) else [int(one) for one in q]
        if isinstance(X, Incomplete) or has_missing(X):
            parts = first_parts(rows, resp, counts, rng)
        else:
            parts = closed_parts(rows, resp, counts)
        return cls._blank(counts, rows, floor, tied)._with(parts)

    @classmethod
    def _blank(cls, ranks: Sequence[int], like: Array, floor: float, tied: bool) -> Emissions:
        """Return components at 0 without directions, for those that no row belongs to."""
        K, d = len(ranks), int(like.shape[1])
        means = backend.asarray(np.zeros((K, d)), like)
        loadings = tuple(backend.asarray(np.zeros((d, q)), like) for q in ranks)
        noises = backend.asarray(np.full(K, max(floor, 1e-300)), like)
        return cls(means, loadings, noises, floor, tied)

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

    def factors(self, k: int) -> Factors:
        """Return component k as (W, μ, ψ)."""
        xp = backend.namespace(self.means)
        return Factors(
            self.loadings[k], self.means[k, :], xp.broadcast_to(self.noises[k], (self.dim,))
        )

    def log_density(self, X: Observations) -> Array:
        """Return ln p(x_i | k) of what each row observed, (n, K); −∞ for no row under every k."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._log_density(X)
        refuse_nowhere(found)
        return found

    def _log_density(self, X: Observations) -> Array:
        xp = backend.namespace(self.means)
        if not isinstance(X, Incomplete):
            if not has_missing(X):
                return log_densities(self.means, self.loadings, self.noises, X)
            X = self.table(X)
        columns = [
            xp.concat([found.log_density for found in self._latents(X, k)]) for k in range(self.K)
        ]
        return xp.stack(columns, axis=1)

    def table(self, X: Array) -> Incomplete:
        """Return rows with NaN cut into blocks, their patterns found once for all calls."""
        return Incomplete(X, None, max(self.ranks))

    def _latents(self, X: Incomplete, k: int) -> list[Latents]:
        factors = self.factors(k)
        return [latents(factors, block) for block in X.blocks(factors.mu)]

    def posterior(self, X: Observations, k: int) -> Latents:
        """Return the posterior of z under component k: means, covariances and log-densities."""
        X = X if isinstance(X, Incomplete) else self.table(X)
        xp, found = backend.namespace(self.means), self._latents(X, k)
        return Latents(*(xp.concat(list(part), axis=0) for part in zip(*found, strict=True)))

    def update(self, X: Observations, resp: Array, sample_weight: Array | None = None) -> Emissions:
        """Return the components that maximise Σ ρ_nk ln p(x_n | k) (theory 2 with weights).

        With NaN it is one parameter-expanded EM step per component, which never lowers that sum.

        Parameters
        ----------
        X : array of shape (n, d) or Incomplete
        resp : array of shape (n, K)
            ρ, not negative. A component that no row belongs to stays as it is.
        sample_weight : array of shape (n,), optional
            Multiplies ρ.

        Returns
        -------
        Emissions
            With no σ_k² below `floor`; directions whose variance is below it have no loading.
        """
        resp = resp if sample_weight is None else resp * sample_weight[:, None]
        if isinstance(X, Incomplete) or has_missing(X):
            return EmissionSums.of(self, X, resp, holes=True).maximise(self)
        return self._with(closed_parts(X, resp, self.ranks))

    def of_moments(self, moments: Sequence[Moments]) -> Emissions:
        """Return the components that maximise the likelihood of moments, one for each k."""
        return self._with(moment_parts(moments, self.ranks))

    def _with(self, parts: list[Unsettled | None]) -> Emissions:
        """Return the components that the parts found, old ones where a part found nothing.

        Their noise is left/dims, or one for all, never below the floor.
        """
        counted = [p if p is None else p.under(self.prior) for p in parts]
        some = [p for p in counted if p is not None]
        common = max(pooled_noise(some), self.floor) if self.tied and some else None
        new = [self.factors(k) for k in range(self.K)]
        for k, part in enumerate(counted):
            if part is not None:
                own = part.left / part.dims if part.dims > 0 else 0.0
                new[k] = part.factors(max(own, self.floor) if common is None else common)
        xp = backend.namespace(self.means)
        noises = xp.stack([f.psi[0] for f in new])
        return replace(
            self,
            means=xp.stack([f.mu for f in new]),
            loadings=tuple(f.W for f in new),
            noises=noises if common is None else noises * 0 + common,
        )

    def log_prior(self) -> float:
        """Return the log-density of the components under the prior, up to a constant."""
        if self.prior is None:
            return 0.0
        return sum(self.prior.log_density(self.factors(k)) for k in range(self.K))

    def take(self, index: Sequence[int]) -> Emissions:
        """Return some of the components."""
        return replace(
            self,
            means=backend.take(self.means, np.asarray(index)),
            loadings=tuple(self.loadings[k] for k in index),
            noises=backend.take(self.noises, np.asarray(index)),
        )

    def sample(self, which: np.ndarray[Any, Any], rng: np.random.Generator) -> Array:
        """Draw a row of each of these components, (n, d)."""
        counts = np.bincount(which, minlength=self.K)
        drawn = [self._sample(k, int(count), rng) for k, count in enumerate(counts)]
        place = np.argsort(np.argsort(which, kind="stable"), kind="stable")
        return backend.take(backend.namespace(self.means).concat(drawn, axis=0), place)

    def _sample(self, k: int, n: int, rng: np.random.Generator) -> Array:
        """Draw n rows of component k, (n, d)."""
        W = self.loadings[k]
        z = backend.normal(rng, (n, int(W.shape[1])), W)
        noise = backend.normal(rng, (n, self.dim), W)
        return z @ W.T + self.means[k, :] + float(self.noises[k]) ** 0.5 * noise

    def at_floor(self) -> list[int]:
        """Return the components whose smallest variance is held at the floor.

        That is their noise, unless q_k = d leaves no direction for it.
        """
        smallest = backend.to_numpy(self.noises).copy()
        for k, W in enumerate(self.loadings):
            if int(W.shape[1]) == self.dim:
                smallest[k] += float(algebra.svd(W)[1][-1]) ** 2
        return [int(k) for k in np.flatnonzero(smallest <= self.floor * (1 + 1e-9))]

    def n_parameters(self) -> list[int]:
        """Return the number of free parameters of every component, its mean included.

        A tied noise is counted with the first.
        """
        count = [free_parameters(q, self.dim) + self.dim for q in self.ranks]
        return [c - 1 if self.tied and k else c for k, c in enumerate(count)]


def refuse_nowhere(logs: Array) -> None:
    """Raise if a row's density is 0 in float64 under every component: no one could be told."""
    xp = backend.namespace(logs)
    held = xp.isfinite(xp.max(logs, axis=1))
    if not bool(xp.all(held)):
        row = int(np.flatnonzero(~backend.to_numpy(held))[0])
        raise ScaleError(
            f"row {row} lies so far from every component that its density is beyond float64. "
            "Divide X by a constant before the fit, or leave the row out."
        )


# --- What the M step of mixtures and hidden chains needs of rows ---------------------------------

FAINT = 1e-200
"""Weight below which a component has no share in a chunk."""


class EmissionSums(NamedTuple):
    """Weighted moments of every component, or sums of its E step where values are missing.

    None for a component that no row so far belongs to.
    """

    mass: Array  # (K,)
    each: tuple[Moments | Sums | None, ...]  # K of them

    @classmethod
    def of(cls, emissions: Emissions, rows: Observations, resp: Array, holes: bool) -> EmissionSums:
        """Gather one chunk; `resp` (b, K) are the rows' shares in the components, times weights."""
        mass = backend.namespace(resp).sum(resp, axis=0)
        found: list[Moments | Sums | None]
        if holes:
            table = rows if isinstance(rows, Incomplete) else emissions.table(rows)
            found = [
                table.weighing(resp[:, k]).sums(emissions.factors(k)) if mass[k] > FAINT else None
                for k in range(emissions.K)
            ]
        else:
            found = [_moments(rows, resp[:, k]) for k in range(emissions.K)]
        return cls(mass, tuple(found))

    def plus(self, other: EmissionSums) -> EmissionSums:
        """Join two disjoint sets of rows."""
        pairs = zip(self.each, other.each, strict=True)
        return EmissionSums(self.mass + other.mass, tuple(_join(a, b) for a, b in pairs))

    def maximise(self, emissions: Emissions) -> Emissions:
        """Return the components of largest expected log-likelihood, as `Emissions.update`."""
        if any(isinstance(one, Sums) for one in self.each):
            old, mass = [emissions.factors(k) for k in range(emissions.K)], self.mass
            sums: Any = self.each
            return emissions._with(summed_parts(sums, backend.to_numpy(mass), old, emissions.prior))
        d = emissions.dim
        nothing = Moments(0.0, np.zeros(d), np.zeros((d, d)))
        found = [one if isinstance(one, Moments) else nothing for one in self.each]
        return emissions.of_moments(found)


class WeightedRows(NamedTuple):
    """Rows in memory with their shares: what the M step sees in place of sums over chunks.

    Nothing is added up before it is asked for: the components of complete rows are found from
    the rows themselves, without anything d×d where there are many features.
    """

    rows: Observations
    resp: Array  # (n, K)
    weights: Array | None = None  # (n,)

    @property
    def mass(self) -> Array:
        """Weight of every component, (K,)."""
        if self.weights is None:
            return backend.namespace(self.resp).sum(self.resp, axis=0)
        return self.weights @ self.resp

    def maximise(self, emissions: Emissions) -> Emissions:
        """Return the components of largest expected log-likelihood."""
        return emissions.update(self.rows, self.resp, self.weights)


def _moments(rows: Any, w: Array) -> Moments | None:
    """Return weighted moments; weights of size 1 keep sums off underflow on the way."""
    top = float(np.max(w, initial=0.0))
    if not top > FAINT:
        return None
    member = np.flatnonzero(w > NEGLIGIBLE_SHARE * top)
    found = Moments.of(rows if member.size == len(rows) else rows[member], w[member] / top)
    return Moments(top * found.n, found.mean, top * found.scatter)


def _join(a: Moments | Sums | None, b: Moments | Sums | None) -> Moments | Sums | None:
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, Moments) and isinstance(b, Moments):
        return a.merge(b)
    if isinstance(a, Sums) and isinstance(b, Sums):
        return a.plus(b)
    raise TypeError(f"sums of {type(a).__name__} and {type(b).__name__} do not add.")
