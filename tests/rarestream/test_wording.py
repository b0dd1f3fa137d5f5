"""The words of the Python client's errors. Other tests look at classes, codes, and the requests without an answer.

A changed sentence changes one row here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pandas as pd
import pytest

import rarestream
from rarestream import Client, ClientError, EventBatch, RequestBounds
from rarestream.client.encode import encode_labelled, encode_unlabelled
from rarestream.client.stream_session import StreamSession
from tests.rarestream.test_client_calls import (
    CUT,
    IDS,
    ApiResponse,
    X,
    Y,
    array,
    call_through,
    calling,
    learnt,
    refusal,
    updating,
)
from tests.rarestream.test_stream_session import ask, scored, session

pytestmark = pytest.mark.integration

NUMBERS = [7, 9, 11]
NOT_REPEATED = (
    "; the request may or may not have been applied, and was not sent again; "
    "with ids, ids='auto' or a source it would be safe to send these events again"
)


def raised(error: Exception) -> None:
    """Raise an error that a call returned."""
    raise error


def learnt_with(**columns: list[float]) -> ApiResponse:
    """Return the reply to three events, with other columns."""
    members = msgspec.msgpack.decode(learnt(3).body)
    for name, values in columns.items():
        members[name] = array(values, members[name]["dtype"])
    return ApiResponse(200, {}, msgspec.msgpack.encode(members))


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
        lambda: raised(updating([CUT])[0]),
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
    (
        lambda: raised(updating([learnt_with(scores=[0.5])])[0]),
        "the server does not answer like rarestream: a column has 1 entries for 3 events",
    ),
    (
        lambda: raised(updating([learnt_with(status=[0, -1, 0])])[0]),
        "the server does not answer like rarestream: a status is -1; expected 0 to 4",
    ),
    (lambda: encode_labelled(EventBatch(X, [0, 1])), "labels have 2 entries for 3 events"),
    (lambda: encode_labelled(EventBatch(X, Y, ["a"])), "ids have 1 entries for 3 events"),
    (lambda: encode_labelled(EventBatch(X, Y, times=[1.0])), "times have 1 entries for 3 events"),
    (lambda: encode_labelled(EventBatch(X, Y, "mine")), "ids are 'mine'; expected one for each event, or 'auto'"),
    (lambda: encode_labelled(EventBatch(X, Y), ("s", [1, 2])), "source has 2 numbers for 3 events"),
    (
        lambda: encode_labelled(EventBatch({}, [])),
        "X has columns of {} entries; expected at least one, and as many in each",
    ),
    (lambda: encode_labelled(EventBatch(X[:0], [])), "there are no events; expected at least one"),
    (
        lambda: encode_labelled(EventBatch(X[0], [1])),
        "X has the shape (2,); expected (n, d), a sparse matrix, or named features",
    ),
    (lambda: encode_labelled(EventBatch([["1", "2"]], [1])), "X is of <U1; expected numbers, or named features"),
    (lambda: encode_labelled(EventBatch(X, np.zeros((3, 1)))), "y has the shape (3, 1); expected (n,)"),
    (
        lambda: encode_labelled(EventBatch({"a": [1], "b": [1, 2]}, [1])),
        "X has columns of {'a': 1, 'b': 2} entries; expected at least one, and as many in each",
    ),
    (
        lambda: encode_labelled(EventBatch(None, Y)),
        "X and ids are both missing; a label without features needs the id of a served event",
    ),
    (
        lambda: encode_labelled(EventBatch(None, Y, IDS), ("file", 0)),
        "labels by id take no source: their ids identify a repeat",
    ),
    (
        lambda: encode_labelled(EventBatch([{"a": 1}, None, {}], Y)),
        "X[1] is a NoneType; expected named features, as X[0] has",
    ),
    (
        lambda: encode_unlabelled(pd.DataFrame([[1.0, 2.0]]), None, None),
        "X has a column named 0; expected text, or X.to_numpy() for dense features",
    ),
    (
        lambda: encode_unlabelled(pd.DataFrame([[1, 2]], columns=["a", "a"]), None, None),
        "X has more than one column named 'a'; expected different names",
    ),
    (
        lambda: list(encode_labelled(EventBatch([{"a": 10**31}] * 3, Y)).parts(RequestBounds())),
        "X[0]['a'] is 10000000000000000000000000000000; expected at most 1e+30 in magnitude",
    ),
    (
        lambda: encode_labelled(EventBatch(X, Y), "s"),
        "source is 's'; expected a name and the number of the first event, as ('file', 0), or the numbers of all",
    ),
    (
        lambda: list(encode_labelled(EventBatch([{"a": 1j}] * 3, Y)).parts(RequestBounds())),
        "X[0]['a'] is 1j; expected a number, string, boolean, list of tokens or null",
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


def test_another_package_named_learners(tmp_path: Path) -> None:
    folder = tmp_path / "learners"
    folder.mkdir()
    (folder / "__init__.py").write_text("create = None\n")
    code = "import sys; sys.path.insert(0, sys.argv[1]); import rarestream; rarestream.create"
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    ours = Path(rarestream.__file__).parents[1] / "learners"
    assert result.stderr.splitlines()[-1] == (
        f"rarestream.LearnersShadowed: {folder}/__init__.py is another package named 'learners'; rarestream needs its "
        f"own at {ours}. Uninstall or rename the other package, or put rarestream's folder before it on sys.path"
    )
