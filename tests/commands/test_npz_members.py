"""The members of a .npz file as sources: names, slices, damage."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from loaderx.commands.npz_members import NpzFile
from loaderx.commands.program import CommandError


def npy_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def write_zip(path: Path, members: list[tuple[str, bytes]], **options: int) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_slices_in_any_order(tmp_path: Path, save: object, order: str) -> None:
    a = np.asarray(np.random.default_rng(0).integers(0, 9, (1000, 3, 5)), order=order)
    save(tmp_path / "x.npz", a=a, b=np.arange(7))  # type: ignore[operator]
    with NpzFile(tmp_path / "x.npz") as npz:
        assert list(npz.members) == ["a", "b"]
        member = npz.members["a"]
        assert (member.dtype, member.shape, member.ndim, len(member)) == (a.dtype, a.shape, 3, 1000)
        for start, stop in [(0, 10), (10, 20), (500, 1000), (0, 1000), (3, 3), (999, 1001), (5, 6), (4, 6)]:
            np.testing.assert_array_equal(member[start:stop], a[start:stop])
        np.testing.assert_array_equal(npz.members["b"][:], np.arange(7))
        assert member.locate(4).endswith("x.npz:a[4]")
        with pytest.raises(IndexError, match="step 1"):
            member[::-1]


def test_members_without_bytes(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", none=np.zeros((0, 3)), flat=np.zeros((4, 0)))
    with NpzFile(tmp_path / "x.npz") as npz:
        assert npz.members["none"][0:9].shape == (0, 3)
        assert npz.members["flat"][1:3].shape == (2, 0)


ARRAY = npy_bytes(np.arange(100))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../evil.npy", "'../evil'"),
        ("..npy.npy", None),  # an odd name, but a plain one
        ("...npy", "'..'"),
        ("a/b.npy", "'a/b'"),
        ("/etc/evil.npy", "'/etc/evil'"),
        ("a\\b.npy", r"'a\\b'"),
        (".npy", "''"),
        ("..npy", "'.'"),
        ("a\0b.npy", r"'a\x00b'"),
        ("x" * 201 + ".npy", "'xxx"),
    ],
)
def test_names(tmp_path: Path, name: str, shown: str | None) -> None:
    stand_in = "N" * len(name.encode())
    path = write_zip(tmp_path / "x.npz", [("fine.npy", ARRAY), (stand_in, ARRAY)])
    # zipfile corrects names on its way in; put this one in as it is.
    path.write_bytes(path.read_bytes().replace(stand_in.encode(), name.encode()))
    if shown is None:
        with NpzFile(path) as npz:
            assert len(npz.members) == 2
        return
    with pytest.raises(CommandError, match="cannot be the name of a store") as caught:
        NpzFile(path)
    assert shown in str(caught.value)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([], "holds no arrays"),
        ([("a.npy", ARRAY), ("a", ARRAY)], "two arrays named 'a'"),
        ([("a.npy", ARRAY), ("notes.txt", b"no array")], "x.npz holds 'notes.txt', which is not an array"),
        ([("a.npy", ARRAY), ("notes.npy", b"no array")], "x.npz holds 'notes.npy', which is not an array"),
        ([("a.npy", ARRAY), ("folder/", b"")], "x.npz holds 'folder/', which is not an array"),
        ([("model/data.pkl", b"no array")], "x.npz holds 'model/data.pkl', which is not an array"),
        ([("a.npy", ARRAY), ("b.npy", npy_bytes(np.array(5)))], "x.npz:b holds a single value"),
        ([("a.npy", ARRAY[:-1])], "x.npz:a is cut short"),
    ],
)
def test_refused_contents(tmp_path: Path, members: list[tuple[str, bytes]], words: str) -> None:
    path = write_zip(tmp_path / "x.npz", members)
    with pytest.raises(CommandError) as caught:
        NpzFile(path)
    assert words in str(caught.value)
    # Where there is another array to choose, the way to choose it is said.
    assert str(caught.value).endswith("; choose the arrays to convert by --only NAME") == (len(members) > 1)


def test_only_looks_at_nothing_else(tmp_path: Path) -> None:
    members = [("z.npy", ARRAY), ("notes.txt", b"no array"), ("../evil.npy", ARRAY), ("a", ARRAY)]
    path = write_zip(tmp_path / "x.npz", members)
    with NpzFile(path, ["a", "z", "a"]) as npz:
        assert list(npz.members) == ["z", "a"]
    with pytest.raises(CommandError, match=r"'\.\./evil', which cannot be the name of a store"):
        NpzFile(path, ["../evil"])
    with pytest.raises(
        CommandError, match=r"holds no array 'b'; it holds 'z', 'notes\.txt', '\.\./evil', 'a'"
    ):
        NpzFile(path, ["b", "a"])


def test_objects_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.arange(3), o=np.array([{}, []], dtype=object))
    with pytest.raises(CommandError, match=r"x\.npz:o holds Python objects"):
        NpzFile(tmp_path / "x.npz")


def test_not_a_zip(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(b"PK\x03\x04 and then nothing of the kind")
    with pytest.raises(CommandError, match=r"x\.npz is not a \.npz file that can be read: File is not a zip"):
        NpzFile(path)


@pytest.mark.parametrize(
    "compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_damaged_data_is_found_by_the_checksum_of_the_zip(tmp_path: Path, compression: int) -> None:
    array = np.random.default_rng(0).integers(0, 255, (4000, 10), dtype=np.uint8)
    path = write_zip(tmp_path / "x.npz", [("a.npy", npy_bytes(array))], compression=compression)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CommandError, match=r"x\.npz:a cannot be read"), NpzFile(path) as npz:
        for start in range(0, 4000, 100):
            npz.members["a"][start : start + 100]


def test_encrypted_member(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.npz", [("a.npy", ARRAY)])
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1  # the flag in the central directory
    path.write_bytes(content)
    with pytest.raises(CommandError, match=r"x\.npz:a is encrypted"):
        NpzFile(path)


def test_unknown_compression(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.npz", [("a.npy", ARRAY)])
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 10] = 99
    path.write_bytes(content)
    with pytest.raises(CommandError, match=r"x\.npz:a cannot be read"):
        NpzFile(path)
