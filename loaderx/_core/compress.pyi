from typing import Any, final

@final
class CompressionDictionary:
    def __new__(cls, content: bytes, level: int) -> CompressionDictionary: ...

def compress_bound(lens: Any) -> int: ...
def compress(
    src: Any,
    starts: Any,
    lens: Any,
    out: Any,
    phys: Any,
    codecs: Any,
    codec: int,
    level: int,
    dictionary: CompressionDictionary | None,
    threads: int,
    sums: Any = None,
    item_size: int = 0,
) -> int: ...
def train(samples: Any, sizes: Any, target_bytes: int) -> bytes | str: ...
def trim_compressors() -> int: ...
def level_range() -> tuple[int, int]: ...
