"""Who encodes: this thread, a tokenizer's own threads, or processes. Results come in the order of the batches."""

from __future__ import annotations

import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from loaderx.errors import OptionError, TokenizeError
from loaderx.tokens.batches import Batch
from loaderx.tokens.encoders import EncodeError, Encoder, encode_texts, function_name

#: The ids of a batch's texts, and how many each has.
Ids: TypeAlias = "tuple[npt.NDArray[Any], npt.NDArray[np.int64]]"

# While one batch is turned into an array, the tokenizer's threads have another.
_TOKENIZER_CALLS = 2


def encode_all(
    batches: Iterable[Batch], encoder: Encoder, eos_id: int | None, dtype: np.dtype[Any], workers: int
) -> Generator[tuple[Batch, Ids], None, None]:
    """Encode batches and yield them in their order; few are on their way at once.

    Parameters
    ----------
    batches : iterable of Batch
    encoder : Encoder
    eos_id : int or None
    dtype : numpy.dtype
    workers : int
        Processes; 0: none.

    Raises
    ------
    EncodeError
        Its `batch` is the batch at fault.
    OptionError
        The encoder cannot be sent to another process.
    TokenizeError
        A process died.
    """
    if workers == 0 and not encoder.has_threads:
        for batch in batches:
            yield batch, _named(batch, partial(encode_texts, encoder, *_task(batch), eos_id, dtype))
        return
    if workers == 0:
        pool: Executor = ThreadPoolExecutor(_TOKENIZER_CALLS, "loaderx-encode")
        call: Callable[..., Ids] = encode_texts
        first: Any = encoder
        depth = _TOKENIZER_CALLS + 1
    else:
        pool, first = _processes(encoder, workers), None
        call = _encode_in_worker
        depth = 2 * workers + 1
    waiting: deque[tuple[Batch, Future[Ids]]] = deque()
    failed: Exception | None = None
    is_through = False
    try:
        for found in _what_comes(batches):
            if isinstance(found, Exception):
                failed = found
                break
            waiting.append((found, pool.submit(call, first, *_task(found), eos_id, dtype)))
            if len(waiting) >= depth:
                yield _next(waiting)
        while waiting:
            yield _next(waiting)
        if failed is not None:
            raise failed
        is_through = True
    except _broken_pool() as error:
        raise _died() from error
    finally:
        if not is_through:
            _kill_workers(pool)
        pool.shutdown(cancel_futures=True)


def _what_comes(batches: Iterable[Batch]) -> Iterator[Batch | Exception]:
    """Yield the batches, and last the exception that ends them: those before it are still encoded."""
    try:
        yield from batches
    except Exception as error:
        yield error


def _task(batch: Batch) -> tuple[list[str], list[bool] | None]:
    return batch.texts, batch.ends()


def _next(waiting: deque[tuple[Batch, Future[Ids]]]) -> tuple[Batch, Ids]:
    batch, future = waiting.popleft()
    return batch, _named(batch, future.result)


def _named(batch: Batch, call: Callable[[], Ids]) -> Ids:
    try:
        return call()
    except EncodeError as error:
        error.batch = batch
        raise


def _broken_pool() -> type[BaseException]:
    from concurrent.futures.process import BrokenProcessPool

    return BrokenProcessPool


def _died() -> TokenizeError:
    return TokenizeError(
        "a worker process died while it encoded (killed, or out of memory; or the program starts processes when it is "
        'imported: keep its calls under if __name__ == "__main__"). Run again: it goes on behind the last documents '
        "that were written"
    )


# --- processes ---------------------------------------------------------------------------------------------------


def _processes(encoder: Encoder, workers: int) -> Executor:
    """Return a pool of processes that start from nothing, as none of them may have what a fork of this one would."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, context, _begin_worker, (_pickled(encoder),))


def _kill_workers(pool: Executor) -> None:
    """End processes whatever they do: nobody wants what they encode any more, and an encoder may never return."""
    # No public name before Python 3.14.
    for process in list((getattr(pool, "_processes", None) or {}).values()):
        process.kill()


def _pickled(encoder: Encoder) -> bytes:
    function = getattr(encoder, "_function", encoder)
    name = getattr(function, "__qualname__", "")
    hint = ""
    if "<lambda>" in name:
        hint = ": a lambda has no name to find it by; give it one with def, at the top of a module"
    elif "<locals>" in name:
        hint = ": it is defined inside another function; move it to the top of a module"
    try:
        return pickle.dumps(encoder)
    except Exception as error:
        raise OptionError(
            f"encode ({function_name(function)}) cannot be sent to worker processes{hint or f' ({error})'}. Or use "
            "workers=0, which encodes in this process",
            option="encode",
            value=function,
        ) from error


# In a worker process: the encoder, pickled until the first batch comes, so that what is wrong with it is told.
_pickle: bytes = b""
_encoder: Encoder | None = None


def _begin_worker(pickled: bytes) -> None:
    """Leave Ctrl-C to the parent, and end with it however it ends."""
    import multiprocessing
    import threading

    global _pickle
    _pickle = pickled
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker is some process's child"

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _encode_in_worker(
    _: None, texts: list[str], ends: list[bool] | None, eos_id: int | None, dtype: np.dtype[Any]
) -> Ids:
    global _encoder
    if _encoder is None:
        _encoder = pickle.loads(_pickle)
    return encode_texts(_encoder, texts, ends, eos_id, dtype)
