"""``python -m loaderx.convert``: the same as ``python -m loaderx convert``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from loaderx.commands.program import run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the convert command and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process by default.
    """
    return run_command("convert", sys.argv[1:] if argv is None else argv, prog="python -m loaderx.convert")


if __name__ == "__main__":
    sys.exit(main())
