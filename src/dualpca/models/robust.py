"""Robust PPCA: the multivariate t in place of the Gaussian, and rows too far for it set aside.

`RobustModel` is the fitted model, `fit_robust` fits one to rows in memory.

x | u ~ N(μ, C/u) with u ~ Gamma(ν/2, ν/2) for every row and C = WWᵀ + σ²I (Lange, Little & Taylor
1989; Archambeau, Delannay & Verleysen 2006). EM weighs every row by u = E[u | x], so a row far off
counts little. That bounds what a row can do, but not what many rows at one place can: above a share
of about 1/(d + ν) they turn an axis. So EM starts from the rows that lie deepest among the others
(the start of ROBPCA; Hubert, Rousseeuw & Vanden Branden 2005), and rows that even the tails of
these cannot explain get weight 0.
"""

from __future__ import annotations

import math
import warnings
from copy import copy
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np
from scipy import optimize, special

from dualpca.arrays import Array, backend, cached_property
from dualpca.data import (
    Columns,
    Host,
    InMemoryTable,
    Table,
    Units,
    block_weights,
    column_starts,
    has_missing,
    in_memory,
    observed_weights,
    refuse_infinite,
    used_rows,
)
from dualpca.errors import DegenerateError, SelectionWarning
from dualpca.gaussian import (
    LOG_2PI,
    PARALLEL,
    Factors,
    Incomplete,
    ParameterErrors,
    Reference,
    Selection,
    SpikedGaussian,
    SpikedJudge,
    Unseen,
    completed,
    judge,
    observed,
    reference_of,
    rules,
)
from dualpca.models import driver, spiked
from dualpca.models.incomplete import Fit
from dualpca.models.selection import parallel_analysis
from dualpca.operators import Frame, Primal
from dualpca.solvers import solve

LEAST_DOF, MOST_DOF = 2.1, 1000.0
"""Degrees of freedom that are searched: at 2 there is no variance; above, there is the Gaussian."""

# --- The model -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RobustModel(spiked.SpikedModel):
    """The multivariate t with scale matrix C = Σ (ℓ − σ²) v vᵀ + σ²I and ν degrees of freedom.

    `variances` and `noise` are those of C; the covariance is C ν/(ν − 2).
    """

    dof: Annotated[float, "> 0, or inf"]  # ν
    row_weights: Annotated[Array, "n", ">= 0"]  # u of the training rows, 0 for those set aside

    @property
    def factors(self) -> Factors:
        """The same density as x = μ + (Wz + ε)/√u, for rows with missing values."""
        return replace(super().factors, dof=self.dof)

    def distance(self, rows: Array) -> tuple[Array, Array]:
        """Return δ = (x_o − μ_o)ᵀC_oo⁻¹(x_o − μ_o) of every row, and the size of x_o, (n,) each."""
        xp, d = backend.namespace(rows), int(self.components.shape[1])
        if has_missing(rows):
            seen = xp.astype(~xp.isnan(rows), xp.float64)
            return observed_distances(self.factors, rows), xp.sum(seen, axis=1)
        Y, residual = self.frame.project(self.axes, rows)
        found = distances(self.gaussian, Y, residual)
        return found, xp.full_like(found, float(d))

    def weigh(self, rows: Array) -> Array:
        """Return E[u | x_o] = (ν + k)/(ν + δ) of rows that observe k entries, (n,)."""
        distance, sizes = self.distance(rows)
        return weights_of(self.dof, sizes, distance)

    def stretch(self, rows: Array) -> Array:
        """Return E[1/u | x_o] = (ν + δ)/(ν + k − 2), (n,): covariances given a row grow by it."""
        distance, sizes = self.distance(rows)
        return observed.expected_stretch(self.dof, sizes, distance)

    def is_beyond(self, rows: Array) -> Array:
        """Return True for rows that are too far even for the tails, (n,)."""
        distance, sizes = map(backend.to_numpy, self.distance(rows))
        n = self.n_rows if self.reference is None else self.reference.n
        return distance > limits_of(self.dof, sizes, n)

    @property
    def _normal_factors(self) -> Factors:
        """The factors without tails."""
        return super().factors

    def latents(self, rows: Array, errors: ParameterErrors | None = None) -> tuple[Array, Array]:
        """Return E[z | x], (n, q), and covariances (n, q, q), with those of the parameters."""
        mean, covariance = super().latents(rows, errors)
        stretch = self.stretch(rows)[:, None, None]
        if errors is None:
            return mean, covariance * stretch
        return mean, covariance + (stretch - 1) * self._covariances(self.posterior(rows)[1], rows)

    def tails(self, rows: Array, covariance: Array) -> float | Array:
        """Return what tails add to covariances given the rows, of these with both."""
        return (1 - 1 / self.stretch(rows))[:, None, None] * covariance

    def _signal_variance(
        self, rows: Array, mean: Array, own: Array | None, errors: ParameterErrors | None
    ) -> Array:
        fixed, stretch = (
            super()._signal_variance(rows, mean, own, None),
            self.stretch(rows)[:, None],
        )
        if errors is None:
            return fixed * stretch
        return super()._signal_variance(rows, mean, own, errors) + (stretch - 1) * fixed

    def log_density(self, rows: Array, *, missing: bool) -> Array:
        """Return ln p of what every row observed under the t; O(dq) per row."""
        if missing and has_missing(rows):
            return observed.all_latents(self.factors, rows).log_density
        gaussian = self.gaussian
        distance, sizes = self.distance(rows)
        volume = gaussian.dim * LOG_2PI + gaussian.log_determinant()
        return observed.t_density(self.dof, sizes, distance, volume + 0 * distance)

    @property
    def inflation(self) -> float:
        """ν/(ν − 2): the covariance by the scale matrix."""
        if math.isinf(self.dof):
            return 1.0
        if not self.dof > 2:
            raise DegenerateError(observed.NO_SECOND_MOMENT)
        return self.dof / (self.dof - 2)

    def covariance(self) -> Array:
        """Return the covariance C ν/(ν − 2), (d, d)."""
        return super().covariance() * self.inflation

    def precision(self) -> Array:
        """Return the inverse of the covariance, (d, d)."""
        return super().precision() / self.inflation

    def sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Draw rows x = μ + (Wz + ε)/√u, (n_samples, d)."""
        rows = super().sample(n_samples, rng)
        if math.isinf(self.dof):
            return rows
        u = rng.gamma(self.dof / 2, size=(n_samples, 1)) * (2 / self.dof)
        mean, wide = backend.working(self.mean), backend.asarray(1 / np.sqrt(u), rows)
        return backend.cast_like(mean + wide * (backend.working(rows) - mean), self.components)


def distances(gaussian: SpikedGaussian, Y: Array, residual: Array) -> Array:
    """Return xᵀC⁻¹x of coordinates (n, q) and squared distances off the axes (n,)."""
    gaussian.require_density()
    inside = backend.namespace(Y).sum(Y * Y / gaussian.values, axis=1)
    return inside + residual / gaussian.noise if gaussian.rank < gaussian.dim else inside


def observed_distances(factors: Factors, rows: Array) -> Array:
    """Return (x_o − μ_o)ᵀC_oo⁻¹(x_o − μ_o) of what every row observed, (n,), block by block."""
    found = [latents.distance for _, latents in observed.each(factors, rows)]
    return backend.namespace(rows).concat(found, axis=0)


def weights_of(dof: float, sizes: Array, distance: Array) -> Array:
    """Return E[u | x_o] = (ν + k)/(ν + δ), (n,); theory 4.5."""
    if math.isinf(dof):
        return backend.namespace(distance).ones_like(distance)
    return (dof + sizes) / (dof + distance)


# --- Degrees of freedom --------------------------------------------------------------------------


def best_dof(sizes: Host, distance: Host, weights: Host, least: float = LEAST_DOF) -> float:
    """Return the ν of largest likelihood given δ; infinite where the Gaussian is as likely.

    None below `least` is tried.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> far = rng.chisquare(5, 20000) / (rng.chisquare(4, 20000) / 4)
    >>> round(best_dof(np.full(20000, 5.0), far, np.ones(20000)), 1)
    4.0
    """
    if least >= MOST_DOF:
        return math.inf
    kinds, place = np.unique(sizes, return_inverse=True)
    counts, mean = np.bincount(place.reshape(-1), weights=weights), float(weights.sum())

    def cost(log_dof: float) -> float:
        nu = math.exp(log_dof)
        tails = 0.5 * (weights * (nu + sizes)) @ np.log1p(distance / nu)
        return float(tails - counts @ [observed.t_constant(nu, k) for k in kinds]) / mean

    def slope(log_dof: float) -> float:
        nu = math.exp(log_dof)
        far = distance / nu
        rows = weights @ (np.log1p(far) - (nu + sizes) / nu * (far / (1 + far)))
        heads = special.digamma((nu + kinds) / 2) - special.digamma(nu / 2) - kinds / nu
        return 0.5 * nu * float(rows - counts @ heads) / mean

    low, high = math.log(least), math.log(MOST_DOF)
    found = optimize.minimize_scalar(
        cost, bounds=(low, high), method="bounded", options={"xatol": 0.01}
    )
    best = float(found.x)
    below, above = max(low, best - 0.1), min(high, best + 0.1)
    if slope(below) < 0 < slope(above):  # values are too flat to tell more digits
        best = float(optimize.brentq(slope, below, above, xtol=1e-12))
    else:
        best = min(low, best, high, key=cost)
    gaussian = float(weights @ distance) / 2 / mean
    return math.inf if gaussian <= cost(best) else math.exp(best)


CLEARANCE = 2.0
"""Times that ν is kept above the one at which the likelihood has no bound."""


def least_dof(rows: Array, weights: Host, q: int) -> float:
    """Return the smallest ν to try: at smaller ones the likelihood of these rows has no bound.

    C may collapse onto q axes through some rows if these weigh a share s ≥ (q + ν)/(d + ν) of all
    (Kent & Tyler 1991). Any q + 1 rows do, and rows that are there several times count as one of
    more weight. It matters where n is not much larger than d.
    """
    d, v = int(rows.shape[1]), np.random.default_rng(0).normal(size=int(rows.shape[1]))
    parts = [backend.to_numpy(backend.working(rows[cut, :])) for cut in backend.row_slices(rows)]
    keys = np.concatenate([np.sum(np.nan_to_num(part) * v, axis=1) for part in parts])
    _, place = np.unique(keys, return_inverse=True)
    total = np.bincount(place.reshape(-1), weights=weights)
    s = float(np.sort(total)[-(q + 1) :].sum() / total.sum())
    if s >= 1:
        return math.inf
    return max(LEAST_DOF, CLEARANCE * (d * s - q) / (1 - s))


# --- Which rows are too far for the tails --------------------------------------------------------

RARE = 0.01
"""Probability that one row of a table of ordinary rows is set aside."""

CORE = 0.7
"""Share of the rows, the nearest, whose distances say how heavy the tails are."""

CORE_ROWS = 20_000
"""Rows that are asked for the tails, at equal distances where there are more."""

DOUBT = 2.0
"""Log-likelihood by which heavier tails must be better than lighter ones to be believed."""

TAILS = (LEAST_DOF, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 40.0, 100.0, MOST_DOF)


def limits_of(dof: float, sizes: Host, n: float) -> Host:
    """Return the δ that the farthest of n ordinary rows is beyond with probability `RARE`, (n,)."""
    kinds, place = np.unique(sizes, return_inverse=True)
    k = np.maximum(kinds, 1.0)
    p = RARE / max(n, 1.0)
    if math.isinf(dof):
        limits = special.chdtri(k, p)
    else:  # P(F > x) = I_b(ν/2, k/2) with b = ν/(ν + kx)
        b = special.betaincinv(dof / 2, k / 2, p)
        limits = dof * (1 - b) / np.maximum(b, np.finfo(float).tiny)
    return np.where(kinds > 0, limits, np.inf)[place.reshape(-1)]


def core_tails(
    sizes: Host, distance: Host, weights: Host, dof: float | None = None
) -> tuple[float, float]:
    """Return ν and the scale of δ, from the nearest `CORE` of the rows alone.

    δ/(s·k) ~ F(k, ν), given that it is below its limit: whatever lies beyond has no say. Few rows
    say little of tails they do not show: of all ν that are within `DOUBT` of the best
    log-likelihood the largest is taken.
    """
    used = np.flatnonzero((sizes > 0) & (weights > 0))
    used = used[:: -(-used.size // CORE_ROWS)]
    sizes, distance, weights = sizes[used], distance[used], weights[used]
    reach = _wilson_hilferty(sizes, distance)
    core = _nearest(reach, weights, CORE)
    edge = reach[core].max()
    k, w = sizes[core], weights[core]
    x = np.maximum(distance[core], np.finfo(float).tiny)
    # the limit of every size at the same quantile, on the scale of a Gaussian's distances
    kinds, place = np.unique(k, return_inverse=True)
    spread = 2 / (9 * kinds)
    edges = kinds * np.maximum(edge * np.sqrt(spread) + 1 - spread, 1e-3) ** 3
    counts = np.bincount(place.reshape(-1), weights=w)

    def cost(nu: float, log_scale: float) -> float:
        s = math.exp(log_scale)
        y, limit = x / s, edges / s
        inside = special.betainc(kinds / 2, nu / 2, limit / (nu + limit))
        head = -special.betaln(kinds / 2, nu / 2) - kinds / 2 * math.log(nu)
        body = (k / 2 - 1) * np.log(y) - (nu + k) / 2 * np.log1p(y / nu)
        least = np.finfo(float).tiny
        return -float(
            w @ body + counts @ (head - np.log(np.maximum(inside, least))) - w.sum() * log_scale
        )

    best = []
    for nu in TAILS if dof is None else (min(dof, 1e6),):
        found = optimize.minimize_scalar(
            lambda a, nu=nu: cost(nu, a), bounds=(-4.0, 4.0), method="bounded"
        )
        best.append((nu, math.exp(found.x), float(found.fun)))
    least = min(value for *_, value in best)
    nu, scale = next((nu, s) for nu, s, value in reversed(best) if value <= least + DOUBT)
    return nu if dof is None else dof, scale


def _wilson_hilferty(sizes: Host, distance: Host) -> Host:
    """Return distances that χ² of different sizes can be compared by: nearly normal."""
    k = np.maximum(sizes, 1.0)
    return (np.cbrt(distance / k) - (1 - 2 / (9 * k))) / np.sqrt(2 / (9 * k))


def _nearest(reach: Host, weights: Host, share: float) -> Host:
    """Return the numbers of the rows of smallest reach that weigh `share` of all, sorted."""
    order = np.argsort(reach, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    return np.sort(order[before < share * weights.sum() * (1 - 1e-12)])


# --- Where to start: rows that lie deep among the others -----------------------------------------

DEEP = 0.6
"""Share of the rows that a start rests on: fewer than 40 % of all may be anything."""

DEPTH_ROWS = 2000
"""Rows that a start is found from, at random where there are more."""

DIRECTIONS = 250
"""Directions, each through two rows, along which outlyingness is measured, as ROBPCA has them."""

CONCENTRATIONS, EM_CONCENTRATIONS, EM_STEPS = 20, 6, 5
"""Largest number of concentration steps; with missing values, and of EM steps in each of them."""


def find_start(rows: Host, weights: Host, q: int, rng: np.random.Generator) -> Factors | None:
    """Return a density fitted to the deepest rows; None where they have none.

    The rows of smallest outlyingness |vᵀx − median|/MAD over directions v through pairs of rows
    (Stahel 1981; Donoho 1982), and those nearest to the medians; from each, concentration steps
    (Rousseeuw & Van Driessen 1999): fit the nearest `DEEP` of the rows, until they stay the same.
    Of both the more concentrated one is kept. O(nd) for each of 250 directions and O(ndq) for each
    step, of at most 2,000 rows. Missing values count as medians at first, then as expectations.
    """
    used = np.flatnonzero((weights > 0) & ~np.isnan(rows).all(axis=1))
    if used.size > DEPTH_ROWS:
        used = np.sort(rng.choice(used, DEPTH_ROWS, replace=False))
    rows, weights = rows[used], weights[used]
    median = column_medians(rows, weights)
    filled = np.where(np.isnan(rows), median, rows)
    squares = np.sum((filled - median) ** 2, axis=1)
    found = []
    for reach in (outlyingness(filled, weights, rng), squares):
        try:
            found.append(_concentrated(rows, filled, weights, q, _nearest(reach, weights, DEEP)))
        except (DegenerateError, ValueError):  # no density, or fewer rows than components
            continue
    return min(found, key=lambda start: start[1])[0] if found else None


def outlyingness(rows: Host, weights: Host, rng: np.random.Generator) -> Host:
    """Return how far out each row is along the direction that shows it best, (n,)."""
    distinct = np.unique(rows, axis=0)  # a row of weight 2 is drawn as one that is there twice
    m = len(distinct)
    first = rng.integers(m, size=DIRECTIONS)
    other = (first + rng.integers(1, max(m, 2), size=DIRECTIONS)) % m
    V = distinct[first] - distinct[other]
    lengths = np.linalg.norm(V, axis=1)
    V = V[lengths > 0] / lengths[lengths > 0, None]
    worst = np.zeros(len(rows))
    for v in backend.slices(len(V), 32):
        P = rows @ V[v].T
        centre = column_medians(P, weights)
        off = np.abs(P - centre)
        spread = column_medians(off, weights)
        seen = spread > 1e-12 * np.max(off, axis=0, initial=1e-300)
        if seen.any():
            worst = np.maximum(worst, np.max(off[:, seen] / spread[seen], axis=1))
    return worst


def column_medians(rows: Host, weights: Host) -> Host:
    """Return the weighted median of what every column observed, (d,); 0 without any."""
    equal = weights.size == 0 or bool(np.all(weights == weights[0]))
    if equal and not np.isnan(rows).any():
        return np.median(rows, axis=0)
    order = np.argsort(rows, axis=0, kind="stable")  # NaN comes last
    w = np.where(np.isnan(np.take_along_axis(rows, order, 0)), 0.0, weights[order])
    below, half = np.cumsum(w, axis=0), w.sum(axis=0) / 2
    ends = []
    # both middle values where they share the middle, as for whole numbers of rows
    for reached in (below >= half * (1 - 1e-12), below > half * (1 + 1e-12)):
        place = np.argmax(reached, axis=0)
        values = np.take_along_axis(rows, np.take_along_axis(order, place[None], 0), 0)[0]
        ends.append(values)
    found = (ends[0] + ends[1]) / 2
    return np.where(half > 0, np.nan_to_num(found), 0.0)


def _concentrated(
    rows: Host, filled: Host, weights: Host, q: int, deep: Host
) -> tuple[Factors, float]:
    """Fit the nearest rows, until they stay the same; return the density, and ln |C|."""
    sizes = (~np.isnan(rows)).sum(axis=1).astype(np.float64)
    missing = bool(np.any(sizes < rows.shape[1]))
    factors = _closed_form(Primal(filled[deep], weights[deep]), q).factors
    for _ in range(EM_CONCENTRATIONS if missing else CONCENTRATIONS):
        if missing:
            factors = Fit(InMemoryTable(rows[deep], weights[deep]), q).climb(factors, EM_STEPS)
        distance = observed_distances(factors, rows)
        before, deep = deep, _nearest(_wilson_hilferty(sizes, distance), weights, DEEP)
        if np.array_equal(before, deep):
            break
        if not missing:
            factors = _closed_form(Primal(rows[deep], weights[deep]), q).factors
    # by Woodbury
    inner = np.eye(q) + factors.W.T @ (factors.W / factors.psi[:, None])
    return factors, float(np.linalg.slogdet(inner)[1] + np.sum(np.log(factors.psi)))


def _closed_form(operator: Primal, q: int) -> spiked.PrincipalAxes:
    """Return the Gaussian of q axes, which has a density."""
    spectrum = solve(operator, q)
    gaussian = rules.spiked_gaussian(spectrum, operator.n, q=q)
    gaussian.require_density()
    return spiked.PrincipalAxes(operator.frame.mean, spectrum, gaussian)


# --- EM ------------------------------------------------------------------------------------------


class Ascent(NamedTuple):
    """A point of EM for complete rows: the density, and the weights it gives to them."""

    axes: spiked.PrincipalAxes
    dof: float
    u: Array  # (n,)
    loglikelihood: float


Ended = tuple[spiked.PrincipalAxes, float, driver.Record]
"""Where EM ended: the axes, ν, and how it went."""

LARGEST_LOG = 300.0
"""Of a weight, where an extrapolation leads far."""


class CompleteFit:
    """EM for complete rows: every step is the closed form of PPCA for weighted rows.

    Parameters
    ----------
    table : InMemoryTable
    q : int
    dof : float or None
        ν; None to search it.

    Notes
    -----
    Scatter and weights are divided by Σwu, not by the number of rows: the parameter-expanded EM of
    Kent, Tyler & Vardi (1994) and Liu, Rubin & Wu (1998), with the same fixed points and fewer
    steps. ν maximises the likelihood given δ before every step (ECME). O(ndq) per step or what the
    solver costs.
    """

    def __init__(self, table: InMemoryTable, q: int, dof: float | None) -> None:
        self.table, self.q, self.dof = table, q, dof
        self.w = block_weights(table.weights, slice(None), table.rows)
        self.host = backend.to_numpy(self.w)
        self.least = least_dof(table.rows, self.host, q) if dof is None else dof

    def weigh(self, distance: Array) -> tuple[float, Array]:
        """Return ν and the weights of rows at these distances."""
        far, d = backend.to_numpy(distance), float(self.table.d)
        dof = self.dof or best_dof(np.full(far.size, d), far, self.host, self.least)
        return dof, backend.asarray(weights_of(dof, d, distance), self.w)

    def ascend(self, u: Array) -> Ascent:
        """Fit rows of weights u; return the density, with its weights, and its log-likelihood."""
        operator = Primal(self.table.rows, self.w * u)
        at = _closed_form(operator, self.q)
        projected = operator.frame.project(at.spectrum.vectors, self.table.rows)
        distance, d = distances(at.gaussian, *projected), at.gaussian.dim
        dof, u = self.weigh(distance)
        far, volume = backend.to_numpy(distance), d * LOG_2PI + at.gaussian.log_determinant()
        terms = observed.t_terms(dof, np.full(far.size, float(d)), far)
        return Ascent(at, dof, u, float(self.host @ terms - 0.5 * self.host.sum() * volume))

    def run(self, start: Array, tol: float, max_iter: int) -> Ended:
        """Climb from weights of the rows: their logarithms are the point that EM moves."""
        xp = backend.namespace(self.w)

        def step(theta: Array) -> tuple[Array, float]:
            at = self.ascend(xp.exp(xp.clip(theta, -LARGEST_LOG, LARGEST_LOG)))
            return xp.log(at.u), at.loglikelihood

        theta, record = driver.maximize(step, xp.log(start), tol=tol, max_iter=max_iter)
        at = self.ascend(xp.exp(theta))
        record.add(at.loglikelihood)
        return at.axes, at.dof, record


class RobustFit(Fit):
    """EM for rows with missing values: that of PPCA with E[u | x_o] as weights of the rows.

    Parameters
    ----------
    table : InMemoryTable
    q : int
    dof : float or None
        ν; None to search it.
    others
        As in `Fit`.

    Notes
    -----
    E[u zzᵀ] = u z̄z̄ᵀ + Cov[z] at u = 1: the covariance has the plain weight of its row. C is divided
    by Σwu/Σw at the end of a step, as in `CompleteFit`.
    """

    def __init__(
        self,
        table: Table,
        q: int,
        noise: float | None = None,
        *,
        dof: float | None = None,
        diagonal: bool = False,
    ) -> None:
        super().__init__(table, q, noise, diagonal=diagonal)
        self.dof = dof

    @cached_property
    def sizes(self) -> Host:
        """Number of entries that each row observed, (n,)."""
        found: Host = (~np.isnan(backend.to_numpy(self.incomplete.X))).sum(axis=1)
        return found.astype(np.float64)

    @cached_property
    def least(self) -> float:
        """The smallest ν to try."""
        return least_dof(self.incomplete.X, self.host_weights, self.q)

    @property
    def incomplete(self) -> Incomplete:
        """The rows."""
        assert self.data.ready is not None
        return self.data.ready

    @property
    def host_weights(self) -> Host:
        """Weights of the rows, (n,)."""
        weights = self.incomplete.weights
        return np.ones(self.sizes.size) if weights is None else backend.to_numpy(weights)

    def weigh(self, factors: Factors) -> tuple[float, Host, float]:
        """Return ν, E[u | x_o] (n,) and the log-likelihood of a density."""
        incomplete = self.incomplete

        def part(cut: list[slice]) -> list[Array]:
            blocks = incomplete.blocks(factors.mu, cut)
            found = [observed.latents(factors, block) for block in blocks]
            return [backend.to_numpy(a) for one in found for a in (one.distance, one.log_volume)]

        parts = [a for run in backend.spread(part, incomplete.cut, incomplete.X) for a in run]
        distance, volume = np.concatenate(parts[::2]), np.concatenate(parts[1::2])
        w = self.host_weights
        dof = best_dof(self.sizes, distance, w, self.least) if self.dof is None else self.dof
        value = float(w @ (observed.t_terms(dof, self.sizes, distance) - 0.5 * volume))
        return dof, weights_of(dof, self.sizes, distance), value

    def step(self, theta: Array) -> tuple[Array, float]:
        """Take one EM step; return it with the log-likelihood of θ."""
        factors = self.unpack(theta)
        _, u, value = self.weigh(factors)
        sums = self.incomplete.sums(factors, u=backend.asarray(u, self.origin))
        W, mu, left = observed.m_step(sums, factors)
        w = self.host_weights
        share = float(sums.all_n) / float(w.sum())  # Σwu/Σw
        return self.pack(Factors(W, mu, self._noise(left, share * self.seen))), value

    def with_weights(self, weights: Array) -> RobustFit:
        """Return the fit of the same rows under other weights."""
        other = copy(self)
        other.data = self.data.with_weights(weights)
        other.seen = column_starts(self.incomplete.X, weights)[0]
        return other

    def climb(self, factors: Factors, steps: int) -> Factors:
        """Return where a few steps lead from a density close to the maximum, with the same ν."""
        dof = math.inf if self.dof is None else self.dof
        return replace(super().climb(factors, steps), dof=dof)

    def run(self, start: Factors, tol: float, max_iter: int) -> Ended:
        """Climb from a density."""
        theta, record = driver.maximize(self.step, self.pack(start), tol=tol, max_iter=max_iter)
        factors = self.unpack(theta)
        dof, _, value = self.weigh(factors)
        record.add(value)
        return spiked.incomplete_axes(factors, remedy=""), dof, record


# --- The fit -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RobustRequest(driver.IterativeRequest):
    """Checked parameters of `fit_robust`."""

    n_components: int | float | str | None = None
    dof: float | None = None  # ν, None to search it
    trim: bool = True  # set rows aside that are too far for the tails


ROUNDS = 5
"""Times that rows are set aside anew after a fit."""

FEWEST_TRIMMED = 10
"""Rows below which no row can be told from the others, and none is set aside."""


def fit_robust(table: Table, request: RobustRequest) -> RobustModel:
    """Fit the t by maximum likelihood to the rows that are not too far for its tails."""
    remedy = "Fit a random sample of the rows; transform, impute and outliers accept chunks."
    table = in_memory(table, remedy)  # medians and weights need all rows at once
    refuse_infinite(table.rows)
    wanted, rows = request.n_components, table.rows
    if rules.is_count(wanted):
        rules.check_request(wanted, used_rows(rows, table.weights), table.d, "auto")
        q = spiked.at_least_one_factor(wanted)
        return _fit_count(table, q, request)
    wanted = PARALLEL if wanted is None else wanted
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SelectionWarning)  # the second look is the one to tell of
        first, _ = _chosen(_deepest(table, request), wanted)
    found = _fit_count(table, first, request)
    q, selection = _chosen(_without_tails(table, found), wanted)
    if q != first:
        found = _fit_count(table, q, request)
    return replace(found, selection=selection)


def _chosen(table: InMemoryTable, wanted: float | str) -> tuple[int, Selection | None]:
    """Return the number of components that a rule chooses for rows without gross outliers."""
    if wanted == PARALLEL:
        found = parallel_analysis(table, missing=has_missing(table.rows))
        return rules.at_least_one(PARALLEL, found), None
    model = spiked.fit_ppca(table, spiked.PPCARequest(wanted))
    return max(model.n_components, 1), model.selection


def _without_tails(table: InMemoryTable, model: RobustModel) -> InMemoryTable:
    """Return √u (x − μ) of the rows that were not set aside: under the model these are Gaussian."""
    kept = np.flatnonzero(backend.to_numpy(model.row_weights) > 0)
    few = table.taking(kept)
    u = backend.asarray(backend.to_numpy(model.row_weights)[kept], few.rows)
    root = backend.namespace(u).sqrt(backend.working(u))
    rows = (backend.working(few.rows) - backend.working(model.mean)) * root[:, None]
    return InMemoryTable(rows, few.weights, few.names)


def _deepest(table: InMemoryTable, request: RobustRequest) -> InMemoryTable:
    """Return the rows that lie deepest, for a first look at the number of components."""
    rows, w = _on_host(table)
    filled = np.where(np.isnan(rows), column_medians(rows, w), rows)
    used = np.flatnonzero((w > 0) & ~np.isnan(rows).all(axis=1))
    if used.size < FEWEST_TRIMMED or not request.trim:
        return table
    reach = outlyingness(filled[used], w[used], request.start)
    return table.taking(used[_nearest(reach, w[used], DEEP)])


def _on_host(table: InMemoryTable) -> tuple[Host, Host]:
    """Return rows and weights in NumPy, in float64; rows that observe nothing weigh nothing."""
    w = block_weights(observed_weights(table.rows, table.weights), slice(None), table.rows)
    return backend.to_numpy(backend.working(table.rows)), backend.to_numpy(w)


def _fit_count(table: InMemoryTable, q: int, request: RobustRequest) -> RobustModel:
    """Fit q components: start from the deepest rows, fit, set rows aside, until they stay so."""
    rows, w = _on_host(table)
    total = float(w.sum())
    start = find_start(rows, w, q, request.start) if total >= FEWEST_TRIMMED else None
    kept = np.arange(len(rows))
    if start is None:
        found = _run(table, q, None, request)
    else:
        sizes = (~np.isnan(rows)).sum(axis=1).astype(np.float64)
        parts = (start.W, start.mu, start.psi)
        here = Factors(*(backend.asarray(np.array(A), table.like) for A in parts))
        for count in range(ROUNDS):
            distance, near = backend.to_numpy(observed_distances(here, table.rows)), kept
            if request.trim:
                dof, scale = core_tails(sizes, distance, w, request.dof)
                near = np.flatnonzero(distance <= scale * limits_of(dof, sizes, total))
            if count and np.array_equal(near, kept):
                break
            kept = near
            found = _run(table.taking(kept), q, here, request)
            here = found[0].factors
    return _model(table, kept, found, request)


def _run(table: InMemoryTable, q: int, start: Factors | None, request: RobustRequest) -> Ended:
    """Climb to the maximum of the likelihood from a density, or from equal weights."""
    tol, max_iter = request.tol, request.max_iter
    if has_missing(table.rows):
        fit = RobustFit(table, q, dof=request.dof)
        begin = fit.unpack(fit.begin(request.start)) if start is None else start
        return fit.run(begin, tol, max_iter)
    complete = CompleteFit(table, q, request.dof)
    u = backend.namespace(complete.w).ones_like(complete.w)
    if start is not None:
        u = complete.weigh(observed_distances(start, table.rows))[1]
    return complete.run(u, tol, max_iter)


LIMIT_ROUNDS = 3
"""Times that the tails of the control limits are found anew."""


def _reference(fitted: InMemoryTable, found: Ended, request: RobustRequest) -> Reference:
    """Return what limits need to know of the rows that were not set aside.

    Unequal noise looks like heavy tails to a model of equal noise. So the tails of the limits are
    those of T² and SPE, each in units of its own variances, unless ν was given.
    """
    rows = backend.working(fitted.rows)
    w = observed_weights(rows, fitted.weights)
    n = Columns.of(rows, w).effective_rows
    (at, dof, _), tails = found, math.inf if request.dof is None else request.dof
    if not at.gaussian.noise > 0:
        return Reference(n, n, tails=dof)
    gaps = Unseen.of(at.factors, rows, w)
    if gaps is not None:
        rows = completed(at.factors, rows, w)
    weights = block_weights(w, slice(None), rows)
    u, frame = backend.namespace(weights).ones_like(weights), Frame(at.mean)
    for _ in range(LIMIT_ROUNDS):
        operator = Primal(rows, weights * u)
        reference = reference_of(operator, at.spectrum, n, n, tails=tails, gaps=gaps)
        by = SpikedJudge(at.gaussian, frame, at.spectrum.vectors, reference, 0.0)
        t2, spe, degrees = by.statistics(rows)
        k, dof, mean = (float(part[0]) for part in (degrees.k, degrees.dof, degrees.mean))
        far = backend.to_numpy(t2) / max(float(degrees.weight[0]), 1e-300)
        far = far + dof / max(mean, 1e-300) * backend.to_numpy(spe)
        sizes, host = np.full(far.size, k + dof), backend.to_numpy(weights)
        tails = best_dof(sizes, far, host) if request.dof is None else request.dof
        u = backend.asarray(weights_of(tails, sizes, far), weights)
    order = rows if fitted.weights is None else None
    operator = Primal(rows, weights * u)
    return reference_of(operator, at.spectrum, n, n, rows=order, tails=tails, gaps=gaps)


def _model(table: InMemoryTable, kept: Host, found: Ended, request: RobustRequest) -> RobustModel:
    """Return the model: the weights of all rows, 0 for those set aside."""
    (at, dof, record), fitted = found, table.taking(kept)
    u = np.zeros(int(table.rows.shape[0]))
    count = used_rows(table.rows, observed_weights(table.rows, table.weights))
    model = at.model(
        table.like,
        count,
        _reference(fitted, found, request),
        RobustModel,
        history=driver.History.of(record),
        dof=dof,
        row_weights=backend.asarray(u, table.like),
    )
    ordinary = kept
    for _ in range(LIMIT_ROUNDS if kept.size < u.size else 0):
        inside = np.union1d(kept, _within_limits(model, table))
        if np.array_equal(inside, ordinary):
            break
        ordinary = inside
        model = replace(model, reference=_reference(table.taking(ordinary), found, request))
    u[kept] = backend.to_numpy(model.weigh(fitted.rows))
    return replace(model, row_weights=backend.asarray(u, backend.working(model.mean)))


TAKEN_BACK = 0.999
"""Level of the limits within which a row that was set aside still counts for them.

Where noise is unequal or a direction is left out, ordinary rows seem too far for a model of equal
noise; without them the limits would be too narrow.
"""

BY_MUCH = 10.0
"""Multiple of the distance at which rows are set aside from which none is taken back."""


def _within_limits(model: RobustModel, table: InMemoryTable) -> Host:
    """Return the numbers of the rows within the control limits, of those not too far by much."""
    reference, rows = model.reference, backend.working(table.rows)
    if reference is None or not model.noise > 0:
        return np.empty(0, dtype=np.int64)
    distance, sizes = map(backend.to_numpy, model.distance(rows))
    reach = BY_MUCH * limits_of(model.dof, sizes, reference.n)
    near = np.flatnonzero((distance <= reach) & (sizes > 0))
    if not near.size:
        return near
    rows = backend.take(rows, near)
    found = judge(reference, model.judge_for(rows).statistics(rows), TAKEN_BACK)
    inside: Host = near[~backend.to_numpy(found.flagged)]
    return inside


# --- Units that no outlier decides ---------------------------------------------------------------

NORMAL_MAD = 1.482602218505602
"""Standard deviation of a normal column by its median absolute deviation."""

FARTHEST = 3.5
"""Robust deviations from the median beyond which an entry has no say in the unit of its column."""


def robust_units(table: InMemoryTable) -> Units:
    """Return units of columns that outliers do not change.

    The mean and standard deviation of the entries within 3.5 · 1.4826 · MAD of the median. A column
    whose MAD is 0 (more than half of its values are the same) has its mean absolute deviation in
    place of it; a constant one has the unit 1.
    """
    rows, w = _on_host(table)
    median = column_medians(rows, w)
    off = np.abs(rows - median)
    mad = NORMAL_MAD * column_medians(off, w)
    seen = ~np.isnan(rows) & (w > 0)[:, None]
    count = np.maximum(w @ seen, np.finfo(float).tiny)
    average = 1.2533 * (w @ np.where(seen, off, 0.0)) / count
    mad = np.where(mad > 1e-12 * average, mad, average)
    near = seen & (off <= FARTHEST * mad)
    count = np.maximum(w @ near, np.finfo(float).tiny)
    mean = (w @ np.where(near, rows - median, 0.0)) / count
    variance = (w @ np.where(near, (rows - median - mean) ** 2, 0.0)) / count
    # of a normal column, cut off there
    share = 1 - 2 * FARTHEST * math.exp(-(FARTHEST**2) / 2) / math.sqrt(2 * math.pi)
    scale = np.sqrt(variance / share)
    eps = float(np.finfo(backend.to_numpy(table.like).dtype).eps)
    scale = np.where(scale > 8 * eps * np.abs(median), scale, 1.0)
    volume = float((w @ seen) @ np.log(scale))
    home = backend.working(table.like)
    centre, unit = (backend.asarray(values, home) for values in (median + mean, scale))
    return Units(centre, unit, volume, float(w.sum()))
