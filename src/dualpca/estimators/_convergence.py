"""How an iterative fit went, as scikit-learn's users expect to read it."""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import ConvergenceWarning

from dualpca.errors import InterruptWarning, warn
from dualpca.models.driver import Record


def publish_record(model: Any, record: Record, quiet: bool = False) -> None:
    """Set `loglikelihoods_` and the like; warn if the fit stopped before it converged."""
    model.loglikelihoods_ = record.loglikelihoods
    model.loglikelihood_ = record.loglikelihoods[-1]
    model.n_iter_, model.converged_ = record.n_iter, record.converged
    if record.interrupted:
        warn(
            f"the fit was interrupted after {record.n_iter} steps: the model is the best there "
            "was until then. Fit again to go on to the maximum.",
            InterruptWarning,
        )
    elif not record.converged and not quiet:
        warn(
            f"the fit stopped after max_iter={model.max_iter} steps before it came within "
            f"tol={model.tol:g} of the maximum. Raise max_iter or tol.",
            ConvergenceWarning,
        )
