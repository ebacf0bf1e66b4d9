"""Expectation propagation: the latents of rows that are known by values, intervals and levels.

`LatentRows` is what rows say about their latent coordinates, `RowBlock` the same as EP reads it.
`Propagation` finds the posterior of t by expectation propagation (EP; Minka 2001): every interval
is a site on s = w_jᵀt, Φ((b − s)/√ψ) − Φ((a − s)/√ψ), replaced by exp(νs − τs²/2) with the same
moments. Sites are log-concave, so τ is in [0, 1/ψ]: 1/ψ is a known value, 0 a missing one. An
observed level k is K − 1 such sites on (w_k − w_l)ᵀt + ε_k, and ε_k is eliminated in closed form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

from dualpca.arrays import algebra, cached_property
from dualpca.data import Host
from dualpca.errors import expected
from dualpca.gaussian.truncated import (
    interval_moments,
    log_interval,
    log_probability,
    log_tail,
    tail_moments,
)

if TYPE_CHECKING:
    from dualpca.models.copula.law import CopulaFactors

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

    def take(self, index: Host) -> LatentRows:
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


class LevelRows(NamedTuple):
    """The rows of a block that observe level k of one nominal column."""

    column: int
    k: int
    rows: Host  # (g,)


class RowBlock:
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
            LevelRows(c, k, found)
            for c, K in enumerate(rows.sizes)
            if K > 1
            for k in range(K)
            if (found := np.flatnonzero(levels[:, c] == k)).size
        ]
        shapes = [(rows.sizes[group.column] - 1, group.rows.size) for group in self.groups]
        edges = np.cumsum([self.at.size, *(K * g for K, g in shapes)]).tolist()
        self.size = edges[-1]  # the number of sites
        self._places = list(zip(map(slice, edges, edges[1:]), shapes, strict=True))
        self.observed = (levels >= 0).T.astype(np.float64)  # (c, b)
        self.levels = levels

    @cached_property
    def log_alone(self) -> Host:
        """Log-probability of every interval if its column were all there is."""
        return log_probability(self.low, self.high)

    def level(self, sites: Host, i: int) -> Host:
        """Return what a row of numbers, one per site, has for a group, as a view, (…, K − 1, g)."""
        place, shape = self._places[i]
        return sites[..., place].reshape(*sites.shape[:-1], *shape)


# --- Small symmetric matrices, packed: one per row of a block, rows last --------------------------


def packed_outer(W: Host) -> Host:
    """Return wwᵀ packed, (d, q(q+1)/2)."""
    i, j, _ = algebra.triangle(int(W.shape[1]))
    return W[:, i] * W[:, j]


def packed_form(W: Host) -> Host:
    """Return what turns packed C into wᵀCw by one product, (d, q(q+1)/2)."""
    i, j, _ = algebra.triangle(int(W.shape[1]))
    return W[:, i] * W[:, j] * np.where(i == j, 1.0, 2.0)


def packed_inverse(A: Host, q: int) -> tuple[Host, Host]:
    """Return packed inverses and ln|A| of packed positive definite matrices, (q(q+1)/2, b).

    Gauss–Jordan on the lower triangle; every operation is on b numbers at once, which is several
    times faster than b small factorisations. A is overwritten. Matrices here are at least I, and
    so are all pivots.
    """
    place, logdet = algebra.triangle(q).place, np.zeros(A.shape[1])
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


def packed_times(C: Host, x: Host, *, lower: bool = False) -> Host:
    """Return Cx for packed C (q(q+1)/2, b), symmetric or lower triangles, and x (q, b)."""
    q = int(x.shape[0])
    place, y = algebra.triangle(q).place, np.empty_like(x)
    for i in range(q):
        last = i + 1 if lower else q
        y[i] = np.einsum("jb,jb->b", C[place[i, :last]], x[:last])
    return y


def packed_root(C: Host, q: int) -> Host:
    """Return packed Cholesky factors of packed matrices, (q(q+1)/2, b)."""
    place, L = algebra.triangle(q).place, C.copy()
    for k in range(q):
        L[place[k, k]] = np.sqrt(np.maximum(L[place[k, k]], 0.0))
        safe = np.where(L[place[k, k]] > 0, L[place[k, k]], 1.0)
        for i in range(k + 1, q):
            L[place[i, k]] /= safe
        for i in range(k + 1, q):
            for j in range(k + 1, i + 1):
                L[place[i, j]] -= L[place[i, k]] * L[place[j, k]]
    return L


# --- Expectation propagation ---------------------------------------------------------------------

EP_TOLERANCE, LOOSEST_EP = 1e-5, 1e-3
"""Change of a marginal, in its own standard deviations, at which EP stops; the largest in a fit.

The evidence is stationary in the sites: its error is of the order of the square.
"""

EP_SWEEPS, LEVEL_SWEEPS = 60, 20
"""Largest number of sweeps of EP, on rows and on the levels of one column."""


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


def cavity(mean: Host, variance: Host, tau: Host, nu: Host) -> tuple[Host, Host]:
    """Return the law of s without its site."""
    left = 1.0 - tau * variance
    return (mean - nu * variance) / left, variance / left


def _site_evidence(mean: Host, variance: Host, tau: Host, nu: Host, log_mass: Host) -> Host:
    """Return ln of the constant in front of a site, of the marginal and ln Z of its cavity."""
    left = 1.0 - tau * variance
    fit = tau * mean * mean - 2.0 * mean * nu + nu * nu * variance
    return np.asarray(log_mass - 0.5 * np.log(left) + 0.5 * fit / left)


class _Comparisons(NamedTuple):
    """The levels of a column but one, g_l = w_k − w_l, as sums over them need it."""

    g: Host  # (K − 1, q)
    outer: Host  # (q(q+1)/2, K − 1), gg^T packed
    form: Host  # (K − 1, q(q+1)/2), what turns packed C into gᵀCg
    offset: Host  # (K − 1,), m_k − m_l

    @classmethod
    def of(cls, factors: CopulaFactors, column: int, k: int) -> _Comparisons:
        g, offset = factors.comparisons(column, k)
        return cls(g, packed_outer(g).T, packed_form(g), offset)


class _Pull(NamedTuple):
    """What sites say of ε_k behind an observed level: s_l = g_lᵀt + ε_k for every other level l."""

    d: Host  # (g,), precision of ε_k given t
    pull: Host  # (q, g), Σ τ_l g_l
    total: Host  # (g,), Σ ν_l


class RowPosteriors(NamedTuple):
    """N(mean, C) of t for every row of a block."""

    C: Host  # (q(q+1)/2, b), packed
    logdet: Host  # (b,), −ln|C|
    mean: Host  # (q, b)
    rhs: Host  # (q, b), C⁻¹ mean
    pulls: list[_Pull]  # of every group


class SiteMarginals(NamedTuple):
    """The law of s of every site under the posterior."""

    mean: Host  # (m,)
    variance: Host  # (m,)
    spreads: list[Host]  # (q, g) of every group, C pull


class Propagation:
    """EP on one block of rows."""

    def __init__(self, factors: CopulaFactors, block: RowBlock, sites: Host | None) -> None:
        self.factors, self.block, self.q = factors, block, factors.q
        self.sites = np.zeros((2, block.size)) if sites is None else sites
        s, W = factors.s, factors.W
        self.W, self.psi = W[:s], factors.psi[:s]
        self.P = (packed_outer(self.W) / self.psi[:, None]).T @ block.known
        self.P[np.diagonal(algebra.triangle(self.q).place)] += 1.0
        self.rhs = (self.W / self.psi[:, None]).T @ block.z
        # what intervals need, for the coordinates that have some
        self.some = self.W[block.columns]
        self.outer, self.form = packed_outer(self.some).T, packed_form(self.some)
        self.next = self.sites  # as the last sweep would have set them
        self.directions = [_Comparisons.of(factors, one.column, one.k) for one in block.groups]
        offsets = [
            np.repeat(-direction.offset, group.rows.size)
            for direction, group in zip(self.directions, block.groups, strict=True)
        ]
        rest = sum(one.size for one in offsets)
        self.noise = np.concatenate([self.psi[block.of], np.ones(rest)])
        self.bounds = _Bounds(
            block.low[: block.two],
            block.high[: block.two],
            np.concatenate([block.edge, *offsets]),
            np.concatenate([block.side, np.ones(rest)]),
        )

    def dense(self, sites: Host) -> Host:
        """Return what intervals have among zeros, for coordinates that have intervals."""
        table = np.zeros((self.block.columns.size, self.block.b))
        table.ravel()[self.block.at] = sites[: self.block.at.size]
        return table

    def posterior(self) -> RowPosteriors:
        """Return the law of t under the sites as they are."""
        P, rhs, (tau, nu) = self.P.copy(), self.rhs.copy(), self.sites
        if self.block.at.size:
            P += self.outer @ self.dense(tau)
            rhs += self.some.T @ self.dense(nu)
        pulls = [self.pull(i) for i in range(len(self.block.groups))]
        for i, group in enumerate(self.block.groups):
            add_P, add_rhs = self.level_part(i, pulls[i])
            P[:, group.rows] += add_P
            rhs[:, group.rows] += add_rhs
        C, logdet = packed_inverse(P, self.q)
        return RowPosteriors(C, logdet, packed_times(C, rhs), rhs, pulls)

    def pull(self, i: int) -> _Pull:
        """Return what the sites of a group say of ε_k."""
        tau, nu = self.block.level(self.sites, i)
        return _Pull(1.0 + tau.sum(axis=0), self.directions[i].g.T @ tau, nu.sum(axis=0))

    def level_part(self, i: int, by: _Pull) -> tuple[Host, Host]:
        """Return what the sites of a group add to precision and linear term, ε_k eliminated."""
        directions, (tau, nu) = self.directions[i], self.block.level(self.sites, i)
        a, b, _ = algebra.triangle(self.q)
        P = directions.outer @ tau - by.pull[a] * by.pull[b] / by.d
        return P, directions.g.T @ nu - by.pull * (by.total / by.d)

    def marginals(self, found: RowPosteriors) -> SiteMarginals:
        """Return mean and variance of s for every site."""
        block, spreads, e = self.block, [], self.block.at.size
        mean, variance = np.empty(block.size), np.empty(block.size)
        (self.some @ found.mean).ravel().take(block.at, out=mean[:e], mode="clip")
        (self.form @ found.C).ravel().take(block.at, out=variance[:e], mode="clip")
        for i, group in enumerate(block.groups):
            directions, (d, pull, total) = self.directions[i], found.pulls[i]
            C, m = found.C.take(group.rows, axis=1), found.mean.take(group.rows, axis=1)
            spread = packed_times(C, pull)
            own = (total - np.einsum("qg,qg->g", pull, m)) / d
            np.add(directions.g @ m, own, out=block.level(mean, i))
            v = directions.form @ C - 2.0 * (directions.g @ spread) / d
            rest = (np.einsum("qg,qg->g", pull, spread) / d + 1.0) / d
            np.add(v, rest, out=block.level(variance, i))
            spreads.append(spread)
        return SiteMarginals(mean, variance, spreads)

    def sweep(self, found: RowPosteriors) -> tuple[Host, Host]:
        """Return every site as its cavity has it, and what it changes, in deviations of s."""
        (tau, nu), (mean, variance, _) = self.sites, self.marginals(found)
        new = np.stack(_matched(*cavity(mean, variance, tau, nu), self.noise, self.bounds))
        return new, _moved(new[0] - tau, new[1] - nu, mean, variance)

    def run(self, tol: float = EP_TOLERANCE, sweeps: int = EP_SWEEPS) -> RowPosteriors:
        """Sweep until nothing moves; `next` are the sites that the last sweep would have set."""
        found, self.next, damping, last = self.posterior(), self.sites, 1.0, math.inf
        for _ in range(sweeps if self.block.size else 0):
            self.next, moved = self.sweep(found)
            change = float(moved.max())
            if change <= tol:
                break
            damping = max(0.5, damping * 0.8) if change > 0.7 * last else damping
            last = change
            if damping < 1.0:
                self.sites = self.sites + damping * (self.next - self.sites)
            else:
                self.sites = self.next
            found = self.posterior()
        return found

    def log_evidence(self, found: RowPosteriors, marginals: SiteMarginals | None = None) -> Host:
        """Return ln P of what every row knows relative to independent columns, (b,)."""
        block = self.block
        value = 0.5 * ((found.rhs * found.mean).sum(axis=0) - found.logdet)
        value -= 0.5 * (np.log(self.psi) @ block.known + (1 / self.psi - 1) @ block.z**2)
        (tau, nu), (mean, variance, _) = self.sites, marginals or self.marginals(found)
        mass = _log_mass(*cavity(mean, variance, tau, nu), self.noise, self.bounds)
        entries = _site_evidence(mean, variance, tau, nu, mass)
        if block.at.size:
            value += self.dense(entries[: block.at.size] - block.log_alone).sum(axis=0)
        for i, ((column, k, rows), by) in enumerate(zip(block.groups, found.pulls, strict=True)):
            own = block.level(entries, i).sum(axis=0)
            own += 0.5 * (by.total**2 / by.d - np.log(by.d))
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


TABLES_PER_BLOCK = 6
"""Arrays of the shape of a block that are to be in the processor's cache together."""


def shape_of(rows: LatentRows) -> Host:
    """Return an array that is cut into blocks as the rows are."""
    width = max(1, int(rows.low.shape[1]), int(rows.levels.shape[1]))
    return np.broadcast_to(np.float64(0.0), (rows.n, TABLES_PER_BLOCK * width))


class LevelLaws(NamedTuple):
    """EP's law of s_l = ζ_k − ζ_l, l ≠ k, of every level k where nothing else is observed."""

    log_mass: Host  # (K, b), ln P(ζ_k is the largest)
    mean: Host  # (K, K − 1, b)
    covariance: Host  # (K, K − 1, K − 1, b)
    tau: Host  # (K, K − 1, b)
    nu: Host  # (K, K − 1, b)


def log_level_probabilities(eta: Host, covariance: Host) -> Host:
    """Return ln P(ζ_k is the largest) of every level, by EP, (K, b); see `level_laws`."""
    return level_laws(eta, covariance).log_mass


def level_laws(eta: Host, covariance: Host, before: LevelLaws | None = None) -> LevelLaws:
    """Return what EP says of every level of a nominal column if it is observed.

    ζ ~ N(eta, covariance + I), for b laws at once: eta (K, b), covariance (K, K, b). Site by site,
    with every rank-one change exact; O(K³) per level and sweep. `before` are laws nearby: their
    sites are where EP begins.
    """
    K = int(eta.shape[0])
    others = np.array([[i for i in range(K) if i != k] for k in range(K)], dtype=np.intp)
    own = np.arange(K)[:, None]
    mean = eta[own] - eta[others]  # (K, K − 1, b)
    cross = covariance[own, others]
    V = covariance[others[:, :, None], others[:, None, :]] + 1.0
    V = V + covariance[own, own][:, :, None] - cross[:, :, None] - cross[:, None, :]
    tau, nu = np.zeros_like(mean), np.zeros_like(mean)
    value = np.zeros(eta.shape)
    if before is not None:
        tau, nu = before.tau.copy(), before.nu.copy()
        mean, V, value = _with_sites(mean, V, tau, nu)
    for _ in range(LEVEL_SWEEPS if K > 2 else 1):
        change = 0.0
        for i in range(K - 1):
            m, v = mean[:, i].copy(), V[:, i, i].copy()
            new = _matched(*cavity(m, v, tau[:, i], nu[:, i]), 1.0, POSITIVE)
            dt, dn = new[0] - tau[:, i], new[1] - nu[:, i]
            change = max(change, float(_moved(dt.copy(), dn.copy(), m, v).max(initial=0.0)))
            left = 1.0 + dt * v
            value += 0.5 * (dn * (v * dn + 2.0 * m) - dt * m * m) / left - 0.5 * np.log(left)
            column = V[:, :, i].copy()
            mean += column * ((dn - dt * m) / left)[:, None]
            V -= column[:, :, None] * column[:, None, :] * (dt / left)[:, None, None]
            tau[:, i], nu[:, i] = new[0], new[1]
        if change < EP_TOLERANCE:
            break
    for i in range(K - 1):
        m, v = mean[:, i], V[:, i, i]
        c, u = cavity(m, v, tau[:, i], nu[:, i])
        value += _site_evidence(m, v, tau[:, i], nu[:, i], special.log_ndtr(c / np.sqrt(u + 1.0)))
    return LevelLaws(value, mean, V, tau, nu)


def _with_sites(mean: Host, V: Host, tau: Host, nu: Host) -> tuple[Host, Host, Host]:
    """Return the law of s under all sites at once, and ln of what they weigh before."""
    mean, tau, nu = (np.moveaxis(part, -1, 0)[..., None] for part in (mean, tau, nu))
    V = np.moveaxis(V, -1, 0)  # (b, K, K − 1, K − 1)
    root = np.sqrt(tau)
    B = np.eye(V.shape[-1]) + root * V * np.swapaxes(root, -1, -2)
    after = V - np.swapaxes(root * V, -1, -2) @ np.linalg.solve(B, root * V)
    pull = nu - tau * mean
    moved = after @ pull
    value = (mean * (nu - 0.5 * tau * mean) + 0.5 * pull * moved).sum(axis=(-2, -1))
    value -= 0.5 * np.linalg.slogdet(B)[1]
    return np.moveaxis((mean + moved)[..., 0], 0, -1), np.moveaxis(after, 0, -1), value.T
