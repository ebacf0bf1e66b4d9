"""Hidden Markov models of subspaces: exact on small chains, monotone, right as sequences grow."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.metrics import adjusted_rand_score

from dualpca import Batches, HiddenMarkovPCA
from dualpca.data import InMemoryTable
from dualpca.errors import (
    InterruptWarning,
)
from dualpca.kernels import RBF, Linear
from dualpca.models.chain import Chain
from dualpca.models.emissions import Emissions, Surveyed
from dualpca.models.hidden_markov import (
    BaumWelch,
    HiddenMarkov,
    HiddenMarkovModel,
    HiddenMarkovRequest,
    SequenceClassesModel,
    counted_chain,
    stretches,
)
from tests.models.markov_cases import draw, truth
from tests.oracles.chain import baum_welch_step
from tests.tolerances import assert_close


@pytest.mark.parametrize("q", [0, 1, 3], ids=lambda q: f"q={q}")
def test_a_step_equals_the_dense_one(q):
    X, _ = draw(T=12, gap=1.0)
    lengths = [5, 7]
    rng, labels = np.random.default_rng(0), np.arange(12) % 2
    chain = Chain(np.array([0.4, 0.6]), np.array([[0.7, 0.3], [0.2, 0.8]]))
    model = HiddenMarkov(chain, np.ones((2, 1)), Emissions.start(X, 2, q, rng, labels=labels))
    request = HiddenMarkovRequest(2, q)
    steps = BaumWelch(Surveyed.of(InMemoryTable(X)), {0: np.array(lengths)}, request)
    (moved, _), _ = steps.step(steps.expect(model)[0])
    log_b = model.log_emissions(X)
    start, A, emitted = baum_welch_step(
        model.chain.start, model.chain.transitions, log_b, lengths, X, q
    )
    assert_close(moved.chain.start, start, "density")
    assert_close(moved.chain.transitions, A, "density")
    for k, (mean, C) in enumerate(emitted):
        W, s2 = moved.emissions.loadings[k], moved.emissions.noises[k]
        assert_close(moved.emissions.means[k], mean, "density")
        assert_close(W @ W.T + s2 * np.eye(4), C, "density")


def test_equal_transition_rows_are_the_mixture():
    X, _ = draw()
    base = truth()
    pi = np.array([0.2, 0.3, 0.5])
    forgetful = HiddenMarkov(Chain(pi, np.tile(pi, (3, 1))), base.shares, base.emissions)
    joint = base.emissions.log_density(X) + np.log(pi)
    density = logsumexp(joint, axis=1)
    model = HiddenMarkovModel(*forgetful.state_moments(), np.zeros(3), forgetful)
    assert_close(model.loglikelihoods(X, [300]), [density.sum()], "density")
    assert_close(model.smooth(X, [300]).states, np.exp(joint - density[:, None]), "density")
    assert np.array_equal(model.decode(X, [300])[1], joint.argmax(axis=1))


def test_mixtures_within_states_are_recovered():
    """Two states of two groups each: the chain tells which groups belong together."""
    rng = np.random.default_rng(0)
    centres = 6.0 * np.array([[[0, 0, 0], [1, 1, 0]], [[1, 0, 0], [0, 1, 0]]])
    chain = Chain(np.full(2, 0.5), np.array([[0.97, 0.03], [0.03, 0.97]]))
    emissions = Emissions(
        centres.reshape(4, 3), tuple(rng.standard_normal((3, 1)) for _ in range(4)), np.full(4, 0.3)
    )
    real = HiddenMarkov(chain, np.array([[0.5, 0.5], [0.3, 0.7]]), emissions)
    X, states = real.sample(6000, rng)
    model = HiddenMarkovPCA(2, 1, n_mixtures=2, n_init=4).fit(X)
    assert adjusted_rand_score(model.predict(X), states) > 0.95
    first = int(states[0] != model.predict(X)[0])  # which of ours is the first state
    found = model.means_[[first, 1 - first] if states[0] == 0 else [1 - first, first]]
    order = np.argsort(np.sum((found[:, :, None] - centres[:, None]) ** 2, axis=3), axis=1)[:, 0]
    assert sorted(order[0].tolist()) == sorted(order[1].tolist()) == [0, 1]
    shares = np.sort(model.weights_, axis=1)
    assert_close(np.sort(shares[:, 0]), [0.3, 0.5], "em", scale=3e6)


# --- starts ---------------------------------------------------------------------------


def test_stretches_do_not_cross_borders():
    assert stretches([7, 2, 3], 3).tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3]


def test_an_interrupted_fit_keeps_the_best_there_was(monkeypatch):
    X, _ = draw(gap=0.5)
    calls, step = [], BaumWelch.step

    def tired(*args):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return step(*args)

    monkeypatch.setattr(BaumWelch, "step", tired)
    with pytest.warns(InterruptWarning, match="interrupted after 3 steps"):
        model = HiddenMarkovPCA(3, 1, n_init=5).fit(X)
    assert len(calls) == 4 and np.isfinite(model.score(X)) and not model.converged_


def test_models_whose_parts_do_not_belong_together_are_refused():
    real = truth()
    with pytest.raises(ValueError, match="shares must be of 3 states with 3 components"):
        replace(real, shares=np.full((3, 2), 0.5))
    model = HiddenMarkovModel(*real.state_moments(), np.zeros(3), real)
    with pytest.raises(ValueError, match=r"density must be of \(3, 3\) states and dimensions"):
        replace(model, state_means=model.state_means[:, :3])
    with pytest.raises(ValueError, match="models must be 2, all in one space"):
        SequenceClassesModel((model,), np.full(2, 0.5), np.array(["a", "b"]))


# --- kernels --------------------------------------------------------------------------


def test_the_linear_kernel_is_the_input_space():
    X, _ = draw()
    plain = HiddenMarkovPCA(3, 1, max_iter=20, tol=0.01).fit(X)
    dual = HiddenMarkovPCA(3, 1, kernel=Linear(), n_directions=4, max_iter=20, tol=0.01).fit(X)
    assert_close(dual.loglikelihood_, plain.loglikelihood_, "density")
    assert_close(dual.predict_proba(X), plain.predict_proba(X), "density")
    assert_close(dual.state_means_, plain.state_means_, "density", scale=1e6)  # of the last E step


def test_time_enters_a_kernel_as_a_column():
    """Two places swap their roles half-way: rows and time together tell the four states apart."""
    rng = np.random.default_rng(0)
    place = np.repeat(np.arange(16) % 2, 25)
    time = np.arange(400) / 400.0
    X = np.column_stack([4.0 * place + rng.standard_normal(400), time])
    kernel = RBF(gamma=0.2, on=[0]) * RBF(gamma=3.0, on=[1])
    model = HiddenMarkovPCA(4, 1, kernel=kernel, n_directions=6, n_init=5).fit(X)
    quarter = 2 * place + (np.arange(400) >= 200)
    blind = HiddenMarkovPCA(4, 1, kernel=RBF(gamma=0.2, on=[0]), n_directions=6, n_init=5).fit(X)
    found = [adjusted_rand_score(m.predict(X), quarter) for m in (model, blind)]
    assert found[0] > 0.8 and found[0] > found[1] + 0.2


def test_a_first_chain_counts_transitions_within_sequences():
    states, lengths = np.array([0, 0, 1, 1, 1, 1, 0, 1]), [5, 2, 1]
    chain = counted_chain(states, lengths, 2, forward=False)  # one of everything on top
    assert_close(chain.transitions, [[2 / 4, 2 / 4], [2 / 5, 3 / 5]], "exact")
    assert_close(chain.start, [2 / 5, 3 / 5], "exact")
    chain = counted_chain(states, lengths, 2, forward=True)
    assert_close(chain.transitions, [[2 / 4, 2 / 4], [0, 1]], "exact")
    assert_close(chain.start, [1, 0], "exact")


def test_states_of_chunks_are_chosen_too():
    x = np.repeat([0.0, 5.0] * 5, 40)[:, None] + np.random.default_rng(0).normal(size=(400, 2))
    assert HiddenMarkovPCA().fit(Batches([x[:200], x[200:]])).n_states_ == 2
