"""Memory that another process fills, a batch at a time, and that is lent until nothing refers to the batch."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap
from posix.unistd cimport close

cdef enum:
    PAGE_BYTES = 4096


@cython.no_gc  # refers to nothing
cdef class SharedBlock:
    """A file without a name, and its bytes as memory.

    Parameters
    ----------
    fd : int
        Read and written. The block owns it.

    Attributes
    ----------
    fd : int
        -1: closed, and the block can be lent once more, but not filled again.
    is_kept : bool
        Whether a `Lease` that ends gives the block back. One that is not kept goes with it.
    peak_bytes : int
        For whoever decides how long the file may be.

    Raises
    ------
    MemoryError
        By `reserve`: the system maps no more.
    """

    cdef readonly int fd
    cdef public bint is_kept
    cdef public Py_ssize_t peak_bytes
    cdef void* address
    cdef Py_ssize_t map_bytes
    cdef bint is_lent

    def __cinit__(self, int fd):
        self.fd = fd
        self.is_kept = True

    def reserve(self, Py_ssize_t n_bytes):
        """Have at least this many bytes of the file as memory. Only what the file really has may be touched."""
        cdef Py_ssize_t room
        cdef void* address
        if n_bytes <= self.map_bytes:
            return
        if self.is_lent:
            raise ValueError("the block is lent: its memory cannot move")
        if n_bytes > 1LL << 60:
            raise MemoryError(f"no memory for a batch of {n_bytes} bytes")
        # Room for a batch that is a little longer costs nothing until the file has those bytes.
        room = (n_bytes + n_bytes // 4 + PAGE_BYTES - 1) // PAGE_BYTES * PAGE_BYTES
        address = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd, 0)
        if address == MAP_FAILED:
            raise MemoryError(f"no memory for a batch of {n_bytes} bytes")
        self._unmap()
        self.address = address
        self.map_bytes = room

    def close_file(self):
        """Close the descriptor. The memory stays."""
        if self.fd >= 0:
            close(self.fd)
            self.fd = -1

    cdef void _unmap(self) noexcept:
        if self.map_bytes:
            munmap(self.address, self.map_bytes)
            self.map_bytes = 0

    def __dealloc__(self):
        self._unmap()
        if self.fd >= 0:
            close(self.fd)


# What it refers to never refers to it, so the collector need not know it; and could not clear it before its end, which
# needs both.
@cython.no_gc
cdef class Lease:
    """The batch in a block: writable memory. When nothing refers to it any more, the block is given back.

    An array made over it keeps it alive, and so does everything that keeps such an array alive: views, memoryviews,
    tensors that share its memory. It may end in any thread, in the middle of anything: giving back is one append.

    Parameters
    ----------
    block : SharedBlock
        Not lent.
    n_bytes : int
        Of its beginning. The file has them, and `SharedBlock.reserve` was told.
    idle : collections.deque
        Where the block goes when the lease ends, if it is still kept then.
    """

    cdef SharedBlock block
    cdef object idle
    cdef Py_ssize_t n_bytes

    def __cinit__(self, SharedBlock block not None, Py_ssize_t n_bytes, idle not None):
        if block.is_lent:
            raise ValueError("the block is lent")
        if not 0 <= n_bytes <= block.map_bytes:
            raise ValueError(f"{n_bytes} bytes of a block of {block.map_bytes}")
        self.block = block
        self.idle = idle
        self.n_bytes = n_bytes
        block.is_lent = True

    def __dealloc__(self):
        if self.block is None or self.idle is None:
            return  # it never began
        self.block.is_lent = False
        if self.block.is_kept:
            self.idle.append(self.block)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.block.address, self.n_bytes, 0, flags)

    def __releasebuffer__(self, Py_buffer* view):
        pass
