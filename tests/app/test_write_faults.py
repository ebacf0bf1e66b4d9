"""Every command that writes, on a disk that fails: what was there stays, or the new is whole."""

import zipfile

import pytest

from dualpca.app.live import judging
from tests.app import write_faults
from tests.app.write_faults import COMMANDS
from tests.conftest import rest_slow
from tests.files import faults


@pytest.mark.parametrize("name", rest_slow(COMMANDS, ["sample"]))
def test_every_fault_of_a_command_leaves_old_files_or_new_ones_and_words(name, tmp_path):
    if name == "export":
        pytest.importorskip("onnx")
    counts, wrong = write_faults.run(name, tmp_path, old=[True])
    assert not wrong, "\n".join(wrong)
    assert min(counts.get(kind, 0) for kind in ("open", "fsync", "rename")) >= 2


def test_the_judge_sees_a_file_that_is_half_there(tmp_path):
    """The oracle can fail: a writer that opens its output, and a message that is not ours."""
    place = write_faults.Place("sample", tmp_path)
    place.learn()
    place.prepare(with_old=True)
    (tmp_path / "out.npz").write_bytes(place.new["out.npz"][:100])
    with pytest.raises(zipfile.BadZipFile):
        place.judge(None, (5, "dualpca sample: nothing was written: No space left on device.\n"))
    place.prepare(with_old=True)
    with pytest.raises(AssertionError):
        place.judge(None, (1, "OSError: No space left on device\n"))
    place.judge(None, (5, "dualpca sample: nothing was written: No space left on device.\n"))


def test_the_state_of_a_watch_never_counts_lines_that_a_power_loss_can_take(tmp_path):
    """Log and alarms are on the disk, with their names, before the state that counts them."""
    place = write_faults.Place("watch", tmp_path)
    place.prepare()
    logs = tmp_path / "logs"  # in a folder of its own, which nothing else brings to the disk
    logs.mkdir()
    place.words = tuple("logs/log.csv" if one == "log.csv" else one for one in place.words)
    with faults.Disk(tmp_path) as disk:
        status, said = place.call()
    assert status == 0, said
    whole = (logs / "log.csv").read_bytes()
    kept = {}
    for _, files in faults.after_power_loss(disk):
        state, log = files.get(str(tmp_path / "out.state")), files.get(str(logs / "log.csv"), b"")
        if state is None:
            continue
        if state not in kept:
            (tmp_path / "s.state").write_bytes(state)
            _, found = judging.load_state(str(tmp_path / "s.state"))
            kept[state] = found.log.length
        assert len(log) >= kept[state] and log[: kept[state]] == whole[: kept[state]]
    assert len(kept) >= 2 and max(kept.values()) == len(whole)
