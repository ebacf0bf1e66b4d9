"""From the parameters of HiddenMarkovPCA to a fitted chain, and back from kernel space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data import ChunkedTable, Columns, column_starts, has_missing, refuse_infinite
from dualpca.errors import DegenerateError, expected
from dualpca.estimators._base import (
    check_checkpoint,
    check_choice,
    check_flag,
    check_number,
    generator,
    keeper_of_chain,
)
from dualpca.estimators._components import is_count
from dualpca.estimators._preimages import method_of
from dualpca.kernels import Kernel, Precomputed, make_kernel
from dualpca.models.chain import Smoothed
from dualpca.models.driver import Record
from dualpca.models.emissions import Prior
from dualpca.models.hidden_markov import (
    Counted,
    HiddenMarkov,
    Plan,
    fit,
    fit_chain_parts,
    lengths_by_part,
)
from dualpca.models.incomplete import check_unit, refuse_empty_columns
from dualpca.models.kernel_space import KernelSpace
from dualpca.preimages import Span

TOPOLOGIES = ("ergodic", "left-to-right")


def check_plan(model: Any) -> None:
    """Refuse parameters that define no model."""
    for name in ("n_states", "n_mixtures", "n_directions", "n_landmarks", "max_iter", "n_init"):
        check_number(name, getattr(model, name), 1, integer=True)
    for name in ("stickiness", "prior_rows", "noise_floor", "tol"):
        check_number(name, getattr(model, name), 0)
    check_choice("topology", model.topology, TOPOLOGIES)
    check_flag("tied_noise", model.tied_noise)
    check_checkpoint(model)
    method_of(model.preimage)


def ranks(model: Any, d: int) -> int | list[int]:
    """Return q of all states or of each, below the d dimensions of what they emit."""
    asked, S = model.n_components, int(model.n_states)
    each = [asked] * S if is_count(asked) else asked
    if not isinstance(each, list | tuple) or len(each) != S or not all(map(is_count, each)):
        raise ValueError(expected("n_components", f"a whole number, or a list of {S}", asked))
    if min(each) < 0 or max(each) >= d:
        what = f"from 0 to {d - 1}, fewer than the dimensions of what states emit"
        remedy = f"There are n_features = {d}, or n_directions with a kernel."
        remedy += " With one, n_components=0 is a plain Gaussian." if d == 1 else ""
        raise ValueError(expected("n_components", what, asked, remedy))
    return int(each[0]) if is_count(asked) else [int(q) for q in each]


def kernel_of(model: Any, X: Array) -> Kernel:
    """Return the kernel that the parameters mean, with numbers found from X in place of words."""
    if not isinstance(model.kernel_params, Mapping | None):
        raise ValueError(expected("kernel_params", "a dictionary or None", model.kernel_params))
    params = dict(model.kernel_params or {})
    if isinstance(model.kernel, str):
        gamma = model.gamma
        if gamma is None and "length_scale" not in params:
            gamma = 1.0 / int(X.shape[1])
        params = {"gamma": gamma, **params}
    kernel = make_kernel(model.kernel, **params)
    if isinstance(kernel, Precomputed):
        what = "one of rows: a chain meets new rows, which a matrix does not know"
        raise ValueError(expected("kernel", what, model.kernel))
    return kernel.resolve(X)


def fit_space(model: Any, X: Array) -> KernelSpace:
    """Return the kernel space of the complete rows."""
    complete = _complete(X)
    if complete.size < 2:
        remedy = "Without a kernel rows may be incomplete; or impute them first."
        raise ValueError(expected("X with a kernel", "complete in two rows at least", X, remedy))
    rows = X if complete.size == X.shape[0] else backend.take(X, complete)
    rng, m = seed_of(model), int(model.n_directions)
    kernel = kernel_of(model, rows)
    return KernelSpace.fit(rows, kernel, m, rng, n_landmarks=int(model.n_landmarks))


def _complete(X: Array) -> np.ndarray[Any, Any]:
    """Return the numbers of the rows without NaN, on the host."""
    xp = backend.namespace(X)
    return np.flatnonzero(~backend.to_numpy(xp.any(xp.isnan(X), axis=1)))


def coordinates(space: KernelSpace | None, X: Array) -> Array:
    """Return what states emit: rows, or their places in kernel space (NaN where incomplete)."""
    refuse_infinite(X)
    if space is None:
        return backend.working(X)
    if not has_missing(X):
        return space(X)
    complete = _complete(X)
    blank = backend.asarray(np.full((int(X.shape[0]), space.m), np.nan), X)
    if not complete.size:
        return blank
    return backend.replaced(blank, complete, space(backend.take(X, complete)))


def fit_chain(
    model: Any, X: Array, lengths: Any, unit: float | None = None
) -> tuple[KernelSpace | None, tuple[HiddenMarkov, Record, Smoothed]]:
    """Fit the chain that the parameters of the model ask for.

    Floor and prior are in units of the average variance of what states emit, or of a given one.
    """
    refuse_infinite(X)
    check_columns(X)
    space = None if model.kernel is None else fit_space(model, X)
    Z = coordinates(space, X)
    own = check_columns(Z)
    plan = plan_of(model, int(X.shape[0]), int(Z.shape[1]), own if unit is None else unit)
    keeper = keeper_of_chain(model, lengths, int(X.shape[0]), *column_starts(Z, None)[1:])
    found = fit(Z, lengths, plan, seed_of(model), **limits_of(model), keeper=keeper)
    refuse_no_density(found[1])
    return space, found


def plan_of(model: Any, n: int, d: int, unit: float) -> Plan:
    """Return what to fit to n rows of d features whose average variance is `unit`."""
    if int(model.n_states) * int(model.n_mixtures) > n:
        what = f"no more in all than the {n} rows (n_samples)"
        asked = (model.n_states, model.n_mixtures)
        raise ValueError(expected("n_states times n_mixtures", what, asked))
    floor = max(float(model.noise_floor), 1e-12) * unit
    return Plan(
        int(model.n_states),
        int(model.n_mixtures),
        ranks(model, d),
        model.topology == "left-to-right",
        float(model.stickiness),
        floor,
        bool(model.tied_noise),
        Prior(float(model.prior_rows), unit) if model.prior_rows > 0 else None,
    )


def limits_of(model: Any) -> dict[str, Any]:
    """Return when Baum–Welch stops, and how often it starts."""
    counts = {"max_iter": int(model.max_iter), "n_init": int(model.n_init)}
    return {"tol": float(model.tol), **counts}


def refuse_no_density(record: Record) -> None:
    """Raise where a state has no density."""
    if not np.isfinite(record.loglikelihoods[-1]):
        raise DegenerateError(
            "the likelihood is not finite: a state has no density. Raise noise_floor, or use "
            "fewer components."
        )


def fit_parts(
    model: Any, parts: ChunkedTable, columns: Columns, holes: bool, lengths: Any
) -> tuple[HiddenMarkov, Record, Counted]:
    """Fit the chain to a table in parts."""
    refuse_empty_columns(columns.n)
    unit = float(columns.variance.mean())
    check_unit(unit, parts, columns.mean)
    plan = plan_of(model, columns.rows, parts.d, unit)
    every = lengths_by_part(parts, lengths)
    steps = np.concatenate([every[number] for number in sorted(every)])
    keeper = keeper_of_chain(model, steps, columns.rows, columns.mean, columns.variance)
    options = limits_of(model) | {"keeper": keeper}
    found = fit_chain_parts(parts, holes, every, plan, seed_of(model), **options)
    refuse_no_density(found[1])
    return found


def check_columns(Z: Array) -> float:
    """Return the average variance of the features; refuse empty columns and what does not vary."""
    seen, origin, variance = column_starts(Z, None)
    refuse_empty_columns(seen)
    unit = float(backend.namespace(Z).mean(variance))
    check_unit(unit, Z, origin)
    return unit


def seed_of(model: Any) -> np.random.Generator:
    """Return the generator of a fit; None is a fixed seed."""
    return generator(0 if model.random_state is None else model.random_state)


def input_moments(X: Array, states: np.ndarray[Any, Any]) -> tuple[Array, Array]:
    """Return mean and variance of every feature over the rows of every state, both (S, d)."""
    xp = backend.namespace(X)
    found = [column_starts(X, backend.asarray(p, X))[1:] for p in states.T]
    return xp.stack([mean for mean, _ in found]), xp.stack([variance for _, variance in found])


def predicted(ahead: Array, means: Array, variances: Array) -> tuple[Array, Array]:
    """Return mean and variance of rows whose states have the probabilities `ahead`, (h, d)."""
    means, variances = backend.working(means), backend.working(variances)
    mean = ahead @ means
    centre = backend.namespace(means).mean(means, axis=0)
    gap = means - centre
    second = ahead @ (variances + gap * gap) - (mean - centre) ** 2
    return mean, backend.namespace(means).where(second > 0, second, 0 * second)


def pulled_back(space: KernelSpace, Z: Array, preimage: Any) -> Array:
    """Return inputs for points of kernel space."""
    s = space.subspace
    span = Span(s.points, s.kernel, s.coefficients, s.base)
    return method_of(preimage).find(span, Z).points
