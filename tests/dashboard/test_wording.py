"""The words of the dashboard; its verdicts use those of the command line. All other tests look at states.

A changed sentence changes one row here.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import pytest

from service.cli.commands.compare import verdict_of
from tests.dashboard.conftest import Opener
from tests.dashboard.replies import key, replying
from tests.dashboard.serving import Serving

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

expect = pytest.importorskip("playwright.async_api").expect

pytestmark = pytest.mark.integration


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
SURE = "evidence 1,000 to 1; 40 to 1 decides. Decided at event 10; keep watching."
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
    ({}, [OPEN], "open one or two: not decided.  Keep watching: evidence 1.6 to 1; 40 to 1 decides."),
    ({}, [TWO_ONE], TWO_IS_BETTER),
    (LATER, [TWO_ONE], TWO_IS_BETTER),
    ({"one": 0.95, "two": 0.9}, [TWO_ONE], f"{TWO_IS_BETTER} In the windows above its AUC is behind by 0.0500."),
    ({"one": 0.95}, [TWO_ONE], TWO_IS_BETTER),  # the other is not in memory
    (
        LATER, [pair("one", "two", "a", 3.0, 0.0), ONE_THREE, pair("two", "three", None, 0.0, 0.0)],
        f"decided one is better than each of the others:  {SURE} In the windows above its AUC is behind two's by "
        "0.0500.",
    ),
]  # fmt: skip

# verdict, evidence now, difference of the AUCs; what follows the verdict on a duel
DUELS: list[tuple[str, float, float | None, str]] = [
    ("a", 3, -0.0123, f" {SURE}|In the window its AUC is behind by 0.0123."),
    ("b", 3, 0.0123, f" {SURE}|In the window its AUC is behind by 0.0123."),
    (
        "a", 1, -0.0123,
        " decided at event 10, but the evidence is 10 to 1 by now; keep watching.|"
        "In the window its AUC is behind by 0.0123.",
    ),
    *(("a", 3, ahead, f" {SURE}|") for ahead in (0.0123, 0, -1e-9, None)),
]  # fmt: skip


async def test_summaries_of_a_group(served: Serving, visit: Opener) -> None:
    page = await visit(served.url, "#/compare")
    say = """([aucs, ...tests]) => import('./static/verdicts.js').then(({summaryOf}) =>
        Object.values(summaryOf('all', 20, tests, 0.05, (name) => aucs[name] ?? null)).join(' ').trim())"""
    for aucs, tests, summary in SUMMARIES:
        assert await page.evaluate(say, [aucs, *tests]) == summary


async def test_verdicts_on_a_duel(served: Serving, visit: Opener) -> None:
    page = await visit(served.url, "#/compare")
    say = """([verdict, present, difference]) => import('./static/verdicts.js').then(({verdictsOf}) => {
        const evidence = {a_better: present, b_better: present};
        const test = {a: "one", b: "two", verdict, evidence, since_events: 10, since_clock: null};
        const {more, now} = verdictsOf("duel", 20, [test], 0.05, [{difference}])[0];
        return `${more}|${now}`;
    })"""
    for verdict, present, difference, words in DUELS:
        assert await page.evaluate(say, [verdict, present, difference]) == words


async def test_the_command_line_uses_the_same_words(served: Serving, visit: Opener) -> None:
    page = await visit(served.url, "#/compare")
    say = """([tests, difference]) => import('./static/verdicts.js').then(({verdictsOf}) =>
        verdictsOf("duel", 2000, tests, 0.05, tests.map(() => ({difference})))
            .map(({verdict, more, now}) => verdict + more + (now && `\\n  ${now}`)))"""
    evidence = (-9.0, -2.5, 0.0, 0.49, 0.51, 1.6, 2.0, 3.21, 4.29, 4.31, 5.999, 6.0, 12.3, 107.0)
    tests = [
        {"a": "x", "b": "y", "verdict": verdict, "evidence": {"a_better": item, "b_better": other},
         "since_events": 1234, "since_clock": None}
        for verdict, item, other in itertools.product((None, "a", "b"), evidence, evidence)
    ]  # fmt: skip
    for difference in (None, 0.0123, -0.0123):
        verdict = await page.evaluate(say, [tests, difference])
        assert verdict == [verdict_of(test, 0.05, difference) for test in tests]


# ---- Sentences on the pages ------------------------------------------------------------------------------------------
#
# A scene is a place ("" stays on the page that is shown), steps there, and the sentences that are shown then, by the
# selectors of their elements; `@name` behind one is an attribute. An asterisk stands for a number or a time.

Scene = tuple[str, list[tuple[str, ...]], dict[str, str]]
MEMBER = "expected 1 to 100 of letters, digits, '.', '_', '-', a letter or digit first"
DETAIL = "not today"  # of refusals that are given in place of the service
IN_SETTING = "dialog .setting:has(> label:text-is('{}')) .{}".format
ON_FORM = ".create .setting:has(> label:text-is('{}')) > .{}".format
IN_PANEL = "section:has(> h3:text-is('{}')) .{}".format
IN_CHART = "figure:has(h3:text-is('{}')) .{}".format
NEWS, IN_DIALOG, ALERT = "#news > :last-child p", "dialog p >> nth={}".format, "dialog [role=alert]"
KERNELS = "kernels are compiled, once for this machine and version, which takes about a minute"
EVENT, NEW_NAME, GROUP_NAME = "The event in JSON", "Name of the new one", "Name of the group"
ESCAPE = ("key", "Escape")


def score(event: str) -> list[tuple[str, ...]]:
    """Return the steps that score an event."""
    return [("fill", EVENT, event), ("press", "Score it")]


HEADS = {
    "name": "Learner",
    "algorithm": "Algorithm",
    "rate": "Events/s",
    "positives": "Positives",
    "auc": "AUC",
    "trend": "AUC over time",
    "f1": "F1",
    "alerts": "Alert rate",
    "threshold": "Threshold",
    "delay": "Label delay",
    "drift": "Drift",
}
COLUMNS = {
    "rate": "events learnt or served each second, as this page has counted them over the last ten",
    "positives": "positives seen since the start, and their share",
    "auc": "of the window, with its 95 % interval; of an ordinal learner the mean absolute error",
    "trend": "at the last points of the history",
    "f1": "of the window; of an ordinal learner the accuracy",
    "alerts": "share of the window's events that were called positive",
    "threshold": "of the probability, as it is served now",
    "delay": "median, from an event to its label",
    "drift": "the newest drift alarm",
}
FIELD_COLUMNS = (
    "share of events with a number",
    "share of events with a number that was sent as text",
    "share of events with a text or a boolean",
    "share of events with a list",
    "share of events without a value",
    "share of events whose value contradicts the kind",
    "values that were new to the learner",
    "share of events whose number is far outside the range",
    "number; its logarithm if the field is declared under log",
    "about one in 100 numbers that are not 0 is below; the range follows the field",
    "about one in 100 numbers that are not 0 is above; the range follows the field",
    "number; its logarithm if the field is declared under log",
    "the last event that had a value",
)
OVERVIEW: list[Scene] = [
    ("#/", [], {
        "tr[data-key=fresh] .state": "not ready: no labelled event has been learnt yet",
        "tr[data-key=fresh] [data-column=threshold]@title": "no labelled event has been learnt yet",
        "tr[data-key=fresh] [data-column=trend] span@title": "no labelled events in the window",
        "tr[data-key=fresh] [data-column=positives] small": "no events yet",
        "tr[data-key=negative] [data-column=auc] small": "no positives in the window",
        "tr[data-key=pair] [data-column=auc] small": "no interval: only one negative in the window",
        "tr[data-key=pair] [data-column=auc]@title": "no 95 % interval: only one negative in the window",
        "tr[data-key=fraud] [data-column=trend] svg@aria-label": "AUC, last 4 points, now *",
        "tr[data-key=fraud] [data-column=delay]@title": "no label with a known delay in the window",
        "tr[data-key=ranks] [data-column=trend] svg@aria-label": "mean absolute error, last 1 point",
        "tr[data-key=ranks] [data-column=alerts]@title": "an ordinal learner gives ranks, no alerts",
        "tr[data-key=ranks] [data-column=positives]@title": "an ordinal learner has ranks, not positives",
        "article[data-key=idle] h3 small": "0 events compared",
        "article[data-key=idle] .finding":
            "Nothing is compared yet. Send events to /v1/groups/idle/update: they go to each learner. "
            "What its learners get otherwise is not compared.",
        "article[data-key=idle] li[data-key=fresh]@title": "no AUC to show: no labelled events in the window",
        "article[data-key=idle] li[data-key=pair]@title": "no 95 % interval: only one negative in the window",
        ".tools [value='name up']": "Learner, A to Z",
        ".tools [value='drift up']": "Drift, oldest first",
        ".tools [value='auc down']": "AUC, largest first",
        ".tools [value=attention]": "in need of attention",
        ".tools [value=drift]": "with a drift alarm",
        ".tools input@aria-label": "Filter by name or algorithm",
        "article[data-key=idle] .quiet": "AUC of each, in its own window",
        ".overview caption": "Learners and their live metrics",
        **{f".overview thead [data-column={column}]": words for column, words in HEADS.items()},
        **{f".overview th[data-column={column}]@title": words for column, words in COLUMNS.items()},
        ".tools [name=algorithm]@aria-label": "Algorithm",
        ".tools [name=state]@aria-label": "State",
        ".tools [name=sort]@aria-label": "Sort by",
        "a.skip": "Skip to the content",
        "nav [data-page=overview]": "Overview",
        "nav [data-page=compare]": "Compare",
        "nav [data-page=create]": "New learner",
        "nav [href=docs]": "API",
    }),
    ("#/?q=no+such+thing", [], {
        ".listed .message p >> nth=0": "No learner matches what is entered above.",
        ".listed .message button": "Show all",
    }),
    ("#/?sort=nonsense&order=sideways&state=nope&algorithm=zzz", [], {
        ".tools .unread":
            "Not followed: there is no learner with the algorithm “zzz”; there is no state “nope”; "
            "there is no column to sort by that is called “nonsense”; there is no order “sideways”.",
    }),
    ("#/nowhere", [], {
        ".message h1": "There is no such page",
        ".message p >> nth=0": "There is no page at /nowhere.",
        ".message a": "To the overview",
    }),
]  # fmt: skip

LEARNERS: list[Scene] = [
    ("#/learners/nobody", [], {
        ".message h1": "No learner nobody",
        ".message p >> nth=0": "there is no learner named nobody",
    }),
    ("#/learners/single", [], {
        ".tiles [data-key='/events'] small >> nth=0": "1 positive (20 %) since start",
        ".tiles [data-key='/events'] small >> nth=1": "1 positive (20 %) in the window's 5, at most 10,000",
        ".tiles [data-key='/window/label_coverage'] small >> nth=0": "since start 100 %",
        ".tiles [data-key='/window/label_coverage'] small >> nth=1": "1 event served since start",
        ".figures p":
            "The learner's clock is at *. 0 duplicates, 0 corrected labels. 1 event served, 1 of them labelled.",
        ".health [data-health=labels]": "100 % of the scored events have a label.",
        IN_CHART("Scores by class", "plot@aria-label"):
            "Scores by class. 4 negatives and 1 positive. No score parts alerts from the rest, a probability of *.",
    }),
    ("#/learners/pair", [], {
        ".tiles [data-key='/window/auc'] small >> nth=0": "no 95 % interval: only one negative in the window",
        ".title a": "All learners",
        ".actions [data-action=export]": "Export",
        ".range [name=from]@aria-label": "from (of the axis)",
        ".range [name=to]@aria-label": "to (of the axis)",
        ".range button >> nth=0": "1 h",
        ".range button >> nth=4": "All",
        ".health [data-health=labels]": "Label coverage: no served events in the window.",
        ".health [data-health=alarms]": "No open alarm.",
    }),
    ("", [("press", "Clone …")], {"dialog h2": "Clone pair", "dialog [type=button]": "Cancel"}),
    ("", [("press", "Clone it")], {"dialog [type=button]": "Close"}),  # which takes nothing back
    ("", [ESCAPE], {}),
    ("#/learners/fresh", [], {
        ".readiness": "not ready: no labelled event has been learnt yet",
        ".health [data-health=ranking]": "AUC: no labelled events in the window.",
        ".health [data-health=precision]": "Precision: no positive was predicted in the window.",
        ".health [data-health=alerts]": "Alerts: no labelled events in the window.",
        ".tiles [data-key='/window/auc'] small >> nth=0": "no labelled events in the window",
        "[data-panel=alarms] h3": "Alarms and annotations",
        "[data-panel=alarms] .quiet": "None so far.",
        "[data-panel=alarms] button": "Annotate …",
        ".scoring .buttons small": "Nothing is learnt from it, and it is not counted.",
        IN_PANEL("Snapshots", "quiet"):
            "None yet. One is taken by itself now and then, and with the button above.",
        IN_PANEL("Try a threshold", "quiet"): "Nothing to try: no labelled events in the window.",
        IN_CHART("Ranking", "nothing"): "Nothing to draw: no labelled events in the window.",
        IN_CHART("ROC", "nothing"): "Nothing to draw: no positives in the window yet.",
        IN_CHART("Scores by class", "nothing"): "Nothing to draw: no events in the window yet.",
    }),
    ("#/learners/negative", [], {
        ".tiles [data-key='/threshold'] small >> nth=0": "no labelled positive has been learnt yet",
        IN_PANEL("Try a threshold", "quiet"):
            "What thresholds would have done with 20 labelled events of the window, 0 positive.",
        ".trial .buttons >> nth=0": "None in forceSet this threshold …",
        ".outcomes p": "No precision as decided: no positive was predicted in the window. "
            "No recall: no positive in the window. No F1: no positive in the window. "
            "No alerts per day: fewer than two labelled events with a time in the window.",
        ".figures p":
            "The events have no times. 0 duplicates, 0 corrected labels. 0 events served, 0 of them labelled.",
        IN_CHART("Threshold", "nothing"): "Nothing to draw: no labelled positive has been learnt yet.",
        IN_CHART("Scores by class", "note"):
            "share of each class; no threshold: no labelled positive has been learnt yet",
        IN_CHART("Scores by class", "plot@aria-label"):
            "Scores by class. 20 negatives and 0 positives. No threshold: no labelled positive has been learnt yet.",
    }),
    ("", [("press", "Threshold …"), ("press", "Change threshold")], {
        NEWS:
            "The threshold of negative follows f1-window now; no threshold yet: "
            "no labelled positive has been learnt yet.",
    }),
    ("#/learners/hashed", [], {
        IN_PANEL("Largest weights", "quiet"):
            "4 of 4; intercept *. 3 unnamed so far: names appear with the next event that has the feature.",
        IN_PANEL("Fields", "quiet"): "2 fields of 200 events.",
        IN_PANEL("Fields", "scrolls@aria-label"): "Table of fields",
        **{IN_PANEL("Fields", f"number >> nth={i}@title"): words for i, words in enumerate(FIELD_COLUMNS)},
    }),
    ("#/learners/misspelt", [], {
        IN_PANEL("Fields", "quiet"):
            "2 fields of 1,000 events. No event has had Amount, declared for this learner. "
            "Values contradict the kind of 1 field.",
        IN_PANEL("Fields", "plain tbody tr:last-child td:last-child"): "never",
    }),
    ("#/learners/ranks", [], {
        IN_PANEL("Largest weights", "quiet"):
            "No weights: npsvor predicts ranks by 3 planes, each with its own weights",
        ".result .quiet": "Shows the rank and the score.",
        ".panel.confusion caption": "Events of the window at *: true rank by row, predicted by column",
        ".tiles [data-key='/events'] small >> nth=1": "90 in the window, at most 10,000",
        IN_CHART("Error", "note"): "in the window, in ranks",
    }),
    ("#/learners/flat", [], {
        IN_PANEL("Fields", "quiet"): "No event so far.",
        ".scoring textarea + small": "Type its features between the braces: a name and a value each.",
    }),
    ("", score('{"words": 3}'), {
        ".scoring .trouble": 'this has no "features": put its names and values into that, {"features": {…}}',
    }),
    ("", score('{"features": {}}'), {
        ".result .verdict": "No decision: the learner is not ready",
        ".result > p:last-child": "No feature adds to the score, beside +0.000 of every event",
    }),
    ("", [("press", "Clone …"), ("press", "Clone it")], {
        "dialog.key h2": "API key",
        "dialog.key .trouble >> nth=0": f"The service refuses this: {DETAIL}",
    }),
    ("", [ESCAPE, ESCAPE, ("offline",)], {
        "#connection": "offline, retrying *; metrics from * Retry now",
        ".readiness": "not ready: no labelled event has been learnt yet",
    }),
    ("", [("press", "Score it")], {".scoring .trouble": "the server does not answer"}),
    ("", [("online",)], {".scoring .trouble": "the server did not answer; now it does: try again"}),
]  # fmt: skip

FRAUD: list[Scene] = [
    ("#/learners/fraud", [], {
        ".tiles [data-key='/events'] small >> nth=1": "20 positive (10 %) in the last 200",
        ".tiles [data-key='/threshold'] small >> nth=0": "of the probability",
        IN_CHART("Ranking", "plot@aria-label"):
            "Ranking. Now: AUC *, AUC since the start *, average precision *, average precision since the start *.",
        IN_CHART("Decisions", "plot@aria-label"):
            "Decisions. Now: F1 *, F1 since the start *, precision *, precision since the start *, "
            "recall *, recall since the start *.",
        IN_CHART("Threshold", "plot@aria-label"): "Threshold. Now: threshold *.",
        IN_CHART("Positives and alerts", "plot@aria-label"):
            "Positives and alerts. Now: positive 10 %, alerts *, alerts since the start *.",
        IN_CHART("Ranking", "note"): "in the window, with the AUC's 95 % interval",
        IN_CHART("Decisions", "note"): "in the window",
        IN_CHART("Threshold", "note"): "of the probability",
        IN_CHART("Positives and alerts", "note"): "share of the window's events",
        IN_CHART("Events per second", "note"): "by the events' own times",
        IN_CHART("Label coverage", "note"): "share of served events",
        IN_CHART("Label delay", "note"): "from an event to its label",
        IN_CHART("ROC", "note"): "recall by false positive rate",
        IN_CHART("Calibration", "note"): "predicted vs. observed",
        IN_CHART("Positives and alerts", "legend li:nth-child(1)"): "positive",
        IN_CHART("Positives and alerts", "legend li:nth-child(2)"): "alerts",
        IN_CHART("Positives and alerts", "legend li:nth-child(3)"): "alerts since the start",
        IN_CHART("ROC", "legend li:nth-child(2)"): "live decisions",
        "select[name=by] option >> nth=0": "time",
        "select[name=by] option >> nth=1": "labelled events",
        ".actions@aria-label": "What can be done to fraud",
        ".figures summary": "All metrics as a table",
        ".figures [data-key=partial_auc] th": "Partial AUC up to a false positive rate of 5 %",
        ".figures [data-key=recall_at_fpr] th": "Recall at a false positive rate of 5 %",
        ".figures [data-key=precision_at_k] th": "Precision among the 100 highest scores",
        ".figures [data-key=auc_error] th": "AUC, largest error of the sketch",
        IN_CHART("Events per second", "plot@aria-label"): "Events per second. Now: events per second 0.1.",
        IN_CHART("ROC", "plot@aria-label"): "ROC. The live decisions: recall *, false positive rate *.",
        IN_CHART("Precision and recall", "plot@aria-label"):
            "Precision and recall. The live decisions: precision *, recall *.",
        IN_CHART("Scores by class", "plot@aria-label"):
            "Scores by class. 180 negatives and 20 positives. Alerts begin at a score of *, a probability of *.",
        IN_CHART("Calibration", "plot@aria-label"): "Calibration. Predicted *, observed * of *.",
        IN_CHART("Label coverage", "nothing"): "Nothing to draw: no served events in the window.",
        IN_PANEL("Largest weights", "quiet"): "4 of 4; intercept *.",
        ".panel.confusion caption": "Events of the window at *: truth by row, decision by column; shares of each row",
        ".result .quiet": "Shows the score and the contribution of each feature.",
    }),
    ("", score("{x"), {".scoring .trouble": "this is no JSON: *"}),
    ("", score("null"), {".scoring .trouble": "this is no event: expected an object, {…}"}),
    ("", score('{"events": []}'), {".scoring .trouble": "this is a whole request: enter one of its events alone"}),
    ("", score('{"x": [6, 1]}'), {".scoring .trouble": "/x has 2 numbers; expected 4"}),
    ("", score('{"x": [6, 1, 0, 1]}'), {
        ".result caption": "What each feature adds to the score, beside * of every event",
    }),
    ("#/learners/fraud?by=bogus&from=yesterday&to=", [], {
        ".range .unread":
            "Not followed: there is no axis “bogus” here; “yesterday” (from) is no time (epoch seconds, or ISO 8601); "
            "“” (to) is no time (epoch seconds, or ISO 8601).",
    }),
    ("#/learners/fraud?by=events&from=700&to=500", [], {
        ".range .unread": "Not followed: “from” has to be before “to”.",
    }),
    ("#/learners/fraud?by=events&from=soon", [], {
        ".range .unread": "Not followed: “soon” (from) is no number of events.",
    }),
    ("#/learners/fraud?from=2030-01-01", [], {
        ".range .unread": "Not followed: there is nothing after “2030-01-01” (from).",
    }),
    ("#/learners/fraud?from=2019-01-01&to=2019-06-01", [], {
        ".range .unread": "Not followed: there is nothing after “2019-01-01” (from) and before “2019-06-01” (to).",
    }),
    ("#/learners/fraud?from=soon&to=1", [], {
        ".range .unread":
            "Not followed: “soon” (from) is no time (epoch seconds, or ISO 8601); there is nothing before “1” (to).",
    }),
    ("", [("press", "Delete …")], {
        "dialog h2": "Delete fraud?",
        IN_DIALOG(0): "Its log, its snapshots and all that it learnt from 300 events are gone then, for good.",
    }),
    ("", [("press", "Delete it for good")], {ALERT: "this is not its name"}),
    ("", [ESCAPE, ("press", "Clone …")], {
        IN_DIALOG(0): "A new learner with all that this one has learnt; from then on each goes its own way.",
    }),
    ("", [("fill", NEW_NAME, "fraud 2"), ("press", "Clone it")], {
        ALERT: f"the name is invalid; “Name of the new one” is 'fraud 2'; {MEMBER}",
    }),
    ("", [("fill", NEW_NAME, "fraud-2"), ("press", "Clone it")], {NEWS: "fraud-2 is a clone of fraud."}),
    ("", [], {"#news > :last-child button@aria-label": "Put this away"}),
    ("", [("press", "Snapshot …")], {
        "dialog h2": "Take a snapshot of fraud?",
        IN_DIALOG(0): "The state as it is now is saved, to go back to.",
        IN_DIALOG(1):
            "Only the newest few are kept, those that the service takes by itself among them: "
            "Export saves it for good.",
    }),
    ("", [("press", "Save snapshot")], {NEWS: "Snapshot of fraud: position 2, *, *."}),
    ("", [("press", "Restore the snapshot")], {
        "dialog h2": "Roll fraud back?",
        IN_DIALOG(0):
            "It goes on from *, log position 2. "
            "What was learnt after it is undone: model, threshold, metrics and remembered ids.",
    }),
    ("", [("press", "Roll back")], {NEWS: "fraud goes on from position 2."}),
    ("", [("press", "Threshold …")], {
        "dialog h2": "What the threshold of fraud is for",
        IN_DIALOG(0): "What was learnt stays; the threshold follows from it at once.",
        ".preview [role=status]":
            "Of * labelled events of the window, * positive: the threshold would be * now*.",
        IN_SETTING("objective", "help"):
            "The largest F1 over the recent events. For F on a steady stream: the safest.",
        IN_SETTING("memory", "help"):
            "How fast old events fade: an event this many events ago has weight 1/e (37 %). null: never fade. "
            "(at least 100, at most 1,000,000,000, or null; default: 30,000)",
    }),
    ("", [("choose", "objective", "budget")], {
        IN_SETTING("objective", "help"):
            "So many alerts per unit of time, or a share of all events. Where reviewers have so many hours.",
        IN_SETTING("alerts", "help"):
            "Maximum number of alerts per unit of time. Either alerts or rate is required. "
            "(at least 1, at most 1,000,000,000)",
        IN_SETTING("unit_seconds", "help"):
            "Length of the unit of time, if alerts is set. (at least 1, at most 1,000,000,000; default: 86,400)",
    }),
    ("", [("choose", "objective", "precision")], {
        ".preview [role=status]":
            "No preview yet: the preview is refused; “target” is missing; precision needs a share, "
            "above 0 and at most 1.",
        IN_SETTING("target", "help"):
            "Target rate: maximum FPR, or minimum precision or recall. Required. (more than 0, at most 1)",
    }),
    ("", [("fill", "target", "2"), ("press", "Change threshold")], {
        IN_SETTING("target", "trouble"): "is 2; expected at most 1",
        "dialog form > [role=alert]": "the change is refused; nothing was changed",
    }),
    ("", [("fill", "target", "0.8"), ("press", "Change threshold")], {
        NEWS: "The threshold of fraud follows precision now; it is *.",
    }),
    ("#/learners/fraud-2", [
        ("press", "Delete …"), ("fill", "Type fraud-2 to confirm", "fraud-2"), ("press", "Delete it for good"),
    ], {NEWS: "fraud-2 is deleted."}),
]  # fmt: skip

COMPARE: list[Scene] = [
    ("#/compare", [], {
        ".title ~ .quiet":
            "A group is two to eight learners on one stream: each event that is sent to the group is learnt by all "
            "of them, and their earlier predictions are compared.",
        "li[data-key=idle] > small": "0 events compared",
    }),
    ("", [("press", "New group …"), ("press", "Create group")], {
        "dialog h2": "A group of learners",
        IN_SETTING(GROUP_NAME, "trouble"): "a group needs a name",
        "dialog fieldset + .trouble": "has 0 names; expected 2 to 8",
        "dialog form > .trouble": "the name and the group are refused; nothing was created",
    }),
    ("", [("fill", GROUP_NAME, "a b"), ("check", "brief"), ("press", "Create group")], {
        IN_SETTING(GROUP_NAME, "trouble"): f"is 'a b'; {MEMBER}",
        "dialog fieldset + .trouble": "has 1 name; expected 2 to 8",
    }),
    ("", [
        ("fill", GROUP_NAME, "short"), ("check", "fraud"), ("delete", "/learners/brief"), ("press", "Create group"),
    ], {"dialog fieldset + .trouble": "no. 1 is brief; there is no learner of this name"}),
    ("#/compare/left", [], {
        ".stack .panel .quiet":
            "0 events compared, none of them in the window (0 negative, 0 positive). "
            "Two equal learners get a verdict with a probability of at most 5 %, however often one looks. "
            "No longer there: brief; nothing more can be compared.",
        ".chart .nothing": "Nothing to draw: no events yet.",
        ".chart .note": "of each learner's own window",
        ".stack h2 >> nth=0": "Which is better",
        ".stack h2 >> nth=1": "AUC on the same events",
        ".stack h2 >> nth=2": "Differences of AUC",
    }),
    ("#/compare", [
        ("press", "New group …"), ("fill", GROUP_NAME, "duo"), ("check", "fraud"), ("check", "flat"),
        ("press", "Create group"),
    ], {NEWS: "duo compares flat, fraud."}),
    ("#/compare/nothing", [], {".message": "there is no group named nothing"}),
    ("#/compare/idle", [], {
        ".stack .panel .quiet":
            "0 events compared, none of them in the window (0 negative, 0 positive). "
            "Two equal learners get a verdict with a probability of at most 5 %, however often one looks.",
        "tr[data-key=fresh] td >> nth=1": "no events in the window",
    }),
    ("#/compare/both?by=bogus&from=yesterday&to=1e20", [], {
        ".stack .panel .quiet":
            "300 events compared, the last 300 of them in the window (270 negative, 30 positive). "
            "Two equal learners get a verdict with a probability of at most 5 %, however often one looks. "
            "The group's clock is at 1 Jan 2026, 09:49:50 GMT+9.",
        ".chart .unread":
            "Not followed: there is no axis “bogus” here; “yesterday” (from) is no time (epoch seconds, or ISO 8601); "
            "“1e20” (to) is no time (epoch seconds, or ISO 8601).",
    }),
    ("#/compare/both?by=events&from=1&to=100000", [], {
        ".chart .unread": "Not followed: there is no axis “events” here.",
    }),
    ("#/compare/both?from=2019-01-01&to=2019-06-01", [], {
        ".chart .unread": "Not followed: there is nothing after “2019-01-01” (from) and before “2019-06-01” (to).",
    }),
]  # fmt: skip

PARTS = {
    "threshold": "what alerts are for",
    "calibration": "how a score becomes a probability",
    "scaling": "of the features",
    "embedding": "nonlinear features in front of the model",
    "figures": "settings of the live metrics",
    "late": "how long events wait for theirs",
    "whole": "window, remembered ids, seed",
}
GROUPS_OF_SETTINGS = {"params": "Parameters of the algorithm", "threshold": "Threshold", "scaling": "Scaling"}
KINDS = {
    "named": "named: an object of any fields, hashed",
    "dense": "dense: a list of numbers",
    "table": "table: an object of declared fields",
    "sparse": "sparse: indices and values",
}
CREATE: list[Scene] = [
    ("#/create?algorithm=zzz&name=fine", [], {
        ".create .unread": "Not followed: there is no algorithm “zzz”.",
        **{f"[data-part={part}] summary small": words for part, words in PARTS.items()},
        **{f".create option[value={kind}] >> nth=0": words for kind, words in KINDS.items()},
        ".create optgroup >> nth=0@label": "two classes, learning from each event",
        ".create optgroup >> nth=1@label": "two classes, fitted now and then",
        **{f".create [data-part={part}] .settings@aria-label": words for part, words in GROUPS_OF_SETTINGS.items()},
        "[data-part=threshold] option >> nth=0": "f1-window (default)",
        ON_FORM("name", "help"): "1 to 100 of letters, digits, . _ -; begins with a letter or a digit",
        ".importing .help": "Import an exported learner under a new name.",
        ".importing button": "Import a file …",
    }),
    ("#/create?algorithm=cbr&kind=table", [], {
        ".list legend": "one of the list",
        ".list fieldset > button": "Remove",
        ".list > button": "Add one",
    }),
    ("#/create?algorithm=npsvor&kind=woolly", [], {
        ".create .unread": "Not followed: it takes no features of the kind “woolly”.",
    }),
    ("#/create?name=fraud", [("press", "Create it")], {
        ON_FORM("name", "trouble >> nth=0"):
            "fraud exists with another configuration; delete it first, or choose another name",
    }),
    ("#/create?algorithm=cbr", [("press", "Create it")], {
        ON_FORM("name", "trouble >> nth=0"): "a learner needs a name",
        ON_FORM("eta", "help"):
            "probability of the correct order that each pair must reach "
            "(more than 0.5, at most 0.999999; default: 0.7)",
        ".create fieldset > .trouble": "the name and the configuration are refused; nothing was created",
    }),
    ("", [("fill", "dim", "0"), ("fill", "name", "no name"), ("press", "Create it")], {
        ON_FORM("name", "trouble >> nth=0"): f"is 'no name'; {MEMBER}",
        ON_FORM("dim", "trouble"): "is 0; expected at least 1",
    }),
    ("", [("fill", "dim", "4"), ("fill", "name", "made"), ("fill", "eta", "7"), ("press", "Create it")], {
        ON_FORM("eta", "trouble"): "is 7; expected at most 0.999999",
    }),
    ("", [("import", "something else"), ("fill", "Name of the learner", ""), ("press", "Import it")], {
        "dialog h2": "Import a learner",
        IN_DIALOG(0):
            "far-60.rarestream (14 bytes) becomes a learner with all that the exported one had learnt. "
            "Nothing is created of a file that is damaged, or holds something else.",
        ALERT:
            "the file is not a record or snapshot of rarestream; nothing was created. "
            "Expected a file of GET /v1/learners/NAME/export; "
            "“Name of the learner” is empty: a learner needs a name",
    }),
    ("", [
        ESCAPE, ("import", "/learners/single/export"), ("fill", "Name of the learner", "far"), ("press", "Import it"),
    ], {NEWS: "far is imported: 5 events learnt."}),
    ("#/create?algorithm=loam-ada&kind=dense&name=made", [("fill", "dim", "4"), ("press", "Create it")], {
        NEWS: "made is created.",
    }),
    ("#/create?algorithm=loam-ada&kind=dense&name=slow", [("fill", "dim", "4"), ("press", "Create it")], {
        ".create .buttons .quiet": f"It is being created: its {KERNELS}.",
    }),
]  # fmt: skip

LACKS = "you need the {} scope, which the key viewer lacks".format
FOR_READING: list[Scene] = [  # by a key that may only read
    ("#/learners/fraud", [], {
        ".actions .withheld": f"Not allowed: {LACKS('admin')}",
        IN_PANEL("Snapshots", "withheld"): f"None can be restored here: {LACKS('admin')}",
        ".scoring .withheld": f"No event can be scored here: {LACKS('predict')}",
    }),
    ("#/create", [], {
        ".create .withheld": f"No learner can be created here: {LACKS('admin')}",
        ".importing .help": f"Not allowed: {LACKS('admin')}",
    }),
    ("#/compare", [], {".withheld": f"No group can be made here: {LACKS('admin')}"}),
]  # fmt: skip
NOT_FOR_READING: list[Scene] = [  # by a key that may only predict
    ("#/", [], {".message >> nth=0": f"No learner can be shown: {LACKS('read')}."}),
    ("#/learners/fraud", [], {
        ".message":
            f"The page cannot be shown: {LACKS('read')}. "
            "A key that may predict has events scored by rarestream predict, or over HTTP.",
    }),
    ("#/compare", [], {".message": f"No group can be shown: {LACKS('read')}."}),
    ("#/compare/both", [], {".message": f"The comparison cannot be shown: {LACKS('read')}."}),
]  # fmt: skip
KEYLESS: list[Scene] = [  # without a key, then with a wrong one, then with one for some learners
    ("#/create", [], {
        "#state": "a valid API key is required,",
        "#key@aria-label": "Enter an API key",
        ".message": "The form cannot be shown. This service shows itself to those with a key only.",
        ".importing .help": "Not allowed: an API key is required",
        "dialog .trouble >> nth=0": "This service shows itself to those with a key only.",
        IN_DIALOG(1):
            "A key tells this service who you are, and so what you may do here: look on, score events, teach, or make "
            "and change learners. Whoever runs the service gives you one; it begins with rs_.",
        "dialog .help":
            "This page sends it to this service with all that it asks, and to nobody else. It is kept in this tab "
            "alone, until you close it. Leave the field empty to go on without one.",
    }),
    ("", [("fill", "Key", "wrong"), ("press", "Use it")], {
        "dialog .trouble >> nth=0":
            "The key in use is not accepted: it is mistyped, or was taken back, or is no longer valid.",
    }),
    ("", [ESCAPE], {
        "#key@aria-label": "The API key is not accepted; enter another",
        ".importing .help": "Not allowed: the API key is not accepted",
    }),
    ("", [("press", "The API key is not accepted"), ("fill", "Key", "s3cret"), ("press", "Use it")], {
        "#key@aria-label": "An API key is in use; change it",
        ".create .withheld": "the key team is for learners named team-*",
    }),
]  # fmt: skip
UNANSWERED: list[Scene] = [  # before the first answer of the service
    ("#/", [], {
        "#state": "connecting …",
        ".message >> nth=0": "The learners appear here as soon as the server has answered.",
    }),
    ("#/learners/fraud", [], {".message": "The metrics appear here as soon as the server has answered."}),
    ("#/compare", [], {".message": "The groups appear here as soon as the server has answered."}),
    ("#/compare/both", [], {".message": "The comparison appears here as soon as the server has answered."}),
    ("#/create", [], {".message": "The form appears here as soon as the server has given its catalogue."}),
]  # fmt: skip
UNUSUAL: list[Scene] = [  # states that take a while to come about: given in place of the service, by polling
    ("#/", [], {
        "#state": "live, by polling",
        ".found": "8 learners, 2 of them being created",
        "tr[data-key=first] .state": f"being created, for 2 min by now: its {KERNELS}",
        "tr[data-key=second] .state": "being created, in its turn",
        "tr[data-key=busy] .state": f"learning its first events: {KERNELS}",
        "tr[data-key=sleeper] .state": "asleep until somebody asks for it",
        "tr[data-key=stale] .state": "no news from the store for 7 s",
        "tr[data-key=stale] [data-column=threshold] small": "no alerts now",
        "tr[data-key=drifting] [data-column=drift]@title":
            "the served scores changed: 5 % are above one that 1 % were, at event 290; alarms in all: 1, open: 1",
        "article[data-key=both] li[data-key=sleeper]@title": "no AUC to show: asleep until somebody asks for it",
        "article[data-key=both] li[data-key=missing]@title": "no AUC to show: there is no such learner",
    }),
    ("#/learners/fraud", [], {
        IN_PANEL("Largest weights", "quiet"): "1 of 1; intercept overflowed.",
        IN_PANEL("Largest weights", "number"): "overflowed",
        IN_CHART("Threshold", "nothing"): "Nothing to draw: none yet.",
        IN_CHART("Scores by class", "note"): "share of each class; no threshold: not known",
        ".tiles [data-key='/threshold'] small >> nth=0": "not known",
    }),
    ("#/", [("reply", "unloaded")], {
        ".message >> nth=0":
            "This node does not know its learners yet: it starts, or waits for its store. "
            "They appear here by themselves.",
    }),
    ("#/", [("reply", "empty"), ("reply", "no groups")], {
        ".message h2": "No learners yet",
        ".message .primary": "Create one, or import a file",
        ".message:has(h2) p >> nth=1": "or over HTTP:",
        ".message:has(h2) p >> nth=2": "or from the command line:",
        ".message:has(h2) p >> nth=3": "It appears here by itself; the API says how to send it events.",
    }),
    ("#/compare", [("pause",)], {
        ".message": "No groups yet. Learners are compared in a group: make one of two learners or more.",
    }),
    ("#/", [], {".message >> nth=0": "Looking for learners …"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    """Serve learners of every state that comes about at once, and groups of them."""
    rows: dict[str, list[dict[str, Any]]] = {
        "negative": [{"x": [0, 0, 0, 1], "label": 0} for _ in range(20)],
        "pair": [{"x": [i, 0, 0, 1], "label": i} for i in range(2)],
        "ranks": [{"x": [i % 3, 0, 0, 1], "label": i % 3 + 1} for i in range(90)],
        "hashed": [
            {"features": {"amount": 1 + i % 5, "shop": f"s{i % 3}"}, "label": int(i % 5 == 4)} for i in range(200)
        ],
        "misspelt": [{"features": {"amount": i or "x"}, "label": i % 2} for i in range(999, -1, -1)],
    }
    configs: dict[str, dict[str, Any]] = {
        "fraud": {"window": 200}, "other": {"window": 200},
        "ranks": {"algorithm": "npsvor", "params": {"ranks": 3}},
        "hashed": {"features": {"kind": "named", "log": ["amount"]}},
        "flat": {"features": {"kind": "named"}},
        "misspelt": {"features": {"kind": "named", "log": ["Amount"]}},
    }  # fmt: skip
    for name in ("fraud", "other", "fresh", "single", "brief", "flat", *rows):
        served.create(name, **configs.get(name, {}))
    for name, events in rows.items():
        served.http.post(f"/learners/{name}/update", json={"events": events}).raise_for_status()
    event = {"id": "one", "x": [1, 0, 0, 1]}
    served.http.post("/learners/single/predict", json={"events": [event]}).raise_for_status()
    served.http.post("/learners/single/labels", json={"events": [{"id": "one", "label": 0}]}).raise_for_status()
    served.feed("learners/single", 4)  # the last of them positive
    served.http.put("/groups/both", json={"learners": ["fraud", "other"]}).raise_for_status()
    served.http.put("/groups/idle", json={"learners": ["fresh", "pair"]}).raise_for_status()
    served.http.put("/groups/left", json={"learners": ["fresh", "brief"]}).raise_for_status()
    served.feed("groups/both", 300)
    return served


def pattern(sentence: str) -> re.Pattern[str]:
    """Return the pattern of a sentence with numbers or times in it; space is as wide as the page's source has it."""
    return re.compile(r"\s*" + r"\s+".join(re.escape(word).replace(r"\*", ".+") for word in sentence.split()) + r"\s*$")


class Reader:
    """Walks through scenes on one page, and looks at every sentence."""

    def __init__(self, page: Page, service: Serving, replies: dict[str, tuple[str, object]] | None = None) -> None:
        self.page = page
        self.service = service
        self.replies = replies or {}  # that may take the place of the present ones: patterns, bodies

    async def walk(self, scenes: list[Scene]) -> None:
        for place, steps, sentences in scenes:
            if place:
                await self.page.evaluate(GO, place)
            for step in steps:
                await self.take(*step)
            for where, sentence in sentences.items():
                await self.read(where, sentence)

    async def read(self, where: str, sentence: str) -> None:
        """Expect a sentence in an element, or in an attribute of it."""
        selector, _, attribute = where.partition("@")
        words = sentence if "*" not in sentence else pattern(sentence)
        actual = expect(self.page.locator(selector), where)
        await (actual.to_have_attribute(attribute, words) if attribute else actual.to_have_text(words))

    async def take(self, kind: str, *about: str) -> None:
        """Do what a reader does, or what happens meanwhile."""
        page = self.page
        match kind, *about:
            case "press", name:
                await page.get_by_role("button", name=name).first.press("Enter")
            case "fill", label, text:
                await page.get_by_label(label, exact=True).first.fill(text)
            case "choose", label, option:
                await page.get_by_label(label, exact=True).select_option(option)
            case "check", label:
                await page.get_by_label(label, exact=True).check()
            case "key", key:
                await page.keyboard.press(key)
            case "import", content:
                path = content.startswith("/")
                data = self.service.http.get(content).content if path else content.encode()
                file = {"name": "far-60.rarestream", "mimeType": "application/octet-stream", "buffer": data}
                await page.locator("input[type=file]").set_input_files(file)  # type: ignore[arg-type]
            case "delete", path:
                self.service.http.delete(path).raise_for_status()
            case ("offline",):
                await page.context.set_offline(True)
            case ("online",):
                await page.context.set_offline(False)
            case "reply", name:
                pattern, body = self.replies[name]
                await page.route(pattern, replying(body))
            case ("pause",):
                await page.clock.install()
                await page.clock.pause_at(await page.evaluate("Date.now() + 1000"))


LISTING, GROUPS = "**/learners?figures=true", "**/groups?tests=true"
GO = """(place) => new Promise((done) => {
    if (location.hash === place) { done(); return; }
    addEventListener('hashchange', () => done(), {once: true});
    location.hash = place;
})"""


async def never(route: Route) -> None:
    """Leave a request without an answer."""


async def test_sentences_on_the_pages(service: Serving, visit: Opener) -> None:
    visit.replies["**/learners/slow"] = visit.replies["**/learners/pair/clone"] = never
    visit.replies["**/learners/flat/clone"] = replying({"detail": DETAIL, "code": "forbidden"}, status=403)
    visit.expected = ("403", "404", "409", "422", "ERR_")
    page = await visit(service.url)
    await Reader(page, service).walk([*OVERVIEW, *LEARNERS, *FRAUD, *COMPARE, *CREATE])


async def test_sentences_for_keys_of_few_scopes(service: Serving, visit: Opener) -> None:
    visit.replies["**/v1/key"] = replying(key("viewer", "read"))
    await Reader(await visit(service.url), service).walk(FOR_READING)
    visit.replies["**/v1/**"] = replying({"detail": DETAIL, "code": "forbidden"}, status=403)
    del visit.replies["**/v1/key"]  # the newest that fits is used
    visit.replies["**/v1/key"] = replying(key("viewer", "predict"))
    visit.expected = ("403",)
    await Reader(await visit(service.url), service).walk(NOT_FOR_READING)


async def test_sentences_about_the_key(service: Serving, visit: Opener) -> None:
    team = key("team", "read", "predict", "update", "admin", learners="team-*")

    async def by_key(route: Route) -> None:
        if route.request.headers.get("authorization") != "Bearer s3cret":
            await route.fulfill(status=401, json={"detail": DETAIL, "code": "unauthorized"})
        elif route.request.url.endswith("/v1/key"):
            await route.fulfill(json=team)
        else:
            await route.fallback()

    visit.replies["**/v1/**"] = by_key
    visit.expected = ("401",)
    await Reader(await visit(service.url, "#/create"), service).walk(KEYLESS)


async def test_sentences_before_the_first_answer(service: Serving, visit: Opener) -> None:
    visit.replies["**/v1/**"] = never
    await Reader(await visit(service.url), service).walk(UNANSWERED)


async def test_sentences_of_unusual_states(service: Serving, visit: Opener) -> None:
    listing = service.http.get("/learners?figures=true").json()
    usual = next(row for row in listing["learners"] if row["name"] == "fraud")
    alarm = {"number": 0, "kind": "scores", "events": 290, "clock": None, "before": 0.01, "after": 0.05}
    listing["learners"] = [
        usual,
        usual | {"name": "busy", "events": 0, "busy": True},
        usual | {"name": "stale", "stale_seconds": 7, "threshold": 1.0},
        usual | {"name": "drifting", "last_alarm": alarm, "alarms": {"scores": 1, "auc": 0}, "open_alarms": 1},
    ]
    listing |= {"asleep": ["sleeper"], "unavailable": {"damaged": DETAIL}}
    listing["creating"] = [{"name": "first", "seconds": 120.0}, {"name": "second", "seconds": 120.0}]
    none: dict[str, Any] = listing | {"learners": [], "asleep": [], "creating": [], "unavailable": {}}
    groups = service.http.get("/groups?tests=true").json()
    group = next(group for group in groups["groups"] if group["name"] == "both")
    group["config"] = group["config"] | {"learners": ["sleeper", "missing"]}
    groups["groups"] = [group]
    metrics = service.http.get("/learners/fraud/metrics").json() | {"threshold": None}
    weights = {"intercept": None, "weights": [{"name": "x[0]", "weight": None}], "total": 1, "unnamed": 0}
    visit.replies["**/stream**"] = replying({"detail": DETAIL, "code": "too-many-streams"}, status=429)
    visit.replies[LISTING] = replying(listing)
    visit.replies[GROUPS] = replying(groups)
    visit.replies["**/fraud/metrics"] = replying(metrics)
    visit.replies["**/weights?*"] = replying(weights | {"reason": None})
    visit.expected = ("429",)
    page = await visit(service.url)
    replies = {
        "unloaded": (LISTING, none | {"loaded": False}),
        "empty": (LISTING, none),
        "no groups": (GROUPS, {"groups": [], "unavailable": {}}),
    }
    await Reader(page, service, replies).walk(UNUSUAL)


# seconds; how long ago that is
AGES = {
    -2: "0 s ago", 0.4: "0 s ago", 59: "59 s ago", 61.8: "1 min ago", 100: "2 min ago", 5400: "2 h ago",
    90000: "1 d ago",
}  # fmt: skip

NOTED = {"kind": "note", "text": "deployed", "by": None, "key": None, "data": {}}
ANNOTATIONS = [  # and their words
    (NOTED, "deployed"),
    (NOTED | {"key": "desk"}, "deployed (desk)"),
    (NOTED | {"by": "Ann", "key": "desk"}, "deployed (Ann)"),
    (NOTED | {"kind": "restore", "data": {"position": 1234}}, "rolled back to position 1,234"),
    (NOTED | {"kind": "fit", "data": {"events": 1}}, "fitted after 1 event"),
    (
        NOTED | {"kind": "settings", "data": {"late": {}, "threshold": {"objective": "budget"}}},
        "the threshold follows budget, other settings of late",
    ),
]
# kind, before, after; the words of a drift alarm at event 1,290
ALARMS: list[tuple[str, float, float, str]] = [
    ("auc", 0.95, 0.8123, "the AUC fell from 0.950 to 0.812, at event 1,290"),
    ("scores", 0.01, 0.05, "the served scores changed: 5 % are above one that 1 % were, at event 1,290"),
    ("positives", 0.02, 0.0, "positive labels stopped arriving; before, they were 2 % of the events, at event 1,290"),
    ("missing", 0.0, 0.5, "more missing values of fee: 50 % of the events, 0 % before, at event 1,290"),
    ("new_categories", 0.0, 0.5, "more new categories of fee: 50 % of the events, 0 % before, at event 1,290"),
    (
        "contradictions",
        0.0,
        0.5,
        "more values of the wrong kind of fee: 50 % of the events, 0 % before, at event 1,290",
    ),
    ("out_of_range", 0.0, 0.5, "more numbers out of range of fee: 50 % of the events, 0 % before, at event 1,290"),
]


OBJECTIVES = {
    "f1": "F1, by half of the best that was seen in stages. For F where the share of positives falls.",
    "f1-window": "The largest F1 over the recent events. For F on a steady stream: the safest.",
    "f1-ofo": "Half of the F1 that it has reached so far. Nothing to set; it never forgets.",
    "fbeta": "The largest F-beta over the recent events. Where recall counts beta times as much as precision.",
    "jaccard":
        "The largest Jaccard index (positives found, of all that are positive or alerts) over the recent events.",
    "precision":
        "The lowest threshold whose alerts are right as often as the target says. Where each has to be worth it.",
    "recall": "The highest threshold that finds as many of the positives as the target says. Where misses hurt.",
    "fpr":
        "Calls no more of the negatives positive than the target says. Where good customers must not be bothered.",
    "cost": "The least expected cost of errors. Where errors have a price; probabilities have to be right.",
    "budget": "So many alerts per unit of time, or a share of all events. Where reviewers have so many hours.",
    "optroc": "The largest accuracy over the recent events. Where both errors count the same.",
    "fixed": "An alert from this probability on. Where the threshold is set elsewhere.",
}  # fmt: skip


# a value, its unit; what it comes to, beside a field
WORTHS = {
    (604800, "seconds"): "604800 s = 7 days",
    (86400, "seconds"): "86400 s = 1 day",
    (5400, "seconds"): "5400 s = 1 hour 30 minutes",
    (90061.5, "seconds"): "90061.5 s = 1 day 1 hour 1 minute 1.5 seconds",
    (119.9999, "seconds"): "119.9999 s = 2 minutes",
    (1e10, "seconds"): "10000000000 s = 115,740 days 17 hours 46 minutes 40 seconds",
    (59, "seconds"): "",
    (2**30, "bytes"): "1073741824 bytes = 1 GiB",
    (1_500_000_000, "bytes"): "1500000000 bytes \N{ALMOST EQUAL TO} 1.4 GiB",
    (2048, "bytes"): "2048 bytes = 2 KiB",
}


async def test_objectives(served: Serving, visit: Opener) -> None:
    page = await visit(served.url, "#/compare")
    say = "import('./static/objectives.js').then((module) => module.OBJECTIVES)"
    assert await page.evaluate(say) == OBJECTIVES


async def test_ages_amounts_and_alarms(served: Serving, visit: Opener) -> None:
    page = await visit(served.url, "#/compare")
    say = "all => import('./static/schema_form.js').then(({worth}) => all.map((one) => worth(...one)))"
    assert await page.evaluate(say, [*WORTHS]) == [*WORTHS.values()]
    say = "seconds => import('./static/format.js').then(({ago}) => seconds.map(ago))"
    assert await page.evaluate(say, [*AGES]) == [*AGES.values()]
    say = """([kind, before, after]) => import('./static/alarm_words.js').then(({alarmWords}) =>
        alarmWords({kind, before, after, field: "fee", fields: 1, events: 1290}))"""
    for *alarm, words in ALARMS:
        assert await page.evaluate(say, alarm) == words
    say = "all => import('./static/alarm_words.js').then(({annotationWords}) => all.map(annotationWords))"
    assert await page.evaluate(say, [entry for entry, _ in ANNOTATIONS]) == [words for _, words in ANNOTATIONS]
