"""The dual: a centred kernel over the points; tiles are stored, recomputed, or fused on a GPU.

The last part is what can be wrong with it: digits lost by centring, negative eigenvalues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import reduce
from itertools import chain
from operator import iadd

import numpy as np
from scipy.linalg.lapack import dpotrf

from dualpca.arrays import EPS, Array, algebra, backend, cached_property
from dualpca.data import Host, namespace_sum
from dualpca.errors import SolverWarning, SpectrumWarning, warn
from dualpca.kernels import (
    Kernel,
    Linear,
    Precomputed,
    Uncertain,
    expected_gram,
    thin_factor,
)
from dualpca.operators.base import ROUNDING_SHARE, Negatives, Operator, Spectrum
from dualpca.operators.fused import FusedPoints, can_fuse
from dualpca.operators.subspace import Subspace, UncertainSubspace

# --- The kernel over the points as an operator: tiles that are evaluated at every product, or kept

TILE_POINTS, SMALL_TILE_POINTS, GPU_TILE_POINTS = 1024, 256, 4096
"""Points on either side of a tile: its kernel values fit into the cache. Small kernels have small
tiles, so that all threads have some; on GPUs large ones are faster."""

FEWEST_TILES = 4
"""Tiles on either side, unless they would be small: two threads then have the same to do."""

EXPONENTIAL_COST, COLUMNS_TWICE = 60.0, 28.0
"""Multiply-adds that last as long as one exponential; columns of a usual block, twice."""

THIN_ROWS, THIN_COLUMNS = 40, 24
"""Rows of a tile and columns of a block in products so small that OpenBLAS does not copy the tile
first: they take half the time of one large product (a fit to 5,000 points 300 ms, not 460)."""

Tile = tuple[slice, slice]


class Gram:
    """K with K_ij = k(x_i, x_j), (n, n), known through its products.

    Parameters
    ----------
    X : array of shape (n, d), or (n,) for kernels of other objects
    kernel : Kernel
    single : bool
        Evaluate (and store) in float32: half the memory and the time. Sums run in float64.
    stored : bool
        Keep K once it was evaluated. Otherwise every product evaluates it anew, and memory stays
        O(n) a column.

    Notes
    -----
    Only the tiles on and above the diagonal are evaluated (and kept, n²/2 numbers); each serves
    twice.
    """

    eps = EPS
    """Relative rounding error of the values that come in."""
    coarse = False
    """Whether products, except `times_in_double`, are rounded to 11 bits."""
    lasting: bool
    """Whether K can be evaluated again from the points, in a small part of an iteration's time."""
    definite: bool
    """Whether it is positive semi-definite whatever the points."""
    fill_cost: float
    """Multiply-adds of evaluating K once."""
    pass_cost: float
    """Multiply-adds of a product with one vector, a share of one with a block."""

    def __init__(
        self, X: Array, kernel: Kernel, *, single: bool = False, stored: bool = False
    ) -> None:
        self.points, self.kernel, self.keep, self.n = X, kernel, stored, int(X.shape[0])
        self.single = single and X.ndim == 2 and not backend.is_sparse(X)
        largest = GPU_TILE_POINTS if backend.on_cuda(X) else TILE_POINTS
        self.tile = max(SMALL_TILE_POINTS, min(largest, -(-self.n // FEWEST_TILES)))
        self.like = backend.asarray(np.zeros(1), backend.vector_like(X))
        self.lasting, self.definite = X.ndim == 2 and kernel._quick, kernel.definite
        width = 1 if X.ndim == 1 else X.shape[1]
        self.fill_cost = 0.5 * self.n**2 * (width + EXPONENTIAL_COST)
        self.pass_cost = self.n**2 + (0.0 if stored else self.fill_cost / COLUMNS_TWICE)

    @cached_property
    def origin(self) -> Array | None:
        """Where float32 points are measured from, if the kernel does not mind."""
        if not (self.single and self.kernel.invariant):
            return None
        return backend.namespace(self.points).mean(backend.working(self.points), axis=0)

    @cached_property
    def _seen(self) -> Array:
        """The points as the kernel is to see them: shifted, in the dtype of the evaluation."""
        X = self.points
        if X.ndim == 1 or backend.is_sparse(X):
            return backend.points(X)
        X = X if self.origin is None else backend.working(X) - self.origin
        return backend.in_single(X) if self.single else backend.working(X)

    @cached_property
    def _prepared(self) -> list[Callable[[Array], Array]]:
        """Return x ↦ k(x, y) for the points y of every column of tiles."""
        cut = backend.slices(self.n, self.tile)
        return [self.kernel.against(backend.some_rows(self._seen, columns)) for columns in cut]

    @cached_property
    def _tiles(self) -> list[Tile]:
        cut = list(backend.slices(self.n, self.tile))
        return [(rows, columns) for k, columns in enumerate(cut) for rows in cut[: k + 1]]

    def _evaluated(self, tile: Tile) -> Array:
        rows, columns = tile
        return self._prepared[columns.start // self.tile](backend.some_rows(self._seen, rows))

    @cached_property
    def _kept(self) -> dict[tuple[int, int], Array]:
        """The tiles, evaluated."""
        found = backend.spread(lambda run: [*map(self._evaluated, run)], self._tiles, self.like)
        places = [(rows.start, columns.start) for rows, columns in self._tiles]
        return dict(zip(places, chain.from_iterable(found), strict=True))

    def _source(self, *, keep: bool = True) -> Callable[[Tile], Array]:
        """Return the function that finds a tile, with what all tiles need done."""
        _ = self._prepared
        if not (keep and self.keep) and "_kept" not in self.__dict__:
            return self._evaluated
        kept = self._kept
        return lambda tile: kept[tile[0].start, tile[1].start]

    def tiles(self) -> Iterator[tuple[slice, slice, Array]]:
        """Yield the tiles on and above the diagonal, with their rows and columns."""
        tile = self._source()
        return ((*place, tile(place)) for place in self._tiles)

    def whole(self) -> Array:
        """Return K as a fresh array, (n, n), in float64; tiles are not kept for it."""
        if self.single:
            return self.in_double().whole()
        tile = self._source(keep=False)
        K = backend.empty((self.n, self.n), self.like)

        def work(run: list[Tile]) -> None:
            for rows, columns in run:
                part = K[rows, columns] = tile((rows, columns))
                if rows != columns:
                    K[columns, rows] = part.T

        backend.spread(work, self._tiles, self.like)
        return K

    def times(self, V: Array) -> Array:
        """Return K V, (n, b); in the precision of the kernel values, summed in float64."""
        return self._half_times(self._source(), backend.in_single(V) if self.single else V)

    def _half_times(self, tile: Callable[[Tile], Array], V: Array) -> Array:
        """Return K V from the tiles on and above the diagonal."""
        add = _add_product if backend.is_foreign(V) else _add_thin_products
        V = backend.contiguous(V)

        def work(run: list[Tile]) -> Array:
            Y = backend.asarray(np.zeros(V.shape), self.like)
            for which in run:
                add(Y, tile(which), V, which)
            return Y

        return reduce(iadd, backend.spread(work, self._tiles, self.like))

    def times_in_double(self, V: Array) -> Array:
        """Return K V with float32 values of K where those are kept, but products in float64."""
        if not self.single:
            return self.times(V)
        if not self.keep:
            return self.in_double().times(V)
        tile = self._source()
        return self._half_times(lambda which: backend.working(tile(which)), V)

    def thinned(self, step: int) -> Gram | None:
        """Return the kernel among every `step`-th point, where products are fused."""
        return None

    def in_double(self) -> Gram:
        """Return the kernel with values in float64."""
        return Gram(self.points, self.kernel) if self.single else self

    def diag(self) -> Array:
        """Return the diagonal, (n,), in float64."""
        return backend.working(self.kernel.diag(backend.points(self.points)))

    def corner(self, step: int) -> Array:
        """Return K among every `step`-th point, (m, m), in float64."""
        few = backend.some_rows(self._seen, slice(None, None, step))
        return backend.working(self.kernel(few, few))

    def led(self, step: int, V: Array) -> Array:
        """Return K[:, ::step] V, (n, b), in float64: from a few points to all of them."""
        few = self.kernel.against(backend.some_rows(self._seen, slice(None, None, step)))
        V = backend.in_single(V) if self.single else V

        def part(rows: slice) -> Array:
            return backend.working(few(backend.some_rows(self._seen, rows)) @ V)

        return backend.stacked(part, backend.slices(self.n, self.tile // 2), self.like)


def _add_product(Y: Array, part: Array, V: Array, tile: Tile) -> None:
    """Add what a tile and, off the diagonal, its mirror image contribute to K V."""
    rows, columns = tile
    Y[rows, :] += part @ V[columns, :]
    if rows != columns:
        Y[columns, :] += part.T @ V[rows, :]


def _add_thin_products(Y: Array, part: Array, V: Array, tile: Tile) -> None:
    """Add the same for NumPy, some rows of the tile at a time, which the cache holds for both."""
    rows, columns = tile
    for few in backend.slices(V.shape[1], THIN_COLUMNS):
        right, left = np.ascontiguousarray(V[columns, few]), np.ascontiguousarray(V[rows, few])
        above, below = np.empty_like(left), np.zeros_like(right)
        for some in backend.slices(part.shape[0], THIN_ROWS):
            np.matmul(part[some], right, out=above[some])
            if rows != columns:
                below += part[some].T @ left[some]
        Y[rows, few] += above
        if rows != columns:
            Y[columns, few] += below


def stored_bytes(n: int, *, single: bool = False) -> float:
    """Return the bytes of the kept tiles of n points: half a matrix and the diagonal tiles."""
    return 0.5 * n * (n + min(n, TILE_POINTS)) * (4 if single else 8)


class Given(Gram):
    """A kernel matrix that is there already, (n, n): its upper triangle. Never modified."""

    def __init__(self, K: Array, kernel: Kernel) -> None:
        super().__init__(K, kernel, stored=True)
        self.fill_cost, self.lasting = 0.0, False  # the matrix may change after the fit
        self.eps = float(backend.namespace(K).finfo(K.dtype).eps)

    def _source(self, *, keep: bool = True) -> Callable[[Tile], Array]:
        return lambda tile: backend.working(self.points[tile[0], tile[1]])

    def whole(self) -> Array:
        """Return a copy of K, (n, n), in float64."""
        if backend.is_foreign(self.points):
            return backend.copied(backend.working(self.points))
        return np.array(self.points, dtype=np.float64, order="C")

    def diag(self) -> Array:
        """Return the diagonal, (n,), in float64."""
        return backend.working(backend.namespace(self.like).linalg.diagonal(self.points))

    def corner(self, step: int) -> Array:
        """Return K among every `step`-th point, (m, m)."""
        return backend.working(self.points[::step, ::step])

    def led(self, step: int, V: Array) -> Array:
        """Return K[:, ::step] V, (n, b)."""
        return backend.working(self.points[::step, :]).T @ V


class ExpectedGram(Given):
    """Expected inner products of rows that are known in part, E k(x_i, x_j), (n, n)."""

    def __init__(self, rows: Uncertain, kernel: Kernel) -> None:
        super().__init__(expected_gram(kernel, rows), Precomputed())
        self.rows, self.row_kernel, self.definite = rows, kernel, kernel.definite


# --- The kernel over points on a GPU: products fused, nothing of size n × n anywhere ------------


def make_gram(X: Array, kernel: Kernel, *, single: bool = False, stored: bool = False) -> Gram:
    """Return the kernel over the points: fused where float32 will do and the GPU can.

    Points many widths of the kernel apart have distances that float32 cannot tell: float64 then.
    """
    fused = FusedPoints.where_able(X, kernel) if single else None
    if fused is not None:
        return Fused(fused)
    single = single and not can_fuse(X, kernel)
    return Gram(X, kernel, single=single, stored=stored)


class Fused(Gram):
    """K with products in one pass: of float32 accuracy first, of 11 bits for corrections to it.

    A product costs O(n² (d + b)) and keeps O(n (d + b)); sums run in float64. `times_in_double` is
    of float32 accuracy, 1e-6 or better: rounding errors of that size in K leave eigenvalues alone.
    """

    def __init__(self, fused: FusedPoints) -> None:
        super().__init__(fused.points, fused.kernel, single=True)
        self.fused, self.coarse = fused, True

    def thinned(self, step: int) -> Fused:
        """Return the kernel among every `step`-th point, measured from where all are."""
        return Fused(FusedPoints(self.points[::step, :], self.kernel, like=self.fused))

    def times(self, V: Array) -> Array:
        """Return K V, (n, b), with the kernel and V rounded to 11 bits."""
        return self.fused.multiply(self.fused.rough, self.fused.rough, V)

    def times_in_double(self, V: Array) -> Array:
        """Return K V, (n, b), with float32 accuracy."""
        return self.fused.multiply(self.fused.accurate, self.fused.accurate, V)

    def led(self, step: int, V: Array) -> Array:
        """Return K[:, ::step] V, (n, b)."""
        few = self.fused.operand(self.points[::step, :], rough=True)
        return self.fused.multiply(self.fused.rough, few, V)


# --- The dual: a centred kernel over the points --------------------------------------------------

GUESS_STEP, GUESS_LEAST, GUESS_MOST, GUESS_STEPS = 16, 256, 1500, 3
"""A first guess of eigenvectors looks at every 16th point, at so many at least and at most, in so
many steps."""

LEAST_UNCOPIED, MOST_FORMED = 700, 3200
"""Points from which a kernel matrix that was given is not copied (a fit to 3,000 takes 97 ms, with
a copy 134), and up to which one is formed."""

SINGLE_EPS = float(np.finfo(np.float32).eps)
"""Relative rounding error of a kernel value in float32, or a little more."""

COARSE_EPS = 2.0**-11
"""The same of one that was rounded to 11 bits."""

THIN = 2
"""Points per column from which a factor of the kernel is thin."""


class Dual(Operator):
    """The centred (weighted) kernel over the points, (n, n), known through its products.

    Theory 7.1. Products distribute tiles to threads of their own.

    Parameters
    ----------
    X : array of shape (n, d), or a `Gram`
    kernel : Kernel, unless X is a `Gram`
    weights : array of shape (n,), optional
    center : bool
        Centre in feature space, with the training means.
    dim : int, optional
        r, the dimension of the isotropic noise; default: n (theory 1).

    Notes
    -----
    A = D^{1/2} H K Hᵀ D^{1/2} with H = I − 1wᵀ/Σw, and H is never formed: memory is that of the
    `Gram`, O(n) a column unless it stores K.
    """

    threads_outside = True

    def __init__(
        self,
        X: Array | Gram,
        kernel: Kernel | None = None,
        weights: Array | None = None,
        *,
        center: bool = True,
        dim: int | None = None,
    ) -> None:
        self.gram = gram = X if isinstance(X, Gram) else Gram(X, kernel or Linear())
        super().__init__(gram.n, gram.like, dim)
        self.eps, self.single, self.coarse = gram.eps, gram.single, gram.coarse
        self.given_eps = SINGLE_EPS if gram.single else EPS
        self.width_free, self.centered = not gram.keep, center
        self.definite, self.lasting = gram.definite, gram.lasting
        self.pass_cost, self.dense_cost = gram.pass_cost, gram.fill_cost
        self.weighted, self._rough_means = weights is not None, False
        self.weights = backend.asarray(np.ones(gram.n), self.like) if weights is None else weights
        self.n = float(namespace_sum(self.weights)) if self.weighted else float(gram.n)
        host = not backend.is_foreign(gram.points)
        self.formable = gram.keep and not gram.single and host and gram.n <= MOST_FORMED
        if host and not gram.single:
            self.factor_width = self._width()

    def _width(self) -> int | None:
        """Return the width of a thin factor of the kernel over the points."""
        X = self.gram.points
        if isinstance(self.gram, Given) or X.ndim != 2 or X.shape[0] < THIN * X.shape[1]:
            return None
        row = thin_factor(self.gram.kernel, X[:1])
        return None if row is None else int(row.shape[1])

    @cached_property
    def _features(self) -> Array:
        """F0 with F0F0ᵀ = K, (n, r), where the kernel has a thin factor."""
        return thin_factor(self.gram.kernel, self.gram.points)

    @cached_property
    def means(self) -> Array:
        """Weighted mean of every row of K, (n,), in float64."""
        if self.factor_width is not None:
            return self._features @ (self.weights @ self._features) / self.n
        return self.gram.times_in_double(self.weights[:, None])[:, 0] / self.n

    def factor(self) -> Array:
        """Return F = D^{1/2} H F0, (n, r), with A = FFᵀ; O(nr)."""
        F = self._features
        if self.centered:
            F = F - self.weights @ F / self.n
        return F * self._root[:, None] if self.weighted else F

    @cached_property
    def grand_mean(self) -> float:
        """‖φ̄‖²."""
        return float(self.weights @ self.means) / self.n

    @cached_property
    def noise(self) -> float:  # type: ignore[override]
        """√n times the rounding of a kernel value: errors of float32 values, as if independent."""
        return SINGLE_EPS * self.total / self.gram.n**0.5 if self.single else 0.0

    @cached_property
    def rounding(self) -> float:  # type: ignore[override]
        """The same of values that are rounded to 11 bits."""
        return COARSE_EPS * self.total / self.gram.n**0.5 if self.coarse else 0.0

    @cached_property
    def _root(self) -> Array:
        return backend.namespace(self.like).sqrt(self.weights)

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

    def squared_norm(self) -> float:
        """Return ‖A‖²_F = Σλ², a tile at a time; O(n²)."""
        total, xp = 0.0, backend.namespace(self.like)
        for rows, columns, part in self.gram.tiles():
            part = backend.working(part)
            if self.centered:
                part = part - self.means[rows][:, None] - self.means[columns] + self.grand_mean
            part = part * part * self.weights[rows][:, None] * self.weights[columns]
            total += float(xp.sum(part)) * (1 if rows == columns else 2)
        return total

    def _center(self, V: Array) -> Array:
        """Return Hᵀ D^{1/2} V: what the training expansion of centred vectors is."""
        V = self._root[:, None] * V if self.weighted else V
        if not self.centered:
            return V
        total = backend.namespace(V).sum(V, axis=0)
        return V - self.weights[:, None] * (total / self.n)[None, :]

    def _outer_center(self, Y: Array) -> Array:
        """Return D^{1/2} H Y."""
        if self.centered:
            Y = Y - (self.weights @ Y / self.n)[None, :]
        return self._root[:, None] * Y if self.weighted else Y

    def __matmul__(self, V: Array) -> Array:
        """Return A V."""
        if not self.single:
            return self.times_in_double(V)
        if not self.coarse:
            return self._outer_center(self.gram.times(self._center(V)))
        return self._with_means(self.gram.times, V, known="means" in self.__dict__)

    def times_in_double(self, V: Array) -> Array:
        """Return A V in float64 throughout, whatever the precision of the kernel values."""
        known = "means" in self.__dict__ and not self._rough_means
        found = self._with_means(self.gram.times_in_double, V, known=known)
        self._rough_means = False
        return found

    def _with_means(self, times: Callable[[Array], Array], V: Array, *, known: bool) -> Array:
        """Return A V by products with K; means of its rows that are not known come with them.

        Sums over all points of values that are rounded to 11 bits are right to 11 bits and half the
        digits of n: means of a million points to 5e-7.
        """
        V = self._center(V)
        if known or not self.centered:
            return self._outer_center(times(V))
        both = times(backend.namespace(V).concat([V, self.weights[:, None]], axis=1))
        self.means, self._rough_means = both[:, -1] / self.n, True
        return self._outer_center(both[:, :-1])

    def thinned(self, step: int) -> Dual | None:
        """Return the kernel over every `step`-th point, where products are fused."""
        gram = self.gram.thinned(step)
        if gram is None:
            return None
        weights = self.weights[::step] if self.weighted else None
        return Dual(gram, None, weights, center=self.centered)

    def led(self, step: int, vectors: Array) -> Array:
        """Return vectors over all points, (n, b): the kernel leads there (Nyström)."""
        xp = backend.namespace(vectors)
        if self.weighted:
            vectors = vectors * self._root[::step, None]
        if self.centered:
            w = self.weights[::step]
            vectors = vectors - w[:, None] * (xp.sum(vectors, axis=0) / xp.sum(w))[None, :]
        return self._outer_center(self.gram.led(step, vectors))

    def guess(self, block: Array) -> Array:
        """Return a block nearer to the leading eigenvectors than a random one, (n, b).

        A few steps of subspace iteration on some of the points, then the kernel leads to all the
        others (Nyström): a small part of a product, and it saves one or two.
        """
        m = self.shape[0]
        step = max(min(GUESS_STEP, m // GUESS_LEAST), -(-m // GUESS_MOST), 1)
        K, few, xp = self.gram.corner(step), block[::step, :], backend.namespace(block)
        for _ in range(GUESS_STEPS):
            few = few - xp.mean(few, axis=0) if self.centered else few
            few = algebra.orthonormal(K @ few)
        few = few - xp.mean(few, axis=0) if self.centered else few
        return self._outer_center(self.gram.led(step, few))

    def dense(self) -> Array:
        """Return A, (n, n); the kernel is evaluated once, in float64, and centred in place."""
        given = isinstance(self.gram, Given) and self.centered
        A = backend.working(self.gram.points) if given else self.gram.whole()
        if self.centered:
            means = self.means = A @ self.weights / self.n  # there is no need to evaluate K again
            if given:
                A = A - means[None, :]
            else:
                A -= means[None, :]
            A -= (means - self.grand_mean)[:, None]
        if self.weighted:
            A *= self._root[None, :]
            A *= self._root[:, None]
        return A

    def matrix(self) -> tuple[Array, bool]:
        """Return A, or a large K that was given: centring vectors then costs less than a copy."""
        K = self.gram.points
        if not (isinstance(self.gram, Given) and self.centered and not self.weighted):
            return self.dense(), False
        if self.gram.n < LEAST_UNCOPIED or K.dtype != np.float64 or not K.flags.c_contiguous:
            return self.dense(), False
        self.means = K @ self.weights / self.n
        return K, True

    def without_negatives(self, rng: np.random.Generator) -> Dual:
        """Return the operator with a trace of positive eigenvalues alone; warn if others matter.

        No variance is negative: shares of the trace are those of its positive part.
        """
        if self.definite:
            return self
        found, other = negatives_of(self, rng), copy(self)
        warn_of_negatives(found)
        other.definite = True  # as far as solvers are concerned
        other.trace = self.trace if found.positive is None else found.positive
        return other

    def oriented(self, spectrum: Spectrum) -> Spectrum:
        """Return eigenpairs signed by the coordinates of the points, which weights do not change.

        A point of weight 2 has an entry √2 times as large as either of two equal points.
        """
        if spectrum.rank == 0 or not self.weighted:
            return spectrum  # signed already
        xp, root = backend.namespace(self.like), self._root
        safe = xp.where(root > 0, root, xp.full_like(root, np.inf))  # no weight, no say
        vectors = spectrum.vectors * algebra.signs(spectrum.vectors / safe[:, None])
        return replace(spectrum, vectors=vectors)

    def subspace(self, spectrum: Spectrum) -> Subspace:
        """Return the eigenvectors and the mean as expansions over the points.

        v_p = Σ_i (Hᵀ D^{1/2} e_p)_i φ(x_i) / √λ_p; a direction with λ_p = 0 is no direction, and
        its coefficients are 0.
        """
        xp = backend.namespace(self.like)
        root = xp.sqrt(spectrum.values)
        safe = xp.where(root > 0, root, xp.full_like(root, np.inf))
        coefficients = self._center(spectrum.vectors) / safe
        if self.centered:
            about = (self.weights / self.n, self.means @ coefficients, self.grand_mean)
        else:
            about = (xp.zeros_like(self.weights), 0 * root, 0.0)
        fused = isinstance(self.gram, Fused)
        return Subspace(self.gram.points, self.gram.kernel, coefficients, *about, fused=fused)

    def expansion(self, spectrum: Spectrum) -> Subspace | UncertainSubspace:
        """Return the same; over the expected features of rows that are known in part."""
        span, gram = self.subspace(spectrum), self.gram
        if not isinstance(gram, ExpectedGram):
            return span
        about = (span.coefficients, span.base, span.tilt, span.offset)
        return UncertainSubspace(gram.rows, gram.row_kernel, *about)

    def off_span(self, spectrum: Spectrum) -> Array:
        """Return the squared distance of every training point off the span, (n,), from λ and e.

        Kc_ii − Σ_p λ_p e_pi², with the weights taken out; 0 for a point without weight.
        """
        xp, w = backend.namespace(self.like), self.weights
        rest = self.diag() - (spectrum.vectors**2) @ spectrum.values
        rest = rest / xp.where(w > 0, w, xp.ones_like(w))
        return xp.where(rest < 0, xp.zeros_like(rest), rest)


# --- What centring takes away: the digits of a kernel whose values hardly differ -----------------

SMALLEST_SHARE = 5e-11
"""Of the size of a kernel, that centring may leave: five digits for exact solvers. Landmarks lose
directions below 1e-12."""


def warn_of_cancellation(X: Array, total: float, trace: float) -> None:
    """Warn where centring leaves little but rounding errors, although rows differ.

    Kernel values carry errors of ε·Σk(x, x), and tr Kc is all that is left of them: xᵀy of rows
    far from the origin, or an RBF far wider than the data, loses digits for good.
    Rows that are all the same have nothing to lose.

    Parameters
    ----------
    X : array of shape (n, d), or (n,) for items, which are not checked
    total : float
        Σk(x, x).
    trace : float
        tr Kc, what is left of it.

    Examples
    --------
    >>> import numpy as np, warnings
    >>> X = np.array([[1e8], [1e8 + 1]])
    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     warn_of_cancellation(X, total=2e16, trace=0.5)
    >>> len(found)
    1
    """
    if trace >= SMALLEST_SHARE * total or X.ndim != 2 or not _rows_differ(X):
        return
    share = trace / total
    left = max(int(-math.log10(EPS / share)), 0) if share > EPS else 0
    warn(
        f"centring leaves {max(share, 0.0):.1g} of the size of the kernel, and {left} of its 16 "
        "digits: coordinates and variances are no more accurate than that. Subtract the mean of X "
        "first, or use a kernel that tells these rows apart (a larger gamma).",
        SolverWarning,
    )


def _rows_differ(X: Array) -> bool:
    if backend.is_sparse(X):
        return bool(abs(X - X[[0] * X.shape[0]]).sum() > 0)
    return bool(backend.namespace(X).any(X != X[:1, :]))


# --- How indefinite an operator is: the sum of its negative eigenvalues --------------------------

ALL_EIGENVALUES_ORDER = 1500
"""Order up to which all eigenvalues are computed."""

QUADRATURE_PROBES, QUADRATURE_STEPS = 8, 10
"""Of the quadrature: random vectors, and products with them."""


def negatives_of(A: Operator, rng: np.random.Generator) -> Negatives:
    """Return how much of an operator is negative.

    Exact up to order 1,500; beyond, an estimate by stochastic Lanczos quadrature (Ubaru, Chen &
    Saad 2017) from 8 probes and 10 products with them.
    """
    m = A.shape[0]
    if m <= ALL_EIGENVALUES_ORDER:
        return negatives_of_matrix(backend.to_numpy(A.dense()), A.eps)
    return Negatives.of(*quadrature(A, rng), m * A.eps)


def negatives_of_matrix(K: Host, eps: float = EPS) -> Negatives:
    """Return the same of a matrix, (m, m): from a Cholesky factor, or from all eigenvalues."""
    if is_certainly_definite(K):
        return Negatives(0.0, float(K.trace()))
    return Negatives.of(np.linalg.eigvalsh(K), 1.0, K.shape[0] * eps)


def is_certainly_definite(K: Host) -> bool:
    """Return True if a Cholesky factor proves that negative eigenvalues are rounding errors.

    A small part of the cost of eigenvalues. The shift keeps their sum below `ROUNDING_SHARE`.
    """
    m, trace = K.shape[0], float(K.trace())
    if not trace > 0:
        return False
    shifted = K.T.copy(order="F")
    shifted.flat[:: m + 1] += 0.5 * ROUNDING_SHARE * trace / m
    return bool(dpotrf(shifted, lower=1, overwrite_a=1, clean=0)[1] == 0)


def quadrature(A: Operator, rng: np.random.Generator) -> tuple[Host, Host]:
    """Return nodes and weights with Σ weight·f(node) near tr f(A), from random probes."""
    m = A.shape[0]
    Q = [rng.choice([-1.0, 1.0], size=(m, QUADRATURE_PROBES)) / np.sqrt(m)]
    alphas, betas = np.zeros((2, QUADRATURE_STEPS, QUADRATURE_PROBES))
    for k in range(QUADRATURE_STEPS):
        R = backend.to_numpy(A @ backend.asarray(Q[k], A.like)).copy()
        alphas[k] = np.sum(Q[k] * R, axis=0)
        for _ in range(2):
            for other in Q:
                R -= other * np.sum(other * R, axis=0)
        betas[k] = np.linalg.norm(R, axis=0)
        Q.append(R / np.where(betas[k] > 0, betas[k], 1.0))
    rules = []  # the Gauss rule of every probe's tridiagonal matrix
    for alpha, beta in zip(alphas.T, betas[:-1].T, strict=True):
        values, vectors = np.linalg.eigh(np.diag(alpha) + np.diag(beta, 1) + np.diag(beta, -1))
        rules.append((values, m / QUADRATURE_PROBES * vectors[0] ** 2))
    nodes, weights = zip(*rules, strict=True)
    return np.concatenate(nodes), np.concatenate(weights)


def warn_of_negatives(found: Negatives) -> None:
    """Warn of negative eigenvalues that are more than rounding errors."""
    if found.positive is None:
        return
    negative, total, about = found.negative, found.total, "about " if found.estimated else ""
    warn(
        f"the kernel is indefinite: its negative eigenvalues sum to {about}{-negative:.3g}, "
        f"{negative / total:.2%} of all in magnitude. They are left out: components are those of "
        "the positive ones. Use a positive semi-definite kernel if they matter.",
        SpectrumWarning,
    )
