"""Compile every kernel of the library with one decorator and one cache.

numba's on-disk cache notices an edit of a kernel's own file, but not of another file that the kernel calls, and would
then run old machine code. So the cache directory is named after a hash of all sources of this package, however deep,
and of the numba version: an edit anywhere starts an empty cache. Kernels of another package also hash that package's
folder, because they may call kernels of this one.

The directory is in `NUMBA_CACHE_DIR` if set, otherwise in the user's cache directory. If that cannot be written, it is
a private temporary directory, and kernels compile once per process. A lock file serialises access by several processes.
If several need the same kernel at once, one compiles it and the others wait.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
from numba.core import types
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock

__all__ = ["bare_kernel", "cache_directory", "inlined", "kernel"]

_OURS = re.compile(r"kernels-[0-9a-f]{16}")
_UNUSED_DAYS = 30  # after which cache directories of other sources are removed
_WAIT = 60.0  # seconds to wait for another process that compiles the same kernel: it may be stopped
_LIBRARY = Path(__file__).parents[1]  # the library: every package of it
_njit: Any = numba.njit  # numba's types leave out the option that switches its counting of references off


def _key(folder: Path) -> str:
    digest = hashlib.blake2b(digest_size=8)
    version = ".".join(map(str, sys.version_info[:3]))
    digest.update(f"{numba.__version__} {llvmlite.__version__} {np.__version__} {version}".encode())
    for place in (_LIBRARY,) if folder == _LIBRARY else (_LIBRARY, folder):
        for source in sorted(place.rglob("*.py")):
            name = source.relative_to(place).as_posix()
            digest.update(name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def _base() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("NUMBA_CACHE_DIR") or home) / "rarestream"


def _open_cache(folder: Path) -> Path:
    base = _base()
    path = base / f"kernels-{_key(folder)}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError:
        private = tempfile.mkdtemp(prefix="rarestream-kernels-")
        atexit.register(shutil.rmtree, private, ignore_errors=True)
        return Path(private)
    os.utime(path)
    _remove_old(base, path)
    return path


def _remove_old(base: Path, current: Path) -> None:
    before = time.time() - _UNUSED_DAYS * 86400
    for other in base.glob("kernels-*"):
        try:
            if other == current or not _OURS.fullmatch(other.name) or other.stat().st_mtime > before:
                continue
            shutil.rmtree(other)
        except OSError:  # another process removes it, or it is not ours: either way it is not needed
            continue


_directories: dict[Path, Path] = {}


def cache_directory(folder: Path = _LIBRARY) -> Path:
    """Return the directory of compiled kernels for the present sources of `folder`."""
    if folder not in _directories:
        _directories[folder] = _open_cache(folder)
    return _directories[folder]


class _Cache(FunctionCache):
    """numba's cache, made safe for several processes.

    numba numbers files by its index. Two processes that save at the same moment, for different types of arguments,
    write the same file, and a later process runs code for the wrong types. A lock prevents that. A second lock per
    kernel lets one process compile it while the others wait.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._lock: tuple[int, Path] | None = None  # the locked descriptor, and its file

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        overload = self._read(sig, target_context)
        if overload is None and self._lock is None and self._acquire(sig):
            overload = self._read(sig, target_context)  # another process may have saved it meanwhile
        return overload

    def _read(self, sig: Any, target_context: Any) -> Any:
        with self._locked(fcntl.LOCK_SH):
            return super()._load_overload(sig, target_context)  # type: ignore[no-untyped-call]

    def _save_overload(self, sig: Any, data: Any) -> None:
        with self._locked(fcntl.LOCK_EX):
            super()._save_overload(sig, data)  # type: ignore[no-untyped-call]

    def _acquire(self, sig: Any) -> bool:
        """Wait for the lock to compile for these types; return False if another process takes too long."""
        digest = hashlib.blake2b(str(sig).encode(), digest_size=8).hexdigest()
        path = Path(self.cache_path, f"{self._impl.filename_base}-{digest}.turn")
        file = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
        end = time.monotonic() + _WAIT
        while time.monotonic() < end:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.02)
            else:
                self._lock = file, path
                return True
        os.close(file)
        return False

    def release(self) -> None:
        """Release the lock after compiling."""
        if self._lock is not None:
            (file, path), self._lock = self._lock, None
            path.unlink(missing_ok=True)  # waiting processes have it open; others find the saved kernel or lock anew
            os.close(file)

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        Path(self.cache_path).mkdir(parents=True, exist_ok=True)  # a cache may be removed while processes run
        file = os.open(Path(self.cache_path, "lock"), os.O_RDONLY | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, how)
            yield
        finally:
            os.close(file)  # which releases it, as does the end of the process


def _compiled(function: Callable[..., Any], **options: bool) -> Callable[..., Any]:
    config: Any = numba.config
    previous = config.CACHE_DIR
    folder = Path(function.__code__.co_filename).parent
    if folder.is_relative_to(_LIBRARY):
        folder = _LIBRARY
    config.CACHE_DIR = str(cache_directory(folder))  # read at decoration; other packages keep their own directory
    try:
        compiled: Any = _njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True, **options)(function)
        if compiled is not function:  # NUMBA_DISABLE_JIT: kernels run as plain Python
            _share(compiled, _Cache(function))
            _widen_literals(compiled)
    finally:
        config.CACHE_DIR = previous
    kernel: Callable[..., Any] = compiled
    return kernel


def _share(dispatcher: Any, cache: _Cache) -> None:
    dispatcher._cache = cache
    compile_for = dispatcher.compile

    def compile_and_release(sig: Any) -> Any:
        with global_compiler_lock:  # numba's own lock of compiling threads
            try:
                return compile_for(sig)
            finally:
                cache.release()

    dispatcher.compile = compile_and_release


def _widen_literals(dispatcher: Any) -> None:
    """Compile for int64 where a kernel calls this function with a constant, too.

    numba would compile the function, and all that it calls, once more for each combination of constants. LLVM puts
    constants into the functions that it inlines anyway. This halves the time to compile nested functions.
    """
    template_for = dispatcher.get_call_template
    widen: Callable[[Any], Any] = types.unliteral

    def get_call_template(args: Any, kws: Any) -> Any:
        return template_for(tuple(map(widen, args)), {name: widen(kind) for name, kind in kws.items()})

    dispatcher.get_call_template = get_call_template


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` on first call: cached on disk, GIL released, strict IEEE arithmetic in program order.

    Kernels use neither `fastmath` nor `parallel`, because states must agree to the bit on every node and replay.
    """
    return _compiled(function)


def bare_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as `kernel`, without counting references to arguments and their views.

    Use it for small, frequent functions that create no arrays and call none that do. Counting would cost about 50 ns
    for each array of each call. Callers in Python keep the arrays alive meanwhile.
    """
    return _compiled(function, _nrt=False)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as `bare_kernel`, and inline the function into its callers: for small functions of hot loops.

    Cached functions are machine code, which cannot be inlined, so these are not cached themselves.
    """
    compiled: Any = _njit(nogil=True, error_model="numpy", _nrt=False, forceinline=True)(function)
    if compiled is not function:
        _widen_literals(compiled)
    result: Callable[..., Any] = compiled
    return result
