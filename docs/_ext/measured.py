"""Pictures of what was measured, drawn from the tables of docs/benchmarks.md at every build."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from sphinx.application import Sphinx

BLUE, ORANGE = "#0072b2", "#d55e00"
WORDS = {
    "kernel PCA, 1,000,000×64, RBF, q = 10, surface": "1,000,000 rows\nnear a surface",
    "the same, normal rows": "1,000,000\nnormal rows",
    "100,000×64, surface / normal rows": "100,000 rows\nnear a surface",
}


def table(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the table whose first heading starts as given."""
    found = re.search(rf"^\| {re.escape(heading)}.*\n\|[-|: ]+\n((?:\|.*\n)+)", text, re.M)
    if found is None:
        raise ValueError(f"docs/benchmarks.md has no table that starts with {heading!r}")
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in found[1].splitlines()]


def first(cell: str) -> float:
    """Return the first number of a cell."""
    found = re.search(r"\d+(?:\.\d+)?", cell)
    if found is None:
        raise ValueError(f"no number in {cell!r}")
    return float(found[0])


def card(text: str) -> Figure:
    """Draw what one H200 took: whole fits of kernel PCA beside their goals, one pass of K·V."""
    fits = {row[0]: row for row in table(text, "what | time | goal")}
    passes = table(text, "one pass of K·V")
    fig = Figure(figsize=(5, 5.4), layout="constrained")
    top, bottom = fig.subplots(2, 1, height_ratios=[3, 6])
    rows = [fits[name] for name in WORDS]
    labels = [WORDS[row[0]] for row in rows]
    top.barh(labels, [first(row[2]) for row in rows], color="0.88")
    bars(top, labels, [first(row[1]) for row in rows], [BLUE] * len(rows), height=0.45)
    top.set(xlim=(0, 17), xlabel="seconds a fit; grey: goal")
    labels = [
        row[0].split(" (")[0].split(" / ")[0].replace(" of float16", "\nof float16")
        for row in passes
    ]
    missed = ["missed" in row[3].split("/")[0] for row in passes]
    bars(bottom, labels, [first(row[1]) for row in passes], [ORANGE if m else BLUE for m in missed])
    bottom.set(xlim=(0, 11), xlabel="seconds a pass of K·V; orange: missed")
    return fig


def bars(
    ax: Any, labels: list[str], values: list[float], colours: list[str], **options: Any
) -> None:
    """Draw bars from the top down, each with its number."""
    ax.barh(labels, values, color=colours, **options)
    for k, value in enumerate(values):
        ax.text(value + 0.2, k, f"{value:g} s", va="center")
    ax.invert_yaxis()
    ax.spines[["top", "right"]].set_visible(False)


def draw(app: Sphinx) -> None:
    """Write the pictures where pages find them."""
    place = Path(app.srcdir) / "drawn"
    place.mkdir(exist_ok=True)
    text = (Path(app.srcdir) / "benchmarks.md").read_text("utf-8")
    card(text).savefig(place / "gpu.png", dpi=150)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register it."""
    app.connect("builder-inited", draw)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
