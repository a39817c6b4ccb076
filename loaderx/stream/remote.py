"""What a worker process of a stream does: call the function for each item it is sent, and answer."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable
from typing import Any

from loaderx.loader.channel import Channel
from loaderx.loader.remote import READY, describe_error, send, settle, text_of

#: Kinds of answers, beside `loader.remote.ERROR`: what the function returned; and why it cannot be sent.
RESULT = "result"
STUCK = "stuck"


def work(sock: socket.socket) -> None:
    """Be a worker process, until the parent closes its end of the socket, or is gone.

    The first message is the pickle of a function, each later one that of an item.
    """
    settle()
    pid = os.getpid()
    channel = Channel(sock)
    try:
        pickled, _ = channel.recv()
        try:
            function = pickle.loads(pickled)
        except BaseException as error:
            send(channel, *describe_error(error))
            return
        send(channel, READY)
        while True:
            pickled, _ = channel.recv()
            answer = _make_answer(function, pickled)
            if os.getpid() != pid:
                os._exit(0)  # a fork that came back from the function: the answer is the worker's to give
            channel.send(answer)
            del answer, pickled
    except (EOFError, ConnectionError):
        pass
    finally:
        channel.close()


def _make_answer(function: Callable[[Any], Any], pickled: bytes) -> bytes:
    try:
        result = function(pickle.loads(pickled))
    except BaseException as error:
        return pickle.dumps(describe_error(error), protocol=5)
    try:
        return pickle.dumps((RESULT, result), protocol=5)
    except BaseException as error:
        return pickle.dumps((STUCK, text_of(error)), protocol=5)
