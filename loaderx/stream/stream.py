"""`Stream`: a lazy pipeline, put together call by call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self, cast

from loaderx.errors import OptionError
from loaderx.jsonl.parser import Parse, choose_decoder, choose_parser
from loaderx.store.options import check_choice, check_count, check_flag
from loaderx.stream.arrow import choose_arrow
from loaderx.stream.arrow_rows import import_pyarrow
from loaderx.stream.bad_rows import OnError, check_on_error
from loaderx.stream.combining import Weights, check_ends, check_streams, plan_phases
from loaderx.stream.concatenate import Concatenate
from loaderx.stream.interleave import STOPPING, Interleave, Stopping
from loaderx.stream.iterator import StreamIterator, check_state
from loaderx.stream.lines import LineFiles, told_of
from loaderx.stream.node import Recipe
from loaderx.stream.parquet import ParquetFiles, check_names
from loaderx.stream.paths import Paths, list_files
from loaderx.stream.replays import Iterated, Replays
from loaderx.stream.sequences import Ranges, Sequences, check_sequence, is_sequence
from loaderx.stream.shards import Shards
from loaderx.stream.source import Source
from loaderx.stream.steps import DEFAULT_SEED, Steps
from loaderx.stream.webdataset import WebDataset, choose_sample_decoder
from loaderx.stream.zip import Zip

_MOST_SEED = 2**63 - 1
_MOST_EPOCH = 2**62


class Stream(Steps):
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
        sum, of a mixture the least of them, for each part needs all of it, and of streams side by side 1.

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
    def from_jsonl(
        cls,
        paths: Paths,
        *,
        parse: Parse | Literal["orjson", "json"] | None = None,
        on_error: OnError = "raise",
    ) -> Self:
        """Return the objects of JSONL files, plain or compressed by gzip, bzip2, xz or zstd; each file is a shard.

        Parameters
        ----------
        paths : str, os.PathLike, or iterable of them
            Files, or patterns with ``*``, ``?``, ``[...]`` and, for any folders, ``**``, of which each gives files in
            natural order (part2 before part10). A name that is there as it is written is no pattern. Files of a list
            are looked at when they are read, so that ten thousand of them cost nothing beforehand.
        parse : callable or {"orjson", "json"}, optional
            Given the bytes of a line without its end, returns the item. None: ``orjson.loads`` where orjson is
            installed, else ``json.loads``.
        on_error : {"raise", "skip"} or callable
            What is done about a line whose `parse` raises. "raise": a `JsonlError` says where it is; the stream can go
            on behind it. "skip": it is left out. A function is given the `JsonlError`, and what it returns takes the
            line's place; it may raise, too. Lines that are left out or replaced are counted, over a resume too. It may
            be another one when the stream is resumed.

        Raises
        ------
        OptionError
            No file fits a pattern; a path leads to a folder; an option is none of these.
        FileNotFoundError
            The only path leads nowhere.
        MissingDependencyError
            `parse` is "orjson", which is not installed.

        Notes
        -----
        Lines end with "\\n" or "\\r\\n", and with nothing else; the last one may end with the file. Lines of nothing
        but spaces and tabs are left out, and so is a byte-order mark. While iterating, a file that is cut off or
        damaged is an `ArchiveError`, behind the last item that is whole.

        A state holds the byte of the text where the next line begins. In a plain file it is gone to at once; a
        compressed one is decompressed up to there.

        Examples
        --------
        >>> _ = (tmp_path / "a.jsonl").write_text('{"n": 1}\\n{"n": 2}\\n')
        >>> list(Stream.from_jsonl(tmp_path / "*.jsonl"))
        [{'n': 1}, {'n': 2}]
        """
        parser = choose_parser(parse)
        told = {"parse": told_of(parser)}
        return cls._of(LineFiles(list_files(paths), "from_jsonl", parser, check_on_error(on_error), told))

    @classmethod
    def from_text(cls, paths: Paths, *, encoding: str = "utf-8", on_error: OnError = "raise") -> Self:
        """Return the lines of text files, each as a str without its end; the files are as for `from_jsonl`.

        Parameters
        ----------
        paths : str, os.PathLike, or iterable of them
        encoding : str
            One in which a line end is the byte 10.
        on_error : {"raise", "skip"} or callable
            What is done about a line that is not in the encoding.

        Raises
        ------
        OptionError, FileNotFoundError

        Notes
        -----
        As for `from_jsonl`: blank lines are left out.

        Examples
        --------
        >>> _ = (tmp_path / "a.txt").write_text("one\\n\\ntwo")
        >>> list(Stream.from_text(tmp_path / "a.txt"))
        ['one', 'two']
        """
        decoder = choose_decoder(encoding)
        told = {"encoding": encoding}
        return cls._of(LineFiles(list_files(paths), "from_text", decoder, check_on_error(on_error), told))

    @classmethod
    def from_parquet(cls, paths: Paths, *, columns: Sequence[str] | None = None) -> Self:
        """Return the rows of Parquet files, as dicts of Python objects; each file is a shard. Needs pyarrow.

        Parameters
        ----------
        paths : str, os.PathLike, or iterable of them
            As for `from_jsonl`.
        columns : sequence of str, optional
            Which to read; None: all.

        Raises
        ------
        OptionError, FileNotFoundError
        MissingDependencyError
            pyarrow is not installed.

        Notes
        -----
        Row groups are read one after the other, some rows at a time. To make a row anew (after a resume of a shuffle)
        its row group is read up to it. A damaged file is an `ArchiveError` while iterating.
        """
        import_pyarrow("pyarrow.parquet")
        return cls._of(ParquetFiles(list_files(paths), check_names("columns", columns)))

    @classmethod
    def from_arrow(cls, sources: Any) -> Self:
        """Return the rows of Arrow IPC files or streams, or of tables in memory, as dicts. Needs pyarrow.

        Parameters
        ----------
        sources : paths as for `from_jsonl`, or pyarrow.Table or RecordBatch, or iterable of these
            Each file, or table, is a shard. Files are mapped, and not read before they have to be.

        Raises
        ------
        OptionError, FileNotFoundError
        MissingDependencyError
            pyarrow is not installed.
        """
        import_pyarrow()
        return cls._of(choose_arrow(sources))

    @classmethod
    def from_webdataset(cls, paths: Paths, *, decode: Any = None, on_error: OnError = "raise") -> Self:
        """Return the samples of tar archives, plain or compressed, as WebDataset has them; each archive is a shard.

        A sample is a dict of the bytes of members that follow one another and have one path up to the first dot of
        their names, by the rest of the name in lower case, with that path as ``"__key__"``.

        Parameters
        ----------
        paths : str, os.PathLike, or iterable of them
            As for `from_jsonl`.
        decode : callable, dict or True, optional
            A function of a sample, which returns the item; functions of bytes by extension; or True, for the usual
            ones (``txt``, ``json``, ``cls``, ``npy``). None: members stay bytes.
        on_error : {"raise", "skip"} or callable
            What is done about a sample for which `decode` raises, or which has a member twice; the error is a
            `StreamError` or `ArchiveError`. Otherwise as for `from_jsonl`.

        Raises
        ------
        OptionError, FileNotFoundError

        Notes
        -----
        A state holds the byte where the next sample begins, and of a plain archive nothing else is read to make a
        sample anew. What is cut off or damaged is an `ArchiveError` while iterating.
        """
        return cls._of(WebDataset(list_files(paths), choose_sample_decoder(decode), check_on_error(on_error)))

    @classmethod
    def from_dataset(cls, dataset: Any, *, num_shards: int | None = None) -> Self:
        """Return the samples of a dataset, in its order.

        Parameters
        ----------
        dataset : object with ``len()`` and ``[i]``
            Such as `Dataset`, `RaggedDataset`, ``JsonlDataset``, ``TokensDataset``, or one of another library. One with
            ``__getitems__``, which takes a list of indices and returns a list of samples, is read in batches; so are
            loaderx's own. It has to stay open.
        num_shards : int, optional
            How many ranges it is divided into, for `shuffle` reads several of them in turns. None: one for 4,096
            samples, and at most 64.

        Raises
        ------
        OptionError

        Notes
        -----
        ``shuffle(buffer_size=None)`` gives all samples in a random order, without a buffer.

        Examples
        --------
        >>> list(Stream.from_dataset(np.arange(3) * 2))
        [np.int64(0), np.int64(2), np.int64(4)]
        """
        check_sequence("dataset", dataset)
        if num_shards is not None:
            num_shards = check_count("num_shards", num_shards, least=1)
        return cls._of(Ranges(dataset, num_shards))

    @classmethod
    def from_shards(cls, sequences: Iterable[Sequence[Any]]) -> Self:
        """Return the elements of sequences, each of which is a shard.

        Parameters
        ----------
        sequences : iterable of sequences
            Each with ``len()`` and ``[i]``. They are not copied.

        Raises
        ------
        OptionError

        Examples
        --------
        >>> list(Stream.from_shards([[1, 2], [3]]))
        [1, 2, 3]
        """
        shards = list(sequences)
        for sequence in shards:
            check_sequence("sequences", sequence)
        return cls._of(Sequences(shards))

    @classmethod
    def from_iterable(cls, iterable: Iterable[Any]) -> Self:
        """Return the items of what can be iterated any number of times, and gives the same each time.

        Parameters
        ----------
        iterable : iterable
            No iterator, which could be gone through once only. With ``len()`` and ``[i]``, as a list has them, it is
            read by index; else the stream resumes by replay, as that of `from_generator`.

        Raises
        ------
        OptionError

        Examples
        --------
        >>> list(Stream.from_iterable({"a": 1, "b": 2}))
        ['a', 'b']
        """
        if is_sequence(iterable):
            return cls._of(Sequences([cast(Sequence[Any], iterable)], "from_iterable"))
        return cls._of(Replays(Iterated(iterable), None, "from_iterable"))

    @classmethod
    def from_generator(
        cls, function: Callable[..., Iterable[Any]], shards: Sequence[Any] | None = None
    ) -> Self:
        """Return what a function yields.

        Parameters
        ----------
        function : callable
            Called for each pass, and anew for each resume; returns an iterable, which has to give the same each time.
        shards : sequence, optional
            What it is called with, for each shard. None: it is called once, with nothing.

        Raises
        ------
        OptionError

        Notes
        -----
        There is no going to any place of what a function yields: **it resumes by replay**. A state holds how many items
        were given (``{"replay": n}``), and on a resume the function is called and as many are thrown away, once more
        where a buffer has to be filled anew. What `function` raises is a `StreamError`, again and again, for a
        generator that has raised gives nothing any more.

        Examples
        --------
        >>> def squares(begin):
        ...     for n in range(begin, begin + 2):
        ...         yield n * n
        >>> list(Stream.from_generator(squares, [1, 10]))
        [1, 4, 100, 121]
        """
        if not callable(function):
            raise OptionError(
                f"function is {function!r}: give a function that returns an iterable",
                option="function",
                value=function,
            )
        return cls._of(Replays(function, shards))

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
            Of the draws. The order of epoch 0 is that of `datasets.interleave_datasets` with this seed.
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
        options = {"phases": phases, "seed": seed, "stopping": stopping}
        return cls(Recipe(Interleave, _recipes(found), options, told), found[0].epoch)

    @classmethod
    def concatenate(cls, streams: Sequence[Stream]) -> Self:
        """Return all items of several streams, one stream behind the other.

        Parameters
        ----------
        streams : sequence of Stream
            Only the last one may be without end. A later `shuffle` draws their order, too.

        Returns
        -------
        Stream
        """
        found = check_streams(streams, Stream)
        recipes = _recipes(found)
        check_ends(recipes)
        return cls(Recipe(Concatenate, recipes), found[0].epoch)

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

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next pass begin at a state, in its epoch. Passes that are under way stay as they are.

        Parameters
        ----------
        state : mapping
            What `state_dict` returned, of this stream or its iterator, perhaps in another process.

        Raises
        ------
        StateMismatchError
            It is of another pipeline; ``mismatches`` has both sides. That its files have changed is noticed when the
            pass begins.
        """
        check_state(state, self._recipe.describe())
        self._state = dict(state)
        self._epoch = state["epoch"]

    def __repr__(self) -> str:
        return f"<Stream {self._recipe}>"

    def __getstate__(self) -> dict[str, Any]:
        # A pass does not pickle: its state does.
        return {**self.__dict__, "_newest": None}


def _recipes(streams: Sequence[Stream]) -> tuple[Recipe, ...]:
    return tuple(stream._recipe for stream in streams)
