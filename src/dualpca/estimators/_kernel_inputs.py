"""What kernel models accept; kept for importers until all of them are on `KernelEstimator`."""

from __future__ import annotations

from typing import Any

from dualpca.arrays import Array
from dualpca.estimators._base import check_kernel_matrix as check_kernel_matrix
from dualpca.estimators._base import check_points as check_points
from dualpca.kernels import Kernel
from dualpca.models.kernel import KernelChoice
from dualpca.models.kernel import is_precomputed as is_precomputed


def kernel_of(model: Any, X: Array) -> Kernel:
    """Return the kernel that the parameters mean, with numbers found from X in place of words."""
    named = (model.kernel, model.gamma, model.degree, model.coef0, model.kernel_params)
    return KernelChoice(*named).resolved(X)
