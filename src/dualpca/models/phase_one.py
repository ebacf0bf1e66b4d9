"""Phase I of a monitor: the Gaussian of ordinary rows, limits, and bad episodes set aside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualpca.data import Host
from dualpca.gaussian import FactorJudge, Factors, Reference, autocorrelation, laws
from dualpca.models.monitoring import (
    Chart,
    Episode,
    Measures,
    MonitorModel,
    Plan,
    State,
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

ROUGH_ROWS = 400_000
"""Rows that are simulated for limits of a fit that may not be the last."""

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
    chart: Chart
    set_aside: tuple[Episode, ...]
    lengths: dict[str, float]
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
        bad = usable & _is_bad(drawn.plan(max(request.arl, STRICT * n)), watch.measured(wide))
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
    aside = _episodes(strict, watch.measured(wide), usable & ~kept, time)
    chart = advance(plan, fresh, rows, time)[0]
    return PhaseOne(MonitorModel(plan, fresh), chart, aside, drawn.found.lengths, refused)


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


def _episodes(plan: Plan, measures: Measures, bad: Flags, time: Host | None) -> tuple[Episode, ...]:
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
    return tuple(trace._replace(over=True).episode(plan) for trace in traces)
