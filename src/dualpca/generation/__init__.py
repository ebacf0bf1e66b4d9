"""New points: densities over latents, Langevin chains, paths, and how good the points are."""

from dualpca.generation.chains import Chain, effective_sample_size, langevin, r_hat
from dualpca.generation.densities import (
    Density,
    Gaussian,
    KernelDensity,
    Mixture,
    bandwidth,
    fit_gaussian,
    fit_kernel_density,
    leave_one_out,
    tempered,
)
from dualpca.generation.densities import covariance_factor as covariance_factor
from dualpca.generation.paths import along_density, straight, traversal
from dualpca.generation.quality import Coverage, Nearest, TwoSample, coverage, mmd_test, nearest

__all__ = [
    "Chain",
    "Coverage",
    "Density",
    "Gaussian",
    "KernelDensity",
    "Mixture",
    "Nearest",
    "TwoSample",
    "along_density",
    "bandwidth",
    "coverage",
    "effective_sample_size",
    "fit_gaussian",
    "fit_kernel_density",
    "langevin",
    "leave_one_out",
    "mmd_test",
    "nearest",
    "r_hat",
    "straight",
    "tempered",
    "traversal",
]
