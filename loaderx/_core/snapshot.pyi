from typing import Any, final

from loaderx._core.maps import FileMap

@final
class DecompressionDictionary:
    def __new__(cls, content: bytes) -> DecompressionDictionary: ...

@final
class Gate:
    active: int
    closed: bool
    hold: Any
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
    sums: FileMap | None
    max_codec: int
    dictionary_is_damaged: bool
    tail: tuple[int, int] | None
    def __new__(
        cls,
        table: FileMap,
        chunks: tuple[FileMap, ...],
        length: int,
        dictionary: DecompressionDictionary | None,
        gate: Gate,
        max_record_bytes: int,
        sums: FileMap | None = None,
        max_codec: int = 2,
        dictionary_is_damaged: bool = False,
        tail: tuple[int, int] | None = None,
    ) -> Snapshot: ...
