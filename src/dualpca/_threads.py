"""Blocks side by side: Python threads outside, one BLAS thread inside each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from os import getpid
from threading import Lock, get_ident
from typing import TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

_busy = Lock()
_held: dict[int, int] = {}
"""Thread to the number of workers it may use, while it is inside of `outside`."""


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    """Return threads that wait for work; a forked process needs its own."""
    return ThreadPoolExecutor(workers, thread_name_prefix="dualpca")


def available() -> int:
    """Return how many threads may be used now, which is what the user allows BLAS."""
    held = _held.get(get_ident())
    if held is not None:
        return held
    return max((lib.num_threads for lib in _controller().lib_controllers), default=1)


@contextmanager
def outside() -> Iterator[None]:
    """Give BLAS one thread, and `side_by_side` all that were allowed.

    For work that goes back and forth between the two: BLAS threads that have nothing to do wait
    in a loop for a while, and take the cores from those that have.
    """
    workers = available()
    if workers < 2 or get_ident() in _held or not _busy.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1):
            _held[get_ident()] = workers
            yield
    finally:
        _held.pop(get_ident(), None)
        _busy.release()


def side_by_side(work: Callable[[list[Item]], Result], cut: list[Item]) -> list[Result]:
    """Apply `work` to consecutive runs of `cut`, one run a thread.

    The number of BLAS threads is a setting of the whole process: where another thread of the
    caller is in here already, this one works alone.
    """
    with outside():
        workers = _held.get(get_ident(), 1)
        if workers < 2:
            return [work(cut)]
        edges = [len(cut) * k // workers for k in range(workers + 1)]
        runs = [cut[a:b] for a, b in pairwise(edges)]
        return list(_pool(workers, getpid()).map(work, runs))
