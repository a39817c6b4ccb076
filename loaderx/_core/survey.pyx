"""Looking at records without bringing them anywhere: their lengths, whether they are good, and having them read ahead.

Faults are given back as `gather` gives them.
"""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE
from cython.parallel cimport prange, threadid
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from loaderx._core.ahead cimport Ahead, ask_for_entries, go_on, is_alone, look_back, set_out, set_out_to_ask, settle
from loaderx._core.batch cimport Crew, begin, bind, describe, give_back, take_workers
from loaderx._core.checksum cimport checksum_of
from loaderx._core.layout cimport CODEC_RAW
from loaderx._core.maps cimport PAGE
from loaderx._core.record cimport (
    GATE_CLOSED,
    INDEX,
    OVERLAP,
    SUM,
    Batch,
    Worker,
    compare,
    decompress,
    find_index,
    find_stored,
    grow_unpacked,
    look_up,
    look_up_sum,
    stop,
)
from loaderx._core.snapshot cimport Snapshot
from loaderx._core.threads cimport share_of, team_size
from loaderx._core.views cimport Views, overlap, release, take


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
