"""The gallery: one page of all figures, which needs no other file but the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

PAGE = "index.html"
SHOWN = 8
"""Most numbers of one experiment that the page shows; the JSON file has all."""

DOCUMENTS = {
    "S0": "De Plaen and Suykens (2023), A dual formulation for probabilistic principal component "
    "analysis",
    "S1": "Montemurri and Mhedhbi, Probabilistic PCA and extensions",
    "S2": "Muscarnera (2024), A survey on kernel PCA",
    "S3": "Zhang, Wang, Yeung and Kwok (2004), Probabilistic kernel principal component analysis",
    "S4": "Zabaras (2017), Continuous latent variable models",
}
"""What the documents are that experiments reproduce."""

_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src 'self' file: data:; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>The documents, reproduced</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>The documents, reproduced</h1>
<p class="lead">Every figure below was drawn by dualpca. Each says what agrees with the published
one and what does not. A click on a picture shows it as a drawing that stays sharp at any size.</p>
"""


def render(records: Sequence[dict[str, Any]]) -> str:
    """Return the page of these experiments, document by document.

    Examples
    --------
    >>> record = {"name": "a", "source": "S3 Fig. 1", "title": "Two & more", "caption": "Seen."}
    >>> record |= {"agrees": "All.", "differs": "None.", "numbers": {}, "figures": []}
    >>> "Two &amp; more" in render([record])
    True
    """
    style = resources.files(__package__).joinpath("gallery.css").read_text(encoding="utf-8")
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(str(record["source"]).split()[0], []).append(record)
    body = "".join(_document(code, groups[code]) for code in sorted(groups))
    return f"{_HEAD.format(style=style)}{_contents(groups)}{body}</main>\n</body>\n</html>\n"


def _contents(groups: dict[str, list[dict[str, Any]]]) -> str:
    """Return links to all experiments."""
    lines = [
        f"<li><b>{escape(code)}</b> "
        + " · ".join(
            f'<a href="#{escape(r["name"])}">{escape(_place(r))}</a>' for r in groups[code]
        )
        + "</li>"
        for code in sorted(groups)
    ]
    return f'<nav aria-label="Figures"><ul>\n{chr(10).join(lines)}\n</ul></nav>\n'


def _place(record: dict[str, Any]) -> str:
    """Return which figure or section of its document an experiment is about."""
    return str(record["source"]).partition(" ")[2] or str(record["name"])


def _document(code: str, records: Sequence[dict[str, Any]]) -> str:
    title = DOCUMENTS.get(code, "")
    head = f"<h2>{escape(code)}<small> {escape(title)}</small></h2>\n"
    return head + "".join(_section(record) for record in records)


def _section(record: dict[str, Any]) -> str:
    """Return one experiment: its pictures, what they show, and how they compare."""
    name, title = escape(record["name"]), escape(record["title"])
    pictures = "".join(_picture(record, figure) for figure in record["figures"])
    caption = f"<p>{escape(record['caption'])}</p>\n" if record["caption"] else ""
    verdict = "".join(
        f"<dt>{word}</dt><dd>{escape(record[key])}</dd>\n"
        for word, key in (("Agrees", "agrees"), ("Differs", "differs"))
    )
    quick = "<p><b>A quick run: smaller settings.</b></p>\n" if record.get("quick") else ""
    foot = _foot(record)
    return (
        f'<section id="{name}">\n<h3><span>{escape(record["source"])}</span> {title}</h3>\n{quick}'
        f"<figure>\n{pictures}<figcaption>\n{caption}</figcaption>\n</figure>\n"
        f"<dl>\n{verdict}</dl>\n{_numbers(record['numbers'])}{foot}</section>\n"
    )


def _picture(record: dict[str, Any], figure: dict[str, Any]) -> str:
    alt = escape(f"{record['title']}. {record['caption']}", quote=True)
    size = f'width="{figure["width"]}" height="{figure["height"]}"'
    png, svg = escape(figure["png"], quote=True), escape(figure["svg"], quote=True)
    return f'<a href="{svg}"><img loading="lazy" alt="{alt}" {size} src="{png}"></a>\n'


def _numbers(numbers: dict[str, Any]) -> str:
    """Return the first few plain numbers as a table."""
    single = {k: v for k, v in numbers.items() if isinstance(v, int | float | str)}
    rows = "".join(
        f'<tr><th scope="row">{escape(key.replace("_", " "))}</th><td>{_number(value)}</td></tr>\n'
        for key, value in list(single.items())[:SHOWN]
    )
    return f"<table>\n{rows}</table>\n" if rows else ""


def _number(value: float | int | str) -> str:
    if isinstance(value, float):
        return f"{value:.6g}".replace("-", "\N{MINUS SIGN}")
    return escape(str(value))


def _foot(record: dict[str, Any]) -> str:
    """Return the command that makes the experiment again, and where its numbers are."""
    name = escape(record["name"])
    command = f"dualpca reproduce {name}"
    if record.get("seed"):
        command += f" --seed {record['seed']}"
    took = f" · {record['seconds']:.1f} s" if "seconds" in record else ""
    timed = " · its times differ from run to run" if record.get("timed") else ""
    link = f'<a href="{name}.json">all numbers</a>'
    return f'<p class="foot"><code>{command}</code>{took} · {link}{timed}</p>\n'
