"""Waiting for others who have a store, with a word about it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TypeVar

from loaderx import OptionError, StoreLockedError
from loaderx.commands.program import complain
from loaderx.store.options import check_seconds

Result = TypeVar("Result")

#: Waited in silence.
SILENT_S = 1.0


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Declare ``--timeout``."""
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=parse_seconds,
        default=10.0,
        help="how long to wait for others who have the store (default: 10)",
    )


def parse_seconds(text: str) -> float:
    """Read a span of time.

    >>> parse_seconds("2.5")
    2.5

    Raises
    ------
    argparse.ArgumentTypeError
        If it is no number, or below 0.
    """
    try:
        return check_seconds("--timeout", float(text))
    except (ValueError, OptionError):
        raise argparse.ArgumentTypeError(f"{text!r} is no span of time: give seconds, 0 or more") from None


def patiently(prefix: str, timeout_s: float, action: Callable[[float], Result]) -> Result:
    """Run what may have to wait for others; say so on stderr once it has waited for `SILENT_S`.

    Parameters
    ----------
    prefix : str
        Start of the line, such as ``loaderx compact``.
    timeout_s : float
        How long to wait in all.
    action : callable
        Gets the seconds it may wait. It is run again where it raises `StoreLockedError`, before which it must have
        changed nothing.
    """
    try:
        return action(min(timeout_s, SILENT_S))
    except StoreLockedError as error:
        if timeout_s <= SILENT_S or error.holder == os.getpid():
            raise
        who = "others" if error.holder is None else f"process {error.holder}"
        complain(prefix, f"{error.store}: waiting for {who} to let go of the store")
    return action(timeout_s - SILENT_S)
