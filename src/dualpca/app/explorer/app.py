"""The explorer's server: JSON, float32 buffers where there are many numbers, and the port."""

from __future__ import annotations

import secrets
import socket
import sys
import webbrowser
from collections.abc import Callable
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

import dualpca
from dualpca.app.explorer.comparing import difference, expected_row, search
from dualpca.app.explorer.guard import Guard, is_loopback
from dualpca.app.explorer.messages import (
    ColumnAnswer,
    ComponentAnswer,
    DifferenceAnswer,
    ErrorsAnswer,
    ExpectedAnswer,
    Health,
    ImputeAnswer,
    ModelAnswer,
    PathAnswer,
    PointAnswer,
    RowsAnswer,
    SampleAnswer,
    SearchAnswer,
    TimeAnswer,
    Words,
    limited,
)
from dualpca.app.explorer.session import (
    TOLD,
    Column,
    Session,
    codes_of,
    columns_of,
    exported,
    shown,
    summarized,
)
from dualpca.app.tables.text import TableError
from dualpca.files.fields import escaped

# --- the application ---------------------------------------------------------------------------

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Words, "description": "The request cannot be read."},
    401: {"model": Words, "description": "The token is missing or wrong."},
    403: {"model": Words, "description": "The request comes from another page or address."},
    404: {"model": Words, "description": "Not found."},
    405: {"model": Words, "description": "Method not allowed."},
    408: {"model": Words, "description": "The request took too long to arrive."},
    409: {"model": Words, "description": "The model or the table cannot do this."},
    413: {"model": Words, "description": "The request is too large."},
    422: {"model": Words, "description": "The request is outside the bounds of the schema."},
    429: {"model": Words, "description": "Too many requests."},
    500: {"model": Words, "description": "Internal error."},
}
BUFFER: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "description": "float32, little-endian, row by row",
    }
}
TIMES: dict[int | str, dict[str, Any]] = {
    200: BUFFER[200] | {"description": "float64, little-endian, row by row; NaN where unknown"}
}
CSV: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "A table"}
}


def static_files(package: str = __package__) -> dict[str, bytes]:
    """Return the files of a page by name, read now: no request names a path."""
    folder = resources.files(package).joinpath("static")
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def create(session: Session, run: str) -> FastAPI:
    """Return the application for one session; `run` lets open pages notice a restart."""
    app = application("explorer", static_files())
    serve_health(app, run)
    _serve_model(app, session, run)
    _serve_points(app, session)
    _serve_rows(app, session)
    return app


def application(name: str, files: dict[str, bytes]) -> FastAPI:
    """Return an application that serves a page and its files, and explains errors."""
    app = FastAPI(
        title=f"dualpca {name}",
        version=dualpca.__version__,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        responses=REFUSALS,
    )
    _handle_errors(app)
    _serve_page(app, files)
    return app


def _handle_errors(app: FastAPI) -> None:
    """Answer errors with a sentence; details of internal errors go to the terminal only."""

    @app.exception_handler(RequestValidationError)
    async def refuse(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return _words(422, f"{where or 'the request'}: {first['msg']}.")

    @app.exception_handler(HTTPException)
    async def explain(request: Request, error: HTTPException) -> JSONResponse:
        return _words(error.status_code, f"{error.detail}.", error.headers)

    @app.exception_handler(ValueError)
    async def unable(request: Request, error: ValueError) -> JSONResponse:
        return _words(409, str(error))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        print(f"dualpca: {type(error).__name__}: {error}", file=sys.stderr)
        return _words(500, "Internal error: see the terminal.")


def _words(status: int, words: str, headers: Any = None) -> JSONResponse:
    return JSONResponse({"error": escaped(words, 500)}, status, headers=headers)


def _serve_page(app: FastAPI, files: dict[str, bytes]) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return Response(files["index.html"], media_type=KINDS[".html"])

    @app.get("/static/{name}", include_in_schema=False)
    def file(name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "No such file")
        return Response(files[name], media_type=KINDS["." + name.rpartition(".")[2]])


def serve_health(app: FastAPI, run: str) -> None:
    """Let open pages notice a restart."""

    @app.get("/api/health")
    async def health() -> Health:
        return Health(run=run)


def _serve_model(app: FastAPI, session: Session, run: str) -> None:
    columns = columns_of(session)
    described = describe(session, columns, run)
    kept: dict[int, bytes] = {}

    @app.get("/api/model")
    async def model() -> ModelAnswer:
        return described

    @app.get("/api/points/{component}", response_class=Response, responses=BUFFER)
    def points(component: int) -> Response:
        if not 0 <= component < len(session.Z):
            raise HTTPException(404, f"component {component}: there are {len(session.Z)}")
        return _buffer(session.Z[component])

    @app.get("/api/colours/{column}", response_class=Response, responses=BUFFER)
    def colours(column: int) -> Response:
        if not 0 <= column < len(columns) or columns[column].kind == "none":
            raise HTTPException(404, f"column {column}: not a column to colour by")
        if column not in kept:
            kept[column] = codes_of(session, columns[column]).astype("<f4").tobytes()
        return Response(kept[column], media_type="application/octet-stream")

    @app.get("/api/times", response_class=Response, responses=TIMES)
    def times() -> Response:
        if session.time is None:
            raise HTTPException(404, "no column tells the time of rows")
        data = session.time.values.astype("<f8").tobytes()
        return Response(data, media_type="application/octet-stream")


def _buffer(values: Any) -> Response:
    data = np.ascontiguousarray(values, dtype="<f4").tobytes()
    return Response(data, media_type="application/octet-stream")


def _serve_points(app: FastAPI, session: Session) -> None:
    asked = limited(session)

    def decode(body: Any) -> PointAnswer:
        _require(session, "decode")
        found = session.decode(body.latent, body.component, body.way)
        return PointAnswer(**_plain(found))

    def path(body: Any) -> PathAnswer:
        _require(session, "decode")
        found = session.path(body.start, body.end, body.steps, body.component, body.way)
        return PathAnswer(**_plain(found))

    def sample(body: Any) -> SampleAnswer:
        _require(session, "sample")
        return SampleAnswer(**_plain(session.sample(body.count, body.seed, body.component)))

    _post(app, "/api/decode", decode, asked["point"])
    _post(app, "/api/path", path, asked["path"])
    _post(app, "/api/sample", sample, asked["sample"])


def _serve_rows(app: FastAPI, session: Session) -> None:
    asked = limited(session)

    def rows(body: Any) -> RowsAnswer:
        return RowsAnswer(**_plain(shown(session, body.rows, body.component)))

    def errors(body: Any) -> ErrorsAnswer:
        _require(session, "error")
        return ErrorsAnswer(**_plain(summarized(session, body.rows)))

    def export(body: Any) -> Response:
        table = exported(session, body.rows, body.component)
        name = {"content-disposition": 'attachment; filename="selection.csv"'}
        return Response(table.write_csv(), media_type="text/csv", headers=name)

    def impute(body: Any) -> ImputeAnswer:
        _require(session, "impute")
        return ImputeAnswer(**_plain(session.impute(body.row, body.hidden)))

    def expected(body: Any) -> ExpectedAnswer:
        return ExpectedAnswer(**_plain(expected_row(session, body.row)))

    def differs(body: Any) -> DifferenceAnswer:
        return DifferenceAnswer(**_plain(difference(session, body.rows)))

    def found(body: Any) -> SearchAnswer:
        return SearchAnswer(**_plain(search(session, body.text)))

    _post(app, "/api/expected", expected, asked["row"])
    _post(app, "/api/difference", differs, asked["export"])
    _post(app, "/api/search", found, asked["search"])
    _post(app, "/api/rows", rows, asked["page"])
    _post(app, "/api/errors", errors, asked["export"])
    _post(app, "/api/impute", impute, asked["impute"])
    _post(app, "/api/export", export, asked["export"], response_class=Response, responses=CSV)


def _post(
    app: FastAPI, path: str, answer: Callable[[Any], Any], body: type, **options: Any
) -> None:
    """Register an answer to requests of a type that is made for this session."""
    answer.__annotations__["body"] = body
    app.post(path, **options)(answer)


def _require(session: Session, what: str) -> None:
    if what in session.lens.reasons:
        raise TableError(session.lens.reasons[what])


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """Return arrays as lists, None where a number is missing or not finite."""
    return {name: _listed(value) for name, value in found.items()}


def _listed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if np.isfinite(value).all():
            return value.tolist()
        return [_listed(one) for one in value.tolist()]
    if isinstance(value, list):
        return [_listed(one) for one in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def describe(session: Session, columns: list[Column], run: str) -> ModelAnswer:
    """Return what the page needs before it can draw."""
    low, mean, high = session.scale().tolist()
    return ModelAnswer(
        run=run,
        version=dualpca.__version__,
        model=session.lens.name,
        source=session.source,
        rows=session.n,
        identified=session.ids is not None,
        features=list(session.features),
        levels=session.lens.levels,
        shape=session.shape.kind,
        size=list(session.shape.size),
        components=[_component(session, k) for k in range(len(session.lens.sizes))],
        columns=[ColumnAnswer(**column._asdict()) for column in columns],
        ways=list(session.lens.ways),
        reasons=session.lens.reasons,
        limit=session.limit,
        low=low,
        mean=mean,
        high=high,
        spread=(session.spread * session.units.scale).tolist(),
        density=session.lens.density_of,
        time=_time(session),
        color=session.color,
        level=TOLD,
    )


def _time(session: Session) -> TimeAnswer | None:
    time = session.time
    return None if time is None else TimeAnswer(name=time.name, kind=time.kind)


def _component(session: Session, k: int) -> ComponentAnswer:
    sizes, (low, high) = session.lens.sizes, session.ranges(k)
    ratio = getattr(session.lens.model, "explained_variance_ratio_", None)
    return ComponentAnswer(
        name=f"component {k + 1}" if len(sizes) > 1 else "latents",
        parent=session.lens.parents[k],
        axes=[f"latent {j + 1}" for j in range(sizes[k])],
        low=low,
        high=high,
        ratio=None if ratio is None else np.asarray(ratio, dtype=float).tolist(),
    )


# --- the port ----------------------------------------------------------------------------------

WAITING = 128
"""Connections that wait for the server while it starts."""

LEAST = 8
"""Fewest characters of a token."""


class Door(NamedTuple):
    """A bound socket and the link that leads to it."""

    socket: socket.socket
    host: str
    port: int
    token: str

    @property
    def link(self) -> str:
        """Return the link to open."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        name = socket.gethostname() if self.host in ("0.0.0.0", "::") else name
        return f"http://{name}:{self.port}/?token={self.token}"

    @property
    def is_private(self) -> bool:
        """Return True if only this machine can reach it."""
        return is_loopback(self.host)


def open_door(host: str, port: int, token: str | None = None) -> Door:
    """Bind a port (0: any free one), before the browser is told of it."""
    token = secrets.token_urlsafe(24) if token is None else token
    if len(token) < LEAST or not all(c.isascii() and (c.isalnum() or c in "-_") for c in token):
        raise TableError(f"--token: expected at least {LEAST} letters, digits, - or _.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm (40 ms per answer) only if the protocol is named
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(WAITING)  # early connections wait for the server
    except OSError as error:
        found.close()
        why = error.strerror or str(error)
        raise TableError(
            f"{host}:{port} cannot be used: {why}. Leave out --port to use a free one."
        ) from None
    return Door(found, host, int(found.getsockname()[1]), token)


def prepare(session: Session, door: Door, show: bool) -> Any:
    """Return the server of a session."""
    return server_of(create(session, secrets.token_hex(4)), door, show)


def server_of(app: FastAPI, door: Door, show: bool) -> Any:
    """Return a server, imported and built, so that the printed link works at once."""
    import uvicorn

    from dualpca.app.explorer.connections import Connection

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if show:
                webbrowser.open(door.link)

    settings = uvicorn.Config(
        Guard(app, door.token, door.host, door.port),
        log_level="error",
        access_log=False,  # it would contain the token
        server_header=False,
        http=Connection,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
        ws="none",
    )
    return Server(settings)


def serve(server: Any, door: Door) -> None:
    """Answer until Ctrl-C."""
    try:
        server.run(sockets=[door.socket])
    except KeyboardInterrupt:
        pass
    finally:
        door.socket.close()
