"""Krylov spaces of operators that need not be stored: eigenpairs and square roots.

One vector at a time on a kernel that can be formed or on sparse rows (`lanczos`), or a block at a
time on anything (`Krylov`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import optimize

from dualpca.arrays import EPS, Array, algebra, backend
from dualpca.data import Host
from dualpca.errors import SolverWarning, warn
from dualpca.operators import (
    ALL_EIGENVALUES_ORDER,
    Factored,
    Negatives,
    Operator,
    Spectrum,
    is_certainly_definite,
    negatives_of_matrix,
)
from dualpca.solvers.base import OF_DOUBLE, KernelOptions, Solver, attainable, threads_for
from dualpca.solvers.dense import (
    EIGH_FULL,
    LOOK_STEPS,
    STEP_COST,
    MatrixProducts,
    Products,
    Remainder,
    basis_size,
    leading_pairs,
    pairs_cost,
)

# --- One vector at a time: a kernel that can be formed, or sparse rows ---------------------------

ORTHOGONALISE = 8.0
"""How many times longer than a large product orthogonalisation takes."""

ALONE = 5.0
"""How many times longer than a large product one with a single vector takes, where the operator is
not stored."""

MOST_RESTARTS = 50
"""Where the operator is not stored; blocks follow."""


CERTAIN_ORDER = 256
"""Order up to which a Cholesky factor takes little time beside the eigenpairs."""


def lanczos_cost(operator: Operator, rank: int) -> float:
    """Return the cost in multiply-adds of a large matrix product; infinite if unsuitable."""
    m = operator.shape[0]
    if 2 * basis_size(rank) > m or rank < 1:
        return float("inf")
    if operator.one_by_one:
        steps = basis_size(rank) + LOOK_STEPS
        return steps * (STEP_COST + ALONE * operator.pass_cost + ORTHOGONALISE * m * steps)
    return operator.dense_cost + pairs_cost(m, rank) if operator.formable else float("inf")


class RowProducts(Products):
    """FᵀF of sparse rows, in the precision of the rows; sums over blocks of them run in float64."""

    def __init__(self, operator: Factored) -> None:
        super().__init__(operator.shape)
        self.operator, self.eps = operator, operator.given_eps
        self.single = self.eps > EPS

    def matvec(self, v: Host) -> Host:  # type: ignore[override]
        """Return FᵀF v."""
        V = v.reshape(-1, 1)
        found = self.operator @ (V.astype(np.float32) if self.single else V)
        return np.asarray(found[:, 0], dtype=np.float64)

    def refined(self, vectors: Host) -> tuple[Host, Host]:
        """Return eigenpairs among combinations of vectors, ascending, from products in float64."""
        Y = self.operator.half(vectors)
        values, weights = np.linalg.eigh(Y.T @ Y)
        return values, vectors @ weights


def lanczos(operator: Operator, rank: int, tol: float, rng: np.random.Generator) -> Spectrum | None:
    """Return leading eigenpairs, one vector at a time; None if some may be missing.

    Parameters
    ----------
    operator : Operator
        On the host: a matrix that can be formed, or sparse rows.
    rank : int
    tol : float
        Relative eigenvalue error that may remain; residuals are those of `attainable` if 0.
    rng : Generator
        Draws the start vectors.

    Notes
    -----
    O(m²) a step, 2.5q + 34 steps usually, and the matrix, (m, m): ten components of 1,500 points
    take 54 ms, with blocks 120. Of sparse rows a step is a product with one vector, and nothing is
    formed.
    """
    with backend.threads_outside(operator.like):
        best, restarts = attainable(operator), None
        residual = max(best.residual, 0.5 * tol)
        A: RowProducts | MatrixProducts
        if isinstance(operator, Factored) and operator.one_by_one:
            A, restarts = RowProducts(operator), MOST_RESTARTS
            if best is OF_DOUBLE:  # to the last digit: that is a few steps more
                residual = 0.5 * tol
        else:
            A = MatrixProducts(*operator.matrix())
        found = leading_pairs(A, rank, residual, rng, restarts)
        if found is None:
            return None
        values, vectors, rest = found
        if isinstance(A, RowProducts) and A.single:
            values, vectors = A.refined(vectors)
        residual = max(residual, EPS)
        gap = np.maximum(values - rest.high, residual * values)
        error = float(np.max(residual * np.minimum(1.0, residual * values / gap)))
        negatives = None
        if isinstance(A, MatrixProducts) and not operator.definite:
            negatives = _negatives(operator, A, rest, values)
        trace = operator.trace
    return Spectrum.of(values, vectors, trace, operator.dim, error, negatives=negatives)


def _negatives(
    operator: Operator, A: MatrixProducts, rest: Remainder, values: Host
) -> Negatives | None:
    """Return how much of an operator is negative, whose leading eigenvalues are known.

    If that can be counted later, what the look estimated is enough until someone asks: counting
    takes a fit to 1,000 points from 18 to 107 ms. A Cholesky factor of the matrix, or of a part
    where that is large, sees more than the look.
    """
    m = operator.shape[0]
    few, indefinite = m <= ALL_EIGENVALUES_ORDER, rest.low < -m * operator.eps * values[-1]
    if indefinite and operator.lasting:
        positive = max(operator.trace + rest.negative, float(values.sum()))
        return Negatives(rest.negative, positive + rest.negative, estimated=True)
    if few and (indefinite or not is_certainly_definite(A.corner(CERTAIN_ORDER))):
        return negatives_of_matrix(A.centred(), operator.eps)
    if indefinite:
        return None
    return Negatives(0.0, operator.trace, operator.lasting and CERTAIN_ORDER < m and few)


# --- The Krylov space that eigenpairs and square roots of an operator are looked for in ----------


def norms(A: Host, axis: int) -> Host:
    """Return lengths along an axis; no square leaves the range of float64 on the way."""
    scale = float(np.abs(A).max(initial=0.0))
    found: Host = scale * np.linalg.norm(A / (scale or 1.0), axis=axis)
    return found


def descending_eigh(T: Array) -> tuple[Array, Array]:
    """Return the eigenpairs of a nearly symmetric matrix, largest first."""
    xp = backend.namespace(T)
    values, vectors = xp.linalg.eigh((T + T.T) / 2)
    return xp.flip(values, axis=0), xp.flip(vectors, axis=1)


class Basis:
    """An orthonormal basis Q of a Krylov space, kept as rows Qᵀ, and T = QᵀAQ."""

    def __init__(self, start: Array, capacity: int) -> None:
        m, self.size = start.shape
        self.fresh = self.size  # vectors whose product with A is not known yet
        self.capacity = max(capacity, self.size)
        self.Qt = backend.asarray(np.zeros((self.capacity, m)), start)
        self.T = backend.asarray(np.zeros((self.capacity, self.capacity)), start)
        self.Qt[: self.size, :] = start.T

    def combine(self, weights: Array) -> Array:
        """Return Q times `weights`, (m, k)."""
        return (weights.T @ self.Qt[: self.size, :]).T

    def expand(self, A: Operator) -> Array:
        """Multiply the fresh vectors by A; keep QᵀAQ, return R of the part outside of Q.

        The orthonormal factor of that part, the next block, is orthogonalised again once it has
        unit length: directions of little more than rounding size would spoil the basis.
        """
        old = self.size - self.fresh
        Qt = self.Qt[: self.size, :]
        Zt = (A @ Qt[old:, :].T).T
        Ht = Zt @ Qt.T
        self.T[old : self.size, : self.size] = Ht
        self.T[: self.size, old : self.size] = Ht.T
        U, s, Vt = algebra.svd((Zt - Ht @ Qt).T)
        self.next = algebra.orthonormal(U - (U.T @ Qt.T @ Qt).T)
        return s[:, None] * Vt

    def ritz(self) -> tuple[Array, Array]:
        """Return the eigenpairs of T, largest first."""
        return descending_eigh(self.T[: self.size, : self.size])

    def advance(self, rest: Array, values: Array, weights: Array, keep: int) -> bool:
        """Append the next block, restarting from `keep` Ritz vectors if there is no room."""
        lengths = norms(backend.to_numpy(rest), axis=1)
        kept = int(np.sum(lengths > 50 * EPS * max(float(values[0]), 0.0)))
        kept = min(kept, self.Qt.shape[1] - self.size)
        if kept == 0:
            return False
        if self.size + kept > self.capacity:
            self.Qt[:keep, :] = self.combine(weights[:, :keep]).T
            self.T *= 0.0
            for p in range(keep):
                self.T[p, p] = values[p]
            self.size = keep
        self.Qt[self.size : self.size + kept, :] = self.next[:, :kept].T
        self.size, self.fresh = self.size + kept, kept
        return True


# --- Matrix-free block Krylov iteration with a stop on the error that is left --------------------

BASIS_BLOCKS, FEWEST_BLOCKS, BASIS_BYTES = 16, 6, 2**30
"""Blocks in a basis: so many, unless they would take more bytes than this, but never fewer."""
SETTLED = 0.1
"""Residual of an unwanted Ritz value, as a share of its distance from the wanted, that will do."""
SKETCH_STEP, SKETCH_PASSES, WORTH_A_SKETCH, RANDOM_SHARE = 16, 3, 1e8, 1e-2
"""Of a start by a sketch: every so many rows, products, multiply-adds of a pass from which it
pays, and the share of a random block that stays in."""
WORTH_A_GUESS = 32
"""Points a column of the block from which an operator's own guess pays."""
SAFETY = 0.5
"""Share of `tol` that estimates must reach: they may be too small by a third."""
STEEPEST = 60.0
"""Largest power by which eigenvalues that were not computed are taken to fall."""
EXPENSIVE = 5e7
"""Multiply-adds of a product with one vector."""
TYPICAL_PASSES, SKINNY = 12, 2.0
"""For the cost: passes of a usual run, and how much slower a product with a thin block is than a
large one."""
PASS_COST, NEGATIVES_COST = 1e7, 240.0
"""Multiply-adds that last as long as the calls of a pass, whatever the size; products with one
vector that last as long as the search for negative eigenvalues."""


def block_size(rank: int, order: int, *, width_free: bool = False) -> int:
    """Return the width of a block: a fifth more than wanted, to separate the last ones.

    A multiple of 8, which suits vector registers; twice the number wanted where products with
    wide blocks cost little more than with thin ones.
    """
    width = 2 * rank + 4 if width_free else rank + max(4, rank // 5)
    return min(order, -(-width // 8) * 8)


@dataclass(frozen=True)
class Krylov(Solver):
    """Block Lanczos with full reorthogonalisation and thick restarts.

    A pass multiplies the operator with one block; nothing larger than the basis, 16 blocks, is
    kept. It works on the smaller of FᵀF and FFᵀ where both exist.

    The relative error of a Ritz value θ with residual ρ is at most min(ρ, ρ²/gap)/θ, the gap
    reaching from θ to what the operator still holds outside of the basis (Mathias 1998). The
    iteration stops when that is below `tol` for every wanted value; where `tol` is 0, when it is
    rounding error of the rows and ρ/gap, the angle of the vector, is below 5e-10, or below 1e-5 for
    float32 rows (`attainable`).

    Parameters
    ----------
    tol : float
        Relative eigenvalue error; 0 for the precision of the rows.
    max_passes : int
        Products with a block before giving up with a `SolverWarning`.
    thin : bool
        Go one vector at a time (`solvers.lanczos`) where that is cheaper, with blocks if it fails.
    """

    name: ClassVar[str] = "krylov"
    aliases: ClassVar[tuple[str, ...]] = ("arpack", "randomized")
    svd_names: ClassVar[tuple[str, ...]] = aliases
    draws: ClassVar[bool] = True
    on_kernels: ClassVar[bool] = True
    on_chunks: ClassVar[bool] = True
    max_passes: int = 300
    thin: bool = False

    @classmethod
    def of(cls, how: KernelOptions) -> Krylov:
        """Return the solver for kernels: one vector at a time unless it was asked for by name."""
        passes = cls.max_passes if how.max_passes is None else how.max_passes
        return cls(how.tol, passes, thin=how.entry is None)

    @classmethod
    def gains(cls, operator: Operator, rank: int) -> bool:
        """Return True unless a block would fill the space."""
        return not math.isinf(cls.cost(operator, rank))

    @staticmethod
    def cost(operator: Operator, rank: int) -> float:
        """Return the cost of a usual run; infinite where the blocks would fill the space."""
        thin = lanczos_cost(smaller_side(operator), rank)
        return min(Krylov.block_cost(operator, rank), thin)

    @staticmethod
    def block_cost(operator: Operator, rank: int) -> float:
        """Return the cost with blocks."""
        m = smaller_side(operator).shape[0]
        b = block_size(rank, m)
        if 4 * b > m:
            return float("inf")
        work = SKINNY * operator.pass_cost + ORTHOGONALISE * m * TYPICAL_PASSES * b
        found = TYPICAL_PASSES * (b * float(work) + PASS_COST + EIGH_FULL * (6.0 * b) ** 3)
        return found + (0.0 if operator.definite else NEGATIVES_COST * float(operator.pass_cost))

    def solve(self, operator: Operator, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the `rank` leading eigenpairs."""
        side, found = smaller_side(operator), None
        thin = self.thin or side.one_by_one
        if thin and lanczos_cost(side, rank) < self.block_cost(operator, rank):
            found = lanczos(side, rank, self.tol, rng)
        if found is None:
            with threads_for(side):
                found = self._by_blocks(side, min(rank, side.shape[0]), rng)
        if not isinstance(operator, Factored) or side is operator:
            return found
        vectors = algebra.deterministic_signs(operator.unmirror(found.vectors))
        return replace(found, vectors=vectors)

    def _by_blocks(self, A: Operator, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the leading eigenpairs; those of coarse products are led to the end by others."""
        ritz, found, error, beyond = self._iterate(A, rank, rng)
        values, vectors = ritz[:rank], found[:, :rank]
        if A.single:
            values, vectors, error = rayleigh_ritz(A, found, rank, beyond)
        if error > self.tol and A.coarse:
            sharp = A.sharper()
            ritz, found, error, seen = self._iterate(sharp, rank, rng, found)
            values, vectors, error = rayleigh_ritz(sharp, found, rank, max(seen, beyond))
        share = None  # left to random probes, unless a product more would be felt
        if A.pass_cost > EXPENSIVE:
            share = extrapolated_concentration(ritz, A.trace, A.shape[0], rank)
        return Spectrum.of(values, vectors, A.trace, A.dim, error, share)

    def _iterate(
        self, A: Operator, rank: int, rng: np.random.Generator, start: Array | None = None
    ) -> tuple[Array, Array, float, float]:
        """Return Ritz values, vectors, their relative error, and what may be left outside."""
        m = A.shape[0]
        b = block_size(rank, m, width_free=A.width_free)
        start = start_block(A, b, rng) if start is None else algebra.orthonormal(start)
        blocks = max(FEWEST_BLOCKS, min(BASIS_BLOCKS, BASIS_BYTES // (8 * m * b)))
        basis = Basis(start, min(m, blocks * b))
        for left in reversed(range(self.max_passes)):
            rest = basis.expand(A)
            values, weights = basis.ritz()
            part = rest @ weights[-rest.shape[1] :, :]
            errors, beyond, done = self._errors(A, values, part, rank)
            if not (done or left):
                warn(
                    f"block Krylov stopped after {self.max_passes} passes with a relative "
                    f"eigenvalue error near {np.max(errors):.1e}; {self.tol:.1e} was asked for. "
                    "Raise tol, ask for fewer components, or use solver='dense'.",
                    SolverWarning,
                )
            if done or not left or not basis.advance(rest, values, weights, rank + b):
                break
        vectors = basis.combine(weights[:, : max(rank, b) if A.single and A.width_free else rank])
        return values, vectors, float(np.max(errors, initial=0.0)), beyond

    def _errors(
        self, A: Operator, values: Array, rest: Array, rank: int
    ) -> tuple[Host, float, bool]:
        """Return relative errors, the largest value left outside, and whether all is well."""
        best = attainable(A)
        theta = backend.to_numpy(values)
        rho = norms(backend.to_numpy(rest), axis=0)
        floor = max(50 * EPS * max(theta[0], 0.0), A.noise)
        beyond = unexplored(theta, rho, rank)
        gap = np.maximum(theta[:rank] - beyond, rho[:rank])
        with np.errstate(divide="ignore", invalid="ignore"):
            angle = rho[:rank] / gap
            errors = rho[:rank] * angle / theta[:rank]
            settled = (rho[:rank] <= floor) | ((errors <= best.value) & (angle <= best.angle))
            errors = np.where(settled, 0.0, errors)
        return errors, beyond, bool(np.all(errors <= SAFETY * self.tol))


def unexplored(theta: Host, rho: Host, rank: int) -> float:
    """Return the largest value that the operator may still hold outside of the basis.

    An unwanted Ritz value is settled when its residual is small beside its distance from the
    wanted ones; up to the first that is not, the basis holds the eigenvectors.
    """
    if theta.size <= rank:
        return 0.0
    unsettled = np.flatnonzero(rho[rank:] > SETTLED * (theta[rank - 1] - theta[rank:]))
    return float(theta[rank + unsettled[0]]) if unsettled.size else 0.0


def start_block(A: Operator, b: int, rng: np.random.Generator) -> Array:
    """Return an orthonormal block, (m, b): random, then led towards the answer by a sketch.

    Three products with a sixteenth of the data cost a fifth of a pass and save two (20,000×1,000
    rows of rank 20: 244 ms, 286 without). A little of the random block stays in, for directions
    that the sketch does not see.
    """
    random = algebra.orthonormal(backend.normal(rng, (A.shape[0], b), A.like))
    led = A.guess(random) if A.shape[0] >= WORTH_A_GUESS * b else None
    if led is not None:
        return algebra.orthonormal(algebra.orthonormal(led) + RANDOM_SHARE * random)
    small = A.sketch(SKETCH_STEP) if A.pass_cost * b >= WORTH_A_SKETCH else None
    if small is None:
        return random
    block = random
    for _ in range(SKETCH_PASSES):
        block = algebra.orthonormal(small @ block)
    return algebra.orthonormal(block + RANDOM_SHARE * random)


def extrapolated_concentration(ritz: Array, trace: float, order: int, rank: int) -> float | None:
    """Return an estimate of Σλ²/(Σλ)² over all eigenvalues.

    Those wanted and a few more are known; the others are taken to fall as a power of their
    number, from the last known one, with the power that gives their known sum. A product with
    random probes in its place takes PCA of 20,000×2,000 rows from 0.45 to 0.54 s.
    """
    if not trace > 0:
        return None
    known = rank + max(1, (block_size(rank, order) - rank) // 2)
    p = np.clip(backend.to_numpy(ritz)[:known] / trace, 0.0, None)
    number = np.arange(p.size + 1, order + 1) / p.size
    rest = max(1.0 - float(p.sum()), 0.0)
    if number.size == 0 or p[-1] * number.size <= rest:
        return float(p @ p) + (rest * rest / number.size if number.size else 0.0)
    steep = p[-1] * np.sum(number**-STEEPEST) > rest
    power = (
        STEEPEST
        if steep
        else optimize.brentq(lambda a: p[-1] * np.sum(number**-a) - rest, 0, STEEPEST)
    )
    return float(p @ p) + float(p[-1] ** 2 * np.sum(number ** (-2 * power)))


def rayleigh_ritz(
    A: Operator, vectors: Array, rank: int, beyond: float
) -> tuple[Array, Array, float]:
    """Return `rank` eigenpairs from one accurate product, and the largest relative error left.

    Errors of the vectors enter the values squared, over the gap to what is `beyond` all that
    was explored, so rounding errors of float32 in the basis leave no trace there. More vectors
    than wanted, where their products cost nothing, take up what rounding mixed into the last.
    """
    Q = algebra.orthonormal(vectors)
    Z = A.times_in_double(Q)
    values, weights = descending_eigh(Q.T @ Z)
    values, weights = values[:rank], weights[:, :rank]
    vectors = Q @ weights
    theta = np.maximum(backend.to_numpy(values), np.finfo(np.float64).tiny)
    R = (Z @ weights - vectors * values) / float(theta[0])  # so that squares stay within range
    rest = float(theta[0]) * np.sqrt(backend.to_numpy(backend.namespace(R).sum(R * R, axis=0)))
    gap = np.maximum(theta - beyond, rest)
    return values, vectors, float(np.max(rest / theta * np.minimum(rest / gap, 1.0), initial=0.0))


def smaller_side(operator: Operator) -> Operator:
    """Return FFᵀ in place of FᵀF where it is smaller."""
    sides = [operator, operator.mirror] if isinstance(operator, Factored) else [operator]
    return min(sides, key=lambda side: side.shape[0])


# --- Square roots: A^{1/2} times vectors, with no spectrum and no matrix --------------------------

COLUMNS_AT_ONCE = 16
"""Vectors that share a Krylov space."""

DEPENDENT = 100 * EPS
"""Share of the largest singular value of a block below which others are rounding errors."""


class Root(NamedTuple):
    """A^{1/2}V, and what it took."""

    product: Array  # (m, b)
    passes: int
    error: float  # estimate, relative to ‖A^{1/2}V‖


def root_times(operator: Operator, V: Array, *, tol: float = 1e-8, max_passes: int = 100) -> Root:
    """Return A^{1/2} V for a positive semi-definite operator A known through its products.

    A^{1/2}V ≈ Q T^{1/2} QᵀV with Q an orthonormal basis of span{V, AV, …, A^kV} and T = QᵀAQ
    (block Lanczos, fully reorthogonalised; Chow & Saad 2014). A pass costs one product with a
    block; memory is the basis, one (m, b) block a pass.

    Parameters
    ----------
    operator : Operator
        A, (m, m).
    V : array of shape (m, b)
    tol : float
        Estimated error, relative to ‖A^{1/2}V‖, at which to stop.
    max_passes : int
        Products with a block before giving up with a `SolverWarning`.

    Returns
    -------
    Root

    Notes
    -----
    The error left is estimated from the last two changes as that of a geometric sequence, whose
    rate is held below 1 − 1/k: where A has no gap above 0 the error falls as 1/k only.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.operators import Dual
    >>> X = np.array([[0.0], [3.0], [6.0]])
    >>> root_times(Dual(X, center=False), np.eye(3)).product.round(4)[1]
    array([0.    , 1.3416, 2.6833])
    """
    xp = backend.namespace(V)
    cuts = backend.slices(int(V.shape[1]), COLUMNS_AT_ONCE)
    with threads_for(operator):
        parts = [_block_root(operator, V[:, cut], tol, max_passes) for cut in cuts]
    if not parts:
        return Root(V, 0, 0.0)
    error = max(part.error for part in parts)
    if error > tol:
        warn(
            f"Lanczos stopped after {max_passes} passes with a relative error near {error:.1e} in "
            f"the square root; {tol:.1e} was asked for. Raise tol.",
            SolverWarning,
        )
    product = xp.concat([part.product for part in parts], axis=1)
    return Root(product, sum(part.passes for part in parts), error)


def _block_root(operator: Operator, V: Array, tol: float, max_passes: int) -> Root:
    """Return A^{1/2}V of one block; exact where its Krylov space is invariant under A."""
    xp = backend.namespace(V)
    U, s, Vt = algebra.svd(V)
    b = int((backend.to_numpy(s) > DEPENDENT * float(s[0])).sum()) if s.shape[0] else 0
    if b == 0:
        return Root(0 * V, 0, 0.0)
    R = s[:b, None] * Vt[:b, :]  # V = U R, with the b columns of U that V spans
    basis = Basis(U[:, :b], min(V.shape[0], (max_passes + 1) * b))
    before, found = math.inf, 0 * R
    for k in range(1, max_passes + 1):
        rest = basis.expand(operator)
        values, weights = basis.ritz()
        # T^{1/2} times the coordinates of V in the basis; rounding below 0 counts as 0
        root = xp.sqrt(xp.where(values < 0, xp.zeros_like(values), values))
        last, found = found, (weights * root) @ (weights[:b, :].T @ R)
        # of two nested bases, the smaller one has zeros where the larger one has more vectors
        held = int(last.shape[0])
        change = math.hypot(_norm(found[:held, :] - last), _norm(found[held:, :]))
        rate = min(change / before, 1 - 1 / k) if before > 0 else 0.0
        size = _norm(found)
        error = change / (1 - rate) / size if size > 0 else 0.0
        before = change
        if error <= tol or k == max_passes:
            break
        if not basis.advance(rest, values, weights, basis.size):
            error = 0.0
            break
    return Root(basis.combine(found), k, error)


def _norm(A: Array) -> float:
    return float(backend.namespace(A).linalg.vector_norm(A))
