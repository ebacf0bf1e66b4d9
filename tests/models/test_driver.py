"""The generic loop: stopping, records, Ctrl-C, checkpoints."""

import sys

import numpy as np
import pytest

from dualpca.models import driver
from dualpca.models.driver import (
    Record,
    best_of_starts,
    iterate,
    left_to_gain,
    maximize,
    try_candidates,
)


class Memory:
    """A keeper that keeps in memory."""

    def __init__(self, state=None):
        self.state, self.also, self.offers, self.finished, self.forced = state, dict, [], False, 0

    def offer(self, state, *, now=False):
        self.offers.append(state())
        self.forced += now

    def done(self):
        self.finished = True


def halving(state):
    """State: ("name", distance); gains halve."""
    name, distance = state
    return (name + "x", distance / 2), -distance / 2


def begin():
    return ("", 1.0), Record([-1.0])


def pack(state):
    return {"distance": np.array(state[1])}, {"name": state[0]}


def unpack(state):
    return state[1]["name"], float(state[0]["distance"])


def test_stops_when_the_estimate_of_what_is_left_is_below_tol():
    (name, distance), record = iterate(halving, begin, max_iter=100, tol=0.01)
    # the estimate counts the last gain too: it is twice what is left
    assert record.converged and distance == 2.0**-8 and len(name) == record.n_iter == 8
    assert record.loglikelihoods == [-(2.0**-k) for k in range(9)]


def test_stops_by_a_rule_of_its_own():
    _, record = iterate(halving, begin, max_iter=100, stop=lambda r: r.n_iter == 3)
    assert record.converged and record.n_iter == 3


def test_max_iter_counts_the_steps_before():
    def start():
        return (("", 1.0), Record([-1.0], n_iter=4))

    _, record = iterate(halving, start, max_iter=6)
    assert record.n_iter == 6 and not record.converged
    state, record = iterate(halving, begin, max_iter=0)
    assert state == ("", 1.0) and record.n_iter == 0 and not record.ended


def test_values_before_a_break_are_forgotten():
    def broken(state):
        return len(state[0]) == 3

    _, record = iterate(halving, begin, max_iter=5, anew=broken)
    assert record.loglikelihoods == [-(2.0**-k) for k in (3, 4, 5)] and record.n_iter == 5


def interrupted_at(turn):
    def step(state):
        if len(state[0]) == turn:
            raise KeyboardInterrupt
        return halving(state)

    return step


def test_an_interruption_keeps_the_last_whole_step():
    keeper = Memory()
    options = {"max_iter": 9, "tol": 0.0, "keeper": keeper, "pack": pack}
    state, record = iterate(interrupted_at(2), begin, **options)
    assert state == ("xx", 0.25) and record.interrupted and record.n_iter == 2
    assert record.loglikelihoods == [-1.0, -0.5, -0.25]
    assert keeper.forced == 1 and not keeper.finished


def test_an_interruption_before_any_value_is_raised():
    with pytest.raises(KeyboardInterrupt):
        iterate(interrupted_at(0), lambda: (("", 1.0), Record()), max_iter=9)


def test_a_start_that_was_interrupted_is_returned_and_not_kept():
    keeper = Memory()

    def start():
        return (("", 1.0), Record([-1.0], interrupted=True))

    state, record = iterate(halving, start, max_iter=9, keeper=keeper, pack=pack)
    assert state == ("", 1.0) and record.interrupted
    assert not keeper.offers and not keeper.finished


def test_resuming_ends_where_the_whole_run_would_have():
    whole = iterate(halving, begin, max_iter=100)
    first = Memory()
    iterate(interrupted_at(3), begin, max_iter=100, keeper=first, pack=pack)
    again = Memory(first.offers[-1])

    def never():
        return pytest.fail("a start was made")

    options = {"keeper": again, "pack": pack, "unpack": unpack}
    resumed = iterate(halving, never, max_iter=100, **options)
    assert resumed == whole and again.finished
    ended = Memory(again.offers[-1])  # a file that was kept after the end
    assert iterate(pytest.fail, never, max_iter=100, **options | {"keeper": ended}) == whole


def test_the_estimate_of_what_is_left():
    assert left_to_gain([1.0]) == left_to_gain([1.0, 2.0]) == np.inf
    assert left_to_gain([1.0, 1.0]) == 0.0  # nothing gained
    assert left_to_gain([0.0, 1.0, 0.5]) == 0.0  # nor where it fell
    assert left_to_gain([-np.inf, 1.0]) == np.inf  # the first that is finite says nothing
    assert left_to_gain([0.0, 1.0, 3.0]) == pytest.approx(2 / (1 - 0.99))


def test_every_point_that_is_kept_has_its_value_in_the_record():
    values = []

    def step(theta):  # linear: the first leap lands on the limit
        values.append(-float((theta[0] - 1) ** 2))
        return theta + (1 - theta) / 4, values[-1]

    theta, record = maximize(step, np.array([5.0]))
    assert theta[0] == 1 and values[:3] == [-16, -9, 0]
    assert record.loglikelihoods == values and record.n_iter == len(values)


def score(size, tick):
    tick()
    if size == 9:
        raise KeyboardInterrupt
    if size == 5:
        raise ValueError("too large")
    return -abs(size - 3)


OPTIONS = {"label": "size", "total": 10}


def test_candidates_are_tried_until_no_more_are_needed():
    def worse(scores):
        return scores[-1] < max(scores)

    assert try_candidates([1, 2, 3], score, **OPTIONS) == ([-2, -1, 0], False)
    assert try_candidates(range(1, 9), score, stop=worse, **OPTIONS) == ([-2, -1, 0, -1], False)


def test_candidates_may_depend_on_what_earlier_ones_gave():
    tried = {}

    def sizes():
        yield 8
        while max(tried.values()) < 0:
            yield min(tried) - 2

    def remembered(size, tick):
        tried[size] = score(size, tick) + 1
        return tried[size]

    assert try_candidates(sizes(), remembered, **OPTIONS) == ([-4, -2, 0], False)


def test_an_interruption_keeps_the_candidates_that_are_done():
    assert try_candidates([2, 3, 9, 4], score, **OPTIONS) == ([-1, 0], True)
    with pytest.raises(KeyboardInterrupt):
        try_candidates([9, 2], score, **OPTIONS)


def test_a_fit_passes_an_interruption_on_that_its_record_keeps():
    def fit(interrupted, tick):
        Record([0.0], interrupted=interrupted).raise_interrupted()
        return interrupted

    assert try_candidates([False, True, False], fit, **OPTIONS) == ([False], True)


def test_a_candidate_that_cannot_be_fitted_is_the_last():
    assert try_candidates([3, 5, 4], score, ends=ValueError, **OPTIONS) == ([0], False)
    for candidates, options in (([5, 3], {"ends": ValueError}), ([3, 5], {})):
        with pytest.raises(ValueError, match="too large"):
            try_candidates(candidates, score, **options, **OPTIONS)


def test_the_best_of_several_starts_is_the_one_that_ends_highest():
    """Not the one that begins highest, or was highest on its way."""
    runs = {"a": [-9.0, -1.0, -5.0], "b": [-9.0, -8.0, -3.0], "c": [-0.5, -4.0]}

    def fit(start):
        return start, Record(runs[start])

    def of(found):
        return found[1]

    for order in ("abc", "cba", "bca"):
        assert best_of_starts(order, fit, of)[0] == "b"
        assert best_of_starts(order, fit, of, lambda found: (-ord(found[0]),))[0] == "a"
    assert best_of_starts("ca", fit, of)[0] == "c"


def test_the_keyboard_at_every_line_of_an_iteration():
    """Wherever Ctrl-C strikes, the iteration ends with where it is, or with KeyboardInterrupt."""
    at = [0, -1]

    def tracer(frame, event, _):
        if frame.f_code.co_filename != driver.__file__:
            return None
        if event == "line":
            at[0] += 1
            if at[0] == at[1]:
                raise KeyboardInterrupt
        return tracer

    def climb(strike):
        at[:] = 0, strike
        before = sys.gettrace()
        sys.settrace(tracer)
        try:
            return driver.maximize(lambda t: (0.7 * t + 0.3, -float((t[0] - 1) ** 2)), np.zeros(1))
        except KeyboardInterrupt:
            return None
        finally:
            sys.settrace(before)

    (_, record), lines = climb(-1), at[0]
    assert record.converged and lines > 50
    ends = [climb(k) for k in range(1, lines + 1)]
    kept = [end for end in ends if end is not None]
    assert len(kept) > lines / 2 and all(np.isfinite(end[0]).all() for end in kept)
