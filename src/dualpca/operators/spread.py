"""The kernel over the points, its products shared by several devices or by Dask workers.

Every one of them has all points. K is cut by tiles, so that each is evaluated once and serves
twice, as on one device; where passes are fused, by rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dualpca.arrays import Array, Job, at_once, backend, cached_property, chosen, sent, shown
from dualpca.errors import DualPCAError
from dualpca.kernels import Kernel
from dualpca.operators.dual import Fused, Gram, Tile
from dualpca.operators.fused import FusedPoints, can_fuse

if TYPE_CHECKING:  # needs torch and Triton
    from dualpca.kernels.fused_product import Operand

TILES_PER_SHARE = 2
"""Tiles on either side, for every share: all shares then have equally many tiles."""

Piece = tuple[slice, Array]
"""Some rows of a product, and what is to be added there."""


# --- Shares: what one device or worker multiplies ------------------------------------------------


class TileShare(Gram):
    """The k-th of `count` runs of the tiles of K: products of all shares add up to those with K."""

    def __init__(
        self, X: Array, kernel: Kernel, k: int, count: int, *, single: bool, stored: bool
    ) -> None:
        super().__init__(X, kernel, single=single, stored=stored)
        self.place = (k, count)
        self.tile = max(1, min(self.tile, -(-self.n // (TILES_PER_SHARE * count))))
        every: list[Tile] = self._tiles
        self._tiles = every[len(every) * k // count : len(every) * (k + 1) // count]
        end = max((columns.stop for _, columns in self._tiles), default=0)
        self.rows = slice(0, end)  # tiles are on and above the diagonal

    def in_double(self) -> TileShare:
        """Return the same share with values in float64."""
        if not self.single:
            return self
        return TileShare(self.points, self.kernel, *self.place, single=False, stored=False)

    def piece(self, ask: str, V: Array) -> Piece:
        """Return what the tiles of this share add to the product `ask` with V."""
        return self.rows, getattr(self, ask)(V)[self.rows, :]


class RowShare(Fused):
    """The k-th of `count` runs of rows of K in fused passes: O(n² (d + b) / count)."""

    def __init__(self, fused: FusedPoints, k: int, count: int) -> None:
        super().__init__(fused)
        self.rows = slice(self.n * k // count, self.n * (k + 1) // count)

    @cached_property
    def _own(self) -> tuple[Operand, Operand]:
        """The rows of this share, prepared for coarse and for accurate products."""
        rows = self.points[self.rows, :]
        return self.fused.operand(rows, rough=True), self.fused.operand(rows)

    def piece(self, ask: str, V: Array) -> Piece:
        """Return the rows of the product `ask` with V that are those of this share."""
        rough = self.coarse and ask == "times"
        if self.rows.start == self.rows.stop:
            return self.rows, V[:0, :]
        columns = self.fused.rough if rough else self.fused.accurate
        return self.rows, self.fused.multiply(self._own[0 if rough else 1], columns, V)


class Share:
    """A share of K where it is worked on: made there, when it is first asked for a product.

    Parameters
    ----------
    X : array of shape (n, d)
    k, count : int
        Which share, of how many.
    kernel : Kernel
    device : None, 'auto', 'cpu' or 'cuda'
        Where to work; None is where X is.
    single, stored : bool
        As of `Gram`.
    """

    def __init__(
        self,
        X: Array,
        k: int,
        count: int,
        *,
        kernel: Kernel,
        device: str | None = None,
        single: bool = False,
        stored: bool = False,
    ) -> None:
        self.points, self.place, self.kernel, self.device = X, (k, count), kernel, device
        self.single, self.stored = single, stored

    def __getstate__(self) -> dict[str, Any]:
        """Leave the kernel values behind: another worker evaluates them again."""
        return {name: value for name, value in vars(self).items() if name != "gram"}

    @cached_property
    def gram(self) -> TileShare | RowShare:
        """The share, fused where float32 will do and the GPU can."""
        X, single = self.points, self.single
        if self.device is not None:
            n, d = X.shape
            where = chosen(self.device, Job(int(n), int(d), pairs=True)).device
            X = X if where is None else sent(X, where)
        fused = FusedPoints.where_able(X, self.kernel) if single else None
        if fused is not None:
            return RowShare(fused, *self.place)
        single = single and not can_fuse(X, self.kernel)
        return TileShare(X, self.kernel, *self.place, single=single, stored=self.stored)

    @property
    def precision(self) -> tuple[bool, bool]:
        """Whether values are in float32, and products coarse."""
        return self.gram.single, self.gram.coarse

    def piece(self, ask: str, V: Array) -> Piece:
        """Return what this share adds to the product `ask` with V, where the share works."""
        return self.gram.piece(ask, backend.asarray(V, self.gram.like))


def added(pieces: Sequence[Piece]) -> Piece:
    """Return the sum of pieces, in their order: all rows between the first and the last.

    Examples
    --------
    >>> a, b = (slice(0, 2), np.ones((2, 1))), (slice(1, 3), np.ones((2, 1)))
    >>> added([a, b])[1][:, 0]
    array([1., 2., 1.])
    """
    start, end = min(rows.start for rows, _ in pieces), max(rows.stop for rows, _ in pieces)
    first = pieces[0][1]
    total = backend.asarray(np.zeros((end - start, first.shape[1])), first)
    for rows, part in pieces:
        total[rows.start - start : rows.stop - start, :] += part
    return slice(start, end), total


# --- Who multiplies ------------------------------------------------------------------------------


class KernelShares(Protocol):
    """The shares of one kernel, wherever they are."""

    def each(self, name: str) -> list[Any]:
        """Return an attribute of every share."""

    def summed(self, ask: str, V: Array, add: Callable[[Sequence[Piece]], Piece]) -> Array:
        """Return the sum of the pieces of all shares, (n, b), beside V."""


class Crew(Protocol):
    """Those who share products: devices of this process, or the workers of a cluster."""

    places: int
    """How many memories they have."""
    elsewhere: bool
    """Whether those are of other machines: this one may have little."""

    def shares(self, X: Array, make: Callable[[Array, int, int], Share]) -> KernelShares:
        """Return the shares of a kernel over the points X: `make(points, k, count)`."""


class Devices:
    """Several devices of this process; one that is named twice has two shares.

    Parameters
    ----------
    devices : sequence of torch devices
    """

    elsewhere = False

    def __init__(self, devices: Sequence[Any]) -> None:
        self.devices, self.places = list(devices), len(set(devices))

    def shares(self, X: Array, make: Callable[[Array, int, int], Share]) -> DeviceShares:
        """Return the shares of a kernel over the points, which are copied to every device once."""
        held = {device: sent(X, device) for device in dict.fromkeys(self.devices)}
        count = len(self.devices)
        return DeviceShares([make(held[at], k, count) for k, at in enumerate(self.devices)])


class DeviceShares:
    """The shares of one kernel on devices of this process: a thread for each."""

    def __init__(self, parts: list[Share]) -> None:
        self.parts = parts

    def each(self, name: str) -> list[Any]:
        """Return an attribute of every share."""
        return [getattr(part, name) for part in self.parts]

    def summed(self, ask: str, V: Array, add: Callable[[Sequence[Piece]], Piece]) -> Array:
        """Return the sum of the pieces of all shares, (n, b), beside V."""
        pieces = at_once(lambda part: part.piece(ask, V), self.parts)
        home = backend.is_foreign(V)
        moved = [
            (rows, backend.asarray(Y if home else backend.to_numpy(Y), V)) for rows, Y in pieces
        ]
        return add(moved)[1]


# --- The kernel of them all ----------------------------------------------------------------------


class Spread(Gram):
    """K with products that several devices or workers share; all else is done beside X.

    Parameters
    ----------
    X : array of shape (n, d)
        On the first device, or on the host.
    kernel : Kernel
    crew : Crew
    device : str, optional
        Where every worker of a cluster works.
    limit : float
        Bytes that K may take where it is asked for as one matrix.
    single, stored : bool
        As of `Gram`; every share stores its own tiles.

    Notes
    -----
    A product costs a `count`-th of that of `Gram` on each, a copy of V, (n, b), to each, and one of
    what it adds, at most (n, b), back. Nothing (n, n) is anywhere unless tiles are stored.
    """

    def __init__(
        self,
        X: Array,
        kernel: Kernel,
        crew: Crew,
        device: str | None = None,
        limit: float = math.inf,
        *,
        single: bool = False,
        stored: bool = False,
    ) -> None:
        make = partial(Share, kernel=kernel, device=device, single=single, stored=stored)
        self.shares = crew.shares(X, make)
        found = self.shares.each("precision") if single else [(False, False)]
        coarse = any(rough for _, rough in found)
        single = any(short for short, _ in found)
        super().__init__(X, kernel, single=single, stored=stored and not coarse)
        self.coarse, self.limit = coarse, limit

    def times(self, V: Array) -> Array:
        """Return K V, (n, b), in the precision of the kernel values."""
        return self.shares.summed("times", V, added)

    def times_in_double(self, V: Array) -> Array:
        """Return K V as `Gram` does, or with float32 accuracy where passes are fused."""
        return self.shares.summed("times_in_double", V, added)

    @cached_property
    def _alone(self) -> Fused | None:
        """The kernel with fused products of the device that has X, if it can."""
        fused = FusedPoints.where_able(self.points, self.kernel) if self.coarse else None
        return None if fused is None else Fused(fused)

    def thinned(self, step: int) -> Fused | None:
        """Return the kernel among every `step`-th point, on the device that has X."""
        return None if self._alone is None else self._alone.thinned(step)

    def led(self, step: int, V: Array) -> Array:
        """Return K from every `step`-th point to all, times V, (n, b)."""
        return super().led(step, V) if self._alone is None else self._alone.led(step, V)

    def _source(self, *, keep: bool = True) -> Callable[[Tile], Array]:
        return super()._source(keep=False)  # tiles are kept by the shares

    def whole(self) -> Array:
        """Return K, (n, n), in float64, evaluated beside X; refused beyond the limit."""
        size = 8.0 * self.n**2
        if size > self.limit:
            raise DualPCAError(
                f"so many components need the kernel matrix of {self.n:,} rows in this process, "
                f"{shown(size)}, and memory_limit is {shown(self.limit)}. Give n_components as a "
                "number below a quarter of the rows, or a larger memory_limit."
            )
        return super().whole()
