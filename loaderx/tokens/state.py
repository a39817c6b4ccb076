"""The state of a run on disk, and what a finished one says of itself: two small JSON files.

``tokens.json`` lies in what `tokenize` wrote. ``progress.json`` lies in the folder of a run that is not finished, and
is written whole behind each window.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from loaderx._core.checksum import hash64
from loaderx.errors import SchemaError, StateMismatchError
from loaderx.store import files
from loaderx.tokens.heads import Head
from loaderx.tokens.options import Options
from loaderx.tokens.sides import TOKENS
from loaderx.tokens.sources import Place
from loaderx.tokens.windows import State

MANIFEST: Final = "tokens.json"
PROGRESS: Final = "progress.json"
_VERSION = 1
_MANIFEST_FORMAT = "loaderx-tokens"
_PROGRESS_FORMAT = "loaderx-tokens-progress"
_HASH = "xxh3_64"
_MOST_BYTES = 1 << 30
_COUNTS = ("samples", "documents", "tokens", "pad_tokens", "dropped_tokens")


@dataclass(frozen=True, slots=True)
class Progress:
    """A run as its folder has it.

    Attributes
    ----------
    asked : dict
        Its options and its source, as JSON.
    state : State
        Behind the last window that is known to be written.
    head : Head or None
        Its first documents; None: none is written yet.
    data : int or None
        Once everything is written: the inode of the folder that is to get the dataset's name.
    """

    asked: dict[str, Any]
    state: State
    head: Head | None = None
    data: int | None = None


def write_progress(path: Path, progress: Progress) -> None:
    """Write a run's progress; it has reached the disk when this returns."""
    state = progress.state
    place = state.place
    document = {
        "format": _PROGRESS_FORMAT,
        "version": _VERSION,
        **progress.asked,
        "place": None if place is None else [place.record, place.file, place.end, place.line_number],
        "skips": state.skips,
        "rest": {name: base64.b64encode(values.tobytes()).decode() for name, values in state.rest.items()},
        **{name: getattr(state, name) for name in _COUNTS},
        "first_documents": None if progress.head is None else progress.head.as_json(),
        "data": progress.data,
    }
    files.write_new(path, _sealed(document, None))


def read_progress(path: Path) -> dict[str, Any] | None:
    """Read a run's progress, as JSON; None where there is none.

    Raises
    ------
    SchemaError
        It is no progress that this release can read.
    """
    return _read(path, _PROGRESS_FORMAT)


def as_progress(path: Path, document: dict[str, Any], options: Options) -> Progress:
    """Return the progress that a file holds, of a run with these options.

    Raises
    ------
    SchemaError
        There is something else in it.
    """
    try:
        place = document["place"]
        if place is not None and (len(place) != 4 or not all(map(_is_count, place))):
            raise ValueError(f"place is {place!r}")
        rest = {
            name: np.frombuffer(base64.b64decode(document["rest"][name]), dtype)
            for name, dtype in options.dtypes.items()
        }
        state = State(None if place is None else Place(*place), _skips(document), rest, **_counts(document))
        _check_sums(state, options)
        head = Head.from_json(document["first_documents"])
        data = document["data"]
        if data is not None and not _is_count(data):
            raise ValueError(f"data is {data!r}")
        return Progress({name: document[name] for name in ("options", "source")}, state, head, data)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise _wrong(path, f"{type(error).__name__}: {error}") from None


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _counts(document: dict[str, Any]) -> dict[str, int]:
    found = {name: document[name] for name in _COUNTS}
    for name, value in found.items():
        if not _is_count(value):
            raise ValueError(f"{name} is {value!r}")
    return found


def _skips(document: dict[str, Any]) -> dict[str, int]:
    skips = document["skips"]
    if not isinstance(skips, dict) or not all(map(_is_count, skips.values())):
        raise ValueError(f"skips is {skips!r}")
    return skips


def _check_sums(state: State, options: Options) -> None:
    """Raise `ValueError` where not every token is in a sample, waits for one, or was dropped."""
    lengths = {len(values) for values in state.rest.values()}
    if len(lengths) != 1:
        raise ValueError("the rests of the streams differ in length")
    if not options.as_records and (
        state.samples * (options.sample_size or 0) + lengths.pop()
        != state.tokens + state.pad_tokens - state.dropped_tokens
    ):
        raise ValueError(f"{state.samples} samples and the rest are not {state.tokens} tokens")


def write_manifest(
    folder: Path, asked: dict[str, Any], state: State, head: Head | None, arrays: dict[str, str]
) -> None:
    """Write what a finished run says of itself.

    Parameters
    ----------
    folder : pathlib.Path
    asked : dict
        Its options and its source, as JSON.
    state : State
    head : Head or None
        Its first documents; None: it has none.
    arrays : dict of str to str
        For each stream its store's folder, relative.
    """
    document = {
        "format": _MANIFEST_FORMAT,
        "version": _VERSION,
        "arrays": arrays,
        **{name: getattr(state, name) for name in _COUNTS},
        "skips": state.skips,
        "first_documents": None if head is None else head.as_json(),
        **asked,
    }
    files.write_new(folder / MANIFEST, _sealed(document, 2))


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Read what a finished run says of itself; None where there is nothing of it.

    Raises
    ------
    SchemaError
        It is nothing that this release can read.
    """
    document = _read(folder / MANIFEST, _MANIFEST_FORMAT)
    if document is None:
        return None
    arrays = document.get("arrays")
    if (
        not isinstance(arrays, dict)
        or TOKENS not in arrays
        or not all(isinstance(name, str) for name in arrays.values())
    ):
        raise _wrong(folder / MANIFEST, f"arrays is {arrays!r}")
    for name in arrays.values():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise _wrong(folder / MANIFEST, f"the array at {name!r} is outside the folder")
        if "\0" in name:
            raise _wrong(folder / MANIFEST, f"the array at {name!r} has a name that no folder has")
    try:
        _counts(document), _skips(document), Head.from_json(document["first_documents"])
    except (KeyError, ValueError) as error:
        raise _wrong(folder / MANIFEST, f"{type(error).__name__}: {error}") from None
    return document


def check_same(asked: dict[str, Any], there: dict[str, Any], where: Path, advice: str) -> None:
    """Raise `StateMismatchError` where a run was asked for something else than this one is.

    Parameters
    ----------
    asked, there : dict
        With "options" and "source", as JSON: of this run, and of the other.
    where : pathlib.Path
        What the other wrote.
    advice : str
        What to do.
    """
    mismatches: dict[str, tuple[object, object]] = {}
    for part in ("options", "source"):
        here, saved = json.loads(json.dumps(asked[part])), there.get(part)
        saved = saved if isinstance(saved, dict) else {}
        for name in [*here, *(name for name in saved if name not in here)]:
            if here.get(name) != saved.get(name):
                mismatches[name if part == "options" else f"source.{name}"] = saved.get(name), here.get(name)
    if mismatches:
        told = "; ".join(
            _HASHED.get(name) or f"{name} was {_short(saved)}, and is {_short(here)}"
            for name, (saved, here) in mismatches.items()
        )
        raise StateMismatchError(f"{where}: of another run: {told}. {advice}", mismatches=mismatches)


#: What is known by a hash, which says nothing to anybody.
_HASHED = {
    "source.locations": "the source's samples lie at other places (source.locations)",
    "source.digest": "the source has other records (source.digest)",
}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _read(path: Path, kind: str) -> dict[str, Any] | None:
    with files.errors_named(path.parent, f"read {path.name}"):
        try:
            data = files.read_whole(path, _MOST_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, f"it is not JSON ({error})") from None
    if not isinstance(document, dict) or document.get("format") != kind:
        raise _wrong(path, f"it is no {kind}")
    if document.get("version") != _VERSION:
        raise _wrong(path, f"its version is {document.get('version')!r}, and this release reads {_VERSION}")
    if document.pop(_HASH, None) != _hash(document):
        raise _wrong(path, "it is damaged or was edited: its hash is another")
    return document


def _sealed(document: dict[str, Any], indent: int | None) -> bytes:
    """Return a document as it is written, with a hash of all that it says."""
    return (json.dumps({**document, _HASH: _hash(document)}, indent=indent) + "\n").encode()


def _hash(document: dict[str, Any]) -> str:
    return f"{hash64(json.dumps(document, sort_keys=True).encode()):016x}"


def _wrong(path: Path, problem: str) -> SchemaError:
    return SchemaError(f"{path}: is wrong: {problem}. Begin anew with overwrite=True", path=path)
