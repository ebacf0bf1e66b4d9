"""Hostile inputs drawn anew at every run, and what draws them: `tools.fuzz`."""

import json
import os
import secrets
import sys
import time

import numpy as np
import pytest

from dualpca.errors import ModelFileError
from dualpca.files import container, fields
from tests.files import hostile
from tools.fuzz import hunting
from tools.fuzz.__main__ import told
from tools.fuzz.hunting import KEPT, Hunt, Origin
from tools.fuzz.lines import Lines
from tools.fuzz.targets import TARGETS

pytest.importorskip("pandas", reason="pandas is not installed: good tables come from its tests")

SECONDS, LONG = 0.5, 10.0
"""Of the processor for each target."""


def hunted(name, folder, seconds):
    """Attack a target; fail with what is found, and with the seed that repeats it."""
    seed = int(os.environ.get("DUALPCA_FUZZ_SEED", secrets.randbits(32)))
    hunt = Hunt(name, TARGETS[name], folder, seed)
    first = Origin(TARGETS[name].names[0])
    assert hunt.tried(first, hunt.made(first)) is None  # imports what it needs
    for failure in hunt.run(seconds, time.process_time):
        if failure is not None:
            path = folder / f"failure{hunt.target.suffix}"
            path.write_bytes(failure.data)
            pytest.fail(f"DUALPCA_FUZZ_SEED={seed}\n{told(failure, path)}", pytrace=False)
    return hunt


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_inputs_are_refused_or_answered(name, tmp_path):
    hunt = hunted(name, tmp_path, SECONDS)
    assert hunt.counts.total() > 2 and len(hunt.lines.seen) > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_hostile_inputs_are_refused_or_answered(name, tmp_path):
    hunt = hunted(name, tmp_path, LONG)
    assert hunt.counts.total() > 10 and hunt.counts["refused"] > 0 and len(hunt.counts) > 1


# --- faults are found, and repeated ---------------------------------------------------------------


def test_an_error_that_is_not_ours_is_found_and_repeated(tmp_path, monkeypatch):
    """A refusal that is lost: values that are not as the annotations ask."""
    plain = fields.refuse_misfits

    def lost(cls, found):
        try:
            plain(cls, found)
        except ModelFileError:
            raise KeyError(cls.__name__) from None

    monkeypatch.setattr(fields, "refuse_misfits", lost)
    hunt = Hunt("streams", TARGETS["streams"], tmp_path, seed=0)
    failures = (one for one in hunt.run(20, time.process_time) if one is not None)
    failure = next(one for one in failures if "KeyError" in one.what)
    assert hunt.made(failure.origin) == failure.data
    again = Hunt("streams", TARGETS["streams"], tmp_path, seed=1)
    assert again.tried(failure.origin, failure.data).place == failure.place
    monkeypatch.undo()
    assert again.tried(failure.origin, failure.data) is None


class Lock:
    """Opens for four letters, of which each one that is right reaches a line more."""

    names, suffix = ("aaaa",), ".txt"
    code = """
def turn(word):
    if word[0:1] == b"w":
        if word[1:2] == b"x":
            if word[2:3] == b"y":
                if word[3:4] == b"z":
                    return 1 / 0
"""

    def __init__(self, home):
        found = {}
        exec(compile(self.code, str(home / "lock.py"), "exec"), found)
        self.turn = found["turn"]

    def good(self, name):
        return name.encode()

    def changed(self, data, rng, others):
        at = int(rng.integers(len(data)))
        return data[:at] + bytes([int(rng.integers(ord("r"), ord("z") + 1))]) + data[at + 1 :]

    def fate(self, path, name):
        self.turn(path.read_bytes())
        return "closed", None


def test_inputs_that_reach_new_lines_lead_to_the_next(tmp_path, monkeypatch):
    """Four of nine letters at once take thousands of guesses, one after the other a hundred."""
    monkeypatch.setattr(hunting, "stored", lambda target: [])
    lock = Lock(tmp_path)
    hunt = Hunt("lock", lock, tmp_path, seed=3, lines=Lines(str(tmp_path)))
    failure = next(one for one in hunt.run(20, time.process_time) if one is not None)
    assert failure.data == b"wxyz" and "ZeroDivisionError" in failure.what
    assert hunt.counts.total() < 2000


class Greedy(Lock):
    def __init__(self, what):
        self.what = what

    def fate(self, path, name):
        return self.what()


def endless():
    while True:
        sum(range(1000))


@pytest.mark.parametrize(
    "what, words",
    [
        (endless, "endless"),
        (lambda: ("large", None if len(np.ones(30_000_000)) else ""), " kB"),
        (lambda: sys.exit(3), "SystemExit"),
    ],
)
def test_hangs_memory_and_exits_are_findings(what, words, tmp_path, monkeypatch):
    if words == " kB" and not os.path.exists("/proc/self/clear_refs"):
        pytest.skip("this system does not tell the highest memory of a call")
    if what is endless:
        monkeypatch.setattr(hostile, "MOST_SECONDS", 0.1)
    failure = Hunt("lock", Greedy(what), tmp_path, 0).tried(Origin("aaaa"), b"aaaa")
    assert words in failure.what


def test_lines_are_counted_once_and_tracing_ends():
    lines, before = Lines(), sys.gettrace()
    first = lines.during(lambda: container.parse("[1, 2]"))
    assert first[0] == [1, 2] and first[1] > 3
    assert lines.during(lambda: container.parse("[1, 2]"))[1] == 0
    with pytest.raises(ModelFileError):
        lines.during(lambda: container.parse("["))
    assert lines.during(lambda: container.parse("1"))[1] == 0 and sys.gettrace() is before


# --- the corpus -----------------------------------------------------------------------------------


def test_the_corpus_is_small_and_of_inputs_that_can_be_made():
    assert KEPT.stat().st_size < 8000
    assert set(json.loads(KEPT.read_text())) == set(TARGETS)
    for name, target in TARGETS.items():
        kept = hunting.stored(name)
        assert kept and {origin.name for origin in kept} <= set(target.names)
        assert Hunt(name, target, None, 0).made(min(kept, key=lambda one: len(one.seeds)))
