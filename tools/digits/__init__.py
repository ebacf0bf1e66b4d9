"""How many digits the models keep: certified values of NIST, and references with 50 digits.

`problems` makes the tables, the same on every machine. `exact` computes the references with mpmath
and keeps them in `references.json`, with the models that they are of in `models/`. `measuring` asks
dualpca the same, which needs no mpmath. ``python -m tools.digits`` writes `docs/design/digits.md`.
"""
