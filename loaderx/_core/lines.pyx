"""Where the lines of text files are, and a fingerprint by which a changed file is noticed.

Files are read into a block that stays in the processor's cache. That is faster than a map as soon as two threads
work (a process's page tables are changed by one at a time), and a file that is cut off meanwhile ends early, where a
map would end the process.

The one place that knows which instructions to use.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.errno cimport EINTR, ENOMEM, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy
from posix.fcntl cimport O_CLOEXEC, O_NONBLOCK, O_RDONLY, open as open_file
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close

from loaderx._core.checksum cimport hash_of
from loaderx._core.maps cimport read_at

import os

cdef extern from *:
    """
    #ifdef __APPLE__
      #define LX_MTIME(info) (info)->st_mtimespec
    #else
      #define LX_MTIME(info) (info)->st_mtim
    #endif
    #define LX_MTIME_NS(info) ((int64_t)LX_MTIME(info).tv_sec * 1000000000 + LX_MTIME(info).tv_nsec)
    """
    int64_t LX_MTIME_NS(const struct_stat* info) nogil

cdef extern from "lines.h" nogil:
    ctypedef struct lx_lines:
        uint64_t file
        uint64_t line_start
        int has_text
        uint64_t* rows
        int64_t n_rows

    ctypedef struct lx_line_scanner:
        const char* name
        void (*scan)(lx_lines* lines, const uint8_t* src, size_t n, uint64_t at) noexcept nogil
        int (*works)()

    const lx_line_scanner* lx_line_scanners
    int LX_LINE_SCANNERS
    bint lx_has_text(const uint8_t* src, const uint8_t* end)

cdef enum:
    # What is read at once: the most that stays in the cache nearest to one core alone.
    BLOCK = 256 * 1024
    ROW_BYTES = 24
    # A scanner keeps no more room for rows than this between two calls.
    KEPT_ROWS = 256 * 1024

    # What a fingerprint looks at: so many blocks of so many bytes, or a file that has no more as a whole.
    PRINT_BLOCKS = 64
    PRINT_BYTES = 4096
    MARK_BYTES = 3
    # Of a file's first bytes: as many as tell whether it is compressed.
    HEAD_BYTES = 16

BLOCK_BYTES = BLOCK


cdef const lx_line_scanner* find_kernel(object name) except NULL:
    """Return the kernel of this name, of those that work here; None: the best."""
    cdef int i
    for i in range(LX_LINE_SCANNERS):
        if lx_line_scanners[i].works() and (name is None or lx_line_scanners[i].name == name.encode()):
            return &lx_line_scanners[i]
    raise ValueError(f"no kernel {name!r}: here work {', '.join(kernels())}")


cdef const lx_line_scanner* in_use = find_kernel(None)


cdef bint is_mark(const uint8_t* src, int64_t n) noexcept nogil:
    """Return whether a file that begins so has a byte-order mark of UTF-8."""
    return n >= MARK_BYTES and memcmp(src, b"\xef\xbb\xbf", MARK_BYTES) == 0


cdef int64_t take_fingerprint(int fd, int64_t size, uint8_t* block, uint64_t* result) noexcept nogil:
    """Hash blocks of a file's first `size` bytes; `block` has room for them. Returns 0, 1 (it ends before), or -errno."""
    cdef int64_t n = 0
    cdef int64_t got
    cdef int i
    if size <= PRINT_BLOCKS * PRINT_BYTES:
        got = read_at(fd, block, size, 0)
        if got < 0:
            return got
        n = got
        if n < size:
            return 1
    else:
        for i in range(PRINT_BLOCKS):
            # In this order it cannot overflow, and the last block ends where the file does.
            got = read_at(fd, block + n, PRINT_BYTES, (size - PRINT_BYTES) // (PRINT_BLOCKS - 1) * i
                          + (size - PRINT_BYTES) % (PRINT_BLOCKS - 1) * i // (PRINT_BLOCKS - 1))
            if got < 0:
                return got
            if got < PRINT_BYTES:
                return 1
            n += got
    result[0] = hash_of(block, n)
    return 0


cdef struct FileJob:
    # One file of several: what is to be done, and what was found.
    const char* path
    int64_t size                # bytes to look at, at most a block
    int64_t status              # 0, 1 (it was changed, other than by appending), or -errno
    int64_t n_rows              # up to its end, those of the files before it among them
    int64_t mtime_ns
    int64_t line_start          # where its last whole line ends
    bint has_text               # whether more than blanks is behind that
    uint64_t fingerprint
    uint8_t[HEAD_BYTES] head    # its first bytes


cdef class LineScanner:
    """Finds lines; keeps the memory it works in. Not to be used by two threads at once.

    Notes
    -----
    What it returns are rows of three unsigned 64-bit numbers, one for each line that is not blank: the number of the
    file, the line's first byte, and its number of bytes, the line end among them.
    """

    cdef uint8_t* block
    cdef lx_lines lines
    cdef int64_t room

    def __cinit__(self):
        self.lines.rows = NULL
        self.room = 0
        self.block = <uint8_t*>malloc(BLOCK)
        if self.block == NULL:
            raise MemoryError("no memory to read files into")

    def __dealloc__(self):
        free(self.block)
        free(self.lines.rows)

    cdef bint make_room(self, int64_t n_bytes) noexcept nogil:
        """See to it that the rows of `n_bytes` more bytes fit; False: no memory."""
        cdef int64_t need = self.lines.n_rows + n_bytes // 2 + 1
        cdef void* rows
        if need > self.room:
            need += need // 2
            rows = realloc(self.lines.rows, need * ROW_BYTES)
            if rows == NULL:
                return False
            self.lines.rows = <uint64_t*>rows
            self.room = need
        return True

    cdef bytes take_rows(self):
        cdef bytes rows = PyBytes_FromStringAndSize(<char*>self.lines.rows, self.lines.n_rows * ROW_BYTES)
        if self.room > KEPT_ROWS:
            free(self.lines.rows)
            self.lines.rows = NULL
            self.room = 0
        return rows

    cdef int64_t scan_piece(self, int fd, int64_t offset, int64_t n_bytes, int64_t* head_end, bint* head_text) noexcept nogil:
        """Scan a piece of a file. Returns the bytes read (fewer than asked: it ends), or -errno.

        `head_end` is -1 where the piece begins in a line: it becomes the place behind that line, and `head_text` whether
        the piece has text before it; it stays -1 where the line does not end here.
        """
        cdef int64_t done = 0
        cdef int64_t got
        cdef int64_t skip
        cdef const uint8_t* found
        while done < n_bytes:
            got = read_at(fd, self.block, min(n_bytes - done, <int64_t>BLOCK), offset + done)
            if got <= 0:
                return got if got < 0 else done
            skip = 0
            if offset + done == 0 and is_mark(self.block, got):
                skip = MARK_BYTES
                self.lines.line_start = MARK_BYTES
            if head_end[0] < 0:
                found = <const uint8_t*>memchr(self.block, c"\n", got)
                if found == NULL:
                    head_text[0] = head_text[0] or lx_has_text(self.block, self.block + got)
                    done += got
                    continue
                head_text[0] = head_text[0] or lx_has_text(self.block, found)
                skip = found - self.block + 1
                head_end[0] = offset + done + skip
                self.lines.line_start = head_end[0]
            if not self.make_room(got):
                return -ENOMEM
            in_use.scan(&self.lines, self.block + skip, got - skip, offset + done + skip)
            done += got
        return done

    def scan(self, int fd, int64_t offset, int64_t n_bytes, uint64_t file, bint in_line):
        """Find the lines that end in a piece of a file.

        A byte-order mark at the file's beginning belongs to no line.

        Parameters
        ----------
        fd : int
            Descriptor of the file.
        offset, n_bytes : int
            The piece.
        file : int
            Number of the file, for the rows.
        in_line : bool
            Whether the piece may begin within a line: the first line that ends in it then has no row.

        Returns
        -------
        rows : bytes
        head_end : int
            First byte behind the line that the piece began in; -1 where that did not end here. Without `in_line`, the
            beginning of the piece.
        head_text : bool
            Whether the piece has more than blanks of that line.
        line_start : int
            First byte of the line that has not ended, where the one before it ended here.
        has_text : bool
            Whether the piece has more than blanks of that one.
        n_read : int
            Bytes that were read: fewer than `n_bytes` where the file ends.

        Raises
        ------
        OSError
            The system refused to read.
        MemoryError
        """
        cdef int64_t head_end = -1 if in_line else offset
        cdef bint head_text = False
        cdef int64_t got
        self.lines.file = file
        self.lines.line_start = offset
        self.lines.has_text = False
        self.lines.n_rows = 0
        with nogil:
            got = self.scan_piece(fd, offset, n_bytes, &head_end, &head_text)
        check(got)
        return (
            self.take_rows(), head_end, head_text, self.lines.line_start, self.lines.has_text != 0, got
        )

    cdef int64_t scan_whole(self, FileJob* job) noexcept nogil:
        """Scan a file that fits into the block, to its end. Returns its status."""
        cdef struct_stat before
        cdef struct_stat after
        cdef int64_t head_end = 0
        cdef bint head_text = False
        cdef int64_t got
        cdef int fd
        while True:
            fd = open_file(job.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
            if fd >= 0:
                break
            if errno != EINTR:
                return -errno
        if fstat(fd, &before) != 0:
            got = -errno
        else:
            self.lines.line_start = 0
            self.lines.has_text = False
            got = self.scan_piece(fd, 0, job.size, &head_end, &head_text)
            if got >= 0 and fstat(fd, &after) != 0:
                got = -errno
        close(fd)
        if got < 0:
            return got
        job.mtime_ns = LX_MTIME_NS(&before)
        if got < job.size or (LX_MTIME_NS(&after) != job.mtime_ns and after.st_size <= before.st_size):
            return 1
        job.fingerprint = hash_of(self.block, job.size)
        memcpy(job.head, self.block, min(job.size, <int64_t>HEAD_BYTES))
        job.line_start = self.lines.line_start
        job.has_text = job.line_start < job.size and self.lines.has_text
        if job.has_text:
            if not self.make_room(0):
                return -ENOMEM
            self.lines.rows[3 * self.lines.n_rows] = self.lines.file
            self.lines.rows[3 * self.lines.n_rows + 1] = job.line_start
            self.lines.rows[3 * self.lines.n_rows + 2] = job.size - job.line_start
            self.lines.n_rows += 1
        job.n_rows = self.lines.n_rows
        return 0

    def scan_files(self, paths, sizes, uint64_t first_file):
        """Find the lines of several small files, whole ones and, where a file has no line end at its end, its last.

        Parameters
        ----------
        paths : list of bytes
        sizes : list of int
            Bytes of each to look at, at most `BLOCK_BYTES`.
        first_file : int
            Number of the first file, for the rows; those that follow have the numbers that follow.

        Returns
        -------
        rows : bytes
        found : list of tuple
            For each file: number of rows up to its end, time of its last change (ns), fingerprint, where its last
            whole line ends, whether there is more than blanks behind that, and its first bytes (16 of a file that has
            so many). The list ends before the first file that was changed, other than by appending to it, while it was
            scanned.

        Raises
        ------
        OSError
            The system refused to open or to read a file, which it names.
        MemoryError
        """
        cdef Py_ssize_t n = len(paths)
        cdef Py_ssize_t i
        cdef Py_ssize_t n_done = 0
        cdef list found = []
        cdef FileJob* jobs = <FileJob*>malloc(max(1, n) * sizeof(FileJob))
        if jobs == NULL:
            raise MemoryError("no memory for a list of files")
        try:
            for i in range(n):
                jobs[i].path = PyBytes_AsString(paths[i])
                jobs[i].size = sizes[i]
                if jobs[i].size < 0 or jobs[i].size > BLOCK:
                    raise ValueError(f"file {i} has {jobs[i].size} bytes, which do not fit into a block")
            self.lines.n_rows = 0
            with nogil:
                while n_done < n:
                    self.lines.file = first_file + n_done
                    jobs[n_done].status = self.scan_whole(&jobs[n_done])
                    if jobs[n_done].status != 0:
                        break
                    n_done += 1
            if n_done < n:
                check(jobs[n_done].status, paths[n_done])
            for i in range(n_done):
                found.append(
                    (
                        jobs[i].n_rows, jobs[i].mtime_ns, jobs[i].fingerprint, jobs[i].line_start, jobs[i].has_text != 0,
                        PyBytes_FromStringAndSize(<char*>jobs[i].head, min(jobs[i].size, <int64_t>HEAD_BYTES)),
                    )
                )
            return self.take_rows(), found
        finally:
            free(jobs)

    def fingerprint(self, int fd, int64_t size):
        """Return a number that stands for the first `size` bytes of a file; None where it has fewer.

        It is the XXH3-64 of 64 blocks of 4 KiB, the first at the beginning, the last before byte `size`, the others at
        equal distances; or of all bytes, where they are no more than that.

        Raises
        ------
        OSError
            The system refused to read.
        """
        cdef uint64_t result = 0
        cdef int64_t status
        with nogil:
            status = take_fingerprint(fd, size, self.block, &result)
        check(status)
        return result if status == 0 else None


cdef object check(int64_t status, object path=None):
    """Raise what a negative status stands for, of the file at a path."""
    if status == -ENOMEM:
        raise MemoryError("no memory for the places of lines")
    if status < 0:
        raise OSError(-status, os.strerror(-status), *([] if path is None else [os.fsdecode(path)]))


def kernels():
    """Return the names of the kernels that work on this machine, the best first."""
    return tuple(
        [(<bytes>lx_line_scanners[i].name).decode() for i in range(LX_LINE_SCANNERS) if lx_line_scanners[i].works()]
    )


def kernel():
    """Return the name of the kernel in use."""
    return (<bytes>in_use.name).decode()


def use_kernel(name):
    """Use this kernel from now on; None: the best. For tests and measurements.

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
