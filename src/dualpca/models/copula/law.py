"""The law of latent coordinates: posteriors, densities, conditional laws and draws of rows.

z = Wt + ε with t ~ N(0, I_q), ε ~ N(0, Ψ). Scalar coordinates have variance 1: ‖w_j‖² + ψ_j = 1. A
nominal column of K levels has K coordinates ζ of unit noise, and shows the level k of the largest
ζ_k + m_k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, TypeVar

import numpy as np
from scipy import special

from dualpca.arrays import Array, algebra, backend, cached_property
from dualpca.data import Host
from dualpca.errors import expected
from dualpca.gaussian.truncated import log_probability, truncated_draws
from dualpca.models.copula.propagation import (
    EP_TOLERANCE,
    LatentRows,
    LevelLaws,
    Propagation,
    RowBlock,
    RowPosteriors,
    cavity,
    level_laws,
    log_level_probabilities,
    packed_form,
    packed_inverse,
    packed_root,
    packed_times,
    shape_of,
)
from dualpca.models.driver import History

Result = TypeVar("Result")

# --- The model -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CopulaConditional:
    """The law of every entry given the other known entries of its row; normal where scalar."""

    mean: Host  # (n, s)
    variance: Host  # (n, s)
    probabilities: tuple[Host, ...]  # (n, K) of each nominal column


@dataclass(frozen=True)
class CopulaFactors:
    """z = Wt + ε, t ~ N(0, I), ε ~ N(0, Ψ): scalar coordinates, then the levels of each column.

    Scalar coordinates have variance 1. Level k of a nominal column is where ζ_k + m_k is largest,
    with unit noise; loadings and shifts of a column sum to 0, as only their differences matter.
    """

    W: Annotated[Array, "d q"]
    psi: Annotated[Array, "d", ">= 0"]
    shifts: Annotated[Array, "l"]  # m
    frequencies: Annotated[Array, "l", ">= 0"]  # of the levels, which the shifts give
    sizes: tuple[Annotated[int, ">= 1"], ...] = ()  # K of each nominal column
    history: History | None = None

    @property
    def q(self) -> int:
        """The number of latents."""
        return int(self.W.shape[1])

    @property
    def s(self) -> int:
        """The number of scalar coordinates."""
        return int(self.W.shape[0]) - sum(self.sizes)

    @property
    def correlation(self) -> Host:
        """WWᵀ + Ψ of the scalar coordinates, (s, s)."""
        W = self.W[: self.s]
        return np.asarray(W @ W.T + np.diag(self.psi[: self.s]))

    @cached_property
    def parts(self) -> tuple[slice, ...]:
        """Where the levels of each nominal column are among all levels."""
        edges = np.cumsum((0, *self.sizes))
        return tuple(slice(int(a), int(b)) for a, b in pairwise(edges))

    def loadings_of(self, column: int) -> Host:
        """Return the loadings of the levels of a nominal column, (K, q)."""
        return np.asarray(self.W[self.s :][self.parts[column]])

    def comparisons(self, column: int, k: int) -> tuple[Host, Host]:
        """Return w_k − w_l and m_k − m_l for the other levels l, (K − 1, q) and (K − 1,)."""
        w, m = self.loadings_of(column), self.shifts[self.parts[column]]
        others = np.arange(m.size) != k
        return w[k] - w[others], m[k] - m[others]

    @cached_property
    def level_laws(self) -> tuple[LevelLaws, ...]:
        """What EP says of every level of each nominal column alone."""
        return self.found_near(None)

    def found_near(self, laws: tuple[LevelLaws, ...] | None) -> tuple[LevelLaws, ...]:
        """Return `level_laws`, found from those of other factors, and keep them."""
        found = []
        for column in range(len(self.sizes)):
            w = self.loadings_of(column)
            mean = self.shifts[self.parts[column]][:, None]
            before = None if laws is None else laws[column]
            found.append(level_laws(mean, (w @ w.T)[:, :, None], before))
        kept: tuple[LevelLaws, ...] = vars(self).setdefault("level_laws", tuple(found))
        return kept

    @cached_property
    def level_evidence(self) -> tuple[Host, ...]:
        """Log-probability of every level of each nominal column alone, as EP has it, (K,)."""
        return tuple(law.log_mass[:, 0] for law in self.level_laws)

    # --- rows

    def _each(
        self,
        rows: LatentRows,
        result: Callable[[Propagation, RowPosteriors], Result],
        tol: float = EP_TOLERANCE,
    ) -> list[Result]:
        """Return a result of every block of rows after EP, in order."""
        if rows.low.shape[1] != self.s or rows.sizes != self.sizes:
            what = f"{self.s} scalar coordinates and nominal columns of sizes {self.sizes}"
            raise ValueError(expected("rows", what, (rows.low.shape[1], rows.sizes)))

        def work(cut: slice) -> list[Result]:
            run = Propagation(self, RowBlock(rows, cut), None)
            return [result(run, run.run(tol))]

        with backend.threads_outside(rows.low):
            return backend.summed(work, lambda a, b: a + b, shape_of(rows))

    def posterior(self, rows: LatentRows) -> tuple[Host, Host]:
        """Return mean (n, q) and covariance (n, q, q) of t given what each row knows."""

        def moments(run: Propagation, found: RowPosteriors) -> tuple[Host, Host]:
            return found.mean.T, algebra.unpack(found.C.T, self.q)

        mean, covariance = zip(*self._each(rows, moments), strict=True)
        return np.concatenate(mean), np.concatenate(covariance)

    def log_evidence(self, rows: LatentRows) -> Host:
        """Return ln P of what each row knows, relative to independent columns, (n,), by EP.

        Densities and probabilities are divided by those of the columns on their own, so that no
        monotone change of a column's units matters; 0 for rows that know one entry or none.
        """
        return np.concatenate(self._each(rows, lambda run, found: run.log_evidence(found)))

    def conditional(
        self, rows: LatentRows, asked: Host | None = None, tol: float = EP_TOLERANCE
    ) -> CopulaConditional:
        """Return the law of every entry given the OTHER known entries of its row.

        Of missing entries: given the row. Scalar coordinates have normal laws, as t has in EP.
        Where `asked`, a mask (n, c) of missing levels, is given, only theirs are told: the
        probabilities of column c are those of its masked rows in turn.
        """

        def entries(run: Propagation, found: RowPosteriors) -> tuple[Host, ...]:
            T, N = run.block.known / run.psi[:, None], run.block.z / run.psi[:, None]
            T[run.block.columns] += run.dense(run.sites[0])
            N[run.block.columns] += run.dense(run.sites[1])
            mean, variance = run.W @ found.mean, packed_form(run.W) @ found.C
            mean, variance = cavity(mean, variance, T, N)
            own = None if asked is None else asked[run.block.cut]
            levels = [self._probabilities(run, found, c, own) for c in range(len(self.sizes))]
            return mean.T, (variance + run.psi[:, None]).T, *(p.T for p in levels)

        found = self._each(rows, entries, tol)
        mean, variance, *levels = map(np.concatenate, zip(*found, strict=True))
        return CopulaConditional(mean, variance, tuple(levels))

    def _probabilities(
        self, run: Propagation, found: RowPosteriors, column: int, asked: Host | None
    ) -> Host:
        """Return probabilities of the levels of one column given the rest of each row, (K, b).

        Each is its frequency times the ratio of EP's evidence with and without the rest of the
        row, so that what EP gets wrong for a column on its own cancels.
        """
        if asked is None:
            C, mean = self._without(run, found, column)
        else:
            at = np.flatnonzero(asked[:, column])
            C, mean = found.C[:, at], found.mean[:, at]
        w, part = self.loadings_of(column), self.parts[column]
        eta = w @ mean + self.shifts[part][:, None]
        full = algebra.unpack(C.T, self.q)
        covariance = np.moveaxis(w @ full @ w.T, 0, -1)
        logs = log_level_probabilities(eta, covariance) - self.level_evidence[column][:, None]
        p = self.frequencies[part][:, None] * np.exp(logs - logs.max(axis=0))
        return np.asarray(p / p.sum(axis=0))

    def _without(self, run: Propagation, found: RowPosteriors, column: int) -> tuple[Host, Host]:
        """Return packed C and mean of t without what a nominal column itself says."""
        C, mean = found.C.copy(), found.mean.copy()
        for i, group in enumerate(run.block.groups):
            if group.column == column:
                rows = group.rows
                P = packed_inverse(found.C[:, rows], self.q)[0]
                add_P, add_rhs = run.level_part(i, found.pulls[i])
                C[:, rows] = packed_inverse(P - add_P, self.q)[0]
                mean[:, rows] = packed_times(C[:, rows], found.rhs[:, rows] - add_rhs)
        return C, mean

    def draw(self, rows: LatentRows, rng: np.random.Generator) -> tuple[Host, Host]:
        """Draw everything that is missing of each row, jointly, given what it knows.

        t (and ε_k of observed levels) is drawn from EP's normal law and corrected by a few
        Metropolis–Hastings steps with that law as proposal, so that draws are as good as exact;
        the rest is independent given t. Known values are kept; where an interval is known, z is
        drawn in it.

        Returns
        -------
        z : array of shape (n, s)
        levels : array of shape (n, c)
        """
        cuts = list(backend.row_slices(shape_of(rows)))
        pairs = zip(cuts, rng.spawn(len(cuts)), strict=True)
        streams = {cut.start: one for cut, one in pairs}

        def draws(run: Propagation, found: RowPosteriors) -> tuple[Host, Host]:
            return _drawn(run, found, streams[run.block.cut.start])

        z, levels = zip(*self._each(rows, draws), strict=True)
        return np.concatenate(z), np.concatenate(levels)

    def at_points(self, rows: LatentRows, points: Host) -> Iterator[tuple[Host, Host]]:
        """Yield z (n, s) and levels (n, c) of all rows at each of a few normal points, (m, q + D).

        A point stands for t in the law of each row, and for the noise: what is said of one row does
        not depend on others. Known entries have values of their own here, too.
        """

        def moments(run: Propagation, found: RowPosteriors) -> tuple[Host, Host]:
            return found.mean.T, packed_root(found.C, self.q).T

        mean, root = map(np.concatenate, zip(*self._each(rows, moments), strict=True))
        for point in points:
            step = np.broadcast_to(point[: self.q, None], (self.q, rows.n))
            t = mean + packed_times(root.T, step, lower=True).T
            z = t @ self.W.T + np.sqrt(self.psi) * point[self.q :]
            yield z[:, : self.s], self.largest_levels(z[:, self.s :])

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Host, Host]:
        """Draw new rows: z (n, s) and levels (n, c)."""
        s, t = self.s, rng.standard_normal((n, self.q))
        z = t @ self.W.T + np.sqrt(self.psi) * rng.standard_normal((n, self.psi.size))
        return z[:, :s], self.largest_levels(z[:, s:])

    def largest_levels(self, zeta: Host) -> Host:
        """Return the levels that coordinates (n, ΣK) show, (n, c)."""
        levels = np.empty((zeta.shape[0], len(self.sizes)), dtype=np.int64)
        for c, part in enumerate(self.parts):
            levels[:, c] = np.argmax(zeta[:, part] + self.shifts[part], axis=1)
        return levels


METROPOLIS_STEPS = 8
"""Steps that correct a draw of EP's normal law; nearly all of them are accepted."""


def _drawn(run: Propagation, found: RowPosteriors, rng: np.random.Generator) -> tuple[Host, Host]:
    """Draw what a block misses."""
    factors, block, b, e = run.factors, run.block, run.block.b, run.block.at.size
    (tau, nu), psi = run.sites[:, :e], run.noise[:e]
    root = packed_root(found.C, factors.q)

    def propose() -> tuple[Host, Host]:
        """Return t, and ln of target over proposal."""
        t = found.mean + packed_times(
            root, np.asarray(rng.standard_normal(found.mean.shape)), lower=True
        )
        s, scale = (run.some @ t).ravel()[block.at], np.sqrt(psi)
        entries = log_probability((block.low - s) / scale, (block.high - s) / scale)
        entries += s * (0.5 * tau * s - nu)
        ratio = run.dense(entries).sum(axis=0)
        for i, group in enumerate(block.groups):
            directions, (d, pull, total) = run.directions[i], found.pulls[i]
            level_tau, level_nu = block.level(run.sites, i)
            here = t[:, group.rows]
            eps = (total - (pull * here).sum(axis=0)) / d
            eps = eps + rng.standard_normal(eps.shape) / np.sqrt(d)
            r = directions.g @ here + eps
            terms = special.log_ndtr(r + directions.offset[:, None]) + r * (
                0.5 * level_tau * r - level_nu
            )
            ratio[group.rows] += terms.sum(axis=0)
        return t, ratio

    t, ratio = propose()
    for _ in range(METROPOLIS_STEPS if block.at.size or block.groups else 0):
        other, better = propose()
        accept = np.log(1.0 - rng.random(b)) < better - ratio
        t, ratio = np.where(accept, other, t), np.where(accept, better, ratio)
    scale, mean = np.sqrt(run.psi)[:, None], run.W @ t
    z = np.where(block.known > 0, block.z, mean + scale * rng.standard_normal(mean.shape))
    if block.at.size:
        s, root_psi = mean[block.columns].ravel()[block.at], np.sqrt(psi)
        drawn_e = truncated_draws((block.low - s) / root_psi, (block.high - s) / root_psi, rng)
        inside = z[block.columns]
        inside.ravel()[block.at] = np.clip(s + root_psi * drawn_e, block.low, block.high)
        z[block.columns] = inside
    zeta = factors.W[factors.s :] @ t
    drawn = factors.largest_levels((zeta + rng.standard_normal(zeta.shape)).T)
    return z.T, np.where(block.levels >= 0, block.levels, drawn)


def canonical_copula(factors: CopulaFactors) -> CopulaFactors:
    """Rotate t so that WᵀΨ⁻¹W is diagonal, largest first; signs are deterministic."""
    root = np.sqrt(factors.psi)[:, None]
    U, size, _ = algebra.svd(factors.W / root)
    return replace(factors, W=algebra.deterministic_signs((U * size) * root))
