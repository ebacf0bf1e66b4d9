"""Peak memory of a call, beyond what the process held before it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import psutil

PERIOD = 0.002  # seconds between samples where the kernel cannot be asked
MEGABYTE = 1e6


def extra_megabytes(call: Callable[[], object]) -> float:
    """Peak resident memory during the call, minus the resident memory just before."""
    measure = from_kernel if reset_high_water() else from_samples
    before = resident()
    return max(0.0, measure(call) - before) / MEGABYTE


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


def reset_high_water() -> bool:
    """Set Linux's high-water mark back to now, so that loading the data is not counted."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def from_kernel(call: Callable[[], object]) -> int:
    """The kernel's own record misses no peak, however short."""
    call()
    status = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def from_samples(call: Callable[[], object]) -> int:
    """Elsewhere, look every 2 ms from a thread."""
    peak = [resident()]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(PERIOD):
            peak.append(max(peak.pop(), resident()))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        call()
    finally:
        done.set()
        watcher.join()
    return peak[0]
