"""A table in parts, whose statistics add: what larger-than-memory and distributed data share.

A model that needs only sums over rows need not see the rows at once. `Parts` is such a table: it
can be asked for its first rows and for the sum of a statistic over all of them, and nothing else.
What this process reads itself it reads one part ahead of the computing; files, batches and Dask's
collections have their own modules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dualpca.errors import NonFiniteError, expected
from dualpca.frames import refuse_masked, refuse_sparse
from dualpca.read_ahead import ahead

Host = np.ndarray[Any, Any]
Statistic = TypeVar("Statistic")


class Part(NamedTuple):
    """Some rows, their number among the parts, and the row they begin at (−1: not known)."""

    rows: Host  # (b, d)
    number: int
    first: int
    weights: Host | None = None  # (b,)


class Summable(ABC):
    """Rows over which statistics can be added up, and nothing else: d features, `n` if counted.

    Parameters
    ----------
    d : int
    dtype : NumPy dtype
        float32 or float64: what results are given in.
    n : int, optional
    names : list of str, optional
    """

    def __init__(
        self, d: int, dtype: Any, n: int | None = None, names: list[str] | None = None
    ) -> None:
        self.d, self.n, self.names = d, n, names
        self.dtype = np.dtype(np.float32 if np.dtype(dtype) == np.float32 else np.float64)

    @property
    def like(self) -> Host:
        """An empty table of the dtype that results are given in."""
        return np.empty((0, self.d), dtype=self.dtype)

    @abstractmethod
    def reduce(
        self, of: Callable[..., Any], plus: Callable[[Statistic, Statistic], Statistic]
    ) -> Statistic:
        """Return the sum of `of(rows)` over all parts; `of` may be sent to other machines.

        Where `of` has an attribute `numbered`, it is called with the part's number too; where
        rows have weights, with `weights=` (b,). None says that a part has nothing to add.
        """

    def sizes(self) -> dict[int, int]:
        """Return the number of rows of every part, under its number; one pass.

        Examples
        --------
        >>> from dualpca.blocks import Blocks
        >>> Blocks(np.zeros((5, 2)), part_rows=3).sizes()
        {0: 3, 1: 2}
        """
        return dict(sorted(self.reduce(_Size(), lambda a, b: a | b).items()))


class _Size:
    """The number of rows of a part, under its number."""

    numbered = True

    def __call__(self, rows: Host, number: int, weights: Host | None = None) -> dict[int, int]:
        return {number: len(rows)}


class Parts(Summable):
    """A table in parts, as files, iterators and clusters hold one."""

    route = "parts"
    """How it is read, in words, for `verbose`."""

    @abstractmethod
    def weighing(self, weights: Host) -> Parts:
        """Return the same rows with weights, (n,), which every statistic is then given."""

    @abstractmethod
    def map(self, of: Callable[[Host], Host], width: int | None, dtype: Any) -> Any:
        """Return the rows that `of` makes of rows, part by part, when they are asked for.

        `width` is their number of columns, None for one number a row.
        """

    @abstractmethod
    def head(self, rows: int) -> list[Part]:
        """Return the leading parts, as many as hold `rows` rows, or all."""

    def sample(self, rows: int, seed: int) -> Host:
        """Return `rows` rows drawn without replacement, in their order; all if there are fewer.

        One pass. Every row draws a number; those with the smallest are kept, so that the sample
        of all rows is made of the samples of the parts.

        Examples
        --------
        >>> from dualpca.blocks import Blocks
        >>> Blocks(np.arange(20.0).reshape(10, 2)).sample(3, seed=0).shape
        (3, 2)
        """
        drawn = self.reduce(_Draw(rows, seed), _merge_draws(rows))
        order = np.lexsort((drawn.row, drawn.part))
        return drawn.rows[order]


class Drawn(NamedTuple):
    """Rows of a sample with the numbers they drew."""

    rows: Host  # (m, d)
    lot: Host  # (m,)
    part: Host  # (m,)
    row: Host  # (m,)


class _Draw:
    """Draw a sample from one part."""

    numbered = True

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed

    def __call__(self, rows: Host, number: int, weights: Host | None = None) -> Drawn:
        lot = np.random.default_rng([self.seed, number]).random(len(rows))
        kept = np.sort(np.argsort(lot, kind="stable")[: self.size])
        return Drawn(np.array(rows[kept]), lot[kept], np.full(len(kept), number), kept)


def _merge_draws(size: int) -> Callable[[Drawn, Drawn], Drawn]:
    def merge(a: Drawn, b: Drawn) -> Drawn:
        both = Drawn(*(np.concatenate(pair) for pair in zip(a, b, strict=True)))
        kept = np.argsort(both.lot, kind="stable")[:size]
        return Drawn(*(column[kept] for column in both))

    return merge


def apply(of: Callable[..., Statistic], part: Part) -> Statistic | None:
    """Return the statistic of one part, None if it has no rows; errors name the row of the table.

    Examples
    --------
    >>> apply(len, Part(np.zeros((3, 2)), 0, 0))
    3
    """
    if len(part.rows) == 0:
        return None
    number = (part.number,) if getattr(of, "numbered", False) else ()
    weights = {} if part.weights is None else {"weights": counting(part.rows, part.weights)}
    try:
        return of(part.rows, *number, **weights)
    except NonFiniteError as error:
        raise error.moved(part.first, part.number) from None


def counting(rows: Host, weights: Host) -> Host:
    """Return the weights, with 0 for rows that observe nothing: they say nothing.

    Examples
    --------
    >>> counting(np.array([[np.nan, np.nan], [np.nan, 1.0]]), np.array([2.0, 3.0]))
    array([0., 3.])
    """
    blank = np.isnan(rows[:, 0])
    if blank.any():
        blank[blank] = np.isnan(rows[blank]).all(axis=1)
    return np.where(blank, 0.0, weights) if blank.any() else weights


def join(
    plus: Callable[[Statistic, Statistic], Statistic], a: Statistic | None, b: Statistic | None
) -> Statistic | None:
    """Add two statistics, of which one may be of no rows."""
    if a is None or b is None:
        return b if a is None else a
    return plus(a, b)


class LocalParts(Parts):
    """Parts that this process reads itself, one ahead of the one it works on."""

    @abstractmethod
    def parts(self) -> Iterator[Part]:
        """Read all parts, from the first."""

    def passing(self) -> Iterator[Part]:
        """Read all parts for one who keeps none of them: their memory may be used again."""
        return self.parts()

    def reduce(
        self, of: Callable[..., Any], plus: Callable[[Statistic, Statistic], Statistic]
    ) -> Statistic:
        """Return the sum of `of(rows)` over all parts; `of` may keep no rows but copies."""
        total: Statistic | None = None
        count = 0
        for part in ahead(self.passing()):
            total = join(plus, total, apply(of, part))
            count += len(part.rows)
        self._counted(count)
        if total is None:
            raise ValueError(f"Found array with 0 sample(s): {self.route} holds no rows.")
        return total

    def _counted(self, n: int) -> None:
        """Keep the number of rows of a pass; refuse another one than that of the pass before."""
        if self.n is not None and n != self.n:
            what = f"a table of the same rows in every pass, {self.n}"
            remedy = "A callable must return a fresh iterator; for other rows make other Batches."
            raise ValueError(expected("X", what, n, remedy))
        self.n = n

    def weighing(self, weights: Host) -> Parts:
        """Return the same rows with weights, (n,)."""
        return Weighted(self, weights)

    def head(self, rows: int) -> list[Part]:
        """Return the leading parts, as many as hold `rows` rows, or all."""
        found: list[Part] = []
        for part in self.parts():
            found.append(part)
            if sum(len(one.rows) for one in found) >= rows:
                break
        return [part for part in found if len(part.rows)]

    def map(self, of: Callable[[Host], Host], width: int | None, dtype: Any) -> Any:
        """Return the results as a table in parts, `dualpca.Batches`, computed when it is read."""
        from dualpca.batches import Batches

        def results() -> Iterator[Host]:
            for part in ahead(self.parts()):
                found = apply(of, part)
                if found is not None:
                    yield found

        return Batches(results)


class Weighted(LocalParts):
    """The rows of another table, each with a weight.

    Examples
    --------
    >>> from dualpca.blocks import Blocks
    >>> weighted = Blocks(np.ones((3, 1)), part_rows=2).weighing(np.array([1.0, 2.0, 3.0]))
    >>> weighted.reduce(lambda rows, weights: float(weights @ rows[:, 0]), float.__add__)
    6.0
    """

    def __init__(self, table: LocalParts, weights: Host) -> None:
        super().__init__(table.d, table.dtype, table.n, table.names)
        self.table, self.weights, self.route = table, weights, table.route

    def parts(self) -> Iterator[Part]:
        """Read all parts, from the first."""
        return self._beside(self.table.parts())

    def passing(self) -> Iterator[Part]:
        """Read all parts for one who keeps none of them."""
        return self._beside(self.table.passing())

    def _beside(self, parts: Iterator[Part]) -> Iterator[Part]:
        w, row = self.weights, 0
        for part in parts:
            row = part.first + len(part.rows)
            if row > len(w):
                raise ValueError(expected("sample_weight", f"one a row, {row} or more", w.shape))
            yield part._replace(weights=w[part.first : row])
        if row != len(w):
            raise ValueError(expected("sample_weight", f"one a row, {row}", w.shape))


def as_rows(rows: Any, d: int | None, number: int) -> Host:
    """Return rows as a two-dimensional float array of d columns, or say what is wrong with them.

    Examples
    --------
    >>> as_rows(np.array([[1, 2]]), 2, 0)
    array([[1., 2.]])
    """
    refuse_masked(rows)
    refuse_sparse(rows)
    table = np.asarray(rows)
    if table.ndim != 2:
        raise ValueError(expected(f"part {number}", "a 2-dimensional table", table.shape))
    if d is not None and table.shape[1] != d:
        what = f"a table of {d} columns, as the first part"
        raise ValueError(expected(f"part {number}", what, table.shape))
    if table.dtype.kind not in "fiub":
        raise ValueError(expected(f"the dtype of part {number}", "a real number's", table.dtype))
    wanted = table.dtype if table.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    return table if table.dtype.isnative and table.dtype == wanted else table.astype(wanted)
