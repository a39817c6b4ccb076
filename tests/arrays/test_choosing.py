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
from loaderx.arrays.sampling import SliceSamples, _evenly, _halving, shuffled
from loaderx.arrays.schema import read_schema

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


EMPTY = np.zeros(0, "i4")
NUMBERS = np.arange(50, dtype="i4")


@pytest.mark.parametrize(
    "arrays",
    [
        [EMPTY, NUMBERS] * 200,
        [NUMBERS, EMPTY] * 200,
        [EMPTY] * 299 + [NUMBERS],
        [NUMBERS] + [EMPTY] * 299,
        [EMPTY] * 4095 + [NUMBERS] * 3,
        [EMPTY] * 5000 + [NUMBERS],
    ],
    ids=["empty first", "full first", "full last", "one full", "three full", "beyond the sample"],
)
def test_empty_records_say_nothing(arrays: list[Array], new_path: Callable[[], Path]) -> None:
    full = [array for array in arrays if len(array)]
    for data, chunk_bytes in ((arrays, 64 << 20), (iter(arrays), 64 << 20), (iter(arrays), 100)):
        path = new_path()
        write_ragged(path, data, "i4", codec="auto", chunk_bytes=chunk_bytes, progress=False)
        got = RaggedDataset(path)
        assert len(got) == len(arrays) and all(map(np.array_equal, (row for row in got if len(row)), full))
    choice = choose_codec(arrays)
    assert choice.sampled_bytes == choice.sampled_records * NUMBERS.nbytes
    assert (choice.codec, choice.reason) == (choose_codec(full).codec, choose_codec(full).reason)


@pytest.mark.parametrize("period", [2, 3, 4, 8])
@pytest.mark.parametrize("n", [800, 8191, 8192, 16_384])
@pytest.mark.parametrize("shape", ["array", "ragged"])
def test_data_that_repeats_itself_is_judged_by_all_of_it(period: int, n: int, shape: str) -> None:
    """One record in `period` is noise, the others are zeros: they are that in what the codecs are tried on, too."""
    (zeros,) = (t.ratio for t in choose_codec(np.zeros((800, 400), np.uint8)).candidates if t.codec == "zstd")
    for first in (0, period - 1):
        records = np.zeros((n, 400), np.uint8)
        records[first::period] = NOISE[np.arange(len(records[first::period])) % len(NOISE), :400]
        choice = choose_codec(records if shape == "array" else list(records))
        assert choice.codec.startswith("zstd")
        (plain,) = (trial for trial in choice.candidates if trial.codec == "zstd")
        share_of_noise = (1 / plain.ratio - 1 / zeros) / (1 - 1 / zeros)
        assert share_of_noise == pytest.approx(
            1 / period, abs=0.06
        )  # of 400 records or more: three deviations


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
        [b"bytes"],
        np.array(3),
        [1, 2],
        [{}],
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
    (piece,) = SliceSamples(items[None], 1, 2000, 10).take(1000, piece_bytes=305)
    assert piece.tobytes() == items.tobytes()[850:1150]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 1000, 4097])
def test_orders_are_orders(n: int) -> None:
    assert sorted(shuffled(n).tolist()) == list(range(n))
    assert sorted(_halving(np.arange(n))) == list(range(n))
    for count in {0, 1, n // 3, n // 2, n} & set(range(n + 1)):
        indices = _evenly(n, count)
        assert len(set(indices.tolist())) == count and (np.diff(indices) > 0).all()
        assert count < 2 or (indices[0], indices[-1]) == (0, n - 1)


def test_every_beginning_of_a_sample_is_spread() -> None:
    order = np.array(_halving(np.arange(4096)))
    for taken in (1 << digits for digits in range(13)):
        assert sorted(order[:taken] * taken // 4096) == list(range(taken))
        if taken >= 256:
            assert 0.4 < np.mean(order[:taken] % 2) < 0.6 and 0.4 < np.mean(order[:taken] // 8 % 2) < 0.6
    indices = _evenly(1 << 20, 4096)
    assert 0.45 < np.mean(indices % 2) < 0.55 and np.diff(indices).max() < 512
