"""scikit-learn's shell around the core: validation and names, no mathematics."""

from typing import TYPE_CHECKING, Any

from dualpca.files.lazy import submodule

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a module of the package."""
        return submodule(__name__, name)
