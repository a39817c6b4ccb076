"""Memory for batches, and what callers hand in made ready for the core: indices as 64-bit integers, memory as bytes."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from loaderx._core.batch import trim_workers
from loaderx._core.buffers import OFFSET_BYTES, Block, set_limit, trim
from loaderx._core.compress import trim_compressors
from loaderx._env import read_pool_bytes
from loaderx.errors import DestinationError, OptionError, RecordIndexError

Indices: TypeAlias = "npt.NDArray[np.int64] | npt.NDArray[np.uint64]"

_INT64, _UINT64, _UINT8 = np.dtype(np.int64), np.dtype(np.uint64), np.dtype(np.uint8)


# From this size on a block of the pool is had as fast as memory of NumPy's, and it is placed well.
_POOLED_BYTES = 64 << 10
_PAGE = 4096

# What 64 bits with a sign hold.
_MOST_BYTES = (1 << 63) - 1


def empty_array(shape: tuple[int, ...], dtype: np.dtype[Any], n_bytes: int) -> npt.NDArray[Any]:
    """Return an uninitialised array of plain values, which take `n_bytes`, in memory as `empty_batch` gives it.

    Raises
    ------
    OptionError, MemoryError
        As `empty_batch` does.
    """
    if n_bytes < _POOLED_BYTES:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, empty_batch(n_bytes))


def empty_batch(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return uninitialised memory for a batch: a large one's is recycled, and aligned to 64 bytes.

    Raises
    ------
    OptionError
        ``LOADERX_POOL_BYTES`` has no meaning; it is read when the first large batch is.
    MemoryError
    """
    if n_bytes < _POOLED_BYTES:
        return np.empty(n_bytes, np.uint8)
    if n_bytes <= _pool_limit():
        recycled: Any = Block(n_bytes)  # a buffer, which type checkers can be told from Python 3.12 on
        return np.ndarray(n_bytes, np.uint8, recycled)
    # The pool could not keep it. It begins where a block's bytes do.
    block = np.empty(n_bytes + _PAGE, np.uint8)
    first = (OFFSET_BYTES - int(block.__array_interface__["data"][0])) % _PAGE
    return block[first : first + n_bytes]


@functools.cache
def _pool_limit() -> int:
    """Return the most bytes that may lie idle, of which the pool is told."""
    limit = read_pool_bytes()
    set_limit(limit)
    return limit


def trim_pool() -> int:
    """Give memory that waits for later calls back to the system.

    That is the memory of dropped batches, and what threads worked in: zstd's, and records that had to be taken apart.
    Batches that anything still refers to are not touched. Later calls take fresh memory at first.

    Returns
    -------
    int
        Bytes given back: at most ``LOADERX_POOL_BYTES`` of batches, and 64 MiB each of reading and of writing.

    Examples
    --------
    >>> write_dataset(tmp_path / "images.zr", np.zeros((256, 1024), np.uint8))
    256
    >>> batch = Dataset(tmp_path / "images.zr")[:]
    >>> del batch
    >>> trim_pool() >= 256 * 1024
    True
    >>> trim_pool()
    0
    """
    return trim() + trim_workers() + trim_compressors()


# What lies idle a child has copies of. Its first write to one would copy each page, and so would the parent's.
os.register_at_fork(after_in_child=trim)


def as_indices(store: Path, idxs: Any) -> Indices:
    """Return indices as a contiguous int64 or uint64 array of one dimension, uncopied where they are one already.

    Parameters
    ----------
    store : pathlib.Path
        Named in errors.
    idxs : array_like of int, shape (n,)

    Raises
    ------
    TypeError
        Something else than integers (a boolean mask has no meaning for byte records).
    RecordIndexError
        Not one-dimensional, or an integer no store has room for.
    """
    if (
        type(idxs) is np.ndarray
        and (idxs.dtype is _INT64 or idxs.dtype is _UINT64)
        and idxs.ndim == 1
        and idxs.flags.c_contiguous
    ):
        return idxs
    array = as_array(store, idxs)
    if array.dtype.kind == "b":
        raise TypeError(f"{store}: indices must be integers, not bool: give np.flatnonzero(mask) for a mask")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{store}: indices must be integers, not {array.dtype}")
    if array.ndim != 1:
        instead = f": give [{array}]" if array.ndim == 0 else ""
        raise RecordIndexError(
            f"{store}: indices must have one dimension, not {array.ndim}{instead}", store=store
        )
    if array.dtype == np.uint64:
        return np.ascontiguousarray(array, np.uint64)
    return np.ascontiguousarray(array, np.int64)


def as_byte_counts(store: Path, argument: str, values: Any) -> npt.NDArray[np.int64]:
    """Return lengths or places in bytes as a contiguous int64 array, uncopied where they are one already.

    Parameters
    ----------
    store : pathlib.Path
        Named in errors,
    argument : str
        and so is the argument.
    values : array_like of int, shape (n,)

    Raises
    ------
    TypeError
        Something else than integers.
    OptionError
        Not one-dimensional, or an integer beyond 63 bits.
    """
    try:
        array = values if isinstance(values, np.ndarray) else np.asarray(_as_list(values))
    except (ValueError, OverflowError) as error:
        raise TypeError(f"{store}: {argument} must be a sequence of integers: {error}") from None
    if not isinstance(values, np.ndarray) and array.size == 0:
        array = array.astype(np.int64)  # an empty list has no type of its own; NumPy makes it float
    if array.ndim != 1:
        instead = f": give [{array}]" if array.ndim == 0 and array.dtype.kind in "iu" else ""
        raise OptionError(
            f"{store}: {argument} must have one dimension, not {array.ndim}{instead}",
            option=argument,
            value=values,
        )
    beyond: list[int] = []
    if array.dtype == np.uint64:
        beyond = array[array > _MOST_BYTES].tolist()
    elif array.dtype.kind in "Of":  # which NumPy makes of integers that no one type holds
        beyond = [value for value in values if isinstance(value, int) and abs(value) > _MOST_BYTES]
    if beyond:
        raise OptionError(
            f"{store}: {argument} holds {beyond[0]}, and no store has so many bytes",
            option=argument,
            value=beyond[0],
        )
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"{store}: {argument} must be integers, not {array.dtype}: convert them with astype(np.int64)"
        )
    return np.ascontiguousarray(array, np.int64)


def as_pad(store: Path, pad: Any) -> bytes:
    """Return the bytes of a pad.

    Raises
    ------
    TypeError
        It is no buffer.
    """
    if isinstance(pad, bytes):
        return pad
    try:
        return memoryview(pad).tobytes()
    except TypeError:
        instead = "encode it, pad.encode()" if isinstance(pad, str) else "give bytes, such as b'\\0'"
        if isinstance(pad, int):
            instead += ", or for items of several bytes np.int32(-1).tobytes()"
        raise TypeError(
            f"{store}: pad must be bytes or another buffer, not {type(pad).__name__}: {instead}"
        ) from None


def _as_list(values: Any) -> Any:
    return list(values) if isinstance(values, tuple | range) else values


def as_array(store: Path, idxs: Any) -> npt.NDArray[Any]:
    """Return indices of any kind as an array, of integers where the list holds nothing else.

    Raises
    ------
    TypeError
        The list makes no array.
    RecordIndexError
        It holds an integer beyond 64 bits.
    """
    if isinstance(idxs, np.ndarray):
        return idxs
    try:
        array = np.asarray(_as_list(idxs))
    except (ValueError, OverflowError) as error:
        raise TypeError(f"{store}: indices must be a sequence of integers: {error}") from None
    if array.size == 0:
        return array.astype(np.int64)  # an empty list has no type of its own; NumPy makes it float
    if array.dtype.kind in "Of" and array.ndim == 1 and all(isinstance(index, int) for index in idxs):
        # Integers that no one type holds: some are beyond every record.
        raise RecordIndexError(
            f"{store}: index {max(idxs, key=abs)} is out of range: no store has so many records", store=store
        )
    return array


def as_source(data: Any) -> memoryview:
    """Return the bytes of a buffer, in C order; copied only where they do not lie so already.

    Raises
    ------
    TypeError
        It is not a buffer, or holds Python objects.
    """
    if isinstance(data, str):
        raise TypeError("a str has no bytes to store: encode it first, data.encode()")
    if isinstance(data, np.ndarray):
        if data.dtype.hasobject:
            raise TypeError("an array of Python objects has no bytes to store")
        if data.nbytes == 0:
            return memoryview(b"")
        if data.dtype.names is not None:
            # NumPy copies fields one by one and leaves what is between them as it was; as plain bytes all is copied.
            # (The dtype as a string: for (numpy.void, size) NumPy runs Python code in which a Ctrl-C is lost.)
            data = data.view(f"V{data.dtype.itemsize}")
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
    view = memoryview(data)
    if view.c_contiguous:
        # cast() refuses a shape with a zero in it.
        return view.cast("B") if view.nbytes else memoryview(b"")
    return memoryview(view.tobytes())


def as_destination(store: Path, dst: Any) -> memoryview | npt.NDArray[np.uint8]:
    """Return a writable view of the bytes of a destination; an array of bytes as it is.

    Raises
    ------
    DestinationError
        It is read-only or not C-contiguous.
    TypeError
        It is not a buffer, or holds Python objects.
    """
    if isinstance(dst, np.ndarray):
        if dst.dtype.hasobject:
            raise TypeError("an array of Python objects has no bytes to fill")
        contiguous, writable = dst.flags.c_contiguous, dst.flags.writeable
    else:
        dst = memoryview(dst)
        contiguous, writable = dst.c_contiguous, not dst.readonly
    if not contiguous:
        raise DestinationError(
            f"{store}: the destination must be contiguous in C order, not strided", store=store
        )
    if not writable:
        raise DestinationError(f"{store}: the destination is read-only", store=store)
    if isinstance(dst, np.ndarray):
        return dst if dst.dtype is _UINT8 else dst.reshape(-1).view(np.uint8)
    return dst.cast("B") if dst.nbytes else memoryview(bytearray())
