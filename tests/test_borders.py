"""Shapes on both sides of every number at which code goes another way; and that none is forgotten.

All sizes are real: no constant is changed for a test. `tests/borders.py` is the list.
"""

import ast
from pathlib import Path

import numpy as np
import pytest

import dualpca
from tests import border_cases
from tests.borders import BORDERS, ELSEWHERE, PLAIN

SOURCE = Path(dualpca.__file__).parent
ROOMS = (
    "arrays data kernels operators solvers gaussian models estimators preimages generation search"
).split()
FAST_SIZE, FAST_DRAWS = 150_000, 12
SLOW_SIZE, SLOW_DRAWS, SLOW_SEEDS = 1_000_000, 25, 2


def constants_of(tree):
    """Yield module-level names of whole numbers from 2 on: what a size can be compared with."""
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        target = node.targets[0]
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=True))
        for name, value in pairs:
            number = whole_number(value)
            if isinstance(name, ast.Name) and name.id.strip("_").isupper() and number is not None:
                yield name.id


def whole_number(node):
    """Return the value of an expression of numbers alone if it is whole and at least 2."""
    parts = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    if not all(isinstance(part, parts) for part in ast.walk(node)):
        return None
    value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if number and value >= 2 and float(value).is_integer() else None


def literals_of(tree):
    """Yield 'function:number' of bare numbers from 4 on in order comparisons, and 8 in min, max."""
    waiting = [(tree, "")]
    while waiting:
        node, function = waiting.pop()
        function = node.name if isinstance(node, ast.FunctionDef) else function
        waiting += [(child, function) for child in ast.iter_child_nodes(node)]
        least, parts = 4.0, []
        if isinstance(node, ast.Compare):
            order = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
            parts = [node] if any(isinstance(op, order) for op in node.ops) else []
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("min", "max"):
            least, parts = 8.0, node.args
        for part in (inner for outer in parts for inner in ast.walk(outer)):
            value = part.value if isinstance(part, ast.Constant) else None
            number = type(value) in (int, float) and value >= least and float(value).is_integer()
            if function and number:
                yield f"{function}:{value:g}"


def written():
    """Return file → every such name in the rooms that compute."""
    found = {}
    for room in ROOMS:
        for path in sorted((SOURCE / room).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = {*constants_of(tree), *literals_of(tree)}
            if names:
                found[path.relative_to(SOURCE).as_posix()] = names
    return found


def listed():
    """Return file → every name in the lists."""
    found = {}
    for border in BORDERS:
        found.setdefault(border.file, set()).update(border.names.split())
    for part in (ELSEWHERE, PLAIN):
        for file, entries in part.items():
            for names in entries:
                found.setdefault(file, set()).update(names.split())
    return found


def test_every_number_that_a_size_can_be_compared_with_is_listed():
    ours, theirs = listed(), written()
    missing, stale = beyond(theirs, ours), beyond(ours, theirs)
    assert not missing, f"add to tests/borders.py, with shapes if code goes another way: {missing}"
    assert not stale, f"no longer in the source: {stale}"


def beyond(some, others):
    """Return what is in one of two lists and not in the other, by file."""
    found = {file: sorted(names - others.get(file, set())) for file, names in some.items()}
    return {file: names for file, names in found.items() if names}


def test_every_case_is_a_border_s():
    named = {case for border in BORDERS for case in border.cases.split()}
    assert all(hasattr(border_cases, case) for case in named)


def names_of(borders):
    """Return an id for each."""
    return [f"{border.file}-{border.names.split()[0]}-{k}" for k, border in enumerate(borders)]


def size(shape, case):
    """Return how large a case is: entries of its rows, and a share of those of a kernel."""
    n, d, _ = shape
    return n * d + (n * n // 2 if case.startswith("kernel") and case != "kernel_rows" else 0)


def look(border, shape, case, seed):
    """Run one case, saying where it was."""
    try:
        getattr(border_cases, case)(*shape, np.random.default_rng(seed))
    except Exception as error:
        where = f"{border.file} {border.names} ({border.what}): {case}{shape}, seed {seed}"
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("border", BORDERS, ids=names_of(BORDERS))
def test_beside_a_border_all_is_as_in_dense_numpy(border):
    rng, cases = np.random.default_rng(0), border.cases.split()
    for k, case in enumerate(cases):
        shapes = [border.draw(rng) for _ in range(FAST_DRAWS)]
        fits = [shape for shape in shapes if size(shape, case) <= FAST_SIZE]
        for shape in fits[: max(2, 6 // len(cases))]:
            look(border, shape, case, k)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SLOW_SEEDS))
@pytest.mark.parametrize("border", BORDERS, ids=names_of(BORDERS))
def test_many_shapes_beside_a_border(border, seed):
    rng = np.random.default_rng([seed, *border.names.encode()])
    for case in border.cases.split():
        spent, drawn = 0, 0
        while drawn < SLOW_DRAWS and (not drawn or spent <= SLOW_SIZE):
            shape = border.draw(rng)
            look(border, shape, case, int(rng.integers(2**31)))
            drawn, spent = drawn + 1, spent + size(shape, case)
