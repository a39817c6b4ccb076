"""Packing in plain Python, token by token: slow, and easy to see through. Never imports `loaderx.tokens`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Token:
    """One token, and what belongs to it."""

    id: int
    document: int
    position: int
    masked: int


def document_tokens(
    number: int,
    parts: list[tuple[str, list[int]]],
    eos_id: int | None,
    masked_types: tuple[str, ...] = ("prompt", "system"),
    mask_eos: bool = False,
) -> list[Token]:
    """Return the tokens of a document of (type, ids) parts, its EOS behind them."""
    found: list[Token] = []
    for kind, ids in parts:
        for id in ids:
            found.append(Token(id, number, len(found), 1 if kind in masked_types else 0))
    if eos_id is not None:
        found.append(Token(eos_id, number, len(found), 1 if mask_eos else 0))
    return found


def pad(sample: list[Token], sample_size: int, pad_id: int) -> list[Token]:
    return sample + [Token(pad_id, -1, 0, 1)] * (sample_size - len(sample))


def stream(
    documents: list[list[Token]], sample_size: int, last: str = "drop", pad_id: int = 0
) -> list[list[Token]]:
    """Cut all documents, one behind the other, into samples."""
    samples: list[list[Token]] = [[]]
    for document in documents:
        for token in document:
            if len(samples[-1]) == sample_size:
                samples.append([])
            samples[-1].append(token)
    if len(samples[-1]) == sample_size:
        return samples
    rest = samples.pop()
    if not rest or last == "drop":
        return samples
    return [*samples, pad(rest, sample_size, pad_id) if last == "pad" else rest]


def best_fit(
    documents: list[list[Token]], sample_size: int, window: int, last: str = "pad", pad_id: int = 0
) -> list[list[Token]]:
    """Pack each window of documents by best-fit decreasing."""
    found: list[list[Token]] = []
    for first in range(0, len(documents), window):
        pieces = []
        for document in documents[first : first + window]:
            pieces += [document[at : at + sample_size] for at in range(0, len(document), sample_size)]
        bins: list[list[int]] = []
        for number in sorted(range(len(pieces)), key=lambda number: (-len(pieces[number]), number)):
            used = [sum(len(pieces[other]) for other in held) for held in bins]
            fitting = [
                (sample_size - used[at], at)
                for at in range(len(bins))
                if sample_size - used[at] >= len(pieces[number])
            ]
            if fitting:
                bins[min(fitting)[1]].append(number)
            else:
                bins.append([number])
        for held in sorted(sorted(held) for held in bins):
            sample = [token for number in held for token in pieces[number]]
            found.append(pad(sample, sample_size, pad_id) if last == "pad" else sample)
    return found
