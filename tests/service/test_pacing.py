"""The rate limit, the meter of the speed, and signals."""

from __future__ import annotations

import os
import signal

import pytest

from service.pacing import Interruption, Meter, Pace


class Time:
    """A clock that moves only by waiting."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        return False


@pytest.fixture
def test_a_pace_spreads_events_over_time() -> None:
    time = Time()
    pace = Pace(100.0, time.wait, time.clock)
    requests = []
    for _ in range(5):
        assert not pace(50)
        requests.append(time.now)
    assert requests == [100.0, 100.5, 101.0, 101.5, 102.0]


def test_a_pace_catches_up_by_one_second_at_most() -> None:
    time = Time()
    pace = Pace(10.0, time.wait, time.clock)
    time.now += 60
    free = 0
    while not time.waits or time.waits[-1] == 0:
        pace(1)
        free += 1
    assert free == 12  # 10 for the second behind, one now, and the one that had to wait


def test_without_a_rate_nothing_waits_but_interrupts_are_seen() -> None:
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return True

    assert Pace(None, wait)(1000)
    assert waits == [0]


def test_a_meter_forgets_old_events() -> None:
    time = Time()
    meter = Meter(seconds=5.0, clock=time.clock)
    for _ in range(10):
        time.now += 1
        meter.add(1000)
    assert meter.speed() == pytest.approx(1000)
    for _ in range(7):
        time.now += 1
        meter.add(10)
    assert meter.speed() == pytest.approx(10)
    assert meter.events == 10_070
    time.now += 0.1
    meter.add(1000)
    time.now += 5
    assert meter.speed() == 0


def test_a_meter_starts_with_the_first_events() -> None:
    time = Time()
    meter = Meter(seconds=5.0, clock=time.clock)
    assert meter.speed() is None
    time.now += 40  # of compiling
    meter.add(250)
    assert meter.speed() is None
    for _ in range(3):
        time.now += 0.25
        meter.add(250)
        assert meter.speed() == pytest.approx(1000)
    assert meter.events == 1000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_recorded_and_its_handler_restored(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interruption() as interruption:
        assert not interruption
        assert not interruption.wait(0)
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # at once: a wrapper that signals the process and its group
        assert interruption.wait(60)
        assert interruption.signal == number
    assert signal.getsignal(number) is before


def test_a_second_interrupt_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time()
    monkeypatch.setattr("service.pacing.time.monotonic", time.clock)
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
        time.now += 2
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert interruption.signal == signal.SIGINT
