# What every call that reads records begins and ends with.

from libc.stdint cimport int64_t

from loaderx._core.maps cimport monotonic_ns, sizes_since
from loaderx._core.record cimport Batch, Worker
from loaderx._core.snapshot cimport Snapshot


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
    batch.begin_ns = monotonic_ns()
    batch.sizes_since_ns = sizes_since(batch.begin_ns, work_bytes)
