"""Kernels: the equation, nothing about how it is evaluated at scale.

A new kernel is one class: its definition registers it under `name`, and it closes under `+`, `*`
and scaling.
"""

from dualpca.kernels.base import KERNELS, Kernel, Product, Scaled, Sum
from dualpca.kernels.base import Pair as Pair
from dualpca.kernels.base import median_chi2_rate as median_chi2_rate
from dualpca.kernels.base import median_over_pairs as median_over_pairs
from dualpca.kernels.base import median_squared_distance as median_squared_distance
from dualpca.kernels.choose import ALIASES as ALIASES
from dualpca.kernels.choose import FromSklearn, make_kernel, translate
from dualpca.kernels.choose import is_gaussian_process_kernel as is_gaussian_process_kernel
from dualpca.kernels.columnwise import AdditiveChi2, Chi2, Laplacian
from dualpca.kernels.dot import (
    Affine,
    Angular,
    ArcCosine,
    Constant,
    Cosine,
    Linear,
    Polynomial,
    Sigmoid,
)
from dualpca.kernels.expected import Uncertain as Uncertain
from dualpca.kernels.expected import expected_between as expected_between
from dualpca.kernels.expected import expected_diag as expected_diag
from dualpca.kernels.expected import expected_gram as expected_gram
from dualpca.kernels.expected import expected_kernel as expected_kernel
from dualpca.kernels.expected import projected_covariance as projected_covariance
from dualpca.kernels.objects import Function, Precomputed
from dualpca.kernels.stationary import RBF, Matern, Periodic, RationalQuadratic, Stationary

__all__ = [
    "KERNELS",
    "RBF",
    "AdditiveChi2",
    "Affine",
    "Angular",
    "ArcCosine",
    "Chi2",
    "Constant",
    "Cosine",
    "FromSklearn",
    "Function",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Periodic",
    "Polynomial",
    "Precomputed",
    "Product",
    "RationalQuadratic",
    "Scaled",
    "Sigmoid",
    "Stationary",
    "Sum",
    "make_kernel",
    "translate",
]
