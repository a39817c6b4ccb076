"""How well a shuffle mixes, against the model of its buffer; and orders that stay what they are for ever."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from loaderx.stream import Stream
from tests.resume import check_stream_resumes
from tests.stream.pipelines import double, is_odd, numbers

N, SIZE = 60_000, 300


def order_of(stream: Stream) -> NDArray[np.int64]:
    """Return numbers in the order in which a stream gives them, each of them once."""
    order = np.array(list(stream))
    assert np.array_equal(np.sort(order), np.arange(len(order)))
    return order


def displacements(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each item how far behind its place it comes."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return places - np.arange(len(order))


def count_clumps(order: NDArray[np.int64]) -> int:
    """Return how many items are next to one that was their neighbour before."""
    return int((np.abs(np.diff(order)) == 1).sum())


def model(n: int, size: int, seed: int) -> NDArray[np.int64]:
    """Shuffle as the textbook has it: each item that is given is drawn from a full buffer."""
    draws, buffer, given = random.Random(seed), list[int](), list[int]()
    for x in range(n):
        if len(buffer) < size:
            buffer.append(x)
            continue
        i = draws.randrange(size)
        given.append(buffer[i])
        buffer[i] = x
    draws.shuffle(buffer)
    return np.array(given + buffer)


@pytest.fixture(scope="module")
def buffered() -> NDArray[np.int64]:
    return order_of(Stream.from_shards([range(N)]).shuffle(SIZE, seed=1))


def test_no_item_comes_sooner_than_the_buffer_lets_it(buffered: NDArray[np.int64]) -> None:
    moved = displacements(buffered)
    assert moved.min() >= 1 - SIZE
    # Some come as soon as that: the whole buffer is drawn from.
    assert (moved[SIZE:-SIZE] == 1 - SIZE).sum() > N / SIZE / 2


def test_items_move_as_far_as_in_the_model(buffered: NDArray[np.int64]) -> None:
    """An item stays for a geometric number of draws, of mean SIZE, and comes SIZE draws sooner than it would then."""
    far_from_ends = slice(SIZE, -10 * SIZE)
    moved = displacements(buffered)[far_from_ends]
    n = len(moved)
    # The deviation of one is SIZE; neighbours move almost independently of each other.
    assert abs(moved.mean()) < 4 * SIZE / math.sqrt(n)
    assert abs(np.abs(moved).mean() - 2 * SIZE / math.e) < 4 * SIZE / math.sqrt(n)
    for bound in (1, 2, 4):
        expected = math.exp(-bound)
        share = (moved + SIZE > bound * SIZE).mean()
        assert abs(share - expected) < 4 * math.sqrt(expected / n), bound
    theirs = displacements(model(N, SIZE, 3))[far_from_ends]
    assert abs(np.abs(moved).mean() - np.abs(theirs).mean()) < 6 * SIZE / math.sqrt(n)


def test_neighbours_part_as_in_the_model(buffered: NDArray[np.int64]) -> None:
    """Two draws that follow one another give neighbours once in SIZE times."""
    expected = N / SIZE
    assert abs(count_clumps(buffered) - expected) < 4 * math.sqrt(expected)
    assert abs(count_clumps(model(N, SIZE, 4)) - expected) < 4 * math.sqrt(expected)


def test_shards_are_mixed_before_the_buffer() -> None:
    """Ten shards in turns: neighbours in the order come from one shard one time in ten, and not nearly always."""
    n, size = 20, 1000
    shards = [range(size * i, size * (i + 1)) for i in range(n)]

    def share_of_same(most_open: int) -> float:
        order = order_of(Stream.from_shards(shards).shuffle(50, seed=2, max_input_shards=most_open))
        return float((np.diff(order // size) == 0).mean())

    assert share_of_same(1) > 0.9
    assert abs(share_of_same(10) - 0.1) < 0.02
    orders = [
        list(Stream.from_shards([[i] for i in range(30)]).shuffle(1, seed=s, max_input_shards=1))
        for s in (1, 2)
    ]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(30)) and orders[0] != orders[1]


def test_a_shuffle_of_all_items_is_one_of_all_orders() -> None:
    n = 20_000
    order = order_of(Stream.from_dataset(range(n)).shuffle(None, seed=1))
    moved = np.abs(displacements(order))
    # Of two places at random: a third of the length away on average, deviation n / sqrt(18).
    assert abs(moved.mean() - n / 3) < 4 * n / math.sqrt(18 * n)
    assert count_clumps(order) < 2 + 4 * math.sqrt(2)
    firsts = [next(iter(with_seed(n, seed))) for seed in range(400)]
    assert abs(np.mean(firsts) - n / 2) < 4 * n / math.sqrt(12 * 400)


def with_seed(n: int, seed: int) -> Stream:
    return Stream.from_dataset(range(n)).shuffle(None, seed=seed)


def test_every_order_of_a_full_buffer_is_as_likely() -> None:
    """A buffer that holds all: of three items the six orders come alike, over seeds and over epochs."""
    counts: dict[str, dict[tuple[int, ...], int]] = {"seed": {}, "epoch": {}}
    for i in range(600):
        stream = Stream.from_shards([range(3)]).shuffle(3, seed=i)
        counts["seed"][tuple(stream)] = counts["seed"].get(tuple(stream), 0) + 1
        stream = Stream.from_shards([range(3)]).shuffle(3, seed=7)
        stream.set_epoch(i)
        counts["epoch"][tuple(stream)] = counts["epoch"].get(tuple(stream), 0) + 1
    for found in counts.values():
        assert len(found) == 6
        # Chi-squared of five degrees of freedom: beyond 20.5 once in a thousand times.
        assert sum((each - 100) ** 2 / 100 for each in found.values()) < 20.5


def at(stream: Stream, epoch: int) -> Stream:
    stream.set_epoch(epoch)
    return stream


def roll(x: int, rng: np.random.Generator) -> tuple[int, int]:
    return x, int(rng.integers(100))


ORDERS: dict[str, tuple[Callable[[], Stream], list[Any]]] = {
    "shuffle": (lambda: numbers().shuffle(4, seed=7), [11, 10, 12, 0, 1, 2, 3, 14, 13, 20, 16, 4, 15]),
    "shuffle, epoch 1": (
        lambda: at(numbers().shuffle(4, seed=7), 1),
        [0, 1, 10, 2, 20, 11, 13, 14, 12, 4, 15, 16, 3],
    ),
    "shuffle, one shard open": (
        lambda: numbers().shuffle(4, seed=7, max_input_shards=1),
        [13, 10, 15, 12, 14, 16, 0, 1, 20, 11, 4, 2, 3],
    ),
    "shuffle behind take": (lambda: numbers().take(8).shuffle(4, seed=7), [3, 0, 10, 2, 4, 11, 1, 12]),
    "shuffle of all": (
        lambda: numbers().shuffle(None, seed=7),
        [3, 4, 16, 12, 0, 1, 2, 20, 10, 11, 15, 14, 13],
    ),
    "shuffle of all, epoch 2": (
        lambda: at(numbers().map(double).shuffle(None, seed=7), 2),
        [30, 4, 0, 28, 40, 22, 32, 20, 6, 26, 2, 24, 8],
    ),
    "repeat": (
        lambda: numbers().shuffle(4, seed=7).take(5).repeat(3),
        [11, 10, 12, 0, 1, 10, 1, 12, 0, 2, 10, 11, 1, 0, 20],
    ),
    "map with_rng": (
        lambda: numbers().map(roll, with_rng=True, seed=7),
        [
            (0, 99),
            (1, 87),
            (2, 60),
            (3, 79),
            (4, 80),
            (10, 13),
            (11, 6),
            (12, 88),
            (13, 80),
            (14, 52),
            (15, 42),
            (16, 5),
            (20, 35),
        ],
    ),
    "map with_rng behind a shuffle": (
        lambda: at(numbers().shuffle(4).map(roll, with_rng=True, seed=7), 1),
        [
            (0, 37),
            (11, 39),
            (12, 36),
            (1, 12),
            (13, 74),
            (20, 5),
            (10, 5),
            (14, 28),
            (15, 46),
            (2, 43),
            (16, 65),
            (4, 61),
            (3, 72),
        ],
    ),
    "filter, map, shuffle, batch": (
        lambda: numbers().filter(is_odd).map(double).shuffle(3, seed=7).batch(2),
        [[26, 22], [30, 2], [6]],
    ),
    "concatenate, shuffle": (
        lambda: Stream.concatenate([numbers().take(4), numbers().skip(9)]).shuffle(3, seed=7),
        [2, 0, 14, 1, 3, 15, 16, 20],
    ),
    "interleave, epoch 1": (
        lambda: at(Stream.interleave([numbers(), numbers().map(double)], [3, 1], seed=7), 1),
        [0, 1, 0, 2, 2, 3, 4, 4, 10, 11, 12, 6, 8, 13, 14, 20, 15, 16, 20],
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders_for_fixed_seeds(name: str) -> None:
    """Written down: another release gives them too, or says that states of before are refused."""
    make, expected = ORDERS[name]
    assert check_stream_resumes(make) == expected
