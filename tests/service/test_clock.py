"""The time of day for events: a step of the machine's clock does not count."""

from __future__ import annotations

import pytest

from service.clock import STEP_SECONDS
from tests.harness.fixtures import START, Machine

DAY = 86_400.0


@pytest.mark.parametrize("step", [3 * DAY, -7200.0, STEP_SECONDS + 1, -STEP_SECONDS - 1])
def test_a_step_does_not_count_until_the_clock_is_right_again(step: float) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wait(1000.0)
    assert clock.now() == START + 1000.0
    machine.step(step)
    for _ in range(3):
        machine.wait(DAY / 2)
        assert clock.now() == machine.time - step
        assert clock.offset == step
        assert clock.stepped
    machine.step(-step)
    assert clock.now() == machine.time
    assert clock.offset == 0.0
    assert not clock.stepped


@pytest.mark.parametrize("step", [STEP_SECONDS - 1, 1 - STEP_SECONDS])
def test_a_small_step_counts_and_many_of_them_are_a_large_one(step: float) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.step(step)
    machine.wait(10.0)
    assert clock.now() == machine.time
    machine.step(step)
    assert clock.now() == pytest.approx(machine.time - 2 * step, abs=0.1)
    machine.step(-step)
    machine.wait(DAY)  # in which the first one is absorbed
    assert clock.now() == machine.time
    machine.step(step)
    assert clock.now() == machine.time


@pytest.mark.parametrize("rate", [0.9995, 1.0005])
def test_a_clock_that_is_corrected_all_the_time_counts(rate: float) -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(1000):  # a month; 1,300 s in all
        machine.elapsed += DAY / 32
        machine.time += rate * DAY / 32
        assert clock.now() == machine.time


def test_another_time_counts_until_the_machine_agrees_with_it() -> None:
    machine = Machine()
    clock = machine.clock()
    clock.count_from(START - DAY)
    machine.wait(10.0)
    assert clock.now() == START - DAY + 10.0
    assert not clock.stepped  # the machine's clock runs evenly
    machine.step(-DAY)
    assert clock.now() == machine.time
    machine.step(DAY)
    assert clock.now() == machine.time - DAY
    clock.accept()
    assert clock.now() == machine.time
    assert clock.offset == 0.0
