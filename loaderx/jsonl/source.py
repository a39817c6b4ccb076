"""What a dataset needs of the place its samples come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, SupportsIndex

from loaderx.errors import JsonlError, LoaderxError
from loaderx.store.buffers import Indices


class Source(Protocol):
    """Samples as bytes.

    Attributes
    ----------
    path : pathlib.Path
    length : int
    one : callable
        Given an index, returns the bytes of a sample, or something else, of which `error` makes an exception.
    """

    path: Path
    length: int

    @property
    def one(self) -> Callable[[SupportsIndex], Any]: ...

    def error(self, fault: Any, *, alone: bool = False) -> LoaderxError:
        """Return the exception for what `one` returned instead of bytes."""

    def many(self, indices: Indices) -> list[bytes]:
        """Return the bytes of samples, in the order asked for."""

    def stretch(self, first: int, most: int, most_bytes: int) -> int:
        """Return the index behind some samples, from `first` on, that are no more and no larger than this, or one."""

    def prefetch(self, indices: Indices) -> None:
        """Have the system begin to read samples."""

    def where(self, index: int) -> tuple[Path | None, int | None]:
        """Return the file of a sample and the number of its line, as far as they are known."""

    def parse_error(self, index: int, raw: bytes, error: BaseException) -> JsonlError:
        """Return the exception for a sample that does not parse."""

    def close(self) -> None:
        """Let go of the files, as soon as no call reads them any more."""
