"""Speed, accuracy and memory of dualpca against its peers, in one interleaved run.

``python -m benchmarks --help`` lists the options, and ``cases.py`` what is measured and the goals.
"""
