"""`Imputer` beyond expectations: draws, bounds, whole numbers, values of similar rows, frames."""

import numpy as np
import pytest

import dualpca
from dualpca import PPCA, BayesianPCA, FactorAnalysis, Imputer
from dualpca.gaussian import Factors, predicted
from tests.estimators.imputer_cases import table

pytestmark = pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")


MODELS = [PPCA(2), FactorAnalysis(2), BayesianPCA(3), BayesianPCA(3, method="variational")]


# --- draws with parameters of their own ----------------------------------------------------------


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{type(m).__name__}-{m.get_params()}"[:30])
def test_draws_vary_with_the_parameters(model):
    X = table(30, 4, missing=0.3)
    hole, model = np.isnan(X), model.fit(X)
    own = model.sample_imputations(X, 40, random_state=0)
    fixed = model.sample_imputations(X, 40, random_state=0, parameters="fixed")
    assert own.shape == fixed.shape == (40, 30, 4)
    assert np.array_equal(own[:, ~hole], np.broadcast_to(X[~hole], (40, (~hole).sum())))
    means = [np.mean(np.where(hole, t, 0).sum(axis=1) / hole.sum(), axis=1) for t in (own, fixed)]
    assert means[0].var() > 1.2 * means[1].var()
    assert np.array_equal(own, model.sample_imputations(X, 40, random_state=0))


def test_weights_are_drawn_as_rows_are():
    X, w = table(40, 4), np.repeat([0.0, 2.0], 20)
    model = PPCA(1).fit(X, sample_weight=w)
    tables = model.sample_imputations(X, 30, random_state=0, sample_weight=w)
    changed = X.copy()
    changed[:20][~np.isnan(X[:20])] += 100.0
    others = model.sample_imputations(changed, 30, random_state=0, sample_weight=w)
    np.testing.assert_allclose(tables[:, 20:], others[:, 20:], rtol=1e-8)


def test_too_few_rows_are_refused_with_advice():
    X = table()
    model = PPCA(2).fit(X)
    with pytest.raises(ValueError, match=r"at least 20 rows .* got 12.*parameters='fixed'"):
        model.sample_imputations(X[:12], 2)
    with pytest.raises(ValueError, match="at least 20 rows"):
        model.impute(X[:12], True, parameters="bootstrap")
    assert model.sample_imputations(X[:12], 2, parameters="fixed").shape == (2, 12, 5)
    with pytest.raises(ValueError, match="parameters must be one of"):
        model.sample_imputations(X, 2, parameters="posterior")


def test_a_column_without_values_is_named():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(table(), columns=list("abcde"))
    model = PPCA(2).fit(frame)
    with pytest.raises(dualpca.errors.EmptyColumnError, match="c"):
        model.sample_imputations(frame.assign(c=np.nan), 2)


def test_complete_rows_have_one_imputation():
    X = table(missing=0.0)
    assert np.array_equal(PPCA(2).fit(X).sample_imputations(X, 2), np.stack([X, X]))


def test_every_library_draws_the_same(backend):
    X = table()
    wanted = PPCA(2).fit(X).sample_imputations(X, 3, random_state=4)
    rows = backend.asarray(X)
    got = PPCA(2).fit(rows).sample_imputations(rows, 3, random_state=4)
    assert backend.owns(got)
    np.testing.assert_allclose(backend.numpy(got), wanted, atol=1e-4)


# --- standard deviations -------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{type(m).__name__}-{m.get_params()}"[:30])
def test_deviations_count_the_parameters_as_estimated(model):
    X = table(40, 6, missing=0.3)
    hole, model = np.isnan(X), model.fit(X)
    filled, std = model.impute(X, return_std=True)
    same, fixed = model.impute(X, return_std=True, parameters="fixed")
    assert np.array_equal(filled, same)
    assert np.all(std[~hole] == 0)
    assert np.all(std[hole] > fixed[hole])
    assert np.array_equal(std, model.impute(X, return_std=True, parameters="bootstrap")[1])


def test_deviations_of_many_rows_are_at_fixed_parameters_and_of_other_rows_of_the_first_order():
    X = table(2000, 3, 1)
    model = PPCA(1).fit(X)
    for rows in (X, X[:50]):
        auto, fixed = (model.impute(rows, True, parameters=p)[1] for p in ("auto", "fixed"))
        assert np.array_equal(auto, fixed)
    model = PPCA(1).fit(X[:40])
    for rows in (X[40:60], X[40:100]):  # fewer rows than were fitted, and more
        auto, said = (model.impute(rows, True, parameters=p)[1] for p in ("auto", "estimated"))
        assert np.array_equal(auto, said)


# --- leave-one-out expectations ------------------------------------------------------------------


def test_predictions_leave_the_entry_out():
    X, rng = table(12, 4, missing=0.25), np.random.default_rng(1)
    factors = Factors(rng.normal(size=(4, 2)), rng.normal(size=4), rng.uniform(0.2, 1, 4))
    found = predicted(factors, X)
    C = factors.W @ factors.W.T + np.diag(factors.psi)
    for i, j in np.ndindex(*X.shape):
        o = [k for k in range(4) if k != j and not np.isnan(X[i, k])]
        wanted = factors.mu[j]
        if o:
            wanted += C[j, o] @ np.linalg.solve(C[np.ix_(o, o)], X[i, o] - factors.mu[o])
        np.testing.assert_allclose(found[i, j], wanted, rtol=1e-9, atol=1e-9)


# --- matching, bounds, whole numbers -------------------------------------------------------------


def test_matching_fills_values_that_were_observed():
    X = table(80, 4)
    imputer = Imputer(2, method="matching", random_state=3).fit(X)
    filled, hole = imputer.transform(X), np.isnan(X)
    for j in range(4):
        assert set(filled[hole[:, j], j]) <= set(X[~hole[:, j], j])
    assert np.array_equal(filled[~hole], X[~hole])
    assert np.array_equal(filled, imputer.transform(X))
    expected = Imputer(2).fit_transform(X)
    assert np.corrcoef(filled[hole], expected[hole])[0, 1] > 0.8
    tables = imputer.sample_imputations(X, 4, random_state=0)
    assert set(tables[:, hole[:, 0], 0].ravel()) <= set(X[~hole[:, 0], 0])
    assert not np.array_equal(tables[0], tables[1])
    fixed = imputer.sample_imputations(X, 2, random_state=0, parameters="fixed")
    assert fixed.shape == (2, 80, 4) and np.all(np.isfinite(fixed))


def test_bounds_hold_for_what_is_filled_in_only():
    X = table(80, 3, missing=0.3)
    hole = np.isnan(X)
    imputer = Imputer(1, bounds=[(0, 1), None, (None, 0.5)]).fit(X)
    for filled in (imputer.transform(X), *imputer.sample_imputations(X, 3, random_state=0)):
        assert np.array_equal(filled[~hole], X[~hole])
        assert filled[hole[:, 0], 0].min() == 0 and filled[hole[:, 0], 0].max() <= 1
        assert filled[hole[:, 2], 2].max() <= 0.5
    free = Imputer(1).fit_transform(X)
    assert np.array_equal(imputer.transform(X)[:, 1], free[:, 1])
    assert X[~hole[:, 0], 0].min() < 0


def test_whole_columns_are_filled_with_whole_numbers():
    X = 3 * table(80, 4, shift=2.0)
    X[:, 1] = np.round(X[:, 1])
    hole = np.isnan(X)
    imputer = Imputer(2, rounding="auto", bounds=(0.5, None)).fit(X)
    for filled in (imputer.transform(X), *imputer.sample_imputations(X, 2, random_state=1)):
        own = filled[hole[:, 1], 1]
        assert np.array_equal(own, np.round(own)) and own.min() >= 1
        assert not np.array_equal(filled[hole[:, 0], 0], np.round(filled[hole[:, 0], 0]))
    plain = Imputer(2).fit_transform(X)[hole[:, 1], 1]
    assert not np.array_equal(plain, np.round(plain))


@pytest.mark.parametrize("name", ["method", "rounding"])
def test_unknown_ways_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be one of"):
        Imputer(1, **{name: "mode"}).fit(table())


def test_chunked_tables_are_filled_by_expectations():
    X = table(60, 3)
    with pytest.raises(ValueError, match="'expectation' for a chunked table"):
        Imputer(1, method="matching").fit(dualpca.Batches([X[:30], X[30:]]))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_names_and_frames_survive(library):
    frames = pytest.importorskip(library, reason=f"{library} is not installed")
    X = 3 * table(60, 3, shift=1.0)
    X[:, 2] = np.round(X[:, 2])
    if library == "pandas":
        frame = frames.DataFrame(X, columns=list("abc"), index=range(100, 160))
    else:
        frame = frames.DataFrame(X, schema=list("abc"), orient="row").fill_nan(None)
    options = {"bounds": {"a": (0, None)}, "rounding": "auto", "method": "matching"}
    imputer = Imputer(1, **options).fit(frame)
    got = [imputer.transform(frame), *imputer.sample_imputations(frame, 2, random_state=0)]
    for one in got:
        assert type(one) is type(frame) and list(one.columns) == list("abc")
        assert library == "polars" or one.index.equals(frame.index)
        assert np.all(np.isfinite(one.to_numpy()))
    bare = Imputer(1, **options | {"bounds": {0: (0, None)}}).fit(X)
    np.testing.assert_allclose(got[0].to_numpy(), bare.transform(X))


DRAWING = [
    name for name in dualpca.__all__ if hasattr(getattr(dualpca, name), "sample_imputations")
]


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("name", DRAWING)
def test_draws_of_a_frame_are_frames(name, library):
    frames = pytest.importorskip(library)
    X = table(60, 3)
    columns = [f"c{j}" for j in range(X.shape[1])]
    made = {"index": [f"row {i}" for i in range(len(X))]} if library == "pandas" else {}
    frame = frames.DataFrame({k: X[:, j] for j, k in enumerate(columns)}, **made)
    given = {"n_components": 1} if name == "CopulaPPCA" else {}
    model = getattr(dualpca, name)(**given).fit(frame)
    tables = model.sample_imputations(frame, 2, random_state=0, parameters="fixed")
    assert [type(one) for one in tables] == [frames.DataFrame] * 2
    fresh = getattr(dualpca, name)(**given).fit(X)
    plain = np.asarray(fresh.sample_imputations(X, 2, random_state=0, parameters="fixed"))
    for one, expected in zip(tables, plain, strict=True):
        assert list(one.columns) == columns
        np.testing.assert_allclose(np.asarray(one, dtype=float), expected)
        assert library == "polars" or list(one.index) == list(frame.index)


def test_a_saved_imputer_fills_alike(tmp_path):
    X = np.round(4 * table(60, 3))
    imputer = Imputer(1, method="matching", bounds=(0, None), rounding="auto").fit(X)
    imputer.save(tmp_path / "imputer.dpca")
    again = dualpca.load(tmp_path / "imputer.dpca")
    assert np.array_equal(imputer.transform(X), again.transform(X))
    draws = [one.sample_imputations(X, 2, random_state=0) for one in (imputer, again)]
    assert np.array_equal(*draws)


def test_other_libraries_are_filled_too(backend):
    X = table(60, 3)
    options = {"method": "matching", "bounds": (-1, 1), "rounding": "auto"}
    got = Imputer(1, **options).fit(backend.asarray(X)).transform(backend.asarray(X))
    assert backend.owns(got)
    np.testing.assert_allclose(backend.numpy(got), Imputer(1, **options).fit_transform(X))


# --- which model ---------------------------------------------------------------------------------


def skewed(n=60):
    X = table(n, 5, missing=0.15)
    X[:, 3:] = np.exp(2 * X[:, 3:])
    return X


def model_of(X, **given):
    return type(Imputer(1, **given).fit(X).model_).__name__


def test_skewed_numbers_are_filled_by_the_copula_and_others_by_ppca():
    assert model_of(skewed()) == "CopulaPPCA"
    assert model_of(table()) == "PPCA"
    assert model_of(skewed(), model="ppca") == "PPCA"
    X, imputer = skewed(), Imputer(1)
    filled, hole = imputer.fit_transform(X), np.isnan(X)
    assert np.array_equal(filled[~hole], X[~hole]) and np.isfinite(filled).all()
    assert filled[hole[:, 3], 3].min() > 0
    assert imputer.fit(table()).scale_ is None and type(imputer.model_) is PPCA  # and back
    single = Imputer(1).fit_transform(X.astype(np.float32))
    assert single.dtype == np.float32


@pytest.mark.filterwarnings("ignore::dualpca.errors.ScaleWarning")
@pytest.mark.parametrize(
    "given",
    [
        {"method": "matching"},
        {"bounds": (0, None)},
        {"bounds": np.array([(0, 9e9)] * 5)},
        {"rounding": "auto"},
        {"standardize": True},
        {"standardize": False},
        {"n_init": 2},
        {"device": "cpu"},
    ],
)
def test_wishes_that_only_ppca_fulfils_choose_it(given):
    assert model_of(skewed(), **given) == "PPCA"


def test_rules_and_rows_elsewhere_choose_ppca():
    X = skewed()
    assert type(Imputer("cv-rows").fit(X).model_) is PPCA
    assert model_of(dualpca.Batches([X[:30], X[30:]])) == "PPCA"
    wide = np.hstack([skewed() for _ in range(60)])
    assert model_of(wide) == "PPCA"


def test_frames_with_other_columns_are_filled_as_they_came():
    frames = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = frames.DataFrame(table(60, 3), columns=list("abc"))
    frame["d"] = np.where(frame["a"].fillna(0) > 0, "high", "low")
    frame.loc[3, "d"] = None
    imputer = Imputer(1).fit(frame)
    filled = imputer.transform(frame)
    assert type(imputer.model_).__name__ == "CopulaPPCA"
    assert filled.notna().all(axis=None) and filled.loc[3, "d"] in ("high", "low")
    kinds = {"a": "continuous"}
    assert model_of(frame[list("abc")], column_kinds=kinds) == "CopulaPPCA"


def test_a_saved_choice_stays(tmp_path):
    X = skewed()
    imputer = Imputer(1).fit(X)
    imputer.save(tmp_path / "imputer.dpca")
    again = dualpca.load(tmp_path / "imputer.dpca")
    assert again.model == "auto" and type(again.model_).__name__ == "CopulaPPCA"
    assert np.array_equal(imputer.transform(X), again.transform(X))


def sums(n=120, missing=0.1):
    """Return a frame with a sum of two skewed columns, and one with gaps."""
    frames = pytest.importorskip("pandas", reason="pandas is not installed")
    rng = np.random.default_rng(7)
    a, b = rng.exponential(size=(2, n))
    full = frames.DataFrame({"a": a, "b": b, "sum": a + b})
    full["size"] = np.array(["S", "M", "L"])[np.digitize(a - b, [-0.5, 0.5])]
    return full, full.mask(rng.random(full.shape) < missing)


@pytest.fixture(scope="module")
def blended():
    full, gaps = sums()
    return Imputer().fit(gaps), full, gaps


def test_columns_that_follow_from_others_are_filled_better_than_by_the_copula(blended):
    imputer, full, gaps = blended
    alone = Imputer(model="copula").fit(gaps)
    assert imputer.model_._model.blend is not None and alone.model_._model.blend is None
    hole = gaps["sum"].isna().to_numpy()
    errors = [
        np.abs(one.transform(gaps)["sum"] - full["sum"])[hole].mean() for one in (imputer, alone)
    ]
    assert errors[0] < 0.6 * errors[1]


def test_all_that_an_imputer_says_is_of_one_law(blended):
    """Fills are medians and most probable levels, and draws are around them, in new rows too."""
    imputer, _, gaps = blended
    model, new = imputer.model_, gaps[::-1].head(40)
    filled, low, high = model.impute(new, return_interval=True)
    assert imputer.transform(new).equals(filled)
    hole = new["sum"].isna().to_numpy()
    assert np.all(low["sum"][hole] <= filled["sum"][hole])
    assert np.all(filled["sum"][hole] <= high["sum"][hole])
    draws = imputer.sample_imputations(new, 40, random_state=0, parameters="fixed")
    values = np.array([one["sum"][hole] for one in draws])
    assert (
        np.mean((values >= low["sum"][hole].to_numpy()) & (values <= high["sum"][hole].to_numpy()))
        > 0.8
    )
    words = new["size"].isna().to_numpy()
    best = model.predict_proba(new, "size").argmax(axis=1)
    assert np.array_equal(np.array(model.levels_["size"])[best[words]], filled["size"][words])


def test_draws_by_bootstraps_differ_more_than_those_of_one_model(blended):
    imputer, _, gaps = blended
    hole = gaps["b"].isna().to_numpy()
    spread = [
        np.std(
            [one["b"][hole] for one in imputer.sample_imputations(gaps, 30, 0, parameters=how)],
            axis=0,
        ).mean()
        for how in ("bootstrap", "fixed")
    ]
    assert 0.9 * spread[1] < spread[0] < 2 * spread[1]


def test_a_saved_blend_fills_alike(blended, tmp_path):
    imputer, _, gaps = blended
    imputer.save(tmp_path / "imputer.dpca")
    again = dualpca.load(tmp_path / "imputer.dpca")
    assert imputer.transform(gaps).equals(again.transform(gaps))


def test_columns_that_impute_no_others_are_not_used(blended):
    imputer, _, gaps = blended
    other = gaps.assign(a=np.random.default_rng(0).exponential(size=len(gaps)))
    other["a"] = other["a"].where(gaps["a"].notna())
    one, two = (
        imputer.sample_imputations(X, 2, 0, parameters="fixed", not_predictors=["a"])
        for X in (gaps, other)
    )
    hole = gaps["sum"].isna()
    assert np.array_equal(one[0]["sum"][hole], two[0]["sum"][hole])


def test_skewed_numbers_are_blended_too():
    X = skewed()
    imputer = Imputer().fit(X)
    assert imputer.model_._model.blend is not None
    filled = imputer.transform(X.astype(np.float32))
    assert filled.dtype == np.float32 and np.isfinite(filled).all()
