"""Trying a codec on a few records: how small they become, and how fast they are read, by the core that would do it."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from loaderx._core.compress import CompressionDictionary, compress, compress_bound
from loaderx._core.gather import gather_at
from loaderx._core.snapshot import DecompressionDictionary, Gate, Snapshot
from loaderx.store.format import CODECS, HEADER, RECORD, UNSHUFFLED, WIDE
from loaderx.store.options import Codec
from loaderx.store.recovery import private_map

# A first read waits for the memory it reads to; the fastest of a few says what the codec costs.
_READS = 3


def try_codec(
    records: memoryview,
    lens: npt.NDArray[np.uint32],
    codec: Codec,
    level: int,
    dictionary: bytes | None,
    item_size: int,
) -> tuple[int, float]:
    """Compress records and read them again, with one thread, in memory.

    Parameters
    ----------
    records : memoryview of bytes
        One behind the other; at least one byte in all.
    lens : ndarray of uint32, shape (n,)
        Bytes in each.
    codec : str
    level : int
    dictionary : bytes or None
        Needed for codecs "zstd_dict" and "zstd_shuffle_dict".
    item_size : int
        Of the items that codecs shuffle, 2 to 255; others ignore it.

    Returns
    -------
    stored_bytes : int
        Without the dictionary's.
    read_s : float
        Seconds that it took to read them all.
    """
    starts = np.cumsum(lens, dtype=np.int64) - lens
    stored, phys, codecs = (
        np.empty(compress_bound(lens), np.uint8),
        np.empty_like(lens),
        np.empty(len(lens), "u1"),
    )
    compressing = None if dictionary is None else CompressionDictionary(dictionary, level)
    stored_bytes = compress(
        records, starts, lens, stored, phys, codecs, CODECS[codec], level, compressing, 1, None, item_size
    )
    entries = np.zeros(len(lens), RECORD)
    entries["offset"] = np.cumsum(phys, dtype=np.int64) - phys
    entries["phys_length"], entries["logic_length"], entries["codec"] = phys, lens, codecs
    if codec in UNSHUFFLED:
        entries["reserved"][codecs == CODECS[codec]] = item_size
    snapshot = Snapshot(
        private_map(bytes(HEADER.itemsize) + entries.tobytes(), True),
        (private_map(stored[:stored_bytes].tobytes(), True),),
        len(lens),
        None if dictionary is None else DecompressionDictionary(dictionary),
        Gate(),
        WIDE.max_record_bytes,
        None,
        WIDE.max_codec,
    )
    read, seconds = np.empty(records.nbytes, np.uint8), []
    for _ in range(_READS):
        started = time.perf_counter()
        fault = gather_at(snapshot, np.arange(len(lens)), read, starts, lens, records.nbytes, 1)
        seconds.append(time.perf_counter() - started)
        assert fault is None, f"what {codec} compressed cannot be read: {fault}"
    return stored_bytes, min(seconds)
