"""Other processes: a busy one that is wanted, and the notice of those that are not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# it looks at its parent now and then, so that it does not outlive a killed benchmark
SPIN = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def busy_process() -> Iterator[int]:
    """Keep one process computing at normal priority, on whatever core the scheduler gives it; gives its id."""
    process = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        time.sleep(0.5)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def list_family(pid: int) -> list[int]:
    """Return a process and its descendants, as far as the system lists them."""
    found = [pid]
    for member in found:  # it grows
        for listed in Path(f"/proc/{member}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # a thread that has ended meanwhile
                found += map(int, listed.read_text().split())
    return found


class ForeignLoad:
    """How much of one core everything but some known processes used: what a measurement did not ask for.

    Linux counts in ticks of 10 ms, so that a short stretch is known to a few per cent at best.
    Time that a hypervisor gave to others counts too. Without /proc it is always 0.

    Parameters
    ----------
    pids : sequence of int
        Processes that are part of the measurement, with the children they have now; this process always is, without
        its own.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = [os.getpid(), *(member for pid in pids for member in list_family(pid))]
        self._started = time.perf_counter()
        self._ticks = self._count_foreign()

    def measure(self) -> float:
        """Return the cores used since the start: 0 none, 1 one core all the time."""
        elapsed = (time.perf_counter() - self._started) * os.sysconf("SC_CLK_TCK")
        return max(0.0, (self._count_foreign() - self._ticks) / elapsed)

    def _count_foreign(self) -> int:
        """Return ticks of user, nice, system, interrupts and steal, less those of the known processes."""
        try:
            every = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
            known = 0
            for pid in self._pids:
                # behind the name, which may hold blanks: fields 3 on; user and system time are fields 14 and 15
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                known += int(fields[11]) + int(fields[12])
        except OSError:
            return 0
        idle, iowait = every[3:5]
        return sum(every) - idle - iowait - known
