"""Tell whether a kernel would compile to other machine code: a digest of all that the compiler may read.

numba notices an edit of a kernel's file, but not of another file that the kernel calls, and would then run old machine
code. So the cache names a file after what the kernel reaches, by a walk over the objects themselves:

- the function: its bytecode, constants, defaults, the values that it closes over, and the options of its decorator
- what its names mean: other kernels in the same way; numbers, strings, arrays and tuples by value, because they become
  constants of the machine code; classes of named tuples by their fields; modules of ours by what the function names
- a function that is no kernel: it has a compiled form elsewhere in its module (see `simd`), as other classes may have.
  So it counts as the code of that module, and of all modules of ours that this one imports
- NumPy, numba and the standard library by name: the cache's directory is named after their versions

An edit of anything that a kernel reaches changes its digest. A comment, or code that no kernel reaches, changes none.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.core import types
from numba.core.dispatcher import Dispatcher

__all__ = ["is_external", "names_of", "reach", "reach_of_types"]

_EXTERNAL = frozenset({"numpy", "numba", "llvmlite", *sys.stdlib_module_names})
_ATOMS = (type(None), type(...), bool, int, float, complex, str, bytes, np.generic, np.dtype)
_COMPILER = "learners.numerics.jit"  # its code counts for every kernel, what it imports for none

Part = FunctionType | str  # what is described by itself: a kernel's function, or the name of a module


def reach(function: Callable[..., Any]) -> bytes:
    """Return a digest of all that the compiler may read to compile a function.

    Raises `TypeError` for a value whose change could not be noticed.
    """
    return _digest([function, _COMPILER])  # type: ignore[list-item]


def reach_of_types(arguments: Iterable[types.Type]) -> bytes:
    """Return a digest of the types of arguments: of their names, and of the fields of named tuples."""
    further: list[Part] = []
    text = "\n".join(_type(argument, further) for argument in arguments)
    return _digest(further, text)


def names_of(code: CodeType) -> Iterator[str]:
    """Return the names of globals and attributes in a function's code, and in that of functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_of(constant)


def _digest(waiting: list[Part], text: str = "") -> bytes:
    """Describe the parts, and all that they reach, each once."""
    result = hashlib.blake2b(text.encode(), digest_size=16)
    done = set()
    while waiting:
        part = waiting.pop()
        if part not in done:
            done.add(part)
            text, further = _described(part)
            result.update(text.encode())
            waiting.extend(further)
    return result.digest()


@functools.cache
def _described(part: Part) -> tuple[str, tuple[Part, ...]]:
    """Return a text that changes with a function or a module, and the parts that it reaches directly."""
    further: list[Part] = []
    text = _module(part, further) if isinstance(part, str) else _function(part, further)
    return text, tuple(further)


def _function(function: FunctionType, further: list[Part]) -> str:
    names = sorted(set(names_of(function.__code__)))
    values = {name: function.__globals__[name] for name in names if name in function.__globals__}
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    lines = [f"{function.__module__}.{function.__qualname__}", _code(function.__code__)]
    try:
        lines += [f"{name} = {_value(value, names, further)}" for name, value in values.items()]
        lines += [_value(value, names, further) for value in (*cells, function.__defaults__)]
    except TypeError as error:
        raise TypeError(f"the kernel {lines[0]}: {error}") from None
    return "\n".join(lines)


def _code(code: CodeType) -> str:
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    constants = [_constant(item) for item in code.co_consts]
    return repr((code.co_code, code.co_exceptiontable, code.co_argcount, code.co_flags, names, constants))


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, frozenset):  # whose order differs between processes
        return f"{sorted(map(_constant, value))}"
    return repr(value)


def _value(value: Any, names: list[str], further: list[Part]) -> str:
    """Return a text that changes with a value that a function with these names reaches."""
    if isinstance(value, _ATOMS):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape} {hashlib.blake2b(value.tobytes(), digest_size=16).hexdigest()}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} [{', '.join(_value(item, names, further) for item in value)}]"
    if isinstance(value, Dispatcher):
        further.append(value.py_func)
        return f"kernel {value.py_func.__module__}.{value.py_func.__qualname__} {sorted(value.targetoptions.items())}"
    if isinstance(value, types.Type):
        return _type(value, further)
    if isinstance(value, ModuleType):
        if is_external(value.__name__):
            return value.__name__
        members = {name: getattr(value, name) for name in names if hasattr(value, name)}
        return f"{value.__name__}: " + "; ".join(
            # without its own name: a module may be an attribute of itself
            f"{name} = {_value(member, [other for other in names if other != name], further)}"
            for name, member in members.items()
        )
    return _definition(value, further)


def _definition(value: Any, further: list[Part]) -> str:
    """Return the text of a class or a function that is no kernel."""
    name, module = getattr(value, "__qualname__", getattr(value, "__name__", None)), getattr(value, "__module__", None)
    if name is None or isinstance(value, np.ufunc):
        if isinstance(value, np.ufunc):
            return f"ufunc {value.__name__}"
        raise TypeError(f"the cache cannot tell whether {value!r} changes; use numbers, strings, arrays or tuples")
    fields = getattr(value, "_fields", None)
    if module is not None and fields is None and not is_external(module):
        further.append(module)
    return f"{module}.{name} {fields}"


def _type(kind: Any, further: list[Part]) -> str:
    """Return a text of a type of numba; equal names of two classes of named tuples do not make them equal."""
    if isinstance(kind, types.Dispatcher):
        return _value(kind.dispatcher, [], further)
    if isinstance(kind, types.BaseTuple):
        parts = ", ".join(_type(part, further) for part in kind)  # type: ignore[attr-defined]
        named = getattr(kind, "instance_class", tuple)
        return f"{named.__module__}.{named.__qualname__} {getattr(kind, 'fields', '')} ({parts})"
    return str(kind)


def _module(name: str, further: list[Part]) -> str:
    """Return the code of a module of ours, as text."""
    module = sys.modules[name]
    if not getattr(module, "__file__", None):
        raise TypeError(f"the module {name} has no file, so the cache cannot tell whether it changes")
    tree = ast.parse(Path(str(module.__file__)).read_text())
    if name != _COMPILER:
        further += _imports(tree, module)
    return _code(compile(tree, name, "exec"))


def _imports(tree: ast.Module, module: ModuleType) -> Iterator[str]:
    """Return the modules that a module imports from its own package or this one; others have versions."""
    ours = {_root(module.__name__), _root(_COMPILER)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = (module.__package__ or "").split(".")
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name in sys.modules and _root(name) in ours)


def is_external(module: str) -> bool:
    """Return whether a module belongs to NumPy, numba or the standard library."""
    return _root(module) in _EXTERNAL


def _root(module: str) -> str:
    return module.partition(".")[0]
