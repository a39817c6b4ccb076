"""Batches made ready some steps before they are used, with a position that counts only what was used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from loaderx.errors import OptionError
from loaderx.store.options import check_count


class Resumable(Protocol):
    """What batches are taken from: a `DataLoader`, or another iterator with a state."""

    def __next__(self) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any], /) -> None: ...


class Ahead:
    """Batches of a loader, each given to a function `size` steps before it is returned.

    Parameters
    ----------
    loader : DataLoader
        Or another iterator with ``state_dict`` and ``load_state_dict``. From now on this iterator's alone.
    size : int
        How many batches are made ready beyond the one that `next` returns; 0: none.
    prepare : callable
        Maps a batch of the loader to what `next` returns, such as one on a device.

    Raises
    ------
    OptionError
        `size` is no whole number from 0 on, or `loader` has no state.

    Notes
    -----
    Usable in a ``with`` block, which closes it and the loader. Not for several threads at once.

    An exception of the loader or of `prepare` is raised in its turn, after the batches before it, and the call after it
    goes on behind it.
    """

    def __init__(self, loader: Resumable, size: int, prepare: Callable[[Any], Any]) -> None:
        self._size = check_count("size", size)
        check_resumable(loader)
        self._loader = loader
        self._prepare = prepare
        # Where the loader was before each batch, and the batch or the exception that came instead.
        self._ready: deque[tuple[dict[str, Any], Any, Exception | None]] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Return the next batch, made ready.

        Raises
        ------
        StopIteration
            The loader has come to an end; a `DataLoader` has none.
        Exception
            What the loader raised for this batch, or making it ready did.
        """
        while len(self._ready) <= self._size and self._take_one():
            pass
        if not self._ready:
            raise StopIteration
        _, batch, error = self._ready.popleft()
        if error is None:
            return batch
        try:
            raise error
        finally:
            del error  # it refers to this frame

    def _take_one(self) -> bool:
        """Make one more batch ready; return whether there was one."""
        state = self._loader.state_dict()
        try:
            self._ready.append((state, self._prepare(next(self._loader)), None))
        except StopIteration:
            return False
        except Exception as error:
            self._ready.append((state, None, error))
        except BaseException:
            # Ctrl-C: the batch that was on its way is taken again by the next call.
            if not self._ready or self._ready[-1][0] is not state:
                self._loader.load_state_dict(state)
            raise
        return True

    @property
    def step(self) -> int:
        """The step of the batch that `next` returns, as `DataLoader.step`."""
        return int(self.state_dict()["step"])

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state at the next batch that `next` has not returned, whatever was made ready."""
        return dict(self._ready[0][0]) if self._ready else self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the loader go on at a state, and drop what was made ready; where it refuses the state, nothing changes.

        Raises
        ------
        StateMismatchError
        """
        self._loader.load_state_dict(state)
        self._ready.clear()

    def close(self) -> None:
        """Drop what was made ready, and close the loader, where it has a `close`. Batches that were returned stay."""
        self._ready.clear()
        close = getattr(self._loader, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ahead at step {self.step}, {len(self._ready)} batches ready, of {self._loader!r}>"


def check_resumable(loader: Any) -> None:
    """Raise `OptionError` for what is no iterator with a state."""
    missing = [name for name in ("__next__", "state_dict", "load_state_dict") if not hasattr(loader, name)]
    if missing:
        raise OptionError(
            f"loader is a {type(loader).__name__}, which has no {', '.join(missing)}: give a DataLoader",
            option="loader",
            value=loader,
        )
