"""What a gather stopped at: the numbers that `loaderx._core.gather` and `survey` return.

Apart from the compiled modules, which have the same numbers as constants (tests/core/test_layout.py holds them
together): a module whose initialisation is broken off while it imports others can end the interpreter.
"""

from __future__ import annotations

import enum


class Fault(enum.IntEnum):
    """What a gather stopped at."""

    INDEX = 1  # no record has this index
    TABLE_CUT = 2  # the table ends before this entry
    CHUNK = 3  # the entry names a chunk the store does not have
    CODEC = 4  # the entry names a codec that a store of its version does not have
    LENGTHS = 5  # the entry's lengths cannot belong together
    OUTSIDE_FILE = 6  # the entry's bytes lie beyond the end of the chunk file
    RECORD_SIZE = 7  # the record is not as long as the caller requires
    DESTINATION = 8  # the record does not fit the destination
    FRAME_SIZE = 9  # the zstd frame says another length than the entry
    FRAME = 10  # the zstd frame is damaged, or (detail 1) it or the dictionary
    DICTIONARY = 11  # the record needs a dictionary the store does not have (detail 0), or not as it was (1)
    IO = 12  # the system refused to read
    MEMORY = 13  # memory ran out
    GATE_CLOSED = 14  # the store is being changed: take a new snapshot
    OVERLAP = 15  # the destination shares memory with another argument
    SUM = 16  # the table entry (detail 0) or the stored bytes are not what they were: expected sum << 32 | found
    ITEM_SIZE = 17  # the entry names a shuffled codec and no size of items
