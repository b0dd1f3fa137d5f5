"""A learner that an earlier version stored keeps the behaviour that it had, although new learners have another one."""

from __future__ import annotations

from typing import Any

from learners.config import Config
from service.engine.records import Created, config_of, pack_record
from service.storage.memory import MemoryStore
from tests.harness.nodes import digest, serving

TEXT: dict[str, Any] = {"algorithm": "fofo", "features": {"kind": "named", "text": ["body"]}}
EVENT = {"features": {"body": "हिन्दी"}, "label": 1}


def stored_by_an_earlier_version() -> dict[str, Any]:
    document = Config.of(TEXT).to_json()
    del document["features"]["words"], document["threshold"]["cautious"]  # which no earlier version had
    del document["scaling"]["outliers"]
    return document


def test_a_stored_configuration_without_a_setting_has_its_earlier_behaviour() -> None:
    config = config_of(stored_by_an_earlier_version())
    assert config.to_json()["features"]["words"] == "literal"
    assert not config.to_json()["threshold"]["cautious"]
    assert config.to_json()["scaling"]["outliers"] == "counted"
    assert config_of(config.to_json()) == config
    assert config_of(Config.of(TEXT).to_json()) == Config.of(TEXT)


async def test_a_learner_of_an_earlier_version_keeps_its_words() -> None:
    store = MemoryStore()
    await store.create("old", b"0" * 16, pack_record(Created(stored_by_an_earlier_version())))
    async with serving(store) as (http, engine):
        assert (await http.get("/learners/old")).json()["config"]["features"]["words"] == "literal"
        repeated = await http.put("/learners/old", json=TEXT)
        assert repeated.status_code == 200
        for words, status in (("literal", 200), ("normalised", 409)):
            explicit = {**TEXT, "features": {**TEXT["features"], "words": words}}
            assert (await http.put("/learners/old", json=explicit)).status_code == status
        new = await http.put("/learners/new", json=TEXT)
        assert (new.status_code, new.json()["config"]["features"]["words"]) == (201, "normalised")
        for name in ("old", "new"):
            assert (await http.post(f"/learners/{name}/update", json={"events": [EVENT]})).status_code == 200
        counts = [engine.get(name).view.columns for name in ("old", "new")]
        assert counts == [5, 1]  # three letters and two pairs of neighbours; one word
        before = await digest(http, "old")
    async with serving(store) as (http, _):
        assert await digest(http, "old") == before
