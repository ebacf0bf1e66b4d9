"""Speed, accuracy and memory of dualpca beside other libraries.

    python -m benchmarks                    every section, then the page and a summary
    python -m benchmarks pca small:models   a section, a part of one
    python -m benchmarks --page             the page from the stored results, nothing is run

`sections.py` lists the sections. Each is a module with `rows(run, part)`; what it yields goes into
`results/<section>.json`, and `page.py` makes docs/benchmarks.md of these files and of `page.md`.
"""
