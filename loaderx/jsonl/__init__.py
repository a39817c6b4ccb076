"""Random access to the lines of text files as they are, JSONL above all.

`build_index` finds the lines, `update_index` those that were added, and `check_index` what has changed. `JsonlDataset`
and `TextLinesDataset` give any sample of an index of lines, or of a store of lines, which `write_lines` makes of text
that is compressed; `ByteRangeDataset` gives what any parser makes of any ranges of bytes.
"""

from __future__ import annotations

from loaderx.jsonl.build import build_index
from loaderx.jsonl.byte_ranges import ByteRangeDataset
from loaderx.jsonl.check import IndexReport, check_index
from loaderx.jsonl.dataset import JsonlDataset, TextLinesDataset
from loaderx.jsonl.index import Index
from loaderx.jsonl.lines import WrittenLines, write_lines
from loaderx.jsonl.reading import KeptSource
from loaderx.jsonl.update import update_index

__all__ = [
    "ByteRangeDataset",
    "Index",
    "IndexReport",
    "JsonlDataset",
    "KeptSource",
    "TextLinesDataset",
    "WrittenLines",
    "build_index",
    "check_index",
    "update_index",
    "write_lines",
]
