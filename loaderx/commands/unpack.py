"""``unpack``: a packed store, or several, as loaderx 0.7.3 needs it."""

from __future__ import annotations

import argparse

from loaderx import unpack
from loaderx.commands import resizing

DESCRIPTION = """\
Give a packed store, or a copy of one, the sizes with which loaderx 0.7.3 may append to it: meta.zr is made 256 MiB
long, nearly all of it a hole. This release does not need it. A store of format version 4, which loaderx 0.7.3 cannot
read, stays as it is.

Nobody else may have the store open meanwhile. Whatever is wrong with one store, those that follow are unpacked all the
same.

Exit code: 0 done, 2 wrong usage, a store that others have open or an error with files, 130 interrupted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    resizing.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Unpack stores and print how much longer each is."""
    return resizing.run("unpack", unpack, options)
