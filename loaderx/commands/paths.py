"""Paths as arguments, and the stores at them."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from loaderx.commands.program import CommandError, complain, describe_os_error, listed
from loaderx.errors import LoaderxError, NotAStoreError
from loaderx.store.folders import find_stores
from loaderx.store.format import META

Result = TypeVar("Result")


def parse_path(text: str) -> Path:
    """Read a path.

    An empty one is refused: `pathlib.Path` takes it for the current folder, and it comes from a variable of the shell
    that is not set.

    Raises
    ------
    argparse.ArgumentTypeError
        If the text is empty.
    """
    if not text:
        raise argparse.ArgumentTypeError("it is empty, where a path is expected")
    return Path(text)


def each_store(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield paths that were named; in place of a dataset of tokens that is a folder of stores, each of these."""
    for path in paths:
        yield from _stores_of_tokens(path) or [path]


def _stores_of_tokens(path: Path) -> list[Path]:
    if os.path.isfile(path / META) or not os.path.isdir(path):  # False where it must not be looked at
        return []
    from loaderx.tokens.state import read_manifest

    try:
        manifest = read_manifest(path)
    except LoaderxError:  # such a tokens.json says nothing of stores
        return []
    return [] if manifest is None else [path / name for name in manifest["arrays"].values()]


@contextlib.contextmanager
def stores_inside_named(path: Path) -> Iterator[None]:
    """Where a path turns out to be no store, name the stores in the folder that is there."""
    try:
        yield
    except NotAStoreError as error:
        inside = find_stores(path) if path.is_dir() else []
        if not inside:
            raise
        raise CommandError(f"{error}; it holds the stores {listed(inside)}") from error


def attempt(prefix: str, path: Path, action: Callable[[], Result]) -> Result | None:
    """Do something with one of several stores; what is wrong with it is one line on stderr, and None.

    Parameters
    ----------
    prefix : str
        Start of the line, such as ``loaderx info``.
    path : Path
    action : callable
        Prints nothing on stdout, whose errors are not the store's.
    """
    try:
        with stores_inside_named(path):
            return action()
    except (CommandError, LoaderxError) as error:
        complain(prefix, str(error))
    except OSError as error:
        complain(prefix, describe_os_error(error))
    return None
