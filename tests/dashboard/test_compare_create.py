"""Groups compared, and learners created, in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.replies import replying
from tests.dashboard.serving import Serving, Stream

expect = pytest.importorskip("playwright.async_api").expect


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    served.create("better")
    served.create("worse", scaling={"kind": "standard", "clip": 0.1})
    served.create("twin")
    return served


async def test_a_group_is_created_and_compared_live(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/compare")
    await expect(page.get_by_text("No groups yet.")).to_be_visible()
    await page.get_by_role("button", name="New group …").click()
    dialog = page.get_by_role("dialog", name="A group of learners")
    name, troubled = dialog.get_by_label("Name of the group"), dialog.locator(".setting", has=page.get_by_role("alert"))
    visit.expected = ("422",)
    for entered, wrong in (("", "a group needs a name"), ("a b", "is 'a b'; expected 1 to 100 of letters")):
        await name.fill(entered)
        await dialog.get_by_role("button", name="Create group").click()
        await expect(troubled.first).to_contain_text(wrong)  # and, at the same time, what is wrong with the learners
        await expect(troubled.nth(1)).to_contain_text("has 0 names; expected 2 to 8")
        await expect(dialog).to_contain_text("the name and the group are refused; nothing was created")
        await expect(name).to_be_focused()
        await expect(name).to_have_accessible_description(re.compile(wrong))
    await name.fill("duel")
    await dialog.get_by_label("better").check()
    await dialog.get_by_role("button", name="Create group").click()
    await expect(troubled.nth(1)).to_contain_text("has 1 name; expected 2 to 8")
    await expect(troubled.first.get_by_role("alert")).to_be_empty()  # nothing is wrong with the name any more
    await expect(name).not_to_have_attribute("aria-invalid", "true")
    await expect(dialog.get_by_label("better")).to_be_focused()
    await dialog.get_by_label("worse").check()
    await dialog.get_by_role("button", name="Create group").click()
    await expect(page.get_by_role("heading", name="duel", level=1)).to_be_visible()

    row = page.get_by_role("row", name="better", exact=False).first
    await expect(row).to_contain_text("no events in the window")  # not 0
    await expect(page.locator(".verdicts")).to_contain_text("Nothing is compared yet. Send events")
    with Stream(service, "groups/duel", batch=400, pause=0.05):
        await expect(page.locator(".verdicts")).to_contain_text(
            re.compile(r"better is better than worse: .*\d\s% sure since .*\(event [\d,]+\); *keep watching"),
            timeout=120_000,
        )
    reply = service.http.get("/groups/duel/compare").json()
    auc = reply["window"]["auc"]["better"]
    await expect(row).to_contain_text(f"{auc['auc']:.4f}")
    await expect(row).to_contain_text(f"{auc['interval'][0]:.4f} to {auc['interval'][1]:.4f}")
    difference = reply["window"]["differences"][0]["difference"]
    await expect(page.get_by_role("row", name="better \N{MINUS SIGN} worse")).to_contain_text(f"+{difference:.4f}")
    await expect(page.locator(".chart .js-line")).to_have_count(2)
    label = await page.locator(".chart .plot").get_attribute("aria-label")
    assert label is not None
    assert re.search(r"better 0\.\d{4}, worse 0\.\d{4}", label)

    assert "/v1/groups/duel/compare" not in visit.requests  # nothing was polled
    assert "/v1/groups" not in visit.requests

    verdict = await page.locator(".verdicts li").inner_text()
    overview = await visit(service.url)
    card = overview.locator(".group", has=overview.get_by_role("link", name="duel"))
    await expect(card.locator(".finding[data-state=decided]")).to_have_text(verdict)  # in the same words
    await overview.get_by_role("link", name="Compare").click()
    group = overview.get_by_role("listitem").filter(has=overview.get_by_role("link", name="duel"))
    await expect(group.locator(".finding[data-state=decided]")).to_have_text(verdict)


async def test_a_learner_deleted_during_group_creation_is_marked(service: Serving, visit: Opener) -> None:
    service.create("brief")
    page = await visit(service.url, "#/compare")
    await page.get_by_role("button", name="New group …").click()
    dialog = page.get_by_role("dialog", name="A group of learners")
    await dialog.get_by_label("Name of the group").fill("short")
    for item in ("better", "brief"):
        await dialog.get_by_label(item).check()
    service.http.delete("/learners/brief").raise_for_status()
    visit.expected = ("422",)
    await dialog.get_by_role("button", name="Create group").click()
    await expect(dialog).to_contain_text("no. 2 is brief; there is no learner of this name")
    await expect(dialog.locator("[aria-invalid]")).to_have_count(1)
    await expect(dialog.get_by_label("brief")).to_be_focused()


async def test_without_a_stream_a_comparison_is_polled(service: Serving, visit: Opener) -> None:
    service.http.put("/groups/polled", json={"learners": ["better", "twin"]}).raise_for_status()
    visit.replies["**/stream**"] = replying({"detail": "none", "code": "too-many-streams"}, status=429)
    visit.expected = ("429",)
    page = await visit(service.url, "#/compare")
    group = page.get_by_role("listitem").filter(has=page.get_by_role("link", name="polled"))
    await expect(group).to_contain_text("Nothing is compared yet.")
    await page.get_by_role("link", name="polled").click()
    await expect(page.locator("#connection[data-state=polling]")).to_contain_text("live, by polling")
    service.feed("groups/polled", 30)
    summary = page.get_by_text(re.compile("^30 events compared"))
    await expect(summary).to_be_visible()
    visit.expected = ("429", "404")
    service.http.delete("/groups/polled").raise_for_status()
    await expect(page.get_by_text("there is no group named polled")).to_be_visible()
    await expect(summary).to_be_hidden()


async def test_a_deleted_group_is_reported(service: Serving, visit: Opener) -> None:
    service.http.put("/groups/brief", json={"learners": ["better", "twin"]}).raise_for_status()
    page = await visit(service.url, "#/compare/brief")
    await expect(page.get_by_text(re.compile("^0 events compared"))).to_be_visible()
    service.http.delete("/groups/brief").raise_for_status()
    await expect(page.get_by_text("there is no group named brief")).to_be_visible()
    await expect(page.locator("#state")).to_have_text("live")  # the service answers
    service.http.put("/groups/brief", json={"learners": ["worse", "twin"]}).raise_for_status()
    await page.evaluate("dispatchEvent(new Event('online'))")  # asks at once
    await expect(page.get_by_role("row", name="worse \N{MINUS SIGN} twin")).to_be_visible()


async def test_a_group_card_shows_the_best_learner(service: Serving, visit: Opener) -> None:
    for name, scaling in (("good", {}), ("dull", {"kind": "standard", "clip": 0.1}), ("duller", {"clip": 0.001})):
        service.create(name, **({"scaling": scaling} if scaling else {}))
    service.http.put("/groups/trio", json={"learners": ["dull", "good", "duller"]}).raise_for_status()
    page = await visit(service.url)
    finding = page.locator(".group", has=page.get_by_role("link", name="trio")).locator(".finding")
    await expect(finding).to_have_text(re.compile(r"^Nothing is compared yet\. Send events to /v1/groups/trio/update"))
    service.feed("groups/trio", 10)
    await expect(finding).to_have_text(re.compile(r"^None of 3 pairs is decided\. Keep watching: the nearest is "))
    with Stream(service, "groups/trio", batch=400, pause=0.05):
        await expect(finding).to_have_text(
            re.compile(
                r"^good is better than each of the others: .*\d\s% sure since .*\(event [\d,]+\); keep watching[.:]"
            ),
            timeout=120_000,
        )
    tests = service.http.get("/groups/trio/compare").json()["tests"]
    assert [test["verdict"] for test in tests if "good" in (test["a"], test["b"])] == ["b", "a"]


async def test_identical_learners_get_no_verdict(service: Serving, visit: Opener) -> None:
    service.create("other-twin")
    service.http.put("/groups/twins", json={"learners": ["twin", "other-twin"]}).raise_for_status()
    service.feed("groups/twins", 400)
    page = await visit(service.url, "#/compare/twins")
    await expect(page.locator(".verdicts [data-state=open]")).to_contain_text("twin or other-twin: not decided.")
    await expect(page.get_by_role("row", name="twin \N{MINUS SIGN} other-twin")).to_contain_text("+0.0000")


async def test_a_missing_group_is_reported(service: Serving, visit: Opener) -> None:
    visit.expected = ("404",)
    page = await visit(service.url, "#/compare/nothing")
    await expect(page.get_by_text("there is no group named nothing")).to_be_visible()


async def test_a_learner_is_created_from_the_catalogue(service: Serving, visit: Opener) -> None:
    visit.expected = ("422",)
    page = await visit(service.url, "#/create?algorithm=cbr")
    parameters = page.get_by_role("group", name="Parameters of the algorithm")
    await expect(parameters.get_by_label("eta")).to_have_attribute("placeholder", "0.7")
    await expect(parameters).to_contain_text("probability of the correct order that each pair must reach")
    await expect(parameters).to_contain_text("more than 0, at most 1,048,576")
    await expect(page.get_by_label("kind").first.locator("option")).to_have_count(2)  # cbr is for dense rows
    create = page.get_by_role("button", name="Create it")
    await create.click()
    dim, name = page.get_by_label("dim"), page.get_by_role("textbox", name="name", exact=True).first
    troubled = page.locator(".setting", has=page.locator("[aria-invalid]"))
    await expect(page.get_by_text("a learner needs a name")).to_be_visible()
    await expect(name).to_be_focused()
    await expect(dim).to_have_attribute("aria-invalid", "true")  # which is missing, too
    await expect(troubled).to_have_count(2)
    await name.fill("no name")
    await expect(troubled).to_have_count(1)  # what is entered anew may be right
    await dim.fill("0")
    await expect(troubled).to_have_count(0)
    await expect(page.get_by_text("a learner needs a name")).to_be_hidden()
    await create.click()
    await expect(troubled.first).to_contain_text("is 'no name'; expected")
    await expect(troubled.nth(1)).to_contain_text("is 0; expected at least 1")
    await expect(page.get_by_text("the name and the configuration are refused; nothing was created")).to_be_visible()
    await expect(name).to_be_focused()
    await name.fill("made")
    await page.get_by_label("dim").fill("3")
    await parameters.get_by_label("eta").fill("7")
    await create.click()
    await expect(parameters.get_by_label("eta")).to_have_attribute("aria-invalid", "true")
    await expect(parameters.get_by_label("eta")).to_be_focused()
    await expect(parameters).to_contain_text("expected at most 0.999999")
    assert service.http.get("/learners/made").status_code == 404

    await parameters.get_by_label("eta").fill("0.9")
    await page.get_by_text("Threshold what alerts are for").click()
    await page.get_by_label("objective").select_option("budget")
    await page.get_by_label("alerts", exact=True).fill("100")
    shown = await page.locator("pre", has_text="PUT http").text_content()
    body = json.loads((shown or "").split("\n", 1)[1])
    assert body == {
        "algorithm": "cbr",
        "features": {"kind": "dense", "dim": 3},
        "params": {"eta": 0.9},
        "threshold": {"objective": "budget", "alerts": 100},
    }
    await create.click()
    await expect(page.get_by_role("heading", name="made", level=1)).to_be_visible()
    config = service.http.get("/learners/made").json()["config"]
    assert (config["params"]["eta"], config["threshold"]["alerts"]) == (0.9, 100)


async def test_an_existing_name_is_refused(service: Serving, visit: Opener) -> None:
    service.create("taken")
    visit.expected = ("409",)
    page = await visit(service.url, "#/create?name=taken")
    await page.get_by_role("button", name="Create it").click()
    troubled = page.locator(".setting", has=page.locator("[aria-invalid]"))
    await expect(troubled).to_have_count(1)
    await expect(troubled).to_contain_text("exists with another configuration")
    await expect(page.get_by_role("textbox", name="name", exact=True).first).to_be_focused()


async def test_the_form_defaults_to_named_features(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/create")
    kind, algorithm = page.get_by_label("kind").first, page.get_by_label("algorithm", exact=True)
    await expect(kind).to_have_value("named")
    await algorithm.select_option("cbr")  # which takes none
    await expect(kind).to_have_value("dense")
    await algorithm.select_option("fofo")
    await expect(kind).to_have_value("named")
    await kind.select_option("table")  # what was chosen stays
    await algorithm.select_option("cbr")
    await expect(kind).to_have_value("table")


async def test_table_fields_are_added_and_removed(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/create?algorithm=loam-ada&name=rows")
    await page.get_by_label("kind").first.select_option("table")
    fields = page.get_by_role("group", name="one of the list")
    await fields.first.get_by_label("name").fill("amount")
    await fields.first.get_by_label("log").check()
    await page.get_by_role("button", name="Add one").click()
    await expect(fields.nth(1).get_by_label("name")).to_be_focused()
    await fields.nth(1).get_by_label("name").fill("shop")
    await fields.nth(1).get_by_label("kind").select_option("categorical")
    await expect(fields.nth(1).get_by_label("log")).to_be_hidden()  # of numeric ones
    await fields.nth(1).get_by_label("categories").fill("5")
    await page.get_by_role("button", name="Add one").click()
    visit.expected = ("422",)
    await page.get_by_role("button", name="Create it").click()
    nameless = fields.nth(2).get_by_label("name")
    await expect(nameless).to_have_attribute("aria-invalid", "true")  # the third field's own, and it alone
    await expect(nameless).to_be_focused()
    await expect(fields.nth(2)).to_contain_text("is missing")
    await expect(page.locator("[aria-invalid]")).to_have_count(1)
    await fields.nth(2).get_by_role("button", name="Remove").click()
    await page.get_by_role("button", name="Create it").click()
    await expect(page.get_by_role("heading", name="rows", level=1)).to_be_visible()
    result = service.http.get("/learners/rows").json()["config"]["features"]["fields"]
    assert [(item["name"], item["kind"], item["log"]) for item in result] == [
        ("amount", "numeric", True),
        ("shop", "categorical", False),
    ]
    assert result[1]["categories"] == 5


async def test_numbers_with_units_are_converted_while_typing(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/create?algorithm=lr")
    for part in ("Threshold what alerts are for", "Late labels how long", "The learner as a whole"):
        await page.locator("summary", has_text=part).click()
    window, ttl, most = (page.get_by_label(name, exact=True) for name in ("window_seconds", "label_ttl", "max_bytes"))
    meant = page.locator(".setting", has=window).locator(".meant")
    await expect(meant).to_be_empty()  # none is the default
    for entered, meaning in (
        ("604800", "604800 s = 7 days"),
        ("5400", "5400 s = 1 hour 30 minutes"),
        ("90061.5", "90061.5 s = 1 day 1 hour 1 minute 1.5 seconds"),
        ("119.9999", "119.9999 s = 2 minutes"),
        ("1e10", "10000000000 s = 115,740 days 17 hours 46 minutes 40 seconds"),
        ("59", ""),
        ("-604800", ""),
        ("none", ""),
        ("a week", ""),
    ):
        await window.fill(entered)
        await expect(meant).to_have_text(meaning)
    await window.fill("604800")
    await expect(window).to_have_accessible_description(re.compile("^604800 s = 7 days age at which events leave"))
    await expect(page.locator(".setting", has=ttl).locator(".meant")).to_have_text("7776000 s = 90 days")  # by default
    for entered, meaning in (
        ("", "1073741824 bytes = 1 GiB"),
        ("1500000000", "1500000000 bytes \N{ALMOST EQUAL TO} 1.4 GiB"),
        ("2048", "2048 bytes = 2 KiB"),
    ):
        await most.fill(entered)
        await expect(page.locator(".setting", has=most).locator(".meant")).to_have_text(meaning)
    await page.get_by_label("objective").select_option("budget")
    unit = page.get_by_label("unit_seconds")
    await expect(page.locator(".setting", has=unit).locator(".meant")).to_have_text("86400 s = 1 day")


async def test_changing_the_feature_kind_keeps_the_entries(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/create?algorithm=lr&name=kept")
    kind = page.get_by_label("kind").first
    threshold = page.get_by_role("group", name="Threshold", exact=True)
    scaling = page.get_by_role("group", name="Scaling", exact=True)
    await page.get_by_label("bits").fill("12")
    await page.get_by_text("Threshold what alerts are for").click()
    await threshold.get_by_label("objective").select_option("budget")
    await threshold.get_by_label("alerts", exact=True).fill("25")
    await threshold.get_by_label("memory", exact=True).fill("none")
    await page.locator("summary", has_text="Scaling of the features").click()
    await scaling.get_by_label("kind").select_option("maxabs")
    await page.locator("summary", has_text="The learner as a whole").click()
    await page.get_by_label("window", exact=True).fill("500")
    for other in ("dense", "named"):
        await kind.select_option(other)
        await expect(threshold.get_by_label("objective")).to_have_value("budget")
        await expect(threshold.get_by_label("alerts", exact=True)).to_have_value("25")  # and it is unfolded as it was
        await expect(threshold.get_by_label("memory", exact=True)).to_have_value("none")
        await expect(scaling.get_by_label("kind")).to_have_value("maxabs")
        await expect(page.get_by_label("window", exact=True)).to_have_value("500")
    await expect(page.get_by_label("bits")).to_have_value("12")
    await page.get_by_label("algorithm", exact=True).select_option("npsvor")  # which has no threshold
    await expect(threshold).to_have_count(0)
    await page.get_by_label("algorithm", exact=True).select_option("lr")
    await expect(threshold.get_by_label("alerts", exact=True)).to_have_value("25")
    await page.get_by_role("button", name="Create it").click()
    await expect(page.get_by_role("heading", name="kept", level=1)).to_be_visible()
    config = service.http.get("/learners/kept").json()["config"]
    assert (config["threshold"]["objective"], config["threshold"]["alerts"]) == ("budget", 25)
    assert (config["scaling"]["kind"], config["window"], config["features"]["bits"]) == ("maxabs", 500, 12)


async def test_an_ordinal_learner_has_no_threshold_setting(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/create")
    await expect(page.get_by_text("Threshold what alerts are for")).to_be_visible()
    await page.get_by_label("algorithm", exact=True).select_option("npsvor")
    await expect(page.get_by_text("Threshold what alerts are for")).to_have_count(0)
    await expect(page.get_by_label("ranks")).to_be_visible()
    await page.go_back()


async def test_an_exported_learner_is_imported(service: Serving, visit: Opener, tmp_path: Path) -> None:
    service.create("far")
    service.feed("learners/far", 60)
    position = service.http.get("/learners/far").json()["position"]
    file = tmp_path / f"far-{position}.rarestream"
    file.write_bytes(service.http.get("/learners/far/export").read())
    page = await visit(service.url, "#/create")

    async def choose(path: Path) -> None:
        async with page.expect_file_chooser() as chooser:
            await page.get_by_role("button", name="Import a file …").click()
        await (await chooser.value).set_files(path)

    await choose(file)
    dialog = page.get_by_role("dialog", name="Import a learner")
    name = dialog.get_by_label("Name of the learner")
    await expect(name).to_have_value("far")
    visit.expected = ("409", "422")
    await dialog.get_by_role("button", name="Import it").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("far")  # which there is already
    await name.fill("")
    await dialog.get_by_role("button", name="Import it").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("is empty: a learner needs a name")
    await name.fill("no name")
    await dialog.get_by_role("button", name="Import it").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("“Name of the learner” is 'no name'; expected")
    await name.fill("near")
    await dialog.get_by_role("button", name="Import it").click()
    await expect(page.get_by_role("heading", name="near", level=1)).to_be_visible()
    await expect(page.get_by_role("log")).to_contain_text("near is imported: 60 events learnt.")
    digests = {item: service.http.get(f"/learners/{item}/digest").json()["digest"] for item in ("far", "near")}
    assert digests["far"] == digests["near"]

    await page.goto(f"{service.url}/#/create")
    file.write_bytes(b"something else")
    await choose(file)
    await name.fill("")
    await dialog.get_by_role("button", name="Import it").click()  # all that is wrong at once
    await expect(dialog.get_by_role("alert")).to_contain_text("the file is not a record or snapshot of rarestream")
    await expect(dialog.get_by_role("alert")).to_contain_text("“Name of the learner” is empty: a learner needs a name")
    await name.fill("broken")
    await dialog.get_by_role("button", name="Import it").click()
    await expect(dialog.get_by_role("alert")).not_to_be_empty()
    assert service.http.get("/learners/broken").status_code == 404


async def test_a_form_shows_the_defaults(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/create?algorithm=lr")
    usual = {
        algorithm["name"]: algorithm["usual"] for algorithm in service.http.get("/algorithms").json()["algorithms"]
    }
    for kind in ("named", "dense"):
        await page.get_by_label("kind").first.select_option(kind)
        for part, setting in (("threshold", "objective"), ("scaling", "kind"), ("calibration", "kind")):
            group = page.get_by_role("group", name=part.capitalize(), exact=True)
            if not await group.is_visible():
                await page.locator("summary").filter(has_text=re.compile(f"^{part.capitalize()}")).click()
            default = usual["lr"][kind][part][setting]
            await expect(group.get_by_label(setting).locator("option:checked")).to_have_text(f"{default} (default)")
