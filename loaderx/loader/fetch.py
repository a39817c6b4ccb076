"""Making the batch of a step: draw its indices, gather every stream, transform."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from loaderx._core.watch import blocks_read
from loaderx.errors import LoaderError, OptionError
from loaderx.loader.sampler import Sampler
from loaderx.loader.streams import RandomAccess

Batch: TypeAlias = Any
Transform: TypeAlias = Callable[..., Batch]

_WORD = 2**64 - 1


def identity(batch: Batch) -> Batch:
    """Return the batch itself: the transform that a loader has where none is given."""
    return batch


class Costs(NamedTuple):
    """What a batch took, times in nanoseconds."""

    gather_ns: int = 0
    transform_ns: int = 0
    cold_blocks: int = 0


class Fetch:
    """Makes the batch of a step. A pure function of the step, as far as streams and transform are.

    Parameters
    ----------
    streams : mapping of str to RandomAccess
    sampler : Sampler
        Only asked by `indices`.
    transform : callable
        Maps a batch to what the user gets.
    transform_rng : bool
        Hand the transform a `numpy.random.Generator` of this step and rank too.
    ahead : int
        Of a cold store, the batch of this many steps later is asked for before this one is gathered.

    Notes
    -----
    Any number of threads may call it at once.
    """

    def __init__(
        self,
        streams: Mapping[str, RandomAccess],
        sampler: Sampler,
        transform: Transform,
        transform_rng: bool,
        ahead: int,
    ) -> None:
        self._streams = dict(streams)
        self._sampler = sampler
        self._transform = transform
        self._transform_rng = transform_rng
        self._ahead = ahead
        # Whether the last gather read from a disk. Threads may set it at once: it is a hint.
        self._is_cold = True

    def __call__(self, step: int) -> tuple[Batch, Costs]:
        """Return the batch of a step, and what it took."""
        began = time.perf_counter_ns()
        batch, cold_blocks = self.gather(step)
        gathered = time.perf_counter_ns()
        if self._transform is identity:
            return batch, Costs(gathered - began, 0, cold_blocks)
        batch = self.transform(step, batch)
        return batch, Costs(gathered - began, time.perf_counter_ns() - gathered, cold_blocks)

    def __reduce__(self) -> tuple[Any, ...]:
        return Fetch, (self._streams, self._sampler, self._transform, self._transform_rng, self._ahead)

    def parts(self) -> dict[str, Any]:
        """Return what comes from the user, by what an error may call it."""
        return {
            **{f"stream {name!r}": stream for name, stream in self._streams.items()},
            f"the transform {describe(self._transform)}": self._transform,
        }

    def gather(self, step: int) -> tuple[dict[str, Any], int]:
        """Return what the streams hold for a step, and the blocks that were read from a disk for it.

        Raises
        ------
        LoaderError
            Of several streams, one gave a list of another length than the batch's.
        """
        idxs = self._sampler.indices(step)
        idxs.setflags(write=False)  # all streams get the same array
        if self._ahead and self._is_cold:
            self._ask_ahead(step + self._ahead)
        before = blocks_read()
        batch = {}
        for name, stream in self._streams.items():
            try:
                found = batch[name] = stream.__getitems__(idxs)
                if type(found) is list and len(found) != len(idxs) and len(self._streams) > 1:
                    raise _does_not_fit(len(found), len(idxs), step)
            except Exception as error:
                put_note(error, "in stream ", repr(name))
                raise
        cold_blocks = blocks_read() - before
        self._is_cold = cold_blocks > 0
        return batch, cold_blocks

    def _ask_ahead(self, step: int) -> None:
        """Have the streams' bytes for a later step read meanwhile."""
        try:
            idxs = self._sampler.indices(step)
        except OptionError:
            return  # there is no such step
        for stream in self._streams.values():
            prefetch = getattr(stream, "prefetch", None)
            if prefetch is not None:
                # What is wrong there is an error of that step, which meets it itself.
                with contextlib.suppress(Exception):
                    prefetch(idxs)

    def transform(self, step: int, batch: dict[str, Any]) -> Batch:
        """Return the transform of a batch."""
        if self._transform_rng:
            return self._transform(batch, step_rng(self._sampler.seed, step, self._sampler.rank))
        return self._transform(batch)


class BoundedFetch(Fetch):
    """A `Fetch` whose gathers run inside a context manager: a semaphore bounds those that run at once.

    Pickles as a `Fetch`: what bounds it belongs to its process.
    """

    def __init__(self, fetch: Fetch, gathers: AbstractContextManager[Any]) -> None:
        self.__dict__.update(fetch.__dict__)
        self._gathers = gathers

    def gather(self, step: int) -> tuple[dict[str, Any], int]:
        """Return what the streams hold for a step, and the blocks that were read from a disk for it."""
        with self._gathers:
            return super().gather(step)


def _does_not_fit(n_items: int, n_indices: int, step: int) -> LoaderError:
    return LoaderError(
        f"it gave a list of {n_items} for {n_indices} indices, which does not lie beside what the other streams gave: "
        "a list has an item for each index (one of several arrays is a tuple or a dict)",
        step=step,
    )


def describe(function: Callable[..., Any]) -> str:
    """Return what a function is called, or an object that can be called is."""
    return str(getattr(function, "__qualname__", None) or repr(function))


def put_note(error: BaseException, what: str, which: str) -> None:
    """Add a note to an exception, in place of one that says the same of another raise of it."""
    with contextlib.suppress(Exception):  # an exception may refuse to be written to
        notes = getattr(error, "__notes__", ())
        error.__notes__ = [note for note in notes if not note.startswith(what)] + [f"{what}{which}"]


def step_rng(seed: int, step: int, rank: int) -> np.random.Generator:
    """Return the random numbers of a step on a rank: the same each time, and others for each step, rank and seed.

    Notes
    -----
    Philox, a generator of counters (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): seed and
    rank are its key, the step is the upper half of its counter, so that no two of them have a number in common.
    """
    counter = np.array([0, 0, step, 0], np.uint64)
    key = np.array([seed & _WORD, rank], np.uint64)
    return np.random.Generator(np.random.Philox(counter=counter, key=key))
