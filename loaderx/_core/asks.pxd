# Asking the system to read bytes of a file before they are wanted.

from libc.stdint cimport int64_t

from loaderx._core.maps cimport MapSlot

cdef extern from *:
    """
    #include <fcntl.h>
    #include <string.h>

    static inline void lx_will_need(int fd, int64_t offset, int64_t n_bytes) {
    #if defined(POSIX_FADV_WILLNEED)
        (void)posix_fadvise(fd, (off_t)offset, (off_t)n_bytes, POSIX_FADV_WILLNEED);
    #elif defined(F_RDADVISE)
        struct radvisory advice;
        memset(&advice, 0, sizeof(advice));
        advice.ra_offset = (off_t)offset;
        advice.ra_count = (int)n_bytes;
        (void)fcntl(fd, F_RDADVISE, &advice);
    #else
        (void)fd; (void)offset; (void)n_bytes;
    #endif
    }
    """
    void lx_will_need(int fd, int64_t offset, int64_t n_bytes) nogil


cdef enum:
    # Linux reads no more for one request than its read-ahead window, which is 128 KiB where nobody has set it.
    REQUEST_BYTES = 128 * 1024


cdef inline int compare_numbers(const void* a, const void* b) noexcept nogil:
    # For qsort: what begins with a number is sorted by it.
    cdef int64_t first = (<const int64_t*>a)[0]
    cdef int64_t second = (<const int64_t*>b)[0]
    return (first > second) - (first < second)


cdef inline void ask_for_bytes(const MapSlot* slot, int64_t begin, int64_t end) noexcept nogil:
    cdef int64_t n_bytes
    while begin < end:
        n_bytes = min(end - begin, <int64_t>REQUEST_BYTES)
        lx_will_need(slot.fd, begin, n_bytes)
        begin += n_bytes
