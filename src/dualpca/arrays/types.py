"""Shapes and protocols shared by the layers."""

from __future__ import annotations

from typing import Any, TypeAlias

Array: TypeAlias = Any
"""An array of any array-API library. Shapes are given in docstrings: `(n, d)`."""

Namespace: TypeAlias = Any
"""The module that owns an array: `numpy`, `array_api_compat.torch`, ..."""
