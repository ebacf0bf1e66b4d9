"""Checkpoints of long fits: a file from which a killed fit resumes.

It is written whole or not at all, in the container of model files (nothing in it is ever run),
and names the fit and the data it belongs to: with any other it is refused.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualpca import errors
from dualpca.arrays import Array, backend
from dualpca.data import Host, Units, atomic
from dualpca.files.container import parse, read_container, write_container
from dualpca.files.fields import escaped, fits
from dualpca.models.driver import Keeper, State

SAME_SPREAD, SAME_MEAN = 1e-8, 1e-11
"""Differences that rounding may cause: relative to the variance (its root), and to the mean."""

STATE_FORMAT = 1
"""Another one is refused."""

MOST_SHOWN = 60
"""Characters of a parameter in an error."""

ANY_NUMBER = ("loglikelihoods", "values", "slopes")
"""Arrays of a state that may hold infinity, where a step led nowhere."""

_resumed: set[Path] = set()
"""Checkpoints that fits of this process have resumed."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a fit writes how far it has come, and how often.

    Parameters
    ----------
    path : str
        The file; its folder must exist.
    seconds : float, default=30.0
        Time between two writings; 0 writes after every step.
    keep : bool, default=False
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
            raise ValueError(errors.expected("path", "the name of a file", self.path))
        seconds: Any = self.seconds
        if isinstance(seconds, bool) or not isinstance(seconds, Real) or not float(seconds) >= 0:
            raise ValueError(errors.expected("seconds", "a number of at least 0", self.seconds))
        object.__setattr__(self, "path", os.fspath(self.path))

    @classmethod
    def of(cls, asked: Any) -> Checkpoint | None:
        """Return what an estimator's `checkpoint` asks for.

        Parameters
        ----------
        asked : None, path or Checkpoint

        Returns
        -------
        checkpoint : Checkpoint or None

        Examples
        --------
        >>> from dualpca import Checkpoint
        >>> Checkpoint.of("fit.checkpoint").seconds
        30.0
        """
        if asked is None or isinstance(asked, Checkpoint):
            return asked
        if isinstance(asked, str | os.PathLike):
            return cls(os.fspath(asked))
        raise ValueError(errors.expected("checkpoint", "None, a path or a Checkpoint", asked))


class CheckpointWatch(NamedTuple):
    """A checkpoint asked for, and the parameters of the fit that asks."""

    checkpoint: Checkpoint
    of: Mapping[str, str]
    units: Units | None = None  # of the columns, if rows are standardised

    def over(self, n: float, mean: Array, variance: Array, **data: str) -> CheckpointKeeper:
        """Return the keeper of a fit to n rows of these means and variances.

        `data` is what else belongs to the data, in words, such as where sequences end.
        """
        columns = {"mean": backend.to_numpy(mean), "variance": backend.to_numpy(variance)}
        if self.units is not None:  # standardised tables are all alike
            columns["mean"] = self.units.outward(columns["mean"])
            columns["variance"] = self.units.variances(columns["variance"])
        return CheckpointKeeper(self.checkpoint, {**self.of, **data}, float(n), columns)


class CheckpointKeeper(Keeper):
    """Writes the state of one fit at intervals; `state` is the one an earlier run left, or None.

    `also` gives numbers to write with every state, for a fit in several stages.
    """

    def __init__(
        self, checkpoint: Checkpoint, of: dict[str, str], n: float, data: Mapping[str, Host]
    ) -> None:
        self.checkpoint, self.of, self.n, self.data = checkpoint, of, n, data
        self.path = Path(checkpoint.path)
        self.last = time.monotonic()
        self.also: Callable[[], dict[str, Any]] = dict
        if not os.access(atomic.target_of(self.path).parent, os.W_OK):
            what = "cannot be written: give a checkpoint another path"
            raise PermissionError(f"the folder of {self.path} {what}.")
        self.state: State | None = self._load() if self.path.exists() else None

    def offer(self, state: Callable[[], State], *, now: bool = False) -> None:
        """Write the state if the last one is old enough."""
        if not now and time.monotonic() - self.last < self.checkpoint.seconds:
            return
        arrays, numbers = state()
        every = {f"data.{k}": np.asarray(v, dtype=np.float64) for k, v in self.data.items()}
        every |= {f"state.{k}": v for k, v in arrays.items()}
        numbers = numbers | self.also()
        text = {"format": STATE_FORMAT, "of": self.of, "n": self.n, "numbers": numbers}
        try:
            write_container(self.path, every, json.dumps(text))
        except OSError as error:  # hours of work are worth more than the file
            what = f"{self.path} could not be written ({error.strerror or error})"
            errors.warn(f"{what}: the fit goes on without it. Make room.", errors.CheckpointWarning)
        self.last = time.monotonic()

    def done(self) -> None:
        """Remove the file, unless it is to be kept."""
        if not self.checkpoint.keep:
            self.path.unlink(missing_ok=True)

    def _load(self) -> State:
        """Return the state in the file; refuse one of another fit."""
        try:
            arrays, text = read_container(self.path)
        except errors.ModelFileError as error:
            raise errors.ModelFileError(self._refusal(error.why)) from None
        numbers = self._check(text, arrays)
        state = {k[6:]: v for k, v in arrays.items() if k.startswith("state.")}
        odd = [k for k, v in state.items() if k not in ANY_NUMBER and not backend.all_finite(v)]
        if odd:
            what = f"{escaped(', '.join(odd), MOST_SHOWN)} in it is not finite"
            raise errors.CheckpointError(self._refusal(what))
        _resumed.add(self.path)
        return state, numbers

    def _check(self, text: str, arrays: Mapping[str, Host]) -> dict[str, Any]:
        """Return the numbers in the text of a file, if it is a checkpoint of this fit."""
        try:
            found = parse(text)
            of, n, numbers = found["of"], found["n"], found["numbers"]
        except (errors.ModelFileError, KeyError, TypeError):
            raise errors.CheckpointError(self._refusal("it is no checkpoint")) from None
        if not fits(of, dict[str, str], {}) or type(n) is not float or type(numbers) is not dict:
            raise errors.CheckpointError(self._refusal("it is no checkpoint"))
        if found.get("format") != STATE_FORMAT:
            raise errors.CheckpointError(self._refusal("another version of dualpca wrote it"))
        self._check_parameters(of)
        theirs = arrays.get("data.mean"), arrays.get("data.variance")
        if n != self.n or not _same(theirs, (self.data["mean"], self.data["variance"])):
            raise errors.CheckpointError(self._refusal("it is of other data"))
        return numbers

    def _check_parameters(self, of: dict[str, str]) -> None:
        other = sorted(k for k in {*of, *self.of} if of.get(k) != self.of.get(k))
        if other:
            some = ["model"] if "model" in other else other[:5]
            both = ((k, str(of.get(k)), str(self.of.get(k))) for k in some)
            short = ([escaped(word, MOST_SHOWN) for word in words] for words in both)
            differ = ", ".join(f"{k}={there} there, {here} here" for k, there, here in short)
            raise errors.CheckpointError(self._refusal(f"its fit has other parameters: {differ}"))

    def _refusal(self, why: str) -> str:
        return f"{self.path} cannot be resumed: {why}. Remove it, or give another path."


@contextmanager
def resuming(asked: Any) -> Iterator[None]:
    """Name the checkpoint if a fit fails on the state that it held: not one of this fit."""
    checkpoint = Checkpoint.of(asked)
    path = None if checkpoint is None else Path(checkpoint.path)
    try:
        yield
    except errors.DualPCAError:
        raise
    except (LookupError, ValueError, TypeError, ArithmeticError, AttributeError) as error:
        if path not in _resumed:
            raise
        why = f"{path} cannot be resumed: it does not hold a state of this fit"
        raise errors.CheckpointError(f"{why}. Remove it, or give another path.") from error
    finally:
        if path is not None:
            _resumed.discard(path)


def _same(a: tuple[Host | None, Host | None], b: tuple[Host, Host]) -> bool:
    """Return True if means and variances differ by rounding only, feature by feature."""
    (mean, variance), (mu, v) = a, b
    if mean is None or variance is None or not mean.shape == mu.shape == variance.shape:
        return False
    close = np.abs(mean - mu) <= SAME_SPREAD * np.sqrt(v) + SAME_MEAN * np.abs(mu)
    # features far from zero have the rounding of their mean in their variance
    alike = np.abs(variance - v) <= SAME_SPREAD * v + (SAME_SPREAD * np.abs(mu)) ** 2
    return bool(np.all(close & alike))
