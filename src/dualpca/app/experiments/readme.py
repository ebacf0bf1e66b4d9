"""The picture of the README: a table with gaps, and what is filled in, with its error bars."""

from __future__ import annotations

from io import StringIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from dualpca import CopulaPPCA
from dualpca.app.experiments.canvas import BLUE, INK, MUTED, PALE, RED, Canvas
from dualpca.app.experiments.running import Outcome, experiment

LEVEL, DRAWN, SHOWN = 0.9, 9, 45
NUMBERS, COLUMN = ("temperature", "oxygen", "pH", "nitrate"), "nitrate"
GAP = "#ffe3d1"


@experiment(
    source="the README",
    title="What goes in and what comes out",
    caption="Left: the first rows of examples/water.csv, an invented table with ids, dates, text, "
    "gaps and values below a detection limit. Right: its column nitrate, measured and filled in, "
    "with 90 % intervals, beside the values that were removed.",
    test="test_experiments.py::test_the_picture_of_the_readme_says_what_it_shows",
)
def readme_picture(draw: Canvas) -> Outcome:
    """Draw a table with gaps, and a column of it filled in."""
    table, truth = water()
    figure, [sides] = draw.panels(1, 2, height=2.9, width_ratios=(1.15, 1))
    hits = [draw_side(side, ax, table, truth) for side, ax in enumerate(sides)][1]
    return Outcome(
        {"picture": figure},
        {
            "share_of_90_percent_intervals_that_hold": float(hits.mean()),
            "filled_numbers": len(hits),
        },
        f"Of the 90 % intervals of {len(hits)} numbers that were filled in, {hits.mean():.0%} "
        "contain the value that was removed.",
        "No document has this picture.",
        "an invented table of 120 samples of water",
    )


def draw_side(
    side: int, ax: Axes, table: dict[str, list[str]], truth: dict[str, NDArray[np.float64]]
) -> NDArray[np.bool_]:
    """Draw what goes in (0) or what comes out (1); return which 90 % intervals hold."""
    if side == 0:
        _rows(ax, table)
        return np.empty(0, dtype=bool)
    filled, low, high = _filled(table)
    gaps = {name: np.asarray([v == "" for v in table[name]]) for name in NUMBERS}
    _column(ax, gaps[COLUMN], truth[COLUMN], filled[COLUMN], low[COLUMN], high[COLUMN])
    holds = [((low[k] <= truth[k]) & (truth[k] <= high[k]))[gaps[k]] for k in NUMBERS]
    return np.concatenate(holds)


def _filled(table: dict[str, list[str]]) -> list[dict[str, NDArray[np.float64]]]:
    """Return the columns of numbers, filled, and both ends of the intervals."""
    import polars as pl

    frame = pl.read_csv(StringIO(written(table))).drop("sample", "date")
    found = CopulaPPCA().fit(frame).impute(frame, return_interval=True, level=LEVEL)
    return [{name: np.asarray(one[name]) for name in NUMBERS} for one in found]


def water() -> tuple[dict[str, list[str]], dict[str, NDArray[np.float64]]]:
    """Return a table as a laboratory writes it, and its numbers before any went missing.

    Examples
    --------
    >>> table, truth = water()
    >>> [column[0] for column in table.values()]
    ['A1', '2026-03-02', '', '6.2', '11.2', '7.05', '', '1.09']
    """
    rng, n = np.random.default_rng(0), 120
    season = np.linspace(-1.5, 1.5, n) + 0.4 * rng.normal(size=n)
    farming = rng.normal(size=n)
    truth = {
        "temperature": (11 + 4 * season + 0.8 * rng.normal(size=n)).round(1),
        "oxygen": (10 - 1.5 * season - 0.5 * farming + 0.4 * rng.normal(size=n)).round(1),
        "pH": (7.4 + 0.2 * season - 0.15 * farming + 0.1 * rng.normal(size=n)).round(2),
        "nitrate": np.exp(1.5 + 0.6 * farming + 0.2 * rng.normal(size=n)).round(1),
        "phosphate": np.exp(-0.6 + 0.7 * farming + 0.3 * rng.normal(size=n)).round(2),
    }
    days = np.datetime64("2026-03-02") + np.arange(n)
    fields = farming + 0.5 * rng.normal(size=n) > 0
    table: dict[str, list[str]] = {
        "sample": [f"A{k}" for k in range(1, n + 1)],
        "date": [str(day) for day in days],
        "site": ["fields" if one else "forest" for one in fields],
    }
    for name, column in truth.items():
        digits = 2 if name in ("pH", "phosphate") else 1
        table[name] = [f"{v:.{digits}f}" for v in column]
    table["phosphate"] = [v if float(v) >= 0.3 else "<0.3" for v in table["phosphate"]]
    for name in list(table)[2:]:
        lost = rng.random(n) < 0.12
        table[name] = ["" if gone else v for gone, v in zip(lost, table[name], strict=True)]
    return table, truth


def written(table: dict[str, list[str]]) -> str:
    r"""Return a table as CSV.

    Examples
    --------
    >>> written({"a": ["1", ""], "b": ["x", "<2"]})
    'a,b\n1,x\n,<2\n'
    """
    lines = [",".join(row) for row in zip(*table.values(), strict=True)]
    return "\n".join([",".join(table), *lines, ""])


def _rows(ax: Axes, table: dict[str, list[str]]) -> None:
    """Draw the first rows of the table, with its gaps marked."""
    shown = ("sample", "date", "site", "oxygen", "nitrate", "phosphate")
    cells = [[table[name][k] for name in shown] for k in range(DRAWN)]
    widths = (0.14, 0.22, 0.13, 0.15, 0.15, 0.2)
    drawn: Any = ax.table(cells, colLabels=shown, colWidths=widths, loc="center", cellLoc="right")
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(8)
    drawn.scale(1, 1.32)
    for (row, column), cell in drawn.get_celld().items():
        gap = row > 0 and not cells[row - 1][column]
        cell.set(edgecolor=PALE, linewidth=0.5, facecolor=GAP if gap else "white")
        cell.get_text().set_color(MUTED if row == 0 else INK)
    ax.set(title="in: a table with gaps")
    ax.set_axis_off()


def _column(
    ax: Axes,
    gaps: NDArray[np.bool_],
    truth: NDArray[np.float64],
    filled: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> None:
    """Draw a column: what was measured, what was filled in, and what was removed."""
    row = np.arange(1, len(filled) + 1)
    first = row <= SHOWN
    known, new = first & ~gaps, first & gaps
    reach = np.stack([filled - low, high - filled])
    ax.plot(row[known], filled[known], "o", ms=3.2, color=PALE, mew=0, label="measured")
    ax.errorbar(
        row[new],
        filled[new],
        reach[:, new],
        fmt="o",
        ms=4,
        color=BLUE,
        elinewidth=1.6,
        label="filled in, 90 % interval",
    )
    ax.plot(row[new], truth[new], "x", ms=5, mew=1.4, color=RED, label="true value")
    ax.set(title="out: nitrate, filled in", xlabel="sample", ylim=(0, None))
    ax.legend(loc="upper left", fontsize=8, handletextpad=0.3, borderaxespad=0)
    ax.set_ylim(0, 1.35 * high[first].max())
