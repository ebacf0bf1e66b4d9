"""Mixtures of PPCA: p(x) = Σ_k π_k N(x; μ_k, W_kW_kᵀ + σ_k²I), in the input space or a kernel's.

In the order in which to read it:

- `model.py`: the density (`Mixture`) and the fitted model (`MixtureModel`).
- `fit.py`: `fit_mixture` fits one to a table: EM, each step one pass over the rows
  (`MixtureSteps`), from the best of a few short starts.
- `choosing.py`: sizes that are not given, by BIC or held-out rows; hidden Markov models use it too.
- `stream.py`: `MixtureStream` sees every chunk once.
"""

from dualpca.models.mixture.choosing import MixtureSelection, choose, near_enough, penalised
from dualpca.models.mixture.fit import (
    BOUND,
    COLLAPSE_RULES,
    CRITERIA,
    MixtureRequest,
    MixtureSteps,
    fit_mixture,
    open_space,
    row_weights,
)
from dualpca.models.mixture.model import Mixture, MixtureModel
from dualpca.models.mixture.stream import MixtureStream, grown, model_of_stream
