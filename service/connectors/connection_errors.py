"""Why a source cannot be reached, in plain words: libraries tell it by numbers, names of classes and parts of C."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["quiet", "reason_of"]

_LOGINS = {  # aiokafka's, by name: it need not be installed
    "UnsupportedSaslMechanismError": "it takes no such login (--sasl, KAFKA_USERNAME)",
    "SaslAuthenticationFailed": "it refuses the login (KAFKA_USERNAME, KAFKA_PASSWORD, --sasl)",
    "IllegalSaslStateError": "it asks for no login (KAFKA_USERNAME), or for another one (--sasl)",
}
_AGAIN = 60.0  # seconds after which the same is told again


def reason_of(error: BaseException) -> str:
    """What the error of the system behind a library's error means; without one, what the library says."""
    found: BaseException | None = error
    while found is not None:
        if type(found).__name__ in _LOGINS:
            return _LOGINS[type(found).__name__]
        match found:
            case socket.gaierror():
                return "the name of its host is not known"
            case ssl.SSLCertVerificationError():
                return f"its certificate is not trusted: {found.verify_message}"
            case ssl.SSLError():
                return "what answers there does not speak TLS, or another version of it"
            case ConnectionRefusedError():
                return "nothing listens there (connection refused)"
            case TimeoutError():
                return "it does not answer in time"
            case OSError() if found.strerror:
                return found.strerror
        found = found.__cause__ or found.__context__
    said = str(error).removeprefix(f"{type(error).__name__}: ").strip()
    return said.rstrip(".") or type(error).__name__


class _Plain(logging.Handler):
    """Tells what a library warns of, the same no more than once a minute; what it logs beside is for its authors."""

    def __init__(self, library: str, note: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._library = library
        self._note = note
        self._told: dict[str, float] = {}  # line -> when, of a monotonic clock

    def emit(self, record: logging.LogRecord) -> None:
        """Tell one."""
        if str(record.msg).startswith("Unable connect to "):  # by aiokafka's words: the address, and why
            why = next((reason_of(one) for one in _arguments(record) if isinstance(one, BaseException)), "")
            line = f"{self._library}: no connection{f': {why}' if why else ''}"
        else:
            line = f"{self._library}: {record.getMessage().splitlines()[0]}"
        now = time.monotonic()
        if now - self._told.get(line, -_AGAIN) >= _AGAIN:
            self._told[line] = now
            self._note(line)


def _arguments(record: logging.LogRecord) -> tuple[object, ...]:
    return record.args if isinstance(record.args, tuple) else ()


@contextmanager
def quiet(library: str, logger: str, note: Callable[[str], None]) -> Iterator[None]:
    """Have what a library logs told by `note`, in the place of its own lines."""
    log, handler = logging.getLogger(logger), _Plain(library, note)
    before = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before
