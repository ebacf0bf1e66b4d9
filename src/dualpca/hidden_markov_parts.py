"""Hidden Markov models from tables in parts: Baum–Welch, a pass a step (MATH 10)."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dualpca import _array
from dualpca.chains import Smoothed, smooth, update
from dualpca.checkpoints import Keeper
from dualpca.em import Record
from dualpca.emission_sums import EmissionSums
from dualpca.errors import expected
from dualpca.hidden_markov import HiddenMarkov, Plan, begin, mixed_shares, restored
from dualpca.parts import Host, Parts
from dualpca.progress import task
from dualpca.scans import Vector, log_sum

START_ROWS = 20_000
"""Rows of the leading parts on which states are found to start from."""

Lengths = dict[int, Any]
"""Number of a part to the lengths of its sequences."""


class Counted(NamedTuple):
    """What one pass finds: expected counts of the chain, sums of the emissions."""

    starts: Vector  # (S,)
    transitions: Vector  # (S, S)
    loglikelihood: float
    visits: Vector  # (S,)
    sums: EmissionSums

    def plus(self, other: Counted) -> Counted:
        """Join two disjoint sets of sequences."""
        return Counted(
            self.starts + other.starts,
            self.transitions + other.transitions,
            self.loglikelihood + other.loglikelihood,
            self.visits + other.visits,
            self.sums.plus(other.sums),
        )


class _Expect:
    """The E step over the sequences of one part."""

    numbered = True

    def __init__(self, model: HiddenMarkov, lengths: Lengths, holes: bool) -> None:
        self.model, self.lengths, self.holes = model, lengths, holes

    def __call__(self, rows: Host, number: int) -> Counted:
        model, rows = self.model, _array.working(rows)
        joint = model.joint(rows)
        log_b = joint[:, :, 0] if joint.shape[2] == 1 else log_sum(joint, 2)
        found = smooth(model.chain, log_b, self.lengths[number])
        resp = found.states
        if joint.shape[2] > 1:
            within = found.states[:, :, None] * np.exp(joint - log_b[:, :, None])
            resp = within.reshape(len(log_b), -1)
        visits = found.states.sum(axis=0)
        sums = EmissionSums.of(model.emissions, rows, resp, self.holes)
        value = float(found.loglikelihoods.sum())
        return Counted(found.starts, found.transitions, value, visits, sums)


def lengths_by_part(parts: Parts, lengths: Any) -> Lengths:
    """Return the lengths of the sequences of every part; None is one sequence a part.

    A sequence may not cross from one part into another.
    """
    sizes = parts.sizes()
    if lengths is None:
        return {number: np.array([size]) for number, size in sizes.items()}
    ends = np.cumsum(np.asarray(lengths, dtype=np.int64))
    found: Lengths = {}
    row = 0
    for number, size in sizes.items():
        inside = ends[(ends > row) & (ends <= row + size)]
        if not inside.size or inside[-1] != row + size:
            what = f"such that a sequence ends with part {number}, after row {row + size - 1}"
            remedy = "Sequences may not cross parts: cut the table between sequences."
            raise ValueError(expected("lengths", what, f"ends {inside[-3:].tolist()}", remedy))
        found[number] = np.diff(np.concatenate([[row], inside]))
        row += size
    if row != ends[-1]:
        raise ValueError(expected("lengths", f"numbers that sum to the {row} rows", int(ends[-1])))
    return found


def fit_chain_parts(
    parts: Parts,
    holes: bool,
    lengths: Lengths,
    plan: Plan,
    rng: np.random.Generator,
    *,
    tol: float,
    max_iter: int,
    n_init: int,
    keeper: Keeper | None = None,
) -> tuple[HiddenMarkov, Record, Counted]:
    """Fit by Baum–Welch from several starts; the one that ends most likely is kept.

    States to start from are found in the leading parts, the passes run over all of them. With a
    `keeper` there is one start, and a checkpoint of it.
    """
    if keeper is not None and keeper.state is not None:
        model, record = restored(keeper.state, plan, np.empty(0))
        return climb(model, parts, holes, lengths, plan.prior, tol, max_iter, record, keeper)
    first = parts.head(START_ROWS)
    rows = _array.working(np.concatenate([part.rows for part in first]))
    steps = np.concatenate([lengths[part.number] for part in first])
    runs = []
    for turn in range(n_init):
        model = begin(rows, steps, plan, rng, turn=turn)
        limits = (plan.prior, tol, max_iter)
        runs.append(climb(model, parts, holes, lengths, *limits, Record(), keeper))
        if runs[-1][1].interrupted:
            break
    return max(runs, key=lambda run: run[1].loglikelihoods[-1])


def climb(
    model: HiddenMarkov,
    parts: Parts,
    holes: bool,
    lengths: Lengths,
    prior: Vector | None,
    tol: float,
    max_iter: int,
    record: Record,
    keeper: Keeper | None,
) -> tuple[HiddenMarkov, Record, Counted]:
    """Iterate Baum–Welch until a step gains less than `tol` a row."""
    n = sum(int(np.sum(one)) for one in lengths.values())
    kept: tuple[HiddenMarkov, Counted] | None = None
    with task("Baum–Welch step", max_iter) as tick:
        try:
            while True:
                found = parts.reduce(_Expect(model, lengths, holes), Counted.plus)
                kept = (model, found)
                value = found.loglikelihood + model.log_prior(prior)
                gain = value - (record.loglikelihoods[-1] if record.n_iter else -np.inf)
                record.add(value)
                record.converged = gain <= tol * n
                tick(f"log-likelihood {value:.6g}")
                if record.converged or record.n_iter >= max_iter:
                    if keeper is not None:
                        keeper.done()
                    return model, record, found
                model, record.n_iter = maximised(model, found, prior), record.n_iter + 1
                if keeper is not None:
                    keeper.offer(partial(model.state, record))
        except KeyboardInterrupt:
            if kept is None:
                raise
            record.interrupted = True
            return kept[0], record, kept[1]


def maximised(model: HiddenMarkov, found: Counted, prior: Vector | None) -> HiddenMarkov:
    """Take the M step."""
    counts = Smoothed(found.visits[None, :], found.starts, found.transitions, np.zeros(0))
    weights = mixed_shares(found.sums.mass.reshape(model.shares.shape), model.shares)
    weights = weights if model.shares.shape[1] > 1 else model.shares
    emissions = found.sums.maximise(model.emissions)
    return HiddenMarkov(update(counts, model.chain, prior), weights, emissions)
