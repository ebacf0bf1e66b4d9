"""What a kernel model reaches in feature space, and how far a point is from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.kernels import Kernel
from dualpca.preimages.expansion import Expansion


@dataclass(frozen=True, eq=False)
class Span(Expansion):
    """The subspace where items are points x_i and the kernel is known.

    Memory O(block · n) throughout: the Gram matrix is passed over once in blocks of rows.

    Parameters
    ----------
    points : array of shape (n, d)
    kernel : Kernel
        With numbers for parameters (`resolve` done).
    coefficients : array of shape (n, q)
        Column p makes the direction v_p, of unit norm in feature space.
    base : array of shape (n,)
        Weights of the mean, w/Σw; zeros where features are not centred.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
    >>> span.distance(np.array([[0.0]]), np.array([[1.0]]))
    array([0.])
    """

    points: Array  # (n, d)
    kernel: Kernel
    coefficients: Array
    base: Array

    def __post_init__(self) -> None:
        """Check the points too."""
        super().__post_init__()
        X = _array.working(self.points)
        if len(X.shape) != 2 or int(X.shape[0]) != self.size:
            raise ValueError(expected("points", f"of shape ({self.size}, d)", tuple(X.shape)))
        object.__setattr__(self, "points", X)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the one cached value that cannot be pickled."""
        return {k: v for k, v in self.__dict__.items() if k != "against"}

    @cached_property
    def against(self) -> Callable[[Array], Array]:
        """The function z ↦ k(z, x_i)."""
        return self.kernel.against(self.points)

    @cached_property
    def images(self) -> Array:
        """⟨φ(x_i), v_p⟩ and ⟨φ(x_i), mean⟩, from one pass over the kernel."""
        xp = _array.namespace(self.points)
        of, A = self.against, self.generators

        def work(cut: list[slice]) -> list[Array]:
            return [of(self.points[rows, :]) @ A for rows in cut]

        cut = _array.slices(self.size, _array.block_rows(self.size, A))
        return xp.concat([a for part in _array.spread(work, cut, A) for a in part], axis=0)

    @cached_property
    def norms(self) -> Array:
        """k(x_i, x_i)."""
        return self.kernel.diag(self.points)

    @cached_property
    def centre(self) -> Array:
        """The mean of the points themselves, (d,)."""
        return _array.namespace(self.points).mean(self.points, axis=0)

    @cached_property
    def spread(self) -> float:
        """Root mean squared distance of the points from their mean: the scale of steps."""
        xp = _array.namespace(self.points)
        return sqrt(float(xp.sum(xp.var(self.points, axis=0))))

    @cached_property
    def floor(self) -> Array | None:
        """The smallest entries that the kernel takes, −∞ or 0 a column; None where all are −∞."""
        d = int(self.points.shape[1])
        low = np.full(d, -np.inf)
        low[sorted(_nonnegative(self.kernel, tuple(range(d))))] = 0.0
        return None if np.all(low < 0) else _array.asarray(low, self.points)

    def inside(self, Z: Array) -> Array:
        """Return points (b, d) with entries lifted to the floor."""
        if self.floor is None:
            return Z
        return _array.namespace(Z).where(Z > self.floor, Z, self.floor + 0 * Z)

    def overlap(self, Z: Array, Y: Array) -> Array:
        """Return ⟨φ(z), P(y)⟩ row by row, (m,)."""
        return self._rowwise(Z, Y, lambda target, rows: target.overlap(Z[rows, :]))

    def distance(self, Z: Array, Y: Array) -> Array:
        """Return ‖φ(z) − P(y)‖ row by row, (m,), from its definition."""
        return self._rowwise(Z, Y, lambda target, rows: target.distance(Z[rows, :]))

    def _rowwise(self, Z: Array, Y: Array, of: Callable[[Target, slice], Array]) -> Array:
        Y, m = self.checked(Y), int(Y.shape[0])
        shape = (m, int(self.points.shape[1]))
        if tuple(Z.shape) != shape:
            raise ValueError(expected("points", f"of shape {shape}", tuple(Z.shape)))
        cut = _array.slices(m, _array.block_rows(self.size, Y))
        parts = [of(Target.of(self, Y[rows, :]), rows) for rows in cut]
        return _array.namespace(Y).concat([self._none(float), *parts], axis=0)


@dataclass(frozen=True, eq=False)
class Target:
    """Some points P(y) to find pre-images of: the objective of every method, row by row."""

    span: Span
    Y: Array  # (b, q)
    weights: Array  # (b, n), γ
    sqnorm: Array  # (b,), ‖P‖²

    @classmethod
    def of(cls, span: Span, Y: Array) -> Target:
        """Return the block of targets with latent coordinates Y."""
        return cls(span, Y, span.weights(Y), span.sqnorm(Y))

    def overlap(self, Z: Array) -> Array:
        """Return ⟨φ(z), P⟩ = Σ_i γ_i k(z, x_i), (b,)."""
        K = self.span.against(_array.working(Z))
        return _array.namespace(K).sum(K * self.weights, axis=1)

    def value(self, Z: Array) -> Array:
        """Return J(z) = ‖φ(z) − P‖² − ‖P‖² = k(z, z) − 2⟨φ(z), P⟩, (b,)."""
        return self.span.kernel.diag(_array.working(Z)) - 2 * self.overlap(Z)

    def gradient(self, Z: Array) -> Array:
        """Return ∂J/∂z, (b, d)."""
        kernel = self.span.kernel
        return kernel.diag_gradient(Z) - 2 * kernel.pull(Z, self.span.points, self.weights)

    def distance(self, Z: Array) -> Array:
        """Return ‖φ(z) − P‖, (b,); what rounding takes below 0 counts as 0."""
        D = self.value(Z) + self.sqnorm
        return _array.namespace(D).sqrt(_array.namespace(D).where(D > 0, D, 0 * D))

    def take(self, rows: np.ndarray) -> Target:
        """Return some of the rows."""
        if rows.size == int(self.sqnorm.shape[0]):
            return self
        parts = (_array.take(A, rows) for A in (self.Y, self.weights, self.sqnorm))
        return Target(self.span, *parts)


def _nonnegative(kernel: Kernel, columns: tuple[int, ...]) -> set[int]:
    """Return those of the columns in which some part of a kernel refuses entries below 0."""
    seen = columns if kernel.on is None else tuple(columns[c] for c in kernel.on)
    parts = [getattr(kernel, name, None) for name in ("left", "right", "kernel")]
    found = [_nonnegative(part, seen) for part in parts if isinstance(part, Kernel)]
    return set().union(*found) if found else set(seen if kernel.nonnegative else ())
