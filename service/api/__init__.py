"""The HTTP and websocket interface as an ASGI application.

Start with `app`, then `fast_path.operations`, which every update and predict passes. `routes` has the other requests,
`schemas` their documents, `websocket` the streams.
"""

from service.api.app import Application, create_app
from service.api.body import BODY_BREAKS, BODY_ENDS
from service.api.worker_peers import Siblings

__all__ = ["BODY_BREAKS", "BODY_ENDS", "Application", "Siblings", "create_app"]
