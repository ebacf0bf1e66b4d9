"""Which lines of the package a call reaches, whatever thread runs them."""

import sys
import threading
from pathlib import Path

import dualpca

HOME = str(Path(dualpca.__file__).parent)


class Lines:
    """The lines reached so far. Functions of which all lines were reached cost nothing more."""

    def __init__(self, home=HOME):
        self.home = home
        self.seen = set()
        self._left = {}  # of a function: the lines that were not reached yet

    def during(self, call):
        """Return what a call returns, and how many lines it was the first to reach."""
        before, kept = len(self.seen), sys.gettrace()
        threading.settrace(self._entered)
        sys.settrace(self._entered)
        try:
            found = call()
        finally:
            sys.settrace(kept)
            threading.settrace(kept)
        return found, len(self.seen) - before

    def _entered(self, frame, event, argument):
        code = frame.f_code
        if not code.co_filename.startswith(self.home):
            return None
        left = self._left.get(code)
        if left is None:
            left = {line for *_, line in code.co_lines() if line} - {code.co_firstlineno}
            self._left[code] = left
        if not left:
            return None
        name, seen = code.co_filename, self.seen

        def at_a_line(frame, event, argument):
            if event == "line" and frame.f_lineno in left:
                left.discard(frame.f_lineno)
                seen.add((name, frame.f_lineno))
            return at_a_line if left else None

        return at_a_line
