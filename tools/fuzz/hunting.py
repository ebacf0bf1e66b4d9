"""The hunt: inputs that reach new lines are kept, and changed further."""

import json
import re
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.files.hostile import watched
from tools.fuzz.lines import Lines

KEPT = Path(__file__).with_name("corpus.json")
MOST_CHANGES = 12
"""Of a good input, one after the other."""


class Origin(NamedTuple):
    """Where an input comes from: a good one, and the seeds of the changes made to it."""

    name: str
    seeds: tuple[int, ...] = ()


class Failure(NamedTuple):
    """An input of which something became that must not."""

    target: str
    origin: Origin
    what: str
    data: bytes

    @property
    def place(self):
        """What failures of one cause have in common: the words without numbers and quotes."""
        return re.sub(r"'.*?'|\".*?\"|[\d.e+-]+", "", self.what)[:120] + self.what[-30:]


@dataclass
class Hunt:
    """Attacks one target; counts what became of the inputs."""

    target_name: str
    target: object
    folder: Path
    seed: int
    lines: Lines = field(default_factory=Lines)
    counts: Counter = field(default_factory=Counter)
    kept: list = field(default_factory=list)  # origins that reached new lines, how many, input

    def made(self, origin):
        """Return the input that an origin describes."""
        data = self.target.good(origin.name)
        for seed in origin.seeds:
            data = self.changed(data, seed)
        return data

    def changed(self, data, seed):
        rng = np.random.default_rng(seed)
        others = [
            self.target.good(self.target.names[k])
            for k in rng.integers(len(self.target.names), size=2)
        ]
        return self.target.changed(data, rng, others)

    def tried(self, origin, data):
        """Give an input to the target; return a failure or None."""
        path = self.folder / f"now{self.target.suffix}"
        path.write_bytes(data)
        (self.folder / "origin").write_text(json.dumps([self.target_name, *origin]))
        call = lambda: self.target.fate(path, origin.name)  # noqa: E731
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            (how, found, *_), new = self.lines.during(lambda: watched(call))
        self.counts[how] += 1
        if new:
            self.kept.append((origin, new, data))
        return None if found is None else Failure(self.target_name, origin, found, data)

    def run(self, seconds, clock=time.monotonic):
        """Yield failures, first of good and kept inputs for at most a third of the time."""
        rng, until = np.random.default_rng(self.seed), clock() + seconds
        begin = [Origin(name) for name in self.target.names] + stored(self.target_name)
        for k in rng.permutation(len(begin)):
            if clock() > until - 2 * seconds / 3:
                break
            yield self.tried(begin[k], self.made(begin[k]))
        while clock() < until:
            recent = self.kept[-50:] if rng.random() < 0.5 else self.kept
            origin, _, data = recent[int(rng.integers(len(recent)))]
            if len(origin.seeds) >= MOST_CHANGES:
                origin = Origin(origin.name)
                data = self.made(origin)
            seed = int(rng.integers(2**32))
            data = self.changed(data, seed)
            yield self.tried(Origin(origin.name, (*origin.seeds, seed)), data)


def stored(target):
    """Return the origins that are kept for a target."""
    found = json.loads(KEPT.read_text()).get(target, []) if KEPT.exists() else []
    return [Origin(name, tuple(seeds)) for name, seeds in found]


def worth_keeping(hunt, most=24):
    """Return the origins of changed inputs that reached the most new lines."""
    changed = [one for one in hunt.kept if one[0].seeds]
    best = sorted(changed, key=lambda one: (-one[1], len(one[0].seeds)))[:most]
    return sorted([origin.name, list(origin.seeds)] for origin, *_ in best)
