"""A fitted model of principal axes, and how it was found."""

from __future__ import annotations

from typing import NamedTuple

from dualpca.arrays import Array
from dualpca.gaussian import SpikedGaussian
from dualpca.models.driver import Record
from dualpca.operators import Spectrum


class Fitted(NamedTuple):
    """A fitted model and how it was found; the record ends with the final log-likelihood."""

    mean: Array  # (d,)
    spectrum: Spectrum
    gaussian: SpikedGaussian
    record: Record
    n_rows: int
    n: float  # effective number of rows: their weight, less what is missing
    endless: bool = False  # a stream: nothing to converge to, and no warning that it did not
