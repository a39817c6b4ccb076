"""The sampler: its sequences, which never change, its steps, its options, and what it refuses."""

from __future__ import annotations

import array
import copy
import ctypes
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import DestinationError, OptionError, Sampler
from loaderx._core import draw
from tests.loader import drawing

MODES = list(Sampler.Mode)

#: length, batch_size, mode, seed, step, and the batch: for ever.
LITERALS = [
    (1, 4, 1, 42, 0, [0, 0, 0, 0]),
    (1, 4, 1, 42, 5, [0, 0, 0, 0]),
    (1, 4, 1, 42, 100000000000, [0, 0, 0, 0]),
    (1, 4, 2, 42, 0, [0]),
    (1, 4, 2, 42, 5, [0]),
    (1, 4, 2, 42, 100000000000, [0]),
    (7, 4, 0, 42, 0, [0, 1, 2, 3]),
    (7, 4, 0, 42, 5, [6, 0, 1, 2]),
    (7, 4, 0, 42, 100000000000, [6, 0, 1, 2]),
    (7, 4, 1, 42, 0, [2, 6, 4, 5]),
    (7, 4, 1, 42, 5, [6, 3, 1, 2]),
    (7, 4, 1, 42, 100000000000, [1, 2, 6, 3]),
    (7, 4, 2, 42, 0, [1, 6, 4, 2]),
    (7, 4, 2, 42, 5, [1, 6, 2, 5]),
    (7, 4, 2, 42, 100000000000, [3, 1, 2, 0]),
    (256, 4, 1, 42, 0, [95, 231, 156, 184]),
    (256, 4, 1, 42, 5, [234, 113, 70, 93]),
    (256, 4, 1, 42, 100000000000, [44, 102, 242, 145]),
    (256, 4, 2, 42, 0, [60, 255, 143, 107]),
    (256, 4, 2, 42, 5, [46, 167, 109, 244]),
    (256, 4, 2, 42, 100000000000, [204, 20, 152, 21]),
    (257, 4, 1, 42, 0, [95, 232, 157, 184]),
    (257, 4, 1, 42, 5, [235, 114, 70, 94]),
    (257, 4, 1, 42, 100000000000, [44, 102, 243, 145]),
    (257, 4, 2, 42, 0, [114, 44, 213, 13]),
    (257, 4, 2, 42, 5, [102, 180, 212, 89]),
    (257, 4, 2, 42, 100000000000, [163, 69, 95, 85]),
    (1000, 4, 1, 42, 0, [371, 906, 612, 719]),
    (1000, 4, 1, 42, 5, [914, 443, 275, 366]),
    (1000, 4, 1, 42, 100000000000, [172, 398, 945, 566]),
    (1000, 4, 2, 42, 0, [367, 618, 915, 478]),
    (1000, 4, 2, 42, 5, [529, 757, 141, 932]),
    (1000, 4, 2, 42, 100000000000, [105, 50, 438, 927]),
    (65537, 4, 1, 42, 0, [24344, 59384, 40140, 47146]),
    (65537, 4, 1, 42, 5, [59949, 29075, 18087, 24038]),
    (65537, 4, 1, 42, 100000000000, [11315, 26118, 61988, 37128]),
    (65537, 4, 2, 42, 0, [13198, 23763, 17064, 41019]),
    (65537, 4, 2, 42, 5, [65135, 39812, 53666, 19655]),
    (65537, 4, 2, 42, 100000000000, [16910, 40682, 3432, 21920]),
    (1000000, 4, 0, 42, 0, [0, 1, 2, 3]),
    (1000000, 4, 0, 42, 5, [20, 21, 22, 23]),
    (1000000, 4, 0, 42, 100000000000, [0, 1, 2, 3]),
    (1000000, 4, 1, 42, 0, [371462, 906121, 612482, 719384]),
    (1000000, 4, 1, 42, 5, [914743, 443654, 275991, 366794]),
    (1000000, 4, 1, 42, 100000000000, [172655, 398533, 945859, 566524]),
    (1000000, 4, 2, 42, 0, [941714, 351664, 649139, 52472]),
    (1000000, 4, 2, 42, 5, [333439, 826630, 390908, 568292]),
    (1000000, 4, 2, 42, 100000000000, [728559, 293680, 793145, 997235]),
    (16777217, 4, 1, 42, 0, [15202202, 12069266, 12957112, 11096300]),
    (16777217, 4, 1, 42, 5, [15642169, 8934023, 1957011, 12562660]),
    (16777217, 4, 1, 42, 100000000000, [9449991, 15895569, 10684231, 7628855]),
    (16777217, 4, 2, 42, 0, [9347346, 9569, 15162258, 12987794]),
    (16777217, 4, 2, 42, 5, [9838823, 812220, 4329880, 1977306]),
    (16777217, 4, 2, 42, 100000000000, [11212880, 8990537, 15572988, 1160885]),
    (4294967297, 4, 1, 42, 0, [3891763510, 3089732043, 3317020697, 2840652688]),
    (4294967297, 4, 1, 42, 5, [4004395033, 2287109927, 500994934, 3216041015]),
    (4294967297, 4, 1, 42, 100000000000, [2419197774, 4069265674, 2735163153, 1952986827]),
    (4294967297, 4, 2, 42, 0, [194458050, 1785039761, 3871554510, 1794901596]),
    (4294967297, 4, 2, 42, 5, [1952991016, 2377080869, 4238003938, 1797296517]),
    (4294967297, 4, 2, 42, 100000000000, [1982398457, 6847444, 3035258661, 3473756935]),
    (9223372036854775808, 4, 0, 42, 0, [0, 1, 2, 3]),
    (9223372036854775808, 4, 0, 42, 5, [20, 21, 22, 23]),
    (9223372036854775808, 4, 0, 42, 100000000000, [400000000000, 400000000001, 400000000002, 400000000003]),
    (9223372036854775808, 4, 1, 42, 0,
     [8357498498258311033, 6635149038211946383, 7123247706259986654, 6100255197826095006]),
    (9223372036854775808, 4, 1, 42, 5,
     [8599372852884579406, 4911531169455811891, 1075878429402294739, 6906395491067799507]),
    (9223372036854775808, 4, 1, 42, 100000000000,
     [5195187660758137280, 8738681494074364709, 5873718144722587222, 4194007275098071001]),
    (9223372036854775808, 4, 2, 42, 0,
     [8916656611205281289, 3244134410761622984, 8973301582907942674, 2306794771046485465]),
    (9223372036854775808, 4, 2, 42, 5,
     [3917790146104381806, 8106361011414499491, 4906787042782368696, 6990802875746075051]),
    (9223372036854775808, 4, 2, 42, 100000000000,
     [5667071985823345347, 7550620936098025483, 1223635197905911210, 8325399806522337582]),
]  # fmt: skip


@pytest.mark.parametrize("kernel", draw.kernels())
def test_the_sequences_never_change(kernel: str) -> None:
    draw.use_kernel(kernel)
    try:
        for length, batch_size, mode, seed, step, expected in LITERALS:
            found = Sampler(length, batch_size, mode, seed).indices(step)
            assert found.tolist() == expected, (length, mode, step)
            assert drawing.batch(length, batch_size, mode, seed, step) == expected
    finally:
        draw.use_kernel(None)


def test_options_change_the_sequence_as_ever() -> None:
    assert Sampler(10, 4, "cyclic", 7).next().tolist() == [7, 8, 5, 4]
    assert Sampler(10, 4, "cyclic", 7, drop_remainder=False).indices(2).tolist() == [1, 0, 2, 5]
    assert Sampler(1000, 3, "cyclic", 7, rank=1, world_size=2).indices(9).tolist() == [667, 418, 135]
    assert Sampler(1000, 3, "iid", 2**64 - 1, rank=2, world_size=3).indices(9).tolist() == [112, 709, 318]


def test_random_options_like_the_oracle() -> None:
    rng = np.random.default_rng(0)
    lengths = [1, 2, 5, 17, 256, 257, 1000, 65536, 65537, 10**6, 2**24 + 1, 2**32 + 1, 2**63 - 1, 2**63]
    for _ in range(400):
        length, mode = lengths[rng.integers(len(lengths))], int(rng.integers(3))
        batch_size, world_size = int(rng.integers(1, 40)), int(rng.integers(1, 4))
        drop = bool(rng.integers(2)) and (mode != 2 or world_size == 1 or length >= batch_size * world_size)
        rank, seed = int(rng.integers(world_size)), int(rng.integers(2**64, dtype=np.uint64))
        last = 2**63 // (batch_size * world_size) - 1
        step = [0, 1, last, int(rng.integers(last))][rng.integers(4)]
        options: dict[str, Any] = {"drop_remainder": drop, "rank": rank, "world_size": world_size}
        found = Sampler(length, batch_size, mode, seed, **options).indices(step)
        assert found.tolist() == drawing.batch(length, batch_size, mode, seed, step, **options)


# ---- What each mode promises ---------------------------------------------------------------------------------


def test_sequential_goes_round() -> None:
    sampler = Sampler(10, 4, Sampler.Mode.SEQUENTIAL)
    assert [sampler.next().tolist() for _ in range(4)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 0, 1],
        [2, 3, 4, 5],
    ]
    assert Sampler(3, 8, 0).next().tolist() == [0, 1, 2, 0, 1, 2, 0, 1]


def test_iid_stays_below_the_length_and_reaches_both_ends() -> None:
    draws = Sampler(7, 5000, "iid").next()
    assert draws.min() == 0 and draws.max() == 6
    assert Sampler(1, 5, "iid").next().tolist() == [0] * 5
    assert Sampler(2**63, 1000, "iid").next().max() >= 2**62


@pytest.mark.parametrize(("length", "batch_size"), [(10, 4), (10, 5), (300, 7), (1000, 999), (70_000, 256)])
def test_cyclic_draws_nothing_twice_in_a_cycle(length: int, batch_size: int) -> None:
    sampler = Sampler(length, batch_size, "cyclic")
    steps = length // batch_size
    assert sampler.steps_per_cycle == steps and sampler.batch_length == batch_size
    left_out = set()
    for _ in range(3):
        cycle = np.concatenate([sampler.next() for _ in range(steps)])
        assert len(np.unique(cycle)) == steps * batch_size and cycle.max() < length
        left_out.add(tuple(sorted(set(range(length)) - set(cycle.tolist()))))
    if length % batch_size > 3:
        assert len(left_out) == 3  # another remainder each time


@pytest.mark.parametrize("length", [1, 2, 10, 300, 1000])
@pytest.mark.parametrize("batch_size", [1, 4, 7, 256, 3000])
def test_cyclic_without_a_gap_draws_everything_once_a_cycle(length: int, batch_size: int) -> None:
    sampler = Sampler(length, batch_size, "cyclic", drop_remainder=False)
    assert sampler.steps_per_cycle is None and sampler.batch_length == batch_size
    drawn = np.concatenate([sampler.next() for _ in range(-(-3 * length // batch_size))])
    for cycle in range(3):
        assert np.array_equal(np.sort(drawn[cycle * length : (cycle + 1) * length]), np.arange(length))


def test_cyclic_below_one_batch_gives_short_batches() -> None:
    sampler = Sampler(3, 5, "cyclic")
    assert (sampler.batch_length, sampler.steps_per_cycle, sampler.batch_size) == (3, 1, 5)
    for _ in range(5):
        assert sorted(sampler.next().tolist()) == [0, 1, 2]
    assert sampler.indices(2, np.empty(3, np.uint64)).shape == (3,)
    assert Sampler(3, 5, "iid").next().shape == Sampler(3, 5, "sequential").next().shape == (5,)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drop_remainder", [True, False])
def test_ranks_divide_the_global_batch(mode: Sampler.Mode, drop_remainder: bool) -> None:
    whole = Sampler(1000, 24, mode, 3, drop_remainder=drop_remainder)
    for world_size in (2, 3, 8):
        ranks = [
            Sampler(
                1000,
                24 // world_size,
                mode,
                3,
                drop_remainder=drop_remainder,
                rank=rank,
                world_size=world_size,
            )
            for rank in range(world_size)
        ]
        for step in (0, 1, 41, 42, 10**9):
            parts = [rank.indices(step) for rank in ranks]
            assert np.array_equal(np.concatenate(parts), whole.indices(step))


def test_seeds_and_cycles_differ() -> None:
    for mode in ("iid", "cyclic"):
        batches = [tuple(Sampler(1000, 20, mode, seed).next().tolist()) for seed in (0, 1, 2, 2**64 - 1)]
        assert len(set(batches)) == 4
    assert np.array_equal(Sampler(9, 5, 0, 1).next(), Sampler(9, 5, 0, 2).next())


# ---- Steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [10, 1000, 2**40])
def test_a_step_is_the_same_however_it_is_reached(mode: Sampler.Mode, length: int) -> None:
    sampler = Sampler(length, 4, mode)
    batches = [sampler.next() for _ in range(20)]
    assert sampler.step == 20
    for step in (19, 0, 7, 7):
        assert np.array_equal(sampler.indices(step), batches[step]) and sampler.step == 20
    for step in range(20):
        sampler.seek(step)
        assert sampler.step == step
        assert np.array_equal(next(sampler), batches[step]) and sampler.step == step + 1
    fresh = Sampler(length, 4, mode)
    assert iter(fresh) is fresh
    for found, expected in zip(fresh, batches, strict=False):
        assert np.array_equal(found, expected)


def test_batches_are_fresh_arrays_or_out() -> None:
    sampler = Sampler(1000, 64, "iid")
    first, second = sampler.next(), sampler.next()
    assert first.dtype == np.uint64 and first.flags.owndata and first.flags.writeable
    assert not np.shares_memory(first, second) and not np.array_equal(first, second)
    out = np.zeros(64, np.uint64)
    assert sampler.indices(0, out) is out and np.array_equal(out, first)
    assert sampler.indices(1, out=out) is out and np.array_equal(out, second)
    assert sampler.indices(np.int64(1)).tolist() == second.tolist()


@pytest.mark.parametrize(
    ("out", "form"),
    [
        ((ctypes.c_uint64 * 64)(), "<Q"),
        (memoryview(bytearray(512)).cast("Q"), "Q"),
        (memoryview(bytearray(512)).cast("@L"), "@L"),
        (array.array("Q", bytes(512)), "Q"),
        (np.zeros(64, np.ulonglong), "Q"),
    ],
)
def test_any_buffer_of_such_numbers_will_do(out: Any, form: str) -> None:
    assert memoryview(out).format in (form, form.replace("Q", "L"))
    sampler = Sampler(1000, 64, "iid")
    assert sampler.indices(5, out) is out
    assert list(out) == sampler.indices(5).tolist()


def test_the_last_steps() -> None:
    for mode in MODES:
        sampler = Sampler(1000, 2**32, mode, drop_remainder=False, rank=2**24 - 1, world_size=2**24)
        with pytest.raises(OptionError, match="step is 128: give a whole number from 0 to 127"):
            sampler.seek(128)
        sampler = Sampler(2**63, 3, mode)
        last = 2**63 // 3 - 1
        assert sampler.indices(last).max() < 2**63
        if mode == Sampler.Mode.SEQUENTIAL:
            assert sampler.indices(last).tolist() == [3 * last, 3 * last + 1, 3 * last + 2]
        sampler.seek(last)
        for _ in range(2):
            with pytest.raises(OptionError, match=rf"step is {last + 1}: .* to {last}"):
                sampler.next()
            assert sampler.step == last
        assert pickle.loads(pickle.dumps(sampler)).step == last


def test_threads_get_a_step_each_and_draw_at_once() -> None:
    sampler = Sampler(10**6, 500, "cyclic")
    expected = {step: sampler.indices(step).tobytes() for step in range(800)}
    found: list[bytes] = []
    wrong: list[int] = []

    def work(number: int) -> None:
        out = np.empty(500, np.uint64)
        mine = []
        for step in range(200):
            mine.append(sampler.next().tobytes())
            if (
                sampler.indices((step * 7 + number) % 800, out).tobytes()
                != expected[(step * 7 + number) % 800]
            ):
                wrong.append(step)
        found.extend(mine)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and sampler.step == 800
    assert sorted(found) == sorted(expected.values())


def test_large_batches_let_others_run_and_are_the_same() -> None:
    large = Sampler(10**7, 200_000, "cyclic", 5).indices(1)
    small = Sampler(10**7, 2_000, "cyclic", 5)
    assert np.array_equal(large, np.concatenate([small.indices(step) for step in range(100, 200)]))


def test_pickles_and_copies_go_on_where_it_was() -> None:
    sampler = Sampler(1000, 6, "cyclic", 9, drop_remainder=False, rank=1, world_size=2)
    sampler.seek(12)
    for other in (pickle.loads(pickle.dumps(sampler)), copy.copy(sampler), copy.deepcopy(sampler)):
        assert repr(other) == repr(sampler) and other.step == 12
        assert np.array_equal(other.next(), sampler.indices(12))
    assert sampler.step == 12


class Named(Sampler):
    """A subclass, as users may write one."""


def test_a_subclass_pickles_as_itself() -> None:
    assert type(pickle.loads(pickle.dumps(Named(5, 2, 1)))) is Named


def test_repr() -> None:
    assert repr(Sampler(10, 4, 1)) == "<Sampler(10, 4, IID, seed=42) at step 0>"
    shown = repr(Sampler(10, 4, 2, 1, drop_remainder=False, rank=1, world_size=2))
    assert shown == "<Sampler(10, 4, CYCLIC, seed=1, drop_remainder=False, rank=1, world_size=2) at step 0>"


# ---- Options -------------------------------------------------------------------------------------------------


def test_options_of_every_kind() -> None:
    for mode in (2, "cyclic", "CYCLIC", "Cyclic", Sampler.Mode.CYCLIC, np.int64(2), np.uint8(2)):
        assert Sampler(10, 4, mode).mode is Sampler.Mode.CYCLIC
    sampler = Sampler(np.int32(10), np.uint64(4), 1, np.uint64(2**64 - 1), drop_remainder=np.True_)
    assert [type(value) for value in (sampler.length, sampler.batch_size, sampler.seed)] == [int, int, int]
    assert sampler.drop_remainder is True and sampler.seed == 2**64 - 1
    assert (Sampler.Mode.SEQUENTIAL, Sampler.Mode.IID, Sampler.Mode.CYCLIC) == (0, 1, 2)
    assert "Sampler" in loaderx.__all__ and "Sampler" in dir(loaderx)


@pytest.mark.parametrize(
    ("options", "option", "words"),
    [
        ({"length": 0}, "length", "from 1 to 9223372036854775808"),
        ({"length": -1}, "length", "length is -1"),
        ({"length": 2**63 + 1}, "length", "from 1 to"),
        ({"length": 10.0}, "length", "10.0: give a whole number"),
        ({"length": True}, "length", "give a whole number"),
        ({"length": "10"}, "length", "give a whole number"),
        ({"length": None}, "length", "give a whole number"),
        ({"batch_size": 0}, "batch_size", "from 1 to 4294967296"),
        ({"batch_size": -4}, "batch_size", "batch_size is -4"),
        ({"batch_size": 2**32 + 1}, "batch_size", "from 1 to"),
        ({"batch_size": 4.0}, "batch_size", "give a whole number"),
        ({"batch_size": np.True_}, "batch_size", "give a whole number"),
        ({"seed": -1}, "seed", "from 0 to 18446744073709551615"),
        ({"seed": 2**64}, "seed", "from 0 to"),
        ({"seed": None}, "seed", "give a whole number"),
        ({"mode": 3}, "mode", r"mode is 3: choose one of SEQUENTIAL \(0\), IID \(1\), CYCLIC \(2\)"),
        ({"mode": -1}, "mode", "choose one of"),
        ({"mode": "random"}, "mode", "mode is 'random': choose one of"),
        ({"mode": True}, "mode", "choose one of"),
        ({"mode": 1.0}, "mode", "choose one of"),
        ({"mode": None}, "mode", "choose one of"),
        ({"drop_remainder": 1}, "drop_remainder", "give True or False"),
        ({"world_size": 0}, "world_size", "from 1 to 16777216"),
        ({"world_size": 2**24 + 1}, "world_size", "from 1 to"),
        ({"rank": 1}, "rank", "from 0 to 0"),
        ({"rank": 2, "world_size": 2}, "rank", "from 0 to 1"),
        ({"rank": -1, "world_size": 2}, "rank", "rank is -1"),
        ({"rank": 0, "world_size": 3}, "batch_size", "length is 10, below the 12 .* at most 3, drop_remainder=False"),
        ({"length": 2, "world_size": 3}, "batch_size", "length is 2, below the 12 .*: give drop_remainder=False"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(options: dict[str, Any], option: str, words: str) -> None:
    given = {"length": 10, "batch_size": 4, "mode": 2} | options
    with pytest.raises(OptionError, match=words) as caught:
        Sampler(**given)
    assert caught.value.option == option
    assert isinstance(caught.value, ValueError)


def test_several_ranks_may_have_short_lengths_otherwise() -> None:
    for mode, drop in ((0, True), (1, True), (2, False)):
        parts = [
            Sampler(10, 4, mode, drop_remainder=drop, rank=rank, world_size=3).next() for rank in range(3)
        ]
        assert [len(part) for part in parts] == [4, 4, 4]


@pytest.mark.parametrize("step", [-1, 2**64, 2**63, 1.5, True, "1", None])
def test_wrong_steps_are_refused(step: Any) -> None:
    sampler = Sampler(10, 4, 1)
    for call in (sampler.seek, sampler.indices):
        with pytest.raises(OptionError, match="step is ") as caught:
            call(step)
        assert caught.value.option == "step"
    assert sampler.step == 0


def unaligned(n: int) -> Any:
    """Return an array of uint64 that does not begin at a multiple of 8 bytes."""
    return np.empty(8 * n + 8, np.uint8)[1 : 8 * n + 1].view(np.uint64)


def released() -> memoryview:
    view = memoryview(bytearray(32)).cast("Q")
    view.release()
    return view


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (np.empty(3, np.uint64), r"out has the shape \(3,\), and a batch \(4,\)"),
        (np.empty((2, 2), np.uint64), r"out has the shape \(2, 2\)"),
        (np.empty(4, np.int64), "out must hold uint64, not int64"),
        (np.empty(4, ">u8"), "out must hold uint64, not >u8"),
        (np.empty(8, np.uint64)[::2], "out must be contiguous"),
        (np.frombuffer(bytes(32), np.uint64), "out is read-only"),
        (bytearray(32), "out must hold uint64, not B"),
        (np.empty(4, "M8[s]"), r"out must hold uint64, not datetime64\[s\]"),
        (unaligned(4), "out must begin at a multiple of 8 bytes"),
        (unaligned(4).data, "out must begin at a multiple of 8 bytes"),
        (unaligned(3), r"out has the shape \(3,\)"),
        (released(), "out is no buffer to fill: operation forbidden on released memoryview"),
        ((ctypes.c_int64 * 4)(), "out must hold uint64, not <l|q"),
        ((ctypes.c_uint64.__ctype_be__ * 4)(), "out must hold uint64, not >"),
        ((ctypes.c_uint32 * 8)(), "out must hold uint64, not <I"),
        ((ctypes.c_uint64 * 2 * 2)(), r"out has the shape \(2, 2\)"),
    ],
)
def test_wrong_destinations_are_refused(out: Any, words: str) -> None:
    with pytest.raises(DestinationError, match=words) as caught:
        Sampler(10, 4, 1).indices(0, out)
    assert caught.value.needed_bytes == 32


def test_no_destination_at_all_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="list"):
        Sampler(10, 4, 1).indices(0, [0, 0, 0, 0])  # type: ignore[arg-type]
