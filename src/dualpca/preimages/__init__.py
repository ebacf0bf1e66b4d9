"""Pre-images: from points of feature space back to inputs (theory 11).

`Span` says which points of feature space; a method says how to come back. A new method is one
class: its definition registers it under `name`.
"""

from dualpca.preimages.base import PREIMAGES, Items, Method, PreImage, Span
from dualpca.preimages.closed import Distance, Learned, PlainSmoother, Smoother
from dualpca.preimages.closed import LearnedMap as LearnedMap
from dualpca.preimages.iterative import Auto, FixedPoint, Gradient

__all__ = [
    "PREIMAGES",
    "Auto",
    "Distance",
    "FixedPoint",
    "Gradient",
    "Items",
    "Learned",
    "Method",
    "PlainSmoother",
    "PreImage",
    "Smoother",
    "Span",
]
