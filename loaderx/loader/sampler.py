"""Which records come next: endless batches of indices, of which each is a pure function of seed and step."""

from __future__ import annotations

import enum
import operator
from functools import partial
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from loaderx._core.draw import Draws
from loaderx.errors import DestinationError, OptionError
from loaderx.store.options import check_count, check_flag

# Positions are below this, so that 64 bits hold one whatever is added.
_NUM_POSITIONS: Final = 2**63
_MAX_BATCH_SIZE: Final = 2**32
_MAX_WORLD_SIZE: Final = 2**24
_UINT64: Final = np.dtype(np.uint64)


class Sampler:
    """Endless batches of indices, in one of three orders, from any step on at once.

    Each batch is a pure function of the arguments and the step: nothing is stored by length, nothing drawn to get
    somewhere. The same arguments give the same batches with every release, on every processor. docs/sampler.md says
    which.

    Parameters
    ----------
    length : int
        Of what the indices are for, 1 to 2**63: they are below it.
    batch_size : int
        Indices in a batch, 1 to 2**32.
    mode : Sampler.Mode, int or str
        - ``SEQUENTIAL`` (0): 0, 1, 2 ... and after the last index the first.
        - ``IID`` (1): each index is drawn from all, without bias and independently of the others.
        - ``CYCLIC`` (2): cycle after cycle, each a permutation of its own, drawn from the seed. No index comes twice
          within a cycle.

        A member, its number, or its name in lower or upper case.
    seed : int, default 42
        0 to 2**64 - 1. Of no meaning for ``SEQUENTIAL``.
    drop_remainder : bool, default True
        For ``CYCLIC``. True: a cycle ends with its last full batch, and what remains (other indices in each cycle) is
        not drawn; a length below one batch gives one shorter batch a cycle. False: cycles follow each other without a
        gap, so each index comes exactly once in each; a batch across the end of one may hold an index twice.
    rank, world_size : int, default 0 and 1
        This process of how many. `batch_size` is this process's: the global batch of a step has ``batch_size *
        world_size`` indices, and rank r gets the r-th part of it. The global sequence does not depend on how it is
        divided.

    Attributes
    ----------
    length, batch_size, mode, seed, drop_remainder, rank, world_size
        As given, as plain numbers and a `Sampler.Mode`.
    batch_length : int
        How many indices a batch has: `batch_size`, or `length` where a cycle is shorter than a batch.
    num_steps : int
        How many steps there are: positions end at 2**63.
    steps_per_cycle : int or None
        How many steps a cycle lasts, where cycles begin with a step: ``CYCLIC`` with `drop_remainder`. Else None.

    Raises
    ------
    OptionError
        An argument is no whole number, out of range or of another kind; `mode` is unknown; or a cycle has fewer indices
        than the global batch of several ranks, with `drop_remainder`.

    Notes
    -----
    `indices` may be called by any number of threads at once. Of several threads that call `next`, each gets a step of
    its own. A sampler pickles with its `step`.

    Examples
    --------
    >>> sampler = Sampler(10, 4, "cyclic", seed=7)
    >>> first = [sampler.next() for _ in range(3)]
    >>> sampler.seek(1)
    >>> np.array_equal(sampler.next(), first[1])
    True
    >>> [len(np.unique(np.concatenate([sampler.indices(step), sampler.indices(step + 1)]))) for step in (0, 2, 4)]
    [8, 8, 8]
    """

    class Mode(enum.IntEnum):
        """The order in which a sampler goes through the indices."""

        SEQUENTIAL = 0
        IID = 1
        CYCLIC = 2

    __slots__ = (
        "__weakref__",
        "_draws",
        "batch_length",
        "batch_size",
        "drop_remainder",
        "length",
        "mode",
        "num_steps",
        "rank",
        "seed",
        "steps_per_cycle",
        "world_size",
    )

    def __init__(
        self,
        length: int,
        batch_size: int,
        mode: Mode | int | str,
        seed: int = 42,
        *,
        drop_remainder: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.length: Final = check_count("length", length, least=1, most=2**63)
        self.batch_size: Final = check_count("batch_size", batch_size, least=1, most=_MAX_BATCH_SIZE)
        self.mode: Final = check_mode(mode)
        self.seed: Final = check_count("seed", seed, most=2**64 - 1)
        self.drop_remainder: Final = check_flag("drop_remainder", drop_remainder)
        self.world_size: Final = check_count("world_size", world_size, least=1, most=_MAX_WORLD_SIZE)
        self.rank: Final = check_count("rank", rank, most=self.world_size - 1)
        global_batch = self.batch_size * self.world_size
        self.batch_length: Final = self._fit_batch(global_batch)
        self.steps_per_cycle: Final = self._count_steps(global_batch)
        self.num_steps: Final = _NUM_POSITIONS // global_batch
        self._draws: Final = Draws(
            np.empty,
            (self.batch_length, _UINT64),
            partial(_check_step, self.num_steps),
            partial(_refuse, self.batch_length),
            mode=self.mode,
            length=self.length,
            seed=self.seed,
            batch_length=self.batch_length,
            global_batch=global_batch,
            first=self.rank * self.batch_size,
            steps_per_cycle=self.steps_per_cycle or 0,
            num_steps=self.num_steps,
        )

    def _fit_batch(self, global_batch: int) -> int:
        if self.mode != Sampler.Mode.CYCLIC or not self.drop_remainder or self.length >= global_batch:
            return self.batch_size
        if self.world_size > 1:
            most = self.length // self.world_size
            smaller = f"a batch_size of at most {most}, " if most else ""
            raise OptionError(
                f"length is {self.length}, below the {global_batch} indices that {self.world_size} ranks with "
                f"batch_size={self.batch_size} take a step: give {smaller}drop_remainder=False, or fewer ranks",
                option="batch_size",
                value=self.batch_size,
            )
        return self.length

    def _count_steps(self, global_batch: int) -> int | None:
        if self.mode != Sampler.Mode.CYCLIC or not self.drop_remainder:
            return None
        return max(1, self.length // global_batch)

    def next(self) -> npt.NDArray[np.uint64]:
        """Return the next batch.

        Returns
        -------
        numpy.ndarray of uint64, shape (batch_length,)
            A fresh array.

        Raises
        ------
        OptionError
            There is no further step: positions end at 2**63. `step` stays.

        Examples
        --------
        >>> sampler = Sampler(10, 4, "sequential")
        >>> sampler.next(), sampler.next()
        (array([0, 1, 2, 3], dtype=uint64), array([4, 5, 6, 7], dtype=uint64))
        """
        return self._draws.next()  # type: ignore[no-any-return]

    __next__ = next

    def __iter__(self) -> Self:
        return self

    def indices(self, step: int, out: npt.NDArray[np.uint64] | None = None) -> npt.NDArray[np.uint64]:
        """Return the batch of a step, which takes as long for every step; `self.step` stays as it is.

        Any number of threads may call this at once.

        Parameters
        ----------
        step : int
            0 or more.
        out : numpy.ndarray of uint64, shape (batch_length,), optional
            Filled and returned: writable and contiguous. Any buffer of such numbers will do. Default: a fresh array.

        Returns
        -------
        numpy.ndarray of uint64, shape (batch_length,)

        Raises
        ------
        OptionError
            `step` is no whole number, negative, or there is none of this number: positions end at 2**63.
        DestinationError
            `out` has another shape or dtype, is not contiguous or not aligned, read-only, or a memoryview that was
            released.
        TypeError
            `out` is not a buffer.

        Examples
        --------
        >>> Sampler(10, 4, "sequential").indices(7)
        array([8, 9, 0, 1], dtype=uint64)
        """
        return self._draws.indices(step, out)  # type: ignore[no-any-return]

    def seek(self, step: int) -> None:
        """Have `next` give the batch of this step, and then those after it.

        Parameters
        ----------
        step : int
            0 or more.

        Raises
        ------
        OptionError
            As for `indices`; `step` stays.

        Examples
        --------
        >>> sampler = Sampler(10, 4, "iid")
        >>> sampler.seek(10**15)
        >>> np.array_equal(sampler.next(), sampler.indices(10**15)), sampler.step
        (True, 1000000000000001)
        """
        self._draws.seek(step)

    @property
    def step(self) -> int:
        """The step whose batch `next` gives: at first 0."""
        return self._draws.step

    def __repr__(self) -> str:
        options = "" if self.drop_remainder else ", drop_remainder=False"
        if self.world_size > 1:
            options += f", rank={self.rank}, world_size={self.world_size}"
        given = f"{self.length}, {self.batch_size}, {self.mode.name}, seed={self.seed}{options}"
        return f"<Sampler({given}) at step {self.step}>"

    def __reduce__(self) -> tuple[Any, ...]:
        keywords = {"drop_remainder": self.drop_remainder, "rank": self.rank, "world_size": self.world_size}
        return _rebuild, (
            type(self),
            self.length,
            self.batch_size,
            int(self.mode),
            self.seed,
            keywords,
            self.step,
        )


def _rebuild(
    cls: type[Sampler],
    length: int,
    batch_size: int,
    mode: int,
    seed: int,
    keywords: dict[str, Any],
    step: int,
) -> Sampler:
    sampler = cls(length, batch_size, mode, seed, **keywords)
    sampler.seek(step)
    return sampler


def check_mode(mode: Any) -> Sampler.Mode:
    """Return a mode by member, number (NumPy's too) or name in any case, or raise `OptionError`."""
    modes = Sampler.Mode
    if isinstance(mode, str):
        if mode.upper() in modes.__members__:
            return modes[mode.upper()]
    elif not isinstance(mode, bool | np.bool_):
        try:
            return modes(operator.index(mode))
        except (TypeError, ValueError):
            pass
    choices = ", ".join(f"{member.name} ({member.value})" for member in modes)
    raise OptionError(f"mode is {mode!r}: choose one of {choices}", option="mode", value=mode)


def _check_step(num_steps: int, step: Any) -> int:
    return check_count("step", step, most=num_steps - 1)


def _refuse(batch_length: int, out: Any) -> None:
    """Raise for a destination that a batch cannot be drawn into."""
    needed_bytes = 8 * batch_length
    if not isinstance(out, np.ndarray):
        try:
            out = memoryview(out)
        except ValueError as error:  # such as a memoryview that was released
            raise DestinationError(f"out is no buffer to fill: {error}", needed_bytes=needed_bytes) from None
    if isinstance(out, np.ndarray):  # a memoryview does not show all of them: those of dates it refuses
        read_only, contiguous = not out.flags.writeable, out.flags.c_contiguous
        kind, is_uint64 = str(out.dtype), out.dtype == _UINT64
    else:
        read_only, contiguous = out.readonly, out.c_contiguous
        kind = out.format
        is_uint64 = out.itemsize == _UINT64.itemsize and kind.lstrip("<=@") in ("L", "Q")
    if read_only:
        problem = "is read-only"
    elif not contiguous:
        problem = "must be contiguous in C order, not strided"
    elif not is_uint64:
        problem = f"must hold uint64, not {kind}"
    elif out.shape != (batch_length,):
        problem = f"has the shape {out.shape}, and a batch ({batch_length},)"
    else:
        problem = "must begin at a multiple of 8 bytes in memory"
    raise DestinationError(f"out {problem}", needed_bytes=needed_bytes, given_bytes=out.nbytes)
