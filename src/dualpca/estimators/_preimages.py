"""Pre-image methods by name; kept for importers until all of them use `_base`."""

from dualpca.estimators._base import method_of as method_of
