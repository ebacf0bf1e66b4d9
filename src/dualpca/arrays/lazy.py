"""Attributes that are computed when they are first read, with no lock around the work."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    cached_property = functools.cached_property
else:

    class cached_property(functools.cached_property):
        """`functools.cached_property` as of Python 3.12.

        Before, it held a lock while the value was computed: a process that forked meanwhile had a
        child in which that lock was never released. Two threads may compute the value; both get
        the first one.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            known = vars(instance)
            if self.attrname not in known:
                known.setdefault(self.attrname, self.func(instance))
            return known[self.attrname]
