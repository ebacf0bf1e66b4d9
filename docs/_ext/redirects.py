"""Pages that have moved: a page at the old address leads to the new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>This page has moved</title>
<meta http-equiv="refresh" content="0; url={target}">
<link rel="canonical" href="{target}">
</head>
<body><p>This page has moved to <a href="{target}">{target}</a>.</p></body>
</html>
"""


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write a page that leads to its new address for every page that has moved."""
    if exception is not None or app.builder.name != "html":
        return
    for old, new in app.config.moved_pages.items():
        path = Path(app.outdir) / f"{old}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        target = "../" * old.count("/") + new.replace("#", ".html#", 1)
        target += "" if "#" in new else ".html"
        path.write_text(PAGE.format(target=target), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register it."""
    app.add_config_value("moved_pages", {}, "html")
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
