"""The data of the benchmarks, the same for the same seed: bytes that zstd can barely compress, waves, and tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PIECE_BYTES = 12
NUM_SHARED_PIECES = 340
SHARED_FRACTION = 0.305
RECORDS_A_BLOCK = 1000
NUM_TOKENS = 50_257
TOKEN_EXPONENT = 1.27


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


def make_waves(num_records: int, num_items: int, seed: int = 0) -> NDArray[np.float32]:
    """Return slow sines with a little noise, another one in each record.

    Parameters
    ----------
    num_records, num_items : int
    seed : int

    Returns
    -------
    ndarray of float32, shape (num_records, num_items)
    """
    rng = np.random.default_rng(seed)
    waves: NDArray[np.float32] = np.empty((num_records, num_items), np.float32)
    steps = np.arange(num_items)
    for record in waves:
        height, speed, phase = rng.uniform(0.5, 1), rng.uniform(0.0005, 0.002), rng.uniform(0, 2 * np.pi)
        record[:] = height * np.sin(steps * speed + phase) + rng.normal(0, 1e-4, num_items)
    return waves


def make_sequences(num_records: int, least: int, most: int, seed: int = 0) -> NDArray[np.int32]:
    """Return sequences of tokens of `least` to `most` items, none of them 0, with zeros behind each.

    Parameters
    ----------
    num_records, least, most : int
    seed : int

    Returns
    -------
    ndarray of int32, shape (num_records, most)
    """
    rng = np.random.default_rng(seed)
    sequences = make_tokens(num_records, most, seed) + np.int32(1)
    sequences[np.arange(most) >= rng.integers(least, most + 1, num_records)[:, None]] = 0
    return sequences


def make_tokens(num_records: int, num_items: int, seed: int = 0) -> NDArray[np.int32]:
    """Return ids of tokens by Zipf's law, the most frequent one 0.

    Parameters
    ----------
    num_records, num_items : int
    seed : int

    Returns
    -------
    ndarray of int32, shape (num_records, num_items)
    """
    rng = np.random.default_rng(seed)
    weights = np.cumsum(np.arange(1, NUM_TOKENS + 1) ** -TOKEN_EXPONENT)
    tokens: NDArray[np.int32] = np.empty((num_records, num_items), np.int32)
    for record in tokens:
        # the last weight itself is drawn by rounding at most: then it would be an id too many
        drawn = np.searchsorted(weights, rng.random(num_items) * weights[-1], side="right")
        record[:] = np.minimum(drawn, NUM_TOKENS - 1)
    return tokens
