"""From encoded documents to what is written at once.

A window is a number of documents that depends on nothing but the documents: it ends with the document that is the
`window`-th, or has the `WINDOW_TOKENS`-th token. So a run that was cut off and goes on writes the same windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from loaderx.tokens.batches import Batch, Skips
from loaderx.tokens.options import WINDOW_TOKENS, Options
from loaderx.tokens.packing import (
    Flat,
    Records,
    concatenate,
    cut_stream,
    lay_out,
    n_tokens,
    pad_records,
    plan_best_fit,
)
from loaderx.tokens.sides import LOSS_MASK, TOKENS, make_sides
from loaderx.tokens.sources import Place


@dataclass(frozen=True, slots=True)
class State:
    """Where a run is, between two windows.

    Attributes
    ----------
    place : Place or None
        The last document that was taken in; None: none was.
    skips : dict of str to int
        Documents skipped so far, by what was wrong with them.
    rest : dict of str to ndarray
        Tokens that wait for a full sample, and what belongs to them.
    samples, documents, tokens : int
        Records written, documents they are made of, and tokens of these, EOS included.
    pad_tokens, dropped_tokens : int
    """

    place: Place | None
    skips: Skips
    rest: Flat
    samples: int = 0
    documents: int = 0
    tokens: int = 0
    pad_tokens: int = 0
    dropped_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """What is written at once, and where the run is then."""

    records: Records
    state: State


def first_state(options: Options) -> State:
    """Return where a run begins."""
    return State(None, {}, {name: np.empty(0, dtype) for name, dtype in options.dtypes.items()})


class Windows:
    """Collects documents and gives a `Commit` for each window.

    Parameters
    ----------
    options : Options
    state : State
        Where the run is.
    window_tokens : int
        Tokens with which a window ends.
    """

    def __init__(self, options: Options, state: State, window_tokens: int = WINDOW_TOKENS) -> None:
        self._options = options
        self._state = state
        self._window_tokens = window_tokens
        self._begin()

    def _begin(self) -> None:
        self._parts: list[Flat] = []
        self._lengths: list[npt.NDArray[np.int64]] = []
        self._documents = 0
        self._tokens = 0

    def add(
        self, batch: Batch, ids: npt.NDArray[np.integer], lengths: npt.NDArray[np.int64]
    ) -> Iterator[Commit]:
        """Take a batch in, and yield the windows that end with one of its documents.

        Parameters
        ----------
        batch : Batch
        ids : ndarray, shape (tokens,)
            Of its texts, each document's EOS included.
        lengths : ndarray of int64, shape (texts,)
        """
        if not batch.n_parts:
            return
        counts = np.array(batch.n_parts, np.int64)
        ends = np.cumsum(counts) - 1
        of_documents = np.diff(np.cumsum(lengths)[ends], prepend=0)
        flat = {TOKENS: ids, **self._sides(batch, lengths, ends, of_documents)}
        behind = np.cumsum(of_documents)
        first, first_token = 0, 0
        while first < len(counts):
            # Up to the document that fills the window, or all there are.
            last = first + int(
                np.searchsorted(behind[first:] - first_token, self._window_tokens - self._tokens, side="left")
            )
            if self._options.window is not None:
                last = min(last, first + self._options.window - self._documents - 1)
            is_whole = last < len(counts)
            last = min(last, len(counts) - 1)
            last_token = int(behind[last])
            self._parts.append({name: values[first_token:last_token] for name, values in flat.items()})
            self._lengths.append(of_documents[first : last + 1])
            self._documents += last + 1 - first
            self._tokens += last_token - first_token
            if is_whole:
                yield self._close(batch.places[last], batch.skips[last])
            first, first_token = last + 1, last_token

    def finish(self, place: Place | None, skips: Skips) -> Commit:
        """Return the last commit, with the documents of a window that is not full and with what rests then.

        Parameters
        ----------
        place : Place or None
            The last record of the source.
        skips : dict of str to int
            Skipped in all.
        """
        commit = self._close(place, skips)
        rest, state = commit.state.rest, commit.state
        n, sample_size = n_tokens(rest), self._options.sample_size
        if n == 0 or sample_size is None:
            return commit
        nothing = {name: values[:0] for name, values in rest.items()}
        if self._options.last == "drop":
            return Commit(
                commit.records, replace(state, rest=nothing, dropped_tokens=state.dropped_tokens + n)
            )
        sample = Records(rest, np.array([n], np.int64))
        if self._options.last == "pad":
            sample = pad_records(sample, sample_size, self._options.pads)
        records = Records(
            concatenate([commit.records.values, sample.values]),
            np.concatenate([commit.records.lengths, sample.lengths]),
        )
        n_pads = n_tokens(sample.values) - n
        return Commit(
            records,
            replace(state, rest=nothing, samples=state.samples + 1, pad_tokens=state.pad_tokens + n_pads),
        )

    def _sides(
        self,
        batch: Batch,
        lengths: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        of_documents: npt.NDArray[np.int64],
    ) -> Flat:
        names = self._options.side_streams
        if not names:
            return {}
        numbers = np.array([place.record for place in batch.places], np.int64)
        mask_values, mask_lengths = None, None
        if LOSS_MASK in names:
            masked = self._options.masked_types
            mask_values = np.array([kind in masked for kind in batch.types], np.uint8)
            mask_lengths = lengths
            if self._options.appended_eos is not None:
                mask_lengths = lengths.copy()
                mask_lengths[ends] -= 1
                mask_lengths = np.insert(mask_lengths, ends + 1, 1)
                mask_values = np.insert(mask_values, ends + 1, int(self._options.mask_eos))
        return make_sides(names, numbers, of_documents, mask_values, mask_lengths)

    def _close(self, place: Place | None, skips: Skips) -> Commit:
        """Pack the documents of the window, and begin the next one."""
        options, state = self._options, self._state
        nothing = {name: values[:0] for name, values in state.rest.items()}
        flat = concatenate(self._parts) if self._parts else nothing
        lengths = np.concatenate([np.empty(0, np.int64), *self._lengths])
        rest, n_pads = nothing, 0
        if options.sample_size is None:
            records = Records(flat, lengths)
        elif options.packing == "stream":
            records, rest = cut_stream(concatenate([state.rest, flat]), options.sample_size)
        else:
            records = lay_out(flat, plan_best_fit(lengths, options.sample_size))
            if options.last == "pad":
                n_pads = len(records) * options.sample_size - n_tokens(records.values)
                records = pad_records(records, options.sample_size, options.pads)
        self._state = replace(
            state,
            place=place,
            skips=skips,
            rest=rest,
            samples=state.samples + len(records),
            documents=state.documents + self._documents,
            tokens=state.tokens + self._tokens,
            pad_tokens=state.pad_tokens + n_pads,
        )
        self._begin()
        return Commit(records, self._state)
