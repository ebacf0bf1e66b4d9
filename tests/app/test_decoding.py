"""Bytes as text: the place of what is no text, and what to try."""

import io

import pytest

from dualpca.app.tables.text import TableError, TextFile


def pieces(data, size, encoding="utf-8"):
    return list(TextFile("t.csv", lambda: io.BytesIO(data), encoding).pieces(size))


@pytest.mark.parametrize("size", [1, 2, 3, 100, -1])
def test_pieces_are_the_text_wherever_letters_are_cut(size):
    assert "".join(pieces("\ufeffa,σ²\n€,𝛼\n".encode(), size)) == "a,σ²\n€,𝛼\n"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 100, -1])
def test_the_first_wrong_byte_is_named_wherever_pieces_end(size):
    with pytest.raises(TableError, match=r"t\.csv is not utf-8 text, first at byte 2\. Give its"):
        pieces(b"ab\xcfx", size)


def test_a_mark_says_which_encoding_unless_that_was_tried():
    with pytest.raises(TableError, match="looks like utf-16: use --encoding utf-16"):
        pieces("a,b".encode("utf-16"), -1)
    with pytest.raises(TableError, match=r"is not utf-16 text.*Give its encoding"):
        pieces("a,b".encode("utf-16")[:-1], -1, "utf-16")
    with pytest.raises(TableError, match="'klingon' is not an encoding"):
        pieces(b"a", -1, "klingon")
