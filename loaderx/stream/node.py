"""What every part of a pipeline is: four methods, and how a tree of such parts is described and built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeAlias

from loaderx.errors import OptionError
from loaderx.stream.tally import Tally

#: Where an item comes from, as nested tuples of what JSON has: what a source gives, and what nodes above it add.
#: Keys of one source order as its items do. After JSON they are lists.
Key: TypeAlias = Any
Item: TypeAlias = Any
#: Of plain JSON.
State: TypeAlias = Any

#: How many steps a pipeline may have behind one another.
MOST_DEEP = 100


class Node(ABC):
    """A part of a pipeline that runs: it gives items one by one, each with its key.

    The contract, of which exact resume is made:

    - `get_state` says what comes next, and costs nothing unless it is called. A node that gets it by `reset`, and whose
      inputs did, gives what the first one went on to give.
    - A state holds positions, never items. A node that holds items (a buffer, a half-filled batch) holds their keys in
      its state, and on `reset` has its input make them anew by `rebuild`.
    - Where something below raises, the node is left as it was, and may be asked again.
    - `rebuild` leaves the node where it is, and what it makes counts nowhere: a node that counts items has put its
      count into their keys. Keys are all it needs, so the node may be at any place.
    - Whoever goes on without an input, because that has ended or because nothing more is wanted of it, closes it at
      once, and keeps its state and its counts (`ended.end`). A StopIteration that is passed on leaves this to the node
      above, and at last to the iterator. A closed node is reset, to any place, before it is asked for anything but
      `locate` and `tally`.
    - What a node has counted, when another takes its place in the next pass, goes into the state of whoever replaces
      it: `tally` is that of all passes.

    A node is used by one thread at a time.
    """

    #: Whether it wants to be told the epoch when it is built (``epoch=``).
    is_seeded: ClassVar[bool] = False
    #: Whether it makes its inputs itself: it is given their recipes.
    builds_inputs: ClassVar[bool] = False
    #: Whether which items it gives depends on the order of its input's shards.
    freezes_order: ClassVar[bool] = False
    #: Whether each of its items is a batch; None: where those of its first input are.
    makes_batches: ClassVar[bool | None] = None
    #: Whether there is a `Shared` in its keys.
    makes_shared_keys: ClassVar[bool] = False
    #: Whether it is made of a list of streams.
    takes_several: ClassVar[bool] = False
    #: What errors and `repr` call it: the method of `Stream` that makes it.
    called: ClassVar[str] = ""
    #: Whether it does something with each item for itself, so that a shuffle of all items may go below it.
    is_itemwise: ClassVar[bool] = False

    @abstractmethod
    def reset(self, state: State | None = None) -> None:
        """Begin at a state that `get_state` returned, perhaps through JSON; None: at the beginning.

        Has to be called before anything else, and may be called again.
        """

    @abstractmethod
    def next(self) -> tuple[Key, Item]:
        """Return the next item and its key.

        Raises
        ------
        StopIteration
            There is none, nor will there be.
        """

    @abstractmethod
    def get_state(self) -> State:
        """Return where the node is. What is returned does not change when the node goes on."""

    @abstractmethod
    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        """Return the items of some keys, in their order.

        Parameters
        ----------
        keys : sequence
            Keys that this node gave, or one like it in another process; in any order.
        """

    @abstractmethod
    def locate(self, key: Key) -> str:
        """Return where an item comes from, as errors say it: by its key alone, wherever this node is."""

    def close(self) -> None:  # noqa: B027
        """Let go of files and workers. The node may be reset afterwards."""

    def interrupt(self) -> None:
        """Have whoever waits for workers in `next` give up. From any thread; close or reset it then."""
        for each in self.inputs():
            each.interrupt()

    def inputs(self) -> Sequence[Node]:
        """Return the nodes right below."""
        upstream = getattr(self, "_upstream", None)
        return [] if upstream is None else [upstream]

    def counts(self) -> dict[str, Any]:
        """Return what the node itself has counted, by name: in the run before a resume too."""
        return {}

    def tally(self) -> Tally:
        """Return what the node and those below it have counted, those of earlier passes too. It outlasts `close`."""
        below = [counts for each in self.inputs() for counts in each.tally()]
        return [{"step": self.called, **self.counts()}, *below]

    def fraction(self) -> float | None:
        """Return how much of what it will give has been given, about, from 0 to 1; None: nobody knows."""
        return average([each.fraction() for each in self.inputs()])

    @property
    def shares_keys(self) -> bool:
        """Whether there may be a `Shared` in its keys: what holds them saves them with `save_keys`."""
        return self.makes_shared_keys or any(each.shares_keys for each in self.inputs())

    @classmethod
    def count_shards(cls, options: Mapping[str, Any], inputs: Sequence[int]) -> int:
        """Return into how many parts its items can be divided by shards: those of its inputs are given.

        What numbers its items gives others where only some of the shards are below it.
        """
        return min(1, inputs[0]) if cls.freezes_order else inputs[0]

    @classmethod
    def is_endless(cls, options: Mapping[str, Any], inputs: Sequence[bool]) -> bool:
        """Return whether it has no end, as far as its options and those of its inputs say."""
        return any(inputs)


def average(fractions: Sequence[float | None]) -> float | None:
    """Return the fraction of several inputs together; None: that of one is not known."""
    if not fractions or None in fractions:
        return None
    return sum(filter(None, fractions)) / len(fractions)


@dataclass(frozen=True)
class Recipe:
    """How a node and those below it are made: what a `Stream` is, before it runs. Nothing of it changes.

    Parameters
    ----------
    kind : type of Node
    inputs : tuple of Recipe
    options : dict
        What `kind` is called with, behind its inputs.
    told : dict
        What is said of it in a state and compared: options as JSON.
    """

    kind: type[Node]
    inputs: tuple[Recipe, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)
    #: How many nodes are above one another in it, at most.
    depth: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        depth = 1 + max((each.depth for each in self.inputs), default=0)
        if depth > MOST_DEEP:
            # Each step calls the one before it, and Python's stack has an end.
            raise OptionError(
                f"the pipeline has {depth} steps, each behind the one before, and may have {MOST_DEEP}: put several "
                "functions into one, and give all streams that belong together to one concatenate, interleave or zip",
                option="steps",
                value=depth,
            )
        object.__setattr__(self, "depth", depth)

    def build(self, epoch: int) -> Node:
        """Make the node, and those below it."""
        inputs = self.inputs if self.kind.builds_inputs else [each.build(epoch) for each in self.inputs]
        seeded = {"epoch": epoch} if self.kind.is_seeded else {}
        return self.kind(*inputs, **self.options, **seeded)

    def with_options(self, **options: Any) -> Self:
        """Return the recipe with other options."""
        return replace(self, options={**self.options, **options})

    def with_inputs(self, change: Callable[[Recipe], Recipe]) -> Self:
        """Return the recipe with its inputs changed."""
        return replace(self, inputs=tuple(map(change, self.inputs)))

    def describe(self) -> list[Any]:
        """Return what the pipeline is, as JSON: the node's name and options, then its inputs."""
        return [self.kind.__name__, dict(self.told), *(each.describe() for each in self.inputs)]

    def __str__(self) -> str:
        options = dict(self.told)
        name = options.pop("from", None) or self.kind.called or self.kind.__name__.lower()
        told = ", ".join(f"{option}={value!r}" for option, value in options.items())
        if not self.inputs:
            return f"{name}({told})"
        if len(self.inputs) == 1 and not self.kind.takes_several:
            return f"{self.inputs[0]}.{name}({told})"
        return f"{name}([{', '.join(map(str, self.inputs))}]{', ' + told if told else ''})"

    @property
    def freezes_order(self) -> bool:
        """Whether the order of shards below it must not be changed any more."""
        return self.kind.freezes_order

    @property
    def num_shards(self) -> int:
        """Into how many parts it can be divided by shards."""
        return self.kind.count_shards(self.options, [each.num_shards for each in self.inputs])

    @property
    def is_endless(self) -> bool:
        """Whether it has no end, as far as options say."""
        return self.kind.is_endless(self.options, [each.is_endless for each in self.inputs])

    def count_seeded(self, called: str, seed: int) -> int:
        """Return how many nodes of a name and a seed stand above one another in it: along one chain, the longest."""
        is_one = self.kind.called == called and self.told.get("seed") == seed
        return is_one + max((each.count_seeded(called, seed) for each in self.inputs), default=0)

    @property
    def has_batches(self) -> bool:
        """Whether its items are batches, as far as its steps say."""
        if self.kind.makes_batches is not None:
            return self.kind.makes_batches
        return bool(self.inputs) and self.inputs[0].has_batches

    @property
    def shares_keys(self) -> bool:
        """Whether there may be a `Shared` in its keys."""
        return self.kind.makes_shared_keys or any(each.shares_keys for each in self.inputs)


class Transparent(Node):
    """A node whose items are its input's, of the same keys: what it has to say is `next`.

    Parameters
    ----------
    upstream : Node
    """

    def __init__(self, upstream: Node) -> None:
        self._upstream = upstream
        self._next = upstream.next

    def reset(self, state: State | None = None) -> None:
        self._upstream.reset(state)

    def get_state(self) -> State:
        return self._upstream.get_state()

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        return self._upstream.rebuild(keys)

    def locate(self, key: Key) -> str:
        return self._upstream.locate(key)

    def close(self) -> None:
        self._upstream.close()
