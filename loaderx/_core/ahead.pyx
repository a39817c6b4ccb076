"""Asking the system to read records before they are wanted: all of a batch at once, and what a pass comes to next.

Maps are read without the system's own read-ahead, which on random records reads a hundred times too much. So a cold
batch would wait for every page by itself; asked for together, its pages are read at the device's full depth. It takes
two steps, as reading does: the pages of the table that hold the entries, then those of the records.

A request is a hint. Nothing here reports a fault, and an entry that is wrong is left to the read that comes to it.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcpy

from loaderx._core.asks cimport ask_for_bytes, compare_numbers
from loaderx._core.layout cimport HEADER_BYTES, RECORD_BYTES, SUM_BYTES, SUMS_HEADER_BYTES, RecordLoc
from loaderx._core.maps cimport PAGE, MapSlot, file_size, monotonic_ns, read_at
from loaderx._core.snapshot cimport Gate, Snapshot
from loaderx._core.watch cimport LOOK_BYTES, Usage, Watch, credit_after, is_time_to_look, is_waiting, pages_between, usage

cdef enum:
    # Entries are asked for with their neighbours: that takes a device no longer, and soon the whole table is there.
    TABLE_REQUEST_BYTES = 64 * 1024

    # Large calls are served slice by slice, each asked for while the one before it is served.
    SLICE_BYTES = 16 * 1024 * 1024

    # What a sequential pass asks for beyond its batch: as much again, within these bounds.
    LEAST_BEYOND_BYTES = 8 * 1024 * 1024
    MOST_BEYOND_BYTES = 64 * 1024 * 1024
    MOST_BEYOND_RECORDS = 4096

    # Records looked at, of a call that would not ask.
    PROBES = 2


cdef struct Span:
    int64_t begin               # in the space of all chunks: chunk_id * 2**32 + offset
    int64_t end


cdef inline int64_t resolve(Snapshot snapshot, int64_t index, bint is_unsigned) noexcept nogil:
    """Return which record an index means; -1: none."""
    if index < 0 and not is_unsigned:
        index += snapshot.length
    return index if 0 <= index < snapshot.length else -1


cdef void ask_for_windows(Snapshot snapshot, int64_t* windows, int64_t n) noexcept nogil:
    """Ask for parts of the table, given by their numbers in any order, and for the sums that belong to them."""
    cdef int64_t begin
    cdef int64_t i
    qsort(windows, n, sizeof(int64_t), compare_numbers)
    for i in range(n):
        if i and windows[i] == windows[i - 1]:
            continue
        begin = windows[i] * TABLE_REQUEST_BYTES
        ask_for_bytes(snapshot.table_slot, begin, begin + TABLE_REQUEST_BYTES)
        if snapshot.sums_slot != NULL:
            # A sum has half the bytes of an entry.
            begin = SUMS_HEADER_BYTES + begin // RECORD_BYTES * SUM_BYTES
            ask_for_bytes(snapshot.sums_slot, begin, begin + TABLE_REQUEST_BYTES // 2)


cdef void ask_for_entries(Snapshot snapshot, const int64_t* idxs, bint idxs_unsigned, int64_t n) noexcept nogil:
    """Ask for the table entries of records, and for their sums; indices of no record are passed over."""
    cdef int64_t* windows = <int64_t*>malloc(max(n, <int64_t>1) * sizeof(int64_t))
    cdef int64_t n_windows = 0
    cdef int64_t index
    cdef int64_t i
    if windows == NULL:
        return
    for i in range(n):
        index = resolve(snapshot, idxs[i], idxs_unsigned)
        if index >= 0:
            windows[n_windows] = (HEADER_BYTES + index * RECORD_BYTES) // TABLE_REQUEST_BYTES
            # What neighbours ask for too would only have to be sorted out again.
            if n_windows == 0 or windows[n_windows] != windows[n_windows - 1]:
                n_windows += 1
    ask_for_windows(snapshot, windows, n_windows)
    free(windows)


cdef bint find_span(Snapshot snapshot, int64_t index, Span* span) noexcept nogil:
    """Set `span` to the pages of a record; False where its entry gives none."""
    cdef int64_t at = HEADER_BYTES + index * RECORD_BYTES
    cdef RecordLoc entry
    if snapshot.table_slot.size < at + RECORD_BYTES:  # which the caller has just looked at
        return False
    if snapshot.table_slot.base != NULL:
        memcpy(&entry, snapshot.table_slot.base + at, RECORD_BYTES)
    elif read_at(snapshot.table_slot.fd, <uint8_t*>&entry, RECORD_BYTES, at) != RECORD_BYTES:
        return False
    if entry.chunk_id >= snapshot.n_chunks or entry.phys_length == 0:
        return False
    at = <int64_t>entry.chunk_id << 32 | entry.offset
    span.begin = at - at % PAGE
    span.end = at + entry.phys_length
    return True


cdef void ask_for_spans(Snapshot snapshot, Span* spans, int64_t n) noexcept nogil:
    """Ask for pages of the chunks, those that touch together."""
    cdef int64_t begin
    cdef int64_t end
    cdef int64_t chunk
    cdef int64_t i = 0
    qsort(spans, n, sizeof(Span), compare_numbers)
    while i < n:
        begin = spans[i].begin
        end = spans[i].end
        chunk = begin >> 32
        i += 1
        while i < n and spans[i].begin <= end and spans[i].begin >> 32 == chunk:
            end = max(end, spans[i].end)
            i += 1
        ask_for_bytes(snapshot.chunk_slots[chunk], begin - (chunk << 32), end - (chunk << 32))


cdef void ask_ahead(Snapshot snapshot, const int64_t* idxs, bint idxs_unsigned, int64_t n) noexcept nogil:
    """Ask for records, entries and sums included. Waits for the entries where they have to be read."""
    cdef Span* spans
    cdef int64_t n_spans = 0
    cdef int64_t index
    cdef int64_t i
    ask_for_entries(snapshot, idxs, idxs_unsigned, n)
    spans = <Span*>malloc(max(n, <int64_t>1) * sizeof(Span))
    if spans == NULL:
        return
    file_size(snapshot.table_slot, monotonic_ns())
    for i in range(n):
        index = resolve(snapshot, idxs[i], idxs_unsigned)
        if index >= 0 and find_span(snapshot, index, &spans[n_spans]):
            n_spans += 1
    ask_for_spans(snapshot, spans, n_spans)
    free(spans)


cdef void ask_beyond(Snapshot snapshot, int64_t first, int64_t end) noexcept nogil:
    """Ask for records one behind the other, and for the entries of as many more."""
    cdef Span* spans = <Span*>malloc(max(end - first, <int64_t>1) * sizeof(Span))
    cdef int64_t until = min(2 * end - first, snapshot.length)
    cdef int64_t n_spans = 0
    cdef int64_t index
    if spans == NULL:
        return
    ask_for_bytes(snapshot.table_slot, HEADER_BYTES + first * RECORD_BYTES, HEADER_BYTES + until * RECORD_BYTES)
    if snapshot.sums_slot != NULL:
        ask_for_bytes(snapshot.sums_slot, SUMS_HEADER_BYTES + first * SUM_BYTES,
                      SUMS_HEADER_BYTES + until * SUM_BYTES)
    file_size(snapshot.table_slot, monotonic_ns())
    for index in range(first, end):
        if find_span(snapshot, index, &spans[n_spans]):
            n_spans += 1
    ask_for_spans(snapshot, spans, n_spans)
    free(spans)


cdef bint probe(Snapshot snapshot, const int64_t* idxs, bint idxs_unsigned, int64_t n,
                const Usage* before) noexcept nogil:
    """Ask for the last page of a few records; return whether one of them had to be read since `before`."""
    cdef int64_t n_probes = min(n, <int64_t>PROBES)
    cdef int64_t index
    cdef int64_t i
    cdef int64_t last_byte
    cdef Usage after
    cdef Span span
    file_size(snapshot.table_slot, monotonic_ns())
    for i in range(n_probes):
        index = resolve(snapshot, idxs[i * (n - 1) // max(n_probes - 1, <int64_t>1)], idxs_unsigned)
        if index >= 0 and find_span(snapshot, index, &span):
            last_byte = span.end - 1 - (span.begin >> 32 << 32)
            ask_for_bytes(snapshot.chunk_slots[span.begin >> 32], last_byte, last_byte + 1)
    after = usage()
    return pages_between(before, &after) > 0


cdef int64_t records_beyond(const Watch* watch, const int64_t* idxs, int64_t n, int64_t work_bytes) noexcept nogil:
    """Return how many records behind the last to ask for: none where the indices are no stretch of a pass."""
    cdef int64_t wanted = max(<int64_t>LEAST_BEYOND_BYTES, min(work_bytes, <int64_t>MOST_BEYOND_BYTES))
    cdef int64_t i
    if n == 0 or idxs[0] < 0 or (n == 1 and idxs[0] != watch.next_index):
        return 0
    for i in range(1, n):
        if idxs[i] != idxs[0] + i:
            return 0
    # Looking up thousands of tiny ones would take longer than reading them.
    return max(<int64_t>1, min(wanted * n // max(work_bytes, n), max(n, <int64_t>MOST_BEYOND_RECORDS)))


cdef void set_out(Ahead* ahead, Snapshot snapshot, const int64_t* idxs, bint idxs_unsigned, int64_t n,
                  int64_t work_bytes) noexcept:
    """Prepare a call that reads `n` records, `work_bytes` in all. Needs the GIL, as `settle` does."""
    cdef Gate gate = snapshot.gate
    cdef Watch* watch = &gate.watch
    ahead.idxs = idxs
    ahead.idxs_unsigned = idxs_unsigned
    ahead.n = n
    ahead.slice = n if work_bytes <= 2 * SLICE_BYTES else max(<int64_t>1, n * SLICE_BYTES // work_bytes)
    ahead.looks = is_time_to_look(watch, work_bytes)
    if not ahead.looks:
        return
    ahead.serves = True
    ahead.asked = 0
    ahead.cpu_us = 0
    ahead.wall_us = 0
    ahead.credit = watch.credit
    ahead.asks = ahead.credit > 0
    ahead.beyond = records_beyond(watch, idxs, n, work_bytes)
    ahead.next_index = idxs[n - 1] + 1 if n else -1
    ahead.asked_until = watch.asked_until


cdef void set_out_to_ask(Ahead* ahead, Snapshot snapshot, const int64_t* idxs, bint idxs_unsigned, int64_t n) noexcept:
    """Prepare a call that reads nothing itself: it looks, whatever it costs, and asks for these records alone."""
    cdef Gate gate = snapshot.gate
    gate.watch.unlooked_bytes = LOOK_BYTES
    set_out(ahead, snapshot, idxs, idxs_unsigned, n, 0)
    ahead.beyond = 0
    ahead.serves = False
    ahead.next_index = gate.watch.next_index


cdef bint is_alone(const Ahead* ahead, Snapshot snapshot) noexcept:
    """Return whether the call should be served by one thread, because the disk is what takes the time.

    More threads would wait for the same disk, and OpenMP's do it in a loop: they take the processor from whoever else
    wants it, the system's own threads that keep the disk busy among them.
    """
    cdef Gate gate = snapshot.gate
    return ahead.looks and ahead.credit > 0 and gate.watch.waits


cdef int64_t go_on(Ahead* ahead, Snapshot snapshot, int64_t at) noexcept nogil:
    """Return where the slice that begins at `at` ends, after asking for it and the next one where that pays."""
    cdef int64_t end = min(ahead.n, at + ahead.slice)
    cdef int64_t ask_end
    cdef int64_t first
    cdef int64_t beyond_end
    if not ahead.looks:
        return end
    ahead.begin_ns = monotonic_ns()
    ahead.before = usage()
    if not ahead.asks and ahead.asked <= at:
        ahead.asks = probe(snapshot, ahead.idxs + at, ahead.idxs_unsigned, end - at, &ahead.before)
    if not ahead.asks:
        return end
    ask_end = min(ahead.n, end + ahead.slice) if end < ahead.n else end
    if ahead.asked < ask_end:
        first = max(ahead.asked, at)
        ask_ahead(snapshot, ahead.idxs + first, ahead.idxs_unsigned, ask_end - first)
        ahead.asked = ask_end
    if ahead.beyond and ask_end == ahead.n:
        first = ahead.idxs[0] + ahead.n
        beyond_end = min(first + ahead.beyond, snapshot.length)
        if first < ahead.asked_until <= beyond_end:
            first = ahead.asked_until
        # Not record by record, where calls are small.
        if beyond_end - first >= ahead.beyond // 2:
            ask_beyond(snapshot, first, beyond_end)
            ahead.asked_until = beyond_end
    return end


cdef void look_back(Ahead* ahead, int64_t at, int64_t end) noexcept nogil:
    """Book what it took to serve a slice."""
    cdef Usage after
    if not ahead.looks:
        return
    after = usage()
    ahead.cpu_us += after.cpu_us - ahead.before.cpu_us
    ahead.wall_us += (monotonic_ns() - ahead.begin_ns) // 1000
    ahead.credit = credit_after(ahead.credit, end - at + 1, pages_between(&ahead.before, &after))
    ahead.asks = ahead.credit > 0


cdef void settle(const Ahead* ahead, Snapshot snapshot) noexcept:
    """Keep for the next call what this one has found."""
    cdef Gate gate = snapshot.gate
    cdef Watch* watch = &gate.watch
    if ahead.looks:
        watch.credit = ahead.credit
        if ahead.serves:
            watch.waits = is_waiting(ahead.cpu_us, ahead.wall_us)
        watch.asked_until = ahead.asked_until
        watch.next_index = ahead.next_index
