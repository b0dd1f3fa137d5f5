"""SIMD vectors of eight float64, for sums whose order must be the same on every machine.

A compiler may vectorise a sum only if it may reorder it, and the result then differs by machine. So the order is fixed
here: eight running sums, and one tree that adds them. A processor with narrower vectors does the same additions in two
or four steps, with the same bits.

In a kernel each function below is one or a few instructions, and vectors support + - * /. Without compilation
(NUMBA_DISABLE_JIT=1) vectors are NumPy arrays (8,), with the same bits. For both to hold, a vector is never changed in
place: write `s = s + a`, not `s += a`.

Nothing checks bounds. Loads and stores take a C-ordered float64 or float32 array of one dimension, or a `row`. Numbers
of a strided float64 array are loaded one by one. Loads are fastest at multiples of 64 bytes, see `aligned`.

Vectors are float64. A float32 is loaded as the equal float64. A store rounds each lane once, to the nearest float32
(ties to even); values beyond the largest float32 become that one, never infinity.
"""

# mypy: disable-error-code=no-untyped-call
# numba's interface for extensions has no types

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model, type_callable

from learners.numerics.jit import kernel

__all__ = [
    "LARGEST_SINGLE",
    "WIDTH",
    "aligned",
    "aligned_like",
    "beyond",
    "larger",
    "load",
    "load_first",
    "pad",
    "padded",
    "put",
    "row",
    "spread",
    "square_root",
    "store",
    "store_first",
    "total",
    "unpad",
    "within",
]

WIDTH = 8  # lanes
LARGEST_SINGLE = float(np.finfo(np.float32).max)

# The meaning of the functions: this code runs without compilation.


def row(array: Any, *index: int) -> Any:
    """Return array[i] of two axes, or array[i, k] of three, to load from and store to.

    A view counts a reference to its array, which takes longer than summing a short row; a row does not. So `array` must
    be an argument of the kernel, which its caller keeps alive.
    """
    return array[index]


def load(a: Any, i: int) -> Any:
    """Load a[i] to a[i + 7]."""
    return a[i : i + WIDTH].astype(np.float64)


def load_first(a: Any, i: int, n: int) -> Any:
    """Load a[i] to a[i + n - 1], then zeros; n is from 1 to 7."""
    vector = np.zeros(WIDTH)
    vector[:n] = a[i : i + n]
    return vector


def store(a: Any, i: int, vector: Any) -> None:
    """Store the eight lanes to a[i] to a[i + 7]."""
    a[i : i + WIDTH] = _as_stored(a, vector)


def put(a: Any, i: int, vector: Any) -> Any:
    """Store lanes within the range of float32, and return them as `a` has them, rounded or not."""
    a[i : i + WIDTH] = vector
    return load(a, i)


def store_first(a: Any, i: int, n: int, vector: Any) -> None:
    """Store the first n lanes to a[i] to a[i + n - 1]; n is from 1 to 7."""
    a[i : i + n] = _as_stored(a, vector)[:n]


def _as_stored(a: Any, vector: Any) -> Any:
    return vector if a.itemsize == 8 else np.clip(vector, -LARGEST_SINGLE, LARGEST_SINGLE)


def within(a: Any, x: float) -> Any:
    """Clamp x to the range of float32 if `a` is float32, so that no number of `a` becomes infinite.

    Use it for single stores: `a[i] = within(a, x)`, where the assignment rounds. `a` is an array of any shape.
    """
    if a.itemsize == 8:
        return x
    return LARGEST_SINGLE if x > LARGEST_SINGLE else -LARGEST_SINGLE if x < -LARGEST_SINGLE else x


def spread(x: float) -> Any:
    """Return x in each lane."""
    return np.full(WIDTH, x)


def larger(left: Any, right: Any) -> Any:
    """Return the larger number in each lane; `right` if they are equal or not comparable."""
    return np.where(left > right, left, right)


def beyond(vector: Any, bounds: Any) -> Any:
    """Return each lane whose size is more than its bound, and 0 for the others."""
    return np.where(np.abs(vector) > bounds, vector, 0.0)


def square_root(vector: Any) -> Any:
    """Return the square root of each lane."""
    return np.sqrt(vector)


def total(vector: Any) -> Any:
    """Sum the lanes by a fixed tree: lanes four apart first, then two, then one."""
    four = vector[:4] + vector[4:]
    return (four[0] + four[2]) + (four[1] + four[3])


@kernel
def padded(n):  # type: ignore[no-untyped-def]
    """Round n up to a multiple of 8."""
    return -(-n // WIDTH) * WIDTH


@kernel
def aligned(n):  # type: ignore[no-untyped-def]
    """Return zeros (n,) that begin at a multiple of 64 bytes, so that aligned vectors are in one cache line."""
    block = np.zeros(n + WIDTH)
    start = (-block.ctypes.data // 8) % WIDTH
    return block[start : start + n]


@kernel
def aligned_like(a, n):  # type: ignore[no-untyped-def]
    """Return aligned zeros (n,) with the dtype of `a`, for working copies that round as `a` would."""
    places = 64 // a.itemsize
    block = np.zeros(n + places, a.dtype)
    start = (-block.ctypes.data // a.itemsize) % places
    return block[start : start + n]


# The compiled form: two numba types, and LLVM instructions on <8 x double>.

_DOUBLE, _SINGLE, _INT32, _INT64 = ir.DoubleType(), ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR, _HALVED = ir.VectorType(_DOUBLE, WIDTH), ir.VectorType(_SINGLE, WIDTH)
_FLOATS = (types.float64, types.float32)


class _VectorType(types.Type):
    """A vector of eight lanes."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


class _RowType(types.Type):
    """The address of a row with this dtype."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Row({dtype})")


@register_model(_VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


@register_model(_RowType)
class _RowModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, (_SINGLE if _single(kind) else _DOUBLE).as_pointer())


_LANES = _VectorType()


def _single(kind: Any) -> bool:
    """Return whether an array or a row is float32."""
    return bool(kind.dtype == types.float32)


def _array(kind: Any, axes: int) -> bool:
    return isinstance(kind, types.Array) and kind.dtype in _FLOATS and (kind.ndim, kind.layout) == (axes, "C")


def _strided(kind: Any) -> bool:
    """Return whether an array has one axis and possibly a stride, as a column has."""
    return isinstance(kind, types.Array) and (kind.dtype, kind.ndim, kind.layout) == (types.float64, 1, "A")


def _place(kind: Any) -> bool:
    return isinstance(kind, _RowType) or _array(kind, 1)


def _compiled(function: Callable[..., Any], typed: Callable[..., Any]) -> Callable[[Callable[..., Any]], None]:
    """Register the decorated code as the compiled form of `function`, with the signature that `typed` returns.

    `typed` takes the types of the arguments, and returns None if they do not fit; numba converts the arguments to the
    signature. The code takes the builder, the types and the values of the arguments.
    """

    def register(code: Callable[..., Any]) -> None:
        def lower(context: Any, builder: Any, called: Any, arguments: Any) -> Any:
            value = code(context, builder, called.args, *arguments)
            return context.get_dummy_value() if value is None else value

        type_callable(function)(lambda _: typed)
        lower_builtin(function, types.VarArg(types.Any))(lower)

    return register


def _constant(*numbers: int) -> Any:
    return ir.Constant(ir.VectorType(_INT32, len(numbers)), list(numbers))


def _shuffled(builder: Any, vector: Any, *lanes: int) -> Any:
    """Return the chosen lanes in this order."""
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), _constant(*lanes))


def _in_each_lane(builder: Any, value: Any) -> Any:
    empty = ir.Constant(ir.VectorType(value.type, WIDTH), ir.Undefined)
    return _shuffled(builder, builder.insert_element(empty, value, _INT64(0)), *[0] * WIDTH)


def _address(context: Any, builder: Any, kind: Any, place: Any, i: Any) -> Any:
    """Return the address of the eight numbers from index i."""
    first = place if isinstance(kind, _RowType) else context.make_array(kind)(context, builder, place).data
    return builder.bitcast(builder.gep(first, [i]), _vector(kind).as_pointer())


def _vector(kind: Any) -> Any:
    """Return the LLVM type of eight numbers of an array or a row."""
    return _HALVED if _single(kind) else _VECTOR


def _alignment(kind: Any) -> int:
    """Return the alignment of its numbers in bytes."""
    return 4 if _single(kind) else 8


def _widened(builder: Any, kind: Any, numbers: Any) -> Any:
    """Convert eight numbers of this kind to lanes."""
    return builder.fpext(numbers, _VECTOR) if _single(kind) else numbers


def _narrowed(builder: Any, kind: Any, vector: Any) -> Any:
    """Convert lanes to eight numbers of this kind."""
    return builder.fptrunc(_clamped(builder, vector), _HALVED) if _single(kind) else vector


def _clamped(builder: Any, x: Any) -> Any:
    """Clamp a float64 or lanes to the range of float32."""
    many = isinstance(x.type, ir.VectorType)
    for sign, beyond in ((1.0, ">"), (-1.0, "<")):
        end = ir.Constant(x.type, [sign * LARGEST_SINGLE] * WIDTH if many else sign * LARGEST_SINGLE)
        x = builder.select(builder.fcmp_ordered(beyond, x, end), end, x)
    return x


def _llvm(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Call an LLVM intrinsic."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(builder.module.globals.get(name) or ir.Function(builder.module, kind, name), arguments)


def _first(builder: Any, n: Any) -> Any:
    """Return a mask of the first n lanes; no memory of the others is accessed."""
    return builder.icmp_signed(
        "<", ir.Constant(ir.VectorType(_INT64, WIDTH), [*range(WIDTH)]), _in_each_lane(builder, n)
    )


def _row_of(array: Any, i: Any, k: Any = None) -> Any:
    indices = [i] if k is None else [i, k]
    if _array(array, 1 + len(indices)):
        return signature(_RowType(array.dtype), array, *(types.intp for _ in indices))
    return None


@_compiled(row, _row_of)
def _row(context: Any, builder: Any, kinds: Any, array: Any, *index: Any) -> Any:
    view = context.make_array(kinds[0])(context, builder, array)
    before: Any = _INT64(0)
    for axis, i in enumerate(index):
        before = builder.mul(builder.add(before, i), builder.extract_value(view.shape, axis + 1))
    return builder.gep(view.data, [before])


def _one_by_one(context: Any, builder: Any, kind: Any, a: Any, i: Any, n: Any) -> Any:
    """Load the first n lanes from a strided array; the others are 0, and their memory is not accessed."""
    view = context.make_array(kind)(context, builder, a)
    stride = builder.extract_value(view.strides, 0)
    vector: Any = ir.Constant(_VECTOR, ir.Undefined)
    for k in range(WIDTH):
        inside = builder.icmp_signed("<", _INT64(k), n)
        before = builder.mul(builder.add(i, builder.select(inside, _INT64(k), _INT64(0))), stride)
        start = builder.bitcast(view.data, ir.IntType(8).as_pointer())
        number = builder.load(builder.bitcast(builder.gep(start, [before]), _DOUBLE.as_pointer()))
        vector = builder.insert_element(vector, builder.select(inside, number, _DOUBLE(0.0)), _INT64(k))
    return vector


@_compiled(load, lambda a, i: signature(_LANES, a, types.intp) if _place(a) or _strided(a) else None)  # noqa: ARG005
def _load(context: Any, builder: Any, kinds: Any, a: Any, i: Any) -> Any:
    if _strided(kinds[0]):
        return _one_by_one(context, builder, kinds[0], a, i, _INT64(WIDTH))
    numbers = builder.load(_address(context, builder, kinds[0], a, i), align=_alignment(kinds[0]))
    return _widened(builder, kinds[0], numbers)


@_compiled(
    load_first,
    lambda a, i, n: signature(_LANES, a, types.intp, types.intp) if _place(a) or _strided(a) else None,  # noqa: ARG005
)
def _load_first(context: Any, builder: Any, kinds: Any, a: Any, i: Any, n: Any) -> Any:
    if _strided(kinds[0]):
        return _one_by_one(context, builder, kinds[0], a, i, n)
    kind, vector = kinds[0], _vector(kinds[0])
    place, zeros = _address(context, builder, kind, a, i), ir.Constant(vector, [0.0] * WIDTH)
    name = f"llvm.masked.load.v{WIDTH}f{8 * _alignment(kind)}.p0"
    numbers = _llvm(builder, name, vector, place, _INT32(_alignment(kind)), _first(builder, n), zeros)
    return _widened(builder, kind, numbers)


@_compiled(store, lambda a, i, vector: signature(types.void, a, types.intp, vector) if _place(a) else None)  # noqa: ARG005
def _store(context: Any, builder: Any, kinds: Any, a: Any, i: Any, vector: Any) -> None:
    numbers = _narrowed(builder, kinds[0], vector)
    builder.store(numbers, _address(context, builder, kinds[0], a, i), align=_alignment(kinds[0]))


@_compiled(
    store_first,
    lambda a, i, n, vector: signature(types.void, a, types.intp, types.intp, vector) if _place(a) else None,  # noqa: ARG005
)
def _store_first(context: Any, builder: Any, kinds: Any, a: Any, i: Any, n: Any, vector: Any) -> None:
    kind = kinds[0]
    place, numbers = _address(context, builder, kind, a, i), _narrowed(builder, kind, vector)
    name = f"llvm.masked.store.v{WIDTH}f{8 * _alignment(kind)}.p0"
    _llvm(builder, name, ir.VoidType(), numbers, place, _INT32(_alignment(kind)), _first(builder, n))


@_compiled(put, lambda a, i, vector: signature(_LANES, a, types.intp, vector) if _place(a) else None)  # noqa: ARG005
def _put(context: Any, builder: Any, kinds: Any, a: Any, i: Any, vector: Any) -> Any:
    numbers = builder.fptrunc(vector, _HALVED) if _single(kinds[0]) else vector
    builder.store(numbers, _address(context, builder, kinds[0], a, i), align=_alignment(kinds[0]))
    return _widened(builder, kinds[0], numbers)


def _within_of(a: Any, x: Any) -> Any:  # noqa: ARG001
    return signature(types.float64, a, types.float64) if isinstance(a, types.Array) and a.dtype in _FLOATS else None


@_compiled(within, _within_of)
def _within(context: Any, builder: Any, kinds: Any, a: Any, x: Any) -> Any:  # noqa: ARG001
    return _clamped(builder, x) if _single(kinds[0]) else x


@_compiled(spread, lambda x: signature(_LANES, types.float64))  # noqa: ARG005
def _spread(context: Any, builder: Any, kinds: Any, x: Any) -> Any:  # noqa: ARG001
    return _in_each_lane(builder, x)


@_compiled(larger, lambda left, right: signature(_LANES, left, right) if left == right == _LANES else None)
def _larger(context: Any, builder: Any, kinds: Any, left: Any, right: Any) -> Any:  # noqa: ARG001
    return builder.select(builder.fcmp_ordered(">", left, right), left, right)


@_compiled(beyond, lambda vector, bounds: signature(_LANES, vector, bounds) if vector == bounds == _LANES else None)
def _beyond(context: Any, builder: Any, kinds: Any, vector: Any, bounds: Any) -> Any:  # noqa: ARG001
    sizes = _llvm(builder, f"llvm.fabs.v{WIDTH}f64", _VECTOR, vector)
    zeros = ir.Constant(_VECTOR, [0.0] * WIDTH)
    return builder.select(builder.fcmp_ordered(">", sizes, bounds), vector, zeros)


@_compiled(square_root, lambda vector: signature(_LANES, vector) if isinstance(vector, _VectorType) else None)
def _square_root(context: Any, builder: Any, kinds: Any, vector: Any) -> Any:  # noqa: ARG001
    return _llvm(builder, f"llvm.sqrt.v{WIDTH}f64", _VECTOR, vector)


@_compiled(total, lambda vector: signature(types.float64, vector) if isinstance(vector, _VectorType) else None)
def _total(context: Any, builder: Any, kinds: Any, vector: Any) -> Any:  # noqa: ARG001
    for half in (4, 2, 1):
        low, high = range(half), range(half, 2 * half)
        vector = builder.fadd(_shuffled(builder, vector, *low), _shuffled(builder, vector, *high))
    return builder.extract_element(vector, _INT64(0))


def _operator(operation: Callable[[Any, Any], Any], instruction: str) -> None:
    def lower(context: Any, builder: Any, called: Any, arguments: Any) -> Any:  # noqa: ARG001
        return getattr(builder, instruction)(*arguments)

    infer_global(operation)(type("_Lanes", (ConcreteTemplate,), {"cases": [signature(_LANES, _LANES, _LANES)]}))
    lower_builtin(operation, _LANES, _LANES)(lower)


_operator(operator.add, "fadd")
_operator(operator.sub, "fsub")
_operator(operator.mul, "fmul")
_operator(operator.truediv, "fdiv")


# Kernels of them.


@kernel
def pad(source, n, target):  # type: ignore[no-untyped-def]
    """target[i] = source[i] for the first n places; up to the next multiple of 8 it becomes 0."""
    full = n - n % WIDTH
    for i in range(0, full, WIDTH):
        store(target, i, load(source, i))
    for i in range(full, n, WIDTH):  # at most once
        store(target, i, load_first(source, i, n - full))


@kernel
def unpad(source, n, target):  # type: ignore[no-untyped-def]
    """target[i] = source[i] for the first n places, and no others."""
    full = n - n % WIDTH
    for i in range(0, full, WIDTH):
        store(target, i, load(source, i))
    for i in range(full, n, WIDTH):  # at most once
        store_first(target, i, n - full, load_first(source, i, n - full))
