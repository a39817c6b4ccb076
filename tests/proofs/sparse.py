"""Trees of sparse files: copied and compared by what is in them, never by their holes.

`meta.zr` is 256 MiB of hole with a few bytes in front.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

SECTOR = 512

#: What a file holds: its size, and those of its sectors that are not all zero, by number.
Sectors = dict[int, bytes]


def data_parts(descriptor: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over the parts of a file that are no holes: first byte, bytes."""
    size, end = os.fstat(descriptor).st_size, 0
    while end < size:
        try:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # no data behind here
                raise
            return
        end = os.lseek(descriptor, begin, os.SEEK_HOLE)
        yield begin, os.pread(descriptor, end - begin, begin)


def read_sectors(path: Path) -> tuple[int, Sectors]:
    """Return the size of a file and its sectors."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sectors: Sectors = {}
        for begin, data in data_parts(descriptor):
            assert begin % SECTOR == 0, "holes end at blocks of the file system"
            for at in range(0, len(data), SECTOR):
                sector = data[at : at + SECTOR].ljust(SECTOR, b"\0")
                if any(sector):
                    sectors[(begin + at) // SECTOR] = sector
        return os.fstat(descriptor).st_size, sectors
    finally:
        os.close(descriptor)


def write_sectors(path: Path, n_bytes: int, sectors: Sectors) -> None:
    """Make a file of sectors; what is beyond its size is left out."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        for number, sector in sectors.items():
            os.pwrite(descriptor, sector, number * SECTOR)
        os.ftruncate(descriptor, n_bytes)
    finally:
        os.close(descriptor)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory and all below it."""
    target.mkdir()
    for entry in os.scandir(source):
        if entry.is_dir(follow_symlinks=False):
            copy_tree(Path(entry.path), target / entry.name)
        else:
            write_sectors(target / entry.name, *read_sectors(Path(entry.path)))


def fingerprint(root: Path) -> dict[str, str]:
    """Return the name of everything below a directory, with a hash of what it holds."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_dir():
            found[str(path.relative_to(root))] = "directory"
        else:
            found[str(path.relative_to(root))] = content_hash(*read_sectors(path))
    return found


def content_hash(n_bytes: int, sectors: Sectors) -> str:
    """Return a hash of a file's size and sectors."""
    digest = hashlib.blake2b(str(n_bytes).encode(), digest_size=16)
    for number in sorted(sectors):
        if any(sectors[number]):
            digest.update(number.to_bytes(8, "little") + sectors[number])
    return digest.hexdigest()
