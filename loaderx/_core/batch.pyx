"""What every call that reads records begins and ends with: the batch, threads' workers, and the fault as a tuple."""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from loaderx._core.pool cimport Pool, pool_put, pool_take
from loaderx._core.record cimport (
    CHUNK,
    CODEC,
    DESTINATION,
    DICTIONARY,
    FRAME,
    FRAME_SIZE,
    GATE_CLOSED,
    INDEX,
    IO,
    ITEM_SIZE,
    LENGTHS,
    MEMORY,
    OUTSIDE_FILE,
    OVERLAP,
    RECORD_SIZE,
    SUM,
    TABLE_CUT,
    Batch,
    Worker,
)
from loaderx._core.scratch cimport KEPT_IN_ALL, KEPT_SCRATCH, shrink
from loaderx._core.snapshot cimport Snapshot
from loaderx._core.zstd cimport ZSTD_freeDCtx, ZSTD_sizeof_DCtx


cdef void bind_store(Batch* batch, Snapshot snapshot) noexcept:
    """Say what a batch is read from. Which records, and when, is still to be said."""
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
    """Say what a batch is read from, and which records. `begin` says when."""
    cdef char kind = idxs.format[0] if idxs.format != NULL else 0
    if idxs.itemsize != 8 or kind not in (c"q", c"l", c"Q", c"L"):
        raise TypeError("indices must be an int64 or uint64 array")
    bind_store(batch, snapshot)
    batch.idxs = <const int64_t*>idxs.buf
    batch.idxs_unsigned = kind == c"Q" or kind == c"L"
    batch.n = idxs.len // 8
    return 0


cdef Pool idle_workers


cdef Py_ssize_t bytes_of(const Worker* worker) noexcept:
    return worker.stored.n_bytes + worker.unpacked.n_bytes + ZSTD_sizeof_DCtx(worker.context)


cdef void end_worker(Worker* worker) noexcept:
    ZSTD_freeDCtx(worker.context)
    shrink(&worker.stored, 0)
    shrink(&worker.unpacked, 0)
    free(worker)


cdef int take_workers(Crew* crew, int n) except -1:
    """Fill `crew`, which is all zero, with `n` workers; `give_back` takes them."""
    cdef Worker* worker
    crew.workers = &crew.lone if n == 1 else <Worker**>calloc(n, sizeof(Worker*))
    if crew.workers == NULL:
        raise MemoryError("no memory to read a batch")
    while crew.n < n:
        worker = <Worker*>pool_take(&idle_workers)
        if worker == NULL:
            worker = <Worker*>calloc(1, sizeof(Worker))
        else:
            idle_workers.idle_bytes -= bytes_of(worker)
        if worker == NULL:
            give_back(crew)
            raise MemoryError("no memory to read a batch")
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
    cdef Py_ssize_t n_bytes
    while crew.n > 0:
        crew.n -= 1
        worker = crew.workers[crew.n]
        shrink(&worker.stored, KEPT_SCRATCH)
        shrink(&worker.unpacked, KEPT_SCRATCH)
        if idle_workers.idle_bytes + bytes_of(worker) > KEPT_IN_ALL:
            shrink(&worker.stored, 0)
            shrink(&worker.unpacked, 0)
        n_bytes = bytes_of(worker)
        if idle_workers.idle_bytes + n_bytes > KEPT_IN_ALL or not pool_put(&idle_workers, worker):
            end_worker(worker)
        else:
            idle_workers.idle_bytes += n_bytes
    if crew.workers != &crew.lone:
        free(crew.workers)
    crew.workers = NULL


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


def trim_workers():
    """Give the memory of idle workers back, and return how many bytes they had."""
    cdef Py_ssize_t n_bytes = idle_workers.idle_bytes
    while idle_workers.n:
        end_worker(<Worker*>pool_take(&idle_workers))
    idle_workers.idle_bytes = 0
    return n_bytes


def fault_numbers():
    """Return the numbers of faults by name, as this module was compiled with them."""
    return {
        "INDEX": INDEX, "TABLE_CUT": TABLE_CUT, "CHUNK": CHUNK, "CODEC": CODEC, "LENGTHS": LENGTHS,
        "OUTSIDE_FILE": OUTSIDE_FILE, "RECORD_SIZE": RECORD_SIZE, "DESTINATION": DESTINATION, "FRAME_SIZE": FRAME_SIZE,
        "FRAME": FRAME, "DICTIONARY": DICTIONARY, "IO": IO, "MEMORY": MEMORY, "GATE_CLOSED": GATE_CLOSED,
        "OVERLAP": OVERLAP, "SUM": SUM, "ITEM_SIZE": ITEM_SIZE,
    }
