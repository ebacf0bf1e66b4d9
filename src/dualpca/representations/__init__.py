"""Primal and dual: two operators with the same non-zero eigenvalues (MATH 1, 2 and 7)."""

from dualpca.representations.dual import Dual
from dualpca.representations.fused_gram import Fused, make_gram
from dualpca.representations.gram import Given, Gram, stored_bytes
from dualpca.representations.primal import Mirror, Primal
from dualpca.representations.scatter import Scatter

__all__ = [
    "Dual",
    "Fused",
    "Given",
    "Gram",
    "Mirror",
    "Primal",
    "Scatter",
    "make_gram",
    "stored_bytes",
]
