"""How every command runs: its parser, one line for an error, exit codes, signals and closed pipes.

Exit codes: 0 done, 1 the data is not what it should be, 2 wrong usage or an error with files, 128 + n ended by
signal n (130 for Ctrl-C, 143 for a plain ``kill``, 141 when the reader of the output went away), and 70 for a
fault in loaderx itself, which is the only case that shows a traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import time
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

from loaderx.errors import LoaderxError, StaleIndexWarning, StoreWarning

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

DONE = 0
MISMATCH = 1
FAILED = 2
BUG = 70
READER_GONE = 128 + signal.SIGPIPE

#: Signals that end a command as Ctrl-C does: what is half written is removed first.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Until a signal that was lost is raised again.
_AGAIN_S = 0.001

#: A second Ctrl-C this soon after the first is ignored, so that it cannot stop the clean-up.
CLEANUP_GRACE_S = 2.0

# Controls, separators of lines and paragraphs, and bytes of a path that are no text.
_NOT_SHOWN = ("Cc", "Zl", "Zp", "Cs")


class CommandError(Exception):
    """A condition the user can put right: printed as one line, exit code 2."""


class MismatchError(Exception):
    """Data read back is not the data that was written: printed as one line, exit code 1."""


class Stopped(KeyboardInterrupt):
    """A stop signal arrived. A KeyboardInterrupt, so that all clean-up for Ctrl-C serves it too.

    Parameters
    ----------
    signal_number : int
        The signal.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


#: Errors that say something of their own even after a stop signal: what could not be cleaned up.
_CONDITIONS = (CommandError, MismatchError, LoaderxError, OSError, MemoryError)


class Command(Protocol):
    """What a command module offers."""

    DESCRIPTION: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""

    def run(self, options: argparse.Namespace) -> int:
        """Do the work and return the exit code."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, without the usage text before it."""

    def error(self, message: str) -> NoReturn:
        """Raise the parser's message as a `CommandError`."""
        raise CommandError(f"{message} (see {self.prog} --help)")

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help; unlike argparse's own, say when it cannot be written."""
        with _stdout_named():
            print(self.format_help(), end="", file=file)


def run_command(name: str, argv: Sequence[str], prog: str) -> int:
    """Parse the arguments of one command and run it.

    Parameters
    ----------
    name : str
        Name of the module in `loaderx.commands`.
    argv : sequence of str
        The arguments after the command's name.
    prog : str
        How the user called it, for the usage text.

    Returns
    -------
    int
        The exit code.
    """

    def action() -> int:
        command = cast(Command, importlib.import_module(f"loaderx.commands.{name}"))
        parser = Parser(
            prog=prog,
            description=command.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(parser)
        return command.run(parser.parse_args(argv))

    return guard(f"loaderx {name}", action)


def guard(prefix: str, action: Callable[[], int]) -> int:
    """Run `action`; turn what goes wrong into one line on stderr and an exit code.

    Parameters
    ----------
    prefix : str
        Start of the line, such as ``loaderx convert``.
    action : callable
        Does the work and returns an exit code.

    Returns
    -------
    int
        The exit code.
    """
    _replace_closed_streams()
    try:
        with _stop_signals() as received, _own_warnings_as_lines(prefix):
            try:
                return _run_and_flush(action)
            except Exception as error:
                # A module stopped while it is imported may say that it is broken or missing.
                if received and (isinstance(error, ImportError) or not isinstance(error, _CONDITIONS)):
                    raise Stopped(received[0]) from error
                raise
    except BrokenPipeError:
        _forget_stdout()
        return READER_GONE
    except Stopped as stop:
        complain(prefix, "interrupted" if stop.signal_number == signal.SIGINT else "terminated")
        return 128 + stop.signal_number
    except KeyboardInterrupt:
        complain(prefix, "interrupted")
        return 128 + signal.SIGINT
    except MismatchError as error:
        complain(prefix, str(error))
        return MISMATCH
    except (CommandError, LoaderxError) as error:
        complain(prefix, str(error) or type(error).__name__)
        return FAILED
    except OSError as error:
        complain(prefix, describe_os_error(error))
        _forget_stdout_if_it_fails()
        return FAILED
    except MemoryError as error:
        complain(prefix, f"out of memory: {error}" if str(error) else "out of memory")
        return FAILED
    except Exception:
        traceback.print_exc()
        complain(prefix, "this is a fault in loaderx; please report it with the lines above")
        return BUG


def _replace_closed_streams() -> None:
    """Have what is written to a stream that the caller closed (``>&-``) go nowhere; the exit code still tells."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # as long as the process


@contextlib.contextmanager
def _own_warnings_as_lines(prefix: str) -> Iterator[None]:
    """Show what loaderx warns of as it shows errors: in one line, without a place in the code."""
    with warnings.catch_warnings():
        for ours in (StoreWarning, StaleIndexWarning):
            warnings.simplefilter("always", ours)
        show = warnings.showwarning

        def as_line(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
            if issubclass(category, StoreWarning | StaleIndexWarning):
                complain(prefix, f"warning: {message}")
            else:
                show(message, category, *place, **options)

        warnings.showwarning = as_line
        yield


def describe_os_error(error: OSError) -> str:
    """Say what an error of the operating system was, the file first.

    >>> describe_os_error(FileNotFoundError(2, "No such file or directory", "a.npy"))
    'a.npy: No such file or directory'
    """
    if error.strerror is None:
        return str(error) or type(error).__name__
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    return ": ".join([" -> ".join(names), error.strerror] if names else [error.strerror])


def one_line(text: str) -> str:
    """Put a message on one line, whatever it quotes.

    >>> one_line("bad header\\n  in file")
    'bad header in file'
    """
    return " ".join(text.split())


def shown(name: object) -> str:
    """Write a name for a terminal: what would move the cursor or end the line is escaped.

    >>> shown("a\\nb\\x1b[2J")
    'a\\\\nb\\\\x1b[2J'
    """
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in _NOT_SHOWN
        else character
        for character in str(name)
    )


def listed(names: Sequence[str], at_most: int = 10) -> str:
    """Write names one after another, and of many only the first.

    >>> listed(["a", "b", "c", "d"], at_most=2)
    'a, b and 2 more'
    """
    shown = ", ".join(names[:at_most])
    return f"{shown} and {len(names) - at_most} more" if len(names) > at_most else shown


def say(text: str) -> None:
    """Print lines on stdout, at once."""
    with _stdout_named():
        print(text, flush=True)


def complain(prefix: str, message: str) -> None:
    """Print a message on stderr, in one line.

    Parameters
    ----------
    prefix : str
        Start of the line, such as ``loaderx convert``.
    message : str
    """
    with contextlib.suppress(OSError):  # where nobody reads stderr either, the exit code still tells
        print(f"{prefix}: {shown(one_line(message))}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Raise `Stopped` for the stop signals within the block, and list those for which it was raised.

    A signal that is ignored (``nohup``, a background job of a shell script) stays ignored, and a handler that the
    embedding program set stays in place. Python drops what is raised while an object is being finalized, with a report:
    a `Stopped` that meets this is raised again a moment later.
    """
    stopped_at: float | None = None
    received: list[int] = []

    def stop(signal_number: int, _frame: FrameType | None) -> None:
        nonlocal stopped_at
        now = time.monotonic()
        if stopped_at is not None and now - stopped_at < CLEANUP_GRACE_S:
            return
        stopped_at = now
        received.append(signal_number)
        raise Stopped(signal_number)

    def stop_again(_signal_number: int, _frame: FrameType | None) -> None:
        raise Stopped(received[-1])

    def report(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, Stopped) and signal.SIGALRM in replaced:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            report_before(unraisable)

    replaced: dict[int, Any] = {}
    report_before = sys.unraisablehook
    sys.unraisablehook = report
    try:
        for signal_number in STOP_SIGNALS:
            current = signal.getsignal(signal_number)
            if current in (signal.SIG_DFL, signal.default_int_handler):
                try:
                    signal.signal(signal_number, stop)
                except ValueError:  # not the main thread: its signals are not ours to handle
                    break
                replaced[signal_number] = current
        if signal.SIGINT in replaced and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
            replaced[signal.SIGALRM] = signal.signal(signal.SIGALRM, stop_again)
        yield received
    finally:
        sys.unraisablehook = report_before
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, previous in replaced.items():
            signal.signal(number, previous)


def _run_and_flush(action: Callable[[], int]) -> int:
    try:
        exit_code = action()
    except SystemExit as stop:  # argparse, after --help
        exit_code = stop.code if isinstance(stop.code, int) else DONE
    with _stdout_named():
        sys.stdout.flush()
    return exit_code


@contextlib.contextmanager
def _stdout_named() -> Iterator[None]:
    """Have an error of the block say that it was standard output which could not be written."""
    try:
        yield
    except OSError as error:
        error.filename = "standard output"
        raise


def _forget_stdout_if_it_fails() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _forget_stdout()


def _forget_stdout() -> None:
    """Point stdout at the null device, so that the interpreter's flush at exit does not complain again."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass  # stdout is not a file here (a test's or a notebook's replacement)
