"""Byte counts as people write and read them."""

from __future__ import annotations

import argparse
import re

_UNITS = {"": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def parse_size(text: str) -> int:
    """Read a byte count: a whole number, or one followed by KiB, MiB or GiB.

    >>> parse_size("4096"), parse_size("64MiB")
    (4096, 67108864)

    Raises
    ------
    argparse.ArgumentTypeError
        If the text is not such a number.
    """
    match = re.fullmatch(r"([0-9]{1,15})\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in _UNITS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size: give bytes as a whole number, or with KiB, MiB or GiB, such as 64MiB"
        )
    return int(match[1]) * _UNITS[match[2].upper()]


def format_bytes(num_bytes: int) -> str:
    """Write a byte count in the largest unit that keeps it at 1 or more.

    >>> format_bytes(900), format_bytes(1536), format_bytes(5 << 30)
    ('900 B', '1.5 KiB', '5.0 GiB')
    """
    size = float(num_bytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1023.95 or unit == "TiB":
            return f"{num_bytes} B" if num_bytes < 1024 else f"{size:,.1f} {unit}"
    raise AssertionError("the last unit takes every size")


def ratio(logical_bytes: int, stored_bytes: int) -> float | None:
    """Give how many times smaller the stored bytes are, or None where there are none."""
    return logical_bytes / stored_bytes if stored_bytes else None


def format_ratio(logical_bytes: int, stored_bytes: int) -> str:
    """Write the ratio of `ratio`.

    >>> format_ratio(300, 100), format_ratio(0, 0)
    ('3.00x', 'no bytes')
    """
    value = ratio(logical_bytes, stored_bytes)
    return "no bytes" if value is None else f"{value:.2f}x"


def mib_per_s(num_bytes: int, seconds: float) -> float:
    """Give the rate in MiB/s."""
    return num_bytes / (1 << 20) / max(seconds, 1e-9)


def count(number: int, noun: str) -> str:
    """Write a number of things.

    >>> count(1, "record"), count(1797, "record")
    ('1 record', '1,797 records')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
