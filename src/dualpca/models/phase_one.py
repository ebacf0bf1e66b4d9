"""Phase I of a monitor: the Gaussian of ordinary rows, limits, and bad episodes set aside."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dualpca.data import Host
from dualpca.gaussian import FactorJudge, Factors, Reference, autocorrelation, laws, shrunk
from dualpca.models.baseline import Baseline, Measures, baseline_of, refusing_singular
from dualpca.models.monitoring import (
    MOST_ALIKE,
    QUIET,
    ChartPlan,
    Innovations,
    Judged,
    LearnedMoments,
    MonitorModel,
    PhaseOneRecord,
    State,
    Trace,
    advance,
    any_of,
    follow,
    judged,
    noted,
    widened,
)
from dualpca.models.run_lengths import (
    ROWS,
    Limits,
    RunLengths,
    both,
    limits_of,
    ordinary_rows,
    simulated,
    with_rules,
)

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MOST_ROUNDS = 6
"""Fits of phase I, at most."""

MOST_ASIDE = 1 / 3
"""Share of phase I from which episodes are not set aside: the rest is no longer the ordinary."""

STRICT = 20.0
"""Rows between false alarms, by the rows of phase I, when its bad episodes are looked for."""

ROUGH_ROWS = 250_000
"""Rows that are simulated for limits of a fit that may not be the last."""

UNUSUAL = 2.0
"""−log₁₀ p from which a row beside a bad one is bad too."""

LIGHT_TAILS = 60.0
"""Degrees of freedom from which averages of rows do not know a t from the Gaussian."""


@dataclass(frozen=True)
class MonitorRequest:
    """How phase I is to be fitted."""

    arl: float
    statistics: tuple[str, ...]
    smoothing: float
    lags: int
    dynamics: str
    trim: bool
    rules: tuple[tuple[int, int], ...]
    names: tuple[str, ...]
    seed: int


class BaselineFit(NamedTuple):
    """A fitted linear model, as `baseline_of` asks for it."""

    factors: Factors
    reference: Reference | None
    unit: float
    units: tuple[Floats, Floats]


class PhaseOne(NamedTuple):
    """What phase I leaves."""

    model: MonitorModel
    refused: int  # rows that would have been set aside, where they are too many


def fit_phase_one(
    rows: Floats,
    fit: Callable[[Floats], BaselineFit],
    request: MonitorRequest,
    time: Host | None = None,
) -> PhaseOne:
    """Fit to the rows that are in no bad episode, and find the limits.

    Parameters
    ----------
    rows : array of shape (n, d)
        NaN where nothing was observed.
    fit : callable
        Fits a model to rows, with those before them as further columns.
    request : MonitorRequest
    time : array of shape (n,), optional
    """
    n, d = rows.shape
    wide = widened(rows, np.full((request.lags, d), np.nan))
    usable = np.arange(n) >= request.lags
    strict = max(request.arl, STRICT * n)
    kept, refused, seen = usable, 0, set[bytes]()
    baseline, shown = baseline_of(*fit(wide[kept]), wide[kept], d)
    for _ in range(MOST_ROUNDS if request.trim else 0):
        seen.add(kept.tobytes())
        plan = _Drawn(baseline, shown, request, ROUGH_ROWS).plan(strict)
        bad = usable & _bad_rows(plan, baseline.measured(wide))
        if bad.sum() > MOST_ASIDE * usable.sum():
            refused, kept = int(bad.sum()), usable
            baseline, shown = baseline_of(*fit(wide[kept]), wide[kept], d)
            break
        if (usable & ~bad).tobytes() in seen:
            break
        kept = usable & ~bad
        baseline, shown = baseline_of(*fit(wide[kept]), wide[kept], d)
    drawn = _Drawn(baseline, shown, request, ROWS)
    plan = drawn.plan(request.arl)
    aside = _aside(drawn.plan(strict), baseline.measured(wide), usable & ~kept, time)
    chart, after = advance(plan, State.fresh(plan), rows, time)
    record = PhaseOneRecord.of(chart, after.traces, aside, drawn.found.lengths)
    return PhaseOne(MonitorModel(plan, State.fresh(plan), record), refused)


def _without_bias(phi: float, n: int) -> float:
    """Return an autocorrelation with what the mean of n rows takes from it, (1 + 3φ)/n."""
    return min(phi + (1 + 3 * phi) / n, max(phi, MOST_ALIKE)) if phi > 0 else phi


def _dependence(
    dynamics: str, y: Floats, r: Floats
) -> tuple[tuple[float, float], Innovations | None]:
    """Return autocorrelations of scores and residuals, and what innovations are made with."""
    if dynamics == "auto":
        one, other = autocorrelation(y, y.shape[1]), autocorrelation(r, _effective(r))
        return (_without_bias(one, len(y)), _without_bias(other, len(r))), None
    if dynamics == "none":
        return (0.0, 0.0), None
    innovations = Innovations.of(y, r)
    one, other = (max(float(np.mean(p)), 0.0) if p.size else 0.0 for p in innovations[:2])
    return (one, other), innovations


class _Drawn:
    """Simulated run lengths of a fit, for limits of any wanted one."""

    def __init__(
        self, baseline: Baseline, shown: Floats, request: MonitorRequest, rows: int
    ) -> None:
        self.baseline, self.request = baseline, request
        q, d, reference = baseline.q, baseline.d, baseline.reference
        self.statistics = tuple(name for name in request.statistics if _measures(name, baseline))
        y, r = shown[:, :q], shown[:, q : q + d]
        alike, self.innovations = _dependence(request.dynamics, y, r)
        judge = FactorJudge(baseline.factors, reference, baseline.unit)
        degrees = judge.degrees()
        spe = laws(reference, degrees)[1]
        inside = reference.spe if reference.spe is not None else float(degrees.mean[0])
        wider = float(degrees.mean[0]) / inside if inside > 0 and degrees.rest[0] > 0 else 1.0
        # by the variance in phase I, which is above the model's where that is the scale of a t
        along = float(degrees.weight[0]) / float(np.mean(y * y)) if degrees.k[0] > 0 else 1.0
        independent = max(reference.n * shrunk(alike[0]), 2.0)
        along *= independent / (independent - 1)  # what their own mean took from it
        ordinary = ordinary_rows(
            shown,
            q,
            d,
            max(reference.n, 3.0),
            alike,
            min(max(wider, 1.0), 4.0),
            along,
            reference.tails if reference.tails < LIGHT_TAILS else math.inf,
            spe,
        )
        rng = np.random.default_rng(request.seed)
        runs = simulated(
            ordinary,
            self.statistics,
            request.smoothing,
            request.arl,
            rng,
            rows=rows,
            innovations=self.innovations is not None,
        )
        self.lengths = RunLengths(with_rules(runs, request.rules))
        self.found = limits_of(self.lengths, request.arl)

    def plan(self, arl: float) -> ChartPlan:
        """Return how rows are judged with a wanted run length."""
        request = self.request
        found: Limits = (
            self.found if arl == request.arl else limits_of(self.lengths, arl, request.arl)
        )
        return ChartPlan(
            baseline=self.baseline,
            statistics=self.statistics,
            smoothing=request.smoothing,
            lags=request.lags,
            limits=found.limits,
            levels=found.levels,
            rules=request.rules,
            names=request.names,
            innovations=self.innovations,
        )


def _measures(name: str, baseline: Baseline) -> bool:
    """Return True if a statistic has something to measure."""
    if name in ("t2", "mewma", "cusum"):
        return baseline.q > 0
    if name == "spe":
        return baseline.q < len(baseline.center)
    return len(baseline.center) > 1


def _effective(values: Floats) -> float:
    """Return the effective number of columns, (Σλ)²/Σλ²."""
    S = values.T @ values
    return float(np.trace(S) ** 2 / max(np.sum(S * S), 1e-300))


def _bad_rows(plan: ChartPlan, measures: Measures) -> Flags:
    """Return the rows of phase I in alarm: by themselves, or by what leads up to and from them.

    An EWMA is in alarm for some rows after a fault too, and late in it; run backwards, before and
    early. Where both are, the fault is. Rows beside them that are unusual by themselves go too.
    """
    forward, backward = _over(plan, measures), _over(plan, measures.backwards())
    alone = {name: forward.pop(name) for name in both(plan.statistics)}
    n = len(measures.t2)
    back = any_of({name: backward[name] for name in forward}, n)[::-1]
    bad = any_of(alone, n) | (any_of(forward, n) & back)
    if not bad.any():
        return bad
    surprise = plan.surprise(measures)
    unusual = np.max(np.where(np.isnan(surprise), np.inf, surprise), axis=1) > UNUSUAL
    for rows in (range(1, n), range(n - 2, -1, -1)):
        for i in rows:
            bad[i] |= bad[i - rows.step] and unusual[i]
    return bad & measures.judged


def _over(plan: ChartPlan, measures: Measures) -> dict[str, Flags]:
    """Return which statistics of which rows are above their limits, run rules apart."""
    return judged(plan, measures, follow(plan, State.fresh(plan), measures)).over


def _aside(plan: ChartPlan, measures: Measures, bad: Flags, time: Host | None) -> tuple[Trace, ...]:
    """Return the rows that were set aside as episodes."""
    if not bad.any():
        return ()
    fresh = State.fresh(plan)
    followed = follow(plan, fresh, measures)
    found = judged(plan, measures, followed)
    statistics = {name: np.where(bad, A, np.nan) for name, A in found.statistics.items()}
    beside = bad & ~any_of(found.over, len(bad))  # not above a limit by themselves
    for name in both(plan.statistics)[-1:]:
        statistics[name] = np.where(beside, found.limits[name] * (1 + 1e-9), statistics[name])
    found = Judged(statistics, found.limits)
    traces = noted(plan, fresh, measures, followed.residuals, found, time)
    return tuple(trace._replace(over=True) for trace in traces)


# --- Learning on ---------------------------------------------------------------------------------

CHANCE = 1e-3
"""Probability that the centre of an ordinary process seems to have moved, for some sensor."""

FACTOR_STEPS = 30
"""EM steps of a model with a noise of every sensor, from one covariance to the next."""


class Moved(NamedTuple):
    """A centre that went further than chance allows."""

    sensors: tuple[int, ...]  # furthest first
    errors: tuple[float, ...]  # by how many standard errors


def learn(
    model: MonitorModel, rows: Floats, forgetting: float
) -> tuple[MonitorModel, Moved | None]:
    """Go on learning mean and covariance from rows that are in no episode; limits stay.

    A row that comes later counts 1, and those before it `forgetting` times what they did. The
    centre goes no further from that of phase I than the errors of both allow.
    """
    plan, learned = model.plan, model.learned or _unlearned(model)
    state = learned.state
    chart, after = advance(plan, state, rows)
    ordinary = ~_within_episodes(chart.alarms, state, after)
    wide = widened(rows, state.before)[ordinary]
    X = learned.first.inward(wide)
    X = X[~np.isnan(X).all(axis=1)]
    factors, mean = plan.baseline.factors, learned.mean
    now = replace(factors, psi=plan.baseline.noise, dof=math.inf, mu=mean)
    filled, spread = completed_moments(now, X)
    weight, squares, scatter = learned.weight, learned.squares, learned.scatter
    tails = factors.dof  # the model is the scale matrix of a t, which is smaller
    size = 1.0 if math.isinf(tails) else max(tails - 2, 0.1) / tails
    for x, extra in zip(filled, spread, strict=True):
        weight, squares = forgetting * weight + 1, forgetting**2 * squares + 1
        off = x - mean
        mean = mean + off / weight
        scatter = forgetting * scatter + size * np.outer(off, x - mean) + extra
    mean, moved = _held(learned.first, plan, mean, scatter / weight, squares / weight**2)
    learned = replace(
        learned,
        weight=weight,
        squares=squares,
        mean=mean,
        scatter=(scatter + scatter.T) / 2,
        state=after,
    )
    baseline = _relearned(plan.baseline, learned)
    return replace(model, plan=replace(plan, baseline=baseline), learned=learned), moved


def _unlearned(model: MonitorModel) -> LearnedMoments:
    """Return what phase I says."""
    baseline = model.plan.baseline
    n = max(baseline.reference.independent, 2.0)
    return LearnedMoments(
        n,
        n,
        np.zeros(len(baseline.center)),
        n * baseline.covariance,
        baseline,
        State.fresh(model.plan),
    )


def _within_episodes(alarms: Flags, before: State, after: State) -> Flags:
    """Return the rows that are in alarm or in an episode that is not over yet."""
    inside, n = alarms.copy(), len(alarms)
    for trace in after.traces:
        end = trace.last + 1 + (QUIET if trace.over else trace.quiet)
        inside[max(trace.start - before.seen, 0) : max(min(end - before.seen, n), 0)] = True
    return inside


def completed_moments(factors: Factors, X: Floats) -> tuple[Floats, Floats]:
    """Return rows with their expectations where nothing was observed, and the covariances of these.

    O(w³) per row with missing values.
    """
    C = factors.W @ factors.W.T + np.diag(factors.psi)
    filled, spread = X.copy(), np.zeros((len(X), *C.shape))
    for i, x in enumerate(X):
        gone = np.isnan(x)
        if gone.any():
            there = ~gone
            K = np.linalg.solve(C[np.ix_(there, there)], C[np.ix_(there, gone)])
            filled[i, gone] = factors.mu[gone] + (x[there] - factors.mu[there]) @ K
            spread[i][np.ix_(gone, gone)] = C[np.ix_(gone, gone)] - C[np.ix_(gone, there)] @ K
    return filled, spread


def _held(
    first: Baseline, plan: ChartPlan, mean: Floats, C: Floats, share: float
) -> tuple[Floats, Moved | None]:
    """Return the centre, not further from that of phase I than chance takes it."""
    start = 1 / max(first.reference.independent, 2.0)
    error = np.sqrt(np.maximum(np.diagonal(C), 1e-300) * (start + share))
    z, most = mean / error, float(special.ndtri(1 - CHANCE / 2 / len(mean)))
    furthest = float(np.max(np.abs(z)))
    if furthest <= most:
        return mean, None
    order = [int(j) for j in np.argsort(-np.abs(z[: first.d]), kind="stable")]
    off = [j for j in order if abs(z[j]) > most] or order[:1]
    return mean * (most / furthest), Moved(tuple(off), tuple(float(z[j]) for j in off))


def _relearned(baseline: Baseline, learned: LearnedMoments) -> Baseline:
    """Return the Gaussian of the learned mean and covariance, with as many causes."""
    first, C = learned.first, learned.scatter / learned.weight
    center = first.center + first.scale * learned.mean
    q, w = baseline.q, len(center)
    if np.all(baseline.factors.psi == baseline.factors.psi[0]) and baseline.unit != 1.0:
        values, V = np.linalg.eigh(C)
        noise = float(values[: w - q].mean()) if q < w else float(baseline.factors.psi[0])
        noise = max(noise, 1e-12 * float(values[-1]))
        W = V[:, w - q :] * np.sqrt(np.maximum(values[w - q :] - noise, 0.0))
        psi, unit = np.full(w, noise), noise
    else:
        with refusing_singular():
            W, psi = _factor_steps(baseline.factors, C)
        unit = baseline.unit
    W = _towards(W, baseline.factors.W)
    factors = replace(baseline.factors, W=W, psi=psi)
    own = baseline.noise * (psi / baseline.factors.psi)
    return replace(baseline, center=center, factors=factors, unit=unit, noise=own)


def _factor_steps(factors: Factors, C: Floats) -> tuple[Floats, Floats]:
    """Return loadings and noise after some steps of EM for a covariance (Rubin & Thayer 1982)."""
    W: Floats = factors.W
    psi: Floats = factors.psi
    least = 1e-3 * psi
    for _ in range(FACTOR_STEPS):
        B = W / psi[:, None]
        M = np.linalg.inv(np.eye(W.shape[1]) + W.T @ B)
        beta = M @ B.T
        CB = C @ beta.T
        W = CB @ np.linalg.inv(M + beta @ CB)
        psi = np.maximum(np.diagonal(C) - np.sum(W * CB, axis=1), least)
    return W, psi


def _towards(W: Floats, before: Floats) -> Floats:
    """Return loadings turned so that scores keep their meaning: EWMAs go on."""
    if not W.shape[1]:
        return W
    P, _, Q = np.linalg.svd(W.T @ before)
    found: Floats = W @ (P @ Q)
    return found
