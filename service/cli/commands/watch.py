"""`rarestream watch`: the metrics of a learner, live."""

from __future__ import annotations

import json
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from service.cli.commands.show import describe_alarm
from service.cli.options import flag
from service.cli.options_service import DEFAULT_URL, Key, Name, Url, connected, console, print_json, reporting
from service.exits import CommandFailed, ExitStatus
from service.text import counted, figure, share

if TYPE_CHECKING:
    from rich.console import Console
    from rich.panel import Panel

    from rarestream import Client

__all__ = ["WatchedLearner", "follow", "watch"]

Document = Mapping[str, Any]

_POINTS = 500  # of the curve
_WIDTH = 100  # width of a frame without a terminal
_NARROW = 16  # least width of a curve beside its range; else the range is below it
_ALARMS = 3  # alarms shown
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds before the stream is reopened
_REFRESHES = 4  # most refreshes of the terminal per second


def watch(
    name: Name,
    once: Annotated[bool, flag("--once", help="Show the present metrics and exit.")] = False,
    as_json: Annotated[bool, flag("--json", help="Print a JSON object per event; with --once the metrics.")] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Watch a learner live: AUC as a curve, F1, rates, alarms. Ctrl-C ends it.

    Without a terminal it prints a line per change. If the service goes away,
    it waits and then continues without a gap.
    """
    with reporting(), connected(url, key) as client:
        if once and as_json:
            print_json(client.learner(name).metrics())
            return
        out = console()
        plain = not out.encoding.lower().startswith("utf")
        watched = WatchedLearner(client, name, plain=plain, width=None if out.is_terminal else _WIDTH)
        if once:
            out.print(watched.frame())
            return
        before = signal.signal(signal.SIGTERM, _raise_exit)  # restores the terminal on SIGTERM
        try:
            if as_json:
                follow(client, watched, lambda kind, data: print(json.dumps({"event": kind, **data}), flush=True))
            elif out.is_terminal:
                _live(client, watched, out)
            else:
                follow(client, watched, lambda kind, data: _line(out, watched, kind, data))
        except KeyboardInterrupt:  # the usual end
            return
        finally:
            signal.signal(signal.SIGTERM, before)


def _raise_exit(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise SystemExit(128 + number)


class WatchedLearner:
    """A learner and its metrics, updated by the events of the stream."""

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        plain: bool = False,
        width: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the learner; `plain`: draw the curve in ASCII; `width`: of a frame, None for the terminal's."""
        from service.pacing import Meter

        self.name = name
        remote = client.learner(name)
        self.learner: Document = remote.describe()
        self.metrics: Document = remote.metrics()
        self.alarms: deque[Document] = deque(remote.alarms()["alarms"], maxlen=_ALARMS)
        self.trouble: str | None = None  # why no events arrive
        self._curve: deque[float | None] = deque(maxlen=_POINTS)
        self._curve.extend(point.get(self._axis) for point in remote.history()["points"])
        self._plain = plain
        self._width = width
        self._learnt, self._served = Meter(clock=clock), Meter(clock=clock)

    @property
    def ordinal(self) -> bool:
        """Whether it is an ordinal learner."""
        return "positive" not in self.metrics["class_counts"]

    @property
    def _axis(self) -> str:
        return "mae" if self.ordinal else "auc"

    def take(self, kind: str, data: Document) -> None:
        """Apply an event of the stream."""
        if kind == "figures":
            self._learnt.add(max(0, data["events"] - self.metrics["events"]))
            self._served.add(max(0, _served(data) - _served(self.metrics)))
            self.metrics = data
        elif kind == "point":
            self._curve.append(data.get(self._axis))
        elif kind == "alarm":
            self.alarms.append(data)
        elif kind == "reset":  # a roll-back: all points are sent again
            self._curve.clear()

    def rates(self) -> str:
        """Return the recent events learnt and scored per second; empty until they are known."""
        learnt, served = self._learnt.speed(), self._served.speed()
        if learnt is None or served is None:
            return ""
        return f"{learnt:,.0f} learnt/s" + (f", {served:,.0f} scored/s" if served >= 0.5 else "")

    def words(self) -> list[tuple[str, str]]:
        """Return the metrics of the window with their names."""
        window = self.metrics["window"]
        names = [("MAE", "mae"), ("accuracy", "accuracy")]
        if not self.ordinal:
            names = [("AUC", "auc"), ("F1", "f1"), ("precision", "precision"), ("recall", "recall")]
        texts = [(name, figure(window[key])) for name, key in names]
        if self.ordinal:
            return texts
        threshold = figure(self.metrics["threshold"])
        return [*texts, ("alert rate", share(window["alert_rate"])), ("threshold", threshold)]

    def frame(self) -> Panel:
        """Return the frame of a terminal."""
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
        body.add_row("trend", self._present_curve())
        rest = Text("   ").join([Text.assemble((f"{name} ", "dim"), value) for name, value in words[1:]])
        body.add_row("", rest)
        learnt = f"{self.metrics['events']:,} learnt{self._counted()}"
        body.add_row("events", "   ".join(filter(None, [learnt, self.rates()])))
        if not self.learner["ready"] and self.metrics["window"].get(self._axis) is None:
            body.add_row("", Text(f"not ready: {self.learner['not_ready']}", "yellow"))
        for alarm in self.alarms:
            body.add_row(Text("alarm", "red"), describe_alarm(alarm))
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

    def _present_curve(self) -> _Curve:
        """Return the curve up to now, as wide as the terminal allows, with its range."""
        from service.cli.format import sparkline

        points = [*self._curve, self.metrics["window"][self._axis]]  # because the newest point is some events old
        values = [value for value in points if value is not None]
        ends = f"lowest {figure(min(values))}, highest {figure(max(values))}" if values else "-"
        return _Curve(lambda width: sparkline(points, width, plain=self._plain), ends)


class _Curve:
    """A line that adapts to the width that Rich gives it."""

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


def follow(client: Client, watched: WatchedLearner, report: Callable[[str, Document], None]) -> None:
    """Apply every event of the stream and `report` it, forever; reopen the stream if it breaks.

    No event is missed: the stream resumes after the last one. Raises `CommandFailed` if the learner is deleted or the
    service refuses.
    """
    from rarestream import ClientError

    last: str | None = None
    pause = _FIRST_PAUSE
    while True:
        try:
            with client.learner(watched.name).events(last) as events:
                for event in events:
                    if event.kind == "gone":
                        ended = CommandFailed(str(event.data.get("detail", f"{watched.name} is gone")))
                        deleted = event.data.get("code") == "unknown-learner"
                        ended.exit_status = ExitStatus.NOT_FOUND if deleted else ExitStatus.FAILED
                        raise ended
                    watched.trouble = None
                    last, pause = event.id or last, _FIRST_PAUSE
                    watched.take(event.kind, event.data)
                    report(event.kind, event.data)
            why = "the service closed the stream"
        except ClientError as error:
            if error.status is not None and error.status < 500 and error.status != 429:
                raise
            why = error.detail.partition("\n")[0]
        watched.trouble = f"{why}; trying again"
        report("trouble", {"detail": watched.trouble})
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _live(client: Client, watched: WatchedLearner, out: Console) -> None:
    """Redraw the frame on the terminal."""
    from rich.live import Live

    with Live(get_renderable=watched.frame, console=out, refresh_per_second=_REFRESHES, vertical_overflow="crop"):
        follow(client, watched, lambda *_: None)


def _line(out: Console, watched: WatchedLearner, kind: str, data: Document) -> None:
    """Print a change as a line."""
    now = datetime.now().astimezone().strftime("%H:%M:%S")
    if kind == "figures":
        words = [f"{name} {value}" for name, value in watched.words()]
        learnt = counted(watched.metrics["events"], "event")
        out.print("  ".join(filter(None, [now, learnt, *words, watched.rates()])))
    elif kind == "alarm":
        out.print(f"{now}  ALARM {describe_alarm(data)}")
    elif kind == "reset":
        out.print(f"{now}  rolled back")
    elif kind == "trouble":
        out.print(f"{now}  {data['detail']}")


def _served(metrics: Document) -> int:
    served = metrics["served"]
    count: int = served if isinstance(served, int) else served["events"]
    return count
