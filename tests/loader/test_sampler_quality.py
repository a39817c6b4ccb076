"""Whether the sequences look drawn by chance: chi-square tests with fixed seeds, so each run gives the same.

A test fails below p = 1e-6, or above 1 - 1e-6: too even is no chance either.
"""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from loaderx import Sampler

Indices = npt.NDArray[np.uint64]
Counts = npt.NDArray[Any]

#: The normal deviate of p = 1e-6.
MOST = 4.7534


def deviate(counts: Counts, expected: float | Counts, degrees: int, spread: float = 1) -> float:
    """Return chi-square's normal deviate (Wilson and Hilferty, 1931)."""
    chi_square = float(((counts - expected) ** 2 / expected).sum()) / spread
    variance = 2 / (9 * degrees)
    return ((chi_square / degrees) ** (1 / 3) - (1 - variance)) / math.sqrt(variance)


def check(
    what: str, counts: Counts, expected: float | Counts | None = None, degrees: int = 0, spread: float = 1
) -> None:
    """Fail where the counts are not as chance would have them.

    By default all are as likely, and all but one free; `spread` is what their variance is to be divided by.
    """
    expected = counts.sum() / counts.size if expected is None else expected
    assert np.min(expected) >= 5, f"{what}: too few draws to say"
    found = deviate(counts, expected, degrees or counts.size - 1, spread)
    assert abs(found) < MOST, f"{what}: {found:.2f} standard deviations"


def cycles_of(length: int, count: int, seed: int = 1, first: int = 0) -> Indices:
    """Return whole cycles, a row each."""
    sampler = Sampler(length, length, "cyclic", seed)
    return np.stack([sampler.indices(first + cycle) for cycle in range(count)])


def check_even(what: str, values: Indices, length: int, parts: int) -> None:
    """Check that numbers below the length come as often in each of about as many parts."""
    width = -(-length // parts)
    counts = np.bincount((values // np.uint64(width)).ravel().astype(np.int64), minlength=-(-length // width))
    shares = np.full(len(counts), width / length)
    shares[-1] = (length - width * (len(counts) - 1)) / length
    if shares[-1] * values.size < 5:
        counts[-2] += counts[-1]
        shares[-2] += shares[-1]
        counts, shares = counts[:-1], shares[:-1]
    check(what, counts, shares * values.size)


def check_apart(what: str, later: Indices, earlier: Indices, length: int, parts: int) -> None:
    """Check differences modulo the length."""
    ahead = later >= earlier
    values = np.where(ahead, later - earlier, np.uint64(length) - (earlier - later))
    check_even(what, values, length, parts)


# ---- Bijections ----------------------------------------------------------------------------------------------


def test_every_length_to_2000_is_a_bijection() -> None:
    for length in range(1, 2001):
        for cycle in (0, 1, 2**40):
            batch = Sampler(length, length, "cyclic", length).indices(cycle)
            assert np.bincount(batch.astype(np.int64), minlength=length).tolist() == [1] * length


@pytest.mark.parametrize("length", [65535, 65536, 65537, 10**6, 2**20 + 1, 2**22 - 1])
def test_longer_ones_are_bijections(length: int) -> None:
    for cycle in range(3):
        batch = Sampler(length, length, "cyclic", 8).indices(cycle)
        assert batch.max() < length and (np.bincount(batch.astype(np.int64)) == 1).all()


@pytest.mark.slow
@pytest.mark.parametrize("length", [2**24 - 1, 2**24, 2**24 + 1, 5 * 10**7])
def test_the_longest_that_fit_are_bijections(length: int) -> None:
    seen = np.zeros(length, np.uint8)
    sampler = Sampler(length, 1 << 20, "cyclic", 8, drop_remainder=False)
    for step in range(-(-length // (1 << 20))):
        seen[sampler.indices(step)[: length - (step << 20)]] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("length", [2**32 - 1, 2**32, 2**32 + 1, 2**40 + 3, 2**63 - 25, 2**63])
def test_vast_ones_repeat_nothing_and_spread(length: int) -> None:
    sampler = Sampler(length, 50_000, "cyclic", 8)
    assert sampler.steps_per_cycle is not None
    steps = [0, 1, 2, sampler.steps_per_cycle // 2, sampler.steps_per_cycle - 1]
    drawn = np.concatenate([sampler.indices(step) for step in steps])
    assert int(drawn.max()) < length and len(np.unique(drawn)) == len(drawn)
    check_even("parts of the length", drawn, length, 1000)
    check("remainders", np.bincount((drawn % np.uint64(1000)).astype(np.int64)))


# ---- Cyclic --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [2, 3, 4, 5, 6])
def test_all_permutations_of_few_come_as_often(length: int) -> None:
    sampler = Sampler(length, 60_000 * length, "cyclic", 3, drop_remainder=False)
    cycles = sampler.next().reshape(-1, length)
    number = {permutation: i for i, permutation in enumerate(permutations(range(length)))}
    counts = np.bincount([number[tuple(cycle)] for cycle in cycles.tolist()], minlength=len(number))
    check("permutations", counts)
    others = [tuple(Sampler(length, length, "cyclic", seed).next().tolist()) for seed in range(6000)]
    check("permutations, of seeds", np.bincount([number[other] for other in others], minlength=len(number)))


@pytest.mark.parametrize("length", [2, 3, 10, 64, 255, 256, 257, 272, 289, 290, 400])
def test_short_cycles(length: int) -> None:
    count = 20 * length + 2000
    cycles = cycles_of(length, count).astype(np.int64)
    places = np.arange(length) * length
    table = np.bincount((cycles + places).ravel(), minlength=length**2)
    # All rows and columns of the table have the same sum: fewer of its counts are free, and they spread more.
    check("places and indices", table, degrees=(length - 1) ** 2, spread=length / (length - 1))
    check_pairs(cycles, length)
    drawn = cycles.astype(np.uint64)
    if length > 3:
        check_apart("from cycle to cycle", drawn[1:], drawn[:-1], length, length)
        place = np.arange(length, dtype=np.uint64)
        check_apart("from place to index", drawn, place, length, length)


def check_pairs(cycles: npt.NDArray[np.int64], length: int) -> None:
    """Neighbours, and numbers a row of the network's grid apart: their differences, and two of them in a row."""
    columns = -(-length // (math.isqrt(length - 1) + 1))
    for apart in {1, 2, columns, columns + 1, columns - 1} - {0}:
        if apart < length and length > 2:
            steps = (cycles[:, apart:] - cycles[:, :-apart]) % length
            check(f"{apart} apart", np.bincount(steps.ravel(), minlength=length)[1:])
    if length >= 1000:
        part = np.arange(length) * 16 // length
        steps = np.diff(cycles, axis=1) % length
        n = (steps.shape[1] // 3) * 3  # triples of indices that share none: two differences of each
        pairs = part[steps[:, 0:n:3]] * 16 + part[steps[:, 1:n:3]]
        expected = np.outer(held := np.bincount(part[1:]), held).astype(float)
        np.subtract.at(expected, (part[1:], part[:0:-1]), 1)  # two that cancel out would give an index again
        expected *= pairs.size / ((length - 1) * (length - 2))
        check("two differences", np.bincount(pairs.ravel(), minlength=256), expected.ravel())


@pytest.mark.parametrize("length", [1000, 1023, 1025, 4097, 65536, 65537])
def test_cycles(length: int) -> None:
    cycles = cycles_of(length, 2_000_000 // length).astype(np.int64)
    check_pairs(cycles, length)
    parts = 32
    held = np.bincount(np.arange(length) * parts // length, minlength=parts)
    table = np.zeros((parts, parts))
    np.add.at(table, (np.arange(length) * parts // length, cycles * parts // length), 1)
    expected = np.outer(held, held) * len(cycles) / length
    check(
        "parts of places and indices", table, expected, degrees=(parts - 1) ** 2, spread=length / (length - 1)
    )
    drawn = cycles.astype(np.uint64)
    check_apart("from cycle to cycle", drawn[1:], drawn[:-1], length, 500)
    check_apart("from seed to seed", drawn, cycles_of(length, len(drawn), seed=2), length, 500)


@pytest.mark.parametrize("length", [10**6, 2**20 + 1, 2**24 + 1, 2**32 + 1])
def test_long_cycles(length: int) -> None:
    sampler = Sampler(length, 1_000_000, "cyclic", 4)
    columns = -(-length // (math.isqrt(length - 1) + 1))
    first, again = sampler.indices(0), sampler.indices(sampler.steps_per_cycle or 0)
    other = Sampler(length, 1_000_000, "cyclic", 5).indices(0)
    for apart in (1, 2, columns, columns + 1):
        check_apart(f"{apart} apart", first[apart:], first[:-apart], length, 5000)
    check_apart("from cycle to cycle", again, first, length, 5000)
    check_apart("from seed to seed", other, first, length, 5000)
    check_apart("from place to index", first, np.arange(1_000_000, dtype=np.uint64), length, 5000)


# ---- IID -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [2, 3, 10, 1000, 10**6, 2**24 - 1, 2**24 + 1, 2**32 + 1, 3 * 2**61, 2**63])
def test_independent_draws(length: int) -> None:
    draws = Sampler(length, 2_000_000, "iid", 6).next()
    other = Sampler(length, 2_000_000, "iid", 7).next()
    check_even("parts of the length", draws, length, 1000)
    few = min(length, 40)
    low = (draws % np.uint64(few)).astype(np.int64)
    if length % few == 0 or length > 2**20:
        check("remainders", np.bincount(low, minlength=few))
        check("remainders of neighbours", np.bincount(low[1:] * few + low[:-1], minlength=few**2))
        check("remainders two apart", np.bincount(low[2:] * few + low[:-2], minlength=few**2))
    if length >= 1000:
        check_apart("neighbours", draws[1:], draws[:-1], length, 1000)
        check_apart("two apart", draws[2:], draws[:-2], length, 1000)
        check_apart("from seed to seed", other, draws, length, 1000)


def test_draws_repeat_as_often_as_chance_has_it() -> None:
    """Birthdays: of m draws below n, about m^2 / 2n are there already."""
    draws, length = 200_000, 2**32 + 1
    for seed in range(10):
        found = Sampler(length, draws, "iid", seed).next()
        repeated = draws - len(np.unique(found))
        assert repeated <= 25  # 4.7 expected; more than 25 happens once in 10^11
    repeated = sum(
        200_000 - len(np.unique(Sampler(10**9, 200_000, "iid", seed).next())) for seed in range(20)
    )
    expected = 20 * 200_000**2 / 2 / 10**9
    assert abs(repeated - expected) < MOST * math.sqrt(expected)
