"""Sessions, clients and servers for the explorer's tests."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import httpx
import polars as pl
from sklearn.datasets import load_digits, load_iris

import dualpca as dp
from dualpca.app.explorer.app import create
from dualpca.app.explorer.guard import Guard
from dualpca.app.explorer.session import open_session

TOKEN = "a-token-of-these-tests"
PORT = 8123
HOST = f"127.0.0.1:{PORT}"
NAMES = ["sepal length", "sepal width", "petal length", "petal width"]


def iris():
    """The irises as a table, with their species and a name each."""
    found = load_iris()
    species = [str(found.target_names[t]) for t in found.target]
    frame = pl.DataFrame(found.data, schema=NAMES, orient="row")
    return frame.with_columns(
        pl.Series("species", species), pl.Series("who", [f"iris-{i}" for i in range(150)])
    )


def digits():
    """Handwritten digits as a table, with what they mean."""
    found = load_digits()
    frame = pl.DataFrame(found.data, schema=[f"p{j}" for j in range(64)], orient="row")
    return frame.with_columns(pl.Series("digit", found.target))


def fitted(model, frame=None):
    """Fit a model to the features of the irises."""
    return model.fit((iris() if frame is None else frame).select(NAMES))


def session_of(model=None, **options):
    model = fitted(dp.PPCA(2)) if model is None else model
    return open_session(model, iris(), **{"id_column": "who", "source": "iris.csv", **options})


class Client:
    """Ask an application without a network; synchronous, because the tests are."""

    def __init__(self, session, **limits):
        self.app = Guard(create(session, "this-run"), TOKEN, "127.0.0.1", PORT, **limits)
        self.headers = {"host": HOST, "x-dualpca-token": TOKEN}

    def ask(self, method, path, headers=None, **options):
        """Return the answer; `headers` come instead of those with the token."""

        async def once():
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                return await client.request(
                    method, path, headers=self.headers if headers is None else headers, **options
                )

        return asyncio.run(once())

    def get(self, path, headers=None):
        return self.ask("GET", path, headers)

    def post(self, path, body, headers=None):
        return self.ask("POST", path, headers, json=body)

    def good(self, path, body):
        """Return the answer to a request that must do well."""
        found = self.post(path, body)
        assert found.status_code == 200, found.text
        return found.json()


@contextmanager
def served(*arguments, cwd):
    """Run `dualpca explore` as a process of its own, and say where; Ctrl-C ends it."""
    command = [sys.executable, "-c", "from dualpca.app.cli import main; main()", "explore"]
    command += [*map(str, arguments), "--no-open", "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=os.environ
    )
    try:
        yield process, _announcement(process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()


def _announcement(process):
    text = ""
    for line in process.stdout:
        text += line
        if line.startswith("}"):
            return json.loads(text)
    raise AssertionError(process.stderr.read())
