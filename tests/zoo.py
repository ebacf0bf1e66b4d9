"""Estimators that accept weights, each with a small table, for properties of all of them."""

import numpy as np
from sklearn.base import clone

import dualpca


def rows(n=90, d=5, seed=0, missing=0.0):
    """Return two groups of rows with three strong directions, some entries missing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) @ (3 * rng.normal(size=(3, d))) + rng.normal(size=(n, d))
    X += np.where(np.arange(n) % 2, 6.0, 0.0)[:, None] * np.eye(d)[0]
    X[rng.random(X.shape) < missing] = np.nan
    return X


TIGHT = {"tol": 1e-10, "max_iter": 3000}

ESTIMATORS = {
    "PCA": (dualpca.PCA(2), 0.0),
    "PPCA": (dualpca.PPCA(2), 0.0),
    "PPCA, em": (dualpca.PPCA(2, method="em", **TIGHT), 0.0),
    "PPCA, missing": (dualpca.PPCA(2, **TIGHT), 0.15),
    "FactorAnalysis": (dualpca.FactorAnalysis(1, **TIGHT), 0.0),
    "FactorAnalysis, missing": (dualpca.FactorAnalysis(1, **TIGHT), 0.15),
    "BayesianPCA": (dualpca.BayesianPCA(3), 0.0),
    "BayesianPCA, missing": (dualpca.BayesianPCA(3, **TIGHT), 0.15),
    "BayesianPCA, variational": (dualpca.BayesianPCA(3, method="variational", tol=1e-9), 0.15),
    "RobustPPCA": (dualpca.RobustPPCA(2, **TIGHT), 0.1),
    "MixturePPCA": (dualpca.MixturePPCA(2, 2, random_state=0, standardize=True, **TIGHT), 0.0),
    "MixturePPCA, missing": (dualpca.MixturePPCA(2, 2, random_state=0, **TIGHT), 0.1),
    "KernelPCA": (dualpca.KernelPCA(3, kernel="rbf", gamma=0.02), 0.0),
    "DualPPCA": (dualpca.DualPPCA(2, kernel="rbf", gamma=0.02), 0.0),
}


def fitted(name, X=None, sample_weight=None):
    """Return a fit to the estimator's own table, or to another."""
    estimator, missing = ESTIMATORS[name]
    X = rows(missing=missing) if X is None else X
    return clone(estimator).fit(X, sample_weight=sample_weight)


def said(model, X):
    """Return what a model says of rows, name to array."""
    names = ("score_samples", "transform", "reconstruct")
    return {name: np.asarray(getattr(model, name)(X)) for name in names if hasattr(model, name)}


def assert_same(model, expected, X, rtol=1e-6):
    """Assert that two models say the same of rows."""
    found = said(model, X)
    for name, wanted in said(expected, X).items():
        size = np.max(np.abs(wanted))
        np.testing.assert_allclose(found[name], wanted, rtol=0, atol=rtol * size, err_msg=name)
