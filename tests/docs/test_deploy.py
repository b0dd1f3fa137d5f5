"""The documents' commands and files for systemd and containers, and how they are installed.

Programs that are here carry them out, or check them; what a command names is held against the files it is for.
"""

from __future__ import annotations

import argparse
import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rarestream import __version__
from service.auth.keys import load
from service.settings import Settings
from tests.deploy.image import instructions
from tests.docs.command_lines import parse
from tests.docs.consoles import Console
from tests.docs.documents import ROOT, block, commands, instead

pytestmark = pytest.mark.integration

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
IMAGE = f"rarestream:{__version__}"


def known_to(program: str, words: list[str]) -> None:
    """Check that the program, if it is installed, accepts all options when `--help` follows them."""
    if shutil.which(program):
        completed = subprocess.run([program, *words], check=False, capture_output=True, text=True)
        assert completed.returncode == 0, completed.stderr


# systemd


@pytest.mark.campaign
def test_the_systemd_unit_runs(tmp_path: Path) -> None:
    text = block("docs/how-to/run.md", "[Service]").text
    unit = configparser.RawConfigParser()
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    service = dict(unit["Service"])
    program, *words = shlex.split(service["ExecStart"])
    assert Path(program).name == "rarestream"
    parse(words)
    assert service["ExecReload"].split()[1:] == ["-HUP", "$MAINPID"]  # as the table of signals has it
    assert service["KillMode"] == "mixed"  # SIGTERM to the first process only, which passes it on
    if shutil.which("systemd-analyze"):
        command = instead(text, {program: "/bin/true"})
        (tmp_path / "rarestream.service").write_text(command)
        check = ["systemd-analyze", "verify", str(tmp_path / "rarestream.service")]
        completed = subprocess.run(check, check=False, capture_output=True, text=True)
        # unknown settings are ignored with a message
        assert "rarestream.service" not in completed.stderr, completed.stderr
        assert completed.returncode == 0, completed.stderr


# Docker


def of_docker_run(words: list[str]) -> argparse.Namespace:
    """Parse the documented options and the image."""
    parser = argparse.ArgumentParser()
    for flag in ("--rm", "--read-only"):
        parser.add_argument(flag, action="store_true")
    for option in ("-p", "-v", "-e", "--tmpfs", "--cap-drop", "--security-opt"):
        parser.add_argument(option, action="append", default=[])
    parser.add_argument("image")
    return parser.parse_args(words)


def test_the_image_is_built_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build, first, make, second = commands(block("docs/how-to/containers.md", "$ docker build"))
    _, verb, *words = shlex.split(build)
    known_to("docker", [verb, "--help", *words])
    assert words == ["-f", "docker/Dockerfile", "-t", IMAGE, "."]
    assert (ROOT / words[1]).is_file()

    last = max(i for i, (name, _) in enumerate(instructions()) if name == "FROM")
    stage = dict(instructions()[last:])
    runs = []
    for command in (first, second):
        _, verb, *words = shlex.split(command.replace("\\\n", " "))
        known_to("docker", [verb, "--help", *words])
        runs.append(of_docker_run(words))
    for run in runs:
        assert run.image == IMAGE
        assert [port.split(":")[-1] for port in run.p] == [stage["EXPOSE"]]
        assert run.v[0].split(":") == ["rarestream", stage["WORKDIR"]]
        for pair in run.e:
            monkeypatch.setenv(*pair.split("=", 1))
            assert pair.split("=")[0].removeprefix("RARESTREAM_").lower() in Settings.model_fields
    assert Settings().insecure
    open_to_all, keyed = runs
    assert open_to_all.p[0].startswith("127.0.0.1:")  # without keys for this machine alone
    source, target, mode = keyed.v[1].split(":")
    assert (Settings().keys, mode) == (target, "ro")
    of_compose = COMPOSE["services"]["rarestream"]
    assert (keyed.read_only, keyed.cap_drop) == (of_compose["read_only"], of_compose["cap_drop"])
    assert [f"{item}:true" for item in keyed.security_opt] == of_compose["security_opt"]
    assert set(keyed.tmpfs) == set(of_compose["tmpfs"])

    Console(tmp_path).run(make)
    path = tmp_path / source.removeprefix("$PWD/")  # in full, as a name alone is a volume's
    assert [item.name for item in load(path)] == ["me"]
    assert path.stat().st_mode & 0o004  # which the user of the image needs


def test_the_compose_commands_run() -> None:
    up, logs, down = commands(block("docs/how-to/containers.md", "$ docker compose"))
    parser = argparse.ArgumentParser()
    parser.add_argument("-f", type=Path)
    verbs = parser.add_subparsers(dest="verb")
    of_up = verbs.add_parser("up")
    for option in ("--build", "--wait"):
        of_up.add_argument(option, action="store_true")
    of_logs = verbs.add_parser("logs")
    of_logs.add_argument("--follow", action="store_true")
    of_logs.add_argument("service")
    verbs.add_parser("down").add_argument("--volumes", action="store_true")
    for command in (up, logs, down):
        assert command.startswith("docker compose ")
        options = parser.parse_args(shlex.split(command)[2:])
        assert (ROOT / options.f).samefile(ROOT / "docker" / "compose.yaml")
        if options.verb == "up":
            assert COMPOSE["services"]["rarestream"]["build"]["dockerfile"]  # what --build is for
        if options.verb == "logs":
            assert options.service in COMPOSE["services"]
    assert set(COMPOSE["volumes"]) == {"log", "figures"}  # of which the text says that `down --volumes` deletes them


# How it is installed


def test_container_files_begin_with_documented_commands() -> None:
    """The commands in their opening comments are those of the documents, which are run."""
    documented = [*commands(block("docs/how-to/containers.md", "$ docker build"))]
    documented += commands(block("docs/how-to/containers.md", "$ docker compose"))
    for name in ("Dockerfile", "compose.yaml"):
        text = (ROOT / "docker" / name).read_text()
        printed = re.findall(r"^#   (docker .*)$", text, re.MULTILINE)
        assert printed, name
        assert set(printed) <= set(documented), name
