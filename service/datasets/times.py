"""Reads the times of files and of flat messages as seconds since the epoch. No I/O.

A time is a moment from 1980 on. Every function raises `ValueError` with a text that says what is wrong.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

from rarestream.values import EARLIEST_TIME, LATEST_TIME
from service.datasets.number_cells import MISSING, is_number, number, plain_number

__all__ = ["TIME_UNITS", "EventTimes", "is_day", "timestamp"]

_DAY = re.compile(r"(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])(([01][0-9]|2[0-3])([0-5][0-9]){2})?")
_MONTH = re.compile(r"(19|20)[0-9]{2}(0[1-9]|1[0-2])?")
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "d": 86_400.0}  # in seconds
_MOMENT_UNITS = {unit: TIME_UNITS[unit] for unit in ("s", "ms", "us", "ns")}  # of times since the epoch
_DOTTED = re.compile(r"(?P<day>[0-9]{1,2})\.(?P<month>[0-9]{1,2})\.(?P<year>[0-9]{4})(?P<rest>([ T].*)?)")
_YEAR_10000 = 253_402_300_800.0  # the first that a datetime has not
_AHEAD_SECONDS = 86_400.0  # that a time may be ahead of now


def is_day(digits: str) -> bool:
    """Tell whether digits are those of a date, or of a date with a time, as in 20191130 and 20191130130101."""
    return _DAY.fullmatch(digits) is not None


def timestamp(value: Any, format: str = "") -> float | None:
    """Parse a time: since the epoch, ISO 8601, or day.month.year; UTC without a zone. None if it is missing.

    A number counts seconds, milliseconds, microseconds or nanoseconds: the unit in which it is a moment from 1980 to
    2100. Eight digits such as 20191130 are a date, and fourteen a date with a time. With a `format` of `strptime`, text
    must have it. Raises ValueError for others.
    """
    return _read(value, format)[0]


def _read(value: Any, format: str) -> tuple[float | None, str]:
    """Return what `timestamp` does, and what a number counts; "" for text."""
    if isinstance(value, str):
        text = value.strip()
        if format:
            return None if text.lower() in MISSING else _seconds(datetime.strptime(text, format)), ""
    elif isinstance(value, int) and is_day(str(value)):
        text = str(value)
    else:
        return _since_epoch(plain_number("time", value))
    if text[4:5] == "/" and text[:4].isdecimal():  # the year is first, so the order is clear
        text = text.replace("/", "-", 2)
    if text[4:5] != "-":  # not a year, as most times have
        if is_day(text):
            text = f"{text[:8]}T{text[8:]}" if len(text) > 8 else text
        elif is_number(text):
            return _since_epoch(number(text))
        elif dotted := _DOTTED.fullmatch(text):
            text = f"{dotted['year']}-{dotted['month']:0>2}-{dotted['day']:0>2}{dotted['rest']}"
    try:
        moment = datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        spelt = str(value).strip()[:60]
        raise ValueError(f"{spelt!r} is neither seconds since the epoch nor an ISO 8601 time") from None
    return _seconds(moment), ""


def _since_epoch(number: float | None) -> tuple[float | None, str]:
    """Return the seconds of a number of seconds, milliseconds, microseconds or nanoseconds, and which it counts.

    Raises ValueError unless it is a moment from 1980 to 2100 in one of these units.
    """
    if number is None or number != number:
        return None, ""
    for unit, parts in (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        if EARLIEST_TIME <= number / parts <= LATEST_TIME:
            return number / parts, unit
    raise ValueError(
        f"the time {number:.15g} is no moment since 1980 in seconds, milliseconds, microseconds or nanoseconds"
    )


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class EventTimes:
    """Parses the times of the events of one file or stream, as `timestamp` does, or as numbers of a `unit`.

    The numbers of a file count one unit. If it is given, the first number decides: if that is a moment since 1980, so
    must be all others. Else all count from the beginning of the file, which is taken as 1980-01-01. A stream has no
    beginning, so `counters` of it are refused, and its numbers may count several units. The error names the option.
    Raises ValueError for a time that the service refuses: one before 1980, or ahead of now, such as 9999-12-31 for
    never.
    """

    def __init__(self, format: str = "", unit: str = "", counters: bool = True) -> None:
        self._format = format
        self._unit = unit
        self._start = None if unit and counters else 0.0  # seconds of the number 0; None: not decided
        self._mixed = not counters  # numbers may count several units
        self._first: tuple[str, str] | None = None  # number, and its unit or date

    @property
    def note(self) -> str | None:
        """What is said of numbers that count from the beginning of a file."""
        if not self._start or self._first is None:
            return None
        number, day = self._first
        return f"the times count {self._unit} from 0, which is taken as 1980-01-01; the first, {number}, is {day}"

    def __call__(self, value: Any) -> float | None:
        """Return the seconds since the epoch; None if the time is missing."""
        seconds, unit = (self._counted(value), self._unit) if self._unit else _moment(value, self._format)
        if seconds is None:
            return None
        if seconds < EARLIEST_TIME:
            raise ValueError(
                f"the time is {_spell(value, unit)} before 1980: if it means that there is none, give --missing, or "
                "null in a message"
            )
        if seconds > time.time() + _AHEAD_SECONDS:
            raise ValueError(f"the time {_spell(value, unit)} is {_day(seconds)}; expected at most a day ahead of now")
        if unit and not self._unit and not self._mixed:
            self._first = self._first or (str(value).strip()[:60], unit)
            if self._first[1] != unit:
                number, other = self._first
                raise ValueError(
                    f"the time {_spell(value, unit)} is {_day(seconds)}, but the first one, {number}, counts {other}: "
                    "write all times in one unit"
                )
        return seconds

    def _counted(self, value: Any) -> float | None:
        count = number(value) if isinstance(value, str) else plain_number("time", value)
        if count is None or count != count:
            return None
        seconds = count * TIME_UNITS[self._unit]
        if self._start is None and 0 <= seconds < EARLIEST_TIME:
            for unit, scale in _MOMENT_UNITS.items():
                if EARLIEST_TIME <= count * scale <= time.time() + _AHEAD_SECONDS:
                    raise ValueError(
                        f"the time {str(value).strip()[:60]} is before 1980 in {self._unit}, and a moment since 1980 "
                        f"in {unit}: leave --time-unit out, or give the unit that it counts"
                    )
            self._start = EARLIEST_TIME
            self._first = str(value).strip()[:60], _day(seconds + EARLIEST_TIME)
        elif self._start is None:
            self._start = 0.0
        return seconds + self._start


def _spell(value: Any, unit: str) -> str:
    return f"{str(value).strip()[:60]}{f', which counts {unit},' * bool(unit)}"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d") if seconds < _YEAR_10000 else "after the year 9999"


def _moment(value: Any, format: str) -> tuple[float | None, str]:
    """Return what `_read` does; the error names the option that explains the time."""
    try:
        return _read(value, format)
    except ValueError as error:
        if format or not isinstance(value, (str, int, float)):
            raise
        if month := _MONTH.fullmatch(str(value).strip()):
            kind, form = ("a year and month", "%Y%m") if month[2] else ("a year", "%Y")
            raise ValueError(f"the time {value} looks like {kind}: give --time-format {form}") from None
        if not isinstance(value, str) or is_number(value.strip()):
            raise ValueError(f"{error}: say what it counts with --time-unit {'|'.join(TIME_UNITS)}") from None
        raise ValueError(f"{error}; give its form with --time-format, which inspect looks for") from None
