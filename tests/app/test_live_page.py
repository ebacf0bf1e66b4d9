"""The live page in a real browser, and who may ask its server.

Screenshots go to the folder that DUALPCA_ARTEFACTS names, or to pytest's own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import polars as pl
import pytest

import dualpca as dp
from tests.app.explorer_cases import TOKEN
from tests.app.live_cases import SENSORS, faulty, header, lines_of, monitor, rows_of
from tests.conftest import rest_slow

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: the page is not tested"
)
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
LONG = 60_000  # milliseconds: the machine may be busy
browsed = pytest.mark.skipif(
    not os.access(CHROMIUM, os.X_OK),
    reason="chromium is not installed: see tests/install_chromium.sh; the page is not tested",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    place = tmp_path_factory.mktemp("model") / "plant.dpca"
    entry = {"columns": ["time", *SENSORS], "time": "time"}
    dp.save(monitor(), place, metadata={"table": {"columns": SENSORS}, "monitor": entry})
    return place


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def shots(tmp_path_factory):
    kept = os.environ.get("DUALPCA_ARTEFACTS")
    place = Path(kept) if kept else tmp_path_factory.mktemp("artefacts")
    place.mkdir(parents=True, exist_ok=True)
    return place


@contextmanager
def served(model, folder, lines):
    """Watch a file of some lines with a page; yield what it said of the page."""
    shutil.copy(model, folder / "plant.dpca")
    (folder / "live.csv").write_text(header() + "".join(lines))
    words = ["watch", "plant.dpca", "live.csv", "--page", "--no-open", "--json", "--token", TOKEN]
    command = [sys.executable, "-c", "from dualpca.app.cli import main; main()", *words]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


def more(folder, X, first):
    with (folder / "live.csv").open("a") as file:
        file.writelines(lines_of(X, first=first))


@contextmanager
def opened(browser, link, width=1440, height=900, **options):
    """Open the page; fail the test if a script fails, or something is asked for elsewhere."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    context.set_default_timeout(LONG)
    page, problems = context.new_page(), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console", lambda line: line.type in ("error", "warning") and problems.append(line.text)
    )
    page.on("request", lambda one: "127.0.0.1" in one.url or problems.append(one.url))
    page.goto(link)
    page.wait_for_selector("html[data-ready]")
    yield page
    assert [one for one in problems if not one.startswith("blob:")] == []
    context.close()


def until(page, test, arg=None):
    page.wait_for_function(f"(arg) => {test}", arg=arg)


def word(page):
    return page.text_content("#state-word")


def picture(page, k=0):
    """Return what a chart shows, as it is coded."""
    return page.evaluate("(k) => document.querySelectorAll('.chart canvas')[k].toDataURL()", k)


@browsed
def test_a_page_waits_moves_and_tells_of_an_alarm_and_its_end(model, browser, tmp_path, shots):
    X = rows_of(300, 1)
    X[200:215, 1] += 12
    with served(model, tmp_path, []) as found, opened(browser, found["url"]) as page:
        assert "token" not in page.url
        assert word(page) == "Waiting for rows"
        assert "begin with the first row of live.csv" in page.text_content("#charts")
        page.screenshot(path=shots / "live-empty.png")
        more(tmp_path, X[:190], 0)
        until(page, "dualpcaLive.rows === 190")
        assert word(page) == "In control"
        names = page.locator(".chart h3").all_text_contents()
        assert names == ["T²", "SPE", "MEWMA", "residual"]
        assert len(page.locator("#bars li").all()) >= 3
        before = [picture(page, k) for k in range(4)]
        page.screenshot(path=shots / "live-quiet.png")
        more(tmp_path, X[190:210], 190)
        until(page, "dualpcaLive.rows === 210")
        assert all(picture(page, k) != before[k] for k in range(4))
        assert word(page).startswith("Alarm since 06:16:40: flow ")
        assert "Alarm at row 201" in page.text_content("#told")
        assert page.locator("#told").get_attribute("role") == "alert"
        assert page.locator("#bars button").first.text_content().startswith("flow")
        until(page, "document.getElementById('sensor-title').textContent.startsWith('flow')")
        detail = page.evaluate("dualpcaLive.detail")
        np.testing.assert_allclose(detail["measured"], X[:210, 1], rtol=1e-5)
        wrong = np.array(detail["measured"][200:]) - np.array(detail["expected"][200:])
        assert np.all(wrong > 6)
        page.screenshot(path=shots / "live-alarm.png")
        more(tmp_path, X[210:], 210)
        until(page, "dualpcaLive.rows === 300 && dualpcaLive.open === null")
        assert word(page) == "In control" and "over" in page.text_content("#told")
        page.select_option("#span", "100")
        page.click("#alarms button[data-first='201']")
        assert "Sensors of the alarm" in page.text_content("#bars-title")
        assert page.text_content("#pause") == "Resume"
        page.click("#bars-now")
        assert page.text_content("#pause") == "Pause"


@browsed
@pytest.mark.slow
def test_pause_scales_spans_and_exports(model, browser, tmp_path, shots):
    lines = lines_of(faulty())
    with served(model, tmp_path, lines) as found, opened(browser, found["url"]) as page:
        until(page, "dualpcaLive.rows === 400")
        page.click("#pause")
        held = picture(page)
        more(tmp_path, rows_of(5, 3), 400)
        until(page, "dualpcaLive.rows === 405")
        assert picture(page) == held
        with page.expect_download() as download:
            page.click("#save-csv")
        table = pl.read_csv(download.value.path())
        assert table["row"].to_list() == list(range(101, 401))  # what is shown while it pauses
        np.testing.assert_allclose(table["level"], faulty()[100:, 3])
        page.click("#pause")
        assert picture(page) != held
        page.select_option("#span", "100")
        log = picture(page, 1)
        page.click("text=Linear")
        assert picture(page, 1) != log
        with page.expect_download() as download:
            page.click("#save-png")
        download.value.save_as(shots / "live-export.png")
        assert (shots / "live-export.png").read_bytes().startswith(b"\x89PNG")


@browsed
def test_everything_by_keys_and_what_a_row_was(model, browser, tmp_path):
    lines = lines_of(faulty())
    with served(model, tmp_path, lines) as found, opened(browser, found["url"]) as page:
        until(page, "dualpcaLive.rows === 400")
        page.keyboard.press("p")
        assert page.text_content("#pause") == "Resume"
        page.focus("#charts")
        for _ in range(3):
            page.keyboard.press("ArrowLeft")
        assert page.text_content("#readout") == "Row 397 at 2026-03-02 06:33:00: in alarm."
        page.keyboard.press("Escape")
        assert "Point at a chart" in page.text_content("#readout")
        reached = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            reached.add(
                page.evaluate(
                    "document.activeElement.id || document.activeElement.closest('[id]')?.id"
                )
            )
        assert {
            "theme",
            "pause",
            "span",
            "save-csv",
            "save-png",
            "charts",
            "bars",
            "alarms",
        } <= reached
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, select')].filter((one) => "
            "!one.textContent.trim() && !one.getAttribute('aria-label')).length"
        )
        assert unnamed == 0


@browsed
@pytest.mark.parametrize(
    "screen",
    rest_slow([(390, "dark"), (390, "light"), (1440, "light"), (1440, "dark")], {(390, "dark")}),
)
def test_the_page_fits_its_screen_in_light_and_dark(model, browser, tmp_path, shots, screen):
    width, scheme = screen
    lines = lines_of(faulty())
    options = {"width": width, "height": 844, "color_scheme": scheme}
    with served(model, tmp_path, lines) as found, opened(browser, found["url"], **options) as page:
        until(page, "dualpcaLive.rows === 400 && dualpcaLive.detail")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        before = picture(page)
        page.screenshot(path=shots / f"live-{width}-{scheme}.png", full_page=width < 500)
        page.click("#theme")
        assert picture(page) != before


@browsed
@pytest.mark.slow
def test_a_page_says_when_the_watch_has_stopped(model, browser, tmp_path):
    context = browser.new_context()
    page = context.new_page()
    with served(model, tmp_path, lines_of(rows_of(20, 1))) as found:
        page.goto(found["url"])
        page.wait_for_selector("html[data-ready]")
    page.wait_for_selector("#banner:not([hidden])", timeout=LONG)
    assert "does not answer" in page.text_content("#banner")
    context.close()


def test_the_page_is_guarded_as_the_explorer_is(model, tmp_path):
    with served(model, tmp_path, lines_of(rows_of(20, 1))) as found:
        address = f"http://127.0.0.1:{found['port']}"
        assert httpx.get(f"{address}/api/rows").status_code == 401
        assert httpx.get(f"{address}/static/live.js").status_code == 401
        known = {"x-dualpca-token": TOKEN}
        page = httpx.get(f"{address}/", headers=known)
        assert "default-src 'none'" in page.headers["content-security-policy"]
        strange = httpx.get(f"{address}/api/rows", headers={**known, "host": "evil.example"})
        assert strange.status_code == 403
        end = time.monotonic() + LONG / 1000  # the page is there before the rows are judged
        while True:
            rows = httpx.get(f"{address}/api/rows?since=15", headers=known).json()
            if rows["rows"] == 20 or time.monotonic() > end:
                break
            time.sleep(0.05)
        assert (rows["rows"], len(rows["times"])) == (20, 5)
        assert httpx.get(f"{address}/api/sensor/9", headers=known).status_code == 404
        assert httpx.get(f"{address}/api/rows?since=x", headers=known).status_code == 422
        assert httpx.get(f"{address}/static/none.js", headers=known).status_code == 404
