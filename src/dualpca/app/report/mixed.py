"""Sections of the report on a model of columns of any kind: numbers, grades, categories, bounds."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dualpca.app.report import beside, data, imputed, places, through_time, trust
from dualpca.app.report.data import counted, percent
from dualpca.app.report.directions import ARROWS, REACH, Loadings, drawn_arrow, drawn_loadings
from dualpca.app.report.figures import (
    BLUE,
    GREY,
    PALETTE,
    SYMBOLS,
    VERMILION,
    Floats,
    Ints,
    Plot,
    axis,
    bars,
    labels,
    named_axis,
    number,
    numbers,
    plot,
    points,
    rule,
    said,
    shown,
    shown_all,
)
from dualpca.app.report.page import Part, Section, Several, Table
from dualpca.app.report.subject import LeftOut, MixedSubject, thinned
from dualpca.app.tables.columns import plain
from dualpca.gaussian.calibration import Overimputed, combined, deal

# --- what the columns hold ---------------------------------------------------------------------

PICTURES = 12
"""Columns whose values are drawn."""
COLUMNS = 40
"""Columns listed in a table."""
BINS = 24
FEW = 12
"""Values up to which each has a bar of its own."""
TOLD = 4
"""Levels that are named in a table."""
MEANINGS = {
    "continuous": "numbers; only their order counts",
    "count": "whole numbers from a count, with many of the same",
    "ordinal": "levels with an order, whose distances mean nothing",
    "nominal": "levels without an order; each has loadings of its own",
    "binary": "one of two levels",
    "censored": "numbers, of some of which only a bound is known",
}
"""What the kinds mean."""


def overview(subject: MixedSubject) -> Section:
    """Show what kinds of columns there are, and what they hold."""
    text = [
        f"{kind.capitalize()}: {meaning} ({_listed(subject, kind)})."
        for kind, meaning in MEANINGS.items()
        if any(one.startswith(kind) for one in subject.kinds)
    ]
    if subject.aside:
        text.append(f"Columns that the model does not use: {', '.join(subject.aside)}.")
    drawn = [_values(subject, j) for j in range(min(subject.d, PICTURES))]
    return Section(
        "What the data is",
        f"The table the report is about: {subject.n:,} rows (cases) and {subject.d:,} columns of "
        "different kinds. The kind says what the model makes of a column.",
        "columns of the wrong kind (a code that is no number, grades without their order), "
        "implausible values, and levels that mean the same.",
        [Several(drawn), _kinds(subject)],
        text,
    )


def _listed(subject: MixedSubject, kind: str, most: int = 10) -> str:
    pairs = zip(subject.names, subject.kinds, strict=True)
    names = [name for name, one in pairs if one.startswith(kind)]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if names[most:] else "")


def _counts(subject: MixedSubject, j: int) -> tuple[list[str], Ints]:
    """Return the values of a column in order, and how often each occurs; bounds apart."""
    known = subject.X[~subject.missing[:, j] & ~subject.bounded[:, j], j]
    values, counts = np.unique(known, return_counts=True)
    if subject.levels[j]:
        every = np.arange(len(subject.levels[j]))
        counts = np.array([int(np.sum(known == k)) for k in every])
        return list(subject.levels[j]), counts
    return [said(value, 4) for value in values], counts


def _values(subject: MixedSubject, j: int) -> Plot:
    """Draw how often the values of a column occur."""
    names, counts = _counts(subject, j)
    title = f"{shown(subject.titled(j))} ({subject.kinds[j]})"
    label = f"Bars: how often the values of {subject.names[j]} occur."
    bound = int(subject.bounded[:, j].sum())
    x: dict[str, Any] = axis(title, type="category")
    if len(names) <= FEW or subject.levels[j]:
        most = np.argsort(-counts, kind="stable")[:FEW]
        kept = [k for k in range(len(names)) if k in most]
        text = [shown(names[k], 14) for k in kept]
        trace = bars([0] * len(kept), counts[kept], "%{x}: %{y} rows") | {"x": text}
    else:
        known = subject.X[~subject.missing[:, j] & ~subject.bounded[:, j], j]
        counts, edges = np.histogram(known, bins=min(BINS, len(names)))
        middle = (edges[1:] + edges[:-1]) / 2
        trace, x = bars(middle, counts, "around %{x:.3~g}: %{y} rows"), axis(title)
    words = _held(subject, j) + (f"; bounds: {_bounds(subject, j)}" if bound else "") + "."
    return plot([trace], x, axis("rows"), label, words, 210, bargap=0.08)


def _held(subject: MixedSubject, j: int) -> str:
    """Return what a column holds in words: a range, or the most frequent levels."""
    names, counts = _counts(subject, j)
    if not counts.sum():
        return "no entries"
    few = subject.kinds[j].startswith(("binary", "ordinal")) and 1 < len(names) <= FEW
    if subject.levels[j] or few:
        order = np.argsort(-counts, kind="stable")
        parts = [f"{names[k]} {percent(counts[k] / counts.sum())}" for k in order[:TOLD]]
        return ", ".join(parts) + (f" and {len(names) - TOLD} more" if len(names) > TOLD else "")
    known = subject.X[~subject.missing[:, j] & ~subject.bounded[:, j], j]
    low, middle, high = np.quantile(known, [0, 0.5, 1])
    if low == high:
        return f"always {said(low, 4)}"
    return f"{said(low, 4)} to {said(high, 4)}, half below {said(middle, 4)}"


def _bounds(subject: MixedSubject, j: int) -> str:
    """Return the bounds of a column and how often each occurs: <5 (98), >200 (3)."""
    column = subject.table[:, j]
    if column.dtype != pl.String:
        return f"{int(subject.bounded[:, j].sum()):,}"
    found = column.filter(pl.Series(subject.bounded[:, j])).value_counts(sort=True)
    parts = [f"{text} ({count:,})" for text, count in found.head(TOLD).iter_rows()]
    return ", ".join(parts) + (", …" if found.height > TOLD else "")


def _kinds(subject: MixedSubject) -> Table:
    rows = []
    for j in range(min(subject.d, COLUMNS)):
        gaps, bound = int(subject.missing[:, j].sum()), int(subject.bounded[:, j].sum())
        missing = f"{gaps:,} ({percent(gaps / subject.n)})" if gaps else "none"
        held = _held(subject, j) + (f"; bounds: {_bounds(subject, j)}" if bound else "")
        rows.append([subject.titled(j), subject.kinds[j], missing, held])
    cut = f" (the first {COLUMNS} of {subject.d:,})" if subject.d > COLUMNS else ""
    caption = f"Every column{cut}: its kind, missing entries, and what it holds"
    header = ("column", "kind", "missing", "what it holds")
    return Table(header, rows, caption, words=True)


def missing(subject: MixedSubject) -> Section:
    """Show where entries are missing."""
    found = data.missing(subject)
    bound = subject.bounded.sum(axis=0)
    if not bound.any():
        return found
    names = ", ".join(f"{subject.names[j]} ({bound[j]:,})" for j in np.flatnonzero(bound))
    words = f"Entries of which a bound is known, such as <5, count as known here: {names}."
    return Section(found.title, found.shows, found.look, found.parts, [*found.text, words])


# --- how many directions -----------------------------------------------------------------------


def chosen(subject: MixedSubject) -> Section:
    """Draw how well every number of components predicts hidden entries."""
    curve = getattr(subject.model, "selection_", None)
    if curve is None:
        raise LeftOut(f"the number of components, {subject.q}, was given, not chosen.")
    q = np.asarray(curve.candidates)
    value, error = np.asarray(curve.loglikelihood), np.asarray(curve.loglikelihood_error)
    bar = {"type": "data", "array": numbers(2 * error), "thickness": 1.4, "width": 3}
    hover = "%{x} directions: %{y:.4~f}<extra></extra>"
    more: dict[str, Any] = {"error_y": bar, "mode": "lines+markers", "hovertemplate": hover}
    traces = [points(q, value, BLUE, marker={"size": 8, "opacity": 1}, **more)]
    best = q[int(np.nanargmax(value))]
    words = f"The model keeps {counted(subject.q, 'direction')}"
    if best != subject.q:
        words += f"; {best} predict best, but not clearly better"
    finding = f"{words}. The bars are two standard errors on either side."
    x = axis("number of directions", dtick=1 if len(q) <= 20 else 5)
    y = axis("log-probability of a hidden entry")
    label = "Line: how probable hidden entries are under each number of directions."
    return Section(
        "How many directions matter",
        "Some known entries were hidden, and each number of directions was judged by how probable "
        "it found them (cross-validation). 0 directions would mean that columns have nothing to do "
        "with each other.",
        "where the line stops rising: more directions describe these rows, not others like them.",
        [plot(traces, x, y, label, finding, 340, shapes=[rule(subject.q, "x", GREY, "dot")])],
    )


# --- what the directions are made of -----------------------------------------------------------


def _named(subject: MixedSubject) -> list[str]:
    """Return the names of the loadings: columns, and the levels of nominal ones."""
    return [str(name).replace("=", " = ", 1) for name in subject.model.loading_names_]


def directions(subject: MixedSubject) -> Section:
    """Draw what the first directions are made of; a level of a nominal column has its own line."""
    if subject.q == 0:
        raise LeftOut("the model keeps no direction.")
    W = _scaled(subject)
    found = Loadings(W, np.full_like(W, np.nan), "")
    return Section(
        "What the directions are made of",
        "A direction is a mixture of columns. Behind every column stands a hidden scale on which "
        "its values are normally distributed, with a standard deviation of 1; a loading says how "
        "much a column moves on that scale when a row moves by one standard deviation along the "
        "direction. A nominal column has no order, so each of its levels has loadings: the level "
        "gets more likely as a row moves that way.",
        "the largest loadings: they give a direction its meaning. Columns with loadings of the "
        "same sign rise together. A binary column is named with the level that its loading is of.",
        [drawn_loadings(_named(subject), found, "loading, on the column's hidden scale")],
        _orders(subject),
    )


def _scaled(subject: MixedSubject) -> Floats:
    """Return loadings (D, q) on scales of variance 1, those of levels too: w / √(‖w‖² + 1).

    The hidden scale of a level has noise of variance 1, whatever its loadings are.
    """
    W = np.asarray(subject.model.loadings_, dtype=np.float64)
    size = np.sqrt(1 + np.sum(W**2, axis=1, keepdims=True))
    return np.where(_of_levels(subject)[:, None], W / size, W)


def _orders(subject: MixedSubject) -> list[str]:
    """Return the order of ordinal columns of text, in words."""
    pairs = zip(subject.names, subject.kinds, subject.levels, strict=True)
    found = [f"{n}: {' < '.join(known)}" for n, kind, known in pairs if kind == "ordinal" and known]
    return [f"Order of ordinal columns: {'; '.join(found)}."] if found else []


def _of_levels(subject: MixedSubject) -> Any:
    """Return which loadings are of levels of nominal columns, (D,)."""
    found: list[bool] = []
    for name, kind in zip(subject.model.column_kinds_, subject.kinds, strict=True):
        found += [True] * len(subject.model.levels_[name]) if kind == "nominal" else [False]
    return np.array(found)


SHOWN = 30
"""Columns in the picture of correlations."""
WRITTEN = 14
"""Columns up to which the correlations are written into it."""


def correlations(subject: MixedSubject) -> Section:
    """Draw the correlations of the hidden scales."""
    C = np.asarray(subject.model.correlation_, dtype=np.float64)
    pairs = list(zip(subject.names, subject.kinds, strict=True))
    names = [name for name, kind in pairs if kind != "nominal"]
    if len(names) < 2:
        raise LeftOut("it needs two columns with an order.")
    order = _ordered(C)[:SHOWN]
    C, names = C[np.ix_(order, order)], [names[k] for k in order]
    at, text = list(range(len(names))), shown_all(names, 18)
    values = [[number(value, 2) for value in row] for row in C]
    cells: dict[str, Any] = {
        "type": "heatmap",
        "z": values,
        "x": at,
        "y": at,
        "zmin": -1,
        "zmax": 1,
    }
    cells |= {"colorscale": DIVERGING, "colorbar": {"thickness": 12, "len": 0.9, "dtick": 0.5}}
    cells |= {"text": [[f"{a} and {b}" for b in text] for a in text], "xgap": 1, "ygap": 1}
    cells["hovertemplate"] = "%{text}: %{z:.2f}<extra></extra>"
    marks = []
    if len(names) <= WRITTEN:
        marks = [_written(i, j, C[i, j]) for i in at for j in at if i != j]
    across = axis(tickangle=-45, showgrid=False) | {"tickvals": at, "ticktext": text}
    down = named_axis(names) | {"ticktext": text}
    height = 170 + max(26 * len(names), 200)
    label = "Heat map of the correlations of the columns on their hidden scales."
    drawn = plot([cells], across, down, label, _pairs(C, names), height, annotations=marks)
    nominal = [n for n, kind in zip(subject.names, subject.kinds, strict=True) if kind == "nominal"]
    text_ = []
    if nominal:
        some = ", ".join(nominal[:5]) + (", …" if nominal[5:] else "")
        text_ = [f"Nominal columns have no order, and so no correlation: {some}."]
    return Section(
        "Which columns go together",
        "The correlation of every two columns on the hidden scales behind them (latent "
        "correlations), as the model sees them: it does not depend on units, on how values are "
        "distributed, or on how many levels a grade has.",
        "dark cells away from the diagonal. Blue: one falls as the other rises.",
        [replace(drawn, crowded=True)],
        text_,
    )


DIVERGING = [[0, "#004e94"], [0.5, "#f4f0ec"], [1, "#a03408"]]


def _written(i: int, j: int, value: float) -> dict[str, Any]:
    """Return a number inside of a cell, readable on its colour."""
    colour = "#ffffff" if abs(value) > 0.55 else "#1f2430"
    words = f"{value:.2f}".replace("-", "−")
    font = f'<span style="color:{colour};fill:{colour}">{words}</span>'
    return {"x": j, "y": i, "text": font, "showarrow": False, "font": {"size": 11, "color": colour}}


def _ordered(C: Floats) -> Ints:
    """Return columns in an order in which those that go together are neighbours."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    if len(C) < 3:
        return np.arange(len(C))
    apart = np.clip(1 - np.abs((C + C.T) / 2), 0, None)
    np.fill_diagonal(apart, 0)
    tree = linkage(squareform(apart, checks=False), "average", optimal_ordering=True)
    return np.asarray(leaves_list(tree))


def _pairs(C: Floats, names: list[str], most: int = 3) -> str:
    """Return which columns are most correlated, in words."""
    i, j = np.triu_indices(len(C), 1)
    order = np.argsort(-np.abs(C[i, j]), kind="stable")[:most]
    parts = [
        f"{names[i[k]]} and {names[j[k]]} ({C[i[k], j[k]]:.2f})".replace("-", "−") for k in order
    ]
    return f"Most correlated are {', '.join(parts)}."


def biplot(subject: MixedSubject) -> Section:
    """Draw rows, columns and levels together."""
    if subject.q < 2:
        raise LeftOut(f"it needs two directions, and the model has {subject.q}.")
    return Section(
        "Rows and columns together",
        "The rows again, now with an arrow for each of the most telling columns, and a square for "
        "each level of nominal columns (a biplot).",
        "rows that lie far along an arrow: they are high in that column. Rows that lie out towards "
        "a square are the most likely to have that level.",
        [_biplot(subject)],
    )


def _biplot(subject: MixedSubject) -> Plot:
    at = subject.some(places.DRAWN)
    Z = subject.answer("transform", at)[:, :2]
    W, names = _scaled(subject)[:, :2], _named(subject)
    is_level = _of_levels(subject)
    length = np.linalg.norm(W, axis=1)
    reach = REACH * float(np.abs(Z).max()) / (float(length.max()) or 1.0)
    first = np.argsort(-length, kind="stable")[: ARROWS + 4]
    first = first[length[first] > 0]  # a constant column points nowhere
    others, extra = beside.arrows(subject)
    tips, outside = W[first] * reach, others[:, :2] * reach
    every = np.concatenate([tips, outside])
    span = np.ptp(np.concatenate([Z, every]), axis=0)
    side = ["right" if tip[0] >= 0 else "left" for tip in every]
    arrows = [drawn_arrow(tip) for tip, k in zip(tips, first, strict=True) if not is_level[k]]
    marks = arrows + labels(every, [*(names[k] for k in first), *extra], span, side, 22)
    dots = places.coloured(subject, at, Z)
    for trace in dots:
        trace["marker"] |= {"opacity": 0.4, "size": 5}
    square = is_level[first]
    if square.any():
        more: dict[str, Any] = {"name": "level", "showlegend": False, "hoverinfo": "skip"}
        marker = {"symbol": "square", "size": 9, "opacity": 1}
        x, y = tips[square].T
        dots.append(points(x, y, GREY, marker=marker, **more))
    across, up = (axis(places.latent_name(subject, a)) for a in (0, 1))
    label = "Biplot: rows as dots, columns as arrows from the middle, levels as squares."
    cut = f" The {len(first)} longest are drawn." if len(names) > len(first) else ""
    finding = (
        f"{counted(int((~square).sum()), 'column')} and {counted(int(square.sum()), 'level')} "
    )
    cut += f" Dashed: {', '.join(extra)}, not in the model." if extra else ""
    finding += f"among {len(at):,} rows.{cut}{thinned(len(at), subject.n)}"
    dots += beside.dashed(outside, extra)
    return plot(dots, across, up, label, finding, 540, annotations=marks)


# --- rows rebuilt and invented -----------------------------------------------------------------

INVENTED = 8
WIDE = 12
"""Columns of invented rows that are listed."""


def rebuilt(subject: MixedSubject) -> Section:
    """Leave the section out."""
    raise LeftOut(
        f"{subject.kind} does not rebuild rows; how well it predicts each column is in the section "
        "on filled entries."
    )


def invented(subject: MixedSubject) -> Section:
    """Show rows that the model invents, beside real ones."""
    made = plain(subject.model.sample(INVENTED, random_state=subject.seed))
    rng = np.random.default_rng([subject.seed, 4])
    real = np.sort(rng.choice(subject.n, min(INVENTED, subject.n), replace=False))
    names = list(subject.names[:WIDE])
    rows = [[f"new {i + 1}", *(_cell(made[name][i]) for name in names)] for i in range(made.height)]
    rows += [[subject.ids[i], *(subject.cell(int(i), j) for j in range(len(names)))] for i in real]
    cut = f", the first {WIDE} of {subject.d:,} columns" if subject.d > WIDE else ""
    caption = f"{INVENTED} new rows that the model invented, and below {len(real)} real ones{cut}"
    return Section(
        "What the model considers typical",
        "Rows that the model has invented, beside real ones. Every invented value occurs in the "
        "table; what the model adds is which go together.",
        "combinations that cannot be.",
        [Table(("row", *names), rows, caption)],
    )


def _cell(value: Any) -> str:
    return "–" if value is None else value if isinstance(value, str) else said(float(value), 4)


# --- unusual rows ------------------------------------------------------------------------------

LEVEL = 0.9
RARE = 0.1
"""Probability below which a level is surprising."""


def unusual(subject: MixedSubject) -> Section:
    """Show which rows are unusual, and the entries that do not fit the rest of them."""
    if not hasattr(subject.model, "outliers"):
        raise LeftOut(f"{subject.kind} has no limits for unusual rows.")
    found = trust.judged(subject)
    worst = trust.furthest(np.maximum(*found))
    surprising = _surprising(subject, worst)
    rows = [
        [
            subject.ids[i],
            *(f"{part[i]:.2f}" for part in found),
            why,
        ]
        for i, why in zip(worst, _reasons(surprising), strict=True)
    ]
    header = ("row", "T² / limit", "SPE / limit", "what does not fit")
    caption = (
        f"The {len(rows)} most unusual rows, and their entries that are surprising given the rest "
        f"of the row: a number with the {percent(LEVEL)} range that the rest suggests, a level "
        "with its probability"
    )
    none = [["none", "", "", "no row lies beyond a limit"]]
    return Section(
        "Unusual rows",
        "Each row by two distances on the hidden scales, each divided by its limit: across, how "
        "extreme it is in the directions that the model knows (T²); upwards, how much of it the "
        f"model cannot explain (SPE). About {percent(1 - subject.level)} of ordinary rows lie "
        "beyond one dashed line or the other.",
        "rows far beyond a line. To the right: extreme, but built like the others. High up: built "
        "differently, often an error in the data or a new kind of case.",
        [
            trust.distance_map(subject, found, worst),
            Table(header, rows or none, caption, words=True),
        ],
        [trust.expected_text(subject, np.maximum(*found))],
        trust.verdict_of(subject, found) + _mostly(surprising),
    )


def _reasons(surprising: list[list[tuple[float, str, str]]]) -> list[str]:
    """Return the entries of rows that the rest of the row does not suggest, in words."""
    return [
        ", ".join(text for _, text, _ in some) or "no single entry: the combination"
        for some in surprising
    ]


def _mostly(surprising: list[list[tuple[float, str, str]]]) -> str:
    """Return the columns that surprise most in the most unusual rows, in a sentence."""
    counts = Counter(some[0][2] for some in surprising if some)
    names = [name for name, count in counts.most_common(trust.VERDICT) if count > 1]
    return f" The furthest out differ mostly in {trust.joined(names)}." if names else ""


def _surprising(subject: MixedSubject, rows: Ints) -> list[list[tuple[float, str, str]]]:
    """Return for each row its entries that the rest of the row does not suggest.

    Each with how likely it is, in words, and with its column; the least likely first.
    """
    found = []
    for i in rows.tolist():
        known = np.flatnonzero(~subject.missing[i] & ~subject.bounded[i])
        one = subject.of(np.full(len(known), i))
        hidden = np.zeros((len(known), subject.d), dtype=bool)
        hidden[np.arange(len(known)), known] = True
        pairs = zip(one.iter_columns(), hidden.T, strict=True)
        one = pl.DataFrame([column.set(pl.Series(where), None) for column, where in pairs])
        _, low, high = subject.model.impute(one, return_interval=True, level=LEVEL)
        ends = [subject.codes(plain(part)) for part in (low, high)]
        words: list[tuple[float, str, str]] = []
        for k, j in enumerate(known.tolist()):
            if subject.levels[j]:
                row = subject.of(np.array([i]))
                chance = np.asarray(subject.model.predict_proba(row, subject.names[j]))[0]
                own = float(chance[int(subject.X[i, j])])
                if own < RARE:
                    said_ = f"{subject.names[j]} {subject.cell(i, j)} ({percent(own)})"
                    words.append((own, said_, subject.names[j]))
                continue
            a, b = (part[k, j] for part in ends)
            if not a <= subject.X[i, j] <= b:
                gap = max(a - subject.X[i, j], subject.X[i, j] - b) / ((b - a) or 1.0)
                span = f"{said(a)} to {said(b)}"
                text = f"{subject.names[j]} {subject.cell(i, j)} ({span})"
                words.append((RARE / (1 + gap), text, subject.names[j]))
        found.append(sorted(words)[: trust.REASONS])
    return found


# --- entries filled ----------------------------------------------------------------------------

FOLDS = 10
"""To which the known entries are dealt; a fold is hidden at a time."""
ROWS = 1000
ROUNDS, SMALL = 3, 20_000
"""Folds that are hidden in turn, in tables of at most so many entries; one in larger ones."""
FEWEST = 10
SURE = (0.0, 0.5, 0.7, 0.9, 1.0)
"""Ends of the classes of probability."""


class Hidden(NamedTuple):
    """What became of hidden entries, one element each."""

    row: Ints
    column: Ints
    truth: Floats
    guess: Floats
    plain: Floats  # the median or the most frequent level
    inside: Floats  # whether the truth is in its range; NaN for levels without one
    chance: Floats  # stated probability of the guess; NaN for numbers
    low: Floats  # ends of its range; NaN for levels without one
    high: Floats

    def over(self) -> Overimputed:
        """Return the numbers with their ranges."""
        n = ~np.isnan(self.inside)
        truth, guess, low, high = (
            part[n] for part in (self.truth, self.guess, self.low, self.high)
        )
        unknown = np.full(int(n.sum()), np.nan)  # quantiles have no standard deviations
        return Overimputed(self.row[n], self.column[n], truth, guess, low, high, unknown)


def hidden_entries(subject: MixedSubject) -> Hidden:
    """Hide known entries, in a few folds if the table is small; refit, fill and compare."""
    at = subject.some(ROWS, salt=6)
    X, known = subject.X[at], ~subject.missing[at] & ~subject.bounded[at]
    rng = np.random.default_rng([subject.seed, 6])
    masks = deal(np.where(known, X, np.nan), FOLDS, rng)[: ROUNDS if X.size <= SMALL else 1]
    if not masks or masks[0].sum() < FEWEST:
        raise LeftOut(f"too few entries to hide: {int(masks[0].sum()) if masks else 0}.")
    table, parts = subject.of(at), []
    for now in masks:
        columns = zip(table.iter_columns(), now.T, strict=True)
        partial = pl.DataFrame([one.set(pl.Series(where), None) for one, where in columns])
        parts.append(_filled(subject, partial, X, known & ~now, now))
    found: Hidden = combined(parts)
    return found


def _filled(subject: MixedSubject, partial: pl.DataFrame, X: Floats, left: Any, now: Any) -> Hidden:
    model = subject.fitted_to(partial)
    tables = model.impute(partial, return_interval=True, level=LEVEL)
    guess, low, high = (subject.codes(plain(one)) for one in tables)
    row, column = np.nonzero(now)
    inside = ((low <= X) & (high >= X)).astype(np.float64)
    middle, chance = np.full(subject.d, np.nan), np.full(X.shape, np.nan)
    for j in range(subject.d):
        known = X[left[:, j], j]
        if not known.size:
            continue
        if subject.levels[j]:
            middle[j] = np.bincount(known.astype(int)).argmax()
            where = now[:, j]
            if where.any():
                odds = np.asarray(
                    model.predict_proba(partial.filter(pl.Series(where)), subject.names[j])
                )
                chance[where, j] = odds.max(axis=1)
            inside[:, j] = np.nan
        else:
            middle[j] = np.median(known)
    values = (X[now], guess[now], middle[column], inside[now], chance[now], low[now], high[now])
    return Hidden(row, column, *values)


def filled(subject: MixedSubject) -> Section:
    """Show how well hidden entries are filled, column by column and kind by kind."""
    found = hidden_entries(subject)
    parts: list[Part] = [
        _by_column(subject, found),
        *imputed.predicted(subject, found.over(), LEVEL),
        _columns(subject, found),
        _by_kind(subject, found),
    ]
    sure = _stated(found)
    return Section(
        "How well entries are filled",
        f"Some of the entries that are known ({percent(1 / FOLDS)}) were hidden, the model was "
        "fitted without them, and they were filled from what was left of their rows. A dot at 1 "
        "means no better than the column's median, or its most frequent level; at 0 every entry is "
        "right.",
        "columns with dots far to the left: the others tell what they are. Columns at 1 or beyond "
        "cannot be told from the others, and what is filled in there is a typical value.",
        [*parts, *([sure] if sure else [])],
        (),
        "" if subject.complete else _verdict(subject, found),
    )


def _verdict(subject: MixedSubject, found: Hidden) -> str:
    """Return how well missing entries can be filled, in a sentence."""
    errors = [_errors(subject, found, j) for j in range(subject.d)]
    share = [error / plain_ for n, error, plain_ in errors if n and plain_ > 0]
    if not share:
        return ""
    inside = found.inside[~np.isnan(found.inside)]
    held = f"; {percent(LEVEL)} ranges contain {percent(float(inside.mean()))} of the numbers"
    return (
        "Known entries that were hidden are filled with "
        f"{percent(float(np.median(share)))} of the error of a typical value, in the median column"
        f"{held if inside.size else ''}."
    )


def _errors(subject: MixedSubject, found: Hidden, j: int) -> tuple[int, float, float]:
    """Return hidden entries of a column, its error, and that of a typical value."""
    mine = (found.column == j) & ~np.isnan(found.plain)
    truth, guess, middle = found.truth[mine], found.guess[mine], found.plain[mine]
    if not mine.any():
        return 0, np.nan, np.nan
    if subject.levels[j]:
        return int(mine.sum()), float(np.mean(truth != guess)), float(np.mean(truth != middle))
    return (
        int(mine.sum()),
        float(np.mean(np.abs(truth - guess))),
        float(np.mean(np.abs(truth - middle))),
    )


def _by_column(subject: MixedSubject, found: Hidden) -> Plot:
    """Draw the error in every column as a share of that of a typical value."""
    errors = [_errors(subject, found, j) for j in range(subject.d)]
    share = np.array([e / b if n and b > 0 else np.nan for n, e, b in errors])
    order = np.argsort(share, kind="stable")
    order = order[~np.isnan(share[order])][:COLUMNS]
    if not order.size:
        raise LeftOut("too few entries to hide in any column.")
    names = [subject.names[j] for j in order]
    traces = []
    kinds = [subject.kinds[j].split()[0] for j in range(subject.d)]
    for k, kind in enumerate(MEANINGS):
        at = [i for i, j in enumerate(order) if kinds[j] == kind]
        if not at:
            continue
        more: dict[str, Any] = {"name": kind, "text": [shown(names[i], 60) for i in at]}
        more["hovertemplate"] = "%{text}: %{x:.2f} of the error of a typical value<extra></extra>"
        marker = {"symbol": SYMBOLS[k], "size": 10, "opacity": 1}
        traces.append(points(share[order[at]], at, PALETTE[k], marker=marker, **more))
    best, worst = order[0], order[-1]
    finding = f"{names[0]} is filled best ({share[best]:.2f} of the error of a typical value)"
    finding += f", {names[-1]} worst ({share[worst]:.2f})." if len(names) > 1 else "."
    most = max(1.05, 1.05 * float(share[worst]))
    x = axis("error relative to a typical value", range=[-0.03 * most, most])
    label = "Dots: the error in each column, relative to its median or most frequent level."
    height = 120 + 24 * len(order)
    return plot(
        traces, x, named_axis(names), label, finding, height, shapes=[rule(1, "x", VERMILION)]
    )


def _columns(subject: MixedSubject, found: Hidden) -> Table:
    rows = []
    for j in range(min(subject.d, COLUMNS)):
        n, error, middle = _errors(subject, found, j)
        if not n:
            continue
        inside = found.inside[(found.column == j) & ~np.isnan(found.inside)]
        if subject.levels[j]:
            words = [f"{percent(error)} wrong", f"{percent(middle)} wrong", "–"]
        else:
            words = [f"off by {said(error)}", f"off by {said(middle)}"]
            words.append(percent(float(inside.mean())) if inside.size else "–")
        rows.append([subject.names[j], subject.kinds[j], f"{n:,}", *words])
    header = (
        "column",
        "kind",
        "hidden",
        "filled",
        "a typical value",
        f"inside {percent(LEVEL)} ranges",
    )
    caption = (
        "Each column: how many entries were hidden, how wrong what was filled is, how wrong the "
        "median or the most frequent level would be, and how many true numbers lay inside "
        f"{percent(LEVEL)} ranges"
    )
    return Table(header, rows, caption, folded=len(rows) > data.LONG)


def _by_kind(subject: MixedSubject, found: Hidden) -> Table:
    """Add up the errors of columns of the same kind."""
    rows = []
    kinds = [one.split()[0] for one in subject.kinds]
    for kind in MEANINGS:
        own = [j for j in range(subject.d) if kinds[j] == kind]
        for text in (False, True):
            mine = [
                (j, *_errors(subject, found, j)) for j in own if bool(subject.levels[j]) is text
            ]
            mine = [one for one in mine if one[1] and one[3] > 0]
            if not mine:
                continue
            n = sum(one[1] for one in mine)
            if text:
                wrong, plain_ = (sum(one[1] * one[k] for one in mine) / n for k in (2, 3))
                words = [f"{percent(wrong)} wrong", f"{percent(plain_)} wrong"]
            else:
                ratio = sum(one[1] * one[2] / one[3] for one in mine) / n
                words = [f"{said(ratio, 2)} of that error", "1"]
            of = [found.inside[found.column == one[0]] for one in mine]
            inside = np.concatenate(of)
            inside = inside[~np.isnan(inside)]
            share = percent(float(inside.mean())) if inside.size else "–"
            both = len({bool(subject.levels[j]) for j in own}) > 1
            name = f"{kind} ({'text' if text else 'numbers'})" if both else kind
            rows.append([name, f"{len(mine):,}", f"{n:,}", *words, share])
    header = (
        "kind",
        "columns",
        "hidden",
        "filled",
        "a typical value",
        f"inside {percent(LEVEL)} ranges",
    )
    caption = "The same by kind: numbers relative to the median, levels by how many are wrong"
    return Table(header, rows, caption)


def _stated(found: Hidden) -> Table | None:
    """Compare the stated probabilities of levels with how often they were right."""
    levels = ~np.isnan(found.chance)
    if levels.sum() < FEWEST:
        return None
    chance, right = found.chance[levels], found.truth[levels] == found.guess[levels]
    rows = []
    for low, high in itertools.pairwise(SURE):
        mine = (chance > low) & (chance <= high)
        if mine.any():
            of = [percent(float(chance[mine].mean())), percent(float(right[mine].mean()))]
            rows.append([f"{percent(low)} to {percent(high)}", f"{int(mine.sum()):,}", *of])
    header = ("stated probability", "entries", "on average", "were right")
    caption = (
        "Levels that were filled: how probable the model said they are, and how often it was right"
    )
    return Table(header, rows, caption)


SECTIONS: dict[str, Callable[[MixedSubject], Section | None]] = {
    "What the data is": overview,
    "What is missing": missing,
    "How many directions matter": chosen,
    "Where the rows lie": places.places,
    "What the directions are made of": directions,
    "Which columns go together": correlations,
    "Rows and columns together": biplot,
    "Supplementary columns and rows": beside.beside,
    "What the model keeps of each row": rebuilt,
    "What the model considers typical": invented,
    "Unusual rows": unusual,
    "Rows over time": through_time.through_time,
    "How well entries are filled": filled,
    "What is filled in": imputed.filled_in,
}
"""In the order of the page, by the name under which a section that does not apply is listed."""
