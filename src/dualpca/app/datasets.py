"""Data sets of the literature: shipped with the package, from scikit-learn, or from a folder.

Old Faithful, airquality, oil flow, motions and vowels are files of the package (`literature/`;
``docs/data.md`` has their sources and licences). A folder that the environment variable
``DUALPCA_DATA`` names comes before them, ``shared/data`` next to the project's checkout after them.
Only MNIST is downloaded, from OpenML.
"""

from __future__ import annotations

import csv
import gzip
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualpca.errors import DualPCAError, expected

__all__ = [
    "Images",
    "Labelled",
    "MissingDataError",
    "Sequences",
    "Table",
    "airquality",
    "basic_motions",
    "digits",
    "faithful",
    "find",
    "folders",
    "handwriting",
    "iris",
    "japanese_vowels",
    "mnist",
    "oil_flow",
    "using",
]

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

VARIABLE = "DUALPCA_DATA"
"""Environment variable that names the folder with the files."""

OPENML = "openml"
"""In place of a folder: download MNIST for figures, too."""

SHIPPED = Path(__file__).with_name("literature")
"""Files of the package."""

MOTIONS = ("badminton", "running", "standing", "walking")

FLOWS = ("flow 1", "flow 2", "flow 3")
"""Stratified, annular and homogeneous; the source does not say which is which."""
SPLITS = {"train": "", "valid": "_valid", "test": "_test"}


class MissingDataError(DualPCAError, OSError):
    """A data set was not found in any folder, and could not be downloaded."""


class Labelled(NamedTuple):
    """Rows with the class of each, and the names of classes and features.

    Parameters
    ----------
    X : array of shape (n, d)
    y : array of int, shape (n,)
        Index into `classes`.
    classes : tuple of str
    features : tuple of str, default=()
        Names of the columns.

    Examples
    --------
    >>> from dualpca import datasets
    >>> datasets.iris().classes
    ('setosa', 'versicolor', 'virginica')
    """

    X: Floats  # (n, d)
    y: Labels  # (n,)
    classes: tuple[str, ...]
    features: tuple[str, ...] = ()


class Images(NamedTuple):
    """Square images of handwritten digits, pixels from 0 to 1, and where they come from.

    Parameters
    ----------
    X : array of shape (n, side²)
        Grey levels from 0 to 1.
    y : array of int, shape (n,)
        The digit written.
    side : int
        Height and width of an image in pixels.
    source : str
        Where the images come from.

    Examples
    --------
    >>> from dualpca import datasets
    >>> images = datasets.handwriting()
    >>> images.X.shape[1] == images.side**2
    True
    """

    X: Floats  # (n, side²)
    y: Labels  # (n,)
    side: int
    source: str  # 'MNIST (…)', or what stands in for it

    @property
    def is_mnist(self) -> bool:
        """Whether these are images of MNIST."""
        return self.source.startswith("MNIST")


class Table(NamedTuple):
    """Rows with NaN for missing values, and the names of the columns.

    Parameters
    ----------
    X : array of shape (n, d)
    columns : tuple of str

    Examples
    --------
    >>> from dualpca import datasets
    >>> datasets.airquality().columns
    ('Ozone', 'Solar.R', 'Wind', 'Temp', 'Month', 'Day')
    """

    X: Floats  # (n, d)
    columns: tuple[str, ...]


class Sequences(NamedTuple):
    """Frames of all sequences one after another, the length and the class of each sequence.

    Parameters
    ----------
    X : array of shape (sum of lengths, d)
    lengths : array of int, shape (s,)
    y : array of int, shape (s,)
        Class of every sequence, an index into `classes`.
    is_test : array of bool, shape (s,)
    classes : tuple of str

    Examples
    --------
    >>> from dualpca import datasets
    >>> datasets.basic_motions().lengths.shape
    (80,)
    """

    X: Floats  # (sum of lengths, d)
    lengths: Labels  # (s,)
    y: Labels  # (s,)
    is_test: NDArray[np.bool_]  # (s,)
    classes: tuple[str, ...]


def folders() -> list[Path]:
    """Return the folders in which files are looked for, whether they exist or not.

    Returns
    -------
    folders : list of Path

    Examples
    --------
    >>> all(isinstance(folder, Path) for folder in folders())
    True
    """
    named = os.environ.get(VARIABLE)
    checkout = Path(__file__).resolve().parents[3]
    beside = checkout.parent / "shared" / "data"
    return (
        ([Path(named)] if named and named != OPENML else [])
        + [SHIPPED]
        + ([beside] if (checkout / "pyproject.toml").is_file() else [])
    )


@contextmanager
def using(data: str | Path | None) -> Iterator[None]:
    """Look for files in this folder first; 'openml' downloads MNIST; None changes nothing.

    Parameters
    ----------
    data : path, 'openml' or None

    Returns
    -------
    context : context manager

    Examples
    --------
    >>> with using("."):
    ...     folders()[0]
    PosixPath('.')
    """
    if data is not None and data != OPENML and not Path(data).is_dir():
        raise MissingDataError(f"{data} is not a folder: name one with mnist10k.npz, or 'openml'.")
    before = os.environ.get(VARIABLE)
    if data is not None:
        os.environ[VARIABLE] = str(data)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before


def find(*names: str) -> Path | None:
    """Return the path of the first of these files in the first folder that has one, or None.

    Parameters
    ----------
    *names : str
        Names of files, the preferred one first.

    Returns
    -------
    path : Path or None

    Examples
    --------
    >>> from dualpca import datasets
    >>> datasets.find("faithful.csv").name
    'faithful.csv'
    """
    places = (folder / name for folder in folders() for name in names)
    return next((place for place in places if place.is_file()), None)


def iris() -> Labelled:
    """Return Fisher's iris: 150 flowers, 4 lengths in cm, 3 species (scikit-learn's copy).

    Returns
    -------
    data : Labelled

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

    Returns
    -------
    data : Labelled

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

    Returns
    -------
    data : Labelled

    Examples
    --------
    >>> from dualpca import datasets
    >>> datasets.mnist().X.shape[1]  # doctest: +SKIP
    784
    """
    path = find("mnist10k.npz")
    if path is not None:
        with np.load(path, allow_pickle=False) as data:
            images, labels = data["images"], data["labels"]
    else:
        images, labels = _openml("mnist_784", "mnist10k.npz")
    return Labelled(_floats(images), np.asarray(labels, dtype=np.int64), tuple("0123456789"))


def handwriting() -> Images:
    """Return MNIST if a folder has it or `DUALPCA_DATA` is 'openml', else scikit-learn's digits.

    Returns
    -------
    data : Images

    Examples
    --------
    >>> found = handwriting()
    >>> found.X.shape[1] == found.side**2
    True
    """
    path = find("mnist10k.npz")
    if path is None and os.environ.get(VARIABLE) != OPENML:
        X, y, _, _ = digits()
        return Images(X / 16, y, 8, "scikit-learn's digits (1797 images, 8 × 8), not MNIST")
    return _mnist_images(path)


@lru_cache(maxsize=1)
def _mnist_images(path: Path | None) -> Images:
    """Return 10,000 images of MNIST, kept for the next figure."""
    X, y, _, _ = mnist()
    if path is None:
        rows = np.random.default_rng(0).permutation(len(X))[:10_000]
        X, y = X[rows], y[rows]
    return Images(X / 255, y, 28, f"MNIST ({len(X):,} images, 28 × 28)")


def oil_flow(split: str = "train") -> Labelled:
    """Return oil flow: 1000 rows of 12 gamma densitometry readings, 3 configurations.

    Parameters
    ----------
    split : {'train', 'valid', 'test'}, default='train'
        The package has the training rows only; the others need ``oil_flow.npz`` in a folder.

    Returns
    -------
    data : Labelled

    Examples
    --------
    >>> oil_flow().X.shape
    (1000, 12)
    """
    if split not in SPLITS:
        raise ValueError(expected("split", f"one of {sorted(SPLITS)}", split))
    path = _file("oil_flow.npz", *(["oil_flow.csv.gz"] if split == "train" else []))
    if path.suffix == ".gz":
        X, [y] = _zipped(path, 12)
        return Labelled(_floats(np.float32(X)), y, FLOWS)  # the digits that others have
    with np.load(path, allow_pickle=False) as data:
        X, y = data["X" + SPLITS[split]], data["y" + SPLITS[split]]
    return Labelled(_floats(X), np.asarray(y, dtype=np.int64), FLOWS)


def faithful() -> Table:
    """Return Old Faithful: 272 eruptions, their length and the wait for the next, in minutes.

    Returns
    -------
    data : Table

    Examples
    --------
    >>> from dualpca import datasets
    >>> datasets.faithful().X.shape
    (272, 2)
    """
    return _csv("faithful.csv", ("eruption", "waiting"))


def airquality() -> Table:
    """Return New York's air, May to September 1973: 153 days, 44 entries missing.

    Returns
    -------
    data : Table

    Examples
    --------
    >>> from dualpca import datasets
    >>> datasets.airquality().X.shape
    (153, 6)
    """
    return _csv("airquality.csv")


def japanese_vowels() -> Sequences:
    """Return 640 utterances of nine speakers, 12 cepstrum coefficients per frame.

    Returns
    -------
    data : Sequences

    Examples
    --------
    >>> from dualpca import datasets
    >>> data = datasets.japanese_vowels()
    >>> len(data.lengths), data.X.shape[1]
    (640, 12)
    """
    names = tuple(f"speaker {k}" for k in range(1, 10))
    path = _file("japanese_vowels.npz", "japanese_vowels.csv.gz")
    if path.suffix == ".gz":
        return _sequences(path, 12, names)
    with np.load(path, allow_pickle=False) as data:
        lengths, speaker = (np.asarray(data[k], dtype=np.int64) for k in ("lengths", "speaker"))
        frames, is_test = _floats(data["frames"]), np.asarray(data["is_test"], dtype=bool)
    return Sequences(frames, lengths, speaker - 1, is_test, names)


def basic_motions() -> Sequences:
    """Return 80 recordings of 10 seconds, 6 channels of a watch, in 4 activities.

    Returns
    -------
    data : Sequences

    Examples
    --------
    >>> from dualpca import datasets
    >>> data = datasets.basic_motions()
    >>> len(data.lengths), data.X.shape[1]
    (80, 6)
    """
    path = _file("basic_motions.npz", "basic_motions.csv.gz")
    if path.suffix == ".gz":
        return _sequences(path, 6, MOTIONS)
    with np.load(path, allow_pickle=False) as data:
        X, y, is_test = _floats(data["X"]), np.asarray(data["y"], dtype=np.int64), data["is_test"]
    lengths = np.full(len(X), X.shape[1], dtype=np.int64)
    return Sequences(
        X.reshape(-1, X.shape[2]), lengths, y, np.asarray(is_test, dtype=bool), MOTIONS
    )


def _sequences(path: Path, columns: int, classes: tuple[str, ...]) -> Sequences:
    """Return sequences from a file whose last columns are sequence, class and 1 for a test."""
    X, (number, y, is_test) = _zipped(path, columns)
    _, first, lengths = np.unique(number, return_index=True, return_counts=True)
    return Sequences(X, lengths, y[first], is_test[first] == 1, classes)


def _zipped(path: Path, columns: int) -> tuple[Floats, list[Labels]]:
    """Return the first columns of a zipped CSV file, and the others as whole numbers."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        table = np.loadtxt(file, delimiter=",", skiprows=1)
    return table[:, :columns], list(table[:, columns:].T.astype(np.int64))


def _floats(x: Any) -> Floats:
    return np.asarray(x, dtype=np.float64)


def _csv(name: str, columns: tuple[str, ...] | None = None) -> Table:
    """Return a CSV file of numbers; an empty field is NaN."""
    with _file(name).open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    X = np.array([[float(cell) if cell else np.nan for cell in row] for row in rows])
    return Table(X, tuple(head) if columns is None else columns)


def _file(*names: str) -> Path:
    """Return the path of a file, or raise an error that says where it was looked for."""
    path = find(*names)
    if path is None:
        raise MissingDataError(
            _looked_for(names[0]) + "Neither scikit-learn nor the package has it. " + _remedy()
        )
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
