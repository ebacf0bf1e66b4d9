"""Hostile inputs for everything that reads files, guided by the lines that they reach.

Read `lines` (which lines of the package a call reaches), `targets` (what is attacked: good inputs,
how they are changed, what may become of them) and `hunting` (an input that reaches a new line is
kept and changed further; what must not happen is told once for each place). The inputs that led
furthest in earlier runs are kept in `corpus.json`, each as the name of a good input and the seeds
of the changes made to it. The command line attacks every target in a process of its own.
"""
