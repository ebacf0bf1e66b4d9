"""Thousands separators: 1,234.5 or 1.234,5, 1 234 and 1'234, where a whole column agrees.

One comma with three digits after it may also be a decimal comma. What the sign is follows from the
other numbers of the column, then from those of the table, then from what separates fields: a file
with commas between fields has none in its numbers, unless they group digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import polars as pl

SIGNS = {",": ",", ".": ".", " ": " \u00a0\u2009\u202f", "'": "'’"}
"""What may separate thousands: a sign, and how it is written."""
NAMED = {"space": " ", "comma": ",", "point": ".", "apostrophe": "'"}
BOUNDED = r"^(?:<=|>=|[<>≤≥])\s*"
ALONE = re.compile(r"[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}")
"""A number of which the sign may separate thousands or decimals."""
SHORT = re.compile(r"[+-]?[0-9]{1,3}")
"""A whole number without thousands."""


@cache
def pattern(sign: str, decimal: str) -> str:
    """Return a pattern of numbers with thousands separated by a sign."""
    signs = f"[{re.escape(SIGNS[sign])}]"
    end = rf"(?:{re.escape(decimal)}[0-9]+)?(?:[eE][+-]?[0-9]+)?"
    return rf"^((?:<=|>=|[<>≤≥])?\s*[+-]?)([1-9][0-9]{{0,2}}(?:{signs}[0-9]{{3}})+)({end})$"


@dataclass
class Grouping:
    """Which signs may separate thousands in a column of text."""

    decimal: str
    fits: set[str] = field(default_factory=lambda: set(SIGNS))
    first: dict[str, str] = field(default_factory=dict)  # cell with the sign
    sure: set[str] = field(default_factory=set)  # signs that can be nothing else
    long: bool = False  # numbers of four digits and more without a sign

    def add(self, text: pl.Series, values: pl.Series) -> None:
        """Take some entries, as text and as numbers (null where they are none)."""
        self.fits.discard(self.decimal)
        if not self.fits:
            return
        self.long |= bool((values.abs() >= 1000).any())
        rest = text.filter(values.is_null() & text.is_not_null())
        plain = rf"[+-]?[0-9]*(?:{re.escape(self.decimal)}[0-9]+)?$"
        rest = rest.filter(~rest.str.contains(BOUNDED + plain))
        if rest.is_empty():
            return
        for sign in sorted(self.fits):
            if not rest.str.contains(pattern(sign, self.decimal)).all():
                self.fits.discard(sign)
                continue
            self.first.setdefault(sign, rest[0])
            bare = rest.str.replace(BOUNDED, "")
            if sign not in ",." or not bare.str.contains(f"^{ALONE.pattern}$").all():
                self.sure.add(sign)

    def sign(self, given: str | None, known: bool) -> str | None:
        """Return the sign that separates thousands, if one does.

        Parameters
        ----------
        given : str or None
            The sign that the user gave.
        known : bool
            What marks decimals in the table is known.
        """
        found = sorted(self.fits & set(self.first))
        if given is not None:
            return given if given in found else None
        sure = [sign for sign in found if sign in self.sure or (known and not self.long)]
        return sure[0] if len(sure) == 1 else None


def ungrouped(frame: pl.DataFrame, signs: Mapping[str, str], decimal: str) -> pl.DataFrame:
    """Return a table of text without the thousands separators of some columns.

    Examples
    --------
    >>> frame = pl.DataFrame({"a": ["1,234.5", "12", "n.d."], "b": ["1,2", "x", None]})
    >>> ungrouped(frame, {"a": ","}, ".").rows()
    [('1234.5', '1,2'), ('12', 'x'), ('n.d.', None)]
    """
    changed = []
    for name, sign in signs.items():
        text, signs_ = frame[name].str.strip_chars(), f"[{re.escape(SIGNS[sign])}]"
        has = text.str.contains(pattern(sign, decimal)).fill_null(False)
        changed.append(text.str.replace_all(signs_, "").zip_with(has, frame[name]))
    return frame.with_columns(one.alias(name) for one, name in zip(changed, signs, strict=True))


def grouped(number: str, sign: str, decimal: str) -> str:
    """Return a number with its thousands separated.

    Examples
    --------
    >>> grouped("1234567.25", ",", "."), grouped("-999,5", ".", ","), grouped("1e6", ",", ".")
    ('1,234,567.25', '-999,5', '1e6')
    """
    found = re.fullmatch(rf"([+-]?)([0-9]{{4,}})((?:{re.escape(decimal)}[0-9]+)?)", number)
    return number if found is None else f"{found[1]}{int(found[2]):,}".replace(",", sign) + found[3]


def as_written(cell: str, sign: str) -> str:
    """Return how a cell writes what separates its thousands.

    Examples
    --------
    >>> as_written("1’234.5", "'")
    '’'
    """
    return next((letter for letter in cell if letter in SIGNS[sign]), sign)


def notes(path: str, signs: Mapping[str, str], first: Mapping[str, str]) -> tuple[str, ...]:
    """Return what was read as a thousands separator, in words.

    Examples
    --------
    >>> notes("t.csv", {"a": ","}, {"a": "1,234.5"})[0]
    "t.csv: ',' separates thousands in 'a', as in '1,234.5' (--thousands none leaves text)."
    """
    said = []
    for sign in dict.fromkeys(signs.values()):
        names = [name for name, one in signs.items() if one == sign]
        some = ", ".join(map(repr, names[:10])) + (", …" if names[10:] else "")
        what = "a space" if sign == " " else repr(sign)
        said.append(
            f"{path}: {what} separates thousands in {some}, as in {first[names[0]]!r} "
            "(--thousands none leaves text)."
        )
    return tuple(said)


# --- what marks decimals -----------------------------------------------------------------------


def votes(columns: Iterable[Sequence[str]], separator: str) -> set[str]:
    """Return which signs mark decimals for certain, in columns of nothing but numbers.

    1,5 and 1.234.567 vote for a comma, 1.5 and 1,234,567 for a point, 1,234 for neither.

    Examples
    --------
    >>> votes([["1.234", "12"], ["0,5", "7"]], ";"), votes([["1,234", "12,345"]], ";")
    ({','}, set())
    """
    return {decimal for cells in columns for decimal in ".," if _is_sure(cells, decimal, separator)}


def _is_sure(cells: Sequence[str], decimal: str, separator: str) -> bool:
    """Return True if a sign marks decimals in numbers, and nothing else can."""
    plain = re.compile(rf"[+-]?[0-9]*(?:{re.escape(decimal)}[0-9]+)?(?:[eE][+-]?[0-9]+)?")
    odd = [cell for cell in cells if not plain.fullmatch(cell)]
    for sign in SIGNS:
        form = re.compile(pattern(sign, decimal)) if sign != decimal else plain
        if not all(map(form.fullmatch, odd)):
            continue
        if any(decimal in cell for cell in odd):  # 1.234,5
            return True
        if any(decimal in cell and not ALONE.fullmatch(cell) for cell in cells):
            return True
        if sign in ",." and any(cell.count(sign) > 1 for cell in odd):  # 1.234.567
            return True
        if sign == "," and separator in "\t|" and min(len(odd), len(cells) - len(odd)) > 1:
            return True  # 1,234 and 56: whole numbers, where fields are not separated by ;
        short = sum(map(bool, map(SHORT.fullmatch, cells)))
        if sign == "." and separator == ";" and min(len(odd), short) > 1:
            if len(odd) + short == len(cells):  # 1.234 and 56, between ;
                return True
    return False
