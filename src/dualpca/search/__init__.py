"""Search for a kernel: what may be tried, how a trial is judged, and the record of all trials."""

from dualpca.search.judging import agreement, normalised_likelihood, q2
from dualpca.search.loop import Outcome, Plan, run
from dualpca.search.spaces import FAMILIES, Candidate, Scales, Space
from dualpca.search.trials import Ledger, Record, best_of, importances

__all__ = [
    "FAMILIES",
    "Candidate",
    "Ledger",
    "Outcome",
    "Plan",
    "Record",
    "Scales",
    "Space",
    "agreement",
    "best_of",
    "importances",
    "normalised_likelihood",
    "q2",
    "run",
]
