"""Kernels of rows that are known only in part: their expectations in closed form.

A row x ~ N(m, S), where S is zero in the rows and columns of what was observed, has E k(x, y) and
Cov[k(x, y_i), k(x, y_j)] in closed form for RBF, linear and polynomial kernels and their sums.
"""

from dualpca.expected_kernels.covariances import covariance, projected_covariance
from dualpca.expected_kernels.points import Uncertain
from dualpca.expected_kernels.terms import Term, terms
from dualpca.expected_kernels.values import (
    expected_between,
    expected_diag,
    expected_gram,
    expected_kernel,
)

__all__ = [
    "Term",
    "Uncertain",
    "covariance",
    "expected_between",
    "expected_diag",
    "expected_gram",
    "expected_kernel",
    "projected_covariance",
    "terms",
]
