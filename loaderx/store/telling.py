"""Values and exceptions of the user's in messages: what raises when it is asked for its text is named by its type."""

from __future__ import annotations

from typing import Any


def shown(value: Any) -> str:
    """Return the repr of a value, or what kind of value it is where it has none."""
    try:
        return repr(value)
    except Exception as error:  # such as of a number of more digits than Python writes
        return f"a {type(value).__name__}, which has no repr ({type(error).__name__})"


def said(error: BaseException) -> str:
    """Return what an exception says, or why it says nothing."""
    try:
        return str(error)
    except Exception as other:
        return f"it has no text ({type(other).__name__})"
