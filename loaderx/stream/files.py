"""Files as shards: what is the same for every kind of file."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Sequence
from typing import Any

from loaderx.errors import ArchiveError
from loaderx.stream.bad_rows import OnError, judge
from loaderx.stream.shards import Shards

# Of a file's beginning and of its end, to notice a change that leaves it as long as it was.
_LOOKED_AT_BYTES = 4096
# What is wrong with a file, and not with the machine: to ask again would give the same.
_OF_THE_FILE = (ArchiveError, FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
# Links that lead in a circle, and names that are too long.
_OF_THE_NAME = (errno.ELOOP, errno.ENAMETOOLONG)


class Files(Shards):
    """Files, each of which is a shard.

    Parameters
    ----------
    paths : sequence of str
    on_error : "raise", "skip" or callable
        What is done about what is bad: rows, and files that are not there, cut off or damaged, whose rest is left out.
    """

    #: The method of `Stream` that makes it.
    called: str

    def __init__(self, paths: Sequence[str], on_error: OnError = "raise") -> None:
        self._paths = list(paths)
        self._on_error: OnError = on_error

    def __len__(self) -> int:
        return len(self._paths)

    def describe(self) -> dict[str, Any]:
        """Return how many files there are, and a hash of their names below the folder that they all are in.

        So a state still fits where that folder has been moved.
        """
        folder = os.path.commonprefix(self._paths).rpartition("/")[0]  # noqa: RUF071 - the folder is cut off behind
        names = "\n".join(path[len(folder) :] for path in self._paths)
        digest = hashlib.blake2b(names.encode(errors="surrogateescape"), digest_size=8)
        return {"from": self.called, "files": len(self._paths), "names": digest.hexdigest()}

    def measure(self, shard: int) -> str:
        """Return a file's size, and a hash of what it begins and ends with."""
        with open(self._paths[shard], "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            seen = file.read(_LOOKED_AT_BYTES) or b""
            if size > len(seen):
                seen += os.pread(file.fileno(), _LOOKED_AT_BYTES, max(len(seen), size - _LOOKED_AT_BYTES))
        return f"{size} bytes, {hashlib.blake2b(seen, digest_size=8).hexdigest()}"

    def ends(self, error: Exception) -> bool:
        is_of_name = isinstance(error, OSError) and error.errno in _OF_THE_NAME
        return is_of_name or isinstance(error, _OF_THE_FILE)

    def leave_out(self, error: Exception) -> None:
        """Raise the error, or not, as `on_error` says: what a function returns has no place to take."""
        judge(self._on_error, error, lambda error: error)

    def size(self, shard: int) -> int:
        """Return a file's bytes; of one that is not there none, for reading says so."""
        try:
            return os.stat(self._paths[shard]).st_size
        except OSError:
            return 0

    def name(self, shard: int) -> str:
        return self._paths[shard]
