"""Keep machine code on disk: one file for a kernel and the types of its arguments, named after all that it reaches.

The directory is in `NUMBA_CACHE_DIR` if set, otherwise in the user's cache directory. It is named after the processor
and the versions of the compiler, and its file `made-for` says them. See `kernel_reach` for the names of files.

If that cannot be written, a directory of the user in the machine's temporary one takes its place, with links to the
kernels that are there. All processes of the user share it, and later ones find what earlier ones have compiled.

A file is written under another name and moved, and its first bytes are a digest of the others. So processes share the
directory without a lock, and code that was cut off never runs. If several need the same kernel at once, one compiles it
and the others wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import pickle
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
from numba.core import config, sigutils
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.serialize import dumps

from learners.numerics.kernel_reach import reach, reach_of_types

__all__ = ["KernelCache", "cache_directory"]

logger = logging.getLogger("rarestream.kernels")

_OURS = re.compile(r"kernels-[0-9a-f]{16}")
_MADE_FOR = "made-for"
_CODE = ".machine-code"
_DAY = 86400.0
_UNUSED = 30 * _DAY  # after which directories of other processors and versions, and files of other sources, are removed
_WAIT = 60.0  # seconds to wait for another process that compiles the same kernel: it may be stopped
_DIGEST = 16  # bytes of the digest that a file begins with


def _base() -> Path:
    """Return the shared cache. Raises `OSError` for a user without a home."""
    if setting := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(setting).absolute() / "rarestream"
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    if not home.is_absolute():
        raise FileNotFoundError(f"{home} is no cache directory: it is not absolute")
    return home / "rarestream"


def _made_for() -> tuple[str, str]:
    """Return the versions and options, and the processor with its features, that machine code is for."""
    versions = {
        "Python": ".".join(map(str, sys.version_info[:3])),
        "NumPy": np.__version__,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "bounds checked": bool(config.BOUNDSCHECK),  # type: ignore[attr-defined]
    }
    triple, name, features = cpu_target.target_context.codegen().magic_tuple()
    return ", ".join(f"{what} {value}" for what, value in versions.items()), f"{name} {triple} {features}"


@functools.cache
def cache_directory() -> Path:
    """Return the directory of kernels for this processor and these versions."""
    try:
        return _open(_base())
    except OSError as error:
        directory = _open(_private() / "rarestream")
        _link_shared(directory)
        logger.warning("cannot write the kernel cache (%s); using %s instead", error, directory)
        return directory


def _link_shared(directory: Path) -> None:
    """Make the kernels of a cache that cannot be written, but read, available in a private directory."""
    with contextlib.suppress(FileNotFoundError, PermissionError):  # a user without a home, or a cache of another user
        for path in (_base() / directory.name).glob(f"*{_CODE}"):
            if os.access(path, os.R_OK):
                with contextlib.suppress(FileExistsError):  # of an earlier process
                    (directory / path.name).symlink_to(path)


def _private() -> Path:
    """Make the directory of this user in a temporary one, or find it there. Raises `OSError` if there is none.

    Machine code from there is run, so nobody else may have made it, or may write there.
    """
    name = f"rarestream-kernels-{os.geteuid()}"
    try:
        path = Path(tempfile.gettempdir(), name)
    except FileNotFoundError:  # no temporary directory can be written, as in a container that is read-only
        path = Path("/dev/shm", name)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=path.parent))  # of this process alone
    return path


def _open(base: Path) -> Path:
    """Make the directory below `base`. Raises `OSError` if it cannot be written."""
    made_for = "\n".join(_made_for())
    path = base / f"kernels-{hashlib.blake2b(made_for.encode(), digest_size=8).hexdigest()}"
    path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # which some file systems cannot
    if not (path / _MADE_FOR).exists():
        _report_other_processors(base)
        (path / _MADE_FOR).write_text(made_for)
    os.utime(path)
    _remove_old(base, path)
    return path


def _report_other_processors(base: Path) -> None:
    """Log that the cache has kernels of these versions, but for other processors."""
    versions, processor = _made_for()
    names = set()
    for path in base.glob(f"kernels-*/{_MADE_FOR}"):
        with contextlib.suppress(OSError, ValueError):  # another process removes it, or it is not ours
            others, _, other = path.read_text().partition("\n")
            if others == versions:
                names.add(other.partition(" ")[0])
    if names:
        logger.warning(
            "the kernels in %s were compiled for another processor (%s); compiling them again for this one (%s)",
            base,
            ", ".join(sorted(names)),
            processor,
        )


def _remove_old(base: Path, current: Path) -> None:
    before = time.time() - _UNUSED
    for path in (*base.glob("kernels-*"), *current.iterdir()):
        try:
            if path == current or path.name == _MADE_FOR or path.stat().st_mtime > before:
                continue
            if path.parent == current:
                path.unlink()
            elif _OURS.fullmatch(path.name):
                shutil.rmtree(path)
        except OSError:  # another process removes it, or it is not ours: either way it is not needed
            continue


class KernelCache(_Cache):
    """The machine code of one kernel, as numba's dispatchers load and save it.

    A lock for each file lets one process compile it while the others wait.
    """

    def __init__(self, dispatcher: Any) -> None:
        self._function: Callable[..., Any] = dispatcher.py_func
        self._options = repr(sorted(dispatcher.targetoptions.items()))
        self._paths: dict[tuple[Any, ...], Path] = {}
        self._lock: tuple[int, Path] | None = None  # the locked descriptor, and its file

    @property
    def cache_path(self) -> str:
        """The directory."""
        return str(cache_directory())

    def path(self, arguments: tuple[Any, ...]) -> Path:
        """Return the file for these types of arguments."""
        if arguments not in self._paths:
            name = f"{self._function.__module__}.{self._function.__qualname__}".replace("<locals>.", "")
            parts = reach(self._function), reach_of_types(arguments), self._options.encode()
            digest = hashlib.blake2b(b"".join(parts), digest_size=_DIGEST)
            self._paths[arguments] = cache_directory() / f"{name}-{digest.hexdigest()}{_CODE}"
        return self._paths[arguments]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel; if no process has saved it, take the lock to compile it, and return None."""
        target_context.refresh()
        path = self.path(_arguments(sig))
        overload = self._read(path, target_context)
        if overload is None and self._lock is None and self._acquire(path):
            overload = self._read(path, target_context)  # another process may have saved it meanwhile
        return overload

    def _read(self, path: Path, target_context: Any) -> Any:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        code = data[_DIGEST:]
        if hashlib.blake2b(code, digest_size=_DIGEST).digest() != data[:_DIGEST]:
            logger.warning("%s is damaged; compiling this kernel again", path)
            return None
        with contextlib.suppress(OSError):  # the cache may be of another user
            if time.time() - path.stat().st_mtime > _DAY:
                os.utime(path)
        rebuild: Any = CompileResult._rebuild
        return rebuild(target_context, *pickle.loads(code))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a compiled kernel. A full disk is reported: the kernel then serves this process only."""
        if data.library.has_dynamic_globals or data.lifted:
            raise TypeError(
                f"the kernel {self._function.__qualname__} uses what cannot be saved, for example a pointer"
            )
        path = self.path(_arguments(sig))
        code = dumps(data._reduce())  # type: ignore[no-untyped-call]
        temporary = path.with_suffix(f".{os.urandom(8).hex()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)  # a cache may be removed while processes run
            temporary.write_bytes(hashlib.blake2b(code, digest_size=_DIGEST).digest() + code)
            temporary.replace(path)
        except OSError as error:
            logger.warning("cannot save a compiled kernel (%s); each process compiles it again", error)
            temporary.unlink(missing_ok=True)

    def _acquire(self, path: Path) -> bool:
        """Wait for the lock to compile into this file; return False if another process takes too long."""
        turn = path.with_suffix(".turn")
        turn.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(turn, os.O_RDONLY | os.O_CREAT, 0o666)
        end = time.monotonic() + _WAIT
        while time.monotonic() < end:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.02)
            else:
                self._lock = file, turn
                return True
        os.close(file)
        return False

    def release(self) -> None:
        """Release the lock after compiling."""
        if self._lock is not None:
            (file, turn), self._lock = self._lock, None
            turn.unlink(missing_ok=True)  # waiting processes have it open; others find the saved kernel or lock anew
            os.close(file)

    def enable(self) -> None:
        """Do nothing: it is always enabled."""

    def disable(self) -> None:
        """Do nothing: it is always enabled."""

    def flush(self) -> None:
        """Do nothing: files of other sources have other names."""


def _arguments(signature: Any) -> tuple[Any, ...]:
    arguments: tuple[Any, ...] = sigutils.normalize_signature(signature)[0]  # type: ignore[no-untyped-call]
    return arguments
