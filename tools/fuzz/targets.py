"""What is attacked: good inputs, how they are changed, and what may become of them."""

import asyncio
import copy
import json
import sys
import tempfile
import traceback
import warnings
from contextlib import redirect_stderr
from functools import cache
from io import StringIO
from pathlib import Path

import polars as pl

import dualpca as dp
from dualpca.errors import DualPCAError, ModelFileError
from tests.app.plain_tables import packed
from tests.app.test_explorer_api import POSTS
from tests.files import hostile, saved_models, test_checkpoints
from tests.files.hostile import pick

# --- model files ---------------------------------------------------------------------------------


class ModelFiles:
    """Model files: loaded, inspected and used."""

    names = tuple(saved_models.MODELS)
    suffix = ".dpca"

    def good(self, name):
        """Return the bytes of a good input."""
        return _saved(name)

    def changed(self, data, rng, others):
        """Return an input with changes."""
        lot = rng.random()
        make = hostile.damaged if lot < 0.04 else hostile.spliced if lot < 0.1 else hostile.changed
        make = hostile.bomb if lot > 0.99 else make
        try:
            return make(data, rng, others)[0]
        except (ValueError, KeyError, TypeError, AttributeError):  # no longer one of our files
            return hostile.damaged(data, rng, others)[0]

    def fate(self, path, name):
        """Return what becomes of an input, and a finding if that must not be."""
        return hostile.fate(path, saved_models.inputs(name))


@cache
def _saved(name):
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder, "m")
        dp.save(saved_models.MODELS[name](), path)
        return path.read_bytes()


class Streams(ModelFiles):
    """Files of models that learn further: loaded, given more rows, and used."""

    names = tuple(n for n in saved_models.MODELS if "stream" in n or n == "monitor learning")

    def fate(self, path, name):
        try:
            model = dp.load(path)
        except ModelFileError:
            return "refused", None
        rows = saved_models.inputs(name)
        return hostile.used(model, rows, ("partial_fit", *hostile.METHODS))


class Checkpoints:
    """Checkpoints of fits that were interrupted: the fit is resumed, and its model used."""

    names = ("ppca", "factor", "ard", "variational", "mixture", "chain")
    suffix = ".checkpoint"

    def good(self, name):
        return _interrupted(name)

    def changed(self, data, rng, others):
        if rng.random() < 0.1:
            return hostile.damaged(data, rng, others)[0]
        try:
            return next(hostile.checkpoints(hostile.File(data), rng))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return hostile.damaged(data, rng, others)[0]

    def fate(self, path, name):
        asked = dp.Checkpoint(path, seconds=1e6)
        model, X = test_checkpoints.model_of(name, asked)
        try:
            test_checkpoints.fitted(model.set_params(max_iter=20), X)
        except DualPCAError as error:
            words = str(error)
            odd = len(words) > hostile.MOST_WORDS or not words.isprintable()
            return "refused", f"words: {words[:200]!r}" if odd else None
        return hostile.used(model, X[:5])


@cache
def _interrupted(name):
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder, "c")
        test_checkpoints.interrupted(*test_checkpoints.model_of(name, dp.Checkpoint(path, 0)))
        return path.read_bytes()


# --- tables --------------------------------------------------------------------------------------

PLAIN = {
    "numbers": "a,b,c\n1,2.5,3\n4,5,\n7,8.25,NA\n",
    "no header": "1,2.5\n3,4\n5,6\n",
    "words": 'who,"x,y",n\nanna,"say ""no""",1\nbob,"two\nlines",2\ncid,,3\nanna,u,4\n',
    "commas": "größe;wert\n1,5;2\n2,5;<3,5\n;4\n",
    "excel": "\ufeffsep=;\r\na;b\r\n1.234,5;x\r\n2.345,5;y\r\n",
    "tabs": "a\tb\n1 234\ttrue\n2 345\tfalse\n",
    "bars": "a|b|c\n1|2|#N/A\n3|4|-\n",
    "mac": 'a,b\r1,"x"\r2,y\r',
    "titles": "Report 2024\n\ntime,mass [kg],T\ns,kg,°C\n1,2,3\n2,3,4\n",
    "dates": "when,v\n2024-01-02,1\n2024-01-03,2\n2024-01-04 12:30,4\n",
    "one column": "a\n1\n\n3\n",
    "codes": 'id,sex,age\n001,"NA",-999\n002,NA,30\n003,"m",31\n',
}
MOST_LETTERS, PIECE = 12_000, 200
"""Of a text, and of the pieces in which it is read: no record is too long for them."""
WORDS = (
    *(
        '"',
        '""',
        "'",
        ",",
        ";",
        "\t",
        "|",
        "\n",
        "\r\n",
        "\r",
        " ",
        "",
        "\ufeff",
        "\x00",
        "\x1b[31m",
    ),
    *("NA", "nan", "inf", "-inf", "1e999", "-0", "1e-320", "9" * 40, "0x10", "1_000", "true", "<5"),
    *("<", "≥ 7,25", "1,5", "1.5", "1.234.567", "1 234", "1'234", "1\u00a0234", "٣", "1２3", "½"),
    *("²", "−1", "１", "e", "+", ".", "#N/A", "2024-02-30", "12:61", "sep=;\n", "a,a\n", ",,,"),
    *(
        "\u2028",
        "\u0085",
        "\u200b",
        "\u202e",
        "\ud7ff",
        "é",
        "e\u0301",
        "😀",
        "x" * 3000,
        "\x0b",
        "\x1c",
    ),
    *('"\n', '\n"', '","', "\n\n", "\r\r\n", "=1+1", "a=b", "*", "[kg]", "a" * 70 + ","),
)


class Tables:
    """Tables in every format: read at once and in pieces, prepared, and turned into rows."""

    binary = ("npy", "npz", "parquet", "arrow", "xlsx", "csv.gz")
    names = (*PLAIN, *binary)
    suffix = ".csv"

    def good(self, name):
        return PLAIN[name].encode() if name in PLAIN else packed(name)

    def changed(self, data, rng, others):
        if rng.random() < 0.15 or b"\0" in data[:200] or data[:2] in (b"PK", b"\x1f\x8b"):
            return hostile.damaged(data, rng, others)[0]
        if rng.random() < 0.1:
            other = pick(rng, others)
            cut = int(rng.integers(len(data) + 1))
            return (data[:cut] + other[int(rng.integers(len(other) + 1)) :])[:MOST_LETTERS]
        for _ in range(int(rng.choice([1, 1, 2, 4]))):
            data = _edited(data, rng)
        return data[:MOST_LETTERS]

    def fate(self, path, name):
        if name in self.binary:
            path = path.rename(path.with_suffix(f".{name}"))
        try:
            return _read_twice(path)
        finally:
            path.unlink()


def _edited(data, rng):
    """Return a text with a word put in, taken out, doubled or in place of a cell."""
    text = data.decode("utf-8", "surrogateescape")
    a, b = sorted(int(k) for k in rng.integers(len(text) + 1, size=2))
    lot, word = int(rng.integers(6)), pick(rng, WORDS)
    if lot == 0:
        b = min(b, a + 8)
        found = text[:a] + text[b:]
    elif lot == 1:
        found = text[:b] + text[a : min(b, a + 200)] + text[b:]
    elif lot == 2:
        lines = text.split("\n")
        k = int(rng.integers(len(lines)))
        sign = pick(rng, [",", ";", "\t", "|"])
        cells = lines[k].split(sign)
        cells[int(rng.integers(len(cells)))] = word
        found = "\n".join([*lines[:k], sign.join(cells), *lines[k + 1 :]])
    elif lot == 3:
        old, new = pick(rng, [",", ";", "\n", ".", "\r\n", '"']), pick(rng, WORDS)
        found = text.replace(old, new, int(rng.choice([1, 10**6])))[:MOST_LETTERS]
    else:
        found = text[:a] + word + text[a:]
    if rng.random() < 0.02:
        return found.encode(pick(rng, ["utf-16", "latin-1"]), "replace")
    return found.encode("utf-8", "surrogateescape")


def _read_twice(path):
    """Read a table at once and in pieces, which must agree, and prepare it for a model."""
    from dualpca.app.cli._session import prepared
    from dualpca.app.tables import reading

    def at_once():
        return reading.opened(str(path))

    def in_pieces():
        kept = reading.SMALLEST
        reading.SMALLEST = PIECE
        try:
            table = reading._opened(str(path), reading.Reading(), (), 1)
            return table, list(table.frames())
        finally:
            reading.SMALLEST = kept

    table, why = _refused(at_once)
    parts, why_parts = _refused(in_pieces)
    for words in (why, why_parts):
        if _is_odd(words):
            return "refused", f"words: {words[:200]!r}"
    if (why is None) != (why_parts is None) and "npz" not in path.name:
        return "refused", f"at once: {why}; in pieces: {why_parts}"
    if table is None:
        return "refused", None
    frame = table.frame()
    if parts is not None and not pl.concat(parts[1]).equals(frame):
        return "read", f"at once {frame.rows()}, in pieces {pl.concat(parts[1]).rows()}"[:400]
    from dualpca.app.cli._session import Choice

    prep, why = _refused(lambda: prepared(table, Choice(), any_kind=None))
    if prep is None:
        return "not prepared", f"words: {why[:200]!r}" if _is_odd(why) else None
    why = _refused(lambda: prep.rows(frame))[1]
    return ("used" if why is None else "refused in use"), None


def _is_odd(words):
    """Return True for words of an error that nobody would want to read."""
    return words is not None and (len(words) > 6000 or not words.replace("\n", " ").isprintable())


def _refused(call):
    """Return what a call returns, and None; or None, and why the library refuses."""
    try:
        return call(), None
    except DualPCAError as error:
        return None, str(error)


# --- requests to the explorer --------------------------------------------------------------------

BODIES = {
    **POSTS,
    "/api/expected": {"row": 5},
    "/api/difference": {"rows": [1, 2, 3, 4, 5, 6]},
    "/api/search": {"text": "iris-1"},
}
LOOKS = ("/", "/api/health", "/api/model", "/api/times", "/api/points/0", "/api/colours/1")
LOOKS += ("/static/index.html", "/openapi.json")
SESSIONS = {
    "linear": lambda: dp.PPCA(2),
    "mixture": lambda: dp.MixturePPCA(2, 2, random_state=0),
    "kernel": lambda: dp.KernelPCA(2, kernel="rbf", fit_inverse_transform=True),
}
ODD_PATHS = (
    "%00",
    "..",
    "-1",
    "1e9",
    "9" * 30,
    "é",
    "٣",
    "0x1",
    "",
    "NaN",
    "0;",
    "1%2f2",
    "a" * 3000,
)
ODD_HEADERS = (
    ("host", "evil.example"),
    ("content-length", "-1"),
    ("content-length", "9" * 20),
    ("content-length", "٣"),
    ("content-type", "text/plain; charset=utf-16"),
    ("origin", "null"),
    ("cookie", "a=b; ;=;" + "x" * 500),
    ("accept", "text/html"),
    ("x-dualpca-token", "é"),
    ("sec-fetch-site", "cross-site"),
)


class Requests:
    """Requests to the explorer: its paths, parameters, headers and bodies."""

    names = tuple(f"{session} {path}" for session in SESSIONS for path in (*BODIES, *LOOKS))
    suffix = ".json"

    def good(self, name):
        session, _, path = name.partition(" ")
        method = "POST" if path in BODIES else "GET"
        body = json.dumps(BODIES[path]) if path in BODIES else ""
        asked = {"session": session, "method": method, "path": path, "headers": [], "body": body}
        return json.dumps(asked).encode()

    def changed(self, data, rng, others):
        asked = json.loads(data)
        lot = rng.random()
        if lot < 0.6:
            asked["body"] = _changed_body(asked["body"], rng)
        elif lot < 0.7:
            found = hostile.damaged(asked["body"].encode("latin-1", "replace") or b"{}", rng, [])[0]
            asked["body"] = found.decode("latin-1")
        elif lot < 0.8:
            asked["path"] = _changed_path(asked["path"], rng)
        elif lot < 0.9:
            asked["headers"] = [*asked["headers"], list(pick(rng, ODD_HEADERS))][-4:]
        elif lot < 0.95:
            asked["body"] = json.loads(pick(rng, others))["body"]
        else:
            asked["method"] = str(
                pick(rng, ["GET", "POST", "HEAD", "PUT", "OPTIONS", "TRACE", "ÿ"])
            )
        return json.dumps(asked).encode()

    def fate(self, path, name):
        asked, told = json.loads(path.read_bytes()), StringIO()
        app = _application(asked["session"])
        with redirect_stderr(told):
            status, kind, body = _answer(app, asked)
        if status == 500:
            return "broken", f"500 to {asked['path'][:60]}: {told.getvalue().strip()[-300:]}"
        if "json" in kind:
            json.loads(body, parse_constant=lambda word: 1 / 0)  # NaN is no JSON
        if status >= 400:
            words = json.loads(body)["error"] if "json" in kind else body.decode()
            if not words.isprintable() or len(words) > 600:
                return "refused", f"words: {words[:200]!r}"
        return "refused" if status >= 400 else "answered", None


def _changed_body(body, rng):
    try:
        tree = json.loads(body)
        path = pick(rng, [*hostile.places(tree)])
    except (ValueError, IndexError, AttributeError, TypeError, RecursionError):
        return json.dumps(copy.deepcopy(pick(rng, hostile.VALUES)))
    owner, lot = hostile.at(tree, path[:-1]), int(rng.integers(5))
    if lot == 0:
        del owner[path[-1]]
    elif lot == 1 and isinstance(owner, dict):
        owner[pick(rng, ["way", "component", "seed", "x\x1b", ""])] = pick(rng, hostile.VALUES)
    elif lot == 2 and type(owner[path[-1]]) in (int, float):
        near = (1, -1, 0.5, 1e308, 150, 2**31, 10**18)
        owner[path[-1]] = owner[path[-1]] + pick(rng, near)
    else:
        ways = ("smoother", "distance", "fixed-point", "gradient", "auto", "learned")
        value = pick(rng, ways) if rng.random() < 0.15 else pick(rng, hostile.VALUES)
        owner[path[-1]] = copy.deepcopy(value)
    return json.dumps(tree)


def _changed_path(path, rng):
    parts = path.split("/")
    parts[int(rng.integers(1, len(parts)))] = pick(rng, ODD_PATHS)
    asked = "/".join(parts)
    return asked + pick(rng, ["", "", "?token=x", "?", "?a=%ff&token", "?token=" + "y" * 2000])


@cache
def _application(session):
    from dualpca.app.explorer.app import create
    from dualpca.app.explorer.guard import Guard
    from tests.app.explorer_cases import PORT, TOKEN, fitted, session_of

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = session_of(fitted(SESSIONS[session]()))
        return Guard(create(found, "run"), TOKEN, "127.0.0.1", PORT, 1e6, 10**6)


def _answer(app, asked):
    """Return status, type and body of the answer to a request, sent as a server would."""
    from tests.app.explorer_cases import HOST, TOKEN

    path, _, query = asked["path"].partition("?")
    own = [("host", HOST), ("x-dualpca-token", TOKEN), ("content-type", "application/json")]
    changed = {name for name, _ in asked["headers"]}
    headers = [one for one in own if one[0] not in changed] + asked["headers"]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": asked["method"],
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(k.encode("latin-1"), v.encode("utf-8")) for k, v in headers],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8123),
    }
    body = asked["body"].encode("latin-1", "replace")
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    sent = []

    async def receive():
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    async def once():
        await app(scope, receive, send)

    try:
        asyncio.run(once())
    except Exception as error:  # what Starlette answers with 500 it raises too
        if not sent or sent[0]["status"] != 500:
            raise
        print(f"{error!r} at {_where(error)}", file=sys.stderr)
    kinds = dict(sent[0]["headers"])
    kind = kinds.get(b"content-type", b"").decode()
    return sent[0]["status"], kind, b"".join(one.get("body", b"") for one in sent[1:])


def _where(error):
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename[-40:]}:{last.lineno}"


TARGETS = {
    "models": ModelFiles(),
    "streams": Streams(),
    "checkpoints": Checkpoints(),
    "tables": Tables(),
    "requests": Requests(),
}
