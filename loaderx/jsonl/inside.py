"""Whether a path stays inside a folder, wherever symbolic links lead."""

from __future__ import annotations

import os
from pathlib import Path

from loaderx.errors import OptionError


class Fence:
    """Refuses paths that leave a folder. It remembers where folders really are, so that many paths are quick.

    Parameters
    ----------
    base : pathlib.Path
        The folder; absolute.
    allow_outside : bool
        Refuse nothing.
    """

    def __init__(self, base: Path, allow_outside: bool) -> None:
        self._base = os.fspath(base)
        self._real_base = os.path.realpath(base)
        self._open = allow_outside
        self._inside: dict[str, bool] = {}

    def resolve(self, name: str, is_link: bool | None = None) -> str:
        """Give the absolute path of a listed name.

        Parameters
        ----------
        name : str
            Relative to the base; with "/" between the names.
        is_link : bool, optional
            Whether it is a symbolic link, where that is known.

        Raises
        ------
        OptionError
            It lies outside the base, by its name or through a symbolic link.
        """
        # "/" is the only separator there is: os.path would be asked five times for each of many files.
        path = name if name.startswith("/") else f"{self._base.rstrip('/')}/{name}"
        if self._open:
            return path
        folder, _, last = name.rpartition("/")
        inside = self._inside.get(folder)
        if inside is None:
            inside = not name.startswith("/") and self._holds(
                os.path.realpath(os.path.join(self._base, folder))
            )
            self._inside[folder] = inside
        inside = inside and last not in ("", ".", "..")
        if inside and (os.path.islink(path) if is_link is None else is_link):
            inside = self._holds(os.path.realpath(path))
        if not inside:
            raise OptionError(
                f"{name!r} is outside of {self._base}, which its files are to be in: give allow_outside=True if "
                "that is meant, and whoever made the index or the link is trusted",
                option="allow_outside",
                value=False,
            )
        return path

    def _holds(self, real_path: str) -> bool:
        return real_path == self._real_base or real_path.startswith(self._real_base.rstrip("/") + "/")
