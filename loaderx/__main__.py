"""``python -m loaderx COMMAND``: a thin table of the commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from loaderx._version import __version__
from loaderx.commands.start import start

PROG = "python -m loaderx"

#: Every command, by the name of its module in `loaderx.commands`, with its line in the list.
COMMANDS = {
    "convert": "turn .npy and .npz files into stores",
    "tokenize": "turn text into samples of tokens for training",
    "info": "say what a store holds",
    "verify": "look at every record of a store",
    "compact": "give the space of deleted records back",
    "pack": "cut a store's files to their bytes, before it is copied or uploaded",
    "unpack": "give a packed store the sizes that loaderx 0.7.3 needs to append",
    "index": "find the lines of text files, which stay as they are",
    "demo": "see it work on real images, with sizes and speed",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process by default.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    name = words[0] if words and words[0] in COMMANDS else None

    def action() -> int:
        from loaderx.commands import program

        if name is None:
            return program.guard("loaderx", lambda: _without_command(words))
        return program.run_command(name, words[1:], prog=f"{PROG} {name}")

    return start("loaderx" if name is None else f"loaderx {name}", action)


def usage() -> str:
    """List the commands."""
    width = max(map(len, COMMANDS))
    lines = [f"usage: {PROG} COMMAND [...]", "", "commands:"]
    lines += [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join([*lines, "", f"{PROG} COMMAND --help says more; --version prints the version."])


def _without_command(words: list[str]) -> int:
    import difflib

    from loaderx.commands import program

    if not words:
        print(usage(), file=sys.stderr)
        return program.FAILED
    if words[0] in ("-h", "--help"):
        print(usage())
        return program.DONE
    if words[0] == "--version":
        print(f"loaderx {__version__}")
        return program.DONE
    near = difflib.get_close_matches(words[0], COMMANDS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise program.CommandError(f"there is no command {words[0]!r}{hint} (commands: {', '.join(COMMANDS)})")


if __name__ == "__main__":
    sys.exit(main())
