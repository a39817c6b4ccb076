"""From documents to samples: pure functions on arrays.

Tokens and side streams are one dict of arrays, all of the same length, one item a token; what is done to one of them is
done to all. `lengths` says how many tokens each document has, its EOS included.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

#: An array for each name, one item a token.
Flat: TypeAlias = "dict[str, npt.NDArray[Any]]"


@dataclass(frozen=True, slots=True)
class Records:
    """Samples that are to be written, as records of each store.

    Attributes
    ----------
    values : dict of str to ndarray, shape (tokens,)
        The tokens of all records, one behind the other.
    lengths : ndarray of int64, shape (n,)
        Tokens in each record.
    """

    values: Flat
    lengths: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lengths)


def concatenate(parts: Sequence[Mapping[str, npt.NDArray[Any]]]) -> Flat:
    """Return several parts one behind the other; one alone is not copied."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def n_tokens(flat: Flat) -> int:
    """Return the number of tokens."""
    return len(flat["tokens"])


def cut_stream(flat: Flat, sample_size: int) -> tuple[Records, Flat]:
    """Cut documents that lie one behind the other into full samples.

    Parameters
    ----------
    flat : dict of str to ndarray, shape (tokens,)
        The rest of what came before, and behind it the new documents.
    sample_size : int
        Tokens in a sample.

    Returns
    -------
    samples : Records
        Views of `flat`.
    rest : dict of str to ndarray
        Fewer tokens than a sample has; copies.
    """
    n_samples = n_tokens(flat) // sample_size
    end = n_samples * sample_size
    samples = Records(
        {name: values[:end] for name, values in flat.items()},
        np.full(n_samples, sample_size, np.int64),
    )
    return samples, {name: values[end:].copy() for name, values in flat.items()}


def pad_records(records: Records, sample_size: int, pads: Mapping[str, int]) -> Records:
    """Fill every record up to `sample_size` tokens with its stream's padding, at its end.

    Parameters
    ----------
    records : Records
    sample_size : int
        At least the longest record's tokens.
    pads : mapping of str to int
        For each stream what it is padded with.
    """
    n = len(records)
    # Where each token goes: its record's place, and its own within the record.
    starts = np.cumsum(records.lengths) - records.lengths
    shifts = np.arange(n, dtype=np.int64) * sample_size - starts
    targets = np.arange(len(records.values["tokens"]), dtype=np.int64) + np.repeat(shifts, records.lengths)
    padded = {}
    for name, values in records.values.items():
        whole = np.full(n * sample_size, pads[name], values.dtype)
        whole[targets] = values
        padded[name] = whole
    return Records(padded, np.full(n, sample_size, np.int64))


@dataclass(frozen=True, slots=True)
class Plan:
    """Which pieces of documents each sample is made of.

    Attributes
    ----------
    starts, lengths : ndarray of int64, shape (pieces,)
        First token of each piece, counted through all documents, and its number of tokens; sample after sample, in a
        sample in the order of the documents.
    samples : ndarray of int64, shape (pieces,)
        The sample it is in.
    """

    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    samples: npt.NDArray[np.int64]


def plan_best_fit(lengths: npt.NDArray[np.int64], sample_size: int) -> Plan:
    """Choose the sample of each document so that none which fits into one is cut, and few places stay empty.

    Longer documents are cut into full samples and a rest. Then best-fit decreasing: pieces from the longest to the
    shortest, each into the sample with the least room that is enough, or into a new one (Johnson et al., SIAM J.
    Comput. 3 (1974), 299-325; for documents of a language model Ding et al., arXiv:2404.10830).

    Parameters
    ----------
    lengths : ndarray of int64, shape (documents,)
        Tokens of each document; one of none is in no sample.
    sample_size : int

    Returns
    -------
    Plan
        Samples in the order of their first documents.
    """
    ends = np.cumsum(lengths)
    starts = ends - lengths
    # In the order of documents: the full samples of each, and its rest.
    counts = -(-lengths // sample_size)
    n_pieces = int(counts.sum())
    owners = np.repeat(np.arange(len(lengths)), counts)
    within = np.arange(n_pieces) - np.repeat(np.cumsum(counts) - counts, counts)
    piece_starts = starts[owners] + within * sample_size
    piece_lengths = np.minimum(ends[owners] - piece_starts, sample_size)
    samples = _number_in_order(_best_fit(piece_lengths, sample_size))
    order = np.argsort(samples, kind="stable")
    return Plan(piece_starts[order], piece_lengths[order], samples[order])


def _best_fit(lengths: npt.NDArray[np.int64], sample_size: int) -> npt.NDArray[np.int64]:
    """Return a sample for each piece; equal pieces in their order, and of samples with equal room the older."""
    chosen = np.empty(len(lengths), np.int64)
    rooms: list[tuple[int, int]] = []  # of samples that have some: (room, sample), sorted
    n_samples = 0
    order = np.argsort(-lengths, kind="stable")
    for piece, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        place = bisect_left(rooms, (length, -1))
        if place < len(rooms):
            room, sample = rooms.pop(place)
        else:
            room, sample = sample_size, n_samples
            n_samples += 1
        chosen[piece] = sample
        if room > length:
            insort(rooms, (room - length, sample))
    return chosen


def _number_in_order(samples: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number samples anew, by their first pieces."""
    _, first, inverse = np.unique(samples, return_index=True, return_inverse=True)
    numbers = np.empty(len(first), np.int64)
    numbers[np.argsort(first)] = np.arange(len(first))
    return numbers[inverse.reshape(-1)]


def lay_out(flat: Flat, plan: Plan) -> Records:
    """Return the samples of a plan, as they are: not padded.

    Parameters
    ----------
    flat : dict of str to ndarray, shape (tokens,)
        The documents, one behind the other.
    plan : Plan
    """
    ends = np.cumsum(plan.lengths)
    total = int(ends[-1]) if len(ends) else 0
    sources = np.arange(total, dtype=np.int64) + np.repeat(plan.starts - (ends - plan.lengths), plan.lengths)
    n_samples = int(plan.samples[-1]) + 1 if len(plan.samples) else 0
    lengths = np.bincount(plan.samples, weights=plan.lengths, minlength=n_samples).astype(np.int64)
    return Records({name: values[sources] for name, values in flat.items()}, lengths)
