"""Streams: lazy pipelines over files and other sources, which resume exactly.

`Stream` is put together call by call, and iterated; `StreamIterator` is a pass over it, which knows where it is.
"""

from __future__ import annotations

from loaderx.stream.iterator import StreamIterator
from loaderx.stream.stream import Stream
from loaderx.stream.write import WrittenStream

__all__ = ["Stream", "StreamIterator", "WrittenStream"]
