"""What a kernel's parameters may be: numbers, words to be read from the rows, one per column."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from dualpca.errors import expected


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite real number."""
    return type(value) is not bool and isinstance(value, Real) and bool(np.isfinite(float(value)))


def is_positive(value: Any) -> bool:
    """Tell whether a value is a positive, finite number."""
    return is_number(value) and value > 0


def check_positive(kernel: Any, *names: str) -> None:
    """Refuse parameters that are neither positive numbers nor None nor words that `rules` knows."""
    for name in names:
        value = getattr(kernel, name)
        if value is not None and not isinstance(value, str) and not is_positive(value):
            raise ValueError(expected(f"{name} of {type(kernel).__name__}", "positive", value))


def check_width(kernel: Any, gamma: Any, length_scale: Any) -> None:
    """Refuse both widths at once, and widths that are not positive."""
    name = type(kernel).__name__
    if gamma is not None and length_scale is not None:
        raise ValueError(expected(name, "given gamma or length_scale, not both", kernel))
    several = isinstance(length_scale, tuple)
    values = (gamma, *length_scale) if several else (gamma, length_scale)
    for value in values:
        if value is not None and not isinstance(value, str) and not is_positive(value):
            raise ValueError(expected(name, "given a positive gamma or length_scale", kernel))
    if several and (not length_scale or any(isinstance(v, str) for v in length_scale)):
        raise ValueError(expected(name, "given a positive length_scale for every column", kernel))


def as_lengths(length_scale: Any) -> Any:
    """Return a length scale for every column as a tuple, so that kernels can be hashed."""
    if length_scale is None or isinstance(length_scale, str | Real):
        return length_scale
    lengths = np.asarray(length_scale)
    if lengths.ndim == 0:
        return lengths.item()
    if lengths.ndim != 1 or lengths.dtype.kind not in "fiu":
        what = "a positive number, or one for every column"
        raise ValueError(expected("length_scale", what, length_scale))
    return tuple(float(v) for v in lengths)


def number(kernel: Any, value: Any) -> float:
    """Return a parameter that must be one number by now."""
    if isinstance(value, str):
        raise ValueError(
            f"{kernel!r} takes {value!r} from the rows: call resolve(X) first, or fit a model."
        )
    if isinstance(value, tuple):
        what = "one number where a single width is needed"
        raise ValueError(expected(f"length_scale of {type(kernel).__name__}", what, value))
    return float(value)
