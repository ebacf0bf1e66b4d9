"""What all figures share: where to draw, colours for any style, labels that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from matplotlib import rcParams, rcParamsDefault
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb, to_rgba
from matplotlib.figure import Figure, FigureBase, SubFigure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse, Patch
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation, Text
from numpy.typing import NDArray
from scipy import stats

from dualpca.errors import expected
from dualpca.gaussian import Supplementary

Floats = NDArray[np.float64]

DPI = 240
"""More than twice a screen's 100 dots per inch, for crisp figures in print."""
WIDTH = 6.0
BLUE, VERMILION = "#0072b2", "#c04a00"
# Tol's (2021) muted scheme and black: apart for any colour vision (CIELAB distance 15 or more).
_TOL = "332288 cc6677 117733 88ccee 882255 999933 44aa99 aa4499 ddcc77 000000"
PALETTE = tuple("#" + code for code in _TOL.split())
BRIGHT_BLUE, BRIGHT_VERMILION = "#56b4e9", "#ff7f3f"
_BRIGHT = "56b4e9 ff7f3f 1fc08e e79bc4 f0e442 e69f00 4a7fe0 bbff99"
BRIGHT_PALETTE = tuple("#" + code for code in _BRIGHT.split())
"""The same on a dark face, where Tol's darkest cannot be seen."""
SMALL = "medium"
"""Size of all words, relative to the style's ``font.size``."""
TINY = "x-small"
"""Of names of rows, which may be many."""
DASHED = (0, (5, 3))

# --- where to draw -----------------------------------------------------------------------------

Place: TypeAlias = Axes | FigureBase | Sequence[Axes] | NDArray[Any] | None
"""What `ax=` accepts: axes, a whole figure or a part of one; None for a new figure."""

_MANAGED: ContextVar[bool] = ContextVar("managed", default=True)


@contextmanager
def unmanaged() -> Iterator[None]:
    """Make figures that pyplot does not know, for programs that save them and draw many."""
    token = _MANAGED.set(False)
    try:
        yield
    finally:
        _MANAGED.reset(token)


@dataclass(frozen=True)
class Ink:
    """Colours that can be read on an axes, whatever its style.

    Attributes
    ----------
    face, text : str
        Of the axes and its labels.
    muted, grid : str
        Between them: for lines and words that matter less, and for lines that hardly do.
    blue, vermilion : str
        Ordinary and unusual, more and less.
    palette : tuple of str
        For classes: the style's cycle, if it is not matplotlib's own.
    """

    face: str
    text: str
    muted: str
    grid: str
    blue: str
    vermilion: str
    palette: tuple[str, ...]

    @classmethod
    def of(cls, ax: Axes) -> Ink:
        """Return the colours for an axes, from its face and labels."""
        face, text = _face(ax), to_hex(ax.xaxis.label.get_color())
        if contrast(face, text) < LEGIBLE:
            text = max(("#000000", "#ffffff"), key=lambda colour: contrast(face, colour))
        dark = bool(_luminance(face) < _luminance(text))
        pair = (BRIGHT_BLUE, BRIGHT_VERMILION) if dark else (BLUE, VERMILION)
        shades = [mixed(text, face, share) for share in (0.3, 0.2, 0.1, 0.0)]
        muted = next(shade for shade in shades if contrast(shade, face) >= LEGIBLE)
        return cls(face, text, muted, mixed(text, face, 0.88), *pair, _cycle(dark))

    @property
    def dark(self) -> bool:
        """Whether words are lighter than what they stand on."""
        return self.blue == BRIGHT_BLUE

    def diverging(self) -> LinearSegmentedColormap:
        """Return colours from blue (negative) over the face to red (positive)."""
        ends = ["#053061", "#3a8ac0", self.face, "#d0573f", "#67001f"]
        if self.dark:
            ends = ["#a8d8f5", "#2f7fc4", self.face, "#c93c32", "#ffb599"]
        return LinearSegmentedColormap.from_list("diverging", ends)


LEGIBLE = 3.0
"""Least contrast of words (WCAG 2 asks for 3 where they are large)."""


def contrast(one: Any, other: Any) -> float:
    """Return how much lighter one of two colours is, from 1 to 21.

    Examples
    --------
    >>> round(contrast("black", "white"))
    21
    """
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mixed(one: Any, other: Any, share: float) -> str:
    """Return a colour between two.

    Examples
    --------
    >>> mixed("black", "white", 0.2)
    '#333333'
    """
    pairs = zip(to_rgb(one), to_rgb(other), strict=True)
    red, green, blue = (low + share * (high - low) for low, high in pairs)
    return to_hex((red, green, blue))


def _luminance(colour: Any) -> float:
    c = np.asarray(to_rgb(colour))
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def _face(ax: Axes) -> str:
    """Return the colour behind an axes: its own on that of its figure, on white."""
    found = "#ffffff"
    for colour in (root(ax).get_facecolor(), ax.get_facecolor()):
        found = mixed(found, colour, to_rgba(colour)[3])
    return found


def _cycle(dark: bool) -> tuple[str, ...]:
    """Return colours for classes: of the user's style, otherwise ours."""
    found = rcParams["axes.prop_cycle"]
    if found != rcParamsDefault["axes.prop_cycle"] and "color" in found.keys:
        return tuple(to_hex(colour) for colour in found.by_key()["color"])
    return BRIGHT_PALETTE if dark else PALETTE


def root(ax: Axes) -> Figure:
    """Return the figure that an axes is in, through any number of subfigures."""
    found: Figure = ax.figure.canvas.figure
    return found


@dataclass(frozen=True)
class Sheet:
    """Axes to draw into.

    Attributes
    ----------
    figure : Figure
        That they are in.
    axes : list of Axes
        One for each panel.
    region : Figure, SubFigure or None
        That is ours to put a legend in; None if it goes into the axes.
    ink : Ink
    """

    figure: Figure
    axes: list[Axes]
    region: FigureBase | None
    ink: Ink

    @property
    def ax(self) -> Axes:
        """The first of the axes."""
        return self.axes[0]

    def key(
        self,
        marks: Sequence[Any],
        words: Sequence[str],
        below: bool = False,
        full: bool = False,
    ) -> None:
        """Draw a legend above (or below) the axes; inside axes that were given, unless `full`."""
        style: dict[str, Any] = {"labelcolor": self.ink.text, "fontsize": SMALL}
        if self.region is not None:
            style |= {"loc": "outside lower center" if below else "outside upper center"}
            wide = self.figure.get_figwidth()
            if isinstance(self.region, SubFigure):
                wide = self.region.bbox.width / self.figure.dpi
            self.region.legend(marks, words, ncols=columns_of(words, wide), frameon=False, **style)
            return
        drawn = sum(np.size(points.get_offsets()) for points in self.ax.collections)
        style |= {"loc": "best" if drawn < MANY else "upper right"}
        if full:
            style |= {"loc": "upper left", "bbox_to_anchor": (1.02, 1.0), "borderaxespad": 0.0}
        self.ax.legend(marks, words, facecolor=self.ink.face, **style)


def columns_of(words: Sequence[str], wide: float) -> int:
    """Return the number of columns, up to five, in which a legend of so many inches has room.

    Examples
    --------
    >>> columns_of(["a", "b", "c"], 6.0), columns_of(["a long name of a class"] * 4, 6.0)
    (3, 2)
    """
    letter = 0.58 * FontProperties(size=SMALL).get_size_in_points() / 72
    for count in range(min(len(words), 5), 1, -1):
        columns = np.array_split([len(word) for word in words], count)  # as matplotlib does
        if sum(MARK + letter * float(column.max()) for column in columns) <= wide:
            return count
    return 1


MARK = 0.65
"""Inches of a mark in a legend, and of the space around it."""

MANY = 4000
"""Coordinates from which the best place for a legend takes long to find."""


def canvas(
    ax: Place,
    height: float,
    make: Callable[[FigureBase], Sequence[Axes]] | None = None,
    *,
    count: int | Sequence[int] = 1,
    width: float = WIDTH,
    layout: Any = "constrained",
) -> Sheet:
    """Return where to draw: axes that were given, or new ones in a figure.

    Parameters
    ----------
    ax : Axes, sequence of Axes, Figure, SubFigure or None
    height, width : float
        Of a new figure, in inches.
    make : callable, optional
        Adds axes to a figure; one for all of it by default.
    count : int or sequence of int
        Numbers of axes that may be given.
    layout : str
        Layout of a new figure, or of one that has neither layout nor axes.
    """
    if ax is None:
        region: FigureBase = _new_figure(width, height, layout)
    elif isinstance(ax, FigureBase):
        region = ax
        if isinstance(ax, Figure) and not ax.axes and ax.get_layout_engine() is None:
            ax.set_layout_engine(layout)
    else:
        axes = _given(ax, [count] if isinstance(count, int) else list(count))
        return Sheet(root(axes[0]), axes, None, Ink.of(axes[0]))
    axes = list(make(region) if make else [region.add_subplot()])
    figure, ink = root(axes[0]), Ink.of(axes[0])
    for one in axes:
        _dress(one, ink)
    arranged = isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine)
    return Sheet(figure, axes, region if arranged else None, ink)


def _new_figure(width: float, height: float, layout: Any) -> Figure:
    size: Any = {"figsize": (width, height), "layout": "constrained"}
    if not _MANAGED.get():
        figure = Figure(**size)
    else:
        from matplotlib import pyplot  # chooses a window system: not before one is needed

        figure = pyplot.figure(**size)
    figure.set_layout_engine(layout)  # one that is replaced by none is not made again by a style
    return figure


def _given(ax: Axes | Sequence[Axes] | NDArray[Any], counts: list[int]) -> list[Axes]:
    """Return axes as a list, once they are checked."""
    found = [ax] if isinstance(ax, Axes) else list(np.ravel(np.asarray(ax, dtype=object)))
    several = " or ".join(map(str, counts))
    what = "a matplotlib Axes" if counts == [1] else f"{several} matplotlib Axes"
    what += ", or a Figure or SubFigure to add them to"
    if not all(isinstance(one, Axes) for one in found):
        raise TypeError(expected("ax", what, ax))
    if len(found) not in counts:
        raise ValueError(expected("ax", what, f"{len(found)} Axes"))
    return found


def _dress(ax: Axes, ink: Ink) -> None:
    """Give new axes what the style leaves open: no frame above and beside, a faint grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    if not rcParams["axes.grid"]:
        ax.grid(color=ink.grid, lw=0.8)


def equal(ax: Axes) -> None:
    """Give both axes one unit: by their limits, where they are not shared with other axes."""
    shared = (ax.get_shared_x_axes(), ax.get_shared_y_axes())
    both = all(len(group.get_siblings(ax)) > 1 for group in shared)
    ax.set(aspect="equal", adjustable="box" if both else "datalim")


def mark(colour: str, shape: str = "o") -> Line2D:
    """Return a marker for a legend; '--' is a dashed line."""
    if shape == "--":
        return Line2D([], [], color=colour, lw=1.2, ls=DASHED)
    return Line2D([], [], ls="", marker=shape, ms=6, color=colour)


GROUPS = ("mean", "rows", "both")
"""Which ellipses of groups can be drawn."""

FEWEST = 3
"""Rows from which a group has ellipses in the plane."""


def check_groups(groups: str | None, y: Any, level: float) -> None:
    """Refuse other words than those of `GROUPS`, and ellipses without groups."""
    if groups is None:
        return
    if not isinstance(groups, str) or groups not in GROUPS:
        what = f"one of {list(GROUPS)} or None"
        raise ValueError(expected("groups", what, groups, "The groups themselves are y."))
    if y is None:
        raise ValueError(expected("y", "the group of every row, for ellipses of groups", None))
    check_level(level)


def check_level(level: float) -> None:
    """Refuse what is no probability."""
    if not 0 < level < 1:
        raise ValueError(expected("level", "a number between 0 and 1, both excluded", level))


def group_ellipses(Z: Floats, level: float) -> tuple[Floats, Floats, float, float]:
    """Return mean (2,) and covariance (2, 2) of a group in the plane, and radii of its ellipses.

    A further row of the group lies within the first with probability `level`, the mean of all
    such rows within the second, if rows are normal: T² by quantiles of F with 2 and n − 2 degrees
    of freedom. For many rows they are roots of the quantile of χ², and of that by n.

    Examples
    --------
    >>> Z = np.random.default_rng(0).normal(size=(1000, 2))
    >>> radii = group_ellipses(Z, 0.95)[2:]
    >>> [round(float(r * f), 2) for r, f in zip(radii, (1, 1000**0.5))]
    [2.45, 2.45]
    """
    n = len(Z)
    spread = 2 * (n - 1) / (n - 2) * float(stats.f.ppf(level, 2, n - 2))
    radii = (float(np.sqrt(spread * (1 + 1 / n))), float(np.sqrt(spread / n)))
    return Z.mean(axis=0), np.cov(Z.T), *radii


def draw_groups(
    sheet: Sheet, Z: Floats, classed: Classed, groups: str, level: float
) -> tuple[list[Any], list[str]]:
    """Draw ellipses of groups in the plane; return marks and words for a legend."""
    ax, (names, codes, colours) = sheet.ax, classed
    chosen = [one for one in LOOKS if groups in (one, "both")]
    for code in range(len(names)):
        mine = Z[codes == code]
        if len(mine) < FEWEST or colours[code] == sheet.ink.muted:  # rows without a group are none
            continue
        centre, covariance, *radii = group_ellipses(mine, level)
        for one, radius in zip(LOOKS, radii, strict=True):
            if one in chosen:
                ax.add_patch(ellipse(centre, covariance, radius, color=colours[code], **LOOKS[one]))
        (cross,) = ax.plot(*centre, "P", ms=6, color=colours[code], zorder=4.2)
        cross.set(mec=sheet.ink.text, mew=0.7)
        cross.set_path_effects([withStroke(linewidth=2.6, foreground=sheet.ink.face)])
    ax.autoscale_view()
    marks = [Patch(color=sheet.ink.muted, **LOOKS[one]) for one in chosen]
    return marks, [f"{100 * level:g} % {WHOSE[one]}" for one in chosen]


LOOKS: dict[str, dict[str, Any]] = {
    "rows": {"fill": False, "lw": 1.4, "zorder": 2.5},
    "mean": {"fill": True, "alpha": 0.45, "lw": 1.0, "zorder": 4.0},
}
"""How ellipses of groups are drawn, in the order of their radii."""

WHOSE = {"rows": "of the rows", "mean": "for the mean"}


def ellipse(centre: Floats, covariance: Floats, radius: float, **look: Any) -> Ellipse:
    """Return the ellipse (z − m)ᵀS⁻¹(z − m) = radius²."""
    values, vectors = np.linalg.eigh(covariance)
    width, height = 2 * radius * np.sqrt(np.maximum(values, 0))
    angle = math.degrees(math.atan2(vectors[1, 0], vectors[0, 0]))
    return Ellipse((float(centre[0]), float(centre[1])), width, height, angle=angle, **look)


def row_names(labels: Any, X: Any, n: int) -> list[str] | None:
    """Return the names of rows: as given, or for True those of a frame's index or numbers."""
    if labels is None or labels is False:
        return None
    found = getattr(X, "index", range(n)) if labels is True else labels
    if isinstance(found, str) or not hasattr(found, "__len__") or len(found) != n:
        got = len(found) if hasattr(found, "__len__") and not isinstance(found, str) else found
        raise ValueError(expected("labels", f"True, or a name for each of the {n} rows", got))
    return ["" if is_missing(name) else str(name) for name in found]


def label_rows(
    sheet: Sheet,
    Z: Floats,
    names: list[str] | None,
    clear: Floats,
    around: Sequence[Annotation],
) -> None:
    """Write names next to rows, away from the middle; rows without a name have none."""
    if names is None:
        return
    away = Z - Z.mean(axis=0)
    named = np.flatnonzero([bool(name) for name in names])
    some = named[foremost(np.linalg.norm(away[named], axis=1), MOST_NAMES)]
    look: Any = {"around": around, "size": TINY, "crowded": len(named) - len(some)}
    words = [names[i] for i in some]
    label_points(sheet, Z[some], words, away[some], np.concatenate([Z, clear]), **look)


MOST_NAMES = 300
"""Rows whose names are tried, those furthest from the middle: no more have room in a figure."""

MOST_LEVELS = 15
"""Barycentres in a figure."""


def draw_supplementary(
    sheet: Sheet, found: Supplementary, plane: list[int]
) -> tuple[Floats, list[str]]:
    """Draw supplementary rows and the barycentres of levels, those that stand out most.

    Return places (g, 2) and names of the latter.
    """
    ax, ink = sheet.ax, sheet.ink
    if found.rows is not None:
        x, y = found.rows.coordinates[:, plane].T
        ax.scatter(x, y, c=ink.muted, s=22, marker="x", linewidths=1.1, zorder=3)
    size = np.abs(np.nan_to_num(found.levels.v_test[:, plane])).max(axis=1)
    shown = foremost(size, MOST_LEVELS)
    centres: Floats = found.levels.coordinates[shown][:, plane]
    x, y = centres.T
    diamonds: Any = {"marker": "D", "edgecolors": ink.text, "linewidths": 1.4, "zorder": 4.5}
    ax.scatter(x, y, c=ink.face, s=46, **diamonds)
    return centres, [found.levels.names[i] for i in shown]


# --- names and labels --------------------------------------------------------------------------

NO_BOXES: Floats = np.zeros((0, 2, 2))

GAP, DOT = 2.0, 3.0
"""Space between labels and around points, in points on the page."""

ANGLES, DISTANCES = 24, (0.0, 5.0, 10.0, 16.0, 24.0, 34.0, 46.0)
"""Places that are tried for a label: directions, and distances in points on the page."""

FAR_OFF = 26.0
"""Distance of a label from its point beyond which a crowded one is left out."""

NEAR = 9.0
"""Distance from which a thin line connects a label with its point."""

ROUNDS = 8
"""Times that every label may move to a cheaper place."""

OUTSIDE, ON_LABEL, ON_POINT, ON_CLEAR, PER_POINT, TURNED = 1e4, 1e3, 50.0, 0.3, 0.2, 2.0
"""Costs of a place: outside the frame, on a label, a labelled or other point, far, opposite."""


def feature_names(model: Any) -> list[str]:
    """Return the names of the features of a model; x0, x1, … by default.

    A model of columns of any kind has a loading per level: those have names of their own.
    """
    if hasattr(model, "loading_names_"):
        return [str(name) for name in model.loading_names_]
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return [f"x{j}" for j in range(int(model.n_features_in_))]
    return [str(name) for name in names]


def nameless(model: Any) -> Any:
    """Return a model that accepts arrays where it was fitted to a frame."""
    found = copy(model)
    vars(found).pop("feature_names_in_", None)
    return found


def need(model: Any, plot: str, what: str, *attributes: str, instead: str = "") -> None:
    """Refuse a model that has not what a figure draws, in words.

    Parameters
    ----------
    model : estimator
    plot : str
        The function that was called.
    what : str
        What it draws, for the message.
    *attributes : str
        Attributes and methods that the model must have.
    instead : str, optional
        What to do with a model that has it not.
    """
    kind = type(model).__name__
    if hasattr(model, "n_mixtures_") and PER_GROUP & set(attributes):
        raise TypeError(
            f"plots.{plot} draws {what}, and {kind} has those of every group apart, not one of "
            "all rows. Draw a model of the rows of one group: X[model.predict(X) == 0]."
        )
    if _has(model, attributes):
        return
    around = [name for name in ("model_", "estimator_") if hasattr(model, name)]
    inside = [name for name in around if _has(getattr(model, name), attributes)]
    advice = f"Draw what it fitted: plots.{plot}(model.{inside[0]}, …)." if inside else instead
    raise TypeError(f"plots.{plot} draws {what}, which {kind} does not have. {advice or INSTEAD}")


def _has(model: Any, attributes: Sequence[str]) -> bool:
    return all(hasattr(model, name) for name in attributes)


PER_GROUP = {"components_", "explained_variance_", "transform", "outliers", "contributions"}
"""What a mixture has of every group, if at all."""

INSTEAD = "PCA, PPCA, RobustPPCA, BayesianPCA and FactorAnalysis do."

Classed: TypeAlias = tuple[list[str], NDArray[np.intp], list[str]]
"""Names, the code of every row (n,), and colours of classes."""

NO_CLASS = "missing"
"""Name of the rows without a class."""


def classes(y: Any, n: int, palette: Sequence[str] = PALETTE, other: str = "grey") -> Classed:
    """Return names, the code of every row (n,), and colours of classes; rows without one are grey.

    Examples
    --------
    >>> names, codes, _ = classes(["b", None, "a", float("nan")], 4)
    >>> names, codes.tolist()
    (['a', 'b', 'missing'], [1, 2, 0, 2])
    """
    values = y.to_list() if hasattr(y, "to_list") else np.asarray(y, dtype=object).ravel().tolist()
    if len(values) != n:
        raise ValueError(expected("y", f"a class for each of the {n} rows", len(values)))
    known = [value for value in values if not is_missing(value)]
    try:
        order = sorted(set(known))
    except TypeError:  # numbers beside text
        order = sorted(set(known), key=str)
    place = {value: code for code, value in enumerate(order)}
    codes = np.array(
        [place.get(v, len(order)) if not is_missing(v) else len(order) for v in values]
    )
    names, colours = [str(v) for v in order], [palette[k % len(palette)] for k in range(len(order))]
    if len(known) < len(values):
        names, colours = [*names, NO_CLASS], [*colours, other]
    return names, codes.astype(np.intp), colours


def is_missing(value: Any) -> bool:
    """Return True for None, NaN, and what pandas writes where a value is missing."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def floats_of(X: Any) -> Floats:
    """Return a table of numbers, (n, d), also a frame of pandas' own dtypes; NaN where missing."""
    cells = np.array(X)
    if cells.dtype.kind == "O":
        cells[np.vectorize(is_missing, otypes=[bool])(cells)] = np.nan
    return cells.astype(np.float64)


def foremost(sizes: Floats, count: int) -> NDArray[np.intp]:
    """Return the positions of the `count` largest, in increasing order."""
    return np.sort(np.argsort(-sizes, kind="stable")[:count])


def label_points(
    sheet: Sheet,
    points: Floats,
    words: Sequence[str],
    away: Floats,
    clear: Floats,
    *,
    around: Sequence[Annotation] = (),
    size: str = SMALL,
    crowded: int | None = None,
) -> list[Annotation]:
    """Write labels next to points, without overlaps as far as possible.

    Parameters
    ----------
    sheet : Sheet
        With its final limits: places are found in points on the page.
    points : array of shape (k, 2)
        In data coordinates.
    words : sequence of k str
    away : array of shape (k, 2)
        Preferred direction of each label, of any length.
    clear : array of shape (m, 2)
        Other points that labels should not cover if possible.
    around : sequence of Annotation, default=()
        Labels that stay where they are.
    size : str, default='medium'
        Of the letters.
    crowded : int, default=None
        Number of labels that were left out before, where there may be more than have room: those
        are left out too that would cover another label or point, or stand far from their own, and
        how many is written within the axes.
    """
    ax, ink = sheet.ax, sheet.ink
    plate = {"boxstyle": "square,pad=0.1", "fc": ink.face, "ec": "none", "alpha": 0.7}
    thread = {"arrowstyle": "-", "color": ink.muted, "lw": 0.6, "shrinkA": 0, "shrinkB": 1}
    style = {"ha": "center", "va": "center", "fontsize": size, "color": ink.text, "zorder": 5}
    labels = [
        ax.annotate(word, (x, y), (0, 0), textcoords="offset points", bbox=plate, arrowprops=thread)
        for (x, y), word in zip(points.tolist(), words, strict=True)
    ]
    for label in labels:
        label.set(**style)
    if not labels:
        return labels
    note = None if crowded is None else _note(sheet, "000 labels have no room")
    fixed = [*around, *([] if note is None else [note])]
    hidden = _arrange(ax, labels, points, away, clear, fixed)
    if crowded is None or note is None:
        return labels
    for label, gone in zip(labels, hidden, strict=True):
        if gone:
            label.remove()
    count = crowded + int(hidden.sum())
    note.set_text("1 label has no room" if count == 1 else f"{count} labels have no room")
    if not count:
        note.remove()
    return [label for label, gone in zip(labels, hidden, strict=True) if not gone]


def _note(sheet: Sheet, words: str) -> Annotation:
    """Write within the lower right corner."""
    inside: Any = {"xycoords": "axes fraction", "textcoords": "offset points", "zorder": 5}
    text = sheet.ax.annotate(words, (1, 0), (-3, 3), ha="right", va="bottom", **inside)
    text.set(fontsize=TINY, style="italic", color=sheet.ink.muted)
    return text


def _arrange(
    ax: Axes,
    labels: list[Annotation],
    points: Floats,
    away: Floats,
    clear: Floats,
    around: Sequence[Annotation],
) -> NDArray[np.bool_]:
    """Place the labels where each costs least; return which have no good place, (k,)."""
    figure = root(ax)
    figure.draw_without_rendering()  # places the axes
    unit = 72 / figure.dpi
    half = unit / 2 * np.array([_size(label) for label in labels]) + GAP / 2
    origin, dots = (unit * ax.transData.transform(part) for part in (points, clear))
    frame = unit * ax.get_window_extent().get_points()
    boxes = [unit * Text.get_window_extent(label).get_points() for label in around]
    taken = np.array(boxes).reshape(-1, 2, 2)
    places = find_places(origin, half, away, frame, dots, taken)
    gaps = np.linalg.norm(np.maximum(np.abs(places - origin) - half, 0.0), axis=1)
    for label, shift, gap in zip(labels, (places - origin).tolist(), gaps, strict=True):
        label.set_position(tuple(shift))
        if label.arrow_patch is not None:
            label.arrow_patch.set_visible(bool(gap > NEAR))
    covers = [_within(dots, *box).any() for box in zip(places, half, strict=True)]
    stray = np.array(covers) | (gaps > FAR_OFF)
    return _crowded_out(places, half, frame, taken, stray)


def _crowded_out(
    places: Floats,
    half: Floats,
    frame: Floats,
    taken: Floats = NO_BOXES,
    stray: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """Return which boxes to leave out so that the others are free, those in most ways first.

    Examples
    --------
    >>> row = np.array([[5.0, 5.0], [8.0, 5.0], [11.0, 5.0]])
    >>> frame = np.array([[0.0, 0.0], [20.0, 20.0]])
    >>> _crowded_out(row, np.full((3, 2), 2.0), frame)
    array([False,  True, False])
    """
    near = np.abs(places[:, None] - places) < half[:, None] + half
    both = near.all(axis=2) & ~np.eye(len(places), dtype=bool)
    gone = ((places - half < frame[0]) | (places + half > frame[1])).any(axis=1)
    gone |= _on_boxes(places, half, taken) > 0
    if stray is not None:
        gone |= stray
    while True:
        count = (both & ~gone & ~gone[:, None]).sum(axis=1)
        if not count.any():
            return np.asarray(gone)
        gone[int(np.argmax(count))] = True


def _size(label: Annotation) -> tuple[float, float]:
    box = Text.get_window_extent(label)  # without the connecting line
    return box.width, box.height


def find_places(
    origin: Floats,
    half: Floats,
    away: Floats,
    frame: Floats,
    clear: Floats,
    taken: Floats = NO_BOXES,
) -> Floats:
    """Return centres of boxes next to their points, the cheapest place for each in turn.

    Once all have a place, those that cover others move in turn to a cheaper one, until none does: a
    box that came early did not know the others.

    Parameters
    ----------
    origin, half : arrays of shape (k, 2)
        The points, and half the widths and heights of their boxes.
    away : array of shape (k, 2)
        Preferred directions.
    frame : array of shape (2, 2)
        Lower left and upper right corner.
    clear : array of shape (m, 2)
    taken : array of shape (b, 2, 2)
        Lower left and upper right corners of boxes that stay.

    Returns
    -------
    array of shape (k, 2)

    Examples
    --------
    >>> frame, point = np.array([[0.0, 0.0], [99.0, 99.0]]), np.array([[50.0, 50.0]])
    >>> find_places(point, np.ones((1, 2)), np.array([[1.0, 0.0]]), frame, np.zeros((0, 2)))
    array([[54., 50.]])
    """
    turn = 2 * np.pi * np.arange(ANGLES) / ANGLES
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    places, tried, alone = np.zeros_like(origin), [], []
    for i in range(len(origin)):
        reach = half[i] + DOT + np.array(DISTANCES)[:, None, None]
        tried.append((origin[i] + circle * reach).reshape(-1, 2))
        outside = (tried[i] - half[i] < frame[0]) | (tried[i] + half[i] > frame[1])
        straight = circle @ (away[i] / max(float(np.linalg.norm(away[i])), 1e-300))
        cost = TURNED * np.tile((1 - straight) / 2, len(DISTANCES))
        cost += PER_POINT * np.repeat(DISTANCES, ANGLES) + OUTSIDE * outside.any(axis=1)
        near = 2 * half[i] + 2 * DOT + DISTANCES[-1]  # beyond nothing can be covered
        points, others = (part[_within(part, origin[i], near)] for part in (origin, clear))
        cost += ON_POINT * _covered(tried[i], points, half[i] + DOT)
        cost += ON_LABEL * _on_boxes(tried[i], half[i], taken)
        alone.append(cost + ON_CLEAR * _covered(tried[i], others, half[i]))
    order = np.argsort(-half[:, 0], kind="stable")  # longest first: it has few places
    placed = np.zeros(len(origin), dtype=bool)
    for again in range(ROUNDS):
        before = places.copy()
        for i in order:
            placed[i] = False
            near = 2 * half[i] + half.max(axis=0) + DOT + DISTANCES[-1]
            mine = placed & _within(places, origin[i], near)
            others, reach = places[mine], half[i] + half[mine]
            if not again or _covered(places[[i]], others, reach)[0]:
                cost = alone[i] + ON_LABEL * _covered(tried[i], others, reach)
                places[i] = tried[i][int(np.argmin(cost))]
            placed[i] = True
        if np.array_equal(places, before):
            break
    return places


def _within(points: Floats, centre: Floats, reach: Floats) -> NDArray[np.bool_]:
    """Return which points lie within `reach` of a centre, sideways and upwards."""
    return np.asarray((np.abs(points - centre) < reach).all(axis=1))


def _on_boxes(centres: Floats, half: Floats, taken: Floats) -> Floats:
    """Return how many boxes each of those with such centres overlaps."""
    return _covered(centres, taken.mean(axis=1), half[..., None, :] + np.ptp(taken, axis=1) / 2)


def _covered(centres: Floats, others: Floats, reach: Floats) -> Floats:
    """Return how many of `others` lie within `reach` of each centre, sideways and upwards."""
    near = np.abs(centres[:, None, :] - others) < reach
    return np.asarray(near.all(axis=2).sum(axis=1), dtype=np.float64)
