"""New points: densities over latents, Langevin chains, paths, and how good the points are."""

from dualpca.generation.chains import Chain, langevin
from dualpca.generation.convergence import effective_sample_size, r_hat
from dualpca.generation.densities import Density, Gaussian, KernelDensity, Mixture, fit_gaussian
from dualpca.generation.paths import along_density, straight, traversal
from dualpca.generation.quality import Coverage, Nearest, coverage, nearest
from dualpca.generation.smoothing import bandwidth, fit_kernel_density, leave_one_out
from dualpca.generation.temperature import tempered
from dualpca.generation.two_samples import TwoSample, mmd_test

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
