"""PPCA of incomplete chunks: exact where it can be, and on its way to the fit of all rows."""

import pickle
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from sklearn.base import clone

from dualpca import PPCA
from dualpca.data.moments import Moments
from dualpca.gaussian import moment_sums
from dualpca.gaussian.observed import Factors, Incomplete, Sums
from dualpca.models.streaming import (
    COMPLETE_STEPS,
    FEWEST_ROWS,
    STEPS,
    Stream,
    recentred,
    reexpressed,
)
from tests.oracles import missing as dense
from tests.tolerances import assert_close

SAME_MAXIMUM = 1e-6
TIGHT = {"tol": 1e-9, "max_iter": 20_000}
NAMES = ("zz", "z", "n", "xz", "x", "xx", "all_zz", "all_z", "all_n")


class Source:
    """Rows of one random PPCA model with holes, as many as are asked for."""

    def __init__(self, seed=0, d=20, q=3, share=0.3, noise=0.5, offset=3.0):
        self.rng = np.random.default_rng(seed)
        self.W = self.rng.standard_normal((d, q)) * np.linspace(1.5, 0.8, q)
        self.mu = offset * self.rng.standard_normal(d)
        self.share, self.noise = share, noise

    def complete(self, n):
        d, q = self.W.shape
        signal = self.rng.standard_normal((n, q)) @ self.W.T + self.mu
        return signal + self.noise * self.rng.standard_normal((n, d))

    def rows(self, n):
        X = self.complete(n)
        return np.where(self.rng.random(X.shape) < self.share, np.nan, X)


def streamed(chunks, q, weights=None, **options):
    model = PPCA(q, **options)
    for k, chunk in enumerate(chunks):
        model.partial_fit(chunk, sample_weight=None if weights is None else weights[k])
    return model


def assert_same_model(a, b, tol=SAME_MAXIMUM):
    C = b.get_covariance()
    np.testing.assert_allclose(a.get_covariance(), C, rtol=0, atol=tol * np.max(np.abs(C)))
    np.testing.assert_allclose(a.mean_, b.mean_, rtol=0, atol=tol * np.sqrt(np.max(np.diag(C))))


# --- statistics that outlive their parameters -----------------------------------------


def random_factors(d, q, seed=0):
    rng = np.random.default_rng(seed)
    return Factors(rng.standard_normal((d, q)), rng.standard_normal(d), rng.uniform(0.5, 2, d))


def summed(X, factors, w, origin, nu, root):
    """Return the sums row by row, around any origin and for latents z' with z = nu + root z'."""
    z, C = dense.posterior(X, factors.W, factors.mu, factors.psi)
    inverse = np.linalg.inv(root)
    z, C = (z - nu) @ inverse.T, inverse @ C @ inverse.T
    d, q = factors.W.shape
    out = {"zz": np.zeros((d, q, q)), "xz": np.zeros((d, q)), "z": np.zeros((d, q))}
    out |= {name: np.zeros(d) for name in ("n", "x", "xx")}
    for i, j in zip(*np.nonzero(~np.isnan(X)), strict=True):
        x = X[i, j] - origin[j]
        out["zz"][j] += w[i] * (C[i] + np.outer(z[i], z[i]))
        out["xz"][j] += w[i] * x * z[i]
        out["z"][j] += w[i] * z[i]
        out["n"][j] += w[i]
        out["x"][j] += w[i] * x
        out["xx"][j] += w[i] * x * x
    out["all_zz"] = np.einsum("i,ikl->kl", w, C) + (z * w[:, None]).T @ z
    return out | {"all_z": w @ z, "all_n": w.sum()}


@pytest.mark.parametrize("q", [1, 2, 4])
def test_sums_follow_origin_and_latents(q):
    X = Source(d=5, q=2).rows(40)
    factors, w = random_factors(5, q), np.random.default_rng(1).uniform(0, 2, 40)
    rng = np.random.default_rng(2)
    origin, nu = rng.standard_normal(5), rng.standard_normal(q)
    root = np.linalg.cholesky(np.eye(q) + 0.3 * np.ones((q, q)))
    sums = Incomplete(X, w, q).sums(factors)
    moved = reexpressed(recentred(sums, factors.mu - origin), nu, root)
    expected = summed(X, factors, w, origin, nu, root)
    for name in NAMES:
        assert_close(getattr(moved, name), expected[name], "vector")


@pytest.mark.parametrize("weighted", [False, True])
def test_moments_give_the_sums_of_complete_rows(weighted):
    X, factors = Source(d=6, q=2).complete(50), random_factors(6, 3)
    w = np.random.default_rng(1).uniform(0, 2, 50) if weighted else None
    got = moment_sums(Moments.of(X, w), factors)
    expected = Incomplete(X, w, 3).sums(factors)
    for name, a, b in zip(Sums._fields, got, expected, strict=True):
        assert_close(a, b, "vector"), name


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


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_complete_chunk_and_a_few_holes_are_fitted_exactly(order):
    source = Source(d=8, q=2)
    both = [source.complete(150), source.rows(FEWEST_ROWS - 1)]
    chunks = [both[k] for k in order]
    model, whole = streamed(chunks, 2, **TIGHT), PPCA(2, **TIGHT).fit(np.vstack(chunks))
    assert_same_model(model, whole)
    assert model.loglikelihood_ == pytest.approx(whole.loglikelihood_, rel=1e-8)
    assert model.n_samples_ == whole.n_samples_


def test_rows_one_at_a_time_are_fitted_exactly_while_they_are_few():
    X = Source(d=6, q=1).rows(FEWEST_ROWS - 1)
    X = X[~np.all(np.isnan(X), axis=1)]
    assert_same_model(streamed(np.split(X, len(X)), 1, **TIGHT), PPCA(1, **TIGHT).fit(X))


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


def test_given_noise_stays():
    source = Source(d=8, q=2)
    model = streamed([source.rows(150) for _ in range(3)], 2, noise_variance=0.3)
    assert model.noise_variance_ == pytest.approx(0.3, rel=1e-12)


def test_data_far_from_the_origin():
    source = Source(d=6, q=1, offset=1e6)
    chunks = [source.rows(150) for _ in range(6)]
    model = streamed(chunks, 1)
    centre = model.mean_
    near = streamed([chunk - centre for chunk in chunks], 1)
    assert_close(model.get_covariance(), near.get_covariance(), "residual")


def test_more_features_than_rows_and_a_constant_one():
    source = Source(d=150, q=2, share=0.2)
    chunks = [source.rows(110) for _ in range(4)]
    for chunk in chunks:
        chunk[:, 7] = np.where(np.isnan(chunk[:, 7]), np.nan, 5.0)
    model = streamed(chunks, 2)
    assert model.mean_[7] == pytest.approx(5.0, abs=1e-8)
    assert_close(model.components_ @ model.components_.T, np.eye(2), "orthonormal")


# --- features that come late ----------------------------------------------------------


def late(source, chunks=6, size=150, until=3, column=4):
    out = [source.rows(size) for _ in range(chunks)]
    for chunk in out[:until]:
        chunk[:, column] = np.nan
    return out


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


@pytest.mark.parametrize("size", [20, 150])  # waiting and not
def test_feature_never_seen_is_named_when_the_model_is_read(size):
    source = Source(d=8, q=2)
    model = streamed(late(source, 3, size, until=3), 2)
    with pytest.raises(ValueError, match=r"column 4\b"):
        model.transform(source.rows(3))
    model.partial_fit(source.rows(size))
    assert np.all(np.isfinite(model.components_))


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


# --- what comes in, what is kept ------------------------------------------------------


def test_weights_count_as_repeated_rows():
    source, rng = Source(d=6, q=2), np.random.default_rng(3)
    chunks = [source.rows(150) for _ in range(4)]
    chunks[1] = source.complete(150)  # moments are enough
    weights = [rng.integers(0, 3, 150) for _ in chunks]
    weighted = streamed(chunks, 2, weights)
    repeated = streamed([np.repeat(X, w, axis=0) for X, w in zip(chunks, weights, strict=True)], 2)
    assert_same_model(weighted, repeated, 1e-8)
    assert weighted.n_samples_seen_ == repeated.n_samples_seen_


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


def test_chunks_are_neither_changed_nor_followed():
    source = Source(d=6, q=2)
    chunks = [source.rows(50) for _ in range(3)]
    before = [chunk.tobytes() for chunk in chunks]
    model = streamed(chunks, 2)
    assert before == [chunk.tobytes() for chunk in chunks]
    expected = streamed([chunk.copy() for chunk in chunks], 2).components_
    for chunk in chunks:
        chunk[:] = 0.0
    assert np.array_equal(model.components_, expected)


def size_of(state):
    """Return how many numbers a state holds."""
    if is_dataclass(state):
        return sum(size_of(getattr(state, field.name)) for field in fields(state))
    if isinstance(state, tuple):
        return sum(size_of(part) for part in state)
    return np.size(state)


def test_state_does_not_grow_with_the_rows():
    d, q, source = 40, 2, Source(d=40, q=2)
    stream, sizes = Stream(q, None), []
    for _ in range(4):
        stream = stream.add(source.rows(500), None, np.random.default_rng(0))
        sizes.append(size_of(stream))
    assert len(set(sizes)) == 1
    assert sizes[0] < 5 * d * (q * q + 4)


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


def test_every_library_gives_the_same(backend):
    source = Source(d=6, q=2)
    chunks = [source.rows(150), source.complete(50), *late(source, 2, until=1), source.rows(30)]
    here = streamed(chunks, 2)
    there = streamed([backend.asarray(chunk) for chunk in chunks], 2)
    assert backend.owns(there.components_)
    for name in ("mean_", "components_", "explained_variance_"):
        assert_close(backend.numpy(getattr(there, name)), getattr(here, name), "vector")


def test_float32_stays_float32():
    source = Source(d=6, q=2)
    model = streamed([source.rows(150).astype(np.float32) for _ in range(3)], 2)
    assert model.components_.dtype == np.float32
    assert model.impute(source.rows(4).astype(np.float32)).dtype == np.float32


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


def test_rows_are_counted_wherever_they_are():
    source, rng, stream = Source(d=6, q=2), np.random.default_rng(0), Stream(q=2, noise=None)
    chunks = [source.rows(40), source.complete(30), source.rows(70), source.rows(20)]
    total, counts = 0.0, []  # the first wait, the second are moments, the third begin to run
    for chunk in chunks:
        w = rng.uniform(1, 2, len(chunk))
        stream, total = stream.add(chunk, w, rng), total + w.sum()
        counts.append((stream.rows is not None, stream.running is not None))
        assert stream.n == pytest.approx(total, rel=1e-12)
    assert counts == [(True, False), (True, False), (False, True), (True, True)]
    assert PPCA(2).partial_fit(chunks[0]).n_samples_seen_ == 40


def test_steps_of_a_long_stream_grow_smaller():
    """What a chunk changes falls as γ does, k^-0.6: a long stream comes to rest."""
    source, rng = Source(d=5, q=1), np.random.default_rng(0)
    stream, places = Stream(q=1, noise=None, tol=1e-4), []
    for _ in range(120):
        stream = stream.add(source.rows(120), None, rng)
        places.append(stream.running.factors.mu)
    moved = np.sum(np.diff(places, axis=0) ** 2, axis=1)
    early, late = moved[5:25].mean(), moved[-20:].mean()  # γ² of 0.04 and 0.003
    assert late < 0.25 * early
    assert np.max(np.abs(stream.model()[0].mu - source.mu)) < 0.06  # three errors of 10,000 rows
