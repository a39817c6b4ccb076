"""What makes an object of a line: orjson where it is installed, else json, or anything that can be called."""

from __future__ import annotations

import codecs
import json
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from loaderx.errors import MissingDependencyError, OptionError

Parse: TypeAlias = Callable[[bytes], Any]

# Of a decoder as `json.loads` has one; it is C code where json has any.
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_SPACE = " \t\n\r"


def parse_json(line: bytes) -> Any:
    """Return what ``json.loads(line.decode())`` does, in less time.

    Raises
    ------
    json.JSONDecodeError, UnicodeDecodeError, RecursionError
    """
    text = line.decode()
    try:
        found, end = _scan(text, 0)
    except StopIteration:
        return json.loads(text)  # it begins with white space, or is wrong
    if end != len(text) and text[end:].strip(_SPACE):
        return json.loads(text)  # which says what is wrong
    return found


def choose_parser(parse: Parse | str | None) -> Parse:
    """Return the function that parses a line.

    Parameters
    ----------
    parse : callable or {"orjson", "json"} or None
        None: orjson's where it is installed, else json's.

    Raises
    ------
    OptionError
        It is none of these.
    MissingDependencyError
        It is "orjson", which is not installed.
    """
    if callable(parse):
        return parse
    if parse == "json":
        return parse_json
    if parse is not None and parse != "orjson":
        raise OptionError(
            f"parse is {parse!r}: give a function of bytes, or 'orjson' or 'json'; None takes orjson where it is "
            "installed, and json where it is not",
            option="parse",
            value=parse,
        )
    try:
        import orjson
    except ImportError:
        if parse is None:
            return parse_json
        raise MissingDependencyError(
            "parse is 'orjson', which is not installed: pip install orjson, or leave parse out",
            package="orjson",
            extra="jsonl",
        ) from None
    loads: Parse = orjson.loads
    return loads


def choose_decoder(encoding: str) -> Parse:
    """Return the function that makes a str of a line.

    Raises
    ------
    OptionError
        There is no such encoding, or lines in it do not end with the byte 10.
    """
    try:
        end = "\n".encode(codecs.lookup(encoding).name)
    except (LookupError, TypeError):
        raise OptionError(
            f"encoding is {encoding!r}, which Python does not know: give one such as 'utf-8'",
            option="encoding",
            value=encoding,
        ) from None
    if end != b"\n":
        raise OptionError(
            f"encoding is {encoding!r}, in which a line end is not the single byte 10, which lines are divided by: "
            "convert the files to UTF-8 first",
            option="encoding",
            value=encoding,
        )
    return operator.methodcaller("decode", encoding)
