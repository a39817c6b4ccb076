"""Which files are found, in which order, and what is refused."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
from pathlib import Path

import numpy as np
import pytest
import zstandard

from loaderx.errors import ArchiveError, OptionError
from loaderx.jsonl import Index, build_index, update_index
from loaderx.jsonl.layout import find_place
from loaderx.jsonl.walk import find_files, find_paths
from loaderx.store.natural import name_key, natural_key
from tests.jsonl.kit import write_line_store
from tests.jsonl.samples import samples_of, write


def names_in(base: Path, pattern: str = "**/*.jsonl") -> list[str]:
    return [found.name for found in find_files(find_place(base), pattern)]


def test_folders_and_numbers_in_natural_order(tmp_path: Path) -> None:
    ordered = [
        "a.jsonl", "part2.jsonl", "part10.jsonl", "train/1/x.jsonl", "train/2/x.jsonl", "train/10/2.jsonl",
        "train/10/10.jsonl", "train/a.jsonl", "train2.jsonl", "z/y/x/w.jsonl",
    ]  # fmt: skip
    write(tmp_path, dict.fromkeys(reversed(ordered), b"1\n"))
    assert names_in(tmp_path) == ordered
    assert ordered == [str(path) for path in sorted(map(Path, ordered), key=natural_key)]
    assert build_index(tmp_path).names == ordered


NAMES = [
    "with space.jsonl",
    "[a].jsonl",
    "#1.jsonl",
    "größe.jsonl",
    "日本.jsonl",
    "a*b?.jsonl",
    "q'\".jsonl",
    "tab\t.jsonl",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_as_they_come(name: str, tmp_path: Path) -> None:
    base = write(tmp_path / f"base {name}", {name: b"1\n", f"sub {name}/{name}": b"22\n"})
    build_index(base)
    index = Index.open(base)
    assert sorted(index.names) == sorted([name, f"sub {name}/{name}"])
    assert sorted(samples_of(index)) == [b"1\n", b"22\n"]
    assert Index.open(build_index(base / name).base / name).paths == [str(base / name)]


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xfe.jsonl")
    write(tmp_path, {name: b"1\n"})
    build_index(tmp_path)
    assert (tmp_path / "index" / "file_location.txt").read_bytes() == b"\xff\xfe.jsonl\n"
    assert samples_of(Index.open(tmp_path)) == [b"1\n"]


@pytest.mark.parametrize("name", ["new\nline.jsonl", "return\r.jsonl", "fold\ner/x.jsonl"])
def test_a_line_break_in_a_name_is_refused_by_name(name: str, tmp_path: Path) -> None:
    write(tmp_path, {"a.jsonl": b"1\n", name: b"2\n"})
    with pytest.raises(OptionError, match="line break") as caught:
        build_index(tmp_path)
    assert repr(name) in str(caught.value)
    assert caught.value.value == name
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**/*.jsonl", ["a.jsonl", "x/b.jsonl", "x/y/c.jsonl"]),
        ("*.jsonl", ["a.jsonl"]),
        ("x/*.jsonl", ["x/b.jsonl"]),
        ("*/*.jsonl", ["x/b.jsonl"]),
        ("x/**/*.jsonl", ["x/b.jsonl", "x/y/c.jsonl"]),
        ("**/y/*", ["x/y/c.jsonl", "x/y/c.txt"]),
        ("**/[ac].*", ["a.jsonl", "x/y/c.jsonl", "x/y/c.txt"]),
        ("x/**", ["x/b.jsonl", "x/y/c.jsonl", "x/y/c.txt"]),
        ("**/**/?.txt", ["x/y/c.txt"]),
        ("**/.hid*/*.jsonl", [".hidden/d.jsonl"]),
        ("**/.*.jsonl", [".e.jsonl"]),
        ("*.JSONL", []),
    ],
)
def test_patterns(pattern: str, expected: list[str], tmp_path: Path) -> None:
    files = ["a.jsonl", "x/b.jsonl", "x/y/c.jsonl", "x/y/c.txt", ".hidden/d.jsonl", ".e.jsonl"]
    write(tmp_path, dict.fromkeys(files, b"1\n"))
    assert names_in(tmp_path, pattern) == expected


def test_the_index_itself_is_not_looked_into(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": b"1\n"})
    (tmp_path / "sub").mkdir()
    for _ in range(2):
        assert build_index(tmp_path, "**/*.txt").names == ["a.txt"]
        assert build_index(tmp_path, "**/*.txt", index_folder="sub/index").names == ["a.txt"]


def test_symbolic_links_inside_the_base(tmp_path: Path) -> None:
    base = write(tmp_path / "base", {"real/a.txt": b"1\n", "real/deep/b.jsonl": b"2\n"})
    (base / "link.jsonl").symlink_to("real/a.txt")
    (base / "folder").symlink_to(base / "real" / "deep")
    (tmp_path / "way").symlink_to(base)
    for place in (base, tmp_path / "way"):
        index = build_index(place)
        assert index.names == ["folder/b.jsonl", "link.jsonl", "real/deep/b.jsonl"]
        assert samples_of(Index.open(place)) == [b"2\n", b"1\n", b"2\n"]


def test_links_in_circles(tmp_path: Path) -> None:
    base = write(tmp_path / "base", {"x/y/a.jsonl": b"1\n"})
    (base / "x" / "up").symlink_to("..")
    (base / "x" / "y" / "self").symlink_to(".")
    (base / "x" / "far").symlink_to(base)
    assert build_index(base).names == ["x/y/a.jsonl"]
    (base / "p.txt").symlink_to("q.txt")
    (base / "q.txt").symlink_to("p.txt")
    assert build_index(base).names == ["x/y/a.jsonl"]
    (base / "p.jsonl").symlink_to("q.jsonl")
    (base / "q.jsonl").symlink_to("p.jsonl")
    with pytest.raises(OSError, match=r"p\.jsonl") as caught:
        build_index(base)
    assert caught.value.errno == errno.ELOOP


def test_what_fits_and_is_no_file(tmp_path: Path) -> None:
    write(tmp_path, {"folder.jsonl/a.jsonl": b"1\n"})
    assert build_index(tmp_path).names == ["folder.jsonl/a.jsonl"]
    (tmp_path / "dangling.jsonl").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match=r"dangling\.jsonl"):
        build_index(tmp_path)
    (tmp_path / "dangling.jsonl").unlink()
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(OSError, match="not a regular file") as caught:
        build_index(tmp_path)
    assert caught.value.filename == str(tmp_path / "pipe.jsonl")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_link_out_of_the_base_is_refused(kind: str, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"secret.jsonl": b"1\n"})
    base = write(tmp_path / "base", {"a.jsonl": b"2\n"})
    target = tmp_path / "elsewhere"
    if kind == "file":
        (base / "b.jsonl").symlink_to(target / "secret.jsonl")
    else:
        (base / "b").symlink_to(target)
    with pytest.raises(OptionError, match="outside") as caught:
        build_index(base)
    assert caught.value.option == "allow_outside"
    index = build_index(base, allow_outside=True)
    assert samples_of(index) == [b"2\n", b"1\n"]
    assert len(Index.open(base, allow_outside=True)) == 2
    for call in (Index.open, update_index):
        with pytest.raises(OptionError, match="outside"):
            call(base)


@pytest.mark.parametrize(
    "listed", ["/etc/hosts", "../elsewhere/a.jsonl", "x/../../elsewhere/a.jsonl", "x/..", "..", "."]
)
def test_a_listed_path_that_leaves_the_base_is_refused(listed: str, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"a.jsonl": b"1\n"})
    base = write(tmp_path / "base", {"x/a.jsonl": b"1\n"})
    (base / "index").mkdir()
    (base / "index" / "file_location.txt").write_text(f"x/a.jsonl\n{listed}\n")
    (base / "index" / "sample_locations.bin").write_bytes(np.array([[1, 0, 2]], "<u8").tobytes())
    with pytest.raises(OptionError, match="outside") as caught:
        Index.open(base)
    assert repr(listed) in str(caught.value)
    index = Index.open(base, allow_outside=True)
    assert os.path.realpath(index.paths[1]) == os.path.realpath(base / listed)


@pytest.mark.parametrize(
    "names",
    [
        ["p1.jsonl", "p2.jsonl", "p10.jsonl", "p010.jsonl", "p02.jsonl"],
        ["p1-of-10", "p2-of-10", "p10-of-10"],
        ["a.1", "a.2", "a.10"],
        ["1", "2", "10", "100"],
        ["x1y1", "x1y2", "x2y1", "x10y1"],
        ["p1.jsonl", "p2.jsonl", "p.jsonl"],
        ["p1.jsonl", "p2.txt", "p10.jsonl"],
        ["p1.jsonl", "p\u0662.jsonl", "p10.jsonl"],
        ["1.jsonl", "11.jsonl", "111.jsonl", "2.jsonl"],
        ["a", "b"],
        ["single7"],
        [],
    ],
)
def test_names_that_differ_in_a_number_are_in_the_order_of_all_others(
    tmp_path: Path, names: list[str]
) -> None:
    for name in names:
        (tmp_path / name).touch()
    expected = sorted(names, key=lambda name: (name_key(name), name))
    assert find_paths(tmp_path, "*") == [str(tmp_path / name) for name in expected]


COMPRESSED = {
    "a.jsonl.gz": gzip.compress,
    "b.jsonl": bz2.compress,
    "c.xz": lzma.compress,
    "d.jsonl": zstandard.compress,
}


@pytest.mark.parametrize("name", COMPRESSED)
@pytest.mark.parametrize("n_bytes", [20, 1 << 20])
def test_compressed_files_are_no_text(name: str, n_bytes: int, tmp_path: Path) -> None:
    data = COMPRESSED[name](np.random.default_rng(0).bytes(n_bytes))
    write(tmp_path, {"0.jsonl": b"1\n", name: data})
    with pytest.raises(ArchiveError, match=r"compressed by .*--lines") as caught:
        build_index(tmp_path, "**/*")
    assert caught.value.file == tmp_path / name
    assert not (tmp_path / "index").exists()
    with pytest.raises(ArchiveError, match="compressed by"):
        build_index(tmp_path / name)


def test_new_files_that_are_compressed_are_not_taken(tmp_path: Path) -> None:
    write(tmp_path, {"0.jsonl": b"1\n"})
    build_index(tmp_path)
    write(tmp_path, {"1.jsonl": gzip.compress(b"2\n")})
    with pytest.raises(ArchiveError, match=r"1\.jsonl: compressed by gzip"):
        update_index(tmp_path)
    write(tmp_path, {"1.jsonl": b"PK\x03\x04 and so on\n"})
    with pytest.raises(ArchiveError, match=r"1\.jsonl: a zip file"):
        update_index(tmp_path)
    assert len(Index.open(tmp_path)) == 1


def test_text_that_begins_nearly_as_compressed_files_do(tmp_path: Path) -> None:
    texts = [b"BZh9 is no bzip2\n", b"(\xb5/ 1\n", b"\x1f\n", b"PK\n", b"P*M\n", b"[1]\n"]
    write(tmp_path, {f"{number}.jsonl": text for number, text in enumerate(texts)})
    assert samples_of(build_index(tmp_path)) == texts


def test_a_store_needs_no_index(tmp_path: Path) -> None:
    write_line_store(tmp_path / "lines.zr", [b"1"])
    with pytest.raises(OptionError, match="a store of lines needs no index"):
        build_index(tmp_path / "lines.zr")
