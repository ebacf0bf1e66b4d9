"""New points: densities over latents, Langevin chains, paths, and how good the points are.

Read `densities`, `chains` and `paths`, then `model`, which a `Generator` fits, and `quality`.
"""

from dualpca.generation.chains import LangevinChains
from dualpca.generation.densities import (
    Density,
    Gaussian,
    KernelDensity,
    MixtureDensity,
    fit_gaussian,
    fit_kernel_density,
)
from dualpca.generation.model import GeneratorModel as GeneratorModel
from dualpca.generation.model import fit_generator as fit_generator
from dualpca.generation.quality import Nearest, Quality, nearest, sample_quality
from dualpca.generation.quality import newness as newness

__all__ = [
    "Density",
    "Gaussian",
    "KernelDensity",
    "LangevinChains",
    "MixtureDensity",
    "Nearest",
    "Quality",
    "fit_gaussian",
    "fit_kernel_density",
    "nearest",
    "sample_quality",
]
