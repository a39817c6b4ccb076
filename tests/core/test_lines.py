"""The line scan: against a slow one, in every kernel, whatever the pieces."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from loaderx._core import lines
from loaderx._core.checksum import hash64
from tests.jsonl.oracle import lines_of

BLOCK = lines.BLOCK_BYTES


@pytest.fixture(params=lines.kernels())
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    lines.use_kernel(request.param)
    yield request.param
    lines.use_kernel(None)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "text", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def fill(descriptor: int, data: bytes) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, data, 0)


def scan(descriptor: int, data: bytes) -> list[tuple[int, int]]:
    """Return the lines of a file in one piece, the last one with or without an end."""
    rows, head_end, head_text, start, has_text, n_read = lines.LineScanner().scan(
        descriptor, 0, len(data), 7, False
    )
    assert (head_end, head_text, n_read) == (0, False, len(data))
    numbers = np.frombuffer(rows, "<u8").reshape(-1, 3)
    assert (numbers[:, 0] == 7).all()
    found = [(int(at), int(size)) for _, at, size in numbers]
    assert start <= len(data)
    if has_text:
        found.append((start, len(data) - start))
    return found


def test_every_machine_has_the_portable_kernel() -> None:
    assert lines.kernels()[-1] == "portable"
    assert lines.kernel() == lines.kernels()[0]
    with pytest.raises(ValueError, match=r"no kernel 'quantum': here work .*portable"):
        lines.use_kernel("quantum")
    assert lines.kernel() == lines.kernels()[0]


TEXTS = {
    "empty": b"",
    "one": b"{}",
    "ended": b"{}\n",
    "two": b"{}\n[]\n",
    "no_end": b"{}\n[]",
    "blank": b"\n \t\r\n\r\n",
    "blank_between": b"{}\n\n[]\n \t \n1\n",
    "blank_at_the_end": b"{}\n  ",
    "crlf": b"{}\r\n\r\n[]\r\n",
    "lone_cr": b"1\r2\n",
    "indented": b"  {}\n\t[]\n",
    "mark": b"\xef\xbb\xbf{}\n",
    "mark_alone": b"\xef\xbb\xbf",
    "mark_and_blank": b"\xef\xbb\xbf \n{}\n",
    "half_a_mark": b"\xef\xbb\n",
    "mark_later": b"{}\n\xef\xbb\xbf\n",
    "unicode_separators": '"a\u2028b\u2029c\u0085d"\n'.encode(),
    "nul": b"\0\n\0\0\n",
    "vertical_tab": b"\x0b\n\x0c\n",
    "bytes_next_to_it": bytes([9, 11, 10, 0x8A, 0x0A, 0x0B, 0x09, 0x0A]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_like_the_oracle(name: str, kernel: str, opened: int) -> None:
    fill(opened, TEXTS[name])
    assert scan(opened, TEXTS[name]) == lines_of(TEXTS[name])


def test_every_length_and_every_place_of_a_line_end(kernel: str, opened: int) -> None:
    for length in [*range(1, 70), 127, 128, 129, 191, 192, 193]:
        for end in range(length):
            data = b"x" * end + b"\n" + b" y"[end % 2 : end % 2 + 1] * (length - end - 1)
            fill(opened, data)
            assert scan(opened, data) == lines_of(data), (length, end)


def test_every_byte_but_one_is_no_line_end(kernel: str, opened: int) -> None:
    data = b"".join(b"a" + bytes([byte]) * 3 + b"z" for byte in range(256) if byte != 10)
    fill(opened, data)
    assert scan(opened, data) == [(0, len(data))]


@pytest.mark.parametrize("density", [0.5, 0.05, 0.002])
def test_random_bytes_like_the_oracle(density: float, kernel: str, opened: int) -> None:
    rng = np.random.default_rng(int(density * 1000))
    for _ in range(20):
        size = int(rng.integers(1, 3 * BLOCK))
        text = rng.choice(np.frombuffer(b"ab \t\r\0\xff", np.uint8), size)
        text[rng.random(size) < density] = 10
        data = text.tobytes()
        fill(opened, data)
        assert scan(opened, data) == lines_of(data)


def test_lines_across_blocks(kernel: str, opened: int) -> None:
    for end in (BLOCK - 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK - 1):
        for filler in (b" ", b"x"):
            data = filler * end + b"\n" + b"y\n" + filler * BLOCK + b"z\n"
            fill(opened, data)
            assert scan(opened, data) == lines_of(data), (end, filler)


def test_a_piece_that_begins_in_a_line(kernel: str, opened: int) -> None:
    data = b"abc \n  \ndef\nghi"
    fill(opened, data)
    scanner = lines.LineScanner()
    # the line it begins in is not in the rows: where it ends, and whether it has text here
    assert scanner.scan(opened, 1, 14, 0, True) == (struct.pack("<3Q", 0, 8, 4), 5, True, 12, True, 14)
    assert scanner.scan(opened, 3, 5, 0, True) == (b"", 5, False, 8, False, 5)
    assert scanner.scan(opened, 8, 4, 0, True) == (b"", 12, True, 12, False, 4)
    # it does not end here
    assert scanner.scan(opened, 0, 3, 0, True)[1:3] == (-1, True)
    assert scanner.scan(opened, 5, 2, 0, True)[1:3] == (-1, False)
    # and what begins at a line
    assert scanner.scan(opened, 8, 5, 3, False) == (struct.pack("<3Q", 3, 8, 4), 8, False, 12, True, 5)


def test_a_file_that_ends_early_is_told(opened: int) -> None:
    fill(opened, b"abc\nd")
    scanner = lines.LineScanner()
    assert scanner.scan(opened, 0, 100, 0, False) == (struct.pack("<3Q", 0, 0, 4), 0, False, 4, True, 5)
    assert scanner.scan(opened, 50, 100, 0, True)[-1] == 0
    assert scanner.fingerprint(opened, 5) == hash64(b"abc\nd")
    assert scanner.fingerprint(opened, 6) is None
    fill(opened, bytes(400_000))
    assert scanner.fingerprint(opened, 400_001) is None


def test_what_the_system_refuses(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            lines.LineScanner().scan(descriptor, 0, 10, 0, False)
        with pytest.raises(IsADirectoryError):
            lines.LineScanner().fingerprint(descriptor, 10)
    finally:
        os.close(descriptor)


def test_the_fingerprint_is_what_it_says(opened: int) -> None:
    scanner = lines.LineScanner()
    data = np.random.default_rng(3).bytes(64 * 4096 + 1000)
    for size in (0, 1, 4096, 64 * 4096, 64 * 4096 + 1, len(data)):
        fill(opened, data[:size])
        if size <= 64 * 4096:
            expected = data[:size]
        else:
            starts = [(size - 4096) * i // 63 for i in range(64)]
            expected = b"".join(data[at : at + 4096] for at in starts)
        assert scanner.fingerprint(opened, size) == hash64(expected), size
    # what is behind makes no difference
    fill(opened, data)
    assert scanner.fingerprint(opened, 5000) == hash64(data[:5000])
