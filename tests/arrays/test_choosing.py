"""Choosing a codec: the right one for each kind of data, the same one every time, and in a second."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import Dataset, RaggedDataset, Zrecord, choose_codec, write_dataset, write_ragged
from loaderx.arrays import choosing
from loaderx.arrays.sampling import SliceSamples
from loaderx.arrays.schema import new_schema, read_schema

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(0)
WORDS = [bytes(RNG.integers(97, 123, RNG.integers(3, 9), dtype=np.uint8)) for _ in range(500)]


def words(n: int) -> bytes:
    return b" ".join(WORDS[index] for index in RNG.zipf(1.3, n) % len(WORDS))


def line(n: int) -> Array:
    """Return a small record: the same names in each, some words, some digits."""
    text = b'{"id": %d, "text": "%s", "score": %.3f}' % (RNG.integers(10**6), words(n), RNG.random())
    return np.frombuffer(text, np.uint8)


NOISE = RNG.integers(0, 256, (600, 784), dtype=np.uint8)
TEXT = np.frombuffer(b"".join(words(8000)[:16_384] for _ in range(50)), np.uint8).reshape(50, -1)
WAVES = (np.sin(np.arange(100 * 8192) / 700) + RNG.normal(0, 1e-4, 100 * 8192)).astype("f4").reshape(100, -1)
TOKENS = (RNG.zipf(1.2, (100, 4096)) % 50_000).astype("i4")
LINES = [line(20) for _ in range(3000)]

KINDS: list[tuple[str, Any, str]] = [
    ("noise", NOISE, "raw"),
    ("noise of floats", RNG.integers(0, 2**32, (600, 200), dtype="u4").view("f4"), "raw"),
    ("text", TEXT, "zstd"),
    ("waves", WAVES, "zstd_shuffle"),
    ("big-endian waves", WAVES.astype(">f4"), "zstd_shuffle"),
    ("fields", WAVES.view([("x", "<f4"), ("y", "<f4")]), "zstd_shuffle"),
    ("tokens", TOKENS, "zstd_shuffle"),
    ("ragged tokens", [row[: 100 + 40 * i] for i, row in enumerate(TOKENS)], "zstd_shuffle"),
    ("lines", LINES, "zstd_dict"),
    ("short tokens", TOKENS.reshape(-1, 64), "zstd_shuffle_dict"),
    ("strings", np.array([words(20)[:100] for _ in range(3000)], "S100"), "zstd_dict"),
    ("labels", RNG.integers(0, 10, 5000), "raw"),
    ("booleans", RNG.random((100, 5000)) < 0.1, "zstd"),
    ("one record", np.arange(1000)[None], "zstd_shuffle"),
    ("one long record", WAVES.reshape(1, -1), "zstd_shuffle"),
    ("constant", np.zeros((100, 1000), np.uint8), "zstd"),
    ("items beyond 255 bytes", np.zeros((50, 40), "S300"), "zstd"),
]


@pytest.mark.parametrize(("data", "codec"), [kind[1:] for kind in KINDS], ids=[kind[0] for kind in KINDS])
def test_kind_of_data(data: Any, codec: str, store_path: Path) -> None:
    choice = choose_codec(data)
    assert choice.codec == codec, str(choice)
    ragged = isinstance(data, list)
    (write_ragged if ragged else write_dataset)(store_path, data, codec="auto", progress=False)
    assert read_schema(store_path).codec == codec
    with Zrecord(store_path, mode="r") as store:
        stats = store.stats()
    assert set(stats["codecs"]) <= {codec, "raw"}
    assert stats["format_version"] == (4 if "shuffle" in codec else 3)
    if ragged:
        for got, expected in zip(RaggedDataset(store_path), data, strict=True):
            assert got.tobytes() == expected.tobytes()
    else:
        assert Dataset(store_path)[:].tobytes() == data.tobytes()
    # the estimate is one of the whole
    trial = next(trial for trial in choice.candidates if trial.codec == codec)
    stored = stats["live_bytes"] + stats["dictionary_bytes"]
    assert stored == pytest.approx(stats["logical_bytes"] / trial.ratio, rel=0.25)


@pytest.mark.parametrize("data", [kind[1] for kind in KINDS], ids=[kind[0] for kind in KINDS])
def test_same_choice_every_time_and_soon(data: Any) -> None:
    started = time.perf_counter()
    first, second = choose_codec(data), choose_codec(data)
    assert time.perf_counter() - started < 6  # of a second for both, with much to spare for a busy machine
    assert first.reason == second.reason
    assert [trial.stored_bytes for trial in first.candidates] == [
        trial.stored_bytes for trial in second.candidates
    ]
    assert first.sampled_bytes <= 4 << 20 and first.sampled_records <= 4096


def test_candidates_and_their_numbers() -> None:
    choice = choose_codec(WAVES)
    assert [trial.codec for trial in choice.candidates] == ["raw", "zstd", "zstd_shuffle"]
    raw, zstd, shuffled = choice.candidates
    assert (raw.stored_bytes, raw.ratio, raw.level) == (choice.sampled_bytes, 1.0, 0)
    assert choice.sampled_records == len(WAVES) and choice.sampled_bytes == WAVES.nbytes
    assert raw.stored_bytes > zstd.stored_bytes > shuffled.stored_bytes
    assert shuffled.ratio == choice.sampled_bytes / shuffled.stored_bytes
    assert all(trial.decode_mib_per_s > 1 for trial in choice.candidates)
    assert str(choice).splitlines()[0] == f"zstd_shuffle: {choice.reason}"
    assert len(str(choice).splitlines()) == 2 + len(choice.candidates)


def test_small_records_have_more_candidates() -> None:
    small = TOKENS.reshape(-1, 64)
    every = ["raw", "zstd", "zstd_shuffle", "zstd_dict", "zstd_shuffle_dict"]
    assert [trial.codec for trial in choose_codec(small).candidates] == every
    assert [trial.codec for trial in choose_codec(small[:255]).candidates] == every[:3]
    assert [trial.codec for trial in choose_codec(LINES).candidates] == ["raw", "zstd", "zstd_dict"]
    assert [trial.level for trial in choose_codec(small).candidates] == [0, 3, 3, 19, 19]
    assert [trial.level for trial in choose_codec(small, level=5).candidates] == [0, 5, 5, 5, 5]


def test_reasons_say_what_a_choice_costs() -> None:
    assert "loaderx 0.7.3 cannot read" in choose_codec(WAVES).reason
    assert "smaller than zstd" in choose_codec(TOKENS).reason
    assert "slow to write at level 19" in choose_codec(LINES).reason
    assert "slow" not in choose_codec(LINES, level=3).reason
    assert "0.7.3" not in choose_codec(TEXT).reason and "smaller than raw" in choose_codec(TEXT).reason
    assert "no codec saves 10%" in choose_codec(NOISE).reason


@pytest.mark.parametrize(
    ("sizes", "codec"),
    [
        ({"raw": 1000, "zstd": 901}, "raw"),
        ({"raw": 1000, "zstd": 900}, "zstd"),
        ({"raw": 1000, "zstd": 800, "zstd_shuffle": 761}, "zstd"),
        ({"raw": 1000, "zstd": 800, "zstd_shuffle": 760}, "zstd_shuffle"),
        ({"raw": 1000, "zstd": 950, "zstd_shuffle": 900}, "zstd_shuffle"),
        ({"raw": 1000, "zstd": 800, "zstd_dict": 721}, "zstd"),
        ({"raw": 1000, "zstd": 800, "zstd_dict": 720}, "zstd_dict"),
        ({"raw": 1000, "zstd": 800, "zstd_shuffle": 700, "zstd_dict": 650, "zstd_shuffle_dict": 630},
         "zstd_shuffle_dict"),
        ({"raw": 1000, "zstd": 800, "zstd_shuffle": 700, "zstd_dict": 650, "zstd_shuffle_dict": 631},
         "zstd_shuffle"),
        ({"raw": 1000, "zstd": 800, "zstd_shuffle": 780, "zstd_dict": 600, "zstd_shuffle_dict": 580}, "zstd_dict"),
        ({"raw": 1000, "zstd": 1000, "zstd_dict": 500}, "zstd_dict"),
    ],
)  # fmt: skip
def test_rule(sizes: dict[str, int], codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [choosing.CodecTrial(name, 3, size, 1000 / size, 1.0) for name, size in sizes.items()]  # type: ignore[arg-type]
    monkeypatch.setattr(choosing, "_try_all", lambda *_: trials)
    assert choose_codec(NOISE).codec == codec


@pytest.mark.parametrize(
    "empty",
    [np.zeros((0, 5)), np.zeros((7, 0)), [np.zeros(0)], [np.zeros((0, 3), "i4"), np.zeros((0, 3), "i4")]],
    ids=["no records", "records of no bytes", "an empty array", "empty arrays"],
)
def test_nothing_to_try_codecs_on(empty: Any, store_path: Path) -> None:
    choice = choose_codec(empty)
    assert (choice.codec, choice.candidates) == ("zstd", ()) and "no data" in choice.reason
    assert str(choice) == f"zstd: {choice.reason}"
    (write_ragged if isinstance(empty, list) else write_dataset)(
        store_path, empty, codec="auto", progress=False
    )
    assert read_schema(store_path).codec == "zstd"


def test_no_arrays_at_all(store_path: Path) -> None:
    assert write_ragged(store_path, iter(()), "i4", codec="auto", progress=False) == 0
    assert read_schema(store_path).codec == "zstd"


@pytest.mark.parametrize("chunk_bytes", [64 << 20, 20_000])
@pytest.mark.parametrize(("source", "codec"), [(LINES, "zstd_dict"), (list(TOKENS), "zstd_shuffle")])
def test_iterable_that_can_be_read_once(
    source: list[Array], codec: str, chunk_bytes: int, store_path: Path
) -> None:
    given = 0

    def once() -> Iterator[Array]:
        nonlocal given
        for array in source:
            given += 1
            yield array

    if chunk_bytes < 64 << 20:
        codec = codec.replace("zstd_dict", "zstd")  # too few for a dictionary
    assert write_ragged(store_path, once(), codec="auto", chunk_bytes=chunk_bytes, progress=False) == len(
        source
    )
    assert given == len(source)
    assert read_schema(store_path).codec == codec
    for got, expected in zip(RaggedDataset(store_path), source, strict=True):
        assert np.array_equal(got, expected)


def test_no_more_of_an_iterable_is_read_than_a_chunk() -> None:
    given = 0

    def endless() -> Iterator[Array]:
        nonlocal given
        while True:
            given += 1
            yield WAVES

    assert choose_codec(endless()).codec == "zstd_shuffle"
    assert given * WAVES.nbytes < (64 << 20) + 2 * WAVES.nbytes


def test_datasets_are_data_too(new_path: Callable[[], Path]) -> None:
    fixed, ragged = new_path(), new_path()
    write_dataset(fixed, TOKENS, progress=False)
    write_ragged(ragged, LINES, progress=False)
    assert choose_codec(Dataset(fixed)).codec == "zstd_shuffle"
    choice = choose_codec(RaggedDataset(ragged))
    assert choice.reason == choose_codec(LINES).reason


def test_appending_means_the_codec_that_is_there(store_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_dataset(store_path, WAVES, "zstd", progress=False)
    with caplog.at_level(logging.INFO, "loaderx"):
        write_dataset(store_path, WAVES, "auto", progress=False)
    assert caplog.records == []
    assert read_schema(store_path).codec == "zstd"
    with Zrecord(store_path, mode="r") as store:
        assert store.stats()["codecs"] == {"zstd": 200} and store.stats()["format_version"] == 3
    write_dataset(store_path, WAVES, "auto", overwrite=True, progress=False)
    assert read_schema(store_path).codec == "zstd_shuffle"
    assert write_dataset(store_path, WAVES, "auto", progress=False) == 100
    with Zrecord(store_path, mode="r") as store:
        assert store.stats()["codecs"] == {"zstd_shuffle": 200}


def test_a_dictionary_that_is_there_is_used(store_path: Path) -> None:
    write_ragged(store_path, LINES, codec="auto", progress=False)
    before = (store_path / "dict.zr").read_bytes()
    write_ragged(store_path, iter(LINES[:10]), codec="auto", progress=False)
    assert (store_path / "dict.zr").read_bytes() == before
    with Zrecord(store_path, mode="r") as store:
        assert store.stats()["codecs"]["zstd_dict"] == 3010


def test_log_says_what_was_chosen_and_why(store_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "loaderx"):
        write_dataset(store_path, WAVES, "auto", progress=False)
    (record,) = caplog.records
    assert record.name.startswith("loaderx.") and record.levelno == logging.INFO
    assert record.getMessage() == f"{store_path}: codec zstd_shuffle: {choose_codec(WAVES).reason}"


def test_a_level_that_raw_does_not_need(store_path: Path) -> None:
    write_dataset(store_path, NOISE, "auto", level=7, dict_size=2000, progress=False)
    assert read_schema(store_path).codec == "raw"


def test_dictionary_has_at_most_the_size_asked_for(store_path: Path) -> None:
    write_ragged(store_path, LINES, codec="auto", dict_size=1500, progress=False)
    assert read_schema(store_path).codec == "zstd_dict"
    assert 0 < (store_path / "dict.zr").stat().st_size <= 1500


@pytest.mark.parametrize("codec", ["auto", "zstd_dict"])
def test_a_small_dictionary_learns_from_more_than_a_few_records(codec: Any, store_path: Path) -> None:
    rows = (
        np.arange(513 * 1000, dtype="i4").reshape(513, 1000) % 100
    )  # a hundred times 256 bytes are six of them
    write_dataset(store_path, rows, codec, dict_size=256, progress=False)
    assert np.array_equal(Dataset(store_path)[:], rows)


def test_wrong_arguments(store_path: Path) -> None:
    with pytest.raises(loaderx.OptionError, match=r"codec is 'best': choose one of raw, .*auto"):
        write_dataset(store_path, WAVES, "best")  # type: ignore[arg-type]
    with pytest.raises(loaderx.OptionError, match="codec is 'auto'"):
        Zrecord(store_path, "auto")  # type: ignore[arg-type]
    with pytest.raises(loaderx.OptionError, match="level"):
        choose_codec(WAVES, level=99)
    with pytest.raises(loaderx.OptionError, match="dict_size"):
        choose_codec(WAVES, dict_size=0)
    for data in (
        "waves.npy",
        {"a": WAVES},
        b"bytes",
        np.array(3),
        3,
        [{}],
        [b"bytes", [1, 2]],
        [[], [1, 2]],
        np.ma.array([1]),
    ):
        with pytest.raises(loaderx.SchemaError):
            choose_codec(data)  # type: ignore[arg-type]
    with pytest.raises(loaderx.SchemaError):
        choose_codec(np.array([{}]))
    assert not store_path.exists()


class Counting:
    """An array that counts what is read of it."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.dtype, self.shape = array.dtype, array.shape
        self.read: list[int] = []

    def __getitem__(self, key: slice) -> Array:
        self.read += range(len(self._array))[key]
        return self._array[key]


def test_sample_is_spread_and_bounded() -> None:
    source = Counting(np.broadcast_to(NOISE[:1], (1_000_000, 784)))
    choose_codec(source)
    assert 2000 < len(source.read) <= 4096
    assert source.read == sorted(source.read)
    assert source.read[0] == 0 and source.read[-1] == 999_999
    assert max(np.diff(source.read)) < 1000


def test_long_records_are_tried_in_pieces() -> None:
    long = np.broadcast_to(WAVES.reshape(-1)[None], (50, WAVES.size))
    choice = choose_codec(long)
    assert (choice.sampled_records, choice.sampled_bytes) == (4, 4 << 20)
    choice = choose_codec(list(long[:, :-1]))
    assert (choice.sampled_records, choice.sampled_bytes) == (4, 4 << 20)


def test_slow_levels_have_a_smaller_sample() -> None:
    assert choose_codec(np.tile(WAVES, (4, 1)), level=19).sampled_bytes == 1 << 20


def test_pieces_are_whole_items_of_the_middle() -> None:
    items = np.arange(1000, dtype="u2").view("V10")
    schema = new_schema(Path("data"), "fixed", items.dtype, items.shape, "zstd")
    (piece,) = SliceSamples(Path("data"), items[None], 1, schema).take(1000, piece_bytes=305)
    assert piece.tobytes() == items.tobytes()[850:1150]


@pytest.mark.parametrize(
    "data",
    [
        [3, 1, 2] * 400,
        (1.5, 2.5) * 400,
        range(800),
        ["cat", "dog", "ox"] * 300,
        [b"cat", b"dolphin"] * 300,
        [[1, 2], [3, 4]] * 300,
        [np.arange(50, dtype=">i2")] * 300,
        [np.arange(50, dtype="i2"), np.arange(50.0)] * 300,
        [],
        np.arange(800),
        memoryview(b"some bytes" * 100),
    ],
    ids=lambda data: f"{type(data).__name__} of {type(data[0]).__name__ if len(data) else 'nothing'}",
)
def test_whatever_write_dataset_takes(data: Any, store_path: Path) -> None:
    """The choice is that of codec="auto", and it is tried on the records that are written."""
    choice = choose_codec(data)
    assert write_dataset(store_path, data, "auto", progress=False) == len(data)
    with Dataset(store_path) as written:
        assert written.codec == choice.codec
        again = choose_codec(written)
        assert (again.codec, again.reason, again.sampled_bytes) == (
            choice.codec,
            choice.reason,
            choice.sampled_bytes,
        )


@pytest.mark.parametrize("dtype", ["int32", "f4", ">i2"])
def test_a_dtype_as_write_ragged_takes_it(dtype: str, store_path: Path) -> None:
    lists = [list(range(number % 7)) for number in range(900)]
    choice = choose_codec(lists, dtype=dtype)
    assert choice.sampled_bytes <= sum(map(len, lists)) * np.dtype(dtype).itemsize
    write_ragged(store_path, lists, dtype, codec="auto", progress=False)
    assert RaggedDataset(store_path).codec == choice.codec
    assert choose_codec(RaggedDataset(store_path)).reason == choice.reason
    # records of one length are ragged all the same where a dtype says so, and may round
    assert choose_codec([[0.1, 0.2]] * 3, dtype="f4").sampled_bytes == 3 * 2 * 4
    assert choose_codec(np.zeros((3, 5)), dtype="f4").sampled_bytes == 3 * 5 * 4
    with pytest.raises(loaderx.SchemaError, match="array 0 has no axis of rows"):
        choose_codec([1, 2], dtype=dtype)
    with pytest.raises(loaderx.SchemaError, match="does not fit the dataset's dtype int8"):
        choose_codec([[1000]], dtype="int8")


def test_arrays_in_a_list_are_not_copied_all() -> None:
    one = np.broadcast_to(np.uint8(1), (16 << 20,))
    assert choose_codec([one] * (1 << 14)).codec == "zstd"  # 256 GiB


class Wrong(Counting):
    """An array that gives other slices than it says."""

    def __getitem__(self, key: slice) -> Array:
        return np.zeros((3, 3))


def test_a_source_is_checked_as_it_is_when_it_is_written(store_path: Path) -> None:
    for call in (choose_codec, lambda source: write_dataset(store_path, source, progress=False)):
        with pytest.raises(loaderx.SchemaError, match=r"the source gave float64 \(3, 3\) for its slice 0:"):
            call(Wrong(WAVES))


#: Records of which every second is noise, or every fourth.
TURNS = [
    [records[number % period == 0] for number in range(n)]
    for records in [(np.zeros(400, np.uint8), NOISE.reshape(-1)[:400])]
    for period, n in [(2, 800), (2, 8192), (2, 20_000), (4, 8192)]
]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("records", TURNS, ids=["800", "8192", "20000", "every fourth"])
def test_records_that_take_turns_are_all_seen(records: list[Array], swapped: bool) -> None:
    """Equal steps through them would see one kind alone, and find that nothing, or nearly all, is saved."""
    if swapped:
        records = records[1:]
    noise = sum(record.any() for record in records) / len(records)
    for data in (records, np.stack(records), [*records, np.zeros(7, np.uint8)], iter(records)):
        choice = choose_codec(data)
        zstd = next(trial for trial in choice.candidates if trial.codec == "zstd")
        assert 1 / zstd.ratio == pytest.approx(noise, abs=0.1)
        assert choice.codec != "raw"


@pytest.mark.parametrize(
    "records",
    [
        [np.zeros(0, "i4"), np.arange(50, dtype="i4")] * 200,
        [np.arange(50, dtype="i4"), np.zeros(0, "i4")] * 200,
        [np.zeros(0, "i4")] * 299 + [np.arange(5000, dtype="i4")],
        [np.arange(5000, dtype="i4")] + [np.zeros(0, "i4")] * 299,
    ],
)
def test_records_of_which_many_are_empty(records: list[Array], new_path: Callable[[], Path]) -> None:
    for data in (records, iter(records)):
        choice = choose_codec(data)
        assert choice.sampled_bytes > 0 and choice.candidates
    for data in (records, iter(records)):
        path = new_path()
        assert write_ragged(path, data, codec="auto", progress=False) == len(records)
        assert read_schema(path).codec == choice.codec
        for got, expected in zip(RaggedDataset(path), records, strict=True):
            assert np.array_equal(got, expected)


@pytest.mark.parametrize(
    ("n_records", "level"),
    [*((n, None) for n in (1, 2, 255, 256, 4096, 4097, 100_000)), *((n, 12) for n in (1, 2, 256))],
)
@pytest.mark.parametrize("record_bytes", [1, 100, 4096, 4100, 1 << 20, 3 << 20])
def test_how_much_is_sampled(n_records: int, record_bytes: int, level: int | None) -> None:
    """As the documentation says it; of records of one length it can be told to the byte."""
    data = np.broadcast_to(np.uint8(1), (n_records, record_bytes))
    most_bytes = 1 << 20 if level == 12 else 4 << 20
    piece = min(record_bytes, most_bytes // 4)
    n = min(n_records, 4096, max(1, most_bytes // piece))
    if n >= 256 and piece <= 4096:
        n = n // -(-n * piece // (768 << 10)) // 2
        assert n * piece <= 384 << 10
    choice = choose_codec(data, level=level)
    assert (choice.sampled_records, choice.sampled_bytes) == (n, n * piece)


def test_what_is_said_of_an_iterable_is_true(store_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def messages() -> list[str]:
        found = [r.getMessage() for r in caplog.records if r.name == "loaderx.arrays.sampling"]
        caplog.clear()
        return found

    with caplog.at_level(logging.INFO, "loaderx"):
        choose_codec(iter(WAVES))
        write_ragged(store_path, iter(WAVES), codec="auto", progress=False)
        assert messages() == [], "all of it was looked at"
        n_bytes = 10 * WAVES[0].nbytes
        write_ragged(
            store_path, iter(WAVES), codec="auto", chunk_bytes=n_bytes, overwrite=True, progress=False
        )
        (message,) = messages()
        assert message.endswith(f"its first {n_bytes} bytes stand for all of it")


def test_a_choice_is_no_codec_but_has_one(store_path: Path) -> None:
    choice = choose_codec(WAVES)
    with pytest.raises(loaderx.OptionError, match=r"codec is a CodecChoice: give its codec, 'zstd_shuffle'$"):
        write_dataset(store_path, WAVES, choice)  # type: ignore[arg-type]
    assert not store_path.exists()


@pytest.mark.parametrize("ragged", [False, True])
def test_the_first_records_of_an_empty_dataset_choose(ragged: bool, store_path: Path) -> None:
    write: Callable[..., int] = write_ragged if ragged else write_dataset
    write(
        store_path,
        NOISE[:0] if not ragged else [NOISE[0, :0]][:0],
        *(["u1", ()] if ragged else []),
        codec="auto",
    )
    assert read_schema(store_path).codec == "zstd"
    write(store_path, NOISE[:0] if not ragged else iter(()), codec="auto", progress=False)
    assert read_schema(store_path).codec == "zstd"
    write(store_path, NOISE, codec="auto", progress=False)
    assert read_schema(store_path).codec == "raw"
    write(store_path, np.zeros_like(NOISE), codec="auto", progress=False)  # there are records now
    assert read_schema(store_path).codec == "raw"
    with Zrecord(store_path, mode="r") as store:
        assert store.stats()["codecs"] == {"raw": 1200}


def test_an_empty_dataset_gets_the_dictionary_that_its_first_records_choose(store_path: Path) -> None:
    write_ragged(store_path, iter(()), "u1", codec="auto", progress=False)
    write_ragged(store_path, iter(LINES), codec="auto", progress=False)
    assert read_schema(store_path).codec == "zstd_dict" and (store_path / "dict.zr").exists()
    for got, expected in zip(RaggedDataset(store_path), LINES, strict=True):
        assert np.array_equal(got, expected)


def test_a_codec_chosen_for_records_that_do_not_come_is_forgotten(store_path: Path) -> None:
    write_ragged(store_path, iter(()), "u1", codec="auto", progress=False)
    before = {path.name: path.read_bytes() for path in store_path.iterdir() if path.name == "schema.json"}

    def breaks() -> Iterator[Array]:
        yield from NOISE
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_ragged(store_path, breaks(), codec="auto", chunk_bytes=100_000, progress=False)
    assert {"schema.json": (store_path / "schema.json").read_bytes()} == before
    assert len(RaggedDataset(store_path)) == 0
