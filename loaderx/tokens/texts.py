"""From a record to the text of a document, or to its parts; what is wrong with one that has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

#: The key of a record's text, or a function from a record to its text or parts.
TextOf: TypeAlias = "str | Callable[[Any], Any]"

#: The type of a text that has no parts, as data-forager has it.
PLAIN = "text"
PARTS = "parts"


class TextError(Exception):
    """A record that has no text to encode.

    Parameters
    ----------
    kind : {"empty", "missing", "null", "not_text", "parts", "function"}
    problem : str
        What is wrong with the record, without which.
    """

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(kind, problem)
        self.kind = kind
        self.problem = problem


def read_text(record: Any, text: TextOf, allow_empty: bool) -> tuple[list[str], list[str]]:
    """Return the texts of a record's parts, and their types; a text without parts is one part of type "text".

    Parameters
    ----------
    record : str or mapping or object
        A string is its own text, unless `text` is a function.
    text : str or callable
        A key: the value is a string, or a list of parts. Where a record has no such key and has "parts", those.
    allow_empty : bool
        Let a document have no characters.

    Raises
    ------
    TextError
    """
    value = _find(record, text)
    if isinstance(value, str):
        if not value and not allow_empty:
            raise TextError("empty", "its text is empty")
        return [value], [PLAIN]
    if value is None:
        raise TextError("null", f"{_what(text)} is null")
    if isinstance(value, list | tuple):
        return _read_parts(value, allow_empty)
    raise TextError("not_text", f"{_what(text)} is a {type(value).__name__}, not a string or a list of parts")


def _find(record: Any, text: TextOf) -> Any:
    if callable(text):
        try:
            return text(record)
        except Exception as error:
            raise TextError("function", f"text raised {type(error).__name__}: {error}") from error
    if isinstance(record, str):
        return record
    if not isinstance(record, Mapping):
        raise TextError(
            "not_text", f"the record is {_a_kind(record)}, not an object with the key {text!r} or a string"
        )
    if text in record:
        return record[text]
    if PARTS in record:
        return record[PARTS]
    keys = ", ".join(repr(key) for key in list(record)[:5])
    more = " and more" if len(record) > 5 else ""
    raise TextError(
        "missing", f"it has no key {text!r}" + (f"; it has {keys}{more}" if record else ": it is empty")
    )


def _read_parts(value: list[Any] | tuple[Any, ...], allow_empty: bool) -> tuple[list[str], list[str]]:
    texts, types = [], []
    for number, part in enumerate(value):
        if not isinstance(part, Mapping):
            raise TextError(
                "parts",
                f'part {number} is {_a_kind(part)}, not an object with "type" and "text"',
            )
        for key in ("type", "text"):
            if not isinstance(part.get(key), str):
                found = _a_kind(part[key]) if key in part else "missing"
                raise TextError("parts", f'the "{key}" of part {number} is {found}, not a string')
        texts.append(part["text"])
        types.append(part["type"])
    if not any(texts) and not allow_empty:
        raise TextError("empty", "all its parts are empty" if texts else "it has no parts")
    return texts, types


def _a_kind(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"


def _what(text: TextOf) -> str:
    return f"its {text!r}" if isinstance(text, str) else "what the function gives for its text"
