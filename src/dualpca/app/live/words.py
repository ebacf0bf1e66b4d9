"""What is wrong with a row, in words: statistics, and the sensors that they owe it to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MOST_SENSORS = 5
"""Sensors that are named."""


def title(statistic: str) -> str:
    """Return a statistic, or a run rule of one, in words.

    Examples
    --------
    >>> title("spe"), title("t2 8 in a row")
    ('SPE', 'T² 8 in a row')
    """
    from dualpca.models.monitoring import WORDS

    name, space, rule = statistic.partition(" ")
    return f"{WORDS.get(name, name)}{space}{rule}"


def shares(contributions: Any, names: Sequence[str]) -> dict[str, float]:
    """Return the sensors with the largest contributions, and their shares of all.

    Examples
    --------
    >>> shares(np.array([1.0, -3.0, 0.0]), ["flow", "level", "heat"])
    {'level': 0.75, 'flow': 0.25}
    """
    sizes = np.abs(np.nan_to_num(np.asarray(contributions, dtype=float)))
    total = float(sizes.sum())
    order = np.argsort(-sizes, kind="stable")[:MOST_SENSORS]
    return {names[j]: float(sizes[j] / total) for j in order if sizes[j] >= 0.005 * total > 0}


def sensor_words(sensors: Mapping[str, float], most: int = 3) -> str:
    """Return sensors and their shares in words.

    Examples
    --------
    >>> sensor_words({"level": 0.753, "flow": 0.247})
    'level 75 %, flow 25 %'
    """
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in [*sensors.items()][:most])


def reason(by: Mapping[str, float], sensors: Mapping[str, float]) -> str:
    """Return what is furthest beyond its limit, how far, and which sensors show it.

    Parameters
    ----------
    by : mapping
        Statistics in units of their limits.
    sensors : mapping
        Shares.

    Examples
    --------
    >>> reason({"t2": 0.4, "spe": 3.21}, {"level": 0.62, "flow": 0.21})
    'SPE 3.21 × its limit: level 62 %, flow 21 %'
    """
    which = max(by, key=by.__getitem__)
    named = sensor_words(sensors)
    return f"{title(which)} {by[which]:.3g} × its limit" + (f": {named}" if named else "")
