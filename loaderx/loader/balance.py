"""Who makes the next batch: workers, ahead of time, or the thread that asks for it, when it asks."""

from __future__ import annotations

#: What handing a batch over takes of the thread that asks, in nanoseconds: a task, a queue, a thread that wakes.
HANDOVER_NS = 30_000

#: Steps after which it is looked at what they took.
WINDOW = 16

#: A batch that takes a worker less than this may be made faster than it is handed over. (Among several workers that
#: wait for one another the same batch takes them a multiple.)
_CHEAP_NS = 100_000

#: Workers are gone back to where most steps are slower by this much, and by this part of making a batch, in so many
#: windows in a row: one alone may have been disturbed, and the first one finds a team that has yet to wake.
_LEAST_GAIN_NS = 10_000
_LEAST_GAIN = 0.15
_MOST_STRIKES = 2

#: What steps that are much slower than others may cost of making batches, in such windows too.
_MOST_LOSS = 0.5

#: What a window counts of what workers are taken to need.
_SHARE = 0.25

#: Windows after which workers are measured again, for what they need may have changed meanwhile.
_MEASURE_AGAIN = 1024

#: Windows until the thread that asks may try again: doubled with each try that fails, up to the second.
_FIRST_PATIENCE = 4
_MOST_PATIENCE = 4096


class Balance:
    """Decides by what steps took whether the thread that asks makes them itself. What a step gives is the same.

    Workers are right where that thread has work of its own: they read meanwhile. But where a batch is small, handing
    it over takes longer than making it; and where the thread only waits, one gather with a team of all cores is done
    sooner than as many gathers of one thread each, whose batches take turns in the caches.

    It begins with workers. After each `WINDOW` of steps, where the thread has mostly waited or batches are cheap, it
    has the thread make some itself, and stays with that as long as the workers would not be faster: they need what the
    thread's own work takes, or, if that is more, what a step took when it waited for them.

    Parameters
    ----------
    can_be_here : bool
        False: workers make every batch.

    Attributes
    ----------
    is_here : bool
        The thread that asks makes the next batch.

    Notes
    -----
    Of one thread at a time. Times in nanoseconds.
    """

    __slots__ = (
        "_can_be_here",
        "_gain_ns",
        "_is_cold",
        "_is_trial",
        "_last",
        "_make_ns",
        "_n",
        "_n_slow",
        "_n_windows",
        "_next_patience",
        "_patience",
        "_since",
        "_strikes",
        "_wait_ns",
        "_worker_ns",
        "is_here",
    )

    def __init__(self, can_be_here: bool) -> None:
        self._can_be_here = can_be_here
        self.is_here = False
        self._is_trial = False
        self._strikes = self._n_windows = 0
        self._patience = 0
        self._next_patience = _FIRST_PATIENCE
        # What workers need for a step when somebody waits for each; 0: nobody has.
        self._worker_ns = 0.0
        self.restart(0)

    def restart(self, now: int) -> None:
        """Begin a new window, as what lies behind says nothing of what comes."""
        self._since = self._last = now
        self._n = self._n_slow = self._wait_ns = self._make_ns = 0
        self._gain_ns = 0.0
        self._is_cold = False

    def note(self, was_here: bool, wait_ns: int, make_ns: int, cold_blocks: int, now: int) -> None:
        """Note a step.

        Parameters
        ----------
        was_here : bool
            The thread that asked made it.
        wait_ns : int
            How long that thread was in `next`.
        make_ns : int
            How long the batch took whoever made it.
        cold_blocks : int
            What was read from a disk for it.
        now : int
            When the step was given.
        """
        if not self._can_be_here:
            return
        if was_here != self.is_here or not self._since:  # made before the change
            self.restart(now)
            return
        self._n += 1
        self._wait_ns += wait_ns
        self._make_ns += make_ns
        if cold_blocks:
            self._is_cold = True
        if was_here:
            # Step by step, so that a pause between two of them, or a step that was disturbed, counts as the one it is.
            step_ns = now - self._last
            gain_ns = step_ns - max(step_ns - wait_ns + HANDOVER_NS, self._worker_ns)
            self._gain_ns += gain_ns
            if gain_ns > _LEAST_GAIN_NS and gain_ns > _LEAST_GAIN * make_ns:
                self._n_slow += 1
            self._last = now
            if self._n == WINDOW or self._is_too_slow():
                self._judge_this()
                self.restart(now)
        elif self._n == WINDOW:
            self._judge_workers(now)
            self.restart(now)

    def _is_too_slow(self) -> bool:
        """Return whether workers had made a window more by now, so that nothing else need be awaited."""
        return bool(self._worker_ns) and self._gain_ns > WINDOW * self._worker_ns

    def _judge_this(self) -> None:
        """Go back to workers where they save time, and to measure them anew."""
        if self._n_slow > self._n / 2 or self._gain_ns > _MOST_LOSS * self._make_ns:
            self._strikes += 1
        else:
            self._strikes = 0
            self._is_trial = False
        self._n_windows += 1
        # Waits for a disk are what workers are for: several wait at once.
        if self._strikes == _MOST_STRIKES or self._is_cold or self._n < WINDOW:
            self._next_patience = (
                min(2 * self._next_patience, _MOST_PATIENCE) if self._is_trial else _FIRST_PATIENCE
            )
            self._leave_to_workers(self._next_patience)
        elif self._n_windows == _MEASURE_AGAIN:
            self._leave_to_workers(1)

    def _leave_to_workers(self, patience: int) -> None:
        self.is_here = False
        self._worker_ns = 0.0
        self._patience = patience

    def _judge_workers(self, now: int) -> None:
        """Have the thread that asks try, where it waits anyway or where there is little to make."""
        if self._is_cold:
            return  # what the disk takes
        step_ns = (now - self._since) / self._n
        is_waiting = self._wait_ns / self._n > step_ns / 2
        if not is_waiting:
            self._worker_ns = 0.0
        elif self._worker_ns:
            self._worker_ns += _SHARE * (step_ns - self._worker_ns)
        else:
            self._worker_ns = step_ns
        if self._patience:
            self._patience -= 1
        elif is_waiting or self._make_ns / self._n < _CHEAP_NS:
            self.is_here = self._is_trial = True
            self._strikes = self._n_windows = 0
