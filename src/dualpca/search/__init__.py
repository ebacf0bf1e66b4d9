"""Search for a kernel: what may be tried, how a trial is judged, and the record of all trials."""

from dualpca.search.judging import agreement, normalised_likelihood, q2
from dualpca.search.spaces import Candidate, Space, families
from dualpca.search.trials import Ledger, Outcome, Plan, TrialRecord, best_trial, importances, run
