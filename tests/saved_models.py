"""Fitted models of every kind, for the tests of model files."""

import numpy as np
import scipy.sparse as sp

import dualpca as dp
from dualpca import kernels

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 6)) + 0.1 * rng.normal(size=(60, 6))
HOLES = X.copy()
HOLES[rng.random(X.shape) < 0.1] = np.nan
Y = X[:, :2] + 0.1 * rng.normal(size=(60, 2))
NEW = rng.normal(size=(7, 3)) @ rng.normal(size=(3, 6))
NEW_HOLES = NEW.copy()
NEW_HOLES[rng.random(NEW.shape) < 0.2] = np.nan
GRAM, NEW_GRAM = X @ X.T, NEW @ X.T
SPARSE = sp.csr_array(np.where(np.abs(X) > 1, X, 0))
WIDE = rng.normal(size=(8, 20))
COMPOSED = 2.0 * kernels.RBF(length_scale=[1.0, 2, 3, 4, 5, 6]) + kernels.Linear(on=[0, 2])


def chunks(model, rows=X):
    for part in np.array_split(rows, 3):
        model.partial_fit(part)
    return model


KPCA, DUAL, PKPCA = dp.KernelPCA, dp.DualPPCA, dp.ProbabilisticKernelPCA
MODELS = {
    "pca": lambda: dp.PCA(2).fit(X),
    "pca whitened": lambda: dp.PCA(2, whiten=True, standardize=True).fit(X),
    "pca float32": lambda: dp.PCA(2).fit(X.astype(np.float32)),
    "pca all": lambda: dp.PCA().fit(X),
    "pca wide": lambda: dp.PCA(3).fit(WIDE),
    "pca sparse": lambda: dp.PCA(2).fit(SPARSE),
    "pca stream": lambda: chunks(dp.PCA(2)),
    "ppca": lambda: dp.PPCA(2).fit(X),
    "ppca q=1": lambda: dp.PPCA(1).fit(X),
    "ppca q=d-1": lambda: dp.PPCA(5).fit(X),
    "ppca wide": lambda: dp.PPCA(2).fit(WIDE),
    "ppca em": lambda: dp.PPCA(2, method="em", random_state=0).fit(X),
    "ppca nan": lambda: dp.PPCA(2).fit(HOLES),
    "ppca cv": lambda: dp.PPCA("cv").fit(X),
    "ppca stream": lambda: chunks(dp.PPCA(2)),
    "ppca stream nan": lambda: chunks(dp.PPCA(2), HOLES),
    "ppca of dual": lambda: DUAL(2, kernel="linear").fit(X).to_primal(),
    "factors": lambda: dp.FactorAnalysis(2).fit(X),
    "factors nan": lambda: dp.FactorAnalysis(2, rotation="varimax").fit(HOLES),
    "bayesian": lambda: dp.BayesianPCA().fit(X),
    "bayesian nan": lambda: dp.BayesianPCA().fit(HOLES),
    "bayesian variational": lambda: dp.BayesianPCA(method="variational").fit(HOLES),
    "cca": lambda: dp.CCA(1).fit(X[:, :3], Y),
    "cca nan": lambda: dp.CCA(1).fit(HOLES[:, :3], Y),
    "cca vector": lambda: dp.CCA(1).fit(X[:, :3], Y[:, 0]),
    "imputer": lambda: dp.Imputer(2).fit(HOLES),
    "imputer indicator": lambda: dp.Imputer(2, add_indicator=True).fit(HOLES),
    "imputer bayesian": lambda: dp.Imputer(2, model="bayesian").fit(HOLES),
    **{
        f"kernel {s}": lambda s=s: KPCA(2, kernel="rbf", eigen_solver=s, n_landmarks=20).fit(X)
        for s in ("auto", "dense", "krylov", "nystrom", "cholesky", "fourier")
    },
    "kernel all": lambda: KPCA(kernel="rbf").fit(X),
    "kernel median": lambda: KPCA(2, kernel="rbf", gamma="median").fit(X),
    "kernel float32": lambda: KPCA(2, kernel="rbf").fit(X.astype(np.float32)),
    "kernel nan": lambda: KPCA(2, kernel="rbf").fit(HOLES),
    "kernel sparse": lambda: KPCA(2, kernel="rbf").fit(SPARSE),
    "kernel matrix": lambda: KPCA(2, kernel="precomputed").fit(GRAM),
    "kernel composed": lambda: KPCA(2, kernel=COMPOSED).fit(X),
    "kernel params": lambda: KPCA(2, kernel="matern", kernel_params={"nu": 2.5}).fit(X),
    "kernel learned": lambda: KPCA(2, kernel="rbf", fit_inverse_transform=True).fit(X),
    "kernel stream": lambda: chunks(KPCA(2, kernel="rbf", n_landmarks=10)),
    "kernel stream waiting": lambda: chunks(KPCA(2, kernel="rbf", n_landmarks=90)),
    "kernel stream fourier": lambda: chunks(
        KPCA(2, kernel="rbf", n_landmarks=10, eigen_solver="fourier")
    ),
    **{
        f"dual {s}": lambda s=s: DUAL(2, eigen_solver=s, n_landmarks=20).fit(X)
        for s in ("auto", "nystrom", "cholesky", "fourier")
    },
    "dual em": lambda: DUAL(2, method="em").fit(X),
    "dual ard": lambda: DUAL("ard").fit(X),
    "dual nan": lambda: DUAL(2).fit(HOLES),
    "dual matrix": lambda: DUAL(2, kernel="precomputed").fit(GRAM),
    "dual sparse": lambda: DUAL(2).fit(SPARSE),
    "dual of ppca": lambda: dp.PPCA(2).fit(X).to_dual(),
    "probabilistic kernel": lambda: PKPCA(2).fit(X),
    "probabilistic kernel em": lambda: PKPCA(2, method="em").fit(X),
    "probabilistic kernel start": lambda: PKPCA(2, method="em", init=X[:, :2].copy()).fit(X),
    "probabilistic kernel diagonal": lambda: PKPCA(2, noise="diagonal").fit(X),
    "probabilistic kernel metric": lambda: PKPCA(2, metric="cityblock", correction="lingoes").fit(
        X
    ),
    "probabilistic kernel matrix": lambda: PKPCA(2, kernel="precomputed").fit(GRAM),
    "twin": lambda: dp.TwinKernelPCA(2, max_iter=30).fit(X),
}


def inputs(name):
    """Return new rows that the model of that name takes."""
    if "matrix" in name:
        return NEW_GRAM
    if "wide" in name:
        return WIDE[:3]
    if "sparse" in name:
        return SPARSE[:5]
    if name.startswith("cca"):
        return NEW[:, :3]
    if "float32" in name:
        return NEW.astype(np.float32)
    return NEW_HOLES if "nan" in name or name.startswith("imputer") else NEW


def outputs(model, rows):
    """Return the results of every method that takes rows, or draws; errors by their words."""
    calls = {
        name: lambda name=name: getattr(model, name)(rows)
        for name in (
            "transform",
            "transform_std",
            "score_samples",
            "impute",
            "reconstruct",
            "posterior",
            "outliers",
            "novelty",
            "denoise",
            "predict",
            "reconstruct_kernel",
        )
        if hasattr(model, name)
    }
    for name in ("sample", "sample_kernel"):
        if hasattr(model, name):
            calls[name] = lambda name=name: getattr(model, name)(3, random_state=0)
    if hasattr(model, "get_covariance"):
        calls["covariance"] = model.get_covariance
    if hasattr(model, "inverse_transform"):
        calls["inverse"] = lambda: model.inverse_transform(model.transform(rows))
    return {name: result(call) for name, call in calls.items()}


def result(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def same(a, b):
    """Tell whether two results agree to the last bit."""
    if isinstance(a, tuple):
        return type(a) is type(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return type(b) is float and (a == b or (np.isnan(a) and np.isnan(b)))
    return a == b if isinstance(a, str | int | None) else repr(a) == repr(b)
