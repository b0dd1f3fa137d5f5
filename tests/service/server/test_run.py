"""What runs around the service in its process."""

from __future__ import annotations

from learners.numerics import background_compiler
from service.server.listen import listen
from service.server.run import Server
from service.settings import Settings


def test_the_compiler_ends_before_a_signal_is_repeated() -> None:
    """A repeated SIGTERM ends the process at once, and would leave the compiling one behind."""
    server = Server(Settings(store="memory:"), listen("127.0.0.1", 0), ready=lambda: None)
    try:
        with server.capture_signals():
            compiler = background_compiler._compiler
            assert compiler is not None
        assert not compiler._thread.is_alive()
    finally:
        server._listener.close()
