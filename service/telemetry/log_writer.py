"""Log lines, as text or as JSON: how they look, and the thread that writes them.

    a request is answered -> Entry   \\
    a logger is told      -> record  -> a bounded queue -> thread: format, write -> stderr

Whoever logs never waits, not even for a pipe that nobody reads: what finds the queue full is dropped, and counted.

A line holds no feature, label or event id, and no text of an exception that is not made for readers, for it may quote a
value: a traceback tells the kind of the exception and where it came from. Of the path there is the name of a learner or
group, if it can be one. Whatever a client chose itself (its request's id) is escaped, so that no line can be forged; a
key of the service is masked, wherever it stands.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import traceback
from collections import deque
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache, partial
from operator import attrgetter
from time import sleep
from typing import Literal, Protocol

import msgspec

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
    """What a line tells of one request, or of a websocket at its end. What is not known is left out."""

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
)
_fields = attrgetter(*_FIELDS)
_LOGGER = "rarestream.requests"


def in_json(entry: Entry, worker: int | None = None) -> bytes:
    """Format the line of a request as a JSON object; `worker`: the number of the process among several."""
    document: dict[str, object] = {
        "time": _iso(entry.time),
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
        f"{_iso(entry.time)} {_SHOUTED[entry.level]} {_marked(worker)}{entry.method} {entry.route}"
        f" {entry.status} {entry.seconds * 1e3:.3f}ms"
    )
    for name, value in zip(_FIELDS, _fields(entry), strict=True):
        if value is not None:
            line += f" {name}={value if type(value) is int else _shown(value)}"
    return line.encode() + b"\n"


def _of_worker(worker: int | None) -> dict[str, object]:
    return {} if worker is None else {"worker": worker}


def _marked(worker: int | None) -> str:
    return "" if worker is None else f"worker={worker} "


def _iso(seconds: float) -> str:
    whole, micro = divmod(round(seconds * 1e6), 1_000_000)
    return f"{_second(whole)}.{micro // 1000:03}Z"


@lru_cache(8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _shown(value: object) -> str:
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
        """One line; as text a traceback follows, indented."""
        message = record.getMessage().strip()[:_LONGEST]
        trace = "" if record.exc_info is None else _traced(record.exc_info[1])
        level = record.levelname
        request_id = current_request.get()
        name = "uvicorn" if record.name == "uvicorn.error" else record.name  # which logs all that is no access by that
        if self._form == "json":
            document: dict[str, object] = {
                "time": _iso(record.created),
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
        local = f" request_id={_shown(request_id)}" if request_id else ""
        line = (
            f"{_iso(record.created)} {level:<7} {_marked(self._worker)}{name}: {message.translate(_CONTROLS)}{local}\n"
        )
        return line + "".join(f"    {item.translate(_CONTROLS)}\n" for item in trace.splitlines())


def _traced(error: BaseException | None, seen: frozenset[int] = frozenset()) -> str:
    """Where an exception came from, and of what kind it and those behind it are: not what they say."""
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
    """Where lines go."""

    def write(self, data: bytes, /) -> object:
        """All of it."""

    def flush(self) -> object:
        """Now."""


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
        """Have a line written. From any thread.

        It is made here: the thread would take the interpreter from the requests for all lines that wait, a millisecond.
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
        """Write what waits, as far as that can be done in two seconds, and take no more."""
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
        """Format here, where the arguments are what they were."""
        self._lines.put(self.format(record).encode(errors="backslashreplace"))

    def close(self) -> None:
        """At the end of logging, or of the process."""
        self._lines.close()
        super().close()


def configure(stream: Stream, form: Format, level: str, worker: int | None = None) -> LineWriter:
    """Let every logger of this process write such lines to the stream, those of the service from `level` on.

    `worker`: the number of this process, where it is one of several whose lines go to one place. Those of libraries
    tell warnings only: some would tell addresses and queries, which may hold secrets.
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
