"""The latent side of the Gaussian copula: factors behind columns of any kind (theory 15).

z = Wt + ε with t ~ N(0, I_q), ε ~ N(0, Ψ). Scalar coordinates have variance 1: ‖w_j‖² + ψ_j = 1. A
nominal column of K levels has K coordinates ζ of unit noise, and shows the level k of the largest
ζ_k + m_k. What a row knows of a scalar coordinate is its value, an interval, or nothing.

`CopulaFactors` is the fitted law, `fit_copula` fits it, `choose_latents` chooses q.

The posterior of t is found by expectation propagation (EP; Minka 2001): every interval is a site on
s = w_jᵀt, Φ((b − s)/√ψ) − Φ((a − s)/√ψ), replaced by exp(νs − τs²/2) with the same moments. Sites
are log-concave, so τ is in [0, 1/ψ]: 1/ψ is a known value, 0 a missing one. An observed level k is
K − 1 such sites on (w_k − w_l)ᵀt + ε_k, and ε_k is eliminated in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy import optimize, special
from scipy.stats import qmc

from dualpca.arrays import Array, algebra, backend, cached_property, task
from dualpca.data import FOLDS, Host
from dualpca.errors import DegenerateError, expected
from dualpca.gaussian import (
    HEYWOOD,
    LOG_2PI,
    Score,
    Selection,
    best_candidate,
    summary,
    warn_interrupted,
)
from dualpca.gaussian.truncated import (
    interval_moments,
    log_interval,
    log_probability,
    log_tail,
    tail_moments,
    truncated_draws,
    truncated_moments,
)
from dualpca.models.driver import (
    History,
    IterativeRequest,
    Keeper,
    Record,
    State,
    Watch,
    descend,
    iterate,
    left_to_gain,
    maximize,
)
from dualpca.operators import deterministic_signs

# --- What is known of each row -------------------------------------------------------------------


@dataclass(frozen=True)
class LatentRows:
    """What n rows say about their latent coordinates.

    A scalar coordinate is known where low == high, missing where it is (−inf, inf), and otherwise
    in (low, high]. `levels` numbers the level of each nominal column, −1 where it is missing.
    """

    low: Host  # (n, s)
    high: Host  # (n, s)
    levels: Host  # (n, c), integers
    sizes: tuple[int, ...] = ()  # K of each nominal column

    def __post_init__(self) -> None:
        if self.low.shape != self.high.shape or self.levels.shape != (
            self.low.shape[0],
            len(self.sizes),
        ):
            what = "low and high of one shape (n, s) and levels of shape (n, c), c = len(sizes)"
            shapes = (self.low.shape, self.high.shape, self.levels.shape, len(self.sizes))
            raise ValueError(expected("the shapes of LatentRows", what, shapes))

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.low.shape[0])

    def take(self, index: Any) -> LatentRows:
        """Return some of the rows."""
        return LatentRows(self.low[index], self.high[index], self.levels[index], self.sizes)

    def hiding(self, scalars: Host, levels: Host) -> LatentRows:
        """Return the rows without the entries under two masks, (n, s) and (n, c)."""
        return LatentRows(
            np.where(scalars, -np.inf, self.low),
            np.where(scalars, np.inf, self.high),
            np.where(levels, -1, self.levels),
            self.sizes,
        )

    def known(self) -> tuple[Host, Host]:
        """Return masks of the entries that are not missing, (n, s) and (n, c)."""
        return (self.low > -np.inf) | (self.high < np.inf), self.levels >= 0


class _Levels(NamedTuple):
    """The rows of a block that observe level k of one nominal column."""

    column: int
    k: int
    rows: Host  # (g,)


class _Block:
    """Rows as EP reads them; scalar coordinates first, rows last: (s, b).

    Sites exp(νs − τs²/2) are two rows of numbers, (2, m): τ, then ν. First those of intervals with
    two bounds, then with one, then the comparisons behind observed levels, (K − 1, g) per group.
    """

    def __init__(self, rows: LatentRows, cut: slice) -> None:
        low, high = rows.low[cut].T.copy(), rows.high[cut].T.copy()
        self.b, self.cut = int(low.shape[1]), cut
        known = low == high
        free = (low == -np.inf) & (high == np.inf)
        self.known, self.seen = known.astype(np.float64), (~free).astype(np.float64)
        self.z = np.where(known, low, 0.0)
        inside = ~(known | free)
        # coordinates with intervals, and those intervals among them
        self.columns = np.flatnonzero(inside.any(axis=1))
        inside, low, high = inside[self.columns], low[self.columns], high[self.columns]
        one_sided = inside & (np.isinf(low) | np.isinf(high))
        two = np.flatnonzero(inside & ~one_sided)
        self.two = int(two.size)
        self.at = np.concatenate([two, np.flatnonzero(one_sided)])
        self.of = self.columns[self.at // max(self.b, 1)]
        self.low, self.high = low.ravel()[self.at], high.ravel()[self.at]
        above = self.high[self.two :] == np.inf
        self.side = np.where(above, 1.0, -1.0)
        self.edge = np.where(above, self.low[self.two :], -self.high[self.two :])
        levels = rows.levels[cut]
        self.groups = [
            _Levels(c, k, found)
            for c, K in enumerate(rows.sizes)
            if K > 1
            for k in range(K)
            if (found := np.flatnonzero(levels[:, c] == k)).size
        ]
        self.others = [rows.sizes[group.column] - 1 for group in self.groups]
        self.observed = (levels >= 0).T.astype(np.float64)  # (c, b)
        self.levels = levels

    @cached_property
    def log_alone(self) -> Host:
        """Log-probability of every interval if its column were all there is."""
        return log_probability(self.low, self.high)

    @cached_property
    def row_of(self) -> Host:
        """The row of every site, (m,)."""
        levels = [np.tile(g.rows, K) for g, K in zip(self.groups, self.others, strict=True)]
        return np.concatenate([self.at % max(self.b, 1), *levels])

    @property
    def size(self) -> int:
        """The number of sites."""
        return int(self.at.size + sum(self._sizes))

    @property
    def _sizes(self) -> list[int]:
        return [g.rows.size * K for g, K in zip(self.groups, self.others, strict=True)]

    def level(self, sites: Host, i: int) -> Host:
        """Return what a row of numbers, one per site, has for a group, as a view, (…, K − 1, g)."""
        start = self.at.size + sum(self._sizes[:i])
        part = sites[..., start : start + self._sizes[i]]
        return part.reshape(*part.shape[:-1], self.others[i], -1)

    def only(self, rows: Host, mine: Host) -> _Block:
        """Return some of the rows as EP reads them; `mine` are their sites, (m,)."""
        part, place = copy(self), np.zeros(self.b, dtype=np.intp)
        place[rows] = np.arange(rows.size)
        vars(part).pop("row_of", None)
        kept, one_sided = mine[: self.at.size], mine[self.two : self.at.size]
        at = self.at[kept]
        part.b, part.at, part.of = int(rows.size), at // self.b * rows.size, self.of[kept]
        part.at += place[at % self.b]
        part.two = int(np.count_nonzero(mine[: self.two]))
        part.low, part.high = self.low[kept], self.high[kept]
        part.side, part.edge = self.side[one_sided], self.edge[one_sided]
        moving = np.zeros(self.b, dtype=bool)
        moving[rows] = True
        pairs = zip(self.groups, self.others, strict=True)
        found = [(g._replace(rows=place[g.rows[moving[g.rows]]]), K) for g, K in pairs]
        part.groups, part.others = [g for g, _ in found], [K for _, K in found]
        return part


# --- Small symmetric matrices, packed: one per row of a block, rows last --------------------------


@cache
def _places(q: int) -> tuple[Host, Host, Host]:
    """Return where entry (i, j) is packed, (q, q), and i and j of every packed entry."""
    i, j = np.tril_indices(q)
    place = np.zeros((q, q), dtype=np.intp)
    place[i, j] = place[j, i] = np.arange(i.size)
    return place, i, j


def _packed_outer(W: Host) -> Host:
    """Return wwᵀ packed, (d, q(q+1)/2)."""
    _, i, j = _places(int(W.shape[1]))
    return W[:, i] * W[:, j]


def _packed_form(W: Host) -> Host:
    """Return what turns packed C into wᵀCw by one product, (d, q(q+1)/2)."""
    _, i, j = _places(int(W.shape[1]))
    return W[:, i] * W[:, j] * np.where(i == j, 1.0, 2.0)


def _unpacked(A: Host, q: int) -> Host:
    """Return symmetric matrices (…, q, q) of packed ones (…, q(q+1)/2)."""
    return A[..., _places(q)[0].ravel()].reshape(*A.shape[:-1], q, q)


def _inverse(A: Host, q: int) -> tuple[Host, Host]:
    """Return packed inverses and ln|A| of packed positive definite matrices, (q(q+1)/2, b).

    Gauss–Jordan on the lower triangle; every operation is on b numbers at once, which is several
    times faster than b small factorisations. A is overwritten. Matrices here are at least I, and
    so are all pivots.
    """
    place, logdet = _places(q)[0], np.zeros(A.shape[1])
    for k in range(q):
        pivot = A[place[k, k]]
        logdet += np.log(pivot)
        inverse = 1.0 / pivot
        scaled = {i: A[place[i, k]] * inverse for i in range(q) if i != k}
        for i in scaled:
            for j in scaled:
                if j <= i:
                    A[place[i, j]] -= scaled[i] * A[place[j, k]]
        for i, one in scaled.items():
            A[place[i, k]] = one
        A[place[k, k]] = -inverse
    np.negative(A, out=A)
    return A, logdet


def _times(C: Host, x: Host) -> Host:
    """Return Cx for packed C (q(q+1)/2, b) and x (q, b)."""
    q = int(x.shape[0])
    place, y = _places(q)[0], np.zeros_like(x)
    for i in range(q):
        for j in range(q):
            y[i] += C[place[i, j]] * x[j]
    return y


def _root(C: Host, q: int) -> Host:
    """Return packed Cholesky factors of packed matrices, (q(q+1)/2, b)."""
    place, L = _places(q)[0], C.copy()
    for k in range(q):
        L[place[k, k]] = np.sqrt(np.maximum(L[place[k, k]], 0.0))
        safe = np.where(L[place[k, k]] > 0, L[place[k, k]], 1.0)
        for i in range(k + 1, q):
            L[place[i, k]] /= safe
        for i in range(k + 1, q):
            for j in range(k + 1, i + 1):
                L[place[i, j]] -= L[place[i, k]] * L[place[j, k]]
    return L


def _root_times(L: Host, x: Host) -> Host:
    """Return Lx for packed lower triangles."""
    q = int(x.shape[0])
    place, y = _places(q)[0], np.zeros_like(x)
    for i in range(q):
        for j in range(i + 1):
            y[i] += L[place[i, j]] * x[j]
    return y


# --- Expectation propagation ---------------------------------------------------------------------

EP_TOLERANCE, LOOSEST_EP = 1e-5, 1e-3
"""Change of a marginal, in its own standard deviations, at which EP stops; the largest in a fit.

The evidence is stationary in the sites: its error is of the order of the square.
"""

EP_SWEEPS = 60
"""Largest number of sweeps of EP."""


class _Bounds(NamedTuple):
    """Bounds of sites: of intervals with two, and what is left of those with one."""

    low: Host
    high: Host
    edge: Host  # ±s > edge
    side: Host | float  # the sign


def _matched(mean: Host, variance: Host, psi: Host | float, bounds: _Bounds) -> tuple[Host, Host]:
    """Return the site (τ, ν) of an interval under a cavity N(mean, variance).

    With S² = variance + ψ, and r the variance of the truncated normal relative to S²:
    τ = (1 − r)/(ψ + r·variance), which is in [0, 1/ψ].
    """
    low, high, edge, side = bounds
    S, two = np.sqrt(variance + psi), low.shape[0]
    parts = []
    if two:
        m, scale = mean[:two], S[:two]
        parts.append(interval_moments((low - m) / scale, (high - m) / scale))
    if two < S.shape[0]:
        e, r = tail_moments((edge - side * mean[two:]) / S[two:])
        e *= side
        parts.append((e, r))
    e, r = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
    np.clip(r, 0.0, 1.0, out=r)
    e /= S
    tau = 1.0 - r
    r *= variance
    r += psi
    tau /= r
    # d ln Z/d mean = e/S, and ν = (d ln Z/d mean)(1 + τ variance) + τ mean
    np.multiply(tau, variance, out=r)
    r += 1.0
    e *= r
    e += tau * mean
    return tau, e


def _log_mass(mean: Host, variance: Host, psi: Host | float, bounds: _Bounds) -> Host:
    """Return ln Z of an interval under a cavity N(mean, variance)."""
    low, high, edge, side = bounds
    S, two = np.sqrt(variance + psi), low.shape[0]
    found = log_tail((edge - side * mean[two:]) / S[two:])
    if not two:
        return found
    m, scale = mean[:two], S[:two]
    return np.concatenate([log_interval((low - m) / scale, (high - m) / scale), found])


POSITIVE = _Bounds(np.zeros(0), np.zeros(0), np.zeros(1), 1.0)
"""s + ε > 0."""


def _cavity(mean: Host, variance: Host, tau: Host, nu: Host) -> tuple[Host, Host]:
    """Return the law of s without its site."""
    left = 1.0 - tau * variance
    return (mean - nu * variance) / left, variance / left


def _site_evidence(mean: Host, variance: Host, tau: Host, nu: Host, log_mass: Host) -> Host:
    """Return ln of the constant in front of a site, of the marginal and ln Z of its cavity."""
    left = 1.0 - tau * variance
    fit = tau * mean * mean - 2.0 * mean * nu + nu * nu * variance
    return np.asarray(log_mass - 0.5 * np.log(left) + 0.5 * fit / left)


class _Group(NamedTuple):
    """What stands behind an observed level: s_l = (w_k − w_l)ᵀt + ε_k for every other level l."""

    d: Host  # (g,), precision of ε_k given t
    pull: Host  # (q, g), Σ τ_l g_l
    spread: Host  # (q, g), C pull
    total: Host  # (g,), Σ ν_l


class _Posterior(NamedTuple):
    """N(mean, C) of t for every row of a block."""

    C: Host  # (q(q+1)/2, b), packed
    logdet: Host  # (b,), −ln|C|
    mean: Host  # (q, b)
    rhs: Host  # (q, b), C⁻¹ mean


class _Marginals(NamedTuple):
    """The law of s of every site under the posterior."""

    mean: Host  # (m,)
    variance: Host  # (m,)
    groups: list[_Group]


FEW_ROWS = 0.5
"""Share of rows that still move at which EP goes on with those alone."""


class _Propagation:
    """EP on one block of rows."""

    def __init__(self, factors: CopulaFactors, block: _Block, sites: Host | None) -> None:
        self.factors, self.block, self.q = factors, block, factors.q
        self.sites = np.zeros((2, block.size)) if sites is None else sites
        s, W = factors.s, factors.W
        self.W, self.psi = W[:s], factors.psi[:s]
        self.P = (_packed_outer(self.W) / self.psi[:, None]).T @ block.known
        self.P[np.diagonal(_places(self.q)[0])] += 1.0
        self.rhs = (self.W / self.psi[:, None]).T @ block.z
        # what intervals need, for the coordinates that have some
        self.some = self.W[block.columns]
        self.outer, self.form = _packed_outer(self.some).T, _packed_form(self.some)
        self.next = self.sites  # as the last sweep would have set them
        self.directions = [factors.comparisons(g.column, g.k) for g in block.groups]
        offsets = [
            np.repeat(-offset, group.rows.size)
            for (_, offset), group in zip(self.directions, block.groups, strict=True)
        ]
        rest = sum(one.size for one in offsets)
        self.noise = np.concatenate([self.psi[block.of], np.ones(rest)])
        self.bounds = _Bounds(
            block.low[: block.two],
            block.high[: block.two],
            np.concatenate([block.edge, *offsets]),
            np.concatenate([block.side, np.ones(rest)]),
        )

    def only(self, rows: Host, mine: Host) -> _Propagation:
        """Return EP on some of the rows; `mine` are their sites, (m,)."""
        part, two = copy(self), self.block.two
        part.block, part.sites = self.block.only(rows, mine), self.sites[:, mine]
        part.P, part.rhs, part.noise = self.P[:, rows], self.rhs[:, rows], self.noise[mine]
        low, high, edge, side = self.bounds
        first, last = mine[:two], mine[two:]
        part.bounds = _Bounds(low[first], high[first], edge[last], np.asarray(side)[last])
        return part

    def dense(self, sites: Host) -> Host:
        """Return what intervals have among zeros, for coordinates that have intervals."""
        table = np.zeros((self.block.columns.size, self.block.b))
        table.ravel()[self.block.at] = sites[: self.block.at.size]
        return table

    def posterior(self) -> _Posterior:
        """Return the law of t under the sites as they are."""
        P, rhs, (tau, nu) = self.P.copy(), self.rhs.copy(), self.sites
        if self.block.at.size:
            P += self.outer @ self.dense(tau)
            rhs += self.some.T @ self.dense(nu)
        for i, group in enumerate(self.block.groups):
            add_P, add_rhs = self.level_part(i)
            P[:, group.rows] += add_P
            rhs[:, group.rows] += add_rhs
        C, logdet = _inverse(P, self.q)
        return _Posterior(C, logdet, _times(C, rhs), rhs)

    def pulls(self, i: int) -> tuple[Host, Host, Host]:
        """Return the precision of ε_k given t, Σ τ_l g_l and Σ ν_l of a group."""
        tau, nu = self.block.level(self.sites, i)
        return 1.0 + tau.sum(axis=0), self.directions[i][0].T @ tau, nu.sum(axis=0)

    def level_part(self, i: int) -> tuple[Host, Host]:
        """Return what the sites of a group add to precision and linear term, ε_k eliminated."""
        directions, (tau, nu) = self.directions[i][0], self.block.level(self.sites, i)
        d, pull, total = self.pulls(i)
        _, a, b = _places(self.q)
        P = _packed_outer(directions).T @ tau - pull[a] * pull[b] / d
        return P, directions.T @ nu - pull * (total / d)

    def marginals(self, found: _Posterior) -> _Marginals:
        """Return mean and variance of s for every site."""
        block, groups, e = self.block, [], self.block.at.size
        mean, variance = np.empty(block.size), np.empty(block.size)
        (self.some @ found.mean).ravel().take(block.at, out=mean[:e], mode="clip")
        (self.form @ found.C).ravel().take(block.at, out=variance[:e], mode="clip")
        for i, group in enumerate(block.groups):
            directions = self.directions[i][0]
            C, m = found.C.take(group.rows, axis=1), found.mean.take(group.rows, axis=1)
            d, pull, total = self.pulls(i)
            spread = _times(C, pull)
            block.level(mean, i)[...] = directions @ m + (total - (pull * m).sum(axis=0)) / d
            v = _packed_form(directions) @ C - 2.0 * (directions @ spread) / d
            block.level(variance, i)[...] = v + ((pull * spread).sum(axis=0) / d + 1.0) / d
            groups.append(_Group(d, pull, spread, total))
        return _Marginals(mean, variance, groups)

    def sweep(self, found: _Posterior) -> tuple[Host, Host]:
        """Return every site as its cavity has it, and what it changes, in deviations of s."""
        (tau, nu), (mean, variance, _) = self.sites, self.marginals(found)
        new = np.stack(_matched(*_cavity(mean, variance, tau, nu), self.noise, self.bounds))
        return new, _moved(new[0] - tau, new[1] - nu, mean, variance)

    def run(
        self,
        tol: float = EP_TOLERANCE,
        sweeps: int = EP_SWEEPS,
        damping: float = 1.0,
        last: float = math.inf,
    ) -> _Posterior:
        """Sweep until nothing moves; rows that have stopped are left out.

        `next` are the sites that the last sweep would have set.
        """
        found, self.next = self.posterior(), self.sites
        for k in range(sweeps if self.block.size else 0):
            self.next, moved = self.sweep(found)
            change = float(moved.max())
            if change <= tol:
                break
            damping = max(0.5, damping * 0.8) if change > 0.7 * last else damping
            last, step = change, self.next
            if damping < 1.0:
                step = self.sites + damping * (step - self.sites)
            moving = np.zeros(self.block.b, dtype=bool)
            moving[self.block.row_of[moved > tol]] = True
            rows = np.flatnonzero(moving)
            if rows.size <= FEW_ROWS * self.block.b:
                mine = moving[self.block.row_of]
                part = self.only(rows, mine)
                part.sites = step[:, mine]
                here = part.run(tol, sweeps - k - 1, damping, last)
                self.sites, self.next = self.sites.copy(), self.next.copy()
                self.sites[:, mine], self.next[:, mine] = part.sites, part.next
                for whole, some in zip(found, here, strict=True):
                    whole[..., rows] = some
                break
            self.sites = step
            found = self.posterior()
        return found

    def log_evidence(self, found: _Posterior, marginals: _Marginals | None = None) -> Host:
        """Return ln P of what every row knows relative to independent columns, (b,)."""
        block = self.block
        value = 0.5 * ((found.rhs * found.mean).sum(axis=0) - found.logdet)
        value -= 0.5 * (np.log(self.psi) @ block.known + (1 / self.psi - 1) @ block.z**2)
        (tau, nu), (mean, variance, groups) = self.sites, marginals or self.marginals(found)
        mass = _log_mass(*_cavity(mean, variance, tau, nu), self.noise, self.bounds)
        entries = _site_evidence(mean, variance, tau, nu, mass)
        if block.at.size:
            value += self.dense(entries[: block.at.size] - block.log_alone).sum(axis=0)
        for i, ((column, k, rows), group) in enumerate(zip(block.groups, groups, strict=True)):
            own = block.level(entries, i).sum(axis=0)
            own += 0.5 * (group.total**2 / group.d - np.log(group.d))
            value[rows] += own - self.factors.level_evidence[column][k]
        return np.asarray(value)


def _moved(tau: Host, nu: Host, mean: Host, variance: Host) -> Host:
    """Return the effect of changed sites on their own marginals, in deviations."""
    nu -= tau * mean
    np.abs(nu, out=nu)
    nu *= np.sqrt(variance)
    np.abs(tau, out=tau)
    tau *= variance
    return np.maximum(nu, tau, out=tau)


# --- The model -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CopulaConditional:
    """The law of every entry given the other known entries of its row; normal where scalar."""

    mean: Host  # (n, s)
    variance: Host  # (n, s)
    probabilities: tuple[Host, ...]  # (n, K) of each nominal column


@dataclass(frozen=True)
class CopulaFactors:
    """z = Wt + ε, t ~ N(0, I), ε ~ N(0, Ψ): scalar coordinates, then the levels of each column.

    Scalar coordinates have variance 1. Level k of a nominal column is where ζ_k + m_k is largest,
    with unit noise; loadings and shifts of a column sum to 0, as only their differences matter.
    """

    W: Annotated[Array, "d q"]
    psi: Annotated[Array, "d", ">= 0"]
    shifts: Annotated[Array, "l"]  # m
    frequencies: Annotated[Array, "l", ">= 0"]  # of the levels, which the shifts give
    sizes: tuple[Annotated[int, ">= 1"], ...] = ()  # K of each nominal column
    history: History | None = None

    @property
    def q(self) -> int:
        """The number of latents."""
        return int(self.W.shape[1])

    @property
    def s(self) -> int:
        """The number of scalar coordinates."""
        return int(self.W.shape[0]) - sum(self.sizes)

    @property
    def loglikelihood(self) -> float:
        """The last of the fit: Σ of `log_evidence`, weighted."""
        return math.nan if self.history is None else self.history.loglikelihood

    @property
    def correlation(self) -> Host:
        """WWᵀ + Ψ of the scalar coordinates, (s, s)."""
        W = self.W[: self.s]
        return np.asarray(W @ W.T + np.diag(self.psi[: self.s]))

    @cached_property
    def parts(self) -> tuple[slice, ...]:
        """Where the levels of each nominal column are among all levels."""
        edges = np.cumsum((0, *self.sizes))
        return tuple(slice(int(a), int(b)) for a, b in pairwise(edges))

    def loadings_of(self, column: int) -> Host:
        """Return the loadings of the levels of a nominal column, (K, q)."""
        return np.asarray(self.W[self.s :][self.parts[column]])

    def comparisons(self, column: int, k: int) -> tuple[Host, Host]:
        """Return w_k − w_l and m_k − m_l for the other levels l, (K − 1, q) and (K − 1,)."""
        w, m = self.loadings_of(column), self.shifts[self.parts[column]]
        others = np.arange(m.size) != k
        return w[k] - w[others], m[k] - m[others]

    @cached_property
    def level_evidence(self) -> tuple[Host, ...]:
        """Log-probability of every level of each nominal column alone, as EP has it, (K,)."""
        found = []
        for column in range(len(self.sizes)):
            w = self.loadings_of(column)
            mean = self.shifts[self.parts[column]][:, None]
            found.append(_level_evidence(mean, (w @ w.T)[:, :, None])[:, 0])
        return tuple(found)

    # --- rows

    def _each(self, rows: LatentRows, of: Callable[[_Propagation, _Posterior], Any]) -> list[Any]:
        """Return what `of` makes of every block of rows after EP, in order."""
        self._check(rows)

        def work(cut: slice) -> list[Any]:
            run = _Propagation(self, _Block(rows, cut), None)
            return [of(run, run.run())]

        with backend.threads_outside(rows.low):
            return backend.summed(work, lambda a, b: a + b, _shape_of(rows))

    def _check(self, rows: LatentRows) -> None:
        if rows.low.shape[1] != self.s or rows.sizes != self.sizes:
            what = f"{self.s} scalar coordinates and nominal columns of sizes {self.sizes}"
            raise ValueError(expected("rows", what, (rows.low.shape[1], rows.sizes)))

    def posterior(self, rows: LatentRows) -> tuple[Host, Host]:
        """Return mean (n, q) and covariance (n, q, q) of t given what each row knows."""

        def of(run: _Propagation, found: _Posterior) -> tuple[Host, Host]:
            return found.mean.T, _unpacked(found.C.T, self.q)

        mean, covariance = zip(*self._each(rows, of), strict=True)
        return np.concatenate(mean), np.concatenate(covariance)

    def log_evidence(self, rows: LatentRows) -> Host:
        """Return ln P of what each row knows, relative to independent columns, (n,), by EP.

        Densities and probabilities are divided by those of the columns on their own, so that no
        monotone change of a column's units matters; 0 for rows that know one entry or none.
        """
        return np.concatenate(self._each(rows, lambda run, found: run.log_evidence(found)))

    def conditional(self, rows: LatentRows) -> CopulaConditional:
        """Return the law of every entry given the OTHER known entries of its row.

        Of missing entries: given the row. Scalar coordinates have normal laws, as t has in EP.
        """

        def of(run: _Propagation, found: _Posterior) -> tuple[Host, ...]:
            T, N = run.block.known / run.psi[:, None], run.block.z / run.psi[:, None]
            T[run.block.columns] += run.dense(run.sites[0])
            N[run.block.columns] += run.dense(run.sites[1])
            mean, variance = run.W @ found.mean, _packed_form(run.W) @ found.C
            mean, variance = _cavity(mean, variance, T, N)
            levels = [self._probabilities(run, found, c) for c in range(len(self.sizes))]
            return mean.T, (variance + run.psi[:, None]).T, *(p.T for p in levels)

        mean, variance, *levels = map(np.concatenate, zip(*self._each(rows, of), strict=True))
        return CopulaConditional(mean, variance, tuple(levels))

    def _probabilities(self, run: _Propagation, found: _Posterior, column: int) -> Host:
        """Return probabilities of the levels of one column given the rest of each row, (K, b).

        Each is its frequency times the ratio of EP's evidence with and without the rest of the
        row, so that what EP gets wrong for a column on its own cancels.
        """
        C, mean = found.C.copy(), found.mean.copy()
        for i, group in enumerate(run.block.groups):
            if group.column == column:  # take what the column itself says out again
                rows = group.rows
                P = _inverse(found.C[:, rows], self.q)[0]
                add_P, add_rhs = run.level_part(i)
                C[:, rows] = _inverse(P - add_P, self.q)[0]
                mean[:, rows] = _times(C[:, rows], found.rhs[:, rows] - add_rhs)
        w, part = self.loadings_of(column), self.parts[column]
        eta = w @ mean + self.shifts[part][:, None]
        full = _unpacked(C.T, self.q)
        covariance = np.moveaxis(w @ full @ w.T, 0, -1)
        logs = _level_evidence(eta, covariance) - self.level_evidence[column][:, None]
        p = self.frequencies[part][:, None] * np.exp(logs - logs.max(axis=0))
        return np.asarray(p / p.sum(axis=0))

    def draw(self, rows: LatentRows, rng: np.random.Generator) -> tuple[Host, Host]:
        """Draw everything that is missing of each row, jointly, given what it knows.

        t (and ε_k of observed levels) is drawn from EP's normal law and corrected by a few
        Metropolis–Hastings steps with that law as proposal, so that draws are as good as exact;
        the rest is independent given t. Known values are kept; where an interval is known, z is
        drawn in it.

        Returns
        -------
        z : array of shape (n, s)
        levels : array of shape (n, c)
        """
        streams = {cut.start: one for cut, one in zip(*_streams(rows, rng), strict=True)}

        def of(run: _Propagation, found: _Posterior) -> tuple[Host, Host]:
            return _drawn(run, found, streams[run.block.cut.start])

        z, levels = zip(*self._each(rows, of), strict=True)
        return np.concatenate(z), np.concatenate(levels)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Host, Host]:
        """Draw new rows: z (n, s) and levels (n, c)."""
        s, t = self.s, rng.standard_normal((n, self.q))
        z = t @ self.W.T + np.sqrt(self.psi) * rng.standard_normal((n, self.psi.size))
        return z[:, :s], self._largest_levels(z[:, s:])

    def _largest_levels(self, zeta: Host) -> Host:
        """Return the levels that coordinates (n, ΣK) show, (n, c)."""
        levels = np.empty((zeta.shape[0], len(self.sizes)), dtype=np.int64)
        for c, part in enumerate(self.parts):
            levels[:, c] = np.argmax(zeta[:, part] + self.shifts[part], axis=1)
        return levels


TABLES_PER_BLOCK = 6
"""Arrays of the shape of a block that are to be in the processor's cache together."""


def _shape_of(rows: LatentRows) -> Host:
    """Return an array that is cut into blocks as the rows are."""
    width = max(1, int(rows.low.shape[1]), int(rows.levels.shape[1]))
    return np.broadcast_to(np.float64(0.0), (rows.n, TABLES_PER_BLOCK * width))


def _streams(
    rows: LatentRows, rng: np.random.Generator
) -> tuple[list[slice], list[np.random.Generator]]:
    """Return the blocks of rows and a generator for each."""
    cuts = list(backend.row_slices(_shape_of(rows)))
    return cuts, rng.spawn(len(cuts))


METROPOLIS_STEPS = 8
"""Steps that correct a draw of EP's normal law; nearly all of them are accepted."""


def _drawn(run: _Propagation, found: _Posterior, rng: np.random.Generator) -> tuple[Host, Host]:
    """Draw what a block misses."""
    factors, block, b, e = run.factors, run.block, run.block.b, run.block.at.size
    (tau, nu), psi = run.sites[:, :e], run.noise[:e]
    root = _root(found.C, factors.q)

    def propose() -> tuple[Host, Host]:
        """Return t, and ln of target over proposal."""
        t = found.mean + _root_times(root, np.asarray(rng.standard_normal(found.mean.shape)))
        s, scale = (run.some @ t).ravel()[block.at], np.sqrt(psi)
        entries = log_probability((block.low - s) / scale, (block.high - s) / scale)
        entries += s * (0.5 * tau * s - nu)
        ratio = run.dense(entries).sum(axis=0)
        for i, group in enumerate(block.groups):
            directions, offset = run.directions[i]
            (level_tau, level_nu), (d, pull, total) = block.level(run.sites, i), run.pulls(i)
            here = t[:, group.rows]
            eps = (total - (pull * here).sum(axis=0)) / d
            eps = eps + rng.standard_normal(eps.shape) / np.sqrt(d)
            r = directions @ here + eps
            terms = special.log_ndtr(r + offset[:, None]) + r * (0.5 * level_tau * r - level_nu)
            ratio[group.rows] += terms.sum(axis=0)
        return t, ratio

    t, ratio = propose()
    for _ in range(METROPOLIS_STEPS if block.at.size or block.groups else 0):
        other, better = propose()
        accept = np.log(1.0 - rng.random(b)) < better - ratio
        t, ratio = np.where(accept, other, t), np.where(accept, better, ratio)
    scale, mean = np.sqrt(run.psi)[:, None], run.W @ t
    z = np.where(block.known > 0, block.z, mean + scale * rng.standard_normal(mean.shape))
    if block.at.size:
        s, root_psi = mean[block.columns].ravel()[block.at], np.sqrt(psi)
        drawn_e = truncated_draws((block.low - s) / root_psi, (block.high - s) / root_psi, rng)
        inside = z[block.columns]
        inside.ravel()[block.at] = np.clip(s + root_psi * drawn_e, block.low, block.high)
        z[block.columns] = inside
    zeta = factors.W[factors.s :] @ t
    drawn = factors._largest_levels((zeta + rng.standard_normal(zeta.shape)).T)
    return z.T, np.where(block.levels >= 0, block.levels, drawn)


# --- Levels of nominal columns -------------------------------------------------------------------


def _level_evidence(eta: Host, covariance: Host, sweeps: int = 20, tol: float = 1e-5) -> Host:
    """Return ln P(ζ_k is the largest) of every level, by EP, (K, b).

    ζ ~ N(eta, covariance + I), for b laws at once: eta (K, b), covariance (K, K, b). Site by site,
    with every rank-one change exact; O(K³) per level and sweep.
    """
    K = int(eta.shape[0])
    if K == 1:
        return np.zeros_like(eta)
    others = np.array([[i for i in range(K) if i != k] for k in range(K)])
    own = np.arange(K)[:, None]
    mean = eta[own] - eta[others]  # (K, K − 1, b)
    cross = covariance[own, others]
    V = covariance[others[:, :, None], others[:, None, :]] + 1.0
    V = V + covariance[own, own][:, :, None] - cross[:, :, None] - cross[:, None, :]
    tau, nu = np.zeros_like(mean), np.zeros_like(mean)
    value = np.zeros(eta.shape)
    for _ in range(sweeps if K > 2 else 1):
        change = 0.0
        for i in range(K - 1):
            m, v = mean[:, i].copy(), V[:, i, i].copy()
            new = _matched(*_cavity(m, v, tau[:, i], nu[:, i]), 1.0, POSITIVE)
            dt, dn = new[0] - tau[:, i], new[1] - nu[:, i]
            change = max(change, float(_moved(dt.copy(), dn.copy(), m, v).max(initial=0.0)))
            left = 1.0 + dt * v
            value += 0.5 * (dn * (v * dn + 2.0 * m) - dt * m * m) / left - 0.5 * np.log(left)
            column = V[:, :, i].copy()
            mean += column * ((dn - dt * m) / left)[:, None]
            V -= column[:, :, None] * column[:, None, :] * (dt / left)[:, None, None]
            tau[:, i], nu[:, i] = new[0], new[1]
        if change < tol:
            break
    for i in range(K - 1):
        m, v = mean[:, i], V[:, i, i]
        c, u = _cavity(m, v, tau[:, i], nu[:, i])
        value += _site_evidence(m, v, tau[:, i], nu[:, i], special.log_ndtr(c / np.sqrt(u + 1.0)))
    return value


LATENT_POINTS, HERMITE_NODES, GRID_STEP, GRID_REACH = 256, 12, 0.75, 6.0
"""Points for t, in all and per axis; spacing and half length of the grid for the largest ζ."""

RAREST_LEVEL = 1e-6
"""Frequency that the shift of a level which never occurs gives it."""


class _Shares(NamedTuple):
    """P(level) of a nominal column before anything is known, and how it changes."""

    p: Host  # (K,)
    by_shift: Host  # (K, K), ∂p_k/∂m_l
    by_loading: Host  # (K, K, q), ∂p_k/∂w_l


@cache
def _normal_points(q: int) -> tuple[Host, Host]:
    """Return points that stand for N(0, I_q), (p, q), and their weights.

    A Gauss–Hermite rule for few latents, else a Sobol' sequence and its mirror image.
    """
    if q > 2:
        half = qmc.Sobol(q, scramble=False).random(LATENT_POINTS // 2)
        points = special.ndtri(half + 0.5 / half.shape[0])
        return np.concatenate([points, -points]), np.full(LATENT_POINTS, 1 / LATENT_POINTS)
    nodes, weights = np.polynomial.hermite_e.hermegauss(HERMITE_NODES)
    grid = np.meshgrid(*([nodes] * q))
    points = np.stack([one.ravel() for one in grid], axis=1) if q else np.zeros((1, 0))
    share = weights / weights.sum()
    return points, share if q == 1 else np.outer(share, share).ravel() if q else np.ones(1)


def _shares(w: Host, m: Host) -> _Shares:
    """Return the probabilities of the levels of one column of loadings w (K, q) and shifts m.

    Given t, P_k = ∫ φ(y − η_k) Π_l Φ(y − η_l) dy over l ≠ k, with η = wt + m: the trapezoidal rule,
    which converges fast for integrands as smooth as this; t by quasi-Monte Carlo.
    """
    # only the span of the loadings matters
    U, size, axes = np.linalg.svd(w - w.mean(axis=0), full_matrices=False)
    keep = size > 1e-12
    coordinates, axes = U[:, keep] * size[keep], axes[keep]
    t, weights = _normal_points(int(keep.sum()))
    eta = t @ coordinates.T + m  # (p, K)
    steps = np.arange(-GRID_REACH, GRID_REACH + GRID_STEP, GRID_STEP)
    y = eta.max(axis=1)[:, None] + steps  # (p, g)
    x = np.maximum(y[:, :, None] - eta[:, None, :], -30.0)  # (p, g, K)
    below = special.ndtr(x)
    hazard = np.exp(-0.5 * x * x - 0.5 * LOG_2PI) / below
    every = below.prod(axis=2) * (GRID_STEP * weights)[:, None]
    held = every[:, :, None] * hazard
    p = held.sum(axis=(0, 1))
    pairs = -np.matmul(np.swapaxes(held, 1, 2), hazard) / p.sum()
    own = np.arange(m.size)
    pairs[:, own, own] = 0.0
    pairs[:, own, own] = -pairs.sum(axis=2)
    by_loading = np.tensordot(pairs, t, axes=(0, 0)) @ axes
    return _Shares(p / p.sum(), pairs.sum(axis=0), by_loading)


def _solved_shifts(w: Host, frequencies: Host, m: Host) -> tuple[Host, _Shares]:
    """Return shifts that give the levels their frequencies, by Newton's method from m."""
    target = np.maximum(frequencies, RAREST_LEVEL)
    target = target / target.sum()
    found = _shares(w, m)
    for _ in range(50):
        off = np.log(target) - np.log(found.p)
        if np.abs(target - found.p).max() < 1e-10:
            break
        # Newton for ln p; a common shift changes nothing
        J = found.by_shift / found.p[:, None] + 1.0 / m.size
        step = np.linalg.lstsq(J, off)[0]
        size = np.abs(step).max()
        m = m + step * min(1.0, 1.0 / max(size, 1e-300))
        m = m - m.mean()
        found = _shares(w, m)
    return m, found


# --- The fit: sums over the rows -----------------------------------------------------------------


class _LatentSums(NamedTuple):
    """What one pass over the rows finds; sums of two sets of rows add.

    E[ε_jt] is the slope of the evidence by w_j, times ψ_j.
    """

    second: Host  # (s + c, q(q+1)/2), Σ E[ttᵀ] over the rows that know a column
    noise_t: Host  # (s + ΣK, q), Σ E[ε_j t]
    noise: Host  # (s + ΣK,), Σ E[ε_j²] of scalars, Σ E[ε_l] of levels
    n: Host  # (s + c,), number of rows that know a column
    all_second: Host  # (q(q+1)/2,)
    all_n: float
    loglikelihood: float
    moments: Host  # (s, s), Σ E[zzᵀ] of scalars, or (0, 0)

    def plus(self, other: _LatentSums) -> _LatentSums:
        """Return the sums of both sets of rows."""
        both: Any = zip(self, other, strict=True)
        return _LatentSums(*(a + b for a, b in both))


def _block_sums(run: _Propagation, found: _Posterior, w: Host, moments: bool) -> _LatentSums:
    """Return a block's share. Of every site, E[ε] = ψ(ν − τs̄) and cov(ε, t) = −ψτCw.

    With `moments`, also E[zzᵀ]; without levels, in place of the slope by loadings of scalars.
    """
    block, q, marginals = run.block, run.q, run.marginals(found)
    _, i, j = _places(q)
    second = (found.C + found.mean[i] * found.mean[j]) * w
    seen = np.concatenate([block.seen, block.observed])
    levels = _level_sums(run, found, marginals, w)
    if moments and not run.factors.sizes:
        scalars = np.zeros((run.psi.size, q)), np.zeros(run.psi.size)
    else:
        scalars = _scalar_sums(run, found, w)
    return _LatentSums(
        second=seen @ second.T,
        noise_t=np.concatenate([scalars[0], levels[0]]),
        noise=np.concatenate([scalars[1], levels[1]]),
        n=seen @ w,
        all_second=second.sum(axis=1),
        all_n=float(w.sum()),
        loglikelihood=float(run.log_evidence(found, marginals) @ w),
        moments=_moments(run, found, w) if moments else np.zeros((0, 0)),
    )


def _scalar_sums(run: _Propagation, found: _Posterior, w: Host) -> tuple[Host, Host]:
    """Return Σ E[ε_j t], (s, q), and Σ E[ε_j²], (s,)."""
    block, psi = run.block, run.psi[:, None]
    T, N = block.known / psi, block.z / psi
    T[block.columns] += run.dense(run.sites[0])
    N[block.columns] += run.dense(run.sites[1])
    pull = N - T * (run.W @ found.mean)  # E[ε]/ψ
    variance = _packed_form(run.W) @ found.C
    squares = psi * block.seen + psi**2 * (pull**2 - T * (1.0 - T * variance))
    held = _unpacked((T * w) @ found.C.T, run.q)
    noise_t = psi * ((pull * w) @ found.mean.T - (held @ run.W[:, :, None])[:, :, 0])
    return noise_t, squares @ w


def _level_sums(
    run: _Propagation, found: _Posterior, marginals: _Marginals, w: Host
) -> tuple[Host, Host]:
    """Return Σ E[ε_l t], (ΣK, q), and Σ E[ε_l], (ΣK,), of levels."""
    factors, block, q = run.factors, run.block, run.q
    level_t = np.zeros((sum(factors.sizes), q))
    level = np.zeros(sum(factors.sizes))
    for g, (column, k, rows) in enumerate(block.groups):
        group, (directions, _) = marginals.groups[g], run.directions[g]
        (tau, nu), weight = block.level(run.sites, g), w[rows]
        push = (tau * block.level(marginals.mean, g) - nu) * weight  # E[ε_l], of the other levels
        own = push @ found.mean[:, rows].T - (tau * weight / group.d) @ group.spread.T
        held = _unpacked((tau * weight) @ found.C[:, rows].T, q)
        own += (held @ directions[:, :, None])[:, :, 0]
        part, size = factors.parts[column], factors.sizes[column]
        others = part.start + np.flatnonzero(np.arange(size) != k)
        level_t[others] += own
        level_t[part.start + k] -= own.sum(axis=0)
        level[others] += push.sum(axis=1)
        level[part.start + k] -= push.sum()
    return level_t, level


def _moments(run: _Propagation, found: _Posterior, w: Host) -> Host:
    """Return Σ E[zzᵀ] of scalars, (s, s).

    Given t, z_j has mean a_j w_jᵀt + ψ_jν_j and variance ψ_j a_j, with a_j = 1 − ψ_jτ_j, and
    coordinates are independent.
    """
    block, weight = run.block, np.sqrt(w)
    psi = run.psi[block.columns, None]
    place, root = _places(run.q)[0], _root(found.C, run.q)
    free = 1.0 - block.known
    free[block.columns] -= psi * run.dense(run.sites[0])
    mean = run.W @ found.mean
    mean *= free
    mean += block.z
    mean[block.columns] += psi * run.dense(run.sites[1])
    mean *= weight
    total = mean @ mean.T
    total[np.diag_indices_from(total)] += run.psi * (free @ w)
    free *= weight
    for r in range(run.q):
        np.matmul(run.W[:, r:], root[place[r:, r]], out=mean)
        mean *= free
        total += mean @ mean.T
    return np.asarray(total)


# --- The fit: parameters as a vector, EM steps and slopes ----------------------------------------

DIAGONAL, ISOTROPIC = "diagonal", "isotropic"

LEAST_ISOTROPIC = 1e-4
"""Smallest common noise."""

PRIOR = 2.0
"""Precision of θ before anything is known, N(0, 1/2): as much as two rows say.

It keeps noise from vanishing and the loadings of rare levels from growing without bound: entries
hidden from small tables are predicted better, and the fit is faster. With many rows it is nothing.
"""

LARGEST_LOADING, FARTHEST = 10.0, 1e3
"""Of a level, whose noise is 1: beyond it t decides alone. Of w/√ψ."""

NEARBY = 0.3
"""How far θ moves between two passes over many rows."""


@dataclass(frozen=True, kw_only=True)
class CopulaRequest(IterativeRequest):
    """Checked parameters of `fit_copula`."""

    n_components: int = 1
    noise: str = DIAGONAL  # or 'isotropic': ψ is the same for all scalar coordinates
    begin: CopulaFactors | None = None  # where to start, if not at the span of the rows
    tol: float = 2e-3  # gain of the evidence per step and parameter
    max_iter: int = 200


class _Image(NamedTuple):
    """Where a long EM step leads."""

    theta: Host
    value: float  # log-evidence with the log-prior where it began
    gain: float  # what it expects to gain


def _is_positive(S: Host) -> bool:
    """Return True if a symmetric matrix has no eigenvalue below `HEYWOOD`."""
    return S.shape[0] == 0 or float(np.linalg.eigvalsh(S)[0]) > HEYWOOD


def _factor_analysis(W: Host, psi: Host, S: Host) -> tuple[float, Host, Host]:
    """Return −(ln|Σ| + tr Σ⁻¹S)/2 with Σ = WWᵀ + Ψ, and its slope by W, (s, q), and ψ, (s,)."""
    B = W / psi[:, None]
    M = W.T @ B
    M[np.diag_indices_from(M)] += 1.0
    K = np.linalg.solve(M, B.T).T  # Σ⁻¹W; Σ⁻¹ = Ψ⁻¹ − KBᵀ
    SK = S @ K
    inner, own = B.T @ SK, np.diagonal(S)
    fit = np.log(psi).sum() + np.linalg.slogdet(M)[1] + (own / psi).sum() - (B * SK).sum()
    to_W = SK / psi[:, None] - K @ inner - K
    both = own / psi - 2.0 * (SK @ M * K).sum(axis=1)
    to_psi = both / psi + (K @ (inner @ M) * K).sum(axis=1) - 1.0 / psi + (K * B).sum(axis=1)
    return -0.5 * float(fit), to_W, 0.5 * to_psi


class CopulaFit:
    """Rows, and the vector θ that describes a law of them.

    θ = (w_j/√ψ_j of scalars, w of levels): every θ is a law, with unit variances. With isotropic
    noise it is (directions of w_j, w of levels, logit σ²). Shifts follow from the loadings.
    """

    def __init__(
        self,
        rows: LatentRows,
        frequencies: tuple[Host, ...],
        q: int,
        noise: str = DIAGONAL,
        weights: Host | None = None,
        tol: float = 2e-3,
    ) -> None:
        self.tol, self.ep_tolerance = tol, min(tol / 3, LOOSEST_EP)
        self.rows, self.q, self.isotropic = rows, q, noise == ISOTROPIC
        self.s, self.sizes, self.frequencies = int(rows.low.shape[1]), rows.sizes, frequencies
        self.D = self.s + sum(self.sizes)
        self.w = np.ones(rows.n) if weights is None else np.asarray(weights, dtype=np.float64)
        self.remembers = rows.n <= REMEMBERED_ROWS
        self.blocks: dict[int, _Block] = {}
        self.sites: dict[int, Host] = {}
        self.shifts = [np.zeros(K) for K in self.sizes]
        self.counts = [
            np.bincount(rows.levels[seen, c], self.w[seen], K)
            for c, K in enumerate(self.sizes)
            for seen in [rows.levels[:, c] >= 0]
        ]

    def pack(self, W: Host, psi: Host) -> Host:
        """Return θ."""
        s = self.s
        if not self.isotropic:
            return np.concatenate([(W[:s] / np.sqrt(psi[:s, None])).ravel(), W[s:].ravel()])
        sigma2 = float(psi[0]) if s else 0.5
        unit = W[:s] / math.sqrt(max(1.0 - sigma2, LEAST_ISOTROPIC))
        return np.concatenate([unit.ravel(), W[s:].ravel(), [special.logit(sigma2)]])

    def loadings(self, theta: Host) -> tuple[Host, Host]:
        """Return W and ψ of θ."""
        s, q = self.s, self.q
        W, psi = theta[: self.D * q].reshape(self.D, q).copy(), np.ones(self.D)
        length = np.linalg.norm(W[:s], axis=1)
        if self.isotropic:
            sigma2 = _squashed(float(theta[-1]))
            W[:s] *= (math.sqrt(1.0 - sigma2) / np.maximum(length, 1e-300))[:, None]
            psi[:s] = sigma2
        else:
            most = math.sqrt(1.0 / HEYWOOD - 1.0)
            W[:s] *= np.minimum(1.0, most / np.maximum(length, 1e-300))[:, None]
            rho2 = 1.0 + (W[:s] ** 2).sum(axis=1)
            W[:s] /= np.sqrt(rho2)[:, None]
            psi[:s] = 1.0 / rho2
        return W, psi

    def unpack(self, theta: Host) -> CopulaFactors:
        """Return the law of θ; shifts are solved for, from where they were last."""
        W, psi = self.loadings(theta)
        self.shares, start = [], self.s
        for c, K in enumerate(self.sizes):
            own = slice(start, start + K)
            W[own] -= W[own].mean(axis=0)
            self.shifts[c], shares = _solved_shifts(W[own], self.frequencies[c], self.shifts[c])
            self.shares.append(shares)
            start += K
        empty = [np.zeros(0)]
        return CopulaFactors(
            W,
            psi,
            np.concatenate([*self.shifts, *empty]),
            np.concatenate([*self.frequencies, *empty]),
            self.sizes,
        )

    def sums(
        self, factors: CopulaFactors, *, once: bool = False, moments: bool = False
    ) -> _LatentSums:
        """Run EP on all rows, from the sites of the last time where they are few.

        `once`: a sweep is enough if there are such, as parameters move more than sites do.
        """

        def of(cut: slice) -> _LatentSums:
            block = self.blocks.get(cut.start) or _Block(self.rows, cut)
            sites = self.sites.get(cut.start)
            run = _Propagation(factors, block, sites)
            many = FIRST_SWEEPS if sites is None else 1
            found = run.run(self.ep_tolerance, many if self.remembers and once else EP_SWEEPS)
            if self.remembers:
                self.blocks[cut.start], self.sites[cut.start] = block, run.next
            return _block_sums(run, found, self.w[cut], moments)

        return backend.summed(of, _LatentSums.plus, _shape_of(self.rows))

    def step(self, theta: Host) -> tuple[Host, float]:
        """Take one EM step; return it with the log-evidence of θ plus its log-prior."""
        factors = self.unpack(theta)
        sums = self.sums(factors, once=True)
        value = sums.loglikelihood - self.penalty(theta)
        return self.pack(*self.m_step(factors, sums)), value

    def m_step(self, factors: CopulaFactors, sums: _LatentSums) -> tuple[Host, Host]:
        """Return W and ψ after one step: regressions of z on t, then unit variances.

        The second moment Γ of the latents is folded back, W ← WΓ^{1/2} (parameter expansion).
        """
        s, q, column = self.s, self.q, self._columns()
        n = np.maximum(sums.n, 1e-300)[column, None]
        A = _unpacked(sums.second, q)[column] / n[:, :, None]
        A[sums.n[column] <= 0] = np.eye(q)  # what no row knows stays
        x, W = sums.noise_t / n, factors.W
        Aw = (A @ W[:, :, None])[:, :, 0]
        own = np.trace(A, axis1=1, axis2=2)[:, None, None] / q
        new = np.linalg.solve(A + 1e-10 * own * np.eye(q), (Aw + x)[:, :, None])[:, :, 0]
        square = (W * (Aw + 2.0 * x)).sum(axis=1)[:s] + sums.noise[:s] / n[:s, 0]
        psi = np.ones(self.D)
        psi[:s] = np.maximum(square - ((Aw + x) * new).sum(axis=1)[:s], HEYWOOD)
        gamma = _unpacked(sums.all_second, q) / sums.all_n
        new = new @ np.linalg.cholesky(gamma + 1e-12 * np.eye(q))
        variance = (new[:s] ** 2).sum(axis=1) + psi[:s]
        share = psi[:s] / variance
        if self.isotropic and s:
            share = np.full(s, float(np.average(share, weights=np.maximum(sums.n[:s], 1e-300))))
        length = np.maximum(np.linalg.norm(new[:s], axis=1), 1e-300)
        new[:s] *= (np.sqrt(1.0 - share) / length)[:, None]
        psi[:s] = share
        return new, psi

    def _columns(self) -> Host:
        """Return which of the s + c columns every coordinate belongs to, (D,)."""
        levels = [np.full(K, self.s + c) for c, K in enumerate(self.sizes)]
        return np.concatenate([np.arange(self.s), *levels]).astype(np.intp)

    def slope(self, theta: Host) -> tuple[float, Host]:
        """Return the log-evidence of θ plus its log-prior, and the gradient.

        EP's evidence does not change with its sites, so that the slope is that of the tilted laws:
        E[ε_jt]/ψ_j by w_j and (E[ε_j²] − nψ_j)/(2ψ_j²) by ψ_j. Shifts move with the loadings.
        """
        factors = self.unpack(theta)
        sums = self.sums(factors)
        return self._with_prior(theta, sums, self._slope(theta, factors, sums))

    def _slope(self, theta: Host, factors: CopulaFactors, sums: _LatentSums) -> Host:
        """Return the gradient of the log-evidence by θ."""
        s, psi = self.s, factors.psi
        to_W = sums.noise_t / psi[:, None]
        to_shifts = sums.noise[s:]
        if self.sizes:  # the evidence is relative to that of every level on its own
            alone = self._alone(factors)
            to_W, to_shifts = to_W - alone.noise_t, to_shifts - alone.noise[s:]
        to_psi = 0.5 * (sums.noise[:s] / psi[:s] - sums.n[:s]) / psi[:s]
        for c, part in enumerate(factors.parts):
            J = self.shares[c].by_shift + 1.0 / self.sizes[c]
            pull = np.linalg.lstsq(J.T, to_shifts[part])[0]
            moved = np.einsum("k,klr->lr", pull, self.shares[c].by_loading)
            to_W[s:][part] -= moved
        return self._by_theta(theta, factors.W, psi, to_W, to_psi)

    def _by_theta(self, theta: Host, W: Host, psi: Host, to_W: Host, to_psi: Host) -> Host:
        """Return the gradient by θ of one by W, (D, q), and by ψ of scalars, (s,)."""
        s, q = self.s, self.q
        slope = to_W.copy()
        if self.isotropic:
            u = theta[: s * q].reshape(s, q)
            sigma2, length = float(psi[0]) if s else 0.5, np.linalg.norm(u, axis=1)[:, None]
            unit = u / np.maximum(length, 1e-300)
            along = (unit * to_W[:s]).sum(axis=1)
            size = math.sqrt(1.0 - sigma2)
            slope[:s] = size * (to_W[:s] - unit * along[:, None]) / np.maximum(length, 1e-300)
            by_noise = (to_psi.sum() - along.sum() / (2.0 * size)) * sigma2 * (1.0 - sigma2)
            return np.append(slope.ravel(), by_noise)
        root = np.sqrt(psi[:s, None])  # 1/ρ
        inner = (W[:s] * to_W[:s]).sum(axis=1, keepdims=True)
        slope[:s] = root * (to_W[:s] - W[:s] * (inner + 2.0 * psi[:s, None] * to_psi[:, None]))
        return slope.ravel()

    # --- EM with all of z as what is missing, accelerated

    def image(self, theta: Host) -> _Image:
        """Take one long EM step: maximise the surrogate of the evidence at θ, by quasi-Newton.

        With z as what is missing, the M step of scalars is factor analysis of S = E[zzᵀ]: latents
        that are worth little are found as fast as others. As much of z is not known, S is moved
        away from WWᵀ + Ψ, `LONGER` times as far, if a covariance is there. Levels add the slope of
        the evidence that is left, and the curvature of regressions on t: all of it for themselves,
        and for scalars the share of the coordinates that are levels.
        """
        factors, s, q = self.unpack(theta), self.s, self.q
        longer = LONGER_ISOTROPIC if self.isotropic else LONGER
        sums = self.sums(factors, once=True, moments=True)
        now, n = factors.correlation, sums.all_n
        S = now + longer * (sums.moments / n - now)
        if not _is_positive(S):  # few rows: no law has such moments, and the surrogate no maximum
            longer, S = 1.0, sums.moments / n

        def analysis(x: Host) -> tuple[float, Host]:
            W, psi = self.loadings(x)
            gain, to_W, to_psi = _factor_analysis(W[:s], psi[:s], S)
            every = np.zeros((self.D, q))
            every[:s] = n * to_W
            return n * gain, self._by_theta(x, W, psi, every, n * to_psi)

        share = (self.D - s) / self.D
        A = _unpacked(sums.second, q)[self._columns()]
        A[:s] *= share
        rest = np.zeros(theta.size)
        if self.sizes:
            rest = longer * self._slope(theta, factors, sums) - analysis(theta)[1]

        def cost(x: Host) -> tuple[float, Host]:
            gain, by = analysis(x)
            by -= longer * PRIOR * self._shrunk(x)
            gain -= longer * self.penalty(x)
            if self.sizes:
                moved = x - theta
                held = share * n * s * moved
                held[: self.D * q] = (A @ moved[: self.D * q].reshape(-1, q, 1)).ravel()
                by += rest - held
                gain += float(moved @ (rest - 0.5 * held))
            return -gain / n, -by / n

        found = optimize.minimize(
            cost,
            theta,
            jac=True,
            method="L-BFGS-B",
            bounds=optimize.Bounds(-self.most, self.most),
            options={"maxiter": INNER_STEPS, "gtol": INNER_SLOPE, "maxcor": 20},
        )
        gain = n * (cost(theta)[0] - float(found.fun)) / longer
        value = sums.loglikelihood - self.penalty(theta)
        return _Image(np.asarray(found.x), value, gain)

    @cached_property
    def most(self) -> Host:
        """Bounds of |θ|; where all are finite, quasi-Newton begins with a short step."""
        most = np.full(self.D * self.q + self.isotropic, FARTHEST)
        most[self.s * self.q : self.D * self.q] = LARGEST_LOADING
        if self.isotropic:
            most[-1] = special.logit(1 - LEAST_ISOTROPIC)
        return most

    def _with_prior(self, theta: Host, sums: _LatentSums, slope: Host) -> tuple[float, Host]:
        """Return log-evidence and slope with what the prior of θ adds to them."""
        return sums.loglikelihood - self.penalty(theta), slope - PRIOR * self._shrunk(theta)

    def penalty(self, theta: Host) -> float:
        """Return −ln of the prior density of θ, up to a constant."""
        shrunk = self._shrunk(theta)
        return 0.5 * PRIOR * float(shrunk @ shrunk)

    def _shrunk(self, theta: Host) -> Host:
        """Return θ where it has a prior, else 0: directions and a common noise have none."""
        shrunk = theta.copy()
        if self.isotropic:
            shrunk[: self.s * self.q], shrunk[-1] = 0.0, 0.0
        return shrunk

    def _alone(self, factors: CopulaFactors) -> _LatentSums:
        """Return the sums of rows that know a level and nothing else, as many as know it."""
        total = sum(self.sizes)
        nothing, levels = np.full((total, self.s), np.inf), np.full((total, len(self.sizes)), -1)
        for c, part in enumerate(factors.parts):
            levels[part, c] = np.arange(self.sizes[c])
        rows = LatentRows(-nothing, nothing, levels, self.sizes)
        run = _Propagation(factors, _Block(rows, slice(0, total)), self.sites.get(-1))
        found = run.run(self.ep_tolerance)
        self.sites[-1] = run.next
        return _block_sums(run, found, np.concatenate(self.counts), moments=False)

    def begin(self, rng: np.random.Generator) -> Host:
        """Return θ to start from: the span of the rows, filled with what is expected of them."""
        Z = self._filled()
        Z /= np.sqrt(np.maximum((Z * Z).mean(axis=0), 1e-12))
        V = algebra.orthonormal(rng.standard_normal((self.D, min(self.D, self.q + 4))))
        for _ in range(4):
            V, ell, _ = algebra.svd(Z.T @ (Z @ V) / Z.shape[0])
        V = deterministic_signs(V)[:, : self.q]
        W = V * np.sqrt(np.maximum(ell[: self.q], 0.05))
        W = W + 0.1 * rng.standard_normal(W.shape) / math.sqrt(max(self.q, 1))
        square = (W * W).sum(axis=1)
        W *= np.sqrt(np.minimum(1.0, 0.7 / square))[:, None]
        psi = 1.0 - np.minimum(square, 0.7)  # of scalars; levels have none of their own
        if self.isotropic and self.s:
            psi[: self.s] = psi[: self.s].mean()
        return self.pack(W, psi)

    def _filled(self) -> Host:
        """Return expected coordinates of every row as if columns were independent, (n, D)."""
        low, high = self.rows.low, self.rows.high
        scalars = np.where(low < high, 0.0, low)
        below, above = np.isinf(low), np.isinf(high)
        two, right, left = ~below & ~above & (low < high), above & ~below, below & ~above
        scalars[two] = interval_moments(low[two], high[two])[0]
        scalars[right] = tail_moments(low[right])[0]
        scalars[left] = -tail_moments(-high[left])[0]
        parts = [scalars]
        for c, K in enumerate(self.sizes):
            levels, f = self.rows.levels[:, c], self.frequencies[c]
            score = (np.eye(K) - f) / np.sqrt(np.maximum(f * (1 - f), 1e-12))
            parts.append(np.where(levels[:, None] >= 0, score[levels], 0.0))
        return np.concatenate(parts, axis=1) * np.sqrt(self.w)[:, None]

    def polish(
        self,
        theta: Host,
        record: Record,
        tol: float,
        max_iter: int,
        keeper: Keeper | None = None,
        tilt: Host | None = None,
    ) -> Host:
        """Continue by quasi-Newton: no component of the slope per row exceeds `tol` at the end.

        A `tilt` is added to the slope per row; rotations of the latents, to which the evidence is
        blind but the tilt is not, are then left out.
        """
        n, origin = float(self.w.sum()), theta
        turns = self._turns(theta)

        def straight(x: Host) -> Host:
            return np.asarray(x - turns @ (turns.T @ x))

        def cost(x: Host) -> tuple[float, Host]:
            if tilt is None:
                value, slope = self.slope(x)
                return -value / n, -slope / n
            moved = straight(x - origin)
            value, slope = self.slope(origin + moved)
            return -value / n - float(tilt @ moved), -straight(slope / n + tilt)

        low, high = -self.most, self.most
        if tilt is not None:  # it speaks for the neighbourhood only
            low, high = np.maximum(low, theta - NEARBY), np.minimum(high, theta + NEARBY)
        theta = np.clip(theta, low, high)
        bounds = [(float(a), float(b)) for a, b in zip(low, high, strict=True)]
        found = descend(cost, theta, [*bounds], record, lambda v: -n * v, tol, max_iter, keeper)
        return found if tilt is None else origin + straight(found - origin)

    def _turns(self, theta: Host) -> Host:
        """Return orthonormal directions in which θ moves as the latents are rotated, (p, r)."""
        size, q = self.D * self.q, self.q
        W, found = theta[:size].reshape(self.D, q), np.zeros((theta.size, q * (q - 1) // 2))
        for r, (i, j) in enumerate(zip(*np.triu_indices(q, 1), strict=True)):
            turned = np.zeros_like(W)
            turned[:, i], turned[:, j] = W[:, j], -W[:, i]
            found[:size, r] = turned.ravel()
        return np.linalg.qr(found)[0]

    def some_rows(self, count: int, rng: np.random.Generator) -> CopulaFit:
        """Return the fit of a random sample of the rows."""
        kept = np.sort(rng.choice(self.rows.n, count, replace=False))
        noise = ISOTROPIC if self.isotropic else DIAGONAL
        rows = self.rows.take(kept)
        return CopulaFit(rows, self.frequencies, self.q, noise, self.w[kept], self.tol)

    def keeper(self, watch: Watch | None) -> Keeper:
        """Return what keeps the state of this fit."""
        if watch is None:
            return Keeper()
        Z = self._filled()
        return watch.over(float(self.w.sum()), Z.mean(axis=0), Z.var(axis=0))


def _squashed(x: float) -> float:
    """Return the noise of a logit, within its bounds."""
    return float(np.clip(special.expit(x), LEAST_ISOTROPIC, 1 - LEAST_ISOTROPIC))


EM_STEPS = 1
"""Steps of EM, with t and z as what is missing, before longer ones."""

FEWEST_ROWS, START_ROWS_PER_PARAMETER = 1000, 10
"""Rows of a sample where a fit to four times as many begins."""

START_STEPS, START_TOLERANCE = 6, 0.05
"""How far it is fitted to that sample."""

LONGER, LONGER_ISOTROPIC = 2.0, 1.5
"""How much farther an EM step goes than its surrogate says, with either noise."""

INNER_STEPS, INNER_SLOPE = 60, 1e-4
"""Of quasi-Newton, which maximises a surrogate: the most steps, and slope per row at the end."""

FIRST_SWEEPS = 2
"""Sweeps of EP before the first M step."""

MEMORY, MOST_MOMENTS = 6, 256
"""Steps that an extrapolation looks back on; scalars up to which E[zzᵀ] is formed."""

REMEMBERED_ROWS = 100_000
"""Rows up to which a fit keeps the sites of EP from one pass to the next."""

SAMPLED_ROWS, ROWS_PER_PARAMETER = 20_000, 50
"""Rows that a fit to many begins with, at least, and per parameter."""


def fit_copula(
    rows: LatentRows,
    frequencies: tuple[Host, ...],
    request: CopulaRequest,
    weights: Host | None = None,
) -> CopulaFactors:
    """Fit the law of the latent coordinates to rows by the evidence that EP finds.

    EM, with a weak prior of the loadings, `PRIOR`: two steps with t and z as what is missing, then
    steps with z alone (`CopulaFit.image`), extrapolated from one to the next. Every one is a sweep
    of EP; what loses evidence is taken back. Tables of many scalars go on by quasi-Newton instead,
    by the slope of the evidence that the E step gives exactly (theory 15). EP's evidence is not a
    likelihood: the maximum is that of the approximation. The history has the evidence with the
    prior, and ends with the evidence alone.

    Of many rows a sample is fitted first. Its evidence, with a linear term that gives it the slope
    of all rows, then stands for theirs (Jordan, Lee & Yang 2019): each pass over all rows is as
    good as a step of Newton's method, and two or three are enough.

    Parameters
    ----------
    rows : LatentRows
    frequencies : tuple of arrays of shape (K,)
        Of the levels of each nominal column.
    request : CopulaRequest
        `tol` is the gain of the evidence that the next step expects, per parameter, at which to
        stop. Chance alone gives 1/2.
    weights : array of shape (n,), optional

    Notes
    -----
    O(nDq²) per sweep of EP and O(nq³) for its posteriors, in blocks of rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(500, 1)) + 0.5 * rng.normal(size=(500, 4))
    >>> low, high = np.where(z > 0, 0.0, -np.inf), np.where(z > 0, np.inf, 0.0)  # signs alone
    >>> rows = LatentRows(low, high, np.zeros((500, 0), dtype=int))
    >>> factors = fit_copula(rows, (), CopulaRequest(n_components=1))
    >>> factors.correlation.round(1)[0]
    array([1. , 0.8, 0.7, 0.7])
    """
    q, D = request.n_components, int(rows.low.shape[1]) + sum(rows.sizes)
    if not 0 <= q < max(D, 1):
        raise ValueError(expected("n_components", f"a number from 0 to {D - 1}", q))
    fit = CopulaFit(rows, frequencies, q, request.noise, weights, request.tol)
    if q == 0:
        nothing = History((0.0,), 0, True)
        W = np.zeros((D, 0))
        return replace(fit.unpack(fit.pack(W, np.ones(D))), history=nothing)
    keeper = fit.keeper(request.watch)
    few = max(SAMPLED_ROWS, ROWS_PER_PARAMETER * D * q)
    with backend.threads_outside(rows.low):  # products are small, and BLAS would wait for itself
        if 2 * few < rows.n:
            theta, record = _many_rows(fit, few, request)
        else:
            theta, record = _climbed(fit, request, keeper)
    if not record.interrupted:
        keeper.done()
    found = canonical_copula(fit.unpack(theta))
    return replace(found, history=History.of(record))


def _climbed(fit: CopulaFit, request: CopulaRequest, keeper: Keeper) -> tuple[Host, Record]:
    """Climb from the start: EM, then long steps of it, or quasi-Newton if scalars are many."""
    if fit.s > MOST_MOMENTS:
        theta, record = _by_slopes(fit, request, keeper)
    else:
        theta, record = _by_images(fit, request, keeper)
    record.add(fit.sums(fit.unpack(theta)).loglikelihood)
    return theta, record


def _started(fit: CopulaFit, request: CopulaRequest) -> tuple[Host, Record]:
    """Return where to begin: as told, where a sample of the rows leads, or after a step of EM."""
    if request.begin is not None:
        return fit.pack(request.begin.W, request.begin.psi), Record()
    rng, few = request.start, max(FEWEST_ROWS, START_ROWS_PER_PARAMETER * fit.D * fit.q)
    if 4 * few <= fit.rows.n and fit.s <= MOST_MOMENTS:
        rough = replace(request, rng=rng, tol=START_TOLERANCE, watch=None)
        rough = replace(rough, max_iter=min(request.max_iter, START_STEPS))
        theta, record = _by_images(fit.some_rows(few, rng), rough, Keeper())
        return theta, Record(n_iter=record.n_iter, interrupted=record.interrupted)
    steps = min(EM_STEPS, request.max_iter)
    if not steps:
        return fit.begin(rng), Record()
    return maximize(fit.step, fit.begin(rng), tol=0.0, max_iter=steps)


def _by_slopes(fit: CopulaFit, request: CopulaRequest, keeper: Keeper) -> tuple[Host, Record]:
    """Climb by EM, then quasi-Newton."""
    if keeper.state is not None and "values" in keeper.state[0]:  # quasi-Newton had begun
        theta, record = keeper.state[0]["theta"], Record.of(keeper.state)
    else:
        theta, record = _started(fit, request)
    if not record.ended and record.n_iter < request.max_iter:
        limit = request.max_iter - record.n_iter
        theta = fit.polish(theta, record, request.tol * SLOPE, limit, keeper)
    return theta, record


class _Path(NamedTuple):
    """Where long EM steps are: the next θ, and the last points with their images."""

    theta: Host
    value: float  # of the last point
    points: Host  # (k, p), the last one last
    images: Host  # (k, p)
    leaps: bool = False  # θ is an extrapolation

    def packed(self) -> State:
        """Return it for a checkpoint."""
        arrays = {"theta": self.theta, "points": self.points, "images": self.images}
        return arrays, {"value": self.value, "leaps": self.leaps}

    @classmethod
    def of(cls, state: State) -> _Path:
        """Return what a checkpoint has."""
        arrays, numbers = state
        named = (arrays[name] for name in ("theta", "points", "images"))
        theta, points, images = map(np.asarray, named)
        return cls(theta, float(numbers["value"]), points, images, bool(numbers["leaps"]))

    def back(self) -> _Path:
        """Return the image of the last point if an extrapolation fails, else half the way there."""
        if self.leaps:
            return self._replace(
                theta=self.images[-1], points=self.points[-1:], images=self.images[-1:], leaps=False
            )
        return self._replace(theta=0.5 * (self.theta + self.points[-1]))

    def then(self, image: _Image) -> _Path:
        """Return the path with one more point: extrapolated (Anderson 1965; Walker & Ni 2011)."""
        points = np.vstack([self.points, self.theta])[-MEMORY - 1 :]
        images = np.vstack([self.images, image.theta])[-MEMORY - 1 :]
        theta, steps = image.theta, images - points
        if len(points) > 1:
            bend = np.diff(steps, axis=0)
            square = bend @ bend.T
            square[np.diag_indices_from(square)] += 1e-8 * np.trace(square) + 1e-300
            theta = theta - np.linalg.solve(square, bend @ steps[-1]) @ np.diff(images, axis=0)
        return _Path(theta, image.value, points, images, len(points) > 1)


def _by_images(fit: CopulaFit, request: CopulaRequest, keeper: Keeper) -> tuple[Host, Record]:
    """Climb by long EM steps, extrapolated; one that loses evidence is taken back."""
    left, most = math.inf, fit.most

    def begin() -> tuple[_Path, Record]:
        theta, record = _started(fit, request)
        nothing = np.zeros((0, theta.size))
        return _Path(theta, -math.inf, nothing, nothing), record

    def step(path: _Path) -> tuple[_Path, float]:
        nonlocal left
        image = fit.image(path.theta)
        if image.value < path.value - NEGLIGIBLE * path.theta.size:
            left = math.inf
            return path.back(), path.value
        gained = image.value - path.value
        left = max(image.gain, gained / (WITH_LEVELS if fit.sizes else WITHOUT_LEVELS))
        path = path.then(image)
        return path._replace(theta=np.clip(path.theta, -most, most)), path.value

    path, record = iterate(
        step,
        begin,
        max_iter=request.max_iter,
        stop=lambda record: left <= request.tol * most.size,
        label="EM step",
        keeper=keeper,
        pack=_Path.packed,
        unpack=_Path.of,
    )
    return path.theta, record


def _many_rows(fit: CopulaFit, few: int, request: CopulaRequest) -> tuple[Host, Record]:
    """Climb on a sample of the rows, then on the sample with the slope of all rows."""
    sample, n = fit.some_rows(few, request.start), float(fit.w.sum())
    theta, inner = _climbed(sample, request, Keeper())
    record = Record(n_iter=inner.n_iter, interrupted=inner.interrupted)
    while not record.ended and record.n_iter < request.max_iter:
        value, slope = fit.slope(theta)
        record.add(value)
        gain = left_to_gain(record.loglikelihoods)
        close = np.abs(slope).max() <= SLOPE * request.tol * n or gain <= ENOUGH * theta.size
        record.converged = bool(close)
        if record.converged or len(record.loglikelihoods) == MOST_PASSES:
            record.add(value + fit.penalty(theta))
            return theta, record
        tilt, inner = slope / n - sample.slope(theta)[1] / float(sample.w.sum()), Record()
        limit = request.max_iter - record.n_iter
        theta = sample.polish(theta, inner, SLOPE * request.tol, limit, tilt=tilt)
        record.n_iter, record.interrupted = record.n_iter + inner.n_iter, inner.interrupted
    record.add(fit.sums(fit.unpack(theta)).loglikelihood)
    return theta, record


MOST_PASSES = 6
"""Passes over all rows after which a fit to many ends."""

NEGLIGIBLE, ENOUGH = 2e-3, 0.02
"""Gains of log-evidence per parameter that are nothing, or not worth a pass: chance gives 1/2."""

WITHOUT_LEVELS, WITH_LEVELS = 10.0, 3.0
"""What the last step of a fit may have gained, by what the next one expects; see `tol`."""

SLOPE = 0.1
"""Slope per row at which quasi-Newton stops, by `tol`."""


def canonical_copula(factors: CopulaFactors) -> CopulaFactors:
    """Rotate t so that WᵀΨ⁻¹W is diagonal, largest first; signs are deterministic."""
    root = np.sqrt(factors.psi)[:, None]
    U, size, _ = algebra.svd(factors.W / root)
    return replace(factors, W=deterministic_signs((U * size) * root))


# --- How many latents: hidden entries are predicted ----------------------------------------------

SELECTION_ROWS = 2000
"""Rows that a choice of q looks at, of more."""

SELECTION_LIMITS: dict[str, Any] = {"tol": 1e-2, "max_iter": 30}
"""How far the fits of a choice go: the scores of smaller steps are the same."""

NO_BETTER = 3
"""Candidates that gain nothing on smaller ones, but for chance, before larger ones are left out."""

SELECTION_SEED = 0
"""Of the folds."""

MOST_LATENTS = 20
"""Largest q that is tried if none is given."""


def choose_latents(
    rows: LatentRows,
    frequencies: tuple[Host, ...],
    request: CopulaRequest,
    weights: Host | None = None,
    most: int = MOST_LATENTS,
) -> Selection:
    """Choose q = 1, 2, … by hidden entries: each is predicted from what its row still shows.

    Known entries are dealt to five folds; the score is ln of the probability (of the density of z
    where its value is known) that the others give to a hidden entry, relative to its column alone.
    The q of the best score is taken: the prior keeps larger ones from fitting noise, and smaller
    ones within a standard error fill entries worse. The choice ends after three candidates that
    gain less than a standard error on smaller ones. Up to `SELECTION_ROWS` rows are looked at. `q2`
    is the share of the squares of hidden coordinates (of indicators of levels) that is predicted.
    """
    rows, weights, folds = hidden_folds(rows, weights)
    if len(folds) < 2:
        raise DegenerateError(
            f"no column has the {2 * FOLDS} values needed to hide some of them. "
            "Give n_components as an int."
        )
    D = int(rows.low.shape[1]) + sum(K - 1 for K in rows.sizes)
    most = max(1, min(most, D - 1, rows.n - 1))
    scores: list[list[Score]] = []
    with task("cross-validation: fit", most * len(folds)) as tick:
        try:
            while len(scores) < most and not _is_enough(scores):
                q = len(scores) + 1
                asked = replace(request, n_components=q)
                row = []
                for score in hidden_scores(rows, frequencies, asked, weights, folds):
                    row.append(score)
                    tick(f"{q} components")
                scores.append(row)
        except KeyboardInterrupt:
            warn_interrupted(f"q = 1 to {len(scores)}", bool(scores))
    return summary(scores, 1, 1 + best_candidate(scores), "entry")


Hidden = tuple[Host, Host]
"""Masks of the entries that one fold hides: (n, s) and (n, c)."""


def hidden_folds(
    rows: LatentRows, weights: Host | None
) -> tuple[LatentRows, Host | None, list[Hidden]]:
    """Return the rows that a choice looks at, their weights, and what each fold hides of them."""
    rng = np.random.default_rng(SELECTION_SEED)
    if rows.n > SELECTION_ROWS:
        kept = np.sort(rng.choice(rows.n, SELECTION_ROWS, replace=False))
        rows, weights = rows.take(kept), None if weights is None else weights[kept]
    scalars, levels = _dealt(rows, rng)
    folds = [(scalars == k, levels == k) for k in range(FOLDS)]
    return rows, weights, [pair for pair in folds if pair[0].any() or pair[1].any()]


def hidden_scores(
    rows: LatentRows,
    frequencies: tuple[Host, ...],
    request: CopulaRequest,
    weights: Host | None,
    folds: list[Hidden],
) -> Iterator[Score]:
    """Yield for every fold how a fit without its entries predicts them."""
    w = np.ones(rows.n) if weights is None else np.asarray(weights, dtype=np.float64)
    asked = replace(request, watch=None, **SELECTION_LIMITS)
    for hidden in folds:
        shown = rows.hiding(*hidden)
        factors = fit_copula(shown, frequencies, asked, weights)
        yield _hidden_score(factors, rows, shown, hidden, w)


def _is_enough(scores: list[list[Score]]) -> bool:
    """Return True if the last candidates gain nothing on smaller ones, but for chance."""
    if len(scores) <= NO_BETTER:
        return False
    before, last = scores[:-NO_BETTER], scores[-NO_BETTER:]
    pairs = zip(last[best_candidate(last)], before[best_candidate(before)], strict=True)
    gain = [a.loglikelihood - b.loglikelihood for a, b in pairs]
    return bool(np.mean(gain) <= np.std(gain, ddof=1) / math.sqrt(len(gain)))


def _dealt(rows: LatentRows, rng: np.random.Generator) -> tuple[Host, Host]:
    """Return the fold of every entry, −1 in columns that are rarely known."""
    found = []
    for known in rows.known():
        often = known.sum(axis=0) >= 2 * FOLDS
        found.append(np.where(known & often, rng.integers(FOLDS, size=known.shape), -1))
    return found[0], found[1]


def _hidden_score(
    factors: CopulaFactors,
    rows: LatentRows,
    shown: LatentRows,
    hidden: Hidden,
    w: Host,
) -> Score:
    """Return how hidden entries are predicted."""
    law, (i, j) = factors.conditional(shown), np.nonzero(hidden[0])
    low, high, mean, variance = (A[i, j] for A in (rows.low, rows.high, law.mean, law.variance))
    value, centre, inside = np.zeros(low.size), low.copy(), low < high
    deviation = np.sqrt(variance)
    a, b = low[inside], high[inside]
    m, sd = mean[inside], deviation[inside]
    alone = truncated_moments(a, b)
    centre[inside] = alone.mean
    value[inside] = log_probability((a - m) / sd, (b - m) / sd) - alone.log_mass
    z, m, v = low[~inside], mean[~inside], variance[~inside]
    value[~inside] = -0.5 * (np.log(v) + (z - m) ** 2 / v - z * z)
    weight = w[i]
    total = [weight @ value, weight @ (centre - mean) ** 2, weight @ centre**2, weight.sum()]
    for c, part in enumerate(factors.parts):
        (here,) = np.nonzero(hidden[1][:, c])
        f, p, k = factors.frequencies[part], law.probabilities[c][here], rows.levels[here, c]
        truth, own = np.eye(f.size)[k], w[here]
        floor = np.finfo(np.float64).tiny
        chance = np.maximum(p[np.arange(k.size), k], floor) / np.maximum(f[k], floor)
        total[0] += own @ np.log(chance)
        total[1] += own @ ((truth - p) ** 2).sum(axis=1)
        total[2] += own @ ((truth - f) ** 2).sum(axis=1)
        total[3] += own.sum()
    return Score(*map(float, total))
