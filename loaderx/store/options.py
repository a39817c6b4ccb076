"""Arguments that several calls take: their ranges, and one error for what is outside them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, TypeAlias

from loaderx._core.compress import level_range
from loaderx.errors import OptionError
from loaderx.store.format import CODECS

Codec: TypeAlias = Literal["raw", "zstd", "zstd_dict"]


def check_codec(codec: str) -> Any:
    """Return a codec's name, or raise `OptionError`."""
    return check_choice("codec", codec, tuple(CODECS))


def check_choice(option: str, value: Any, choices: tuple[str, ...]) -> Any:
    """Return `value` if it is one of the choices, or raise `OptionError`."""
    if value not in choices:
        raise OptionError(
            f"{option} is {value!r}: choose one of {', '.join(choices)}", option=option, value=value
        )
    return value


def check_level(level: int | None) -> int | None:
    """Return a zstd level, or raise `OptionError`."""
    lowest, highest = level_range()
    if level is not None and not (isinstance(level, int) and lowest <= level <= highest):
        raise OptionError(
            f"level is {level!r}: zstd takes whole numbers from {lowest} to {highest}",
            option="level",
            value=level,
        )
    return level


def check_threads(threads: int) -> int:
    """Return a number of threads, or raise `OptionError`."""
    if not isinstance(threads, int) or threads < 0:
        raise OptionError(
            f"threads is {threads!r}: give a number of threads, or 0 for every core",
            option="threads",
            value=threads,
        )
    return threads


def check_batch_bytes(store: Path, n_bytes: int, limit: int | None) -> None:
    """Raise `OptionError` where a batch would take more memory than allowed."""
    if limit is not None and n_bytes > limit:
        raise OptionError(
            f"{store}: the batch needs {n_bytes} bytes, over max_batch_bytes={limit}: read fewer records at a time, or "
            "raise the limit",
            option="max_batch_bytes",
            value=limit,
        )


def check_max_batch_bytes(limit: int | None) -> int:
    """Return the most bytes a batch may have: `limit`, or this machine's memory where it is None."""
    if limit is None:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if not isinstance(limit, int) or limit < 0:
        raise OptionError(
            f"max_batch_bytes is {limit!r}: give a number of bytes, or None for this machine's memory",
            option="max_batch_bytes",
            value=limit,
        )
    return limit
