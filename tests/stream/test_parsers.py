"""Where orjson and json give different values, as the documentation of `from_jsonl` has it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import orjson
import pytest

from loaderx.errors import JsonlError, StateMismatchError
from loaderx.jsonl.parser import choose_parser
from loaderx.stream import Stream

SAME = [
    "9223372036854775807", "-9223372036854775808", "18446744073709551615", "0.1", "0.1234567890123456789", "-0.0",
    "1E5", "1.0", "4.9e-324", "1.7976931348623157e308", "123456789012345678901.5", '{"a": 1, "a": 2}', '"\\u0000"',
]  # fmt: skip


def read(path: Path, text: str, parse: Literal["orjson", "json"]) -> Any:
    path.write_text(text)
    return next(iter(Stream.from_jsonl(path, parse=parse)))


@pytest.mark.parametrize("text", SAME)
def test_they_give_the_same(text: str) -> None:
    assert choose_parser("orjson") is orjson.loads
    by_orjson, by_json = (choose_parser(name)(text.encode()) for name in ("orjson", "json"))
    assert (type(by_orjson), repr(by_orjson)) == (type(by_json), repr(by_json))


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30 + 1])
def test_whole_numbers_beyond_64_bits(number: int, tmp_path: Path) -> None:
    exact = read(tmp_path / "a.jsonl", f"[{number}]", "json")
    rounded = read(tmp_path / "a.jsonl", f"[{number}]", "orjson")
    assert exact == [number] and type(exact[0]) is int
    assert rounded == [float(number)] and type(rounded[0]) is float


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "-Infinity", "1e400", '"\\ud800"'])
def test_what_orjson_refuses(text: str, tmp_path: Path) -> None:
    found = read(tmp_path / "a.jsonl", text, "json")
    assert found == "\ud800" or found == [math.inf] or not math.isfinite(found)
    with pytest.raises(JsonlError, match=r"a\.jsonl"):
        read(tmp_path / "a.jsonl", text, "orjson")


def test_a_parser_that_was_named_is_in_the_state(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("1\n2\n")
    states = {parse: Stream.from_jsonl(path, parse=parse).state_dict() for parse in ("json", "orjson", None)}
    for parse, state in states.items():
        for other in states:
            stream = Stream.from_jsonl(path, parse=other)
            if other == parse:
                stream.load_state_dict(state)
            else:
                with pytest.raises(StateMismatchError, match="parse of from_jsonl was"):
                    stream.load_state_dict(state)
