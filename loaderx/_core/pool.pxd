# Things that are dear to make (zstd contexts, scratch), kept for the next call. A pool is only touched with the GIL
# held, so it needs no lock, and no lock can be left taken by a fork. What two calls hold at once is the most it keeps.

from libc.stdlib cimport realloc


cdef struct Pool:
    void** idle
    Py_ssize_t n
    Py_ssize_t capacity
    Py_ssize_t idle_bytes   # that those idle hold, which whoever takes and puts them counts


cdef inline void* pool_take(Pool* pool) noexcept:
    """Return the thing put back last, or NULL where the pool is empty."""
    if pool.n == 0:
        return NULL
    pool.n -= 1
    return pool.idle[pool.n]


cdef inline bint pool_put(Pool* pool, void* thing) noexcept:
    """Keep a thing; False where there is no memory to, and the caller frees it."""
    cdef Py_ssize_t capacity
    cdef void** grown
    if pool.n == pool.capacity:
        capacity = 2 * pool.capacity + 8
        grown = <void**>realloc(pool.idle, capacity * sizeof(void*))
        if grown == NULL:
            return False
        pool.idle = grown
        pool.capacity = capacity
    pool.idle[pool.n] = thing
    pool.n += 1
    return True
