from libc.stdint cimport int64_t

from loaderx._core.snapshot cimport Snapshot
from loaderx._core.watch cimport Usage, Watch


cdef struct Ahead:
    # What one call needs to ask the system for its records before it reads them.
    const int64_t* idxs
    bint idxs_unsigned
    int64_t n
    int64_t slice               # positions served between two asks
    int64_t asked               # positions before this one have been asked for
    int64_t beyond              # records to ask for behind the last; 0: the call is no part of a sequential pass
    int64_t next_index          # as in Watch,
    int64_t asked_until
    int64_t credit
    bint looks                  # whether the call measures what it reads,
    bint serves                 # and reads the records itself,
    bint asks                   # and whether it asks for it first
    Usage before                # of the slice that is served,
    int64_t begin_ns
    int64_t cpu_us              # and what all slices have taken
    int64_t wall_us


cdef void set_out(Ahead* ahead, Snapshot snapshot, const int64_t* idxs, bint idxs_unsigned, int64_t n,
                  int64_t work_bytes) noexcept
cdef void set_out_to_ask(Ahead* ahead, Snapshot snapshot, const int64_t* idxs, bint idxs_unsigned, int64_t n) noexcept
cdef bint is_alone(const Ahead* ahead, Snapshot snapshot) noexcept
cdef int64_t go_on(Ahead* ahead, Snapshot snapshot, int64_t at) noexcept nogil
cdef void look_back(Ahead* ahead, int64_t at, int64_t end) noexcept nogil
cdef void settle(const Ahead* ahead, Snapshot snapshot) noexcept
cdef void ask_for_entries(Snapshot snapshot, const int64_t* idxs, bint idxs_unsigned, int64_t n) noexcept nogil
cdef void ask_ahead(Snapshot snapshot, const int64_t* idxs, bint idxs_unsigned, int64_t n) noexcept nogil
