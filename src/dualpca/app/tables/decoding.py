"""The bytes of a file as text, piece by piece; what is no text says where, and what to try."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from dualpca.app.tables.dialects import TableError

MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class TextFile(NamedTuple):
    """A file of text: what it is called, how it is opened and encoded.

    Examples
    --------
    >>> import io
    >>> list(TextFile("t.csv", lambda: io.BytesIO("a,σ".encode()), "utf-8").pieces(3))
    ['a,', 'σ']
    """

    path: str
    open: Callable[[], BinaryIO]
    encoding: str

    @property
    def codec(self) -> str:
        """Return the codec: of UTF-8 the one that does without a mark, or with it."""
        return "utf-8-sig" if self.encoding.lower() in ("utf-8", "utf8") else self.encoding

    def is_marked(self) -> bool:
        """Tell whether the file begins with UTF-8's mark, as Excel's do."""
        with self.open() as file:
            return self.codec == "utf-8-sig" and file.read(3) == codecs.BOM_UTF8

    def pieces(self, size: int) -> Iterator[str]:
        """Yield the text, `size` bytes at a time (-1: all)."""
        try:
            yield from self._decoded(size)
        except UnicodeError:  # UTF-16 without a mark, and the like
            raise self._undecodable(0) from None
        except LookupError:
            known = "utf-8, latin-1 and utf-16 are"
            raise TableError(f"{self.encoding!r} is no encoding: {known}.") from None
        except OSError as error:
            raise TableError(f"{self.path} cannot be read: {error.strerror or error}.") from error

    def _decoded(self, size: int) -> Iterator[str]:
        decoder, done = codecs.getincrementaldecoder(self.codec)(), 0
        with self.open() as file:
            while True:
                data = file.read(size)
                waiting = len(decoder.getstate()[0])
                try:
                    text = decoder.decode(data, final=not data)
                except UnicodeDecodeError as error:
                    raise self._undecodable(done - waiting + error.start) from None
                if text:
                    yield text
                if not data:
                    return
                done += len(data)

    def _undecodable(self, at: int) -> TableError:
        with self.open() as file:
            mark = MARKS.get(file.read(2))
        say = f"It begins as utf-16 does: --encoding {mark}."
        if mark is None or self.encoding == mark:
            say = "Say how it is encoded, such as --encoding latin-1, cp1252 (Excel) or utf-16."
        return TableError(f"{self.path} is not {self.encoding} text, first at byte {at}. {say}")
