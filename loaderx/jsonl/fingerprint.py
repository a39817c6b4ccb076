"""Whether a text file is still what was indexed."""

from __future__ import annotations

import os
import stat

from loaderx._core.lines import LineScanner
from loaderx._core.maps import OpenFile
from loaderx.jsonl.layout import FileFacts
from loaderx.jsonl.scan import changed


def look_at(path: str, facts: FileFacts) -> os.stat_result:
    """Return what the system says of a file that still begins with what was indexed.

    The same size and time of change are trusted. Otherwise the fingerprint of what was indexed decides, which looks
    at the file's first and last bytes and at 62 places in between.

    Raises
    ------
    StaleIndexError
        The file is shorter, has other bytes, or is not there.
    OSError
        It cannot be read.
    """
    try:
        now = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise changed(path, "it is not there any more") from None
    if not stat.S_ISREG(now.st_mode):
        raise changed(path, "it is not a regular file any more")
    if now.st_size == facts.size and now.st_mtime_ns == facts.mtime_ns:
        return now
    if now.st_size < facts.size:
        raise changed(path, f"it has {now.st_size} bytes, and had {facts.size} when it was indexed")
    file = OpenFile(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fingerprint = LineScanner().fingerprint(file.fileno(), facts.size)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        file.close()
    if fingerprint is None or f"{fingerprint:016x}" != facts.fingerprint:
        raise changed(path, "it has other bytes than when it was indexed")
    return now
