"""From a `Spectrum` to a Gaussian: q and σ² are decided here, and nowhere else.

Read `spiked` (the density), `rules` (σ², relevance), `selection` (q), `observed` (conditioning
on what each row observed), `control_limits` (T², SPE), `loadings`, `supplementary` (columns and
rows beside the model), `pooling` (completed tables) and `wishart`.
"""

from dualpca.gaussian.control_limits import (
    FactorMonitor,
    Monitor,
    Outliers,
    Reference,
    SpikedMonitor,
    Statistics,
    judge,
    laws,
    residual_dof,
)
from dualpca.gaussian.loadings import (
    SHARES,
    LoadingPosterior,
    angles,
    incomplete_laplace,
    information,
    laplace,
    rotate,
)
from dualpca.gaussian.observed import (
    NO_DENSITY,
    NO_SECOND_MOMENT,
    Block,
    Factors,
    Group,
    Incomplete,
    Latents,
    Sums,
    all_latents,
    block_sums,
    condition,
    conditional,
    densities,
    drawn_imputations,
    each,
    expected_stretch,
    groups,
    imputed,
    latents,
    predicted,
    t_constant,
    t_density,
    t_terms,
    whiteners,
)
from dualpca.gaussian.rules import (
    HEYWOOD,
    LEAST_NOISE,
    NO_NOISE,
    VARIANCE_ROUNDING,
    check_noise,
    fit_relevance,
    has_vanished,
    left_over,
    loglikelihood,
    maximum_likelihood,
    penalty,
    refuse_no_noise,
    spiked_gaussian,
)
from dualpca.gaussian.selection import (
    CROSS_VALIDATED,
    PARALLEL,
    WORSE_IN_A_ROW,
    Score,
    Selection,
    Trained,
    at_least_one,
    best_candidate,
    check_request,
    given_up,
    horn,
    independent_streams,
    is_count,
    is_share,
    largest_of,
    largest_values,
    leading,
    share_count,
    simplest,
    simulated_horn,
    summary,
    warn_interrupted,
)
from dualpca.gaussian.spiked import (
    LOG_2PI,
    TRUSTED,
    SpikedDensities,
    SpikedGaussian,
    free_factors,
    free_parameters,
    log_densities,
)
from dualpca.gaussian.supplementary import (
    Coded,
    Reliabilities,
    Representation,
    Supplementary,
    SupplementaryRows,
    category_columns,
    deviations,
    number_columns,
    representation,
)
from dualpca.gaussian.wishart import log_wishart
