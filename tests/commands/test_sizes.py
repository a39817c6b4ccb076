"""Byte counts: what is read and what is written."""

from __future__ import annotations

import argparse

import pytest

from loaderx.commands.sizes import format_bytes, format_ratio, parse_size, ratio


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("0", 0), ("4096", 4096), ("1KiB", 1024), ("64MiB", 64 << 20), ("2 gib", 2 << 30), (" 7 ", 7)],
)
def test_parse_size(text: str, num_bytes: int) -> None:
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize("text", ["", "-1", "1.5MiB", "MiB", "64MB", "1e6", "١", "0x10", "9" * 30])
def test_parse_size_refuses(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a size: give bytes as a whole number"):
        parse_size(text)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (1536 * 1024, "1.5 MiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 50, "3,072.0 TiB"),
    ],
)
def test_format_bytes(num_bytes: int, text: str) -> None:
    assert format_bytes(num_bytes) == text


def test_ratio() -> None:
    assert ratio(300, 100) == 3.0
    assert ratio(300, 0) is None
    assert (format_ratio(300, 200), format_ratio(0, 0)) == ("1.50x", "no bytes")
