"""Operators see what keeps kernels from being compiled, and the service goes on meanwhile."""

from __future__ import annotations

import pytest
from numba.core import config as numba_config

from learners.numerics import Rehearsal, background_compiler, compile_in_background, kernel_trouble
from service.settings import Settings
from tests.harness.apps import application
from tests.harness.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(numba_config.DISABLE_JIT), reason="kernels run as plain Python"),
]
CONFIG = {"algorithm": "fofo", "features": {"kind": "dense", "dim": 2}}


async def test_health_and_metrics_say_why_kernels_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts the process that compiles kernels, which fails here at its first work."""
    monkeypatch.setattr(background_compiler, "_kernels", {})
    async with application(Settings(store="memory:")) as (_, http):
        assert "rarestream_kernels_fault 0.0" in (await http.get("/metrics")).text
        with compile_in_background([Rehearsal("no_such_module", "rehearse", ("dense",))]):
            eventually(kernel_trouble)
            health = (await http.get("/v1/health/ready")).json()
            assert health["status"] == "degraded"
            reason = "the rehearsal no_such_module.rehearse(dense) failed: ModuleNotFoundError: "
            assert reason in health["detail"]
            metrics = (await http.get("/metrics")).text
            assert "rarestream_kernels_fault 1.0" in metrics
            assert 'rarestream_kernels{state="failed"} 0.0' in metrics
            assert (await http.put("/v1/learners/first", json=CONFIG)).status_code == 201
            update = {"events": [{"x": [1.0, 2.0], "label": 1}]}
            assert (await http.post("/v1/learners/first/update", json=update)).status_code == 200
        assert (await http.get("/v1/health/ready")).json()["status"] == "ok"
