"""Sections on the directions: how many matter, and what they are made of."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import dualpca
from dualpca.app.report import beside, figures
from dualpca.app.report.data import counted, percent
from dualpca.app.report.figures import (
    BLUE,
    GREY,
    PALETTE,
    SYMBOLS,
    VERMILION,
    Floats,
    Plot,
    axis,
    band,
    labels,
    line,
    log_axis,
    named_axis,
    number,
    numbers,
    plot,
    points,
    rule,
    said,
    shown_all,
)
from dualpca.app.report.page import Section, Table, Tile, Tiles
from dualpca.app.report.places import DRAWN, coloured, latent_name
from dualpca.app.report.subject import LeftOut, Subject, need, quietly, thinned
from dualpca.errors import SelectionWarning

# --- what selection rules would keep -----------------------------------------------------------

RULES = {
    "evidence": "which number makes the data most probable (Minka)",
    "bic": "which number is worth its parameters (BIC)",
    "parallel": "which directions stand above those of independent columns (Horn)",
    "white-noise": "which directions stand above pure noise, the same in every column",
    "gavish-donoho": "which directions help to rebuild the rows (Gavish and Donoho)",
    "cv-rows": "which number describes unseen rows best",
    "cv-entries": "which number fills hidden entries best",
}
INCOMPLETE = ("bic", "parallel", "cv-rows", "cv-entries")
SLOW = ("cv-entries",)
"""Rules that fit every number of components by EM; with missing values all rules do."""
SHARE = 0.95
CHECKED, FEWEST = 2000, 80
"""Largest and smallest number of rows that slow rules use."""
BUDGET = 8e6
"""Rows × columns³ that a slow rule may process: a few seconds."""
TOO_LONG = "too slow for so many columns here; dualpca select runs it"


class RuleChoice(NamedTuple):
    """What one rule keeps, or why it cannot choose."""

    rule: str
    asks: str
    q: int | None
    why: str = ""


def choices(subject: Subject) -> list[RuleChoice]:
    """Return what every rule keeps of these rows."""
    names = list(RULES) if subject.complete else list(INCOMPLETE)
    X = subject.scaled(subject.X)
    found = []
    for name in names:
        few = looked_at(subject, name)
        rows = X[subject.some(few, salt=1)]
        asks = RULES[name]
        found.append(
            _choice(name, asks, rows, subject.seed)
            if few
            else RuleChoice(name, asks, None, TOO_LONG)
        )
    if subject.complete:
        found.append(_choice(SHARE, f"how many keep {100 * SHARE:.0f} % of the variance", X, 0))
    return found


def looked_at(subject: Subject, name: str) -> int:
    """Return how many rows a rule uses; 0 if even a few would take too long."""
    if subject.complete and name not in SLOW:
        return min(subject.n, CHECKED) if name.startswith("cv") else subject.n
    most = min(subject.n, CHECKED, int(BUDGET / subject.d**3))
    return most if most >= min(subject.n, FEWEST) else 0


def _choice(name: str | float, asks: str, X: Floats, seed: int) -> RuleChoice:
    label = name if isinstance(name, str) else f"{100 * name:.0f} % of variance"
    usable = X[:, np.fmin.reduce(X, axis=0) < np.fmax.reduce(X, axis=0)]  # constants say nothing
    with quietly(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", SelectionWarning)
        try:
            model = dualpca.PPCA(name, random_state=seed).fit(usable)
        except ValueError as error:
            return RuleChoice(label, asks, None, str(error))
    return RuleChoice(
        label, asks, int(model.n_components_), "finds none, keeps one" if told else ""
    )


def rows_words(subject: Subject) -> str:
    """Return which rules used some of the rows only, in words."""
    names = list(RULES) if subject.complete else list(INCOMPLETE)
    few = {name: looked_at(subject, name) for name in names}
    some = [f"{name} {count:,}" for name, count in few.items() if 0 < count < subject.n]
    if not some:
        return ""
    return f"Slow rules used some of the {subject.n:,} rows, at random: {', '.join(some)}."


def rules_table(subject: Subject, found: list[RuleChoice]) -> Table:
    """Return a table of what the rules and the model keep."""
    rows = [
        [
            one.rule,
            str(one.q) if one.q is not None else "–",
            one.asks + (f" ({one.why})" if one.why else ""),
        ]
        for one in found
    ]
    rows.append(["this model", str(subject.q), "what the report is about"])
    header = ("rule", "keeps", "the question it answers")
    caption = "How many directions each rule would keep"
    return Table(header, rows, caption, highlight=len(rows) - 1, words=True)


# --- how many directions matter ----------------------------------------------------------------

FILLED = 5
"""Draws of missing entries behind the variances of directions that are not kept."""
LISTED = 100
"""Directions in the figure."""
SMALLEST = 1e-9
"""Share of the first variance below which a direction is rounding error."""


def spectrum(subject: Subject) -> Section:
    """Draw the variances that the model kept and dropped, and mark what rules would keep."""
    model = subject.model
    if isinstance(model, dualpca.MixturePPCA):
        return _of_groups(subject)
    if hasattr(model, "kernel_") and hasattr(model, "explained_variance_"):
        return _of_kernel(subject)
    if not hasattr(model, "components_"):
        raise LeftOut(f"{subject.kind} has no single list of variances.")
    kept, rest = variances(subject)
    if not (kept.size or rest.size):
        raise LeftOut("no column varies.")
    found = choices(subject)
    return Section(
        "How many directions matter",
        "Each dot is one direction in which the rows differ, by how much they differ along it "
        "(its variance), largest first. The model keeps the filled ones; the dashed line is the "
        "noise it assumes in all others.",
        "a bend. Dots far above the dashed line carry structure, dots along it are noise. Where "
        "the rules agree, the number of directions is a safe choice; where they do not, they ask "
        "different questions.",
        [_figure(subject, kept, rest, found), rules_table(subject, found)],
        [
            words
            for words in (rows_words(subject), _origin(subject, rest), _filled_words(subject, rest))
            if words
        ],
    )


def _filled_words(subject: Subject, rest: Floats) -> str:
    """Return how variances were found where entries are missing."""
    if subject.complete or not rest.size:
        return ""
    return (
        f"Entries are missing: the variances of directions that the model does not keep are those "
        f"of the table filled {FILLED} times with draws from the model, so that filled entries "
        "vary as measured ones would."
    )


def _origin(subject: Subject, rest: Floats) -> str:
    """Return where the variances come from, if from two tables."""
    fitted = getattr(subject.model, "n_samples_", subject.n)
    if int(fitted) == subject.n or not rest.size:
        return ""
    return (
        f"The kept variances are those of the {int(fitted):,} rows that the model was fitted to, "
        "the others those of this table."
    )


def variances(subject: Subject) -> tuple[Floats, Floats]:
    """Return the variances of kept and of other directions, in the units of the fit.

    Where entries are missing, the others are those of rows filled with draws from the model;
    there are none if it cannot draw.
    """
    kept = np.asarray(getattr(subject.model, "explained_variance_", []), dtype=np.float64)
    rows = completed(subject)
    if rows is None:
        return kept, np.zeros(0)
    every = np.asarray(dualpca.PCA().fit(rows).explained_variance_, dtype=np.float64)
    every = every[every > SMALLEST * every[:1]]
    if kept.size == 0:  # factor analysis explains columns, not directions
        q = min(subject.q, every.size)
        return every[:q], every[q:]
    return kept, every[kept.size :]


def completed(subject: Subject) -> Floats | None:
    """Return complete rows in the units of the fit, a few draws of each if entries are missing."""
    if subject.complete:
        return subject.scaled(subject.X)
    draw = getattr(subject.model, "sample_imputations", None)
    if draw is None:
        return None
    options = {"n_draws": FILLED, "random_state": subject.seed, "parameters": "fixed"}
    few = subject.X[subject.some(CHECKED, salt=8)]
    tables = subject.asked("sample_imputations", few, **options)
    return subject.scaled(tables.reshape(-1, subject.d))


def _figure(subject: Subject, kept: Floats, rest: Floats, found: list[RuleChoice]) -> Plot:
    q = kept.size
    most = min(q + rest.size, max(LISTED, q))
    after = rest[: most - q]
    hover = {"hovertemplate": "direction %{x}: variance %{y:.4~g}<extra></extra>"}
    hollow = {"size": 7, "symbol": "circle-open", "opacity": 1}
    left = {"name": "left to the noise", "marker": hollow, **hover}
    traces = [
        points(np.arange(1, q + 1), kept, name="kept", marker={"size": 8, "opacity": 1}, **hover),
        points(np.arange(q + 1, most + 1), after, GREY, **left),
    ]
    noise = _noise(subject)
    shapes = [rule(noise, "y", VERMILION)] if noise else []
    counts = sorted({one.q for one in found if one.q is not None})
    shapes += [rule(count + 0.5, "x", GREY, "dot") for count in counts]
    label = "Scree plot: the variance of each direction on a logarithmic axis, largest first."
    last = max(most, q + 1, *counts)
    x = axis("direction", range=[0.4, 1.05 * last + 0.8], tickformat="d")
    x |= {"dtick": 1} if last <= 12 else {}
    drawn = np.concatenate([kept, after])
    y = log_axis("variance", np.append(drawn, noise) if noise else drawn)
    more = {"shapes": shapes, "annotations": _marks(counts, last)}
    data = [trace for trace in traces if trace["x"]]
    return plot(data, x, y, label, _spectrum_words(subject, kept, rest, found), 430, **more)


def _marks(counts: list[int], most: int) -> list[dict[str, Any]]:
    """Return the numbers at the tops of the lines, below each other where lines are close."""
    at = np.array([[count + 0.5, 0.0] for count in counts]).reshape(-1, 2)
    span = np.array([most + 1.0, 1.0])
    found = labels(at, [str(count) for count in counts], span, ["right"] * len(counts))
    top = {"y": 1, "yref": "paper", "yanchor": "top"}
    return [one | top | {"yshift": -abs(one["yshift"])} for one in found]


def _noise(subject: Subject) -> float | None:
    """Return the noise variance of a model that has one for all columns."""
    noise = getattr(subject.model, "noise_variance_", None)
    if noise is None or np.ndim(noise) or not float(noise) > 0:
        return None
    return float(noise)


def _spectrum_words(subject: Subject, kept: Floats, rest: Floats, found: list[RuleChoice]) -> str:
    share = explained(subject)
    q = f"{subject.q} of {counted(subject.d, 'direction')}"
    words = f"The model keeps {q}" + (f", with {percent(share)} of the variance" if share else "")
    noise = _noise(subject)
    if noise and kept.size:
        words += (
            f"; the weakest kept one ({said(kept[-1])}) is {said(kept[-1] / noise)} times the "
            f"noise ({said(noise)})"
        )
    chosen = [one.q for one in found if one.q is not None]
    if chosen:
        low, high = min(chosen), max(chosen)
        span = f"all choose {low}" if low == high else f"choose between {low} and {high}"
        words += f". The {len(chosen)} rules below {span} (dotted lines)"
    if kept.size + rest.size > LISTED:
        words += f". The first {max(LISTED, kept.size)} are drawn"
    return words + "."


def explained(subject: Subject) -> float | None:
    """Return the share of the variance that the model keeps, if it has one."""
    ratio = getattr(subject.model, "explained_variance_ratio_", None)
    return None if ratio is None else float(np.sum(ratio))


def _of_kernel(subject: Subject) -> Section:
    kept = np.asarray(subject.model.explained_variance_, dtype=np.float64)
    share = explained(subject)
    noise = _noise(subject)
    floor = f"; the noise is {said(noise)}" if noise else ""
    part = f" and carry {percent(share)} of the variance" if share else ""
    finding = (
        f"The {kept.size} kept directions fall from {said(kept[0])} to {said(kept[-1])}{part}"
        f"{floor}."
    )
    trace = points(np.arange(1, kept.size + 1), kept, BLUE, marker={"size": 8, "opacity": 1})
    shapes = [rule(noise, "y", VERMILION)] if noise else []
    x = axis("direction", tickformat="d")
    y = log_axis("variance", np.append(kept, noise) if noise else kept)
    label = "Scree plot of the kernel: the variance of each kept direction on a logarithmic axis."
    return Section(
        "How many directions matter",
        "Each dot is one direction in the space of the kernel, by how much the rows differ along "
        "it, largest first." + (" The dashed line is the noise." if noise else ""),
        "a bend: directions before it carry structure, those after it little.",
        [plot([trace], x, y, label, finding, 400, shapes=shapes)],
        ["The rules for the number of directions apply to columns, not to the space of a kernel."],
    )


def _of_groups(subject: Subject) -> Section:
    lists = [np.asarray(one, dtype=np.float64) for one in subject.model.explained_variance_]
    noise = np.asarray(subject.model.noise_variance_, dtype=np.float64)
    traces = []
    for k, kept in enumerate(lists):
        colour, at = PALETTE[k % len(PALETTE)], np.arange(1, kept.size + 1)
        more = {"mode": "lines+markers", "showlegend": True, "hoverinfo": "all"}
        traces.append(line(at, kept, colour, name=f"group {k + 1}", **more))
    sizes = ", ".join(f"{number(float(v), 3)}" for v in noise)
    finding = (
        f"{len(lists)} groups keep {', '.join(str(one.size) for one in lists)} directions; their "
        f"noise variances are {sizes}."
    )
    x, y = axis("direction", dtick=1), log_axis("variance", np.concatenate(lists))
    label = "One falling line for each group: the variances of its directions."
    return Section(
        "How many directions matter",
        "Every group of the mixture has directions of its own; each line shows how much the rows "
        "of one group differ along them, largest first.",
        "groups whose lines lie far above the others: their rows differ more among themselves.",
        [plot(traces, x, y, label, finding, 400)],
    )


# --- what the directions are made of -----------------------------------------------------------

DIRECTIONS = 3
"""Directions drawn with error bars."""
PICTURES = 10
"""Directions drawn as images."""
COLUMNS = 24
"""Columns in the figure, those with the largest loadings."""
DRAWS = 30
"""Refits for the error bars."""
REFITTED = 2000
"""Largest number of rows of a refit."""
ARROWS = 10
REACH = 0.85


class Loadings(NamedTuple):
    """Loadings, their standard errors, and how those were found."""

    W: Floats  # (d, q)
    error: Floats  # (d, q), NaN where unknown
    how: str


def loadings(subject: Subject) -> Loadings:
    """Return the loadings, with standard errors from the model or from a bootstrap."""
    W = matrix(subject)
    if hasattr(subject.model, "loadings_std_"):
        how = "The bars are two posterior standard deviations of the model on either side."
        return Loadings(W, _own(subject, np.asarray(subject.model.loadings_std_)), how)
    try:
        error, rows = _resampled(subject, W)
    except (ValueError, np.linalg.LinAlgError):
        return Loadings(
            W, np.full_like(W, np.nan), "The model could not be refitted, so there are no bars."
        )
    how = (
        f"The bars are two standard errors on either side: the model was refitted {DRAWS} times to "
        f"{rows:,} rows drawn from the table with replacement, and the loadings compared."
    )
    return Loadings(W, error, how)


def matrix(subject: Subject) -> Floats:
    """Return W (d, q), loadings or axes times their standard deviations, in the units of the fit.

    Those are standard deviations of the columns, if columns were standardised.
    """
    model = subject.model
    if hasattr(model, "loadings_"):
        return _own(subject, np.asarray(model.loadings_, dtype=np.float64))
    W = np.asarray(model.components_, dtype=np.float64).T
    if hasattr(model, "explained_variance_"):
        W = W * np.sqrt(np.asarray(model.explained_variance_))
    return W


def _own(subject: Subject, W: Floats) -> Floats:
    """Return loadings (d, q) in the units of the fit; a model that standardises returns others."""
    return W / subject.scale[:, None] if subject.own_scale and subject.scale is not None else W


def _resampled(subject: Subject, W: Floats) -> tuple[Floats, int]:
    """Return bootstrap standard errors; directions are matched by order and by sign.

    Resamples of m < n rows vary more, by √(n/m), where errors fall with the root of the rows.
    """
    rng = np.random.default_rng([subject.seed, 3])
    m = min(subject.n, REFITTED)
    found = []
    for _ in range(DRAWS):
        part = subject.X[rng.integers(subject.n, size=m)]
        again = matrix(subject.refitted(part, n_init=1, random_state=subject.seed))
        found.append(again * np.where(np.sum(again * W, axis=0) < 0, -1.0, 1.0))
    return np.std(found, axis=0) * np.sqrt(m / subject.n), m


def directions(subject: Subject) -> Section:
    """Draw what the first directions are made of."""
    if not hasattr(subject.model, "components_") or hasattr(subject.model, "predict_proba"):
        raise LeftOut(f"{subject.kind} has no single set of directions in the columns.")
    if subject.q == 0:
        raise LeftOut("the model keeps no direction.")
    found = loadings(subject)
    if subject.image:
        parts: list[Any] = [_pictures(subject, found)]
    else:
        parts = [_curves(subject, found) if subject.curve else _columns(subject, found)]
    return Section(
        "What the directions are made of",
        "A direction is a mixture of columns. A loading says how much a column changes when a row "
        "moves by one standard deviation along the direction; columns with loadings of the same "
        "sign rise together, of opposite signs one falls as the other rises.",
        "the largest loadings: they give a direction its meaning. A bar that crosses zero means "
        "that the column may have nothing to do with the direction. Long bars everywhere mean that "
        "two directions are about equally strong and can be told apart only poorly.",
        parts,
        [found.how],
    )


def _columns(subject: Subject, found: Loadings) -> Plot:
    """Draw loadings as dots with error bars, with what they mean in the column's own units."""
    drawn = drawn_loadings(subject.names, found, _loading_axis(subject), subject.scale)
    return replace(drawn, finding=_loading_words(subject, found) + _cut(found))


def _cut(found: Loadings) -> str:
    """Return that not all loadings are drawn, if so."""
    some = len(found.W) > COLUMNS
    return f" The {COLUMNS} columns of the largest loadings are drawn." if some else ""


def drawn_loadings(
    every: Sequence[str], found: Loadings, title: str, scale: Floats | None = None
) -> Plot:
    """Draw loadings as dots with error bars, a symbol and colour for each direction.

    Parameters
    ----------
    every : sequence of str
        Names of the loadings.
    found : Loadings
    title : str
        Of the axis.
    scale : array of shape (d,), optional
        What the loadings are multiplied by to be in the units of the columns.
    """
    q = min(found.W.shape[1], DIRECTIONS)
    size = np.abs(found.W[:, :q]).max(axis=1)
    order = np.sort(np.argsort(-size, kind="stable")[:COLUMNS])
    names = [every[j] for j in order]
    traces = []
    for p in range(q):
        bars = {"type": "data", "array": numbers(2 * found.error[order, p])}
        more: dict[str, Any] = {"name": f"direction {p + 1}", "text": shown_all(names, 60)}
        if not np.isnan(found.error).all():
            more["error_x"] = bars | {"thickness": 1.4, "width": 3}
        more["hovertemplate"] = "%{text}: %{x:.3~g}<extra>%{fullData.name}</extra>"
        if scale is not None:
            more["customdata"] = numbers((found.W[:, p] * scale)[order], 3)
            more["hovertemplate"] = (
                "%{text}: %{x:.3~g} standard deviations, %{customdata} in its own units"
                "<extra>%{fullData.name}</extra>"
            )
        more["marker"] = {"symbol": SYMBOLS[p], "size": 8, "opacity": 1}
        places = np.arange(order.size) + 0.22 * (p - (q - 1) / 2)
        traces.append(points(found.W[order, p], places, PALETTE[p], **more))
    label = "Dots with error bars: the loading of each column on the first directions."
    height = 110 + (22 + 8 * q) * order.size
    zero = [rule(0, "x", dash="solid")]
    words = " ".join(_made_of(every, found.W[:, p], found.W[:, p], p) for p in range(q))
    finding = words + _cut(found)
    return plot(traces, axis(title), named_axis(names), label, finding, height, shapes=zero)


def _made_of(names: Sequence[str], w: Floats, own: Floats, p: int) -> str:
    """Return what a direction is made of: its largest loadings, in the units of `own`."""
    order = np.argsort(-np.abs(w), kind="stable")
    order = order[np.abs(w[order]) > 0.3 * np.abs(w).max()][:3]
    parts = ", ".join(f"{names[j]} ({_signed(own[j])})" for j in order)
    return f"Direction {p + 1} is mostly {parts}."


def _loading_axis(subject: Subject) -> str:
    return "loading" if subject.scale is None else "loading, in standard deviations of the column"


def _loading_words(subject: Subject, found: Loadings) -> str:
    """Return in words what the first directions are made of."""
    words = []
    for p in range(min(found.W.shape[1], DIRECTIONS)):
        w = found.W[:, p]
        own = w if subject.scale is None else w * subject.scale
        words.append(_made_of(subject.names, w, own, p))
    if subject.scale is not None and words:
        words.append(
            "In parentheses is what one standard deviation along the direction adds to the column, "
            "in the column's own units."
        )
    clear = np.abs(found.W) > 2 * found.error
    known = ~np.isnan(found.error)
    if known.any():
        of, total = int(np.sum(clear & known)), int(known.sum())
        words.append(f"Of all {total:,} loadings {of:,} are clearly different from zero.")
    return " ".join(words)


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + said(value, 2).replace("-", "−")


def _curves(subject: Subject, found: Loadings) -> Plot:
    """Draw loadings along the columns as lines with bands."""
    at = np.arange(1, subject.d + 1)
    traces = []
    for p in range(min(found.W.shape[1], DIRECTIONS)):
        w, e = found.W[:, p], 2 * np.nan_to_num(found.error[:, p])
        traces += band(at, w - e, w + e, PALETTE[p])
        more = {"showlegend": True, "name": f"direction {p + 1}", "line": {"width": 2}}
        traces.append(line(at, w, PALETTE[p], **more))
    label = "Lines with bands: the loadings of the first directions along the columns."
    x = axis("column", range=[1, subject.d])
    y = axis(_loading_axis(subject))
    return plot(traces, x, y, label, _loading_words(subject, found), 420)


def _pictures(subject: Subject, found: Loadings) -> Tiles:
    """Show directions as images, and how sure their pixels are."""
    shape = subject.image or (1, subject.d)
    q = min(found.W.shape[1], PICTURES)
    loading, clear = [], []
    for p in range(q):
        w, e = found.W[:, p], found.error[:, p]
        code = figures.encode(figures.signed(w.reshape(shape), float(np.abs(w).max())))
        loading.append(Tile(code, f"direction {p + 1} as an image", str(p + 1)))
        sure = np.where(np.abs(w) > 2 * e, w, 0.0)
        share = float(np.mean(np.abs(w) > 2 * e))
        code = figures.encode(figures.signed(sure.reshape(shape), float(np.abs(w).max())))
        clear.append(Tile(code, f"its clear pixels, {100 * share:.0f} %", f"{100 * share:.0f} %"))
    counts = np.mean(np.abs(found.W[:, :q]) > 2 * found.error[:, :q], axis=0)
    finding = (
        f"The first {q} directions as images: red pixels get darker along the direction, blue ones "
        "lighter. Below, only pixels whose loading is more than two standard errors from zero: "
        f"{100 * counts[0]:.0f} % of the pixels in direction 1, {100 * counts[-1]:.0f} % in "
        f"direction {q}."
    )
    return Tiles([("direction", loading), ("clearly not zero", clear)], finding)


def biplot(subject: Subject) -> Section:
    """Draw rows and columns together."""
    need(subject, "transform", "has no latent coordinates")
    if not hasattr(subject.model, "components_") or hasattr(subject.model, "predict_proba"):
        raise LeftOut(f"{subject.kind} has no single set of directions in the columns.")
    if subject.image:
        raise LeftOut("arrows for pixels say little; the directions are shown as images.")
    if subject.curve:
        raise LeftOut("arrows for the points of a curve say little; see the directions above.")
    if subject.q < 2:
        raise LeftOut("it needs two directions, and the model has one.")
    return Section(
        "Rows and columns together",
        "The rows again, now with an arrow for each of the most telling columns (a biplot).",
        "rows that lie far along an arrow: they are high in that column, and low if they lie the "
        "other way. Arrows that point the same way are columns that rise together; arrows at right "
        "angles have little to do with each other.",
        [_biplot(subject)],
    )


def _biplot(subject: Subject) -> Plot:
    at = subject.some(DRAWN)
    Z = subject.asked("transform", subject.X[at])[:, :2]
    arrows = _arrows_of(subject)[:, :2]
    arrows = arrows / subject.spread[:, None] if subject.scale is None else arrows
    length = np.linalg.norm(arrows, axis=1)
    first = np.argsort(-length, kind="stable")[:ARROWS]
    first = first[length[first] > SMALLEST * length.max()]  # a constant column points nowhere
    reach = REACH * float(np.abs(Z).max()) / (float(length.max()) or 1.0)
    others, extra = beside.arrows(subject)
    tips, outside = arrows[first] * reach, others[:, :2] * reach
    every = np.concatenate([tips, outside])
    span = np.ptp(np.concatenate([Z, every]), axis=0)
    side = ["right" if tip[0] >= 0 else "left" for tip in every]
    names = [*(subject.names[j] for j in first), *extra]
    marks = [drawn_arrow(tip) for tip in tips] + labels(every, names, span, side)
    x, y = (axis(latent_name(subject, a)) for a in (0, 1))
    label = "Biplot: rows as dots, columns as arrows from the middle."
    cut = f" The {ARROWS} longest arrows are drawn." if subject.d > ARROWS else ""
    cut += f" Dashed: {', '.join(extra)}, not in the model." if extra else ""
    finding = _angles(subject, arrows, first) + cut + thinned(len(at), subject.n)
    dots = coloured(subject, at, Z)
    for trace in dots:
        trace["marker"] |= {"opacity": 0.4, "size": 5}
    dots += beside.dashed(outside, extra)
    return plot(dots, x, y, label, finding, 520, annotations=marks)


def _arrows_of(subject: Subject) -> Floats:
    """Return the matrix that maps scores to columns in the units of the fit, (d, q)."""
    model = subject.model
    if hasattr(model, "loadings_"):
        return matrix(subject)
    W = np.asarray(model.components_, dtype=np.float64).T
    whitened = getattr(model, "whiten", False)
    return W * np.sqrt(np.asarray(model.explained_variance_)) if whitened else W


def drawn_arrow(tip: Floats) -> dict[str, Any]:
    """Return an arrow from the middle to a tip."""
    x, y = numbers(tip)
    tail = {"ax": 0, "ay": 0, "axref": "x", "ayref": "y", "text": "", "showarrow": True}
    head = {"arrowhead": 2, "arrowsize": 1, "arrowwidth": 1.8, "arrowcolor": GREY}
    return {"x": x, "y": y} | tail | head


def _angles(subject: Subject, arrows: Floats, first: Any) -> str:
    """Return the two columns that vary together most, and the two that oppose each other most."""
    if len(first) < 2:
        return f"One arrow: {subject.names[first[0]]}."
    unit = arrows[first] / np.linalg.norm(arrows[first], axis=1, keepdims=True)
    cosine = unit @ unit.T
    i, j = np.unravel_index(np.argmax(cosine - 3 * np.eye(len(first))), cosine.shape)
    k, m = np.unravel_index(np.argmin(cosine), cosine.shape)
    name = [subject.names[f] for f in first]
    words = f"{name[i]} and {name[j]} point closest together: rows high in one are high in both"
    if cosine[k, m] < -0.3:
        words += f". {name[k]} and {name[m]} point apart: as one rises the other falls"
    return words + "."
