"""Formulas as MathML, which browsers draw themselves: no script, nothing from the network."""

from __future__ import annotations

import logging
import re
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number

NAMESPACE = "http://www.w3.org/1998/Math/MathML"

BEFORE = (  # what the converter does not know, in words that it knows
    (r"\\[bB]ig(?=\(|\[|\\\{)", r"\\left"),
    (r"\\[bB]ig(?=\)|\]|\\\})", r"\\right"),
    (r"\\(mathbb|mathrm) (\w)", r"\\\1{\2}"),
    (r"\\mathrm\{(\w)\}", r"\\text{\1}"),  # one upright letter: the expectation E
    (r"\\ln(?![a-zA-Z])", r"\\,\\ln\\,"),
)
SIMILAR = ("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")
LARGE = "\u2211\u220f"
"""Sums and products, whose limits stand below and above; between brackets the converter forgets."""
SCRIPT = {"B": "ℬ", "E": "ℰ", "F": "ℱ", "H": "ℋ", "I": "ℐ", "L": "ℒ", "M": "ℳ", "R": "ℛ"}
"""Script capitals that stand apart from the others in Unicode."""
UNDER = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}


def formula(source: str, display: str) -> str:
    """Return MathML for LaTeX."""
    for old, new in BEFORE:
        source = re.sub(old, new, source)
    found = convert(source.strip(), display=display).replace(*SIMILAR)
    return with_limits(found)


def with_limits(mathml: str) -> str:
    """Return MathML in which the limits of sums stand below them where there is room."""
    ElementTree.register_namespace("", NAMESPACE)
    tree = ElementTree.fromstring(mathml)
    for node in tree.iter():
        kind = node.tag.rpartition("}")[2]
        if kind in UNDER and len(node) and (node[0].text or "") in LARGE and node[0].text:
            node.tag = f"{{{NAMESPACE}}}{UNDER[kind]}"
        if node.get("mathvariant") == "script":  # browsers know the letters, not the variant
            del node.attrib["mathvariant"]
            node.text = SCRIPT.get(node.text or "", chr(0x1D49C + ord(node.text or "A") - ord("A")))
    return ElementTree.tostring(tree, encoding="unicode")


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


LETTERS = (*range(0x20, 0x7F), *range(0xA0, 0x180), *range(0x2B0, 0x600), *range(0x1D400, 0x1D800))
SIGNS = (*range(0x2000, 0x2C00),)
"""Unicode of the characters in formulas: letters, and operators, arrows and brackets."""


def write_font(app: Sphinx, error: Exception | None) -> None:
    """Write the part of STIX Two Math that formulas need: brackets that grow want a MATH table.

    The font comes with ziamath, under the SIL Open Font License (`stix-math-OFL.txt`).
    """
    if error is not None or app.builder.format != "html":
        return
    with as_file(files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf") as path:
        font = TTFont(path)
    options = Options(flavor="woff", layout_features=["*"], notdef_outline=True)
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells of every table
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=[*LETTERS, *SIGNS])
    subsetter.subset(font)
    font.flavor = "woff"
    font.save(Path(app.outdir, "_static", "stix-math.woff"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.connect("build-finished", write_font)
    app.add_html_math_renderer(
        "mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None)
    )
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
