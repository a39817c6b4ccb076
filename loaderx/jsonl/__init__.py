"""Random access to the lines of text files that stay as they are, and stores of lines of those that are compressed."""

from loaderx.jsonl.build import build_index
from loaderx.jsonl.index import Index
from loaderx.jsonl.lines import WrittenLines, write_lines
from loaderx.jsonl.reading import KeptSource
from loaderx.jsonl.update import update_index

__all__ = ["Index", "KeptSource", "WrittenLines", "build_index", "update_index", "write_lines"]
