"""The Krylov space that eigenpairs and square roots of an operator are looked for in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import SolverWarning, warn
from dualpca.operators import Operator, Spectrum
from dualpca.solvers.base import Solver, is_factored, threads_for

# --- The Krylov space that eigenpairs and square roots of an operator are looked for in ----------

EPS = float(np.finfo(np.float64).eps)


def norms(A: Any, axis: int) -> Any:
    """Return lengths along an axis; no square leaves the range of float64 on the way."""
    scale = float(np.abs(A).max(initial=0.0))
    return (
        scale * np.linalg.norm(A / scale, axis=axis) if scale > 0 else np.zeros(A.shape[1 - axis])
    )


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
        T = self.T[: self.size, : self.size]
        xp = backend.namespace(T)
        values, weights = xp.linalg.eigh((T + T.T) / 2)
        return xp.flip(values, axis=0), xp.flip(weights, axis=1)

    def advance(self, rest: Array, values: Array, weights: Array, keep: int) -> bool:
        """Append the next block, restarting from `keep` Ritz vectors if there is no room."""
        lengths = norms(backend.to_numpy(rest), axis=1)
        kept = int(np.sum(lengths > 50 * EPS * max(float(values[0]), 0.0)))
        kept = min(kept, self.Qt.shape[1] - self.size)
        if kept == 0:
            return False
        if self.size + kept > self.capacity:
            self._restart(values, weights, min(keep, self.capacity - kept))
        self.Qt[self.size : self.size + kept, :] = self.next[:, :kept].T
        self.size, self.fresh = self.size + kept, kept
        return True

    def _restart(self, values: Array, weights: Array, keep: int) -> None:
        self.Qt[:keep, :] = self.combine(weights[:, :keep]).T
        self.T *= 0.0
        for p in range(keep):
            self.T[p, p] = values[p]
        self.size = keep


# --- Matrix-free block Krylov iteration with a stop on the error that is left --------------------

BASIS_BLOCKS, FEWEST_BLOCKS, BASIS_BYTES = 12, 6, 2**30
"""Blocks in a basis: so many, unless they would take more bytes than this, but never fewer."""
SETTLED = 0.1
"""Residual of an unwanted Ritz value, as a share of its distance from the wanted, that will do."""
SKETCH_STEP, SKETCH_PASSES, WORTH_A_SKETCH, RANDOM_SHARE = 16, 3, 1e8, 1e-2
"""Of a start by a sketch: every so many rows, products, multiply-adds of a pass from which it
pays, and the share of a random block that stays in."""
WORTH_A_GUESS = 32
"""Points a column of the block from which an operator's own guess pays."""
SINGLE_LEAST = 1e-11
"""Relative error of eigenvalues below which products in float32 cannot tell."""
SAFETY = 0.5
"""Share of `tol` that estimates must reach: they may be too small by a third."""
STEEPEST = 60.0
"""Largest power by which eigenvalues that were not computed are taken to fall."""
EXPENSIVE = 5e7
"""Multiply-adds of a product with one vector."""
TYPICAL_PASSES, SKINNY = 12, 2.0
"""For the cost: passes of a usual run, and how much slower a product with a thin block is."""


def block_size(rank: int, order: int, *, width_free: bool = False) -> int:
    """Return the width of a block: two fifths more than wanted, to separate the last ones.

    A multiple of 8, which suits vector registers; twice the number wanted where products with
    wide blocks cost little more than with thin ones.
    """
    width = 2 * rank + 4 if width_free else rank + max(4, 2 * rank // 5)
    return min(order, -(-width // 8) * 8)


def basis_blocks(order: int, width: int) -> int:
    """Return how many blocks to keep: 12, fewer where they would take more than a gigabyte."""
    return max(FEWEST_BLOCKS, min(BASIS_BLOCKS, BASIS_BYTES // (8 * order * width)))


@dataclass(frozen=True)
class Krylov(Solver):
    """Block Lanczos with full reorthogonalisation and thick restarts.

    A pass multiplies the operator with one block; nothing larger than the basis, 12 blocks, is
    kept. It works on the smaller of FᵀF and FFᵀ where both exist.

    The relative error of a Ritz value θ with residual ρ is at most min(ρ, ρ²/gap)/θ, the gap
    reaching from θ to what the operator still holds outside of the basis (Mathias 1998). The
    iteration stops when that is below `tol` for every wanted value, or when ρ is rounding error.

    Parameters
    ----------
    tol : float
        Relative eigenvalue error; 0 for machine precision.
    max_passes : int
        Products with a block before giving up with a `SolverWarning`.
    """

    name: ClassVar[str] = "krylov"
    aliases: ClassVar[tuple[str, ...]] = ("arpack", "randomized")
    on_kernels: ClassVar[bool] = True
    max_passes: int = 300

    @staticmethod
    def cost(operator: Any, rank: int) -> float:
        """Return the cost of a usual run; infinite where the blocks would fill the space."""
        m = smaller_side(operator).shape[0]
        b = block_size(rank, m)
        if 4 * b > m:
            return float("inf")
        return (
            TYPICAL_PASSES * b * float(SKINNY * operator.pass_cost + 4.0 * m * TYPICAL_PASSES * b)
        )

    def solve(self, operator: Operator, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the `rank` leading eigenpairs."""
        side = smaller_side(operator)
        with threads_for(side):
            return self._solve(operator, side, rank, rng)

    def _solve(
        self, operator: Operator, side: Operator, rank: int, rng: np.random.Generator
    ) -> Spectrum:
        rank = min(rank, side.shape[0])
        ritz, found, error, beyond = self._iterate(side, rank, rng)
        values, vectors = ritz[:rank], found[:, :rank]
        if is_single(side):
            values, vectors, error = rayleigh_ritz(side, found, rank, beyond)
        if error > self.tol and getattr(side, "coarse", False):
            sharp = side.sharper()  # type: ignore[attr-defined]
            ritz, found, error, seen = self._iterate(sharp, rank, rng, found)
            values, vectors, error = rayleigh_ritz(sharp, found, rank, max(seen, beyond))
        share = None  # left to random probes, unless a product more would be felt
        if operator.pass_cost > EXPENSIVE:
            share = concentration(ritz, operator.trace, side.shape[0], rank)
        if side is not operator:
            vectors = operator.unmirror(vectors)  # type: ignore[attr-defined]
        return Spectrum.of(values, vectors, operator.trace, operator.dim, error, share)

    def _iterate(
        self, A: Operator, rank: int, rng: np.random.Generator, start: Array | None = None
    ) -> tuple[Array, Array, float, float]:
        """Return Ritz values, vectors, their relative error, and what may be left outside."""
        m = A.shape[0]
        b = block_size(rank, m, width_free=getattr(A, "width_free", False))
        least = SINGLE_LEAST if is_single(A) else 0.0
        start = start_block(A, b, rng) if start is None else algebra.orthonormal(start)
        basis = Basis(start, min(m, basis_blocks(m, b) * b))
        for left in reversed(range(self.max_passes)):
            rest = basis.expand(A)
            values, weights = basis.ritz()
            part = rest @ weights[-rest.shape[1] :, :]
            errors, beyond, done = self._errors(values, part, rank, least)
            if not (done or left):
                self._warn(errors)
            if done or not left or not basis.advance(rest, values, weights, rank + b):
                break
        wide = is_single(A) and getattr(A, "width_free", False)
        vectors = basis.combine(weights[:, : max(rank, b) if wide else rank])
        return values, vectors, float(np.max(errors, initial=0.0)), beyond

    def _errors(
        self, values: Array, rest: Array, rank: int, least: float
    ) -> tuple[Any, float, bool]:
        """Return relative errors, the largest value left outside, and whether all is well."""
        theta = backend.to_numpy(values)
        rho = norms(backend.to_numpy(rest), axis=0)
        floor = 50 * EPS * max(theta[0], 0.0)
        beyond = unexplored(theta, rho, rank)
        gap = np.maximum(theta[:rank] - beyond, rho[:rank])
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = rho[:rank] * (rho[:rank] / gap) / theta[:rank]
            errors = np.where(rho[:rank] <= floor, 0.0, errors)
        return errors, beyond, bool(np.all(errors <= max(SAFETY * self.tol, least)))

    def _warn(self, errors: Any) -> None:
        warn(
            f"block Krylov stopped after {self.max_passes} passes with a relative eigenvalue "
            f"error near {np.max(errors):.1e}; {self.tol:.1e} was asked for. Raise tol, ask for "
            "fewer components, or use solver='dense'.",
            SolverWarning,
        )


def unexplored(theta: Any, rho: Any, rank: int) -> float:
    """Return the largest value that the operator may still hold outside of the basis.

    An unwanted Ritz value is settled when its residual is small beside its distance from the
    wanted ones; up to the first that is not, the basis holds the eigenvectors.
    """
    if theta.size <= rank:
        return 0.0
    unsettled = np.flatnonzero(rho[rank:] > SETTLED * (theta[rank - 1] - theta[rank:]))
    return float(theta[rank + unsettled[0]]) if unsettled.size else 0.0


def start_block(A: Any, b: int, rng: np.random.Generator) -> Array:
    """Return an orthonormal block, (m, b): random, then led towards the answer by a sketch.

    Three products with a sixteenth of the data cost a fifth of a pass and save two. A little of
    the random block stays in, for directions that the sketch does not see.
    """
    random = algebra.orthonormal(backend.normal(rng, (A.shape[0], b), A.like))
    if hasattr(A, "guess") and A.shape[0] >= WORTH_A_GUESS * b:
        return algebra.orthonormal(algebra.orthonormal(A.guess(random)) + RANDOM_SHARE * random)
    if A.pass_cost * b < WORTH_A_SKETCH or not can_sketch(A):
        return random
    small, block = A.sketch(SKETCH_STEP), random
    for _ in range(SKETCH_PASSES):
        block = algebra.orthonormal(small @ block)
    return algebra.orthonormal(block + RANDOM_SHARE * random)


def can_sketch(A: Any) -> bool:
    """Return True if a part of the data stands for the operator: dense rows, and enough of them."""
    rows = getattr(A, "X", getattr(getattr(A, "mirror", None), "X", None))
    return hasattr(A, "sketch") and rows is not None and not backend.is_sparse(rows)


def concentration(ritz: Array, trace: float, order: int, rank: int) -> float | None:
    """Return an estimate of Σλ²/(Σλ)² over all eigenvalues.

    Those wanted and a few more are known; the others are taken to fall as a power of their
    number, from the last known one, with the power that gives their known sum.
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
    power = STEEPEST if steep else brentq(lambda a: p[-1] * np.sum(number**-a) - rest, 0, STEEPEST)
    return float(p @ p) + float(p[-1] ** 2 * np.sum(number ** (-2 * power)))


def is_single(A: Any) -> bool:
    """Return True if products with A carry the rounding errors of float32."""
    return bool(getattr(A, "single", False))


def rayleigh_ritz(A: Any, vectors: Array, rank: int, beyond: float) -> tuple[Array, Array, float]:
    """Return `rank` eigenpairs from one accurate product, and the largest relative error left.

    Errors of the vectors enter the values squared, over the gap to what lies `beyond` all that
    was explored, so rounding errors of float32 in the basis leave no trace there. More vectors
    than wanted, where their products cost nothing, take up what rounding mixed into the last.
    """
    Q = algebra.orthonormal(vectors)
    Z = A.times_in_double(Q)
    T, xp = Q.T @ Z, backend.namespace(Q)
    values, weights = xp.linalg.eigh((T + T.T) / 2)
    values, weights = xp.flip(values, axis=0), xp.flip(weights, axis=1)
    values, weights = values[:rank], weights[:, :rank]
    vectors = Q @ weights
    theta = np.maximum(backend.to_numpy(values), np.finfo(np.float64).tiny)
    R = (Z @ weights - vectors * values) / float(theta[0])  # so that squares stay within range
    rest = float(theta[0]) * np.sqrt(backend.to_numpy(xp.sum(R * R, axis=0)))
    gap = np.maximum(theta - beyond, rest)
    return values, vectors, float(np.max(rest / theta * np.minimum(rest / gap, 1.0), initial=0.0))


def smaller_side(operator: Operator) -> Operator:
    """Return FFᵀ in place of FᵀF where it is smaller."""
    if is_factored(operator) and operator.mirror.shape[0] < operator.shape[0]:  # type: ignore[attr-defined]
        return operator.mirror  # type: ignore[attr-defined,no-any-return]
    return operator
