"""How much memory is free: the machine's, or what a container leaves."""

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from dualpca import PCA, PPCA, KernelPCA
from dualpca.arrays import backend, memory
from dualpca.data.table import SlicedTable

GB = 10**9


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty tree of control groups, on a machine with 64 GB free."""
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(memory, "OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(memory, "_free_of_host", lambda: 64 * GB)
    return tmp_path / "groups"


def test_without_limits_the_machine_decides(groups: Path) -> None:
    assert memory.free() == 64 * GB
    (groups.parent / "own").write_text("0::/user\n")
    write(groups / "user", memory__max="max", memory__current=GB)
    assert memory.free() == 64 * GB


def test_what_is_free_without_a_list_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that are free, as other systems count them; of Linux, which counts caches, no more."""
    listed = memory._free_of_host()
    monkeypatch.setattr(memory, "Path", lambda name: Path("/nowhere"))
    pages = {"SC_AVPHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(memory.os, "sysconf", pages.__getitem__)
    assert memory._free_of_host() == 4_096_000 < listed
    monkeypatch.delattr(memory.os, "sysconf")  # Windows
    assert memory._free_of_host() == memory.DEFAULT_FREE


def test_version_2(groups: Path) -> None:
    (groups.parent / "own").write_text("0::/a/b\n")
    write(groups / "a/b", memory__max=8 * GB, memory__current=3 * GB)
    assert memory.free() == 5 * GB
    write(groups / "a/b", memory__stat=f"anon 5\ninactive_file {GB}\nactive_file 7")
    assert memory.free() == 6 * GB
    write(groups / "a", memory__max=4 * GB, memory__current=2 * GB)  # the group around it is full
    assert memory.free() == 2 * GB
    write(groups / "a", memory__max=GB, memory__current=2 * GB)
    assert memory.free() == 0


def test_version_1(groups: Path) -> None:
    (groups.parent / "own").write_text("5:cpu,cpuacct:/x\n4:memory:/docker/1\n0::/x\n")
    inside = groups / "memory/docker/1"
    write(inside, **{"memory__limit_in_bytes": 2 * GB, "memory__usage_in_bytes": GB})
    assert memory.free() == GB
    write(inside, **{"memory__limit_in_bytes": 2**63 - 4096})  # what stands for no limit
    assert memory.free() == 64 * GB


def test_a_container_that_sees_its_own_group_as_the_root(groups: Path) -> None:
    (groups.parent / "own").write_text("0::/of/the/host\n")
    write(groups, memory__max=3 * GB, memory__current=GB)
    assert memory.free() == 2 * GB


# --- memory maps ---------------------------------------------------------------------------------


def resident_pages(path: Path) -> int:
    """Return the bytes of a file that count as memory of this process, in kB."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if not line[:1].isupper():
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux counts pages by file")
@pytest.mark.parametrize("model", [PCA(2), PPCA(2)], ids=str)
def test_a_map_that_was_read_does_not_count_as_memory(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(memory, "LEAST_RELEASED", 2**20)
    X = np.random.default_rng(0).normal(size=(300_000, 5)) + np.arange(5)
    np.save(tmp_path / "x.npy", X)
    read = np.load(tmp_path / "x.npy", mmap_mode="r")
    rows = slice(1000, 299_000)  # of a view, with weights: every block is summed by itself
    found = model.fit(read[rows], sample_weight=np.ones(298_000))
    assert resident_pages(tmp_path / "x.npy") < 2000  # of 12,000
    wanted = clone(model).fit(X[rows], sample_weight=np.ones(298_000))
    assert np.array_equal(found.components_, wanted.components_)
    assert np.array_equal(read, X)


@pytest.mark.parametrize("mode", ["c", "r+"])
def test_changes_to_a_map_are_kept(mode, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(memory, "LEAST_RELEASED", 0)
    X = np.random.default_rng(0).normal(size=(5000, 3))
    np.save(tmp_path / "x.npy", X)
    changed = np.load(tmp_path / "x.npy", mmap_mode=mode)
    changed[:, 1] *= 5
    for rows in (changed, np.asarray(changed), changed[10:]):
        PCA(1).fit(rows, sample_weight=np.ones(len(rows)))
    assert np.array_equal(changed[:, 1], 5 * X[:, 1])


# --- files that become shorter -------------------------------------------------------------------


@pytest.fixture
def shrinking(tmp_path: Path) -> Path:
    """A file of 5000 × 3 numbers."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(5000, 3)))
    return tmp_path / "x.npy"


def shorten(path: Path) -> None:
    """Take one number away: the last page of a map is still there, so that no test can crash."""
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 8)


on_unix = pytest.mark.skipif(os.name == "nt", reason="Windows keeps files that are mapped")


@on_unix
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("part", ["whole", "sliced", "view", "transposed"])
def test_a_map_of_a_file_that_became_shorter_is_refused(mode: str, part: str, shrinking) -> None:
    X = np.load(shrinking, mmap_mode=mode)
    X = {"whole": X, "sliced": X[10:4000:2], "view": np.asarray(X), "transposed": X.T}[part]
    memory.check_map(X)
    shorten(shrinking)
    with pytest.raises(ValueError, match=r"x\.npy became shorter .* Write it again"):
        memory.check_map(X)


@on_unix
def test_a_map_stays_good_when_another_file_takes_the_name_or_it_is_removed(shrinking) -> None:
    X = np.load(shrinking, mmap_mode="r")
    np.save(shrinking.with_name("y.npy"), np.zeros((3, 3)))
    shrinking.with_name("y.npy").replace(shrinking)
    memory.check_map(X)
    shrinking.unlink()
    memory.check_map(X)
    assert np.isfinite(PCA(1).fit(X).noise_variance_)


@on_unix
@pytest.mark.parametrize(
    "given", [str, partial(np.load, mmap_mode="r"), partial(np.load, mmap_mode="c")]
)
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_file_that_becomes_shorter_while_its_blocks_are_read_is_an_error(after, given, shrinking):
    class Shrinking(SlicedTable):
        def parts(self, *, reuse=False):
            for number, part in enumerate(super().parts(reuse=reuse)):
                if number == after:
                    shorten(shrinking)
                yield part

    with pytest.raises(ValueError, match="became shorter"):
        PCA(1).fit(Shrinking(given(shrinking), part_rows=500))


@on_unix
def test_a_map_that_becomes_shorter_while_its_moments_are_summed_is_an_error(
    shrinking, monkeypatch
) -> None:
    monkeypatch.setattr(memory, "releasing", lambda X: lambda rows: shorten(shrinking))
    monkeypatch.setattr(backend, "block_rows", lambda *_: 1000)
    X = np.load(shrinking, mmap_mode="r")
    with pytest.raises(ValueError, match="became shorter"):
        PCA(1).fit(X, sample_weight=np.ones(len(X)))


@on_unix
def test_a_map_in_memory_is_refused_before_it_is_read(shrinking) -> None:
    X = np.load(shrinking, mmap_mode="r")
    model = PPCA(1).fit(X)
    shorten(shrinking)
    for ask in (PCA(1).fit, PPCA(1).fit, model.transform, model.score_samples):
        with pytest.raises(ValueError, match="became shorter"):
            ask(X)


# --- memory that runs out ------------------------------------------------------------------------


def greedy(x, y):
    """A kernel of a user that wants more memory than there is."""
    return np.empty((10**8, 10**7), dtype=np.float32)


def test_memory_that_runs_out_is_told_with_the_size_that_was_needed() -> None:
    X = np.random.default_rng(0).normal(size=(30, 4))
    sizes = r"an array of 100000000 × 10000000 float32 needs 4e\+06 GB more, and [\d.]+ [kMG]B"
    with pytest.raises(
        MemoryError, match=sizes + r" are free now\. Fit fewer rows .*Batches"
    ) as told:
        KernelPCA(2, kernel=greedy).fit(X)
    assert told.value.__cause__ is not None  # where it was, for those who look
    wide = PPCA(1).fit(X[:4].repeat(250_000, axis=1) + X[4:8].repeat(250_000, axis=1) ** 2)
    for ask in (wide.get_covariance, wide.get_precision):
        with pytest.raises(
            MemoryError, match=r"1000000 × 1000000 float64 needs 8e.03 GB more.*parts"
        ):
            ask()


def test_what_others_say_of_memory_is_not_said_twice() -> None:
    with pytest.raises(MemoryError, match=r"^the disk cache is full$"):
        with memory.explained("Sell something."):
            raise MemoryError("the disk cache is full")
    with pytest.raises(MemoryError, match=r"memory ran out, and .* are free now\. Use fewer\.$"):
        with memory.explained("Ask others."), memory.explained("Use fewer."):
            raise MemoryError


# --- limits of the process -----------------------------------------------------------------------

LIMITED = """
import json, os, sys
path, room, one_core = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "one core"
if one_core:
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
import numpy as np
from dualpca import PCA, PPCA
from dualpca.arrays import memory, threads

wide = PPCA(1).fit(np.random.default_rng(0).normal(size=(5, 20_000)))
if room:
    import resource
    used = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + room,) * 2)
found = {"free": memory.free(), "threads": threads.available()}
if room:
    try:
        wide.get_covariance()
    except MemoryError as error:
        found["error"] = str(error)
found["variance"] = PCA(2).fit(path).explained_variance_.tolist()
print(json.dumps(found))
"""
"""Fits a file. With `room`, asks for 3.2 GB first, within so many bytes beyond what is in use."""

ROOM = 120_000_000
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux has these limits")


def limited(path: Path, room: int, cores: str = "all cores", *before: str, **settings: str) -> dict:
    """Return what a process of its own finds, which `before` starts."""
    ask = [*before, sys.executable, "-c", LIMITED, str(path), str(room), cores]
    rest = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    done = subprocess.run(ask, capture_output=True, text=True, timeout=300, env=rest | settings)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def stored(folder: Path, rows: int) -> tuple[Path, list[float]]:
    """Return a file of 20 columns, and the variances of two components."""
    X = np.random.default_rng(0).standard_normal((rows, 20)) * np.linspace(3, 1, 20)
    np.save(folder / "x.npy", X)
    return folder / "x.npy", PCA(2).fit(X).explained_variance_.tolist()


@on_linux
def test_within_a_limit_of_memory_what_is_too_large_is_told_and_the_rest_works(tmp_path) -> None:
    path, wanted = stored(tmp_path, 20_000)
    found = limited(path, ROOM, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    assert 0 < found["free"] <= ROOM
    assert "20000 × 20000 float64 needs 3.2 GB more, and " in found["error"]
    np.testing.assert_allclose(found["variance"], wanted, rtol=1e-10)


@on_linux
@pytest.mark.slow
def test_a_file_larger_than_what_a_process_may_use_is_fitted(tmp_path) -> None:
    path, wanted = stored(tmp_path, 1_000_000)  # 160 MB
    found = limited(path, ROOM, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    np.testing.assert_allclose(found["variance"], wanted, rtol=1e-10)


@on_linux
def test_a_process_that_may_use_one_core_uses_one_thread(tmp_path) -> None:
    path, wanted = stored(tmp_path, 20_000)
    found = limited(path, 0, "one core")
    assert found["threads"] == 1
    np.testing.assert_allclose(found["variance"], wanted, rtol=1e-10)


@on_linux
@pytest.mark.slow
def test_within_a_control_group_a_file_larger_than_its_memory_is_fitted(tmp_path) -> None:
    """A group of memory and CPU time, where the system lets a user have one."""
    scope = ["systemd-run", "--user", "--scope", "--quiet", "-p", "MemoryMax=500M"]
    scope += ["-p", "MemorySwapMax=0", "-p", "CPUQuota=50%"]
    if shutil.which("systemd-run") is None:
        pytest.skip("there is no systemd-run to make a control group with")
    tried = subprocess.run([*scope, "true"], capture_output=True, text=True, timeout=60)
    if tried.returncode:
        pytest.skip(f"no control group for this user: {tried.stderr.strip()}")
    path, wanted = stored(tmp_path, 4_000_000)  # 640 MB
    found = limited(path, 0, "all cores", *scope, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    assert found["free"] < 500 * 2**20
    np.testing.assert_allclose(found["variance"], wanted, rtol=1e-10)
