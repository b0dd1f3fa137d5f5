"""A Python client: NumPy in and out over MessagePack, blocking or awaited.

    from rarestream.client import Client

    with Client("http://127.0.0.1:8000") as client:
        fraud = client.create("fraud", algorithm="cbr-diag", features={"kind": "dense", "dim": 30})
        reply = fraud.update(X, y, ids=ids)     # reply.scores: before each event was learnt
        alerts = fraud.predict(X_new, ids=new_ids).labels == 1

`AsyncClient` has the same methods, awaited. What is sent again after a failure, and what is not, stands in `calls.py`;
errors in `errors.py`. It imports neither the service nor the library; where requests go on to,
`rarestream.client.redirects`, it shares with the commands.
"""

from __future__ import annotations

from rarestream.client.aio import AsyncClient, AsyncLearner, AsyncReply, AsyncStream
from rarestream.client.decode import NOTHING, Explanation, Predicted, Updated
from rarestream.client.encode import Batch, Bounds
from rarestream.client.errors import ClientError, Lost, Problem, Refused, StreamBroken, Unanswered, Unreachable
from rarestream.client.redirects import HOPS, elsewhere
from rarestream.client.requests import Uploaded
from rarestream.client.source import Source
from rarestream.client.sync import Client, Learner, Reply, Stream

__all__ = [
    "HOPS",
    "NOTHING",
    "AsyncClient",
    "AsyncLearner",
    "AsyncReply",
    "AsyncStream",
    "Batch",
    "Bounds",
    "Client",
    "ClientError",
    "Explanation",
    "Learner",
    "Lost",
    "Predicted",
    "Problem",
    "Refused",
    "Reply",
    "Source",
    "Stream",
    "StreamBroken",
    "Unanswered",
    "Unreachable",
    "Updated",
    "Uploaded",
    "elsewhere",
]
