"""What has to be settled before any test module is read."""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

collect_ignore = []
if find_spec("torch") is None or find_spec("triton") is None:
    collect_ignore += [
        "src/dualpca/arrays/fused_scatter.py",
        "src/dualpca/kernels/fused_passes.py",
        "src/dualpca/kernels/fused_product.py",
    ]

if not Path("/dev/nvidia0").exists():
    # Triton reads this when a program is defined: without a card it is interpreted.
    os.environ.setdefault("TRITON_INTERPRET", "1")

os.environ.setdefault("MPLBACKEND", "agg")  # figures of pyplot open no windows

# Whole, before a doctest is read: pytest would make a module anew that its package imported.
import_module("dualpca")


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    """Close what a test or an example drew: pyplot keeps figures and warns after twenty."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
