# Memory of the system's for blocks of some sizes, which comes back at once when a block goes.
#
# A map for each block would do, were it not for the bound on how many maps a process may have (vm.max_map_count, 65,530
# unless set): the system joins neighbours, and a hole wherever one of them went leaves two. A process at the bound can
# map nothing more, whoever asks. So blocks below 4 MiB share a map, and one that goes gives back its pages and not its
# addresses. The map goes when all of its blocks are gone. Source of the scheme: slabs, J. Bonwick 1994.
#
# Only touched with the GIL held, as `pool.pxd`.

from libc.stdint cimport int64_t, uint8_t, uint16_t
from libc.stdlib cimport free, malloc

from loaderx._core.pages cimport LARGE_BYTES, lx_hollow, lx_map, lx_page_bytes, lx_unmap

cdef enum:
    # 65,530 holes between blocks of LARGE_BYTES take 256 GiB of blocks in use, and between shared maps more.
    SHARED_BYTES = 32 << 20
    MOST_SLOTS = 1 << 15


cdef struct Arena:
    uint8_t* base
    int64_t slot_bytes
    int n_slots
    int n_vacant
    uint16_t* vacant        # which slots hold no block: the first `n_vacant`, the last of which is taken first
    Arena** top             # the list that it is in while it has vacant ones
    Arena* above
    Arena* below


cdef inline void arena_list(Arena* arena) noexcept:
    arena.above = NULL
    arena.below = arena.top[0]
    if arena.below != NULL:
        arena.below.above = arena
    arena.top[0] = arena


cdef inline void arena_unlist(Arena* arena) noexcept:
    if arena.above != NULL:
        arena.above.below = arena.below
    else:
        arena.top[0] = arena.below
    if arena.below != NULL:
        arena.below.above = arena.above


cdef inline Arena* arena_new(Arena** top, int64_t slot_bytes, int n_slots) noexcept:
    """Map an arena and list it; NULL: no memory."""
    cdef Arena* arena = <Arena*>malloc(sizeof(Arena) + n_slots * sizeof(uint16_t))
    cdef int i
    if arena == NULL:
        return NULL
    # Blocks that share a map have no large pages: one that goes would leave its part of them taken.
    arena.base = <uint8_t*>lx_map(n_slots * slot_bytes, 1 if slot_bytes >= LARGE_BYTES else -1)
    if arena.base == NULL:
        free(arena)
        return NULL
    arena.slot_bytes = slot_bytes
    arena.n_slots = arena.n_vacant = n_slots
    arena.vacant = <uint16_t*>(arena + 1)
    for i in range(n_slots):
        arena.vacant[i] = n_slots - 1 - i
    arena.top = top
    arena_list(arena)
    return arena


cdef inline uint8_t* arena_take(Arena** top, int64_t n_bytes, Arena** owner) noexcept:
    """Return memory for a block, all zero where it is new, and the arena it lies in; NULL: no memory.

    All blocks of a list have one size.
    """
    cdef int64_t page_bytes = lx_page_bytes()
    cdef int64_t slot_bytes = (n_bytes + page_bytes - 1) // page_bytes * page_bytes
    cdef Arena* arena = top[0]
    if arena == NULL and slot_bytes < LARGE_BYTES:
        arena = arena_new(top, slot_bytes, <int>min(<int64_t>MOST_SLOTS, SHARED_BYTES // slot_bytes))
    if arena == NULL:
        arena = arena_new(top, slot_bytes, 1)
    if arena == NULL:
        return NULL
    owner[0] = arena
    arena.n_vacant -= 1
    if arena.n_vacant == 0:
        arena_unlist(arena)
    return arena.base + arena.vacant[arena.n_vacant] * arena.slot_bytes


cdef inline void arena_give(Arena* arena, uint8_t* block) noexcept:
    """Give a block's pages back to the system, and with the last block of a map the map."""
    if arena.n_vacant == 0:
        arena_list(arena)
    arena.vacant[arena.n_vacant] = <uint16_t>((block - arena.base) // arena.slot_bytes)
    arena.n_vacant += 1
    if arena.n_vacant == arena.n_slots and lx_unmap(arena.base, arena.n_slots * arena.slot_bytes) == 0:
        arena_unlist(arena)
        free(arena)
        return
    # A hole in the middle of others can be one map too many for the system. It takes the pages all the same.
    lx_hollow(block, arena.slot_bytes)
