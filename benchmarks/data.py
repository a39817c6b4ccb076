"""The data of the store's benchmark: records that zstd can barely compress, the same ones for the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PIECE_BYTES = 12
NUM_SHARED_PIECES = 340
SHARED_FRACTION = 0.305
RECORDS_A_BLOCK = 1000


def make_records(num_records: int, shape: tuple[int, ...], seed: int = 0) -> NDArray[np.uint8]:
    """Return random bytes in which some pieces come from one small set.

    Every record is cut into pieces of 12 bytes. A piece is, with probability 0.305, one of 340 that all records
    share, else uniformly random. At 12 KiB a record, zstd's level 3 reaches a ratio of 1.08 and a dictionary 1.32:
    sensor noise with a little structure, for which decompression costs about as much as memory.

    Parameters
    ----------
    num_records : int
    shape : tuple of int
        Shape of one record of uint8.
    seed : int

    Returns
    -------
    ndarray of uint8, shape (num_records, *shape)
    """
    rng = np.random.default_rng(seed)
    shared = rng.integers(0, 256, (NUM_SHARED_PIECES, PIECE_BYTES), dtype=np.uint8)
    record_bytes = int(np.prod(shape, dtype=np.int64))
    pieces_a_record = record_bytes // PIECE_BYTES
    records: NDArray[np.uint8] = np.empty((num_records, record_bytes), dtype=np.uint8)
    for start in range(0, num_records, RECORDS_A_BLOCK):
        block = records[start : start + RECORDS_A_BLOCK]
        block[:] = rng.integers(0, 256, block.shape, dtype=np.uint8)
        pieces: NDArray[Any] = (
            block[:, : pieces_a_record * PIECE_BYTES].reshape(len(block), -1, PIECE_BYTES).copy()
        )
        from_shared = rng.random(pieces.shape[:2]) < SHARED_FRACTION
        pieces[from_shared] = shared[rng.integers(0, NUM_SHARED_PIECES, int(from_shared.sum()))]
        block[:, : pieces_a_record * PIECE_BYTES] = pieces.reshape(len(block), -1)
    return records.reshape(num_records, *shape)
