# Memory that comes from the system and goes back to it at once, whatever lies beside it: an allocator keeps what is not
# at the end of its own, and one that has a region for each thread keeps it for as many threads as there ever were.

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <sys/mman.h>
    #include <unistd.h>

    /* Large pages: 1, please; -1, none. The first touch of those costs a third of that of small ones. Of 2 MiB each,
       and beginning at a multiple of that, one is sure to fit into 4 MiB. Where the system has none the advice is
       refused, and small ones do. */
    static inline void *lx_map(int64_t n_bytes, int large_pages) {
        void *map = mmap(NULL, (size_t)n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED) return NULL;
    #ifdef MADV_HUGEPAGE
        (void)madvise(map, (size_t)n_bytes, large_pages > 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    #endif
        return map;
    }
    static inline int lx_unmap(void *map, int64_t n_bytes) { return munmap(map, (size_t)n_bytes); }
    static inline void lx_hollow(void *at, int64_t n_bytes) { (void)madvise(at, (size_t)n_bytes, MADV_DONTNEED); }
    static inline int64_t lx_page_bytes(void) { return (int64_t)sysconf(_SC_PAGESIZE); }
    """
    void* lx_map(int64_t n_bytes, int large_pages) noexcept nogil
    int lx_unmap(void* map, int64_t n_bytes) noexcept nogil
    void lx_hollow(void* at, int64_t n_bytes) noexcept nogil
    int64_t lx_page_bytes() noexcept nogil

cdef enum:
    LARGE_BYTES = 4 << 20
