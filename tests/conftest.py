"""What holds for all tests, and which of them are the plain tier, `integration` or campaigns.

- `pytest` runs the plain tier in minutes.
- `pytest -m "integration or not integration"` adds the tests marked `integration`: programs, browsers, brokers, fleets.
- `python -m tests.campaigns` runs the folder `campaigns`: kills, chaos, fuzzing, many nodes, images.

A file that is named on the command line runs whole.
"""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ["tests.harness.fixtures"]

PLAIN = "not integration"  # the `-m` of pyproject.toml
HERE = Path(__file__).parent
# Folders and files of which every test is `integration`: they start processes, or repeat what smaller tests hold.
INTEGRATION = (
    "benchmarks",
    "compatibility/test_stores.py",
    "dashboard",
    "deploy",
    "docs/test_console.py",
    "docs/test_deploy.py",
    "docs/test_examples.py",
    "docs/test_kubernetes_commands.py",
    "docs/test_requests.py",
    "docs/test_sessions.py",
    "learners/test_float32.py",
    "learners/test_guard_pages.py",
    "rarestream/test_stream_session.py",
    "service/api/test_forwarding.py",
    "service/api/test_ndjson_process.py",
    "service/api/test_websocket_process.py",
    "service/cli/test_commands.py",
    "service/cli/test_compare.py",
    "service/cli/test_demo.py",
    "service/cli/test_exit_statuses.py",
    "service/cli/test_json_output.py",
    "service/cli/test_late_replay.py",
    "service/cli/test_list.py",
    "service/cli/test_replay.py",
    "service/cli/test_replay_ordinal.py",
    "service/cli/test_replay_wait.py",
    "service/cli/test_unreachable.py",
    "service/connectors/test_kafka.py",
    "service/connectors/test_redis_streams.py",
    "service/connectors/test_redis_streams_servers.py",
    "service/engine/test_arbitrary_requests.py",
    "service/engine/test_placement.py",
    "service/server/test_hanging_workers.py",
    "service/server/test_security.py",
    "service/server/test_shutdown.py",
    "service/server/test_supervisor.py",
    "service/storage/test_redis_cluster.py",
    "service/storage/test_redis_durability.py",
    "service/storage/test_redis_failover.py",
    "service/storage/test_redis_tls.py",
    "service/storage/test_store_model.py",
)

# No test depends on chance, or on how busy the machine is.
hypothesis.settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")

# A shell starts background jobs with Ctrl-C ignored. Processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Run named files whole, and allow plain-Python kernels to wrap around 2^64 as machine code does."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    if named and "-m" not in config.invocation_params.args and not hasattr(config, "workerinput"):
        config.option.markexpr = ""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        for operation in ("add", "multiply"):
            config.addinivalue_line(
                "filterwarnings", f"ignore:overflow encountered in scalar {operation}:RuntimeWarning"
            )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what the plain tier leaves out."""
    return True if config.option.markexpr == PLAIN and _integration(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `INTEGRATION`, and repetitions with other stores than the one in memory.

    The stores' own tests, and the engine's recovery, have every kind of store in the plain tier.
    """
    for item in items:
        kind = (
            item.callspec.params.get("kind") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ""
        )
        if _integration(item.path) or (kind in ("sqlite", "redis") and not _every_store(item.path)):
            item.add_marker(pytest.mark.integration)


@functools.cache
def _every_store(path: Path) -> bool:
    return str(path.relative_to(HERE)).startswith(("service/storage", "service/engine/test_engine", "service/server"))


@functools.cache
def _integration(path: Path) -> bool:
    return path.is_relative_to(HERE) and str(path.relative_to(HERE)).startswith(INTEGRATION)
