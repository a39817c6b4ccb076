"""JSONL and text files as sources."""

from __future__ import annotations

import itertools
import json
import operator
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from loaderx.errors import ArchiveError, JsonlError, OptionError, StateMismatchError, StreamError
from loaderx.stream.stream import Stream
from tests.stream.source_kit import COMPRESS, check_resume, check_source, json_lines, write_texts

ITEMS = [[{"n": 1, "text": "a"}, {"n": 2, "text": "ü\u2028"}, 3], [], ["x" * 50, None, [1]], [{"n": 9}]]
TEXTS = [
    b"\xef\xbb\xbf" + json_lines(ITEMS[0]),
    b"",
    b"\n \t\r\n" + json_lines(ITEMS[2]).replace(b"\n", b"\r\n") + b"\n\n",
    json.dumps(ITEMS[3][0]).encode(),
]
EXPECTED = [item for items in ITEMS for item in items]


def skipped(iterator: Any) -> int:
    return iterator.state_dict()["position"]["skipped"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_lines_are_read_and_resumed(tmp_path: Path, suffix: str) -> None:
    paths = write_texts(tmp_path, TEXTS, suffix)
    check_source(lambda: Stream.from_jsonl(paths), EXPECTED)


@pytest.mark.parametrize("parse", ["json", "orjson", json.loads, lambda line: json.loads(line)])
def test_every_parser_gives_the_same(tmp_path: Path, parse: Any) -> None:
    paths = write_texts(tmp_path, TEXTS)
    check_source(lambda: Stream.from_jsonl(paths, parse=parse), EXPECTED)


def test_a_function_gets_lines_without_their_ends(tmp_path: Path) -> None:
    paths = write_texts(tmp_path, [b"\xef\xbb\xbfa\r\nb\r\r\n\n\x0c\n c"])
    check_source(lambda: Stream.from_jsonl(paths, parse=bytes), [b"a", b"b\r", b"\x0c", b" c"])


@pytest.mark.parametrize("suffix", COMPRESS)
def test_text_is_str(tmp_path: Path, suffix: str) -> None:
    paths = write_texts(tmp_path, ["one\r\n\n zwei ü\n".encode(), b"", b"\t\r\nthree\x85"], suffix)
    check_source(lambda: Stream.from_text(paths, encoding="latin-1"), ["one", " zwei Ã¼", "three\x85"])


def test_text_of_another_encoding(tmp_path: Path) -> None:
    paths = write_texts(tmp_path, [b"a\n\xff\nb"])
    with pytest.raises(
        JsonlError, match=r"line 2 \(byte 2\).*xff.*Say its encoding, which is not utf-8, by encoding="
    ) as caught:
        list(Stream.from_text(paths))
    assert isinstance(caught.value.__cause__, UnicodeDecodeError)
    check_source(lambda: Stream.from_text(paths, on_error="skip"), ["a", "b"])
    with pytest.raises(OptionError, match="encoding is 'utf-16'"):
        Stream.from_text(paths, encoding="utf-16")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_line_longer_than_any_block(tmp_path: Path, suffix: str) -> None:
    long = "x" * 3_000_000
    paths = write_texts(tmp_path, [json_lines(["a", long, "b"]), json_lines([long])], suffix)
    assert check_resume(lambda: Stream.from_jsonl(paths).shuffle(2)) != []
    assert check_resume(lambda: Stream.from_jsonl(paths)) == ["a", long, "b", long]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_many_blocks(tmp_path: Path, suffix: str) -> None:
    items = [{"n": i, "pad": "y" * (i % 97)} for i in range(20_000)]
    paths = write_texts(tmp_path, [json_lines(items[:15_000]), json_lines(items[15_000:])], suffix)
    iterator = iter(Stream.from_jsonl(paths))
    states = {}
    for i, item in enumerate(items):
        if i % 1_999 == 0:
            states[i] = json.dumps(iterator.state_dict())
        assert next(iterator) == item
    for i, state in states.items():
        resumed = iter(Stream.from_jsonl(paths))
        resumed.load_state_dict(json.loads(state))
        assert list(resumed) == items[i:]


class TestBadLines:
    TEXT = b'1\n{"n": 2\n\n3\nnope\n4'

    def test_raised_with_the_place_and_gone_on_behind(self, tmp_path: Path) -> None:
        [path] = write_texts(tmp_path, [self.TEXT])
        iterator = iter(Stream.from_jsonl(path))
        assert next(iterator) == 1
        with pytest.raises(JsonlError) as caught:
            next(iterator)
        error = caught.value
        assert (error.file, error.line_number, error.byte_offset, error.index) == (path, 2, 2, None)
        assert error.excerpt == '{"n": 2'
        assert str(error).startswith(f"{path}: line 2 (byte 2) does not parse: ")
        assert error.__cause__ is not None
        state = json.dumps(iterator.state_dict())
        assert next(iterator) == 3
        with pytest.raises(JsonlError, match=r"line 5 \(byte 13\).*nope"):
            next(iterator)
        assert list(iterator) == [4]
        assert skipped(iterator) == 0
        resumed = iter(Stream.from_jsonl(path, on_error="skip"))
        resumed.load_state_dict(json.loads(state))
        assert list(resumed) == [3, 4]

    @pytest.mark.parametrize("suffix", [".gz", ".zst"])
    def test_the_place_in_compressed_text(self, tmp_path: Path, suffix: str) -> None:
        [path] = write_texts(tmp_path, [b"1\n" * 700_000 + b"nope\n2\n"], suffix)
        iterator = iter(Stream.from_jsonl(path))
        for _ in range(700_000):
            next(iterator)
        with pytest.raises(JsonlError, match=r"line 700001 \(byte 1400000\)"):
            next(iterator)
        assert list(iterator) == [2]

    @pytest.mark.parametrize("parse", [None, "json", json.loads])
    def test_skipped_and_counted_over_a_resume(self, tmp_path: Path, parse: Any) -> None:
        paths = write_texts(tmp_path, [self.TEXT, b"nope", self.TEXT])
        check_source(lambda: Stream.from_jsonl(paths, parse=parse, on_error="skip"), [1, 3, 4, 1, 3, 4])
        iterator = iter(Stream.from_jsonl(paths, on_error="skip"))
        for _ in range(4):
            next(iterator)
        state = iterator.state_dict()
        assert skipped(iterator) == 3
        resumed = iter(Stream.from_jsonl(paths, on_error="skip"))
        resumed.load_state_dict(json.loads(json.dumps(state)))
        assert list(resumed) == [3, 4]
        assert skipped(resumed) == 5

    def test_replaced_by_what_a_function_returns(self, tmp_path: Path) -> None:
        paths = write_texts(tmp_path, [self.TEXT, b"nope"])
        attribute = operator.attrgetter("line_number")
        check_source(lambda: Stream.from_jsonl(paths, on_error=attribute), [1, 2, 3, 5, 4, 1])
        iterator = iter(Stream.from_jsonl(paths, on_error=attribute))
        list(iterator)
        assert skipped(iterator) == 3

    def test_a_function_that_raises(self, tmp_path: Path) -> None:
        [path] = write_texts(tmp_path, [self.TEXT])

        def refuse(error: JsonlError) -> Any:
            raise KeyError(error.line_number)

        iterator = iter(Stream.from_jsonl(path, on_error=refuse))
        next(iterator)
        with pytest.raises(KeyError, match="2"):
            next(iterator)
        assert next(iterator) == 3

    def test_a_parser_that_raises_stop_iteration(self, tmp_path: Path) -> None:
        [path] = write_texts(tmp_path, [b"1\n2\n"])

        def parse(line: bytes) -> int:
            if line == b"2":
                raise StopIteration
            return int(line)

        iterator = iter(Stream.from_jsonl(path, parse=parse))
        assert next(iterator) == 1
        with pytest.raises(JsonlError, match="parse raised StopIteration"):
            next(iterator)
        assert list(iterator) == []

    def test_turns_are_the_same_where_bad_lines_are_skipped_later(self, tmp_path: Path) -> None:
        paths = write_texts(tmp_path, [b"1\nnope\n2\n3\n", b"11\n12\n13\n", b"21\n22\n"])
        expected = list(Stream.from_jsonl(paths, on_error="skip").shuffle(1))
        iterator = iter(Stream.from_jsonl(paths).shuffle(1))
        found = []
        while True:
            try:
                found.append(next(iterator))
            except JsonlError:
                continue
            except StopIteration:
                break
        assert found == expected

    def test_on_error_is_checked(self) -> None:
        with pytest.raises(OptionError, match="on_error is 'ignore': choose one of raise, skip"):
            Stream.from_jsonl(["a.jsonl"], on_error="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("paths", [["empty"], ["empty", "empty2", "blank"]])
def test_nothing_to_read(tmp_path: Path, paths: list[str]) -> None:
    for path in paths:
        (tmp_path / path).write_bytes(b"\n \n" if path == "blank" else b"")
    check_source(lambda: Stream.from_jsonl([tmp_path / path for path in paths]), [])


@pytest.mark.parametrize(("suffix", "problem"), [(".gz", "cut off"), (".xz", "cut off"), (".zst", "cut off")])
def test_an_archive_that_is_cut_off(tmp_path: Path, suffix: str, problem: str) -> None:
    lines = [os.urandom(500).hex() for _ in range(800)]
    [path] = write_texts(tmp_path, [json_lines(lines)], suffix)
    path.write_bytes(path.read_bytes()[:-1_000])
    iterator = iter(Stream.from_jsonl(path))
    found = []
    with pytest.raises(ArchiveError) as caught:
        found.extend(iterator)
    assert (caught.value.file, caught.value.problem) == (path, problem)
    assert len(found) > 400
    assert found == lines[: len(found)]
    assert list(iterator) == []


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    paths = write_texts(tmp_path, [b"1\n", b"2\n"])
    stream = Stream.from_jsonl(paths)
    iterator = iter(stream)
    assert next(iterator) == 1
    paths[1].rename(tmp_path / "aside")
    state = iterator.state_dict()
    with pytest.raises(FileNotFoundError, match="part1"):
        next(iterator)
    (tmp_path / "aside").rename(paths[1])
    assert list(iterator) == []
    iterator.load_state_dict(state)
    assert list(iterator) == [2]


class TestChangedFiles:
    def saved(self, paths: list[Path], n: int = 2) -> dict[str, Any]:
        iterator = iter(Stream.from_jsonl(paths))
        for _ in range(n):
            next(iterator)
        return iterator.state_dict()

    def test_the_open_one(self, tmp_path: Path) -> None:
        paths = write_texts(tmp_path, [b"1\n2\n3\n", b"4\n"])
        state = self.saved(paths)
        paths[0].write_bytes(b"1\n2\n9\n")
        resumed = iter(Stream.from_jsonl(paths))
        with pytest.raises(
            StateMismatchError, match=r"part0.*has changed since: it measured 6 bytes, "
        ) as caught:
            resumed.load_state_dict(state)
        saved, here = caught.value.mismatches[str(paths[0])]
        assert saved != here
        assert next(resumed) == 1  # it stays where it was

    def test_one_that_has_ended(self, tmp_path: Path) -> None:
        paths = write_texts(tmp_path, [b"1\n2\n", b"3\n4\n"])
        state = self.saved(paths, 3)
        paths[0].write_bytes(b"1\n2\n3\n")
        with pytest.raises(
            StateMismatchError, match="has read to its end a shard that has changed since"
        ) as caught:
            iter(Stream.from_jsonl(paths)).load_state_dict(state)
        assert set(caught.value.mismatches) == {"shards"}

    def test_one_that_comes_later_may_change(self, tmp_path: Path) -> None:
        paths = write_texts(tmp_path, [b"1\n2\n", b"3\n"])
        state = self.saved(paths, 1)
        paths[1].write_bytes(b"3\n4\n")
        resumed = iter(Stream.from_jsonl(paths))
        resumed.load_state_dict(state)
        assert list(resumed) == [2, 3, 4]

    @pytest.mark.parametrize("change", ["fewer", "more", "order", "name"])
    def test_the_list(self, tmp_path: Path, change: str) -> None:
        paths = write_texts(tmp_path, [b"1\n2\n", b"3\n"])
        state = self.saved(paths, 1)
        if change == "name":
            paths = [paths[0], paths[1].rename(tmp_path / "other")]
        elif change == "more":
            paths = [*paths, paths[0]]
        else:
            paths = paths[:1] if change == "fewer" else paths[::-1]
        with pytest.raises(StateMismatchError, match="from_jsonl") as caught:
            iter(Stream.from_jsonl(paths)).load_state_dict(state)
        saved, here = caught.value.mismatches["pipeline"]
        assert saved != here

    def test_a_folder_that_was_moved_is_the_same(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        write_texts(tmp_path / "a", [b"1\n2\n", b"3\n"])
        state = self.saved(sorted((tmp_path / "a").iterdir()), 1)
        (tmp_path / "a").rename(tmp_path / "longer")
        resumed = iter(Stream.from_jsonl(tmp_path / "longer" / "*"))
        resumed.load_state_dict(state)
        assert list(resumed) == [2, 3]

    def test_a_buffer_of_a_file_that_became_shorter(self, tmp_path: Path) -> None:
        from loaderx.stream.lines import LineFiles
        from loaderx.stream.text import make_place

        [path] = write_texts(tmp_path, [b"1\n22\n"])
        files = LineFiles([str(path)], "from_jsonl", json.loads, "raise", {})
        second = make_place(0, 1)
        assert files.rebuild(0, [0, second]) == [1, 22]
        assert files.rebuild(0, [second, make_place(2, 0)]) == [22, 22]
        path.write_bytes(b"1\n")
        with pytest.raises(
            StateMismatchError, match=r"holds the line 1 lines behind byte 0 of .*is not there any more"
        ):
            files.rebuild(0, [0, second])
        path.write_bytes(b"1\nno")
        with pytest.raises(JsonlError):
            files.rebuild(0, [0, second])
        skipping = LineFiles([str(path)], "from_jsonl", json.loads, "skip", {})
        with pytest.raises(StateMismatchError, match=r"the line at byte 2 of .*, which does not parse"):
            skipping.rebuild(0, [0, second])


def test_they_pickle(tmp_path: Path) -> None:
    from loaderx.stream.lines import LineFiles

    paths = list(map(str, write_texts(tmp_path, TEXTS)))
    files = pickle.loads(pickle.dumps(LineFiles(paths, "from_jsonl", json.loads, "skip", {})))
    assert files.open(0).block()() == ((0, 0), ITEMS[0][0])


def test_two_live_iterators_do_not_disturb_each_other(tmp_path: Path) -> None:
    stream = Stream.from_jsonl(write_texts(tmp_path, TEXTS))
    first = iter(stream)
    assert next(first) == EXPECTED[0]
    assert list(stream) == EXPECTED
    assert list(first) == EXPECTED[1:]


def test_random_order_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    paths = write_texts(tmp_path, TEXTS)
    with pytest.raises(OptionError, match=r"buffer_size is None.*from_dataset\(JsonlDataset"):
        Stream.from_jsonl(paths).shuffle(None)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_lines_of_any_places_in_any_block(tmp_path: Path, suffix: str) -> None:
    from loaderx.stream.text import Text, make_place

    lines = [b"%d" % i * (i % 50) + b"\n" for i in range(30_000)] + [b"end"]
    begins = [0, *itertools.accumulate(map(len, lines))]
    [path] = write_texts(tmp_path, [b"".join(lines)], suffix)
    wanted = [*sorted(random.Random(1).sample(range(len(lines)), 300)), len(lines) - 1]
    places = [
        make_place(begins[max(0, i // 7_000 * 7_000 - 3)], i - max(0, i // 7_000 * 7_000 - 3)) for i in wanted
    ]
    found = list(Text(str(path)).lines_at(places))
    assert found == [(begins[i], lines[i]) for i in wanted]
    assert list(Text(str(path)).lines_at([make_place(begins[-2], 0), make_place(begins[-2], 1)])) == [
        (begins[-2], b"end")
    ]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_errors_of_steps_name_the_byte(tmp_path: Path, suffix: str) -> None:
    [path] = write_texts(tmp_path, [b"\xef\xbb\xbf1\n22\n333\n"], suffix)

    def refuse(item: int) -> int:
        if item == 333:
            raise ValueError(item)
        return item

    iterator = iter(Stream.from_jsonl(path).map(refuse))
    next(iterator), next(iterator)
    with pytest.raises(StreamError) as caught:
        next(iterator)
    assert caught.value.where == f"{path}, byte 8"


def test_the_byte_of_a_bad_line_behind_a_mark(tmp_path: Path) -> None:
    [path] = write_texts(tmp_path, [b"\xef\xbb\xbf1\nno\n"])
    with pytest.raises(JsonlError, match=r"line 2 \(byte 5\)"):
        list(Stream.from_jsonl(path))
    path.write_bytes(b"\xef\xbb\xbfno\n1\n")
    with pytest.raises(JsonlError, match=r"line 1 \(byte 0\)"):
        list(Stream.from_jsonl(path))
