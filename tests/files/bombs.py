"""Short files that would become large, slow or loud if they were believed."""

import json

import numpy as np

from tests.files.mutations import parts, signed

NOTHING = {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}


def bombs(data):
    """Return forgeries of a good file by name; every one has a checksum that is right."""
    header, text, body = parts(data)
    end = len(body) + 400_000
    big = {"dtype": "F64", "shape": [50_000], "data_offsets": [len(body), end]}
    wide = ({**header, "big": big}, body + np.ones(50_000).tobytes())

    def hidden(words, header=header, body=body, name="x"):
        whole = json.dumps(text)
        at = whole.index('"params": {') + len('"params": {')
        return signed(header, f'{whole[:at]}"{name}":{words},{whole[at:]}', body)

    def many(word, count, *rest):
        return hidden("[" + f"{word}," * count + "0]", *rest)

    kernel = (
        '{"type":"kernels.RBF","fields":{"length_scale":{"array":"big"},"gamma":null,"on":null}}'
    )
    return {
        "lists": many("[]", 900_000),
        "dictionaries": many('{"dict":{"a":0}}', 140_000),
        "floats": many("0.5", 900_000),
        "one array as many lists": many('{"floats":{"array":"big"}}', 50_000, *wide),
        "one array in many kernels": many(kernel, 5_000, *wide),
        "wide names": many('{"names":["a"],"width":16000000}', 1000),
        "infinity": hidden("1e999"),
        "depth": hidden("[" * 100 + "]" * 100),
        "entries": signed({f"{i}": NOTHING for i in range(50_000)}, text, b""),
        "a long name": signed({**header, "n" * 2_000_000: big}, text, body),
        "a long parameter": hidden("0", name="n" * 2_000_000),
        "colours for the terminal": signed(header, text | {"version": "0.1\x1b[31m"}, body),
        "no bytes, many columns": signed(
            {**header, "z": {**NOTHING, "shape": [0, 2**47], "data_offsets": [len(body)] * 2}},
            text,
            body,
        ),
        "format by truth": signed(header, text | {"format": True}, body),
    }
