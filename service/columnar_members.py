"""The members of a MessagePack body: a map of arrays and lists, checked, with a pointer to everything that is wrong."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from learners.arrays import Vector
from learners.features import MAX_PROBLEMS
from learners.parameters import Problem, pointer, show
from service.errors import BadBody, Invalid
from service.precise import MAX_EVENTS

__all__ = ["DTYPES", "FLOATS", "Members"]

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
    "int8": np.dtype("i1"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "uint64": np.dtype("<u8"),
}
FLOATS = ("float32", "float64")
_NUMBERS = (int, float, type(None))
_MOST = 2**31  # of one size of a shape

_decode = msgspec.msgpack.Decoder().decode


class Members:
    """What a body has, by name; notes everything that is wrong with it."""

    def __init__(self, body: bytes, known: Collection[str]) -> None:
        """Raises `BadBody` for what is not MessagePack, and `Invalid` for what is no map."""
        self.problems: list[Problem] = []
        try:
            members = _decode(body)
        except (msgspec.DecodeError, UnicodeError, ValueError) as error:
            raise BadBody(f"the body is not MessagePack: {error}") from None
        except RecursionError:
            raise BadBody("the body is nested too deeply") from None
        if not isinstance(members, dict):
            raise Invalid("the body is not a map", [Problem("", f"is {show(members)}; expected a map")])
        self.members = members
        self.only(members, known, "")

    def note(self, where: str, detail: str) -> None:
        """Something is wrong with a member."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(where, detail))

    def check(self) -> None:
        """Refuse the body if anything was noted."""
        if self.problems:
            least = "at least " if len(self.problems) == MAX_PROBLEMS else ""
            values = "value" if len(self.problems) == 1 else "values"
            raise Invalid(f"refused {least}{len(self.problems)} {values}; nothing was changed", self.problems)

    def numbers(self, name: str, n: int, missing: float) -> Vector | None:
        """A column of numbers as float64, if there is one; nil becomes `missing`."""
        given = self.members.get(name)
        column = None if given is None else self.column(given, f"/{name}", n, FLOATS)
        if column is None:
            return None
        if not isinstance(column, list):
            return column.astype(np.float64)
        if set(map(type, column)) == {type(None)}:
            return None
        for i, one in enumerate(column):
            if type(one) not in _NUMBERS:
                self.note(f"/{name}/{i}", f"is {show(one)}; expected a number or nil")
                return None
        return np.array([missing if one is None else one for one in column], dtype=np.float64)

    def within(self, where: str, values: Vector, good: NDArray[np.bool_], expected: str) -> None:
        """Note every number of a column that is not `good` (n,)."""
        if not good.all():
            for i in np.flatnonzero(~good)[:MAX_PROBLEMS].tolist():
                self.note(f"{where}/{i}", f"is {show(values.item(i))}; expected {expected}")

    def only(self, members: dict[Any, Any], known: Collection[str], where: str) -> None:
        """Note every member that is not one of those known."""
        for name in members:
            if name not in known:
                self.note(where + pointer(name), f"is not a member here; expected {', '.join(known)}")

    def bounded(self, n: int, where: str, shown: Any) -> bool:
        """Whether there are as many events as there may be."""
        if 0 < n <= MAX_EVENTS:
            return True
        found = "missing" if shown is None else f"{show(shown)}, {n} events"
        self.note(where, f"is {found}; expected 1 to {MAX_EVENTS} events")
        return False

    def column(self, given: Any, where: str, n: int | None, dtypes: Collection[str]) -> NDArray[Any] | list[Any] | None:
        """A list or a one-dimensional array, of n events where their number is known."""
        column = given if isinstance(given, list) else self.array(given, where, dtypes, 1, "a list or ")
        if column is not None and n is not None and len(column) != n:
            self.note(where, f"has {len(column)} entries for {n} events")
            return None
        return column

    def array(self, given: Any, where: str, dtypes: Collection[str], ndim: int, other: str = "") -> NDArray[Any] | None:
        """An ARRAY as a read-only view of the body."""
        if not isinstance(given, dict) or given.keys() != {"dtype", "shape", "data"}:
            what = "missing" if given is None else show(given)
            self.note(where, f"is {what}; expected {other}an array: a map of dtype, shape and data")
            return None
        dtype, shape, data = given["dtype"], given["shape"], given["data"]
        if not isinstance(dtype, str) or dtype not in dtypes:
            self.note(f"{where}/dtype", f"is {show(dtype)}; expected one of {', '.join(dtypes)}")
            return None
        whole = isinstance(shape, list) and all(type(k) is int and 0 <= k < _MOST for k in shape)
        if not whole or len(shape) != ndim:
            self.note(f"{where}/shape", f"is {show(shape)}; expected {ndim} {'size' if ndim == 1 else 'sizes'}")
            return None
        if not isinstance(data, bytes):
            self.note(f"{where}/data", f"is {show(data)}; expected bytes")
            return None
        if math.prod(shape) * DTYPES[dtype].itemsize != len(data):
            size = math.prod(shape) * DTYPES[dtype].itemsize
            self.note(f"{where}/data", f"has {len(data)} bytes; {dtype} of shape {show(shape)} takes {show(size)}")
            return None
        return np.frombuffer(data, dtype=DTYPES[dtype]).reshape(shape)
