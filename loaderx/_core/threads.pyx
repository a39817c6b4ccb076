"""How many threads a call may use."""

from libc.stdint cimport int64_t

import os

cdef extern from *:
    """
    #include <pthread.h>
    #ifdef _OPENMP
      #define LX_OPENMP _OPENMP
    #else
      #define LX_OPENMP 0
    #endif
    #ifdef __VERSION__
      #define LX_COMPILER __VERSION__
    #else
      #define LX_COMPILER "unknown"
    #endif
    #if defined(__clang__)
      #define LX_COMPILER_NAME "clang"
    #elif defined(__GNUC__)
      #define LX_COMPILER_NAME "gcc"
    #else
      #define LX_COMPILER_NAME "cc"
    #endif

    static int lx_forked = 0;
    static void lx_after_fork(void) { lx_forked = 1; }
    static int lx_watch_forks(void) { return pthread_atfork(0, 0, lx_after_fork); }
    """
    int LX_OPENMP
    const char* LX_COMPILER
    const char* LX_COMPILER_NAME
    int lx_forked
    int lx_watch_forks()

cdef enum:
    # Below this much copying a team costs more than it saves.
    TEAM_BYTES = 256 * 1024
    # Each thread of a team gets at least this much.
    THREAD_BYTES = 128 * 1024

if lx_watch_forks() != 0:
    raise MemoryError("pthread_atfork failed")


cdef int team_size(int wanted, int64_t work_bytes, int64_t n_items) noexcept nogil:
    """Return how many threads to use for `work_bytes` of copying, or as much work of another kind, in `n_items`."""
    cdef int64_t team
    # GNU OpenMP's threads do not survive a fork, and a child of a parent that had them waits for them for ever.
    if wanted <= 1 or lx_forked or work_bytes < TEAM_BYTES:
        return 1
    team = min(<int64_t>wanted, work_bytes // THREAD_BYTES, n_items)
    return <int>team if team > 1 else 1


def in_forked_child():
    """Return whether this process was forked after loaderx was imported: then every call uses one thread."""
    return lx_forked != 0


def available_cpus():
    """Return the number of cores this process may run on (its affinity mask, where the system has one)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def openmp_version():
    """Return the OpenMP specification's date the core was compiled with, such as 201511, or None without OpenMP."""
    return LX_OPENMP or None


def compiler():
    """Return the compiler's name and version."""
    name = (<bytes>LX_COMPILER_NAME).decode()
    version = (<bytes>LX_COMPILER).decode()
    return version if version.lower().startswith(name) else f"{name} {version}"
