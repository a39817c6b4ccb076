"""What is done about rows of a source that are bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from loaderx.errors import LoaderxError
from loaderx.store.options import check_choice
from loaderx.stream.node import Item
from loaderx.stream.shards import MISSING

#: "raise", "skip", or a function of the error, whose result takes the row's place.
OnError: TypeAlias = Literal["raise", "skip"] | Callable[[Any], Any]


def check_on_error(on_error: Any) -> OnError:
    """Return what is to be done, or raise `OptionError`."""
    if not callable(on_error):
        check_choice("on_error", on_error, ("raise", "skip"))
    checked: OnError = on_error
    return checked


def judge(on_error: OnError, error: Exception, explain: Callable[[Exception], LoaderxError]) -> Item:
    """Return what takes the place of a bad row, `MISSING` for nothing, or raise.

    Parameters
    ----------
    on_error : "raise", "skip" or callable
    error : Exception
        Why it is bad.
    explain : callable
        Makes of that the error which says where; costs what it costs to find out.
    """
    if isinstance(error, MemoryError):
        raise error
    if on_error == "skip":
        return MISSING
    explained = explain(error)
    if callable(on_error):
        # Whoever keeps the error would keep the whole block with its traceback.
        explained.__cause__ = error.with_traceback(None)
        return on_error(explained)
    raise explained from error
