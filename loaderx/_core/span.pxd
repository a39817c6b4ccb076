# One byte range of a file, in a batch of them: what is known of it, in which order they are read, and the copy.

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from loaderx._core.maps cimport MapSlot, read_at

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
      #define LX_FETCH(address) __builtin_prefetch((address), 0, 3)
    #else
      #define LX_FETCH(address) ((void)0)
    #endif
    """
    void LX_FETCH(const void* address) nogil


cdef enum Outcome:
    GOOD
    WITHOUT_END                 # the line has no "\n": its last byte, for which there is no room, is in `detail`
    WITH_RETURN                 # it ends with "\r\n"
    # From here on there are no bytes:
    NO_SAMPLE                   # no sample has this index
    TABLE_CUT                   # the table ends before the row; `detail` bytes are left
    NO_FILE                     # the row names a file that is not in the list
    UNOPENED                    # the file could not be opened
    OUTSIDE_FILE                # the range ends beyond the file, which has `detail` bytes
    REFUSED                     # the system refused to read: -errno, or 0


cdef enum:
    LINE = 64
    # The first lines of a range are fetched before it is copied; the processor's own prefetchers follow.
    LINES_AHEAD = 16

    # Keys are sorted in runs of this many by insertion, then merged.
    RUN = 8


cdef struct Span:
    uint64_t file
    uint64_t offset
    int64_t n_bytes
    MapSlot* slot               # NULL: not opened yet
    uint8_t* dst                # room for the bytes, of a line for those before its "\n" and one more
    int outcome
    int64_t detail


cdef struct Key:
    uint64_t place              # where the range begins, near enough
    int64_t i                   # which it is, in the batch


cdef inline uint64_t place_of(uint64_t file, uint64_t offset) noexcept nogil:
    """Return what ranges are sorted by: their file, and in it 256 bytes as one. Beyond that order does not matter."""
    return min(file, <uint64_t>0xFFFFFF) << 40 | min(offset >> 8, <uint64_t>0xFFFFFFFFFF)


cdef inline void sort_run(Key* keys, int64_t n) noexcept nogil:
    cdef int64_t i
    cdef int64_t j
    cdef Key key
    for i in range(1, n):
        key = keys[i]
        j = i
        while j > 0 and keys[j - 1].place > key.place:
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key


cdef inline void merge(const Key* a, int64_t a_n, const Key* b, int64_t b_n, Key* out) noexcept nogil:
    cdef int64_t i = 0
    cdef int64_t j = 0
    if a_n and b_n and a[a_n - 1].place <= b[0].place:
        i, j = a_n, b_n
        memcpy(out, a, a_n * sizeof(Key))
        memcpy(out + a_n, b, b_n * sizeof(Key))
        return
    while i < a_n and j < b_n:
        if b[j].place < a[i].place:
            out[i + j] = b[j]
            j += 1
        else:
            out[i + j] = a[i]
            i += 1
    memcpy(out + i + j, a + i, (a_n - i) * sizeof(Key))
    memcpy(out + a_n + j, b + j, (b_n - j) * sizeof(Key))


cdef inline Key* sort_keys(Key* keys, int64_t n, Key* room) noexcept nogil:
    """Sort keys by their places, equal ones in their order; returns where they are then, `keys` or `room`."""
    cdef int64_t width = RUN
    cdef int64_t at = 0
    cdef int64_t middle
    while at < n:
        sort_run(keys + at, min(<int64_t>RUN, n - at))
        at += RUN
    while width < n:
        at = 0
        while at < n:
            middle = min(width, n - at)
            merge(keys + at, middle, keys + at + middle, min(width, n - at - middle), room + at)
            at += 2 * width
        keys, room = room, keys
        width *= 2
    return keys


cdef inline void foresee(const Span* span) noexcept nogil:
    """Have the processor fetch the beginning of a range. (An address without memory is no fault there.)"""
    cdef int64_t line
    if span.slot == NULL or span.slot.base == NULL:
        return
    for line in range(min(<int64_t>LINES_AHEAD, span.n_bytes // LINE + 1)):
        LX_FETCH(span.slot.base + span.offset + line * LINE)


cdef inline int64_t room_of(int64_t n_bytes, bint trims) noexcept nogil:
    """Return how many of a range's bytes are taken to be wanted: lines nearly all end with one byte of line end."""
    return n_bytes - 1 if trims and n_bytes > 1 else n_bytes


cdef inline void note(Span* span, int outcome, int64_t detail) noexcept nogil:
    span.outcome = outcome
    span.detail = detail


cdef inline void bring(Span* span, bint trims) noexcept nogil:
    """Copy a range that was checked to its place, out of the map or through the descriptor."""
    cdef int64_t room = room_of(span.n_bytes, trims)
    cdef int64_t got
    cdef uint8_t last
    if span.n_bytes == 0:
        return
    if span.slot.base != NULL:
        memcpy(span.dst, span.slot.base + span.offset, room)
        last = span.slot.base[span.offset + span.n_bytes - 1]
    else:
        # The one byte more goes to where the NUL behind a bytes object is.
        got = read_at(span.slot.fd, span.dst, span.n_bytes, span.offset)
        if got != span.n_bytes:
            note(span, REFUSED if got < 0 else OUTSIDE_FILE, got if got < 0 else <int64_t>span.offset + got)
            return
        last = span.dst[span.n_bytes - 1]
        if room < span.n_bytes:
            span.dst[room] = 0
    if not trims:
        return
    if last != c"\n":
        # With n_bytes == 1 there is room for it.
        note(span, WITHOUT_END if room < span.n_bytes else GOOD, last)
    elif room == span.n_bytes or span.dst[room - 1] == c"\r":
        note(span, WITH_RETURN, 0)
