"""An index appears whole or not at all: processes that are killed, disks that are full, builders beside each other."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loaderx.errors import NotAnIndexError, OptionError
from loaderx.jsonl import Index, build_index, update_index
from loaderx.store import files
from tests.jsonl.samples import bytes_below, write
from tests.store.children import finishes_before, in_child

OLD = {"a.jsonl": b"1\n2\n", "b.jsonl": b"3"}
ADDED = {"a.jsonl": b"1\n2\n4\n", "b.jsonl": b"33\n", "c.jsonl": b"5\n" * 50_000}


@pytest.fixture(params=["exchange", "renames"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return how an old index gives way to a new one, on a system that can exchange names and on others."""
    if request.param == "renames":
        monkeypatch.setattr(files, "exchange", lambda source, target: False)
    return str(request.param)


def rows_read(base: Path) -> list[list[int]]:
    rows: list[list[int]] = Index.open(base, check=False).locations.tolist()
    return rows


def leftovers(base: Path) -> set[str]:
    return {name for name in os.listdir(base) if not name.endswith(".jsonl")} - {"index"}


CALLS: dict[str, Callable[[Path], Index]] = {"build": build_index, "update": update_index}


@pytest.mark.parametrize("call", CALLS)
def test_a_kill_at_every_operation_leaves_the_old_or_the_new(call: str, way: str, tmp_path: Path) -> None:
    start = write(tmp_path / "start", OLD)
    build_index(start)
    write(start, ADDED)
    old = rows_read(start)
    done = shutil.copytree(start, tmp_path / "done")
    new = CALLS[call](done).locations.tolist()
    assert new != old
    found = []
    for number in itertools.count(1):
        base = shutil.copytree(start, tmp_path / f"cut{number}")
        finished = finishes_before(number, lambda base=base: CALLS[call](base))  # type: ignore[misc]
        rows = rows_read(base)
        assert rows in (old, new), number
        found.append(rows == new)
        if finished:
            break
        CALLS[call](base)
        assert rows_read(base) == new
        assert leftovers(base) == set()
        shutil.rmtree(base)
    assert found == sorted(found) and found[-1] and not found[0]
    assert len(found) > 10


def test_a_kill_at_every_operation_of_a_first_build(tmp_path: Path) -> None:
    for number in itertools.count(1):
        base = write(tmp_path / f"cut{number}", OLD)
        finished = finishes_before(number, lambda base=base: build_index(base))  # type: ignore[misc]
        if not finished:
            try:
                assert rows_read(base) == [[0, 0, 2], [0, 2, 2], [1, 0, 1]]
            except NotAnIndexError:
                build_index(base)
        assert rows_read(base) == [[0, 0, 2], [0, 2, 2], [1, 0, 1]]
        if finished:
            break
    assert leftovers(base) == set()


def test_an_old_index_left_aside_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    base = write(tmp_path, OLD)
    build_index(base)
    (base / "index").rename(base / ".index.replaced-1-00000000")
    assert len(Index.open(base)) == 3
    assert leftovers(base) == set()
    # and where it cannot be renamed, it is said
    (base / "index").rename(base / ".index.replaced-1-00000000")

    def refuse(operation: str, *_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(files, "observe", refuse)
    with pytest.raises(NotAnIndexError, match=r"\.index\.replaced-1-00000000 .* rename it to index"):
        Index.open(base)


@pytest.mark.parametrize("call", CALLS)
def test_a_disk_that_is_full_at_any_operation(
    call: str, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start = write(tmp_path / "start", OLD)
    build_index(start)
    write(start, ADDED)
    old = rows_read(start)
    changing = {"write", "create", "fsync", "rename", "mkdir", "exchange"}
    refused = 0
    for number in itertools.count(1):
        base = shutil.copytree(start, tmp_path / f"full{number}")
        seen = itertools.count(1)
        hit: list[str] = []

        def observe(operation: str, *_: object) -> None:
            if next(seen) == number and operation in changing:  # noqa: B023 - called within this turn
                hit.append(operation)  # noqa: B023
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(files, "observe", observe)
        try:
            CALLS[call](base)
        except OSError as error:
            assert error.errno == errno.ENOSPC and str(base) in str(error.filename)
            refused += 1
            assert rows_read(base) == old or hit == ["fsync"]
        else:
            assert hit == []
        monkeypatch.setattr(files, "observe", None)
        assert leftovers(base) == set()
        CALLS[call](base)
        last = next(seen) <= number
        shutil.rmtree(base)
        if last:
            break
    assert refused > 6


def test_builders_and_readers_beside_each_other(way: str, tmp_path: Path) -> None:
    base = write(tmp_path, {f"{i}.jsonl": b"1\n" * (i + 1) for i in range(20)})
    expected = build_index(base).locations.tolist()
    pids = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            try:
                for _ in range(15):
                    build_index(base, threads=1)
            except BaseException:
                os._exit(1)
            os._exit(0)
        pids.append(pid)
    opened = 0
    running = set(pids)
    while running:
        assert rows_read(base) == expected
        opened += 1
        for pid in list(running):
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                running.discard(pid)
        time.sleep(0.001)
    build_index(base)
    assert rows_read(base) == expected
    assert leftovers(base) == set()
    assert opened > 3


def test_a_builder_that_lives_keeps_its_folder(tmp_path: Path) -> None:
    base = write(tmp_path, OLD)

    def during(done: int, total: int | None) -> None:
        if not inner:
            inner.append(1)
            in_child(lambda: build_index(base) and None)

    inner: list[int] = []
    build_index(base, progress=during)
    assert inner == [1]
    assert len(Index.open(base)) == 3
    assert leftovers(base) == set()


@pytest.mark.parametrize("kind", ["foreign file", "a file", "a link"])
def test_what_is_no_index_is_not_replaced(kind: str, tmp_path: Path) -> None:
    base = write(tmp_path, OLD)
    if kind == "a link":
        (base / "mine").mkdir()
        (base / "index").symlink_to("mine")
    elif kind == "a file":
        (base / "index").write_bytes(b"mine")
    else:
        write(base, {"index/notes.txt": b"mine"})
    before = bytes_below(base)
    with pytest.raises(OptionError, match="not replaced, because it is not an index") as caught:
        build_index(base)
    assert caught.value.option == "index_folder"
    assert bytes_below(base) == before


def test_an_error_while_it_is_built_leaves_nothing(tmp_path: Path) -> None:
    base = write(tmp_path, OLD)

    def stop(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(base, progress=stop)
    assert leftovers(base) == set()
    assert not (base / "index").exists()


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    base = write(tmp_path / "locked", OLD)
    holder = files.hold_directory(base, wait=False)
    assert holder is not None
    yield base
    holder.close()


def test_a_base_that_another_program_locks(locked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loaderx.jsonl.install._TIMEOUT_S", 0.05)
    with pytest.raises(OSError, match="another process has held the lock") as caught:
        build_index(locked)
    assert caught.value.filename == str(locked)


def test_memory_stays_small(rss_anon: Callable[[], int], tmp_path: Path) -> None:
    base = write(tmp_path, {"short.jsonl": b"1\n" * 12_000_000, "long.jsonl": b"x" * 60_000_000 + b"\n"})

    def peak() -> int:
        most = [0]
        build_index(base / "long.jsonl", threads=1)
        before = rss_anon()
        build_index(base, threads=1, progress=lambda done, total: most.append(rss_anon() - before))
        return max(most)

    # 12 million rows are 275 MiB; what is under way are some pieces of 2 MiB, of 24 MiB rows each
    assert in_child(peak) < 120 << 20
    assert Index.open(base).locations[0].tolist() == [0, 0, 60_000_001]
