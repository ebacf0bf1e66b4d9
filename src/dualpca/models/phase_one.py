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
from dualpca.gaussian import FactorJudge, Factors, Reference, autocorrelation, laws
from dualpca.models.monitoring import (
    QUIET,
    Learned,
    Measures,
    MonitorModel,
    Plan,
    Record,
    State,
    Trace,
    Watch,
    advance,
    follow,
    noted,
    watch_of,
    widened,
)
from dualpca.models.run_lengths import (
    ROWS,
    Limits,
    RunLengths,
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

SEEN_BY_CHANCE = 4.0
"""Standard errors from which an autocorrelation counts."""

MOST_ALIKE = 0.98
"""Largest autocorrelation whose innovations are monitored."""


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


class Fit(NamedTuple):
    """A fitted linear model, as `watch_of` asks for it."""

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
    fit: Callable[[Floats], Fit],
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
    lags, n = request.lags, len(rows)
    wide = widened(rows, np.full((lags, rows.shape[1]), np.nan))
    kept = np.arange(n) >= lags
    usable, refused, rounds = kept, 0, MOST_ROUNDS if request.trim else 1
    seen: set[bytes] = set()
    for k in range(rounds):
        watch, shown = watch_of(*fit(wide[kept]), wide[kept], rows.shape[1])
        last = k + 1 == rounds
        drawn = _Drawn(watch, shown, request, ROWS if last else ROUGH_ROWS)
        if not request.trim:
            break
        measures, strict = watch.measured(wide), drawn.plan(max(request.arl, STRICT * n))
        bad = usable & _with_neighbours(strict, measures, _is_bad(strict, measures))
        seen.add(kept.tobytes())
        new = usable & ~bad
        if bad.sum() > MOST_ASIDE * usable.sum():
            refused = int(bad.sum())
            break
        if np.array_equal(new, kept) or new.tobytes() in seen:
            break
        kept = new
    if not last:
        drawn = _Drawn(watch, shown, request, ROWS)
    plan = drawn.plan(request.arl)
    strict = drawn.plan(max(request.arl, STRICT * n))
    fresh = State.fresh(plan)
    aside = _aside(strict, watch.measured(wide), usable & ~kept, time)
    chart, after = advance(plan, fresh, rows, time)
    record = Record.of(chart, after.traces, aside, drawn.found.lengths)
    return PhaseOne(MonitorModel(plan, fresh, record), refused)


class _Drawn:
    """Simulated run lengths of a fit, for limits of any wanted one."""

    def __init__(self, watch: Watch, shown: Floats, request: MonitorRequest, rows: int) -> None:
        self.watch, self.request = watch, request
        q, d, reference = watch.q, watch.d, watch.reference
        self.statistics = tuple(name for name in request.statistics if _measures(name, watch))
        y, r = shown[:, :q], shown[:, q : q + d]
        self.innovations = None
        alike = (0.0, 0.0)
        if request.dynamics == "auto":
            alike = (autocorrelation(y, q), autocorrelation(r, _effective(r)))
        elif request.dynamics == "ar":
            self.innovations = (_lag_one(y), _lag_one(r))
            alike = (float(np.mean(np.abs(_lag_one(y)))) if q else 0.0, float(np.mean(_lag_one(r))))
            alike = (max(alike[0], 0.0), max(alike[1], 0.0))
        judge = FactorJudge(watch.factors, reference, watch.unit)
        degrees = judge.degrees()
        spe = laws(reference, degrees)[1]
        inside = reference.spe if reference.spe is not None else float(degrees.mean[0])
        wider = float(degrees.mean[0]) / inside if inside > 0 and degrees.rest[0] > 0 else 1.0
        along = float(degrees.weight[0]) if degrees.k[0] > 0 else 1.0
        ordinary = ordinary_rows(
            shown,
            q,
            d,
            max(reference.n, 3.0),
            alike,
            min(max(wider, 1.0), 4.0),
            along,
            reference.tails,
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

    def plan(self, arl: float) -> Plan:
        """Return how rows are judged with a wanted run length."""
        request = self.request
        found: Limits = (
            self.found if arl == request.arl else limits_of(self.lengths, arl, request.arl)
        )
        return Plan(
            watch=self.watch,
            statistics=self.statistics,
            smoothing=request.smoothing,
            lags=request.lags,
            limits=found.limits,
            levels=found.levels,
            rules=request.rules,
            names=request.names,
            innovations=self.innovations,
        )


def _measures(name: str, watch: Watch) -> bool:
    """Return True if a statistic has something to measure."""
    if name in ("t2", "mewma", "cusum"):
        return watch.q > 0
    if name == "spe":
        return watch.q < len(watch.center)
    return len(watch.center) > 1


def _effective(values: Floats) -> float:
    """Return the effective number of columns, (Σλ)²/Σλ²."""
    S = values.T @ values
    return float(np.trace(S) ** 2 / max(np.sum(S * S), 1e-300))


def _lag_one(values: Floats) -> Floats:
    """Return the autocorrelation of every column, 0 where it may be chance."""
    n = len(values)
    C = values - values.mean(axis=0)
    size = np.sum(C * C, axis=0)
    phi = np.sum(C[1:] * C[:-1], axis=0) / np.where(size > 0, size, 1.0)
    phi = np.where(np.abs(phi) > SEEN_BY_CHANCE / np.sqrt(n), phi + (1 + 3 * phi) / n, 0.0)
    return np.clip(phi, -MOST_ALIKE, MOST_ALIKE)


def _is_bad(plan: Plan, measures: Measures) -> Flags:
    """Return the rows of phase I in alarm: by themselves, or by what leads up to and from them.

    An EWMA is in alarm for some rows after a fault too, and late in it; run backwards, before and
    early. Where both are, the fault is.
    """
    over = _over(plan, measures)
    alone = np.zeros(len(measures.judged), dtype=np.bool_)
    for name in ("t2", "spe"):
        alone |= over.get(name, False)
    both = []
    for one, flags in ((1, over), (-1, _over(plan, measures.backwards()))):
        found = np.zeros_like(alone)
        for name in plan.statistics:
            if name not in ("t2", "spe"):
                found |= flags[name][::one]
        both.append(found)
    return alone | (both[0] & both[1])


def _with_neighbours(plan: Plan, measures: Measures, bad: Flags) -> Flags:
    """Return bad rows, and those beside them that are unusual by themselves."""
    if not bad.any():
        return bad
    unusual = np.nanmax(plan.surprise(measures), axis=1, initial=0.0) > UNUSUAL
    unusual |= ~measures.judged
    found = bad.copy()
    for rows in (range(1, len(bad)), range(len(bad) - 2, -1, -1)):
        step = rows.step
        for i in rows:
            found[i] |= found[i - step] and bool(unusual[i])
    return found


def _over(plan: Plan, measures: Measures) -> dict[str, Flags]:
    """Return which statistics of which rows are above their limits."""
    limits = plan.row_limits(measures.keys)
    values = follow(plan, State.fresh(plan), measures).values
    found = {
        name: getattr(measures, name) > limits[:, k]
        for k, name in enumerate(("t2", "spe"))
        if name in plan.statistics
    }
    return found | {
        name: values[name] > plan.limits[name] for name in plan.statistics if name in values
    }


def _aside(plan: Plan, measures: Measures, bad: Flags, time: Host | None) -> tuple[Trace, ...]:
    """Return the rows that were set aside as episodes."""
    if not bad.any():
        return ()
    fresh = State.fresh(plan)
    followed, over = follow(plan, fresh, measures), _over(plan, measures)
    limits = plan.row_limits(measures.keys)
    values = {"t2": measures.t2, "spe": measures.spe} | followed.values
    bounds = {"t2": limits[:, 0], "spe": limits[:, 1]}
    ratios = {
        name: np.nan_to_num(
            values[name] / np.maximum(bounds.get(name, plan.limits.get(name, 1.0)), 1e-300)
        )
        for name in plan.statistics
    }
    over = {name: flags & bad for name, flags in over.items()}
    traces = noted(plan, fresh, measures, followed.residuals, bad, over, ratios, time)
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
    factors, mean = plan.watch.factors, learned.mean
    now = replace(factors, psi=plan.watch.noise, dof=math.inf, mu=mean)
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
    watch = _rewatched(plan.watch, learned)
    return replace(model, plan=replace(plan, watch=watch), learned=learned), moved


def _unlearned(model: MonitorModel) -> Learned:
    """Return what phase I says."""
    watch = model.plan.watch
    n = max(watch.reference.independent, 2.0)
    return Learned(
        n, n, np.zeros(len(watch.center)), n * watch.covariance, watch, State.fresh(model.plan)
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
    first: Watch, plan: Plan, mean: Floats, C: Floats, share: float
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


def _rewatched(watch: Watch, learned: Learned) -> Watch:
    """Return the Gaussian of the learned mean and covariance, with as many causes."""
    first, C = learned.first, learned.scatter / learned.weight
    center = first.center + first.scale * learned.mean
    q, w = watch.q, len(center)
    if np.all(watch.factors.psi == watch.factors.psi[0]) and watch.unit != 1.0:
        values, V = np.linalg.eigh(C)
        noise = float(values[: w - q].mean()) if q < w else float(watch.factors.psi[0])
        noise = max(noise, 1e-12 * float(values[-1]))
        W = V[:, w - q :] * np.sqrt(np.maximum(values[w - q :] - noise, 0.0))
        psi, unit = np.full(w, noise), noise
    else:
        W, psi = _factor_steps(watch.factors, C)
        unit = watch.unit
    W = _towards(W, watch.factors.W)
    factors = replace(watch.factors, W=W, psi=psi)
    own = watch.noise * (psi / watch.factors.psi)
    return replace(watch, center=center, factors=factors, unit=unit, noise=own)


def _factor_steps(factors: Factors, C: Floats) -> tuple[Floats, Floats]:
    """Return loadings and noise after some steps of EM for a covariance (Rubin & Thayer 1982)."""
    W, psi = factors.W, factors.psi
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
    return W @ (P @ Q)
