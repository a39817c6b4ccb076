"""What a loader reads from: named streams of one length, all read at the same indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from loaderx.errors import OptionError


class RandomAccess(Protocol):
    """What a stream has to have. A `prefetch(idxs)` is used too, where there is one, and so are two flags.

    `gathers_in_teams` is true of a stream whose reads use all cores and may be made by any thread, the one that takes
    the batches too. `leaves_out` is true of one whose batches may lack some of their indices: beside others it is
    refused.

    `__getitems__` is given an array of uint64 that cannot be written to, for all streams get the same, and returns what
    belongs to its indices, in their order: the batch's entry of this stream. Of a list beside other streams the length
    is looked at; else nobody looks whether it does. Worker threads call it at the same time; worker processes get a
    pickled copy of the stream each.
    """

    def __len__(self) -> int: ...

    def __getitems__(self, idxs: npt.NDArray[np.uint64], /) -> Any: ...


class ArrayStream:
    """An array in memory, or a memory map, as a stream: labels beside a dataset, say.

    Worker processes get a copy each, of a memory map too.

    Parameters
    ----------
    array : ndarray, shape (n, *shape)
        Not copied.
    """

    gathers_in_teams = True

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitems__(self, idxs: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
        """Return the rows of some indices, a copy."""
        batch: npt.NDArray[Any] = self._array[idxs]
        return batch


def gathers_in_teams(stream: RandomAccess) -> bool:
    """Return whether a stream's own class says so: one that is derived from it may read otherwise."""
    return bool(vars(type(stream)).get("gathers_in_teams"))


def _hint_at_batches(stream: Any) -> str:
    """Return what to say of a `loaderx.stream.Stream`."""
    if not (hasattr(stream, "__iter__") and hasattr(stream, "num_shards")):
        return ""
    return ". A Stream needs no loader: its batch(n) makes batches, and map(num_workers=) has workers"


def check_streams(streams: Any) -> tuple[dict[str, RandomAccess], dict[str, int]]:
    """Return the streams as a dict of its own, and the number of records of each.

    Raises
    ------
    OptionError
        No streams, not a mapping, something that is no stream, an empty stream, streams that differ in length, or one
        beside others that leaves out some of what it is asked for.
    """
    if not isinstance(streams, Mapping):
        hint = ""
        if hasattr(streams, "__getitems__"):
            hint = ", such as {'data': " + type(streams).__name__ + "(...)}"
        hint += _hint_at_batches(streams)
        raise OptionError(
            f"streams is a {type(streams).__name__}: give a dict of names and datasets{hint}",
            option="streams",
            value=streams,
        )
    if not streams:
        raise OptionError("streams is empty: give at least one, by its name", option="streams", value=streams)
    for name, stream in streams.items():
        if not isinstance(name, str):
            raise OptionError(
                f"streams has the name {name!r}, which is no string: name each stream by one, as the state does",
                option="streams",
                value=name,
            )
        if isinstance(stream, np.ndarray) and stream.ndim:
            continue
        lacking = [method for method in ("__len__", "__getitems__") if not hasattr(stream, method)]
        if lacking:
            raise OptionError(
                f"streams[{name!r}] is a {type(stream).__name__}, which has no {' and no '.join(lacking)}: give a "
                f"Dataset, an array, or an object with both methods{_hint_at_batches(stream)}",
                option="streams",
                value=stream,
            )
    found = {
        name: ArrayStream(stream) if isinstance(stream, np.ndarray) else stream
        for name, stream in streams.items()
    }
    for name, stream in found.items():
        if len(found) > 1 and getattr(stream, "leaves_out", False):
            raise OptionError(
                f"streams[{name!r}] leaves out what does not parse (on_error='skip'), and what is left would no longer "
                "lie beside what the other streams give for the same indices: give it a function as on_error, which "
                "returns what is to take the place",
                option="streams",
                value=stream,
            )
    lengths = {name: len(stream) for name, stream in found.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise OptionError(
            f"the streams differ in length: {told}; record i of one belongs to record i of every other",
            option="streams",
            value=lengths,
        )
    if not next(iter(lengths.values())):
        raise OptionError(
            f"the streams hold no records ({', '.join(map(repr, lengths))}): write some first",
            option="streams",
            value=lengths,
        )
    return found, lengths
