"""Make golden stores: run by hand, once for each writer, never by a test.

::

    LOADERX_TEST_PEERS=DIR python -m tests.golden.make loaderx-0.7.3
    python -m tests.golden.make loaderx-1

A store that is there already is left alone: it must stay readable for ever, so it is never made anew. For every
store there are ``stores/WRITER/NAME/`` (its files, meta.zr and the chunks cut to what they use), the expected
records as ``stores/WRITER/NAME.npz``, and an entry in ``manifest.json`` with the SHA-256 of every file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests import oracle
from tests.golden.samples import DELETED, WRITERS, expected_of

HERE = Path(__file__).parent
STORES = HERE / "stores"
MANIFEST = HERE / "manifest.json"


def digest(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def cut_to_use(path: Path) -> None:
    """Cut the sparse files of a store to the bytes that are used: git knows no holes."""
    store = oracle.OracleStore(path)
    used = dict.fromkeys(range(store.tail_chunk + 1), 0)
    for entry in store.table:
        chunk, end = int(entry["chunk_id"]), int(entry["offset"]) + int(entry["phys_length"])
        used[chunk] = max(used[chunk], end)
    for chunk, end in used.items():
        with (path / f"{chunk}.zr").open("r+b") as file:
            file.truncate(end)
    with (path / "meta.zr").open("r+b") as file:
        file.truncate(oracle.HEADER_BYTES + len(store) * oracle.ENTRY_BYTES)


def write_with_peer(path: Path, name: str, codec: str, content: Any) -> None:
    """Write a store with loaderx 0.7.3."""
    from tests.interop.driver import Peer073
    from tests.peers import find_peer

    folder = find_peer("loaderx-0.7.3")
    if folder is None:
        raise SystemExit("no loaderx 0.7.3: python -m tests.peers DIR, then set LOADERX_TEST_PEERS=DIR")
    peer = Peer073(folder)
    if isinstance(content, list):
        peer.write_ragged(path, content, codec)
    else:
        peer.write_dataset(path, content, codec)
    if name.endswith(("_deleted", "_compacted")):
        peer.store(path, ("delete", DELETED))
    if name.endswith("_compacted"):
        peer.store(path, ("compact",))
    peer.close()


def write_with_us(path: Path, name: str, codec: str, content: Any) -> None:
    """Write a store with the loaderx of this repository."""
    import loaderx

    if isinstance(content, list):
        loaderx.write_ragged(path, content, codec=codec, progress=False)
    else:
        loaderx.write_dataset(path, content, codec, progress=False)
    if name.endswith(("_deleted", "_compacted")):
        with loaderx.Zrecord(path) as store:
            store.delete(DELETED)
            if name.endswith("_compacted"):
                store.compact()


def join(records: list[Any], content: Any) -> np.ndarray[Any, Any]:
    """Return the records as one array; those of a ragged store behind one another."""
    if isinstance(content, list):
        return np.concatenate(records)
    return np.array(records, dtype=content.dtype).reshape(len(records), *content.shape[1:])


def make(writer: str) -> None:
    """Make the stores of a writer that are not there yet."""
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8")) if MANIFEST.exists() else {}
    for name, (codec, produce) in WRITERS[writer].items():
        key = f"{writer}/{name}"
        if key in manifest:
            continue
        content = produce()
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / name
            (write_with_peer if writer == "loaderx-0.7.3" else write_with_us)(path, name, codec, content)
            cut_to_use(path)
            target = STORES / key
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(path, target)
        ragged = isinstance(content, list)
        records = expected_of(name, content)
        joined = join(records, content)
        extension = joined.dtype.name if joined.dtype.isbuiltin == 2 else None
        if writer == "loaderx-0.7.3" and joined.dtype.names:
            joined = joined.view(f"V{joined.dtype.itemsize}")  # 0.7.3 keeps no field names
        elif extension:
            joined = joined.view(f"V{joined.dtype.itemsize}")  # .npy files know no ml_dtypes
        expected = {"records": joined}
        if ragged:
            expected["row_splits"] = np.cumsum([0, *map(len, records)], dtype=np.int64)
        np.savez_compressed(STORES / f"{key}.npz", allow_pickle=False, **expected)
        manifest[key] = {
            "codec": codec,
            "ragged": ragged,
            "extension": extension,
            "files": {file.name: digest(file) for file in sorted(target.iterdir())},
            "expected": digest(STORES / f"{key}.npz"),
        }
        MANIFEST.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        print(key, sum(file.stat().st_size for file in target.iterdir()), "bytes")


def main() -> None:
    """Make what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make", description=__doc__.splitlines()[0])
    parser.add_argument("writer", choices=WRITERS)
    make(parser.parse_args().writer)


if __name__ == "__main__":
    main()
