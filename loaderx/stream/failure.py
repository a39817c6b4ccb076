"""What the input has raised for an item whose turn has not come: in a state too, for a resumed run has to see it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import loaderx.errors
from loaderx.errors import LoaderxError, StreamError
from loaderx.store.telling import said


class Carried(Exception):
    """An exception that is no `Exception`, on its way through the nodes as if it were: so each is left as it was.

    Only for one that was raised where nothing is half done. `StreamIterator` raises what is carried.

    Parameters
    ----------
    error : BaseException
    is_behind : bool
        It came in place of an item, which is behind us; otherwise nothing has happened.
    """

    def __init__(self, error: BaseException, is_behind: bool) -> None:
        super().__init__(error)
        self.error = error
        self.is_behind = is_behind


_PLAIN = (str, int, float, bool, type(None))


def save_failure(error: BaseException | None) -> Any:
    """Return an exception as JSON: what it is, what it says, and of one of ours its attributes."""
    if error is None:
        return None
    if isinstance(error, Carried):
        error = error.error
    attributes: dict[str, Any] = {}
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, LoaderxError):
        name = error.filename
        attributes = {
            "errno": error.errno,
            "strerror": error.strerror,
            "filename": os.fspath(name) if isinstance(name, str | os.PathLike) else None,
        }
    elif isinstance(error, LoaderxError):
        for name in error.attribute_names:
            value = getattr(error, name)
            if isinstance(value, Path):
                attributes[name] = {"path": str(value)}
            elif isinstance(value, _PLAIN):
                attributes[name] = value
    return [type(error).__name__, said(error), attributes]


def load_failure(saved: Any) -> BaseException | None:
    """Return the exception that `save_failure` saved, without its cause.

    One that is neither ours nor the system's is a StreamError.
    """
    if saved is None:
        return None
    name, message, attributes = saved
    kind = getattr(loaderx.errors, name, None) if name in loaderx.errors.__all__ else None
    if kind is None and "errno" in attributes:
        # Of the number it has the class that fits, such as FileNotFoundError.
        return OSError(*(attributes[name] for name in ("errno", "strerror", "filename")))
    if kind is None:
        return StreamError(
            f"{name}: {message} (raised before the state was saved, for an item that came next then)",
            node=None,
            function=None,
            where=None,
        )
    found: BaseException = kind(message, **{name: _load(value) for name, value in attributes.items()})
    return found


def _load(value: Any) -> Any:
    return Path(value["path"]) if isinstance(value, dict) else value
