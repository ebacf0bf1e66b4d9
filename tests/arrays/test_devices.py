"""`device=`: work on a card, here played by torch on the CPU; test_cuda.py has a real one."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import dualpca as dp
from dualpca.arrays import devices
from dualpca.arrays.devices import Job, chosen
from dualpca.kernels import RBF

torch = pytest.importorskip("torch", reason="devices are torch's")

rng = np.random.default_rng(0)
X = rng.normal(size=(90, 3)) * [3.0, 2.0, 1.0] @ rng.normal(size=(3, 6))
X = X + 0.3 * rng.normal(size=X.shape) + 5.0
HOLES = np.where(rng.random(X.shape) < 0.1, np.nan, X)
NEW = X[::7] + 0.1

MODELS = {
    "pca": (dp.PCA(3), X),
    "pca standardized": (dp.PCA(3, standardize=True, whiten=True), X),
    "ppca": (dp.PPCA(3), X),
    "ppca holes": (dp.PPCA(3, tol=1e-12), HOLES),
    "factor": (dp.FactorAnalysis(2, tol=1e-12), X),
    "bayesian": (dp.BayesianPCA(), X),
    "bayesian variational": (dp.BayesianPCA(4, method="variational"), X),
    "kernel": (dp.KernelPCA(4, kernel="rbf", gamma=0.01, fit_inverse_transform=True), X),
    "kernel nystrom": (dp.KernelPCA(4, kernel="rbf", gamma=0.01, eigen_solver="nystrom"), X),
    "kernel holes": (dp.KernelPCA(3, kernel="rbf", gamma=0.01), HOLES),
    "kernel precomputed": (dp.KernelPCA(3, kernel="precomputed"), X @ X.T),
    "dual": (dp.DualPPCA(3, kernel="rbf", gamma=0.01), X),
    "probabilistic kernel": (dp.ProbabilisticKernelPCA(3, kernel="rbf", gamma=0.01), X),
    "twin": (dp.TwinKernelPCA(2, kernel="rbf", gamma=0.01, max_iter=20), X[:30]),
    "mixture": (dp.MixturePPCA(2, 2, random_state=0), X),
    "mixture kernel": (dp.MixturePPCA(2, 2, kernel=RBF(0.01), random_state=0), X),
    "hidden markov": (dp.HiddenMarkovPCA(2, 2, random_state=0), X),
    "imputer": (dp.Imputer(2, tol=1e-12), HOLES),
}
METHODS = (
    *("transform", "score_samples", "reconstruct", "predict", "predict_proba", "posterior"),
    *("impute", "spe", "hotelling_t2", "denoise", "novelty", "decode"),
)


@pytest.fixture
def card(monkeypatch):
    """Let torch's CPU pass for a card, and count what is sent there."""
    device, sent = torch.device("cpu"), []
    send = devices.sent

    def counted(rows, place):
        sent.append(tuple(rows.shape))
        return send(rows, place)

    monkeypatch.setattr(devices, "_gpu_present", lambda: True)
    monkeypatch.setattr(devices, "_gpu", lambda name: device)
    monkeypatch.setattr(devices, "_free_bytes", lambda card: 8e9)
    monkeypatch.setattr("dualpca.arrays.sent", counted)
    return sent


def leaves(value):
    return list(value) if isinstance(value, tuple | list) else [value]


def outputs(model, rows):
    found = {}
    for name in METHODS:
        if hasattr(model, name) and not (name == "posterior" and hasattr(model, "predict")):
            try:
                found[name] = leaves(getattr(model, name)(rows))
            except ValueError as error:  # such as a method that needs complete rows
                found[name] = [str(error)[:20]]
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_twin_gives_what_the_host_gives(name, card):
    model, rows = MODELS[name]
    new = rows if name in ("kernel precomputed", "twin", "probabilistic kernel") else rows[::7]
    host = clone(model).fit(rows)
    found = clone(model).set_params(device="cuda").fit(rows)
    assert card[0] == rows.shape
    wanted = outputs(host, new)
    before = len(card)
    got = outputs(found, new)
    assert len(card) > before  # later rows go there too
    assert got.keys() == wanted.keys() and len(got) > 0
    for method, values in wanted.items():
        for a, b in zip(got[method], values, strict=True):
            assert type(a) is type(b), (method, type(a), type(b))
            if not isinstance(b, str):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=method)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_the_fitted_model_is_one_of_the_host(name, card, tmp_path):
    """Pickled, saved and loaded it has no tensor in it, and gives the same."""
    model, rows = MODELS[name]
    found = clone(model).set_params(device="cuda").fit(rows)
    wanted = getattr(found, "transform", getattr(found, "predict_proba", None))(rows)
    packed = pickle.dumps(found)
    assert b"torch" not in packed
    found.save(tmp_path / "m.dpca")
    sent = len(card)
    for other in (pickle.loads(packed), dp.load(tmp_path / "m.dpca")):
        again = getattr(other, "transform", getattr(other, "predict_proba", None))(rows)
        np.testing.assert_allclose(again, wanted, rtol=1e-7, atol=1e-7)
    assert len(card) == sent
    for attribute, value in vars(found).items():
        if attribute != "_placed":
            assert not isinstance(value, torch.Tensor), attribute


def test_two_views(card):
    Y = X[:, :2] @ rng.normal(size=(2, 3)) + 0.1 * rng.normal(size=(90, 3))
    host, found = dp.CCA(2).fit(X, Y), dp.CCA(2, device="cuda").fit(X, Y)
    assert (90, 6) in card and (90, 3) in card
    for a, b in zip(found.transform(X, Y), host.transform(X, Y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7)
    holed = pd.DataFrame(np.where(rng.random(Y.shape) < 0.2, np.nan, Y), columns=list("abc"))
    frames = found.impute(X, holed, return_std=True)
    assert [type(frame) for frame in frames] == [np.ndarray, pd.DataFrame] * 2
    pd.testing.assert_frame_equal(frames[1], host.impute(X, holed)[1])


def test_sequences_of_classes(card):
    rows = [X[k : k + 10] * (1 + k % 3) for k in range(0, 60, 5)]
    labels = [k % 3 for k in range(12)]
    model = dp.HiddenMarkovPCA(2, 1, random_state=0)
    host = dp.SequenceClassifier(model).fit(rows, labels)
    found = dp.SequenceClassifier(clone(model).set_params(device="cuda")).fit(rows, labels)
    assert card == [(120, 6)]  # all sequences at once
    np.testing.assert_allclose(found.predict_proba(rows), host.predict_proba(rows), atol=1e-8)
    assert card == [(120, 6)] * 2
    assert found.model.device == "cuda"


def test_models_around_others(card):
    """What wraps a model with a device uses it through host arrays."""
    generator = dp.Generator(dp.PPCA(2, device="cuda"), random_state=0).fit(X)
    assert card and isinstance(generator.sample(5), np.ndarray)


def test_frames_keep_names_and_come_back(card):
    frame = pd.DataFrame(HOLES, columns=list("abcdef"))
    found = dp.PPCA(2, device="cuda").fit(frame)
    assert list(found.feature_names_in_) == list("abcdef")
    pd.testing.assert_frame_equal(found.impute(frame), dp.PPCA(2).fit(frame).impute(frame))
    found.set_output(transform="pandas")
    assert list(found.transform(frame).columns) == ["ppca0", "ppca1"]
    with pytest.raises(ValueError, match="feature names"):
        found.transform(frame[list("fedcba")])
    frame["b"] = np.nan
    with pytest.raises(ValueError, match="'b'"):
        dp.PPCA(2, device="cuda").fit(frame)


def test_tensors_come_back_to_where_they_were(card):
    found = dp.PCA(2, device="cuda").fit(torch.asarray(X))
    assert isinstance(found.transform(torch.asarray(X)), torch.Tensor)
    assert isinstance(found.transform(X), np.ndarray)
    assert found.fit_transform(X.astype(np.float32)).dtype == np.float32


def test_streams_go_on_in_the_twin(card):
    found = dp.PCA(2, device="cuda")
    for rows in (X[:40], X[40:]):
        found.partial_fit(rows)
    np.testing.assert_allclose(found.components_, dp.PCA(2).fit(X).components_, atol=1e-10)
    assert card == [(40, 6), (50, 6)]


def test_parameters_that_change_later_change_for_the_twin(card):
    found, host = dp.PCA(2, device="cuda").fit(X), dp.PCA(2).fit(X)
    found.set_params(whiten=True)
    np.testing.assert_allclose(found.transform(X), host.set_params(whiten=True).transform(X))
    stream = dp.PCA(2, device="cuda").partial_fit(X[:40])
    stream.set_params(n_components=3).partial_fit(X[40:])
    assert stream.components_.shape == (3, 6) and stream.transform(X).shape == (90, 3)


def test_a_new_fit_forgets_the_old_one(card):
    found = dp.PPCA(2, device="cuda").fit(X)
    found.set_params(device=None).fit(X[:, :4])
    assert found.transform(X[:, :4]).shape == (90, 2)
    found.set_params(device="cuda", n_components=1).fit(X)
    assert found.transform(X).shape == (90, 1) and hasattr(found, "loglikelihoods_")


def test_parts_go_one_by_one(card):
    found = dp.PCA(2, device="cuda").fit(X)
    parts = dp.Batches(lambda: iter([X[:50], X[50:]]))
    np.testing.assert_allclose(np.vstack(list(found.transform(parts))), found.transform(X))
    assert (50, 6) in card and (40, 6) in card
    with pytest.raises(dp.errors.BackendError, match="dense rows in memory"):
        dp.PCA(2, device="cuda").fit(parts)
    dp.PCA(2, device="auto").fit(parts)


def test_auto_weighs_work_and_memory(card, monkeypatch):
    small, large = Job(1000, 10, pairs=False), Job(100_000, 50, pairs=True)
    assert chosen("auto", small).device is None
    assert chosen("auto", large).device is not None
    assert chosen("auto", large._replace(pairs=False)).device is None
    assert chosen("auto", large._replace(pairs=False, steps=True)).device is not None
    assert chosen("cuda", small).device is not None and chosen("cpu", large).device is None
    monkeypatch.setattr(devices, "_free_bytes", lambda card: 1e6)
    assert "would take" in chosen("auto", large).reason
    monkeypatch.setattr(devices, "_gpu_present", lambda: False)
    assert "no GPU" in chosen("auto", large).reason


def test_it_says_where_and_how(card, capsys, monkeypatch):
    dp.KernelPCA(2, kernel="rbf", verbose=True, device="auto").fit(X)
    said = capsys.readouterr().err
    assert "KernelPCA on the CPU: 4.9e+04 multiplications are too few" in said
    assert "kernel of 90x90: stored, 64.8 kB, double precision" in said
    assert "solver 'dense'" in said and "numpy on cpu" in said
    monkeypatch.setattr(devices, "WORTH", 0)
    dp.KernelPCA(2, kernel="rbf", verbose=True, device="auto").fit(X)
    said = capsys.readouterr().err
    assert "of 6.4 GB there" in said and "torch on cpu" in said
    dp.KernelPCA(2, kernel="rbf", device="auto").fit(X)
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="torch sees a GPU here; this is about machines without one"
)
def test_without_a_card():
    with pytest.raises(dp.errors.BackendError, match="sees no NVIDIA GPU"):
        dp.PCA(2, device="cuda").fit(X)
    for device in ("auto", "cpu"):
        assert dp.PCA(2, device=device).fit(X).transform(X).shape == (90, 2)


@pytest.mark.parametrize("device", ["gpu", 0, "cuda:", "cuda:one", ""])
def test_no_such_device(device):
    with pytest.raises(ValueError, match="device must be None, 'auto', 'cpu'"):
        dp.PCA(2, device=device).fit(X)


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.fit(),
        lambda model: model.fit(Z=X),
        lambda model: model.fit(X, X=X),
        lambda model: model.fit(X, None, None, None),
        lambda model: model.fit(X).transform(),
    ],
    ids=["no rows", "another name", "rows twice", "too many", "no rows later"],
)
def test_calls_that_do_not_fit_are_pythons_to_refuse(call, card):
    with pytest.raises(TypeError, match=r"\(\) (missing|takes|got)"):
        call(dp.PPCA(2, device="cuda"))


def test_masks_are_refused_on_the_way_there(card):
    with pytest.raises(ValueError, match="masked"):
        dp.PPCA(2, device="cuda").fit(np.ma.masked_greater(X, X.mean()))


def test_tensors_with_gradients_leave_their_history_behind():
    rows = torch.as_tensor(X).requires_grad_()
    model = dp.PPCA(2).fit(rows)
    assert not model.mean_.requires_grad and not model.transform(rows.detach()).requires_grad
    assert rows.requires_grad


# --- several devices -----------------------------------------------------------------------------

SHARED = {name: pair for name, pair in MODELS.items() if name.startswith(("kernel", "dual"))}
SHARED["kernel blocks"] = (
    dp.KernelPCA(4, kernel="rbf", gamma=0.01, eigen_solver="krylov", fit_inverse_transform=True),
    X,
)
SHARED["kernel of float32"] = (
    dp.KernelPCA(4, kernel="rbf", gamma=0.01, eigen_solver="krylov", dtype="float32"),
    X,
)
SHARED["dual blocks"] = (dp.DualPPCA(3, kernel="rbf", gamma=0.01, eigen_solver="krylov"), X)
SHARED["dual em"] = (dp.DualPPCA(3, kernel="rbf", gamma=0.01, method="em", tol=1e-12), X)


@pytest.fixture
def shares(monkeypatch):
    """Count the products that shares are asked for."""
    from dualpca.operators.spread import Share

    asked, piece = [], Share.piece
    monkeypatch.setattr(
        Share, "piece", lambda self, ask, V: asked.append(self.place) or piece(self, ask, V)
    )
    return asked


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_several_devices_give_what_one_gives(name, count, shares, tmp_path):
    model, rows = SHARED[name]
    tol = {"rtol": 1e-10, "atol": 1e-10} if "float32" not in name else {"rtol": 2e-6, "atol": 2e-6}
    found = clone(model).set_params(device=["cpu"] * count).fit(rows)
    if name.endswith(("blocks", "float32", "em")):
        assert {k for k, _ in shares} == set(range(count))
    elif name.startswith("kernel"):  # a matrix, or landmarks: on the first device
        assert not shares
    host = clone(model).fit(rows)
    assert isinstance(found.eigenvalues_, np.ndarray)
    np.testing.assert_allclose(found.eigenvalues_, host.eigenvalues_, **tol)
    if hasattr(host, "eigenvectors_") and host.eigenvectors_ is not None:
        np.testing.assert_allclose(found.eigenvectors_, host.eigenvectors_, **tol)
    new = rows if name == "kernel precomputed" else rows[::7]
    wanted = host.transform(new)
    found.save(tmp_path / "m.dpca")
    for other in (found, pickle.loads(pickle.dumps(found)), dp.load(tmp_path / "m.dpca")):
        assert other.device == ["cpu"] * count
        np.testing.assert_allclose(other.transform(new), wanted, rtol=1e-6, atol=1e-6)
    assert type(found.novelty(X[:3] if name == "kernel holes" else new)) is np.ndarray


def test_the_first_device_has_the_model(card):
    found = dp.KernelPCA(2, kernel="rbf", gamma=0.01, device=["cuda:0", "cuda:1"])
    found.fit(X)
    assert card[0] == X.shape  # sent to the first; the shares have theirs
    before = len(card)
    assert isinstance(found.transform(NEW), np.ndarray) and len(card) == before + 1
    assert isinstance(found.transform(torch.asarray(NEW)), torch.Tensor)
    stream = dp.KernelPCA(2, kernel="rbf", gamma=0.01, device=["cpu", "cpu"], n_landmarks=20)
    assert stream.partial_fit(X[:80]).partial_fit(X[80:]).n_samples_ == 90


ONE_ONLY = ["PCA", "PPCA", "FactorAnalysis", "BayesianPCA", "MixturePPCA", "Imputer"]
ONE_ONLY += ["HiddenMarkovPCA", "ProbabilisticKernelPCA", "TwinKernelPCA"]


@pytest.mark.parametrize("name", ONE_ONLY)
def test_models_that_share_nothing_refuse_several(name):
    model = getattr(dp, name)(device=["cpu", "cpu"])
    with pytest.raises(
        ValueError, match=r"device must be one device: KernelPCA and DualPPCA alone"
    ):
        model.fit(X)
    with pytest.raises(ValueError, match="device must be one device"):
        dp.CCA(1, device=["cpu", "cpu"]).fit(X, X[:, :2])


@pytest.mark.parametrize("device", [[], ["auto", "cpu"], ["cuda:0", None], ["gpu"], [["cpu"]], ()])
def test_no_such_devices(device):
    with pytest.raises(ValueError, match=r"device must be a list of GPUs such as \['cuda:0'"):
        dp.KernelPCA(2, device=device).fit(X)


def test_several_devices_need_dense_rows_and_torch(monkeypatch):
    import scipy.sparse

    model = dp.KernelPCA(2, device=["cpu", "cpu"])
    with pytest.raises(dp.errors.BackendError, match=r"\['cpu', 'cpu'\] accepts dense rows"):
        model.fit(scipy.sparse.csr_array(X))
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(dp.errors.BackendError, match="device='cpu' needs torch"):
        model.fit(X)


# --- tensors for models that were fitted to NumPy ------------------------------------------------

ASKED = {
    "pca": dp.PCA(2), "ppca": dp.PPCA(2, standardize=True), "factors": dp.FactorAnalysis(2),
    "robust": dp.RobustPPCA(2), "mixture": dp.MixturePPCA(2, 1), "imputer": dp.Imputer(2),
    "kernel": dp.KernelPCA(2, kernel="rbf"), "dual": dp.DualPPCA(2),
    "placed": dp.ProbabilisticKernelPCA(2),
}  # fmt: skip
METHODS = ["transform", "reconstruct", "posterior", "posterior_predictive", "outliers", "novelty"]
METHODS += ["score_samples", "predict", "is_novel", "denoise", "jacobian", "impute"]


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_model_of_numpy_answers_tensors_with_tensors(name, dtype):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    X = np.random.default_rng(0).normal(size=(60, 5))
    model = clone(ASKED[name]).fit(X)
    new = torch.asarray(X[:7].astype(dtype))
    skipped = ("posterior",) if name == "mixture" else ()  # that of one component
    for method in [m for m in METHODS if hasattr(model, m) and m not in skipped]:
        found, wanted = getattr(model, method)(new), getattr(model, method)(X[:7].astype(dtype))
        both = zip(*(r if isinstance(r, tuple) else (r,) for r in (found, wanted)), strict=True)
        for tensor, array in both:
            assert isinstance(tensor, torch.Tensor), method
            np.testing.assert_array_equal(tensor.numpy(), array)
    if hasattr(model, "inverse_transform"):
        back = model.inverse_transform(model.transform(new))
        assert isinstance(back, torch.Tensor) and back.dtype == new.dtype
