"""How every kernel of the library is compiled: one decorator, one cache.

numba's on-disk cache notices an edit of the file a kernel stands in, but not of another file that the kernel calls
into, and would then run the old machine code. So the cache directory is named after a hash of all sources of this
package, however deep (and of the numba that compiles them): an edit anywhere starts an empty cache, and stale code
cannot be served. Kernels of another package have a directory named after its folder's sources too, as they may call
these.

The directory lies in `NUMBA_CACHE_DIR` where that is set, else in the user's cache directory, else, where that cannot
be written, in a private temporary directory (kernels then compile once per process). Processes read and write it one
after the other, by a lock on a file in it; of those that need the same kernel at once, one compiles it.
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

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock

__all__ = ["bare_kernel", "cache_directory", "inlined", "kernel"]

_OURS = re.compile(r"kernels-[0-9a-f]{16}")
_KEPT_DAYS = 30  # cache directories of older sources that nobody used for so long are removed
_TURN = 60.0  # seconds to wait for another process that compiles the same: it may be stopped
_HERE = Path(__file__).parents[1]  # the library: every package of it
_njit: Any = numba.njit  # numba's types leave out the option that switches its counting of references off


def _key(folder: Path) -> str:
    digest = hashlib.blake2b(digest_size=8)
    version = ".".join(map(str, sys.version_info[:3]))
    digest.update(f"{numba.__version__} {np.__version__} {version}".encode())
    for place in (_HERE,) if folder == _HERE else (_HERE, folder):
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
    before = time.time() - _KEPT_DAYS * 86400
    for other in base.glob("kernels-*"):
        try:
            if other == current or not _OURS.fullmatch(other.name) or other.stat().st_mtime > before:
                continue
            shutil.rmtree(other)
        except OSError:  # another process is at it, or it is not ours: either way it is not needed here
            continue


_directories: dict[Path, Path] = {}


def cache_directory(folder: Path = _HERE) -> Path:
    """Where the compiled kernels of these very sources are kept, those that stand in `folder`."""
    if folder not in _directories:
        _directories[folder] = _open_cache(folder)
    return _directories[folder]


class _Cache(FunctionCache):
    """numba's, for several processes at once.

    Its own gives files the numbers that its index does not have: processes that save at the same moment, each for other
    types of arguments, write the same one, and whoever loads it later runs the code for the wrong types. And each would
    compile what another is compiling already: here they take turns, kernel by kernel, so that the next finds it done.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._turn: tuple[int, Path] | None = None  # what is locked: the descriptor, and its file

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        found = self._loaded(sig, target_context)
        if found is None and self._turn is None and self._take_turn(sig):
            found = self._loaded(sig, target_context)  # whose turn it was has saved it
        return found

    def _loaded(self, sig: Any, target_context: Any) -> Any:
        with self._alone(fcntl.LOCK_SH):
            return super()._load_overload(sig, target_context)  # type: ignore[no-untyped-call]

    def _save_overload(self, sig: Any, data: Any) -> None:
        with self._alone(fcntl.LOCK_EX):
            super()._save_overload(sig, data)  # type: ignore[no-untyped-call]

    def _take_turn(self, sig: Any) -> bool:
        """Whether this process is the one to compile for these types now, or another is for too long."""
        digest = hashlib.blake2b(str(sig).encode(), digest_size=8).hexdigest()
        path = Path(self.cache_path, f"{self._impl.filename_base}-{digest}.turn")
        file = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
        end = time.monotonic() + _TURN
        while time.monotonic() < end:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.02)
            else:
                self._turn = file, path
                return True
        os.close(file)
        return False

    def pass_on(self) -> None:
        """Whoever waits for this process to compile need not any longer."""
        if self._turn is not None:
            (file, path), self._turn = self._turn, None
            path.unlink(missing_ok=True)  # who waits has it open; others find what was saved, or take a turn anew
            os.close(file)

    @contextmanager
    def _alone(self, how: int) -> Iterator[None]:
        Path(self.cache_path).mkdir(parents=True, exist_ok=True)  # whoever removes a cache need not stop anything
        file = os.open(Path(self.cache_path, "lock"), os.O_RDONLY | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, how)
            yield
        finally:
            os.close(file)  # which lets go of it, as does the end of the process


def _compiled(function: Callable[..., Any], **options: bool) -> Callable[..., Any]:
    config: Any = numba.config
    previous = config.CACHE_DIR
    folder = Path(function.__code__.co_filename).parent
    if folder.is_relative_to(_HERE):
        folder = _HERE
    config.CACHE_DIR = str(cache_directory(folder))  # read at decoration; other packages keep their own directory
    try:
        compiled: Any = _njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        if compiled is not function:  # which it is where kernels are to run as plain Python
            _take_turns(compiled, _Cache(function))
    finally:
        config.CACHE_DIR = previous
    kernel: Callable[..., Any] = compiled
    return kernel


def _take_turns(dispatcher: Any, cache: _Cache) -> None:
    dispatcher._cache = cache
    compile_for = dispatcher.compile

    def compile_in_turn(sig: Any) -> Any:
        with global_compiler_lock:  # numba's own, which any thread takes that compiles
            try:
                return compile_for(sig)
            finally:
                cache.pass_on()

    dispatcher.compile = compile_in_turn


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` on first call: cached on disk, GIL released, strict IEEE arithmetic in program order.

    Neither `fastmath` nor `parallel`: a state must come out the same to the bit on every node and on every replay.
    """
    return _compiled(function)


def bare_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, for what makes no array, nor calls what does: references to its arguments are not counted, nor to
    views of them.

    For small work done often: for each array of each call an object would be made that counts, some 50 ns, and two
    atomic operations would take as long as reading a number. Whoever calls it from Python holds the arrays meanwhile.
    """
    return _compiled(function, _nrt=False)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `bare_kernel`, for a small function of a hot loop: it becomes a part of whoever calls it.

    What comes from numba's cache is machine code already and can only be called, so these are not cached by themselves.
    """
    compiled: Callable[..., Any] = _njit(nogil=True, error_model="numpy", _nrt=False, forceinline=True)(function)
    return compiled
