"""Tar archives as shards, an item for the members that have one name but for their extensions."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn, TypeAlias

import numpy as np

from loaderx.errors import ArchiveError, LoaderxError, OptionError, StateMismatchError, StreamError
from loaderx.jsonl.archives import TextFile
from loaderx.store.telling import said, shown
from loaderx.stream.bad_rows import OnError, judge
from loaderx.stream.calling import HELD, describe
from loaderx.stream.files import Files
from loaderx.stream.node import Item, Key
from loaderx.stream.shards import BlockReader, Pull
from loaderx.stream.tar import Cut, Member, TarError, read_member

#: A sample before it is decoded: bytes by extension, and its name as "__key__".
Sample: TypeAlias = dict[str, Any]
Decode: TypeAlias = Callable[[Sample], Item]

# Bytes of an archive that samples are cut from at a time, and for one sample alone.
_BLOCK_BYTES = 1 << 19
_ONE_BYTES = 1 << 16
_META = re.compile("__[^/]*__(?:/|$)")


class WebDataset(Files):
    """The samples of tar archives; a place is the byte of the archive where the sample's first member begins.

    Members that follow one another and have one path up to the first dot of the last name are a sample: a dict of their
    bytes by the rest of that name, in lower case, and of the path as "__key__". What is no regular file, has no dot, or
    nothing before it, and what begins with ``__name__``, is left out.

    Parameters
    ----------
    paths : sequence of str
    decode : callable or None
        Makes an item of a sample.
    on_error : "raise", "skip" or callable
    """

    called = "from_webdataset"
    unit = "byte"

    def __init__(
        self, paths: Sequence[str], decode: Decode | None = None, on_error: OnError = "raise"
    ) -> None:
        super().__init__(paths, on_error)
        self._decode = decode

    def describe(self) -> dict[str, Any]:
        return super().describe() | ({} if self._decode is None else {"decode": describe(self._decode)})

    def open(self, shard: int, state: int | None = None) -> _TarReader:
        return _TarReader(self, shard, _Archive(self._paths[shard]), state or 0)

    def make(self, found: Sample | Exception) -> Item:
        """Return the item of what was found."""
        if isinstance(found, Exception):
            raise found
        if self._decode is None:
            return found
        try:
            return self._decode(found)
        except StopIteration as error:  # which would be taken for the end of the block
            raise RuntimeError("decode raised StopIteration") from error

    def judge(
        self, error: Exception, shard: int, found: Sample | Exception, at: int, is_held: bool = False
    ) -> Item:
        """Return what takes the place of a sample that is bad, or raise: always for one that a state holds."""
        on_error: OnError = "raise" if is_held and self._on_error == "skip" else self._on_error
        member = None
        if isinstance(error, MemberError):
            member, error = error.member, error.error
        return judge(on_error, error, lambda error: self._explain(error, shard, found, at, member, is_held))

    def _explain(
        self,
        error: Exception,
        shard: int,
        found: Sample | Exception,
        at: int,
        member: str | None,
        is_held: bool,
    ) -> LoaderxError:
        if isinstance(error, LoaderxError):
            return error
        name = describe(self._decode) if self._decode is not None else "decode"
        key = found["__key__"] if isinstance(found, dict) and "__key__" in found else "?"
        where = f"{self._paths[shard]}, byte {at}, sample {key}"
        which = "" if member is None else f"member {member!r} of "
        return StreamError(
            f"{self.called}: {name} raised {type(error).__name__}: {said(error)} (for {which}the item of {where})"
            f"{HELD if is_held else ''}",
            node=self.called,
            function=name,
            where=where,
        )

    def rebuild(self, shard: int, places: Sequence[int]) -> list[Item]:
        archive = _Archive(self._paths[shard])
        items: list[Item] = []
        try:
            for at in places:
                found = archive.one(at)
                if found is None:
                    self._refuse_rebuild(shard, at)
                try:
                    item = self.make(found)
                except Exception as error:
                    item = self.judge(error, shard, found, at, is_held=True)
                items.append(item)
        finally:
            archive.close()
        return items

    def _refuse_rebuild(self, shard: int, at: int) -> NoReturn:
        raise StateMismatchError(
            f"the saved state holds the sample of {self._paths[shard]} that begins at byte {at}, which is not there "
            "here: put the file back as it was, or begin anew",
            mismatches={self._paths[shard]: (f"a sample at byte {at}", "none")},
        )

    def refuse_random(self) -> NoReturn:
        raise OptionError(
            "buffer_size is None, and nothing says where the samples of tar archives begin: convert them first (python "
            "-m loaderx.convert) and make the stream by from_dataset, or give a buffer_size",
            option="buffer_size",
            value=None,
        )


class _TarReader(BlockReader):
    def __init__(self, archives: WebDataset, shard: int, archive: _Archive, at: int) -> None:
        super().__init__(shard)
        self._archives = archives
        self._archive = archive
        # Where the next block begins.
        self._at = at
        self._found: list[Sample | Exception] = []

    def block(self) -> Pull:
        places, found, at = self._archive.samples(self._at, _BLOCK_BYTES)
        self._at = at
        if not places:
            self._pull((), ())
            raise StopIteration
        self._found = found
        return self._pull(places, map(self._archives.make, found))

    def judge(self, error: Exception) -> tuple[Key, Item] | None:
        given = self._n_given - 1
        at = self._places[given]
        found = self._found[given]
        return self._replace(at, lambda: self._archives.judge(error, self._shard, found, at))

    def fraction(self) -> float:
        return self._archive.fraction(self.get_state())

    def get_state(self) -> int:
        given = self._n_given
        return self._places[given] if given < len(self._places) else self._at

    def close(self) -> None:
        self._archive.close()


class _Archive:
    """A tar archive, whose samples are found from any place where one begins; of a compressed one only onwards."""

    def __init__(self, path: str) -> None:
        self._path = path
        is_plain = TextFile(Path(path), may_be_tar=True).kind is None
        self._bytes: _PlainBytes | _DecompressedBytes = (
            _PlainBytes(path) if is_plain else _DecompressedBytes(path)
        )

    def samples(self, at: int, n_bytes: int) -> tuple[list[int], list[Sample | Exception], int]:
        """Return where the next samples begin, what they are, and where those behind them do; none where it has ended.

        Raises
        ------
        ArchiveError
        """
        while True:
            data, is_all = self._bytes.read(at, n_bytes)
            places, found, end, has_ended = self._cut(data, at, is_all)
            if has_ended and not places:
                self._bytes.finish()
            if places or (has_ended and self._bytes.failure is None):
                return places, found, at + end
            if end and not has_ended:  # nothing but what is left out
                at += end
            elif self._bytes.failure is not None:
                raise self._bytes.failure
            else:
                n_bytes *= 2

    def one(self, at: int) -> Sample | Exception | None:
        """Return the sample that begins at a place; None: there is none."""
        n_bytes = _ONE_BYTES
        while True:
            data, is_all = self._bytes.read(at, n_bytes)
            places, found, _, has_ended = self._cut(data, at, is_all, most=1)
            if places:
                return found[0] if places[0] == at else None
            if has_ended:
                return None
            if self._bytes.failure is not None:
                raise self._bytes.failure
            n_bytes *= 2

    def fraction(self, at: int) -> float:
        """Return how much of the file has been read, where the next sample begins at a place."""
        return self._bytes.fraction(at)

    def _cut(
        self, data: bytes, offset: int, is_all: bool, most: int = 1 << 62
    ) -> tuple[list[int], list[Sample | Exception], int, bool]:
        """Find whole samples in some bytes of the archive, where the first that is not begins, and whether all ends.

        What is damaged is raised where no whole sample stands before it: so those are given first, however the archive
        is divided into blocks. Members of the sample that is begun may be behind the damage.
        """
        places: list[int] = []
        found: list[Sample | Exception] = []
        at = begin = 0
        key: str | None = None
        sample: Sample = {}
        fault: Exception | None = None
        while len(places) < most:
            damage: ArchiveError | None = None
            member: Member | None = None
            try:
                member = read_member(data, at)
            except Cut:
                if not is_all:
                    return places, found, at if key is None else begin, False
                if at < len(data):
                    damage = self._error(offset + at, "cut off", "it ends in the middle of a header")
            except TarError as error:
                damage = self._error(offset + at, "damaged", str(error))
            name = None if member is None else _divide(member)
            is_whole = member is None or member.following <= len(data)
            if key is not None and damage is None and (member is None or (name and name[0] != key)):
                places.append(offset + begin)
                found.append(sample if fault is None else fault)
                key = None
                if len(places) == most:
                    break
            if member is not None and not is_whole:
                if not is_all:
                    return places, found, at if key is None else begin, False
                damage = self._error(offset + at, "cut off", f"it ends in the middle of {member.name!r}")
            if damage is not None:
                if places:
                    return places, found, at if key is None else begin, False
                raise damage
            if member is not None and name is None:
                at = member.following
                continue
            if member is None or name is None:
                return places, found, at, True
            if key is None:
                key, begin, sample, fault = name[0], at, {"__key__": name[0]}, None
            if name[1] in sample and fault is None:
                fault = self._error(offset + at, "damaged", f"{member.name!r} is there twice in one sample")
            sample[name[1]] = data[member.begin : member.end]
            at = member.following
        return places, found, at, False

    def _error(self, at: int, problem: str, reason: str) -> ArchiveError:
        return ArchiveError(
            f"{self._path}: {problem}: {reason} (byte {at} of the tar archive). Get the file anew, or leave it out",
            file=Path(self._path),
            problem=problem,
            whole_bytes=at,
        )

    def close(self) -> None:
        self._bytes.close()


def _divide(member: Member) -> tuple[str, str] | None:
    """Return a sample's key and the extension of one of its members; None: it is left out."""
    if not member.is_regular:
        return None
    folder, slash, name = member.name.rpartition("/")
    stem, dot, extension = name.partition(".")
    if not stem or not dot or _META.match(member.name):
        return None
    return folder + slash + stem, extension.lower()


class _PlainBytes:
    failure: ArchiveError | None = None
    _file: IO[bytes] | None = None

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by close

    def read(self, at: int, n_bytes: int) -> tuple[bytes, bool]:
        """Return some bytes from a place on, and whether these are all that there are."""
        file = self._file
        assert file is not None, "it was opened"
        file.seek(at)
        data = file.read(n_bytes)
        while data and len(data) < n_bytes and (more := file.read(n_bytes - len(data))):
            data += more
        return data, len(data) < n_bytes

    def finish(self) -> None:
        """Do nothing: what stands behind the end says nothing about the archive."""

    def fraction(self, at: int) -> float:
        """Return how much of the file lies before a place."""
        assert self._file is not None, "it was opened"
        return min(1.0, at / max(1, os.fstat(self._file.fileno()).st_size))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    # A pass that is left in the middle leaves nothing to warn of.
    __del__ = close


class _DecompressedBytes:
    def __init__(self, path: str) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._text = TextFile(Path(self._path), may_be_tar=True)
        self._blocks: Iterator[bytes] = iter(self._text)
        # Why there are no more than were read last, where the file is cut off or damaged behind them.
        self.failure: ArchiveError | None = None
        # The bytes that were decompressed last, and where they begin.
        self._held = b""
        self._at = 0

    def read(self, at: int, n_bytes: int) -> tuple[bytes, bool]:
        """Return some bytes from a place on, and whether these are all that there are; quick only onwards."""
        if at < self._at:
            self.close()
            self._begin()
        try:
            return self._read(at, n_bytes)
        except BaseException:
            # What gave the bytes is of no use after an error: the next call begins anew.
            self.close()
            self._begin()
            raise

    def _read(self, at: int, n_bytes: int) -> tuple[bytes, bool]:
        parts = [self._held]
        n_held = len(self._held)
        is_all = False
        while self._at + n_held < at + n_bytes and self.failure is None:
            try:
                block = next(self._blocks, None)
            except ArchiveError as error:
                self.failure = error
                break
            if block is None:
                is_all = True
                break
            if self._at + n_held <= at:
                self._at += n_held
                parts, n_held = [], 0
            parts.append(block)
            n_held += len(block)
        held = b"".join(parts)
        self._held = held[max(0, at - self._at) :]
        self._at = max(self._at, at)
        return self._held, is_all

    def finish(self) -> None:
        """Go to the end of the file, for what compressed it may say there that it is damaged."""
        try:
            for _ in self._blocks:
                pass
        except ArchiveError as error:
            self.failure = error

    def fraction(self, at: int) -> float:
        """Return how much of the file has been read."""
        return min(1.0, self._text.read_bytes / max(1, os.stat(self._path).st_size))

    def close(self) -> None:
        self._blocks.close()  # type: ignore[attr-defined]


class MemberError(Exception):
    """What a function raised for a member of a sample."""

    def __init__(self, member: str, error: Exception) -> None:
        super().__init__(member, error)
        self.member = member
        self.error = error


class DecodeMembers:
    """Decodes the members of samples by their extensions.

    Parameters
    ----------
    functions : mapping of str to callable, optional
        ``functions[extension](bytes)``, a dot before the extension or not; other members stay bytes. None: ``txt`` and
        ``text`` to str, ``json`` to what it says, ``cls``, ``cls2``, ``index``, ``inx``, ``id`` to int, ``npy`` to an
        array.
    """

    def __init__(self, functions: Mapping[str, Callable[[bytes], Any]] | None = None) -> None:
        chosen = _DECODERS if functions is None else functions
        # Extensions of samples are in lower case.
        self._functions = {extension.removeprefix(".").lower(): chosen[extension] for extension in chosen}
        self.__qualname__ = f"decode({', '.join(sorted(self._functions))})"

    def __call__(self, sample: Sample) -> Sample:
        """Return the sample with its members decoded: one of extension ``a.json`` as ``json``.

        Raises
        ------
        MemberError
        """
        functions = self._functions
        for extension, data in sample.items():
            function = functions.get(extension) or functions.get(extension.rpartition(".")[2])
            if function is not None and extension != "__key__":
                try:
                    sample[extension] = function(data)
                except Exception as error:
                    raise MemberError(extension, error) from error
        return sample


def _load_array(data: bytes) -> Any:
    return np.load(io.BytesIO(data), allow_pickle=False)


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("txt", "text"), bytes.decode),
    "json": json.loads,
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id"), int),
    "npy": _load_array,
}


def choose_sample_decoder(decode: Any) -> Decode | None:
    """Return what decodes a sample.

    Raises
    ------
    OptionError
    """
    if decode is None or decode is False:
        return None
    if decode is True:
        return DecodeMembers()
    if isinstance(decode, Mapping):
        for extension, function in decode.items():
            if not isinstance(extension, str) or not extension.strip(".") or not callable(function):
                raise OptionError(
                    f"decode has {shown(function)} for {shown(extension)}: give functions of bytes by extension, "
                    "such as {'jpg': decode_image}",
                    option="decode",
                    value=decode,
                )
        return DecodeMembers(decode)
    if callable(decode):
        chosen: Decode = decode
        return chosen
    raise OptionError(
        f"decode is {shown(decode)}: give a function of a sample, a dict of functions by extension, True for the usual "
        "ones, or None to have bytes",
        option="decode",
        value=decode,
    )
