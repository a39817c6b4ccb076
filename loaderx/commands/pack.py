"""``pack``: the files of a store or of several, cut to the bytes they hold."""

from __future__ import annotations

import argparse

from loaderx import pack
from loaderx.commands import resizing

DESCRIPTION = """\
Cut off of a store's files what no record needs, so that copying, syncing or uploading it moves its bytes only: meta.zr
is otherwise 256 MiB long, and chunk files that loaderx 0.7.3 made are 4 GiB, nearly all of it holes, which many tools
write out. What killed writers left is removed. Packing a packed store changes nothing.

A packed store reads as before, and takes appends, which make meta.zr long again. loaderx 0.7.3 reads it too, but must
not append to it before it is unpacked.

Nobody else may have the store open meanwhile. Whatever stops it loses no record. Whatever is wrong with one store,
those that follow are packed all the same.

Exit code: 0 done, 2 wrong usage, a store that others have open or an error with files, 130 interrupted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    resizing.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Pack stores and print how much shorter each is."""
    return resizing.run("pack", pack, options)
