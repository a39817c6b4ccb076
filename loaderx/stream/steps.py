"""The steps of a pipeline, as methods of a stream: each checks its arguments, and returns another stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Self

import numpy as np

from loaderx.errors import OptionError
from loaderx.store.options import check_choice, check_count, check_flag
from loaderx.stream.batch import Batch
from loaderx.stream.batched import BatchedMap, IndexedBatchedMap
from loaderx.stream.calling import describe
from loaderx.stream.calls import WORKER_TYPES, WorkerType, pickle_function
from loaderx.stream.columns import Drop, Rename, Select
from loaderx.stream.concatenate import Concatenate
from loaderx.stream.filter import Filter, IndexedFilter
from loaderx.stream.flat_map import FlatMap
from loaderx.stream.formats import FORMATS, Format, WithFormat
from loaderx.stream.lazy import check_function
from loaderx.stream.limits import Skip, Step, Take
from loaderx.stream.map import Map
from loaderx.stream.node import Item, Node, Recipe
from loaderx.stream.numbered import IndexedMap, NumberedMap
from loaderx.stream.pad import Pad
from loaderx.stream.parallel import ParallelMap
from loaderx.stream.parallel_numbered import ParallelIndexedMap, ParallelNumberedMap
from loaderx.stream.permuted import permute
from loaderx.stream.prefetch import Prefetch
from loaderx.stream.rebatch import Rebatch
from loaderx.stream.repeat import Repeat
from loaderx.stream.seeds import seed_in_place
from loaderx.stream.shuffle import Shuffle
from loaderx.stream.skipping import ON_ERROR, OnError
from loaderx.stream.source import Source
from loaderx.stream.tap import Tap

DEFAULT_SEED = 42
_DEFAULT_BATCH = 1000
_MOST_SEED = 2**63 - 1
# Far more than help: somebody has mistaken the argument.
_MOST_WORKERS = 4096


class Steps(ABC):
    """What one stream becomes another by. Nothing runs until the stream is iterated."""

    _recipe: Recipe

    @abstractmethod
    def _with(self, recipe: Recipe) -> Self:
        """Return a stream of a recipe, of this one's epoch."""

    def _then(self, node: type[Node], options: Mapping[str, Any], /, **told: Any) -> Self:
        return self._with(Recipe(node, (self._recipe,), options, told))

    def map(
        self,
        function: Callable[..., Any],
        *,
        batched: bool = False,
        batch_size: int | None = None,
        drop_last: bool = False,
        with_index: bool = False,
        with_rng: bool = False,
        seed: int | None = None,
        num_workers: int = 0,
        worker_type: WorkerType = "thread",
        on_error: OnError = "raise",
    ) -> Self:
        """Return what a function makes of each item.

        Parameters
        ----------
        function : callable
            ``function(item)`` returns the item that takes its place: all of it, not what is to be added. It has to
            return the same for the same arguments, for items that are held (in a buffer, a batch) are made anew when a
            state is loaded. It may change an item that is a dict, and return it, but not what is in it: lists and
            arrays may be those of the source, and are changed for all later passes. One that returns nothing makes
            items that are None; generators and coroutines are refused.
        batched : bool
            Call it with batches: where the items are dicts, with a dict that has a list of values for each name (None
            for an item without one); otherwise with the list of the items. It returns a dict of lists, or of arrays,
            or a list of items: as many as it likes, that come one by one. Any mapping is as good as a dict.
        batch_size : int, optional
            Items in a batch, 1,000 by default; the last one has what is left.
        drop_last : bool
            Leave out a last batch that is shorter.
        with_index : bool
            Give it the item's number, counted from 0 in the order in which the items come here, behind the item; to a
            function of batches the list of the numbers. A later `shuffle` leaves the order of the shards alone, so
            that each item keeps its number.
        with_rng : bool
            Give it random numbers behind that: a `numpy.random.Generator` of its own for each item, or each batch,
            which is a function of the seed, the epoch, and the number of the item or the batch. It is good for this
            call: do not keep it.
        seed : int, optional
            Of these random numbers; 42 by default. A second such step in a chain has others, also with the same seed.
        num_workers : int
            How many workers call it at once; 0: it is called where the stream is iterated. The items keep their order,
            and two more than there are workers are under way at once, or as many batches. A state fits any number of
            workers but 0.
        worker_type : {"thread", "process"}
            Threads pay where the function lets go of Python's lock, as NumPy, decoders and files do. Processes pay for
            Python code: they are started anew for each pass (by ``spawn``), and the function, the items and what it
            returns have to pickle.
        on_error : {"raise", "skip"}
            ``"skip"`` leaves out the items, or batches, that it raises for; `StreamIterator.counts` says how many items
            they were.

        Returns
        -------
        Stream

        Raises
        ------
        OptionError
            An argument is outside its range, or belongs to another that is not given; or the function does not pickle,
            for worker processes.

        Notes
        -----
        Where the function raises, the iterator raises `StreamError`, which names the shard and the place, and goes on
        behind the item, or the batch, when it is asked again. So it does where a worker process dies, which ``"skip"``
        does not cover; the cause is a `LoaderError` then, which names the process.

        Workers end with the pass, and where its iterator is closed or dropped (a stream keeps its newest one).
        Threads do not survive a fork: an iterator that has workers raises `LoaderError` in a forked process, where
        another one can be made.
        """
        batched = check_flag("batched", batched)
        check_function("map", function, may_yield=batched)
        seed = _check_rng(check_flag("with_rng", with_rng), seed)
        with_index = check_flag("with_index", with_index)
        told: dict[str, Any] = {"function": describe(function)}
        options: dict[str, Any] = {"function": function}
        _add_on_error(on_error, told, options)
        num_workers = check_count("num_workers", num_workers, most=_MOST_WORKERS)
        check_choice("worker_type", worker_type, WORKER_TYPES)
        if num_workers:
            # How many and of which kind is not told: the items are the same.
            options.update(num_workers=num_workers, worker_type=worker_type)
            if worker_type == "process":
                pickle_function(function, function)
        if with_index or seed is not None:
            told.update(with_index=with_index, seed=seed)
            options.update(
                with_index=with_index, seed=None if seed is None else self._seed_in_place("map", seed)
            )
        if check_flag("batched", batched):
            size = check_count("batch_size", _DEFAULT_BATCH if batch_size is None else batch_size, least=1)
            drop_last = check_flag("drop_last", drop_last)
            told.update(batch_size=size, drop_last=drop_last)
            options.update(size=size, drop_last=drop_last)
            if num_workers:
                told.update(parallel=True)
            return self._then(IndexedBatchedMap if with_index else BatchedMap, options, **told)
        if batch_size is not None or drop_last:
            option = "drop_last" if batch_size is None else "batch_size"
            raise OptionError(
                f"{option} is for functions of batches: give batched=True too, or leave it out",
                option=option,
                value=drop_last if batch_size is None else batch_size,
            )
        kind: type[Node]
        if with_index:
            kind = ParallelIndexedMap if num_workers else IndexedMap
        elif seed is not None:
            kind = ParallelNumberedMap if num_workers else NumberedMap
        else:
            kind = ParallelMap if num_workers else Map
        return self._then(kind, options, **told)

    def filter(
        self, function: Callable[..., Any], *, with_index: bool = False, on_error: OnError = "raise"
    ) -> Self:
        """Return the items that a function is true of.

        Parameters
        ----------
        function : callable
            ``function(item)``.
        with_index : bool
            ``function(item, number)``: the item's number, counted from 0 in the order in which the items come here. A
            later `shuffle` leaves the order of the shards alone, so that the same items stay.
        on_error : {"raise", "skip"}
            ``"skip"`` leaves out the items that it raises for, and counts them apart from those that it is not true of.

        Returns
        -------
        Stream
        """
        check_function("filter", function)
        told: dict[str, Any] = {"function": describe(function)}
        options: dict[str, Any] = {"function": function}
        _add_on_error(on_error, told, options)
        if check_flag("with_index", with_index):
            return self._then(IndexedFilter, options, **told, with_index=True)
        return self._then(Filter, options, **told)

    def flat_map(self, function: Callable[[Item], Iterable[Item]], *, on_error: OnError = "raise") -> Self:
        """Return all items that a function gives for each item, one behind the other.

        Parameters
        ----------
        function : callable
            ``function(item)`` returns a list, or what else can be iterated, a generator too; an empty one for no items.
            None, and a dict, a table or a text, which would come apart as its names or letters, are an error: return a
            list with it. A state in the midst of an item calls it again and leaves out what was given.
        on_error : {"raise", "skip"}
            ``"skip"`` leaves out the rest of an item that it raises for, and counts the item.

        Returns
        -------
        Stream
        """
        check_function("flat_map", function, may_yield=True)
        told: dict[str, Any] = {"function": describe(function)}
        options: dict[str, Any] = {"function": function}
        _add_on_error(on_error, told, options)
        return self._then(FlatMap, options, **told)

    def prefetch(self, n: int) -> Self:
        """Return the items as they are, taken ahead of time by a thread: reading goes on while an item is used.

        Parameters
        ----------
        n : int
            Up to so many items are taken ahead. A state fits any number.

        Returns
        -------
        Stream

        Notes
        -----
        All steps before this one run in that thread, the functions too, and what they raise comes in its turn. It ends
        with the pass, and where the iterator is closed or dropped, and does not survive a fork: see `map`. Before a
        `shuffle` it hides the reading, behind it the steps before it, too.
        """
        return self._then(Prefetch, {"n": check_count("n", n, least=1)})

    def tap(self, function: Callable[[Item], Any]) -> Self:
        """Return the items as they are, once a function has seen each one: to count, to log, to look.

        Parameters
        ----------
        function : callable
            ``function(item)``; what it returns is left alone. It does not see the items again that are made anew when
            a state is loaded.

        Returns
        -------
        Stream
        """
        check_function("tap", function)
        return self._then(Tap, {"function": function}, function=describe(function))

    def shuffle(self, buffer_size: int | None, seed: int = DEFAULT_SEED, max_input_shards: int = 10) -> Self:
        """Return the items in a random order, on three levels.

        The order of the shards is drawn; up to `max_input_shards` of them are read in turns; and a buffer takes the
        items, each one that is given drawn from it. Another epoch has another order.

        Parameters
        ----------
        buffer_size : int or None
            Items that are held. How far an item may come before its place is bounded by it; behind its place it may
            come as far as chance has it. It comes before the seed: ``shuffle(42)`` has a buffer of 42 items. None: no
            buffer, but all items in a random order, each as likely at any place; for sources that can be read in any
            order, and steps behind them that do something with each item for itself.
        seed : int
            A second shuffle in a chain has another order, also with the same seed; streams that are zipped have the
            same one, if they have the same shards.
        max_input_shards : int
            For each source below, if there are several.

        Returns
        -------
        Stream

        Notes
        -----
        Behind `skip`, `take`, `step`, `zip` and functions that are given the number of the item, the shards below keep
        their order, for which items there are depends on it: there only the buffer shuffles. So for some of the items,
        others in each epoch, shuffle first and take then. To split a stream for good, take and skip first, and shuffle
        each part: behind a shuffle, what ``take(n)`` gives in one epoch ``skip(n)`` gives in another.
        """
        seed = check_count("seed", seed, most=_MOST_SEED)
        most_open = check_count("max_input_shards", max_input_shards, least=1)
        if buffer_size is None:
            return self._with(permute(self._recipe, seed))
        size = check_count("buffer_size", buffer_size, least=1)
        below = shuffle_shards(self._recipe, seed, most_open)
        options = {"buffer_size": size, "seed": self._seed_in_place("shuffle", seed)}
        told = {"buffer_size": size, "seed": seed, "max_input_shards": most_open}
        return self._with(Recipe(Shuffle, (below,), options, told))

    def _seed_in_place(self, called: str, seed: int) -> int:
        return seed_in_place(seed, self._recipe.count_seeded(called, seed))

    def skip(self, n: int) -> Self:
        """Return all items but the first `n`. They are read, all the same."""
        return self._then(Skip, {"n": check_count("n", n)}, n=int(n))

    def take(self, n: int) -> Self:
        """Return the first `n` items; nothing is read behind them."""
        return self._then(Take, {"n": check_count("n", n)}, n=int(n))

    def step(self, n: int, first: int = 0) -> Self:
        """Return each `n`-th item, beginning with number `first`: `n` such streams share the items among them.

        Parameters
        ----------
        n : int
        first : int
            Below `n`; to begin later, use `skip`.

        Returns
        -------
        Stream
        """
        n = check_count("n", n, least=1)
        first = check_count("first", first)
        if first >= n:
            raise OptionError(
                f"first is {first}, and has to be below n={n}: to begin at item {first}, use skip({first}).step({n})",
                option="first",
                value=first,
            )
        return self._then(Step, {"n": n, "first": first}, n=n, first=first)

    def repeat(self, n: int | None = None) -> Self:
        """Return the items `n` times, each time in another order where they are shuffled or drawn.

        Parameters
        ----------
        n : int, optional
            None: without end, unless there is no item at all.

        Returns
        -------
        Stream
        """
        if self._recipe.is_endless:
            raise OptionError(
                f"repeat: there is no second pass over a stream without end: {self._recipe}. Leave out one of the two, "
                "or take some of it before",
                option="n",
                value=n,
            )
        n = None if n is None else check_count("n", n)
        return self._then(Repeat, {"n": n}, n=n)

    def batch(self, n: int, drop_last: bool = False) -> Self:
        """Return batches of `n` items.

        Items that are dicts make a dict that has a list of values for each name (None for an item without one); others
        a list.

        Parameters
        ----------
        n : int
        drop_last : bool
            Leave out a last batch that is shorter.

        Returns
        -------
        Stream
        """
        n = check_count("n", n, least=1)
        drop_last = check_flag("drop_last", drop_last)
        return self._then(Batch, {"size": n, "drop_last": drop_last}, n=n, drop_last=drop_last)

    def rebatch(self, n: int, drop_last: bool = False) -> Self:
        """Return batches of `n` rows, of batches that have any number of rows.

        Parameters
        ----------
        n : int
        drop_last : bool
            Leave out a last batch that is shorter.

        Returns
        -------
        Stream
            Of what the batches are: dicts of lists or arrays, lists, or arrays, which are cut and joined. Arrays of two
            dtypes get one that holds the values of both, and are a `StreamError` where there is none.
        """
        self._check_plain("rebatch")
        n = check_count("n", n, least=1)
        drop_last = check_flag("drop_last", drop_last)
        return self._then(Rebatch, {"size": n, "drop_last": drop_last}, n=n, drop_last=drop_last)

    def pad(
        self,
        columns: str | Sequence[str] | None = None,
        *,
        length: int | None = None,
        value: Any = 0,
        lengths: str | None = None,
    ) -> Self:
        """Return batches with arrays in place of lists of rows, filled up to one length; see `loaderx.pad`.

        Parameters
        ----------
        columns : str or sequence of str, optional
            Which lists of a batch that is a dict; by default all whose rows are lists or arrays.
        length : int, optional
            What to fill up to; by default the longest row of each batch. A longer row is an error.
        value : scalar
            What to fill with; a value of the rows' dtype. Rows of Python's numbers become ``int64``, ``uint64`` or
            ``float64``; where no dtype holds the values of a batch as they are, that is a `StreamError`.
        lengths : str, optional
            Add the rows' lengths, an array of int64 under the column's name with this behind it, such as ``"_length"``.

        Returns
        -------
        Stream
        """
        self._check_plain("pad")
        names = None if columns is None else _check_names("columns", columns)
        if length is not None:
            length = check_count("length", length)
        if lengths is not None and (not isinstance(lengths, str) or not lengths):
            raise OptionError(
                f"lengths is {lengths!r}: give what to put behind the names", option="lengths", value=lengths
            )
        if isinstance(value, list | Mapping | Set) or (isinstance(value, np.ndarray) and value.ndim):
            raise OptionError(f"value is {value!r}: give one value to fill with", option="value", value=value)
        options = {"columns": names, "length": length, "value": value, "lengths": lengths}
        return self._then(Pad, options, **{**options, "value": repr(value)})

    def _check_plain(self, step: str) -> None:
        """Raise where batches are of another kind than NumPy's by now."""
        recipe = self._recipe
        while len(recipe.inputs) == 1 and recipe.kind is not WithFormat:
            recipe = recipe.inputs[0]
        kind = recipe.options.get("kind") if recipe.kind is WithFormat else None
        if kind in ("torch", "jax", "arrow"):
            raise OptionError(
                f"{step} takes lists and NumPy's arrays, and the batches are of format {kind!r} here: put with_format "
                f"behind {step}",
                option=step,
                value=kind,
            )

    def select(self, names: str | Sequence[str]) -> Self:
        """Return dicts, or batches that are dicts, of some names, in this order."""
        checked = _check_names("names", names)
        return self._then(Select, {"names": checked}, names=checked)

    def drop(self, names: str | Sequence[str]) -> Self:
        """Return dicts, or batches that are dicts, without some names."""
        checked = _check_names("names", names)
        return self._then(Drop, {"names": checked}, names=checked)

    def rename(self, names: Mapping[str, str]) -> Self:
        """Return dicts, or batches that are dicts, with other names for some: ``{old: new}``."""
        if not isinstance(names, Mapping) or not names:
            raise OptionError(
                f"names is {names!r}: give a dict of old names and new ones", option="names", value=names
            )
        _check_names("names", list(names))
        _check_names("names", list(names.values()))
        return self._then(Rename, {"names": dict(names)}, names=dict(names))

    def with_format(self, kind: Format) -> Self:
        """Return items whose values are of a framework's types.

        Parameters
        ----------
        kind : str
            ``"numpy"``: arrays, where lists are regular; ``"torch"`` and ``"jax"``: arrays of theirs, text as it is;
            ``"arrow"``: a `pyarrow.Table` of one row, or of as many as a batch has, of items that are dicts;
            ``"python"``: lists and numbers. Arrays keep their dtype, but for what the framework has not; numbers of
            Python's become what the framework makes of them (``float64`` in NumPy, the default dtype in PyTorch). A
            list whose rows differ in length stays one: `pad` it before. Whole numbers are never cut, and rounded
            only as the floats beside them are; text and bytes are never cut: bytes become arrays of objects, a list
            that no dtype holds stays one, and an array that the framework has no type for is a `StreamError`. Tensors
            have memory of their own; with ``"numpy"`` an array stays the one it is, which may be the source's.

        Returns
        -------
        Stream

        Raises
        ------
        MissingDependencyError
            When it is iterated: the framework is not installed.
        """
        kind = check_choice("kind", kind, FORMATS)
        options = {"kind": kind, "are_batches": self._recipe.has_batches}
        return self._then(WithFormat, options, kind=kind)


def shuffle_shards(recipe: Recipe, seed: int, most_open: int) -> Recipe:
    """Return a recipe whose sources read their shards in an order of the seed, some in turns.

    What depends on the order of its shards is left as it is, and so is all that is below it.
    """
    if recipe.freezes_order:
        return recipe
    if recipe.kind is Source:
        return recipe.with_options(seed=seed, most_open=most_open)
    if recipe.kind is Concatenate:
        recipe = recipe.with_options(seed=seed)
    return recipe.with_inputs(lambda each: shuffle_shards(each, seed, most_open))


def _add_on_error(on_error: OnError, told: dict[str, Any], options: dict[str, Any]) -> None:
    if check_choice("on_error", on_error, ON_ERROR) == "skip":
        told.update(on_error=on_error)
        options.update(skips=True)


def _check_rng(with_rng: bool, seed: int | None) -> int | None:
    if not with_rng:
        if seed is not None:
            raise OptionError(
                "seed is for functions that are given random numbers: give with_rng=True too, or leave it out",
                option="seed",
                value=seed,
            )
        return None
    return check_count("seed", DEFAULT_SEED if seed is None else seed, most=_MOST_SEED)


def _check_names(option: str, names: Any) -> list[str]:
    """Return names as a list: there is at least one, and none of them twice."""
    found = [names] if isinstance(names, str) else list(names) if isinstance(names, Iterable) else []
    if not found or not all(isinstance(name, str) for name in found) or len(set(found)) < len(found):
        raise OptionError(
            f"{option} is {names!r}: give a name, or a list of different ones", option=option, value=names
        )
    return found
