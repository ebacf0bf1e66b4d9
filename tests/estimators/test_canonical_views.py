"""A model of two views: dense conditional Gaussians are the judges."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dualpca import CCA
from dualpca.data import InMemoryTable
from dualpca.errors import CanonicalWarning, NonFiniteError
from dualpca.models.canonical import CanonicalRequest, fit_canonical
from tests.oracles import canonical as oracle
from tests.oracles.canonical import DX, DY, joint, two_views, with_holes
from tests.test_bad_input import WRONG
from tests.tolerances import assert_close

# --- densities and conditionals --------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("ridge", [0.0, 0.2])
def test_density_is_the_dense_one(share, ridge):
    X, Y = with_holes(*two_views(), share=share, unpaired=2 * share)
    model = CCA(2, regularization=ridge).fit(X, Y)
    mean, C = joint(model)
    if share:
        X[0], Y[0] = np.nan, np.nan  # nothing observed: density 1
    expected = oracle.densities(mean, C, np.hstack([X, Y]))
    np.testing.assert_allclose(model.score_samples(X, Y), expected, rtol=1e-8, atol=1e-8)
    for part, d in ((model.score_samples(X), slice(DX)), (model.score_samples(y=Y), slice(DX, 9))):
        rows = np.hstack([X, Y])[:, d]
        dense = oracle.densities(mean[d], C[d, d], rows)
        np.testing.assert_allclose(part, dense, rtol=1e-8, atol=1e-8)
    assert model.score(X, Y) == pytest.approx(expected.mean(), rel=1e-8)
    w = np.arange(len(X))
    assert model.score(X, Y, sample_weight=w) == pytest.approx(np.average(expected, weights=w))


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_loglikelihood_is_that_of_the_training_rows(share):
    X, Y = with_holes(*two_views(), share=share)
    w = np.random.default_rng(0).uniform(0, 2, len(X))
    for ridge in (0.0, 0.1):
        model = CCA(2, regularization=ridge).fit(X, Y, sample_weight=w)
        total = w @ model.score_samples(X, Y)
        assert model.loglikelihood_ == pytest.approx(total, rel=1e-8)


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("which", ["X", "y", "both"])
def test_posterior_is_the_dense_conditional(share, which):
    X, Y = two_views()
    model = CCA(2).fit(X, Y)
    mean, C = joint(model)
    W = np.vstack([model.x_loadings_, model.y_loadings_])
    X, Y = with_holes(X[:40], Y[:40], share=share, unpaired=share)
    given = {"X": X} if which == "X" else {"y": Y} if which == "y" else {"X": X, "y": Y}
    found, spread = model.posterior(**given)
    hidden = np.full_like(X, np.nan), np.full_like(Y, np.nan)
    Z = np.hstack([given.get("X", hidden[0]), given.get("y", hidden[1])])
    for i, z in enumerate(Z):
        m, S = oracle.conditional(mean, C, W, np.eye(2), z)
        np.testing.assert_allclose(found[i], m, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(spread[i], S, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("forward", [True, False])
def test_prediction_is_the_dense_conditional(share, forward):
    X, Y = two_views()
    model = CCA(2).fit(X, Y)
    mean, C = joint(model)
    X, Y = with_holes(X[:40], Y[:40], share=share)
    target = slice(DX, DX + DY) if forward else slice(DX)
    given = {"X": X} if forward else {"y": Y}
    found, cov = model.predict_view(**given, return_cov=True, parameters="fixed")
    again, std = model.predict_view(**given, return_std=True, parameters="fixed")
    np.testing.assert_array_equal(found, again)
    Z = np.hstack([X, np.nan * Y] if forward else [np.nan * X, Y])
    for i, z in enumerate(Z):
        m, S = oracle.conditional(mean, C, C[:, target], C[target, target], z)
        np.testing.assert_allclose(found[i], m + mean[target], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(cov[i], S, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(std[i], np.sqrt(np.diag(S)), rtol=1e-8, atol=1e-8)


def test_prediction_with_all_components_is_least_squares():
    X, Y = two_views()
    A = np.hstack([X, np.ones((len(X), 1))])
    expected = A @ np.linalg.lstsq(A, Y)[0]
    assert_close(CCA(DY).fit(X, Y).predict(X), expected, "em")


def test_imputation_is_the_dense_conditional():
    X, Y = with_holes(*two_views(n=120), share=0.3, unpaired=0.3)
    X[0], Y[0] = np.nan, np.nan
    model = CCA(2).fit(X, Y)
    mean, C = joint(model)
    Z = np.hstack([X, Y])
    filled_x, filled_y, std_x, std_y = model.impute(X, Y, return_std=True, parameters="fixed")
    filled, std = np.hstack([filled_x, filled_y]), np.hstack([std_x, std_y])
    hole = np.isnan(Z)
    np.testing.assert_array_equal(filled[~hole], Z[~hole])
    np.testing.assert_array_equal(std[~hole], 0)
    for i, z in enumerate(Z):
        m, S = oracle.conditional(mean, C, C, C, z)
        np.testing.assert_allclose(filled[i], np.where(hole[i], m + mean, z), atol=1e-8)
        np.testing.assert_allclose(std[i][hole[i]], np.sqrt(np.diag(S)[hole[i]]), atol=1e-8)
    np.testing.assert_array_equal(np.hstack(model.impute(X, Y)), filled)


def test_expected_variates_of_incomplete_rows_are_dense_conditionals_of_their_view():
    X, Y = two_views()
    model = CCA(2).fit(X, Y)
    mean, C = joint(model)
    holes, _ = with_holes(X[:30], Y[:30])
    u, v = model.transform(holes, Y[:30])
    B = C[:DX, :DX] @ model.x_weights_
    for i, x in enumerate(holes):
        m, _ = oracle.conditional(mean[:DX], C[:DX, :DX], B, np.eye(2), x)
        np.testing.assert_allclose(u[i], m, atol=1e-8)
    np.testing.assert_array_equal(v, model.transform(X[:30], Y[:30])[1])


def test_prediction_intervals_hold_what_they_promise():
    X, Y = two_views(n=12_000, seed=5)
    model = CCA(2).fit(X[:4000], Y[:4000])
    half = norm.ppf(0.95)
    holes, _ = with_holes(X[4000:], Y[4000:])
    for given, truth in (({"X": X[4000:]}, Y), ({"X": holes}, Y), ({"y": Y[4000:]}, X)):
        mean, std = model.predict_view(**given, return_std=True)
        inside = np.abs(truth[4000:] - mean) < half * std
        assert np.all(inside.mean(axis=0) > 0.88)
        assert np.all(inside.mean(axis=0) < 0.92)


def test_samples_have_the_models_moments():
    X, Y = two_views()
    model = CCA(2).fit(X, Y)
    mean, C = joint(model)
    drawn = np.hstack(model.sample(200_000, random_state=0))
    error = np.sqrt(np.outer(np.diag(C), np.diag(C)) + C**2) / np.sqrt(200_000)
    assert np.all(np.abs(np.cov(drawn.T, bias=True) - C) < 5 * error)
    assert np.all(np.abs(drawn.mean(axis=0) - mean) < 5 * np.sqrt(np.diag(C) / 200_000))
    again = model.sample(3, random_state=1), model.sample(3, random_state=1)
    np.testing.assert_array_equal(again[0][1], again[1][1])


# --- the estimator ---------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_every_library_gives_the_same(backend, share):
    X, Y = with_holes(*two_views(n=80), share=share, unpaired=share)
    here = CCA(2).fit(X, Y)
    A, B = backend.asarray(X), backend.asarray(Y)
    there = CCA(2).fit(A, B)
    for name in ("correlations_", "x_weights_", "y_loadings_", "x_noise_covariance_"):
        assert backend.owns(getattr(there, name))
        assert_close(backend.numpy(getattr(there, name)), getattr(here, name), "vector")
    assert_close(backend.numpy(there.score_samples(A, B)), here.score_samples(X, Y), "vector")
    for method in ("transform", "posterior", "impute"):
        mine, theirs = getattr(here, method)(X, Y), getattr(there, method)(A, B)
        for a, b in zip(mine, theirs, strict=True):
            assert_close(backend.numpy(b), a, "vector")
    mean, std = there.predict(A, return_std=True)
    assert_close(backend.numpy(std), here.predict(X, return_std=True)[1], "vector")
    drawn = there.sample(5, random_state=0)
    assert_close(backend.numpy(drawn[0]), here.sample(5, random_state=0)[0], "vector")
    assert backend.owns(mean)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_with_nulls_are_taken_and_given_back(library):
    frames = pytest.importorskip(library)
    X, Y = with_holes(*two_views())
    names = [f"a{j}" for j in range(DX)], [f"b{j}" for j in range(DY)]
    if library == "pandas":
        A, B = (frames.DataFrame(t, columns=c) for t, c in zip((X, Y), names, strict=True))
    else:
        tables = (frames.DataFrame(t, schema=c) for t, c in zip((X, Y), names, strict=True))
        A, B = (t.fill_nan(None) for t in tables)
    model, plain = CCA(2).fit(A, B), CCA(2).fit(X, Y)
    assert_close(model.get_covariance(), plain.get_covariance(), "exact")
    filled_x, filled_y = model.impute(A, B)
    assert list(filled_x.columns) == names[0]
    assert list(filled_y.columns) == names[1]
    assert type(filled_y) is type(B)
    assert_close(filled_y.to_numpy(), plain.impute(X, Y)[1], "exact")
    assert list(model.get_feature_names_out()) == ["cca0", "cca1"]


def test_a_vector_is_a_view_too():
    X, Y = two_views()
    model, table = CCA(1).fit(X, Y[:, 0]), CCA(1).fit(X, Y[:, :1])
    mean, std = model.predict(X, return_std=True, parameters="fixed")
    assert mean.shape == std.shape == (len(X),)
    assert table.predict(X).shape == (len(X), 1)
    np.testing.assert_array_equal(mean, table.predict(X)[:, 0])
    assert model.predict(X, return_cov=True)[1].shape == (len(X), 1, 1)
    assert model.score(X, Y[:, 0]) == table.score(X, Y[:, :1])
    R2 = np.corrcoef(X @ model.x_weights_[:, 0], Y[:, 0])[0, 1] ** 2
    residual = np.var(Y[:, 0] - mean) / np.var(Y[:, 0])
    assert 1 - residual == pytest.approx(R2)  # multiple regression
    assert std[0] ** 2 == pytest.approx(np.var(Y[:, 0] - mean))


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "missing"])
def test_the_default_number_is_two_or_what_the_smaller_view_has(gaps):
    X, Y = with_holes(*two_views()) if gaps else two_views()
    views = {1: Y[:, 0], 2: Y}
    for q, second in views.items():
        for one, other in ((X, second), (second.reshape(len(X), -1), X)):
            model, given = CCA().fit(one, other), CCA(q).fit(one, other)
            assert model.n_components_ == q
            np.testing.assert_array_equal(model.correlations_, given.correlations_)
    assert CCA().fit(X[:, :1], Y[:, :1]).n_components_ == 1


def test_the_default_number_counts_directions_not_columns():
    X, Y = two_views()
    twice = np.column_stack([Y[:, 0], 3 * Y[:, 0] - 1, np.full(len(Y), 7.0)])
    with pytest.warns(CanonicalWarning, match="Y in 1 of 3"):
        model = CCA().fit(X, twice)
    assert model.n_components_ == 1
    assert_close(model.correlations_, CCA(1).fit(X, Y[:, :1]).correlations_, "em")


def test_a_pipeline_predicts():
    X, Y = two_views()
    pipe = make_pipeline(StandardScaler(), CCA(2)).fit(X, Y)
    assert_close(pipe.predict(X), CCA(2).fit(X, Y).predict(X), "em")


def test_inputs_are_left_alone():
    X, Y = with_holes(*two_views())
    before = X.tobytes(), Y.tobytes()
    model = CCA(2).fit(X, Y)
    model.transform(X, Y), model.impute(X, Y), model.posterior(X, Y), model.predict(X)
    assert before == (X.tobytes(), Y.tobytes())
    X.setflags(write=False)
    Y.setflags(write=False)
    CCA(2).fit(X, Y)


def test_what_is_wrong_is_said():
    X, Y = two_views()
    model = CCA(2).fit(X, Y)
    for q in (0, 5, 1.5, "two", True):
        with pytest.raises(ValueError, match="n_components must be an integer from 1 to 4"):
            CCA(q).fit(X, Y)
    for name, value in (("regularization", -1), ("tol", "x"), ("max_iter", 0)):
        with pytest.raises(ValueError, match=f"{name} must be"):
            CCA(2, **{name: value}).fit(X, Y)
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples.*NaN"):
        CCA(2).fit(X, Y[:-1])
    with pytest.raises(ValueError, match="y is None"):
        CCA(2).fit(X)
    with pytest.raises(ValueError, match="neither X nor y"):
        model.posterior()
    with pytest.raises(ValueError, match="got both"):
        model.predict_view(X, Y)
    with pytest.raises(ValueError, match="needs both views"):
        model.impute(X, None)
    with pytest.raises(ValueError, match="cannot both be True"):
        model.predict(X, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="y has 3 columns, but CCA was fitted with 4"):
        model.score(X, Y[:, :3])
    with pytest.raises(ValueError, match="X has 4 features"):
        model.predict(X[:, :4])


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", [name for name in WRONG if name != "one dimension"])
def test_not_a_table_is_a_clear_error_in_either_view(name, first):
    bad, message = WRONG[name]
    n = len(bad) if hasattr(bad, "__len__") else 5
    good = np.random.default_rng(0).standard_normal((max(n, 1), 2))
    with pytest.raises((ValueError, TypeError), match=message):
        CCA(1).fit(*((bad, good) if first else (good, bad)))


@pytest.mark.parametrize("scale", [1e-200, 1e200])
@pytest.mark.parametrize("missing", [False, True])
def test_numbers_beyond_reach_are_an_error_or_right(scale, missing):
    X, Y = two_views()
    plain = CCA(2).fit(X, Y)
    X, Y = with_holes(X, Y) if missing else (X, Y)
    try:
        model = CCA(2).fit(scale * X, scale * Y)
    except ValueError as error:
        assert any(word in str(error) for word in ("large", "little"))
    else:
        np.testing.assert_allclose(model.correlations_, plain.correlations_, atol=0.1)


def test_results_beyond_reach_are_an_error():
    X, Y = two_views()
    model = CCA(2).fit(1e-3 * X, Y)  # small units, so large weights
    far = 1e308 * np.sign(model.x_weights_[:, :1].T)
    for rows in (far, np.where(np.eye(1, DX) > 0, np.nan, far)):
        for call in (model.transform, model.score_samples, model.predict, model.posterior):
            with pytest.raises(ValueError, match="too large"):
                call(rows)


@pytest.mark.parametrize("which", [0, 1])
def test_infinity_is_refused_by_name(which):
    tables = list(two_views())
    model = CCA(2).fit(*tables)
    tables[which][3, 2] = np.inf
    message = f"Input {'Xy'[which]} contains infinity.*row 3, column 2"
    for call in (CCA(2).fit, model.transform, model.score_samples, model.posterior, model.impute):
        with pytest.raises(NonFiniteError, match=message):
            call(*tables)


def test_complete_and_incomplete_routes_agree():
    X, Y = two_views(n=50)
    model = fit_canonical(InMemoryTable(X), InMemoryTable(Y), CanonicalRequest(2)).canonical
    holes = np.vstack([X, np.full((1, DX), np.nan)])
    mean, spread = model.predicted(holes, None, "covariance")
    direct_mean, direct_spread = model.predicted(X, None, "covariance")
    np.testing.assert_allclose(mean[:-1], direct_mean, rtol=1e-9)
    np.testing.assert_allclose(spread[:-1], direct_spread, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mean[-1], model.y.mu, rtol=1e-12)
    np.testing.assert_allclose(spread[-1], model.y.covariance, rtol=1e-12)
