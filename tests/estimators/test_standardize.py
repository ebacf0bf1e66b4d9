"""`standardize=True`: the model of (X − mean)/scale, answers in the units of X.

The oracle is always the same estimator fitted to rows that were standardised by hand.
"""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import dualpca
from dualpca.errors import CheckpointError, ScaleWarning, StreamWarning

UNITS = np.array([1.0, 10.0, 1e3, 0.01, 1.0, 3e-5])
ORIGIN = np.array([0.0, 5.0, 1e4, 3.0, -1.0, 2e-4])


def rows(n=120, missing=0.0, seed=0):
    """Return rows of two latents in very unequal units, with some of them missing."""
    rng = np.random.default_rng(seed)
    W = np.array([[1.0, 0.9, 0.8, 0.1, 0.2, 0.3], [0.1, -0.2, 0.3, 0.9, 1.1, 0.8]])
    X = rng.normal(size=(n, 2)) * [1.3, 0.9] @ W + 0.6 * rng.normal(size=(n, 6))
    X = ORIGIN + UNITS * X
    X[rng.random(X.shape) < missing] = np.nan
    return X


def by_hand(X, weights=None):
    """Return mean and scale over observed entries."""
    w = np.ones(len(X)) if weights is None else weights
    seen = ~np.isnan(X) * w[:, None]
    mean = np.nansum(X * seen, axis=0) / seen.sum(axis=0)
    return mean, np.sqrt(np.nansum((X - mean) ** 2 * seen, axis=0) / seen.sum(axis=0))


LINEAR = [
    dualpca.PPCA(2),
    dualpca.PPCA(2, method="em", tol=1e-10),
    dualpca.BayesianPCA(3),
    dualpca.FactorAnalysis(2, tol=1e-6),
]
close = np.testing.assert_allclose


def named(estimators):
    """Show estimators by their class."""
    return [pytest.param(one, id=f"{type(one).__name__}{i}") for i, one in enumerate(estimators)]


def pair(estimator, X, **options):
    """Return the standardised model, the one of rows standardised by hand, and their units."""
    mean, scale = by_hand(X, options.get("sample_weight"))
    model = clone(estimator).set_params(standardize=True).fit(X, **options)
    return model, clone(estimator).fit((X - mean) / scale, **options), mean, scale


@pytest.mark.parametrize("missing", [0.0, 0.15])
@pytest.mark.parametrize("estimator", named(LINEAR))
def test_every_answer_is_that_of_rows_standardised_by_hand(estimator, missing):
    X = rows(missing=missing)
    model, oracle, mean, scale = pair(estimator, X)
    Z = (X - mean) / scale
    full = mean + scale * np.nan_to_num(Z)
    close(model.scale_, scale)
    close(model.mean_, mean + scale * oracle.mean_)
    close(model.components_, oracle.components_, atol=1e-10)
    close(model.noise_variance_, oracle.noise_variance_)
    close(model.transform(X), oracle.transform(Z), atol=1e-8)
    close(model.hotelling_t2(X), oracle.hotelling_t2(Z), rtol=1e-6)
    close(model.spe(X), oracle.spe(Z), rtol=1e-6, atol=1e-10)
    close(model.contributions(X), oracle.contributions(Z), rtol=1e-5, atol=1e-9)
    assert np.array_equal(model.outliers(X).flagged, oracle.outliers(Z).flagged)
    assert model.spe_limit() == pytest.approx(oracle.spe_limit())
    close(
        (model.inverse_transform(oracle.transform(Z)) - mean) / scale,
        oracle.inverse_transform(oracle.transform(Z)),
        atol=1e-8,
    )
    close((model.reconstruct(X) - mean) / scale, oracle.reconstruct(Z), atol=1e-8)
    shift = (~np.isnan(X)) @ np.log(scale)
    close(model.score_samples(X), oracle.score_samples(Z) - shift, rtol=1e-8, atol=1e-8)
    assert model.loglikelihood_ == pytest.approx(oracle.loglikelihood_ - shift.sum(), rel=1e-8)
    assert len(model.loglikelihoods_) == len(oracle.loglikelihoods_)
    close(model.loadings_, scale[:, None] * np.asarray(oracle.loadings_), rtol=1e-6)
    C = scale[:, None] * oracle.get_covariance() * scale
    close(model.get_covariance() / C, np.ones_like(C), rtol=1e-6)
    close(
        model.get_precision() * np.outer(scale, scale), oracle.get_precision(), rtol=1e-6, atol=1e-8
    )
    close(
        (model.sample(5, random_state=0) - mean) / scale,
        oracle.sample(5, random_state=0),
        atol=1e-8,
    )
    filled, std = model.impute(X, return_std=True)
    theirs, their_std = oracle.impute(Z, return_std=True)
    assert np.array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])
    close((filled - mean) / scale, theirs, atol=1e-8)
    close(std / scale, their_std, rtol=1e-6, atol=1e-10)
    gone = full.copy()
    gone[:, [2, 3]] = np.nan
    m, V = model.conditional(gone, features=[3, 0, 2])
    m0, V0 = oracle.conditional((gone - mean) / scale, features=[3, 0, 2])
    k = [3, 0, 2]
    close((m - mean[k]) / scale[k], m0, atol=1e-8)
    close(V / np.outer(scale[k], scale[k]), V0, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("estimator", named(LINEAR[:1] + LINEAR[2:]))
def test_draws_keep_what_was_observed_and_are_those_of_standardised_rows(estimator):
    X = rows(missing=0.2)
    model, oracle, mean, scale = pair(estimator, X)
    draws = model.sample_imputations(X, 3, random_state=1)
    theirs = oracle.sample_imputations((X - mean) / scale, 3, random_state=1)
    close((draws - mean) / scale, theirs, atol=1e-7)
    seen = ~np.isnan(X)
    assert all(np.array_equal(one[seen], X[seen]) for one in draws)


def test_reconstruction_and_prediction_carry_their_spread():
    X = rows()
    model, oracle, mean, scale = pair(dualpca.PPCA(2), X)
    Z = (X - mean) / scale
    close(model.reconstruct(X, return_std=True)[1] / scale, oracle.reconstruct(Z, True)[1])
    found, C = model.posterior_predictive(X)
    theirs, C0 = oracle.posterior_predictive(Z)
    close((found - mean) / scale, theirs, atol=1e-9)
    close(C / np.outer(scale, scale), C0, rtol=1e-8)
    model, oracle, mean, scale = pair(dualpca.BayesianPCA(3), X)
    close(model.loadings_std_, scale[:, None] * oracle.loadings_std_)
    draws = model.sample_loadings(4, random_state=0)
    close(draws / scale[:, None], oracle.sample_loadings(4, random_state=0), rtol=1e-8)
    assert model.bound_ == pytest.approx(oracle.bound_ - len(X) * np.log(scale).sum())
    assert len(model.bounds_) == len(oracle.bounds_)


@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("estimator", named([*LINEAR[:1], *LINEAR[2:]]))
def test_weights_count_in_the_units_too(estimator, missing):
    X, w = rows(n=80, missing=missing), np.random.default_rng(3).integers(0, 4, 80).astype(float)
    model, oracle, mean, scale = pair(estimator, X, sample_weight=w)
    close(model.scale_, scale)
    close(model.mean_, mean + scale * oracle.mean_)
    repeated = clone(estimator).set_params(standardize=True).fit(np.repeat(X, w.astype(int), 0))
    close(repeated.scale_, scale)
    close(repeated.score(X), model.score(X), rtol=1e-5)


ALL = [*LINEAR, dualpca.PCA(2), dualpca.Imputer(2)]


@pytest.mark.parametrize("estimator", named(ALL))
def test_other_units_change_nothing_but_units(estimator):
    missing = 0.0 if isinstance(estimator, dualpca.PCA) else 0.1
    X, rng = rows(missing=missing), np.random.default_rng(4)
    units, origin = 10.0 ** rng.integers(-4, 5, 6), rng.normal(size=6)
    other = origin + units * X
    one, two = (clone(estimator).set_params(standardize=True).fit(A) for A in (X, other))
    if isinstance(estimator, dualpca.Imputer):
        close((two.transform(other) - origin) / units, one.transform(X), rtol=1e-6)
        return
    close(two.mean_, origin + units * one.mean_, rtol=1e-8)
    close(two.transform(other), one.transform(X), atol=1e-6)


@pytest.mark.parametrize("estimator", named(ALL))
def test_without_it_there_is_no_scale(estimator):
    X = rows() / UNITS
    assert clone(estimator).fit(X).scale_ is None
    assert (
        clone(estimator)
        .set_params(standardize=True)
        .fit(X)
        .set_params(standardize=False)
        .fit(X)
        .scale_
        is None
    )


@pytest.mark.parametrize("estimator", named([*LINEAR[:1], *LINEAR[2:], dualpca.Imputer(2)]))
def test_a_constant_column_has_scale_1(estimator):
    X = np.column_stack([rows(missing=0.1), np.full(120, 0.1)])
    estimator = dualpca.Imputer(2) if isinstance(estimator, dualpca.Imputer) else estimator
    if isinstance(estimator, dualpca.FactorAnalysis):
        estimator = dualpca.PPCA(1)  # the noise of a constant column vanishes
    model = clone(estimator).set_params(standardize=True).fit(X)
    assert model.scale_[-1] == 1.0
    X[3, -1] = np.nan
    filled = model.transform(X) if isinstance(model, dualpca.Imputer) else model.impute(X)
    assert filled[3, -1] == pytest.approx(0.1, abs=1e-9)


def test_rounding_is_no_variation():
    X = np.column_stack(
        [rows(), 0.1 + 1e-17 * (np.arange(120) % 3), 1e6 + 2e-10 * (np.arange(120) % 2)]
    )
    assert np.array_equal(dualpca.PPCA(2, standardize=True).fit(X).scale_[-2:], [1.0, 1.0])


@pytest.mark.parametrize("estimator", named([*LINEAR[:1], *LINEAR[2:], dualpca.Imputer(2)]))
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_keep_their_names(estimator, library):
    frames = pytest.importorskip(library)
    X, names = rows(missing=0.1), list("abcdef")
    frame = frames.DataFrame(X, **{"columns" if library == "pandas" else "schema": names})
    if library == "polars":
        frame = frame.fill_nan(None)
    model = clone(estimator).set_params(standardize=True).fit(frame)
    assert list(model.feature_names_in_) == names
    plain = clone(estimator).set_params(standardize=True).fit(X)
    if isinstance(model, dualpca.Imputer):
        close(np.asarray(model.transform(frame)), plain.transform(X))
        assert list(model.model_.impute(frame).columns) == names
        return
    found = model.impute(frame)
    assert list(found.columns) == names
    close(np.asarray(found), plain.impute(X))


@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["batches", "dask"])
@pytest.mark.parametrize("estimator", named([*LINEAR[:1], *LINEAR[2:], dualpca.Imputer(2)]))
def test_chunked_tables_are_the_same_table(estimator, kind, missing):
    X = rows(n=90, missing=missing)
    if kind == "batches":
        table = dualpca.Batches([X[:40], X[40:50], X[50:]])
    else:
        table = pytest.importorskip("dask.array").from_array(X, chunks=(40, 3))
    weigh = {} if isinstance(estimator, dualpca.Imputer) else {"sample_weight": np.arange(90.0)}
    model, whole = (
        clone(estimator).set_params(standardize=True).fit(A, **weigh) for A in (table, X)
    )
    close(model.scale_, whole.scale_)
    method = "transform" if isinstance(estimator, dualpca.Imputer) else "impute"
    found = getattr(model, method)(table)
    found = np.concatenate(list(found)) if kind == "batches" else found.compute()
    close(found, getattr(whole, method)(X), rtol=1e-4)
    seen = ~np.isnan(X)
    assert np.array_equal(found[seen], X[seen])


def test_a_table_that_can_be_read_once_is_refused():
    X = rows()
    with pytest.raises(ValueError, match="readable more than once"):
        dualpca.PPCA(2, standardize=True).fit(dualpca.Batches(iter([X])))


@pytest.mark.parametrize("estimator", named([*LINEAR[:1], *LINEAR[2:], dualpca.Imputer(2)]))
def test_float32_stays_float32(estimator):
    X = rows(missing=0.1)
    double = clone(estimator).set_params(standardize=True).fit(X)
    model = clone(double).fit(X.astype(np.float32))
    assert model.scale_.dtype == np.float32
    close(model.scale_, double.scale_, rtol=1e-3)
    if isinstance(model, dualpca.Imputer):
        assert model.transform(X.astype(np.float32)).dtype == np.float32
        return
    assert model.mean_.dtype == model.loadings_.dtype == np.float32
    found = model.impute(X.astype(np.float32))
    assert found.dtype == np.float32
    close(
        (found - double.mean_) / double.scale_,
        (double.impute(X) - double.mean_) / double.scale_,
        atol=0.05,
    )


@pytest.mark.parametrize("estimator", named([*LINEAR[:1], *LINEAR[2:], dualpca.Imputer(2)]))
def test_torch_tensors_stay_tensors(estimator):
    torch = pytest.importorskip("torch")
    X = rows(missing=0.1)
    plain = clone(estimator).set_params(standardize=True).fit(X)
    model = clone(plain).fit(torch.asarray(X))
    assert isinstance(model.scale_, torch.Tensor)
    close(np.asarray(model.scale_), plain.scale_)
    method = "transform" if isinstance(estimator, dualpca.Imputer) else "impute"
    found = getattr(model, method)(torch.asarray(X))
    assert isinstance(found, torch.Tensor)
    close(np.asarray(found), getattr(plain, method)(X), rtol=1e-5)
    if method == "impute":
        close(np.asarray(model.score_samples(torch.asarray(X))), plain.score_samples(X), rtol=1e-5)


SAVED = [*ALL]


@pytest.mark.parametrize("estimator", named(SAVED))
def test_files_pickles_and_copies_keep_the_units(estimator, tmp_path):
    X = rows(missing=0.0 if isinstance(estimator, dualpca.PCA) else 0.1)
    model = clone(estimator).set_params(standardize=True).fit(X)
    model.save(tmp_path / "model.dpca")
    for again in (dualpca.load(tmp_path / "model.dpca"), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(again.scale_, model.scale_)
        assert np.array_equal(again.transform(X), model.transform(X))
        if not isinstance(model, dualpca.Imputer):
            assert np.array_equal(again.mean_, model.mean_)
            assert np.array_equal(again.score_samples(X), model.score_samples(X))
    assert not hasattr(clone(model), "scale_")


def test_a_file_without_it_says_nothing_of_units(tmp_path):
    dualpca.PPCA(2).fit(rows() / UNITS).save(tmp_path / "model.dpca")
    assert b'"units"' not in (tmp_path / "model.dpca").read_bytes()


@pytest.mark.parametrize("estimator", named([*LINEAR, dualpca.PCA(2, whiten=True)]))
def test_onnx_standardises_too(estimator):
    runtime = pytest.importorskip("onnxruntime")
    X = rows()
    model = clone(estimator).set_params(standardize=True).fit(X)
    [Y] = runtime.InferenceSession(dualpca.to_onnx(model)).run(None, {"X": X})
    close(Y, model.transform(X), atol=1e-9)


def test_partial_fit_needs_the_units_of_an_earlier_fit():
    X = rows(n=200)
    with pytest.raises(ValueError, match=r"needs the mean and the scale of every column .* fit on"):
        dualpca.PPCA(2, standardize=True).partial_fit(X)
    model = dualpca.PPCA(2, standardize=True).fit(X)
    mean, scale = model._units.mean, model._units.scale
    with pytest.warns(StreamWarning):
        model.partial_fit(X[:100])
    model.partial_fit(X[100:])
    oracle = dualpca.PPCA(2).fit((X - mean) / scale)
    close(model.scale_, scale)
    close(model.mean_, mean + scale * oracle.mean_)
    assert model.score(X) == pytest.approx(oracle.score((X - mean) / scale) - np.log(scale).sum())
    assert model.loglikelihood_ == pytest.approx(200 * model.score(X))
    with pytest.raises(ValueError, match="standardize must be True, as for the chunks before"):
        model.set_params(standardize=False).partial_fit(X)


def test_pca_streams_in_units_of_its_own():
    X = rows()
    model = dualpca.PCA(2, standardize=True).partial_fit(X[:50]).partial_fit(X[50:])
    close(model.scale_, X.std(axis=0))


def test_cross_validation_judges_standardised_rows():
    rng = np.random.default_rng(0)
    W = np.array([[1.0, 1, 1, 1, 1, 1], [1, -1, 1, -1, 1, -1]])
    X = UNITS * (rng.normal(size=(300, 2)) @ W + 0.7 * rng.normal(size=(300, 6)))
    mean, scale = by_hand(X)
    wanted = dualpca.PCA("cv").fit((X - mean) / scale).n_components_
    assert dualpca.PCA("cv").fit(X).n_components_ != wanted
    assert dualpca.PCA("cv", standardize=True).fit(X).n_components_ == wanted
    table = dualpca.Batches([X[:90], X[90:]])
    assert dualpca.PCA("cv", standardize=True).fit(table).n_components_ == wanted
    model = dualpca.PPCA("cv", standardize=True).fit(X)
    assert model.n_components_ == model.selection_.chosen == wanted


def test_the_dual_of_standardised_rows_is_refused():
    with pytest.raises(ValueError, match="standardize must be False for to_dual"):
        dualpca.PPCA(2, standardize=True).fit(rows()).to_dual()


@pytest.mark.parametrize("estimator", named(ALL))
def test_what_is_no_flag_is_refused(estimator):
    with pytest.raises(ValueError, match="standardize must be True or False"):
        clone(estimator).set_params(standardize="yes").fit(rows() / UNITS)


def test_what_was_fitted_cannot_be_set():
    model = dualpca.PPCA(2, standardize=True).fit(rows())
    for name in ("mean_", "scale_"):
        with pytest.raises(AttributeError, match="cannot be set"):
            setattr(model, name, np.zeros(6))


def test_a_fit_that_fails_leaves_the_units_of_the_one_before():
    X = rows()
    model = dualpca.PPCA(2, standardize=True).fit(X)
    before = model.mean_
    with pytest.raises(ValueError):
        model.set_params(n_components=99).fit(10 * X)
    assert np.array_equal(model.mean_, before)


def test_infinity_is_named():
    X = rows()
    X[7, 2] = np.inf
    with pytest.raises(ValueError, match=r"infinity \(inf\), first at row 7, column 2"):
        dualpca.PPCA(2, standardize=True).fit(X)
    model = dualpca.PPCA(2, standardize=True).fit(rows())
    with pytest.raises(ValueError, match=r"infinity \(inf\), first at row 7, column 2"):
        model.impute(X)


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_extreme_units_are_an_error(size):
    with pytest.raises(ValueError, match=r"too large|too little|constant"):
        dualpca.PPCA(2, standardize=True).fit(size * rows())


@pytest.mark.parametrize(
    "estimator",
    named(
        [
            dualpca.PPCA(2),
            dualpca.FactorAnalysis(2),
            dualpca.MixturePPCA(2, 1),
            dualpca.HiddenMarkovPCA(2, 1),
        ]
    ),
)
def test_checkpoints_tell_standardised_tables_apart(estimator, tmp_path):
    X = rows(missing=0.1)
    kept = dualpca.Checkpoint(tmp_path / "state", seconds=0, keep=True)
    model = clone(estimator).set_params(standardize=True, checkpoint=kept).fit(X)
    again = clone(model).fit(X)
    assert again.score(X) == pytest.approx(model.score(X), rel=1e-6)
    with pytest.raises(CheckpointError, match="other data"):
        clone(model).fit(2 * X)


# --- Mixtures and chains -------------------------------------------------------------------------


def clusters(n=150, missing=0.0, seed=5):
    """Return rows of two clusters, one after another in runs, in very unequal units."""
    rng = np.random.default_rng(seed)
    X = (rows(n, seed=seed) - ORIGIN) / UNITS
    X += 4 * (np.arange(n) // 25 % 2)[:, None] * np.array([1.0, -1, 1, 1, -1, 1])
    X = ORIGIN + UNITS * X
    X[rng.random(X.shape) < missing] = np.nan
    return X


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_mixtures_answer_in_the_units_of_the_rows(missing):
    X = clusters(missing=missing)
    model, oracle, mean, scale = pair(dualpca.MixturePPCA(2, 1, tol=1e-9), X)
    Z, shift = (X - mean) / scale, (~np.isnan(X)) @ np.log(scale)
    close(model.scale_, scale)
    close((model.means_ - mean) / scale, oracle.means_, atol=1e-8)
    close(model.noise_variance_, oracle.noise_variance_)
    for k in range(2):
        close(model.components_[k], oracle.components_[k], atol=1e-8)
        close(model.loadings_[k], scale[:, None] * oracle.loadings_[k], rtol=1e-6)
        close(model.posterior(X, k)[0], oracle.posterior(Z, k)[0], atol=1e-7)
    close(model.covariances_ / np.outer(scale, scale), oracle.covariances_, rtol=1e-6, atol=1e-10)
    assert np.array_equal(model.predict(X), oracle.predict(Z))
    close(model.predict_proba(X), oracle.predict_proba(Z), atol=1e-7)
    close(model.transform(X), oracle.transform(Z), atol=1e-7)
    close(model.score_samples(X), oracle.score_samples(Z) - shift, rtol=1e-7)
    assert model.loglikelihood_ == pytest.approx(oracle.loglikelihood_ - shift.sum())
    assert model.loglikelihoods_[-1] == pytest.approx(oracle.loglikelihoods_[-1] - shift.sum())
    assert model.lower_bound_ == pytest.approx(oracle.lower_bound_ - shift.sum() / len(X))
    assert model.bic(X) == pytest.approx(oracle.bic(Z) + 2 * shift.sum())
    close((model.reconstruct(X) - mean) / scale, oracle.reconstruct(Z), atol=1e-7)
    filled, std = model.impute(X, return_std=True)
    theirs, their_std = oracle.impute(Z, return_std=True)
    seen = ~np.isnan(X)
    assert np.array_equal(filled[seen], X[seen])
    close((filled - mean) / scale, theirs, atol=1e-7)
    close(std / scale, their_std, rtol=1e-6, atol=1e-9)
    drawn, labels = model.sample(7, random_state=0)
    close((drawn - mean) / scale, oracle.sample(7, random_state=0)[0], atol=1e-7)
    assert np.array_equal(labels, oracle.sample(7, random_state=0)[1])


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_chains_answer_in_the_units_of_the_rows(missing):
    X, lengths = clusters(missing=missing), [100, 50]
    mean, scale = by_hand(X)
    Z, shift = (X - mean) / scale, (~np.isnan(X)) @ np.log(scale)
    model = dualpca.HiddenMarkovPCA(2, 1, standardize=True).fit(X, lengths=lengths)
    oracle = dualpca.HiddenMarkovPCA(2, 1).fit(Z, lengths=lengths)
    close((model.means_ - mean) / scale, oracle.means_, atol=1e-8)
    close((model.state_means_ - mean) / scale, oracle.state_means_, atol=1e-8)
    close(model.state_variances_ / scale**2, oracle.state_variances_, rtol=1e-6)
    close(model.loadings_[0][0], scale[:, None] * oracle.loadings_[0][0], rtol=1e-6)
    close(model.covariances_ / np.outer(scale, scale), oracle.covariances_, rtol=1e-6, atol=1e-10)
    close(model.noise_variances_, oracle.noise_variances_)
    assert np.array_equal(model.predict(X, lengths), oracle.predict(Z, lengths))
    close(model.predict_proba(X, lengths), oracle.predict_proba(Z, lengths), atol=1e-7)
    close(model.filter(X, lengths), oracle.filter(Z, lengths), atol=1e-7)
    of_sequences = [shift[:100].sum(), shift[100:].sum()]
    close(model.score_sequences(X, lengths), oracle.score_sequences(Z, lengths) - of_sequences)
    assert model.score(X, lengths=lengths) == pytest.approx(
        oracle.score(Z, lengths=lengths) - shift.mean()
    )
    assert model.decode(X, lengths)[0] == pytest.approx(oracle.decode(Z, lengths)[0] - shift.sum())
    assert model.bic(X, lengths) == pytest.approx(oracle.bic(Z, lengths) + 2 * shift.sum())
    assert model.aic(X, lengths) == pytest.approx(oracle.aic(Z, lengths) + 2 * shift.sum())
    assert model.loglikelihood_ == pytest.approx(oracle.loglikelihood_ - shift.sum())
    found, std = model.forecast(X, 3, return_std=True)
    theirs, their_std = oracle.forecast(Z, 3, return_std=True)
    close((found - mean) / scale, theirs, atol=1e-7)
    close(std / scale, their_std, rtol=1e-6)
    close((model.sample(6, 0)[0] - mean) / scale, oracle.sample(6, 0)[0], atol=1e-7)


def test_a_kernel_is_one_of_standardised_rows():
    X = clusters()
    mixture = dualpca.MixturePPCA(2, 1, kernel="rbf", n_directions=5)
    model, oracle, mean, scale = pair(mixture, X)
    Z = (X - mean) / scale
    close(model.means_, oracle.means_, atol=1e-8)
    close(model.score_samples(X), oracle.score_samples(Z), rtol=1e-6)
    assert model.loglikelihood_ == pytest.approx(oracle.loglikelihood_)
    close((model.reconstruct(X) - mean) / scale, oracle.reconstruct(Z), atol=1e-5)
    chain = dualpca.HiddenMarkovPCA(2, 1, kernel="rbf", n_directions=5)
    model, oracle, mean, scale = pair(chain, X)
    close(model.means_, oracle.means_, atol=1e-8)
    close((model.state_means_ - mean) / scale, oracle.state_means_, atol=1e-8)
    assert model.score(X) == pytest.approx(oracle.score(Z))


MIXTURES = [dualpca.MixturePPCA(2, 1), dualpca.HiddenMarkovPCA(2, 1)]


@pytest.mark.parametrize("kind", ["batches", "dask"])
@pytest.mark.parametrize("estimator", named(MIXTURES))
def test_mixtures_of_chunked_tables(estimator, kind):
    X = clusters(missing=0.05)
    if kind == "batches":
        table = dualpca.Batches([X[:50], X[50:]])
    else:
        table = pytest.importorskip("dask.array").from_array(X, chunks=(50, 6))
    model = clone(estimator).set_params(standardize=True).fit(table)
    mean, scale = by_hand(X)
    close(model.scale_, scale)
    centres = (np.asarray(model.means_).reshape(2, 6) - mean) / scale
    assert np.abs(centres).max() < 3
    if isinstance(model, dualpca.MixturePPCA):
        found = model.impute(table)
        found = np.concatenate(list(found)) if kind == "batches" else found.compute()
        close(found, model.impute(X), rtol=1e-10)


@pytest.mark.parametrize("estimator", named(MIXTURES))
def test_mixtures_in_files_pickles_and_other_libraries(estimator, tmp_path):
    torch = pytest.importorskip("torch")
    X = clusters(missing=0.05)
    model = clone(estimator).set_params(standardize=True).fit(X)
    model.save(tmp_path / "model.dpca")
    for again in (dualpca.load(tmp_path / "model.dpca"), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(again.means_, model.means_)
        assert again.score(X) == model.score(X)
    there = clone(model).fit(torch.asarray(X))
    close(np.asarray(there.means_), model.means_, rtol=1e-6)
    assert there.score(torch.asarray(X)) == pytest.approx(model.score(X))
    single = clone(model).fit(X.astype(np.float32))
    assert single.means_.dtype == single.scale_.dtype == np.float32
    close(single.scale_, model.scale_, rtol=1e-3)


@pytest.mark.parametrize("estimator", named(MIXTURES))
def test_mixtures_do_not_depend_on_units(estimator):
    X, units = clusters(), np.array([1e3, 1e-2, 1.0, 7.0, 1e5, 1e-6])
    one, two = (clone(estimator).set_params(standardize=True).fit(A) for A in (X, units * X))
    close(np.asarray(two.means_), units * np.asarray(one.means_), rtol=1e-5)
    assert np.array_equal(one.predict(X), two.predict(units * X))


def test_mixtures_stream_in_the_units_of_an_earlier_fit():
    X = clusters(n=300)
    with pytest.raises(ValueError, match="needs the mean and the scale of every column"):
        dualpca.MixturePPCA(2, 1, standardize=True).partial_fit(X)
    model = dualpca.MixturePPCA(2, 1, standardize=True).fit(X)
    units = model._units
    with pytest.warns(StreamWarning):
        model.partial_fit(X[:200])
    model.partial_fit(X[200:])
    oracle = dualpca.MixturePPCA(2, 1)
    for part in (X[:200], X[200:]):
        oracle.partial_fit((part - units.mean) / units.scale)
    close((model.means_ - units.mean) / units.scale, oracle.means_, atol=1e-8)
    shift = np.log(units.scale).sum()
    assert model.score(X) == pytest.approx(oracle.score(units.inward(X)) - shift)


# --- Two views -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_weights_of_views_are_those_of_standardised_columns(missing, weighted, tmp_path):
    X = rows(n=200, missing=missing)
    A, B = X[:, :4], X[:, 4:]
    w = np.arange(200) % 3 + 0.5 if weighted else None
    model = dualpca.CCA(2, standardize=True).fit(A, B, sample_weight=w)
    (a, s), (b, t) = by_hand(A, w), by_hand(B, w)
    oracle = dualpca.CCA(2).fit((A - a) / s, (B - b) / t, sample_weight=w)
    close(model.x_scale_, s)
    close(model.y_scale_, t)
    close(model.correlations_, oracle.correlations_, rtol=1e-6)
    close(model.x_weights_, oracle.x_weights_, rtol=1e-4, atol=1e-6)
    close(model.y_weights_, oracle.y_weights_, rtol=1e-4, atol=1e-6)
    close(model.x_loadings_, s[:, None] * oracle.x_loadings_, rtol=1e-4, atol=1e-6)
    close(model.x_mean_, a + s * oracle.x_mean_, rtol=1e-5)
    close(model.transform(A), oracle.transform((A - a) / s), atol=1e-4)
    close((model.predict(A) - b) / t, oracle.predict((A - a) / s), atol=1e-4)
    plain = dualpca.CCA(2).fit(A, B, sample_weight=w)
    assert plain.x_scale_ is plain.y_scale_ is None
    close(model.transform(A), plain.transform(A))
    assert model.score(A, B) == pytest.approx(plain.score(A, B))
    model.save(tmp_path / "model.dpca")
    again = dualpca.load(tmp_path / "model.dpca")
    assert np.array_equal(again.x_weights_, model.x_weights_)
    assert np.array_equal(again.y_scale_, model.y_scale_)


def test_views_in_chunks_and_single_precision():
    X = rows(n=200)
    A, B = X[:, :4], X[:, 4:]
    whole = dualpca.CCA(2, standardize=True).fit(A, B)
    parts = [dualpca.Batches([V[:90], V[90:]]) for V in (A, B)]
    close(dualpca.CCA(2, standardize=True).fit(*parts).x_weights_, whole.x_weights_, rtol=1e-6)
    single = dualpca.CCA(2, standardize=True).fit(A.astype(np.float32), B.astype(np.float32))
    assert single.x_scale_.dtype == single.x_weights_.dtype == np.float32


# --- The warning ---------------------------------------------------------------------------------

WARNED = [
    dualpca.PPCA(2),
    dualpca.BayesianPCA(2),
    dualpca.Imputer(2, standardize=False),
    dualpca.MixturePPCA(1, 2, standardize=False),
    dualpca.HiddenMarkovPCA(1, 2, standardize=False),
]


def test_imputer_standardises_columns_of_different_units():
    X = rows(missing=0.1)
    found, asked = dualpca.Imputer(2).fit(X), dualpca.Imputer(2, standardize=True).fit(X)
    close(found.scale_, by_hand(X)[1])
    assert np.array_equal(found.transform(X), asked.transform(X))
    same = [one.model_.impute(X, return_std=True)[1] for one in (found, asked)]
    assert np.array_equal(*same) and found.model_.standardize
    draws = [one.sample_imputations(X, 2, random_state=0) for one in (found, asked)]
    assert np.array_equal(*draws)
    chunked = dualpca.Imputer(2).fit(dualpca.Batches([X[:70], X[70:]]))
    close(chunked.scale_, found.scale_)


def test_imputer_keeps_units_that_columns_share():
    X = rows(missing=0.1) / UNITS
    X[:, 0] *= 4
    kept = [dualpca.Imputer(2, standardize=s).fit(X) for s in ("auto", False)]
    assert kept[0].scale_ is None and np.array_equal(*[one.transform(X) for one in kept])
    events = np.zeros(len(X))  # of which a small variance says that they are rare
    events[::10] = 0.01 * np.arange(len(X) // 10)
    assert dualpca.Imputer(2).fit(np.column_stack([X, events])).scale_ is None


@pytest.mark.parametrize("estimator", named(WARNED))
def test_columns_in_very_unequal_units_are_named(estimator):
    pandas = pytest.importorskip("pandas")
    X = rows()
    with pytest.warns(ScaleWarning, match=r"column 2 is .* column 5: .* standardize=True") as found:
        clone(estimator).fit(X)
    assert len(found) == 1
    frame = pandas.DataFrame(X, columns=["age", "dose", "platelets", "lead", "y", "mercury"])
    with pytest.warns(ScaleWarning, match="column 'platelets' is .* column 'mercury'"):
        clone(estimator).fit(frame)
    with pytest.warns(ScaleWarning, match="column 2 is"):
        clone(estimator).fit(dualpca.Batches([X[:60], X[60:]]))


def test_the_look_at_the_first_batch_takes_nothing_away():
    X = rows()
    with pytest.warns(ScaleWarning):
        model = dualpca.PPCA(2).fit(dualpca.Batches(iter([X[:60], X[60:]])))
    assert model.n_samples_ == 120
    close(model.mean_, X.mean(axis=0))


@pytest.mark.parametrize(
    "estimator",
    named(
        [
            dualpca.PCA(2),
            dualpca.FactorAnalysis(2),
            *(clone(one).set_params(standardize=True) for one in WARNED),
        ]
    ),
)
def test_no_warning_where_units_do_not_matter_or_silence_is_the_contract(estimator):
    clone(estimator).fit(rows())


def test_kernels_are_not_warned_of():
    dualpca.MixturePPCA(1, 1, kernel="linear", n_directions=3).fit(rows())


def test_variances_within_1e4_and_constant_columns_are_no_reason_to_warn():
    X = np.random.default_rng(0).normal(size=(500, 3)) * [1.0, 80.0, 0.0] + [0, 0, 5]
    dualpca.PPCA(1).fit(X)
    with pytest.warns(ScaleWarning):
        dualpca.PPCA(1).fit(X * [1.0, 2.0, 1.0])


def test_a_pixel_that_is_dark_in_all_images_but_one_is_no_reason_to_warn():
    X = np.random.default_rng(0).normal(size=(6000, 3))
    X[:, 2] = 0
    X[1001, 2] = 0.1
    dualpca.PPCA(1).fit(X)


def test_the_variance_of_a_few_values_is_no_reason_to_warn():
    X = np.random.default_rng(0).normal(size=(3, 200))
    dualpca.PPCA(1).fit(X)
    X = np.random.default_rng(0).normal(size=(40, 3))
    X[:37, 2], X[37:, 2] = np.nan, [1.0, 1.0, 1.001]
    dualpca.PPCA(1, noise_variance=0.5).fit(X)
