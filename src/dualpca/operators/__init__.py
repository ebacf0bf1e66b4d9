"""Operators: all that a solver sees. Primal and dual have the same non-zero eigenvalues.

Read `base` (what an operator is), `rows` (centred, weighted, scaled rows), `primal`, `dual`,
`features` (finite feature maps), `subspace` (what a solved kernel operator spans), `spectrum`
(what a solver gives back) and `definiteness` (what can be wrong with a kernel matrix).
"""

from dualpca.operators.base import Factored, Operator
from dualpca.operators.definiteness import leave_out_negatives, negative_mass, warn_of_cancellation
from dualpca.operators.dual import Dual, Fused, Given, Gram, make_gram, stored_bytes
from dualpca.operators.features import (
    Explicit,
    FeatureMap,
    Fourier,
    Landmarks,
    Mapped,
    MappedScatter,
    MappedSubspace,
    landmark_subspace,
    leverage,
    map_rows,
    pivoted_cholesky,
    uniform,
)
from dualpca.operators.primal import (
    WIDEST,
    Gathered,
    LinearTable,
    PartScatter,
    Primal,
    Scatter,
    Survey,
    complete,
    linear,
    scatter_of,
    survey,
    used_rows,
    weighed,
)
from dualpca.operators.rows import Frame, Projection
from dualpca.operators.spectrum import Spectrum, deterministic_signs
from dualpca.operators.subspace import Subspace, UncertainSubspace

__all__ = [
    "WIDEST",
    "Dual",
    "Explicit",
    "Factored",
    "FeatureMap",
    "Fourier",
    "Frame",
    "Fused",
    "Gathered",
    "Given",
    "Gram",
    "Landmarks",
    "LinearTable",
    "Mapped",
    "MappedScatter",
    "MappedSubspace",
    "Operator",
    "PartScatter",
    "Primal",
    "Projection",
    "Scatter",
    "Spectrum",
    "Subspace",
    "Survey",
    "UncertainSubspace",
    "complete",
    "deterministic_signs",
    "landmark_subspace",
    "leave_out_negatives",
    "leverage",
    "linear",
    "make_gram",
    "map_rows",
    "negative_mass",
    "pivoted_cholesky",
    "scatter_of",
    "stored_bytes",
    "survey",
    "uniform",
    "used_rows",
    "warn_of_cancellation",
    "weighed",
]
