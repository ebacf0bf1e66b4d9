"""Faults put into the package one at a time, to see whether a test notices.

``python -m tools.mutants coverage`` measures which test runs which line, once;
``python -m tools.mutants run`` draws faults at random and runs the tests nearest to each.

Read in this order: `drawing` (what can be changed, and what is not worth it), `nearest` (which
tests run a line), `running` (copies of the tree, one process per fault), `__main__`.
"""
