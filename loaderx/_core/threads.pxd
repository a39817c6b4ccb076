from libc.stdint cimport int64_t

cdef int team_size(int wanted, int64_t work_bytes, int64_t n_items) noexcept nogil
