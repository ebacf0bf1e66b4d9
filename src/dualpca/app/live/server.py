"""The live page: the explorer's server and guard, with the last rows of a watch."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

import dualpca
from dualpca.app.explorer.app import CSV, Door, application, serve_health, server_of, static_files
from dualpca.app.live.window import Window
from dualpca.files.fields import visible


def create(window: Window, run: str) -> FastAPI:
    """Return the application of one watch; `run` lets open pages notice a restart."""
    shared = static_files("dualpca.app.explorer")  # its colours, and small helpers
    app = application("watch", shared | static_files("dualpca.app.live"))
    serve_health(app, run)
    _serve_window(app, window, run)
    return app


def _serve_window(app: FastAPI, window: Window, run: str) -> None:
    described = window.described() | {"run": run, "version": dualpca.__version__}

    @app.get("/api/watch")
    async def watch() -> JSONResponse:
        return JSONResponse(visible(described))

    @app.get("/api/rows")
    def rows(since: int = 0) -> JSONResponse:
        return JSONResponse(visible(window.answer(max(since, 0))) | {"run": run})

    @app.get("/api/sensor/{j}")
    def sensor(j: int) -> JSONResponse:
        if not 0 <= j < len(window.names):
            raise HTTPException(404, f"sensor {j}: there are {len(window.names)}")
        return JSONResponse(visible(window.sensor(j)))

    @app.get("/api/table", response_class=Response, responses=CSV)
    def table(count: int = 0, end: int = 0) -> Response:
        name = {"content-disposition": 'attachment; filename="watch.csv"'}
        rows = count if 0 < count < window.size else window.size
        text = window.table(rows, end if end > 0 else None)
        return Response(text, media_type="text/csv", headers=name)


@contextmanager
def serving(window: Window, door: Door, show: bool) -> Iterator[None]:
    """Serve the page in a thread of its own while the block runs."""
    server: Any = server_of(create(window, secrets.token_hex(4)), door, show)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [door.socket]}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(5)
        door.socket.close()
