"""Sentences for the search: what stands under a page that it finds.

The theme would fetch the pages, which a browser refuses on a disk. So the sentences of all pages
come with the site as one script, which only the page of the search loads.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import docname_join

LONGEST = 240
SENTENCE = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`*])")
SKIPPED = ("design/", "benchmarks", "changelog", "coverage")
"""Pages of tables: their first sentence is enough."""


def sentences(doctree: nodes.document, env: BuildEnvironment) -> list[str]:
    """Return the sentences of a page's paragraphs, none of them twice."""
    found: dict[str, None] = {}
    name_pages(doctree, env)
    for paragraph in doctree.findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.entry) or list(paragraph.findall(nodes.math)):
            continue
        for sentence in SENTENCE.split(" ".join(paragraph.astext().split())):
            if len(sentence) > 30:
                found[shortened(sentence)] = None
    return list(found)


def name_pages(doctree: nodes.document, env: BuildEnvironment) -> None:
    """Put the title of a page where only its address stands, as the built page does."""
    for link in doctree.findall(addnodes.pending_xref):
        if link.get("reftype") == "doc" and not link.get("refexplicit"):
            target = docname_join(link["refdoc"], link["reftarget"])
            if target in env.titles:
                link.children = [nodes.Text(env.titles[target].astext())]


def shortened(sentence: str) -> str:
    """Return a sentence, cut between words where it is long."""
    if len(sentence) <= LONGEST:
        return sentence
    return sentence[:LONGEST].rsplit(" ", 1)[0] + " …"


def excerpts(env: BuildEnvironment) -> dict[str, list[str]]:
    """Return page to sentences."""
    found = {}
    for page in sorted(env.found_docs):
        lines = sentences(env.get_doctree(page), env)
        few = page.startswith(SKIPPED) or "generated/" in page
        found[page] = lines[:1] if few else lines
    return found


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write the sentences beside the site's other scripts."""
    if exception is None and app.builder.name == "html":
        text = json.dumps(excerpts(app.env), ensure_ascii=False, separators=(",", ":"))
        path = Path(app.outdir) / "_static" / "excerpts.js"
        path.write_text(f"const Excerpts = {text};\n", encoding="utf-8")


def load(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let the page of the search load them."""
    if page == "search":
        app.add_js_file("excerpts.js", loading_method="defer")
        app.add_js_file("search.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register it."""
    app.connect("html-page-context", load)
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
