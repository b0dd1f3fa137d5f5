"""The headers of /docs, whose page is FastAPI's: only what a page brings may run there.

A script that a page holds in itself is allowed by its hash, as it is in the very reply.
"""

from __future__ import annotations

import base64
import hashlib
import re

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["DocsPolicy"]

_PAGES = frozenset({"/docs", "/docs/oauth2-redirect"})
_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


class DocsPolicy:
    """ASGI: adds them to the pages; everything else passes on to the application behind."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        path: str = scope.get("path", "")
        if scope["type"] != "http" or path.removeprefix(scope.get("root_path", "")) not in _PAGES:
            await self.app(scope, receive, send)
            return
        head: Message = {}

        async def sending(message: Message) -> None:
            nonlocal head
            if message["type"] == "http.response.start":
                head = message  # until its body is there, which is one piece
                return
            MutableHeaders(scope=head).update(_headers(message.get("body", b"")))
            await send(head)
            await send(message)

        await self.app(scope, receive, sending)


def _headers(page: bytes) -> dict[str, str]:
    hashes = [base64.b64encode(hashlib.sha256(one).digest()).decode() for one in _SCRIPT.findall(page)]
    policy = [
        "default-src 'self'",
        "script-src " + " ".join(["'self'", *(f"'sha256-{one}'" for one in hashes)]),
        "style-src 'self' 'unsafe-inline'",  # it writes styles into its elements
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
