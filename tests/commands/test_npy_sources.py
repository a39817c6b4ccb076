"""The sources of `convert`: headers of .npy files, natural order, and many files as one array."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from loaderx.commands.bits import first_different
from loaderx.commands.npy_files import NpyFiles, NpyRecords, find_npy_files
from loaderx.commands.npy_header import read_npy_header
from loaderx.commands.program import CommandError
from loaderx.store.natural import natural_key
from tests.commands.conftest import Save

PADDED = np.dtype({"names": ["a", "b"], "formats": ["u1", "<i8"], "offsets": [0, 8], "itemsize": 16})

ARRAYS = {
    "plain": np.arange(24.0).reshape(4, 3, 2),
    "one axis": np.arange(5, dtype="<i2"),
    "fortran": np.asfortranarray(np.arange(24, dtype="i4").reshape(4, 3, 2)),
    "big-endian": np.arange(6, dtype=">u4"),
    "structured": np.array([(1, 2.5), (3, 4.5)], dtype=[("left", "<i4"), ("right", "<f8")]),
    "names beyond Latin-1": np.array([(1,), (2,)], dtype=[("долгота", "<i4")]),
    "dates": np.array(["2020-01-01", "NaT"], dtype="M8[s]"),
    "text": np.array(["a", "bc", "żółw"]),
    "opaque": np.zeros(3, "V5"),
    "no records": np.zeros((0, 3)),
    "no bytes": np.zeros((4, 0)),
    "many fields": np.zeros(2, [(f"a_field_with_a_long_name_{number}", "<f8") for number in range(400)]),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.filterwarnings("ignore:Stored array in format:UserWarning")
def test_every_kind_of_array_reads_as_it_was_saved(save: Save, name: str) -> None:
    array = ARRAYS[name]
    source = NpyFiles([save("array.npy", array)])
    assert (source.dtype, source.shape, len(source)) == (array.dtype, array.shape, len(array))
    got = source[0 : len(array)]
    assert got.dtype == array.dtype and got.shape == array.shape
    assert first_different(got, array) is None
    assert got.flags.c_contiguous


def test_large_slices_are_views_of_a_read_only_map(save: Save) -> None:
    source = NpyFiles([save("array.npy", np.arange(1 << 20))])
    assert not source[:].flags.writeable
    assert source[:9].flags.writeable


def test_records_are_a_sequence(save: Save) -> None:
    records = NpyRecords([save(f"{number}.npy", np.arange(number)) for number in range(5)])
    assert [len(record) for record in records] == [0, 1, 2, 3, 4]
    assert [len(record) for record in records[1:4:2]] == [1, 3]
    assert len(records[-1]) == 4


@pytest.mark.parametrize(
    ("shape", "splits"),
    [((10,), [3, 3, 9]), ((10, 2), [1, 2, 3, 4, 5, 6, 7, 8, 9]), ((10, 0), [4]), ((0, 3), [0])],
)
def test_joined_files_slice_like_the_whole(save: Save, shape: tuple[int, ...], splits: list[int]) -> None:
    whole = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
    files = [save(f"{number}.npy", part) for number, part in enumerate(np.split(whole, splits))]
    source = NpyFiles(files)
    assert source.shape == whole.shape
    for start in range(len(whole) + 1):
        for stop in range(start, len(whole) + 2):
            np.testing.assert_array_equal(source[start:stop], whole[start:stop])
    np.testing.assert_array_equal(source[-4:], whole[-4:])
    np.testing.assert_array_equal(source[:], whole)
    with pytest.raises(IndexError, match="step 1"):
        source[::2]


def test_joining_keeps_the_padding_between_fields(save: Save) -> None:
    raw = np.random.default_rng(0).integers(0, 255, (6, 16), dtype=np.uint8)
    whole = raw.view(PADDED).reshape(6)
    # np.save writes an array of this dtype through a copy that may drop the padding; put the bytes there ourselves.
    files = []
    for number, part in enumerate((raw[:2], raw[2:])):
        files.append(save(f"{number}.npy", np.zeros(len(part), PADDED)))
        files[-1].write_bytes(files[-1].read_bytes()[: -part.nbytes] + part.tobytes())
    assert NpyFiles(files)[0:6].tobytes() == raw.tobytes()
    assert [record.tobytes() for record in NpyRecords(files)] == [raw[:2].tobytes(), raw[2:].tobytes()]
    assert first_different(NpyFiles(files)[0:6], whole) is None


def test_first_different_sees_padding_and_bits() -> None:
    a = np.zeros((3, 16), np.uint8)
    b = a.copy()
    b[1, 3] = 1  # within the padding
    assert first_different(a.view(PADDED), b.view(PADDED)) == 1
    assert first_different(np.array([0.0, np.nan]), np.array([0.0, np.nan])) is None
    assert first_different(np.array([0.0, 0.0]), np.array([0.0, -0.0])) == 1


def test_locate_names_file_and_place(save: Save) -> None:
    source = NpyFiles([save(f"{number}.npy", np.zeros(length)) for number, length in enumerate((2, 0, 3))])
    assert [Path(source.locate(record)).name for record in range(5)] == [
        "0.npy[0]",
        "0.npy[1]",
        "2.npy[0]",
        "2.npy[1]",
        "2.npy[2]",
    ]


def test_natural_order() -> None:
    ordered = [
        "a/9.npy",
        "a/10.npy",
        "part.npy",
        "part1.npy",
        "part01.npy",
        "part2.npy",
        "part10.npy",
        "part10b.npy",
    ]
    assert [str(path) for path in sorted(map(Path, reversed(ordered)), key=natural_key)] == [
        "a/9.npy",
        "a/10.npy",
        "part.npy",
        "part01.npy",
        "part1.npy",
        "part2.npy",
        "part10.npy",
        "part10b.npy",
    ]


def test_a_folder_gives_its_own_npy_files(save: Save, tmp_path: Path) -> None:
    for name in ("in/b10.npy", "in/b9.npy", "in/.hidden.npy", "in/deeper/c.npy"):
        save(name, np.zeros(1))
    (tmp_path / "in/readme.txt").write_text("text")
    (tmp_path / "in/folder.npy").mkdir()
    a = save("a.npy", np.zeros(1))
    found = find_npy_files([tmp_path / "in", a])
    assert [str(path.relative_to(tmp_path)) for path in found] == ["a.npy", "in/b9.npy", "in/b10.npy"]


def test_slices_of_many_files_take_bounded_memory(save: Save) -> None:
    files = [save(f"{number}.npy", np.full(1 << 17, number, np.uint8)) for number in range(64)]
    source = NpyFiles(files)
    tracemalloc.start()
    total = sum(int(source[start : start + 100_000].sum()) for start in range(0, len(source), 100_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == sum(range(64)) << 17
    assert peak < 1 << 20


def header_bytes(text: str, version: bytes = b"\x01\x00") -> bytes:
    width = 2 if version == b"\x01\x00" else 4
    body = text.encode("utf-8") + b"\n"
    return b"\x93NUMPY" + version + len(body).to_bytes(width, "little") + body


def describe(descr: str, shape: str, order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"


HOSTILE = {
    "empty": (b"", "is not a .npy file"),
    "other magic": (b"GIF89a..................", "is not a .npy file"),
    "header cut": (header_bytes(describe("'<f8'", "(3,)"))[:30], "is not a .npy file that can be read"),
    "data cut": (header_bytes(describe("'<f8'", "(3,)")) + bytes(20), "cut short: its header says 24 bytes"),
    "negative": (header_bytes(describe("'<f8'", "(-3,)")), "shape (-3,)"),
    "overflowing": (header_bytes(describe("'<f8'", "(4611686018427387904, 8)")), "cut short"),
    "shape of text": (header_bytes(describe("'<f8'", "('3',)")), "is not a .npy file that can be read"),
    "no such dtype": (header_bytes(describe("'<q99'", "(3,)")), "is not a .npy file that can be read"),
    "not a dictionary": (header_bytes("[1, 2]"), "is not a .npy file that can be read"),
    "a call": (header_bytes("__import__('os').abort()"), "is not a .npy file that can be read"),
    "deep nesting": (header_bytes("(" * 9000), "is not a .npy file that can be read"),
    "objects": (header_bytes(describe("'|O'", "(3,)")) + bytes(64), "holds Python objects (dtype object)"),
    "objects in a field": (
        header_bytes(describe("[('a', '<i4'), ('b', '|O')]", "(3,)")) + bytes(64),
        "holds Python objects",
    ),
    "version 9": (b"\x93NUMPY\x09\x00" + bytes(64), "format version is (9, 0)"),
    "version 3, cut": (header_bytes(describe("'<f8'", "(3,)"), b"\x03\x00")[:20], "its header is cut short"),
    "version 3, keys": (header_bytes("{'descr': '<f8'}", b"\x03\x00"), "not a dictionary of descr"),
    "version 3, shape": (header_bytes(describe("'<f8'", "(True,)"), b"\x03\x00"), "says shape (True,)"),
    "version 3, order": (header_bytes(describe("'<f8'", "(3,)", "1"), b"\x03\x00"), "says fortran_order 1"),
    "version 3, dtype": (
        header_bytes(describe("5", "(3,)"), b"\x03\x00"),
        "is not a .npy file that can be read",
    ),
    "version 3, length": (
        b"\x93NUMPY\x03\x00\xff\xff\xff\x7f" + bytes(64),
        "header is 2147483647 bytes long",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_header(name: str) -> None:
    content, words = HOSTILE[name]
    with pytest.raises(CommandError) as caught:
        read_npy_header(io.BytesIO(content), "f.npy", len(content))
    assert str(caught.value).startswith("f.npy ")
    assert words in str(caught.value)


def test_a_file_cut_after_its_header_was_read(save: Save) -> None:
    path = save("a.npy", np.zeros(10_000))
    source = NpyFiles([path])
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CommandError, match=r"a\.npy changed while it was read"):
        source[0:10]
