"""The endless loader: batches of named streams, in order of their steps, made ahead by workers."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal, Self

from loaderx._core.threads import available_cpus
from loaderx.errors import ClosedError, LoaderError, OptionError
from loaderx.loader.balance import Balance
from loaderx.loader.ending import Ending
from loaderx.loader.fetch import Batch, BoundedFetch, Costs, Fetch, Transform, identity
from loaderx.loader.sampler import Sampler
from loaderx.loader.state import check_state, make_state
from loaderx.loader.stats import LoaderStats, StepStats
from loaderx.loader.streams import check_streams, gathers_in_teams
from loaderx.loader.threads import Outcome, Task, ThreadWorkers, raise_at
from loaderx.store.options import check_callable, check_choice, check_count, check_flag

_MOST_WORKERS = 4096
_MOST_PREFETCHED = 1 << 16
_NS = 1e-9


class DataLoader:
    """Batches of named streams, without end: step 0, 1, 2, ... in order, each the same whoever makes it.

    A batch is a dict with one entry for each stream, all read at the same indices. Which indices a step has is a pure
    function of seed, step and the options below: not of workers, timing, or where the run began. So a run that was
    interrupted goes on exactly where it was (`state_dict`).

    Parameters
    ----------
    streams : mapping of str to Dataset, RaggedDataset or ndarray
        Or anything with ``len()`` and ``__getitems__(idxs)`` (`loaderx.loader.streams.RandomAccess`); all of the same
        length. The loader does not close them.
    num_workers : int
        Threads, or processes, that make batches; 0: `next` makes them itself, when it is asked. Threads leave it to
        `next` too while that is faster, where all streams are datasets or arrays and there is no transform
        (`loaderx.loader.balance.Balance`).
    batch_size : int
        Records in a batch of this process.
    prefetch_size : int
        Batches that may be ready beyond those being made. At most ``num_workers + prefetch_size`` exist beyond those
        that the user holds.
    mode : int or str or Sampler.Mode
        0, "sequential"; 1, "iid"; 2, "cyclic": see `Sampler`.
    seed : int
    transform : callable
        Maps a batch to what `next` returns. Called by the workers, several at a time, with one batch each.
    rank, world_size : int
        Which of how many processes this is that train together: see `rank_and_world`. The global batch has
        ``batch_size * world_size`` records; this process gets its part, the one of number `rank`.
    worker_type : {"thread", "process"}
        Processes are for transforms in Python, which hold the GIL. They open the streams themselves; streams and
        transform have to pickle. Their arrays come back through shared memory.
    transform_rng : bool
        Call ``transform(batch, rng)``, with a `numpy.random.Generator` made of seed, step and rank. There has to be a
        transform.
    drop_remainder : bool
        Cyclic: leave out what is left of a cycle behind its last whole batch; otherwise the next cycle follows without
        a gap.
    start_method : {"spawn", "forkserver"}
        How worker processes begin. Either imports the main module anew: guard what it does with
        ``if __name__ == "__main__":``.
    on_step : callable, optional
        Called with a `loaderx.loader.stats.StepStats` by the thread that calls `next`, for each step, before it is
        given: what it raises is raised by `next`, and the step comes again.

    Attributes
    ----------
    streams : dict
    sampler : Sampler
        Which indices each step has.
    num_workers, batch_size, prefetch_size, rank, world_size : int
    step : int
        The step of the next batch.

    Raises
    ------
    OptionError
        No streams, streams of different lengths, one beside others that leaves out samples (``on_error="skip"``), or an
        argument outside its range.

    Notes
    -----
    Several threads may call `next`: each batch goes to one of them. Workers begin with the first `next`, not before.

    An exception in a stream or in the transform is raised by `next` at the step it belongs to, which then counts as
    given: the next call goes on behind it, and ``seek(step - 1)`` tries again. (Without workers, what is no `Exception`
    does not count: it may have come from a signal.)

    A loader does not work in a forked child: worker threads do not survive a fork. It pickles as its options, its
    streams and its state, and does not unpickle where a stream has another length by then (`StateMismatchError`).

    Examples
    --------
    >>> write_dataset(tmp_path / "x.zr", np.arange(10.0))
    10
    >>> with DataLoader({"x": Dataset(tmp_path / "x.zr")}, batch_size=4, mode="sequential") as loader:
    ...     next(loader)["x"]
    ...     state = loader.state_dict()
    ...     next(loader)["x"]
    array([0., 1., 2., 3.])
    array([4., 5., 6., 7.])
    >>> with DataLoader({"x": Dataset(tmp_path / "x.zr")}, batch_size=4, mode="sequential") as loader:
    ...     loader.load_state_dict(state)
    ...     next(loader)["x"]
    array([4., 5., 6., 7.])
    """

    def __init__(
        self,
        streams: Mapping[str, Any],
        num_workers: int = 4,
        batch_size: int = 256,
        prefetch_size: int = 4,
        mode: int | str = 1,
        seed: int = 42,
        transform: Transform = identity,
        *,
        rank: int = 0,
        world_size: int = 1,
        worker_type: Literal["thread", "process"] = "thread",
        transform_rng: bool = False,
        drop_remainder: bool = True,
        start_method: Literal["spawn", "forkserver"] = "spawn",
        on_step: Callable[[StepStats], object] | None = None,
    ) -> None:
        self.streams, self._lengths = check_streams(streams)
        self.num_workers = check_count("num_workers", num_workers, most=_MOST_WORKERS)
        self.prefetch_size = check_count("prefetch_size", prefetch_size, most=_MOST_PREFETCHED)
        self.sampler = Sampler(
            next(iter(self._lengths.values())),
            batch_size,
            mode,
            seed,
            drop_remainder=drop_remainder,
            rank=rank,
            world_size=world_size,
        )
        self.batch_size, self.rank, self.world_size = (
            self.sampler.batch_size,
            self.sampler.rank,
            self.sampler.world_size,
        )
        check_callable("transform", transform)
        self._transform = identity if transform is None else transform
        self._transform_rng = check_flag("transform_rng", transform_rng)
        if self._transform_rng and self._transform is identity:
            raise OptionError(
                "transform_rng is True, and there is no transform to give random numbers to: give one, "
                "transform(batch, rng)",
                option="transform_rng",
                value=transform_rng,
            )
        self.worker_type = check_choice("worker_type", worker_type, ("thread", "process"))
        self.start_method = check_choice("start_method", start_method, ("spawn", "forkserver"))
        check_callable("on_step", on_step)
        self._on_step = on_step
        self._pid = os.getpid()
        # Reentrant, for what it calls may use the loader: `on_step`, and whatever runs where a batch is dropped.
        self._lock = threading.RLock()
        self._next_step = 0
        self._num_steps = self.sampler.num_steps
        # Tasks of the steps from the next one on, in order; and those that nobody wants any more but a worker may
        # still be at.
        self._pending: deque[Task] = deque()
        self._stale: list[Task] = []
        self._workers: ThreadWorkers | None = None
        # Of this loader, without it: the workers must not keep it, nor what ends them.
        self._ending = Ending(self._pending)
        weakref.finalize(self, self._ending.end).atexit = False
        self._fetch = self._make_fetch()
        # What the user wrote may want to run beside the loop, or in a thread of its own: it is left to workers.
        self._balance = Balance(
            self.num_workers > 0
            and self.worker_type == "thread"
            and self._transform is identity
            and all(map(gathers_in_teams, self.streams.values()))
        )
        self._n_given = self._wait_ns = self._gather_ns = self._transform_ns = self._cold_blocks = 0

    def _make_fetch(self) -> Fetch:
        return Fetch(
            self.streams, self.sampler, self._transform, self._transform_rng, max(self.num_workers, 1)
        )

    # The order of the statements below matters: Ctrl-C may come between any two of them. Until `_next_step` is set, the
    # step counts as not given, and the next call finds its batch where it was; a task is run before it is waited for.

    def __next__(self) -> Batch:
        """Return the batch of the next step.

        Raises
        ------
        ClosedError
            The loader was closed, perhaps while this waited.
        LoaderError
            This process is a fork of the loader's, or a worker process died.
        OptionError
            There is no further step: positions end at 2**63.
        Exception
            Whatever a stream or the transform raised for this step, with its own traceback; or `on_step`: then the step
            counts as not given.
        """
        self._check_process()
        with self._lock:
            self._check_open()
            while True:
                step = self._next_step
                if step >= self._num_steps:
                    raise OptionError(
                        f"there is no step {step}: positions end at 2**63", option="step", value=step
                    )
                self._forget_given()  # where Ctrl-C came between
                is_here = self.num_workers == 0 or (self._balance.is_here and not self._pending)
                made = self._make_here(step) if is_here else self._wait()
                # A signal's handler may have used the loader meanwhile.
                if made is not None and self._next_step == step:
                    break
                del made
            outcome, costs, wait_ns = made
            if self._on_step is not None:
                self._on_step(self._describe(step, costs, wait_ns))
            self._count(costs, wait_ns)
            self._balance.note(is_here, wait_ns, costs.gather_ns, costs.cold_blocks, time.perf_counter_ns())
            if self._next_step == step:  # nobody sought another one meanwhile
                self._next_step = step + 1
                self._forget_given()
        batch, error = outcome
        del made, outcome  # the frames of an exception, of which this is one, must not refer to it
        if error is None:
            return batch
        try:
            raise_at(error, step)
        finally:
            del error

    def _make_here(self, step: int) -> tuple[tuple[Batch, BaseException | None], Costs, int]:
        """Make a batch in this thread. What is no `Exception` may be a signal's, and nothing is made then."""
        began = time.perf_counter_ns()
        try:
            batch, costs = self._fetch(step)
        except Exception as error:
            return (None, error), Costs(), time.perf_counter_ns() - began
        return (batch, None), costs, costs.gather_ns + costs.transform_ns

    def _wait(self) -> tuple[Outcome, Costs, int] | None:
        """Wait for the workers to have made a batch, and have them make one more, if they go on.

        None: another step was sought meanwhile, in this very thread, by what ran when something was let go of.
        """
        if not self._balance.is_here:
            self._fill(self.num_workers + self.prefetch_size)
        task = self._pending[0]
        self._check_open()  # or `close`, which rings for what was pending, has not seen this task
        began = time.perf_counter_ns()
        task.wait()
        wait_ns = time.perf_counter_ns() - began
        outcome = task.outcome  # from here on `close` cannot take it away
        if outcome is None:
            self._check_open()
            return None
        if not self._balance.is_here:
            # The batch that is given now counts no more.
            self._fill(self.num_workers + self.prefetch_size + 1)
        return outcome, task.costs, wait_ns

    def _fill(self, n: int) -> None:
        """Have the workers make the next `n` batches, or as many as may exist while others are still being made."""
        pending = self._pending
        if self._workers is None:
            self._start_workers()
        workers = self._workers
        assert workers is not None
        if self._stale:
            self._stale = [task for task in self._stale if not task.is_done]
            n = max(n - len(self._stale), 1)
        while len(pending) < n:
            task = Task(self._next_step + len(pending))
            workers.submit(task)
            pending.append(task)

    def _forget_given(self) -> None:
        """Take away the tasks whose batches were given; the frames of an exception refer to its task."""
        while self._pending and self._pending[0].step != self._next_step:
            self._pending.popleft().outcome = None

    def _start_workers(self) -> None:
        gathers = self._bound_gathers()
        if self.worker_type == "process":
            from loaderx.loader.processes import RemoteFetchers

            most = self.num_workers + self.prefetch_size
            remote = RemoteFetchers(self._fetch, gathers, most, self.start_method)
            workers = ThreadWorkers(self.num_workers, remote, remote.interrupt)
        else:
            fetch = self._fetch if gathers is None else BoundedFetch(self._fetch, gathers)
            workers = ThreadWorkers(self.num_workers, _always(fetch))
        self._workers = self._ending.workers = workers
        if self._ending.is_begun:  # meanwhile, by a thread that has found no workers to end
            self._ending.end()

    def _bound_gathers(self) -> threading.Semaphore | None:
        """Return what the workers' gathers run inside, at most as many at once as there are cores; None: all may."""
        cores = available_cpus()
        return threading.Semaphore(cores) if self.num_workers > cores else None

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise LoaderError(
                f"this loader belongs to process {self._pid}, of which this one, {os.getpid()}, is a fork: worker "
                "threads do not survive a fork. Make a loader here, or use worker processes that are spawned",
                step=self._next_step,
            )

    def _check_open(self) -> None:
        if self._ending.is_begun:
            raise ClosedError(
                "the loader is closed: make a new one, and load its state to go on where it was"
            )

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        raise TypeError("a DataLoader has no length: it goes on without end")

    def __bool__(self) -> bool:
        return True  # or Python would ask for the length

    def __repr__(self) -> str:
        streams = ", ".join(f"{name}: {type(stream).__name__}" for name, stream in self.streams.items())
        ranks = f", rank {self.rank} of {self.world_size}" if self.world_size > 1 else ""
        return (
            f"<DataLoader of {{{streams}}}: {self.sampler.mode.name} batches of {self.batch_size}{ranks}, "
            f"seed {self.sampler.seed}, step {self._next_step}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        options = {
            "num_workers": self.num_workers,
            "batch_size": self.batch_size,
            "prefetch_size": self.prefetch_size,
            "mode": int(self.sampler.mode),
            "seed": self.sampler.seed,
            "transform": self._transform,
            "rank": self.rank,
            "world_size": self.world_size,
            "worker_type": self.worker_type,
            "transform_rng": self._transform_rng,
            "drop_remainder": self.sampler.drop_remainder,
            "start_method": self.start_method,
            "on_step": self._on_step,
        }
        return _remake, (type(self), self.streams, options, self.state_dict())

    @property
    def step(self) -> int:
        """The step of the next batch, which is the number of batches before it."""
        return self._next_step

    def seek(self, step: int) -> None:
        """Go on with the batch of another step. What was made ahead is dropped.

        The step behind the last one there is can be sought, too: a state may be of there.

        Raises
        ------
        OptionError
            No such step.
        ClosedError, LoaderError
        """
        self._check_process()
        with self._lock:
            self._check_open()
            step = check_count("step", step, most=self._num_steps)
            # From the end, so that Ctrl-C leaves the first of them, and the loader where it was.
            while self._pending:
                task = self._pending.pop()
                task.drop()
                if not task.is_done:
                    self._stale.append(task)
            self._next_step = step
            self._balance.restart(time.perf_counter_ns())

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader is, as a small dict of what JSON has.

        Returns
        -------
        dict
            ``step``, that of the next batch; and what the order depends on: ``seed``, ``mode``, ``global_batch``,
            ``drop_remainder``, ``lengths``, ``version``.

        Notes
        -----
        Costs a microsecond. Rank, world size and workers are not in it: a run may go on with others, as long as the
        global batch is the same.
        """
        sampler = self.sampler
        return make_state(
            self._next_step,
            seed=sampler.seed,
            mode=sampler.mode.name.lower(),
            global_batch=sampler.batch_size * sampler.world_size,
            drop_remainder=sampler.drop_remainder,
            lengths=self._lengths,
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another loader was, or this one.

        Parameters
        ----------
        state : dict
            What `state_dict` returned, perhaps through JSON.

        Raises
        ------
        StateMismatchError
            It is of a loader with another order; both sides are named, and nothing is changed.
        ClosedError, LoaderError
        """
        self.seek(check_state(state, self.state_dict()))

    def stats(self) -> LoaderStats:
        """Return what the loader has done so far."""
        return LoaderStats(
            self._n_given,
            self._wait_ns * _NS,
            self._gather_ns * _NS,
            self._transform_ns * _NS,
            self._cold_blocks,
            self._count_ready(),
        )

    def _count(self, costs: Costs, wait_ns: int) -> None:
        self._n_given += 1
        self._wait_ns += wait_ns
        self._gather_ns += costs.gather_ns
        self._transform_ns += costs.transform_ns
        self._cold_blocks += costs.cold_blocks

    def _count_ready(self) -> int:
        return sum(task.is_done for task in list(self._pending))

    def _describe(self, step: int, costs: Costs, wait_ns: int) -> StepStats:
        return StepStats(
            step,
            wait_ns * _NS,
            costs.gather_ns * _NS,
            costs.transform_ns * _NS,
            costs.cold_blocks,
            self._count_ready(),
        )

    def close(self) -> None:
        """End the workers and drop what they made. Whoever waits in `next` gets a `ClosedError`.

        Returns within a second: a worker in a transform that takes longer ends behind it. The streams stay open.
        """
        self._ending.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _always(fetch: Fetch) -> Callable[[], tuple[Fetch, Callable[[], None]]]:
    return lambda: (fetch, lambda: None)


def _remake(
    cls: type[DataLoader], streams: dict[str, Any], options: dict[str, Any], state: dict[str, Any]
) -> DataLoader:
    loader = cls(streams, **options)
    loader.load_state_dict(state)  # which notices a stream that has another length by now
    return loader
