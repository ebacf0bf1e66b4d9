"""What people have, as a `Table` of rows: arrays, files, iterators, Dask collections.

Read `base` (what every table can do), `table` (what people have becomes a table, in memory or in
chunks; two tables side by side), `dask_table`, `columns` (wide tables that are read by columns),
`frames` (batches of any kind as arrays), `moments` (sums that merge exactly, also of rows with
NaN), `units` (standardised and skewed columns), `kinds` (columns of any kind) and `folds` (rows and
entries held out). `atomic` replaces files whole or not at all.
"""

from dualpca.data.atomic import reading, replacing, sync_folder, target_of
from dualpca.data.base import ChunkedTable, Table, join, numbered
from dualpca.data.columns import WideRows, wide_rows
from dualpca.data.folds import FOLDS, EntryFolds, changed, fold_rows, row_folds, subset_columns
from dualpca.data.frames import Host, refuse_text
from dualpca.data.moments import (
    HEAD,
    SINGLE_LEAST,
    SMALLEST_TRACE,
    Columns,
    Moments,
    block_weights,
    column_moments,
    column_starts,
    condensed,
    has_missing,
    namespace_sum,
    observed_part,
    observed_weights,
    patterns,
    refuse_infinite,
    refuse_nonfinite,
    single_will_do,
    total_moments,
    used_rows,
)
from dualpca.data.table import (
    InMemoryTable,
    beside,
    chunked_table,
    gathered,
    in_memory,
    is_elsewhere,
    is_on_workers,
    npy_file,
    require_in_memory,
)
from dualpca.data.units import (
    HIGHLY_SKEWED,
    LEAST_VARIANCE,
    LONG_TAILED,
    MOST_RANKED,
    UNLIKE,
    Units,
    compared,
    constant_columns,
    farthest_apart,
    have_unlike_units,
    most_unequal,
    skewed_columns,
)
