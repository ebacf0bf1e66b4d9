"""Sections on which rows are unusual, and whether the model's intervals can be trusted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from dualpca.app.report import imputed
from dualpca.app.report.data import percent
from dualpca.app.report.figures import (
    BLUE,
    GREY,
    VERMILION,
    Floats,
    Ints,
    Plot,
    axis,
    band,
    histogram,
    labels,
    line,
    log_axis,
    plot,
    points,
    rule,
    said,
    shown,
)
from dualpca.app.report.page import Section, Table
from dualpca.app.report.subject import LeftOut, Subject, need, thinned
from dualpca.estimators.calibrating import quietly, refittable
from dualpca.estimators.conformal import conformal
from dualpca.gaussian.calibration import (
    LEVELS,
    TOLD,
    Calibration,
    Overimputed,
    combined,
    deal,
    gaussian_entries,
)

# --- unusual rows ------------------------------------------------------------------------------

NAMED = 10
"""Rows listed in the table."""
LABELLED = 4
"""Rows labelled in the figure."""
DRAWN = 3000
SLOW = 5000
"""Largest number of rows that are judged if each takes long."""
REASONS = 3
REASONED, VERDICT = 500, 3
"""Unusual rows that are asked for their columns, and columns that the verdict names."""
TAIL = 0.05
"""Share of ordinary rows beyond the limit of the density."""
SAMPLES = 2000
LEFT = 5
"""Folds of rows, each judged by a fit to the others."""
FAR = 2.5
"""Multiple of the expected number of unusual rows that counts as many."""
LEAST = 1e-3
"""Smallest multiple of its limit at which a row is drawn."""


class Judged(NamedTuple):
    """How unusual rows are, in multiples of their limits."""

    inside: Floats  # (n,), along the directions: T²
    beyond: Floats  # (n,), off them: SPE


def unusual(subject: Subject) -> Section:
    """Show which rows are unusual, by the distances or densities that the model has."""
    if hasattr(subject.model, "outliers"):
        return _by_distances(subject)
    if hasattr(subject.model, "novelty_threshold"):
        return _by_novelty(subject)
    if hasattr(subject.model, "score_samples") and hasattr(subject.model, "sample"):
        return _by_density(subject)
    raise LeftOut(f"{subject.kind} has no limits for unusual rows.")


def judged(subject: Subject) -> Judged:
    """Return T² and SPE of every row, in multiples of the row's own limits."""
    found = subject.outliers
    parts = [np.asarray(getattr(found, name)) for name in ("t2", "t2_limit", "spe", "spe_limit")]
    return Judged(_times(*parts[:2]), _times(*parts[2:]))


def _times(values: Floats, limits: Floats) -> Floats:
    """Return values in multiples of limits; 0 where there is no limit."""
    usable = np.isfinite(limits) & (limits > 0)
    return np.where(usable, values / np.where(usable, limits, 1.0), 0.0)


def _by_distances(subject: Subject) -> Section:
    found = judged(subject)
    worst, notes = furthest(np.maximum(*found)), [expected_text(subject, np.maximum(*found))]
    empty = int(np.count_nonzero(np.maximum(*found) == 0))
    if empty:
        rows = "1 row is" if empty == 1 else f"{empty:,} rows are"
        notes.append(f"{rows} empty, and not judged.")
    return Section(
        "Unusual rows",
        "Each row by two distances, each divided by its limit: across, how extreme it is in the "
        "directions that the model knows (T²); upwards, how much of it the model cannot explain "
        f"(SPE). About {percent(1 - subject.level)} of ordinary rows lie beyond one dashed line or "
        "the other.",
        "rows far beyond a line. To the right: extreme, but built like the others. High up: built "
        "differently, often an error in the data or a new kind of case.",
        [distance_map(subject, found, worst), _table(subject, found, worst)],
        notes,
        verdict_of(subject, found),
    )


def named_columns(subject: Subject, found: Judged, rows: Ints) -> list[tuple[str, float]]:
    """Return columns with their shares of the distances of some rows, the largest first.

    Of every row that distance counts which is further beyond its limit. None for models that do
    not tell columns apart.
    """
    if not hasattr(subject.model, "contributions") or not len(rows):
        return []
    total = np.zeros(subject.d)
    beyond = found.beyond[rows] >= found.inside[rows]
    for to, mine in (("spe", rows[beyond]), ("t2", rows[~beyond])):
        if len(mine):
            parts = np.abs(np.nan_to_num(subject.asked("contributions", subject.X[mine], to=to)))
            total += np.sum(parts / np.maximum(parts.sum(axis=1, keepdims=True), 1e-300), axis=0)
    order = np.argsort(-total, kind="stable")
    return [(subject.names[j], float(total[j] / len(rows))) for j in order if total[j] > 0]


def verdict_of(subject: Subject, found: Judged) -> str:
    """Return whether anything is unusual, how many rows, and in which columns, in words."""
    score = np.maximum(*found)
    beyond = np.flatnonzero(score > 1)
    words = flagged_words(len(beyond), subject.n, 1 - subject.level, subject.time is not None)
    worst = beyond[np.argsort(-score[beyond], kind="stable")][:REASONED]
    named = named_columns(subject, found, worst)[:VERDICT]
    if named:
        each = [name for name, share in named if share > 1 / subject.d]
        who = "It stands" if len(beyond) == 1 else "They stand"
        words += f" {who} out mostly in {joined(each)}." if each else ""
    return words


def joined(words: list[str]) -> str:
    """Return words with commas and an 'and'.

    Examples
    --------
    >>> joined(["a"]), joined(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def flagged_words(count: int, n: int, rate: float, timed: bool = False) -> str:
    """Return whether so many of n rows beyond a limit are unusual, in words.

    Examples
    --------
    >>> print(flagged_words(26, 500, 0.05))
    Nothing is unusual: 26 of 500 rows lie beyond a limit, where about 25 are expected by chance.
    >>> print(flagged_words(90, 500, 0.05))
    Many rows are unusual: 90 of 500 lie beyond a limit, where about 25 are expected by chance.
    """
    expected = f"about {said(rate * n, 2)} are expected by chance"
    lie = "lies" if count == 1 else "lie"
    if count > stats.binom.ppf((1 + SURE) / 2, n, rate):
        much = "Many rows" if count > FAR * rate * n else "Some rows"
        return f"{much} are unusual: {count:,} of {n:,} {lie} beyond a limit, where {expected}."
    start = "Row by row nothing is unusual" if timed else "Nothing is unusual"
    return f"{start}: {count:,} of {n:,} rows {lie} beyond a limit, where {expected}."


def furthest(score: Floats) -> Ints:
    """Return the rows furthest beyond a limit."""
    order = np.argsort(-score, kind="stable")[:NAMED]
    return order[score[order] > 1]


def expected_words(count: int, n: int, rate: float) -> str:
    """Return how many rows were found beside how many chance alone would give.

    Examples
    --------
    >>> expected_words(12, 150, 0.05)
    '12 of 150 rows lie beyond a limit, where about 7.5 are expected if all rows are ordinary.'
    """
    lie = "lies" if count == 1 else "lie"
    return (
        f"{count:,} of {n:,} rows {lie} beyond a limit, where about {said(rate * n, 2)} are "
        "expected if all rows are ordinary."
    )


def expected_text(subject: Subject, score: Floats) -> str:
    """Return whether more rows lie beyond a limit than chance explains, in words."""
    flagged, chance = float(np.mean(score > 1)), 1 - subject.level
    luck = 3 * float(np.sqrt(chance * (1 - chance) / subject.n))
    verdict = "about what chance alone explains"
    if flagged > FAR * chance:
        verdict = (
            "far more than chance explains: the model does not fit these rows well, or they hold "
            "several kinds of cases"
        )
    elif abs(flagged - chance) > luck:
        verdict = f"{'more' if flagged > chance else 'fewer'} than chance alone explains"
    return (
        f"Even if every row were ordinary, about {percent(chance)} ({said(chance * subject.n, 2)} "
        f"rows) would lie beyond one limit or the other. Found are {percent(flagged)} "
        f"({int(np.sum(score > 1)):,} rows): {verdict}."
    )


def distance_map(subject: Subject, found: Judged, worst: Ints) -> Plot:
    """Draw both distances of every row against their limits, and label the most unusual."""
    score = np.maximum(*found)
    at = np.union1d(subject.some(DRAWN), worst)
    out = score[at] > 1
    data = _dots(subject, found, at[~out], BLUE, name="ordinary", marker={"symbol": "circle"})
    odd = {"name": "beyond a limit", "marker": {"symbol": "diamond"}}
    data += _dots(subject, found, at[out], VERMILION, **odd)
    count = int(np.sum(score > 1))
    finding = expected_words(count, subject.n, 1 - subject.level)
    if worst.size:
        times = said(score[worst[0]])
        finding += f" Furthest out is row {subject.ids[worst[0]]}, at {times} times its limit."
    x, y = (
        log_axis(f"{name}, in multiples of its limit", np.maximum(part[at], LEAST))
        for name, part in zip(("T²", "SPE"), found, strict=True)
    )
    label = "Scatter plot of T² and SPE of each row, with their limits as dashed lines."
    more = {"shapes": [rule(1, "x"), rule(1, "y")]}
    more["annotations"] = _labels(subject, found, at, worst[:LABELLED])
    return plot(data, x, y, label, finding + thinned(len(at), subject.n), 460, **more)


def _dots(
    subject: Subject, found: Judged, mine: Ints, colour: str, **more: Any
) -> list[dict[str, Any]]:
    """Return the dots of some rows, if there are any."""
    if not mine.size:
        return []
    t2, spe = (np.maximum(part[mine], LEAST) for part in found)
    more["text"] = [shown(subject.ids[i], 40) for i in mine]
    hover = "row %{text}: T² %{x:.2~f}, SPE %{y:.2~f} times its limit<extra></extra>"
    return [points(t2, spe, colour, hovertemplate=hover, **more)]


def _labels(subject: Subject, found: Judged, at: Ints, worst: Ints) -> list[dict[str, Any]]:
    """Return the names of rows next to their dots; places on logarithmic axes are exponents."""
    places = np.log10(np.maximum(np.stack(found, axis=1), LEAST))
    span = np.ptp(places[at], axis=0)
    middle = places[at].mean(axis=0)
    side = ["left" if places[i, 0] > middle[0] else "right" for i in worst]
    return labels(places[worst], [subject.ids[i] for i in worst], span, side, 14)


def _table(subject: Subject, found: Judged, worst: Ints) -> Table:
    rows = []
    for i in worst:
        to = "spe" if found.beyond[i] >= found.inside[i] else "t2"
        why = _reasons(subject, int(i), to)
        times = [f"{part[i]:.2f}" for part in found]
        rows.append([subject.ids[i], *times, why])
    header = ("row", "T² / limit", "SPE / limit", "because of")
    caption = (
        f"The {len(rows)} most unusual rows, and the columns that make them so: the measured "
        "value, what it is compared with, and the column's share of the distance"
    )
    return Table(
        header, rows or [["none", "", "", "no row lies beyond a limit"]], caption, words=True
    )


def _reasons(subject: Subject, i: int, to: str) -> str:
    """Return the columns that contribute most to a row's distance, and in which direction.

    Each with its measured value, what the model expected (SPE) or the average (T²), and its share
    of the distance.
    """
    parts = subject.asked("contributions", subject.X[[i]], to=to, signed=True)[0]
    beside = subject.centre
    if to == "spe" and hasattr(subject.model, "reconstruct"):
        beside = subject.asked("reconstruct", subject.X[[i]])[0]
    word = "expected" if to == "spe" else "average"
    total = float(np.abs(parts).sum()) or 1.0
    order = np.argsort(-np.abs(parts), kind="stable")[:REASONS]
    shares = [(j, abs(parts[j]) / total) for j in order if abs(parts[j]) > 0.1 * total]
    way = ("higher", "lower") if to == "spe" else ("high", "low")
    return ", ".join(
        f"{subject.names[j]} {way[0] if parts[j] > 0 else way[1]} "
        f"({said(subject.X[i, j], 4)}, {word} {said(beside[j], 3)}; {100 * share:.0f} %)"
        for j, share in shares
    )


def _by_novelty(subject: Subject) -> Section:
    at = subject.some(SLOW, salt=5)
    score = subject.asked("novelty", subject.X[at])
    limit = float(subject.model.novelty_threshold(subject.level))
    words = (
        "The distance of each row from the part of the kernel space that the model keeps (its "
        f"novelty). {percent(subject.level)} of new rows like those it was fitted to lie below "
        "the dashed line."
    )
    return _by_one(subject, at, score, limit, "novelty", words, 1 - subject.level)


def _by_density(subject: Subject) -> Section:
    if not subject.complete:
        raise LeftOut("densities of rows with different missing entries cannot be compared.")
    at = subject.some(ROWS, salt=5)
    improbable, limit = left_out_densities(subject, at)
    words = (
        "How improbable each row is (minus its log-density) under the model fitted without it. Of "
        f"ordinary rows {percent(TAIL)} lie beyond the dashed line: rows that the model invents "
        "are beyond it that often, under models fitted to as many invented rows."
    )
    return _by_one(subject, at, improbable, limit, "improbability", words, TAIL)


def left_out_densities(subject: Subject, at: Ints) -> tuple[Floats, float]:
    """Return minus the log-density of rows under fits without them, and its limit.

    Rows that have fitted a model are too probable under it, and under a model of few rows all new
    ones are less probable than the model says; so the limit is that of new rows to refits as well.
    """

    def improbability(model: Any, rows: Any) -> Floats:
        return -np.asarray(model.score_samples(rows), dtype=np.float64)

    fresh, X = refittable(subject.model), subject.X[at]
    seed: dict[str, Any] = {"random_state": subject.seed, "level": 0.5}
    found = conformal(fresh, subject.rows(X), folds=LEFT, novelty=improbability, **seed).scores
    size = len(at) - len(at) // LEFT
    drawn = subject.sampled(LEFT * size + SAMPLES)
    parts, new = np.split(drawn, [LEFT * size])
    ordinary = []
    for some, asked in zip(np.split(parts, LEFT), np.array_split(new, LEFT), strict=True):
        with quietly():
            again = fresh.fit(subject.rows(some))
        ordinary.append(improbability(again, subject.rows(asked)))
    return found, float(np.quantile(np.concatenate(ordinary), 1 - TAIL))


def _by_one(
    subject: Subject, at: Ints, score: Floats, limit: float, name: str, words: str, rate: float
) -> Section:
    """Show one distance with its limit: a histogram, and the most unusual rows."""
    order = np.argsort(-score, kind="stable")[:NAMED]
    order = order[score[order] > limit]
    beyond = int(np.sum(score > limit))
    finding = expected_words(beyond, len(at), rate) + f" The limit is {said(limit)}."
    if order.size:
        finding += f" Furthest out is row {subject.ids[at[order[0]]]} at {said(score[order[0]])}."
    finding += thinned(len(at), subject.n)
    drawn = histogram(score, min(60, max(10, len(at) // 10)), limit)
    label = f"Histogram of the {name} of each row, with the limit as a dashed line."
    more: dict[str, Any] = {"shapes": [rule(limit, "x", GREY)], "bargap": 0.04}
    figure = plot([drawn], axis(name), axis("rows"), label, finding, 380, **more)
    rows = [[subject.ids[at[i]], f"{said(score[i], 4)}", _away(subject, int(at[i]))] for i in order]
    rows = rows or [["none", "", "no row lies beyond the limit"]]
    caption = f"The {len(order)} most unusual rows"
    table = Table(("row", name, "furthest from the average in"), rows, caption, words=True)
    look = "rows far to the right of the dashed line: errors in the data, or a new kind of case."
    verdict = flagged_words(beyond, len(at), rate)
    return Section("Unusual rows", words, look, [figure, table], (), verdict)


def _away(subject: Subject, i: int) -> str:
    """Return the columns in which a row is furthest from the average, with measured values."""
    away = np.nan_to_num((subject.X[i] - subject.centre) / subject.spread)
    order = np.argsort(-np.abs(away), kind="stable")[:REASONS]
    return ", ".join(
        f"{subject.names[j]} ({said(subject.X[i, j], 4)}, average {said(subject.centre[j])}; "
        + f"{away[j]:+.1f} sd)".replace("-", "−")
        for j in order
        if away[j]
    )


# --- intervals ---------------------------------------------------------------------------------

FOLDS = 10
"""To which the known entries are dealt; a fold is hidden at a time."""
ROWS = 1000
ROUNDS, SMALL = 3, 20_000
"""Folds that are hidden in turn in a table of at most so many entries; one in larger ones."""
COLUMNS, FOLD = 40, 20
"""Columns that are listed, and above how many the list is folded."""
ENOUGH, SURE = 10, 0.99
"""Fewest hidden entries of a column that are judged, and how sure a verdict is."""
ODD = 0.3
"""Share of the levels that may leave the band, which is valid for one level at a time."""
FEWEST = 30
"""Smallest number of hidden entries from which conclusions are drawn."""


def calibrated(subject: Subject) -> Section:
    """Hide known entries, fill them, and count how often intervals contain the true values."""
    need(subject, "impute", "has no intervals for missing entries")
    if subject.d < 2:
        raise LeftOut("with one column there is nothing to fill an entry from.")
    found = measured(subject)
    rounds = "" if found.rounds == 1 else f", {found.rounds} times over"
    return Section(
        "Can its intervals be trusted?",
        f"Entries whose values are known were hidden (about {percent(1 / FOLDS)}{rounds}: "
        f"{found.calibration.n_hidden:,} in all), the model was fitted to the rest and asked to "
        "fill them, each with an interval. The dots show how many true values lay inside the "
        "intervals, for intervals of every width; the table counts them for each column.",
        "dots on the line: then a 90 % interval contains the true value in 90 % of cases. Below "
        "the line the model is overconfident, above it too cautious.",
        [
            _figure(subject, found.calibration),
            *imputed.predicted(subject, found.over, TOLD),
            *_by_column(subject, found),
        ],
        [_error_words(found.error, found.plain)],
        "" if subject.complete else _filled_words(found),
    )


def _filled_words(found: Measured) -> str:
    """Return how well missing entries can be filled, in a sentence."""
    k = int(np.argmin(np.abs(found.calibration.levels - TOLD)))
    held = percent(float(found.calibration.coverage[k]))
    gain = 1 - found.error / found.plain if found.plain else 0.0
    better = f"{percent(gain)} closer than column averages"
    better = better if gain > 0 else "no closer than column averages"
    return (
        f"Known entries that were hidden are filled to within {found.error:.2f} standard "
        f"deviations, {better}, and {percent(TOLD)} intervals contain {held} of them."
    )


class Measured(NamedTuple):
    """How well hidden entries were filled."""

    calibration: Calibration
    error: float  # of the model, root mean square in standard deviations of the columns
    plain: float  # of column averages, likewise
    inside: Ints  # (d,), how many entries of each column lay inside intervals of level TOLD
    off: Floats  # (d,), root mean squared error of each column, in its own units; NaN if none

    @property
    def rounds(self) -> int:
        """How many times entries were hidden."""
        return self.calibration.n_folds

    @property
    def hidden(self) -> Ints:
        """How many entries of each column were hidden, (d,)."""
        return self.calibration.hidden_by_column

    @property
    def over(self) -> Overimputed:
        """The hidden entries, with intervals of level TOLD."""
        return self.calibration.entries


def measured(subject: Subject) -> Measured:
    """Hide known entries, in a few folds if the table is small; refit, fill and compare."""
    X = subject.X[subject.some(ROWS, salt=6)]
    masks = deal(X, FOLDS, np.random.default_rng([subject.seed, 6]))
    masks = masks[: ROUNDS if X.size <= SMALL else 1]
    if not masks or masks[0].sum() < FEWEST:
        raise LeftOut(f"too few entries to hide: {int(masks[0].sum()) if masks else 0}.")
    parts, averages = [], []
    for mask in masks:
        partial = np.where(mask, np.nan, X)
        again = subject.refitted(partial, n_init=1, random_state=subject.seed)
        mean, std = again.asked("impute", partial, return_std=True)
        parts.append(gaussian_entries(X, mean, std, mask))
        averages.append(np.nanmean(partial, axis=0)[parts[-1].column])
    over, d = combined(parts), subject.d
    found = Calibration(np.array(LEVELS), over, None, subject.names, len(X), len(masks))
    spread = np.asarray(subject.spread)[over.column]
    error, plain = (
        float(np.sqrt(np.mean(np.square((over.truth - guess) / spread))))
        for guess in (over.guess, np.concatenate(averages))
    )
    within = (over.low <= over.truth) & (over.truth <= over.high)
    inside = np.bincount(over.column[within], minlength=d)
    squares = np.bincount(over.column, np.square(over.truth - over.guess), d)
    with np.errstate(invalid="ignore"):
        off = np.sqrt(squares / found.hidden_by_column)
    return Measured(found, error, plain, inside, off)


def _by_column(subject: Subject, found: Measured) -> list[Table]:
    """Count for each column how many true values lay inside the intervals."""
    if subject.image or subject.curve:
        return []
    share = np.where(found.hidden > 0, found.inside / np.maximum(found.hidden, 1), np.inf)
    order = np.argsort(share, kind="stable")[:COLUMNS]
    rows = [
        [
            subject.names[j],
            f"{found.hidden[j]:,}",
            percent(float(share[j])) if found.hidden[j] else "–",
            f"{said(found.off[j])} ({found.off[j] / subject.spread[j]:.2f} sd)"
            if found.hidden[j]
            else "–",
            judgement(int(found.inside[j]), int(found.hidden[j])),
        ]
        for j in order
    ]
    cut = f" (the {COLUMNS} lowest of {subject.d:,})" if subject.d > COLUMNS else ""
    caption = (
        f"Each column{cut}, the lowest share first: hidden entries, how many of them lay inside "
        f"{percent(TOLD)} intervals, and how far off filled values are, in the column's own units "
        "and in its standard deviations (sd)"
    )
    header = ("column", "hidden", f"inside {percent(TOLD)}", "typical error", "intervals")
    return [Table(header, rows, caption, folded=len(rows) > FOLD)]


def judgement(inside: int, hidden: int) -> str:
    """Return whether a column's intervals contain as many values as they promise.

    Examples
    --------
    >>> judgement(90, 100), judgement(70, 100), judgement(100, 100), judgement(3, 4)
    ('within chance', 'too narrow', 'too wide', 'too few to tell')
    """
    if hidden < ENOUGH:
        return "too few to tell"
    rare = (1 - SURE) / 2
    if stats.binom.cdf(inside, hidden, TOLD) < rare:
        return "too narrow"
    return "too wide" if stats.binom.sf(inside - 1, hidden, TOLD) < rare else "within chance"


def _figure(subject: Subject, found: Calibration) -> Plot:
    traces = band(found.levels, found.low, found.high, GREY)
    traces.append(line([0, 1], [0, 1], GREY))
    dots = points(found.levels, found.coverage, BLUE, marker={"size": 9, "opacity": 1})
    dots["mode"] = "lines+markers"
    dots["hovertemplate"] = "%{x:.0%} intervals contained %{y:.1%}<extra></extra>"
    traces.append(dots | {"showlegend": False})
    i = int(np.argmin(np.abs(found.levels - TOLD)))
    held = float(found.coverage[i])
    finding = (
        f"Intervals of {percent(TOLD)} contained {percent(held)} of the hidden values; overall the "
        f"model is {verdict(found)}. The grey band is what chance explains."
    )
    if len(subject.some(ROWS, salt=6)) < subject.n:
        finding += f" {ROWS:,} of the {subject.n:,} rows were used."
    x = axis("nominal level of the interval", range=[0, 1.02], tickformat=".0%")
    y = axis("true values inside", range=[0, 1.02], tickformat=".0%")
    label = "Line of the share of hidden values inside intervals, against the nominal level."
    return plot(traces, x, y, label, finding, 420)


def verdict(found: Calibration) -> str:
    """Return whether intervals are too narrow or too wide, by how many levels leave the band."""
    above, below = np.mean(found.coverage > found.high), np.mean(found.coverage < found.low)
    if max(above, below) < ODD:
        return "as confident as it should be"
    if min(above, below) >= ODD / 2:
        return "too cautious for most entries and overconfident for a few, which are far off"
    return "too cautious: its intervals are wide" if above > below else "overconfident"


def _error_words(error: float, plain: float) -> str:
    gain = 1 - error / plain if plain else 0.0
    if gain <= 0:
        return (
            f"The filled values themselves are off by {error:.2f} standard deviations of their "
            "columns, no better than filling with column averages."
        )
    return (
        f"The filled values themselves are off by {error:.2f} standard deviations of their "
        f"columns; filling with column averages would be off by {plain:.2f}, so the model is "
        f"{percent(gain)} closer."
    )
