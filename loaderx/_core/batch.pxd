# What every call that reads records begins and ends with.

from libc.stdint cimport int64_t

from loaderx._core.maps cimport monotonic_ns
from loaderx._core.record cimport Batch, Worker
from loaderx._core.snapshot cimport Snapshot


cdef enum:
    # Work below this size may trust a file size that was looked at up to SIZE_TRUST_NS ago.
    SIZE_TRUST_BYTES = 64 * 1024
    SIZE_TRUST_NS = 10000000

    # A thread takes at most this many records of a batch at a time, or this many bytes where that is more: few enough
    # that a team does not wait for its slowest thread, many enough that taking them costs nothing.
    MAX_SHARE = 16
    MAX_SHARE_BYTES = 16 * 1024


cdef struct Crew:
    # The workers of one call.
    Worker** workers
    int n
    Worker* lone            # the one of a call that has no team, which needs no memory for a list


cdef void bind_store(Batch* batch, Snapshot snapshot) noexcept
cdef int bind(Batch* batch, Snapshot snapshot, Py_buffer* idxs) except -1
cdef int take_workers(Crew* crew, int n) except -1
cdef void give_back(Crew* crew) noexcept
cdef object describe(const Batch* batch, const Worker* worker)


cdef inline void begin(Batch* batch, int64_t work_bytes) noexcept nogil:
    """Set how old the sizes of files may be."""
    # A size that was looked at after this moment is good for the whole batch.
    batch.begin_ns = batch.sizes_since_ns = monotonic_ns()
    if work_bytes < SIZE_TRUST_BYTES:
        batch.sizes_since_ns -= SIZE_TRUST_NS


cdef inline int64_t share_of(int64_t n, int64_t work_bytes, int n_threads) noexcept nogil:
    """Return how many of `n` records a thread of a team takes at a time."""
    cdef int64_t most = max(<int64_t>MAX_SHARE, MAX_SHARE_BYTES * n // max(work_bytes, <int64_t>1))
    return max(<int64_t>1, min(most, n // (4 * n_threads)))
