"""Arguments that several calls take: their ranges, and one error for what is outside them."""

from __future__ import annotations

import math
import operator
import os
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from loaderx._core.compress import level_range
from loaderx.errors import OptionError, StoreIOError
from loaderx.store.format import CODECS, UNSHUFFLED
from loaderx.store.telling import shown

Codec: TypeAlias = Literal["raw", "zstd", "zstd_dict", "zstd_shuffle", "zstd_shuffle_dict"]
#: What writers of datasets take: a codec, or to choose one by the data.
CodecOrAuto: TypeAlias = Codec | Literal["auto"]

# Far more than help; beyond it somebody has mistaken the argument.
_MAX_THREADS = 4096


def check_codec(codec: str) -> Any:
    """Return a codec's name, or raise `OptionError`."""
    return check_choice("codec", codec, tuple(CODECS))


def check_choice(option: str, value: Any, choices: tuple[str, ...]) -> Any:
    """Return `value` if it is one of the choices, or raise `OptionError`."""
    if value not in choices:
        raise OptionError(
            f"{option} is {shown(value)}: choose one of {', '.join(choices)}", option=option, value=value
        )
    return value


def check_count(option: str, value: Any, *, least: int = 0, most: int = 2**62) -> int:
    """Return a whole number within its range (NumPy's too), or raise `OptionError`."""
    if type(value) is int and least <= value <= most:
        return value  # first and quick: it is on the way of every batch
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise OptionError(
            f"{option} is {shown(value)}: give a whole number", option=option, value=value
        ) from None
    if not least <= count <= most:
        bounds = f"from {least} to {most}" if most != 2**62 else f"of at least {least}"
        raise OptionError(
            f"{option} is {shown(count)}: give a whole number {bounds}", option=option, value=value
        )
    return count


def check_flag(option: str, value: Any) -> bool:
    """Return a truth value (NumPy's too), or raise `OptionError`, for "no" and 0 may have been meant as either."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise OptionError(f"{option} is {shown(value)}: give True or False", option=option, value=value)


def check_callable(option: str, value: Any) -> None:
    """Raise `OptionError` for what is neither None nor can be called."""
    if value is not None and not callable(value):
        raise OptionError(f"{option} is {shown(value)}: give a function, or None", option=option, value=value)


def check_seconds(option: str, value: Any) -> float:
    """Return a span of time in seconds, or raise `OptionError`."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if isinstance(value, bool | str) or not seconds >= 0:
        raise OptionError(f"{option} is {shown(value)}: give seconds, 0 or more", option=option, value=value)
    return seconds


def check_level(level: int | None, codec: CodecOrAuto | None = None) -> int | None:
    """Return a zstd level, or raise `OptionError`: also where the codec is one that has none."""
    if level is None:
        return None
    lowest, highest = level_range()
    checked = check_count("level", level, least=lowest, most=highest)
    if codec == "raw":
        raise OptionError(
            f"level is {level}, and codec 'raw' compresses nothing: leave it out, or choose another",
            option="level",
            value=level,
        )
    return checked


def check_item_size(store: Path, codec: str, item_size: int | None) -> int | None:
    """Return the bytes of the items in records, or raise `OptionError`: also where a codec needs them and has none."""
    if item_size is not None:
        return check_count("item_size", item_size, least=1)
    if codec in UNSHUFFLED:
        raise OptionError(
            f"{store}: codec {codec!r} needs item_size, the bytes of the items in the records",
            option="item_size",
            value=None,
        )
    return None


def check_threads(threads: int) -> int:
    """Return a number of threads, 0 for every core, or raise `OptionError`."""
    return check_count("threads", threads, most=_MAX_THREADS)


def check_path(path: str | os.PathLike[str]) -> Path:
    """Return a path, made absolute, so that it stays right when the process changes its directory.

    Raises
    ------
    OptionError
        It is empty, which would mean the current directory.
    StoreIOError
        It is relative, and the current directory has been removed.
    """
    if os.fspath(path) == "":
        raise OptionError("path is empty: name the store's directory", option="path", value=path)
    try:
        return Path(path).absolute()
    except OSError as error:
        raise StoreIOError(
            f"{path}: could not find it, for the current directory is gone: {error.strerror}",
            path=Path(path),
            errno=error.errno,
        ) from error


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
    return check_count("max_batch_bytes", limit)
