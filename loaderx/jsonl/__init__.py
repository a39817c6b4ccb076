"""Random access to the lines of text files that stay as they are."""

from loaderx.jsonl.build import build_index
from loaderx.jsonl.check import IndexReport, check_index
from loaderx.jsonl.index import Index
from loaderx.jsonl.update import update_index

__all__ = ["Index", "IndexReport", "build_index", "check_index", "update_index"]
