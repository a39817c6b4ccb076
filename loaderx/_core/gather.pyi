import enum
from typing import Any

from loaderx._core.snapshot import Snapshot

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

def gather(
    snapshot: Snapshot, idxs: Any, dst: Any, stride: int, exact: bool, pad: Any, threads: int
) -> tuple[Any, ...] | None: ...
def gather_at(
    snapshot: Snapshot, idxs: Any, dst: Any, starts: Any, lens: Any, total_bytes: int, threads: int
) -> tuple[Any, ...] | None: ...
def lengths(snapshot: Snapshot, idxs: Any, out: Any) -> tuple[Any, ...] | None: ...
def zstd_version() -> str: ...
def zstd_source() -> str: ...
