"""Readers beside a writer: `refresh`, what a reopened store shows, and files that change under a live map."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import loaderx
from loaderx import CorruptRecordError, Dataset, RaggedDataset, Zrecord
from tests.oracle import OracleStore
from tests.store.children import Pause, other_process
from tests.store.samples import SmallChunks, contents, fill, wait_until_looked_at_again

Io = Literal["mmap", "pread"]

#: How long the writer of a test writes.
WRITING_S = 1.0


@pytest.fixture(params=["mmap", "pread"])
def io(request: pytest.FixtureRequest) -> Io:
    return request.param  # type: ignore[no-any-return]


def row_of(number: int) -> np.ndarray[Any, Any]:
    """Return record `number` of a fixed store: its number, over and over."""
    return np.full(64, number, np.int64)


def rows_of(number: int) -> np.ndarray[Any, Any]:
    """Return record `number` of a ragged store: as many rows as its number says."""
    return np.full((number % 37, 2), number, np.int64)


def check_fixed(values: np.ndarray[Any, Any], indices: np.ndarray[Any, Any]) -> None:
    assert np.array_equal(values, np.repeat(indices[:, None], 64, axis=1)), "bytes that no writer wrote"


def check_ragged(
    values: np.ndarray[Any, Any], splits: np.ndarray[Any, Any], indices: np.ndarray[Any, Any]
) -> None:
    assert np.array_equal(np.diff(splits), indices % 37), "a record of another length"
    expected = np.repeat(np.repeat(indices, indices % 37)[:, None], 2, axis=1)
    assert np.array_equal(values, expected), "bytes that no writer wrote"


def write(path: Path, kind: str, codec: Any, pause: Pause) -> int:
    """Append for a while in batches of every size, opening the store anew now and then; return the length."""
    number = 0
    pause()
    end = time.monotonic() + WRITING_S
    z: Zrecord | None = None
    for size in itertools.cycle([1, 7, 100, 2, 30]):
        if time.monotonic() > end:
            break
        if z is None:
            z = Zrecord(path, codec, threads=1)
        if kind == "fixed":
            z.append(np.stack([row_of(n) for n in range(number, number + size)]), size, 512)
        else:
            fill(z, [rows_of(n).tobytes() for n in range(number, number + size)])
        number += size
        if size == 2:
            z.close()
            z = None
    if z is not None:
        z.close()
    return number


class Follower:
    """Reads what a writer appends, and checks each record and that the length only grows."""

    def __init__(self, path: Path, kind: str, io: Io, *, verify: bool = False) -> None:
        self.kind = kind
        self.dataset: Any = (Dataset if kind == "fixed" else RaggedDataset)(
            path, io=io, threads=1, verify=verify
        )
        self.length = 0
        self.rng = np.random.default_rng()

    def look(self) -> int:
        length = self.dataset.refresh()
        assert length == len(self.dataset) >= self.length, "records went away"
        newest = np.arange(max(0, length - 20), length)
        self.length = length
        if length:
            self._read(np.concatenate([newest, self.rng.integers(0, length, 30)]))
        with pytest.raises(loaderx.RecordIndexError):
            self.dataset[length]
        return length

    def _read(self, indices: np.ndarray[Any, Any]) -> None:
        if self.kind == "fixed":
            check_fixed(self.dataset[indices], indices)
        else:
            check_ragged(*self.dataset[indices], indices)


def make(path: Path, kind: str, codec: Any) -> None:
    if kind == "fixed":
        loaderx.write_dataset(path, np.empty((0, 64), np.int64), codec, progress=False)
    else:
        loaderx.write_ragged(path, [], dtype=np.int64, item_shape=(2,), codec=codec, progress=False)


@pytest.mark.parametrize("codec", ["raw", "zstd"])
@pytest.mark.parametrize("kind", ["fixed", "ragged"])
def test_readers_in_threads_and_processes(kind: str, codec: Any, io: Io, store_path: Path) -> None:
    """Never half a record, never fewer than before, wherever the readers are."""
    path = store_path
    make(path, kind, codec)

    def follow(pause: Pause) -> list[int]:
        follower = Follower(path, kind, io, verify=True)
        pause()
        end = time.monotonic() + WRITING_S
        lengths = []
        while time.monotonic() < end:
            lengths.append(follower.look())
        pause()
        lengths.append(follower.look())
        follower.dataset.close()
        return lengths

    with (
        other_process(lambda pause: write(path, kind, codec, pause)) as writer,
        other_process(follow) as reader,
    ):
        shared = Follower(path, kind, io)
        faults: list[BaseException] = []
        done = threading.Event()

        def follow_in_a_thread(follower: Follower) -> None:
            try:
                while not done.is_set():
                    follower.look()
            except BaseException as error:
                faults.append(error)

        own = Follower(path, kind, io)
        threads = [threading.Thread(target=follow_in_a_thread, args=[own])]
        threads += [threading.Thread(target=refresh_in_a_thread, args=[shared, done, faults]) for _ in "ab"]
        for thread in threads:
            thread.start()
        reader.tell()
        total = writer.go()
        reader.wait()
        done.set()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
        assert own.look() == shared.look() == total
        lengths = reader.go()
        assert lengths[-1] == total
        assert len(set(lengths)) > 3, "the reader saw the store grow"
    assert len(OracleStore(path)) == total
    with Dataset(path) if kind == "fixed" else RaggedDataset(path) as again:
        assert len(again) == total
    assert OracleStore(path).faults() == []


def refresh_in_a_thread(shared: Follower, done: threading.Event, faults: list[BaseException]) -> None:
    """Refresh and read a handle that other threads refresh and read too: its length may grow at any moment."""
    try:
        while not done.is_set():
            length = shared.dataset.refresh()
            assert len(shared.dataset) >= length
            if length:
                indices = np.random.default_rng().integers(0, length, 30)
                shared._read(indices)
    except BaseException as error:
        faults.append(error)


def test_refresh_shows_what_was_committed(io: Io, store_path: Path) -> None:
    def body(pause: Pause) -> None:
        z = Zrecord(store_path, "raw")
        fill(z, [b"one", b"two"])
        pause()
        with z.appending() as append:
            append.add(b"abcd", 2, 2)
            pause()
        pause()
        z.close()
        pause()

    with other_process(body) as writer, Zrecord(store_path, mode="r", io=io) as z:
        assert len(z) == z.refresh() == 2
        writer.go()  # in the middle of an append
        assert z.refresh() == 2
        with pytest.raises(loaderx.RecordIndexError):
            z.gather_packed([2])
        writer.go()  # committed
        assert len(z) == 2, "without a refresh nothing changes"
        assert z.refresh() == len(z) == 4
        assert z.gather_packed([3, 0, 2])[0].tobytes() == b"cdoneab"
        with Zrecord(store_path, mode="r", io=io) as again:
            assert len(again) == 4
        writer.go()  # closed
        assert z.refresh() == 4


@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_refresh_follows_into_new_chunks(codec: Any, io: Io, store_path: Path) -> None:
    records = [np.random.default_rng(n).bytes(1 + 90 * n % 700) for n in range(60)]

    def body(pause: Pause) -> None:
        z = SmallChunks(store_path, codec)
        for first in range(0, 60, 6):
            fill(z, records[first : first + 6])
            pause()

    with other_process(body) as writer, Zrecord(store_path, mode="r", io=io) as z:
        for last in range(6, 60, 6):
            assert z.refresh() == last
            data, splits = z.gather_packed(np.arange(last))
            assert [data[a:b].tobytes() for a, b in itertools.pairwise(splits)] == records[:last]
            writer.go()
        assert z.refresh() == 60
        assert OracleStore(store_path).tail_chunk > 10


def test_refresh_sees_other_handles_of_this_process(io: Io, store_path: Path) -> None:
    with Zrecord(store_path, "raw") as writer, Zrecord(store_path, mode="r", io=io) as reader:
        for number in range(5):
            fill(writer, [bytes([number]) * 100])
            assert len(reader) == number
            assert reader.refresh() == number + 1
            assert writer.refresh() == number + 1
            assert reader.gather_packed([number])[0].tobytes() == bytes([number]) * 100


def test_a_handle_that_may_write_refreshes_too(io: Io, store_path: Path) -> None:
    def body(pause: Pause) -> None:
        for number in range(3):
            with SmallChunks(store_path, "raw") as z:
                fill(z, [bytes([number]) * 400] * 3)
            pause()

    with other_process(body) as writer, SmallChunks(store_path, "raw", io=io) as z:
        assert z.refresh() == 3
        writer.go()
        assert z.refresh() == 6
        writer.go()
        # an append sees the others' records without a refresh
        assert fill(z, [b"own"]) == 9 and len(z) == 10
        assert z.gather_packed([8, 9])[0].tobytes() == b"\2" * 400 + b"own"


def test_a_store_that_another_process_compacted_meanwhile(io: Io, store_path: Path) -> None:
    records = [bytes([number]) * 300 for number in range(30)]
    with SmallChunks(store_path, "raw") as z:
        fill(z, records)

    def body(pause: Pause) -> None:
        pause()
        with SmallChunks(store_path, "raw") as z:
            z.delete(np.arange(20))
            z.compact()
        pause()
        with SmallChunks(store_path, "raw") as z:
            fill(z, [b"new"] * 5)
        pause()

    with other_process(body) as other:
        with Zrecord(store_path, mode="r", io=io) as z:
            assert len(z) == 30
        other.go()
        with Zrecord(store_path, mode="r", io=io) as z:
            assert len(z) == z.refresh() == 10
            left = z.gather_packed(np.arange(10))[0].tobytes()
            assert left == b"".join(contents(store_path))
            assert sorted(left[i : i + 300] for i in range(0, 3000, 300)) == sorted(records[20:])
            other.go()
            assert z.refresh() == 15
            assert z.gather_packed(np.arange(15))[0].tobytes() == left + b"new" * 5


def test_refresh_after_deletes_and_compactions_through_the_same_handle(io: Io, store_path: Path) -> None:
    with SmallChunks(store_path, "raw", io=io) as z:
        fill(z, [bytes([number]) * 300 for number in range(30)])
        z.delete(np.arange(10))
        assert z.refresh() == len(z) == 20
        z.compact()
        assert z.refresh() == 20
        assert z.gather_packed(np.arange(20))[0].tobytes() == b"".join(contents(store_path))


@pytest.mark.parametrize("kind", ["Zrecord", "Dataset", "RaggedDataset"])
def test_refresh_of_a_closed_handle(kind: str, store_path: Path) -> None:
    if kind == "RaggedDataset":
        loaderx.write_ragged(store_path, [np.arange(3)], progress=False)
    else:
        loaderx.write_dataset(store_path, np.arange(3), progress=False)
    handle = getattr(loaderx, kind)(store_path)
    assert handle.refresh() == len(handle)
    handle.close()
    with pytest.raises(loaderx.ClosedError):
        handle.refresh()


def test_refresh_keeps_a_dictionary_of_the_writer(io: Io, store_path: Path) -> None:
    records = [f"user={i % 17};item={i * 7919 % 1000};country=NL;device=phone".encode() for i in range(2000)]

    def body(pause: Pause) -> None:
        z = Zrecord(store_path, "zstd_dict", level=3)
        pause()
        z.train_dict(b"".join(records), [len(record) for record in records], 2000)
        fill(z, records)
        pause()

    with other_process(body) as writer, Zrecord(store_path, mode="r", io=io) as z:
        assert z.refresh() == 0 and not z.has_dict()
        writer.go()
        assert z.refresh() == 2000 and z.has_dict()
        assert z.gather_packed([7, 1999])[0].tobytes() == records[7] + records[1999]


def test_refresh_while_threads_read_and_close(io: Io, store_path: Path) -> None:
    make(store_path, "fixed", "raw")
    with Zrecord(store_path, "raw") as writer:
        outcomes: list[str] = []
        dataset = Dataset(store_path, io=io)
        started = threading.Barrier(4)

        def follow() -> None:
            started.wait()
            try:
                while True:
                    length = dataset.refresh()
                    indices = np.arange(max(0, length - 10), length)
                    check_fixed(dataset[indices], indices)
            except loaderx.ClosedError:
                outcomes.append("closed")
            except BaseException as error:
                outcomes.append(repr(error))

        threads = [threading.Thread(target=follow) for _ in range(3)]
        for thread in threads:
            thread.start()
        started.wait()
        for number in range(200):
            writer.append(row_of(number), 1, 512)
        dataset.close()
        for thread in threads:
            thread.join()
        assert outcomes == ["closed"] * 3


# ---- files that change under a live map --------------------------------------------------------------------------


def cut_store(path: Path) -> list[bytes]:
    records = [bytes([number]) * 1000 for number in range(100)]
    with Zrecord(path, "raw") as z:
        fill(z, records)
    return records


def test_a_chunk_cut_between_refreshes(io: Io, store_path: Path) -> None:
    records = cut_store(store_path)
    with Zrecord(store_path, mode="r", io=io) as z:
        z.gather_packed(np.arange(100))
        os.truncate(store_path / "0.zr", 50_500)
        wait_until_looked_at_again()
        for _ in range(2):
            with pytest.raises(CorruptRecordError) as caught:
                z.gather_packed(np.arange(100))
            assert (caught.value.record, caught.value.chunk, caught.value.byte_offset) == (50, 0, 50_000)
            assert z.gather_packed(np.arange(50))[0].tobytes() == b"".join(records[:50])
            assert z.refresh() == 100


def test_a_table_cut_between_refreshes(io: Io, store_path: Path) -> None:
    records = cut_store(store_path)
    with Zrecord(store_path, mode="r", io=io) as z:
        os.truncate(store_path / "meta.zr", 16 + 16 * 50)
        wait_until_looked_at_again()
        with pytest.raises(CorruptRecordError, match=r"cut off"):
            z.refresh()
        with pytest.raises(CorruptRecordError, match=r"cut off"):
            z.gather_packed(np.arange(100))
        assert z.gather_packed(np.arange(50))[0].tobytes() == b"".join(records[:50])


def test_a_chunk_replaced_under_its_name(io: Io, store_path: Path) -> None:
    """Until a refresh, what was opened is read; afterwards, what is there."""
    records = cut_store(store_path)
    with Zrecord(store_path, mode="r", io=io) as z:
        new = bytes(reversed(b"".join(records)))
        (store_path / "new").write_bytes(new)
        os.rename(store_path / "new", store_path / "0.zr")
        assert z.gather_packed(np.arange(100))[0].tobytes() == b"".join(records)
        assert z.refresh() == 100
        assert z.gather_packed(np.arange(100))[0].tobytes() == new


def test_a_whole_store_replaced_under_its_name(io: Io, store_path: Path, tmp_path: Path) -> None:
    records = cut_store(store_path)
    with Zrecord(tmp_path / "other.zr", "raw") as other:
        fill(other, [b"other"] * 7)
    with Zrecord(store_path, mode="r", io=io) as z:
        shutil.move(store_path, tmp_path / "old.zr")
        shutil.move(tmp_path / "other.zr", store_path)
        assert z.gather_packed(np.arange(100))[0].tobytes() == b"".join(records)
        # Whichever of the two it shows now, it is the whole of one.
        with contextlib.suppress(loaderx.ZrecordError):
            length = z.refresh()
            data = z.gather_packed(np.arange(length))[0].tobytes()
            assert data in (b"other" * 7, b"".join(records))
    with Zrecord(store_path, mode="r", io=io) as z:
        assert z.gather_packed(np.arange(7))[0].tobytes() == b"other" * 7


def test_a_store_removed_under_a_reader(io: Io, store_path: Path) -> None:
    records = cut_store(store_path)
    with Zrecord(store_path, mode="r", io=io) as z:
        shutil.rmtree(store_path)
        assert z.gather_packed(np.arange(100))[0].tobytes() == b"".join(records)
        with contextlib.suppress(loaderx.ZrecordError):
            assert z.refresh() == 100


def test_a_file_cut_while_threads_read(io: Io, store_path: Path) -> None:
    """An error or the right bytes; what no check can catch is a cut within a batch, so the batches are kept apart."""
    records = cut_store(store_path)
    size = os.path.getsize(store_path / "0.zr")
    turn = threading.Lock()
    done = threading.Event()
    outcomes: set[str] = set()

    def read() -> None:
        while not done.is_set():
            with turn:
                wait_until_looked_at_again()
                try:
                    data = z.gather_packed(np.arange(100))[0].tobytes()
                    outcomes.add("good" if data == b"".join(records) else "wrong")
                except CorruptRecordError:
                    outcomes.add("error")

    with Zrecord(store_path, mode="r", io=io) as z:
        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        rest = (store_path / "0.zr").read_bytes()[30_000:]
        for _ in range(10):
            with turn:
                os.truncate(store_path / "0.zr", 30_000)
            time.sleep(
                0.02
            )  # the readers read meanwhile, and what they know of the size is 10 ms old at most
            with turn, (store_path / "0.zr").open("r+b") as file:
                file.seek(30_000)
                file.write(rest)
            time.sleep(0.02)
        done.set()
        for thread in threads:
            thread.join()
    assert os.path.getsize(store_path / "0.zr") == size
    assert outcomes == {"good", "error"}


def facts(store: Zrecord) -> dict[str, Any]:
    stats = store.stats()
    assert stats["reclaimable"] == stats["chunk_bytes"] - stats["live_bytes"]
    return {name: stats[name] for name in ("records", "live_bytes", "chunk_bytes", "format_version")}


def test_stats_are_of_the_records_that_the_reader_sees(io: Io, store_path: Path) -> None:
    first = {"records": 1, "live_bytes": 900, "chunk_bytes": 900, "format_version": 3}
    with SmallChunks(store_path, "raw", upgrade=True) as writer:
        writer.append(bytes(900), 1, 900)
        with SmallChunks(store_path, mode="r", io=io) as reader:
            assert facts(writer) == facts(reader) == first
            # into chunks that the reader has not opened, and into a version that it has not seen
            for _ in range(20):
                writer.append(bytes(900), 1, 900)
            numbers = np.arange(1000, dtype="f4")
            writer.append(numbers, 4, 1000, "zstd_shuffle", item_size=4)
            assert facts(reader) == first
            assert reader.stats()["codecs"] == {"raw": 1}
            reader.refresh()
            assert facts(reader) == facts(writer)
            assert (facts(reader)["records"], facts(reader)["format_version"]) == (25, 4)
    with SmallChunks(store_path, mode="r", io=io) as later:
        assert facts(later)["records"] == 25


def test_stats_count_no_byte_of_the_writers_room(io: Io, store_path: Path) -> None:
    """A record that is written and not yet committed fills the byte that a writer's tail lies behind."""
    with Zrecord(store_path, "raw") as writer:
        writer.append(bytes(900), 1, 900)
        with writer.appending() as append:
            append.add(bytes(500), 1, 500)
            with Zrecord(store_path, mode="r", io=io) as reader:
                assert facts(reader) == {
                    "records": 1,
                    "live_bytes": 900,
                    "chunk_bytes": 900,
                    "format_version": 3,
                }
                assert reader.refresh() == 1 and facts(reader)["chunk_bytes"] == 900
