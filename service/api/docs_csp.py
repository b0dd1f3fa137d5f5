"""Content-Security-Policy of /docs, a page of FastAPI: only scripts of the page itself may run.

The policy allows each inline script by its hash, which is computed from the reply.
"""

from __future__ import annotations

import base64
import hashlib
import re

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.wire import local_path

__all__ = ["DocsPolicy"]

_PAGES = frozenset({"/docs", "/docs/oauth2-redirect"})
_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


class DocsPolicy:
    """ASGI middleware that adds the headers to these pages and passes everything else on."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http" or local_path(scope) not in _PAGES:
            await self.app(scope, receive, send)
            return
        head: Message = {}

        async def send_with_policy(message: Message) -> None:
            nonlocal head
            if message["type"] == "http.response.start":
                head = message  # sent with the body, which is one piece
                return
            MutableHeaders(scope=head).update(_headers(message.get("body", b"")))
            await send(head)
            await send(message)

        await self.app(scope, receive, send_with_policy)


def _headers(page: bytes) -> dict[str, str]:
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _SCRIPT.findall(page)]
    policy = [
        "default-src 'self'",
        "script-src " + " ".join(["'self'", *(f"'sha256-{value}'" for value in hashes)]),
        "style-src 'self' 'unsafe-inline'",  # the page writes styles into its elements
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return {
        "Content-Security-Policy": "; ".join(policy),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
