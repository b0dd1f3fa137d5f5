"""Split a text into words: what is learnt of the fields that are declared as text.

A learner has one of two rules, a setting of its features:

    normalised   Unicode's form NFKC without invisible characters, in lower case. A word is a run of letters, digits and
                 underscores with the combining marks that follow them. Scripts without spaces (Han and Kana; Thai, Lao,
                 Burmese, Khmer) give pairs of neighbouring characters, each with its marks; a single one stands alone.
    literal      lower case, runs of letters, digits and underscores. Learners of earlier versions have this rule.

Both give the same words for a text in ASCII. The tables of Unicode are those of the Python that reads the event: a new
version of Unicode changes only words with characters that it adds or corrects.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import lru_cache
from typing import Literal

__all__ = ["WordRule", "visible", "words_of"]

WordRule = Literal["normalised", "literal"]

_LITERAL = re.compile(r"\w+")
_IGNORABLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")  # beside the category Cf
_VARIATION = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))  # selectors of a glyph
_TOGETHER = (  # Han and Kana, with the marks of iteration and length
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3031, 0x3035),
    (0x3038, 0x303C),
    (0x3041, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x16FE3, 0x16FE3),
    (0x1AFF0, 0x1B16F),
    (0x20000, 0x3FFFF),
)
_SOUTHEAST = (
    (0x0E01, 0x0E4E),
    (0x0E81, 0x0ECD),
    (0x0EDC, 0x0EDF),
    (0x1000, 0x103F),
    (0x1050, 0x108F),
    (0x1780, 0x17D3),
)
# each character of a text becomes one of: w letter or digit, m mark, h Han or Kana, t the scripts from Thai on, space
_RUN = re.compile(r"(?P<word>w[wm]*)|(?:hm*)+|(?:tm*)+")
_CHARACTER = re.compile(r"[ht]m*")


def words_of(text: str, rule: WordRule, most: int) -> list[str]:
    """Split a text into its words, in order, at most the first `most`. O(characters)."""
    if rule == "normalised" and not text.isascii():
        return _normalised_words(text, most)
    return _first(_LITERAL, text.lower(), most)


def _first(pattern: re.Pattern[str], text: str, most: int) -> list[str]:
    if len(text) < 2 * most:  # too short for more words than that
        return pattern.findall(text)
    return [match.group() for match in itertools.islice(pattern.finditer(text), most)]


def visible(text: str) -> str:
    """Remove the invisible characters of a text, such as spaces of no width and soft hyphens. O(characters)."""
    invisible = {ord(character): None for character in set(text) if _is_invisible(character)}
    return text.translate(invisible) if invisible else text


def _normalised_words(text: str, most: int) -> list[str]:
    clear = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible(text)).lower())
    shapes = {ord(character): _shape(character) for character in set(clear)}
    if {"m", "h", "t"}.isdisjoint(shapes.values()):  # usual, and faster
        return _first(_LITERAL, clear, most)
    spelt = clear.translate(shapes)
    words = itertools.chain.from_iterable(
        [clear[run.start() : run.end()]] if run.lastgroup else _pairs(clear, spelt, *run.span())
        for run in _RUN.finditer(spelt)
    )
    return list(itertools.islice(words, most))


def _pairs(text: str, spelt: str, start: int, stop: int) -> list[str]:
    """Return the pairs of neighbouring characters of a run, or its only character."""
    starts = [match.start() for match in _CHARACTER.finditer(spelt, start, stop)]
    ends = [*starts[2:], stop]
    return [text[first:end] for first, end in zip(starts, ends, strict=False)]


@lru_cache(maxsize=8192)
def _is_invisible(character: str) -> bool:
    return (
        unicodedata.category(character) == "Cf"
        or character in _IGNORABLE
        or any(first <= ord(character) <= last for first, last in _VARIATION)
    )


@lru_cache(maxsize=8192)
def _shape(character: str) -> str:
    if unicodedata.category(character)[0] == "M":
        return "m"
    if not (character.isalnum() or character == "_"):
        return " "
    code = ord(character)
    if any(first <= code <= last for first, last in _TOGETHER):
        return "h"
    return "t" if any(first <= code <= last for first, last in _SOUTHEAST) else "w"
