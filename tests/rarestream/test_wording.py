"""The words of the Python client's errors. Other tests look at classes, codes, and the requests without an answer.

A changed sentence changes one row here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from rarestream import Client, ClientError, EventBatch, RequestBounds
from rarestream.client.encode import encode_labelled, encode_unlabelled
from rarestream.client.stream_session import StreamSession
from tests.rarestream.test_client_calls import (
    IDS,
    LOST,
    ApiResponse,
    X,
    Y,
    call_through,
    calling,
    learnt,
    refusal,
    updating,
)
from tests.rarestream.test_stream_session import ask, scored, session

NUMBERS = [7, 9, 11]
NOT_REPEATED = (
    "; the request may or may not have been applied, and was not sent again; "
    "with ids, ids='auto' or a source it would be safe to send these events again"
)


def raised(error: Exception) -> None:
    """Raise an error that a call returned."""
    raise error


def refuse(error: Exception) -> Callable[[httpx.Request], httpx.Response]:
    """Return a transport that fails with the error."""

    def fail(_: httpx.Request) -> httpx.Response:
        raise error

    return fail


def broken(reason: str) -> StreamSession:
    """Return a stream that broke before the second of two requests was answered."""
    stream = session()
    ask(stream)
    ask(stream)
    stream.receive(scored(0))
    stream.end(reason)
    return stream


def ended(reason: str) -> StreamSession:
    """Return a stream that ended without open requests."""
    stream = session()
    stream.end(reason)
    return stream


ERRORS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: raised(updating([LOST])[0]),
        "cut" + NOT_REPEATED,
    ),
    (
        lambda: raised(updating([ApiResponse(404, {}, b"<html>")])[0]),
        "no rarestream service answers: the server answered 404 Not Found",
    ),
    (
        lambda: raised(updating([ApiResponse(200, {}, b"<html>")], ids=IDS)[0]),
        "the server does not answer like rarestream: Expected `object`, got `int`",
    ),
    (
        lambda: raised(
            calling(lambda calls: calls.update("a", EventBatch(X, Y, IDS), None), learnt(2), refusal(422))[0]
        ),
        "no\n  /labels/1: is 7\nThe 2 events before were answered; this request begins after them",
    ),
    (
        lambda: call_through("sync", refuse(httpx.ConnectError("refused"))),
        "cannot reach http://service: refused (ConnectError)",
    ),
    (
        lambda: call_through("sync", refuse(httpx.ReadError("cut"))),
        "no answer from http://service: cut (ReadError)" + NOT_REPEATED,
    ),
    (lambda: Client("ftp://x"), "'ftp://x' is not the URL of a service; expected http://host:port"),
    (lambda: Client("http://127.0.0.1:83637"), "http://127.0.0.1:83637 has the port 83637; expected 1 to 65535"),
    (
        lambda: Client("http://127.0.0.1:9").learner("a").upload([(X, Y)], source=("topic", NUMBERS)),
        "source of an upload has a number for each event; expected the number of the first",
    ),
    (
        lambda: Client("http://127.0.0.1:9").learner("a").upload([], ids="mine"),
        "ids of an upload are 'mine'; expected 'auto' or None: each batch has its own",
    ),
    (
        lambda: Client("http://127.0.0.1:9").learner("a").stream().predict(X),
        "the stream is not open; use it in a with block",
    ),
    (lambda: encode_unlabelled(None, IDS, None), "X is None; expected the features of at least one event"),
    (lambda: encode_labelled(EventBatch(X, [0, 1])), "labels have 2 entries for 3 events"),
    (
        lambda: encode_labelled(EventBatch(X, Y), "s"),
        "source is 's'; expected a name and the number of the first event, as ('file', 0), or the numbers of all",
    ),
    (
        lambda: list(encode_labelled(EventBatch([{"a": 1j}] * 3, Y)).parts(RequestBounds())),
        "a complex cannot be sent: 1j",
    ),
    (
        lambda: session(max_bytes=50).predict(X, None, None, None),
        "3 events take 98 bytes; a message of this stream has at most 50: send fewer at a time",
    ),
    (lambda: broken("gone").raise_unseen(), "gone; no answer to 1: repeat those whose events have ids"),
    (lambda: ask(ended("gone")), "gone; every request had been answered"),
    (
        lambda: session().receive(b"\x80"),
        "a message of the stream is not like one of rarestream: Object missing required field `seq`",
    ),
    (
        lambda: StreamSession(1).greet("[]"),
        "the stream does not begin like one of rarestream: Expected `object`, got `array`",
    ),
    (lambda: StreamSession(0), "window is 0; expected at least 1"),
]


@pytest.mark.parametrize(("action", "sentence"), ERRORS)
def test_errors(action: Callable[[], Any], sentence: str) -> None:
    with pytest.raises((ClientError, ValueError, RuntimeError)) as caught:
        action()
    assert str(caught.value) == sentence
