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

pytestmark = pytest.mark.integration


def in_order(*numbers: str) -> re.Pattern[str]:
    """Return the pattern of a text that has these numbers, in this order, and no others; an empty text has none."""
    return re.compile(r"^\D*" + r"\D+".join(re.escape(number) for number in numbers) + (r"\D+$" if numbers else "$"))


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    served.create("better")
    served.create("worse", scaling={"kind": "standard", "clip": 0.1})
    served.create("twin")
    return served


async def test_a_group_is_created_and_compared_live(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/compare")
    await expect(page.locator(".message")).to_be_visible()
    await page.locator(".title button").click()
    dialog = page.get_by_role("dialog")
    name, troubles = dialog.get_by_role("textbox"), dialog.locator(".setting .trouble")
    visit.expected = ("422",)
    for entered, wrong in (("", "."), ("a b", "'a b'")):
        await name.fill(entered)
        await dialog.locator("[type=submit]").click()
        # what is wrong with the name and, at the same time, with the learners
        await expect(troubles).to_have_text([re.compile(wrong), re.compile(r"\b0\b.*\b2\b.*\b8$")])
        await expect(dialog.locator("form > .trouble")).to_be_visible()
        await expect(name).to_be_focused()
        await expect(name).to_have_accessible_description(re.compile(wrong))
    await name.fill("duel")
    await dialog.get_by_label("better").check()
    await dialog.locator("[type=submit]").click()
    # nothing is wrong with the name any more
    await expect(troubles).to_have_text([re.compile("^$"), re.compile(r"\b1\b.*\b2\b.*\b8$")])
    await expect(name).not_to_have_attribute("aria-invalid", "true")
    await expect(dialog.get_by_label("better")).to_be_focused()
    await dialog.get_by_label("worse").check()
    await dialog.locator("[type=submit]").click()
    await expect(page.get_by_role("heading", name="duel", level=1)).to_be_visible()

    row = page.get_by_role("row", name="better", exact=False).first
    await expect(row.locator(".number")).to_have_text("\N{EN DASH}")  # not 0
    await expect(page.locator(".verdicts li")).to_have_attribute("data-state", "none")
    with Stream(service, "groups/duel", batch=400, pause=0.05):
        await expect(page.locator(".verdicts [data-state=decided]")).to_have_text(
            re.compile(r"^better\b.*\bworse:.* to 1;.*\(\D*[\d,]+\)"), timeout=120_000
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
    await overview.locator("[data-page=compare]").click()
    group = overview.get_by_role("listitem").filter(has=overview.get_by_role("link", name="duel"))
    await expect(group.locator(".finding[data-state=decided]")).to_have_text(verdict)


async def test_a_learner_deleted_during_group_creation_is_marked(service: Serving, visit: Opener) -> None:
    service.create("brief")
    page = await visit(service.url, "#/compare")
    await page.locator(".title button").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("textbox").fill("short")
    for item in ("better", "brief"):
        await dialog.get_by_label(item).check()
    service.http.delete("/learners/brief").raise_for_status()
    visit.expected = ("422",)
    await dialog.locator("[type=submit]").click()
    await expect(dialog.locator("fieldset + .trouble")).to_have_text(re.compile(r"\b2 .*\bbrief\b"))
    await expect(dialog.locator("[aria-invalid]")).to_have_count(1)
    await expect(dialog.get_by_label("brief")).to_be_focused()


async def test_without_a_stream_a_comparison_is_polled(service: Serving, visit: Opener) -> None:
    service.http.put("/groups/polled", json={"learners": ["better", "twin"]}).raise_for_status()
    visit.replies["**/stream**"] = replying({"detail": "none", "code": "too-many-streams"}, status=429)
    visit.expected = ("429",)
    page = await visit(service.url, "#/compare")
    group = page.get_by_role("listitem").filter(has=page.get_by_role("link", name="polled"))
    await expect(group.locator(".finding")).to_have_attribute("data-state", "none")
    await page.get_by_role("link", name="polled").click()
    await expect(page.locator("#connection[data-state=polling]")).to_be_visible()
    service.feed("groups/polled", 30)
    summary = page.locator(".stack .panel .quiet")
    await expect(summary).to_have_text(re.compile(r"^30\b"))
    visit.expected = ("429", "404")
    service.http.delete("/groups/polled").raise_for_status()
    await expect(page.locator(".message")).to_contain_text("polled")
    await expect(summary).to_be_hidden()


async def test_a_deleted_group_is_reported(service: Serving, visit: Opener) -> None:
    service.http.put("/groups/brief", json={"learners": ["better", "twin"]}).raise_for_status()
    page = await visit(service.url, "#/compare/brief")
    await expect(page.locator(".stack .panel .quiet")).to_have_text(re.compile(r"^0\b"))
    service.http.delete("/groups/brief").raise_for_status()
    await expect(page.locator(".message")).to_contain_text("brief")
    await expect(page.locator("#connection")).to_have_attribute("data-state", "live")  # the service answers
    service.http.put("/groups/brief", json={"learners": ["worse", "twin"]}).raise_for_status()
    await page.evaluate("dispatchEvent(new Event('online'))")  # asks at once
    await expect(page.get_by_role("row", name="worse \N{MINUS SIGN} twin")).to_be_visible()


async def test_a_group_card_shows_the_best_learner(service: Serving, visit: Opener) -> None:
    for name, scaling in (("good", {}), ("dull", {"kind": "standard", "clip": 0.1}), ("duller", {"clip": 0.001})):
        service.create(name, **({"scaling": scaling} if scaling else {}))
    service.http.put("/groups/trio", json={"learners": ["dull", "good", "duller"]}).raise_for_status()
    page = await visit(service.url)
    finding = page.locator(".group", has=page.get_by_role("link", name="trio")).locator(".finding")
    await expect(finding).to_have_attribute("data-state", "none")
    await expect(finding).to_contain_text("/v1/groups/trio/update")
    service.feed("groups/trio", 10)
    await expect(finding).to_have_attribute("data-state", "open")
    with Stream(service, "groups/trio", batch=400, pause=0.05):
        await expect(finding).to_have_attribute("data-state", "decided", timeout=120_000)
        await expect(finding).to_have_text(re.compile(r"^good\b((?!dull).)* to 1;.*\(\D*[\d,]+\)"))
    tests = service.http.get("/groups/trio/compare").json()["tests"]
    assert [test["verdict"] for test in tests if "good" in (test["a"], test["b"])] == ["b", "a"]


async def test_identical_learners_get_no_verdict(service: Serving, visit: Opener) -> None:
    service.create("other-twin")
    service.http.put("/groups/twins", json={"learners": ["twin", "other-twin"]}).raise_for_status()
    service.feed("groups/twins", 400)
    page = await visit(service.url, "#/compare/twins")
    await expect(page.locator(".verdicts [data-state=open]")).to_have_text(re.compile(r"^twin\b.*\bother-twin:"))
    await expect(page.get_by_role("row", name="twin \N{MINUS SIGN} other-twin")).to_contain_text("+0.0000")


async def test_a_missing_group_is_reported(service: Serving, visit: Opener) -> None:
    visit.expected = ("404",)
    page = await visit(service.url, "#/compare/nothing")
    await expect(page.locator(".message")).to_contain_text("nothing")


@pytest.mark.campaign
async def test_a_learner_is_created_from_the_catalogue(service: Serving, visit: Opener) -> None:
    visit.expected = ("422",)
    page = await visit(service.url, "#/create?algorithm=cbr")
    parameters = page.locator("[data-part=params]")
    await expect(parameters.get_by_label("eta")).to_have_attribute("placeholder", "0.7")
    eta = parameters.locator(".setting", has=page.get_by_label("eta"))
    await expect(eta.locator(".help")).to_have_text(re.compile(r"\(\D*0\.5, \D*0\.999999; \D*0\.7\)$"))
    await expect(parameters).to_contain_text("1,048,576")
    await expect(page.get_by_label("kind").first.locator("option")).to_have_count(2)  # cbr is for dense rows
    create = page.locator(".create [type=submit]")
    await create.click()
    dim, name = page.get_by_label("dim"), page.get_by_role("textbox", name="name", exact=True).first
    troubled = page.locator(".setting", has=page.locator("[aria-invalid]"))
    wrong = page.locator(".setting", has=name).locator(".trouble[role=alert]")
    await expect(wrong).not_to_be_empty()
    await expect(name).to_be_focused()
    await expect(dim).to_have_attribute("aria-invalid", "true")  # which is missing, too
    await expect(troubled).to_have_count(2)
    await name.fill("no name")
    await expect(troubled).to_have_count(1)  # what is entered anew may be right
    await dim.fill("0")
    await expect(troubled).to_have_count(0)
    await expect(wrong).to_be_empty()
    await create.click()
    await expect(wrong).to_contain_text("'no name'")
    await expect(troubled.nth(1).locator(".trouble")).to_have_text(re.compile(r"\b0\b.*\b1$"))
    await expect(page.locator(".create fieldset > .trouble")).to_be_visible()
    await expect(name).to_be_focused()
    await name.fill("made")
    await page.get_by_label("dim").fill("3")
    await parameters.get_by_label("eta").fill("7")
    await create.click()
    await expect(parameters.get_by_label("eta")).to_have_attribute("aria-invalid", "true")
    await expect(parameters.get_by_label("eta")).to_be_focused()
    await expect(eta.locator(".trouble")).to_have_text(re.compile(r"\b7\b.*\b0\.999999$"))
    assert service.http.get("/learners/made").status_code == 404

    await parameters.get_by_label("eta").fill("0.9")
    await page.locator("[data-part=threshold] summary").click()
    await page.get_by_label("objective").select_option("budget")
    await page.get_by_label("alerts", exact=True).fill("100")
    command = await page.locator("pre", has_text="PUT http").text_content()
    body = json.loads((command or "").split("\n", 1)[1])
    assert body == {
        "algorithm": "cbr",
        "features": {"kind": "dense", "dim": 3},
        "params": {"eta": 0.9},
        "threshold": {"objective": "budget", "alerts": 100},
    }
    await create.click()
    await expect(page.get_by_role("heading", name="made", level=1)).to_be_visible()
    document = service.http.get("/learners/made").json()
    config = document["config"]
    assert (config["params"]["eta"], config["threshold"]["alerts"]) == (0.9, 100)
    (warning,) = document["warnings"]
    await expect(page.locator("#news .alarm")).to_contain_text(warning["detail"])


async def test_members_of_auto_may_be_names_and_objects(service: Serving, visit: Opener) -> None:
    visit.expected = ("422",)
    page = await visit(service.url, "#/create?algorithm=auto&name=mixed")
    await page.get_by_label("kind").first.select_option("dense")
    await page.get_by_label("dim").fill("3")
    members = page.get_by_label("members")
    await expect(members).to_have_attribute("placeholder", re.compile("JSON"))
    await members.fill('fofo, {"algorithm": "cbr", "params": {"capacity": 0, "eta": 0.9}}, bins')
    create = page.locator(".create [type=submit]")
    await create.click()
    trouble = page.locator(".setting", has=members).locator(".trouble")
    await expect(trouble).to_have_text(re.compile(r"\bcapacity: is 0\b"))
    await members.fill('fofo, {"algorithm": "cbr", "params": {"capacity": 5, "eta": 0.9}}, bins, {"broken')
    await create.click()
    await expect(trouble).to_contain_text('{"broken')
    await members.fill('fofo, {"algorithm": "cbr", "params": {"capacity": 5, "eta": 0.9}}, bins')
    await create.click()
    await expect(page.get_by_role("heading", name="mixed", level=1)).to_be_visible()
    first, custom, last = service.http.get("/learners/mixed").json()["config"]["params"]["members"]
    assert (first, custom["params"]["capacity"], custom["params"]["eta"], last) == ("fofo", 5, 0.9, "bins")


async def test_an_existing_name_is_refused(service: Serving, visit: Opener) -> None:
    service.create("taken")
    visit.expected = ("409",)
    page = await visit(service.url, "#/create?name=taken")
    await page.locator(".create [type=submit]").click()
    troubled = page.locator(".setting", has=page.locator("[aria-invalid]"))
    await expect(troubled).to_have_count(1)
    await expect(troubled.locator(".trouble")).to_contain_text("taken")
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
    fields = page.locator(".list fieldset")
    await fields.first.get_by_label("name").fill("amount")
    await fields.first.get_by_label("log").check()
    await page.locator(".list > button").click()
    await expect(fields.nth(1).get_by_label("name")).to_be_focused()
    await fields.nth(1).get_by_label("name").fill("shop")
    await fields.nth(1).get_by_label("kind").select_option("categorical")
    await expect(fields.nth(1).get_by_label("log")).to_be_hidden()  # of numeric ones
    await fields.nth(1).get_by_label("categories").fill("5")
    await page.locator(".list > button").click()
    visit.expected = ("422",)
    await page.locator(".create [type=submit]").click()
    nameless = fields.nth(2).get_by_label("name")
    await expect(nameless).to_have_attribute("aria-invalid", "true")  # the third field's own, and it alone
    await expect(nameless).to_be_focused()
    await expect(fields.nth(2).locator(".setting", has=page.get_by_label("name")).locator(".trouble")).not_to_be_empty()
    await expect(page.locator("[aria-invalid]")).to_have_count(1)
    await fields.nth(2).locator("> button").click()
    await page.locator(".create [type=submit]").click()
    await expect(page.get_by_role("heading", name="rows", level=1)).to_be_visible()
    result = service.http.get("/learners/rows").json()["config"]["features"]["fields"]
    assert [(item["name"], item["kind"], item["log"]) for item in result] == [
        ("amount", "numeric", True),
        ("shop", "categorical", False),
    ]
    assert result[1]["categories"] == 5


async def test_numbers_with_units_are_converted_while_typing(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/create?algorithm=lr")
    for part in ("threshold", "late", "whole"):
        await page.locator(f"[data-part={part}] summary").click()
    window, ttl, most = (page.get_by_label(name, exact=True) for name in ("window_seconds", "label_ttl", "max_bytes"))
    hint = page.locator(".setting", has=window).locator(".meant")
    await expect(hint).to_be_empty()  # none is the default
    for entered, numbers in (
        ("604800", ["604800", "7"]),
        ("5400", ["5400", "1", "30"]),
        ("1e10", ["10000000000", "115,740", "17", "46", "40"]),
        ("59", []),
        ("-604800", []),
        ("null", []),
        ("a week", []),
    ):
        await window.fill(entered)
        await expect(hint).to_have_text(in_order(*numbers))
    await window.fill("604800")
    await expect(window).to_have_accessible_description(re.compile(r"^604800\b.*\b7\b"))
    defaults = page.locator(".setting", has=ttl).locator(".meant")
    await expect(defaults).to_have_text(in_order("7776000", "90"))
    for entered, numbers in (
        ("", ["1073741824", "1"]),
        ("1500000000", ["1500000000", "1.4"]),
        ("2048", ["2048", "2"]),
    ):
        await most.fill(entered)
        await expect(page.locator(".setting", has=most).locator(".meant")).to_have_text(in_order(*numbers))
    await page.get_by_label("objective").select_option("budget")
    unit = page.get_by_label("unit_seconds")
    await expect(page.locator(".setting", has=unit).locator(".meant")).to_have_text(in_order("86400", "1"))


async def test_changing_the_feature_kind_keeps_the_entries(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/create?algorithm=lr&name=kept")
    kind = page.get_by_label("kind").first
    threshold = page.locator("[data-part=threshold]")
    scaling = page.locator("[data-part=scaling]")
    await page.get_by_label("bits").fill("12")
    await page.locator("[data-part=threshold] summary").click()
    await threshold.get_by_label("objective").select_option("budget")
    await threshold.get_by_label("alerts", exact=True).fill("25")
    await threshold.get_by_label("memory", exact=True).fill("null")
    await page.locator("[data-part=scaling] summary").click()
    await scaling.get_by_label("kind").select_option("maxabs")
    await page.locator("[data-part=whole] summary").click()
    await page.get_by_label("window", exact=True).fill("500")
    for other in ("dense", "named"):
        await kind.select_option(other)
        await expect(threshold.get_by_label("objective")).to_have_value("budget")
        await expect(threshold.get_by_label("alerts", exact=True)).to_have_value("25")  # and it is unfolded as it was
        await expect(threshold.get_by_label("memory", exact=True)).to_have_value("null")
        await expect(scaling.get_by_label("kind")).to_have_value("maxabs")
        await expect(page.get_by_label("window", exact=True)).to_have_value("500")
    await expect(page.get_by_label("bits")).to_have_value("12")
    await page.get_by_label("algorithm", exact=True).select_option("npsvor")  # which has no threshold
    await expect(threshold).to_have_count(0)
    await page.get_by_label("algorithm", exact=True).select_option("lr")
    await expect(threshold.get_by_label("alerts", exact=True)).to_have_value("25")
    await page.locator(".create [type=submit]").click()
    await expect(page.get_by_role("heading", name="kept", level=1)).to_be_visible()
    config = service.http.get("/learners/kept").json()["config"]
    assert (config["threshold"]["objective"], config["threshold"]["alerts"]) == ("budget", 25)
    assert (config["scaling"]["kind"], config["window"], config["features"]["bits"]) == ("maxabs", 500, 12)


async def test_an_ordinal_learner_has_no_threshold_setting(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/create")
    await expect(page.locator("[data-part=threshold]")).to_be_visible()
    await page.get_by_label("algorithm", exact=True).select_option("npsvor")
    await expect(page.locator("[data-part=threshold]")).to_have_count(0)
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
            await page.locator(".importing button").click()
        await (await chooser.value).set_files(path)

    await choose(file)
    dialog = page.get_by_role("dialog")
    name = dialog.get_by_role("textbox")
    await expect(name).to_have_value("far")
    visit.expected = ("409", "422")
    await dialog.locator("[type=submit]").click()
    alert = dialog.get_by_role("alert")
    await expect(alert).to_contain_text("far")  # which there is already
    await name.fill("")
    await dialog.locator("[type=submit]").click()
    await expect(alert).not_to_contain_text("far")
    await expect(alert).not_to_be_empty()
    await name.fill("no name")
    await dialog.locator("[type=submit]").click()
    await expect(alert).to_contain_text("'no name'")
    await name.fill("near")
    await dialog.locator("[type=submit]").click()
    await expect(page.get_by_role("heading", name="near", level=1)).to_be_visible()
    await expect(page.locator("#news")).to_have_text(re.compile(r"\bnear\b.*\b60\b"))
    digests = {item: service.http.get(f"/learners/{item}/digest").json()["digest"] for item in ("far", "near")}
    assert digests["far"] == digests["near"]

    await page.goto(f"{service.url}/#/create")
    file.write_bytes(b"something else")
    await choose(file)
    await name.fill("")
    await dialog.locator("[type=submit]").click()
    await expect(alert).to_be_visible()
    text = await alert.inner_text()  # all that is wrong at once
    await name.fill("broken")
    await dialog.locator("[type=submit]").click()
    await expect(alert).not_to_have_text(text)
    await expect(alert).to_be_visible()
    assert service.http.get("/learners/broken").status_code == 404


async def test_a_form_shows_the_defaults(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/create?algorithm=lr")
    usual = {
        algorithm["name"]: algorithm["usual"] for algorithm in service.http.get("/algorithms").json()["algorithms"]
    }
    for kind in ("named", "dense"):
        await page.get_by_label("kind").first.select_option(kind)
        for part, setting in (("threshold", "objective"), ("scaling", "kind"), ("calibration", "kind")):
            group = page.locator(f"[data-part={part}] .settings")
            if not await group.is_visible():
                await page.locator(f"[data-part={part}] summary").click()
            default = usual["lr"][kind][part][setting]
            await expect(group.get_by_label(setting).locator("option:checked")).to_have_text(
                re.compile(rf"^{default} \(")
            )
