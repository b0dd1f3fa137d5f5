"""What the documents say is there, and what is there is in the documents."""

from __future__ import annotations

import importlib
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

import learners
import service
from learners import algorithms
from service.settings import Settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_in_the_readme_with_its_default(name):
    row = re.search(rf"\| `RARESTREAM_{name.upper()}` \| `([^`]*)` \| (.*) \|", README)
    assert row, f"{name} is not documented"
    shown, meaning = row.groups()
    default = Settings.model_fields[name].default
    assert shown.replace(",", "") == (str(default).lower() if isinstance(default, bool) else str(default))
    assert meaning == Settings.model_fields[name].description


def test_no_setting_in_the_readme_is_gone():
    named = {name.lower() for name in re.findall(r"`RARESTREAM_([A-Z_]+)`", README)}
    assert named == set(Settings.model_fields)


@pytest.mark.parametrize("name", algorithms())
def test_every_algorithm_is_in_the_readme(name):
    assert f"| `{name}` |" in README


def test_the_python_in_the_readme_runs_as_printed(capsys):
    snippets = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), {})
    assert 0.8 < float(capsys.readouterr().out) <= 1


def test_every_dependency_has_its_reason_beside_it():
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    for requirement in project["dependencies"] + extras["test"] + extras["bench"]:
        line = next(line for line in text.splitlines() if f'"{requirement}"' in line)
        assert "#" in line or requirement.startswith("pytest>"), f"{requirement} has no reason"


def test_constraints_pin_every_dependency_without_addresses():
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line) for line in pins)
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [one for extra in project["optional-dependencies"].values() for one in extra]
    names = {re.match(r"[A-Za-z0-9._-]+", one).group().lower().replace("_", "-") for one in wanted}  # type: ignore[union-attr]
    assert names - {"rarestream"} <= pinned


@pytest.mark.parametrize("package", [learners, service], ids=lambda one: one.__name__)
def test_public_names_exist_and_modules_say_what_they_are_for(package):
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if info.name == "service.__main__":
            continue
        module = importlib.import_module(info.name)
        assert module.__doc__, f"{info.name} does not say what it is for"
        for name in getattr(module, "__all__", []):
            assert hasattr(module, name), f"{info.name}.{name} does not exist"


def test_the_library_imports_nothing_of_the_service():
    for source in (ROOT / "learners").glob("*.py"):
        assert not re.search(r"^\s*(from|import) (service|fastapi|asyncio|httpx|redis)\b", source.read_text(), re.M)
