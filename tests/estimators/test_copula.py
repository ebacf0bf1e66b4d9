"""CopulaPPCA: tables with columns of any kind, in and out."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dualpca
from dualpca import Censored, CopulaPPCA, FactorAnalysis, Imputer
from dualpca.errors import EmptyColumnError
from dualpca.models.copula import choose_latents

GRADES = ["low", "middle", "high"]
LEVELS = np.array(["red", "green", "blue"])
WORDS = ["price", "grade", "smoker", "colour", "visits", "virus"]
WEIGHTS = np.random.default_rng(7).normal(size=(2, 3))


def simulated(n, seed=0, noise=0.5):
    """Return a table whose six columns, of six kinds, come from two latents."""
    rng = np.random.default_rng(seed)
    t = rng.normal(size=(n, 2))

    def z(a, b):
        return (t @ [a, b] + noise * rng.normal(size=n)) / np.hypot(np.hypot(a, b), noise)

    virus = np.exp(z(0.8, 0.6) + 4)
    return pd.DataFrame(
        {
            "price": np.exp(3 * z(1.0, 0.2)),
            "grade": pd.Categorical.from_codes(
                np.digitize(z(0.9, -0.3), [-0.6, 0.7]), GRADES, ordered=True
            ),
            "smoker": pd.array(z(-0.2, 1.0) > 0.3, dtype="boolean"),
            "colour": LEVELS[np.argmax(1.5 * t @ WEIGHTS + rng.normal(size=(n, 3)), axis=1)],
            "visits": pd.array(stats.poisson(6).ppf(stats.norm.cdf(z(-1, 0.3))), dtype="Int64"),
            "virus": np.where(virus < 30, "<30", np.char.mod("%.1f", virus)),
        }
    )


def with_gaps(X, share=0.2, seed=1):
    hidden = np.random.default_rng(seed).random(X.shape) < share
    return X.mask(hidden), hidden


@pytest.fixture(scope="module")
def table():
    return with_gaps(simulated(300))[0]


@pytest.fixture(scope="module")
def model(table):
    return CopulaPPCA(2).fit(table)


def numbers(n=200, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 5)) + 0.5 * rng.normal(size=(n, 5))
    Z[rng.random(Z.shape) < 0.1] = np.nan
    return Z


# --- What is fitted ------------------------------------------------------------------------------


def test_kinds_levels_and_loadings_have_names(model):
    kinds = ["continuous", "ordinal", "binary", "nominal", "count", "censored"]
    assert model.column_kinds_ == dict(zip(WORDS, kinds, strict=True))
    assert model.levels_["grade"] == GRADES and model.levels_["smoker"] == [False, True]
    assert model.levels_["colour"] == ["blue", "green", "red"] and "price" not in model.levels_
    assert model.loading_names_ == [
        *("price", "grade", "smoker=True", "colour=blue", "colour=green", "colour=red"),
        *("visits", "virus"),
    ]
    assert model.loadings_.shape == (8, 2) and model.components_.shape == (2, 8)
    assert model.correlation_.shape == (5, 5)
    assert np.allclose(np.diag(model.correlation_), 1)
    assert np.allclose(model.noise_variance_[0] + (model.loadings_[0] ** 2).sum(), 1)
    assert model.n_components_ == 2 and model.converged_ and model.n_iter_ > 0
    assert not hasattr(model, "selection_")


@pytest.mark.parametrize("change", [np.exp, np.arctan, lambda x: x**3])
def test_increasing_changes_of_units_change_nothing(change):
    X = numbers()
    one, other = CopulaPPCA(2).fit(X), CopulaPPCA(2).fit(change(X))
    assert np.array_equal(one.loadings_, other.loadings_)
    assert np.array_equal(one.transform(X), other.transform(change(X)))
    assert np.array_equal(one.score_samples(X), other.score_samples(change(X)))
    for a, b in zip(
        one.impute(X, return_interval=True),
        other.impute(change(X), return_interval=True),
        strict=True,
    ):
        assert np.array_equal(change(a), b)
    for a, b in zip(
        one.sample_imputations(X, 2, 0), other.sample_imputations(change(X), 2, 0), strict=True
    ):
        assert np.array_equal(change(a), b)


def test_no_latents_are_independent_columns(table):
    model = CopulaPPCA(0).fit(table)
    assert np.allclose(model.score_samples(table), 0) and model.transform(table).shape == (300, 0)
    filled = model.impute(table)
    price, gone = table["price"], table["price"].isna()
    assert set(filled["price"][gone]) == {np.sort(price.dropna())[(len(price.dropna()) - 1) // 2]}
    assert set(filled["colour"][table["colour"].isna()]) == {table["colour"].mode()[0]}
    found = model.predict_proba(table[:1], "colour")[0]
    shares = table["colour"].value_counts(normalize=True).sort_index()
    assert np.allclose(found, shares)


def test_one_column_is_its_own_distribution():
    X = np.random.default_rng(0).gamma(0.5, size=(50, 1))
    model = CopulaPPCA().fit(X)
    assert model.n_components_ == 0
    drawn = model.sample(20_000, random_state=0)[:, 0]
    assert set(drawn) == set(X[:, 0])
    assert np.bincount(np.searchsorted(np.sort(X[:, 0]), drawn)).max() < 1.3 * 20_000 / 50


def test_normal_columns_give_factor_analysis():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2)) @ rng.normal(size=(2, 6)) + 0.7 * rng.normal(size=(3000, 6))
    X[rng.random(X.shape) < 0.1] = np.nan
    copula, factors = CopulaPPCA(2).fit(X), FactorAnalysis(2, standardize=True).fit(X)
    C = factors.get_covariance()
    deviation = np.sqrt(np.diag(C))
    assert np.allclose(copula.correlation_, C / deviation / deviation[:, None], atol=0.02)
    ours, theirs = copula.impute(X), factors.impute(X)
    gone = np.isnan(X)
    assert np.corrcoef(ours[gone], theirs[gone])[0, 1] > 0.995


def test_weights_count_rows(table):
    w = np.random.default_rng(0).integers(0, 3, len(table))
    one = CopulaPPCA(1, tol=1e-6).fit(table, sample_weight=w)
    other = CopulaPPCA(1, tol=1e-6).fit(table.loc[table.index.repeat(w)])
    assert np.allclose(one.correlation_, other.correlation_, atol=1e-4)
    assert one.impute(table).equals(other.impute(table))


def test_weights_count_in_the_choice_of_latents(monkeypatch):
    w, seen = np.random.default_rng(0).integers(1, 3, 60), []

    def choose(rows, shares, request, weights, first, **filling):
        seen.append(weights)
        return choose_latents(rows, shares, request, weights, most=1)

    monkeypatch.setattr("dualpca.models.copula.columns.choose_latents", choose)
    CopulaPPCA("cv", column_kinds=["continuous"] * 5).fit(numbers(60), sample_weight=w)
    np.testing.assert_array_equal(seen[0], w)


def test_the_number_of_latents_is_chosen():
    X = numbers(300)
    model = CopulaPPCA("cv", column_kinds=["continuous"] * 5).fit(X)
    assert model.n_components_ == model.selection_.chosen == 2
    assert CopulaPPCA().get_params()["n_components"] is None


def test_constant_columns_are_left_alone():
    X = numbers(60)
    X = np.column_stack([X, np.where(np.isnan(X[:, 0]), np.nan, 3.0)])
    X[0, 5] = np.nan
    model = CopulaPPCA(1).fit(X)
    assert np.all(model.loadings_[5] == 0) and model.noise_variance_[5] == 1
    assert np.all(model.impute(X)[:, 5] == 3.0)
    assert np.array_equal(model.loadings_[:5], CopulaPPCA(1).fit(X[:, :5]).loadings_)
    assert np.all(model.sample(4, 0)[:, 5] == 3.0) and model.correlation_[5, 0] == 0


# --- Completed tables ----------------------------------------------------------------------------


def check_completed(X, done):
    assert list(done.dtypes) == list(X.dtypes) and not done.isna().any().any()
    known = X.notna()
    assert (done.where(known) == X)[known].sum().sum() == known.sum().sum()


def test_pandas_frames_come_back_completed(model, table):
    before = table.copy(deep=True)
    check_completed(table, model.impute(table))
    for one in model.sample_imputations(table, 2, 0, parameters="fixed"):
        check_completed(table, one)
    pd.testing.assert_frame_equal(table, before)


def test_polars_frames_give_the_same(model, table):
    X = pl.from_pandas(table.astype({"grade": object})).with_columns(
        pl.col("grade").cast(pl.Enum(GRADES))
    )
    other = CopulaPPCA(2).fit(X)
    assert other.column_kinds_ == model.column_kinds_
    assert np.allclose(other.transform(X), model.transform(table), atol=1e-12)
    done = other.impute(X)
    assert done.schema == X.schema and done.null_count().sum_horizontal().item() == 0
    wanted = model.impute(table)
    for name in WORDS:
        assert done[name].to_list() == wanted[name].tolist()
    assert other.sample(3, 0).schema["grade"] == pl.Enum(GRADES)


def test_intervals_hold_the_median(model, table):
    done, low, high = model.impute(table, return_interval=True)
    for name in ("price", "visits", "grade"):
        assert ((low[name] <= done[name]) & (done[name] <= high[name])).all()
        known = table[name].notna()
        assert low[name][~known].isna().sum() == 0
    gone = table["colour"].isna()
    assert low["colour"][gone].isna().all()
    narrow = model.impute(table, return_interval=True, level=0.5)
    assert (narrow[2]["price"] <= high["price"]).all()


def test_what_is_filled_in_are_values_of_the_column(model, table):
    done = model.impute(table)
    for name in WORDS:
        assert set(done[name]) <= set(table[name].dropna())


def test_probabilities_are_of_the_rest_of_the_row(model, table):
    p = model.predict_proba(table, "colour")
    assert p.shape == (300, 3) and np.allclose(p.sum(axis=1), 1) and p.min() > 0
    hidden = table.assign(colour=table["colour"].mask(np.ones(300, dtype=bool)))
    assert np.array_equal(model.predict_proba(hidden, "colour"), p)
    levels = np.array(model.levels_["colour"])
    assert (
        model.impute(hidden)["colour"] == levels[model.predict_proba(hidden, "colour").argmax(1)]
    ).all()
    every = model.predict_proba(table)
    assert every.shape[1] == sum(map(len, model.levels_.values()))
    grades = model.predict_proba(table, "grade")
    assert np.array_equal(every[:, :3], grades) and np.array_equal(
        grades, model.predict_proba(table, 1)
    )
    assert np.allclose(grades.sum(axis=1), 1) and grades.min() > 0


def test_latents_say_the_levels_of_every_column():
    t = np.random.default_rng(0).normal(size=(3, 300)) * [[1.0], [0.2], [0.2]]
    levels = [np.digitize(t[0] + t[1], [-0.5, 0.5]), np.digitize(t[0] + t[2], [0.0])]
    X = pd.DataFrame({"a": t[0], "b": np.array(["x", "z", "y"])[levels[0]], "c": t[0] + t[1]})
    X["d"] = np.array(["u", "v"])[levels[1]]
    model = CopulaPPCA(1, column_kinds={"b": "nominal", "d": "nominal"}).fit(X)
    found = model.inverse_transform(model.transform(X))
    for name in ("b", "d"):
        assert np.mean(found[name] == X[name]) > 0.8


def test_only_rows_of_weight_are_bootstrapped():
    X = numbers(60)[:, :2]
    X[:30] += 100.0  # the other half has no weight
    X[30:40, 0] = np.nan
    w = np.repeat([0.0, 1.0], 30)
    for done in CopulaPPCA(1).fit(X).sample_imputations(X, 3, 0, sample_weight=w):
        assert np.all(done[30:40, 0] < 50)


def test_draws_differ_and_seeds_repeat(model, table):
    one, two = model.sample_imputations(table, 2, 0)
    again = model.sample_imputations(table, 2, 0)
    assert one.equals(again[0]) and two.equals(again[1]) and not one.equals(two)
    few = model.sample_imputations(table, 1, 0, sample_weight=np.ones(300))
    assert few[0].equals(one)


def test_bootstrapped_draws_spread_wider():
    X = numbers(40, 3)
    X[::2, 0] = np.nan
    model = CopulaPPCA(1).fit(X)
    spread = {
        how: np.var([t[:, 0].mean() for t in model.sample_imputations(X, 60, 0, parameters=how)])
        for how in ("bootstrap", "fixed")
    }
    assert spread["bootstrap"] > 1.1 * spread["fixed"]


def test_arrays_and_lists():
    X = numbers(80)
    model = CopulaPPCA(1).fit(X)
    done = model.impute(X)
    assert done.dtype == np.float64 and not np.isnan(done).any()
    assert np.array_equal(done[~np.isnan(X)], X[~np.isnan(X)])
    assert model.transform(X.astype(np.float32)).dtype == np.float32
    assert np.array_equal(model.transform(X.tolist()), model.transform(X))
    assert model.sample(3, random_state=0).shape == (3, 5)
    rows = [["a", 1.5], ["b", 2.5], ["c", None], ["a", 0.5], ["b", 4.5], ["c", 4.0]] * 4
    assert CopulaPPCA(1).fit(rows).impute(rows).shape == (24, 2)


def test_values_below_a_limit():
    rng = np.random.default_rng(0)
    t = rng.normal(size=400)
    X = np.exp(np.column_stack([t, t, t]) + 0.4 * rng.normal(size=(400, 3)))
    Y = X.copy()
    Y[:, 0] = np.maximum(X[:, 0], 0.8)
    Y[:40, 0] = np.nan
    model = CopulaPPCA(1, column_kinds={0: Censored(below=0.8)}).fit(Y)
    full = CopulaPPCA(1).fit(X)
    assert np.allclose(model.correlation_, full.correlation_, atol=0.05)
    filled = model.impute(Y)[:40, 0]
    assert filled.min() == 0.8
    assert np.mean((filled == 0.8) == (X[:40, 0] <= 0.8)) > 0.8
    text = pd.DataFrame(Y).astype(object)
    text[0] = [None if np.isnan(v) else "<=0.8" if v <= 0.8 else repr(float(v)) for v in Y[:, 0]]
    other = CopulaPPCA(1).fit(text)
    assert other.column_kinds_[0] == "censored"
    assert np.allclose(other.loadings_, model.loadings_, atol=1e-8)
    assert "<=0.8" in set(other.impute(text)[0][:40])


def test_nominal_columns_only():
    X = pd.DataFrame(
        {
            k: simulated(200, seed=3, noise=n)["colour"]
            for k, n in zip("ab", (0.1, 0.2), strict=True)
        }
    )
    X["b"] = X["b"].where(np.arange(200) % 9 > 0)
    model = CopulaPPCA(1).fit(X)
    assert model.correlation_.shape == (0, 0) and model.loadings_.shape == (6, 1)
    assert not model.impute(X).isna().any().any()
    assert not model.outliers(X).flagged.any() and model.outliers(X).expected == 0
    assert model.sample(3, 0).shape == (3, 2)


def test_rows_that_know_nothing(model, table):
    empty = table[:1].mask(np.ones((1, 6), dtype=bool)).astype(table.dtypes)
    mean, covariance = model.posterior(empty)
    assert np.allclose(mean, 0) and np.allclose(covariance, np.eye(2))
    assert model.score_samples(empty)[0] == pytest.approx(0, abs=1e-9)
    assert not model.impute(empty).isna().any().any()


def test_results_are_not_the_input():
    X = np.random.default_rng(0).integers(0, 5, size=(40, 3))
    done = CopulaPPCA(1).fit(X).impute(X)
    assert np.array_equal(done, X) and not np.shares_memory(done, X) and done.dtype == X.dtype


# --- Unusual rows, densities ---------------------------------------------------------------------


def test_scores_are_relative_to_independent_columns(model, table):
    alone = table[:1].mask(np.array([[False, True, True, True, True, True]]))
    assert abs(model.score_samples(alone)[0]) < 1e-8
    assert model.score(table) == pytest.approx(model.score_samples(table).mean())
    assert model.loglikelihood_ == pytest.approx(model.score_samples(table).sum(), rel=1e-4)
    shuffled = pd.DataFrame(
        {n: table[n].sample(frac=1, random_state=k).to_numpy() for k, n in enumerate(table)}
    ).astype(table.dtypes)
    assert model.score(shuffled) < 0 < model.score(table)


def test_outliers_of_all_kinds():
    model = CopulaPPCA(2).fit(simulated(1500))
    new, _ = with_gaps(simulated(2000, seed=5), 0.1)
    found = model.outliers(new)
    assert found.flagged.mean() == pytest.approx(0.05, abs=0.02)
    assert np.array_equal(found.flagged, model.outliers(new).flagged)
    odd = simulated(200, seed=6)
    odd["price"] = odd["price"].to_numpy()[np.argsort(odd["price"].to_numpy())[::-1].argsort()]
    odd["visits"] = odd["visits"].sample(frac=1, random_state=0).to_numpy()
    assert model.outliers(odd).flagged.mean() > 0.2


# --- What is refused -----------------------------------------------------------------------------


def test_refusals_name_column_level_and_row(model, table):
    new = table[:3].copy()
    new.index = ["u1", "u2", "u3"]
    new["colour"] = ["red", "pink", "red"]
    with pytest.raises(ValueError, match="column 'colour' has the level 'pink' in row 'u2'"):
        model.transform(new)
    with pytest.raises(EmptyColumnError, match="'grade'"):
        CopulaPPCA(1).fit(table.assign(grade=None))
    with pytest.raises(ValueError, match="column 'name' has 300 different values"):
        CopulaPPCA(1).fit(table.assign(name=[f"n{i}" for i in range(300)]))
    with pytest.raises(EmptyColumnError, match="'grade'"):
        CopulaPPCA(1).fit(table, sample_weight=table["grade"].isna().astype(float))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, X: CopulaPPCA("bic").fit(X), "n_components must be a number of latents"),
        (lambda m, X: CopulaPPCA(7).fit(X), "n_components must be at most 6"),
        (lambda m, X: CopulaPPCA(noise="none").fit(X), "noise must be one of"),
        (lambda m, X: CopulaPPCA(tol=-1).fit(X), "tol must be"),
        (lambda m, X: m.predict_proba(X, "price"), "column 'price' must be one with levels"),
        (lambda m, X: m.predict_proba(X, "size"), "column must be one of"),
        (lambda m, X: m.impute(X, return_interval=True, level=1.0), "level must be"),
        (lambda m, X: m.sample_imputations(X, parameters="none"), "parameters must be one of"),
        (lambda m, X: m.sample_imputations(X[:5]), "a bootstrap needs at least 20 rows"),
        (lambda m, X: m.transform(X[["grade", "price"]]), "feature names"),
        (lambda m, X: m.outliers(X, level=2), "level must be"),
    ],
)
def test_refusals(model, table, call, message):
    with pytest.raises(ValueError, match=message):
        call(model, table)


def test_chunked_tables():
    X = numbers(90)
    batches = dualpca.Batches(lambda: np.array_split(X, 3))
    with pytest.raises(ValueError, match="Fit to rows that fit into memory"):
        CopulaPPCA(1).fit(batches)
    model = CopulaPPCA(1).fit(X)
    for method in ("transform", "impute", "score_samples"):
        parts = np.concatenate([np.asarray(p) for p in getattr(model, method)(batches)])
        assert np.allclose(parts, getattr(model, method)(X), atol=1e-7)
    assert model.score(batches) == pytest.approx(model.score(X))


# --- scikit-learn --------------------------------------------------------------------------------


def test_clones_pipelines_and_frames_out(table):
    model = CopulaPPCA(2, column_kinds={"grade": "ordinal"}).set_output(transform="pandas")
    again = clone(model)
    assert again.get_params() == model.get_params()
    latents = again.fit_transform(table)
    assert list(latents.columns) == ["copulappca0", "copulappca1"]
    assert list(latents.index) == list(table.index)
    pipe = make_pipeline(CopulaPPCA(2), StandardScaler()).fit(table)
    assert pipe.transform(table).shape == (300, 2)


def test_saved_models_know_their_columns(model, table, tmp_path):
    model.save(tmp_path / "m.dpca")
    again = dualpca.load(tmp_path / "m.dpca")
    assert again.column_kinds_ == model.column_kinds_ and again.levels_ == model.levels_
    pd.testing.assert_frame_equal(again.impute(table), model.impute(table))
    pd.testing.assert_frame_equal(again.sample(5, 0), model.sample(5, 0))
    kinds = {0: Censored(below=-1), 1: "continuous"}
    other = CopulaPPCA(1, column_kinds=kinds).fit(numbers(60))
    other.save(tmp_path / "o.dpca")
    assert dualpca.load(tmp_path / "o.dpca").column_kinds == kinds


def test_fits_resume_from_checkpoints(table, tmp_path, model):
    path = tmp_path / "fit.checkpoint"
    again = CopulaPPCA(2, checkpoint=path).fit(table)
    assert np.array_equal(again.loadings_, model.loadings_) and not path.exists()


# --- Imputer -------------------------------------------------------------------------------------


def test_imputer_completes_frames(table):
    imputer = Imputer(2, model="copula", add_indicator=True)
    done = imputer.fit_transform(table)
    check_completed(table, done[WORDS])
    flags = [f"missingindicator_{name}" for name in WORDS]
    assert list(done.columns) == [*WORDS, *flags] == list(imputer.get_feature_names_out())
    assert np.array_equal(done[flags].to_numpy() == 1, table.isna().to_numpy())
    assert isinstance(imputer.model_, CopulaPPCA) and imputer.n_iter_ > 0
    pd.testing.assert_frame_equal(done[WORDS], imputer.model_.impute(table))
    tables = imputer.sample_imputations(table, 2, 0, parameters="fixed")
    check_completed(table, tables[1])
    X = pl.DataFrame({"a": ["x", "y", "z", None] * 6, "b": np.arange(24.0) ** 2})
    done = Imputer(1, model="copula", add_indicator=True).fit_transform(X)
    assert done.columns == ["a", "b", "missingindicator_a"] and done["a"].null_count() == 0


def test_imputer_of_arrays_and_kinds():
    X = numbers(60)
    imputer = Imputer(1, model="copula", column_kinds={0: "continuous"}).fit(X)
    assert imputer.transform(X).shape == X.shape
    assert imputer.sample_imputations(X, 3, 0).shape == (3, *X.shape)
    assert not hasattr(Imputer(1, model="copula"), "n_iter_")


@pytest.mark.parametrize(
    "given",
    [
        {"method": "matching"},
        {"bounds": (0, None)},
        {"rounding": "auto"},
        {"standardize": True},
        {"n_init": 3},
        {"device": "cpu"},
    ],
)
def test_imputer_refuses_what_does_not_apply(given, table):
    [name] = given
    with pytest.raises(ValueError, match=f"{name} must be .* with model='copula', which"):
        Imputer(1, model="copula", **given).fit(table)
    with pytest.raises(ValueError, match="column_kinds must be None, except with model='copula'"):
        Imputer(1, model="ppca", column_kinds={}).fit(numbers(60))


# --- Recovery, coverage, calibration -------------------------------------------------------------


@pytest.mark.slow
def test_intervals_cover_and_probabilities_are_calibrated():
    X = simulated(20_000, seed=2)
    gaps, hidden = with_gaps(X, 0.3)
    model = CopulaPPCA(2).fit(gaps)
    _, low, high = model.impute(gaps, return_interval=True)
    gone = hidden[:, 0]
    inside = (low["price"] <= X["price"]) & (X["price"] <= high["price"])
    assert inside[gone].mean() == pytest.approx(0.9, abs=0.02)
    for name in ("colour", "grade", "smoker"):
        gone = hidden[:, WORDS.index(name)]
        p = model.predict_proba(gaps, name)[gone]
        true = X[name][gone].to_numpy()[:, None] == np.array(model.levels_[name], dtype=object)
        for edge in (0.0, 0.25, 0.5, 0.75):
            some = (p >= edge) & (p < edge + 0.25)
            if some.sum() > 1000:
                assert true[some].mean() == pytest.approx(p[some].mean(), abs=0.03)


@pytest.mark.slow
def test_pooled_intervals_cover():
    inside = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        t = rng.normal(size=(60, 1))
        X = t + 0.6 * rng.normal(size=(60, 4))
        X[rng.random(60) < 0.5, 0] = np.nan
        tables = (
            CopulaPPCA(1, column_kinds=["continuous"] * 4).fit(X).sample_imputations(X, 10, seed)
        )
        means = np.array([one[:, 0].mean() for one in tables])
        found = dualpca.pool(means, [one[:, 0].var(ddof=1) / 60 for one in tables], dof=59)
        low, high = found.interval(0.95)
        inside.append(low <= 0 <= high)
    assert np.mean(inside) >= 0.9


def test_a_fit_to_fewer_rows_than_columns_converges():
    X = np.random.RandomState(42).rand(15, 30).repeat(2, axis=0)  # ties in every column
    assert CopulaPPCA(n_components=1, random_state=0).fit(X).n_iter_ < 20


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("of_fit", ["bounds", "numbers"])
def test_bounds_may_be_in_the_fit_only_or_in_new_rows_only(library, of_fit):
    frames = pytest.importorskip(library)
    rng = np.random.default_rng(0)
    a = rng.normal(size=60)
    c = np.round(a + 0.3 * rng.normal(size=60), 2)
    words = ["<-1" if value < -1 else f"{value}" for value in c]
    numbers, bounds = c.tolist(), words
    fitted, new = (bounds, [0.3, 1.4, None]) if of_fit == "bounds" else (numbers, ["<0", "1", None])
    model = CopulaPPCA(1).fit(frames.DataFrame({"a": a, "c": fitted}))
    rows = frames.DataFrame({"a": [0.5, 1.0, 0.8], "c": new})
    for filled in (model.impute(rows), model.sample_imputations(rows, 1, parameters="fixed")[0]):
        got = list(filled["c"])
        assert got[:2] == new[:2] and type(got[2]) is type(new[0])
        assert of_fit == "numbers" or filled["c"].dtype == rows["c"].dtype
