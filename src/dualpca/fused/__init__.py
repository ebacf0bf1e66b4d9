"""Kernel times block in one pass on a graphics card, the kernel never stored.

`forms` says which kernels have such a pass, `passes` holds the programs, `product` prepares the
points and launches them. Only the last two need torch and Triton, and they are imported late.
"""

from dualpca.fused.forms import Form, available, form_of

__all__ = ["Form", "available", "form_of"]
