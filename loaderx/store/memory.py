"""Work that takes memory for each record of a store, refused where there is too little before it is begun.

The system gives memory until there is none, and then ends a process. A header names up to 4,294,967,295 records, in a
file of holes that takes no space.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from loaderx.errors import StoreIOError

_MEMORY = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")

# So much is never refused: what is available is an estimate.
_LITTLE_BYTES = 256 << 20


def check_memory(store: Path, what: str, n_bytes: int, advice: str) -> None:
    """Raise `StoreIOError` where there is too little memory for what is to be done.

    Parameters
    ----------
    store : pathlib.Path
    what : str
        After "could not".
    n_bytes : int
        About how many bytes that takes.
    advice : str
        What the store is like now, or what to do.
    """
    if n_bytes <= _LITTLE_BYTES:
        return
    available = available_bytes()
    if n_bytes > available:
        raise StoreIOError(
            f"{store}: could not {what}: it takes about {n_bytes} bytes of memory, and {available} are available; "
            f"{advice}",
            store=store,
            path=store,
            errno=errno.ENOMEM,
        )


def available_bytes() -> int:
    """Return how many bytes of memory can be had: of the machine, and of the container where it bounds them."""
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _read(_MEMORY).splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    limit = _read(_CGROUP / "memory.max").strip()
    if limit.isdigit():
        # What files take there goes when somebody needs it.
        for line in _read(_CGROUP / "memory.stat").splitlines():
            if line.startswith("anon "):
                available = min(available, max(0, int(limit) - int(line.split()[1])))
    return available


def _read(path: Path) -> str:
    """Return the text of a file of the system's; nothing where there is none."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
