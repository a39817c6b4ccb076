"""Files mapped read-only, and how long they really are."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from libc.errno cimport EINTR, EINVAL, errno
from libc.stdint cimport int64_t, uint8_t
from posix.mman cimport MADV_RANDOM, MAP_FAILED, MAP_SHARED, PROT_READ, madvise, mmap, munmap
from posix.stat cimport fstat, struct_stat
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close, pread

import os
import stat

cdef extern from *:
    """
    #include <time.h>  /* which posix/time.pxd counts on Python.h to bring; from 3.13 on it does not */
    """


cdef int64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef int64_t look(MapSlot* slot) noexcept nogil:
    """Ask the system for the file's size, and note how much of it can be used; -1: it refused."""
    cdef struct_stat info
    cdef int64_t now = monotonic_ns()
    if fstat(slot.fd, &info) != 0:
        return -1
    LX_STORE(&slot.size, min(<int64_t>info.st_size, slot.capacity))
    LX_STORE(&slot.looked_ns, now)
    return info.st_size


cdef int64_t read_at(int fd, uint8_t* dst, int64_t n_bytes, int64_t offset) noexcept nogil:
    """Read `n_bytes`, however many calls it takes. Returns the bytes read (fewer: the file ends), or -errno."""
    cdef int64_t done = 0
    cdef int64_t got
    while done < n_bytes:
        got = pread(fd, dst + done, n_bytes - done, offset + done)
        if got > 0:
            done += got
        elif got == 0:
            break
        elif errno != EINTR:
            return -errno
    return done


cdef class OpenFile:
    """An open file, closed at the latest when the last reference goes.

    Opening, closing and letting go are each done in one piece: no signal comes between a descriptor and its owner, so
    none is left open, and none is closed twice. (Python drops a signal that meets a ``__del__``.)

    Parameters
    ----------
    path : str or os.PathLike
    flags : int
        As for `os.open`; a file that is created may be read and written, as far as the umask lets.

    Raises
    ------
    OSError
    """

    def __cinit__(self, path, int flags):
        self.fd = -1
        self.fd = os.open(path, flags, 0o666)

    def __dealloc__(self):
        self.close()

    def fileno(self):
        """Return the descriptor.

        Raises
        ------
        ValueError
            The file was closed.
        """
        if self.fd < 0:
            raise ValueError("the file was closed")
        return self.fd

    cpdef close(self):
        """Close the file, unless that was done."""
        cdef int fd = self.fd
        self.fd = -1
        if fd >= 0:
            close(fd)


cdef class FileMap:
    """A file opened for reading, mapped into memory unless told otherwise.

    The map may reach beyond the file's end, so that a file that grows needs no new one; nothing here touches a byte
    past the file's present end. The memory and the descriptor live as long as this object, and an array made over it
    (`numpy.frombuffer`) keeps it alive: there is no close, so nothing can be unmapped under a reader.

    Parameters
    ----------
    path : str or os.PathLike
    capacity : int
        Bytes of the file to use, and of address space to map; a longer file is not seen beyond it.
    mapped : bool
        False: no map; the core reads through the descriptor, and the object exports no buffer.

    Raises
    ------
    OSError
        The file cannot be opened or mapped, or is not a regular file.

    Notes
    -----
    Safe to share between threads. A forked child has the same map.
    """

    def __cinit__(self, path, int64_t capacity, bint mapped=True):
        cdef void* address
        self.slot.fd = -1
        self.slot.base = NULL
        self.path = os.fspath(path)
        self.slot.capacity = capacity
        # Without O_NONBLOCK, opening a pipe would wait for somebody to write into it.
        self.slot.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(self.slot.fd).st_mode):
            raise OSError(EINVAL, "not a regular file", self.path)
        if mapped:
            address = mmap(NULL, capacity, PROT_READ, MAP_SHARED, self.slot.fd, 0)
            if address == MAP_FAILED:
                raise OSError(errno, os.strerror(errno), self.path)
            self.slot.base = <const uint8_t*>address
            # The system's read-ahead brings megabytes for a record; loaderx._core.ahead asks for what will be read.
            madvise(address, capacity, MADV_RANDOM)
        self.size()

    def __dealloc__(self):
        if self.slot.base != NULL:
            munmap(<void*>self.slot.base, self.slot.capacity)
        if self.slot.fd >= 0:
            close(self.slot.fd)

    def size(self):
        """Return the file's size in bytes, as the system gives it now.

        Raises
        ------
        OSError
            The system gives none.
        """
        cdef int64_t n_bytes = look(&self.slot)
        if n_bytes < 0:
            raise OSError(errno, os.strerror(errno), self.path)
        return n_bytes

    def is_at(self, path):
        """Return whether this is still the file that a path names."""
        try:
            return os.path.samestat(os.fstat(self.slot.fd), os.stat(path))
        except FileNotFoundError:
            return False

    def read(self, int64_t offset, int64_t n_bytes):
        """Return up to `n_bytes` bytes at `offset`, fewer where the file ends; works with and without a map.

        Raises
        ------
        OSError
            The system refused to read.
        """
        cdef bytearray result = bytearray(n_bytes)
        cdef uint8_t* dst = result
        cdef int64_t got
        with nogil:
            got = read_at(self.slot.fd, dst, n_bytes, offset)
        if got < 0:
            raise OSError(-got, os.strerror(-got), self.path)
        del result[got:]
        return bytes(result)

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE == PyBUF_WRITABLE:
            raise BufferError(f"the map of {self.path} is read-only")
        if self.slot.base == NULL:
            raise BufferError(f"{self.path} is not mapped")
        PyBuffer_FillInfo(view, self, <void*>self.slot.base, min(self.slot.capacity, self.size()), 1, flags)

    def __releasebuffer__(self, Py_buffer* view):
        pass
