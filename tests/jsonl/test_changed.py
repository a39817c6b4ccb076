"""Files that change after they were indexed: what is trusted, what is refused, and what is indexed further."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from loaderx.errors import NotAnIndexError, StaleIndexError, StaleIndexWarning
from loaderx.jsonl import (
    ByteRangeDataset,
    Index,
    JsonlDataset,
    TextLinesDataset,
    build_index,
    scan,
    update_index,
)
from tests.jsonl.oracle import lines_of, rows_of
from tests.jsonl.samples import bytes_below, samples_of, write

LARGE = b"".join(b'{"line": %d}\n' % i for i in range(60_000))  # more than a fingerprint looks at


def touch(path: Path, by_ns: int = 10**9) -> None:
    now = os.stat(path)
    os.utime(path, ns=(now.st_atime_ns, now.st_mtime_ns + by_ns))


def rewrite(path: Path, data: bytes) -> None:
    """Give a file other bytes and another time of change."""
    path.write_bytes(data)
    touch(path)


def test_another_time_and_the_same_bytes(tmp_path: Path) -> None:
    base = write(tmp_path, [b"1\n2\n", LARGE, b""])
    build_index(base)
    for name in ("0.jsonl", "1.jsonl", "2.jsonl"):
        touch(base / name)
    assert len(Index.open(base)) == 60_002


def test_the_same_size_and_time_are_trusted(tmp_path: Path) -> None:
    base = write(tmp_path, [b"1\n2\n"])
    build_index(base)
    before = os.stat(base / "0.jsonl")
    (base / "0.jsonl").write_bytes(b"3\n4\n")
    os.utime(base / "0.jsonl", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert samples_of(Index.open(base)) == [b"3\n", b"4\n"]


def change(data: bytes, at: int) -> bytes:
    return data[:at] + b"?" + data[at + 1 :]


CHANGES = {
    "small": (b"1\n2\n", b"1\n3\n", "other bytes"),
    "first": (LARGE, change(LARGE, 0), "other bytes"),
    "last": (LARGE, change(LARGE, len(LARGE) - 1), "other bytes"),
    "all": (LARGE, LARGE[::-1], "other bytes"),
    "shrunk": (b"1\n2\n", b"1\n", "it has 2 bytes, and had 4"),
    "emptied": (LARGE, b"", "it has 0 bytes"),
    "grown_otherwise": (b"1\n2\n", b"1\n3\n4\n", "other bytes"),
    "large_grown_otherwise": (LARGE, b"x" * (len(LARGE) + 5), "other bytes"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_changed_file_is_named(kind: str, tmp_path: Path) -> None:
    before, after, words = CHANGES[kind]
    base = write(tmp_path, [b"0\n", before])
    build_index(base)
    rewrite(base / "1.jsonl", after)
    for call in (Index.open, update_index):
        with pytest.raises(StaleIndexError, match=words) as caught:
            call(base)
        assert caught.value.file == base / "1.jsonl"
        assert str(base / "1.jsonl") in str(caught.value) and "build" in str(caught.value)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.file, again.reason, str(again)) == (
            caught.value.file,
            caught.value.reason,
            str(caught.value),
        )
    assert len(Index.open(base, check=False)) > 0
    assert build_index(base).locations.tolist() == rows_of([b"0\n", after])


@pytest.mark.parametrize("instead", ["nothing", "folder", "no folder"])
def test_a_file_that_is_gone(instead: str, tmp_path: Path) -> None:
    base = write(tmp_path, {"a.jsonl": b"1\n", "sub/b.jsonl": b"2\n"})
    build_index(base)
    (base / "sub" / "b.jsonl").unlink()
    if instead == "folder":
        (base / "sub" / "b.jsonl").mkdir()
    elif instead == "no folder":
        (base / "sub").rmdir()
        (base / "sub").write_bytes(b"")
    for call in (Index.open, update_index):
        with pytest.raises(StaleIndexError, match="any more") as caught:
            call(base)
        assert caught.value.file == base / "sub" / "b.jsonl"


def test_what_only_grew_is_warned_of(tmp_path: Path) -> None:
    base = write(tmp_path, [b"1\n", LARGE, b"  "])
    build_index(base)
    rewrite(base / "0.jsonl", b"1\n2\n")
    rewrite(base / "1.jsonl", LARGE + b"x\n")
    rewrite(base / "2.jsonl", b"  \n1\n")  # its last line had no end, but no text either
    with pytest.warns(StaleIndexWarning, match=r"0\.jsonl and 2 more files: grown .* update_index") as caught:
        index = Index.open(base)
    assert caught[0].filename == __file__
    for call in (JsonlDataset, TextLinesDataset, ByteRangeDataset):
        with pytest.warns(StaleIndexWarning) as caught:
            dataset = call(base)
        assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(StaleIndexWarning) as caught:
        dataset.__reduce__()[0](*dataset.__reduce__()[1])
    assert [warning.filename for warning in caught] == [__file__]
    assert index.grown == [str(base / f"{i}.jsonl") for i in range(3)]
    assert index.locations.tolist() == rows_of([b"1\n", LARGE, b""])
    assert Index.open(base, check=False).grown == []


def test_a_line_that_went_on_is_an_error(tmp_path: Path) -> None:
    base = write(tmp_path, [b"1\n", b"2\n3"])
    build_index(base)
    rewrite(base / "1.jsonl", b"2\n34\n")
    with pytest.raises(StaleIndexError, match="had no end when it was indexed") as caught:
        Index.open(base)
    assert caught.value.file == base / "1.jsonl"
    assert samples_of(update_index(base)) == [b"1\n", b"2\n", b"34\n"]


def same_as_built(index: Index) -> None:
    """Check that an index holds each line of its files once, and what it says of the files is what a new one says."""
    texts = [Path(path).read_bytes() for path in index.paths]
    assert sorted(index.locations.tolist()) == rows_of(texts)
    fresh = build_index(index.base, index_folder="fresh")
    held = dict(zip(index.names, index.facts.files, strict=True))  # type: ignore[union-attr]
    for name, facts in zip(fresh.names, fresh.facts.files, strict=True):  # type: ignore[union-attr]
        assert held[name]._replace(unfinished_sample=None) == facts._replace(unfinished_sample=None)
        assert (held[name].unfinished_sample is None) == (facts.unfinished_sample is None)
        if held[name].unfinished_sample is not None:
            file, at, size = index.locations[held[name].unfinished_sample].tolist()
            assert (index.names[file], at, size) == (
                name,
                facts.indexed_bytes,
                facts.size - facts.indexed_bytes,
            )


def test_what_was_added_goes_to_the_end(tmp_path: Path) -> None:
    base = write(tmp_path, {"1.jsonl": b"a\nb", "2.jsonl": b"c\n", "3.jsonl": b"d\n  "})
    old = build_index(base)
    before = old.locations.tolist()
    rewrite(base / "1.jsonl", b"a\nbb\ne\n")
    rewrite(base / "2.jsonl", b"c\n\nf\n")
    rewrite(base / "3.jsonl", b"d\n  g\nh")
    write(base, {"0.jsonl": b"i\n", "sub/4.jsonl": b"", "x.txt": b"no\n"})
    told: list[tuple[int, int | None]] = []
    index = update_index(base, progress=lambda done, total: told.append((done, total)))
    assert index.names == ["1.jsonl", "2.jsonl", "3.jsonl", "0.jsonl", "sub/4.jsonl"]
    assert samples_of(index) == [b"a\n", b"bb\n", b"c\n", b"d\n", b"e\n", b"f\n", b"  g\n", b"h", b"i\n"]
    new = index.locations.tolist()
    assert new[:1] + new[2:4] == before[:1] + before[2:4]  # all but the line that went on
    assert told[-1] == (5 + 3 + 5 + 2, 15)
    same_as_built(index)
    assert Index.open(base).unfinished == [str(base / "3.jsonl")]


@pytest.mark.parametrize("threads", [1, 3])
def test_files_that_grow_byte_by_byte(threads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scan, "PIECE_BYTES", 5)
    text = b'\xef\xbb\xbf{"a": 1}\r\n\n  \t\n {"b": 2}\n\n{"c": 3}'
    base = write(tmp_path, [b"first\n", text[:4], b"last"])
    index = build_index(base, threads=threads)
    for end in range(5, len(text) + 1):
        rewrite(base / "1.jsonl", text[:end])
        held = samples_of(index)
        index = update_index(base, threads=threads)
        now = samples_of(index)
        assert [new.startswith(old) for old, new in zip(held, now, strict=False)] == [True] * len(held)
        assert sorted(index.locations.tolist()) == rows_of([b"first\n", text[:end], b"last"])
    same_as_built(index)


def test_random_growth(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    texts: dict[str, bytes] = {"a.jsonl": b"", "b.jsonl": b"x"}
    base = write(tmp_path, texts)
    index = build_index(base)
    for step in range(40):
        for name in list(texts):
            if rng.random() < 0.5:
                texts[name] += rng.choice(
                    np.frombuffer(b"abc \n\n\r", np.uint8), rng.integers(1, 30)
                ).tobytes()
                rewrite(base / name, texts[name])
        if rng.random() < 0.2:
            texts[f"new{step}.jsonl"] = b"y\n"
            write(base, {f"new{step}.jsonl": b"y\n"})
        held = index.locations.tolist()
        index = update_index(base)
        now = index.locations.tolist()
        assert [row[:2] for row in now[: len(held)]] == [row[:2] for row in held]
        expected = [lines_of(texts[name]) for name in index.names]
        assert sorted(now) == [[i, at, n] for i, found in enumerate(expected) for at, n in found]
    same_as_built(index)
    assert len(index) > 100


def test_nothing_added_changes_nothing(tmp_path: Path) -> None:
    base = write(tmp_path, [b"1\n", b"2"])
    build_index(base)
    before, inode = bytes_below(base), os.stat(base / "index").st_ino
    update_index(base)
    assert bytes_below(base) == before and os.stat(base / "index").st_ino == inode
    touch(base / "0.jsonl")
    facts = update_index(base).facts
    assert facts is not None
    assert facts.files[0].mtime_ns == os.stat(base / "0.jsonl").st_mtime_ns
    assert samples_of(Index.open(base)) == [b"1\n", b"2"]


def test_the_pattern_and_the_single_file_are_kept(tmp_path: Path) -> None:
    base = write(tmp_path, {"a.txt": b"1\n", "b.jsonl": b"2\n"})
    build_index(base, "*.txt")
    build_index(base / "b.jsonl")
    write(base, {"c.txt": b"3\n", "d.jsonl": b"4\n"})
    rewrite(base / "b.jsonl", b"2\n5\n")
    assert samples_of(update_index(base)) == [b"1\n", b"3\n"]
    assert samples_of(update_index(base / "b.jsonl")) == [b"2\n", b"5\n"]


def test_a_file_that_is_all_blank_after_a_mark(tmp_path: Path) -> None:
    base = write(tmp_path, [b"\xef"])
    assert len(build_index(base)) == 1
    rewrite(base / "0.jsonl", b"\xef\xbb\xbf\n")
    with pytest.raises(StaleIndexError, match="blank now"):
        update_index(base)
    assert len(build_index(base)) == 0


def test_another_programs_index_cannot_be_updated(tmp_path: Path) -> None:
    base = write(tmp_path, [b"1\n"])
    with pytest.raises(NotAnIndexError, match="no index"):
        update_index(base)
    build_index(base)
    (base / "index" / "index.json").unlink()
    with pytest.raises(NotAnIndexError, match="another program's") as caught:
        update_index(base)
    assert caught.value.path == base / "index"


@pytest.mark.parametrize("small", [True, False])
def test_a_file_that_changes_while_it_is_indexed(
    small: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not small:
        monkeypatch.setattr(scan, "PIECE_BYTES", 4)
    base = write(tmp_path, [b"1\n2\n3\n4\n"])
    found = scan.find_lines([scan.Todo(0, str(base / "0.jsonl"), 0, 100)], 1)
    with pytest.raises(StaleIndexError, match="changed while it was indexed") as caught:
        list(found)
    assert caught.value.file == base / "0.jsonl"
    found = scan.find_lines(
        [scan.Todo(0, str(base / "0.jsonl"), 0, 6)], 1
    )  # it has grown since it was listed
    assert sum(len(lines.rows) for lines in found) == 3 * 24


def test_a_large_file_that_is_written_over_meanwhile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scan, "PIECE_BYTES", 4)
    base = write(tmp_path, [b"1\n2\n3\n4\n"])
    found = scan.find_lines([scan.Todo(0, str(base / "0.jsonl"), 0, 8)], 1)
    next(found)
    rewrite(base / "0.jsonl", b"5\n6\n7\n8\n")
    with pytest.raises(StaleIndexError, match="changed while it was indexed"):
        list(found)
    found = scan.find_lines([scan.Todo(0, str(base / "0.jsonl"), 0, 8)], 1)
    next(found)
    rewrite(base / "0.jsonl", b"5\n6\n7\n8\n9\n")
    assert sum(len(lines.rows) for lines in found) == 2 * 24
