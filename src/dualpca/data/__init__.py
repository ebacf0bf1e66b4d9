"""What people have, as a `Table` of rows: arrays, files, iterators, Dask collections.

Read `opening` (what people have becomes a table), `table` (rows and the sums over them),
`dask_table`, `frames` (batches of any
kind as arrays), `moments` (sums that merge exactly), `missing` (what was observed), `folds` and
`paired` (rows held out; two tables side by side). `atomic` writes files whole or not at all.
"""

from dualpca.data.atomic import replacing, target_of
from dualpca.data.folds import (
    FOLDS,
    EntryFolds,
    changed,
    fold_rows,
    numbered,
    row_folds,
    subset_columns,
)
from dualpca.data.frames import is_dask, refuse_masked
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
    total_moments,
)
from dualpca.data.opening import (
    chunked_table,
    is_elsewhere,
    is_path,
    is_stored,
    refuse_missing_path,
    require_in_memory,
)
from dualpca.data.paired import beside
from dualpca.data.table import (
    Batches,
    ChunkedTable,
    Host,
    InMemoryTable,
    SlicedTable,
    Table,
    join,
    mapped,
)

__all__ = [
    "FOLDS",
    "HEAD",
    "SMALLEST_TRACE",
    "Batches",
    "ChunkedTable",
    "Columns",
    "EntryFolds",
    "Host",
    "InMemoryTable",
    "Moments",
    "SlicedTable",
    "Table",
    "beside",
    "block_weights",
    "changed",
    "chunked_table",
    "column_moments",
    "column_starts",
    "condensed",
    "fold_rows",
    "has_missing",
    "is_dask",
    "is_elsewhere",
    "is_path",
    "is_stored",
    "join",
    "mapped",
    "namespace_sum",
    "numbered",
    "observed_part",
    "observed_weights",
    "patterns",
    "refuse_infinite",
    "refuse_masked",
    "refuse_missing_path",
    "refuse_nonfinite",
    "replacing",
    "require_in_memory",
    "row_folds",
    "subset_columns",
    "target_of",
    "total_moments",
]
