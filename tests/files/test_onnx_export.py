"""ONNX graphs of `transform`: the same numbers from another program."""

import builtins

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dualpca as dp
from dualpca import kernels
from tests.files import saved_models
from tests.files.saved_models import DUAL, HOLES, KPCA, NEW, PKPCA, SPARSE, X, Y, chunks

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning"),
    pytest.mark.filterwarnings("ignore::dualpca.errors.SolverWarning"),
]

AFAR = 1e6 * np.arange(1, 7)
SPREAD = np.concatenate([X + shift * np.ones(6) for shift in (0, 3e3, -1e4)])

WIDE, NARROW = kernels.RBF(gamma=0.05), kernels.RBF(gamma=0.3, on=[4, 0])
MODELS = {
    "pca": lambda: dp.PCA(2).fit(X),
    "pca whitened": lambda: dp.PCA(2, whiten=True, standardize=True).fit(X),
    "pca all whitened": lambda: dp.PCA(whiten=True).fit(X),
    "pca float32": lambda: dp.PCA(2).fit(X.astype(np.float32)),
    "pca sparse": lambda: dp.PCA(2).fit(SPARSE),
    "pca stream": lambda: chunks(dp.PCA(2)),
    "ppca": lambda: dp.PPCA(2).fit(X),
    "ppca q=1": lambda: dp.PPCA(1).fit(X),
    "ppca nan": lambda: dp.PPCA(2).fit(HOLES),
    "ppca stream": lambda: chunks(dp.PPCA(2)),
    "factors": lambda: dp.FactorAnalysis(2).fit(X),
    "robust": lambda: dp.RobustPPCA(2, degrees_of_freedom=4).fit(X),
    "factors nan": lambda: dp.FactorAnalysis(2, rotation="varimax").fit(HOLES),
    "bayesian": lambda: dp.BayesianPCA().fit(X),
    "cca": lambda: dp.CCA(1).fit(X, Y),
    "cca nan": lambda: dp.CCA(2).fit(HOLES, Y),
    "kernel": lambda: KPCA(3, kernel="rbf").fit(X),
    "kernel uncentred": lambda: KPCA(3, kernel="rbf", center=False).fit(X),
    "kernel median": lambda: KPCA(3, kernel="rbf", gamma="median").fit(X),
    "kernel narrow": lambda: KPCA(3, kernel="rbf", gamma=1e3).fit(X),
    "kernel float32": lambda: KPCA(3, kernel="rbf").fit(X.astype(np.float32)),
    "kernel sparse": lambda: KPCA(3, kernel="rbf").fit(SPARSE),
    "kernel lengths": lambda: KPCA(2, kernel=kernels.RBF(length_scale=[1.0, 2, 3, 4, 5, 6])).fit(X),
    "kernel columns": lambda: KPCA(2, kernel=kernels.RBF(gamma=0.1, on=[4, 0])).fit(X),
    "kernel columns narrow": lambda: KPCA(2, kernel=kernels.RBF(gamma=1e3, on=[4, 0])).fit(X),
    "kernel composed": lambda: KPCA(2, kernel=2.0 * NARROW * WIDE + WIDE).fit(X),
    "kernel landmarks": lambda: KPCA(2, kernel="rbf", eigen_solver="nystrom", n_landmarks=20).fit(
        X
    ),
    "kernel cholesky": lambda: KPCA(2, kernel="rbf", eigen_solver="cholesky", n_landmarks=9).fit(X),
    "kernel stream": lambda: chunks(KPCA(2, kernel="rbf", n_landmarks=10)),
    "kernel linear": lambda: KPCA(2).fit(X),
    "kernel linear uncentred": lambda: KPCA(2, center=False).fit(X),
    "kernel linear sparse": lambda: KPCA(2).fit(SPARSE),
    "kernel linear landmarks": lambda: KPCA(2, eigen_solver="cholesky", n_landmarks=9).fit(X),
    "kernel linear columns": lambda: KPCA(1, kernel=kernels.Linear(on=[4, 0])).fit(X),
    "kernel linear and more": lambda: KPCA(2, kernel=kernels.Linear() + 2.0 * WIDE).fit(X),
    "dual linear": lambda: DUAL(2, kernel="linear").fit(X),
    "placed linear": lambda: PKPCA(2, kernel="linear").fit(X),
    "dual": lambda: DUAL(2, kernel="rbf").fit(X),
    "dual landmarks": lambda: DUAL(2, kernel="rbf", eigen_solver="nystrom", n_landmarks=20).fit(X),
    "placed": lambda: PKPCA(2, kernel="rbf").fit(X),
    "pipeline": lambda: make_pipeline(StandardScaler(), dp.PPCA(2)).fit(X),
    "pipeline kernel": lambda: make_pipeline(
        StandardScaler(with_mean=False), "passthrough", KPCA(2, kernel="rbf")
    ).fit(X),
    "frozen": lambda: FrozenEstimator(dp.PCA(2).fit(X)),
}


def run(data, rows):
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return session.run(None, {"X": rows})[0]


def assert_same(model, rows, digits=1e-10):
    wanted = model.transform(rows)
    found = run(dp.to_onnx(model), rows)
    assert found.dtype == np.float64 and found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= digits * max(1, np.abs(wanted).max())


@pytest.mark.parametrize("name", MODELS)
def test_the_graph_gives_what_transform_gives(name):
    model = MODELS[name]()
    rows = np.concatenate([NEW, X[:5], 100 * NEW])
    assert_same(model, rows)
    assert_same(model, rows[:1])


@pytest.mark.parametrize("name", MODELS)
def test_single_precision_goes_in_and_comes_out(name):
    model, rows = MODELS[name](), np.concatenate([NEW, X[:5]]).astype(np.float32)
    wanted = model.transform(rows)
    found = run(dp.to_onnx(model, dtype="float32"), rows)
    assert found.dtype == np.float32
    assert np.abs(found - wanted).max() <= 1e-5 * max(1, np.abs(wanted).max())


@pytest.mark.parametrize(
    "make", [lambda: dp.PPCA(2), lambda: KPCA(3, kernel="rbf"), lambda: dp.FactorAnalysis(2)]
)
def test_rows_far_from_the_origin_keep_their_digits(make):
    model = make().fit(X + AFAR)
    near = make().fit(X)
    found = run(dp.to_onnx(model), NEW + AFAR)
    assert_same(model, NEW + AFAR, 1e-9)
    # the rows themselves have lost digits when they were moved: about 1e-10 of 1
    assert np.abs(np.abs(found) - np.abs(near.transform(NEW))).max() < 1e-6


def direct(model, rows):
    """Return k(x, ·)A − t from differences, row by row: no digits are lost."""
    space = model._model.subspace
    squares = ((rows[:, None, :] - np.asarray(space.points)[None]) ** 2).sum(axis=2)
    return np.exp(-model.kernel_.gamma * squares) @ space.coefficients - space.tilt


@pytest.mark.parametrize("gamma", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("shift", [0, 1e5])
def test_clusters_far_from_one_another_keep_their_digits(gamma, shift):
    """‖a‖² + ‖b‖² − 2aᵀb would lose up to all of them."""
    model = KPCA(5, kernel="rbf", gamma=gamma).fit(SPREAD + shift)
    rows = SPREAD + shift + 0.1 * saved_models.rng.normal(size=SPREAD.shape)
    found, wanted = run(dp.to_onnx(model), rows), direct(model, rows)
    assert np.abs(found - wanted).max() < 1e-11 * max(1, np.abs(wanted).max())


def kinds(model):
    return [node.op_type for node in onnx.load_from_string(dp.to_onnx(model)).graph.node]


def test_distances_are_one_product_where_that_is_safe():
    assert "Scan" not in kinds(MODELS["kernel"]())
    assert "Scan" in kinds(MODELS["kernel narrow"]())


def test_no_array_of_all_differences_is_formed():
    model = MODELS["kernel narrow"]()
    inferred = onnx.shape_inference.infer_shapes(onnx.load_from_string(dp.to_onnx(model)))
    ranks = [len(v.type.tensor_type.shape.dim) for v in inferred.graph.value_info]
    assert max(ranks) <= 2


@pytest.mark.parametrize("name", ["ppca", "kernel", "kernel narrow", "pipeline"])
def test_the_same_model_gives_the_same_bytes(name, tmp_path):
    model = MODELS[name]()
    data = dp.to_onnx(model, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == data == dp.to_onnx(model)
    dp.save(model, tmp_path / "m.dpca")
    assert dp.to_onnx(dp.load(tmp_path / "m.dpca")) == data
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)


def test_the_graph_takes_any_number_of_rows_and_says_what_it_is():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[*"abcde", "σ²"])
    model = dp.PPCA(2).fit(frame).set_output(transform="pandas")
    data = dp.to_onnx(model)
    graph = onnx.load_from_string(data)
    props = {p.key: p.value for p in graph.metadata_props}
    assert props["model"] == "PPCA" and "σ²" in onnx_columns(props)
    assert graph.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"
    for count in (0, 1, 7):
        assert run(data, NEW[:count]).shape == (count, 2)


@pytest.mark.parametrize("name", ["ppca", "kernel", "kernel narrow", "factors nan"])
def test_rows_with_nan_get_no_answer(name):
    rows = saved_models.NEW_HOLES.copy()
    rows[0] = NEW[0]
    found = run(dp.to_onnx(MODELS[name]()), rows)
    holes = np.isnan(rows).any(axis=1)
    assert holes.any() and np.isnan(found[holes]).all() and np.isfinite(found[~holes]).all()


def onnx_columns(props):
    import json

    return json.loads(props["columns"])


def test_models_of_any_library_are_exported(backend):
    for make in (lambda: dp.PPCA(2), lambda: KPCA(2, kernel="rbf"), lambda: DUAL(2, kernel="rbf")):
        model = make().fit(backend.asarray(X))
        wanted = backend.numpy(model.transform(backend.asarray(NEW)))
        assert np.abs(run(dp.to_onnx(model), NEW) - wanted).max() < 1e-10


def test_the_standardisation_of_a_table_comes_first(tmp_path):
    means, scales = X.mean(axis=0), X.std(axis=0)
    model = dp.PPCA(2).fit((X - means) / scales)
    table = {"means": means.tolist(), "scales": scales.tolist()}
    found = run(dp.to_onnx(model, metadata={"table": table, "note": "x"}), NEW)
    assert np.abs(found - model.transform((NEW - means) / scales)).max() < 1e-10


REFUSED = {
    "a mixture": lambda: dp.MixturePPCA(2, 1).fit(X),
    "a cosine": lambda: KPCA(2, kernel="cosine").fit(X),
    "a matrix": lambda: saved_models.MODELS["kernel matrix"](),
    "random features": lambda: KPCA(2, kernel="rbf", eigen_solver="fourier").fit(X),
    "a kernel fitted to nan": lambda: KPCA(2, kernel="rbf").fit(HOLES),
    "a sum of kernels": lambda: KPCA(2, kernel=WIDE + kernels.Matern()).fit(X),
    "a metric": lambda: PKPCA(2, metric="cityblock", correction="lingoes").fit(X),
    "an imputer before": lambda: make_pipeline(dp.Imputer(2), dp.PPCA(2)).fit(HOLES),
    "a scaler alone": lambda: make_pipeline(StandardScaler()).fit(X),
    "something else": lambda: "model.dpca",
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_what_has_no_graph_is_refused_with_what_has(make, tmp_path):
    with pytest.raises(ValueError, match="with an RBF or linear kernel"):
        dp.to_onnx(make(), tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_other_arguments_are_refused():
    with pytest.raises(NotFittedError):
        dp.to_onnx(dp.PPCA(2))
    with pytest.raises(ValueError, match="dtype"):
        dp.to_onnx(dp.PPCA(2).fit(X), dtype="float16")
    with pytest.raises(ValueError, match="a list of 6"):
        dp.to_onnx(dp.PPCA(2).fit(X), metadata={"table": {"means": [1.0]}})


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    model, normal = dp.PPCA(2).fit(X), builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == "onnx":
            raise ImportError(name)
        return normal(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install '\.\[onnx\]'"):
        dp.to_onnx(model)


def test_graphs_that_no_file_can_hold_are_refused(monkeypatch):
    monkeypatch.setattr("dualpca.files.onnx_export.MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="nystrom"):
        dp.to_onnx(MODELS["kernel"]())
