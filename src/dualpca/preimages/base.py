"""What every pre-image method is: `prepare` once, `find` for many rows, an honest distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.kernels import Kernel, Linear, Scaled
from dualpca.preimages.span import Span, Target

PREIMAGES: dict[str, type[Method]] = {}

REACH = 2.0
"""How far from the centre a pre-image may lie, in distances of the furthest training point."""


class PreImage(NamedTuple):
    """Points z, how far φ(z) is from what it stands for, and the iterations that took."""

    points: Array  # (m, d)
    distance: Array  # (m,), ‖φ(z) − P‖
    iterations: Array  # (m,), 0 for closed forms


@dataclass(frozen=True)
class Method:
    """A way from P(y) back to inputs: z with φ(z) close to P(y).

    Subclasses define `_find` for a block of rows; a class attribute `name` registers them. With
    a linear kernel every method returns the exact answer z = Σ_i γ_i x_i, mean included.
    """

    name: ClassVar[str] = ""
    needs: ClassVar[str] = "any kernel"

    def __init_subclass__(cls) -> None:
        """Register the method under its name."""
        if cls.name:
            PREIMAGES[cls.name] = cls

    def suits(self, kernel: Kernel) -> bool:
        """Tell whether this method can be used with a kernel."""
        return True

    def prepare(self, span: Span) -> Method:
        """Return this method with all done that does not depend on the rows."""
        return self

    def find(self, span: Span, Y: Array, start: Array | None = None) -> PreImage:
        """Return pre-images of P(y) for all rows of Y.

        Parameters
        ----------
        span : Span
        Y : array of shape (m, q)
            Latent coordinates.
        start : array of shape (m, d), optional
            Points to start from, such as the noisy rows; closed forms have no use for them.
        """
        Y = span.checked(Y)
        start = _checked_start(span, Y, start)
        if not (is_linear(span.kernel) or self.suits(span.kernel)):
            name = f"the kernel for pre-images by {self.name!r}"
            remedy = "preimage='auto' takes the methods that suit it."
            raise ValueError(expected(name, self.needs, span.kernel, remedy))
        return _in_blocks(self.prepare(span), span, Y, start)

    def block(self, target: Target, start: Array | None) -> PreImage:
        """Return the pre-images of one block of rows."""
        if is_linear(target.span.kernel):
            Z, iterations = target.weights @ target.span.points, None
        else:
            Z, iterations = self._find(target, start)
            Z = _within_reach(target, Z)
            Z = target.span.inside(Z)
        counts = np.zeros(int(Z.shape[0]), dtype=np.int64) if iterations is None else iterations
        xp, device = _array.namespace(Z), _array.device_of(Z)
        return PreImage(Z, target.distance(Z), xp.asarray(counts, device=device))

    def _find(self, target: Target, start: Array | None) -> tuple[Array, np.ndarray | None]:
        """Return the points (b, d) and the iterations of each; None for closed forms."""
        raise TypeError(expected("method", "a subclass that defines _find", type(self).__name__))


def _within_reach(target: Target, Z: Array) -> Array:
    """Return points, with the nearest training point for those that ran away.

    A kernel of the distance vanishes far from all points. Where P has no positive overlap with
    any of them, nothing is closer to it than that nowhere, which is no answer.
    """
    span = target.span
    if not span.kernel.invariant:
        return Z
    xp = _array.namespace(Z)
    reach = REACH * float(xp.max(xp.linalg.vector_norm(span.points - span.centre, axis=1)))
    far = _array.to_numpy(xp.linalg.vector_norm(Z - span.centre, axis=1) > reach)
    rows = np.flatnonzero(far)
    if rows.size == 0:
        return Z
    nearest = xp.argmin(span.gaps(_array.take(target.Y, rows)), axis=1)
    return _array.replaced(Z, rows, _array.take(span.points, nearest))


def is_linear(kernel: Kernel) -> bool:
    """Tell whether φ(x) is x up to a factor."""
    if isinstance(kernel, Scaled):
        return is_linear(kernel.kernel)
    return isinstance(kernel, Linear)


def better(one: PreImage, other: PreImage) -> PreImage:
    """Return row by row the pre-image with the smaller distance; the first where they tie."""
    xp = _array.namespace(one.points)
    wins = other.distance < one.distance
    return PreImage(
        xp.where(wins[:, None], other.points, one.points),
        xp.where(wins, other.distance, one.distance),
        xp.where(wins, other.iterations, one.iterations),
    )


def _checked_start(span: Span, Y: Array, start: Array | None) -> Array | None:
    """Return starting points in float64, of the right shape and finite."""
    if start is None:
        return None
    shape = (int(Y.shape[0]), int(span.points.shape[1]))
    if tuple(start.shape) != shape:
        raise ValueError(expected("start", f"of shape {shape}", tuple(start.shape)))
    start, xp = _array.working(start), _array.namespace(start)
    if not bool(xp.all(xp.isfinite(start))):
        raise ValueError(expected("start", "finite", "NaN or infinity"))
    return span.inside(start)


def _in_blocks(method: Method, span: Span, Y: Array, start: Array | None) -> PreImage:
    """Apply a method to blocks of rows, side by side where there are many."""
    for name in ("gram", "against", "norms", "spread", "centre", "floor"):
        getattr(span, name)  # computed once, before threads share it

    def work(cut: list[slice]) -> list[PreImage]:
        return [
            method.block(Target.of(span, Y[rows, :]), None if start is None else start[rows, :])
            for rows in cut
        ]

    cut = _array.slices(int(Y.shape[0]), _array.block_rows(span.size, Y))
    parts = [p for run in _array.spread(work, cut, Y) for p in run]
    if not parts:
        return _nothing(span)
    return PreImage(
        *(_array.namespace(Y).concat(list(c), axis=0) for c in zip(*parts, strict=True))
    )


def _nothing(span: Span) -> PreImage:
    """Return the pre-images of no rows."""
    xp, device = _array.namespace(span.points), _array.device_of(span.points)
    counts = xp.zeros((0,), dtype=xp.int64, device=device)
    return PreImage(span.points[:0, :], span.base[:0], counts)
