# Memory that a thread of a call works in, kept with what owns it for the next call.

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc


cdef enum:
    # Scratch beyond this is not kept.
    KEPT_SCRATCH = 8 * 1024 * 1024


cdef struct Scratch:
    uint8_t* base
    size_t n_bytes


cdef inline int grow(Scratch* scratch, size_t n_bytes) noexcept nogil:
    """Make room for `n_bytes`, whatever was in it; 0, or -1 where there is no memory."""
    cdef uint8_t* grown
    if scratch.n_bytes < n_bytes:
        grown = <uint8_t*>malloc(n_bytes)
        if grown == NULL:
            return -1
        free(scratch.base)
        scratch.base = grown
        scratch.n_bytes = n_bytes
    return 0


cdef inline void shrink(Scratch* scratch, size_t most_bytes) noexcept nogil:
    if scratch.n_bytes > most_bytes:
        free(scratch.base)
        scratch.base = NULL
        scratch.n_bytes = 0
