"""`partial_fit`: chunks of any kind, features that come late, what is refused."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from dualpca import PCA, PPCA, BayesianPCA
from dualpca.models.streaming import (
    COMPLETE_STEPS,
    STEPS,
)
from tests.models.streaming_cases import TIGHT, Source, assert_same_model, late, streamed

# --- exact where it can be ------------------------------------------------------------


def test_complete_chunks_stay_exact():
    source = Source()
    chunks = [source.complete(60) for _ in range(5)]
    model, whole = streamed(chunks, 3), PPCA(3).fit(np.vstack(chunks))
    assert_same_model(model, whole, 1e-10)
    assert model.loglikelihood_ == pytest.approx(whole.loglikelihood_, rel=1e-10)
    assert model.converged_ and model.n_samples_seen_ == 300


@pytest.mark.slow
@pytest.mark.parametrize("q", [1, 3, 19])
def test_one_chunk_is_the_fit_of_it(q):
    X = Source(q=2, share=0.1).rows(250)
    model, whole = PPCA(q, **TIGHT).partial_fit(X), PPCA(q, **TIGHT).fit(X)
    assert_same_model(model, whole)
    assert model.loglikelihood_ == pytest.approx(whole.loglikelihood_, rel=1e-8)
    assert model.converged_ == whole.converged_


# --- on the way to the fit of all rows ------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_stream_comes_close_to_the_fit_of_all_rows(share):
    source = Source(share=share, seed=1)
    chunks, held_out = [source.rows(200) for _ in range(50)], source.rows(3000)
    X = np.vstack(chunks)
    best = PPCA(3).fit(X).score(held_out)
    early = PPCA(3).fit(np.vstack(chunks[:5])).score(held_out)
    filled = PPCA(3).fit(np.where(np.isnan(X), np.nanmean(X, axis=0), X)).score(held_out)
    got = streamed(chunks, 3).score(held_out)
    assert abs(best - got) < 0.01  # nats a row
    assert got > early  # more is learnt from 50 chunks seen once than from 5 seen at leisure
    assert best - got < 0.01 * (best - filled)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 17, 400])
def test_size_of_the_chunks_matters_little(size):
    source = Source(d=8, q=2, share=0.4)
    X, held_out = source.rows(3000), source.rows(2000)
    cut = np.array_split(X, len(X) // size)
    model = streamed(cut, 2)
    assert model.n_samples_seen_ == np.sum(~np.all(np.isnan(X), axis=1))
    assert PPCA(2).fit(X).score(held_out) - model.score(held_out) < 0.02


@pytest.mark.parametrize("first", ["complete", "holes"])
def test_complete_and_incomplete_chunks_mix(first):
    source = Source(d=10, q=2, share=0.5)
    kinds = (
        (source.complete, source.rows) if first == "complete" else (source.rows, source.complete)
    )
    chunks = [kinds[k % 2](150) for k in range(20)]
    held_out = source.rows(2000)
    gap = PPCA(2).fit(np.vstack(chunks)).score(held_out) - streamed(chunks, 2).score(held_out)
    assert gap < 0.01


def test_many_complete_rows_outweigh_an_incomplete_start():
    source = Source(d=8, q=2)
    X = source.complete(20_000)
    model, whole = streamed([source.rows(150), X], 2), PPCA(2).fit(X)
    assert_same_model(model, whole, 0.01)


def test_feature_may_come_late():
    source = Source(d=8, q=2, offset=1e3)
    chunks, held_out = late(source, chunks=30), source.rows(2000)
    model = streamed(chunks, 2)
    assert PPCA(2).fit(np.vstack(chunks)).score(held_out) - model.score(held_out) < 0.02


def test_feature_may_come_with_a_complete_chunk():
    source = Source(d=8, q=2)
    chunks = [*late(source, 3, until=3), source.complete(300)]
    held_out = source.rows(2000)
    gap = PPCA(2).fit(np.vstack(chunks)).score(held_out) - streamed(chunks, 2).score(held_out)
    assert gap < 0.02


def test_feature_never_seen_is_named_as_the_frame_names_it():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X = late(Source(d=8, q=2), 1, until=1)[0]
    model = PPCA(2).partial_fit(pandas.DataFrame(X, columns=list("abcdefgh")))
    with pytest.raises(ValueError, match="column 'e'"):
        model.mean_.sum()


def test_too_few_features_to_begin_with_are_refused():
    X = Source(d=8, q=2).rows(150)
    X[:, 2:] = np.nan
    with pytest.raises(ValueError, match="observe 2 features"):
        PPCA(2).partial_fit(X)


def test_empty_rows_and_empty_chunks_say_nothing():
    source = Source(d=6, q=2)
    chunks = [source.rows(150) for _ in range(3)]
    nothing = np.full((10, 6), np.nan)
    model = streamed([nothing, chunks[0], np.vstack([nothing, chunks[1]]), nothing, chunks[2]], 2)
    plain = streamed(chunks, 2)
    assert_same_model(model, plain, 1e-12)
    assert model.n_samples_seen_ == plain.n_samples_seen_
    with pytest.raises(ValueError, match="at least 2"):
        PPCA(2).partial_fit(nothing).mean_.sum()
    complete = source.complete(50)
    for order in ([nothing, complete], [complete, nothing]):
        model = streamed(order, 2)
        assert_same_model(model, PPCA(2).fit(complete), 1e-10)
        assert model.n_samples_seen_ == 50


def test_same_order_same_answer_and_reading_changes_nothing():
    source = Source(d=6, q=2)
    chunks = [source.rows(60) for _ in range(7)]
    once, twice = streamed(chunks, 2), PPCA(2)
    for chunk in chunks:
        twice.partial_fit(chunk)
        assert np.all(np.isfinite(twice.components_)) and np.isfinite(twice.loglikelihood_)
    for name in ("mean_", "components_", "explained_variance_", "noise_variance_"):
        assert np.array_equal(getattr(once, name), getattr(twice, name))
    assert not once.converged_ and once.loglikelihoods_ == [once.loglikelihood_]


def test_stream_survives_pickling_and_clone_forgets_it():
    source = Source(d=6, q=2)
    chunks = [source.rows(130) for _ in range(4)]
    model = pickle.loads(pickle.dumps(streamed(chunks[:2], 2)))
    model.partial_fit(chunks[2]).partial_fit(chunks[3])
    assert np.array_equal(model.components_, streamed(chunks, 2).components_)
    assert np.array_equal(
        clone(model).fit(chunks[0]).components_, PPCA(2).fit(chunks[0]).components_
    )


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_refused_chunk_leaves_the_stream_as_it_was(bad):
    source = Source(d=6, q=2)
    chunks = [source.rows(150) for _ in range(2)]
    model, wrong = PPCA(2).partial_fit(chunks[0]), source.rows(150)
    wrong[3, 2] = bad
    with pytest.raises(ValueError, match="inf"):
        model.partial_fit(wrong)
    model.partial_fit(chunks[1])
    assert np.array_equal(model.components_, streamed(chunks, 2).components_)


def test_chunk_beyond_floating_point_is_refused():
    source = Source(d=6, q=2)
    for model in (PPCA(2), PPCA(2).partial_fit(source.rows(150))):
        with pytest.raises(ValueError, match="too large"):
            model.partial_fit(source.rows(150) * 1e200)


@pytest.mark.parametrize("request_", ["cv", "evidence", None, 0.9])
def test_rules_cannot_choose_without_rows(request_):
    with pytest.raises(ValueError, match="n_components must be an int where partial_fit"):
        PPCA(request_).partial_fit(Source(d=6).rows(50))


def test_number_of_components_cannot_change_on_the_way():
    source = Source(d=6, q=2)
    model = PPCA(2).partial_fit(source.rows(150)).set_params(n_components=3)
    with pytest.raises(ValueError, match="n_components must be 2"):
        model.partial_fit(source.rows(150))


def test_fit_begins_anew():
    source = Source(d=6, q=2)
    X = source.rows(150)
    model = PPCA(2).partial_fit(source.rows(150)).fit(X)
    assert np.array_equal(model.components_, PPCA(2).fit(X).components_)


def test_the_steps_of_all_chunks_are_counted():
    source = Source(d=8, q=2)
    chunks = [source.rows(300) for _ in range(3)]
    counts = []
    model = PPCA(2)
    for chunk in chunks:
        counts.append(model.partial_fit(chunk).n_iter_)
    assert counts[0] > 0 and counts == sorted(set(counts))
    complete = model.partial_fit(source.complete(20)).n_iter_
    assert np.diff([*counts, complete]).tolist() == [STEPS, STEPS, COMPLETE_STEPS]


@pytest.mark.parametrize("name", ["qr", "gram"])
def test_solvers_that_need_all_rows_are_refused_before_the_first_chunk(name):
    # they were accepted, and the model said 'Scatter has no thin factor' when it was read
    X = Source(share=0.0).rows(60)
    models = [PPCA(2, solver=name), BayesianPCA(2, solver=name), PCA(2, svd_solver=name)]
    for model in [*models, *([PCA(2, svd_solver="full")] if name == "qr" else [])]:
        with pytest.raises(ValueError, match=r"solver must be one of .*rows in memory"):
            model.partial_fit(X)
    for model in (PPCA(2, solver="krylov"), PCA(2, svd_solver="covariance_eigh")):
        assert model.partial_fit(X).components_.shape == (2, X.shape[1])
