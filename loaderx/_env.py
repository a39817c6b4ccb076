"""The environment variables that loaderx reads while it runs. Nothing else reads any (setup.py has its own)."""

from __future__ import annotations

import os

from loaderx.errors import OptionError

POOL_BYTES = "LOADERX_POOL_BYTES"
_DEFAULT_POOL_BYTES = 256 << 20
_MOST_BYTES = 2**62


def read_pool_bytes() -> int:
    """Return the most bytes of batch memory that may lie idle, 0 for none: `LOADERX_POOL_BYTES`, or 256 MiB.

    Raises
    ------
    OptionError
        The variable is no whole number, or out of range.
    """
    text = os.environ.get(POOL_BYTES, "").strip()
    if not text:
        return _DEFAULT_POOL_BYTES
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _MOST_BYTES):
        raise OptionError(
            f"the environment variable {POOL_BYTES} is {text!r}: give a whole number of bytes from 0, which turns the "
            f"pool of batch memory off, to {_MOST_BYTES}, or unset it for {_DEFAULT_POOL_BYTES}",
            option=POOL_BYTES,
            value=text,
        )
    return int(text)
