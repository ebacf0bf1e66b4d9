"""The principal-component family as one Gaussian idea, in features and in kernels."""

from typing import TYPE_CHECKING, Any

from dualpca.batches import Batches
from dualpca.checkpoints import Checkpoint
from dualpca.estimators import _composed_states  # noqa: F401  (it lets models be saved and loaded)
from dualpca.estimators._saving import save
from dualpca.estimators.bayesian import BayesianPCA
from dualpca.estimators.canonical import CCA
from dualpca.estimators.dual import DualPPCA
from dualpca.estimators.factor import FactorAnalysis
from dualpca.estimators.generator import Generator
from dualpca.estimators.hidden_markov import HiddenMarkovPCA
from dualpca.estimators.imputer import Imputer
from dualpca.estimators.kernel import KernelPCA
from dualpca.estimators.mixture import MixturePPCA
from dualpca.estimators.pca import PCA
from dualpca.estimators.ppca import PPCA
from dualpca.estimators.probabilistic_kernel import ProbabilisticKernelPCA
from dualpca.estimators.sequence_classifier import SequenceClassifier
from dualpca.estimators.twin import TwinKernelPCA
from dualpca.onnx_export import to_onnx
from dualpca.persistence import load

if TYPE_CHECKING:
    from dualpca.estimators.kernel_search import KernelSearch

__version__ = "0.1.0"

__all__ = [
    "CCA",
    "PCA",
    "PPCA",
    "Batches",
    "BayesianPCA",
    "Checkpoint",
    "DualPPCA",
    "FactorAnalysis",
    "Generator",
    "HiddenMarkovPCA",
    "Imputer",
    "KernelPCA",
    "KernelSearch",
    "MixturePPCA",
    "ProbabilisticKernelPCA",
    "SequenceClassifier",
    "TwinKernelPCA",
    "__version__",
    "load",
    "save",
    "to_onnx",
]


def __getattr__(name: str) -> Any:
    """Import the search when it is first asked for: it brings half of scikit-learn."""
    if name == "KernelSearch":
        from dualpca.estimators.kernel_search import KernelSearch

        return KernelSearch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
