"""Random numbers of a pipeline: each a pure function of a seed and a position."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import numpy as np

from loaderx.loader.sampler import Sampler

#: Draws are below this.
DRAW_BITS = 63
_CHUNK = 1024


def mix(seed: int, *parts: int | str) -> int:
    """Return another seed, which belongs to this one and to all the parts.

    Notes
    -----
    The first eight bytes of BLAKE2b over the text of the numbers: the same on every machine and for ever.
    """
    text = "/".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def seed_in_place(seed: int, n_below: int) -> int:
    """Return the seed of a node in its pipeline: of several of one kind and one seed, each has another.

    Parameters
    ----------
    seed : int
        The user's.
    n_below : int
        How many such nodes are below it, which `Recipe.count_seeded` counts along one chain: what stands side by side
        has the same random numbers. The first node's seed is the user's.
    """
    return mix(seed, "again", n_below) if n_below else seed


def permutation(seed: int, n: int) -> list[int]:
    """Return the numbers below `n` in an order of the seed."""
    if n < 2:
        return list(range(n))
    order: list[int] = Sampler(n, n, "cyclic", seed).indices(0).tolist()
    return order


class Draws:
    """Numbers below 2**63, one after the other.

    Parameters
    ----------
    seed : int

    Attributes
    ----------
    at : int
        How many have been drawn.
    """

    __slots__ = ("_chunk", "_end", "_sampler", "at")

    def __init__(self, seed: int) -> None:
        self._sampler = Sampler(1 << DRAW_BITS, _CHUNK, "iid", seed)
        self.seek(0)

    def seek(self, at: int) -> None:
        """Go on behind the first `at` of them."""
        self.at = at
        self._end = at // _CHUNK * _CHUNK
        self._chunk: list[int] = []
        if at != self._end:
            self._fill()

    def _fill(self) -> None:
        self._chunk = self._sampler.indices(self.at // _CHUNK).tolist()
        self._end = self.at // _CHUNK * _CHUNK + _CHUNK

    def below(self, n: int) -> int:
        """Draw an index below `n`, which is far below 2**63: each as likely, as far as such numbers can be."""
        at = self.at
        if at == self._end:
            self._fill()
        self.at = at + 1
        return self._chunk[at % _CHUNK] * n >> DRAW_BITS

    def uniform(self) -> float:
        """Draw a number from 0 to below 1."""
        return self.below(1 << 53) / (1 << 53)


class ItemRngs:
    """Random numbers for each item of its own, as a `numpy.random.Generator`: a function of a seed and its number.

    Parameters
    ----------
    seed : int

    Notes
    -----
    Philox, whose counter has the item's number in its third word: making one anew for each item takes ten times as long
    as this, which sets the counter. Each thread has its own.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._local = threading.local()

    def of(self, number: int) -> Any:
        """Return the random numbers of an item, which are good until the next call in this thread."""
        try:
            philox, state, counter, generator = self._local.parts
        except AttributeError:
            philox, state, counter, generator = self._local.parts = self._make()
        counter[2] = number
        philox.state = state
        return generator

    def _make(self) -> tuple[Any, Any, Any, Any]:
        philox = np.random.Philox(key=np.array([self._seed, 0], np.uint64))
        state: Any = philox.state
        return philox, state, state["state"]["counter"], np.random.Generator(philox)

    def __getstate__(self) -> int:
        return self._seed

    def __setstate__(self, seed: int) -> None:
        self.__init__(seed)  # type: ignore[misc]
