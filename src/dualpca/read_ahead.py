"""Reading ahead: the next item is on its way while this one is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, TypeVar

Item = TypeVar("Item")

PATIENCE = 0.1
"""Seconds after which a reader that waits looks whether anybody still wants its item."""


def ahead(items: Iterable[Item], room: int = 1) -> Iterator[Item]:
    """Yield items that a thread reads ahead; its errors come out here, in their place.

    Examples
    --------
    >>> list(ahead(range(3)))
    [0, 1, 2]
    """
    reader = _Reader(items, room)
    reader.start()
    try:
        while True:
            more, item = reader.queue.get()
            if more:
                yield item
            elif item is None:
                return
            else:
                raise item
    finally:
        reader.closed.set()
        reader.join()


class _Reader(Thread):
    """Puts items into a queue until they end, or nobody wants them any more."""

    def __init__(self, items: Iterable[Any], room: int) -> None:
        super().__init__(daemon=True, name="dualpca-reader")
        self.items, self.closed = items, Event()
        self.queue: Queue[tuple[bool, Any]] = Queue(room)

    def run(self) -> None:
        """Read all items; last comes None, or the error that ended them."""
        try:
            for item in self.items:
                if not self._put((True, item)):
                    return
            self._put((False, None))
        except BaseException as error:
            self._put((False, error))

    def _put(self, entry: tuple[bool, Any]) -> bool:
        while not self.closed.is_set():
            try:
                self.queue.put(entry, timeout=PATIENCE)
                return True
            except Full:
                continue
        return False
