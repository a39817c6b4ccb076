"""Which files paths and patterns name, and how much is looked at for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from loaderx.errors import OptionError
from loaderx.stream.braces import expand_braces
from loaderx.stream.paths import list_files
from loaderx.stream.stream import Stream


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a folder with files in folders."""
    for name in (
        "part2.jsonl",
        "part10.jsonl",
        "part1.jsonl",
        "other.txt",
        ".hidden.jsonl",
        "a/x1.jsonl",
        "a/b/x2.jsonl",
        "a[1]/y.jsonl",
        "a1/z.jsonl",
        ".git/w.jsonl",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"1\n")
    return tmp_path


def names(tree: Path, paths: Any) -> list[str]:
    return [os.path.relpath(path, tree) for path in list_files(paths)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.jsonl", ["part1.jsonl", "part2.jsonl", "part10.jsonl"]),
        ("part?.jsonl", ["part1.jsonl", "part2.jsonl"]),
        ("part[12]*.jsonl", ["part1.jsonl", "part2.jsonl", "part10.jsonl"]),
        ("a/**/*.jsonl", ["a/b/x2.jsonl", "a/x1.jsonl"]),
        ("a[1]/*.jsonl", ["a[1]/y.jsonl"]),
        ("a[1]/y.jsonl", ["a[1]/y.jsonl"]),
        ("*/y.jsonl", ["a[1]/y.jsonl"]),
        ("a[0-9]/*", ["a1/z.jsonl"]),
        (".hidden*", [".hidden.jsonl"]),
        ("part2.jsonl", ["part2.jsonl"]),
    ],
)
def test_patterns(tree: Path, pattern: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(tree, tree / pattern) == expected
    assert names(tree, str(tree / pattern)) == expected
    monkeypatch.chdir(tree)
    assert names(tree, pattern) == expected
    assert names(tree, [pattern, "other.txt"]) == [*expected, "other.txt"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x-{0..2}.tar", ["x-0.tar", "x-1.tar", "x-2.tar"]),
        ("{008..011}", ["008", "009", "010", "011"]),
        ("{8..011}", ["008", "009", "010", "011"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{0..10..4}", ["0", "4", "8"]),
        ("{9..0..-4}", ["9", "5", "1"]),
        ("{a,b}/{1..2}", ["a/1", "a/2", "b/1", "b/2"]),
        ("{train-{0..1},test}.x", ["train-0.x", "train-1.x", "test.x"]),
        ("x{,.gz}", ["x", "x.gz"]),
        ("{a}", ["{a}"]),
        ("{a{1,2}}", ["{a1}", "{a2}"]),
        ("{}{1..", ["{}{1.."]),
        ("a}{b,c", ["a}{b,c"]),
        ("plain", ["plain"]),
    ],
)
def test_braces(text: str, expected: list[str]) -> None:
    assert expand_braces(text) == expected


def test_braces_in_paths(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    assert names(tree, "part{1..2}.jsonl") == ["part1.jsonl", "part2.jsonl"]
    # In the order in which they are written, and patterns as well; files of a list need not be there.
    assert names(tree, ["{part10,gone}.jsonl", "{a1/*,part?.jsonl}"]) == [
        "part10.jsonl",
        "gone.jsonl",
        "a1/z.jsonl",
        "part1.jsonl",
        "part2.jsonl",
    ]
    assert list(Stream.from_jsonl(str(tree / "part{1,2}.jsonl"))) == [1, 1]
    # What is there as it is written is no pattern.
    for name in ("{x,y}.jsonl", "{u,v}/part1.jsonl", "{u,v}/part2.jsonl"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_bytes(b"1\n")
    assert names(tree, "{x,y}.jsonl") == ["{x,y}.jsonl"]
    assert names(tree, "{u,v}/part{1,2}.jsonl") == ["{u,v}/part1.jsonl", "{u,v}/part2.jsonl"]
    assert names(tree, "{u,v}/*") == ["{u,v}/part1.jsonl", "{u,v}/part2.jsonl"]
    with pytest.raises(FileNotFoundError, match=r"\{z\}"):
        list_files("{z}.jsonl")
    with pytest.raises(OptionError, match=r"stands for 100,000,000 names: give fewer"):
        list_files("{0..9999}{0..9999}")
    with pytest.raises(OptionError, match="names: give fewer than 10,000,000"):
        list_files("{0..99999999999999}")


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (None, "paths is None: give a path, a pattern, or a list of them"),
        (3, "paths is 3: give a path"),
        (b"a.jsonl", "paths is b'a.jsonl': give a path"),
        ([3], "a path is 3: name a file"),
        ([None], "a path is None: name a file"),
        (
            {"train": "a.jsonl", "test": "b.jsonl"},
            "paths is a dict of 'train', 'test': give the paths that one",
        ),
        ({"a.jsonl", "b.jsonl"}, "paths is a set, whose order is another one in each process"),
        ([], "paths is empty"),
        ("/a\0b", r"a path is '/a\\x00b', and no file has a name with a NUL in it"),
        (["/a*\0b"], r"a path is '/a\*\\x00b', and no file has a name with a NUL in it"),
        (["a\ud800"], r"a path is 'a\\ud800', and no file has a name with half of a surrogate pair in it"),
    ],
)
def test_what_is_no_paths(paths: Any, message: str) -> None:
    makers = [Stream.from_jsonl, Stream.from_text, Stream.from_webdataset]
    for make in makers:
        with pytest.raises(OptionError, match=message):
            make(paths)


@pytest.mark.needs_pyarrow
def test_what_is_no_paths_of_arrow(tree: Path) -> None:
    for paths in (None, 3, b"x", {"train": "a"}, {"a", "b"}, []):
        with pytest.raises(OptionError, match=r"^paths is"):
            Stream.from_parquet(paths)
        with pytest.raises(OptionError, match=r"^sources is"):
            Stream.from_arrow(paths)


def test_a_folder_says_what_its_files_may_be_called(tree: Path) -> None:
    for make, usual in (
        (Stream.from_jsonl, r"a/\*\.jsonl"),
        (Stream.from_text, r"a/\*\.txt"),
        (Stream.from_webdataset, r"a/\*\.tar"),
    ):
        with pytest.raises(OptionError, match=usual):
            make(tree / "a")


@pytest.mark.needs_pyarrow
def test_a_folder_of_arrow(tree: Path) -> None:
    for make, usual in ((Stream.from_parquet, r"a/\*\.parquet"), (Stream.from_arrow, r"a/\*\.arrow")):
        with pytest.raises(OptionError, match=usual):
            make(tree / "a")


def test_everything_in_natural_order_but_what_is_hidden(tree: Path) -> None:
    found = names(tree, tree / "**" / "*.jsonl")
    assert sorted(found) == sorted(
        [
            "part1.jsonl",
            "part2.jsonl",
            "part10.jsonl",
            "a/x1.jsonl",
            "a/b/x2.jsonl",
            "a[1]/y.jsonl",
            "a1/z.jsonl",
        ]
    )
    assert found.index("part2.jsonl") < found.index("part10.jsonl")


def test_a_bracket_that_is_a_letter_and_one_that_is_a_pattern(tmp_path: Path) -> None:
    for name in ("x[12]", "x1", "x2"):
        (tmp_path / "deep" / name).mkdir(parents=True)
        (tmp_path / "deep" / name / "f.jsonl").touch()
    # Behind a star nothing says which is meant: both fit.
    assert names(tmp_path, tmp_path / "*" / "x[12]" / "f.jsonl") == [
        "deep/x1/f.jsonl",
        "deep/x2/f.jsonl",
        "deep/x[12]/f.jsonl",
    ]
    # What is there as it is written is no pattern.
    assert names(tmp_path, tmp_path / "deep" / "x[12]" / "*") == ["deep/x[12]/f.jsonl"]


def test_no_more_folders_are_listed_than_have_to_be(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = []
    real = os.scandir

    def spy(path: Any) -> Any:
        listed.append(os.path.relpath(path, tree))
        return real(path)

    monkeypatch.setattr(os, "scandir", spy)
    list_files(tree / "a[1]" / "*.jsonl")
    assert listed == ["a[1]"]
    listed.clear()
    list_files(tree / "*.jsonl")
    assert listed == ["."]
    listed.clear()
    list_files(tree / "a*" / "x*.jsonl")
    assert sorted(listed) == [".", "a", "a1", "a[1]"]
    listed.clear()
    list_files([tree / "part1.jsonl", tree / "part2.jsonl"])
    assert listed == []


def test_what_names_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match=r"no file fits that: .* was looked through for \*\.parquet"):
        list_files(tree / "*.parquet")
    with pytest.raises(OptionError, match=r"there is no folder .*nope"):
        list_files(tree / "nope" / "*.jsonl")
    with pytest.raises(OptionError, match=r"a folder: say which files of it, such as .*\*\.jsonl"):
        list_files(tree / "a")
    with pytest.raises(FileNotFoundError, match="nope"):
        list_files(tree / "nope.jsonl")
    with pytest.raises(OptionError, match="a path is ''"):
        list_files("")
    with pytest.raises(OptionError, match="a path is b'x'"):
        list_files([b"x"])  # type: ignore[list-item]
    for nothing in ([], (tree / "nope.jsonl" for _ in range(0))):
        with pytest.raises(OptionError, match="paths is empty: name at least one file"):
            list_files(nothing)


def test_links(tree: Path) -> None:
    (tree / "link.jsonl").symlink_to(tree / "part1.jsonl")
    (tree / "a" / "loop").symlink_to(tree)
    assert "link.jsonl" in names(tree, tree / "*.jsonl")
    assert names(tree, tree / "a" / "**" / "x*.jsonl") == ["a/b/x2.jsonl", "a/x1.jsonl"]
    (tree / "broken.jsonl").symlink_to(tree / "gone")
    with pytest.raises(FileNotFoundError, match=r"broken\.jsonl"):
        list_files(tree / "*.jsonl")
    (tree / "broken.jsonl").unlink()
    os.mkfifo(tree / "pipe.jsonl")
    with pytest.raises(OSError, match="not a regular file"):
        list_files(tree / "*.jsonl")


def test_a_path_stays_right_in_another_directory(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    stream = Stream.from_jsonl("part*.jsonl")
    monkeypatch.chdir("/")
    assert list(stream) == [1, 1, 1]


class Elsewhere(type(Path())):  # type: ignore[misc]
    """A path that is shown in another way than it is opened, as those of other libraries are."""

    def __str__(self) -> str:
        return f"memory:{os.path.basename(os.fspath(self))}"

    def __fspath__(self) -> str:
        return "/".join(self.parts).removeprefix("/")


def test_a_list_of_whatever_names_a_path(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    single: list[Any] = [
        Path("part2.jsonl"),
        "part1.jsonl",
        tree / "part10.jsonl",
        Elsewhere(tree / "part2.jsonl"),
    ]
    expected = [str(tree / f"part{n}.jsonl") for n in (2, 1, 10, 2)]
    assert list_files(single) == expected
    assert list_files(iter(single[:3])) == expected[:3]
    # One that is a pattern changes nothing for the others.
    assert list_files([*single, "part1?.jsonl"]) == [*expected, str(tree / "part10.jsonl")]
    with pytest.raises(OptionError, match="paths is empty"):
        list_files([])
    for wrong in ("", b"part1.jsonl"):
        with pytest.raises(OptionError, match="name a file, or a pattern"):
            list_files(["part1.jsonl", wrong])  # type: ignore[list-item]


def test_ten_thousand_files_are_not_opened_for_the_first_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(10_000):
        os.close(os.open(tmp_path / f"{i:05}.jsonl", os.O_CREAT | os.O_WRONLY))
    (tmp_path / "00000.jsonl").write_bytes(b"1\n")
    looked_at = []
    real = os.stat

    def spy(path: Any, *args: Any, **kwargs: Any) -> Any:
        looked_at.append(path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", spy)
    iterator = iter(Stream.from_jsonl(tmp_path / "*.jsonl"))
    assert next(iterator) == 1
    assert len(looked_at) < 20
