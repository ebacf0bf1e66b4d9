"""Every estimator on a graphics card: nothing comes back to the host, results are the host's."""

import warnings

import numpy as np
import pytest

import dualpca as dp

torch = pytest.importorskip("torch", reason="the card is reached through torch")
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA card here"),
    pytest.mark.filterwarnings("ignore"),
]

rng = np.random.default_rng(0)
Z = rng.normal(size=(300, 3)) * [3.0, 2.0, 1.0]
X = Z @ rng.normal(size=(3, 8)) + 0.3 * rng.normal(size=(300, 8)) + 5.0
HOLES = np.where(rng.random(X.shape) < 0.1, np.nan, X)
NEW = X[::7] + 0.1

MODELS = {
    "pca": (lambda: dp.PCA(3), X),
    "pca wide": (lambda: dp.PCA(3), X.T.copy()),
    "ppca": (lambda: dp.PPCA(3), X),
    "ppca em": (lambda: dp.PPCA(3, method="em", tol=1e-12, max_iter=2000), X),
    "ppca holes": (lambda: dp.PPCA(3, tol=1e-12, max_iter=2000), HOLES),
    "factor": (lambda: dp.FactorAnalysis(2, tol=1e-12), X),
    "bayesian": (lambda: dp.BayesianPCA(), X),
    "bayesian variational": (lambda: dp.BayesianPCA(4, method="variational"), X),
    "kernel": (lambda: dp.KernelPCA(4, kernel="rbf", gamma=0.01), X),
    "kernel polynomial": (lambda: dp.KernelPCA(4, kernel="poly", gamma=0.01), X),
    "kernel laplacian": (lambda: dp.KernelPCA(4, kernel="laplacian", gamma=0.01), X),
    "kernel krylov": (lambda: dp.KernelPCA(4, kernel="rbf", gamma=0.01, eigen_solver="krylov"), X),
    "kernel holes": (lambda: dp.KernelPCA(3, kernel="rbf", gamma=0.01), HOLES),
    "dual": (lambda: dp.DualPPCA(3, kernel="rbf", gamma=0.01), X),
    "probabilistic kernel": (lambda: dp.ProbabilisticKernelPCA(3, kernel="rbf", gamma=0.01), X),
    "twin": (lambda: dp.TwinKernelPCA(2, kernel="rbf", gamma=0.01, max_iter=20), X[:40]),
    "mixture": (lambda: dp.MixturePPCA(2, 2, random_state=0, tol=1e-10), X),
    "hidden markov": (lambda: dp.HiddenMarkovPCA(2, 2, random_state=0, tol=1e-10), X),
}
METHODS = ("transform", "score_samples", "reconstruct", "predict_proba", "inverse_transform")


def on_card(A):
    return torch.asarray(A, device="cuda")


def outputs(model, rows, move):
    found = {}
    for name in METHODS:
        method = getattr(model, name, None)
        if method is None:
            continue
        given = model.transform(move(rows)) if name == "inverse_transform" else move(rows)
        try:
            found[name] = method(given)
        except (NotImplementedError, AttributeError):
            continue
    return found


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_the_host(name):
    make, data = MODELS[name]
    rows = data[:40] if data.shape[1] != NEW.shape[1] else NEW
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        host, card = make().fit(data), make().fit(on_card(data))
        wanted, found = outputs(host, rows, np.asarray), outputs(card, rows, on_card)
    assert wanted.keys() == found.keys()
    assert "transform" in found or "predict_proba" in found
    for method, value in found.items():
        assert value.is_cuda, method
        a, b = value.cpu().numpy(), wanted[method]
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6 * np.abs(b).max(), err_msg=method)


@pytest.mark.parametrize("name", MODELS)
def test_float32_comes_back_as_float32_on_the_card(name):
    make, data = MODELS[name]
    rows = on_card(np.float32(data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make().fit(rows)
        method = model.transform if hasattr(model, "transform") else model.predict_proba
        found = method(rows)
    assert found.is_cuda
    assert found.dtype == torch.float32


def test_rows_of_the_host_are_refused_by_a_model_of_the_card():
    model = dp.PPCA(2).fit(on_card(X))
    with pytest.raises(ValueError, match="same device"):
        model.transform(X)


def test_samples_and_imputations_are_the_same_draws():
    host, card = dp.PPCA(3).fit(HOLES), dp.PPCA(3).fit(on_card(HOLES))
    a, b = host.sample(5, random_state=1), card.sample(5, random_state=1)
    np.testing.assert_allclose(b.cpu().numpy(), a, rtol=1e-4, atol=1e-4)
    filled = card.impute(on_card(HOLES))
    assert filled.is_cuda
    assert not bool(torch.isnan(filled).any())
    np.testing.assert_allclose(filled.cpu().numpy(), host.impute(HOLES), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_device_sends_host_rows_there_and_results_home(name):
    """`device='cuda'` gives NumPy for NumPy, and the host's numbers; the work is on the card."""
    make, rows = MODELS[name]
    host, found = make().fit(rows), make().set_params(device="cuda").fit(rows)
    new = rows[::7]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    method = "predict_proba" if hasattr(found, "predict_proba") else "transform"
    wanted, got = getattr(host, method)(new), getattr(found, method)(new)
    assert isinstance(got, np.ndarray)
    assert torch.cuda.max_memory_allocated() > before
    np.testing.assert_allclose(np.abs(got), np.abs(wanted), rtol=1e-4, atol=1e-5)
    assert found._where.type == "cuda"


def test_auto_takes_the_card_where_it_is_worth_it(capsys):
    rows = np.random.default_rng(1).normal(size=(20_000, 64)).astype(np.float32)
    model = dp.KernelPCA(3, kernel="rbf", tol=1e-4, device="auto", verbose=True).fit(rows)
    said = capsys.readouterr().err
    assert "KernelPCA on cuda:0" in said and "torch on cuda:0" in said
    assert isinstance(model.eigenvalues_, np.ndarray)
    dp.KernelPCA(3, kernel="rbf", device="auto", verbose=True).fit(rows[:100])
    assert "KernelPCA on the CPU" in capsys.readouterr().err


def test_what_is_built_of_other_models_works_there():
    Y = X[:, :3] + 0.1 * np.random.default_rng(2).normal(size=(300, 3))
    views = dp.CCA(2, device="cuda").fit(X, Y)
    np.testing.assert_allclose(views.score(X, Y), dp.CCA(2).fit(X, Y).score(X, Y), rtol=1e-8)
    filled = dp.Imputer(3, device="cuda").fit_transform(HOLES)
    np.testing.assert_allclose(filled, dp.Imputer(3).fit_transform(HOLES), rtol=1e-3, atol=1e-3)
    sequences, labels = [X[k : k + 15] * (1 + k % 2) for k in range(0, 300, 15)], [0, 1] * 10
    model = dp.HiddenMarkovPCA(2, 1, random_state=0, device="cuda")
    assert dp.SequenceClassifier(model).fit(sequences, labels).score(sequences, labels) > 0.5
    assert dp.Generator(dp.PPCA(2, device="cuda"), random_state=0).fit(X).sample(3).shape == (3, 8)
