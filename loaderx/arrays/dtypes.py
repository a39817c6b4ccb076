"""Dtypes as JSON: every dtype that NumPy can save without pickling, with fields, byte order and padding."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from loaderx.errors import MissingDependencyError

# What `numpy.dtype.str` looks like. Only this form is handed to `numpy.dtype`, which also reads whole small languages.
_PLAIN = re.compile(r"[<>|][biufcmMSUVO][0-9]*(\[[0-9]*[a-zA-Z]+(/[0-9]+)?\])?")
_EXTENSION_NAME = re.compile(r"[a-z][a-z0-9_]*")

_EXTENSIONS = "ml_dtypes"
_MAX_DEPTH = 32


def check_storable(dtype: np.dtype[Any]) -> None:
    """Raise `TypeError` for a dtype whose bytes mean nothing outside this process.

    Parameters
    ----------
    dtype : numpy.dtype
    """
    if dtype.hasobject or dtype.kind == "T":
        raise TypeError(
            f"dtype {dtype} holds Python objects, which have no bytes to store: convert them to numbers, fixed-length "
            "strings or a structured dtype first"
        )


def plain_string(dtype: np.dtype[Any]) -> str:
    """Return the string of the plain NumPy dtype nearest to a dtype: `dtype.str`, or as many bytes without meaning.

    Where the two differ (fields, padding, a type of ml_dtypes), `describe` says the rest.
    """
    try:
        if np.dtype(dtype.str).itemsize == dtype.itemsize:
            return dtype.str
    except TypeError:  # some of ml_dtypes have a string that NumPy itself cannot read, such as "<f1"
        pass
    return f"|V{dtype.itemsize}"


def describe(dtype: np.dtype[Any]) -> Any:
    """Return a dtype as JSON data that `from_description` turns back into an equal one.

    Parameters
    ----------
    dtype : numpy.dtype

    Returns
    -------
    str, list or dict
        A plain dtype is its `str`; one of ml_dtypes its name; a sub-array ``[base, shape]``; a structure a dict of
        `names`, `formats`, `offsets`, `titles`, `itemsize` and `aligned`.

    Examples
    --------
    >>> describe(np.dtype(">f4"))
    '>f4'
    >>> describe(np.dtype([("x", "<i2", (3,))]))["formats"]
    [['<i2', [3]]]
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [describe(base), list(shape)]
    if dtype.names is not None and dtype.fields is not None:
        fields = [dtype.fields[name] for name in dtype.names]
        return {
            "names": list(dtype.names),
            "formats": [describe(field[0]) for field in fields],
            "offsets": [field[1] for field in fields],
            "titles": [field[2] if len(field) > 2 else None for field in fields],
            "itemsize": dtype.itemsize,
            "aligned": dtype.isalignedstruct,
        }
    if dtype.type.__module__.partition(".")[0] == _EXTENSIONS:
        return dtype.name
    return dtype.str


def from_description(description: Any) -> np.dtype[Any]:
    """Return the dtype that `describe` described.

    Parameters
    ----------
    description : object
        JSON data from an untrusted file.

    Returns
    -------
    numpy.dtype

    Raises
    ------
    ValueError, TypeError
        It describes none, or one that holds Python objects.
    MissingDependencyError
        It names a type of ml_dtypes, which is not installed.
    """
    dtype = _build(description, _MAX_DEPTH)
    check_storable(dtype)
    if np.empty(0, dtype).dtype != dtype:
        # A sub-array would become axes, and a string of no bytes one of a byte that nothing fills.
        raise ValueError(f"no array has dtype {dtype!r}")
    return dtype


def _build(description: Any, depth: int) -> np.dtype[Any]:
    if depth == 0:
        raise ValueError(f"a dtype nested deeper than {_MAX_DEPTH}")
    if isinstance(description, str):
        if _PLAIN.fullmatch(description):
            return np.dtype(description)
        if _EXTENSION_NAME.fullmatch(description):
            return _extension(description)
        raise ValueError(f"{description!r} is not a dtype string such as '<f4'")
    if isinstance(description, list) and len(description) == 2 and isinstance(description[1], list):
        base, shape = description
        if not all(type(count) is int and count >= 0 for count in shape):
            raise ValueError(f"{shape!r} is not a shape")
        return np.dtype((_build(base, depth - 1), tuple(shape)))
    if isinstance(description, dict):
        return _build_structure(description, depth)
    raise ValueError(f"{description!r} does not describe a dtype")


def _build_structure(description: dict[str, Any], depth: int) -> np.dtype[Any]:
    names, formats = description.get("names"), description.get("formats")
    offsets, itemsize = description.get("offsets"), description.get("itemsize")
    titles, aligned = description.get("titles"), description.get("aligned", False)
    if not isinstance(names, list) or not isinstance(formats, list) or not isinstance(offsets, list):
        raise ValueError("a structured dtype needs the lists names, formats and offsets")
    titles = [None] * len(names) if titles is None else titles
    if not isinstance(titles, list) or not len(names) == len(formats) == len(offsets) == len(titles):
        raise ValueError(
            "names, formats, offsets and titles of a structured dtype must have one entry for each field"
        )
    if not all(isinstance(name, str) for name in names):
        raise ValueError("the names of a structured dtype must be strings")
    if not all(title is None or isinstance(title, str) for title in titles):
        raise ValueError("the titles of a structured dtype must be strings")
    if not all(type(number) is int and 0 <= number < 2**31 for number in [*offsets, itemsize]):
        raise ValueError("the offsets and the itemsize of a structured dtype must be whole numbers")
    structure: Any = {
        "names": names,
        "formats": [_build(format_, depth - 1) for format_ in formats],
        "offsets": offsets,
        "titles": titles,
        "itemsize": itemsize,
    }
    dtype: np.dtype[Any] = np.dtype(structure, align=bool(aligned))
    return dtype


def _extension(name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        raise MissingDependencyError(
            f"dtype {name!r} belongs to ml_dtypes, which is not installed: pip install ml_dtypes",
            package=_EXTENSIONS,
        ) from None
    scalar = getattr(ml_dtypes, name, None)
    if not isinstance(scalar, type) or not issubclass(scalar, np.generic):
        raise ValueError(f"{name!r} is no dtype of ml_dtypes {ml_dtypes.__version__}")
    return np.dtype(scalar)
