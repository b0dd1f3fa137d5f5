"""Every documented line that installs rarestream does, in a clone and an environment of its own."""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
from pathlib import Path

import httpx
import pytest

from tests.docs.consoles import Console, kill_group
from tests.docs.documents import DOCUMENTS, ROOT, block, inline, read
from tests.docs.registry import skip_without_registry


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the repository without build output."""
    folder = tmp_path_factory.mktemp("clone") / "rarestream"
    left = shutil.ignore_patterns(".git", "build", "*.egg-info", "__pycache__", ".*_cache", ".venv", "*.db*")
    shutil.copytree(ROOT, folder, ignore=left)
    return folder


def test_every_other_pip_install_line_works(tmp_path: Path, clone: Path) -> None:
    """Without the dependencies, which are here already: from the clone, with the extras that it names."""
    _, editable = block("CONTRIBUTING.md", "python3 -m venv .venv").text.strip().splitlines()
    lines = {item for document in DOCUMENTS for item in inline(document) if item.startswith("pip install ")} | {
        editable
    }
    assert len(lines) >= 5
    console = Console(tmp_path, PIP_NO_DEPS=1, PIP_DISABLE_PIP_VERSION_CHECK=1, PYTHONPATH="")
    into = f"cd {clone}; . {tmp_path}/venv/bin/activate"
    console.run(f"{sys.executable} -m venv {tmp_path}/venv")
    for line in sorted(lines):
        try:
            completed = console.run(f"{into} && {line}")
        except RuntimeError as error:
            skip_without_registry(str(error), "what builds the package")
            raise
        assert "Successfully installed" in completed.stdout, line
        assert "not provide" not in completed.stdout + completed.stderr, line


def test_the_package_is_installed_and_the_demo_starts(tmp_path: Path, clone: Path) -> None:
    """In a virtual environment, as the text has it, which finds the dependencies where they are already."""
    (install,) = [block("README.md", "pip install . && rarestream demo").text.strip()]
    (tested,) = [block("README.md", "pip install '.[test]' && pytest").text.strip()]
    (virtual,) = set(re.findall(r"`(python3 -m venv [^`]*)`", " ".join(read("README.md").split())))
    console = Console(
        tmp_path, PIP_NO_DEPS=1, PIP_DISABLE_PIP_VERSION_CHECK=1, PYTHONPATH="", PYTEST_ADDOPTS="--collect-only -q"
    )
    into = f"cd {clone}; {virtual.replace('python3', sys.executable)}"
    console.run(into)
    (site,) = clone.glob(".venv/lib/python*/site-packages")
    (site / "there.pth").write_text(sysconfig.get_path("purelib"))
    try:
        completed = console.run(f"{into} && {tested}")
    except RuntimeError as error:
        skip_without_registry(str(error), "what builds the package")
        raise
    assert "not provide" not in completed.stdout + completed.stderr
    assert re.search(r"^\d+(/\d+)? tests collected", completed.stdout, re.MULTILINE)
    installed = list(site.glob("rarestream-*.dist-info"))
    assert len(installed) == 1
    with console.start(f"{into} && {install}") as demo:
        assert demo.stdout is not None
        printed = ""
        while "dashboard" not in printed:
            printed = demo.stdout.readline()
            assert printed, console.errors()
        url = printed.split()[1]
        assert httpx.get(f"{url}v1/health/live", timeout=300, trust_env=False).status_code == 200
        kill_group(demo)
    assert (clone / "rarestream-demo.db").exists()
