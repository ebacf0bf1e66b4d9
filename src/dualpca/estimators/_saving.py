"""`save`, for every model."""

from __future__ import annotations

import os
import sys
from typing import Any

from sklearn.utils.validation import check_is_fitted

from dualpca.errors import expected


class Saved:
    """A model that can be written to a file; `dualpca.load` reads it."""

    def save(self, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None) -> None:
        """Write the fitted model to one file, whole or not at all; `dualpca.load` reads it.

        The file is a safetensors file with parameters, versions and a checksum in its header;
        arrays of any library are copied to the host. An old file of that name is replaced once the
        new one is complete.

        Parameters
        ----------
        path : path
            '.dpca' is the usual ending.
        metadata : dict, optional
            Anything that JSON can hold, kept beside the model: how a table became rows, notes.
            See `dualpca.save`.
        """
        save(self, path, metadata=metadata)

    def _require_fitted(self) -> None:
        """Refuse a model that was not fitted."""
        check_is_fitted(self)

    def _packed(self) -> dict[str, Any]:
        """Return everything to be saved, parameters included; a twin on a card stays there."""
        return {name: value for name, value in vars(self).items() if name != "_twin"}

    def _unpack(self, state: dict[str, Any]) -> None:
        """Set the fitted attributes."""
        vars(self).update(state)


def save(
    model: Any, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None
) -> None:
    """Write a fitted model to one file, and beside it what else should be known of it.

    Parameters
    ----------
    model : estimator
        Of this library; or scikit-learn's `Pipeline` of `StandardScaler` and those.
    path : path
        '.dpca' is the usual ending.
    metadata : dict, optional
        Text, finite numbers, true, false, None, lists and dictionaries of them, up to 8 MiB of
        JSON. `metadata["table"]` says how a table became rows and is checked: `columns`, `levels`,
        `means`, `scales`, `image_shape`, `identifier`. It belongs to the file: a model that is
        loaded and saved again has none unless it is given again.

    Examples
    --------
    >>> import tempfile
    >>> import dualpca
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> means, scales = X.mean(axis=0), X.std(axis=0)
    >>> model = dualpca.PPCA(2).fit((X - means) / scales)
    >>> table = {"means": means.tolist(), "scales": scales.tolist()}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dualpca.save(model, f"{folder}/iris.dpca", metadata={"table": table})
    ...     again, found = dualpca.load(f"{folder}/iris.dpca", return_metadata=True)
    >>> found == {"table": table}
    True
    """
    from dualpca.files import persistence  # late: it imports every type that files may hold

    if not hasattr(type(model), "get_params"):
        raise TypeError(expected("model", "an estimator of dualpca, or a pipeline of them", model))
    check_is_fitted(model)
    persistence.save(model, path, _version(), metadata)


def _version() -> str:
    """Return the library's version, which its package says; no layer may import that."""
    return str(sys.modules["dualpca"].__version__)
