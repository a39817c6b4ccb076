"""Run loaderx 0.7.3: requests as JSON lines on standard input, answers as JSON lines on standard output.

Runs as a script in the peer's own environment, so the loaderx it imports is the peer and it uses nothing of this
repository but `wire` beside it. Every request opens what it needs and closes it before it answers: 0.7.3 can
crash at exit while a store is open, and nothing here may depend on how this process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import loaderx  # isort: skip - the peer's, no package of this repository
import numpy as np
from wire import decode, encode  # type: ignore[import-not-found,unused-ignore]

peer: Any = loaderx  # its names are 0.7.3's, whatever a type checker finds under this one


class StoreSteps:
    """The operations of one open Zrecord, on lists of bytes."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def append(self, records: Sequence[bytes], codec: str | None = None) -> int:
        """Append records of any lengths."""
        lens = np.array([len(record) for record in records], dtype=np.uint32)
        offsets = np.zeros(len(records), dtype=np.uint64)
        offsets[1:] = np.cumsum(lens[:-1], dtype=np.uint64)
        source = np.frombuffer(b"".join(records), dtype=np.uint8)
        return int(self.store.append_var(source, offsets, lens, codec))

    def append_fixed(self, records: Sequence[bytes], codec: str | None = None) -> int:
        """Append records of one length."""
        source = np.frombuffer(b"".join(records), dtype=np.uint8)
        return int(self.store.append(source, len(records), len(records[0]), codec))

    def read(self, indices: Iterable[int] | None = None) -> list[bytes]:
        """Read records (all by default) with gather_var."""
        chosen = np.array(list(range(len(self.store)) if indices is None else indices), dtype=np.uint64)
        if not len(chosen):
            return []
        lens = self.store.lengths(chosen).astype(np.int64)
        ends = np.cumsum(lens)
        # one byte more: a batch of empty records has no bytes, and no address
        destination = np.full(int(ends[-1]) + 1, 0xA5, dtype=np.uint8)
        self.store.gather_var(chosen, destination, (ends - lens).astype(np.uint64))
        return [destination[end - size : end].tobytes() for end, size in zip(ends, lens, strict=True)]

    def gather(self, indices: Sequence[int], item_bytes: int) -> list[bytes]:
        """Read records of one length with gather."""
        destination = np.full((len(indices), item_bytes), 0xA5, dtype=np.uint8)
        self.store.gather(np.array(indices, dtype=np.uint64), destination, item_bytes)
        return [row.tobytes() for row in destination]

    def lengths(self, indices: Sequence[int]) -> list[int]:
        """Return the lengths of records."""
        return [int(size) for size in self.store.lengths(np.array(indices, dtype=np.uint64))]

    def delete(self, indices: Sequence[int]) -> None:
        """Delete records."""
        self.store.delete(np.array(indices, dtype=np.uint64))

    def compact(self) -> None:
        """Reclaim the bytes of deleted records."""
        self.store.compact()

    def train_dict(self, samples: Sequence[bytes], target: int) -> None:
        """Train the store's dictionary."""
        sizes = np.array([len(sample) for sample in samples], dtype=np.uint64)
        self.store.train_dict(np.frombuffer(b"".join(samples), dtype=np.uint8), sizes, target)

    def has_dict(self) -> bool:
        """Tell whether the store has a dictionary."""
        return bool(self.store.has_dict())

    def stats(self) -> dict[str, int]:
        """Return stats()."""
        return dict(self.store.stats())

    def count(self) -> int:
        """Return the number of records."""
        return len(self.store)


def run_store(path: str, codec: str, steps: list[list[Any]]) -> list[Any]:
    """Open a Zrecord, run the steps in order and return what each gave."""
    with peer.Zrecord(path, codec) as store:
        operations = StoreSteps(store)
        return [getattr(operations, name)(*arguments) for name, *arguments in steps]


def run_array(kind: str, path: str, indices: list[Any]) -> dict[str, Any]:
    """Open an array store and return its length, dtype and what each index gives."""
    with contextlib.closing(getattr(peer, kind)(path)) as dataset:
        found = []
        for index in indices:
            got = dataset[index]
            found.append([np.array(part) for part in got] if isinstance(got, tuple) else np.array(got))
        return {"len": len(dataset), "dtype": dataset.dtype.str, "found": found}


def run_padded(path: str, indices: list[int], max_len: int | None) -> list[Any]:
    """Return the padded batch of a ragged store."""
    with contextlib.closing(peer.RaggedDataset(path)) as dataset:
        return list(dataset.getitems_padded(indices, max_len))


COMMANDS: dict[str, Callable[..., Any]] = {
    "hello": lambda: [peer.__version__, os.path.dirname(peer.__file__)],
    "store": run_store,
    "array": run_array,
    "padded": run_padded,
    "write_dataset": lambda path, array, codec: peer.write_dataset(path, array, codec=codec),
    "write_ragged": lambda path, arrays, codec: peer.write_ragged(path, arrays, codec=codec),
}


def main() -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what a library prints must not fall between the answers
    for line in sys.stdin:
        command, arguments = json.loads(line)
        try:
            answer: dict[str, Any] = {"value": encode(COMMANDS[command](**decode(arguments)))}
        except Exception as error:
            answer = {"error": [type(error).__name__, str(error), getattr(error, "code", None)]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
