"""Whether a store's bytes come from a disk or from memory: whether it pays to ask the system for them ahead.

Asking for a record costs something where it is in memory already, and saves a wait for each of its pages where it is
not. Both are booked on one account, in units of the first: its sign is the switch. So the switch cannot flap where it
matters, and where both cost the same it does not matter. What counts is the pages that were read, by asking or by
waiting: asked for or not, a cold batch reads the same number. (Faults that wait vanish once asking helps.)
"""

from libc.stdint cimport int64_t
from libc.string cimport memset
from posix.resource cimport getrusage, rusage

cdef extern from *:
    """
    #include <sys/resource.h>
    #ifdef RUSAGE_THREAD
      #define LX_WHOSE RUSAGE_THREAD
    #else
      #define LX_WHOSE RUSAGE_SELF
    #endif
    """
    int LX_WHOSE


cdef enum:
    # A page that a read has to wait for (some 80 us), in asks for a record that is in memory (some 0.4 us).
    PAGE_WORTH = 200
    # The most the account holds, either way: 32 batches of 256.
    MOST_CREDIT = 8192

    # What a call costs by itself, in bytes copied meanwhile.
    CALL_BYTES = 8 * 1024

    BLOCKS_A_PAGE = 8

    # A thread that is busy for less of its time is waiting for the disk, and a second one would wait with it.
    MOST_BUSY_TENTHS = 7


cdef void start_watch(Watch* watch) noexcept:
    """Make a watch whose first call asks: what nobody has read yet is rather cold."""
    watch.credit = 1
    watch.waits = True
    watch.unlooked_bytes = 0
    watch.next_index = -1
    watch.asked_until = -1


cdef bint is_time_to_look(Watch* watch, int64_t work_bytes) noexcept:
    """Return whether a call of that much copying looks at what it reads; always where asking pays."""
    if watch.credit > 0:
        return True
    watch.unlooked_bytes += work_bytes + CALL_BYTES
    if watch.unlooked_bytes < LOOK_BYTES:
        return False
    watch.unlooked_bytes = 0
    return True


cdef Usage usage() noexcept nogil:
    """Return what the calling thread has read from devices so far."""
    cdef rusage now
    cdef Usage found
    memset(&now, 0, sizeof(now))
    getrusage(LX_WHOSE, &now)
    found.blocks = now.ru_inblock
    found.faults = now.ru_majflt
    found.cpu_us = (<int64_t>now.ru_utime.tv_sec + now.ru_stime.tv_sec) * 1000000
    found.cpu_us += now.ru_utime.tv_usec + now.ru_stime.tv_usec
    return found


cdef int64_t pages_between(const Usage* before, const Usage* after) noexcept nogil:
    """Return how many pages the calling thread has read meanwhile."""
    # Some file systems count no blocks; there the faults are all there is to see.
    return max((after.blocks - before.blocks) // BLOCKS_A_PAGE, after.faults - before.faults)


cdef bint is_waiting(int64_t cpu_us, int64_t wall_us) noexcept nogil:
    """Return whether a thread that ran for `cpu_us` of `wall_us` mostly waited."""
    return cpu_us * 10 < wall_us * MOST_BUSY_TENTHS


cdef int64_t credit_after(int64_t credit, int64_t n_records, int64_t n_pages) noexcept nogil:
    """Return the account after a call that served `n_records` and read `n_pages`."""
    credit += n_pages * PAGE_WORTH - n_records
    return max(<int64_t>-MOST_CREDIT, min(credit, <int64_t>MOST_CREDIT))


def blocks_read():
    """Return how many blocks of 512 bytes the calling thread has read from devices so far: the process, off Linux."""
    return usage().blocks


def follow(int64_t credit, n_records, n_pages):
    """Return the account after each of several calls, as gathers keep it (asking pays while it is above 0).

    Parameters
    ----------
    credit : int
        The account before.
    n_records, n_pages : sequence of int
        Of each call: records served, and pages that had to be read.

    Returns
    -------
    list of int
    """
    cdef list after = []
    for records, pages in zip(n_records, n_pages, strict=True):
        credit = credit_after(credit, records, pages)
        after.append(credit)
    return after


def looks(work_bytes):
    """Return which calls look at what they read while everything is in memory, by the bytes each of them copies.

    Parameters
    ----------
    work_bytes : sequence of int

    Returns
    -------
    list of bool
    """
    cdef Watch watch
    start_watch(&watch)
    watch.credit = 0
    return [is_time_to_look(&watch, n_bytes) for n_bytes in work_bytes]
