"""Kernels: the equation, nothing about how it is evaluated at scale.

A new kernel is one class: its definition registers it under `name`, and it closes under `+`, `*`
and scaling.
"""

from dualpca.kernels.algebra import Product, Scaled, Sum
from dualpca.kernels.base import KERNELS, Kernel
from dualpca.kernels.dot import Linear
from dualpca.kernels.stationary import RBF, Stationary

__all__ = ["KERNELS", "RBF", "Kernel", "Linear", "Product", "Scaled", "Stationary", "Sum"]
