"""What a checkpoint of an estimator's fit is of."""

from __future__ import annotations

import re
from typing import Any
from zlib import crc32

import numpy as np

from dualpca.arrays import Array
from dualpca.errors import expected
from dualpca.files.checkpoints import Checkpoint, Keeper, Watch

ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")

FREE = ("checkpoint", "verbose", "n_jobs", "max_iter")
"""Parameters that do not change where a fit goes, or only how far."""


def watch_of(model: Any) -> Watch | None:
    """Return the checkpoint that the parameters ask for, with what it is of."""
    checkpoint = Checkpoint.of(model.checkpoint)
    if checkpoint is None:
        return None
    params = {k: _told(v) for k, v in model.get_params().items() if k not in FREE}
    return Watch(checkpoint, {"model": type(model).__name__, **params})


def _told(value: Any) -> str:
    """Return a parameter in words that are the same in another process.

    Where an object lies in memory says nothing, and a generator has given the start already.
    """
    if isinstance(value, np.ndarray) and value.ndim:
        words = f"{value.dtype} {value.shape}".encode()
        return f"array {value.shape} ({crc32(np.ascontiguousarray(value).tobytes() + words):08x})"
    if isinstance(value, np.generic | np.ndarray):
        return repr(value.item())
    return ADDRESS.sub("", repr(value))


def keeper_of_chain(
    model: Any, lengths: Any, n: int, mean: Array, variance: Array
) -> Keeper | None:
    """Return what keeps the fit of a chain: where sequences end belongs to its data."""
    watch = watch_of(model)
    if watch is None:
        return None
    steps = np.asarray(lengths, dtype="<i8")
    told = f"{len(steps)} sequences ({crc32(steps.tobytes()):08x})"
    return watch._replace(of={**watch.of, "lengths": told}).over(n, mean, variance)


def check_checkpoint(model: Any) -> None:
    """Refuse a checkpoint of several starts, or of sizes that are still to be found."""
    if Checkpoint.of(model.checkpoint) is None:
        return
    if getattr(model, "n_init", 1) > 1:
        remedy = "A checkpoint is of one start: give n_init=1."
        raise ValueError(expected("n_init", "1 with a checkpoint", model.n_init, remedy))
    sizes = [getattr(model, name, None) for name in ("n_mixtures", "n_components")]
    if any(size in ("bic", "cv") for size in sizes if isinstance(size, str)):
        raise ValueError(expected("sizes", "numbers with a checkpoint", sizes))
