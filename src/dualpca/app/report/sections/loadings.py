"""What the directions are made of: loadings with error bars, and a biplot."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualpca.app.report import png
from dualpca.app.report.figures import (
    GREY,
    PALETTE,
    SYMBOLS,
    Floats,
    Plot,
    axis,
    band,
    labels,
    line,
    named_axis,
    numbers,
    plot,
    points,
    rule,
    shown_all,
)
from dualpca.app.report.page import Section, Tile, Tiles
from dualpca.app.report.sections.latent import DRAWN, coloured, latent_name
from dualpca.app.report.subject import LeftOut, Subject, need, thinned

DIRECTIONS = 3
"""Directions that are drawn with error bars."""
PICTURES = 10
"""Directions that are drawn as images."""
COLUMNS = 24
"""Columns in the figure: those of the largest loadings."""
DRAWS = 30
"""Refits for the error bars."""
REFITTED = 2000
"""Rows of each refit at most."""
ARROWS = 10
REACH = 0.85


class Loadings(NamedTuple):
    """Loadings, their standard errors, and how those were found."""

    W: Floats  # (d, q)
    error: Floats  # (d, q), NaN where unknown
    how: str


def loadings(subject: Subject) -> Loadings:
    """Return the loadings: what a step of one standard deviation along a direction changes."""
    W = matrix(subject.model)
    if hasattr(subject.model, "loadings_std_"):
        how = "The bars are the model's own posterior standard deviations, twice in either way."
        return Loadings(W, np.asarray(subject.model.loadings_std_), how)
    try:
        error, rows = _resampled(subject, W)
    except (ValueError, np.linalg.LinAlgError):
        return Loadings(W, np.full_like(W, np.nan), "The model could not be refitted: no bars.")
    how = (
        f"The bars are two standard errors either way: the model was fitted again {DRAWS} times to "
        f"{rows:,} rows drawn from the table with replacement, and the loadings compared."
    )
    return Loadings(W, error, how)


def matrix(model: Any) -> Floats:
    """Return W (d, q): loadings, or axes times their standard deviations."""
    W = np.asarray(getattr(model, "loadings_", np.asarray(model.components_).T), dtype=np.float64)
    if not hasattr(model, "loadings_") and hasattr(model, "explained_variance_"):
        W = W * np.sqrt(np.asarray(model.explained_variance_))
    return W


def _resampled(subject: Subject, W: Floats) -> tuple[Floats, int]:
    """Return bootstrap standard errors; directions are matched by order and turned by sign.

    Resamples of m < n rows vary more, by √(n/m) where errors fall as one over the root.
    """
    rng = np.random.default_rng([subject.seed, 3])
    m = min(subject.n, REFITTED)
    found = []
    for _ in range(DRAWS):
        part = subject.X[rng.integers(subject.n, size=m)]
        again = matrix(subject.refitted(part, n_init=1, random_state=subject.seed).model)
        found.append(again * np.where(np.sum(again * W, axis=0) < 0, -1.0, 1.0))
    return np.std(found, axis=0) * np.sqrt(m / subject.n), m


def section(subject: Subject) -> Section:
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
    """Draw loadings as dots with error bars, a symbol and colour for each direction."""
    q = min(found.W.shape[1], DIRECTIONS)
    size = np.abs(found.W[:, :q]).max(axis=1)
    order = np.sort(np.argsort(-size, kind="stable")[:COLUMNS])
    names = [subject.names[j] for j in order]
    traces = []
    for p in range(q):
        bars = {"type": "data", "array": numbers(2 * found.error[order, p])}
        more: dict[str, Any] = {"name": f"direction {p + 1}", "text": shown_all(names, 60)}
        more["error_x"] = bars | {"thickness": 1.4, "width": 3}
        more["hovertemplate"] = "%{text}: %{x:.3~g}<extra>%{fullData.name}</extra>"
        more["marker"] = {"symbol": SYMBOLS[p], "size": 8, "opacity": 1}
        places = np.arange(order.size) + 0.22 * (p - (q - 1) / 2)
        traces.append(points(found.W[order, p], places, PALETTE[p], **more))
    label = "Dots with error bars: the loading of each column on the first directions."
    cut = (
        f" The {COLUMNS} columns of the largest loadings are drawn." if subject.d > COLUMNS else ""
    )
    height = 110 + (22 + 8 * q) * order.size
    zero = [rule(0, "x", dash="solid")]
    finding = _words(subject, found) + cut
    return plot(traces, axis("loading"), named_axis(names), label, finding, height, shapes=zero)


def _words(subject: Subject, found: Loadings) -> str:
    """Say in words what each of the first directions is made of."""
    words = []
    for p in range(min(found.W.shape[1], DIRECTIONS)):
        w = found.W[:, p]
        order = np.argsort(-np.abs(w), kind="stable")
        order = order[np.abs(w[order]) > 0.3 * np.abs(w).max()][:3]
        parts = ", ".join(f"{subject.names[j]} ({w[j]:+.2g})".replace("-", "−") for j in order)
        words.append(f"Direction {p + 1} is mostly {parts}.")
    clear = np.abs(found.W) > 2 * found.error
    known = ~np.isnan(found.error)
    if known.any():
        of, total = int(np.sum(clear & known)), int(known.sum())
        words.append(f"Of all {total:,} loadings {of:,} are clearly different from zero.")
    return " ".join(words)


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
    return plot(traces, x, axis("loading"), label, _words(subject, found), 420)


def _pictures(subject: Subject, found: Loadings) -> Tiles:
    """Show directions as images, and how sure their pixels are."""
    shape = subject.image or (1, subject.d)
    q = min(found.W.shape[1], PICTURES)
    loading, clear = [], []
    for p in range(q):
        w, e = found.W[:, p], found.error[:, p]
        code = png.encode(png.signed(w.reshape(shape), float(np.abs(w).max())))
        loading.append(Tile(code, f"direction {p + 1} as an image", str(p + 1)))
        sure = np.where(np.abs(w) > 2 * e, w, 0.0)
        share = float(np.mean(np.abs(w) > 2 * e))
        code = png.encode(png.signed(sure.reshape(shape), float(np.abs(w).max())))
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
        raise LeftOut("an arrow for every pixel says little; the directions are shown as images.")
    if subject.curve:
        raise LeftOut("an arrow for every point of a curve says little; see the directions above.")
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
    own = getattr(subject.model, "standardize", False)
    arrows = _arrows_of(subject.model)[:, :2] / (1.0 if own else subject.spread[:, None])
    length = np.linalg.norm(arrows, axis=1)
    first = np.argsort(-length, kind="stable")[:ARROWS]
    reach = REACH * float(np.abs(Z).max()) / (float(length.max()) or 1.0)
    tips = arrows[first] * reach
    span = np.ptp(np.concatenate([Z, tips]), axis=0)
    side = ["right" if tip[0] >= 0 else "left" for tip in tips]
    names = [subject.names[j] for j in first]
    marks = [_arrow(tip) for tip in tips] + labels(tips, names, span, side)
    x, y = (axis(latent_name(subject, a)) for a in (0, 1))
    label = "Biplot: rows as dots, columns as arrows from the middle."
    cut = f" The {ARROWS} longest arrows are drawn." if subject.d > ARROWS else ""
    finding = _angles(subject, arrows, first) + cut + thinned(len(at), subject.n)
    dots = coloured(subject, at, Z)
    for trace in dots:
        trace["marker"] |= {"opacity": 0.4, "size": 5}
    return plot(dots, x, y, label, finding, 520, annotations=marks)


def _arrows_of(model: Any) -> Floats:
    """Return the rows by which scores are multiplied to give the columns, (d, q)."""
    W = np.asarray(getattr(model, "loadings_", np.asarray(model.components_).T), dtype=np.float64)
    return W * np.sqrt(np.asarray(model.explained_variance_)) if _whitened(model) else W


def _whitened(model: Any) -> bool:
    return bool(getattr(model, "whiten", False))


def _arrow(tip: Floats) -> dict[str, Any]:
    """Return an arrow from the middle to a tip."""
    x, y = numbers(tip)
    tail = {"ax": 0, "ay": 0, "axref": "x", "ayref": "y", "text": "", "showarrow": True}
    head = {"arrowhead": 2, "arrowsize": 1, "arrowwidth": 1.8, "arrowcolor": GREY}
    return {"x": x, "y": y} | tail | head


def _angles(subject: Subject, arrows: Floats, first: Any) -> str:
    """Name the two columns that go together most, and the two that oppose each other most."""
    if len(first) < 2:
        return f"One arrow: {subject.names[first[0]]}."
    unit = arrows[first] / np.linalg.norm(arrows[first], axis=1, keepdims=True)
    cosine = unit @ unit.T
    i, j = np.unravel_index(np.argmax(cosine - 3 * np.eye(len(first))), cosine.shape)
    k, m = np.unravel_index(np.argmin(cosine), cosine.shape)
    name = [subject.names[f] for f in first]
    words = f"Closest together point {name[i]} and {name[j]}: rows high in one are high in both"
    if cosine[k, m] < -0.3:
        words += f". {name[k]} and {name[m]} point apart: as one rises the other falls"
    return words + "."
