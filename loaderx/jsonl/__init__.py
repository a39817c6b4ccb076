"""Text, line by line: a record of a JSONL file, or of any text file, by its index."""

from loaderx.jsonl.lines import WrittenLines, write_lines
from loaderx.jsonl.reading import KeptSource

__all__ = ["KeptSource", "WrittenLines", "write_lines"]
