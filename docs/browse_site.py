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
ASKED = {  # what people type into the search box: the page that must come first
    "GPU": "guide/gpu.html",
    "missing values": "guide/missing-values.html",
    "monitoring": "guide/monitoring.html",
    "multiple imputation": "guide/multiple-imputation.html",
    "large data": "guide/large-data.html",
}
FOUND = {"impute": "guide/missing-values.html", "KernelPCA": "dualpca.KernelPCA"}  # among others


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
    """Return the words that the search does not find where they are, or not there first."""
    wrong = []
    for words, where in (ASKED | FOUND).items():
        page.goto(f"{(site / 'search.html').as_uri()}?q={quote(words)}")
        try:
            page.wait_for_selector(f"#search-results a[href*='{where}']", timeout=20_000)
        except Exception:
            wrong.append(f"search.html: {words!r} does not find {where}")
            continue
        first = page.locator("#search-results ul.search > li a").first.get_attribute("href") or ""
        if words in ASKED and not first.partition("#")[0].partition("?")[0].endswith(where):
            wrong.append(f"search.html: {words!r} finds {first} before {where}")
    return wrong
