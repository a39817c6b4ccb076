"""Natural name order: part2 before part10."""

from __future__ import annotations

import os
import re
from pathlib import Path

_NUMBERS = re.compile("([0-9]+)")


def natural_key(path: Path) -> tuple[list[tuple[list[tuple[str, int]], str]], str]:
    """Give the key that sorts paths folder by folder, the numbers in their names by value.

    >>> [str(path) for path in sorted(map(Path, ["part10.npy", "part2.npy", "part.npy"]), key=natural_key)]
    ['part.npy', 'part2.npy', 'part10.npy']
    """
    return [(name_key(name), name) for name in path.parts], str(path)


def name_key(name: str) -> list[tuple[str, int]]:
    """Cut a name, without its ending, into pairs of text and the number after it."""
    pieces = _NUMBERS.split(os.path.splitext(name)[0])
    # re.split gives text, digits, text, ..., text; the last text has no number after it.
    numbers = [int(digits) for digits in pieces[1::2]] + [-1]
    return list(zip(pieces[0::2], numbers, strict=True))
