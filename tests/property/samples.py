"""What the property tests draw: dtypes, arrays in every layout, and the values to fill them with."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

Array = np.ndarray[Any, Any]

_WORDS = np.array(["", "a", "ü", "雪", "🙂", "xyz"])


def filled(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int = 0) -> Array:
    """Return an array of any dtype that holds any bytes the dtype allows: NaNs, NaTs and the extremes too."""
    rng = np.random.default_rng(seed)
    if dtype.names is not None:
        array = np.zeros(shape, dtype=dtype)
        for number, name in enumerate(dtype.names):
            field = dtype[name]
            array[name] = filled(field.base, shape + field.shape, seed + number + 1)
        return array
    if dtype.kind == "U":
        return _WORDS[rng.integers(0, len(_WORDS), size=shape)].astype(dtype)
    largest = 1 if dtype.kind == "b" else 255
    # few different bytes, so that zstd has something to do
    raw = rng.choice(np.array([0, 1, 0x7F, 0x80, 255, 3]), size=(*shape, dtype.itemsize)) % (largest + 1)
    return np.frombuffer(raw.astype(np.uint8).tobytes(), dtype=dtype).reshape(shape).copy()


def without_gaps(array: Any) -> Any:
    """Return the bytes of an array, field by field: a copy by NumPy leaves the gaps between fields undefined."""
    if array.dtype.names is None:
        return array.tobytes()
    return [without_gaps(array[name]) for name in array.dtype.names]


def behind_one_another(rows: list[Array]) -> Array:
    """Concatenate and keep the dtype: NumPy's own makes it native and packs the fields."""
    joined = np.empty((sum(map(len, rows)), *rows[0].shape[1:]), dtype=rows[0].dtype)
    start = 0
    for row in rows:
        joined[start : start + len(row)] = row
        start += len(row)
    return joined


_scalars = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(),
    hnp.unsigned_integer_dtypes(),
    hnp.floating_dtypes(),
    hnp.complex_number_dtypes(),
    hnp.datetime64_dtypes(),
    hnp.timedelta64_dtypes(),
    hnp.byte_string_dtypes(min_len=1),
    hnp.unicode_string_dtypes(min_len=1),
    st.integers(1, 20).map(lambda size: np.dtype(f"V{size}")),
)

#: Every dtype that NumPy saves without pickle: scalars of both byte orders, and fields of them, nested and in arrays.
dtypes = st.one_of(
    _scalars,
    hnp.array_dtypes(_scalars, max_size=4, allow_subarrays=True),
    hnp.array_dtypes(hnp.array_dtypes(_scalars, max_size=2), min_size=1, max_size=2),
).filter(lambda dtype: dtype.itemsize > 0)

#: Numbers and bytes only: quicker, where the dtype is not the point.
plain_dtypes = st.sampled_from([np.dtype(text) for text in ("u1", "<i4", ">i2", "<f8", "?", "S3", "<c8")])

shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=6)


@st.composite
def laid_out(draw: st.DrawFn, kinds: st.SearchStrategy[np.dtype[Any]] = dtypes) -> Array:
    """Draw an array with any strides: sliced, reversed, transposed, broadcast, or plain."""
    array = filled(draw(kinds), draw(shapes), draw(st.integers(0, 1000)))
    for _ in range(draw(st.integers(0, 3))):
        axis = draw(st.integers(0, array.ndim - 1))
        change = draw(st.sampled_from(["slice", "reverse", "swap", "broadcast", "fortran"]))
        cut: list[Any] = [slice(None)] * array.ndim
        if change == "slice":
            cut[axis] = slice(draw(st.integers(0, 2)), None, draw(st.integers(1, 3)))
            array = array[tuple(cut)]
        elif change == "reverse":
            cut[axis] = slice(None, None, -1)
            array = array[tuple(cut)]
        elif change == "swap":
            array = array.swapaxes(axis, draw(st.integers(0, array.ndim - 1)))
        elif change == "broadcast" and array.ndim < 4:
            array = np.broadcast_to(array, (draw(st.integers(0, 4)), *array.shape))
        elif change == "fortran":
            array = np.asfortranarray(array)
    return array
