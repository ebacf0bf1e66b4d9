"""The table, as plain text and as GitHub Markdown between two markers of a page."""

from __future__ import annotations

from pathlib import Path

from benchmarks.verdict import Row

HEAD = ["case", "contestant", "median s", "ratio", "error", "error of", "extra MB", "goal", "met?"]
NUMBERS = {"median s", "ratio", "error", "extra MB"}
START, END = "<!-- bench:start -->", "<!-- bench:end -->"
PAGE = f"# Benchmarks\n\n{START}\n{END}\n"


def cells(row: Row) -> list[str]:
    m = row.measurement
    return [
        row.case.title,
        m.contestant.name,
        number(m.seconds, ".4g") if m.times else m.note.partition(":")[0],
        number(row.ratio, ".2f"),
        number(m.error, ".1e"),
        row.case.task.measure,
        number(m.megabytes, ".0f"),
        row.goal,
        row.met,
    ]


def number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def plain(rows: list[Row]) -> str:
    lines = [HEAD, *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(aligned, line, widths, HEAD)).rstrip() for line in lines)


def aligned(cell: str, width: int, head: str) -> str:
    return cell.rjust(width) if head in NUMBERS else cell.ljust(width)


def markdown(rows: list[Row]) -> str:
    """Return the table that readers see: what was measured, without what we aim at."""
    head = HEAD[:-2]
    rule = ["--:" if name in NUMBERS else "---" for name in head]
    body = [[cell.replace("|", "\\|") for cell in cells(row)[:-2]] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *body])


def split(page: Path) -> tuple[str, str]:
    """What stands before and after the markers; a page that does not exist is begun."""
    text = page.read_text(encoding="utf-8") if page.exists() else PAGE
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"{page} needs the lines {START} and {END}: the table goes between them")
    return before, after


def fill(page: Path, text: str) -> None:
    before, after = split(page)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"{before}{START}\n{text}\n{END}{after}", encoding="utf-8")
