"""Format log lines as text or JSON, and write them in a thread.

    a request is answered -> Entry   \
    a logger is called    -> record  -> a bounded queue -> thread: format, write -> stderr

Logging never waits, not even for a pipe that nobody reads: if the queue is full, lines are dropped and counted.

A line has no feature, label or event id, and no text of an exception that is not written for users, because it may
quote a value: a traceback has the types and the places only. Of a path it has the name of a learner or group, if valid.
What a client chooses (the id of its request) is escaped, so that nobody can forge a line. Keys of the service are
masked everywhere.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import traceback
from collections import deque
from contextvars import ContextVar
from functools import partial
from operator import attrgetter
from time import sleep
from typing import Literal, Protocol

import msgspec

from service.wire import iso_time

__all__ = ["Entry", "Format", "LineWriter", "Stream", "configure", "current_request", "in_json", "in_text"]

Format = Literal["text", "json"]

_WAITING = 10_000  # lines that wait to be written
_GATHER = 0.01  # seconds in which lines gather that are written together
_LEAVE = 2.0  # seconds that a stop waits for the last lines: nobody may read them
_PLAIN = re.compile(r"[A-Za-z0-9._:/{}@+-]+")  # shown without quotes
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {0x2028: "\\u2028", 0x2029: "\\u2029"}
_LONGEST = 10_000  # characters of a message
_KEY = re.compile(rb"(rs_[a-z0-9]{12}_)[0-9A-Za-z]{8,}")  # which somebody has put where a name or an id belongs

# The id of the request in whose course something is logged. Set where a fault of ours ends one, and no earlier: what a
# request has begun in the background may go on for long, and would carry its id for good.
current_request: ContextVar[str] = ContextVar("current_request", default="")


class Entry(msgspec.Struct, omit_defaults=True):
    """The line of one request, or of a websocket at its end. Unknown values are left out."""

    time: float  # seconds since the epoch, of the end
    level: int  # of `logging`
    request_id: str
    method: str
    route: str  # the template: /v1/learners/{name}/update
    status: int  # 499: the client went away before it was answered
    seconds: float
    client: str | None = None  # address
    key: str | None = None  # the id of its key, which is public
    learner: str | None = None
    group: str | None = None
    bytes: int | None = None  # of the body that came
    events: int | None = None
    messages: int | None = None  # of a websocket: answered,
    refused: int | None = None  # and of these with an error
    code: str | None = None  # of the problem
    reason: str | None = None  # why what came was no request
    trace_id: str | None = None  # of its `traceparent`,
    parent_id: str | None = None  # and the caller's span


_LEVELS = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
    logging.CRITICAL: "critical",
}
_SHOUTED = {level: f"{name.upper():<7}" for level, name in _LEVELS.items()}
_FIELDS = (
    "learner",
    "group",
    "events",
    "messages",
    "refused",
    "bytes",
    "code",
    "reason",
    "key",
    "client",
    "request_id",
    "trace_id",
    "parent_id",
)
_fields = attrgetter(*_FIELDS)
_LOGGER = "rarestream.requests"


def in_json(entry: Entry, worker: int | None = None) -> bytes:
    """Format the line of a request as a JSON object; `worker`: the number of the process among several."""
    document: dict[str, object] = {
        "time": iso_time(entry.time),
        "level": _LEVELS[entry.level],
        **_of_worker(worker),
        "logger": _LOGGER,
        "message": f"{entry.method} {entry.route} {entry.status}",
        "request_id": entry.request_id,
        "method": entry.method,
        "route": entry.route,
        "status": entry.status,
        "milliseconds": round(entry.seconds * 1e3, 3),
    }
    document |= {name: value for name, value in zip(_FIELDS, _fields(entry), strict=True) if value is not None}
    return _line(document)


def in_text(entry: Entry, worker: int | None = None) -> bytes:
    """Format the line of a request for people; `worker` as for `in_json`. About 3 us."""
    line = (
        f"{iso_time(entry.time)} {_SHOUTED[entry.level]} {_marked(worker)}{entry.method} {entry.route}"
        f" {entry.status} {entry.seconds * 1e3:.3f}ms"
    )
    for name, value in zip(_FIELDS, _fields(entry), strict=True):
        if value is not None:
            line += f" {name}={value if type(value) is int else _text_of(value)}"
    return line.encode() + b"\n"


def _of_worker(worker: int | None) -> dict[str, object]:
    return {} if worker is None else {"worker": worker}


def _marked(worker: int | None) -> str:
    return "" if worker is None else f"worker={worker} "


def _text_of(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _line(document: dict[str, object]) -> bytes:
    data = msgspec.json.encode(document)
    # to some readers of lines U+2028 or U+0085 ends one: where anything is not ASCII, all of that is escaped
    return (data if data.isascii() else json.dumps(document, separators=(",", ":")).encode()) + b"\n"


class _Records(logging.Formatter):
    """The lines of the standard library's loggers."""

    def __init__(self, form: Format, worker: int | None) -> None:
        super().__init__()
        self._form = form
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; in text, an indented traceback follows."""
        message = record.getMessage().strip()[:_LONGEST]
        trace = "" if record.exc_info is None else _traced(record.exc_info[1])
        level = record.levelname
        request_id = current_request.get()
        name = "uvicorn" if record.name == "uvicorn.error" else record.name  # which logs all that is no access by that
        if self._form == "json":
            document: dict[str, object] = {
                "time": iso_time(record.created),
                "level": level.lower(),
                **_of_worker(self._worker),
                "logger": name,
                "message": message,
            }
            if request_id:
                document["request_id"] = request_id
            if trace:
                document["exception"] = trace
            return _line(document).decode()
        local = f" request_id={_text_of(request_id)}" if request_id else ""
        line = f"{iso_time(record.created)} {level:<7} {_marked(self._worker)}{name}: "
        line += f"{message.translate(_CONTROLS)}{local}\n"
        return line + "".join(f"    {item.translate(_CONTROLS)}\n" for item in trace.splitlines())


def _traced(error: BaseException | None, seen: frozenset[int] = frozenset()) -> str:
    """Return the traceback and the types of an exception and of its causes, without their texts."""
    if error is None or id(error) in seen:
        return ""
    seen |= {id(error)}
    behind = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = _traced(behind, seen)
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    parts = [f"{before}\n\nwhich led to:\n\n" if before else "", "Traceback (most recent call last):\n"]
    parts += [*traceback.format_tb(error.__traceback__), f"{kind}: (its text is left out)"]
    if isinstance(error, BaseExceptionGroup):
        parts += [f"\n\nand of it:\n\n{_traced(exception, seen)}" for exception in error.exceptions]
    return "".join(parts)


class Stream(Protocol):
    """The destination of lines."""

    def write(self, data: bytes, /) -> object:
        """Write all of the data."""

    def flush(self) -> object:
        """Send what is buffered."""


class LineWriter:
    """Writes lines in a thread of its own; `put` never waits."""

    def __init__(self, stream: Stream, form: Format, worker: int | None = None) -> None:
        """Start the thread with the first line. `worker`: the number of this process among several."""
        self.dropped = 0  # lines that found the queue full, or could not be written
        self.written = 0
        self._stream = stream
        self._encode = partial(in_json if form == "json" else in_text, worker=worker)
        self._waiting: deque[bytes] = deque()
        self._wake = threading.Event()
        self._awake = False
        self._starting = threading.Lock()
        self._closing = False
        self._thread: threading.Thread | None = None

    def put(self, line: Entry | bytes) -> None:
        """Queue a line, from any thread.

        It is formatted here: the thread would hold the interpreter's lock for all waiting lines, a millisecond.
        """
        if len(self._waiting) >= _WAITING or self._closing:
            self.dropped += 1
            return
        self._waiting.append(self._encode(line) if isinstance(line, Entry) else line)
        if not self._awake:
            self._awake = True
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="log lines", daemon=True)
                    self._thread.start()
            self._wake.set()

    def close(self) -> None:
        """Write the waiting lines within two seconds, and take no more."""
        self._closing = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_LEAVE)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if not self._closing:
                sleep(_GATHER)
            self._awake = False  # a line that comes from here on wakes it again
            self._drain()
            if self._closing and not self._waiting:
                return

    def _drain(self) -> None:
        while self._waiting:
            items = [self._waiting.popleft() for _ in range(min(len(self._waiting), 1000))]
            try:
                self._stream.write(_KEY.sub(rb"\1***", b"".join(items)))
                self._stream.flush()
            except (OSError, ValueError):  # nobody reads any more; or the stream is closed
                self.dropped += len(items)
            else:
                self.written += len(items)


class _ToWriter(logging.Handler):
    """Hands the lines of the standard library's loggers to the writer."""

    def __init__(self, lines: LineWriter, form: Format, worker: int | None) -> None:
        super().__init__()
        self._lines = lines
        self.setFormatter(_Records(form, worker))

    def emit(self, record: logging.LogRecord) -> None:
        """Format the record at once, before its arguments can change."""
        self._lines.put(self.format(record).encode(errors="backslashreplace"))

    def close(self) -> None:
        """Write what is left and stop, at the end of logging or of the process."""
        self._lines.close()
        super().close()


def configure(stream: Stream, form: Format, level: str, worker: int | None = None) -> LineWriter:
    """Let every logger of this process write such lines to the stream, those of the service from `level` on.

    `worker`: the number of this process if several write to one place. Loggers of libraries write warnings only,
    because some would log addresses and queries, which may contain secrets.
    """
    lines = LineWriter(stream, form, worker)
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    root.addHandler(_ToWriter(lines, form, worker))
    root.setLevel(logging.WARNING)
    logging.getLogger("rarestream").setLevel(level.upper())
    logging.captureWarnings(True)
    return lines
