"""From a `Spectrum` to a Gaussian: the closed forms for q and σ², and the floors of σ².

Iterative fits have formulas of their own for σ², in the M steps of `models`; they share its floors.
Models use `rules`, `observed`, `selection` and `loadings` as modules, estimators and the
application `calibration`; what others use is listed below.

Read `spiked` (the density), `rules` (σ², relevance), `selection` (q), `observed` (conditioning
on what each row observed), `reference` (what the training rows say of T² and SPE),
`control_limits` (T² and SPE of rows, and their limits), `estimated` (what errors of parameters add
to posteriors), `drawn` (the same by draws of them, for factor analysis), `loadings`,
`supplementary` (columns and rows beside the model), `pooling` (completed tables), `fits`
(regressions of other packages, for it), `calibration` (how many hidden entries intervals contain)
and `wishart`.
"""

from dualpca.gaussian.control_limits import (
    FactorJudge,
    Judge,
    Law,
    Maps,
    Outliers,
    SpikedJudge,
    Statistics,
    judge,
    laws,
)
from dualpca.gaussian.drawn import ParameterDraws
from dualpca.gaussian.estimated import LEAST_FREEDOM, WORTH_COUNTING, ParameterErrors
from dualpca.gaussian.loadings import SHARES, angles, rotate
from dualpca.gaussian.observed import (
    NO_DENSITY,
    Expectations,
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
    groups,
    imputed,
    latents,
    m_step,
    moment_sums,
    predicted,
    whiteners,
)
from dualpca.gaussian.reference import (
    Reference,
    Unseen,
    autocorrelation,
    completed,
    incomplete_reference,
    noisy_reference,
    reference_of,
    shrunk,
)
from dualpca.gaussian.rules import (
    HEYWOOD,
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
    share_count,
    spiked_gaussian,
)
from dualpca.gaussian.selection import (
    CROSS_VALIDATED,
    PARALLEL,
    RULES,
    Score,
    Selection,
    best_candidate,
    simplest,
    summary,
)
from dualpca.gaussian.spiked import (
    LOG_2PI,
    TRUSTED,
    SpikedDensities,
    SpikedGaussian,
    free_factors,
    free_parameters,
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
from dualpca.gaussian.wishart import log_wishart, wishart_roots
