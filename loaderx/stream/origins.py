"""Where the items of a stream come from, as methods that make one: each checks its arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Self, cast

from loaderx.errors import OptionError
from loaderx.jsonl.parser import Parse, choose_decoder, choose_parser
from loaderx.store.options import check_count
from loaderx.store.telling import shown
from loaderx.stream.arrow import choose_arrow
from loaderx.stream.arrow_rows import import_pyarrow
from loaderx.stream.bad_rows import OnError, check_on_error
from loaderx.stream.lines import LineFiles, told_of
from loaderx.stream.parquet import ParquetFiles, check_names
from loaderx.stream.paths import Paths, check_ordered, list_files
from loaderx.stream.replays import Iterated, Replays
from loaderx.stream.sample_decoding import choose_sample_decoder
from loaderx.stream.sequences import (
    Ranges,
    Sequences,
    check_no_text,
    check_sequence,
    check_shards,
    is_sequence,
)
from loaderx.stream.shards import Shards
from loaderx.stream.webdataset import WebDataset


class Origins(ABC):
    """What a stream begins with."""

    @classmethod
    @abstractmethod
    def _of(cls, shards: Shards) -> Self:
        """Return a stream of the items of shards."""

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
            natural order (part2 before part10); ``{000..099}`` and ``{train,test}`` stand for several, as in a shell. A
            name that is there as it is written is no pattern. Files of a list are looked at when they are read, so that
            ten thousand of them cost nothing beforehand. One that is not there then is like one that is damaged.
        parse : callable or {"orjson", "json"}, optional
            Given the bytes of a line without its end, returns the item. None: ``orjson.loads`` where orjson is
            installed, else ``json.loads``. orjson makes floats of whole numbers beyond 64 bits, and refuses ``NaN``,
            ``Infinity``, numbers above the largest float and halves of surrogate pairs; "json" reads them all.
        on_error : {"raise", "skip"} or callable
            What is done about a line whose `parse` raises. "raise": a `JsonlError` says where it is; the stream can go
            on behind it. "skip": it is left out. A function is given the `JsonlError`, and what it returns takes the
            line's place; it may raise, too. Lines that are left out or replaced are counted, over a resume too. It may
            be another one when the stream is resumed.

            A file that is not there (or must not be read, or is a folder), or is cut off or damaged, ends where it is:
            what is whole before that is given first, and the next file follows. "raise": the `ArchiveError` or
            `FileNotFoundError` is raised once. "skip": the rest of the file is left out. A function is given the error;
            what it returns is of no use. Files whose rest is left out are counted as ``skipped_shards``.

        Raises
        ------
        OptionError
            There are no paths; no file fits a pattern; the only path leads to a folder; an option is none of these.
        FileNotFoundError
            The only path leads nowhere.
        MissingDependencyError
            `parse` is "orjson", which is not installed.

        Notes
        -----
        Lines end with "\\n" or "\\r\\n", and with nothing else; the last one may end with the file. Lines of nothing
        but spaces and tabs are left out, and so is a byte-order mark. A file of no bytes has no lines, but where its
        name says that it is compressed, it is cut off.

        A state holds a byte of the text where a line begins, and how many lines behind that the next one is. In a plain
        file it is gone to at once; a compressed one is decompressed up to there.

        Examples
        --------
        >>> from loaderx.stream import Stream
        >>> _ = (tmp_path / "a.jsonl").write_text('{"n": 1}\\n{"n": 2}\\n')
        >>> list(Stream.from_jsonl(tmp_path / "*.jsonl"))
        [{'n': 1}, {'n': 2}]
        """
        parser = choose_parser(parse)
        # Where none is named, what is installed does.
        told = {"parse": "any" if parse is None else told_of(parser)}
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
            What is done about a line that is not in the encoding, and about files, as for `from_jsonl`.

        Raises
        ------
        OptionError, FileNotFoundError

        Notes
        -----
        As for `from_jsonl`: blank lines are left out.

        Examples
        --------
        >>> from loaderx.stream import Stream
        >>> _ = (tmp_path / "a.txt").write_text("one\\n\\ntwo")
        >>> list(Stream.from_text(tmp_path / "a.txt"))
        ['one', 'two']
        """
        decoder = choose_decoder(encoding)
        told = {"encoding": encoding}
        files = list_files(paths, usual="*.txt")
        return cls._of(LineFiles(files, "from_text", decoder, check_on_error(on_error), told))

    @classmethod
    def from_parquet(
        cls, paths: Paths, *, columns: Sequence[str] | None = None, on_error: OnError = "raise"
    ) -> Self:
        """Return the rows of Parquet files, as dicts of Python objects; each file is a shard. Needs pyarrow.

        Parameters
        ----------
        paths : str, os.PathLike, or iterable of them
            As for `from_jsonl`.
        columns : sequence of str, optional
            Which to read; None: all.
        on_error : {"raise", "skip"} or callable
            What is done about a row of which no Python object can be made, such as text that is not UTF-8 or a time to
            the nanosecond: a `StreamError`. It and damaged files are treated as for `from_jsonl`.

        Raises
        ------
        OptionError, FileNotFoundError
        MissingDependencyError
            pyarrow is not installed.

        Notes
        -----
        Row groups are read one after the other, some rows at a time. To make a row anew (after a resume of a shuffle)
        its row group is read up to it.
        """
        import_pyarrow("pyarrow.parquet")
        files = list_files(paths, usual="*.parquet")
        return cls._of(ParquetFiles(files, check_names("columns", columns), check_on_error(on_error)))

    @classmethod
    def from_arrow(cls, sources: Any, *, on_error: OnError = "raise") -> Self:
        """Return the rows of Arrow IPC files or streams, or of tables in memory, as dicts. Needs pyarrow.

        Parameters
        ----------
        sources : paths as for `from_jsonl`, or pyarrow.Table or RecordBatch, or iterable of these
            Each file, or table, is a shard. Files are mapped, and not read before they have to be.
        on_error : {"raise", "skip"} or callable
            As for `from_parquet`. Of an IPC file that is cut off nothing can be read, and of an IPC stream the batches
            before the cut.

        Raises
        ------
        OptionError, FileNotFoundError
        MissingDependencyError
            pyarrow is not installed.
        """
        import_pyarrow()
        return cls._of(choose_arrow(sources, check_on_error(on_error)))

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
            A function of a sample, which returns the item; functions of bytes by extension (``"cls"`` or ``".cls"``),
            for those samples that have such a member; or True, for the usual ones (``txt``, ``json``, ``cls``,
            ``npy``). None: members stay bytes.
        on_error : {"raise", "skip"} or callable
            What is done about a sample for which `decode` raises, or which has a member twice; the error is a
            `StreamError` or `ArchiveError`. Otherwise as for `from_jsonl`; the sample that damage is in is left out
            with what follows it, for nothing says where it would have ended.

        Raises
        ------
        OptionError, FileNotFoundError

        Notes
        -----
        A state holds the byte where the next sample begins, and of a plain archive nothing else is read to make a
        sample anew.
        """
        files = list_files(paths, usual="*.tar")
        return cls._of(WebDataset(files, choose_sample_decoder(decode), check_on_error(on_error)))

    @classmethod
    def from_dataset(cls, dataset: Any, *, num_shards: int | None = None) -> Self:
        """Return the samples of a dataset, in its order.

        Parameters
        ----------
        dataset : object with ``len()`` and ``[i]``
            Such as `Dataset`, `RaggedDataset`, ``JsonlDataset``, ``TokensDataset``, or one of another library. One with
            ``__getitems__``, which takes a list of indices and returns a list of samples, is read in batches; so are
            loaderx's own. It has to stay open. Dicts that it gives are copied, as for `from_shards`.
        num_shards : int, optional
            How many ranges it is divided into, for `shuffle` reads several of them in turns. None: one for 4,096
            samples, and at most 64. There are no more than samples.

        Raises
        ------
        OptionError

        Notes
        -----
        ``shuffle(buffer_size=None)`` gives all samples in a random order, without a buffer.

        Examples
        --------
        >>> from loaderx.stream import Stream
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
            Each with ``len()`` and ``[i]``, and no text: ``list("ab")`` has the letters of one. They are not copied,
            but for elements that are dicts: each is given as a shallow copy. What is in these, and other elements, are
            changed where somebody changes an item in its place.

        Raises
        ------
        OptionError

        Examples
        --------
        >>> from loaderx.stream import Stream
        >>> list(Stream.from_shards([[1, 2], [3]]))
        [1, 2, 3]
        """
        shards = check_shards("sequences", sequences)
        for sequence in shards:
            check_sequence("sequences", sequence)
        return cls._of(Sequences(shards))

    @classmethod
    def from_iterable(cls, iterable: Iterable[Any]) -> Self:
        """Return the items of what can be iterated any number of times, and gives the same each time.

        Parameters
        ----------
        iterable : iterable
            No iterator, which could be gone through once only, no set, whose order is another one in each process, and
            no text. With ``len()`` and ``[i]``, as a list has them, it is read by index; else the stream resumes by
            replay, as that of `from_generator`. Dicts are copied, as for `from_shards`.

        Raises
        ------
        OptionError

        Examples
        --------
        >>> from loaderx.stream import Stream
        >>> list(Stream.from_iterable({"a": 1, "b": 2}))
        ['a', 'b']
        """
        check_no_text("iterable", iterable)
        check_ordered("iterable", iterable)
        if is_sequence(iterable):
            check_sequence("iterable", iterable)
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
            What it yields is not copied: where it keeps what it yields, nobody may change that in its place.
        shards : sequence, optional
            What it is called with, for each shard. None: it is called once, with nothing.

        Raises
        ------
        OptionError

        Notes
        -----
        There is no going to any place of what a function yields: **it resumes by replay**. A state holds how many items
        were given (``{"replay": n}``), and on a resume the function is called and as many are thrown away, once more
        where a buffer has to be filled anew. What `function` raises is a `StreamError`, once: the shard ends there, for
        a generator that has raised gives nothing any more, and the next one follows.

        Examples
        --------
        >>> from loaderx.stream import Stream
        >>> def squares(begin):
        ...     for n in range(begin, begin + 2):
        ...         yield n * n
        >>> list(Stream.from_generator(squares, [1, 10]))
        [1, 4, 100, 121]
        """
        if not callable(function):
            raise OptionError(
                f"function is {shown(function)}: give a function that returns an iterable",
                option="function",
                value=function,
            )
        return cls._of(Replays(function, None if shards is None else check_shards("shards", shards)))
