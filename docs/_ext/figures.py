"""Figures that pyplot does not know, in the gallery; and members that are not ours, left out."""

from __future__ import annotations

import re
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from sphinx.application import Sphinx
from sphinx_gallery.scrapers import figure_rst

NOT_OURS = re.compile(r"set_\w+_request|set_output|get_metadata_routing|get_params|set_params")

THUMBNAIL = re.compile(r'<img alt=""([^>]*sphx_glr_plot_(\w+)_thumb\.png")')


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figures that an example made and named, unless pyplot has them."""
    known = {id(plt.figure(n)) for n in plt.get_fignums()}
    paths = []
    for value in list(block_vars["example_globals"].values()):
        if isinstance(value, Figure) and id(value) not in known and not hasattr(value, "_saved"):
            path = next(block_vars["image_path_iterator"])
            value.savefig(path, dpi=150)
            value._saved = True  # type: ignore[attr-defined]
            paths.append(path)
    return figure_rst(paths, gallery_conf["src_dir"])


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


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both."""
    app.connect("autodoc-skip-member", skip)
    app.connect("html-page-context", name_thumbnails)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
