"""Samples of a tar archive: members of one name but for their extensions, cut from its bytes from any place on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypeAlias

from loaderx.errors import ArchiveError
from loaderx.jsonl.archives import TextFile
from loaderx.stream.positions import refuse_beyond
from loaderx.stream.tar import Cut, Member, TarError, read_member

#: A sample before it is decoded: bytes by extension, and its name as "__key__".
Sample: TypeAlias = dict[str, Any]

# Bytes of an archive that are read for one sample alone.
_ONE_BYTES = 1 << 16
_META = re.compile("__[^/]*__(?:/|$)")


class Archive:
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
                raise self._bytes.failure.with_traceback(None)
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
                raise self._bytes.failure.with_traceback(None)
            n_bytes *= 2

    def may_have(self, at: int) -> bool:
        """Return whether there may be such a byte, or the archive end before it: of a compressed one nobody knows."""
        return self._bytes.may_have(at)

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
        assert self._file is not None, "it was opened"
        number = self._file.fileno()
        # By pread: a process that was forked has the same offset.
        data = os.pread(number, n_bytes, at)
        while (
            data and len(data) < n_bytes and (more := os.pread(number, n_bytes - len(data), at + len(data)))
        ):
            data += more
        return data, len(data) < n_bytes

    def may_have(self, at: int) -> bool:
        """Return whether the file has such a byte, or ends before it."""
        assert self._file is not None, "it was opened"
        return at <= os.fstat(self._file.fileno()).st_size

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
        self._pid = os.getpid()
        self._text = TextFile(Path(self._path), may_be_tar=True)
        self._blocks: Iterator[bytes] = iter(self._text)
        # Why there are no more than were read last, where the file is cut off or damaged behind them.
        self.failure: ArchiveError | None = None
        # The bytes that were decompressed last, and where they begin.
        self._held = b""
        self._at = 0

    def read(self, at: int, n_bytes: int) -> tuple[bytes, bool]:
        """Return some bytes from a place on, and whether these are all that there are; quick only onwards."""
        # A process that was forked reads the same file as its parent.
        if at < self._at or self._pid != os.getpid():
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
                if self._at + n_held < at:
                    refuse_beyond(
                        self._path, f"byte {at}", f"{self._at + n_held} bytes when it is decompressed"
                    )
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

    def may_have(self, at: int) -> bool:
        """Return whether there may be such a byte."""
        return True

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
