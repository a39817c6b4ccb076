"""Packing as pure functions, against the oracle."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderx.tokens.packing import Records, concatenate, cut_stream, lay_out, pad_records, plan_best_fit
from tests.tokens import oracle

LENGTHS = st.lists(st.integers(0, 40), max_size=40)


def numbered(lengths: list[int]) -> list[list[oracle.Token]]:
    """Return documents of these lengths in which every token has an id of its own."""
    documents, first = [], 0
    for number, length in enumerate(lengths):
        documents.append([oracle.Token(first + at, number, at, 0) for at in range(length)])
        first += length
    return documents


def as_lists(records: Records) -> list[list[int]]:
    ends = np.cumsum(records.lengths)
    return [
        records.values["tokens"][end - length : end].tolist()
        for end, length in zip(ends, records.lengths, strict=True)
    ]


@given(lengths=LENGTHS, sample_size=st.integers(1, 17), cuts=st.lists(st.integers(0, 40), max_size=5))
def test_a_stream_is_cut_alike_in_whatever_parts_it_comes(
    lengths: list[int], sample_size: int, cuts: list[int]
) -> None:
    documents = numbered(lengths)
    expected = [[token.id for token in sample] for sample in oracle.stream(documents, sample_size)]
    whole = np.arange(sum(lengths))
    found, rest = [], {"tokens": whole[:0]}
    bounds = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    for begin, end in itertools.pairwise(bounds):
        samples, rest = cut_stream(concatenate([rest, {"tokens": whole[begin:end]}]), sample_size)
        found += as_lists(samples)
    assert found == expected
    assert rest["tokens"].tolist() == whole[len(expected) * sample_size :].tolist()


@given(lengths=LENGTHS, sample_size=st.integers(1, 17))
def test_best_fit_is_the_oracles(lengths: list[int], sample_size: int) -> None:
    flat = {"tokens": np.arange(sum(lengths))}
    plan = plan_best_fit(np.array(lengths, np.int64), sample_size)
    records = lay_out(flat, plan)
    expected = oracle.best_fit(numbered(lengths), sample_size, max(len(lengths), 1), last="keep")
    assert as_lists(records) == [[token.id for token in sample] for sample in expected]
    padded = pad_records(records, sample_size, {"tokens": -1})
    expected = oracle.best_fit(numbered(lengths), sample_size, max(len(lengths), 1), last="pad", pad_id=-1)
    assert as_lists(padded) == [[token.id for token in sample] for sample in expected]


@given(lengths=LENGTHS, sample_size=st.integers(1, 17))
def test_best_fit_cuts_nothing_that_fits(lengths: list[int], sample_size: int) -> None:
    plan = plan_best_fit(np.array(lengths, np.int64), sample_size)
    starts = np.cumsum(lengths) - lengths if lengths else np.empty(0, np.int64)
    for start, length in zip(starts, lengths, strict=True):
        pieces = (plan.starts >= start) & (plan.starts < start + length)
        assert pieces.sum() == -(-length // sample_size)
    assert plan.lengths.sum() == sum(lengths)
    room = np.bincount(plan.samples, weights=plan.lengths)
    assert (room <= sample_size).all()
    # No two samples could be one: best fit opens none that it does not need.
    if len(room) > 1:
        least = np.sort(room)
        assert least[0] + least[1] > sample_size


def test_padding_knows_each_streams_own() -> None:
    records = Records({"tokens": np.array([1, 2, 3]), "side": np.array([7, 8, 9])}, np.array([1, 2]))
    padded = pad_records(records, 3, {"tokens": 0, "side": -1})
    assert padded.values["tokens"].tolist() == [1, 0, 0, 2, 3, 0]
    assert padded.values["side"].tolist() == [7, -1, -1, 8, 9, -1]


@pytest.mark.parametrize("sample_size", [1, 5])
def test_no_documents_are_no_samples(sample_size: int) -> None:
    empty = {"tokens": np.empty(0, np.uint16)}
    assert len(lay_out(empty, plan_best_fit(np.empty(0, np.int64), sample_size))) == 0
    samples, rest = cut_stream(empty, sample_size)
    assert len(samples) == 0 and len(rest["tokens"]) == 0
