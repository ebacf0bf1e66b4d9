"""From a `Spectrum` to a Gaussian: the closed forms for q and σ², and the floors of σ².

Iterative fits have formulas of their own for σ², in the M steps of `models`; they share its floors.
Read `spiked` (the density), `rules` (σ², relevance), `selection` (q), `observed` (conditioning
on what each row observed), `reference` (what the training rows say of T² and SPE),
`control_limits` (T² and SPE of rows, and their limits), `loadings`, `supplementary` (columns and
rows beside the model), `pooling` (completed tables) and `wishart`.
"""

from dualpca.gaussian.control_limits import (
    FactorMonitor,
    Monitor,
    Outliers,
    SpikedMonitor,
    Statistics,
    judge,
    laws,
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
    StackedLatents,
    Sums,
    all_latents,
    condition,
    conditional,
    densities,
    drawn_imputations,
    each,
    expected_stretch,
    groups,
    imputed,
    latent_frame,
    latents,
    m_step,
    moment_sums,
    predicted,
    stacked_latents,
    t_constant,
    t_density,
    t_terms,
    whiteners,
)
from dualpca.gaussian.reference import Reference, completed, incomplete_reference, reference_of
from dualpca.gaussian.rules import (
    HEYWOOD,
    LEAST_NOISE,
    NO_NOISE,
    VARIANCE_ROUNDING,
    at_least_one,
    check_noise,
    check_request,
    fit_relevance,
    has_vanished,
    is_count,
    is_share,
    leading,
    left_over,
    loglikelihood,
    maximum_likelihood,
    penalty,
    refuse_no_noise,
    share_count,
    spiked_gaussian,
)
from dualpca.gaussian.selection import (
    CROSS_VALIDATED,
    PARALLEL,
    RULES,
    WORSE_IN_A_ROW,
    Score,
    Selection,
    Trained,
    apply_rule,
    best_candidate,
    can_simulate,
    given_up,
    horn,
    independent_streams,
    largest_of,
    largest_values,
    simplest,
    simulated_horn,
    summary,
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
