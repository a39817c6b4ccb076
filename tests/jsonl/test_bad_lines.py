"""Lines that do not parse: where the error says they are, and what is done about them instead."""

from __future__ import annotations

import gc
import json
import os
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from loaderx import JsonlError, LoaderxError, MissingDependencyError
from loaderx.jsonl import ByteRangeDataset, JsonlDataset, TextLinesDataset, locating
from loaderx.jsonl.locating import LineNumbers
from loaderx.jsonl.parser import choose_parser, parse_json
from tests.jsonl.kit import write_files, write_index, write_line_store

PARSERS: list[Any] = ["json", "orjson"]

# Two good lines around each, in a file with a mark, blank lines and both line ends before it.
HEAD = b'\xef\xbb\xbf{"good": 1}\r\n\n \r\n[]\n'
BAD = {
    "cut": (b'{"a": [1, 2', '{"a": [1, 2'),
    "words": (b"hello, world", "hello, world"),
    "two values": b'{"a": 1} {"b": 2}',
    "control characters": (b'{"a": "x\x1b[31m\x00y\ty"}', '{"a": "x\\x1b[31m\\x00y\\ty"}'),
    "not utf-8": (b'{"a": "\xff\xfe"}', '{"a": "\\xff\\xfe"}'),
    "surrogate": b'{"a": "\xed\xa0\x80"}',
    "mark in the middle": (b"\xef\xbb\xbf{}", "\\ufeff{}"),
    "right to left": ('{"a": \u202e\u2066x}'.encode(), '{"a": \\u202e\\u2066x}'),
    "line separators": ('{"a" \u2028\x85}'.encode(), '{"a" \\u2028\\x85}'),
    "deep": b"[" * 100_000,
    "deep and whole": b"[" * 100_000 + b"]" * 100_000,
    "nul": (b"\0\0", "\\x00\\x00"),
    "single quotes": (b"{'a': 1}", "{'a': 1}"),
    "trailing comma": b"[1,]",
}


def bad(name: str) -> tuple[bytes, str | None]:
    entry = BAD[name]
    return entry if isinstance(entry, tuple) else (entry, None)


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("name", BAD)
def test_an_error_says_where(tmp_path: Path, name: str, parse: Any) -> None:
    line, excerpt = bad(name)
    write_files(tmp_path, {"0.jsonl": b"1\n2\n", "sub/1 #ü.jsonl": HEAD + line + b'\n{"good": 2}'})
    dataset = JsonlDataset(tmp_path, parse=parse)
    for read in (
        lambda: dataset[4],
        lambda: dataset[-2],
        lambda: dataset[2:],
        lambda: dataset.__getitems__([5, 4]),
    ):
        with pytest.raises(JsonlError) as caught:
            read()
        error = caught.value
        assert error.file == tmp_path / "sub/1 #ü.jsonl"
        assert (error.line_number, error.byte_offset, error.index) == (5, len(HEAD), 4)
        assert isinstance(error, ValueError) and isinstance(error, LoaderxError)
        if excerpt is not None:
            assert error.excerpt == excerpt
        message = str(error)
        assert f"{error.file}: line 5 (byte {len(HEAD)}, sample 4)" in message
        assert error.excerpt in message and "on_error" in message
        assert message.isprintable() and len(message) < 600
        assert len(error.excerpt) <= 60 * 6 + 6
    assert dataset.raw(4) == line
    assert dataset[5] == {"good": 2} and dataset[2] == {"good": 1}
    assert dataset.num_skipped == 0


def test_too_deep_is_said(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jsonl": b"[" * 100_000 + b"]" * 100_000})
    with pytest.raises(JsonlError, match="nests too deep") as caught:
        JsonlDataset(tmp_path, parse="json")[0]
    assert isinstance(caught.value.__cause__, RecursionError)


@pytest.mark.parametrize("parse", PARSERS)
def test_an_excerpt_is_of_where_the_parser_stopped(tmp_path: Path, parse: Any) -> None:
    line = b'{"text": "' + b"a" * 5000 + b'", oops: 1, "more": "' + b"b" * 5000 + b'"}'
    write_files(tmp_path, {"a.jsonl": line})
    with pytest.raises(JsonlError) as caught:
        JsonlDataset(tmp_path, parse=parse)[0]
    assert "oops" in caught.value.excerpt
    assert caught.value.excerpt.startswith("...") and caught.value.excerpt.endswith("...")


@pytest.mark.parametrize("parse", PARSERS)
def test_an_excerpt_is_of_bytes_that_are_no_text(tmp_path: Path, parse: Any) -> None:
    line = b'{"text": "' + b"a" * 5000 + b"\xff" + b"b" * 5000 + b'"}'
    write_files(tmp_path, {"a.jsonl": line})
    with pytest.raises(JsonlError) as caught:
        JsonlDataset(tmp_path, parse=parse)[0]
    assert "a\\xffb" in caught.value.excerpt


def test_an_error_pickles(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jsonl": b"1\nx\n"})
    with pytest.raises(JsonlError) as caught:
        JsonlDataset(tmp_path)[1]
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is JsonlError and str(again) == str(caught.value)
    for name in JsonlError.attribute_names:
        assert getattr(again, name) == getattr(caught.value, name) is not None


def test_the_lowest_position_of_a_batch_is_named(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jsonl": b"1\nx\n2\ny\n3\n"})
    with pytest.raises(JsonlError) as caught:
        JsonlDataset(tmp_path)[[4, 3, 0, 1]]
    assert (caught.value.index, caught.value.line_number) == (3, 4)


def test_a_line_number_that_cannot_be_counted(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jsonl": b"1\nx\n"})
    dataset = JsonlDataset(tmp_path)
    assert dataset[0] == 1
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(JsonlError) as caught:
        dataset[1]  # the file is still mapped
    assert (caught.value.line_number, caught.value.byte_offset) == (None, 2)


def test_samples_that_are_no_lines(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"1\n2\nxx")
    write_index(tmp_path, ["a.bin"], [(0, 0, 2), (0, 4, 2)])
    dataset = ByteRangeDataset(tmp_path, parse=int)  # type: ignore[arg-type]
    assert dataset[0] == 1
    with pytest.raises(
        JsonlError, match=r"the 2 bytes from 4 on \(sample 1\) does not parse: ValueError"
    ) as caught:
        dataset[1]
    assert (caught.value.line_number, caught.value.byte_offset, caught.value.excerpt) == (None, 4, "xx")
    assert isinstance(caught.value.__cause__, ValueError)


def test_lines_of_a_store(tmp_path: Path) -> None:
    store = write_line_store(tmp_path / "s.zr", [b"1", b'{"a" x}', b"2"])
    with pytest.raises(JsonlError) as caught:
        JsonlDataset(store)[[2, -2]]
    error = caught.value
    assert (error.file, error.index, error.line_number, error.byte_offset) == (store, 1, None, None)
    assert error.excerpt == '{"a" x}'
    skipping = JsonlDataset(store, on_error="skip")
    assert skipping[:] == [1, 2] == list(skipping) and skipping.num_skipped == 2


def test_text_that_is_not_in_the_encoding(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": b"good\nb\xe4d\n"})
    with pytest.raises(JsonlError) as caught:
        TextLinesDataset(tmp_path)[1]
    assert (caught.value.line_number, caught.value.excerpt) == (2, "b\\xe4d")
    assert TextLinesDataset(tmp_path, on_error="skip")[:] == ["good"]


# ---- line numbers ------------------------------------------------------------------------------------------------


def test_line_numbers_are_those_of_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locating, "_PIECE_BYTES", 7)
    rng = random.Random(1)
    data = [bytes(rng.choices(b"a\n\r", k=300)) for _ in range(2)]
    read = 0

    def read_at(file: int, byte_offset: int, n_bytes: int) -> bytes:
        nonlocal read
        read += n_bytes
        return data[file][byte_offset : byte_offset + n_bytes]

    numbers = LineNumbers(read_at)
    for _ in range(200):
        file, at = rng.randrange(2), rng.randrange(301)
        assert numbers.number_at(file, at) == data[file][:at].count(b"\n") + 1
    # from the last place that is known, not from the beginning each time
    assert read < 5000
    assert numbers.number_at(0, 5000) is None


@pytest.mark.parametrize("step", [2, 2 * 7919])
def test_counting_many_lines_reads_the_file_few_times(step: int) -> None:
    """However many places are known, and in whatever order they are asked for."""
    data = b"x\n" * 20_000
    read = 0

    def read_at(file: int, byte_offset: int, n_bytes: int) -> bytes:
        nonlocal read
        read += n_bytes
        return data[byte_offset : byte_offset + n_bytes]

    numbers = LineNumbers(read_at)
    for i in range(20_000):
        at = i * step % len(data)
        assert numbers.number_at(0, at) == at // 2 + 1
    # in order once; else for each line some hundredth part
    assert read <= (len(data) if step == 2 else 20_000 * len(data) // 100)


def test_counting_many_errors_is_no_longer_than_reading_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, {"a.jsonl": b"x\n" * 20_000})
    seen: list[int | None] = []
    dataset = JsonlDataset(tmp_path, on_error=lambda error: seen.append(error.line_number))
    list(dataset)
    assert seen == list(range(1, 20_001))


# ---- going on ----------------------------------------------------------------------------------------------------

MIXED = b"0\nx\n2\n3\ny\n5\nz"


def test_skipping(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jsonl": MIXED})
    dataset = JsonlDataset(tmp_path, on_error="skip")
    assert len(dataset) == 7
    assert dataset[0] == 0 and dataset[1] is None
    assert dataset.num_skipped == 1
    assert dataset[:] == [0, 2, 3, 5] and dataset.num_skipped == 4
    assert dataset[[6, 5, 4, 3, 1]] == [5, 3] and dataset.num_skipped == 7
    assert dataset.__getitems__([1, 4]) == [] and dataset.num_skipped == 9
    assert list(dataset) == [0, 2, 3, 5] and dataset.num_skipped == 12
    assert dataset.raw_batch([1, 0]) == [b"x", b"0"] and dataset.num_skipped == 12
    with pytest.raises(IndexError):
        dataset[7]


def test_a_function_puts_something_in_the_place(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jsonl": MIXED})
    seen: list[JsonlError] = []

    def on_error(error: JsonlError) -> Any:
        seen.append(error)
        return -error.index

    dataset = JsonlDataset(tmp_path, on_error=on_error)
    assert dataset[1] == -1
    assert dataset[:] == [0, -1, 2, 3, -4, 5, -6] == list(dataset)
    assert dataset.__getitems__([-1, 0, 4]) == [-6, 0, -4]
    assert [error.line_number for error in seen] == [2, 2, 5, 7, 2, 5, 7, 7, 5]
    assert dataset.num_skipped == len(seen) == 9


def test_what_a_function_raises_is_raised(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jsonl": MIXED})

    def on_error(error: JsonlError) -> Any:
        if error.index == 4:
            raise KeyError(error.excerpt)

    dataset = JsonlDataset(tmp_path, on_error=on_error)
    assert dataset[:3] == [0, None, 2]
    for call in (lambda: dataset[4], lambda: dataset[:], lambda: list(dataset)):
        with pytest.raises(KeyError, match="y"):
            call()


@pytest.mark.parametrize("kind", [KeyError, StopIteration, RuntimeError, OSError])
def test_whatever_a_parser_raises_is_a_sample_that_does_not_parse(
    tmp_path: Path, kind: type[Exception]
) -> None:
    write_files(tmp_path, {"a.jsonl": b"0\n1\n2\n3\n"})

    def parse(raw: bytes) -> int:
        if raw == b"2":
            raise kind("no two")
        return int(raw)

    dataset = JsonlDataset(tmp_path, parse=parse)
    for call in (lambda: dataset[2], lambda: dataset[:], lambda: list(dataset)):
        with pytest.raises(JsonlError) as caught:
            call()
        assert caught.value.index == 2
    dataset = JsonlDataset(tmp_path, parse=parse, on_error="skip")
    assert dataset[:] == [0, 1, 3] == list(dataset) and dataset.num_skipped == 2


@pytest.mark.parametrize("kind", [MemoryError, KeyboardInterrupt, SystemExit])
def test_what_is_not_about_the_sample_passes(tmp_path: Path, kind: type[BaseException]) -> None:
    write_files(tmp_path, {"a.jsonl": b"0\n1\n"})

    def parse(raw: bytes) -> Any:
        raise kind

    dataset = JsonlDataset(tmp_path, parse=parse, on_error="skip")
    for call in (lambda: dataset[0], lambda: dataset[:], lambda: list(dataset)):
        with pytest.raises(kind):
            call()
    assert dataset.num_skipped == 0


def test_an_error_keeps_no_file_open(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jsonl": b"x\n" * 50})
    before = len(os.listdir("/proc/self/fd"))
    kept: list[JsonlError] = []
    gc.disable()
    try:
        dataset = JsonlDataset(tmp_path, on_error=kept.append)
        assert dataset[:] == [None] * 50 and len(kept) == 50
        dataset.close()
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()


# ---- parsers -----------------------------------------------------------------------------------------------------


def outcome(call: Any, *arguments: Any) -> tuple[Any, ...]:
    try:
        return ("value", repr(call(*arguments)))
    except Exception as error:
        return (type(error), str(error))


def test_json_is_parsed_as_json_does() -> None:
    rng = random.Random(3)
    alphabet = [
        "{",
        "}",
        "[",
        "]",
        '"',
        ":",
        ",",
        " ",
        "\t",
        "\r",
        "\n",
        "1",
        "-",
        ".5",
        "e3",
        "null",
        "true",
        "NaN",
    ]
    alphabet += [
        "-Infinity",
        "a",
        "\\u00e4",
        "\\ud800",
        "ä\U0001f600",
        "\udcff",
        "\0",
        "\ufeff",
        "\x0b",
        "\xa0",
    ]
    alphabet += ["12345678901234567890123", '"k":1', '{"k":1,"k":2}', "[1,2]", '"s"']
    pieces = [piece.encode("utf-8", "surrogateescape") for piece in alphabet]
    good = 0
    for _ in range(20_000):
        line = b"".join(rng.choices(pieces, k=rng.randrange(8)))
        ours, theirs = outcome(parse_json, line), outcome(lambda line=line: json.loads(line.decode()))
        assert ours == theirs, line
        good += ours[0] == "value"
    assert good > 500


def test_numbers_that_are_no_json() -> None:
    assert repr(parse_json(b"[NaN, Infinity, -Infinity]")) == "[nan, inf, -inf]"
    assert parse_json(b"123456789012345678901234567890") == 123456789012345678901234567890


def test_orjson_is_taken_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, {"a.jsonl": b'[1, "a"]\n'})
    assert choose_parser(None) is orjson.loads is choose_parser("orjson")
    assert choose_parser("json") is parse_json
    monkeypatch.setitem(sys.modules, "orjson", None)
    assert choose_parser(None) is parse_json
    assert JsonlDataset(tmp_path)[0] == [1, "a"]
    with pytest.raises(MissingDependencyError) as caught:
        JsonlDataset(tmp_path, parse="orjson")
    assert (caught.value.package, caught.value.extra) == ("orjson", "jsonl")


def test_any_function_parses(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jsonl": b"a,b\r\nc,d\n"})
    dataset = JsonlDataset(tmp_path, parse=lambda raw: raw.decode().split(","))
    assert dataset[0] == ["a", "b"] and dataset[[1, 0]] == [["c", "d"], ["a", "b"]]
