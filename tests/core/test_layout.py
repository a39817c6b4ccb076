"""The format is declared twice, for the compiled core and for NumPy; here they meet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loaderx
from loaderx._core import batch, compress, gather, maps, snapshot, threads
from loaderx._core.fault import Fault
from loaderx.store import format as store_format
from loaderx.store.format import HEADER, RECORD


def test_the_core_reads_entries_as_numpy_writes_them(tmp_path: Path) -> None:
    """Every field has a value of its own, so a field out of place gives another answer."""
    entries = np.zeros(2, RECORD)
    entries[1] = (0x00010203, 0x00000405, 0x00000405, 0x0001, 0, 0)
    (tmp_path / "meta.zr").write_bytes(np.zeros(1, HEADER).tobytes() + entries.tobytes())
    (tmp_path / "0.zr").write_bytes(b"")
    content = bytearray(0x00010203 + 0x405)
    content[0x00010203:] = bytes(i % 251 for i in range(0x405))
    (tmp_path / "1.zr").write_bytes(content)
    table = maps.FileMap(tmp_path / "meta.zr", 1 << 20)
    chunks = tuple(maps.FileMap(tmp_path / name, 1 << 20) for name in ("0.zr", "1.zr"))
    view = snapshot.Snapshot(table, chunks, 2, None, snapshot.Gate(), 1 << 20)
    dst = bytearray(0x405)
    assert gather.gather(view, np.array([1]), dst, 0x405, True, None, 1) is None
    assert dst == content[0x00010203:]


def test_faults_have_the_numbers_the_core_was_compiled_with() -> None:
    assert batch.fault_numbers() == {fault.name: int(fault) for fault in Fault}


def test_sizes_and_limits() -> None:
    assert (HEADER.itemsize, RECORD.itemsize) == (16, 16)
    assert store_format.META_BYTES == 268_435_472
    assert [HEADER.fields[name][1] for name in HEADER.names] == [0, 4, 6, 8, 12]  # type: ignore[index,union-attr]
    assert [RECORD.fields[name][1] for name in RECORD.names] == [0, 4, 8, 12, 14, 15]  # type: ignore[index,union-attr]


def test_a_map_outlives_its_name_and_follows_its_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    mapped = maps.FileMap(path, 1 << 20)
    view = memoryview(mapped)
    assert bytes(view) == b"abc" and view.readonly
    with open(path, "ab") as stream:
        stream.write(b"def")
    assert mapped.size() == 6 and mapped.read(1, 100) == b"bcdef" and bytes(memoryview(mapped)) == b"abcdef"
    path.unlink()
    del mapped
    assert bytes(view) == b"abc"


def test_a_map_is_read_only(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    array = np.frombuffer(maps.FileMap(tmp_path / "f", 100), np.uint8)
    assert not array.flags.writeable
    with pytest.raises(BufferError, match="not mapped"):
        memoryview(maps.FileMap(tmp_path / "f", 100, False))
    with pytest.raises(FileNotFoundError):
        maps.FileMap(tmp_path / "g", 100)


def test_compress_refuses_buffers_that_do_not_fit() -> None:
    starts, lens = np.array([0, 5]), np.array([5, 6], np.uint32)
    phys, codecs = np.zeros(2, np.uint32), np.zeros(2, np.uint8)
    out = np.zeros(compress.compress_bound(lens), np.uint8)
    with pytest.raises(ValueError, match="record 1 lies outside"):
        compress.compress(bytes(10), starts, lens, out, phys, codecs, 1, 3, None, 1)
    with pytest.raises(ValueError, match="one item for each record"):
        compress.compress(bytes(11), starts, lens, out, phys[:1], codecs, 1, 3, None, 1)
    with pytest.raises(ValueError, match="shorter than compress_bound"):
        compress.compress(bytes(11), starts, lens, out[:5], phys, codecs, 1, 3, None, 1)
    with pytest.raises(ValueError, match="needs a dictionary"):
        compress.compress(bytes(11), starts, lens, out, phys, codecs, 2, 3, None, 1)
    assert compress.compress(bytes(11), starts, lens, out, phys, codecs, 1, 3, None, 1) == 11


@pytest.mark.parametrize("n", range(1, 40))
def test_training_on_next_to_nothing_is_refused(n: int) -> None:
    """Given 8 to 10 bytes in as many samples, the trainer of zstd 1.5.4 crashes."""
    assert isinstance(compress.train(bytes(range(n)), np.ones(n, np.uint64), 1000), str)
    with pytest.raises(ValueError, match="beyond"):
        compress.train(bytes(n), np.array([n + 1], np.uint64), 1000)


def test_build_info() -> None:
    info = loaderx.build_info()
    assert info["zstd_source"] in ("system", "prefix", "bundled")
    assert tuple(map(int, str(info["zstd_version"]).split("."))) >= (1, 5, 0)
    assert info["openmp"] is None or isinstance(info["openmp"], int)
    assert info["threads"] == (threads.available_cpus() if info["openmp"] else 1)
