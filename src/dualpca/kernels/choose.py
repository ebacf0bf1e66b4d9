"""From what a user gives (a name, an object, a function) to a kernel."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dualpca.errors import expected
from dualpca.kernels.base import KERNELS, Kernel
from dualpca.kernels.gaussian_process import is_gaussian_process_kernel, translate
from dualpca.kernels.objects import Function, Precomputed

ALIASES: dict[str, type[Kernel]] = {"poly": KERNELS["polynomial"], "precomputed": Precomputed}
"""Names beside those that kernels register themselves."""

SHARED = frozenset({"gamma", "degree", "coef0"})
"""Parameters that scikit-learn gives to every named kernel, which ignores those not its own."""


def make_kernel(kernel: Any, **params: Any) -> Kernel:
    """Return the kernel that is meant.

    Parameters
    ----------
    kernel : str, Kernel, Gaussian-process kernel of scikit-learn, or callable
        A name is one of `KERNELS`, 'poly' or 'precomputed'; a callable is a function of two
        items.
    **params : object
        Of a named kernel: its parameters, where gamma, degree and coef0 are ignored by those
        that have none, as in scikit-learn, and None means the kernel's own default. Of a
        callable: its keyword arguments. Objects have their own.

    Examples
    --------
    >>> make_kernel("poly", gamma=None, degree=2, coef0=1.0)
    Polynomial(on=None, degree=2, gamma=None, coef0=1.0)
    """
    if isinstance(kernel, str):
        return _named(kernel, params)
    if isinstance(kernel, Kernel) or is_gaussian_process_kernel(kernel):
        if params:
            remedy = f"Set them on the kernel itself: {kernel!r}."
            raise ValueError(expected("parameters", "absent beside a kernel", params, remedy))
        return kernel if isinstance(kernel, Kernel) else translate(kernel)
    if isinstance(kernel, type) or not callable(kernel):
        what = f"one of {names()}, a Kernel, a Gaussian-process kernel or a function of two items"
        raise ValueError(expected("kernel", what, kernel))
    return Function(kernel, params)


def names() -> list[str]:
    """Return every name that `make_kernel` takes."""
    return sorted({*KERNELS, *ALIASES})


def _named(name: str, params: dict[str, Any]) -> Kernel:
    """Return a kernel by name, with those of the parameters that it takes."""
    cls = ALIASES.get(name) or KERNELS.get(name)
    if cls is None:
        raise ValueError(expected("kernel", f"one of {names()}", name))
    accepted = {f.name for f in fields(cls)}
    unknown = sorted(set(params) - accepted - SHARED)
    if unknown:
        what = f"among {sorted(accepted)} for the kernel {name!r}"
        raise ValueError(expected("parameters", what, unknown))
    given = {k: v for k, v in params.items() if k in accepted and v is not None}
    return cls(**given)
