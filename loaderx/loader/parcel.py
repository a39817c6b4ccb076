"""A batch as a pickle and the bytes of its arrays beside it, in a file that both processes have."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from loaderx._core.lease import Lease

#: Arrays begin at multiples of this.
ALIGNMENT = 64
# A pickle up to this goes over the channel; a longer one into the file, as the arrays do.
_INLINE_BYTES = 8192
_PADS = [bytes(n) for n in range(ALIGNMENT)]
_MOST_PARTS = min(os.sysconf("SC_IOV_MAX"), 1024)


class _Pickler(pickle.Pickler):
    """Leaves the bytes of every array to `buffer_callback`, of every dtype but those that hold objects."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not np.ndarray or obj.dtype.hasobject:
            return NotImplemented
        if not obj.nbytes:
            return np.ndarray, (obj.shape, obj.dtype)
        order: Literal["C", "F"] = "F" if obj.flags.fnc else "C"
        dense = obj if obj.flags.forc else obj.copy(order)
        # As bytes, because not every dtype has a buffer.
        flat: Any = dense.reshape(-1, order=order).view(np.uint8)
        if not obj.flags.writeable:
            flat.flags.writeable = False
        return _make_array, (pickle.PickleBuffer(flat), obj.shape, obj.dtype, order)


def _make_array(
    buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any], order: Literal["C", "F"]
) -> npt.NDArray[Any]:
    return np.ndarray(shape, dtype, buffer, order=order)


def pack(batch: Any) -> tuple[bytes | None, list[memoryview]]:
    """Return the pickle of a batch, and what belongs into the file. None: the pickle is the last of these.

    Raises
    ------
    Exception
        Something in it does not pickle.
    """
    buffers: list[memoryview] = []
    data = io.BytesIO()

    def keep(buffer: pickle.PickleBuffer) -> None:
        buffers.append(buffer.raw())

    _Pickler(data, protocol=5, buffer_callback=keep).dump(batch)
    if data.tell() <= _INLINE_BYTES:
        return data.getvalue(), buffers
    buffers.append(data.getbuffer())
    return None, buffers


def place(sizes: Iterable[int]) -> tuple[list[int], int]:
    """Return where in the file buffers of these sizes begin, and where the last ends."""
    places = []
    end = 0
    for size in sizes:
        begin = -(-end // ALIGNMENT) * ALIGNMENT
        places.append(begin)
        end = begin + size
    return places, end


def write(fd: int, buffers: Sequence[memoryview]) -> None:
    """Write buffers into a file, each at its `place`.

    Raises
    ------
    OSError
        Memory ran out. (Storing into a mapped file would end the process there.)
    """
    parts: list[bytes | memoryview] = []
    end = 0
    for buffer in buffers:
        parts += (_PADS[-end % ALIGNMENT], buffer)
        end += -end % ALIGNMENT + buffer.nbytes
    offset = 0
    for at in range(0, len(parts), _MOST_PARTS):
        offset = _write_parts(fd, parts[at : at + _MOST_PARTS], offset)


def _write_parts(fd: int, parts: list[bytes | memoryview], offset: int) -> int:
    while parts:
        n = os.pwritev(fd, parts, offset)
        offset += n
        # The system writes 2 GiB at once, and may stop anywhere.
        while parts and n >= len(parts[0]):
            n -= len(parts.pop(0))
        if n:
            parts[0] = memoryview(parts[0])[n:]
    return offset


def unpack(data: bytes | None, sizes: Sequence[int], lend: Callable[[int], Lease]) -> Any:
    """Return the batch. Its arrays lie in the memory of the lease and keep it alive; they are writable if they were.

    Parameters
    ----------
    data : bytes or None
        What `pack` returned.
    sizes : sequence of int
        Bytes of each buffer.
    lend : callable
        Returns a lease of so many bytes. Called once, or not at all where there are no buffers.
    """
    if not sizes:
        assert data is not None
        return pickle.loads(data)
    places, end = place(sizes)
    view = memoryview(lend(end))
    buffers = [view[begin : begin + size] for begin, size in zip(places, sizes, strict=True)]
    return pickle.loads(buffers.pop() if data is None else data, buffers=buffers)
