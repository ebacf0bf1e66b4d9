"""How much memory is free: the machine's, or what a container leaves."""

from pathlib import Path

import pytest

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
