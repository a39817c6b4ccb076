"""Text files by their first bytes: read whole, or known to be cut off, damaged or something else."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest

from loaderx import ArchiveError
from loaderx.jsonl import build_index
from loaderx.jsonl.archives import TextFile
from tests.jsonl.texts import COMPRESSIONS, zstd_frame

TEXT = b"".join(b'{"n": %d, "text": "%d and on"}\n' % (n, n * n % 997) for n in range(20_000))
HALF = len(TEXT) // 2 // 1000 * 1000


def text_of(path: Path, data: bytes) -> bytes:
    path.write_bytes(data)
    source = TextFile(path)
    text = b"".join(source)
    assert source.read_bytes == len(data)
    assert source.text_bytes == source.checked_bytes == len(text)
    return text


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("parts", [1, 2, 7])
def test_streams_in_a_row(suffix: str, parts: int, tmp_path: Path) -> None:
    size = len(TEXT) // parts + 1
    data = b"".join(COMPRESSIONS[suffix](TEXT[at : at + size]) for at in range(0, len(TEXT), size))
    assert text_of(tmp_path / f"a.jsonl.{suffix}", data) == TEXT


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_the_bytes_count_and_not_the_name(suffix: str, tmp_path: Path) -> None:
    data = COMPRESSIONS[suffix](TEXT)
    assert text_of(tmp_path / "a.jsonl", data) == TEXT
    assert text_of(tmp_path / "a", data) == TEXT
    other = "xz" if suffix == "gz" else "gz"
    assert text_of(tmp_path / f"a.{other}", data) == TEXT


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_nothing_compressed_is_nothing(suffix: str, tmp_path: Path) -> None:
    compress = COMPRESSIONS[suffix]
    assert text_of(tmp_path / f"a.{suffix}", compress(b"")) == b""
    assert text_of(tmp_path / "a.txt", compress(b"") + compress(TEXT) + compress(b"")) == TEXT


def test_plain_text(tmp_path: Path) -> None:
    assert text_of(tmp_path / "a.txt", TEXT) == TEXT
    assert text_of(tmp_path / "b.txt", b"") == b""
    assert text_of(tmp_path / "c.txt", b"BZh9 is how some files begin\n") == b"BZh9 is how some files begin\n"


@pytest.mark.parametrize("suffix", ["gz", "xz"])
def test_zeros_between_streams(suffix: str, tmp_path: Path) -> None:
    compress = COMPRESSIONS[suffix]
    data = compress(TEXT[:HALF]) + b"\0" * 512 + compress(TEXT[HALF:]) + b"\0" * 70_000
    assert text_of(tmp_path / f"a.{suffix}", data) == TEXT


def test_zstd_frames_to_skip(tmp_path: Path) -> None:
    skippable = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"index"
    data = skippable + zstd_frame(TEXT[:HALF]) + skippable + zstd_frame(TEXT[HALF:]) + skippable
    assert text_of(tmp_path / "a.zst", data) == TEXT


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_much_of_little_comes_in_blocks(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](bytes(100 << 20)))
    sizes = [len(block) for block in TextFile(path)]
    assert sum(sizes) == 100 << 20
    assert max(sizes) <= 64 << 20


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.999])
def test_cut_off(suffix: str, share: float, tmp_path: Path) -> None:
    data = COMPRESSIONS[suffix](TEXT[:HALF]) + COMPRESSIONS[suffix](TEXT[HALF:])
    path = tmp_path / f"a.jsonl.{suffix}"
    path.write_bytes(data[: int(len(data) * share)])
    source = TextFile(path)
    found = b""
    with pytest.raises(ArchiveError, match="cut off") as caught:
        for block in source:
            found += block
    error = caught.value
    assert (error.file, error.problem, error.whole_bytes) == (path, "cut off", len(found))
    assert str(path) in str(error) and f"{len(found):,} bytes" in str(error)
    assert TEXT.startswith(found)
    assert source.checked_bytes == (HALF if len(found) >= HALF else 0)
    # what bzip2 and xz made of the text last is held back until a block is whole
    assert len(found) >= {0.0: 0, 0.001: 0, 0.3: 0, 0.999: HALF}[share]


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_damaged_in_the_second_stream(suffix: str, tmp_path: Path) -> None:
    first, second = COMPRESSIONS[suffix](TEXT[:HALF]), bytearray(COMPRESSIONS[suffix](TEXT[HALF:]))
    path = tmp_path / f"a.jsonl.{suffix}"
    for at in (len(second) // 2, len(second) - 6):
        hurt = bytearray(second)
        hurt[at] ^= 0x55
        path.write_bytes(first + bytes(hurt))
        with pytest.raises(ArchiveError, match=r"damaged: .* stream 2 of the file") as caught:
            for _ in TextFile(path):
                pass
        error = caught.value
        assert (error.file, error.problem, error.whole_bytes) == (path, "damaged", HALF)


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("more", [b"and some words that nobody compressed\n", b"\n"])
def test_something_else_behind_a_stream(suffix: str, more: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](TEXT) + more)
    with pytest.raises(ArchiveError, match="damaged") as caught:
        for _ in TextFile(path):
            pass
    assert caught.value.whole_bytes == len(TEXT)


def test_files_of_another_kind(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.jsonl", TEXT)
    (tmp_path / "a.jsonl").write_bytes(buffer.getvalue())
    (tmp_path / "b.jsonl.gz").write_bytes(TEXT)
    for name, words in (("a.jsonl", "a zip file"), ("b.jsonl.gz", "not a gzip file, as its name says")):
        with pytest.raises(ArchiveError, match=words) as caught:
            TextFile(tmp_path / name)
        assert (caught.value.problem, caught.value.whole_bytes) == ("of another kind", 0)


OTHERS = {
    "Z": (b"\x1f\x9d\x90", r"\(\.Z\)"),
    "lzma": (lzma.compress(TEXT, lzma.FORMAT_ALONE), "an lzma file"),
    "parquet": (b"PAR1\x15\x04\x15", "a Parquet file"),
    "arrow": (b"ARROW1\0\0\xff\xff", "an Arrow file"),
    "gz": (gzip.compress(TEXT), "within it is a gzip file"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_would_become_lines_of_nonsense(name: str, tmp_path: Path) -> None:
    data, words = OTHERS[name]
    for suffix, compress in {"": bytes, **COMPRESSIONS}.items():
        if suffix == "" and name == "gz":
            continue  # which is text, compressed
        path = tmp_path / f"a.{name}.{suffix}"
        path.write_bytes(compress(data))
        with pytest.raises(ArchiveError, match=words) as caught:
            b"".join(TextFile(path))
        assert (caught.value.file, caught.value.problem) == (path, "of another kind")
    (tmp_path / "plain.jsonl").write_bytes(data)
    with pytest.raises(ArchiveError):
        build_index(tmp_path / "plain.jsonl")


def test_an_archive_of_files_is_no_text(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.jsonl"), io.BytesIO(b""))
    for suffix, compress in {"": bytes, **COMPRESSIONS}.items():
        path = tmp_path / f"a.tar.{suffix}"
        path.write_bytes(compress(buffer.getvalue()))
        with pytest.raises(ArchiveError, match="a tar archive"):
            b"".join(TextFile(path))


def test_xz_that_asks_for_too_much_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.xz"
    # an encoder would take ten times as much: only the header says so
    path.write_bytes(_with_dictionary_of(lzma.compress(TEXT), 36))  # 1 GiB
    with pytest.raises(ArchiveError, match="Memory usage limit"):
        b"".join(TextFile(path))


def _with_dictionary_of(data: bytes, size_code: int) -> bytes:
    """Write another dictionary size into the block header of a .xz file, and its checksum."""
    header_bytes = (data[12] + 1) * 4
    header = bytearray(data[12 : 12 + header_bytes - 4])
    at = header.index(b"\x21\x01") + 2
    header[at] = size_code
    return data[:12] + bytes(header) + zlib.crc32(header).to_bytes(4, "little") + data[12 + header_bytes :]
