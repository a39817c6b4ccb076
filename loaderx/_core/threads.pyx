"""How many threads a call may use."""

from libc.stdint cimport int64_t

import os

cdef extern from *:
    """
    #include <pthread.h>

    #if defined(_MSC_VER)
      #define LX_THREAD_LOCAL __declspec(thread)
    #else
      #define LX_THREAD_LOCAL __thread
    #endif
    static LX_THREAD_LOCAL int lx_most_threads = 0;

    static int lx_forked = 0;
    static void lx_after_fork(void) { lx_forked = 1; }
    static int lx_watch_forks(void) { return pthread_atfork(0, 0, lx_after_fork); }
    """
    int lx_most_threads
    int lx_forked
    int lx_watch_forks()

cdef enum:
    # Below this much copying a team costs more than it saves.
    TEAM_BYTES = 256 * 1024
    # Each thread of a team gets at least this much.
    THREAD_BYTES = 128 * 1024
    # Bytes that cost more than this weigh as many times more: copying costs a sixteenth to an eighth of a nanosecond a
    # byte, decompressing a quarter to three. So it takes about 30 us of work to deserve a team.
    BYTES_A_NS = 8
    MOST_WEIGHT = 64
    # What one call adds at most to what a byte is taken to cost: one over this.
    COST_GROWTH = 8

    # What teams may lose, in batches, before one thread serves alone, and for how many batches it then does: the pause
    # doubles while the neighbour stays, so that trying costs next to nothing.
    MAX_LOSS = 4
    MIN_PAUSE = 128
    MAX_PAUSE = 4096
    WINS_TO_TRUST = 256

if lx_watch_forks() != 0:
    raise MemoryError("pthread_atfork failed")


cdef int team_size(int wanted, int64_t work_bytes, int64_t n_items) noexcept nogil:
    """Return how many threads to use for `work_bytes` of copying, or as much work of another kind, in `n_items`."""
    cdef int64_t team
    # GNU OpenMP's threads do not survive a fork, and a child of a parent that had them waits for them for ever.
    if wanted <= 1 or lx_forked or work_bytes < TEAM_BYTES:
        return 1
    if lx_most_threads > 0:
        wanted = min(wanted, lx_most_threads)
    team = min(<int64_t>wanted, work_bytes // THREAD_BYTES, n_items)
    return <int>team if team > 1 else 1


cdef int64_t weigh(int64_t work_bytes, double byte_ns) noexcept nogil:
    """Return how many bytes of copying are as much work as these, each of which takes a thread `byte_ns`."""
    return <int64_t>(work_bytes * max(1.0, min(byte_ns * BYTES_A_NS, <double>MOST_WEIGHT)))


cdef double learn_cost(double byte_ns, int64_t took_ns, double n_bytes) noexcept nogil:
    """Return what a byte is taken to cost after a thread took `took_ns` for `n_bytes`.

    A cheaper call is believed at once. A dearer one may have been interrupted, and moves the number by an eighth: some
    ten calls in a row do.
    """
    cdef double cost = took_ns / max(n_bytes, 1.0)
    return min(cost, byte_ns + max(byte_ns, 1.0 / BYTES_A_NS) / COST_GROWTH)


cdef struct Governor:
    # Whether teams pay. OpenMP's team waits for every thread at its end, also for one that a busy neighbour keeps from
    # running: milliseconds, for a batch that takes one thread a tenth of that. No schedule cures it, and the wait policy
    # belongs to the whole process. So what teams lose is counted, in units of what the same batch takes one thread, and
    # when it is too much, batches are served by one thread for a while. Only touched with the GIL held.
    double loss
    int64_t n_won           # team calls since the last that lost or that shortened the pause
    int64_t solo_calls      # batches still to be served by one thread
    int64_t pause           # how many there will be the next time

cdef Governor governor
governor.loss = 0
governor.n_won = 0
governor.solo_calls = 0
governor.pause = MIN_PAUSE


cdef void judge_team(int64_t team_ns, int64_t own_ns, int64_t own_n, int64_t n) noexcept:
    """Learn from a team's call: it took `team_ns`; the calling thread served `own_n` of `n` records in `own_ns`."""
    cdef double cost
    if own_n == 0 or own_ns <= 0:
        return
    cost = team_ns * <double>own_n / (<double>own_ns * n) - 1
    governor.loss = max(governor.loss + cost, <double>-MAX_LOSS)
    if governor.loss > MAX_LOSS:
        governor.loss = 0
        governor.n_won = 0
        governor.solo_calls = governor.pause
        governor.pause = min(2 * governor.pause, <int64_t>MAX_PAUSE)
    elif cost < 0:
        governor.n_won += 1
        # A neighbour that comes and goes lets a few calls win between two that lose: trust grows back slowly.
        if governor.n_won == WINS_TO_TRUST:
            governor.n_won = 0
            governor.pause = max(governor.pause // 2, <int64_t>MIN_PAUSE)


cdef int governed_team_size(int wanted, int64_t work_bytes, int64_t n_items) noexcept:
    """Return `team_size`, or 1 for as long as teams have been found not to pay."""
    cdef int team = team_size(wanted, work_bytes, n_items)
    if team > 1 and governor.solo_calls > 0:
        governor.solo_calls -= 1
        return 1
    return team


def follow_cost(double byte_ns, took_ns, n_bytes):
    """Return what a byte is taken to cost (ns) after each of several calls, as gathers keep it.

    Parameters
    ----------
    byte_ns : float
        Before them; 0: nothing is known.
    took_ns, n_bytes : sequence of int
        Of each call: the time one thread took, and its bytes.

    Returns
    -------
    list of float
    """
    cdef list after = []
    for took, size in zip(took_ns, n_bytes, strict=True):
        byte_ns = learn_cost(byte_ns, took, size)
        after.append(byte_ns)
    return after


def plan_team(int wanted, int64_t work_bytes, int64_t n_items, double byte_ns):
    """Return how many threads a call of `n_items` and `work_bytes` gets, of `wanted`, where teams pay."""
    return team_size(wanted, weigh(work_bytes, byte_ns), n_items)


def limit_this_thread(int most):
    """Bound the threads of every later call that the calling thread makes; 0: no bound but the caller's own.

    For a thread that is one of several which read at once: with one thread each they keep all cores busy, and none
    waits for the others.
    """
    global lx_most_threads
    lx_most_threads = most


def in_forked_child():
    """Return whether this process was forked after loaderx was imported: then every call uses one thread."""
    return lx_forked != 0


def available_cpus():
    """Return the number of cores this process may run on (its affinity mask, where the system has one)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
