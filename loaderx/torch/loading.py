"""A loader's batches as tensors on a device, and as an iterable dataset of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from loaderx.errors import LoaderError, OptionError
from loaderx.loader.ahead import Ahead, Resumable, check_resumable
from loaderx.store.options import check_count, check_flag
from loaderx.torch.tensors import to_tensors


def prefetch_to_device(loader: Resumable, device: Any, size: int = 2, *, widen: bool = True) -> Ahead:
    """Return an iterator over a loader's batches as tensors on a device, copied there some batches ahead.

    Parameters
    ----------
    loader : DataLoader
        From now on this iterator's alone.
    device : torch.device, str or int
    size : int
        While a batch is used, this many later ones are on the device or on their way; they take its memory.
    widen : bool
        As in `to_tensors`.

    Returns
    -------
    Ahead
        An iterator with ``step``, ``state_dict()`` and ``load_state_dict(state)``: its position is that of the next
        batch that it has not returned, wherever the loader is. Save its state, not the loader's. Its ``close()``, and
        the end of a ``with`` block, drops what was made ready and closes the loader.

    Raises
    ------
    OptionError
        `size` is no whole number from 0 on, `loader` has no state, or PyTorch has no such `device` here; from `next`,
        as `to_tensors`.

    Notes
    -----
    Copies are put into the device's current stream, between the work that is there already: Python does not wait for
    those out of `pinned` memory, for others it does. On the CPU nothing is copied.

    Examples
    --------
    >>> from loaderx.torch import prefetch_to_device
    >>> write_dataset(tmp_path / "x.zr", np.arange(10))
    10
    >>> with DataLoader({"x": Dataset(tmp_path / "x.zr")}, batch_size=4, mode="sequential") as loader:
    ...     batches = prefetch_to_device(loader, "cpu")
    ...     next(batches)["x"], batches.step, loader.step
    (tensor([0, 1, 2, 3]), 1, 3)
    """
    check_flag("widen", widen)
    _check_device(device)
    return Ahead(loader, size, lambda batch: to_tensors(batch, device=device, non_blocking=True, widen=widen))


def _check_device(device: Any) -> None:
    """Raise `OptionError` for a device that is not there."""
    try:
        torch.empty(0, device=torch.device(device))
    except Exception as error:  # AssertionError, RuntimeError, ImportError: each kind of device has its own
        reason = str(error).partition("\n")[0]
        raise OptionError(
            f"device is {device!r}, on which PyTorch makes no tensor here: {reason}",
            option="device",
            value=device,
        ) from error


def as_iterable_dataset(loader: Resumable, *, steps: int | None = None, widen: bool = True) -> LoaderDataset:
    """Return a loader as an iterable dataset of PyTorch, whose items are whole batches of tensors.

    Parameters
    ----------
    loader : DataLoader
        Or what `prefetch_to_device` returns.
    steps : int, optional
        End a pass over the dataset at each multiple of so many steps; None: never.
    widen : bool
        As in `to_tensors`.

    Returns
    -------
    LoaderDataset
        For ``torch.utils.data.DataLoader(dataset, batch_size=None)``, which passes batches on as they are, or for a
        trainer that takes any iterable.

    Raises
    ------
    OptionError
        `loader` has no state, or `steps` is no whole number from 1 on.

    Examples
    --------
    >>> from loaderx.torch import as_iterable_dataset
    >>> write_dataset(tmp_path / "x.zr", np.arange(10))
    10
    >>> with DataLoader({"x": Dataset(tmp_path / "x.zr")}, batch_size=4, mode="sequential") as loader:
    ...     dataset = as_iterable_dataset(loader, steps=2)
    ...     for batch in torch.utils.data.DataLoader(dataset, batch_size=None):
    ...         batch["x"]
    tensor([0, 1, 2, 3])
    tensor([4, 5, 6, 7])
    """
    return LoaderDataset(loader, steps, widen)


class LoaderDataset(IterableDataset):
    """A loader's batches as an iterable dataset: see `as_iterable_dataset`.

    Notes
    -----
    A pass goes on where the loader is, and ends at the next multiple of `steps`. So what is resumed, or left with
    ``break``, goes on to the end of its pass, and passes begin at the same steps in every run. A loader that is moved
    during a pass, with ``load_state_dict`` or ``seek``, makes it the pass of the steps that it was moved to.

    ``state_dict()`` and ``load_state_dict(state)`` are the loader's, as torchdata's StatefulDataLoader and Lightning
    look for them.

    It is read in the process of the loader, which has workers of its own: in a worker of PyTorch's, where each would
    give all batches again, it raises.
    """

    def __init__(self, loader: Resumable, steps: int | None, widen: bool) -> None:
        check_resumable(loader)
        self.steps = None if steps is None else check_count("steps", steps, least=1)
        self._loader = loader
        self._widen = check_flag("widen", widen)

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the batches of a pass, as `to_tensors` gives them.

        Raises
        ------
        LoaderError
            This is a worker of PyTorch's DataLoader.
        """
        if get_worker_info() is not None:
            raise LoaderError(
                "a loader's dataset is read in the loader's own process: give PyTorch's DataLoader num_workers=0. The "
                "loader has workers of its own, num_workers of loaderx.loader.DataLoader"
            )
        return _Pass(self._loader, self.steps, self._widen)

    def __len__(self) -> int:
        """Return the steps of a whole pass.

        Raises
        ------
        TypeError
            It never ends.
        """
        if self.steps is None:
            raise TypeError("the dataset has no length: its loader goes on without end. Give it steps")
        return self.steps

    def __bool__(self) -> bool:
        return True  # or Python would ask for the length

    def __repr__(self) -> str:
        passes = "without end" if self.steps is None else f"in passes of {self.steps} steps"
        return f"<LoaderDataset of {self._loader!r}, {passes}>"

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the loader go on at a state.

        Raises
        ------
        StateMismatchError
        """
        self._loader.load_state_dict(state)


class _Pass:
    """A loader's batches up to the next multiple of `steps`. No generator: that would be over with the first exception.

    Where it is the loader knows: a count of its own would be wrong after Ctrl-C, or when the loader is moved.
    """

    def __init__(self, loader: Resumable, steps: int | None, widen: bool) -> None:
        self._loader = loader
        self._steps = steps
        self._widen = widen
        self._is_over = False
        self._end = 0 if steps is None else self._next_end(steps, loader.state_dict()["step"])

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        state = self._loader.state_dict()
        self._is_over = self._is_over or self._is_at_end(state["step"])
        if self._is_over:
            raise StopIteration
        try:
            return to_tensors(next(self._loader), widen=self._widen)
        except Exception:
            raise
        except BaseException:
            # Ctrl-C: where the loader has given the batch already, the next call takes it again.
            if self._loader.state_dict()["step"] != state["step"]:
                self._loader.load_state_dict(state)
            raise

    def _is_at_end(self, step: int) -> bool:
        if self._steps is None:
            return False
        if not self._end - self._steps <= step <= self._end:  # moved to another pass
            self._end = self._next_end(self._steps, step)
        return step == self._end

    @staticmethod
    def _next_end(steps: int, step: int) -> int:
        return step - step % steps + steps
