"""Plain Python computes with the compiler's rules of numbers, and returns what a compiled kernel returns."""

from __future__ import annotations

import ast
import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba.core import config as numba_config

from learners.numerics import inlined, jit, kernel
from learners.numerics.plain_kernels import plain
from tests.docs.documents import ROOT
from tests.learners.numerics import test_plain_kernels as this_module

ZERO, PAIR = 0.0, (1.0, 3.0)


class Moments(NamedTuple):
    mean: float
    count: int


@inlined
def _ratio(x, y):
    return x / y


@kernel
def of_constants(n):
    return 1.0 / (n * ZERO), PAIR[0] / PAIR[1]


@kernel
def of_arguments(x, y):
    return x / y


@kernel
def of_whole_arguments(x, y):
    return x * y, x // y, x % y, x / y


@kernel
def of_single(values):
    return values[0] * 1.1, values[0] * values[1]


@kernel
def of_words(words):
    return words[0] * np.uint64(0xBF58476D1CE4E5B9)


@kernel
def of_a_callee(x):
    return _ratio(x, 0.0), of_arguments(1.0, x)


@kernel
def of_a_module(x):
    return this_module.of_arguments(x, this_module.ZERO)


@kernel
def of_moments(moments):
    return Moments(moments.mean / ZERO, moments.count + 1), moments.count > 0


@kernel
def of_nan(x):
    return math.sqrt(x) if x >= 0.0 else np.nan


CALLS: list[tuple[Any, tuple[Any, ...]]] = [
    (of_constants, (2,)),
    (of_arguments, (1.0, 0.0)),
    (of_arguments, (-0.0, 0.0)),
    (of_arguments, (np.float32(1.1), 3.0)),
    (of_whole_arguments, (7, 3)),
    (of_whole_arguments, (2**62, 4)),
    (of_single, (np.array([0.1, 0.7], np.float32),)),
    (of_words, (np.array([2**63 + 12345], np.uint64),)),
    (of_a_callee, (0.0,)),
    (of_a_module, (5.0,)),
    (of_moments, (Moments(2.0, 3),)),
    (of_nan, (-1.0,)),
]


@pytest.mark.skipif(bool(numba_config.DISABLE_JIT), reason="both would be plain Python")
@pytest.mark.parametrize(("kernel", "arguments"), CALLS)
def test_plain_python_returns_what_machine_code_returns(kernel, arguments):
    expected, actual = kernel(*arguments), plain(kernel.py_func)(*arguments)
    assert repr(actual) == repr(expected)  # types, signed zeros and NaN included


EXACT = {  # or rounded correctly, so that every way to compute it gives the same bits
    *("abs", "any", "arange", "argsort", "array", "ceil", "copysign", "empty", "floor", "frexp", "full", "inf"),
    *("isfinite", "isnan", "nan", "ones", "pi", "sort", "sqrt", "zeros"),
    *("float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "uint64"),
}
ROUNDED = {"cumsum", "dot", "mean", "prod", "std", "var"}  # of arrays: NumPy adds in another order than the compiler
BASES = {2.0, 10}  # whose powers are exact


@pytest.mark.parametrize("folder", ["learners", "service/wire/kernels"])
def test_kernels_use_nothing_that_rounds_otherwise_as_plain_python(folder):
    wrong = []
    for path in (ROOT / folder).rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and {
                name.id for name in function.decorator_list if isinstance(name, ast.Name)
            } & {"kernel", "bare_kernel", "inlined"}:
                wrong += [f"{path}:{node.lineno}" for node in ast.walk(function) if _rounds_otherwise(node)]
    assert not wrong


def _rounds_otherwise(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return not (isinstance(node.left, ast.Constant) and node.left.value in BASES)
    if isinstance(node, ast.Attribute):
        library = isinstance(node.value, ast.Name) and node.value.id in ("np", "math")
        return node.attr not in EXACT if library else node.attr in ROUNDED
    return False


def test_kernels_that_call_each_other():
    assert plain(_even.py_func)(4)
    assert not plain(_even.py_func)(5)


@jit.kernel
def _even(n):
    return True if n == 0 else _odd(n - 1)


@jit.kernel
def _odd(n):
    return False if n == 0 else _even(n - 1)
