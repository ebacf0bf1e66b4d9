"""Figures as plain values that plotly draws in the page, and small images as PNG.

Nothing here imports plotly. Colours are readable on light and dark pages; text, grid and axes
take theirs from the style sheet.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# --- figures -----------------------------------------------------------------------------------

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

BLUE, VERMILION, GREEN, GREY = "#1e78c3", "#d25a0f", "#0fa578", "#7a8190"
# Apart for any colour vision (CIELAB distance 17 or more, dichromats simulated by Machado et al.
# 2009), and at least 2.3 : 1 against white and against the dark page.
PALETTE = (
    *(BLUE, VERMILION, GREEN, "#784b87", "#c387b4"),
    *("#f0961e", "#874b2d", "#a5a55a", "#96a5ff", "#5a6969"),
)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "triangle-down", "pentagon")
SCALE = "Cividis"
LONGEST = 28
"""Letters of a name that fit next to an axis."""
CLEAR = "rgba(0,0,0,0)"
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
SIZE = (440.0, 340.0)
"""Width and height in pixels that labels are placed for."""
LETTER, LINE = 7.5, 16.0
"""Pixels of a letter and of a line."""


@dataclass(frozen=True)
class Plot:
    """What is drawn, what kind of picture it is, and what it shows, in words."""

    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]
    label: str
    finding: str
    height: int = field(default=420)
    crowded: bool = False  # words inside that narrow windows have no room for


def plot(
    data: Sequence[Mapping[str, Any]],
    x: Mapping[str, Any],
    y: Mapping[str, Any],
    label: str,
    finding: str,
    height: int = 420,
    **more: Any,
) -> Plot:
    """Return a figure with one pair of axes in the style of the report.

    Examples
    --------
    >>> figure = plot([points([1, 2], [3, 4])], axis("a"), axis("b"), "Scatter", "b grows with a.")
    >>> figure.layout["xaxis"]["title"]["text"]
    'a'
    """
    keyed = sum(trace.get("showlegend", True) is not False for trace in data) > 1
    layout = {
        "xaxis": dict(x),
        "yaxis": dict(y),
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "margin": {"l": 56, "r": 14, "t": 34 if keyed else 14, "b": 50},
        "font": {"size": 13, "family": FONT},
        "showlegend": keyed,
        "legend": {
            "orientation": "h",
            "traceorder": "normal",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "bgcolor": CLEAR,
        },
        "hoverlabel": {"bgcolor": "#1f2430", "font": {"color": "#ffffff"}},
        "hovermode": "closest",
        "dragmode": "zoom",
    }
    return Plot(data, layout | more, label, finding, height)


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """Return an axis with a title and space for its labels."""
    plain = {"title": {"text": title, "standoff": 8}, "automargin": True, "zeroline": False}
    return plain | more


def log_axis(title: str, values: ArrayLike, **more: Any) -> dict[str, Any]:
    """Return a logarithmic axis with ticks at round numbers, for positive values.

    Examples
    --------
    >>> log_axis("a", [0.5, 30.0])["tickvals"]
    [0.5, 1, 2, 5, 10, 20, 50]
    >>> log_axis("a", [1e-4, 1e4])["ticktext"][:3]
    ['0.0001', '0.01', '1']
    """
    seen = np.asarray(values, dtype=np.float64).ravel()
    seen = seen[seen > 0]
    low, high = (seen.min(), seen.max()) if seen.size else (1.0, 1.0)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high) + 1e-9)
    steps = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    every = max(1, -(-(last - first) // 6)) if steps == (1,) else 1
    ticks = [m * 10.0**e for e in range(first, last + 1, every) for m in steps]
    kept = [t for t in ticks if low / 2 < t < high * 2] if steps != (1,) else ticks
    return axis(
        title,
        type="log",
        tickvals=[number(t) for t in kept],
        ticktext=[f"{t:,.0f}" if 1000 <= t < 1e6 else f"{t:.6g}" for t in kept],
        **more,
    )


def named_axis(names: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return an axis with names at 0, 1, …, the first on top."""
    ticks = {"tickvals": list(range(len(names))), "ticktext": shown_all(names)}
    gap = {"showgrid": False, "ticklabelstandoff": 6, "range": [len(names) - 0.4, -0.6]}
    return axis() | gap | ticks | more


def points(x: ArrayLike, y: ArrayLike, colour: Any = BLUE, **more: Any) -> dict[str, Any]:
    """Return dots; `more` may set marker properties in `marker`."""
    marker = {"color": colour, "size": 6, "opacity": 0.75} | more.pop("marker", {})
    return {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(x),
        "y": numbers(y),
        "marker": marker,
        "hovertemplate": "%{x:.4~g}, %{y:.4~g}<extra></extra>",
    } | more


def bars(x: ArrayLike, y: ArrayLike, hover: str, digits: int = 4, **more: Any) -> dict[str, Any]:
    """Return vertical bars; horizontal ones with ``orientation="h"``."""
    found = {"type": "bar", "x": numbers(x, digits), "y": numbers(y), "marker": {"color": BLUE}}
    return found | {"hovertemplate": f"{hover}<extra></extra>"} | more


def histogram(values: Floats, bins: int | str, limit: float = math.inf) -> dict[str, Any]:
    """Return a histogram, in another colour beyond a limit.

    Examples
    --------
    >>> found = histogram(np.array([0.0, 0.1, 1.0]), 2, limit=0.5)
    >>> found["y"], [colour == VERMILION for colour in found["marker"]["color"]]
    ([2, 1], [False, True])
    """
    counts, edges = np.histogram(values, bins=bins)
    middle = (edges[1:] + edges[:-1]) / 2
    colours = [VERMILION if m > limit else BLUE for m in middle]
    colour = BLUE if limit == math.inf else colours
    return bars(middle, counts, "around %{x:.3~g}: %{y} rows", marker={"color": colour})


def line(x: ArrayLike, y: ArrayLike, colour: str = GREY, **more: Any) -> dict[str, Any]:
    """Return a line."""
    style = {"color": colour, "width": 1.6} | more.pop("line", {})
    found = {"type": "scatter", "mode": "lines", "x": numbers(x), "y": numbers(y), "line": style}
    return found | {"hoverinfo": "skip", "showlegend": False} | more


def band(x: ArrayLike, low: Floats, high: Floats, colour: str) -> list[dict[str, Any]]:
    """Return the area between two lines."""
    edge = {"line": {"width": 0}}
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    fill = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.22)"}
    return [line(x, low, colour, **edge), line(x, high, colour, **edge, **fill)]


def rule(at: float, across: str, colour: str = GREY, dash: str = "dash") -> dict[str, Any]:
    """Return a straight line through the whole figure: vertical at an x, horizontal at a y."""
    other = "y" if across == "x" else "x"
    place = {f"{across}0": number(at), f"{across}1": number(at), f"{other}0": 0, f"{other}1": 1}
    refs = {f"{across}ref": across, f"{other}ref": "paper"}
    style = {"type": "line", "line": {"color": colour, "width": 1.4, "dash": dash}}
    return style | place | refs


def number(value: float, digits: int = 4) -> float | int | None:
    """Return a number with a few significant digits; None where it is not finite.

    Examples
    --------
    >>> number(0.123456), number(1234567.0), number(float("nan"))
    (0.1235, 1235000, None)
    """
    value = float(value)
    if not math.isfinite(value):
        return None
    found = float(f"{value:.{digits}g}")
    return int(found) if found.is_integer() and abs(found) < 1e15 else found


def said(value: float, digits: int = 3) -> str:
    """Return a number as text: a few digits, powers of ten only if it is huge or tiny.

    Examples
    --------
    >>> said(1012.3), said(0.01234), said(-3.0), said(1e9), said(0.0)
    ('1,010', '0.0123', '-3', '1e+09', '0')
    """
    short = float(f"{float(value):.{digits}g}")
    if not 1e-4 <= abs(short) < 1e7:
        return f"{short:.{digits}g}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(short))))
    text = f"{short:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def numbers(values: ArrayLike, digits: int = 4) -> list[float | int | None]:
    """Return numbers with a few significant digits, at a third of the size in the file."""
    return [number(value, digits) for value in np.asarray(values, dtype=np.float64).ravel()]


def shown(name: object, longest: int = LONGEST) -> str:
    """Return a name for plotly: one line, not too long, markup escaped.

    Examples
    --------
    >>> shown("<b>a</b>"), shown("x" * 40, 6)
    ('&lt;b&gt;a&lt;/b&gt;', 'xxxxx…')
    """
    words = " ".join(str(name).split()) or "(no name)"
    return escape(words if len(words) <= longest else words[: longest - 1] + "…", quote=False)


def shown_all(names: Iterable[object], longest: int = LONGEST) -> list[str]:
    """Return names for plotly."""
    return [shown(name, longest) for name in names]


def labels(
    at: Floats, names: Sequence[str], span: Floats, side: Sequence[str], longest: int = 18
) -> list[dict[str, Any]]:
    """Return names next to places, moved up or down until none overlap.

    Parameters
    ----------
    at : array of shape (k, 2)
        Places in the units of the axes (exponents, where an axis is logarithmic).
    names : sequence of str
    span : array of shape (2,)
        Ranges of the axes.
    side : sequence of {'left', 'right', 'center'}
        Side of its place on which a name is written.

    Examples
    --------
    >>> both = labels(np.zeros((2, 2)), ["a", "b"], np.ones(2), ["right", "right"])
    >>> [one["yshift"] for one in both]
    [0, 16]
    """
    pixels = at / np.where(span > 0, span, 1.0) * SIZE
    taken: list[tuple[float, float, float]] = []
    found = []
    for (x, y), place, name, way in zip(pixels, at, names, side, strict=True):
        width = LETTER * (min(len(name), longest) + 1)
        left = {"right": x, "left": x - width, "center": x - width / 2}[way]
        shift = _free(left, y, width, taken)
        taken.append((left, y + shift, width))
        anchor = {"right": "left", "left": "right", "center": "center"}[way]
        where = {"x": number(place[0]), "y": number(place[1]), "yshift": int(shift)}
        words = {"text": f" {shown(name, longest)} ", "xanchor": anchor, "showarrow": False}
        found.append(where | words)
    return found


def _free(left: float, y: float, width: float, taken: list[tuple[float, float, float]]) -> float:
    """Return the smallest shift by whole lines after which a label overlaps no other."""
    for k in range(40):
        shift = LINE * ((k + 1) // 2) * (1 if k % 2 else -1)
        near = (
            abs(y + shift - other) < LINE and left < start + size and start < left + width
            for start, other, size in taken
        )
        if not any(near):
            return shift
    return 0.0


# --- small images ------------------------------------------------------------------------------

Bytes = NDArray[np.uint8]

# From Crameri's (2018) "vik": blue below, white at zero, red above, apart for any colour vision.
LOW, MIDDLE, HIGH = np.array([[0, 78, 148], [244, 240, 236], [160, 52, 8]], dtype=np.float64)
MISSING = (255, 170, 0)
"""Colour of missing pixels."""


def encode(pixels: Bytes) -> bytes:
    """Return RGB pixels (h, w, 3) as a PNG file.

    Examples
    --------
    >>> encode(np.zeros((2, 3, 3), dtype=np.uint8))[1:4]
    b'PNG'
    """
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()


def grey(image: Floats, low: float, high: float) -> Bytes:
    """Return an image as ink on paper: `low` is white, `high` black, missing pixels orange."""
    share = np.clip((image - low) / ((high - low) or 1.0), 0, 1)
    ink = 255 * (1 - np.nan_to_num(share))
    pixels = np.repeat(ink[..., None], 3, axis=-1)
    pixels[np.isnan(image)] = MISSING
    return pixels.round().astype(np.uint8)


def signed(image: Floats, largest: float) -> Bytes:
    """Return an image as blue (negative), white (zero) and red (positive)."""
    share = np.clip(image / (largest or 1.0), -1, 1)[..., None]
    ends = np.where(share < 0, LOW, HIGH)
    pixels: Floats = MIDDLE + np.abs(np.nan_to_num(share)) * (ends - MIDDLE)
    pixels[np.isnan(image)] = MISSING
    return pixels.round().astype(np.uint8)
