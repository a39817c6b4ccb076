from typing import Any, SupportsIndex

from loaderx._core.snapshot import Snapshot

def gather_one(snapshot: Snapshot, index: SupportsIndex, dst: Any) -> tuple[Any, ...] | None: ...
def gather(
    snapshot: Snapshot, idxs: Any, dst: Any, stride: int, exact: bool, pad: Any, threads: int
) -> tuple[Any, ...] | None: ...
def gather_at(
    snapshot: Snapshot, idxs: Any, dst: Any, starts: Any, lens: Any, total_bytes: int, threads: int
) -> tuple[Any, ...] | None: ...
