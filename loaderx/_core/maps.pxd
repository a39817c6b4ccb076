from libc.stdint cimport int64_t, uint8_t


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
cdef int64_t file_size(MapSlot* slot, int64_t since_ns) noexcept nogil
cdef int64_t read_at(int fd, uint8_t* dst, int64_t n_bytes, int64_t offset) noexcept nogil
