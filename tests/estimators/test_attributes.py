"""Fitted attributes: read from the model, set where they are a field of it, absent before."""

import numpy as np
import pytest

from dualpca import PCA, PPCA
from dualpca.estimators._attributes import attribute


def rows():
    return np.random.default_rng(0).normal(size=(40, 4)) * [4.0, 3.0, 1.0, 1.0] + 7


def test_on_the_class_it_is_itself_and_before_the_fit_it_is_absent():
    assert isinstance(PPCA.mean_, attribute)
    assert not hasattr(PPCA(2), "mean_")


def test_a_field_that_is_set_is_what_methods_use():
    X = rows()
    model = PPCA(2).fit(X)
    before = model.transform(X)
    model.mean_ = model.mean_ + model.components_[0]
    np.testing.assert_allclose(model.mean_, X.mean(axis=0) + model.components_[0])
    assert np.abs(model.transform(X) - before).max() > 0.01


def test_what_follows_from_the_model_cannot_be_set():
    model = PCA(2).fit(rows())
    with pytest.raises(AttributeError, match="singular_values_ of PCA follows from the model"):
        model.singular_values_ = np.ones(2)
    scaled = PPCA(2, standardize=True).fit(rows())
    with pytest.raises(AttributeError, match="mean_ of PPCA follows from standardised columns"):
        scaled.mean_ = np.zeros(4)


def test_values_are_in_the_units_of_the_rows():
    X = rows()
    model = PPCA(2, standardize=True).fit(X)
    np.testing.assert_allclose(model.mean_, X.mean(axis=0))
    np.testing.assert_allclose(model.scale_, X.std(axis=0))
    assert PPCA(2).fit(X).scale_ is None
