"""PPCA of incomplete chunks: exact where it can be, and on its way to the fit of all rows."""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from dualpca import PPCA
from dualpca.data.moments import Moments
from dualpca.gaussian import moment_sums
from dualpca.gaussian.observed import Factors, Incomplete, Sums
from dualpca.gaussian.rules import LEAST_NOISE
from dualpca.models.streaming import (
    FEWEST_ROWS,
    Stream,
    maximized,
    recentred,
    reexpressed,
)
from tests.models.streaming_cases import TIGHT, Source, assert_same_model, late, streamed
from tests.oracles import missing as dense
from tests.tolerances import assert_close

NAMES = ("zz", "z", "n", "xz", "x", "xx", "all_zz", "all_z", "all_n")


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


def test_given_noise_stays():
    source = Source(d=8, q=2)
    model = streamed([source.rows(150) for _ in range(3)], 2, noise_variance=0.3)
    assert model.noise_variance_ == pytest.approx(0.3, rel=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_noise_of_rows_without_noise_is_held_at_a_share_of_their_variance(missing):
    """Of the mean variance of the columns that were observed at all."""
    rng = np.random.default_rng(0)
    z, W = rng.normal(size=(50, 1)), np.array([[1.0], [2.0], [-1.0], [0.0]])
    X = 3.0 + z @ W.T
    X[rng.random(X.shape) < missing] = np.nan
    X[:, 3] = np.nan  # never observed: it has no variance to count
    seen = ~np.isnan(X)
    x = np.where(seen, X, 0.0)
    sums = Sums(
        zz=np.einsum("ij,ia,ib->jab", seen, z, z),
        z=seen.T @ z,
        n=seen.sum(axis=0, dtype=float),
        xz=x.T @ z,
        x=x.sum(axis=0),
        xx=(x * x).sum(axis=0),
        all_zz=z.T @ z,
        all_z=z.sum(axis=0),
        all_n=np.asarray(50.0),
        loglikelihood=np.zeros(()),
    )
    factors = Factors(np.ones((4, 1)), np.zeros(4), np.ones(4))
    found = maximized(sums, factors, None)
    variance = np.nanvar(X[:, :3], axis=0).mean()
    np.testing.assert_allclose(found.psi, LEAST_NOISE * variance, rtol=1e-3)


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


@pytest.mark.parametrize("size", [20, 150])  # waiting and not
def test_feature_never_seen_is_named_when_the_model_is_read(size):
    source = Source(d=8, q=2)
    model = streamed(late(source, 3, size, until=3), 2)
    with pytest.raises(ValueError, match=r"column 4\b"):
        model.transform(source.rows(3))
    model.partial_fit(source.rows(size))
    assert np.all(np.isfinite(model.components_))


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
