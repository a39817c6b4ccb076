"""The lowest node: the items of shards, one shard after the other or some in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from loaderx.errors import StateMismatchError
from loaderx.stream.ended import close_all
from loaderx.stream.node import Item, Key, Node, State
from loaderx.stream.positions import check_list, check_number
from loaderx.stream.seeds import mix, permutation
from loaderx.stream.shards import Pull, Reader, Shards, by_shard

# What a state has for a shard that could not be read further, whose place the next one takes.
_BEHIND = "behind"
# Sums of measures are below.
_SUMS = 1 << 53


class Source(Node):
    """The items of shards. A key is (number of the shard, place in it).

    A shard that cannot be read further is behind it: what is wrong is raised once, when its turn comes, or the rest of
    the shard is left out and counted.

    Parameters
    ----------
    shards : Shards
    seed : int or None
        Of the order of the shards; None: as they are listed.
    most_open : int
        How many shards are read in turns, an item of each; where one ends, the next one takes its place.
    epoch : int
        Another one has another order, where there is a seed.
    """

    called = "source"
    is_seeded = True
    makes_batches = False

    def __init__(self, shards: Shards, seed: int | None = None, most_open: int = 1, epoch: int = 0) -> None:
        self._shards = shards
        n = len(shards)
        self._order: Sequence[int] = range(n) if seed is None else permutation(mix(seed, "shards", epoch), n)
        self._most_open = min(most_open, n)
        self._takes_turns = self._most_open > 1
        self._slots: list[_Slot] = []
        self._n_skipped = 0
        # Of all shards; looked at when somebody asks how far this is.
        self._sizes: list[int] | None = None
        # What gives the next item of each; where nothing is open, what says that there is none.
        self._pulls: list[Pull] = [_nothing]

    @classmethod
    def count_shards(cls, options: Mapping[str, Any], inputs: Sequence[int]) -> int:
        return len(options["shards"])

    def reset(self, state: State | None = None) -> None:
        self.close()
        self._turn = 0
        self._n_begun = 0
        # Of the shards that have ended: their measures, so that a changed one is noticed.
        self._ended = 0
        self._n_skipped = 0
        # Those of which nothing could be read, so that they may be others next time; and how many were left out.
        self._unread: list[int] = []
        self._n_left_out = 0
        if state is not None:
            self._restore(state)

    def _begin(self) -> _Slot | None:
        """Return the next shard of the order; None: there is none."""
        if self._n_begun == len(self._order):
            return None
        shard = self._order[self._n_begun]
        slot = self._open(shard)
        self._n_begun += 1
        return slot

    def _open(self, shard: int) -> _Slot:
        try:
            return _Slot(shard, self._shards.measure(shard), self._shards.open(shard))
        except StopIteration as error:  # which would be taken for the end of the pass
            raise RuntimeError(f"{self._shards.name(shard)}: StopIteration was raised") from error
        except Exception as error:
            if not self._shards.ends(error):
                raise
            return _Slot(shard, None, _Unreadable(error))

    def next(self) -> tuple[Key, Item]:
        while True:
            try:
                pair = self._pulls[self._turn]()
            except StopIteration:
                self._read_on()
                continue
            except Exception as error:
                judged = self._slots[self._turn].reader.judge(error)
                if judged is None:
                    continue
                pair = judged
            if self._takes_turns:
                turn = self._turn + 1
                self._turn = turn if turn < len(self._pulls) else 0
            return pair

    def _read_on(self) -> None:
        """Read the next block of the shard whose turn it is, or begin the next shard in its place."""
        if not self._slots:
            self._begin_all()
            return
        turn = self._turn
        slot = self._slots[turn]
        self._pulls[turn] = _nothing  # should block raise, it is asked again
        try:
            self._pulls[turn] = slot.reader.block()
            return
        except StopIteration:
            pass
        except Exception as error:
            if not self._shards.ends(error):
                raise
            self._n_skipped += slot.reader.n_skipped
            slot.reader.close()
            slot.reader = _Behind()
            self._shards.leave_out(error)
            self._n_left_out += 1
        # First what may raise: an error leaves everything as it is.
        following = self._begin()
        self._n_skipped += slot.reader.n_skipped
        if slot.measure is None:
            self._unread.append(slot.shard)
        else:
            self._ended = _add_measure(self._ended, slot.shard, slot.measure)
        self._put(turn, following)
        slot.reader.close()

    def _put(self, turn: int, following: _Slot | None) -> None:
        """Have a shard read in the place of one that is through; None: there is none."""
        if following is not None:
            self._slots[turn], self._pulls[turn] = following, _nothing
            return
        del self._slots[turn], self._pulls[turn]
        if not self._slots:
            self._pulls = [_nothing]
        if turn == len(self._slots):
            self._turn = 0

    def _begin_all(self) -> None:
        begun: list[_Slot] = []
        before = self._n_begun
        try:
            while len(begun) < self._most_open and (slot := self._begin()) is not None:
                begun.append(slot)
        except BaseException:
            self._n_begun = before
            close_all(slot.reader for slot in begun)
            raise
        if not begun:
            raise StopIteration
        self._set_slots(begun)

    def _set_slots(self, slots: list[_Slot]) -> None:
        self._slots = slots
        self._pulls = [_nothing] * max(1, len(slots))

    def counts(self) -> dict[str, Any]:
        """Return how many items were bad, and passed over or replaced, and how many shards were left out, if any."""
        counted = {"skipped": self._count_skipped(), "skipped_shards": self._n_left_out}
        return {name: n for name, n in counted.items() if n}

    def _count_skipped(self) -> int:
        return self._n_skipped + sum(slot.reader.n_skipped for slot in self._slots)

    def fraction(self) -> float | None:
        """Return how much of the shards has been read: of each by its size."""
        if self._sizes is None:
            self._sizes = [self._shards.size(shard) for shard in range(len(self._shards))]
        sizes = self._sizes
        total = sum(sizes)
        if not total:
            return None
        read = sum(sizes[shard] for shard in self._order[: self._n_begun])
        return (read - sum(sizes[slot.shard] * (1 - slot.reader.fraction()) for slot in self._slots)) / total

    def get_state(self) -> State:
        return {
            "begun": self._n_begun,
            "ended": self._ended,
            "turn": self._turn,
            "skipped": self._count_skipped(),
            "skipped_shards": self._n_left_out,
            "unread": list(self._unread),
            "open": [[slot.shard, slot.measure, slot.reader.get_state()] for slot in self._slots],
        }

    def _restore(self, state: State) -> None:
        slots = self._check(state)
        opened = {shard for shard, _, _ in slots}.union(self._unread)
        ended = 0
        for shard in self._order[: self._n_begun]:
            if shard not in opened:
                here = self._measure(shard)
                if here is None:
                    self._refuse_gone(shard, "what was read")
                ended = _add_measure(ended, shard, here)
        if ended != self._ended:
            raise StateMismatchError(
                f"the saved state has read to its end a shard that has changed since: one of "
                f"{self._n_begun - len(opened)}, such as {self._shards.name(self._order[0])} (their sum was "
                f"{self._ended}, and is {ended} here). Put back what was read, or begin anew",
                mismatches={"shards": (self._ended, ended)},
            )
        try:
            for slot in slots:
                self._slots.append(self._reopen(*slot))
        finally:
            self._set_slots(self._slots)  # so that `close` finds them

    def _check(self, state: State) -> list[tuple[int, Any, State]]:
        """Take over the numbers of a state, and return its open shards, or raise `ValueError`."""
        n = len(self._order)
        self._n_begun = check_number("begun", state["begun"], 0, n)
        self._ended = check_number("ended", state["ended"], 0, _SUMS - 1)
        self._n_skipped = check_number("skipped", state["skipped"])
        self._n_left_out = check_number("skipped_shards", state["skipped_shards"], 0, self._n_begun)
        self._unread = check_list("unread", state["unread"])
        slots = [_check_slot(slot) for slot in check_list("open", state["open"])]
        # There are fewer than may be only once all have been begun.
        least = min(self._n_begun, self._most_open) if self._n_begun < n else 0
        check_number("the number of open shards", len(slots), least, min(self._n_begun, self._most_open))
        self._turn = check_number("turn", state["turn"], 0, max(0, len(slots) - 1))
        begun = set(self._order[: self._n_begun])
        for shard in [*self._unread, *(shard for shard, _, _ in slots)]:
            if type(shard) is not int or shard not in begun:
                raise ValueError(f"shard {shard!r} has not been begun, or is there twice")
            begun.remove(shard)
        return slots

    def _reopen(self, shard: int, measure: Any, inner: State) -> _Slot:
        """Open a shard where it was being read."""
        if measure is None:
            return _Slot(shard, None, _Behind()) if inner == _BEHIND else self._open(shard)
        here = self._measure(shard)
        if here is None:
            self._refuse_gone(shard, measure)
        if here != measure:
            name = self._shards.name(shard)
            raise StateMismatchError(
                f"the saved state is in the middle of {name}, which has changed since: it measured {measure}, and "
                f"measures {here} here. Put back what was read, or begin anew",
                mismatches={name: (measure, here)},
            )
        return _Slot(shard, measure, _Behind() if inner == _BEHIND else self._shards.open(shard, inner))

    def _measure(self, shard: int) -> int | str | None:
        """Return the measure of a shard that was read before; None: it cannot be read any more."""
        try:
            return self._shards.measure(shard)
        except Exception as error:
            if not self._shards.ends(error):
                raise
            return None

    def _refuse_gone(self, shard: int, measure: Any) -> NoReturn:
        """Raise, for a shard of which something was read, which measured what is given, cannot be read any more."""
        name = self._shards.name(shard)
        try:
            self._shards.measure(shard)
            here = "another file"  # it has come back just now
            cause = None
        except Exception as error:
            here, cause = f"{type(error).__name__}: {error}", error
        raise StateMismatchError(
            f"the saved state has read from {name}, which cannot be read here ({here}). Put back what was read, or "
            "begin anew",
            mismatches={name: (measure, here)},
        ) from cause

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        items: list[Item] = [None] * len(keys)
        for shard, group in by_shard(keys).items():
            # Of a list, negative ones would be others.
            check_number("the shard of an item that is held", shard, 0, len(self._shards) - 1)
            check_number("the place of an item that is held", group[0][0])
            try:
                found = self._shards.rebuild(shard, [place for place, _ in group])
            except OSError:
                if self._measure(shard) is None:
                    self._refuse_gone(shard, "items that are held")
                raise
            for (_, positions), item in zip(group, found, strict=True):
                for position in positions:
                    items[position] = item
        return items

    def locate(self, key: Key) -> str:
        shard, place = key
        for slot in self._slots:
            if slot.shard == shard and (where := slot.reader.where(place)) is not None:
                return where
        return self._shards.where(shard, place)

    def close(self) -> None:
        self._n_skipped = self._count_skipped()
        slots = self._slots
        self._set_slots([])
        close_all(slot.reader for slot in slots)


def _nothing() -> Any:
    raise StopIteration


class _Unreadable(Reader):
    """A shard of which nothing can be read: what is wrong is said when its turn comes."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def block(self) -> Pull:
        raise self._error.with_traceback(None)

    def get_state(self) -> State:
        return None


class _Behind(Reader):
    """A shard that could not be read further."""

    def block(self) -> Pull:
        raise StopIteration

    def fraction(self) -> float:
        return 1.0

    def get_state(self) -> State:
        return _BEHIND


class _Slot:
    """A shard that is being read. Its measure is None where nothing of it could be read."""

    __slots__ = ("measure", "reader", "shard")

    def __init__(self, shard: int, measure: int | str | None, reader: Reader) -> None:
        self.shard = shard
        self.measure = measure
        self.reader = reader


def _add_measure(ended: int, shard: int, measure: Any) -> int:
    # A sum, for shards that are read in turns end in another order than they begin.
    return (ended + mix(shard, str(measure))) % _SUMS


def _check_slot(slot: Any) -> tuple[int, Any, State]:
    """Return the shard, its measure, and where it is, of one that a state has as open, or raise `ValueError`."""
    shard, measure, inner = check_list("an open shard", slot)
    if not (measure is None or isinstance(measure, str) or type(measure) is int):
        raise ValueError(f"the measure of shard {shard} is {measure!r}")
    # One of which nothing could be read has None, and no other.
    if (measure is None) != (inner is None) and inner != _BEHIND:
        raise ValueError(f"shard {shard} is at {inner!r}, and its measure is {measure!r}")
    return shard, measure, inner
