"""Texts with lines as they come, what a slow splitter makes of them, and the ways to compress a file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable

import zstandard


def lines_of(text: bytes) -> list[bytes]:
    """Return the lines of one file's text as the index sees them, without their ends and without blank ones."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    lines = text.split(b"\n")
    ended = [line.removesuffix(b"\r") for line in lines[:-1]]
    return [line for line in [*ended, lines[-1]] if line.strip(b" \t\r")]


def gzipped(text: bytes) -> bytes:
    """Compress by gzip, with a name in the header, as the program does."""
    buffer = io.BytesIO()
    with gzip.GzipFile("corpus.jsonl", "wb", fileobj=buffer, mtime=1) as file:
        file.write(text)
    return buffer.getvalue()


def zstd_frame(text: bytes) -> bytes:
    """Compress by zstd into one frame with a checksum, as the program does."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(text)


#: Suffix of a name, and what compresses so.
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzipped,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd_frame,
}

TEXTS = {
    "plain": b'{"a": 1}\n{"a": 2}\n',
    "no final newline": b'{"a": 1}\n{"a": 2}',
    "crlf": b'{"a": 1}\r\n{"a": 2}\r\n',
    "lone returns": b"a\rb\r\r\n\r\nc\r",
    "blank lines": b"\n\n  \t \n a \n\t\r\n\t\tb\n \n\n",
    "a mark": b"\xef\xbb\xbf" + b'{"a": 1}\n\xef\xbb\xbf{"a": 2}\n',
    "only a mark": b"\xef\xbb\xbf",
    "half a mark": b"\xef\xbb",
    "empty": b"",
    "only blank": b" \n\r\n\t\n",
    "separators": 'a\u2028b\u0085c\x0b\x0cd\n\u2029\n\x0c\n\x00\n"\\u2028"\n'.encode(),
    "not UTF-8": b"\xff\xfe\x00a\n\x80\n",
    "one byte": b"x",
    "newline first": b"\nx\n",
}
