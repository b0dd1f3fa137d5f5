"""Run the service under uvicorn: a listening socket, the app, and an announcement when it is ready.

Shutdown, in order: accept no more connections; finish open requests and streams with `Connection: close`; for a second,
answer what still arrives on open connections; learn what is queued, take the last snapshots, close the store.

`supervisor.py` starts several processes behind one port; each of them runs a server of this kind.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress

import uvicorn

from learners.numerics import compile_in_background
from service.api import Application, create_app
from service.auth import Handshake
from service.engine import BACKGROUND
from service.errors import ServiceError, WrongStore
from service.exits import CommandFailed, WrongUsage
from service.server.acceptor import Acceptor, limit_connections
from service.server.http_protocol import HttpProtocol
from service.server.listen import CannotServe, WrongSettings, announce, listen, url_of, warn
from service.server.ws_protocol import WebSocketProtocol
from service.settings import Settings
from service.telemetry import LineWriter, configure
from service.wire.kernels import SERVICE_REHEARSALS

__all__ = ["Server", "freeze_heap", "leave_background", "serve"]

logger = logging.getLogger("rarestream.server")

_LOOK_EVERY = 0.1  # seconds
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; uvicorn's default would leave old ones only
_CLOSE_SECONDS = 5.0  # allowed for websockets to close at shutdown
_LINGER = 1.0  # seconds in which requests on open connections are answered: their clients could not know
_LOOK_IDLE = 0.02  # seconds


def serve(settings: Settings, warnings: Sequence[str] = (), *, as_json: bool = False) -> None:
    """Serve until Ctrl-C or SIGTERM. SIGTERM ends the process by that signal, once everything is saved.

    `warnings` are printed first; `as_json`: see `announce`.
    """
    lines = configure(sys.stderr.buffer, settings.log_format, settings.log_level)
    warn(settings, warnings)
    listener = listen(settings.host, settings.port)

    def ready() -> None:
        freeze_heap()
        announce(settings, server.url, as_json=as_json)

    server = Server(settings, listener, ready=ready, lines=lines)
    if server.warning is not None:
        logger.warning(server.warning)
    with suppress(KeyboardInterrupt):  # uvicorn repeats the signal after its clean shutdown
        server.run()
    leave_background()


def freeze_heap() -> None:
    """Leave what is loaded by now out of full garbage collections, in which nobody is answered."""
    gc.collect()
    gc.freeze()


def leave_background() -> None:
    """End the process at once if a background fit is still running: everything is saved."""
    if any(thread.name == BACKGROUND for thread in threading.enumerate()):
        # the interpreter would wait for the fit, which may take minutes
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def _config(app: Application, settings: Settings) -> uvicorn.Config:
    """Configure uvicorn. Raises `WrongSettings` if it cannot load the TLS files."""
    if settings.tls_key is not None and settings.tls_certificate is None:
        raise WrongSettings("the service cannot start: tls_key is set, but tls_certificate is not")
    config = uvicorn.Config(
        app,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        ssl_ciphers=_CIPHERS,
        lifespan="off",  # `startup` and `shutdown` below run it, and report its errors
        log_level="warning",  # its lower levels repeat our log, and show queries
        log_config=None,  # its loggers use our handlers
        access_log=False,  # the application has its own: `telemetry/request_log.py`
        http=HttpProtocol,
        ws=WebSocketProtocol,
        ws_max_size=settings.ws_message_bytes,
        ws_per_message_deflate=False,  # digits hardly compress, and every message would cost more
        ws_ping_interval=20.0,  # seconds; detects peers that vanished
        ws_ping_timeout=20.0,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )
    try:
        config.load()  # here, so that an error of the files can be reported
    except OSError as error:  # of ssl, too
        files = f"{settings.tls_certificate}, {settings.tls_key or 'and the key in it'}"
        raise WrongSettings(f"the service cannot start: TLS with {files}: {error.strerror or error}") from None
    return config


class Server(uvicorn.Server):
    """The service on one socket; calls `ready` once it takes updates.

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
        """Make the application. `lines`: writer of the request log, if any.

        Raises `BadKeys`, `ExposedWithoutKeys` if other machines could connect without a key, or `CannotServe`, and
        closes the listener then.
        """
        host = listener.getsockname()[0]
        try:
            settings = limit_connections(settings)
            self._app = create_app(settings, lines)
            guard = self._app.state.guard
            self.warning = guard.listens(host)  # for the operator, if any
            super().__init__(_config(self._app, settings))
        except CommandFailed:
            listener.close()
            raise
        self._running = AsyncExitStack()  # the app between its start and its end
        self._counts: MutableSequence[int] | memoryview = [0]  # connections of each process behind the port
        self._place = 0  # of this one
        self._acceptor: Acceptor | None = None
        self._listener = listener
        self._lines = lines
        self._ready = ready
        self.url = url_of(listener, tls=settings.tls_certificate is not None)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the shutdown. Raises `CannotServe` if the app does not start, `WrongUsage` for a wrong URL."""
        try:
            super().run(sockets or [self._listener])
        finally:
            self._listener.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the app and accept connections."""
        try:
            await self._running.enter_async_context(self._app.router.lifespan_context(self._app))
        except WrongStore as error:
            raise WrongSettings(f"the service cannot start: {error.detail}") from error
        except ServiceError as error:
            raise CannotServe(f"the service cannot start: {error.detail}") from error
        except ValueError as error:  # a malformed store URL
            raise WrongUsage(f"the service cannot start: {error}") from error
        await self._open(sockets)
        announcing = asyncio.create_task(self._announce(), name="announce when ready")
        self._announcing = self._app.state.engine.node.background.watch(announcing, "announce that it is ready")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish the open requests, then end the app: last snapshots, the store closed."""
        logger.info("stopping: finishing open requests, then saving changed learners")
        self._close(sockets)
        self.server_state.default_headers = [*self.server_state.default_headers, (b"connection", b"close")]
        self._app.inline.engine = None  # only ASGI closes connections with their replies
        self._app.state.closing.set()  # ends the streams
        # uvicorn would cut websockets off
        await asyncio.gather(self._app.state.close_websockets(_CLOSE_SECONDS), self._linger())
        await super().shutdown(sockets)
        self._announcing.cancel()
        if not self.force_exit:
            await self._running.aclose()
        logger.info("stopped")

    async def _open(self, sockets: list[socket.socket] | None) -> None:
        """Accept connections, once the app has started."""
        await super().startup([])
        assert sockets is not None
        (listener,) = sockets
        self._acceptor = Acceptor(
            listener,
            self.server_state.connections,
            self._protocol,
            self._app.state.handshakes,
            self._counts,
            self._place,
            self.config.ssl,
        )

    def _protocol(self, handshake: Handshake) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return HttpProtocol(self.config, self.server_state, self.lifespan.state, handshake=handshake)

    async def on_tick(self, counter: int) -> bool:
        """Close overdue handshakes and publish the number of connections, ten times a second."""
        self._app.state.handshakes.expire()
        if self._acceptor is not None:
            self._acceptor.count()
        return await super().on_tick(counter)

    def _close(self, sockets: list[socket.socket] | None) -> None:
        """Accept no more connections."""
        if self._acceptor is not None:
            self._acceptor.close()
        for listener in sockets or []:
            listener.close()

    async def _linger(self) -> None:
        """Answer requests on open connections for a second, or until none is open.

        The next reply closes each connection. If an idle connection were closed at once, a client that had just sent a
        request would not know its outcome.
        """
        until = time.monotonic() + _LINGER
        for connection in self.server_state.connections:
            cycle = getattr(connection, "cycle", None)  # of a request; None before the first, absent for a websocket
            if cycle is not None and not cycle.response_complete:
                connection.shutdown()  # closes once the request is answered
        while self.server_state.connections and not self.force_exit and time.monotonic() < until:  # noqa: ASYNC110 (a set of uvicorn's)
            await asyncio.sleep(_LOOK_IDLE)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop the compiler and flush the log before uvicorn repeats the signal, which may end the process."""
        with super().capture_signals():
            try:
                with compile_in_background(SERVICE_REHEARSALS):
                    yield
            finally:
                if self._lines is not None:
                    self._lines.close()

    async def _announce(self) -> None:
        """Call `ready` once all learners are loaded; waits if the store does not answer at the start."""
        while not self._app.state.engine.ready:  # noqa: ASYNC110 (the engine has a flag, not an event)
            await asyncio.sleep(_LOOK_EVERY)
        self._ready()
