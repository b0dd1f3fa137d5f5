"""Twins of the kernels in C (`kernels.c`), compiled on this machine as a reference for the speed of compiled Python.

`cc -O3 -march=native` is the usual choice in C; sums use SIMD by hand, as in the kernels. Each twin works on the arrays
of the state of the algorithm. So both run on the same state and rows, and their results can be compared.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from learners.numerics.arrays import Floats, Matrix, Vector, normal_quantile

__all__ = ["FLAGS", "TWINS", "Twin", "compiled", "version"]

FLAGS = ("-O3", "-march=native", "-fno-math-errno")  # with errno, loops with a square root are not vectorised
SOURCE = Path(__file__).with_name("kernels.c")

Twin = Callable[..., Callable[[], int]]
"""(library, params, state, X, y, weight, scores) -> a call that learns the rows and returns the steps made."""


def compiled(folder: Path) -> ctypes.CDLL | None:
    """Compile the twins to a library in `folder`; return None without a working compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    path = folder / "kernels.so"
    command = [compiler, *FLAGS, "-shared", "-fPIC", "-o", str(path), str(SOURCE), "-lm"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return None
    return ctypes.CDLL(str(path))


def version() -> str:
    """Return the name and version of the compiler."""
    output = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=False).stdout
    return output.partition("\n")[0]


def _call(function: Any, *arguments: float | Floats | Any) -> Callable[[], int]:
    """Bind a C function to integers, floats and arrays; the result keeps them alive."""
    converted: list[Any] = []
    for argument in arguments:
        if isinstance(argument, float):
            converted.append(ctypes.c_double(argument))
        elif isinstance(argument, int):
            converted.append(ctypes.c_long(argument))
        else:
            converted.append(ctypes.c_void_p(argument.ctypes.data))
    function.restype = ctypes.c_long
    return lambda: int(function(*converted) if arguments else 0)


def _cbr(library: Any, params: Any, state: Any, X: Matrix, y: Vector, weight: Vector, scores: Vector) -> Any:
    sizes = (*X.shape, len(state.packed), params.capacity)
    changed = (state.mu, state.packed, state.buffer, state.bounds, state.seen)
    return _call(library.cbr, *sizes, X, y, weight, params.C, normal_quantile(params.eta), scores, *changed)


def _cbr_diag(library: Any, params: Any, state: Any, X: Matrix, y: Vector, weight: Vector, scores: Vector) -> Any:
    changed = (state.mu, state.G, state.values, state.lengths, state.seen)
    constants = (params.C, normal_quantile(params.eta))
    return _call(library.cbr_diag, *X.shape, params.capacity, X, y, weight, *constants, scores, *changed)


def _loam_ilsc(library: Any, params: Any, state: Any, X: Matrix, y: Vector, weight: Vector, scores: Vector) -> Any:
    changed = (state.w, state.packed, state.energy, state.sums, state.seen)
    return _call(library.loam_ilsc, *X.shape, len(state.packed), X, y, weight, params.lam, scores, *changed)


def _loam_ada(library: Any, params: Any, state: Any, X: Matrix, y: Vector, weight: Vector, scores: Vector) -> Any:
    constants = (params.eta, params.lam, params.delta)
    return _call(library.loam_ada, *X.shape, X, y, weight, *constants, scores, *state)


def _fofo(library: Any, params: Any, state: Any, X: Matrix, y: Vector, weight: Vector, scores: Vector) -> Any:
    return _call(library.fofo, *X.shape, X, y, weight, params.c, scores, state.w, state.bias, state.clock)


TWINS: dict[str, Twin] = {
    "cbr": _cbr,
    "cbr-diag": _cbr_diag,
    "loam-ilsc": _loam_ilsc,
    "loam-ada": _loam_ada,
    "fofo": _fofo,
}
"""By algorithm, with its default settings but for the capacity."""
