"""Check a built site: every link leads somewhere, every picture has words, nothing is fetched."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """Links, loaded files, anchors and pictures of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.wordless: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag refers to."""
        found = {key: value or "" for key, value in attrs}
        self.anchors |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in LOADED and LOADED[tag] in found and found.get("rel") != "canonical":
            self.loaded.append(found[LOADED[tag]])
        if tag == "img" and not found.get("alt", "").strip():
            self.wordless.append(found.get("src", "?"))


def problems(site: Path) -> list[str]:
    """Return what is wrong with a site."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        found += [f"{name}: no words for the picture {src}" for src in page.wordless]
        found += [f"{name}: loads {src}" for src in page.loaded if urlsplit(src).netloc]
        for link in page.links + page.loaded:
            if not leads_somewhere(link, path, pages):
                found.append(f"{name}: {link} leads nowhere")
    return found


def leads_somewhere(link: str, path: Path, pages: dict[Path, Page]) -> bool:
    """Tell whether a link within the site has a target; links that leave it are not followed."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.exists():
        return False
    page = pages.get(target)
    return page is None or not parts.fragment or unquote(parts.fragment) in page.anchors


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print("\n".join(wrong) or "the site is whole")
    sys.exit(bool(wrong))
