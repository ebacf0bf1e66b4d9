"""A disk that fails when it is told to, and remembers what it was told.

`Disk` stands between this process and the files below a folder while a block runs. It counts what
is asked of it (opens, reads, writes, …), fails the n-th of a kind, once or from then on, and keeps
a record of what reached it, from which `after_power_loss` makes every folder that could be found
when the power comes back: what was not brought to the disk (fsync) is there, half there, or lost,
in any order.

Only Python's own calls are seen. Libraries that write by themselves (Parquet and Arrow) are tried
with `preload.c`, which stands between the process and the C library.
"""

import builtins
import errno
import io
import itertools
import mmap
import os
import random
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from dualpca.data import atomic

KINDS = ("open", "read", "write", "fsync", "link", "rename", "truncate", "map")
"""What can fail."""

CODES = {"write": errno.ENOSPC, "link": errno.ENOSPC, "rename": errno.EACCES, "map": errno.ENOMEM}
"""What the system says then; of others, an error of input and output."""

MOST_STATES = 64
"""Folders that are made of one moment of power loss; drawn if there are more."""


@dataclass(frozen=True)
class Fault:
    """The n-th operation of a kind fails, and every later one if it lasts."""

    kind: str
    n: int
    lasts: bool = False

    def strikes(self, n):
        return n == self.n or (self.lasts and n > self.n)


class Disk:
    """The files below a folder; see the module.

    `counts` says how often each kind of operation came, `struck` whether the fault did, `events`
    what reached the disk.
    """

    def __init__(self, folder, fault=None):
        self.folder, self.fault = os.path.realpath(folder), fault
        self.counts = dict.fromkeys(KINDS, 0)
        self.struck = False
        self.events = []
        self.before = {}
        self._files = {}  # descriptor -> number of a file
        self._names = {}  # path -> number of a file
        self._folders = {}  # descriptor -> path
        self._fresh = itertools.count()
        self._quiet = False

    def __enter__(self):
        for path in Path(self.folder).rglob("*"):
            if path.is_file():
                self._names[str(path)] = next(self._fresh)
                self.before[str(path)] = path.read_bytes()
        self._stack = ExitStack()
        real = {name: getattr(os, name) for name in REPLACED if hasattr(os, name)}
        self.real = real | {"file": io.open, "map": mmap.mmap}
        for name in real:
            self._stack.enter_context(patch.object(os, name, getattr(self, f"_{name}")))
        import _io

        for module in (builtins, io, _io):
            self._stack.enter_context(patch.object(module, "open", self._file))
        self._stack.enter_context(patch.object(mmap, "mmap", self._mapping()))
        part = type("Part", (atomic.Part, Raw), {"disk": self})
        self._stack.enter_context(patch.object(atomic, "Part", part))
        return self

    def __exit__(self, *_):
        self._stack.close()

    # --- what fails ------------------------------------------------------------------------------

    def meets(self, kind, path=None):
        """Count an operation; fail it if it is the one."""
        self.counts[kind] += 1
        if self.fault and self.fault.kind == kind and self.fault.strikes(self.counts[kind]):
            self.struck = True
            code = CODES.get(kind, errno.EIO)
            raise OSError(code, os.strerror(code), *([path] if path else []))

    def holds(self, path):
        """Return True if a path lies below the folder."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        whole = os.path.abspath(os.fsdecode(path))
        return whole == self.folder or whole.startswith(self.folder + os.sep)

    # --- the calls of `os` -----------------------------------------------------------------------

    def _open(self, path, flags, mode=0o777, *, dir_fd=None):
        if not self.holds(path):
            found = self.real["open"](path, flags, mode, dir_fd=dir_fd)
            self._files.pop(found, None)
            self._folders.pop(found, None)
            return found
        path = os.path.abspath(os.fsdecode(path))
        self.meets("open", path)
        was = os.path.exists(path)
        found = self.real["open"](path, flags, mode, dir_fd=dir_fd)
        self._files.pop(found, None)
        self._folders.pop(found, None)
        if flags & getattr(os, "O_TMPFILE", 0) == getattr(os, "O_TMPFILE", -1):
            self._files[found] = next(self._fresh)
        elif os.path.isdir(path):
            self._folders[found] = path
        else:
            self._know(found, path, not was, flags & os.O_TRUNC)
        return found

    def _know(self, descriptor, path, is_new, emptied):
        path = os.path.realpath(path)
        if is_new or path not in self._names:
            self._names[path] = next(self._fresh)
            self.events.append(("names", {path: self._names[path]}))
        self._files[descriptor] = self._names[path]
        self._folders.pop(descriptor, None)
        if emptied:
            self.events.append(("truncate", self._names[path], 0))

    def _fsync(self, descriptor):
        """Remember it; the real disk need not turn for that."""
        descriptor = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        if descriptor in self._folders:
            self.meets("fsync")
            self.events.append(("sync folder", self._folders[descriptor]))
        elif descriptor in self._files:
            self.meets("fsync")
            self.events.append(("sync", self._files[descriptor]))
        else:
            self.real["fsync"](descriptor)

    def _link(self, source, target, *, src_dir_fd=None, dst_dir_fd=None, follow_symlinks=True):
        folder = self._folders.get(dst_dir_fd)
        whole = os.path.join(folder, target) if folder else os.fspath(target)
        more = {"src_dir_fd": src_dir_fd, "dst_dir_fd": dst_dir_fd}
        if self.holds(whole):
            self.meets("link", whole)
        self.real["link"](source, target, follow_symlinks=follow_symlinks, **more)
        if self.holds(whole):
            number = self._files[int(os.path.basename(source))]
            self._names[whole] = number
            self.events.append(("names", {whole: number}))

    def _replace(self, source, target, **more):
        source, target = os.path.abspath(source), os.path.abspath(target)
        if self.holds(target):
            self.meets("rename", target)
        self.real["replace"](source, target, **more)
        if self.holds(target):
            number = self._names.pop(source)
            self._names[target] = number
            self.events.append(("names", {source: None, target: number}))

    _rename = _replace

    def _unlink(self, path, **more):
        self.real["unlink"](path, **more)
        if self.holds(path) and self._names.pop(os.path.abspath(path), None) is not None:
            self.events.append(("names", {os.path.abspath(path): None}))

    _remove = _unlink

    # --- files of Python, and maps of them -------------------------------------------------------

    def _file(self, file, mode="r", buffering=-1, encoding=None, errors=None, newline=None,
              closefd=True, opener=None):  # fmt: skip
        ours = file in self._files if isinstance(file, int) else self.holds(file)
        if not ours or (not isinstance(file, int) and os.path.isdir(file)):
            rest = (buffering, encoding, errors, newline, closefd, opener)
            return self.real["file"](file, mode, *rest)
        was = isinstance(file, int) or os.path.exists(file)
        if not isinstance(file, int) and opener is None:
            self.meets("open", os.path.abspath(file))
        kept = {c for c in mode if c in "rwax+"}
        raw = type("Raw", (Raw,), {"disk": self})(file, "".join(sorted(kept)), closefd, opener)
        if not isinstance(file, int) and opener is None:
            self._know(raw.fileno(), os.path.abspath(file), not was, "w" in mode)
        if buffering == 0:
            return raw
        kind = io.BufferedReader if kept == {"r"} else io.BufferedWriter
        kind = io.BufferedRandom if "+" in kept else kind
        found = kind(raw) if buffering in (-1, 1) else kind(raw, buffering)
        return found if "b" in mode else io.TextIOWrapper(found, encoding, errors, newline)

    def _mapping(self):
        disk = self

        class Map(mmap.mmap):
            def __new__(cls, descriptor, *rest, **more):
                if descriptor in disk._files or disk._below(descriptor):
                    disk.meets("map")
                return super().__new__(cls, descriptor, *rest, **more)

        return Map

    def _below(self, descriptor):
        try:
            return descriptor >= 0 and self.holds(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            return False

    def numbered(self, descriptor):
        return self._files.get(descriptor)


REPLACED = ("open", "fsync", "link", "replace", "rename", "unlink", "remove")


class Raw(io.FileIO):
    """A file whose reads and writes a disk sees."""

    disk = None

    def readinto(self, buffer):
        self.disk.meets("read", self._path())
        return super().readinto(buffer)

    def readall(self):
        self.disk.meets("read", self._path())
        return super().readall()

    def read(self, size=-1):
        if size is None or size < 0:
            return self.readall()
        self.disk.meets("read", self._path())
        return super().read(size)

    def write(self, data):
        data = bytes(data)
        try:
            self.disk.meets("write")
        except OSError:
            self._put(data[: len(data) // 2])  # a full disk takes what it can
            raise
        return self._put(data)

    def _put(self, data):
        appends = "a" in self.mode
        at = os.fstat(self.fileno()).st_size if appends else self.tell()
        n = super().write(data)
        self.disk.events.append(("write", self.disk.numbered(self.fileno()), at, data[:n]))
        return n

    def truncate(self, size=None):
        self.disk.meets("truncate")
        size = self.tell() if size is None else size
        found = super().truncate(size)
        self.disk.events.append(("truncate", self.disk.numbered(self.fileno()), size))
        return found

    def _path(self):
        return self.name if isinstance(self.name, str) else None


# --- power loss --------------------------------------------------------------------------------


@dataclass
class Image:
    """A folder as a disk holds it: contents by the number of a file, numbers by name."""

    contents: dict = field(default_factory=dict)
    names: dict = field(default_factory=dict)

    def apply(self, event, share=1.0):
        """Do what an event says, or a share of what it writes."""
        kind, *rest = event
        if kind == "names":
            self.names.update(rest[0])
        elif kind == "truncate":
            number, size = rest
            data = self.contents.setdefault(number, bytearray())
            data[size:] = b""
            data.extend(bytes(size - len(data)))
        elif kind == "write":
            number, at, piece = rest
            piece = piece[: int(len(piece) * share)]
            data = self.contents.setdefault(number, bytearray())
            data.extend(bytes(max(at - len(data), 0)))
            data[at : at + len(piece)] = piece

    def files(self):
        return {
            name: bytes(self.contents.get(number, b""))
            for name, number in self.names.items()
            if number is not None
        }


def after_power_loss(disk, rng=None):
    """Yield (moment, files): everything that may be found after the power went, by its moment.

    `files` are contents by path. The last moment is the end of the block.
    """
    rng = rng or random.Random(0)
    start = Image()
    for number, (path, data) in enumerate(disk.before.items()):
        start.contents[number], start.names[path] = bytearray(data), number
    for moment in range(len(disk.events) + 1):
        done = disk.events[:moment]
        safe, open_ = _split(done)
        for shares in _choices(open_, rng):
            image = Image({k: bytearray(v) for k, v in start.contents.items()}, dict(start.names))
            for k, event in enumerate(done):
                share = 1.0 if k in safe else shares.get(k, 0.0)
                if share:
                    image.apply(event, share)
            yield moment, image.files()


def _split(events):
    """Return which events are on the disk for certain, and which may be."""
    safe, open_ = set(), []
    for k, (kind, *rest) in enumerate(events):
        later = events[k + 1 :]
        if kind in ("write", "truncate"):
            sure = ("sync", rest[0]) in later
        elif kind == "names":
            sure = all(("sync folder", os.path.dirname(path)) in later for path in rest[0])
        else:
            continue
        if sure:
            safe.add(k)
        else:
            open_.append((k, kind))
    return safe, open_


def _choices(open_, rng):
    """Yield what becomes of events that are not safe: 1 done, 0 lost, ½ a torn write."""
    ways = [(0.0, 0.5, 1.0) if kind == "write" else (0.0, 1.0) for _, kind in open_]
    every = 1
    for one in ways:
        every *= len(one)
    if every <= MOST_STATES:
        drawn = itertools.product(*ways)
    else:
        ends = [[0.0] * len(ways), [1.0] * len(ways)]
        drawn = [*ends, *([rng.choice(one) for one in ways] for _ in range(MOST_STATES))]
    for shares in drawn:
        yield {k: share for (k, _), share in zip(open_, shares, strict=True)}


# --- every fault in turn -----------------------------------------------------------------------


@contextmanager
def no_files_left(folder, allowed):
    """Fail if the block leaves files other than those allowed, or open descriptors."""
    descriptors = "/proc/self/fd"
    before = len(os.listdir(descriptors)) if os.path.isdir(descriptors) else 0
    yield
    left = {str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file()}
    assert left <= set(allowed), f"left behind: {sorted(left - set(allowed))}"
    if before:
        after = len(os.listdir(descriptors))
        assert after <= before, f"{after - before} descriptors are left open"


def every_fault(folder, operation, prepare=lambda: None, kinds=KINDS, most=10_000):
    """Yield (fault, what `operation` returned or raised) for every n of every kind.

    Ends, for each kind, with the first n that is not reached.
    """
    for kind in kinds:
        for lasts in (False, True):
            for n in range(1, most):
                prepare()
                disk = Disk(folder, Fault(kind, n, lasts))
                with disk:
                    try:
                        found = operation()
                    except Exception as error:
                        found = error
                if not disk.struck:
                    assert not isinstance(found, Exception), found
                    break
                yield disk.fault, found
