"""What is left of an input that has ended."""

from __future__ import annotations

from typing import NamedTuple

from loaderx.stream.node import Node, State
from loaderx.stream.tally import Tally


class Ended(NamedTuple):
    """Where an input was, and what it had counted, when it was closed."""

    state: State
    tally: Tally


def end(node: Node) -> Ended:
    """Close a node that nothing more is asked of in this pass, and return what is left of it."""
    ended = Ended(node.get_state(), node.tally())
    node.close()
    return ended
