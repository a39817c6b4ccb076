"""Messages between two processes over a pair of sockets, with open files beside them."""

from __future__ import annotations

import array
import contextlib
import socket
import struct
import threading
from collections.abc import Sequence

_LENGTH = struct.Struct("<Q")
# A process whose peer is gone gets an exception and no SIGPIPE, whatever the program makes of that; and what it opens
# that way is not inherited. Both are Linux's.
_NO_SIGNAL: int = getattr(socket, "MSG_NOSIGNAL", 0)
_NO_INHERIT: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Channel:
    """One end of a pair of sockets. A message of a few KiB goes in one system call: all of it arrives or nothing.

    Parameters
    ----------
    sock : socket.socket
        A stream between two processes of this machine. The channel owns it.

    Notes
    -----
    One thread sends, one receives; `shut` is for any.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)  # socket.setdefaulttimeout() may have said otherwise
        self._sock = sock
        # Nobody may shut a descriptor that has just been closed, and is perhaps another file's by now. Reentrant,
        # because what the garbage collector ends in the middle may close a loader.
        self._ending = threading.RLock()

    def fileno(self) -> int:
        """Return the descriptor, for those who wait for several things at once."""
        return self._sock.fileno()

    def send(self, message: bytes, fds: Sequence[int] = ()) -> None:
        """Send a message, and files that the other side is to have too.

        Raises
        ------
        OSError
            The other side is gone.
        """
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        length = _LENGTH.pack(len(message))
        sent = self._sock.sendmsg([length, message], ancillary, _NO_SIGNAL)
        if sent < len(length) + len(message):
            self._sock.sendall(memoryview(length + message)[sent:], _NO_SIGNAL)

    def recv(self) -> tuple[bytes, list[int]]:
        """Return the next message, and the descriptors of the files that came with it, at most one.

        Raises
        ------
        EOFError
            The other side is gone.
        OSError
        """
        length, fds, _, _ = socket.recv_fds(self._sock, _LENGTH.size, 1, _NO_INHERIT)
        (n,) = _LENGTH.unpack(length + self._recv_all(_LENGTH.size - len(length)))
        return self._recv_all(n), fds

    def _recv_all(self, n: int) -> bytes:
        parts = []
        while n:
            part = self._sock.recv(min(n, 1 << 30), socket.MSG_WAITALL)
            if not part:
                raise EOFError
            parts.append(part)
            n -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def shut(self) -> None:
        """End the connection for both sides, and wake who waits for it at either. The channel is still to be closed."""
        with self._ending, contextlib.suppress(OSError):  # it is closed, or the other side is
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this end."""
        with self._ending:
            self._sock.close()

    def close_copy(self) -> None:
        """Close a forked child's copy of this end, whatever the threads that the child does not have were at."""
        self._sock.close()
