"""Mutated records of logs, snapshots, and events that were remembered: refused, or taken as what they then say.

The checksum is made to fit in most of them, so that what is behind it is tried. A record or snapshot that is taken must
leave a learner whose whole state is sound, and which goes on learning.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
import numpy as np

from learners.comparison import ComparedBatch, GroupComparison, GroupConfig
from learners.config import Config
from learners.learner import Learner, State, check_state
from learners.numerics.arrays import Sparse
from learners.numerics.hash_table import hashes_of
from learners.records import LabelledBatch, LateColumns, Rollback, Segment, ServedBatch, SettingsChange, select_rows
from learners.scorer import Predictions
from learners.settings import InvalidInput
from service.engine.records.codec import Created, pack_record, pack_snapshot, unpack_record, unpack_snapshot
from service.engine.records.served_codec import pack_served, unpack_served
from service.engine.records.validation import check_compared, check_record
from service.errors import Damaged
from tests.campaigns.fuzz.mutations import mutated_bytes, mutated_value, packed
from tests.campaigns.fuzz.report import Report, until
from tests.learners.pipelines import Pipeline, stream

__all__ = ["Tally", "mutations", "records", "remembered", "snapshots"]

_HEADER = struct.Struct("<4sBBI")  # as in `service/engine/records/codec.py`: magic, version, kind, CRC-32
_PIPELINES = [
    Pipeline(*item)
    for item in (
        ("loam-ada", "dense"),
        ("cbr", "table"),
        ("cbr-diag", "named"),
        ("fofo", "sparse"),
        ("npsvor", "dense"),
        ("nsauc", "dense"),
        ("ranksvm", "dense"),
        ("oam", "dense"),
    )
]
_AHEAD = 0.03  # of mutations, those of which the checksum does not know


@dataclass
class Subject:
    """A learner, what it stands at, and records that would move it on."""

    name: str
    config: Config
    state: State
    digest: str
    records: dict[str, bytes]
    snapshot: bytes

    def learner(self) -> Learner:
        """One that stands there."""
        return Learner.restored(self.config, self.state)


def subjects() -> list[Subject]:
    """One for each kind of features, and of algorithms that keep other things."""
    return [_subject(pipeline) for pipeline in _PIPELINES]


def _subject(pipeline: Pipeline) -> Subject:
    learner = pipeline.learner()
    for seed in range(3):
        batch, _ = stream(pipeline, learner, 30, seed)
        learner.apply(LabelledBatch(**{**vars(batch), "segments": ()}))
        if learner.fit_due:
            learner.apply(learner.fit_job().run())
    state = {name: array.copy() for name, array in learner.state().items()}
    entry, _ = stream(pipeline, learner, 18, 9)
    two = learner.config.labels.ranks is None
    segments = (Segment(0, 4, "file", 5, 5), Segment(4, 18, "é", 2**40, 7))
    timed = np.where(np.arange(18) % 3 == 0, np.nan, 1e9 + np.arange(18.0))
    late = _late(18, two)
    made: dict[str, Any] = {
        "batch": entry,
        "batch with times": LabelledBatch(
            entry.rows, entry.labels, entry.weights, timed, entry.ids, segments, np.ones(18)
        ),
        "batch of late labels": LabelledBatch(_but(entry.rows), entry.labels, None, timed, _named(18), (), None, late),
        "served": ServedBatch(
            hashes_of(_named(18)),
            1e9 + np.arange(18.0),
            np.linspace(-1, 1, 18),
            np.ones(18, dtype=np.int64),
            np.linspace(0, 1, 18) if two else None,
            np.full(18, 0.5) if two else None,
        ),
        "roll-back": Rollback(7, state, {"figures": {"k": 3}}),
        "change": SettingsChange({"late": {"label_ttl": 5.0}, "figures": {"k": 3}}),
        "copy": Created(learner.config.to_json(), state),
    }
    other = pipeline.learner()
    other.apply(LabelledBatch(**{**vars(stream(pipeline, other, 30, 1)[0]), "segments": ()}))
    if other.fit_due:
        made["fit"] = other.fit_job().run()
    return Subject(
        f"{pipeline.algorithm}, {pipeline.kind}",
        learner.config,
        state,
        learner.digest(),
        {name: pack_record(item) for name, item in made.items()},
        pack_snapshot(9, learner.config, state),
    )


def _named(n: int) -> tuple[str, ...]:
    return tuple(f"served-{i}" for i in range(n))


def _late(n: int, two: bool) -> Any:
    served, bare = np.arange(n) % 2 == 0, np.arange(n) == 3
    return LateColumns.none(n)._replace(
        served=served,
        bare=bare,
        scores=np.where(served, 0.5, np.nan),
        probabilities=np.where(served & two, 0.5, np.nan),
        thresholds=np.where(served & two, 0.4, np.nan),
        decisions=np.where(served, 1, 0),
        labelled=np.full(n, 2e9),
    )


def _but(rows: Any) -> Any:
    """All rows but the fourth, whose event has only its id."""
    if not isinstance(rows, Sparse):
        return np.delete(rows, 3, axis=0)
    keep = np.ones(len(rows.indptr) - 1, dtype=np.bool_)
    keep[3] = False
    return select_rows(rows, keep)


def _mutated(random: Random, data: bytes, others: list[bytes]) -> bytes:
    """Of a record or a snapshot: its bytes, or what they say, behind a checksum that mostly fits."""
    if random.random() < _AHEAD:
        return mutated_bytes(random, data, others)
    magic, version, kind, _ = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    changed: bytes | None = None
    if random.random() < 0.7:
        changed = packed(mutated_value(random, msgspec.msgpack.decode(body)))
    if changed is None:
        changed = mutated_bytes(random, body, [other[_HEADER.size :] for other in others])
    if random.random() < 0.05:
        kind = random.randrange(10)
    return _HEADER.pack(magic, version, kind, zlib.crc32(changed)) + changed


def _tried(report: Report, what: str, data: bytes, run: Callable[[], None]) -> bool:
    """Whether it was taken; notes what became of it. Whatever is no refusal with a message is a fault."""
    try:
        run()
    except (Damaged, InvalidInput) as error:
        if not str(error):
            report.fail(f"{what}: refused without a word: {data[:200].hex()}")
        report.note(what, "refused")
        return False
    except Exception as error:  # the campaign is there to find any
        report.fail(f"{what}: {type(error).__name__}: {error} at {data.hex()[:300]}")
        report.note(what, "FAULT")
        return False
    report.note(what, "taken")
    return True


def records(seconds: float, seed: int = 0, count: int | None = None) -> Report:
    """Mutated records, read and applied as by `service/engine/replica/log_follower.py`."""
    report, random = Report("records of logs"), Random(seed)
    every = subjects()
    others = [data for item in every for data in item.records.values()]
    learners = [item.learner() for item in every]
    of_groups = None if count is None else count // 10
    for i in until(seconds, None if count is None else count - count // 10):
        k = i % len(every)
        subject = every[k]
        name = random.choice(sorted(subject.records))
        data = _mutated(random, subject.records[name], others)
        _one_record(report, subject, learners, k, f"record: {name}", data)
    _groups(report, random, seconds / 10, of_groups)
    return report


def _one_record(report: Report, subject: Subject, learners: list[Learner], k: int, what: str, data: bytes) -> None:
    learner = learners[k]

    def run() -> None:
        record = unpack_record(data, "record 2 of a")
        if isinstance(record, Created):
            _created(record)
            return
        if isinstance(record, ComparedBatch):
            raise Damaged("of a group")
        check_record(record, subject.config, "record 2 of a")
        learner.apply(record)

    if _tried(report, what, data, run):
        _goes_on(report, what, data, learner)
        learners[k] = subject.learner()
    elif learner.digest() != subject.digest:
        report.fail(f"{what}: was refused, and changed the learner: {data.hex()[:300]}")
        learners[k] = subject.learner()


def _created(record: Created) -> None:
    if "learners" in record.config:
        GroupComparison(GroupConfig.of(record.config))
        return
    config = Config.of(record.config)
    learner = Learner(config) if record.state is None else Learner.restored(config, record.state)
    learner.score([])


def _goes_on(report: Report, what: str, data: bytes, learner: Learner, grown: bool = False) -> None:
    """Check that a learner that accepted it is valid, and shows its metrics.

    `grown`: it has learnt since, from a state in which a number may have been close to float64's end.
    """
    try:
        learner.view().frozen().figures.as_json()
        check_state(learner.config, {name: array.copy() for name, array in learner.state().items()})
    except InvalidInput as error:
        if grown and all(problem.detail.endswith("not finite") for problem in error.problems):
            report.note(what, "taken, and overflowed later")
        else:
            report.fail(f"{what}: taken, and then {error} at {data.hex()[:300]}")
    except Exception as error:  # likewise
        report.fail(f"{what}: taken, and then {type(error).__name__}: {error} at {data.hex()[:300]}")


def _groups(report: Report, random: Random, seconds: float, count: int | None) -> None:
    """Return records of a group's log."""
    config = GroupConfig.of({"learners": ["one", "two"], "window": 20})
    record = ComparedBatch(
        np.arange(1, 9, dtype=np.uint64), np.where(np.arange(8) % 2, 1.0, -1.0), np.ones((8, 2)), np.full(8, np.nan)
    )
    data = pack_record(record)
    group = GroupComparison(config)
    group.apply(record)
    state, digest = {name: array.copy() for name, array in group.state().items()}, group.digest()
    for _ in until(seconds, count):
        changed = _mutated(random, data, [data])

        def run(group: GroupComparison = group, changed: bytes = changed) -> None:
            actual = unpack_record(changed, "record 2 of a")
            if not isinstance(actual, ComparedBatch):
                raise Damaged("of no group")
            check_compared(actual, "record 2 of a")
            group.apply(actual)

        if _tried(report, "record: comparison", changed, run):
            group.view().as_json()
            try:
                GroupComparison.restored(config, {name: array.copy() for name, array in group.state().items()})
            except InvalidInput as error:
                report.fail(f"record: comparison: taken, and then {error} at {changed.hex()[:300]}")
            group = GroupComparison.restored(config, state)
        elif group.digest() != digest:
            report.fail(f"record: comparison: was refused, and changed the group: {changed.hex()[:300]}")


def snapshots(seconds: float, seed: int = 0, count: int | None = None) -> Report:
    """Mutated snapshots, which are what exports are as well: read, restored and gone on from."""
    report, random = Report("snapshots"), Random(seed)
    every = subjects()
    others = [item.snapshot for item in every]
    for i in until(seconds, count):
        subject = every[i % len(every)]
        data = _mutated(random, subject.snapshot, others)
        what = f"snapshot: {subject.name}"
        made: list[Learner] = []

        def run(data: bytes = data, made: list[Learner] = made) -> None:
            actual = unpack_snapshot(data, "snapshot 9 of a")
            if isinstance(actual.config, GroupConfig):
                GroupComparison.restored(actual.config, actual.state)
                return
            made.append(Learner.restored(actual.config, actual.state))
            made[0].score([])

        if _tried(report, what, data, run) and made and made[0].config == subject.config:
            batch = unpack_record(subject.records["batch"], "record 2 of a")
            assert isinstance(batch, LabelledBatch)

            def learn(learner_state: Learner = made[0], batch: LabelledBatch = batch) -> None:
                learner_state.apply(batch)

            _tried(report, "events, after a snapshot that was taken", data, learn)
            _goes_on(report, what, data, made[0], grown=True)
    return report


@dataclass
class Tally:
    """What became of so many mutated snapshots and records."""

    tried: int
    refused: int  # with a message; what they were for stands where it stood, to the bit
    harmless: int  # harmless: the learner that took one is sound, shows its figures and goes on learning
    wrong: list[str]

    @property
    def good(self) -> bool:
        """Each was refused or harmless, and most were refused."""
        return not self.wrong and self.refused + self.harmless == self.tried and self.refused > self.tried / 2

    def __str__(self) -> str:
        return (
            f"{self.tried:,} mutated snapshots and records of logs: {self.refused:,} refused with a message and no "
            f"trace, {self.harmless:,} taken and sound, {len(self.wrong)} did not hold"
        )


def mutations(count: int, seed: int = 0) -> tuple[Tally, list[Report]]:
    """Exactly so many, half of them snapshots, however long it takes; and what is told of both."""
    reports = [snapshots(math.inf, seed, count // 2), records(math.inf, seed, count - count // 2)]
    actual: Counter[str] = Counter()
    for report in reports:
        for (what, became), n in report.counts.items():
            if what.startswith(("snapshot: ", "record: ")):  # and not what is done with it afterwards
                actual[became] += n
    refused, harmless = actual["refused"], actual["taken"]
    wrong = [item for report in reports for item in report.wrong]
    return Tally(refused + harmless + actual["FAULT"], refused, harmless, wrong), reports


def remembered(seconds: float, seed: int = 0, count: int | None = None) -> Report:
    """Mutated bytes of events that wait for their labels: read, and looked at as the record that they become."""
    report, random = Report("remembered events"), Random(seed)
    every = subjects()
    stored = []
    for entry in every:
        batch = unpack_record(entry.records["batch"], "it")
        assert isinstance(batch, LabelledBatch)
        n = len(batch)
        output = Predictions(np.linspace(-1, 1, n), np.ones(n, dtype=np.int64), np.full(n, 0.5), np.full(n, 0.4))
        stored.append(pack_served(batch.rows, output, None, 3))
    for i in until(seconds, count):
        k = i % len(every)
        config = every[k].config
        data = random.choice(stored[k])
        value = mutated_value(random, msgspec.msgpack.decode(data))
        changed = packed(value) if random.random() < 0.6 else None
        if changed is None:
            changed = mutated_bytes(random, data, [item for other in stored for item in other])

        def run(config: Config = config, changed: bytes = changed, k: int = k) -> None:
            summary = unpack_served([stored[k][0], changed], config.encode([]), "what was remembered of a")
            late = LateColumns.none(2)._replace(
                served=np.ones(2, dtype=np.bool_),
                scores=summary.scores,
                probabilities=summary.probabilities,
                thresholds=summary.thresholds,
                decisions=summary.decisions,
            )
            ones = np.ones(2)
            batch = LabelledBatch(summary.rows, ones, None, None, ("a", "b"), costs=summary.costs, late=late)
            check_record(batch, config, "what was remembered of a")
            learner = every[k].learner()
            learner.apply(batch)
            _goes_on(report, "remembered event", changed, learner)

        _tried(report, f"remembered event: {every[k].name}", changed, run)
    return report
