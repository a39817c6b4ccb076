"""Arrays as tensors, of any nesting: which share memory, which are copied, and which no tensor can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from loaderx.errors import OptionError
from loaderx.store.buffers import empty_array
from loaderx.store.options import check_flag

#: Types that `torch.from_numpy` takes, in the machine's byte order.
_SHARED = {
    np.dtype(name): getattr(torch, name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64", "complex64", "complex128",
    )
}  # fmt: skip
#: Types of ml_dtypes, which NumPy knows by name only: carried over as plain bytes.
_NAMED = {
    name: getattr(torch, name)
    for name in (
        "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    )
    if hasattr(torch, name)
}  # fmt: skip
#: Types that PyTorch has but hardly computes with: neither an index nor an embedding takes them.
_WIDER: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.uint16): np.dtype(np.int32),
    np.dtype(np.uint32): np.dtype(np.int64),
}
_UINT64 = np.dtype(np.uint64)
_MOST_INT64 = 2**63 - 1


def to_tensors(batch: Any, *, device: Any = None, non_blocking: bool = False, widen: bool = True) -> Any:
    """Return a batch with tensors in place of its arrays.

    Parameters
    ----------
    batch : ndarray, or any nesting of dicts, lists, tuples and named tuples
        Such as what a `DataLoader` gives; a ragged batch is a tuple, ``(values, row_splits)``. Tensors in it are kept,
        and so is what is neither array nor tensor: numbers, text, None.
    device : torch.device, str or int, optional
        Where the tensors are to be; None: in the host's memory, where the batch is.
    non_blocking : bool
        Do not wait for the copy to the device; see `torch.Tensor.to`. Only out of `pinned` memory does it go on beside
        Python.
    widen : bool
        Return ``uint16`` as ``int32``, ``uint32`` and ``uint64`` as ``int64``, which indexing and embeddings take.
        Otherwise they become PyTorch's types of the same name, which hardly any operation knows.

    Returns
    -------
    object
        The same nesting, in new containers.

    Raises
    ------
    OptionError
        An array of a type that PyTorch has not (dates, text, structures, ``longdouble``, another byte order), a
        ``uint64`` above ``int64``, or a masked array, which would lose its mask. It names the place in the batch, such
        as ``batch['time']``.

    Notes
    -----
    On the host tensors share the memory of their arrays: nothing is copied, a change of one is a change of the other,
    and the memory of a batch is not used again before the last tensor, view or array of it is gone. Copied are
    ``uint16`` and ``uint32`` that are widened, and arrays that no tensor can share: read-only ones, those with negative
    steps (``x[:, ::-1]``), and fields of structures. ``bfloat16`` and the float8 types of ml_dtypes become PyTorch's.

    May be called by several threads, also as the `transform` of a `DataLoader` with worker threads.

    Examples
    --------
    >>> import torch
    >>> from loaderx.torch import to_tensors
    >>> batch = {"image": np.zeros((2, 3), np.float32), "label": np.array([7, 9], np.uint16)}
    >>> tensors = to_tensors(batch)
    >>> tensors["label"]
    tensor([7, 9], dtype=torch.int32)
    >>> tensors["image"].data_ptr() == batch["image"].ctypes.data
    True
    """
    check_flag("widen", widen)

    def convert(value: Any, place: str) -> Any:
        if isinstance(value, np.ma.MaskedArray):
            raise OptionError(
                f"{place} is a masked array, and a tensor has no mask: give a transform with array.filled()",
                option="batch",
                value=value.dtype,
            )
        if isinstance(value, np.ndarray | np.generic):
            tensor = _to_tensor(np.asarray(value), widen, place)
        elif isinstance(value, torch.Tensor):
            tensor = value
        elif isinstance(value, Mapping):
            return {key: convert(item, f"{place}[{key!r}]") for key, item in value.items()}
        elif isinstance(value, list | tuple):
            items = [convert(item, f"{place}[{i}]") for i, item in enumerate(value)]
            if isinstance(value, list):
                return items
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        else:
            return value
        return tensor if device is None else tensor.to(device, non_blocking=non_blocking)

    return convert(batch, "batch")


def _to_tensor(array: npt.NDArray[Any], widen: bool, place: str) -> Any:
    """Return a tensor of an array, which shares its memory where it can."""
    dtype = array.dtype
    wanted = torch_dtype(dtype, place)
    if widen:
        if dtype in _WIDER:
            wide = empty_array(array.shape, _WIDER[dtype], array.size * _WIDER[dtype].itemsize)
            np.copyto(wide, array)
            return torch.from_numpy(wide)
        if dtype == _UINT64:
            if array.size and array.max() > _MOST_INT64:
                raise OptionError(
                    f"{place} holds {array.max()}, which is above int64: make it smaller, or keep PyTorch's uint64 "
                    "with widen=False",
                    option="batch",
                    value=int(array.max()),
                )
            array, wanted = array.view(np.int64), torch.int64
    if not array.flags.writeable or any(step < 0 or step % array.itemsize for step in array.strides):
        array = array.copy()
    owner = _owning_tensor(array)
    if owner is not None:
        return _view_of(owner, array, wanted)
    if array.dtype in _SHARED:
        if array.dtype == _UINT64:
            array = array.view(
                _UINT64
            )  # ulonglong is equal to it, but another type, which PyTorch does not know
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(f"u{array.itemsize}")).view(wanted)


def torch_dtype(dtype: np.dtype[Any], place: str) -> Any:
    """Return PyTorch's type of the same values, or raise `OptionError`."""
    found = (_SHARED.get(dtype) or _NAMED.get(dtype.name)) if dtype.isnative else None
    if found is not None:
        return found
    if not dtype.isnative:
        cure = f"give a transform with array.astype({dtype.newbyteorder('=').str!r})"
    elif dtype.kind in "mM":
        cure = "give a transform with array.view(np.int64)"
    elif dtype.names is not None:
        cure = "give a transform that makes an entry of each field"
    elif dtype.kind in "fc":
        cure = "give a transform with array.astype(np.float64), or complex128"
    else:
        cure = "give a transform that leaves it out, or makes numbers of it"
    raise OptionError(
        f"{place} is an array of {dtype}, which PyTorch has no type for: {cure}", option="batch", value=dtype
    )


def _owning_tensor(array: npt.NDArray[Any]) -> Any:
    """Return the tensor whose memory an array shows, or None."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, torch.Tensor) or _offset(base, array) % array.itemsize:
        return None  # or of one that cannot show it as items of this size
    return base


def _offset(owner: Any, array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0]) - int(owner.untyped_storage().data_ptr())


def _view_of(owner: Any, array: npt.NDArray[Any], dtype: Any) -> Any:
    """Return what an array shows as a tensor of the owner's own storage.

    `torch.from_numpy` would make a storage of its own, of which PyTorch does not know that a copy to a device still
    reads from it: it would use pinned memory again too early.
    """
    steps = [step // array.itemsize for step in array.strides]
    first = _offset(owner, array) // array.itemsize
    return torch.empty(0, dtype=dtype).set_(owner.untyped_storage(), first, array.shape, steps)
