"""What tests of canonical correlation share."""

import pytest

SINGULAR = pytest.mark.filterwarnings("ignore::dualpca.errors.CanonicalWarning")
