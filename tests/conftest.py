"""What holds for all tests, and which of them are the plain tier, `integration` or campaigns.

- `pytest` runs the plain tier in minutes.
- `pytest -m "integration or not integration"` adds the tests marked `integration`: programs, browsers, brokers, fleets.
- `pytest tests/smoke` runs one test of each real part; these are `integration`, too.
- `python -m tests.campaigns` runs the folder `campaigns` (kills, chaos, fuzzing, many nodes, images) and the tests that
  are marked `campaign`: they take long, and stand beside their smaller relatives.

A file that is named on the command line runs whole, but for tests marked `campaign`.
"""

from __future__ import annotations

import functools
import gc
import os
import re
import signal
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

# Set before anything imports NumPy; processes that tests start inherit it. The tests' matrices are small: on a busy
# machine the threads of BLAS and OpenMP would spin while they wait for each other, for ten times the arithmetic's time.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")

import hypothesis
import pytest
import typer.testing

STATES = tempfile.TemporaryDirectory()  # of commands, instead of the user's
os.environ["XDG_STATE_HOME"] = STATES.name

pytest_plugins = ["tests.harness.fixtures"]

PLAIN = "not integration"  # the `-m` of pyproject.toml
TESTS = Path(__file__).parent
INTEGRATION = re.compile(r"^pytestmark = .*\bintegration\b", re.MULTILINE)  # how a file says that all its tests are

# The order of files, by the start of their names; all others come last. See `pytest_collection_modifyitems`.
ORDER = (
    ("learners/test_learner.py",),  # compiles the kernels that all learners share
    ("dashboard", "deploy", "docs", "service/cli", "service/connectors"),  # files that take long
    ("service/datasets", "service/storage", "service/telemetry", "service/wire"),  # without kernels
    ("service/api/test_sse.py", "service/server"),  # wait for clocks and programs
)

# No test depends on chance, or on how busy the machine is.
hypothesis.settings.register_profile(
    "repeatable",
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")

# CliRunner builds all commands of the program anew for each call: 30 ms, and they are the same.
typer.testing._get_command = functools.cache(typer.testing._get_command)

# A shell starts background jobs with Ctrl-C ignored. Processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Run named files whole, and allow plain-Python kernels to wrap around 2^64 as machine code does."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    if hasattr(config, "workerinput"):
        config.option.markexpr = config.workerinput["markexpr"]
    elif named and "-m" not in config.invocation_params.args:
        config.option.markexpr = ""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        for operation in ("add", "multiply"):
            config.addinivalue_line(
                "filterwarnings", f"ignore:overflow encountered in scalar {operation}:RuntimeWarning"
            )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give xdist's processes the marks that this run selects."""
    node.workerinput["markexpr"] = node.config.option.markexpr


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Use three processes on two cores for the plain tier, and two per core beyond it: tests wait for programs."""
    cores = os.cpu_count() or 1
    return (3 * cores + 1) // 2 if config.option.markexpr == PLAIN else 2 * cores


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what the plain tier leaves out: it may need packages that the extra `test` lacks."""
    if config.option.markexpr != PLAIN or not collection_path.name.startswith("test_") or collection_path.is_dir():
        return None
    return True if INTEGRATION.search(collection_path.read_text()) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark repetitions with other stores than the one in memory; leave campaigns out.

    The stores' own tests, and the engine's recovery, have every kind of store in the plain tier. What else runs with
    several kinds has SQLite in `integration`, and Redis in the campaigns.

    One process begins by compiling what all learners need. The others meanwhile run what takes long, or needs none of
    it: they would only wait for the same kernels. Files that wait follow, so that no process is the last one for long.
    """
    for item in items:
        kind = (
            item.callspec.params.get("kind") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ""
        )
        repeated = kind if not _every_store(item.path) else ""
        if repeated == "redis":
            item.add_marker(pytest.mark.campaign)
        elif repeated == "sqlite":
            item.add_marker(pytest.mark.integration)
    if "campaign" not in config.option.markexpr:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("campaign")])
        items[:] = [item for item in items if not item.get_closest_marker("campaign")]
    for item in items:
        if _relative(item.path).startswith("campaigns/"):
            item.add_marker(pytest.mark.campaign)
    tests = Counter(item.path for item in items)
    ranks = {
        path: next((i for i, names in enumerate(ORDER) if _relative(path).startswith(names)), len(ORDER))
        for path in tests
    }
    items.sort(key=lambda item: (ranks[item.path], -tests[item.path], item.path))


def pytest_collection_finish() -> None:
    """Leave what is loaded by now out of garbage collections: millions of objects, of which none is garbage."""
    gc.freeze()


def _every_store(path: Path) -> bool:
    return _relative(path).startswith(("service/storage", "service/engine/test_engine", "service/server"))


@functools.cache
def _relative(path: Path) -> str:
    return str(path.relative_to(TESTS)) if path.is_relative_to(TESTS) else ""
