"""Lines as they come, cut from blocks of any size: the same as a slow splitter has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loaderx import RecordTooLargeError
from loaderx.jsonl import splitting
from loaderx.jsonl.splitting import split_lines, whole_lines
from loaderx.store.format import NARROW
from tests.jsonl.texts import TEXTS, lines_of

PATH = Path("text.jsonl")
texts = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b" ", b"\t", b"a", b"\xef\xbb\xbf", b"\xef", b"\0", b'{"a": 1}'])
).map(b"".join)


def blocks(text: bytes, size: int) -> Iterator[bytes]:
    return (text[at : at + size] for at in range(0, len(text), size))


def split(text: bytes, block_bytes: int, least_bytes: int) -> tuple[list[bytes], list[int], int]:
    found, numbers, blank = [], [], 0
    for lines in split_lines(PATH, blocks(text, block_bytes), least_bytes):
        assert lines.data
        pairs = zip(lines.starts.tolist(), lines.sizes.tolist(), strict=True)
        found += [lines.data[start : start + size] for start, size in pairs]
        numbers += lines.numbers.tolist()
        blank += lines.blank
    return found, numbers, blank


@given(text=texts, block_bytes=st.integers(1, 9), least_bytes=st.integers(1, 30))
@example(text=b"a\n" * 20 + b"long" * 30 + b"\n", block_bytes=3, least_bytes=1)
def test_any_text_in_any_blocks(text: bytes, block_bytes: int, least_bytes: int) -> None:
    found, numbers, blank = split(text, block_bytes, least_bytes)
    assert found == lines_of(text)
    # by its number each line is found again
    all_lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert all(
        all_lines[number - 1] in (line, line + b"\r") for number, line in zip(numbers, found, strict=True)
    )
    assert numbers == sorted(set(numbers))
    assert blank == len(all_lines) - len(found) - (not all_lines[-1])


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("block_bytes", [1, 2, 5, 1000])
def test_lines_as_they_come(name: str, block_bytes: int) -> None:
    assert split(TEXTS[name], block_bytes, 8)[0] == lines_of(TEXTS[name])


def test_a_text_is_held_only_as_far_as_its_lines_need() -> None:
    given_bytes = 0

    def counted() -> Iterator[bytes]:
        nonlocal given_bytes
        for block in blocks(b"0123456\n" * 1000, 100):
            given_bytes += len(block)
            yield block

    done = 0
    for lines in split_lines(PATH, counted(), 400):
        done += len(lines.data)
        assert given_bytes - done < 100
        assert 400 <= len(lines.data) <= 500 or done == 8000
    assert done == 8000


def test_a_line_that_no_store_takes_is_named_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "WIDE", NARROW)
    text = b"a\n\nb\n" + b"x" * (NARROW.max_record_bytes + 3)
    with pytest.raises(RecordTooLargeError, match=r"^text\.jsonl, line 4: over 1048576 bytes") as caught:
        split(text, 1 << 16, 1 << 20)
    assert caught.value.limit_bytes == NARROW.max_record_bytes
    assert split(text[:-3], 1 << 16, 1 << 20)[0][-1] == text[5:-3]


@given(text=texts, block_bytes=st.integers(1, 9), n_bytes=st.integers(0, 60))
def test_what_is_whole(text: bytes, block_bytes: int, n_bytes: int) -> None:
    whole = text[:n_bytes]
    kept = b"".join(whole_lines(blocks(text, block_bytes), n_bytes))
    assert kept == whole[: whole.rfind(b"\n") + 1]
