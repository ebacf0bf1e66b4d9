"""Operators: all that a solver sees. Primal and dual have the same non-zero eigenvalues.

Read `base` (what an operator is), `rows` (centred, weighted, scaled rows), `primal`, `dual`,
`features` (finite feature maps), `subspace` (what a solved kernel operator spans), `spectrum`
(what a solver gives back) and `definiteness` (what can be wrong with a kernel matrix).
"""

from dualpca.operators.base import Factored, Operator
from dualpca.operators.definiteness import (
    ALL_EIGENVALUES_ORDER,
    is_certainly_definite,
    leave_out_negatives,
    mass_of,
    negative_mass,
    negative_mass_of,
    positive_trace,
    warn_of_cancellation,
)
from dualpca.operators.dual import Dual, Fused, Given, Gram, make_gram, stored_bytes
from dualpca.operators.features import (
    Explicit,
    FeatureMap,
    Fourier,
    Landmarks,
    Mapped,
    MappedScatter,
    MappedSubspace,
    leverage,
    map_rows,
    pivoted_cholesky,
    uniform,
)
from dualpca.operators.primal import (
    WIDEST,
    LinearTable,
    PartScatter,
    Primal,
    Scatter,
    complete,
    linear,
    survey,
    used_rows,
    weighed,
)
from dualpca.operators.rows import Frame, Projection
from dualpca.operators.spectrum import Spectrum, deterministic_signs
from dualpca.operators.subspace import Subspace, UncertainSubspace
