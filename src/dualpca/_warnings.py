"""Warnings, at the line of the user's own code."""

from __future__ import annotations

import sys
import warnings

BETWEEN = ("dualpca", "sklearn", "joblib", "contextlib")
"""Packages whose calls lie between a user's line and ours."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's own code that led here, however many calls lie between."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
