"""Hostile model files drawn at random from good ones, and a judge of what becomes of each.

Every file is loaded, inspected and used. What is allowed: the refusal that the documentation
names, or answers. Anything else is a finding: another exception, time, memory, words without end.

Run as a script it judges a folder of files, one line of JSON per finding:

    python -m tests.files.hostile FOLDER
"""

import copy
import json
import os
import signal
import sys
import time
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np

from tests.files import mutations
from tests.files.bombs import bombs
from tests.files.mutations import parts, signed

DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "I64": "<i8",
    "I32": "<i4",
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
}

VALUES = (
    *(0, 1, -1, 2, 7, 10**6, 30_000_000, 10**9, 2**31, 2**53 + 1, 2**63, -(2**63), 10**40, 10**400),
    *(0.0, -0.0, 0.5, -1.0, 1.5, 1e-320, 1e300, -1e300, 1.7e308, 1e-30),
    *({"float": "nan"}, {"float": "inf"}, {"float": "-inf"}, None, True, False),
    *("", "auto", "cv", "rbf", "precomputed", "x" * 5000, "\x1b[31m\r\n\x00", "é\u2028"),
    *([], [1], [[]], ["a", "b"], [0] * 500, {"tuple": []}, {"dict": {}}, {"names": []}, {}),
    *({"array": "nowhere"}, {"floats": []}, {"pairs": [[1, 2]]}, {"function": "os:system"}),
)

NUMBERS = (np.nan, np.inf, -np.inf, -1.0, 0.0, 1.0, 1e308, -1e308, 5e-324, 1e150, -1e-9, 1e9)


# --- Places in a text ----------------------------------------------------------------------------


def places(tree, path=()):
    """Yield the path to every value in JSON."""
    if path:
        yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))
        else:
            yield (*path, key)


def at(tree, path):
    for key in path:
        tree = tree[key]
    return tree


def pick(rng, values):
    return values[int(rng.integers(len(values)))]


class File:
    """A good file, taken apart, and changed."""

    def __init__(self, data):
        self.header, self.text, body = parts(data)
        self.header.pop("__metadata__")
        self.arrays = {}
        for name, entry in self.header.items():
            begin, end = entry["data_offsets"]
            found = np.frombuffer(body[begin:end], DTYPES[entry["dtype"]])
            self.arrays[name] = found.reshape(entry["shape"])

    def bytes(self):
        names = {np.dtype(v): k for k, v in DTYPES.items()}
        entries, body = {}, b""
        for name, array in self.arrays.items():
            data = np.ascontiguousarray(array).tobytes()
            places = [len(body), len(body) + len(data)]
            entries[name] = {"dtype": names[array.dtype], "shape": list(array.shape)}
            entries[name]["data_offsets"] = places
            body += data
        return signed(entries, self.text, body)


# --- Mutations of a file that is signed again ----------------------------------------------------


def replace_value(file, rng, others):
    path = pick(rng, [*places(file.text["model"])])
    at(file.text["model"], path[:-1])[path[-1]] = copy.deepcopy(pick(rng, VALUES))


def transplant(file, rng, others):
    donor = pick(rng, [file, *others]).text["model"]
    part = copy.deepcopy(at(donor, pick(rng, [*places(donor)])))
    path = pick(rng, [*places(file.text["model"])])
    at(file.text["model"], path[:-1])[path[-1]] = part


def delete_value(file, rng, others):
    path = pick(rng, [*places(file.text["model"])])
    del at(file.text["model"], path[:-1])[path[-1]]


def number_near(file, rng, others):
    """Change a number a little, or to its negative, or many times."""
    tree = file.text["model"]
    numbers = [p for p in places(tree) if type(at(tree, p)) in (int, float)]
    if numbers:
        path, change = pick(rng, numbers), int(rng.integers(5))
        old = at(tree, path)
        new = (old + 1, old - 1, -old, old * 1_000_003, old / 2)[change]
        at(tree, path[:-1])[path[-1]] = new if np.isfinite(new) else 0


def parameter(file, rng, others):
    """Set a parameter of some estimator in the file, whether written or not."""
    tree = file.text["model"]
    nodes = [p for p in places(tree) if p[-1] == "params" and isinstance(at(tree, p), dict)]
    owner = at(tree, pick(rng, nodes)[:-1])
    import dualpca

    cls = getattr(dualpca, owner.get("estimator", ""), None)
    names = [*(cls._get_param_names() if cls else ()), *owner["params"], "unknown"]
    for _ in range(int(rng.integers(1, 3))):
        owner["params"][pick(rng, names)] = copy.deepcopy(pick(rng, VALUES))


def entry(file, rng, others):
    """Set one number of an array, or all."""
    name = pick(rng, [*file.arrays])
    array = file.arrays[name].copy()
    if array.size and array.dtype.kind in "fi":
        value = pick(rng, NUMBERS)
        value = value if array.dtype.kind == "f" else int(np.clip(np.nan_to_num(value), -99, 99))
        with np.errstate(all="ignore"):
            if rng.random() < 0.2:
                array[...] = value
            elif rng.random() < 0.3:
                array = (array * pick(rng, [-1, 0, 1e200, 1e-200])).astype(array.dtype)
            else:
                array.reshape(-1)[int(rng.integers(array.size))] = value
    file.arrays[name] = array


def shorten(file, rng, others):
    """Take entries from the arrays whose size along an axis is one of the file, or from one."""
    name = pick(rng, [*file.arrays])
    shape = file.arrays[name].shape
    if not shape or not max(shape):
        return
    size = pick(rng, [s for s in shape if s])
    new = pick(rng, [0, 1, size - 1])
    every = rng.random() < 0.5
    for other, array in file.arrays.items():
        if every or other == name:
            index = tuple(slice(new) if s == size else slice(None) for s in array.shape)
            file.arrays[other] = array[index]


def reshape(file, rng, others):
    name = pick(rng, [*file.arrays])
    array = file.arrays[name]
    forms = [array.reshape(-1), array[None], array.T, array.astype(bool)]
    with np.errstate(all="ignore"):
        forms += [array.astype("<f4"), np.nan_to_num(array).astype("<i8")]
        forms += [np.repeat(array[None], 3, axis=0)] if array.ndim else []
    file.arrays[name] = pick(rng, forms)


def delete_array(file, rng, others):
    file.arrays.pop(pick(rng, [*file.arrays]))


def delete_field(file, rng, others):
    """Take an array away, and say that it is not there."""
    tree = file.text["model"]
    held = [p for p in places(tree) if isinstance(at(tree, p), dict) and "array" in at(tree, p)]
    if held:
        path = pick(rng, held)
        name = at(tree, path)["array"]
        for other in held:
            if at(tree, other)["array"] == name:
                at(tree, other[:-1])[other[-1]] = None
        file.arrays.pop(name, None)


def swap(file, rng, others):
    a, b = pick(rng, [*file.arrays]), pick(rng, [*file.arrays])
    file.arrays[a], file.arrays[b] = file.arrays[b], file.arrays[a]


def point_elsewhere(file, rng, others):
    tree = file.text["model"]
    held = [p for p in places(tree) if isinstance(at(tree, p), dict) and "array" in at(tree, p)]
    if held:
        at(tree, pick(rng, held))["array"] = pick(rng, [*file.arrays])


def beside(file, rng, others):
    """Change metadata, version and format."""
    table = {name: copy.deepcopy(pick(rng, VALUES)) for name in ("columns", "means", "levels")}
    file.text["metadata"] = {"dict": {"table": {"dict": table}}}
    if rng.random() < 0.5:
        file.text["metadata"] = copy.deepcopy(pick(rng, VALUES))
    if rng.random() < 0.2:
        file.text[pick(rng, ["format", "version", "more"])] = copy.deepcopy(pick(rng, VALUES))


CHANGES = (
    *(replace_value, replace_value, number_near, number_near, parameter, parameter, entry, entry),
    *(entry, transplant, delete_value, shorten, reshape, delete_array, delete_field, swap),
    *(point_elsewhere, beside),
)


def changed(data, rng, others):
    """Return a good file with one to three changes, signed again, and their names."""
    file, names = File(data), []
    for _ in range(int(rng.choice([1, 1, 1, 1, 2, 3]))):
        change = pick(rng, CHANGES)
        names.append(change.__name__)
        try:
            change(file, rng, [File(other) for other in others])
        except (LookupError, ValueError, TypeError, OverflowError):  # nothing there to change
            continue
        if not file.arrays:
            break
    return file.bytes(), "+".join(names)


def spliced(data, rng, others):
    """Return the beginning of one file and the end of another, or the text of one in another."""
    other = pick(rng, others)
    if rng.random() < 0.5:
        cut = int(rng.integers(min(len(data), len(other))))
        return data[:cut] + other[cut:], "spliced"
    (header, _, body), (_, text, _) = parts(data), parts(other)
    return signed(header, text, body), "another's text"


def damaged(data, rng, others):
    found = mutations.take(5, mutations.damaged(data or b"\0", rng))
    return pick(rng, found), "damaged"


def checkpoints(file, rng):
    """Yield forgeries of a checkpoint, each with a checksum that is right."""
    while True:
        made = copy.deepcopy(file)
        name = pick(rng, [*file.arrays])
        lot, array = int(rng.integers(7)), file.arrays[name].copy()
        if lot == 0:
            entry(made, rng, [])
        elif lot == 1:
            reshape(made, rng, [])
        elif lot == 2:
            made.arrays.pop(name)
        elif lot == 3:
            made.arrays[name] = array[..., : array.shape[-1] // 2] if array.ndim else array
        elif lot == 4:
            swap(made, rng, [])
        else:
            part = file.text if lot == 5 else file.text["numbers"]
            path = pick(rng, [*places(part)])
            tree = made.text if lot == 5 else made.text["numbers"]
            at(tree, path[:-1])[path[-1]] = pick(rng, VALUES)
        yield made.bytes()


def bomb(data, rng, others):
    made = bombs(data)
    name = pick(rng, [*made])
    return made[name], f"bomb: {name}"


def draw(good, count, seed):
    """Yield (name of the good file, what was done, bytes): hostile files, the same for a seed."""
    rng, names = np.random.default_rng(seed), sorted(good)
    for k in range(count):
        name = pick(rng, names)
        others = [good[pick(rng, names)] for _ in range(2)]
        lot = rng.random()
        make = damaged if lot < 0.06 else spliced if lot < 0.10 else changed
        make = bomb if k % 100 == 99 else make
        yield (name, *make(good[name], rng, others)[::-1])


def lay_out(folder, good, count, seed):
    """Write hostile files to a folder, each under its number and what it is."""
    labels = {}
    for k, (name, what, data) in enumerate(draw(good, count, seed)):
        (folder / f"{k:05d}").write_bytes(data)
        labels[f"{k:05d}"] = (name, what)
    (folder / "labels.json").write_text(json.dumps(labels))


# --- The judge -----------------------------------------------------------------------------------

MOST_SECONDS, MOST_KILOBYTES, MOST_WORDS = 5.0, 200_000, 1000
MOST_STEPS = 200
MOST_SHOWN = 30_000
"""Characters that inspect may print."""

METHODS = ("transform", "predict", "score_samples", "score_sequences", "impute")


class TooSlow(BaseException):
    pass


def _late(*args):
    raise TooSlow


def highest():
    """Return the highest memory of this process so far, in kB."""
    if not os.path.exists("/proc/self/status"):
        return 0
    return next(int(s.split()[1]) for s in open("/proc/self/status") if s.startswith("VmHWM"))


def fate(path, rows):
    """Return what happened to a file, and a finding if that must not be."""
    import dualpca
    from dualpca.app.cli._look import inspect
    from dualpca.errors import ModelFileError

    try:
        model = dualpca.load(path)
    except ModelFileError as error:
        words = str(error)
        odd = len(words) > MOST_WORDS or not words.replace("\n", "").isprintable()
        model, found = None, f"words: {words[:200]!r}" if odd else None
    out, told = StringIO(), StringIO()
    status = 0
    try:
        with redirect_stdout(out), redirect_stderr(told):
            inspect(str(path), False)
    except BaseException as error:
        if isinstance(error, TooSlow):
            raise
        status = getattr(error, "exit_code", None)
        if status is None:
            return "inspected", f"inspect: {error!r}"
    shown = out.getvalue() + told.getvalue()
    if status != (4 if model is None else 0):
        return "inspected", f"inspect ends with {status}: {shown[:300]}"
    if len(shown) > MOST_SHOWN or not shown.replace("\n", "").isprintable():
        return "inspected", f"inspect prints {len(shown)}: {shown[:200]!r}"
    if model is None:
        return "refused", found
    return used(model, rows)


def used(model, rows, methods=METHODS):
    """Return what happens when these methods of a model are called, and a finding."""
    from sklearn.exceptions import NotFittedError

    from dualpca.errors import DualPCAError

    for one in (model, *(step for _, step in getattr(model, "steps", ()))):
        own = getattr(one, "__dict__", {})  # a step may be a word
        unsolved = "_stream" in own and "_model" not in own
        if getattr(one, "max_iter", None) and unsolved:  # whoever uses it finishes the fit
            one.set_params(max_iter=min(one.max_iter, MOST_STEPS))
    for name in methods:
        if not hasattr(type(model), name) or (name == "impute" and hasattr(model, "y_mean_")):
            continue  # of two views, both would be needed
        try:
            if callable(getattr(model, name, None)):
                getattr(model, name)(rows)
        except (DualPCAError, NotFittedError):
            return "refused in use", None
        except ValueError as error:
            if not raised_on_purpose(error):
                return "used", f"{name}: {error!r}"
            return "refused in use", None
    return "answered", None


def raised_on_purpose(error):
    """Return True if an error comes from a line that says `raise`, not from inside NumPy."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    source = Path(last.filename).read_text().splitlines()[last.lineno - 1]
    ours = "dualpca" in last.filename or "validation.py" in last.filename
    return ours and source.strip().startswith("raise ")


def judged(path, rows):
    """Return what happened to a file, a finding or None, seconds and kilobytes."""
    return watched(lambda: fate(path, rows))


def watched(call):
    """Return what a call says and its finding, seconds and kilobytes: too much is a finding."""
    if os.path.exists("/proc/self/clear_refs"):
        Path("/proc/self/clear_refs").write_text("5")
    before, begun = highest(), time.process_time()
    handlers = [signal.signal(one, _late) for one in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, 4 * MOST_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 12 * MOST_SECONDS)  # a call that waits
    try:
        how, found = call()
    except TooSlow:
        how, found = "endless", "endless"
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        how, found = "broken", f"{error!r} at {last.filename[-40:]}:{last.lineno}"[:400]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for one, handler in zip((signal.SIGPROF, signal.SIGALRM), handlers, strict=True):
            signal.signal(one, handler)
    seconds, size = time.process_time() - begun, highest() - before
    if found is None and seconds > MOST_SECONDS:
        found = f"{seconds:.1f} s"
    if found is None and size > MOST_KILOBYTES:
        found = f"{size} kB"
    return how, found, seconds, size


def main(folder):
    from tests.files import saved_models

    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    labels = json.loads((folder / "labels.json").read_text())
    counts = {}
    for name, (kind, what) in labels.items():
        rows = saved_models.inputs(kind)
        how, found, _, _ = judged(folder / name, rows)
        counts[how] = counts.get(how, 0) + 1
        if found is not None:
            print(json.dumps({"file": name, "of": kind, "by": what, "found": found}), flush=True)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
