"""`Stream`: a lazy pipeline, put together call by call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any, Self

from loaderx.errors import OptionError
from loaderx.store.options import CodecOrAuto, check_choice, check_count, check_flag, check_path
from loaderx.store.progress import Progress
from loaderx.stream.combining import Weights, check_ends, check_streams, plan_phases
from loaderx.stream.concatenate import Concatenate
from loaderx.stream.interleave import STOPPING, Interleave, Stopping
from loaderx.stream.iterator import StreamIterator
from loaderx.stream.node import Recipe
from loaderx.stream.origins import Origins
from loaderx.stream.places import Settings
from loaderx.stream.records import KINDS, Kind
from loaderx.stream.saved import check_state, own
from loaderx.stream.seeds import seed_in_place
from loaderx.stream.shards import Shards
from loaderx.stream.source import Source
from loaderx.stream.steps import DEFAULT_SEED, Steps
from loaderx.stream.write import WrittenStream, write_items
from loaderx.stream.zip import Zip

_MOST_SEED = 2**63 - 1
_MOST_EPOCH = 2**62
_CHUNK_BYTES = 64 << 20


class Stream(Origins, Steps):
    """Items of files or other sources, through a chain of steps that nothing runs until it is iterated.

    Made by one of the ``from_`` methods; each step returns another stream and leaves this one as it is.
    ``iter(stream)`` begins a pass, `StreamIterator`: each one gives the same items in the same order, until `set_epoch`
    says otherwise, and several at once do not disturb each other. A stream pickles, if its functions and sources do.

    Attributes
    ----------
    epoch : int
        The epoch of the next pass.
    num_shards : int
        Into how many parts the items can be divided by shards: those of the source; of streams behind one another their
        sum, of a mixture the least of them, for each part needs all of it. 1 of streams side by side, and behind
        `skip`, `take`, `step` and functions that are given the number of the item, for which items there are depends on
        all shards.

    Examples
    --------
    >>> stream = Stream.from_shards([[1, 2, 3], [4, 5]]).map(lambda x: 10 * x).batch(2)
    >>> list(stream)
    [[10, 20], [30, 40], [50]]
    >>> passing = iter(stream)
    >>> next(passing)
    [10, 20]
    >>> state = passing.state_dict()  # plain JSON
    >>> stream.load_state_dict(state)
    >>> list(stream)
    [[30, 40], [50]]
    """

    def __init__(self, recipe: Recipe, epoch: int = 0) -> None:
        self._recipe = recipe
        self._epoch = epoch
        # Where the next pass begins, if not at the beginning; and the newest pass.
        self._state: dict[str, Any] | None = None
        self._newest: StreamIterator | None = None

    def _with(self, recipe: Recipe) -> Self:
        return type(self)(recipe, self._epoch)

    @classmethod
    def _of(cls, shards: Shards) -> Self:
        return cls(Recipe(Source, options={"shards": shards}, told=shards.describe()))

    @classmethod
    def interleave(
        cls,
        streams: Sequence[Stream],
        probabilities: Weights | None = None,
        seed: int = DEFAULT_SEED,
        stopping: Stopping = "first_exhausted",
    ) -> Self:
        """Return a mixture: items of several streams in turns, or each of a stream that is drawn.

        Parameters
        ----------
        streams : sequence of Stream
            A stream is exhausted with its last item, and an empty one when it is first its turn: with
            ``"first_exhausted"`` the mixture ends there, and otherwise it goes on without.
        probabilities : sequence of float, or dict of int to such, optional
            How often to draw from each stream, in proportion. A dict has them by the number of items that the mixture
            has given: ``{0: [0.9, 0.1], 10_000: [0.5, 0.5]}`` changes them behind 10,000. None: in turns.
        seed : int
            Of the draws. The order of epoch 0 is that of `datasets.interleave_datasets` with this seed; of mixtures of
            mixtures with the same seed, each has draws of its own.
        stopping : str
            ``"first_exhausted"``: end when a stream is exhausted. ``"all_exhausted"``: begin such a stream again, in
            another order where it is shuffled, and end when each one has been exhausted.
            ``"all_exhausted_without_replacement"``: give each item once. Streams whose probability is 0 from now on are
            not waited for; where nothing is left that the probabilities draw from, the next ones hold at once.

        Returns
        -------
        Stream
            `StreamIterator.counts` says how many items each stream has given.

        Raises
        ------
        OptionError
        """
        found = check_streams(streams, Stream)
        phases = plan_phases(probabilities, len(found))
        seed = check_count("seed", seed, most=_MOST_SEED)
        stopping = check_choice("stopping", stopping, STOPPING)
        told = {
            "probabilities": None
            if phases is None
            else [[begin, list(weights)] for begin, weights in phases],
            "seed": seed,
            "stopping": stopping,
        }
        recipes = _recipes(found)
        n_below = max(recipe.count_seeded("interleave", seed) for recipe in recipes)
        options = {"phases": phases, "seed": seed_in_place(seed, n_below), "stopping": stopping}
        return cls(Recipe(Interleave, recipes, options, told), found[0].epoch)

    @classmethod
    def concatenate(cls, streams: Sequence[Stream]) -> Self:
        """Return all items of several streams, one stream behind the other.

        Parameters
        ----------
        streams : sequence of Stream
            Only the last one may be without end. A later `shuffle` draws their order, too. What was put together by
            `concatenate` itself counts as its streams.

        Returns
        -------
        Stream
        """
        found = check_streams(streams, Stream)
        recipes = _recipes(found)
        check_ends(recipes)
        # As one, however they were put together: a loop that puts one more behind the others makes no deep pipeline.
        flat = [inner for each in recipes for inner in (each.inputs if each.kind is Concatenate else (each,))]
        return cls(Recipe(Concatenate, tuple(flat)), found[0].epoch)

    @classmethod
    def zip(cls, streams: Sequence[Stream], *, strict: bool = False) -> Self:
        """Return tuples of an item of each stream, until the first of them ends.

        Parameters
        ----------
        streams : sequence of Stream
            A later `shuffle` leaves the order of their shards alone, so that the same items stay together.
        strict : bool
            Raise `StreamError` where the streams do not end together; otherwise the rest of the longer ones is left
            out.

        Returns
        -------
        Stream
        """
        found = check_streams(streams, Stream)
        strict = check_flag("strict", strict)
        return cls(Recipe(Zip, _recipes(found), {"strict": strict}, {"strict": strict}), found[0].epoch)

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def num_shards(self) -> int:
        return self._recipe.num_shards

    def set_epoch(self, epoch: int) -> None:
        """Have later passes be those of an epoch: another order of each shuffle, other draws of each mixture.

        Parameters
        ----------
        epoch : int
            Another one than before begins at its beginning, whatever state has been loaded; passes that are under way
            stay as they are. The same one changes nothing.
        """
        epoch = check_count("epoch", epoch, most=_MOST_EPOCH)
        if epoch != self._epoch:
            self._epoch, self._state, self._newest = epoch, None, None

    def __iter__(self) -> StreamIterator:
        """Begin a pass: at the state that has been loaded, if it is the first one since, or else at the beginning."""
        passing = StreamIterator(self._recipe, self._epoch, self._state)
        self._newest, self._state = passing, None
        return passing

    def state_dict(self) -> dict[str, Any]:
        """Return where the newest pass is; before the first one, where it would begin. See `StreamIterator`."""
        if self._state is not None:
            return self._state
        if self._newest is not None:
            return self._newest.state_dict()
        beginning = StreamIterator(self._recipe, self._epoch)
        try:
            return beginning.state_dict()
        finally:
            beginning.close()

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Have the next pass begin at a state, in its epoch. Passes that are under way stay as they are.

        Parameters
        ----------
        state : mapping or None
            What `state_dict` returned, of this stream or its iterator, perhaps in another process. None: forget a state
            that was loaded, such as one that turned out not to fit its files, and begin at the beginning.

        Raises
        ------
        StateMismatchError
            It is of another pipeline; ``mismatches`` has both sides. That its files have changed is noticed when the
            pass begins.
        """
        if state is None:
            self._state = self._newest = None
            return
        check_state(state, self._recipe.describe())
        self._state = own(state)
        self._epoch = state["epoch"]

    def write(
        self,
        path: str | os.PathLike[str],
        kind: Kind | None = None,
        codec: CodecOrAuto | None = None,
        chunk_bytes: int = _CHUNK_BYTES,
        dict_size: int | None = None,
        *,
        level: int | None = None,
        threads: int = 0,
        progress: Progress = None,
        overwrite: bool = False,
        upgrade: bool = False,
    ) -> WrittenStream:
        """Write the items of a pass as a store, one record for each, which is read in any order; or as several stores.

        Parameters
        ----------
        path : str or os.PathLike
            Where there is nothing, what is written appears when it is complete. Existing stores of this kind are
            appended to, and show all new records or none.
        kind : {"array", "ragged", "lines", "columns"}, optional
            "array": numbers, or arrays of one dtype and shape, which `Dataset` reads. "ragged": arrays that differ in
            the number of their rows, or bytes, which are arrays of uint8; `RaggedDataset` reads them. "lines": text and
            bytes as they are, anything else as JSON; ``JsonlDataset`` reads them, with ``parse`` for what is not JSON.
            "columns": of dicts, a folder with a store for each name, ``NAME.zr``, of one of the other kinds; text
            there is JSON, too. None: that of the stores that are there; else "columns" of dicts which have arrays or
            bytes among their values, "lines" of other dicts and of text, and "array" or "ragged" of what is numbers or
            arrays, as the first 1,024 items say, or fewer that have `chunk_bytes`.
        codec : str, optional
            As in `write_dataset`; for lines as in ``write_lines``. Columns of lines are never shuffled.
        chunk_bytes : int
            Bytes of records that are compressed at a time; bounds the memory taken. A dictionary is trained, and "auto"
            decides, on the first of so many.
        dict_size, level, threads, overwrite, upgrade
            As in `write_dataset`.
        progress : bool or callable, optional
            None: a bar where standard error is a terminal. A callable gets (bytes of records done, about how many
            there will be in all, or None where nobody knows).

        Returns
        -------
        WrittenStream

        Raises
        ------
        SchemaError
            An item makes no record like the others': its number, where it comes from and what to do are named.
        OptionError
            The stream has no end, or its items are batches and no kind is given.
        NotAStoreError, DictionaryError, RecordTooLargeError, StoreFullError, StoreIOError
        StreamError, JsonlError, ArchiveError
            As when the stream is iterated. In every case what was there before is unchanged.

        Notes
        -----
        The pass begins as that of ``iter(stream)`` does, at a state that has been loaded too. Nothing is kept of a
        write that was cut off.

        Examples
        --------
        >>> from loaderx.jsonl import JsonlDataset
        >>> from loaderx.stream import Stream
        >>> stream = Stream.from_shards([[{"n": 1}, {"n": 2}], [{"n": 3}]])
        >>> stream.write(tmp_path / "numbers.zr").kind
        'lines'
        >>> JsonlDataset(tmp_path / "numbers.zr")[2]
        {'n': 3}
        >>> stream.write(tmp_path / "columns", kind="columns").stores["n"].name
        'n.zr'
        >>> Dataset(tmp_path / "columns" / "n.zr")[:]
        array([1, 2, 3])
        """
        target = check_path(path)
        if kind is not None:
            kind = check_choice("kind", kind, KINDS)
        if self._recipe.is_endless:
            raise OptionError(
                f"write: the stream has no end: {self._recipe}. Take some of it before, or leave out repeat()",
                option="path",
                value=path,
            )
        if kind is None and self._recipe.has_batches:
            raise OptionError(
                f"write: the items are batches, and each would become one record: {self._recipe}. Leave out the step "
                "that makes them, or give the kind of record that a batch becomes",
                option="kind",
                value=None,
            )
        settings = Settings(
            kind=kind,
            codec=codec,
            chunk_bytes=check_count("chunk_bytes", chunk_bytes, least=1),
            dict_size=dict_size,
            level=level,
            threads=threads,
            overwrite=check_flag("overwrite", overwrite),
            upgrade=upgrade,
        )
        with iter(self) as passing:
            return write_items(passing, target, settings, progress)

    def __repr__(self) -> str:
        return f"<Stream {self._recipe}>"

    def __getstate__(self) -> dict[str, Any]:
        # A pass does not pickle: its state does.
        return {**self.__dict__, "_newest": None}


def _rename(mixin: type) -> None:
    # So that Python's own errors about arguments call the methods what users do.
    for name, each in vars(mixin).items():
        function = getattr(each, "__func__", each)
        if isinstance(function, FunctionType):
            function.__qualname__ = f"Stream.{name}"


_rename(Origins)
_rename(Steps)


def _recipes(streams: Sequence[Stream]) -> tuple[Recipe, ...]:
    return tuple(stream._recipe for stream in streams)
