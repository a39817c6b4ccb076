# Memory that a thread of a call works in, kept with what owns it for the next call.

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc

from loaderx._core.pages cimport LARGE_BYTES, lx_map, lx_unmap

cdef enum:
    # From here on it is mapped, for the allocator might keep it.
    MAPPED_SCRATCH = 256 * 1024
    # Scratch beyond this is not kept,
    KEPT_SCRATCH = 8 * 1024 * 1024
    # nor, of all that lies idle in one pool with its zstd contexts, what is more than this: however many threads there
    # were, and however many cores there are.
    KEPT_IN_ALL = 64 * 1024 * 1024


cdef struct Scratch:
    uint8_t* base
    size_t n_bytes


cdef inline void shrink(Scratch* scratch, size_t most_bytes) noexcept nogil:
    if scratch.n_bytes > most_bytes:
        if scratch.n_bytes < MAPPED_SCRATCH:
            free(scratch.base)
        else:
            lx_unmap(scratch.base, scratch.n_bytes)
        scratch.base = NULL
        scratch.n_bytes = 0


cdef inline int grow(Scratch* scratch, size_t n_bytes) noexcept nogil:
    """Make room for `n_bytes`, whatever was in it; 0, or -1 where there is no memory, and then there is none."""
    cdef uint8_t* grown
    if scratch.n_bytes < n_bytes:
        shrink(scratch, 0)
        # A little more, for the next record may be longer by a little.
        n_bytes = max(n_bytes, min(n_bytes + n_bytes // 4, <size_t>KEPT_SCRATCH))
        if n_bytes < MAPPED_SCRATCH:
            grown = <uint8_t*>malloc(n_bytes)
        else:
            grown = <uint8_t*>lx_map(n_bytes, 1 if n_bytes >= LARGE_BYTES else -1)
        if grown == NULL:
            return -1
        scratch.base = grown
        scratch.n_bytes = n_bytes
    return 0
