"""How the benchmark of the service turns what it measures into figures and verdicts, and where it runs."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks.service import processors
from benchmarks.service.http_load import LoadFailed, Traffic
from benchmarks.service.processors import Cores, choose, cpu_seconds, pinned, resident_bytes
from benchmarks.service.report import print_case
from benchmarks.service.rounds import Case, Sample, Verdict, contest, sample

pytestmark = pytest.mark.integration


def sample_of(answered: int, server: float = 1.0, p99: float = 2.0) -> Sample:
    return Sample(answered, 10 * answered, 2.0, server, 0.5, (1.0, p99, 3.0))


def test_contestants_alternate_and_figures_are_medians_of_rounds() -> None:
    turns: list[tuple[str, float]] = []
    figures = {"a": [1, 100, 300, 200], "b": [1, 50, 100, 400]}

    def measured(name: str, seconds: float) -> Sample:
        turns.append((name, seconds))
        return sample_of(figures[name][len([turn for turn, _ in turns if turn == name]) - 1])

    def refused(seconds: float) -> Sample:
        turns.append(("c", seconds))
        raise LoadFailed(415, "not that")

    contestants = {"a": lambda s: measured("a", s), "c": refused, "b": lambda s: measured("b", s)}
    result = contest(contestants, 3, 7.0)
    assert turns == [("a", 0.3), ("c", 0.3), ("b", 0.3), *[("a", 7.0), ("b", 7.0)] * 3]
    assert result.absent.keys() == {"c"}
    assert "415" in result.absent["c"]
    assert result.median("a", lambda item: item.answered) == 200
    assert result.ratio("a", "b", lambda item: item.answered) == 2.0  # of 2, 3 and 0.5: round by round
    assert result.ratio("a", "c", lambda item: item.answered) is None
    assert result.median("c", lambda item: item.answered) is None
    a, b, c = result.rows()
    assert (a["what"], a["per second"], a["events/s"], a["per core-second"]) == ("a", 100.0, 1000.0, 200.0)
    assert (a["CPU us each"], a["p99 ms"], a["sender busy"]) == (5000.0, 2.0, 0.25)
    assert b["what"] == "b"
    assert c == {"what": "c", "absent": result.absent["c"]}


def test_a_contestant_failing_in_a_later_round_ends_the_comparison() -> None:
    calls = iter([sample_of(1)])

    def fails(_: float) -> Sample:
        try:
            return next(calls)
        except StopIteration:
            raise LoadFailed(503, "no more") from None

    with pytest.raises(LoadFailed) as failed:
        contest({"a": fails}, 2, 1.0)
    assert failed.value.status == 503


def test_a_sample_summarises_the_traffic() -> None:
    result = sample(Traffic(np.arange(1.0, 1001.0), 4.0, 0.5, 0.25, []), 20)
    assert (result.answered, result.events, result.per_second, result.events_per_second) == (
        1000,
        20_000,
        250.0,
        5000.0,
    )
    assert result.per_core_second == 4000.0
    assert result.tails == pytest.approx((500.5, 990.01, 999.001))
    assert result.p99 == result.tails[1]
    idle = result._replace(server=0.0)
    assert idle.per_core_second == 100_000.0  # less than a tick counts as one


@pytest.mark.parametrize(
    ("reached", "target", "bound", "difference"),
    [
        (0.6, 0.6, "at least", []),
        (0.45, 0.6, "at least", ["25%"]),
        (1.5, 1.5, "at most", []),
        (3.0, 1.5, "at most", ["100%"]),
        (None, 1.5, "at most", []),
    ],
)
def test_a_verdict_quantifies_the_difference(
    reached: float | None, target: float, bound: str, difference: list[str]
) -> None:
    verdict = Verdict("what", reached, target, bound)  # type: ignore[arg-type]
    assert re.findall(r"\d+%", verdict.text) == difference
    assert verdict.as_json() == {"what": "what", "reached": reached, bound: target, "verdict": verdict.text}


def test_a_case_is_printed_completely() -> None:
    rows = [
        {"what": "one", "events/s": 1234567.8, "requests": 7, "sender busy": 0.25},
        {"what": "two", "p50 ms": 0.12345},
        {"what": "three", "absent": "HTTP 415: [not] that"},
    ]
    out = io.StringIO()
    verdicts = [Verdict("speed", 120.04, 50.0), Verdict("tail", None, 1.5, "at most")]
    print_case(Case("the title", rows, verdicts, ["a note"]), Console(file=out, width=150))
    output = out.getvalue()
    for part in (
        "the title",
        "1,234,568",
        "25%",
        "0.123",
        "three: HTTP 415: [not] that",
        "at least 50.00",
        "120.0",
        "a note",
    ):
        assert part in output
    for verdict in verdicts:
        assert verdict.text in output


def test_cores_share_no_hardware_thread_if_enough_exist() -> None:
    pairs = {core: {core & ~1, core | 1} for core in range(6)}
    assert choose({0, 1, 2, 3, 4, 5}, pairs) == Cores(0, 2, 4)
    assert choose({0, 1, 2, 3}, pairs) == Cores(0, 2, 1)
    assert choose({0, 1}, pairs) == Cores(0, 1, 1)
    assert choose({3}, pairs) == Cores(3, 3, 3)
    assert choose({3}, pairs).shared
    assert not choose({2, 3}, pairs).shared
    assert choose().server in os.sched_getaffinity(0)


def test_a_child_of_a_pinned_process_inherits_its_core() -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    with pinned(core):
        program = "import os; print(sorted(os.sched_getaffinity(0)))"
        process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert os.sched_getaffinity(0) == {core}
    assert process.stdout.strip() == f"[{core}]"
    assert os.sched_getaffinity(0) == before


_WORK = "import os, time; sum(range(10**6)); print(time.process_time(), flush=True); input()"
_ABOVE = f"""
import os, subprocess, sys, time
below = subprocess.Popen([sys.executable, "-c", {_WORK!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
used = float(below.stdout.readline())
print(time.process_time(), used, flush=True)
input()
below.communicate("done")
"""


def test_process_usage_equals_kernel_accounting_including_children() -> None:
    command = [sys.executable, "-c", _ABOVE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        own_time, below = map(float, process.stdout.readline().split())
        result = cpu_seconds(process.pid)
        process.communicate("done")
    assert below > 0
    # user and system time are each rounded down to 1/100 s; both processes are idle after their report
    assert own_time + below - 0.04 - 1e-9 <= result <= own_time + below + 0.1
    assert resident_bytes(os.getpid()) % processors._PAGE == 0 < resident_bytes(os.getpid()) < 2**40


def test_cpu_siblings_are_parsed_as_lists_and_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda _: True)
    monkeypatch.setattr(Path, "read_text", lambda _: "0-2,5\n")
    assert processors._siblings(0) == {0, 1, 2, 5}
