"""Kwok & Tsang's closed form: from distances in feature space to distances among inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.kernels import RBF, Kernel, Scaled, Stationary
from dualpca.preimages.base import Method
from dualpca.preimages.span import Target

FLOOR = 1e-12
"""Smallest kernel value that is turned into a distance, where f(0) = 1."""

RANK = 1e-8
"""Singular values of the neighbours below this share of the largest count as 0."""

Distances = Callable[[Array, Array, Array, Array], Array]
"""From k(x, x), ⟨φ(x), P⟩, ‖P‖² and ‖x‖² to ‖z − x‖²; all (b, k)."""


@dataclass(frozen=True)
class Distance(Method):
    """Place z by its input distances to the neighbours of P (Kwok & Tsang 2004).

    ‖φ(x_j) − P‖² of the `neighbors` nearest items is turned into ‖z − x_j‖² by inverting the
    kernel; then z solves Nẑ = ½H(d₀² − d²), N the centred neighbours, d₀² their squared norms, by
    the singular value decomposition of N. No iteration, no start.

    Cost O(nq + k²d) a row.

    Parameters
    ----------
    neighbors : int

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> from dualpca.preimages import Span
    >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
    >>> Distance().find(span, np.array([[1.0]])).points.round(6)
    array([[0.]])
    """

    name: ClassVar[str] = "distance"
    needs: ClassVar[str] = (
        "an invertible function of the distance, or a polynomial of odd degree of the inner product"
    )
    neighbors: int = 10

    def __post_init__(self) -> None:
        """Refuse a number of neighbours below 1."""
        if self.neighbors < 1:
            raise ValueError(expected("neighbors", "at least 1", self.neighbors))

    def suits(self, kernel: Kernel) -> bool:
        """Tell whether the kernel can be inverted."""
        return inversion(kernel, 1) is not None

    def _find(self, target: Target, start: Array | None) -> tuple[Array, np.ndarray | None]:
        xp, span = _array.namespace(target.Y), target.span
        G, k = span.gaps(target.Y), min(self.neighbors, span.size)
        near = xp.argsort(G, axis=1)[:, :k]
        b, flat = int(near.shape[0]), xp.reshape(near, (-1,))
        N = xp.reshape(_array.take(span.points, flat), (b, k, -1))
        norms = xp.reshape(_array.take(span.norms, flat), (b, k))
        P2 = target.sqnorm[:, None] + 0 * norms
        gaps = xp.reshape(_array.take(xp.reshape(G, (-1,)), _flat(near, span.size)), (b, k))
        invert = inversion(span.kernel, int(span.points.shape[1]))
        assert invert is not None  # find() has asked suits()
        D2 = invert(norms, 0.5 * (norms + P2 - gaps), P2, xp.sum(N * N, axis=2))
        return trilaterate(N, D2), None


def trilaterate(N: Array, D2: Array) -> Array:
    """Return the points z whose squared distances to neighbours N (b, k, d) are D2 (b, k).

    In the affine span of the neighbours, by least squares; (b, d).
    """
    xp = _array.namespace(N)
    middle = xp.mean(N, axis=1)
    C = N - middle[:, None, :]
    A, s, Bt = _algebra.svd(C)
    rhs = 0.5 * (xp.sum(C * C, axis=2) - D2)
    large = s > RANK * s[:, :1]
    inverse = xp.where(large, 1 / xp.where(large, s, xp.ones_like(s)), 0 * s)
    # A's columns for s > 0 sum to 0, which centres rhs
    zhat = inverse * xp.sum(A * rhs[:, :, None], axis=1)
    return middle + xp.sum(zhat[:, :, None] * Bt, axis=1)


def inversion(kernel: Kernel, d: int) -> Distances | None:
    """Return how distances of d columns follow from inner products in feature space, if known."""
    if kernel.on is not None:
        return None  # distances over some columns do not place a point in all of them
    if isinstance(kernel, Scaled):
        inner = inversion(kernel.kernel, d)
        c = kernel.factor
        return None if inner is None else lambda k, o, p, x: inner(k / c, o / c, p / c, x)
    if isinstance(kernel, Stationary):
        return _stationary(kernel)
    return _polynomial(kernel, d)


def _stationary(kernel: Stationary) -> Distances | None:
    """Return the inversion of f: f(u) = 1 − ½‖φ(x) − P‖²."""
    if not kernel.monotone:
        return None
    if len(np.shape(getattr(kernel, "length_scale", 0.0) or 0.0)) > 0:
        return None  # a width of its own for every column

    def distances(norms: Array, overlap: Array, P2: Array, x2: Array) -> Array:
        K = overlap + 0.5 * (1 - P2)
        return inverse_profile(kernel, K) / kernel.rate

    return distances


def inverse_profile(kernel: Stationary, K: Array) -> Array:
    """Return u with f(u) = K, for K clipped to [1e-12, 1]: log, or bisection over log u."""
    xp = _array.namespace(K)
    K = xp.where(K > 1, xp.ones_like(K), xp.where(K > FLOOR, K, FLOOR + 0 * K))
    if isinstance(kernel, RBF):
        return -xp.log(K)
    low, high = -80.0 + 0 * K, 80.0 + 0 * K
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = kernel.profile(xp.exp(middle)) > K
        low, high = xp.where(above, middle, low), xp.where(above, high, middle)
    return xp.where(K < 1, xp.exp(high), 0 * K)


def _polynomial(kernel: Kernel, d: int) -> Distances | None:
    """Return the inversion of (γxᵀy + c)^p with odd p, read off the parameters; γ None is 1/d."""
    degree: Any = getattr(kernel, "degree", None)
    gamma: Any = getattr(kernel, "gamma", None) or 1 / d
    shift: Any = getattr(kernel, "coef0", None)
    numbers = all(isinstance(v, int | float) for v in (degree, gamma, shift))
    if not numbers or degree != int(degree) or int(degree) % 2 == 0:
        return None

    def product(K: Array) -> Array:
        xp = _array.namespace(K)
        return (xp.sign(K) * xp.abs(K) ** (1 / degree) - shift) / gamma

    def distances(norms: Array, overlap: Array, P2: Array, x2: Array) -> Array:
        D2 = product(P2) + x2 - 2 * product(overlap)
        return _array.namespace(D2).where(D2 > 0, D2, 0 * D2)

    return distances


def _flat(columns: Array, width: int) -> Array:
    """Return positions in a flattened (b, width) array of the columns (b, k) of each row."""
    host = _array.to_numpy(columns)
    return (host + width * np.arange(host.shape[0])[:, None]).ravel()
