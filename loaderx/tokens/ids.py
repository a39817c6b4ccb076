"""Token ids: from what encoders return to one array of the dataset's dtype, or an error that names the text."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loaderx.errors import OptionError

#: What a plain callable without a vocabulary's size gets.
DEFAULT_DTYPE: np.dtype[Any] = np.dtype(np.uint32)
_UNSIGNED: tuple[np.dtype[Any], ...] = tuple(map(np.dtype, ("uint8", "uint16", "uint32", "uint64")))


class IdsError(Exception):
    """What an encoder returned for one text is no list of ids that fit.

    Parameters
    ----------
    text : int
        The text's place in the batch.
    problem : str
        What is wrong, without where.
    """

    def __init__(self, text: int, problem: str) -> None:
        super().__init__(text, problem)
        self.text = text
        self.problem = problem


def choose_dtype(dtype: Any, vocab_size: int | None, ids: Sequence[tuple[str, int | None]]) -> np.dtype[Any]:
    """Return the dtype that tokens are stored in.

    Parameters
    ----------
    dtype : "auto" or dtype_like
        "auto": the smallest unsigned type that holds the ids below `vocab_size`, and those given; uint32 where the
        vocabulary's size is not known.
    vocab_size : int, optional
    ids : sequence of (str, int or None)
        Ids that have to fit too, with the names of the options they come from.

    Raises
    ------
    OptionError
        Not an integer type, or one that does not hold all of these ids.
    """
    largest: int = max([0 if vocab_size is None else vocab_size - 1, *(value or 0 for _, value in ids)])
    if isinstance(dtype, str) and dtype == "auto":
        candidates = _UNSIGNED if vocab_size is not None else (DEFAULT_DTYPE, _UNSIGNED[-1])
        return next(unsigned for unsigned in candidates if largest <= np.iinfo(unsigned).max)
    chosen: np.dtype[Any]
    try:
        chosen = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):  # NumPy reads some strings as Python
        chosen = np.dtype(object)
    if chosen.kind not in "iu":
        raise OptionError(
            f'dtype is {dtype!r}: give an integer type of NumPy\'s, or "auto"', option="dtype", value=dtype
        )
    for name, value in ids:
        if value is not None and value > np.iinfo(chosen).max:
            raise OptionError(
                f"{name} is {value}, and {chosen} holds at most {np.iinfo(chosen).max}: choose a larger dtype",
                option=name,
                value=value,
            )
    return chosen


def own_ids(ids: Any) -> Any:
    """Return ids that nobody else writes to: a copy, except of what cannot change and of what is no list of ids."""
    ids = getattr(ids, "ids", ids)  # an Encoding of tokenizers
    if isinstance(ids, list):
        return ids.copy()
    if ids is None or isinstance(ids, int | str | bytes | dict | tuple | range):
        return ids
    try:
        copied = np.array(ids)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return ids
    # The error names what was returned, not an array with nothing but it in it.
    return copied if copied.ndim else ids


def join_ids(
    encoded: Sequence[Any], ends: Sequence[bool] | None, eos_id: int | None, dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the ids of some texts as one array.

    Parameters
    ----------
    encoded : sequence
        What the encoder gave for each text: a list or an array of ids, or an object whose `ids` is one.
    ends : sequence of bool, optional
        For each text whether a document ends with it; None: with each.
    eos_id : int, optional
        Put behind each document, and counted with its last text; None: nothing is.
    dtype : numpy.dtype
        Of the result; every id is one of its values.

    Returns
    -------
    ids : ndarray of dtype, shape (n,)
    lengths : ndarray of int64, shape (texts,)
        Ids of each text.

    Raises
    ------
    IdsError
        An id is negative, too large or no integer. The first text at fault is named.
    """
    found = _join_lists(encoded, ends, eos_id)
    if found is not None:
        ids, lengths = found
        if not len(ids) or int(ids.max()) <= np.iinfo(dtype).max:
            return ids.astype(dtype), lengths
    return _join_any(encoded, ends, eos_id, dtype)


def _join_lists(
    encoded: Sequence[Any], ends: Sequence[bool] | None, eos_id: int | None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]] | None:
    """Join lists of ordinary ids at once, several times quicker than one by one; None where something is the matter."""
    joined: list[int] = []
    lengths: list[int] = []
    for place, ids in enumerate(encoded):
        if type(ids) is not list:
            return None
        joined += ids
        if eos_id is not None and (ends is None or ends[place]):
            joined.append(eos_id)
            lengths.append(len(ids) + 1)
        else:
            lengths.append(len(ids))
    try:
        values = array("L", joined)
    except (TypeError, ValueError, OverflowError):
        return None
    found = np.frombuffer(values, "L")
    # True is 1 to an array, and False 0: only these can be something else than they look like.
    if any(type(joined[place]) is not int for place in np.flatnonzero(found <= 1).tolist()):
        return None
    return found, np.array(lengths, np.int64)


def _join_any(
    encoded: Sequence[Any], ends: Sequence[bool] | None, eos_id: int | None, dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    pieces: list[npt.NDArray[Any]] = [np.empty(0, dtype)]
    lengths = np.empty(len(encoded), np.int64)
    eos = None if eos_id is None else np.array([eos_id], dtype)
    for place, ids in enumerate(encoded):
        pieces.append(_as_ids(place, ids, dtype))
        lengths[place] = len(pieces[-1])
        if eos is not None and (ends is None or ends[place]):
            pieces.append(eos)
            lengths[place] += 1
    return np.concatenate(pieces), lengths


def _as_ids(place: int, ids: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the ids of one text, checked."""
    ids = getattr(ids, "ids", ids)  # an Encoding of tokenizers
    if isinstance(ids, str | bytes | dict):
        raise IdsError(place, f"encode returned a {type(ids).__name__}, not a list of ids")
    try:
        array_ = np.asarray(ids)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise IdsError(place, f"encode returned what is no list of ids ({error})") from None
    if array_.ndim != 1:
        raise IdsError(
            place, f"encode returned a {type(ids).__name__} of {array_.ndim} axes, not a list of ids"
        )
    if not len(array_):
        return np.empty(0, dtype)
    if array_.dtype.kind == "O" or (
        isinstance(ids, list | tuple)
        and (array_.dtype.kind not in "iu" or not {bool, np.bool_}.isdisjoint(map(type, ids)))
    ):
        _check_one_by_one(place, list(ids), dtype)
        return np.array(ids, dtype)
    if array_.dtype.kind not in "iu":
        raise IdsError(place, f"encode returned ids of {array_.dtype}, which are no integers")
    wrong = np.flatnonzero((array_ < np.iinfo(dtype).min) | (array_ > np.iinfo(dtype).max) | (array_ < 0))
    if len(wrong):
        raise IdsError(place, _does_not_fit(int(array_[wrong[0]]), int(wrong[0]), dtype))
    return array_.astype(dtype)


def _check_one_by_one(place: int, ids: list[Any], dtype: np.dtype[Any]) -> None:
    for position, value in enumerate(ids):
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise IdsError(place, f"id {value!r} (token {position}) is no integer")
        if not 0 <= value <= np.iinfo(dtype).max:
            raise IdsError(place, _does_not_fit(int(value), position, dtype))


def _does_not_fit(value: int, position: int, dtype: np.dtype[Any]) -> str:
    if value < 0:
        return f"id {value} (token {position}) is negative"
    return (
        f"id {value} (token {position}) does not fit {dtype}, which holds at most {np.iinfo(dtype).max}: give the "
        "vocabulary's size (vocab_size), or a larger dtype"
    )
