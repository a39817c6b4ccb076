"""Another program that changes a store: loaderx 0.7.3, as far as its bytes on disk go.

It knows the header, the table and the chunks, and nothing of locks, sums, marks and journals.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.oracle import ENTRY, ENTRY_BYTES, HEADER, HEADER_BYTES, RAW


class Foreign:
    """An open store of another program.

    Parameters
    ----------
    path : pathlib.Path
    chunk_bytes : int
        Where a chunk ends.
    """

    def __init__(self, path: Path, chunk_bytes: int = 1 << 32) -> None:
        self._path = path
        self._chunk_bytes = chunk_bytes

    def append(self, records: Sequence[bytes]) -> None:
        """Append records: of each the data at the tail, its entry, the tail, the length."""
        header = self._header()
        for record in records:
            if int(header["tail_offset"]) + len(record) >= self._chunk_bytes:
                header["tail_chunk"] += 1
                header["tail_offset"] = 0
            entry = np.zeros(1, ENTRY)
            entry["offset"], entry["chunk_id"] = header["tail_offset"], header["tail_chunk"]
            entry["phys_length"] = entry["logic_length"] = len(record)
            entry["codec"] = RAW
            self._write(f"{header['tail_chunk']}.zr", record, int(header["tail_offset"]))
            self._write("meta.zr", entry.tobytes(), HEADER_BYTES + int(header["length"]) * ENTRY_BYTES)
            header["tail_offset"] += len(record)
            self._write("meta.zr", header.tobytes()[:12], 0)
            header["length"] += 1
            self._write("meta.zr", header.tobytes(), 0)

    def delete(self, indices: Sequence[int]) -> None:
        """Delete records, the highest first: the last one's entry takes the place."""
        header = self._header()
        for index in sorted(set(indices), reverse=True):
            header["length"] -= 1
            table = self._table(int(header["length"]) + 1)
            self._write("meta.zr", table[-1:].tobytes(), HEADER_BYTES + index * ENTRY_BYTES)
            self._write("meta.zr", header.tobytes(), 0)

    def compact(self) -> None:
        """Move the records together, in the order in which they lie; the files keep their sizes."""
        header = self._header()
        table = self._table(int(header["length"]))
        chunk = tail = 0
        for index in np.lexsort((table["phys_length"], table["offset"], table["chunk_id"])).tolist():
            entry = table[index]
            n_bytes = int(entry["phys_length"])
            with (self._path / f"{entry['chunk_id']}.zr").open("rb") as stream:
                stored = os.pread(stream.fileno(), n_bytes, int(entry["offset"]))
            if tail + n_bytes >= self._chunk_bytes:
                chunk, tail = chunk + 1, 0
            self._write(f"{chunk}.zr", stored, tail)
            entry["chunk_id"], entry["offset"] = chunk, tail
            tail += n_bytes
        self._write("meta.zr", table.tobytes(), HEADER_BYTES)
        header["tail_chunk"], header["tail_offset"] = chunk, tail
        self._write("meta.zr", header.tobytes(), 0)

    def _header(self) -> Any:
        return np.frombuffer((self._read("meta.zr", HEADER_BYTES, 0)), HEADER).copy()[0]

    def _table(self, length: int) -> Any:
        return np.frombuffer(self._read("meta.zr", length * ENTRY_BYTES, HEADER_BYTES), ENTRY).copy()

    def _read(self, name: str, n_bytes: int, offset: int) -> bytes:
        with (self._path / name).open("rb") as stream:
            return os.pread(stream.fileno(), n_bytes, offset)

    def _write(self, name: str, data: bytes, offset: int) -> None:
        descriptor = os.open(self._path / name, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.pwrite(descriptor, data, offset)
        finally:
            os.close(descriptor)
