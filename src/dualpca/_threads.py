"""Blocks side by side: Python threads outside, one BLAS thread inside each."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

_busy = Lock()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def available() -> int:
    """Return how many threads BLAS may use now, which is what the user allows."""
    return max((lib.num_threads for lib in _controller().lib_controllers), default=1)


def side_by_side(work: Callable[[list[Item]], Result], cut: list[Item]) -> list[Result]:
    """Apply `work` to consecutive runs of `cut`, one run a thread.

    The number of BLAS threads is a setting of the whole process: where another thread of the
    caller is in here already, this one works alone.
    """
    workers = available()
    if workers < 2 or not _busy.acquire(blocking=False):
        return [work(cut)]
    try:
        edges = [len(cut) * k // workers for k in range(workers + 1)]
        runs = [cut[a:b] for a, b in pairwise(edges)]
        with _controller().limit(limits=1), ThreadPoolExecutor(workers) as pool:
            return list(pool.map(work, runs))
    finally:
        _busy.release()
