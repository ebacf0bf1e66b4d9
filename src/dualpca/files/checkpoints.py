"""Checkpoints of long fits: a file that a killed fit goes on from.

It is written whole or not at all, in the container of model files (nothing in it is ever run),
and says which fit of which data it is of: with anything else it is refused.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data import atomic
from dualpca.errors import CheckpointError, CheckpointWarning, ModelFileError, expected, warn
from dualpca.files import container
from dualpca.models.driver import State

Host = np.ndarray[Any, Any]
SAME, SUMMED = 1e-8, 1e-11
"""Differences that rounding may cause: relative to the variance (its root), and to the mean."""

FORMAT = 1
"""Of the states; another one is refused."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a fit writes how far it has come, and how often.

    Parameters
    ----------
    path : str
        The file; its folder must exist.
    seconds : float
        Time between two writings; 0 writes after every step.
    keep : bool
        Leave the file where it is when the fit has ended; it is removed otherwise.

    Examples
    --------
    >>> Checkpoint("fit.checkpoint").seconds
    30.0
    """

    path: str
    seconds: float = 30.0
    keep: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike):
            raise ValueError(expected("path", "the name of a file", self.path))
        seconds: Any = self.seconds
        if isinstance(seconds, bool) or not (isinstance(seconds, Real) and float(seconds) >= 0):
            raise ValueError(expected("seconds", "a number of at least 0", self.seconds))
        object.__setattr__(self, "path", os.fspath(self.path))

    @classmethod
    def of(cls, asked: Any) -> Checkpoint | None:
        """Return what an estimator's `checkpoint` asks for."""
        if asked is None or isinstance(asked, Checkpoint):
            return asked
        if isinstance(asked, str | os.PathLike):
            return cls(os.fspath(asked))
        raise ValueError(expected("checkpoint", "None, a path or a Checkpoint", asked))


class CheckpointWatch(NamedTuple):
    """A checkpoint asked for, and the parameters of the fit that asks."""

    checkpoint: Checkpoint
    of: Mapping[str, str]

    def over(self, n: float, mean: Array, variance: Array, **told: str) -> CheckpointKeeper:
        """Return the keeper of a fit to n rows of these means and variances.

        `told` is what else belongs to the data, in words, such as where sequences end.
        """
        data = {"mean": backend.to_numpy(mean), "variance": backend.to_numpy(variance)}
        return CheckpointKeeper(self._replace(of={**self.of, **told}), float(n), data)


class CheckpointKeeper:
    """Writes the state of one fit now and then; `state` is what an earlier one left, or None.

    `also` gives numbers to write with every state, for a fit in several stages.
    """

    def __init__(self, watch: CheckpointWatch, n: float, data: Mapping[str, Host]) -> None:
        self.watch, self.n, self.data = watch, n, data
        self.path = Path(watch.checkpoint.path)
        self.last = time.monotonic()
        self.also: Callable[[], dict[str, Any]] = dict
        folder = atomic.target_of(self.path).parent
        if not os.access(folder, os.W_OK):
            what = "cannot be written: give a checkpoint another path"
            raise PermissionError(f"the folder of {self.path} {what}.")
        self.state: State | None = self._load() if self.path.exists() else None

    def offer(self, state: Callable[[], State], *, now: bool = False) -> None:
        """Write the state if the last one is old enough."""
        if not now and time.monotonic() - self.last < self.watch.checkpoint.seconds:
            return
        arrays, numbers = state()
        every = {f"data.{k}": np.asarray(v, dtype=np.float64) for k, v in self.data.items()}
        every |= {f"state.{k}": v for k, v in arrays.items()}
        text = {
            "format": FORMAT,
            "of": dict(self.watch.of),
            "n": self.n,
            "numbers": numbers | self.also(),
        }
        try:
            container.write(self.path, every, json.dumps(text))
        except OSError as error:  # hours of work are worth more than the file
            what = f"{self.path} could not be written ({error.strerror or error})"
            warn(f"{what}: the fit goes on without. Make room.", CheckpointWarning)
        self.last = time.monotonic()

    def done(self) -> None:
        """Remove the file, unless it is to be kept."""
        if not self.watch.checkpoint.keep:
            self.path.unlink(missing_ok=True)

    def _load(self) -> State:
        """Return the state in the file, or say why it is none of this fit."""
        try:
            arrays, text = container.read(self.path)
        except ModelFileError as error:
            raise ModelFileError(self._refusal(error.why)) from None
        try:
            told = json.loads(text)
            of, n, numbers = told["of"], told["n"], told["numbers"]
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(self._refusal("it is no checkpoint")) from None
        if told.get("format") != FORMAT:
            raise CheckpointError(self._refusal("another version of dualpca wrote it"))
        mine = dict(self.watch.of)
        other = sorted(k for k in {*of, *mine} if of.get(k) != mine.get(k))
        other = ["model"] if "model" in other else other
        if other:
            told_of = ", ".join(f"{k}={of.get(k)} there, {mine.get(k)} here" for k in other[:5])
            raise CheckpointError(self._refusal(f"its fit has other parameters: {told_of}"))
        theirs = arrays.get("data.mean"), arrays.get("data.variance")
        if n != self.n or not _same(theirs, (self.data["mean"], self.data["variance"])):
            raise CheckpointError(self._refusal("it is of other data"))
        return {k[6:]: v for k, v in arrays.items() if k.startswith("state.")}, numbers

    def _refusal(self, why: str) -> str:
        return f"{self.path} cannot be gone on from: {why}. Remove it, or give another path."


def _same(a: tuple[Host | None, Host | None], b: tuple[Host, Host]) -> bool:
    """Return True if means and variances differ by rounding only, feature by feature."""
    (mean, variance), (other_mean, other_variance) = a, b
    if mean is None or variance is None or mean.shape != other_mean.shape:
        return False
    far = np.abs(other_mean)
    close = np.abs(mean - other_mean) <= SAME * np.sqrt(other_variance) + SUMMED * far
    # what is far from zero has a variance with the rounding of its mean in it
    alike = np.abs(variance - other_variance) <= SAME * other_variance + (SAME * far) ** 2
    return bool(np.all(close) and np.all(alike))
