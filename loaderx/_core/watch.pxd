from libc.stdint cimport int64_t


cdef enum:
    # Looking costs a microsecond or two: calls that do little look now and then.
    LOOK_BYTES = 4 * 1024 * 1024


cdef struct Usage:
    int64_t blocks              # of 512 bytes that the calling thread had read from a device
    int64_t faults              # page faults it waited for
    int64_t cpu_us              # how long it has been running on a processor


cdef struct Watch:
    int64_t credit              # above 0: asking ahead pays
    bint waits                  # while asking pays: the calling thread mostly waits for the disk
    int64_t unlooked_bytes      # of work since the last call that looked
    int64_t next_index          # the index behind the last of the last call that asked
    int64_t asked_until         # the index behind what a sequential pass has asked for


cdef void start_watch(Watch* watch) noexcept
cdef bint is_time_to_look(Watch* watch, int64_t work_bytes) noexcept
cdef Usage usage() noexcept nogil
cdef int64_t pages_between(const Usage* before, const Usage* after) noexcept nogil
cdef bint is_waiting(int64_t cpu_us, int64_t wall_us) noexcept nogil
cdef int64_t credit_after(int64_t credit, int64_t n_records, int64_t n_pages) noexcept nogil
