"""The kernel cache: one directory for a processor and versions, shared by processes; nothing else is touched."""

from __future__ import annotations

import errno
import os
import pwd
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from numba.core import config as numba_config
from numba.core import event

from learners.numerics import jit, kernel_cache

OLD = 40 * 86400
compiled = pytest.mark.skipif(bool(numba_config.DISABLE_JIT), reason="kernels run as plain Python")


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
    unused, used = current / "a.f-0.machine-code", current / "a.f-1.machine-code"
    for path, age in ((unused, OLD), (used, 0)):
        path.touch()
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age))
    kernel_cache._remove_old(tmp_path, current)
    assert not old.exists()
    assert not unused.exists()
    assert all(path.exists() for path in (current, recent, used, *foreign))


@jit.inlined
def _times(x, factor):
    return x * factor


@jit.inlined
def _sum_of_multiples(x):
    total = _times(x, 2) + _times(3, x)
    for factor in (0, 1):
        total += _times(x, factor)
    return total


@jit.inlined
def _factorial(n):
    return n * _factorial(n - 1) if n > 1 else 1


@compiled
def test_a_constant_argument_does_not_compile_a_function_again():
    with event.install_recorder("numba:compile") as recorder:
        assert _sum_of_multiples(5) == 30
    compilations = [item.data["dispatcher"].py_func for _, item in recorder.buffer if item.is_start]
    assert compilations.count(_times.py_func) == 1


@compiled
def test_kernels_call_a_form_that_python_cannot_call():
    assert _sum_of_multiples(6) == 36
    assert not _times.signatures
    assert _times(2, 3) == 6
    assert _times.signatures


@compiled
def test_a_function_may_call_itself():
    assert _factorial(5) == 120


@compiled
def test_another_decorator_gives_another_file():
    def function(x):
        return x

    dispatchers = [jit._dispatcher(function, **options) for options in ({}, {"_nrt": False})]
    assert len({kernel_cache.KernelCache(dispatcher).path(()) for dispatcher in dispatchers}) == 2


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


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Let tests have their own directory of temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


@pytest.mark.integration
def test_processes_of_a_user_share_what_replaces_an_unwritable_cache(tmp_path, monkeypatch):
    """In processes, which have nothing else in common; SIGKILL and SIGTERM leave no further directory behind."""
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    directories = {directory_of(blocked, Path(jit.__file__).parents[2]) for _ in range(2)}
    [private] = (tmp_path / "temporary").iterdir()
    assert private.name == f"rarestream-kernels-{os.geteuid()}"
    assert private.stat().st_mode & 0o777 == 0o700
    [directory] = directories
    assert Path(directory).parents[1] == private


@pytest.mark.parametrize("foreign", ["link", "open to all"])
def test_machine_code_of_strangers_is_not_run(temporary, unwritable, tmp_path, foreign):
    name = temporary / f"rarestream-kernels-{os.geteuid()}"
    if foreign == "link":
        (tmp_path / "of-a-stranger").mkdir(mode=0o700)
        name.symlink_to(tmp_path / "of-a-stranger")
    else:
        name.mkdir()
        name.chmod(0o777)
    private = kernel_cache.cache_directory.__wrapped__()
    assert private.name == unwritable.name
    assert private.parents[1].name.startswith(f"{name.name}-")
    assert private.parents[1].stat().st_mode & 0o777 == 0o700
    assert not list(name.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_a_cache_of_another_user_is_replaced(mode, monkeypatch):
    """The service answered 500 if it could not even list that cache."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("NUMBA_CACHE_DIR", folder)
        os.chmod(folder, 0o1777)
        shared = kernel_cache.cache_directory.__wrapped__()
        (shared / f"a.f-0{kernel_cache._CODE}").write_text("code")
        shared.chmod(mode)
        os.seteuid(65534)
        try:
            private = kernel_cache.cache_directory.__wrapped__()
            kernels = [path.read_text() for path in private.glob(f"*{kernel_cache._CODE}")]
        finally:
            os.seteuid(0)
        assert private.parents[1] == Path(folder, "rarestream-kernels-65534")
        assert kernels == ([] if mode == 0o700 else ["code"])


@pytest.fixture
def unwritable(tmp_path, monkeypatch):
    """Return the directory of a shared cache of this processor and these versions that cannot be written."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    directory = kernel_cache.cache_directory.__wrapped__()
    open_file = tempfile.TemporaryFile

    def refuse(dir):
        if dir.is_relative_to(tmp_path / "rarestream"):
            raise OSError(errno.EROFS, "Read-only file system")
        return open_file(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    return directory


@pytest.mark.usefixtures("temporary")
def test_a_private_cache_has_the_kernels_of_one_that_cannot_be_written(unwritable, caplog):
    (unwritable / f"a.f-0{kernel_cache._CODE}").write_text("code")
    (unwritable / "b.rehearsed").touch()
    for _ in range(2):
        private = kernel_cache.cache_directory.__wrapped__()
    assert private != unwritable
    assert [path.name for path in private.glob("*.*")] == [f"a.f-0{kernel_cache._CODE}"]
    assert next(private.glob("a.*")).read_text() == "code"
    assert "cannot write the kernel cache ([Errno 30] Read-only file system)" in caplog.text


def test_a_user_without_a_home_gets_a_private_cache(monkeypatch, temporary):
    def refuse(user):
        raise KeyError(user)

    for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", refuse)
    with pytest.raises(FileNotFoundError, match="not absolute"):
        kernel_cache._base()
    assert kernel_cache.cache_directory.__wrapped__().is_relative_to(temporary)


EDITED = """
from shared import outer
import numpy as np
print(outer(np.arange(4.0)), sum(outer.stats.cache_misses.values()))
"""


@pytest.mark.integration
def test_an_edit_of_a_constant_in_another_file_never_runs_old_code(tmp_path, run):
    """In processes, because each imports the edited file."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_DISABLE_JIT": "0"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(Path(jit.__file__).parents[2])])
    (tmp_path / "shared.py").write_text("from rates import RATE\n" + SHARED.replace("1.0", "RATE"))
    for rate, expected in ((1.0, "10.0 1\n"), (1.0, "10.0 0\n"), (2.0, "14.0 1\n"), (1.0, "10.0 0\n")):
        (tmp_path / "rates.py").write_text(f"RATE = {rate}  # in a file without kernels\n")
        assert run(EDITED, environment=environment).communicate(timeout=300)[0] == expected


@pytest.mark.integration
def test_damaged_machine_code_is_compiled_again(tmp_path, run):
    """In processes, because each loads the machine code."""
    (tmp_path / "shared.py").write_text(SHARED)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_DISABLE_JIT": "0"}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(Path(jit.__file__).parents[2])])
    assert run(EDITED, environment=environment).communicate(timeout=300)[0] == "10.0 1\n"
    for path in tmp_path.rglob("*.machine-code"):
        path.write_bytes(path.read_bytes()[:-100])
    assert run(EDITED, environment=environment).communicate(timeout=300)[0] == "10.0 1\n"
    assert run(EDITED, environment=environment).communicate(timeout=300)[0] == "10.0 0\n"


def test_kernels_of_another_processor_are_reported(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    versions, _ = kernel_cache._made_for()
    for name, text in (("0", f"{versions}\nnehalem x86_64 "), ("1", "other versions\nother x86_64 ")):
        (tmp_path / "rarestream" / f"kernels-{name * 16}").mkdir(parents=True)
        (tmp_path / "rarestream" / f"kernels-{name * 16}" / "made-for").write_text(text)
    directory = kernel_cache.cache_directory.__wrapped__()
    assert directory.parent == tmp_path / "rarestream"
    assert "compiled for another processor (nehalem); compiling them again" in caplog.text
    caplog.clear()
    assert kernel_cache.cache_directory.__wrapped__() == directory
    assert not caplog.records


@pytest.mark.integration
def test_a_cache_that_moves_to_another_processor_is_compiled_again(tmp_path, run):
    """In processes, which numba lets compile for processors with other features than this machine's."""
    (tmp_path / "shared.py").write_text(SHARED)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_DISABLE_JIT": "0"}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(Path(jit.__file__).parents[2])])
    program = "import logging, sys\nlogging.basicConfig(stream=sys.stdout, format='%(message)s')\n" + EDITED

    def start_on(processor):
        features = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": ""}
        return run(program, environment={**environment, **features}).communicate(timeout=300)[0].splitlines()

    assert start_on("x86-64") == ["10.0 1"]
    message, result = start_on("x86-64-v2")
    assert "were compiled for another processor (x86-64); compiling them again for this one (x86-64-v2 " in message
    assert result == "10.0 1"
    assert start_on("x86-64") == start_on("x86-64-v2") == ["10.0 0"]  # each finds its own


TURNS = """
import os
import signal
import sys
import time
from pathlib import Path
import numpy as np
from numba.core import event
from learners.numerics import kernel_cache
from shared import outer

class Standing(event.Listener):
    def on_start(self, event):
        os.kill(os.getpid(), signal.SIGSTOP)

    def on_end(self, event):
        pass

if "stand" in sys.argv:  # still, as it compiles
    event.register("numba:compile", Standing())
kernel_cache._WAIT = float(sys.argv[1])
Path(sys.argv[2]).touch()
while len(list(Path().glob("ready-*"))) < 3:
    time.sleep(0.001)
print(outer(np.arange(4.0)), sum(outer.stats.cache_misses.values()))
"""
SHARED = """
from learners.numerics.jit import kernel

@kernel
def inner(x):
    return x + 1.0

@kernel
def outer(values):
    total = 0.0
    for value in values:
        total += inner(value)
    return total
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
    assert sorted(int(misses) for _, misses in outputs) == [0, 0, 1]
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
    assert started("0.5", "ready-1").communicate(timeout=300)[0] == "10.0 1\n"
    process.kill()
    process.communicate(timeout=300)
    assert started("300", "ready-2").communicate(timeout=300)[0] == "10.0 0\n"  # leftovers do not block others
