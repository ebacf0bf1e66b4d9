"""Rows in order: T², SPE and other statistics with their limits, and contributions over time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import matplotlib.dates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import AsinhNorm
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Affine2D, ScaledTranslation, blended_transform_factory
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dualpca import Monitor
from dualpca.app.plots._canvas import (
    DASHED,
    SMALL,
    Floats,
    Ink,
    Place,
    Sheet,
    canvas,
    feature_names,
    foremost,
    mark,
    need,
    root,
)
from dualpca.app.plots.rows import FAR, NAMES, NO_LIMITS, SIGNS, draw_bars
from dualpca.arrays import backend
from dualpca.errors import expected
from dualpca.models.monitoring import WORDS, Chart

Ints = NDArray[np.intp]
Mask = NDArray[np.bool_]

WIDE = 7.6
"""Inches: time needs more room than other axes."""

POINTS = 3000
"""Points of a line; longer ones are thinned so that every bump remains."""

DOTS = 250
"""Rows up to which each has a dot."""

COLUMNS_SHOWN = 1200
"""Columns of a heat map; of more rows each column has the largest of several."""

TALL, LESS_TALL = 1.25, 0.95
"""Inches of a panel, and where there are more than five."""

STRIP = (3.0, 9.0)
"""Points above a heat map between which alarms are marked."""

TICK = 0.7
"""Inches that a date needs on an axis."""

PAUSE = 20.0
"""Multiple of the median time between rows over which no line is drawn."""

FILL, FILL_WORST = 0.14, 0.32
"""Opacity of episodes, and of the worst."""


# --- what is drawn -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Watched:
    """Rows in order, judged by a monitor or by a model.

    Attributes
    ----------
    statistics, limits : dict of str to array of shape (n,)
        NaN where there is none.
    alarms : bool array of shape (n,)
    episodes : sequence of Episode
        None from a model, which judges every row by itself.
    contributions : callable or None
        From first row, end and statistic to signed contributions, (rows, d).
    names : list of str
        Of the sensors.
    first : int
        Number of the first row.
    time : object
        As given: one time per row, or None.
    limit : str
        What the limits are called.
    """

    statistics: dict[str, Floats]
    limits: dict[str, Floats]
    alarms: Mask
    episodes: Sequence[Any]
    contributions: Callable[[int, int, str], Floats] | None
    names: list[str]
    first: int
    time: Any
    limit: str

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.alarms)

    def ratios(self) -> Floats:
        """Return each statistic as a multiple of its limit, (statistics, n); 0 without one."""
        pairs = zip(self.statistics.values(), self.limits.values(), strict=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.array([value / limit for value, limit in pairs])
        return np.where(np.isfinite(found), found, 0.0)

    def span(self, episode: Any) -> tuple[int, int]:
        """Return where an episode starts and ends, in rows of the figure."""
        end = self.n if episode.end is None else episode.end - self.first
        return max(episode.start - self.first, 0), min(end, self.n)

    def line(self) -> Any:
        """Return how limits are drawn: dashed if all are straight, solid if some have steps."""
        return DASHED if all(len(_changes(v)) <= 2 for v in self.limits.values()) else "-"

    def seen(self) -> list[Any]:
        """Return the episodes with rows in the figure."""
        return [one for one in self.episodes if self.span(one)[0] < self.span(one)[1]]


def _watched(plot: str, model: Any, X: Any, time: Any, level: float) -> _Watched:
    """Return what a model or a monitor says about rows, or what a chart holds."""
    time = _index(X) if time is None else time
    if isinstance(model, Chart):
        if X is not None:
            raise ValueError(expected("X", "None with a Chart, which has its rows", type(X)))
        found = _of_chart(model, None, time)
    elif isinstance(model, Monitor):
        check_is_fitted(model)
        chart = model.phase_one_ if X is None else model.chart(X)
        found = _of_chart(chart, X, time)
    else:
        need(model, plot, "T² and SPE with their limits", "outliers", instead=NO_LIMITS)
        if X is None:
            raise ValueError(expected("X", "the rows to draw", None))
        found = _of_model(model, X, time, level)
    if found.time is not None and (shape := _as_array(found.time).shape) != (found.n,):
        raise ValueError(expected("time", f"a time for each of the {found.n} rows", shape))
    return found


def _of_chart(chart: Chart, X: Any, time: Any) -> _Watched:
    parts = np.asarray(chart.contributions, dtype=np.float64)
    if X is not None:
        parts = np.where(np.isnan(_numbers(X)), np.nan, parts)
    statistics, limits = _known(chart.statistics, chart.limits)
    empty = np.asarray(np.isnan(list(statistics.values())).all(axis=0))
    parts = np.where(empty[:, None], np.nan, parts)
    return _Watched(
        statistics,
        limits,
        np.asarray(chart.alarms, dtype=bool),
        chart.episodes,
        lambda start, end, to: parts[start:end],
        [str(name) for name in chart.names],
        int(chart.first),
        chart.time if time is None else time,
        "limit",
    )


def _of_model(model: Any, X: Any, time: Any, level: float) -> _Watched:
    table = X if hasattr(X, "columns") or backend.is_foreign(X) else np.asarray(X)
    outliers = model.outliers(table, level)
    empty = backend.to_numpy(outliers.empty).astype(bool)
    both = {name: backend.to_numpy(getattr(outliers, name)) for name in ("t2", "spe")}
    limits = {name: backend.to_numpy(getattr(outliers, f"{name}_limit")) for name in both}

    def contributions(start: int, end: int, to: str) -> Floats:
        some = table.iloc[start:end] if hasattr(table, "iloc") else table[start:end]
        parts = model.contributions(some, to=to, signed=True)
        return np.where(np.isnan(_numbers(some)), np.nan, _numbers(parts))

    return _Watched(
        *_known({name: np.where(empty, np.nan, value) for name, value in both.items()}, limits),
        backend.to_numpy(outliers.flagged).astype(bool),
        (),
        contributions if hasattr(model, "contributions") else None,
        feature_names(model),
        0,
        time,
        f"limit, {100 * level:g} %",
    )


def _known(
    statistics: Mapping[str, Any], limits: Mapping[str, Any]
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return statistics and limits in the order of the panels, NaN where a row has none."""
    names = [name for name in WORDS if name in statistics]
    names += [name for name in statistics if name not in WORDS]
    values = {name: np.array(statistics[name], dtype=np.float64) for name in names}
    bounds = {name: np.array(limits[name], dtype=np.float64) for name in names}
    for name in names:
        missing = ~np.isfinite(values[name])
        values[name][missing] = np.nan
        bounds[name][missing | ~np.isfinite(bounds[name])] = np.nan
    return values, bounds


def _numbers(table: Any) -> Floats:
    return np.array(backend.to_numpy(table), dtype=np.float64)


# --- time --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Times:
    """Where rows stand on the horizontal axis.

    Attributes
    ----------
    at, left, right : arrays of shape (n,)
        Places of rows, and where those of their neighbours begin.
    word : str
        What the axis is called.
    moments : array of shape (n,) or None
        Times as given, to refer to rows; None where they have numbers alone.
    pauses : array of int
        Rows after which there are none for long.
    """

    at: Floats
    left: Floats
    right: Floats
    word: str
    moments: NDArray[Any] | None
    pauses: Ints


def _index(X: Any) -> Any:
    """Return the times of a pandas frame that has them as its index."""
    index = getattr(X, "index", None)
    return index if type(index).__name__ in ("DatetimeIndex", "PeriodIndex") else None


def _times(axes: Sequence[Axes], time: Any, n: int, first: int) -> _Times:
    """Set up the horizontal axes for times, and return the places of rows.

    Times that are not in order, or no times to matplotlib, are written at places one apart.
    """
    rows = first + np.arange(n, dtype=np.float64)
    if time is None:
        for ax in axes:
            ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        return _Times(rows, rows - 0.5, rows + 0.5, "row", None, np.zeros(0, dtype=np.intp))
    values = _as_array(time)
    name = getattr(time, "name", None)
    word = name if isinstance(name, str) and name else "time"
    places = _converted(axes, values)
    if places is None or not np.isfinite(places).all() or np.any(np.diff(places) < 0):
        for ax in axes:
            ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _named(values, x - first)))
        return _Times(rows, rows - 0.5, rows + 0.5, word, values, np.zeros(0, dtype=np.intp))
    for ax in axes:
        if isinstance(ax.xaxis.get_major_formatter(), matplotlib.dates.AutoDateFormatter):
            _write_dates(ax)
    steps = np.diff(places)
    step = float(np.median(steps[steps > 0])) if np.any(steps > 0) else 1.0
    half = np.minimum(steps / 2, step)  # a row does not last through a pause
    ends = np.array([step / 2])
    left, right = np.concatenate([ends, half]), np.concatenate([half, ends])
    pauses = np.flatnonzero(steps > PAUSE * step)
    return _Times(places, places - left, places + right, word, values, pauses)


def _write_dates(ax: Axes) -> None:
    """Write as many dates as there is room for; the day once, hours at each tick."""
    dates: Any = matplotlib.dates
    room = ax.get_window_extent().width / root(ax).dpi / TICK
    zone = getattr(ax.xaxis.get_major_locator(), "tz", None)
    locator = dates.AutoDateLocator(tz=zone, minticks=2, maxticks=max(3, int(room)))
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=zone))


def _as_array(time: Any) -> NDArray[Any]:
    """Return times as an array; text is read as dates where it is in the ISO format."""
    if type(time).__name__ == "PeriodIndex":
        time = time.to_timestamp()
    values = np.asarray(time.to_numpy() if hasattr(time, "to_numpy") else time)
    if values.dtype.kind == "m":
        return values / np.timedelta64(1, "s")
    if values.dtype.kind in "UT" or (values.size and isinstance(values.flat[0], str)):
        try:
            return np.array([datetime.fromisoformat(str(text)) for text in values], dtype=object)
        except ValueError:
            return values
    return values


def _converted(axes: Sequence[Axes], values: NDArray[Any]) -> Floats | None:
    """Return times as matplotlib places them, None if it cannot."""
    if values.dtype.kind in "UTS" or (values.size and isinstance(values.flat[0], str)):
        return None  # each would be a category of its own
    try:
        for ax in axes:
            axis: Any = ax.xaxis
            axis.update_units(values)
        return np.array(axis.convert_units(values), dtype=np.float64)
    except (TypeError, ValueError, AttributeError):
        return None


def _moment(value: Any) -> str:
    """Return a time as text, without what is zero in it.

    Examples
    --------
    >>> _moment(np.datetime64("2026-03-01T07:30:00.000")), _moment(12.0)
    ('2026-03-01 07:30', '12')
    """
    if isinstance(value, np.datetime64 | date):
        text = str(value.astype("datetime64[s]") if isinstance(value, np.datetime64) else value)
        clock = text.replace("T", " ").partition(".")[0].partition("+")[0]
        return clock.removesuffix(":00").removesuffix(" 00:00")
    return f"{value:g}" if isinstance(value, float | int | np.number) else str(value)


def _named(values: NDArray[Any], row: float) -> str:
    """Return the time of a row; nothing between rows."""
    k = round(row)
    return _moment(values[k]) if 0 <= k < len(values) and abs(row - k) < 1e-6 else ""


# --- fewer points ------------------------------------------------------------------------------


def thinned(values: Floats, most: int = POINTS) -> Ints:
    """Return the positions of about `most` values that look like all: each stretch's extremes.

    Gaps (NaN) stay gaps.

    Parameters
    ----------
    values : array of shape (n,)
    most : int, default=3000

    Returns
    -------
    array of int
        Increasing.

    Examples
    --------
    >>> values = np.zeros(10_000)
    >>> values[1234] = 5.0
    >>> found = thinned(values, 100)
    >>> len(found) < 110, 1234 in found
    (True, True)
    """
    n = len(values)
    if n <= most:
        return np.arange(n)
    width = -(-2 * n // most)
    starts = np.arange(0, n, width)
    short = np.full(len(starts) * width - n, np.nan)
    bins = np.concatenate([values, short]).reshape(len(starts), width)
    empty = np.isnan(bins)
    low = starts + np.argmin(np.where(empty, np.inf, bins), axis=1)
    high = starts + np.argmax(np.where(empty, -np.inf, bins), axis=1)
    missing = np.isnan(values)
    gaps = np.flatnonzero(missing & ~np.concatenate([[False], missing[:-1]]))
    return np.unique(np.concatenate([low, high, gaps, [0, n - 1]]))


def _changes(values: Floats) -> Ints:
    """Return the first and last position of every stretch of equal values."""
    same = (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
    turns = np.flatnonzero(~same)
    return np.unique(np.concatenate([[0, len(values) - 1], turns, turns + 1]))


# --- the control chart -------------------------------------------------------------------------


def control_chart(
    model: Any,
    X: ArrayLike | None = None,
    *,
    time: ArrayLike | None = None,
    level: float = 0.95,
    n_features: int = 8,
    ax: Place = None,
) -> Figure:
    """Draw T², SPE and other statistics of rows in order, with their limits, alarms and reasons.

    One panel per statistic: T² and SPE of a model, of a Monitor also MEWMA and what else it
    computes. Limits are those of each row: a step where sensors are missing. Statistics that are
    far beyond their limit have a logarithmic axis. Below are the contributions to the worst
    episode, or to the worst row where there are no episodes.

    Parameters
    ----------
    model : Monitor, Chart, PCA, PPCA, FactorAnalysis or CopulaPPCA
        A fitted model, or the chart that a Monitor returns.
    X : array or frame of shape (n, d), default=None
        Rows in order; None with a Chart, and for the training rows of a Monitor.
    time : array-like of shape (n,), default=None
        Dates or numbers; by default the index of a pandas frame if it holds dates, otherwise the
        number of the row.
    level : float, default=0.95
        Of the limits of a model, T² and SPE together, as in `outliers`. A Monitor has its own.
    n_features : int, default=8
        Number of contributions, the largest.
    ax : sequence of Axes, Figure or SubFigure, default=None
        Where to draw: an axes for each statistic, and one more for the contributions, which are
        left out without it; or a figure for all. By default a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        Rows above a limit are dots, and rows without any value are gaps. Of more than 3,000 rows
        the lines show the extremes of every stretch; all rows above a limit are drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 1)) + 0.1 * rng.normal(size=(300, 4))
    >>> X[200:250, 2] += 0.5
    >>> figure = control_chart(PPCA(1).fit(X[:150]), X)
    >>> [ax.get_ylabel() for ax in figure.axes[:2]]
    ['T²', 'SPE']
    """
    found = _watched("control_chart", model, X, time, level)
    reason = _reason(found, n_features)
    count = len(found.statistics)
    several = (count + 1, count) if reason else (count,)
    heights = [TALL if count <= 5 else LESS_TALL] * count
    heights += [0.85 + 0.23 * len(reason.names)] if reason else []
    sheet = canvas(ax, 0.8 + sum(heights), _stack(count, heights), count=several, width=WIDE)
    times = _times(sheet.axes[:count], found.time, found.n, found.first)
    style = found.line()
    for one, name in zip(sheet.axes, found.statistics, strict=False):
        _panel(one, sheet.ink, found, times, name, style)
        _episodes(one, sheet.ink, found, times, reason)
    _label_time(sheet.axes[:count], times)
    sheet.figure.align_ylabels(sheet.axes[:count])
    _key(sheet, found)
    if reason and len(sheet.axes) > count:
        _draw_reason(sheet.axes[count], sheet.ink, reason, found, times)
    return sheet.figure


@dataclass(frozen=True)
class _Reason:
    """The worst episode or row, and what contributes to it.

    Attributes
    ----------
    rows : pair of int
        First, and one past the last, in rows of the figure.
    episode : Episode or None
    to : str
        The statistic.
    names, parts : list of str and array
        The largest contributions, signed.
    """

    rows: tuple[int, int]
    episode: Any
    to: str
    names: list[str]
    parts: Floats


def _reason(found: _Watched, n_features: int) -> _Reason | None:
    """Return what contributes to the worst episode or row; None where nothing can be said."""
    ratios, seen = found.ratios(), found.seen()
    if found.contributions is None or not ratios.size or not ratios.max() > 0:
        return None
    k, row = np.unravel_index(int(np.argmax(ratios)), ratios.shape)
    to, episode = list(found.statistics)[int(k)], None
    start, end = int(row), int(row) + 1
    if seen:
        episode = max(seen, key=lambda one: float(one.peak))
        start, end = found.span(episode)
    parts = found.contributions(start, end, to)
    known = ~np.isnan(parts)
    mean = np.where(known, parts, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    observed = np.flatnonzero(known.any(axis=0))
    shown = observed[np.argsort(-np.abs(mean[observed]), kind="stable")][:n_features]
    return _Reason((start, end), episode, to, [found.names[j] for j in shown], mean[shown])


def _stack(count: int, heights: list[float]) -> Callable[[FigureBase], list[Axes]]:
    """Return a function that adds panels below one another, the first of which share the time."""

    def make(region: FigureBase) -> list[Axes]:
        axes: list[Axes] = list(
            region.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        )
        for one in axes[1:count]:
            one.sharex(axes[0])
        for one in axes[: count - 1]:
            one.tick_params(labelbottom=False)
        return axes

    return make


def _panel(ax: Axes, ink: Ink, found: _Watched, times: _Times, name: str, style: Any) -> None:
    """Draw one statistic with its limits, and mark the rows above them."""
    values, limits = found.statistics[name], found.limits[name]
    kept = thinned(values)
    pauses = np.searchsorted(kept, times.pauses, side="right")
    line = (np.insert(part[kept], pauses, np.nan) for part in (times.at, values))
    ax.plot(*line, color=ink.blue, lw=0.9, zorder=2.5)
    dots = ~np.isnan(values) if found.n <= DOTS else _alone(values)
    ax.plot(times.at[dots], values[dots], ".", ms=4, color=ink.blue, zorder=3)
    turns = _changes(limits)
    turns = turns[thinned(limits[turns])]
    ax.step(times.at[turns], limits[turns], where="mid", color=ink.muted, lw=1.1, ls=style)
    above = values > limits
    size = 4.5 if above.sum() <= DOTS else 3.0
    ax.plot(times.at[above], values[above], "o", ms=size, color=ink.vermilion, mew=0, zorder=4)
    _scale(ax, values, limits)
    ax.set_ylabel(_called(name).replace(" ", "\n", 1))


def _alone(values: Floats) -> Mask:
    """Return which values have gaps on both sides, where a line shows nothing."""
    missing = np.concatenate([[True], np.isnan(values), [True]])
    return np.asarray(~missing[1:-1] & missing[:-2] & missing[2:])


def _scale(ax: Axes, values: Floats, limits: Floats) -> None:
    """Choose a logarithmic axis where some value is far out, and make room for the limits."""
    known, bounds = values[~np.isnan(values)], limits[~np.isnan(limits)]
    limit = float(np.median(bounds)) if bounds.size else 0.0
    top = max(known.max(initial=0.0), bounds.max(initial=0.0)) or 1.0
    if limit > 0 and known.max(initial=0.0) > FAR * limit:
        low = max(known[known > 0].min(), 0.02 * limit)
        ax.set(yscale="log", ylim=(0.8 * low, 1.8 * top))
    else:
        ax.set_ylim(0.0, 1.12 * top)


def _episodes(ax: Axes, ink: Ink, found: _Watched, times: _Times, reason: _Reason | None) -> None:
    """Shade episodes, the worst most; a line marks the worst row where there are none."""
    worst = reason.rows if reason else None
    spans = {found.span(one) for one in found.seen()}
    for some, fill in ((spans - {worst}, FILL), (spans & {worst}, FILL_WORST)):
        ranges = [(times.left[a], times.right[b - 1] - times.left[a]) for a, b in sorted(some)]
        if ranges:
            place: Any = {"transform": ax.get_xaxis_transform(), "zorder": 1, "lw": 0.8}
            ax.broken_barh(ranges, (0, 1), color=ink.vermilion, alpha=fill, **place)
    if worst and not spans:
        ax.axvline(times.at[worst[0]], color=ink.muted, lw=0.8, ls=":", zorder=1)
    ax.set_xlim(*_reach(times))


def _reach(times: _Times) -> tuple[float, float]:
    """Return the ends of the horizontal axis, with a little room."""
    low, high = float(times.left[0]), float(times.right[-1])
    room = 0.01 * (high - low)
    return low - room, high + room


def _label_time(axes: Sequence[Axes], times: _Times) -> None:
    """Name the horizontal axis, once for all panels that share it."""
    last = axes[-1]
    for ax in axes:
        if ax is last or not ax.get_shared_x_axes().joined(ax, last):
            ax.set_xlabel(times.word)


def _key(sheet: Sheet, found: _Watched) -> None:
    """Draw a legend of what occurs."""
    ink = sheet.ink
    marks: list[Any] = [Line2D([], [], color=ink.muted, lw=1.2, ls=found.line())]
    words = [found.limit]
    if np.any(found.ratios() > 1):
        marks, words = [*marks, mark(ink.vermilion)], [*words, "above the limit"]
    if found.seen():
        marks = [*marks, Patch(color=ink.vermilion, alpha=FILL_WORST, lw=0)]
        words = [*words, "episode"]
    sheet.key(marks, words)


def _draw_reason(ax: Axes, ink: Ink, reason: _Reason, found: _Watched, times: _Times) -> None:
    """Draw the contributions to the worst episode or row."""
    draw_bars(ax, ink, reason.parts, reason.names)
    (start, end), to = reason.rows, _called(reason.to)
    numbers = found.first + start, found.first + end - 1
    word = "row " if end - start == 1 else "rows "
    first, last = map(str, numbers)
    if times.moments is not None:
        word = ""
        first, last = _moment(times.moments[start]), _moment(times.moments[end - 1])
    last = _without_day(first, last)
    rows = f"{word}{first}" if end - start == 1 else f"{word}{first} to {last}"
    if reason.episode is None:
        ratio = _short(float(found.ratios().max()))
        title = f"Furthest out: {rows}, {to} {ratio} times its limit"
        ax.set_xlabel(f"contribution to {to}")
    else:
        names = [_called(name) for name in reason.episode.statistics]
        more = [f"{len(names) - MOST} more"] if len(names) > MOST else []
        title = f"Worst episode: {rows}\n{', '.join(names[:MOST] + more)}"
        ax.set_xlabel("mean contribution")
    ax.set_title(title, loc="left", fontsize=SMALL, color=ink.text)
    pair = [mark(ink.vermilion, "s"), mark(ink.blue, "s")]
    words = SIGNS[reason.to] if reason.episode is None and reason.to in SIGNS else SIGNS["spe"]
    legend: Any = {"loc": "lower right", "facecolor": ink.face, "labelcolor": ink.text}
    ax.legend(pair, words, fontsize=SMALL, framealpha=0.8, edgecolor="none", **legend)


MOST = 3
"""Statistics of an episode that are named."""


def _called(name: str) -> str:
    """Return what a statistic is called, or the rule for its last values.

    Examples
    --------
    >>> _called("mewma"), _called("t2 2 of 3")
    ('MEWMA', 'T² 2 of 3')
    """
    word, space, rule = name.partition(" ")
    return WORDS.get(word, word) + space + rule


def _without_day(first: str, last: str) -> str:
    """Return the later of two times without its day, if it is the same.

    Examples
    --------
    >>> _without_day("2026-03-01 06:30", "2026-03-01 07:00"), _without_day("no 3", "no 4")
    ('07:00', 'no 4')
    """
    day = DAY.match(last)
    return last[day.end() :] if day and first.startswith(day[0]) else last


DAY = re.compile(r"\d{4}-\d\d-\d\d ")


def _short(x: float) -> str:
    """Return a number to two digits, without an exponent where it is large.

    Examples
    --------
    >>> _short(2.345), _short(23456.7)
    ('2.3', '23,457')
    """
    return f"{x:.2g}" if x < 100 else f"{x:,.0f}"


# --- contributions over time -------------------------------------------------------------------


def contributions_over_time(
    model: Any,
    X: ArrayLike | None = None,
    *,
    time: ArrayLike | None = None,
    to: str = "spe",
    level: float = 0.95,
    n_features: int = 40,
    ax: Place = None,
) -> Figure:
    """Draw what each sensor contributes at each time, as colours: when a fault began, and where.

    Parameters
    ----------
    model : Monitor, Chart, PCA, PPCA or FactorAnalysis
        A fitted model, or the chart that a Monitor returns.
    X : array or frame of shape (n, d), default=None
        Rows in order; None with a Chart, and for the training rows of a Monitor.
    time : array-like of shape (n,), default=None
        Dates or numbers; by default the index of a pandas frame if it holds dates, otherwise the
        number of the row.
    to : {'spe', 't2'}, default='spe'
        Statistic of a model. A Monitor has contributions of its own.
    level : float, default=0.95
        Of the limits of a model, T² and SPE together, as in `outliers`. A Monitor has its own.
    n_features : int, default=40
        Number of sensors, those with the largest contributions, in the order of the table.
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        Red where a sensor is higher than expected, blue where it is lower, grey where it is
        missing. Rows above a limit are marked along the upper edge. Beyond ordinary contributions
        colours grow with the logarithm, so that large faults do not hide small ones. Of more than
        1,200 rows each column has the largest contributions of several.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 1)) + 0.1 * rng.normal(size=(300, 4))
    >>> X[200:250, 2] += 0.5
    >>> figure = contributions_over_time(PPCA(1).fit(X[:150]), X)
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['x0', 'x1', 'x2', 'x3']
    """
    if to not in NAMES:
        raise ValueError(expected("to", f"one of {list(NAMES)}", to))
    found = _watched("contributions_over_time", model, X, time, level)
    if found.contributions is None:
        need(model, "contributions_over_time", "contributions of features", "contributions")
    parts = found.contributions(0, found.n, to) if found.contributions else np.zeros((0, 0))
    shown = foremost(np.nan_to_num(np.abs(parts)).max(axis=0, initial=0.0), n_features)
    sheet = canvas(ax, 1.2 + max(0.24 * len(shown), 1.0), width=WIDE)
    ax, ink = sheet.ax, sheet.ink
    times = _times([ax], found.time, found.n, found.first)
    edges, cells = _cells(parts[:, shown], times)
    norm = _norm(cells)
    colours = ink.diverging().with_extremes(bad="none")
    lines = np.arange(len(shown) + 1) - 0.5
    image = ax.pcolormesh(edges, lines, cells.T, norm=norm, cmap=colours, rasterized=True)
    _shade_rows(ax, ink, times)
    ax.set_yticks(range(len(shown)), [found.names[j] for j in shown])
    ax.set(xlim=(times.left[0], times.right[-1]), ylim=(len(shown) - 0.5, -0.5))
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.tick_params(axis="y", length=0)
    _label_time([ax], times)
    _alarm_strip(ax, ink, found.alarms, times)
    of_model = not isinstance(model, Chart | Monitor)
    _colour_key(ax, ink, image, f"contribution to {NAMES[to]}" if of_model else "contribution")
    return sheet.figure


ORDINARY = 0.98
"""Share of the contributions whose colours are in proportion."""


def _norm(cells: Floats) -> AsinhNorm:
    """Return a scale of colours, logarithmic beyond what most cells have."""
    sizes = np.abs(cells[np.isfinite(cells) & (cells != 0)])
    usual, reach = (np.quantile(sizes, ORDINARY), sizes.max()) if sizes.size else (1.0, 1.0)
    return AsinhNorm(linear_width=float(usual), vmin=-float(reach), vmax=float(reach))


def _cells(parts: Floats, times: _Times) -> tuple[Floats, Floats]:
    """Return edges (c + 1,) and values (c, d) of columns, some of them pauses without a value."""
    n, width = len(parts), -(-len(parts) // COLUMNS_SHOWN)
    starts = np.arange(0, n, width)
    ends = np.minimum(starts + width, n) - 1
    if width > 1:
        filled = np.where(np.isnan(parts), 0.0, parts)
        low, high = (f.reduceat(filled, starts) for f in (np.minimum, np.maximum))
        seen = np.add.reduceat(~np.isnan(parts), starts, dtype=np.intp) > 0
        parts = np.where(seen, np.where(high >= -low, high, low), np.nan)
    left, right = times.left[starts], times.right[ends]
    pauses = np.flatnonzero(left[1:] - right[:-1] > 1e-6 * (right[-1] - left[0]))
    edges = np.insert(np.append(left, right[-1]), pauses + 1, right[pauses])
    return edges, np.insert(parts, pauses + 1, np.nan, axis=0)


def _shade_rows(ax: Axes, ink: Ink, times: _Times) -> None:
    """Shade the time of rows, so that missing values are told from pauses without any row."""
    starts = np.flatnonzero(np.concatenate([[True], times.left[1:] > times.right[:-1]]))
    ends = np.append(starts[1:], len(times.at)) - 1
    ranges = np.stack([times.left[starts], times.right[ends] - times.left[starts]], axis=1)
    place: Any = {"transform": ax.get_xaxis_transform(), "zorder": 0, "lw": 0}
    ax.broken_barh(ranges.tolist(), (0, 1), color=ink.grid, **place)


def _alarm_strip(ax: Axes, ink: Ink, alarms: Mask, times: _Times) -> None:
    """Mark rows in alarm along the upper edge, in a strip of so many points on the page."""
    turns = np.flatnonzero(np.diff(np.concatenate([[0], alarms.astype(int), [0]])))
    runs = zip(turns[::2], turns[1::2], strict=True)
    ranges = [(times.left[a], times.right[b - 1] - times.left[a]) for a, b in runs]
    if not ranges:
        return
    edge: Any = ax.transAxes
    above = Affine2D().scale(1 / 72) + ax.figure.dpi_scale_trans
    upwards = above + ScaledTranslation(0, 1, edge)
    place: Any = {"transform": blended_transform_factory(ax.transData, upwards), "clip_on": False}
    ax.broken_barh(ranges, (STRIP[0], STRIP[1] - STRIP[0]), color=ink.vermilion, lw=0.6, **place)
    beside: Any = {"xycoords": "axes fraction", "textcoords": "offset points"}
    text = ax.annotate("alarm", (0, 1), (-4, sum(STRIP) / 2), **beside)
    text.set(ha="right", va="center", fontsize=SMALL, color=ink.vermilion)


def _colour_key(ax: Axes, ink: Ink, image: Any, name: str) -> None:
    """Draw a bar of the colours, in units of the contributions."""
    tall = ax.get_window_extent().height / root(ax).dpi
    bar = ax.figure.colorbar(image, ax=ax, pad=0.015, fraction=0.05, aspect=tall / 0.13)
    ticks = np.asarray(image.norm.inverse([0.0, 0.25, 0.5, 0.75, 1.0]), dtype=np.float64)
    words = [_short(abs(tick)) for tick in ticks]
    words[0], words[2], words[-1] = f"{words[0]} lower", "0", f"{words[-1]} higher"
    bar.set_ticks(ticks.tolist(), labels=words)
    bar.minorticks_off()
    bar.set_label(name, color=ink.text, fontsize=SMALL)
    bar.ax.tick_params(labelcolor=ink.text)
    bar.outline.set_visible(False)
