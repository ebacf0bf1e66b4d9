"""Every command that writes, while its disk fails; as a script, how many faults it met.

python -m tests.app.write_faults [command …]
"""

import csv
import io
import json
import os
import shutil
import sys
import tempfile
import time
import zipfile
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl

import dualpca as dp
from dualpca.app import demo
from dualpca.app.cli import main
from dualpca.app.tables import reading
from tests.app import live_cases
from tests.files import faults

COMMANDS = {
    "fit": ("fit", "t.csv", "-q", 2, "-o", "out.dpca"),
    "transform": ("transform", "m.dpca", "t.csv", "-o", "out.csv"),
    "transform in batches": (*("transform", "m.dpca", "long.csv", "-o", "out.csv"),),
    "fit in batches": (
        "fit",
        "long.csv",
        "-m",
        "ppca",
        "--set",
        "method=em",
        "-q",
        2,
        "-o",
        "out.dpca",
    ),
    "impute": ("impute", "m.dpca", "holes.csv", "-o", "out.csv", "--std", "std.csv"),
    "impute in place": ("impute", "m.dpca", "out.csv", "-o", "out.csv", "--force"),
    "denoise": ("denoise", "m.dpca", "t.csv", "-o", "out.npy"),
    "sample": ("sample", "m.dpca", "-n", 40, "-o", "out.npz"),
    "sample parquet": ("sample", "m.dpca", "-n", 40, "-o", "out.parquet"),
    "score": ("score", "m.dpca", "t.csv", "-o", "out.tsv"),
    "export": ("export", "m.dpca", "-o", "out.onnx"),
    "report": ("report", "m.dpca", "t.csv", "-o", "out.html"),
    "demo": ("demo", "-o", "out.html"),
    "monitor": (
        *("monitor", "plant.csv", "-o", "out.dpca", "--chart", "out.svg", "-m", "ppca"),
        *("-q", 2, "--arl", 10, "--statistics", "t2", "--no-trim"),
    ),
    "watch": (
        *("watch", "plant.dpca", "live.csv", "--once", "--state", "out.state"),
        *("--log", "log.csv", "--alarms", "alarms.jsonl"),
    ),
    "reproduce": ("reproduce", "s0-figure-2", "--quick", "-o", "."),
}
"""Command lines that write; outputs begin with 'out', 'std', 'log', 'alarms' or 's0'."""

WRITTEN = ("out", "std", "log", "alarms", "s0", "index")
SECONDS = 5.0
"""No command here takes longer, also where its disk fails."""


@cache
def prepared():
    """Return the files that commands read, and old outputs, by name."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(60, 2)) @ rng.normal(size=(2, 5)), 3)
    X += np.round(0.1 * rng.normal(size=X.shape), 3)
    frame = pl.DataFrame(X, schema=list("abcde"), orient="row")
    holes = frame.with_columns(
        pl.when(pl.int_range(60) % 7 == 0).then(None).otherwise(pl.col("a")).alias("a")
    )
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        frame.write_csv(place / "t.csv")
        pl.concat([frame] * 8).write_csv(place / "long.csv")
        holes.write_csv(place / "holes.csv")
        dp.PPCA(2, random_state=0).fit(frame).save(place / "m.dpca")
        live_cases.write(place / "plant.csv", live_cases.rows_of(200, 0))
        live_cases.write(place / "live.csv", live_cases.faulty())
        beside = {"table": {"columns": live_cases.SENSORS}}
        beside["monitor"] = {"columns": ["time", *live_cases.SENSORS], "time": "time"}
        dp.save(live_cases.monitor(), place / "plant.dpca", metadata=beside)
        return {path.name: path.read_bytes() for path in place.iterdir()}


@cache
def old_outputs():
    """Return files of every kind that a command may replace, by ending."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        frame = pl.DataFrame({"a": [1.5], "b": [2.5]})
        frame.write_csv(place / "old.csv")
        frame.write_csv(place / "old.tsv", separator="\t")
        frame.write_parquet(place / "old.parquet")
        np.save(place / "old.npy", np.ones((2, 2)))
        np.savez(place / "old.npz", X=np.ones((2, 2)))
        dp.PCA(1).fit(np.eye(3)).save(place / "old.dpca")
        (place / "old.html").write_text("<!DOCTYPE html><p>old</p></html>")
        (place / "old.svg").write_text("<?xml version='1.0'?><svg>old</svg>")
        (place / "old.onnx").write_bytes(b"\x08\x08\x12\x07dualpca")
        return {path.suffix: path.read_bytes() for path in place.iterdir()}


class Place:
    """A folder in which one command runs again and again."""

    def __init__(self, name, folder):
        self.name, self.words, self.folder = name, COMMANDS[name], Path(folder)
        self.new = {}
        self.again = {}

    def outputs(self):
        """Return what there is of the outputs, by name."""
        names = (path for path in self.folder.rglob("*") if path.is_file())
        some = (path for path in names if path.name.startswith(WRITTEN))
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in some}

    def prepare(self, with_old=False):
        """Put everything as it was before the command; with old outputs if asked."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        (self.folder / "tmp").mkdir()
        for name, data in prepared().items():
            (self.folder / name).write_bytes(data)
        for name in self.new if with_old and self.name != "watch" else ():
            data = old_outputs().get(Path(name).suffix)
            if data is not None:
                (self.folder / name).write_bytes(data)
        if "in place" in self.name:
            (self.folder / "out.csv").write_bytes(prepared()["holes.csv"])
        self.old = self.outputs()

    def call(self):
        """Run the command in this process; return its status and what it said."""
        out, said = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
        before = os.getcwd()
        os.chdir(self.folder)
        begin = time.monotonic()
        try:
            with (
                patch.object(sys, "argv", ["dualpca", *map(str, self.words)]),
                patch.object(tempfile, "tempdir", str(self.folder / "tmp")),
                redirect_stdout(out),
                redirect_stderr(said),
                quick_demo(),
                in_batches() if "batches" in self.name else nullcontext(),
            ):
                main()
        except SystemExit as end:
            status = end.code or 0
        finally:
            os.chdir(before)
        self.took = time.monotonic() - begin
        return status, said.getvalue()

    def learn(self):
        """Run the command undisturbed, and keep what it writes."""
        self.prepare()
        status, said = self.call()
        assert status == 0, said
        self.new = self.outputs()
        for name, data in self.new.items():
            assert is_whole(name, data), name

    def judge(self, fault, found):
        """Fail unless old outputs are whole, or new ones, and the words are ours."""
        assert not isinstance(found, BaseException), (fault, found)
        status, said = found
        lines = said.strip().splitlines()
        what = (self.name, fault, status, said)
        if status:
            assert status in (1, 2, 3, 4, 5), what
            assert lines[-1].startswith(f"dualpca {self.words[0]}: "), what
            assert len(lines[-1]) > len(f"dualpca {self.words[0]}: ") + 10, what
        assert "Traceback" not in said, what
        now = self.outputs()
        for name, data in now.items():
            if self.name == "watch" and not name.endswith(".state"):
                continue  # appended to; judged by what the next watch makes of it
            assert data == self.old.get(name) or is_whole(name, data), (*what, name)
        assert set(now) <= {*self.old, *self.new}, what
        if status == 0:
            assert set(now) == set(self.new) | set(self.old), what
        assert set(self.old) <= set(now), what
        left = [path.name for path in self.folder.iterdir() if path.name not in prepared()]
        assert {one for one in left if not one.startswith(WRITTEN)} <= {"tmp"}, (*what, left)
        kept = os.listdir(self.folder / "tmp")
        assert all(one.endswith(".lock") for one in kept), (*what, kept)
        if self.name == "watch":
            self.resumed(what)

    def resumed(self, what):
        """Watch again: every row is in the log once, as if nothing had happened."""
        status, said = self.call()
        assert status == 0, (*what, said)
        for name in ("log.csv", "alarms.jsonl"):
            assert self.outputs()[name] == self.new[name], (*what, name)


def is_whole(name, data):
    """Return True if a file is as its kind should be, to its end."""
    ending = Path(name).suffix
    if ending in (".csv", ".tsv"):
        rows = csv.reader(data.decode().splitlines(), delimiter="," if ending == ".csv" else "\t")
        return data.endswith(b"\n") and len(set(map(len, rows))) == 1
    if ending == ".parquet":
        return pl.read_parquet(io.BytesIO(data)).height > 0
    if ending == ".npy":
        return np.load(io.BytesIO(data)).size > 0
    if ending == ".npz":
        return zipfile.ZipFile(io.BytesIO(data)).testzip() is None
    if ending in (".html", ".svg"):
        return data.rstrip().endswith((b"</html>", b"</svg>"))
    if ending == ".json":
        return bool(json.loads(data))
    if ending == ".jsonl":
        return all(map(json.loads, data.splitlines()))
    if ending == ".png":
        return data.endswith(b"IEND\xaeB`\x82")
    if ending == ".onnx":
        import onnx

        onnx.checker.check_model(data)
        return True
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "m.dpca")
        path.write_bytes(data)
        dp.load(path)
        return True


COMPARE = demo.compare


@cache
def _compared():
    training, held_out = demo.split(0)
    return list(COMPARE(training, held_out, 0))


@contextmanager
def quick_demo():
    """Let the demonstration reuse its fits, and write a short page."""
    page = "<!DOCTYPE html><html><p>" + "page " * 20_000 + "</p></html>"
    with (
        patch.object(demo, "compare", lambda *_: iter(_compared())),
        patch.object(demo.report, "render", lambda page_: page),
        patch.object(demo, "report_page", lambda *_: None),
    ):
        yield


@contextmanager
def in_batches():
    """Let tables be read in batches, as if there were little memory."""
    with (
        patch.object(reading, "room_for", lambda limit: 30_000),
        patch.object(reading, "piece_of", lambda kind, room: 7_000),
    ):
        yield


def run(name, folder, kinds=faults.KINDS, old=(False, True)):
    """Fail everything that a command does; return the faults by kind, and what went wrong.

    Parameters
    ----------
    name : str
    folder : path
    kinds : sequence of str
    old : sequence of bool
        Whether outputs are there before.
    """
    place = Place(name, folder)
    place.learn()
    counts, wrong = {}, []
    for with_old in old:
        every = faults.every_fault(
            folder, place.call, lambda with_old=with_old: place.prepare(with_old), kinds
        )
        for fault, found in every:
            counts[fault.kind] = counts.get(fault.kind, 0) + 1
            try:
                place.judge(fault, found)
            except AssertionError as error:
                wrong.append(str(error))
    return counts, wrong


def report(names):
    """Run commands, and print how many faults they met and what went wrong."""
    total, failures = 0, 0
    for one in names:
        with tempfile.TemporaryDirectory() as folder:
            begin = time.process_time()
            counts, wrong = run(one, os.path.realpath(folder))
        total, failures = total + sum(counts.values()), failures + len(wrong)
        kinds = ", ".join(f"{kind} {n}" for kind, n in counts.items())
        took = time.process_time() - begin
        print(f"{one:22} {sum(counts.values()):4} faults, {took:.1f} s: {kinds}", flush=True)
        print("".join(f"    {words}\n" for words in wrong), end="")
    print(f"{total} faults, {failures} failures")
    return failures


if __name__ == "__main__":
    sys.exit(bool(report(sys.argv[1:] or COMMANDS)))
