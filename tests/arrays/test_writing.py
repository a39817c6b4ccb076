"""Writing datasets: complete or not at all, in bounded memory, from any source."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import loaderx
from loaderx import Dataset, RaggedDataset, write_dataset, write_ragged
from loaderx.store import files
from tests.store.refusals import refusing

ROWS = np.random.default_rng(0).integers(0, 9, (500, 40), dtype="<i2")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_dataset_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "d.zr"
    seen: list[tuple[int, int | None, bool]] = []
    n = write_dataset(
        path, ROWS, chunk_bytes=8000, progress=lambda done, total: seen.append((done, total, path.exists()))
    )
    assert n == 500
    assert seen == [(8000 * (i + 1), 40_000, False) for i in range(5)]
    assert names(tmp_path) == ["d.zr"] and names(path) == ["0.zr", "meta.zr", "schema.json", "sums.zr"]
    assert np.array_equal(Dataset(path)[:], ROWS)


@pytest.mark.parametrize("operation", ["create", "write", "truncate", "fsync", "rename", "mkdir"])
def test_a_refused_write_leaves_nothing(operation: str, tmp_path: Path) -> None:
    path = tmp_path / "d.zr"
    with refusing("nothing") as seen:
        write_dataset(tmp_path / "whole.zr", ROWS, chunk_bytes=8000)
    assert seen.count(operation) > 0
    for after in range(seen.count(operation)):
        # The last fsync makes the new name durable: by then the dataset stands.
        with refusing(operation, after=after, once=True), pytest.raises(loaderx.StoreIOError):
            write_dataset(path, ROWS, chunk_bytes=8000)
        if path.exists():
            assert operation == "fsync" and after == seen.count(operation) - 1
            assert np.array_equal(Dataset(path)[:], ROWS)
        else:
            assert names(tmp_path) == ["whole.zr"]


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    def endless() -> Iterator[np.ndarray[Any, Any]]:
        for i in range(100):
            yield np.arange(i)
        raise RuntimeError("the source broke")

    with pytest.raises(KeyboardInterrupt):
        write_dataset(tmp_path / "d.zr", ROWS, progress=interrupt)
    with pytest.raises(RuntimeError, match="the source broke"):
        write_ragged(tmp_path / "r.zr", endless())
    assert names(tmp_path) == []


@pytest.mark.parametrize("codec", ["raw", "zstd", "zstd_dict"])
def test_appending_is_all_or_nothing(codec: Any, tmp_path: Path) -> None:
    path = tmp_path / "d.zr"
    write_dataset(path, ROWS, codec)
    schema = (path / "schema.json").read_bytes()

    def interrupt(done: int, total: int | None) -> None:
        if done > 20_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_dataset(path, ROWS[::-1], codec, chunk_bytes=8000, progress=interrupt)
    assert len(Dataset(path)) == 500
    assert write_dataset(path, ROWS[::-1], "raw", chunk_bytes=8000) == 500
    assert np.array_equal(Dataset(path)[:], np.concatenate([ROWS, ROWS[::-1]]))
    assert (path / "schema.json").read_bytes() == schema


def test_the_partial_store_of_a_killed_process_is_swept(tmp_path: Path) -> None:
    path = tmp_path / "d[1].zr"
    script = textwrap.dedent(
        """
        import sys, numpy, loaderx
        def wait(done, total):
            print("writing", flush=True)
            sys.stdin.read()
        loaderx.write_dataset(sys.argv[1], numpy.zeros((100, 1000)), chunk_bytes=8000, progress=wait)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as living:
        assert living.stdout is not None and living.stdout.readline() == "writing\n"
        (left,) = names(tmp_path)
        assert left.startswith(".d[1].zr.partial-")
        write_dataset(tmp_path / "other.zr", ROWS)
        write_dataset(path, ROWS)  # beside the living one's, which is kept
        assert names(tmp_path) == [left, "d[1].zr", "other.zr"]
        living.send_signal(signal.SIGKILL)
    write_dataset(path, ROWS, overwrite=True)
    assert names(tmp_path) == ["d[1].zr", "other.zr"]


def test_an_empty_folder_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "d.zr"
    path.mkdir()
    assert write_dataset(path, ROWS) == 500 and names(tmp_path) == ["d.zr"]


def test_a_folder_with_other_files_gets_the_schema_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d.zr"
    path.mkdir()
    (path / "notes.txt").write_text("keep me")
    moved: list[str] = []

    def observe(operation: str, source: Any, *details: Any) -> None:
        if operation == "rename" and details[0].parent == path:
            moved.append(details[0].name)

    monkeypatch.setattr(files, "observe", observe)
    write_dataset(path, ROWS, "zstd_dict")
    assert moved == ["0.zr", "dict.zr", "sums.zr", "meta.zr", "schema.json"]
    assert names(tmp_path) == ["d.zr"]
    assert names(path) == ["0.zr", "dict.zr", "meta.zr", "notes.txt", "schema.json", "sums.zr"]
    assert np.array_equal(Dataset(path)[:], ROWS) and (path / "notes.txt").read_text() == "keep me"


def test_a_refused_move_into_a_folder_takes_back_the_others(tmp_path: Path) -> None:
    path = tmp_path / "d.zr"
    path.mkdir()
    (path / "notes.txt").write_text("keep me")
    for after in range(2, 5):
        with refusing("rename", after=after, once=True), pytest.raises(loaderx.StoreIOError):
            write_dataset(path, ROWS)
        assert names(path) == ["notes.txt"]


@pytest.mark.root
def test_a_mount_point_is_written_into(tmp_path: Path) -> None:
    path = tmp_path / "d.zr"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=True)
    try:
        assert write_dataset(path, ROWS) == 500
        with Dataset(path) as ds:
            assert np.array_equal(ds[:], ROWS)
        assert names(path) == ["0.zr", "meta.zr", "schema.json", "sums.zr"] and names(tmp_path) == ["d.zr"]
    finally:
        subprocess.run(["umount", path], check=True)


@pytest.mark.root
def test_a_real_full_disk(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (600, 4096), dtype=np.uint8)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", tmp_path], check=True)
    try:
        with pytest.raises(loaderx.StoreIOError, match="No space left"):
            write_dataset(tmp_path / "d.zr", noise)
        assert names(tmp_path) == []
        write_dataset(tmp_path / "d.zr", noise[:200])
        with pytest.raises(loaderx.StoreIOError, match="No space left"):
            write_dataset(tmp_path / "d.zr", noise, chunk_bytes=100_000)
        with Dataset(tmp_path / "d.zr") as ds:
            assert np.array_equal(ds[:], noise[:200])
        assert write_dataset(tmp_path / "d.zr", noise[:200]) == 200  # what the failed one took is free again
        with Dataset(tmp_path / "d.zr") as ds:
            assert np.array_equal(ds[200:], noise[:200])
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize("can_exchange", [True, False])
def test_overwrite_replaces_when_the_new_one_stands(
    can_exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d.zr"
    write_dataset(path, ROWS)
    if not can_exchange:
        monkeypatch.setattr(files, "exchange", lambda source, target: False)
    with Dataset(path) as old:
        with refusing("fsync", after=2), pytest.raises(loaderx.StoreIOError):
            write_dataset(path, np.zeros(3), overwrite=True)
        assert np.array_equal(Dataset(path)[:], ROWS)
        assert write_dataset(path, np.arange(3.0), overwrite=True) == 3
        assert np.array_equal(old[:], ROWS)  # a handle on the old one reads on
    assert Dataset(path)[:].tolist() == [0, 1, 2]
    assert write_ragged(path, [[1, 2], [3]], overwrite=True) == 2
    assert RaggedDataset(path)[0].tolist() == [1, 2]
    assert names(tmp_path) == ["d.zr"]
    assert write_dataset(tmp_path / "new.zr", ROWS, overwrite=True) == 500


@pytest.mark.parametrize("n_bytes", [5, 200, 255])
def test_links_stay_links_and_long_names_are_fine(n_bytes: int, tmp_path: Path) -> None:
    real, link = tmp_path / ("r" * n_bytes), tmp_path / "link"
    link.symlink_to(real, target_is_directory=True)
    for array in (np.arange(3), np.arange(5)):
        write_dataset(link, array, overwrite=True)
        assert link.is_symlink() and Dataset(real)[:].tolist() == array.tolist()
        assert sorted(names(tmp_path)) == sorted(["link", real.name])
    assert write_dataset(link, np.arange(2)) == 2 and len(Dataset(real)) == 7


def test_a_forked_child_leaves_its_parents_dataset_alone(tmp_path: Path) -> None:
    def source() -> Iterator[np.ndarray[Any, Any]]:
        for i in range(200):
            if i == 100:
                pid = os.fork()
                if pid == 0:
                    raise SystemExit(0)  # unwinds through everything the parent is in the middle of
                assert os.waitpid(pid, 0)[1] == 0
            yield np.arange(i)

    def write() -> int:
        parent = os.getpid()
        try:
            return write_ragged(tmp_path / "r.zr", source(), codec="raw", chunk_bytes=1000)
        except BaseException as error:
            if os.getpid() != parent:
                os._exit(0 if isinstance(error, SystemExit) else 1)
            raise

    for round_ in range(2):  # a new dataset, and one that is appended to
        assert write() == 200
        values, splits = RaggedDataset(tmp_path / "r.zr")[200 * round_ :]
        assert values.tolist() == [k for i in range(200) for k in range(i)] and len(splits) == 201
    assert names(tmp_path) == ["r.zr"]


def test_numpy_integers_are_integers(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d.zr", ROWS, "zstd_dict", np.int64(8000), np.int32(2000), threads=np.int8(2))
    assert np.array_equal(
        Dataset(tmp_path / "d.zr", threads=np.uint8(1), max_batch_bytes=np.int64(1 << 20))[:], ROWS
    )


def test_memory_is_bounded_on_a_memory_map(tmp_path: Path, rss_anon: Callable[[], int], size: str) -> None:
    n_rows = 1 << 14 if size == "full" else 1 << 12
    with open(tmp_path / "big.bin", "wb") as stream:
        stream.truncate(n_rows << 18)
    array = np.memmap(tmp_path / "big.bin", np.uint8, "r", shape=(n_rows, 1 << 18))
    before = rss_anon()
    grown: list[int] = []
    n = write_dataset(
        tmp_path / "d.zr", array, level=1, progress=lambda done, total: grown.append(rss_anon() - before)
    )
    assert n == n_rows and len(grown) == n_rows // 256
    assert max(grown) < 512 << 20


def test_memory_is_bounded_on_an_iterable(tmp_path: Path, rss_anon: Callable[[], int]) -> None:
    before = rss_anon()
    grown: list[int] = []
    row = np.zeros(1 << 18, np.uint8)

    def source() -> Iterator[np.ndarray[Any, Any]]:
        for _ in range(1 << 12):
            grown.append(rss_anon() - before)
            yield row

    assert write_ragged(tmp_path / "r.zr", source(), level=1) == 1 << 12
    assert max(grown) < 512 << 20


def test_an_iterable_may_reuse_its_array(tmp_path: Path) -> None:
    buffer = np.zeros(4)

    def source() -> Iterator[np.ndarray[Any, Any]]:
        for i in range(100):
            buffer[:] = i
            yield buffer[: i % 5]

    write_ragged(tmp_path / "r.zr", source(), "f4")
    values, splits = RaggedDataset(tmp_path / "r.zr")[:]
    assert splits.tolist() == np.cumsum([0, *(i % 5 for i in range(100))]).tolist()
    assert values.dtype == np.float32 and values.tolist() == [
        float(i) for i in range(100) for _ in range(i % 5)
    ]


@pytest.mark.parametrize("as_iterable", [False, True])
def test_a_dictionary_is_trained_on_sequences_and_iterables(
    as_iterable: bool, tmp_path: Path, caplog: Any
) -> None:
    records = [
        np.frombuffer(f"user={i % 17};item={i * 7919 % 1000};country=NL".encode(), np.uint8)
        for i in range(3000)
    ]
    with caplog.at_level("INFO", "loaderx"):
        n = write_ragged(
            tmp_path / "r.zr",
            iter(records) if as_iterable else records,
            codec="zstd_dict",
            level=3,
            chunk_bytes=50_000,
        )
    assert n == 3000
    assert ("first 50000 bytes" in caplog.text) == as_iterable
    rds = RaggedDataset(tmp_path / "r.zr")
    assert all(np.array_equal(rds[i], record) for i, record in enumerate(records))
    assert rds._store.stats()["codecs"]["zstd_dict"] > 1000


def test_a_dictionary_sample_is_spread_over_the_data(tmp_path: Path) -> None:
    """The second half looks unlike the first; a sample of the first alone would not shrink it."""
    rng = np.random.default_rng(0)
    halves = [np.tile(rng.integers(0, 256, 64, dtype=np.uint8), (4000, 1)) for _ in range(2)]
    for half in halves:
        half[:, ::16] = rng.integers(0, 256, (4000, 4))
    write_dataset(tmp_path / "d.zr", np.concatenate(halves), "zstd_dict", level=3)
    ds = Dataset(tmp_path / "d.zr")
    stored = [ds._store.stats()["live_bytes"]]
    assert stored[0] < 0.7 * 8000 * 64
    assert np.array_equal(ds[:], np.concatenate(halves))


def test_a_dictionary_needs_data(tmp_path: Path) -> None:
    with pytest.raises(loaderx.DictionaryError) as caught:
        write_dataset(tmp_path / "d.zr", np.arange(5), "zstd_dict")
    assert caught.value.code == -9 and names(tmp_path) == []


def test_anything_that_gives_slices_is_read_slice_by_slice(tmp_path: Path) -> None:
    class Source:
        dtype, shape = ROWS.dtype, ROWS.shape
        asked: ClassVar[list[slice]] = []

        def __getitem__(self, key: slice) -> Any:
            self.asked.append(key)
            return ROWS[key]

    assert write_dataset(tmp_path / "d.zr", Source(), chunk_bytes=16_000) == 500
    assert Source.asked == [slice(0, 200), slice(200, 400), slice(400, 500)]
    assert np.array_equal(Dataset(tmp_path / "d.zr")[:], ROWS)


def test_a_source_that_breaks_its_word_is_refused(tmp_path: Path) -> None:
    class Source:
        dtype, shape = ROWS.dtype, (600, 40)

        def __getitem__(self, key: slice) -> Any:
            return ROWS[key]

    with pytest.raises(loaderx.SchemaError, match=r"slice 0:.* said int16"):
        write_dataset(tmp_path / "d.zr", Source())
    assert names(tmp_path) == []


def test_progress_shows_a_bar_on_demand_only(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_dataset(tmp_path / "a.zr", ROWS)
    write_dataset(tmp_path / "b.zr", ROWS, progress=False)
    assert capfd.readouterr().err == ""
    write_dataset(tmp_path / "c.zr", ROWS, progress=True)
    assert "39.1k" in capfd.readouterr().err


@pytest.mark.parametrize("shape", [(0, 3), (5, 0), (5, 3, 0), (0,), (0, 0)])
def test_arrays_of_nothing(shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.zeros(shape, "<f4")
    assert write_dataset(tmp_path / "d.zr", array) == shape[0]
    got = Dataset(tmp_path / "d.zr")[:]
    assert got.shape == shape and got.dtype == array.dtype
    assert os.path.getsize(tmp_path / "d.zr" / "0.zr") == 0


def test_an_empty_ragged_dataset_needs_a_dtype(tmp_path: Path) -> None:
    assert write_ragged(tmp_path / "r.zr", [], dtype="<f4", item_shape=(3,)) == 0
    rds = RaggedDataset(tmp_path / "r.zr")
    values, splits = rds[:]
    assert (values.shape, values.dtype, splits.tolist()) == ((0, 3), np.dtype("<f4"), [0])
    padded, lengths = rds.getitems_padded([])
    assert padded.shape == (0, 0, 3) and lengths.shape == (0,)
    assert (
        write_ragged(tmp_path / "r.zr", [np.ones((2, 3), "f4")]) == 1
        and len(RaggedDataset(tmp_path / "r.zr")) == 1
    )


def codecs(path: Path) -> dict[str, int]:
    with loaderx.Zrecord(path, mode="r") as store:
        counted: dict[str, int] = store.stats()["codecs"]
        return counted


STEPS = np.repeat(np.arange(300 * 10, dtype="i4"), 10).reshape(300, 100)


@pytest.mark.parametrize("codec", ["raw", "zstd", "zstd_dict", "zstd_shuffle", "zstd_shuffle_dict"])
@pytest.mark.parametrize("ragged", [False, True])
def test_appends_take_the_datasets_codec(codec: Any, ragged: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.zr"

    def write(**options: Any) -> None:
        if ragged:
            write_ragged(path, list(STEPS), progress=False, **options)
        else:
            write_dataset(path, STEPS, progress=False, **options)

    write(codec=codec)
    write()
    write(codec=None)
    assert codecs(path) == {codec: 900}
    other = "zstd" if codec == "raw" else "raw"
    write(codec=other)
    assert codecs(path) == {codec: 900, other: 300}, "what is named is taken"
    write()
    assert codecs(path) == {codec: 1200, other: 300}, "and the next append takes the dataset's again"
    write(overwrite=True)
    assert codecs(path) == {"zstd": 300}, "a new dataset is zstd, whatever it replaces"


def test_a_level_for_a_dataset_that_has_none(tmp_path: Path) -> None:
    path = tmp_path / "a.zr"
    write_dataset(path, STEPS, "raw")
    with pytest.raises(loaderx.OptionError, match=r"level is 5, and the dataset's codec, 'raw'") as caught:
        write_dataset(path, STEPS, level=5)
    assert caught.value.option == "level" and len(Dataset(path)) == 300
    write_dataset(path, STEPS, "zstd", level=5)
    write_dataset(path, STEPS, "auto", level=5)
    assert codecs(path) == {"raw": 600, "zstd": 300}


class Unclamped:
    """A source that takes slices by the letter."""

    dtype, shape = np.dtype("i4"), (1000, 3)

    def __getitem__(self, key: slice) -> np.ndarray[Any, Any]:
        return np.repeat(np.arange(key.start, key.stop, dtype="i4")[:, None], 3, axis=1)


@pytest.mark.parametrize("chunk_bytes", [1, 120, 64 << 20])
def test_slices_end_where_the_source_does(chunk_bytes: int, tmp_path: Path) -> None:
    assert write_dataset(tmp_path / "a.zr", Unclamped(), chunk_bytes=chunk_bytes) == 1000
    assert np.array_equal(Dataset(tmp_path / "a.zr")[:], Unclamped()[0:1000])
