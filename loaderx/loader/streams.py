"""What a loader reads from: named streams of one length, all read at the same indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from loaderx.errors import OptionError


class RandomAccess(Protocol):
    """What a stream has to have. A `prefetch(idxs)` is used too, where there is one.

    Worker threads call `__getitems__` at the same time; worker processes get a pickled copy each.
    """

    def __len__(self) -> int: ...

    def __getitems__(self, idxs: npt.NDArray[np.uint64], /) -> Any: ...


def check_streams(streams: Any) -> dict[str, RandomAccess]:
    """Return the streams as a dict of its own.

    Raises
    ------
    OptionError
        No streams, not a mapping, something that is no stream, an empty stream, or streams that differ in length.
    """
    if not isinstance(streams, Mapping):
        hint = ""
        if hasattr(streams, "__getitems__"):
            hint = ", such as {'data': " + type(streams).__name__ + "(...)}"
        raise OptionError(
            f"streams is a {type(streams).__name__}: give a dict of names and datasets{hint}",
            option="streams",
            value=streams,
        )
    if not streams:
        raise OptionError("streams is empty: give at least one, by its name", option="streams", value=streams)
    for name, stream in streams.items():
        if not (hasattr(stream, "__len__") and hasattr(stream, "__getitems__")):
            raise OptionError(
                f"streams[{name!r}] is a {type(stream).__name__}, which has no __len__ and __getitems__: give a "
                "Dataset, or an object with both",
                option="streams",
                value=stream,
            )
    found = dict(streams)
    lengths = stream_lengths(found)
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
    return found


def stream_lengths(streams: Mapping[str, RandomAccess]) -> dict[str, int]:
    """Return the number of records of each stream."""
    return {str(name): len(stream) for name, stream in streams.items()}
