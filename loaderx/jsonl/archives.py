"""Text files, compressed or not, read from their beginning in blocks of bounded size."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from loaderx.errors import ArchiveError

# Bytes of a file read at a time, and of text that come of them at most. zstd's streams cannot be told how much to give
# at a time, and 4 bytes may become 128 KiB: they get so little that this stays bounded too.
_READ_BYTES = 64 << 10
_ZSTD_READ_BYTES = 2 << 10
_MOST_TEXT_BYTES = 1 << 20
# What xz may need to decompress; its own largest preset, 9, needs 65 MiB.
_XZ_MEMORY_BYTES = 512 << 20


class _Stream(Protocol):
    """One member of a .gz file, one stream or frame of the others: what is decompressed on its own."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, most: int, /) -> bytes: ...


class _Member:
    """A member of a .gz file."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, most: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, most)


class _Frame:
    """A frame of a .zst file."""

    needs_input = True

    def __init__(self) -> None:
        import zstandard

        self._inner: Any = zstandard.ZstdDecompressor().decompressobj()

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def unused_data(self) -> bytes:
        data: bytes = self._inner.unused_data
        return data

    def decompress(self, data: bytes, most: int) -> bytes:
        text: bytes = self._inner.decompress(data)
        return text


def _zstd_error() -> type[Exception]:
    import zstandard

    error: type[Exception] = zstandard.ZstdError
    return error


@dataclass(frozen=True)
class Kind:
    """A way to compress a file.

    Attributes
    ----------
    name : str
        As messages name it.
    suffix : str
        What names of such files end with.
    magics : tuple of bytes
        What the files begin with.
    new_stream : callable
        Makes what decompresses one stream.
    error : callable
        Gives the exception which that raises for data that is wrong.
    padded : bool
        Whether zeros may stand between streams and at the end.
    read_bytes : int
        Bytes of the file to decompress at a time.
    """

    name: str
    suffix: str
    magics: tuple[bytes, ...]
    new_stream: Callable[[], _Stream]
    error: Callable[[], type[Exception]]
    padded: bool = False
    read_bytes: int = _READ_BYTES


_SKIPPABLE = tuple(bytes([0x50 + low]) + b"\x2a\x4d\x18" for low in range(16))

KINDS = (
    Kind("gzip", ".gz", (b"\x1f\x8b",), _Member, lambda: zlib.error, padded=True),
    # of an empty file the end of its stream comes at once
    Kind(
        "bzip2",
        ".bz2",
        tuple(b"BZh%d" % level + block for level in range(1, 10) for block in (b"1AY&SY", b"\x17rE8P\x90")),
        bz2.BZ2Decompressor,
        lambda: OSError,
    ),
    Kind(
        "xz",
        ".xz",
        (b"\xfd7zXZ\x00",),
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES),
        lambda: lzma.LZMAError,
        padded=True,
    ),
    Kind(
        "zstd", ".zst", (b"\x28\xb5\x2f\xfd", *_SKIPPABLE), _Frame, _zstd_error, read_bytes=_ZSTD_READ_BYTES
    ),
)
#: Bytes at a file's beginning that tell whether it is compressed.
LONGEST_MAGIC = max(len(magic) for kind in KINDS for magic in kind.magics)

_TAR, _TAR_AT = b"ustar", 257
# What is no text whatever its name says, and would become lines of nonsense.
_REFUSED = {
    b"PK\x03\x04": "a zip file",
    b"\x04\x22\x4d\x18": "an lz4 file",
    b"7z\xbc\xaf\x27\x1c": "a 7z file",
    b"\x1f\x9d": "a file of compress (.Z)",
    b"\x5d\x00\x00": "an lzma file",
    b"PAR1": "a Parquet file",
    b"ARROW1\x00\x00": "an Arrow file",
}
_MAGICS = (*(magic for kind in KINDS for magic in kind.magics), *_REFUSED)
_FIRST_BYTES = frozenset(magic[0] for magic in _MAGICS)


def check_plain(path: str | Path, head: bytes) -> None:
    """Raise `ArchiveError` where a file's first bytes say that it is compressed, so that its lines cannot be told.

    Parameters
    ----------
    path : str or pathlib.Path
    head : bytes
        The first `LONGEST_MAGIC` bytes of the file, or more, or all that it has.
    """
    if not head or head[0] not in _FIRST_BYTES or not head.startswith(_MAGICS):
        return
    kind = next((kind for kind in KINDS if head.startswith(kind.magics)), None)
    if kind is not None:
        what = (
            f"compressed by {kind.name}, and has no lines before that is undone: make a store of lines of it, which "
            "reads as the file would (python -m loaderx.convert FILE DEST --lines, or write_lines)"
        )
    else:
        what = f"{_what_begins(head)}: give text"
    raise ArchiveError(f"{path}: {what}", file=Path(path), problem="of another kind", whole_bytes=0)


def _what_begins(head: bytes) -> str | None:
    """Return what a file is that begins so; None where it may be text."""
    kind = next((kind for kind in KINDS if head.startswith(kind.magics)), None)
    if kind is not None:
        return f"a {kind.name} file"
    return next((what for magic, what in _REFUSED.items() if head.startswith(magic)), None)


class TextFile:
    """The text of a file, which is decompressed where the file's first bytes say that it is compressed.

    Iterating gives the text in blocks of up to about a megabyte, from the beginning, once.

    Parameters
    ----------
    path : pathlib.Path
        Only read. What it is called matters where its bytes do not tell: of a name for a compressed file they have to.
    may_be_tar : bool
        Give the bytes of a tar archive too, which are no text.

    Attributes
    ----------
    path : pathlib.Path
    kind : Kind or None
        How it is compressed; None for plain text.
    read_bytes : int
        Bytes of the file that have been read.
    text_bytes : int
        Bytes of text that have been given.
    checked_bytes : int
        Bytes of text, from the beginning, in streams that have ended: what the file's own checks say is right.

    Raises
    ------
    ArchiveError
        While iterating: the file is cut off or damaged (`whole_bytes` says how much of the text is right), or is of a
        kind that is not read.
    OSError
    """

    def __init__(self, path: Path, *, may_be_tar: bool = False) -> None:
        self.path = path
        self._may_be_tar = may_be_tar
        self.read_bytes = self.text_bytes = self.checked_bytes = 0
        with open(path, "rb") as file:
            head = file.read(LONGEST_MAGIC)
        self.kind = self._tell(head)

    def __iter__(self) -> Iterator[bytes]:
        with open(self.path, "rb") as file:
            for text in self._plain(file) if self.kind is None else self._decompressed(file, self.kind):
                if self.text_bytes == 0:
                    if not self._may_be_tar and text[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
                        raise self._of_another_kind("a tar archive")
                    if text.startswith(_MAGICS):
                        raise self._of_another_kind(f"within it is {_what_begins(text)}")
                self.text_bytes += len(text)
                yield text
        self.checked_bytes = self.text_bytes

    def _tell(self, head: bytes) -> Kind | None:
        for kind in KINDS:
            if head.startswith(kind.magics):
                return kind
        named = next((kind for kind in KINDS if self.path.name.endswith(kind.suffix)), None)
        if named is not None and any(magic.startswith(head) for magic in named.magics):
            return named  # cut off within its first bytes
        what = _what_begins(head)
        if what is None and named is not None:
            what = f"not a {named.name} file, as its name says"
        if what is not None:
            raise self._of_another_kind(what)
        return None

    def _of_another_kind(self, what: str) -> ArchiveError:
        return ArchiveError(
            f"{self.path}: {what}: give text, plain or compressed by gzip, bzip2, xz or zstd",
            file=self.path,
            problem="of another kind",
            whole_bytes=0,
        )

    def _plain(self, file: IO[bytes]) -> Iterator[bytes]:
        while text := file.read(_MOST_TEXT_BYTES):
            self.read_bytes += len(text)
            yield text

    def _decompressed(self, file: IO[bytes], kind: Kind) -> Iterator[bytes]:
        stream: _Stream | None = kind.new_stream()
        data = b""
        ended = 0
        while True:
            if not data and (stream is None or stream.needs_input):
                data = file.read(kind.read_bytes)
                self.read_bytes += len(data)
                if not data:
                    break
            if stream is None:
                if kind.padded:
                    data = data.lstrip(b"\0")
                if not data:
                    continue
                if not any(data.startswith(magic) or magic.startswith(data) for magic in kind.magics):
                    raise self._damaged(kind, ended, ValueError("it does not begin as one"))
                stream = kind.new_stream()
            try:
                text = stream.decompress(data, _MOST_TEXT_BYTES)
            except kind.error() as error:
                raise self._damaged(kind, ended, error) from error
            data = b""
            if text:
                yield text
            if stream.eof:
                data, stream = stream.unused_data, None
                ended += 1
                self.checked_bytes = self.text_bytes
        if stream is not None:
            empty = "" if self.read_bytes else ": the file is empty, and one of no text would not be"
            raise ArchiveError(
                f"{self.path}: cut off: the {kind.name} file ends in the middle, after {self.text_bytes:,} bytes of "
                f"text that are whole{empty}",
                file=self.path,
                problem="cut off",
                whole_bytes=self.text_bytes,
            )

    def _damaged(self, kind: Kind, ended: int, error: Exception) -> ArchiveError:
        return ArchiveError(
            f"{self.path}: damaged: {kind.name} stream {ended + 1} of the file cannot be decompressed ({error}); the "
            f"{self.checked_bytes:,} bytes of text before that stream are whole",
            file=self.path,
            problem="damaged",
            whole_bytes=self.checked_bytes,
        )
