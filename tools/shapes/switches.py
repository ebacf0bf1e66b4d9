"""Numbers of the package at which code may take another way, and shapes on either side of them."""

import ast
import math
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import dualpca

ROOMS = ("arrays", "data", "kernels", "operators", "solvers", "gaussian", "models", "estimators")
GPU = ("arrays.fused_scatter", "kernels.fused_product", "kernels.fused_passes")
LEAST, MOST = 2, 2**40


@dataclass(frozen=True)
class Switch:
    """A number that stands at the top of a module or in a comparison."""

    name: str  # data.moments.AT_A_TIME, or data.moments:120 of a number without a name
    value: float


def _numbers(value):
    """Yield the numbers of a constant: itself, or those of a tuple, a list or a dictionary."""
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        if math.isfinite(value) and LEAST <= value <= MOST:
            yield float(value)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, dict):
        yield from _numbers(list(value.values()))


def _names(node):
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        items = target.elts if isinstance(target, ast.Tuple) else [target]
        yield from (item.id for item in items if isinstance(item, ast.Name))


def of_module(text, values, name):
    """Return the switches of a module: its constants, fields with a number, compared numbers.

    `values` are the module's attributes: constants may be computed from others.
    """
    tree, found = ast.parse(text), []
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for constant in _names(node):
                if constant.isupper():
                    found += [
                        Switch(f"{name}.{constant}", v) for v in _numbers(values.get(constant))
                    ]
    for node in ast.walk(tree):
        numbers = [*node.comparators, node.left] if isinstance(node, ast.Compare) else []
        for inner in (inner for number in numbers for inner in ast.walk(number)):
            if isinstance(inner, ast.Constant):
                found += [Switch(f"{name}:{inner.lineno}", v) for v in _numbers(inner.value)]
    return found


def collected():
    """Return the switches of every numerical room, found by reading all its modules."""
    home, found = Path(dualpca.__file__).parent, []
    for room in ROOMS:
        for path in sorted((home / room).rglob("*.py")):
            parts = path.relative_to(home).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            if name in GPU:
                continue
            module = import_module(f"dualpca.{name}")
            found += of_module(path.read_text(encoding="utf-8"), vars(module), name)
    return found


# --- Shapes around a switch ----------------------------------------------------------------------


def beside(rng, value):
    """Return a whole number at, just beside, between one and two times, or just past twice."""
    kind = rng.integers(4)
    if kind == 0:
        return max(1, round(value) + int(rng.integers(-1, 2)))
    if kind == 1:
        return max(1, round(value * rng.uniform(1, 2)))
    if kind == 2:
        return max(1, round(2 * value) + int(rng.integers(-1, 2)))
    return max(1, round(value * rng.uniform(2, 5)))


def log_uniform(rng, low, high):
    """Return a whole number whose logarithm is uniform."""
    return math.floor(math.exp(rng.uniform(math.log(low), math.log(high + 1))))


ROLES = {
    "rows": lambda c, rng: (beside(rng, c), log_uniform(rng, 2, 40)),
    "columns": lambda c, rng: (log_uniform(rng, 6, 200), beside(rng, c)),
    "entries": lambda c, rng: _by_width(c, rng, lambda d: d),
    "bytes": lambda c, rng: _by_width(c / 8, rng, lambda d: d),
    "squares": lambda c, rng: _by_width(c, rng, lambda d: d * d),
    "ratio": lambda c, rng: _by_width(c, rng, lambda d: 1 / d),
    "flat": lambda c, rng: _by_width(c, rng, lambda d: 1 / d)[::-1],
    "order": lambda c, rng: (beside(rng, math.sqrt(c)), log_uniform(rng, 2, 40)),
    "both": lambda c, rng: (beside(rng, c), beside(rng, c)),
}
"""What a number may be of a table, each as (rows, columns): n, d, nd, bytes, nd², n/d, d/n, n² or
both sides."""


def _by_width(c, rng, weight):
    """Return rows so that rows · weight(columns) is beside c."""
    d = log_uniform(rng, 2, 120)
    return beside(rng, c / weight(d)), d


OFTEN = ("rows", "entries", "columns")
"""Roles that are tried three times as often."""

LARGE = 32
"""Numbers below which shapes drawn anywhere come often enough: these are tried one time in five."""


def near(rng, switches, fits):
    """Return (rows, columns, what) beside some switch in some role, where `fits(n, d)`."""
    roles = [role for role in ROLES for _ in range(3 if role in OFTEN else 1)]
    large = [one for one in switches if one.value >= LARGE]
    for _ in range(200):
        some = large if rng.random() < 0.8 else switches
        switch = some[rng.integers(len(some))]
        role = roles[rng.integers(len(roles))]
        n, d = ROLES[role](switch.value, rng)
        if fits(n, d):
            return n, d, f"{switch.name} as {role}"
    return None


def anywhere(rng, fits, entries):
    """Return (rows, columns) that fit; the logarithm of their product is uniform up to `entries`.

    So any stretch between one block and two, wherever it lies, is met by some cases in a hundred.
    """
    while True:
        size = log_uniform(rng, 12, entries)
        d = log_uniform(rng, 1, max(2, size // 6))
        if fits(size // d, d):
            return size // d, d
