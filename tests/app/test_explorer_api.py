"""The explorer's interface: what it answers, whom it answers, and what it refuses."""

import asyncio
import json
import socket
from typing import get_args

import httpx
import numpy as np
import polars as pl
import pytest
from fastapi import FastAPI

import dualpca as dp
from dualpca.app.explorer import guard
from dualpca.app.explorer.app import open_door, static_files
from dualpca.app.explorer.guard import HEADERS, MOST_BYTES, Bucket, Guard
from dualpca.app.explorer.lenses import METHODS
from dualpca.app.explorer.messages import Way
from dualpca.app.explorer.session import open_session
from dualpca.app.tables.text import TableError
from tests.app.explorer_cases import HOST, NAMES, PORT, TOKEN, Client, fitted, iris, session_of

POSTS = {
    "/api/decode": {"latent": [0.5, -0.5]},
    "/api/path": {"start": [0, 0], "end": [1, 1]},
    "/api/rows": {"rows": [0, 1]},
    "/api/errors": {"rows": [0, 1]},
    "/api/export": {"rows": [0, 1]},
    "/api/impute": {"row": 3, "hidden": [1]},
    "/api/sample": {"count": 2},
}
GETS = ["/", "/static/main.js", "/openapi.json", "/api/health", "/api/model", "/api/points/0"]
COOKIE = {"host": HOST, "cookie": f"dualpca-{PORT}={TOKEN}"}
OWN = {**COOKIE, "origin": f"http://{HOST}"}


@pytest.fixture(scope="module")
def client():
    return Client(session_of(), rate=1e6, burst=10**6)


def test_refusals_are_words_without_control_characters(client):
    found = client.post("/api/sample", {"count": 2, "x\x1b[31m\n": 1})
    assert found.status_code == 422
    assert found.json()["error"] == "x\\x1b[31m\\n: Extra inputs are not permitted."


# --- answers ---------------------------------------------------------------------------------


def test_the_model_is_described(client):
    found = client.get("/api/model").json()
    assert (found["model"], found["rows"], found["source"]) == ("PPCA", 150, "iris.csv")
    assert found["features"] == NAMES
    assert found["identified"]
    assert found["reasons"] == {}
    assert [column["name"] for column in found["columns"]][:4] == [
        *("reconstruction error", "T²", "SPE", "species")
    ]
    assert found["time"] is None
    (space,) = found["components"]
    assert space["axes"] == ["latent 1", "latent 2"]
    points = np.frombuffer(client.get("/api/points/0").content, "<f4").reshape(150, 2)
    np.testing.assert_allclose(points.min(axis=0), space["low"], rtol=1e-6)
    model = fitted(dp.PPCA(2))
    np.testing.assert_allclose(points, model.transform(iris().select(NAMES)), rtol=1e-5, atol=1e-6)


def test_colours_are_numbers(client):
    species = np.frombuffer(client.get("/api/colours/3").content, "<f4")
    np.testing.assert_array_equal(species, np.repeat([0, 1, 2], 50))
    found = fitted(dp.PPCA(2)).outliers(iris().select(NAMES), level=0.95)
    columns = client.get("/api/model").json()["columns"]
    for k, (values, limits) in enumerate(
        ((found.t2, found.t2_limit), (found.spe, found.spe_limit))
    ):
        shown = np.frombuffer(client.get(f"/api/colours/{1 + k}").content, "<f4")
        np.testing.assert_allclose(shown, values, rtol=1e-6)
        assert columns[1 + k]["limit"] == pytest.approx(limits[0])


def test_points_are_decoded(client):
    found = client.good("/api/decode", {"latent": [0.5, -1]})
    model = fitted(dp.PPCA(2))
    np.testing.assert_allclose(found["values"], model.inverse_transform([[0.5, -1]])[0])
    row = pl.DataFrame([found["values"]], schema=NAMES, orient="row")
    np.testing.assert_allclose(found["log_density"], model.score_samples(row)[0])
    assert len(found["std"]) == 4


def test_a_path_goes_from_one_end_to_the_other(client):
    found = client.good("/api/path", {"start": [0, 0], "end": [1, -2], "steps": 5})
    np.testing.assert_allclose(np.array(found["latents"])[:, 1], [0, -0.5, -1, -1.5, -2])
    ends = [client.good("/api/decode", {"latent": z})["values"] for z in ([0, 0], [1, -2])]
    np.testing.assert_allclose([found["values"][0], found["values"][-1]], ends)


def test_rows_are_shown_and_exported(client):
    found = client.good("/api/rows", {"rows": [149, 0]})
    assert found["ids"] == ["iris-149", "iris-0"]
    answer = client.post("/api/export", {"rows": [149, 0]})
    assert answer.headers["content-type"].startswith("text/csv")
    table = pl.read_csv(answer.content)
    assert table["row"].to_list() == found["ids"]
    np.testing.assert_allclose(table["reconstruction error"], found["errors"])
    errors = client.good("/api/errors", {"rows": [149, 0]})
    assert errors == {
        "count": 2,
        "mean": pytest.approx(np.mean(found["errors"])),
        "largest": max(found["errors"]),
        "columns": errors["columns"],
        "by_column": sorted(errors["by_column"], reverse=True),
    }
    assert sorted(errors["columns"]) == sorted(NAMES)


def test_missing_values_become_null():
    holes = iris().with_columns(pl.Series(NAMES[0], [None] + [5.0] * 149))
    client = Client(open_session(fitted(dp.PPCA(1), holes), holes))
    assert client.good("/api/rows", {"rows": [0]})["values"][0][0] is None
    assert client.good("/api/impute", {"row": 0, "hidden": []})["truth"][0] is None


def test_samples_stand_beside_their_nearest_rows(client):
    found = client.good("/api/sample", {"count": 3, "seed": 5})
    assert found == client.good("/api/sample", {"count": 3, "seed": 5})
    assert found != client.good("/api/sample", {"count": 3, "seed": 6})
    X = iris().select(NAMES).to_numpy()
    for values, near, beside, name in zip(
        *(found[key] for key in ("values", "nearest", "beside", "nearest_ids")), strict=True
    ):
        assert near == np.argmin(np.mean(((X - values) / X.std(axis=0)) ** 2, axis=1))
        assert name == f"iris-{near}"
        assert beside == X[near].tolist()


def test_what_the_model_cannot_do_is_a_conflict_in_words():
    client = Client(session_of(fitted(dp.PCA(2))))
    found = client.post("/api/impute", {"row": 0, "hidden": [1]})
    assert found.status_code == 409
    assert found.json() == {"error": "PCA does not fill missing entries; PPCA does, for example."}
    nothing = Client(open_session(fitted(dp.PPCA(2)), None))
    for path in ("/api/rows", "/api/errors", "/api/export"):
        assert "no table was given" in nothing.post(path, {"rows": [0]}).json()["error"]


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/decode", {}),
        ("/api/decode", []),
        ("/api/decode", {"latent": [1]}),
        ("/api/decode", {"latent": [1, 2, 3]}),
        ("/api/decode", {"latent": ["1", "2"]}),
        ("/api/decode", {"latent": [True, False]}),
        ("/api/decode", {"latent": [None, 1]}),
        ("/api/decode", {"latent": [1e300, 0]}),
        ("/api/decode", {"latent": [0, 0], "component": 1}),
        ("/api/decode", {"latent": [0, 0], "component": -1}),
        ("/api/decode", {"latent": [0, 0], "more": 1}),
        ("/api/decode", {"latent": [0, 0], "way": "astral"}),
        ("/api/path", {"start": [0, 0], "end": [1, 1], "steps": 1}),
        ("/api/path", {"start": [0, 0], "end": [1, 1], "steps": 10**6}),
        ("/api/path", {"start": [0, 0], "end": [1]}),
        ("/api/rows", {"rows": []}),
        ("/api/rows", {"rows": [150]}),
        ("/api/rows", {"rows": [-1]}),
        ("/api/rows", {"rows": [0.5]}),
        ("/api/rows", {"rows": [0] * 501}),
        ("/api/impute", {"row": 150, "hidden": []}),
        ("/api/impute", {"row": 0, "hidden": [4]}),
        ("/api/sample", {"count": 25}),
        ("/api/sample", {"count": 1, "seed": -1}),
    ],
)
def test_wrong_requests_are_refused_in_words(client, path, body):
    found = client.post(path, body)
    assert found.status_code == 422, found.text
    assert set(found.json()) == {"error"}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(client, number):
    text = f'{{"latent": [{number}, 0]}}'
    kind = {**client.headers, "content-type": "application/json"}
    found = client.ask("POST", "/api/decode", kind, content=text)
    assert found.status_code == 422, found.text
    json.loads(found.text)


@pytest.mark.parametrize("text", ["{", "", "\xff", "[" * 100_000, '{"latent": [' + "9" * 5000])
def test_broken_json_is_refused(client, text):
    kind = {**client.headers, "content-type": "application/json"}
    found = client.ask("POST", "/api/decode", kind, content=text.encode("latin-1"))
    assert found.status_code in (400, 422)
    assert "Traceback" not in found.text


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/index.html%00.js",
        "/etc/passwd",
        "/api/points/../../etc/passwd",
        "/api/points/7",
        "/api/points/-1",
        "/api/colours/99",
        "/docs",
        "/redoc",
    ],
)
def test_there_are_no_other_files(client, path):
    found = client.get(path)
    assert found.status_code in (404, 422)
    assert "root:" not in found.text
    assert set(found.json()) == {"error"}


def test_errors_inside_tell_nothing_outside(client, monkeypatch, capsys):
    session = session_of()
    broken = Client(session)
    monkeypatch.setattr(session, "decode", lambda *_: 1 / 0)
    found = broken.post("/api/decode", {"latent": [0, 0]})
    assert found.status_code == 500
    assert found.json() == {"error": "Internal error: see the terminal."}
    assert "ZeroDivisionError" in capsys.readouterr().err


# --- who may ask -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", GETS)
def test_nothing_is_answered_without_the_token(client, path):
    for headers in (
        {"host": HOST},
        {"host": HOST, "x-dualpca-token": "wrong"},
        {"host": HOST, "x-dualpca-token": TOKEN + "x"},
        {"host": HOST, "x-dualpca-token": TOKEN[:-1]},
        {"host": HOST, "x-dualpca-token": ""},
        {"host": HOST, "cookie": f"dualpca-{PORT}=wrong"},
        {"host": HOST, "cookie": f"dualpca-{PORT + 1}={TOKEN}"},
    ):
        assert client.get(path, headers).status_code == 401
    assert client.get(path).status_code == 200
    assert client.get(path, COOKIE).status_code == 200


@pytest.mark.parametrize("path", POSTS)
def test_posts_need_the_token_and_the_own_page(client, path):
    body = POSTS[path]
    assert client.post(path, body, {"host": HOST}).status_code == 401
    assert client.post(path, body).status_code == 200
    assert client.post(path, body, OWN).status_code == 200
    for strange in (
        COOKIE,
        {**COOKIE, "origin": "http://evil.example"},
        {**COOKIE, "origin": "null"},
        {**COOKIE, "origin": f"http://localhost:{PORT}"},
        {**OWN, "sec-fetch-site": "cross-site"},
        {**OWN, "sec-fetch-site": "same-site"},
    ):
        assert client.post(path, body, strange).status_code == 403


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", f"evil.example:{PORT}", f"127.0.0.1.evil:{PORT}", f"10.0.0.1:{PORT}"),
        *("127.0.0.1", "127.0.0.1:1", "", f":{PORT}"),
    ],
)
def test_other_names_for_this_machine_are_refused(client, host):
    assert client.get("/api/health", {**client.headers, "host": host}).status_code == 403


def test_loopback_has_several_names(client):
    for host in (f"localhost:{PORT}", f"[::1]:{PORT}", f"LOCALHOST:{PORT}"):
        assert client.get("/api/health", {**client.headers, "host": host}).status_code == 200


def test_a_server_for_others_answers_to_addresses_but_not_to_names():
    open_to_all = Client(session_of())
    open_to_all.app.host = "0.0.0.0"
    for host, status in ((f"10.0.0.1:{PORT}", 200), (f"evil.example:{PORT}", 403)):
        found = open_to_all.get("/api/health", {**open_to_all.headers, "host": host})
        assert found.status_code == status


def test_the_link_gives_a_cookie_that_other_pages_cannot_use(client):
    found = client.get(f"/?token={TOKEN}", {"host": HOST})
    assert found.status_code == 200
    cookie = found.headers["set-cookie"]
    assert cookie == f"dualpca-{PORT}={TOKEN}; HttpOnly; SameSite=Strict; Path=/"
    assert client.get("/?token=wrong", {"host": HOST}).status_code == 401
    assert client.get(f"/api/model?token={TOKEN}", {"host": HOST}).status_code == 401
    assert "set-cookie" not in client.get("/", COOKIE).headers
    from_a_page = {"host": HOST, "sec-fetch-site": "same-site"}
    assert client.get(f"/?token={TOKEN}", from_a_page).status_code == 200


def test_people_read_a_sentence(client):
    found = client.get("/", {"host": HOST, "accept": "text/html"})
    assert found.status_code == 401
    assert found.text == "The token is missing or wrong. Open the link in the terminal."


def test_every_answer_has_security_headers(client):
    answers = [client.get("/"), client.get("/nothing"), client.get("/", {"host": HOST})]
    for found in answers:
        for name, value in HEADERS.items():
            assert found.headers[name] == value
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_page_needs_no_inline_code_and_nothing_from_elsewhere():
    files = static_files()
    page = files["index.html"].decode()
    assert "<style" not in page
    assert "style=" not in page
    assert "<script>" not in page
    assert not any(f" on{event}=" in page for event in ("click", "load", "error", "input"))
    for name, text in files.items():
        if name != "favicon.svg":
            name_of_svg = b"http://www.w3.org/2000/svg"  # which nothing is fetched from
            assert b"http://" not in text.replace(name_of_svg, b""), name
            assert b"https://" not in text, name
        assert b"innerHTML" not in text, name
        assert b"eval(" not in text, name
    for line in page.splitlines():
        if 'src="' in line or 'rel="' in line:
            assert '"/static/' in line


# --- how much and how often --------------------------------------------------------------------


def test_large_requests_are_refused(client):
    kind = {**client.headers, "content-type": "application/json"}
    found = client.ask("POST", "/api/rows", kind, content=b" " * (MOST_BYTES + 1))
    assert found.status_code == 413
    for length in ("99999999999999999999", "-1", "²", "1e3"):
        headers = {**kind, "content-length": length.encode("latin-1")}
        found = client.ask("POST", "/api/rows", headers, content=b"{}")
        assert found.status_code == 413


def test_large_requests_without_a_length_are_refused_too(client):
    async def parts():
        for _ in range(20):
            yield b" " * 100_000

    async def once():
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as asking:
            return await asking.post("/api/rows", headers=client.headers, content=parts())

    assert asyncio.run(once()).status_code == 413


def test_slow_requests_are_refused(client, monkeypatch):
    monkeypatch.setattr(guard, "SECONDS", 0.05)
    sent = []

    async def receive():
        await asyncio.sleep(10)

    async def send(message):
        sent.append(message)

    headers = [(k.encode(), v.encode()) for k, v in client.headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/api/rows", "headers": headers}
    asyncio.run(client.app(scope, receive, send))
    assert sent[0]["status"] == 408


def test_many_requests_are_refused_for_a_second():
    client = Client(session_of(), rate=1, burst=10)
    found = [client.get("/api/health") for _ in range(14)]
    statuses = [one.status_code for one in found]
    assert statuses[:10] == [200] * 10
    assert statuses[-1] == 429
    assert found[-1].headers["retry-after"] == "1"
    assert found[-1].json() == {"error": "Too many requests: wait a second."}


def test_guessing_does_not_lock_the_owner_out():
    client = Client(session_of(), rate=1, burst=10)
    guesses = [client.get("/", {"host": HOST, "x-dualpca-token": "?"}) for _ in range(5)]
    assert [one.status_code for one in guesses][:1] == [401]
    assert guesses[-1].status_code == 429
    assert client.get("/api/health").status_code == 200


def test_a_bucket_fills_again():
    now = [0.0]
    bucket = Bucket(2, 3, clock=lambda: now[0])
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    now[0] = 0.5
    assert [bucket.take() for _ in range(2)] == [True, False]
    now[0] = 100.0
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_other_protocols_are_not_answered():
    app = Guard(FastAPI(), TOKEN, "127.0.0.1", PORT)
    assert asyncio.run(app({"type": "websocket", "headers": []}, None, None)) is None


# --- the port ----------------------------------------------------------------------------------


def test_a_door_has_a_free_port_and_a_random_token():
    one, two = open_door("127.0.0.1", 0), open_door("127.0.0.1", 0)
    try:
        assert one.port != two.port
        assert one.token != two.token
        assert len(one.token) >= 32
        assert one.is_private
        assert one.socket.proto == socket.IPPROTO_TCP  # or every answer waits 40 ms
        assert one.link == f"http://127.0.0.1:{one.port}/?token={one.token}"
        with pytest.raises(TableError, match="cannot be used"):
            open_door("127.0.0.1", one.port)
    finally:
        one.socket.close()
        two.socket.close()
    with pytest.raises(TableError, match="--token"):
        open_door("127.0.0.1", 0, "short")
    with pytest.raises(TableError, match="--token"):
        open_door("127.0.0.1", 0, "with; Path=/ in it")


def test_ways_back_are_the_lenses():
    assert get_args(Way) == METHODS


@pytest.mark.parametrize("name", ["main.js", "style.css", "index.html", "favicon.svg"])
def test_static_files_have_their_types(client, name):
    kind = client.get(f"/static/{name}").headers["content-type"]
    assert kind.split(";")[0] in ("text/javascript", "text/css", "text/html", "image/svg+xml")
