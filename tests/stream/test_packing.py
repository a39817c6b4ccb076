"""Keys that are packed, and those of a state: what is unpacked is what was packed, in one form, also after JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderx.stream.keys import Shared, freeze, load_keys, save_keys
from loaderx.stream.packing import length, pack, unpack

NUMBERS = st.integers(-3, 3) | st.integers(-(2**70), 2**70)
KEYS = st.recursive(
    NUMBERS | st.none() | st.text(max_size=2), lambda part: st.lists(part, max_size=3).map(tuple)
)
#: Keys of one form, as a node gives them: of several parts, each of its own kind, in a row or not.
COLUMNS = st.lists(st.sampled_from([0, 1, 7]), min_size=2, max_size=3).flatmap(
    lambda steps: st.lists(st.tuples(*(st.just(0) if step else NUMBERS for step in steps)), max_size=100).map(
        lambda keys: [
            tuple(part + step * i for part, step in zip(key, steps, strict=True))
            for i, key in enumerate(keys)
        ]
    )
)

FORMS: dict[str, tuple[list[Any], Any]] = {
    "one": ([5], ["run", 5, 1, 1]),
    "in a row": ([5, 6, 7], ["run", 5, 1, 3]),
    "backwards": ([7, 5, 3], ["run", 7, -2, 3]),
    "the same": ([4, 4, 4], ["run", 4, 0, 3]),
    "a run at its ends": ([1, 2, 2, 4], ["steps", 1, "<i1", "AQAC"]),
    "far": ([0, 300, 0], ["steps", 0, "<i2", "LAHU/g=="]),
    "farther": ([0, 2**20, 0], ["steps", 0, "<i4", "AAAQAAAA8P8="]),
    "farthest": ([0, 2**40, 0], ["steps", 0, "<i8", "AAAAAAABAAAAAAAAAP///w=="]),
    "too far": ([0, 2**63, 1], ["plain", [0, 2**63, 1]]),
    "parts": ([(1, 5), (1, 6)], ["columns", ["run", 1, 0, 2], ["run", 5, 1, 2]]),
    "lists": ([(1,), (2, 3)], ["lists", ["run", 1, 1, 2], ["run", 1, 1, 3]]),
    "others": ([(1, "a"), (2, None)], ["columns", ["run", 1, 1, 2], ["plain", ["a", None]]]),
    "none": ([], ["plain", []]),
    "of nothing": ([(), ()], ["plain", [(), ()]]),
    "truth": ([True, False], ["plain", [True, False]]),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str) -> None:
    keys, expected = FORMS[name]
    assert pack(keys, Shared) == expected
    assert unpack(expected) == keys
    assert length(expected) == len(keys)


def test_many_differences_that_repeat_take_little_room() -> None:
    """As those of shards that are read in turns."""
    keys = [(i % 10, i // 10) for i in range(1000)]
    packed = pack(keys, Shared)
    assert unpack(packed) == keys and length(packed) == 1000
    assert len(json.dumps(packed)) < 200


@given(st.lists(KEYS, max_size=8) | COLUMNS)
def test_what_is_packed_is_unpacked(keys: list[Any]) -> None:
    packed = pack(keys, Shared)
    assert length(packed) == len(keys)
    assert freeze(unpack(packed)) == freeze(keys)
    again = unpack(json.loads(json.dumps(packed)))
    assert freeze(again) == freeze(keys)
    assert json.dumps(pack(again, Shared)) == json.dumps(packed)


def test_shared_parts_are_saved_once_also_where_they_are_mixed_with_others_and_made_anew() -> None:
    def make() -> tuple[Shared, Shared]:
        inner = Shared(0, 0, [(0, 1), (0, 2)])
        return inner, Shared(5, 1, [(inner, 0), (inner, 4)])

    inner, outer = make()
    inner_again, outer_again = make()
    keys = [(0, (outer, 1)), (1, (3, 7)), (0, (outer_again, 2)), (0, (inner_again, 0)), [inner]]
    saved = save_keys(keys, shares=True)
    assert [part[:2] for part in saved["shared"]] == [[0, 0], [5, 1]]
    loaded = load_keys(json.loads(json.dumps(saved)))
    assert freeze(loaded) == freeze(keys)
    assert save_keys(loaded, shares=True) == json.loads(json.dumps(saved))
    assert loaded[0][1][0].unpacked() == [(inner, 0), (inner, 4)]
    assert Shared(0, 0, [(0, 1)]) != Shared(0, 1, [(0, 1)])


def test_parts_that_are_not_as_many_are_no_keys() -> None:
    with pytest.raises(ValueError, match="not as many"):
        unpack(["columns", ["run", 0, 0, 10**15], ["run", 5, 1, 2]])
