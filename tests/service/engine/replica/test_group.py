"""Groups: learners that receive the same stream, and their comparison."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
from sklearn.metrics import roc_auc_score

from service.engine.records.codec import unpack_record
from service.errors import LearnerGone, StoreUnavailable
from service.storage.memory import MemoryStore
from service.storage.store_protocol import LogEntry, Store
from tests.harness.log_records import logged_data
from tests.harness.nodes import T0, digest, fetched, posted, serving
from tests.harness.store_records import whole_log
from tests.harness.waiting import eventually_async
from tests.service.engine.replica.test_served_events import SETUPS

pytestmark = pytest.mark.integration

MEMBERS: dict[str, dict[str, Any]] = {  # two kinds of features that take the same events
    "one": {**SETUPS["table"], "window": 1000},
    "two": {**SETUPS["named"], "window": 1000},
    "three": {**SETUPS["named"], "algorithm": "fofo", "window": 1000},
}
GROUP = {"learners": list(MEMBERS), "window": 1000}
URL = "/groups/g"


def event(i: int) -> dict[str, Any]:
    amount = (i % 5 == 0) * 0.6 + (i * 7 % 11) / 11
    return {"id": f"e{i}", "features": {"amount": amount, "shop": f"s{i * 3 % 4}"}, "time": T0 + 10 * i}


def labelled(start: int, stop: int) -> list[dict[str, Any]]:
    return [{**event(i), "label": int(i % 5 == 0)} for i in range(start, stop)]


async def created(http: httpx.AsyncClient, group: dict[str, Any] = GROUP) -> None:
    for name, config in MEMBERS.items():
        await http.put(f"/learners/{name}", json=config)
    reply = await http.put(URL, json=group)
    assert reply.status_code in (200, 201), reply.text


async def compared(http: httpx.AsyncClient) -> dict[str, Any]:
    return await fetched(http, f"{URL}/compare")


async def aucs(http: httpx.AsyncClient) -> dict[str, float]:
    """Return the AUC of each learner."""
    return {name: (await http.get(f"/learners/{name}/metrics")).json()["window"]["auc"] for name in MEMBERS}


def same(value: dict[str, Any], expected: dict[str, float]) -> bool:
    output = {name: item["auc"] for name, item in value["window"]["auc"].items()}
    return output == pytest.approx(expected, abs=1e-12)


async def settled(engine: Any) -> dict[str, str]:
    """Return the digests of all learners and groups of a node after catching up."""
    hosts = {**engine.replicas, **{f"@{name}": group for name, group in engine.groups.items()}}
    for host in hosts.values():
        await host.log.catch_up()
    return {name: (await host.log.digest())[1] for name, host in hosts.items()}


# Groups as such


async def test_groups_are_created_listed_shown_and_deleted(store: Store) -> None:
    async with serving(store) as (http, engine):
        for name, config in MEMBERS.items():
            await http.put(f"/learners/{name}", json=config)
        new = await http.put(URL, json=GROUP)
        assert new.status_code == 201
        assert new.json() == {
            "name": "g",
            "config": {**GROUP, "alpha": 0.05},
            "position": 1,
            "events": 0,
            "failed": None,
        }
        assert (await http.put(URL, json={**GROUP, "alpha": 0.05})).status_code == 200
        other = await http.put(URL, json={**GROUP, "window": 5})
        assert (other.status_code, other.json()["code"]) == (409, "name-taken")
        assert [error["pointer"] for error in other.json()["errors"]] == ["/window"]
        await http.put("/groups/one", json={"learners": ["two", "one"]})  # learners and groups have names of their own
        listed = (await http.get("/groups")).json()["groups"]
        assert [error["name"] for error in listed] == ["g", "one"]
        assert (await http.get(URL)).json() == listed[0]
        learners = (await http.get("/learners")).json()
        assert ([error["name"] for error in learners["learners"]], learners["unavailable"]) == (sorted(MEMBERS), {})
        assert (await http.get("/health/ready")).json()["learners"] == 3
        assert (await http.delete(URL)).status_code == 204
        for reply in (await http.get(URL), await http.delete(URL), await http.get(f"{URL}/compare")):
            assert (reply.status_code, reply.json()["code"]) == (404, "unknown-group")
        assert set(await store.heads()) == {*MEMBERS, "@one"}
        assert (await http.get("/learners/one")).status_code == 200
        assert set(engine.groups) == {"one"}


@pytest.mark.parametrize(
    ("group", "pointers"),
    [
        ({"learners": ["one"]}, ["/learners"]),
        ({"learners": [f"l{i}" for i in range(9)]}, ["/learners"]),
        ({"learners": ["one", "one"]}, ["/learners/1"]),
        ({"learners": ["one", "none", "@g", "two"]}, ["/learners/2"]),
        ({"learners": ["one", "none", "ranks"]}, ["/learners/1", "/learners/2"]),
        ({"learners": ["one", "two"], "window": 0}, ["/window"]),
        ({"learners": ["one", "two"], "alpha": 0.7, "beta": 1}, ["/alpha", "/beta"]),
        ({"window": 5}, ["/learners"]),
        ({"learners": "one"}, ["/learners"]),
        ([], [""]),
    ],
)
async def test_an_invalid_group_is_refused(group: Any, pointers: list[str]) -> None:
    async with serving(MemoryStore()) as (http, _):
        for name, config in {**MEMBERS, "ranks": SETUPS["ordinal"]}.items():
            await http.put(f"/learners/{name}", json=config)
        reply = await http.put(URL, json=group)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid")
        assert sorted(error["pointer"] for error in reply.json()["errors"]) == pointers
        assert (await http.get("/groups")).json() == {"groups": [], "unavailable": {}, "cursor": None}
        assert (await http.put("/groups/a b", json={"learners": ["one", "two"]})).status_code == 422


# Its stream


async def test_every_member_learns_and_their_predictions_are_compared(store: Store) -> None:
    async with serving(store) as (http, _):
        await created(http)
        for start in range(0, 300, 30):
            reply = await posted(http, f"{URL}/update", labelled(start, start + 30))
            assert reply["compared"] == 30
            assert list(reply["learners"]) == list(MEMBERS)
            assert {difference["applied"] for difference in reply["learners"].values()} == {30}
        result = await compared(http)
        assert (result["events"], result["duplicates"], result["corrections"]) == (300, 0, 0)
        assert result["window"]["class_counts"] == {"negative": 240, "positive": 60}
        assert result["clock"] == T0 + 2990
        assert same(result, await aucs(http))
        output = {
            (difference["a"], difference["b"]): difference["difference"]
            for difference in result["window"]["differences"]
        }
        expected = await aucs(http)
        names = list(MEMBERS)
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        assert output == pytest.approx({(a, b): expected[a] - expected[b] for a, b in pairs}, abs=1e-12)
        assert {(difference["a"], difference["b"]) for difference in result["tests"]} == set(pairs)
        alone = await http.put("/learners/alone", json=MEMBERS["two"])
        assert alone.status_code == 201
        await posted(http, "/learners/alone/update", labelled(0, 300))
        assert (await digest(http, "alone"))[1] == (await digest(http, "two"))[1]


async def test_labels_by_id_compare_the_served_predictions(store: Store) -> None:
    async with serving(store) as (http, _):
        await created(http)
        await posted(http, f"{URL}/update", labelled(0, 50))
        served = await posted(http, f"{URL}/predict", [event(i) for i in range(50, 100)])
        assert {learner["remembered"] for learner in served["learners"].values()} == {50}
        await posted(http, f"{URL}/update", labelled(100, 150))
        labels = [{"id": f"e{i}", "label": int(i % 5 == 0), "time": T0 + 1500} for i in range(50, 100)]
        reply = await posted(http, f"{URL}/labels", [*labels, {"id": "never", "label": 1}])
        assert reply["compared"] == 50
        for name, answer in reply["learners"].items():
            assert (answer["applied"], answer["unknown"]) == (50, 1)
            messages = [learner["score"] for learner in served["learners"][name]["results"]]
            assert [learner["score"] for learner in answer["results"][:50]] == messages
        assert same(await compared(http), await aucs(http))
        wrong = [{**labels[0], "label": 0}, {**labels[1], "label": 1}]
        reply = await posted(http, f"{URL}/labels", wrong)
        assert {learner["relabelled"] for learner in reply["learners"].values()} == {2}
        result = await compared(http)
        assert (result["events"], result["corrections"]) == (150, 2)
        assert same(result, await aucs(http))


async def test_the_group_has_its_own_window(store: Store) -> None:
    async with serving(store) as (http, _):
        await created(http, {**GROUP, "window": 40})
        first = await posted(http, f"{URL}/update", labelled(0, 100))
        outcome = await compared(http)
        assert (outcome["events"], outcome["window"]["events"]) == (100, 40)
        truth = [int(i % 5 == 0) for i in range(60, 100)]
        for name, item in outcome["window"]["auc"].items():
            scores = [result["score"] for result in first["learners"][name]["results"][60:]]
            assert item["auc"] == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
            assert item["interval"][0] <= item["auc"] <= item["interval"][1]


async def test_a_body_refused_by_one_member_is_refused_completely(store: Store) -> None:
    async with serving(store) as (http, engine):
        await created(http)
        await posted(http, f"{URL}/update", labelled(0, 20))
        before = await settled(engine)
        unfit = [
            {**item, "features": {**item["features"], "more": 1.0}} for item in labelled(20, 25)
        ]  # no field of the table
        for body in (unfit, [{**labelled(20, 21)[0], "label": 2}], [{"x": [1, 2], "label": 1}], []):
            reply = await http.post(f"{URL}/update", json={"events": body})
            assert (reply.status_code, reply.json()["code"]) == (422, "invalid")
            assert reply.json()["detail"].startswith("one: ")
        assert await settled(engine) == before


async def test_without_a_member_nothing_is_learnt_and_the_comparison_stays(store: Store) -> None:
    async with serving(store) as (http, engine):
        await created(http)
        await posted(http, f"{URL}/update", labelled(0, 60))
        result = await compared(http)
        await http.delete("/learners/two")
        before = await settled(engine)
        for path, body in (
            ("update", labelled(60, 70)),
            ("predict", [event(70)]),
            ("labels", [{"id": "e1", "label": 1}]),
        ):
            reply = await http.post(f"{URL}/{path}", json={"events": body})
            assert (reply.status_code, reply.json()["code"]) == (404, "unknown-learner")
            assert "two" in reply.json()["detail"]
        assert await settled(engine) == before
        assert result["gone"] == []
        assert await compared(http) == {**result, "gone": ["two"]}
        await http.delete("/learners/three")
        assert (await compared(http))["gone"] == ["two", "three"]
        reply = await http.post(f"{URL}/update", json={"events": labelled(60, 70)})
        assert reply.status_code == 404
        assert reply.json()["detail"].startswith("two, three")
        assert (await settled(engine))["one"] == before["one"]
        await http.put("/learners/three", json=MEMBERS["three"])
        await http.put("/learners/two", json=MEMBERS["two"])  # another one under the same name takes its place
        assert (await compared(http))["gone"] == []
        assert (await posted(http, f"{URL}/update", labelled(60, 70)))["compared"] == 10
        await http.delete("/learners/two")
        await http.put("/learners/two", json={**SETUPS["ordinal"], "features": MEMBERS["one"]["features"]})
        reply = await http.post(f"{URL}/update", json={"events": [{**event(80), "label": 1}]})
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid")
        assert reply.json()["detail"].startswith("two")


class Failing(MemoryStore):
    """A store whose next append to a log fails, before or after the write."""

    log: str | None = None
    after = False

    async def append(
        self, learner: str, birth: bytes, records: Any, after: int, known_token: bytes = b"", reserve: bool = False
    ) -> list[LogEntry]:
        fails = learner == self.log
        if fails:
            self.log = None
            if not self.after:
                raise StoreUnavailable("away")
        entries = await super().append(learner, birth, records, after, known_token, reserve)
        if fails:
            raise StoreUnavailable("the answer was lost")
        return entries


@pytest.mark.parametrize("after", [False, True], ids=["not written", "written"])
@pytest.mark.parametrize("log", ["one", "two", "three", "@g"])
async def test_a_repeated_request_compares_every_event_exactly_once(log: str, after: bool) -> None:
    store = Failing()
    async with serving(store) as (http, _):
        await created(http)
        await posted(http, f"{URL}/update", labelled(0, 50))
        store.log, store.after = log, after
        failed = await http.post(f"{URL}/update", json={"events": labelled(50, 70)})
        assert (failed.status_code, failed.json()["code"]) == (503, "store-unavailable")
        again = await posted(http, f"{URL}/update", labelled(50, 70))
        assert again["compared"] == 20
        assert {learner["applied"] + learner["duplicate"] for learner in again["learners"].values()} == {20}
        await posted(http, f"{URL}/update", labelled(70, 100))
        result = await compared(http)
        assert (result["events"], result["window"]["class_counts"]["positive"]) == (100, 20)
        assert same(result, await aucs(http))
        once_more = await posted(http, f"{URL}/update", labelled(60, 80))  # repeated without any need
        assert {learner["duplicate"] for learner in once_more["learners"].values()} == {20}
        assert (await compared(http))["events"] == 100


async def test_groups_survive_a_crash_and_a_snapshot(store: Store) -> None:
    async with serving(store) as (http, engine):
        await created(http)
        await posted(http, f"{URL}/update", labelled(0, 60))
        await posted(http, f"{URL}/predict", [event(i) for i in range(60, 80)])
        before, result = await settled(engine), await compared(http)
    async with serving(store) as (http, engine):
        assert await settled(engine) == before
        assert await compared(http) == result
        for group in engine.groups.values():
            await group.snapshots.save()  # trims its log
        labels = [{"id": f"e{i}", "label": 0, "time": T0 + 800} for i in range(60, 80)]
        assert (await posted(http, f"{URL}/labels", labels))["compared"] == 20
        before, result = await settled(engine), await compared(http)
    async with serving(store) as (http, engine):
        assert await settled(engine) == before
        assert await compared(http) == result


async def test_a_group_that_cannot_be_recovered_is_skipped_alone(store: Store) -> None:
    async with serving(store) as (http, engine):
        await created(http)
        await http.put("/groups/good", json=GROUP)
        await posted(http, f"{URL}/update", labelled(0, 10))
        bad = await engine.group("g")
        await bad.snapshots.save()  # trims its log
        await store.save("@g", bad.birth, bad.position, b"rubbish", 1, True)
    async with serving(store) as (http, _):
        listed = (await http.get("/groups")).json()
        assert [group["name"] for group in listed["groups"]] == ["good"]
        assert list(listed["unavailable"]) == ["g"]
        assert "snapshot 2" in listed["unavailable"]["g"]
        assert (await http.get("/learners")).json()["unavailable"] == {}
        for reply in (await http.get(URL), await http.get(f"{URL}/compare")):
            assert (reply.status_code, reply.json()["code"]) == (500, "damaged")
        assert (await posted(http, "/groups/good/update", labelled(10, 20)))["compared"] == 10
        assert (await http.delete(URL)).status_code == 204
        assert (await http.get("/groups")).json()["unavailable"] == {}
        assert (await http.put(URL, json=GROUP)).status_code == 201


async def test_messages_for_people_call_it_a_group(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    async with serving(store) as (http, engine):
        await created(http)
        await posted(http, f"{URL}/update", labelled(0, 10))
        group = await engine.group("g")
        await store.delete("@g", group.birth)  # by another node, of which this one has not heard
        await group.close(save=True)
        ((name, error),) = logged_data(caplog, "rarestream.snapshots", "WARNING")
        assert [re.findall(r"\b(?:group|learner) \w+", str(text)) for text in (name, error)] == [["group g"]] * 2
        with pytest.raises(LearnerGone, match=rf"^{name}\b"):
            await group.snapshots.save()


async def test_learners_and_groups_share_one_limit() -> None:
    async with serving(MemoryStore(), max_learners=4) as (http, _):
        await created(http)
        reply = await http.put("/groups/second", json=GROUP)
        assert (reply.status_code, reply.json()["code"]) == (409, "limit-reached")


async def test_two_nodes_agree(store: Store, open_again: Any) -> None:
    settings = {"follow_seconds": 0.02}
    async with (
        serving(store, **settings) as (local, first),
        serving(await open_again(), **settings) as (remote, second),
    ):
        await created(local)
        await eventually_async(lambda: set(second.groups) == {"g"} and set(second.replicas) == set(MEMBERS))
        requests = []
        for start in range(0, 200, 10):
            requests.append(posted(local if start % 20 else remote, f"{URL}/update", labelled(start, start + 10)))
        replies = await asyncio.gather(*requests)
        assert {reply["compared"] for reply in replies} == {10}
        await posted(remote, f"{URL}/predict", [event(i) for i in range(200, 220)])
        labels = [{"id": f"e{i}", "label": 0, "time": T0 + 2200} for i in range(200, 220)]
        assert (await posted(local, f"{URL}/labels", labels))["compared"] == 20
        assert await settled(first) == await settled(second)
        result = await compared(local)
        assert result == await compared(remote)
        assert result["events"] == 220
        await remote.delete(URL)
        await eventually_async(lambda: not first.groups)
        assert (await local.post(f"{URL}/update", json={"events": labelled(300, 301)})).status_code == 404


async def test_the_log_of_a_group_contains_the_predictions_of_each_member(store: Store) -> None:
    async with serving(store) as (http, engine):
        await created(http)
        reply = await posted(http, f"{URL}/update", labelled(0, 10))
        birth = (await engine.group("g")).birth
        record = unpack_record((await whole_log(store, "@g", birth))[1].data, "record 2")
        scores = [[result["score"] for result in answer["results"]] for answer in reply["learners"].values()]
        assert record.scores.T.tolist() == scores  # type: ignore[union-attr]
        assert record.labels.tolist() == [1, -1, -1, -1, -1] * 2  # type: ignore[union-attr]
