"""What a copula fit says of tables drawn from its own model: it finds it, and states it fairly.

15 columns of five kinds, 40 % of the entries missing; the simulator knows nothing of the library.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri
from scipy.stats import rankdata
from sklearn.decomposition import FactorAnalysis as CompleteFactorAnalysis

from benchmarks.mixed_data import copula_table, without
from dualpca import PPCA, CopulaPPCA

MISSING, Q = 0.4, 3
LEVELS = ("ordinal", "binary", "nominal")
pytestmark = pytest.mark.slow


def holes(n, d, seed):
    return np.random.default_rng(1000 + seed).random((n, d)) < MISSING


@pytest.fixture(scope="module")
def case():
    """Return what was simulated, what was hidden, the table with gaps, and the fit."""
    made = copula_table(5000, 0)
    hidden = holes(*made.X.shape, 0)
    X = without(made.X, hidden)
    return made, hidden, X, CopulaPPCA(Q, random_state=0).fit(X)


def columns(made, *kinds):
    return [(j, name) for j, name in enumerate(made.X) if made.kinds[name] in kinds]


# --- correlations --------------------------------------------------------------------------------

REPLICATES, ROWS = 10, 1500


@pytest.fixture(scope="module")
def errors():
    """Return errors of latent correlations, of the fits and of an oracle, (replicates, pairs).

    The oracle sees the latent coordinates themselves, of as many complete rows as there are rows
    in which two given columns are both known.
    """
    fitted, oracle = [], []
    for seed in range(REPLICATES):
        made = copula_table(ROWS, 1 + seed)
        X = without(made.X, holes(*made.X.shape, 1 + seed))
        pairs = np.triu_indices(len(made.correlation), 1)
        model = CopulaPPCA(Q, random_state=0).fit(X)
        fitted.append((np.asarray(model.correlation_) - made.correlation)[pairs])
        seen = made.z[: round(ROWS * (1 - MISSING) ** 2)]
        found = CompleteFactorAnalysis(Q, tol=1e-4, max_iter=5000).fit(seen / seen.std(axis=0))
        oracle.append((found.get_covariance() - made.correlation)[pairs])
    return np.array(fitted), np.array(oracle)


def test_latent_correlations_are_off_by_no_more_than_sampling_error(errors):
    # A correlation of two columns cut into halves has π/2 times the standard error of that of the
    # uncut ones; the other kinds lose less.
    fitted, oracle = errors
    assert np.sqrt(np.mean(fitted**2)) <= np.pi / 2 * np.sqrt(np.mean(oracle**2))


def test_latent_correlations_have_no_bias_that_shows(errors):
    fitted, _ = errors
    bias, spread = fitted.mean(axis=0), fitted.std(axis=0, ddof=1)
    t = bias / (spread / np.sqrt(REPLICATES))
    assert np.mean(t**2) < 3.0  # 9/7 is expected of an unbiased estimate; pairs are not independent
    assert np.mean(bias**2) < 0.3 * np.mean(fitted**2)


# --- what it says of what is missing -------------------------------------------------------------


def test_90_percent_intervals_of_numbers_cover_88_to_92_percent(case):
    made, hidden, X, model = case
    _, low, high = model.impute(X, return_interval=True, level=0.9)
    inside = []
    for j, name in columns(made, "continuous"):
        at = hidden[:, j]
        truth = made.X[name].to_numpy()[at]
        inside.append((np.asarray(low[name])[at] <= truth) & (truth <= np.asarray(high[name])[at]))
    assert 0.88 <= np.mean(np.concatenate(inside)) <= 0.92
    assert all(0.865 <= np.mean(one) <= 0.935 for one in inside)


def test_intervals_of_counts_cover_at_least_what_they_say(case):
    # They end at whole numbers, so they hold more than 90 % of the probability.
    made, hidden, X, model = case
    _, low, high = model.impute(X, return_interval=True, level=0.9)
    for j, name in columns(made, "count"):
        at = hidden[:, j]
        truth = made.X[name].to_numpy()[at]
        inside = (np.asarray(low[name])[at] <= truth) & (truth <= np.asarray(high[name])[at])
        assert 0.89 <= np.mean(inside) <= 0.99


def stated(case, kind):
    """Return probability and outcome of every level of every hidden entry of a kind."""
    made, hidden, X, model = case
    probabilities, outcomes = [], []
    for j, name in columns(made, kind):
        at = hidden[:, j]
        chances = np.asarray(model.predict_proba(X, name))[at]
        levels = np.asarray(model.levels_[name])
        np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-8)
        probabilities.append(chances.ravel())
        outcomes.append((np.asarray(made.X[name])[at][:, None] == levels).ravel())
    return np.concatenate(probabilities), np.concatenate(outcomes)


def reliability(p, happened, bins):
    """Return by how much stated and observed frequency differ in each bin of 300 entries or more.

    Bins hold probabilities of equal width; the difference is that of their means.
    """
    at = np.minimum((p * bins).astype(int), bins - 1)
    counts = np.bincount(at, minlength=bins)
    gap = np.bincount(at, weights=p - happened, minlength=bins) / np.maximum(counts, 1)
    return gap[counts >= 300]


@pytest.mark.parametrize("kind", LEVELS)
def test_stated_probabilities_of_levels_happen_that_often(case, kind):
    p, happened = stated(case, kind)
    gaps = reliability(p, happened, 5)
    assert len(gaps) >= 4
    assert np.max(np.abs(gaps)) < 0.03


def test_probabilities_of_all_levels_together_are_calibrated_in_ten_bins(case):
    both = [stated(case, kind) for kind in LEVELS]
    gaps = reliability(*(np.concatenate(part) for part in zip(*both, strict=True)), 10)
    assert len(gaps) >= 9
    assert np.max(np.abs(gaps)) < 0.03


@pytest.mark.parametrize("kind", LEVELS)
def test_probabilities_say_more_than_frequencies_do(case, kind):
    made, hidden, X, model = case
    for j, name in columns(made, kind):
        at = hidden[:, j]
        levels = list(model.levels_[name])
        truth = [levels.index(x) for x in np.asarray(made.X[name])[at]]
        chances = np.asarray(model.predict_proba(X, name))[at]
        shares = X[name].value_counts(normalize=True).reindex(levels).to_numpy()
        gain = np.log(chances[np.arange(len(truth)), truth]) - np.log(shares[truth])
        assert gain.mean() > 3 * gain.std() / np.sqrt(len(gain))


def test_levels_are_filled_with_the_most_probable_one(case):
    made, hidden, X, model = case
    filled = model.impute(X)
    assert not filled.isna().to_numpy().any()
    for j, name in columns(made, *LEVELS):
        chances = np.asarray(model.predict_proba(X, name))[hidden[:, j]]
        levels = np.asarray(model.levels_[name])
        chosen = np.asarray(filled[name])[hidden[:, j]][:, None] == levels
        assert np.all(chances[chosen] >= chances.max(axis=1) - 1e-6)


def test_draws_of_numbers_fall_around_the_truth_as_they_should(case):
    made, hidden, X, model = case
    tables = model.sample_imputations(X, 19, random_state=0, parameters="fixed")
    for j, name in columns(made, "continuous"):
        at = hidden[:, j]
        draws = np.array([np.asarray(table[name])[at] for table in tables])
        below = np.mean(draws < made.X[name].to_numpy()[at], axis=0)
        shares = np.histogram(below, bins=5, range=(0, 1))[0] / at.sum()
        assert np.all(np.abs(shares - 0.2) < 0.03)


def test_what_is_sampled_has_the_margins_and_correlations_of_the_table(case):
    made, _, X, model = case
    drawn = model.sample(20_000, random_state=0)
    for name in X:
        if X[name].dtype == "category":
            seen = X[name].value_counts(normalize=True)
            found = pd.Series(drawn[name]).value_counts(normalize=True).reindex(seen.index)
            np.testing.assert_allclose(found, seen, atol=0.02)
        else:
            shares = np.linspace(0.05, 0.95, 7)
            cuts = np.nanquantile(X[name], shares)
            np.testing.assert_allclose(
                [(drawn[name] <= c).mean() for c in cuts],
                [(X[name].dropna() <= c).mean() for c in cuts],
                atol=0.02,
            )
    numbers = columns(made, "continuous")
    z = np.column_stack([normal_scores(np.asarray(drawn[name])) for _, name in numbers])
    at = [j for j, _ in numbers]
    truth = made.correlation[np.ix_(at, at)]
    np.testing.assert_allclose(np.corrcoef(z, rowvar=False), truth, atol=0.06)


# --- limits --------------------------------------------------------------------------------------


def normal_scores(x):
    """Return Φ⁻¹(rank/(n + 1)) of what is known."""
    z = np.full(len(x), np.nan)
    known = ~np.isnan(x)
    z[known] = ndtri(rankdata(x[known]) / (known.sum() + 1))
    return z


def test_a_monotone_change_of_a_column_changes_nothing_but_its_units(case):
    _, _, X, _ = case
    X = X.iloc[:1200].reset_index(drop=True)
    changes = {
        "continuous1": np.log,
        "continuous2": lambda x: np.sinh(x / 100) + 7,
        "continuous3": lambda x: x**3,
    }
    Y = X.assign(**{name: change(X[name]) for name, change in changes.items()})
    Y["ordinal1"] = X["ordinal1"].cat.rename_categories({x: x.upper() for x in "abcde"})
    one, other = (CopulaPPCA(Q, random_state=0).fit(table) for table in (X, Y))
    np.testing.assert_allclose(other.correlation_, one.correlation_, atol=1e-9)
    np.testing.assert_allclose(other.transform(Y), one.transform(X), atol=1e-8)
    np.testing.assert_allclose(other.score_samples(Y), one.score_samples(X), atol=1e-8)
    before, after = one.impute(X), other.impute(Y)
    for name in X:
        if name in changes:
            np.testing.assert_allclose(after[name], changes[name](before[name]), rtol=1e-9)
        elif name == "ordinal1":
            assert list(after[name]) == [x.upper() for x in before[name]]
        else:
            assert list(after[name]) == list(before[name])


@pytest.fixture(scope="module")
def normal():
    """Return normal numbers with gaps; what is known of a column are exact normal scores."""
    made = copula_table(3000, 5, nominal=False, gaussian=True)
    A = np.where(holes(*made.z.shape, 5), np.nan, made.z)
    return made, np.column_stack([normal_scores(x) for x in A.T])


def test_normal_numbers_are_ppca_of_standardised_columns(normal):
    _, A = normal
    copula = CopulaPPCA(Q, noise="isotropic", random_state=0).fit(A)
    linear = PPCA(Q, standardize=True).fit(A)
    covariance = np.asarray(linear.get_covariance())
    scale = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(copula.correlation_, covariance / np.outer(scale, scale), atol=0.03)
    gaps = np.isnan(A)
    one, other = np.asarray(copula.impute(A))[gaps], np.asarray(linear.impute(A))[gaps]
    assert np.sqrt(np.mean((one - other) ** 2)) < 0.05


def test_normal_numbers_with_a_noise_for_each_column_are_factor_analysis():
    made = copula_table(3000, 6, nominal=False, gaussian=True)
    Z = np.column_stack([normal_scores(x) for x in made.z.T])
    Z /= Z.std(axis=0)
    found = CompleteFactorAnalysis(Q, tol=1e-6, max_iter=10000).fit(Z).get_covariance()
    np.testing.assert_allclose(CopulaPPCA(Q).fit(made.z).correlation_, found, atol=0.01)


def test_gaps_in_normal_numbers_are_filled_as_well_as_the_truth_would(normal):
    """Medians are nearly those of the law that made the table: no more than 2 % more error."""
    made, A = normal
    gaps = np.isnan(A)
    best = np.array([conditional_mean(made.correlation, row) for row in A])
    filled = np.asarray(CopulaPPCA(Q, random_state=0).fit(A).impute(A))
    ratio = np.abs(filled - made.z)[gaps].mean() / np.abs(best - made.z)[gaps].mean()
    assert ratio < 1.02


def conditional_mean(correlation, row):
    known = ~np.isnan(row)
    weights = np.linalg.solve(correlation[np.ix_(known, known)], row[known])
    return np.where(known, row, correlation[:, known] @ weights)


def test_cross_validation_finds_about_as_many_components_as_there_are():
    made = copula_table(800, 3)
    X = without(made.X, holes(*made.X.shape, 3))
    assert CopulaPPCA(random_state=0).fit(X).n_components_ in (2, 3, 4)
