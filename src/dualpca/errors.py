"""Every error and warning that only this library raises; messages name the remedy."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class DualPCAError(Exception):
    """Base class of the errors that only this library raises."""


class ScaleError(DualPCAError, ValueError):
    """The variance of the data cannot be held in floating point."""


class NonFiniteError(DualPCAError, ValueError):
    """The data hold NaN or infinity where only finite numbers can be used."""

    place: tuple[str, str, int, int] | None = None

    @classmethod
    def at(cls, name: str, what: str, row: int, column: int, where: str = "") -> NonFiniteError:
        """Return the error that names the first entry that is not finite.

        Parameters
        ----------
        name : str
            Name of the array.
        what : str
            'NaN' or 'infinity'.
        row : int
        column : int
        where : str, default=''
            Words after the row's number.

        Returns
        -------
        error : NonFiniteError

        Examples
        --------
        >>> from dualpca.errors import NonFiniteError
        >>> NonFiniteError.at("X", "NaN", 3, 1).place
        ('X', 'NaN', 3, 1)
        """
        error = cls(
            f"Input {name} contains {what}, first at row {row}{where}, column {column}. "
            "Every entry must be a finite number here; for missing values (NaN) use PPCA, "
            "which accepts them, or Imputer, which fills them."
        )
        error.place = (name, what, row, column)
        return error

    def moved(self, first: int, part: int) -> NonFiniteError:
        """Return the error of a chunk as an error of the whole table.

        If that is not known (−1), the chunk is named too.

        Parameters
        ----------
        first : int
            Index of the chunk's first row in the table, −1 if unknown.
        part : int
            Number of the chunk.

        Returns
        -------
        error : NonFiniteError

        Examples
        --------
        >>> from dualpca.errors import NonFiniteError
        >>> NonFiniteError.at("X", "NaN", 3, 1).moved(100, 2).place
        ('X', 'NaN', 103, 1)
        """
        if self.place is None:
            return self
        name, what, row, column = self.place
        if first < 0:
            return type(self).at(name, what, row, column, f" of part {part}")
        return type(self).at(name, what, first + row, column)


class DegenerateError(DualPCAError, ValueError):
    """The fitted Gaussian has no density: some direction has variance zero."""


class EmptyColumnError(DegenerateError):
    """No row observes some feature.

    Parameters
    ----------
    columns : list of int
    names : sequence of str, default=None
        Names of all features, where the rows came as a frame.
    """

    def __init__(self, columns: Sequence[int], names: Sequence[str] | None = None) -> None:
        self.columns = columns
        shown = ", ".join(str(j) if names is None else repr(str(names[j])) for j in columns[:10])
        more = f" and {len(columns) - 10} more" if len(columns) > 10 else ""
        super().__init__(
            f"no value was observed in column {shown}{more}: nothing can be said of it. "
            "Drop the column, or give rows that observe it."
        )


class BackendError(DualPCAError, ValueError):
    """Arrays of different libraries or devices were mixed."""


class ModelFileError(DualPCAError, ValueError):
    """A model file is damaged, unknown or not one at all, or a model cannot be put into one.

    `why` says what is wrong with a file, without what to do.
    """

    why = ""


class SearchError(DualPCAError, ValueError):
    """No trial of a search could be judged."""


class CheckpointError(DualPCAError, ValueError):
    """A checkpoint is of another fit, or of other data."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written: the fit continues, but cannot be resumed from here."""


class PickleVersionWarning(UserWarning):
    """A pickle was written by another version of the library."""


class SolverWarning(UserWarning):
    """A solver stopped before it reached the accuracy asked for."""


class CopyWarning(UserWarning):
    """Points that should be new are copies of training rows."""


class SelectionWarning(UserWarning):
    """A rule for a number of components or states found nothing above the noise, or no end."""


class ScaleWarning(UserWarning):
    """Columns differ so much in variance that those in large units decide the model alone."""


class NoiseWarning(UserWarning):
    """Columns have noise of different sizes, and the model takes it to be the same in all."""


class SkewWarning(UserWarning):
    """Columns are so skewed that a few values decide what a normal model says of them."""


class StreamWarning(UserWarning):
    """`partial_fit` starts over and forgets the rows of an earlier `fit`."""


class InterruptWarning(UserWarning):
    """A fit or search was interrupted (Ctrl-C): the result is the best one found until then."""


class HeywoodWarning(UserWarning):
    """Factors explain all of a feature: its noise is held at the smallest value allowed."""


class CanonicalWarning(UserWarning):
    """Too few rows: canonical correlations are 1, or a view varies in few directions only."""


class DependenceWarning(UserWarning):
    """Consecutive rows are alike: control limits count fewer rows than there are."""


class MonitorWarning(UserWarning):
    """Phase I of a monitor, or what it went on to learn, is not one ordinary process."""


class CollapseWarning(UserWarning):
    """A component of a mixture shrank on too few rows: it was held, reseeded or dropped.

    Or a node of a tree had too few for its children.
    """


class StateWarning(UserWarning):
    """A state of a hidden Markov model explains no rows."""


class SpectrumWarning(UserWarning):
    """An operator that should be positive semi-definite has negative eigenvalues."""


__all__ = sorted(name for name in dir() if name.endswith(("Error", "Warning")))
"""The public names: all errors and warnings above."""


def expected(name: str, what: str, got: Any, remedy: str = "") -> str:
    """Return the message of an error: what was expected, what was given and what to do."""
    shown = repr(got)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return f"{name} must be {what}, got {shown}." + (f" {remedy}" if remedy else "")


def install(extra: str) -> str:
    """Return how to install an extra, for messages: from a clone, as long as there is no index."""
    return f"run python -m pip install '.[{extra}]' in your clone of dualpca"


# --- Warnings, at the line of the user's own code ------------------------------------------------

BETWEEN = ("dualpca", "sklearn", "joblib", "contextlib")
"""Packages whose calls are between a user's line and ours."""


def warn(message: str, category: type[Warning], *, degenerate: bool = False) -> None:
    """Warn at the line of the user's own code that led here, through any number of calls.

    Of a `degenerate` fit, with what `caused_by` knows of the rows.
    """
    message = " ".join(filter(None, (message, _cause.get()(message) if degenerate else "")))
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


_cause: ContextVar[Callable[[str], str]] = ContextVar("cause", default=lambda message: "")


@contextmanager
def caused_by(words: Callable[[str], str]) -> Iterator[None]:
    """Add a sentence on the rows to what is raised, or warned of, where a fit is degenerate.

    Fits know arrays; what columns are called, the estimator knows. `words` is given the message.

    Examples
    --------
    >>> with caused_by(lambda message: "Column 'age' is constant."):
    ...     raise DegenerateError("there is no density.")
    Traceback (most recent call last):
        ...
    dualpca.errors.DegenerateError: there is no density. Column 'age' is constant.
    """
    token = _cause.set(words)
    try:
        yield
    except DegenerateError as error:
        more = "" if isinstance(error, EmptyColumnError) else words(str(error))
        if not more:
            raise
        raise type(error)(f"{error} {more}") from None
    finally:
        _cause.reset(token)
