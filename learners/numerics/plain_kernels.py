"""Run a kernel as plain Python, with the bits of its machine code.

Python's numbers follow other rules than the compiler's: 1.0 / 0.0 is an error, and float32 times a float is a float32.
NumPy's numbers follow the compiler's rules. So arguments, constants and globals that are Python's floats become
float64, whole arguments become int64, and NumPy's warnings are off. Results become Python's numbers again, as a
compiled kernel returns them.

All that a kernel calls runs as plain Python, too: machine code would return Python's numbers into the middle of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from learners.numerics.kernel_reach import is_external, names_of

__all__ = ["plain"]

_MOST = 2**63 - 1  # a larger whole number is uint64 for the compiler
_functions: dict[FunctionType, FunctionType] = {}


def plain(function: Any) -> Callable[..., Any]:
    """Return a kernel's function as plain Python, to call in its place."""
    translated: list[FunctionType] = []  # once called: what it reaches may not be defined yet

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        if not translated:
            translated.append(_function(function))
        with np.errstate(all="ignore"):
            return _result(translated[0](*map(_argument, arguments)))

    call.py_func = function  # type: ignore[attr-defined]
    return call


def _argument(value: Any) -> Any:
    kind = type(value)
    if kind is float:
        return np.float64(value)
    if kind is int:
        return np.int64(value) if value <= _MOST else np.uint64(value)
    return _mapped(_argument, value) if isinstance(value, tuple) else value


def _result(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return _mapped(_result, value) if isinstance(value, tuple) else value


def _mapped(change: Callable[[Any], Any], values: Any) -> Any:
    """Return a tuple, or a named tuple, of changed values."""
    items = map(change, values)
    return values._make(items) if hasattr(values, "_make") else tuple(items)


def _function(function: FunctionType) -> FunctionType:
    """Return a copy with the compiler's rules for its constants, for its globals, and for all functions it calls."""
    if function not in _functions:
        names: dict[str, Any] = {"__builtins__": function.__globals__["__builtins__"]}
        copy = FunctionType(_code(function.__code__), names, function.__name__, None, function.__closure__)
        copy.__defaults__ = None if function.__defaults__ is None else _argument(function.__defaults__)
        _functions[function] = copy  # before its globals, which may contain it
        used = frozenset(names_of(function.__code__))
        for name in used & function.__globals__.keys():
            names[name] = _global(function.__globals__[name], used)
    return _functions[function]


def _code(code: CodeType) -> CodeType:
    return code.replace(co_consts=tuple(map(_constant, code.co_consts)))


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, tuple):
        return _mapped(_constant, value)
    return np.float64(value) if type(value) is float else value


def _global(value: Any, names: frozenset[str]) -> Any:
    """Return what a global, or an attribute of a module, means to a function with these names."""
    function = getattr(value, "py_func", value)
    if isinstance(function, FunctionType) and not is_external(function.__module__):
        return _function(function)
    if isinstance(value, ModuleType) and not is_external(value.__name__):
        members = {name: getattr(value, name) for name in names if hasattr(value, name)}
        return SimpleNamespace(**{name: _global(member, names - {name}) for name, member in members.items()})
    return _constant(value)
