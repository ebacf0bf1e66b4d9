"""scikit-learn shells around the models: what comes in is checked, what goes out is translated.

What several share: `_types` and `_checks` (input), `_attributes` (what is fitted), `_streaming`
(learning from chunks), `_shell` (what every estimator is: rows in and out, devices, files),
`_linear` and `_kernel` (what linear and kernel models can do). Every other file is one estimator:
`pca`, `ppca`, `bayesian`, `robust`, `factor`, `canonical`, `imputer`, `copula`, `supplementary`,
`mixture`, `hidden_markov`, `sequence_classifier`, `kernel`, `dual`, `probabilistic_kernel`, `twin`,
`generator`, `kernel_search`. `saving` writes and reads them; `calibrating` asks whether their
intervals can be trusted, `conformal` gives others that hold for any law of the rows.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a module of the package."""
        if not name.startswith("__") and find_spec(f"{__name__}.{name}"):
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
