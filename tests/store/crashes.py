"""What a crash leaves: sessions that were killed, and changes that were cut off with their journals whole."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loaderx import StoreWarning, Zrecord
from loaderx.store import files
from tests.oracle import swap_delete
from tests.store.children import Pause, finishes_before, other_process
from tests.store.samples import SmallChunks, fill, numbered, some_records

MARK, JOURNAL = "mark.zr", "journal.zr"

RECORDS = some_records(60)
TARGETS = [*range(0, 40, 3), 58]
DELETED = swap_delete(RECORDS, TARGETS)


@contextlib.contextmanager
def warnings_aside() -> Iterator[None]:
    """Let a `StoreWarning` pass that may come and need not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        yield


def killed_session(path: Path, cls: type[Zrecord] = Zrecord, codec: Any = "raw") -> None:
    """Leave a store whose writer was killed: ten records synced, ten more committed in two appends, five on the way."""

    def body(pause: Pause) -> None:
        z = cls(path, codec)
        fill(z, numbered(0, 10))
        z.sync()
        fill(z, numbered(10, 14))
        fill(z, numbered(14, 20))
        with z.appending() as append:
            append.add(bytes(500), 5, 100)
            pause()

    with other_process(body) as other:
        other.kill()
    assert (path / MARK).exists()


def journal_store(path: Path, kind: str) -> list[bytes]:
    """Make a store that is to be deleted from or compacted, and return its records."""
    with SmallChunks(path, "raw") as z:
        fill(z, RECORDS)
        if kind == "compact":
            z.delete(TARGETS)
    return DELETED if kind == "compact" else RECORDS


def carry_out(path: Path, kind: str) -> None:
    with SmallChunks(path, "raw") as z:
        if kind == "delete":
            z.delete(TARGETS)
        else:
            z.compact()


def left_by(path: Path, kind: str, moment: str) -> list[bytes]:
    """Make a store on which a change was cut off with its journal whole; return the records before.

    Parameters
    ----------
    path : Path
    kind : {"delete", "compact"}
    moment : {"staged", "half", "entries"}
        Before the first change outside the journal, after one, or after those of the sums and the table.
    """
    old = journal_store(path, kind)
    scratch = path.with_name(path.name + "-scratch")
    journal_store(scratch, kind)
    seen: list[tuple[str, str]] = []

    def observe(operation: str, where: Any, *_: object) -> None:
        name = (
            os.path.basename(os.readlink(f"/proc/self/fd/{where}")) if isinstance(where, int) else where.name
        )
        seen.append((operation, name))

    with pytest.MonkeyPatch.context() as patch, SmallChunks(scratch, "raw") as z:
        patch.setattr(files, "observe", observe)
        z.delete(TARGETS) if kind == "delete" else z.compact()
        patch.setattr(files, "observe", None)
    staged = max(
        number
        for number, (operation, name) in enumerate(seen)
        if operation == "write" and name.startswith("journal") and not wrote_elsewhere(seen[:number], kind)
    )
    changes = [
        number
        for number, (operation, name) in enumerate(seen)
        if number > staged and operation == "write" and not name.startswith("journal")
    ]
    table = [number for number in changes if seen[number] == ("write", "meta.zr")]
    chosen = {"staged": changes[0], "half": changes[1], "entries": table[0] + 1}[moment]
    assert not finishes_before(1 + chosen, lambda: carry_out(path, kind))
    assert (path / JOURNAL).exists()
    return old


def wrote_elsewhere(seen: list[tuple[str, str]], kind: str) -> bool:
    """Return whether a change has touched a chunk (compact) or an entry (delete) yet."""
    touched = {"delete": ("meta.zr",), "compact": tuple(f"{chunk}.zr" for chunk in range(100))}[kind]
    journaled = False
    for operation, name in seen:
        journaled = journaled or name.startswith("journal")
        if journaled and operation == "write" and name in touched:
            return True
    return False
