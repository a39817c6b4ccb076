# The buffers of one call: taken one after the other, released together. Py_buffer rather than typed memoryviews, which
# cost three times as much for each argument.

from cpython.buffer cimport PyBuffer_Release, PyObject_GetBuffer


cdef struct Views:
    int n
    Py_buffer view[8]


cdef inline Py_buffer* take(Views* views, object source, int flags) except NULL:
    PyObject_GetBuffer(source, &views.view[views.n], flags)
    views.n += 1
    return &views.view[views.n - 1]


cdef inline void release(Views* views) noexcept:
    while views.n > 0:
        views.n -= 1
        PyBuffer_Release(&views.view[views.n])


cdef inline bint overlap(const Py_buffer* a, const Py_buffer* b) noexcept nogil:
    cdef const char* a_ptr = <const char*>a.buf
    cdef const char* b_ptr = <const char*>b.buf
    return a_ptr < b_ptr + b.len and b_ptr < a_ptr + a.len
