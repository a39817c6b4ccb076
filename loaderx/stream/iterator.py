"""A pass over a stream, which knows where it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Self

from loaderx.errors import ClosedError, LoaderxError, StateMismatchError
from loaderx.loader.fetch import put_note
from loaderx.stream.failure import Carried
from loaderx.stream.keys import thaw
from loaderx.stream.node import Item, Key, Node, Recipe
from loaderx.stream.saved import STATE_VERSION, check_state, refuse_position

# What nodes raise where a state's position is of another shape than any that they have given.
_OF_DAMAGE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError)


class StreamIterator:
    """The items of a stream, from its beginning or from a state. Made by ``iter(stream)``.

    Parameters
    ----------
    recipe : Recipe
    epoch : int
    state : mapping, optional
        Where to begin: what `state_dict` returned.

    Raises
    ------
    StateMismatchError
        The state is of another stream, or of files that have changed since.
    """

    def __init__(self, recipe: Recipe, epoch: int, state: Mapping[str, Any] | None = None) -> None:
        self._recipe = recipe
        self._pipeline = recipe.describe()
        self._epoch = epoch
        self._final: Any
        self._next: Callable[[], tuple[Key, Item]]
        self._begin(state)

    def _begin(self, state: Mapping[str, Any] | None) -> None:
        epoch, position = self._epoch, None
        if state is not None:
            check_state(state, self._pipeline)
            epoch, position = state["epoch"], state["position"]
        node = self._build(epoch, position)
        # The last known state, which does not change; and the key of the last item that has been given since.
        self._known, self._key = position, None
        self._epoch, self._node, self._next, self._final = epoch, node, node.next, None

    def _build(self, epoch: int, position: Any) -> Node:
        """Return the last step of the pipeline, which stands at a position."""
        node = self._recipe.build(epoch)
        try:
            node.reset(position)
        except BaseException as error:
            if position is not None:
                put_note(error, "while a saved state ", "was loaded")
            node.close()
            if position is not None and isinstance(error, _OF_DAMAGE) and not isinstance(error, LoaderxError):
                refuse_position(error)
            raise
        return node

    def __next__(self) -> Item:
        before = self._key
        try:
            try:
                key, item = self._next()
            except Exception as error:
                self._go_behind(error)
                raise
            self._key = key
            return item
        except Carried as carried:
            raise carried.error from None
        except Exception:
            raise
        except BaseException:
            # Ctrl-C, or what a signal's handler has raised: nobody knows what was half done. The item comes again.
            if self._next is not _refuse:
                self._next, self._key = self._mend, before if self._key is not None else None
            raise

    def _go_behind(self, error: Exception) -> None:
        """Be where an item would have come and something was raised, which it is right to go on behind."""
        if isinstance(error, StopIteration):
            if self._next is not _stop:
                # What is left is where this is.
                self._final, self._next = self._node.get_state(), _stop
                self._node.close()
        elif self._next == self._node.next and not (isinstance(error, Carried) and not error.is_behind):
            try:
                self._known, self._key = self._node.get_state(), None
            except Carried as carried:
                raise carried.error from None
            except Exception:  # in a fork there is no state: what was known stays so
                pass

    def _mend(self) -> tuple[Key, Item]:
        """Return the next item, once the pipeline is made anew: an item was interrupted."""
        self._make_anew()
        return self._next()

    def _make_anew(self) -> None:
        """Have the pipeline made anew at the last known state, and pass over what has been given since."""
        self._node.close()
        self._node = node = self._build(self._epoch, self._known)
        if self._key is not None:
            last = thaw(self._key)
            try:
                while thaw(node.next()[0]) != last:
                    pass
            except StopIteration:
                raise _other_items() from None
        if self._next is _refuse:  # closed meanwhile, by another thread
            node.close()
            _refuse()
        self._next = node.next

    def pull(self) -> tuple[Key, Item]:
        """Return the next item with its key, which `locate` understands."""
        item = next(self)
        return self._key, item

    def locate(self, key: Key) -> str:
        """Return where the item of a key comes from, as errors say it."""
        return self._node.locate(key)

    def __iter__(self) -> Self:
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return where this is: plain JSON. Another iterator of such a stream goes on there exactly.

        Waits for the item that the thread of a `prefetch` is at. Behind Ctrl-C in the midst of an item, it first goes
        once more through what came since the state before: see `docs/streams_resume.md`.

        It does not change while this goes on, and should not be changed.
        """
        return {
            "version": STATE_VERSION,
            "pipeline": self._pipeline,
            "epoch": self._epoch,
            "position": self._position(),
        }

    def _position(self) -> Any:
        if self._final is not None:
            return self._final
        if self._next is _refuse:
            raise ClosedError("the iterator is closed, and has no state any more: ask for it before")
        try:
            if self._next == self._mend:
                self._make_anew()
            self._known, self._key = self._node.get_state(), None
        except Carried as carried:
            raise carried.error from None
        except Exception:
            raise
        except BaseException:
            self._next = self._mend
            raise
        return self._known

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on at a state, wherever this has been.

        Raises
        ------
        StateMismatchError
            It does not fit; this stays where it is.
        """
        before = self._node
        self._begin(state)
        before.close()

    def counts(self) -> list[dict[str, Any]]:
        """Return what the steps have counted, the last step first: those that count nothing are left out.

        Returns
        -------
        list of dict
            Each has ``step``, what `Stream` calls it, and the counts by name: of a mixture ``given`` and ``passes``,
            for each stream how many items it has given, and how often it has begun again; of a source ``skipped``, how
            many items were bad, and left out or replaced, and ``skipped_shards``, the rest of how many files was left
            out. They include what was counted before the state that has been loaded, and in earlier passes of a
            `repeat` or a mixture. They are there behind the end and behind `close`, too.
        """
        return [counts for counts in self._node.tally() if len(counts) > 1]

    def fraction(self) -> float | None:
        """Return how much of the source has been read, about, from 0 to 1; None: nobody knows.

        By bytes of files, rows or indices. What a buffer holds counts as read. A pass that went on from a state counts
        what was read before, too.
        """
        return 1.0 if self._final is not None else self._node.fraction()

    def close(self) -> None:
        """Let go of files and workers: there is no further item, and no state, until one is loaded.

        From any thread: whoever waits for workers in `next` gets a `ClosedError`. Returns within a second for each step
        that has workers: one that is in a function for longer ends behind it. Called too when the last item has been
        given, and where the iterator is dropped.
        """
        self._next = _refuse
        self._node.close()

    def __repr__(self) -> str:
        return f"<StreamIterator of {self._recipe}, epoch {self._epoch}, {self._tell()}>"

    def _tell(self) -> str:
        if self._next is _refuse:
            return "closed"
        try:
            fraction = self.fraction()
        except Exception:  # a file that is not there: what comes next says so
            fraction = None
        return "under way" if fraction is None else f"{fraction:.0%} read"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _other_items() -> StateMismatchError:
    return StateMismatchError(
        "an item was interrupted, so the stream was gone through anew, and has not given again what it had given "
        "before: its functions and sources have to give the same each time. Make another iterator",
        mismatches={"items": ("those that were given", "others")},
    )


def _stop() -> NoReturn:
    raise StopIteration


def _refuse() -> NoReturn:
    raise ClosedError("the iterator is closed: make another one, and load its state to go on where it was")
