"""Kernels: the equation, nothing about how it is evaluated at scale.

A new kernel is one class: its definition registers it under `name`, and it closes under `+`, `*`
and scaling.
"""

from dualpca.kernels.algebra import Product, Scaled, Sum
from dualpca.kernels.angular import Angular, ArcCosine, Cosine
from dualpca.kernels.base import KERNELS, Kernel
from dualpca.kernels.choose import make_kernel
from dualpca.kernels.columnwise import AdditiveChi2, Chi2, Laplacian
from dualpca.kernels.dot import Affine, Constant, Linear, Polynomial, Sigmoid
from dualpca.kernels.gaussian_process import FromSklearn, translate
from dualpca.kernels.objects import Function, Precomputed
from dualpca.kernels.periodic import Periodic
from dualpca.kernels.stationary import RBF, Matern, RationalQuadratic, Stationary

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
