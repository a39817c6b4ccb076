"""Who may open and change a store while others have it open: threads, handles, forked, spawned and killed processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import Dataset, RaggedDataset, StoreLockedError, StoreWarning, Zrecord
from loaderx.store import files, locks, reader
from tests.oracle import OracleStore
from tests.store.children import OtherProcess, Pause, hold, in_child, other_process
from tests.store.samples import contents, fill, numbered, read, state, tree

#: Long enough for another process to get its turn, short enough to wait for it in vain.
SHORT_S = 0.3

#: What "at once" may take on a busy machine; far less than the time a handle waits for other processes.
AT_ONCE_S = 2.0

NOBODY = 65534


@contextlib.contextmanager
def takes(at_least_s: float, at_most_s: float) -> Iterator[None]:
    """Check how long a block takes."""
    begun = time.monotonic()
    yield
    assert at_least_s <= time.monotonic() - begun <= at_most_s


@pytest.fixture
def path(store_path: Path) -> Path:
    """Return a store of ten records that nobody has open."""
    with Zrecord(store_path, "raw") as z:
        fill(z, numbered(0, 10))
    return store_path


def change(kind: str, z: Zrecord) -> None:
    """Change a store in one of the ways there are."""
    if kind == "append":
        fill(z, [b"new"])
    elif kind == "delete":
        z.delete([3])
    elif kind == "compact":
        z.compact()
    elif kind == "pack":
        z.pack()
    else:
        z.train_dict(np.random.default_rng(0).integers(0, 4, 100_000, dtype=np.uint8), [100] * 1000, 2000)


CHANGES = ["append", "delete", "compact", "pack", "train_dict"]


# ---- one process -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CHANGES)
def test_two_handles_of_one_process_say_so_at_once(kind: str, path: Path) -> None:
    first, second = Zrecord(path), Zrecord(path)
    fill(first, [b"x"])
    with takes(0, AT_ONCE_S), pytest.raises(StoreLockedError, match=r"handle.*this process") as caught:
        change(kind, second)
    assert caught.value.store == path
    assert (len(first), len(second)) == (11, 10)
    first.close()
    change(kind, second)
    second.close()
    change(kind, Zrecord(path))


@pytest.mark.parametrize("kind", ["delete", "compact", "pack"])
def test_who_keeps_the_error_does_not_keep_the_store(kind: str, path: Path) -> None:
    """Of a handle that was closed since, its reading hold is gone too: a second attempt may be made in the handler."""
    kept = []
    with other_process(lambda pause: hold(path, pause, mode="r")):
        with Zrecord(path, timeout_s=0) as z, pytest.raises(StoreLockedError) as caught:
            change(kind, z)
        kept.append(caught.value)
    with Zrecord(path, timeout_s=0) as z:
        change(kind, z)


@pytest.mark.parametrize("kind", ["delete", "compact", "pack"])
@pytest.mark.parametrize("reader", ["r", "a", "Dataset", "RaggedDataset"])
def test_an_open_handle_of_the_same_process_keeps_deletes_away(
    kind: str, reader: str, store_path: Path
) -> None:
    if reader == "RaggedDataset":
        loaderx.write_ragged(store_path, [np.arange(i + 1) for i in range(10)], progress=False)
    else:
        loaderx.write_dataset(store_path, np.arange(40).reshape(10, 4), progress=False)
    openers: dict[str, Callable[[], Any]] = {
        "r": lambda: Zrecord(store_path, mode="r"),
        "a": lambda: Zrecord(store_path),
        "Dataset": lambda: Dataset(store_path),
        "RaggedDataset": lambda: RaggedDataset(store_path),
    }
    before = contents(store_path)
    with openers[reader]() as open_handle, Zrecord(store_path) as z:
        with takes(0, AT_ONCE_S), pytest.raises(StoreLockedError, match=r"handle.*this process"):
            change(kind, z)
        assert contents(store_path) == before and len(open_handle) == len(z) == 10
        fill(z, [before[0]])  # an append disturbs no reader
        open_handle.close()
        change(kind, z)


def test_the_lock_is_taken_at_the_first_change(path: Path) -> None:
    before = tree(path)
    handles = [Zrecord(path) for _ in range(5)]
    for z in handles:
        z.gather_packed(np.arange(10))
    assert tree(path) == before
    fill(handles[3], [b"x"])
    with pytest.raises(StoreLockedError):
        fill(handles[1], [b"x"])
    handles[3].close()
    assert fill(handles[1], [b"y"]) == 11
    assert contents(path) == [*numbered(0, 10), b"x", b"y"]


@pytest.mark.parametrize(
    "call",
    [
        lambda z: z.sync(),
        lambda z: z.stats(),
        lambda z: z.has_dict(),
        lambda z: z.refresh(),
        lambda z: len(z),
    ],
    ids=["sync", "stats", "has_dict", "refresh", "len"],
)
def test_what_changes_nothing_disturbs_no_writer(call: Callable[[Zrecord], Any], path: Path) -> None:
    with other_process(lambda pause: hold(path, pause)), Zrecord(path, timeout_s=SHORT_S) as z:
        call(z)
        assert z.gather_packed([2])[0].tobytes() == numbered(2, 3)[0]


def test_after_close_another_handle_may_write(path: Path) -> None:
    for number in range(3):
        with Zrecord(path) as z:
            assert fill(z, [b"x"]) == 10 + number
    z = Zrecord(path)
    fill(z, [b"y"])
    del z  # the last reference: as good as a close
    with Zrecord(path) as z:
        assert fill(z, [b"z"]) == 14


def test_the_lock_file_names_its_holder_only_while_it_is_held(path: Path) -> None:
    with Zrecord(path) as z:
        fill(z, [b"x"])
        holder = json.loads((path / "lock.zr").read_text())
        assert os.getpid() in holder.values()
    assert (path / "lock.zr").read_bytes() == b""


def test_a_refused_first_change_does_not_keep_the_lock_from_others(path: Path) -> None:
    z = Zrecord(path)  # it holds records, so it stays a store of version 3
    with pytest.raises(loaderx.RecordTooLargeError):
        fill(z, [bytes((1 << 20) + 1)])
    with pytest.raises(loaderx.RecordIndexError):
        z.delete([99])
    z.close()
    with Zrecord(path) as other:
        assert fill(other, [b"x"]) == 10


def test_threads_of_one_handle_share_its_lock(path: Path) -> None:
    with Zrecord(path) as z, ThreadPoolExecutor(8) as pool:
        firsts = list(pool.map(lambda _: fill(z, [b"x"]), range(40)))
        assert sorted(firsts) == list(range(10, 50))


def test_of_many_threads_with_handles_of_their_own_one_writes(path: Path) -> None:
    barrier = threading.Barrier(8)

    def work(_: int) -> str:
        with Zrecord(path) as z:
            barrier.wait()
            try:
                fill(z, [b"x"])
                outcome = "wrote"
            except StoreLockedError:
                outcome = "locked"
            barrier.wait()
            return outcome

    with ThreadPoolExecutor(8) as pool, takes(0, 2 * AT_ONCE_S):
        outcomes = list(pool.map(work, range(8)))
    assert sorted(outcomes) == ["locked"] * 7 + ["wrote"]
    assert len(OracleStore(path)) == 11


def test_a_path_by_another_name_is_the_same_store(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path)
    with Zrecord(path) as first, Zrecord(tmp_path / "link") as second:
        fill(first, [b"x"])
        with takes(0, AT_ONCE_S), pytest.raises(StoreLockedError, match=r"handle.*this process"):
            fill(second, [b"y"])
        with takes(0, AT_ONCE_S), pytest.raises(StoreLockedError, match=r"handle.*this process"):
            first.delete([0])


# ---- other processes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CHANGES)
def test_another_process_holds_the_lock(kind: str, path: Path) -> None:
    with other_process(lambda pause: hold(path, pause)) as other, Zrecord(path, timeout_s=SHORT_S) as z:
        with takes(SHORT_S, SHORT_S + AT_ONCE_S), pytest.raises(StoreLockedError) as caught:
            change(kind, z)
        error = caught.value
        assert error.store == path and error.holder == other.pid
        assert isinstance(error.since, str) and error.since
        assert str(other.pid) in str(error) and error.since in str(error)
        copy = pickle.loads(pickle.dumps(error))
        assert (copy.store, copy.holder, copy.since, str(copy)) == (
            path,
            error.holder,
            error.since,
            str(error),
        )
        assert error.code == -2
        assert other.go() == "closed"
        z.refresh()
        change(kind, z)


def test_a_writer_that_waits_gets_its_turn(path: Path) -> None:
    with other_process(lambda pause: hold(path, pause)) as other, Zrecord(path, timeout_s=30) as z:
        threading.Timer(SHORT_S, other.tell).start()
        with takes(SHORT_S / 2, 20):
            assert fill(z, [b"next"]) == 11
        assert other.wait() == "closed"
    assert contents(path) == [*numbered(0, 10), b"held", b"next"]


def test_a_timeout_of_zero_does_not_wait(path: Path) -> None:
    with (
        other_process(lambda pause: hold(path, pause)),
        Zrecord(path, timeout_s=0) as z,
        takes(0, AT_ONCE_S),
        pytest.raises(StoreLockedError),
    ):
        fill(z, [b"x"])


@pytest.mark.parametrize("timeout_s", [-1, float("nan"), "5", None, True])
def test_a_timeout_that_is_none(timeout_s: Any, path: Path) -> None:
    with pytest.raises(loaderx.OptionError, match="timeout_s"):
        Zrecord(path, timeout_s=timeout_s)


def test_a_killed_holder_frees_the_lock(path: Path) -> None:
    with other_process(lambda pause: hold(path, pause)) as other:
        other.kill()
        with Zrecord(path, timeout_s=0) as z:
            assert len(z) == 11
            assert fill(z, [b"after"]) == 11
    assert contents(path) == [*numbered(0, 10), b"held", b"after"]
    assert (path / "lock.zr").read_bytes() == b""


@pytest.mark.parametrize("kind", ["delete", "compact", "pack"])
def test_a_reader_in_another_process_keeps_deletes_away(kind: str, path: Path) -> None:
    before = contents(path)
    with (
        other_process(lambda pause: hold(path, pause, mode="r")) as other,
        Zrecord(path, timeout_s=SHORT_S) as z,
    ):
        with takes(SHORT_S, SHORT_S + AT_ONCE_S), pytest.raises(StoreLockedError):
            change(kind, z)
        assert contents(path) == before
        assert fill(z, [b"x"]) == 10  # appending beside readers is fine
        threading.Timer(SHORT_S / 3, other.tell).start()
        change(kind, z)
        assert other.wait() == "closed"
        assert len(z) == (10 if kind == "delete" else 11)


@pytest.mark.parametrize("kind", ["delete", "compact", "pack"])
@pytest.mark.parametrize("how", ["succeeds", "in vain"])
def test_an_open_waits_for_a_delete_elsewhere(kind: str, how: str, path: Path) -> None:
    def change_slowly(pause: Pause) -> None:
        z = Zrecord(path, "raw")
        fill(z, numbered(10, 20))
        z.delete([0])
        pause()
        waiting = True

        def observe(operation: str, *_: object) -> None:
            nonlocal waiting
            if operation in ("write", "truncate") and waiting:
                waiting = False
                pause("in the middle")

        files.observe = observe
        change(kind, z)
        z.close()
        pause("done")

    with other_process(change_slowly) as other:
        assert other.go() == "in the middle"
        if how == "in vain":
            for mode in ("r", "a"):
                with takes(SHORT_S, SHORT_S + AT_ONCE_S), pytest.raises(StoreLockedError) as caught:
                    Zrecord(path, mode=mode, timeout_s=SHORT_S)
                assert caught.value.holder in (None, other.pid)
            other.tell()
            assert other.wait() == "done"
        else:
            threading.Timer(SHORT_S, other.tell).start()
        with Zrecord(path, mode="r", timeout_s=30) as z:
            assert len(z) == (18 if kind == "delete" else 19)
            data, _ = z.gather_packed(np.arange(len(z)))
            assert data.tobytes() == b"".join(contents(path))
        if how == "succeeds":
            assert other.wait() == "done"


def test_many_readers_beside_one_writer(path: Path) -> None:
    """Readers open for writing, as 0.7.3's users do just to read."""

    def read(pause: Pause) -> None:
        with Zrecord(path) as z:
            pause(len(z))
            pause(z.gather_packed(np.arange(10))[0].tobytes())

    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(other_process(read)) for _ in range(6)]
        with Zrecord(path, timeout_s=SHORT_S) as z, takes(0, 20):
            for reader in readers:
                fill(z, [b"beside"])
                assert reader.go() == b"".join(numbered(0, 10))
                assert reader.go() is None
            z.delete([10])  # all have closed it
        assert len(OracleStore(path)) == 15


def test_opening_read_write_just_to_read_changes_nothing(path: Path) -> None:
    before = state(path)

    def read(pause: Pause) -> None:
        pause()
        with Zrecord(path) as z:
            for _ in range(20):
                z.gather_packed(np.arange(10))
            pause("done")

    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(other_process(read)) for _ in range(8)]
        with takes(0, 20):
            for reader in readers:
                reader.tell()
            assert [reader.wait() for reader in readers] == ["done"] * 8
    assert state(path) == before


def test_processes_append_one_after_the_other(path: Path) -> None:
    """Each takes its turn, and no record is lost or torn."""

    def append(name: int, pause: Pause) -> None:
        pause()
        for number in range(10):
            with Zrecord(path, "raw", timeout_s=60) as z:
                fill(z, [bytes([name]) * (1 + number)] * 3)

    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(other_process(lambda pause, n=n: append(n, pause))) for n in range(4)]
        for writer in writers:
            writer.tell()
        for writer in writers:
            writer.wait()
    records = contents(path)
    assert records[:10] == numbered(0, 10)
    assert sorted(records[10:]) == sorted(
        bytes([name]) * (1 + number) for name in range(4) for number in range(10) for _ in range(3)
    )
    assert OracleStore(path).faults() == []


def test_a_spawned_process_meets_the_lock(path: Path) -> None:
    """A process that shares nothing with this one but the disk."""
    script = (
        "import sys, loaderx\n"
        "z = loaderx.Zrecord(sys.argv[1], timeout_s=0.1)\n"
        "print(len(z))\n"
        "try:\n"
        "    z.append(b'x', 1, 1)\n"
        "except loaderx.StoreLockedError as error:\n"
        "    print('locked by', error.holder)\n"
    )

    def run() -> str:
        return subprocess.run(
            [sys.executable, "-c", script, path], capture_output=True, text=True, timeout=60, check=True
        ).stdout

    with Zrecord(path) as z:
        fill(z, [b"x"])
        assert run() == f"11\nlocked by {os.getpid()}\n"
    assert run() == "11\n" and len(OracleStore(path)) == 12


# ---- forked children ---------------------------------------------------------------------------------------------


def tries_to_append(path: Path) -> str:
    """Try in an unrelated process, and say what came of it."""
    script = (
        "import sys, loaderx\n"
        "try:\n"
        "    loaderx.Zrecord(sys.argv[1], timeout_s=0).append(b'x', 1, 1)\n"
        "    print('wrote')\n"
        "except loaderx.StoreLockedError as error:\n"
        "    print(error.holder)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()


@pytest.mark.parametrize("what", ["close", "exit", "collect", "append"])
def test_what_a_forked_child_does_leaves_its_parents_lock(what: str, path: Path) -> None:
    z = Zrecord(path, timeout_s=SHORT_S)
    fill(z, [b"parent"])

    def child() -> None:
        nonlocal z
        if what == "close":
            z.close()
        elif what == "collect":
            del z
        elif what == "append":
            with pytest.raises(StoreLockedError) as caught:
                fill(z, [b"child"])
            assert caught.value.holder == os.getppid()

    before = state(path)
    in_child(child)
    assert state(path) == before
    assert tries_to_append(path) == str(os.getpid())
    assert fill(z, [b"again"]) == 11
    z.close()
    assert tries_to_append(path) == "wrote"
    assert contents(path) == [*numbered(0, 10), b"parent", b"again", b"x"]


def test_a_forked_child_waits_for_its_parent_as_for_anybody(path: Path) -> None:
    with Zrecord(path, timeout_s=SHORT_S) as z:
        fill(z, [b"parent"])

        def child() -> None:
            with takes(SHORT_S, SHORT_S + AT_ONCE_S), pytest.raises(StoreLockedError):
                fill(z, [b"child"])
            with pytest.raises(StoreLockedError):
                z.delete([0])

        in_child(child)


def test_a_forked_child_writes_once_its_parent_has_closed(path: Path) -> None:
    z = Zrecord(path, "raw", timeout_s=SHORT_S)
    fill(z, [b"parent"])

    def child(pause: Pause) -> int:
        with pytest.raises(StoreLockedError):
            fill(z, [b"child"])
        pause()
        first = fill(z, [b"child"])
        z.close()
        return first

    with other_process(child) as other:
        fill(z, [b"more"])
        z.close()
        assert other.go() == 12
    assert contents(path) == [*numbered(0, 10), b"parent", b"more", b"child"]
    assert not (path / "mark.zr").exists()
    with Zrecord(path) as z:
        assert fill(z, [b"x"]) == 13


def test_a_forked_reader_keeps_a_lock_of_its_own(path: Path) -> None:
    z = Zrecord(path, mode="r")

    def child(pause: Pause) -> bytes:
        pause()
        data: bytes = z.gather_packed(np.arange(len(z)))[0].tobytes()
        z.close()
        pause(data)
        return data

    with other_process(child) as other:
        z.close()
        with Zrecord(path, timeout_s=SHORT_S) as writer:
            with pytest.raises(StoreLockedError):
                writer.delete([0])
            assert other.go() == b"".join(numbered(0, 10))
            writer.delete([0])


def test_closing_in_a_forked_child_leaves_its_parents_reader_locked(path: Path) -> None:
    with other_process(lambda pause: delete_when_told(path, pause)) as other, Zrecord(path, mode="r") as z:
        in_child(z.close)
        in_child(lambda: None)
        assert other.go() == "locked"
        z.gather_packed([0])
        z.close()
        assert other.go() == "deleted"


def delete_when_told(path: Path, pause: Pause) -> None:
    pause()
    with Zrecord(path, timeout_s=SHORT_S) as z:
        while True:
            try:
                z.delete([0])
                pause("deleted")
            except StoreLockedError:
                pause("locked")


def test_a_fork_inside_an_append_leaves_it_alone(path: Path) -> None:
    with Zrecord(path, "raw", timeout_s=0) as z:
        with z.appending() as append:
            append.add(b"abcd", 2, 2)

            def child() -> None:
                with pytest.raises(StoreLockedError):
                    append.add(b"child", 1, 5)
                with pytest.raises(StoreLockedError):
                    fill(z, [b"child"])
                z.close()

            in_child(child)
            append.add(b"ef", 1, 2)
        assert contents(path) == [*numbered(0, 10), b"ab", b"cd", b"ef"]


def test_threads_fork_beside_a_writer(path: Path) -> None:
    """A child that is forked in the middle of anything neither hangs nor lets go of the lock."""
    begun, done = threading.Event(), threading.Event()
    with Zrecord(path, "raw", timeout_s=0) as z:

        def write() -> None:
            while not done.is_set():
                fill(z, [b"x" * 50] * 5)
                begun.set()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert begun.wait(10)  # or a child could be the writer
            for _ in range(15):

                def child() -> bool:
                    with pytest.raises(StoreLockedError):
                        fill(z, [b"child"])
                    return z.gather_packed(np.arange(10))[0].tobytes() == b"".join(numbered(0, 10))

                assert in_child(child)
            assert tries_to_append(path) == str(os.getpid())
        finally:
            done.set()
            writer.join()
    assert set(contents(path)[10:]) == {b"x" * 50}


def test_a_store_with_a_writer_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "d.zr"
    loaderx.write_dataset(path, np.arange(10), progress=False)
    with Zrecord(path) as z:
        fill(z, [bytes(8)])
        with pytest.raises(StoreLockedError, match="this process"):
            loaderx.write_dataset(path, np.arange(20), overwrite=True, progress=False)
        fill(z, [bytes(8)])
    assert len(Dataset(path)) == 12 and sorted(os.listdir(tmp_path)) == ["d.zr"]
    assert loaderx.write_dataset(path, np.arange(20), overwrite=True, progress=False) == 20


def test_a_lock_of_a_store_that_was_replaced_meanwhile_is_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for a store that is being replaced must not take the old one's lock for the new one's."""
    real, replaced = locks.lock_within, list[str]()

    def replaces_then_locks(descriptor: int, timeout_s: float, *, shared: bool = False) -> bool:
        name = "meta.zr" if shared else "lock.zr"
        if name not in replaced:
            replaced.append(name)
            subprocess.run(["cp", "--sparse=always", path / name, path / "copy"], check=True)
            os.rename(path / "copy", path / name)
        return real(descriptor, timeout_s, shared=shared)

    with Zrecord(path, "raw") as z:
        fill(z, [b"x"])
    monkeypatch.setattr(locks, "lock_within", replaces_then_locks)
    with Zrecord(path, "raw", timeout_s=0) as z:
        fill(z, [b"y"])
        assert sorted(replaced) == ["lock.zr", "meta.zr"]
        with Zrecord(path, "raw", timeout_s=0) as other, pytest.raises(StoreLockedError):
            fill(other, [b"z"])
    assert contents(path)[-2:] == [b"x", b"y"]


# ---- pickling ----------------------------------------------------------------------------------------------------


def test_a_pickled_handle_takes_locks_of_its_own(path: Path) -> None:
    with Zrecord(path, timeout_s=1.5, verify=True) as z:
        fill(z, [b"x"])
        with pickle.loads(pickle.dumps(z)) as copy:
            assert len(copy) == 11 and (copy.timeout_s, copy.verify) == (1.5, True)
            with pytest.raises(StoreLockedError, match=r"handle.*this process"):
                fill(copy, [b"y"])
        assert fill(z, [b"y"]) == 11


def test_pickled_datasets_keep_their_options(tmp_path: Path) -> None:
    loaderx.write_dataset(tmp_path / "d.zr", np.arange(10), progress=False)
    loaderx.write_ragged(tmp_path / "r.zr", [np.arange(3)], progress=False)
    for cls, name in ((Dataset, "d.zr"), (RaggedDataset, "r.zr")):
        with cls(tmp_path / name, timeout_s=SHORT_S, verify=True) as ds:
            data = pickle.dumps(ds)

        def unpickle(data: bytes = data) -> None:
            with takes(SHORT_S, SHORT_S + AT_ONCE_S), pytest.raises(StoreLockedError):
                pickle.loads(data)

        with open(tmp_path / name / "meta.zr", "rb") as meta:
            fcntl.flock(meta, fcntl.LOCK_EX)  # as a delete in another process has it
            in_child(unpickle)
        with pickle.loads(data) as copy:
            assert len(copy) == (10 if cls is Dataset else 1)


# ---- media -------------------------------------------------------------------------------------------------------


@pytest.mark.root
def test_a_read_only_medium(tmp_path: Path) -> None:
    mount = tmp_path / "medium"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", mount], check=True)
    path = mount / "s.zr"
    try:
        with Zrecord(path, "raw") as z:
            fill(z, numbered(0, 10))
        loaderx.write_dataset(mount / "d.zr", np.arange(40).reshape(10, 4), progress=False)
        with other_process(lambda pause: hold(path, pause)) as other:
            other.kill()
        assert (path / "mark.zr").exists()
        subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
        expected = [*numbered(0, 10), b"held"]
        for mode in ("r", "a"):
            with Zrecord(path, mode=mode, verify=True) as z:
                assert z.gather_packed(np.arange(11))[0].tobytes() == b"".join(expected)
                assert z.refresh() == 11
                if mode == "a":
                    for kind in CHANGES:
                        with pytest.raises(loaderx.StoreIOError, match="Read-only file system"):
                            change(kind, z)
                    assert len(z) == 11
        with Dataset(mount / "d.zr", verify=True) as ds:
            assert np.array_equal(ds[:], np.arange(40).reshape(10, 4))
        assert loaderx.verify(path).ok and loaderx.verify(mount / "d.zr").ok
        subprocess.run(["mount", "-o", "remount,rw", mount], check=True)
        with Zrecord(path) as z:
            assert fill(z, [b"x"]) == 11
    finally:
        subprocess.run(["umount", mount], check=True)


@pytest.mark.root
def test_a_directory_without_the_right_to_write(path: Path) -> None:
    path.chmod(0o555)
    for folder in path.parents:
        with contextlib.suppress(PermissionError):
            folder.chmod(folder.stat().st_mode | 0o011)
    for file in path.iterdir():
        file.chmod(0o444)

    def read() -> bytes:
        with Zrecord(path, verify=True) as z, Zrecord(path, mode="r") as other:
            with pytest.raises(loaderx.StoreIOError, match="Permission denied"):
                fill(z, [b"x"])
            assert loaderx.verify(path).ok and other.refresh() == 10
            return z.gather_packed(np.arange(len(z)))[0].tobytes()

    assert in_child(read, uid=NOBODY) == b"".join(numbered(0, 10))


@pytest.mark.root
def test_a_reader_without_rights_keeps_a_delete_away(path: Path) -> None:
    """The shared lock needs no more than permission to read."""
    for folder in path.parents:
        with contextlib.suppress(PermissionError):
            folder.chmod(folder.stat().st_mode | 0o011)

    def read(pause: Pause) -> None:
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        hold(path, pause, mode="r")

    with other_process(read) as other, Zrecord(path, timeout_s=SHORT_S) as z:
        with pytest.raises(StoreLockedError):
            z.delete([0])
        other.go()
        z.delete([0])


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks(number: int, path: Path) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    def work() -> list[str]:
        fcntl.flock = refuse  # type: ignore[assignment]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with Zrecord(path, "raw") as z:
                assert fill(z, numbered(10, 20)) == 10
                z.delete([0, 5])
                z.compact()
                assert z.refresh() == 18
            with Zrecord(path, mode="r") as z:
                z.gather_packed(np.arange(18))
            with Zrecord(path.with_name("new.zr")) as z:
                fill(z, [b"x"])
                z.train_dict(
                    np.random.default_rng(0).integers(0, 4, 100_000, dtype=np.uint8), [100] * 1000, 2000
                )
            assert loaderx.verify(path).ok
        assert all(warning.category is StoreWarning for warning in caught)
        return [str(warning.message) for warning in caught]

    (message,) = in_child(work)
    assert "lock" in message
    assert OracleStore(path).faults() == [] and len(OracleStore(path)) == 18


def test_another_fault_of_the_lock_is_not_hidden(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Zrecord(path) as z:
        monkeypatch.setattr(fcntl, "flock", refuse)
        with pytest.raises(loaderx.StoreIOError, match="Input/output error"):
            fill(z, [b"x"])
        with pytest.raises(loaderx.StoreIOError, match="Input/output error"):
            Zrecord(path)
        monkeypatch.undo()
        assert fill(z, [b"x"]) == 10


def test_a_fork_in_the_middle_of_a_delete(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child's length and its records are those of one store, whenever it looks."""
    z = Zrecord(store_path, "raw")
    fill(z, numbered(0, 20))
    paused, go_on = threading.Event(), threading.Event()

    def observe(operation: str, *_: object) -> None:
        if operation == "write":
            paused.set()
            go_on.wait(30)

    monkeypatch.setattr(files, "observe", observe)
    deleting = threading.Thread(target=z.delete, args=([3, 4],))
    deleting.start()
    assert paused.wait(30)

    def body(pause: Pause) -> Any:
        pause()
        return len(z), read(z)

    with other_process(body) as other:
        go_on.set()
        deleting.join()
        assert other.go() == (18, read(z))
    z.close()


def test_a_delete_between_a_fork_and_the_childs_first_look(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    z = Zrecord(store_path, "raw")
    fill(z, numbered(0, 20))
    parent = os.getpid()
    deleted_out, deleted_in = os.pipe()
    hold_for_reading = reader.hold_for_reading

    def hold_late(store: Path, timeout_s: float) -> Any:
        if os.getpid() != parent:
            os.read(deleted_out, 1)
        return hold_for_reading(store, timeout_s)

    monkeypatch.setattr(reader, "hold_for_reading", hold_late)

    def body(pause: Pause) -> Any:
        return len(z), read(z)

    other = OtherProcess(body)
    try:
        z.delete([3, 4])
        os.write(deleted_in, b"x")
        assert other.wait() == (18, read(z))
    finally:
        other.close()
    z.close()


@pytest.mark.parametrize("kind", ["gather", "lengths", "append"])
def test_what_a_report_of_a_compaction_may_do(kind: str, store_path: Path) -> None:
    """It may ask for the length; what needs the store says that this thread is changing it, and hangs never."""
    with Zrecord(store_path, "raw") as z:
        fill(z, numbered(0, 20))
        z.delete([0])
        lengths: list[int] = []

        def report(done: int, total: int) -> None:
            lengths.append(len(z))
            if kind == "gather":
                z.gather_packed([0])
            elif kind == "lengths":
                z.lengths([0])
            else:
                fill(z, [b"x"])

        with pytest.raises(StoreLockedError, match="this thread"):
            z.compact(report)
        assert lengths == [19]
        assert sorted(read(z)) == numbered(1, 20)
