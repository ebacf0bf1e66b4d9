"""What is known of a trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dualpca.errors import SearchError
from dualpca.kernels import Kernel


@dataclass(frozen=True)
class Record:
    """One trial of a search.

    Attributes
    ----------
    number : int
        From 0.
    state : {'complete', 'pruned', 'failed'}
    score : float or None
        Mean over the folds, larger is better; None where the trial failed.
    scores : tuple of float
        Of every fold that was judged.
    params : dict
        What was drawn.
    kernel : Kernel
    n_components : int
    seconds : float
    reason : str
        Why it failed.
    """

    number: int
    state: str
    score: float | None
    scores: tuple[float, ...]
    params: dict[str, Any]
    kernel: Kernel
    n_components: int
    seconds: float = 0.0
    reason: str = ""


def best_of(records: Sequence[Record]) -> Record:
    """Return the complete trial of largest score; of equal ones the smallest, then the earliest.

    Examples
    --------
    >>> from dualpca.kernels import Linear
    >>> a = Record(0, "complete", 0.5, (0.5,), {}, Linear(), 3)
    >>> b = Record(1, "complete", 0.5, (0.5,), {}, Linear(), 2)
    >>> c = Record(2, "pruned", 0.9, (0.9,), {}, Linear(), 2)
    >>> best_of([a, b, c]).number
    1
    """
    done = [r for r in records if r.state == "complete" and r.score is not None]
    if not done:
        reasons = [r.reason for r in records if r.reason]
        first = f" The first said: {reasons[0]}" if reasons else ""
        raise SearchError(f"none of {len(records)} trials could be judged.{first}")
    return min(done, key=lambda r: (-(r.score or 0.0), r.n_components, r.number))
