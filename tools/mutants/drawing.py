"""What can be changed in a file, one small fault at a time, and what is not worth changing."""

import ast
import copy
import difflib
import random
import re
from dataclasses import dataclass
from pathlib import Path

ROOMS = (
    *("arrays", "data", "kernels", "operators", "solvers", "gaussian", "models"),
    *("search", "generation", "preimages", "files"),
)

NEEDS_A_GPU = {"arrays/devices.py", "kernels/fused_passes.py", "kernels/fused_product.py"}
NEEDS = {"data/dask_table.py": "dask", "files/onnx_export.py": "onnx", "search/trials.py": "optuna"}
"""File to the optional library without which no test of it can run."""

NOT_NUMBERS = re.compile(
    r"__repr__|__str__|__dir__|_repr_html_|__init_subclass__|__sizeof__|.*(cost|flops|work)$|"
    # where an iteration begins, not where it ends
    r"sketch$|_part$|start_block$|guess$|led$|extrapolated_concentration$"
)
"""Functions of which nothing is computed but text, or how long something takes."""

SPEED_ONLY = re.compile(
    r"\b(WORTH|BLOCK|AT_ONCE|THREADS_WAIT|GPU_|SMALL_QR|SMALL_ORDER|TALL|DIRECT_|COPIED_ORDER|"
    r"ALL_PAIRS|MEASURED_ORDER|NEGLIGIBLE_WORK|EXPENSIVE|SLOWER_THAN|MAPPED_ROWS|PIECE|UNCUT|"
    r"MOST_BAND|FEW_TERMS|BUFFERS|BATCH_ROWS|FAN_IN|CHUNK|WIDEST|DENSE_LIMIT|SMALL|PARTS|"
    r"is_outside|outside|alone|available|free_memory|nbytes|itemsize|flops|\w*cost|seconds|workers|"
    r"ROWS_PER_PARAMETER|"
    r"progress|verbose|block_rows|part_rows|buffer|buffers|flags|c_contiguous|ascontiguousarray|"
    r"on_cuda|triton|isdir|task\(|tick\(|note\(|check_unit|STEEPEST|RESTARTS|MOST_FEATURES|max_passes)"
)
"""Names that decide how fast an answer comes, or in which of two equal ways; messages."""

TOLERANCES = re.compile(
    r"\b(eps|finfo|tiny|EPS|\w*TOL|tol|NEGLIGIBLE\w*|LEAST\w*|SMALLEST\w*|ROUND\w*|SAFE\w*|BEYOND|"
    r"SLOWEST\w*|SAME_\w+|LOST\w*|LARGEST_DRIFT|TRUSTED|reach|slack)\b|\b1e-\d|[^\w]0\.0+1\b"
)
"""Where rounding ends and a number begins: twice as much would do as well."""

ARITHMETIC = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div],
    ast.Div: [ast.Mult],
    ast.FloorDiv: [ast.Mult],
    ast.Mod: [ast.Mult],
}
COMPARISONS = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
AT_THE_EDGE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
NAMES = {
    **{"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"},
    **{"sum": "mean", "mean": "sum", "any": "all", "all": "any", "zeros": "ones", "ones": "zeros"},
    **{"argmin": "argmax", "argmax": "argmin", "zeros_like": "ones_like", "floor": "ceil"},
    **{"ceil": "floor", "log1p": "log", "expm1": "exp", "cumsum": "cumprod", "var": "std"},
    **{"std": "var", "left": "right", "right": "left", "argsort": "sort"},
}
UNWRAPPED = {
    "sqrt",
    "abs",
    "square",
    "exp",
    "log",
    "sort",
    "flip",
    "clip",
    "cumsum",
    "tril",
    "triu",
}
WEIGHTS = {"weights", "weight", "sample_weight", "w", "mask", "shares", "counts"}
NUMERIC = re.compile(r"float|Array|Host|ndarray|Number")


@dataclass(frozen=True)
class Fault:
    """One change: ``lines`` are what a test has to run to notice it."""

    path: str
    kind: str
    line: int
    lines: tuple[int, ...]
    function: tuple[int, int]
    """First and last line of the innermost function, (0, 0) outside of all."""
    source: str
    """The whole file with the fault in it."""
    diff: str

    @property
    def key(self):
        """The changed lines without their places, as in ``equivalent.txt``."""
        changed = [one for one in self.diff.splitlines() if one[:1] in "+-"]
        return " ".join((self.path, *(one[0] + " ".join(one[1:].split()) for one in changed)))


class _File:
    def __init__(self, package, path):
        self.path = path
        self.bytes = (package / path).read_bytes()
        self.text = self.bytes.decode()
        starts = [0]
        for line in self.bytes.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self.starts = starts
        self.meaning = ast.dump(ast.parse(self.text))

    def replaced(self, node, text):
        a = self.starts[node.lineno - 1] + node.col_offset
        b = self.starts[node.end_lineno - 1] + node.end_col_offset
        return (self.bytes[:a] + text.encode() + self.bytes[b:]).decode()


def statements(package, path):
    """Return lists of changes, one list for each statement in which any can be made."""
    file = _File(package, path)
    found = []
    _walk(ast.parse(file.text).body, file, (0, 0), None, found)
    return found


def _walk(body, file, function, returns, found):
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if NOT_NUMBERS.match(statement.name) or any(
                "overload" in ast.unparse(d) for d in statement.decorator_list
            ):
                continue
            inside = statement.lineno, statement.end_lineno
            result = ast.unparse(statement.returns) if statement.returns else "float"
            _walk(statement.body, file, inside, result, found)
        elif isinstance(statement, ast.ClassDef):
            _walk(statement.body, file, function, None, found)
        elif not _skipped(statement):
            found += _some(_faults_of(statement, file, function, returns))
            for name in ("body", "orelse", "finalbody"):
                _walk(getattr(statement, name, []), file, function, returns, found)
            for handler in getattr(statement, "handlers", []):
                _walk(handler.body, file, function, returns, found)


def _some(faults):
    return [faults] if faults else []


def _skipped(statement):
    """Return True for statements in which a fault would change nothing that is computed."""
    if isinstance(
        statement, (ast.Import, ast.ImportFrom, ast.Raise, ast.Assert, ast.Pass, ast.Global)
    ):
        return True
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True
    if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
        return True
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        capitals = all(ast.unparse(target).isupper() for target in targets)
        value = statement.value
        literal = value is None or not any(
            isinstance(n, (ast.Call, ast.Name)) for n in ast.walk(value)
        )
        field = isinstance(statement, ast.AnnAssign) and literal  # callers give it, or it is public
        return (capitals and literal) or field
    return False


def _head(statement):
    """Return what a statement evaluates itself, its body aside."""
    match statement:
        case ast.If() | ast.While():
            return [statement.test]
        case ast.For():
            return [statement.iter]
        case ast.With():
            return [item.context_expr for item in statement.items]
        case ast.Try() | ast.Match():
            return []
        case ast.AnnAssign():
            return [statement.value]
        case _:
            return list(ast.iter_child_nodes(statement))


def _faults_of(statement, file, function, returns):
    heads = _head(statement)
    text = " ".join(ast.unparse(head) for head in heads)
    if "warn(" in text or SPEED_ONLY.search(text) or TOLERANCES.search(text):
        return []
    faults = []
    for head in heads:
        faults += _faults(head, statement, file, function, returns)

    def add(kind, node, new):
        faults.append(_Change(kind, node, new, statement, file, function))

    match statement:
        case ast.AugAssign():
            add("statement removed", statement, "pass")
            for op in ARITHMETIC.get(type(statement.op), []):
                changed = copy.deepcopy(statement)
                changed.op = op()
                add("arithmetic", statement, ast.unparse(changed))
        case ast.Expr(value=ast.Call()):
            add("statement removed", statement, "pass")
        case ast.Assign(targets=[ast.Subscript()]):
            add("statement removed", statement, "pass")
        case ast.Assign(targets=[ast.Name(id=name)]) if function != (0, 0):
            if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(statement.value)):
                add("statement removed", statement, "pass")
        case ast.Return(value=value) if value is not None and NUMERIC.match(returns or ""):
            if "zeros" in ast.unparse(value) or isinstance(value, ast.Constant):
                return faults
            add("negated return", value, f"-({ast.unparse(value)})")
        case ast.If(test=test):
            add("condition", test, f"not ({ast.unparse(test)})")
        case ast.Break() | ast.Continue():
            add("statement removed", statement, "pass")
    return faults


def _faults(head, statement, file, function, _):
    faults = []
    for node, ignored in _expressions(head):
        if ignored:
            continue
        for kind, new in _changes(node):
            faults.append(_Change(kind, node, f"({new})", statement, file, function))
    return faults


def _expressions(head):
    """Yield nodes below, and whether they are annotations, messages or the like."""
    waiting = [head]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.JoinedStr, ast.Raise)):
            continue
        if isinstance(node, ast.arg):
            continue
        if isinstance(node, ast.Lambda):
            waiting.append(node.body)
            continue
        if isinstance(node, ast.Call) and re.match(
            r"(\w+\.)*(\w*Error|\w*Warning|cast|TypeVar|replace_text|field|getLogger|partialmethod|"
            r"default_rng)\b",  # any seed would do
            ast.unparse(node.func),
        ):
            continue
        yield node, not hasattr(node, "lineno")
        if isinstance(node, ast.keyword) and node.arg in {
            "strict",
            "stacklevel",
            "copy",
            "deepcopy",
            "seed",
            "kind",
            "reuse",
        }:
            continue  # a check of the programmer's own, or where a message points
        waiting.extend(ast.iter_child_nodes(node))


def _with(node, **fields):
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return ast.unparse(changed)


def _whole(node):
    """Return True for what is a whole number as it is written."""
    return (isinstance(node, ast.Constant) and type(node.value) is int and node.value != 0) or bool(
        re.fullmatch(r"len\(.*\)|\w+\.shape\[-?\d\]|\w+\.(size|ndim)|[ndqkm]", ast.unparse(node))
    )


def _textual(node):
    return isinstance(node, (ast.JoinedStr, ast.List, ast.Tuple)) or (
        isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    )


def _changes(node):
    """Yield (kind, new text) of the changes that can be made to one expression."""
    match node:
        case ast.BinOp(left=left, right=right, op=op):
            if _textual(left) or _textual(right) or isinstance(op, ast.BitOr):
                return
            for other in ARITHMETIC.get(type(op), []):
                yield "arithmetic", _with(node, op=other())
            if isinstance(op, (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)):
                yield "dropped term", ast.unparse(left)
            if isinstance(op, (ast.Add, ast.Mult)):
                yield "dropped term", ast.unparse(right)
            if isinstance(op, ast.BitAnd):
                yield "logic", _with(node, op=ast.BitOr())
        case ast.Compare(ops=[op], left=left, comparators=[right]):
            yield "comparison", _with(node, ops=[COMPARISONS[type(op)]()])
            if type(op) in AT_THE_EDGE and (_whole(left) or _whole(right)):
                yield "edge", _with(node, ops=[AT_THE_EDGE[type(op)]()])
        case ast.BoolOp(op=op):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "logic", _with(node, op=other)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            if not isinstance(operand, ast.Constant):
                yield "dropped sign", ast.unparse(operand)
        case ast.Constant(value=bool(value)):
            yield "constant", repr(not value)
        case ast.Constant(value=int(value)) if abs(value) <= 8:
            yield "constant", repr(value + 1)
        case ast.Constant(value=float(value)) if value in (0.0, 0.5, 1.0, 2.0, 3.0, 4.0):
            yield "constant", {0.5: "1.0", 1.0: "2.0", 0.0: "1.0"}.get(value, "1.0")
        case ast.Attribute(attr="T", value=value):
            yield "transposed", ast.unparse(value)
        case ast.IfExp(test=test):
            yield "condition", _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper, step=None)):
            if upper is not None:
                new = ast.Slice(lower, ast.BinOp(upper, ast.Sub(), ast.Constant(1)))
                yield "shorter slice", _with(node, slice=new)
            if lower is not None:
                new = ast.Slice(ast.BinOp(lower, ast.Add(), ast.Constant(1)), upper)
                yield "later slice", _with(node, slice=new)
        case ast.Call():
            yield from _changed_calls(node)


def _changed_calls(node):
    func, args = node.func, node.args
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    if name in NAMES:
        other = NAMES[name]
        new = _with(func, attr=other) if isinstance(func, ast.Attribute) else other
        yield "function", _with(node, func=ast.parse(new, mode="eval").body)
    if name in UNWRAPPED and len(args) >= 1:
        yield "dropped function", ast.unparse(args[0])
    if name == "range" and args and not isinstance(args[-1], ast.Constant):
        last = len(args) - 1 if len(args) < 3 else 1
        less = [*args]
        less[last] = ast.BinOp(args[last], ast.Sub(), ast.Constant(1))
        yield "shorter range", _with(node, args=less)
    for k, keyword in enumerate(node.keywords):
        if keyword.arg == "axis" and isinstance(keyword.value, (ast.Constant, ast.UnaryOp)):
            axis = ast.literal_eval(keyword.value)
            if isinstance(axis, int):
                changed = copy.copy(keyword)
                changed.value = ast.Constant(1 if axis == 0 else 0)
                new = [*node.keywords[:k], changed, *node.keywords[k + 1 :]]
                yield "axis", _with(node, keywords=new)
        if keyword.arg in WEIGHTS:
            yield (
                "weights ignored",
                _with(node, keywords=node.keywords[:k] + node.keywords[k + 1 :]),
            )
    for k, arg in enumerate(args):
        if (
            isinstance(arg, ast.Name)
            and arg.id in WEIGHTS
            and name not in {"len", "sum", "as_rows"}
        ):
            new = [*args[:k], ast.Constant(None), *args[k + 1 :]]
            yield "weights ignored", _with(node, args=new)


@dataclass(frozen=True)
class _Change:
    kind: str
    node: ast.AST
    new: str
    statement: ast.stmt
    file: _File
    function: tuple[int, int]

    def made(self):
        """Return the fault, None if the file cannot be read with it or means the same."""
        file, node, statement = self.file, self.node, self.statement
        source = file.replaced(node, self.new)
        try:
            if ast.dump(ast.parse(source)) == file.meaning:
                return None
        except SyntaxError:
            return None
        before, after = file.text.splitlines(), source.splitlines()
        diff = [*difflib.unified_diff(before, after, n=0, lineterm="")][2:]
        # a compound statement's own lines end where its body begins
        end = statement.end_lineno
        if isinstance(getattr(statement, "body", None), list):
            end = max(statement.body[0].lineno - 1, statement.lineno)
        lines = {statement.lineno, *range(node.lineno, node.end_lineno + 1)}
        lines &= {*range(statement.lineno, end + 1)}
        return Fault(
            file.path,
            self.kind,
            node.lineno,
            tuple(sorted(lines)),
            self.function,
            source,
            "\n".join(diff),
        )


def candidates(package, installed):
    """Return every statement's changes, in the order of the files."""
    found = []
    for room in ROOMS:
        for path in sorted((Path(package) / room).rglob("*.py")):
            name = str(path.relative_to(package))
            needs = NEEDS.get(name)
            if (
                name in NEEDS_A_GPU
                or (needs and not installed(needs))
                or path.name == "__init__.py"
            ):
                continue
            found += statements(Path(package), name)
    return found


def drawn(package, seed, installed, equivalent):
    """Yield faults at random, at most one in each statement, without those that change nothing."""
    rng = random.Random(seed)
    groups = candidates(package, installed)
    rng.shuffle(groups)
    for group in groups:
        fault = rng.choice(group).made()
        if fault is not None and fault.key not in equivalent:
            yield fault
