# One record of a store: its table entry looked up and checked against the files, its sum, its stored bytes found, and
# the record made of them. Inline, because whoever reads records does so once for each.
#
# What goes wrong is noted in the `Worker`, by one of the numbers of `loaderx._core.fault`: there is no GIL to raise
# with.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from loaderx._core.checksum cimport tag_of
from loaderx._core.layout cimport (
    CODEC_RAW,
    CODEC_ZSTD_DICT,
    CODEC_ZSTD_SHUFFLE,
    CODEC_ZSTD_SHUFFLE_DICT,
    EXPANSION_ALLOWANCE,
    HEADER_BYTES,
    MAX_EXPANSION,
    MIN_ITEM_SIZE,
    RECORD_BYTES,
    SUM_BYTES,
    SUMS_HEADER_BYTES,
    RecordLoc,
    RecordSum,
)
from loaderx._core.maps cimport MapSlot, file_size, monotonic_ns, read_at
from loaderx._core.scratch cimport Scratch, grow
from loaderx._core.shuffle cimport unshuffle_record
from loaderx._core.zstd cimport (
    ZSTD_CONTENTSIZE_ERROR,
    ZSTD_CONTENTSIZE_UNKNOWN,
    ZSTD_createDCtx,
    ZSTD_DCtx,
    ZSTD_DDict,
    ZSTD_decompress_usingDDict,
    ZSTD_decompressDCtx,
    ZSTD_getFrameContentSize,
    ZSTD_isError,
)


cdef enum:
    INDEX = 1
    TABLE_CUT = 2
    CHUNK = 3
    CODEC = 4
    LENGTHS = 5
    OUTSIDE_FILE = 6
    RECORD_SIZE = 7
    DESTINATION = 8
    FRAME_SIZE = 9
    FRAME = 10
    DICTIONARY = 11
    IO = 12
    MEMORY = 13
    GATE_CLOSED = 14
    OVERLAP = 15
    SUM = 16
    ITEM_SIZE = 17


cdef struct Worker:
    # What one thread of a call owns. Workers are reused from call to call: a zstd context costs more than a record.
    RecordLoc entry         # of the record being served; first, so that it never lies across two cache lines
    RecordSum sum           # and its sum; a tag of 0: it has none, or nobody asked
    int64_t index           # and which record it is
    ZSTD_DCtx* context
    Scratch stored          # stored bytes that are read through the descriptor
    Scratch unpacked        # what a frame held, where that is not the record itself or nobody wants to keep it
    int fault               # 0, or the fault this thread stopped at,
    int64_t position        # the place in the batch where it did,
    int64_t detail          # and what it found there
    int64_t n_served        # records served in this call,
    int64_t served_ns       # and when the last share of them was done
    uint8_t apart[64]       # keeps two workers off one cache line


cdef struct Batch:
    # Which records of what.
    MapSlot* table
    MapSlot* sums               # NULL: nothing is verified
    MapSlot** chunks
    uint32_t n_chunks
    int64_t length
    int64_t max_record_bytes
    int max_codec
    const ZSTD_DDict* dictionary
    bint dictionary_is_damaged
    const int64_t* idxs
    bint idxs_unsigned
    int64_t n
    int64_t begin_ns
    int64_t sizes_since_ns      # a size of a file that was looked at before is too old


cdef inline int stop(Worker* worker, int64_t position, int fault, int64_t detail) noexcept nogil:
    # A thread gets its positions in rising order, so its first fault is its lowest.
    if worker.fault == 0:
        worker.fault = fault
        worker.position = position
        worker.detail = detail
    return fault


cdef inline int64_t find_index(const Batch* batch, int64_t index) noexcept nogil:
    """Return which record an index means; negative: none."""
    if index < 0 and not batch.idxs_unsigned:
        index += batch.length
    return index if index < batch.length else -1


cdef inline int look_up(const Batch* batch, Worker* worker, int64_t i) noexcept nogil:
    """Copy the table entry of position `i` to `worker.entry` and check it against the files; 0 or a fault."""
    cdef RecordLoc* entry = &worker.entry
    cdef int64_t index = find_index(batch, batch.idxs[i])
    cdef int64_t entry_end
    cdef int64_t record_end
    cdef int64_t size
    cdef int64_t got
    cdef MapSlot* chunk
    if index < 0:
        return stop(worker, i, INDEX, 0)
    worker.index = index
    entry_end = HEADER_BYTES + (index + 1) * RECORD_BYTES
    size = file_size(batch.table, batch.sizes_since_ns)
    if size < entry_end:
        size = file_size(batch.table, monotonic_ns())
        if size < 0:
            return stop(worker, i, IO, 0)
        if size < entry_end:
            return stop(worker, i, TABLE_CUT, size)
    if batch.table.base != NULL:
        memcpy(entry, batch.table.base + entry_end - RECORD_BYTES, RECORD_BYTES)
    else:
        got = read_at(batch.table.fd, <uint8_t*>entry, RECORD_BYTES, entry_end - RECORD_BYTES)
        if got != RECORD_BYTES:
            return stop(worker, i, IO if got < 0 else TABLE_CUT, got)
    if entry.chunk_id >= batch.n_chunks:
        return stop(worker, i, CHUNK, batch.n_chunks)
    if entry.codec == CODEC_RAW:
        if entry.phys_length != entry.logic_length:
            return stop(worker, i, LENGTHS, 0)
    elif entry.codec > batch.max_codec:
        return stop(worker, i, CODEC, batch.max_codec)
    elif entry.codec >= CODEC_ZSTD_SHUFFLE and entry.reserved < MIN_ITEM_SIZE:
        return stop(worker, i, ITEM_SIZE, entry.reserved)
    elif entry.logic_length > <int64_t>entry.phys_length * MAX_EXPANSION + EXPANSION_ALLOWANCE:
        return stop(worker, i, LENGTHS, 0)
    if entry.logic_length > batch.max_record_bytes:
        return stop(worker, i, LENGTHS, batch.max_record_bytes)
    chunk = batch.chunks[entry.chunk_id]
    record_end = <int64_t>entry.offset + entry.phys_length
    size = file_size(chunk, batch.sizes_since_ns)
    if size < record_end:
        size = file_size(chunk, monotonic_ns())
        if size < 0:
            return stop(worker, i, IO, 0)
        if size < record_end:
            return stop(worker, i, OUTSIDE_FILE, size)
    return 0


cdef inline int look_up_sum(const Batch* batch, Worker* worker, int64_t i) noexcept nogil:
    """Copy the sum of the record in `worker.entry` to `worker.sum` and check its tag; 0 or a fault."""
    cdef int64_t at = SUMS_HEADER_BYTES + worker.index * SUM_BYTES
    cdef int64_t got
    worker.sum.tag = 0
    if batch.sums.base != NULL:
        # Sums are written before the entries they belong to, so a size from the beginning of this call is new enough.
        if (
            at + SUM_BYTES > file_size(batch.sums, batch.sizes_since_ns)
            and at + SUM_BYTES > file_size(batch.sums, batch.begin_ns)
        ):
            return 0
        memcpy(&worker.sum, batch.sums.base + at, SUM_BYTES)
    else:
        got = read_at(batch.sums.fd, <uint8_t*>&worker.sum, SUM_BYTES, at)
        if got != SUM_BYTES:
            worker.sum.tag = 0
        if got < 0:
            return stop(worker, i, IO, got)
    if worker.sum.tag != 0 and worker.sum.tag != tag_of(<const uint8_t*>&worker.entry):
        return stop(worker, i, SUM, 0)
    return 0


cdef inline int compare(Worker* worker, int64_t i, uint32_t found) noexcept nogil:
    """Check the checksum of the stored bytes; 0 or a fault."""
    if found == worker.sum.checksum:
        return 0
    return stop(worker, i, SUM, <int64_t>(<uint64_t>worker.sum.checksum << 32 | found))


cdef inline int read_stored(MapSlot* chunk, Worker* worker, int64_t i, uint8_t* dst) noexcept nogil:
    """Copy the stored bytes of `worker.entry`, out of the map or through the descriptor; 0 or a fault."""
    cdef int64_t got
    if chunk.base != NULL:
        memcpy(dst, chunk.base + worker.entry.offset, worker.entry.phys_length)
        return 0
    got = read_at(chunk.fd, dst, worker.entry.phys_length, worker.entry.offset)
    if got < 0:
        return stop(worker, i, IO, got)
    if got != worker.entry.phys_length:
        return stop(worker, i, OUTSIDE_FILE, worker.entry.offset + got)
    return 0


cdef inline int find_stored(MapSlot* chunk, Worker* worker, int64_t i, const uint8_t** stored) noexcept nogil:
    """Set `stored` to where the stored bytes of `worker.entry` are, in the map or read into scratch; 0 or a fault."""
    if chunk.base != NULL:
        stored[0] = chunk.base + worker.entry.offset
        return 0
    if grow(&worker.stored, worker.entry.phys_length) != 0:
        return stop(worker, i, MEMORY, worker.entry.phys_length)
    stored[0] = worker.stored.base
    return read_stored(chunk, worker, i, worker.stored.base)


cdef inline int decompress(const Batch* batch, Worker* worker, int64_t i, const uint8_t* stored,
                           uint8_t* dst) noexcept nogil:
    """Decompress one frame to its exact length: the record, or the shuffled one."""
    cdef const RecordLoc* entry = &worker.entry
    cdef unsigned long long promised = ZSTD_getFrameContentSize(stored, entry.phys_length)
    cdef bint with_dictionary = entry.codec == CODEC_ZSTD_DICT or entry.codec == CODEC_ZSTD_SHUFFLE_DICT
    cdef size_t got
    if promised == ZSTD_CONTENTSIZE_ERROR:
        return stop(worker, i, FRAME, 0)
    if promised == ZSTD_CONTENTSIZE_UNKNOWN or promised != entry.logic_length:
        return stop(worker, i, FRAME_SIZE, -1 if promised == ZSTD_CONTENTSIZE_UNKNOWN else <int64_t>promised)
    if worker.context == NULL:
        worker.context = ZSTD_createDCtx()
        if worker.context == NULL:
            return stop(worker, i, MEMORY, 0)
    if with_dictionary:
        if batch.dictionary == NULL:
            return stop(worker, i, DICTIONARY, batch.dictionary_is_damaged)
        got = ZSTD_decompress_usingDDict(worker.context, dst, entry.logic_length, stored, entry.phys_length,
                                         batch.dictionary)
    else:
        got = ZSTD_decompressDCtx(worker.context, dst, entry.logic_length, stored, entry.phys_length)
    if ZSTD_isError(got) or got != entry.logic_length:
        return stop(worker, i, FRAME, with_dictionary)
    return 0


cdef inline int grow_unpacked(Worker* worker, int64_t i) noexcept nogil:
    """Make room for what the frame of `worker.entry` holds; 0 or a fault."""
    if grow(&worker.unpacked, max(<int64_t>worker.entry.logic_length, 1)) != 0:
        return stop(worker, i, MEMORY, worker.entry.logic_length)
    return 0


cdef inline int restore(const Batch* batch, Worker* worker, int64_t i, const uint8_t* stored,
                        uint8_t* dst) noexcept nogil:
    """Make the record of its frame; 0 or a fault."""
    cdef const RecordLoc* entry = &worker.entry
    cdef int fault
    if entry.codec < CODEC_ZSTD_SHUFFLE:
        return decompress(batch, worker, i, stored, dst)
    fault = grow_unpacked(worker, i)
    if fault == 0:
        fault = decompress(batch, worker, i, stored, worker.unpacked.base)
    if fault == 0:
        unshuffle_record(dst, worker.unpacked.base, entry.logic_length, entry.reserved)
    return fault
