"""One answer everywhere: what one command or page says, every other says too."""

import json
import re

import numpy as np
import polars as pl
import pytest

pytest.importorskip("typer", reason="the app extra is not installed: no command line to test")
pytest.importorskip("plotly", reason="the app extra is not installed: no script to put in")

import dualpca as dp
from dualpca import report


def table(n=60, d=5, q=2, seed=0, missing=0.0):
    """Rows of a few latents and noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q)) @ rng.normal(size=(q, d)) + 0.5 * rng.normal(size=(n, d))
    X[rng.random(X.shape) < missing] = np.nan
    return X


# --- one share per direction --------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [dp.PCA(2), dp.PPCA(2), dp.BayesianPCA(), dp.FactorAnalysis(2), dp.MixturePPCA(2, 1)],
    ids=lambda model: type(model).__name__,
)
def test_a_direction_has_one_share_of_the_variance(model):
    X = table(missing=0.0 if isinstance(model, dp.PCA) else 0.1)
    page = report.render(report.build(report.subject_of(model.fit(X), X)))
    found: dict[str, set[str]] = {}
    for number, share in re.findall(r"\b(?:direction|latent) (\d+) \(([^)]*) of the var", page):
        found.setdefault(number, set()).add(share)
    assert all(len(shares) == 1 for shares in found.values()), found
    assert found or isinstance(model, dp.FactorAnalysis)
