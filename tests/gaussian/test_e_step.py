"""The E step: many small matrices at once give what LAPACK gives, and what the posterior says."""

import numpy as np
import pytest

from dualpca.gaussian import Factors, Incomplete, all_latents, observed


def stack(K, d, q, n, seed=0):
    rng = np.random.default_rng(seed)
    mask = (rng.random((K, d, n)) > 0.3).astype(float)
    R = rng.normal(size=(K, d, n)) * mask
    return rng.normal(size=(K, d, q)), np.exp(rng.normal(size=(K, d))), R, mask


@pytest.mark.parametrize("together", [1, 64 * 9 + 1, 2**18])
@pytest.mark.parametrize("shape", [(1, 5, 3, 40), (3, 6, 1, 70), (4, 7, 3, 130)])
def test_matrices_factored_together_are_those_factored_one_by_one(shape, together):
    W, psi, R, mask = stack(*shape)
    i, j = observed.lower_pairs(shape[2])
    Wt = W.swapaxes(1, 2)
    scaled = Wt / psi[:, None, :]
    given = (scaled[:, i] * Wt[:, j], mask, scaled @ R)
    fast = observed._factored_on_host(*given, entries=together)
    general = observed._factored_on_device(*given)
    for mine, wanted in zip(fast, general, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-10, atol=1e-12)


def test_tables_in_a_stack_do_not_see_each_other():
    parts = stack(3, 6, 2, 50)
    together = observed.stacked_latents(*parts)
    for k in range(3):
        alone = observed.stacked_latents(*(A[k : k + 1] for A in parts))
        for mine, wanted in zip(together, alone, strict=True):
            np.testing.assert_allclose(mine[k], wanted[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [50, 9000])  # one block, and several
def test_sums_are_those_of_the_posterior_of_each_row(n, weighted):
    (W,), (psi,), (R,), (mask,) = stack(1, 6, 2, n)
    mu, rng = np.arange(6.0), np.random.default_rng(1)
    X = np.where(mask > 0, R, np.nan).T + mu
    w = rng.uniform(0, 2, n) if weighted else None
    weights, factors = np.ones(n) if w is None else w, Factors(W, mu, psi)
    sums, found = Incomplete(X, w, 2).sums(factors), all_latents(factors, X)
    second = found.covariance + found.mean[:, :, None] * found.mean[:, None, :]
    wanted = {
        "zz": np.einsum("n,dn,nab->dab", weights, mask, second),
        "z": np.einsum("n,dn,na->da", weights, mask, found.mean),
        "n": mask @ weights,
        "xz": np.einsum("n,dn,na->da", weights, R, found.mean),
        "x": R @ weights,
        "xx": (R * R) @ weights,
        "all_zz": np.einsum("n,nab->ab", weights, second),
        "all_z": weights @ found.mean,
        "all_n": weights.sum(),
        "loglikelihood": weights @ found.log_density,
    }
    for name, value in wanted.items():
        np.testing.assert_allclose(getattr(sums, name), value, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("each", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_share_a_pattern_count_as_rows_of_their_own(each, weighted):
    """One matrix for all rows of a pattern, on both sides of the number that decides for it."""
    (W,), (psi,), _, (masks,) = stack(1, 6, 2, 7)
    rng = np.random.default_rng(2)
    mask = rng.permutation(np.repeat(masks.T, each, axis=0))
    X = np.where(mask > 0, rng.normal(size=mask.shape), np.nan)
    w = rng.uniform(0, 2, len(X)) if weighted else None
    table = Incomplete(X, w, 2)
    mu = np.zeros(6)
    shared = table.sums(Factors(W, mu, psi))
    table.patterns = {rows.start: (None, None) for rows in table.cut}
    for mine, wanted in zip(shared, table.sums(Factors(W, mu, psi)), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-10, atol=1e-10)
