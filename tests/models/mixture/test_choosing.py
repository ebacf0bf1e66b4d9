"""Sizes of a mixture: what a sample promises and what held-out rows say."""

import numpy as np

from dualpca import PPCA
from dualpca.data import InMemoryTable
from dualpca.models.emissions import Surveyed
from dualpca.models.mixture import MixtureRequest, penalised
from dualpca.models.mixture.fit import by_held_out
from tests.models.emission_cases import groups
from tests.models.mixture.cases import TIGHT
from tests.tolerances import assert_close


def test_what_a_sample_promises_is_what_all_rows_hold():
    # p = 2 parameters of a normal density: the likelihood of n rows, from m of them
    rng, m, n = np.random.default_rng(0), 20, 2000
    off = []
    for _ in range(400):
        x = rng.normal(size=n)
        own = lambda x: -0.5 * len(x) * (np.log(2 * np.pi * np.var(x)) + 1)  # noqa: E731
        off.append(penalised(own(x[:m]), 2, m, n) - penalised(own(x), 2, n, n))
    assert abs(np.mean(off)) < 4 * np.std(off) / 20 + 0.15 * n / m


def test_held_out_rows_are_those_of_five_folds():
    X, w = groups(24, 4, 2), np.random.default_rng(1).integers(1, 3, 24)
    data, total = Surveyed.of(InMemoryTable(X, w.astype(float))), 0.0
    for held in np.array_split(np.random.default_rng(0).permutation(24), 5):
        kept = np.repeat(np.delete(X, held, axis=0), np.delete(w, held), axis=0)
        total += w[held] @ PPCA(2).fit(kept).score_samples(X[held])
    found = by_held_out(data, MixtureRequest(1, 2, unit=data.unit, **TIGHT), 1, 2)
    assert_close(found, total / w.sum(), "em")
