"""How much memory there is, how much is in use, and sizes in words."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

UNITS = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "KI": 2**10, "MI": 2**20, "GI": 2**30}
DEFAULT_FREE = 4_000_000_000
"""Bytes that count as free where the system does not say."""


def parsed(words: str) -> int:
    """Return a size in bytes: 500MB, 1.5 GiB, 2e9.

    Examples
    --------
    >>> parsed("500MB"), parsed("1.5 GiB"), parsed("4096")
    (500000000, 1610612736, 4096)
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([KMGT]?I?)B?\s*", words, re.IGNORECASE)
    with suppress(KeyError, ValueError):
        if found:
            return int(float(found[1]) * UNITS[found[2].upper()])
    raise ValueError(f"{words!r} is not a size: expected one such as 500MB or 2GiB.")


def shown(size: float) -> str:
    """Return a size in words.

    Examples
    --------
    >>> shown(2_500_000_000), shown(999)
    ('2.5 GB', '999 B')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.0f} B"


def free() -> int:
    """Return the bytes that are free without swapping, as far as the system knows."""
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable"))
        return int(line.split()[1]) * 1024
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return DEFAULT_FREE


def resident() -> int:
    """Return the bytes that this process holds now (where unknown: at its height, or none)."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    with suppress(ImportError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 0
