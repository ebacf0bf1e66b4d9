"""Full disks, killed and interrupted processes: no half files, clear errors, exit statuses."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import dualpca as dp
from dualpca.app.cli._running import UsageError
from dualpca.app.cli._session import keep_inputs
from dualpca.data.atomic import replacing
from tests.app.test_cli import ENTRY, call

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model and a table that takes seconds to write as text."""
    folder = tmp_path_factory.mktemp("safety")
    X = np.random.default_rng(0).normal(size=(400_000, 20))
    np.save(folder / "t.npy", X)
    np.save(folder / "small.npy", X[:5000])
    names = [f"x{j}" for j in range(20)]
    dp.PPCA(2).fit(pl.DataFrame(X[:1000], schema=names, orient="row")).save(folder / "m.dpca")
    return folder


def unfinished(process):
    """Return the bytes in files without a name that a process has open."""
    total = 0
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            if "(deleted)" in os.readlink(link):
                total += link.stat().st_size
        except OSError:
            continue
    return total


def stopped(place, out, how):
    """Start to denoise a table, and send a signal when half of the first batches are written."""
    work = subprocess.Popen(
        [*ENTRY, "denoise", "m.dpca", "t.npy", "-o", out, "--memory-limit", "400MB"],
        cwd=place,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    end = time.monotonic() + 100
    while work.poll() is None and time.monotonic() < end and unfinished(work) < 1e6:
        time.sleep(0.02)
    assert work.poll() is None, work.communicate()
    work.send_signal(how)
    printed, said = work.communicate(timeout=100)
    return work.returncode, printed, said


@pytest.mark.slow
@linux
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_process_that_is_stopped_leaves_the_old_file(how, place, tmp_path):
    out = tmp_path / "x.csv"
    out.write_bytes(b"old")
    status, printed, said = stopped(place, out, how)
    assert (os.listdir(tmp_path), out.read_bytes(), printed) == (["x.csv"], b"old", b"")
    if how == signal.SIGINT:
        assert (status, said) == (130, b"dualpca denoise: interrupted; nothing was written.\n")
    else:
        assert status == -signal.SIGKILL


@pytest.mark.slow
def test_a_file_that_may_not_grow_is_not_left_half(place, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    for name in ("x.parquet", "x.npy"):
        done = subprocess.run(
            [*ENTRY, "denoise", "m.dpca", "small.npy", "-o", tmp_path / name, "--json"],
            cwd=place,
            capture_output=True,
            preexec_fn=limit,
            timeout=100,
        )
        said = done.stderr.decode()
        assert (done.returncode, os.listdir(tmp_path)) == (5, []), said
        assert "File too large" in said and said.count("\n") == 1
        assert json.loads(done.stdout)["status"] == 5


@pytest.mark.slow
def test_a_full_disk_is_said(place, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system, and not everywhere")
    try:
        (disk / "x.csv").write_bytes(b"old")
        done = call("denoise", "m.dpca", "small.npy", "-o", disk / "x.csv", cwd=place)
        assert done.returncode == 5 and b"No space left on device" in done.stderr
        assert (os.listdir(disk), (disk / "x.csv").read_bytes()) == (["x.csv"], b"old")
        done = call("fit", "small.npy", "-q", "2", "-m", "dual", "-o", disk / "m.dpca", cwd=place)
        assert done.returncode == 5 and b"No space left on device" in done.stderr
        assert os.listdir(disk) == ["x.csv"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_reader_that_leaves_is_no_error(place):
    work = subprocess.Popen(
        [*ENTRY, "denoise", "m.dpca", "small.npy", "-o", "-"],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert work.stdout.readline().startswith(b"x0,x1,")
    work.stdout.close()
    said = work.stderr.read()
    work.stderr.close()
    assert (work.wait(timeout=100), said) == (141, b"")


@pytest.mark.parametrize("nameless", [True, False])
def test_files_appear_whole_with_the_old_permissions(nameless, tmp_path, monkeypatch):
    if not nameless:
        monkeypatch.setattr("dualpca.data.atomic._nameless", lambda target: None)
    path = tmp_path / "x"
    with replacing(path) as file:
        file.write(b"one")
        assert not path.exists()
    path.chmod(0o640)
    with pytest.raises(ValueError), replacing(path) as file:
        file.write(b"two")
        raise ValueError
    assert path.read_bytes() == b"one"
    with replacing(path) as file:
        file.write(b"three")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"three", 0o640)
    assert os.listdir(tmp_path) == ["x"]


@linux
@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.slow
def test_standard_output_on_a_full_device(as_json, place):
    with open("/dev/full", "w") as full:
        command = [*ENTRY, "inspect", "m.dpca", *as_json]
        work = subprocess.run(command, cwd=place, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (work.returncode, work.stderr.count("\n")) == (5, 1), work.stderr
    assert "No space left" in work.stderr


@pytest.mark.parametrize(
    "arguments",
    [("explore", "no.dpca"), ("export", "no.dpca", "-o", "m.onnx"), ("inspect", "no.dpca")],
    ids=lambda arguments: arguments[0],
)
def test_a_model_that_is_not_there(arguments, inside, tmp_path):
    status, _, said = inside(*arguments, cwd=tmp_path)
    assert status == 4 and "no.dpca cannot be read: No such file" in said


@pytest.mark.parametrize("step", ["link", "replace"])
def test_errors_name_the_file_that_was_asked_for(step, tmp_path, monkeypatch):
    def refuse(part, *rest, **options):
        name = tmp_path / part if step == "replace" else tmp_path / rest[0]
        raise PermissionError(13, "Permission denied", str(name))

    monkeypatch.setattr(os, step, refuse)
    with pytest.raises(OSError, match="cannot write here: Permission denied") as caught:
        with replacing(tmp_path / "x.csv") as file:
            file.write(b"new")
    assert caught.value.filename == str(tmp_path / "x.csv")
    assert os.listdir(tmp_path) == []


# --- files that must not be replaced -------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A folder with a model and its table."""
    X = np.random.default_rng(0).normal(size=(30, 4))
    frame = pl.DataFrame(X, schema=["a", "b", "c", "d"], orient="row")
    frame.write_csv(tmp_path / "t.csv")
    dp.PPCA(2).fit(frame).save(tmp_path / "m.dpca")
    return tmp_path


@pytest.fixture
def redirected():
    """Connect standard input or output to a file, as a shell does."""
    held = []

    def connect(stream, path, how):
        held.append((stream, os.dup(stream)))
        with open(path, how) as file:
            os.dup2(file.fileno(), stream)

    def back():
        while held:
            stream, old = held.pop()
            os.dup2(old, stream)
            os.close(old)

    connect.back = back
    yield connect
    back()


READERS = [("impute", "m.dpca", "-"), ("impute", "-"), ("score", "m.dpca", "-"), ("fit", "-")]
READERS += [("transform", "m.dpca", "-"), ("denoise", "m.dpca", "-"), ("report", "m.dpca", "-")]


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_standard_input_that_is_a_file_is_not_replaced(arguments, inside, folder, redirected):
    before = (folder / "t.csv").read_bytes()
    redirected(0, folder / "t.csv", "rb")
    status, _, said = inside(*arguments, "-o", "./t.csv", cwd=folder)
    assert status == 2 and "t.csv is read by this command" in said
    assert (folder / "t.csv").read_bytes() == before
    assert ("--force" in said) == (arguments[0] == "impute")


def test_standard_input_may_be_filled_in_place_by_force(inside, folder, redirected, monkeypatch):
    table = (folder / "t.csv").read_text().splitlines()
    lines = [table[0], "," + table[1].split(",", 1)[1], *table[2:]]
    (folder / "t.csv").write_text("\n".join(lines))
    redirected(0, folder / "t.csv", "rb")
    with open(folder / "t.csv") as file:
        monkeypatch.setattr(sys, "stdin", file)
        status, _, said = inside("impute", "m.dpca", "-", "-o", "t.csv", "--force", cwd=folder)
    assert status == 0, said
    found = (folder / "t.csv").read_text().splitlines()
    assert found[1].endswith(lines[1]) and not found[1].startswith(",") and found[2:] == table[2:]


def test_standard_output_does_not_go_to_the_table(folder, redirected, capfd):
    with capfd.disabled():
        redirected(1, folder / "t.csv", "ab")
        try:
            with pytest.raises(UsageError, match="standard output goes to is read"):
                keep_inputs(["-"], [str(folder / "t.csv")])
            keep_inputs(["-"], [str(folder / "m.dpca")])
        finally:
            redirected.back()


WRITERS = {
    "graph over table": ("export", "m.dpca", "-o", "old.csv"),
    "page over model": ("report", "t.csv", "-o", "old.dpca"),
    "page over table": ("report", "m.dpca", "t.csv", "-o", "old.csv"),
    "model over table": ("fit", "t.csv", "-q", 1, "-o", "old.csv"),
    "model over page": ("fit", "t.csv", "-q", 1, "-o", "old.html"),
    "table over Parquet": ("transform", "m.dpca", "t.csv", "-o", "parquet.csv"),
    "Parquet over table": ("score", "m.dpca", "t.csv", "-o", "csv.parquet"),
    "table over model": ("sample", "m.dpca", "-o", "model.csv"),
    "deviations over model": ("impute", "m.dpca", "t.csv", "-o", "f.csv", "--std", "model.csv"),
    "page over bytes": ("demo", "-o", "bytes"),
}


@pytest.fixture
def full(folder):
    """The folder with files of every kind, some of them under a wrong name."""
    table, model = (folder / "t.csv").read_bytes(), (folder / "m.dpca").read_bytes()
    pl.DataFrame({"a": [1]}).write_parquet(folder / "parquet.csv")
    for name, data in {
        **{"old.csv": table, "csv.parquet": table, "old.dpca": model, "model.csv": model},
        **{"old.html": b"<!DOCTYPE html><p>", "bytes": b"\x1f\x8b\x00\x01", "empty.csv": b""},
    }.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("arguments", WRITERS.values(), ids=WRITERS)
def test_a_file_of_another_kind_is_not_replaced(arguments, inside, full):
    before = {path.name: path.read_bytes() for path in full.iterdir()}
    status, _, said = inside(*arguments, cwd=full)
    assert status == 2 and "exists and holds " in said and "--force" in said
    assert {path.name: path.read_bytes() for path in full.iterdir()} == before


def test_files_of_the_same_kind_empty_files_and_with_force_others_are_replaced(inside, full):
    pytest.importorskip("onnx")
    for arguments in (
        ("sample", "m.dpca", "-n", 3, "-o", "old.csv"),
        ("sample", "m.dpca", "-n", 3, "-o", "empty.csv"),
        ("fit", "t.csv", "-q", 1, "-o", "old.dpca"),
        ("sample", "m.dpca", "-n", 3, "-o", "model.csv", "--force"),
        ("fit", "t.csv", "-q", 1, "-o", "old.html", "--force"),
        ("export", "m.dpca", "-o", "bytes", "--force"),
        ("export", "m.dpca", "-o", "bytes"),
    ):
        status, _, said = inside(*arguments, cwd=full)
        assert status == 0, said
    assert (full / "model.csv").read_text().count("\n") == 4
    dp.load(full / "old.html")


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "arrow", "npy", "npz"])
def test_every_kind_of_table_is_known_again(kind, inside, folder):
    for _ in range(2):
        status, _, said = inside("sample", "m.dpca", "-n", 3, "-o", f"x.{kind}", cwd=folder)
        assert status == 0, said
