"""Affine subspaces of feature space, spanned by n items: P(y) = Σ_i γ_i φ(x_i), γ = Cy + b."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected


class Expansion:
    """An affine subspace of feature space, spanned by n items: P(y) = Σ_p y_p v_p + mean.

    v_p = Σ_i C_ip φ(x_i) and mean = Σ_i b_i φ(x_i). With centred features the columns of C sum to
    0 and b to 1, so γ = Cy + b sums to 1: the centred expansion γ̃ of MATH 11.

    Subclasses say what the inner products are: `images` and `norms`.
    """

    coefficients: Array  # (n, q), C
    base: Array  # (n,), b; zeros where features are not centred

    def __post_init__(self) -> None:
        """Work in float64, and check the shapes once."""
        C, b = _array.working(self.coefficients), _array.working(self.base)
        if len(C.shape) != 2:
            raise ValueError(expected("coefficients", "of shape (n, q)", tuple(C.shape)))
        if tuple(b.shape) != (C.shape[0],):
            raise ValueError(expected("base", f"of shape ({C.shape[0]},)", tuple(b.shape)))
        object.__setattr__(self, "coefficients", C)
        object.__setattr__(self, "base", b)

    @property
    def images(self) -> Array:
        """⟨φ(x_i), v_p⟩ and, in the last column, ⟨φ(x_i), mean⟩; (n, q + 1)."""
        what = "a subclass that defines images"
        raise TypeError(expected("expansion", what, type(self).__name__))

    @property
    def norms(self) -> Array:
        """‖φ(x_i)‖², (n,)."""
        what = "a subclass that defines norms"
        raise TypeError(expected("expansion", what, type(self).__name__))

    @cached_property
    def generators(self) -> Array:
        """C and b side by side, (n, q + 1)."""
        xp = _array.namespace(self.base)
        return xp.concat([self.coefficients, self.base[:, None]], axis=1)

    @cached_property
    def gram(self) -> Array:
        """Inner products of v_1, …, v_q, mean; (q + 1, q + 1).

        It is measured, not taken to be the identity, so that distances stay right where the
        directions are only nearly orthonormal.
        """
        A = self.generators.T @ self.images
        return 0.5 * (A + A.T)

    @property
    def offset(self) -> Array:
        """‖mean‖², ()."""
        return self.gram[-1, -1]

    @property
    def tilt(self) -> Array:
        """⟨v_p, mean⟩, (q,)."""
        return self.gram[:-1, -1]

    @cached_property
    def latents(self) -> Array:
        """Coordinates of the items themselves, ⟨φ(x_i) − mean, v_p⟩, (n, q)."""
        return self.images[:, :-1] - self.tilt

    def weights(self, Y: Array) -> Array:
        """Return γ of every row of Y, (m, n): what to ask for where items have no coordinates."""
        return self._lifted(Y) @ self.generators.T

    def sqnorm(self, Y: Array) -> Array:
        """Return ‖P(y)‖² = offset + 2 yᵀtilt + yᵀy for orthonormal directions, (m,)."""
        L = self._lifted(Y)
        return _array.namespace(L).sum((L @ self.gram) * L, axis=1)

    def overlaps(self, Y: Array) -> Array:
        """Return ⟨φ(x_i), P(y)⟩, (m, n): kernel values of P with the items, not centred."""
        return self._lifted(Y) @ self.images.T

    def gaps(self, Y: Array) -> Array:
        """Return ‖φ(x_i) − P(y)‖², (m, n), from q products each."""
        G = self.norms - 2 * self.overlaps(Y) + self.sqnorm(Y)[:, None]
        return _array.namespace(G).where(G > 0, G, 0 * G)

    def nearest(self, Y: Array) -> tuple[Array, Array]:
        """Return for every row of Y the item most similar to P(y) and its distance, both (m,)."""
        xp, Y = _array.namespace(self.base), self.checked(Y)
        items, distances = [self._none(int)], [self._none(float)]
        for rows in _array.slices(int(Y.shape[0]), _array.block_rows(self.size, Y)):
            G = self.gaps(Y[rows, :])
            items.append(xp.astype(xp.argmin(G, axis=1), xp.int64))
            distances.append(xp.sqrt(xp.min(G, axis=1)))
        return xp.concat(items, axis=0), xp.concat(distances, axis=0)

    @property
    def size(self) -> int:
        """Number of items, n."""
        return int(self.base.shape[0])

    def checked(self, Y: Array) -> Array:
        """Return latent rows in float64, of the right shape and finite."""
        Y, q = _array.working(Y), int(self.coefficients.shape[1])
        if len(Y.shape) != 2 or Y.shape[1] != q:
            raise ValueError(expected("latent coordinates", f"of shape (m, {q})", tuple(Y.shape)))
        xp = _array.namespace(Y)
        if not bool(xp.all(xp.isfinite(Y))):
            raise ValueError(expected("latent coordinates", "finite", "NaN or infinity"))
        return Y

    def _lifted(self, Y: Array) -> Array:
        """Return rows (y, 1)."""
        Y = _array.working(Y)
        return _array.namespace(Y).concat([Y, _array.ones((int(Y.shape[0]), 1), Y)], axis=1)

    def _none(self, kind: type) -> Array:
        xp = _array.namespace(self.base)
        dtype = xp.int64 if kind is int else xp.float64
        return xp.zeros((0,), dtype=dtype, device=_array.device_of(self.base))


@dataclass(frozen=True, eq=False)
class Items(Expansion):
    """The subspace where only a Gram matrix is known: no coordinates, so no pre-image.

    What takes its place is `weights(Y)`, the weights over the training items, and `nearest(Y)`,
    the most similar of them.

    Examples
    --------
    >>> import numpy as np
    >>> K = np.array([[2.0, 0.0], [0.0, 1.0]])
    >>> items = Items(K, np.array([[0.5**0.5], [0.0]]), np.zeros(2))
    >>> items.nearest(np.array([[1.0], [0.0]]))[0]
    array([0, 1])
    """

    K: Array  # (n, n)
    coefficients: Array
    base: Array

    def __post_init__(self) -> None:
        """Check the shape of the Gram matrix too."""
        super().__post_init__()
        if tuple(self.K.shape) != (self.size, self.size):
            what = f"of shape ({self.size}, {self.size})"
            raise ValueError(expected("the Gram matrix", what, tuple(self.K.shape)))

    @cached_property
    def images(self) -> Array:
        """K [C, b]."""
        return _array.working(self.K) @ self.generators

    @cached_property
    def norms(self) -> Array:
        """The diagonal of K."""
        return _array.working(_array.namespace(self.base).linalg.diagonal(self.K))
