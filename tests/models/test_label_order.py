"""Components and states are numbered by one rule: labels agree wherever the rows come from."""

import numpy as np
import pytest

from dualpca import Batches, HiddenMarkovPCA, MixturePPCA
from dualpca.models.emissions import label_order

CENTRES = np.array([[0.0, 9.0, 0.0], [0.0, -9.0, 0.0], [9.0, 0.0, 0.0], [-9.0, 0.0, 5.0]])


def runs(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of four groups, two of which agree in the first feature, in runs of 20."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(rng.integers(4, size=n // 20), 20)
    X = CENTRES[labels] + rng.normal(size=(n, 1)) * [1.0, 1.0, 0.0] + 0.3 * rng.normal(size=(n, 3))
    return X, np.array([2, 1, 3, 0])[labels]  # by the first feature, then the second


def from_memory(model, X, folder):
    return model.fit(X)


def from_chunks(model, X, folder):
    return model.fit(Batches(np.split(X, [500, 900, 2100])))


def from_a_file(model, X, folder):
    np.save(folder / "x.npy", X)
    return model.fit(folder / "x.npy")


def from_dask(model, X, folder):
    return model.fit(pytest.importorskip("dask.array").from_array(X, chunks=(1000, -1)))


def from_a_stream(model, X, folder):
    for rows in np.array_split(X, 10):
        model.partial_fit(rows)
    return model


def from_torch(model, X, folder):
    return model.fit(pytest.importorskip("torch").asarray(X))


ROUTES = [from_memory, from_chunks, from_a_file, from_dask, from_torch, from_a_stream]


@pytest.mark.parametrize("route", ROUTES)
def test_labels_of_a_mixture(route, tmp_path):
    X, labels = runs(4000)
    X = X[np.random.default_rng(1).permutation(len(X))]
    model = route(MixturePPCA(4, 1, random_state=len(route.__name__)), X, tmp_path)
    new, labels = runs(400, seed=2)
    if route is from_torch:
        new = pytest.importorskip("torch").asarray(new)
    assert np.array_equal(np.asarray(model.predict(new)), labels)


@pytest.mark.parametrize("route", ROUTES[:-1])
def test_labels_of_a_chain(route, tmp_path):
    X, _ = runs(4000)
    model = HiddenMarkovPCA(4, 1, n_mixtures=1, random_state=len(route.__name__), n_init=2)
    model = route(model, X, tmp_path)
    new, labels = runs(400, seed=2)
    if route is from_torch:
        new = pytest.importorskip("torch").asarray(new)
    assert np.array_equal(np.asarray(model.predict(new)), labels)
    assert np.all(np.diagonal(np.asarray(model.transitions_)) > 0.8)


def test_components_within_a_state_and_states_from_left_to_right():
    X, _ = runs(4000)
    found = HiddenMarkovPCA(2, 1, n_mixtures=2, random_state=3).fit(X).means_
    assert np.all(found[:, 0, 0] < found[:, 1, 0] + 0.5)
    rng = np.random.default_rng(0)
    sequences = [np.repeat([[5.0], [0.0], [-5.0]], 10, axis=0) for _ in range(5)]
    rows = np.concatenate(sequences) + rng.normal(size=(150, 2)) * [1.0, 0.1]
    chain = HiddenMarkovPCA(3, 1, topology="left-to-right").fit(rows, lengths=[30] * 5)
    assert np.all(np.diff(chain.means_[:, 0, 0]) < -4)  # time has the first word
    assert np.array_equal(chain.predict(rows[:30]), np.repeat([0, 1, 2], 10))


def test_labels_in_a_kernel_space_are_those_of_the_inputs():
    X, _ = runs(1000)
    new, labels = runs(200, seed=2)
    for model in (MixturePPCA(4, 1, kernel="linear"), HiddenMarkovPCA(4, 1, kernel="linear")):
        assert np.array_equal(model.set_params(n_directions=3).fit(X).predict(new), labels)


def test_the_rule():
    """First feature that differs, then the next; equal ones by weight; ranks stay in place."""

    def order(means, weights, ranks=None):
        ones = np.ones_like(means)
        return label_order(
            np.array(means), ones, np.array(weights), ranks or [1] * len(means)
        ).tolist()

    assert order([[3.0], [1.0], [2.0]], [0.2, 0.3, 0.5]) == [1, 2, 0]
    assert order([[0.001, 5.0], [0.0, 7.0], [9.0, 0.0]], [0.4, 0.3, 0.3]) == [0, 1, 2]
    assert order([[0.0, 7.0], [0.001, 5.0], [9.0, 0.0]], [0.4, 0.3, 0.3]) == [1, 0, 2]
    assert order([[0.0], [0.0], [0.0]], [0.2, 0.5, 0.3]) == [1, 2, 0]
    assert order([[3.0], [1.0], [2.0]], [0.2, 0.3, 0.5], ranks=[1, 0, 1]) == [2, 1, 0]
