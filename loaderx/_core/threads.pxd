from libc.stdint cimport int64_t

cdef enum:
    # A thread takes at most this many records of a batch at a time, or this many bytes where that is more: few enough
    # that a team does not wait for its slowest thread, many enough that taking them costs nothing.
    MAX_SHARE = 16
    MAX_SHARE_BYTES = 16 * 1024


cdef int team_size(int wanted, int64_t work_bytes, int64_t n_items) noexcept nogil
cdef int governed_team_size(int wanted, int64_t work_bytes, int64_t n_items) noexcept
cdef int64_t weigh(int64_t work_bytes, double byte_ns) noexcept nogil
cdef double learn_cost(double byte_ns, int64_t took_ns, double n_bytes) noexcept nogil
cdef void judge_team(int64_t team_ns, int64_t own_ns, int64_t own_n, int64_t n) noexcept


cdef inline int64_t share_of(int64_t n, int64_t work_bytes, int n_threads) noexcept nogil:
    """Return how many of `n` records a thread of a team takes at a time."""
    cdef int64_t most = max(<int64_t>MAX_SHARE, MAX_SHARE_BYTES * n // max(work_bytes, <int64_t>1))
    return max(<int64_t>1, min(most, n // (4 * n_threads)))
