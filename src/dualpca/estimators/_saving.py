"""`save`, for every model."""

from __future__ import annotations

import os
from typing import Any

from sklearn.utils.validation import check_is_fitted

from dualpca import persistence


class Saved:
    """A model that can be written to a file; `dualpca.load` reads it."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file, whole or not at all; `dualpca.load` reads it.

        The file is a safetensors file with parameters, versions and a checksum in its header;
        arrays of any library are copied to the host. An old file of that name is replaced once the
        new one is complete.

        Parameters
        ----------
        path : path
            '.dpca' is the usual ending.
        """
        check_is_fitted(self)
        persistence.save(self, path, _version())

    def _packed(self) -> dict[str, Any]:
        """Return everything to be saved, parameters included."""
        return dict(vars(self))

    def _unpack(self, state: dict[str, Any]) -> None:
        """Set the fitted attributes."""
        vars(self).update(state)


def _version() -> str:
    """Return the library's version, which its package sets after it has imported this module."""
    import dualpca

    return dualpca.__version__
