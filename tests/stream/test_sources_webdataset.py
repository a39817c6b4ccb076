"""Tar archives as sources."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx.errors import ArchiveError, OptionError, StateMismatchError, StreamError
from loaderx.stream.stream import Stream
from loaderx.stream.tar import Cut, TarError, read_member
from tests.stream.source_kit import COMPRESS, check_resume, check_source, write_tar

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def members(first: int, n: int) -> list[tuple[str, bytes]]:
    found = []
    for i in range(first, first + n):
        found += [(f"a/s{i}.txt", b"t%d" % i * i), (f"a/s{i}.seg.JSON", json.dumps({"n": i}).encode())]
    return found


def samples(first: int, n: int) -> list[dict[str, Any]]:
    return [
        {"__key__": f"a/s{i}", "txt": b"t%d" % i * i, "seg.json": json.dumps({"n": i}).encode()}
        for i in range(first, first + n)
    ]


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Return three archives, of which the second is empty."""
    (tmp_path / "b.tar").write_bytes(b"")
    return [
        write_tar(tmp_path / "a.tar", members(0, 4)),
        tmp_path / "b.tar",
        write_tar(tmp_path / "c.tar", members(4, 3)),
    ]


def test_samples_are_read_and_resumed(paths: list[Path]) -> None:
    check_source(lambda: Stream.from_webdataset(paths), samples(0, 7))


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
def test_compressed(paths: list[Path], suffix: str) -> None:
    packed = []
    for path in paths:
        packed.append(path.with_suffix(f".tar{suffix}"))
        packed[-1].write_bytes(COMPRESS[suffix](path.read_bytes()))
    check_source(lambda: Stream.from_webdataset(packed), samples(0, 7))


@pytest.mark.parametrize(
    ("form", "n_letters"),
    [(form, n) for form in FORMATS for n in (20, 98, 150, 300) if (form, n) != ("ustar", 300)],
)
def test_formats_and_long_names(tmp_path: Path, form: str, n_letters: int) -> None:
    name = "/".join(["d" * 40] * (n_letters // 40)) + "/" + "n" * (n_letters % 40)
    path = write_tar(
        tmp_path / "x.tar",
        [(f"{name}.a", b"1" * 513), (f"{name}.b", b""), ("ü.a", b"2"), (f"z{name}.a", b"3")],
        form=FORMATS[form],
    )
    expected = [{"__key__": name, "a": b"1" * 513, "b": b""}, {"__key__": "ü", "a": b"2"}]
    check_source(lambda: Stream.from_webdataset(path), [*expected, {"__key__": "z" + name, "a": b"3"}])


def test_what_is_no_member_of_a_sample_is_left_out(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:

        def add(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE) -> None:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(data), "a.x"
            archive.addfile(info, io.BytesIO(data))

        add("dir.d", kind=tarfile.DIRTYPE)
        add("__meta__/x.json", b"no")
        add("a.x", b"1")
        add("a.link", kind=tarfile.SYMTYPE)
        add("a.hard", kind=tarfile.LNKTYPE)
        add(".hidden", b"no")
        add("README", b"no")
        add("a.y", b"2")
        add("b.x", b"3")
        add("a.x", b"4")
        add("last", b"no")
    expected = [
        {"__key__": "a", "x": b"1", "y": b"2"},
        {"__key__": "b", "x": b"3"},
        {"__key__": "a", "x": b"4"},
    ]
    check_source(lambda: Stream.from_webdataset(tmp_path / "x.tar"), expected)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_samples_larger_than_any_block(tmp_path: Path, suffix: str) -> None:
    large = [
        ("a.x", b"1" * 3_000_000),
        ("a.y", b"2"),
        ("b.x", b"3"),
        ("c.x", b"4" * 1_000_000),
        ("c.y", b"5" * 99),
    ]
    path = write_tar(tmp_path / "x.tar", large)
    packed = tmp_path / f"x.tar{suffix}"
    packed.write_bytes(COMPRESS[suffix](path.read_bytes()))
    found = check_resume(lambda: Stream.from_webdataset(packed))
    assert [sample["__key__"] for sample in found] == ["a", "b", "c"]
    assert found[0]["x"] == b"1" * 3_000_000 and found[2]["y"] == b"5" * 99
    check_resume(lambda: Stream.from_webdataset(packed).shuffle(2))


def test_many_samples_and_no_zeros_at_the_end(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", [(f"s{i:05}.x", b"x" * (i % 1_500)) for i in range(3_000)])
    path.write_bytes(path.read_bytes().rstrip(b"\0") + b"\0" * 37)  # 1499 % 512
    data = path.read_bytes()
    path.write_bytes(data + b"\0" * (-len(data) % 512))
    iterator = iter(Stream.from_webdataset(path))
    for i in range(3_000):
        if i % 331 == 0:
            resumed = iter(Stream.from_webdataset(path))
            resumed.load_state_dict(json.loads(json.dumps(iterator.state_dict())))
            assert [sample["__key__"] for sample in resumed] == [f"s{j:05}" for j in range(i, 3_000)]
        assert next(iterator) == {"__key__": f"s{i:05}", "x": b"x" * (i % 1_500)}
    assert list(iterator) == []


class TestDecode:
    def test_the_usual(self, tmp_path: Path) -> None:
        array = io.BytesIO()
        np.save(array, np.arange(3))
        path = write_tar(
            tmp_path / "x.tar",
            [
                ("a.txt", "ü".encode()),
                ("a.x.json", b"[1]"),
                ("a.cls", b"7"),
                ("a.npy", array.getvalue()),
                ("a.jpg", b"j"),
            ],
        )
        check_source(
            lambda: Stream.from_webdataset(path, decode=True),
            [{"__key__": "a", "txt": "ü", "x.json": [1], "cls": 7, "npy": np.arange(3), "jpg": b"j"}],
        )

    def test_functions(self, paths: list[Path]) -> None:
        expected = [{**sample, "txt": len(sample["txt"])} for sample in samples(0, 7)]
        check_source(lambda: Stream.from_webdataset(paths, decode={"txt": len}), expected)
        check_source(
            lambda: Stream.from_webdataset(paths, decode=lambda sample: sample["__key__"]),
            [f"a/s{i}" for i in range(7)],
        )
        check_source(lambda: Stream.from_webdataset(paths, decode={".TXT": len}), expected)
        for wrong in ({"txt": "len"}, {3: len}, {"": len}, {".": len}):
            with pytest.raises(
                OptionError, match=r"decode has .* for .*: give functions of bytes by extension"
            ):
                Stream.from_webdataset(paths, decode=wrong)
        with pytest.raises(OptionError, match="decode is 'pil': give a function"):
            Stream.from_webdataset(paths, decode="pil")

    def test_a_sample_that_cannot_be_decoded(self, tmp_path: Path) -> None:
        path = write_tar(tmp_path / "x.tar", [("a.cls", b"1"), ("b.cls", b"one"), ("c.cls", b"3")])
        iterator = iter(Stream.from_webdataset(path, decode=True))
        assert next(iterator) == {"__key__": "a", "cls": 1}
        with pytest.raises(
            StreamError, match=r"member 'cls' of the item of .*x\.tar, byte 1024, sample b"
        ) as caught:
            next(iterator)
        assert isinstance(caught.value.__cause__, ValueError)
        assert next(iterator) == {"__key__": "c", "cls": 3}
        check_source(
            lambda: Stream.from_webdataset(path, decode=True, on_error="skip"),
            [{"__key__": "a", "cls": 1}, {"__key__": "c", "cls": 3}],
        )
        check_source(
            lambda: Stream.from_webdataset(path, decode={"cls": int}, on_error=lambda error: error.where[-1]),
            [{"__key__": "a", "cls": 1}, "b", {"__key__": "c", "cls": 3}],
        )
        iterator = iter(Stream.from_webdataset(path, decode=True, on_error="skip"))
        list(iterator)
        assert iterator.state_dict()["position"]["skipped"] == 1


class TestDamage:
    def test_a_member_that_is_there_twice(self, tmp_path: Path) -> None:
        path = write_tar(tmp_path / "x.tar", [("a.x", b"1"), ("a.x", b"2"), ("b.x", b"3")])
        iterator = iter(Stream.from_webdataset(path))
        with pytest.raises(
            ArchiveError, match=r"x\.tar: damaged: 'a.x' is there twice in one sample \(byte 1024 of"
        ):
            next(iterator)
        assert list(iterator) == [{"__key__": "b", "x": b"3"}]
        check_source(lambda: Stream.from_webdataset(path, on_error="skip"), [{"__key__": "b", "x": b"3"}])

    @pytest.mark.parametrize(
        ("keep", "problem", "whole"), [(1_024 + 100, "cut off", 1_024), (1_024 + 513, "cut off", 1_024)]
    )
    def test_cut_off(self, tmp_path: Path, keep: int, problem: str, whole: int) -> None:
        path = write_tar(tmp_path / "x.tar", [("a.x", b"1"), ("b.x", b"2" * 600)])
        path.write_bytes(path.read_bytes()[:keep])
        iterator = iter(Stream.from_webdataset(path))
        # What the header says that follows is of another sample: the first one is whole.
        assert next(iterator) == {"__key__": "a", "x": b"1"} if keep > 1_536 else True
        with pytest.raises(ArchiveError) as caught:
            next(iterator)
        assert (caught.value.file, caught.value.problem, caught.value.whole_bytes) == (path, problem, whole)
        assert list(iterator) == []

    def test_a_header_that_is_wrong(self, tmp_path: Path) -> None:
        path = write_tar(tmp_path / "x.tar", [("a.x", b"1"), ("b.x", b"2")])
        data = bytearray(path.read_bytes())
        data[1_024 + 3] ^= 1
        path.write_bytes(data)
        with pytest.raises(ArchiveError, match=r"damaged: a header's checksum is wrong \(byte 1024"):
            list(Stream.from_webdataset(path))

    def test_no_tar_at_all(self, tmp_path: Path) -> None:
        (tmp_path / "x.tar").write_bytes(b"hello" * 300)
        with pytest.raises(ArchiveError, match="damaged"):
            list(Stream.from_webdataset(tmp_path / "x.tar"))

    @pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
    def test_a_compressed_one_that_is_cut_off(self, paths: list[Path], tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"x.tar{suffix}"
        path.write_bytes(COMPRESS[suffix](paths[0].read_bytes())[:-12])
        iterator = iter(Stream.from_webdataset(path))
        found: list[Any] = []
        with pytest.raises(ArchiveError, match="cut off"):
            found.extend(iterator)
        assert found == samples(0, len(found))
        assert list(iterator) == []

    def test_every_cut_and_every_flip_is_an_error_or_the_same_samples(self, tmp_path: Path) -> None:
        path = write_tar(tmp_path / "x.tar", [("a.x", b"1"), ("b.x", b"2" * 600)])
        whole = path.read_bytes()[: 5 * 512]
        for cut in range(0, len(whole), 61):
            path.write_bytes(whole[:cut])
            found: list[Any] = []
            try:
                found.extend(Stream.from_webdataset(path))
            except ArchiveError:
                # The first one is whole where the header of the second is.
                assert [sample["__key__"] for sample in found] == (["a"] if cut >= 1_536 else [])
                continue
            assert (cut, len(found)) == (0, 0)
        for at in range(1_024, 1_536, 7):
            data = bytearray(whole)
            data[at] ^= 0x10
            path.write_bytes(data)
            with pytest.raises(ArchiveError):
                list(Stream.from_webdataset(path))

    def test_a_changed_archive_is_refused(self, paths: list[Path]) -> None:
        iterator = iter(Stream.from_webdataset(paths))
        next(iterator)
        state = iterator.state_dict()
        write_tar(paths[0], members(0, 3))
        with pytest.raises(StateMismatchError, match=r"a\.tar, which has changed since"):
            iter(Stream.from_webdataset(paths)).load_state_dict(state)

    def test_random_order_is_refused(self, paths: list[Path]) -> None:
        with pytest.raises(OptionError, match="nothing says where the samples of tar archives begin"):
            Stream.from_webdataset(paths).shuffle(None)


class TestHeaders:
    def header(self, **changes: bytes) -> bytes:
        info = tarfile.TarInfo("a.x")
        info.size = 3
        fields = {"size": slice(124, 136), "kind": slice(156, 157), "name": slice(0, 100)}
        data = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
        for field, value in changes.items():
            where = fields[field]
            data[where] = value.ljust(where.stop - where.start, b"\0")
        data[148:156] = b" " * 8
        data[148:156] = b"%06o\0 " % sum(data)
        return bytes(data)

    def test_a_size_in_binary(self) -> None:
        member = read_member(self.header(size=b"\x80" + (9 << 33).to_bytes(11, "big")), 0)
        assert member is not None and member.end == 512 + (9 << 33)

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"size": b"\xff" * 12}, "negative"),
            ({"size": b"99x"}, "a number that is none"),
            ({"kind": b"S"}, "sparse"),
        ],
    )
    def test_what_is_refused(self, changes: dict[str, bytes], problem: str) -> None:
        with pytest.raises(TarError, match=problem):
            read_member(self.header(**changes), 0)

    def test_an_old_folder_and_links(self) -> None:
        folder = read_member(self.header(kind=b"\0", name=b"folder.x/"), 0)
        link = read_member(self.header(kind=b"1"), 0)
        assert folder is not None and link is not None
        assert not folder.is_regular and not link.is_regular
        assert link.following == 512

    def test_signed_sums(self) -> None:
        data = bytearray(self.header(name=b"\xfc.x"))
        data[148:156] = b" " * 8
        signed = sum(byte - 256 if byte > 127 else byte for byte in data)
        data[148:156] = b"%06o\0 " % signed
        member = read_member(bytes(data), 0)
        assert member is not None and member.name == "\udcfc.x"

    def test_more_is_needed(self) -> None:
        with pytest.raises(Cut):
            read_member(self.header()[:-1], 0)
        with pytest.raises(Cut):
            read_member(self.header(kind=b"x"), 0)
        with pytest.raises(TarError, match="pax"):
            read_member(self.header(kind=b"x") + b"99 a=b\n".ljust(512, b"\0"), 0)
