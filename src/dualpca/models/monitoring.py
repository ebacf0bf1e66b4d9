"""Rows through time: what each shows beside phase I, statistics with a memory, alarms, episodes.

`ChartPlan` says how rows are judged, `State` is how far a monitor has come; `advance` goes on by
some rows and draws a `Chart` of them. What rows show by themselves is in `baseline`.

With a memory: EWMAs of y and r (Lowry et al. 1992), whose statistics are ‖u‖² over its variance
and the largest |EWMA| over its deviation, and CUSUMs (Crosier 1988; Page 1954). A row is O(d²).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from dualpca.arrays import Array, cached_property
from dualpca.data import Host
from dualpca.models.baseline import Baseline, Measures, joined_law, where_judged
from dualpca.models.run_lengths import both, rule_name

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

WORDS = {
    "t2": "T²",
    "spe": "SPE",
    "mewma": "MEWMA",
    "residual": "residual",
    "cusum": "CUSUM",
    "residual_cusum": "residual CUSUM",
}
"""Statistics by their names, as people write them."""

QUIET = 5
"""Rows below all limits after which an episode is over."""

MOST_NAMED = 5
"""Sensors that an episode names."""

REFERENCE_VALUE = 0.5
"""Of CUSUMs: half the shift that they find soonest, in standard deviations."""

# --- What people are shown -----------------------------------------------------------------------


@dataclass(frozen=True)
class Episode:
    """Rows in alarm, one after another, and what raised it.

    It starts at the first row in alarm, and is over once 5 rows in a row are below all limits.

    Parameters
    ----------
    start : int
        Row number; 0 is the first row judged.
    end : int or None
        One past its last row in alarm; None while it lasts.
    statistics : tuple of str
        That raised it, in the order in which they did.
    sensors : tuple of pairs of str and float
        Names of at most five sensors and their shares, largest first. All shares sum to 1.
    peak : float
        Largest statistic by its limit.
    time : pair of objects, or None
        Of its first and last row in alarm, if times were given.

    Examples
    --------
    >>> sensors = (("temperature", 0.62), ("flow", 0.21))
    >>> print(Episode(190, 241, ("spe", "residual"), sensors, 3.2))
    rows 190 to 240: SPE, residual; temperature 62 %, flow 21 %
    """

    start: int
    end: int | None
    statistics: tuple[str, ...]
    sensors: tuple[tuple[str, float], ...]
    peak: float
    time: tuple[Any, Any] | None = None

    def __str__(self) -> str:
        """Return rows, statistics and sensors in words."""
        if self.end is None:
            rows = f"rows from {self.start}"
        elif self.end == self.start + 1:
            rows = f"row {self.start}"
        else:
            rows = f"rows {self.start} to {self.end - 1}"
        raised = ", ".join(WORDS.get(name, name) for name in self.statistics)
        named = ", ".join(f"{name} {share:.0%}".replace("%", " %") for name, share in self.sensors)
        return f"{rows}: {raised}" + (f"; {named}" if named else "")


@dataclass(frozen=True)
class Chart:
    """What every row showed, and the limits it was compared with.

    Parameters
    ----------
    statistics : dict of str to array of shape (n,)
        NaN where nothing was observed.
    limits : dict of str to array of shape (n,)
        Each row's own: rows with missing values have limits of T² and SPE of their own.
    alarms : array of bool, shape (n,)
        Some statistic is above its limit.
    contributions : array of shape (n, d)
        Reconstruction-based contributions of the sensors, with the sign of their deviation; 0 where
        nothing was observed. 1 is what a sensor shows on average in phase I.
    episodes : tuple of Episode
        Those that have rows here; the open one has no end.
    names : tuple of str
        Of the d sensors.
    first : int
        Number of the first row.
    time : array of shape (n,), optional
        As given.

    Examples
    --------
    >>> from dualpca import Monitor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 1)) + 0.3 * rng.normal(size=(300, 4))
    >>> chart = Monitor().fit(X[:200]).chart(X[200:])
    >>> sorted(chart.statistics), chart.contributions.shape
    (['mewma', 'residual', 'spe', 't2'], (100, 4))
    """

    statistics: dict[str, Floats]
    limits: dict[str, Floats]
    alarms: Flags
    contributions: Floats
    episodes: tuple[Episode, ...]
    names: tuple[str, ...]
    first: int = 0
    time: Host | None = None

    @property
    def flagged(self) -> Flags:
        """The same as `alarms`."""
        return self.alarms

    def columns(self) -> dict[str, Host]:
        """Return one column for every statistic, limit and contribution, by name."""
        found: dict[str, Host] = {"row": self.first + np.arange(len(self.alarms))}
        if self.time is not None:
            found["time"] = self.time
        for name, values in self.statistics.items():
            found[name], found[f"{name} limit"] = values, self.limits[name]
        found["alarm"] = self.alarms
        for j, name in enumerate(self.names):
            found[f"contribution of {name}"] = self.contributions[:, j]
        return found

    def to_frame(self) -> Any:
        """Return the chart as a pandas DataFrame, or `columns` where pandas is not installed.

        Examples
        --------
        >>> from dualpca import Monitor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 1)) + 0.5 * rng.normal(size=(60, 3))
        >>> frame = Monitor(statistics=("t2", "spe")).fit(X).phase_one_.to_frame()
        >>> list(frame)[:3]
        ['row', 't2', 't2 limit']
        """
        try:
            from pandas import DataFrame
        except ImportError:
            return self.columns()
        return DataFrame(self.columns())


# --- How rows are judged -------------------------------------------------------------------------


class Innovations(NamedTuple):
    """What rows show beyond what those before them tell, as first-order processes.

    x_t − φ^g x_{t−g} over √(1 − φ^{2g}), g rows after the latest that is known, is white only as
    far as φ and the variances are; `root` and `size` make it so in phase I.
    """

    scores: Annotated[Array, "q", "> -1, < 1"]  # φ
    residuals: Annotated[Array, "d", "> -1, < 1"]
    root: Annotated[Array, "q q"]  # times the innovations of the scores: white
    size: Annotated[Array, "d", "> 0"]  # deviations of those of the residuals

    @classmethod
    def of(cls, y: Floats, r: Floats) -> Innovations:
        """Return those of the scores and residuals of phase I, (n, q) and (n, d)."""
        p, s = _lag_one(y), _lag_one(r)
        e = (y[1:] - p * y[:-1]) / np.sqrt(1 - p * p)
        f = (r[1:] - s * r[:-1]) / np.sqrt(1 - s * s)
        K = e.T @ e / max(len(e), 1)
        ridge = 1e-9 * max(float(np.trace(K)), 1e-300) * np.eye(len(K))
        root = np.linalg.inv(np.linalg.cholesky(K + ridge))
        size = np.sqrt(np.mean(f * f, axis=0))
        return cls(p, s, root, np.where(size > LEAST_INNOVATION, size, 1.0))


SEEN_BY_CHANCE = 4.0
"""Standard errors from which an autocorrelation counts."""

MOST_ALIKE = 0.98
"""Largest autocorrelation whose innovations are monitored."""

LEAST_INNOVATION = 1e-6
"""Deviation below which a sensor did not vary in phase I."""


def _lag_one(values: Floats) -> Floats:
    """Return the autocorrelation of every column, 0 where it may be chance."""
    n = len(values)
    C = values - values.mean(axis=0)
    size = np.sum(C * C, axis=0)
    phi = np.sum(C[1:] * C[:-1], axis=0) / np.where(size > 0, size, 1.0)
    phi = np.where(np.abs(phi) > SEEN_BY_CHANCE / np.sqrt(n), phi + (1 + 3 * phi) / n, 0.0)
    return np.clip(phi, -MOST_ALIKE, MOST_ALIKE)


@dataclass(frozen=True)
class ChartPlan:
    """How rows are judged: by which statistics, with which limits.

    Parameters
    ----------
    baseline : Baseline
    statistics : tuple of str
        Keys of `WORDS`.
    smoothing : float
        λ of the EWMAs.
    lags : int
        Earlier rows that are part of each row.
    limits : dict of str to float
        Of the statistics with a memory, and of run rules.
    levels : dict of str to float
        Of T² and SPE: the share of ordinary rows below their limits.
    rules : tuple of pairs of int
        (k, m): k of the last m rows.
    innovations : Innovations, optional
        Of scores and residuals, which the statistics with a memory are then made of.
    names : tuple of str
        Of the sensors.
    """

    baseline: Annotated[Baseline, "w=d d=s q"]
    statistics: tuple[str, ...]
    smoothing: Annotated[float, "> 0, <= 1"]
    lags: Annotated[int, ">= 0"]
    limits: dict[str, Annotated[float, "> 0, or inf"]]
    levels: dict[str, Annotated[float, "> 0, < 1"]]
    rules: tuple[tuple[int, int], ...]
    names: Annotated[tuple[str, ...], "d"]
    innovations: Annotated[Innovations, "q d"] | None = None

    @cached_property
    def _row_limits(self) -> dict[bytes, tuple[float, float]]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave prepared limits behind."""
        return {name: value for name, value in vars(self).items() if name != "_row_limits"}

    def row_limits(self, keys: Sequence[bytes]) -> Floats:
        """Return the limits of T² and SPE of rows with these patterns, (n, 2)."""
        known = self._row_limits
        new = [key for key in dict.fromkeys(keys) if key not in known]
        if len(known) + len(new) > MOST_LIMITS:
            known.clear()
            new = list(dict.fromkeys(keys))
        if new:
            both = [seen.laws for seen in self.baseline.seen(new)]
            found = [
                joined_law([pair[k] for pair in both]).limit(self.levels.get(name, 0.5))
                for k, name in enumerate(("t2", "spe"))
            ]
            known.update(
                zip(new, zip(*(part.tolist() for part in found), strict=True), strict=True)
            )
        return np.array([known[key] for key in keys]).reshape(len(keys), 2)

    def surprise(self, measures: Measures) -> Floats:
        """Return −log₁₀ p of T² and SPE of every row, (n, 2), NaN where nothing was observed."""
        both = [seen.laws for seen in self.baseline.seen(measures.keys)]
        found = []
        for k, values in enumerate((measures.t2, measures.spe)):
            p = joined_law([pair[k] for pair in both]).pvalue(np.where(measures.judged, values, 0))
            found.append(-np.log10(np.maximum(p, 1e-300)))
        return np.where(measures.judged[:, None], np.stack(found, axis=1), np.nan)


MOST_LIMITS = 1 << 16
"""Patterns whose limits are remembered."""


class Trace(NamedTuple):
    """What is kept of an episode, while it lasts and afterwards."""

    start: int
    last: int  # its last row in alarm
    over: bool
    quiet: int  # rows below the limits since
    statistics: tuple[str, ...]
    peak: Annotated[float, ">= 0, or inf"]
    rows: int  # in alarm
    counts: Annotated[Array, "d", ">= 0"]  # of them, rows that observe each sensor
    sums: Annotated[Array, "d"]  # of residuals
    squares: Annotated[Array, "d"]
    reach: Annotated[Array, "d", ">= 0"]  # largest squared EWMA of residuals by its variance
    scores: Annotated[Array, "q"]  # sum
    times: tuple[Moment, Moment] | None

    @classmethod
    def at(cls, row: int, d: int, q: int, time: Moment | None) -> Trace:
        """Return an episode that begins, of no rows yet."""
        nothing, times = np.zeros(d), None if time is None else (time, time)
        return cls(
            row, row, False, 0, (), 0.0, 0, nothing, nothing, nothing, nothing, np.zeros(q), times
        )

    def with_alarm(
        self,
        row: int,
        raised: tuple[str, ...],
        peak: float,
        shown: tuple[Floats, Floats, Floats],
        time: Moment | None,
    ) -> Trace:
        """Return the episode after one more row in alarm.

        `shown` are its residuals, their EWMA by its deviation, and its scores.
        """
        residuals, ewma, scores = shown
        there = ~np.isnan(residuals)
        r = np.where(there, residuals, 0.0)
        return self._replace(
            last=row,
            quiet=0,
            statistics=tuple(dict.fromkeys((*self.statistics, *raised))),
            peak=max(self.peak, peak),
            rows=self.rows + 1,
            counts=self.counts + there,
            sums=self.sums + r,
            squares=self.squares + r * r,
            reach=np.maximum(self.reach, there * ewma**2),
            scores=self.scores + scores,
            times=self.times and (self.times[0], time or self.times[1]),
        )

    def shares(self, baseline: Baseline) -> Floats:
        """Return what each sensor has to do with it, (d,), of sum 1 or 0.

        A sensor that is off, or noisier than it was, shows in its residuals: the square of their
        mean by its variance, or of their EWMA, and what its variance exceeds 1 by. Where none does,
        the causes have moved, and the contributions are those to T² of their mean.
        """
        n = np.maximum(self.counts, 1.0)
        mean = self.sums / n
        excess = self.squares - n * mean * mean - (n - 1) - 2 * np.sqrt(2 * np.maximum(n - 1, 0))
        found = np.maximum(n * mean * mean, self.reach) + np.maximum(excess, 0.0)
        if not found.size or found.max() < SURELY_OFF + 2 * math.log(found.size):
            found = np.maximum(found, self._of_causes(baseline))
        total = float(found.sum())
        shares: Floats = found / total if total > 0 else found
        return shares

    def _of_causes(self, baseline: Baseline) -> Floats:
        """Return the contributions of the sensors to T² of the mean scores, (d,)."""
        [seen] = baseline.seen([np.ones(len(baseline.center), dtype=np.bool_).tobytes()])
        A = seen.matrix[: baseline.q, : baseline.d]
        size = np.sum(A * A, axis=0)
        found: Floats = (self.scores @ A) ** 2 / max(self.rows, 1) / np.where(size > 0, size, 1.0)
        return found

    def episode(self, plan: ChartPlan) -> Episode:
        """Return the episode as people see it."""
        shares = self.shares(plan.baseline)
        order = np.argsort(-shares, kind="stable")[:MOST_NAMED]
        sensors = tuple((plan.names[j], float(shares[j])) for j in order if shares[j] > 0)
        time = None if self.times is None else tuple(one.given for one in self.times)
        end = self.last + 1 if self.over else None
        return Episode(self.start, end, self.statistics, sensors, self.peak, time)


SURELY_OFF = 9.0
"""Squared deviation from which a sensor is off, beside what the largest of many shows."""


class Moment(NamedTuple):
    """A time as files can hold it: a number or text, or the text of a date."""

    value: int | float | str
    date: bool = False

    @property
    def given(self) -> Any:
        """The time as it was given."""
        return np.datetime64(self.value) if self.date else self.value

    @classmethod
    def of(cls, time: Any) -> Moment:
        """Return a time to keep."""
        if isinstance(time, np.generic) and not isinstance(time, np.datetime64):
            time = time.item()
        if isinstance(time, int | float | str) and not isinstance(time, bool):
            return cls(time)
        return cls(str(np.datetime64(time)), True)


@dataclass(frozen=True)
class State:
    """How far a monitor has come: all that the next row is judged by.

    Parameters
    ----------
    seen : int
        Rows judged.
    scores : array of shape (q,)
        Their EWMA.
    spread : array of shape (q, q)
        Its covariance for ordinary rows.
    whole : bool
        That is a multiple of I: every row so far determined all scores.
    residuals : array of shape (d,)
        EWMA of the residuals.
    counts : array of shape (d,)
        Of the rows in it.
    cusum : array of shape (q,)
    residual_cusum : array of shape (2, d)
        Upwards and downwards.
    before : array of shape (lags, d)
        The rows before the next one, latest first.
    last : array of shape (2, q + d)
        The latest scores and residuals that are known, and how many rows ago; 0 for never.
    recent : array of shape (m, 2)
        −log₁₀ p of T² and SPE of the latest rows, latest last.
    traces : tuple of Trace
        Episodes; the last one may be open.
    """

    seen: Annotated[int, ">= 0"]
    scores: Annotated[Array, "q"]
    spread: Annotated[Array, "q q"]
    whole: bool
    residuals: Annotated[Array, "d"]
    counts: Annotated[Array, "d", ">= 0"]
    cusum: Annotated[Array, "q"]
    residual_cusum: Annotated[Array, "2 d", ">= 0"]
    before: Annotated[Array, "l d", "or nan"]
    last: Annotated[Array, "2 p"]
    recent: Annotated[Array, "r 2", "or nan"]
    traces: tuple[Annotated[Trace, "d q"], ...] = ()

    @classmethod
    def fresh(cls, plan: ChartPlan) -> State:
        """Return the state before the first row."""
        q, d = plan.baseline.q, plan.baseline.d
        most = max([m for _, m in plan.rules], default=1) - 1
        return cls(
            seen=0,
            scores=np.zeros(q),
            spread=np.zeros((q, q)),
            whole=True,
            residuals=np.zeros(d),
            counts=np.zeros(d),
            cusum=np.zeros(q),
            residual_cusum=np.zeros((2, d)),
            before=np.full((plan.lags, d), np.nan),
            last=np.zeros((2, q + d)),
            recent=np.full((most, 2), np.nan),
        )


# --- Going on through time -----------------------------------------------------------------------


def widened(rows: Floats, before: Floats) -> Floats:
    """Return every row with those before it, latest first, (n, d(lags + 1)).

    Examples
    --------
    >>> widened(np.array([[1.0], [2.0], [3.0]]), np.array([[0.0]]))
    array([[1., 0.],
           [2., 1.],
           [3., 2.]])
    """
    lags = len(before)
    every = np.concatenate([before[::-1], rows])
    return np.concatenate([every[lags - k : len(every) - k] for k in range(lags + 1)], axis=1)


class Followed(NamedTuple):
    """The statistics with a memory after each of some rows, and the state after the last."""

    values: dict[str, Floats]
    residuals: Floats  # (n, d), EWMA of residuals by its deviation
    state: State


def follow(plan: ChartPlan, state: State, measures: Measures) -> Followed:
    """Take the statistics with a memory on by some rows, one after another."""
    y, r, keys = measures.scores, measures.residuals, measures.keys
    there = ~np.isnan(r)
    known: list[Floats | None] = [seen.known for seen in plan.baseline.seen(keys)]
    last, r = state.last, np.where(there, r, 0.0)
    if plan.innovations is not None:
        y, r, known, last = _innovations(plan.innovations, y, (r, there), known, last)
    scores, residuals = _score_ewma(plan, state, y, known), _residual_ewma(plan, state, r, there)
    largest = np.max(np.abs(residuals[0]) * there, axis=1, initial=0.0)
    values = {"mewma": scores[0], "residual": largest}
    cusum, both = state.cusum, state.residual_cusum
    if "cusum" in plan.statistics:
        values["cusum"], cusum = _crosier(cusum, y)
    if "residual_cusum" in plan.statistics:
        values["residual_cusum"], both = _two_sided(both, r, there)
    values = {name: where_judged(measures.judged, found) for name, found in values.items()}
    after = replace(
        state,
        seen=state.seen + len(y),
        scores=scores[1],
        spread=scores[2],
        whole=scores[3],
        residuals=residuals[1],
        counts=residuals[2],
        cusum=cusum,
        residual_cusum=both,
        last=last,
    )
    return Followed(values, residuals[0], after)


def _score_ewma(
    plan: ChartPlan, state: State, y: Floats, known: list[Floats | None]
) -> tuple[Floats, Floats, Floats, bool]:
    """Return T² of the EWMA of the scores after each row, the EWMA, its covariance and its kind.

    A row that determines some directions only moves the EWMA along them.
    """
    lam, u, S, whole = plan.smoothing, state.scores, state.spread, state.whole
    found, eye = np.zeros(len(y)), np.eye(len(u))
    for i, P in enumerate(known):
        if P is None:
            u = u + lam * (y[i] - u)
            S = (1 - lam) ** 2 * S + lam**2 * eye
        elif P.any():
            whole, left = False, eye - lam * P
            u, S = left @ u + lam * y[i], left @ S @ left.T + lam**2 * P
        if not u.size:
            continue
        if whole:
            found[i] = u @ u / S[0, 0] if S[0, 0] > 0 else 0.0
        else:
            found[i] = u @ linalg.pinvh(S) @ u
    return found, u, S, whole


def _residual_ewma(
    plan: ChartPlan, state: State, r: Floats, there: Flags
) -> tuple[Floats, Floats, Floats]:
    """Return the EWMA of the residuals by its deviation after each row, (n, d); EWMA and counts."""
    lam, u = plan.smoothing, state.residuals
    found, step = np.empty_like(r), lam * there
    for i in range(len(r)):
        u = u + step[i] * (r[i] - u)
        found[i] = u
    counts = state.counts + np.cumsum(there, axis=0)
    variance = lam / (2 - lam) * (1 - (1 - lam) ** (2 * np.maximum(counts, 1.0)))
    last = counts[-1] if len(r) else state.counts
    return found / np.sqrt(variance), u, last


def _crosier(s: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the length of Crosier's CUSUM of vectors after each row, and the CUSUM."""
    found = np.zeros(len(y))
    for i in range(len(y)):
        s = s + y[i]
        length = math.sqrt(s @ s)
        s = s * (1 - REFERENCE_VALUE / length) if length > REFERENCE_VALUE else 0 * s
        found[i] = max(length - REFERENCE_VALUE, 0.0)
    return found, s


def _two_sided(s: Floats, r: Floats, there: Flags) -> tuple[Floats, Floats]:
    """Return the largest CUSUM, up or down, of the sensors of each row, and all of them."""
    found, signs = np.zeros(len(r)), np.array([[1.0], [-1.0]])
    for i in range(len(r)):
        s = np.where(there[i], np.maximum(s + signs * r[i] - REFERENCE_VALUE, 0.0), s)
        found[i] = np.max(s * there[i], initial=0.0)
    return found, s


def _innovations(
    made: Innovations,
    y: Floats,
    residuals: tuple[Floats, Flags],
    known: list[Floats | None],
    last: Floats,
) -> tuple[Floats, Floats, list[Floats | None], Floats]:
    """Return what scores and residuals have that the latest known ones do not tell, and those.

    After g rows an AR(1) keeps φ^g: (x_t − φ^g x_{t−g})/√(1 − φ^{2g}). Scores of rows that do not
    determine all of them are left out.
    """
    q, both, (r, observed) = y.shape[1], np.concatenate(made[:2]), residuals
    whole = np.array([P is None for P in known], dtype=np.bool_)
    there = np.concatenate([np.repeat(whole[:, None], q, axis=1), observed], axis=1)
    X, found = np.concatenate([y, r], axis=1), np.zeros((len(y), len(both)))
    value, gap = last
    for i in range(len(X)):
        gap = np.where(gap > 0, gap, 0.0)
        f = np.where(gap > 0, both**gap, 0.0)
        found[i] = np.where(there[i], (X[i] - f * value) / np.sqrt(1 - f * f), 0.0)
        value = np.where(there[i], X[i], value)
        gap = np.where(there[i], 1.0, gap + (gap > 0))
    nothing = np.zeros((q, q))
    left: list[Floats | None] = [None if P is None else nothing for P in known]
    for e in found:  # row by row, so that no product depends on the rows beside
        e[:q] = made.root @ e[:q]
    return found[:, :q], found[:, q:] / made.size, left, np.stack([value, gap])


def _runs(surprise: Floats, recent: Floats, k: int, m: int) -> Floats:
    """Return the k-th largest of the last m values of each column, (n, c), NaN before there are m.

    Examples
    --------
    >>> _runs(np.array([[1.0], [3.0], [2.0]]), np.full((2, 1), np.nan), 2, 3)
    array([[nan],
           [nan],
           [ 2.]])
    """
    every = np.concatenate([recent[len(recent) - (m - 1) :], surprise])
    found = np.lib.stride_tricks.sliding_window_view(every, m, axis=0)
    return (
        np.sort(found, axis=2)[:, :, m - k] if not np.isnan(found).any() else _with_gaps(found, k)
    )


def _with_gaps(windows: Floats, k: int) -> Floats:
    """Return the k-th largest of windows, NaN where one has a gap."""
    found = np.sort(np.where(np.isnan(windows), -np.inf, windows), axis=2)[:, :, -k]
    return np.where(np.isnan(windows).any(axis=2), np.nan, found)


def advance(
    plan: ChartPlan, state: State, rows: Floats, time: Host | None = None
) -> tuple[Chart, State]:
    """Judge the rows that come next; return their chart and the state after them.

    However rows are cut into calls, every number is the same to the last bit.
    """
    measures = plan.baseline.measured(widened(rows, state.before))
    return _charted(plan, state, rows, measures, time)


class Judged(NamedTuple):
    """The statistics of some rows and their limits."""

    statistics: dict[str, Floats]
    limits: dict[str, Floats]

    @property
    def over(self) -> dict[str, Flags]:
        """Where each statistic is above its limit."""
        return {name: values > self.limits[name] for name, values in self.statistics.items()}

    def raised(self, i: int) -> tuple[tuple[str, ...], float]:
        """Return the statistics of a row above their limits, and the largest by its limit."""
        found, largest = [], 0.0
        for name, values in self.statistics.items():
            value, limit = float(values[i]), float(self.limits[name][i])
            if value > limit:
                found.append(name)
            if value > 0 and 0 < limit < math.inf:
                largest = max(largest, value / limit)
        return tuple(found), largest


def judged(plan: ChartPlan, measures: Measures, followed: Followed) -> Judged:
    """Return the statistics that were asked for with their limits, run rules apart."""
    limits, n = plan.row_limits(measures.keys), len(measures.t2)
    values = {"t2": measures.t2, "spe": measures.spe} | followed.values
    own = {"t2": limits[:, 0], "spe": limits[:, 1]}
    return Judged(
        {name: values[name] for name in plan.statistics},
        {
            name: own[name] if name in own else np.full(n, plan.limits[name])
            for name in plan.statistics
        },
    )


def _ruled(plan: ChartPlan, state: State, measures: Measures) -> tuple[Judged, Floats]:
    """Return the statistics of run rules with their limits, and what the next row needs."""
    surprise, found, n = plan.surprise(measures), Judged({}, {}), len(measures.t2)
    for rule in plan.rules:
        values = _runs(surprise, state.recent, *rule)
        for k, name in enumerate(("t2", "spe")):
            label = rule_name(name, rule)
            if label in plan.limits:
                found.statistics[label] = values[:, k]
                found.limits[label] = np.full(n, plan.limits[label])
    every = np.concatenate([state.recent, surprise])
    return found, every[len(every) - len(state.recent) :]


def _charted(
    plan: ChartPlan, state: State, rows: Floats, measures: Measures, time: Host | None
) -> tuple[Chart, State]:
    """Return the chart of measured rows and the state after them."""
    followed = follow(plan, state, measures)
    found, after = judged(plan, measures, followed), followed.state
    if plan.rules:
        more, recent = _ruled(plan, state, measures)
        found = Judged(found.statistics | more.statistics, found.limits | more.limits)
        after = replace(after, recent=recent)
    if plan.lags:
        every = np.concatenate([state.before[::-1], rows])
        after = replace(after, before=every[::-1][: plan.lags])
    alarms = any_of(found.over, len(rows))
    traces = noted(plan, state, measures, followed.residuals, found, time)
    first = max(len(state.traces) - 1, 0)
    episodes = tuple(trace.episode(plan) for trace in traces[first:] if trace.last >= state.seen)
    shown = _contributions(measures)
    parts = found.statistics, found.limits, alarms, shown, episodes, plan.names, state.seen, time
    return Chart(*parts), replace(after, traces=traces)


def any_of(over: dict[str, Flags], n: int) -> Flags:
    """Return the rows above some limit, (n,)."""
    found = np.zeros(n, dtype=np.bool_)
    for flags in over.values():
        found |= flags
    return found


def _contributions(measures: Measures) -> Floats:
    """Return the squares of the residuals with their signs, 0 where nothing was observed."""
    r = np.where(np.isnan(measures.residuals), 0.0, measures.residuals)
    return r * np.abs(r)


def noted(
    plan: ChartPlan,
    state: State,
    measures: Measures,
    ewma: Floats,
    found: Judged,
    time: Host | None,
) -> tuple[Trace, ...]:
    """Return the episodes after some rows, given which limits they are above.

    Parameters
    ----------
    plan : ChartPlan
    state : State
        Before the rows.
    measures : Measures
    ewma : array of shape (n, d)
        Of the residuals, by its deviation.
    found : Judged
    time : array of shape (n,), optional
    """
    alarms = any_of(found.over, len(ewma))
    *done, last = (*state.traces, None)
    if state.traces and not state.traces[-1].over:
        last = done.pop()
    now: Trace | None = last
    if now is None and not alarms.any():
        return state.traces
    for i in np.flatnonzero(measures.judged):
        row = state.seen + int(i)
        if alarms[i]:
            moment = None if time is None else Moment.of(time[i])
            now = now or Trace.at(row, plan.baseline.d, plan.baseline.q, moment)
            shown = measures.residuals[i], ewma[i], measures.scores[i]
            now = now.with_alarm(row, *found.raised(int(i)), shown, moment)
        elif now is not None:
            now = now._replace(quiet=now.quiet + 1, over=now.quiet + 1 >= QUIET)
            done, now = ([*done, now], None) if now.over else (done, now)
    return tuple(done) if now is None else (*done, now)


# --- The model -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PhaseOneRecord:
    """What phase I showed, as files can hold it.

    Parameters
    ----------
    statistics, limits : dict of str to array of shape (n,)
    contributions : array of shape (n, d)
    traces, aside : tuples of Trace
        Episodes of its chart, and those set aside.
    lengths : dict of str to float
        Run length of every statistic alone.
    time : array of shape (n,), optional
        Numbers or text.
    dates : bool
        The text is of dates.
    """

    statistics: dict[str, Annotated[Array, "n", "or nan"]]
    limits: dict[str, Annotated[Array, "n", "or inf"]]
    contributions: Annotated[Array, "n d"]
    traces: tuple[Annotated[Trace, "d q"], ...]
    aside: tuple[Annotated[Trace, "d q"], ...]
    lengths: dict[str, Annotated[float, "> 0"]]
    time: Annotated[Array, "labels n"] | None = None
    dates: bool = False

    @classmethod
    def of(
        cls,
        chart: Chart,
        traces: tuple[Trace, ...],
        aside: tuple[Trace, ...],
        lengths: dict[str, float],
    ) -> PhaseOneRecord:
        """Return what a chart of phase I shows."""
        time, dates = chart.time, False
        if time is not None and time.dtype.kind not in "fiuU":
            given = [Moment.of(one) for one in time]
            dates = all(one.date for one in given)
            time = np.array([one.value if dates else str(one.value) for one in given])
        parts = chart.statistics, chart.limits, chart.contributions
        return cls(*parts, traces, aside, lengths, time, dates)

    def chart(self, plan: ChartPlan) -> Chart:
        """Return the chart."""
        alarms = np.zeros(len(self.contributions), dtype=np.bool_)
        for name, values in self.statistics.items():
            alarms |= values > self.limits[name]
        time = self.time
        if time is not None and self.dates:
            time = time.astype("datetime64")
        episodes = tuple(trace.episode(plan) for trace in self.traces)
        return Chart(
            dict(self.statistics),
            dict(self.limits),
            alarms,
            self.contributions,
            episodes,
            plan.names,
            0,
            time,
        )


@dataclass(frozen=True)
class LearnedMoments:
    """What ordinary rows after phase I say of the mean and covariance, with forgetting.

    Parameters
    ----------
    weight : float
        Of the rows that are remembered.
    squares : float
        Sum of their squared weights.
    mean : array of shape (w,)
        Around the centre of phase I, in units of the fit.
    scatter : array of shape (w, w)
    first : Baseline
        Of phase I.
    state : State
        Of the rows that were learned from: those in an open episode are left out.
    """

    weight: Annotated[float, "> 0"]
    squares: Annotated[float, "> 0"]
    mean: Annotated[Array, "w"]
    scatter: Annotated[Array, "w w"]
    first: Annotated[Baseline, "w=d d=s q"]
    state: Annotated[State, "d q"]


@dataclass(frozen=True)
class MonitorModel:
    """How rows are judged, how far that has come, what phase I showed, what was learned since."""

    plan: Annotated[ChartPlan, "d q w"]
    state: Annotated[State, "d q"]
    record: Annotated[PhaseOneRecord, "d q?"]
    learned: Annotated[LearnedMoments, "d q w"] | None = None

    def update(self, rows: Floats, time: Host | None = None) -> tuple[Chart, MonitorModel]:
        """Judge the rows that come next; return their chart and the monitor after them."""
        chart, state = advance(self.plan, self.state, rows, time)
        return chart, replace(self, state=state)

    def chart(self, rows: Floats, time: Host | None = None) -> Chart:
        """Judge rows from a fresh start."""
        return advance(self.plan, State.fresh(self.plan), rows, time)[0]

    def reset(self) -> MonitorModel:
        """Return the monitor before the first row."""
        return replace(self, state=State.fresh(self.plan))

    def contributions(self, rows: Floats) -> Floats:
        """Return the contributions of the sensors to every row, (n, d)."""
        before = np.full((self.plan.lags, rows.shape[1]), np.nan)
        return _contributions(self.plan.baseline.measured(widened(rows, before)))

    @property
    def phase_one(self) -> Chart:
        """The chart of phase I."""
        return self.record.chart(self.plan)

    @property
    def set_aside(self) -> tuple[Episode, ...]:
        """The episodes of phase I that were set aside."""
        return tuple(trace.episode(self.plan) for trace in self.record.aside)

    @property
    def limits(self) -> dict[str, float]:
        """The limits of a complete row."""
        plan = self.plan
        key = np.ones(len(plan.baseline.center), dtype=np.bool_).tobytes()
        pair = dict(zip(("t2", "spe"), plan.row_limits([key])[0].tolist(), strict=True))
        own = {name: pair[name] for name in both(plan.statistics)}
        return {
            name: own.get(name, plan.limits.get(name, math.inf)) for name in plan.statistics
        } | {name: limit for name, limit in plan.limits.items() if " " in name}

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """The episodes so far."""
        return tuple(trace.episode(self.plan) for trace in self.state.traces)


def goes_together(model: MonitorModel) -> bool:
    """Return True if the parts of a monitor, as read from a file, fit each other."""
    plan, record = model.plan, model.record
    rules = [rule_name(name, rule) for rule in plan.rules for name in both(plan.statistics)]
    needed = {name for name in plan.statistics if name not in ("t2", "spe")} | set(rules)
    named = set(plan.statistics) <= set(WORDS) and needed <= set(plan.limits)
    levels = set(both(plan.statistics)) <= set(plan.levels)
    same = set(record.statistics) == set(record.limits)
    states = [model.state] if model.learned is None else [model.state, model.learned.state]
    return named and levels and same and all(_is_of(plan, state) for state in states)


def _is_of(plan: ChartPlan, state: State) -> bool:
    """Return True if a state has the sizes that a plan asks for."""
    w, q, d = len(plan.baseline.center), plan.baseline.q, plan.baseline.d
    most = max([m for _, m in plan.rules], default=1) - 1
    good = all(2 <= k <= m for k, m in plan.rules) and w == d * (plan.lags + 1)
    shapes = state.before.shape, state.last.shape, state.recent.shape
    return good and shapes == ((plan.lags, d), (2, q + d), (most, 2))
