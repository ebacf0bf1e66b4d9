"""Operators: all that a solver sees. Primal and dual have the same non-zero eigenvalues.

Read `base` (what an operator is, and the `Spectrum` that a solver gives back), `rows` (centred,
weighted, scaled rows), `primal`, `dual` (with what can be wrong with a kernel matrix), `spread`
(its products shared by several devices or workers), `features` (finite feature maps) and `subspace`
(what a solved kernel operator spans).
"""

from dualpca.operators.base import (
    Factored,
    Negatives,
    Operator,
    Spectrum,
)
from dualpca.operators.columns import ColumnGram, ColumnTable, by_columns
from dualpca.operators.dual import (
    ALL_EIGENVALUES_ORDER,
    MOST_FORMED,
    SINGLE_EPS,
    Dual,
    ExpectedGram,
    Fused,
    Given,
    Gram,
    is_certainly_definite,
    make_gram,
    negatives_of,
    negatives_of_matrix,
    stored_bytes,
    warn_of_cancellation,
    warn_of_negatives,
)
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
    DeviceScatter,
    FeatureOperator,
    LinearTable,
    PartScatter,
    Primal,
    Rescaled,
    Scatter,
    complete,
    device_scatter,
    linear,
    survey,
    weighed,
)
from dualpca.operators.rows import Frame, ProjectedRows, Projection
from dualpca.operators.spread import Crew, Devices, Spread
from dualpca.operators.subspace import Subspace, UncertainSubspace
