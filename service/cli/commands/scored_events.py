"""`rarestream events`, `event`, `label`, `alerts`, `erase`: events that a learner scored, and their labels."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.options import flag
from service.cli.options_service import (
    DEFAULT_URL,
    AsJson,
    Key,
    Name,
    RetrySeconds,
    Url,
    Yes,
    confirm,
    connected,
    console,
    plain_table,
    print_json,
    reporting,
)
from service.exits import CommandFailed, ExitStatus
from service.text import counted, figure, printable

if TYPE_CHECKING:
    from rich.table import Table

    from rarestream import RemoteLearner

__all__ = ["alerts", "erase", "event", "events", "label"]

Document = Mapping[str, Any]

_EVERY = 2.0  # seconds between looks for new alerts
_PAGE = 100  # alerts of a look
_NARROW = 100  # width of a terminal below which a list omits features and reasons
_MAX_FEATURES = 6  # features in a line
_KEEP = "late.keep_features keeps those of the next ones, up to 64 KiB each."


class StatusFilter(StrEnum):
    """Values of `--status`."""

    alert = "alert"
    unlabelled = "unlabelled"
    labelled = "labelled"
    expired = "expired"


class EventSort(StrEnum):
    """Values of `--sort`."""

    time = "time"
    score = "score"


_PAST = 86_400.0  # seconds that a learner is behind if its stream is of the past
_LABELS = {  # what people call a label
    **dict.fromkeys(("fraud", "spam", "abuse", "positive", "yes", "true"), 1),
    **dict.fromkeys(("legitimate", "legit", "ham", "ok", "negative", "no", "false"), 0),
}
_LABELLED = {
    "applied": "is labelled",
    "duplicate": "had this label already",
    "relabelled": "had another label, which is corrected",
}
_NOT_LABELLED = {
    "unknown": "was not scored, or too long ago; nothing was labelled",
    "expired": "is too old for a label, or no longer remembered; nothing was labelled",
}


class _NotLabelled(CommandFailed):
    exit_status = ExitStatus.NOT_FOUND


_Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Number of events at most.")]
_Explain = Annotated[
    int | None,
    typer.Option(min=1, max=1000, help="Show so many largest contributions to each score. Needs kept features."),
]


def events(
    name: Name,
    status: Annotated[
        StatusFilter | None, typer.Option(help="Only these. `alert`: called positive, and not labelled yet.")
    ] = None,
    label: Annotated[int | None, typer.Option(min=0, max=127, help="Only events with this label or rank.")] = None,
    decision: Annotated[int | None, typer.Option(min=0, max=127, help="Only events with this decision.")] = None,
    min_probability: Annotated[float | None, typer.Option(min=0, max=1, help="Only from this probability on.")] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Only from this time on: ISO 8601 or epoch seconds.")
    ] = None,
    stop: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Only before this time.")] = None,
    find: Annotated[
        str, typer.Option(metavar="TEXT", help="Only ids that begin like this; or FIELD=VALUE of kept features.")
    ] = "",
    sort: Annotated[EventSort, typer.Option(help="The newest first, or the highest score.")] = EventSort.time,
    limit: _Limit = 20,
    explain: _Explain = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """List the events that a learner scored with an id, with their labels."""
    query = {"decision": decision, "label": label, "min_probability": min_probability, "q": find, "explain": explain}
    query |= {"from": start, "to": stop}
    with reporting(), connected(url, key) as client:
        remote = client.learner(name)
        listed = _matches(remote, limit, sort=sort.value, status=None if status is None else status.value, **query)
        _print(listed, as_json, explain)


def event(
    name: Name,
    id: Annotated[str, typer.Argument(help="Id of the event.")],
    explain: _Explain = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Show one scored event whole."""
    with reporting(), connected(url, key) as client:
        document = client.learner(name).scored_event(id, explain=explain)
        if as_json:
            print_json(document)
            return
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for what, text in _details(document):
            table.add_row(what, text)
        console().print(table)
        _note_unexplained([document], explain)


def label(
    name: Name,
    id: Annotated[str, typer.Argument(help="Id of the event.")],
    label: Annotated[
        str, typer.Argument(metavar="LABEL", help="fraud or 1; legitimate or 0; of an ordinal learner a rank.")
    ],
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    retry_seconds: RetrySeconds = 60.0,
) -> None:
    """Label a scored event. A later label corrects an earlier one."""
    with reporting():
        from rarestream import RequestRefused

        value = _LABELS.get(label.lower())
        if value is None and not (label.isascii() and label.isdecimal()):
            words = ", ".join(_LABELS)
            raise typer.BadParameter(f"is {label!r}; expected a number or one of: {words}", param_hint="LABEL")
        event: dict[str, Any] = {"id": id, "label": int(label) if value is None else value}
        with connected(url, key, patience=retry_seconds, notice=_say) as client:
            learner = client.learner(name)
            clock = None
            with suppress(RequestRefused):  # a key that may not read
                clock = learner.metrics()["clock"]
            if (
                clock is not None and clock < time.time() - _PAST
            ):  # a stream of the past: its label is of that time, too
                event["time"] = clock
            reply = learner.update_json(json.dumps({"events": [event]}).encode(), repeatable=True, results=True)
        (result,) = reply.results
        if as_json:
            print_json({"learner": name, **result})
        if result["status"] in _NOT_LABELLED:
            raise _NotLabelled(f"the event {printable(id)} of {name} {_NOT_LABELLED[result['status']]}")
        if not as_json:
            print(f"the event {printable(id)} of {name} {_LABELLED[result['status']]}")


def erase(
    name: Name,
    id: Annotated[str, typer.Argument(help="Id of the event.")],
    yes: Yes = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Erase what a learner remembers of a scored event.

    It asks on a terminal; elsewhere --yes is required. What was learnt stays
    learnt. Records of the log age out.
    """
    with reporting(), connected(url, key) as client:
        question = f"Erase the event {id} of {name}? A label by this id will be unknown"
        confirm(yes, lambda: question, "it erases the event for good", "nothing was erased")
        result = client.learner(name).erase_event(id)
        if as_json:
            print_json({"learner": name, **result})
            return
        print(
            f"the event {printable(id)} of {name} is erased; records of the log up to position "
            f"{result['position']:,} may have it until the log is trimmed behind younger snapshots"
        )


def alerts(
    name: Name,
    follow: Annotated[
        bool, flag("--follow", "-f", help="Go on with new alerts as they come, the newest last.")
    ] = False,
    limit: _Limit = 20,
    explain: _Explain = None,
    as_json: AsJson = False,
    retry_seconds: RetrySeconds = 60.0,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """List the alerts that have no label yet, the highest score first.

    With --follow it prints a line for each, and with --json an object.
    """
    patience = retry_seconds if follow else 0.0
    with reporting(), connected(url, key, patience=patience, notice=_say if follow else None) as client:
        remote = client.learner(name)
        if not follow:
            _print(_matches(remote, limit, sort="score", status="alert", explain=explain), as_json, explain)
            return
        for alert in _new_alerts(remote, limit, explain, time.sleep):
            print(json.dumps(alert) if as_json else _line(alert), flush=True)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _matches(remote: RemoteLearner, limit: int, **query: Any) -> list[Document]:
    """Return the first events of the query; a page looks through a bounded number."""
    filters = {name: value for name, value in query.items() if value not in (None, "")}
    matches: list[Document] = []
    cursor: int | None = 0
    while cursor is not None and len(matches) < limit:
        page = remote.scored_events(limit=limit - len(matches), cursor=cursor, **filters)
        matches += page["events"]
        cursor = page["cursor"]
        if filters.get("sort") == "score":  # the best of what one page looks through
            break
    return matches


def _new_alerts(
    remote: RemoteLearner, limit: int, explain: int | None, pause: Callable[[float], None]
) -> Iterator[Document]:
    """Yield the last alerts, at most `limit`, then each that comes, in the order in which they were scored."""
    query: dict[str, Any] = {"status": "alert"} | ({} if explain is None else {"explain": explain})
    page = remote.scored_events(limit=limit, **query)
    newest = page["newest"]
    yield from reversed(page["events"])
    while True:
        pause(_EVERY)
        pages = [remote.scored_events(limit=_PAGE, after=newest, **query)]
        while (cursor := pages[-1]["cursor"]) is not None:
            pages.append(remote.scored_events(limit=_PAGE, after=newest, cursor=cursor, **query))
        newest = pages[0]["newest"]
        for page in reversed(pages):
            yield from reversed(page["events"])


def _print(listed: Sequence[Document], as_json: bool, explain: int | None) -> None:
    if as_json:
        print_json({"events": listed})
    elif listed:
        out = console()
        out.print(_table(listed, out.width >= _NARROW))
        _note_unexplained(listed, explain)
    else:
        print("no event")


def _note_unexplained(listed: Sequence[Document], explain: int | None) -> None:
    """Say why some events have no reasons."""
    unexplained = sum(item["explanation"] is None for item in listed) if explain is not None else 0
    if unexplained:
        print(f"{counted(unexplained, 'event')} without reasons: features were not kept. {_KEEP}", file=sys.stderr)


def _table(listed: Sequence[Document], wide: bool) -> Table:
    features = wide and any(_features(item) for item in listed)
    explained = any(item.get("explanation") for item in listed)
    headings = [
        "time",
        "id",
        *["features"] * features,
        *["why"] * explained,
        "label",
        "score",
        "probability",
        "decision",
    ]
    table = plain_table(*headings, right=3)
    for item in listed:
        texts = [_time(item), item["id"], *[_features(item)] * features, *[_reasons(item)] * explained]
        table.add_row(*texts, _label(item), figure(item["score"]), figure(item["probability"]), str(item["decision"]))
    return table


def _line(alert: Document) -> str:
    parts = [_time(alert), alert["id"], f"probability {figure(alert['probability'])}", _features(alert)]
    return "  ".join(filter(None, [*parts, _reasons(alert)]))


def _details(document: Document) -> Iterator[tuple[str, str]]:
    """Yield what is known of an event, and its names."""
    yield "id", document["id"]
    yield "time", _time(document)
    yield "score", figure(document["score"])
    if document["probability"] is not None:
        yield "probability", f"{figure(document['probability'])}, threshold {figure(document['threshold'])}"
    yield "decision", str(document["decision"])
    yield "label", _label(document)
    for step in document["history"]:
        yield step["kind"], "  ".join(_step(step))
    for name, value in (document.get("features") or {}).items():
        yield printable(name), printable(value)
    for member in ("x", "indices", "values"):
        if document.get(member) is not None:
            yield member, json.dumps(document[member])
    if document.get("explanation"):
        yield "why", _reasons(document)


def _step(step: Document) -> Iterator[str]:
    """Yield what is known of something that happened to an event."""
    if step["time"] is not None:
        yield _time(step)
    if step["label"] is not None:
        yield f"label {step['label']}"
    if step["position"] is not None:
        yield f"position {step['position']:,}"


def _time(item: Document) -> str:
    return datetime.fromtimestamp(item["time"]).astimezone().isoformat(" ", "seconds")


def _label(item: Document) -> str:
    """Return the label, or why there is none."""
    if item["label"] is None:
        return "expired" if item["status"] == "expired" else "-"
    return f"{item['label']}{' (assumed)' if item['label_source'] == 'assumed' else ''}"


def _features(item: Document) -> str:
    """Return the first features of a named event in a line."""
    pairs = list((item.get("features") or {}).items())
    texts = [f"{printable(name)}={printable(value)}" for name, value in pairs[:_MAX_FEATURES]]
    return " ".join([*texts, *["..."] * (len(pairs) > _MAX_FEATURES)])


def _reasons(item: Document) -> str:
    """Return the contributions to the score, the largest first."""
    explanation = item.get("explanation")
    if not explanation:
        return ""
    return ", ".join(f"{printable(part['name'])} {part['contribution']:+.3g}" for part in explanation["features"])
