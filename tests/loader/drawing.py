"""The sampler's sequences, drawn slowly: integers of Python, one index at a time, from docs/sampler.md alone."""

from __future__ import annotations

import math

WORD = 2**64
STEP = 0x9E3779B97F4A7C15
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
ATTEMPT = 0xD1B54A32D192ED03


def mix(z: int) -> int:
    """SplitMix64's finaliser."""
    z = (z ^ z >> 30) * MULTIPLIERS[0] % WORD
    z = (z ^ z >> 27) * MULTIPLIERS[1] % WORD
    return z ^ z >> 31


def word(first: int, second: int, at: int) -> int:
    """Word number `at` of the generator of two keys."""
    z = (first + at * STEP) % WORD
    z = (z ^ z >> 30) * MULTIPLIERS[0] % WORD
    z = (z ^ z >> 27 ^ second) * MULTIPLIERS[1] % WORD
    return z ^ z >> 32


def key(seed: int, number: int) -> int:
    """Key number `number`, from 1 on, of a seed."""
    return mix((mix((seed + STEP) % WORD) + number * STEP) % WORD)


def draw(first: int, second: int, length: int, at: int, attempt: int = 0) -> int:
    """A number below `length`, from whole words, of which attempt after attempt may be refused."""
    while True:
        product = word((first + attempt * ATTEMPT) % WORD, second, at) * length
        if product % WORD >= WORD % length:
            return product // WORD
        attempt += 1


def iid(seed: int, length: int, position: int) -> int:
    """The index at a position of the IID sequence."""
    first, second = key(seed, 1), key(seed, 2)
    if length <= 2**24:
        halves = word(first, second, position // 2)
        product = (halves >> 32 if position % 2 else halves % 2**32) * length
        if product % 2**32 >= 2**32 % length:
            return product // 2**32
        return draw(first, second, length, position, 1)
    return draw(first, second, length, position)


def fold(x: int, multiplier: int, bits: int) -> int:
    """The halves of a product on each other."""
    product = x * multiplier
    return product % 2**bits ^ product >> bits


def cyclic(seed: int, length: int, cycle: int, place: int) -> int:
    """The index at a place of a cycle."""
    first, second = word(key(seed, 3), key(seed, 4), cycle), key(seed, 5)
    if length <= 256:
        numbers = list(range(length))
        for i in range(place + 1):
            j = i + draw(first, second, length - i, i)
            numbers[i], numbers[j] = numbers[j], numbers[i]
        return numbers[place]
    rows = math.isqrt(length - 1) + 1
    columns = -(-length // rows)
    bits = 16 if length <= 2**24 else 32
    keys = []
    for i in range(12 if length <= 2**16 else 8):
        words = word(first, second, i) if bits == 16 else word(first, second, 2 * i)
        if bits == 32:
            words += word(first, second, 2 * i + 1) << 64
        keys.append([words >> part * bits & 2**bits - 1 for part in range(3)])
    multipliers = (0x9E3B, 0x85ED) if bits == 16 else (0x9E3779B1, 0x85EBCA77)
    while True:
        row, column = divmod(place, columns)
        for i, (a, b, c) in enumerate(keys):
            x = (row if i % 2 else column) ^ a
            x = fold(fold(x, multipliers[0], bits) ^ b, multipliers[1], bits) ^ c
            if i % 2:
                column = (column + (x * columns >> bits)) % columns
            else:
                row = (row + (x * rows >> bits)) % rows
        place = row * columns + column
        if place < length:
            return place


def batch(
    length: int,
    batch_size: int,
    mode: int,
    seed: int,
    step: int,
    *,
    drop_remainder: bool = True,
    rank: int = 0,
    world_size: int = 1,
) -> list[int]:
    """The indices of one step."""
    if mode == 2 and drop_remainder and world_size == 1:
        batch_size = min(batch_size, length)
    everyone = batch_size * world_size
    positions = range(step * everyone + rank * batch_size, step * everyone + (rank + 1) * batch_size)
    if mode == 0:
        return [position % length for position in positions]
    if mode == 1:
        return [iid(seed, length, position) for position in positions]
    drawn = length // everyone * everyone if drop_remainder else length
    return [cyclic(seed, length, *divmod(position, drawn)) for position in positions]
