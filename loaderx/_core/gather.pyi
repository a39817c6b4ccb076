import enum
from typing import Any, final

from loaderx._core.maps import FileMap

class Fault(enum.IntEnum):
    INDEX = 1
    TABLE_CUT = 2
    CHUNK = 3
    CODEC = 4
    LENGTHS = 5
    OUTSIDE_FILE = 6
    RECORD_SIZE = 7
    DESTINATION = 8
    FRAME_SIZE = 9
    FRAME = 10
    DICTIONARY = 11
    IO = 12
    MEMORY = 13
    GATE_CLOSED = 14
    OVERLAP = 15

@final
class DecompressionDictionary:
    def __new__(cls, content: bytes) -> DecompressionDictionary: ...

@final
class Gate:
    active: int
    closed: bool
    def __new__(cls) -> Gate: ...
    def close(self) -> None: ...
    def forget(self) -> None: ...

@final
class Snapshot:
    table: FileMap
    chunks: tuple[FileMap, ...]
    length: int
    dictionary: DecompressionDictionary | None
    gate: Gate
    max_record_bytes: int
    def __new__(
        cls,
        table: FileMap,
        chunks: tuple[FileMap, ...],
        length: int,
        dictionary: DecompressionDictionary | None,
        gate: Gate,
        max_record_bytes: int,
    ) -> Snapshot: ...

def gather(
    snapshot: Snapshot, idxs: Any, dst: Any, stride: int, exact: bool, pad: Any, threads: int
) -> tuple[Any, ...] | None: ...
def gather_at(
    snapshot: Snapshot, idxs: Any, dst: Any, starts: Any, lens: Any, total_bytes: int, threads: int
) -> tuple[Any, ...] | None: ...
def lengths(snapshot: Snapshot, idxs: Any, out: Any) -> tuple[Any, ...] | None: ...
def zstd_version() -> str: ...
def zstd_source() -> str: ...
