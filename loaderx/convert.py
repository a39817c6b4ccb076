"""``python -m loaderx.convert``: the same as ``python -m loaderx convert``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from loaderx.commands.start import start


def main(argv: Sequence[str] | None = None) -> int:
    """Run the convert command and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process by default.
    """

    def action() -> int:
        from loaderx.commands.program import run_command

        words = sys.argv[1:] if argv is None else argv
        return run_command("convert", words, prog="python -m loaderx.convert")

    return start("loaderx convert", action)


if __name__ == "__main__":
    sys.exit(main())
