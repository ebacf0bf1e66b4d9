"""Numbers for the theory: equations as (section.number), and links from docstrings to them."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

HEADING = re.compile(r"(\d+)\. ")
CITED = re.compile(r"\b[Tt]heory ((?:\d+(?:\.\d+)?(?:, | and |–)?)+)")
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def number_equations(app: Sphinx, doctree: nodes.document) -> None:
    """Give equation k of section n the number n.k, and section and equation an anchor."""
    equations = app.env.domains["math"].data["objects"]
    for section in doctree.findall(nodes.section):
        found = HEADING.match(section.next_node(nodes.title).astext())
        if found is None:
            continue
        section["ids"].append(f"math-{found[1]}")
        labelled = [node for node in section.findall(nodes.math_block) if node.get("label")]
        for k, node in enumerate(labelled, start=1):
            node["number"] = f"{found[1]}.{k}"
            place, _ = equations[node["label"]]
            equations[node["label"]] = (place, node["number"])


def remember(app: Sphinx, doctree: nodes.document) -> None:
    """Let every page refer to the sections and equations of this one by number."""
    anchors = app.env.domains["std"].data["anonlabels"]
    for section in doctree.findall(nodes.section):
        for name in section["ids"]:
            if name.startswith("math-"):
                anchors[name] = (app.env.docname, name)
    for node in doctree.findall(nodes.math_block):
        if isinstance(node.get("number"), str):
            anchors[f"math-{node['number']}"] = (app.env.docname, f"equation-{node['label']}")


def link_citations(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Turn "theory 4" and "theory 2.3" of a docstring into links to the theory."""

    def linked(found: re.Match[str]) -> str:
        return NUMBER.sub(lambda n: f":ref:`theory {n[0]} <math-{n[0]}>`", found[1])

    lines[:] = [CITED.sub(linked, line) for line in lines]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register all three."""
    app.connect("doctree-read", number_equations)
    app.connect("doctree-read", remember, priority=600)
    app.connect("autodoc-process-docstring", link_citations)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
