"""Types of what people give to estimators."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from dualpca.data import ChunkedTable
from dualpca.files.checkpoints import Checkpoint
from dualpca.kernels import Kernel


class Shaped(Protocol):
    """An array of any library, a frame, a sparse matrix or a collection of chunks."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """Numbers of rows and columns."""


class TorchGenerator(Protocol):
    """A generator of torch."""

    def initial_seed(self) -> int:
        """Return the seed it started from."""


Rows: TypeAlias = Shaped | Sequence[object] | ChunkedTable | os.PathLike[str]
"""Whatever holds rows: arrays, frames, lists of rows or items, files, tables of chunks."""

Column: TypeAlias = Shaped | Sequence[object]
"""One entry per row, of any library."""

Weights: TypeAlias = Shaped | Sequence[float] | float | None
"""Weights of rows: one number per row, the same for all, or none."""

Lengths: TypeAlias = Shaped | Sequence[int] | None
"""Numbers of rows of sequences, one after another; None for one sequence."""

Resumable: TypeAlias = str | os.PathLike[str] | Checkpoint | None
"""Where a fit keeps how far it has come."""

Path: TypeAlias = str | os.PathLike[str] | None
"""A file to write, or none."""

KernelLike: TypeAlias = str | Kernel | Callable[..., object] | None
"""A kernel by its name, as an object or as a function."""

Kinds: TypeAlias = Mapping[Any, object] | Sequence[object] | None
"""What columns hold: by their names, or one entry per column."""

Columns: TypeAlias = Sequence[str | int] | None
"""Some columns, by their names in the frame or by their numbers."""

Seed: TypeAlias = int | np.random.Generator | np.random.RandomState | TorchGenerator | None
"""Where random numbers come from: what `generator` accepts."""
