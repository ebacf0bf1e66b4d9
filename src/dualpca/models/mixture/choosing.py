"""How many components of how many directions: candidates, and what they are compared by."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple, TypeVar

from dualpca.arrays import Tick
from dualpca.models.driver import IterativeRequest, try_candidates, warn_interrupted

MOST_WORSE_SIZES = 3
"""Sizes in a row that may be worse than the best before larger ones are left alone."""

NEAR_ENOUGH = 0.02
"""What EM may leave to gain while sizes are compared, as a share of the price of a component."""

EVERY_SIZE, GROWTH = 8, 1.25
"""Numbers of components up to which every one is tried, and from which they grow by a factor."""

Returned = TypeVar("Returned")

Walk = Generator[tuple[int, int], None, Returned]
"""Yields sizes (K, q) to try."""

Request = TypeVar("Request", bound=IterativeRequest)


class MixtureSelection(NamedTuple):
    """The choice of the numbers of components and of latent dimensions of a mixture.

    Parameters
    ----------
    criterion : str
        Name of the criterion.
    candidates : list of (int, int)
        Numbers of mixture components and of latent dimensions that were tried.
    scores : list of float
        −BIC/2 or held-out log-density per row; larger is better.
    chosen : (int, int)
        The candidate that was chosen.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import MixturePPCA
    >>> MixturePPCA("bic", 1).fit(load_iris().data).selection_.chosen
    (3, 1)
    """

    criterion: str
    candidates: list[tuple[int, int]]  # (K, q)
    scores: list[
        Annotated[float, "or nan, or inf"]
    ]  # −BIC/2, or held-out log-density per row; larger is better
    chosen: tuple[int, int]


def near_enough(request: Request, d: int, n: float) -> Request:
    """Return a request whose EM stops where sizes can be told apart: d + 2 parameters have a price.

    What it leaves to gain is a small share of that, and never less than `tol` leaves.
    """
    price = 0.5 * (d + 2) * math.log(max(n, 2.0))
    return replace(request, tol=max(request.tol, NEAR_ENOUGH * price / n))


def penalised(loglikelihood: float, p: int, n: float, rows: float) -> float:
    """Return −BIC/2 (Schwarz 1978) of p parameters fitted to n rows, in a table of `rows`.

    A likelihood of a sample is larger than that of as many other rows by about p (Akaike 1973), of
    which half is there in all rows together too. Without that the sample would fit too well.
    """
    share = rows / n
    return share * loglikelihood - (share - 1) * p / 2 - 0.5 * p * math.log(rows)


def choose(
    criterion: str,
    score: Callable[[int, int], float],
    mixtures: Sequence[int],
    components: Sequence[int],
) -> MixtureSelection:
    """Score growing K, each with the q that are best for it, until some in a row are worse.

    The first K tries q from the smallest on, in steps that grow; every other K begins with the q
    that was best before and walks from there to fewer or to more as long as that is better. Beyond
    `EVERY_SIZE` K grows by a factor; at the end numbers on both sides of the best are tried.

    Examples
    --------
    >>> found = choose("bic", lambda K, q: -abs(K - 13) - abs(q - 2), range(1, 99), range(1, 9))
    >>> found.chosen, len({K for K, q in found.candidates})
    ((13, 2), 17)
    """
    scores: dict[tuple[int, int], float] = {}
    best: dict[int, float] = {}  # of every K

    def at(K: int, place: int) -> Walk[float]:
        """Return the score of a size, which is tried if it was not yet."""
        size = (K, components[place])
        if size not in scores:
            yield size
        return scores[size]

    def best_place(K: int, place: int, step: int) -> Walk[int]:
        """Return the place of the best q, from one nearby: steps that help are taken again."""
        while (yield from at(K, place)) == -math.inf and place > 0:
            place //= 2
        while step:
            here, better = (yield from at(K, place)), place
            for p in (place - step, place + step):
                if better == place and 0 <= p < len(components) and (yield from at(K, p)) > here:
                    better = p
            if better == place:
                step //= 2
            else:
                place, step = better, 2 * step if not best else step
        return place

    def sizes() -> Walk[None]:
        """Yield the sizes to try, each after the scores of those before are known."""
        place, worse, index, last = 0, 0, 0, len(mixtures) - 1
        while index <= last and worse < MOST_WORSE_SIZES:
            K = mixtures[index]
            place = yield from best_place(K, place, max(1, place // 4))
            before = max(best.values(), default=-math.inf)
            best[K] = yield from at(K, place)
            worse = 0 if best[K] > before or len(best) == 1 else worse + 1
            step = math.ceil(GROWTH * K) - K if K >= EVERY_SIZE else 1
            index = min(index + step, last) if index < last else last + 1
        while (left_out := _between(best)) is not None:
            place = yield from best_place(left_out, place, 1)
            best[left_out] = yield from at(left_out, place)

    def fit(size: tuple[int, int], tick: Tick) -> None:
        scores[size] = score(*size)
        tick(f"K = {size[0]}, q = {size[1]}")

    most = 2 * len(components) + 2 * EVERY_SIZE
    if try_candidates(sizes(), fit, label="candidate", total=most)[1]:
        warn_interrupted(f"{len(scores)} sizes")
    chosen = max(scores, key=scores.__getitem__)
    return MixtureSelection(criterion, list(scores), list(scores.values()), chosen)


def _between(best: Mapping[int, float]) -> int | None:
    """Return a number beside the best that was left out, halfway to the next that was tried."""
    top = max(best, key=best.__getitem__)
    fewer = max((k for k in best if k < top), default=top)
    more = min((k for k in best if k > top), default=top)
    wide = max(1, top // (2 * EVERY_SIZE))
    return next(((k + top) // 2 for k in (fewer, more) if abs(k - top) > wide), None)
