"""Completed tables as people want them: refits, values of similar rows, bounds, whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data import Host, InMemoryTable, block_weights, observed_weights
from dualpca.errors import expected
from dualpca.gaussian import Factors, drawn_imputations, free_factors, free_parameters, imputed
from dualpca.models.incomplete import Fit

# --- Other parameters that the rows allow: refits to bootstraps of them --------------------------

REFIT_STEPS = 20
"""Largest number of EM steps of a refit; after 5 of them nine tenths of the variance is there."""

REDRAWS = 100
"""Times that a bootstrap without enough rows of some feature is drawn again."""


@dataclass(frozen=True)
class RefitRequest:
    """How `refits` finds other parameters."""

    kind: Callable[..., Fit] = Fit
    diagonal: bool = False  # one noise per feature
    fixed_noise: bool = False  # the noise was given, and stays
    steps: int = REFIT_STEPS


STD_REFITS = 20
"""Refits behind the standard deviations of imputed entries."""

ENOUGH_ENTRIES = 50
"""Observed entries per free parameter from which fixed parameters lose less than a hundredth."""


def least_rows(q: int) -> int:
    """Return the smallest number of rows whose bootstrap says something of q latents."""
    return max(20, 2 * (q + 1))


def free_numbers(factors: Factors, diagonal: bool) -> int:
    """Return the number of free parameters: loadings up to rotation, mean, noise."""
    d, q = map(int, factors.W.shape)
    return d + (free_factors(q, d) if diagonal else free_parameters(q, d))


def needs_refits(factors: Factors, rows: Array, diagonal: bool) -> bool:
    """Return True if the uncertainty of the parameters shows in what the rows miss."""
    seen = backend.to_numpy(~backend.namespace(rows).isnan(rows))
    if seen.all() or not seen.any(axis=0).all():
        return False
    enough = int(seen.any(axis=1).sum()) >= least_rows(int(factors.W.shape[1]))
    return enough and int(seen.sum()) < ENOUGH_ENTRIES * free_numbers(factors, diagonal)


def refits(
    factors: Factors,
    rows: Array,
    weights: Array | None,
    n_draws: int,
    rng: np.random.Generator,
    request: RefitRequest | None = None,
) -> Iterator[Factors]:
    """Yield densities refitted to bootstraps of the rows, EM started at `factors` (theory 4).

    Rows are drawn with replacement, in proportion to their weights: as many as the weights sum to,
    so that a weight of 2 is a row that is there twice. Rows that observe nothing are not drawn.

    Cost: up to `request.steps` EM steps per draw; patterns of missing values are found once.
    """
    request = request or RefitRequest()
    if factors.W.shape[1] == 0:
        factors = Factors(0 * factors.mu[:, None], factors.mu, factors.psi)
    noise = float(factors.psi[0]) if request.fixed_noise else None
    q, table = int(factors.W.shape[1]), InMemoryTable(rows, weights)
    fit = request.kind(table, q, noise, diagonal=request.diagonal)
    w = block_weights(observed_weights(rows, weights), slice(None), rows)
    draw = _Bootstrap(backend.to_numpy(w), ~np.isnan(backend.to_numpy(rows)), q)
    for _ in range(n_draws):
        weights = backend.asarray(draw(rng), fit.origin)
        yield fit.with_weights(weights).climb(factors, request.steps)


def sampled_imputations(
    densities: Iterator[Factors], rows: Array, rng: np.random.Generator
) -> Array:
    """Draw a completed table under each density, (n_draws, n, d)."""
    tables = [drawn_imputations(factors, rows, 1, rng) for factors in densities]
    return backend.namespace(rows).concat(tables, axis=0)


LARGEST_SHARE = 0.5
"""Most that the parameters are taken to have absorbed of the noise."""


def unabsorbed(
    factors: Factors, rows: Array, weights: Array | None, request: RefitRequest
) -> float:
    """Return N/(N − p), for N observed entries and p parameters; 1 for noise that was given.

    Noise at its maximum likelihood is too small by that much.
    """
    if request.fixed_noise:
        return 1.0
    xp = backend.namespace(rows)
    counts = xp.sum(xp.astype(~xp.isnan(rows), xp.float64), axis=1)
    N = float(xp.sum(counts if weights is None else counts * weights))
    return 1 / (1 - min(free_numbers(factors, request.diagonal) / N, LARGEST_SHARE))


def imputed_unsurely(
    factors: Factors,
    rows: Array,
    rng: np.random.Generator,
    request: RefitRequest,
    weights: Array | None = None,
) -> tuple[Array, Array]:
    """Return expectations at `factors` and deviations that count the parameters as estimated.

    The variance is that of the expectation over refits, plus the conditional variance times
    N/(N − p) (`unabsorbed`).
    """
    xp, (filled, spread) = backend.namespace(rows), imputed(factors, rows, True)
    assert spread is not None
    mean = square = 0 * filled
    for k, other in enumerate(refits(factors, rows, weights, STD_REFITS, rng, request), 1):
        off = imputed(other, rows)[0] - filled - mean  # around the maximum: no digits are lost
        mean = mean + off / k
        square = square + (1 - 1 / k) * off * off
    between = square / (STD_REFITS - 1)
    variance = spread * spread * unabsorbed(factors, rows, weights, request) + between
    return filled, xp.where(xp.isnan(rows), xp.sqrt(variance), xp.zeros_like(variance))


class _Bootstrap:
    """Draws of rows with replacement, as the number of times that each row is drawn.

    A draw in which some feature is observed by too few different rows is drawn again.
    """

    def __init__(self, weights: Host, seen: Host, q: int) -> None:
        self.p, self.total = weights / weights.sum(), float(weights.sum())
        self.seen = (seen & (weights > 0)[:, None]).astype(np.float64)
        self.least = np.minimum(np.ceil(self.seen.sum(axis=0) / 2), q + 2)

    def __call__(self, rng: np.random.Generator) -> Host:
        """Return one draw, (n,)."""
        count = max(round(self.total), 1)
        for _ in range(REDRAWS):
            drawn = rng.multinomial(count, self.p)
            if np.all((drawn > 0) @ self.seen >= self.least):
                break
        return drawn * (self.total / count)


# --- Values of similar rows, bounds, whole numbers -----------------------------------------------

DONORS = 5
"""Rows of which one gives its value to a missing entry."""


@dataclass(frozen=True)
class Donors:
    """Rows whose values fill missing entries, and what the model expects of these values."""

    values: Annotated[Array, "n d", "or nan"]  # in the units of X, NaN where nothing was observed
    predictions: Annotated[Array, "n d"]  # given the rest of the row, in the units of the model

    def matched(self, predictions: Host, missing: Host, rng: np.random.Generator) -> Host:
        """Return values for missing entries, (n, d), 0 elsewhere: predictive mean matching.

        Of the 5 rows that observe the column and whose prediction is closest to that of the entry,
        one is drawn (Little 1988). O(log n) per entry.
        """
        values, own = backend.to_numpy(self.values), backend.to_numpy(self.predictions)
        found = np.zeros(missing.shape)
        for j in np.flatnonzero(missing.any(axis=0)):
            seen, rows = np.flatnonzero(~np.isnan(values[:, j])), missing[:, j]
            # equal but for rounding error is equal: the order of rows decides
            step = 2.0 ** np.floor(np.log2(1e-12 * np.abs(own[seen, j]).max() or 1.0))
            mine, wanted = (np.round(x / step) for x in (own[seen, j], predictions[rows, j]))
            order = np.argsort(mine, kind="stable")
            near, order = _nearest(mine[order], wanted), seen[order]
            pick = rng.integers(0, near.shape[1], size=near.shape[0])
            found[rows, j] = values[order[near[np.arange(near.shape[0]), pick]], j]
        return found


def _nearest(sorted_values: Host, wanted: Host) -> Host:
    """Return the numbers of the values closest to each one wanted, (k, 5) or fewer.

    Examples
    --------
    >>> _nearest(np.arange(10.0), np.array([0.1, 5.2])).tolist()
    [[0, 1, 2, 3, 4], [5, 6, 4, 7, 3]]
    """
    count = sorted_values.size
    around = np.searchsorted(sorted_values, wanted)[:, None] + np.arange(-DONORS, DONORS)
    inside = (around >= 0) & (around < count)
    around = np.clip(around, 0, count - 1)
    distance = np.where(inside, np.abs(sorted_values[around] - wanted[:, None]), np.inf)
    closest = np.argsort(distance, axis=1, kind="stable")[:, : min(DONORS, count)]
    return np.take_along_axis(around, closest, axis=1)


def whole_columns(rows: Array) -> Host:
    """Return the numbers of the columns whose observed values are all whole.

    Examples
    --------
    >>> whole_columns(np.array([[1.0, 2.5], [np.nan, 3.0]]))
    array([0])
    """
    xp = backend.namespace(rows)
    is_whole = xp.all(xp.isnan(rows) | (xp.round(rows) == rows), axis=0)
    return np.flatnonzero(backend.to_numpy(is_whole))


def kept_within(filled: Array, missing: Array, ends: Host | None, whole: Host | None) -> Array:
    """Return a completed table with its missing entries within bounds, and whole where asked.

    `ends` are the lowest and highest values of each column, (2, d); observed entries stay.
    """
    xp, d = backend.namespace(filled), int(filled.shape[-1])
    low, high = (np.full(d, -np.inf), np.full(d, np.inf)) if ends is None else ends.copy()
    result = filled
    if whole is not None:
        low[whole], high[whole] = np.ceil(low[whole]), np.floor(high[whole])
        chosen = np.zeros(d, dtype=np.float64)
        chosen[whole] = 1.0
        result = xp.where(backend.constants(chosen, filled) > 0, xp.round(filled), filled)
    least, most = (backend.constants(ends, filled) for ends in (low, high))
    return xp.where(missing, xp.minimum(xp.maximum(result, least), most), filled)


def bounds_of(given: object, d: int, names: Iterable[object] | None = None) -> Host | None:
    """Return the lowest and highest values of each column, (2, d), of one pair or one per column.

    Parameters
    ----------
    given : None, (low, high), d such pairs, or a mapping from columns to pairs
        None in a pair is no bound.
    d : int
    names : sequence of str, optional
        Of the columns.

    Examples
    --------
    >>> bounds_of((0, None), 2)
    array([[ 0.,  0.],
           [inf, inf]])
    """
    if given is None:
        return None
    columns = range(d) if names is None else [str(name) for name in names]
    if isinstance(given, Mapping):
        return _bounds_by_column(given, columns)
    if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str):
        raise ValueError(expected("bounds", "(low, high), one such pair per column or None", given))
    if len(given) == 2 and not any(isinstance(end, Sequence | np.ndarray) for end in given):
        return np.repeat(np.array([_pair(given, None)]).T, d, axis=1)
    if len(given) != d:
        what = f"(low, high) or {d} such pairs, one per column"
        raise ValueError(expected("bounds", what, f"{len(given)} of them"))
    return np.array([_pair(pair, name) for pair, name in zip(given, columns, strict=True)]).T


def _bounds_by_column(given: Mapping[Any, Any], columns: Sequence[object]) -> Host:
    """Return the bounds of a mapping from names or numbers of columns to pairs, (2, d)."""
    d, numbers = len(columns), {name: j for j, name in enumerate(columns)}
    ends = np.repeat([[-np.inf], [np.inf]], d, axis=1)
    for column, pair in given.items():
        j = numbers.get(column, column)
        if isinstance(j, bool) or not isinstance(j, int | np.integer) or not 0 <= j < d:
            named = f"0 to {d - 1}" if isinstance(columns, range) else columns[:10]
            raise ValueError(expected("bounds", f"for columns of X, {named}", column))
        ends[:, int(j)] = _pair(pair, column)
    return ends


def _pair(pair: Any, column: object) -> tuple[float, float]:
    """Return the ends of one pair."""
    where = "" if column is None else f" for column {column!r}"
    if pair is None:
        return -np.inf, np.inf
    try:
        low, high = pair
        low, high = -np.inf if low is None else float(low), np.inf if high is None else float(high)
    except (TypeError, ValueError):
        raise ValueError(expected("bounds", f"(low, high){where}", pair)) from None
    if not low <= high:
        raise ValueError(expected("bounds", f"(low, high) with low <= high{where}", pair))
    return low, high
