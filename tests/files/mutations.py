"""Files that look like model files and must be refused: damaged, forged, or something else."""

import copy
import gzip
import hashlib
import io
import json
import os
import pickle
import zipfile

import numpy as np

BEGINNING = b'{"__metadata__":{"sha256":"'
ZEROS = b"0" * 64


class Bomb:
    """A pickle that runs a command when it is loaded."""

    def __reduce__(self):
        return (os.system, ("touch executed",))


def parts(data):
    """Return header and text of a file as dictionaries, and its arrays as bytes."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["dualpca"]), data[8 + length :]


def signed(header, text, body):
    """Return a file with a checksum that is right, whatever is in it."""
    words = text if isinstance(text, str) else json.dumps(text)
    entries = {"__metadata__": {"sha256": ZEROS.decode(), "dualpca": words}} | {
        k: v for k, v in header.items() if k != "__metadata__"
    }
    raw = json.dumps(entries, separators=(",", ":")).encode()
    whole = len(raw).to_bytes(8, "little") + raw + body
    digest = hashlib.sha256(whole).hexdigest().encode()
    at = 8 + len(BEGINNING)
    return whole[:at] + digest + whole[at + 64 :]


def damaged(data, rng):
    """Yield files with flipped bits, cut short, grown, or of a false length."""
    while True:
        found = bytearray(data)
        for place in rng.integers(len(data), size=rng.integers(1, 4)):
            found[place] ^= 1 << int(rng.integers(8))
        yield bytes(found)
        yield data[: int(rng.integers(len(data)))]
        yield data + rng.bytes(int(rng.integers(1, 100)))
        yield int(rng.integers(2**62)).to_bytes(8, "little") + data[8:]
        cut = int(rng.integers(len(data)))
        yield data[:cut] + rng.bytes(8) + data[cut + 8 :]


def forged_arrays(data, rng):
    """Yield files whose checksum is right and whose arrays are impossible."""
    header, text, body = parts(data)
    names = [name for name in header if name != "__metadata__"]
    while True:
        name = names[int(rng.integers(len(names)))]
        entry = header[name]
        size = entry["data_offsets"][1] - entry["data_offsets"][0]
        shapes = [
            [2**40, 2**20],
            [-1],
            [size],
            [1, *entry["shape"], 2],
            [0],
            ["3"],
            7,
            [2.0],
            [True],
        ]
        changes = [("shape", shape) for shape in shapes]
        changes += [("dtype", dtype) for dtype in ("F128", "O", "U8", "I64", None, "<f8")]
        offsets = ([0, 2**60], [-8, 8], [8, 0], [0], None, [0, 0])
        changes += [("data_offsets", pair) for pair in offsets]
        for i in rng.permutation(len(changes)):
            key, value = changes[i]
            if value != entry[key]:
                yield signed({**header, name: {**entry, key: value}}, text, body)
        yield signed({k: v for k, v in header.items() if k != name}, text, body)
        yield signed({**header, "more": {**entry}}, text, body)


def forged_text(data, rng):
    """Yield files whose checksum is right and whose model is impossible."""
    header, text, body = parts(data)
    while True:
        state = sorted(fields(text))
        name = state[int(rng.integers(len(state)))]
        changes = [_replaced(name, value) for value in FORGED] + [*TEXTS]
        for i in rng.permutation(len(changes)):
            found = copy.deepcopy(text)
            changes[i](found)
            yield signed(header, found, body)
        for words in ("", "null", "[]", "{}", "[" * 200_000, '{"a":1,"a":2}', "NaN", "1" * 5000):
            yield signed(header, words, body)


def fitted(text):
    """Return the part of a text that is a fitted model: the last step, of a pipeline."""
    model = text["model"]
    return model["params"]["steps"][-1]["tuple"][1] if model["estimator"] == "Pipeline" else model


def fields(text):
    """Return the fields of the fitted model; of a stream that was not read yet, its inputs."""
    found = fitted(text)
    return found["model"]["fields"] if "model" in found else found["inputs"]["dict"]


def inputs(text):
    """Return what the estimator keeps of its inputs."""
    return fitted(text)["inputs"]["dict"]


def _replaced(name, value):
    def change(text):
        fields(text)[name] = value

    return change


FORGED = (
    {"type": "os.system", "fields": {"command": "touch executed"}},
    {"type": "Popen", "fields": {}},
    {"type": ["Moments"], "fields": {}},
    {"type": "data.Moments", "fields": {"n": "many", "mean": None, "scatter": []}},
    {"type": "kernels.Function", "fields": {"function": "os.system", "params": []}},
    {"array": "nowhere"},
    {"array": ["model.mean"]},
    {"pickle": "gASVIAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAR0cnVllIWUUpQu"},
    {"tuple": {"a": 1}},
    {"dict": [1, 2]},
    {"float": "1e999"},
    {"names": [1, 2]},
    {"names": ["a"], "width": 2**30},
    {"names": ["a"] * 1000, "width": 2**24},
    {"floats": [1.0]},
    {"floats": {"array": "model.components"}},
    {"csr": {"shape": [2, 2], "kind": "matrix", "data": [], "indices": [], "indptr": []}},
    {"model": "Popen", "params": {}, "state": {}},
    {"model": "PPCA", "params": {"shell": True}, "state": {}},
    {"estimator": "Popen", "params": {}},
    {"estimator": "PPCA", "params": {"shell": True}},
)


def _renamed(old, new):
    def change(text):
        inputs(text)[new] = inputs(text).pop(old)

    return change


TEXTS = (
    lambda text: text.update(format=3),
    lambda text: text.update(format="1"),
    lambda text: text.update(version=None),
    lambda text: text.pop("version"),
    lambda text: text.update(more=1),
    lambda text: text.update(model=[1]),
    lambda text: text["model"].update(estimator="object"),
    lambda text: text["model"].update(estimator="Kind"),
    lambda text: text["model"].update(params=[]),
    lambda text: text.update(metadata={"dict": {"a": {"array": "model.mean"}}}),
    lambda text: text.update(metadata={"dict": {"table": {"dict": {"means": [1.0]}}}}),
    lambda text: text["model"]["params"].update(command="touch executed"),
    lambda text: text["model"].update(model={}, params={}),
    lambda text: fitted(text).update(model={}),
    lambda text: fitted(text).update(inputs={"dict": {}}),
    lambda text: fitted(text).update(state={}),
    lambda text: inputs(text).update(transform="touch executed"),
    lambda text: fields(text).update(__class__="object"),
    lambda text: fields(text).update(__dict__={"dict": {}}),
    _renamed("n_features_in_", "n_features"),
    lambda text: inputs(text).update(n_features_in_="many"),
    lambda text: inputs(text).update(n_features_in_=-1),
    lambda text: inputs(text).update(n_features_in_=10**9),
)


def foreign():
    """Return files of other kinds, some of which would run code or swell if they were opened."""
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mean_.npy", b"\0" * 30_000_000)
    array = io.BytesIO()
    np.save(array, np.array([Bomb()], dtype=object), allow_pickle=True)
    plain = signed({}, {}, b"").replace(b'"dualpca"', b'"another"')
    return [
        *(pickle.dumps(Bomb(), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)),
        zipped.getvalue(),
        gzip.compress(b"\0" * 30_000_000),
        array.getvalue(),
        b"",
        b"\0" * 8,
        b"\xff" * 8,
        b"\0" * 100_000,
        (2**22).to_bytes(8, "little") + b" " * 2**22,
        (2**22).to_bytes(8, "little") + BEGINNING + b"[" * (2**22 - len(BEGINNING)),
        plain,
        b"PK\x05\x06" + b"\0" * 18,
        b"a,b\n1,2\n",
    ]


MUTATIONS = 20
"""Of each sort, a file."""


def take(count, generator):
    """Return the first of what is yielded."""
    return [found for found, _ in zip(generator, range(count), strict=False)]


def every(files, seed=0):
    """Return mutations of good files, of every sort, and files of other kinds."""
    rng, found = np.random.default_rng(seed), foreign()
    for data in files:
        for kind in (damaged, forged_arrays, forged_text):
            found += take(MUTATIONS, kind(data, rng))
    return found
