"""Names in braces, as shells and WebDataset write them: ``part-{000..099}.tar``, ``{train,test}.jsonl``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product

from loaderx.errors import OptionError

_NUMBERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")
_MOST_NAMES = 10_000_000


def expand_braces(text: str) -> list[str]:
    """Return what a text with braces stands for, in order; the text alone where it has none.

    ``{a,b}`` stands for each of the two, which may have braces themselves, and ``{08..12}`` for numbers of as many
    digits, with ``..2`` behind them for every second one; several braces for each with each, the last one fastest.
    What is neither, such as ``{a}``, is as it is written.

    Raises
    ------
    OptionError
        It stands for ten million names or more.
    """
    parts = [_alternatives(part) if is_several else [part] for part, is_several in _cut(text)]
    n = 1
    for part in parts:
        n *= len(part)
    if n >= _MOST_NAMES:
        _refuse(text, n)
    return ["".join(chosen) for chosen in product(*parts)]


def has_braces(text: str) -> bool:
    """Return whether a text stands for others."""
    return "{" in text and any(is_several for _, is_several in _cut(text))


def _refuse(text: str, n: int) -> None:
    raise OptionError(
        f"paths is {text!r}, which stands for {n:,} names: give fewer than {_MOST_NAMES:,}",
        option="paths",
        value=text,
    )


def _cut(text: str) -> Iterator[tuple[str, bool]]:
    """Yield a text in parts: what stands within braces for others, and what is between them; and which it is."""
    begin = at = 0
    while (opening := text.find("{", at)) >= 0:
        end = _closing(text, opening)
        inner = text[opening + 1 : end]
        if end < 0 or not (_NUMBERS.fullmatch(inner) or len(_choices(inner)) > 1):
            at = opening + 1
            continue
        yield text[begin:opening], False
        yield inner, True
        begin = at = end + 1
    yield text[begin:], False


def _closing(text: str, opening: int) -> int:
    depth = 0
    for at in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return -1


def _choices(inner: str) -> Sequence[str]:
    """Cut what stands within braces at the commas that are in no further ones."""
    choices, depth, begin = [], 0, 0
    for at, letter in enumerate(inner):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            choices.append(inner[begin:at])
            begin = at + 1
    return [*choices, inner[begin:]]


def _alternatives(inner: str) -> list[str]:
    found = _NUMBERS.fullmatch(inner)
    if found is None:
        return [name for choice in _choices(inner) for name in expand_braces(choice)]
    first, last = int(found[1]), int(found[2])
    step = abs(int(found[3] or 1)) or 1
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    if len(numbers) >= _MOST_NAMES:
        _refuse(f"{{{inner}}}", len(numbers))
    # As in a shell: one that begins with a zero says of how many digits all are.
    is_padded = any(len(digits := text.lstrip("-")) > 1 and digits[0] == "0" for text in found.groups()[:2])
    width = max(len(found[1]), len(found[2])) if is_padded else 0
    return [f"{number:0{width}d}" for number in numbers]
