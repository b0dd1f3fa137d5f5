"""Check the members of a MessagePack body, a map of arrays and lists, with a pointer to every problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from learners import ABSENT, Problem, length_mismatch, show
from learners.features import MAX_PROBLEMS
from learners.numerics import Vector
from service.errors import BadBody, Invalid
from service.wire.json_errors import MAX_EVENTS
from service.wire.kernels import FLOATS
from service.wire.msgpack_bounds import (
    MAX_SIZE,
    NIL,
    Cell,
    Entries,
    PackedArray,
    cells,
    glance,
    length,
    members,
    opened,
    scalars,
)

__all__ = ["DTYPES", "WHOLE", "Members"]

DTYPES: dict[str, np.dtype[Any]] = {
    **FLOATS,
    "bool": np.dtype("u1"),  # any byte but 0 is true, which NumPy's own type does not say
    "int8": np.dtype("i1"),
    "uint8": np.dtype("u1"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "uint64": np.dtype("<u8"),
}
WHOLE = ("int8", "uint8", "int32", "int64", "uint64")
_PARTS = ("dtype", "shape", "data")  # of an array
_NUMBERS = (int, float, type(None))
_MEMBERS = 100  # of a body; the routes know eight
_GLANCE = 64  # bytes of a body in which it begins

_whole = msgspec.msgpack.Decoder(msgspec.Raw).decode
_array = msgspec.msgpack.Decoder(PackedArray).decode
_entries = msgspec.msgpack.Decoder(PackedArray | Entries).decode
_cells = msgspec.msgpack.Decoder(PackedArray | Annotated[list[Cell], msgspec.Meta(max_length=MAX_EVENTS)]).decode


class Members:
    """The members of a body by name, and every problem with them."""

    def __init__(self, body: bytes, allowed: Collection[str]) -> None:
        """Read the body. Raises `BadBody` if it is no MessagePack, and `Invalid` if it is no map."""
        self.problems: list[Problem] = []
        try:
            actual = members(body, _MEMBERS)
            if actual is None:
                kind, n = length(body)
                what = f"has {n} members" if kind == "map" else f"is {show(glance(_whole(body)))}"
                detail = f"{what}; expected a map of {', '.join(allowed)}{_hint(body)}"
                problem = Problem("", detail, expected={"type": "object", "maxProperties": _MEMBERS})
                raise Invalid("the body is not a map of a few members", [problem])
        except (msgspec.DecodeError, UnicodeError) as error:
            raise BadBody(f"the body is not MessagePack: {error}{_hint(body)}") from None
        except RecursionError:
            raise BadBody("the body is nested too deeply") from None
        self.only(actual, allowed, "")
        if NIL in actual.values():
            actual = {name: value for name, value in actual.items() if value != NIL}
        self.members = actual  # as they came, but for those that are nil

    def note(self, problem: Problem) -> None:
        """Add an error of a member to those reported, of which there is a largest number."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)

    def check(self) -> None:
        """Refuse the body if anything was noted."""
        if self.problems:
            least = "at least " if len(self.problems) == MAX_PROBLEMS else ""
            values = "value" if len(self.problems) == 1 else "values"
            raise Invalid(f"refused {least}{len(self.problems)} {values}", self.problems)

    def numbers(
        self,
        name: str,
        n: int,
        missing: float,
        parse: Callable[[str], float | None] | None = None,
        words: str = "a number or nil",
        expected: Mapping[str, Any] | None = None,
    ) -> Vector | None:
        """Return a column of numbers as float64, if there is one; nil becomes `missing`.

        `parse`: also takes text, and returns its number, or None if it is none. `words` and `expected`, a JSON schema,
        say what an entry must be.
        """
        value = self.members.get(name)
        column = None if value is None else self.column(value, f"/{name}", n, (*FLOATS, *WHOLE))
        if column is None:
            return None
        if not isinstance(column, list):
            with np.errstate(invalid="ignore"):
                quiet: Vector = np.multiply(column, 1.0, dtype=np.float64)  # NaNs that signal become those that do not
            return quiet
        if set(map(type, column)) == {type(None)}:
            return None
        for i, entry in enumerate(column):
            if parse is not None and type(entry) is str and (number := parse(entry)) is not None:
                column[i] = number
            elif type(entry) not in _NUMBERS:
                self.note(Problem.mismatch(f"/{name}/{i}", entry, words, expected or {"type": ["number", "null"]}))
                return None
        return np.array([missing if item is None else item for item in column], dtype=np.float64)

    def within(
        self, where: str, values: Vector, good: NDArray[np.bool_], words: str, expected: Mapping[str, Any]
    ) -> None:
        """Note every number of a column that is not `good` (n,)."""
        if not good.all():
            for i in np.flatnonzero(~good)[:MAX_PROBLEMS].tolist():
                self.note(Problem.mismatch(f"{where}/{i}", values.item(i), words, expected))

    def only(self, entries: dict[Any, Any], allowed: Collection[str], where: str) -> None:
        """Note every member that is not allowed."""
        for name in entries:
            if name not in allowed:
                self.note(Problem.unknown(where, name, allowed, "member"))

    def bounded(self, n: int, where: str, events: Any) -> bool:
        """Return whether the number of events is allowed."""
        if 0 < n <= MAX_EVENTS:
            return True
        actual = "missing" if events is None else f"{show(events)}, {n} events"
        code: Literal["missing", "invalid"] = "missing" if events is None else "invalid"
        expected = {"minItems": 1, "maxItems": MAX_EVENTS}
        self.note(Problem(where, f"is {actual}; expected 1 to {MAX_EVENTS} events", code, expected=expected))
        return False

    def column(
        self, raw: msgspec.Raw, where: str, n: int | None, dtypes: Collection[str], named: bool = False
    ) -> NDArray[Any] | list[Any] | None:
        """Return a list or a one-dimensional array of n events; None: of any number.

        A list has scalars; named features may have lists of scalars, too. Any other value in it is not decoded and
        becomes `UndecodedValue`. Raises `BadBody` for text that is not UTF-8.
        """
        column: PackedArray | list[Any] | None = self._try_decode(_cells if named else _entries, raw)
        if column is None and length(raw)[0] == "list":
            count = length(raw)[1]
            if n is None and not self.bounded(count, where, glance(raw)):
                return None
            if n is None or n == count:
                column = self._try_decode(cells if named else scalars, raw)
            else:
                self.note(_unequal(where, count, n))
                return None
        values = column if isinstance(column, list) else self.array(raw, where, dtypes, 1, "a list or ", column)
        if values is not None and n is not None and len(values) != n:
            self.note(_unequal(where, len(values), n))
            return None
        return values

    def array(
        self,
        raw: msgspec.Raw | None,
        where: str,
        dtypes: Collection[str],
        ndim: int,
        other: str = "",
        read: PackedArray | None = None,
    ) -> NDArray[Any] | None:
        """Return an ARRAY as a read-only view of its bytes; `read`: the ARRAY if it is decoded already."""
        if read is None and raw is not None:
            read = self._try_decode(_array, raw)
        if read is not None:
            dtype, shape, data = read.dtype, read.shape, read.data
        else:
            actual = None if raw is None else opened(raw)
            if not isinstance(actual, dict) or not actual.keys() & _PARTS:
                words = f"{other}an array of {', '.join(dtypes)}: a map of {', '.join(_PARTS)}"
                value = ABSENT if actual is None else actual
                self.note(Problem.mismatch(where, value, words, {"type": "object", "required": [*_PARTS]}))
                return None
            if actual.keys() != {*_PARTS}:
                self.only(actual, _PARTS, where)
                for part in _PARTS:
                    if part not in actual:
                        detail = f"is missing; an array is a map of {', '.join(_PARTS)}"
                        self.note(Problem(f"{where}/{part}", detail, "missing"))
                return None
            dtype, shape, data = actual["dtype"], actual["shape"], actual["data"]
        if not isinstance(dtype, str) or dtype not in dtypes:
            self.note(Problem.choice(f"{where}/dtype", dtype, dtypes))
            return None
        whole = read is not None or (
            isinstance(shape, list) and all(type(k) is int and 0 <= k < MAX_SIZE for k in shape)
        )
        if not whole or len(shape) != ndim:
            sizes = "1 size" if ndim == 1 else f"{ndim} sizes"
            items = {"type": "integer", "minimum": 0}
            expected = {"type": "array", "items": items, "minItems": ndim, "maxItems": ndim}
            words = f"{sizes}, whole numbers of at least 0"
            self.note(Problem.mismatch(f"{where}/shape", shape, words, expected))
            return None
        if not isinstance(data, (bytes, memoryview)):
            self.note(Problem.mismatch(f"{where}/data", data, "bytes"))
            return None
        size = math.prod(shape) * DTYPES[dtype].itemsize
        if size != len(data):
            detail = f"has {len(data)} bytes; {dtype} of shape {show(shape)} takes {show(size)}"
            self.note(Problem(f"{where}/data", detail, "conflict"))
            return None
        values = np.frombuffer(data, dtype=DTYPES[dtype]).reshape(shape)
        return values != 0 if dtype == "bool" else values

    @staticmethod
    def _try_decode(decode: Callable[[msgspec.Raw], Any], raw: msgspec.Raw) -> Any:
        """Decode a value; None if the decoder refuses it. Raises `BadBody` if text is not UTF-8."""
        try:
            return decode(raw)
        except msgspec.DecodeError:
            return None
        except UnicodeError as error:
            raise BadBody(f"the body is not MessagePack: {error}") from None


def _unequal(where: str, count: int, n: int) -> Problem:
    """Report a column whose length is not the number of events."""
    return Problem(where, length_mismatch(count, n), "conflict", expected={"minItems": n, "maxItems": n})


def _hint(body: bytes) -> str:
    """Return a hint if an unreadable body looks like JSON, which begins like small numbers of MessagePack."""
    begins = body[:_GLANCE].lstrip()[:1]
    return "; it looks like JSON, whose Content-Type is application/json" if begins in (b"{", b"[") else ""
