"""Memory for batches, used again: what the last view of one batch lets go of is the next one's.

Fresh memory is dear: the system gives a page at a time, at the first touch, and clears it. A copy into memory that was
touched before takes a third of the time. So blocks are kept when they come back, up to a bound.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t

from loaderx._core.arenas cimport Arena, arena_give, arena_take

cdef enum:
    PAGE_BYTES = 4096
    # Where in its block, and so in a page, a batch begins. A copy is slow whose destination begins, modulo 4096, at its
    # source or a little behind it: the processor takes its loads for loads of what it just stored. For records that
    # begin at multiples of 4096 that costs 7 to 12 % where the system's allocator puts large blocks, 16 bytes behind a
    # page. So batches begin in the middle of a page, on a cache line.
    BATCH_OFFSET = 2048
    # Four sizes to a power of two: batches of nearly one size share blocks, and none leaves more than a fifth unused.
    STEPS = 4
    N_CLASSES = STEPS * 64
    # An idle block goes when this many times the bound has been handed out without need for it. Should it be needed
    # just then, its pages are a small part of what was copied meanwhile.
    STALE = 8


cdef struct Head:
    # Lies at the beginning of its block, in front of the batch.
    int64_t n_bytes
    int size_class
    Arena* arena
    int64_t since       # what `pool.handed_out` was when the block came back
    Head* newer         # among all that are idle
    Head* older
    Head* upper         # among the idle ones of its class: the uppermost came back last, and is used first
    Head* lower


cdef struct IdleBlocks:
    # Only touched with the GIL held, by code that runs no Python in between: no lock, so none that a fork leaves taken.
    int64_t limit
    int64_t idle_bytes
    int64_t handed_out  # bytes, since the beginning
    Head* newest
    Head* oldest
    Head* tops[N_CLASSES]
    Arena* arenas[N_CLASSES]    # those with room for a block of their class

cdef IdleBlocks pool

OFFSET_BYTES = BATCH_OFFSET


cdef int64_t block_class(int64_t n_bytes, int* size_class) noexcept:
    """Return how many bytes a block for `n_bytes` has room for: the next quarter of a power of two."""
    cdef int bits = 2
    cdef int64_t n_steps
    while n_bytes >> (bits + 1):
        bits += 1
    n_steps = (n_bytes + (1LL << (bits - 2)) - 1) >> (bits - 2)  # 4 to 8
    size_class[0] = STEPS * bits + <int>n_steps - STEPS
    return n_steps << (bits - 2)


cdef void add(Head* block) noexcept:
    """Make a block the newest idle one."""
    cdef Head** top = &pool.tops[block.size_class]
    block.since = pool.handed_out
    block.newer = NULL
    block.older = pool.newest
    if pool.newest != NULL:
        pool.newest.newer = block
    else:
        pool.oldest = block
    pool.newest = block
    block.upper = NULL
    block.lower = top[0]
    if top[0] != NULL:
        top[0].upper = block
    top[0] = block
    pool.idle_bytes += block.n_bytes


cdef void remove(Head* block) noexcept:
    """Take a block out of the idle ones."""
    if block.newer != NULL:
        block.newer.older = block.older
    else:
        pool.newest = block.older
    if block.older != NULL:
        block.older.newer = block.newer
    else:
        pool.oldest = block.newer
    if block.upper != NULL:
        block.upper.lower = block.lower
    else:
        pool.tops[block.size_class] = block.lower
    if block.lower != NULL:
        block.lower.upper = block.upper
    pool.idle_bytes -= block.n_bytes


cdef void drop_oldest() noexcept:
    """Give the block that has been idle longest back to the system."""
    cdef Head* block = pool.oldest
    remove(block)
    arena_give(block.arena, <uint8_t*>block)


cdef Head* take_block(int64_t n_bytes) noexcept:
    """Return a block, an idle one if there is one of this size; NULL: no memory."""
    cdef int size_class
    cdef int64_t block_bytes = block_class(n_bytes, &size_class) + PAGE_BYTES
    cdef Head* block = pool.tops[size_class]
    cdef Arena* arena
    pool.handed_out += block_bytes
    if block != NULL:
        remove(block)
        return block
    block = <Head*>arena_take(&pool.arenas[size_class], block_bytes, &arena)
    while block == NULL:
        if pool.oldest == NULL:
            return NULL
        drop_oldest()
        block = <Head*>arena_take(&pool.arenas[size_class], block_bytes, &arena)
    block.n_bytes = block_bytes
    block.size_class = size_class
    block.arena = arena
    return block


cdef void give_block(Head* block) noexcept:
    """Keep a block for a later batch, and let go of those that are too much or too old, which this one never is."""
    if block.n_bytes > pool.limit:
        arena_give(block.arena, <uint8_t*>block)  # or it would drive out all others, and then go
        return
    add(block)
    while pool.idle_bytes > pool.limit or (pool.handed_out - pool.oldest.since) // STALE > pool.limit:
        drop_oldest()


cdef class Block:
    """Memory for one batch, uninitialised and writable, that goes back to the pool when nothing refers to it.

    An array made over it (`numpy.frombuffer`) keeps it alive, and so does everything that keeps such an array alive:
    views, memoryviews, tensors that share its memory.

    Parameters
    ----------
    n_bytes : int
        At least 1.

    Raises
    ------
    MemoryError
        The system gives no more, even after all idle blocks were given back to it.

    Notes
    -----
    The memory begins in the middle of a page. A forked child has a copy of it, like of all memory.
    """

    cdef Head* head
    cdef Py_ssize_t n_bytes

    def __cinit__(self, Py_ssize_t n_bytes):
        if n_bytes < 1 or n_bytes > 1LL << 60:
            raise MemoryError(f"no memory for a batch of {n_bytes} bytes")
        self.head = take_block(n_bytes)
        if self.head == NULL:
            raise MemoryError(f"no memory for a batch of {n_bytes} bytes")
        self.n_bytes = n_bytes

    def __dealloc__(self):
        if self.head != NULL:
            give_block(self.head)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, <char*>self.head + BATCH_OFFSET, self.n_bytes, 0, flags)

    def __releasebuffer__(self, Py_buffer* view):
        pass


def set_limit(int64_t n_bytes):
    """Bound the bytes of idle blocks, and give the system what is above it; 0, as at first: keep none.

    Raises
    ------
    ValueError
        The bound is negative.
    """
    if n_bytes < 0:
        raise ValueError(f"no bound on bytes: {n_bytes}")
    pool.limit = n_bytes
    while pool.idle_bytes > pool.limit:
        drop_oldest()


def idle_bytes():
    """Return how many bytes lie idle."""
    return pool.idle_bytes


def trim():
    """Give all idle blocks back to the system, and return how many bytes they had."""
    cdef int64_t n_bytes = pool.idle_bytes
    while pool.oldest != NULL:
        drop_oldest()
    return n_bytes
