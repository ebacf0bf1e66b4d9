"""S0 Fig. 2: sampling in the whole kernel space, and on the components only."""

from __future__ import annotations

import numpy as np

from dualpca import DualPPCA
from dualpca.experiments.base import Outcome, experiment
from dualpca.experiments.canvas import Canvas
from dualpca.plots import sampling_overview


@experiment(
    name="s0-figure-2",
    source="S0 Fig. 2",
    title="Dual PPCA samples the whole kernel space, kernel PCA only its components",
)
def run(draw: Canvas) -> Outcome:
    """Sample kernel values of twenty points and look at them off the components."""
    t = np.linspace(-7, 7, 20)
    X = np.column_stack([t, np.sin(t)])
    model = DualPPCA(3, gamma=1 / 8).fit(X)
    count = draw.pick(1000, quick=50)
    figure = sampling_overview(model, count, random_state=draw.seed)
    return Outcome({"samples": figure}, {}, "", "")
