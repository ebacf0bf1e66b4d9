"""How much memory is free: the machine's, or what a container leaves."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from dualpca import PCA, PPCA
from dualpca.arrays import memory

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
