"""Every estimator at shapes drawn at random and around every switch, beside dense references.

Tests are small: what changes at the 65,536th entry or the 1,025th row is seen by few of them. Read
`switches` (numbers of the package at which code may take another way, found by looking), `truth`
(references: NumPy and textbook formulas, nothing of dualpca), `cases` (what is drawn: table,
container, estimator) and `judging` (what must agree, and how closely). The command line draws,
judges, shrinks what fails to one line that repeats it, and counts.
"""
