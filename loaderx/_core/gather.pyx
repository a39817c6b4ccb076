"""Batch read: look up, check, copy or decompress into the caller's memory.

Every function takes a `Snapshot` and int64 or uint64 indices, does its work without the GIL, and returns None, or a
tuple that begins with one of the numbers of `loaderx._core.fault` and says where: `loaderx.store.faults` turns it into an exception.
A call that fails may have written to a part of its destination.
"""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_WRITABLE
from cython.parallel cimport prange, threadid
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from loaderx._core.ahead cimport Ahead, ask_for_entries, go_on, is_alone, look_back, set_out, set_out_to_ask, settle
from loaderx._core.checksum cimport checksum_of, copy_checksummed, tag_of
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
from loaderx._core.pool cimport Pool, pool_put, pool_take
from loaderx._core.scratch cimport KEPT_SCRATCH, Scratch, grow, shrink
from loaderx._core.shuffle cimport unshuffle_record
from loaderx._core.snapshot cimport Gate, Snapshot
from loaderx._core.threads cimport governed_team_size, judge_team, learn_cost, team_size, weigh
from loaderx._core.views cimport Views, overlap, release, take
from loaderx._core.zstd cimport (
    ZSTD_CONTENTSIZE_ERROR,
    ZSTD_CONTENTSIZE_UNKNOWN,
    ZSTD_createDCtx,
    ZSTD_DCtx,
    ZSTD_DDict,
    ZSTD_decompress_usingDDict,
    ZSTD_decompressDCtx,
    ZSTD_freeDCtx,
    ZSTD_getFrameContentSize,
    ZSTD_isError,
    ZSTD_versionString,
)

cdef extern from *:
    """
    #ifndef LOADERX_ZSTD_SOURCE
      #define LOADERX_ZSTD_SOURCE "unknown"
    #endif
    #if defined(__GNUC__) || defined(__clang__)
      #define LX_PREFETCH(address) __builtin_prefetch((address), 0, 3)
    #else
      #define LX_PREFETCH(address) ((void)0)
    #endif

    /* The sizes of single numbers without a call. */
    static inline void lx_copy(uint8_t *dst, const uint8_t *src, size_t n_bytes) {
        switch (n_bytes) {
            case 1: *dst = *src; break;
            case 2: memcpy(dst, src, 2); break;
            case 4: memcpy(dst, src, 4); break;
            case 8: memcpy(dst, src, 8); break;
            default: memcpy(dst, src, n_bytes);
        }
    }
    """
    const char* LOADERX_ZSTD_SOURCE
    void LX_PREFETCH(const void* address) nogil
    void lx_copy(uint8_t* dst, const uint8_t* src, size_t n_bytes) nogil


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

    # Records below a page are looked up this many at a time, and this much of each is asked for: no more than the
    # processor can have under way at once.
    SMALL_RECORDS_AT_ONCE = 8
    SMALL_LINES_AHEAD = 4

    # Calls below this cost about the same whatever a byte costs.
    LEARN_BYTES = 8 * 1024

    # The number of no chunk.
    NO_CHUNK = 0xFFFFFFFF

    # Work below this size may trust a file size that was looked at up to SIZE_TRUST_NS ago.
    SIZE_TRUST_BYTES = 64 * 1024
    SIZE_TRUST_NS = 10000000

    # A thread takes at most this many records of a batch at a time, or this many bytes where that is more: few enough
    # that a team does not wait for its slowest thread, many enough that taking them costs nothing.
    MAX_SHARE = 16
    MAX_SHARE_BYTES = 16 * 1024

    # What the processor is asked for ahead of a copy: table entries, and the first lines of each page of a record; within
    # a page its own prefetchers follow. Of records below a page several are in flight at a time.
    SMALL_RECORDS_AHEAD = 6
    PAGE = 4096
    LINE = 64
    LINES_AHEAD = 8
    MAX_AHEAD = 65536


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
    uint8_t* dst
    int64_t dst_bytes
    int64_t stride              # with starts NULL: record i goes to i * stride
    const int64_t* starts       # else to starts[i], and is lens[i] long,
    const uint32_t* lens        # or, with lens NULL, ends where the next one begins
    bint exact
    const uint8_t* pad
    int64_t pad_bytes
    int64_t entries_ahead       # how many positions ahead table entries are fetched,
    int64_t records_ahead       # and the records themselves
    bint is_small               # many records to a page, mapped, and nothing to compare them with


cdef struct Ground:
    # What a thread has looked at of the files already.
    int64_t n_entries           # in the table, whatever the header says
    uint32_t chunk_id           # of the last record
    const uint8_t* chunk
    int64_t chunk_bytes


cdef struct Plain:
    # A record that is only copied.
    const uint8_t* stored       # NULL: there is more to it
    uint8_t* dst
    int64_t n_bytes


cdef Pool idle_workers


cdef struct Crew:
    # The workers of one call.
    Worker** workers
    int n
    Worker* lone            # the one of a call that has no team, which needs no memory for a list


cdef int take_workers(Crew* crew, int n) except -1:
    """Fill `crew`, which is all zero, with `n` workers; `give_back` takes them."""
    cdef Worker* worker
    crew.workers = &crew.lone if n == 1 else <Worker**>calloc(n, sizeof(Worker*))
    if crew.workers == NULL:
        raise MemoryError("no memory for a gather")
    while crew.n < n:
        worker = <Worker*>pool_take(&idle_workers)
        if worker == NULL:
            worker = <Worker*>calloc(1, sizeof(Worker))
        if worker == NULL:
            give_back(crew)
            raise MemoryError("no memory for a gather")
        worker.fault = 0
        worker.position = -1
        worker.sum.tag = 0
        worker.n_served = 0
        worker.served_ns = 0
        crew.workers[crew.n] = worker
        crew.n += 1
    return 0


cdef void give_back(Crew* crew) noexcept:
    cdef Worker* worker
    while crew.n > 0:
        crew.n -= 1
        worker = crew.workers[crew.n]
        shrink(&worker.stored, KEPT_SCRATCH)
        shrink(&worker.unpacked, KEPT_SCRATCH)
        if not pool_put(&idle_workers, worker):
            ZSTD_freeDCtx(worker.context)
            shrink(&worker.stored, 0)
            shrink(&worker.unpacked, 0)
            free(worker)
    if crew.workers != &crew.lone:
        free(crew.workers)
    crew.workers = NULL


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


cdef int look_up(const Batch* batch, Worker* worker, int64_t i) noexcept nogil:
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


cdef int look_up_sum(const Batch* batch, Worker* worker, int64_t i) noexcept nogil:
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


cdef int find_stored(MapSlot* chunk, Worker* worker, int64_t i, const uint8_t** stored) noexcept nogil:
    """Set `stored` to where the stored bytes of `worker.entry` are, in the map or read into scratch; 0 or a fault."""
    if chunk.base != NULL:
        stored[0] = chunk.base + worker.entry.offset
        return 0
    if grow(&worker.stored, worker.entry.phys_length) != 0:
        return stop(worker, i, MEMORY, worker.entry.phys_length)
    stored[0] = worker.stored.base
    return read_stored(chunk, worker, i, worker.stored.base)


cdef int decompress(const Batch* batch, Worker* worker, int64_t i, const uint8_t* stored,
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


cdef int grow_unpacked(Worker* worker, int64_t i) noexcept nogil:
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


cdef void fill(uint8_t* dst, int64_t n_bytes, const uint8_t* pattern, int64_t pattern_bytes) noexcept nogil:
    """Fill `dst` with a pattern, which is cut off at the end where it does not divide `n_bytes`."""
    cdef int64_t done
    cdef int64_t step
    if n_bytes <= 0:
        return
    if pattern_bytes == 1:
        memset(dst, pattern[0], n_bytes)
        return
    done = min(pattern_bytes, n_bytes)
    memcpy(dst, pattern, done)
    while done < n_bytes:
        step = min(done, n_bytes - done)
        memcpy(dst + done, dst, step)
        done += step


cdef bint is_one_byte(const uint8_t* pattern, int64_t n_bytes) noexcept nogil:
    """Return whether a pattern is one byte over and over."""
    cdef int64_t i
    for i in range(1, n_bytes):
        if pattern[i] != pattern[0]:
            return False
    return n_bytes > 0


cdef inline void foresee(const Batch* batch, int64_t i) noexcept nogil:
    """Have the processor fetch what position `i` is going to need soon. Checks only what it touches itself."""
    cdef const RecordLoc* entry
    cdef const uint8_t* stored
    cdef int64_t index
    cdef int64_t end
    cdef int64_t at = 0
    cdef int64_t line
    # Asking for an address without memory is no fault, so what is only asked for need not be checked against a file.
    # (Sums are mapped where the table is.)
    if batch.table.base == NULL:
        return
    if i + batch.entries_ahead < batch.n:
        index = batch.idxs[i + batch.entries_ahead]
        if 0 <= index < batch.length:
            LX_PREFETCH(batch.table.base + HEADER_BYTES + index * RECORD_BYTES)
            if batch.sums != NULL:
                LX_PREFETCH(batch.sums.base + SUMS_HEADER_BYTES + index * SUM_BYTES)
    i += batch.records_ahead
    if i >= batch.n:
        return
    index = batch.idxs[i]
    if index < 0 or index >= batch.length or batch.table.size < HEADER_BYTES + (index + 1) * RECORD_BYTES:
        return
    entry = <const RecordLoc*>(batch.table.base + HEADER_BYTES + index * RECORD_BYTES)
    if entry.chunk_id >= batch.n_chunks or batch.chunks[entry.chunk_id].base == NULL:
        return
    stored = batch.chunks[entry.chunk_id].base + entry.offset
    end = min(<int64_t>entry.phys_length, <int64_t>MAX_AHEAD)
    while at < end:
        for line in range(min(<int64_t>LINES_AHEAD, (end - at + LINE - 1) // LINE)):
            LX_PREFETCH(stored + at + line * LINE)
        at += PAGE


cdef inline int64_t length_expected(const Batch* batch, int64_t i) noexcept nogil:
    """Return how long the record at position `i` has to be, where that is known of each."""
    return batch.lens[i] if batch.lens != NULL else batch.starts[i + 1] - batch.starts[i]


cdef inline int64_t find_start(const Batch* batch, int64_t i, int64_t n_bytes) noexcept nogil:
    """Return where in the destination a record of that length goes as position `i`; negative: it does not fit there."""
    if batch.starts != NULL:
        if n_bytes != length_expected(batch, i) or batch.starts[i] > batch.dst_bytes - n_bytes:
            return -1
        return batch.starts[i]
    if n_bytes > batch.stride or (batch.exact and n_bytes != batch.stride):
        return -1
    return i * batch.stride


cdef inline int find_place(const Batch* batch, Worker* worker, int64_t i, uint8_t** dst) noexcept nogil:
    """Set `dst` to where the record in `worker.entry` goes; 0 or a fault."""
    cdef int64_t n_bytes = worker.entry.logic_length
    cdef int64_t start = find_start(batch, i, n_bytes)
    if start >= 0:
        dst[0] = batch.dst + start
        return 0
    if batch.starts == NULL:
        return stop(worker, i, RECORD_SIZE if batch.exact else DESTINATION, batch.stride)
    if n_bytes != length_expected(batch, i):
        return stop(worker, i, RECORD_SIZE, length_expected(batch, i))
    return stop(worker, i, DESTINATION, batch.dst_bytes)


cdef inline void pad_place(const Batch* batch, Worker* worker, uint8_t* dst) noexcept nogil:
    if batch.pad != NULL:
        fill(dst + worker.entry.logic_length, batch.stride - worker.entry.logic_length, batch.pad, batch.pad_bytes)


cdef int bring_verified(const Batch* batch, Worker* worker, int64_t i) noexcept nogil:
    """Bring the record in `worker.entry` to its place as `serve` does, comparing it with its sum where it has one."""
    cdef const RecordLoc* entry = &worker.entry
    cdef MapSlot* chunk = batch.chunks[entry.chunk_id]
    cdef const uint8_t* stored = NULL
    cdef uint8_t* dst = NULL
    # First the entry: what is wrong with a damaged one is not that the record has another size than the caller expects.
    cdef int fault = look_up_sum(batch, worker, i)
    if fault == 0:
        fault = find_place(batch, worker, i, &dst)
    if fault:
        return fault
    if entry.codec == CODEC_RAW:
        if worker.sum.tag != 0 and chunk.base != NULL:
            fault = compare(worker, i, copy_checksummed(dst, chunk.base + entry.offset, entry.phys_length))
        else:
            fault = read_stored(chunk, worker, i, dst)
            if fault == 0 and worker.sum.tag != 0:
                fault = compare(worker, i, checksum_of(dst, entry.phys_length))
    else:
        fault = find_stored(chunk, worker, i, &stored)
        if fault == 0 and worker.sum.tag != 0:
            fault = compare(worker, i, checksum_of(stored, entry.phys_length))
        if fault == 0:
            fault = restore(batch, worker, i, stored, dst)
    if fault == 0:
        pad_place(batch, worker, dst)
    return fault


cdef int serve(const Batch* batch, Worker* worker, int64_t i) noexcept nogil:
    """Bring record `i` of the batch to its place."""
    cdef RecordLoc* entry = &worker.entry
    cdef MapSlot* chunk
    cdef uint8_t* dst = NULL
    cdef const uint8_t* stored = NULL
    cdef int fault = look_up(batch, worker, i)
    if fault:
        return fault
    foresee(batch, i)
    if batch.sums != NULL:
        return bring_verified(batch, worker, i)
    fault = find_place(batch, worker, i, &dst)
    if fault:
        return fault
    chunk = batch.chunks[entry.chunk_id]
    if entry.codec == CODEC_RAW:
        fault = read_stored(chunk, worker, i, dst)
    else:
        fault = find_stored(chunk, worker, i, &stored)
        if fault == 0:
            fault = restore(batch, worker, i, stored, dst)
    if fault == 0:
        pad_place(batch, worker, dst)
    return fault


cdef object describe(const Batch* batch, const Worker* worker):
    """Return a fault as (fault, position, index, length, chunk, byte offset, stored, original, codec, detail)."""
    cdef int64_t index = batch.idxs[worker.position]
    cdef bint found = worker.fault != INDEX and worker.fault != TABLE_CUT
    cdef object given  # typed, or the two signs below would share one C type
    if batch.idxs_unsigned:
        given = <uint64_t>index
    else:
        given = index
        if index < 0:
            index += batch.length
    return (
        worker.fault, worker.position, given if worker.fault == INDEX else index, batch.length,
        worker.entry.chunk_id if found else None, worker.entry.offset if found else None,
        worker.entry.phys_length if found else None, worker.entry.logic_length if found else None,
        worker.entry.codec if found else None, worker.detail,
    )


cdef bint enter_chunk(const Batch* batch, Ground* ground, uint32_t chunk_id) noexcept nogil:
    """Have `ground` say of a chunk what of it can be copied; False where that is nothing."""
    cdef MapSlot* chunk
    if chunk_id >= batch.n_chunks:
        return False
    chunk = batch.chunks[chunk_id]
    if chunk.base == NULL:
        return False
    ground.chunk_id = chunk_id
    ground.chunk = chunk.base
    ground.chunk_bytes = file_size(chunk, batch.sizes_since_ns)
    return True


cdef inline bint find_plain(const Batch* batch, Ground* ground, int64_t i, Plain* plain) noexcept nogil:
    """Find what is copied where for position `i`; False where there is more to it, or something is wrong.

    It checks what `look_up` and `find_place` do. Whatever is not as usual is left to them, to serve or to name.
    """
    cdef int64_t index = find_index(batch, batch.idxs[i])
    cdef RecordLoc entry
    cdef int64_t start
    if index < 0 or index >= ground.n_entries:
        return False
    memcpy(&entry, batch.table.base + HEADER_BYTES + index * RECORD_BYTES, RECORD_BYTES)
    if entry.chunk_id != ground.chunk_id and not enter_chunk(batch, ground, entry.chunk_id):
        return False
    if (
        entry.codec != CODEC_RAW
        or entry.phys_length != entry.logic_length
        or entry.logic_length > batch.max_record_bytes
        or <int64_t>entry.offset + entry.phys_length > ground.chunk_bytes
    ):
        return False
    start = find_start(batch, i, entry.logic_length)
    if start < 0:
        return False
    plain.stored = ground.chunk + entry.offset
    plain.dst = batch.dst + start
    plain.n_bytes = entry.logic_length
    return True


cdef void serve_small(const Batch* batch, Worker* worker, int64_t at, int64_t end) noexcept nogil:
    """Serve positions up to the first fault: look up several, then copy them, while the processor fetches them all."""
    cdef Plain[SMALL_RECORDS_AT_ONCE] plains
    cdef Plain* plain
    cdef Ground ground
    cdef int64_t n
    cdef int64_t i
    cdef int64_t line
    ground.n_entries = (file_size(batch.table, batch.sizes_since_ns) - HEADER_BYTES) // RECORD_BYTES
    ground.chunk_id = NO_CHUNK
    ground.chunk = NULL
    ground.chunk_bytes = 0
    while at < end:
        n = min(end - at, <int64_t>SMALL_RECORDS_AT_ONCE)
        for i in range(n):
            plain = &plains[i]
            if not find_plain(batch, &ground, at + i, plain):
                plain.stored = NULL
                continue
            for line in range(min(<int64_t>SMALL_LINES_AHEAD, (plain.n_bytes + LINE - 1) // LINE)):
                LX_PREFETCH(plain.stored + line * LINE)
        for i in range(n):
            plain = &plains[i]
            if plain.stored == NULL:
                if serve(batch, worker, at + i):
                    return
                continue
            lx_copy(plain.dst, plain.stored, plain.n_bytes)
            if batch.pad != NULL:
                fill(plain.dst + plain.n_bytes, batch.stride - plain.n_bytes, batch.pad, batch.pad_bytes)
        at += n


cdef void serve_all(const Batch* batch, Worker* worker, int64_t at, int64_t end) noexcept nogil:
    """Serve positions up to the first fault."""
    cdef int64_t i
    if batch.is_small:
        serve_small(batch, worker, at, end)
        return
    for i in range(at, end):
        if serve(batch, worker, i):
            return


cdef void serve_share(const Batch* batch, Worker* worker, int64_t at, int64_t end) noexcept nogil:
    """Serve what a thread of a team takes at a time."""
    if worker.fault == 0:
        serve_all(batch, worker, at, end)
    worker.n_served += end - at
    worker.served_ns = monotonic_ns()


cdef void begin(Batch* batch, int64_t work_bytes) noexcept nogil:
    """Set what depends on the time and on how much there is to do."""
    batch.records_ahead = 1 if work_bytes >= batch.n * PAGE else SMALL_RECORDS_AHEAD
    batch.entries_ahead = 2 * batch.records_ahead
    batch.is_small = work_bytes < batch.n * PAGE and batch.table.base != NULL and batch.sums == NULL
    # A size that was looked at after this moment is good for the whole batch.
    batch.begin_ns = batch.sizes_since_ns = monotonic_ns()
    if work_bytes < SIZE_TRUST_BYTES:
        batch.sizes_since_ns -= SIZE_TRUST_NS


cdef int64_t share_of(int64_t n, int64_t work_bytes, int n_threads) noexcept nogil:
    """Return how many of `n` records a thread of a team takes at a time."""
    cdef int64_t most = max(<int64_t>MAX_SHARE, MAX_SHARE_BYTES * n // max(work_bytes, <int64_t>1))
    return max(<int64_t>1, min(most, n // (4 * n_threads)))


cdef object run(Batch* batch, Snapshot snapshot, int wanted_threads, int64_t work_bytes):
    """Serve the whole batch with a team as large as the work deserves; None or the fault at the lowest position."""
    cdef Gate gate = snapshot.gate
    cdef int n_threads = governed_team_size(wanted_threads, weigh(work_bytes, gate.byte_ns), batch.n)
    cdef Crew crew
    cdef Worker* lowest = NULL
    cdef Ahead ahead
    cdef int64_t took_ns = 0
    cdef int64_t own_ns
    cdef int64_t own_n
    cdef int64_t share
    cdef int64_t at = 0
    cdef int64_t end
    cdef int64_t i
    cdef int t
    memset(&crew, 0, sizeof(Crew))
    set_out(&ahead, snapshot, batch.idxs, batch.idxs_unsigned, batch.n, work_bytes)
    if n_threads > 1 and is_alone(&ahead, snapshot):
        n_threads = 1
    take_workers(&crew, n_threads)
    share = share_of(batch.n, work_bytes, n_threads)
    try:
        with nogil:
            begin(batch, work_bytes)
            while at < batch.n and crew.workers[0].fault == 0:
                end = go_on(&ahead, snapshot, at)
                if n_threads == 1:
                    serve_all(batch, crew.workers[0], at, end)
                else:
                    for i in prange((end - at + share - 1) // share, schedule="dynamic", chunksize=1,
                                    num_threads=n_threads):
                        serve_share(batch, crew.workers[threadid()], at + i * share, min(at + (i + 1) * share, end))
                look_back(&ahead, at, end)
                at = end
            if work_bytes >= LEARN_BYTES:
                took_ns = monotonic_ns() - batch.begin_ns
        settle(&ahead, snapshot)
        # Of a call that waits for a disk, or ended early, there is nothing to learn.
        if work_bytes >= LEARN_BYTES and crew.workers[0].fault == 0 and not (ahead.looks and ahead.credit > 0):
            own_ns, own_n = took_ns, batch.n
            if n_threads > 1:
                own_ns, own_n = crew.workers[0].served_ns - batch.begin_ns, crew.workers[0].n_served
                judge_team(took_ns, own_ns, own_n, batch.n)
            if own_n > 0:
                gate.byte_ns = learn_cost(gate.byte_ns, own_ns, <double>work_bytes * own_n / batch.n)
        for t in range(n_threads):
            if crew.workers[t].fault and (lowest == NULL or crew.workers[t].position < lowest.position):
                lowest = crew.workers[t]
        if lowest != NULL:
            return describe(batch, lowest)
        return None
    finally:
        give_back(&crew)


cdef void bind_store(Batch* batch, Snapshot snapshot) noexcept:
    """Fill a batch with what every call needs."""
    memset(batch, 0, sizeof(Batch))
    batch.table = snapshot.table_slot
    batch.sums = snapshot.sums_slot
    batch.chunks = snapshot.chunk_slots
    batch.n_chunks = snapshot.n_chunks
    batch.length = snapshot.length
    batch.max_record_bytes = snapshot.max_record_bytes
    batch.max_codec = snapshot.max_codec
    batch.dictionary = snapshot.dictionary.dictionary if snapshot.dictionary is not None else NULL
    batch.dictionary_is_damaged = snapshot.dictionary_is_damaged


cdef int bind(Batch* batch, Snapshot snapshot, Py_buffer* idxs) except -1:
    """Fill a batch with what every call needs, and its indices."""
    cdef char kind = idxs.format[0] if idxs.format != NULL else 0
    if idxs.itemsize != 8 or kind not in (c"q", c"l", c"Q", c"L"):
        raise TypeError("indices must be an int64 or uint64 array")
    bind_store(batch, snapshot)
    batch.idxs = <const int64_t*>idxs.buf
    batch.idxs_unsigned = kind == c"Q" or kind == c"L"
    batch.n = idxs.len // 8
    return 0


def gather(Snapshot snapshot not None, idxs, dst, int64_t stride, bint exact, pad, int threads):
    """Bring record `idxs[i]` to `dst[i * stride:]`.

    Parameters
    ----------
    snapshot : Snapshot
    idxs : buffer of int64 or uint64, shape (n,)
        Negative ones count from the end.
    dst : writable contiguous buffer of at least n * stride bytes
    stride : int
        Bytes from one record to the next; a longer record is a fault.
    exact : bool
        A shorter record is a fault too.
    pad : buffer or None
        What the rest of each stride is filled with: a pattern whose length divides the stride and every record. None
        leaves the rest as it is.
    threads : int
        The most threads to use, at least 1.

    Returns
    -------
    None or tuple
        None, or the fault at the lowest position.
    """
    cdef Batch batch
    cdef Views views
    cdef Py_buffer* idxs_view
    cdef Py_buffer* dst_view
    cdef Py_buffer* pad_view
    if snapshot.gate.closed:
        return (GATE_CLOSED,)
    views.n = 0
    snapshot.gate.active += 1
    try:
        idxs_view = take(&views, idxs, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        dst_view = take(&views, dst, PyBUF_SIMPLE | PyBUF_WRITABLE)
        bind(&batch, snapshot, idxs_view)
        if stride < 0 or (stride and dst_view.len // stride < batch.n):
            raise ValueError("the destination is shorter than n * stride")
        if overlap(dst_view, idxs_view):
            return (OVERLAP,)
        batch.dst = <uint8_t*>dst_view.buf
        batch.dst_bytes = dst_view.len
        batch.stride = stride
        batch.exact = exact
        if pad is not None:
            pad_view = take(&views, pad, PyBUF_SIMPLE)
            batch.pad = <const uint8_t*>pad_view.buf
            # Zeros, above all.
            batch.pad_bytes = 1 if is_one_byte(batch.pad, pad_view.len) else pad_view.len
        return run(&batch, snapshot, threads, batch.n * stride)
    finally:
        snapshot.gate.active -= 1
        release(&views)


def gather_one(Snapshot snapshot not None, int64_t index, dst):
    """Bring one record, which must be as long as `dst`, to `dst`.

    Parameters
    ----------
    snapshot : Snapshot
    index : int
        A negative one counts from the end.
    dst : writable contiguous buffer

    Returns
    -------
    None or tuple
        None, or the fault, at position 0.

    Raises
    ------
    OverflowError
        No 64 bits hold the index.
    """
    cdef Batch batch
    cdef Views views
    cdef Py_buffer* dst_view
    if snapshot.gate.closed:
        return (GATE_CLOSED,)
    views.n = 0
    snapshot.gate.active += 1
    try:
        dst_view = take(&views, dst, PyBUF_SIMPLE | PyBUF_WRITABLE)
        bind_store(&batch, snapshot)
        batch.idxs = &index
        batch.n = 1
        batch.dst = <uint8_t*>dst_view.buf
        batch.dst_bytes = batch.stride = dst_view.len
        batch.exact = True
        return run(&batch, snapshot, 1, batch.stride)
    finally:
        snapshot.gate.active -= 1
        release(&views)


def gather_at(Snapshot snapshot not None, idxs, dst, starts, lens, int64_t total_bytes, int threads):
    """Bring record `idxs[i]`, which must be of a known length, to `dst[starts[i]:]`.

    Parameters
    ----------
    snapshot : Snapshot
    idxs : buffer of int64 or uint64, shape (n,)
    dst : writable contiguous buffer
    starts : buffer of int64, shape (n,) or longer; shape (n + 1,) or longer without `lens`
        Byte positions. The caller has made sure that no two records overlap there.
    lens : buffer of uint32, shape (n,), or None
        As `lengths` gave them. None: each record ends where the next one begins.
    total_bytes : int
        Their sum.
    threads : int
        The most threads to use, at least 1.

    Returns
    -------
    None or tuple
        None, or the fault at the lowest position.
    """
    cdef Batch batch
    cdef Views views
    cdef Py_buffer* idxs_view
    cdef Py_buffer* dst_view
    cdef Py_buffer* starts_view
    cdef Py_buffer* lens_view = NULL
    if snapshot.gate.closed:
        return (GATE_CLOSED,)
    views.n = 0
    snapshot.gate.active += 1
    try:
        idxs_view = take(&views, idxs, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        dst_view = take(&views, dst, PyBUF_SIMPLE | PyBUF_WRITABLE)
        starts_view = take(&views, starts, PyBUF_C_CONTIGUOUS)
        bind(&batch, snapshot, idxs_view)
        if starts_view.len < (batch.n + (lens is None)) * 8:
            raise ValueError("starts must have one int64 for each index, and one more without lens")
        if overlap(dst_view, idxs_view) or overlap(dst_view, starts_view):
            return (OVERLAP,)
        if lens is not None:
            lens_view = take(&views, lens, PyBUF_C_CONTIGUOUS)
            if lens_view.len != batch.n * 4:
                raise ValueError("lens must have one uint32 for each index")
            if overlap(dst_view, lens_view):
                return (OVERLAP,)
            batch.lens = <const uint32_t*>lens_view.buf
        batch.dst = <uint8_t*>dst_view.buf
        batch.dst_bytes = dst_view.len
        batch.starts = <const int64_t*>starts_view.buf
        return run(&batch, snapshot, threads, total_bytes)
    finally:
        snapshot.gate.active -= 1
        release(&views)


def lengths(Snapshot snapshot not None, idxs, out, splits=None):
    """Write the original length in bytes of every record in `idxs` to `out`, and where each begins behind the others.

    Parameters
    ----------
    snapshot : Snapshot
    idxs : buffer of int64 or uint64, shape (n,)
    out : writable buffer of uint32, shape (n,), or None
    splits : writable buffer of int64, shape (n + 1,), or None
        Receives the sums of the lengths: 0 first, that of all last.

    Returns
    -------
    None or tuple
        None, or the fault at the lowest position.
    """
    cdef Batch batch
    cdef Views views
    cdef Py_buffer* idxs_view
    cdef Py_buffer* out_view
    cdef Crew crew
    cdef Py_buffer* splits_view
    cdef uint32_t* out_ptr = NULL
    cdef int64_t* splits_ptr = NULL
    cdef int64_t total = 0
    cdef bint is_cold
    cdef int64_t i
    if snapshot.gate.closed:
        return (GATE_CLOSED,)
    views.n = 0
    memset(&crew, 0, sizeof(Crew))
    snapshot.gate.active += 1
    try:
        idxs_view = take(&views, idxs, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        bind(&batch, snapshot, idxs_view)
        if out is not None:
            out_view = take(&views, out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
            if out_view.len != batch.n * 4:
                raise ValueError("out must have one uint32 for each index")
            out_ptr = <uint32_t*>out_view.buf
        if splits is not None:
            splits_view = take(&views, splits, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
            if splits_view.len != (batch.n + 1) * 8:
                raise ValueError("splits must have one int64 for each index, and one more")
            splits_ptr = <int64_t*>splits_view.buf
            splits_ptr[0] = 0
        take_workers(&crew, 1)
        is_cold = snapshot.gate.watch.credit > 0
        with nogil:
            begin(&batch, 0)
            if is_cold:
                ask_for_entries(snapshot, batch.idxs, batch.idxs_unsigned, batch.n)
            for i in range(batch.n):
                if look_up(&batch, crew.workers[0], i):
                    break
                if out_ptr != NULL:
                    out_ptr[i] = crew.workers[0].entry.logic_length
                if splits_ptr != NULL:
                    total += crew.workers[0].entry.logic_length
                    splits_ptr[i + 1] = total
        return describe(&batch, crew.workers[0]) if crew.workers[0].fault else None
    finally:
        snapshot.gate.active -= 1
        give_back(&crew)
        release(&views)


cdef struct Findings:
    int32_t* faults
    int64_t* details
    uint8_t* checked


cdef int examine(const Batch* batch, Worker* worker, int64_t i) noexcept nogil:
    """Read record `i` of the batch and check everything that can be; 0 or a fault."""
    cdef const uint8_t* stored = NULL
    cdef uint32_t found
    cdef int fault = look_up(batch, worker, i)
    if fault:
        return fault
    if batch.sums != NULL:
        fault = look_up_sum(batch, worker, i)
        if fault:
            return fault
    fault = find_stored(batch.chunks[worker.entry.chunk_id], worker, i, &stored)
    if fault:
        return fault
    # Of a record without a sum too: that its bytes can be read is worth knowing.
    found = checksum_of(stored, worker.entry.phys_length)
    if worker.sum.tag != 0 and compare(worker, i, found):
        return SUM
    if worker.entry.codec == CODEC_RAW:
        return 0
    fault = grow_unpacked(worker, i)
    return fault or decompress(batch, worker, i, stored, worker.unpacked.base)


cdef void inspect_one(const Batch* batch, Worker* worker, int64_t i, const Findings* findings) noexcept nogil:
    worker.fault = 0
    worker.detail = 0
    worker.sum.tag = 0
    findings.faults[i] = examine(batch, worker, i)
    findings.details[i] = worker.detail
    findings.checked[i] = worker.sum.tag != 0


def inspect(Snapshot snapshot not None, idxs, faults, details, checked, int threads):
    """Read every record as `gather` does, decompress it, keep nothing of it, and go on where one is damaged.

    Parameters
    ----------
    snapshot : Snapshot
    idxs : buffer of int64 or uint64, shape (n,)
    faults : writable buffer of int32, shape (n,)
        Receives 0 where a record is good, else the fault.
    details : writable buffer of int64, shape (n,)
        Receives what a fault's tuple has last.
    checked : writable buffer of uint8, shape (n,)
        Receives 1 where there was a sum to compare.
    threads : int
        The most threads to use, at least 1.

    Returns
    -------
    None or tuple
        None, or a fault that is none of a record (`GATE_CLOSED`, `OVERLAP`): then nothing was done.
    """
    cdef Batch batch
    cdef Findings findings
    cdef Views views
    cdef Py_buffer* idxs_view
    cdef Py_buffer* faults_view
    cdef Py_buffer* details_view
    cdef Py_buffer* checked_view
    cdef Crew crew
    cdef Ahead ahead
    cdef int n_threads
    cdef int64_t share
    cdef int64_t at = 0
    cdef int64_t end
    cdef int64_t i
    if snapshot.gate.closed:
        return (GATE_CLOSED,)
    views.n = 0
    memset(&crew, 0, sizeof(Crew))
    snapshot.gate.active += 1
    try:
        idxs_view = take(&views, idxs, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        faults_view = take(&views, faults, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        details_view = take(&views, details, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        checked_view = take(&views, checked, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        bind(&batch, snapshot, idxs_view)
        if faults_view.len != batch.n * 4 or details_view.len != batch.n * 8 or checked_view.len != batch.n:
            raise ValueError("faults, details and checked must have one item for each index")
        if overlap(faults_view, idxs_view) or overlap(details_view, idxs_view) or overlap(checked_view, idxs_view):
            return (OVERLAP,)
        findings.faults = <int32_t*>faults_view.buf
        findings.details = <int64_t*>details_view.buf
        findings.checked = <uint8_t*>checked_view.buf
        # How long the records are is not known yet; a page each is a fair guess.
        n_threads = team_size(threads, batch.n * PAGE, batch.n)
        set_out(&ahead, snapshot, batch.idxs, batch.idxs_unsigned, batch.n, batch.n * PAGE)
        if is_alone(&ahead, snapshot):
            n_threads = 1
        take_workers(&crew, n_threads)
        share = share_of(batch.n, batch.n * PAGE, n_threads)
        with nogil:
            begin(&batch, batch.n * PAGE)
            while at < batch.n:
                end = go_on(&ahead, snapshot, at)
                if n_threads == 1:
                    for i in range(at, end):
                        inspect_one(&batch, crew.workers[0], i, &findings)
                else:
                    for i in prange(at, end, schedule="dynamic", chunksize=share, num_threads=n_threads):
                        inspect_one(&batch, crew.workers[threadid()], i, &findings)
                look_back(&ahead, at, end)
                at = end
        settle(&ahead, snapshot)
        return None
    finally:
        snapshot.gate.active -= 1
        give_back(&crew)
        release(&views)


def prefetch(Snapshot snapshot not None, idxs):
    """Ask the system to read records before they are wanted, unless what is read is in memory anyway.

    Parameters
    ----------
    snapshot : Snapshot
    idxs : buffer of int64 or uint64, shape (n,)

    Returns
    -------
    None or tuple
        None, or the fault at the lowest position, of which only `INDEX` is one of a record; then nothing was asked.
    """
    cdef Batch batch
    cdef Ahead ahead
    cdef Views views
    cdef Crew crew
    cdef int64_t i
    if snapshot.gate.closed:
        return (GATE_CLOSED,)
    views.n = 0
    memset(&crew, 0, sizeof(Crew))
    snapshot.gate.active += 1
    try:
        bind(&batch, snapshot, take(&views, idxs, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT))
        take_workers(&crew, 1)
        for i in range(batch.n):
            if find_index(&batch, batch.idxs[i]) < 0:
                stop(crew.workers[0], i, INDEX, 0)
                return describe(&batch, crew.workers[0])
        set_out_to_ask(&ahead, snapshot, batch.idxs, batch.idxs_unsigned, batch.n)
        with nogil:
            go_on(&ahead, snapshot, 0)
            look_back(&ahead, 0, batch.n)
        settle(&ahead, snapshot)
        return None
    finally:
        snapshot.gate.active -= 1
        give_back(&crew)
        release(&views)


def fault_numbers():
    """Return the numbers of faults by name, as this module was compiled with them."""
    return {
        "INDEX": INDEX, "TABLE_CUT": TABLE_CUT, "CHUNK": CHUNK, "CODEC": CODEC, "LENGTHS": LENGTHS,
        "OUTSIDE_FILE": OUTSIDE_FILE, "RECORD_SIZE": RECORD_SIZE, "DESTINATION": DESTINATION, "FRAME_SIZE": FRAME_SIZE,
        "FRAME": FRAME, "DICTIONARY": DICTIONARY, "IO": IO, "MEMORY": MEMORY, "GATE_CLOSED": GATE_CLOSED,
        "OVERLAP": OVERLAP, "SUM": SUM, "ITEM_SIZE": ITEM_SIZE,
    }


def zstd_version():
    """Return the version of the libzstd in use."""
    return (<bytes>ZSTD_versionString()).decode()


def zstd_source():
    """Return where the build found libzstd: "system", "prefix" or "bundled"."""
    return (<bytes>LOADERX_ZSTD_SOURCE).decode()
