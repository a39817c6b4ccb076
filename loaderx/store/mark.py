"""The durable mark of a writing session: `mark.zr`.

It is there, and has reached the disk, while records may not have. It says from where on they may not, and which boot of
the machine they were written in: a later boot cannot know what reached the disk, the same one can.
"""

from __future__ import annotations

import functools
import os
import struct
import sys
import uuid
import warnings
from dataclasses import dataclass
from pathlib import Path

from loaderx._core.checksum import checksum
from loaderx.errors import StoreWarning
from loaderx.store import files
from loaderx.store.format import MARK
from loaderx.store.header import Header

# Below 512 bytes, so that it is one sector, which a disk writes whole or not at all.
_MARK = struct.Struct("<4sHHIQQ16sI")
_MAGIC = b"ZMRK"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Mark:
    """A session's mark.

    Attributes
    ----------
    base : Header
        What had reached the disk: all records below its length. The session's records begin at its tail.
    boot : bytes
        Of the machine, when the session began.
    """

    base: Header
    boot: bytes


def write_mark(store: Path, base: Header) -> None:
    """Write the mark of a session of this boot so that it has reached the disk when this returns."""
    head = _MARK.pack(_MAGIC, _VERSION, 0, base.tail_chunk, base.length, base.tail_offset, boot_id(), 0)[:-4]
    files.write_new(store / MARK, head + struct.pack("<I", checksum(head)))
    files.sync_directory(store)


def read_mark(store: Path) -> Mark | None:
    """Return the mark a session left; None where there is none, or, with a warning, where it is damaged."""
    with files.errors_named(store, f"read {MARK}"):
        data = files.read_beginning(store / MARK, 4096)
    if data is None:
        return None
    if len(data) == _MARK.size:
        magic, version, _, tail_chunk, length, tail_offset, boot, check = _MARK.unpack(data)
        is_whole = magic == _MAGIC and version == _VERSION and check == checksum(data[:-4])
        if is_whole and tail_chunk < 1 << 16 and tail_offset < 1 << 32 and length < 1 << 32:
            return Mark(Header(tail_chunk, tail_offset, length), boot)
    warnings.warn(
        f"{store}: {MARK} is damaged or of another release, and is not followed: if the machine stopped while a "
        "program was writing, check the records with `python -m loaderx verify`",
        StoreWarning,
        stacklevel=2,
    )
    return None


@functools.cache
def boot_id() -> bytes:
    """Return 16 bytes that are the same until the machine is started again.

    Where the system has none they differ from process to process, so that a mark is always looked into.
    """
    try:
        if sys.platform == "darwin":
            import subprocess  # here: elsewhere nobody needs it

            command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
            return uuid.UUID(subprocess.run(command, capture_output=True, text=True).stdout).bytes
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            return uuid.UUID(stream.read().strip()).bytes
    except (OSError, ValueError):
        return os.urandom(16)
