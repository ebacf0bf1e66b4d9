"""Arrays of any library: the only room that can tell NumPy from torch, CuPy or sparse matrices.

Read `types`, `backend` (what every other file asks of arrays), `algebra` (products, distances,
factorisations), `stacked` (many small matrices), `threads`, then `devices` and `memory` (where to
work). `progress` tells how far long work has come; `fields` walks over models; `lazy` has their
computed attributes.
"""

from dualpca.arrays import algebra, backend, memory, progress
from dualpca.arrays.algebra import log_sum_exp, outer, pack, quadratic, unpack
from dualpca.arrays.backend import EPS
from dualpca.arrays.devices import (
    Choice,
    Job,
    check_device,
    chosen,
    each_device,
    is_torch_generator,
    rows_of,
    seed_of,
    sent,
)
from dualpca.arrays.fields import arrays_of, moved, to_host
from dualpca.arrays.lazy import cached_property
from dualpca.arrays.memory import shown
from dualpca.arrays.progress import Tick, note, showing, shows_progress, task
from dualpca.arrays.stacked import inverse_factors, lower_pairs, lower_squares, triangle_rows
from dualpca.arrays.threads import at_once
from dualpca.arrays.types import Array
