"""Traces of functions of an operator, by quadrature from random probes."""

import numpy as np
import pytest

from dualpca.data.moments import Moments
from dualpca.operators.dual import quadrature
from dualpca.operators.primal import Scatter


@pytest.mark.parametrize("seed", range(3))
def test_quadrature_knows_the_trace_of_a_diagonal_and_its_polynomials(seed):
    values = np.linspace(-1.0, 4.0, 40)
    A = Scatter(Moments(1.0, np.zeros(40), np.diag(values)))
    nodes, weights = quadrature(A, np.random.default_rng(seed))
    for power in (0, 1, 2, 3):  # probes of ±1 see a diagonal as it is
        assert np.sum(weights * nodes**power) == pytest.approx(np.sum(values**power), rel=1e-9)
