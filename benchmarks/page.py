"""Make docs/benchmarks.md, and the README's table, from stored results.

`page.md` is the prose; `{{ word argument }}` in it calls the function of that name, here or in
`tables.py`. So no result on the page is typed by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.markup import NOTHING, Results, folded, table, text, value
from benchmarks.readme import with_table
from benchmarks.results import Cell, Part, Parts, Standing, cells
from benchmarks.run import Row
from benchmarks.sections import SECTIONS
from benchmarks.tables import TABLES

TEMPLATE = Path(__file__).with_name("page.md")
PAGE, README = Path("docs/benchmarks.md"), Path("README.md")
FEW = 12
"""Cells that a sentence may list; more of them are folded up."""


def write(results: Results, root: Path) -> list[Path]:
    """Write the page and the README's table; return the files."""
    (root / PAGE).write_text(render(results), encoding="utf-8")
    (root / README).write_text(with_table(read(root / README), results), encoding="utf-8")
    return [root / PAGE, root / README]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def render(results: Results, template: str | None = None) -> str:
    def fill(match: re.Match[str]) -> str:
        word, *arguments = match[1].split()
        return FIELDS[word](results, *arguments)

    text = template if template is not None else read(TEMPLATE)
    return re.sub(r"\{\{ (.+?) \}\}", fill, text)


# --- when, where, how many -----------------------------------------------------------------------


def about(results: Results, section: str) -> str:
    """Return the command, and date, commit and machine of all runs that the parts are from."""
    parts = results.get(section, {})
    if not parts:
        return f"`python -m benchmarks {section}`. {NOTHING}"
    runs: dict[str, list[str]] = {}
    for name, part in parts.items():
        runs.setdefault(origin(part), []).append(name)
    lines = [f"`python -m benchmarks {section}`"]
    for told, names in runs.items():
        whole = len(runs) == 1
        minutes = sum(parts[name].about.get("seconds", 0.0) for name in names) / 60
        took = f"; took {minutes:.1f} min" if minutes else ""
        lines.append(f"{told}{took}" if whole else f"{', '.join(names)}: {told}{took}")
    left = [what for part in parts.values() for what in part.about.get("left_out", ())]
    if left:
        lines.append(f"left out: {', '.join(left)}")
    return " · ".join(lines) if len(runs) == 1 else "\n".join([lines[0] + "\n", *bullets(lines)])


def bullets(lines: list[str]) -> list[str]:
    return [f"- {line}" for line in lines[1:]]


def origin(part: Part) -> str:
    a = part.about
    threads = "one thread" if a["threads"] == 1 else f"{a['threads']} threads"
    machine = ", ".join(word for word in (a["machine"], a.get("gpu"), threads) if word)
    versions = ", ".join(f"{name} {version}" for name, version in a["libraries"].items())
    told = f"{a['date']}, commit {a['commit']} · {machine} · Python {a['python']}, {versions}"
    return f"{told} · {a['note']}" if a.get("note") else told


def overview(results: Results) -> str:
    """Return one line a section: how many cells, their mean, how many are slower."""
    found = []
    for section in SECTIONS.values():
        standing = Standing.of(cells(section.name, results.get(section.name, {})))
        if standing.count:
            anchor = re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-")
            title = f"[{section.title}](#{anchor})"
            found.append({"title": title, "dates": dates(results[section.name])} | told(standing))
    every = Standing.of(every_cell(results))
    found.append({"title": "all", "dates": ""} | told(every))
    columns = [text("section", "title"), value("comparisons", "count", "d")]
    columns += [value("ratio, geometric mean", "mean", ".2f"), value("slower", "slower", "d")]
    return table([*columns, text("measured", "dates")], found)


def told(standing: Standing) -> Row:
    return {"count": standing.count, "mean": standing.mean, "slower": len(standing.behind)}


def dates(parts: Parts) -> str:
    found = sorted({part.about["date"] for part in parts.values()})
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def every_cell(results: Results) -> list[Cell]:
    return [cell for name in SECTIONS for cell in cells(name, results.get(name, {}))]


def behind(results: Results, section: str) -> str:
    """Return which comparisons dualpca loses."""
    count, _, slower = Standing.of(cells(section, results.get(section, {})))
    if not count:
        return NOTHING
    if not slower and count == 1:
        return "dualpca is the faster one."
    if not slower:
        return f"dualpca is the faster one in all {count} comparisons."
    names = [f"{label(cell)} ({cell.ratio:.2f})" for cell in slower]
    start = f"dualpca is slower in {len(slower)} of {count} comparisons"
    if len(names) <= FEW:
        return f"{start}: {'; '.join(names)}."
    return folded(start, "\n".join(f"- {name}" for name in names))


def label(cell: Cell) -> str:
    return f"{cell.group}, {cell.name}" if cell.group else cell.name


def summary(results: Results) -> str:
    """Return the end of a run: how many cells, how many behind, which, and means by group."""
    every = every_cell(results)
    standing = Standing.of(every)
    lines = [f"{standing.count} cells, {len(standing.behind)} behind"]
    lines += [f"  {cell.section}: {label(cell)}: {cell.ratio:.2f}" for cell in standing.behind]
    groups: dict[str, list[Cell]] = {}
    for cell in every:
        groups.setdefault(" ".join(filter(None, (cell.section, cell.group))), []).append(cell)
    for name, found in groups.items():
        count, mean, slower = Standing.of(found)
        lines.append(f"{name}: {count} cells, geometric mean {mean:.2f}, {len(slower)} behind")
    return "\n".join(lines)


FIELDS: dict[str, Callable[..., str]] = {
    "about": about,
    "behind": behind,
    "overview": overview,
    **TABLES,
}
