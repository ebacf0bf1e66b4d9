"""The checks of the built documentation find what they are there to find."""

import re
import shutil
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
GOOD = '<html><body><h1 id="top">x</h1><a href="#top">up</a><img src="a.png" alt="a"></body></html>'


@pytest.fixture(scope="module")
def checks():
    sys.path.insert(0, str(DOCS))
    try:
        import browse_site
        import check_site

        yield check_site, browse_site
    finally:
        sys.path.remove(str(DOCS))


@pytest.fixture
def site(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "index.html").write_text(GOOD, "utf-8")
    return tmp_path


def add(site, body):
    (site / "page.html").write_text(f"<html><body>{body}</body></html>", "utf-8")


def test_a_whole_site_is_whole(checks, site):
    add(
        site,
        '<a href="index.html#top">a</a><a href="https://doi.org/10.1111/1467-9868.00196">b</a>'
        '<svg class="drawing"><title>words</title></svg>',
    )
    assert checks[0].problems(site) == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('<a href="gone.html">x</a>', "leads nowhere"),
        ('<a href="index.html#gone">x</a>', "leads nowhere"),
        ('<img src="a.png">', "no words"),
        ('<img src="a.png" alt=" ">', "no words"),
        ('<svg class="drawing"><rect/></svg>', "no words"),
        ("<math><mo>\\{</mo></math>", "a formula shows"),
        ('<script src="https://cdn.example.org/x.js"></script>', "loads"),
        ('<a href="http://example.org/">x</a>', "is not https"),
        ('<a href="https://example/">x</a>', "no proper host"),
        ('<a href="//example.org/">x</a>', "no scheme"),
        ('<a href="https://dx.doi.org/10.1111/1467-9868.00196">x</a>', "has moved"),
        ('<a href="https://doi.org/1467-9868.00196">x</a>', "is no DOI"),
        ('<a href="https://doi.org/10.1111/">x</a>', "is no DOI"),
    ],
)
def test_a_fault_is_found(checks, site, body, why):
    add(site, body)
    found = checks[0].problems(site)
    assert len(found) == 1 and why in found[0], found


def test_words_of_the_search_lead_to_their_guide_without_a_browser(checks):
    """Each guide that is asked for names the words; `make docs` asks the built site."""
    assert len(checks[1].ASKED) >= 10
    for words, page in checks[1].ASKED.items():
        text = (DOCS / f"{page}.md").read_text("utf-8")
        entries = re.findall(r"! ([^,\n]+)", re.search(r"^```\{index\} (.*)$", text, re.M)[1])
        found = [e for e in entries if words.lower() in e.lower() and 2 * len(words) >= len(e)]
        assert found, (words, page)


def test_links_to_this_machine_are_nobodys_business(checks):
    assert checks[0].malformed("http://127.0.0.1:43117/") == ""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_sees_wide_pages_fetches_and_errors(checks, site):
    pytest.importorskip("playwright", reason="playwright is not installed")
    head = '<meta name="viewport" content="width=device-width">'
    (site / "wide.html").write_text(f"{head}<div style='width: 900px'>wide</div>", "utf-8")
    (site / "box.html").write_text(
        f"{head}<div style='overflow-x: auto'><div style='width: 900px'>x</div></div>", "utf-8"
    )
    hidden = "<div style='overflow-x: hidden'><p style='width: 900px'>lost</p></div>"
    (site / "cut.html").write_text(f"{head}{hidden}", "utf-8")
    (site / "fetch.html").write_text(f"{head}<img src='http://127.0.0.1:9/x.png'>", "utf-8")
    (site / "error.html").write_text(f"{head}<script>throw Error('ouch')</script>", "utf-8")
    found = "\n".join(line for line in checks[1].looked_at(site, search=False))
    assert "wide.html: wider" in found and "box.html" not in found and "index.html" not in found
    assert "cut.html: 'p lost' is cut off" in found
    assert "x.png is fetched" in found and "ouch" in found
