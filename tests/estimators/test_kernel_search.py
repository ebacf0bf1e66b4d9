"""KernelSearch: objectives, scikit-learn's ways, figures."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("optuna", reason="the search extra is not installed")

from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from dualpca import DualPPCA, KernelPCA, KernelSearch, ProbabilisticKernelPCA, load
from dualpca.errors import SearchError
from dualpca.estimators import kernel_search
from dualpca.kernels import RBF, Polynomial
from dualpca.search.judging import normalised_likelihood
from tests.oracles import search as oracles
from tests.test_bad_input import WRONG

WINE = StandardScaler().fit_transform(load_wine().data)[::3]


def spiked(n=400, seed=0):
    """Return rows of variances 9, 4, 2, .1, .05, .02, turned."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    return rng.normal(size=(n, 6)) * np.sqrt([9.0, 4.0, 2.0, 0.1, 0.05, 0.02]) @ turn


def quick(**options):
    return KernelSearch(**({"n_trials": 6, "cv": 2, "n_components": 2} | options))


# --- objectives -----------------------------------------------------------------------


def test_reconstruction_is_that_of_the_folds():
    search = quick(kernels=[RBF(gamma=0.05)], compositions=(), n_trials=1, cv=KFold(3)).fit(WINE)
    known = []
    for train, held in KFold(3).split(WINE):
        model = KernelPCA(2, kernel=RBF(gamma=0.05), preimage="learned").fit(WINE[train])
        back = model.inverse_transform(model.transform(WINE[held]))
        known.append(oracles.share_that_came_back(WINE[held], back, WINE[train].mean(axis=0)))
    np.testing.assert_allclose(search.best_trial_.scores, known)
    assert search.best_score_ == np.mean(search.best_trial_.scores)
    assert search.noise_ == 0


@pytest.mark.parametrize(("noise", "kept"), [(0.2, 3), (1.1, 2), (1.8, 1)])
def test_denoising_keeps_directions_above_the_noise(noise, kept):
    """With a linear kernel the risk is Σ_{p>q} ℓ_p + q σ²: as in PPCA, keep ℓ_p > σ²."""
    X = spiked()
    ell = np.sort(np.linalg.eigvalsh(np.cov(X.T, bias=True)))[::-1]
    assert (ell > noise**2 * X.var(axis=0).mean()).sum() == kept
    fits = [
        quick(kernels=["linear"], compositions=(), n_components=q, noise=noise, n_trials=1)
        for q in range(1, 7)
    ]
    scores = [fit.fit(X).best_score_ for fit in fits]
    assert int(np.argmax(scores)) + 1 == kept
    found = quick(
        kernels=["linear"], compositions=(), n_components=(1, 6), noise=noise, n_trials=25
    ).fit(X)
    assert found.best_params_["n_components"] == kept


def test_without_noise_the_largest_would_win_so_it_is_refused():
    X = spiked(60)
    options = {"kernels": ["linear"], "compositions": (), "n_trials": 1}
    scores = [quick(n_components=q, **options).fit(X).best_score_ for q in range(1, 7)]
    assert np.all(np.diff(scores) > 0)
    for bad in ({"noise": 0.0}, {"objective": "likelihood"}):
        with pytest.raises(ValueError, match="one integer"):
            quick(n_components=(1, 3), **bad).fit(X)
    assert quick(n_components=(1, 3)).fit(X).noise_ == 0.5


def test_downstream_score_is_that_of_the_pipeline():
    y = load_wine().target[::3]
    final, folds = LogisticRegression(), KFold(3, shuffle=True, random_state=0)
    search = quick(
        kernels=[RBF(gamma=0.05)],
        compositions=(),
        n_trials=1,
        cv=folds,
        objective="score",
        final_estimator=final,
        scoring="neg_log_loss",
    ).fit(WINE, y)
    chain = make_pipeline(KernelPCA(2, kernel=RBF(gamma=0.05)), final)
    known = cross_val_score(chain, WINE, y, cv=folds, scoring="neg_log_loss")
    np.testing.assert_allclose(search.best_trial_.scores, known)
    chain.fit(WINE, y)
    assert list(search.predict(WINE)) == list(chain.predict(WINE))
    from sklearn.metrics import log_loss

    assert abs(search.score(WINE, y) + log_loss(y, chain.predict_proba(WINE))) < 1e-10


def test_floats_are_numbers_and_the_rest_are_classes():
    X, y = load_diabetes(return_X_y=True)
    search = quick(objective="score", n_trials=2).fit(X[:80], y[:80])
    assert np.asarray(search.predict(X[:3])).dtype.kind == "f"
    words = np.array(["low", "high"])[(y[:80] > 140).astype(int)]
    assert set(quick(objective="score", n_trials=2).fit(X[:80], words).predict(X[:9])) <= set(words)


def test_stability_is_agreement_on_rows_neither_half_has_seen():
    X, folds = spiked(120), KFold(3)
    search = quick(
        objective="stability",
        kernels=["linear"],
        compositions=(),
        n_trials=1,
        cv=folds,
        n_components=3,
    )
    known = []
    for fold, (train, held) in enumerate(folds.split(X)):
        order = np.random.default_rng(fold).permutation(train)
        halves = [KernelPCA(3).fit(X[part]) for part in (order[:40], order[40:])]
        known.append(oracles.agreement(*(model.transform(X[held]) for model in halves)))
    np.testing.assert_allclose(search.fit(X).best_trial_.scores, known)
    assert search.best_score_ > 0.95
    assert search.fit(np.random.default_rng(0).normal(size=(120, 6))).best_score_ < 0.6


def test_likelihood_objective_is_the_normalised_likelihood():
    search = quick(objective="likelihood", kernels=["rbf"], compositions=()).fit(WINE)
    for t in search.trials_:
        assert t.scores == (normalised_likelihood(WINE, t.kernel, 2),)
    assert search.score(WINE) == search.best_score_


def test_score_is_the_objective_on_other_rows():
    X = spiked(200)
    search = quick(kernels=["linear"], compositions=(), n_trials=1).fit(X[:100])
    model = search.best_estimator_
    back = model.inverse_transform(model.transform(X[100:]))
    known = oracles.share_that_came_back(X[100:], back, X[:100].mean(axis=0))
    assert abs(search.score(X[100:]) - known) < 1e-10
    noisy = clone(search).set_params(noise=1.0).fit(X[:100])
    assert noisy.score(X[100:]) < known


@pytest.mark.parametrize("objective", ["stability", "likelihood"])
def test_other_objectives_score_other_rows_too(objective):
    search = quick(objective=objective, kernels=["rbf"]).fit(WINE[:40])
    assert np.isfinite(search.score(WINE[20:]))


def test_lists_of_rows_are_no_folds_of_other_rows():
    folds = list(KFold(2).split(WINE))
    search = quick(objective="stability", kernels=["rbf"], n_trials=2, cv=folds).fit(WINE)
    assert np.isfinite(search.score(WINE[:30]))


# --- what is found --------------------------------------------------------------------


def test_the_best_is_fitted_to_all_rows():
    before = WINE.copy()
    search = quick(n_trials=10).fit(WINE)
    best = max((t for t in search.trials_ if t.state == "complete"), key=lambda t: t.score)
    assert search.best_params_ == {"kernel": best.kernel, "n_components": 2}
    assert search.best_score_ >= search.trials_[0].score
    model = KernelPCA(preimage="learned").set_params(**search.best_params_).fit(WINE)
    np.testing.assert_array_equal(search.transform(WINE), model.transform(WINE))
    latents = search.transform(WINE[:5])
    np.testing.assert_array_equal(
        search.inverse_transform(latents), model.inverse_transform(latents)
    )
    np.testing.assert_array_equal(search.reconstruct(WINE[:5]), search.inverse_transform(latents))
    np.testing.assert_array_equal(WINE, before)


@pytest.mark.slow
def test_processes_change_nothing():
    one, two = (quick(batch_size=3, n_jobs=n, n_trials=7).fit(WINE).trials_ for n in (1, 2))
    assert [(t.params, t.scores, t.state) for t in one] == [
        (t.params, t.scores, t.state) for t in two
    ]


@pytest.mark.parametrize("estimator", [DualPPCA(), ProbabilisticKernelPCA()])
def test_other_models_with_a_kernel(estimator):
    search = quick(estimator=estimator, objective="stability", n_trials=4).fit(WINE)
    assert type(search.best_estimator_) is type(estimator)
    assert search.transform(WINE).shape == (60, 2)
    assert estimator.n_components != 2 or estimator.kernel != search.best_params_["kernel"]


def test_broken_candidates_do_not_stop_the_search():
    X = 1e60 * np.random.default_rng(0).normal(size=(30, 2))
    kernels = [Polynomial(degree=9, gamma=1.0), RBF(gamma="median")]
    search = quick(kernels=kernels, compositions=(), n_trials=8).fit(X)
    failed = [t for t in search.trials_ if t.state == "failed"]
    assert failed and all(t.reason for t in failed)
    assert isinstance(search.best_params_["kernel"], RBF)
    with pytest.raises(SearchError, match="none of 3 trials"):
        quick(kernels=kernels[0], compositions=(), n_trials=3).fit(X)


@pytest.mark.parametrize(
    "X", [np.ones((12, 3)), np.zeros((12, 1)), np.eye(12)[:, :1]], ids=["ones", "zeros", "spike"]
)
def test_rows_without_variance_are_an_error_or_finite(X):
    try:
        search = quick(n_components=1).fit(X)
    except SearchError as error:
        assert "trials" in str(error)
    else:
        assert np.isfinite(search.best_score_)
        assert np.all(np.isfinite(search.transform(X)))


@pytest.mark.parametrize("shape", [(20, 1), (8, 30), (5, 2)])
def test_odd_shapes(shape):
    X = np.random.default_rng(0).normal(size=shape)
    search = quick(n_components=None).fit(X)
    assert np.all(np.isfinite(search.transform(X)))
    assert 1 <= search.best_params_["n_components"] < shape[0]


def test_halves_limit_the_number_of_components():
    X = np.random.default_rng(0).normal(size=(60, 4))
    search = quick(n_components=None, objective="stability", n_trials=1).fit(X)
    assert search.best_params_["n_components"] == 4  # the geometric middle of 1 and 15 − 1


# --- scikit-learn's ways --------------------------------------------------------------


@pytest.mark.slow
def test_in_pipelines_and_cross_validation(tmp_path):
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]
    search = quick(n_trials=3, storage=tmp_path / "all.db")
    chain = make_pipeline(StandardScaler(), search, SVC())
    found = cross_val_score(chain, X, y, cv=3)
    assert np.all(found > 0.5)
    nested = cross_val_score(quick(objective="score", n_trials=3), X, y, cv=3)
    assert np.all(np.isfinite(nested))
    import optuna

    names = optuna.get_all_study_names(f"sqlite:///{tmp_path / 'all.db'}")
    assert len(names) == 3  # every training part has a study of its own


def test_clone_keeps_parameters_and_nothing_else():
    search = quick(kernels=["rbf"], noise=0.1).fit(WINE)
    copy = clone(search)
    assert copy.get_params()["noise"] == 0.1
    assert not hasattr(copy, "trials_")


def test_names_of_latents_and_frames():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pd.DataFrame(WINE, columns=load_wine().feature_names)
    search = quick(n_trials=2).set_output(transform="pandas").fit(frame)
    assert list(search.transform(frame).columns) == ["kernelpca0", "kernelpca1"]
    assert list(search.feature_names_in_) == load_wine().feature_names


def test_a_study_of_other_rows_is_refused(tmp_path):
    options = {"storage": tmp_path / "a.db", "study_name": "mine", "n_trials": 2}
    quick(**options).fit(WINE)
    for change in ({"noise": 0.3}, {"kernels": ["rbf"]}, {"cv": 3}, {"random_state": 5}):
        with pytest.raises(ValueError, match="study_name"):
            quick(**(options | change)).fit(WINE)
    with pytest.raises(ValueError, match="study_name"):
        quick(**options).fit(WINE + 1)
    assert len(quick(**options).fit(WINE).trials_) == 2


BAD = {
    "objective": "likelyhood",
    "noise": -1.0,
    "n_trials": 0,
    "timeout": -1,
    "cv": 1,
    "sampler": "cmaes",
    "pruner": "mean",
    "batch_size": 0,
    "n_components": (3, 2),
    "kernels": "none",
    "compositions": ("root",),
    "estimator": LogisticRegression(),
    "study_name": "without storage",
    "verbose": "yes",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_parameters_are_named(name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        quick(**{name: BAD[name]}).fit(WINE)


@pytest.mark.parametrize("request_", [0, 2.5, "all", True, (1, 2, 3), (1.0, 2.0)])
def test_bad_numbers_of_components(request_):
    with pytest.raises(ValueError, match="n_components must be"):
        quick(n_components=request_).fit(WINE)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_table_is_a_clear_error(name):
    X, message = WRONG[name]
    with pytest.raises((ValueError, TypeError), match=message):
        quick(n_components=1).fit(X)


def test_bad_rows_and_targets():
    holes = WINE.copy()
    holes[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(holes)
    with pytest.raises(ValueError, match="requires y"):
        quick(objective="score").fit(WINE)
    with pytest.raises(ValueError, match="y contains NaN"):
        quick(objective="score").fit(WINE, np.full(60, np.nan))
    with pytest.raises(ValueError, match="of length 60"):
        quick(objective="score").fit(WINE, [0, 1])
    strict = pytest.importorskip("array_api_strict", reason="array_api_strict is not installed")
    with pytest.raises(ValueError, match="NumPy"):
        quick().fit(strict.asarray(WINE))


def test_progress_is_shown(capsys):
    quick(verbose=True, n_trials=3).fit(WINE)
    assert "kernel search: trial 3 of 3, best score" in capsys.readouterr().err


@pytest.mark.slow
def test_optuna_is_optional(monkeypatch):
    code = "import sys, dualpca; dualpca.KernelSearch(); sys.exit('optuna' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ModuleNotFoundError, match=r"\.\[search\]"):
        quick().fit(WINE)


def test_warnings_of_trials_are_not_repeated_for_each(monkeypatch):
    def loud(*job):
        warnings.warn("again", UserWarning, stacklevel=1)
        return 1.0

    monkeypatch.setitem(kernel_search.OBJECTIVES, "reconstruction", loud)
    assert quick().fit(WINE).best_score_ == 1  # warnings are errors here


# --- figures --------------------------------------------------------------------------


@pytest.fixture(scope="module", name="fitted")
def fitted_search():
    return quick(n_trials=14, n_components=(1, 4), cv=3).fit(WINE)


def test_history_shows_every_trial(fitted):
    plots = pytest.importorskip("dualpca.plots", reason="the app extra is not installed")
    ax = plots.search_history(fitted).axes[0]
    dots = [line for line in ax.lines if line.get_marker() in ("o", "v", "x")]
    numbers = sorted(int(n) for line in dots for n in line.get_xdata())
    assert numbers == list(range(14))
    assert "reconstruction" in ax.get_ylabel()
    steps = next(line for line in ax.lines if line.get_drawstyle() == "steps-post")
    assert steps.get_ydata()[-1] == fitted.best_score_


def test_importance_bars_are_the_importances(fitted):
    plots = pytest.importorskip("dualpca.plots", reason="the app extra is not installed")
    ax = plots.search_importance(fitted).axes[0]
    widths = [patch.get_width() for patch in ax.patches]
    np.testing.assert_allclose(widths, list(fitted.importances().values()))
    with pytest.raises(ValueError, match="eight"):
        plots.search_importance(quick(n_trials=2).fit(WINE))


def test_what_a_search_saves_is_the_model_it_found(tmp_path):
    X = load_iris().data
    search = KernelSearch(n_trials=3, n_components=2, random_state=0).fit(X)
    search.save(tmp_path / "m.dpca")
    again = load(tmp_path / "m.dpca")
    np.testing.assert_array_equal(again.transform(X), search.transform(X))
    with pytest.raises(NotFittedError):
        KernelSearch().save(tmp_path / "n.dpca")


@pytest.mark.parametrize("objective", ["reconstruction", "stability", "likelihood"])
@pytest.mark.parametrize("given", [{"final_estimator": Ridge()}, {"scoring": "r2"}], ids=str)
def test_what_only_a_score_uses_is_refused_elsewhere(objective, given):
    search = KernelSearch(n_components=2, objective=objective, n_trials=1, **given)
    with pytest.raises(ValueError, match="Give objective='score'"):
        search.fit(np.random.default_rng(0).standard_normal((20, 3)))
