"""Fitted models of every kind, for the tests of model files."""

import numpy as np
import scipy.sparse as sp
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dualpca as dp
from dualpca import generation, kernels, preimages

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 6)) + 0.1 * rng.normal(size=(60, 6))
HOLES = X.copy()
HOLES[rng.random(X.shape) < 0.1] = np.nan
Y = X[:, :2] + 0.1 * rng.normal(size=(60, 2))
NEW = rng.normal(size=(7, 3)) @ rng.normal(size=(3, 6))
NEW_HOLES = NEW.copy()
NEW_HOLES[rng.random(NEW.shape) < 0.2] = np.nan


def mixed(rows):
    """Return columns of every kind: numbers, grades, yes/no, categories, limits and counts."""
    columns = [
        rows[:, 0],
        np.array(["low", "middle", "high"])[np.digitize(rows[:, 1], [-0.5, 0.5])],
        rows[:, 2] > 0,
        np.array(["red", "green", "blue"])[np.argmax(rows[:, 3:6], axis=1)],
        np.array(["<0" if value < 0 else f"{value:.2f}" for value in rows[:, 4]]),
        np.round(np.exp(np.minimum(rows[:, 5], 3))),
    ]
    table = np.stack([column.astype(object) for column in columns], axis=1)
    table[1::7, 3] = table[2::7, 0] = None
    return table


KINDS_ASKED = {1: ["low", "middle", "high"], 4: "censored", 5: "count"}
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
    "robust": lambda: dp.RobustPPCA(2).fit(X),
    "robust nan": lambda: dp.RobustPPCA(2, degrees_of_freedom=4).fit(HOLES),
    "robust standardised": lambda: dp.RobustPPCA(standardize=True).fit(X),
    "batches": lambda: dp.BatchUnfolder(n_points=5).fit(X.reshape(4, -1, X.shape[1])),
    "monitor": lambda: dp.Monitor(arl=20).fit(X),
    "monitor learning": lambda: dp.Monitor(dp.PPCA(2), arl=20, lags=1).fit(HOLES).partial_fit(X),
    "bayesian": lambda: dp.BayesianPCA().fit(X),
    "bayesian nan": lambda: dp.BayesianPCA().fit(HOLES),
    "bayesian variational": lambda: dp.BayesianPCA(method="variational").fit(HOLES),
    "cca": lambda: dp.CCA(1).fit(X[:, :3], Y),
    "cca kernel": lambda: dp.KernelCCA(1).fit(X[:, :3], Y),
    "cca nan": lambda: dp.CCA(1).fit(HOLES[:, :3], Y),
    "cca vector": lambda: dp.CCA(1).fit(X[:, :3], Y[:, 0]),
    "copula": lambda: dp.CopulaPPCA(2, column_kinds={0: dp.Censored(below=-2.0)}).fit(X),
    "copula nan": lambda: dp.CopulaPPCA(1, noise="isotropic").fit(HOLES),
    "copula cv nan": lambda: dp.CopulaPPCA(column_kinds=["continuous"] * 6).fit(HOLES),
    "copula mixed": lambda: dp.CopulaPPCA(2, column_kinds=KINDS_ASKED).fit(mixed(X)),
    "imputer copula": lambda: dp.Imputer(2, model="copula", add_indicator=True).fit(HOLES),
    "imputer copula mixed": lambda: dp.Imputer(2, model="copula", column_kinds=KINDS_ASKED).fit(
        mixed(X)
    ),
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
MIX, HMM, CLASSES, MAKE = dp.MixturePPCA, dp.HiddenMarkovPCA, dp.SequenceClassifier, dp.Generator
SEQUENCES = np.array_split(X, 6)
MANY = np.concatenate([X + 0.01 * rng.normal(size=X.shape) for _ in range(18)])
LETTERS = ["up", "down", "down ", "up", "down", "down "]
MODELS |= {
    "hierarchy": lambda: dp.HierarchicalPPCA([2, 2], 1).fit(X),
    "hierarchy bic": lambda: dp.HierarchicalPPCA(max_depth=1).fit(X),
    "hierarchy kernel": lambda: dp.HierarchicalPPCA(2, 1, kernel="rbf", n_directions=5).fit(X),
    "hierarchy nan": lambda: dp.HierarchicalPPCA([[], []], 1).fit(HOLES),
    "mixture": lambda: MIX(2, 1).fit(X),
    "mixture one": lambda: MIX(1, 6).fit(X),
    "mixture ranks": lambda: MIX(3, [1, 3, 2]).fit(X),
    "mixture tied": lambda: MIX(2, np.array([2, 1]), tied_noise=True).fit(X),
    "mixture nan": lambda: MIX(2, 2).fit(HOLES),
    "mixture float32": lambda: MIX(2, 2).fit(X.astype(np.float32)),
    "mixture bic": lambda: MIX("bic", "bic", max_mixtures=2, max_iter=30).fit(X),
    "mixture cv": lambda: MIX("cv", 2, max_mixtures=2, max_iter=30).fit(X),
    "mixture dirichlet": lambda: MIX("dirichlet", 1, max_mixtures=4).fit(X),
    "mixture kernel": lambda: MIX(2, 2, kernel="rbf", n_directions=10).fit(X),
    "mixture kernel landmarks": lambda: MIX(2, 2, kernel="rbf", n_directions=5, max_iter=5).fit(
        MANY
    ),
    "mixture stream": lambda: chunks(MIX(2, 2), MANY[:400]),
    "mixture stream waiting": lambda: chunks(MIX(2, [1, 2])),
    "mixture stream nan": lambda: chunks(MIX(2, 2), np.concatenate([HOLES, X, HOLES + 1])),
    "chain": lambda: HMM(2, 1).fit(X, lengths=[20, 40]),
    "chain mixtures": lambda: HMM(2, 1, 2).fit(X),
    "chain ranks": lambda: HMM(3, [0, 2, 5], tied_noise=True).fit(X),
    "chain nan": lambda: HMM(2, 2, stickiness=3.0).fit(HOLES),
    "chain float32": lambda: HMM(2, 2).fit(X.astype(np.float32)),
    "chain kernel": lambda: HMM(2, 2, kernel="rbf", n_directions=8).fit(X),
    "chain kernel nan": lambda: HMM(2, 2, 2, kernel=COMPOSED, n_directions=8).fit(HOLES),
    "chain onwards": lambda: HMM(3, 1, topology="left-to-right").fit(X, lengths=[30, 30]),
    "chain preimage": lambda: HMM(
        2, 1, kernel="rbf", n_directions=4, preimage=preimages.FixedPoint()
    ).fit(X),
    "classes": lambda: CLASSES().fit(SEQUENCES, LETTERS),
    "classes of numbers": lambda: CLASSES(HMM(2, 2), "equal").fit(
        SEQUENCES, np.array([3, 1, 1, 3, 2, 2], dtype=np.int8)
    ),
    "classes of objects": lambda: CLASSES(HMM(2, 1, 2), [0.5, 0.2, 0.3]).fit(
        SEQUENCES, np.array(LETTERS, dtype=object)
    ),
    "classes of truth": lambda: CLASSES(HMM(1, 1)).fit(SEQUENCES, np.arange(6) < 3),
    "classes nan": lambda: CLASSES(HMM(2, 1).fit(X)).fit(np.array_split(HOLES, 6), LETTERS),
    "classes kernel": lambda: CLASSES(HMM(2, 1, kernel="rbf", n_directions=4)).fit(
        SEQUENCES, LETTERS
    ),
    **{
        f"generator {s}": lambda s=s: MAKE(dp.PPCA(2), density=s, n_mixtures=2).fit(X)
        for s in ("kde", "gaussian", "mixture", "subspaces")
    },
    **{
        f"generator by class {s}": lambda s=s: MAKE(
            dp.PPCA(2), density=s, n_mixtures=2, by_class=True, temperature=0.5
        ).fit(X, np.arange(len(X)) % 2)
        for s in ("kde", "gaussian", "mixture", "subspaces")
    },
    **{
        f"generator own {type(s).__name__}": lambda s=s: MAKE(dp.PPCA(2), density=s).fit(X)
        for s in (
            generation.Gaussian(np.zeros(2), np.eye(2)),
            generation.KernelDensity(rng.normal(size=(9, 2)), np.eye(2)),
            generation.MixtureDensity(
                np.ones(1), (generation.Gaussian(np.ones(2), 2 * np.eye(2)),)
            ),
        )
    },
    **{
        f"generator of {type(s).__name__}": lambda s=s: MAKE(s).fit(X)
        for s in (
            dp.PCA(2, whiten=True),
            dp.FactorAnalysis(2),
            dp.BayesianPCA(2),
            KPCA(2, kernel="rbf", fit_inverse_transform=True),
            DUAL(2),
            make_pipeline(StandardScaler(), dp.PPCA(2)),
        )
    },
    "generator frozen": lambda: MAKE(FrozenEstimator(dp.PPCA(2).fit(X))).fit(X),
    "generator mala": lambda: MAKE(dp.PPCA(2), sampler="mala", n_steps=20).fit(X),
    "generator decoder": lambda: MAKE(KPCA(2, kernel="rbf"), decoder="fixed-point").fit(X),
    "generator float32": lambda: MAKE(dp.PPCA(2)).fit(X.astype(np.float32)),
    "pipeline": lambda: make_pipeline(StandardScaler(), dp.PPCA(2)).fit(X),
    "pipeline nan": lambda: make_pipeline(StandardScaler(), dp.PPCA(2)).fit(HOLES),
    "pipeline kernel": lambda: make_pipeline(
        StandardScaler(with_mean=False), "passthrough", KPCA(2, kernel="rbf")
    ).fit(X),
    "pipeline imputed": lambda: make_pipeline(dp.Imputer(2), StandardScaler(), MIX(2, 1)).fit(
        HOLES
    ),
    "pipeline frozen": lambda: make_pipeline(FrozenEstimator(dp.PCA(2).fit(X))).fit(X),
}


def inputs(name):
    """Return new rows that the model of that name takes."""
    if name.startswith("classes"):
        return [NEW_HOLES[:3], NEW_HOLES[3:]] if "nan" in name else [NEW[:3], NEW[3:]]
    if "mixed" in name:
        return mixed(NEW)
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
            "contributions",
            "chart",
            "novelty",
            "denoise",
            "predict",
            "predict_proba",
            "predict_log_proba",
            "score",
            "bic",
            "filter",
            "decode",
            "forecast",
            "score_sequences",
            "score_classes",
            "nearest",
            "reconstruct_kernel",
        )
        if hasattr(model, name)
    }
    for name in ("sample", "sample_kernel", "sample_latents", "chains"):
        if hasattr(model, name):
            calls[name] = lambda name=name: getattr(model, name)(3, random_state=0)
    if hasattr(model, "traverse"):
        calls["traverse"] = lambda: model.traverse(0)
        calls["interpolate"] = lambda: model.interpolate(rows[0], rows[1], path="density")
        calls["decode"] = lambda: model.decode(model.sample_latents(2, random_state=1))
        calls["quality"] = lambda: model.quality(rows, n_permutations=5, random_state=0)
    if hasattr(model, "loadings_") and isinstance(model.loadings_, list):
        calls["attributes"] = lambda: [
            getattr(model, name) for name in PUBLIC if name in vars(model)
        ]
        calls["posterior"] = lambda: model.posterior(rows, 0)
    if hasattr(model, "get_covariance"):
        calls["covariance"] = model.get_covariance
    if hasattr(model, "inverse_transform"):
        calls["inverse"] = lambda: model.inverse_transform(model.transform(rows))
    return {name: result(call) for name, call in calls.items()}


PUBLIC = ("weights_", "means_", "loadings_", "components_", "explained_variance_", "selection_")
MAIN = ("transform", "predict", "decode", "contributions")


def result(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def same(a, b):
    """Tell whether two results agree to the last bit."""
    if isinstance(a, tuple | list):
        return type(a) is type(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray) and a.dtype == object:
        return a.dtype == b.dtype and a.tolist() == b.tolist()
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return type(b) is float and (a == b or (np.isnan(a) and np.isnan(b)))
    return a == b if isinstance(a, str | int | None) else repr(a) == repr(b)
