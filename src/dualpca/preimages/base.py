"""What every pre-image method is, and what it works on: the span of a model in feature space."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend, cached_property
from dualpca.errors import expected
from dualpca.kernels import Kernel, nonnegative_columns

# --- Affine subspaces of feature space, spanned by n items: P(y) = Σ_i γ_i φ(x_i), γ = Cy + b ----


class Expansion:
    """An affine subspace of feature space, spanned by n items: P(y) = Σ_p y_p v_p + mean.

    v_p = Σ_i C_ip φ(x_i) and mean = Σ_i b_i φ(x_i). With centred features the columns of C sum to
    0 and b to 1, so γ = Cy + b sums to 1: the centred expansion γ̃ of theory 11.

    Subclasses say what the inner products are: `images` and `norms`.
    """

    coefficients: Array  # (n, q), C
    base: Array  # (n,), b; zeros where features are not centred
    images: Any  # (n, q + 1): ⟨φ(x_i), v_p⟩ and, in the last column, ⟨φ(x_i), mean⟩
    norms: Any  # (n,): ‖φ(x_i)‖²

    def __post_init__(self) -> None:
        """Work in float64, and check the shapes once."""
        algebra.require_shape("coefficients", self.coefficients, "n", "q")
        algebra.require_shape("base", self.base, self.coefficients.shape[0])
        for name in ("coefficients", "base"):
            object.__setattr__(self, name, backend.working(getattr(self, name)))

    @cached_property
    def generators(self) -> Array:
        """C and b side by side, (n, q + 1)."""
        xp = backend.namespace(self.base)
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
        """Return the weights over the training items whose sum is P(y).

        Parameters
        ----------
        Y : array of shape (m, q)
            Latent coordinates.

        Returns
        -------
        weights : array of shape (m, n)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> span.weights(np.array([[1.0]]))
        array([[1., 0.]])
        """
        return self._lifted(Y) @ self.generators.T

    def sqnorm(self, Y: Array) -> Array:
        """Return the squared norm of P(y) in feature space.

        Parameters
        ----------
        Y : array of shape (m, q)
            Latent coordinates.

        Returns
        -------
        norms : array of shape (m,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> span.sqnorm(np.array([[1.0]]))
        array([1.])
        """
        L = self._lifted(Y)
        return backend.namespace(L).sum((L @ self.gram) * L, axis=1)

    def overlaps(self, Y: Array) -> Array:
        """Return the kernel values of P(y) with the training items, not centred.

        Parameters
        ----------
        Y : array of shape (m, q)
            Latent coordinates.

        Returns
        -------
        values : array of shape (m, n)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> span.overlaps(np.array([[1.0]])).round(4)
        array([[1.    , 0.3679]])
        """
        return self._lifted(Y) @ self.images.T

    def gaps(self, Y: Array) -> Array:
        """Return the squared distance in feature space of every training point from P(y).

        Parameters
        ----------
        Y : array of shape (m, q)
            Latent coordinates.

        Returns
        -------
        distances : array of shape (m, n)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> span.gaps(np.array([[1.0]])).round(4)
        array([[0.    , 1.2642]])
        """
        G = self.norms - 2 * self.overlaps(Y) + self.sqnorm(Y)[:, None]
        return backend.namespace(G).where(G > 0, G, 0 * G)

    def nearest(self, Y: Array) -> tuple[Array, ...]:
        """Return the training item most similar to P(y), and its distance.

        Parameters
        ----------
        Y : array of shape (m, q)
            Latent coordinates.

        Returns
        -------
        index : array of int, shape (m,)
        distance : array of shape (m,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> span.nearest(np.array([[1.0]]))[0]
        array([0])
        """
        xp, Y = backend.namespace(self.base), self.checked(Y)

        def nearest_items(rows: slice) -> tuple[Array, ...]:
            G = self.gaps(Y[rows, :])
            return xp.astype(xp.argmin(G, axis=1), xp.int64), xp.sqrt(xp.min(G, axis=1))

        return self._in_blocks(nearest_items, int(Y.shape[0]))

    def _in_blocks(self, of: Callable[[slice], tuple[Array, ...]], m: int) -> tuple[Array, ...]:
        """Return what `of` makes of blocks of m rows, joined; threads share out many blocks.

        A row needs O(n) numbers, of which a block holds a few megabytes.
        """
        xp, step = backend.namespace(self.base), backend.block_rows(self.size, self.base)
        cut = list(backend.slices(m, step)) or [slice(0, 0)]
        runs = backend.spread(lambda part: [of(rows) for rows in part], cut, self.base)
        blocks = zip(*(found for run in runs for found in run), strict=True)
        return tuple(xp.concat(list(arrays), axis=0) for arrays in blocks)

    @property
    def size(self) -> int:
        """Number of items, n."""
        return int(self.base.shape[0])

    def checked(self, Y: Array) -> Array:
        """Return latent rows in float64 after checking their shape and that they are finite.

        Parameters
        ----------
        Y : array of shape (m, q)
            Latent coordinates.

        Returns
        -------
        Y : array of shape (m, q)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> span.checked(np.array([[1.0]])).dtype
        dtype('float64')
        """
        algebra.require_shape("latent coordinates", Y, "m", self.coefficients.shape[1])
        return _require_finite("latent coordinates", Y)

    def _lifted(self, Y: Array) -> Array:
        """Return rows (y, 1)."""
        Y = backend.working(Y)
        return backend.namespace(Y).concat([Y, backend.ones((int(Y.shape[0]), 1), Y)], axis=1)


def _require_finite(name: str, A: Array) -> Array:
    """Return an array in float64; raise for NaN and infinity."""
    if not backend.all_finite(A):
        raise ValueError(expected(name, "finite", "NaN or infinity"))
    return backend.working(A)


@dataclass(frozen=True, eq=False)
class Items(Expansion):
    """A subspace of which only the Gram matrix is known: no coordinates, so no pre-image.

    Use instead `weights(Y)`, the weights over the training items, and `nearest(Y)`,
    the most similar of them.

    Parameters
    ----------
    K : array of shape (n, n)
        Gram matrix of the training items.
    coefficients : array of shape (n, q)
        Weights of the directions over the items.
    base : array of shape (n,)
        Weights of the mean over the items.

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
        algebra.require_shape("the Gram matrix", self.K, self.size, self.size)

    @cached_property
    def images(self) -> Array:
        """K [C, b]."""
        return backend.working(self.K) @ self.generators

    @cached_property
    def norms(self) -> Array:
        """The diagonal of K."""
        return backend.working(backend.namespace(self.base).linalg.diagonal(self.K))


# --- What a kernel model reaches in feature space, and how far a point is from it ----------------

MOST_SOLVED = 5000
"""Most points for which kernel values are turned into a sum over the points, O(n³)."""

NULL_EIGENVALUE = 1e-12
"""Share of the largest eigenvalue of a kernel matrix below which another counts as 0."""


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
        algebra.require_shape("points", self.points, self.size, "d")
        object.__setattr__(self, "points", backend.working(self.points))

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
        of, A = self.against, self.generators
        return self._in_blocks(lambda rows: (of(self.points[rows, :]) @ A,), self.size)[0]

    @cached_property
    def norms(self) -> Array:
        """k(x_i, x_i)."""
        return self.kernel.diag(self.points)

    @cached_property
    def centre(self) -> Array:
        """The mean of the points themselves, (d,)."""
        return backend.namespace(self.points).mean(self.points, axis=0)

    @cached_property
    def spread(self) -> float:
        """Root mean squared distance of the points from their mean: the scale of steps."""
        xp = backend.namespace(self.points)
        return math.sqrt(float(xp.sum(xp.var(self.points, axis=0))))

    @cached_property
    def floor(self) -> Array | None:
        """The smallest entry per column that the kernel accepts, −∞ or 0; None where all are −∞."""
        d = int(self.points.shape[1])
        low = np.full(d, -np.inf)
        low[sorted(nonnegative_columns(self.kernel, d))] = 0.0
        return None if np.all(low < 0) else backend.asarray(low, self.points)

    def inside(self, Z: Array) -> Array:
        """Return points with entries raised to the smallest value that the kernel allows.

        Parameters
        ----------
        Z : array of shape (b, d)

        Returns
        -------
        Z : array of shape (b, d)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> span.inside(np.array([[0.5]]))
        array([[0.5]])
        """
        if self.floor is None:
            return Z
        return backend.namespace(Z).where(Z > self.floor, Z, self.floor + 0 * Z)

    def expanded(self, values: Array, *, centered: bool) -> Array:
        """Return the weights of the points of feature space that have these kernel values.

        Parameters
        ----------
        values : array of shape (m, n)
            ⟨φ(x_i), P⟩; or, if `centered`, ⟨φ(x_i) − mean, P − mean⟩. Values that no P has are
            those of the closest one: eigenvalues of the kernel matrix below 1e-12 of the largest
            count as 0.
        centered : bool

        Returns
        -------
        weights : array of shape (m, n)

        Notes
        -----
        O(n³) once and O(n²) per row, with a few n×n arrays.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> span.expanded(RBF()(np.array([[0.0]]), span.generators), centered=False).round(4)
        array([[-0.,  1.]])
        """
        lam, E = self._centred_pairs if centered else self._plain_pairs
        alpha = ((backend.working(values) @ E) / lam) @ E.T
        if not centered:
            return alpha
        rest = 1 - backend.namespace(alpha).sum(alpha, axis=1)
        return alpha + rest[:, None] * self.base

    @cached_property
    def _plain_pairs(self) -> tuple[Array, Array]:
        return self._pairs(centered=False)

    @cached_property
    def _centred_pairs(self) -> tuple[Array, Array]:
        return self._pairs(centered=True)

    def _pairs(self, *, centered: bool) -> tuple[Array, Array]:
        """Return the eigenpairs of the kernel matrix that are not 0, (k,) and (n, k)."""
        of = self.against
        K = self._in_blocks(lambda rows: (of(self.points[rows, :]),), self.size)[0]
        if centered:
            means = self.images[:, -1]
            K = K - means[:, None] - means[None, :] + self.offset
        lam, E = algebra.top_eigh(K, self.size)
        host = backend.to_numpy(lam)
        kept = np.flatnonzero(host > NULL_EIGENVALUE * host.max())
        return backend.take(lam, kept), backend.take(E, kept, axis=1)

    def overlap(self, Z: Array, Y: Array) -> Array:
        """Return the inner product of φ(z) and P(y), row by row.

        Parameters
        ----------
        Z : array of shape (m, d)
        Y : array of shape (m, q)
            Latent coordinates.

        Returns
        -------
        values : array of shape (m,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> span.overlap(np.array([[0.0]]), np.array([[1.0]]))
        array([1.])
        """
        return self._rowwise(Z, Y, Target.overlap)

    def distance(self, Z: Array, Y: Array) -> Array:
        """Return the distance in feature space of φ(z) from P(y), row by row.

        Parameters
        ----------
        Z : array of shape (m, d)
        Y : array of shape (m, q)
            Latent coordinates.

        Returns
        -------
        distance : array of shape (m,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> span.distance(np.array([[0.0]]), np.array([[1.0]]))
        array([1.49011612e-08])
        """
        return self._rowwise(Z, Y, Target.distance)

    def _rowwise(self, Z: Array, Y: Array, of: Callable[[Target, Array], Array]) -> Array:
        Y, m = self.checked(Y), int(Y.shape[0])
        algebra.require_shape("points", Z, m, self.points.shape[1])
        blocks = self._in_blocks(lambda rows: (of(Target.of(self, Y[rows, :]), Z[rows, :]),), m)
        return blocks[0]


@dataclass(frozen=True, eq=False)
class Target:
    """Some points P to find pre-images of: the objective of every method, row by row.

    P is known by its coordinates on the directions, P = P(y), or by its kernel values. Of the
    latter, coordinates Y are those of its projection.
    """

    span: Span
    Y: Array  # (b, q)
    expansion: Array | None  # (b, n), γ; None for values over too many points to solve for it
    sqnorm: Array  # (b,), ‖P‖²; 0 where γ is not known
    values: Array | None = None  # (b, n), ⟨φ(x_i), P⟩, where P is known by them
    shifted: bool = False  # all values of a row lack the same number, which is not known

    @classmethod
    def of(cls, span: Span, Y: Array) -> Target:
        """Return the block of targets with latent coordinates Y."""
        return cls(span, Y, span.weights(Y), span.sqnorm(Y))

    @classmethod
    def of_values(cls, span: Span, values: Array, *, centered: bool) -> Target:
        """Return the block of targets with kernel values ⟨φ(x_i), P⟩, or centred ones, (b, n)."""
        xp, means, solved = backend.namespace(values), span.images[:, -1], span.size <= MOST_SOLVED
        gamma = span.expanded(values, centered=centered) if solved else None
        values = values + means if centered else values
        if centered and gamma is not None:
            # ⟨mean, P − mean⟩ is what centring took from all values of a row
            values = values + (gamma @ means - span.offset)[:, None]
        shifted = centered and gamma is None and bool(xp.any(span.base != 0))
        # centred directions see no shift: their coefficients sum to 0
        Y = values @ span.coefficients - span.tilt
        sqnorm = 0 * values[:, 0] if gamma is None else xp.sum(gamma * values, axis=1)
        return cls(span, Y, gamma, sqnorm, values, shifted)

    @property
    def weights(self) -> Array:
        """γ, (b, n)."""
        if self.expansion is None:
            raise ValueError(
                f"kernel values over {self.span.size} points: methods that need P as a sum over "
                f"the points accept at most {MOST_SOLVED}. Use 'plain-smoother', 'smoother' or "
                "'learned', or fit with eigen_solver='nystrom'."
            )
        return self.expansion

    @cached_property
    def overlaps(self) -> Array:
        """⟨φ(x_i), P⟩, (b, n)."""
        return self.span.overlaps(self.Y) if self.values is None else self.values

    @property
    def unshifted(self) -> Array:
        """⟨φ(x_i), P⟩, (b, n), where nothing is missing of them."""
        if self.shifted:
            raise ValueError(
                f"centred kernel values over {self.span.size} points: to restore what centring "
                f"took from them is done for at most {MOST_SOLVED}. Give values that are not "
                "centred, PlainSmoother(centered=True, stabilizer=...), or fit with center=False."
            )
        return self.overlaps

    @cached_property
    def gaps(self) -> Array:
        """‖φ(x_i) − P‖², (b, n); without ‖P‖² where γ is not known."""
        G = self.span.norms - 2 * self.overlaps + self.sqnorm[:, None]
        if self.expansion is None:
            return G
        return backend.namespace(G).where(G > 0, G, 0 * G)

    @property
    def centred_overlaps(self) -> Array:
        """⟨φ(x_i) − mean, P − mean⟩, (b, n)."""
        span, k = self.span, self.overlaps
        return k - span.images[:, -1] - (k @ span.base - span.offset)[:, None]

    def overlap(self, Z: Array) -> Array:
        """Return ⟨φ(z), P⟩ = Σ_i γ_i k(z, x_i), (b,)."""
        K = self.span.against(backend.working(Z))
        return backend.namespace(K).sum(K * self.weights, axis=1)

    def value(self, Z: Array) -> Array:
        """Return J(z) = ‖φ(z) − P‖² − ‖P‖² = k(z, z) − 2⟨φ(z), P⟩, (b,)."""
        return self.span.kernel.diag(backend.working(Z)) - 2 * self.overlap(Z)

    def gradient(self, Z: Array) -> Array:
        """Return ∂J/∂z, (b, d)."""
        kernel = self.span.kernel
        return kernel.diag_gradient(Z) - 2 * kernel.pull(Z, self.span.points, self.weights)

    def distance(self, Z: Array) -> Array:
        """Return ‖φ(z) − P‖, (b,); 0 where rounding makes its square negative.

        NaN where P is not known as a sum over the points.
        """
        if self.expansion is None:
            return backend.namespace(Z).full_like(Z[:, 0], math.nan)
        D = self.value(Z) + self.sqnorm
        return backend.namespace(D).sqrt(backend.namespace(D).where(D > 0, D, 0 * D))

    def take(self, rows: np.ndarray) -> Target:
        """Return some of the rows."""
        if rows.size == int(self.sqnorm.shape[0]):
            return self
        Y, sqnorm = (backend.take(A, rows) for A in (self.Y, self.sqnorm))
        gamma, values = (
            None if A is None else backend.take(A, rows) for A in (self.expansion, self.values)
        )
        return Target(self.span, Y, gamma, sqnorm, values, self.shifted)


# --- What every pre-image method is: `prepare` once, `find` for many rows ------------------------

PREIMAGES: dict[str, type[Method]] = {}

LARGEST_DISTANCE = 2.0
"""How far from the centre a pre-image may be, in distances of the furthest training point."""


class PreImage(NamedTuple):
    """Pre-images, their distances from the target, and the number of iterations.

    Parameters
    ----------
    points : array of shape (m, d)
        Pre-images z.
    distance : array of shape (m,)
        Distance of φ(z) from the target P, in feature space.
    iterations : array of int, shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> from dualpca.preimages import Span
    >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
    >>> from dualpca.preimages import FixedPoint
    >>> found = FixedPoint().find(span, np.array([[1.0]]))
    >>> found.points.shape, found.distance.shape
    ((1, 1), (1,))
    """

    points: Array  # (m, d)
    distance: Array  # (m,), ‖φ(z) − P‖
    iterations: Array  # (m,), 0 for closed forms


@dataclass(frozen=True)
class Method:
    """Base class of pre-image methods, which find inputs z with φ(z) close to P(y).

    Subclasses define `_find` for a block of rows; a class attribute `name` registers them. With
    a linear kernel every method returns the exact answer z = Σ_i γ_i x_i, mean included.

    Examples
    --------
    >>> from dualpca.preimages import FixedPoint, Method
    >>> issubclass(FixedPoint, Method)
    True
    """

    name: ClassVar[str] = ""
    needs: ClassVar[str] = "any kernel"
    safeguarded: ClassVar[bool] = True  # exact for linear kernels, never far from the points

    def __init_subclass__(cls) -> None:
        """Register the method under its name."""
        if cls.name:
            PREIMAGES[cls.name] = cls

    def suits(self, kernel: Kernel) -> bool:
        """Return True if this method can be used with a kernel.

        Parameters
        ----------
        kernel : Kernel

        Returns
        -------
        suits : bool

        Examples
        --------
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Smoother
        >>> Smoother().suits(RBF())
        True
        """
        return True

    def prepare(self, span: Span) -> Method:
        """Return this method with all done that does not depend on the rows.

        Parameters
        ----------
        span : Span

        Returns
        -------
        method : Method

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> from dualpca.preimages import Smoother
        >>> Smoother().prepare(span)
        Smoother(neighbors=20)
        """
        return self

    def find(self, span: Span, Y: Array, start: Array | None = None) -> PreImage:
        """Return pre-images of P(y) for all rows of Y.

        Parameters
        ----------
        span : Span
        Y : array of shape (m, q)
            Latent coordinates.
        start : array of shape (m, d), default=None
            Points to start from, such as the noisy rows; closed forms have no use for them.

        Returns
        -------
        found : PreImage

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> from dualpca.preimages import FixedPoint
        >>> FixedPoint().find(span, np.array([[1.0]])).points
        array([[0.]])
        """
        Y = span.checked(Y)
        return self._find_all(span, lambda rows: Target.of(span, Y[rows, :]), Y, start)

    def find_values(
        self, span: Span, values: Array, start: Array | None = None, *, centered: bool = False
    ) -> PreImage:
        """Return pre-images of the points of feature space with these kernel values.

        Parameters
        ----------
        span : Span
        values : array of shape (m, n)
            ⟨φ(x_i), P⟩ for the points x_i of the span.
        start : array of shape (m, d), default=None
            Points to start from.
        centered : bool, default=False
            The values are ⟨φ(x_i) − mean, P − mean⟩.

        Returns
        -------
        found : PreImage

        Notes
        -----
        Up to 5000 points P is found as a sum over them, O(n³) once. Beyond, methods that only
        need kernel values or coordinates still work ('plain-smoother', 'smoother', 'learned'),
        and distances are NaN.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> from dualpca.preimages import FixedPoint
        >>> values = RBF()(np.array([[0.0]]), span.generators)
        >>> FixedPoint().find_values(span, values).points.round(4)
        array([[1.]])
        """
        algebra.require_shape("kernel values", values, "m", span.size)
        K = _require_finite("kernel values", values)
        if span.size <= MOST_SOLVED:
            span.expanded(K[:1, :], centered=centered)  # solved once, before threads share it
        targets = lambda rows: Target.of_values(span, K[rows, :], centered=centered)  # noqa: E731
        return self._find_all(span, targets, K, start)

    def _find_all(
        self, span: Span, targets: Callable[[slice], Target], asked: Array, start: Array | None
    ) -> PreImage:
        """Return pre-images of all targets, in blocks of rows."""
        m = int(asked.shape[0])
        if start is not None:
            algebra.require_shape("start", start, m, span.points.shape[1])
            start = span.inside(_require_finite("start", start))
        if not (span.kernel._linear or self.suits(span.kernel)):
            name = f"the kernel for pre-images by {self.name!r}"
            remedy = "preimage='auto' uses the methods that suit it."
            raise ValueError(expected(name, self.needs, span.kernel, remedy))
        method = self.prepare(span)
        for name in ("gram", "against", "norms", "spread", "centre", "floor"):
            getattr(span, name)  # computed once, before threads share it

        def found(rows: slice) -> PreImage:
            near = None if start is None else start[rows, :]
            return method.block(targets(rows), near)

        return PreImage(*span._in_blocks(found, m))

    def block(self, target: Target, start: Array | None) -> PreImage:
        """Return the pre-images of one block of rows.

        Parameters
        ----------
        target : Target
            Rows of latents and the span they belong to.
        start : array of shape (m, d) or None
            Points to start from.

        Returns
        -------
        found : PreImage

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> from dualpca.preimages import Smoother
        >>> Smoother().find(span, np.array([[1.0]])).points.shape
        (1, 1)
        """
        if target.span.kernel._linear and self.safeguarded:
            Z, iterations = target.weights @ target.span.points, None
        else:
            Z, iterations = self._find(target, start)
        Z = target.span.inside(_within_reach(target, Z) if self.safeguarded else Z)
        if iterations is None:
            iterations = np.zeros(int(Z.shape[0]), dtype=np.int64)
        counts = backend.namespace(Z).asarray(iterations, device=backend.device_of(Z))
        return PreImage(Z, target.distance(Z), counts)

    def _find(self, target: Target, start: Array | None) -> tuple[Array, Array | None]:
        """Return the points (b, d) and the iterations of each; None for closed forms."""
        raise TypeError(expected("method", "a subclass that defines _find", type(self).__name__))


def _within_reach(target: Target, Z: Array) -> Array:
    """Return points, with the nearest training point in place of those too far from the data.

    A kernel of the distance vanishes far from all points. Where P has no positive overlap with
    any of them, points at infinity are the closest to it, which is no answer.
    """
    span = target.span
    if not span.kernel.invariant:
        return Z
    xp = backend.namespace(Z)
    away, known = (xp.linalg.vector_norm(A - span.centre, axis=1) for A in (Z, span.points))
    far = away > LARGEST_DISTANCE * xp.max(known)
    rows = np.flatnonzero(backend.to_numpy(far))
    if rows.size == 0:
        return Z
    nearest = xp.argmin(backend.take(target.gaps, rows), axis=1)
    return backend.replaced(Z, rows, backend.take(span.points, nearest))


def better(one: PreImage, other: PreImage) -> PreImage:
    """Return row by row the pre-image with the smaller distance; the first where they tie."""
    xp, wins = backend.namespace(one.points), other.distance < one.distance
    points = xp.where(wins[:, None], other.points, one.points)
    rest = zip(other[1:], one[1:], strict=True)
    return PreImage(points, *(xp.where(wins, new, old) for new, old in rest))
