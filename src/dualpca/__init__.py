"""The principal-component family as one Gaussian idea, in features and in kernels."""

from dualpca.estimators.bayesian import BayesianPCA
from dualpca.estimators.canonical import CCA
from dualpca.estimators.dual import DualPPCA
from dualpca.estimators.factor import FactorAnalysis
from dualpca.estimators.generator import Generator
from dualpca.estimators.imputer import Imputer
from dualpca.estimators.kernel import KernelPCA
from dualpca.estimators.pca import PCA
from dualpca.estimators.ppca import PPCA
from dualpca.estimators.probabilistic_kernel import ProbabilisticKernelPCA
from dualpca.estimators.twin import TwinKernelPCA

__version__ = "0.1.0"

__all__ = [
    "CCA",
    "PCA",
    "PPCA",
    "BayesianPCA",
    "DualPPCA",
    "FactorAnalysis",
    "Generator",
    "Imputer",
    "KernelPCA",
    "ProbabilisticKernelPCA",
    "TwinKernelPCA",
    "__version__",
]
