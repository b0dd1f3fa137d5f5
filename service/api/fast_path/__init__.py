"""Update, predict and labels in front of FastAPI: over ASGI, or inline in the connection. Start with `asgi`."""

from service.api.fast_path.asgi import FastPath, match_request
from service.api.fast_path.inline import InlinePath, PendingUpdate, RequestHead

__all__ = ["FastPath", "InlinePath", "PendingUpdate", "RequestHead", "match_request"]
