from libc.stdint cimport int64_t

cdef int team_size(int wanted, int64_t work_bytes, int64_t n_items) noexcept nogil
cdef int governed_team_size(int wanted, int64_t work_bytes, int64_t n_items) noexcept
cdef int64_t weigh(int64_t work_bytes, double byte_ns) noexcept nogil
cdef double learn_cost(double byte_ns, int64_t took_ns, double n_bytes) noexcept nogil
cdef void judge_team(int64_t team_ns, int64_t own_ns, int64_t own_n, int64_t n) noexcept
