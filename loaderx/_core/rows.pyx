"""Sizes in bytes as numbers of rows."""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE
from libc.stdint cimport int64_t

from loaderx._core.views cimport Views, release, take


cdef int64_t shift_all(int64_t* sizes, int64_t n, int shift, int64_t rest_mask, int64_t* largest) noexcept nogil:
    """Divide by a power of two, which takes a tenth of the time."""
    cdef int64_t rests = 0
    cdef int64_t i
    for i in range(n):
        rests |= sizes[i]
    if rests & rest_mask:
        for i in range(n):
            if sizes[i] & rest_mask:
                return i
    for i in range(n):
        sizes[i] >>= shift
        largest[0] = max(largest[0], sizes[i])
    return -1


cdef int64_t divide_all(int64_t* sizes, int64_t n, int64_t row_bytes, int64_t* largest) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        if sizes[i] % row_bytes:
            return i
    for i in range(n):
        sizes[i] //= row_bytes
        largest[0] = max(largest[0], sizes[i])
    return -1


def to_rows(sizes, int64_t row_bytes):
    """Turn sizes into numbers of rows, in place, unless one of them is no whole number of rows.

    Parameters
    ----------
    sizes : writable buffer of int64, shape (n,)
        In bytes, 0 or more: lengths, or sums of lengths.
    row_bytes : int
        At least 1.

    Returns
    -------
    broken : int
        -1; or the position of the first size that is no whole number of rows, and then all are as they were.
    largest : int
        The greatest number of rows; 0 where there is none.
    """
    cdef Views views
    cdef Py_buffer* view
    cdef int64_t n
    cdef int64_t broken
    cdef int64_t largest = 0
    cdef int shift = 0
    if row_bytes < 1:
        raise ValueError(f"row_bytes is {row_bytes}, not at least 1")
    views.n = 0
    view = take(&views, sizes, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
    n = view.len // 8
    try:
        while row_bytes >> shift > 1:
            shift += 1
        if row_bytes == <int64_t>1 << shift:
            broken = shift_all(<int64_t*>view.buf, n, shift, row_bytes - 1, &largest)
        else:
            broken = divide_all(<int64_t*>view.buf, n, row_bytes, &largest)
        return broken, largest
    finally:
        release(&views)
