"""Look at a built site in chromium: phones need not scroll sideways, and nothing is fetched.

Scripts run without errors, and the search finds what it should, from the disk alone.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

PHONE = {"width": 390, "height": 844}
CUT = """() => [...document.querySelectorAll("math, img, svg, pre, table, p, li")].filter(e => {
  const box = e.getBoundingClientRect();
  if (box.width === 0 || box.right <= innerWidth + 1) return false;
  for (let up = e; up !== document.body; up = up.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(up).overflowX)) return false;
  return true;
}).map(e => e.tagName.toLowerCase() + " " + e.textContent.trim().slice(0, 30))"""
ASKED = {  # what people type into the search box: the guide that must be among the first three
    "impute": "guide/missing-values",
    "imputation": "guide/missing-values",
    "NaN": "guide/missing-values",
    "missing values": "guide/missing-values",
    "outliers": "guide/monitoring",
    "anomaly": "guide/monitoring",
    "PLS": "guide/two-tables",
    "number of components": "guide/how-many-components",
    "kernel PCA large": "guide/large-data",
    "categorical": "guide/mixed-columns",
    "multiple imputation": "guide/multiple-imputation",
    "GPU": "guide/gpu",
}
NAMES = {"KernelPCA": "reference/generated/dualpca.KernelPCA"}
"""A name that is typed exactly finds its page, too."""
FIRST = 3


def browsed(site: Path) -> list[str]:
    """Return what is wrong with the pages of a site, where there is a browser to look at them."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        chromium = None
    else:
        chromium = shutil.which("chromium")
    if chromium is None:
        print("chromium or playwright is not installed: the pages were not looked at")
        return []
    return looked_at(site)


def looked_at(site: Path, search: bool = True) -> list[str]:
    """Return what is wrong with the pages of a site as chromium shows them."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = shutil.which("chromium")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport=PHONE)
        wrong: list[str] = []
        page.on("request", lambda request: wrong.extend(_elsewhere(request.url)))
        page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
        for path in sorted(site.resolve().rglob("*.html")):
            moved = 'http-equiv="refresh"' in path.read_text("utf-8")
            if not moved and not {"_modules", "_static"} & set(path.parts):
                wrong += _too_wide(page, path, site.resolve())
        wrong += _searched(page, site.resolve()) if search else []
        browser.close()
    return list(dict.fromkeys(wrong))


def _elsewhere(url: str) -> list[str]:
    return [] if url.startswith(("file:", "data:", "blob:")) else [f"{url} is fetched"]


def _too_wide(page: Any, path: Path, site: Path) -> list[str]:
    """Return what is cut off, or makes the page scroll sideways; boxes inside it may scroll."""
    page.goto(path.as_uri())
    name, width = path.relative_to(site), PHONE["width"]
    found = [f"{name}: {what!r} is cut off at {width} px" for what in page.evaluate(CUT)]
    if page.evaluate("document.documentElement.scrollWidth") > width:
        found.append(f"{name}: wider than a phone of {width} px")
    return found


def _searched(page: Any, site: Path) -> list[str]:
    """Return the words whose page is not among the first, or stands there without an excerpt."""
    wrong = []
    for words, where in (ASKED | NAMES).items():
        page.goto(f"{(site / 'search.html').as_uri()}?q={quote(words)}")
        page.wait_for_function("document.querySelector('#search-results p').textContent !== ''")
        items = page.locator("#search-results ul.search > li")
        links = [link.get_attribute("href") or "" for link in items.locator("> a").all()]
        first = [link.partition("#")[0].partition("?")[0].removesuffix(".html") for link in links]
        if where not in first[:FIRST]:
            wrong.append(f"search.html: {words!r} finds {first[:FIRST]} before {where}")
        elif words in ASKED and not items.nth(first.index(where)).locator("p.context").count():
            wrong.append(f"search.html: {words!r} finds {where} without an excerpt")
    return wrong
