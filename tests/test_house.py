"""How the package is built: what `docs/design` promises about imports, names and types."""

import ast
import textwrap
from collections import defaultdict
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import dualpca

HOME = Path(dualpca.__file__).parent
TREES = {
    ".".join(("dualpca", *path.relative_to(HOME).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(HOME.rglob("*.py"))
}
TESTS = Path(__file__).parent
LIBRARY = {name: tree for name, tree in TREES.items() if not name.startswith("dualpca.app")}


def imported(tree):
    """Yield the modules of ours that a module imports, inside functions too, not for types."""
    hidden = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and "TYPE_CHECKING" in ast.unparse(test.test)
        for node in ast.walk(test)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in TREES)
        if isinstance(node, ast.ImportFrom) and node.module in TREES:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in TREES else node.module for name in inside)


def cycles(graph):
    """Return the strongly connected parts of a graph with more than one node (Tarjan, 1972)."""
    order, low, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in graph[node]:
            if other not in order:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == order[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(part) > 1 or node in graph[node]:
                found.append(sorted(part))

    for node in graph:
        if node not in order:
            visit(node)
    return found


def test_cycles_are_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]]
    assert cycles({"a": {"a"}}) == [["a"]]
    assert cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_modules_import_in_no_circle_not_even_inside_functions():
    # the package itself imports everything when first asked for it
    lazily = {"dualpca", "dualpca.app.cli"}
    graph = {name: set(imported(tree)) - lazily for name, tree in TREES.items()}
    assert cycles(graph) == []


def test_few_modules_lie_loose():
    loose = {path.stem for path in HOME.glob("*.py")}
    assert loose == {"__init__", "__main__", "errors"}


def test_a_class_name_has_one_meaning():
    homes = defaultdict(list)
    for module, tree in LIBRARY.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(module)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_a_constant_has_one_value():
    values = defaultdict(dict)
    for module, tree in LIBRARY.items():
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if len(name) > 1 and name.isupper():
                    values[name][module] = ast.unparse(node.value)
    assert {name: where for name, where in values.items() if len(where) > 1} == {}


TYPES_ONLY = {"dualpca.arrays.types", "dualpca.estimators._types"}
TESTED_ELSEWHERE = {
    # what all estimators share: tests that try every one of them
    "estimators._shell": "estimators/test_estimator_checks.py",
    "estimators._linear": "estimators/test_standardize.py",
    "estimators._kernel": "models/test_kernel_pca_inputs.py",
    # estimators of one kernel model: with the model
    "estimators.kernel": "models/test_kernel_pca_inputs.py",
    "estimators.dual": "models/test_dual_bad_input.py",
    "estimators.kernel_canonical": "models/test_kernel_canonical.py",
    "estimators.probabilistic_kernel": "models/test_probabilistic_kernel.py",
    "estimators.twin": "models/test_twin.py",
    "estimators.generator": "generation/test_generator.py",
    # families whose members stand in one table and pass the same tests
    "kernels.base": "kernels/test_kernels.py",
    "kernels.dot": "kernels/test_kernels.py",
    "kernels.stationary": "kernels/test_kernels.py",
    "preimages.base": "preimages/test_preimages.py",
    "preimages.closed": "preimages/test_preimages.py",
    "preimages.iterative": "preimages/test_preimages.py",
    # steps of one method: densities are drawn from by chains, along paths, and judged
    "generation.chains": "generation/test_generation.py",
    "generation.densities": "generation/test_generation.py",
    "generation.paths": "generation/test_generation.py",
    "generation.quality": "generation/test_generation.py",
    "generation.model": "generation/test_generator.py",
    # code of the GPU alone: through the product that calls it
    "kernels.fused_passes": "kernels/test_fused_product.py",
}


def test_every_module_has_a_test_file_of_its_name():
    missing = []
    for path in sorted(HOME.rglob("*.py")):
        inside = path.relative_to(HOME).with_suffix("")
        name = ".".join(inside.parts)
        if inside.parts[0] == "app" or path.stem.startswith("__"):
            continue
        if f"dualpca.{name}" in TYPES_ONLY:
            continue
        own = inside.parent / f"test_{path.stem.removeprefix('_')}.py"
        if not any((TESTS / place).exists() for place in (own, TESTED_ELSEWHERE.get(name, own))):
            missing.append(str(own))
    assert missing == []


def test_modules_that_are_tested_elsewhere_are_there():
    assert TYPES_ONLY | {f"dualpca.{name}" for name in TESTED_ELSEWHERE} <= set(LIBRARY)
    assert not [place for place in TESTED_ELSEWHERE.values() if not (TESTS / place).exists()]


def functions():
    for module, tree in LIBRARY.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield module, node


DECISIONS = (ast.If, ast.IfExp, ast.For, ast.While, ast.Assert, ast.ExceptHandler, ast.match_case)


def own_nodes(function):
    """Yield what a function consists of, without the functions inside it."""
    waiting = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))


def complexity(function):
    """Return the number of ways through a function (McCabe, 1976), as radon counts them."""
    count = 1
    for node in own_nodes(function):
        if isinstance(node, DECISIONS):
            count += 1
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        if isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
    return count


def test_ways_through_a_function_are_counted():
    text = """
    def f(x):
        if x and x > 1 or x == 3:
            return [y for y in x if y]
        def g():
            if x: pass
    """
    assert complexity(ast.parse(textwrap.dedent(text)).body[0]) == 6


def test_few_functions_are_complex():
    ways = {f"{module}.{node.name}": complexity(node) for module, node in functions()}
    assert {name: count for name, count in ways.items() if count > 20} == {}
    complex_ones = [name for name, count in ways.items() if count > 12]
    assert len(complex_ones) <= 15, complex_ones


def is_any(annotation):
    return isinstance(annotation, ast.Name) and annotation.id == "Any"


@pytest.mark.parametrize(
    ("room", "parameters", "assignments"),
    [("estimators", 91, 20), ("models", 10, 4), ("kernels", 1, 2), ("operators", 0, 0)],
)
def test_few_things_are_of_any_type(room, parameters, assignments):
    nodes = [
        (module, node)
        for module, tree in LIBRARY.items()
        if module.split(".")[1:2] == [room]
        for node in ast.walk(tree)
        if isinstance(node, ast.arg | ast.AnnAssign) and is_any(node.annotation)
    ]
    found = [f"{module}:{node.lineno}" for module, node in nodes if isinstance(node, ast.arg)]
    assert len(found) <= parameters, found
    found = [f"{module}:{node.lineno}" for module, node in nodes if isinstance(node, ast.AnnAssign)]
    assert len(found) <= assignments, found


def test_no_model_is_of_any_type():
    vague = [
        f"{module}.{node.name}"
        for module, node in functions()
        for argument in (*node.args.args, *node.args.kwonlyargs)
        if argument.arg == "model" and is_any(argument.annotation)
    ]
    assert vague == []


def estimators():
    found = [getattr(dualpca, name) for name in dualpca.__all__]
    return [cls for cls in found if isinstance(cls, type) and issubclass(cls, BaseEstimator)]


def test_an_estimator_has_at_most_three_ancestors_of_ours():
    own = {
        cls.__name__: [c.__name__ for c in cls.__mro__[1:] if c.__module__.startswith("dualpca")]
        for cls in estimators()
    }
    assert len(own) == 21
    assert {name: ancestors for name, ancestors in own.items() if len(ancestors) > 3} == {}
