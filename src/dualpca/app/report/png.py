"""Small pictures as PNG, straight from arrays."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

# From Crameri's (2018) "vik": blue below, white at zero, red above, apart for any colour vision.
LOW, MIDDLE, HIGH = np.array([[0, 78, 148], [244, 240, 236], [160, 52, 8]], dtype=np.float64)
HOLE = (255, 170, 0)
"""Where a pixel is missing."""


def encode(pixels: Bytes) -> bytes:
    """Return RGB pixels (h, w, 3) as a PNG file.

    Examples
    --------
    >>> encode(np.zeros((2, 3, 3), dtype=np.uint8))[1:4]
    b'PNG'
    """
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def grey(image: Floats, low: float, high: float) -> Bytes:
    """Return an image as ink on paper: `low` is white, `high` black, missing pixels orange."""
    share = np.clip((image - low) / ((high - low) or 1.0), 0, 1)
    ink = 255 * (1 - np.nan_to_num(share))
    pixels = np.repeat(ink[..., None], 3, axis=-1)
    pixels[np.isnan(image)] = HOLE
    return pixels.round().astype(np.uint8)


def signed(image: Floats, largest: float) -> Bytes:
    """Return an image as blue (negative), white (zero) and red (positive)."""
    share = np.clip(image / (largest or 1.0), -1, 1)[..., None]
    ends = np.where(share < 0, LOW, HIGH)
    pixels: Floats = MIDDLE + np.abs(np.nan_to_num(share)) * (ends - MIDDLE)
    pixels[np.isnan(image)] = HOLE
    return pixels.round().astype(np.uint8)
