"""Says in plain words why a source cannot be reached; by the types of errors, never by their texts."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["log_to_notes", "reason_of"]

_LOGINS = {  # errors of aiokafka, by name because it is an optional dependency
    "UnsupportedSaslMechanismError": "it does not support this login (--sasl, KAFKA_USERNAME)",
    "SaslAuthenticationFailed": "login refused: check KAFKA_USERNAME, KAFKA_PASSWORD and --sasl",
    "IllegalSaslStateError": "it expects no login (KAFKA_USERNAME), or another kind of login (--sasl)",
}
_REPEAT = 60.0  # seconds after which the same line is noted again


def reason_of(error: BaseException) -> str:
    """Return why a connection failed, by the system's error behind a library's error, else by the library's text."""
    return _system_reason(error) or ", ".join(map(str, error.args)).strip().rstrip(".") or type(error).__name__


def _system_reason(error: BaseException) -> str | None:
    """Return the reason by the type of an error, or of an error behind it."""
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__name__ in _LOGINS:
            return _LOGINS[type(cause).__name__]
        match cause:
            case socket.gaierror():
                return "cannot resolve the host name"
            case ssl.SSLCertVerificationError():
                return f"its certificate is not trusted: {cause.verify_message}"
            case ssl.SSLError():
                return "the server does not speak TLS, or only other versions of it"
            case ConnectionRefusedError():
                return "nothing listens there (connection refused)"
            case TimeoutError():
                return "it does not answer in time"
            case OSError() if cause.strerror:
                return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return None


class _WarningNotes(logging.Handler):
    """Passes on a library's warnings and errors, the same line at most once a minute."""

    def __init__(self, library: str, note: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._library = library
        self._note = note
        self._times: dict[str, float] = {}  # line -> monotonic time of its last note

    def emit(self, record: logging.LogRecord) -> None:
        """Note a record: by the connection error among its arguments, else by its text."""
        reasons = (_system_reason(argument) for argument in record.args or () if isinstance(argument, BaseException))
        if (reason := next(reasons, None)) is not None:
            line = f"{self._library}: no connection: {reason}"
        else:
            line = f"{self._library}: {record.getMessage().splitlines()[0]}"
        now = time.monotonic()
        if now - self._times.get(line, -_REPEAT) >= _REPEAT:
            self._times[line] = now
            self._note(line)


@contextmanager
def log_to_notes(library: str, logger: str, note: Callable[[str], None]) -> Iterator[None]:
    """Pass a library's warnings to `note` instead of its own log."""
    log, handler = logging.getLogger(logger), _WarningNotes(library, note)
    before = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before
