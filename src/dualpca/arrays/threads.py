"""Blocks side by side: Python threads outside, one BLAS thread inside each."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache, reduce
from itertools import pairwise
from threading import Lock, get_ident
from typing import TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

_busy = Lock()
_held: dict[int, int] = {}
"""Thread to the number of workers it may use, while it is inside of `outside`."""


_taken = 0
"""Threads that BLAS had before some thread took them, 0 if none has."""


def _after_fork() -> None:
    """Forget, in a forked child, what threads held that are not in it.

    Where one of them had taken BLAS' threads, they are given back when they are first asked for.
    """
    global _busy
    _busy = Lock()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    """Return threads that wait for work; a forked process needs its own."""
    return ThreadPoolExecutor(workers, thread_name_prefix="dualpca")


def available() -> int:
    """Return how many threads may be used now, which is what the user allows BLAS."""
    global _taken
    held = _held.get(get_ident())
    if held is not None:
        return held
    if _taken and not _busy.locked():  # forked meanwhile
        _controller().limit(limits=_taken)
        _taken = 0
    return max((lib.num_threads for lib in _controller().lib_controllers), default=1)


def is_outside() -> bool:
    """Return True if this thread is inside of `outside`, which had threads to use."""
    return get_ident() in _held


@contextmanager
def outside() -> Iterator[None]:
    """Give BLAS one thread, and `side_by_side` all that were allowed.

    For work that goes back and forth between the two: BLAS threads that have nothing to do wait
    in a loop for a while, and occupy cores that others need.
    """
    workers = available()
    if workers < 2 or get_ident() in _held or not _busy.acquire(blocking=False):
        yield
        return
    with _taking(workers, workers):
        yield


@contextmanager
def alone() -> Iterator[None]:
    """Give BLAS one thread, and nobody else any: for work that takes less than threads' waiting.

    On busy cores two threads of BLAS wait for each other at every step of a factorisation, for
    longer than a small one takes. Entering and leaving costs some ten microseconds.
    """
    workers = available()
    if workers < 2 or get_ident() in _held or not _busy.acquire(blocking=False):
        yield
        return
    with _taking(workers, 1):
        yield


@contextmanager
def _taking(workers: int, own: int) -> Iterator[None]:
    """Hold BLAS to one of its `workers`, this thread having `own`, and `_busy` until the end."""
    global _taken
    busy, _taken = _busy, workers
    try:
        with _controller().limit(limits=1, user_api="blas"):
            _held[get_ident()] = own
            yield
    finally:
        _taken = 0
        _held.pop(get_ident(), None)
        busy.release()


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
        return list(_in_order(work, runs, workers))


def folded(
    work: Callable[[Item], Result], plus: Callable[[Result, Result], Result], items: list[Item]
) -> Result:
    """Return work(items[0]) plus work(items[1]) plus …, in this order whichever is done first.

    If the items do not depend on the number of threads, the sum does not either, to the last bit.
    """
    with outside():
        workers = _held.get(get_ident(), 1)
        alone = workers < 2 or len(items) < 2
        return reduce(plus, map(work, items) if alone else _in_order(work, items, workers))


def _in_order(work: Callable[[Item], Result], items: list[Item], workers: int) -> Iterator[Result]:
    """Yield what `work` makes of every item, in order, one more under way than there are threads.

    So a result that takes long lets no others pile up behind it.
    """
    pool, waiting = _pool(workers, os.getpid()), deque[Future[Result]]()
    try:
        for item in items:
            # what the caller lets overflow (np.errstate), threads let overflow too
            waiting.append(pool.submit(copy_context().run, work, item))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # an error, or Ctrl-C: what has not begun need not
        for one in waiting:
            one.cancel()
