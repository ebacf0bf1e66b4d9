"""The explorer in a real browser: Debian's chromium, driven by Playwright.

Screenshots go to the folder that DUALPCA_ARTEFACTS names, or to pytest's own.
"""

import os
import shutil
import socket
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from PIL import Image

import dualpca as dp
from tests.app.explorer_cases import NAMES, TOKEN, digits, fitted, iris, served

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: the page is not tested"
)
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
LONG = 60_000  # milliseconds: the machine may be busy
pytestmark = [
    pytest.mark.skipif(
        not os.access(CHROMIUM, os.X_OK),
        reason="chromium is not installed: see tests/install_chromium.sh; the page is not tested",
    ),
    pytest.mark.filterwarnings("ignore:the variance of column"),  # of pixels, and no matter here
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("browser")
    frame = digits().with_columns(pl.Series("name", [f"scan-{i}" for i in range(1797)]))
    frame.write_csv(place / "digits.csv")
    dp.PPCA(10).fit(frame.drop("digit", "name")).save(place / "ppca.dpca")
    iris().write_csv(place / "iris.csv")
    fitted(dp.MixturePPCA(2, 2, random_state=0)).save(place / "mixture.dpca")
    fitted(dp.KernelPCA(2, kernel="rbf", gamma="median")).save(place / "kernel.dpca")
    fitted(dp.HierarchicalPPCA([2, 2])).save(place / "tree.dpca")
    return place


@pytest.fixture(scope="module")
def shots(tmp_path_factory):
    kept = os.environ.get("DUALPCA_ARTEFACTS")
    place = Path(kept) if kept else tmp_path_factory.mktemp("artefacts")
    place.mkdir(parents=True, exist_ok=True)
    return place


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def link(folder):
    options = ("--image", "8x8", "--id", "name")
    with served("ppca.dpca", "digits.csv", *options, cwd=folder) as (_, found):
        yield found["url"]


def opened(browser, link, width=1180, height=760, **options):
    """Open a page that fails the test if a script fails or the policy is broken."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    context.set_default_timeout(LONG)
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda line: _note(page, line))
    page.goto(link)
    page.wait_for_selector("html[data-ready]")
    return page


def _note(page, line):
    gone = "Failed to load resource" in line.text  # a server that a test has stopped
    if line.type in ("error", "warning") and not gone and "GPU stall" not in line.text:
        page.problems.append(line.text)


@pytest.fixture
def page(browser, link):
    found = opened(browser, link)
    yield found
    assert found.problems == []
    found.context.close()


def place(page, x, y):
    """Return the pixel at shares of the plot's width and height."""
    box = page.locator("#plot").bounding_box()
    return box["x"] + x * box["width"], box["y"] + y * box["height"]


def pixel_of(page, row):
    """Return where a row is drawn."""
    x, y = page.evaluate(
        """(row) => { const s = dualpcaExplorer.scatter();
        return s.toPixel(s.positions[2 * row], s.positions[2 * row + 1]); }""",
        row,
    )
    box = page.locator("#plot").bounding_box()
    return box["x"] + x, box["y"] + y


def until(page, test):
    """Wait for a test in the page to hold; `text(id)` there is what an element says.

    A function is waited for: the page's policy forbids strings of code, to tests too.
    """
    says = "const text = (id) => document.getElementById(id)?.textContent ?? '';"
    page.wait_for_function(f"() => {{ {says} return {test}; }}")


def latent(page):
    return page.evaluate("dualpcaExplorer.state.latent")


def decoded(page, expected):
    """Wait until the decoded values are those of the model."""
    page.wait_for_function(
        """(wanted) => { const p = dualpcaExplorer.state.point;
        return p && p.values.every((v, j) => Math.abs(v - wanted[j]) < 1e-3); }""",
        arg=np.asarray(expected).tolist(),
    )


@pytest.fixture(scope="module")
def model(folder):
    return dp.load(folder / "ppca.dpca")


def colours(page):
    """Return how many different colours the points' canvas shows."""
    return page.evaluate(
        """async () => { const s = dualpcaExplorer.scatter(); s.draw();
        const { gl } = s.points; const { width, height } = gl.canvas;
        const bytes = new Uint8Array(4 * width * height);
        gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
        const found = new Set();
        for (let i = 0; i < bytes.length; i += 4) if (bytes[i + 3] > 200)
          found.add(bytes[i] << 16 | bytes[i + 1] << 8 | bytes[i + 2]);
        return found.size; }"""
    )


def test_points_are_drawn_in_the_colours_of_a_column(page, shots):
    assert page.title() == "PPCA – dualpca explorer"
    assert "token" not in page.url
    assert colours(page) > 8
    page.select_option("#colour", "")
    page.wait_for_selector("#legend", state="hidden")
    page.select_option("#colour", label="reconstruction error")
    page.wait_for_selector("#legend .ramp")
    page.screenshot(path=shots / "numbers.png")


def test_a_click_takes_the_latents_of_a_row_and_decodes_them(page, model, folder, shots):
    page.mouse.click(*pixel_of(page, 5))
    until(page, "dualpcaExplorer.state.row >= 0")
    row = page.evaluate("dualpcaExplorer.state.row")
    table = digits().drop("digit")[row]
    np.testing.assert_allclose(latent(page), model.transform(table)[0], atol=1e-5)
    decoded(page, model.reconstruct(table)[0])
    until(page, "text('fact-nearest').includes('scan-') && text('fact-nearest').endsWith(' sd')")
    page.screenshot(path=shots / "click.png")


def test_a_drag_decodes_what_is_under_the_pointer(page, model, shots):
    page.mouse.move(*place(page, 0.3, 0.4))
    page.mouse.down()
    page.mouse.move(*place(page, 0.5, 0.6), steps=10)
    page.mouse.move(*place(page, 0.7, 0.5), steps=10)
    page.screenshot(path=shots / "drag.png")
    page.mouse.up()
    z = latent(page)
    assert z[2:] == [0] * 8
    assert z[0] > 0.5
    decoded(page, model.inverse_transform([z])[0])


@pytest.mark.slow
def test_sliders_move_one_latent_with_pointer_and_keys(page, model):
    page.locator("#slider-3").fill("1.5")
    assert latent(page)[3] == 1.5
    decoded(page, model.inverse_transform([latent(page)])[0])
    page.locator("#slider-3").press("ArrowRight")
    assert latent(page)[3] > 1.5
    page.click("#to-centre")
    assert latent(page) == [0] * 10


@pytest.mark.slow
def test_another_theme_paints_the_points_anew(page):
    colours = "dualpcaExplorer.scatter().points.data.colours.slice(0, 3).join()"
    before = page.evaluate(colours)
    page.click("#theme")
    assert page.evaluate(colours) != before


@pytest.mark.slow
def test_arrows_move_the_point(page, model):
    page.focus("#plot")
    page.keyboard.press("ArrowRight")
    small = latent(page)[0]
    page.keyboard.press("Shift+ArrowRight")
    assert latent(page)[0] == pytest.approx(6 * small)
    page.keyboard.press("ArrowDown")
    assert latent(page)[1] < 0
    decoded(page, model.inverse_transform([latent(page)])[0])
    page.keyboard.press("Enter")
    row = page.evaluate("dualpcaExplorer.state.row")
    page.keyboard.press("s")
    selected = page.evaluate("dualpcaExplorer.state.selection")
    assert len(selected) == 50 and row in selected


@pytest.mark.slow
def test_any_two_axes(page):
    page.select_option("#axis-x", "4")
    page.select_option("#axis-y", "2")
    page.mouse.move(*place(page, 0.5, 0.5))
    page.mouse.down()
    page.mouse.move(*place(page, 0.6, 0.3), steps=4)
    page.mouse.up()
    changed = {k for k, z in enumerate(latent(page)) if z != 0}
    assert changed == {2, 4}
    page.select_option("#axis-x", "2")  # the two change places
    assert page.input_value("#axis-y") == "4"


def lasso(page):
    page.check("input[value=lasso]", force=True)
    corners = [(0.45, 0.72), (0.68, 0.72), (0.68, 0.97), (0.42, 0.97), (0.42, 0.75)]
    page.mouse.move(*place(page, *corners[0]))
    page.mouse.down()
    for corner in corners[1:]:
        page.mouse.move(*place(page, *corner), steps=5)
    page.mouse.up()
    page.wait_for_selector(".table-box tbody tr")


@pytest.mark.slow
def test_a_lasso_selects_rows_that_can_be_read_exported_and_undone(page, shots, folder, model):
    lasso(page)
    rows = page.evaluate("dualpcaExplorer.state.selection")
    assert 50 < len(rows) < 400
    table = pl.read_csv(folder / "digits.csv")
    assert (table["digit"][rows] == 0).mean() > 0.7  # where zeros are
    first = page.locator(".table-box tbody tr").first.inner_text()
    assert f"scan-{rows[0]}" in first
    assert page.locator("#selection-body .facts dd").first.inner_text().endswith(" sd")
    page.screenshot(path=shots / "lasso.png")
    with page.expect_download() as download:
        page.click("#export")
    exported = pl.read_csv(download.value.path())
    assert exported["row"].to_list() == [f"scan-{i}" for i in rows]
    X = table.select([f"p{j}" for j in range(64)])[rows]
    pixels = table.select(X.columns).to_numpy()
    spread = np.sqrt(np.mean(pixels.var(axis=0)))
    errors = np.sqrt(np.mean((model.reconstruct(X) - X.to_numpy()) ** 2, axis=1)) / spread
    np.testing.assert_allclose(exported["reconstruction error"], errors)
    page.keyboard.press("Escape")
    assert page.evaluate("dualpcaExplorer.state.selection.length") == 0
    page.keyboard.press("Control+z")
    assert page.evaluate("dualpcaExplorer.state.selection.length") == len(rows)
    page.keyboard.press("Control+z")
    assert "No rows selected" in page.inner_text("#panel-selection")


@pytest.mark.slow
def test_a_path_between_two_clicks_is_played(page, shots, model):
    page.click("#tab-path")
    page.mouse.click(*place(page, 0.5, 0.8))
    page.mouse.click(*place(page, 0.25, 0.5))
    page.wait_for_selector("#play")
    start, end = page.evaluate("dualpcaExplorer.state.ends")
    assert start != end
    page.click("#play")
    until(page, "parseInt(text('share')) > 20")
    page.screenshot(path=shots / "path.png")
    page.click("#play")
    share = float(page.input_value("#scrub")) / 47
    shown = page.evaluate("dualpcaExplorer.scatter().marks.point")
    between = np.array(start) + share * (np.array(end) - np.array(start))
    np.testing.assert_allclose(shown, between[:2], atol=1e-6)
    page.locator("#scrub").fill("47")
    assert page.inner_text("#share") == "100 %"


def test_hidden_entries_are_filled_with_intervals(page, shots, model, folder):
    page.click("#tab-missing")
    page.mouse.click(*place(page, 0.3, 0.5))
    page.wait_for_selector("#hide-second")
    page.click("#hide-second")
    until(page, "text('fact-hidden') === '32 of 64'")
    row = page.evaluate("dualpcaExplorer.state.row")
    truth = digits().drop("digit")[row]
    holes = truth.to_numpy().astype(float)
    holes[0, 32:] = np.nan
    frame = pl.DataFrame(holes, schema=truth.columns, orient="row")
    filled, std = (np.asarray(part)[0] for part in model.impute(frame, return_std=True))
    inside = np.abs(filled - truth.to_numpy()[0])[32:] <= 1.96 * std[32:]
    assert page.inner_text("#fact-inside") == f"{inside.sum()} of 32"
    page.screenshot(path=shots / "missing.png")
    page.click("#hide-none")
    until(page, "text('fact-hidden') === '0 of 64'")
    box = page.locator("#brush").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.06, box["y"] + box["height"] * 0.06)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.44, box["y"] + box["height"] * 0.06, steps=12)
    page.mouse.up()
    until(page, "parseInt(text('fact-hidden')) >= 2")


@pytest.mark.slow
def test_samples_stand_beside_rows(page, shots):
    page.click("#tab-samples")
    page.click("#draw")
    page.wait_for_selector(".pair")
    assert page.locator(".pair").count() == 12
    page.screenshot(path=shots / "samples.png")
    page.locator(".pair").first.click()
    assert latent(page) != [0] * 10


@pytest.mark.slow
def test_zoom_pan_and_fit(page):
    where = "JSON.stringify(dualpcaExplorer.scatter().view)"
    whole = page.evaluate(where)
    page.mouse.move(*place(page, 0.4, 0.4))
    page.mouse.wheel(0, -400)
    until(page, "dualpcaExplorer.scatter().view.zoom > 1.2")
    page.check("input[value=pan]", force=True)
    before = page.evaluate(where)
    page.mouse.move(*place(page, 0.4, 0.4))
    page.mouse.down()
    page.mouse.move(*place(page, 0.6, 0.6), steps=4)
    page.mouse.up()
    assert page.evaluate(where) != before
    assert latent(page) == [0] * 10
    page.click("#zoom-reset")
    assert page.evaluate(where) == whole


@pytest.mark.slow
def test_the_look_light_dark_and_on_a_phone(browser, link, shots):
    for name, width, height, scheme in (
        ("light", 1440, 900, "light"),
        ("dark", 1440, 900, "dark"),
        ("phone", 390, 844, "light"),
    ):
        page = opened(browser, link, width, height, color_scheme=scheme)
        until(page, "dualpcaExplorer.state.point !== null")
        page.screenshot(path=shots / f"{name}.png", full_page=name == "phone")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
        assert page.evaluate("document.documentElement.dataset.theme") == (
            "dark" if scheme == "dark" else "light"
        )
        assert page.problems == []
        page.context.close()


def test_every_control_has_a_name_and_can_be_reached(page):
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input')].filter((node) =>
        node.offsetParent && !(node.textContent.trim() || node.getAttribute('aria-label')
          || node.labels?.length)).map((node) => node.id)"""
    )
    assert nameless == []
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id"))
    wanted = {"theme", "help", "axis-x", "axis-y", "colour", "zoom-reset", "plot", "tab-point"}
    assert wanted | {"slider-0", "slider-9"} <= set(seen)
    page.focus("#tab-point")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-path"


@pytest.mark.slow
def test_two_tabs_do_not_disturb_each_other(browser, link, model):
    one = opened(browser, link)
    two = one.context.new_page()
    two.goto(link)
    two.wait_for_selector("html[data-ready]")
    one.locator("#slider-0").fill("1")
    two.locator("#slider-0").fill("-1")
    decoded(one, model.inverse_transform([[1] + [0] * 9])[0])
    decoded(two, model.inverse_transform([[-1] + [0] * 9])[0])
    assert one.problems == []
    one.context.close()


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=str)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_cluster_of_a_tree_opens_its_own_map(browser, folder, shots, size, scheme):
    tree, flowers = dp.load(folder / "tree.dpca"), iris().select(NAMES)
    with served("tree.dpca", "iris.csv", cwd=folder) as (_, found):
        page = opened(browser, found["url"], *size, color_scheme=scheme)
        assert page.locator("#component-field").is_hidden()
        below = page.locator("#tree ul button")
        leaves = tree.predict(flowers)
        own = [sum(tree.nodes_[i].parent == node for i in leaves) for node in (1, 2)]
        assert below.all_inner_texts() == [
            f"{node} · {n}" for node, n in zip((1, 2), own, strict=True)
        ]
        assert "double-click a cluster" in page.locator("#hint").inner_text()
        decoded(page, tree.nodes_[0].mean)
        page.wait_for_timeout(500)  # the picture is drawn in the next frames
        page.screenshot(path=shots / f"tree-{size[0]}-{scheme}.png")
        below.nth(1).click()
        page.wait_for_selector('#tree .here[data-node="2"]')
        decoded(page, tree.nodes_[2].mean)
        assert page.locator("#tree ol button").count() == 2
        page.screenshot(path=shots / f"tree-inside-{size[0]}-{scheme}.png")
        # a double click on a row opens the map of its cluster
        row = int(np.flatnonzero(leaves == tree.nodes_[2].children[0])[0])
        x, y = page.evaluate(
            "row => { const s = dualpcaExplorer.scatter(); "
            "return s.toPixel(s.positions[2 * row], s.positions[2 * row + 1]); }",
            row,
        )
        page.locator("#plot").dblclick(position={"x": x, "y": y})
        page.wait_for_selector("#tree ol li:nth-child(3)")
        page.locator('#tree ol button[data-node="0"]').click()
        page.wait_for_selector('#tree .here[data-node="0"]')
        overflow = "document.documentElement.scrollWidth > innerWidth"
        assert not page.evaluate(overflow)
        assert page.problems == []
        page.context.close()


@pytest.mark.slow
def test_a_mixture_shows_its_components_and_a_kernel_what_it_cannot_do(browser, folder, shots):
    with served("mixture.dpca", "iris.csv", cwd=folder) as (_, found):
        page = opened(browser, found["url"])
        mixture = dp.load(folder / "mixture.dpca")
        page.select_option("#component", index=1)
        decoded(page, mixture.means_[1])
        page.locator("#slider-0").fill("0.5")
        decoded(page, mixture.means_[1] + mixture.loadings_[1] @ [0.5, 0])
        page.screenshot(path=shots / "mixture.png")
        assert page.problems == []
        page.context.close()
    with served("kernel.dpca", cwd=folder) as (_, found):
        page = opened(browser, found["url"])
        assert "does not fill missing entries" in page.get_attribute("#tab-missing", "title")
        page.click("#tab-missing")
        assert "does not fill missing entries" in page.inner_text("#panel-missing")
        page.click("#tab-point")
        page.select_option("#way", "smoother")
        page.screenshot(path=shots / "kernel.png")
        assert page.problems == []
        page.context.close()


@pytest.mark.slow
def test_categories_are_shown_as_words(browser, folder, shots):
    dp.CopulaPPCA(2).fit(iris().drop("who")).save(folder / "copula.dpca")
    with served("copula.dpca", "iris.csv", "--id", "who", cwd=folder) as (_, found):
        page = opened(browser, found["url"])
        page.mouse.click(*place(page, 0.3, 0.5))
        levels = page.evaluate("dualpcaExplorer.state.model.levels")
        assert levels == [[], [], [], [], ["setosa", "versicolor", "virginica"]]
        assert page.inner_text("#panel-point").count("Log likelihood ratio") == 1
        page.click("#tab-missing")
        page.mouse.click(*place(page, 0.3, 0.5))
        page.wait_for_selector("#hide-second")
        page.click("#hide-second")
        until(page, "text('fact-hidden') === '2 of 5'")
        assert page.inner_text("#fact-right") in ("0 of 1", "1 of 1")
        assert page.inner_text("#fact-inside").endswith("of 1")
        page.screenshot(path=shots / "copula.png")
        page.click("#tab-samples")
        page.click("#draw")
        page.wait_for_selector(".pair")
        assert page.problems == []
        page.context.close()


@pytest.mark.slow
def test_a_page_outlives_its_server(browser, folder, shots, model):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = ("ppca.dpca", "digits.csv", "--image", "8x8", "--port", port, "--token")
    with served(*start, TOKEN, cwd=folder) as (_, found):
        page = opened(browser, found["url"])
        page.locator("#slider-0").fill("1")
        decoded(page, model.inverse_transform([[1] + [0] * 9])[0])
    page.locator("#slider-0").fill("2")
    page.wait_for_selector("#banner:not([hidden])")
    assert "does not answer" in page.inner_text("#banner")
    page.screenshot(path=shots / "stopped.png")
    with served(*start, TOKEN, cwd=folder):
        page.wait_for_selector('#status[data-state="ok"]')
        decoded(page, model.inverse_transform([[2] + [0] * 9])[0])  # it goes on where it was
    with served(*start, TOKEN + "-another", cwd=folder):
        until(page, "text('banner').includes('token is no longer valid')")
        page.screenshot(path=shots / "locked.png")
    page.context.close()


@pytest.mark.slow
def test_no_rows_and_no_key_are_said_in_words(browser, folder, shots, link):
    context = browser.new_context()
    stranger = context.new_page()
    stranger.goto(link.partition("?")[0])
    assert "The token is missing or wrong" in stranger.inner_text("body")
    context.close()
    with served("ppca.dpca", "--image", "8x8", cwd=folder) as (_, found):
        page = opened(browser, found["url"])
        assert "No table was given" in page.inner_text("#empty")
        page.mouse.click(*place(page, 0.7, 0.3))
        until(page, "dualpcaExplorer.state.point !== null")
        page.screenshot(path=shots / "empty.png")
        assert page.problems == []
        page.context.close()


# --- rows over time, searches, levels, pictures ----------------------------------------------


@pytest.fixture(scope="module")
def plant(folder):
    """A table of 20,000 rows with a time and a fault in a period, and what serves it."""
    n, rng = 20_000, np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 8)) + 0.5 * rng.normal(size=(n, 8))
    X[10_000:10_400, 3] += 6
    frame = pl.DataFrame(X.round(3), schema=[f"s{j}" for j in range(8)], orient="row")
    moments = np.datetime64("2024-03-01T00:00") + 10 * np.arange(n).astype("timedelta64[m]")
    more = [
        pl.Series("when", [str(one).replace("T", " ") for one in moments]),
        pl.Series("batch", [f"B-{i:05d}" for i in range(n)]),
        pl.Series("shift", np.array(["early", "late", "night"])[np.arange(n) // 48 % 3]),
    ]
    frame.with_columns(more).write_csv(folder / "plant.csv")
    dp.PPCA(3).fit(frame).save(folder / "plant.dpca")
    with served("plant.dpca", "plant.csv", "--id", "batch", cwd=folder) as (_, found):
        yield found["url"], frame


@pytest.fixture
def plant_page(browser, plant):
    found = opened(browser, plant[0])
    yield found
    assert found.problems == []
    found.context.close()


def column(page, name):
    page.select_option("#colour", label=name)
    page.wait_for_function(
        "(name) => document.querySelector('#legend h3')?.textContent === name", arg=name
    )


def over_time(page, start, end):
    """Drag from one share of the time to another."""
    box = page.locator("#timeline-plot").bounding_box()
    left, room = box["x"] + 54, box["width"] - 68
    page.mouse.move(left + start * room, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(left + end * room, box["y"] + 60, steps=6)
    page.mouse.up()


def test_a_period_is_selected_and_differs_where_the_fault_is(plant_page, plant, folder, shots):
    page = plant_page
    column(page, "SPE")
    limits = page.evaluate("dualpcaExplorer.timeline()")
    model = dp.load(folder / "plant.dpca")
    assert limits["rows"] == 20_000
    assert limits["limit"] == pytest.approx(model.outliers(plant[1][:1], level=0.95).spe_limit[0])
    over_time(page, 0.5, 0.52)
    page.wait_for_selector("#differences table")
    rows = page.evaluate("dualpcaExplorer.state.selection")
    assert abs(rows[0] - 10_000) < 60 and abs(len(rows) - 400) < 60
    assert rows == list(range(rows[0], rows[0] + len(rows)))
    assert page.locator("#differences tbody tr.sure th").first.inner_text() == "s3"
    assert page.inner_text("#timeline-period").startswith("2024-05-09 ")
    page.screenshot(path=shots / "period.png")
    page.focus("#timeline-plot")
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Enter")
    until(page, "dualpcaExplorer.state.selection.length > 500")


def test_a_row_is_found_by_its_name_and_compared_with_what_is_expected(plant_page, plant, shots):
    page, frame = plant_page, plant[1]
    page.keyboard.press("/")
    page.keyboard.type("b-10005")
    page.wait_for_selector("#hit-0")
    assert page.get_attribute("#search", "aria-activedescendant") == "hit-0"
    page.keyboard.press("Enter")
    page.wait_for_selector("#beside:not([hidden])")
    assert page.evaluate("dualpcaExplorer.state.row") == 10_005
    first = page.locator("#beside tbody tr").first
    assert first.get_attribute("class") == "far"
    cells = [one.inner_text() for one in first.locator("th, td").all()]
    assert cells[0] == "s3" and cells[3].startswith("+") and cells[3].endswith(" sd")
    measured = float(cells[1].replace("−", "-"))
    assert measured == pytest.approx(frame["s3"][10_005], abs=5e-3)
    assert page.locator("#beside tbody tr").count() == 8
    page.screenshot(path=shots / "beside.png")


def test_levels_are_hidden_and_shown_by_the_legend(plant_page):
    page = plant_page
    column(page, "shift")
    late = page.locator('#legend button[data-code="1"]')
    late.click()
    assert late.get_attribute("aria-pressed") == "false"
    hidden = page.evaluate("Array.from(dualpcaExplorer.scatter().states)")
    np.testing.assert_array_equal(np.array(hidden) == 3, np.arange(20_000) // 48 % 3 == 1)
    over_time(page, 0.1, 0.3)
    page.wait_for_selector("#differences table")
    rows = np.array(page.evaluate("dualpcaExplorer.state.selection"))
    assert len(rows) > 2000 and not np.any(rows // 48 % 3 == 1)
    late.focus()
    page.keyboard.press("Enter")
    until(page, "!dualpcaExplorer.scatter().states.includes(3)")
    assert page.evaluate("document.activeElement.dataset.code") == "1"


def test_pictures_show_what_is_on_the_screen(plant_page, tmp_path):
    page = plant_page
    column(page, "SPE")
    with page.expect_download() as download:
        page.click("#save-svg")
    download.value.save_as(tmp_path / "plot.svg")
    drawing = (tmp_path / "plot.svg").read_text("utf-8")
    root = ElementTree.fromstring(drawing)
    words = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "SPE" in words and any(one.startswith("beyond the limit: ") for one in words)
    assert any(one.startswith("latent 1") for one in words)
    assert drawing.count("h0") > 15_000  # a dot each
    with page.expect_download() as download:
        page.click("#save-png")
    download.value.save_as(tmp_path / "plot.png")
    image = Image.open(tmp_path / "plot.png")
    box = page.locator("#plot").bounding_box()
    assert image.size == (2 * (round(box["width"]) + 190), 2 * round(box["height"]))
    middle = np.asarray(image.convert("RGB"))[200:-200, 200:-600]
    assert len(np.unique(middle.reshape(-1, 3), axis=0)) > 50


SCRIPTS = """(() => { const t = (window.spent = { now: 0, frames: [] });
const timed = (f) => function (...a) { const s = performance.now();
  try { return f.apply(this, a); } finally { t.now += performance.now() - s; } };
const raf = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (f) => raf(timed(f));
const add = EventTarget.prototype.addEventListener;
EventTarget.prototype.addEventListener = function (n, f, o) {
  return add.call(this, n, typeof f === "function" && n.startsWith("pointer") ? timed(f) : f, o); };
const tick = () => { t.frames.push(t.now); t.now = 0; raf(tick); };
raf(tick); })()"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["explore", "pan", "lasso", "period"])
def test_a_drag_among_20_000_rows_leaves_time_in_every_frame(browser, plant, mode):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(SCRIPTS)
    page = context.new_page()
    page.goto(plant[0])
    page.wait_for_selector("html[data-ready]")
    if mode != "period":
        page.check(f"input[value={mode}]", force=True)
    box = page.locator("#timeline-plot" if mode == "period" else "#plot").bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.4 * box["height"])
    page.mouse.down()
    page.evaluate("spent.frames.length = 0")
    for k in range(60):
        x, y = 0.2 + k / 100, 0.4 + 0.2 * np.sin(k)
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
    frames = [one for one in page.evaluate("spent.frames") if one]
    page.mouse.up()
    context.close()
    assert np.median(frames) < 8  # milliseconds, of the 16 between two pictures
