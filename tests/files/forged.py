"""Files with a changed value, for tests of what is checked."""

import dualpca as dp
from tests.files import hostile
from tests.files.saved_models import MODELS


def saved(name, path):
    """Return a good file, taken apart."""
    dp.save(MODELS[name](), path)
    return hostile.File(path.read_bytes())
