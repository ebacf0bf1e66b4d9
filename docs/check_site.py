"""Check a built site: links lead somewhere, pictures have words, nothing is fetched.

Links that leave the site are checked for their form only; CONTRIBUTING.md says how to follow them.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from browse_site import browsed

LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


DOI = re.compile(r"/10\.\d{4,9}/[-._;()/:A-Za-z0-9<>]+[A-Za-z0-9>)]")
MOVED = {"dx.doi.org": "doi.org", "www.doi.org": "doi.org", "arxiv.org/pdf": "arxiv.org/abs"}
HERE = ("127.0.0.1", "localhost")


class Page(HTMLParser):
    """Links, loaded files, anchors and pictures of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.wordless: list[str] = []
        self.broken: list[str] = []
        self.formula = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag refers to."""
        self.formula = self.formula or tag == "math"
        found = {key: value or "" for key, value in attrs}
        self.anchors |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in LOADED and LOADED[tag] in found and found.get("rel") != "canonical":
            self.loaded.append(found[LOADED[tag]])
        if tag == "img" and not found.get("alt", "").strip():
            self.wordless.append(found.get("src", "?"))
        if tag == "svg" and {"drawing", "picture"} & set(found.get("class", "").split()):
            self.wordless.append("a drawing")
        if tag == "title" and self.wordless[-1:] == ["a drawing"]:
            self.wordless.pop()

    def handle_endtag(self, tag: str) -> None:
        """Note where a formula ends."""
        self.formula = self.formula and tag != "math"

    def handle_data(self, data: str) -> None:
        """Note what the converter of formulas did not understand."""
        if self.formula and "\\" in data:
            self.broken.append(data.strip())


def problems(site: Path) -> list[str]:
    """Return what is wrong with a site."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        found += [f"{name}: no words for the picture {src}" for src in page.wordless]
        found += [f"{name}: a formula shows {text}" for text in page.broken]
        found += [f"{name}: loads {src}" for src in page.loaded if urlsplit(src).netloc]
        found += [f"{name}: {link} {why}" for link in page.links if (why := malformed(link))]
        for link in page.links + page.loaded:
            if not leads_somewhere(link, path, pages):
                found.append(f"{name}: {link} leads nowhere")
    return found


def malformed(link: str) -> str:
    """Return what is wrong with the form of a link that leaves the site; nothing if all is well."""
    parts = urlsplit(link)
    if parts.scheme in ("", "mailto") or parts.hostname in HERE:
        return "" if parts.scheme or not parts.netloc else "has no scheme"
    if parts.scheme != "https":
        return "is not https"
    if "." not in (parts.hostname or "") or re.search(r"\s", link):
        return "has no proper host"
    for old, new in MOVED.items():
        if f"{parts.netloc}{parts.path}".startswith(old):
            return f"has moved to {new}"
    if parts.hostname == "doi.org" and not DOI.fullmatch(unquote(parts.path)):
        return "is no DOI"
    return ""


def leads_somewhere(link: str, path: Path, pages: dict[Path, Page]) -> bool:
    """Return True if a link within the site has a target; links that leave it are not followed."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.exists():
        return False
    page = pages.get(target)
    return page is None or not parts.fragment or unquote(parts.fragment) in page.anchors


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1])) + browsed(Path(sys.argv[1]))
    print("\n".join(wrong) or "the site is whole")
    sys.exit(bool(wrong))
