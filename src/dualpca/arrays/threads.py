"""Blocks side by side: Python threads outside, one BLAS thread inside each."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, reduce
from itertools import pairwise
from threading import RLock, get_ident
from typing import Any, NamedTuple, TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

_owner: dict[str, int] = {}
"""The context that has BLAS' threads, by its id, while one has. An entry is set in one step; Ctrl-C
can come between the taking of a lock and the note that it was taken."""

_held: dict[int, int] = {}
"""Thread to the number of workers it may use, while it is inside of `outside`."""


_taken = 0
"""Threads that BLAS had before some thread took them, 0 if none has."""

_setting = RLock()
"""Held while BLAS is told a number of threads, some microseconds. BLAS has a lock of its own there:
a process that forked meanwhile would have a child in which that one is never released."""


def _after_fork() -> None:
    """Forget, in a forked child, what threads held that are not in it.

    Where one of them had taken BLAS' threads, they are given back when they are first asked for.
    """
    global _setting
    _setting = RLock()
    _owner.clear()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _setting.acquire(),
        after_in_parent=lambda: _setting.release(),
        after_in_child=_after_fork,
    )


class _Library(NamedTuple):
    """A library with threads: how many it may use, and how to say so."""

    get: Callable[[], int]
    set: Callable[[int], object]
    blas: bool


@cache
def _libraries() -> tuple[_Library, ...]:
    """Return the libraries of this process that have threads, found once."""
    return tuple(map(_library, ThreadpoolController().lib_controllers))


def _library(found: Any) -> _Library:
    """Return how to ask a library, without threadpoolctl in between where that is known.

    It looks functions up by name at every call, which takes longer than a small fit.
    """
    blas = found.user_api == "blas"
    if found.internal_api == "openblas" and found.threading_layer == "pthreads":
        for name in found.check_symbols:
            get = getattr(found.dynlib, name, None)
            put = getattr(found.dynlib, name.replace("_get_", "_set_"), None)
            if get is not None and put is not None:
                return _Library(get, put, blas)
    return _Library(found.get_num_threads, found.set_num_threads, blas)


UNPACKED = ("SkylakeX", "Cooperlake", "SapphireRapids")
"""Processors for which OpenBLAS multiplies small matrices where they are, without copies."""


@cache
def has_small_products() -> bool:
    """Return True if BLAS has kernels of its own for small matrices."""
    known = [lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"]
    return bool(known) and all(getattr(lib, "architecture", None) in UNPACKED for lib in known)


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
    if _taken and not _owner:  # forked meanwhile
        for library in _libraries():
            if library.blas:
                with _setting:
                    library.set(_taken)
        _taken = 0
    # None where a library cannot say
    return max([library.get() or 1 for library in _libraries()], default=1)


def is_outside() -> bool:
    """Return True if this thread is inside of `outside`, which had threads to use."""
    return get_ident() in _held


class _OneThread:
    """A context in which BLAS has one thread, unless it has no more, or others use them now.

    A class: contexts made of generators take as long to enter as ten small products. Where Ctrl-C
    keeps it from giving threads back, it does so when it goes.
    """

    __slots__ = ("before", "shared", "thread")

    def __init__(self, *, shared: bool) -> None:
        self.shared = shared  # the others are for `side_by_side`
        self.before: list[tuple[_Library, int]] = []
        self.thread = get_ident()

    def __enter__(self) -> None:
        global _taken
        if self.thread in _held:
            return
        workers = available()
        if workers < 2 or _owner.setdefault("now", id(self)) != id(self):
            return
        _taken = workers
        _held[self.thread] = workers if self.shared else 1
        for library in _libraries():
            count = library.get() if library.blas else 1
            if count is not None and count > 1:
                self.before.append((library, count))
                with _setting:
                    library.set(1)

    def __exit__(self, *_: object) -> None:
        global _taken
        if _owner.get("now") != id(self):
            return
        with _setting:
            for library, count in self.before:
                library.set(count)
        _taken = 0
        _held.pop(self.thread, None)
        _owner.pop("now", None)

    def __del__(self) -> None:
        """Give back what is still held."""
        self.__exit__()


def outside() -> _OneThread:
    """Give BLAS one thread, and `side_by_side` all that were allowed.

    For work that goes back and forth between the two: BLAS threads that have nothing to do wait
    in a loop for a while, and occupy cores that others need.
    """
    return _OneThread(shared=True)


def alone() -> _OneThread:
    """Give BLAS one thread, and nobody else any: for work that takes less than threads' waiting.

    On busy cores two threads of BLAS wait for each other at every step of a factorisation, for
    longer than a small one takes. Entering and leaving costs some microseconds.
    """
    return _OneThread(shared=False)


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


def at_once(work: Callable[[Item], Result], items: list[Item]) -> list[Result]:
    """Return work(item) of every item, in order, a thread for each: for devices, which only wait.

    Unlike `side_by_side` it leaves BLAS alone.
    """
    return [*map(work, items)] if len(items) < 2 else [*_in_order(work, items, len(items))]


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
