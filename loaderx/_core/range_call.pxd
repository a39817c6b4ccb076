# One batch of byte ranges on its way: which they are, in which order they are read, and what the system is asked for.

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memset

from loaderx._core.asks cimport ask_for_bytes, compare_numbers
from loaderx._core.maps cimport PAGE, MapSlot, monotonic_ns
from loaderx._core.span cimport Key, Span, bring, foresee
from loaderx._core.views cimport Views, take

cdef enum:
    ROW_BYTES = 24

    # Ranges asked of the processor ahead of their turn.
    SPANS_AHEAD = 2

    # The table is asked for with its neighbourhood: that takes a device no longer.
    TABLE_REQUEST_BYTES = 64 * 1024


cdef struct Call:
    # One batch.
    const int64_t* idxs
    bint idxs_unsigned
    int64_t n
    Span* spans                 # in the order of the batch
    Key* keys                   # in the order of the files
    Key* room
    int64_t work_bytes
    int64_t begin_ns
    int64_t sizes_since_ns
    bint looks                  # whether the call measures what it reads,
    bint asks                   # and asks for it first,
    int64_t asked               # which it has done for keys before this one
    bint failed
    int64_t cpu_us
    int64_t wall_us


cdef struct Own:
    # What the calling thread did of a team's work.
    int64_t n
    int64_t until_ns


cdef inline void end_call(Call* call) noexcept:
    free(call.spans)
    free(call.keys)
    free(call.room)


cdef inline int begin_call(Call* call, const int64_t* idxs, bint idxs_unsigned, int64_t n) except -1:
    memset(call, 0, sizeof(Call))
    call.idxs = idxs
    call.idxs_unsigned = idxs_unsigned
    call.n = n
    call.spans = <Span*>calloc(max(n, <int64_t>1), sizeof(Span))
    call.keys = <Key*>malloc(max(n, <int64_t>1) * sizeof(Key))
    call.room = <Key*>malloc(max(n, <int64_t>1) * sizeof(Key))
    if call.spans == NULL or call.keys == NULL or call.room == NULL:
        end_call(call)
        raise MemoryError("no memory to read a batch")
    return 0


cdef inline int bind_indices(Views* views, object idxs, const int64_t** values, bint* is_unsigned, int64_t* n) except -1:
    """Say which samples a call is about. The caller releases the views."""
    cdef Py_buffer* view = take(views, idxs, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
    cdef char kind = view.format[0] if view.format != NULL else 0
    if view.itemsize != 8 or kind not in (c"q", c"l", c"Q", c"L"):
        raise TypeError("indices must be an int64 or uint64 array")
    values[0] = <const int64_t*>view.buf
    is_unsigned[0] = kind == c"Q" or kind == c"L"
    n[0] = view.len // 8
    return 0


cdef inline void serve_share(const Call* call, int64_t at, int64_t end, bint trims, Own* own) noexcept nogil:
    """Copy some ranges of a stretch, and note it where the calling thread does."""
    cdef int64_t k
    for k in range(at, min(at + SPANS_AHEAD, end)):
        foresee(&call.spans[call.keys[k].i])
    for k in range(at, end):
        if k + SPANS_AHEAD < end:
            foresee(&call.spans[call.keys[k + SPANS_AHEAD].i])
        bring(&call.spans[call.keys[k].i], trims)
    if own != NULL:
        own.n += end - at
        own.until_ns = monotonic_ns()


cdef inline void ask_for_rows(const MapSlot* table, const int64_t* idxs, bint idxs_unsigned, int64_t n,
                       int64_t length) noexcept nogil:
    """Ask for the rows of samples; indices of none are passed over."""
    cdef int64_t* windows = <int64_t*>malloc(max(n, <int64_t>1) * sizeof(int64_t))
    cdef int64_t n_windows = 0
    cdef int64_t index
    cdef int64_t i
    if windows == NULL:
        return
    for i in range(n):
        index = idxs[i]
        if index < 0 and not idxs_unsigned:
            index += length
        if 0 <= index < length:
            windows[n_windows] = index * ROW_BYTES // TABLE_REQUEST_BYTES
            if n_windows == 0 or windows[n_windows] != windows[n_windows - 1]:
                n_windows += 1
    qsort(windows, n_windows, sizeof(int64_t), compare_numbers)
    for i in range(n_windows):
        if i == 0 or windows[i] != windows[i - 1]:
            ask_for_bytes(table, windows[i] * TABLE_REQUEST_BYTES, (windows[i] + 1) * TABLE_REQUEST_BYTES)
    free(windows)


cdef inline void ask_for_last_page(const Call* call, int64_t k) noexcept nogil:
    cdef const Span* span = &call.spans[call.keys[k].i]
    if span.slot != NULL and span.n_bytes:
        ask_for_bytes(span.slot, span.offset + span.n_bytes - 1, span.offset + span.n_bytes)


cdef inline void ask_for_spans(const Call* call, int64_t at, int64_t end) noexcept nogil:
    """Ask for the pages of a stretch, those that touch together."""
    cdef const Span* span
    cdef const MapSlot* slot = NULL
    cdef int64_t begin = 0
    cdef int64_t until = 0
    cdef int64_t first
    cdef int64_t k
    for k in range(at, end):
        span = &call.spans[call.keys[k].i]
        if span.slot == NULL or span.n_bytes == 0:
            continue
        first = <int64_t>span.offset - <int64_t>(span.offset % PAGE)
        if span.slot != slot or first > until or first < begin:
            if slot != NULL:
                ask_for_bytes(slot, begin, until)
            slot = span.slot
            begin = first
            until = first
        until = max(until, <int64_t>span.offset + span.n_bytes)
    if slot != NULL:
        ask_for_bytes(slot, begin, until)
