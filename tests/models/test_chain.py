"""Chains equal enumeration of every path; long ones neither underflow nor cost a loop over time."""

import numpy as np
import pytest
from scipy.special import logsumexp

from dualpca.errors import DegenerateError
from dualpca.models import chain as scans
from dualpca.models.chain import Chain
from tests.oracles.chain import enumerate_paths
from tests.tolerances import assert_close

LEFT_TO_RIGHT = np.array([[0.7, 0.3, 0.0], [0.0, 0.6, 0.4], [0.0, 0.0, 1.0]])


def draw_chain(n_states, seed=0, zeros=False):
    rng = np.random.default_rng(seed)
    A = rng.dirichlet(np.ones(n_states), size=n_states)
    if zeros:
        A = np.triu(A)
    return Chain(rng.dirichlet(np.ones(n_states)), A / A.sum(axis=1, keepdims=True))


def draw_logs(steps, n_states, spread=1.0, seed=1):
    return spread * np.random.default_rng(seed).standard_normal((steps, n_states)) - 3.0


def stepwise(chain, log_b):
    """The textbook recursion in log space, a step at a time: ln α, ln β."""
    T = len(log_b)
    alpha, beta = np.empty_like(log_b), np.zeros_like(log_b)
    alpha[0] = chain.log_start + log_b[0]
    with np.errstate(divide="ignore"):
        for t in range(1, T):
            terms = alpha[t - 1][:, None] + chain.log_transitions
            alpha[t] = logsumexp(terms, axis=0) + log_b[t]
        for t in range(T - 2, -1, -1):
            beta[t] = logsumexp(chain.log_transitions + log_b[t + 1] + beta[t + 1], axis=1)
    return alpha, beta


@pytest.fixture(params=[1, 2, 3, 1000], ids=lambda n: f"pieces up to {n}")
def cut(request, monkeypatch):
    """Cut even short sequences, so that pieces are tested where enumeration can reach.

    Pieces of three steps or fewer are those of scans, long ones those of bands. The best path is
    found row by row, with short pieces between pins, as the options that are returned say.
    """
    monkeypatch.setattr(scans, "UNCUT", request.param)
    if request.param > 3:
        return {}
    by_scans(monkeypatch)
    return {"few_terms": 0, "long_stretch": 1e9}


def by_scans(monkeypatch):
    """Leave sums to scans in logarithms."""
    monkeypatch.setattr(scans, "MOST_BAND", 0)


@pytest.mark.grid(2)
@pytest.mark.parametrize("spread", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("zeros", [False, True], ids=["ergodic", "triangular"])
@pytest.mark.parametrize("lengths", [[1], [5], [6, 1, 4], [2, 2, 7]], ids=str)
def test_everything_equals_enumeration(cut, lengths, zeros, spread):
    chain = draw_chain(3, zeros=zeros)
    log_b = draw_logs(sum(lengths), 3, spread)
    found = chain.smooth(log_b, lengths)
    forward, values = chain.filtered(log_b, lengths)
    best, path = chain.viterbi(log_b, lengths, **cut)
    ends = np.cumsum(lengths)
    truth = [
        enumerate_paths(chain.start, chain.transitions, log_b[e - n : e])
        for e, n in zip(ends, lengths, strict=True)
    ]
    assert_close(found.loglikelihoods, [t.loglikelihood for t in truth], "density")
    assert_close(values, [t.loglikelihood for t in truth], "density")
    assert_close(found.states, np.concatenate([t.states for t in truth]), "density")
    assert_close(forward, np.concatenate([t.filtered for t in truth]), "density")
    assert_close(found.transitions, sum(t.transitions for t in truth), "density", scale=1.0)
    assert_close(found.starts, sum(t.states[0] for t in truth), "density")
    assert_close(best, [t.best[0] for t in truth], "density")
    assert path.tolist() == [s for t in truth for s in t.best[1]]


@pytest.mark.parametrize("A", [LEFT_TO_RIGHT, np.full((3, 3), 1 / 3), np.eye(3)], ids=len)
def test_pieces_equal_the_textbook_recursion_on_long_sequences(A):
    chain, lengths = Chain(np.array([0.9, 0.05, 0.05]), A), [1000, 3, 457]
    log_b = draw_logs(sum(lengths), 3, 4.0)
    found, ends = chain.smooth(log_b, lengths), np.cumsum(lengths)
    for e, n, value in zip(ends, lengths, found.loglikelihoods, strict=True):
        alpha, beta = stepwise(chain, log_b[e - n : e])
        total = logsumexp(alpha[-1])
        assert_close(value, total, "density")
        assert_close(found.states[e - n : e], np.exp(alpha + beta - total), "density")


def test_a_state_that_looks_hopeless_is_not_lost():
    """Only one state at a time fits, by thousands of nats, and the chain forbids the way back."""
    T = 400
    log_b = np.zeros((T, 2))
    log_b[: T // 2, 1], log_b[T // 2 :, 0] = -2000.0, -3000.0
    still = Chain(np.array([0.5, 0.5]), np.eye(2))
    found = still.smooth(log_b, [T])
    assert_close(found.loglikelihoods, [np.log(0.5) - 2000.0 * T / 2], "density")
    assert_close(found.states[:, 1], np.ones(T), "exact")
    assert_close(still.viterbi(log_b, [T])[0], [np.log(0.5) - 2000.0 * T / 2], "density")


def test_a_hundred_thousand_steps_do_not_underflow():
    T, rng = 100_000, np.random.default_rng(0)
    log_b = 300 * rng.standard_normal((T, 4)) - 1e4
    for zeros in (False, True):
        chain = draw_chain(4, zeros=zeros)
        found = chain.smooth(log_b, [T])
        assert np.all(np.isfinite(found.loglikelihoods)) and np.all(np.isfinite(found.states))
        assert_close(found.states.sum(axis=1), np.ones(T), "exact")
        assert_close(found.transitions.sum(), T - 1, "density")
        best, path = chain.viterbi(log_b, [T])
        assert best[0] <= found.loglikelihoods[0]
        logs = chain.log_start[path[0]] + chain.log_transitions[path[:-1], path[1:]].sum()
        assert_close(logs + log_b[np.arange(T), path].sum(), best[0], "density")


def test_equal_rows_forget_everything():
    """A chain without memory is a mixture: states are independent given the rows."""
    pi = np.array([0.2, 0.5, 0.3])
    log_b = draw_logs(500, 3, 2.0)
    found = Chain(pi, np.tile(pi, (3, 1))).smooth(log_b, [500])
    joint = log_b + np.log(pi)
    density = logsumexp(joint, axis=1)
    assert_close(found.loglikelihoods, [density.sum()], "density")
    assert_close(found.states, np.exp(joint - density[:, None]), "density")


def test_filtering_goes_on_from_where_it_was():
    chain, log_b = draw_chain(3), draw_logs(40, 3, 3.0)
    whole, value = chain.filtered(log_b, [40])
    head, first = chain.filtered(log_b[:25], [25])
    state, total = head[-1], float(first[0])
    for t in range(25, 40):
        now, more = chain.filtered(log_b[t : t + 1], [1], before=state)
        state, total = now[0], total + float(more[0])
        assert_close(state, whole[t], "density")
    assert_close(total, value[0], "density")


def test_filtering_and_smoothing_agree_at_the_end():
    chain, log_b = draw_chain(4), draw_logs(321, 4)
    lengths = [300, 21]
    ends = np.cumsum(lengths) - 1
    both = chain.filtered(log_b, lengths)[0][ends], chain.smooth(log_b, lengths).states[ends]
    assert_close(*both, "density")


def test_a_sequence_without_a_path_is_refused():
    chain = Chain(np.array([1.0, 0.0]), np.eye(2))
    log_b = np.array([[0.0, 0.0], [-np.inf, 0.0]])
    with pytest.raises(DegenerateError, match="sequence 0 has probability zero"):
        chain.smooth(log_b, [2])
    with pytest.raises(DegenerateError, match="no path"):
        chain.viterbi(log_b, [2])


@pytest.mark.parametrize(
    ("start", "A", "message"),
    [
        ([0.5, 0.6], np.eye(2), "start must be probabilities"),
        ([0.5, 0.5], [[1.0, 0.0], [0.5, 0.4]], "transitions must be probabilities"),
        ([0.5, 0.5], [[1.5, -0.5], [0.5, 0.5]], "transitions must be probabilities"),
        ([0.5, 0.5], np.eye(3), "shapes"),
    ],
)
def test_a_chain_holds_probabilities(start, A, message):
    with pytest.raises(ValueError, match=message):
        Chain(np.array(start), np.array(A))


def test_the_update_counts_keeps_zeros_and_rows_never_left():
    chain = Chain(np.array([1.0, 0.0]), np.array([[0.5, 0.5], [0.0, 1.0]]))
    moved = chain.update(np.array([4.0, 1.0]), np.array([[3.0, 1.0], [2.0, 0.0]]))
    assert_close(moved.transitions, [[0.75, 0.25], [0, 1]], "exact")  # row 1: counts not allowed
    assert_close(moved.start, [1, 0], "exact")


def test_a_sticky_prior_adds_stays():
    chain = Chain(np.full(2, 0.5), np.full((2, 2), 0.5))
    prior = 10 * np.eye(2)
    moved = chain.update(np.ones(2), np.array([[3.0, 7.0], [0.0, 0.0]]), prior)
    assert_close(moved.transitions, [[13 / 20, 7 / 20], [0, 1]], "exact")
    assert_close(chain.log_prior(prior), 20 * np.log(0.5), "exact")
    assert chain.log_prior(None) == 0.0


def test_pseudo_counts_below_one_are_part_of_the_prior():
    chain = Chain(np.full(2, 0.5), np.array([[0.25, 0.75], [0.0, 1.0]]))
    prior = np.array([[0.5, 0.25], [0.0, 3.0]])  # nothing where nothing may happen
    assert_close(chain.log_prior(prior), 0.5 * np.log(0.25) + 0.25 * np.log(0.75), "exact")


def test_forecast_ends_where_nothing_changes():
    chain = draw_chain(4)
    values, vectors = np.linalg.eig(chain.transitions.T)
    pi = vectors[:, np.argmax(values.real)].real
    ahead = chain.after(np.eye(4)[0], 200)
    assert_close(ahead[0], chain.transitions[0], "exact")
    assert_close(ahead[1], (chain.transitions @ chain.transitions)[0], "density")
    assert_close(ahead[-1], pi / pi.sum(), "density")


def test_sampled_paths_have_the_frequencies_of_the_chain():
    chain, T = draw_chain(3), 60_000
    path = chain.sample(T, np.random.default_rng(0))
    counts = np.zeros((3, 3))
    np.add.at(counts, (path[:-1], path[1:]), 1)
    A, n = chain.transitions, counts.sum(axis=1, keepdims=True)
    assert np.all(np.abs(counts / n - A) <= 4 * np.sqrt(A * (1 - A) / n))


# --- bands and pins beside scans ------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 2, 128])
@pytest.mark.parametrize("lengths", [[40], [1, 7, 1, 31]], ids=str)
def test_a_band_is_the_scan_in_logarithms(lengths, piece, monkeypatch):
    chain, log_b = draw_chain(3), draw_logs(40, 3, 4.0)
    band = scans.Band.of(chain, log_b, lengths, piece)
    found, forward = band.smooth(), chain.filtered(log_b, lengths)
    with monkeypatch.context() as patch:
        by_scans(patch)
        truth, expected = chain.smooth(log_b, lengths), chain.filtered(log_b, lengths)
    for one, other in zip([*found, *forward], [*truth, *expected], strict=True):
        assert_close(one, other, "density")


def test_a_band_keeps_its_scale_over_long_sequences_and_gives_up_where_it_is_lost():
    log_b = draw_logs(5000, 3, 20.0)
    found = scans.Band.of(draw_chain(3), log_b, [5000]).smooth()
    assert found is not None
    assert_close(found.states.sum(axis=1), np.ones(5000), "exact")
    assert_close(found.transitions.sum(), 4999.0, "density")
    # a way less is no reason to give up
    some = Chain(np.ones(3) / 3, np.array([[0.5, 0.5, 0], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]]))
    assert scans.Band.of(some, draw_logs(50, 3, 1.0), [50]).smooth() is not None
    # a state that is hardly reachable, and then the only one
    far = np.array([[0.0, -1e4], [0.0, -1e4], [-1e5, 0.0]])
    chain = Chain(np.array([0.5, 0.5]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    band = scans.Band.of(chain, far, [3])
    assert band is None or band.smooth() is None
    assert_close(chain.smooth(far, [3]).loglikelihoods, [np.log(0.5) - 2e4], "density")


@pytest.mark.parametrize("zeros", [False, True], ids=["ergodic", "a way less"])
@pytest.mark.parametrize("lengths", [[600], [1, 199, 2, 398]], ids=str)
@pytest.mark.parametrize("spread", [0.3, 3.0, 10.0])
def test_the_best_path_is_the_same_row_by_row_and_between_pins(spread, lengths, zeros):
    A = draw_chain(3).transitions + np.eye(3)
    A[0, 2] *= not zeros
    chain = Chain(np.ones(3) / 3, A / A.sum(axis=1, keepdims=True))
    log_b = draw_logs(600, 3, spread)
    ends = np.cumsum(lengths)
    firsts, lasts = ends - lengths, ends - 1
    pinned = scans._path_between_pins(chain, log_b, firsts, lasts, long_stretch=1e9)
    assert np.array_equal(pinned, scans._path_by_row(chain, log_b, firsts))
    for longest in (0.0, 1e9):  # rows are taken where stretches are too long
        value, path = chain.viterbi(log_b, lengths, few_terms=0, long_stretch=longest)
        assert np.array_equal(path, pinned)
        assert len(value) == len(lengths)


def test_two_states_have_the_path_that_is_found_between_pins():
    chain, lengths = Chain(np.array([0.7, 0.3]), np.array([[0.8, 0.2], [0.4, 0.6]])), [90, 1, 109]
    log_b = draw_logs(200, 2, 1.0)
    found = chain.viterbi(log_b, lengths)
    wanted = chain.viterbi(log_b, lengths, few_terms=0, long_stretch=1e9)
    assert np.array_equal(found[1], wanted[1])
    assert_close(found[0], wanted[0], "density")
