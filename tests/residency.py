"""Which pages of a file are in memory, and having a file leave it."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

PAGE = mmap.PAGESIZE


def resident(path: Path) -> npt.NDArray[np.bool_]:
    """Return for each page of a file whether it is in memory.

    Raises
    ------
    OSError
    """
    with path.open("rb") as file:
        view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    pages: npt.NDArray[np.uint8] = np.zeros(-(-len(view) // PAGE), np.uint8)
    address = np.frombuffer(view, np.uint8).ctypes.data
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(view)), ctypes.c_void_p(pages.ctypes.data)):
        raise OSError(ctypes.get_errno(), "mincore")
    return (pages & 1).astype(bool)


def drop(paths: Iterable[Path], watched: Path, deadline_s: float) -> bool:
    """Ask that files leave the memory until one of them has; False where it stays. No map may have touched pages."""
    deadline, files = time.monotonic() + deadline_s, list(paths)
    while True:
        for path in files:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
        if not resident(watched).any():
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)


@functools.cache
def can_drop() -> bool:
    """Return whether files in the temporary folder leave the memory when that is asked, as those on a disk do."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        path.write_bytes(bytes(4 * PAGE))
        try:
            return drop([path], path, 2.0)
        except OSError:
            return False
