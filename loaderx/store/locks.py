"""Who may do what at once: one writer, readers beside it, and nobody beside a delete or a compaction.

- The writer holds `lock.zr` alone, from its first change until it is closed.
- A reader holds `meta.zr` with the others, from opening to closing; which needs no right to write.
- A delete or a compaction holds `meta.zr` alone.

A lock belongs to the open file: a forked child has to close its copy, for unlocking it would let the parent's go.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from loaderx._core.maps import OpenFile
from loaderx.errors import NotAStoreError, StoreLockedError
from loaderx.store import files
from loaderx.store.flock import lock_within, try_lock
from loaderx.store.format import LOCK, META

# More than is ever written there.
_MAX_NOTE_BYTES = 4096

# How long a writer is waited for until it is asked again whether it is another handle of this process.
_LOOK_S = 0.02


class Hold:
    """An open file that holds a lock, for as long as this object lives or until it is closed.

    Parameters
    ----------
    path : pathlib.Path
        Of the file, which is there. It is opened here, and not locked yet.
    flags : int
        As for `os.open`.

    Raises
    ------
    OSError
    """

    def __init__(self, path: Path, flags: int) -> None:
        self._file = OpenFile(path, flags | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._file.fileno()

    def close(self) -> None:
        """Let go, once. In a forked child: close the copy of the descriptor, which lets nothing go."""
        self._file.close()

    def is_at(self, path: Path) -> bool:
        """Return whether the file that is held is the one that a path names."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.stat(path))
        except (FileNotFoundError, ValueError):
            return False

    def share(self) -> None:
        """Turn a hold alone into one for reading."""
        try_lock(self.fileno(), shared=True, wait=True)


def hold_for_reading(store: Path, timeout_s: float) -> Hold:
    """Hold a store against deletes and compactions.

    Raises
    ------
    StoreLockedError
        A delete or a compaction went on for longer than `timeout_s`.
    NotAStoreError, StoreIOError
    """
    with files.errors_named(store, "open the store"):
        while True:
            try:
                hold = Hold(store / META, os.O_RDONLY | os.O_NONBLOCK)
            except (FileNotFoundError, NotADirectoryError):
                raise missing(store) from None
            try:
                if not lock_within(hold.fileno(), timeout_s, shared=True):
                    note = read_note(store)
                    raise StoreLockedError(
                        f"{store}: {_who(note)} is deleting records, compacting or packing, {_since(note)}, and it "
                        f"took longer than {timeout_s:g} s: wait for it, or open with a larger timeout_s",
                        store=store,
                        holder=note.get("pid"),
                        since=note.get("since"),
                    )
                if hold.is_at(store / META):
                    return hold
            except BaseException:
                hold.close()  # whoever keeps the exception keeps this frame
                raise
            hold.close()  # another store has taken this one's place meanwhile


def hold_for_writing(store: Path, timeout_s: float, is_ours: Callable[[], bool]) -> Hold:
    """Become the store's writer, for as long as the hold is not closed.

    Parameters
    ----------
    store : pathlib.Path
    timeout_s : float
    is_ours : callable
        Returns whether another handle of this process is the writer: then there is nothing to wait for.

    Raises
    ------
    StoreLockedError
        There is another writer.
    StoreIOError
    """
    with files.errors_named(store, "open it for writing", "the store is as it was before"):
        while True:
            hold = _open_or_create(store / LOCK)
            try:
                deadline = time.monotonic() + timeout_s
                while not lock_within(hold.fileno(), min(_LOOK_S, max(deadline - time.monotonic(), 0))):
                    if is_ours():
                        raise locked_by_this_process(
                            store, "has changed the store and is its writer until it is closed"
                        )
                    if time.monotonic() >= deadline:
                        raise _writer_locked(store, timeout_s)
                if hold.is_at(store / LOCK):
                    write_note(hold.fileno())
                    return hold
            except BaseException:
                hold.close()  # whoever keeps the exception keeps this frame
                raise
            hold.close()  # another store has taken this one's place meanwhile


def _open_or_create(path: Path) -> Hold:
    while True:
        with contextlib.suppress(FileNotFoundError):
            return Hold(path, os.O_RDWR)
        with contextlib.suppress(FileExistsError):  # another was quicker
            files.create(path).close()


def open_to_hold_alone(store: Path) -> Hold:
    """Return a hold for `hold_alone`. The caller closes it, whatever interrupts the two.

    Raises
    ------
    StoreIOError
    """
    with files.errors_named(store, "open it for writing"):
        return Hold(store / META, os.O_RDWR)


def hold_alone(hold: Hold, store: Path, timeout_s: float) -> None:
    """Hold a store that nobody else reads. The caller has let its hold for reading go.

    Raises
    ------
    StoreLockedError
        Somebody read for longer than `timeout_s`.
    StoreIOError
    """
    with files.errors_named(store, "open it for writing"):
        if lock_within(hold.fileno(), timeout_s):
            return
        holders = _holders(hold.fileno())
    by = f"by {', '.join(f'process {pid}' for pid in holders)}" if holders else "by other processes"
    raise StoreLockedError(
        f"{store}: it is open for reading {by}, for longer than {timeout_s:g} s, and deleting, compacting and packing "
        "need it alone: close those readers, or allow a larger timeout_s",
        store=store,
        holder=holders[0] if holders else None,
    )


def has_writer(store: Path) -> bool:
    """Return whether a living process is the store's writer."""
    try:
        with files.opened(files.open_to_read(store / LOCK)) as descriptor:
            return not try_lock(descriptor, shared=True)
    except FileNotFoundError:
        return False


def write_note(descriptor: int) -> None:
    """Note in the lock file who holds it, for the message of those who wait; on a full disk, nothing."""
    note = {
        "pid": os.getpid(),
        "host": platform.node(),
        "since": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    text = json.dumps(note).encode() + b"\n"
    try:
        files.write_at(descriptor, text, 0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        text = b""  # whoever came to free space, by packing say, is not turned away for want of a message
    files.set_size(descriptor, len(text))


def read_note(store: Path) -> dict[str, object]:
    """Return what the writer noted: pid, host, since; empty where there is nothing legible."""
    try:
        note = json.loads(files.read_whole(store / LOCK, _MAX_NOTE_BYTES))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def missing(store: Path) -> NotAStoreError:
    """Return the error for a path that holds no store, which says what it holds."""
    if not os.path.lexists(store):
        problem = "there is nothing at this path"
    elif not store.is_dir():
        problem = "this is not a directory"
    else:
        problem = f"the directory has no {META}"
    return NotAStoreError(f"{store}: not a Zrecord store: {problem}", store=store)


def locked_by_this_process(store: Path, what: str) -> StoreLockedError:
    """Return the error for a store that another handle of this process holds."""
    return StoreLockedError(
        f"{store}: another handle of this process {what}: close that one first, or use it",
        store=store,
        holder=os.getpid(),
    )


def _writer_locked(store: Path, timeout_s: float) -> StoreLockedError:
    note = read_note(store)
    return StoreLockedError(
        f"{store}: {_who(note)} is its writer, {_since(note)}, and there can be one at a time: wait until it closes "
        f"the store (this waited {timeout_s:g} s), or open with a larger timeout_s",
        store=store,
        holder=note.get("pid"),
        since=note.get("since"),
    )


def _who(note: dict[str, object]) -> str:
    if "pid" not in note:
        return "another process"
    host = note.get("host")
    return f"process {note['pid']}" + (f" on {host}" if host and host != platform.node() else "")


def _since(note: dict[str, object]) -> str:
    return f"since {note['since']}" if "since" in note else "since an unknown time"


def _holders(descriptor: int) -> list[int]:
    """Return the processes that hold a lock on an open file, as far as the system tells (Linux)."""
    if not sys.platform.startswith("linux"):
        return []
    info = os.fstat(descriptor)
    device = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as stream:
            lines = [line.split() for line in stream]
    except OSError:
        return []
    pids = {int(line[4]) for line in lines if line[1] == "FLOCK" and line[5] == device and line[4].isdigit()}
    return sorted(pids - {0})
