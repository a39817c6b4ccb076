"""A loader's batches as JAX's arrays, on their devices before they are used.

Needs JAX (``pip install jax``); nothing else of loaderx imports this module.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loaderx.errors import MissingDependencyError, OptionError
from loaderx.loader.ahead import Ahead, Resumable

try:
    import jax
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise MissingDependencyError(
        "loaderx.jax needs JAX, which is not installed: pip install jax",
        package="jax",
        extra="jax",
    ) from None

__all__ = ["prefetch_to_device"]


def prefetch_to_device(loader: Resumable, size: int = 2, sharding: Any = None) -> Ahead:
    """Return an iterator over a loader's batches as JAX's arrays, put on their devices some batches ahead.

    Parameters
    ----------
    loader : DataLoader
        From now on this iterator's alone. Its batches are trees of arrays and numbers; JAX sorts the keys of dicts.
    size : int
        While a batch is used, this many later ones are on the devices or on their way; they take their memory.
    sharding : jax.sharding.Sharding or jax.Device, or a tree of them, optional
        Where the arrays are to be; a tree, such as a dict with one for each stream, may end before the batch's does.
        None: JAX's default device. A sharding over devices of several processes takes each process's batch for its part
        of a global array (`jax.make_array_from_process_local_data`): with the loader's `rank` and `world_size` those of
        the processes, that array is the global batch.

    Returns
    -------
    Ahead
        An iterator with ``step``, ``state_dict()`` and ``load_state_dict(state)``: its position is that of the next
        batch that it has not returned, wherever the loader is. Save its state, not the loader's. Its ``close()``, and
        the end of a ``with`` block, drops what was made ready and closes the loader.

    Raises
    ------
    OptionError
        `size` is no whole number from 0 on, or `loader` has no state. From `next`: an array of a type that JAX has not
        (dates, text, structures, ``longdouble``, another byte order), a masked array, or integers that JAX would cut to
        32 bits and that do not fit there; it names the place in the batch.

    Notes
    -----
    Without ``jax_enable_x64`` JAX has no types of 64 bits: integers come as 32 bits, ``float64`` as ``float32``,
    rounded, ``complex128`` as ``complex64``.

    On the CPU JAX's arrays share the memory of the batch where it is aligned, which batches of 64 KiB and more are;
    that memory is not used again before the last array that shows it is gone. So do not change a batch that was given
    away, such as one that the transform keeps. On other devices JAX copies, and keeps the batch until that is done.

    Examples
    --------
    >>> from loaderx.jax import prefetch_to_device
    >>> write_dataset(tmp_path / "x.zr", np.arange(10, dtype=np.float32))
    10
    >>> with DataLoader({"x": Dataset(tmp_path / "x.zr")}, batch_size=4, mode="sequential") as loader:
    ...     batches = prefetch_to_device(loader)
    ...     next(batches)["x"], batches.step, loader.step
    (Array([0., 1., 2., 3.], dtype=float32), 1, 3)
    """
    return Ahead(loader, size, lambda batch: _put(batch, sharding))


def _put(batch: Any, sharding: Any) -> Any:
    """Return a batch on devices."""
    leaves = [
        (leaf, "batch" + jax.tree_util.keystr(path))
        for path, leaf in jax.tree_util.tree_flatten_with_path(batch)[0]
    ]
    for leaf, place in leaves:
        _check_unmasked(leaf, place)
        _check_fits(leaf, place)
    try:
        return _put_tree(batch, sharding)
    except TypeError:
        for leaf, place in leaves:
            _check_type(leaf, place)
        raise


def _put_tree(batch: Any, sharding: Any) -> Any:
    if sharding is None:
        return jax.device_put(batch)
    targets = jax.tree.broadcast(sharding, batch)
    if all(_is_of_this_process(target) for target in jax.tree.leaves(targets)):
        return jax.device_put(batch, targets)
    return jax.tree.map(_put_part, batch, targets)


def _put_part(leaf: Any, target: Any) -> Any:
    """Return the global array of which this process has a part, or one on devices of its own."""
    if _is_of_this_process(target):
        return jax.device_put(leaf, target)
    return jax.make_array_from_process_local_data(target, np.asarray(leaf))


def _is_of_this_process(target: Any) -> bool:
    """Return whether a sharding has devices of this process only; so has a device."""
    return bool(getattr(target, "is_fully_addressable", True))


def _check_unmasked(leaf: Any, place: str) -> None:
    if isinstance(leaf, np.ma.MaskedArray):
        raise OptionError(
            f"{place} is a masked array, and JAX's arrays have no mask: give a transform with array.filled()",
            option="batch",
            value=leaf.dtype,
        )


def _check_fits(leaf: Any, place: str) -> None:
    """Raise `OptionError` for integers that JAX would cut to 32 bits without a word."""
    if (
        not isinstance(leaf, np.ndarray | np.generic)
        or leaf.dtype.kind not in "iu"
        or leaf.dtype.itemsize < 8
    ):
        return
    there = np.dtype(jax.dtypes.canonicalize_dtype(leaf.dtype))
    if there.itemsize < 8 and leaf.size:
        bounds = np.iinfo(there)
        least, most = int(leaf.min()), int(leaf.max())
        if least < bounds.min or most > bounds.max:
            raise OptionError(
                f"{place} holds {least if least < bounds.min else most}, and JAX has {there} only: set "
                "jax_enable_x64, or make the numbers smaller",
                option="batch",
                value=leaf.dtype,
            )


def _check_type(leaf: Any, place: str) -> None:
    """Raise `OptionError` for what JAX makes no array of."""
    try:
        jax.device_put(leaf)
    except TypeError as error:
        raise OptionError(
            f"{place} cannot be an array of JAX: {error} Give a transform that makes numbers of it, or leaves it out",
            option="batch",
            value=getattr(leaf, "dtype", type(leaf)),
        ) from error
