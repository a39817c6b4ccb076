"""Changing a store: what is written in which order, what stays when a write fails, delete and compact."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loaderx
from loaderx import Zrecord
from loaderx.store import files
from tests.oracle import META_BYTES, Forge, OracleStore, swap_delete
from tests.store.children import in_child
from tests.store.refusals import refusing
from tests.store.samples import SmallChunks, contents, fill, read, some_records, tree

pytestmark = pytest.mark.usefixtures("nothing_is_made_durable")


def test_the_order_is_data_sums_entries_mark_tail_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str, int, int]] = []

    def observe(operation: str, where: Any, *details: Any) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{where}")).name if isinstance(where, int) else where.name
        data, offset = details if operation == "write" else (b"", 0)
        seen.append((operation, name, offset, len(memoryview(data).cast("B"))))

    with Zrecord(tmp_path / "s.zr", "raw") as z:
        z.append(bytes(30), 3, 10)
        monkeypatch.setattr(files, "observe", observe)
        z.append(bytes(20), 2, 10)
        assert seen == [
            ("write", "0.zr", 30, 20),
            ("write", "sums.zr", 32 + 3 * 8, 16),
            ("write", "meta.zr", 16 + 3 * 16, 32),
            ("write", "sums.zr", 0, 32),
            ("write", "meta.zr", 8, 4),
            ("write", "meta.zr", 12, 4),
        ]


@pytest.mark.parametrize("cls", [Zrecord, SmallChunks])
@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_a_refused_append_leaves_the_store_as_it_was(cls: type[Zrecord], codec: Any, tmp_path: Path) -> None:
    """Refuse each operation of an append in turn; then the same append must work."""
    old, new = some_records(10), some_records(30, seed=1)
    path = tmp_path / "s.zr"
    with cls(path, codec) as z:
        fill(z, old)
        with refusing("nothing") as seen:
            fill(z, new)
        z.delete(np.arange(10, 40))
        z.compact()
        assert contents(path) == old
        before = tree(path)
        assert {"write", *(["create"] if cls is SmallChunks else [])} <= set(seen)
        for operation in sorted(set(seen)):
            for after in range(seen.count(operation)):
                # A full disk refuses every write that follows, and still lets go of what it holds.
                once = operation in ("unlink", "truncate")
                with (
                    refusing(operation, after=after, once=once),
                    pytest.raises(loaderx.StoreIOError) as caught,
                ):
                    fill(z, new)
                assert caught.value.errno == errno.ENOSPC
                assert len(z) == 10
                assert contents(path) == old
                # Where even putting the tail back is refused, the new chunks must stay: the header names them.
                if (operation, after) != ("write", seen.count("write") - 1):
                    assert tree(path) | before == tree(path) and tree(path).keys() - before <= {"mark.zr"}
        assert fill(z, new) == 10
        assert contents(path) == old + new


def test_an_interrupted_append_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    with Zrecord(tmp_path / "s.zr") as z:
        fill(z, some_records(5))
        with pytest.raises(KeyboardInterrupt), z.appending() as append:
            append.add(bytes(100), 10, 10)
            raise KeyboardInterrupt
        assert len(z) == 5 and contents(z.path) == some_records(5)
        assert fill(z, [b"x"]) == 5


def test_parts_are_one_append(tmp_path: Path) -> None:
    with Zrecord(tmp_path / "s.zr") as z:
        fill(z, [b"first"])
        with z.appending() as append:
            append.add(b"abcd", 2, 2)
            assert len(z) == 1  # nothing is visible before the end
            append.add_var(b"xyz", [1, 0], [2, 3], "raw")
            append.add(b"", 0, 5)
        assert append.first == 1
        assert contents(z.path) == [b"first", b"ab", b"cd", b"yz", b"xyz"]


def test_a_part_that_failed_is_not_committed_with_the_others(tmp_path: Path) -> None:
    with SmallChunks(tmp_path / "s.zr", "raw") as z:
        fill(z, [b"first"])
        with pytest.raises(loaderx.ZrecordError, match="none of it is committed"), z.appending() as append:
            append.add(b"ab", 2, 1)
            with refusing("create", once=True), pytest.raises(loaderx.StoreIOError):
                append.add(bytes(3000), 10, 300)
        assert len(z) == 1 and contents(z.path) == [b"first"]


def test_a_handle_closed_during_a_change_stays_closed(tmp_path: Path) -> None:
    z = Zrecord(tmp_path / "s.zr")
    with z.appending() as append:
        append.add(b"ab", 2, 1)
        z.close()
    with pytest.raises(loaderx.ClosedError):
        len(z)
    assert contents(z.path) == [b"a", b"b"]


def test_a_forked_child_leaves_its_parents_append_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.zr"
    with Zrecord(path, "raw") as z:
        fill(z, [b"first"])
        with z.appending() as append:
            append.add(b"abcd" * 100, 100, 4)

            def leave() -> None:
                try:
                    append.add(b"child", 1, 5)
                finally:
                    append._appender.__exit__(None, None, None)

            with pytest.raises(loaderx.StoreLockedError, match="begun by process"):
                in_child(leave)
            append.add(b"last", 1, 4)
        assert contents(path) == [b"first", *[b"abcd"] * 100, b"last"]


def test_a_handle_meets_chunks_that_another_has_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where nothing holds the other away: a file system without locks."""

    def without_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without_locks)
    monkeypatch.setattr("loaderx.store.flock._warned", True)
    path = tmp_path / "s.zr"
    first = SmallChunks(path, "raw")
    first.append(b"a" * 3000, 30, 100)

    def another() -> None:
        first.close()  # the child's copy
        second = SmallChunks(path, "raw")
        second.delete(np.arange(25))
        second.compact()
        second.append(b"N" * 2000, 20, 100)
        second.close()

    in_child(another)
    first.append(b"Z" * 100, 1, 100)
    expected = b"a" * 500 + b"N" * 2000 + b"Z" * 100
    assert bytes(first.gather_packed(np.arange(26))[0]) == expected
    assert b"".join(contents(first.path)) == expected


def test_a_handle_meets_a_dictionary_that_another_has_trained(tmp_path: Path) -> None:
    records = [f"user={i % 17};item={i * 7919 % 1000};country=NL;device=phone".encode() for i in range(2000)]
    for part in (records, [record[::-1] for record in records]):
        first = Zrecord(tmp_path / "s.zr", "zstd_dict", level=3)
        with Zrecord(tmp_path / "s.zr") as second:
            second.train_dict(b"".join(part), [len(record) for record in part], 2000)
        fill(first, part)
        assert [bytes(first.gather_packed([i])[0]) for i in (0, 7, 99)] == [part[i] for i in (0, 7, 99)]
        assert contents(first.path) == part
        first.delete(np.arange(len(first)))  # so that no record depends on the dictionary
        first.close()


def test_threads_train_at_once(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).integers(0, 4, 100_000, dtype=np.uint8)
    with Zrecord(tmp_path / "s.zr") as z, ThreadPoolExecutor(4) as pool:
        sizes = list(pool.map(lambda _: z.train_dict(samples, [100] * 1000, 2000), range(12)))
    assert len(set(sizes)) == 1
    assert sorted(tree(tmp_path / "s.zr")) == ["0.zr", "dict.zr", "lock.zr", "meta.zr"]


def test_what_a_killed_training_left_is_swept(tmp_path: Path) -> None:
    with Zrecord(tmp_path / "s.zr") as z:
        left = z.path / ".dict.zr.partial-999999-abcd"
        left.write_bytes(b"half")
        z.train_dict(np.random.default_rng(0).integers(0, 4, 100_000, dtype=np.uint8), [100] * 1000, 2000)
        assert not left.exists() and z.has_dict()


@pytest.mark.root
def test_a_full_disk_is_free_again_after_a_failed_append(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", tmp_path], check=True)
    try:
        with Zrecord(tmp_path / "s.zr", "raw") as z:
            z.append(bytes(range(250)) * 2000, 500, 1000)
            before = [
                ((tmp_path / "s.zr" / name).stat().st_size, (tmp_path / "s.zr" / name).stat().st_blocks)
                for name in ("0.zr", "meta.zr")
            ]
            with pytest.raises(loaderx.StoreIOError, match="free some space"):
                z.append(bytes(4_000_000), 4000, 1000)
            assert before == [
                ((tmp_path / "s.zr" / name).stat().st_size, (tmp_path / "s.zr" / name).stat().st_blocks)
                for name in ("0.zr", "meta.zr")
            ]
            assert z.append(bytes(range(250)) * 2000, 500, 1000) == 500
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_threads_append_one_after_the_other(tmp_path: Path) -> None:
    with Zrecord(tmp_path / "s.zr") as z, ThreadPoolExecutor(8) as pool:
        firsts = list(pool.map(lambda k: z.append(bytes([k]) * 60, 20, 3), range(40)))
        assert sorted(firsts) == list(range(0, 800, 20))
        stored = contents(z.path)
        for k, first in enumerate(firsts):
            assert stored[first : first + 20] == [bytes([k]) * 3] * 20


@pytest.mark.parametrize("codec", ["raw", "zstd"])
@pytest.mark.parametrize("order", ["together", "apart", "overlapping"])
def test_sources_as_they_lie(codec: Any, order: str, tmp_path: Path) -> None:
    source = np.random.default_rng(0).integers(0, 4, 100_000, dtype=np.uint8)
    starts = {
        "together": np.arange(900) * 100,
        "apart": np.arange(900)[::-1] * 110,
        "overlapping": np.arange(900) * 3,
    }[order]
    with Zrecord(tmp_path / "s.zr", codec) as z:
        z.append_var(source, starts, np.full(900, 100, np.uint32))
        assert contents(z.path) == [source[s : s + 100].tobytes() for s in starts]


def test_any_source_buffer_will_do(tmp_path: Path) -> None:
    grid = np.arange(24, dtype="<i4").reshape(4, 6)
    with Zrecord(tmp_path / "s.zr") as z:
        for source in (
            grid,
            np.asfortranarray(grid),
            grid[::-1, ::-1][::-1, ::-1],
            memoryview(grid),
            grid.tobytes(),
            bytearray(grid.tobytes()),
            grid.view("<u4"),
        ):
            z.append(source, 4, 24)
        z.append(np.broadcast_to(np.int32(7), (4, 6)), 4, 24)
        z.append(memoryview(grid)[::1], 4, 24)
        assert contents(z.path) == [row.tobytes() for row in grid] * 7 + [
            np.full(6, 7, "<i4").tobytes()
        ] * 4 + [row.tobytes() for row in grid]


def test_what_does_not_shrink_is_stored_raw(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8).tobytes()
    with Zrecord(tmp_path / "s.zr", "zstd") as z:
        fill(z, [noise, bytes(5000), b"", b"a"])
        assert z.stats()["codecs"] == {"raw": 3, "zstd": 1}
        assert z.stats()["live_bytes"] < 5100


def test_levels_count(tmp_path: Path) -> None:
    text = b" ".join(str(i * i).encode() for i in range(20_000))
    sizes = {}
    for level in (-50, 1, None, 19):
        with Zrecord(tmp_path / f"{level}.zr", level=level) as z:
            z.append(text[:100_000], 1, 100_000)
            sizes[level] = z.stats()["live_bytes"]
    assert sizes[19] < sizes[None] < sizes[-50] and sizes[1] != sizes[19]


def test_chunks_roll_over_as_the_format_says(tmp_path: Path) -> None:
    """A record goes to the next chunk where it would end at the chunk's end or beyond."""
    sizes = [400, 599, 1, 999, 0, 500, 499, 500, 500]
    with SmallChunks(tmp_path / "s.zr", "raw") as z:
        for part in (sizes[:3], sizes[3:7], sizes[7:]):
            fill(z, [bytes([size % 251]) * size for size in part])
        entries = OracleStore(z.path).table
        places = [(int(e["chunk_id"]), int(e["offset"])) for e in entries]
        assert places == [(0, 0), (0, 400), (1, 0), (2, 0), (2, 999), (3, 0), (3, 500), (4, 0), (5, 0)]
        assert contents(z.path) == [bytes([size % 251]) * size for size in sizes]


def test_a_chunk_left_by_a_killed_append_is_not_in_the_way(tmp_path: Path) -> None:
    with SmallChunks(tmp_path / "s.zr", "raw") as z:
        fill(z, [bytes(900)])
        (z.path / "1.zr").write_bytes(b"left behind" * 100)
        fill(z, [b"x" * 300])
        assert contents(z.path) == [bytes(900), b"x" * 300] and (z.path / "1.zr").stat().st_size == 300


def test_a_cut_table_gets_its_full_size_back_before_0_7_3_may_append(tmp_path: Path) -> None:
    forge = Forge()
    forge.add(b"abc")
    path = forge.write(tmp_path / "s.zr", meta_bytes=None)
    with Zrecord(path) as z:
        assert (path / "meta.zr").stat().st_size == 32
        fill(z, [b"d"])
        assert (path / "meta.zr").stat().st_size == META_BYTES
        assert contents(path) == [b"abc", b"d"]


@given(data=st.data())
def test_delete_and_compact_follow_the_model(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("model") / "s.zr"
    model: list[bytes] = []
    with SmallChunks(path, data.draw(st.sampled_from(["raw", "zstd"]))) as z:
        for step in range(data.draw(st.integers(1, 5))):
            new = some_records(data.draw(st.integers(0, 25)), seed=step)
            fill(z, new)
            model += new
            targets = (
                data.draw(st.lists(st.integers(-len(model), len(model) - 1), max_size=12)) if model else []
            )
            z.delete(targets)
            model = (
                swap_delete(model, sorted({target % len(model) for target in targets})) if targets else model
            )
            if data.draw(st.booleans()):
                z.compact()
                stats = z.stats()
                assert stats["reclaimable"] <= 200 * (len(list(path.glob("*.zr"))) - 1)
            assert contents(path) == model
            read, splits = z.gather_packed(np.arange(len(model)))
            assert [read[a:b].tobytes() for a, b in itertools.pairwise(splits)] == model


def test_compact_gives_space_back(tmp_path: Path) -> None:
    records = some_records(200)
    with SmallChunks(tmp_path / "s.zr", "raw") as z:
        fill(z, records)
        chunks = len(list(z.path.glob("[0-9]*.zr")))
        z.delete(np.arange(0, 200, 2))
        z.compact()
        stats = z.stats()
        on_disk = sum(file.stat().st_size for file in z.path.glob("[0-9]*.zr"))
        assert len(list(z.path.glob("[0-9]*.zr"))) < chunks
        assert on_disk == stats["live_bytes"]
        z.delete(np.arange(len(z)))
        z.compact()
        assert tree(z.path) == {
            "meta.zr": META_BYTES,
            "0.zr": 0,
            "sums.zr": 32,
            "lock.zr": tree(z.path)["lock.zr"],
        }
        assert fill(z, [b"again"]) == 0 and contents(z.path) == [b"again"]


@pytest.mark.parametrize("operation", ["write", "truncate", "unlink"])
def test_a_refused_compaction_loses_nothing(operation: str, tmp_path: Path) -> None:
    records = some_records(100)
    path = tmp_path / "s.zr"
    with SmallChunks(path, "raw") as z:
        fill(z, records)
        z.delete(np.arange(0, 60, 2))
        model = swap_delete(records, range(0, 60, 2))
        for after in range(60):
            with refusing(operation, after=after, once=True):
                try:
                    z.compact()
                except loaderx.StoreIOError:
                    refused = True
                else:
                    refused = False
            assert contents(path) == model
            if not refused:
                break
        assert after > 0 and not refused
        assert fill(z, [b"x"]) == 70 and contents(path) == [*model, b"x"]


@pytest.mark.parametrize("after", range(3))
def test_a_refused_delete_changes_nothing(after: int, tmp_path: Path) -> None:
    records = some_records(30)
    with Zrecord(tmp_path / "s.zr") as z:
        fill(z, records)
        with refusing("write", after=after, once=True), pytest.raises(loaderx.StoreIOError):
            z.delete([3, 20])
        assert len(z) == 30 and contents(z.path) == records
        z.delete([3, 20])
        assert contents(z.path) == swap_delete(records, [3, 20])


def test_compact_refuses_records_that_share_bytes(tmp_path: Path) -> None:
    forge = Forge()
    for _ in range(3):
        forge.add(bytes(range(100)))
    forge.entries[2]["offset"] = 150
    path = forge.write(tmp_path / "s.zr", meta_bytes=None)
    before = (path / "0.zr").read_bytes()
    with Zrecord(path) as z, pytest.raises(loaderx.CorruptRecordError, match="shares bytes") as caught:
        z.compact()
    assert caught.value.record == 2 and (path / "0.zr").read_bytes() == before


def test_sync_reaches_every_file_through_the_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SmallChunks(tmp_path / "s.zr", "raw") as z:
        fill(z, some_records(50))
        with refusing("nothing") as seen:
            z.sync()
        # The chunks, the directory, the sums, the table; then the mark anew.
        n_files = len(list(z.path.glob("[0-9]*.zr"))) + 3
        assert seen == ["fsync"] * n_files + ["create", "write", "fsync", "rename", "fsync"]
        with (
            refusing("fsync", number=errno.EIO),
            pytest.raises(loaderx.StoreIOError, match="Input/output error"),
        ):
            z.sync()


def test_dictionaries(tmp_path: Path) -> None:
    records = [f"user={i % 17};item={i * 7919 % 1000};country=NL;device=phone".encode() for i in range(4000)]
    lens = [len(record) for record in records]
    with Zrecord(tmp_path / "s.zr", "zstd_dict", level=3) as z:
        assert not z.has_dict()
        n_bytes = z.train_dict(b"".join(records), lens, 2000)
        assert z.has_dict() and n_bytes == (z.path / "dict.zr").stat().st_size <= 2000
        z.train_dict(b"".join(records[:2000]), lens[:2000], 1000)  # no record depends on it yet
        fill(z, records)
        stats = z.stats()
        assert stats["codecs"] == {"zstd_dict": 4000} and stats["live_bytes"] * 3 < stats["logical_bytes"] * 2
        assert stats["dictionary_bytes"] <= 1000
        assert contents(z.path) == records
    with Zrecord(tmp_path / "s.zr", "zstd_dict") as z:
        assert z.has_dict() and fill(z, records[:5]) == 4000 and contents(z.path)[-5:] == records[:5]


def test_creating_at_once(tmp_path: Path) -> None:
    """Many threads open a path that is not there: one creates, none loses what another appends."""
    path = tmp_path / "deep" / "er" / "s.zr"
    barrier = threading.Barrier(8)

    def work(k: int) -> int:
        barrier.wait()
        with Zrecord(path) as z:
            return len(z)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [0] * 8
    assert tree(path) == {"0.zr": 0, "meta.zr": META_BYTES}


def test_a_creation_cut_off_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "s.zr"
    path.mkdir()
    (path / "0.zr").touch()
    (path / ".meta.zr.partial-12345").write_bytes(b"ZREC")
    with Zrecord(path) as z:
        assert fill(z, [b"x"]) == 0


@pytest.mark.parametrize(
    "sizes",
    [
        [1] * 6 + [300],
        [0] * 300 + [300] * 100,
        [1] * 8 + [500, 500],
        [7] * 4000,
        [0] * 50,
        [8] * 9,
        [8, 9] * 40,
    ],
)
def test_samples_that_zstd_cannot_learn_from(sizes: list[int], store_path: Path) -> None:
    """Its trainer, left to itself, ends the process where the first samples are empty or of a few bytes."""
    samples = np.random.default_rng(0).integers(0, 256, sum(sizes), dtype=np.uint8)
    with Zrecord(store_path, "zstd_dict") as z:
        try:
            trained = z.train_dict(samples, sizes, 256)
        except loaderx.DictionaryError as error:
            assert error.code == -9 and not z.has_dict()
        else:
            assert trained == 256 and sum(size for size in sizes if size >= 8) * 3 // 4 >= 256
            fill(z, [bytes(300)])
            assert contents(store_path) == [bytes(300)]


def test_threads_add_to_one_append(store_path: Path) -> None:
    """Each part is one stretch, and nothing of another's is in it."""
    n_threads, n_parts, n = 4, 30, 10
    with SmallChunks(store_path, "raw") as z:
        with z.appending() as append:

            def add(number: int) -> None:
                for _ in range(n_parts):
                    append.add(bytes([number]) * (64 * n), n, 64)

            workers = [threading.Thread(target=add, args=(number,)) for number in range(n_threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        found = read(z)
    assert len(found) == n_threads * n_parts * n
    stretches = [found[first : first + n] for first in range(0, len(found), n)]
    assert sorted(stretch[0][0] for stretch in stretches) == sorted([*range(n_threads)] * n_parts)
    assert all(stretch == [bytes([stretch[0][0]]) * 64] * n for stretch in stretches)
    assert loaderx.verify(store_path).ok


@pytest.mark.parametrize("deleted", [(), (9,), (3,)], ids=["nothing", "the last", "one that others move for"])
@pytest.mark.parametrize("n_bytes", [899, 450, 0])
@pytest.mark.parametrize("with_sums", [True, False])
def test_what_was_cut_off_is_not_made_up_with_zeros(
    deleted: tuple[int, ...], n_bytes: int, with_sums: bool, store_path: Path
) -> None:
    records = [bytes([number + 1]) * 100 for number in range(10)]
    with Zrecord(store_path, "raw") as z:
        fill(z, records)
        z.delete(deleted)
    if not with_sums:
        (store_path / "sums.zr").unlink()
    os.truncate(store_path / "0.zr", n_bytes)
    with Zrecord(store_path, "raw") as z:
        n = len(z)
        ends = OracleStore(store_path).table["offset"][:n] + 100
        lost = [index for index in range(n) if ends[index] > n_bytes]
        before = tree(store_path)
        if lost:
            with pytest.raises(
                loaderx.CorruptRecordError, match=r"cannot compact: record .* cut off"
            ) as caught:
                z.compact()
            assert caught.value.record in lost and caught.value.chunk == 0
            after = tree(store_path)
            assert {name: after[name] for name in ("0.zr", "meta.zr")} == {
                name: before[name] for name in ("0.zr", "meta.zr")
            }
            with pytest.raises(loaderx.CorruptRecordError, match="the file was cut off"):
                z.append(b"x" * 100, 1, 100)
        assert len(loaderx.verify(store_path).damaged) == len(lost)
        # What the error advises, and whatever was whole is still there.
        whole = swap_delete(swap_delete(records, list(deleted)), lost)
        z.delete(lost)
        z.compact()
        assert read(z) == whole and (store_path / "0.zr").stat().st_size == 100 * len(whole)
        z.append(b"x" * 100, 1, 100)
    assert contents(store_path) == [*whole, b"x" * 100]


def test_a_chunk_that_lost_its_last_byte_is_not_appended_to(store_path: Path) -> None:
    """One byte is what a killed session's tail lies behind its last record; that is not there for the taking."""
    with Zrecord(store_path, "raw") as z:
        z.append(b"abcdef", 2, 3)
    os.truncate(store_path / "0.zr", 5)
    with Zrecord(store_path, "raw") as z:
        with pytest.raises(
            loaderx.CorruptRecordError, match=r"record 1 ends at byte 6.*the file was cut off"
        ):
            z.append(b"ghi", 1, 3)
        assert (store_path / "0.zr").stat().st_size == 5
