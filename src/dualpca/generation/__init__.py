"""New points: densities over latents, Langevin chains, paths, and how good the points are.

Read `densities`, `chains` and `paths`, then `model`, which a `Generator` fits, and `quality`.
"""

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
from dualpca.generation.model import DensityFit, GeneratorModel, fit_generator
from dualpca.generation.paths import along_density, straight, traversal
from dualpca.generation.quality import (
    Coverage,
    Nearest,
    Quality,
    TwoSample,
    coverage,
    mmd_test,
    nearest,
    sample_quality,
)

__all__ = [
    "Chain",
    "Coverage",
    "Density",
    "DensityFit",
    "Gaussian",
    "GeneratorModel",
    "KernelDensity",
    "Mixture",
    "Nearest",
    "Quality",
    "TwoSample",
    "along_density",
    "bandwidth",
    "coverage",
    "effective_sample_size",
    "fit_gaussian",
    "fit_generator",
    "fit_kernel_density",
    "langevin",
    "leave_one_out",
    "mmd_test",
    "nearest",
    "r_hat",
    "sample_quality",
    "straight",
    "tempered",
    "traversal",
]
