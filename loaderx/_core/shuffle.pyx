"""Byte shuffling, which zstd's codecs 3 and 4 apply to a record before it is compressed.

Numbers of one kind differ most in their lowest bytes: with the first bytes of all items together, then their second
bytes, and so on, zstd finds more to repeat. docs/format.md says how, byte by byte.

The one place that knows which instructions to use: the other modules of the core call in here.
"""

from cpython.buffer cimport PyBUF_SIMPLE
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from loaderx._core.layout cimport MAX_ITEM_SIZE, MIN_ITEM_SIZE
from loaderx._core.views cimport Views, release, take

cdef extern from "shuffle.h" nogil:
    ctypedef struct lx_shuffler:
        const char* name
        int (*works)()

    const lx_shuffler* lx_shufflers
    int LX_SHUFFLERS
    void lx_shuffle_record(const lx_shuffler* kernel, bint undo, uint8_t* dst, const uint8_t* src, size_t n_bytes,
                           size_t item_size)


cdef const lx_shuffler* find_kernel(object name) except NULL:
    """Return the kernel of this name, of those that work here; None: the best."""
    cdef int i
    for i in range(LX_SHUFFLERS):
        if lx_shufflers[i].works() and (name is None or lx_shufflers[i].name == name.encode()):
            return &lx_shufflers[i]
    raise ValueError(f"no kernel {name!r}: here work {', '.join(kernels())}")


cdef const lx_shuffler* in_use = find_kernel(None)


cdef void shuffle_record(uint8_t* dst, const uint8_t* src, size_t n_bytes, size_t item_size) noexcept nogil:
    """Shuffle a record of items of 2 to 255 bytes. `dst` has room for `n_bytes` and shares no memory with `src`."""
    lx_shuffle_record(in_use, False, dst, src, n_bytes, item_size)


cdef void unshuffle_record(uint8_t* dst, const uint8_t* src, size_t n_bytes, size_t item_size) noexcept nogil:
    """Undo `shuffle_record`."""
    lx_shuffle_record(in_use, True, dst, src, n_bytes, item_size)


cdef bytes turned(object data, Py_ssize_t item_size, bint undo):
    cdef Views views
    cdef Py_buffer* view
    cdef bytes result
    cdef uint8_t* result_ptr
    if item_size < MIN_ITEM_SIZE or item_size > MAX_ITEM_SIZE:
        raise ValueError(f"items have {MIN_ITEM_SIZE} to {MAX_ITEM_SIZE} bytes, not {item_size}")
    views.n = 0
    try:
        view = take(&views, data, PyBUF_SIMPLE)
        result = PyBytes_FromStringAndSize(NULL, view.len)
        result_ptr = <uint8_t*>PyBytes_AsString(result)
        with nogil:
            lx_shuffle_record(in_use, undo, result_ptr, <const uint8_t*>view.buf, view.len, item_size)
        return result
    finally:
        release(&views)


def shuffle(data, Py_ssize_t item_size):
    """Return a record shuffled.

    Parameters
    ----------
    data : contiguous buffer
    item_size : int
        Bytes of an item, 2 to 255.

    Raises
    ------
    ValueError
        `item_size` is another number.

    Examples
    --------
    >>> shuffle(b"a1b2c3.", 2)
    b'abc123.'
    """
    return turned(data, item_size, False)


def unshuffle(data, Py_ssize_t item_size):
    """Return a record as it was before `shuffle`.

    Parameters
    ----------
    data : contiguous buffer
    item_size : int
        Bytes of an item, 2 to 255.

    Raises
    ------
    ValueError
        `item_size` is another number.

    Examples
    --------
    >>> unshuffle(b"abc123.", 2)
    b'a1b2c3.'
    """
    return turned(data, item_size, True)


def kernels():
    """Return the names of the kernels that work on this machine, the best first."""
    return tuple([(<bytes>lx_shufflers[i].name).decode() for i in range(LX_SHUFFLERS) if lx_shufflers[i].works()])


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
