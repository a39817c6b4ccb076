"""What is left of an input that has ended, and how inputs are closed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from loaderx.stream.node import Node, State
from loaderx.stream.tally import Tally


class Ended(NamedTuple):
    """Where an input was, and what it had counted, when it was closed."""

    state: State
    tally: Tally


def remains(node: Node) -> Ended:
    """Return what is left of a node that nothing more is asked of in this pass.

    Close it then, as the last thing of all: what a user's code raises there comes once, and the pass goes on behind it.
    """
    return Ended(node.get_state(), node.tally())


class Closable(Protocol):
    """What has files, or something below that has."""

    def close(self) -> None: ...


def close_all(closables: Iterable[Closable]) -> None:
    """Close all of them, also where one raises: what the first one raised is raised behind the last."""
    first: BaseException | None = None
    for each in closables:
        try:
            each.close()
        except BaseException as error:
            first = error if first is None else first
    if first is not None:
        try:
            raise first
        finally:
            del first  # its frames refer to this one
