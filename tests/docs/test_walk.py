"""docs/design/walk.md is what `docs/trace_walks.py` traces, and no walk enters too many files."""

import subprocess
import sys

from tests.docs.test_documentation import ROOT


def test_the_page_is_what_is_traced_and_every_walk_is_short():
    """In a process of its own: what other tests imported or cached leaves no trace."""
    command = [sys.executable, str(ROOT / "docs/trace_walks.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (found.returncode, found.stderr.strip()) == (0, "")
