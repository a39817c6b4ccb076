"""Samples of JSONL and of plain lines: every form of index gives what parsing the lines one by one does."""

from __future__ import annotations

import gc
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import ClosedError, OptionError, RecordIndexError
from loaderx.jsonl import ByteRangeDataset, JsonlDataset, TextLinesDataset, build_index
from tests.jsonl.kit import some_object, write_corpus, write_files, write_index, write_line_store

N = 120
KINDS = ["two files", "index", "store"]


class Index:
    """An integer that is no int."""

    def __index__(self) -> int:
        return 4


INTEGERS: dict[str, Any] = {
    "first": 0,
    "last": N - 1,
    "minus_one": -1,
    "minus_all": -N,
    "numpy_int64": np.int64(3),
    "numpy_uint64": np.uint64(3),
    "numpy_negative": np.int8(-2),
    "index_method": Index(),
    "array_without_axes": np.array(5),
}

BATCHES: dict[str, Any] = {
    "all": slice(None),
    "slice": slice(2, 70),
    "slice_back": slice(None, None, -7),
    "slice_beyond": slice(100, 5000),
    "slice_empty": slice(7, 3),
    "list": [5, 3, 5, -1],
    "tuple": (1, 0),
    "range": range(10, 0, -3),
    "list_empty": [],
    "array": np.array([9, 0, 9, 4]),
    "array_unsigned": np.array([9, 0], np.uint64),
    "array_small": np.array([-3, 3], np.int8),
    "array_strided": np.arange(50)[::3],
    "array_empty": np.array([], np.int64),
    "mask": np.arange(N) % 3 == 1,
    "mask_list": [i % 5 == 0 for i in range(N)],
    "numpy_integers": [np.int64(3), np.uint8(4)],
}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return write_corpus(tmp_path_factory.mktemp("unused"), N)


@pytest.fixture(scope="module", params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("corpus")
    objects = write_corpus(base, N)
    if request.param == "index":
        assert len(build_index(base)) == N
    if request.param != "store":
        return base
    return write_line_store(base / "lines.zr", [json.dumps(item).encode() for item in objects])


@pytest.fixture(params=["mmap", "pread"])
def dataset(path: Path, request: pytest.FixtureRequest) -> Any:
    with JsonlDataset(path, io=request.param) as dataset:
        yield dataset


@pytest.mark.parametrize("name", INTEGERS)
def test_one_sample(dataset: JsonlDataset, objects: list[Any], name: str) -> None:
    index = INTEGERS[name]
    assert dataset[index] == objects[int(index.__index__())]
    assert json.loads(dataset.raw(index)) == dataset[index]


@pytest.mark.parametrize("name", BATCHES)
def test_several_samples(dataset: JsonlDataset, objects: list[Any], name: str) -> None:
    key = BATCHES[name]
    expected = [
        objects[i] for i in np.arange(N)[list(key) if isinstance(key, tuple | range) else key].tolist()
    ]
    assert dataset[key] == expected
    assert dataset.__getitems__(key) == expected
    assert [json.loads(raw) for raw in dataset.raw_batch(key)] == expected
    dataset.prefetch(key)


@pytest.mark.parametrize(
    "key", [None, Ellipsis, "a", 1.0, b"a", True, np.bool_(False), [1.5], ["a"], (slice(2), 1)]
)
def test_what_is_no_index(dataset: JsonlDataset, key: Any) -> None:
    for call in (dataset.__getitem__, dataset.__getitems__, dataset.raw, dataset.raw_batch):
        with pytest.raises(TypeError):
            call(key)


@pytest.mark.parametrize("key", [N, -N - 1, 2**63, -(2**70), np.uint64(2**64 - 1), [0, N], np.array([N + 3])])
def test_an_index_of_no_sample(dataset: JsonlDataset, key: Any) -> None:
    with pytest.raises(RecordIndexError, match="range"):
        dataset[key]
    batch = key if np.ndim(key) else [key]
    for call in (dataset.__getitems__, dataset.raw_batch):
        with pytest.raises(RecordIndexError):
            call(batch)


def test_masks_and_axes_that_do_not_fit(dataset: JsonlDataset) -> None:
    for key in (np.ones(N - 1, bool), [True], np.zeros((2, 2), np.int64), [[1, 2]]):
        with pytest.raises(RecordIndexError):
            dataset[key]
        with pytest.raises(RecordIndexError):
            dataset.__getitems__(key)
    with pytest.raises(TypeError):
        dataset.__getitems__(3)
    with pytest.raises(TypeError, match="raw_batch"):
        dataset.raw([3])


def test_an_index_error_says_where(dataset: JsonlDataset) -> None:
    with pytest.raises(RecordIndexError) as caught:
        dataset[[0, 3, -N - 1, N]]
    assert (caught.value.index, caught.value.position, caught.value.length) == (-N - 1, 2, N)
    assert "position 2 of the batch" in str(caught.value)


def test_an_index_alone_is_of_no_batch(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jsonl": b"1\n"})
    with pytest.raises(RecordIndexError, match="index 1 is out of range: there are 1 samples"):
        JsonlDataset(tmp_path)[1]


def test_length_and_passes(dataset: JsonlDataset, objects: list[Any]) -> None:
    assert len(dataset) == N
    assert list(dataset) == objects
    assert [dataset[i] for i in range(N)] == objects
    assert list(reversed(dataset)) == objects[::-1]  # type: ignore[call-overload]
    assert str(N) in repr(dataset)


def test_a_pass_over_many_small_and_some_large_lines(tmp_path: Path) -> None:
    lines = [b"%d" % i for i in range(3000)] + [b"[" + b"1," * 700_000 + b"1]"] * 3 + [b"7"] * 5
    write_files(tmp_path, {"a.jsonl": b"\n".join(lines)})
    sizes = [len(item) if isinstance(item, list) else item for item in JsonlDataset(tmp_path)]
    assert sizes == [*range(3000), 700_001, 700_001, 700_001, 7, 7, 7, 7, 7]


def test_closed(path: Path) -> None:
    dataset = JsonlDataset(path)
    samples = iter(dataset)
    next(samples)
    dataset.close()
    dataset.close()
    for call in (
        lambda: dataset[0],
        lambda: dataset[:2],
        lambda: dataset.__getitems__([0]),
        lambda: dataset.raw(0),
        lambda: dataset.raw_batch([0]),
        lambda: dataset.prefetch([0]),
        lambda: len(dataset),
        lambda: list(dataset),
    ):
        with pytest.raises(ClosedError, match="closed"):
            call()
    assert "closed" in repr(dataset)


def test_closing_gives_the_files_back(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{i}.jsonl": b"1\n" for i in range(20)})
    before = len(os.listdir("/proc/self/fd"))
    gc.disable()
    try:
        dataset = JsonlDataset(tmp_path)
        assert dataset[:] == [1] * 20
        assert len(os.listdir("/proc/self/fd")) >= before + 20
        dataset.close()
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()


def test_an_index_of_nothing(tmp_path: Path) -> None:
    write_files(tmp_path, {})
    for io in ("mmap", "pread"):
        dataset = JsonlDataset(tmp_path, io=io)  # type: ignore[arg-type]
        assert (
            len(dataset) == 0 and list(dataset) == [] and dataset[:] == [] and dataset.__getitems__([]) == []
        )
        with pytest.raises(RecordIndexError):
            dataset[0]
    store = write_line_store(tmp_path / "s.zr", [])
    dataset = JsonlDataset(store)
    assert len(dataset) == 0 and list(dataset) == [] and dataset[:] == []


def test_a_store_in_a_folder_decides(tmp_path: Path) -> None:
    path = write_line_store(tmp_path / "s.zr", [b"2", b"3"])
    write_files(path, {"a.jsonl": b"1\n"})
    assert JsonlDataset(path)[:] == [2, 3]


# ---- lines as they come ------------------------------------------------------------------------------------------

FILES = {
    "a.jsonl": b'\xef\xbb\xbf{"bom": 1}\n{"plain": 2}\n',
    "empty.jsonl": b"",
    "blank.jsonl": b"\n \n\t\r\n\r\n",
    "crlf.jsonl": b'{"a": 1}\r\n\r\n{"b": 2}\r\n',
    "no end.jsonl": b'[1]\n[2, "\xe2\x80\xa8\xc2\x85\\u0000"]',
    "space.jsonl": b'  {"a": 1}  \n\t[2]\t\r\n "x" ',
    "bom only.jsonl": b"\xef\xbb\xbf",
}


def test_lines_as_they_come(tmp_path: Path) -> None:
    samples = write_files(tmp_path, FILES)
    with JsonlDataset(tmp_path) as dataset:
        assert dataset.raw_batch(slice(None)) == samples
        assert dataset[:] == [json.loads(raw) for raw in samples]
        assert dataset[0] == {"bom": 1} and dataset[5] == [2, "\u2028\x85\0"]


def test_a_line_of_a_hundred_megabytes(tmp_path: Path) -> None:
    long = b'"' + b"x" * (100 << 20) + b'"'
    write_files(tmp_path, {"a.jsonl": b"1\n" + long + b"\n2\n"})
    for io in ("mmap", "pread"):
        with JsonlDataset(tmp_path, io=io) as dataset:  # type: ignore[arg-type]
            raw, one = dataset.raw_batch([1, 0])
            assert raw == long and one == b"1"
            del raw
            assert len(dataset[1]) == 100 << 20 and dataset[2] == 2


def test_random_bytes_read_as_they_are(tmp_path: Path) -> None:
    rng = random.Random(9)
    files = {
        f"{number}.txt": bytes(rng.choices(b"ab \r\n\n\0\xff", k=rng.randrange(4000))) for number in range(12)
    }
    samples = write_files(tmp_path, files)
    assert len(samples) > 1000
    for io in ("mmap", "pread"):
        dataset = TextLinesDataset(tmp_path, encoding="latin-1", io=io)  # type: ignore[arg-type]
        assert dataset[:] == [raw.decode("latin-1") for raw in samples]
        assert [dataset[i] for i in range(len(samples))] == dataset[:] == list(dataset)


def test_text_lines(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": "Zeile äöü\r\nzwei\u2028noch zwei\n\n  drei  ".encode()})
    with TextLinesDataset(tmp_path) as dataset:
        assert dataset[:] == ["Zeile äöü", "zwei\u2028noch zwei", "  drei  "]
        assert dataset[-1] == "  drei  "
    latin = tmp_path / "latin"
    write_files(latin, {"a.txt": "ä\nö".encode("latin-1")})
    assert TextLinesDataset(latin, encoding="latin-1")[:] == ["ä", "ö"]
    store = write_line_store(tmp_path / "s.zr", ["ä".encode(), b"b"])
    assert TextLinesDataset(store)[:] == ["ä", "b"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "utf-16-be", "no such", "", None, 8])
def test_encodings_that_do_not_have_lines(tmp_path: Path, encoding: Any) -> None:
    write_files(tmp_path, {"a.txt": b"a\n"})
    with pytest.raises(OptionError, match="encoding"):
        TextLinesDataset(tmp_path, encoding=encoding)


def test_byte_ranges_with_any_parser(tmp_path: Path) -> None:
    values = np.arange(60, dtype=np.uint16)
    (tmp_path / "tokens.bin").write_bytes(values.tobytes())
    write_index(tmp_path, ["tokens.bin"], [(0, 20 * i, 20) for i in range(6)])
    with ByteRangeDataset(tmp_path, parse=lambda raw: np.frombuffer(raw, np.uint16)) as dataset:
        assert np.array_equal(np.stack(dataset[[5, 0]]), values.reshape(6, 10)[[5, 0]])
        assert np.array_equal(dataset[-1], values[50:])
        assert dataset.raw(0) == values[:10].tobytes()
    # nothing is cut off, though the bytes may be those of a line end
    (tmp_path / "tokens.bin").write_bytes(b"ab\r\ncd\n")
    write_index(tmp_path, ["tokens.bin"], [(0, 0, 4), (0, 4, 3)])
    assert ByteRangeDataset(tmp_path)[:] == [b"ab\r\n", b"cd\n"]


def test_the_lines_of_one_index_by_any_class(tmp_path: Path) -> None:
    data = b'{"a": 1}\r\n[2]\n'
    write_files(tmp_path, {"a.jsonl": data})
    assert ByteRangeDataset(tmp_path)[:] == [b'{"a": 1}\r\n', b"[2]\n"]
    assert TextLinesDataset(tmp_path)[:] == ['{"a": 1}', "[2]"]
    assert JsonlDataset(tmp_path)[:] == [{"a": 1}, [2]]


# ---- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("parse", "xml"),
        ("parse", 3),
        ("on_error", "ignore"),
        ("on_error", None),
        ("io", "read"),
        ("threads", -1),
        ("allow_outside", "yes"),
    ],
)
def test_options_out_of_range(tmp_path: Path, option: str, value: Any) -> None:
    write_files(tmp_path, {"a.jsonl": b"1\n"})
    with pytest.raises(OptionError) as caught:
        JsonlDataset(tmp_path, **{option: value})
    assert caught.value.option == option and caught.value.value == value


def test_options_of_ranges(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jsonl": b"1\n"})
    with pytest.raises(OptionError, match="parse"):
        ByteRangeDataset(tmp_path, parse="json")  # type: ignore[arg-type]
    store = write_line_store(tmp_path / "s.zr", [b"1"])
    with pytest.raises(OptionError, match="index_folder"):
        JsonlDataset(store, index_folder="index")


# ---- memory --------------------------------------------------------------------------------------------------------


def test_nothing_is_kept_for_a_sample(tmp_path: Path, rss_anon: Callable[[], int]) -> None:
    """Two million samples open and are read without a byte for each of them."""
    (tmp_path / "a.jsonl").write_bytes(b"123\n" * 1000)
    write_index(tmp_path, ["a.jsonl"], [(0, 0, 4)])
    rows = np.zeros((2_000_000, 3), "<u8")
    rows[:, 1] = np.arange(2_000_000) % 1000 * 4
    rows[:, 2] = 4
    rows.tofile(tmp_path / "index" / "sample_locations.bin")
    del rows
    gc.collect()
    with JsonlDataset(tmp_path) as dataset:
        assert dataset[0] == 123
        before = rss_anon()
        with JsonlDataset(tmp_path) as second:
            assert len(second) == 2_000_000 and second[1_999_999] == 123
            assert rss_anon() - before < 1 << 20


def test_batches_leave_no_memory_behind(tmp_path: Path, rss_anon: Callable[[], int]) -> None:
    rng = random.Random(2)
    files = {
        f"{number}.jsonl": b"".join(json.dumps(some_object(rng, i)).encode() + b"\n" for i in range(800))
        for number in range(8)
    }
    n = len(write_files(tmp_path, files))
    for io in ("mmap", "pread"):
        with JsonlDataset(tmp_path, io=io) as dataset:  # type: ignore[arg-type]

            def steps(count: int, dataset: JsonlDataset = dataset) -> None:
                for _ in range(count):
                    batch = np.array(rng.choices(range(n), k=64))
                    dataset.__getitems__(batch)
                    dataset[int(batch[0])]
                    dataset.raw_batch(batch)

            steps(200)
            before = rss_anon()
            steps(1000)
            assert rss_anon() - before < 1 << 20
