"""What tells records that are no files from others: a hash of what they say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from loaderx.errors import JsonlError

# Of a sequence that may read what it is asked for.
_MOST_RECORDS = 64


def sequence_identity(records: Any) -> dict[str, Any]:
    """Return what tells a sequence of records from others, as JSON.

    Parameters
    ----------
    records : object
        With a length and ``[i]``. Of a list or a tuple every record counts; of anything else, which may have to read
        them, 64 at even distances, the first and the last among them.

    Notes
    -----
    Strings, numbers, and lists and dicts of them count by what they are, anything else by its type.
    """
    length = len(records)
    chosen: Iterable[Any] = records
    if not isinstance(records, list | tuple):
        most = min(length, _MOST_RECORDS)
        chosen = (_get(records, i * (length - 1) // max(most - 1, 1)) for i in range(most))
    return {"kind": "sequence", "records": length, "digest": _digest(chosen)}


def _get(records: Any, index: int) -> Any:
    try:
        return records[index]
    except JsonlError:
        return None


def _digest(records: Iterable[Any]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    encode = json.JSONEncoder(ensure_ascii=False, skipkeys=True, default=_by_type).encode
    for record in records:
        try:
            text = encode(record)
        except (ValueError, RecursionError):  # it holds itself, or nests too deep
            text = _by_type(record)
        digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def _by_type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
