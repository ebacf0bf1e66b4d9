"""``python -m tools.digits``: measure, and write `docs/design/digits.md`."""

import math
from pathlib import Path

from tools.digits.measuring import measured

PAGE = Path(__file__).resolve().parents[2] / "docs" / "design" / "digits.md"

HEAD = """\
# Digits

Written by `python -m tools.digits` and kept by `tests/test_digits.py`.

No method can be more accurate than its question: if the rows change in their last digit, the
answer changes by the condition number κ times 2⁻⁵² = 2.2 × 10⁻¹⁶. The tables give errors **in
units of κ × 2⁻⁵²**, with κ in brackets. A stable method stays within a few units.

- *NIST*: certified values of the [Statistical Reference
  Datasets](https://www.itl.nist.gov/div898/strd/): mean and standard deviation of a column by
  `PCA`; sums of squares within and between groups from the moments of each group, merged. Data
  that NIST defines by a rule are made by it, others are stored. κ is the root of mean square over
  variance. Rounding the decimal data to float64 is part of the error.
- All others are computed with mpmath in 50 digits from the same float64 numbers (`python -m
  tools.digits.exact`; the tests need no mpmath). Closed forms are fitted. Models of rows with
  gaps are stored, and asked for densities, values in gaps and latents of twelve rows, one of them
  30 times as far out, one with nothing known.
- κ is the largest variance over the one asked for (of kernels, n over the eigenvalue, or one over
  the noise); for projections and products of scores, over the gap below the last component; for
  densities of fits both, and the mean in deviations of the noise; for stored models the condition
  of their covariance.
- One-sided truncated normals come from a table that is good to 10⁻¹² (`tail_moments`); far out
  their variances are small beside that.

"""


def shown(error):
    """Return an error in units, rounded up to one digit; below a tenth it says no more."""
    if error < 0.1:
        return "< 0.1"
    step = 10.0 ** math.floor(math.log10(error))
    top = math.ceil(error / step - 1e-9) * step
    return f"{top:.1f}" if top < 1 else f"{top:.0f}"


def number(condition):
    """Return a condition number with one digit."""
    if condition < 1000:
        return f"{condition:.0f}"
    digit, power = f"{condition:.0e}".split("e")
    return f"{digit}e{int(power)}"


def table(rows):
    """Return the table of a family: points down, what is asked across."""
    asked = list(dict.fromkeys(row.what for row in rows))
    cells = {(row.point, row.what): f"{shown(row.error)} ({number(row.condition)})" for row in rows}
    lines = [f"| | {' | '.join(asked)} |", f"|---|{'---|' * len(asked)}"]
    for point in dict.fromkeys(row.point for row in rows):
        values = (cells.get((point, what), "–") for what in asked)
        lines.append(f"| {point} | {' | '.join(values)} |")
    return "\n".join(lines)


def page(rows):
    """Return the page, a table for every family in the order in which they first come."""
    families = dict.fromkeys(row.family for row in rows)
    groups = ([row for row in rows if row.family == name] for name in families)
    parts = [f"## {group[0].family}\n\n{table(group)}\n" for group in groups]
    return HEAD + "\n".join(parts)


def main():
    rows = measured()
    PAGE.write_text(page(rows), encoding="utf-8")
    worst = max(rows, key=lambda row: row.error)
    above = sum(row.error > 10 for row in rows)
    print(f"{len(rows)} comparisons, {above} above 10 units; worst {worst}")


if __name__ == "__main__":
    main()
