"""An index that is opened (a placeholder with the names agreed on)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from loaderx.errors import NotAnIndexError


class Index:
    """An opened index."""

    def __init__(self, base: Path, folder: Path, paths: list[str], locations: Any) -> None:
        self.base, self.folder, self.paths, self.locations = base, folder, paths, locations

    def __len__(self) -> int:
        return len(self.locations)

    @classmethod
    def open(
        cls,
        base_path: str | os.PathLike[str],
        *,
        index_folder: str | os.PathLike[str] | None = None,
        allow_outside: bool = False,
        check: bool = True,
    ) -> Index:
        """Open an index."""
        base = Path(base_path).absolute()
        name = "index"
        if base.is_file():
            base, name = base.parent, base.name + ".index"
        folder = base / (index_folder or name)
        table = folder / "sample_locations.bin"
        if not table.exists():
            raise NotAnIndexError(f"{folder}: no index", path=folder)
        paths = [str(base / line) for line in (folder / "file_location.txt").read_text().splitlines()]
        size = table.stat().st_size
        rows: Any = np.memmap(table, "<u8", "r").reshape(-1, 3) if size else np.empty((0, 3), np.uint64)
        return cls(base, folder, paths, rows)
