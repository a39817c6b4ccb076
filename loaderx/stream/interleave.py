"""Several streams as one, in turns or by chance: a mixture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np

from loaderx.stream.ended import Ended, close_all, remains
from loaderx.stream.keys import load_keys, save_keys
from loaderx.stream.node import Item, Key, Node, Recipe, State, average
from loaderx.stream.passes import build_pass, rebuild_passes
from loaderx.stream.seeds import mix
from loaderx.stream.tally import Counted, Tally, add_counts, counts_of

Stopping: TypeAlias = Literal["first_exhausted", "all_exhausted", "all_exhausted_without_replacement"]
STOPPING: tuple[Stopping, ...] = ("first_exhausted", "all_exhausted", "all_exhausted_without_replacement")
#: Phases of a mixture: the item from which on each holds, and a weight for each input.
Phases: TypeAlias = Sequence[tuple[int, Sequence[float]]]

# Choices that are made at a time.
_BLOCK = 1024
_NEVER = 1 << 62


class Interleave(Node):
    """Items of several inputs in turns, or of one that is drawn for each item.

    An input is exhausted with its last item: the next one is asked for when the one before has been given. An empty
    one is exhausted when it is first its turn. A key is (number, key in the input), where the number is that of the
    input and of its pass, ``pass * n_inputs + input``.

    Parameters
    ----------
    *recipes : Recipe
        Built for each pass: their epoch is this one's and the pass.
    phases : sequence of (int, sequence of float), or None
        Weights, by the number of items that have been given; the first ones from 0 on. None: in turns.
    seed : int
    stopping : str
        ``"first_exhausted"``: end with the first input that is exhausted. ``"all_exhausted"``: begin such an input
        anew, and end when each one has been exhausted. ``"all_exhausted_without_replacement"``: go on without it. An
        input that neither this phase nor a later one draws from is not waited for.
    epoch : int
        Another one has other draws.

    Notes
    -----
    The draws of epoch 0 are those of ``numpy.random.default_rng(seed).choice(n, p=weights)``: number i compares the
    i-th number of PCG64 with the sums of the weights. So a mixture of `datasets.interleave_datasets` with this seed has
    this order. PCG64's numbers are the same in every version of NumPy.
    """

    _place: int

    called = "interleave"
    takes_several = True
    is_seeded = True
    builds_inputs = True

    def __init__(
        self,
        *recipes: Recipe,
        phases: Phases | None = None,
        seed: int = 42,
        stopping: Stopping = "first_exhausted",
        epoch: int = 0,
    ) -> None:
        self._recipes = recipes
        self._n = len(recipes)
        self._seed = seed if epoch == 0 else mix(seed, "interleave", epoch)
        self._stopping = stopping
        self._epoch = epoch
        self._is_random = phases is not None
        self._begins = [0] if phases is None else [begin for begin, _ in phases]
        weights = (
            np.ones((1, self._n)) if phases is None else np.array([each for _, each in phases], np.float64)
        )
        sums = weights.cumsum(axis=1)
        self._sums = sums / sums[:, -1:]
        self._has_weight = weights > 0
        self._upstreams: list[Node] = []
        # What is left of the inputs that are closed, as nothing is taken from them any more.
        self._ended: dict[int, Ended] = {}
        # What the passes of each input counted that have ended.
        self._counted: list[Counted] = [[] for _ in recipes]

    @classmethod
    def count_shards(cls, options: Mapping[str, Any], inputs: Sequence[int]) -> int:
        return min(inputs)

    @classmethod
    def is_endless(cls, options: Mapping[str, Any], inputs: Sequence[bool]) -> bool:
        return all(inputs) if options["stopping"] == "first_exhausted" else any(inputs)

    def inputs(self) -> Sequence[Node]:
        return self._upstreams

    @property
    def shares_keys(self) -> bool:
        return any(each.shares_keys for each in self._recipes)

    def reset(self, state: State | None = None) -> None:
        self.close()
        self._upstreams, self._ended = [], {}
        n = self._n
        if state is None:
            state = {
                "upstreams": [None] * n,
                "passes": [0] * n,
                "exhausted": [False] * n,
                "given": [0] * n,
                "counted": [[] for _ in range(n)],
                "held": [None] * n,
                "last": None,
                "draws": 0,
                "phase": 0,
            }
        self._passes = list(state["passes"])
        self._is_exhausted = list(state["exhausted"])
        self._counted = list(state["counted"])
        self._set_phase(state["phase"])
        self._upstreams = [self._build(i, self._passes[i]) for i in range(n)]
        self._nexts = [upstream.next for upstream in self._upstreams]
        for i, upstream in enumerate(self._upstreams):
            upstream.reset(state["upstreams"][i])
            if not self._is_wanted(i):
                self._leave(i)
        self._given = list(state["given"])
        self._numbers = [self._passes[i] * n + i for i in range(n)]
        self._hold(load_keys(state["held"]))
        # The input that gave the last item: whether it has more is asked before the next draw.
        self._last: int | None = state["last"]
        self._seek(state["draws"])
        self._judge()

    def _build(self, i: int, of_pass: int) -> Node:
        return build_pass(self._recipes[i], self._epoch, of_pass)

    def _is_wanted(self, i: int) -> bool:
        """Return whether an item of an input may be given yet."""
        is_over = self._is_exhausted[i] and self._stopping == "all_exhausted_without_replacement"
        return not is_over and bool(self._has_weight[self._phase :, i].any())

    def _leave(self, i: int) -> None:
        """Close an input, of which nothing is wanted any more."""
        if i not in self._ended:
            self._ended[i] = remains(self._upstreams[i])
            self._nexts[i] = _stop
            self._upstreams[i].close()

    def _hold(self, keys: list[Key]) -> None:
        """Have the items of some keys ready, one or none (None) for each input."""
        self._held: list[tuple[Key, Item] | None] = [None] * self._n
        for i, key in enumerate(keys):
            if key is not None:
                self._held[i] = (key, self._rebuild(i, [(self._passes[i], key)])[0])

    def next(self) -> tuple[Key, Item]:
        held = self._held
        last = self._last
        if last is not None:
            try:
                held[last] = self._nexts[last]()
            except StopIteration:
                self._exhaust(last)
            self._last = None
        while True:
            place = self._place
            try:
                i = self._chosen[place]
            except IndexError:
                self._choose()
                continue
            pair = held[i]
            if pair is None:
                try:
                    pair = self._nexts[i]()
                except StopIteration:
                    self._place = place + 1
                    self._exhaust(i)
                    continue
            self._place = place + 1
            held[i] = None
            self._last = i
            self._given[i] += 1
            return (self._numbers[i], pair[0]), pair[1]

    def _exhaust(self, i: int) -> None:
        self._is_exhausted[i] = True
        self._judge()
        if self._is_over or self._stopping != "all_exhausted":
            self._seek(self._at())
        elif i not in self._ended:
            self._begin_again(i)
        if self._stopping == "all_exhausted_without_replacement":
            self._leave(i)

    def _begin_again(self, i: int) -> None:
        before, following = self._upstreams[i], self._build(i, self._passes[i] + 1)
        following.reset()
        self._counted[i] = counts_of(add_counts(before.tally(), self._counted[i]))
        self._passes[i] += 1
        self._numbers[i] += self._n
        self._upstreams[i], self._nexts[i] = following, following.next
        self._last = None
        before.close()

    def _judge(self) -> None:
        """Find out whether there is an item yet to be given, and from which phase on."""
        exhausted = np.array(self._is_exhausted)
        if self._stopping == "first_exhausted":
            self._is_over = bool(exhausted.any())
            return
        open_inputs = self._has_weight[self._phase :] & ~exhausted
        self._is_over = not open_inputs.any()
        if self._is_over:
            return
        # What gives an item when it is drawn: where each one is read again, all that have any.
        giving = open_inputs
        if self._stopping == "all_exhausted":
            giving = self._has_weight[self._phase :] & ~(exhausted & (np.array(self._given) == 0))
        while not giving[0].any():
            # This phase has nothing left, and without an item the next one would not begin.
            self._set_phase(self._phase + 1)
            self._seek(self._at())
            giving = giving[1:]

    def _set_phase(self, phase: int) -> None:
        self._phase = phase
        for i in range(len(self._upstreams)):
            if not self._is_wanted(i):
                self._leave(i)
        self._change_at = self._begins[phase + 1] if phase + 1 < len(self._begins) else _NEVER

    def _at(self) -> int:
        """Return the number of draws so far."""
        return self._places[self._place] if self._place < len(self._chosen) else self._end

    def _seek(self, at: int) -> None:
        """Have the draws from some number on chosen anew when they are needed."""
        self._end = at
        self._place = 0
        self._chosen: list[int] = []
        self._places: list[int] = []

    def _choose(self) -> None:
        """Choose inputs for the draws from `_end` on, to the end of their block or of the phase.

        Each of them gives an item at most.

        Raises
        ------
        StopIteration
            The mixture is over.
        """
        n_given = sum(self._given)
        if n_given >= self._change_at:
            self._set_phase(self._phase + 1)
            self._judge()
        if self._is_over:
            raise StopIteration
        begin = self._end // _BLOCK * _BLOCK
        at = np.arange(self._end, begin + _BLOCK)
        if self._is_random:
            raw = np.random.PCG64(self._seed).advance(begin).random_raw(_BLOCK)[self._end - begin :]
            chosen = self._sums[self._phase].searchsorted((raw >> np.uint64(11)) * 2.0**-53, side="right")
        else:
            chosen = at % self._n
        if self._stopping == "all_exhausted_without_replacement" and any(self._is_exhausted):
            is_open = ~np.array(self._is_exhausted)[chosen]
            at, chosen = at[is_open], chosen[is_open]
        most = self._change_at - n_given
        self._end = begin + _BLOCK if len(at) <= most else int(at[most])
        self._place, self._chosen, self._places = 0, chosen[:most].tolist(), at[:most].tolist()

    def get_state(self) -> State:
        held = [None if pair is None else pair[0] for pair in self._held]
        return {
            "upstreams": [
                self._ended[i].state if i in self._ended else upstream.get_state()
                for i, upstream in enumerate(self._upstreams)
            ],
            "passes": list(self._passes),
            "exhausted": list(self._is_exhausted),
            "given": list(self._given),
            "counted": list(self._counted),
            "held": save_keys(held, self.shares_keys),
            "last": self._last,
            "draws": self._at(),
            "phase": self._phase,
        }

    def counts(self) -> dict[str, Any]:
        return {"given": list(self._given), "passes": list(self._passes)}

    def tally(self) -> Tally:
        below = [
            add_counts(self._ended[i].tally if i in self._ended else upstream.tally(), self._counted[i])
            for i, upstream in enumerate(self._upstreams)
        ]
        return [{"step": self.called, **self.counts()}, *chain.from_iterable(below)]

    def fraction(self) -> float | None:
        return average(
            [1.0 if i in self._ended else upstream.fraction() for i, upstream in enumerate(self._upstreams)]
        )

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        groups: dict[int, list[tuple[int, Key, int]]] = {}
        for position, (number, key) in enumerate(keys):
            of_pass, i = divmod(number, self._n)
            groups.setdefault(i, []).append((of_pass, key, position))
        items: list[Item] = [None] * len(keys)
        for i, group in groups.items():
            found = self._rebuild(i, [(of_pass, key) for of_pass, key, _ in group])
            for (_, _, position), item in zip(group, found, strict=True):
                items[position] = item
        return items

    def _rebuild(self, i: int, keys: Sequence[tuple[int, Key]]) -> list[Item]:
        """Return items of an input, by the pass and the key in it."""
        live = None if i in self._ended else (self._passes[i], self._upstreams[i])
        return rebuild_passes(self._recipes[i], self._epoch, keys, live)

    def locate(self, key: Key) -> str:
        of_pass, i = divmod(key[0], self._n)
        # By that pass: each has an order of its own, which may be in its keys.
        where = f"{self._build(i, of_pass).locate(key[1])}, of stream {i}"
        return f"{where} in pass {of_pass}" if of_pass else where

    def close(self) -> None:
        self._held = [None] * self._n
        close_all(self._upstreams)


def _stop() -> NoReturn:
    raise StopIteration
