"""A Python client: NumPy in and out over MessagePack, blocking or awaited.

    from service.client import Client

    with Client("http://127.0.0.1:8000") as client:
        fraud = client.create("fraud", algorithm="cbr-diag", features={"kind": "dense", "dim": 30})
        reply = fraud.update(X, y, ids=ids)     # reply.scores: before each event was learnt
        alerts = fraud.predict(X_new, ids=new_ids).labels == 1

`AsyncClient` has the same methods, awaited. What is sent again after a failure, and what is not, stands in `calls.py`;
errors in `errors.py`. It imports neither the service nor the library; where requests go on to, `service.elsewhere`, it
shares with the commands.
"""

from __future__ import annotations

from service.client.asynchronous import AsyncClient, AsyncLearner, AsyncReply, AsyncStream
from service.client.calls import Uploaded
from service.client.columns import Batch, Bounds
from service.client.errors import ClientError, Lost, Problem, Refused, StreamBroken, Unanswered, Unreachable
from service.client.origins import Source
from service.client.replies import NOTHING, Explanation, Predicted, Updated
from service.client.synchronous import Client, Learner, Reply, Stream

__all__ = [
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
]
