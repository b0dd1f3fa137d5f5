"""`rarestream watch`: a learner's figures as they change."""

from __future__ import annotations

import json
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from service.commands.connection import DEFAULT_URL, Key, Name, Url, connected, console, print_json, reporting
from service.commands.failure import CommandFailed, ExitStatus
from service.commands.figures import counted, figure, share
from service.commands.inspecting import alarm_of
from service.commands.options import flag

if TYPE_CHECKING:
    from rich.console import Console
    from rich.panel import Panel

    from service.commands.api import Api

__all__ = ["Watched", "follow", "watch"]

Document = Mapping[str, Any]

_POINTS = 500  # of the AUC that are kept
_WIDTH = 100  # columns of a frame that is printed to a file
_ALARMS = 3  # that are shown
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds before the stream is opened again
_REFRESHES = 4  # of the terminal per second at most


def watch(
    name: Name,
    once: Annotated[bool, flag("--once", help="Show the figures as they are now, and end.")] = False,
    as_json: Annotated[
        bool, flag("--json", help="Print a JSON object in each line: event and data; with --once the figures.")
    ] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Watch a learner's figures live: AUC as a curve, F1, rates, alarms. Ctrl-C ends it.

    Where the output is no terminal, each change is a line. When the service
    goes away, it is waited for, and nothing is missed.
    """
    with reporting(), connected(url, key) as api:
        if once and as_json:
            print_json(api.metrics(name))
            return
        out = console()
        plain = not out.encoding.lower().startswith("utf")
        watched = Watched(api, name, plain=plain, width=None if out.is_terminal else _WIDTH)
        if once:
            out.print(watched.frame())
            return
        before = signal.signal(signal.SIGTERM, _ended)  # so that a terminal is left as it was
        try:
            if as_json:
                follow(api, watched, lambda kind, data: print(json.dumps({"event": kind, **data}), flush=True))
            elif out.is_terminal:
                _live(api, watched, out)
            else:
                follow(api, watched, lambda kind, data: _line(out, watched, kind, data))
        except KeyboardInterrupt:  # the usual end of it
            return
        finally:
            signal.signal(signal.SIGTERM, before)


def _ended(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise SystemExit(128 + number)


class Watched:
    """What is known of a learner: as it was asked for at first, then moved on by the events of the stream."""

    def __init__(
        self,
        api: Api,
        name: str,
        *,
        plain: bool = False,
        width: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`plain`: without characters beyond ASCII in the curve; `width`: of a frame, that of the terminal if None."""
        from service.commands.pacing import Meter

        self.name = name
        self.learner: Document = api.learner(name)
        self.metrics: Document = api.metrics(name)
        self.alarms: deque[Document] = deque(api.alarms(name)["alarms"], maxlen=_ALARMS)
        self.trouble: str | None = None  # why nothing comes just now
        self._moving = False  # something came of the stream: there are rates
        self._curve: deque[float | None] = deque(maxlen=_POINTS)
        self._curve.extend(point.get(self._axis) for point in api.history(name)["points"])
        self._plain = plain
        self._width = width
        self._learnt, self._served = Meter(clock=clock), Meter(clock=clock)

    @property
    def ordinal(self) -> bool:
        """Whether it tells ranks."""
        return "positive" not in self.metrics["class_counts"]

    @property
    def _axis(self) -> str:
        return "mae" if self.ordinal else "auc"

    def take(self, kind: str, data: Document) -> None:
        """Move on by one event of the stream."""
        self._moving = True
        if kind == "figures":
            self._learnt.add(max(0, data["events"] - self.metrics["events"]))
            self._served.add(max(0, _served(data) - _served(self.metrics)))
            self.metrics = data
        elif kind == "point":
            self._curve.append(data.get(self._axis))
        elif kind == "alarm":
            self.alarms.append(data)
        elif kind == "reset":  # rolled back: all points follow anew
            self._curve.clear()

    def rates(self) -> str:
        """Events learnt and scored per second, lately."""
        served = self._served.speed()
        return f"{self._learnt.speed():,.0f} learnt/s" + (f", {served:,.0f} scored/s" if served >= 0.5 else "")

    def words(self) -> list[tuple[str, str]]:
        """The figures of the window, each with what it is called."""
        window = self.metrics["window"]
        names = [("MAE", "mae"), ("accuracy", "accuracy")]
        if not self.ordinal:
            names = [("AUC", "auc"), ("F1", "f1"), ("precision", "precision"), ("recall", "recall")]
        said = [(name, figure(window[key])) for name, key in names]
        if self.ordinal:
            return said
        threshold = figure(self.metrics["threshold"])
        return [*said, ("alert rate", share(window["alert_rate"])), ("threshold", threshold)]

    def frame(self) -> Panel:
        """Everything, for a terminal."""
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        body = Table.grid(padding=(0, 2), expand=True)
        body.add_column(style="dim", no_wrap=True)
        body.add_column(ratio=1)
        words = self.words()
        curve = self._drawn(words[0][1])
        body.add_row(words[0][0], curve)
        if self.metrics["window"].get("auc_interval"):
            low, high = self.metrics["window"]["auc_interval"]
            body.add_row("", Text(f"95 % interval {figure(low)} to {figure(high)}", "dim"))
        rest = Text("   ").join([Text.assemble((f"{name} ", "dim"), value) for name, value in words[1:]])
        body.add_row("", rest)
        rates = f"   {self.rates()}" if self._moving else ""
        body.add_row("events", f"{self.metrics['events']:,} learnt{self._counted()}{rates}")
        if not self.learner["ready"] and self.metrics["window"].get(self._axis) is None:
            body.add_row("", Text(f"not ready: {self.learner['not_ready']}", "yellow"))
        for alarm in self.alarms:
            body.add_row(Text("alarm", "red"), alarm_of(alarm))
        if self.trouble is not None:
            body.add_row("", Text(self.trouble, "yellow"))
        window = self.metrics["window"]["size"]
        title = Text.assemble((self.name, "bold"), f"  {self.learner['config']['algorithm']}")
        panel = Panel(body, title=title, title_align="left", subtitle=f"last {window:,} events", subtitle_align="right")
        panel.width = self._width
        return panel

    def _counted(self) -> str:
        if self.ordinal:
            return ""
        counted = f", {self.metrics['class_counts']['positive']:,} positive"
        served = self.metrics["served"]
        awaited = served["events"] - served["labelled"]
        return counted + (f", {awaited:,} scored without a label" if awaited > 0 else "")

    def _drawn(self, now: str) -> Any:
        """The figure now, its curve as wide as there is room, and from where to where that goes."""
        from service.commands.live import sparkline

        course = [*self._curve, self.metrics["window"][self._axis]]  # the newest point is some events old
        known = [one for one in course if one is not None]
        ends = f"{figure(min(known))} to {figure(max(known))}" if known else ""
        return _Curve(now, lambda width: sparkline(course, width, plain=self._plain), ends)


class _Curve:
    """A line that fits its place: Rich asks for it with the width that there is."""

    def __init__(self, before: str, draw: Callable[[int], str], after: str) -> None:
        self._before, self._draw, self._after = before, draw, after

    def __rich_console__(self, _console: Console, options: Any) -> Any:
        from rich.text import Text

        room = max(8, min(100, options.max_width - len(self._before) - len(self._after) - 4))
        line = Text.assemble((self._before, "bold"), "  ", (self._draw(room), "green"), "  ", (self._after, "dim"))
        line.no_wrap = True
        yield line


def follow(api: Api, watched: Watched, tell: Callable[[str, Document], None]) -> None:
    """Take every event of the stream and `tell` of it, for good; where it breaks off it is opened again.

    Raises `CommandFailed` where the learner is deleted, or refused. Nothing is missed: the stream goes on after the
    last event that came.
    """
    from service.commands.api import ApiError
    from service.commands.live import events

    last: str | None = None
    pause = _FIRST_PAUSE
    while True:
        try:
            with api.stream(watched.name, last) as lines:
                for event in events(lines):
                    if event.kind == "gone":
                        gone = CommandFailed(str(event.data.get("detail", f"{watched.name} is gone")))
                        gone.exit_status = ExitStatus.NOT_FOUND
                        raise gone
                    watched.trouble = None
                    last, pause = event.id or last, _FIRST_PAUSE
                    watched.take(event.kind, event.data)
                    tell(event.kind, event.data)
            why = "the service closed the stream"
        except ApiError as error:
            if error.status is not None and error.status < 500 and error.status != 429:
                raise
            why = str(error).partition("\n")[0]
        watched.trouble = f"{why}; trying again"
        tell("trouble", {"detail": watched.trouble})
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _live(api: Api, watched: Watched, out: Console) -> None:
    """Redraw one place of the terminal."""
    from rich.live import Live

    with Live(get_renderable=watched.frame, console=out, refresh_per_second=_REFRESHES, vertical_overflow="crop"):
        follow(api, watched, lambda *_: None)


def _line(out: Console, watched: Watched, kind: str, data: Document) -> None:
    """A change as a line of text."""
    now = datetime.now().astimezone().strftime("%H:%M:%S")
    if kind == "figures":
        words = "  ".join(f"{name} {value}" for name, value in watched.words())
        out.print(f"{now}  {counted(watched.metrics['events'], 'event')}  {words}  {watched.rates()}")
    elif kind == "alarm":
        out.print(f"{now}  ALARM {alarm_of(data)}")
    elif kind == "reset":
        out.print(f"{now}  rolled back")
    elif kind == "trouble":
        out.print(f"{now}  {data['detail']}")


def _served(metrics: Document) -> int:
    served = metrics["served"]
    count: int = served if isinstance(served, int) else served["events"]
    return count
