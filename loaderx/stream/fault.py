"""What a worker raises where it has no answer, though the function has not raised."""

from __future__ import annotations

from loaderx.errors import LoaderError


class FaultError(Exception):
    """An item that the function has given no answer for, though it has not raised: `reason` says why."""

    def __init__(self, reason: LoaderError) -> None:
        super().__init__(reason)
        self.reason = reason
