"""The dual: a centred kernel over the points."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.errors import DualPCAError
from dualpca.kernels import Kernel, Linear
from dualpca.representations.gram import Gram
from dualpca.rows import Projection
from dualpca.spectrum import Spectrum, signs
from dualpca.subspace import Subspace

GUESS_STEP, GUESS_LEAST, GUESS_MOST, GUESS_STEPS = 16, 256, 1500, 3
"""A first guess of eigenvectors looks at every 16th point, at so many at least and at most, in so
many steps."""


class Dual:
    """The centred (weighted) kernel over the points, (n, n), known through its products (MATH 7.1).

    Parameters
    ----------
    X : array of shape (n, d), or a `Gram`
    kernel : Kernel, unless X is a `Gram`
    weights : array of shape (n,), optional
    center : bool
        Centre in feature space, with the training means.
    dim : int, optional
        r, the dimension of the isotropic noise; n unless given (MATH 1).

    Notes
    -----
    A = D^{1/2} H K Hᵀ D^{1/2} with H = I − 1wᵀ/Σw, and H is never formed: memory is that of the
    `Gram`, O(n) a column unless it stores K.
    """

    def __init__(
        self,
        X: Array | Gram,
        kernel: Kernel | None = None,
        weights: Array | None = None,
        *,
        center: bool = True,
        dim: int | None = None,
    ) -> None:
        self.gram = X if isinstance(X, Gram) else Gram(X, kernel or Linear())
        self.centered = center
        m, self.like = self.gram.n, self.gram.like
        self.dim = m if dim is None else dim
        self.weights = _array.asarray(np.ones(m), self.like) if weights is None else weights
        self.n = float(_array.namespace(self.like).sum(self.weights))

    @property
    def eps(self) -> float:
        """Relative rounding error of the kernel values."""
        return self.gram.eps

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        return (self.gram.n, self.gram.n)

    @cached_property
    def means(self) -> Array:
        """Weighted mean of every row of K, (n,), in float64."""
        return self.gram.times_in_double(self.weights[:, None])[:, 0] / self.n

    @cached_property
    def grand_mean(self) -> float:
        """‖φ̄‖²."""
        return float(self.weights @ self.means) / self.n

    @cached_property
    def _root(self) -> Array:
        return _array.namespace(self.like).sqrt(self.weights)

    def diag(self) -> Array:
        """Return the diagonal, (n,)."""
        diagonal = self.gram.diag()
        if self.centered:
            diagonal = diagonal - 2 * self.means + self.grand_mean
        return self.weights * diagonal

    @cached_property
    def total(self) -> float:
        """Σwk(x, x), before centring."""
        with np.errstate(over="ignore", invalid="ignore"):
            return float(self.weights @ self.gram.diag())

    @cached_property
    def trace(self) -> float:
        """Sum of all eigenvalues; Σwk(x, x) − Σw‖φ̄‖² where it is centred."""
        return self.total - self.n * self.grand_mean if self.centered else self.total

    @property
    def pass_cost(self) -> float:
        """A product with the stored matrix, or an evaluation of half the kernel."""
        return self.gram.pass_cost

    @property
    def dense_cost(self) -> float:
        """One evaluation of the kernel."""
        return self.gram.fill_cost

    def squared_norm(self) -> float:
        """Return ‖A‖²_F = Σλ², a tile at a time (S2's identity); O(n²)."""
        total, xp = 0.0, _array.namespace(self.like)
        for rows, columns, part in self.gram.each_tile():
            part = _array.working(part)
            if self.centered:
                part = part - self.means[rows][:, None] - self.means[columns] + self.grand_mean
            part = part * part * self.weights[rows][:, None] * self.weights[columns]
            total += float(xp.sum(part)) * (1 if rows == columns else 2)
        return total

    def _center(self, V: Array) -> Array:
        """Return Hᵀ D^{1/2} V: what the training expansion of centred vectors is."""
        V = self._root[:, None] * V
        if not self.centered:
            return V
        total = _array.namespace(V).sum(V, axis=0)
        return V - self.weights[:, None] * (total / self.n)[None, :]

    def _outer_center(self, Y: Array) -> Array:
        """Return D^{1/2} H Y."""
        if self.centered:
            Y = Y - (self.weights @ Y / self.n)[None, :]
        return self._root[:, None] * Y

    def __matmul__(self, V: Array) -> Array:
        """Return A V."""
        inner = self._center(V)
        product = self.gram.times(inner) if self.single else self._times_in_double(inner)
        return self._outer_center(product)

    def _times_in_double(self, V: Array) -> Array:
        """Return K V; the means of the rows of K, if they are not known yet, come with it."""
        if not self.centered or "means" in self.__dict__:
            return self.gram.times_in_double(V)
        both = _array.namespace(V).concat([V, self.weights[:, None]], axis=1)
        both = self.gram.times_in_double(both)
        self.means = both[:, -1] / self.n
        return both[:, :-1]

    @property
    def single(self) -> bool:
        """Whether products carry the rounding errors of float32."""
        return self.gram.single

    @property
    def coarse(self) -> bool:
        """Whether `sharper` gives products that are rounded less."""
        return self.gram.coarse

    def sharper(self) -> Dual:
        """Return the same operator with products that are rounded less."""
        other = copy(self)
        other.gram = self.gram.sharper()  # type: ignore[attr-defined]
        return other

    def times_in_double(self, V: Array) -> Array:
        """Return A V in float64 throughout, whatever the precision of the kernel values."""
        return self._outer_center(self._times_in_double(self._center(V)))

    @property
    def width_free(self) -> bool:
        """Whether a product with a wide block costs little more than one with a thin one."""
        return not self.gram.keep

    threads_outside = True
    """Products share tiles out to threads of their own: BLAS is to use one."""

    def guess(self, block: Array) -> Array:
        """Return a block nearer to the leading eigenvectors than a random one, (n, b).

        A few steps of subspace iteration on some of the points, then the kernel leads to all the
        others (Nyström): a small part of a product, and it saves one or two.
        """
        m = self.shape[0]
        step = max(min(GUESS_STEP, m // GUESS_LEAST), -(-m // GUESS_MOST), 1)
        K, few, xp = self.gram.corner(step), block[::step, :], _array.namespace(block)
        for _ in range(GUESS_STEPS):
            few = few - xp.mean(few, axis=0) if self.centered else few
            few = _algebra.orthonormal(K @ few)
        few = few - xp.mean(few, axis=0) if self.centered else few
        return self._outer_center(self.gram.led(step, few))

    def dense(self) -> Array:
        """Return A, (n, n); the kernel is evaluated once, in float64, and centred in place."""
        m = self.shape[0]
        A = _array.empty((m, m), self.like)
        self.gram.in_double().fill(A)
        if self.centered:
            means = self.means = A @ self.weights / self.n  # there is no need to evaluate K again
            A -= means[None, :]
            A -= means[:, None]
            A += float(self.weights @ means) / self.n
        A *= self._root[None, :]
        A *= self._root[:, None]
        return A

    def oriented(self, spectrum: Spectrum) -> Spectrum:
        """Return eigenpairs signed by the coordinates of the points, which weights do not change.

        A point of weight 2 has an entry √2 times as large as either of two equal points.
        """
        if spectrum.rank == 0:
            return spectrum
        xp, root = _array.namespace(self.like), self._root
        safe = xp.where(root > 0, root, xp.full_like(root, np.inf))  # no weight, no say
        vectors = spectrum.vectors * signs(spectrum.vectors / safe[:, None])
        return replace(spectrum, vectors=vectors)

    def subspace(self, spectrum: Spectrum) -> Subspace:
        """Return the eigenvectors and the mean as expansions over the points.

        v_p = Σ_i (Hᵀ D^{1/2} e_p)_i φ(x_i) / √λ_p; a direction with λ_p = 0 is no direction, and
        its coefficients are 0.
        """
        xp = _array.namespace(self.like)
        root = xp.sqrt(spectrum.values)
        safe = xp.where(root > 0, root, xp.full_like(root, np.inf))
        coefficients = self._center(spectrum.vectors) / safe
        points, kernel = self.gram.points, self.gram.kernel
        if not self.centered:
            zero = xp.zeros_like(self.weights)
            return Subspace(points, kernel, coefficients, zero, 0 * root, 0.0)
        base = self.weights / self.n
        tilt = self.means @ coefficients
        return Subspace(points, kernel, coefficients, base, tilt, self.grand_mean)

    def off_span(self, spectrum: Spectrum) -> Array:
        """Return the squared distance of every training point off the span, (n,), from λ and e.

        Kc_ii − Σ_p λ_p e_pi², with the weights taken out; 0 for a point without weight.
        """
        xp, w = _array.namespace(self.like), self.weights
        rest = self.diag() - (spectrum.vectors**2) @ spectrum.values
        rest = rest / xp.where(w > 0, w, xp.ones_like(w))
        return xp.where(rest < 0, xp.zeros_like(rest), rest)

    def project(self, spectrum: Spectrum, X: Array) -> Projection:
        """Return y = kc(x)ᵀ D^{1/2} E Λ^{-1/2} and ‖φ(x) − φ̄‖² − Σy² (never negative)."""
        return self.subspace(spectrum).project(X)

    def lift(self, spectrum: Spectrum, Y: Array) -> Array:
        """Return the rows of coordinates Y: exact for the linear kernel, whose map is known."""
        kernel = self.gram.kernel
        if not isinstance(kernel, Linear):
            raise DualPCAError(
                f"the feature map of {kernel!r} has no exact inverse; expected the Linear "
                "kernel. Use a pre-image method."
            )
        span = self.subspace(spectrum)
        X = _array.working(self.gram.points)
        return Y @ (span.coefficients.T @ X) + span.base @ X
