"""Graphics cards: which there is, whether rows are worth sending, and the ways there and home."""

from __future__ import annotations

import importlib.util
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import backend, memory
from dualpca.arrays.types import Array
from dualpca.errors import BackendError, expected

WORTH = 2e9
"""Multiplications from which 'auto' takes a card. All fits measured beyond were faster on an H200
than on two cores, the way there and home included: docs/benchmarks.md."""
STEPS = 20
"""As how many passes a fit in steps counts."""
COPIES, SHARE = 4, 0.8
"""How often rows in float64 may be on a card at once, and the share of its free memory they get."""


class Job(NamedTuple):
    """What is to be done with rows, as far as a choice of device needs it."""

    n: int
    d: int
    pairs: bool  # a kernel between all pairs of rows
    steps: bool = False  # a fit in steps, each a pass over the rows

    @property
    def work(self) -> float:
        """Multiplications: n²d between pairs, n·d·min(n, d) otherwise, for every pass."""
        each = float(self.n) * self.d * (self.n if self.pairs else min(self.n, self.d))
        return each * (STEPS if self.steps else 1)

    @property
    def bytes(self) -> float:
        """Memory on a card."""
        return 8.0 * COPIES * self.n * self.d


class Choice(NamedTuple):
    """A device and why it was chosen; None is the host."""

    device: Any
    reason: str


def check_device(device: Any) -> None:
    """Refuse what names no device."""
    known = device is None or device in ("auto", "cpu", "cuda")
    if not known and not (isinstance(device, str) and device.removeprefix("cuda:").isdigit()):
        raise ValueError(expected("device", "None, 'auto', 'cpu', 'cuda' or 'cuda:0'", device))


def chosen(device: str, job: Job) -> Choice:
    """Return where to work: the device that was asked for, or for 'auto' what sizes speak for."""
    if device == "cpu":
        return Choice(None, "as asked")
    if device != "auto":
        return Choice(_card(device), "as asked")
    if not _present():
        return Choice(None, "there is no card that torch can use")
    if job.work < WORTH:
        return Choice(None, f"{job.work:.2g} multiplications are too few for a card")
    card = _card("cuda")
    free = SHARE * _free(card)
    need = f"{memory.shown(job.bytes)} of {memory.shown(free)} there"
    if job.bytes > free:
        return Choice(None, f"the rows would take {need}")
    return Choice(card, f"{job.work:.2g} multiplications, {need}")


def _present() -> bool:
    """Return True if torch is installed and sees an NVIDIA card."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def _card(device: str) -> Any:
    """Return torch's device, or say why there is none."""
    if importlib.util.find_spec("torch") is None:
        what = f"device={device!r} needs torch, which is not installed"
        raise BackendError(f"{what}: pip install 'dualpca[gpu]', or give device=None.")
    import torch

    if not torch.cuda.is_available():
        what = f"device={device!r}: torch {torch.__version__} sees no NVIDIA card here"
        raise BackendError(f"{what}. Give device=None, or 'auto', which takes one where there is.")
    _, _, number = device.partition(":")
    if number and int(number) >= torch.cuda.device_count():
        raise BackendError(
            expected("device", f"one of the {torch.cuda.device_count()} cards here", device)
        )
    return torch.device("cuda", int(number or torch.cuda.current_device()))


def _free(card: Any) -> float:
    """Return the free bytes of a card."""
    import torch

    return float(torch.cuda.mem_get_info(card)[0])


def sent(X: Array, device: Any) -> Array:
    """Return an array on a device, as torch's."""
    import torch

    if isinstance(X, np.ndarray):
        X = np.require(X, requirements=["C", "W"])  # torch takes no others
    return torch.as_tensor(X, device=device)


def returned(value: Any, like: Array | None = None, seen: dict[int, Any] | None = None) -> Any:
    """Return a value with every foreign array in it brought to the host, or to where `like` is.

    Goes through tuples, lists, dictionaries and objects of this library; what holds no such array
    is returned as it is, and what is shared stays shared.
    """
    seen = {} if seen is None else seen
    if id(value) not in seen:
        # the value too, so that no other object gets its id meanwhile
        seen[id(value)] = (_returned(value, like, seen), value)
    return seen[id(value)][0]


def _returned(value: Any, like: Array | None, seen: dict[int, Any]) -> Any:
    if backend.is_foreign(value):
        if like is None:
            return backend.to_numpy(value)
        return value.to(device=backend.device_of(like))
    if isinstance(value, dict):
        found = {key: returned(part, like, seen) for key, part in value.items()}
        return found if _differ(found.values(), value.values()) else value
    if isinstance(value, list | tuple):
        parts = [returned(part, like, seen) for part in value]
        if not _differ(parts, value):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return _object(value, like, seen)


def _object(value: Any, like: Array | None, seen: dict[int, Any]) -> Any:
    """Return an object of this library with its attributes brought home; others as they are."""
    own = type(value).__module__.partition(".")[0] == "dualpca" and hasattr(value, "__dict__")
    if not own or isinstance(value, type):
        return value
    twin = copy(value)
    seen[id(value)] = (twin, value)  # it may hold itself
    changed = False
    for name, part in vars(value).items():
        found = returned(part, like, seen)
        changed |= found is not part
        object.__setattr__(twin, name, found)
    return twin if changed else value


def _differ(found: Any, given: Any) -> bool:
    return any(a is not b for a, b in zip(found, given, strict=True))


def is_several(X: Any) -> bool:
    """Return True if X is a list of tables."""
    return isinstance(X, list | tuple) and len(X) > 0 and np.ndim(X[0]) > 1


def rows_of(X: Any) -> tuple[int, int]:
    """Return rows and columns of a table, or of several below each other.

    Examples
    --------
    >>> rows_of([[1, 2], [3, 4], [5, 6]]), rows_of([np.ones((4, 3)), np.ones((2, 3))])
    ((3, 2), (6, 3))
    """
    if is_several(X):
        return sum(np.shape(table)[0] for table in X), np.shape(X[0])[-1]
    shape = X.shape if hasattr(X, "shape") else np.shape(X)
    return int(np.prod(shape[:-1])), int(shape[-1]) if shape else 0
