"""How the package is built: what `docs/design` promises about imports, names and types."""

import ast
from collections import defaultdict
from pathlib import Path

import dualpca

HOME = Path(dualpca.__file__).parent
TREES = {
    ".".join(("dualpca", *path.relative_to(HOME).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(HOME.rglob("*.py"))
}
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


def functions():
    for module, tree in LIBRARY.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield module, node


def test_no_model_is_of_any_type():
    vague = [
        f"{module}.{node.name}"
        for module, node in functions()
        for argument in (*node.args.args, *node.args.kwonlyargs)
        if argument.arg == "model"
        and argument.annotation is not None
        and ast.unparse(argument.annotation) == "Any"
    ]
    assert vague == []


def test_no_mixin_has_one_user():
    classes = [
        n for tree in LIBRARY.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)
    ]
    users = defaultdict(list)
    for node in classes:
        for base in map(ast.unparse, node.bases):
            users[base].append(node.name)
    mixins = [node.name for node in classes if node.name.endswith(("Mixin", "Methods"))]
    assert mixins
    assert {name: users[name] for name in mixins if len(users[name]) < 2} == {}
