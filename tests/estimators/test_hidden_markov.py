"""Hidden Markov models of subspaces: monotone, right as sequences grow, whatever comes in."""

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.metrics import adjusted_rand_score

from dualpca import PPCA, HiddenMarkovPCA
from dualpca.errors import (
    CollapseWarning,
    DegenerateError,
    EmptyColumnError,
    SelectionWarning,
    StateWarning,
)
from dualpca.kernels import RBF
from dualpca.models import hidden_markov
from tests.models.markov_cases import draw, truth
from tests.oracles.chain import dense_emissions, enumerate_paths
from tests.tolerances import assert_close, tolerance

quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# --- exact on small chains ------------------------------------------------------------


@quiet
@pytest.mark.parametrize("missing", [0.0, 0.3], ids=["complete", "NaN"])
@pytest.mark.parametrize("n_mixtures", [1, 2])
def test_everything_equals_enumeration_with_dense_gaussians(n_mixtures, missing):
    X, _ = draw(missing=missing)
    model = HiddenMarkovPCA(3, 1, n_mixtures, max_iter=5).fit(X, lengths=[200, 100])
    short, lengths = X[:9].copy(), [5, 4]
    short[2] = np.nan  # nothing observed at all
    log_b = dense_emissions(model, short)
    parts = [
        enumerate_paths(model.start_probabilities_, model.transitions_, b)
        for b in (log_b[:5], log_b[5:])
    ]
    total = sum(p.loglikelihood for p in parts)
    assert_close(model.score(short, lengths=lengths) * 9, total, "density")
    assert_close(model.score_sequences(short, lengths), [p.loglikelihood for p in parts], "density")
    states = np.concatenate([p.states for p in parts])
    assert_close(model.predict_proba(short, lengths), states, "density")
    assert_close(
        model.filter(short, lengths), np.concatenate([p.filtered for p in parts]), "density"
    )
    log_probability, path = model.decode(short, lengths)
    assert_close(log_probability, sum(p.best[0] for p in parts), "density")
    assert path.tolist() == [s for p in parts for s in p.best[1]]
    assert np.array_equal(model.predict(short, lengths), path)


@pytest.mark.parametrize("q", [1, 2, 3])
def test_one_state_is_ppca(q):
    X, _ = draw()
    model, alone = HiddenMarkovPCA(1, q).fit(X), PPCA(q).fit(X)
    assert_close(model.loglikelihood_, alone.loglikelihood_, "density")
    assert_close(model.score(X), alone.score(X), "density")
    W = model.loadings_[0][0]
    C = W @ W.T + model.noise_variances_[0, 0] * np.eye(4)
    assert_close(C, alone.get_covariance(), "density")


# --- the likelihood never falls -------------------------------------------------------

WAYS = {
    "plain": {},
    "mixtures": {"n_mixtures": 2},
    "own counts": {"n_components": [0, 1, 2]},
    "left to right": {"topology": "left-to-right"},
    "sticky": {"stickiness": 20.0},
    "tied": {"tied_noise": True},
    "rows seen before": {"prior_rows": 10.0},
    "both priors, mixtures": {"prior_rows": 3.0, "stickiness": 5.0, "n_mixtures": 2},
    "kernel": {"kernel": RBF(gamma=0.05), "n_directions": 6},
}


@pytest.mark.grid
@quiet
@pytest.mark.filterwarnings("ignore::dualpca.errors.CollapseWarning")
@pytest.mark.parametrize("missing", [0.0, 0.2], ids=["complete", "NaN"])
@pytest.mark.parametrize("way", WAYS)
def test_the_likelihood_never_falls(way, missing):
    X, _ = draw(gap=0.7, missing=missing if way != "kernel" else missing / 8)
    options = {"n_components": 1, "max_iter": 60, "tol": 0.0, **WAYS[way]}
    model = HiddenMarkovPCA(3, **options).fit(X, lengths=[120, 180])
    values = np.array(model.loglikelihoods_)
    assert len(values) > 5 and values[-1] > values[0]
    fall = np.min(np.diff(values)) / np.abs(values[-1])
    assert fall >= -100 * tolerance("monotone"), f"fell by {fall:g}"


# --- right as sequences grow ----------------------------------------------------------


def matched_error(model, real):
    """Largest errors of means and transitions after states are matched by their means."""
    distance = np.sum((model.means_[:, 0][:, None] - real.emissions.means[None]) ** 2, axis=2)
    order = distance.argmin(axis=0)
    assert sorted(order.tolist()) == [0, 1, 2]
    means = np.abs(model.means_[order, 0] - real.emissions.means).max()
    A = np.abs(model.transitions_[np.ix_(order, order)] - real.chain.transitions).max()
    noises = np.abs(model.noise_variances_[order, 0] / real.emissions.noises - 1).max()
    return np.array([means, A, noises])


def test_parameters_are_recovered_as_sequences_grow():
    real, errors = truth(), []
    for T in (400, 25_600):
        found = []
        for seed in range(5):
            X, _ = real.sample(T, np.random.default_rng(seed))
            found.append(matched_error(HiddenMarkovPCA(3, 1, n_init=3).fit(X), real))
        errors.append(np.mean(found, axis=0))
    assert np.all(errors[1] < 0.3 * errors[0])  # 64 times the rows, an eighth of the error
    assert np.all(errors[1] < [0.05, 0.02, 0.03])


def test_a_long_sequence_is_scored_without_underflow():
    X, states = draw(T=100_000)
    model = HiddenMarkovPCA(3, 1, max_iter=3, tol=1e3).fit(X[:2000])
    assert np.isfinite(model.score(X))
    assert adjusted_rand_score(model.predict(X), states) > 0.95


def test_a_long_sequence_is_fitted():
    real = truth()
    X, states = real.sample(100_000, np.random.default_rng(0))
    model = HiddenMarkovPCA(3, 1, tol=1e-4).fit(X)
    assert np.all(matched_error(model, real) < [0.03, 0.01, 0.02])
    assert adjusted_rand_score(model.predict(X), states) > 0.97


@pytest.mark.parametrize("missing", [0.0, 0.3], ids=["complete", "NaN"])
def test_stretches_tell_states_by_their_spread(missing):
    """States with the same mean: rows overlap, stretches do not."""
    rng = np.random.default_rng(0)
    states = np.repeat(np.arange(8) % 2, 100)
    X = rng.standard_normal((800, 3)) * np.where(states, 4.0, 1.0)[:, None]
    X[rng.random(X.shape) < missing] = np.nan
    found = HiddenMarkovPCA(2, 1, n_init=4).fit(X, lengths=[300, 500])
    assert adjusted_rand_score(found.predict(X, [300, 500]), states) > 0.9


def test_more_starts_never_end_lower():
    X, _ = draw(gap=0.5)
    values = [HiddenMarkovPCA(3, 1, n_init=k).fit(X).loglikelihood_ for k in (1, 2, 4)]
    assert values == sorted(values)


# --- topology and prior ---------------------------------------------------------------


def test_left_to_right_only_stays_or_goes_on():
    X = np.concatenate([draw(T=60, seed=s)[0] for s in range(5)])
    model = HiddenMarkovPCA(4, 1, topology="left-to-right").fit(X, lengths=[60] * 5)
    allowed = np.eye(4) + np.eye(4, k=1)
    assert np.all(model.transitions_[allowed == 0] == 0)
    assert_close(model.start_probabilities_, np.eye(4)[0], "exact")
    path = model.predict(X, [60] * 5).reshape(5, 60)
    assert np.all(path[:, 0] == 0) and np.all(np.isin(np.diff(path, axis=1), [0, 1]))


def test_a_sticky_chain_stays():
    X, _ = draw(gap=0.5, stay=0.5)
    free, sticky = (
        HiddenMarkovPCA(3, 1, stickiness=k, max_iter=500, n_init=2).fit(X) for k in (0.0, 500.0)
    )
    assert np.all(np.diag(sticky.transitions_) > 0.7)
    assert np.mean(np.diff(sticky.predict(X)) != 0) < np.mean(np.diff(free.predict(X)) != 0)


def test_rows_seen_before_count_as_rows():
    """One state: variances become (n ℓ + n₀ v)/(n + n₀), v the average variance, axes stay."""
    X, _ = draw()
    n0, model = 40.0, HiddenMarkovPCA(1, 2, prior_rows=40.0).fit(X)
    S = np.cov(X.T, bias=True)
    ell, V = np.linalg.eigh((300 * S + n0 * np.trace(S) / 4 * np.eye(4)) / (300 + n0))
    sigma2 = ell[:2].mean()
    C = (V[:, 2:] * (ell[2:] - sigma2)) @ V[:, 2:].T + sigma2 * np.eye(4)
    W = model.loadings_[0][0]
    assert_close(model.noise_variances_, [[sigma2]], "density")
    assert_close(W @ W.T + model.noise_variances_[0, 0] * np.eye(4), C, "density")


def test_many_rows_seen_before_make_states_round():
    X, _ = draw()
    model = HiddenMarkovPCA(3, 1, prior_rows=1e9).fit(X)
    assert_close(
        model.noise_variances_, np.full((3, 1), X.var(axis=0).mean()), "density", scale=1e3
    )
    assert np.abs(model.loadings_[0][0]).max() < 1e-2


# --- filter, forecast, sample ---------------------------------------------------------


def test_filtering_one_row_at_a_time_is_filtering():
    X, _ = draw(missing=0.2)
    model = HiddenMarkovPCA(3, 1).fit(X)
    whole, state = model.filter(X[:50]), None
    for t in range(50):
        state = model.filter(X[t : t + 1], previous=state)[0]
        assert_close(state, whole[t], "density")


def test_a_forecast_has_the_moments_of_sampled_futures():
    real, X = truth(), draw()[0]
    model = HiddenMarkovPCA(3, 1).fit(X)
    mean, std = model.forecast(X, 3, return_std=True)
    now = model.filter(X)[-1]
    ahead = now @ np.linalg.matrix_power(model.transitions_, 3)
    centres = model.means_[:, 0]
    own = np.stack(
        [
            np.diag(W[0] @ W[0].T) + s2
            for W, s2 in zip(model.loadings_, model.noise_variances_[:, 0], strict=True)
        ]
    )
    assert_close(mean[2], ahead @ centres, "density")
    second = ahead @ (own + centres**2) - (ahead @ centres) ** 2
    assert_close(std[2] ** 2, second, "density")
    assert model.forecast(X).shape == (1, real.emissions.dim)
    later = model.forecast(X[-1:], 3, previous=model.filter(X[:-1])[-1])
    assert_close(later, mean, "density")


def test_far_forecasts_are_the_stationary_mean():
    X, _ = draw()
    model = HiddenMarkovPCA(3, 1).fit(X)
    far = model.forecast(X, 2000)[-1]
    pi = np.linalg.matrix_power(model.transitions_, 5000)[0]
    assert_close(far, pi @ model.state_means_, "density")


@pytest.mark.parametrize("n_mixtures", [1, 2])
def test_samples_have_the_moments_of_the_model(n_mixtures):
    X, _ = draw(T=2000)
    model = HiddenMarkovPCA(3, 1, n_mixtures).fit(X)
    Y, states = model.sample(100_000, random_state=0)
    for s in range(3):
        rows = Y[states == s]
        spread = np.sqrt(model.state_variances_[s] / len(rows))
        assert np.all(np.abs(rows.mean(axis=0) - model.state_means_[s]) < 5 * spread)
        assert np.all(np.abs(rows.var(axis=0) / model.state_variances_[s] - 1) < 0.1)
    again, _ = model.sample(100_000, random_state=0)
    assert np.array_equal(Y, again)


def test_information_criteria_count_every_parameter():
    X, _ = draw()
    model, lengths = HiddenMarkovPCA(3, 1).fit(X, lengths=[100, 200]), [100, 200]
    p = 2 + 3 * 2 + 3 * (4 + 4 + 1)  # start, transitions, and mean, direction, noise of each state
    total = model.score_sequences(X, lengths).sum()
    assert_close(model.bic(X, lengths), -2 * total + p * np.log(300), "density")
    assert_close(model.aic(X, lengths), -2 * total + 2 * p, "density")
    forward = HiddenMarkovPCA(3, 1, topology="left-to-right").fit(X)
    assert_close(forward.aic(X) + 2 * 300 * forward.score(X), 2 * (2 + 3 * 9), "density")


@pytest.mark.filterwarnings("ignore::dualpca.errors.CollapseWarning")
def test_bic_finds_the_number_of_states():
    X, _ = draw(T=600)
    found = [HiddenMarkovPCA(S, 1, n_init=2).fit(X).bic(X) for S in (1, 2, 3, 4)]
    assert int(np.argmin(found)) == 2


def rings(T=400, seed=0):
    """A walker that moves between two circles with the same centre."""
    rng = np.random.default_rng(seed)
    states = np.repeat(rng.permutation(np.arange(T // 20) % 2), 20)
    angle, radius = rng.uniform(0, 2 * np.pi, T), 1.0 + 2.0 * states
    X = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return X + 0.1 * rng.standard_normal((T, 2)), states


def test_a_kernel_separates_what_no_line_can():
    X, states = rings()
    bent = HiddenMarkovPCA(2, 2, kernel="rbf", gamma=0.5, n_directions=10, n_init=3).fit(X)
    assert adjusted_rand_score(bent.predict(X), states) > 0.95
    new, later = rings(seed=1)
    assert adjusted_rand_score(bent.predict(new), later) > 0.9


@pytest.mark.filterwarnings("ignore::dualpca.errors.SolverWarning")
def test_samples_come_back_from_kernel_space():
    X, _ = rings()
    model = HiddenMarkovPCA(2, 2, kernel="rbf", gamma=0.5, n_directions=10, n_init=3).fit(X)
    Y, states = model.sample(60, random_state=0)
    assert Y.shape == (60, 2) and np.all(np.isfinite(Y))
    radius = np.linalg.norm(Y, axis=1)
    inner = int(np.argmin([radius[states == s].mean() for s in (0, 1)]))
    assert radius[states == inner].mean() < 1.6 < 2.2 < radius[states != inner].mean()


@quiet
def test_incomplete_rows_count_as_unobserved_in_kernel_space():
    X, states = rings()
    holes = X.copy()
    holes[::7, 0] = np.nan
    model = HiddenMarkovPCA(2, 2, kernel="rbf", gamma=0.5, n_directions=10, n_init=3).fit(holes)
    assert adjusted_rand_score(model.predict(holes), states) > 0.9
    empty = holes.copy()
    empty[::7] = np.nan
    assert_close(model.score(holes), model.score(empty), "exact")


@pytest.mark.slow
def test_joined_recordings_are_segmented_into_motions(shared_data):
    """Four motions, recordings one after another; measured 0.85, hmmlearn 0.51 to 0.69."""
    data = np.load(shared_data("basic_motions.npz"))
    order = np.random.default_rng(0).permutation(np.flatnonzero(data["is_test"]))
    X = data["X"][order].astype(float).reshape(-1, 6)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = HiddenMarkovPCA(4, 3, 2, stickiness=1e5, n_init=6, max_iter=100, tol=1e-4).fit(X)
    assert adjusted_rand_score(np.repeat(data["y"][order], 100), model.predict(X)) > 0.75


# --- limits ---------------------------------------------------------------------------


def test_fewer_rows_than_features_and_a_constant_column():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 30)) + np.repeat([[0.0], [6.0]], 6, axis=0)
    X[:, 3] = 1.0
    model = HiddenMarkovPCA(2, 2).fit(X)
    assert adjusted_rand_score(model.predict(X), np.repeat([0, 1], 6)) == 1.0
    assert np.isfinite(model.score(X)) and np.all(model.noise_variances_ > 0)


def test_noise_that_vanishes_stops_at_the_floor():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 1)) @ rng.standard_normal((1, 3))
    with pytest.warns(CollapseWarning, match="rows in a plane"):
        model = HiddenMarkovPCA(1, 1, noise_floor=1e-4).fit(X)
    assert_close(model.noise_variances_, [[1e-4 * X.var(axis=0).mean()]], "density")


@quiet
@pytest.mark.parametrize("missing", [0.0, 0.2], ids=["complete", "NaN"])
def test_copies_of_few_rows_have_a_finite_model(missing):
    X = np.repeat(draw(T=4)[0], 15, axis=0)
    X[np.random.default_rng(0).random(X.shape) < missing] = np.nan
    with pytest.warns(CollapseWarning, match="copies of few"):
        model = HiddenMarkovPCA(3, 2).fit(X, lengths=[30, 30])
    values = (model.score(X), model.predict_proba(X), model.forecast(X, 3), model.covariances_)
    assert all(np.all(np.isfinite(v)) for v in values)


def test_a_state_on_one_row_is_held_at_the_floor_and_named():
    X, _ = draw()
    X[150] = 1e3
    with pytest.warns(CollapseWarning, match=r"noise of states \[\d\] is held.*single rows"):
        model = HiddenMarkovPCA(3, 1).fit(X)
    alone = int(np.argmin(model.visits_))
    assert_close(model.visits_[alone], 1.0, "em")
    assert_close(model.noise_variances_[alone], [1e-6 * X.var(axis=0).mean()], "density")
    assert np.isfinite(model.score(X)) and model.predict(X)[150] == alone


def test_rows_seen_before_keep_a_state_off_one_row():
    X, _ = draw()
    X[150] = 30.0
    model = HiddenMarkovPCA(3, 1, prior_rows=5.0).fit(X)  # no warning, which would fail
    assert np.all(model.noise_variances_ > 1e-2 * X.var(axis=0).mean())


def test_as_many_states_as_rows_and_more():
    X, _ = draw(T=4)
    with pytest.warns(CollapseWarning):
        assert np.isfinite(HiddenMarkovPCA(4, 1).fit(X).score(X))
    with pytest.raises(ValueError, match="no more in all than the 4 rows"):
        HiddenMarkovPCA(5, 1).fit(X)
    with pytest.raises(ValueError, match="no more in all than the 4 rows"):
        HiddenMarkovPCA(3, 1, n_mixtures=2).fit(X)


def test_one_feature_needs_no_direction():
    X = draw()[0][:, :1]
    with pytest.raises(ValueError, match="n_components=0 is a plain Gaussian"):
        HiddenMarkovPCA(2, 1).fit(X)
    model = HiddenMarkovPCA(2, 0).fit(X)
    assert model.covariances_.shape == (2, 1, 1, 1)
    assert_close(model.covariances_.ravel(), model.noise_variances_.ravel(), "exact")


def test_sequences_of_one_row_are_the_mixture():
    """Nothing but the start speaks: its probabilities are the shares."""
    X, _ = draw()
    ones = [1] * 300
    model = HiddenMarkovPCA(3, 1).fit(X, lengths=ones)
    joint = model._model.density.emissions.log_density(X) + np.log(model.start_probabilities_)
    assert_close(model.score_sequences(X, ones), logsumexp(joint, axis=1), "density")
    assert_close(model.start_probabilities_, model.visits_ / 300, "em", scale=1e4)


def test_a_row_that_observed_nothing_says_nothing():
    X, _ = draw()
    model = HiddenMarkovPCA(3, 1).fit(X)
    nothing = np.full((4, 4), np.nan)
    assert model.score(nothing) == pytest.approx(0.0, abs=1e-12)
    ahead = np.stack(
        [
            model.start_probabilities_ @ np.linalg.matrix_power(model.transitions_, t)
            for t in range(4)
        ]
    )
    assert_close(model.predict_proba(nothing), ahead, "density")


def test_lists_of_tables_and_blocks_are_rows_with_lengths():
    X, _ = draw()
    model = HiddenMarkovPCA(3, 1).fit(X, lengths=[100, 200])
    tables = [X[:100], X[100:]]
    again = HiddenMarkovPCA(3, 1).fit(tables)
    assert_close(again.transitions_, model.transitions_, "exact")
    assert_close(again.predict_proba(tables), model.predict_proba(X, [100, 200]), "exact")
    block = X.reshape(3, 100, 4)
    assert_close(again.score(block), model.score(X, lengths=[100] * 3), "exact")
    assert_close(again.bic(tables), model.bic(X, [100, 200]), "exact")
    with pytest.raises(ValueError, match="sequence 1 must be a table"):
        HiddenMarkovPCA(3, 1).fit([X[:100], X[100:, :2]])


def test_sequences_do_not_touch():
    X, _ = draw()
    model = HiddenMarkovPCA(3, 1).fit(X, lengths=[100, 200])
    apart = np.concatenate([model.predict_proba(X[:100]), model.predict_proba(X[100:])])
    assert_close(model.predict_proba(X, [100, 200]), apart, "density")
    assert np.abs(model.predict_proba(X)[99:101] - apart[99:101]).max() > 1e-12


# --- other libraries and dtypes -------------------------------------------------------


@quiet
@pytest.mark.parametrize("kernel", [None, "rbf"])
def test_every_library_gives_the_same_model(backend, kernel):
    X, _ = draw(missing=0.0 if kernel else 0.1)
    options = {"kernel": kernel, "n_directions": 5, "max_iter": 10}
    here = HiddenMarkovPCA(3, 1, **options).fit(X)
    there = HiddenMarkovPCA(3, 1, **options).fit(backend.asarray(X))
    proba = there.predict_proba(backend.asarray(X))
    assert backend.owns(proba) and backend.owns(there.means_)
    assert_close(backend.numpy(proba), here.predict_proba(X), "vector")
    assert_close(there.score(backend.asarray(X)), here.score(X), "density")
    assert np.array_equal(backend.numpy(there.predict(backend.asarray(X))), here.predict(X))
    assert backend.owns(there.sample(5, random_state=0)[0])
    assert backend.owns(there.forecast(backend.asarray(X), 2))


def test_float32_stays_float32_and_inputs_stay_as_they_are():
    X, _ = draw(missing=0.1)
    X = X.astype(np.float32)
    before = X.copy()
    model = HiddenMarkovPCA(3, 1).fit(X, lengths=[100, 200])
    model.decode(X), model.filter(X), model.forecast(X)
    assert np.array_equal(X, before, equal_nan=True)
    assert model.means_.dtype == model.predict_proba(X).dtype == np.float32


# --- bad input ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([100, 100], "sum to the 300 rows of X.*sum to 200"),
        ([100, 300], "sum to the 300 rows of X"),
        ([300, 0], "at least 1 each.*Sequence 1 has no rows"),
        ([-1, 301], "at least 1 each"),
        ([], "one per sequence"),
        ([150.0, 150.0], "whole numbers"),
        ([[150], [150]], "whole numbers"),
        ("many", "whole numbers"),
    ],
)
def test_lengths_that_do_not_fit(lengths, message):
    X, _ = draw()
    with pytest.raises(ValueError, match=message):
        HiddenMarkovPCA(2, 1).fit(X, lengths=lengths)
    model = HiddenMarkovPCA(2, 1).fit(X)
    for method in ("decode", "predict_proba", "filter", "score_sequences"):
        with pytest.raises(ValueError, match=message):
            getattr(model, method)(X, lengths)


def test_lengths_in_the_place_of_y_are_refused():
    with pytest.raises(ValueError, match=r"fit\(X, lengths="):
        HiddenMarkovPCA(2, 1).fit(draw()[0], [100, 200])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_states": 0}, "n_states must be an integer of at least 1"),
        ({"n_states": 301}, "n_states times n_mixtures"),
        ({"n_components": 4}, "n_components must be from 0 to 3"),
        ({"n_components": -1}, "n_components must be from 0 to 3"),
        ({"n_components": [1, 1, 1]}, "a list of 2"),
        ({"n_components": 0.9}, "n_components must be a whole number"),
        ({"topology": "ring"}, "topology must be one of"),
        ({"stickiness": -1.0}, "stickiness must be a number of at least 0"),
        ({"prior_rows": -1.0}, "prior_rows must be a number of at least 0"),
        ({"noise_floor": float("nan")}, "noise_floor"),
        ({"kernel": "precomputed"}, "no values for new rows"),
        ({"kernel": "nonsense"}, "kernel must be one of"),
        ({"kernel": "rbf", "n_components": 20}, "n_directions"),
        ({"tied_noise": "yes"}, "tied_noise must be True or False"),
    ],
)
def test_parameters_that_make_no_model(options, message):
    with pytest.raises(ValueError, match=message):
        HiddenMarkovPCA(**{"n_states": 2, "n_components": 1, **options}).fit(draw()[0])


def test_states_that_are_never_visited_are_named():
    X, _ = draw()
    with pytest.warns(StateWarning, match="never visited.*fewer states"):
        model = HiddenMarkovPCA(6, 1, topology="left-to-right").fit(X, lengths=[2] * 150)
    assert np.all(np.isfinite(model.transitions_)) and np.isfinite(
        model.score(X, lengths=[2] * 150)
    )
    assert np.sum(model.visits_ < 0.5) >= 4


def test_rows_that_cannot_be_modelled():
    with pytest.raises(DegenerateError, match="constant"):
        HiddenMarkovPCA(2, 1).fit(np.ones((20, 3)))
    holes = draw()[0]
    holes[:, 2] = np.nan
    with pytest.raises(EmptyColumnError, match="column 2"):
        HiddenMarkovPCA(2, 1).fit(holes)
    endless = draw()[0]
    endless[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        HiddenMarkovPCA(2, 1).fit(endless)
    model = HiddenMarkovPCA(2, 1).fit(draw()[0])
    with pytest.raises(ValueError, match="infinity"):
        model.predict(endless)


@pytest.mark.parametrize("previous", [[0.5, 0.6], [1.0], [1.5, -0.5]])
def test_previous_states_must_be_probabilities(previous):
    model = HiddenMarkovPCA(2, 1).fit(draw()[0])
    with pytest.raises(ValueError, match="previous must be 2 probabilities"):
        model.filter(draw()[0][:1], previous=previous)


# --- how many -------------------------------------------------------------------------


def test_by_default_states_directions_and_units_are_found():
    rng = np.random.default_rng(0)
    states = np.repeat(rng.permutation(np.arange(30) % 3), 25)
    along = rng.normal(size=(3, 4))
    X = 4 * rng.normal(size=(3, 4))[states] + rng.normal(size=(750, 1)) * along[states]
    X += 0.4 * rng.normal(size=X.shape)
    model = HiddenMarkovPCA().fit(X)
    assert model.selection_.chosen == (3, 1)
    assert (model.n_states_, model.n_components_) == (3, [[1], [1], [1]])
    assert model.scale_ is None
    assert np.all(np.ptp(model.predict(X).reshape(30, 25), axis=1) == 0)
    given = HiddenMarkovPCA(3, 1).fit(X)
    assert model.score(X) == given.score(X) and not hasattr(given, "selection_")
    scaled = HiddenMarkovPCA(3).fit(X * [1, 1, 1, 1e4])
    assert scaled.scale_ is not None and np.all(
        scaled.predict(X * [1, 1, 1, 1e4]) == given.predict(X)
    )


def test_a_single_column_has_states_too():
    x = np.repeat([0.0, 5.0] * 5, 40)[:, None] + np.random.default_rng(0).normal(size=(400, 1))
    model = HiddenMarkovPCA().fit(x)
    assert model.selection_.chosen == (2, 0)
    assert HiddenMarkovPCA().fit(np.random.default_rng(1).normal(size=(200, 3))).n_states_ == 1


def test_rows_that_drift_have_no_number_of_states(monkeypatch):
    monkeypatch.setattr(hidden_markov, "MOST_STATES", 4)
    x = np.cumsum(np.random.default_rng(0).normal(size=(600, 2)), axis=0)
    with pytest.warns(SelectionWarning, match="drift"):
        assert HiddenMarkovPCA().fit(x).n_states_ == 4


@pytest.mark.parametrize(
    "options", [{"n_states": "cv"}, {"n_components": "all"}, {"n_components": [1, 2]}], ids=str
)
def test_words_that_are_no_rule_are_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        HiddenMarkovPCA(**options).fit(np.random.default_rng(0).normal(size=(50, 3)))
