"""Pre-images: from points of feature space back to inputs (MATH 11).

`Span` says which points of feature space; a method says how to come back. A new method is one
class: its definition registers it under `name`.
"""

from dualpca.preimages.auto import Auto
from dualpca.preimages.base import PREIMAGES, Method, PreImage
from dualpca.preimages.distance import Distance
from dualpca.preimages.expansion import Items
from dualpca.preimages.iterative import FixedPoint, Gradient
from dualpca.preimages.learned import Learned
from dualpca.preimages.smoother import Smoother
from dualpca.preimages.span import Span

__all__ = [
    "PREIMAGES",
    "Auto",
    "Distance",
    "FixedPoint",
    "Gradient",
    "Items",
    "Learned",
    "Method",
    "PreImage",
    "Smoother",
    "Span",
]
