"""How many directions matter: variances, the noise floor, and what every rule would keep."""

from __future__ import annotations

from typing import Any

import numpy as np

import dualpca
from dualpca.app.report.figures import (
    BLUE,
    GREY,
    PALETTE,
    VERMILION,
    Floats,
    Plot,
    axis,
    labels,
    line,
    log_axis,
    number,
    plot,
    points,
    rule,
    said,
)
from dualpca.app.report.page import Section
from dualpca.app.report.rules import Choice, choices, rows_words, table
from dualpca.app.report.sections.data import counted, percent
from dualpca.app.report.subject import LeftOut, Subject

DRAWN = 100
"""Directions in the figure."""
SMALLEST = 1e-9
"""Share of the first variance below which a direction is rounding error."""


def section(subject: Subject) -> Section:
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
        raise LeftOut(_nothing(subject))
    found = choices(subject)
    return Section(
        "How many directions matter",
        "Each dot is one direction in which the rows differ, by how much they differ along it "
        "(its variance), largest first. The model keeps the filled ones; the dashed line is the "
        "noise it assumes in all others.",
        "a bend. Dots far above the dashed line carry structure, dots along it are noise. Where "
        "the rules agree, the number of directions is a safe choice; where they do not, they ask "
        "different questions.",
        [_figure(subject, kept, rest, found), table(subject, found)],
        [words for words in (rows_words(subject), _origin(subject, rest)) if words],
    )


def _nothing(subject: Subject) -> str:
    if subject.complete or subject.kind != "FactorAnalysis":
        return "no column varies."
    return "factor analysis explains columns one by one, and with holes the table has no variances."


def _origin(subject: Subject, rest: Floats) -> str:
    """Say where the variances come from, if from two tables."""
    fitted = getattr(subject.model, "n_samples_", subject.n)
    if int(fitted) == subject.n or not rest.size:
        return ""
    return (
        f"The kept variances are those of the {int(fitted):,} rows that the model was fitted to, "
        "the others those of this table."
    )


def variances(subject: Subject) -> tuple[Floats, Floats]:
    """Return the variances of kept and of other directions; the latter of complete rows only."""
    model = subject.model
    kept = np.asarray(getattr(model, "explained_variance_", []), dtype=np.float64)
    if not subject.complete:
        return kept, np.zeros(0)
    full = dualpca.PCA(standardize=getattr(model, "standardize", False)).fit(subject.X)
    every = np.asarray(full.explained_variance_, dtype=np.float64)
    every = every[every > SMALLEST * every[:1]]
    if kept.size == 0:  # factor analysis explains columns, not directions: all come from the rows
        q = min(subject.q, every.size)
        return every[:q], every[q:]
    return kept, every[kept.size :]


def _figure(subject: Subject, kept: Floats, rest: Floats, found: list[Choice]) -> Plot:
    q = kept.size
    most = min(q + rest.size, max(DRAWN, q))
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
    return plot(data, x, y, label, _words(subject, kept, rest, found), 430, **more)


def _marks(counts: list[int], most: int) -> list[dict[str, Any]]:
    """Return the numbers at the tops of the lines, beside each other where lines are close."""
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


def _words(subject: Subject, kept: Floats, rest: Floats, found: list[Choice]) -> str:
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
    if kept.size + rest.size > DRAWN:
        words += f". The first {max(DRAWN, kept.size)} are drawn"
    return words + "."


def explained(subject: Subject) -> float | None:
    """Return the share of the variance that the model keeps, if it knows."""
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
        ["The rules for the number of directions are made for columns, not for a kernel's space."],
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
