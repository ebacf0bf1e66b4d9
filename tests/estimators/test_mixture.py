"""MixturePPCA, judged by PPCA itself, by published numbers and by what it refuses."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_circles
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from dualpca import PPCA, KernelPCA, MixturePPCA
from dualpca.data import InMemoryTable
from dualpca.errors import CollapseWarning, StreamWarning
from dualpca.models.clusters import kmeans
from dualpca.models.mixture import MixtureRequest, fit, fit_mixture
from tests.models.emission_cases import groups, holes
from tests.models.mixture.cases import TIGHT, assert_never_falls, fitted, with_outlier
from tests.tolerances import assert_close, assert_log_density

# --- one component is PPCA ------------------------------------------------------------


@pytest.mark.parametrize("q", [1, 2, 4])
@pytest.mark.parametrize("size", [(120, 5), (12, 30)], ids=["tall", "wide"])
def test_one_component_is_ppca(size, q):
    X = groups(*size)
    one, ppca = MixturePPCA(1, q).fit(X), PPCA(q).fit(X)
    assert_close(one.covariances_[0], ppca.get_covariance(), "vector")
    assert_close(one.means_[0], ppca.mean_, "vector")
    assert_close(one.loglikelihood_, ppca.loglikelihood_, "em")
    assert_log_density(one.score_samples(X), ppca.score_samples(X), X.shape[1])
    assert_close(np.abs(one.transform(X)), np.abs(ppca.transform(X)), "vector")
    assert_close(one.reconstruct(X), ppca.reconstruct(X), "vector")
    assert_close(one.explained_variance_[0], ppca.explained_variance_, "vector")
    assert np.array_equal(one.predict_proba(X), np.ones((len(X), 1)))


def test_one_component_with_holes_is_ppca():
    X = holes(groups())
    one, ppca = MixturePPCA(1, 2, **TIGHT).fit(X), PPCA(2, tol=1e-10, max_iter=9000).fit(X)
    assert_close(one.loglikelihood_, ppca.loglikelihood_, "em")
    assert_close(one.covariances_[0], ppca.get_covariance(), "em", scale=1e3)
    assert_close(one.impute(X), ppca.impute(X), "em", scale=1e3)


def test_every_direction_is_scikit_learns_full_mixture():
    X = groups(apart=6.0)
    start = GaussianMixture(3, reg_covar=0, tol=1e-12, max_iter=2000, random_state=0).fit(X)
    model = MixturePPCA(3, 5, noise_floor=1e-9, **TIGHT).fit(X)
    assert_close(model.score(X), start.score(X), "em")
    assert_close(np.sort(model.weights_), np.sort(start.weights_), "em")
    assert_close(model.bic(X), start.bic(X), "em")
    assert_close(model.aic(X), start.aic(X), "em")


def test_an_empty_row_is_the_mixture_itself():
    X, model = fitted(0.25)
    row = np.full((1, 5), np.nan)
    assert_close(model.predict_proba(row, parameters="fixed")[0], model.weights_, "exact")
    assert_close(model.score_samples(row)[0], 0.0, "exact", scale=1.0)
    assert_close(model.impute(row)[0], model.weights_ @ model.means_, "vector")
    again = MixturePPCA(3, [1, 2, 3], max_iter=1000).fit(np.concatenate([X, row]))
    assert_close(again.loglikelihood_, model.loglikelihood_, "em")


# --- EM -------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tied_noise": True},
        {"n_components": [1, 2, 4]},
        {"n_mixtures": "dirichlet"},
        {"n_mixtures": "dirichlet", "tied_noise": True},
    ],
    ids=["plain", "tied", "own q", "dirichlet", "tied dirichlet"],
)
@pytest.mark.filterwarnings("ignore::dualpca.errors.CollapseWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_likelihood_never_falls(missing, options):
    X = groups(90, apart=1.0)
    X = holes(X, missing) if missing else X
    options = {"n_mixtures": 3, "n_components": 2, "max_mixtures": 5, "max_iter": 60, **options}
    for seed in range(2):
        model = MixturePPCA(random_state=seed, tol=1e-9, **options).fit(X)
        assert_never_falls(model.loglikelihoods_)


def test_weighted_rows_never_fall_and_weights_scale_out():
    X, w = groups(apart=1.0), np.random.default_rng(0).uniform(0.2, 3, 120)
    one = MixturePPCA(3, 2).fit(X, sample_weight=w)
    assert_never_falls(one.loglikelihoods_)
    ten = MixturePPCA(3, 2).fit(X, sample_weight=10 * w)
    assert_close(ten.loglikelihood_, 10 * one.loglikelihood_, "em")
    assert_close(one.score(X, sample_weight=w) * w.sum(), one.loglikelihood_, "em")


def test_rows_of_no_weight_are_no_rows():
    X, w = groups(apart=6.0), np.ones(120)
    far = np.concatenate([X, np.full((3, 5), 1e3)])
    model = MixturePPCA(3, 2, **TIGHT).fit(far, sample_weight=np.r_[w, 0, 0, 0])
    assert_close(model.loglikelihood_, MixturePPCA(3, 2, **TIGHT).fit(X).loglikelihood_, "em")


def test_more_starts_end_no_worse_and_side_by_side_the_same():
    X = groups(300, 6, 6, apart=1.0)
    ends = [MixturePPCA(6, 2, n_init=n).fit(X).loglikelihood_ for n in (1, 4)]
    assert ends[1] >= ends[0]
    threads = MixturePPCA(6, 2, n_init=4, n_jobs=2).fit(X)
    assert_close(threads.loglikelihood_, ends[1], "em")


def test_too_few_steps_are_told():
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = MixturePPCA(3, 2, max_iter=2).fit(groups(apart=0.5))
    assert not model.converged_ and model.n_iter_ == 2


def test_input_is_never_modified():
    for X in (groups(), holes(groups())):
        before = X.copy()
        model = MixturePPCA(3, 2).fit(X)
        model.predict_proba(X), model.impute(X), model.transform(X), model.reconstruct(X)
        assert np.array_equal(X, before, equal_nan=True)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_float32_rows_give_float32_and_the_same_model(missing):
    X = groups(apart=6.0)
    X = holes(X, missing) if missing else X
    single, double = (MixturePPCA(3, 2).fit(X.astype(t)) for t in ("float32", "float64"))
    assert single.means_.dtype == single.transform(X.astype("float32")).dtype == np.float32
    assert_close(single.loglikelihood_, double.loglikelihood_, "em", np.float32)


def test_backends_agree(backend):
    X = groups(apart=6.0)
    here = MixturePPCA(3, 2).fit(X)
    there = MixturePPCA(3, 2).fit(backend.asarray(X))
    assert backend.owns(there.means_) and backend.owns(there.predict(backend.asarray(X)))
    assert_close(there.loglikelihood_, here.loglikelihood_, "em")
    table = backend.asarray(holes(X))
    assert_close(backend.numpy(there.impute(table)), here.impute(holes(X)), "vector")
    assert_close(backend.numpy(there.sample(7, 0)[0]), here.sample(7, 0)[0], "vector")


def test_backends_take_holes(backend):
    X = backend.asarray(holes(groups(apart=6.0)))
    model = MixturePPCA(3, 1).fit(X)
    assert_never_falls(model.loglikelihoods_)
    assert backend.owns(model.predict_proba(X))


# --- published numbers ----------------------------------------------------------------


@pytest.fixture(scope="module")
def oil(shared_data):
    data = np.load(shared_data("oil_flow.npz"))
    return data["X"].astype(float), data["y"]


@pytest.mark.parametrize("seed", range(3))
def test_reference_s1_mixture(oil, seed):
    table, request = InMemoryTable(oil[0]), MixtureRequest(3, 2)
    start = kmeans(oil[0], 3, np.random.default_rng(seed))
    by_kmeans = fit_mixture(table, request, start)
    assert abs(by_kmeans.loglikelihood - 306.77) < 0.05
    found = MixturePPCA(3, 2, random_state=seed).fit(oil[0])  # k-means leads to a lesser maximum
    assert found.loglikelihood_ == pytest.approx(2929.37, abs=0.05)


def test_oil_flow_classes_are_found(oil):
    X, y = oil
    for seed in range(5):
        labels = MixturePPCA(10, 2, random_state=seed).fit(X).predict(X)
        purity = sum(np.bincount(y[labels == k]).max() for k in np.unique(labels)) / len(y)
        assert purity > 0.95


def test_oil_flow_with_holes_is_filled_better_than_by_one_component(oil):
    X = oil[0][:300]
    table = holes(X, 0.1)
    hidden = np.isnan(table)
    errors = [
        np.sqrt(np.mean((MixturePPCA(K, 2, tol=1e-4).fit(table).impute(table) - X)[hidden] ** 2))
        for K in (1, 4)
    ]
    assert errors[1] < 0.8 * errors[0]


# --- components that collapse ---------------------------------------------------------


def test_a_component_on_one_row_is_held_at_the_floor():
    X = with_outlier()
    with pytest.warns(CollapseWarning, match="noise_floor"):
        model = MixturePPCA(3, 2).fit(X)
    assert_never_falls(model.loglikelihoods_)
    assert np.all(np.isfinite(model.score_samples(X)))
    assert np.min(model.noise_variance_) >= 0.999 * 1e-6 * X.var(axis=0).mean()


def test_a_component_on_one_row_is_dropped():
    with pytest.warns(CollapseWarning, match="dropped"):
        model = MixturePPCA(3, 2, on_collapse="drop").fit(with_outlier())
    assert model.n_mixtures_ < 3
    assert_close(model.weights_.sum(), 1.0, "exact")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("rule", ["floor", "reseed", "drop"])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_copies_of_few_rows_have_a_finite_model(rule, missing):
    X = np.repeat(groups(6, 4, 3), 10, axis=0)
    X = holes(X, missing) if missing else X
    with pytest.warns(CollapseWarning):
        model = MixturePPCA(4, 2, on_collapse=rule).fit(X)
    for outcome in (model.score_samples(X), model.transform(X), model.reconstruct(X)):
        assert np.all(np.isfinite(outcome))


def test_as_many_components_as_rows_is_finite_and_more_an_error():
    X = groups(9, 4, 3)
    with pytest.warns(CollapseWarning):
        model = MixturePPCA(9, 1).fit(X)
    assert np.all(np.isfinite(model.score_samples(X)))
    with pytest.raises(ValueError, match=r"n_mixtures.*9.*10"):
        MixturePPCA(10, 1).fit(X)


# --- how many -------------------------------------------------------------------------


def test_by_default_sizes_and_units_are_found():
    X = groups(300, 5, 3) * [1e-3, 1.0, 1.0, 1e3, 1.0] + 7.0
    model, one = MixturePPCA().fit(X), MixturePPCA(1, 1).fit(X)
    assert model.n_mixtures_ == 3
    np.testing.assert_allclose(model.scale_, X.std(axis=0))
    assert model.selection_.criterion == "bic"
    assert np.all(np.bincount(model.predict(X)) == 100)
    assert model.score(X) > one.score(X) + 1
    plain = MixturePPCA().fit(groups(300, 5, 3))
    assert (plain.scale_, plain.n_components_) == (None, [2, 2, 2])


def test_many_components_are_found_and_none_is_left_out_by_a_limit():
    rng = np.random.default_rng(0)
    centres = 40 * rng.normal(size=(15, 3))
    X = np.repeat(centres, 16, axis=0) + rng.normal(size=(240, 3)) * [1.0, 0.5, 0.5]
    model = MixturePPCA("bic", 1).fit(X)
    assert 14 <= model.n_mixtures_ <= 16
    sizes = [K for K, _ in model.selection_.candidates]
    assert max(sizes) > 16 and len(sizes) < 20  # beyond the best, but not one by one
    assert MixturePPCA("bic", 1, max_mixtures=5).fit(X).n_mixtures_ == 5


def test_a_collapsed_component_is_no_reason_for_more():
    X = np.random.default_rng(0).normal(size=(120, 4)) * [2.0, 1.0, 1.0, 1.0]
    X[:20] = 9.0  # copies of a row: a component on them has a likelihood without bound
    chosen = MixturePPCA().fit(X).selection_
    assert chosen.chosen[0] == 1
    assert -np.inf in chosen.scores


def test_a_sample_chooses_what_all_rows_choose(monkeypatch):
    X = groups(1500, 5, 3, apart=3.0)
    chosen = MixturePPCA().fit(X).selection_
    monkeypatch.setattr(fit, "SEARCH_ROWS", 400)
    sampled = MixturePPCA().fit(X).selection_
    assert sampled.chosen == chosen.chosen == (3, 2)
    both = set(sampled.candidates) & set(chosen.candidates)
    pairs = [[one.scores[one.candidates.index(c)] for one in (sampled, chosen)] for c in both]
    off = np.array([a - b for a, b in pairs])
    assert np.std(off) < 0.02 * np.ptp(np.array(pairs)[:, 1])  # the curve of all rows


@pytest.mark.parametrize("word", ["bic", "cv"])
def test_both_sizes_are_found(word):
    X = groups(240, 4, 3, apart=4.0, seed=3)
    model = MixturePPCA(word, word, max_mixtures=4, tol=1e-4).fit(X)
    assert model.selection_.chosen == (3, 2)
    assert model.selection_.criterion == word
    assert len(model.selection_.scores) == len(model.selection_.candidates) >= 9
    assert (model.n_mixtures_, model.n_components_) == (3, [2, 2, 2])


def test_one_size_is_found_beside_a_given_one():
    X = groups(300, 5, 3, apart=4.0)
    assert MixturePPCA("bic", 2, max_mixtures=5).fit(X).n_mixtures_ == 3
    model = MixturePPCA(3, "bic").fit(X)
    assert model.selection_.chosen == (3, 2)
    n = -2 * model.selection_.scores[model.selection_.candidates.index((3, 2))]
    assert abs(n - model.bic(X)) < 0.2 * 5 * np.log(300)  # far less than a component costs


@pytest.mark.grid
@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_a_dirichlet_process_empties_components(seed, missing):
    X = groups(300, 5, 3, apart=4.0, seed=seed)
    X = holes(X, missing) if missing else X
    model = MixturePPCA("dirichlet", 2, max_mixtures=6, tol=1e-5).fit(X)
    assert model.n_mixtures_ == 3
    assert_never_falls(model.loglikelihoods_)
    assert np.allclose(model.weights_, 1 / 3, atol=0.05)
    assert_close(model.score(X) * len(X), model.loglikelihood_, "em")


def test_the_likelihood_beside_a_bound_counts_weights():
    X, w = groups(), np.random.default_rng(0).uniform(0.5, 2.0, 120)
    model = MixturePPCA("dirichlet", 2, max_mixtures=4, random_state=0).fit(X, sample_weight=w)
    assert model.loglikelihood_ == pytest.approx(w @ model.score_samples(X), rel=1e-8)


# --- streams --------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_a_stream_ends_near_the_fit_of_all_rows(missing):
    X = groups(3000, 5, 3, apart=4.0)[np.random.default_rng(0).permutation(3000)]
    X = holes(X, missing) if missing else X
    whole, stream = MixturePPCA(3, 2).fit(X), MixturePPCA(3, 2)
    for rows in np.array_split(X, 30):
        stream.partial_fit(rows)
    assert stream.n_samples_seen_ == 3000
    assert abs(stream.score(X) - whole.score(X)) < 0.01
    first = MixturePPCA(3, 2).fit(X[:100])
    assert whole.score(X) - stream.score(X) < 0.3 * (whole.score(X) - first.score(X))


def test_steps_of_a_long_stream_grow_smaller():
    """What a chunk changes falls as γ does, k^-0.6: a long stream comes to rest."""
    rng, stream, places = np.random.default_rng(0), MixturePPCA(2, 1, random_state=0), []
    for _ in range(150):
        side = rng.choice([-1, 1], size=(100, 1))
        stream.partial_fit(rng.normal(size=(100, 3)) * [2, 1, 1] + 4 * side)
        places.append(stream.means_)
    moved = np.sum(np.diff(places, axis=0) ** 2, axis=(1, 2))
    assert moved[-20:].mean() < 0.25 * moved[5:25].mean()  # γ² of 0.003 and 0.04
    assert np.max(np.abs(stream.means_ - np.array([[-4], [4]]))) < 0.15


def test_a_short_stream_is_the_fit_of_its_rows():
    X = groups(60)
    stream = MixturePPCA(3, 2)
    for rows in (X[:2], X[2:31], X[31:]):
        stream.partial_fit(rows)
    assert_close(stream.score(X), MixturePPCA(3, 2).fit(X).score(X), "em")
    w = np.where(np.arange(60) < 20, 3.0, 1.0)
    weighted = MixturePPCA(3, 2).partial_fit(X[:30], sample_weight=w[:30])
    weighted.partial_fit(X[30:], sample_weight=w[30:])
    assert_close(weighted.score(X), MixturePPCA(3, 2).fit(X, sample_weight=w).score(X), "em")


def test_the_likelihood_of_a_stream_is_that_of_all_its_rows():
    X = groups(60)
    stream = MixturePPCA(3, 2).partial_fit(X[:30]).partial_fit(X[30:])
    assert stream.loglikelihood_ == pytest.approx(stream.score_samples(X).sum(), rel=1e-8)
    assert stream.lower_bound_ == pytest.approx(stream.score(X), rel=1e-8)


def test_a_stream_after_fit_starts_anew_and_says_so():
    model = MixturePPCA(3, 2).fit(groups())
    with pytest.warns(StreamWarning, match="starts over"):
        model.partial_fit(groups(60))
    assert model.n_samples_seen_ == 60


def test_a_stream_of_one_point_has_no_model_yet():
    model = MixturePPCA(2, 1).partial_fit(np.ones((5, 3)))
    assert not hasattr(model, "means_")
    with pytest.raises(ValueError, match="no model yet"):
        model.predict(np.ones((5, 3)))
    model.partial_fit(groups(60, 3, 2))
    assert model.means_.shape == (2, 3)


def test_a_stream_chooses_its_sizes_by_its_first_rows():
    X = np.random.default_rng(0).permutation(groups(2400, 5, 3))
    model = MixturePPCA()
    for chunk in np.array_split(X, 8):
        model.partial_fit(chunk)
    whole = MixturePPCA().fit(X)
    assert (model.n_mixtures_, model.n_components_) == (3, [2, 2, 2])
    assert (whole.n_mixtures_, whole.n_components_) == (3, [2, 2, 2])
    assert abs(model.score(X) - whole.score(X)) < 0.1
    early = MixturePPCA().partial_fit(X[:90])
    assert early.n_mixtures_ >= 1 and early.score(X[:90]) > -99  # the rows that wait are fitted
    with pytest.raises(ValueError, match="partial_fit"):
        MixturePPCA("dirichlet", 2).partial_fit(groups())


def test_a_stream_of_too_few_rows_has_no_model_yet():
    model = MixturePPCA(5, 1).partial_fit(groups(3, 4, 1))
    with pytest.raises(ValueError, match="not fitted"):
        model.predict(groups(3, 4, 1))


# --- kernels --------------------------------------------------------------------------


def test_a_linear_kernel_is_the_mixture_in_the_input_space():
    X = groups(apart=6.0)
    plain = MixturePPCA(3, 2).fit(X)
    kernel = MixturePPCA(3, 2, kernel="linear", n_directions=5).fit(X)
    assert kernel.means_.shape == (3, 5)
    assert_close(kernel.loglikelihood_, plain.loglikelihood_, "em")
    assert_close(kernel.score_samples(X), plain.score_samples(X), "residual")
    assert_close(kernel.reconstruct(X), plain.reconstruct(X), "residual")


def test_rings_are_told_apart_in_the_space_of_a_kernel():
    X, y = make_circles(400, factor=0.3, noise=0.05, random_state=0)
    options = {"kernel": "rbf", "kernel_params": {"gamma": 3.0}, "n_directions": 10, "n_init": 5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MixturePPCA(2, 3, **options).fit(X)
    labels = model.predict(X)
    assert max(np.mean(labels == y), np.mean(labels != y)) > 0.98
    new, _ = make_circles(100, factor=0.3, noise=0.05, random_state=1)
    assert model.predict_proba(new).shape == (100, 2)
    drawn, _ = model.sample(40, random_state=0)
    radius = np.sqrt((drawn**2).sum(axis=1))
    assert drawn.shape == (40, 2) and np.all(radius < 1.6)
    off = np.sqrt(((model.reconstruct(X) - X) ** 2).sum(axis=1))
    assert np.median(off) < 0.1


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly", "cosine", "matern", "linear"])
def test_a_named_kernel_is_that_of_kernel_pca(kernel):
    X = groups(60, 4, 2)
    for params in (None, {"gamma": 0.3}) if kernel != "linear" else (None,):
        ours = MixturePPCA(1, 1, kernel=kernel, kernel_params=params).fit(X)
        assert (
            ours._model.space.kernel
            == KernelPCA(1, kernel=kernel, kernel_params=params).fit(X).kernel_
        )
    assert MixturePPCA(1, 1, kernel="rbf").fit(X)._model.space.kernel.gamma == 1 / 4


def test_a_kernel_takes_no_holes():
    with pytest.raises(ValueError, match="NaN"):
        MixturePPCA(2, 1, kernel="rbf").fit(holes(groups()))
    assert not hasattr(MixturePPCA(2, 1, kernel="rbf"), "impute")
    assert not hasattr(MixturePPCA(2, 1, kernel="rbf"), "partial_fit")


# --- nonsense -------------------------------------------------------------------------

NONSENSE = [
    {"n_mixtures": 0},
    {"n_mixtures": 2.5},
    {"n_mixtures": "many"},
    {"n_mixtures": True},
    {"n_components": 0},
    {"n_components": 9},
    {"n_components": [1, 2, 3]},
    {"n_components": [1, 0]},
    {"n_components": []},
    {"n_components": "nonsense"},
    {"standardize": "yes"},
    {"on_collapse": "panic"},
    {"tied_noise": "yes"},
    {"noise_floor": 0},
    {"noise_floor": -1.0},
    {"concentration": 0.0},
    {"n_init": 0},
    {"tol": -1.0},
    {"max_iter": 0},
    {"max_mixtures": 0},
    {"n_directions": 0},
    {"kernel": "nonsense"},
    {"kernel": "rbf", "kernel_params": 3},
]


@pytest.mark.parametrize("options", NONSENSE, ids=str)
def test_nonsense_is_named(options):
    name = list(options)[-1]
    with pytest.raises((ValueError, TypeError), match=name):
        MixturePPCA(**{"n_mixtures": 2, **options}).fit(groups())


def test_a_column_that_nobody_observed_is_named():
    X = holes(groups())
    X[:, 3] = np.nan
    with pytest.raises(ValueError, match="column 3"):
        MixturePPCA(2, 1).fit(X)


def test_constant_rows_are_an_error():
    with pytest.raises(ValueError, match="constant"):
        MixturePPCA(2, 1).fit(np.full((8, 3), 7.0))


def test_a_constant_column_is_no_obstacle():
    X = groups()
    X[:, 2] = 7.0
    model = MixturePPCA(3, 1).fit(X)
    assert_close(model.means_[:, 2], np.full(3, 7.0), "vector")
    assert np.all(np.isfinite(model.score_samples(X)))


def test_many_rows_start_from_a_sample_and_end_on_all():
    X = np.random.default_rng(0).permutation(groups(6000, 4, 3, apart=3.0))
    model = MixturePPCA(3, 2).fit(X)
    assert_close(model.score_samples(X).sum(), model.loglikelihood_, "em")
    thorough = MixturePPCA(3, 2, **TIGHT).fit(X)
    assert abs(model.loglikelihood_ - thorough.loglikelihood_) < 1e-4 * len(X)
    weights = np.r_[np.ones(3000), np.zeros(3000)]
    half = MixturePPCA(3, 2).fit(X, sample_weight=weights)
    assert abs(half.loglikelihood_ - MixturePPCA(3, 2).fit(X[:3000]).loglikelihood_) < 0.5


def test_likelihood_of_a_stream_is_that_of_all_its_rows():
    X = groups(900, 4, 3, apart=4.0)[np.random.default_rng(0).permutation(900)]
    stream = MixturePPCA(3, 2)
    for rows in np.array_split(X, 9):
        stream.partial_fit(rows)
    assert stream.loglikelihood_ == pytest.approx(stream.score_samples(X).sum(), rel=0.02)


def test_likelihood_beside_the_bound_counts_weights():
    X, w = groups(120), np.random.default_rng(0).uniform(0, 2, 120)
    model = MixturePPCA("dirichlet", 2, max_mixtures=4).fit(X, sample_weight=w)
    assert_close(model.loglikelihood_, w @ model.score_samples(X), "em")
