"""A page as plain values, and its HTML."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The policy makes a browser refuse anything that is not inside the file.
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
"""


@dataclass(frozen=True)
class Picture:
    """A figure and what it shows, in words for those who cannot see it."""

    figure: Figure
    alt: str


@dataclass(frozen=True)
class Table:
    """Rows of numbers under a header, or of facts without one; the first column is a name."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    highlight: int | None = None  # the row that matters most


@dataclass(frozen=True)
class Section:
    """A heading, then a table or a picture, then paragraphs about it."""

    title: str
    text: Sequence[str]
    picture: Picture | None = None
    table: Table | None = None


@dataclass(frozen=True)
class Page:
    """A title, what was found in a few sentences, and sections."""

    title: str
    lead: Sequence[str]
    sections: Sequence[Section]


def render(page: Page) -> str:
    """Return a page as one HTML document that needs no other file.

    Examples
    --------
    >>> html = render(Page("Noise & signal", ["Two directions."], []))
    >>> "<h1>Noise &amp; signal</h1>" in html
    True
    """
    style = resources.files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    head = _HEAD.format(title=_words(page.title), style=style)
    lead = "".join(f'<p class="lead">{_words(p)}</p>\n' for p in page.lead)
    body = "".join(_section(section) for section in page.sections)
    return f"{head}<h1>{_words(page.title)}</h1>\n{lead}{body}</main>\n</body>\n</html>\n"


def _words(text: str) -> str:
    """Escape a text, with proper minus signs, and with numbers and signs on one line."""
    text = re.sub(r"(?<!\S)-(?=\d)", "\N{MINUS SIGN}", text)
    return escape(re.sub(r" (?=[%=])|(?<==) ", "\N{NO-BREAK SPACE}", text))


def _section(section: Section) -> str:
    shown = _table(section.table) if section.table else ""
    text = "".join(f"<p>{_words(p)}</p>\n" for p in section.text)
    if section.picture:
        shown += f"<figure>{_image(section.picture)}\n<figcaption>{text}</figcaption></figure>\n"
        text = ""
    return f"<section>\n<h2>{_words(section.title)}</h2>\n{shown}{text}</section>\n"


def _image(picture: Picture) -> str:
    """Return a figure as an image element, half as large as its pixels."""
    buffer = io.BytesIO()
    picture.figure.savefig(buffer, format="png", metadata={"Software": None}, facecolor="white")
    width, height = (round(side / 2) for side in picture.figure.canvas.get_width_height())
    code = base64.b64encode(buffer.getvalue()).decode()
    size = f'width="{width}" height="{height}"'
    return f'<img alt="{_words(picture.alt)}" {size} src="data:image/png;base64,{code}">'


def _table(table: Table) -> str:
    """Return a table that scrolls by itself where the window is narrow."""
    caption = _words(table.caption)
    words = "".join(f'<th scope="col">{_words(word)}</th>' for word in table.header)
    head = f"<thead><tr>{words}</tr></thead>\n" if table.header else ""
    rows = "".join(_row(row, i == table.highlight) for i, row in enumerate(table.rows))
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{caption}">\n'
        f'<table class="{"numbers" if table.header else "facts"}">\n'
        f"<caption>{caption}</caption>\n{head}<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
    )


def _row(row: Sequence[str], chosen: bool) -> str:
    first, *others = row
    cells = "".join(f"<td>{_words(cell)}</td>" for cell in others)
    mark = ' class="chosen"' if chosen else ""
    return f'<tr{mark}><th scope="row">{_words(first)}</th>{cells}</tr>\n'
