"""The gallery in sections; members that are not ours; where code may break."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

NOT_OURS = re.compile(r"set_\w+_request|set_output|get_metadata_routing|get_params|set_params")

THUMBNAIL = re.compile(r'<img alt=""([^>]*sphx_glr_plot_(\w+)_thumb\.png")')

CODE = re.compile(r"<code.*?</code>", re.S)
NAME_ENDS = re.compile(r"(?<=[\w)][.(,=/])(?=[\w&])(?![^<]*>)")
CONSOLE = re.compile(r'<div class="highlight-console(?= .*?<pre>(.*?)</pre>)', re.S)
COLUMNS = re.compile(r"^\S+ {2,}\S+ {2,}\S", re.M)

SECTIONS = {
    "First steps": "pca_and_ppca dimension supplementary figures",
    "Missing values and mixed columns": "missing imputation_checks mixed",
    "Outliers and process monitoring": "outliers robust control_chart process",
    "Factors, clusters and time series": "factors relevance mixture tree through_time two_views",
    "Kernels": "kernel_moons dual_ppca kernel_mixture coordinates twin",
    "Denoising and generating data": "denoise denoise_digits generate",
    "Large data": "parts_checkpoint",
}
"""Sections of the gallery, and the examples of each in order."""


def skip(app: Sphinx, what: str, name: str, member: Any, skipped: bool, options: Any) -> bool:
    """Leave out what scikit-learn adds to every estimator."""
    return skipped or NOT_OURS.fullmatch(name) is not None


def name_thumbnails(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Give the gallery's small pictures words, which sphinx-gallery leaves empty."""
    if "body" in context:
        context["body"] = THUMBNAIL.sub(
            lambda found: f'<img alt="Picture of {found[2].replace("_", " ")}"{found[1]}',
            context["body"],
        )


def break_lines(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Let lines end within code where a name ends; say which commands print columns."""
    if "body" in context:
        body = CODE.sub(lambda found: NAME_ENDS.sub("<wbr>", found[0]), context["body"])
        context["body"] = CONSOLE.sub(
            lambda found: found[0] + (" columns" if COLUMNS.search(words(found[1])) else ""), body
        )


def words(markup: str) -> str:
    """Return the text of HTML."""
    return re.sub(r"<[^>]+>", "", markup)


def in_sections(app: Sphinx) -> None:
    """Order the gallery's page by sections; it is written by sphinx-gallery just before."""
    page = Path(app.srcdir) / "gallery" / "index.rst"
    if not page.exists():
        return
    head, _, rest = page.read_text("utf-8").partition(".. thumbnail-parent-div-open")
    body, _, tail = rest.partition(".. thumbnail-parent-div-close")
    blocks = re.split(
        r"(?=^\.\. raw:: html\n\n    <div class=.sphx-glr-thumbcontainer)", body, flags=re.M
    )
    known = {m[1]: b for b in blocks if (m := re.search(r":doc:`/gallery/plot_(\w+)`", b))}
    if not known:
        return
    open_, close = (
        '\n.. raw:: html\n\n    <div class="sphx-glr-thumbnails">\n\n',
        ("\n.. raw:: html\n\n    </div>\n\n"),
    )
    sections = {title: names.split() for title, names in SECTIONS.items()}
    listed = {name for names in sections.values() for name in names}
    sections["More"] = sorted(set(known) - listed)
    text = head[: head.rindex(".. raw:: html")]
    for title, names in sections.items():
        found = [known[name] for name in names if name in known]
        if found:
            text += f"\n{title}\n{'-' * len(title)}\n{open_}{''.join(found)}{close}"
    page.write_text(text + tail.partition("</div>")[2].lstrip("\n"), "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register all."""
    app.connect("builder-inited", in_sections, priority=900)
    app.connect("autodoc-skip-member", skip)
    app.connect("html-page-context", name_thumbnails)
    app.connect("html-page-context", break_lines)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
