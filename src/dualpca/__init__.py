"""The principal-component family as one Gaussian idea, in features and in kernels.

A name is imported when it is first asked for, with what it needs and no more (PEP 562).
"""

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers see; `_HOMES` below says the same
    from dualpca import errors as errors
    from dualpca import kernels as kernels
    from dualpca import preimages as preimages
    from dualpca.data.kinds import Censored as Censored
    from dualpca.data.table import Batches as Batches
    from dualpca.estimators.batch_unfolder import BatchUnfolder as BatchUnfolder
    from dualpca.estimators.bayesian import BayesianPCA as BayesianPCA
    from dualpca.estimators.canonical import CCA as CCA
    from dualpca.estimators.conformal import Conformal as Conformal
    from dualpca.estimators.conformal import conformal as conformal
    from dualpca.estimators.copula import CopulaPPCA as CopulaPPCA
    from dualpca.estimators.dual import DualPPCA as DualPPCA
    from dualpca.estimators.factor import FactorAnalysis as FactorAnalysis
    from dualpca.estimators.generator import Generator as Generator
    from dualpca.estimators.hidden_markov import HiddenMarkovPCA as HiddenMarkovPCA
    from dualpca.estimators.hierarchy import HierarchicalPPCA as HierarchicalPPCA
    from dualpca.estimators.imputer import Imputer as Imputer
    from dualpca.estimators.kernel import KernelPCA as KernelPCA
    from dualpca.estimators.kernel_canonical import KernelCCA as KernelCCA
    from dualpca.estimators.kernel_search import KernelSearch as KernelSearch
    from dualpca.estimators.mixture import MixturePPCA as MixturePPCA
    from dualpca.estimators.monitor import Monitor as Monitor
    from dualpca.estimators.pca import PCA as PCA
    from dualpca.estimators.ppca import PPCA as PPCA
    from dualpca.estimators.probabilistic_kernel import LatentPosterior as LatentPosterior
    from dualpca.estimators.probabilistic_kernel import (
        ProbabilisticKernelPCA as ProbabilisticKernelPCA,
    )
    from dualpca.estimators.robust import RobustPPCA as RobustPPCA
    from dualpca.estimators.saving import load as load
    from dualpca.estimators.saving import save as save
    from dualpca.estimators.saving import to_onnx as to_onnx
    from dualpca.estimators.sequence_classifier import SequenceClassifier as SequenceClassifier
    from dualpca.estimators.supplementary import supplementary as supplementary
    from dualpca.estimators.twin import TwinKernelPCA as TwinKernelPCA
    from dualpca.files.checkpoints import Checkpoint as Checkpoint
    from dualpca.gaussian.calibration import Calibration as Calibration
    from dualpca.gaussian.control_limits import Outliers as Outliers
    from dualpca.gaussian.pooling import JointTest as JointTest
    from dualpca.gaussian.pooling import Pooled as Pooled
    from dualpca.gaussian.pooling import PooledModel as PooledModel
    from dualpca.gaussian.pooling import pool as pool
    from dualpca.gaussian.selection import Selection as Selection
    from dualpca.gaussian.supplementary import Supplementary as Supplementary
    from dualpca.gaussian.supplementary import SupplementaryLevels as SupplementaryLevels
    from dualpca.gaussian.supplementary import SupplementaryNumbers as SupplementaryNumbers
    from dualpca.gaussian.supplementary import SupplementaryRatios as SupplementaryRatios
    from dualpca.gaussian.supplementary import SupplementaryRows as SupplementaryRows
    from dualpca.models.mixture.choosing import MixtureSelection as MixtureSelection
    from dualpca.search.trials import TrialRecord as TrialRecord

__version__ = "0.1.0"

_HOMES = {
    "BatchUnfolder": "estimators.batch_unfolder",
    "Batches": "data.table",
    "BayesianPCA": "estimators.bayesian",
    "CCA": "estimators.canonical",
    "Calibration": "gaussian.calibration",
    "Censored": "data.kinds",
    "Checkpoint": "files.checkpoints",
    "Conformal": "estimators.conformal",
    "CopulaPPCA": "estimators.copula",
    "DualPPCA": "estimators.dual",
    "FactorAnalysis": "estimators.factor",
    "Generator": "estimators.generator",
    "HiddenMarkovPCA": "estimators.hidden_markov",
    "HierarchicalPPCA": "estimators.hierarchy",
    "Imputer": "estimators.imputer",
    "JointTest": "gaussian.pooling",
    "KernelCCA": "estimators.kernel_canonical",
    "KernelPCA": "estimators.kernel",
    "KernelSearch": "estimators.kernel_search",
    "LatentPosterior": "estimators.probabilistic_kernel",
    "MixturePPCA": "estimators.mixture",
    "MixtureSelection": "models.mixture.choosing",
    "Monitor": "estimators.monitor",
    "Outliers": "gaussian.control_limits",
    "PCA": "estimators.pca",
    "PPCA": "estimators.ppca",
    "Pooled": "gaussian.pooling",
    "PooledModel": "gaussian.pooling",
    "ProbabilisticKernelPCA": "estimators.probabilistic_kernel",
    "RobustPPCA": "estimators.robust",
    "Selection": "gaussian.selection",
    "SequenceClassifier": "estimators.sequence_classifier",
    "Supplementary": "gaussian.supplementary",
    "SupplementaryLevels": "gaussian.supplementary",
    "SupplementaryNumbers": "gaussian.supplementary",
    "SupplementaryRatios": "gaussian.supplementary",
    "SupplementaryRows": "gaussian.supplementary",
    "TrialRecord": "search.trials",
    "TwinKernelPCA": "estimators.twin",
    "conformal": "estimators.conformal",
    "load": "estimators.saving",
    "pool": "gaussian.pooling",
    "save": "estimators.saving",
    "supplementary": "estimators.supplementary",
    "to_onnx": "estimators.saving",
}
"""Public name to the module that defines it."""

__all__ = sorted([*_HOMES, "__version__"])

_SPACES = ("errors", "kernels", "preimages")
"""Modules that `dir` lists; the others can be reached by their names too."""


_ALIASES = {
    f"{__name__}.{name}": f"{__name__}.app.{name}" for name in ("datasets", "plots", "report")
}
"""Public modules that live in the application."""


class _Aliases(MetaPathFinder, Loader):
    """Let `import dualpca.plots` find the module where it is kept, and not import it twice."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in _ALIASES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self.spec = import_module(_ALIASES[spec.name]).__spec__
        return sys.modules[_ALIASES[spec.name]]

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import system has put the alias there


sys.meta_path.append(_Aliases())


if not TYPE_CHECKING:  # it would make every name a name of the package

    def __getattr__(name: str) -> Any:
        """Import a public name, or a module of the package, and keep it."""
        if name in _HOMES:
            value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        elif name.isidentifier() and name[:2] != "__" and find_spec(f"{__name__}.{name}"):
            value = import_module(f"{__name__}.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SPACES})
