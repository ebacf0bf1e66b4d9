"""Data sets of the literature: from a folder of files, or from scikit-learn if it has them.

Files are looked for in the folder that the environment variable ``DUALPCA_DATA`` names, then in
``shared/data`` next to the project's checkout. Only MNIST is downloaded, from OpenML, if its file
is in neither.
"""

from __future__ import annotations

import csv
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualpca.errors import DualPCAError, expected

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

VARIABLE = "DUALPCA_DATA"
"""Environment variable that names the folder with the files."""

FLOWS = ("flow 1", "flow 2", "flow 3")
"""Stratified, annular and homogeneous; the source does not say which is which."""
SPLITS = {"train": "", "valid": "_valid", "test": "_test"}


class MissingDataError(DualPCAError, OSError):
    """A data set was not found in any folder, and could not be downloaded."""


class Labelled(NamedTuple):
    """Rows, the class of each (an index into `classes`), and the names of features."""

    X: Floats  # (n, d)
    y: Labels  # (n,)
    classes: tuple[str, ...]
    features: tuple[str, ...] = ()


class Table(NamedTuple):
    """Rows with NaN for missing values, and the names of the columns."""

    X: Floats  # (n, d)
    columns: tuple[str, ...]


class Sequences(NamedTuple):
    """Frames of all sequences one after another, the length and the class of each sequence."""

    X: Floats  # (sum of lengths, d)
    lengths: Labels  # (s,)
    y: Labels  # (s,)
    is_test: NDArray[np.bool_]  # (s,)
    classes: tuple[str, ...]


def folders() -> list[Path]:
    """Return the folders in which files are looked for, whether they exist or not.

    Examples
    --------
    >>> all(isinstance(folder, Path) for folder in folders())
    True
    """
    named = os.environ.get(VARIABLE)
    checkout = Path(__file__).resolve().parents[3]
    beside = checkout.parent / "shared" / "data"
    return ([Path(named)] if named else []) + (
        [beside] if (checkout / "pyproject.toml").is_file() else []
    )


def find(name: str) -> Path | None:
    """Return the path of a file, or None if no folder has it."""
    return next((folder / name for folder in folders() if (folder / name).is_file()), None)


def iris() -> Labelled:
    """Return Fisher's iris: 150 flowers, 4 lengths in cm, 3 species (scikit-learn's copy).

    Examples
    --------
    >>> iris().X.shape, iris().classes
    ((150, 4), ('setosa', 'versicolor', 'virginica'))
    """
    from sklearn.datasets import load_iris

    data = load_iris()
    names = tuple(name.removesuffix(" (cm)") for name in data.feature_names)
    return Labelled(
        np.array(data.data), np.array(data.target), tuple(map(str, data.target_names)), names
    )


def digits() -> Labelled:
    """Return scikit-learn's digits: 1797 images of 8 × 8 pixels from 0 to 16.

    Examples
    --------
    >>> digits().X.shape
    (1797, 64)
    """
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return Labelled(np.array(X), np.array(y), tuple("0123456789"))


def mnist() -> Labelled:
    """Return MNIST's images of 28 × 28 pixels, grey levels 0–255, in the order of the source.

    10,000 of them from ``mnist10k.npz``; otherwise all 70,000 from OpenML.
    """
    path = find("mnist10k.npz")
    if path is not None:
        with np.load(path, allow_pickle=False) as data:
            images, labels = data["images"], data["labels"]
    else:
        images, labels = _openml("mnist_784", "mnist10k.npz")
    return Labelled(_floats(images), np.asarray(labels, dtype=np.int64), tuple("0123456789"))


def oil_flow(split: str = "train") -> Labelled:
    """Return oil flow: 1000 rows of 12 gamma densitometry readings, 3 configurations.

    Parameters
    ----------
    split : {'train', 'valid', 'test'}
    """
    if split not in SPLITS:
        raise ValueError(expected("split", f"one of {sorted(SPLITS)}", split))
    with np.load(_file("oil_flow.npz"), allow_pickle=False) as data:
        X, y = data["X" + SPLITS[split]], data["y" + SPLITS[split]]
    return Labelled(_floats(X), np.asarray(y, dtype=np.int64), FLOWS)


def faithful() -> Table:
    """Return Old Faithful: 272 eruptions, their length and the wait for the next, in minutes."""
    return _csv("faithful.csv", ("eruption", "waiting"))


def airquality() -> Table:
    """Return New York's air, May to September 1973: 153 days, 44 entries missing."""
    return _csv("airquality.csv")


def japanese_vowels() -> Sequences:
    """Return 640 utterances of nine speakers, 12 cepstrum coefficients per frame."""
    with np.load(_file("japanese_vowels.npz"), allow_pickle=False) as data:
        lengths, speaker = (np.asarray(data[k], dtype=np.int64) for k in ("lengths", "speaker"))
        frames, is_test = _floats(data["frames"]), np.asarray(data["is_test"], dtype=bool)
    names = tuple(f"speaker {k}" for k in range(1, int(speaker.max()) + 1))
    return Sequences(frames, lengths, speaker - 1, is_test, names)


def basic_motions() -> Sequences:
    """Return 80 recordings of 10 seconds, 6 channels of a watch, in 4 activities."""
    with np.load(_file("basic_motions.npz"), allow_pickle=False) as data:
        X, y, is_test = _floats(data["X"]), np.asarray(data["y"], dtype=np.int64), data["is_test"]
        names = tuple(str(name).lower() for name in data["classes"])
    lengths = np.full(len(X), X.shape[1], dtype=np.int64)
    return Sequences(X.reshape(-1, X.shape[2]), lengths, y, np.asarray(is_test, dtype=bool), names)


def _floats(x: Any) -> Floats:
    return np.asarray(x, dtype=np.float64)


def _csv(name: str, columns: tuple[str, ...] | None = None) -> Table:
    """Return a CSV file of numbers; an empty field is NaN."""
    with _file(name).open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    X = np.array([[float(cell) if cell else np.nan for cell in row] for row in rows])
    return Table(X, tuple(head) if columns is None else columns)


def _file(name: str) -> Path:
    """Return the path of a file, or raise an error that says where it was looked for."""
    path = find(name)
    if path is None:
        raise MissingDataError(_looked_for(name) + "scikit-learn has no copy of it. " + _remedy())
    return path


def _openml(dataset: str, name: str) -> tuple[Any, Any]:
    """Return a data set from OpenML, which scikit-learn keeps for the next time."""
    from sklearn.datasets import fetch_openml

    how: Any = {"version": 1, "return_X_y": True, "as_frame": False, "n_retries": 1}
    try:
        with warnings.catch_warnings():  # on retries: the error says enough
            warnings.simplefilter("ignore")
            return tuple(fetch_openml(dataset, **how))
    except (OSError, ImportError, ValueError) as error:
        reason = error or type(error).__name__
        why = f"{dataset} could not be downloaded from OpenML either ({reason}). "
        raise MissingDataError(_looked_for(name) + why + _remedy()) from error


def _looked_for(name: str) -> str:
    where = " or ".join(str(folder) for folder in folders()) or "any folder"
    return f"{name} is not in {where}. "


def _remedy() -> str:
    return f"Set {VARIABLE} to a folder that holds the file."
