"""Tar archives as shards, an item for the members that have one name but for their extensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from loaderx.errors import LoaderxError, OptionError, StateMismatchError, StreamError
from loaderx.stream.bad_rows import OnError, judge
from loaderx.stream.calling import HELD, describe
from loaderx.stream.files import Files
from loaderx.stream.node import Item, Key
from loaderx.stream.positions import check_number
from loaderx.stream.sample_decoding import Decode, MemberError
from loaderx.stream.shards import BlockReader, Pull
from loaderx.stream.tar import BLOCK_BYTES
from loaderx.stream.tar_samples import Archive, Sample

# Bytes of an archive that samples are cut from at a time.
_BLOCK_BYTES = 1 << 19


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
        at = 0 if state is None else check_number("the byte of a sample", state)
        archive = Archive(self._paths[shard])
        if at % BLOCK_BYTES or not archive.may_have(at):
            archive.close()
            raise ValueError(f"no sample begins at byte {at}")
        return _TarReader(self, shard, archive, at)

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
            f"{self.called}: {name} raised {type(error).__name__}: {error} (for {which}the item of {where})"
            f"{HELD if is_held else ''}",
            node=self.called,
            function=name,
            where=where,
        )

    def rebuild(self, shard: int, places: Sequence[int]) -> list[Item]:
        archive = Archive(self._paths[shard])
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
    def __init__(self, archives: WebDataset, shard: int, archive: Archive, at: int) -> None:
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
