"""Shards that can be gone through only from their beginning: what a function yields, or an object that is iterated.

They resume by replay: what was given before is made again, and thrown away.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Any, NoReturn

from loaderx.errors import LoaderxError, OptionError, StateMismatchError
from loaderx.stream.calling import describe, explain
from loaderx.stream.node import Item
from loaderx.stream.positions import check_number
from loaderx.stream.rows import own
from loaderx.stream.seeds import mix
from loaderx.stream.shards import Pull, Reader, Shards


class Replays(Shards):
    """What a function yields for each shard; a place is the number of an item.

    Parameters
    ----------
    function : callable
        Called with a shard, or with nothing where there are no shards; returns what can be iterated, and the same each
        time.
    shards : sequence or None
        What each call gets; None: one call, without.
    called : str
        The method of `Stream` that makes it.
    """

    unit = "item"

    def __init__(
        self,
        function: Callable[..., Iterable[Item]],
        shards: Sequence[Any] | None,
        called: str = "from_generator",
    ) -> None:
        self._function = function
        self._shards = None if shards is None else list(shards)
        self.called = called

    def __len__(self) -> int:
        return 1 if self._shards is None else len(self._shards)

    def describe(self) -> dict[str, Any]:
        told = {
            "from": self.called,
            "function": describe(self._function),
            "shards": len(self),
            "resumes": "by replay",
        }
        # There is no telling of objects that are no JSON whether they are others next time.
        with contextlib.suppress(TypeError, ValueError):
            told["names"] = f"{mix(0, json.dumps(self._shards)):016x}"
        return told

    def measure(self, shard: int) -> int:
        return 0

    def name(self, shard: int) -> str:
        what = describe(self._function)
        return f"{self.called}: {what}" if self._shards is None else f"{self.called}: {what}, shard {shard}"

    def open(self, shard: int, state: Any = None) -> _ReplayReader:
        return _ReplayReader(self, shard, 0 if state is None else check_number("replay", state["replay"]))

    def begin(self, shard: int) -> Iterator[Item]:
        """Return the items of a shard, from the first on."""
        try:
            return iter(self._function() if self._shards is None else self._function(self._shards[shard]))
        except StopIteration as error:  # of a next() of the function's own: nothing has ended
            raise RuntimeError("StopIteration was raised before there was anything to iterate") from error

    def ends(self, error: Exception) -> bool:
        """Return whether it has raised: a generator gives nothing any more then. A state that does not fit stays so."""
        return not isinstance(error, StateMismatchError)

    def blame(self, shard: int, place: int, error: Exception, is_held: bool = False) -> Exception:
        """Return what to raise for what the function raised; `is_held`: for an item that a state holds."""
        if isinstance(error, LoaderxError):
            return error
        what = f"{self.name(shard)}, item {place}"
        explained = explain(error, self.called, self._function, what, is_held)
        explained.__cause__ = error
        return explained

    def refuse(self, shard: int, place: int, n: int) -> NoReturn:
        """Raise, for a shard has ended before an item that it gave once."""
        raise StateMismatchError(
            f"{self.name(shard)} gives {n} items here, and gave item {place} when the state was saved: it has to give "
            "the same each time, for this is how it resumes. Begin anew",
            mismatches={self.name(shard): (f"more than {place} items", f"{n} items")},
        )

    def rebuild(self, shard: int, places: Sequence[int]) -> list[Item]:
        items: list[Item] = []
        n = count()  # of the items that have come
        try:
            source = zip(self.begin(shard), n)  # noqa: B905 - the count has no end
            at = 0
            for place in places:
                found = next(islice(source, place - at, None), None)
                if found is None:
                    self.refuse(shard, place, next(n))
                items.append(found[0])
                at = place + 1
        except Exception as error:
            raise self.blame(shard, next(n), error, is_held=True)  # noqa: B904 - which has its cause
        return items

    def refuse_random(self) -> NoReturn:
        raise OptionError(
            f"buffer_size is None, and what {self.called} gives cannot be read in any order: give a buffer_size",
            option="buffer_size",
            value=None,
        )


class _ReplayReader(Reader):
    def __init__(self, shards: Replays, shard: int, at: int) -> None:
        self._shards = shards
        self._shard = shard
        self._at = at
        self._source: Iterator[Item] | None = None
        self._raised: Exception | None = None
        self._has_ended = False

    def block(self) -> Pull:
        if self._raised is not None:
            # It may be asked for any number of times, and its traceback would be longer each time.
            raise self._raised.with_traceback(None)
        if self._has_ended:
            raise StopIteration
        return self._pull

    def _pull(self) -> tuple[tuple[int, int], Item]:
        at = self._at
        try:
            if self._source is None:
                self._source = self._replayed()
            item = next(self._source)
        except StopIteration:
            self._has_ended = True
            raise
        except Exception as error:
            self._raised = self._shards.blame(self._shard, at, error)
            raise StopIteration from None  # block says it, for the shard ends with it
        self._at = at + 1
        return (self._shard, at), item

    def _replayed(self) -> Iterator[Item]:
        source = self._shards.begin(self._shard)
        n = sum(1 for _ in islice(source, self._at))
        if n < self._at:
            self._shards.refuse(self._shard, self._at - 1, n)
        return source

    def get_state(self) -> dict[str, int]:
        return {"replay": self._at}

    def close(self) -> None:
        source, self._source = self._source, None
        if source is not None and hasattr(source, "close"):
            source.close()


class Iterated:
    """The function of an object that is iterated anew each time.

    Parameters
    ----------
    iterable : iterable

    Raises
    ------
    OptionError
        It can be gone through once only.
    """

    def __init__(self, iterable: Iterable[Item]) -> None:
        if not hasattr(iterable, "__iter__") and not hasattr(iterable, "__getitem__"):
            raise OptionError(
                f"iterable is {iterable!r}: give what can be iterated", option="iterable", value=iterable
            )
        if hasattr(iterable, "__next__"):
            raise OptionError(
                f"iterable is {type(iterable).__name__!r}, which can be gone through once only, and a stream begins "
                "anew for each pass and each resume: give what makes it to from_generator, or a list of its items",
                option="iterable",
                value=iterable,
            )
        self._iterable = iterable
        self.__qualname__ = type(iterable).__qualname__

    def __call__(self) -> Iterable[Item]:
        return map(own, self._iterable)
