"""Verdicts in words: those of the dashboard, which the command line says, too."""

from __future__ import annotations

import itertools

from service.cli.commands.compare import verdict_of
from tests.dashboard.conftest import Opener
from tests.dashboard.serving import Serving


async def test_a_partly_decided_group_names_the_decided_pairs(served: Serving, visit: Opener) -> None:
    def pair(a: str, b: str, verdict: str | None, a_better: float, b_better: float) -> dict[str, object]:
        evidence = {"a_better": a_better, "b_better": b_better}
        return {"a": a, "b": b, "verdict": verdict, "evidence": evidence, "since_events": 10, "since_clock": None}

    page = await visit(served.url, "#/compare")
    say = """([aucs, ...tests]) => import('./static/verdicts.js').then(({summaryOf}) =>
        Object.values(summaryOf('all', 20, tests, 0.05, (name) => aucs[name] ?? null)).join(' '))"""
    none: dict[str, float] = {}
    later = {"one": 0.9, "two": 0.95, "three": 0.9123}
    open_pair = pair("one", "two", None, 0.2, 0.1)
    decided = [pair("one", "three", "a", 3.0, 0.0), pair("two", "three", "a", 2.0, 0)]
    verdicts = await page.evaluate(say, [none, open_pair, *decided])
    verdict = (
        "open one is better than three; two is better than three.  "
        "2 of 3 pairs are decided, and not yet which learner is best."
    )
    assert verdicts == verdict
    verdicts = await page.evaluate(say, [later, open_pair, *decided])
    assert verdicts == f"{verdict} In the windows above one's AUC is behind three's by 0.0123."
    many = [pair("one", other, "a", 3.0, 0.0) for other in ("two", "three", "four", "five")]
    verdicts = await page.evaluate(say, [none, *many, pair("six", "one", None, 0.0, 0.0)])
    assert verdicts.startswith(
        "open one is better than two; one is better than three; one is better than four; \N{HORIZONTAL ELLIPSIS}  4 of "
    )
    pairs = [open_pair, pair("one", "three", "a", 3, 0), pair("two", "three", None, 0, 0)]
    verdicts = await page.evaluate(say, [none, *pairs])
    assert verdicts.endswith("1 of 3 pairs is decided, and not yet which learner is best.")
    # what was decided once, and has too little evidence by now, is decided no longer
    pairs = [open_pair, pair("one", "three", "a", 1.5, 0.0), pair("two", "three", "b", 0, 1)]
    verdicts = await page.evaluate(say, [later, *pairs])
    assert verdicts.startswith(
        "open None of 3 pairs is decided.  Keep watching: the nearest is one or three, evidence 32"
    )
    two_is = "decided two is better than one:  99.8\N{NO-BREAK SPACE}% sure since event 10; keep watching"
    for aucs, end in (
        (none, "."),
        (later, "."),
        ({"one": 0.95, "two": 0.9}, ": in the windows above its AUC is behind by 0.0500."),
        ({"one": 0.95}, "."),  # the other is asleep
    ):
        assert await page.evaluate(say, [aucs, pair("one", "two", "b", 0.0, 3.0)]) == two_is + end
    best = [pair("one", "two", "a", 3.0, 0.0), pair("one", "three", "a", 3.0, 0.0), pair("two", "three", None, 0, 0)]
    verdicts = await page.evaluate(say, [later, *best])
    assert verdicts.endswith("since event 10; keep watching: in the windows above its AUC is behind two's by 0.0500.")


async def test_a_verdict_contradicted_by_the_window_is_flagged(served: Serving, visit: Opener) -> None:
    page = await visit(served.url, "#/compare")
    say = """([verdict, present, difference]) => import('./static/verdicts.js').then(({verdictsOf}) => {
        const evidence = {a_better: present, b_better: present};
        const test = {a: "one", b: "two", verdict, evidence, since_events: 10, since_clock: null};
        return verdictsOf("duel", 20, [test], 0.05, [{difference}])[0].more;
    })"""
    behind = "keep watching: in the window its AUC is behind by 0.0123."
    assert (await page.evaluate(say, ["a", 3, -0.0123])).endswith(behind)
    assert (await page.evaluate(say, ["b", 3, 0.0123])).endswith(behind)
    assert (await page.evaluate(say, ["a", 1, -0.0123])).endswith(f"to 1 by now; {behind}")
    for ahead in (0.0123, 0, -1e-9, None):
        assert (await page.evaluate(say, ["a", 3, ahead])).endswith("since event 10; keep watching.")


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
