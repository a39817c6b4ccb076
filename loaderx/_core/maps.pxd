from libc.stdint cimport int64_t, uint8_t

cdef extern from *:
    """
    /* Several gathers look at one file at the same time. Relaxed would do for each number by itself; the pair is
       ordered so that a fresh time is never seen with a stale size. */
    #define LX_LOAD(pointer) __atomic_load_n((pointer), __ATOMIC_ACQUIRE)
    #define LX_STORE(pointer, value) __atomic_store_n((pointer), (value), __ATOMIC_RELEASE)
    """
    int64_t LX_LOAD(int64_t* pointer) nogil
    void LX_STORE(int64_t* pointer, int64_t value) nogil


cdef enum:
    PAGE = 4096

    # Work below this size may trust a file size that was looked at up to SIZE_TRUST_NS ago.
    SIZE_TRUST_BYTES = 64 * 1024
    SIZE_TRUST_NS = 10000000


cdef struct MapSlot:
    const uint8_t* base         # first mapped byte; NULL: read through the descriptor instead
    int fd
    int64_t capacity            # bytes of the file that may be used, however long it is
    int64_t size                # how many of them the file had when it was last looked at
    int64_t looked_ns           # when that was, on the monotonic clock


cdef class OpenFile:
    cdef int fd
    cpdef close(self)


cdef class FileMap:
    cdef MapSlot slot
    cdef object path


cdef int64_t monotonic_ns() noexcept nogil
cdef int64_t look(MapSlot* slot) noexcept nogil
cdef int64_t read_at(int fd, uint8_t* dst, int64_t n_bytes, int64_t offset) noexcept nogil


cdef inline int64_t file_size(MapSlot* slot, int64_t since_ns) noexcept nogil:
    """Return how much of the file can be used, looking again if that was last done before `since_ns`; -1: refused."""
    if LX_LOAD(&slot.looked_ns) < since_ns and look(slot) < 0:
        return -1
    return LX_LOAD(&slot.size)


cdef inline int64_t sizes_since(int64_t begin_ns, int64_t work_bytes) noexcept nogil:
    """Return since when a file's size may have been looked at, for a call of `work_bytes` that begins at `begin_ns`."""
    return begin_ns - SIZE_TRUST_NS if work_bytes < SIZE_TRUST_BYTES else begin_ns
