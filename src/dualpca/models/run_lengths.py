"""Limits of monitors from a wanted run length: ordinary rows by simulation, phase I with its error.

The run length is the number of ordinary rows until the first alarm. It depends on what is not known
after phase I of n rows: the mean, the variances. With limits for known parameters 500 rows give
much shorter runs. So every simulated run has a phase I of its own: what is drawn is seen through a
mean and variances with the error that n rows leave (Jones, Champ & Rigdon 2001; Champ &
Jones-Farmer 2007; theory 19.3), and the limits are those that give the wanted run length over all
of them.

Scores and residuals are drawn as they go together in phase I, with as many numbers per row as that
takes, and not as rows that are fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualpca.gaussian import Law

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

ALARM_SHARES = {"t2": 3.0, "spe": 7.0, "mewma": 70.0, "residual": 20.0} | {
    "cusum": 70.0,
    "residual_cusum": 20.0,
}
"""Shares of the false alarms: small where another statistic finds sooner what lasts."""

RULE_SHARE = 10.0
"""Share of a run rule of one statistic."""

RUNS_LONG = 4.0
"""Rows of a run, by the wanted run length."""

LONGEST_RUN = 4000
"""Rows of a run; limits for run lengths that these are too few for are extrapolated."""

ROWS = 1_200_000
"""Rows that are simulated, at most."""

FALSE_ALARMS = 4000
"""Of all runs: more make limits no better."""

WORK = 1.5e9
"""Products that simulated rows may take."""

MANY_COLUMNS = 64
"""Columns above which SPE is drawn from its law, independent of the residuals."""

SHARED_DIRECTIONS = 32
"""Directions in which residuals of many columns go together; beyond them each is for itself."""

FACTORS = (0.3, 3.0)
"""Common factors of the run lengths of statistics alone that are tried."""

ROWS_DRAWN = 50
"""Rows of all runs that are drawn at once."""

ALARMS = 150
"""Alarms from which a run length is believed."""


@dataclass(frozen=True)
class OrdinaryRows:
    """What ordinary rows show: N(0, FᵀF + diag own²) of scores, residuals and SPE's residuals.

    Parameters
    ----------
    root : array of shape (k, m)
        F.
    own : array of shape (m,) or None
    q, d : int
        Scores and residuals; the other m − q − d columns are SPE's.
    n : float
        Rows of phase I.
    scores, residuals : float or array
        Autocorrelation.
    wider : float
        Variance of the residuals of new rows, by that in phase I.
    along : float
        Variance of the scores of new rows, likewise.
    tails : float
        ν of a multivariate t.
    spe : Law
        Of SPE, from which it is drawn where the residuals are too many.
    """

    root: Singles
    own: Singles | None
    q: int
    d: int
    n: float
    scores: float
    residuals: float
    wider: float
    along: float
    tails: float
    spe: Law


def ordinary_rows(
    shown: Floats,
    q: int,
    d: int,
    n: float,
    alike: tuple[float, float],
    wider: float,
    along: float,
    tails: float,
    spe: Law,
) -> OrdinaryRows:
    """Return what ordinary rows show, from what the rows of phase I did, (n, q + d + w)."""
    many = d > MANY_COLUMNS
    kept = shown[:, : q + d] if many else shown
    _, s, V = np.linalg.svd(kept / math.sqrt(len(kept)), full_matrices=False)
    real = s > 1e-7 * max(float(s.max(initial=0.0)), 1e-300)
    F, own = s[real, None] * V[real], None
    if many and len(F) > SHARED_DIRECTIONS + q:
        total, F = np.sum(F * F, axis=0), F[: SHARED_DIRECTIONS + q]
        own = np.sqrt(np.maximum(total - np.sum(F * F, axis=0), 0.0)).astype(np.float32)
    root = F.astype(np.float32)
    return OrdinaryRows(root, own, q, d, n, *alike, wider, along, tails, spe)


class Runs(NamedTuple):
    """What simulated runs showed: by statistic, after every row of every run."""

    paths: dict[str, Singles]  # (runs, rows)

    @property
    def names(self) -> list[str]:
        """The statistics."""
        return list(self.paths)


def simulated(
    ordinary: OrdinaryRows,
    statistics: Sequence[str],
    smoothing: float,
    arl: float,
    rng: np.random.Generator,
    *,
    rows: int = ROWS,
    innovations: bool = False,
    reference_value: float = 0.5,
) -> Runs:
    """Return the statistics of ordinary rows along many runs, each after a phase I of its own.

    With `innovations` those with a memory are of rows that do not depend on one another.
    """
    length = int(np.clip(math.ceil(RUNS_LONG * arl), 20, LONGEST_RUN))
    k, m = ordinary.root.shape
    total = min(rows, FALSE_ALARMS * arl, WORK / max(k * m, 1))
    runs = int(np.clip(total // length, 30, 20_000))
    return Runs(
        _paths(ordinary, statistics, smoothing, runs, length, rng, innovations, reference_value)
    )


class _Memory:
    """The statistics with a memory of all runs."""

    def __init__(
        self, statistics: Sequence[str], lam: float, value: float, q: int, d: int, runs: int
    ) -> None:
        self.lam, self.value, self.q = np.float32(lam), np.float32(value), q
        self.statistics, self.left = statistics, 1.0
        self.u = np.zeros((runs, q + d), dtype=np.float32)
        self.s = np.zeros((runs, q), dtype=np.float32)
        self.both = np.zeros((2, runs, d), dtype=np.float32)

    def after(self, x: Singles) -> dict[str, Singles]:
        """Return the statistics after one more row of every run, (runs, q + d)."""
        q, found = self.q, {}
        self.u += self.lam * (x - self.u)
        self.left *= (1 - float(self.lam)) ** 2
        variance = float(self.lam / (2 - self.lam)) * (1 - self.left)
        if "mewma" in self.statistics:
            found["mewma"] = np.einsum("ij,ij->i", self.u[:, :q], self.u[:, :q]) / np.float32(
                variance
            )
        if "residual" in self.statistics:
            v = self.u[:, q:]
            most = np.maximum(v.max(axis=1, initial=0.0), -v.min(axis=1, initial=0.0))
            found["residual"] = most / np.float32(math.sqrt(variance))
        if "cusum" in self.statistics:
            self.s += x[:, :q]
            size = np.sqrt(np.einsum("ij,ij->i", self.s, self.s))
            left = np.maximum(size - self.value, 0)
            self.s *= (left / np.maximum(size, np.float32(1e-30)))[:, None]
            found["cusum"] = left
        if "residual_cusum" in self.statistics:
            r = x[:, q:]
            self.both[0] = np.maximum(self.both[0] + r - self.value, 0)
            self.both[1] = np.maximum(self.both[1] - r - self.value, 0)
            found["residual_cusum"] = self.both.max(axis=(0, 2), initial=0.0)
        return found


def _paths(
    ordinary: OrdinaryRows,
    statistics: Sequence[str],
    smoothing: float,
    runs: int,
    length: int,
    rng: np.random.Generator,
    innovations: bool,
    reference_value: float,
) -> dict[str, Singles]:
    q, d = ordinary.q, ordinary.d
    paths = {name: np.zeros((length, runs), dtype=np.float32) for name in statistics}
    memory = _Memory(statistics, smoothing, reference_value, q, d, runs)
    remembered = [name for name in statistics if name not in ("t2", "spe")]
    t = 0
    for fresh, kept in _rows(ordinary, runs, length, rng, innovations):
        end = t + kept.shape[1]
        if "t2" in paths:
            paths["t2"][t:end] = np.einsum("ijk,ijk->ji", kept[:, :, :q], kept[:, :, :q])
        if "spe" in paths:
            e = kept[:, :, q + d :]
            drawn = e.shape[2] == 0
            paths["spe"][t:end] = (
                _drawn_spe(ordinary.spe, (end - t, runs), rng)
                if drawn
                else np.einsum("ijk,ijk->ji", e, e)
            )
        series = np.ascontiguousarray(fresh[:, :, : q + d].swapaxes(0, 1))
        for i in range(end - t):
            found = memory.after(series[i])
            for name in remembered:
                paths[name][t + i] = found[name]
        t = end
    return {name: path.T for name, path in paths.items()}


def _drawn_spe(law: Law, shape: tuple[int, int], rng: np.random.Generator) -> Singles:
    """Draw SPE of ordinary rows from its law."""

    def one(scale: float, dfn: float) -> Floats:
        return scale / dfn * rng.chisquare(dfn, shape) if dfn > 0 else np.zeros(shape)

    found = one(float(law.scale[0]), float(law.dfn[0]))
    if law.scale2 is not None and law.dfn2 is not None and law.scale2[0] > 0:
        found = found + one(float(law.scale2[0]), float(law.dfn2[0]))
    return found.astype(np.float32)


class _PhaseOne(NamedTuple):
    """What each run takes for mean and variances of its rows."""

    mean: Singles  # (runs, 1, m)
    whitening: Singles  # (runs, q, q)
    size: Singles  # (runs, 1, m − q)

    @classmethod
    def drawn(cls, ordinary: OrdinaryRows, draw: Singles, rng: np.random.Generator) -> _PhaseOne:
        """Return the errors that n rows leave; `draw` are ordinary rows, one a run."""
        q, d, runs, m = ordinary.q, ordinary.d, len(draw), draw.shape[1]
        phi = np.full(m, ordinary.residuals)
        phi[:q] = ordinary.scores
        n = ordinary.n
        mean = draw * np.sqrt((1 + phi) / (1 - phi) / n).astype(np.float32)
        both = [n * (1 - p * p) / (1 + p * p) - 1 for p in (ordinary.scores, ordinary.residuals)]
        # variances of q scores are known no better than by some rows more than there are scores
        nu = [max(both[0], q + 2.0), max(both[1], 3.0)]
        size = np.ones((runs, 1, m - q), dtype=np.float32)
        size[:, 0, :d] = 1 / np.sqrt(rng.chisquare(nu[1], (runs, d)) / nu[1])
        size *= np.float32(math.sqrt(ordinary.wider))
        return cls(
            mean[:, None, :],
            _whitening(q, nu[0], runs, rng) * np.float32(math.sqrt(ordinary.along)),
            size,
        )

    def seen(self, rows: Singles) -> Singles:
        """Return rows (runs, b, m) as they are seen with these errors."""
        q = self.whitening.shape[1]
        C = rows - self.mean
        return np.concatenate([C[:, :, :q] @ self.whitening, C[:, :, q:] * self.size], axis=2)


def _whitening(q: int, nu: float, runs: int, rng: np.random.Generator) -> Singles:
    """Return A with AᵀA⁻¹… of a Wishart covariance: rows times A are white by its estimate."""
    L = np.tril(rng.standard_normal((runs, q, q)), -1)
    index = np.arange(q)
    L[:, index, index] = np.sqrt(rng.chisquare(np.maximum(nu - index, 1.0), (runs, q)))
    # L Lᵀ/ν is the estimate of I; xᵀ(LLᵀ/ν)⁻¹x = ‖L⁻¹x‖² ν
    inverse = np.linalg.inv(L) * math.sqrt(nu)
    return inverse.swapaxes(1, 2).astype(np.float32)


def _rows(
    ordinary: OrdinaryRows,
    runs: int,
    length: int,
    rng: np.random.Generator,
    innovations: bool,
) -> Iterator[tuple[Singles, Singles]]:
    """Yield blocks of rows of all runs, (runs, b, m), independent and as they follow."""
    k, m = ordinary.root.shape
    q, nu = ordinary.q, ordinary.tails

    def drawn(b: int) -> Singles:
        found = rng.standard_normal((runs * b, k), dtype=np.float32) @ ordinary.root
        if ordinary.own is not None:
            found += ordinary.own * rng.standard_normal((runs * b, m), dtype=np.float32)
        if not math.isinf(nu):
            size = max(nu - 2, 0.1) / nu  # the covariance of phase I has the tails in it
            u = rng.chisquare(nu, (runs * b, 1)) / nu
            found *= np.sqrt(size / u).astype(np.float32)
        return found.reshape(runs, b, m)

    phase_one = _PhaseOne.drawn(ordinary, drawn(1)[:, 0], rng)
    # innovations do not depend on one another: their mean is known as well as n rows tell
    alone = replace(ordinary, scores=0.0, residuals=0.0)
    fresh = _PhaseOne.drawn(alone, drawn(1)[:, 0], rng) if innovations else phase_one
    phi = np.full(m, ordinary.residuals, dtype=np.float32)
    phi[:q] = ordinary.scores
    dependent, before = bool(phi.any()), drawn(1)[:, 0]
    fresh_share = np.sqrt(1 - phi * phi)
    # φ is known with an error too: what is left of the rows before adds up in an average
    off = np.sqrt((1 - phi * phi) / np.float32(ordinary.n))
    off = off * rng.standard_normal((runs, m), dtype=np.float32) if innovations else off
    left = np.zeros((runs, m), dtype=np.float32)
    for t in range(0, length, ROWS_DRAWN):
        new = drawn(min(ROWS_DRAWN, length - t))
        kept = new
        if dependent:
            kept = np.empty_like(new)
            for i in range(new.shape[1]):
                before = phi * before + fresh_share * new[:, i]
                kept[:, i] = before
        seen = phase_one.seen(kept)
        for i in range(new.shape[1] if innovations and dependent else 0):
            before_it = left.copy()
            left = phi * left + new[:, i]
            new[:, i] += off * before_it
        yield (fresh.seen(new) if innovations else seen), seen


# --- Limits --------------------------------------------------------------------------------------


class RunLengths:
    """Run lengths of simulated runs, for any limits.

    Parameters
    ----------
    runs : Runs
    """

    def __init__(self, runs: Runs) -> None:
        self.paths = runs.paths
        self.largest = {name: np.maximum.accumulate(A, axis=1) for name, A in runs.paths.items()}
        self._tables = {name: self._table(name) for name in runs.paths}

    def of(self, limits: dict[str, Floats]) -> Floats:
        """Return the mean run lengths with rising limits (k,), all statistics together, (k,).

        Rows by alarms: a run that ends without an alarm counts with its rows, as under an
        exponential law.
        """
        passed: NDArray[np.intp] | None = None
        for name, rising in limits.items():  # limits that are passed, of each row
            found = np.searchsorted(rising.astype(np.float32), self.largest[name].ravel())
            passed = found if passed is None else np.maximum(passed, found)
        assert passed is not None
        size = len(next(iter(limits.values()))) + 1
        shape = next(iter(self.largest.values())).shape
        last = passed.reshape(shape)[:, -1]
        rows, whole = (np.cumsum(np.bincount(A, minlength=size))[:-1] for A in (passed, last))
        alarms = shape[0] - whole
        with np.errstate(divide="ignore"):
            lengths: Floats = (rows + alarms) / alarms
        return lengths

    def _table(self, name: str) -> tuple[Floats, Floats]:
        """Return limits and the logarithms of their run lengths, as far as alarms are many."""
        ends = np.sort(self.largest[name][:, -1])
        most, runs = min(ALARMS, len(ends) // 4), len(ends)
        lowest = np.quantile(self.paths[name][:, : min(200, self.paths[name].shape[1])], 0.5)
        limits = np.linspace(float(lowest), float(ends[runs - 1 - most]), 40)
        return limits, np.log(np.maximum.accumulate(self.of({name: limits})))

    def limit(self, name: str, wanted: float) -> float:
        """Return the limit of one statistic with a run length of its own.

        Beyond the run lengths that were seen their logarithm goes on as a straight line over the
        limit (its square where the statistic is a deviation).
        """
        limits, logs = self._tables[name]
        aim, power = math.log(wanted), 2.0 if name == "residual" else 1.0
        if aim <= logs[-1]:
            return float(np.interp(aim, logs, limits))
        x = limits**power
        upper = logs > logs[-1] - 1.2
        slope = np.polyfit(x[upper], logs[upper], 1)[0] if upper.sum() > 1 else 0.0
        if not slope > 0:
            return float(limits[-1])
        return float((x[-1] + (aim - logs[-1]) / slope) ** (1 / power))

    def tail(self, name: str, limit: float, wanted: float) -> float:
        """Return the share of all rows above a limit with this run length."""
        share = float(np.mean(self.paths[name] > limit))
        if share * self.paths[name].size >= ALARMS:
            return share
        limits, logs = self._tables[name]
        seen = float(np.mean(self.paths[name] > limits[-1]))
        return min(seen * math.exp(logs[-1] - math.log(wanted)), 0.5)


def rule_name(statistic: str, rule: tuple[int, int]) -> str:
    """Return the name of a run rule of a statistic.

    Examples
    --------
    >>> rule_name("t2", (2, 3)), rule_name("spe", (8, 8))
    ('t2 2 of 3', 'spe 8 in a row')
    """
    k, m = rule
    return f"{statistic} {k} in a row" if k == m else f"{statistic} {k} of {m}"


def with_rules(runs: Runs, rules: Sequence[tuple[int, int]]) -> Runs:
    """Return the runs with the statistics of run rules: the k-th largest of the last m rows."""
    paths = dict(runs.paths)
    for base in ("t2", "spe"):
        for k, m in rules if base in runs.paths else ():
            A = runs.paths[base]
            found = np.zeros_like(A)
            windows = np.lib.stride_tricks.sliding_window_view(A, m, axis=1)
            found[:, m - 1 :] = np.sort(windows, axis=2)[:, :, m - k]
            paths[rule_name(base, (k, m))] = found
    return Runs(paths)


class Limits(NamedTuple):
    """Limits of the statistics with a memory, levels of T² and SPE, and run lengths of each."""

    limits: dict[str, float]
    levels: dict[str, float]
    lengths: dict[str, float]


def limits_of(lengths: RunLengths, arl: float, believed: float | None = None) -> Limits:
    """Return limits of all statistics that together have the wanted run length.

    Each gets its share of the false alarms; a common factor makes up for alarms that several give.

    Parameters
    ----------
    lengths : RunLengths
    arl : float
        Wanted.
    believed : float, optional
        A run length at which the common factor is found, where `arl` is too long for the runs.
    """
    names = list(lengths.paths)
    shares = {name: ALARM_SHARES.get(name, RULE_SHARE) for name in names}
    total = sum(shares.values())
    shares = {name: share / total for name, share in shares.items()}
    at = arl if believed is None else min(believed, arl)

    factors = np.geomspace(*FACTORS, 24)
    rising = {
        name: np.array([lengths.limit(name, one * at / share) for one in factors])
        for name, share in shares.items()
    }
    logs = np.maximum.accumulate(np.log(lengths.of(rising)))
    factor = math.exp(np.interp(math.log(at), logs, np.log(factors)))
    found = {name: factor * arl / share for name, share in shares.items()}
    limits = {name: lengths.limit(name, one) for name, one in found.items()}
    levels = {name: 1 - lengths.tail(name, limits.pop(name), found[name]) for name in both(names)}
    for name in list(limits):
        base = name.partition(" ")[0]
        if base != name:  # a run rule, whose limit is a surprise
            limits[name] = -math.log10(lengths.tail(base, limits[name], found[name]))
    return Limits(limits, levels, found)


def both(names: Sequence[str]) -> list[str]:
    """Return those of T² and SPE that are among some statistics."""
    return [name for name in ("t2", "spe") if name in names]
