"""Formulas as MathML, which browsers draw themselves: no script, nothing from the network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number

BEFORE = (  # what the converter does not know, in words that it knows
    (r"\\[bB]ig(?=\(|\[|\\\{)", r"\\left"),
    (r"\\[bB]ig(?=\)|\]|\\\})", r"\\right"),
    (r"\\(mathbb|mathrm) (\w)", r"\\\1{\2}"),
    (r"\\ln(?![a-zA-Z])", r"\\,\\ln\\,"),
)
SIMILAR = ("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")


def formula(source: str, display: str) -> str:
    """Return MathML for LaTeX."""
    for old, new in BEFORE:
        source = re.sub(old, new, source)
    return convert(source.strip(), display=display).replace(*SIMILAR)


def visit_inline(self: Any, node: nodes.math) -> None:
    """Write a formula in a line."""
    self.body.append(formula(node.astext(), "inline"))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    """Write a formula in a paragraph of its own, with its number."""
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    self.body.append(f'<div class="formula">{formula(node.astext(), "block")}</div>')
    if node.get("number"):
        number = get_node_equation_number(self, node)
        self.body.append(f'<span class="eqno">({number})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None)
    )
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
