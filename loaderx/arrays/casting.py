"""Converting values to a dtype without changing any, or saying that one would change."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def cast_values(values: npt.NDArray[Any], dtype: np.dtype[Any], *, rounding: bool) -> npt.NDArray[Any]:
    """Return values as another dtype; every value is the same afterwards, or nearly so where that is allowed.

    Parameters
    ----------
    values : ndarray
    dtype : numpy.dtype
    rounding : bool
        Whether floats may lose precision (never range).

    Returns
    -------
    ndarray
        `values` itself where it has the dtype already.

    Raises
    ------
    ValueError
        A value would change, or the dtypes have nothing to do with each other.

    Examples
    --------
    >>> cast_values(np.array([1, 200]), np.dtype("u1"), rounding=False)
    array([  1, 200], dtype=uint8)
    >>> cast_values(np.array([1, 300]), np.dtype("u1"), rounding=False)
    Traceback (most recent call last):
    ValueError: int64 values that uint8 does not have
    """
    if values.dtype == dtype:
        return values
    source, target = _kind(values.dtype), _kind(dtype)
    if source + target not in _RELATED:
        raise ValueError(f"{values.dtype} values for {dtype}")
    with np.errstate(all="ignore"):
        cast = values.astype(dtype)
        if target in "fc" and source in "fc":
            if not rounding and not np.can_cast(values.dtype, dtype, "safe"):
                raise ValueError(f"{values.dtype} values, which {dtype} would round")
            same = np.isfinite(cast) == np.isfinite(values)
        else:
            # There and back: a comparison across the two dtypes would itself round.
            back = cast.real if target == "c" else cast
            same = back.astype(values.dtype) == values
            if source in "mM":
                same |= np.isnat(values)
            if source in "iu" and target in "iu":
                same &= (cast < 0) == (values < 0)  # -1 comes back from an unsigned type as -1
    if not np.all(same):
        raise ValueError(f"{values.dtype} values that {dtype} does not have")
    return cast


# Source and target kinds between which a value can stay itself: b bool, i and u whole numbers, f floats (those of
# ml_dtypes too), c complex numbers, S and U strings, m and M times.
_RELATED = frozenset(
    [
        "bb",
        "bi",
        "bu",
        "bf",
        "bc",
        "ii",
        "iu",
        "ui",
        "uu",
        "if",
        "uf",
        "ic",
        "uc",
        "ff",
        "fc",
        "cc",
        "SS",
        "UU",
        "mm",
        "MM",
    ]
)


def _kind(dtype: np.dtype[Any]) -> str:
    if dtype.type.__module__.partition(".")[0] == "ml_dtypes":
        return "u" if dtype.name.startswith("uint") else "i" if dtype.name.startswith("int") else "f"
    return dtype.kind
