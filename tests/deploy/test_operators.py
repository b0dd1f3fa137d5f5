"""The Grafana dashboard and the Prometheus rules against a real scrape: what they ask for is what the service tells.

Every expression is read by a PromQL parser, which checks types too, and every metric, label and value of a label that
it names has to be in the scrape of an application that has met all there is to tell of. Grafana Labs' own types read
the dashboard. Where Prometheus' promtool is installed it checks the rules and runs their unit tests besides.
"""

from __future__ import annotations

import asyncio
import copy
import io
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families

from service.api.app import create_app
from service.settings import Settings
from service.telemetry.log_writer import LineWriter
from tests.docs.test_consistency import codes
from tests.harness.nodes import T0, posted
from tests.harness.websocket import websocket
from tests.service.engine.replica.test_served_events import SETUPS, labelled

pytestmark = pytest.mark.integration

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "rarestream.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
README = (PROMETHEUS / "README.md").read_text()
GROUPS: list[dict[str, Any]] = yaml.safe_load((PROMETHEUS / "rarestream.rules.yaml").read_text())["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
ROWS = ["Overview", "Learner quality", "Labels and decisions", "Log and store", "Requests", "Process"]
OF_PROMETHEUS = {"job", "instance"}  # labels that a scrape gets there
RARE = {"status"}  # labels of which not every value can be had in a test
promtool = shutil.which("promtool")
with_promtool = pytest.mark.skipif(promtool is None, reason="promtool is not installed")


def of_the_dashboard() -> list[str]:
    """Every expression of it, with what Grafana puts in their place for its variables."""
    expressions = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
    expressions += [item["expr"] for item in DASHBOARD["annotations"]["list"] if "expr" in item]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            selector = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
            assert selector, variable["definition"]
            assert variable["query"]["query"] == variable["definition"]
            expressions.append(f"count by ({selector[2]}) ({selector[1]})")
    return [item.replace("$__rate_interval", "5m") for item in expressions]


EXPRESSIONS = sorted({*of_the_dashboard(), *(rule["expr"] for rule in RULES)})


class Scraped(NamedTuple):
    """A scrape: its text, and its samples' labels by name."""

    text: str
    samples: dict[str, list[dict[str, str]]]


async def _scrape() -> str:
    """Of an application that learns, serves, is sent what it refuses, and has websockets."""
    app = create_app(Settings(store="memory:"), LineWriter(io.BytesIO(), "json"))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://rarestream/v1", timeout=300) as http:
            fitted = {"algorithm": "ranksvm", "features": {"kind": "dense", "dim": 3}}
            for name, config in {"dense": SETUPS["dense"], "ordinal": SETUPS["ordinal"], "fitted": fitted}.items():
                assert (await http.put(f"/learners/{name}", json=config)).status_code == 201
            await http.put("/learners/named", json={"features": {"kind": "named"}})
            named = [{"features": {"fee": 1.5}, "label": 0}, {"features": {"shop": "a"}, "label": 1}]
            await posted(http, "/learners/named/update", named)
            for name in ("dense", "ordinal"):
                await posted(http, f"/learners/{name}/update", labelled(name, 0, 60))
            await posted(http, "/learners/dense/predict", [{"id": "late", "x": [1, 0, 1], "time": T0}])
            await posted(http, "/learners/dense/labels", [{"id": "late", "label": 1, "time": T0 + 60}])
            assert (await http.post("/learners/dense/snapshots")).status_code == 201
            assert (await http.get("/learners/nobody")).status_code == 404
            async with websocket(app, "/v1/learners/dense/ws") as ws:
                ws.send({"seq": 1, "op": "predict", "events": [{"x": [1, 2, 3]}]})
                await ws.reply()
            return (await http.get("http://rarestream/metrics")).text


@pytest.fixture(scope="module")
def scraped() -> Scraped:
    text = asyncio.run(_scrape())
    samples: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(dict(sample.labels))
    return Scraped(text, samples)


class Selectors(NamedTuple):
    """The metrics and labels of an expression."""

    selectors: list[tuple[str, list[tuple[str, str, str]]]]  # metric, and (label, operator, value) of each matcher
    labels: set[str]  # for grouping or matching


def selectors_of(expression: str) -> Selectors:
    """Parse PromQL. Raises ValueError for other text and for mixed types."""
    parts = Selectors([], set())

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            matchers = [
                (matcher.name, str(matcher.op).rpartition(".")[2], matcher.value) for matcher in node.matchers.matchers
            ]
            parts.selectors.append((node.name, matchers))
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            parts.labels.update(node.modifier.labels)
        elif isinstance(node, promql_parser.BinaryExpr) and node.modifier is not None:
            if node.modifier.matching is not None:
                parts.labels.update(node.modifier.matching.labels)
            parts.labels.update(node.modifier.group_labels or ())

    promql_parser.walk(promql_parser.parse(expression), visit)
    return parts


def matches(labels: dict[str, str], matchers: list[tuple[str, str, str]]) -> bool:
    """Return whether a sample fits the matchers, as far as a test can decide it."""
    for name, operator, value in matchers:
        if name in OF_PROMETHEUS or name in RARE or value.startswith("$"):
            continue
        actual = labels.get(name, "")
        matched = actual == value if operator in ("Equal", "NotEqual") else re.fullmatch(value, actual) is not None
        if matched != (operator in ("Equal", "Re")):
            return False
    return True


def test_rules_and_dashboard_are_not_empty() -> None:
    assert len(EXPRESSIONS) > 80
    assert sum(len(selectors_of(expression).selectors) for expression in EXPRESSIONS) > 120
    with pytest.raises(ValueError, match="matrix"):
        selectors_of("rate(rarestream_events_total)")


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_expression_uses_exported_metrics_and_labels(expression: str, scraped: Scraped) -> None:
    names = selectors_of(expression)
    assert names.selectors
    grouped = set(OF_PROMETHEUS)
    for metric, matchers in names.selectors:
        if metric == "up":  # Prometheus' own
            continue
        if metric in RECORDED:
            grouped.add("learner")
            continue
        assert metric in scraped.samples, f"{metric} is not told"
        samples = scraped.samples[metric]
        labels = set().union(*samples)
        assert {name for name, _, _ in matchers} <= labels | OF_PROMETHEUS
        assert any(matches(item, matchers) for item in samples), f"no {metric} has {matchers}"
        grouped |= labels
    assert names.labels <= grouped


def test_every_learner_metric_is_on_the_dashboard(scraped: Scraped) -> None:
    metrics = {metric for item in of_the_dashboard() for metric, _ in selectors_of(item).selectors}
    samples = {name for name, labels in scraped.samples.items() if "learner" in labels[0]}
    ours = {name for name in samples if not name.endswith("_created")}
    not_shown = {
        "rarestream_fields",  # the page tells these
        "rarestream_absent_fields",
        "rarestream_odd_fields",
        "rarestream_field_values_total",
        "rarestream_fit_failed",  # alerts tell these
        "rarestream_remembered_bytes",
        "rarestream_served_labelled_events_total",  # shown as a share
    }
    assert ours - metrics == not_shown


# The dashboard


def test_the_dashboard_has_a_current_schema_and_a_selectable_data_source() -> None:
    assert DASHBOARD["schemaVersion"] >= 39
    assert (DASHBOARD["uid"], DASHBOARD["id"]) == ("rarestream", None)
    variables = {item["name"]: item for item in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "instance", "learner"]
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    source = {"type": "prometheus", "uid": "${datasource}"}
    for name in ("instance", "learner"):
        assert variables[name]["datasource"] == source
        assert (variables[name]["multi"], variables[name]["includeAll"]) == (True, True)
    for panel in PANELS:
        if panel["type"] != "row":
            assert panel["datasource"] == source
            assert all(target["datasource"] == source for target in panel["targets"])


def missing(document: Any, shipped: Any, at: str = "") -> set[str]:
    """Return the JSON pointers of differences from `document` in `shipped`."""
    if isinstance(document, dict) and isinstance(shipped, dict):
        return {place for key in document for place in missing(document[key], shipped.get(key, ...), f"{at}/{key}")}
    if isinstance(document, list) and isinstance(shipped, list) and len(document) == len(shipped):
        pairs = enumerate(zip(document, shipped, strict=True))
        return {place for i, pair in pairs for place in missing(*pair, f"{at}/{i}")}
    return set() if document == shipped else {at}


def test_grafana_types_know_every_dashboard_option() -> None:
    """What they do not know, as an option that is misspelt or of another kind of panel, is lost on the way."""
    register_default_plugins()

    def unknown(dashboard: dict[str, Any]) -> set[str]:
        return missing(dashboard, json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard))))

    open_ended = {  # what Grafana leaves to the data source, and an id that a new dashboard has not
        "/annotations/list/1/step",
        "/annotations/list/1/titleFormat",
        "/templating/list/1/definition",
        "/templating/list/2/definition",
    }
    assert unknown(DASHBOARD) == {"/id", *open_ended}
    (at, panel) = next((i, panel) for i, panel in enumerate(PANELS) if panel["type"] == "timeseries")
    assert panel["fieldConfig"]["defaults"]["custom"]["lineWidth"]
    misspelt = copy.deepcopy(DASHBOARD)
    custom = misspelt["panels"][at]["fieldConfig"]["defaults"]["custom"]
    custom["lineWdith"] = custom.pop("lineWidth")
    assert unknown(misspelt) - unknown(DASHBOARD) == {f"/panels/{at}/fieldConfig/defaults/custom/lineWdith"}


def test_panels_lie_within_their_rows_without_overlap() -> None:
    assert [panel["title"] for panel in PANELS if panel["type"] == "row"] == ROWS
    ids = Counter(panel["id"] for panel in PANELS)
    assert max(ids.values()) == 1
    occupied: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not occupied & cells, panel["title"]
        occupied |= cells
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["description"].endswith("."), panel["title"]
            assert panel["fieldConfig"]["defaults"].get("unit") or panel["type"] == "table"
            references = [target["refId"] for target in panel["targets"]]
            assert len(references) == len(set(references))


def test_every_dashboard_expression_filters_by_node_and_learner() -> None:
    for expression in of_the_dashboard():
        for metric, matchers in selectors_of(expression).selectors:
            variables = {(name, value) for name, _, value in matchers if value.startswith("$")}
            if metric.startswith(("rarestream_", "process_", "python_")) and "count by (instance)" not in expression:
                limit = metric in ("rarestream_queue_limit_bytes", "rarestream_body_limit_bytes")
                assert ("instance", "$instance") in variables or limit, expression


def test_legends_use_labels_kept_by_the_expression() -> None:
    for panel in PANELS:
        for target in panel.get("targets", []):
            outermost = promql_parser.parse(target["expr"].replace("$__rate_interval", "5m"))
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            if isinstance(outermost, promql_parser.AggregateExpr):
                left = set(outermost.modifier.labels) if outermost.modifier else set()
                assert labels <= left, (panel["title"], labels)


# The rules


def test_every_alert_states_the_problem_and_the_remedy() -> None:
    names = [rule["alert"] for rule in ALERTS]
    assert len(names) == len(set(names))
    assert {
        "RarestreamAucFell",
        "RarestreamNoPositives",
        "RarestreamQueueFull",
        "RarestreamSnapshotOld",
        "RarestreamStoreDown",
    } <= set(names)
    for rule in ALERTS:
        assert re.fullmatch(r"Rarestream[A-Z]\w+", rule["alert"])
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert len(rule["annotations"]["summary"]) < 120
        assert len(rule["annotations"]["description"]) > 100


def test_labels_routes_and_metrics_in_alert_texts_exist() -> None:
    """Labels that their texts name are left by the expression; routes, settings and metrics exist."""
    paths = set(create_app(Settings(store="memory:")).openapi()["paths"])
    for rule in ALERTS:
        text = " ".join(rule["annotations"].values())
        labels = set(re.findall(r"\$labels\.(\w+)", text))
        names = selectors_of(rule["expr"])
        assert labels <= names.labels | OF_PROMETHEUS | {"learner"}, rule["alert"]
        if "learner" in labels:
            assert "learner" in names.labels or any("learner:" in metric for metric, _ in names.selectors)
        for path in re.findall(r"/v1/[\w/{}$. ]*[\w}]", text.replace("{{ $labels.learner }}", "{name}")):
            assert path.split(" ")[0] in paths, (rule["alert"], path)
        for setting in re.findall(r"RARESTREAM_(\w+)", text):
            assert setting.lower() in Settings.model_fields


@pytest.mark.parametrize(
    ("alert", "statuses"), [("RarestreamRequestsRefused", [429]), ("RarestreamErrors", [500, 503])]
)
def test_the_reply_alerts_mention_every_reason(alert: str, statuses: list[int]) -> None:
    (text,) = [rule["annotations"] for rule in ALERTS if rule["alert"] == alert]
    samples = [code for code, status in codes() if status in statuses]
    assert len(samples) >= 4
    for code in samples:
        assert f"{code}: " in text["description"], code
    assert "full" not in text["summary"]


def test_every_alert_has_a_firing_test() -> None:
    tests = yaml.safe_load((PROMETHEUS / "rarestream.tests.yaml").read_text())["tests"]
    fired = set()
    for test in tests:
        for item in test["promql_expr_test"]:
            (selector,) = selectors_of(item["expr"]).selectors
            if item["exp_samples"]:
                fired |= {value for name, _, value in selector[1] if name == "alertname"}
    assert fired == {rule["alert"] for rule in ALERTS}


def test_series_in_rule_tests_match_exported_metrics(scraped: Scraped) -> None:
    tests = yaml.safe_load((PROMETHEUS / "rarestream.tests.yaml").read_text())["tests"]
    for test in tests:
        for series in test["input_series"]:
            ((metric, matchers),) = selectors_of(series["series"]).selectors
            if metric != "up":
                labels = {name for name, _, _ in matchers} - OF_PROMETHEUS
                assert labels <= set(scraped.samples[metric][0]), metric


@with_promtool
@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "rules", "rarestream.rules.yaml"],
        ["check", "config", "prometheus.yaml"],
        ["test", "rules", "rarestream.tests.yaml"],
    ],
    ids=" ".join,
)
def test_promtool_accepts_the_rules(arguments: list[str]) -> None:
    assert promtool is not None
    process = subprocess.run([promtool, *arguments], cwd=PROMETHEUS, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stdout + process.stderr


@with_promtool
def test_promtool_accepts_a_scrape(scraped: Scraped) -> None:
    assert promtool is not None
    process = subprocess.run(
        [promtool, "check", "metrics"], input=scraped.text, capture_output=True, text=True, timeout=120
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_the_documented_metrics_match_the_exported_metrics(scraped: Scraped) -> None:
    """By name, type, labels and meaning."""
    rows = re.findall(r"^\| `(rarestream_\w+)` \| (\w+) \| (.+) \| (.+) \|$", README, re.MULTILINE)
    samples = []
    for family in text_string_to_metric_families(scraped.text):
        if family.name.startswith("rarestream_"):
            labels = sorted(set().union(*(sample.labels for sample in family.samples)) - {"le", "learner"})
            metrics = ", ".join(f"`{label}`" for label in labels) or "-"
            name = f"{family.name}_total" if family.type == "counter" else family.name
            samples.append((name, family.type, metrics, family.documentation))
    assert sorted(rows) == sorted(samples)
