"""A thread that takes items from a node ahead of who wants them."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from loaderx._core.threads import limit_this_thread
from loaderx.errors import ClosedError, LoaderError
from loaderx.stream.failure import Carried
from loaderx.stream.node import Item, Key, Node


class Runner:
    """Takes items from a node ahead, in a thread that begins with the first `take`.

    Parameters
    ----------
    node : Node
        Used by the thread alone, but inside `paused`.
    n : int
        How many items there may be that have not been taken.
    pairs : iterable
        Keys and items that are there already.
    failure : BaseException or None
        What the node has raised behind them.

    Attributes
    ----------
    pairs : deque
        Keys and items that have not been taken. To be read inside `paused`.
    failure : BaseException or None
        What the node raised behind them; the thread waits until that has been taken, too.

    Notes
    -----
    For one thread at a time, but for `stop`. A `deque` takes and gives without a lock; the lock is for who has to wait.
    Where Ctrl-C comes while one waits, no item is lost.
    """

    def __init__(
        self,
        node: Node,
        n: int,
        pairs: Iterable[tuple[Key, Item]] = (),
        failure: BaseException | None = None,
    ) -> None:
        self._node = node
        self._n = n
        self.pairs = deque(pairs)
        self.failure = failure
        self._has_ended = False
        # Guards what follows. Reentrant, for the garbage collector may have `stop` called anywhere.
        self._change = threading.Condition(threading.RLock())
        self._is_inside = False  # the thread is in the node
        self._is_paused = False
        self._is_waited_for = False  # somebody waits for an item
        self._sleeps = False  # the thread has nothing to do
        self._is_stopping = False
        self._closes_node = False  # when it has left it
        self._thread: threading.Thread | None = None
        # Of the thread, said by itself: from before it runs anything.
        self._ident: int | None = None
        self._pid = os.getpid()

    def take(self) -> tuple[Key, Item]:
        """Return the next item and its key; waits for it.

        Raises
        ------
        StopIteration
        ClosedError
        LoaderError
            This process is a fork of that whose thread it is.
        BaseException
            What the node raised.
        """
        if self._thread is None or self._is_stopping or os.getpid() != self._pid:
            self._begin()
        while True:
            try:
                pair = self.pairs.popleft()
            except IndexError:
                self._wait()
                continue
            if self._sleeps and len(self.pairs) <= self._n // 2:
                with self._change:
                    self._change.notify_all()
            return pair

    def _begin(self) -> None:
        self._check_process()
        self._check_open()
        self._pid = os.getpid()
        # A daemon, or the interpreter would wait for it before it calls what ends it.
        thread = threading.Thread(target=self._work, name="loaderx-prefetch", daemon=True)
        self._ident = None
        self._thread = thread
        try:
            thread.start()
        except BaseException:
            # Where it has not begun, it never shall: Ctrl-C may come before it runs, and another one is begun then.
            with self._change:
                if self._ident is None:
                    self._thread = None
            raise

    def _check_open(self) -> None:
        if self._is_stopping:
            raise ClosedError(
                "the iterator is closed: make another one, and load its state to go on where it was"
            )

    def _check_thread(self) -> None:
        if threading.get_ident() == self._ident:
            raise LoaderError(
                "a function that prefetch runs has asked the iterator for its state, or for an item, and would wait "
                "for itself: ask for it where the items are taken"
            )

    def _check_process(self) -> None:
        if self._thread is not None and os.getpid() != self._pid:
            raise LoaderError(
                f"this iterator belongs to process {self._pid}, of which this one, {os.getpid()}, is a fork: the "
                "thread of prefetch does not survive a fork. Make another iterator here, and load a state that was "
                "asked for before the fork to go on there"
            )

    def _wait(self) -> None:
        """Wait for an item, or raise what there is instead."""
        self._check_thread()
        with self._change:
            self._is_waited_for = True
            try:
                while not self.pairs:
                    if self.failure is not None:
                        failure, self.failure = self.failure, None
                        try:
                            if isinstance(failure, Exception):
                                raise failure
                            raise Carried(failure, is_behind=True)
                        finally:
                            del failure
                    if self._has_ended:
                        raise StopIteration
                    self._check_open()
                    self._change.notify_all()
                    self._sleep()
            finally:
                self._is_waited_for = False

    def _sleep(self) -> None:
        """Wait for a change. Where Ctrl-C ends that, nothing has happened."""
        try:
            self._change.wait()
        except Exception:
            raise
        except BaseException as error:
            raise Carried(error, is_behind=False) from None

    def _work(self) -> None:
        with self._change:
            if threading.current_thread() is not self._thread:
                return
            self._ident = threading.get_ident()
        limit_this_thread(1)
        pairs, following = self.pairs, self._node.next
        while self._may_go_on():
            try:
                while not self._is_paused and not self._is_stopping and len(pairs) < self._n:
                    pairs.append(following())
                    if self._is_waited_for:
                        with self._change:
                            self._change.notify_all()
            except StopIteration:
                self._has_ended = True
            except BaseException as error:
                self.failure = error
        if self._closes_node:
            self._node.close()

    def _may_go_on(self) -> bool:
        """Wait, outside the node, until there is something to do; False: the thread is to end."""
        with self._change:
            self._is_inside = False
            self._change.notify_all()
            while not self._is_stopping and (
                self._is_paused or self.failure is not None or len(self.pairs) >= self._n
            ):
                self._sleeps = True
                self._change.wait()
            self._sleeps = False
            self._is_inside = not self._is_stopping and not self._has_ended
            return self._is_inside

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have the thread leave the node alone. Waits until it has the item that it is at.

        Raises
        ------
        LoaderError
            This process is a fork of that whose thread it is: nobody knows where it was. Or it is the thread itself.
        """
        self._check_process()
        self._check_thread()
        self._is_paused = True
        try:
            with self._change:
                while self._is_inside:
                    self._sleep()
            yield
        finally:
            self._is_paused = False
            with self._change:
                self._change.notify_all()

    def stop(self) -> None:
        """Have the thread end, and whoever waits here or below get a `ClosedError`. From any thread, and never waits.

        The node is of no use until it is reset.
        """
        self._is_stopping = True
        if os.getpid() == self._pid:  # a fork has no such thread, and its lock may be held by nobody
            self._node.interrupt()
            with self._change:
                self._change.notify_all()

    def join(self, deadline: float = math.inf) -> None:
        """Wait for the thread until a time of `time.monotonic`."""
        thread = self._thread
        # The last reference may go in the thread itself.
        if thread is not None and os.getpid() == self._pid and thread is not threading.current_thread():
            thread.join(None if deadline == math.inf else max(0.0, deadline - time.monotonic()))

    def close_node(self) -> None:
        """Close the node: at once, or where the thread is still in it when it has left it. Behind `stop`."""
        if os.getpid() == self._pid:
            with self._change:
                self._closes_node = self._is_inside
        if not self._closes_node:
            self._node.close()
