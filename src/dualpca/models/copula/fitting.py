"""The fit of the latent law: sums over the rows, EM steps and slopes, and the climb."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from operator import add
from typing import NamedTuple

import numpy as np
from scipy import optimize, special
from scipy.stats import qmc

from dualpca.arrays import algebra, backend, cached_property
from dualpca.data import Host
from dualpca.errors import expected
from dualpca.gaussian import HEYWOOD, LOG_2PI
from dualpca.gaussian.truncated import interval_moments, tail_moments
from dualpca.models.copula.law import CopulaFactors, canonical_copula
from dualpca.models.copula.propagation import (
    EP_SWEEPS,
    LOOSEST_EP,
    LatentRows,
    LevelLaws,
    Propagation,
    RowBlock,
    RowPosteriors,
    SiteMarginals,
    packed_form,
    packed_root,
    shape_of,
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
)

# --- Levels of nominal columns -------------------------------------------------------------------

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


class _Solved(NamedTuple):
    """Shifts that give the levels of a column their frequencies with its loadings, and shares."""

    w: Host  # (K, q)
    m: Host  # (K,)
    shares: _Shares

    def near(self, w: Host) -> Host:
        """Return about the shifts for other loadings: what they change of the shares, undone."""
        if w.shape != self.w.shape:
            return self.m
        change = np.einsum("klr,lr->k", self.shares.by_loading, w - self.w)
        step = np.linalg.lstsq(self.shares.by_shift + 1.0 / self.m.size, change)[0]
        return np.asarray(self.m - step if np.abs(step).max() < 1.0 else self.m)


def _solved_shifts(w: Host, frequencies: Host, m: Host) -> _Solved:
    """Return shifts that give the levels their frequencies, by Newton's method from m."""
    target = np.maximum(frequencies, RAREST_LEVEL)
    target = target / target.sum()
    found = _shares(w, m)
    for _ in range(50):
        off = np.log(target) - np.log(found.p)
        if np.abs(target - found.p).max() < 1e-9:
            break
        # Newton for ln p; a common shift changes nothing
        J = found.by_shift / found.p[:, None] + 1.0 / m.size
        step = np.linalg.lstsq(J, off)[0]
        size = np.abs(step).max()
        m = m + step * min(1.0, 1.0 / max(size, 1e-300))
        m = m - m.mean()
        found = _shares(w, m)
    return _Solved(w, m, found)


# --- The fit: sums over the rows -----------------------------------------------------------------


class _LatentSums(NamedTuple):
    """What one pass over the rows finds; sums of two sets of rows add.

    E[ε_jt] is the slope of the evidence by w_j, times ψ_j.
    """

    second: Host  # (s + c, q(q+1)/2), Σ E[ttᵀ] over the rows that know a column
    noise_t: Host  # (s + ΣK, q), Σ E[ε_j t]
    noise: Host  # (s + ΣK,), Σ E[ε_j²] of scalars, Σ E[ε_l] of levels
    n: Host  # (s + c,), number of rows that know a column
    all_n: float
    loglikelihood: float
    moments: Host  # (s, s), Σ E[zzᵀ] of scalars, or (0, 0)

    def plus(self, other: _LatentSums) -> _LatentSums:
        """Return the sums of both sets of rows."""
        return _LatentSums(*map(add, self, other))


def _block_sums(run: Propagation, found: RowPosteriors, w: Host, moments: bool) -> _LatentSums:
    """Return a block's share. Of every site, E[ε] = ψ(ν − τs̄) and cov(ε, t) = −ψτCw.

    With `moments`, also E[zzᵀ]; without levels, in place of the slope by loadings of scalars.
    """
    block, q, marginals = run.block, run.q, run.marginals(found)
    i, j, _ = algebra.triangle(q)
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
        all_n=float(w.sum()),
        loglikelihood=float(run.log_evidence(found, marginals) @ w),
        moments=_moments(run, found, w) if moments else np.zeros((0, 0)),
    )


def _scalar_sums(run: Propagation, found: RowPosteriors, w: Host) -> tuple[Host, Host]:
    """Return Σ E[ε_j t], (s, q), and Σ E[ε_j²], (s,)."""
    block, psi = run.block, run.psi[:, None]
    T, N = block.known / psi, block.z / psi
    T[block.columns] += run.dense(run.sites[0])
    N[block.columns] += run.dense(run.sites[1])
    pull = N - T * (run.W @ found.mean)  # E[ε]/ψ
    variance = packed_form(run.W) @ found.C
    squares = psi * block.seen + psi**2 * (pull**2 - T * (1.0 - T * variance))
    held = algebra.unpack((T * w) @ found.C.T, run.q)
    noise_t = psi * ((pull * w) @ found.mean.T - (held @ run.W[:, :, None])[:, :, 0])
    return noise_t, squares @ w


def _level_sums(
    run: Propagation, found: RowPosteriors, marginals: SiteMarginals, w: Host
) -> tuple[Host, Host]:
    """Return Σ E[ε_l t], (ΣK, q), and Σ E[ε_l], (ΣK,), of levels."""
    factors, block, q = run.factors, run.block, run.q
    level_t = np.zeros((sum(factors.sizes), q))
    level = np.zeros(sum(factors.sizes))
    for g, (column, k, rows) in enumerate(block.groups):
        by, spread, directions = found.pulls[g], marginals.spreads[g], run.directions[g].g
        (tau, nu), weight = block.level(run.sites, g), w[rows]
        push = (tau * block.level(marginals.mean, g) - nu) * weight  # E[ε_l], of the other levels
        own = push @ found.mean[:, rows].T - (tau * weight / by.d) @ spread.T
        held = algebra.unpack((tau * weight) @ found.C[:, rows].T, q)
        own += (held @ directions[:, :, None])[:, :, 0]
        part, size = factors.parts[column], factors.sizes[column]
        others = part.start + np.flatnonzero(np.arange(size) != k)
        level_t[others] += own
        level_t[part.start + k] -= own.sum(axis=0)
        level[others] += push.sum(axis=1)
        level[part.start + k] -= push.sum()
    return level_t, level


def _moments(run: Propagation, found: RowPosteriors, w: Host) -> Host:
    """Return Σ E[zzᵀ] of scalars, (s, s).

    Given t, z_j has mean a_j w_jᵀt + ψ_jν_j and variance ψ_j a_j, with a_j = 1 − ψ_jτ_j, and
    coordinates are independent.
    """
    block, weight = run.block, np.sqrt(w)
    psi = run.psi[block.columns, None]
    place, root = algebra.triangle(run.q).place, packed_root(found.C, run.q)
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
    begin: CopulaFactors | None = None  # where to start, if not at the span; of q latents or fewer
    tol: float = 2e-3  # gain of the evidence per step and parameter
    max_iter: int = 200


class _Image(NamedTuple):
    """Where a long EM step leads."""

    theta: Host
    value: float  # log-evidence with the log-prior where it began
    gain: float  # what it expects to gain


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
        self.blocks: dict[int, RowBlock] = {}
        self.sites: dict[int, Host] = {}
        self.solved: dict[int, _Solved] = {}
        self.laws: tuple[LevelLaws, ...] | None = None
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
            sigma2 = np.clip(special.expit(theta[-1]), LEAST_ISOTROPIC, 1 - LEAST_ISOTROPIC)
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
        """Return the law of θ."""
        return self.with_shares(theta)[0]

    def with_shares(self, theta: Host) -> tuple[CopulaFactors, list[_Shares]]:
        """Return the law of θ, and how the shares of levels change there.

        Shifts and what EP says of levels alone are solved for, from where they were last: that
        saves steps, and changes nothing.
        """
        W, psi = self.loadings(theta)
        start, found = self.s, []
        for c, K in enumerate(self.sizes):
            own = slice(start, start + K)
            W[own] -= W[own].mean(axis=0)
            before = self.solved.get(c)
            m = np.zeros(K) if before is None else before.near(W[own])
            self.solved[c] = _solved_shifts(W[own], self.frequencies[c], m)
            found.append(self.solved[c])
            start += K
        shifts, frequencies = (
            np.concatenate([*parts, np.zeros(0)])
            for parts in ([one.m for one in found], self.frequencies)
        )
        factors = CopulaFactors(W, psi, shifts, frequencies, self.sizes)
        self.laws = factors.found_near(self.laws)
        return factors, [one.shares for one in found]

    def sums(
        self, factors: CopulaFactors, *, once: bool = False, moments: bool = False
    ) -> _LatentSums:
        """Run EP on all rows, from the sites of the last time where they are few.

        `once`: a sweep is enough if there are such, as parameters move more than sites do.
        """

        def block_sums(cut: slice) -> _LatentSums:
            block = self.blocks.get(cut.start) or RowBlock(self.rows, cut)
            sites = self.sites.get(cut.start)
            run = Propagation(factors, block, sites)
            many = FIRST_SWEEPS if sites is None else 1
            found = run.run(self.ep_tolerance, many if self.remembers and once else EP_SWEEPS)
            if self.remembers:
                self.blocks[cut.start], self.sites[cut.start] = block, run.next
            return _block_sums(run, found, self.w[cut], moments)

        return backend.summed(block_sums, _LatentSums.plus, shape_of(self.rows))

    def slope(self, theta: Host) -> tuple[float, Host]:
        """Return the log-evidence of θ plus its log-prior, and the gradient.

        EP's evidence does not change with its sites, so that the slope is that of the tilted laws:
        E[ε_jt]/ψ_j by w_j and (E[ε_j²] − nψ_j)/(2ψ_j²) by ψ_j. Shifts move with the loadings.
        """
        factors, shares = self.with_shares(theta)
        sums = self.sums(factors)
        slope = self._slope(theta, factors, shares, sums)
        return sums.loglikelihood - self.penalty(theta), slope - PRIOR * self._shrunk(theta)

    def _slope(
        self, theta: Host, factors: CopulaFactors, shares: list[_Shares], sums: _LatentSums
    ) -> Host:
        """Return the gradient of the log-evidence by θ."""
        s, psi = self.s, factors.psi
        to_W = sums.noise_t / psi[:, None]
        to_shifts = sums.noise[s:].copy()
        for c, part in enumerate(factors.parts):  # relative to that of every level on its own
            by_loadings, by_shifts = self._alone(factors, c)
            to_W[s:][part] -= by_loadings
            to_shifts[part] -= by_shifts
        to_psi = 0.5 * (sums.noise[:s] / psi[:s] - sums.n[:s]) / psi[:s]
        for c, part in enumerate(factors.parts):
            J = shares[c].by_shift + 1.0 / self.sizes[c]
            pull = np.linalg.lstsq(J.T, to_shifts[part])[0]
            to_W[s:][part] -= np.einsum("k,klr->lr", pull, shares[c].by_loading)
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
        (factors, shares), s, q = self.with_shares(theta), self.s, self.q
        longer = LONGER_ISOTROPIC if self.isotropic else LONGER
        sums = self.sums(factors, once=True, moments=True)
        now, n = factors.correlation, sums.all_n
        S = now + longer * (sums.moments / n - now)
        # few rows: no law has such moments, and the surrogate no maximum
        if s and np.linalg.eigvalsh(S)[0] <= HEYWOOD:
            longer, S = 1.0, sums.moments / n

        def analysis(x: Host) -> tuple[float, Host]:
            W, psi = self.loadings(x)
            gain, to_W, to_psi = _factor_analysis(W[:s], psi[:s], S)
            every = np.zeros((self.D, q))
            every[:s] = n * to_W
            return n * gain, self._by_theta(x, W, psi, every, n * to_psi)

        share = (self.D - s) / self.D
        levels = [np.full(K, s + c) for c, K in enumerate(self.sizes)]
        columns = np.concatenate([np.arange(s), *levels]).astype(np.intp)  # of every coordinate
        A = algebra.unpack(sums.second, q)[columns]
        A[:s] *= share
        rest = np.zeros(theta.size)
        if self.sizes:
            rest = longer * self._slope(theta, factors, shares, sums) - analysis(theta)[1]

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

        inner, limits = Record(), (INNER_SLOPE, INNER_STEPS)
        bounds = optimize.Bounds(-self.most, self.most)
        found = descend(cost, theta, bounds, inner, lambda v: -n * v, *limits, ftol=INNER_GAIN)
        inner.raise_interrupted()
        gain = (inner.loglikelihoods[-1] + n * cost(theta)[0]) / longer
        return _Image(found, sums.loglikelihood - self.penalty(theta), gain)

    @cached_property
    def most(self) -> Host:
        """Bounds of |θ|; where all are finite, quasi-Newton begins with a short step."""
        most = np.full(self.D * self.q + self.isotropic, FARTHEST)
        most[self.s * self.q : self.D * self.q] = LARGEST_LOADING
        if self.isotropic:
            most[-1] = special.logit(1 - LEAST_ISOTROPIC)
        return most

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

    def _alone(self, factors: CopulaFactors, column: int) -> tuple[Host, Host]:
        """Return the slope of the log-evidence of rows that know one level and nothing else.

        By loadings, (K, q), and shifts, (K,), of a nominal column, for as many rows as know it.
        EP's evidence is stationary in the sites: with T = diag(τ) and the law N(m, V) of s that
        they give, its slope by the mean of s is a = ν − Tm, and (aaᵀ − T + TVT)/2 by its
        covariance, DDᵀ + 11ᵀ with the rows w_k − w_l of D.
        """
        _, mean, V, tau, nu = (part[..., 0] for part in factors.level_laws[column])
        K, w, counts = self.sizes[column], factors.loadings_of(column), self.counts[column]
        a = nu - tau * mean  # (K, K − 1)
        by = a[:, :, None] * a[:, None, :] + tau[:, :, None] * V * tau[:, None, :]
        i = np.arange(K - 1)
        by[:, i, i] -= tau
        others = np.array([[j for j in range(K) if j != k] for k in range(K)], dtype=np.intp)
        both = np.concatenate([by @ (w[:, None] - w[others]), a[:, :, None]], axis=2)
        both *= counts[:, None, None]
        found = both.sum(axis=1)
        np.subtract.at(found, others, both)
        return found[:, :-1], found[:, -1]

    def begin(self, rng: np.random.Generator) -> Host:
        """Return θ to start from: the span of the rows, filled with what is expected of them."""
        Z = self._filled()
        Z /= np.sqrt(np.maximum((Z * Z).mean(axis=0), 1e-12))
        V = algebra.orthonormal(rng.standard_normal((self.D, min(self.D, self.q + 4))))
        for _ in range(4):
            V, ell, _ = algebra.svd(Z.T @ (Z @ V) / Z.shape[0])
        V = algebra.deterministic_signs(V)[:, : self.q]
        W = V * np.sqrt(np.maximum(ell[: self.q], 0.05))
        W = W + 0.1 * rng.standard_normal(W.shape) / math.sqrt(max(self.q, 1))
        square = (W * W).sum(axis=1)
        W *= np.sqrt(np.minimum(1.0, 0.7 / square))[:, None]
        psi = 1.0 - np.minimum(square, 0.7)  # of scalars; levels have none of their own
        if self.isotropic and self.s:
            psi[: self.s] = psi[: self.s].mean()
        return self.pack(W, psi)

    def widened(self, factors: CopulaFactors, rng: np.random.Generator) -> Host:
        """Return θ of factors, with further latents where the span of the rows leaves theirs."""
        W, psi, more = np.asarray(factors.W), np.asarray(factors.psi), self.q - factors.q
        if more > 0:
            span = self.loadings(self.begin(rng))[0]
            U, size, _ = algebra.svd(span - W @ np.linalg.lstsq(W, span)[0])
            W = np.hstack([W, U[:, :more] * size[:more] * np.sqrt(psi)[:, None]])
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
        if tilt is not None:  # it is the slope of all rows near θ only
            low, high = np.maximum(low, theta - NEARBY), np.minimum(high, theta + NEARBY)
        theta = np.clip(theta, low, high)
        bounds = optimize.Bounds(low, high)
        found = descend(cost, theta, bounds, record, lambda v: -n * v, tol, max_iter, keeper)
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


FEWEST_ROWS, START_ROWS_PER_PARAMETER = 1000, 10
"""Rows of a sample where a fit to four times as many begins."""

START_STEPS, START_TOLERANCE = 6, 0.05
"""How far it is fitted to that sample."""

LONGER, LONGER_ISOTROPIC = 2.0, 1.5
"""How much farther an EM step goes than its surrogate says, with either noise."""

INNER_STEPS, INNER_SLOPE, INNER_GAIN = 60, 1e-4, 2e-9
"""Of quasi-Newton, which maximises a surrogate: the most steps, and where it stops: slope per row,
and relative gain of a step."""

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
    sampled: int | None = None,
) -> CopulaFactors:
    """Fit the law of the latent coordinates to rows by the evidence that EP finds.

    EM with z as what is missing and a weak prior of the loadings, `PRIOR` (`CopulaFit.image`),
    extrapolated from one step to the next. Every step is a sweep of EP; what loses evidence is
    taken back. Tables of many scalars are fitted by quasi-Newton instead, by the slope of the
    evidence that the E step gives exactly (theory 15): E[zzᵀ] of 1,500 scalars takes three times
    as long. EP's evidence is not a likelihood: the maximum is that of the approximation. The
    history has the evidence with the prior, and ends with the evidence alone.

    Of many rows a sample is fitted first. Its evidence, with a linear term that gives it the slope
    of all rows, then stands for theirs (Jordan, Lee & Yang 2019): each pass over all rows is as
    good as a step of Newton's method, and two or three are enough. With nominal columns that is
    eight times faster than EM on 200,000 rows.

    Parameters
    ----------
    rows : LatentRows
    frequencies : tuple of arrays of shape (K,)
        Of the levels of each nominal column.
    request : CopulaRequest
        `tol` is the gain of the evidence that the next step expects, per parameter, at which to
        stop. Chance alone gives 1/2.
    weights : array of shape (n,), optional
    sampled : int, optional
        Rows of the sample that is fitted first, if there are more than twice as many; default:
        `SAMPLED_ROWS`, or `ROWS_PER_PARAMETER` for each parameter if that is more.

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
    array([1. , 0.7, 0.7, 0.7])
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
    few = max(SAMPLED_ROWS, ROWS_PER_PARAMETER * D * q) if sampled is None else sampled
    with backend.threads_outside(rows.low):  # products are small, and BLAS would wait for itself
        if 2 * few < rows.n:
            theta, record = _many_rows(fit, few, request)
        else:
            theta, record = _climbed(fit, request, keeper)
    if not record.interrupted:
        keeper.done()
    found = canonical_copula(fit.unpack(theta))
    return replace(found, history=History.of(record))


def _climbed(
    fit: CopulaFit, request: CopulaRequest, keeper: Keeper, most_moments: int = MOST_MOMENTS
) -> tuple[Host, Record]:
    """Climb from the start: by long steps of EM, or by quasi-Newton if scalars are many."""
    climb = _by_slopes if fit.s > most_moments else _by_images
    theta, record = climb(fit, request, keeper)
    record.add(fit.sums(fit.unpack(theta)).loglikelihood)
    return theta, record


def _started(fit: CopulaFit, request: CopulaRequest) -> tuple[Host, Record]:
    """Return where to begin: as told, where a sample of the rows leads, or at their span."""
    if request.begin is not None:
        return fit.widened(request.begin, request.start), Record()
    rng, few = request.start, max(FEWEST_ROWS, START_ROWS_PER_PARAMETER * fit.D * fit.q)
    if 4 * few <= fit.rows.n and fit.s <= MOST_MOMENTS:
        rough = replace(request, rng=rng, tol=START_TOLERANCE, watch=None)
        rough = replace(rough, max_iter=min(request.max_iter, START_STEPS))
        theta, record = _by_images(fit.some_rows(few, rng), rough, Keeper())
        return theta, Record(n_iter=record.n_iter, interrupted=record.interrupted)
    return fit.begin(rng), Record()


def _by_slopes(fit: CopulaFit, request: CopulaRequest, keeper: Keeper) -> tuple[Host, Record]:
    """Climb by quasi-Newton."""
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
        theta, points, images = (np.asarray(arrays[k]) for k in ("theta", "points", "images"))
        return cls(theta, float(numbers["value"]), points, images, bool(numbers["leaps"]))

    def back(self) -> _Path:
        """Return the image of the last point if an extrapolation fails, else half the way there."""
        if self.leaps:
            return _Path(self.images[-1], self.value, self.points[-1:], self.images[-1:])
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
