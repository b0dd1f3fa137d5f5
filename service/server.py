"""Running the service under uvicorn: a listening socket, the app, and a word when it is ready."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote_plus, urlsplit

import uvicorn

from service.app import Application, create_app
from service.commands.failure import CommandFailed, WrongUsage
from service.errors import ServiceError
from service.guard import Guard
from service.logs import LineWriter, configure
from service.node import BACKGROUND
from service.protocol import HttpProtocol
from service.settings import Settings
from service.ws_protocol import WebSocketProtocol

__all__ = ["CannotListen", "CannotServe", "Server", "listen", "process_age", "serve", "shown"]

logger = logging.getLogger("rarestream.server")

_IMPORTED = time.monotonic()
_LOOK_EVERY = 0.1  # seconds
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; uvicorn's default would leave old ones only
_GRACE = 5  # seconds that open requests get at a stop; event streams would otherwise stay for good


class CannotListen(CommandFailed):
    """The address cannot be listened on."""


class CannotServe(CommandFailed):
    """The service did not start."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one. Raises `CannotListen`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            reason = "another program is listening there; choose a free port with --port"
        raise CannotListen(f"cannot listen on {host}:{port}: {reason}") from None


def process_age() -> float:
    """Seconds since this process was started; where the system does not tell, since this module was imported."""
    try:
        stat = Path("/proc/self/stat").read_text()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        started = int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")  # 22nd field; the 2nd has spaces
    except (OSError, ValueError, IndexError):
        return time.monotonic() - _IMPORTED
    return uptime - started


def serve(settings: Settings, warnings: Sequence[str] = ()) -> None:
    """Serve until Ctrl-C, which is a clean end, or SIGTERM, which ends the process by that signal once all is saved.

    `warnings` are told first.
    """
    in_json = settings.log_format == "json"  # then every line is, as both streams may go to one place
    if not in_json:
        for one in warnings:
            print(f"warning: {one}", file=sys.stderr, flush=True)
    listener = listen(settings.host, settings.port)
    lines = configure(sys.stderr.buffer, settings.log_format, settings.log_level)
    if in_json:
        for one in warnings:
            logger.warning(one)

    def ready() -> None:
        told = (
            f"rarestream is ready in {process_age():.1f} s: {server.url} (dashboard), {server.url}/docs, "
            f"store {shown(settings.store)}"
        )
        if in_json:
            logger.info(told)
        else:
            print(told, flush=True)

    server = Server(settings, listener, ready=ready, lines=lines)
    if server.warning is not None:
        logger.warning(server.warning)
    with suppress(KeyboardInterrupt):  # uvicorn repeats the signal after its clean shutdown
        server.run()
    if any(thread.name == BACKGROUND for thread in threading.enumerate()):
        # everything is saved, and a fit may take minutes: leave without waiting for it, as the interpreter would
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def shown(store: str) -> str:
    """A store's URL as it may be printed: without its passwords, before the host or in the query."""

    def masked(option: re.Match[str]) -> str:
        return f"{option[1]}=***" if unquote_plus(option[1]).endswith("password") else option[0]

    password = urlsplit(store).password
    if password:
        store = store.replace(f":{password}@", ":***@")
    return re.sub(r"(?<=[?&])([^=&#]*)=[^&#]*", masked, store)


def _config(app: Application, settings: Settings) -> uvicorn.Config:
    """How uvicorn serves the application. Raises `CannotServe` where the files of TLS are none."""
    if settings.tls_key is not None and settings.tls_certificate is None:
        raise CannotServe("the service cannot start: tls_key is set, and tls_certificate is not")
    config = uvicorn.Config(
        app,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        ssl_ciphers=_CIPHERS,
        lifespan="off",  # `startup` and `shutdown` below run it, to report its errors in plain words
        log_level="warning",  # the rest of it repeats ours, and shows paths with their queries
        log_config=None,  # its loggers write as ours do
        access_log=False,  # the application has its own: `access.py`
        http=HttpProtocol,
        ws=WebSocketProtocol,
        ws_max_size=settings.ws_message_bytes,
        ws_per_message_deflate=False,  # digits hardly compress, and each message would cost more
        ws_ping_interval=20.0,  # seconds; a peer that has gone without a word is noticed
        ws_ping_timeout=20.0,
        timeout_graceful_shutdown=_GRACE,
    )
    try:
        config.load()  # here, where an error of the files can be told
    except OSError as error:  # of ssl, too
        files = f"{settings.tls_certificate}, {settings.tls_key or 'and the key in it'}"
        raise CannotServe(f"the service cannot start: TLS with {files}: {error}") from None
    return config


class Server(uvicorn.Server):
    """The service on one socket; `ready` is called once it takes updates.

    `run()` serves until `should_exit` is set, or, in the main thread, until a signal.
    """

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        *,
        ready: Callable[[], None],
        lines: LineWriter | None = None,
    ) -> None:
        """`lines`: what writes a line for each request, if anything.

        Raises `BadKeys`, `Exposed` where others than this machine could come without a key, or `CannotServe`; then the
        listener is closed.
        """
        host, port = listener.getsockname()[:2]
        try:
            self._app = create_app(settings, lines)
            guard: Guard = self._app.state.guard
            self.warning = guard.listens(host)  # what to tell the operator, if anything
            super().__init__(_config(self._app, settings))
        except CommandFailed:
            listener.close()
            raise
        self._running = AsyncExitStack()  # the app between its start and its end
        self._listener = listener
        self._lines = lines
        self._ready = ready
        reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        scheme = "http" if settings.tls_certificate is None else "https"
        self.url = f"{scheme}://[{reached}]:{port}" if ":" in reached else f"{scheme}://{reached}:{port}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop. Raises `CannotServe` where the app does not start, `WrongUsage` for a wrong URL."""
        try:
            super().run(sockets or [self._listener])
        finally:
            self._listener.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the app and accept connections."""
        gc.freeze()  # what was imported stays: the collector need not walk it again and again while requests are served
        try:
            await self._running.enter_async_context(self._app.router.lifespan_context(self._app))
        except ServiceError as error:
            raise CannotServe(f"the service cannot start: {error.detail}") from error
        except ValueError as error:  # a store's URL that is none
            raise WrongUsage(f"the service cannot start: {error}") from error
        await super().startup(sockets)
        self._telling = asyncio.create_task(self._tell(), name="tell when ready")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish the open requests, then end the app: last snapshots, the store closed."""
        logger.info("stopping: open requests are finished, then what has changed is saved")
        self._app.state.closing.set()  # streams would go on for ever
        await self._app.state.websockets.close(_GRACE)  # uvicorn would cut them off
        await super().shutdown(sockets)
        self._telling.cancel()
        if not self.force_exit:
            await self._running.aclose()
        logger.info("stopped")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn repeats a signal when all is done, and the process may end by it: the last lines come before."""
        with super().capture_signals():
            try:
                yield
            finally:
                if self._lines is not None:
                    self._lines.close()

    async def _tell(self) -> None:
        """Call `ready` once every learner is here: at once, but for a store that is away when we start."""
        while not self._app.state.engine.ready:  # noqa: ASYNC110 (the engine has a flag, not an event)
            await asyncio.sleep(_LOOK_EVERY)
        # what is loaded by now stays: walking through it would stop everything for 0.1 s at each full collection
        gc.collect()
        gc.freeze()
        self._ready()
