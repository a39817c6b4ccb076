"""`tokenize`: from text to a dataset of samples, in bounded memory, and on from where it was cut off."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from loaderx.errors import OptionError, SchemaError, StateMismatchError, ZrecordError
from loaderx.store.options import check_count, check_flag, check_path
from loaderx.store.progress import Progress as Report
from loaderx.store.progress import reporting
from loaderx.tokens.batches import Batch, OnError, document_error, read_batches
from loaderx.tokens.encoders import EncodeError, Encoder, as_encoder
from loaderx.tokens.heads import Head, HeadTaker, check_head
from loaderx.tokens.options import Options, check_options
from loaderx.tokens.result import TokenizeResult
from loaderx.tokens.sources import ChangedFileError, Source, open_source
from loaderx.tokens.state import PROGRESS, Progress, as_progress, check_same, read_manifest
from loaderx.tokens.stores import Stores
from loaderx.tokens.texts import TextOf
from loaderx.tokens.unfinished import Unfinished, check_target, data_inode
from loaderx.tokens.vocabulary import check_vocabulary
from loaderx.tokens.windows import Commit, State, Windows, first_state
from loaderx.tokens.workers import encode_all

_MOST_WORKERS = 1024


def tokenize(
    source: Any,
    dest: str | os.PathLike[str],
    encode: Any,
    *,
    eos_id: int | None,
    sample_size: int | None = 1024,
    dtype: npt.DTypeLike | Literal["auto"] = "auto",
    vocab_size: int | None = None,
    text: TextOf = "text",
    packing: Literal["stream", "best_fit"] = "stream",
    last: Literal["drop", "pad", "keep"] | None = None,
    pad_id: int | None = None,
    window: int | None = None,
    side_streams: Iterable[str] = (),
    masked_types: Iterable[str] = ("prompt", "system"),
    mask_eos: bool = False,
    add_special_tokens: bool = False,
    allow_empty: bool = False,
    on_error: OnError = "raise",
    pattern: str | None = None,
    codec: Literal["raw", "zstd", "zstd_shuffle"] = "zstd",
    level: int | None = None,
    workers: int = 0,
    overwrite: bool = False,
    progress: Report = None,
) -> TokenizeResult:
    """Turn documents into token samples, packed and ready for training.

    Parameters
    ----------
    source : path, sequence of pathlib.Path, Index, dataset, or iterable
        A JSONL file, or a folder of them, or a store of lines; several files, as `pathlib.Path`: strings in a list are
        documents; anything with a length and ``[i]``, such as a `loaderx.jsonl.JsonlDataset`; or any iterable of
        records, read once. One file or folder is read through its index where it has one, and line by line where not.
        A record is an object (a dict) or a string. Documents are numbered from 0 in their order: those of a
        `loaderx.jsonl.JsonlDataset` by their indices.
    dest : str or os.PathLike
        The dataset's folder, which appears when it is complete. Until then the run writes to ``DEST.unfinished``.
    encode : tokenizers.Tokenizer, transformers tokenizer, or callable
        A tokenizer encodes batches with its own threads. A callable gets a text and returns its ids: a list, an array,
        or an object with `ids`.
    eos_id : int or None
        The id that stands behind each document. None is for ``sample_size=None`` only.
    sample_size : int or None
        Tokens in a sample. None: every document is a record of a ragged dataset, as it is, without EOS.
    dtype : "auto" or dtype_like
        "auto": the smallest unsigned type that holds the vocabulary; where its size is not known, uint32, or uint64 for
        the ids given here. Readers need not be told.
    vocab_size : int, optional
        One more than the largest id; a larger one is an error. None: the tokenizer's; of a function not known.
    text : str or callable
        The key of a record's text, or a function that returns it. In place of a text there may be parts, a list of
        ``{"type": ..., "text": ...}``, each encoded by itself; where a record has no such key, its "parts" are taken.
    packing : {"stream", "best_fit"}
        "stream" joins all documents and cuts them into samples. "best_fit" cuts no document that fits into a sample: of
        each window of documents it chooses which share one; a longer document is cut into full samples and a rest.
    last : {"drop", "pad", "keep"}, optional
        What becomes of samples that are not full: the last one with "stream", and any with "best_fit". "keep" writes
        them as they are, so that the dataset is a ragged one. None: "drop" with "stream", "pad" with "best_fit".
    pad_id : int, optional
        What fills samples up, with ``last="pad"``; None: `eos_id`.
    window : int, optional
        Documents packed and written together; one of 4,194,304 tokens ends in any case. None: 8,192 with "best_fit",
        and no number with "stream".
    side_streams : iterable of {"document_ids", "positions", "loss_mask"}
        What to write beside the tokens, on the same indices: the number of each token's document (int64; -1: padding),
        its position in the document (int32), whether it is left out of the loss (uint8; 1: it is).
    masked_types : iterable of str
        Types of parts that are left out of the loss. A text without parts has the type "text".
    mask_eos : bool
        Leave EOS out of the loss, too.
    add_special_tokens : bool
        Let a tokenizer add those that its post-processor puts around a text.
    allow_empty : bool
        Take documents without a character: an EOS each, in a ragged dataset a record of no tokens.
    on_error : {"raise", "skip"} or callable
        What to do about a record that is no JSON, or has no text: its key is missing, or the text is empty, null or no
        string, or the function `text` raises. "skip" counts it and goes on; a callable is called with the error first,
        and may raise it.
    pattern : str, optional
        Which files of a folder, as in `build_index`; for nothing but folders. An index of another pattern is not used.
        None: those that are indexed, or ``"**/*.jsonl"``.
    codec : {"raw", "zstd", "zstd_shuffle"}
        As in `write_dataset`; with "zstd" positions are shuffled.
    level : int, optional
        As in `write_dataset`.
    workers : int
        Processes to encode in; 0: this one. For a callable: one that pickles by its name.
    overwrite : bool
        Replace a dataset of tokens at `dest`, once the new one is complete; and begin anew where another run with other
        options has begun.
    progress : bool or callable, optional
        None: a bar where standard error is a terminal. A callable gets (bytes done, bytes in all): of the files that
        are read; else of the tokens, and None.

    Returns
    -------
    TokenizeResult

    Raises
    ------
    DocumentError
        A record has no text, or its ids are beyond the vocabulary or the dtype. What was written stays, and the next
        run goes on there.
    JsonlError
        A line is no JSON.
    StaleIndexError
        The files are not what was indexed.
    StateMismatchError
        A run with other options, or of another source, has written or begun `dest`.
    TokenizeError
        A worker process died; a file changed while it was read; or the documents have changed since the run was cut
        off.
    OptionError, ArchiveError, NotAStoreError, StoreLockedError, StoreFullError, StoreIOError, SchemaError

    Warns
    -----
    StaleIndexWarning
        The index lacks files, or what was added to some: only what is indexed is taken.

    Notes
    -----
    Killed at any moment, the next run with the same arguments goes on behind the last window that was written, and the
    files are in the end those of a run that was not. They do not depend on `workers` either. Takes memory for a window
    and some batches. Everything but `encode` in worker processes runs in this process; `text` and `on_error` in this
    thread, and so does a callable `encode` with ``workers=0``. Where the dataset is complete nothing is done, but
    that the first documents, 64 at most, are read and encoded again, to know the source and the encoder by. What
    differs only behind them is noticed in files, not in a sequence or an iterable.

    Examples
    --------
    >>> from loaderx.tokens import TokensDataset, tokenize
    >>> texts = ["one", "twenty"]
    >>> result = tokenize(texts, tmp_path / "bytes", lambda text: list(text.encode()), eos_id=0, sample_size=4)
    >>> result.samples, result.dropped_tokens
    (2, 3)
    >>> TokensDataset(tmp_path / "bytes")[:]
    array([[111, 110, 101,   0],
           [116, 119, 101, 110]], dtype=uint32)
    """
    encoder = as_encoder(encode, check_flag("add_special_tokens", add_special_tokens))
    options = check_options(
        encoder,
        eos_id=eos_id,
        sample_size=sample_size,
        dtype=dtype,
        vocab_size=vocab_size,
        text=text,
        packing=packing,
        last=last,
        pad_id=pad_id,
        window=window,
        side_streams=side_streams,
        masked_types=masked_types,
        mask_eos=mask_eos,
        allow_empty=allow_empty,
        codec=codec,
        level=level,
    )
    if not callable(on_error) and on_error not in ("raise", "skip"):
        raise OptionError(
            f'on_error is {on_error!r}: give "raise", "skip", or a function that is called with the error',
            option="on_error",
            value=on_error,
        )
    workers = check_count("workers", workers, most=_MOST_WORKERS)
    check_flag("overwrite", overwrite)
    target = Path(os.path.realpath(check_path(dest)))
    opened = open_source(source, pattern)
    run = _Run(target, opened, encoder, options, on_error, workers)
    if not overwrite and (done := run.done()) is not None:
        return done
    check_target(target, overwrite)
    return run.go_on(overwrite, progress)


class _Run:
    """One call of `tokenize`, its arguments checked."""

    def __init__(
        self,
        target: Path,
        source: Source,
        encoder: Encoder,
        options: Options,
        on_error: OnError,
        workers: int,
    ) -> None:
        self._target = target
        self._source = source
        self._encoder = encoder
        self._options = options
        self._on_error = on_error
        self._workers = workers
        self._asked = {"options": options.as_json(), "source": source.identity()}

    def done(self) -> TokenizeResult | None:
        """Return what is there already; None: nothing is."""
        manifest = read_manifest(self._target)
        if manifest is None:
            return None
        advice = "Choose another dest, or overwrite=True to replace the dataset"
        check_same(self._asked, manifest, self._target, advice)
        self._check_head(Head.from_json(manifest["first_documents"]), self._target, advice)
        unfinished = Unfinished(self._target)
        if unfinished.path.is_dir():  # killed between giving the dataset its name and tidying up
            with unfinished:
                found = unfinished.read()
                if found is None or found.get("data") is not None:
                    unfinished.remove()
        return TokenizeResult(
            self._target,
            documents=manifest["documents"],
            skipped=manifest["skips"],
            tokens=manifest["tokens"],
            samples=manifest["samples"],
            dropped_tokens=manifest["dropped_tokens"],
            pad_tokens=manifest["pad_tokens"],
            dtype=self._options.dtype,
            was_complete=True,
        )

    def _check_head(self, head: Head | None, where: Path, advice: str) -> None:
        check_head(head, self._source, self._encoder, self._options, where, advice)

    def go_on(self, overwrite: bool, progress: Report) -> TokenizeResult:
        """Write the dataset, from where a run was cut off, or from the beginning."""
        with Unfinished(self._target) as unfinished:
            reached = self._reached(unfinished, overwrite)
            if not unfinished.is_installed(reached):
                if reached.data is None:
                    reached = self._write(unfinished, reached, progress)
                unfinished.install(reached)
            else:
                unfinished.remove()
        state = reached.state
        return TokenizeResult(
            self._target,
            state.documents,
            state.skips,
            state.tokens,
            state.samples,
            state.dropped_tokens,
            state.pad_tokens,
            self._options.dtype,
        )

    def _reached(self, unfinished: Unfinished, overwrite: bool) -> Progress:
        """Return how far a run that was cut off is; of one with other options nothing is kept, where it may go."""
        try:
            found = unfinished.read()
            if found is not None:
                advice = "Give the same to go on with it, or overwrite=True to begin anew"
                check_same(self._asked, found, unfinished.path, advice)
                reached = as_progress(unfinished.path / PROGRESS, found, self._options)
                self._check_head(reached.head, unfinished.path, advice)
                if (
                    reached.data is None
                    or unfinished.is_installed(reached)
                    or unfinished.is_complete(reached)
                ):
                    return reached
                # Finished, and then moved away or removed: there is nothing to go on with.
        except (SchemaError, StateMismatchError):
            if not overwrite:
                raise
        unfinished.clear()
        begun = Progress(self._asked, first_state(self._options))
        unfinished.write(begun)
        return begun

    def _write(self, unfinished: Unfinished, reached: Progress, progress: Report) -> Progress:
        """Write all records that are not written yet, and return the progress of the complete dataset."""
        written = state = reached.state
        taker = HeadTaker(reached.head)
        try:
            with (
                reporting(progress, self._source.total_bytes) as report,
                Stores(unfinished.data, self._options, state) as stores,
                ThreadPoolExecutor(1, "loaderx-tokens") as writer,
            ):

                def write(commit: Commit) -> None:
                    nonlocal written
                    stores.write(commit)
                    unfinished.write(Progress(self._asked, commit.state, taker.of(commit.state.documents)))
                    written = commit.state

                writing: Future[None] | None = None
                for commit in self._commits(state, taker, report):
                    if writing is not None:
                        writing.result()
                    writing = writer.submit(write, commit)
                assert writing is not None, "the last commit always comes"
                writing.result()
                stores.finish(self._asked, written, taker.of(written.documents))
        except Exception as error:
            if isinstance(error, ChangedFileError) and written.place is not None:
                # Nobody knows which version of the file the documents are of that were written.
                spoiled = {**self._asked["source"], "changed_while_read": str(error.path)}
                unfinished.write(
                    Progress({**self._asked, "source": spoiled}, written, taker.of(written.documents))
                )
            if written.place is None:  # nothing is lost with it
                with contextlib.suppress(ZrecordError, OSError):
                    unfinished.remove()
            raise
        complete = Progress(self._asked, written, taker.of(written.documents), data_inode(unfinished))
        unfinished.write(complete)
        return complete

    def _commits(self, state: State, taker: HeadTaker, report: Callable[[int], None]) -> Iterator[Commit]:
        """Yield what is to be written behind a state."""
        source, options = self._source, self._options
        windows = Windows(options, state)
        done_bytes = 0 if state.place is None else source.done_bytes(state.place)
        report(done_bytes)
        batches = read_batches(
            source, state.place, state.skips, options.text, self._on_error, options.allow_empty
        )
        encoded = encode_all(batches, self._encoder, options.appended_eos, options.dtype, self._workers)
        last = Batch()
        try:
            for last, (ids, lengths) in encoded:
                check_vocabulary(last, ids, lengths, options.vocab_size)
                taker.take(last, ids, lengths)
                yield from windows.add(last, ids, lengths)
                if source.total_bytes is None:
                    report(ids.nbytes)
                elif last.place_behind is not None:
                    report(source.done_bytes(last.place_behind) - done_bytes)
                    done_bytes = source.done_bytes(last.place_behind)
        except EncodeError as error:
            place = error.batch.places[error.batch.document_of(error.text)]
            raise document_error(source, place, "encode", error.problem) from error.__cause__
        finally:
            encoded.close()
        yield windows.finish(last.place_behind, last.skips_behind)
