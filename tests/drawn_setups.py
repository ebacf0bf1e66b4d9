"""Tables and estimators with options, drawn at random from lists: for numbers that are recorded."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression

import dualpca as dp

# --- Tables --------------------------------------------------------------------------------------


def plain(rng, n=48, d=5, q=2):
    """Return rows of q directions of different lengths, with noise."""
    W = rng.normal(size=(q, d)) * (3.0 / np.arange(1, q + 1))[:, None]
    return rng.normal(size=(n, q)) @ W + rng.normal(size=(n, d)) * rng.uniform(0.4, 1.2, d)


def with_gaps(X, rng, share=0.12):
    """Return rows with values taken out at random, at least two left in each."""
    X = X.copy()
    gone = rng.random(X.shape) < share
    gone[:, :2] &= ~gone[:, 2:].all(axis=1)[:, None]
    gone[gone.all(axis=1)] = False
    X[gone] = np.nan
    return X


def spoilt(X, rng):
    """Return rows of which three are far from all others."""
    X = X.copy()
    X[:3] += rng.normal(size=(3, X.shape[1])) * 25
    return X


def in_order(X, rng):
    """Return rows each of which resembles the one before."""
    X = X.copy()
    for t in range(1, len(X)):
        X[t] = 0.8 * X[t - 1] + 0.6 * X[t]
    return X


def in_groups(X, rng):
    """Return rows of two groups."""
    return X + np.where(rng.random(len(X)) < 0.4, 7.0, 0.0)[:, None] * np.eye(X.shape[1])[0]


def with_still_column(X, rng):
    """Return rows with one column that does not vary."""
    X = X.copy()
    X[:, 1] = 2.5
    return X


TABLES = {
    "plain": lambda rng: plain(rng),
    "gaps": lambda rng: with_gaps(plain(rng), rng),
    "gaps, q = 1": lambda rng: with_gaps(plain(rng, 40, 4, 1), rng, 0.2),
    "long": lambda rng: plain(rng, 150, 4, 2),
    "wide": lambda rng: plain(rng, 12, 20, 2),
    "few": lambda rng: plain(rng, 7, 4, 1),
    "many columns": lambda rng: plain(rng, 60, 14, 3),
    "far": lambda rng: plain(rng) + 1e5,
    "units": lambda rng: plain(rng) * [1e3, 1.0, 1.0, 0.01, 1.0],
    "skewed": lambda rng: np.exp(plain(rng)),
    "whole": lambda rng: np.round(plain(rng)),
    "spoilt": lambda rng: spoilt(plain(rng), rng),
    "spoilt, gaps": lambda rng: with_gaps(spoilt(plain(rng), rng), rng),
    "in order": lambda rng: in_order(plain(rng, 80), rng),
    "groups": lambda rng: in_groups(plain(rng, 70), rng),
    "groups, gaps": lambda rng: with_gaps(in_groups(plain(rng, 70), rng), rng),
    "still column": lambda rng: with_still_column(plain(rng), rng),
    "copies": lambda rng: np.repeat(plain(rng, 20), 3, axis=0),
    "no noise": lambda rng: rng.normal(size=(40, 2)) @ rng.normal(size=(2, 5)),
    "tails": lambda rng: plain(rng) / np.sqrt(rng.gamma(1.5, size=(48, 1))),
    "sparse": lambda rng: sp.csr_array(plain(rng) * (rng.random((48, 5)) < 0.3)),
}

# --- Estimators ----------------------------------------------------------------------------------

COUNTS = [None, None, 1, 2, 2, 3]
LINEAR = {"standardize": [False, False, True]}
RULES = ["parallel", "evidence", "bic", "white-noise", "gavish-donoho", "cv", "cv-rows"]
RULES += ["cv-entries", 0.7, 0.95]
KERNELS = ["linear", "rbf", "rbf", "poly", "sigmoid", "cosine", "laplacian", "matern"]
KERNELS += ["rational_quadratic", "periodic", "arc_cosine"]
KERNEL = {"kernel": KERNELS, "gamma": [None, None, "median", "scale", 0.05]}
ESTIMATORS = {
    "PCA": LINEAR
    | {
        "n_components": [*COUNTS, *RULES, "mle"],
        "whiten": [False, False, True],
        "svd_solver": ["auto", "auto", "full", "covariance_eigh", "arpack", "randomized", "krylov"],
    },
    "PPCA": LINEAR
    | {
        "n_components": [*COUNTS, *COUNTS, *RULES],
        "noise_variance": [None, None, None, 0.3, 0.0],
        "method": ["closed", "closed", "em"],
        "solver": ["auto", "auto", "qr", "dense", "gram", "krylov"],
        "accelerate": [True, True, False],
        "n_init": [1, 1, 2],
    },
    "FactorAnalysis": LINEAR
    | {
        "n_components": [*COUNTS, "cv"],
        "rotation": [None, None, "varimax", "quartimax"],
        "tol": [1e-4, 1e-8],
        "svd_method": ["randomized", "lapack"],
    },
    "BayesianPCA": LINEAR
    | {"n_components": COUNTS, "method": ["ard", "variational"], "noise_variance": [None, 0.5]},
    "RobustPPCA": LINEAR
    | {
        "n_components": [*COUNTS, "cv", 0.9],
        "degrees_of_freedom": [None, None, 4.0, np.inf],
        "trim": [True, False],
    },
    "MixturePPCA": {
        "n_mixtures": ["bic", 1, 2, 2, 3, "cv", "dirichlet"],
        "n_components": [None, 1, 1, 2, "bic", [1, 2]],
        "tied_noise": [False, True],
        "max_mixtures": [3],
        "max_iter": [40],
        "n_init": [1, 2],
        "on_collapse": ["floor", "reseed", "drop"],
        "standardize": ["auto", True, False],
        "concentration": [1.0, 0.1],
    },
    "HiddenMarkovPCA": {
        "n_states": [1, 2, 2, 3, "bic"],
        "n_components": [None, 1, 2, "bic"],
        "n_mixtures": [1, 1, 2],
        "topology": ["ergodic", "ergodic", "left-to-right"],
        "stickiness": [0.0, 2.0],
        "prior_rows": [0.0, 3.0],
        "tied_noise": [False, True],
        "standardize": ["auto", True, False],
        "max_iter": [20],
    },
    "HierarchicalPPCA": {
        "children": [2, "bic", [2, 0]],
        "n_components": [1, None, "bic"],
        "max_depth": [1, None],
        "standardize": ["auto", True, False],
        "max_iter": [30],
    },
    "CopulaPPCA": {
        "n_components": [1, 2, None, "cv"],
        "noise": ["diagonal", "isotropic"],
        "max_iter": [30],
    },
    "Imputer": {
        "n_components": COUNTS,
        "model": ["auto", "auto", "ppca", "bayesian", "copula"],
        "method": ["expectation", "matching"],
        "add_indicator": [False, True],
        "rounding": [None, "auto"],
        "standardize": ["auto", True, False],
        "bounds": [None, None, (-1.0, 2.0)],
    },
    "KernelPCA": KERNEL
    | {
        "n_components": [None, 2, 2, 3, 0.8],
        "eigen_solver": ["auto", "dense", "krylov", "nystrom", "cholesky", "fourier"],
        "center": [True, True, False],
        "n_landmarks": [12, 500],
        "landmarks": ["kmeans", "leverage", "uniform"],
        "fit_inverse_transform": [False, True],
        "preimage": ["auto", "smoother", "distance", "learned", "fixed-point", "gradient"],
    },
    "DualPPCA": KERNEL
    | {
        "n_components": [None, 1, 2, "ard", "bic"],
        "method": ["closed", "closed", "em"],
        "center": [True, True, False],
        "noise_dim": [None, 5],
        "eigen_solver": ["auto", "dense", "nystrom", "cholesky"],
        "n_landmarks": [12, 500],
        "noise_variance": [None, 0.05],
    },
    "ProbabilisticKernelPCA": KERNEL
    | {
        "n_components": [1, 2, None, "bic", 0.8],
        "method": ["ml", "em"],
        "noise": ["isotropic", "diagonal"],
        "feature_dim": [None, None, 8],
        "init": ["auto", "pca", "random"],
        "max_iter": [60],
    },
    "TwinKernelPCA": {"n_components": [1, 2], "kernel": ["linear", "rbf"], "max_iter": [20]},
    "Monitor": {
        "arl": [50.0, 20.0],
        "statistics": [("t2", "spe", "mewma", "residual"), ("t2",), ("spe", "mewma")],
        "smoothing": [0.1, 0.3],
        "lags": [0, 0, 1],
        "dynamics": ["auto", "none", "ar"],
        "trim": [True, False],
        "rules": [(), ("2 of 3", "8 in a row")],
    },
}
WEIGHTED = {
    *("PCA", "PPCA", "FactorAnalysis", "BayesianPCA", "RobustPPCA", "MixturePPCA", "KernelPCA"),
    *("DualPPCA", "Imputer", "HierarchicalPPCA", "CopulaPPCA"),
}
COMPLETE = {"PCA", "ProbabilisticKernelPCA", "TwinKernelPCA"}
"""Estimators that refuse missing values."""
WRONG = [-1, 0, 1.5, 10**6, "nonsense", np.nan, np.inf, [1]]
"""Values that hardly any parameter accepts: one in eight set-ups has one."""


class Drawn:
    """A set-up with a number: which estimator, with what, on which table."""

    def __init__(self, number):
        self.number, self.rng = number, np.random.default_rng([20, number])
        names = list(ESTIMATORS)
        self.estimator = names[number % len(names)]
        complete = self.estimator in COMPLETE
        tables = [name for name in TABLES if not (complete and "gaps" in name)]
        self.table = str(self.rng.choice(tables))
        lists = ESTIMATORS[self.estimator]
        # a few options away from the first of their list, which is the default
        turned = self.rng.permutation(len(lists))[: self.rng.integers(0, 4)]
        self.options = {
            name: values[int(self.rng.integers(len(values)))] if k in turned else values[0]
            for k, (name, values) in enumerate(lists.items())
        }
        self.weighted = self.estimator in WEIGHTED and self.rng.random() < 0.4
        if self.rng.random() < 1 / 8:
            name = str(self.rng.choice(list(lists)))
            self.options[name] = WRONG[int(self.rng.integers(len(WRONG)))]
        self.name = f"{number} {self.estimator} {self.table}" + ", weights" * self.weighted

    def rows(self, noise=0.0):
        """Return the table, all numbers changed by a share of `noise`."""
        rng = np.random.default_rng([21, self.number])
        return nearly(TABLES[self.table](rng), noise)

    def fitted(self, noise=0.0):
        """Return the fitted estimator."""
        X = self.rows(noise)
        cls = getattr(dp, self.estimator)
        seed = {"random_state": 0} if "random_state" in cls().get_params() else {}
        weights = np.random.default_rng(3).uniform(0.2, 3.0, X.shape[0])
        more = {"sample_weight": weights} if self.weighted else {}
        return cls(**seed | self.options).fit(X, **more)


def nearly(X, noise):
    """Return a table in which every number but 0 is changed by a share of `noise`, at random."""
    if not noise:
        return X
    rng = np.random.default_rng(int(noise * 1e16))
    if sp.issparse(X):
        X = X.copy()
        X.data = X.data * (1 + noise * rng.uniform(-1, 1, X.data.shape))
        return X
    X = np.asarray(X)
    changed = X * (1 + noise * rng.uniform(-1, 1, X.shape))
    return np.where(X == np.round(X), X, changed)


# --- Functions, and what is done with models -----------------------------------------------------


def parts_of(X, rng):
    """Return rows in parts of unequal length."""
    return np.split(X, np.sort(rng.choice(np.arange(9, len(X) - 9), 3, replace=False)))


def in_parts(model, X):
    """Return a model that was fitted part by part."""
    for part in parts_of(X, np.random.default_rng(5)):
        model.partial_fit(part)
    return model


def watched(model, X):
    """Return a monitor that has seen rows after its phase I, of which some are off."""
    model.fit(X[:90])
    later = X[90:].copy()
    later[10:, 1] += 6 * X[:90, 1].std()
    model.update(later)
    return model


STREAMS = {
    "PCA": (lambda: dp.PCA(2), in_parts),
    "PCA, units": (lambda: dp.PCA(2, standardize=True), in_parts),
    "PPCA": (lambda: dp.PPCA(2), in_parts),
    "PPCA, gaps": (lambda: dp.PPCA(2), in_parts),
    "PPCA, rule": (lambda: dp.PPCA(), in_parts),
    "BayesianPCA": (lambda: dp.BayesianPCA(2), in_parts),
    "MixturePPCA": (lambda: dp.MixturePPCA(2, 1, random_state=0), in_parts),
    "MixturePPCA, gaps": (lambda: dp.MixturePPCA(2, 1, random_state=0), in_parts),
    "KernelPCA": (
        lambda: dp.KernelPCA(2, kernel="rbf", gamma=0.05, n_landmarks=15, random_state=0),
        in_parts,
    ),
    "Monitor": (lambda: dp.Monitor(dp.PPCA(2), arl=20, random_state=0), watched),
    "Monitor, gaps": (lambda: dp.Monitor(dp.PPCA(2), arl=20, lags=1, random_state=0), watched),
    "Monitor, rules": (lambda: dp.Monitor(arl=30, rules=("2 of 3",), random_state=0), watched),
}


def stream(name, noise=0.0):
    """Return (model, rows) of one of `STREAMS`."""
    rng = np.random.default_rng([22, *map(ord, name)])
    X = plain(rng, 130)
    X = nearly(with_gaps(X, rng) if "gaps" in name else X, noise)
    make, how = STREAMS[name]
    return lambda: how(make(), X), lambda: X[:7]


def supplements(near):
    """Yield (name, call) of what is said of columns beside a model."""
    rng = np.random.default_rng(23)
    X, more = near(plain(rng, 60)), near(rng.normal(size=(60, 2)))
    more[:, 0] += X[:, 0]
    some = more.copy()
    some[rng.random(some.shape) < 0.2] = np.nan
    words = np.where(X[:, 0] > 0, "high", np.where(X[:, 1] > 0, "middle", "low"))
    w = rng.uniform(0.5, 2, 60)
    for name, model in {
        "PCA": dp.PCA(2),
        "PPCA": dp.PPCA(2),
        "PPCA, gaps": dp.PPCA(2),
        "FactorAnalysis": dp.FactorAnalysis(2),
    }.items():
        rows = with_gaps(X, np.random.default_rng(1)) if "gaps" in name else X
        model.fit(rows)
        said = partial(dp.supplementary, model, rows)
        yield f"{name}, numbers", partial(said, some)
        yield f"{name}, words", partial(said, {"word": words, "number": some[:, 0]})
        yield f"{name}, weights", partial(said, {"word": words, "x": more[:, 1]}, sample_weight=w)
        yield f"{name}, rows", partial(said, rows=X[:4] + 1)


def pooling(near):
    """Yield (name, call) of estimates and of fits put together."""
    rng = np.random.default_rng(24)
    for k in (2, 5, 20):
        estimates, variances = near(rng.normal(3, 1, size=(k, 3))), near(rng.uniform(1, 2, (k, 3)))
        for dof in (None, 12.0, 500.0):
            pooled = partial(dp.pool, estimates, variances, dof=dof)
            yield f"{k} of numbers, {dof}", partial(everything_of, pooled)
    y = near(rng.normal(size=40))
    tables = [near(rng.normal(size=(40, 3))) + 0.5 * y[:, None] for _ in range(4)]
    for name, make, target in (
        ("linear", LinearRegression(), y),
        ("linear, no constant", LinearRegression(fit_intercept=False), y),
        ("logistic", LogisticRegression(C=np.inf, tol=1e-10), y > 0.2),
    ):
        fits = [clone(make).fit(X, target) for X in tables]
        yield name, partial(everything_of, partial(dp.pool, fits, X=tables, y=target))
        yield (
            f"{name}, dof",
            partial(everything_of, partial(dp.pool, fits, X=tables, y=target, dof=9)),
        )


def everything_of(pooled):
    """Return what a pooled estimate holds and says."""
    found = pooled()
    told = {name: getattr(found, name) for name in ("estimate", "variance", "dof", "std")}
    told["interval"] = found.interval(0.8)
    if hasattr(found, "test"):
        names = [str(term) for term in found.terms][-2:]
        told |= {"terms": found.terms, "two": found.test(names), "table": str(found)}
    return told


def frames(near):
    """Yield (name, call) of tables of columns of every kind."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(25)
    X = near(plain(rng, 70))
    frame = pandas.DataFrame(
        {
            "number": X[:, 0],
            "count": np.round(np.exp(X[:, 1] / 3)),
            "grade": pandas.Categorical(
                np.array(["low", "middle", "high"])[np.digitize(X[:, 2], [-1, 1])],
                ["low", "middle", "high"],
                ordered=True,
            ),
            "colour": np.array(["red", "green", "blue"])[np.argmax(X[:, 1:4], axis=1)],
            "yes": X[:, 4] > 0,
            "whole": np.round(10 * X[:, 3]).astype(int),
        }
    )
    gaps = frame.astype({"yes": object, "whole": float})
    gaps = gaps.mask(rng.random(frame.shape) < 0.12)
    numbers = gaps[["number", "count", "whole"]]
    many = frame.assign(name=[f"n{k}" for k in range(70)])
    for name, table in {"whole": frame, "gaps": gaps, "numbers": numbers, "names": many}.items():
        for kind in ("CopulaPPCA", "Imputer"):
            make = partial(getattr(dp, kind), 2, random_state=0)
            yield f"{kind}, {name}", partial(said_of_frame, make, table)


def said_of_frame(make, table):
    """Return what a model says of a frame."""
    model = make().fit(table)
    names = ("impute", "transform", "column_kinds_", "levels_", "score_samples", "predict_proba")
    told = {name: getattr(model, name) for name in names if hasattr(model, name)}
    return {name: one(table[:9]) if callable(one) else one for name, one in told.items()}


FUNCTIONS = {"supplementary": supplements, "pool": pooling, "frames": frames}
