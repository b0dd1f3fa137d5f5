"""The command line: its output, its exit statuses, and its imports."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from learners import algorithms
from learners.decisions.threshold import Threshold
from learners.features.scaling import Scaling
from learners.numerics.jit import cache_directory
from learners.settings import Parameters
from rarestream import __version__
from service.cli.main import app
from service.server.listen import CannotListen, listen, mask_passwords, process_age
from tests.harness.process import Commands, Process
from tests.service.cli.conftest import run

pytestmark = pytest.mark.integration


def config(server: Process, name: str) -> dict[str, Any]:
    document = httpx.get(f"{server.url}/v1/learners/{name}", trust_env=False, timeout=300).raise_for_status().json()
    result: dict[str, Any] = document["config"]
    return result


def served_threshold(server: Process, name: str) -> float | None:
    document = httpx.get(f"{server.url}/v1/learners/{name}", trust_env=False, timeout=300).raise_for_status().json()
    result: float | None = document["threshold"]
    return result


# create


def test_create_a_table_learner(server: Process) -> None:
    options = [
        *("create", "table", "--algorithm", "cbr", "--features", "table", "--set", "features.extra=ignore"),
        *("--field", "amount:numeric:log", "--field", "age:numeric"),
        *("--field", "country:categorical:8", "--field", "channel:categorical"),
        *("--param", "C=0.125", "--param", "buffer=reservoir", "--window", 500, "--seed", 3),
        *("--scaling", "maxabs", "--set", "calibration.kind=platt", "--threshold", "f1"),
    ]
    values = {line.split()[0]: line.split()[1:] for line in run(server, *options).stdout.splitlines()}
    assert values["algorithm"] == ["cbr", "C=0.125", "eta=0.7", "capacity=10", "buffer=reservoir"]
    assert {"amount", "age", "country", "channel"} <= set(values["features"])
    assert values["threshold"] == ["f1"]
    assert values["position"][0] == "1"
    settings = config(server, "table")
    assert settings["algorithm"] == "cbr"
    assert (settings["params"]["C"], settings["params"]["buffer"]) == (0.125, "reservoir")
    assert settings["features"] == {
        "kind": "table",
        "fields": [
            {"name": "amount", "kind": "numeric", "log": True, "categories": 16},
            {"name": "age", "kind": "numeric", "log": False, "categories": 16},
            {"name": "country", "kind": "categorical", "log": False, "categories": 8},
            {"name": "channel", "kind": "categorical", "log": False, "categories": 16},
        ],
        "extra": "ignore",
    }
    kinds = (settings["scaling"]["kind"], settings["calibration"]["kind"], settings["threshold"]["objective"])
    assert kinds == ("maxabs", "platt", "f1")
    assert (settings["window"], settings["seed"]) == (500, 3)
    assert run(server, *options).stdout.startswith("table ")
    assert "error: " in run(server, *options[:-2], "--threshold", "fixed", status=5).stderr


def test_create_a_named_learner(server: Process) -> None:
    options = [
        "--set",
        "features.bits=12",
        "--text",
        "body",
        "--text",
        "title",
        "--categorical",
        "customer",
        "--log",
        "amount",
    ]
    run(server, "create", "named", "--algorithm", "cbr-diag", "--features", "named", *options)
    assert config(server, "named")["features"] == {
        "kind": "named",
        "bits": 12,
        "text": ["body", "title"],
        "categorical": ["customer"],
        "log": ["amount"],
        "words": "normalised",
    }


def test_create_from_a_file(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "learner.json"
    path.write_text(json.dumps({"algorithm": "fofo", "features": {"kind": "dense", "dim": 3}, "window": 7}))
    run(server, "create", "from-file", "--config", path, "--window", 9)
    settings = config(server, "from-file")
    assert (settings["algorithm"], settings["features"]["dim"], settings["window"]) == ("fofo", 3, 9)
    path.write_text("[")
    assert str(path) in run(server, "create", "x", "--config", path, status=2).stderr
    path.write_text("[]")
    assert str(path) in run(server, "create", "x", "--config", path, status=2).stderr


def test_create_a_learner_with_periodic_fits(server: Process) -> None:
    fits = ["--set", "refit_every=700", "--set", "refit_window=900"]
    space = ["--set", "embedding.kind=fourier", "--set", "embedding.components=12"]
    run(server, "create", "fitted", "--algorithm", "nbauc", "--features", "dense", "--dim", 3, *fits, *space)
    settings = config(server, "fitted")
    assert (settings["refit_every"], settings["refit_window"]) == (700, 900)
    assert (settings["embedding"]["kind"], settings["embedding"]["components"]) == ("fourier", 12)
    space = ["--set", "embedding.components=12", "--set", "embedding.warmup=30", "--set", "embedding.width=0.5"]
    run(server, "create", "usual", "--algorithm", "nsauc", "--features", "dense", "--dim", 3, *space)
    assert config(server, "usual")["embedding"] == {"kind": "nystroem", "components": 12, "warmup": 30, "width": 0.5}


def test_a_refusal_by_the_service_is_readable(server: Process) -> None:
    options = ["--algorithm", "cbr", "--features", "dense", "--dim", 0, "--param", "C=-1", "--param", "eta=high"]
    lines = run(server, "create", "wrong", *options, status=5).stderr.splitlines()
    assert lines[0].startswith("error: ")
    assert [line.split(":")[0] for line in lines[1:]] == ["  --dim", "  --param C", "  --param eta"]


def test_a_refused_embedding_is_readable(server: Process) -> None:
    space = [
        "--set",
        "embedding.kind=fourier",
        "--set",
        "embedding.components=0",
        "--set",
        "embedding.warmup=1",
        "--set",
        "embedding.width=-1",
    ]
    options = ["--algorithm", "loam-ada", "--features", "dense", "--dim", 3, *space]
    lines = run(server, "create", "wrong", *options, status=5).stderr.splitlines()
    for line, setting, value in zip(lines[1:], ("components", "warmup", "width"), (0, 1, -1), strict=True):
        assert re.match(rf"  --set embedding\.{setting}: .* {value};", line)


def test_a_parameter_of_another_section_gets_a_hint(server: Process) -> None:
    options = ["--algorithm", "nsauc", "--features", "dense", "--dim", 3, "--param", "warmup=30", "--param", "C=-1"]
    lines = run(server, "create", "wrong", *options, status=5).stderr.splitlines()
    assert lines[1].startswith("  --param warmup: ")
    assert "embedding.warmup=30" in lines[-1]


@pytest.mark.parametrize(
    ("command", "option", "kind"),
    [
        ("create", "--scaling", Scaling),
        ("create", "--threshold", Threshold),
        ("threshold", "objective", Threshold),
    ],
)
def test_the_help_lists_every_choice_of_a_section(command: str, option: str, kind: type[Parameters]) -> None:
    """The help lists them by hand, because loading the library takes too long."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    parameter = next(param for param in commands[command].params if option in param.opts)
    choices = kind.schema()["properties"]["objective" if kind is Threshold else "kind"]["enum"]
    assert set(re.findall(r"[a-z0-9-]+", parameter.help)) >= set(choices)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--log", "a", "--set", "features.bits=4"], "--log;"),
        (["--field", "a:numeric"], "--field;"),
    ],
)
def test_feature_options_without_a_feature_kind_are_refused(
    server: Process, options: list[object], message: str
) -> None:
    text = run(server, "create", "x", "--algorithm", "cbr", *options, status=2).stderr
    assert "--features" in text
    assert message in text


def test_dim_alone_means_dense_features(server: Process, tmp_path: Path) -> None:
    """`--dim` alone means dense features, unless a file says otherwise."""
    document = json.loads(run(server, "create", "by-dim", "--algorithm", "cbr", "--dim", 4, "--json").stdout)
    assert document["config"]["features"] == {"kind": "dense", "dim": 4}
    config = tmp_path / "config.json"
    config.write_text('{"algorithm": "cbr"}')
    run(server, "create", "by-dim-and-file", "--config", config, "--dim", 4)
    config.write_text('{"algorithm": "cbr-diag", "features": {"kind": "sparse", "dim": 9}}')
    error = run(server, "create", "x", "--config", config, "--dim", 4, status=2).stderr
    assert "--dim;" in error


@pytest.mark.parametrize(
    "options",
    [
        ["--param", "C"],
        ["--param", "=1"],
        ["--field", "a"],
        ["--field", "a:number"],
        ["--window", "wide"],
        ["--set", "seed"],
        ["--label-ttl", "-1d"],
    ],
)
def test_unreadable_options_are_refused(server: Process, options: list[str]) -> None:
    assert options[0] in run(server, "create", "x", *options, status=2).stderr


def test_a_misspelled_name_gets_a_suggestion(server: Process, tmp_path: Path) -> None:
    options = ["--features", "named", "--param", "capcity=3", "--threshold", "budjet"]
    error = run(server, "create", "x", "--algorithm", "cbr-diag", *options, status=5).stderr.splitlines()
    assert {line.split()[-1] for line in error[-2:]} == {"budget?", "capacity?"}
    error = run(server, "create", "x", "--algorithm", "cbr-dig", "--features", "named", status=5).stderr.splitlines()
    assert error[-1].endswith("cbr-diag?")
    path = tmp_path / "misspelt.json"
    path.write_text('{"algoritm": "cbr-diag", "features": {"kind": "named"}}')
    assert "/algorithm?" in run(server, "create", "x", "--config", path, status=5).stderr


def test_an_unreachable_service_is_reported() -> None:
    listener = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    result = CliRunner().invoke(app, ["create", "x", "--algorithm", "cbr", "--url", url])
    assert result.exit_code == 3
    assert url in result.stderr


# threshold


def test_create_with_threshold_and_late_labels(server: Process) -> None:
    options = [
        *("create", "budget", "--algorithm", "cbr-diag", "--features", "named", "--set", "calibration.kind=isotonic"),
        *("--threshold", "budget", "--alerts", 100, "--set", "threshold.unit_seconds=28800"),
        *("--label-ttl", "90d", "--set", "late.unlabelled=negative", "--set", "window_seconds=86400"),
    ]
    run(server, *options)
    settings = config(server, "budget")
    threshold = settings["threshold"]
    assert [threshold[name] for name in ("objective", "alerts", "unit_seconds", "rate")] == [
        "budget",
        100,
        28_800,
        None,
    ]
    assert (settings["late"]["label_ttl"], settings["late"]["unlabelled"]) == (7_776_000, "negative")
    assert (settings["window_seconds"], settings["calibration"]["kind"]) == (86_400, "isotonic")


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["cost", "--set", "threshold.false_positive=2", "--set", "threshold.false_negative=30",
          "--set", "threshold.field=amount"],
         {"false_positive": 2, "false_negative": 30, "field": "amount"}),
        (["fbeta", "--set", "threshold.beta=0.5"], {"beta": 0.5}),
        (["recall", "--target", 0.9], {"target": 0.9}),
        (["fixed", "--set", "threshold.value=0.25"], {"value": 0.25}),
        (["budget", "--set", "threshold.rate=0.01"], {"rate": 0.01, "alerts": None}),
    ],
)  # fmt: skip
def test_a_threshold_can_be_changed(server: Process, options: list[object], settings: dict[str, Any]) -> None:
    name = f"changes-{options[0]}"
    named = ["--algorithm", "loam-ada", "--features", "named"]
    run(server, "create", name, *named)
    run(server, "update", name, *(json.dumps({"features": {"amount": y}, "label": y}) for y in (0, 1)))
    before = served_threshold(server, name)
    result = run(server, "threshold", name, *options)
    lines, moved = result.stdout.splitlines()
    configuration = config(server, name)["threshold"]
    assert configuration["objective"] == options[0]
    expected_lines = [f"{setting}={value:g}" for setting, value in settings.items() if isinstance(value, float)]
    assert re.match(rf"{name} .*\b{options[0]}\b", lines)
    assert all(setting in lines for setting in expected_lines)
    values = [f"{before:.4g}", f"{served_threshold(server, name):.4g}"]
    assert re.findall(r"\d[\d.e-]*|amount", moved) == [*values, *(["amount", "1"] if options[0] == "cost" else [])]
    assert {key: configuration[key] for key in settings} == settings
    run(server, "create", f"{name}-new", *named, "--threshold", *options)
    assert config(server, f"{name}-new")["threshold"] == configuration


def test_an_unready_learner_shows_no_threshold(server: Process) -> None:
    run(server, "create", "none-yet", "--algorithm", "cbr-diag", "--dim", 1)
    run(server, "update", "none-yet", '{"x": [1], "label": 1}')
    moved = run(server, "threshold", "none-yet", "recall", "--target", 0.9).stdout.splitlines()[1]
    assert "0." not in moved
    assert re.search(r"threshold +none\b", run(server, "show", "none-yet").stdout)
    moved = run(server, "threshold", "none-yet", "fixed", "--set", "threshold.value=0.25").stdout.splitlines()[1]
    assert "0.25" in moved
    assert re.search(r"threshold .*\b0\.2500\b", run(server, "show", "none-yet").stdout)


def test_a_budget_can_change_its_kind(server: Process) -> None:
    run(server, "create", "kinds", "--algorithm", "loam-ada", "--features", "dense", "--dim", 2)
    for options, expected in [
        (["--alerts", 5, "--set", "threshold.unit_seconds=7200"], [5, 7200, None]),
        (["--alerts", 6], [6, 7200, None]),  # what is not given stays
        (["--set", "threshold.rate=0.01"], [None, 86_400, 0.01]),
        (["--alerts", 7], [7, 86_400, None]),
    ]:
        run(server, "threshold", "kinds", "budget", *options)
        settings = config(server, "kinds")["threshold"]
        assert [settings[name] for name in ("alerts", "unit_seconds", "rate")] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["recall"], "--target: "),
        (["f1", "--alerts", 5], "--alerts: "),
        (["budget", "--alerts", 5, "--set", "threshold.rate=0.1"], "--alerts: "),
        (
            ["budget", "--set", "threshold.rate=0.1", "--set", "threshold.unit_seconds=3600"],
            "--set threshold.unit_seconds: ",
        ),
        (["nonsense"], "OBJECTIVE: is 'nonsense'; "),
    ],
)
def test_a_refused_threshold_is_readable(server: Process, options: list[object], message: str) -> None:
    run(server, "create", "refuses", "--algorithm", "loam-ada", "--features", "dense", "--dim", 2)
    text = run(server, "threshold", "refuses", *options, status=5).stderr
    assert text.startswith("error: ")
    assert f"  {message}" in text
    dense = ["--algorithm", "loam-ada", "--features", "dense", "--dim", 2]
    text = run(server, "create", "wrong", *dense, "--threshold", *options, status=5).stderr
    assert f"  {message.replace('OBJECTIVE', '--threshold')}" in text


def test_changing_the_threshold_of_a_missing_learner_fails(server: Process) -> None:
    assert "nobody" in run(server, "threshold", "nobody", "f1", status=4).stderr


# replay


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    path = tmp_path / "rows.npz"
    rng = np.random.default_rng(0)
    y = rng.random(2500) < 0.2
    np.savez(path, X=rng.normal(size=(2500, 3)) + y[:, None], y=y.astype(int))
    return path


def test_replay_ends_with_the_metrics(server: Process, arrays: Path) -> None:
    run(server, "create", "figures", "--algorithm", "loam-ada", "--features", "dense", "--dim", 3, "--window", 1000)
    result = run(server, "replay", arrays, "--learner", "figures", "--limit", 1500)
    assert "0 to 1,500: 1,500 " in result.stderr
    assert "1,500 events" in result.stdout
    for word in ("positives", "alerts", "AUC", "\N{PLUS-MINUS SIGN}", "average precision", "F1", "precision", "recall"):
        assert word in result.stdout
    for word in ("alert rate", "log loss", "calibration error", "threshold", "events/s"):
        assert word in result.stdout
    assert "label" not in result.stdout  # none came late
    assert re.search(r"95 % interval\W+0\.\d{4} to 0\.\d{4}\W+0\.\d{4} to 0\.\d{4} ", result.stdout)
    exact = json.loads(run(server, "show", "figures", "--json").stdout)["metrics"]["since_start"]
    for name, key in (("AUC", "auc"), ("average precision", "average_precision")):
        bound = re.search(rf"{name} .* 0\.\d{{4}} \N{{PLUS-MINUS SIGN}} (0\.\d{{4}}) ", result.stdout)
        assert bound is not None
        assert exact[f"{key}_error"] <= float(bound[1]) < exact[f"{key}_error"] + 1.01e-4
    auc = float(re.search(r"AUC\W+(0\.\d+)", result.stdout)[1])  # type: ignore[index]
    assert 0.8 < auc < 1.0


def test_replay_prints_json(server: Process, arrays: Path) -> None:
    run(server, "create", "json", "--algorithm", "loam-ada", "--features", "dense", "--dim", 3)
    run(server, "replay", arrays, "--learner", "json", "--limit", 1200)
    result = run(server, "replay", arrays, "--learner", "json", "--json")
    document = json.loads(result.stdout)
    assert {key: document[key] for key in ("start", "next", "applied", "duplicate", "complete")} == {
        "start": 1200,
        "next": 2500,
        "applied": 1300,
        "duplicate": 0,
        "complete": True,
    }
    assert (document["learner"], document["file"]) == ("json", str(arrays))
    assert document["events_per_second"] > 0
    assert document["metrics"]["events"] == 2500


def test_rows_read_with_other_options_are_another_source(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b,label\n" + "1,2,0\n" * 20)
    run(server, "create", "otherwise", "--algorithm", "cbr-diag", "--features", "named")
    run(server, "replay", path, "--learner", "otherwise")
    result = run(server, "replay", path, "--learner", "otherwise", "--drop", "b", "--all")
    assert "20 rows" in result.stderr
    assert "20 learnt" in result.stderr


def test_replay_to_a_missing_learner_fails(server: Process, arrays: Path) -> None:
    text = run(server, "replay", arrays, "--learner", "nobody", status=4).stderr
    assert "rarestream create nobody " in text
    assert "--dim 3" in text


def test_replay_to_a_url_without_a_service_fails(server: Process, arrays: Path) -> None:
    url = f"{server.url}/path"
    text = run(server, "replay", arrays, "--learner", "nobody", "--url", url, status=3).stderr
    assert f" {url}/v1/" in text
    assert "create" not in text


def test_standard_input_is_replayed(server: Process) -> None:
    run(server, "create", "piped", "--algorithm", "cbr-diag", "--features", "named")
    rows = "x,label\n" + "1,0\n2,1\n" * 50
    command = ["replay", "-", "--learner", "piped", "--json"]
    result = CliRunner().invoke(app, command, env={"RARESTREAM_URL": server.url}, input=rows)
    assert result.exit_code == 0, result.output
    outcome = json.loads(result.stdout)
    assert (outcome["applied"], outcome["file"]) == (100, "-")


def test_a_device_is_refused(server: Process) -> None:
    assert "device" in run(server, "replay", os.devnull, "--learner", "piped", status=2).stderr


def test_replay_of_mismatched_rows_is_refused(server: Process, arrays: Path) -> None:
    run(server, "create", "wider", "--algorithm", "loam-ada", "--features", "dense", "--dim", 8)
    text = run(server, "replay", arrays, "--learner", "wider", status=2).stderr
    assert "3 columns" in text
    assert "8 columns" in text


def test_replay_of_a_missing_file_fails(server: Process, tmp_path: Path) -> None:
    run(server, "create", "fileless", "--algorithm", "cbr-diag", "--features", "named")
    path = tmp_path / "none.csv"
    assert str(path) in run(server, "replay", path, "--learner", "fileless", status=2).stderr


# serve


def test_serve_announces_when_and_where_it_is_ready(start: Commands, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'here.db'}"
    process = start(
        "serve", "--port", 0, "--store", store, "--log-level", "warning", RARESTREAM_STORE="sqlite:///elsewhere.db"
    )
    assert process.stdout is not None
    match = re.search(
        r" (\d+\.\d) s: (http://127\.0\.0\.1:\d+) .* \2/docs, .*?(\w+:///.*)\n", process.stdout.readline()
    )
    assert match is not None
    assert match[3] == store
    assert httpx.get(f"{match[2]}/v1/health/ready", trust_env=False, timeout=300).status_code == 200
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.integration
def test_serve_warns_of_unknown_variables(start: Commands, tmp_path: Path) -> None:
    unknown = {"RARESTREAM_STOER": "sqlite:///a.db", "RARESTREAM_PROT": "0"}
    variables = {
        "RARESTREAM_URL": "http://127.0.0.1:1",
        "RARESTREAM_KEY": "k",
        "RARESTREAM_LOG_LEVEL": "warning",
        "rarestream_max_learners": "7",
    }
    process = start("serve", "--port", 0, "--store", f"sqlite:///{tmp_path / 'a.db'}", **unknown, **variables)
    assert process.stdout is not None
    assert re.search(r"http://127\.0\.0\.1:\d+ .*\ba\.db\b", process.stdout.readline())
    process.send_signal(signal.SIGINT)
    lines = process.communicate()[1].splitlines()
    for line, names in zip(lines, (("PROT", "PORT"), ("STOER", "STORE")), strict=True):
        assert re.findall("RARESTREAM_([A-Z]+)", line) == list(names)


@pytest.mark.integration
def test_serve_reports_an_occupied_port(start: Commands, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = start("serve", "--port", port, "--store", f"sqlite:///{tmp_path / 'a.db'}")
        _, err = process.communicate()
    assert process.returncode == 1
    assert re.fullmatch(rf"error: .* 127\.0\.0\.1:{port}: .*--port\n", err)


@pytest.mark.parametrize(
    ("store", "message", "status"),
    [
        ("sqlite:///nowhere/at/all.db", "nowhere/at ", 2),
        ("mysql://user:secret@host", "sqlite:///", 2),
    ],
)
@pytest.mark.integration
def test_serve_with_an_unusable_store_fails(start: Commands, store: str, message: str, status: int) -> None:
    process = start("serve", "--port", 0, "--store", store)
    _, err = process.communicate()
    assert process.returncode == status
    assert err.startswith("error: ")
    assert message in err
    assert "secret" not in err


@pytest.mark.integration
def test_invalid_settings_are_reported(start: Commands) -> None:
    process = start("serve", RARESTREAM_PORT="high")
    _, err = process.communicate()
    assert process.returncode == 2
    assert "'high';" in err


def test_passwords_are_masked() -> None:
    assert mask_passwords("redis://user:secret@host:6379/0") == "redis://user:***@host:6379/0"
    assert mask_passwords("redis://host:6379/0") == "redis://host:6379/0"
    assert mask_passwords("redis://host/0?db=1&password=secret&p=2") == "redis://host/0?db=1&password=***&p=2"
    assert mask_passwords("redis://host?pass%77ord=secret") == "redis://host?pass%77ord=***"
    assert mask_passwords("rediss://:a@host?ssl_password=secret") == "rediss://:***@host?ssl_password=***"
    assert mask_passwords("sqlite:///here.db") == "sqlite:///here.db"


def test_foreign_addresses_cannot_be_bound() -> None:
    with pytest.raises(CannotListen, match=r"192\.0\.2\.1:0"):
        listen("192.0.2.1", 0)


def test_process_age_is_positive() -> None:
    assert 0 < process_age() < 86_400


# warm


@pytest.mark.campaign
def test_warm_compiles_the_baselines_if_it_is_asked_to() -> None:
    result = CliRunner().invoke(app, ["warm", "--all"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines == [*(f"compiled {name}" for name in algorithms()), lines[-1]]
    assert str(cache_directory()) in lines[-1]


# What it is


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"rarestream {__version__}\n")


def test_the_help_describes_the_program() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert "--version" in result.stdout


# What is imported


@pytest.mark.integration
def test_help_is_fast() -> None:
    """`--help` must not wait for the compiler, the web framework or the charts."""
    heavy = "{'numba', 'numpy', 'fastapi', 'plotly', 'httpx', 'msgspec', 'uvicorn', 'redis'}"
    code = f"""
import sys
import typer
from typer.testing import CliRunner
from service.cli.main import app
for command in typer.main.get_command(app).commands:
    if command in ("serve", "demo", "warm"):
        continue
    result = CliRunner().invoke(app, [command, "--help"])
    calls = command not in ("keys", "context")  # which change a file
    assert result.exit_code == 0 and calls == ("--url" in result.output), result.output
print(sorted({heavy} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_a_command_that_calls_a_service_imports_no_learners() -> None:
    code = """
import sys
from typer.testing import CliRunner
from service.cli.main import app
result = CliRunner().invoke(app, ["list", "--url", "http://127.0.0.1:1"])
assert result.exit_code == 3, result.output
print(sorted({"learners", "numba", "numpy", "scipy", "service.datasets"} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
