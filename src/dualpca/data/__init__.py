"""What people have, as a `Table` of rows: arrays, files, iterators, Dask collections.

Read `opening` (what people have becomes a table), `table` (rows and the sums over them; two tables
side by side), `dask_table`, `frames` (batches of any kind as arrays), `moments` (sums that merge
exactly), `missing` (observed entries), `units` (standardised columns), `kinds` (columns of any
kind) and `folds` (rows and entries held out). `atomic` replaces files whole or not at all.
"""

from dualpca.data.atomic import replacing, target_of
from dualpca.data.folds import FOLDS, EntryFolds, changed, fold_rows, row_folds, subset_columns
from dualpca.data.frames import Host
from dualpca.data.missing import (
    Columns,
    column_starts,
    has_missing,
    observed_part,
    observed_weights,
    patterns,
    refuse_infinite,
)
from dualpca.data.moments import (
    HEAD,
    SMALLEST_TRACE,
    Moments,
    block_weights,
    column_moments,
    condensed,
    namespace_sum,
    refuse_nonfinite,
    single_will_do,
    total_moments,
)
from dualpca.data.opening import chunked_table, is_elsewhere, require_in_memory
from dualpca.data.table import ChunkedTable, InMemoryTable, Table, beside, join, numbered
from dualpca.data.units import (
    UNLIKE,
    Units,
    compared,
    farthest_apart,
    have_unlike_units,
    most_unequal,
)
