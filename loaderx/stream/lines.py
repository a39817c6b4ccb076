"""Text files as shards, an item a line; compressed ones are read from their beginning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

from loaderx.errors import JsonlError, LoaderxError, OptionError, StateMismatchError
from loaderx.jsonl.locating import parse_error
from loaderx.jsonl.parser import Parse, parse_json
from loaderx.stream.bad_rows import OnError, judge
from loaderx.stream.calling import describe
from loaderx.stream.files import Files
from loaderx.stream.node import Item, Key
from loaderx.stream.positions import check_number
from loaderx.stream.shards import MISSING, BlockReader, Pull
from loaderx.stream.text import LineCount, Text, divide_place, make_place

_MARK = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"


class LineFiles(Files):
    """The lines of text files, parsed; places are those of `make_place`.

    Lines end with "\\n" or "\\r\\n"; those of nothing but spaces, tabs and "\\r" are left out, and so is a byte-order
    mark.

    Parameters
    ----------
    paths : sequence of str
    called : str
        The method of `Stream` that makes it.
    parse : callable
        Makes an item of a line, without its end.
    on_error : "raise", "skip" or callable
    told : dict
        What is said of it in a state besides.
    """

    def __init__(
        self, paths: Sequence[str], called: str, parse: Parse, on_error: OnError, told: dict[str, Any]
    ) -> None:
        super().__init__(paths, on_error)
        self.called = called
        self.parse = parse
        self._told = told
        # What reads JSON takes a line with its end, and raises for a blank one.
        self.takes_ends = is_json(parse)
        self.make: Callable[[bytes], Item] = parse if self.takes_ends else self._make

    def describe(self) -> dict[str, Any]:
        return super().describe() | self._told

    def open(self, shard: int, state: int | None = None) -> LineReader:
        text = Text(self._paths[shard])
        place = 0 if state is None else check_number("the place of a line", state)
        if place:
            text.check_begin(divide_place(place)[0])
        return LineReader(self, shard, text, place)

    def where(self, shard: int, place: int) -> str:
        path = self._paths[shard]
        try:
            with closing(Text(path).lines_at([place])) as found:
                [(at, _)] = found
        except (OSError, ValueError, LoaderxError):  # it has changed since
            at, line = divide_place(place)
            return f"{path}, line {line} from byte {at} on"
        return f"{path}, byte {at}"

    def _make(self, line: bytes) -> Item:
        try:
            return self.parse(without_end(line))
        except StopIteration as error:  # which would be taken for the end of the block
            raise RuntimeError("parse raised StopIteration") from error

    def judge(
        self, error: Exception, shard: int, line: bytes, at: int, count: Callable[[], int | None]
    ) -> Item:
        """Return what takes the place of a line that does not parse, or raise.

        Parameters
        ----------
        error : Exception
        shard : int
        line : bytes
        at : int
            The byte at which the line begins.
        count : callable
            Returns how many lines are before it, or None; asked only where somebody is told.
        """
        return judge(self._on_error, error, lambda error: self._explain(error, shard, line, at, count()))

    def _explain(
        self, error: Exception, shard: int, line: bytes, at: int, n_before: int | None
    ) -> JsonlError:
        path = self._paths[shard]
        line = without_end(line)
        if self.takes_ends:
            try:  # what json says of a line shows its end too
                self.parse(line)
            except Exception as again:
                error = again
        number = None if n_before is None else n_before + 1
        encoding = self._told.get("encoding")
        advice = "Mend it" if encoding is None else f"Say its encoding, which is not {encoding}, by encoding="
        return parse_error(Path(path), number, at, None, line, error, advice)

    def rebuild(self, shard: int, places: Sequence[int]) -> list[Item]:
        items: list[Item] = []
        text = Text(self._paths[shard])
        counted = LineCount(text)
        with closing(text.lines_at(places)) as lines:
            for at, line in lines:
                if at == 0:
                    line = line.removeprefix(_MARK)
                try:
                    item = self.make(line)
                except Exception as error:
                    item = self.judge(error, shard, line, at, lambda at=at: try_count(counted, at))  # type: ignore[misc]
                    if item is MISSING:
                        self._refuse_rebuild(
                            shard, f"the line at byte {at}", "does not parse, and is to be skipped", error
                        )
                items.append(item)
        if len(items) < len(places):
            at, n = divide_place(places[len(items)])
            self._refuse_rebuild(shard, f"the line {n} lines behind byte {at}", "is not there any more")
        return items

    def _refuse_rebuild(
        self, shard: int, line: str, problem: str, cause: Exception | None = None
    ) -> NoReturn:
        raise StateMismatchError(
            f"the saved state holds {line} of {self._paths[shard]}, which {problem} here: put the file back as it was, "
            "or begin anew",
            mismatches={self._paths[shard]: (line, problem)},
        ) from cause

    def refuse_random(self) -> NoReturn:
        raise OptionError(
            "buffer_size is None, and the lines of text files cannot be read in any order: index them (build_index, or "
            "python -m loaderx index) and make the stream by from_dataset(JsonlDataset(...)), or give a buffer_size",
            option="buffer_size",
            value=None,
        )


class LineReader(BlockReader):
    """The lines of one text, from a place on.

    Parameters
    ----------
    files : LineFiles
    shard : int
    text : Text
    place : int
    """

    def __init__(self, files: LineFiles, shard: int, text: Text, place: int) -> None:
        super().__init__(shard)
        self._files = files
        self._begin, self._to_skip = divide_place(place)
        self._text = text
        self._source = text.lines(self._begin)
        # The lines of the block, and the bytes of the byte-order mark that stood before the first.
        self._lines: list[bytes] = []
        self._n_mark = 0
        # One of the lines, by its number, and the byte at which it begins: the last that was asked for.
        self._known = (0, self._begin)
        # Where this began, how many lines are before that, once somebody has asked, and how many behind it are before
        # the block.
        self._first = self._begin
        self._n_first: int | None = None
        self._n_read = 0

    def block(self) -> Pull:
        places: Sequence[int] = ()
        while not places:
            begin = self._source.at
            lines = self._source.read()
            self._n_read += len(self._lines)
            self._begin, self._lines, self._known = begin, lines, (0, begin)
            if not lines:
                self._pull((), ())
                raise StopIteration
            # A block that is cut from where another one began has the same lines as that.
            skipped, self._to_skip = min(self._to_skip, len(lines)), max(0, self._to_skip - len(lines))
            first = make_place(self._begin, 0)
            places = range(first + skipped, first + len(lines))
            self._n_mark = 0
            if self._begin == 0 and lines[0].startswith(_MARK):
                lines[0], self._n_mark = lines[0][len(_MARK) :], len(_MARK)
            if not self._files.takes_ends and (not lines[0] or any(map(bytes.isspace, lines))):
                places = [place for place in places if lines[place - first].strip(_BLANK)]
        given = lines if len(places) == len(lines) else [lines[place - first] for place in places]
        return self._pull(places, map(self._files.make, given))

    def judge(self, error: Exception) -> tuple[Key, Item] | None:
        place = self._places[self._n_given - 1]
        i = place - make_place(self._begin, 0)
        line = self._lines[i]
        if not line.strip(_BLANK):
            return None
        at = self._byte_of(i)
        return self._replace(
            place, lambda: self._files.judge(error, self._shard, line, at, lambda: self._count(i))
        )

    def fraction(self) -> float:
        return self._source.fraction()

    def get_state(self) -> int:
        given = self._n_given
        if given < len(self._places):
            return self._places[given]  # type: ignore[no-any-return]
        return make_place(self._source.at, self._to_skip)

    def where(self, place: Any) -> str | None:
        begin, i = divide_place(place)
        if begin != self._begin or i >= len(self._lines):
            return None
        return f"{self._files.name(self._shard)}, byte {self._byte_of(i)}"

    def _byte_of(self, i: int) -> int:
        """Return where a line of the block begins in the text; quick for one behind that of the last call."""
        known, at = self._known
        if i < known:
            known, at = 0, self._begin
        if i > known:
            at += sum(map(len, self._lines[known:i])) + (0 if known else self._n_mark)
        self._known = (i, at)
        return at

    def _count(self, i: int) -> int | None:
        """Return how many lines are before one of the block."""
        if self._n_first is None:
            self._n_first = try_count(LineCount(self._text), self._first)
        return None if self._n_first is None else self._n_first + self._n_read + i

    def close(self) -> None:
        self._source.close()


def try_count(lines: LineCount, at: int) -> int | None:
    """Return how many lines end before a byte; None: what is wrong with the line is worth more than its number."""
    try:
        return lines.before(at)
    except (OSError, LoaderxError):
        return None


def is_json(parse: Parse) -> bool:
    """Return whether a function is one of those that read JSON here."""
    return parse is parse_json or getattr(parse, "__module__", None) == "orjson"


def told_of(parse: Parse) -> str:
    """Return what a state says of a parser: orjson's and json's differ in numbers beyond 64 bits, and in NaN."""
    if not is_json(parse):
        return describe(parse)
    return "json" if parse is parse_json else "orjson"


def without_end(line: bytes) -> bytes:
    """Return a line without its line end."""
    if line.endswith(b"\r\n"):
        return line[:-2]
    return line.removesuffix(b"\n")
