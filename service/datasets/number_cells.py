"""Numbers in cells of files: other decimal marks, and whether a column is numeric. No I/O.

What a cell of a feature means is said by the rule of values, see `learners.features`.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from learners.features import MISSING as MISSING_TEXTS
from learners.features import ValueKind, cell_value, is_missing, name_reason, read_text

__all__ = [
    "MISSING",
    "ColumnKind",
    "NumberForm",
    "Plain",
    "column_kind",
    "is_absent",
    "is_number",
    "number",
    "number_form",
    "plain_number",
    "quote",
]

MISSING = MISSING_TEXTS | {""}  # of a number, in any case
_LONGEST = 30  # characters of such a text
_MARKS = re.compile(r"[\s.()\[\]{}<>#/_*?\u2013\u2014\u2026-]+")  # around and within such words
_ABSENT = {_MARKS.sub("", text) for text in MISSING if text[:1] != "#"}  # of an id or a label; not of #name?

Plain = Callable[[str], str]  # spells the number of a cell in the plain form; raises ValueError

_LOWEST, _LARGEST = -sys.float_info.max, sys.float_info.max
_MARKED = re.compile(r"(?P<before>[^\w\s]{0,3}?)\s?[+-]?[0-9][0-9.,' ]*?\s?(?P<after>[^\w\s]{0,3})")
_NUMBER_MARKS = "%\u2030'()=\"-"  # and signs of currencies
_QUOTED = 60  # characters of a cell in a message
_TRIED = 20  # cells by which a column is tried for another form of numbers


def quote(text: str) -> str:
    """Quote a cell for a message."""
    return repr(text if len(text) <= _QUOTED else f"{text[:_QUOTED]}...")


def is_absent(text: str, words: Collection[str] = ()) -> bool:
    """Tell whether the cell of an id or a label says that there is none, as NULL, (null), N.A. and - do.

    `words`: others that say so, in lower case and without marks and blanks.
    """
    folded = text.strip().lower()
    if folded in MISSING or len(folded) > _LONGEST:
        return len(folded) <= _LONGEST
    bare = _MARKS.sub("", folded)
    return bare in _ABSENT or bare in words


def number(text: str) -> float | None:
    """Parse a number that is no feature's; None if it is missing. Infinite ones are refused: JSON has none."""
    try:
        value = float(text)
    except ValueError:
        if text.strip().lower() in MISSING:
            return None
        raise ValueError(f"{text[:60]!r} is not a number") from None
    if _LOWEST <= value <= _LARGEST and "_" not in text:
        return value
    if value != value:
        return None
    raise ValueError(f"{text[:60]!r} is not a finite decimal number")


def is_number(text: str) -> bool:
    """Tell whether `number` accepts a text."""
    try:
        number(text)
    except ValueError:
        return False
    return True


def _spells_number(text: str, plain: Plain) -> bool:
    try:
        return type(cell_value(plain(text))) is float
    except ValueError:
        return False


_POINTS = ("", ".", ",")  # marks between thousands that have no variants
_GROUP_MARKS = {ord(blank): " " for blank in "\u00a0\u2009\u202f"} | {ord("\u2019"): "'"}


class NumberForm:
    """Numbers with this decimal mark and separated thousands."""

    def __init__(self, decimal: str, thousands: str) -> None:
        self.decimal = decimal or "."
        self.thousands = thousands
        mark, group = re.escape(self.decimal), re.escape(thousands)
        whole = f"(?:[0-9]{{1,3}}(?:{group}[0-9]{{3}})+|[0-9]*)" if thousands else "[0-9]*"
        self._form = re.compile(f"[+-]?{whole}(?:{mark}[0-9]*)?(?:[eE][+-]?[0-9]+)?")

    def __call__(self, text: str) -> str:
        """Return a number in the plain form, and what is no number as it is. Raises ValueError for a plain number."""
        bare = text.strip() if self.thousands in _POINTS else text.strip().translate(_GROUP_MARKS)
        if self._form.fullmatch(bare):
            return bare.replace(self.thousands, "").replace(self.decimal, ".")
        if type(cell_value(bare)) is float:
            raise ValueError(f"is {quote(text)}; expected a number with {self}, or null")
        return bare

    def __str__(self) -> str:
        groups = f" and {self.thousands!r} between thousands" if self.thousands else ""
        return f"the decimal mark {self.decimal!r}{groups}"


_GROUPED = NumberForm(".", ",")
_FORMS = (
    *(NumberForm(",", ""), NumberForm(",", "."), _GROUPED),
    *(NumberForm(",", " "), NumberForm(".", " "), NumberForm(".", "'")),
)


def number_form(cells: Sequence[str]) -> tuple[NumberForm | None, str | None]:
    """Detect in which form, other than the plain one, the cells of a column are numbers.

    Returns a reason instead if every cell has two meanings, as 1,234 and 555 123 have, and (None, None) if they are no
    numbers.
    """
    texts = [cell.strip() for cell in cells if not is_missing(cell)]
    if not any(_spells_number(text, form) for text in islice(texts, _TRIED) for form in _FORMS):
        return None, None
    read = {form: sum(_spells_number(text, form) for text in texts) for form in _FORMS}
    most = max(read.values())
    if 100 * (len(texts) - most) > len(texts):
        return None, None
    meanings = [form for form, count in read.items() if count == most]
    form = meanings[0]
    marked = next((text for text in texts if not _spells_number(text, str)), "")
    if form.thousands not in _POINTS and not any(form.decimal in text for text in texts):  # 555 123 may be a name
        give = f"give --thousands {form.thousands!r}"
        return None, f"taken as names because {quote(marked)} may be a name; if it is a number, {give}"
    if _GROUPED not in meanings or len(meanings) == 1:
        return form, None
    return (
        None,
        f"taken as names because {quote(marked)} has two meanings: give --decimal , or --thousands ,"
        if marked
        else None,
    )


class ColumnKind(NamedTuple):
    """What the cells of a column of text are."""

    numeric: bool | None  # None: missing cells decide nothing
    note: str | None = None  # what was taken, if it may be wrong
    fractions: bool = False  # some cells spell numbers that are not whole, which no learner takes for names


def column_kind(cells: Iterable[str], plain: Plain | None = None) -> ColumnKind:
    """Tell whether a column with these cells is numeric.

    A numeric column may have a few other cells, at most 1 in 100, or fewer than numbers if there are fractions. Whole
    numbers with leading zeros, or that float64 cannot tell apart, are names.
    """
    numbers = others = same = fractions = marked = 0
    first = reason = ""
    for cell in cells:
        try:
            kind, _, text = read_text(cell if plain is None else plain(cell))
        except ValueError:
            kind, text = ValueKind.TEXT, cell
        if not text or kind == ValueKind.MISSING_TEXT:
            continue
        if kind in (ValueKind.WHOLE_TEXT, ValueKind.NUMBER_TEXT):
            numbers += 1
            fractions += kind == ValueKind.NUMBER_TEXT
        else:
            reason = reason or f"{quote(text)} {why}" if (why := name_reason(text)) else reason
            marked += marked == others and _is_marked(text)
            others += 1
            first = first or text
            same += text == first
    if not numbers and not others:
        return ColumnKind(None)
    if reason:
        return ColumnKind(False, f"taken as names because {reason}", fractions > 0)
    if 100 * others <= numbers + others:
        return ColumnKind(True, None, fractions > 0)
    are = "1 cell is" if others == 1 else f"{others:,} cells are"
    if fractions and others < numbers:
        return ColumnKind(
            True,
            f"{are} no number, such as {quote(first)}, and missing; --categorical of create takes all as names",
            True,
        )
    why = f"{are} not a number, such as {quote(first)}"
    if same == others > 1:
        why = f"{are} {quote(first)}: if that is no value, use --missing {quote(first)}"
    if marked == others > numbers:
        why = f"of the marks beside numbers, as in {quote(first)}; if they are quantities, write them without"
    return ColumnKind(False, f"taken as names because {why}" if max(numbers, marked) >= others else None, fractions > 0)


def _is_marked(text: str) -> bool:
    """Tell whether a cell is a number with marks, such as $12.50, 12 %, '950 and =\"007\"."""
    match = _MARKED.fullmatch(text)
    marks = "" if match is None else match["before"] + match["after"]
    return bool(marks) and all(mark in _NUMBER_MARKS or unicodedata.category(mark) == "Sc" for mark in marks)


def plain_number(what: str, value: Any) -> float | None:
    """Return a number of JSON as float; None for null. Raises ValueError for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"the {what} is {str(value)[:60]!r}; expected a number")
    return float(value)
