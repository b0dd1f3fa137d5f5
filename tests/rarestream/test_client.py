"""The Python client against the service as a process: what it is given arrives to the bit, and once."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import learners
from rarestream import (
    NO_DECISION,
    EventBatch,
    OutcomeUnknown,
    RequestBounds,
    RequestRefused,
    ServiceUnreachable,
    UploadSummary,
)
from tests.harness.clients import KINDS, client, lossy
from tests.harness.process import Process

pytestmark = pytest.mark.integration

DENSE: dict[str, Any] = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 3}, "window": 200}
NAMED: dict[str, Any] = {"algorithm": "cbr-diag", "features": {"kind": "named", "categorical": ["shop"]}}
SPARSE: dict[str, Any] = {"algorithm": "cbr-diag", "features": {"kind": "sparse", "dim": 40}}
ORDINAL: dict[str, Any] = {
    "algorithm": "npsvor",
    "params": {"ranks": 4},
    "features": {"kind": "dense", "dim": 3},
}
N = 300
RNG = np.random.default_rng(5)
Y = RNG.random(N) < 0.3
X = RNG.normal(size=(N, 3)) + Y[:, None]
IDS = [f"e{i}" for i in range(N)]
SMALL = RequestBounds(events=70)  # so that a call takes several requests


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("service")
    with Process(f"sqlite:///{folder / 'log.db'}", folder / "server.log", at_least_seconds=0.5) as process:
        yield process


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def api(service: Process, kind: str) -> Iterator[Any]:
    """Yield a client of each kind."""
    with client(kind, service.url, bounds=SMALL) as client_object:
        yield client_object


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a learner of the test's own."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")


def library(config: dict[str, Any]) -> learners.Learner:
    settings = {key: value for key, value in config.items() if key not in ("algorithm", "params")}
    return learners.create(config["algorithm"], **config.get("params", {}), **settings)


def assert_agree(remote: Any, local: learners.Learner) -> None:
    """Check that two states have the same bits."""
    assert remote.digest()["digest"] == local.digest()


@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.integration), np.float64])
def test_dense_rows_give_the_same_state_as_the_library(api: Any, name: str, dtype: type) -> None:
    rows = X.astype(dtype)
    remote = api.create(name, **DENSE)
    local = library(DENSE)
    reply = remote.update(rows, Y, ids=IDS, weights=np.linspace(0, 2, N))
    scores = local.learn(rows.astype(np.float64), Y, ids=IDS, weights=np.linspace(0, 2, N))
    assert (reply.applied, reply.repeats, reply.ids) == (N, 0, IDS)
    assert (reply.status == "applied").all()
    np.testing.assert_array_equal(reply.scores, scores)
    assert reply.class_counts == {"negative": N - int(Y.sum()), "positive": int(Y.sum())}
    np.testing.assert_array_equal(reply.decisions, reply.probabilities >= reply.thresholds)
    assert_agree(remote, local)


def test_sparse_rows_give_the_same_state_as_the_library(api: Any, name: str) -> None:
    matrix = sp.random_array((N, 40), density=0.1, rng=np.random.default_rng(1), format="coo")
    remote, local = api.create(name, **SPARSE), library(SPARSE)
    reply = remote.update(matrix, Y, ids=np.arange(N))
    np.testing.assert_array_equal(reply.scores, local.learn(matrix, Y, ids=[str(i) for i in range(N)]))
    assert_agree(remote, local)


def test_named_features_by_event_and_by_column_agree(api: Any, name: str) -> None:
    columns = {
        "amount": np.round(np.exp(X[:, 0]), 2),
        "shop": (np.abs(X[:, 1]) * 100).astype(np.int64),
        "country": [["DE", "FR", None][i % 3] for i in range(N)],
        "items": [["gift card", "phone"][: i % 3] for i in range(N)],
    }
    events = [{key: column[i] for key, column in columns.items() if column[i] is not None} for i in range(N)]
    plain = [{**event, "amount": float(event["amount"]), "shop": int(event["shop"])} for event in events]
    local = library(NAMED)
    scores = local.learn(plain, Y, ids=IDS)
    for form, features in (("events", events), ("columns", columns)):
        remote = api.create(f"{name}-{form}", **NAMED)
        np.testing.assert_array_equal(remote.update(features, Y, ids=IDS).scores, scores)
        assert_agree(remote, local)


def test_ranks_are_learnt(api: Any, name: str) -> None:
    ranks = 1 + (np.abs(X[:, 0]) * 2).astype(np.int64).clip(0, 3)
    remote, local = api.create(name, **ORDINAL), library(ORDINAL)
    reply = remote.update(X, ranks)
    np.testing.assert_array_equal(reply.ranks, local.learn(X, ranks))
    assert (reply.probabilities, reply.thresholds, reply.decisions) == (None, None, None)
    predictions = remote.predict(X)
    assert (predictions.probabilities, predictions.thresholds, predictions.labels) == (None, None, None)
    assert predictions.ranks.shape == (N,)
    assert_agree(remote, local)


def test_late_labels_are_learnt(api: Any, name: str) -> None:
    remote = api.create(name, **DENSE)
    nothing = remote.predict(X[:2])
    assert not nothing.ready
    assert nothing.labels.tolist() == [NO_DECISION, NO_DECISION]
    remote.update(X[:100], Y[:100])
    served = remote.predict(X[100:], ids=IDS[100:])
    assert (served.ready, served.remembered) == (True, N - 100)
    first = remote.labels(IDS[100:200], Y[100:200])
    np.testing.assert_array_equal(first.scores, served.scores[:100])
    np.testing.assert_array_equal(first.decisions, served.labels[:100])
    second = remote.update(None, Y[198:202], ids=[*IDS[198:201], "never"])
    assert second.status.tolist() == ["duplicate", "duplicate", "applied", "unknown"]
    assert (second.applied, second.duplicate, second.unknown) == (1, 2, 1)
    assert np.isnan(second.scores).tolist() == [True, True, False, True]
    assert (second.decisions == NO_DECISION).tolist() == [True, True, False, True]


def test_explanations_are_returned(api: Any, name: str) -> None:
    remote = api.create(name, **DENSE)
    remote.update(X, Y)
    predictions = remote.predict(X, explain=1)
    assert len(predictions.explanations) == N
    for score, why in zip(predictions.scores, predictions.explanations, strict=True):
        assert len(why.features) == 1
        assert why.intercept + why.features[0][1] + why.rest == pytest.approx(score)


def test_predict_waits_for_a_position(api: Any, name: str) -> None:
    remote = api.create(name, **DENSE)
    position = remote.update(X, Y).position
    assert len(remote.predict(X, explain=1, at_least=position).explanations) == N
    with pytest.raises(RequestRefused) as caught:
        remote.predict(X, at_least=position + 100)
    assert (caught.value.status, caught.value.code) == (409, "beyond-log")


def test_a_refused_call_reports_the_position_and_the_progress(api: Any, name: str) -> None:
    remote = api.create(name, **DENSE)
    labels = np.where(Y, 1, 0)
    labels[75] = 7
    with pytest.raises(RequestRefused) as caught:
        remote.update(X, labels, ids="auto")
    error = caught.value
    assert (error.status, error.code, error.done) == (422, "invalid", 70)
    assert [problem.pointer for problem in error.problems] == ["/labels/5"]
    assert error.ids is not None
    reply = remote.update(X, Y, ids=error.ids)
    assert (reply.duplicate, reply.applied) == (70, N - 70)


def test_errors_of_the_service_are_raised(api: Any, name: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        api.learner(name).metrics()
    assert caught.value.code == "unknown-learner"
    api.create(name, **DENSE)
    with pytest.raises(RequestRefused) as caught:
        api.create(name, **SPARSE)
    assert (caught.value.status, caught.value.code) == (409, "name-taken")
    with pytest.raises(RequestRefused) as caught:
        api.create(f"{name}-2", algorithm="nothing-of-this-name", features={"kind": "dense"})
    assert {problem.pointer for problem in caught.value.problems} >= {"/algorithm"}


def test_a_source_detects_repeats_and_gaps(api: Any, name: str) -> None:
    remote = api.create(name, **DENSE)
    assert remote.update(X[:100], Y[:100], source=("file", 0)).applied == 100
    reply = remote.update(X[50:150], Y[50:150], source=("file", 50))
    assert (reply.duplicate, reply.applied) == (50, 50)
    with pytest.raises(RequestRefused) as caught:
        remote.update(X[200:], Y[200:], source=("file", 200))
    assert caught.value.code == "source-gap"
    assert remote.describe()["sources"] == {"file": 150}


def test_a_source_may_skip_offsets(api: Any, name: str) -> None:
    remote = api.create(name, **DENSE)
    numbers = list(range(10, 2 * N + 10, 2))
    assert remote.update(X, Y, source=("topic", numbers, 3)).applied == N  # in several requests
    assert remote.describe()["sources"] == {"topic": numbers[-1] + 1}
    assert remote.update(X[-5:], Y[-5:], source=("topic", numbers[-5:])).duplicate == 5
    with pytest.raises(RequestRefused) as caught:
        remote.update(X[:1], Y[:1], source=("topic", [9000], 8000))
    assert caught.value.code == "source-gap"
    with pytest.raises(ValueError, match="source"):
        remote.upload([(X, Y)], source=("topic", numbers))


def test_an_upload_reports_its_progress(api: Any, name: str) -> None:
    counts: list[int] = []

    def batches() -> Iterator[Any]:
        for start in range(0, N, 100):
            counts.append(start)
            yield X[start : start + 100], Y[start : start + 100], IDS[start : start + 100]
            yield X[:0], Y[:0]  # passed over

    progress: list[tuple[int, list[int]]] = []
    remote, local = api.create(name, **DENSE), library(DENSE)
    result = remote.upload(batches(), progress=lambda so_far: progress.append((so_far.events, list(counts))))
    local.learn(X, Y, ids=IDS)
    assert (result.events, result.applied, result.requests, result.repeats) == (N, N, 6, 0)
    assert result.position == remote.describe()["position"]
    assert [events for events, _ in progress] == [70, 100, 170, 200, 270, 300]
    assert [len(batch) for _, batch in progress] == [
        1,
        1,
        2,
        2,
        3,
        3,
    ]  # the client takes a batch when the last one is learnt
    assert_agree(remote, local)


def test_an_upload_resumes_at_the_offset_of_its_source(api: Any, name: str) -> None:
    def parts(start: int) -> Iterator[EventBatch]:
        for i in range(start, N, 60):
            yield EventBatch(X[i : i + 60], Y[i : i + 60])

    remote, local = api.create(name, **DENSE), library(DENSE)

    def until_there_are_enough(so_far: UploadSummary) -> None:
        if so_far.events == 180:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        remote.upload(parts(0), source=("file", 0), progress=until_there_are_enough)
    start = remote.describe()["sources"]["file"]
    assert start == 180
    assert remote.upload(parts(start), source=("file", start)).applied == N - 180
    assert remote.upload(parts(0), source=("file", 0)).duplicate == N
    assert remote.metrics()["events"] == N
    local.learn(X, Y)
    np.testing.assert_array_equal(remote.predict(X).scores, local.score(X))


def test_a_failed_upload_reports_its_progress(api: Any, name: str) -> None:
    remote = api.create(name, **DENSE)
    with pytest.raises(RequestRefused) as caught:
        remote.upload([(X[:100], Y[:100]), (X[100:200, :2], Y[100:200])])
    assert caught.value.done == 100
    with pytest.raises(ValueError, match="mine"):
        remote.upload([], ids="mine")


def test_an_async_iterable_is_uploaded(service: Process, name: str) -> None:
    async def batches() -> AsyncIterator[Any]:
        yield X[:100], Y[:100]
        yield X[100:], Y[100:]

    with client("async", service.url) as api:
        assert api.create(name, **DENSE).upload(batches(), ids="auto").applied == N


def test_documents_of_a_learner_are_returned(api: Any, name: str) -> None:
    remote = api.create(name, **DENSE)
    remote.update(X, Y, ids=IDS)
    assert remote.name == name
    assert remote.describe()["config"]["algorithm"] == "loam-ada"
    assert remote.metrics()["events"] == N
    changed = remote.change(threshold={"objective": "budget", "alerts": 10})
    assert changed["config"]["threshold"]["objective"] == "budget"
    assert remote.snapshot()["position"] == remote.digest()["position"]
    assert name in {learner["name"] for learner in api.learners()["learners"]}
    api.delete(name)
    assert name not in {learner["name"] for learner in api.learners()["learners"]}
    with pytest.raises(RequestRefused):
        api.delete(name)


# What gets lost


@pytest.mark.integration
def test_events_are_learnt_once_despite_a_service_crash(kind: str, tmp_path: Path) -> None:
    """Half a request arrives; then one arrives and is answered, but service and answer are gone."""
    process = Process(f"sqlite:///{tmp_path / 'log.db'}", tmp_path / "server.log")
    times = iter([lambda: None, lambda: (process.kill(), process.start())])
    with (
        process,
        lossy(process.port, ["none", "none", "half", "answer"], lambda: next(times)()) as url,
        client(kind, url, bounds=SMALL) as api,
    ):
        remote = api.create("a", **DENSE)
        reply = remote.update(X, Y, ids=IDS)
        local, clean = library(DENSE), library(DENSE)
        for start, stop in ((0, 70), (70, 140), (70, 140), (140, N)):  # as they stand in the log
            local.learn(X[start:stop], Y[start:stop], ids=IDS[start:stop])
        scores = clean.learn(X, Y, ids=IDS)
        assert (reply.repeats, reply.applied, reply.duplicate) == (2, N - 70, 70)
        learnt = reply.status == "applied"
        np.testing.assert_array_equal(reply.scores[learnt], scores[learnt])
        assert_agree(remote, local)
        figures = remote.metrics()
        assert (figures["events"], figures["duplicates"]) == (N, 70)
        assert figures["window"]["auc"] == clean.figures()["window"]["auc"]
        np.testing.assert_array_equal(remote.predict(X).scores, clean.score(X))


def test_events_without_ids_are_not_retried(api: Any, service: Process, kind: str, name: str) -> None:
    remote = api.create(name, **DENSE)
    with lossy(service.port, ["none", "answer"], lambda: None) as url, client(kind, url, bounds=SMALL) as through:
        with pytest.raises(OutcomeUnknown, match="ids='auto'") as caught:
            through.learner(name).update(X, Y)
        assert caught.value.done == 70
        assert remote.metrics()["events"] == 140  # it was learnt, once, and nobody could know


def test_the_client_waits_for_a_starting_service(tmp_path: Path) -> None:
    process = Process(f"sqlite:///{tmp_path / 'log.db'}", tmp_path / "server.log")
    for kind in KINDS:
        with client(kind, process.url, patience=0) as api, pytest.raises(ServiceUnreachable):
            api.learners()
    starting = threading.Thread(target=process.start)
    try:
        with client("sync", process.url) as api:
            starting.start()
            assert api.create("a", **DENSE).update(X, Y).applied == N  # without ids: nothing of it was sent before
    finally:
        starting.join()
        process.kill()


def test_scored_events_are_listed_with_their_labels(api: Any, name: str) -> None:
    remote = api.create(name, **DENSE)
    remote.predict(X[:5], ids=[f"{i}/ü" for i in range(5)])
    remote.labels(["3/ü"], [True])
    page = remote.scored_events(limit=2)
    assert [event["id"] for event in page["events"]] == ["4/ü", "3/ü"]
    rest = remote.scored_events(limit=9, cursor=page["cursor"])
    assert ([event["id"] for event in rest["events"]], rest["cursor"]) == (["2/ü", "1/ü", "0/ü"], None)
    event = remote.scored_event("3/ü")
    assert [step["kind"] for step in event.pop("history")] == ["served", "labelled"]
    assert remote.scored_events(status="labelled")["events"] == [event]
    assert event["label"] == 1
    with pytest.raises(RequestRefused):
        remote.scored_event("nobody")


def test_thresholds_are_tried_before_one_is_set(api: Any, name: str) -> None:
    remote = api.create(name, **DENSE)
    remote.update(X, Y, ids=IDS)
    document = remote.thresholds(points=5, false_negative=4.0)
    assert document["costs"] == {"false_positive": 1.0, "false_negative": 4.0}
    frame = {
        name: np.array(column) for name, column in (document["points"] | document["points"].pop("confusion")).items()
    }
    assert (np.diff(frame["threshold"]) > 0).all()
    np.testing.assert_allclose(frame["precision"], frame["tp"] / (frame["tp"] + frame["fp"]))
    settings = {"objective": "recall", "target": 0.5}
    tried = remote.preview_threshold(settings, false_positive=2.0)
    assert tried["costs"] == {"false_positive": 2.0, "false_negative": 1.0}
    assert remote.change(threshold=settings)["threshold"] == tried["threshold"]
    with pytest.raises(RequestRefused):
        remote.preview_threshold({"objective": "precision"})


def test_segments_are_rows_of_a_frame(api: Any, name: str) -> None:
    remote = api.create(name, **{**DENSE, "figures": {"segments": ["0"]}})
    remote.update(np.round(X), Y, ids=IDS)
    document = remote.segments("0", limit=3, positives=1)
    assert (document["by"], document["minimum_positives"]) == ("0", 1)
    assert 0 < len(document["segments"]) <= 3
    assert len({frozenset(row) for row in document["segments"]}) == 1
    with pytest.raises(RequestRefused):
        remote.segments("1")


def test_alarms_are_acknowledged_and_notes_are_listed(api: Any, name: str) -> None:
    remote = api.create(name, algorithm="cbr-diag", features={"kind": "dense", "dim": 1})
    labels = np.concatenate([np.arange(600) % 10 == 0, np.zeros(400)])
    remote.update(labels[:, None], labels)
    assert [(alarm["kind"], alarm["state"]) for alarm in remote.alarms()["alarms"]] == [("positives", "open")]
    signed = remote.acknowledge(0, "the feed broke", by="Ann")
    assert remote.acknowledge(0, "the feed broke", by="Ann") == signed
    assert remote.alarms()["alarms"] == [signed]
    assert sum(remote.alarms()["open"].values()) == 0
    for refused in (lambda: remote.acknowledge(0, by="Bob"), lambda: remote.acknowledge(1)):
        with pytest.raises(RequestRefused):
            refused()
    note = remote.annotate("feed is back", by="CI")
    assert remote.annotations(limit=1) == {"annotations": [note], "cursor": None}
    assert remote.alarms(cursor=1)["alarms"] == []
