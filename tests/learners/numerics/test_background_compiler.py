"""Kernels run as plain Python until another process has compiled them.

The tests start processes: the compiling one is what they are about.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from numba.core import config as numba_config

from learners.numerics import background_compiler, compile_in_background, jit, kernel_cache, waiting_kernels
from learners.numerics.background_compiler import (
    Demand,
    Rehearsal,
    kernel_counts,
    kernel_trouble,
    rehearse_here,
    wait_for_kernels,
)
from tests.harness.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(numba_config.DISABLE_JIT), reason="kernels run as plain Python"),
]
PATIENCE = 300.0  # seconds, on any machine


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Use an empty cache, and forget the kernels of this process."""
    directory = tmp_path / "rarestream" / "kernels"
    directory.mkdir(parents=True)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    kernel_cache.cache_directory.cache_clear()
    monkeypatch.setattr(background_compiler, "_kernels", {})
    yield kernel_cache.cache_directory()
    kernel_cache.cache_directory.cache_clear()


SOURCE = """
import numpy as np
from learners.numerics import kernel

@kernel
def doubled(x):
    return 2.0 * x

@kernel
def total(values):
    result = 0.0
    for value in values:
        result += doubled(value)
    return result

@kernel
def untypable(x):
    return x.no_such_attribute if x is not None else x

def rehearse(n):
    total(np.arange(float(n)))
"""


@pytest.fixture
def kernels(tmp_path, monkeypatch, cache):  # noqa: ARG001
    """Import kernels that no process has compiled."""
    (tmp_path / "fresh_kernels.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    import fresh_kernels

    yield fresh_kernels
    del sys.modules["fresh_kernels"]


def test_a_kernel_is_taken_over_from_the_cache(kernels):
    values = np.arange(4.0)
    with compile_in_background():
        assert kernels.total(values) == 12.0
        assert type(kernels.total(values)) is float
        assert not kernels.total.signatures
        assert waiting_kernels() == 1
        assert kernel_counts() == (0, 1, 0, 1)
        assert wait_for_kernels(PATIENCE)
        assert kernels.total(values) == 12.0
        assert len(kernels.total.signatures) == 1  # from now on the dispatcher runs machine code by itself
        assert not kernels.total.stats.cache_misses
        assert kernel_counts() == (1, 0, 0, 1)


def test_after_the_block_this_process_compiles_itself(kernels):
    with compile_in_background():
        pass
    assert kernels.doubled(2.0) == 4.0
    assert len(kernels.doubled.stats.cache_misses) == 1
    assert not waiting_kernels()


def test_kernels_of_a_rehearsal_are_compiled_before_they_are_called(kernels):
    with compile_in_background([Rehearsal("fresh_kernels", "rehearse", (3,))]):
        changed = background_compiler._compiler._changed
        with changed:
            assert changed.wait_for(lambda: kernel_counts() == (1, 0, 0, 1), PATIENCE)
        assert kernels.total(np.arange(4.0)) == 12.0
        assert not kernels.total.stats.cache_misses
        assert kernels.total.signatures


def test_what_was_rehearsed_once_is_not_rehearsed_again(kernels, cache, monkeypatch):
    rehearsals = [Rehearsal("fresh_kernels", "rehearse", (3,))]
    with compile_in_background(rehearsals):
        changed = background_compiler._compiler._changed
        with changed:
            assert changed.wait_for(lambda: kernel_counts() == (1, 0, 0, 1), PATIENCE)
    monkeypatch.setattr(background_compiler, "_kernels", {})
    requests = []
    monkeypatch.setattr(background_compiler._Compiler, "_carry_out", lambda _, work: requests.append(work) or [])

    def rehearse_again():
        requests.clear()
        with compile_in_background(rehearsals):
            background_compiler._compiler.finish()
        return len(requests)

    assert rehearse_again() == 0
    assert kernel_counts() == (1, 0, 0, 1)
    path = Path(kernels.__file__)
    path.write_text(path.read_text() + "# another source\n")
    assert rehearse_again() == 1
    path.write_text(path.read_text().removesuffix("# another source\n"))
    assert rehearse_again() == 0
    next(cache.glob("*.total-*.machine-code")).unlink()
    assert rehearse_again() == 1


def test_what_this_process_rehearsed_is_not_rehearsed_again(kernels, monkeypatch):  # noqa: ARG001
    rehearsals = [Rehearsal("fresh_kernels", "rehearse", (3,))]
    rehearse_here(rehearsals)
    monkeypatch.setattr(background_compiler, "_kernels", {})
    with monkeypatch.context() as patches, compile_in_background(rehearsals):
        patches.setattr(background_compiler._Compiler, "_carry_out", None)  # there is nothing to do
        background_compiler._compiler.finish()
        assert kernel_counts() == (1, 0, 0, 1)
        assert kernel_trouble() is None


def test_another_process_continues_after_a_kill(kernels, caplog):
    with compile_in_background():
        compiler = background_compiler._compiler
        start = compiler._start_process

        def start_and_kill():
            start()
            compiler._start_process = start
            compiler._process.kill()

        compiler._start_process = start_and_kill
        assert kernels.doubled(2.0) == 4.0
        assert wait_for_kernels(PATIENCE)
        assert kernels.doubled(2.0) == 4.0
        assert kernels.doubled.signatures
    assert f"ended at fresh_kernels.doubled (exit status {-signal.SIGKILL})" in caplog.text


def test_a_kernel_at_which_every_process_is_killed_stays_plain(kernels, caplog):
    with compile_in_background():
        compiler = background_compiler._compiler
        start = compiler._start_process

        def start_and_kill():
            start()
            compiler._process.kill()

        compiler._start_process = start_and_kill
        assert kernels.doubled(2.0) == 4.0
        assert wait_for_kernels(PATIENCE)
        assert kernel_counts() == (0, 0, 1, 1)
        assert "ended 3 times in a row" in kernel_trouble()
        compiler._start_process = start
        assert kernels.total(np.arange(4.0)) == 12.0
        assert wait_for_kernels(PATIENCE)
        assert kernels.doubled(2.0) == 4.0
        assert kernel_counts() == (1, 0, 1, 2)
        assert "in a row" not in kernel_trouble()
    killed = f"ended 3 times at it (exit status {-signal.SIGKILL})"
    assert (
        f"the kernel fresh_kernels.doubled cannot be compiled: the process that compiles kernels {killed}"
        in caplog.text
    )
    for pause in ("0.1", "0.2", "0.4"):
        assert caplog.text.count(f"starting another in {pause} s") == 1


def test_a_rehearsal_that_fails_is_reported_and_others_go_on(kernels, caplog):  # noqa: ARG001
    rehearsals = [Rehearsal("fresh_kernels", "rehearse", ("x",)), Rehearsal("fresh_kernels", "rehearse", (3,))]
    with compile_in_background(rehearsals):
        background_compiler._compiler.finish()
        assert kernel_counts() == (1, 0, 0, 1)
        reason = "the rehearsal fresh_kernels.rehearse(x) failed: ValueError: "
        assert reason in kernel_trouble()
    assert reason in caplog.text
    assert kernel_trouble() is None


def test_a_kernel_that_does_not_compile_stays_plain(kernels, caplog, capfd):
    with compile_in_background():
        for _ in range(2):
            with pytest.raises(AttributeError):
                kernels.untypable(1.0)
            assert wait_for_kernels(PATIENCE)
        assert kernel_counts() == (0, 0, 1, 1)
        assert kernels.doubled(1.0) == 2.0
        assert wait_for_kernels(PATIENCE)
        assert kernel_counts() == (1, 0, 1, 2)
        assert "kernels that stay plain Python, slowly, until the next start: 1. " in kernel_trouble()
    reason = "the kernel fresh_kernels.untypable cannot be compiled: TypingError: "
    assert reason in kernel_trouble()
    assert caplog.text.count(reason) == 1
    assert "starting another" not in caplog.text
    assert "no_such_attribute" in capfd.readouterr().err


def test_a_process_compiles_itself_if_another_version_is_on_disk(kernels, caplog):
    path = Path(kernels.__file__)
    with compile_in_background():
        path.write_text(path.read_text().replace("2.0 * x", "30.0 * x"))
        assert kernels.doubled(2.0) == 4.0
        assert wait_for_kernels(PATIENCE)
        assert kernels.doubled(2.0) == 4.0
        assert len(kernels.doubled.stats.cache_misses) == 1
    assert "fresh_kernels.doubled cannot be shared: the disk is full, or another version is installed" in caplog.text


def test_a_process_compiles_itself_if_it_cannot_start_another(kernels, monkeypatch, caplog):
    def fail(*_, **__):
        raise BlockingIOError("too many processes")

    monkeypatch.setattr(subprocess, "Popen", fail)
    with compile_in_background():
        assert kernels.doubled(2.0) == 4.0
        assert wait_for_kernels(PATIENCE)
        assert kernels.doubled(2.0) == 4.0
        assert len(kernels.doubled.stats.cache_misses) == 1
    assert "(too many processes); this one will, at first calls" in caplog.text


def test_processes_share_what_one_compiles(kernels):
    """Two compilers have the same queue; each takes from the cache what the other has compiled."""
    with compile_in_background():
        first = background_compiler._compiler
        with compile_in_background():
            second = background_compiler._compiler
            types = (jit.types.float64,)
            path = kernels.doubled._cache.path(types)
            demand = Demand("fresh_kernels", "doubled", types)
            assert first.needs_plain(demand, path)
            background_compiler._kernels.clear()
            assert second.needs_plain(demand, path)
            assert first.wait(PATIENCE)
            assert second.wait(PATIENCE)
    assert kernels.doubled(2.0) == 4.0
    assert not kernels.doubled.stats.cache_misses


def test_blocks_may_end_in_any_order(kernels):
    first, second = compile_in_background(), compile_in_background()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert kernels.doubled(2.0) == 4.0
    assert wait_for_kernels(PATIENCE)
    assert kernel_counts() == (1, 0, 0, 1)
    second.__exit__(None, None, None)
    assert background_compiler._compiler is None


def test_the_process_ends_with_the_block(kernels):
    with compile_in_background():
        compiler = background_compiler._compiler
        started, start = threading.Event(), compiler._start_process

        def start_and_tell():
            start()
            started.set()

        compiler._start_process = start_and_tell
        kernels.doubled(2.0)
        assert started.wait(PATIENCE)
        process = compiler._process
    assert process is None or process.poll() is not None
    assert not compiler._thread.is_alive()


def test_the_process_is_out_of_reach_of_ctrl_c_and_of_modules_in_the_working_directory(kernels, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "json.py").write_text("raise SystemExit('the module of a stranger')")
    monkeypatch.chdir(tmp_path / "elsewhere")
    with compile_in_background():
        compiler = background_compiler._compiler
        start, processes = compiler._start_process, []

        def start_and_note():
            start()
            processes.append((os.getpgid(compiler._process.pid), compiler._process.pid))

        compiler._start_process = start_and_note
        kernels.doubled(2.0)
        assert wait_for_kernels(PATIENCE)
    [(group, process)] = processes
    assert group == process


def test_a_process_does_not_wait_forever_for_the_turn_of_a_stopped_one(kernels, cache):
    """Another process, here this one, has the turn and keeps it."""
    with (cache / "background").open("w") as turns, compile_in_background():
        fcntl.flock(turns, fcntl.LOCK_EX)
        compiler = background_compiler._compiler
        kernels.doubled(2.0)
        process = eventually(lambda: compiler._process)
        eventually(lambda: any("->" in line and str(process.pid) in line.split() for line in locks()))
        os.kill(process.pid, signal.SIGALRM)  # as the clock does after a minute
        assert wait_for_kernels(PATIENCE)
        assert kernel_counts() == (1, 0, 0, 1)
        assert compiler._process in (None, process)


def locks():
    return Path("/proc/locks").read_text().splitlines()


@pytest.mark.parametrize("environment", [{"HOME": "/dev/null/nowhere"}, {"NUMBA_CACHE_DIR": "/dev/null/nowhere"}])
def test_a_private_cache_serves_both_processes(tmp_path, environment):
    """In a process, because it needs an environment of its own."""
    (tmp_path / "fresh_kernels.py").write_text(SOURCE)
    program = (
        "from learners.numerics import compile_in_background, wait_for_kernels\n"
        "from fresh_kernels import doubled\n"
        "with compile_in_background():\n"
        f"    print(doubled(2.0), wait_for_kernels({PATIENCE}), doubled(2.0), len(doubled.signatures))\n"
    )
    hidden = ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
    base = {name: value for name, value in os.environ.items() if name not in hidden}
    paths = os.pathsep.join([str(tmp_path), str(Path(jit.__file__).parents[2])])
    output = subprocess.run(
        [sys.executable, "-c", program],
        env={**base, **environment, "PYTHONPATH": paths, "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout == "4.0 True 4.0 1\n"
