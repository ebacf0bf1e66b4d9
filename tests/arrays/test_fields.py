"""Walks over the fields of models: every array is moved, once, and nothing else."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from dualpca.arrays import arrays_of
from dualpca.arrays.fields import moved, to_host


class Pair(NamedTuple):
    left: object
    right: object


@dataclass(frozen=True)
class Part:
    a: object
    name: str = "part"


def arrays():
    return [np.arange(k + 1.0) for k in range(5)]


def nested(a, b, c, d):
    return Part((Pair(a, "text"), [b, 3], {"c": Part(c)}, d))


def test_every_array_is_moved_and_the_rest_stays():
    a, b, c, d, _ = arrays()
    found = moved(nested(a, b, c, d), lambda x: x + 10)
    pair, listed, inside, last = found.a
    for new, old in zip((pair.left, listed[0], inside["c"].a, last), (a, b, c, d), strict=True):
        np.testing.assert_array_equal(new, old + 10)
    assert (type(pair), pair.right, listed[1], found.name) == (Pair, "text", 3, "part")


def test_what_holds_no_array_that_moves_is_returned_as_it_is():
    a, b, c, d, _ = arrays()
    value = nested(a, b, c, d)
    assert moved(value, lambda x: x) is value
    assert to_host(value) is value


def test_an_array_in_two_places_is_moved_once():
    a = np.ones(3)
    found = moved(Pair(a, Part(a)), np.copy)
    assert found.left is found.right.a and found.left is not a


def test_arrays_come_in_the_order_of_their_fields():
    a, b, c, _, _ = arrays()
    assert [x.size for x in arrays_of(Part([Pair(b, Part(a)), "text", (c, None)]))] == [2, 1, 3]


def test_tensors_come_to_the_host():
    torch = pytest.importorskip("torch")
    found = to_host(Pair(torch.arange(3.0), Part(np.ones(2))))
    assert type(found.left) is np.ndarray
    np.testing.assert_array_equal(found.left, [0, 1, 2])
