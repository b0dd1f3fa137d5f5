"""A test that fails once is flaky; one that fails twice, or a fourth flaky one, fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.flaky import repeat
from tests.rerun import failed_tests, rerun

# It fails at each run until a file with its name exists, which it writes itself; `always` writes none.
TESTS = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("name", {names})
def test_named(name):
    file = Path(__file__).with_name(f"{{name}}.seen")
    seen = file.exists()
    if not name.startswith("always"):
        file.touch()
    assert seen or name.startswith("good")
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # plugins that take a second to import
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist.plugin")
    return tmp_path / "cache"


def run(names: list[str], cache: Path) -> int:
    """Run tests with these names; return pytest's status."""
    Path("test_some.py").write_text(TESTS.format(names=names))
    return subprocess.run([sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}"], check=False).returncode


def test_a_test_that_passes_alone_is_reported_and_passes(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status = run(["good", "first", "second"], cache)
    assert status == 1
    assert failed_tests(cache) == ["test_some.py::test_named[first]", "test_some.py::test_named[second]"]
    assert rerun(status, Path("names"), cache) == 0
    flaky = ["test_some.py::test_named[first]", "test_some.py::test_named[second]"]
    assert [line.removeprefix("flaky: ") for line in capfd.readouterr().out.splitlines() if "flaky: " in line] == flaky
    assert Path("names").read_text().splitlines() == flaky
    assert failed_tests(cache) == []
    Path("names").write_text("a\nb\nc\n")  # of an earlier part of the same check
    assert rerun(run(["third"], cache), Path("names"), cache) == 1


def test_a_test_that_fails_twice_fails_the_run(cache: Path) -> None:
    assert rerun(run(["always", "once"], cache), Path("names"), cache) == 1
    assert failed_tests(cache) == ["test_some.py::test_named[always]"]


def test_nothing_is_run_again_after_another_end_of_pytest(cache: Path) -> None:
    assert rerun(pytest.ExitCode.INTERRUPTED, Path("names"), cache) == 1
    assert rerun(pytest.ExitCode.TESTS_FAILED, Path("names"), cache) == 1  # no test is known to have failed
    assert not Path("names").exists()


def test_failures_beside_busy_processes_are_counted(cache: Path) -> None:
    assert run(["always", "once", "good"], cache) == 1
    assert repeat(["test_some.py"], runs=2, busy=1) == {"test_some.py::test_named[always]": 2}
