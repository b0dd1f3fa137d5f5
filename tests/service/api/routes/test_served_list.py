"""The list of served events: order, pages, filters, statuses, and what one learner's bounds forget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from rarestream.values import parse_time
from service.engine import served_list
from service.storage.memory import MemoryStore
from service.storage.store_protocol import Store
from service.wire import iso_time
from tests.harness.keyring import Keyring, keyed
from tests.harness.nodes import T0, fetched, posted, serving
from tests.service.engine.replica.test_served_events import EACH, SETUPS, event, label_of, labelled, late

pytestmark = pytest.mark.integration

DENSE = SETUPS["dense"]


async def listed(http: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    return await fetched(http, "/learners/a/events", **query)


async def alone(http: httpx.AsyncClient, id: str, **query: Any) -> dict[str, Any]:
    """Read one event, without its history."""
    document = await fetched(http, f"/learners/a/events/{id}", **query)
    return {name: value for name, value in document.items() if name != "history"}


def ids(document: dict[str, Any]) -> list[str]:
    return [item["id"] for item in document["events"]]


async def served(http: httpx.AsyncClient, config: dict[str, Any] = DENSE, setup: str = "dense") -> list[dict[str, Any]]:
    """Learn 50 events, score 20 more in four requests, label the first ten of these; return the replies."""
    await http.put("/learners/a", json=config)
    await posted(http, "/learners/a/update", labelled(setup, 0, 50))
    results: list[dict[str, Any]] = []
    for start in range(50, 70, 5):
        request = [event(setup, i) for i in range(start, start + 5)]
        results += (await posted(http, "/learners/a/predict", request))["results"]
    await posted(http, "/learners/a/labels", late(setup, 50, 60))
    return results


@EACH
async def test_events_are_listed_as_they_were_answered(store: Store, setup: str) -> None:
    async with serving(store) as (http, _):
        results = await served(http, SETUPS[setup], setup)
        document = await listed(http)
        assert document["scanned"] == 20
        assert document["cursor"] is None
        assert ids(document) == [f"e{i}" for i in range(69, 49, -1)]
        for i, item in zip(range(69, 49, -1), document["events"], strict=True):
            answered = results[i - 50]
            assert item["score"] == answered["score"]
            assert item["probability"] == answered.get("probability")
            if answered.get("label", answered.get("rank")) is not None:
                assert item["decision"] == answered.get("label", answered.get("rank"))
            has_label = i < 60
            assert item["label"] == (label_of(setup, i) if has_label else None)
            assert item["label_source"] == ("given" if has_label else None)
            assert item["status"] == ("labelled" if has_label else "unlabelled")
            assert item["time"] == T0 + 10 * i
            assert item["label_delay"] == (3600.0 if has_label else None)
            assert await alone(http, item["id"]) == item
            history = (await fetched(http, f"/learners/a/events/{item['id']}"))["history"]
            assert [step["kind"] for step in history] == ["served", *["labelled"] * has_label]


async def test_an_event_has_its_history_on_every_node_and_after_restarts(store: Store) -> None:
    async def label(http: httpx.AsyncClient, label: int, at: float) -> int:
        reply = await posted(http, "/learners/a/labels", [{"id": "e50", "label": label, "time": T0 + at}])
        return int(reply["position"])

    steps = [["served", T0 + 500, None], ["labelled", T0 + 600, 1], ["corrected", T0 + 700, 0]]

    async def check(http: httpx.AsyncClient, position: int = 1) -> None:
        document = await fetched(http, "/learners/a/events/e50", at_least=position)
        assert [[step["kind"], step["time"], step["label"]] for step in document["history"]] == steps
        positions = [step["position"] for step in document["history"]]
        assert positions == sorted(set(positions))
        assert [step["time_iso"] for step in document["history"]] == [iso_time(step[1]) for step in steps]
        expected = (steps[-1][2], "given", steps[-1][1], iso_time(steps[-1][1]), steps[-1][1] - T0 - 500)
        (listed_event,) = (await listed(http, q="e50"))["events"]
        for item in (document, listed_event):
            columns = ("label", "label_source", "label_time", "label_time_iso", "label_delay")
            assert tuple(item[column] for column in columns) == expected

    async with serving(store) as (http, _):
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/update", labelled("dense", 0, 50))
        await posted(http, "/learners/a/predict", [event("dense", 50)])
        await label(http, 1, 600)
        await label(http, 1, 650)  # by somebody else, who agrees
        await label(http, 0, 700)  # and who does not
        await check(http)
        await http.post("/learners/a/snapshots")  # reports the labels to the store
        await check(http)
        async with serving(store) as (other, _):
            await check(other)
            position = await label(other, 1, 800)
            steps.append(["corrected", T0 + 800, 1])
            await check(other)
            await check(http, position)
    async with serving(store) as (http, _):
        await check(http)
        await posted(http, "/learners/a/update", [{**event("dense", 50), "label": 0}])  # says not when it became known
        item = await fetched(http, "/learners/a/events/e50")
        assert (item["label"], item["label_time"], item["label_delay"]) == (0, None, None)
        assert [step["time"] for step in item["history"]][-1] is None


async def test_a_label_that_was_rolled_back_stays_in_the_history(store: Store) -> None:
    async with serving(store) as (http, _):
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/update", labelled("dense", 0, 50))
        await posted(http, "/learners/a/predict", [event("dense", 50)])
        position = (await http.post("/learners/a/snapshots")).json()["position"]
        await posted(http, "/learners/a/labels", [{"id": "e50", "label": 1, "time": T0 + 600}])
        assert (await http.post(f"/learners/a/snapshots/{position}/restore")).status_code == 200
        item = await fetched(http, "/learners/a/events/e50")
        assert (item["status"], item["label"], item["label_time"]) == ("unlabelled", None, None)
        assert [step["kind"] for step in item["history"]] == ["served", "labelled"]


async def test_pages_follow_each_other_while_events_arrive(store: Store) -> None:
    async with serving(store) as (http, _):
        await served(http)
        first = await listed(http, limit=8)
        await posted(http, "/learners/a/predict", [event("dense", i) for i in range(70, 75)])
        second = await listed(http, limit=8, cursor=first["cursor"])
        third = await listed(http, limit=8, cursor=second["cursor"])
        assert ids(first) + ids(second) + ids(third) == [f"e{i}" for i in range(69, 49, -1)]
        assert third["cursor"] is None
        assert ids(await listed(http, limit=2)) == ["e74", "e73"]


async def test_what_was_scored_since_an_earlier_page_is_listed(store: Store) -> None:
    async with serving(store) as (http, _):
        empty = await http.put("/learners/a", json=DENSE)
        assert empty.status_code == 201
        assert (await listed(http))["newest"] == 0
        await served(http)
        first = await listed(http, limit=3)
        assert (await listed(http, after=first["newest"])) == {
            "events": [], "cursor": None, "newest": first["newest"], "scanned": 0,
        }  # fmt: skip
        await posted(http, "/learners/a/predict", [event("dense", i) for i in (70, 50, 71)])
        pages = [await listed(http, after=first["newest"], limit=2)]
        pages.append(await listed(http, after=first["newest"], limit=2, cursor=pages[0]["cursor"]))
        assert [ids(page) for page in pages] == [["e71", "e50"], ["e70"]]
        assert pages[1]["cursor"] is None
        assert ids(await listed(http, after=pages[0]["newest"])) == []
        assert ids(await listed(http, after=first["newest"], limit=3)) == ["e71", "e50", "e70"]
        assert ids(await listed(http, after=first["newest"], q="e7", sort="score", limit=1))[0] in ("e70", "e71")
        await http.delete("/learners/a")
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/predict", [event("dense", 72)])
        assert ids(await listed(http, after=first["newest"])) == ["e72"]


async def test_filters(store: Store) -> None:
    async with serving(store) as (http, _):
        results = await served(http)
        decisions = {f"e{i}": result["label"] for i, result in zip(range(50, 70), results, strict=True)}
        assert len(set(decisions.values())) == 2
        for decision in (0, 1):
            listed_ids = ids(await listed(http, decision=decision))
            assert sorted(listed_ids) == sorted(id for id, made in decisions.items() if made == decision)
        alerts = ids(await listed(http, status="alert"))
        assert sorted(alerts) == sorted(f"e{i}" for i in range(60, 70) if decisions[f"e{i}"] == 1) != []
        assert (
            len(ids(await listed(http, status="labelled"))) == len(ids(await listed(http, status="unlabelled"))) == 10
        )
        assert ids(await listed(http, label=1)) == ["e55", "e50"]
        assert ids(await listed(http, **{"from": T0 + 520, "to": T0 + 540})) == ["e53", "e52"]
        assert ids(await listed(http, q="e6")) == [f"e{i}" for i in range(69, 59, -1)]
        probabilities = {f"e{i}": result["probability"] for i, result in zip(range(50, 70), results, strict=True)}
        least = sorted(probabilities.values())[10]
        assert {probabilities[id] >= least for id in ids(await listed(http, min_probability=least))} == {True}
        assert len(ids(await listed(http, min_probability=least))) == sum(p >= least for p in probabilities.values())
        highest = sorted(probabilities, key=lambda id: -results[int(id[1:]) - 50]["score"])
        assert ids(await listed(http, sort="score", limit=5)) == highest[:5]


async def test_a_page_looks_through_a_bounded_number_of_events(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_list, "MAX_SCANNED", 8)
    monkeypatch.setattr(served_list, "_STEP", 4)
    async with serving(store) as (http, _):
        await served(http)
        page = await listed(http, q="e50")
        assert (ids(page), page["scanned"]) == ([], 8)
        page = await listed(http, q="e50", cursor=page["cursor"])
        assert (ids(page), page["scanned"]) == ([], 8)
        page = await listed(http, q="e50", cursor=page["cursor"])
        assert (ids(page), page["scanned"], page["cursor"]) == (["e50"], 4, None)
        newest = (await listed(http, limit=8))["events"]
        by_score = sorted(newest, key=lambda item: -item["score"])
        page = await listed(http, sort="score", limit=3)
        assert (page["events"], page["scanned"]) == (by_score[:3], 8)


@pytest.mark.parametrize("unlabelled", ["nothing", "negative"])
async def test_events_whose_label_does_not_come_expire(store: Store, unlabelled: str) -> None:
    config = {**DENSE, "late": {"label_ttl": 100.0, "unlabelled": unlabelled}}
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=config)
        await posted(http, "/learners/a/update", labelled("dense", 0, 50))
        await posted(http, "/learners/a/predict", [event("dense", 50), event("dense", 51)])
        await posted(http, "/learners/a/labels", [{"id": "e51", "label": 0, "time": T0 + 520}])
        await posted(http, "/learners/a/update", labelled("dense", 70, 71))
        states = []
        async with engine.use("a") as learner:
            await learner.mailbox.run(learner.log.read_on)
            states.append((await listed(http))["events"])
            await learner.snapshots.save()  # after which the store knows that the label of e51 has arrived
            states.append((await listed(http))["events"])
            assert [await alone(http, item["id"]) for item in states[-1]] == states[-1]
        for events in states:
            documents = {item["id"]: (item["status"], item["label"], item["label_source"]) for item in events}
            assert documents == {
                "e50": ("expired", 0, "assumed") if unlabelled == "negative" else ("expired", None, None),
                "e51": ("labelled", 0, "given"),
            }
        body = (await http.get("/learners/a/events/e51")).json()
        assert (body["status"], body["label"]) == ("labelled", 0)


@EACH
async def test_kept_features_are_shown_as_they_were_sent(setup: str) -> None:
    async with serving(MemoryStore()) as (http, _):
        await served(http, {**SETUPS[setup], "late": {"keep_features": True}}, setup)
        (documents,) = (await listed(http, q="e63"))["events"]
        body = {name: value for name, value in event(setup, 63).items() if name not in ("id", "time")}
        assert {name: documents.get(name) for name in body} == body
        assert await alone(http, "e63") == documents
        patched = await http.patch("/learners/a", json={"late": {"keep_features": False}})
        assert patched.status_code == 200
        await posted(http, "/learners/a/predict", [event(setup, 70)])
        (newest,) = (await listed(http, limit=1))["events"]
        assert all(newest[name] is None for name in body)


@pytest.mark.parametrize("setup", [setup for setup in SETUPS if setup != "ordinal"])
async def test_an_explanation_adds_up_to_the_score_of_the_present_model(setup: str) -> None:
    async with serving(MemoryStore()) as (http, _):
        await served(http, {**SETUPS[setup], "late": {"keep_features": True}}, setup)
        document = await listed(http, explain=2, limit=7)
        again = [{**event(setup, int(id[1:])), "id": None} for id in ids(document)]
        now = await http.post("/learners/a/predict", json={"events": again}, params={"explain": 2})
        assert now.status_code == 200
        for documents, predicted in zip(document["events"], now.json()["results"], strict=True):
            assert documents["explanation"] == predicted["explanation"]
        single = await alone(http, "e69", explain=2)
        assert single == document["events"][0]
        await http.patch("/learners/a", json={"late": {"keep_features": False}})
        await posted(http, "/learners/a/predict", [event(setup, 70)])
        assert (await listed(http, explain=2, limit=2))["events"][0]["explanation"] is None


async def test_events_are_filtered_by_the_value_of_a_field() -> None:
    async with serving(MemoryStore()) as (http, _):
        await served(http, {**SETUPS["named"], "late": {"keep_features": True}}, "named")
        assert ids(await listed(http, q="shop=s1")) == [f"e{i}" for i in range(69, 49, -1) if i % 3 == 1]
        amount = event("named", 66)["features"]["amount"]
        assert "e66" in ids(await listed(http, q=f"amount={amount!r}"))
        assert ids(await listed(http, q="shop=s")) == ids(await listed(http, q="nothing=s1")) == []
        await posted(http, "/learners/a/predict", [event("named", 71, id="shop=s1/2")])
        assert ids(await listed(http, q="shop=s1/2")) == ["shop=s1/2"]


@pytest.mark.parametrize(
    ("value", "spellings", "others"),
    [
        (12.0, ["12", "12.0", "1.2e1"], ["12.5", "012", "true", "\u0661\u0662"]),
        (1e21, ["1e21", "1e+21", "1000000000000000000000"], ["1e22"]),
        (1, ["1", "1.0"], ["true", '"1"']),
        (True, ["true"], ["1", "True"]),
        ("12", ["12", '"12"'], ["12.0", "1.2e1"]),
        (["a", "b"], ['["a","b"]', '["a", "b"]', "a", "b", '"b"'], ["c", '["a"]', "[", "[" * 5000]),
    ],
)
async def test_a_value_is_found_by_each_of_its_spellings(value: Any, spellings: list[str], others: list[str]) -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json={**SETUPS["named"], "late": {"keep_features": True}})
        await posted(http, "/learners/a/predict", [{"id": "e", "features": {"field": value}}])
        assert [text for text in spellings if not ids(await listed(http, q=f"field={text}"))] == []
        assert [text for text in others if ids(await listed(http, q=f"field={text}"))] == []


async def test_a_field_is_found_whose_name_has_an_equals_sign() -> None:
    features = {"a=b": "c=d", "a": "b=c", "": "=", "list=": ["x=y"]}
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json={**SETUPS["named"], "late": {"keep_features": True}})
        await posted(http, "/learners/a/predict", [{"id": "e", "features": features}])
        for text in ("a=b=c=d", "a=b=c", "==", "list==x=y", 'a=b="c=d"'):
            assert ids(await listed(http, q=text)) == ["e"], text
        for text in ("a=b", "a=b=", "a=b=d", "=", "list=x=y", "b=c"):
            assert ids(await listed(http, q=text)) == [], text


async def test_features_too_long_to_be_kept_are_null() -> None:
    config = {"algorithm": "cbr-diag", "features": {"kind": "named", "text": ["text"]}, "late": {"keep_features": True}}
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=config)
        await posted(http, "/learners/a/predict", [{"id": str(n), "features": {"text": "a " * n}} for n in (9, 32_768)])
        features = {item["id"]: item["features"] for item in (await listed(http))["events"]}
        assert features == {"9": {"text": "a " * 9}, "32768": None}
        text = (await http.get("http://rarestream/metrics")).text
        assert 'rarestream_large_events_total{learner="a"} 1.0' in text


async def test_a_key_without_the_scope_sees_and_finds_no_features(tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    everything, reader, analyst = ring.make("all", "admin"), ring.make("r", "read"), ring.make("a", "read", "events")
    config = {**SETUPS["named"], "late": {"keep_features": True}}
    body = {"events": [event("named", 1)]}
    async with keyed(ring) as (_, http):
        assert (await http.put("/learners/a", json=config, headers=everything)).status_code == 201
        assert (await http.post("/learners/a/predict", json=body, headers=everything)).status_code == 200
        documents = [
            (await http.get("/learners/a/events", headers=key)).json()["events"][0] for key in (reader, analyst)
        ]
        assert "features" not in documents[0]
        assert documents[1] == {**documents[0], "features": body["events"][0]["features"]}
        assert ids((await http.get("/learners/a/events?q=shop=s1", headers=analyst)).json()) == ["e1"]
        for path in ("/learners/a/events?q=shop=s1", "/learners/a/events?explain=1", "/learners/a/events/e1?explain=1"):
            assert [(await http.get(path, headers=key)).status_code for key in (reader, analyst)] == [403, 200]


async def test_an_unknown_id_and_a_forgotten_one_are_not_found(store: Store) -> None:
    async with serving(store) as (http, _):
        await served(http, {**DENSE, "late": {"max_events": 12}})
        assert len(ids(await listed(http))) == 12
        for id in ("e50", "nobody", "e0"):
            reply = await http.get(f"/learners/a/events/{id}")
            assert (reply.status_code, reply.json()["code"]) == (404, "unknown-event")
        await posted(http, "/learners/a/predict", [event("dense", 70) | {"id": "a/ü <b>"}])
        assert (await http.get("/learners/a/events/a%2F%C3%BC%20%3Cb%3E")).json()["id"] == "a/ü <b>"


@pytest.mark.parametrize(
    ("query", "at"),
    [
        ({"status": "open"}, "/status"),
        ({"limit": 0}, "/limit"),
        ({"limit": 1001}, "/limit"),
        ({"from": "nan"}, "/from"),
        ({"min_probability": 1.5}, "/min_probability"),
        ({"cursor": -1}, "/cursor"),
        ({"after": "x"}, "/after"),
        ({"before": 1}, "/before"),
        ({"explain": 0}, "/explain"),
    ],
)
async def test_wrong_queries_are_refused(store: Store, query: dict[str, Any], at: str) -> None:
    async with serving(store) as (http, _):
        await http.put("/learners/a", json=DENSE)
        reply = await http.get("/learners/a/events", params=query)
        assert (reply.status_code, [error["pointer"] for error in reply.json()["errors"]]) == (422, [at])
        assert ids(await listed(http)) == []


async def test_ranks_have_no_alerts_and_no_probabilities(store: Store) -> None:
    async with serving(store) as (http, _):
        await served(http, SETUPS["ordinal"], "ordinal")
        assert len(ids(await listed(http, label=3))) == 2
        reply = await http.get("/learners/a/events", params={"status": "alert", "min_probability": 0.5, "explain": 1})
        assert reply.status_code == 422
        assert [error["pointer"] for error in reply.json()["errors"]] == ["/status", "/min_probability", "/explain"]


async def test_ranges_take_iso_times_and_events_have_them(store: Store) -> None:
    async with serving(store) as (http, _):
        await served(http)
        start, stop = T0 + 550, T0 + 600
        as_text = {"from": iso_time(start), "to": iso_time(stop)}
        document = await listed(http, **as_text)
        assert document == await listed(http, **{"from": start, "to": stop})
        assert ids(document) == [f"e{i}" for i in range(59, 54, -1)]
        assert [parse_time(item["time_iso"]) for item in document["events"]] == [
            item["time"] for item in document["events"]
        ]
        for wrong in ("yesterday", "nan", "20260101T00"):
            refused = await http.get("/learners/a/events", params={"from": wrong})
            assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/from")


async def test_a_history_by_events_takes_no_time() -> None:
    async with serving(MemoryStore()) as (http, _):
        await served(http)
        for axis, status in (("clock", 200), ("events", 422)):
            reply = await http.get("/learners/a/metrics/history", params={"by": axis, "to": iso_time(T0)})
            assert reply.status_code == status
        assert [problem["pointer"] for problem in reply.json()["errors"]] == ["/to"]


async def test_an_erased_event_is_nowhere_and_its_label_unknown(store: Store) -> None:
    async with serving(store) as (http, engine):
        await served(http)
        erased = await http.delete("/learners/a/events/e65")
        assert erased.json() == {"id": "e65", "position": engine.get("a").position}
        assert (await http.delete("/learners/a/events/e65")).json()["code"] == "unknown-event"
        assert (await http.get("/learners/a/events/e65")).status_code == 404
        assert "e65" not in ids(await listed(http))
        assert (await fetched(http, "/learners/a"))["pending"]["events"] == 19
        assert (await posted(http, "/learners/a/labels", late("dense", 65, 66)))["unknown"] == 1
        assert (await http.delete("/learners/a/events?id=e55")).status_code == 200  # which has its label
        assert "e55" not in ids(await listed(http))
        assert (await posted(http, "/learners/a/labels", late("dense", 55, 56)))["duplicate"] == 1  # that stays learnt
        assert (await http.delete("/learners/b/events/e1")).json()["code"] == "unknown-learner"
        await posted(http, "/learners/a/predict", [event("dense", 65)])
        assert (await posted(http, "/learners/a/labels", late("dense", 65, 66)))["applied"] == 1


async def test_any_id_is_found_by_the_parameter(store: Store) -> None:
    names = [".", "..", "a/b", "%2e", "?id=1", "ä #"]
    async with serving(store) as (http, _):
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/predict", [{**event("dense", i), "id": name} for i, name in enumerate(names)])
        for name in names:
            assert ids(await listed(http, id=name)) == [name]
            assert ids(await listed(http, id=name, status="labelled")) == []
            assert (await http.delete("/learners/a/events", params={"id": name})).json()["id"] == name
            assert await listed(http, id=name) == {"events": [], "cursor": None, "newest": 0, "scanned": 1}
        assert (await http.get("/learners/a")).status_code == 200
