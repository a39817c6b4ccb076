"""Checksums of stored bytes, and tags of table entries: the lower 32 bits of XXH3-64 with seed 0.

The one place that knows which instructions to use: the other modules of the core call in here.
"""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_SIMPLE, PyBUF_WRITABLE
from cython.parallel cimport prange
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from loaderx._core.layout cimport RECORD_BYTES
from loaderx._core.threads cimport team_size
from loaderx._core.views cimport Views, overlap, release, take

cdef extern from "xxh3.h" nogil:
    ctypedef struct lx_kernel:
        const char* name
        int (*works)()

    const lx_kernel* lx_kernels
    int LX_KERNELS
    uint64_t lx_xxh3(const lx_kernel* kernel, const uint8_t* src, size_t n_bytes)
    uint64_t lx_xxh3_copy(const lx_kernel* kernel, uint8_t* dst, const uint8_t* src, size_t n_bytes)
    uint64_t lx_hash_9_to_16(const uint8_t* src, size_t n_bytes)

cdef enum:
    # A thread takes at most this many pieces at a time.
    MAX_SHARE = 16


cdef const lx_kernel* find_kernel(object name) except NULL:
    """Return the kernel of this name, of those that work here; None: the best."""
    cdef int i
    for i in range(LX_KERNELS):
        if lx_kernels[i].works() and (name is None or lx_kernels[i].name == name.encode()):
            return &lx_kernels[i]
    raise ValueError(f"no kernel {name!r}: here work {', '.join(kernels())}")


cdef const lx_kernel* in_use = find_kernel(None)


cdef uint64_t hash_of(const uint8_t* src, size_t n_bytes) noexcept nogil:
    """Return all 64 bits, for what is not of the store's format."""
    return lx_xxh3(in_use, src, n_bytes)


cdef uint32_t checksum_of(const uint8_t* src, size_t n_bytes) noexcept nogil:
    return <uint32_t>lx_xxh3(in_use, src, n_bytes)


cdef uint32_t copy_checksummed(uint8_t* dst, const uint8_t* src, size_t n_bytes) noexcept nogil:
    """Copy, and return the checksum of the bytes that were copied, read once."""
    return <uint32_t>lx_xxh3_copy(in_use, dst, src, n_bytes)


cdef uint32_t tag_of(const uint8_t* entry) noexcept nogil:
    """Return the checksum of a table entry; 1 for 0, which stands for none."""
    cdef uint32_t tag = <uint32_t>lx_hash_9_to_16(entry, RECORD_BYTES)
    return tag if tag != 0 else 1


def checksum(data):
    """Return the checksum of a contiguous buffer.

    Examples
    --------
    >>> hex(checksum(b""))
    '0x38d394c2'
    """
    cdef Views views
    cdef Py_buffer* data_view
    cdef uint32_t result
    views.n = 0
    try:
        data_view = take(&views, data, PyBUF_SIMPLE)
        with nogil:
            result = checksum_of(<const uint8_t*>data_view.buf, data_view.len)
        return result
    finally:
        release(&views)


def hash64(data):
    """Return the XXH3-64, with seed 0, of a contiguous buffer.

    Examples
    --------
    >>> hex(hash64(b""))
    '0x2d06800538d394c2'
    """
    cdef Views views
    cdef Py_buffer* data_view
    cdef uint64_t result
    views.n = 0
    try:
        data_view = take(&views, data, PyBUF_SIMPLE)
        with nogil:
            result = hash_of(<const uint8_t*>data_view.buf, data_view.len)
        return result
    finally:
        release(&views)


def copy(dst, src):
    """Copy a contiguous buffer into another of the same length, and return the checksum of what was copied.

    Raises
    ------
    ValueError
        The lengths differ, or the two share memory.
    """
    cdef Views views
    cdef Py_buffer* dst_view
    cdef Py_buffer* src_view
    cdef uint32_t result
    views.n = 0
    try:
        dst_view = take(&views, dst, PyBUF_SIMPLE | PyBUF_WRITABLE)
        src_view = take(&views, src, PyBUF_SIMPLE)
        if dst_view.len != src_view.len or overlap(dst_view, src_view):
            raise ValueError("copy needs two buffers of the same length that share no memory")
        with nogil:
            result = copy_checksummed(<uint8_t*>dst_view.buf, <const uint8_t*>src_view.buf, src_view.len)
        return result
    finally:
        release(&views)


def checksums(source, starts, lens, out, int threads):
    """Write the checksum of every piece of a buffer to `out`.

    Parameters
    ----------
    source : contiguous buffer
    starts : buffer of int64, shape (n,)
        First byte of each piece in `source`; pieces may overlap.
    lens : buffer of uint32, shape (n,)
        Length of each piece in bytes.
    out : writable buffer of uint32, shape (n,)
    threads : int
        The most threads to use, at least 1.

    Raises
    ------
    ValueError
        A piece lies outside the source, or a buffer does not fit the others.
    """
    cdef Views views
    cdef Py_buffer* source_view
    cdef Py_buffer* starts_view
    cdef Py_buffer* lens_view
    cdef Py_buffer* out_view
    cdef const uint8_t* source_ptr
    cdef const int64_t* starts_ptr
    cdef const uint32_t* lens_ptr
    cdef uint32_t* out_ptr
    cdef int64_t n
    cdef int64_t i
    cdef int64_t total = 0
    cdef int64_t share
    cdef int n_threads
    views.n = 0
    try:
        source_view = take(&views, source, PyBUF_SIMPLE)
        starts_view = take(&views, starts, PyBUF_C_CONTIGUOUS)
        lens_view = take(&views, lens, PyBUF_C_CONTIGUOUS)
        out_view = take(&views, out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        source_ptr = <const uint8_t*>source_view.buf
        starts_ptr = <const int64_t*>starts_view.buf
        lens_ptr = <const uint32_t*>lens_view.buf
        out_ptr = <uint32_t*>out_view.buf
        n = lens_view.len // 4
        if starts_view.len != n * 8 or lens_view.len != n * 4 or out_view.len != n * 4:
            raise ValueError("starts, lens and out must have one item for each piece")
        if overlap(out_view, source_view) or overlap(out_view, starts_view) or overlap(out_view, lens_view):
            raise ValueError("out shares memory with another argument")
        for i in range(n):
            if starts_ptr[i] < 0 or starts_ptr[i] > source_view.len - <int64_t>lens_ptr[i]:
                raise ValueError(f"piece {i} lies outside the source buffer")
            total += lens_ptr[i]
        n_threads = team_size(threads, total, n)
        share = max(1, min(<int64_t>MAX_SHARE, n // (4 * n_threads)))
        with nogil:
            if n_threads == 1:
                for i in range(n):
                    out_ptr[i] = checksum_of(source_ptr + starts_ptr[i], lens_ptr[i])
            else:
                for i in prange(n, schedule="dynamic", chunksize=share, num_threads=n_threads):
                    out_ptr[i] = checksum_of(source_ptr + starts_ptr[i], lens_ptr[i])
    finally:
        release(&views)


def tags(entries, out):
    """Write the tag of every table entry to `out`: its checksum, 1 for 0.

    Parameters
    ----------
    entries : contiguous buffer of 16-byte items, shape (n,)
    out : writable buffer of uint32, shape (n,)

    Raises
    ------
    ValueError
        The two do not fit each other.
    """
    cdef Views views
    cdef Py_buffer* entries_view
    cdef Py_buffer* out_view
    cdef const uint8_t* entries_ptr
    cdef uint32_t* out_ptr
    cdef Py_ssize_t i
    views.n = 0
    try:
        entries_view = take(&views, entries, PyBUF_SIMPLE)
        out_view = take(&views, out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        if entries_view.len % RECORD_BYTES or out_view.len // 4 * RECORD_BYTES != entries_view.len or out_view.len % 4:
            raise ValueError("out must have one uint32 for each 16-byte entry")
        if overlap(out_view, entries_view):
            raise ValueError("out shares memory with the entries")
        entries_ptr = <const uint8_t*>entries_view.buf
        out_ptr = <uint32_t*>out_view.buf
        with nogil:
            for i in range(out_view.len // 4):
                out_ptr[i] = tag_of(entries_ptr + i * RECORD_BYTES)
    finally:
        release(&views)


def kernels():
    """Return the names of the kernels that work on this machine, the best first."""
    return tuple([(<bytes>lx_kernels[i].name).decode() for i in range(LX_KERNELS) if lx_kernels[i].works()])


def kernel():
    """Return the name of the kernel in use, in every module of the core."""
    return (<bytes>in_use.name).decode()


def use_kernel(name):
    """Use this kernel from now on, everywhere; None: the best. For tests and measurements.

    Parameters
    ----------
    name : str or None

    Raises
    ------
    ValueError
        There is none of this name, or it does not work on this machine.
    """
    global in_use
    in_use = find_kernel(name)
