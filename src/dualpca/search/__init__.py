"""Search for a kernel: what may be tried, how a trial is judged, and the record of all trials."""

from dualpca.search.families import FAMILIES, Scales
from dualpca.search.importance import importances
from dualpca.search.judging import agreement, normalised_likelihood, q2
from dualpca.search.ledger import Ledger
from dualpca.search.loop import Outcome, Plan, run
from dualpca.search.records import Record, best_of
from dualpca.search.spaces import Candidate, Space

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
