"""The kernel cache: one directory per version of the sources, and nothing that is not ours is touched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from numba.core import config as numba_config

import learners
from learners.numerics import jit

OLD = 40 * 86400


def aged(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "a.txt").write_text("kept?")
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - OLD))
    return path


@pytest.fixture
def run(tmp_path):
    """Start programs as processes that end with the test, even if they wait or hang."""
    with ExitStack() as started:

        def run(program, *arguments, environment):
            command = [sys.executable, "-c", program, *arguments]
            process = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield run


def test_only_our_own_old_directories_are_removed(tmp_path):
    current, old = aged(tmp_path / f"kernels-{'0' * 16}"), aged(tmp_path / f"kernels-{'1' * 16}")
    foreign = [aged(tmp_path / name) for name in ("kernels-of-my-project", "kernels-", f"kernels-{'g' * 16}", "src")]
    recent = tmp_path / f"kernels-{'2' * 16}"
    recent.mkdir()
    jit._remove_old(tmp_path, current)
    assert not old.exists()
    assert all(path.exists() for path in (current, recent, *foreign))


@jit.inlined
def _times(x, factor):
    return x * factor


@jit.inlined
def _sum_of_multiples(x):
    total = _times(x, 2) + _times(3, x)
    for factor in (0, 1):
        total += _times(x, factor)
    return total


@pytest.mark.skipif(bool(numba_config.DISABLE_JIT), reason="kernels run as plain Python")
def test_a_constant_argument_does_not_compile_a_function_again():
    assert _sum_of_multiples(5) == 30
    assert len(_times.signatures) == 1


def directory_of(cache: Path, sources: Path) -> str:
    """Where a fresh process that imports the library from `sources` keeps its kernels."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(sources)}
    code = "from learners.numerics import jit; print(jit.__file__); print(jit.cache_directory())"
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=sources, capture_output=True, text=True, check=True
    )
    file, directory = process.stdout.split()
    assert Path(file).is_relative_to(sources)
    return directory


@pytest.mark.integration
def test_an_edit_three_folders_deep_uses_a_new_cache(tmp_path):
    package = tmp_path / "learners"
    shutil.copytree(Path(learners.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    before = directory_of(tmp_path / "cache", tmp_path)
    assert directory_of(tmp_path / "cache", tmp_path) == before
    with (package / "algorithms" / "auc" / "cbr.py").open("a") as file:
        file.write("\n")
    assert directory_of(tmp_path / "cache", tmp_path) != before


def test_the_cache_of_external_kernels_depends_on_both_source_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(jit, "_directories", {})
    (tmp_path / "a.py").write_text("x = 1")
    cache, before = jit.cache_directory(), jit.cache_directory(tmp_path)
    jit._directories.clear()
    assert (jit.cache_directory(), jit.cache_directory(tmp_path)) == (cache, before)
    (tmp_path / "a.py").write_text("x = 2")
    jit._directories.clear()
    assert jit.cache_directory() == cache
    assert jit.cache_directory(tmp_path) not in (cache, before)


@pytest.mark.integration
def test_an_unwritable_cache_is_replaced_by_a_temporary_private_one(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    directory = directory_of(blocked, Path(jit.__file__).parents[2])
    assert "rarestream-kernels-" in directory
    assert not Path(directory).exists()


RACE = """
import itertools, sys, time
from pathlib import Path
import numpy as np
from numba.core import caching
from raced import total
kind, after_reading, after_index, done = sys.argv[1:]
load, save, reads = caching.IndexDataCacheFile._load_index, caching.IndexDataCacheFile._save_index, itertools.count()

def step(names):  # "mine:theirs": report the own step and wait for that of the other process, which may be blocked
    mine, _, theirs = names.partition(":")
    Path(mine or "nothing").touch()
    end = time.monotonic() + 4.0
    while theirs and not Path(theirs).exists() and time.monotonic() < end:
        time.sleep(0.01)

def read(self):
    found = load(self)
    if next(reads) == 2:  # to save; those before were to load, before and after it was this one's turn
        step(after_reading)
    return found

def write(self, found):
    save(self, found)
    step(after_index)

caching.IndexDataCacheFile._load_index, caching.IndexDataCacheFile._save_index = read, write
print(total(np.arange(8, dtype=kind)))
step(done)
"""


@pytest.mark.campaign
def test_processes_compiling_different_types_do_not_mix_their_code(tmp_path, run):
    """Each has read the index before the other has written it: both would write the same file."""
    (tmp_path / "raced.py").write_text(
        "from learners.numerics.jit import kernel\n\n\n@kernel\ndef total(values):\n"
        "    found = 0.0\n    for value in values:\n        found += value\n    return found\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_DISABLE_JIT": "0"}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(Path(jit.__file__).parents[2])])

    def started(kind, *steps):
        return run(RACE, kind, *steps, environment=environment)

    racing = [
        started("float64", "a-read:b-read", "a-index:b-done", ""),
        started("float32", "b-read:a-index", "", "b-done"),
    ]
    assert [item.communicate(timeout=300)[0] for item in racing] == ["28.0\n", "28.0\n"]
    after = [started(kind, "", "", "") for kind in ("float64", "float32")]
    assert [item.communicate(timeout=300)[0] for item in after] == ["28.0\n", "28.0\n"]


TURNS = """
import os
import shutil
import signal
import sys
import time
from pathlib import Path
import numpy as np
from numba.core import event
from learners.numerics import jit
from shared import inner, outer

class Standing(event.Listener):
    def on_start(self, event):
        os.kill(os.getpid(), signal.SIGSTOP)

    def on_end(self, event):
        pass

if "stand" in sys.argv:  # still, as it compiles
    event.register("numba:compile", Standing())
jit._WAIT = float(sys.argv[1])
Path(sys.argv[2]).touch()
while len(list(Path().glob("ready-*"))) < 3:
    time.sleep(0.001)
print(outer(np.arange(4.0)), sum(sum(one.stats.cache_misses.values()) for one in (inner, outer)))
"""
SHARED = """
from learners.numerics.jit import kernel

@kernel
def inner(x):
    return x + 1.0

@kernel
def outer(values):
    found = 0.0
    for value in values:
        found += inner(value)
    return found
"""


@pytest.fixture
def started(tmp_path, run):
    """Start one of the processes that share a cache."""
    (tmp_path / "shared.py").write_text(SHARED)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_DISABLE_JIT": "0"}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(Path(jit.__file__).parents[2])])

    return lambda *arguments: run(TURNS, *arguments, environment=environment)


@pytest.mark.integration
def test_one_of_several_processes_compiles_a_kernel(tmp_path, started):
    outputs = [item.communicate(timeout=300)[0].split() for item in [started("300", f"ready-{i}") for i in range(3)]]
    assert [total for total, _ in outputs] == ["10.0"] * 3
    assert sorted(int(misses) for _, misses in outputs) == [0, 0, 2]
    assert not list(tmp_path.rglob("*.turn"))


@pytest.mark.campaign
def test_a_process_waiting_for_a_stopped_compiler_compiles_itself(tmp_path, started):
    for i in range(3):
        (tmp_path / f"ready-{i}").touch()
    process = started("300", "ready-0", "stand")
    while True:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        if list(tmp_path.rglob("*.turn")):
            break
        os.kill(process.pid, signal.SIGCONT)  # it compiled something of numba's own
    assert started("0.5", "ready-1").communicate(timeout=300)[0] == "10.0 2\n"
    process.kill()
    process.communicate(timeout=300)
    assert started("300", "ready-2").communicate(timeout=300)[0] == "10.0 0\n"  # leftovers do not block others
