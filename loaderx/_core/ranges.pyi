from collections.abc import Callable
from typing import Any, SupportsIndex, final

from loaderx._core.maps import FileMap

WHATS: dict[int, str]

@final
class Ranges:
    table: FileMap
    length: int
    def __new__(
        cls,
        table: FileMap,
        length: int,
        n_files: int,
        open_file: Callable[[int], FileMap],
        trims: bool,
        most_open: int,
    ) -> Ranges: ...
    def open_files(self) -> int: ...
    def one(self, index: SupportsIndex) -> bytes | tuple[Any, ...]: ...
    def many(self, idxs: Any, threads: int) -> list[bytes] | tuple[Any, ...]: ...
    def locate(self, index: int) -> tuple[int, int, int] | None: ...
    def stretch(self, first: int, most: int, most_bytes: int) -> int: ...
    def prefetch(self, idxs: Any) -> tuple[Any, ...] | None: ...

def split(data: Any, splits: Any) -> list[bytes]: ...

@final
class Tally:
    value: int
    def __new__(cls) -> Tally: ...
    def add(self) -> None: ...
