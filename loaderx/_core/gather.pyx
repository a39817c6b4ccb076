"""Batch read: look up, check, copy or decompress into the caller's memory.

Every function takes a `Snapshot` and int64 or uint64 indices, does its work without the GIL, and returns None, or a
tuple that begins with one of the numbers of `loaderx._core.fault` and says where: `loaderx.store.faults` turns it into
an exception. A call that fails may have written to a part of its destination.
"""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_WRITABLE
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from loaderx._core.ahead cimport Ahead, go_on, is_alone, look_back, set_out, settle
from loaderx._core.batch cimport Crew, begin, bind, bind_store, describe, give_back, take_workers
from loaderx._core.checksum cimport checksum_of, copy_checksummed
from loaderx._core.layout cimport CODEC_RAW, HEADER_BYTES, RECORD_BYTES, SUM_BYTES, SUMS_HEADER_BYTES, RecordLoc
from loaderx._core.maps cimport PAGE, MapSlot, file_size, monotonic_ns
from loaderx._core.record cimport (
    DESTINATION,
    GATE_CLOSED,
    OVERLAP,
    RECORD_SIZE,
    Batch,
    Worker,
    compare,
    find_index,
    find_stored,
    look_up,
    look_up_sum,
    read_stored,
    restore,
    stop,
)
from loaderx._core.snapshot cimport Gate, Snapshot
from loaderx._core.threads cimport governed_team_size, judge_team, learn_cost, share_of, weigh
from loaderx._core.views cimport Views, overlap, release, take

cdef extern from *:
    """
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
    void LX_PREFETCH(const void* address) nogil
    void lx_copy(uint8_t* dst, const uint8_t* src, size_t n_bytes) nogil


cdef enum:
    # Records below a page are looked up this many at a time, and this much of each is asked for: no more than the
    # processor can have under way at once.
    SMALL_RECORDS_AT_ONCE = 8
    SMALL_LINES_AHEAD = 4

    # Calls below this cost about the same whatever a byte costs.
    LEARN_BYTES = 8 * 1024

    # The number of no chunk.
    NO_CHUNK = 0xFFFFFFFF

    # What the processor is asked for ahead of a copy: table entries, and the first lines of each page of a record;
    # within a page its own prefetchers follow. Of records below a page several are in flight at a time.
    SMALL_RECORDS_AHEAD = 6
    LINE = 64
    LINES_AHEAD = 8
    MAX_AHEAD = 65536


cdef struct Delivery:
    # The records of a batch, and where they go.
    Batch batch
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


cdef inline void foresee(const Delivery* delivery, int64_t i) noexcept nogil:
    """Have the processor fetch what position `i` is going to need soon. Checks only what it touches itself."""
    cdef const Batch* batch = &delivery.batch
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
    if i + delivery.entries_ahead < batch.n:
        index = batch.idxs[i + delivery.entries_ahead]
        if 0 <= index < batch.length:
            LX_PREFETCH(batch.table.base + HEADER_BYTES + index * RECORD_BYTES)
            if batch.sums != NULL:
                LX_PREFETCH(batch.sums.base + SUMS_HEADER_BYTES + index * SUM_BYTES)
    i += delivery.records_ahead
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


cdef inline int64_t length_expected(const Delivery* delivery, int64_t i) noexcept nogil:
    """Return how long the record at position `i` has to be, where that is known of each."""
    return delivery.lens[i] if delivery.lens != NULL else delivery.starts[i + 1] - delivery.starts[i]


cdef inline int64_t find_start(const Delivery* delivery, int64_t i, int64_t n_bytes) noexcept nogil:
    """Return where in the destination a record of that length goes as position `i`; negative: it does not fit there."""
    if delivery.starts != NULL:
        if n_bytes != length_expected(delivery, i) or delivery.starts[i] > delivery.dst_bytes - n_bytes:
            return -1
        return delivery.starts[i]
    if n_bytes > delivery.stride or (delivery.exact and n_bytes != delivery.stride):
        return -1
    return i * delivery.stride


cdef inline int find_place(const Delivery* delivery, Worker* worker, int64_t i, uint8_t** dst) noexcept nogil:
    """Set `dst` to where the record in `worker.entry` goes; 0 or a fault."""
    cdef int64_t n_bytes = worker.entry.logic_length
    cdef int64_t start = find_start(delivery, i, n_bytes)
    if start >= 0:
        dst[0] = delivery.dst + start
        return 0
    if delivery.starts == NULL:
        return stop(worker, i, RECORD_SIZE if delivery.exact else DESTINATION, delivery.stride)
    if n_bytes != length_expected(delivery, i):
        return stop(worker, i, RECORD_SIZE, length_expected(delivery, i))
    return stop(worker, i, DESTINATION, delivery.dst_bytes)


cdef inline void pad_place(const Delivery* delivery, Worker* worker, uint8_t* dst) noexcept nogil:
    if delivery.pad != NULL:
        fill(dst + worker.entry.logic_length, delivery.stride - worker.entry.logic_length, delivery.pad,
             delivery.pad_bytes)


cdef int bring_verified(const Delivery* delivery, Worker* worker, int64_t i) noexcept nogil:
    """Bring the record in `worker.entry` to its place as `serve` does, comparing it with its sum where it has one."""
    cdef const Batch* batch = &delivery.batch
    cdef const RecordLoc* entry = &worker.entry
    cdef MapSlot* chunk = batch.chunks[entry.chunk_id]
    cdef const uint8_t* stored = NULL
    cdef uint8_t* dst = NULL
    # First the entry: what is wrong with a damaged one is not that the record has another size than the caller expects.
    cdef int fault = look_up_sum(batch, worker, i)
    if fault == 0:
        fault = find_place(delivery, worker, i, &dst)
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
        pad_place(delivery, worker, dst)
    return fault


cdef int serve(const Delivery* delivery, Worker* worker, int64_t i) noexcept nogil:
    """Bring record `i` of the batch to its place."""
    cdef const Batch* batch = &delivery.batch
    cdef RecordLoc* entry = &worker.entry
    cdef MapSlot* chunk
    cdef uint8_t* dst = NULL
    cdef const uint8_t* stored = NULL
    cdef int fault = look_up(batch, worker, i)
    if fault:
        return fault
    foresee(delivery, i)
    if batch.sums != NULL:
        return bring_verified(delivery, worker, i)
    fault = find_place(delivery, worker, i, &dst)
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
        pad_place(delivery, worker, dst)
    return fault


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


cdef inline bint find_plain(const Delivery* delivery, Ground* ground, int64_t i, Plain* plain) noexcept nogil:
    """Find what is copied where for position `i`; False where there is more to it, or something is wrong.

    It checks what `look_up` and `find_place` do. Whatever is not as usual is left to them, to serve or to name.
    """
    cdef const Batch* batch = &delivery.batch
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
    start = find_start(delivery, i, entry.logic_length)
    if start < 0:
        return False
    plain.stored = ground.chunk + entry.offset
    plain.dst = delivery.dst + start
    plain.n_bytes = entry.logic_length
    return True


cdef void serve_small(const Delivery* delivery, Worker* worker, int64_t at, int64_t end) noexcept nogil:
    """Serve positions up to the first fault: look up several, then copy them, while the processor fetches them all."""
    cdef const Batch* batch = &delivery.batch
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
            if not find_plain(delivery, &ground, at + i, plain):
                plain.stored = NULL
                continue
            for line in range(min(<int64_t>SMALL_LINES_AHEAD, (plain.n_bytes + LINE - 1) // LINE)):
                LX_PREFETCH(plain.stored + line * LINE)
        for i in range(n):
            plain = &plains[i]
            if plain.stored == NULL:
                if serve(delivery, worker, at + i):
                    return
                continue
            lx_copy(plain.dst, plain.stored, plain.n_bytes)
            if delivery.pad != NULL:
                fill(plain.dst + plain.n_bytes, delivery.stride - plain.n_bytes, delivery.pad, delivery.pad_bytes)
        at += n


cdef void serve_all(const Delivery* delivery, Worker* worker, int64_t at, int64_t end) noexcept nogil:
    """Serve positions up to the first fault."""
    cdef int64_t i
    if delivery.is_small:
        serve_small(delivery, worker, at, end)
        return
    for i in range(at, end):
        if serve(delivery, worker, i):
            return


cdef void serve_share(const Delivery* delivery, Worker* worker, int64_t at, int64_t end) noexcept nogil:
    """Serve what a thread of a team takes at a time."""
    if worker.fault == 0:
        serve_all(delivery, worker, at, end)
    worker.n_served += end - at
    worker.served_ns = monotonic_ns()


cdef void look_forward(Delivery* delivery, int64_t work_bytes) noexcept nogil:
    """Set what depends on how long the records are, on the average."""
    cdef const Batch* batch = &delivery.batch
    cdef bint below_a_page = work_bytes < batch.n * PAGE
    delivery.records_ahead = SMALL_RECORDS_AHEAD if below_a_page else 1
    delivery.entries_ahead = 2 * delivery.records_ahead
    delivery.is_small = below_a_page and batch.table.base != NULL and batch.sums == NULL


cdef object run(Delivery* delivery, Snapshot snapshot, int wanted_threads, int64_t work_bytes):
    """Serve the whole batch with a team as large as the work deserves; None or the fault at the lowest position."""
    cdef Batch* batch = &delivery.batch
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
            look_forward(delivery, work_bytes)
            while at < batch.n and crew.workers[0].fault == 0:
                end = go_on(&ahead, snapshot, at)
                if n_threads == 1:
                    serve_all(delivery, crew.workers[0], at, end)
                else:
                    for i in prange((end - at + share - 1) // share, schedule="dynamic", chunksize=1,
                                    num_threads=n_threads):
                        serve_share(delivery, crew.workers[threadid()], at + i * share,
                                    min(at + (i + 1) * share, end))
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
    cdef Delivery delivery
    cdef Views views
    cdef Py_buffer* idxs_view
    cdef Py_buffer* dst_view
    cdef Py_buffer* pad_view
    if snapshot.gate.closed:
        return (GATE_CLOSED,)
    views.n = 0
    memset(&delivery, 0, sizeof(Delivery))
    snapshot.gate.active += 1
    try:
        idxs_view = take(&views, idxs, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        dst_view = take(&views, dst, PyBUF_SIMPLE | PyBUF_WRITABLE)
        bind(&delivery.batch, snapshot, idxs_view)
        if stride < 0 or (stride and dst_view.len // stride < delivery.batch.n):
            raise ValueError("the destination is shorter than n * stride")
        if overlap(dst_view, idxs_view):
            return (OVERLAP,)
        delivery.dst = <uint8_t*>dst_view.buf
        delivery.dst_bytes = dst_view.len
        delivery.stride = stride
        delivery.exact = exact
        if pad is not None:
            pad_view = take(&views, pad, PyBUF_SIMPLE)
            delivery.pad = <const uint8_t*>pad_view.buf
            # Zeros, above all.
            delivery.pad_bytes = 1 if is_one_byte(delivery.pad, pad_view.len) else pad_view.len
        return run(&delivery, snapshot, threads, delivery.batch.n * stride)
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
    cdef Delivery delivery
    cdef Views views
    cdef Py_buffer* dst_view
    if snapshot.gate.closed:
        return (GATE_CLOSED,)
    views.n = 0
    memset(&delivery, 0, sizeof(Delivery))
    snapshot.gate.active += 1
    try:
        dst_view = take(&views, dst, PyBUF_SIMPLE | PyBUF_WRITABLE)
        bind_store(&delivery.batch, snapshot)
        delivery.batch.idxs = &index
        delivery.batch.n = 1
        delivery.dst = <uint8_t*>dst_view.buf
        delivery.dst_bytes = delivery.stride = dst_view.len
        delivery.exact = True
        return run(&delivery, snapshot, 1, delivery.stride)
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
        As `survey.lengths` gave them. None: each record ends where the next one begins.
    total_bytes : int
        Their sum.
    threads : int
        The most threads to use, at least 1.

    Returns
    -------
    None or tuple
        None, or the fault at the lowest position.
    """
    cdef Delivery delivery
    cdef Views views
    cdef Py_buffer* idxs_view
    cdef Py_buffer* dst_view
    cdef Py_buffer* starts_view
    cdef Py_buffer* lens_view = NULL
    if snapshot.gate.closed:
        return (GATE_CLOSED,)
    views.n = 0
    memset(&delivery, 0, sizeof(Delivery))
    snapshot.gate.active += 1
    try:
        idxs_view = take(&views, idxs, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        dst_view = take(&views, dst, PyBUF_SIMPLE | PyBUF_WRITABLE)
        starts_view = take(&views, starts, PyBUF_C_CONTIGUOUS)
        bind(&delivery.batch, snapshot, idxs_view)
        if starts_view.len < (delivery.batch.n + (lens is None)) * 8:
            raise ValueError("starts must have one int64 for each index, and one more without lens")
        if overlap(dst_view, idxs_view) or overlap(dst_view, starts_view):
            return (OVERLAP,)
        if lens is not None:
            lens_view = take(&views, lens, PyBUF_C_CONTIGUOUS)
            if lens_view.len != delivery.batch.n * 4:
                raise ValueError("lens must have one uint32 for each index")
            if overlap(dst_view, lens_view):
                return (OVERLAP,)
            delivery.lens = <const uint32_t*>lens_view.buf
        delivery.dst = <uint8_t*>dst_view.buf
        delivery.dst_bytes = dst_view.len
        delivery.starts = <const int64_t*>starts_view.buf
        return run(&delivery, snapshot, threads, total_bytes)
    finally:
        snapshot.gate.active -= 1
        release(&views)
