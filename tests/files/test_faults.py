"""Every write can fail, and the power go at any moment: the old file is whole, or the new one."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dualpca as dp
from dualpca import Checkpoint, errors
from dualpca.data.columns import wide_rows
from dualpca.data.table import Batches
from tests.conftest import rest_slow
from tests.files import faults, saved_models

OLD = dp.PCA(1).fit(saved_models.X)
NEW = dp.PPCA(3).fit(saved_models.X)
LARGE = np.random.default_rng(0).normal(size=(300, 200))  # more than Python keeps back


def stored(model, path):
    model.save(path)
    return Path(path).read_bytes()


def save_large(path):
    Batches([LARGE, LARGE]).save(path)


def write_columns(path):
    with wide_rows(path, (20, 3000), np.float64) as rows:
        rows.put(0, LARGE[:20])
        rows.put(1500, LARGE[20:40])


WRITERS = {
    "a model": NEW.save,
    "batches": save_large,
    "columns": write_columns,
}


@pytest.fixture(params=[True, False], ids=["nameless", "named"])
def nameless(request, monkeypatch):
    """Temporary files without a name, and those of systems that have none."""
    if not request.param:
        monkeypatch.setattr("dualpca.data.atomic._nameless", lambda target: None)


def check_writing(folder, write, old):
    """Fail everything once and for good; return how many faults there were."""
    path, struck = folder / "m.dpca", 0
    path.unlink(missing_ok=True)
    write(path)
    new = path.read_bytes()
    kinds = tuple(kind for kind in faults.KINDS if kind not in ("read", "map"))
    for before in (None, old):

        def prepare(before=before):
            path.unlink(missing_ok=True) if before is None else path.write_bytes(before)

        every = faults.every_fault(folder, lambda: write(path), prepare, kinds)
        while True:
            with faults.no_files_left(folder, ["m.dpca"]):
                fault, found = next(every, (None, None))
            if fault is None:
                break
            struck += 1
            now = path.read_bytes() if path.exists() else None
            if found is None:
                assert now == new, fault
            else:
                assert now == before or (write is write_columns and now == new), fault
                assert isinstance(found, OSError), (fault, found)
                assert str(found.filename) == str(path), (fault, found)
                assert re.search("cannot (write here|be read)", str(found)) or now == new, found
    return struck


@pytest.mark.parametrize("what", rest_slow(WRITERS, ["a model"]))
def test_every_fault_of_a_writer_leaves_the_old_file_or_the_new(what, nameless, tmp_path):
    old = stored(OLD, tmp_path / "m.dpca")
    assert check_writing(tmp_path, WRITERS[what], old) >= 12


def test_the_check_sees_a_file_that_is_written_in_place(tmp_path):
    """The oracle can fail: who opens a file to write it again loses the old one."""
    old = stored(OLD, tmp_path / "m.dpca")
    with pytest.raises(AssertionError):
        check_writing(tmp_path, lambda path: path.write_bytes(old * 2), old)


def test_every_fault_of_load_is_a_clear_error(tmp_path):
    NEW.save(tmp_path / "m.dpca")
    wanted = NEW.transform(saved_models.X)
    n = 0
    for fault, found in faults.every_fault(tmp_path, lambda: dp.load(tmp_path / "m.dpca")):
        n += 1
        assert isinstance(found, OSError | errors.ModelFileError), (fault, found)
        assert str(tmp_path / "m.dpca") in str(found), (fault, found)
    assert n >= 6
    assert np.array_equal(dp.load(tmp_path / "m.dpca").transform(saved_models.X), wanted)


# --- checkpoints -------------------------------------------------------------------------------


def fit_with(path, keep=False):
    asked = Checkpoint(path, seconds=0, keep=keep)
    model = dp.PPCA(2, max_iter=4, tol=0, checkpoint=asked)
    return model.fit(saved_models.HOLES)


@pytest.mark.filterwarnings("ignore::dualpca.errors.CheckpointWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_ends_well_whatever_happens_to_its_checkpoint(tmp_path):
    """Hours of work are worth more than the file; what there is of it can be resumed, or is not."""
    path = tmp_path / "c"
    wanted = fit_with(path).get_covariance()
    n = 0
    for fault, found in faults.every_fault(tmp_path, lambda: fit_with(path, keep=True)):
        n += 1
        if isinstance(found, Exception):
            assert isinstance(found, OSError | errors.DualPCAError), (fault, found)
        else:
            assert np.array_equal(found.get_covariance(), wanted), fault
        assert set(os.listdir(tmp_path)) <= {"c"}, fault
        if path.exists():  # whole: the fit goes on from it to the same end
            again = fit_with(path, keep=True).get_covariance()
            assert np.allclose(again, wanted, rtol=1e-9, atol=0), fault
            path.unlink()
    assert n >= 15


# --- power loss --------------------------------------------------------------------------------


def states_of(folder, operation):
    with faults.Disk(folder) as disk:
        operation()
    return list(faults.after_power_loss(disk)), disk


@pytest.mark.parametrize("what", rest_slow(WRITERS, ["a model"]))
def test_after_a_power_loss_the_old_file_or_the_new_is_there(what, nameless, tmp_path):
    path = tmp_path / "m.dpca"
    old = stored(OLD, path)
    states, disk = states_of(tmp_path, lambda: WRITERS[what](path))
    new, end = path.read_bytes(), len(disk.events)
    seen = set()
    for moment, files in states:
        found = files.get(str(path))
        assert found in (old, new), f"torn at event {moment} of {end}"
        seen.add(found)
        if moment == end:
            assert found == new, "save came back, and yet the new file can be lost"
            assert set(files) == {str(path)}
    assert seen == {old, new}


def test_a_new_file_is_whole_or_not_there(nameless, tmp_path):
    path = tmp_path / "m.dpca"
    states, _ = states_of(tmp_path, lambda: NEW.save(path))
    new = path.read_bytes()
    assert {files.get(str(path)) for _, files in states} == {None, new}


@pytest.mark.parametrize("left_out", ["the file", "the folder"])
def test_the_model_of_power_loss_sees_what_is_not_brought_to_the_disk(
    left_out, tmp_path, monkeypatch
):
    """The oracle can fail: without one of the two fsyncs, a torn or an old file is found."""
    path = tmp_path / "m.dpca"
    old = stored(OLD, path)
    with faults.Disk(tmp_path) as disk:
        fsync = os.fsync

        def some(descriptor):
            if os.path.isdir(f"/proc/self/fd/{descriptor}") != (left_out == "the folder"):
                fsync(descriptor)

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", some)
            NEW.save(path)
    new, end = path.read_bytes(), len(disk.events)
    found = [(m, files.get(str(path))) for m, files in faults.after_power_loss(disk)]
    if left_out == "the file":
        assert any(data not in (old, new) for _, data in found)
    else:
        assert any(data == old for moment, data in found if moment == end)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_after_a_power_loss_a_checkpoint_can_be_resumed(tmp_path):
    path = tmp_path / "c"
    states, _ = states_of(tmp_path, lambda: fit_with(path, keep=True))
    wanted = fit_with(path, keep=True).get_covariance()
    found = {files.get(str(path)) for _, files in states}
    assert len(found) >= 4 and None in found
    for data in found - {None}:
        path.write_bytes(data)
        assert np.allclose(fit_with(path).get_covariance(), wanted, rtol=1e-9, atol=0)


# --- a kill between two steps ------------------------------------------------------------------

KILL = """
import os, signal, sys
import dualpca as dp
step, path, source = sys.argv[1:]
model = dp.load(source)
real = getattr(os, step)
def die(*given, **named):
    if MOMENT == "after":
        real(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(os, step, die)
model.save(path)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL and nameless files")
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", ["fsync", "link", "replace"])
def test_a_kill_between_the_steps_of_saving(step, moment, tmp_path):
    path, source = tmp_path / "m.dpca", tmp_path / "new.dpca"
    old, new = stored(OLD, path), stored(NEW, source)
    script = KILL.replace("MOMENT", repr(moment))
    done = subprocess.run([sys.executable, "-c", script, step, str(path), str(source)], timeout=100)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == (new if (step, moment) == ("replace", "after") else old)
    source.unlink()
    left = sorted(set(os.listdir(tmp_path)) - {"m.dpca"})
    between = (step, moment) in {("link", "after"), ("replace", "before")}
    assert len(left) == between
    for name in left:  # the whole new file, under its temporary name
        assert name.startswith(".dualpca-") and (tmp_path / name).read_bytes() == new
        (tmp_path / name).unlink()
    NEW.save(path)
    assert path.read_bytes() == new and os.listdir(tmp_path) == ["m.dpca"]


# --- memory ------------------------------------------------------------------------------------

MEMORY = """
import os, sys
import _testcapi
import dualpca as dp
from tests.files import saved_models

path, what = sys.argv[1:]
models = {"old": dp.PCA(1).fit(saved_models.X), "new": dp.PPCA(3).fit(saved_models.X)}
contents = {}
for name, model in models.items():  # everything is imported, caches are full
    model.save(path)
    contents[name] = open(path, "rb").read()
    dp.load(path)
work = {"save": lambda: models["new"].save(path), "load": lambda: dp.load(path)}[what]
os.fsync = lambda descriptor: None  # this is about memory
n = failed = last = 0
while n - last < 300:
    n += 1
    with open(path, "wb") as file:
        file.write(contents["old"])
    error = None
    _testcapi.set_nomemory(n, n + 1)
    try:
        work()
    except Exception as caught:  # mostly MemoryError; the interpreter gives some other names
        error = caught
    finally:
        _testcapi.remove_mem_hooks()
    found = open(path, "rb").read()
    assert found == contents["old"] or (what == "save" and found == contents["new"]), n
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)], n
    if error is not None:
        failed, last = failed + 1, n
print(failed)
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["save", "load"])
def test_every_allocation_may_fail(what, tmp_path):
    """Of the interpreter's own, one after another: the old file stays, and nothing else is left."""
    pytest.importorskip("_testcapi", reason="an interpreter without its own tests")
    path = tmp_path / "m.dpca"
    command = [sys.executable, "-c", MEMORY, str(path), what]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 1000
