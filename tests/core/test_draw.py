"""Index draws: every kernel against the slow way, and nothing written beside a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from loaderx._core import draw
from tests.loader import drawing

LENGTHS = (
    1, 2, 3, 20, 255, 256, 257, 272, 273, 289, 290, 1000, 1025, 65536, 65537, 10**6, 2**20 + 1, 2**24 - 1, 2**24,
    2**24 + 1, 3 * 2**30, 2**32 - 1, 2**32, 2**32 + 1, 2**40 + 7, 3 * 2**61, 2**63 - 1, 2**63,
)  # fmt: skip


@pytest.fixture(params=draw.kernels())
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    draw.use_kernel(request.param)
    yield request.param
    draw.use_kernel(None)


def refuse(out: Any) -> None:
    raise BufferError(type(out))


def make_draws(length: int, n: int, mode: int, seed: int, steps_per_cycle: int = 0) -> draw.Draws:
    return draw.Draws(
        np.empty,
        (n, np.uint64),
        lambda step: refuse(step) or 0,
        refuse,
        mode=mode,
        length=length,
        seed=seed,
        batch_length=n,
        global_batch=n,
        first=0,
        steps_per_cycle=steps_per_cycle,
        num_steps=2**63 // n,
    )


def batch_lengths(rng: np.random.Generator) -> list[int]:
    """Lengths around those of every vector and block of vectors."""
    return [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 127, 129, *rng.integers(130, 300, 2).tolist()]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("mode", [1, 2])
def test_every_length_like_the_oracle(mode: int, length: int, kernel: str) -> None:
    rng = np.random.default_rng(length % 2**32)
    for n in batch_lengths(rng):
        seed = int(rng.integers(2**64, dtype=np.uint64))
        step = int(rng.integers(2**63 // n, dtype=np.uint64))
        # a block with numbers around it, at any alignment
        memory = np.full(n + 24, 0xA5, np.uint64)
        at = int(rng.integers(8, 16))
        draws = make_draws(length, n, mode, seed)
        out = draws.indices(step, memory[at : at + n])
        picked = range(n) if n < 40 and length > 256 else rng.choice(n, min(n, 12), replace=False).tolist()
        for i in picked:
            position = step * n + i
            if mode == 1:
                expected = drawing.iid(seed, length, position)
            else:
                expected = drawing.cyclic(seed, length, *divmod(position, length))
            assert out[i] == expected, (n, i)
        assert (memory[:at] == 0xA5).all() and (memory[at + n :] == 0xA5).all()


def test_all_kernels_draw_the_same_large_batches() -> None:
    for length in (10**6, 2**20 + 1, 2**24 + 1, 2**33):
        for mode in (0, 1, 2):
            found = []
            for name in draw.kernels():
                draw.use_kernel(name)
                found.append(make_draws(length, 50_001, mode, 9).indices(3).tobytes())
            draw.use_kernel(None)
            assert len(set(found)) == 1


def test_refused_words_like_the_oracle(kernel: str) -> None:
    """Lengths at which many words are refused: later attempts decide."""
    first, second = drawing.key(5, 1), drawing.key(5, 2)
    for length in (2**62 + 1, 2**62 + 2**60, 3 * 2**61 + 1):
        out = make_draws(length, 300, 1, 5).indices(1)
        assert out.tolist() == [drawing.iid(5, length, 300 + i) for i in range(300)]
        products = [drawing.word(first, second, 300 + i) * length for i in range(300)]
        assert sum(product % 2**64 < 2**64 % length for product in products) > 10
    # Of the lengths for which half a word is taken, one at which most are refused: one of 256.
    length = max(range(2**24 - 70_000, 2**24), key=lambda n: 2**32 % n)
    out = make_draws(length, 5_000, 1, 5).indices(1)
    halves = np.array([drawing.word(first, second, 2_500 + i) for i in range(2_500)], np.uint64).view("<u4")
    refused = np.flatnonzero(halves.astype(np.uint64) * np.uint64(length) % 2**32 < 2**32 % length)
    assert len(refused) > 5
    assert [out[i] for i in refused] == [drawing.iid(5, length, 5_000 + i) for i in refused.tolist()]


def test_next_goes_on_and_seek_moves() -> None:
    draws = make_draws(1000, 8, 2, 1, steps_per_cycle=125)
    assert draws.step == 0
    first = [draws.next().tolist() for _ in range(3)]
    assert draws.step == 3
    assert first == [draws.indices(step).tolist() for step in range(3)] and draws.step == 3
    draws.seek(1)
    assert draws.next().tolist() == first[1] and draws.step == 2


@pytest.mark.parametrize(
    "out",
    [
        np.empty(7, np.uint64),
        np.empty(9, np.uint64),
        np.empty(8, np.int64),
        np.empty(8, ">u8"),
        np.empty(16, np.uint32),
        np.empty(16, np.uint64)[::2],
        np.empty((2, 4), np.uint64),
        np.frombuffer(bytes(64), np.uint64),
        bytearray(64),
        [0] * 8,
        "indices",
    ],
    ids=lambda out: type(out).__name__,
)
def test_what_does_not_fit_is_refused(out: Any) -> None:
    with pytest.raises(BufferError):
        make_draws(1000, 8, 1, 1).indices(0, out)


@pytest.mark.parametrize("step", [-1, 2**60, 2**64, 1.0, True, None, np.int64(3)])
def test_other_steps_go_the_long_way(step: Any) -> None:
    draws = make_draws(1000, 8, 1, 1)
    with pytest.raises(BufferError):
        draws.indices(step)
    with pytest.raises(BufferError):
        draws.seek(step)
    assert draws.step == 0


@pytest.mark.parametrize("absent", ["length", "batch_length", "global_batch", "num_steps"])
def test_nothing_to_draw_is_refused(absent: str) -> None:
    sizes = dict.fromkeys(["length", "batch_length", "global_batch", "num_steps"], 5) | {absent: 0}
    with pytest.raises(ValueError, match="nothing to draw"):
        draw.Draws(np.empty, (5, np.uint64), int, refuse, mode=1, seed=1, first=0, steps_per_cycle=0, **sizes)


def test_kernels_are_chosen_by_name() -> None:
    names = draw.kernels()
    assert names[-1] == "portable" and draw.kernel() == names[0]
    try:
        for name in names:
            draw.use_kernel(name)
            assert draw.kernel() == name
    finally:
        draw.use_kernel(None)
    with pytest.raises(ValueError, match=r"no kernel 'abacus': here work .*portable"):
        draw.use_kernel("abacus")
    assert draw.kernel() == names[0]
