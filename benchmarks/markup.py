"""Tables of stored rows, in Markdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.results import Parts
from benchmarks.run import Row
from benchmarks.sections import SECTIONS

Results = dict[str, Parts]
NOTHING = "Not measured yet."


class Column(NamedTuple):
    """A heading, what stands below it, and whether it is a number."""

    head: str
    show: Callable[[Row], Any]
    number: bool = True


def value(head: str, key: str, form: str = ".3g", factor: float = 1) -> Column:
    return Column(head, lambda row: shown(row.get(key), form, factor))


def text(head: str, key: str) -> Column:
    return Column(head, lambda row: row.get(key, ""), number=False)


def shown(x: Any, form: str, factor: float = 1) -> str:
    """Return a number in a format; no number is a dash, several are a list."""
    if x is None:
        return "-"
    if isinstance(x, list):
        return ", ".join(shown(one, form, factor) for one in x)
    told = format(x * factor, form)
    return format(x * factor, ".0f") if "e+" in told and form.endswith("g") else told


def table(columns: list[Column], rows: list[Row]) -> str:
    heads = [column.head for column in columns]
    rule = ["--:" if column.number else "---" for column in columns]
    body = [[str(column.show(row)).replace("|", "\\|") for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, rule, *body])


def folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def rows_of(results: Results, section: str, *parts: str) -> list[Row]:
    """Return the rows of some parts, or of all, in the order of the section."""
    found = results.get(section, {})
    names = parts or SECTIONS[section].parts
    return [row for name in names if name in found for row in found[name].rows]
