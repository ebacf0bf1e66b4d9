"""A process with two causes, and how its rows are judged."""

from dataclasses import replace

import numpy as np

import dualpca
from dualpca.estimators.monitor import fit_of
from dualpca.models.baseline import baseline_of
from dualpca.models.monitoring import ChartPlan

D, Q = 6, 2


def process(n, seed=0, d=D, q=Q):
    rng = np.random.default_rng(seed)
    W = np.random.default_rng(99).normal(size=(q, d))
    return rng.normal(size=(n, q)) @ W + 0.5 * rng.normal(size=(n, d)) + np.arange(d)


def with_gaps(X, share=0.25, seed=1):
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return X


def baseline(model=None, X=None, d=D):
    X = process(400) if X is None else X
    model = dualpca.PPCA(Q) if model is None else model
    return baseline_of(*fit_of(model.fit(X)), X, d)[0]


def plan(base=None, statistics=("t2", "spe", "mewma", "residual"), **changes):
    base = baseline() if base is None else base
    limits = dict.fromkeys(("mewma", "residual", "cusum", "residual_cusum"), 8.0)
    levels = {"t2": 0.99, "spe": 0.99}
    names = tuple("abcdefghijklmnop"[: base.d])
    made = ChartPlan(base, statistics, 0.1, 0, limits, levels, (), names)
    return replace(made, **changes)
