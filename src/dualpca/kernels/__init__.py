"""Kernels: the equation, nothing about how it is evaluated at scale.

A new kernel is one class: its definition registers it under `name`, and it closes under `+`, `*`
and scaling. What else it can do it declares itself. Read `base` (what a kernel is and may declare,
sums, products), `stationary` and `dot` (the kernels), `choose` (from what a user gives to a
kernel), `expected` (kernels of rows with missing values) and `fused_product` (GPU passes).
"""

from dualpca.kernels.base import KERNELS, Kernel, Power, Product, Scaled, Sum
from dualpca.kernels.base import Family as Family
from dualpca.kernels.base import Form as Form
from dualpca.kernels.base import Parameter as Parameter
from dualpca.kernels.base import Scales as Scales
from dualpca.kernels.base import feature_dimension as feature_dimension
from dualpca.kernels.base import feature_map as feature_map
from dualpca.kernels.base import frequencies as frequencies
from dualpca.kernels.base import fused_form as fused_form
from dualpca.kernels.base import has_width as has_width
from dualpca.kernels.base import inverse_distances as inverse_distances
from dualpca.kernels.base import nonnegative_columns as nonnegative_columns
from dualpca.kernels.base import onnx_values as onnx_values
from dualpca.kernels.base import split_params as split_params
from dualpca.kernels.base import thin_factor as thin_factor
from dualpca.kernels.base import with_width as with_width
from dualpca.kernels.choose import ALIASES as ALIASES
from dualpca.kernels.choose import FromSklearn, Function, Precomputed, make_kernel, translate
from dualpca.kernels.choose import accepts_nan as accepts_nan
from dualpca.kernels.choose import is_gaussian_process_kernel as is_gaussian_process_kernel
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
from dualpca.kernels.stationary import (
    RBF,
    AdditiveChi2,
    Chi2,
    Laplacian,
    Matern,
    Periodic,
    RationalQuadratic,
    Stationary,
)

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
    "Power",
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
