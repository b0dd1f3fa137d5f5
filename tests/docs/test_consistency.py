"""What the documents say is there, and what is there is in the documents."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.main import get_command

import learners
import rarestream
import service
from learners import algorithms
from learners.algorithms.registry import describe
from learners.config import FEATURE_KINDS, Config, LearnerSettings
from learners.features.feature_kinds import Dense, SparseColumns
from learners.metrics.binary import HISTORY_COLUMNS
from learners.metrics.definitions import FIGURES
from learners.metrics.ordinal import ORDINAL_HISTORY
from rarestream import Client, RemoteLearner, RequestBounds
from service import errors
from service.api.app import create_app
from service.cli.main import app as command_line
from service.settings import Settings
from tests.docs.documents import DOCUMENTS, ROOT, anchors, links, read

BESIDE = [  # texts that are no documents of their own
    *(ROOT / "CHANGELOG.md", ROOT / "deploy" / "prometheus" / "README.md"),
    *(ROOT / "benchmarks").glob("*.md"),
]
README = read("README.md")
API = read("docs/reference/http-api.md")
LEARNERS = read("docs/reference/learners.md")
THRESHOLDS = read("docs/reference/thresholds.md")
METRICS = read("docs/reference/metrics.md")
SETTINGS = read("docs/reference/settings.md")


def section(text: str, title: str) -> str:
    """Return the text under a heading, up to the next heading of its level or above."""
    match = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,3}} |\Z)", text, re.DOTALL | re.MULTILINE)
    assert match, f"there is no section {title}"
    return match[2]


def rows(text: str) -> dict[str, list[str]]:
    """Rows of tables whose first cell is a name in backquotes: the name, and the other cells."""
    result = {}
    for line in text.splitlines():
        cells = re.fullmatch(r"\| `([^`]+)` \| (.*) \|", line)
        if cells:
            result[cells[1]] = re.split(r" \| ", cells[2])
    return result


# Settings


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_in_the_reference_with_its_default(name: str) -> None:
    table, meaning = rows(SETTINGS)[f"RARESTREAM_{name.upper()}"]
    default = Settings.model_fields[name].default
    assert table.strip("`").replace(",", "") == (str(default).lower() if isinstance(default, bool) else str(default))
    assert meaning == Settings.model_fields[name].description


def test_every_documented_setting_exists() -> None:
    files = [*DOCUMENTS, ROOT / "CHANGELOG.md", *(ROOT / "benchmarks").glob("*.md")]
    for folder in ("deploy", "docker", "examples"):
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    for file in files:
        named = {name.lower() for name in re.findall(r"RARESTREAM_([A-Z_]*[A-Z])", file.read_text())}
        assert named <= {*Settings.model_fields, "url", "key", "ca"}, file


def test_documented_variables_of_other_programs_are_read() -> None:
    source = "".join(path.read_text() for path in (ROOT / "service").rglob("*.py"))
    for document in DOCUMENTS:
        for name in re.findall(r"\b(?:KAFKA|REDIS)_[A-Z]+\b", document.read_text()):
            assert f'environ.get("{name}")' in source, f"{document.name}: {name}"


# Learners


def assert_documented(schema: dict[str, Any], text: str) -> None:
    """Each parameter has its row, with its default and its meaning; and no row is of a parameter that is gone."""
    result = rows(text)
    members = {name: item for name, item in schema["properties"].items() if "const" not in item}
    assert list(result) == list(members)
    for name, item in members.items():
        default, values, meaning = result[name]
        if "default" not in item:
            assert default == "required"
        elif isinstance(item["default"], str):
            assert default == f"`{item['default']}`"
        else:
            assert json.loads(default.strip("`")) == item["default"]
        assert meaning.replace("\\|", "|") == item["description"]
        if "enum" in item:
            assert values == ", ".join(item["enum"])


@pytest.mark.parametrize("name", algorithms())
def test_every_algorithm_is_in_the_guide_with_its_parameters(name: str) -> None:
    assert len(re.findall(rf"^\| `{name}` \| .* \| .* \| .* \| .* \|$", LEARNERS, re.MULTILINE)) == 1
    text = section(LEARNERS, name)
    assert_documented(describe(name)["params"], text)
    assert f"](../../{algorithms()[name].__name__.replace('.', '/')}.py)" in text
    assert " Paper: " in text.replace("\n", " ")


@pytest.mark.parametrize("name", algorithms())
def test_the_guide_states_column_limits_below_those_of_the_features(name: str) -> None:
    (features,) = re.findall(rf"^\| `{name}` \| .*? \| (.*?) \|", section(LEARNERS, "Which algorithm"), re.MULTILINE)
    traits = algorithms()[name].TRAITS
    widest = SparseColumns if traits.sparse else Dense
    fewer = traits.max_dim < widest.schema()["properties"]["dim"]["maximum"]
    assert re.findall(r"at most ([\d,]+) columns", features) == ([f"{traits.max_dim:,}"] if fewer else [])
    assert features.split(" (")[0] == ("all" if traits.sparse else "dense, table")


def test_counts_in_the_readme_are_correct() -> None:
    table = section(README, "Which algorithm")
    prose = " ".join(table.split())
    named = set(re.findall(r"`([a-z-]+)`", "\n".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))))
    assert named <= set(algorithms())
    words = {12: "Twelve"}
    assert f"all {len(algorithms())}, with every parameter" in prose
    objectives = Config.of({"algorithm": "cbr", "features": {"kind": "dense", "dim": 1}}).threshold
    assert objectives is not None
    count = len(type(objectives).schema()["properties"]["objective"]["enum"])
    assert f"{words[count]} [threshold objectives]" in prose


@pytest.mark.parametrize("kind", FEATURE_KINDS)
def test_every_feature_kind_is_in_the_guide(kind: str) -> None:
    (text,) = re.findall(rf"^`{kind}`:\n\n(.*?)(?:\n\n)", section(LEARNERS, "Features"), re.DOTALL | re.MULTILINE)
    assert_documented(FEATURE_KINDS[kind].schema(), text)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("scaling", section(LEARNERS, "Scaling")),
        ("embedding", section(LEARNERS, "Embeddings")),
        ("learner", section(LEARNERS, "Settings of the learner itself")),
        ("calibration", section(THRESHOLDS, "Probabilities")),
        ("threshold", section(THRESHOLDS, "Thresholds")),
        ("late", section(THRESHOLDS, "Late labels")),
        ("figures", section(METRICS, "Live metrics")),
    ],
)
def test_every_learner_setting_is_in_the_guides(part: str, text: str) -> None:
    config = Config.of({"algorithm": "cbr", "features": {"kind": "dense", "dim": 1}})
    kind = LearnerSettings if part == "learner" else type(getattr(config, part))
    (table,) = re.findall(r"^\| parameter \| default \|.*?(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    assert_documented(kind.schema(), table)


@pytest.mark.parametrize(("part", "title"), [("scaling", "Scaling"), ("embedding", "Embeddings")])
def test_every_choice_of_a_setting_is_documented(part: str, title: str) -> None:
    config = Config.of({"algorithm": "cbr", "features": {"kind": "dense", "dim": 1}})
    for kind in getattr(config, part).schema()["properties"]["kind"]["enum"]:
        assert f"| `{kind}` |" in section(LEARNERS, title)


def test_every_objective_and_calibration_is_documented() -> None:
    config = Config.of({"algorithm": "cbr", "features": {"kind": "dense", "dim": 1}})
    assert config.threshold is not None
    assert config.calibration is not None
    table = section(THRESHOLDS, "Thresholds")
    documented = {
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall("`(.*?)`", row)
    }
    assert set(config.threshold.schema()["properties"]["objective"]["enum"]) <= documented
    for kind in config.calibration.schema()["properties"]["kind"]["enum"]:
        assert f"| `{kind}` |" in section(THRESHOLDS, "Probabilities")


# The API


def test_every_endpoint_is_in_the_api_reference() -> None:
    paths = create_app(Settings(store="memory:")).openapi()["paths"]
    operations = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    documented = set(re.findall(r"`([A-Z]+ /v1/[^`]*)`", section(API, "In short")))
    assert documented == operations


def test_every_query_parameter_is_in_the_api_reference() -> None:
    paths = create_app(Settings(store="memory:")).openapi()["paths"]
    for path, methods in paths.items():
        for operation in methods.values():
            for item in operation.get("parameters", []):
                if item["in"] == "query":
                    assert re.search(rf"[?&`]{item['name']}[=`]", API), f"{item['name']} of {path}"


def codes() -> set[tuple[str, int]]:
    """Every code with its status, those of the framework's own refusals too."""
    result, left = set(), [errors.ServiceError]
    while left:
        item = left.pop()
        result.add((item.code, item.status))
        left += item.__subclasses__()
    return result | {("not-found", 404), ("method-not-allowed", 405)}


def test_every_problem_code_has_its_section_with_its_status() -> None:
    text = read("docs/reference/problems.md")
    documented = re.findall(r"^## (\S+)\n\nStatus (\d+)\.$", text, re.MULTILINE)
    assert {(code, int(status)) for code, status in documented} == codes()
    assert {code for code, _ in codes()} | {"http-error"} == set(re.findall("^## (.*)$", text, re.MULTILINE))


def test_the_service_has_the_sections_of_the_problem_codes() -> None:
    assert (ROOT / "service" / "api" / "problems.md").read_text() == read("docs/reference/problems.md")


def test_every_command_is_in_the_command_line_reference() -> None:
    commands = get_command(command_line).commands  # type: ignore[attr-defined]
    documented = set(re.findall(r"^\| \[`(\w+)`\]", read("docs/reference/command-line.md"), re.MULTILINE))
    assert documented == set(commands)


# The Python client


def public(of: type) -> set[str]:
    return {name for name in vars(of) if not name.startswith("_")}


def test_every_client_method_is_in_its_guide_with_its_arguments() -> None:
    """And the defaults of `Client` itself."""
    text = read("docs/reference/python-client.md")
    documented = {
        name: arguments
        for row in re.findall(r"^\| (`[a-z_]+\(.*?) \|", text, re.MULTILINE)
        for name, arguments in re.findall(r"`(\w+)\((.*?)\)`", row)
    }
    assert set(documented) == public(Client) - {"close", "url"} | public(RemoteLearner)
    for name, arguments in documented.items():
        method = getattr(RemoteLearner, name, None) or getattr(Client, name)
        named = [re.sub("=.*", "", part) for part in re.split(", ", arguments) if part and part != "..."]
        parameters = [item for item in inspect.signature(method).parameters.values() if item.name != "self"]
        if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
            assert [item.name for item in parameters[:-1]] == named[: len(parameters) - 1], name
        else:
            assert [parameter.name for parameter in parameters] == named, name
    table = rows(text)
    for item in inspect.signature(Client).parameters.values():
        if item.name != "url":
            cell = table[item.name][0].strip("`")
            names = {"RequestBounds": RequestBounds}
            default = item.default
            assert default is None or callable(default) or cell == str(default) or eval(cell, names) == default, (
                item.name
            )


# Metrics


def test_every_live_metric_is_defined() -> None:
    text = section(METRICS, "Live metrics")
    documented = set(re.findall(r"`([a-z0-9_]+)`", text))
    document = learners.create("cbr", dim=2).figures()
    ordinal = learners.create("npsvor", dim=2).figures()
    assert {*FIGURES, *HISTORY_COLUMNS[:3]} - {"clock"} <= {*documented, "events", "served"}
    for item in (document, ordinal):
        for scope in ("window", "since_start"):
            assert set(item[scope]) <= documented
        assert set(item) - {"window", "since_start", "undefined", "events", "class_counts", "position"} <= documented


def test_every_history_column_is_documented() -> None:
    documented = set(
        re.findall(r"`([a-z0-9_]+)`", section(METRICS, "Live metrics") + section(METRICS, "History and stream"))
    )
    assert {*HISTORY_COLUMNS, *ORDINAL_HISTORY} <= documented


# All documents


@pytest.mark.parametrize("document", [*DOCUMENTS, *BESIDE], ids=lambda item: str(item.relative_to(ROOT)))
def test_links_resolve(document: Path) -> None:
    for link in links(document):
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_every_document_is_reachable_from_the_readme() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        document = waiting.pop()
        if document in reached:
            continue
        reached.add(document)
        if document.suffix == ".md":
            targets = {link.partition("#")[0] for link in links(document) if "://" not in link}
            waiting += [(document.parent / target).resolve() for target in targets if target]
    assert set(DOCUMENTS) <= reached
    assert set((ROOT / "examples").glob("*.py")) <= reached


def test_the_screenshot_is_a_small_png() -> None:
    picture = ROOT / "docs" / "dashboard.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 300 * 1024


# The packages


def test_every_dependency_states_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    for requirement in project["dependencies"] + extras["test"] + extras["bench"]:
        line = next(line for line in text.splitlines() if f'"{requirement}"' in line)
        assert "#" in line or requirement.startswith("pytest>"), f"{requirement} has no reason"


def test_constraints_pin_every_dependency_without_urls() -> None:
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line) for line in pins)
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    members = project["dependencies"] + [item for extra in project["optional-dependencies"].values() for item in extra]
    names = {re.match(r"[A-Za-z0-9._-]+", item).group().lower().replace("_", "-") for item in members}  # type: ignore[union-attr]
    assert names - {"rarestream"} <= pinned


@pytest.mark.parametrize("package", [rarestream, learners, service], ids=lambda item: item.__name__)
def test_public_names_exist_and_modules_state_their_purpose(package: ModuleType) -> None:
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        assert module.__doc__, f"{info.name} does not say what it is for"
        for name in getattr(module, "__all__", []):
            exists = hasattr(module, name) or importlib.util.find_spec(f"{info.name}.{name}") is not None
            assert exists, f"{info.name}.{name} does not exist"


def test_the_library_does_not_import_the_service() -> None:
    for source in (ROOT / "learners").rglob("*.py"):
        assert not re.search(r"^\s*(from|import) (service|fastapi|asyncio|httpx|redis)\b", source.read_text(), re.M)
