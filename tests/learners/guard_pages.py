"""Arrays that end at the end of their memory: any access beyond one crashes the process at once.

Kernels check no bounds. A few bytes past an array are mostly still this process's, so a read there is seen by nobody,
until an array happens to end at the end of a page and the process dies of it. Here each array ends at such an end.
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

__all__ = ["fenced"]

_PAGE = mmap.PAGESIZE
_SET_HANDLER = 304  # PyDataMem_SetHandler's place in NumPy's table of functions for C
_FAILED = ctypes.c_void_p(-1).value  # what mmap gives where it fails
_FILLED = 0xFF  # fills other memory: float64 and float32 are NaN, integers -1

_Malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Calloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_Realloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _Handler(ctypes.Structure):
    """PyDataMem_Handler with its PyDataMemAllocator."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", _Malloc),
        ("calloc", _Calloc),
        ("realloc", _Realloc),
        ("free", _Free),
    )


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_blocks: dict[int, tuple[int, int, int]] = {}  # by an array's address: where its pages begin, their bytes, its own
_spare: defaultdict[int, list[int]] = defaultdict(list)  # by their bytes: where pages with a fence behind them begin


def _fence(pages: int) -> int | None:
    """Where so many bytes begin that end at a page that nobody may touch."""
    if _spare[pages]:
        return _spare[pages].pop()
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    start = _libc.mmap(None, pages + _PAGE, mmap.PROT_READ | mmap.PROT_WRITE, private, -1, 0)
    if start == _FAILED or _libc.mprotect(start + pages, _PAGE, 0):
        return None
    return int(start)


def _allocated(size: int, filled: int) -> int | None:
    aligned_size = max(8, -(-size // 8) * 8)  # as numbers are aligned
    pages = -(-aligned_size // _PAGE) * _PAGE
    start = _fence(pages)
    if start is None:
        return None  # which NumPy raises as a MemoryError
    address = start + pages - aligned_size
    ctypes.memset(address, filled, aligned_size)
    _blocks[address] = start, pages, aligned_size
    return address


def _malloc(_: int | None, size: int) -> int | None:
    return _allocated(size, _FILLED)


def _calloc(_: int | None, count: int, size: int) -> int | None:
    return _allocated(count * size, 0)


def _realloc(_: int | None, address: int | None, size: int) -> int | None:
    moved = _allocated(size, _FILLED)
    if moved is not None and address is not None:
        ctypes.memmove(moved, address, min(size, _blocks[address][2]))
        _free(None, address, 0)
    return moved


def _free(_: int | None, address: int | None, __: int) -> None:
    if address is not None:
        start, pages, _ = _blocks.pop(address)
        _spare[pages].append(start)


_handler = _Handler(b"fenced", 1, None, _Malloc(_malloc), _Calloc(_calloc), _Realloc(_realloc), _Free(_free))
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_handler))  # arrays that outlive this module are still freed by it


@atexit.register
def _leave() -> None:
    """At its end, Python cannot call Python functions to free memory, so it calls a C function without effect."""
    _handler.free = _Free(("getpid", _libc))


def _set(handler: object) -> object:
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    table = api.PyCapsule_GetPointer(_multiarray_umath._ARRAY_API, None)
    place = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[_SET_HANDLER]
    before: object = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(place)(handler)
    return before


@contextmanager
def fenced() -> Iterator[None]:
    """Let all memory that NumPy allocates in the block end at an inaccessible page; it starts as NaN or as 0.

    What a kernel allocates for itself does not. Slow; at most some 30,000 arrays at a time, or `MemoryError`.
    """
    api = ctypes.pythonapi
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    before = _set(api.PyCapsule_New(ctypes.addressof(_handler), b"mem_handler", None))
    try:
        assert np.lib.array_utils.byte_bounds(np.empty(3))[1] % _PAGE == 0
        yield
    finally:
        _set(before)


@pytest.fixture(autouse=True)
def _fenced() -> Iterator[None]:
    with fenced():
        yield
