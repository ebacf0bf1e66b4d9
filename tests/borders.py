"""Every number in the package at which code goes another way, and shapes on both sides of it.

`BORDERS` lists, per file, what changes at which constant, how to draw shapes that lie just below,
at and just above it, and which cases of `border_cases` pass there. `ELSEWHERE` lists borders that
no shape of a few seconds reaches, or at which another estimate is made rather than the same number
another way, with the reason. `PLAIN` lists constants that are no borders: steps, shares, costs.
`tests/test_borders.py` reads the source and fails for a number that stands in none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dualpca.arrays import algebra, backend
from dualpca.data import moments, table
from dualpca.gaussian import control_limits, observed
from dualpca.models import chain, expanded, factor, incomplete
from dualpca.operators import dual as kernel_operator
from dualpca.operators import features, primal, subspace
from dualpca.operators import rows as row_operator
from dualpca.solvers import base as solver_base
from dualpca.solvers import exact

Shape = tuple[int, int, int]  # rows, columns, components


class Border(NamedTuple):
    """Where code goes another way."""

    file: str
    names: str  # constants, and literals as 'function:number', separated by spaces
    what: str
    draw: Callable[[np.random.Generator], Shape]  # a shape at the border, or a row or two off
    cases: str  # names of `border_cases`, separated by spaces


# --- Drawing -------------------------------------------------------------------------------------


def off(rng):
    """Return how far from the border: mostly at it, or one to either side."""
    return int(rng.choice([-2, -1, 0, 1, 2], p=[0.1, 0.25, 0.25, 0.25, 0.15]))


def few(rng, d):
    """Return a number of components that leaves most columns over."""
    return int(rng.integers(1, max(2, min(6, d))))


def after_blocks(rows_of, widths, most=4, entries=2**21):
    """Return a draw of whole blocks, and of blocks that leave 1 to d rows over."""

    def draw(rng):
        d = int(rng.choice(widths))
        block = rows_of(d)
        k = int(rng.integers(1, max(2, min(most, entries // (block * d)) + 1)))
        inside = int(rng.integers(1, d + 1))
        extra = rng.choice([1, 1, 0, off(rng), inside, d, -inside])
        n = max(k * block + int(extra), 4)
        return n, d, few(rng, min(n - 2, d))

    return draw


def entries(total, widths):
    """Return a draw with a number of entries n·d at a border."""

    def draw(rng):
        d = int(rng.choice(widths))
        return total // d + off(rng), d, few(rng, d)

    return draw


def columns(border, rows, q=None):
    """Return a draw with a number of columns at a border; rows(d, rng) of them."""

    def draw(rng):
        d = max(border + off(rng), 2)
        n = int(rows(d, rng))
        return n, d, few(rng, d) if q is None else max(1, min(int(q(d, rng)), d, n - 1))

    return draw


def row_count(border, widths, times=(1,), q=None):
    """Return a draw with a number of rows at a multiple of a border."""

    def draw(rng):
        d = int(rng.choice(widths))
        n = max(int(rng.choice(times)) * border + off(rng), 5)
        return n, d, few(rng, d) if q is None else int(q(d, rng))

    return draw


def block_rows(d):
    """Return the rows of a block of float64, as `backend.block_rows` says."""
    return max(64, min(backend.BLOCK_ROWS, backend.BLOCK_BYTES // (8 * d)))


def small_block(d):
    """Return the rows of a block of a small table."""
    return max(moments.AT_A_TIME // d, 4 * d)


def tall(d, rng):
    """Return more rows than columns."""
    return d + int(rng.integers(3, 60))


def qr_rows(rng):
    """Return a shape whose QR costs what counts as nothing."""
    d = int(rng.integers(3, 40))
    left = solver_base.NEGLIGIBLE_WORK - 2 * exact.EIGH_FULL * d**3
    n = int(left / (exact.FACTORISE * 2 * d * d)) + off(rng)
    return n, d, few(rng, d)


def tall_blocks(rng):
    """Return a shape whose smaller side is 32 times a block of vectors."""
    b = int(rng.choice([8, 16]))
    m = algebra.TALL_RATIO * b + off(rng)
    q = b - 4 if b == 8 else b - 5
    other = m + int(rng.integers(5, 200))
    return (other, m, q) if rng.random() < 0.5 else (m, other, q)


def filled_space(rng):
    """Return a shape whose smaller side is four blocks of vectors."""
    q = int(rng.integers(1, 20))
    m = 4 * exact.block_size(q, 10**6) + off(rng)
    return m + int(rng.integers(1, 80)), m, q


def full_basis(rng):
    """Return a shape whose smaller side is as large as a basis, which restarts beyond."""
    q = int(rng.integers(1, 8))
    m = exact.BASIS_BLOCKS * exact.block_size(q, 10**6) + off(rng)
    return (m + 300, m, q) if rng.random() < 0.5 else (m, m + 300, q)


def sketched(rng):
    """Return a shape of which a pass with a block costs what a sketch is worth."""
    b, d = 8, int(rng.choice([400, 700]))
    n = int(exact.WORTH_A_SKETCH / (2 * b * d)) + off(rng)
    return (n, d, 3) if rng.random() < 0.5 else (d, n, 3)


def few_products(rng):
    """Return rows whose products with the axes are few."""
    d, q = int(rng.choice([20, 50])), int(rng.choice([3, 10]))
    return int(row_operator.FEW_PRODUCTS / (d * q)) + off(rng), d, q


def small_products(rng):
    """Return rows at a multiple of what BLAS takes at once, with axes of different sizes."""
    d, q = int(rng.choice([10, 100, 1000])), int(rng.choice([2, 8, 40, 80, 120]))
    q = min(q, d - 1)
    most = int(algebra.SMALL_PRODUCT) // (d * q)
    step = most - most % 12 if most >= 12 else 8
    border = int(rng.choice([algebra.WORTH_A_COPY, step]))
    k = int(rng.integers(1, max(2, min(4, 300_000 // (border * d)) + 1)))
    return max(3, min(k * border, 10**5) + off(rng)), d, q


def subtracted(rng):
    """Return rows from which the projected mean is subtracted some at a time."""
    q = int(rng.choice([1, 3, 7, 31, 63, 64, 65]))
    n = algebra.MANY_ROWS + off(rng) + int(rng.choice([0, 1, algebra.SUBTRACTED // q]))
    return n, max(q + 2, 4), q


def sparse_entries(total):
    """Return a draw of sparse rows that store about so many numbers (half or a tenth of all)."""

    def draw(rng):
        d = int(rng.choice([120, 300]))
        return int(total / d * rng.choice([2.0, 10.0])) + off(rng), d, 3

    return draw


def pairs(rng):
    """Return a scatter matrix and a number of pairs at which another routine takes over."""
    m = int(rng.choice([30, 63, 64, 65, 66, 199, 200, 201, 299, 300, 301]))
    per = int(rng.choice([9, 7, 3]))
    return m + 40, m, max(1, m // per + off(rng))


def lanczos_pairs(rng):
    """Return a scatter matrix and the largest number of pairs that Lanczos is asked for."""
    m = int(rng.choice([exact.FEWEST_POINTS, 400])) + off(rng)
    return m + 60, m, max(1, m // exact.POINTS_PER_PAIR + int(rng.choice([-1, 0, 1])))


def formed_kernel(rng):
    """Return a number of points up to which a kernel is formed; few columns."""
    return kernel_operator.MOST_FORMED + off(rng), 3, 2


def thin_factor(rng):
    """Return points at which a factor of a linear kernel becomes thin."""
    d = int(rng.integers(3, 40))
    return kernel_operator.THIN * d + off(rng), d, few(rng, d)


def tiles(rng):
    """Return points at the border of a tile, or of so many that tiles grow."""
    least, most = kernel_operator.SMALL_TILE_POINTS, kernel_operator.TILE_POINTS
    n = int(rng.choice([least, 2 * least, kernel_operator.FEWEST_TILES * least, most]))
    return n + off(rng), int(rng.integers(2, 6)), 3


def chain_length(rng):
    """Return a chain that ends near a piece, or is as long as one that is not cut."""
    border = int(rng.choice([chain.PIECE, 2 * chain.PIECE, chain.UNCUT, chain.FEW_TERMS // 4]))
    return border + off(rng), 4, 1


def turned_steps(rng):
    """Return rows with missing values at the border of steps that are turned to their end."""
    if rng.random() < 0.5:
        return incomplete.FEWEST_TURNED // 16 + off(rng), 16, 2
    d = incomplete.WIDEST_TURN + off(rng)
    return incomplete.ROWS_PER_TURN * d + off(rng), d, 2


def quick_entries(rng):
    """Return rows with missing values, as many as a quick fit takes."""
    d = int(rng.choice([12, 30, 100]))
    return incomplete.QUICK_ENTRIES // d + off(rng), d, 2


def latent_batch(rng):
    """Return rows at a batch of posterior covariances, or more than a batch with as many gaps."""
    if rng.random() < 0.3:  # of 30 columns some ten may be missing
        return 2 * (incomplete.BATCH // 100) + int(rng.integers(200, 400)), 30, 2
    q = int(rng.choice([12, 20]))
    n = max(64, observed.FACTORED_TOGETHER // (q * q))
    return n + off(rng), q + 6, q


def observed_blocks(rng):
    """Return rows with missing values at the border of one block, of eight, or of larger ones."""
    d = int(rng.integers(4, 20))
    smallest = observed.SMALLEST_BLOCK // d
    n = int(rng.choice([64, smallest, observed.BLOCKS * smallest, backend.BLOCK_ROWS]))
    return n + off(rng), d, 2


def mixture_rows(rng):
    """Return tables at which the sums of a mixture are expanded."""
    d = expanded.MOST_FEATURES + off(rng)
    n = 10 * d + off(rng)
    return n, d, 2


def mixture_products(rng):
    """Return rows whose products of columns are as many as are kept."""
    d = int(rng.choice([8, 20, expanded.MOST_FEATURES]))
    n = expanded.MOST_PRODUCT_BYTES // (4 * (d + 1) * (d + 2)) + off(rng)
    return n, d, 2


def single_rows(rng):
    """Return float32 rows at which products in float32 are considered."""
    d = moments.SINGLE_WIDTH + off(rng)
    n = moments.SINGLE_RATIO * d + off(rng)
    q = int(rng.choice([2, int(moments.SAMPLE_SHARE * d) // moments.SAMPLE_PER_PAIR + off(rng)]))
    return n, d, q


def many_single_rows(rng):
    """Return float32 rows of which blocks are larger."""
    times = moments.SINGLE_BLOCKS * moments.SINGLE_TIMES
    return times * block_rows(moments.SINGLE_WIDTH) + off(rng), moments.SINGLE_WIDTH, 3


def narrow(rng):
    """Return rows at the widest of narrow tables, more entries than are summed at once."""
    d = moments.NARROW + off(rng)
    return moments.AT_ONCE // d + int(rng.choice([-1, 1, 700])), d, few(rng, d)


def tall_table(rng):
    """Return rows at which moments are gathered before anything else."""
    d = int(rng.choice([2, 9, 40, moments.NARROW]))
    return table.TALL * d + off(rng), d, few(rng, d)


def guesses(rng):
    """Return points at which a first guess looks at more of them, or pays."""
    least, most = kernel_operator.GUESS_LEAST, kernel_operator.GUESS_MOST
    n = int(rng.choice([2 * least, most, exact.WORTH_A_GUESS * 8]))
    return n + off(rng), 3, 3


ANY_PCA = (
    "pca pca_far pca_single pca_weights pca_standardized pca_dense pca_order pca_stream ppca "
    "ppca_single factor bayesian"
)
BY_BLOCKS = "pca_weights pca_standardized pca_krylov pca_krylov_single pca_qr pca_stream on_rows"
GAPS = "ppca_missing imputer factor_missing"

BORDERS: list[Border] = [
    Border(
        "data/moments.py",
        "AT_A_TIME",
        "blocks of a small table, the last one short",
        after_blocks(small_block, [1, 2, 3, 13, 30, 64, 100, 127, 128, 129, 200]),
        ANY_PCA + " mixture robust",
    ),
    Border(
        "data/moments.py",
        "AT_ONCE",
        "small tables are summed with few calls",
        entries(moments.AT_ONCE, [64, 101, 128, 300, 512]),
        "pca pca_single pca_far ppca pca_order",
    ),
    Border(
        "data/moments.py",
        "NARROW",
        "narrow tables are small for longer",
        narrow,
        "pca pca_single ppca",
    ),
    Border(
        "data/moments.py",
        "NARROW_AT_ONCE",
        "the same for narrow tables",
        entries(moments.NARROW_AT_ONCE, [40, 99]),
        "pca pca_single",
    ),
    Border(
        "data/moments.py",
        "HEAD",
        "rows that the provisional mean is of",
        row_count(moments.HEAD, [2, 5, 40]),
        "pca pca_far pca_weights pca_standardized pca_single pca_stream ppca_missing mixture",
    ),
    Border(
        "data/moments.py",
        "SHIFT_ENTRIES",
        "rows that a shift is repeated for",
        after_blocks(lambda d: max(1, moments.SHIFT_ENTRIES // d), [3, 33, 100, 600], 5),
        "pca_weights pca_standardized pca_single",
    ),
    Border(
        "data/moments.py",
        "SINGLE_WIDTH SINGLE_RATIO SAMPLE_PER_PAIR SAMPLE_RATIO",
        "products of float32 rows in float32",
        single_rows,
        "pca_single ppca_single pca_krylov_single",
    ),
    Border(
        "data/moments.py",
        "SINGLE_TIMES SINGLE_BLOCKS",
        "larger blocks of them",
        many_single_rows,
        "pca_single",
    ),
    Border(
        "data/table.py",
        "TALL",
        "moments before anything else",
        tall_table,
        "pca ppca factor bayesian robust imputer mixture",
    ),
    Border(
        "arrays/backend.py",
        "BLOCK_ROWS BLOCK_BYTES block_rows:64",
        "blocks of rows",
        after_blocks(block_rows, [2, 4, 8, 20, 100, 128, 129, 300], 3),
        BY_BLOCKS + " pca_sparse mixture factor",
    ),
    Border(
        "arrays/backend.py",
        "BLAS_ALONE BLAS_ALONE_VECTOR THREADS_WAIT summed:8",
        "one thread of BLAS, or several",
        entries(backend.BLAS_ALONE_VECTOR, [3, 30]),
        "pca ppca",
    ),
    Border(
        "arrays/algebra.py",
        "ALL_PAIRS DIRECT_ORDER few_per_pair:300",
        "all eigenpairs or some, by NumPy or LAPACK",
        pairs,
        "pca_dense pca_gram ppca pca_standardized",
    ),
    Border(
        "arrays/algebra.py",
        "SMALL_ORDER",
        "threads for eigenpairs",
        columns(algebra.SMALL_ORDER, tall, lambda d, rng: rng.choice([3, d // 2])),
        "pca_dense",
    ),
    Border(
        "arrays/algebra.py",
        "COPIED_ORDER",
        "eigenpairs with a copy or without",
        columns(algebra.COPIED_ORDER, tall, lambda d, rng: d // 3 + off(rng)),
        "pca_dense",
    ),
    Border(
        "arrays/algebra.py",
        "SMALL_QR",
        "QR by NumPy or SciPy",
        entries(algebra.SMALL_QR, [256, 590]),
        "pca_qr",
    ),
    Border(
        "arrays/algebra.py",
        "TALL_RATIO",
        "QR by two Cholesky factors",
        tall_blocks,
        "pca_krylov pca_krylov_single pca_gram",
    ),
    Border(
        "arrays/algebra.py",
        "MANY_ROWS SHORT_ROW SUBTRACTED",
        "a row subtracted from many short ones",
        subtracted,
        "on_rows",
    ),
    Border(
        "arrays/algebra.py",
        "SMALL_PRODUCT WORTH_A_COPY in_small_products:12 in_small_products:8",
        "rows multiplied where they are",
        small_products,
        "on_rows",
    ),
    Border(
        "operators/rows.py",
        "FEW_PRODUCTS coordinates:4",
        "the same for a whole table",
        few_products,
        "on_rows",
    ),
    Border(
        "operators/rows.py",
        "SPARSE_ENTRIES",
        "blocks of sparse rows",
        sparse_entries(row_operator.SPARSE_ENTRIES),
        "pca_sparse pca_sparse_single",
    ),
    Border(
        "operators/primal.py",
        "WORTH_THREADS",
        "threads for products",
        entries(int(primal.WORTH_THREADS) // 2, [150, 400]),
        "pca_krylov pca_krylov_single",
    ),
    Border(
        "solvers/base.py",
        "NEGLIGIBLE_WORK",
        "the most accurate solver, or the cheapest",
        qr_rows,
        "pca pca_single pca_weights ppca",
    ),
    Border(
        "solvers/exact.py",
        "BLAS_ALONE_ORDER",
        "a scatter matrix on one thread",
        columns(exact.BLAS_ALONE_ORDER, tall),
        "pca pca_dense ppca",
    ),
    Border(
        "solvers/exact.py",
        "ONE_THREAD_ORDER",
        "the same, larger",
        columns(exact.ONE_THREAD_ORDER, tall),
        "pca pca_dense pca_gram",
    ),
    Border(
        "solvers/exact.py",
        "MEASURED_ORDER",
        "another cost of eigenpairs",
        columns(exact.MEASURED_ORDER, tall),
        "pca",
    ),
    Border(
        "solvers/exact.py",
        "FEWEST_POINTS POINTS_PER_PAIR",
        "eigenpairs of a scatter matrix by Lanczos",
        lanczos_pairs,
        "pca_dense pca pca_gram kernel",
    ),
    Border(
        "solvers/exact.py",
        "CERTAIN_ORDER",
        "a Cholesky factor of all points, or of some",
        row_count(exact.CERTAIN_ORDER, [2, 4]),
        "kernel kernel_given kernel_single",
    ),
    Border(
        "solvers/exact.py",
        "block_cost:4",
        "blocks that would fill the space",
        filled_space,
        "pca_krylov pca kernel_krylov",
    ),
    Border(
        "solvers/exact.py",
        "WORTH_A_SKETCH SKETCH_STEP",
        "a start from some of the rows",
        sketched,
        "pca_krylov pca_krylov_single",
    ),
    Border(
        "operators/primal.py",
        "SKETCH_RUN",
        "neighbouring columns of a start from some of them",
        lambda rng: (400, int(exact.WORTH_A_SKETCH / 6400) // 64 * 64 + off(rng), 3),
        "pca_krylov",
    ),
    Border(
        "solvers/exact.py",
        "BASIS_BLOCKS FEWEST_BLOCKS",
        "as many vectors as a basis has room for",
        full_basis,
        "pca_krylov pca_krylov_single",
    ),
    Border(
        "solvers/exact.py",
        "WORTH_A_GUESS",
        "a start from some of the points",
        guesses,
        "kernel_krylov",
    ),
    Border(
        "operators/dual.py",
        "TILE_POINTS SMALL_TILE_POINTS FEWEST_TILES THIN_ROWS THIN_COLUMNS",
        "tiles of a kernel",
        tiles,
        "kernel kernel_krylov kernel_single kernel_given kernel_linear",
    ),
    Border(
        "operators/dual.py",
        "GUESS_STEP GUESS_LEAST GUESS_MOST",
        "points that a first guess looks at",
        guesses,
        "kernel_krylov kernel_given",
    ),
    Border(
        "operators/dual.py",
        "LEAST_UNCOPIED",
        "a kernel matrix that is not copied",
        row_count(kernel_operator.LEAST_UNCOPIED, [3]),
        "kernel_given kernel",
    ),
    Border(
        "operators/dual.py",
        "MOST_FORMED",
        "a kernel that is formed",
        formed_kernel,
        "kernel kernel_single",
    ),
    Border(
        "operators/dual.py",
        "THIN",
        "a linear kernel by its factor",
        thin_factor,
        "kernel_linear",
    ),
    Border(
        "operators/dual.py",
        "ALL_EIGENVALUES_ORDER",
        "all eigenvalues, for negative ones",
        row_count(1500, [3]),
        "kernel kernel_given",
    ),
    Border(
        "operators/subspace.py",
        "POINTS_AT_ONCE FOLDED_POINTS",
        "blocks of new points",
        lambda rng: (
            int(rng.choice([subspace.FOLDED_POINTS, subspace.POINTS_AT_ONCE])) + off(rng),
            int(rng.integers(2, 8)),
            3,
        ),
        "kernel_rows",
    ),
    Border(
        "operators/features.py",
        "MAPPED_ROWS",
        "blocks of mapped points",
        row_count(features.MAPPED_ROWS, [3]),
        "kernel_rows",
    ),
    Border(
        "models/factor.py",
        "SMALL",
        "all eigenvectors by NumPy",
        columns(factor.SMALL, lambda d, rng: 3 * d),
        "factor",
    ),
    Border(
        "models/expanded.py",
        "MOST_FEATURES",
        "sums of a mixture over products of columns",
        mixture_rows,
        "mixture",
    ),
    Border(
        "models/expanded.py",
        "MOST_PRODUCT_BYTES suits:4",
        "products that are kept",
        mixture_products,
        "mixture",
    ),
    Border(
        "models/incomplete.py",
        "QUICK_ENTRIES MOST_ENTRIES",
        "a quick climb for small tables",
        quick_entries,
        GAPS,
    ),
    Border(
        "models/incomplete.py",
        "FEWEST_TURNED ROWS_PER_TURN WIDEST_TURN",
        "steps that are turned to their end",
        turned_steps,
        "ppca_missing",
    ),
    Border(
        "models/incomplete.py",
        "SMALLEST_BATCH BATCH",
        "batches of rows",
        latent_batch,
        "ppca_missing",
    ),
    Border(
        "gaussian/observed.py",
        "FACTORED_TOGETHER _factored_on_host:64",
        "matrices of latents that are factored together",
        latent_batch,
        "ppca_missing",
    ),
    Border(
        "models/incomplete.py",
        "WIDEST_ROWS",
        "the widest rows of a quick step",
        columns(incomplete.WIDEST_ROWS, lambda d, rng: 300),
        "ppca_missing",
    ),
    Border(
        "gaussian/observed.py",
        "BLOCKS SMALLEST_BLOCK __init__:64",
        "blocks of rows with missing values",
        observed_blocks,
        GAPS + " robust",
    ),
    Border(
        "gaussian/reference.py",
        "PATTERN_NUMBERS",
        "limits of so many patterns of missing values at once",
        lambda rng: (control_limits.PATTERN_NUMBERS // 48**2 + off(rng), 48, 3),
        "limits",
    ),
    Border(
        "models/robust.py",
        "FEWEST_TRIMMED",
        "too few rows to leave some out",
        row_count(10, [2, 3]),
        "robust",
    ),
    Border(
        "estimators/_kernel.py",
        "SYMMETRY_TILE",
        "tiles of a kernel matrix that is looked at",
        row_count(128, [3], (1, 2, 3)),
        "kernel_given",
    ),
    Border(
        "models/chain.py",
        "PIECE UNCUT FEW_TERMS",
        "pieces of a chain",
        chain_length,
        "chain",
    ),
]


ESTIMATE = "another sample or another stop, not the same number another way"
TOO_LARGE = "no fit of a few seconds reaches it"
GPU = "on a GPU alone; tests/kernels/test_fused_product.py and tests/arrays/test_cuda.py"
SCATTER = (
    "on a GPU alone; tests/arrays/test_fused_scatter.py and tests/models/test_device_scatter.py"
)
MESSAGE = "what is refused, or warned of"

ELSEWHERE: dict[str, dict[str, str]] = {
    "arrays/algebra.py": {"MOST_FUSED": SCATTER},
    "arrays/backend.py": {"GPU_BLOCKS": GPU},
    "arrays/fused_scatter.py": {
        "LARGEST_SEEN ROWS_EACH ROWS_SPLIT SLICE_ENTRIES STEP TILE": SCATTER,
    },
    "arrays/devices.py": {"WORTH": GPU},
    "arrays/memory.py": {"LEAST_RELEASED": "pages of a file on disk; tests/arrays/test_memory.py"},
    "data/columns.py": {
        "MOST_ROWS MUCH_WIDER WRITTEN_BYTES": "chunks of columns; tests/data/test_columns.py",
    },
    "data/dask_table.py": {"FAN_IN": "tests/data/test_dask_table.py has more chunks than that"},
    "data/folds.py": {"DRAWS_AT_ONCE": "folds are random; tests/gaussian/test_selection.py"},
    "data/moments.py": {"GPU_AT_ONCE GPU_DOUBLE": SCATTER},
    "data/kinds.py": {
        "FEW_VALUES SOME_ENTRIES": "what kind a column is of; tests/data/test_kinds.py",
        "MOST_LEVELS": MESSAGE,
    },
    "data/table.py": {
        "BLOCK_BYTES_READ BATCH_ROWS": "readers of files; tests/data/test_parts.py",
    },
    "data/units.py": {
        "ENTRIES_COMPARED LEAST_ROWS_COMPARED LEAST_OBSERVED": MESSAGE,
        "ENTRIES_LOOKED_AT FEWEST MOST_RANKED": ESTIMATE,
    },
    "kernels/base.py": {"SAMPLED_ROWS WIDTH_ROWS": ESTIMATE, "MOST_MONOMIALS": MESSAGE},
    "kernels/dot.py": {"MOST_DEGREE": MESSAGE},
    "kernels/fused_product.py": {"PADDED_TO ROWS_AT_ONCE LARGEST_EXPONENT": GPU},
    "kernels/stationary.py": {"MOST_ALPHA": GPU},
    "operators/dual.py": {"GPU_TILE_POINTS": GPU},
    "operators/features.py": {"GAP_ROWS PIVOTS": ESTIMATE},
    "operators/spread.py": {"TILES_PER_SHARE": "several devices; tests/operators/test_spread.py"},
    "operators/primal.py": {
        "HOST_ORDER SMALL_TABLE WIDEST_STORED": SCATTER,
        "WIDEST": "128 MB a chunk; tests/data/test_parts.py has both sides of the ways themselves",
    },
    "solvers/exact.py": {
        "FEWEST_LED THINNED ROUNDED_BLOCKS rounded_block:32": "fused products on a GPU; "
        "tests/operators/test_fused.py",
        "GPU_BASIS GPU_BLOCKS GPU_CYCLES GPU_LEAST GPU_MOST GPU_PASS block_pairs:10 "
        "block_pairs:16 gpu_suits:12": SCATTER,
        "EXPENSIVE": "where a share of variances is extrapolated: " + ESTIMATE,
        "BASIS_BYTES": TOO_LARGE,
        "COLUMNS_AT_ONCE": "square roots; tests/solvers/test_exact_root.py",
        "MOST_POINTS": TOO_LARGE,
        "CACHED_ORDER": "a cost",
        "LOOK_STEPS MOST_LOOK_STEPS": "a look for what was missed; tests/solvers/test_small.py",
    },
    "gaussian/estimated.py": {
        "LEAST_FREEDOM": "a limit; tests/gaussian/test_estimated.py",
    },
    "gaussian/observed.py": {
        "ROWS_PER_PATTERN": "rows that miss the same; tests/gaussian/test_e_step.py",
    },
    "gaussian/reference.py": {
        "PAIRED_ROWS PAIR_STEPS SMALL_TABLE": ESTIMATE,
        "CONSECUTIVE EXACT_SIDE LONG_WINDOW LOOKED_AT WINDOW dependence:20 dependence:8 "
        "_autocorrelation:4 reference_of:4": ESTIMATE,
    },
    "gaussian/selection.py": {
        "DIRECT_SIZE largest_of:10 LARGE LARGEST_DRAW AT_FIRST": "random draws; "
        "tests/gaussian/test_selection.py compares both ways",
    },
    "models/baseline.py": {
        "CACHED_NUMBERS MAPPED_NUMBERS": "matrices that are kept; tests/models/test_baseline.py",
        "NOISE_ROUNDS": ESTIMATE,
    },
    "models/monitoring.py": {
        "MOST_LIMITS MOST_NAMED QUIET SEEN_BY_CHANCE SURELY_OFF": "what is kept and named; "
        "tests/models/test_monitoring.py",
    },
    "models/phase_one.py": {
        "FACTOR_STEPS LIGHT_TAILS MOST_ROUNDS ROUGH_ROWS STRICT UNUSUAL": "which rows of phase I "
        "are set aside; tests/models/test_phase_one.py",
    },
    "models/run_lengths.py": {
        "ALARMS FALSE_ALARMS LONGEST_RUN MANY_COLUMNS ROWS ROWS_DRAWN RULE_SHARE RUNS_LONG "
        "SHARED_DIRECTIONS WORK _table:200": "simulated runs; tests/models/test_run_lengths.py",
    },
    "estimators/monitor.py": {"LEAST_LENGTH LONGEST_RULE": MESSAGE},
    "models/chain.py": {
        "MOST_BAND BLOCK_ENTRIES": TOO_LARGE,
        "LONG_STRETCH": "gaps in time; tests/models/test_chain.py",
    },
    "gaussian/drawn.py": {"TOGETHER": "blocks of rows; tests/gaussian/test_drawn.py"},
    "gaussian/pooling.py": {
        "_li:4 _reiter:4": "degrees of freedom; tests/gaussian/test_pooling.py"
    },
    "models/hierarchy.py": {"MAP VIEW VERY_STRONG": ESTIMATE, "_warn_of_leaves:10": MESSAGE},
    "models/copula/blending.py": {
        "MOST_COLUMNS MOST_ROWS EQUAL_ENTRIES": ESTIMATE,
        "ROWS_AT_ONCE": "blocks of rows; tests/models/copula/test_blending.py",
    },
    "models/copula/choosing.py": {"SELECTION_ROWS FIRST_FOLDS choose_latents:5": ESTIMATE},
    "models/copula/regressions.py": {"TUNED_ROWS": ESTIMATE},
    "models/copula/fitting.py": {
        "MOST_MOMENTS REMEMBERED_ROWS SAMPLED_ROWS ROWS_PER_PARAMETER "
        "START_ROWS_PER_PARAMETER FEWEST_ROWS _started:4": ESTIMATE,
    },
    "models/dual.py": {
        "DENSE_ORDER DENSE_MOST": "random draws; tests/models/test_dual_generation.py",
    },
    "models/emissions.py": {"START_ROWS": ESTIMATE},
    "models/factor.py": {"DENSE_LIMIT": TOO_LARGE, "COMPARED_ROWS FEWEST_COMPARED": MESSAGE},
    "models/hidden_markov.py": {"LONGEST_STRETCH MOST_STATES SEQUENCES_PER_PARAMETER": ESTIMATE},
    "models/completing.py": {"ENOUGH_ENTRIES least_rows:20": MESSAGE},
    "models/kernel.py": {
        "JUDGED_ROWS NOVELTY_ROWS ROWS_PER_LANDMARK SAMPLE_ROWS": ESTIMATE,
        "LARGEST_BLOCK": "blocks of training points left out, each by itself",
    },
    "models/kernel_canonical.py": {"LEADING": ESTIMATE},
    "models/canonical.py": {"ROWS_PER_COLUMN": ESTIMATE},
    "models/kernel_space.py": {"EXACT": ESTIMATE},
    "models/mixture/choosing.py": {"EVERY_SIZE": ESTIMATE},
    "models/mixture/fit.py": {
        "FEW_CUTS SAMPLE_PER_NUMBER SEARCH_ROWS SEARCH_ROWS_WITH_NAN START_SAMPLE STICKS "
        "open_space:500": ESTIMATE,
    },
    "models/mixture/stream.py": {
        "FIRST_ROWS FIRST_ROWS_PER_COMPONENT FIRST_ROWS_TO_CHOOSE": ESTIMATE,
    },
    "models/robust.py": {"CORE_ROWS DEPTH_ROWS": ESTIMATE},
    "models/selection.py": {
        "FULL_FEATURES FULL_ROWS MOST_PERMUTED MOST_SAMPLED PAIRED_SIZE _sampled:100": ESTIMATE,
    },
    "models/spiked.py": {"ENOUGH_ROWS MEASURED_ROWS": ESTIMATE},
    "models/streaming.py": {"FEWEST_ROWS add:10": ESTIMATE},
    "estimators/conformal.py": {"SORTED_AT_ONCE": "numbers that are sorted at once"},
    "estimators/_kernel.py": {
        "LEAST_LEARNED": "memory of pre-images",
        "cluster_centres:1024": ESTIMATE,
    },
    "estimators/generator.py": {"LEAST_ROWS": MESSAGE},
    "estimators/ppca.py": {"_warn_of_noise:10": MESSAGE},
    "estimators/saving.py": {"UNIT_ROWS": "ONNX; tests/files/test_onnx_export.py"},
    "estimators/supplementary.py": {"BLOCK": "tests/gaussian/test_supplementary.py"},
    "preimages/base.py": {"MOST_SOLVED": TOO_LARGE},
    "generation/chains.py": {"LEAST_DRAWS": MESSAGE},
    "generation/densities.py": {"LEFT_OUT": ESTIMATE},
    "generation/quality.py": {"FEW": ESTIMATE},
    "search/spaces.py": {"SCALE_ROWS": ESTIMATE},
    "search/trials.py": {"LEAST_TRIALS BINS": ESTIMATE},
}

STEPS = "steps, passes, draws: how often"
COST = "a cost of one way beside another"
RANGE = "a ratio of numbers, not of sizes"
BYTES = "bytes of a number"

PLAIN: dict[str, dict[str, str]] = {
    "arrays/algebra.py": {"_waiting:10": COST},
    "arrays/backend.py": {"block_rows:8": BYTES},
    "arrays/devices.py": {"COPIES_ON_GPU PASSES_PER_FIT": COST},
    "arrays/memory.py": {"DEFAULT_FREE": "memory where the system does not say"},
    "arrays/progress.py": {"BAR_WIDTH BETWEEN_LINES": "what is shown"},
    "data/columns.py": {"change:8": BYTES},
    "data/dask_table.py": {"MOST_LOST": STEPS},
    "data/folds.py": {"FOLDS": STEPS},
    "data/kinds.py": {"_coded:8": "what is shown"},
    "data/moments.py": {"DENSE_ENTRIES": BYTES, "SINGLE_RANGE FAR_MEAN check_trace:4": RANGE},
    "data/table.py": {"BUFFERS BUFFER_BYTES": "of a reader"},
    "data/units.py": {"CONSTANT LARGEST_RATIO UNLIKE DEVIATIONS LONG_TAILED": RANGE},
    "kernels/choose.py": {"DIAGONAL_ROWS": "blocks of a diagonal; tests/kernels"},
    "kernels/expected.py": {"_summed:8": BYTES},
    "kernels/fused_product.py": {"LIFT": RANGE},
    "operators/dual.py": {
        "COLUMNS_TWICE EXPONENTIAL_COST": COST,
        "GUESS_STEPS QUADRATURE_PROBES QUADRATURE_STEPS": STEPS,
    },
    "operators/columns.py": {"LOST _straightened:4": RANGE},
    "operators/features.py": {"is_tame:1e+100": RANGE},
    "operators/primal.py": {
        "SPARSE_PAIR": COST,
        "SPARSE_BLOCK_BYTES": "of a block; tests/solvers/test_sparse_rows.py",
        "NEAR_MEAN": RANGE,
    },
    "operators/rows.py": {"SAFE_OFFSET": RANGE},
    "solvers/exact.py": {
        "ALL_VALUES EIGH_FULL EIGH_SUBSET FACTORISE": COST,
        "ENTRY_COST FETCH_COST STEP_COST": COST,
        "ORMQR_WORK": "workspace",
        "basis_vectors:8": BYTES,
        "RESTARTS SPARE_VECTORS": STEPS,
        "NEGATIVES_COST ORTHOGONALISE PASS_COST SKINNY": COST,
        "SKETCH_PASSES TYPICAL_PASSES UNCHECKED VECTORS_KEPT": STEPS,
        "STEEPEST _errors:50 advance:50": RANGE,
        "": BYTES,
    },
    "gaussian/calibration.py": {"LISTED": "what is shown"},
    "gaussian/control_limits.py": {"NODES": STEPS},
    "gaussian/drawn.py": {"DRAWS STEPS": STEPS, "PRIOR_ROWS": RANGE},
    "gaussian/observed.py": {"_batches:8": BYTES, "t_constant:100000": RANGE},
    "gaussian/reference.py": {"CERTAIN": RANGE, "NOISE_STEPS PROBES SKETCH": STEPS},
    "gaussian/rules.py": {"NEWTON_STEPS": STEPS, "has_vanished:10": RANGE},
    "gaussian/selection.py": {
        "FEW_DRAWS INDEPENDENT_DRAWS NOISE_DRAWS WORSE_IN_A_ROW": STEPS,
        "_stands_out:6": RANGE,
    },
    "gaussian/spiked.py": {"TRUSTED": RANGE},
    "gaussian/truncated.py": {
        "FAR NOTHING RIGHT TABLE_END": RANGE,
        "FAR_NODES NARROW_NODES PER_UNIT": STEPS,
    },
    "gaussian/wishart.py": {"_log_pseudo_determinant:100": RANGE},
    "models/bayesian.py": {"INNER LONGEST": STEPS, "begin:10": RANGE},
    "models/canonical.py": {"DRAWS MOST_BY_DEFAULT": STEPS, "unpack:50": RANGE},
    "models/chain.py": {"FLOAT_RANGE LARGEST_DRIFT": RANGE},
    "models/clusters.py": {"SORTED_DIGITS": RANGE},
    "models/completing.py": {"DONORS REDRAWS REFIT_STEPS STD_REFITS": STEPS},
    "models/copula/blending.py": {"FARTHEST_NUMBER LARGEST_WEIGHT": RANGE, "SCENARIOS": STEPS},
    "models/copula/choosing.py": {"NO_BETTER SELECTION_STEPS": STEPS},
    "models/copula/columns.py": {"STANDS_OUT": RANGE, "MIXED_REFIT_STEPS TURNBULL_STEPS": STEPS},
    "models/copula/fitting.py": {
        "FIRST_SWEEPS HERMITE_NODES INNER_STEPS LATENT_POINTS MEMORY MOST_PASSES "
        "START_STEPS": STEPS,
        "FARTHEST GRID_REACH LARGEST_LOADING LONGER PRIOR WITHOUT_LEVELS WITH_LEVELS": RANGE,
    },
    "models/copula/law.py": {"METROPOLIS_STEPS": STEPS},
    "models/copula/regressions.py": {"HIGHEST_LOG": RANGE, "TUNING_STEPS": STEPS},
    "models/copula/propagation.py": {"EP_SWEEPS LEVEL_SWEEPS": STEPS, "TABLES_PER_BLOCK": COST},
    "models/driver.py": {"MEMORY MOST_DOUBTS": STEPS},
    "models/factor.py": {"COMPARED_STEPS": STEPS, "PLAIN_TIMES": RANGE},
    "models/kernel.py": {"BISECTIONS": STEPS, "ROUNDED_NOVELTY SAFE_ENTRY": RANGE},
    "models/hidden_markov.py": {"LEFT_OUT_STEPS SEQUENCE_FOLDS": STEPS},
    "models/incomplete.py": {"EM_FIRST": STEPS, "LARGEST_NOISE leap:20": RANGE},
    "models/kernel_space.py": {"fit:10": RANGE},
    "models/mixture/choosing.py": {"MOST_WORSE_SIZES": STEPS},
    "models/mixture/fit.py": {
        "CUT_AXES KMEANS_STEPS START_STEPS START_TRIES": STEPS,
        "PRIOR_ROWS reseed:20": RANGE,
    },
    "models/robust.py": {
        "CONCENTRATIONS DIRECTIONS EM_CONCENTRATIONS EM_STEPS LIMIT_ROUNDS ROUNDS": STEPS,
        "BY_MUCH CLEARANCE DOUBT LARGEST_LOG MOST_DOF core_tails:1e+06 robust_units:8": RANGE,
    },
    "models/spiked.py": {"MANY_STEPS SCATTER_STEPS": COST, "NEAR_ZERO RESIDUAL_ROUNDINGS": RANGE},
    "models/streaming.py": {"AVERAGE COMPLETE_STEPS STEPS": STEPS},
    "models/twin.py": {"MEMORY": STEPS, "MOST_GAIN": RANGE},
    "estimators/_kernel.py": {"_method:8": BYTES},
    "estimators/generator.py": {"MOST_DIRECTIONS": STEPS},
    "estimators/kernel_search.py": {"DEFAULT_LARGEST FOLDS_OF_OTHER_ROWS": STEPS},
    "estimators/ppca.py": {"NAMED": "what is shown"},
    "preimages/base.py": {"LARGEST_DISTANCE": RANGE},
    "preimages/iterative.py": {"HALVINGS": STEPS},
    "generation/densities.py": {"WIDEST": RANGE},
}
