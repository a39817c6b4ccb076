"""Byte ranges of several files, such as the lines of a text corpus, read by a table that says where each is.

A row of the table is three little-endian uint64: the number of a file, the range's first byte in it, its bytes. Every
row is checked against the file's real size before a byte is touched.

What stops a call is given back as a tuple ``(what, position, index, file, byte_offset, n_bytes, detail)``: one of the
`WHATS`, the lowest place in the batch that it was met at, the index there, its row (None where there is none), and
what was found. The caller makes an exception of it.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_C_CONTIGUOUS
from cython.parallel cimport prange, threadid
from libc.errno cimport EMFILE, ENFILE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from loaderx._core.asks cimport ask_for_bytes
from loaderx._core.maps cimport PAGE, SIZE_TRUST_BYTES, FileMap, MapSlot, file_size, monotonic_ns, read_at, sizes_since
from loaderx._core.range_call cimport (
    ROW_BYTES,
    Call,
    Own,
    ask_for_last_page,
    ask_for_rows,
    ask_for_spans,
    begin_call,
    bind_indices,
    end_call,
    serve_share,
)
from loaderx._core.span cimport (
    GOOD,
    LX_FETCH,
    NO_FILE,
    NO_SAMPLE,
    OUTSIDE_FILE,
    REFUSED,
    TABLE_CUT,
    UNOPENED,
    WITH_RETURN,
    WITHOUT_END,
    Key,
    Span,
    note,
    place_of,
    room_of,
    sort_keys,
)
from loaderx._core.threads cimport governed_team_size, judge_team, share_of
from loaderx._core.views cimport Views, release, take
from loaderx._core.watch cimport (
    Usage,
    Watch,
    credit_after,
    is_time_to_look,
    is_waiting,
    pages_between,
    start_watch,
    usage,
)

import time
from collections import deque

cdef enum:
    # Rows asked of the processor ahead of their turn.
    ROWS_AHEAD = 12

    # A batch is served stretch by stretch: about this many bytes, and no more files than this, which a call holds open.
    STRETCH_BYTES = 16 * 1024 * 1024
    STRETCH_FILES = 32

    # How long a call that holds no file waits for other calls to let go of theirs, where no more can be opened.
    WAIT_NS = 2000000000

    # What a sequential pass asks for beyond its batch: as much again, within these bounds.
    LEAST_BEYOND_BYTES = 8 * 1024 * 1024
    MOST_BEYOND_BYTES = 64 * 1024 * 1024

    # Of a row that is not checked yet, no more than this is believed.
    BELIEVED_BYTES = 1 << 30

    # Rows looked up without letting go of the GIL, where the table is in memory.
    ROWS_WITH_GIL = 2048

#: What a call can stop at, by the numbers of `Outcome`.
WHATS = {
    NO_SAMPLE: "index", TABLE_CUT: "table", NO_FILE: "file", UNOPENED: "unopened", OUTSIDE_FILE: "outside",
    REFUSED: "refused",
}


cdef class Ranges:
    """Samples that are byte ranges of files.

    Files are opened when they are first read, and those that have not been read for longest are closed where there are
    many. A call holds what it reads, so nothing is unmapped under it, and any number of threads may call.

    Parameters
    ----------
    table : FileMap
        A row for each sample.
    length : int
        Number of samples to show.
    n_files : int
        Number of files.
    open_file : callable
        Given the number of a file, returns its `FileMap`. An exception of it is raised by the call that needed the file.
    trims : bool
        Whether samples are lines, and given without their ends.
    most_open : int
        Files that are kept open, at least 1; a call may hold some more.
    """

    cdef readonly FileMap table
    cdef readonly int64_t length
    cdef MapSlot* table_slot
    cdef uint64_t n_files
    cdef object open_file
    cdef bint trims
    cdef int64_t most_open
    cdef int64_t stretch_files  # of one stretch; a call holds two at a time
    cdef list maps              # FileMap or None, by the number of the file
    cdef object opened          # numbers of those that are open, the oldest first
    cdef uint8_t* used          # whether a file was read since it was last thought of closing it
    cdef Watch watch            # whether the files come from a disk; asked_until is a byte of the file `next_file`
    cdef uint64_t next_file

    def __cinit__(self, FileMap table not None, int64_t length, int64_t n_files, open_file, bint trims,
                  int64_t most_open):
        if length < 0 or n_files < 0 or most_open < 1:
            raise ValueError("no such number of samples or files")
        self.table = table
        self.table_slot = &table.slot
        self.length = length
        self.n_files = n_files
        self.open_file = open_file
        self.trims = trims
        self.most_open = most_open
        self.stretch_files = max(<int64_t>1, min(<int64_t>STRETCH_FILES, most_open // 2))
        self.maps = [None] * n_files
        self.opened = deque()
        self.used = <uint8_t*>calloc(max(n_files, <int64_t>1), 1)
        if self.used == NULL:
            raise MemoryError("no memory for a list of files")
        start_watch(&self.watch)

    def __dealloc__(self):
        free(self.used)

    def open_files(self):
        """Return how many files are kept open."""
        return len(self.opened)

    def one(self, int64_t index):
        """Return the bytes of one sample, or a fault.

        Parameters
        ----------
        index : int
            A negative one counts from the end.

        Returns
        -------
        bytes or tuple

        Raises
        ------
        OverflowError
            No 64 bits hold the index.
        """
        cdef int64_t i = index + self.length if index < 0 else index
        cdef int64_t since_ns
        cdef int64_t room
        cdef int64_t n
        cdef uint64_t[3] row
        cdef FileMap file
        cdef object item
        cdef const uint8_t* src
        cdef bint looks
        if not 0 <= i < self.length or self.table_slot.base == NULL or self.watch.credit > 0:
            return self.lone(index, False)
        since_ns = sizes_since(monotonic_ns(), 0)
        if file_size(self.table_slot, since_ns) < (i + 1) * ROW_BYTES:
            return self.lone(index, False)
        memcpy(row, self.table_slot.base + i * ROW_BYTES, ROW_BYTES)
        if row[0] >= self.n_files or row[2] >= SIZE_TRUST_BYTES:
            return self.lone(index, False)
        item = self.maps[row[0]]
        if item is None:
            return self.lone(index, False)
        file = <FileMap>item
        n = row[2]
        room = file_size(&file.slot, since_ns) - n
        if file.slot.base == NULL or room < 0 or row[1] > <uint64_t>room:
            return self.lone(index, False)
        if is_time_to_look(&self.watch, n):
            return self.lone(index, True)
        self.used[row[0]] = 1
        src = file.slot.base + row[1]
        if self.trims and n and src[n - 1] == c"\n":
            n -= 2 if n > 1 and src[n - 2] == c"\r" else 1
        return PyBytes_FromStringAndSize(<const char*>src, n)

    cdef object lone(self, int64_t index, bint looks):
        """Return one sample as `one` does, with all that a batch takes care of."""
        cdef object found = self.read(&index, False, 1, 1, looks)
        return (<list>found)[0] if type(found) is list else found

    def many(self, idxs, int threads):
        """Return the bytes of samples, read in the order of the files, in the order asked for; or a fault.

        Parameters
        ----------
        idxs : buffer of int64 or uint64, shape (n,)
            Negative ones count from the end.
        threads : int
            The most threads to use, at least 1.

        Returns
        -------
        list of bytes, or tuple
        """
        cdef Views views
        cdef const int64_t* values
        cdef bint is_unsigned
        cdef int64_t n
        views.n = 0
        try:
            bind_indices(&views, idxs, &values, &is_unsigned, &n)
            return self.read(values, is_unsigned, n, threads, False)
        finally:
            release(&views)

    cdef object read(self, const int64_t* idxs, bint idxs_unsigned, int64_t n, int wanted_threads, bint looks):
        cdef Call call
        cdef list found = [None] * n
        cdef list held = []
        cdef list held_next = []
        cdef dict failures = {}
        cdef int64_t at = 0
        cdef int64_t end
        cdef int64_t next_end
        cdef int64_t n_bytes = 0
        cdef int64_t next_bytes = 0
        cdef int64_t credit
        cdef Usage before
        cdef Usage after
        cdef int64_t began_ns = 0
        begin_call(&call, idxs, idxs_unsigned, n)
        try:
            self.find(&call)
            call.looks = looks or is_time_to_look(&self.watch, call.work_bytes)
            credit = self.watch.credit
            end = self.prepare(&call, 0, &n_bytes, held, held_next, failures)
            while at < n:
                next_end = self.prepare(&call, end, &next_bytes, held_next, held, failures)
                if end > at and not call.failed:
                    if call.looks:
                        before = usage()
                        began_ns = monotonic_ns()
                        self.look_ahead(&call, at, end, next_end, credit, &before)
                    self.make_room(&call, at, end, found)
                    self.serve(&call, at, end, n_bytes, wanted_threads)
                    if call.looks:
                        after = usage()
                        call.cpu_us += after.cpu_us - before.cpu_us
                        call.wall_us += (monotonic_ns() - began_ns) // 1000
                        credit = credit_after(credit, end - at + 1, pages_between(&before, &after))
                    self.mend(&call, at, end, found)
                held.clear()
                held, held_next = held_next, held
                at, end, n_bytes = end, next_end, next_bytes
            if call.looks:
                self.watch.credit = credit
                self.watch.waits = is_waiting(call.cpu_us, call.wall_us)
                if n:
                    self.watch.next_index = idxs[n - 1] + 1
            return self.describe(&call, failures) if call.failed else found
        finally:
            end_call(&call)

    cdef void find_rows(self, Call* call) noexcept nogil:
        """Look every sample up in the table, and put them in the order of the files."""
        cdef MapSlot* table = self.table_slot
        cdef const uint8_t* base = table.base
        cdef int64_t length = self.length
        cdef int64_t n_rows = file_size(table, call.sizes_since_ns) // ROW_BYTES
        cdef int64_t index
        cdef int64_t i
        cdef int64_t got
        cdef uint64_t[3] row
        cdef Span* span
        if n_rows < length:
            n_rows = file_size(table, monotonic_ns()) // ROW_BYTES
        for i in range(call.n):
            if base != NULL and i + ROWS_AHEAD < call.n:
                index = call.idxs[i + ROWS_AHEAD]
                if 0 <= index < length:
                    LX_FETCH(base + index * ROW_BYTES)
                    LX_FETCH(base + index * ROW_BYTES + ROW_BYTES - 1)
            span = &call.spans[i]
            call.keys[i].i = i
            call.keys[i].place = 0
            index = call.idxs[i]
            if index < 0 and not call.idxs_unsigned:
                index += length
            if index < 0 or index >= length:
                note(span, NO_SAMPLE, 0)
            elif index >= n_rows:
                note(span, TABLE_CUT, n_rows * ROW_BYTES)
            else:
                if base != NULL:
                    memcpy(row, base + index * ROW_BYTES, ROW_BYTES)
                else:
                    got = read_at(table.fd, <uint8_t*>row, ROW_BYTES, index * ROW_BYTES)
                    if got != ROW_BYTES:
                        note(span, REFUSED if got < 0 else TABLE_CUT, got)
                        continue
                span.file = row[0]
                span.offset = row[1]
                span.n_bytes = <int64_t>min(row[2], <uint64_t>(1 << 62))
                call.work_bytes += min(span.n_bytes, <int64_t>BELIEVED_BYTES)
                call.keys[i].place = place_of(row[0], row[1])
                if row[0] >= self.n_files:
                    note(span, NO_FILE, self.n_files)

    cdef int find(self, Call* call) except -1:
        """Look every sample up, with or without the GIL."""
        cdef Key* sorted_keys
        cdef int64_t i
        cdef bint is_cold = self.watch.credit > 0
        call.begin_ns = monotonic_ns()
        call.sizes_since_ns = sizes_since(call.begin_ns, call.n * ROW_BYTES)
        if is_cold or call.n > ROWS_WITH_GIL or self.table_slot.base == NULL:
            with nogil:
                if is_cold:
                    ask_for_rows(self.table_slot, call.idxs, call.idxs_unsigned, call.n, self.length)
                self.find_rows(call)
                sorted_keys = sort_keys(call.keys, call.n, call.room)
        else:
            # Where other threads want the GIL too, having it back takes longer than this.
            self.find_rows(call)
            sorted_keys = sort_keys(call.keys, call.n, call.room)
        if sorted_keys != call.keys:
            call.keys, call.room = call.room, call.keys
        for i in range(call.n):
            if call.spans[i].outcome != GOOD:
                call.failed = True
                break
        call.sizes_since_ns = sizes_since(call.begin_ns, call.work_bytes)
        return 0

    cdef int64_t prepare(self, Call* call, int64_t at, int64_t* n_bytes, list held, list held_before,
                         dict failures) except -1:
        """Open files and check ranges from `at` on, as far as a stretch goes; returns its end, and sets its bytes.

        A stretch also ends, and may be empty, where no more files can be opened before those that the call holds, in
        `held` and `held_before`, are let go of.
        """
        cdef uint64_t number = 0
        cdef int64_t n_files = 0
        cdef int64_t size = 0
        cdef MapSlot* slot = NULL
        cdef bint may_wait
        cdef FileMap file
        cdef Span* span
        n_bytes[0] = 0
        while at < call.n and n_bytes[0] < STRETCH_BYTES:
            span = &call.spans[call.keys[at].i]
            if span.outcome != GOOD:
                at += 1
                continue
            if n_files == 0 or span.file != number:
                if n_files == self.stretch_files:
                    break
                n_files += 1
                number = span.file
                slot = NULL
                if number not in failures:
                    may_wait = not held and not held_before
                    try:
                        file = self.file_map(number, may_wait)
                    except Exception as error:
                        if not may_wait and is_short_of_files(error):
                            break
                        failures[number] = error
                    else:
                        held.append(file)
                        slot = &file.slot
                        size = file_size(slot, call.sizes_since_ns)
            at += 1
            if slot == NULL:
                note(span, UNOPENED, 0)
            elif size < span.n_bytes or span.offset > <uint64_t>(size - span.n_bytes):
                size = file_size(slot, monotonic_ns())
                if size < 0:
                    note(span, REFUSED, 0)
                elif size < span.n_bytes or span.offset > <uint64_t>(size - span.n_bytes):
                    note(span, OUTSIDE_FILE, size)
            if span.outcome != GOOD:
                call.failed = True
                continue
            span.slot = slot
            n_bytes[0] += span.n_bytes
        return at

    cdef object open_some(self, uint64_t number, bint may_wait):
        """Open a file; where no more can be opened, let go of all that are only kept, and wait for other calls."""
        cdef int64_t until_ns = monotonic_ns() + WAIT_NS
        while True:
            try:
                return self.open_file(number)
            except Exception as error:
                if not is_short_of_files(error) or not (self.opened or may_wait) or monotonic_ns() > until_ns:
                    raise
            if self.opened:
                for kept in self.opened:
                    self.maps[kept] = None
                self.opened.clear()
            else:
                time.sleep(0.001)

    cdef FileMap file_map(self, uint64_t number, bint may_wait):
        """Return a file, opened."""
        cdef object item = self.maps[number]
        cdef uint64_t oldest
        if item is None:
            item = self.open_some(number, may_wait)
            if self.maps[number] is not None:
                return <FileMap?>self.maps[number]  # another thread was faster
            while len(self.opened) >= self.most_open:
                oldest = self.opened.popleft()
                if self.used[oldest]:
                    self.used[oldest] = 0
                    self.opened.append(oldest)
                else:
                    self.maps[oldest] = None
            self.maps[number] = item
            self.opened.append(number)
        self.used[number] = 1
        return <FileMap?>item

    cdef int look_ahead(self, Call* call, int64_t at, int64_t end, int64_t next_end, int64_t credit,
                        const Usage* before) except -1:
        """Have the system read a stretch and the next one, where that pays."""
        cdef Usage after
        with nogil:
            if not call.asks:
                call.asks = credit > 0
            if not call.asks:
                ask_for_last_page(call, at)
                ask_for_last_page(call, end - 1)
                after = usage()
                call.asks = pages_between(before, &after) > 0
            if call.asks:
                ask_for_spans(call, max(at, call.asked), next_end)
                if call.asked < call.n and next_end == call.n:
                    self.ask_beyond(call)
                call.asked = next_end
        return 0

    cdef void ask_beyond(self, const Call* call) noexcept nogil:
        """Ask for what lies behind a batch that is a stretch of a pass."""
        cdef const Span* last = &call.spans[call.n - 1]
        cdef int64_t wanted = max(<int64_t>LEAST_BEYOND_BYTES, min(call.work_bytes, <int64_t>MOST_BEYOND_BYTES))
        cdef int64_t begin
        cdef int64_t end
        cdef int64_t i
        if call.idxs[0] < 0 or (call.n == 1 and call.idxs[0] != self.watch.next_index) or last.slot == NULL:
            return
        for i in range(1, call.n):
            if call.idxs[i] != call.idxs[0] + i:
                return
        begin = last.offset + last.n_bytes
        end = min(begin + wanted, last.slot.size)
        if last.file == self.next_file and begin < self.watch.asked_until <= end:
            begin = self.watch.asked_until
        # Not line by line, where calls are small.
        if end - begin >= wanted // 2 or end == last.slot.size:
            ask_for_bytes(last.slot, begin, end)
            self.next_file = last.file
            self.watch.asked_until = end

    cdef int make_room(self, const Call* call, int64_t at, int64_t end, list found) except -1:
        """Make a bytes object for each range of a stretch."""
        cdef Span* span
        cdef object room
        cdef int64_t k
        for k in range(at, end):
            span = &call.spans[call.keys[k].i]
            room = PyBytes_FromStringAndSize(NULL, room_of(span.n_bytes, self.trims))
            span.dst = <uint8_t*>PyBytes_AsString(room)
            found[call.keys[k].i] = room
        return 0

    cdef int serve(self, Call* call, int64_t at, int64_t end, int64_t n_bytes, int wanted_threads) except -1:
        """Copy the ranges of a stretch, with a team as large as the work deserves."""
        cdef int n_threads = 1
        cdef int64_t began_ns
        cdef int64_t took_ns
        cdef int64_t share
        cdef int64_t i
        cdef Own own
        # Of small ranges most of the time goes into making the objects; and others would wait for the same disk.
        if n_bytes >= (end - at) * PAGE and not (call.asks and self.watch.waits):
            n_threads = governed_team_size(wanted_threads, n_bytes, end - at)
        share = share_of(end - at, n_bytes, n_threads)
        own.n = 0
        own.until_ns = 0
        with nogil:
            began_ns = monotonic_ns()
            if n_threads == 1:
                serve_share(call, at, end, self.trims, &own)
            else:
                for i in prange((end - at + share - 1) // share, schedule="dynamic", chunksize=1,
                                num_threads=n_threads):
                    serve_share(call, at + i * share, min(at + (i + 1) * share, end), self.trims,
                                &own if threadid() == 0 else NULL)
            took_ns = monotonic_ns() - began_ns
        if n_threads > 1 and not call.asks:
            judge_team(took_ns, own.until_ns - began_ns, own.n, end - at)
        return 0

    cdef int mend(self, Call* call, int64_t at, int64_t end, list found) except -1:
        """See to the lines that end otherwise than with one "\n", and to what could not be read."""
        cdef Span* span
        cdef object mended
        cdef uint8_t* dst
        cdef int64_t room
        cdef int64_t k
        for k in range(at, end):
            span = &call.spans[call.keys[k].i]
            if span.outcome == GOOD:
                continue
            room = room_of(span.n_bytes, self.trims)
            if span.outcome == WITH_RETURN:
                found[call.keys[k].i] = PyBytes_FromStringAndSize(<const char*>span.dst, room - 1)
            elif span.outcome == WITHOUT_END:
                mended = PyBytes_FromStringAndSize(NULL, room + 1)
                dst = <uint8_t*>PyBytes_AsString(mended)
                memcpy(dst, span.dst, room)
                dst[room] = <uint8_t>span.detail
                found[call.keys[k].i] = mended
            else:
                call.failed = True
        return 0

    cdef object describe(self, const Call* call, dict failures):
        """Return the fault at the lowest position, or raise what opening a file there has raised."""
        cdef const Span* span
        cdef object index
        cdef bint has_row
        cdef int64_t i = 0
        while call.spans[i].outcome < NO_SAMPLE:
            i += 1
        span = &call.spans[i]
        if span.outcome == UNOPENED:
            raise failures[span.file]
        if call.idxs_unsigned:
            index = <uint64_t>call.idxs[i]
        else:
            index = call.idxs[i]
        has_row = span.outcome != NO_SAMPLE and span.outcome != TABLE_CUT
        return (
            WHATS[span.outcome], i, index, span.file if has_row else None, span.offset if has_row else None,
            span.n_bytes if has_row else None, span.detail,
        )

    def locate(self, int64_t index):
        """Return the row of one sample, ``(file, byte_offset, n_bytes)``, unchecked; None where there is none.

        Parameters
        ----------
        index : int
            From 0.
        """
        cdef uint64_t[3] row
        if not 0 <= index < self.length or not self.read_row(index, row):
            return None
        return row[0], row[1], row[2]

    cdef bint read_row(self, int64_t index, uint64_t* row) noexcept nogil:
        if file_size(self.table_slot, sizes_since(monotonic_ns(), 0)) < (index + 1) * ROW_BYTES:
            return False
        if self.table_slot.base != NULL:
            memcpy(row, self.table_slot.base + index * ROW_BYTES, ROW_BYTES)
            return True
        return read_at(self.table_slot.fd, <uint8_t*>row, ROW_BYTES, index * ROW_BYTES) == ROW_BYTES

    def stretch(self, int64_t first, int64_t most, int64_t most_bytes):
        """Return the index behind the last of some samples from `first` on: one at least, where there is one.

        Parameters
        ----------
        first : int
        most, most_bytes : int
            Of samples, and of their bytes all together.
        """
        cdef int64_t end = min(self.length, first + most)
        cdef int64_t index = first
        cdef uint64_t[3] row
        with nogil:
            while index < end and self.read_row(index, row):
                if row[2] > <uint64_t>most_bytes:
                    break
                most_bytes -= row[2]
                index += 1
        return min(max(index, first + 1), self.length)

    def prefetch(self, idxs):
        """Have the system begin to read samples, where they are not in memory.

        Parameters
        ----------
        idxs : buffer of int64 or uint64, shape (n,)

        Returns
        -------
        None or tuple
            None, or the fault at the lowest position.
        """
        cdef Views views
        cdef Call call
        cdef const int64_t* values
        cdef bint is_unsigned
        cdef int64_t n
        cdef int64_t n_bytes = 0
        cdef int64_t at = 0
        cdef int64_t end
        cdef list held = []
        cdef dict failures = {}
        views.n = 0
        try:
            bind_indices(&views, idxs, &values, &is_unsigned, &n)
            begin_call(&call, values, is_unsigned, n)
            try:
                with nogil:
                    ask_for_rows(self.table_slot, values, is_unsigned, n, self.length)
                self.find(&call)
                if call.failed:
                    return self.describe(&call, failures)
                while at < n:
                    end = self.prepare(&call, at, &n_bytes, held, [], failures)
                    with nogil:
                        ask_for_spans(&call, at, end)
                    held.clear()
                    at = end
                return self.describe(&call, failures) if call.failed else None
            finally:
                end_call(&call)
        finally:
            release(&views)


cdef bint is_short_of_files(object error) except -1:
    """Return whether a file could not be opened because too many are open."""
    return getattr(error, "errno", None) in (EMFILE, ENFILE)


def split(data, splits):
    """Return the parts of a buffer as bytes.

    Parameters
    ----------
    data : buffer
    splits : buffer of int64, shape (n + 1,)
        Part i is ``data[splits[i]:splits[i + 1]]``.

    Returns
    -------
    list of bytes
    """
    cdef Views views
    cdef Py_buffer* data_view
    cdef Py_buffer* splits_view
    cdef const int64_t* ends
    cdef int64_t i
    cdef list parts
    views.n = 0
    try:
        data_view = take(&views, data, PyBUF_C_CONTIGUOUS)
        splits_view = take(&views, splits, PyBUF_C_CONTIGUOUS)
        ends = <const int64_t*>splits_view.buf
        parts = [None] * (splits_view.len // 8 - 1)
        for i in range(len(parts)):
            if not 0 <= ends[i] <= ends[i + 1] <= data_view.len:
                raise ValueError("a part lies outside the data")
            parts[i] = PyBytes_FromStringAndSize(<const char*>data_view.buf + ends[i], ends[i + 1] - ends[i])
        return parts
    finally:
        release(&views)


cdef class Tally:
    """A number that any number of threads may count up.

    Attributes
    ----------
    value : int
    """

    cdef public int64_t value

    def add(self):
        """Count one more."""
        self.value += 1
