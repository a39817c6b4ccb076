# The format, declared once for the compiled core: docs/format.md gives it in bytes, loaderx/store/format.py the same
# for NumPy (tests/core/test_layout.py holds the two together).

from libc.stdint cimport uint8_t, uint16_t, uint32_t


cdef packed struct Header:
    uint8_t magic[4]            # b"ZREC"
    uint16_t version
    uint16_t tail_chunk         # the chunk that takes the next record, and
    uint32_t tail_offset        # the byte in it where that record goes
    uint32_t length             # number of records


cdef packed struct RecordLoc:
    uint32_t offset             # first byte, in its chunk
    uint32_t phys_length        # stored bytes
    uint32_t logic_length       # original bytes
    uint16_t chunk_id
    uint8_t codec
    uint8_t reserved            # bytes of an item, where codec >= CODEC_ZSTD_SHUFFLE


cdef packed struct RecordSum:   # beside the format, in sums.zr
    uint32_t tag                # of the table entry; 0: this record has no sum
    uint32_t checksum           # of the stored bytes


cdef enum:
    CODEC_RAW = 0
    CODEC_ZSTD = 1
    CODEC_ZSTD_DICT = 2
    CODEC_ZSTD_SHUFFLE = 3          # the record byte-shuffled (shuffle.pyx), then zstd;
    CODEC_ZSTD_SHUFFLE_DICT = 4     # the same with the dictionary

    MIN_ITEM_SIZE = 2
    MAX_ITEM_SIZE = 255

    HEADER_BYTES = 16
    RECORD_BYTES = 16
    SUMS_HEADER_BYTES = 32
    SUM_BYTES = 8

    # A frame may promise at most this many bytes for each stored one, plus a fixed allowance. zstd itself stays far
    # below; an entry above it is forged, and is refused before anything is allocated for it.
    MAX_EXPANSION = 65536
    EXPANSION_ALLOWANCE = 65536
