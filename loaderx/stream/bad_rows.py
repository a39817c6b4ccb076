"""What is done about rows of a source that are bad, and about files that cannot be read further."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

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


def judge(on_error: OnError, error: Exception, explain: Callable[[Exception], Exception]) -> Item:
    """Return what takes the place of a bad row, `MISSING` for nothing, or raise.

    Parameters
    ----------
    on_error : "raise", "skip" or callable
    error : Exception
        Why it is bad.
    explain : callable
        Makes of that the error which says where, if it is another one; costs what it costs to find out.
    """
    if isinstance(error, MemoryError):
        raise error
    if on_error == "skip":
        return MISSING
    explained = explain(error)
    if callable(on_error):
        # Whoever keeps the error would keep the whole block with its traceback.
        bare = error.with_traceback(None)
        if explained is not error:
            explained.__cause__ = bare
        try:
            return on_error(explained)
        except StopIteration as stop:  # which would be taken for the end of the pass
            raise RuntimeError("on_error raised StopIteration") from stop
    if explained is error:
        raise error
    raise explained from error
