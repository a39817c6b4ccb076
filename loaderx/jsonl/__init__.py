"""Random access to the lines of text files as they are, JSONL above all.

`JsonlDataset` and `TextLinesDataset` give any sample of an index of lines, or of a store of lines; `ByteRangeDataset`
gives what any parser makes of any ranges of bytes.
"""

from __future__ import annotations

from loaderx.jsonl.dataset import ByteRangeDataset, JsonlDataset, TextLinesDataset

__all__ = ["ByteRangeDataset", "JsonlDataset", "TextLinesDataset"]
