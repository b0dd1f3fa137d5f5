"""Online learning for imbalanced streams.

    from rarestream import Client           # a client of the service; AsyncClient is the same, awaited

    with Client("http://127.0.0.1:8000") as client:
        fraud = client.create("fraud", features={"kind": "dense", "dim": 30})
        reply = fraud.update(X, y, ids=ids)             # reply.scores: before each event was learnt
        alerts = fraud.predict(X_new, ids=new_ids).labels == 1

    from rarestream import create, restore  # the learners themselves, without a service

Each name loads its module at first use, so `import rarestream` is quick. The client imports neither the learners nor
the service.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from learners import create, restore
    from rarestream.client.aio import AsyncClient, AsyncRemoteLearner
    from rarestream.client.aio_stream import AsyncLearnerStream, AsyncStreamReply
    from rarestream.client.batch import EventBatch, RequestBounds, UploadSummary
    from rarestream.client.decode import NO_DECISION, PredictResult, ScoreExplanation, UpdateResult
    from rarestream.client.documents import ServerEvent, UpdateCounts, UpdateDocument
    from rarestream.client.errors import (
        ClientError,
        InvalidSetting,
        InvalidValue,
        OutcomeUnknown,
        RequestRefused,
        ServiceUnreachable,
        StreamBroken,
        UnansweredRequest,
    )
    from rarestream.client.exchange import ApiRequest, RetryPause
    from rarestream.client.frames import frame, rows
    from rarestream.client.source import Source
    from rarestream.client.sync import Client, RemoteLearner
    from rarestream.client.sync_stream import LearnerStream, StreamReply

__all__ = [
    "NO_DECISION",
    "ApiRequest",
    "AsyncClient",
    "AsyncLearnerStream",
    "AsyncRemoteLearner",
    "AsyncStreamReply",
    "Client",
    "ClientError",
    "EventBatch",
    "InvalidSetting",
    "InvalidValue",
    "LearnerStream",
    "LearnersShadowed",
    "OutcomeUnknown",
    "PredictResult",
    "RemoteLearner",
    "RequestBounds",
    "RequestRefused",
    "RetryPause",
    "ScoreExplanation",
    "ServerEvent",
    "ServiceUnreachable",
    "Source",
    "StreamBroken",
    "StreamReply",
    "UnansweredRequest",
    "UpdateCounts",
    "UpdateDocument",
    "UpdateResult",
    "UploadSummary",
    "__version__",
    "create",
    "frame",
    "restore",
    "rows",
]

__version__ = "0.1.0"

_CLIENT_MODULES = {
    "aio": ("AsyncClient", "AsyncRemoteLearner"),
    "aio_stream": ("AsyncLearnerStream", "AsyncStreamReply"),
    "batch": ("EventBatch", "RequestBounds", "UploadSummary"),
    "decode": ("NO_DECISION", "PredictResult", "ScoreExplanation", "UpdateResult"),
    "documents": ("ServerEvent", "UpdateCounts", "UpdateDocument"),
    "errors": (
        "ClientError",
        "InvalidSetting",
        "InvalidValue",
        "OutcomeUnknown",
        "RequestRefused",
        "ServiceUnreachable",
        "StreamBroken",
        "UnansweredRequest",
    ),
    "exchange": ("ApiRequest", "RetryPause"),
    "frames": ("frame", "rows"),
    "source": ("Source",),
    "sync": ("Client", "RemoteLearner"),
    "sync_stream": ("LearnerStream", "StreamReply"),
}
_CLIENT_NAMES = {name: f"rarestream.client.{module}" for module, names in _CLIENT_MODULES.items() for name in names}
_LEARNERS_NAMES = frozenset({"create", "restore"})
_LEARNERS_FOLDER = Path(__file__).resolve().parents[1] / "learners"


class LearnersShadowed(ImportError):
    """Another package named `learners` hides the one that comes with rarestream; `path` is its file."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _CLIENT_NAMES:
            module = import_module(_CLIENT_NAMES[name])
        elif name in _LEARNERS_NAMES:
            module = _load_learners(name)
        else:
            raise AttributeError(f"module 'rarestream' has no attribute {name!r}")
        value = globals()[name] = getattr(module, name)
        return value


def _load_learners(name: str) -> Any:
    """Import our package `learners`, which has `name`. Raises `LearnersShadowed` if another package has its name."""
    spec = find_spec("learners")
    origin = None if spec is None else spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    if origin is not None and Path(origin).resolve().parent == _LEARNERS_FOLDER:
        module = import_module("learners")
        if hasattr(module, name):
            return module
    if origin is None:
        raise ModuleNotFoundError(f"rarestream's package 'learners' is not at {_LEARNERS_FOLDER}", name="learners")
    raise LearnersShadowed(
        f"{origin} is another package named 'learners'; rarestream needs its own at {_LEARNERS_FOLDER}. Uninstall or "
        "rename the other package, or put rarestream's folder before it on sys.path",
        name="learners",
        path=origin,
    )
