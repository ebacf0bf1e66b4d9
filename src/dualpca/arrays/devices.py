"""GPUs: which there are, whether rows are worth sending, and how to send them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import memory
from dualpca.arrays.types import Array
from dualpca.errors import BackendError, expected, install

WORTH = 2e9
"""Multiplications from which 'auto' uses a GPU. All fits measured beyond were faster on an H200
than on two cores, both transfers included: docs/benchmarks.md."""
PASSES_PER_FIT = 20
"""As how many passes a fit in steps counts."""
COPIES_ON_GPU, GPU_MEMORY_SHARE = 4, 0.8
"""How often rows in float64 may be on a GPU at once, and the share of its free memory they get."""


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
        return each * (PASSES_PER_FIT if self.steps else 1)

    @property
    def bytes(self) -> float:
        """Memory on a GPU."""
        return 8.0 * COPIES_ON_GPU * self.n * self.d


class Choice(NamedTuple):
    """A device and why it was chosen; None is the host."""

    device: Any
    reason: str


def check_device(device: Any) -> None:
    """Refuse what names no device, or no list of devices."""
    if isinstance(device, list | tuple):
        if not device or not all(name == "cpu" or _is_gpu(name) for name in device):
            what = "a list of GPUs such as ['cuda:0', 'cuda:1'], or one device"
            raise ValueError(expected("device", what, device))
    elif device is not None and device not in ("auto", "cpu") and not _is_gpu(device):
        raise ValueError(expected("device", "None, 'auto', 'cpu', 'cuda' or 'cuda:0'", device))


def _is_gpu(name: Any) -> bool:
    """Return True for 'cuda' and 'cuda:0'."""
    return isinstance(name, str) and (name == "cuda" or name.removeprefix("cuda:").isdigit())


def each_device(names: Sequence[str]) -> list[Any]:
    """Return torch's devices of these names; 'cpu' is torch's too."""
    return [_torch(name).device(name) if name == "cpu" else _gpu(name) for name in names]


def chosen(device: str, job: Job) -> Choice:
    """Return where to work: the device asked for, or for 'auto' the one that suits the sizes."""
    if device == "cpu":
        return Choice(None, "as asked")
    if device != "auto":
        return Choice(_gpu(device), "as asked")
    if not _gpu_present():
        return Choice(None, "there is no GPU that torch can use")
    if job.work < WORTH:
        return Choice(None, f"{job.work:.2g} multiplications are too few for a GPU")
    gpu = _gpu("cuda")
    free = GPU_MEMORY_SHARE * _free_bytes(gpu)
    need = f"{memory.shown(job.bytes)} of {memory.shown(free)} there"
    if job.bytes > free:
        return Choice(None, f"the rows would take {need}")
    return Choice(gpu, f"{job.work:.2g} multiplications, {need}")


def _gpu_present() -> bool:
    """Return True if torch is installed and sees an NVIDIA GPU."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def _gpu(device: str) -> Any:
    """Return torch's device, or say why there is none."""
    torch = _torch(device)
    if not torch.cuda.is_available():
        what = f"device={device!r}: torch {torch.__version__} sees no NVIDIA GPU here"
        raise BackendError(f"{what}. Give device=None, or 'auto', which uses one if there is one.")
    _, _, number = device.partition(":")
    if number and int(number) >= torch.cuda.device_count():
        raise BackendError(
            expected("device", f"one of the {torch.cuda.device_count()} GPUs here", device)
        )
    return torch.device("cuda", int(number or torch.cuda.current_device()))


def _torch(device: str) -> ModuleType:
    """Return torch, or say what needs it."""
    if importlib.util.find_spec("torch") is None:
        what = f"device={device!r} needs torch, which is not installed"
        raise BackendError(f"{what}: {install('gpu')}, or give device=None.")
    return importlib.import_module("torch")


def _free_bytes(gpu: Any) -> float:
    """Return the free bytes of a GPU."""
    import torch

    return float(torch.cuda.mem_get_info(gpu)[0])


def sent(X: Array, device: Any) -> Array:
    """Return an array on a device, as torch's."""
    import torch

    if isinstance(X, np.ndarray):
        X = np.require(X, requirements=["C", "W"])  # torch accepts no others
    return torch.as_tensor(X, device=device)


def is_torch_generator(source: Any) -> bool:
    """Return True if random numbers come from a generator of torch."""
    return type(source).__name__ == "Generator" and type(source).__module__.startswith("torch")


def seed_of(source: Any) -> int:
    """Draw a seed from a generator of torch."""
    import torch

    drawn = torch.randint(2**62, (1,), generator=source, device=source.device)
    return int(drawn.item())


def rows_of(X: Any) -> tuple[int, int]:
    """Return rows and columns of a table, or of several below each other.

    Examples
    --------
    >>> rows_of([[1, 2], [3, 4], [5, 6]]), rows_of([np.ones((4, 3)), np.ones((2, 3))])
    ((3, 2), (6, 3))
    """
    if isinstance(X, list | tuple) and len(X) > 0 and np.ndim(X[0]) > 1:
        return sum(np.shape(table)[0] for table in X), np.shape(X[0])[-1]
    shape = X.shape if hasattr(X, "shape") else np.shape(X)
    return int(np.prod(shape[:-1])), int(shape[-1]) if shape else 0
