"""`rarestream consume`: a Kafka topic or a Redis stream into a learner."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from service.cli.options import flag
from service.cli.options_files import TimeFormat, TimeUnit
from service.cli.options_service import (
    DEFAULT_URL,
    AsJson,
    Key,
    RetrySeconds,
    Url,
    connected,
    console,
    learner_names,
    print_json,
    reporting,
)

if TYPE_CHECKING:
    from service.connectors import Feed, Start

__all__ = ["consume"]

_KAFKA, _REDIS = "Kafka", "Redis"
_REDIS_SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")


class ConsumeMode(StrEnum):
    """Values of `--what`."""

    auto = "auto"
    update = "update"
    predict = "predict"


class OnFault(StrEnum):
    """Values of `--on-bad` and `--on-lost`."""

    stop = "stop"
    skip = "skip"


class EntryFormat(StrEnum):
    """Values of `--entry`."""

    event = "event"
    flat = "flat"


class Mechanism(StrEnum):
    """Values of `--sasl`."""

    plain = "PLAIN"
    scram_256 = "SCRAM-SHA-256"
    scram_512 = "SCRAM-SHA-512"


File = Annotated[
    Path | None, typer.Option(dir_okay=False, exists=True, help="PEM file, with --tls.", rich_help_panel=_KAFKA)
]


def consume(
    source: Annotated[
        str,
        typer.Argument(
            help="kafka://HOST:PORT,HOST:PORT/TOPIC; redis://HOST:PORT/DB, redis+sentinel://, redis+cluster://."
        ),
    ],
    learner: Annotated[
        str, typer.Option(help="Name of the learner.", autocompletion=learner_names, show_default=False)
    ],
    what: Annotated[
        ConsumeMode,
        typer.Option(help="update: learn each; predict: score each; auto: learn those with a label, score the others."),
    ] = ConsumeMode.auto,
    start: Annotated[
        str,
        typer.Option("--from", help="Start of the first reading: earliest, latest, an offset or the id of an entry."),
    ] = "earliest",
    scores: Annotated[str | None, typer.Option(help="Topic or stream to write every score to.")] = None,
    alerts: Annotated[str | None, typer.Option(help="Topic or stream to write the scores with label 1 to.")] = None,
    on_bad: Annotated[
        OnFault, typer.Option(help="If a message is no event, or is refused: stop or skip it.")
    ] = OnFault.stop,
    on_lost: Annotated[
        OnFault, typer.Option(help="If messages were removed before they were read: stop, or continue without them.")
    ] = OnFault.stop,
    prefix: Annotated[
        str | None, typer.Option(help="Prefix of source names in the learner (default: kafka: or redis:).")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Consumer group for the position (default: rarestream-LEARNER).")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Messages of a partition at a time.")] = 1000,
    linger: Annotated[float, typer.Option(min=0, max=60, help="Seconds that a batch waits for more messages.")] = 0.05,
    once: Annotated[bool, flag("--once", help="Stop at the present end of the messages.")] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option(min=0, help="A partition to read (default: all). Repeatable.", rich_help_panel=_KAFKA),
    ] = None,
    time_format: TimeFormat = "",
    time_unit: TimeUnit = "",
    tls: Annotated[bool, flag("--tls", help="Use TLS.", rich_help_panel=_KAFKA)] = False,
    tls_ca: File = None,
    tls_cert: File = None,
    tls_key: File = None,
    sasl: Annotated[
        Mechanism,
        typer.Option(help="With KAFKA_USERNAME and KAFKA_PASSWORD in the environment.", rich_help_panel=_KAFKA),
    ] = Mechanism.scram_512,
    stream: Annotated[str | None, typer.Option(help="The stream to read.", rich_help_panel=_REDIS)] = None,
    entry: Annotated[
        EntryFormat,
        typer.Option(
            help="event: JSON in the field event; flat: id, label, time, weight, and features as fields.",
            rich_help_panel=_REDIS,
        ),
    ] = EntryFormat.event,
    keep: Annotated[
        int,
        typer.Option(
            min=0, help="Number of newest entries of --scores and --alerts to keep; 0: all.", rich_help_panel=_REDIS
        ),
    ] = 1_000_000,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    retry_seconds: RetrySeconds = 600.0,
) -> None:
    """Learn and score the events of a Kafka topic or a Redis stream; resume at the last position.

    The learner's log keeps the position of learnt events, so each labelled
    event is learnt exactly once, even after a crash. Scores are written at
    least once; the consumer group keeps their position.

    Passwords come from the environment: KAFKA_USERNAME and KAFKA_PASSWORD,
    REDIS_USERNAME and REDIS_PASSWORD. Ctrl-C and SIGTERM stop it cleanly with
    exit status 0.
    """
    with reporting():
        from rarestream import ClientError
        from service.cli.field_notes import FieldChanges
        from service.connectors import ConsumePlan
        from service.connectors import consume as run

        notes = console(stderr=True)
        group = group or f"rarestream-{learner}"
        name = urlsplit(source).scheme
        if name == "kafka":
            if stream is not None:
                raise typer.BadParameter("is for a redis:// source", param_hint="--stream")
            feed = _kafka(source, partition or [], group, prefix, tls, tls_ca, tls_cert, tls_key, sasl)
        elif name in _REDIS_SCHEMES:
            if stream is None:
                raise typer.BadParameter("is missing; a redis:// source needs it", param_hint="--stream")
            feed = _redis(source, stream, group, prefix, entry is EntryFormat.flat, keep, retry_seconds, notes.print)
        else:
            raise typer.BadParameter("expected kafka://HOST:PORT/TOPIC or redis://HOST:PORT/DB", param_hint="SOURCE")
        plan = ConsumePlan(
            learner,
            what.value,
            _start(start, entry=stream is not None),
            on_bad is OnFault.skip,
            on_lost is OnFault.skip,
            scores,
            alerts,
            batch,
            linger,
            once,
            time_format,
            time_unit,
        )
        with connected(url, key) as client:  # checks the URL and the key before anything is read
            changes = None
            with suppress(ClientError):  # the service may still be starting
                changes = FieldChanges(client.learner(learner))
            counts = run(
                plan,
                feed,
                lambda wait: connected(url, key, patience=retry_seconds, wait=wait, notice=notes.print),
                notes.print,
            )
            if changes is not None and (line := changes.line()) is not None:
                notes.print(line)
        if as_json:
            print_json({"learner": learner, **counts})


def _start(text: str, *, entry: bool) -> Start:
    """Parse --from; `entry`: it may be the id of a stream's entry, else an offset."""
    from service.connectors import offset_of

    match text:
        case "earliest" | "latest":
            return text
    milliseconds, dash, sequence = text.partition("-")
    if milliseconds.isdecimal() and ((entry and sequence.isdecimal()) or not dash):
        return offset_of(text) if entry else int(text)
    raise typer.BadParameter(
        f"{text!r}; expected earliest, latest, an offset or MILLISECONDS-SEQUENCE", param_hint="--from"
    )


def _kafka(
    source: str,
    partitions: list[int],
    group: str,
    prefix: str | None,
    tls: bool,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    mechanism: Mechanism,
) -> Feed:
    import os

    from service.connectors import KafkaFeed, Security

    parts = urlsplit(source)
    topic = parts.path.strip("/")
    if not parts.netloc or "@" in parts.netloc or not topic or "/" in topic:
        reason = "expected kafka://HOST:PORT,HOST:PORT/TOPIC; a password comes from KAFKA_PASSWORD"
        raise typer.BadParameter(reason, param_hint="SOURCE")
    files = (ca, certificate, key)
    if not tls and any(files):
        raise typer.BadParameter("is missing beside its certificate or key files", param_hint="--tls")
    username, password = os.environ.get("KAFKA_USERNAME"), os.environ.get("KAFKA_PASSWORD")
    security = Security(tls, *files, username, password, mechanism.value)
    return KafkaFeed(parts.netloc, topic, partitions, group, "kafka:" if prefix is None else prefix, security)


def _redis(
    source: str,
    stream: str,
    group: str,
    prefix: str | None,
    flat: bool,
    keep: int,
    patience: float,
    note: Callable[[str], None],
) -> Feed:
    import os

    from service.connectors import RedisFeed

    return RedisFeed(
        source,
        stream,
        group,
        "redis:" if prefix is None else prefix,
        flat=flat,
        username=os.environ.get("REDIS_USERNAME"),
        password=os.environ.get("REDIS_PASSWORD"),
        keep=keep or None,
        patience=patience,
        note=note,
    )
