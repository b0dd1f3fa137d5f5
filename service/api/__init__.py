"""The HTTP and websocket interface as an ASGI application.

Start with `app`, then `operations`, which every update, predict and labels passes. `fast_path` answers these, `routes`
the other requests, `websocket` the streams; `schemas` has the documents.
"""

from service.api.app import Application, create_app
from service.api.body import BODY_BREAKS, BODY_ENDS
from service.api.worker_peers import Siblings

__all__ = ["BODY_BREAKS", "BODY_ENDS", "Application", "Siblings", "create_app"]
