"""A page as plain values, and its HTML."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from dualpca.app.report.figures import Plot
from dualpca.files.fields import visible

# The policy makes a browser load nothing from outside the file, and run only the two scripts that
# the page was written with.
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src {hashes}">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
"""


@dataclass(frozen=True)
class Table:
    """Rows of numbers under a header, or of facts without one; the first column is a name."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    highlight: int | None = None  # the row that matters most
    words: bool = False  # the last column holds words, which may wrap
    folded: bool = False  # shown on a click


@dataclass(frozen=True)
class Tile:
    """A small picture (a PNG file) and the text below it."""

    png: bytes
    alt: str
    words: str = ""


@dataclass(frozen=True)
class Tiles:
    """Rows of small pictures, each row with its name, and what they show together."""

    rows: Sequence[tuple[str, Sequence[Tile]]]
    finding: str


@dataclass(frozen=True)
class Several:
    """Figures side by side, if there is room."""

    plots: Sequence[Plot]


Part = Plot | Table | Tiles | Several


@dataclass(frozen=True)
class Section:
    """A heading, what is shown and what to look for, then figures and tables, then text.

    `verdict` is what the page says of it at its very top.
    """

    title: str
    shows: str
    look: str
    parts: Sequence[Part] = ()
    text: Sequence[str] = ()
    verdict: str = ""


@dataclass(frozen=True)
class Page:
    """A title, the main findings, sections, and what was left out and why."""

    title: str
    lead: Sequence[str]
    sections: Sequence[Section]
    left_out: Sequence[tuple[str, str]] = ()


def render(page: Page) -> str:
    """Return a page as one HTML document that needs no other file.

    Examples
    --------
    >>> html = render(Page("Noise & signal", ["Two directions."], []))
    >>> "<h1>Noise &amp; signal</h1>" in html
    True
    """
    writer = _Writer()
    body = "".join(writer.section(section) for section in page.sections)
    scripts = [plotly_script(), _resource("page.js")] if writer.plots else []
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in scripts) or "'none'"
    head = _HEAD.format(title=_words(page.title), style=_resource("style.css"), hashes=hashes)
    lead = "".join(f'<p class="lead">{_words(p)}</p>\n' for p in page.lead)
    lead = (
        f'<div class="verdict" role="note" aria-label="In short">\n{lead}</div>\n' if lead else ""
    )
    top = f"<header>\n<h1>{_words(page.title)}</h1>\n{lead}</header>\n{_contents(page)}"
    tail = _left_out(page.left_out) + "</main>\n"
    tail += "".join(f"<script>{text}</script>\n" for text in scripts)
    return f"{head}<main>\n{top}{body}{tail}</body>\n</html>\n"


def plotly_script() -> str:
    """Return plotly's script from its wheel, which has the complete bundle only."""
    script = resources.files("plotly").joinpath("package_data/plotly.min.js")
    # A closing tag or a comment's beginning inside would end the element early.
    return script.read_text(encoding="utf-8").replace("</script", r"<\/script").strip()


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _words(text: str) -> str:
    """Escape a text, with proper minus signs and no line breaks before units."""
    text = re.sub(r"(?<!\S)-(?=\d)", "\N{MINUS SIGN}", visible(text))
    return escape(re.sub(r" (?=[%=])|(?<==) ", "\N{NO-BREAK SPACE}", text))


def anchor(title: str) -> str:
    """Return the anchor of a section.

    Examples
    --------
    >>> anchor("What the data is")
    'what-the-data-is'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _contents(page: Page) -> str:
    """Return the table of contents."""
    items = "".join(
        f'<li><a href="#{anchor(one.title)}">{_words(one.title)}</a></li>\n'
        for one in page.sections
    )
    if not items:
        return ""
    return f'<nav aria-label="Contents">\n<h2>Contents</h2>\n<ol>\n{items}</ol>\n</nav>\n'


def _left_out(reasons: Sequence[tuple[str, str]]) -> str:
    """Return the note on what is not in the report."""
    if not reasons:
        return ""
    items = "".join(f"<li><b>{_words(t)}</b>: {_words(why)}</li>\n" for t, why in reasons)
    count = "One section does" if len(reasons) == 1 else f"{len(reasons)} sections do"
    return (
        f'<details class="left-out">\n<summary>{count} not apply here, and why</summary>\n'
        f"<ul>\n{items}</ul>\n</details>\n"
    )


class _Writer:
    """Writes sections and counts their figures."""

    def __init__(self) -> None:
        self.plots = 0

    def section(self, section: Section) -> str:
        place, title = anchor(section.title), _words(section.title)
        text = "".join(f"<p>{_words(p)}</p>\n" for p in section.text)
        about = "".join(
            f'<p class="about"><b>{word}</b> {_words(words)}</p>\n'
            for word, words in (
                ("What this shows.", section.shows),
                ("What to look for:", section.look),
            )
            if words
        )
        parts = "".join(self.part(part) for part in section.parts)
        heading = f'<h2 id="{place}-title">{title}</h2>'
        open_tag = f'<section id="{place}" aria-labelledby="{place}-title">'
        return f"{open_tag}\n{heading}\n{about}{parts}{text}</section>\n"

    def part(self, part: Part) -> str:
        if isinstance(part, Plot):
            return self.plot(part)
        if isinstance(part, Several):
            return f'<div class="several">\n{"".join(map(self.plot, part.plots))}</div>\n'
        return _table(part) if isinstance(part, Table) else _tiles(part)

    def plot(self, plot: Plot) -> str:
        """Return the HTML of a figure: its place, its data, its finding."""
        self.plots += 1
        name, kind = f"figure-{self.plots}", "plot crowded" if plot.crowded else "plot"
        return (
            f'<figure>\n<div class="{kind}" id="{name}" role="img"'
            f' aria-label="{_words(plot.label)}" aria-describedby="{name}-words"'
            f' style="height:{plot.height}px">'
            f"<noscript>This figure needs JavaScript.</noscript></div>\n"
            f'<script type="application/json" id="{name}-data">{_json(plot)}</script>\n'
            f'<figcaption id="{name}-words">{_words(plot.finding)}</figcaption>\n</figure>\n'
        )


def _json(plot: Plot) -> str:
    """Return a figure as JSON that is safe inside an HTML element."""
    text = json.dumps(visible({"data": plot.data, "layout": plot.layout}), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _tiles(tiles: Tiles) -> str:
    rows = "".join(
        f'<div class="tile-row"><div class="tile-name">{_words(name)}</div>\n'
        f'<div class="tile-list">{"".join(map(_tile, some))}</div></div>\n'
        for name, some in tiles.rows
    )
    words = _words(tiles.finding)
    return f'<figure class="tiles">\n{rows}<figcaption>{words}</figcaption>\n</figure>\n'


def _tile(tile: Tile) -> str:
    code = base64.b64encode(tile.png).decode()
    image = f'<img alt="{_words(tile.alt)}" src="data:image/png;base64,{code}">'
    under = f"<span>{_words(tile.words)}</span>" if tile.words else ""
    return f'<div class="tile">{image}{under}</div>'


def _table(table: Table) -> str:
    """Return a table that scrolls by itself in a narrow window."""
    caption = _words(table.caption)
    words = "".join(f'<th scope="col">{_words(word)}</th>' for word in table.header)
    head = f"<thead><tr>{words}</tr></thead>\n" if table.header else ""
    rows = "".join(_row(row, i == table.highlight) for i, row in enumerate(table.rows))
    kind = ("numbers" if table.header else "facts") + (" wordy" if table.words else "")
    html = (
        f'<div class="wide" role="region" tabindex="0" aria-label="{caption}">\n'
        f'<table class="{kind}">\n'
        f"<caption>{caption}</caption>\n{head}<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
    )
    if not table.folded:
        return html
    return f"<details>\n<summary>{caption}</summary>\n{html}</details>\n"


def _row(row: Sequence[str], chosen: bool) -> str:
    first, *others = row
    cells = "".join(f"<td>{_words(cell)}</td>" for cell in others)
    mark = ' class="chosen"' if chosen else ""
    name = _words(first).replace("_", "_<wbr>")  # a long name may break there
    return f'<tr{mark}><th scope="row">{name}</th>{cells}</tr>\n'
