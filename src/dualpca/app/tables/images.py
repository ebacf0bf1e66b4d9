"""A folder of images as a table: one row an image, one column a pixel, all of one size."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dualpca.app.tables.dialects import TableError

ENDINGS = (".png", ".jpg", ".jpeg")
NAME = "file"
"""Column of the file names."""
GREY = ("1", "L", "LA", "I", "I;16", "F")


class Images(NamedTuple):
    """The images of a folder, in the order of their names."""

    files: list[Path]
    shape: tuple[int, ...]  # rows, columns and, of colours, 3

    @property
    def names(self) -> list[str]:
        """Return the columns: the file, then pixels row by row."""
        return [NAME, *(f"x{j}" for j in range(int(np.prod(self.shape))))]

    def frames(self, rows: int) -> Iterator[pl.DataFrame]:
        """Yield tables of at most so many images."""
        for k in range(0, len(self.files), rows):
            some = self.files[k : k + rows]
            pixels = np.stack([_pixels(path, self.shape) for path in some])
            frame = pl.DataFrame(pixels.reshape(len(some), -1), schema=self.names[1:], orient="row")
            yield frame.insert_column(0, pl.Series(NAME, [path.name for path in some]))


def found(folder: str | os.PathLike[str]) -> Images:
    """Return the images in a folder; the first one says the size, and whether there are colours."""
    files = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in ENDINGS)
    if not files:
        raise TableError(f"{folder} is a folder without images: expected {', '.join(ENDINGS)}.")
    return Images(files, _pixels(files[0]).shape)


def _pixels(path: Path, shape: tuple[int, ...] | None = None) -> np.ndarray[Any, Any]:
    """Return an image as numbers, grey (h, w) or RGB (h, w, 3)."""
    from PIL import Image

    try:
        with Image.open(path, formats=("PNG", "JPEG")) as image:
            loaded = (
                image
                if image.mode in ("L", "I", "I;16", "F")
                else image.convert("L" if image.mode in GREY else "RGB")
            )
            pixels = np.asarray(loaded, dtype=np.float64)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise TableError(f"{path} is no image that can be read: {error}.") from error
    if shape is not None and pixels.shape != shape:
        raise TableError(
            f"{path} is {_words(pixels.shape)}, the first image of the folder {_words(shape)}: "
            "all must have the same size and colours. Resize them first."
        )
    return pixels


def _words(shape: tuple[int, ...]) -> str:
    colours = "in colour" if len(shape) == 3 else "grey"
    return f"{shape[1]} by {shape[0]} pixels, {colours}"
