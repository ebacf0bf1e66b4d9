"""What errors of parameters make of probabilities, latents and filled entries of a mixture."""

import numpy as np
import pytest

from dualpca import PPCA, MixturePPCA
from dualpca.gaussian import Factors, Latents, all_latents
from dualpca.models.mixture.model import log_density_variance, shares_unsure
from tests.models.emission_cases import groups, holes

# --- Probabilities -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [60, 400])
def test_log_densities_vary_from_fit_to_fit_as_the_formula_says(n):
    """Fits to many tables of one model, beside `log_density_variance` at its parameters."""
    rng, d, q = np.random.default_rng(0), 6, 2
    W = np.linalg.qr(rng.normal(size=(d, q)))[0] * [3.0, 2.0]
    X = rng.normal(size=(8, q)) @ W.T + rng.normal(size=(8, d))
    found = []
    for _ in range(1500):
        rows = rng.normal(size=(n, q)) @ W.T + rng.normal(size=(n, d))
        found.append(PPCA(q).fit(rows).score_samples(X))
    true = all_latents(Factors(W, np.zeros(d), np.ones(d)), X)
    said = log_density_variance(true, np.full(8, float(d)), n) - 1 / n  # the weight is known here
    np.testing.assert_allclose(np.var(found, axis=0), said, rtol=0.5 if n == 60 else 0.2)


def test_shares_are_those_of_a_logit_with_an_error():
    rng = np.random.default_rng(0)
    for mean, variance in ((0.4, 0.5), (2.0, 1.0), (-1.0, 3.0), (5.0, 4.0)):
        said = shares_unsure(np.array([[mean, 0.0]]), np.array([[variance / 2, variance / 2]]))
        drawn = 1 / (1 + np.exp(-(mean + np.sqrt(variance) * rng.normal(size=200_000))))
        assert said[0, 0] == pytest.approx(np.mean(drawn), abs=0.02)
        assert said.sum() == pytest.approx(1)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_most_probable_stays_so_and_is_less_sure_with_few_rows(missing):
    X = groups(apart=1.0)
    X = holes(X, missing) if missing else X
    model = MixturePPCA(3, 1, random_state=0).fit(X)
    unsure, sure = (model.predict_proba(X, parameters=p) for p in ("auto", "fixed"))
    assert np.array_equal(unsure.argmax(axis=1), sure.argmax(axis=1))
    assert np.array_equal(model.predict(X), unsure.argmax(axis=1))
    top, before = unsure.max(axis=1), sure.max(axis=1)
    assert np.all(top <= before + 1e-12) and np.mean(before - top) > 0.005
    np.testing.assert_allclose(unsure.sum(axis=1), 1)


def test_an_axis_of_which_a_row_tells_nothing_says_nothing():
    none = Latents(*(np.zeros(shape) for shape in ((1, 2), (1, 2, 2), (1,), (1,), (1,))))
    none = none._replace(covariance=np.eye(2)[None])
    assert log_density_variance(none, np.zeros(1), 50.0)[0] == pytest.approx((1 + 1 + 0.5) / 50)


def test_with_many_rows_parameters_are_known():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(20_000, 3)) * [3, 1, 1] + m for m in (0, 4)])
    model = MixturePPCA(2, 1, random_state=0).fit(X)
    a, b = (model.predict_proba(X[:50], parameters=p) for p in ("auto", "fixed"))
    assert np.array_equal(a, b)
    c = model.predict_proba(X[:50], parameters="estimated")
    np.testing.assert_allclose(c, b, atol=0.002)
    with pytest.raises(ValueError, match="parameters must be one of"):
        model.predict_proba(X[:3], parameters="known")


# --- Latents and filled entries ------------------------------------------------------------------


def test_one_component_is_as_unsure_as_ppca():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 6)) * 3 + rng.normal(size=(40, 6))
    one, ppca = MixturePPCA(1, 2).fit(X), PPCA(2).fit(X)
    for how in ("estimated", "fixed"):
        a, b = one.posterior(X, 0, parameters=how)[1], ppca.posterior(X, parameters=how)[1]
        np.testing.assert_allclose(np.abs(a), np.abs(b), rtol=1e-6, atol=1e-12)
    gaps = np.where(np.arange(6) < 2, np.nan, X)
    std = one.impute(gaps, return_std=True, parameters="estimated")[1]
    unseen = ppca.conditional(gaps, [0, 1], parameters="estimated")[1]
    both = np.sqrt(np.diagonal(unseen, axis1=1, axis2=2))
    np.testing.assert_allclose(std[:, :2], both, rtol=1e-6)


@pytest.mark.slow
def test_latents_and_hidden_entries_of_small_groups_are_covered():
    rng, right = np.random.default_rng(4), [[], []]
    for _ in range(60):
        axes = np.stack([np.linalg.qr(rng.normal(size=(8, 1)))[0][:, 0] for _ in range(2)]) * 6**0.5
        step = rng.normal(size=8)
        means = np.outer([0, 1], 6 * step / np.linalg.norm(step))
        k, z = rng.integers(0, 2, 260), rng.normal(size=(260, 1))
        signal = means[k] + z * axes[k]
        X = signal + rng.normal(size=(260, 8))
        model = MixturePPCA(2, 1, random_state=0).fit(X[:60])
        labels = model.predict(X[:60])
        swapped = np.mean(labels == k[:60]) < 0.5
        new, k, z = X[60:], k[60:], z[60:]
        for true in range(2):
            mine = k == true
            mean, C = model.posterior(new[mine], 1 - true if swapped else true)
            truth = z[mine] * np.sign(np.sum(mean * z[mine]))
            right[0].append(np.mean(np.abs(mean - truth)[:, 0] < 1.645 * np.sqrt(C[:, 0, 0])))
        gaps = np.where(rng.random(new.shape) < 0.2, np.nan, new)
        filled, std = model.impute(gaps, return_std=True)
        hidden = np.isnan(gaps)
        right[1].append(np.mean(np.abs(filled - new)[hidden] < 1.645 * std[hidden]))
    assert all(0.87 <= np.mean(part) <= 0.93 for part in right)
