"""Where a table begins: lines above the header, the header itself, and a row of units.

A first row that can be a header is the header. Another one is looked for only where the first
cannot be: where the rows below it are longer or shorter, or one of its names is empty or repeated.
So what can be read without this is read as it was. A row of units is told by its words, which are
units, above columns of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from dualpca.app.tables.text import MISSING, TableError

Row = Sequence[str]
"""Cells without spaces around them."""
Rows = Sequence[Row]

VALUE = re.compile(
    r"(?:<=|>=|[<>≤≥])?\s*[+-]?[.,]?\d[\d.,:/'’\s\u00a0\u202fT-]*(?:[eE][+-]?\d+)?\s*[Z%]?"
)
"""A number in any notation, a bound, a date or a time."""


class Given(NamedTuple):
    """What the user says of the first lines; lines are counted from 1."""

    skip: int | None = None  # lines above the header
    header: int | None = None  # line with the names of columns; 0: there is none
    units: int | None = None  # line with their units; 0: there is none


class Head(NamedTuple):
    """Which of the first rows are what; rows are counted from 0."""

    header: int | None  # None: columns have no names
    units: int | None
    first: int  # of the rows of the table


def place(rows: Rows, missing: Collection[str] = MISSING) -> Head:
    """Return which row is the header of a table and which has units.

    Parameters
    ----------
    rows : sequence of sequences of str
        The first rows of a file, titles and empty ones included.
    missing : collection of str
        What marks a missing entry.

    Examples
    --------
    >>> place([["a", "b"], ["x", "y"], ["1", "2"]])
    Head(header=0, units=None, first=1)
    >>> place([["Batch 7"], [""], ["time", "temp"], ["min", "°C"], ["0", "21.5"], ["1", "21.7"]])
    Head(header=2, units=3, first=4)
    """
    if not is_ordinary(rows):
        header = header_of(rows, missing)
        return Head(0, None, 1) if header is None else with_units(rows, header, missing)
    return with_units(rows, 0, missing)


def with_units(rows: Rows, header: int, missing: Collection[str] = ()) -> Head:
    """Return the rows of a header, of the units below or above it, and of the first entries."""
    if not rows or not any(rows[header]):
        return Head(header, None, header + 1)
    wide = [k for k in filled_in(rows) if len(rows[k]) == len(rows[header])]
    at = wide.index(header)
    below, above = wide[at + 1 : at + 2], wide[max(at - 1, 0) : at]
    body = [rows[k] for k in wide[at + 1 :]]
    units: int | None = None
    if below and are_units(rows[below[0]], body[1:], missing):
        units = below[0]
    elif above and are_units(rows[above[0]], body, missing):
        units = above[0]
    elif below and not all(rows[header]) and all(rows[below[0]]):
        if can_name(rows[below[0]]) and are_units(rows[header], body[1:], missing):
            header, units = below[0], header
    last = max(header, -1 if units is None else units)
    rest = [k for k in wide if k > last] if units is not None or header else []
    if units is not None and len(rest) > 1 and set(rows[rest[0]]) <= METHODS:
        del rest[0]
    return Head(header, units, rest[0] if rest else last + 1)


def filled_in(rows: Rows) -> list[int]:
    """Return which rows are not empty."""
    return [k for k, row in enumerate(rows) if any(row)]


# --- headers -----------------------------------------------------------------------------------


def is_ordinary(rows: Rows) -> bool:
    """Return True if the first row can be the header of all others."""
    if not rows:
        return True
    names, end = rows[0], (filled_in(rows) or [0])[-1] + 1
    same = all(len(row) == len(names) for row in rows[:end])
    return same and all(names[min(1, len(names) - 1) :]) and len(set(names)) == len(names)


def header_of(rows: Rows, missing: Collection[str] = ()) -> int | None:
    """Return the row that must be the header of the largest table among rows, if there is one."""
    filled = filled_in(rows)
    runs = [list(run) for _, run in groupby(filled, lambda k: len(rows[k]))]
    run = max((run for run in runs if len(rows[run[0]]) > 1), key=len, default=[])
    for at, k in enumerate(run[:-1]):
        body = [rows[i] for i in run[at + 1 :]]
        above = [rows[i] for i in range(k)]
        apart = bool(above) and not any(above[-1])
        told = begins(rows[k], body, missing)
        told |= apart and len(body) > 1 and all(_size(row) < 2 for row in above)
        if told and can_name(rows[k]):
            return None if _is_table(above, rows[k], body, missing) else k
    return None


def begins(row: Row, body: Rows, missing: Collection[str] = MISSING) -> bool:
    """Return True if a row is the header of others: names, below them perhaps units, and values."""
    if not can_name(row):
        return False
    return has_values(row, body, missing) or (
        len(body) > 1 and are_units(body[0], body[1:], missing)
    )


def can_name(row: Row) -> bool:
    """Return True if a row can have the names of columns: different ones, and no numbers.

    Only the first name may be empty. Numbers are names where they count: 1, 2, 3 or 230, 240, 250.

    Examples
    --------
    >>> [can_name(row) for row in (["a", "b"], ["", "b"], ["a", ""], ["a", "7"])]
    [True, True, False, False]
    >>> can_name(["well", "230", "240", "250"])
    True
    """
    names = [*row[1:], row[0]] if row and row[0] else row[1:]
    plain = len(row) > 1 and all(names) and len(set(names)) == len(names)
    return plain and (not any(map(VALUE.fullmatch, names)) or _counts(row))


def _counts(row: Row) -> bool:
    """Return True if all cells but the first are numbers with equal steps, at least three."""
    if row[0] and VALUE.fullmatch(row[0]):
        return False
    try:
        steps = {round(b - a, 9) for a, b in pairwise(map(float, row[1:]))}
    except ValueError:
        return False
    return len(row) > 3 and len(steps) == 1 and 0 not in steps


def has_corner(rows: Rows) -> bool:
    """Return True if the first row counts columns after an empty cell, and all others have a name.

    So the wells of a plate are written, and frames without names of columns.

    Examples
    --------
    >>> has_corner([["", "1", "2", "3"], ["A", ".1", ".2", ".3"], ["B", ".4", ".5", ".6"]])
    True
    """
    body = [row[0] for row in rows[1:] if any(row)]
    counted = len(body) > 2 and _counts(["", *body])
    words = not any(map(VALUE.fullmatch, body))
    return (
        bool(rows)
        and not rows[0][0]
        and _counts(rows[0])
        and bool(body)
        and all(body)
        and (counted or words)
    )


def has_values(names: Row, body: Rows, missing: Collection[str] = ()) -> bool:
    """Return True if numbers or dates stand below some name, and nothing else."""
    for j, name in enumerate(names):
        below = [row[j] for row in body if row[j] and row[j] not in missing]
        if name and below and all(map(VALUE.fullmatch, below)):
            if not VALUE.fullmatch(name) or _counts(names):
                return True
    return False


def _is_table(above: Rows, names: Row, body: Rows, missing: Collection[str]) -> bool:
    """Return True if what stands above a header is more than titles: rows that would be lost."""
    apart = bool(above) and not any(above[-1])
    first = next((row for row in above if any(row)), ())
    if len(first) == len(names) and can_name(first):  # a header as wide, and an empty line
        return True
    if apart and sum(map(_size, above)) < _size(names) + sum(map(_size, body)):
        return False
    certain = len(body) > 1 and are_units(body[0], body[1:], missing)
    if any(_size(row) >= len(names) for row in above) and not certain:
        return True
    if any(len(set(names) & set(row) - {""}) > 1 for row in above):
        return True
    if any(_lacks_one(row) and len(row) == len(names) for row in above) and not certain:
        return True
    for k, row in enumerate(above):
        below = [one for one in above[k + 1 :] if len(one) == len(row)]
        if len(below) > 1 and begins(row, below, missing):
            return True
    return False


def _lacks_one(row: Row) -> bool:
    """Return True for different names, three at least, with an empty one after them or between."""
    names = [cell for cell in row if cell]
    others = len(names) > 2 and len(names) == len(row) - 1 and len(set(names)) == len(names)
    return (
        others
        and bool(row[0])
        and not any(map(VALUE.fullmatch, names))
        and not row[0].startswith(COMMENT)
    )


COMMENT = ("#", "//", "%")


def _size(row: Row) -> int:
    """Return how many cells are not empty; a comment is one cell."""
    return 1 if row[0].startswith(COMMENT) else sum(map(bool, row))


# --- units -------------------------------------------------------------------------------------

WORDS = """
% ‰ ° °C °F °K ℃ degC degF deg rad ppm ppb ppt pH rpm psi Torr torr mmHg atm bar mbar kbar
km cm mm µm um nm Å inch ft mi yd kg mg µg ug ng pg fg lb lbs oz kt dL dl cL cl mL ml µL µl uL ul
nL nl fL hL gal mol kmol mmol µmol umol nmol pmol mM µM uM nM pM Pa hPa kPa MPa mPa GPa mA µA uA nA
kA mV µV uV kV kW MW GW mW µW kWh MWh Wh kJ MJ eV keV MeV kcal cal ohm Ohm Ω kΩ MΩ µF uF nF pF mS µS
uS dS mT µT nT Ah mAh Hz kHz MHz GHz VA kVA dB dBA dBm lx klx lm cd mcd Bq kBq Gy mGy Sv mSv µSv
min mins sec secs ms µs us ns hr hrs hour hours day days week weeks month months year years yr yrs
knots kn kt mph kph kmh IU mIU kIU mU µU cfu CFU NTU FNU FTU PSU mAU mAU*s mAU*min RFU RLU a.u.
arb.u. counts count cps cells copies EUR € USD $ £ CHF ha hectare acre ac persons people inhabitants
kDa Da rH RH vol vol% wt% m% at% mol% Vol% Gew% wt vol. OD ml% mval mEq meq mOsm mosm dbar cmH2O DU
meters metres meter metre seconds second degrees volts Volts Deg inches feet counts/s unitless fmol
Stück Stk Stk. pcs pcs. pieces Anzahl Tage Jahre Personen Einwohner
m s g h d A K N J W V C F H S T L l M U t B AU in a
""".split()
"""Words of units."""
WEAK = {word for word in WORDS if len(word) == 1 and word.isascii() and word.isalpha()}
WEAK |= {
    "min",
    "sec",
    "day",
    "days",
    "week",
    "month",
    "year",
    "hour",
    "AU",
    "in",
    "a",
    "ha",
    "count",
}
WEAK |= {
    "counts",
    "people",
    "persons",
    "wt",
    "vol",
    "ac",
    "mi",
    "kt",
    "OD",
    "DU",
    "RH",
    "deg",
    "cal",
}
WEAK |= {"Stück", "Stk", "Stk.", "pcs", "pcs.", "pieces", "Anzahl", "Tage", "Jahre"}
WEAK |= {"Personen", "Einwohner"}
"""Those that may also be words or codes: a row has none but these only by chance."""
FACTOR = re.compile(r"(?:[x×]?\s*10)(?:\s*\^?\s*[-−⁻]?[\d⁰¹²³⁴-⁹]+)?|\d+(?:[.,]\d+)?")
POWER = re.compile(r"\^?[-−⁻]?[\d¹²³⁰⁴-⁹⁻]+$")
BRACKETS = re.compile(r"\[(.{1,24})\]|\((.{1,24})\)")
FORMATS = re.compile(
    r"(?i)[\[(]?(?:[ymdhs]{1,4}(?:[./: T-]+[ymdhs]{1,4})+|utc|gmt|local|ts|rn|units?"
    r"|einheit(?:en)?|unité)[\])]?"
)
"""What stands in a row of units where a column has dates or words."""
METHODS = {"", "Avg", "Smp", "Tot", "Max", "Min", "Std", "Med"}
"""How a logger made the values of columns, in a line below the units."""
NOTHING = ("", "-", "–", "—", "[-]", "(-)", "[–]", "[]", "()")


def is_unit(cell: str) -> bool:
    """Return True if a cell is a unit.

    Examples
    --------
    >>> [is_unit(cell) for cell in ("mg/L", "°C", "W m-2", "[bar]", "10^9/L", "mL/min/1.73m2")]
    [True, True, True, True, True, True]
    >>> [is_unit(cell) for cell in ("low", "n/a", "7", "Paris", "m/f", "")]
    [False, False, False, False, False, False]
    """
    inside = BRACKETS.fullmatch(cell)
    cell = (inside[1] or inside[2]).strip() if inside else cell
    if cell in WORDS:
        return True
    parts = [part for part in re.split(r"\s*[/·*×]\s*|\s+", cell.lstrip("x×").strip()) if part]
    units = [part for part in parts if not FACTOR.fullmatch(part)]
    return bool(units) and all(_is_word(part) for part in units)


def _is_word(part: str) -> bool:
    part = re.sub(r"^\d+(?:[.,]\d+)?(?=[A-Za-zµμ])", "", part)  # 1.73m2
    return part.replace("μ", "µ") in WORDS or POWER.sub("", part).replace("μ", "µ") in WORDS


WORD = re.compile(r"[^\W\d_]{1,10}\.?")
"""What may be a unit that is not known."""


def are_units(row: Row, body: Rows, missing: Collection[str] = ()) -> bool:
    """Return True if a row has the units of the columns below it.

    Every cell is a unit above a column of numbers, or nothing, or the format of a date; and one
    of them at least is nothing but a unit. Beside two of these, one word above numbers may be any.
    """
    strong, unknown = 0, 0
    for j, cell in enumerate(row):
        if cell in NOTHING or _is_format(cell):
            continue
        below = [one[j] for one in body if one[j] and one[j] not in missing]
        values = sum(map(bool, map(VALUE.fullmatch, below)))
        if is_unit(cell):
            strong += bool(below) and not set(cell.split()) <= WEAK
        elif below and values == len(below) and WORD.fullmatch(cell):
            unknown += 1
        else:
            return False
        if 2 * values < len(below):
            return False
    return strong > 0 if not unknown else unknown == 1 and strong > 1


def _is_format(cell: str) -> bool:
    return FORMATS.fullmatch(cell) is not None and not is_unit(cell)


def bare(unit: str) -> str:
    """Return a unit without brackets around it; nothing where there is none.

    Examples
    --------
    >>> bare("[mg/L]"), bare("°C"), bare("-")
    ('mg/L', '°C', '')
    """
    inside = BRACKETS.fullmatch(unit)
    return "" if unit in NOTHING else (inside[1] or inside[2]).strip() if inside else unit


# --- what the user gave ------------------------------------------------------------------------


def placed(rows: Rows, numbers: Sequence[int], given: Given, missing: Collection[str]) -> Head:
    """Return which row is what: as given, and found where nothing is said.

    Parameters
    ----------
    rows : sequence of sequences of str
    numbers : sequence of int
        The line that each row begins in.
    given : Given
    missing : collection of str
        Further codes of missing entries.

    Examples
    --------
    >>> rows = [["Batch 7", ""], ["a", "b"], ["first", "second"], ["1", "2"]]
    >>> placed(rows, [1, 2, 3, 4], Given(header=2, units=3), ())
    Head(header=1, units=2, first=3)
    """
    missing, numbers = (*MISSING, *missing), numbers[: len(rows)]
    if given == Given():
        return place(rows, missing)
    units = row_at(given.units, numbers, "--units") if given.units else None
    if given.header == 0:
        first = max(top_row(given, rows, numbers), -1 if units is None else units + 1)
        return Head(None, units, first)
    if given.header is None and given.skip is None:
        rest = [k for k in range(len(rows)) if k != units]
        header = rest[place([rows[k] for k in rest], missing).header or 0]
    else:
        header = top_row(given, rows, numbers)
    if given.units is None:
        head = with_units(rows, header, missing)
        return head if head.header == header else Head(header, None, header + 1)
    last = header if units is None else max(header, units)
    return Head(header, units, last + 1)


def top_row(given: Given, rows: Rows, numbers: Sequence[int]) -> int:
    """Return the first row that is not skipped, or that of the header."""
    if given.header:
        return row_at(given.header, numbers[: len(rows)], "--header")
    if not given.skip:
        return 0
    left = [k for k in filled_in(rows) if numbers[k] > given.skip]
    if not left:
        raise TableError(f"--skip {given.skip}: there are no rows after so many lines.")
    return left[0]


def row_at(line: int, numbers: Sequence[int], option: str) -> int:
    """Return the row that begins in a line."""
    if line == 1:  # also where a line before it says what separates fields
        return 0
    if line not in numbers:
        raise TableError(f"{option} {line}: there is no row that begins in this line.")
    return numbers.index(line)


# --- names and units of columns, and what is said ----------------------------------------------

ROW = "row"
"""Name of a first column without one: Python and R write row names so."""


def named(names: list[str], path: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the names of columns and notes on them; refuse repeated and empty ones."""
    first_only = len(names) > 1 and not names[0].strip() and all(map(str.strip, names[1:]))
    if first_only and ROW not in names:
        names = [ROW, *names[1:]]
        notes: tuple[str, ...] = (f"the first column of {path} has no name and is called 'row'.",)
    else:
        notes = ()
    _check_names(names, path)
    return names, notes


TITLES = "If titles stand above the header, say which line it is: --header 3."
"""What may help where a first line is no header."""


def _check_names(names: list[str], path: str) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1 and name.strip()})
    nameless = [j for j, name in enumerate(names) if not name.strip()]
    if repeated:
        raise TableError(
            f"the header of {path} repeats {repeated}: every column needs its own name. {TITLES}"
        )
    if nameless:
        before = names[nameless[0] - 1] if nameless[0] else None
        where = "at its beginning" if before is None else f"after {before!r}"
        raise TableError(
            f"the header of {path} has an empty name {where}: every column needs its own name. "
            f"Delete empty columns. {TITLES}"
        )


def units_in(names: Sequence[str], rows: Rows, head: Head) -> dict[str, str]:
    """Return the units of columns that have one."""
    if head.units is None:
        return {}
    pairs = zip(names, map(bare, rows[head.units]), strict=False)
    return {name: unit for name, unit in pairs if unit and not _is_format(unit)}


def head_notes(
    path: str,
    rows: Rows,
    numbers: Sequence[int],
    head: Head,
    given: Given,
    what: str = "line",
    above: int = 0,
) -> tuple[str, ...]:
    """Return what was found by itself above and below the header, in words.

    Parameters
    ----------
    path : str
    rows : sequence of sequences of str
    numbers : sequence of int
        The line that each row begins in.
    head : Head
    given : Given
    what : str
        What lines are called.
    above : int
        Lines that are not counted: before the first of these rows.
    """
    words, options = [], []
    if head.header is not None and given.header is None and given.skip is None:
        skipped = [row for k, row in enumerate(rows[: head.header]) if k != head.units]
        n = numbers[head.header] - 1 - above - (len(skipped) < head.header)
        if n:
            first = next((cell for row in skipped for cell in row if cell), "")
            short = repr(first if len(first) <= 40 else first[:40] + "…")
            title = f" ({short}{', …' if n > 1 else ''})" if first else ""
            words.append(f"{n} {what}{'s' * (n > 1)} above the header skipped{title}")
            options += ["--skip", "--header"]
    if head.units is not None and given.units is None:
        words.append(f"{what} {numbers[head.units]} read as units")
        options.append("--units")
        last = max(head.units, head.header or 0) + 1
        words += [f"{what} {numbers[k]} skipped" for k in range(last, head.first) if any(rows[k])]
    if not words:
        return ()
    change = f"{' and '.join([', '.join(options[:-1]), options[-1]] if options[1:] else options)}"
    verb = "changes" if len(options) == 1 else "change"
    return (f"{path}: {'; '.join(words)} ({change} {verb} this).",)
