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

from service.cli.commands.show import alarm_of
from service.cli.options import flag
from service.cli.options_service import DEFAULT_URL, Key, Name, Url, connected, console, print_json, reporting
from service.exits import CommandFailed, ExitStatus
from service.text import counted, figure, share

if TYPE_CHECKING:
    from rich.console import Console
    from rich.panel import Panel

    from rarestream import Client

__all__ = ["Watched", "follow", "watch"]

Document = Mapping[str, Any]

_POINTS = 500  # of the AUC that are kept
_WIDTH = 100  # columns of a frame that is printed to a file
_NARROW = 16  # columns that a curve has at least beside its ends; else these stand below it
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
    """Watch a learner live: AUC as a curve, F1, rates, alarms. Ctrl-C ends it.

    Where the output is no terminal, each change is a line. When the service
    goes away, it is waited for, and nothing is missed.
    """
    with reporting(), connected(url, key) as client:
        if once and as_json:
            print_json(client.learner(name).metrics())
            return
        out = console()
        plain = not out.encoding.lower().startswith("utf")
        watched = Watched(client, name, plain=plain, width=None if out.is_terminal else _WIDTH)
        if once:
            out.print(watched.frame())
            return
        before = signal.signal(signal.SIGTERM, _ended)  # so that a terminal is left as it was
        try:
            if as_json:
                follow(client, watched, lambda kind, data: print(json.dumps({"event": kind, **data}), flush=True))
            elif out.is_terminal:
                _live(client, watched, out)
            else:
                follow(client, watched, lambda kind, data: _line(out, watched, kind, data))
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
        client: Client,
        name: str,
        *,
        plain: bool = False,
        width: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`plain`: without characters beyond ASCII in the curve; `width`: of a frame, that of the terminal if None."""
        from service.datasets import Meter

        self.name = name
        remote = client.learner(name)
        self.learner: Document = remote.describe()
        self.metrics: Document = remote.metrics()
        self.alarms: deque[Document] = deque(remote.alarms()["alarms"], maxlen=_ALARMS)
        self.trouble: str | None = None  # why nothing comes just now
        self._curve: deque[float | None] = deque(maxlen=_POINTS)
        self._curve.extend(point.get(self._axis) for point in remote.history()["points"])
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
        """Events learnt and scored per second, lately; nothing before that is known."""
        learnt, served = self._learnt.speed(), self._served.speed()
        if learnt is None or served is None:
            return ""
        return f"{learnt:,.0f} learnt/s" + (f", {served:,.0f} scored/s" if served >= 0.5 else "")

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
        now = Text(words[0][1], "bold")
        if self.metrics["window"].get("auc_interval"):
            low, high = self.metrics["window"]["auc_interval"]
            now.append(f"   95 % interval {figure(low)} to {figure(high)}", "not bold dim")
        body.add_row(words[0][0], now)
        body.add_row("course", self._drawn())
        rest = Text("   ").join([Text.assemble((f"{name} ", "dim"), value) for name, value in words[1:]])
        body.add_row("", rest)
        learnt = f"{self.metrics['events']:,} learnt{self._counted()}"
        body.add_row("events", "   ".join(filter(None, [learnt, self.rates()])))
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

    def _drawn(self) -> _Curve:
        """The figure's curve up to now, as wide as there is room, and between what values it goes."""
        from service.cli.format import sparkline

        course = [*self._curve, self.metrics["window"][self._axis]]  # the newest point is some events old
        known = [one for one in course if one is not None]
        ends = f"lowest {figure(min(known))}, highest {figure(max(known))}" if known else "-"
        return _Curve(lambda width: sparkline(course, width, plain=self._plain), ends)


class _Curve:
    """A line that fits its place: Rich asks for it with the width that there is."""

    def __init__(self, draw: Callable[[int], str], ends: str) -> None:
        self._draw, self._ends = draw, ends

    def __rich_console__(self, _console: Console, options: Any) -> Any:
        from rich.text import Text

        room = options.max_width - len(self._ends) - 2
        curve = Text(self._draw(min(100, room if room >= _NARROW else options.max_width)), "green", no_wrap=True)
        ends = Text(self._ends, "dim")
        if room < _NARROW:
            yield from (curve, ends)
        else:
            yield Text("  ").join(filter(None, [curve, ends]))


def follow(client: Client, watched: Watched, tell: Callable[[str, Document], None]) -> None:
    """Take every event of the stream and `tell` of it, for good; where it breaks off it is opened again.

    Raises `CommandFailed` where the learner is deleted, or refused. Nothing is missed: the stream goes on after the
    last event that came.
    """
    from rarestream import ClientError

    last: str | None = None
    pause = _FIRST_PAUSE
    while True:
        try:
            with client.learner(watched.name).events(last) as events:
                for event in events:
                    if event.kind == "gone":
                        gone = CommandFailed(str(event.data.get("detail", f"{watched.name} is gone")))
                        gone.exit_status = ExitStatus.NOT_FOUND
                        raise gone
                    watched.trouble = None
                    last, pause = event.id or last, _FIRST_PAUSE
                    watched.take(event.kind, event.data)
                    tell(event.kind, event.data)
            why = "the service closed the stream"
        except ClientError as error:
            if error.status is not None and error.status < 500 and error.status != 429:
                raise
            why = error.detail.partition("\n")[0]
        watched.trouble = f"{why}; trying again"
        tell("trouble", {"detail": watched.trouble})
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _live(client: Client, watched: Watched, out: Console) -> None:
    """Redraw one place of the terminal."""
    from rich.live import Live

    with Live(get_renderable=watched.frame, console=out, refresh_per_second=_REFRESHES, vertical_overflow="crop"):
        follow(client, watched, lambda *_: None)


def _line(out: Console, watched: Watched, kind: str, data: Document) -> None:
    """A change as a line of text."""
    now = datetime.now().astimezone().strftime("%H:%M:%S")
    if kind == "figures":
        words = [f"{name} {value}" for name, value in watched.words()]
        learnt = counted(watched.metrics["events"], "event")
        out.print("  ".join(filter(None, [now, learnt, *words, watched.rates()])))
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
