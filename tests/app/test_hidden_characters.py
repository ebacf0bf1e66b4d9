"""Characters that cannot be seen, or that turn the direction of writing, on pages."""

import json
import re

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dualpca as dp
from dualpca import report
from dualpca.app.cli._look import _name
from dualpca.app.explorer.session import open_session
from dualpca.app.live.server import create
from dualpca.app.live.window import Window
from dualpca.files.fields import visible
from tests.app import explorer_cases, live_cases

HIDDEN = ["\u200b", "\u200f", "\u202e", "\u2066", "\u2069", "\ufeff", "\xad", "\x1b", "\U000e0041"]
N = 40


def table():
    """Rows whose columns, levels and names differ in what cannot be seen."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=N)
    names = [f"pay{sign}ment" for sign in HIDDEN[:6]]
    values = np.round(z[:, None] + 0.4 * rng.normal(size=(N, 6)), 3)
    frame = pl.DataFrame(values, schema=names, orient="row")
    levels = [f"go{HIDDEN[2]}od", f"go{HIDDEN[6]}od"]
    return frame.with_columns(
        pl.Series(f"gra{HIDDEN[0]}de", [levels[int(one > 0)] for one in z]),
        pl.Series(f"wh{HIDDEN[7]}o", [f"r{HIDDEN[i % 9]}{i}" for i in range(N)]),
    )


def texts_in(value):
    """Yield all text in what JSON holds."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from texts_in(key)
            yield from texts_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts_in(one)


def hidden_in(text):
    return [sign for sign in text if not (sign.isprintable() or sign.isspace())]


def test_pages_show_what_inspect_shows():
    for sign in HIDDEN:
        name = f"a{sign}b"
        assert visible(name) == _name(name) == f"a{ascii(sign)[1:-1]}b"
    assert visible("two\u00a0words\n\u3000and 中文 é 👩") == "two\u00a0words\n\u3000and 中文 é 👩"
    value = {"a": [1.5, None, True, ("\u200b",)]}
    assert visible(value) == {"a": [1.5, None, True, ["\\u200b"]]}


# --- the report ----------------------------------------------------------------------------------


def parts_of(page):
    """Return a page without its programs, and the texts of its figures."""
    figures = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)
    words = re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.S)
    return words, [text for one in figures for text in texts_in(json.loads(one))]


@pytest.mark.parametrize("kind", ["numbers", "mixed"])
def test_a_report_shows_them_and_leaves_the_table_as_it_is(kind, tmp_path):
    frame = table()
    *columns, grade, who = frame.columns
    rows = frame.select(columns if kind == "numbers" else [*columns, grade])
    if kind == "numbers":
        model = dp.PPCA(2, random_state=0).fit(rows)
    else:
        model = dp.CopulaPPCA(1, random_state=0, max_iter=20, tol=1e-2).fit(rows)
    target = tmp_path / "page.html"
    report.write(model, rows, target, ids=frame[who], color=frame[grade], title=f"A{HIDDEN[2]}B")
    words, drawn = parts_of(target.read_text("utf-8"))
    assert hidden_in(words) == [] and hidden_in("".join(drawn)) == []
    assert "<title>A\\u202eB</title>" in words and "pay\\u200bment" in words
    assert any("go\\u202eod" in text for text in drawn)
    assert_frame_equal(frame, table())


# --- the explorer and the live page --------------------------------------------------------------


def test_the_explorers_answers_show_them_and_its_export_has_them():
    frame = table()
    *columns, grade, who = frame.columns
    model = dp.PPCA(2, random_state=0).fit(frame.select(columns))
    session = open_session(model, frame, id_column=who, source=f"t{HIDDEN[2]}.csv", color=grade)
    client = explorer_cases.Client(session)
    described = client.get("/api/model").json()
    asked = {
        "/api/rows": {"rows": list(range(12)), "component": 0},
        "/api/search": {"text": f"r{HIDDEN[2]}2"},
        "/api/expected": {"row": 2},
        "/api/difference": {"rows": [0, 1, 2, 3, 4], "component": 0},
        "/api/errors": {"rows": [0, 1, 2], "component": 0},
        "/api/impute": {"row": 2, "hidden": [1]},
        "/api/decode": {"latent": [0.1, 0.2], "component": 0},
        "/api/sample": {"count": 2, "seed": 0, "component": 0},
    }
    found = {path: client.good(path, body) for path, body in asked.items()}
    for path, answer in [("/api/model", described), *found.items()]:
        assert hidden_in("".join(texts_in(answer))) == [], path
    assert described["features"][0] == "pay\\u200bment" and described["source"] == "t\\u202e.csv"
    names = [one["name"] for one in described["columns"]]
    assert described["color"] == "gra\\u200bde" in names
    assert 2 in found["/api/search"]["rows"]  # looked for as the table has it
    refused = client.post("/api/rows", {f"ro{HIDDEN[2]}ws": [0], "component": 0})
    assert refused.status_code == 422 and hidden_in("".join(texts_in(refused.json()))) == []
    export = client.post("/api/export", {"rows": [2, 3], "component": 0}).text
    assert columns[2] in export and f"r{HIDDEN[2]}2" in export
    assert_frame_equal(frame, table())
    assert list(session.features) == columns


def test_the_live_page_shows_them(tmp_path):
    """Times are text that comes with the rows."""
    path = tmp_path / "rows.csv"
    lines = live_cases.lines_of(live_cases.faulty(), time=False)
    path.write_text(
        live_cases.header() + "".join(f"n{HIDDEN[2]}{i},{x}" for i, x in enumerate(lines))
    )
    heard = live_cases.Heard(live_cases.monitor(), path)
    try:
        window = Window(heard.watch, f"m{HIDDEN[0]}.dpca", "rows.csv")
        heard.go_on()
        client = explorer_cases.Client.__new__(explorer_cases.Client)
        client.app, client.headers = create(window, "run"), {}
        found = [client.get(f"/api/{name}").json() for name in ("watch", "rows", "sensor/1")]
        table = client.get("/api/table").text
    finally:
        heard.watch.close()
    assert hidden_in("".join(texts_in(found))) == []
    assert found[0]["model"] == "m\\u200b.dpca" and "n\\u202e99" in found[1]["times"]
    assert f"n{HIDDEN[2]}99" in table
