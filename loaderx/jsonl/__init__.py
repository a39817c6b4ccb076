"""Random access to the lines of text files that stay as they are, JSONL above all.

`build_index` finds the lines, `update_index` those that came later, `check_index` what changed. `JsonlDataset` and
`TextLinesDataset` give any of them, of a store of lines too; `ByteRangeDataset` what any parser makes of any ranges of
bytes.
"""

from loaderx.jsonl.build import build_index
from loaderx.jsonl.byte_ranges import ByteRangeDataset
from loaderx.jsonl.check import IndexReport, check_index
from loaderx.jsonl.dataset import JsonlDataset, TextLinesDataset
from loaderx.jsonl.index import Index
from loaderx.jsonl.update import update_index

__all__ = [
    "ByteRangeDataset",
    "Index",
    "IndexReport",
    "JsonlDataset",
    "TextLinesDataset",
    "build_index",
    "check_index",
    "update_index",
]
