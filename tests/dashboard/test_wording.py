"""The words of the dashboard's verdicts, which the command line uses too.

A changed sentence changes one row here.
"""

from __future__ import annotations

import itertools

from service.cli.commands.compare import verdict_of
from tests.dashboard.conftest import Opener
from tests.dashboard.serving import Serving


def pair(a: str, b: str, verdict: str | None, a_better: float, b_better: float) -> dict[str, object]:
    """Return the test of a pair, decided at event 10 if there is a verdict."""
    evidence = {"a_better": a_better, "b_better": b_better}
    return {"a": a, "b": b, "verdict": verdict, "evidence": evidence, "since_events": 10, "since_clock": None}


LATER = {"one": 0.9, "two": 0.95, "three": 0.9123}
OPEN = pair("one", "two", None, 0.2, 0.1)
ONE_THREE, TWO_THREE = pair("one", "three", "a", 3.0, 0.0), pair("two", "three", "a", 2.0, 0.0)
TWO_ONE = pair("one", "two", "b", 0.0, 3.0)
TWO_OF_THREE = (
    "open one is better than three; two is better than three.  "
    "2 of 3 pairs are decided, and not yet which learner is best."
)
SURE = "99.8\N{NO-BREAK SPACE}% sure since event 10; keep watching"
TWO_IS_BETTER = f"decided two is better than one:  {SURE}"

# AUCs in the windows, tests of the pairs; the summary
SUMMARIES: list[tuple[dict[str, float], list[dict[str, object]], str]] = [
    ({}, [OPEN, ONE_THREE, TWO_THREE], TWO_OF_THREE),
    (
        LATER, [OPEN, ONE_THREE, TWO_THREE],
        f"{TWO_OF_THREE} In the windows above one's AUC is behind three's by 0.0123.",
    ),
    (
        {},
        [
            *(pair("one", other, "a", 3.0, 0.0) for other in ("two", "three", "four", "five")),
            pair("six", "one", None, 0.0, 0.0),
        ],
        "open one is better than two; one is better than three; one is better than four; \N{HORIZONTAL ELLIPSIS}  "
        "4 of 5 pairs are decided, and not yet which learner is best.",
    ),
    (
        {}, [OPEN, ONE_THREE, pair("two", "three", None, 0.0, 0.0)],
        "open one is better than three.  1 of 3 pairs is decided, and not yet which learner is best.",
    ),
    # a decided pair with too little evidence by now is decided no longer
    (
        LATER, [OPEN, pair("one", "three", "a", 1.5, 0.0), pair("two", "three", "b", 0.0, 1.0)],
        "open None of 3 pairs is decided.  Keep watching: the nearest is one or three, evidence 32 to 1; "
        "40 to 1 decides.",
    ),
    ({}, [TWO_ONE], f"{TWO_IS_BETTER}."),
    (LATER, [TWO_ONE], f"{TWO_IS_BETTER}."),
    ({"one": 0.95, "two": 0.9}, [TWO_ONE], f"{TWO_IS_BETTER}: in the windows above its AUC is behind by 0.0500."),
    ({"one": 0.95}, [TWO_ONE], f"{TWO_IS_BETTER}."),  # the other is not in memory
    (
        LATER, [pair("one", "two", "a", 3.0, 0.0), ONE_THREE, pair("two", "three", None, 0.0, 0.0)],
        f"decided one is better than each of the others:  {SURE}: in the windows above its AUC is behind two's by "
        "0.0500.",
    ),
]  # fmt: skip

# verdict, evidence now, difference of the AUCs; what follows the verdict on a duel
DUELS: list[tuple[str, float, float | None, str]] = [
    ("a", 3, -0.0123, f" {SURE}: in the window its AUC is behind by 0.0123."),
    ("b", 3, 0.0123, f" {SURE}: in the window its AUC is behind by 0.0123."),
    (
        "a", 1, -0.0123,
        " decided at event 10, but the evidence is 10 to 1 by now; keep watching: "
        "in the window its AUC is behind by 0.0123.",
    ),
    *(("a", 3, ahead, f" {SURE}.") for ahead in (0.0123, 0, -1e-9, None)),
]  # fmt: skip


async def test_summaries_of_a_group(served: Serving, visit: Opener) -> None:
    page = await visit(served.url, "#/compare")
    say = """([aucs, ...tests]) => import('./static/verdicts.js').then(({summaryOf}) =>
        Object.values(summaryOf('all', 20, tests, 0.05, (name) => aucs[name] ?? null)).join(' '))"""
    for aucs, tests, summary in SUMMARIES:
        assert await page.evaluate(say, [aucs, *tests]) == summary


async def test_verdicts_on_a_duel(served: Serving, visit: Opener) -> None:
    page = await visit(served.url, "#/compare")
    say = """([verdict, present, difference]) => import('./static/verdicts.js').then(({verdictsOf}) => {
        const evidence = {a_better: present, b_better: present};
        const test = {a: "one", b: "two", verdict, evidence, since_events: 10, since_clock: null};
        return verdictsOf("duel", 20, [test], 0.05, [{difference}])[0].more;
    })"""
    for verdict, present, difference, words in DUELS:
        assert await page.evaluate(say, [verdict, present, difference]) == words


async def test_the_command_line_uses_the_same_words(served: Serving, visit: Opener) -> None:
    page = await visit(served.url, "#/compare")
    say = """([tests, difference]) => import('./static/verdicts.js').then(({verdictsOf}) =>
        verdictsOf("duel", 2000, tests, 0.05, tests.map(() => ({difference})))
            .map(({verdict, more}) => verdict + more))"""
    evidence = (-9.0, -2.5, 0.0, 0.49, 0.51, 1.6, 2.0, 3.21, 4.29, 4.31, 5.999, 6.0, 12.3, 107.0)
    tests = [
        {"a": "x", "b": "y", "verdict": verdict, "evidence": {"a_better": item, "b_better": other},
         "since_events": 1234, "since_clock": None}
        for verdict, item, other in itertools.product((None, "a", "b"), evidence, evidence)
    ]  # fmt: skip
    for difference in (None, 0.0123, -0.0123):
        verdict = await page.evaluate(say, [tests, difference])
        assert [item.replace("\N{NO-BREAK SPACE}", " ") for item in verdict] == [
            verdict_of(test, 0.05, difference) for test in tests
        ]
